"""HDF5's filters: chunks written by h5py and hdf5plugin, decoded here, equal to what HDF5 itself reads."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsbridge.codecs import CodecChain, hdf5, table
from fsbridge.errors import CorruptData, FsbridgeError

hdf5plugin.register(force=True)  # PyTables, when imported before, has brought a Blosc filter that refuses single elements

LIMIT = 1 << 24
RNG = np.random.default_rng(11)
RAMP = (np.arange(3001) // 7 % 900).astype("<i4")
FLOATS = np.round(RNG.standard_normal(3001) * 1000, 3)


Chunk = tuple[int, bytes]
Pipeline = list[tuple[int, tuple[int, ...]]]


def written(tmp_path: Path, data: np.ndarray, **options: Any) -> tuple[Chunk, Pipeline]:
    """The stored chunk (filter mask, bytes) and the filters (number, client data) of a one-chunk dataset by h5py."""
    with h5py.File(tmp_path / "f.h5", "w") as file:
        dataset = file.create_dataset("d", data=data, chunks=data.shape, **options)
        file.flush()
        chunk = dataset.id.read_direct_chunk((0,) * data.ndim)
        plist = dataset.id.get_create_plist()
        pipeline = [plist.get_filter(i) for i in range(plist.get_nfilters())]
        return chunk, [(entry[0], tuple(entry[2])) for entry in pipeline]


def decode(chunk: Chunk, pipeline: Pipeline, size: int) -> bytes:
    mask, stored = chunk
    steps = []
    for position, (number, values) in enumerate(pipeline):
        if not mask >> position & 1:
            step = table.filter_decoder(number, values)
            assert step is not None, number
            steps.append(step)
    out = memoryview(bytearray(b"\xa5" * size))
    CodecChain(tuple(steps[::-1])).decode_into(stored, out, LIMIT)
    return bytes(out)


def check(tmp_path: Path, data: np.ndarray, **options: Any) -> tuple[int, ...]:
    """Our bytes against HDF5's own reading of the dataset (lossy filters included); returns the filters' numbers."""
    chunk, pipeline = written(tmp_path, data, **options)
    with h5py.File(tmp_path / "f.h5") as file:
        expected = file["d"][...].tobytes()
    assert decode(chunk, pipeline, data.nbytes) == expected
    return tuple(number for number, _ in pipeline)


DTYPES = ["i1", "u1", "<i2", ">u2", "<i4", ">i4", "<u8", ">i8"]
COUNTS = [1, 7, 8, 9, 1000, 3001]


@pytest.mark.parametrize("dtype", [*DTYPES, "<f4", ">f8"])
def test_filters_of_h5py_are_decoded(tmp_path: Path, dtype: str) -> None:
    data = RAMP.astype(dtype)
    assert check(tmp_path, data, compression="gzip", shuffle=True, fletcher32=True) == (2, 1, 3)
    assert check(tmp_path, data, fletcher32=True) == (3,)


PLUGINS: dict[str, dict[str, Any]] = {
    "blosc": {"cname": "lz4", "shuffle": 1},
    "blosc bit": {"cname": "zstd", "shuffle": 2},
    "lz4": {},
    "lz4 blocks": {"nbytes": 512},
    "bzip2": {},
    "zstd": {},
    "bitshuffle": {"cname": "none"},
    "bitshuffle lz4": {"cname": "lz4"},
    "bitshuffle zstd": {"cname": "zstd"},
    "bitshuffle lz4 blocks": {"cname": "lz4", "nelems": 64},
}
MAKERS = {
    "blosc": hdf5plugin.Blosc,
    "lz4": hdf5plugin.LZ4,
    "bzip2": hdf5plugin.BZip2,
    "zstd": hdf5plugin.Zstd,
    "bitshuffle": hdf5plugin.Bitshuffle,
}


@pytest.mark.parametrize("name", PLUGINS)
@pytest.mark.parametrize("count", COUNTS)
def test_registered_filters_are_decoded(tmp_path: Path, name: str, count: int) -> None:
    for dtype in ("u1", "<i2", ">f4", "<f8"):
        for data in (np.resize(RAMP, count).astype(dtype), np.frombuffer(RNG.bytes(8 * count), "u1")[:count].astype(dtype)):
            check(tmp_path, data, **MAKERS[name.split()[0]](**PLUGINS[name]))


def test_bitshuffle_of_noise_with_blocks_that_do_not_shrink(tmp_path: Path) -> None:
    for element in (1, 2, 8):
        data = np.frombuffer(RNG.bytes(element * 50_000), f"u{element}")
        check(tmp_path, data, **hdf5plugin.Bitshuffle(cname="lz4"))


@pytest.mark.parametrize("size", [3, 24, 255, 256, 300])
def test_bitshuffle_decodes_structs_of_any_size(tmp_path: Path, size: int) -> None:
    data = np.frombuffer(RNG.bytes(size * 137), f"V{size}")
    check(tmp_path, data, **hdf5plugin.Bitshuffle(cname="none"))
    check(tmp_path, data, **hdf5plugin.Bitshuffle(cname="lz4", nelems=16))


def test_filters_that_work_piece_by_piece_on_chunks_of_several_pieces(tmp_path: Path) -> None:
    kind = UNSIGNED[2].copy()
    kind.set_precision(11)
    for count in (hdf5.UNPACKED_PIECE + 1, 3 * hdf5.UNPACKED_PIECE - 3):
        numbers = RNG.integers(0, 1 << 11, count).astype("<u2")
        assert check(tmp_path, numbers, scaleoffset=0) == (6,)
        assert packed(tmp_path, kind, numbers) == numbers.tobytes()
    for element in (1, 3, 300):
        data = np.frombuffer(RNG.bytes((2 * hdf5.BATCH_ELEMENTS // element + 77) * element), f"V{element}")
        check(tmp_path, data, **hdf5plugin.Bitshuffle(cname="none"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", COUNTS)
def test_scaleoffset_decodes_integers_over_their_whole_range(tmp_path: Path, dtype: str, count: int) -> None:
    kind = np.dtype(dtype)
    limits = np.iinfo(kind)
    for low, high in ((limits.min, limits.max), (limits.min, limits.min + 5), (limits.max - 90, limits.max), (3, 3), (0, 1)):
        data = RNG.integers(low, high, count, kind.newbyteorder("="), endpoint=True).astype(kind)
        for fill in (None, 7):
            assert check(tmp_path, data, scaleoffset=0, fillvalue=fill) == (6,)
            assert check(tmp_path, data, scaleoffset=8 * kind.itemsize, fillvalue=fill) == (6,)
    data = np.full(count, 7, kind)
    data[: count // 2] = 9
    assert check(tmp_path, data, scaleoffset=0, fillvalue=7) == (6,)
    assert check(tmp_path, data % 8, scaleoffset=5, fillvalue=7) == (6,)
    assert check(tmp_path, data, scaleoffset=0, shuffle=True, compression="gzip") == (6, 2, 1)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("decimals", [0, 1, 3, 9])
def test_scaleoffset_decodes_floats_as_hdf5_does(tmp_path: Path, dtype: str, decimals: int) -> None:
    for scale in (1e-3, 1.0, 1e3):
        data = (FLOATS * scale).astype(dtype)
        check(tmp_path, data, scaleoffset=decimals)
        data[::5] = 1.5
        check(tmp_path, data, scaleoffset=decimals, fillvalue=1.5)
    check(tmp_path, np.full(100, 2.25, dtype), scaleoffset=decimals)


UNSIGNED = {1: h5py.h5t.STD_U8LE, 2: h5py.h5t.STD_U16LE, 4: h5py.h5t.STD_U32LE, 8: h5py.h5t.STD_U64LE}
FIELDS = [(1, 3, 2), (2, 11, 0), (2, 16, 0), (4, 17, 5), (4, 32, 0), (8, 40, 24), (8, 1, 63)]


@pytest.mark.parametrize(("order", "mark"), [(h5py.h5t.ORDER_LE, "<"), (h5py.h5t.ORDER_BE, ">")])
@pytest.mark.parametrize(("size", "precision", "offset"), FIELDS)
def test_nbit_gives_the_numbers_that_were_packed(
    tmp_path: Path, order: int, mark: str, size: int, precision: int, offset: int
) -> None:
    kind = UNSIGNED[size].copy()
    kind.set_order(order)
    kind.set_precision(precision)
    kind.set_offset(offset)
    for count in COUNTS:
        numbers = RNG.integers(0, 1 << precision, count, "u8").astype(f"u{size}")
        values = np.frombuffer(packed(tmp_path, kind, numbers), f"{mark}u{size}") >> np.array(offset, f"u{size}")
        np.testing.assert_array_equal(values, numbers)


def packed(tmp_path: Path, kind: h5py.h5t.TypeIntegerID, numbers: np.ndarray) -> bytes:
    """Decode one chunk of `numbers` that HDF5 writes as `kind` with its nbit filter."""
    with h5py.File(tmp_path / "n.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk(numbers.shape)
        plist.set_filter(5, h5py.h5z.FLAG_OPTIONAL)
        dataset = h5py.h5d.create(file.id, b"d", kind, h5py.h5s.create_simple(numbers.shape), plist)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(numbers))
        file.flush()
        used = dataset.get_create_plist().get_filter(0)
        return decode(dataset.read_direct_chunk((0,)), [(used[0], tuple(used[2]))], numbers.nbytes)


def test_what_only_hdf5_can_decode_has_no_decoder() -> None:
    for number, values in (
        (4, (141, 32)), (32013, (1,)), (32026, (1,)), (32000, (4, 261)), (5, (1, 0)), (5, (20, 0, 9, 3, 8, 1)), (6, (1, 2)),
        (6, (1, 2, 9, 1, 4, 1, 0, 0)), (32008, (0, 3)), (32008, (0, 3, 4, 0, 9)), (2, ()), (2, (0,)),
    ):  # fmt: skip
        assert table.filter_decoder(number, values) is None


DAMAGED: dict[str, dict[str, Any]] = {
    "gzip": {"compression": "gzip"},
    "scaleoffset": {"scaleoffset": 0},
    **{name: dict(MAKERS[name.split()[0]](**options)) for name, options in PLUGINS.items()},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_chunks_are_corrupt_or_of_the_right_size(tmp_path: Path, name: str) -> None:
    chunk, pipeline = written(tmp_path, RAMP, **DAMAGED[name])
    mask, stored = chunk
    for bad in (b"", stored[:1], stored[: len(stored) // 2], stored[:-1], stored + b"\0\0\0\0"):
        with pytest.raises(CorruptData):
            decode((mask, bad), pipeline, RAMP.nbytes)
    for size in (RAMP.nbytes - 4, RAMP.nbytes + 4, 0):
        with pytest.raises(FsbridgeError):
            decode((mask, stored), pipeline, size)
    for _ in range(60):
        changed = bytearray(stored)
        changed[int(RNG.integers(len(stored)))] ^= 1 << int(RNG.integers(8))
        with suppress(FsbridgeError):
            assert len(decode((mask, bytes(changed)), pipeline, RAMP.nbytes)) == RAMP.nbytes


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 64), st.lists(st.integers(0, 2**64 - 1), max_size=50))
def test_unpacked_bits_are_the_packed_numbers(width: int, numbers: list[int]) -> None:
    numbers = [number % (1 << width) for number in numbers]
    text = "".join(f"{number:0{width}b}" for number in numbers)
    packed = int(text.ljust(-(-len(text) // 8) * 8, "0") or "0", 2).to_bytes(-(-len(text) // 8), "big")
    itemsize = next(size for size in (1, 2, 4, 8) if width <= 8 * size)
    assert hdf5.unpack(packed, len(numbers), width, itemsize).tolist() == numbers


def test_decoders_are_named_after_filter_and_compressor() -> None:
    made = [table.filter_decoder(*given) for given in ((32008, (0, 3, 4, 0, 2)), (2, (4,)), (1, (6,)))]
    assert [step.name for step in made if step] == ["bitshuffle(lz4)", "shuffle", "zlib"]
