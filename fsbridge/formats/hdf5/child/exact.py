"""Objects of a file just as HDF5 has them, for a twin of the file: types, spaces, fill values, links. Of the HDF5 child.

    attribute   {"name", "type", "committed", "space", "data"}, or {"name"} of one that cannot be taken along
    dataset     {"kind", "address", "type", "committed", "space", "chunks", "stored", "attributes", "order"}; "fill", "items"
    group       {"kind", "address", "attributes", "order", "links"}
    type        {"kind", "address", "type", "attributes", "order"}: a committed datatype

"comment" of any of the last three, if it has one.

Types and spaces are HDF5's own encoding (H5Tencode, H5Sencode), elements that of `children/elements.py`, all in base64.
"committed": address of the type, if it is one of the file's. "order", "links": flags of H5P_CRT_ORDER for attributes and for
links. "items": elements only point at their values, which `exact_items` gives. Not here: who writes it.
"""

from __future__ import annotations

import base64
import ctypes
from typing import Any

from h5py import h5a, h5d, h5g, h5l, h5o, h5p, h5t

from fsbridge.children import elements
from fsbridge.children.hdf5 import ALL, DEFAULT, ID, MEMORY, SIZE, TEXT, function
from fsbridge.formats.hdf5.child import h5types, references
from fsbridge.formats.hdf5.child.data import Datasets
from fsbridge.formats.hdf5.child.objects import (
    ATTRIBUTE_STORAGE_BYTES,
    ATTRIBUTES_BYTES,
    FIRST_PAGE_MEMBERS,
    H5_ERRORS,
    KIND,
    PAGE_MEMBERS,
    listed_member,
    no_passing,
)
from fsbridge.formats.hdf5.child.opened import Answer, Refusal
from fsbridge.formats.hdf5.child.type_cache import known_type
from fsbridge.formats.hdf5.child.widened import shifted, widened

ITEMS_BYTES = 96 << 20
"""Bytes of elements that only point at their values, in one answer."""
EXACT_BYTES = 8 << 20
"""Bytes of descriptions, after which a page ends; one description more comes along."""
_COMMENT_BYTES = 60000
"""Of an object's comment: more than a message in an object's header holds."""

_USER_DEFINED = 2
"""H5D_FILL_VALUE_USER_DEFINED."""


_read_attribute = function(h5p, "H5Aread", ID, ID, MEMORY)
_read_dataset = function(h5p, "H5Dread", ID, ID, ID, ID, ID, MEMORY)
_reclaim = function(h5p, "H5Dvlen_reclaim", ID, ID, ID, MEMORY)
_get_fill_value = function(h5p, "H5Pget_fill_value", ID, ID, MEMORY)
_get_comment = function(h5p, "H5Oget_comment", ID, TEXT, SIZE, result=ctypes.c_ssize_t)


class Exact(Datasets):
    """One opened file, its objects described for a twin."""

    def exact(self, request: dict[str, Any]) -> Answer:
        """The object at `path`; of a group, a page of its members from number `start` on.

        `[name, kind, target, description]`, in the order of their creation where the group keeps it. Groups among them are
        described by themselves only.
        """
        found = self.walk(request["path"])
        answer: dict[str, Any] = {"object": self._exact(found) if request["start"] == 0 else None}
        if isinstance(found, h5g.GroupID):
            ordered = bool(found.get_create_plist().get_link_creation_order() & h5p.CRT_ORDER_TRACKED)
            answer |= self._page(found, request["path"], request["start"], ordered)
        return answer, []

    def _page(self, group: Any, path: list[str], start: int, ordered: bool) -> dict[str, Any]:
        links = self.links(group, path, start, FIRST_PAGE_MEMBERS if self.ahead is None else PAGE_MEMBERS, ordered)
        members: list[Any] = []
        left = EXACT_BYTES
        for link in self.foreseen(path, links):
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
            return {"address": link.address}  # it is told what is wrong with it when it is opened for its elements

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
            if plist.fill_value_defined() == _USER_DEFINED:
                memory = ctypes.create_string_buffer(shown.get_size())
                if _get_fill_value(plist.id, filled.id, memory) >= 0:
                    facts["fill"] = _text(elements.pack(elements.form(shown), memory.raw, self._target))
        except H5_ERRORS as error:
            no_passing(error)  # else HDF5 cannot convert it; it is shown by its elements
        return facts

    def _attributes(self, owner: Any) -> list[dict[str, Any]]:
        names: list[bytes] = []
        ordered = 0 if isinstance(owner, h5t.TypeID) else owner.get_create_plist().get_attr_creation_order()
        try:
            index = {"index_type": 1} if ordered & h5p.CRT_ORDER_TRACKED else {}
            h5a.iterate(owner, names.append, **index)
        except H5_ERRORS as error:
            no_passing(error)
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
            if kind.untold is not None or count * size > ATTRIBUTE_STORAGE_BYTES:
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
            no_passing(error)
            return {"name": name}

    def _packed(self, form: elements.Form, tid: Any, space: Any, memory: Any, length: int) -> bytes:
        try:
            return elements.pack(form, memory.raw[:length], self._target)
        finally:
            if form.pointers and length:
                _reclaim(tid.id, space.id, DEFAULT, memory)

    def exact_items(self, request: dict[str, Any]) -> Answer:
        """All elements of a dataset whose elements only point at their values."""
        dataset = self._dataset(request["path"])
        tid, space = dataset.get_type(), dataset.get_space()
        unreadable = h5types.unreadable(h5types.describe(tid), new=True)
        if unreadable is not None:
            raise Refusal("unsupported", unreadable)
        length = space.get_simple_extent_npoints() * tid.get_size()
        if length > ITEMS_BYTES:
            raise Refusal("too_large", f"{length} bytes of pointers")
        memory = ctypes.create_string_buffer(max(1, length))
        if length and _read_dataset(dataset.id, tid.id, ALL, ALL, DEFAULT, memory) < 0:
            raise Refusal("corrupt", "HDF5 cannot read the elements")
        found = self._packed(elements.form(tid), tid, space, memory, length)
        if len(found) > ITEMS_BYTES:
            raise Refusal("too_large", f"{len(found)} bytes of elements of variable length")
        return {}, [found]

    def _target(self, raw: bytes) -> elements.Target:
        """What a reference refers to."""
        return references.target(self.file, raw)


def _comment(found: Any) -> str | None:
    """A text that HDF5 keeps beside the attributes; none where it is too long to be one."""
    length = _get_comment(found.id, None, 0)
    if not 0 < length <= _COMMENT_BYTES:
        return None
    buffer = ctypes.create_string_buffer(length + 1)
    return h5types.text(buffer.value) if _get_comment(found.id, buffer, length + 1) > 0 else None


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
