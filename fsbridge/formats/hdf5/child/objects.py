"""Groups, links, attributes and references of one opened HDF5 file. Part of the HDF5 child.

A path is walked here, one hard link at a time, so that HDF5 never follows a link by itself. `getlink` for a whole path
would not tell that a component inside it is an external link. Not here: datasets (`data.py`).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from h5py import h5a, h5d, h5g, h5l, h5o, h5r, h5s

from fsbridge.formats.hdf5.child import h5types, values
from fsbridge.formats.hdf5.child.data_file import Answer, OpenedFile, Refusal, failure_of, reason
from fsbridge.formats.hdf5.child.h5types import known_type
from fsbridge.threads.deadlines import Deadline

FIRST_PAGE_MEMBERS = 200
"""Most members in the first answer, which is short because often only the group's attributes are wanted."""

H5_ERRORS = (OSError, RuntimeError, ValueError, TypeError, KeyError, OverflowError)
"""Exceptions that h5py raises for damaged objects, depending on the damage."""
FAILURES = (Refusal, MemoryError, *H5_ERRORS)
"""Exceptions by which a question fails and after which the next one can be asked (`describe_failure`)."""

NAME, KIND = 0, 1
"""Positions in a member's list."""
NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
"""First words of the attribute NAME of a dataset that is only a netCDF-4 dimension (nc4hdf.c, DIM_WITHOUT_VARIABLE)."""

_NO_SUCH = "no such object"


class Objects(OpenedFile, ABC):
    """One opened file and the questions about its tree. Public methods take the request and return the answer."""

    names_members = 5000
    """Most members in an answer that holds only their names."""
    window_links = 50_000
    """Links of a large group that are read together: HDF5 passes or even sorts all links before the first it returns."""
    _window: Window | None = None

    def open(self, request: dict[str, Any]) -> Answer:
        """Open the file, or open it again (see `OpenedFile`), and forget its groups."""
        self._window = None
        return super().open(request)

    # ---- paths

    def walk(self, path: list[str]) -> Any:
        """Return the object at `path`, one hard link at a time. Links and unknown names are refused as not_found."""
        here: Any = h5g.open(self.file, b"/")
        for name in path:
            if not isinstance(here, h5g.GroupID) or self._link(here, name).type != h5l.TYPE_HARD:
                raise Refusal("not_found", _NO_SUCH)
            here = h5o.open(here, encode_name(name))
        return here

    def _link(self, group: Any, name: str) -> Any:
        raw = encode_name(name)
        if not group.links.exists(raw):
            raise Refusal("not_found", _NO_SUCH)
        return group.links.get_info(raw)

    def _group(self, path: list[str]) -> Any:
        group = self.walk(path)
        if not isinstance(group, h5g.GroupID):
            raise Refusal("not_found", "not a group")
        return group

    # ---- groups

    def names(self, request: dict[str, Any]) -> Answer:
        """Return one page of a group's members, by name and kind of link alone.

        No member is opened, so damage does not matter.
        """
        group = self._group(request["path"])
        links = self.read_links(group, request["path"], request["start"], self.names_members)
        address = {"address": h5o.get_info(group).addr}
        return address | _make_page(group, request["start"], [describe_member(group, link) for link in links]), []

    def group(self, request: dict[str, Any]) -> Answer:
        """Return a group and one page of its members with the answer of `node` for each; `sizes` has their lengths in bytes.

        A member without a description has size 0. The first page has the group's own attributes, too.
        """
        start, path = request["start"], request["path"]
        group = self._group(path)
        answer: dict[str, Any] = {"address": h5o.get_info(group).addr}
        if start == 0:
            answer["attributes"] = self.read_attributes(group)
        members: list[list[Any]] = []
        descriptions: list[bytes] = []
        left, end = 2 << 20, Deadline(0.5)  # a page ends early at so many bytes, and at this time
        # Later pages of a local file are short, too: the daemon uses one while the next is made.
        most = 1000 if start and self.prefetcher is not None else FIRST_PAGE_MEMBERS
        links = self.read_links(group, path, start, most)
        for link in self.prefetch(path, links):
            member = describe_member(group, link)
            description = self._description(group, link.name, member, path) if link.type == h5l.TYPE_HARD else b""
            members.append(member)
            descriptions.append(description)
            left -= len(description)
            if left < 0 or end.passed:
                break
        if self.prefetcher is not None:
            place = encode_path(path)
            named = zip(members, links, strict=False)
            self.prefetcher.note_listing(place, [(*place, link.name) for member, link in named if member[KIND] == "group"])
        answer |= _make_page(group, start, members) | {"sizes": [len(description) for description in descriptions]}
        return answer, [b"".join(descriptions)]

    def read_links(self, group: Any, path: list[str], start: int, most: int) -> Sequence[StoredLink]:
        """Return at most `most` links of the group at `path`, from number `start`.

        From number 0 only `most` links are read, because often only the first page is wanted. Later pages are taken from
        a window of `window_links`.
        """
        if start == 0:
            return iterate_links(group, 0, most)
        window = self._window
        if window is None or window.path != path or not 0 <= start - window.start < len(window.links):
            window = self._window = Window(path, start, iterate_links(group, start, self.window_links))
        return window.links[start - window.start :][:most]

    def prefetch(self, path: list[str], links: Sequence[StoredLink]) -> Iterable[StoredLink]:
        """Yield the links of the group at `path`, each when its object's metadata is present, if it can be prefetched."""
        return links if self.prefetcher is None else self.prefetcher.prefetch_members(encode_path(path), links)

    def _description(self, group: Any, raw: bytes, member: list[Any], path: list[str]) -> bytes:
        """Return the answer of `node` for a member if it is short and depends on this file alone, else nothing.

        Sets the kind of object in `member`.
        """
        try:
            opened_member = h5o.open(group, raw)
            if isinstance(opened_member, h5d.DatasetID) and self.has_remote_data(opened_member):
                return b""  # damage in other files must only show at that dataset
            answer = self.describe_object(opened_member, [*path, member[NAME]])
            if answer["kind"] == "dataset" and (answer["sources"] or answer["layout"] in ("virtual", "external")):
                return b""
            member[KIND] = answer["kind"]
        except FAILURES as error:
            answer = describe_failure(error)
            if answer["error"] in ("denied", "too_large", "unreachable"):
                return b""
        text = json.dumps(answer).encode()
        # A longer description is asked for by itself.
        return text if len(text) <= (64 << 10) else b""

    def describe_object(self, h5_object: Any, path: list[str], bare: bool = False) -> dict[str, Any]:
        """Describe an object: a group, a dataset, a netCDF dimension without a variable, or a committed type."""
        if isinstance(h5_object, h5g.GroupID):
            return {"kind": "group", "address": h5o.get_info(h5_object).addr}
        if isinstance(h5_object, h5d.DatasetID):
            answer = self.describe(h5_object, path, bare)
            scale = answer["attributes"]
            without = scale.get("CLASS") == "DIMENSION_SCALE" and str(scale.get("NAME")).startswith(NO_VARIABLE)
            if without and answer["storage"] == 0:
                return {"kind": "dimension"}
            return answer
        return {"kind": "type"}

    def node(self, request: dict[str, Any]) -> Answer:
        """Return what is at `path`: a group, a dataset with its whole description, or a link."""
        *parents, name = request["path"] or [None]
        if name is not None:
            group = self._group(parents)
            info = self._link(group, name)
            if info.type != h5l.TYPE_HARD:
                _, kind, target, _ = describe_member(group, StoredLink(encode_name(name), info.type, info.u))
                return {"kind": kind, "target": target}, []
        return self.describe_object(self.walk(request["path"]), request["path"], request.get("bare", False)), []

    @abstractmethod
    def has_remote_data(self, dataset: Any) -> bool:
        """Tell whether data of a dataset is in other files that this process cannot open."""

    @abstractmethod
    def describe(self, dataset: Any, path: list[str], bare: bool) -> dict[str, Any]:
        """Return the whole description of a dataset; `bare`: without reading its attributes."""

    def attributes(self, request: dict[str, Any]) -> Answer:
        """Return the attributes of the object at `path`, as JSON."""
        return {"attributes": self.read_attributes(self.walk(request["path"]))}, []

    # ---- attributes

    def attribute_names(self, request: dict[str, Any]) -> Answer:
        """Return the names of the attributes of the object at `path`. No value is read."""
        names: list[bytes] = []
        h5a.iterate(self.walk(request["path"]), names.append)
        return {"names": [raw.decode("utf-8", "backslashreplace") for raw in names]}, []

    def one_attribute(self, request: dict[str, Any]) -> Answer:
        """Return the value of attribute number `number` of the object at `path`, as JSON."""
        attribute = h5a.open(self.walk(request["path"]), index=request["number"])
        return {"value": self.read_attribute(attribute)}, []

    def read_attributes(self, owner: Any) -> dict[str, Any]:
        values_by_name: dict[str, Any] = {}
        names: list[bytes] = []
        try:
            h5a.iterate(owner, names.append)
        except H5_ERRORS as error:
            raise_if_transient(error)
            values_by_name["_ERROR"] = f"attributes cannot be listed: {reason(error)}"
        left = 16 << 20  # bytes of JSON, as `Limits.document`
        for raw in names:
            try:
                value = self.read_attribute(h5a.open(owner, raw))
            except FAILURES as error:
                raise_if_transient(error)
                value = {"_ERROR": f"attribute cannot be read: {reason(error)}"}
            size = len(json.dumps(value))
            if size > left:
                value, size = {"_ERROR": f"attribute of {size} bytes as JSON is above the limit"}, 100
            left -= size
            values_by_name[raw.decode("utf-8", "backslashreplace")] = value
        return values_by_name

    def read_attribute(self, attribute: Any) -> Any:
        space, tid = attribute.get_space(), attribute.get_type()
        if space.get_simple_extent_type() == h5s.NULL:
            return None
        kind, shape = known_type(tid), space.get_simple_extent_dims()
        described = kind.described
        if kind.unreadable is not None:
            return {"_TYPE": described, "_SHAPE": list(shape), "_ERROR": f"not supported: {kind.unreadable}"}
        if space.get_simple_extent_npoints() * tid.get_size() > 8 << 20:
            return {"_TYPE": described, "_SHAPE": list(shape), "_ERROR": "attribute is above the size limit"}
        if described["class"] == "opaque" or (described["class"] == "bitfield" and described["size"] not in (1, 2, 4, 8)):
            raw = np.zeros((*shape, tid.get_size()), np.uint8)
            attribute.read(raw, tid)  # h5py cannot convert every opaque type to its numpy type
            return values.nest(raw.view(f"V{tid.get_size()}")[..., 0], len(shape), described, self.resolve)
        elements = make_buffer(shape, kind.dtype)
        attribute.read(elements, kind.memory)
        return values.nest(elements, len(shape), described, self.resolve)

    def resolve(self, reference: Any) -> Any:
        """Return a reference as JSON, or None if it refers to nothing or to something deleted."""
        try:
            target = h5r.dereference(reference, self.file) if reference else None
        except H5_ERRORS as error:
            raise_if_transient(error)
            return None
        path = self._find_paths().get(h5o.get_info(target).addr) if target is not None else None
        if path is None:
            return None
        place: dict[str, Any] = {"source": ".", "path": path}
        if isinstance(reference, h5r.RegionReference):
            lower, upper = h5r.get_region(reference, self.file).get_select_bounds()
            place["region"] = [[int(i) for i in lower], [int(i) + 1 for i in upper]]
        return {"_REFERENCE": place}

    def _find_paths(self) -> dict[int, str]:
        """Return all objects' paths by address, because HDF5 searches the whole file for a single name."""
        if self.paths is None:
            if self.prefetcher is not None:
                self.prefetcher.prefetch_everything()
            self.paths = {h5o.get_info(self.file).addr: "/"}
            paths = self.paths

            def add(raw: bytes, info: Any) -> None:
                if raw != b".":
                    paths.setdefault(info.addr, "/" + h5types.decode_name(raw))

            h5o.visit(self.file, add, info=True)
        return self.paths


class StoredLink(NamedTuple):
    """A link of a group: its stored name, its type (h5l), and for a hard link the object's address."""

    name: bytes
    type: int
    address: int


class Window(NamedTuple):
    """Links of the group at `path` from number `start`."""

    path: list[str]
    start: int
    links: list[StoredLink]


def iterate_links(group: Any, start: int, most: int) -> list[StoredLink]:
    """Return members from number `start`, see `Objects.read_links`."""
    links: list[StoredLink] = []

    def add(raw: bytes, info: Any) -> bool:
        links.append(StoredLink(raw, info.type, info.u))  # h5py uses the same `info` for all links
        return len(links) >= most

    if start < group.get_num_objs():
        group.links.iterate(add, info=True, idx=start)
    return links


def _make_page(group: Any, start: int, members: list[list[Any]]) -> dict[str, Any]:
    """Return a page of members and where the next page begins.

    A member is `[name, kind, target of a link, address of a hard link's object]`.
    """
    following = start + len(members)
    return {"members": members, "next": following if members and following < group.get_num_objs() else None}


def describe_member(group: Any, link: StoredLink) -> list[Any]:
    name = h5types.decode_name(link.name)
    if link.type == h5l.TYPE_HARD:
        return [name, "object", None, link.address]
    if link.type == h5l.TYPE_SOFT:
        return [name, "soft", h5types.decode_name(group.links.get_val(link.name)), None]
    if link.type == h5l.TYPE_EXTERNAL:
        return [name, "external", [h5types.decode_name(part) for part in group.links.get_val(link.name)], None]
    return [name, "user-defined", None, None]


def raise_if_transient(error: BaseException) -> None:
    """Raise a Refusal if the error is transient, so that no description is kept without what the error hides."""
    if failure_of(error).kind == "unreachable":
        raise failure_of(error)


def describe_failure(error: BaseException) -> dict[str, Any]:
    """Turn an error into an answer."""
    if isinstance(error, Refusal):
        return {"error": error.kind, "message": str(error)}
    if isinstance(error, MemoryError):
        return {"error": "too_large", "message": "needs more memory than the HDF5 process may have"}
    fault = failure_of(error)
    return {"error": fault.kind, "message": f"HDF5: {fault}"}


def encode_name(name: str) -> bytes:
    """Return the stored spelling of one path component. Raises Refusal (not_found) for what is not one name to HDF5."""
    if name in ("", ".") or "/" in name or "\0" in name:
        raise Refusal("not_found", _NO_SUCH)
    return name.encode("utf-8", "surrogateescape")


def encode_path(path: Sequence[str]) -> tuple[bytes, ...]:
    """Return the stored spelling of a path."""
    return tuple(map(encode_name, path))


def make_buffer(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return a numpy array for elements of h5py's `dtype`. Array types become dimensions."""
    element = dtype
    while element.subdtype is not None:
        element, inner = element.subdtype
        shape = shape + inner
    return np.zeros(shape, element)
