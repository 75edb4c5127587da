"""scale_offset and cast_value against cast-value-rs (what zarr-python 3.4 decodes with) and exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import cast_value_rs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsbridge.codecs import zarr3
from fsbridge.errors import CorruptData, Unsupported

LIMIT = 1 << 20
NUMBERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]
Rounding: TypeAlias = Literal["nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away"]
ROUNDING: list[Rounding] = ["nearest-away", "nearest-even", "towards-negative", "towards-positive", "towards-zero"]
OUT_OF_RANGE: list[Literal["clamp", "wrap"] | None] = [None, "clamp", "wrap"]


def values_of(kind: str) -> st.SearchStrategy[float | int]:
    if kind[0] == "f":
        edges = [0.5, -0.5, 1.5, 2.5, 127.5, 128.0, 255.5, -1.0, 65504.0, 65519.0, 2.0**31, 2.0**53, 2.0**63, 2.0**64, 1e300]
        floats = {"f2": st.floats(width=16), "f4": st.floats(width=32), "f8": st.floats(width=64)}[kind]
        return st.sampled_from([x for x in edges if np.isfinite(np.array(x).astype(kind))]) | floats
    limits = np.iinfo(kind)
    return st.integers(int(limits.min), int(limits.max)) | st.sampled_from([int(limits.min), int(limits.max), 0, 1])


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(NUMBERS), st.sampled_from(NUMBERS), st.sampled_from(ROUNDING))
def test_cast_value_equals_the_rust_implementation(
    data: st.DataObject, stored: str, result: str, rounding: Rounding
) -> None:
    out_of_range = data.draw(st.sampled_from(OUT_OF_RANGE[: 2 if result[0] == "f" else 3]))
    with np.errstate(all="ignore"):
        values = np.array(data.draw(st.lists(values_of(stored), max_size=5)), stored)
    try:
        expected = cast_value_rs.cast_array(
            values, target_dtype=np.dtype(result), rounding_mode=rounding, out_of_range_mode=out_of_range
        )
    except ValueError:
        expected = None
    decoder = zarr3.cast_value(np.dtype(stored), np.dtype(result), rounding, out_of_range)
    try:
        got = np.frombuffer(decoder.decode(values.tobytes(), None, LIMIT, None), result)
    except CorruptData:
        got = None
    assert (got is None) == (expected is None)
    if expected is not None:
        np.testing.assert_array_equal(got, expected)


def around(kind: str, result: str) -> np.ndarray:
    """Values of `kind` at the edges of `result` and half-way between two of its numbers."""
    if result[0] == "f":
        steps = [2048.5, 2049, 2051, 16777217, 16777219, 65504, 65519, 65520, 3.5e38, 0.1, 5e-324]
    else:
        limits = np.iinfo(result)
        steps = [int(limits.max) + n for n in (-1, 0, 1)] + [int(limits.min) + n for n in (-1, 0, 1)] + [0.5, 1.5, 2.7]
    wanted = [sign * step for step in steps for sign in (1, -1)]
    if kind[0] == "f":
        with np.errstate(all="ignore"):
            return np.array([float(value) for value in wanted] + [math.nan, math.inf, -math.inf]).astype(kind)
    own = np.iinfo(kind)
    return np.array([int(value) for value in wanted if own.min <= int(value) <= own.max], kind)


@pytest.mark.parametrize("rounding", ROUNDING)
@pytest.mark.parametrize("result", NUMBERS)
def test_cast_value_at_the_edges_equals_the_rust_implementation(result: str, rounding: Rounding) -> None:
    for stored in ("i1", "i4", "u4", "i8", "u8", "f2", "f4", "f8"):
        for mode in OUT_OF_RANGE[: 2 if result[0] == "f" else 3]:
            decoder = zarr3.cast_value(np.dtype(stored), np.dtype(result), rounding, mode)
            for value in np.split(around(stored, result), len(around(stored, result))):
                try:
                    expected = cast_value_rs.cast_array(
                        value, target_dtype=np.dtype(result), rounding_mode=rounding, out_of_range_mode=mode
                    )
                except ValueError:
                    with pytest.raises(CorruptData):
                        decoder.decode(value.tobytes(), None, LIMIT, None)
                else:
                    got = np.frombuffer(decoder.decode(value.tobytes(), None, LIMIT, None), result)
                    np.testing.assert_array_equal(got, expected, f"{value} of {stored}, {mode}")


def test_cast_value_maps_scalars_first() -> None:
    decoder = zarr3.cast_value(np.dtype(">i2"), np.dtype("<f4"), scalar_map=[(-32768, "NaN"), (5, "Infinity"), (6, 0.5)])
    stored = np.array([1, -32768, 5, 6, 7], ">i2").tobytes()
    out = memoryview(bytearray(20))
    assert decoder.decode(stored, 20, LIMIT, out) is out
    np.testing.assert_array_equal(np.frombuffer(out, "<f4"), np.array([1, np.nan, np.inf, 0.5, 7], "f4"))
    assert decoder.encoded_size(20) == 10
    back = zarr3.cast_value(np.dtype("f8"), np.dtype("u1"), scalar_map=[("NaN", 255), ("0x7ff0000000000000", 254)])
    stored = np.array([math.nan, math.inf, 3.5]).tobytes()
    assert back.decode(stored, 3, LIMIT, None) == bytes([255, 254, 4])


@pytest.mark.parametrize(
    ("stored", "result", "options"),
    [
        ("S3", "f4", {}),
        ("f4", "M8[s]", {}),
        ("c8", "f4", {}),
        ("f4", "i4", {"rounding": "up"}),
        ("f4", "i4", {"out_of_range": "ignore"}),
        ("i4", "f4", {"out_of_range": "wrap"}),
        ("i4", "u1", {"scalar_map": [(5, 256)]}),
        ("i4", "u1", {"scalar_map": [("NaN", 2)]}),
        ("i4", "f4", {"scalar_map": [(2.5, 2)]}),
        ("i4", "f4", {"scalar_map": [(2, "0x1ffffffff")]}),
        ("i4", "f4", {"scalar_map": [(2, None)]}),
    ],
)
def test_cast_value_parameters_that_make_no_sense(stored: str, result: str, options: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        zarr3.cast_value(np.dtype(stored), np.dtype(result), **options)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from(NUMBERS[:8]))
def test_scale_offset_of_integers_is_exact_or_fails(data: st.DataObject, kind: str) -> None:
    limits = np.iinfo(kind)
    everything = st.integers(int(limits.min), int(limits.max))
    few = st.integers(max(-3, int(limits.min)), 3)
    offset, scale = data.draw(few | everything), data.draw((few | everything).filter(bool))
    numbers = data.draw(st.lists(everything | few.map(lambda n: n * scale), min_size=1, max_size=4))
    numbers = [n for n in numbers if limits.min <= n <= limits.max] or [0]
    exact = [Fraction(n, scale) + offset for n in numbers]
    possible = all(x.denominator == 1 and limits.min <= x <= limits.max for x in exact)
    decoder = zarr3.scale_offset(np.dtype(kind), offset, scale)
    stored = np.array(numbers, kind).tobytes()
    corner = kind == "i8" and scale == -1 and int(limits.min) in numbers
    if possible and not corner:
        assert np.frombuffer(decoder.decode(stored, len(stored), LIMIT, None), kind).tolist() == [int(x) for x in exact]
    else:
        with pytest.raises(CorruptData):
            decoder.decode(stored, len(stored), LIMIT, None)


def test_the_least_integer_has_no_opposite() -> None:
    least = np.array([np.iinfo("i8").min, 5])
    for values in (least, least[1:]):
        decoder = zarr3.scale_offset(np.dtype("i8"), 0, -1)
        if values is least:
            with pytest.raises(CorruptData):
                decoder.decode(values.tobytes(), None, LIMIT, None)
        else:
            assert np.frombuffer(decoder.decode(values.tobytes(), None, LIMIT, None), "i8").tolist() == [-5]
    assert (
        np.frombuffer(zarr3.scale_offset(np.dtype("i8"), 0, 1).decode(least.tobytes(), None, LIMIT, None)).tobytes()
        == least.tobytes()
    )


@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f8", "f2"])
def test_scale_offset_of_floats_stays_in_its_type(kind: str) -> None:
    values = np.array([0.1, -7, 1000, math.nan, math.inf], kind)
    native = values.astype(np.dtype(kind).newbyteorder("="))
    expected = (native / native.dtype.type(0.1) + native.dtype.type(5)).astype(kind)
    got = zarr3.scale_offset(np.dtype(kind), 5, 0.1).decode(values.tobytes(), values.nbytes, LIMIT, None)
    assert bytes(got) == expected.tobytes()


def test_scale_offset_parameters_that_make_no_sense() -> None:
    for kind, offset, scale in (("i4", 0, 0), ("u1", -1, 1), ("i4", 0.5, 1), ("f4", "x", 1), ("S4", 0, 1), ("f4", True, 1)):
        with pytest.raises(Unsupported):
            zarr3.scale_offset(np.dtype(kind), offset, scale)
