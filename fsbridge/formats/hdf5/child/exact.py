"""Objects of a file exactly as HDF5 stores them, for a twin of the file: types, spaces, fill values, links.

    attribute   {"name", "type", "committed", "space", "data"}, or {"name"} if the attribute cannot be copied
    dataset     {"kind", "address", "type", "committed", "space", "chunks", "stored", "attributes", "order"}; "fill", "items"
    group       {"kind", "address", "attributes", "order", "links"}
    type        {"kind", "address", "type", "attributes", "order"}: a committed datatype

The last three have a "comment", if the object has one. Types and spaces are in HDF5's own encoding (H5Tencode,
H5Sencode), elements in that of `children/elements.py`; all of it is base64. "committed" is the address of the type if the
type is an object of the file. "order" and "links" are the flags of H5P_CRT_ORDER for attributes and for links. "items"
means that elements only point at their values, which `exact_items` returns. Part of the HDF5 child. Not here: writing the
twin.
"""

from __future__ import annotations

import base64
import ctypes
from typing import Any

from h5py import h5a, h5d, h5f, h5g, h5i, h5l, h5o, h5p, h5s, h5t

from fsbridge.children import elements
from fsbridge.children.elements import ALL, DEFAULT, ID, MEMORY, SIZE, TEXT, Target, function
from fsbridge.formats.hdf5.child import h5types
from fsbridge.formats.hdf5.child.data import Datasets
from fsbridge.formats.hdf5.child.h5types import known_type, shifted, widened
from fsbridge.formats.hdf5.child.objects import (
    ATTRIBUTE_STORAGE_BYTES,
    ATTRIBUTES_BYTES,
    FIRST_PAGE_MEMBERS,
    H5_ERRORS,
    KIND,
    PAGE_MEMBERS,
    listed_member,
    raise_if_transient,
)
from fsbridge.formats.hdf5.child.opened import Answer, Refusal

ITEMS_BYTES = 96 << 20
"""Most bytes of elements with pointers in one answer."""


_read_attribute = function(h5p, "H5Aread", ID, ID, MEMORY)
_read_dataset = function(h5p, "H5Dread", ID, ID, ID, ID, ID, MEMORY)
_reclaim = function(h5p, "H5Dvlen_reclaim", ID, ID, ID, MEMORY)
_get_fill_value = function(h5p, "H5Pget_fill_value", ID, ID, MEMORY)
_get_comment = function(h5p, "H5Oget_comment", ID, TEXT, SIZE, result=ctypes.c_ssize_t)


class ExactFile(Datasets):
    """One opened file and the descriptions of its objects for a twin."""

    def exact(self, request: dict[str, Any]) -> Answer:
        """Return the object at `path`, and for a group a page of its members from number `start`.

        A member is `[name, kind, target, description]`, in the order of creation if the group keeps that order. A group
        among the members is described without its own members.
        """
        found = self.walk(request["path"])
        answer: dict[str, Any] = {"object": self._exact(found) if request["start"] == 0 else None}
        if isinstance(found, h5g.GroupID):
            ordered = bool(found.get_create_plist().get_link_creation_order() & h5p.CRT_ORDER_TRACKED)
            answer |= self._page(found, request["path"], request["start"], ordered)
        return answer, []

    def _page(self, group: Any, path: list[str], start: int, ordered: bool) -> dict[str, Any]:
        links = self.links(group, path, start, FIRST_PAGE_MEMBERS if self.prefetcher is None else PAGE_MEMBERS, ordered)
        members: list[Any] = []
        # A page ends after 8 MiB of descriptions. One more description may exceed that.
        left = 8 << 20
        for link in self.prefetched(path, links):
            member = listed_member(group, link)
            described: dict[str, Any] = {}
            if link.type == h5l.TYPE_HARD:
                described = self._member(group, link)
                member[KIND] = described.get("kind", "object")
                left -= sum(len(str(value)) for value in described.values())
            members.append([*member[:3], described])
            if left < 0:
                break
        following = start + len(members)
        return {"members": members, "next": following if members and following < group.get_num_objs() else None}

    def _member(self, group: Any, link: Any) -> dict[str, Any]:
        try:
            found = h5o.open(group, link.name)
            if isinstance(found, h5g.GroupID):
                return {"kind": "group", "address": link.address}
            return self._exact(found)
        except (Refusal, MemoryError, *H5_ERRORS):
            return {"address": link.address}  # the error is reported when its elements are read

    def _exact(self, found: Any) -> dict[str, Any]:
        described: dict[str, Any] = {"address": h5o.get_info(found).addr, "attributes": self._attributes(found)}
        if (comment := _comment(found)) is not None:
            described["comment"] = comment
        if isinstance(found, h5g.GroupID):
            plist = found.get_create_plist()
            flags = {"order": plist.get_attr_creation_order(), "links": plist.get_link_creation_order()}
            return {"kind": "group"} | described | flags
        if isinstance(found, h5d.DatasetID):
            return {"kind": "dataset"} | described | self._dataset_facts(found)
        return {"kind": "type", "type": _text(found.encode())} | described

    def _dataset_facts(self, dataset: Any) -> dict[str, Any]:
        tid, space, plist = dataset.get_type(), dataset.get_space(), dataset.get_create_plist()
        described = h5types.describe(tid)
        form = h5types.form(described)
        shown = filled = tid
        if form == "converted":
            shown, filled = shifted(tid), widened(tid)
        facts: dict[str, Any] = {
            "type": _text(shown.encode()),
            "committed": h5o.get_info(tid).addr if tid.committed() else None,
            "space": _text(space.encode()),
            "chunks": list(plist.get_chunk()) if plist.get_layout() == h5d.CHUNKED else None,
            "stored": self._storage(dataset) != 0 or plist.get_layout() == h5d.VIRTUAL,
            "items": form not in ("raw", "converted"),
            "order": plist.get_attr_creation_order(),
        }
        try:
            # H5D_FILL_VALUE_USER_DEFINED
            if plist.fill_value_defined() == 2:
                memory = ctypes.create_string_buffer(shown.get_size())
                if _get_fill_value(plist.id, filled.id, memory) >= 0:
                    facts["fill"] = _text(elements.pack(elements.form(shown), memory.raw, self._target))
        except H5_ERRORS as error:
            raise_if_transient(
                error
            )  # any other error means that HDF5 cannot convert the value; it is shown by its elements
        return facts

    def _attributes(self, owner: Any) -> list[dict[str, Any]]:
        names: list[bytes] = []
        ordered = 0 if isinstance(owner, h5t.TypeID) else owner.get_create_plist().get_attr_creation_order()
        try:
            index = {"index_type": 1} if ordered & h5p.CRT_ORDER_TRACKED else {}
            h5a.iterate(owner, names.append, **index)
        except H5_ERRORS as error:
            raise_if_transient(error)
            return []
        found, left = [], ATTRIBUTES_BYTES
        for raw in names:
            described = self._attribute(owner, raw)
            left -= len(described.get("data", ""))
            found.append(described if left >= 0 else {"name": described["name"]})
        return found

    def _attribute(self, owner: Any, raw: bytes) -> dict[str, Any]:
        name = h5types.text(raw)
        try:
            attribute = h5a.open(owner, raw)
            tid, space = attribute.get_type(), attribute.get_space()
            count, size = space.get_simple_extent_npoints(), tid.get_size()
            kind = known_type(tid)
            if kind.unreadable_by_hdf5 is not None or count * size > ATTRIBUTE_STORAGE_BYTES:
                return {"name": name}
            memory = ctypes.create_string_buffer(max(1, count * size))
            if count and _read_attribute(attribute.id, tid.id, memory) < 0:
                return {"name": name}
            data = self._packed(kind.form, tid, space, memory, count * size)
            committed = h5o.get_info(tid).addr if tid.committed() else None
            return {
                "name": name, "type": _text(tid.encode()), "committed": committed, "space": _text(space.encode()),
                "data": _text(data),
            }  # fmt: skip
        except (Refusal, MemoryError, *H5_ERRORS) as error:
            raise_if_transient(error)
            return {"name": name}

    def _packed(self, form: elements.Form, tid: Any, space: Any, memory: Any, length: int) -> bytes:
        try:
            return elements.pack(form, memory.raw[:length], self._target)
        finally:
            if form.pointers and length:
                _reclaim(tid.id, space.id, DEFAULT, memory)

    def exact_items(self, request: dict[str, Any]) -> Answer:
        """Return all elements of a dataset that only points at its values."""
        dataset = self._dataset(request["path"])
        tid, space = dataset.get_type(), dataset.get_space()
        unreadable = h5types.unreadable(h5types.describe(tid), new=True)
        if unreadable is not None:
            raise Refusal("unsupported", unreadable)
        length = space.get_simple_extent_npoints() * tid.get_size()
        if length > ITEMS_BYTES:
            raise Refusal("too_large", f"the dataset has {length} bytes of pointers, the limit is {ITEMS_BYTES}")
        memory = ctypes.create_string_buffer(max(1, length))
        if length and _read_dataset(dataset.id, tid.id, ALL, ALL, DEFAULT, memory) < 0:
            raise Refusal("corrupt", "HDF5 cannot read the elements")
        found = self._packed(elements.form(tid), tid, space, memory, length)
        if len(found) > ITEMS_BYTES:
            raise Refusal("too_large", f"elements of variable length take {len(found)} bytes, the limit is {ITEMS_BYTES}")
        return {}, [found]

    def _target(self, raw: bytes) -> elements.Target:
        """Return what a reference refers to."""
        return target(self.file, raw)


def _comment(found: Any) -> str | None:
    """Return the text that HDF5 keeps beside the attributes, or None if there is none or it is too long to be one."""
    length = _get_comment(found.id, None, 0)
    # A message in an object's header holds less than 60,000 bytes.
    if not 0 < length <= 60000:
        return None
    buffer = ctypes.create_string_buffer(length + 1)
    return h5types.text(buffer.value) if _get_comment(found.id, buffer, length + 1) > 0 else None


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


_DATASET_REGION = 1
"""H5R_DATASET_REGION1 (H5Rpublic.h)."""
_OBJECT, _REGION, _ATTRIBUTE = 2, 3, 4
"""H5R_OBJECT2, H5R_DATASET_REGION2, H5R_ATTR: the references of HDF5 1.12."""

_dereference = function(h5p, "H5Rdereference2", ID, ID, ctypes.c_int, MEMORY, result=ID)
_get_region = function(h5p, "H5Rget_region", ID, ctypes.c_int, MEMORY, result=ID)
try:
    _type = function(h5p, "H5Rget_type", MEMORY)
    _open_object = function(h5p, "H5Ropen_object", MEMORY, ID, ID, result=ID)
    _open_region = function(h5p, "H5Ropen_region", MEMORY, ID, ID, result=ID)
    _file_name = function(h5p, "H5Rget_file_name", MEMORY, TEXT, SIZE, result=ctypes.c_ssize_t)
    _attribute_name = function(h5p, "H5Rget_attr_name", MEMORY, TEXT, SIZE, result=ctypes.c_ssize_t)
except AttributeError:  # before HDF5 1.12, which cannot open files with such references
    _type = None


def target(file: h5f.FileID, raw: bytes) -> Target:
    """Return what a reference in memory refers to in `file`. Raises ValueError if it leads nowhere in that file."""
    if not any(raw):
        return Target(0, b"")
    memory = ctypes.create_string_buffer(raw, len(raw))
    if len(raw) == 12:
        space = _get_region(file.id, _DATASET_REGION, memory)
        return Target(_address(_dereference(file.id, DEFAULT, _DATASET_REGION, memory)), _selection(space))
    kind = -1 if _type is None else _type(memory)
    if kind not in (_OBJECT, _REGION, _ATTRIBUTE) or _name_of(_file_name, memory) != h5f.get_name(file):
        raise ValueError("a reference that leads out of the file, or of an unknown kind")
    address = _address(_open_object(memory, DEFAULT, DEFAULT))
    if kind == _REGION:
        return Target(address, _selection(_open_region(memory, DEFAULT, DEFAULT)), kind)
    return Target(address, _name_of(_attribute_name, memory) if kind == _ATTRIBUTE else b"", kind)


def _address(opened: int) -> int:
    """Return the address of an object that HDF5 has opened, and close the object."""
    if opened < 0:
        raise ValueError("a reference that leads nowhere")
    return int(h5o.get_info(h5i.wrap_identifier(opened)).addr)


def _selection(space: int) -> bytes:
    if space < 0:
        raise ValueError("a reference leads to a damaged region")
    return bytes(h5s.SpaceID(space).encode())


def _name_of(ask: Any, memory: Any) -> bytes:
    """Call a function that returns a length first and then the text."""
    length = ask(memory, None, 0)
    if length < 0:
        raise ValueError("HDF5 cannot tell where a reference leads")
    buffer = ctypes.create_string_buffer(length + 1)
    ask(memory, buffer, length + 1)
    return buffer.value
