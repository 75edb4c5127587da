"""Shuffle, number filters and checksums against numcodecs' own encoders and decoders."""

from __future__ import annotations

import numcodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs.checksum32 import CRC32C

from fsbridge.codecs import CodecChain, Decoder, checksums, filters, zarr3
from fsbridge.errors import CorruptData, Unsupported

LIMIT = 1 << 24
RNG = np.random.default_rng(3)
FLOATS = (RNG.standard_normal(1000) * 100).astype("f8")


def check(decoder: Decoder, stored: bytes, expected: bytes) -> None:
    """Decoded with and without a target, and refused at every other length."""
    assert bytes(decoder.decode(stored, len(expected), LIMIT, None)) == expected
    assert bytes(decoder.decode(memoryview(stored), None, LIMIT, None)) == expected
    out = memoryview(bytearray(b"\xa5" * len(expected)))
    CodecChain((decoder,)).decode_into(stored, out, LIMIT)
    assert out == expected
    assert decoder.encoded_size(len(expected)) == len(stored)
    for wrong in (stored[:-1], stored + b"\0"):
        with pytest.raises(CorruptData):
            CodecChain((decoder,)).decode_into(wrong, out, LIMIT)


@pytest.mark.parametrize("element", [1, 2, 3, 4, 8, 16, 257, 1000])
def test_shuffled_bytes_are_put_back_in_order(element: int) -> None:
    data = RNG.bytes(element * 513)
    stored = bytes(numcodecs.Shuffle(element).encode(np.frombuffer(data, "u1")))
    check(filters.shuffle(element), stored, data)
    check(filters.hdf5_shuffle(element), stored, data)


def test_shuffle_with_leftover_bytes_is_hdf5_only() -> None:
    assert filters.hdf5_shuffle(4).decode(b"\0\1\2\3\4\5\6\7xyz", 11, LIMIT, None) == b"\0\2\4\6\1\3\5\7xyz"
    assert filters.hdf5_shuffle(2).decode(b"\0\1\2\xfd\xfe\xffx", 7, LIMIT, None) == b"\0\xfd\1\xfe\2\xffx"
    with pytest.raises(CorruptData):
        filters.shuffle(4).decode(b"\0\1\2\3\4\5\6\7xyz", 11, LIMIT, None)
    with pytest.raises(Unsupported):
        filters.shuffle(-1)


@pytest.mark.parametrize(
    ("codec", "decoder", "values"),
    [
        (numcodecs.Delta("<i4"), filters.delta("<i4"), RNG.integers(-9, 9, 999).astype("<i4")),
        (numcodecs.Delta(">i8", "i2"), filters.delta(">i8", "i2"), RNG.integers(-9, 9, 999).astype(">i8")),
        (numcodecs.Delta("u1"), filters.delta("u1"), RNG.integers(0, 255, 999).astype("u1")),
        (numcodecs.Delta("f8", "f4"), filters.delta("f8", "f4"), FLOATS),
        (numcodecs.FixedScaleOffset(100, 10, "f8", "u2"), filters.fixed_scale_offset(100, 10, "f8", "u2"), FLOATS),
        (numcodecs.FixedScaleOffset(1, 3, "f4", ">i4"), filters.fixed_scale_offset(1, 3, "f4", ">i4"), FLOATS.astype("f4")),
        (numcodecs.FixedScaleOffset(5, 2, "i8"), filters.fixed_scale_offset(5, 2, "i8"), np.arange(300_000)),
        (numcodecs.Quantize(2, "f8", "f4"), filters.quantize("f8", "f4"), FLOATS),
        (numcodecs.Quantize(1, "f2"), filters.quantize("f2"), FLOATS.astype("f2")),
        (numcodecs.AsType("f4", "f8"), filters.astype("f4", "f8"), FLOATS),
        (numcodecs.AsType("<i2", ">i8"), filters.astype("<i2", ">i8"), np.arange(200_000, dtype=">i8")),
    ],
    ids=lambda value: repr(value) if isinstance(value, numcodecs.abc.Codec) else "",
)
def test_number_filters_equal_numcodecs(codec: numcodecs.abc.Codec, decoder: Decoder, values: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        stored = codec.encode(values).tobytes()
        expected = codec.decode(stored).tobytes()
    check(decoder, stored, expected)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1001])
def test_packed_bits_become_booleans_and_damage_is_noticed(count: int) -> None:
    values = RNG.integers(0, 2, count).astype(bool)
    stored = numcodecs.PackBits().encode(values).tobytes()
    assert bytes(filters.PackBits().decode(stored, count, LIMIT, None)) == values.tobytes()
    assert filters.PackBits().encoded_size(count) == len(stored)
    for bad in (b"", b"\x08\xff", b"\x01", stored + b"\0", b"\xff" + stored[1:]):
        with pytest.raises(CorruptData):
            filters.PackBits().decode(bad, count, LIMIT, None)


@pytest.mark.parametrize("count", [0, 1, 7, 3 * zarr3.PACKED_PIECE + 5])
@pytest.mark.parametrize(
    ("width", "bits", "signed", "first", "last"),
    [
        (1, 1, False, None, None),
        (1, 4, True, None, None),
        (1, 8, False, 2, 4),
        (2, 16, False, 3, None),
        (2, 16, True, None, 10),
        (4, 32, False, None, None),
        (8, 64, True, 20, 62),
    ],
)
def test_packed_bits_of_zarr_extensions_are_those_of_the_specification(
    width: int, bits: int, signed: bool, first: int | None, last: int | None, count: int
) -> None:
    """The specification by Python's integers: bits [first, last] of each number, the least significant ones first."""
    low, stored_bits = first or 0, (bits - 1 if last is None else last) + 1 - (first or 0)
    numbers = RNG.integers(0, 1 << stored_bits, count, "u8").tolist()
    text = "".join(f"{number:0{stored_bits}b}" for number in reversed(numbers))
    packed = int(text or "0", 2).to_bytes(-(-len(text) // 8), "little")
    unused = -len(text) % 8
    values = [number - (signed and number >> stored_bits - 1) * (1 << stored_bits) for number in numbers]
    expected = b"".join((value << low).to_bytes(width, "little", signed=signed) for value in values)
    encodings = {"none": packed, "first_byte": bytes([unused]) + packed, "last_byte": packed + bytes([unused])}
    for padding, stored in encodings.items():
        decoder = zarr3.packed_bits(width, bits, signed, first, last, padding)
        out = memoryview(bytearray(b"\xa5" * len(expected)))
        assert bytes(decoder.decode(stored, len(expected), LIMIT, None)) == expected
        CodecChain((decoder,)).decode_into(stored, out, LIMIT)
        assert out == expected
        for wrong in (stored[:-1], stored + b"\0", b"") if count else (stored + b"\0",):
            with pytest.raises(CorruptData):
                decoder.decode(wrong, len(expected), LIMIT, None)
        if padding != "none":
            mark = 0 if padding == "first_byte" else -1
            told = bytearray(stored)
            told[mark] ^= 1
            with pytest.raises(CorruptData, match="unused bits"):
                decoder.decode(told, len(expected), LIMIT, None)


@pytest.mark.parametrize(
    ("bits", "first", "last", "padding"), [(8, 0, 8, "none"), (8, 5, 4, "none"), (4, -1, 2, "none"), (8, 0, 7, "start")]
)
def test_packbits_parameters_that_make_no_sense(bits: int, first: int, last: int, padding: str) -> None:
    with pytest.raises(Unsupported):
        zarr3.packed_bits(1, bits, False, first, last, padding)


@pytest.mark.parametrize("spelling", ["O", "|V3", "S4", "<i4,<i4", "bogus", None, ["a", "<i4"], 3, "<M8", {}])
def test_filters_take_numbers_only(spelling: object) -> None:
    if spelling == "<M8":
        assert filters.number(spelling).itemsize == 8
        return
    with pytest.raises(Unsupported):
        filters.delta(spelling)
    with pytest.raises(Unsupported):
        filters.astype("f4", spelling)


def test_impossible_filter_parameters_are_refused() -> None:
    for dtype, astype in (("<M8[s]", None), ("<M8[s]", "<m8[s]"), ("<i8", "<M8[s]")):  # dates have no sums
        with pytest.raises(Unsupported, match="delta"):
            filters.delta(dtype, astype)
    for scale, offset in ((None, 1), ("1", 1), (1, [2])):
        with pytest.raises(Unsupported):
            filters.fixed_scale_offset(offset, scale, "f8")
    with pytest.raises(Unsupported):
        filters.quantize("i4")


CHECKSUMS = [
    (numcodecs.CRC32(), checksums.crc32()),
    (numcodecs.CRC32(location="end"), checksums.crc32("end")),
    (numcodecs.Adler32(), checksums.adler32()),
    (numcodecs.Adler32(location="end"), checksums.adler32("end")),
    (CRC32C(), checksums.crc32c()),
    (CRC32C(location="start"), checksums.crc32c("start")),
    (numcodecs.Fletcher32(), checksums.fletcher32()),
    (numcodecs.Fletcher32(), checksums.hdf5_fletcher32()),
    (numcodecs.JenkinsLookup3(), checksums.jenkins_lookup3()),
    (numcodecs.JenkinsLookup3(initval=77), checksums.jenkins_lookup3(77)),
]


@pytest.mark.parametrize(("codec", "decoder"), CHECKSUMS, ids=lambda value: getattr(value, "name", ""))
def test_checksums_are_verified(codec: numcodecs.abc.Codec, decoder: Decoder) -> None:
    for data in (b"abcd", b"x", RNG.bytes(10_001), bytes(1000), b"\xff" * 2_000_003, RNG.bytes(2_200_003)):
        stored = bytes(codec.encode(np.frombuffer(data, "u1")))
        check(decoder, stored, data)
        for position in (0, 3, len(stored) // 2, len(stored) - 1):
            flipped = bytearray(stored)
            flipped[position] ^= 0x10
            with pytest.raises(CorruptData, match="checksum"):
                decoder.decode(flipped, len(data), LIMIT, None)
    for short in (b"", b"abc"):
        with pytest.raises(CorruptData):
            decoder.decode(short, None, LIMIT, None)


def test_checksum_locations_are_checked() -> None:
    for make in (checksums.crc32, checksums.crc32c, checksums.adler32):
        with pytest.raises(Unsupported):
            make("middle")
    with pytest.raises(Unsupported):
        checksums.jenkins_lookup3(prefix=[1])


@settings(max_examples=100, deadline=None)
@given(data=st.binary(min_size=1, max_size=5000), repeat=st.integers(1, 300))
def test_fletcher32_equals_numcodecs(data: bytes, repeat: int) -> None:
    stored = bytes(numcodecs.Fletcher32().encode(np.frombuffer(data * repeat, "u1")))
    assert checksums.fletcher32_value(data * repeat) == int.from_bytes(stored[-4:], "little")


def test_hdf5_fletcher32_accepts_the_sums_of_old_releases() -> None:
    value = checksums.fletcher32_value(b"some data").to_bytes(4, "little")
    swapped = bytes([value[1], value[0], value[3], value[2]])
    assert checksums.hdf5_fletcher32().decode(b"some data" + swapped, 9, LIMIT, None) == b"some data"
    with pytest.raises(CorruptData):
        checksums.fletcher32().decode(b"some data" + swapped, 9, LIMIT, None)
