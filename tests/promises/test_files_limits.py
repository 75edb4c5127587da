"""Whole-array files that are huge, damaged or replaced, and what the cache must hold. Not here: what each type says."""

from __future__ import annotations

import errno
import io
import mmap
import os
import re
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeAlias

import h5py
import numcodecs
import numpy as np
import pytest
import zarr
from mounting import MountFunction

Order: TypeAlias = Literal["C", "F"]


def test_p2_arrays_of_many_terabytes(tmp_path: Path, mount: MountFunction) -> None:
    """Nothing stored but one chunk: sizes and any bytes at once; above what a file can have there is none."""
    group = zarr.create_group(tmp_path / "s.zarr")
    array = group.create_array("a", shape=(32768, 32768, 32768), chunks=(64, 64, 64), dtype="<u2", fill_value=5)
    array[:64, :64, :64] = 3
    group.create_array("huge", shape=(2**31, 2**31), chunks=(2**10, 2**10), dtype="<u2")
    mounted = mount(tmp_path / "s.zarr", "--layout", "files", "--files", "all")
    for suffix, header in {"npy": 128, "raw": 0, "tif": None, "mrc": 1024}.items():
        path = mounted / f"a.{suffix}"
        size = os.stat(path).st_size
        assert header is None or size == 2**46 + header
        with open(path, "rb") as file:
            file.read(64)
            for place in (size // 2 & ~1, size - 8):
                file.seek(place)
                assert struct.unpack("<H", file.read(2)) == (5,)
    assert os.path.exists(mounted / "huge.json")
    assert not os.path.exists(mounted / "huge.npy")


def test_p8_a_damaged_chunk(tmp_path: Path, mount: MountFunction) -> None:
    """Reads of whole pages that hold none of its bytes are right; the others are EIO."""
    values = np.arange(64 * 64 * 64, dtype="<u4").reshape(64, 64, 64)
    group = zarr.create_group(tmp_path / "s.zarr")
    group.create_array("a", shape=values.shape, chunks=(16, 64, 64), dtype="<u4")[...] = values
    damaged = tmp_path / "s.zarr/a/c/2/0/0"
    damaged.write_bytes(damaged.read_bytes()[:100])
    mounted = mount(tmp_path / "s.zarr", "--layout", "files")
    mounted.allow("a/c/2/0/0|READ|read")
    content, plane = values.tobytes(), 64 * 64 * 4
    fd = os.open(mounted / "a.raw", os.O_RDONLY)
    try:
        for place in range(0, len(content), 4096):
            if 32 * plane <= place < 48 * plane:
                with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                    os.pread(fd, 4096, place)
            else:
                assert os.pread(fd, 4096, place) == content[place : place + 4096]
    finally:
        os.close(fd)


def test_p9_a_replaced_chunk_and_a_grown_store(tmp_path: Path, mount: MountFunction) -> None:
    group = zarr.create_group(tmp_path / "s.zarr")
    array = group.create_array("a", shape=(64, 4096), chunks=(8, 4096), dtype="<u2", fill_value=1)
    array[:32] = 2
    mounted = mount(tmp_path / "s.zarr", "--layout", "files")
    with open(mounted / "a.raw", "rb", buffering=0) as held:
        assert held.read(8192) == struct.pack("<H", 2) * 4096
        mapped = np.load(mounted / "a.npy", mmap_mode="r")
        assert mapped[40, 0] == 1
        array[:8] = 7
        array[32:] = 9
        assert (np.load(mounted / "a.npy")[:8] == 7).all()
        assert (np.load(mounted / "a.npy")[32:] == 9).all()
        assert mapped[40, 0] == 1
        held.seek(0)
        assert held.read(8192) == struct.pack("<H", 2) * 4096  # the page cache has it
    array.resize((72, 4096))
    assert np.load(mounted / "a[:].npy").shape == (72, 4096)
    assert np.load(mounted / "a.npy").shape == (72, 4096)


def test_without_room_for_a_band_opening_is_efbig(tmp_path: Path, mount: MountFunction) -> None:
    values = np.random.default_rng(1).integers(0, 60000, (64, 512, 512)).astype("<u2")
    group = zarr.create_group(tmp_path / "s.zarr")
    group.create_array("a", shape=values.shape, chunks=(32, 64, 64), dtype="<u2")[...] = values
    small = mount(tmp_path / "s.zarr", "--layout", "files", "--cache-size", "16M", "--spill-size", "4M")
    small.allow("spill-size")
    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        (small / "a.npy").read_bytes()
    assert small.told("16777216 bytes of decoded chunks")
    enough = mount(tmp_path / "s.zarr", "--layout", "files", "--cache-size", "16M", "--spill-dir", str(tmp_path))
    np.testing.assert_array_equal(np.load(enough / "a.npy"), values)


def test_p6_one_uncompressed_chunk_may_be_larger_than_the_cache(tmp_path: Path, mount: MountFunction) -> None:
    values = np.random.default_rng(1).integers(0, 60000, (32, 256, 512)).astype("<u2")
    formats: tuple[Literal[2], Literal[3]] = (2, 3)
    for format_ in formats:
        group = zarr.create_group(tmp_path / f"s{format_}.zarr", zarr_format=format_)
        group.create_array("a", shape=values.shape, chunks=values.shape, dtype="<u2", compressors=None)[...] = values
        group.create_array("b", shape=values.shape, chunks=values.shape, dtype="<u2")[...] = values
        small = mount(tmp_path / f"s{format_}.zarr", "--layout", "files", "--cache-size", "4M")
        small.allow("cache-size")
        np.testing.assert_array_equal(np.load(small / "a.npy"), values)
        np.testing.assert_array_equal(np.load(small / "a[::2,5:9,::-3].npy"), values[::2, 5:9, ::-3])
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            (small / "b.npy").read_bytes()


@pytest.mark.parametrize("order", ["C", "F"])
def test_p6_the_cache_that_a_large_compressed_chunk_needs_is_named(
    tmp_path: Path, mount: MountFunction, order: Order
) -> None:
    """The named size is enough, also if the elements of the chunk are put into another order (HDF5 knows none but C's)."""
    values = np.random.default_rng(1).integers(0, 60000, (8, 256, 1024)).astype("<u2")
    group = zarr.create_group(tmp_path / "s.zarr", zarr_format=2)
    options: dict[str, Any] = {"order": order, "compressors": numcodecs.Zstd()}
    group.create_array("a", shape=values.shape, chunks=values.shape, dtype="<u2", **options)[...] = values
    small = mount(tmp_path / "s.zarr", "--layout", "zarr3,files", "--cache-size", "6M")
    small.allow("permits it")
    needed = []
    for number, path in enumerate(("zarr3/a/c/0/0/0", "files/a.npy", "files/a.h5"), 1):
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            (small / path).read_bytes()
        told = small.told(r"--cache-size \d+M permits it", number)
        needed.append(int(re.findall(r"--cache-size (\d+)M", told[-1])[0]))
    for path, size in zip(("zarr3/a/c/0/0/0", "files/a.npy", "files/a.h5"), needed, strict=True):
        enough = mount(tmp_path / "s.zarr", "--layout", "zarr3,files", "--cache-size", f"{size}M")
        found = (enough / path).read_bytes()
        if path.endswith("npy"):
            np.testing.assert_array_equal(np.load(enough / path), values)
        elif path.endswith("h5"):
            np.testing.assert_array_equal(h5py.File(io.BytesIO(found))["a"][()], values)
        else:
            assert found == values.tobytes(order)


@pytest.mark.parametrize("order", ["C", "F"])
def test_p6_a_compressed_chunk_may_take_most_of_the_cache(tmp_path: Path, mount: MountFunction, order: Order) -> None:
    """One codec decodes it into its place, by two readers of different ones too; two codecs need as much memory again."""
    values = (np.arange(2 * 8 * 256 * 1024) // 5000).astype("<u2").reshape(16, 256, 1024)
    group = zarr.create_group(tmp_path / "s.zarr", zarr_format=2)
    options: dict[str, Any] = {"shape": values.shape, "chunks": (8, 256, 1024), "dtype": "<u2", "order": order}
    for name, filters, compressor in (("a", None, numcodecs.Zstd()), ("b", [numcodecs.Shuffle(2)], numcodecs.GZip())):
        group.create_array(name, filters=filters, compressors=compressor, **options)[...] = values
    tree = mount(tmp_path / "s.zarr", "--layout", "zarr3,files", "--cache-size", "6M")
    expected = [values[start : start + 8].tobytes(order) for start in (0, 8)]
    with ThreadPoolExecutor(2) as threads:
        paths = [tree / f"zarr3/a/c/{number}/0/0" for number in (0, 1)]
        assert list(threads.map(Path.read_bytes, paths)) == expected
    if order == "C":
        np.testing.assert_array_equal(np.load(tree / "files/a.npy"), values)
        np.testing.assert_array_equal(np.load(tree / "files/a[:,3].npy"), values[:, 3])
        with h5py.File(tree / "files/a.h5") as file:
            np.testing.assert_array_equal(file["a"][()], values)
    tree.allow("permits it")
    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        (tree / "zarr3/b/c/0/0/0").read_bytes()
    enough = mount(tmp_path / "s.zarr", "--cache-size", "8M")
    assert (enough / "b/c/1/0/0").read_bytes() == expected[1]


def test_rows_of_planes_through_mmap_are_right_and_cost_no_other_chunks(tmp_path: Path, mount: MountFunction) -> None:
    """Read-around is declined there; whatever the same descriptor and mapping are asked for next is right, too."""
    values = np.random.default_rng(1).integers(0, 60000, (24, 1024, 1024)).astype("<u2")
    group = zarr.create_group(tmp_path / "s.zarr")
    group.create_array("a", shape=values.shape, chunks=(8, 64, 64), dtype="<u2")[...] = values
    mounted = mount(tmp_path / "s.zarr", "--layout", "files")
    mapped = np.load(mounted / "a.npy", mmap_mode="r")
    for row in (512, 513, 700, 3):
        np.testing.assert_array_equal(mapped[:, row], values[:, row])
    np.testing.assert_array_equal(mapped[:, 100:140], values[:, 100:140])
    np.testing.assert_array_equal(mapped[::-1, 900], values[::-1, 900])
    np.testing.assert_array_equal(mapped, values)
    with (mounted / "a[::-1].npy").open("rb", buffering=0) as file:
        content, header = values[::-1].tobytes(), 128
        for start in [*range(0, 24 << 21, 2 << 21), *range(1 << 20, 24 << 21, 2 << 21)]:
            assert os.pread(file.fileno(), 1 << 20, header + start) == content[start : start + (1 << 20)]
        assert file.readall() == (mounted / "a[::-1].npy").read_bytes()
    descriptor = os.open(mounted / "a[:,::-1].npy", os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, 1 << 17)
    for start in range(0, 24 << 21, 2 << 21):
        assert os.preadv(descriptor, [buffer], start) == 1 << 17
    os.close(descriptor)
