"""Writes objects exactly as in another HDF5 file: types, spaces, attributes, references. Part of the writing process.

Objects are described by `exact.Exact`, with a path in the new file. Not here: objects that JSON describes
(`plain.py`).
"""

from __future__ import annotations

import base64
import ctypes
import functools
from collections.abc import Callable, Mapping
from typing import Any

from h5py import h5a, h5d, h5f, h5g, h5o, h5p, h5s, h5t

from fsbridge.children.elements import ALL, DEFAULT, ID, MEMORY, TEXT, Form, Target, Unpacker, form, function

MAX_CHUNK_BYTES = (1 << 32) - 1
"""Most bytes of a chunk in HDF5. A larger dataset gets a fixed extent even if the original can grow."""

_REFERRING = ("DIMENSION_LIST", "REFERENCE_LIST")
"""Attributes of dimension scales. References to objects outside this file are dropped, because readers follow all."""
_OBJECT, _REGION = 0, 1
"""H5R_OBJECT1, H5R_DATASET_REGION1 (H5Rpublic.h)."""
_NEW_OBJECT, _NEW_REGION, _NEW_ATTRIBUTE = 2, 3, 4
"""H5R_OBJECT2, H5R_DATASET_REGION2, H5R_ATTR: the references of HDF5 1.12, of `_NEW_BYTES` in memory."""
_NEW_BYTES = 64
_REFERENCES = ("object", "region", "reference")
"""Kinds of references in elements."""


_write_attribute = function(h5p, "H5Awrite", ID, ID, MEMORY)
_write_dataset = function(h5p, "H5Dwrite", ID, ID, ID, ID, ID, MEMORY)
_set_fill_value = function(h5p, "H5Pset_fill_value", ID, ID, MEMORY)
_create_reference = function(h5p, "H5Rcreate", MEMORY, ID, TEXT, ctypes.c_int, ID)
try:
    _create_object = function(h5p, "H5Rcreate_object", ID, TEXT, ID, MEMORY)
    _create_region = function(h5p, "H5Rcreate_region", ID, TEXT, ID, ID, MEMORY)
    _create_attribute_reference = function(h5p, "H5Rcreate_attr", ID, TEXT, TEXT, ID, MEMORY)
    _destroy = function(h5p, "H5Rdestroy", MEMORY)
except AttributeError:  # HDF5 before 1.12 has no such references
    _create_object = None
_commit = function(h5p, "H5Tcommit_anon", ID, ID, ID, ID)
_create_properties = function(h5p, "H5Pcreate", ID, result=ctypes.c_int64)
_set_track_times = function(h5p, "H5Pset_obj_track_times", ID, ctypes.c_bool)
_set_comment = function(h5p, "H5Oset_comment", ID, TEXT)

Described = Mapping[str, Any]


def raw(path: str) -> bytes:
    """Return a path as bytes for HDF5. Bytes that were not UTF-8 in the source are unchanged."""
    return path.encode("utf-8", "surrogateescape")


def decoded(text: str) -> bytes:
    """Bytes in base64."""
    return base64.b64decode(text, validate=True)


class Typed:
    """Writes objects of other HDF5 files, and knows where in this file each of them is."""

    def __init__(self, file: h5f.FileID) -> None:
        self.file = file
        self._paths: dict[tuple[int, int], bytes] = {}
        self._types: dict[tuple[int, int], Any] = {}

    def remember(self, item: Described) -> None:
        """Note that the object of `item` is in the file now."""
        if "address" in item.get("typed", ()):
            self._paths[item["file"], item["typed"]["address"]] = raw(item["path"])

    def comment(self, owner: Any, item: Described) -> None:
        """Write an object's comment, if it has one."""
        if "comment" in item.get("typed", ()):
            checked(_set_comment(owner.id, raw(item["typed"]["comment"])))

    def knows_type(self, item: Described) -> bool:
        """True if the dataset has no committed type, or if that type is in the file already."""
        committed = item.get("typed", {}).get("committed")
        return committed is None or (item["file"], committed) in self._types

    def elements_wait(self, item: Described) -> bool:
        """True if the elements may contain references, so that they must be written after all objects."""
        return _refers(_type(item["typed"]["type"])[1])

    def attributes_wait(self, item: Described) -> bool:
        """True if attributes must be written later, because they have references or committed types not written yet."""
        for described in item.get("typed", {}).get("attributes", ()):
            committed = described.get("committed")
            if committed is not None and (item["file"], committed) not in self._types:
                return True
            try:
                if "type" in described and _refers(_type(described["type"])[1]):
                    return True
            except (ValueError, TypeError, RuntimeError):
                continue  # writing the attribute will report the error
        return False

    def commit(self, entry: Any) -> None:
        """Create a committed type before anything uses it. It gets its name later (`link_type`)."""
        self._committed(entry.item)

    def _committed(self, item: Described) -> Any:
        key = item["file"], item["typed"]["address"]
        if key in self._types:
            return self._types[key]
        tid = h5t.decode(decoded(item["typed"]["type"]))
        checked(_commit(self.file.id, tid.id, _type_creation(), DEFAULT))
        self._types[key] = tid
        return tid

    def link_type(self, item: Described) -> Any:
        """Link a committed type under its name, and return it."""
        tid = self._committed(item)
        h5o.link(tid, self.file, raw(item["path"]), link_creation())
        return tid

    def group(self, item: Described) -> Any:
        """Make a group that keeps the order of creation of its members if the original does."""
        plist = untimed(h5p.GROUP_CREATE)
        plist.set_link_creation_order(item["typed"]["links"])
        plist.set_attr_creation_order(item["typed"]["order"])
        return h5g.create(self.file, raw(item["path"]), link_creation(), plist)

    def dataset(self, item: Described) -> Any:
        """Create a dataset. Its elements are written later."""
        typed = item["typed"]
        memory, shape = _type(typed["type"])
        kind, space = self._stored_type(item["file"], typed, memory), h5s.decode(decoded(typed["space"]))
        if item["bytes"] and memory.get_size() * space.get_simple_extent_npoints() != item["bytes"]:
            raise ValueError(f"HDF5's elements do not have the {item['bytes']} bytes that the array has")
        plist = untimed(h5p.DATASET_CREATE)
        plist.set_attr_creation_order(typed["order"])
        if "fill" in typed:
            with self._references(item["file"]) as references:
                unpacker = Unpacker(decoded(typed["fill"]), references)
                checked(_set_fill_value(plist.id, memory.id, unpacker.elements(shape, 1)))
        space = _shaped(plist, space, memory.get_size(), typed["chunks"], bool(item["bytes"]))
        if item["bytes"]:
            plist.set_fill_time(h5d.FILL_TIME_NEVER)
        return h5d.create(self.file, raw(item["path"]), kind, space, plist, link_creation())

    def items(self, item: Described, items: bytes) -> None:
        """Write elements that are pointers (variable lengths, references). What they refer to must be in the file."""
        found = h5d.open(self.file, raw(item["path"]))
        memory, shape = _type(item["typed"]["type"])
        count = found.get_space().get_simple_extent_npoints()
        if count:
            with self._references(item["file"]) as references:
                unpacker = Unpacker(items, references)  # kept, because it owns the memory of the elements
                checked(_write_dataset(found.id, memory.id, ALL, ALL, DEFAULT, unpacker.elements(shape, count)))

    def attributes(self, owner: Any, item: Described) -> list[str]:
        """Write an object's attributes. Return the names of those that could not be written."""
        failed: list[str] = []
        for described in item["typed"].get("attributes", ()):
            try:
                self._attribute(owner, item["file"], described)
            except (KeyError, ValueError, TypeError, OSError, RuntimeError):
                failed.append(described["name"])
        return failed

    def _attribute(self, owner: Any, file: int, described: Described) -> None:
        name = described["name"]
        (memory, shape), space = _type(described["type"]), h5s.decode(decoded(described["space"]))
        count = space.get_simple_extent_npoints()
        with self._references(file) as references:
            unpacker = Unpacker(decoded(described["data"]), references, name in _REFERRING)
            buffer = unpacker.elements(shape, count)
            if name == "REFERENCE_LIST":
                size = memory.get_size()
                found = [buffer.raw[i : i + size] for i in range(0, len(buffer), size)]
                content = b"".join(item for item in found if any(item[:8]))
                if not content:
                    return
                space = h5s.create_simple((len(content) // size,))
                buffer = ctypes.create_string_buffer(content, len(content))
            attribute = h5a.create(owner, raw(name), self._stored_type(file, described, memory), space)
            if count:
                checked(_write_attribute(attribute.id, memory.id, buffer))

    def _stored_type(self, file: int, described: Described, memory: Any) -> Any:
        """Return the type for the file: the committed type if there is one, else the type itself."""
        return self._types.get((file, described.get("committed", -1)), memory)

    def _references(self, file: int) -> _References:
        return _References(self.file, lambda address: self._paths.get((file, address)))


class _References:
    """Makes references to objects of the new file (`elements.References`). Those of HDF5 1.12 are freed at the end."""

    def __init__(self, file: h5f.FileID, paths: Callable[[int], bytes | None]) -> None:
        """`paths`: finds the path of the object that had an address in the original; None: it is not in this file."""
        self._file = file
        self._paths = paths
        self._made: list[Any] = []

    def old(self, address: int, selection: bytes | None) -> bytes:
        path = self._paths(address)
        buffer = ctypes.create_string_buffer(8 if selection is None else 12)
        if path is not None and selection is None:
            checked(_create_reference(buffer, self._file.id, path, _OBJECT, -1))
        elif path is not None and selection is not None:
            space = h5s.decode(selection)
            checked(_create_reference(buffer, self._file.id, path, _REGION, space.id))
        return buffer.raw

    def new(self, target: Target) -> bytes:
        path, buffer = self._paths(target.address), ctypes.create_string_buffer(_NEW_BYTES)
        if path is None or not target.kind:
            return buffer.raw
        if _create_object is None:
            raise ValueError("this HDF5 library cannot write references of HDF5 1.12")
        if target.kind == _NEW_OBJECT:
            checked(_create_object(self._file.id, path, DEFAULT, buffer))
        elif target.kind == _NEW_REGION:
            space = h5s.decode(target.part)
            checked(_create_region(self._file.id, path, space.id, DEFAULT, buffer))
        elif target.kind == _NEW_ATTRIBUTE:
            checked(_create_attribute_reference(self._file.id, path, target.part, DEFAULT, buffer))
        else:
            raise ValueError(f"references of the kind {target.kind} are not known")
        self._made.append(buffer)
        return buffer.raw

    def __enter__(self) -> _References:
        return self

    def __exit__(self, *_: object) -> None:
        for buffer in self._made:  # an unfreed reference would keep the file open
            _destroy(buffer)


@functools.lru_cache(maxsize=256)
def _type(encoded: str) -> tuple[Any, Form]:
    """Return an uncommitted type, and the form of its elements."""
    tid = h5t.decode(decoded(encoded))
    return tid, form(tid)


def _refers(kind: Form) -> bool:
    """True if elements hold references."""
    return any(name in _REFERENCES or (base is not None and _refers(base)) for _, name, base in kind.pointers)


def untimed(kind: Any) -> Any:
    """Return creation properties of a class without times, so that the same objects always give the same bytes."""
    plist = h5p.create(kind)
    plist.set_obj_track_times(False)
    return plist


@functools.cache
def _type_creation() -> int:
    """Like `untimed`, for a committed type, because h5py lacks that class of properties."""
    kind = ctypes.c_int64.in_dll(ctypes.CDLL(h5p.__file__), "H5P_CLS_DATATYPE_CREATE_ID_g").value
    found: int = checked(_create_properties(kind))
    checked(_set_track_times(found, False))
    return found


@functools.cache
def link_creation() -> Any:
    """Return creation properties of links."""
    links = h5p.create(h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    links.set_char_encoding(h5t.CSET_UTF8)
    return links


def _shaped(plist: Any, space: Any, size: int, chunks: list[int] | None, outside: bool) -> Any:
    """Return the dataspace, and set the layout that it needs.

    A dataset that can grow is chunked: as a single chunk if its elements are `outside` the skeleton, else like the original.
    If that is impossible, its extent is fixed.
    """
    if space.get_simple_extent_type() != h5s.SIMPLE:
        return space
    extents, most = space.get_simple_extent_dims(), space.get_simple_extent_dims(True)
    if extents == most:
        return space
    whole = size
    for extent in extents:
        whole *= extent
    if outside and whole <= MAX_CHUNK_BYTES:
        plist.set_chunk(extents)
    elif not outside and chunks is not None:
        plist.set_chunk(tuple(chunks))
    else:
        return h5s.create_simple(extents)
    return space


def checked(status: int) -> int:
    """Return what a function of HDF5 returned; RuntimeError if it failed."""
    if status < 0:
        raise RuntimeError("HDF5 reported an error")
    return status
