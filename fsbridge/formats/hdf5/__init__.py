"""HDF5: files whose structure a confined child process reads, and whose chunks the daemon reads and decodes itself.

`source.open_hdf5` is the way in for a mount; `file.HDF5File` for formats that keep their data in HDF5 files (Hangar).

    worker.py   the child: the only importer of h5py; child/ belongs to it
    plugins.py  what that program is, and which filter plug-ins it may load
    file.py     one file and its child; versions.py: a descriptor of one version of it; the pools of live ones
    remote.py   the same of an object elsewhere, in blocks (blocks.py), given back when it is idle (idle_timer.py)
    answers.py  what the child says, checked; pages.py: groups with all their members, remembered
    types.py    HDF5 types -> model.DataType; metadata.py: a dataset as model metadata
    tables.py   chunk tables, compact; pipeline.py: filters as codec chains
    source.py   Group and Source; arrays.py: Array; chunks.py, slabs.py: Chunks

This file imports nothing, because the child starts through it.
"""
