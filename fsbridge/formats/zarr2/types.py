"""Zarr v2 element types and fill values, in every spelling that is found. Not here: object codecs, codecs.

Facts from the Zarr v2 specification and from what zarr-python 2 and 3, z5, NCZarr, GDAL and TensorStore write.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from fsbridge.errors import CorruptData, Unsupported
from fsbridge.formats import minifloats
from fsbridge.formats.dtypes import MAX_ITEMSIZE, padded_fill
from fsbridge.formats.strict_json import kind
from fsbridge.metadata import JSON, DataType

TYPE = re.compile(r"[<>|]?(b1|[iu][1248]|f(2|4|8|16)|c(8|16|32)|[SUV][0-9]{1,9}|O8?|[mM]8(\[[0-9]{0,9}[a-zA-Zμ]{1,3}\])?)")
"""What numpy's array interface calls a typestr. Anything else that `numpy.dtype` would take, no writer writes."""

NARROW: Mapping[str, int] = {"int2": 2, "int4": 4}
"""Bits of integers that take a byte each."""

NAMED = frozenset((*minifloats.FORMATS, "bfloat16", *NARROW))
"""Types that numpy lacks, which TensorStore 0.1.86 writes by their names in Zarr v3 (some of them)."""

DECIMAL = re.compile(r"-?[0-9]{1,300}(\.[0-9]{0,300})?([eE][-+]?[0-9]{1,4})?")
"""A number in a string, as n5-zarr (Java) writes fill values."""

MOMENT = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2}(T[0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,18})?)?)?)?)?)?")
"""A date as zarr-python 3.0.10 writes fill values."""

MAX_FIELDS = 4096
"""Fields of one struct; numpy takes quadratic time over them."""


def parse_named(value: JSON) -> DataType | None:
    """`dtype`, where it is one of `NAMED`: little-endian."""
    if not isinstance(value, str) or value not in NAMED:
        return None
    size = 2 if value == "bfloat16" else 1
    return DataType(value, size, "little" if size > 1 else None, value, np.dtype(f"V{size}"))


def parse_named_fill(value: JSON, name: str) -> tuple[bytes | None, JSON]:
    """The bytes of one element of a type of `NAMED`, None for `null`, and Zarr v3's spelling of it. Raises CorruptData."""
    if name in NARROW:
        number = 0 if value is None else _integer(value, name, -(1 << NARROW[name] - 1), (1 << NARROW[name] - 1) - 1)
        return None if value is None else number.to_bytes(1, "little", signed=True), number
    if value is None:
        return None, 0.0
    form = minifloats.FORMATS.get(name)
    if form is not None and form.bits < 8:  # TensorStore spells these as it does raw bytes
        raw = _opaque(value, np.dtype("V1")) or b"\0"
        return raw, minifloats.decode(raw[0], form)
    real = _float(value, name)
    try:
        return minifloats.encode(real, name), real if math.isfinite(real) else value
    except ValueError:
        raise _refused(value, name) from None


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
    Raises CorruptData for a value that no element of this type can have, TooLarge.
    """
    if value is None and stored.kind not in "mM":
        return None
    if stored.fields is not None or stored.subdtype is not None or stored.kind in "SV":
        return padded_fill(_opaque(value, stored), stored.itemsize, "fill_value")
    if stored.kind == "U":
        return padded_fill(_text(value, stored), stored.itemsize, "fill_value")
    if stored.kind in "mM":
        number = -(2**63) if value in (None, "NaT") else _moment(value, stored)
        return np.array(number, np.dtype(np.int64).newbyteorder(stored.byteorder)).tobytes()
    if stored.kind == "b":
        if isinstance(value, bool | int | float) and value in (0, 1):
            return bytes((int(value),))
        raise _refused(value, stored)
    if stored.kind in "iu":
        limits = np.iinfo(stored)
        return np.array(_integer(value, stored, limits.min, limits.max), stored).tobytes()
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
    """base64, zeros behind it left out; old zarr-python writes 0, NCZarr the NUL character itself."""
    if isinstance(value, str) and value.strip("\0"):
        try:
            raw = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise _refused(value, stored) from None
        if len(raw) > stored.itemsize:
            raise _refused(value, stored)
        return raw
    if isinstance(value, str) or (isinstance(value, bool | int | float) and value == 0):
        return b""
    raise _refused(value, stored)


def _text(value: JSON, stored: np.dtype[Any]) -> bytes:
    if isinstance(value, str) and 4 * len(value) <= stored.itemsize:
        return np.array(value, f"{stored.str[0]}U{len(value)}").tobytes() if value else b""
    if isinstance(value, bool | int | float) and value == 0:
        return b""
    raise _refused(value, stored)


def _integer(value: JSON, stored: object, least: int, most: int) -> int:
    """z5 writes integers as `0.0`, n5-zarr as `"0"`."""
    if isinstance(value, str) and DECIMAL.fullmatch(value) is not None:
        value = float(value) if set(value) & set(".eE") else int(value)
    whole = isinstance(value, bool | int) or (isinstance(value, float) and value.is_integer())
    if not whole or not least <= value <= most:
        raise _refused(value, stored)
    return int(value)


def _moment(value: JSON, stored: np.dtype[Any]) -> int:
    """A date or a duration as the number that is stored."""
    if stored.kind != "M" or not isinstance(value, str) or MOMENT.fullmatch(value) is None:
        return _integer(value, stored, -(2**63), 2**63 - 1)
    try:
        named = np.datetime64(value)
    except ValueError:
        raise _refused(value, stored) from None
    found = named.astype(stored)
    if found.astype(named.dtype) != named:
        raise _refused(value, stored)
    return int(found.astype(np.int64))


def _float(value: JSON, stored: object) -> float:
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


def _refused(value: JSON, stored: object) -> CorruptData:
    return CorruptData(f"fill value {repr(value)[:60]} for elements of type {stored}")
