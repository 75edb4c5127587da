"""The `codecs` list of a Zarr v3 array: what undoes it, and the memory order that is left to describe.

Decoders come from `codecs/`; what is kept here is the bookkeeping of the specification: which array codec sees which shape
and type, where bytes begin, what a shard contains. Transposes are described, not undone (`ArrayMetadata.order`), unless a
codec that depends on neighbours (`delta`, `packbits`) stands before them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fsbridge.codecs import CodecChain, Decoder, arrays, cast, filters, objects, packbits, swap, table
from fsbridge.errors import CorruptData, Unsupported
from fsbridge.formats.documents import Fields, kind
from fsbridge.formats.keyed.hierarchy import Refused
from fsbridge.formats.zarr3.shard_index import ShardLevel
from fsbridge.formats.zarr3.types import ZarrType, parse_type
from fsbridge.model import JSON, DataType

MAX_CODECS = 64
MAX_SHARD_LEVELS = 8
"""Nested shards; nobody writes more than two."""

DEFAULT_INDEX_CODECS: Sequence[JSON] = ({"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"})
INDEX_TYPE = ZarrType("uint64", "uint64", np.dtype("<u8"), 8)
PREFIX = "numcodecs."
OWN = ("blosc", "crc32c", "gzip", "zstd")
"""Bytes-to-bytes codecs of the specification; decoding needs none of their parameters."""


_DType = np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How the stored chunks of an array are read.

    `dtype`: elements of a decoded chunk; `order`: its memory order (None: C order), as in `ArrayMetadata`.
    `levels`: the shards around the chunks, outermost first; `chunk_shape`: the chunks in them, or those stored as such.
    `chain` decodes one chunk; `description` names the codecs for people.
    """

    dtype: DataType
    order: tuple[int, ...] | None
    chunk_shape: tuple[int, ...]
    levels: tuple[ShardLevel, ...]
    chain: CodecChain
    description: str


def parse_codecs(
    codecs: Sequence[JSON], of: ZarrType, shape: tuple[int, ...], place: str, regular: bool = True
) -> Pipeline:
    """Read a `codecs` member for stored chunks of `shape`; CorruptData for a list that cannot be.

    A codec that is not known, or not for this data type, makes every chunk Unsupported with its name.

    Not `regular`: other chunks have other shapes.

    A list without an array-to-bytes codec (GDAL 3.10, zarrita.js) means little-endian `bytes`.
    """
    state = _State(of, shape, place)
    state.regular = regular
    state.read(codecs)
    return state.pipeline()


def extension(value: JSON, place: str) -> tuple[str, Fields]:
    """Name and configuration of an extension point, which may be a bare string (Zarr v3.1)."""
    if isinstance(value, str):
        return value, Fields({}, f"{place}: {value[:80]}")
    if not isinstance(value, dict):
        raise CorruptData(f"{place}: {kind(value)} where an object with a name is needed")
    name = Fields(value, place).string("name")
    configuration = value.get("configuration")
    if configuration is not None and not isinstance(configuration, dict):
        raise CorruptData(f"{place}: the configuration of {name[:80]!r} is {kind(configuration)}")
    return name, Fields(configuration or {}, f"{place}: {name[:80]}")


class _State:
    """The list so far, in encoding order.

    `shape`: that of the array which the next codec gets, `axes[k]` the chunk's axis of its axis k, `stored` its elements.
    `flat`: a codec has passed for which the order of elements matters. `converted`: one has passed that changes values, so
    that the decoded chunk is made by us and little-endian. `in_bytes`: the array has become bytes. `regular`: all chunks
    have this shape.
    """

    def __init__(self, of: ZarrType, shape: tuple[int, ...], place: str) -> None:
        self.of = of
        self.place = place
        self.shape = shape
        self.chunk_shape = shape
        self.axes = tuple(range(len(shape)))
        self.stored = of.numpy
        self.regular = True
        self.flat = False
        self.converted = False
        self.in_bytes = False
        self.endian: Literal["little", "big"] = "little"
        self.steps: list[Decoder] = []
        self.levels: list[ShardLevel] = []
        self.names: list[str] = []

    def read(self, codecs: Sequence[JSON]) -> None:
        """Take the codecs of one list, which ends in bytes."""
        if len(codecs) > MAX_CODECS:
            raise CorruptData(f"{self.place}: {len(codecs)} codecs")
        level: int | None = None
        outer: list[Decoder] = []
        for codec in codecs:
            name, fields = extension(codec, f"{self.place}: codecs")
            try:
                array_codec = ARRAY_CODECS.get(name)
                if array_codec is None:
                    step = bytes_decoder(name, fields, self.stored)
                    self._end_array()
                    (self.steps if level is None else outer).append(step)
                    self.names.append(step.name)
                elif self.in_bytes:
                    raise CorruptData(f"{self.place}: codec {name!r} after the array has become bytes")
                elif name == "sharding_indexed":
                    level = len(self.levels)
                    self._shard(fields)
                else:
                    array_codec(self, fields)
            except Unsupported as error:
                # Of what comes after it nothing can be known; the array is shown, its chunks tell the reason.
                around = level is not None and level < len(self.levels)  # not a shard that is itself refused
                (outer if around else self.steps).append(Refused(name[:80], f"codec {name[:80]!r}: {error}"))
                self.names.append(name[:80])
                self.in_bytes = True
                break
        self._end_array()
        if level is not None and outer and level < len(self.levels):
            self.levels[level] = replace(self.levels[level], outer=CodecChain(tuple(reversed(outer))))

    def pipeline(self) -> Pipeline:
        """The result, once the whole list is read."""
        dtype = self.of.shown("little" if self.converted else self.endian)
        order = None if self.axes == tuple(range(len(self.axes))) else self.axes
        chain = CodecChain(tuple(reversed(self.steps)))
        return Pipeline(dtype, order, self.chunk_shape, tuple(self.levels), chain, "+".join(self.names) or "none")

    def transpose(self, fields: Fields) -> None:
        """`order`: a permutation, or TensorStore's `"C"` and `"F"`."""
        rank = len(self.shape)
        named = fields.value("order")
        if named in ("C", "F"):
            order = tuple(range(rank)) if named == "C" else tuple(reversed(range(rank)))
        else:
            order = fields.integers("order", 0, max(rank - 1, 0), rank)
        if len(set(order)) != rank:
            fields.fail("order", "is no permutation of the dimensions")
        self.shape = tuple(self.shape[axis] for axis in order)
        if self.flat and self.stored is not None:
            if not self.regular:
                raise Unsupported(f"{fields.place}: in chunks of several shapes, after a codec that depends on neighbours")
            self.steps.append(arrays.untranspose(self.shape, order, self.stored.itemsize))
        else:
            self.axes = tuple(self.axes[axis] for axis in order)

    def bytes(self, fields: Fields) -> None:
        """`endian` may be missing, also where it matters (zarr-python 3.1 reads that as little)."""
        big = fields.values.get("endian") is not None and fields.choice("endian", ("little", "big")) == "big"
        self._to_bytes("big" if big else "little")

    def vlen(self, fields: Fields) -> None:
        """The decoded chunk keeps this encoding; it is only checked."""
        text = fields.place.endswith("vlen-utf8")
        if self.of.numpy is not None or text != (self.of.name == "string"):
            raise CorruptData(f"{fields.place}: for data type {self.of.native[:80]!r}")
        items = math.prod(self.shape) if self.regular else None
        self.steps.append(objects.vlen_utf8(items) if text else objects.vlen_bytes(items))
        self.in_bytes = True

    def json2(self, fields: Fields) -> None:
        """numcodecs' document of strings (zarrita.js reads it in Zarr v3 as well)."""
        if self.of.name != "string":
            raise CorruptData(f"{fields.place}: for data type {self.of.native[:80]!r}")
        step, _ = table.object_decoder({**fields.values, "id": "json2"}, math.prod(self.shape) if self.regular else None)
        self.steps.append(step)
        self.in_bytes = True

    def delta(self, fields: Fields) -> None:
        """Differences of neighbours, over the chunk as a flat list in C order of the array at this place."""
        result = self._numbers(fields)
        stored = _little(fields.values.get("astype"), result)
        self._convert(filters.delta(result, stored), stored)
        self.flat = True

    def packbits(self, fields: Fields) -> None:
        """numcodecs' layout: the array becomes one dimension of bytes."""
        if self._numbers(fields).kind != "b":
            raise Unsupported(f"{fields.place}: on data type {self.of.native[:80]!r}")
        self._convert(filters.packbits(), np.dtype("u1"))
        self.shape = (1 + -(-math.prod(self.shape) // 8),)
        self.flat = True

    def packed_bits(self, fields: Fields) -> None:
        """zarr-extensions' `packbits`: an array-to-bytes codec with a layout of its own."""
        of, stored = self.of, self.stored
        if stored is None or of.fields or stored.kind not in "biufcV" or (self.converted and stored.kind == "V"):
            raise Unsupported(f"{fields.place}: on data type {of.native[:80]!r}")
        parts = 2 if stored.kind == "c" or of.name.startswith("complex_") else 1
        width = stored.itemsize // parts
        bits = 8 * width if self.converted else of.bits // parts
        names = ("first_bit", "last_bit")
        limits = [fields.integer(name) if fields.values.get(name) is not None else None for name in names]
        padding = fields.choice("padding_encoding", packbits.PADDINGS, "none")
        self.steps.append(packbits.packed_bits(width, bits, stored.kind == "i", limits[0], limits[1], padding))
        self.names.append("packbits")
        self.in_bytes = True

    def fixed_scale_offset(self, fields: Fields) -> None:
        result = self._numbers(fields)
        stored = _little(fields.values.get("astype"), result)
        offset, scale = fields.value("offset"), fields.value("scale")
        self._convert(filters.fixed_scale_offset(offset, scale, result, stored), stored)

    def quantize(self, fields: Fields) -> None:
        result = self._numbers(fields)
        stored = _little(fields.values.get("astype"), result)
        self._convert(filters.quantize(result, stored), stored)

    def astype(self, fields: Fields) -> None:
        result = self._numbers(fields)
        stored = _little(fields.value("encode_dtype"), result)
        self._convert(filters.astype(stored, result), stored)

    def scale_offset(self, fields: Fields) -> None:
        result = self._numbers(fields)
        self._convert(cast.scale_offset(result, fields.values.get("offset", 0), fields.values.get("scale", 1)), result)

    def cast_value(self, fields: Fields) -> None:
        """From the named Zarr type back to the array's; `scalar_map.decode` pairs stored values with the array's."""
        result = self._numbers(fields)
        target = parse_type(fields.value("data_type"), fields.place)
        if target.numpy is None or target.narrow or target.numpy.kind not in "iuf":
            raise Unsupported(f"{fields.place}: to data type {target.native[:80]!r}")
        out_of_range = fields.values.get("out_of_range")
        mapping = fields.fields("scalar_map").values.get("decode") if fields.values.get("scalar_map") else None
        pairs = _pairs(mapping or [], fields)
        rounding = fields.choice("rounding", tuple(cast.ROUNDING), "nearest-even")
        self._convert(cast.cast_value(target.numpy, result, rounding, out_of_range, pairs), target.numpy)

    def bitround(self, fields: Fields) -> None:
        """Rounded when written: nothing is to be undone."""
        self._numbers(fields)
        self.names.append("bitround")

    def _convert(self, step: Decoder, stored: _DType) -> None:
        self.steps.append(step)
        self.names.append(step.name)
        self.stored = stored
        self.converted = True

    def _numbers(self, fields: Fields) -> _DType:
        if self.stored is None or self.of.narrow or self.stored.kind not in "biufcmM":
            raise Unsupported(f"{fields.place}: on data type {self.of.native[:80]!r}")
        return self.stored

    def _end_array(self) -> None:
        if not self.in_bytes:
            self._to_bytes("little")

    def _to_bytes(self, endian: Literal["little", "big"]) -> None:
        """The array becomes the bytes of its elements."""
        if self.stored is None:
            raise CorruptData(f"{self.place}: data type {self.of.native!r} needs a vlen codec")
        self.in_bytes = True
        self.endian = endian
        if endian == "big":
            step = self._swap(self.stored)
            self.steps += [step] if step is not None else []

    def _swap(self, stored: _DType) -> Decoder | None:
        """What is described as big-endian stays so; converted values and `structured` elements become little-endian."""
        if stored.fields is not None:
            if self.of.name == "struct":
                return None
            if _hides_order(self.of):
                raise Unsupported(f"{self.place}: big-endian {self.of.native[:80]}")
            return swap.little_endian(stored.newbyteorder(">"))
        return swap.little_endian(stored.newbyteorder(">")) if self.converted else None

    def _shard(self, fields: Fields) -> None:
        """`chunk_shape` is that of the array at this place, after the transposes before it (TensorStore writes those)."""
        if self.flat:
            raise Unsupported(f"{fields.place}: after a codec that depends on neighbouring elements")
        if len(self.levels) == MAX_SHARD_LEVELS:
            raise CorruptData(f"{fields.place}: nested deeper than {MAX_SHARD_LEVELS}")
        shape = fields.integers("chunk_shape", 1, 2**63 - 1, len(self.shape))
        if any(outer % inner for outer, inner in zip(self.shape, shape, strict=True)):
            fields.fail("chunk_shape", f"{list(shape)} does not divide the shard's {list(self.shape)}")
        counts = tuple(outer // inner for outer, inner in zip(self.shape, shape, strict=True))
        listed = fields.sequence("index_codecs") if "index_codecs" in fields else DEFAULT_INDEX_CODECS
        index = parse_codecs(listed, INDEX_TYPE, (*counts, 2), f"{fields.place}: index_codecs")
        extra = _fixed_size(index.chain, 16 * math.prod(counts), fields) - 16 * math.prod(counts)
        self.shape = shape
        self.regular = True
        self.chunk_shape = tuple(shape[self.axes.index(axis)] for axis in range(len(shape)))
        self.levels.append(
            ShardLevel(
                cell=self.chunk_shape,
                axes=self.axes,
                index_order=index.order or tuple(range(len(shape) + 1)),
                index_chain=index.chain,
                index_extra=extra,
                index_big_endian=index.dtype.endian == "big",
                at_end=fields.choice("index_location", ("start", "end"), "end") == "end",
                outer=CodecChain(),
            )
        )
        self.names.append("sharding")
        self.read(fields.sequence("codecs") if "codecs" in fields else [])


ARRAY_CODECS: Mapping[str, Callable[[_State, Fields], None]] = {
    "transpose": _State.transpose,
    "bytes": _State.bytes,
    "endian": _State.bytes,  # the draft's name of `bytes`
    "vlen-utf8": _State.vlen,
    "vlen-bytes": _State.vlen,
    PREFIX + "vlen-utf8": _State.vlen,
    PREFIX + "vlen-bytes": _State.vlen,
    PREFIX + "json2": _State.json2,
    "packbits": _State.packed_bits,
    "sharding_indexed": _State._shard,
    "scale_offset": _State.scale_offset,
    "cast_value": _State.cast_value,
    "bitround": _State.bitround,
    PREFIX + "bitround": _State.bitround,
    PREFIX + "delta": _State.delta,
    PREFIX + "packbits": _State.packbits,
    PREFIX + "fixedscaleoffset": _State.fixed_scale_offset,
    PREFIX + "quantize": _State.quantize,
    PREFIX + "astype": _State.astype,
}


def bytes_decoder(name: str, fields: Fields, stored: _DType | None) -> Decoder:
    """The bytes-to-bytes codec `name`: Zarr's own, or `numcodecs.<id>`.

    `stored`: the elements, for a `shuffle` that leaves out their size.
    """
    codec = name.removeprefix(PREFIX)
    if codec not in (table.COMPRESSORS if name.startswith(PREFIX) else OWN):
        raise Unsupported("not known")
    if codec == "shuffle" and fields.values.get("elementsize") in (None, 0) and stored is not None:
        return table.decoder({"id": codec, "elementsize": stored.itemsize})
    return table.decoder({**fields.values, "id": codec} if name.startswith(PREFIX) else {"id": codec})


def _little(spelling: JSON, default: _DType) -> _DType:
    """A numpy type in a numcodecs configuration; its byte order is that of the writer's memory, not of the stored bytes."""
    return default if spelling is None else filters.number(spelling).newbyteorder("<")


def _pairs(mapping: JSON, fields: Fields) -> list[tuple[JSON, JSON]]:
    if not isinstance(mapping, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in mapping):
        fields.fail("scalar_map", "is no list of pairs")
    return [(old, new) for old, new in mapping]


def _hides_order(of: ZarrType) -> bool:
    """Whether a struct has numbers that numpy sees as raw bytes."""
    if of.fields:
        return any(_hides_order(member) for _, member in of.fields)
    return of.component > 1 and of.numpy is not None and of.numpy.kind == "V"


def _fixed_size(chain: CodecChain, size: int, fields: Fields) -> int:
    """Stored bytes of an index of `size` bytes; only codecs of fixed size are allowed."""
    for step in reversed(chain.steps):
        encoded = step.encoded_size(size)
        if encoded is None:
            raise Unsupported(f"{fields.place}: index codec {step.name!r}")
        size = encoded
    return size
