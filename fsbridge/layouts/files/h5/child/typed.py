"""Objects as an HDF5 file had them, written into another: types, spaces, attributes, references. Of the writing process.

What is to be written is `described` of `exact.Exact`; where it lies, a path of the new file. Not here: objects that JSON
describes (`skeleton.py`).
"""

from __future__ import annotations

import base64
import ctypes
from collections.abc import Mapping
from typing import Any

import h5py
from h5py import h5a, h5d, h5g, h5o, h5p, h5s, h5t

from fsbridge.children.elements import Unpacker, form

MAX_CHUNK_BYTES = (1 << 32) - 1
"""HDF5's limit: what could grow and is larger is fixed in its extent."""

_REFERRING = ("DIMENSION_LIST", "REFERENCE_LIST")
"""Attributes of dimension scales: what is not in this file is not in them either, as readers take them for complete."""
_OBJECT, _REGION = 0, 1
"""H5R_OBJECT1, H5R_DATASET_REGION1 (H5Rpublic.h)."""


def _function(name: str, *arguments: Any) -> Any:
    """A function of the HDF5 that h5py is linked with, which h5py lacks or has for numpy's types only."""
    found = getattr(ctypes.CDLL(h5p.__file__), name)
    found.argtypes = arguments
    return found


_ALL = 0
"""H5S_ALL, as a number."""
_ID, _MEMORY = ctypes.c_int64, ctypes.c_void_p
_write_attribute = _function("H5Awrite", _ID, _ID, _MEMORY)
_write_dataset = _function("H5Dwrite", _ID, _ID, _ID, _ID, _ID, _MEMORY)
_set_fill_value = _function("H5Pset_fill_value", _ID, _ID, _MEMORY)
_create_reference = _function("H5Rcreate", _MEMORY, _ID, ctypes.c_char_p, ctypes.c_int, _ID)
_commit = _function("H5Tcommit_anon", _ID, _ID, _ID, _ID, _ID)

Described = Mapping[str, Any]


def raw(path: str) -> bytes:
    """A path as HDF5 has it; undecodable bytes as they were."""
    return path.encode("utf-8", "surrogateescape")


def decoded(text: str) -> bytes:
    """Bytes in base64."""
    return base64.b64decode(text, validate=True)


class Typed:
    """What is known of the objects of other files that this file shows: where they are in it."""

    def __init__(self, file: h5py.File) -> None:
        self.file = file
        self._paths: dict[tuple[int, int], bytes] = {}
        self._types: dict[tuple[int, int], Any] = {}

    def remember(self, item: Described) -> None:
        """The object of `item` is there now."""
        if "address" in item.get("typed", ()):
            self._paths[item["file"], item["typed"]["address"]] = raw(item["path"])

    def commit(self, item: Described) -> None:
        """Have a committed type before anything uses it; it is linked later."""
        tid = h5t.decode(decoded(item["typed"]["type"]))
        _checked(_commit(self.file.id.id, tid.id, 0, 0, 0))
        self._types[item["file"], item["typed"]["address"]] = tid

    def link_type(self, item: Described) -> None:
        """The name of a committed type."""
        h5o.link(self._types[item["file"], item["typed"]["address"]], self.file.id, raw(item["path"]), _links())

    def group(self, item: Described) -> None:
        """A group that keeps the order in which its members were made, where the other did."""
        plist = h5p.create(h5p.GROUP_CREATE)
        plist.set_link_creation_order(item["typed"]["links"])
        plist.set_attr_creation_order(item["typed"]["order"])
        h5g.create(self.file.id, raw(item["path"]), _links(), plist)

    def dataset(self, item: Described) -> None:
        """A dataset, its elements left for later."""
        typed = item["typed"]
        memory = h5t.decode(decoded(typed["type"]))
        kind, space = self._stored_type(item["file"], typed, memory), h5s.decode(decoded(typed["space"]))
        if item["bytes"] and memory.get_size() * space.get_simple_extent_npoints() != item["bytes"]:
            raise ValueError(f"elements of another size than the {item['bytes']} bytes that are shown")
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_attr_creation_order(typed["order"])
        if "fill" in typed:
            unpacker = Unpacker(decoded(typed["fill"]), self._reference(item["file"]))
            _checked(_set_fill_value(plist.id, memory.id, unpacker.elements(form(memory), 1)))
        space = _shaped(plist, space, memory.get_size(), typed["chunks"], bool(item["bytes"]))
        if item["bytes"]:
            plist.set_fill_time(h5d.FILL_TIME_NEVER)
        h5d.create(self.file.id, raw(item["path"]), kind, space, plist, _links())

    def items(self, item: Described, items: bytes) -> None:
        """The elements of a dataset whose elements only point at their values: at objects that are there by now."""
        found = h5d.open(self.file.id, raw(item["path"]))
        memory, count = h5t.decode(decoded(item["typed"]["type"])), found.get_space().get_simple_extent_npoints()
        if count:
            unpacker = Unpacker(items, self._reference(item["file"]))  # whose elements live as long as it does
            _checked(_write_dataset(found.id, memory.id, _ALL, _ALL, 0, unpacker.elements(form(memory), count)))

    def attributes(self, item: Described) -> list[str]:
        """Write an object's attributes; the names of those that could not be written."""
        owner = h5o.open(self.file.id, raw(item["path"]))
        failed: list[str] = []
        for described in item["typed"].get("attributes", ()):
            try:
                self._attribute(owner, item["file"], described)
            except (KeyError, ValueError, TypeError, OSError, RuntimeError):
                failed.append(described["name"])
        return failed

    def _attribute(self, owner: Any, file: int, described: Described) -> None:
        name = described["name"]
        memory, space = h5t.decode(decoded(described["type"])), h5s.decode(decoded(described["space"]))
        count = space.get_simple_extent_npoints()
        unpacker = Unpacker(decoded(described["data"]), self._reference(file), name in _REFERRING)
        buffer = unpacker.elements(form(memory), count)
        if name == "REFERENCE_LIST":
            size = memory.get_size()
            found = [buffer.raw[i : i + size] for i in range(0, len(buffer), size)]
            content = b"".join(item for item in found if any(item[:8]))
            if not content:
                return
            space, buffer = h5s.create_simple((len(content) // size,)), ctypes.create_string_buffer(content, len(content))
        attribute = h5a.create(owner, raw(name), self._stored_type(file, described, memory), space)
        if count:
            _checked(_write_attribute(attribute.id, memory.id, buffer))

    def _stored_type(self, file: int, described: Described, memory: Any) -> Any:
        """The type in the file: the committed one, if the file has it."""
        return self._types.get((file, described.get("committed", -1)), memory)

    def _reference(self, file: int) -> Any:
        def reference(address: int, selection: bytes | None) -> bytes:
            path = self._paths.get((file, address))
            buffer = ctypes.create_string_buffer(8 if selection is None else 12)
            if path is not None and selection is None:
                _checked(_create_reference(buffer, self.file.id.id, path, _OBJECT, -1))
            elif path is not None and selection is not None:
                space = h5s.decode(selection)
                _checked(_create_reference(buffer, self.file.id.id, path, _REGION, space.id))
            return buffer.raw

        return reference


def _links() -> Any:
    links = h5p.create(h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    links.set_char_encoding(h5t.CSET_UTF8)
    return links


def _shaped(plist: Any, space: Any, size: int, chunks: list[int] | None, outside: bool) -> Any:
    """The dataspace, and the layout that it needs: what can grow is chunked, with all elements in one chunk."""
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


def _checked(status: int) -> None:
    if status < 0:
        raise RuntimeError("HDF5 refuses it")
