"""Writes the skeleton of an HDF5 file: everything but the elements of contiguous datasets. Part of the writing process.

A specification (`specification.py`) is a JSON object: `objects` in the order of their making, `scales`. Not here: the
program (`writer.py`), the file in memory (`pages.py`), objects of other HDF5 files (`typed.py`).
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from fsbridge.layouts.files.h5.child.allocation import aligned, allocate
from fsbridge.layouts.files.h5.child.pages import PAGE, Pages
from fsbridge.layouts.files.h5.child.typed import Typed, raw
from fsbridge.layouts.files.h5.limits import LEFT_OUT

ERRORS = (OSError, ValueError, TypeError, KeyError, RuntimeError)
"""What h5py raises for what HDF5 does not take."""

_ATTRIBUTE_BYTES = 60000
"""Of an attribute: object headers cannot hold more; it becomes JSON text, which lies elsewhere."""


def attribute(value: Any) -> Any:
    """A JSON value as an attribute: numbers, texts and rectangular lists as such, everything else as JSON text."""
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return np.int64(value) if -(2**63) <= value < 2**63 else np.uint64(value) if value < 2**64 else str(value)
    if isinstance(value, float):
        return np.float64(value)
    if isinstance(value, str):
        return value if "\0" not in value else json.dumps(value)
    if isinstance(value, list) and value:
        flat = value
        while all(isinstance(item, list) for item in flat) and flat:
            flat = [item for sub in flat for item in sub]
        kinds = {type(item) for item in flat}
        try:
            if kinds == {str} and not any("\0" in item for item in flat):
                return np.array(value, dtype=h5py.string_dtype())
            if kinds == {bool} or kinds == {int} or kinds == {float} or kinds == {int, float}:
                array = np.array(value)
                if array.dtype.kind in "biuf" and array.nbytes <= _ATTRIBUTE_BYTES:
                    return array
        except (ValueError, OverflowError):
            pass
    return json.dumps(value)


def set_attributes(holder: Any, attributes: dict[str, Any]) -> None:
    """All attributes; one that HDF5 cannot hold is left out, and hides no other."""
    for name, value in attributes.items():
        try:
            holder.attrs[_text(name)] = _clean(attribute(value))
        except (ValueError, TypeError, OSError, RuntimeError) as error:
            print(f"attribute {name[:80]!r} of {holder.name}: {error}", file=sys.stderr)


def _clean(value: Any) -> Any:
    return _text(value) if isinstance(value, str) else value


def _text(text: str) -> str:
    """Text that UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()


def dataset_type(described: Any) -> Any:
    """The HDF5 type of a `dtype`: as numpy takes it, or `text` and `bytes` of variable length."""
    if described == "text":
        return h5t.py_create(h5py.string_dtype(), logical=True)
    if described == "bytes":
        return h5t.py_create(h5py.vlen_dtype(np.uint8), logical=True)
    return h5t.py_create(np.dtype(_descr(described)), logical=True)


def _descr(described: Any) -> Any:
    """What `np.dtype` takes: a string, `[base, shape]`, or `{"names", "formats", "offsets", "itemsize"}`."""
    if isinstance(described, list):
        return (_descr(described[0]), tuple(described[1]))
    if isinstance(described, dict):
        return {**described, "formats": [np.dtype(_descr(field)) for field in described["formats"]]}
    return described


def create(file: Any, item: dict[str, Any]) -> None:
    """One dataset."""
    shape = tuple(item["shape"])
    space = h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)
    kind = dataset_type(item["dtype"])
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_layout(h5d.CONTIGUOUS)
    if item.get("fill"):
        plist.set_fill_value(np.frombuffer(base64.b64decode(item["fill"]), np.dtype(_descr(item["dtype"]))))
    if "items" not in item:
        plist.set_fill_time(h5d.FILL_TIME_NEVER)
    links = h5p.create(h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    links.set_char_encoding(h5t.CSET_UTF8)
    found = h5d.create(file.id, raw(item["path"]), kind, space, plist, links)
    dataset = h5py.Dataset(found)
    if "items" in item:
        items = item["items"]
        if item["dtype"] == "bytes":
            values = np.empty(len(items), object)
            for i, text in enumerate(items):
                values[i] = np.frombuffer(base64.b64decode(text), np.uint8)
        elif item["dtype"] == "text":
            values = np.array([_text(text).replace("\0", "") for text in items], dtype=object)
        else:
            values = np.frombuffer(base64.b64decode(items), np.dtype(_descr(item["dtype"])))
        if values.size:
            values = values.reshape(shape)
            if item["dtype"] == "bytes":
                for index in np.ndindex(*shape):  # numpy would make one array of arrays of the same length
                    dataset[index] = values[index]
            else:
                dataset[...] = values
    for i, label in enumerate(item.get("labels") or ()):
        if label:
            dataset.dims[i].label = _text(label)


class Skeleton:
    """The file while it is written. `failed`: objects that HDF5 refuses, and why."""

    def __init__(self, file: h5py.File, specification: dict[str, Any], blob: bytes) -> None:
        self._file = file
        self._objects: list[dict[str, Any]] = specification["objects"]
        self._scales = specification["scales"]
        self._blob = blob
        self._typed = Typed(file)
        self.failed: dict[int, str] = {}

    def write(self) -> None:
        """Everything: objects, then attributes, which may refer to any of them."""
        self._each(self._typed.commit, "type")
        for number, item in enumerate(self._objects):
            try:
                if number not in self.failed:
                    self._object(item)
                    self._typed.remember(item)
            except ERRORS as error:
                self.failed[number] = _reason(error)
        self._each(self._items, "dataset")
        for number, reason in self.failed.items():
            self._left_out(self._objects[number]["path"], reason)
        self._each(self._attributes, "group", "dataset", "type")
        for path, name in self._scales["made"]:
            self._attempt(lambda path=path, name=name: self._file[path].make_scale(_text(name)))
        for path, dimension, scale in self._scales["attached"]:
            self._attempt(lambda p=path, d=dimension, s=scale: self._file[p].dims[d].attach_scale(self._file[s]))

    def _each(self, call: Any, *kinds: str) -> None:
        for number, item in enumerate(self._objects):
            if item["kind"] in kinds and number not in self.failed:
                try:
                    call(item)
                except ERRORS as error:
                    self.failed[number] = _reason(error)

    def _attempt(self, call: Any) -> None:
        """What is of no importance where it cannot be done: the other's data set may have been left out."""
        with contextlib.suppress(*ERRORS):
            call()

    def _object(self, item: dict[str, Any]) -> None:
        kind, path = item["kind"], item["path"]
        if kind == "dataset":
            self._dataset(item)
        elif kind == "type":
            self._typed.link_type(item)
        elif kind == "group":
            if path != "/" and "links" in item.get("typed", ()):
                self._typed.group(item)
            elif path != "/":
                self._file.require_group(raw(path))
        elif kind == "soft":
            self._file[raw(path)] = h5py.SoftLink(item["target"])
        elif kind == "external":
            self._file[raw(path)] = h5py.ExternalLink(item["target"][0], item["target"][1])
        elif kind == "hard":
            self._file[raw(path)] = self._file[raw(item["target"])]
        else:
            raise ValueError("the process that writes the file ends over what HDF5 says of it")

    def _dataset(self, item: dict[str, Any]) -> None:
        if "type" not in item.get("typed", ()):
            create(self._file, item)
            return
        try:
            self._typed.dataset(item)
        except ERRORS:
            if raw(item["path"]) in self._file:
                del self._file[raw(item["path"])]
            if "shape" not in item or "blob" in item:
                raise
            create(self._file, item)  # as a store of another format would show it

    def _items(self, item: dict[str, Any]) -> None:
        """Elements that are part of the skeleton, now that what they may refer to is there."""
        if "blob" in item:
            start, length = item["blob"]
            try:
                self._typed.items(item, self._blob[start : start + length])
            except ERRORS:
                del self._file[raw(item["path"])]
                raise

    def _attributes(self, item: dict[str, Any]) -> None:
        holder = self._file[raw(item["path"])]
        attributes = item.get("attributes", {})
        if "attributes" in item.get("typed", ()):
            failed = self._typed.attributes(item)
            attributes = {name: attributes[name] for name in failed if name in attributes}
        if item.get("left_out"):
            attributes = {**attributes, LEFT_OUT: item["left_out"]}
        set_attributes(holder, attributes)

    def _left_out(self, path: str, reason: str) -> None:
        """Name what the file lacks in its group."""
        folder, _, name = path.rpartition("/")
        for item in self._objects:
            if item["kind"] == "group" and item["path"] == (folder or "/"):
                item.setdefault("left_out", []).append(f"{name}: {reason}")
                return


def _reason(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def write(specification: dict[str, Any], blob: bytes) -> tuple[Pages, list[int | None], dict[int, str]]:
    """The skeleton, the offset of each object's elements, and which objects it lacks, and why."""
    pages = Pages()
    objects = specification["objects"]
    ordered = any(item["path"] == "/" and item.get("typed", {}).get("links") for item in objects)
    facts = [fact for item in objects for fact in item.get("typed", {}).get("attributes", ())]
    large = any(len(fact.get("data", "")) > _ATTRIBUTE_BYTES for fact in facts)
    oldest = "v108" if large else "earliest"  # whose object headers hold no attribute of 64 KiB and more
    with h5py.File(pages, "w", libver=(oldest, "latest"), track_order=ordered) as file:
        skeleton = Skeleton(file, specification, blob)
        skeleton.write()
    offsets: list[int | None] = [None] * len(objects)
    file = aligned(pages, PAGE)
    try:
        for number, item in enumerate(objects):
            if item.get("bytes") and number not in skeleton.failed:
                offsets[number] = allocate(file, raw(item["path"]), item["bytes"])
    finally:
        file.close()
    for item, offset in zip(objects, offsets, strict=True):
        if offset is not None:
            pages.discard(offset, offset + item["bytes"])
    return pages, offsets, skeleton.failed
