"""Codecs that only Zarr v3 has: `scale_offset`, `cast_value`, `packbits` (zarr-extensions), `optional` (zarrs).

Not here: numcodecs' filters (`filters.py`), how the parts of `optional` are encoded.

Casts are exact or fail: a value that the array's data type cannot hold is CorruptData unless the metadata says how to fit
it. zarr-python 3.4 writes them.

The specification of `packbits` does not say in which order bits fill a byte. zarrs (zarrs-python 0.2.3), the one writer we
know, begins with the least significant bit whatever the padding, so this is not numcodecs' layout.

`optional` data is `u64 LE length of the mask, u64 LE length of the data, mask, data`. The mask has a bool for each element,
the data only the present elements, one after the other.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fsbridge.codecs import Buffer, CodecChain, Decoder
from fsbridge.codecs.filters import Elementwise
from fsbridge.errors import CorruptData, TooLarge, Unsupported

DType: TypeAlias = np.dtype[Any]
Values: TypeAlias = np.ndarray[Any, Any]

ROUNDING: dict[str, Callable[[Values], Values]] = {
    "nearest-even": np.rint,
    "towards-zero": np.trunc,
    "towards-positive": np.ceil,
    "towards-negative": np.floor,
    "nearest-away": lambda values: np.trunc(values + np.copysign(np.nextafter(0.5, 0.0), values)),
}
SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True, eq=False)
class Coded:
    """Numbers that numpy lacks, such as bfloat16 and int4: elements of `codes`, each standing for one of `values`.

    There are 2**bits values, at the positions of their codes; upper bits of an element mean nothing.
    """

    name: str
    codes: DType
    values: npt.NDArray[np.float64]
    whole: bool
    """True for integers."""

    def numbers(self, elements: Values) -> Values:
        """Return what elements stand for."""
        numbers: Values = self.values[elements.view(f"u{self.codes.itemsize}") & (len(self.values) - 1)]
        return numbers

    def fit(self, numbers: Values, rounding: str, out_of_range: str | None) -> Values:
        """Return the elements for numbers. Clamping gives infinity if there is one."""
        if self.whole:
            return _to_integer(numbers, self.codes, rounding, out_of_range, (int(self.values.min()), int(self.values.max())))
        exact = numbers.astype(np.longdouble)
        finite = np.flatnonzero(np.isfinite(self.values))
        finite = finite[np.lexsort((~np.signbit(self.values[finite]), self.values[finite]))]  # -0 before 0
        grid = self.values[finite].astype(np.longdouble)
        # A number that lies half a step beyond the largest one is out of range.
        low, high = exact <= grid[0] - (grid[1] - grid[0]) / 2, exact >= grid[-1] + (grid[-1] - grid[-2]) / 2
        if out_of_range != "clamp" and ((low | high) & np.isfinite(exact)).any():
            raise CorruptData(f"some values are out of range of {self.name}")
        inside = np.clip(exact, grid[0], grid[-1])
        below = np.clip(np.searchsorted(grid, inside, "right") - 1, 0, None)
        above = below + (grid[below] < inside)
        codes = finite[_neighbours(inside, grid, below, above, (finite[below] & 1) == 0, rounding)]
        codes = np.where((self.values[codes] == 0) & np.signbit(exact), self._code(-0.0, self._code(0.0, 0)), codes)
        for chosen, special in ((np.isnan(exact), math.nan), (high, math.inf), (low, -math.inf)):
            known = self._code(special, -1)
            if known < 0 and (chosen & ~np.isfinite(exact)).any() and (special != special or out_of_range != "clamp"):
                raise CorruptData(f"{special} has no value in {self.name}")
            codes = np.where(chosen & (known >= 0), known, codes)
        fitted: Values = codes.astype(self.codes)
        return fitted

    def _code(self, value: float, default: int) -> int:
        """Return the first code of a value, told apart by its sign if it is zero."""
        same = np.isnan(self.values) if value != value else self.values == value
        if value == 0:
            same &= np.signbit(self.values) == np.signbit(value)
        codes = np.flatnonzero(same)
        return int(codes[0]) if len(codes) else default


def _neighbours(exact: Values, grid: Values, below: Values, above: Values, even: Values, rounding: str) -> Values:
    """Return the position in `grid` to which `rounding` takes each number between two neighbours."""
    if rounding == "towards-positive":
        return above
    if rounding == "towards-negative":
        return below
    if rounding == "towards-zero":
        return np.where(exact < 0, above, below)
    down, up = exact - grid[below], grid[above] - exact
    tied = np.where(even if rounding == "nearest-even" else exact < 0, below, above)
    return np.where(down == up, tied, np.where(down < up, below, above))


Numbers: TypeAlias = DType | Coded
"""The type of an array's numbers."""


def scale_offset(dtype: DType, offset: object = 0, scale: object = 1) -> Decoder:
    """Return the decoder `value / scale + offset` in the arithmetic of `dtype`. Integers must divide without remainder.

    `offset` and `scale` are JSON scalars in the encoding of fill values. Raises Unsupported if `dtype` has no such value.
    """
    _check_type(dtype)
    shift, factor = scalar(offset, dtype), scalar(scale, dtype)
    if dtype.kind == "f":
        return Elementwise("scale_offset", dtype, dtype, lambda values: values / factor + shift)
    if not factor:
        raise Unsupported("scale_offset cannot have scale 0")
    return Elementwise("scale_offset", dtype, dtype, partial(_unscale, dtype.newbyteorder("="), int(shift), int(factor)))


def cast_value(
    stored: Numbers,
    result: Numbers,
    rounding: str = "nearest-even",
    out_of_range: str | None = None,
    scalar_map: Iterable[tuple[object, object]] = (),
) -> Decoder:
    """Return the decoder from `stored` to the array's data type `result`.

    `scalar_map` is the configuration's `decode` map.
    """
    if rounding not in ROUNDING or out_of_range not in (None, "error", "clamp", "wrap"):
        raise Unsupported(f"cast_value has the unknown rounding {rounding!r} or out_of_range {out_of_range!r}")
    fit, native = _fitter(result, rounding, out_of_range)
    if isinstance(stored, np.dtype):
        _check_type(stored)
    pairs = [(scalar(old, stored), np.array([scalar(new, result)])) for old, new in scalar_map]

    def convert(values: Values) -> Values:
        if isinstance(stored, Coded):
            values = stored.numbers(values)
        mapped = np.zeros(len(values), bool)
        special = np.zeros(len(values), native)
        for old, new in pairs:
            chosen = np.isnan(values) if old != old else values == old
            special[chosen] = new if isinstance(result, np.dtype) else fit(new)
            mapped |= chosen
        if not pairs:
            return fit(values)
        special[~mapped] = fit(values[~mapped])
        return special

    return Elementwise("cast_value", _elements(stored), _elements(result), convert)


def _elements(of: Numbers) -> DType:
    return of.codes if isinstance(of, Coded) else of


def _fitter(result: Numbers, rounding: str, out_of_range: str | None) -> tuple[Callable[[Values], Values], DType]:
    """Return what makes elements of `result` from numbers, and their type in the processor's byte order."""
    if isinstance(result, Coded):
        if out_of_range == "wrap" and not result.whole:
            raise Unsupported(f"cast_value cannot wrap to {result.name}")
        return partial(result.fit, rounding=rounding, out_of_range=out_of_range), result.codes.newbyteorder("=")
    _check_type(result)
    native = result.newbyteorder("=")
    if native.kind == "f":
        if out_of_range == "wrap":
            raise Unsupported(f"cast_value cannot wrap to {result.name}")
        return partial(_to_float, dtype=native, rounding=rounding, out_of_range=out_of_range), native
    return partial(_to_integer, dtype=native, rounding=rounding, out_of_range=out_of_range), native


def scalar(value: object, dtype: Numbers) -> Any:
    """Return a JSON scalar in Zarr v3's fill value encoding as a value of `dtype`. Raises Unsupported if it is none."""
    if isinstance(dtype, Coded):
        try:
            code = int(value, 16) if isinstance(value, str) and value.startswith("0x") else -1
            return dtype.values[code] if 0 <= code < len(dtype.values) else scalar(value, np.dtype("f8"))
        except ValueError:
            raise Unsupported(f"{value!r} is not a value of {dtype.name}") from None
    native = dtype.newbyteorder("=")
    try:
        if native.kind == "f" and isinstance(value, str):
            if value in SPECIAL:
                return native.type(SPECIAL[value])
            bits = int(value, 16) if value.startswith("0x") else -1
            return np.array(bits, f"u{native.itemsize}").view(native)[()]
        if isinstance(value, (bool, str)) or not isinstance(value, (int, float, np.number)):
            raise ValueError
        converted = np.array(value).astype(native)[()] if native.kind == "f" else native.type(int(value))
    except (ValueError, OverflowError, TypeError):
        raise Unsupported(f"{value!r} is not a value of {native.name}") from None
    if native.kind != "f" and converted != value:
        raise Unsupported(f"{value!r} is not a value of {native.name}")
    return converted


def _check_type(dtype: DType) -> None:
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        raise Unsupported(f"values of data type {dtype} cannot be cast")


def _unscale(dtype: DType, offset: int, scale: int, values: Values) -> Values:
    """Return the exact quotient plus offset of integers.

    Both are checked with Python's integers, because numpy's wrap silently.
    """
    wide = values if dtype.itemsize == 8 else values.astype("i8")
    factor = wide.dtype.type(scale)
    if (wide % factor).any():
        raise CorruptData(f"some values are not multiples of scale {scale}")
    if scale == -1 and int(wide.min()) == np.iinfo("i8").min:
        raise CorruptData(f"some values are out of range of {dtype.name}")
    quotient = wide // factor
    limits = np.iinfo(dtype)
    if int(quotient.min()) + offset < limits.min or int(quotient.max()) + offset > limits.max:
        raise CorruptData(f"some values are out of range of {dtype.name}")
    shifted: Values = quotient + wide.dtype.type(offset)
    return shifted.astype(dtype)


def _to_integer(
    values: Values, dtype: DType, rounding: str, out_of_range: str | None, narrow: tuple[int, int] | None = None
) -> Values:
    """Convert any numbers to integers. `narrow`: the least and the greatest one, if `dtype` has more than are meant."""
    least, most = narrow or (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    if values.dtype.kind == "f":
        values = ROUNDING[rounding](values.astype("f8"))
        if not np.isfinite(values).all():
            raise CorruptData(f"NaN and infinity have no value in {dtype.name}")
        # The largest 64-bit integers are not floats, so compare with the first float beyond them.
        low, high = values < float(least), values >= float(most) + (0 if most > 1 << 53 else 1)
    else:
        # numpy compares integers of different signedness exactly with Python's integers only within their own range.
        own = np.iinfo(values.dtype)
        low = values < least if least > own.min else np.zeros(len(values), bool)
        high = values > most if most < own.max else np.zeros(len(values), bool)
    outside = low | high
    if outside.any():
        if out_of_range == "clamp":
            result: Values = np.where(low, dtype.type(least), dtype.type(most))
            result[~outside] = values[~outside].astype(dtype)
            return result
        if out_of_range != "wrap":
            raise CorruptData(f"some values are out of range of {dtype.name}")
        if narrow is not None or values.dtype.kind == "f":
            wrapped = ((int(value) - least) % (most - least + 1) + least for value in values.tolist())
            return np.fromiter(wrapped, dtype, len(values))
    fitted: Values = values.astype(dtype)
    return fitted


def _to_float(values: Values, dtype: DType, rounding: str, out_of_range: str | None) -> Values:
    """Convert any numbers to floats. numpy rounds to nearest even; other directions take the neighbouring float.

    Clamping gives infinity here (cast-value-rs, which zarr-python uses).
    """
    result: Values = values.astype(dtype)
    wider = values.dtype.kind == "f" and values.dtype.itemsize <= dtype.itemsize
    if rounding != "nearest-even" and not wider:
        result = _round(result, values.astype(np.longdouble), rounding)
    if out_of_range != "clamp" and (np.isinf(result) & np.isfinite(values)).any():
        raise CorruptData(f"some values are out of range of {dtype.name}")
    return result


def _round(nearest: Values, exact: Values, rounding: str) -> Values:
    """Return the neighbour of `nearest` that `rounding` asks for.

    A value below the next power of two beyond the largest float still rounds down to that float.
    """
    dtype = nearest.dtype
    down = np.where(nearest.astype(np.longdouble) > exact, np.nextafter(nearest, dtype.type(-math.inf)), nearest)
    up = np.where(nearest.astype(np.longdouble) < exact, np.nextafter(nearest, dtype.type(math.inf)), nearest)
    if rounding == "towards-positive":
        chosen = up
    elif rounding == "towards-negative":
        chosen = down
    elif rounding == "towards-zero":
        chosen = np.where(exact < 0, up, down)
    else:
        away, near = np.where(exact < 0, down, up), np.where(exact < 0, up, down)
        tie = np.abs(away.astype(np.longdouble) - exact) == np.abs(near.astype(np.longdouble) - exact)
        chosen = np.where(tie, away, nearest)
    possible = np.abs(exact) < np.ldexp(np.longdouble(1), np.finfo(dtype).maxexp)
    rounded: Values = np.where(possible, chosen, nearest).astype(dtype)
    return rounded


Octets = npt.NDArray[np.uint8]

PACKED_PIECE = 1 << 14
"""Numbers unpacked at a time: a multiple of 8, so that pieces begin at whole bytes."""

PADDINGS = ("none", "first_byte", "last_byte")


@dataclass(frozen=True, slots=True)
class PackedBits(Decoder):
    """Numbers of `width` bytes with only the bits [first, first + bits) stored; `signed` numbers are sign-extended."""

    width: int
    first: int
    bits: int
    signed: bool
    padding: str
    name: str = "packbits"

    def encoded_size(self, decoded: int) -> int | None:
        return -(-(decoded // self.width * self.bits) // 8) + (self.padding != "none")

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if size is None or size % self.width or self.encoded_size(size) != len(data):
            raise CorruptData(f"{len(data)} bytes do not fit {size} bytes with {self.bits} of {8 * self.width} bits stored")
        packed = np.frombuffer(data, np.uint8)
        count = size // self.width
        if self.padding != "none":
            unused = int(packed[0] if self.padding == "first_byte" else packed[-1])
            if unused != -(count * self.bits) % 8:
                raise CorruptData(f"the data says {unused} unused bits, there are {-(count * self.bits) % 8}")
            packed = packed[1:] if self.padding == "first_byte" else packed[:-1]
        target = bytearray(size) if out is None else out
        result = np.frombuffer(target, np.uint8).reshape(count, self.width)
        for start in range(0, count, PACKED_PIECE):
            some = min(PACKED_PIECE, count - start)
            stored = packed[start * self.bits // 8 : -(-(start + some) * self.bits // 8)]
            result[start : start + some] = self._unpack(stored, some)
        return target

    def _unpack(self, stored: Octets, count: int) -> Octets:
        some = np.unpackbits(stored, count=count * self.bits, bitorder="little").reshape(count, self.bits)
        whole = np.zeros((count, 8 * self.width), np.uint8)
        whole[:, self.first : self.first + self.bits] = some
        if self.signed:
            whole[:, self.first + self.bits :] = some[:, -1:]
        return np.packbits(whole, axis=1, bitorder="little")


def packed_bits(width: int, bits: int, signed: bool, first: int | None, last: int | None, padding: str) -> Decoder:
    """Return the decoder of numbers with `bits` meaningful bits in `width` bytes.

    Only the bits `first` to `last` are stored; None: all.
    """
    low = 0 if first is None else first
    high = bits - 1 if last is None else last
    if not 0 <= low <= high < bits or padding not in PADDINGS:
        raise Unsupported(f"packbits cannot store bits {low} to {high} of {bits} with padding {padding!r}")
    return PackedBits(width, low, high - low + 1, signed, padding)


HEADER = struct.Struct("<QQ")
U32 = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Optional(Decoder):
    """Decodes both parts and keeps the format: one byte an element in the mask, `itemsize` bytes an element in the data.

    `items`: elements of a chunk, None if they differ. `itemsize` is 0 for elements of variable length.
    """

    items: int | None
    mask: CodecChain
    data: CodecChain
    itemsize: int
    name: str = "optional"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        view = memoryview(data).cast("B")
        if len(view) < HEADER.size:
            raise CorruptData(f"{len(view)} bytes are too few for the two lengths at the beginning")
        masked, stored = HEADER.unpack_from(view)
        if HEADER.size + masked + stored != len(view):
            raise CorruptData(f"a mask of {masked} bytes and data of {stored} do not make {len(view)} bytes")
        if self.items is not None and self.items > limit:
            raise TooLarge(f"a mask of {self.items} elements, the limit is {limit} bytes")
        middle = HEADER.size + masked
        mask = bytes(self.mask.decode(view[HEADER.size : middle], self.items, limit))
        if mask.count(0) + mask.count(1) != len(mask):
            raise CorruptData("the mask holds something other than 0 and 1")
        present = int(np.count_nonzero(np.frombuffer(mask, np.uint8)))
        elements = self._elements(view[middle:], present, limit)
        if HEADER.size + len(mask) + len(elements) > limit:
            raise TooLarge(f"{HEADER.size + len(mask) + len(elements)} bytes, the limit is {limit}")
        return b"".join((HEADER.pack(len(mask), len(elements)), mask, elements))

    def _elements(self, view: memoryview, present: int, limit: int) -> bytes:
        """Return the decoded data of `present` elements. If none is present, nothing may be stored."""
        if not present and not len(view):
            return b""
        last = self.data.steps[-1] if self.data.steps else None
        if isinstance(last, Optional):  # its mask has `present` elements
            chain = CodecChain((*self.data.steps[:-1], replace(last, items=present)))
            return bytes(chain.decode(view, None, limit))
        decoded = bytes(self.data.decode(view, present * self.itemsize if self.itemsize else None, limit))
        if not self.itemsize and U32.unpack_from(decoded)[0] != present:
            raise CorruptData(f"{U32.unpack_from(decoded)[0]} elements where the mask has {present}")
        return decoded
