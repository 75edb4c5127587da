"""Zarr v2 elements: data types and fill values in every spelling that is found, and how elements are decoded.

Facts come from the Zarr v2 specification and from what zarr-python 2 and 3, z5, NCZarr, GDAL and TensorStore write. Not
here: object codecs and compressors (`codecs/`).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fsbridge.codecs import CodecChain, Decoder, RefusedStep, table
from fsbridge.errors import CorruptData, Unsupported
from fsbridge.formats import dtypes
from fsbridge.formats.dtypes import BYTES, MAX_ITEMSIZE, STRING, data_type, normaliser, padded_fill, spell
from fsbridge.formats.keyed.hierarchy import Dialect
from fsbridge.formats.strict_json import Fields, kind
from fsbridge.metadata import JSON, DataType

TYPE = re.compile(r"[<>|]?(b1|[iu][1248]|f(2|4|8|16)|c(8|16|32)|[SUV][0-9]{1,9}|O8?|[mM]8(\[[0-9]{0,9}[a-zA-Zμ]{1,7}\])?)")
"""A typestr of numpy's array interface. No writer writes anything else that `numpy.dtype` would accept.

The longest unit is `generic`, which numpy leaves out, and zarr-python 3.4 writes if it has a factor.
"""

NARROW: Mapping[str, int] = {"int2": 2, "int4": 4}
"""Bits of integers that take a byte each."""

NAMED = frozenset((*dtypes.MINIFLOATS, "bfloat16", *NARROW))
"""Types that numpy lacks, which TensorStore 0.1.86 writes by their names in Zarr v3 (some of them)."""

DECIMAL = re.compile(r"-?[0-9]{1,300}(\.[0-9]{0,300})?([eE][-+]?[0-9]{1,4})?")
"""A number in a string, as n5-zarr (Java) writes fill values."""

MOMENT = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2}(T[0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,18})?)?)?)?)?)?")
"""A date as zarr-python 3.0.10 writes fill values."""

MAX_FIELDS = 4096
"""Most fields of one struct, because numpy takes quadratic time for them."""


def parse_named(value: JSON) -> DataType | None:
    """Return the type if `dtype` is one of `NAMED`, which are all little-endian; else None."""
    if not isinstance(value, str) or value not in NAMED:
        return None
    size = 2 if value == "bfloat16" else 1
    return DataType(value, size, "little" if size > 1 else None, value, np.dtype(f"V{size}"))


def parse_named_fill(value: JSON, name: str) -> tuple[bytes | None, JSON]:
    """Return one element's bytes of a `NAMED` type, and Zarr v3's spelling of it. The bytes are None for `null`.

    Raises CorruptData for a value that the type cannot have.
    """
    if name in NARROW:
        number = 0 if value is None else _integer(value, name, -(1 << NARROW[name] - 1), (1 << NARROW[name] - 1) - 1)
        return None if value is None else number.to_bytes(1, "little", signed=True), number
    if value is None:
        return None, 0.0
    form = dtypes.MINIFLOATS.get(name)
    if form is not None and form.bits < 8:  # TensorStore spells these as raw bytes
        raw = _opaque(value, np.dtype("V1")) or b"\0"
        return raw, dtypes.decode_minifloat(raw[0], form)
    real = _float(value, name)
    try:
        return dtypes.encode_minifloat(real, name), dtypes.spell_float(real)
    except ValueError:
        raise _make_refusal(value, name) from None


def parse_type(value: JSON) -> np.dtype[Any]:
    """Read `dtype`: a typestr, or for a struct a list of `[name, type]` and `[name, type, shape]`. Fields have no gaps."""
    if isinstance(value, str):
        if TYPE.fullmatch(value) is None:
            raise Unsupported(f"data type {value[:60]!r} is not known")
        return _numpy(value)
    if isinstance(value, list) and 0 < len(value) <= MAX_FIELDS:
        return _numpy([_field(item) for item in value])
    raise CorruptData(f"data type is {kind(value)}, not a string or a list of fields")


def parse_fill(value: JSON, stored: np.dtype[Any]) -> bytes | None:
    """Return the stored bytes of one element of `stored` (no object type), or None for an undefined fill value (`null`).

    For dates and durations `null` means NaT: zarr-python 3 reads it so, and the all-zero date would look like data. Raises
    CorruptData for a value that no element of this type can have, TooLarge for too large an element.
    """
    value = _single(value)
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
        raise _make_refusal(value, stored)
    if stored.kind in "iu":
        limits = np.iinfo(stored)
        return np.array(_integer(value, stored, limits.min, limits.max), stored).tobytes()
    if stored.kind == "f":
        return _floats([_float(value, stored)], stored)
    parts = value if isinstance(value, list) and len(value) == 2 else [value, 0]
    part = np.dtype(f"f{stored.itemsize // 2}").newbyteorder(stored.byteorder)
    return _floats([_float(value, stored) for value in parts], part)


def _single(value: JSON) -> JSON:
    """Return a fill value. netCDF-C 4.8.0 writes a list of one element instead: the element is returned."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _field(item: JSON) -> tuple[Any, ...]:
    if not isinstance(item, list) or len(item) not in (2, 3) or not isinstance(item[0], str):
        raise CorruptData("a struct's field is not a list of name, type and shape")
    if len(item) == 2:
        return item[0], parse_type(item[1])
    shape = item[2] if isinstance(item[2], list) else [item[2]]
    if any(isinstance(edge, bool) or not isinstance(edge, int) or edge < 0 for edge in shape):
        raise CorruptData(f"field {item[0][:60]!r} has an impossible shape")
    return item[0], parse_type(item[1]), tuple(shape)


def _numpy(spelling: Any) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(spelling)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CorruptData(f"it is not a data type: {str(error)[:120]}") from None
    if not 0 <= dtype.itemsize <= MAX_ITEMSIZE:
        raise CorruptData(f"the data type has {dtype.itemsize} bytes an element, the limit is {MAX_ITEMSIZE}")
    return dtype


def _opaque(value: JSON, stored: np.dtype[Any]) -> bytes:
    """Read base64 without its trailing zeros. Old zarr-python writes 0, NCZarr the NUL character itself."""
    if isinstance(value, str) and value.strip("\0"):
        try:
            raw = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise _make_refusal(value, stored) from None
        if len(raw) > stored.itemsize:
            raise _make_refusal(value, stored)
        return raw
    if isinstance(value, str) or (isinstance(value, bool | int | float) and value == 0):
        return b""
    raise _make_refusal(value, stored)


def _text(value: JSON, stored: np.dtype[Any]) -> bytes:
    if isinstance(value, str) and 4 * len(value) <= stored.itemsize:
        return np.array(value, f"{stored.str[0]}U{len(value)}").tobytes() if value else b""
    if isinstance(value, bool | int | float) and value == 0:
        return b""
    raise _make_refusal(value, stored)


def _integer(value: JSON, stored: object, least: int, most: int) -> int:
    """Read an integer. z5 writes integers as `0.0`, n5-zarr as `"0"`."""
    if isinstance(value, str) and DECIMAL.fullmatch(value) is not None:
        value = float(value) if set(value) & set(".eE") else int(value)
    whole = isinstance(value, bool | int) or (isinstance(value, float) and value.is_integer())
    if not whole or not least <= value <= most:
        raise _make_refusal(value, stored)
    return int(value)


def _moment(value: JSON, stored: np.dtype[Any]) -> int:
    """Return a date or a duration as the stored number."""
    if stored.kind != "M" or not isinstance(value, str) or MOMENT.fullmatch(value) is None:
        return _integer(value, stored, -(2**63), 2**63 - 1)
    try:
        named = np.datetime64(value)
    except ValueError:
        raise _make_refusal(value, stored) from None
    moment = named.astype(stored)
    if moment.astype(named.dtype) != named:
        raise _make_refusal(value, stored)
    return int(moment.astype(np.int64))


def _float(value: JSON, stored: object) -> float:
    if isinstance(value, str):
        named = dtypes.named_float(value)
        if named is not None:
            return named
        if DECIMAL.fullmatch(value) is None:
            raise _make_refusal(value, stored)
    if isinstance(value, str | bool | int | float):
        try:
            return float(value)
        except OverflowError:
            pass
    raise _make_refusal(value, stored)


def _floats(values: list[float], stored: np.dtype[Any]) -> bytes:
    with np.errstate(all="ignore"):  # a float64 that a float32 array cannot hold becomes an infinity, as in numpy
        return np.array(values).astype(stored).tobytes()


def _make_refusal(value: JSON, stored: object) -> CorruptData:
    return CorruptData(f"fill value {repr(value)[:60]} for elements of type {stored}")


DOCUMENTS = ("json2", "msgpack2")
"""Object codecs that write nested lists, in C order whatever the array's order."""


class ParsedElements(NamedTuple):
    """The type of a chunk's elements, how they are decoded, and their fill value."""

    dtype: DataType
    chain: CodecChain
    fill: bytes | str | None
    fill_spelling: JSON = None
    """See `ArrayMetadata`."""


def parse_elements(
    fields: Fields, items: int, attributes: Mapping[str, JSON], dialect: Dialect, turned: bool = False
) -> ParsedElements:
    """Read `dtype`, `filters`, `compressor` and `fill_value`.

    `items`: number of elements in a chunk; `attributes`: the array's. `turned`: the elements are not in C order.
    """
    named = parse_named(fields.value("dtype"))
    stored = parse_type(fields.value("dtype")) if named is None or named.numpy is None else named.numpy
    filters = [] if fields.values.get("filters") is None else fields.sequence("filters")
    config = fields.values.get("compressor")
    # n5-zarr may spell `no compressor` as an object without an id; zarr-python 3 takes a missing one for null, too.
    whole = None if filters or stored.hasobject else stored  # filters may change the elements
    steps = [] if config in (None, {}, {"id": None}) else [_step(config, "compressor", stored, whole)]
    value = fields.values.get("fill_value")
    if stored.hasobject:
        codec = filters[0] if filters else None
        spoken = dialect.objects(stored, codec, items, _spelling(stored, codec), attributes)
        dtype, last = spoken if spoken is not None else object_elements(stored, codec, items, turned)
        steps += [_step(config, "filter", stored) for config in reversed(filters[1:])]
        # A struct's fill value is a pickle in base64; real files have 0: zeros.
        fill = object_fill(value, dtype, last.name) if not dtype.itemsize else None
        return ParsedElements(dtype, CodecChain((*steps, last)), fill)
    steps += [_step(config, "filter", stored) for config in reversed(filters[1:])]
    steps += [_first_filter(config, stored, items) for config in filters[:1]]
    if named is not None:
        return ParsedElements(named, CodecChain(tuple(steps)), *parse_named_fill(value, named.native))
    swap = normaliser(stored)
    fill = parse_fill(value, stored)
    if swap is not None:
        steps.append(swap)
        fill = bytes(swap.decode(fill, len(fill), len(fill), None)) if fill is not None else None
    return ParsedElements(data_type(stored), CodecChain(tuple(steps)), fill)


def _spelling(stored: np.dtype[Any], codec: JSON) -> str:
    return f"{spell(stored)} ({codec.get('id') if isinstance(codec, dict) else None})"


def object_elements(stored: np.dtype[Any], codec: JSON, items: int, turned: bool) -> tuple[DataType, Decoder]:
    """Return the shown type of Python objects, and the step that turns their codec's output into Zarr's vlen encoding.

    `codec` is the first filter, which must be an object codec. If it cannot be decoded, the array still has its metadata,
    and its chunks are Unsupported.
    """
    name = codec.get("id") if isinstance(codec, dict) else None
    native = _spelling(stored, codec)
    if stored.fields is not None:
        return replace(BYTES, native=native), RefusedStep(str(name), f"{name!r} on structs with objects is not read")
    if codec is None:
        return replace(BYTES, native=native), RefusedStep("object", "an array of Python objects has no object codec")
    if turned and name in DOCUMENTS:
        return replace(STRING, native=native), RefusedStep(
            name, f"{name!r} in Fortran order is not read, because zarr-python 2 reads it otherwise than it writes it"
        )
    try:
        decoder, serializer = table.object_decoder(codec, items)
    except Unsupported as error:
        return replace(BYTES, native=native), RefusedStep(str(name), str(error))
    return replace(STRING if serializer == "vlen-utf8" else BYTES, native=native), decoder


def object_fill(value: JSON, dtype: DataType, codec: str) -> bytes | str | None:
    """Return the fill value of objects: any JSON, mostly 0, null or the empty string.

    With vlen-bytes it is base64. Otherwise a string stays as it is. With json2 and msgpack2 anything else becomes JSON text,
    because elements are shown so, too. With vlen-utf8 a number becomes the text that Python makes of it, as in zarr-python
    3. In other cases it means the empty element.
    """
    if value is None or value == "":
        return None
    if dtype.serializer == "vlen-bytes":
        return _base64(value)
    if isinstance(value, str):
        return value
    if codec == "vlen-utf8" and isinstance(value, bool | int | float):
        return str(value)
    return json.dumps(value) if codec in ("json2", "msgpack2") else None


def _base64(value: JSON) -> bytes | None:
    """Decode base64, which zarr-python 3 writes. Any other value (mostly 0) stands for the empty element."""
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        return None


def _first_filter(config: JSON, stored: np.dtype[Any], items: int) -> Decoder:
    """Return the decoder of the first filter. zarr-python 3.0.0 to 3.0.10 encoded fixed-size texts and bytes as objects."""
    fixed = table.FIXED.get(stored.kind) if stored.fields is None else None
    if fixed is not None and isinstance(config, dict) and config.get("id") == fixed:
        return table.fixed_decoder(fixed, stored, items)
    return _step(config, "filter", stored)


def _step(config: JSON, role: str, stored: np.dtype[Any], whole: np.dtype[Any] | None = None) -> Decoder:
    """Return the decoder of a compressor or filter. If it is unknown, reading a chunk reports the reason.

    `whole`: the type of the array's elements, for a codec of whole arrays, which only a compressor without filters can be;
    else None.
    """
    if not isinstance(config, dict):
        raise CorruptData(f"a {role} is {kind(config)}, not an object")
    if config.get("id") == "shuffle" and config.get("elementsize") == 0:
        # netCDF-C means the array's own elements; numcodecs takes it for no shuffle at all and reads garbage.
        config = {**config, "elementsize": stored.itemsize}
    try:
        return table.decoder(config, stored=whole)
    except Unsupported as error:
        return RefusedStep(str(config.get("id")), str(error))
