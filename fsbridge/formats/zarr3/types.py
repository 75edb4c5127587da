"""Zarr v3 data types: what the writers' names mean.

Not here: fill values (`fill_values.py`), other formats (`dtypes.py`).

Sources: Zarr v3 core specification 3.1, the zarr-extensions registry, zarr-python 3.1.6 and 3.4.2, TensorStore 0.1.86.

A type is shown by the source's own name, and its bytes as they are stored, so that whatever reads the source reads the
mount (P12). That holds also for bfloat16, float8_* and integers of 2 and 4 bits, which take one byte each with
meaningless upper bits. Structs are the exception: zarr-python 3.4's `struct` is shown as `structured`, which its
predecessors open as well, and big-endian fields as little-endian ones, because zarr-python 3.1 takes all fields for
little-endian.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any, Literal

import numpy as np

from fsbridge.codecs.zarr3 import Coded
from fsbridge.errors import CorruptData, Unsupported
from fsbridge.formats import dtypes
from fsbridge.formats.strict_json import Fields, kind
from fsbridge.metadata import JSON, DataType

BYTE_ORDERS: Mapping[str, str] = {"little": "<", "big": ">"}
NARROW: Mapping[str, tuple[str, int]] = {"int2": ("i1", 2), "int4": ("i1", 4), "uint2": ("u1", 2), "uint4": ("u1", 4)}
"""Integers narrower than a byte: the type of their values, and their bits."""

MINI = (*dtypes.MINIFLOATS, "bfloat16")
TINY = (*MINI, "float16")
"""Floats that numpy lacks, and float16, which has no complex form in numpy."""
CORE: Mapping[str, str] = {
    "bool": "?",
    **{f"{sign}int{8 * size}": f"<{sign or 'i'}{size}" for sign in ("", "u") for size in (1, 2, 4, 8)},
    **{f"float{8 * size}": f"<f{size}" for size in (2, 4, 8)},
    "complex64": "<c8",
    "complex128": "<c16",
    "complex_float32": "<c8",
    "complex_float64": "<c16",
}
RAW_BITS = re.compile(r"r([1-9][0-9]{0,9})")
UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "μs", "ns", "ps", "fs", "as", "generic")
MAX_FIELDS = 4096
"""Most fields of one struct, because numpy's own work grows with their square."""


@dataclass(frozen=True, slots=True)
class ZarrType:
    """One element as Zarr v3 stores it. `name` is the document's name, `native` the whole spelling for people.

    `numpy` is little-endian and packed; raw bytes (`V<n>`) stand for types that numpy lacks, None for variable length.
    `component`: bytes of the unit that `endian` applies to, 0 if there is none. `narrow`: meaningful bits of an integer
    that takes a whole byte, else 0. `fields`: those of a struct. `element`: the type of a present optional element.
    `spelling`: the document's `data_type`; None for its name alone.
    """

    name: str
    native: str
    numpy: np.dtype[Any] | None
    component: int = 0
    narrow: int = 0
    fields: tuple[tuple[str, ZarrType], ...] = ()
    element: ZarrType | None = None
    spelling: JSON = None

    @property
    def itemsize(self) -> int:
        """Stored bytes of one element; 0 for variable length."""
        return self.numpy.itemsize if self.numpy is not None else 0

    @property
    def bits(self) -> int:
        """Meaningful bits of one element of fixed size.

        A bool and the narrowest numbers have fewer than their bytes hold.
        """
        if self.name == "bool":
            return 1
        form = dtypes.MINIFLOATS.get(self.name.removeprefix("complex_"))
        return self.narrow or (form.bits * self.itemsize if form is not None else 8 * self.itemsize)

    def stored(self, endian: Literal["little", "big"]) -> np.dtype[Any]:
        """Return the numpy type of the stored bytes under the `bytes` codec with `endian` (fixed-size types)."""
        assert self.numpy is not None
        return self.numpy.newbyteorder(BYTE_ORDERS[endian])  # type: ignore[arg-type]

    def to_model(self, endian: Literal["little", "big"]) -> DataType:
        """Return the model's type for decoded bytes in this byte order. A struct is always little-endian."""
        name = self.name if self.spelling is None else self.spelling
        if self.element is not None:
            return DataType(name, 0, None, self.native, serializer="optional", element=self.element.to_model(endian))
        if self.numpy is None:
            known = dtypes.STRING if self.name == "string" else dtypes.BYTES
            return DataType(name, 0, None, self.native, serializer=known.serializer)
        if self.name == "struct":
            return dtypes.data_type(self.stored(endian), self.native)
        if self.narrow or (self.numpy.kind == "V" and self.numpy.fields is None):
            order = endian if self.component > 1 else None
            return DataType(name, self.itemsize, order, self.native, np.dtype(f"V{self.itemsize}"))
        return replace(dtypes.data_type(self.stored(endian), self.native), name=name)

    def big_endian(self, element: bytes) -> bytes:
        """Return one little-endian element with its bytes in big-endian order."""
        if self.fields:
            parts = iter(element)
            return b"".join(of.big_endian(bytes(islice(parts, of.itemsize))) for _, of in self.fields)
        if not self.component:
            return element
        return np.frombuffer(element, np.uint8).reshape(-1, self.component)[:, ::-1].tobytes()


def coded(of: ZarrType) -> Coded | None:
    """Return how bits stand for numbers in a real type that numpy lacks; None for any other type."""
    return _list_codes(of.name)


@cache
def _list_codes(name: str) -> Coded | None:
    if name in NARROW:
        stored, bits = NARROW[name]
        codes = np.arange(1 << bits)
        values = np.where((codes < len(codes) // 2) | (stored[0] == "u"), codes, codes - len(codes))
        return Coded(name, np.dtype(stored), values.astype("f8"), whole=True)
    if name == "bfloat16":
        with np.errstate(invalid="ignore"):  # signalling NaNs
            widened = (np.arange(1 << 16, dtype="u4") << 16).view("f4").astype("f8")
        return Coded(name, np.dtype("<u2"), widened, whole=False)
    form = dtypes.MINIFLOATS.get(name)
    if form is None:
        return None
    numbers = [dtypes.decode_minifloat(code, form) for code in range(1 << form.bits)]
    return Coded(name, np.dtype("u1"), np.array(numbers), whole=False)


def parse_type(value: JSON, place: str) -> ZarrType:
    """Read a `data_type` member. Raises Unsupported for an unknown name, CorruptData for a wrong configuration."""
    name, configuration = _name(value, place)
    if name in CORE:
        stored = np.dtype(CORE[name])
        component = stored.itemsize // (2 if stored.kind == "c" else 1)
        return ZarrType(name, name, stored, component if component > 1 else 0)
    return replace(_parse_extension(name, configuration, place), spelling=value)


def _parse_extension(name: str, configuration: Mapping[str, JSON], place: str) -> ZarrType:
    """Read a type beyond the core specification. Writers have registered most of them."""
    if name in NARROW:
        shown, bits = NARROW[name]
        return ZarrType(name, name, np.dtype(shown), 0, bits)
    if name.removeprefix("complex_") in TINY:
        return _mini(name)
    bits_match = RAW_BITS.fullmatch(name)
    if bits_match is not None:
        bits = int(bits_match[1])
        if bits % 8:
            raise CorruptData(f"{place}: data_type {name!r} is not a whole number of bytes")
        return ZarrType(name, name, _dtype(f"V{_itemsize(bits // 8, name, place)}", place))
    if name in ("string", "variable_length_bytes", "bytes"):
        return ZarrType("string" if name == "string" else "bytes", name, None)
    fields = Fields(configuration, f"{place}: data_type {name!r}")
    if name in ("fixed_length_utf32", "null_terminated_bytes", "raw_bytes"):
        return _parse_fixed_length(name, fields)
    if name in ("numpy.datetime64", "numpy.timedelta64"):
        return _time(name, fields)
    if name in ("struct", "structured"):
        return _struct(name, fields)
    if name in ("optional", "zarrs.optional"):
        element = parse_type(dict(configuration), fields.place)
        return ZarrType("optional", f"optional({element.native})", None, element=element)
    raise Unsupported(f"{place}: data_type {name[:80]!r} is not known")


def _name(value: JSON, place: str) -> tuple[str, Mapping[str, JSON]]:
    if isinstance(value, str):
        return value, {}
    if not isinstance(value, dict):
        raise CorruptData(f"{place}: 'data_type' is {kind(value)}, not an object")
    fields = Fields(value, f"{place}: data_type")
    if value.get("must_understand") is False:
        raise CorruptData(f"{place}: 'data_type' may not be optional")
    return fields.string("name"), fields.mapping("configuration") if "configuration" in fields else {}


def _dtype(spelling: Any, place: str) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(spelling)
    except (TypeError, ValueError, OverflowError) as error:
        raise CorruptData(f"{place}: numpy has no such type: {str(error)[:120]}") from None
    return dtype


def _itemsize(size: int, name: str, place: str) -> int:
    if not 1 <= size <= dtypes.MAX_ITEMSIZE:
        raise CorruptData(f"{place}: data_type {name!r} cannot have elements of {size} bytes")
    return size


def _mini(name: str) -> ZarrType:
    base = name.removeprefix("complex_")
    width = 2 if base in ("bfloat16", "float16") else 1
    parts = 2 if name.startswith("complex_") else 1
    return ZarrType(name, name, np.dtype(f"V{width * parts}"), width if width > 1 else 0)


def _parse_fixed_length(name: str, fields: Fields) -> ZarrType:
    size = _itemsize(fields.integer("length_bytes"), name, fields.place)
    if name == "fixed_length_utf32":
        if size % 4:
            fields.fail("length_bytes", f"is {size}, not a multiple of 4")
        return ZarrType(name, f"{name}[{size}]", _dtype(f"<U{size // 4}", fields.place), 4)
    return ZarrType(name, f"{name}[{size}]", _dtype(f"{'S' if name.startswith('null') else 'V'}{size}", fields.place))


def _time(name: str, fields: Fields) -> ZarrType:
    unit = fields.choice("unit", UNITS)
    factor = fields.integer("scale_factor", 1, 2**31 - 1)
    letter = "M8" if name == "numpy.datetime64" else "m8"
    return ZarrType(name, f"{name}[{factor}{unit}]", _dtype(f"<{letter}[{factor}{unit.replace('μ', 'u')}]", fields.place), 8)


def _struct(name: str, fields: Fields) -> ZarrType:
    """Read a struct.

    zarr-python 3.1 writes `structured` with pairs, 3.4 `struct` with objects; both are accepted in either.
    """
    members: list[tuple[str, ZarrType]] = []
    listed = fields.sequence("fields")
    if not 1 <= len(listed) <= MAX_FIELDS:
        fields.fail("fields", f"has {len(listed)} entries, the limits are 1 and {MAX_FIELDS}")
    for position, member in enumerate(listed):
        place = f"{fields.place} field {position}"
        if isinstance(member, list) and len(member) == 2 and isinstance(member[0], str):
            label, spelling = member[0], member[1]
        elif isinstance(member, dict):
            label, spelling = Fields(member, place).string("name"), Fields(member, place).value("data_type")
        else:
            raise CorruptData(f"{place}: it is neither a pair nor an object")
        of = parse_type(spelling, place)
        if of.numpy is None:
            raise Unsupported(f"{place}: elements of variable length cannot be in a struct")
        if of.narrow:
            raise Unsupported(f"{place}: {of.name} cannot be in a struct")
        members.append((label, of))
    if len({label for label, _ in members}) != len(members) or not all(label for label, _ in members):
        fields.fail("fields", "has empty or equal names")
    numpy = _dtype([(label, of.numpy) for label, of in members], fields.place)
    _itemsize(numpy.itemsize, name, fields.place)
    native = f"{name}({', '.join(f'{label}: {of.native}' for label, of in members)})"
    return ZarrType(name, native, numpy, max(of.component for _, of in members), 0, tuple(members))
