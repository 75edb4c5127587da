"""HDF5: files whose structure a confined child process reads, and whose chunks the daemon reads and decodes itself.

`source.open_hdf5` is the way in for a mount; `file.HDF5File` for formats that keep their data in HDF5 files (Hangar).

    worker.py   the child: the only importer of h5py; child/ belongs to it
    file.py     one file: descriptor, version, child, restarts; the pool of live ones
    answers.py  what the child says, checked
    types.py    HDF5 types -> model.DataType
    tables.py   chunk tables, compact
    metadata.py a dataset as model metadata
    arrays.py   Array and Chunks; source.py: Group and Source

This file imports nothing, because the child starts through it.
"""
