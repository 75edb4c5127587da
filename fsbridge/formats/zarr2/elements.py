"""Elements of Zarr v2 arrays: type, compressor, filters and fill value together. Not here: types and values (`types.py`)."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fsbridge.codecs import CodecChain, Decoder, table
from fsbridge.errors import CorruptData, Unsupported
from fsbridge.formats.dtypes import BYTES, STRING, data_type, normaliser, spell
from fsbridge.formats.keyed.dialect import Dialect
from fsbridge.formats.keyed.refused import Refused
from fsbridge.formats.strict_json import Fields, kind
from fsbridge.formats.zarr2.types import parse_fill, parse_named, parse_named_fill, parse_type
from fsbridge.metadata import JSON, DataType

DOCUMENTS = ("json2", "msgpack2")
"""Object codecs that write nested lists, in C order whatever the array's."""


class Elements(NamedTuple):
    """What a chunk's elements are, how they are decoded, and their fill value."""

    dtype: DataType
    chain: CodecChain
    fill: bytes | str | None
    fill_spelling: JSON = None
    """See `ArrayMetadata`."""


def parse_elements(
    fields: Fields, items: int, attributes: Mapping[str, JSON], dialect: Dialect, turned: bool = False
) -> Elements:
    """`dtype`, `filters`, `compressor` and `fill_value`; `items`: elements of a chunk, `attributes`: the array's.

    `turned`: elements are in another order than C's.
    """
    named = parse_named(fields.value("dtype"))
    stored = parse_type(fields.value("dtype")) if named is None or named.numpy is None else named.numpy
    filters = [] if fields.values.get("filters") is None else fields.sequence("filters")
    config = fields.value("compressor")
    # n5-zarr may spell `no compressor` as an object without an id.
    whole = None if filters or stored.hasobject else stored  # what filters make of the elements is theirs
    steps = [] if config in (None, {}, {"id": None}) else [_step(config, "compressor", stored, whole)]
    value = fields.values.get("fill_value")
    if stored.hasobject:
        codec = filters[0] if filters else None
        spoken = dialect.objects(stored, codec, items, _spelling(stored, codec), attributes)
        dtype, last = spoken if spoken is not None else object_elements(stored, codec, items, turned)
        steps += [_step(config, "filter", stored) for config in reversed(filters[1:])]
        # A struct's is a pickle in base64, in real files of 0: zeros.
        fill = object_fill(value, dtype, last.name) if not dtype.itemsize else None
        return Elements(dtype, CodecChain((*steps, last)), fill)
    steps += [_step(config, "filter", stored) for config in reversed(filters[1:])]
    steps += [_first_filter(config, stored, items) for config in filters[:1]]
    if named is not None:
        return Elements(named, CodecChain(tuple(steps)), *parse_named_fill(value, named.native))
    swap = normaliser(stored)
    fill = parse_fill(value, stored)
    if swap is not None:
        steps.append(swap)
        fill = bytes(swap.decode(fill, len(fill), len(fill), None)) if fill is not None else None
    return Elements(data_type(stored), CodecChain(tuple(steps)), fill)


def _spelling(stored: np.dtype[Any], codec: JSON) -> str:
    return f"{spell(stored)} ({codec.get('id') if isinstance(codec, dict) else None})"


def object_elements(stored: np.dtype[Any], codec: JSON, items: int, turned: bool) -> tuple[DataType, Decoder]:
    """Elements that are Python objects, and the step that makes Zarr's vlen encoding of what their codec wrote.

    `codec` is the first filter, which has to be an object codec. Whatever we cannot decode still has its metadata; its
    chunks answer Unsupported.
    """
    name = codec.get("id") if isinstance(codec, dict) else None
    native = _spelling(stored, codec)
    if stored.fields is not None:
        return replace(BYTES, native=native), Refused(str(name), f"structs with Python objects, encoded by {name!r}")
    if codec is None:
        return replace(BYTES, native=native), Refused("object", "an array of Python objects without an object codec")
    if turned and name in DOCUMENTS:
        return replace(STRING, native=native), Refused(
            name, f"{name!r} in Fortran order, which zarr-python 2 reads otherwise than it writes"
        )
    try:
        decoder, serializer = table.object_decoder(codec, items)
    except Unsupported as error:
        return replace(BYTES, native=native), Refused(str(name), str(error))
    return replace(STRING if serializer == "vlen-utf8" else BYTES, native=native), decoder


def object_fill(value: JSON, dtype: DataType, codec: str) -> bytes | str | None:
    """The fill value of objects: any JSON; mostly 0, null or the empty string.

    Where elements are any JSON (json2, msgpack2) it is shown as they are: as JSON text unless it is a string. A number
    that fills an array of texts (vlen-utf8) is Python's text of it, as zarr-python 3 reads it; elsewhere it means the empty
    element.
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
    """zarr-python 3 writes base64; anything that is none (0, mostly) means the empty element."""
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        return None


def _first_filter(config: JSON, stored: np.dtype[Any], items: int) -> Decoder:
    """That of elements of fixed size, of which zarr-python 3.0.0 to 3.0.10 took texts and bytes for objects."""
    fixed = table.FIXED.get(stored.kind) if stored.fields is None else None
    if fixed is not None and isinstance(config, dict) and config.get("id") == fixed:
        return table.fixed_decoder(fixed, stored, items)
    return _step(config, "filter", stored)


def _step(config: JSON, role: str, stored: np.dtype[Any], whole: np.dtype[Any] | None = None) -> Decoder:
    """One compressor or filter; one that the table does not know shows its reason when a chunk is read.

    `whole`: the elements for a codec of whole arrays, which only a compressor without filters can be.
    """
    if not isinstance(config, dict):
        raise CorruptData(f"a {role} is {kind(config)}, not an object")
    if config.get("id") == "shuffle" and config.get("elementsize") == 0:
        # netCDF-C means the array's own elements; numcodecs takes it for no shuffle at all and reads garbage.
        config = {**config, "elementsize": stored.itemsize}
    try:
        return table.decoder(config, stored=whole)
    except Unsupported as error:
        return Refused(str(config.get("id")), str(error))
