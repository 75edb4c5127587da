"""Objects that JSON describes (`specification.py`), written into an HDF5 file. Part of the writing process.

Not here: objects of other HDF5 files (`typed.py`), the order in which objects are written (`skeleton.py`).
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5ds, h5f, h5p, h5s, h5t

from fsbridge.layouts.files.h5.child.typed import link_creation, raw

ATTRIBUTE_BYTES = 60000
"""Of an attribute: object headers cannot hold more; it becomes JSON text, which lies elsewhere."""
_POINTER_BYTES = 16
"""Of a text of variable length in an attribute."""


def attribute(value: Any) -> Any:
    """A JSON value as an attribute: numbers, texts and rectangular lists as such, everything else as JSON text."""
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return np.int64(value) if -(2**63) <= value < 2**63 else np.uint64(value) if value < 2**64 else str(value)
    if isinstance(value, float):
        return np.float64(value)
    if isinstance(value, str):
        return encodable(value) if "\0" not in value else json.dumps(value)
    if isinstance(value, list) and value:
        flat = value
        while all(isinstance(item, list) for item in flat) and flat:
            flat = [item for sub in flat for item in sub]
        kinds = {type(item) for item in flat}
        try:
            if kinds == {str} and not any("\0" in item for item in flat) and len(flat) * _POINTER_BYTES <= ATTRIBUTE_BYTES:
                return np.array(value, dtype=h5py.string_dtype())
            if kinds == {bool} or kinds == {int} or kinds == {float} or kinds == {int, float}:
                array = np.array(value)
                if array.dtype.kind in "biuf" and array.nbytes <= ATTRIBUTE_BYTES:
                    return array
        except (ValueError, OverflowError):
            pass
    return json.dumps(value)


def set_attributes(owner: Any, attributes: Mapping[str, Any]) -> None:
    """All attributes; one that HDF5 cannot hold is left out, and hides no other."""
    for name, value in attributes.items():
        try:
            _set_attribute(owner, encodable(name), attribute(value))
        except (ValueError, TypeError, OSError, RuntimeError) as error:
            print(f"attribute {name[:80]!r}: {error}", file=sys.stderr)


def _set_attribute(owner: Any, name: str, value: Any) -> None:
    """`value`: as `attribute` gives it. Much faster than h5py's `attrs`, which looks for an attribute to replace."""
    array = np.array(value, dtype=h5py.string_dtype()) if isinstance(value, str) else np.asarray(value)
    kind = h5t.py_create(array.dtype, logical=True)
    space = h5s.create_simple(array.shape) if array.shape else h5s.create(h5s.SCALAR)
    h5a.create(owner, raw(name), kind, space).write(array)


def encodable(text: str) -> str:
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


def create(file: h5f.FileID, item: Mapping[str, Any]) -> Any:
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
    found = h5d.create(file, raw(item["path"]), kind, space, plist, link_creation())
    for i, label in enumerate(item.get("labels") or ()):
        if label:
            h5ds.set_label(found, i, encodable(label).encode())
    if "items" in item:
        _fill(h5py.Dataset(found), item)
    return found


def _fill(dataset: h5py.Dataset, item: Mapping[str, Any]) -> None:
    """Elements that are part of the skeleton."""
    items = item["items"]
    if item["dtype"] == "bytes":
        for index, content in zip(np.ndindex(*dataset.shape), items, strict=True):
            dataset[index] = np.frombuffer(base64.b64decode(content), np.uint8)
        return
    if item["dtype"] == "text":
        values = np.array([encodable(content).replace("\0", "") for content in items], dtype=object)
    else:
        values = np.frombuffer(base64.b64decode(items), np.dtype(_descr(item["dtype"])))
    if values.size:
        dataset[...] = values.reshape(dataset.shape)
