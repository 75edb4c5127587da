"""The compressors against independent encoders: equal bytes back, and nothing but CorruptData for anything else."""

from __future__ import annotations

import contextlib
import gzip as stdlib_gzip
import itertools
import lzma
import struct
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numcodecs
import numpy as np
import pytest
import tensorstore as ts
import xxhash
from codec_samples import COMPRESSORS, java_lz4
from hypothesis import given, settings
from hypothesis import strategies as st

from fsbridge.codecs import CodecChain, blosc, lz4, native, streams
from fsbridge.errors import CorruptData, TooLarge, Unsupported

LIMIT = 1 << 24
RNG = np.random.default_rng(7)
SMOOTH = np.cumsum(RNG.integers(-3, 4, 50_000)).astype("<u2").tobytes()
NOISE = RNG.bytes(50_000)
SAMPLES = {"smooth": SMOOTH, "noise": NOISE, "zeros": bytes(100_000), "one": b"x", "text": b"abcabcabc" * 9}


CODECS = COMPRESSORS
SIZE_NEEDED = {"n5 lz4 z5"}


@pytest.mark.parametrize("name", CODECS)
def test_decodes_what_an_independent_encoder_wrote(name: str) -> None:
    encode, decoder = CODECS[name]
    for data in SAMPLES.values():
        stored = bytes(encode(data))
        out = memoryview(bytearray(b"\xa5" * len(data)))
        CodecChain((decoder,)).decode_into(stored, out, LIMIT)
        assert out == data
        assert decoder.decode(memoryview(stored), len(data), LIMIT, None) == data
        if name not in SIZE_NEEDED:
            assert decoder.decode(stored, None, LIMIT, None) == data


@pytest.mark.parametrize("name", CODECS)
def test_wrong_length_truncation_and_leftovers_are_corrupt(name: str) -> None:
    encode, decoder = CODECS[name]
    stored = bytes(encode(SMOOTH))
    bad = [b"", stored[:1], stored[: len(stored) // 2], stored[:-1], stored + b"\0", stored + b"garbage!"]
    for data, size in [(piece, len(SMOOTH)) for piece in bad] + [(stored, len(SMOOTH) - 1), (stored, len(SMOOTH) + 1)]:
        with pytest.raises(CorruptData):
            decoder.decode(data, size, LIMIT, None)
        with pytest.raises(CorruptData):
            decoder.decode(data, size, LIMIT, memoryview(bytearray(size)))
    for data in bad:
        with pytest.raises(CorruptData):
            decoder.decode(data, None, LIMIT, None)
    with pytest.raises(CorruptData):
        decoder.decode(stored, None, len(SMOOTH) - 1, None)


@pytest.mark.parametrize("name", CODECS)
def test_empty_data_is_decoded_and_is_too_short_for_one_byte(name: str) -> None:
    encode, decoder = CODECS[name]
    if "blosc" in name:
        stored = struct.pack("<BBBBIII", 2, 1, 0x13, 1, 0, 0, 16)
    elif "lz4" in name and "java" not in name:
        stored = b"\0\0\0\0\0" if name not in SIZE_NEEDED else b"\0"
    else:
        stored = bytes(encode(b""))
    assert bytes(decoder.decode(stored, 0, LIMIT, memoryview(bytearray()))) == b""
    with pytest.raises(CorruptData):
        decoder.decode(stored, 1, LIMIT, None)


@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=3000), name=st.sampled_from(sorted(set(CODECS) - {"lzma raw"})))
def test_any_bytes_come_back(data: bytes, name: str) -> None:
    encode, decoder = CODECS[name]
    if data:
        assert decoder.decode(bytes(encode(data)), len(data), LIMIT, None) == data


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=300), name=st.sampled_from(sorted(CODECS)), size=st.none() | st.integers(0, 500))
def test_garbage_is_corrupt_or_of_the_right_size(data: bytes, name: str, size: int | None) -> None:
    try:
        result = CODECS[name][1].decode(data, size, LIMIT, None)
    except (CorruptData, Unsupported):
        return
    assert size is None or len(result) == size


@pytest.mark.parametrize("name", ["gzip", "zlib", "n5 gzip", "bz2", "xz", "zstd", "lz4", "n5 lz4 java", "blosc lz4 1"])
def test_the_same_chunk_twice_is_corrupt(name: str) -> None:
    encode, decoder = CODECS[name]
    for data in SAMPLES.values():
        with pytest.raises(CorruptData):
            decoder.decode(encode(data) * 2, len(data), LIMIT, None)


def test_gzip_with_many_tiny_members_takes_linear_time_and_small_memory() -> None:
    stored = stdlib_gzip.compress(b"") * 20_000 + stdlib_gzip.compress(b"end")
    assert streams.Deflate("gzip", "gzip").decode(stored, 3, LIMIT, None) == b"end"


def test_blosc_refuses_what_is_no_blosc_1() -> None:
    good = bytearray(numcodecs.blosc.compress(np.frombuffer(SMOOTH, "u1"), b"lz4", 5, 1, 4096, 2))
    flags = good[2]
    for position, value in (
        (0, 3),
        (0, 5),
        *((2, bad) for bad in (flags | 5, flags | 8, flags & 0x1F | 0xA0, flags | 0xE0)),
    ):
        changed = bytearray(good)
        changed[position] = value
        with pytest.raises(Unsupported):
            blosc.Blosc().decode(changed, len(SMOOTH), LIMIT, None)


@pytest.mark.parametrize("typesize", [1, 2, 3, 8, 24])
@pytest.mark.parametrize("cname", ["blosclz", "lz4", "zstd"])
@pytest.mark.parametrize("shuffle", [0, 1, 2])
def test_blosc_ranges_equal_slices(typesize: int, cname: str, shuffle: int) -> None:
    rng = np.random.default_rng(typesize)
    for data in (SMOOTH[: 24 * 4000 + 24 * 7], NOISE, bytes(70_001)):
        for blocksize in (1024, 24 * 512, 0):
            stored = numcodecs.blosc.compress(np.frombuffer(data, "u1"), cname.encode(), 5, shuffle, blocksize, typesize)
            bounds = [(0, len(data)), (0, 1), (len(data) - 1, len(data)), (5, 5)]
            bounds += [tuple(sorted(pair)) for pair in rng.integers(0, len(data) + 1, (12, 2)).tolist()]
            for start, stop in bounds:
                assert blosc_range(stored, len(data), start, stop) == data[start:stop]
    with pytest.raises(CorruptData):
        blosc_range(stored, len(data) + 1, 0, 1)


@pytest.mark.parametrize("cname", ["lz4", "zstd"])
def test_blosc_blocks_may_lie_in_any_order(cname: str) -> None:
    """Put blocks in the order of parallel compressing threads; c-blosc itself must decode the frame to the same bytes."""
    data = SMOOTH * 4
    stored = bytes(numcodecs.blosc.compress(np.frombuffer(data, "<u2"), cname.encode(), 5, 1, 1 << 14))
    edge = struct.unpack_from("<I", stored, 8)[0]
    count = -(-len(data) // edge)
    assert count > 3
    starts = np.frombuffer(stored, "<u4", count, 16).tolist()
    blocks = [stored[start:stop] for start, stop in itertools.pairwise([*starts, len(stored)])]
    for order in ([*range(count)][::-1], [0, 2, 1, *range(3, count)], [count - 1, *range(count - 1)]):
        ends = itertools.accumulate((len(blocks[number]) for number in order), initial=16 + 4 * count)
        offsets = [start for _, start in sorted(zip(order, ends, strict=False))]
        mixed = stored[:16] + struct.pack(f"<{count}I", *offsets) + b"".join(blocks[number] for number in order)
        assert numcodecs.blosc.decompress(mixed) == data
        for start, stop in itertools.combinations([0, 1, edge - 1, edge, 3 * edge, len(data) - 1, len(data)], 2):
            assert blosc_range(mixed, len(data), start, stop) == data[start:stop]


def test_a_range_of_a_blosc_block_with_a_wrong_length_is_corrupt() -> None:
    stored = bytearray(numcodecs.blosc.compress(np.frombuffer(SMOOTH, "<u2"), b"lz4", 5, 1, 1 << 14))
    second = struct.unpack_from("<I", stored, 20)[0]
    struct.pack_into("<I", stored, second, len(stored))
    edge = struct.unpack_from("<I", stored, 8)[0]
    assert blosc_range(stored, len(SMOOTH), 0, edge) == SMOOTH[:edge]
    with pytest.raises(CorruptData):
        blosc_range(stored, len(SMOOTH), edge, edge + 1)


def by_snappy(tmp_path: Path, data: bytes, shuffle: int, blocksize: int, dtype: str) -> bytes:
    """A frame of TensorStore's, which numcodecs could not make for years."""
    values = np.frombuffer(data, dtype)
    compressor = {"id": "blosc", "cname": "snappy", "clevel": 5, "shuffle": shuffle, "blocksize": blocksize}
    metadata = {
        "shape": [len(values)],
        "chunks": [len(values)],
        "dtype": dtype,
        "compressor": compressor,
        "fill_value": None,
    }
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{tmp_path}/x/"}, "metadata": metadata}
    ts.open(spec, create=True, delete_existing=True).result().write(values).result()
    return (tmp_path / "x/0").read_bytes()


@pytest.mark.parametrize("dtype", ["|u1", "<i2", "<f8", "<c16"])
@pytest.mark.parametrize("shuffle", [0, 1, 2])
def test_blosc_frames_by_snappy_equal_their_data(tmp_path: Path, dtype: str, shuffle: int) -> None:
    rng = np.random.default_rng(shuffle)
    for data in (
        SMOOTH[: 16 * 9000],
        bytes(rng.integers(0, 3, 96_000, np.uint8)),
        NOISE[: len(NOISE) // 16 * 16],
        bytes(48),
    ):
        for blocksize in (0, 1024, 16 * 1000):
            stored = by_snappy(tmp_path, data, shuffle, blocksize, dtype)
            assert blosc.Blosc().decode(stored, len(data), LIMIT, None) == data
            for start, stop in rng.integers(0, len(data) + 1, (6, 2)).tolist():
                assert (
                    blosc_range(stored, len(data), min(start, stop), max(start, stop))
                    == data[min(start, stop) : max(start, stop)]
                )


def test_damaged_snappy_is_corrupt_or_as_long_as_it_should_be(tmp_path: Path) -> None:
    data = (bytes(range(50)) + b"abc" * 30) * 30 + bytes(range(200))
    stored = by_snappy(tmp_path, data, 0, 0, "<i2")
    assert blosc.Frame.parse(stored).by_snappy
    refused = 0
    for position in range(20, len(stored)):
        for value in (stored[position] ^ 1, stored[position] ^ 0x80, 0, 0xFF):
            damaged = bytearray(stored)
            damaged[position] = value
            try:
                assert len(blosc.Blosc().decode(damaged, len(data), LIMIT, None)) == len(data)
            except CorruptData:
                refused += 1
    assert refused > len(stored) // 4
    with pytest.raises(CorruptData):
        blosc.Blosc().decode(stored[:-1], len(data), LIMIT, None)


def tiny_blocks(blocks: int) -> bytes:
    """A frame of Snappy with blocks of 8 bytes, stored as they are."""
    size = 16 + 16 * blocks
    header = struct.pack("<BBBBIII", 2, 1, 2 << 5 | 0x10, 1, 8 * blocks, 8, size)
    starts = np.arange(16 + 4 * blocks, size, 12, dtype="<u4").tobytes()
    return header + starts + (struct.pack("<I", 8) + bytes(range(8))) * blocks


def test_p7_frames_by_snappy_of_tiny_blocks_take_no_minutes() -> None:
    """With 100,000, looking for the end of each among the starts of all took minutes; many more are refused."""
    stored, data = tiny_blocks(100_000), bytes(range(8)) * 100_000
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: blosc.Blosc().decode(stored, len(data), LIMIT, None), range(4))) == [data] * 4
    with pytest.raises(TooLarge, match="streams"):
        blosc.Blosc().decode(tiny_blocks(1_100_000), None, LIMIT, None)


def test_p6_a_large_frame_by_snappy_takes_little_besides_what_is_decoded(tmp_path: Path) -> None:
    data = np.arange(10 << 20, dtype="<u4").tobytes()
    stored = by_snappy(tmp_path, data, 1, 0, "<i4")
    out = bytearray(len(data))
    tracemalloc.start()
    blosc.Blosc().decode(stored, len(data), len(data), memoryview(out))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert out == data
    assert peak < 8 << 20


def test_p6_large_blocks_of_snappy_are_decoded_one_at_a_time() -> None:
    data = bytes(range(256)) * (8 << 12)
    copies = b"\xfe\x00\x01" * ((len(data) - (1 << 16)) // 64)  # of 64 bytes that were decoded 256 bytes before
    stream = b"\x80\x80\x80\x04" + b"\xf4\xff\xff" + data[: 1 << 16] + copies  # 8 MiB, of them a literal of 64 KiB
    header = struct.pack("<BBBBIIII", 2, 1, 2 << 5 | 0x10, 1, len(data), len(data), 24 + len(stream), 20)
    stored = header + struct.pack("<I", len(stream)) + stream
    out = [bytearray(len(data)) for _ in range(4)]
    tracemalloc.start()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: blosc.Blosc().decode(stored, len(data), LIMIT, memoryview(one)), out))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert all(one == data for one in out)
    assert peak < 2 * len(data)
    huge = bytearray(stored)
    struct.pack_into("<II", huge, 4, 40 << 20, 40 << 20)
    with pytest.raises(TooLarge, match="block of 41943040 bytes"):
        blosc.Blosc().decode(huge, None, 1 << 30, None)


SNAPPY: dict[bytes, bytes] = {
    b"\x00": b"",
    b"\x03\x08abc": b"abc",
    b"\x0a\x00a\x09\x01\x08bcd": b"aaaaaaabcd",
    b"\x07\x04ab\x12\x02\x00": b"abababa",
    b"\x07\x04ab\x13\x02\x00\x00\x00": b"abababa",
    b"\x46\xf0\x45" + bytes(range(70)): bytes(range(70)),
}
"""Streams by hand after the description of the format: literals, and copies of each kind."""


@pytest.mark.parametrize("stored", list(SNAPPY))
def test_each_element_of_snappy_is_decoded_to_its_exact_size(stored: bytes) -> None:
    data = SNAPPY[stored]
    assert from_snappy(stored, len(data)) == data
    for damaged in (stored[:-1], stored + b"\0", b"\xff" * 5 + stored):
        with pytest.raises(CorruptData):
            from_snappy(damaged, len(data))
    for size in (len(data) + 1, max(0, len(data) - 1)):
        if size != len(data):
            with pytest.raises(CorruptData):
                from_snappy(stored, size)


def from_snappy(stored: bytes, size: int) -> bytes:
    """Return the decoded bytes; nothing may be written beside them."""
    around = bytearray(b"\xaa" * (size + 64))
    try:
        blosc.snappy_into(memoryview(stored), memoryview(around)[32 : 32 + size])
    finally:
        assert around[:32] + around[32 + size :] == b"\xaa" * 64
    return bytes(around[32 : 32 + size])


def snappy_by_the_book(data: bytes) -> bytes:
    """Decode a stream byte by byte as Snappy's `format_description.txt` says; raise an error if it is damaged."""
    length = position = 0
    for shift in range(0, 35, 7):
        length |= (data[position] & 0x7F) << shift
        position += 1
        if data[position - 1] < 0x80:
            break
    else:
        raise ValueError("length")
    found = bytearray()
    while position < len(data):
        tag = data[position]
        position += 1
        if tag & 3 == 0:
            extra = max(0, (tag >> 2) - 59)
            size = int.from_bytes(data[position : position + extra], "little") + 1 if extra else (tag >> 2) + 1
            position += extra
            if position + size > len(data):
                raise ValueError("literal")
            found += data[position : position + size]
            position += size
            continue
        width = (1, 2, 4)[(tag & 3) - 1]
        offset = int.from_bytes(data[position : position + width], "little")
        size = (tag >> 2) + 1
        if tag & 3 == 1:
            offset, size = offset | (tag >> 5) << 8, (tag >> 2 & 7) + 4
        position += width
        if position > len(data) or not 0 < offset <= len(found):
            raise ValueError("copy")
        for _ in range(size):
            found.append(found[-offset])
        if len(found) > length:
            raise ValueError("too long")
    if len(found) != length:
        raise ValueError("too short")
    return bytes(found)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(list(SNAPPY)), st.integers(0, 80), st.binary(max_size=4), st.integers(0, 4))
def test_p2_damaged_snappy_is_refused_or_decoded_by_the_book(stored: bytes, at: int, inserted: bytes, removed: int) -> None:
    damaged = stored[:at] + inserted + stored[at + removed :]
    try:
        expected: bytes | None = snappy_by_the_book(damaged)
    except (IndexError, ValueError):
        expected = None
    size = len(SNAPPY[stored]) if expected is None or len(expected) > 4096 else len(expected)
    with contextlib.suppress(
        CorruptData
    ):  # also if a short literal has its length in bytes of its own, which no encoder writes
        assert from_snappy(damaged, size) == expected


def blosc_range(stored: bytes | bytearray, size: int, start: int, stop: int) -> bytes:
    """A range of a frame that may be read between its bounds only."""

    def read(offset: int, length: int) -> bytes:
        assert 0 <= offset <= offset + length <= len(stored)
        return bytes(stored[offset : offset + length])

    return bytes(blosc.Blosc().decode_range(read, len(stored), size, start, stop))


def test_a_range_of_many_blocks_is_not_looked_for_block_by_block() -> None:
    """Each costs a read and a look at all offsets: hours, for a hostile frame of millions of tiny blocks."""
    data = bytes(1 << 24)
    stored = bytes(numcodecs.blosc.compress(np.frombuffer(data, "u1"), b"lz4", 1, 0, 128, 1))
    assert blosc.Frame.parse(stored).blocks > blosc.MAX_PART_BLOCKS
    asked: list[int] = []

    def read(offset: int, length: int) -> bytes:
        asked.append(length)
        return stored[offset : offset + length]

    assert blosc.Blosc().decode_range(read, len(stored), len(data), 5, len(data)) == data[5:]
    assert len(asked) <= 2


def test_a_blosc_range_reads_its_blocks_only() -> None:
    data = np.random.default_rng(5).integers(0, 50, 1 << 20).astype("<u2").tobytes()
    stored = bytes(numcodecs.blosc.compress(np.frombuffer(data, "<u2"), b"lz4", 5, 1, 1 << 15))
    asked: list[int] = []

    def read(offset: int, length: int) -> bytes:
        asked.append(length)
        return stored[offset : offset + length]

    start, stop = 1 << 20, (1 << 20) + 4096
    assert blosc.Blosc().decode_range(read, len(stored), len(data), start, stop) == data[start:stop]
    assert len(asked) == 2
    assert sum(asked) < len(stored) // 20


def test_many_threads_decode_at_once_and_blosc_without_its_pool() -> None:
    stored = [(name, data, bytes(encode(data))) for name, (encode, _) in CODECS.items() for data in SAMPLES.values()]
    with ThreadPoolExecutor(8) as pool:
        results = pool.map(lambda one: CODECS[one[0]][1].decode(one[2], len(one[1]), LIMIT, None) == one[1], stored * 3)
        assert all(results)
    assert numcodecs.blosc.use_threads is False


def test_java_lz4_checks_its_checksum_and_end_mark() -> None:
    stored = java_lz4(SMOOTH, 1 << 12)
    decoder = lz4.N5Lz4()
    flipped = bytearray(stored)
    flipped[8 + 9] ^= 1
    for bad in (bytes(flipped), stored[:-21], stored[:-1], stored + stored):
        with pytest.raises(CorruptData):
            decoder.decode(bad, len(SMOOTH), LIMIT, None)
    checksum = xxhash.xxh32(b"abc", seed=0x9747B28C).intdigest()
    assert checksum >> 28, "lz4-java stores the lower 28 bits only"
    for value, good in ((checksum, False), (checksum & 0x0FFFFFFF, True)):
        block = b"LZ4Block" + struct.pack("<BIII", 0x10, 3, 3, value) + b"abc" + stored[-21:]
        if good:
            assert decoder.decode(block, 3, LIMIT, None) == b"abc"
        else:
            with pytest.raises(CorruptData, match="checksum"):
                decoder.decode(block, 3, LIMIT, None)


def test_java_lz4_checks_the_headers_of_later_blocks() -> None:
    stored = java_lz4(SMOOTH, 1 << 12)
    second = stored.index(b"LZ4Block", 1)
    for position in (0, 7, 9, 13):  # what marks a block, and its two lengths
        damaged = bytearray(stored)
        damaged[second + position] ^= 1
        with pytest.raises(CorruptData):
            lz4.N5Lz4().decode(damaged, len(SMOOTH), LIMIT, None)


def test_lzma_ignores_no_filter_and_bounds_its_dictionary() -> None:
    with pytest.raises(Unsupported, match="4294967295"):
        streams.lzma_stream(3, [{"id": lzma.FILTER_LZMA2, "dict_size": 2**32 - 1}])
    for filters in (None, [], [{"id": 99}], [{"dist": 1}], [{"id": lzma.FILTER_LZMA2, "dict_size": "x"}]):
        with pytest.raises(Unsupported):
            streams.lzma_stream(3, filters)
    with pytest.raises(Unsupported):
        streams.lzma_stream(7)


@pytest.mark.parametrize("container", ["gzip", "zlib"])
@given(st.data())
def test_libdeflate_gives_no_other_bytes_than_the_standard_library(
    container: Literal["gzip", "zlib"], drawn: st.DataObject
) -> None:
    """Damaged, cut, joined and prolonged streams: the same bytes, or both refuse.

    Only libdeflate decodes the reserved length codes 286 and 287, as the greatest length; the checksum then shows that this
    was meant: bit 1 of byte 15 in the gzip stream of 99 times `abc`.
    """
    encode = stdlib_gzip.compress if container == "gzip" else zlib.compress
    decoder = streams.Deflate(container, container)
    data = drawn.draw(st.sampled_from([b"x", b"abc" * 99, SMOOTH[:3000], NOISE[:3000]]))
    stored = bytearray(encode(data))
    for _ in range(drawn.draw(st.integers(0, 2))):
        stored[drawn.draw(st.integers(0, len(stored) - 1))] ^= 1 << drawn.draw(st.integers(0, 7))
    stored += drawn.draw(st.sampled_from([b"", b"\0", bytes(stored[-4:]), encode(b""), encode(data)]))
    piece = bytes(stored[: drawn.draw(st.one_of(st.just(len(stored)), st.integers(0, len(stored))))])
    for size in (len(data), 2 * len(data), len(data) + 1):
        found: list[bytes | None] = []
        for fast in (True, False):
            out = memoryview(bytearray(size)) if drawn.draw(st.booleans()) else None
            try:
                if fast:
                    found.append(bytes(decoder.decode(piece, size, LIMIT, out)))
                else:
                    found.append(bytes(streams.inflate_by_zlib(container, piece, streams.Output(size, LIMIT, out))))
            except CorruptData:
                found.append(None)
        assert found[0] == found[1] or found == [data, None]


@pytest.mark.parametrize("container", ["gzip", "zlib"])
def test_libdeflate_decodes_one_stream_and_nothing_else(container: Literal["gzip", "zlib"]) -> None:
    stored = stdlib_gzip.compress(SMOOTH) if container == "gzip" else zlib.compress(SMOOTH)
    out = memoryview(bytearray(len(SMOOTH)))
    assert native.inflate(container, stored, out)
    assert out == SMOOTH
    for bad in (b"", stored[:-1], stored + b"\0", stored * 2, stored[:-1] + bytes([stored[-1] ^ 1])):
        assert not native.inflate(container, bad, out)
    for size in (len(SMOOTH) - 1, len(SMOOTH) + 1):
        assert not native.inflate(container, stored, memoryview(bytearray(size)))
