"""Writes the skeleton of an HDF5 file: everything but the elements of contiguous datasets. Part of the writing process.

Objects come in batches, in the order of creation, and are written at once. Parts that depend on other objects are written at
the end. Not here: the program (`writer.py`), the file in memory (`memory_file.py`), single objects (`plain.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import h5py
from h5py import h5f, h5fd, h5g, h5p

from fsbridge.layouts.files.h5.child import LEFT_OUT, plain
from fsbridge.layouts.files.h5.child.memory_file import PAGE, Allocation, PagedFile, open_aligned
from fsbridge.layouts.files.h5.child.plain import LINKS, encode_path, make_properties

ERRORS = (OSError, ValueError, TypeError, KeyError, RuntimeError)
"""Exceptions that h5py raises if HDF5 refuses something."""

ORDERED = h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED
"""Groups keep the order in which members were created, because netCDF-C does not write to a file without it."""

Item = Mapping[str, Any]


class Skeleton:
    """The skeleton of a file while it is written.

    `failed`: by number, the objects that HDF5 refuses: their path and the reason.
    """

    def __init__(self) -> None:
        self._pages = PagedFile()
        self._file: Any = None
        self._outside: list[tuple[int, bytes, int]] = []  # number, path and bytes of elements that are not in the file
        self._groups: set[str] = set()
        self._count = 0
        self.failed: dict[int, tuple[str, str]] = {}

    def add(self, objects: Sequence[Item]) -> None:
        """Add the next objects. The very first object is the root group.

        If HDF5 refuses an object, it is recorded in `failed`, and the others are still added.
        """
        if self._file is None:
            self._begin(bool(objects[0].get("netcdf")))
        for item in objects:
            if item.get("bytes"):
                self._outside.append((self._count, encode_path(item["path"]), item["bytes"]))
            try:
                self._make(item)
            except ERRORS as error:
                self.failed[self._count] = item["path"], " ".join(f"{type(error).__name__}: {error}".split())[:300]
            self._count += 1

    def _begin(self, netcdf: bool) -> None:
        access, plist = h5p.create(h5p.FILE_ACCESS), make_properties(h5p.FILE_CREATE, netcdf)
        access.set_fileobj_driver(h5fd.fileobj_driver, self._pages)
        access.set_libver_bounds(h5f.LIBVER_EARLIEST, h5f.LIBVER_LATEST)
        access.set_fclose_degree(h5f.CLOSE_STRONG)
        plist.set_link_creation_order(ORDERED)
        self._file = h5f.create(b"skeleton", h5f.ACC_TRUNC, plist, access)

    def finish(self, left_out: Mapping[str, list[str]], scales: Mapping[str, Any]) -> tuple[PagedFile, list[int | None]]:
        """Return the finished file, and by number the offsets of the elements that lie outside the skeleton.

        An object without such elements has the offset None. `left_out`: by group, its missing members with reasons.
        """
        lacking = {path: list(reasons) for path, reasons in left_out.items()}
        for path, reason in self.failed.values():
            folder, _, name = path.rpartition("/")
            lacking.setdefault(folder or "/", []).append(f"{name}: {reason}")
        for path in self._groups.intersection(lacking):
            plain.set_attributes(h5g.open(self._file, encode_path(path)), {LEFT_OUT: lacking[path]})
        self._attach_scales(scales)
        self._file.close()
        return self._pages, self._list_offsets()

    def _attach_scales(self, scales: Mapping[str, Any]) -> None:
        """Make and attach dimension scales. Ignore errors, because one of the datasets may have been left out."""
        file = h5py.File(self._file)
        for path, name in scales["made"]:
            with contextlib.suppress(*ERRORS):
                file[path].make_scale(plain.make_encodable(name))
        for path, dimension, scale in scales["attached"]:
            with contextlib.suppress(*ERRORS):
                file[path].dims[dimension].attach_scale(file[scale])
        for path, name, value in scales.get("notes", ()):
            with contextlib.suppress(*ERRORS):
                file[path].attrs.create(name, value, dtype="i4")

    def _list_offsets(self) -> list[int | None]:
        offsets: list[int | None] = [None] * self._count
        file = open_aligned(self._pages, PAGE)
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

    def _make(self, item: Item) -> None:
        if item["kind"] == "soft":
            self._file.links.create_soft(encode_path(item["path"]), encode_path(item["target"]), LINKS)
            return
        netcdf = bool(item.get("netcdf"))
        owner = self._make_group(item["path"], netcdf) if item["kind"] == "group" else plain.create_dataset(self._file, item)
        plain.set_attributes(owner, item.get("attributes", {}), item.get("dtype"), netcdf, item.get("typed", ()))

    def _make_group(self, name: str, netcdf: bool) -> Any:
        self._groups.add(name)
        path = encode_path(name)
        if path == b"/" or path in self._file:
            return h5g.open(self._file, path)
        plist = make_properties(h5p.GROUP_CREATE, netcdf)
        plist.set_link_creation_order(ORDERED)
        return h5g.create(self._file, path, LINKS, plist)
