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


def encode_path(path: str) -> bytes:
    """Return a path as bytes for HDF5. Bytes that were not UTF-8 in the source are unchanged."""
    return path.encode("utf-8", "surrogateescape")


def make_properties(kind: Any, netcdf: bool = False) -> Any:
    """Return HDF5's properties for creating an object of class `kind`, with no times, so that equal files have equal bytes.

    `netcdf`: attributes keep their order and may have any size.
    """
    plist = h5p.create(kind)
    plist.set_obj_track_times(False)
    if netcdf:
        plist.set_attr_creation_order(h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED)
    return plist


def _make_link_properties() -> Any:
    """Return HDF5's properties for creating links: names are UTF-8, and missing groups on the way are created."""
    links = h5p.create(h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    links.set_char_encoding(h5t.CSET_UTF8)
    return links


LINKS = _make_link_properties()


def convert_attribute(value: Any, netcdf: bool = False) -> Any:
    """Convert a JSON value to the value of an HDF5 attribute. What is no number, text or rectangular list becomes JSON text.

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
        return make_encodable(value) if "\0" not in value else json.dumps(value)
    if isinstance(value, list) and value:
        flat, rank = value, 1
        while all(isinstance(item, list) for item in flat) and flat:
            flat, rank = [item for sub in flat for item in sub], rank + 1
        kinds = {type(item) for item in flat} if rank <= (1 if netcdf else MAX_RANK) else set()
        few = netcdf or len(flat) * 16 <= ATTRIBUTE_BYTES  # each text of variable length is a pointer of 16 bytes
        try:
            if kinds == {str} and not any("\0" in item for item in flat) and few:
                return np.array([make_encodable(item) for item in flat], h5py.string_dtype()).reshape(np.shape(value))
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

    `described`: a dataset's dtype; `typed`: names of the attributes that get this type, if their numbers fit. `netcdf`:
    texts get a fixed length (NC_CHAR), because some readers of netCDF fail at texts of variable length (NC_STRING), or show
    their addresses.
    """
    for name, value in attributes.items():
        try:
            content = convert_attribute(value, netcdf)
            content = _match_type(content, described) if name in typed else content
            _set_attribute(owner, make_encodable(name), content, netcdf)
        except (ValueError, TypeError, OSError, RuntimeError, OverflowError) as error:
            print(f"attribute {name[:80]!r}: {error}", file=sys.stderr)


def _match_type(value: Any, described: Any) -> Any:
    """Convert numbers to the dataset's type if they fit, because programs that read netCDF ignore numbers of another one."""
    dtype = np.dtype(described) if isinstance(described, str) and described not in ("text", "bytes") else None
    if dtype is None or dtype.kind not in "iuf" or isinstance(value, str) or value.dtype.kind not in "iuf":
        return value
    with np.errstate(all="ignore"):
        converted = value.astype(dtype)
    return converted if dtype.kind == "f" or (converted == value).all() else value


def _set_attribute(owner: Any, name: str, value: Any, netcdf: bool) -> None:
    """Write a `value` that `convert_attribute` returned. h5py's `attrs` would take several times as long."""
    if isinstance(value, str) and netcdf:
        content = value.encode()
        kind = _make_fixed_text_type(max(1, len(content)), content.isascii())
        _write(owner, name, kind, np.array(content, f"S{kind.get_size()}"), kind)
    elif isinstance(value, str):
        _write(owner, name, _TEXT, np.array(value, h5py.string_dtype()))
    else:
        _write(owner, name, _TEXT if value.dtype.kind == "O" else _make_type(value.dtype), np.asarray(value))


def _write(owner: Any, name: str, kind: Any, value: NDArray[Any], memory: Any = None) -> None:
    """Write an attribute of the HDF5 type `kind`.

    `memory`: the HDF5 type of `value`; None: the type that h5py makes of its dtype.
    """
    if "\0" in name:
        raise ValueError("the name contains a zero character, at which HDF5 would end it")
    h5a.create(owner, encode_path(name), kind, _make_space(value.shape)).write(value, memory)


def _make_space(shape: tuple[int, ...]) -> Any:
    return h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)


def _make_type(dtype: np.dtype[Any]) -> Any:
    return h5t.py_create(dtype, logical=True)


def _make_text_type(letters: int) -> Any:
    """Return the HDF5 type of texts of variable length.

    `letters`: the character set, `h5t.CSET_ASCII` or `h5t.CSET_UTF8`.
    """
    kind = h5t.C_S1.copy()
    kind.set_size(h5t.VARIABLE)
    kind.set_cset(letters)
    return kind


_TEXT, _ASCII = _make_text_type(h5t.CSET_UTF8), _make_text_type(h5t.CSET_ASCII)


def _make_fixed_text_type(length: int, ascii: bool) -> Any:
    """Return the HDF5 type of texts of `length` bytes."""
    kind = h5t.C_S1.copy()
    kind.set_size(length)
    kind.set_strpad(h5t.STR_NULLPAD)
    kind.set_cset(h5t.CSET_ASCII if ascii else h5t.CSET_UTF8)
    return kind


def make_encodable(text: str) -> str:
    """Return the text with `?` in place of each character that UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


def make_dataset_type(described: Any) -> Any:
    """Return the HDF5 type of a dtype in a request: `text` and `bytes` have a variable length."""
    if described == "text":
        return h5t.py_create(h5py.string_dtype(), logical=True)
    if described == "bytes":
        return h5t.py_create(h5py.vlen_dtype(np.uint8), logical=True)
    return h5t.py_create(np.dtype(_make_dtype_argument(described)), logical=True)


def _make_dtype_argument(described: Any) -> Any:
    """Convert a dtype in a request to what `np.dtype` takes.

    It is a string, `[base, shape]`, or an object with "names", "formats", "offsets" and "itemsize".
    """
    if isinstance(described, list):
        return (_make_dtype_argument(described[0]), tuple(described[1]))
    if isinstance(described, dict):
        return {**described, "formats": [np.dtype(_make_dtype_argument(field)) for field in described["formats"]]}
    return described


def create_dataset(file: h5f.FileID, item: Mapping[str, Any]) -> Any:
    """Create a dataset. If HDF5 refuses its elements, remove the dataset, because it would show wrong ones."""
    space, netcdf = _make_space(tuple(item["shape"])), bool(item.get("netcdf"))
    kind, creation = _make_forms(json.dumps(item["dtype"]), item.get("fill"), "items" in item, netcdf)
    if netcdf:
        kind = _name_compound(file, kind, item["path"])
    dataset = h5d.create(file, encode_path(item["path"]), kind, space, creation, LINKS)
    labels = [label if label and "\0" not in label else None for label in item.get("labels") or ()]
    try:
        if any(labels):  # the same attribute as H5DSset_label writes, in one call
            _write(dataset, "DIMENSION_LABELS", _ASCII, np.array([label or "" for label in labels], h5py.string_dtype()))
        if "items" in item:
            _write_elements(h5py.Dataset(dataset), item)
    except BaseException:
        file.unlink(encode_path(item["path"]))
        raise
    return dataset


def _name_compound(file: h5f.FileID, kind: Any, path: str) -> Any:
    """Return the type `kind`. A compound gets a name in the file first, because netCDF-C reads no compound without a name.

    A compound with a member that netCDF has no type for gets no name, because netCDF-C would refuse the whole file.
    """
    dtype = np.dtype(kind.dtype)
    name = _COMPLEX.get(dtype.itemsize) if dtype.kind == "c" else None
    if dtype.names is not None and all(dtype[field].base.str[1:] in _MEMBERS for field in dtype.names):
        folder, _, own = path.rpartition("/")
        name = encode_path(f"{folder}/_{own}_type")
    if name is None:
        return kind
    if name not in file:
        kind.copy().commit(file, name)
    return h5t.open(file, name)


@functools.lru_cache(_DISTINCT)
def _make_forms(described: str, fill: str | None, inside: bool, netcdf: bool) -> tuple[Any, Any]:
    """Return a dataset's HDF5 type and its creation properties.

    `described`: the dtype, in JSON; `inside`: the elements lie in the skeleton.
    """
    dtype, creation = json.loads(described), make_properties(h5p.DATASET_CREATE, netcdf)
    creation.set_layout(h5d.CONTIGUOUS)
    if fill:
        _set_fill(creation, np.frombuffer(base64.b64decode(fill), np.dtype(_make_dtype_argument(dtype))))
    if not inside:
        creation.set_fill_time(h5d.FILL_TIME_NEVER)
    return make_dataset_type(dtype), creation


def _set_fill(creation: Any, fill: NDArray[Any]) -> None:
    """Set the only element of `fill` as the fill value.

    Empty text is not set: HDF5 has it anyway, and netCDF 4.9 and 4.10 crash if it is set.
    """
    if fill.dtype.kind != "S":
        creation.set_fill_value(fill)
    elif fill.tobytes().strip(b"\0"):  # h5py reads the value of any text type as a pointer
        creation.set_fill_value(np.array(fill[0], h5py.string_dtype("ascii")))


def _write_elements(dataset: h5py.Dataset, item: Mapping[str, Any]) -> None:
    """Write the elements of a dataset that has them in the skeleton."""
    items = item["items"]
    if item["dtype"] == "bytes":
        for index, content in zip(np.ndindex(*dataset.shape), items, strict=True):
            dataset[index] = np.frombuffer(base64.b64decode(content), np.uint8)
        return
    if item["dtype"] == "text":
        if any("\0" in content for content in items):
            raise ValueError("texts contain zero characters, at which HDF5 would end them")
        values = np.array([make_encodable(content) for content in items], dtype=object)
    else:
        values = np.frombuffer(base64.b64decode(items), np.dtype(_make_dtype_argument(item["dtype"])))
    if values.size:
        dataset[...] = values.reshape(dataset.shape)
