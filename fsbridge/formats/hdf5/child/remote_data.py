"""Data of a dataset in other files of a remote store: virtual datasets and external raw files, read here.

HDF5 itself would read the opened file in place of each of them, because the driver that reads blocks knows no names. The
elements are the ones that HDF5 reads from a local disk: the fill value where a source is missing, zeros behind the end of
a raw file. Part of the HDF5 child. Not here: which files may be read (`sources.py`, and the daemon, which checks every
name).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from h5py import h5d, h5f, h5p, h5s, h5z

from fsbridge.formats.hdf5.child import h5types
from fsbridge.formats.hdf5.child.block_file import BlockFile
from fsbridge.formats.hdf5.child.opened import Refusal
from fsbridge.formats.hdf5.child.other_files import BLOCK

Blocks = Callable[[str], BlockFile | None]
"""name -> the file of that name, or None if there is none."""
Source = Callable[[str, str], Any]
"""(file name, dataset name) -> the opened dataset, or None if there is none."""

_ID = ctypes.c_int64
_library = ctypes.CDLL(h5p.__file__)
_project = _library.H5Sselect_project_intersection
_move_back = _library.H5Sselect_adjust
"""Functions of the HDF5 that h5py is linked with; h5py does not offer them."""
_project.argtypes, _project.restype = (_ID, _ID, _ID), _ID
_move_back.argtypes = (_ID, ctypes.POINTER(ctypes.c_int64))


def grows(space: Any) -> bool:
    """Tell whether a selection has no end, so that the shape of the dataset depends on which files exist."""
    if space.get_select_type() != h5s.SEL_HYPERSLABS or not space.is_regular_hyperslab():
        return False
    _, _, counts, blocks = space.get_regular_hyperslab()
    return h5s.UNLIMITED in (*counts, *blocks)


def check(dataset: Any) -> None:
    """Refuse a dataset with data in other remote files if it cannot be read."""
    if h5types.form(h5types.describe(dataset.get_type())) not in ("raw", "converted"):
        raise Refusal("unsupported", "elements of variable length in other files: read from local disks only")
    plist = dataset.get_create_plist()
    for i in range(plist.get_virtual_count() if plist.get_layout() == h5d.VIRTUAL else 0):
        if "%b" in BLOCK.findall(plist.get_virtual_filename(i) + plist.get_virtual_dsetname(i)):
            raise Refusal("unsupported", "virtual dataset over a pattern of files: read from local disks only")
        if grows(plist.get_virtual_vspace(i)) or grows(plist.get_virtual_srcspace(i)):
            raise Refusal("unsupported", "virtual dataset that grows with other files: read from local disks only")


def read_virtual(
    dataset: Any, source: Source, start: Sequence[int], shape: tuple[int, ...], found: Any, memory_type: Any
) -> None:
    """Read a block of a virtual dataset, in `memory_type`, into the array `found`."""
    plist = dataset.get_create_plist()
    with _scratch(dataset, shape, _fill(dataset)) as filled:
        filled.read(h5s.ALL, h5s.ALL, found, memory_type)
    for i in range(plist.get_virtual_count()):
        whole = _selected(dataset.get_space(), plist.get_virtual_vspace(i))
        part = whole.copy()
        part.select_hyperslab(tuple(start), shape, op=h5s.SELECT_AND)
        count = part.get_select_npoints()
        mapped = source(plist.get_virtual_filename(i), plist.get_virtual_dsetname(i)) if count else None
        if mapped is None:
            continue
        there = _selected(mapped.get_space(), plist.get_virtual_srcspace(i))
        number = _project(whole.id, there.id, part.id) if there.select_valid() else -1
        if number < 0:
            raise Refusal("corrupt", "virtual dataset whose source is smaller than what is mapped")
        if _move_back(part.id, (ctypes.c_int64 * len(shape))(*start)) < 0:
            raise Refusal("corrupt", "virtual dataset whose mapping HDF5 cannot move")
        memory = h5s.create_simple(shape)
        memory.select_copy(part)
        mapped.read(memory, h5s.SpaceID(number), found, memory_type)


def _selected(space: Any, selection: Any) -> Any:
    """Apply to `space` a selection that the file stores without an extent or with a smaller one."""
    if selection.get_select_type() == h5s.SEL_ALL:
        space.select_all()
    elif selection.get_simple_extent_ndims() != space.get_simple_extent_ndims():
        raise Refusal("corrupt", "virtual dataset whose source has another number of dimensions")
    else:
        space.select_copy(selection)
    return space


def read_external(
    dataset: Any, blocks: Blocks, start: Sequence[int], shape: tuple[int, ...], found: Any, memory_type: Any
) -> None:
    """Read a block of a dataset in raw files, in `memory_type`, into the array `found`."""
    extent, tid = dataset.get_space().get_simple_extent_dims() or (), dataset.get_type()
    first, count = _contiguous(start, shape, extent)
    data = _external_bytes(dataset.get_create_plist(), blocks, first * tid.get_size(), count * tid.get_size())
    with _scratch(dataset, shape, h5p.create(h5p.DATASET_CREATE)) as stored:
        stored.write(h5s.ALL, h5s.ALL, np.frombuffer(data, np.uint8), tid)
        stored.read(h5s.ALL, h5s.ALL, found, memory_type)


def _contiguous(start: Sequence[int], shape: Sequence[int], extent: Sequence[int]) -> tuple[int, int]:
    """Return the number of a block's first element and the count of elements. Refuses elements that are not adjacent."""
    first = last = 0
    count = 1
    for begin, edge, length in zip(start, shape, extent, strict=True):
        first, last, count = first * length + begin, last * length + begin + edge - 1, count * edge
    if count and last - first + 1 != count:
        raise Refusal("unsupported", "elements of raw files that do not follow each other")
    return first, count


def _external_bytes(plist: Any, blocks: Blocks, first: int, length: int) -> bytes:
    """Return bytes of a dataset that are in raw files, one part after the other."""
    found, position = bytearray(length), 0
    for i in range(plist.get_external_count()):
        name, offset, size = plist.get_external(i)
        begin, end = max(first, position), min(first + length, position + size)
        if begin < end:
            file = blocks(name.decode("utf-8", "surrogateescape"))
            if file is None:
                raise Refusal("corrupt", f"its raw file {name.decode('utf-8', 'replace')} is not there")
            found[begin - first : end - first] = file.read(offset + begin - position, end - begin)
        position += size
    return bytes(found)


def _fill(dataset: Any) -> Any:
    """Return properties to create an unwritten dataset with the fill value of `dataset`: no filters, no chunks."""
    plist = dataset.get_create_plist()
    plist.remove_filter(h5z.FILTER_ALL)
    plist.set_layout(h5d.CONTIGUOUS)
    plist.set_alloc_time(h5d.ALLOC_TIME_LATE)
    return plist


@contextmanager
def _scratch(dataset: Any, shape: tuple[int, ...], plist: Any) -> Iterator[Any]:
    """Make a dataset in memory with the type of another one."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fapl_core(1 << 16, False)
    file = h5f.create(b"elsewhere", h5f.ACC_TRUNC, fapl=access)
    try:
        space = h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)
        yield h5d.create(file, b"x", dataset.get_type().copy(), space, plist)
    finally:
        file.close()
