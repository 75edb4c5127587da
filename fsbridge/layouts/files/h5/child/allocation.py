"""Room for elements that are not in the skeleton: on pages of their own. Part of the writing process.

A damaged element makes the kernel's page that holds it unreadable, so nothing else may lie there: neither HDF5's own
structures, without which the whole file could not be read, nor another dataset. HDF5 aligns either everything or what is
large, so all else is written first. Not here: what is written.
"""

from __future__ import annotations

import ctypes
from typing import Any

from h5py import h5d, h5f, h5fd, h5p, h5s

from fsbridge.children.hdf5 import DEFAULT, ID, MEMORY, function

_write = function(h5p, "H5Dwrite", ID, ID, ID, ID, ID, MEMORY)


def allocate(file: h5f.FileID, path: bytes, count: int) -> int:
    """The offset of the `count` bytes of a dataset's elements, which have had none; ValueError if there are not so many."""
    access = h5p.create(h5p.DATASET_ACCESS)
    access.set_chunk_cache(1, 0, 1.0)  # else HDF5 would write the whole chunk
    found = h5d.open(file, path, access)
    tid, space = found.get_type(), found.get_space()
    rank = space.get_simple_extent_ndims()
    if rank:
        space.select_hyperslab((0,) * rank, (1,) * rank)
    element, one = ctypes.create_string_buffer(tid.get_size()), h5s.create(h5s.SCALAR)
    if _write(found.id, tid.id, one.id, space.id, DEFAULT, element) < 0:
        raise ValueError("HDF5 makes no room for the elements")
    chunked = found.get_create_plist().get_layout() == h5d.CHUNKED
    offset = found.get_chunk_info(0).byte_offset if chunked else found.get_offset()
    if offset is None or found.get_storage_size() != count:
        raise ValueError(f"{found.get_storage_size()} bytes of elements, not {count}")
    return int(offset)


def aligned(pages: Any, alignment: int) -> h5f.FileID:
    """The file in `pages` opened so that all that is new in it begins at a multiple of `alignment`."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fileobj_driver(h5fd.fileobj_driver, pages)
    access.set_alignment(1, alignment)
    access.set_libver_bounds(h5f.LIBVER_EARLIEST, h5f.LIBVER_LATEST)
    return h5f.open(b"skeleton", h5f.ACC_RDWR, fapl=access)
