"""Objects that JSON describes (`specification.py`), written into an HDF5 file. Part of the writing process.

Not here: the order in which objects are written (`skeleton.py`).
"""

from __future__ import annotations

import base64
import functools
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5f, h5p, h5s, h5t
from numpy.typing import NDArray

from fsbridge.layouts.files.h5.child.memory_file import MAX_RANK

ATTRIBUTE_BYTES = 60000
"""Most bytes of an attribute that fit into an object header of HDF5's first version. A longer list is written as JSON text.

In netCDF files, headers have the second version, as netCDF-C writes them: longer attributes lie outside of these.
"""
_COMPLEX = {8: b"_PFNC_FLOAT_COMPLEX_TYPE", 16: b"_PFNC_DOUBLE_COMPLEX_TYPE"}
"""Names that the types of complex numbers have in netCDF files, by their bytes: nc-complex, netCDF4-python, h5netcdf."""
_MEMBERS = frozenset(("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "S1"))
"""Types of members that compounds of netCDF can have, as numpy spells them."""
_DISTINCT = 256
"""Most cached types with property lists. Most datasets of a file resemble others in it.

A thousand datasets with four attributes each take 15 % more of the child's time without them.
"""


def raw(path: str) -> bytes:
    """Return a path as bytes for HDF5. Bytes that were not UTF-8 in the source are unchanged."""
    return path.encode("utf-8", "surrogateescape")


def untimed(kind: Any, netcdf: bool = False) -> Any:
    """Return creation properties of a class without times, so that the same objects always give the same bytes.

    `netcdf`: attributes keep their order and may have any size.
    """
    plist = h5p.create(kind)
    plist.set_obj_track_times(False)
    if netcdf:
        plist.set_attr_creation_order(h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED)
    return plist


def _link_creation() -> Any:
    """Return creation properties of links."""
    links = h5p.create(h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    links.set_char_encoding(h5t.CSET_UTF8)
    return links


LINKS = _link_creation()


def attribute(value: Any, netcdf: bool = False) -> Any:
    """Return a JSON value as an attribute's value: numbers, texts and rectangular lists as they are, others as JSON text.

    `netcdf`: truth values and lists of lists are JSON text as well, because netCDF has neither.
    """
    if value == []:
        return np.zeros(0)  # as h5py and AnnData write it: a reader of names would split a text into letters
    if isinstance(value, bool) and netcdf:
        return json.dumps(value)
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return np.int64(value) if -(2**63) <= value < 2**63 else np.uint64(value) if 0 <= value < 2**64 else str(value)
    if isinstance(value, float):
        return np.float64(value)
    if isinstance(value, str):
        return encodable(value) if "\0" not in value else json.dumps(value)
    if isinstance(value, list) and value:
        flat, rank = value, 1
        while all(isinstance(item, list) for item in flat) and flat:
            flat, rank = [item for sub in flat for item in sub], rank + 1
        kinds = {type(item) for item in flat} if rank <= (1 if netcdf else MAX_RANK) else set()
        few = netcdf or len(flat) * 16 <= ATTRIBUTE_BYTES  # each text of variable length is a pointer of 16 bytes
        try:
            if kinds == {str} and not any("\0" in item for item in flat) and few:
                return np.array([encodable(item) for item in flat], h5py.string_dtype()).reshape(np.shape(value))
            if kinds == {int} or kinds == {float} or kinds == {int, float} or (kinds == {bool} and not netcdf):
                array = np.array(value)
                small = netcdf or array.nbytes <= ATTRIBUTE_BYTES
                if array.dtype.kind in "biuf" and small and _has_integers(array, flat):
                    return array
        except (ValueError, OverflowError):
            pass
    return json.dumps(value)


def _has_integers(array: NDArray[Any], items: Sequence[Any]) -> bool:
    """True if numpy kept the integers among `items` exactly in `array`; it makes floats of -1 together with 2**63."""
    return all(type(item) is not int or item == value for item, value in zip(items, array.reshape(-1).tolist(), strict=True))


def set_attributes(
    owner: Any, attributes: Mapping[str, Any], described: Any = None, netcdf: bool = False, typed: Sequence[str] = ()
) -> None:
    """Write all attributes. One that HDF5 cannot hold is left out, and the others are still written.

    `described`: a dataset's dtype; `typed`: attributes that get this type, if their numbers fit. `netcdf`: texts get a
    fixed length (NC_CHAR), because some readers of netCDF fail at texts of variable length (NC_STRING), or show their
    addresses.
    """
    for name, value in attributes.items():
        try:
            content = attribute(value, netcdf)
            content = _alike(content, described) if name in typed else content
            _set_attribute(owner, encodable(name), content, netcdf)
        except (ValueError, TypeError, OSError, RuntimeError, OverflowError) as error:
            print(f"attribute {name[:80]!r}: {error}", file=sys.stderr)


def _alike(value: Any, described: Any) -> Any:
    """Convert numbers to the dataset's type if they fit: programs that read netCDF ignore them in another type."""
    dtype = np.dtype(described) if isinstance(described, str) and described not in ("text", "bytes") else None
    if dtype is None or dtype.kind not in "iuf" or isinstance(value, str) or value.dtype.kind not in "iuf":
        return value
    with np.errstate(all="ignore"):
        converted = value.astype(dtype)
    return converted if dtype.kind == "f" or (converted == value).all() else value


def _set_attribute(owner: Any, name: str, value: Any, netcdf: bool) -> None:
    """Write a `value` that `attribute` returned. h5py's `attrs` would take several times as long."""
    if isinstance(value, str) and netcdf:
        content = value.encode()
        kind = _characters(max(1, len(content)), content.isascii())
        _write(owner, name, kind, np.array(content, f"S{kind.get_size()}"), kind)
    elif isinstance(value, str):
        _write(owner, name, _TEXT, np.array(value, h5py.string_dtype()))
    else:
        _write(owner, name, _TEXT if value.dtype.kind == "O" else _type(value.dtype), np.asarray(value))


def _write(owner: Any, name: str, kind: Any, value: NDArray[Any], memory: Any = None) -> None:
    """Write an attribute of that HDF5 type. `memory`: the HDF5 type of `value`; None: the one that h5py gives its dtype."""
    if "\0" in name:
        raise ValueError("the name contains a zero character, at which HDF5 would end it")
    h5a.create(owner, raw(name), kind, _space(value.shape)).write(value, memory)


def _space(shape: tuple[int, ...]) -> Any:
    return h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)


def _type(dtype: np.dtype[Any]) -> Any:
    return h5t.py_create(dtype, logical=True)


def _text(letters: int) -> Any:
    """The type of texts of variable length."""
    kind = h5t.C_S1.copy()
    kind.set_size(h5t.VARIABLE)
    kind.set_cset(letters)
    return kind


_TEXT, _ASCII = _text(h5t.CSET_UTF8), _text(h5t.CSET_ASCII)


def _characters(length: int, ascii: bool) -> Any:
    """The type of texts of a fixed length."""
    kind = h5t.C_S1.copy()
    kind.set_size(length)
    kind.set_strpad(h5t.STR_NULLPAD)
    kind.set_cset(h5t.CSET_ASCII if ascii else h5t.CSET_UTF8)
    return kind


def encodable(text: str) -> str:
    """Return the text with `?` for what UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


def dataset_type(described: Any) -> Any:
    """Return the HDF5 type of a `dtype`: as numpy takes it, or `text` and `bytes` of variable length."""
    if described == "text":
        return h5t.py_create(h5py.string_dtype(), logical=True)
    if described == "bytes":
        return h5t.py_create(h5py.vlen_dtype(np.uint8), logical=True)
    return h5t.py_create(np.dtype(_descr(described)), logical=True)


def _descr(described: Any) -> Any:
    """Return an argument of `np.dtype`: a string, `[base, shape]`, or `{"names", "formats", "offsets", "itemsize"}`."""
    if isinstance(described, list):
        return (_descr(described[0]), tuple(described[1]))
    if isinstance(described, dict):
        return {**described, "formats": [np.dtype(_descr(field)) for field in described["formats"]]}
    return described


def create(file: h5f.FileID, item: Mapping[str, Any]) -> Any:
    """Create a dataset. If HDF5 refuses its elements, the dataset is removed, because it would show wrong ones."""
    space, netcdf = _space(tuple(item["shape"])), bool(item.get("netcdf"))
    kind, creation = _forms(json.dumps(item["dtype"]), item.get("fill"), "items" in item, netcdf)
    if netcdf:
        kind = _named(file, kind, item["path"])
    dataset = h5d.create(file, raw(item["path"]), kind, space, creation, LINKS)
    labels = [label if label and "\0" not in label else None for label in item.get("labels") or ()]
    try:
        if any(labels):  # the same attribute as H5DSset_label writes, in one call
            _write(dataset, "DIMENSION_LABELS", _ASCII, np.array([label or "" for label in labels], h5py.string_dtype()))
        if "items" in item:
            _fill(h5py.Dataset(dataset), item)
    except BaseException:
        file.unlink(raw(item["path"]))
        raise
    return dataset


def _named(file: h5f.FileID, kind: Any, path: str) -> Any:
    """Return the type, with a name in the file if it is a compound: netCDF-C reads no other ones.

    A compound with a member that netCDF has no type for gets no name, because netCDF-C would refuse the whole file.
    """
    dtype = np.dtype(kind.dtype)
    name = _COMPLEX.get(dtype.itemsize) if dtype.kind == "c" else None
    if dtype.names is not None and all(dtype[field].base.str[1:] in _MEMBERS for field in dtype.names):
        folder, _, own = path.rpartition("/")
        name = raw(f"{folder}/_{own}_type")
    if name is None:
        return kind
    if name not in file:
        kind.copy().commit(file, name)
    return h5t.open(file, name)


@functools.lru_cache(_DISTINCT)
def _forms(described: str, fill: str | None, inside: bool, netcdf: bool) -> tuple[Any, Any]:
    """Return a dataset's type and creation properties. `described`: dtype in JSON; `inside`: skeleton has the elements."""
    dtype, creation = json.loads(described), untimed(h5p.DATASET_CREATE, netcdf)
    creation.set_layout(h5d.CONTIGUOUS)
    if fill:
        _set_fill(creation, np.frombuffer(base64.b64decode(fill), np.dtype(_descr(dtype))))
    if not inside:
        creation.set_fill_time(h5d.FILL_TIME_NEVER)
    return dataset_type(dtype), creation


def _set_fill(creation: Any, fill: NDArray[Any]) -> None:
    """Set one element as the fill value. Empty text is not set: HDF5 has it anyway, and netCDF 4.9 and 4.10 crash on it."""
    if fill.dtype.kind != "S":
        creation.set_fill_value(fill)
    elif fill.tobytes().strip(b"\0"):  # h5py reads the value of any text type as a pointer
        creation.set_fill_value(np.array(fill[0], h5py.string_dtype("ascii")))


def _fill(dataset: h5py.Dataset, item: Mapping[str, Any]) -> None:
    """Write elements that are part of the skeleton."""
    items = item["items"]
    if item["dtype"] == "bytes":
        for index, content in zip(np.ndindex(*dataset.shape), items, strict=True):
            dataset[index] = np.frombuffer(base64.b64decode(content), np.uint8)
        return
    if item["dtype"] == "text":
        if any("\0" in content for content in items):
            raise ValueError("texts contain zero characters, at which HDF5 would end them")
        values = np.array([encodable(content) for content in items], dtype=object)
    else:
        values = np.frombuffer(base64.b64decode(items), np.dtype(_descr(item["dtype"])))
    if values.size:
        dataset[...] = values.reshape(dataset.shape)
