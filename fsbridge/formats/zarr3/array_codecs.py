"""Zarr v3's array-to-array codecs: what each makes of a chunk's shape, order and elements, and what undoes it.

Transposes are described and not undone (`ArrayMetadata.order`), unless a codec that depends on neighbours (`delta`,
`packbits`) or changes the number of dimensions (`reshape`) comes before them. Not here: how the array becomes bytes,
shards, bytes-to-bytes codecs (`codecs.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fsbridge.codecs import Decoder, RefusedStep, filters, zarr3
from fsbridge.codecs.table import PREFIX
from fsbridge.errors import CorruptData, Unsupported
from fsbridge.formats.strict_json import Fields, kind
from fsbridge.formats.zarr3.types import ZarrType, coded, parse_type
from fsbridge.metadata import JSON, MAX_RANK

_DType = np.dtype[Any]


@dataclass(frozen=True, slots=True)
class ArrayPhase:
    """A chunk while it is still an array, after the first of its codecs in encoding order.

    `shape`: of the array that the next codec gets; `axes[k]`: the chunk's axis that is axis k of that array; `stored`: its
    elements (None: of variable length). `regular`: all chunks have this shape. `flat`: a codec came before for which the
    order of elements matters, so `axes` no longer change. `converted`: a codec came before that changes values, so the
    decoded chunk is made by us, in little endian. `cast`: the type of the elements if they became numbers that numpy lacks.
    `chunk_shape`: the shape of decoded chunks. `depth`: number of codec lists around this one. `refused`: the next codecs
    are not understood.
    """

    of: ZarrType
    place: str
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    axes: tuple[int, ...]
    stored: _DType | None
    regular: bool = True
    flat: bool = False
    converted: bool = False
    cast: ZarrType | None = None
    depth: int = 0
    refused: bool = False
    steps: tuple[Decoder, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def begin(cls, of: ZarrType, shape: tuple[int, ...], place: str, regular: bool) -> ArrayPhase:
        """Return a chunk of `shape` before its first codec."""
        return cls(of, place, shape, shape, tuple(range(len(shape))), of.numpy, regular)

    @property
    def items(self) -> int | None:
        """The number of elements; None if chunks have different numbers."""
        return math.prod(self.shape) if self.regular else None

    def refuse(self, name: str, error: Unsupported) -> ArrayPhase:
        """Return the array after a codec that is not understood. The array is shown, and its chunks report the reason."""
        return replace(self, refused=True, steps=(*self.steps, refused(name, error)), names=(*self.names, name[:80]))

    def numbers(self, fields: Fields) -> _DType:
        """Return the type of the elements. They must be numbers that numpy has."""
        of = self.values
        if self.stored is None or (of is not None and of.narrow) or self.stored.kind not in "biufcmM" or self.cast:
            raise Unsupported(f"{fields.place} cannot be used on data type {self.of.native[:80]!r}")
        return self.stored

    @property
    def values(self) -> ZarrType | None:
        """The type of the elements here; None after a codec that turned them into numbers of `stored`."""
        return self.cast if self.converted else self.of

    def convert(self, step: Decoder, stored: _DType) -> ArrayPhase:
        """Return the array after a codec that makes elements of `stored`, which `step` undoes."""
        steps, names = (*self.steps, step), (*self.names, step.name)
        return replace(self, stored=stored, converted=True, cast=None, steps=steps, names=names)


def refused(name: str, error: Unsupported) -> RefusedStep:
    """Return the step for a codec that is not understood. Its reason names the codec once."""
    reason = str(error)
    return RefusedStep(name[:80], reason if reason.startswith("codec ") else f"codec {name[:80]!r}: {reason}")


def array_phase(array: ArrayPhase, codecs: list[tuple[str, Fields]]) -> tuple[ArrayPhase, list[tuple[str, Fields]]]:
    """Apply the array-to-array codecs at the beginning of a list, and return the array and the rest of the list."""
    for position, (name, fields) in enumerate(codecs):
        codec = ARRAY_CODECS.get(name)
        if codec is None:
            return array, codecs[position:]
        try:
            understood(name, fields)
            array = codec(array, fields)
        except Unsupported as error:
            return array.refuse(name, error), []
    return array, []


def extension(value: JSON, place: str) -> tuple[str, Fields]:
    """Return name and configuration of an extension point, which may be a bare string (Zarr v3.1)."""
    if isinstance(value, str):
        return value, Fields({}, f"{place}: {value[:80]}")
    if not isinstance(value, dict):
        raise CorruptData(f"{place}: there is {kind(value)} where an object with a name is needed")
    name = Fields(value, place).string("name")
    configuration = value.get("configuration")
    if configuration is not None and not isinstance(configuration, dict):
        raise CorruptData(f"{place}: the configuration of {name[:80]!r} is {kind(configuration)}, not an object")
    return name, Fields(configuration or {}, f"{place}: {name[:80]}")


def understood(name: str, fields: Fields) -> None:
    """Raise Unsupported if a codec's configuration has unknown members, because its bytes may then mean something else."""
    known = MEMBERS.get(name)
    if known is not None:
        check_members(fields, known)


def check_members(fields: Fields, known: Collection[str]) -> None:
    """Raise Unsupported for an unknown member, unless it says itself that it need not be understood."""
    for name in fields:
        value = fields.values[name]
        if name not in known and not (isinstance(value, dict) and value.get("must_understand") is False):
            raise Unsupported(f"{fields.place}: unknown member {name[:80]!r} that must be understood")


def transpose(array: ArrayPhase, fields: Fields) -> ArrayPhase:
    """Apply `order`: a permutation, or TensorStore's `"C"` and `"F"`."""
    rank = len(array.shape)
    named = fields.value("order")
    if named in ("C", "F"):
        order = tuple(range(rank)) if named == "C" else tuple(reversed(range(rank)))
    else:
        order = fields.integers("order", 0, max(rank - 1, 0), rank)
    if len(set(order)) != rank:
        fields.fail("order", "is not a permutation of the dimensions")
    shape = tuple(array.shape[axis] for axis in order)
    if not array.flat:
        return replace(array, shape=shape, axes=tuple(array.axes[axis] for axis in order))
    if not array.regular or array.stored is None:
        raise Unsupported(f"{fields.place} cannot follow a reshape or a delta if chunks or elements differ in size")
    return replace(array, shape=shape, steps=(*array.steps, filters.Untranspose(shape, order, array.stored.itemsize)))


def reshape(array: ArrayPhase, fields: Fields) -> ArrayPhase:
    """Apply `shape`: extents, lists of dimensions whose extents are multiplied, and at most one -1 for what is left.

    The order of elements stays, so nothing is undone.
    """
    listed = fields.sequence("shape")
    if len(listed) > MAX_RANK:
        fields.fail("shape", f"has {len(listed)} entries, the limit is {MAX_RANK}")
    extents = [_extent(item, array, fields) for item in listed]
    total, known = math.prod(array.shape), math.prod(extent for extent in extents if extent != -1)
    if extents.count(-1) == 1 and known and not total % known:
        extents[extents.index(-1)] = total // known
    if math.prod(extents) != total or -1 in extents:
        fields.fail("shape", f"does not fit a chunk of {list(array.shape)}")
    following = 0
    for position, item in enumerate(listed):
        if isinstance(item, list) and item:
            first = Fields({"shape": item}, fields.place).integers("shape", following, len(array.shape) - 1)
            following = first[-1] + 1
            before, after = math.prod(extents[:position]), math.prod(extents[position + 1 :])
            if (before, after) != (math.prod(array.shape[: first[0]]), math.prod(array.shape[following:])):
                fields.fail("shape", "names dimensions that are not where their elements are")
    return replace(array, shape=tuple(extents), flat=True, names=(*array.names, "reshape"))


def _extent(item: JSON, array: ArrayPhase, fields: Fields) -> int:
    """Return one extent of a reshaped chunk, -1 for what is left."""
    if isinstance(item, list):
        dimensions = Fields({"shape": item}, fields.place).integers("shape", 0, max(len(array.shape) - 1, 0))
        if list(dimensions) != sorted(set(dimensions)):
            fields.fail("shape", "names dimensions that do not increase")
        return math.prod(array.shape[dimension] for dimension in dimensions)
    if item == -1:
        return -1
    if not array.regular:
        raise Unsupported(f"{fields.place} has a fixed extent, but chunks differ in shape")
    return Fields({"shape": item}, fields.place).integer("shape", 1)


def squeeze(array: ArrayPhase, fields: Fields) -> ArrayPhase:
    """Leave out the dimensions of extent 1 (zarrs). The order of elements stays, so nothing is undone."""
    if not array.regular:
        raise Unsupported(f"{fields.place} cannot be used if chunks differ in shape")
    return replace(array, shape=tuple(e for e in array.shape if e != 1), flat=True, names=(*array.names, "squeeze"))


def delta(array: ArrayPhase, fields: Fields) -> ArrayPhase:
    """Apply differences of neighbours, for which the chunk as it is at this place is a flat list in C order."""
    result = array.numbers(fields)
    _agree(fields, "dtype", result, native=True)
    stored = _little(fields.values.get("astype"), result)
    return replace(array.convert(filters.delta(result, stored), stored), flat=True)


def packbits(array: ArrayPhase, fields: Fields) -> ArrayPhase:
    """Apply numcodecs' layout: the array becomes one dimension of bytes."""
    if array.numbers(fields).kind != "b":
        raise Unsupported(f"{fields.place} cannot be used on data type {array.of.native[:80]!r}")
    packed = array.convert(filters.PackBits(), np.dtype("u1"))
    return replace(packed, shape=(1 + -(-math.prod(array.shape) // 8),), flat=True)


def fixed_scale_offset(array: ArrayPhase, fields: Fields) -> ArrayPhase:
    result = array.numbers(fields)
    _agree(fields, "dtype", result)
    stored = _little(fields.values.get("astype"), result)
    offset, scale = fields.value("offset"), fields.value("scale")
    return array.convert(filters.fixed_scale_offset(offset, scale, result, stored), stored)


def quantize(array: ArrayPhase, fields: Fields) -> ArrayPhase:
    result = array.numbers(fields)
    _agree(fields, "dtype", result, native=True)
    stored = _little(fields.values.get("astype"), result)
    return array.convert(filters.quantize(result, stored), stored)


def astype(array: ArrayPhase, fields: Fields) -> ArrayPhase:
    result = array.numbers(fields)
    _agree(fields, "decode_dtype", result)
    stored = _little(fields.value("encode_dtype"), result)
    return array.convert(filters.astype(stored, result), stored)


def scale_offset(array: ArrayPhase, fields: Fields) -> ArrayPhase:
    result = array.numbers(fields)
    step = zarr3.scale_offset(result, fields.values.get("offset", 0), fields.values.get("scale", 1))
    return array.convert(step, result)


def cast_value(array: ArrayPhase, fields: Fields) -> ArrayPhase:
    """Convert from the named Zarr type to the array's. `scalar_map.decode` pairs stored values with the array's."""
    of = array.values
    result = coded(of) if of is not None else None
    target = parse_type(fields.value("data_type"), fields.place)
    stored = coded(target) or target.numpy
    if stored is None or (isinstance(stored, np.dtype) and (stored.kind not in "iuf" or target.narrow)):
        raise Unsupported(f"{fields.place} cannot cast to data type {target.native[:80]!r}")
    out_of_range = fields.values.get("out_of_range")
    mapping = fields.fields("scalar_map").values.get("decode") if fields.values.get("scalar_map") else None
    pairs = _pairs(mapping or [], fields)
    rounding = fields.choice("rounding", tuple(zarr3.ROUNDING), "nearest-even")
    step = zarr3.cast_value(stored, result or array.numbers(fields), rounding, out_of_range, pairs)
    if isinstance(stored, np.dtype):
        return array.convert(step, stored)
    return replace(array.convert(step, stored.codes), cast=target)


def bitround(array: ArrayPhase, fields: Fields) -> ArrayPhase:
    """Record the codec, which rounds when writing: nothing is undone."""
    if array.values is None or coded(array.values) is None:
        array.numbers(fields)
    return replace(array, names=(*array.names, "bitround"))


def _agree(fields: Fields, key: str, result: _DType, native: bool = False) -> None:
    """Check that a numcodecs codec names a type of the same kind and size as the array's elements. Signs do not matter.

    The codec takes the bytes in the writer's memory for elements of its type, without converting them. `native`: refuse
    big-endian types, too, because zarr-python (3.1, 3.4) reads other values than it wrote with them, and nothing tells which
    values are right. Raises Unsupported.
    """
    spelling = fields.values.get(key)
    if spelling is None:
        return
    named = filters.number(spelling)
    kinds = {"i" if dtype.kind in "iumM" else dtype.kind for dtype in (named, result)}
    if len(kinds) > 1 or named.itemsize != result.itemsize:
        raise Unsupported(f"{fields.place}: {key} {named} does not fit elements of {result}")
    if native and named.byteorder == ">":
        raise Unsupported(f"{fields.place}: {key} {named}: zarr-python itself does not read what it writes with it")


def _little(spelling: JSON, default: _DType) -> _DType:
    """Return the numpy type that a numcodecs configuration spells, in little endian.

    The spelled byte order is that of the writer's memory, not of the stored bytes.
    """
    return default if spelling is None else filters.number(spelling).newbyteorder("<")


def _pairs(mapping: JSON, fields: Fields) -> list[tuple[JSON, JSON]]:
    if not isinstance(mapping, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in mapping):
        fields.fail("scalar_map", "is not a list of pairs")
    return [(old, new) for old, new in mapping]


MEMBERS: Mapping[str, Collection[str]] = {
    "transpose": ("order",),
    "reshape": ("shape",),
    "zarrs.squeeze": (),
    "scale_offset": ("offset", "scale"),
    "cast_value": ("data_type", "rounding", "out_of_range", "scalar_map"),
    "bytes": ("endian",),
    "endian": ("endian",),
    "vlen-utf8": (),
    "vlen-bytes": (),
    "packbits": ("first_bit", "last_bit", "padding_encoding"),
    "optional": ("mask_codecs", "data_codecs"),
    "vlen-array": (),
    "zarrs.vlen": ("index_codecs", "data_codecs", "index_data_type", "index_location"),
    "zarrs.vlen_v2": (),
    "n5_default": ("codecs",),
    "zfp": ("mode", "rate", "precision", "tolerance", "minbits", "maxbits", "maxprec", "minexp"),
    "sharding_indexed": ("chunk_shape", "codecs", "index_codecs", "index_location"),
}
"""Known members of the configurations that decide what bytes mean.

Compressors and checksums need none: their data describe themselves, and writers put anything there. The same holds for
numcodecs' own codecs.
"""

ARRAY_CODECS: Mapping[str, Callable[[ArrayPhase, Fields], ArrayPhase]] = {
    "transpose": transpose,
    "reshape": reshape,
    "zarrs.squeeze": squeeze,
    "scale_offset": scale_offset,
    "cast_value": cast_value,
    "bitround": bitround,
    PREFIX + "bitround": bitround,
    PREFIX + "delta": delta,
    PREFIX + "packbits": packbits,
    PREFIX + "fixedscaleoffset": fixed_scale_offset,
    PREFIX + "quantize": quantize,
    PREFIX + "astype": astype,
}
"""Functions by codec name that return the array after the codec, or raise Unsupported."""
