"""Reads the `codecs` list of a Zarr v3 array: which decoders undo it, and in what memory order a decoded chunk is.

Decoders come from `codecs/`. This module does the bookkeeping of the specification, in three phases: what array-to-array
codecs make of a chunk (`array_codecs.py`), how the array becomes bytes (`SERIALIZERS`; a shard is one way, and has a
codec list of its own), and the codecs of those bytes (`BytesPhase`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from fsbridge.codecs import CodecChain, Decoder, filters, n5, objects, refusal, table, zarr3
from fsbridge.codecs.table import PREFIX
from fsbridge.errors import CorruptData, Unsupported
from fsbridge.formats.strict_json import Fields
from fsbridge.formats.zarr3.array_codecs import (
    ARRAY_CODECS,
    ArrayPhase,
    array_phase,
    extension,
    refused,
    transpose,
    understood,
)
from fsbridge.formats.zarr3.shard_index import ShardLevel
from fsbridge.formats.zarr3.types import ZarrType
from fsbridge.metadata import JSON, DataType

MAX_DEPTH = 8
"""Most codec lists inside each other (shards, optional elements). Real ones have at most two."""

DEFAULT_INDEX_CODECS: Sequence[JSON] = ({"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"})
INDEX_TYPE = ZarrType("uint64", "uint64", np.dtype("<u8"), 8)
MASK_TYPE = ZarrType("bool", "bool", np.dtype("?"))
BYTE_TYPE = ZarrType("uint8", "uint8", np.dtype("u1"))
OFFSETS = {"uint32": ZarrType("uint32", "uint32", np.dtype("<u4"), 4), "uint64": INDEX_TYPE}

ALIASES: Mapping[str, str] = {
    "zarrs.optional": "optional",
    "zarrs.zfp": "zfp",
    "vlen_v2": "zarrs.vlen_v2",
    "https://codec.zarrs.dev/array_to_array/squeeze": "zarrs.squeeze",
    **{f"https://codec.zarrs.dev/array_to_bytes/{name}": f"zarrs.{name}" for name in ("vlen", "vlen_v2")},
    "https://codec.zarrs.dev/array_to_bytes/vlen_array": "vlen-array",
    "https://codec.zarrs.dev/array_to_bytes/zfp": "zfp",
}
"""Names that zarrs has written for codecs, or still accepts."""


@dataclass(frozen=True, slots=True)
class CodecPipeline:
    """The parsed `codecs` list of an array: everything that is needed to read its stored chunks.

    `dtype`: elements of a decoded chunk; `order`: its memory order (None: C order), as in `ArrayMetadata`. `levels`: the
    shards around the chunks, outermost first; `chunk_shape`: of inner chunks, or of stored ones without shards. `chain`:
    decodes one chunk; `description`: names the codecs for people.
    """

    dtype: DataType
    order: tuple[int, ...] | None
    chunk_shape: tuple[int, ...]
    levels: tuple[ShardLevel, ...]
    chain: CodecChain
    description: str


@dataclass(frozen=True, slots=True)
class BytesPhase:
    """A chunk after it has become bytes.

    `array`: what it was before; `dtype`: its elements as decoded bytes; `levels`: the shards around it.
    """

    array: ArrayPhase
    dtype: DataType
    levels: tuple[ShardLevel, ...] = ()

    def add(self, step: Decoder) -> BytesPhase:
        """Return the phase after one more bytes-to-bytes codec.

        The codec is around the outermost shard or, without shards, of the chunk.
        """
        named = replace(self.array, names=(*self.array.names, step.name))
        if not self.levels:
            return replace(self, array=replace(named, steps=(*named.steps, step)))
        level = replace(self.levels[0], outer=CodecChain((step, *self.levels[0].outer.steps)))
        return replace(self, array=named, levels=(level, *self.levels[1:]))

    def pipeline(self) -> CodecPipeline:
        """Return the result, once the whole list is read."""
        array = self.array
        order = None if array.axes == tuple(range(len(array.axes))) else array.axes
        chain = CodecChain(tuple(reversed(array.steps)))
        return CodecPipeline(self.dtype, order, array.chunk_shape, self.levels, chain, "+".join(array.names) or "none")


def parse_codecs(
    codecs: Sequence[JSON], of: ZarrType, shape: tuple[int, ...], place: str, regular: bool = True
) -> CodecPipeline:
    """Read a `codecs` member for stored chunks of `shape`. Raises CorruptData for an impossible list.

    A codec that is not known, or not for this data type, makes every chunk Unsupported with its name. `regular` is
    false if chunks have different shapes. A list without an array-to-bytes codec (GDAL 3.10, zarrita.js) means
    little-endian `bytes`.
    """
    return _read(codecs, ArrayPhase.begin(of, shape, place, regular)).pipeline()


def _read(codecs: Sequence[JSON], array: ArrayPhase) -> BytesPhase:
    """Read one list in three phases."""
    if len(codecs) > 64:
        raise CorruptData(f"{array.place}: there are {len(codecs)} codecs, the limit is 64")
    if array.depth > MAX_DEPTH:
        raise CorruptData(f"{array.place}: codecs are nested deeper than {MAX_DEPTH}")
    array, rest = array_phase(array, [_parse_name(codec, array.place) for codec in codecs])
    phase, rest = _serialize(array, rest)
    for name, fields in rest:
        if name in ARRAY_CODECS or name in SERIALIZERS:
            raise CorruptData(f"{array.place}: codec {name!r} cannot follow the codec that makes bytes")
        try:
            phase = phase.add(bytes_decoder(name, fields, phase.array.stored))
        except Unsupported as error:
            return phase.add(refused(name, error))
    return phase


def _parse_name(codec: JSON, place: str) -> tuple[str, Fields]:
    name, fields = extension(codec, f"{place}: codecs")
    return ALIASES.get(name, name), fields


def _serialize(array: ArrayPhase, rest: list[tuple[str, Fields]]) -> tuple[BytesPhase, list[tuple[str, Fields]]]:
    """Read the array-to-bytes codec. Return the chunk as bytes, and the codecs that follow."""
    if array.refused:
        return _bytes_of(array), []
    name, fields = rest[0] if rest else ("", Fields({}, array.place))
    serializer = SERIALIZERS.get(name)
    try:
        if serializer is not None:
            understood(name, fields)
            return serializer(array, fields), rest[1:]
        if rest:
            bytes_decoder(name, fields, array.stored)  # an unknown codec may be the one that makes bytes
        return _to_bytes(array, "little"), rest
    except Unsupported as error:
        return _bytes_of(array.refuse(name, error)), []


def _bytes_of(array: ArrayPhase, endian: Literal["little", "big"] = "little", *steps: Decoder) -> BytesPhase:
    """Return bytes that `steps` decode to elements in this byte order, or in ours if values are converted."""
    dtype = array.of.to_model("little" if array.converted else endian)
    return BytesPhase(replace(array, steps=(*array.steps, *steps)), dtype)


def _bytes(array: ArrayPhase, fields: Fields) -> BytesPhase:
    """Read the codec `bytes`. `endian` may be missing even if it matters: zarr-python 3.1 takes that as little."""
    big = fields.values.get("endian") is not None and fields.choice("endian", ("little", "big")) == "big"
    return _to_bytes(array, "big" if big else "little")


def _to_bytes(array: ArrayPhase, endian: Literal["little", "big"]) -> BytesPhase:
    if array.stored is None:
        raise CorruptData(f"{array.place}: data type {array.of.native!r} needs a codec of its own")
    if endian == "little":
        return _bytes_of(array)
    if array.stored.fields is None and _hides_order(array.of) and not array.converted:  # raw bytes cannot express it
        stored = np.dtype(f">u{array.of.component}")
        return _bytes_of(array, "little", filters.Swap(stored, stored.newbyteorder("<")))
    swapped = _swap(array, array.stored)
    return _bytes_of(array, endian, *([swapped] if swapped is not None else []))


def _swap(array: ArrayPhase, stored: np.dtype[Any]) -> Decoder | None:
    """Return the decoder that makes big-endian elements little-endian; None if their byte order is described instead.

    Converted values and structs are swapped, other elements are described.
    """
    if stored.fields is not None:
        if _hides_order(array.of):
            raise Unsupported(f"{array.place}: big-endian {array.of.native[:80]} is not read")
        return filters.little_endian(stored.newbyteorder(">"))
    return filters.little_endian(stored.newbyteorder(">")) if array.converted else None


def _hides_order(of: ZarrType) -> bool:
    """True if a struct has numbers that numpy sees as raw bytes, so that it cannot swap them."""
    if of.fields:
        return any(_hides_order(member) for _, member in of.fields)
    return of.component > 1 and of.numpy is not None and of.numpy.kind == "V"


def _vlen(array: ArrayPhase, fields: Fields, of: str | None = None) -> BytesPhase:
    """Read Zarr's vlen encoding of the type `of` (None: of any). It is only checked, because the decoded chunk keeps it."""
    if array.of.name != of and (of is not None or array.of.name not in ("string", "bytes")):
        raise CorruptData(f"{fields.place} cannot be used for data type {array.of.native[:80]!r}")
    text = array.of.name == "string"
    return _bytes_of(array, "little", objects.vlen_utf8(array.items) if text else objects.vlen_bytes(array.items))


def _vlen_offsets(array: ArrayPhase, fields: Fields) -> BytesPhase:
    """Read `zarrs.vlen`: where each element begins, and all their bytes, each with codecs of its own."""
    if array.of.name not in ("string", "bytes"):
        raise CorruptData(f"{fields.place} cannot be used for data type {array.of.native[:80]!r}")
    kind = fields.choice("index_data_type", ("uint32", "uint64"))
    items = array.items
    index = _part(array, fields, "index_codecs", OFFSETS[kind], None if items is None else items + 1)
    data = _part(array, fields, "data_codecs", BYTE_TYPE, None)
    at_end = fields.choice("index_location", ("start", "end"), "start") == "end"
    step = objects.VlenOffsets(index.chain, data.chain, index.dtype.itemsize, at_end, array.of.name == "string", items)
    if index.dtype.endian == "big":
        raise Unsupported(f"{fields.place}: big-endian offsets are not read")
    return _bytes_of(replace(array, names=(*array.names, "vlen")), "little", step)


def _part(array: ArrayPhase, fields: Fields, name: str, of: ZarrType, items: int | None) -> CodecPipeline:
    """Read the codecs `name` of one part of a chunk, a list of `items` elements (None: their number varies)."""
    begun = ArrayPhase.begin(of, (1 if items is None else items,), f"{fields.place}: {name}", items is not None)
    phase = _read(fields.sequence(name), replace(begun, depth=array.depth + 1))
    if phase.levels:
        raise Unsupported(f"{fields.place}: {name} cannot make shards")
    pipeline = phase.pipeline()
    reason = refusal(pipeline.chain)
    if reason is not None:
        raise Unsupported(reason)
    return pipeline


def _json2(array: ArrayPhase, fields: Fields) -> BytesPhase:
    """Decode numcodecs' document of strings (zarrita.js reads it in Zarr v3 as well)."""
    if array.of.name != "string":
        raise CorruptData(f"{fields.place} cannot be used for data type {array.of.native[:80]!r}")
    return _bytes_of(array, "little", table.object_decoder({**fields.values, "id": "json2"}, array.items)[0])


def _numbers(codec: table.Codec, array: ArrayPhase, fields: Fields) -> BytesPhase:
    """Decode a codec of whole arrays of numbers, which are always little-endian."""
    step = codec.decoder(fields.values, array.numbers(fields), shape=array.shape if array.regular else None)
    return _bytes_of(replace(array, names=(*array.names, step.name)), "little", step)


def _decode_packed_bits(array: ArrayPhase, fields: Fields) -> BytesPhase:
    """Decode zarr-extensions' `packbits`, which has a layout of its own."""
    of, stored = array.of, array.stored
    if stored is None or of.fields or stored.kind not in "biufcV" or (array.converted and stored.kind == "V"):
        raise Unsupported(f"{fields.place} cannot be used for data type {of.native[:80]!r}")
    parts = 2 if stored.kind == "c" or of.name.startswith("complex_") else 1
    width = stored.itemsize // parts
    bits = 8 * width if array.converted else of.bits // parts
    bits = bits if array.cast is None else array.cast.bits
    names = ("first_bit", "last_bit")
    limits = [fields.integer(name) if fields.values.get(name) is not None else None for name in names]
    padding = fields.choice("padding_encoding", zarr3.PADDINGS, "none")
    step = zarr3.packed_bits(width, bits, stored.kind == "i", limits[0], limits[1], padding)
    return _bytes_of(replace(array, names=(*array.names, "packbits")), "little", step)


def _optional(array: ArrayPhase, fields: Fields) -> BytesPhase:
    """Decode elements that may be missing: a mask, and the present elements, each with codecs of its own."""
    if array.of.element is None:
        raise CorruptData(f"{fields.place} cannot be used for data type {array.of.native[:80]!r}")
    mask = _part(array, fields, "mask_codecs", MASK_TYPE, array.items)
    data = _part(array, fields, "data_codecs", array.of.element, None)
    dtype = replace(array.of.to_model("little"), element=data.dtype)
    step = zarr3.Optional(array.items, mask.chain, data.chain, data.dtype.itemsize)
    return BytesPhase(replace(array, steps=(*array.steps, step), names=(*array.names, "optional")), dtype)


def _n5_default(array: ArrayPhase, fields: Fields) -> BytesPhase:
    """Decode N5 blocks: a header with the block's own size, then big-endian elements, first dimension fastest."""
    if not array.regular:
        raise Unsupported(f"{fields.place} is not read if chunks differ in shape")
    listed = [_parse_name(codec, fields.place) for codec in fields.sequence("codecs")]
    names = [name for name, _ in listed]
    if names[:2] != ["transpose", "bytes"] or len(names) > 3:
        raise Unsupported(f"{fields.place}: it has codecs {names} where transpose, bytes and at most one more are needed")
    turned = transpose(array, listed[0][1])
    if turned.shape != array.shape[::-1] or listed[0][1].values.get("order") != list(range(len(array.shape)))[::-1]:
        fields.fail("codecs", "do not begin with a transpose that reverses all dimensions")
    phase = _bytes(replace(turned, steps=()), listed[1][1])
    payload = CodecChain(tuple(bytes_decoder(name, codec, array.stored) for name, codec in listed[2:]))
    block = n5.DefaultBlock(array.shape, phase.dtype.itemsize, payload)
    steps = (*turned.steps, *phase.array.steps, block)
    return replace(phase, array=replace(phase.array, steps=steps, names=(*array.names, "n5_default")))


def _shard(array: ArrayPhase, fields: Fields) -> BytesPhase:
    """Read `sharding_indexed`, with the codecs of its inner chunks.

    `chunk_shape` refers to the array as transposes before this codec have made it (TensorStore writes those).
    """
    if array.flat:
        raise Unsupported(f"{fields.place}: shards cannot follow a reshape or a codec that depends on neighbours")
    shape = fields.integers("chunk_shape", 1, 2**63 - 1, len(array.shape))
    if any(outer % inner for outer, inner in zip(array.shape, shape, strict=True)):
        fields.fail("chunk_shape", f"{list(shape)} does not divide the shard's {list(array.shape)}")
    level = _shard_level(array, shape, fields)
    names = (*array.names, "sharding")
    chunk = replace(array, shape=shape, chunk_shape=level.cell, regular=True, depth=array.depth + 1, names=names)
    inner = _read(fields.sequence("codecs") if "codecs" in fields else [], chunk)
    return replace(inner, levels=(level, *inner.levels))


def _shard_level(array: ArrayPhase, shape: tuple[int, ...], fields: Fields) -> ShardLevel:
    counts = tuple(outer // inner for outer, inner in zip(array.shape, shape, strict=True))
    listed = fields.sequence("index_codecs") if "index_codecs" in fields else DEFAULT_INDEX_CODECS
    begun = ArrayPhase.begin(INDEX_TYPE, (*counts, 2), f"{fields.place}: index_codecs", True)
    index = _read(listed, replace(begun, depth=array.depth + 1)).pipeline()
    return ShardLevel(
        cell=tuple(shape[array.axes.index(axis)] for axis in range(len(shape))),
        axes=array.axes,
        index_order=index.order or tuple(range(len(shape) + 1)),
        index_chain=index.chain,
        index_extra=_compute_fixed_size(index.chain, 16 * math.prod(counts), fields) - 16 * math.prod(counts),
        index_big_endian=index.dtype.endian == "big",
        at_end=fields.choice("index_location", ("start", "end"), "end") == "end",
        outer=CodecChain(),
    )


def _compute_fixed_size(chain: CodecChain, size: int, fields: Fields) -> int:
    """Return the stored bytes of an index of `size` bytes. Only codecs of fixed size are allowed."""
    for step in reversed(chain.steps):
        encoded = step.encoded_size(size)
        if encoded is None:
            raise Unsupported(f"{fields.place}: index codec {step.name!r} has no fixed size")
        size = encoded
    return size


SERIALIZERS: Mapping[str, Callable[[ArrayPhase, Fields], BytesPhase]] = {
    "bytes": _bytes,
    "endian": _bytes,  # the draft's name of `bytes`
    "vlen-utf8": partial(_vlen, of="string"),
    "vlen-bytes": partial(_vlen, of="bytes"),
    "vlen-array": _vlen,
    "zarrs.vlen": _vlen_offsets,
    "zarrs.vlen_v2": _vlen,
    "n5_default": _n5_default,
    "packbits": _decode_packed_bits,
    "optional": _optional,
    "sharding_indexed": _shard,
    PREFIX + "vlen-utf8": partial(_vlen, of="string"),
    PREFIX + "vlen-bytes": partial(_vlen, of="bytes"),
    PREFIX + "vlen-array": _vlen,
    PREFIX + "json2": _json2,
    **{name: partial(_numbers, codec) for name, codec in table.ZARR3.items() if codec.kind == "array"},
}
"""Functions by the name of an array-to-bytes codec that return the array as bytes, or raise Unsupported."""


def bytes_decoder(name: str, fields: Fields, stored: np.dtype[Any] | None) -> Decoder:
    """Return the decoder of the bytes-to-bytes codec `name`: Zarr's own, whose parameters do not matter, or numcodecs'.

    `stored`: the elements, for a `shuffle` without their size.
    """
    codec = table.ZARR3.get(name)
    if codec is None or codec.kind != "bytes":
        raise table.unknown(name)
    if codec.name == "shuffle" and fields.values.get("elementsize") in (None, 0) and stored is not None:
        return codec.decoder({"elementsize": stored.itemsize})
    return codec.decoder({} if name == codec.zarr3 else fields.values)
