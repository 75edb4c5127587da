"""Writes the skeleton of an HDF5 file: everything but the elements of contiguous datasets. Part of the writing process.

Objects come in batches, in the order of creation, and are written at once. Parts that depend on other objects are written at
the end. Not here: the program (`writer.py`), the file in memory (`memory_file.py`), objects that JSON describes
(`plain.py`), objects of other HDF5 files (`typed.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import h5py
from h5py import h5f, h5fd, h5g, h5o, h5p

from fsbridge.children.elements import ID, function
from fsbridge.layouts.files.h5.child import LEFT_OUT, plain
from fsbridge.layouts.files.h5.child.memory_file import PAGE, Allocation, Pages, aligned
from fsbridge.layouts.files.h5.child.typed import Typed, link_creation, raw, untimed

ERRORS = (OSError, ValueError, TypeError, KeyError, RuntimeError)
"""Exceptions that h5py raises if HDF5 refuses something."""

ORDERED = h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED
"""Groups keep the order in which members were created, because netCDF-C does not write to a file without it."""

_set_bounds = function(h5p, "H5Fset_libver_bounds", ID, ctypes.c_int, ctypes.c_int)

Item = Mapping[str, Any]


class SkeletonObject(NamedTuple):
    """An object: its number, its description, and its elements if they are part of the skeleton."""

    number: int
    item: Item
    elements: bytes

    @property
    def path(self) -> str:
        return str(self.item["path"])


class Skeleton:
    """The file while it is written. `failed`: numbers and paths of objects that HDF5 refuses, and why.

    `plain`: numbers of datasets from HDF5 files that could not be written exactly, and are written as JSON describes them.
    """

    def __init__(self) -> None:
        self._pages = Pages()
        self._file: Any = None
        self._typed: Any = None
        self._waiting: list[SkeletonObject] = []  # all objects since the first that lacks its committed type
        self._elements: list[SkeletonObject] = []  # elements that may refer to any object
        self._attributes: list[SkeletonObject] = []  # attributes that may, or that lack their types
        self._outside: list[tuple[int, bytes, int]] = []  # number, path and bytes of elements that are not in the file
        self._groups: set[str] = set()
        self._count = 0
        self.failed: dict[int, tuple[str, str]] = {}
        self.plain: list[int] = []

    def add(self, objects: Sequence[Item], blob: bytes) -> None:
        """Add the next objects. The very first object is the root group."""
        if self._file is None:
            self._begin(objects[0])
        for item in objects:
            start, length = item.get("blob", (0, 0))
            entry = SkeletonObject(self._count, item, blob[start : start + length])
            self._count += 1
            if item.get("bytes"):
                self._outside.append((entry.number, raw(item["path"]), item["bytes"]))
            if self._waiting or not self._typed.knows_type(item):
                self._waiting.append(entry)
            else:
                self._attempt(entry, self._make)

    def _begin(self, root: Item) -> None:
        low = h5f.LIBVER_V18 if _is_large(root) else h5f.LIBVER_EARLIEST
        access, plist = h5p.create(h5p.FILE_ACCESS), untimed(h5p.FILE_CREATE)
        access.set_fileobj_driver(h5fd.fileobj_driver, self._pages)
        access.set_libver_bounds(low, h5f.LIBVER_LATEST)
        access.set_fclose_degree(h5f.CLOSE_STRONG)
        plist.set_link_creation_order(root.get("typed", {}).get("links", ORDERED))
        plist.set_attr_creation_order(root.get("typed", {}).get("order", 0))
        self._file = h5f.create(b"skeleton", h5f.ACC_TRUNC, plist, access)
        self._typed = Typed(self._file)

    def finish(self, left_out: Mapping[str, list[str]], scales: Mapping[str, Any]) -> tuple[Pages, list[int | None]]:
        """Return the file, and each object's offset of elements. `left_out`: by group, its missing members with reasons."""
        for entry in self._waiting:
            if entry.item["kind"] == "type":
                self._attempt(entry, self._typed.commit)
        for entry in self._waiting:
            self._attempt(entry, self._make)
        for entry in self._elements:
            self._attempt(entry, self._fill)
        for entry in self._attributes:
            self._attempt(entry, self._set_attributes)
        lacking = {path: list(reasons) for path, reasons in left_out.items()}
        for path, reason in self.failed.values():
            folder, _, name = path.rpartition("/")
            lacking.setdefault(folder or "/", []).append(f"{name}: {reason}")
        for path in self._groups.intersection(lacking):
            plain.set_attributes(h5g.open(self._file, raw(path)), {LEFT_OUT: lacking[path]})
        self._scales(scales)
        self._file.close()
        return self._pages, self._allocated()

    def _scales(self, scales: Mapping[str, Any]) -> None:
        """Make and attach dimension scales. Failures do not matter, because a dataset may have been left out."""
        file = h5py.File(self._file)
        for path, name in scales["made"]:
            with contextlib.suppress(*ERRORS):
                file[path].make_scale(plain.encodable(name))
        for path, dimension, scale in scales["attached"]:
            with contextlib.suppress(*ERRORS):
                file[path].dims[dimension].attach_scale(file[scale])

    def _allocated(self) -> list[int | None]:
        offsets: list[int | None] = [None] * self._count
        file = aligned(self._pages, PAGE)
        allocation = Allocation(file)
        try:
            for number, path, count in self._outside:
                if number not in self.failed:
                    offsets[number] = allocation.allocate(path, count)
        finally:
            file.close()
        for number, _, count in self._outside:
            start = offsets[number]
            if start is not None:
                self._pages.discard(start, start + count)
        return offsets

    # ---- one object

    def _attempt(self, entry: SkeletonObject, call: Callable[[SkeletonObject], None]) -> None:
        """Make `call` for an object, unless an earlier call for it failed.

        An error of HDF5 is recorded in `failed`, so that only this object is lost.
        """
        if entry.number not in self.failed:
            try:
                call(entry)
            except ERRORS as error:
                self.failed[entry.number] = entry.path, " ".join(f"{type(error).__name__}: {error}".split())[:300]

    def _make(self, entry: SkeletonObject) -> None:
        item, large = entry.item, _is_large(entry.item)
        if large:
            self._bounds(h5f.LIBVER_V18)
        try:
            owner = self._object(entry)
        finally:
            if large:
                self._bounds(h5f.LIBVER_EARLIEST)
        self._typed.remember(item)
        if owner is not None:
            self._typed.comment(owner, item)
        if "blob" in item and self._typed.elements_wait(item):
            self._elements.append(entry)
        elif "blob" in item:
            self._fill(entry)
        if owner is not None and self._typed.attributes_wait(item):
            self._attributes.append(entry)
        elif owner is not None:
            self._set_attributes(entry, owner)

    def _bounds(self, low: int) -> None:
        """Set the version of new object headers. Those of before HDF5 1.8 cannot hold attributes of 64 KiB and more."""
        if _set_bounds(self._file.id, low, h5f.LIBVER_LATEST) < 0:
            raise RuntimeError("HDF5 refuses to set the version of object headers")

    def _object(self, entry: SkeletonObject) -> Any:
        """Create an object, and return it if it can have attributes."""
        item = entry.item
        kind, path = item["kind"], raw(item["path"])
        if kind == "dataset":
            return self._dataset(entry)
        if kind == "type":
            return self._typed.link_type(item)
        if kind == "group":
            self._groups.add(item["path"])
            return self._group(item)
        if kind == "soft":
            self._file.links.create_soft(path, raw(item["target"]), link_creation())
        elif kind == "external":
            file, target = item["target"]
            self._file.links.create_external(path, raw(file), raw(target), link_creation())
        else:
            h5o.link(h5o.open(self._file, raw(item["target"])), self._file, path, link_creation())
        return None

    def _group(self, item: Item) -> Any:
        path = raw(item["path"])
        if path == b"/":
            return h5g.open(self._file, path)
        if "links" in item.get("typed", ()):
            return self._typed.group(item)
        if path in self._file:
            return h5g.open(self._file, path)
        plist = untimed(h5p.GROUP_CREATE)
        plist.set_link_creation_order(ORDERED)
        return h5g.create(self._file, path, link_creation(), plist)

    def _dataset(self, entry: SkeletonObject) -> Any:
        item = entry.item
        if "type" not in item.get("typed", ()):
            return plain.create(self._file, item)
        try:
            return self._typed.dataset(item)
        except ERRORS:
            if "shape" not in item or "blob" in item:
                raise
            self._remove(item)
            self.plain.append(entry.number)
            return plain.create(self._file, item)

    def _remove(self, item: Item) -> None:
        with contextlib.suppress(KeyError):
            self._file.unlink(raw(item["path"]))

    def _fill(self, entry: SkeletonObject) -> None:
        """Write elements that are part of the skeleton. If that fails, the dataset is removed."""
        try:
            self._typed.items(entry.item, entry.elements)
        except ERRORS:
            self._remove(entry.item)
            raise

    def _set_attributes(self, entry: SkeletonObject, owner: Any = None) -> None:
        item = entry.item
        owner = h5o.open(self._file, raw(item["path"])) if owner is None else owner
        attributes = item.get("attributes", {})
        if "attributes" in item.get("typed", ()):
            failed = self._typed.attributes(owner, item)
            attributes = {name: attributes[name] for name in failed if name in attributes}
        plain.set_attributes(owner, attributes, item.get("dtype"), bool(item.get("characters")))


def _is_large(item: Item) -> bool:
    """True if an object has an attribute that headers of before HDF5 1.8 cannot hold."""
    return any(len(fact.get("data", "")) > plain.ATTRIBUTE_BYTES for fact in item.get("typed", {}).get("attributes", ()))
