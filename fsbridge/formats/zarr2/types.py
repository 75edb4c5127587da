"""Zarr v2 element types and fill values, in every spelling that is found. Not here: object codecs, codecs.

Facts from the Zarr v2 specification and from what zarr-python 2 and 3, z5, NCZarr and GDAL write.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

import numpy as np

from fsbridge.errors import CorruptData, Unsupported
from fsbridge.formats.documents import kind
from fsbridge.formats.dtypes import MAX_ITEMSIZE
from fsbridge.metadata import JSON

TYPE = re.compile(r"[<>|]?(b1|[iu][1248]|f(2|4|8|16)|c(8|16|32)|[SUV][0-9]{1,9}|O8?|[mM]8(\[[0-9]{0,9}[a-zA-Zμ]{1,3}\])?)")
"""What numpy's array interface calls a typestr. Anything else that `numpy.dtype` would take, no writer writes."""

DECIMAL = re.compile(r"-?[0-9]{1,300}(\.[0-9]{0,300})?([eE][-+]?[0-9]{1,4})?")
"""A number in a string, as n5-zarr (Java) writes fill values."""

MAX_FIELDS = 4096
"""Fields of one struct; numpy takes quadratic time over them."""


def parse_type(value: JSON) -> np.dtype[Any]:
    """`dtype`: a typestr, or a list of `[name, type]` and `[name, type, shape]` for structs; packed."""
    if isinstance(value, str):
        if TYPE.fullmatch(value) is None:
            raise Unsupported(f"data type {value[:60]!r}")
        return _numpy(value)
    if isinstance(value, list) and 0 < len(value) <= MAX_FIELDS:
        return _numpy([_field(item) for item in value])
    raise CorruptData(f"data type is {kind(value)}, not a string or a list of fields")


def parse_fill(value: JSON, stored: np.dtype[Any]) -> bytes | None:
    """The bytes of one element of `stored` (not an object type), as stored; None when the fill value is undefined (`null`).

    Of dates and durations `null` means NaT: zarr-python 3 reads it so, and the date that is all zeros would pass for data.
    Raises CorruptData for a value that no element of this type can have.
    """
    if value is None and stored.kind not in "mM":
        return None
    if stored.fields is not None or stored.subdtype is not None or stored.kind in "SV":
        return _opaque(value, stored)
    if stored.kind == "U":
        return _text(value, stored)
    if stored.kind in "mM":
        number = np.iinfo(np.int64).min if value in (None, "NaT") else _integer(value, stored, np.dtype(np.int64))
        return np.array(number, np.dtype(np.int64).newbyteorder(stored.byteorder)).tobytes()
    if stored.kind == "b":
        if isinstance(value, bool | int | float) and value in (0, 1):
            return bytes((int(value),))
        raise _refused(value, stored)
    if stored.kind in "iu":
        return np.array(_integer(value, stored, stored), stored).tobytes()
    if stored.kind == "f":
        return _floats([_float(value, stored)], stored)
    parts = value if isinstance(value, list) and len(value) == 2 else [value, 0]
    part = np.dtype(f"f{stored.itemsize // 2}").newbyteorder(stored.byteorder)
    return _floats([_float(value, stored) for value in parts], part)


def _field(item: JSON) -> tuple[Any, ...]:
    if not isinstance(item, list) or len(item) not in (2, 3) or not isinstance(item[0], str):
        raise CorruptData("a struct's field is no list of name, type and shape")
    if len(item) == 2:
        return item[0], parse_type(item[1])
    shape = item[2] if isinstance(item[2], list) else [item[2]]
    if any(isinstance(edge, bool) or not isinstance(edge, int) or edge < 0 for edge in shape):
        raise CorruptData(f"field {item[0][:60]!r} has an impossible shape")
    return item[0], parse_type(item[1]), tuple(shape)


def _numpy(spelling: Any) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(spelling)
    except (TypeError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        raise CorruptData(f"no data type: {str(error)[:120]}") from None
    if not 0 <= dtype.itemsize <= MAX_ITEMSIZE:
        raise CorruptData(f"data type of {dtype.itemsize} bytes an element")
    return dtype


def _opaque(value: JSON, stored: np.dtype[Any]) -> bytes:
    """base64, padded with NUL where it is shorter; old zarr-python writes 0, NCZarr the NUL character itself."""
    if isinstance(value, str) and value.strip("\0"):
        try:
            raw = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise _refused(value, stored) from None
        if len(raw) > stored.itemsize:
            raise _refused(value, stored)
        return raw.ljust(stored.itemsize, b"\0")
    if isinstance(value, str) or (isinstance(value, bool | int | float) and value == 0):
        return bytes(stored.itemsize)
    raise _refused(value, stored)


def _text(value: JSON, stored: np.dtype[Any]) -> bytes:
    if isinstance(value, str) and 4 * len(value) <= stored.itemsize:
        return np.array(value, stored).tobytes()
    if isinstance(value, bool | int | float) and value == 0:
        return bytes(stored.itemsize)
    raise _refused(value, stored)


def _integer(value: JSON, stored: np.dtype[Any], limits: np.dtype[Any]) -> int:
    """z5 writes integers as `0.0`, n5-zarr as `"0"`."""
    if isinstance(value, str) and DECIMAL.fullmatch(value) is not None:
        value = float(value) if set(value) & set(".eE") else int(value)
    whole = isinstance(value, bool | int) or (isinstance(value, float) and value.is_integer())
    if not whole or not np.iinfo(limits).min <= value <= np.iinfo(limits).max:
        raise _refused(value, stored)
    return int(value)


def _float(value: JSON, stored: np.dtype[Any]) -> float:
    if isinstance(value, str):
        if value not in ("NaN", "Infinity", "-Infinity") and DECIMAL.fullmatch(value) is None:
            raise _refused(value, stored)
        return float(value)
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            pass
    raise _refused(value, stored)


def _floats(values: list[float], stored: np.dtype[Any]) -> bytes:
    with np.errstate(all="ignore"):  # a float64 that a float32 array cannot hold is an infinity, as numpy makes it
        return np.array(values).astype(stored).tobytes()


def _refused(value: JSON, stored: np.dtype[Any]) -> CorruptData:
    return CorruptData(f"fill value {repr(value)[:60]} for elements of type {stored}")
