"""Writes the skeleton of an HDF5 file: everything but the elements of contiguous datasets. Part of the writing process.

A specification (`specification.py`) is a JSON object: `groups`, `datasets`, `links`, `scales`. Not here: the program
(`writer.py`), the file in memory (`pages.py`).
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from fsbridge.layouts.files.h5.child.pages import Pages

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


def create(file: Any, item: dict[str, Any]) -> int | None:
    """One dataset; where its elements are to be found, None where they are in the skeleton."""
    shape = tuple(item["shape"])
    space = h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)
    kind = dataset_type(item["dtype"])
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_layout(h5d.CONTIGUOUS)
    if item.get("fill"):
        plist.set_fill_value(np.frombuffer(base64.b64decode(item["fill"]), np.dtype(_descr(item["dtype"]))))
    if "items" not in item:
        plist.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        plist.set_fill_time(h5d.FILL_TIME_NEVER)
    links = h5p.create(h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    links.set_char_encoding(h5t.CSET_UTF8)
    found = h5d.create(file.id, item["path"].encode("utf-8", "replace"), kind, space, plist, links)
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
    set_attributes(dataset, item.get("attributes", {}))
    for i, label in enumerate(item.get("labels") or ()):
        if label:
            dataset.dims[i].label = _text(label)
    return None if "items" in item else found.get_offset()


def write(specification: dict[str, Any]) -> tuple[Pages, list[int | None]]:
    """The skeleton, and the offset of each dataset's elements."""
    pages = Pages()
    with h5py.File(pages, "w", libver=("earliest", "v110")) as file:
        for group in specification["groups"]:
            set_attributes(file.require_group(group["path"]), group["attributes"])
        offsets = [create(file, item) for item in specification["datasets"]]
        for path, target in specification["links"]:
            file[path] = h5py.SoftLink(target)
        for path, name in specification["scales"]["made"]:
            file[path].make_scale(_text(name))
        for path, dimension, scale in specification["scales"]["attached"]:
            file[path].dims[dimension].attach_scale(file[scale])
        file.flush()
    return pages, offsets
