"""HDF5: a confined child process reads the structure of files; the daemon reads and decodes their chunks itself.

`source.open_hdf5` opens a file for a mount. `file.HDF5File` serves formats that keep their data in HDF5 files (Hangar).

    child/             the child's program, the only importer of h5py; child/worker.py starts it
    file.py            one file and its child; the pools of files that hold a child or a descriptor
    versions.py        one version of a local data file, and exact reads of it
    remote.py          the same for an object of a remote store, in blocks (blocks.py) that are dropped when idle
    answers.py         what the child says, checked
    pages.py           the members of groups, memoised by the file's version
    source.py          Group and Source
    arrays.py          Array, prefetch of the next datasets of a remote file
    whole.py           the bytes of a file that HDF5 alone can read
    dataset.py         one version of a dataset and its metadata
    chunks.py          Chunks, with a chunk table (tables.py) or in slabs
    types.py           HDF5 datatypes as model.DataType
    filters.py         filters as codec chains, and which plug-ins the child may load

This file imports nothing, because the child starts through it.
"""
