"""Warming up the process that children are forked from: it uses HDF5 once, on a file in memory.

What is loaded, allocated and found out about this HDF5 is shared by all children. Not here: anything of a store. Part of
the HDF5 child.
"""

from __future__ import annotations

import h5py
import numpy as np

from fsbridge.formats.hdf5.child.exact import Exact


def use_hdf5() -> None:
    """Write a file in memory and ask what the daemon asks of every file."""
    with h5py.File("warm-up", "w", driver="core", backing_store=False, libver="latest") as file:
        file.attrs["text"] = "x"
        group = file.create_group("group")
        options = {"chunks": (4,), "compression": "gzip", "maxshape": (None,), "fillvalue": 1.0}
        group.create_dataset("chunked", data=np.arange(8.0), **options)
        group.create_dataset("words", data=["x"], dtype=h5py.string_dtype())
        group["plain"] = np.arange(4)
        group["plain"].make_scale("x")
        worker = Exact()
        worker.file = file.id
        for path in ([], ["group"]):
            worker.group({"path": path, "start": 0})
            worker.exact({"path": path, "start": 0})
        worker.read({"path": ["group", "words"], "start": [0], "shape": [1], "fill": "", "limit": 64})
