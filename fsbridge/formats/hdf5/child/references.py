"""What references to parts of objects, and those of HDF5 1.12, refer to: HDF5 itself is asked. Of the HDF5 child.

Not here: references as h5py reads them (`objects.py`), whoever makes them again (`layouts/files/h5`).
"""

from __future__ import annotations

import ctypes
from typing import Any

from h5py import h5f, h5i, h5o, h5p, h5s

from fsbridge.children.elements import Target
from fsbridge.children.hdf5 import DEFAULT, ID, MEMORY, SIZE, TEXT, function

_DATASET_REGION = 1
"""H5R_DATASET_REGION1 (H5Rpublic.h)."""
_OBJECT, _REGION, _ATTRIBUTE = 2, 3, 4
"""H5R_OBJECT2, H5R_DATASET_REGION2, H5R_ATTR: those of HDF5 1.12."""

_dereference = function(h5p, "H5Rdereference2", ID, ID, ctypes.c_int, MEMORY, result=ID)
_get_region = function(h5p, "H5Rget_region", ID, ctypes.c_int, MEMORY, result=ID)
try:
    _type = function(h5p, "H5Rget_type", MEMORY)
    _open_object = function(h5p, "H5Ropen_object", MEMORY, ID, ID, result=ID)
    _open_region = function(h5p, "H5Ropen_region", MEMORY, ID, ID, result=ID)
    _file_name = function(h5p, "H5Rget_file_name", MEMORY, TEXT, SIZE, result=ctypes.c_ssize_t)
    _attribute_name = function(h5p, "H5Rget_attr_name", MEMORY, TEXT, SIZE, result=ctypes.c_ssize_t)
except AttributeError:  # before HDF5 1.12, which opens nothing that has such references
    _type = None


def target(file: h5f.FileID, raw: bytes) -> Target:
    """What the bytes of a reference in memory refer to in `file`; ValueError for one that leads nowhere in it."""
    if not any(raw):
        return Target(0, b"")
    memory = ctypes.create_string_buffer(raw, len(raw))
    if len(raw) == 12:
        space = _get_region(file.id, _DATASET_REGION, memory)
        return Target(_address(_dereference(file.id, DEFAULT, _DATASET_REGION, memory)), _selection(space))
    kind = -1 if _type is None else _type(memory)
    if kind not in (_OBJECT, _REGION, _ATTRIBUTE) or _text(_file_name, memory) != h5f.get_name(file):
        raise ValueError("a reference that leads out of the file, or of an unknown kind")
    address = _address(_open_object(memory, DEFAULT, DEFAULT))
    if kind == _REGION:
        return Target(address, _selection(_open_region(memory, DEFAULT, DEFAULT)), kind)
    return Target(address, _text(_attribute_name, memory) if kind == _ATTRIBUTE else b"", kind)


def _address(opened: int) -> int:
    """Of an object that HDF5 has opened, which is closed."""
    if opened < 0:
        raise ValueError("a reference that leads nowhere")
    return int(h5o.get_info(h5i.wrap_identifier(opened)).addr)


def _selection(space: int) -> bytes:
    if space < 0:
        raise ValueError("a reference to a region that is none")
    return bytes(h5s.SpaceID(space).encode())


def _text(ask: Any, memory: Any) -> bytes:
    """What a function gives that is asked for the length first."""
    length = ask(memory, None, 0)
    if length < 0:
        raise ValueError("a reference of which HDF5 tells nothing")
    buffer = ctypes.create_string_buffer(length + 1)
    ask(memory, buffer, length + 1)
    return buffer.value
