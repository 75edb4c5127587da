"""Chunks just below, at and above the sizes at which reading takes another way: at once, ahead, decoded in parts.

What independent writers wrote, in every format, read from front to back, at random, and while it is replaced or cut off.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import pytest
import zarr
from mounting import Mount, MountFunction
from n5_arrays import write_n5
from waiting import until
from zarr.codecs import BloscCodec

LIMITS = [64 << 10, 128 << 10, 512 << 10, 1 << 20, 4 << 20]
SIZES = [limit + change for limit in LIMITS for change in (-1, 0, 1)]
CHUNKS = 7
"""Chunks of each array: enough for some that are read ahead."""

PIECE = 256 << 10


def content(size: int, chunk: int) -> bytes:
    """The bytes of one chunk: each page differs from its neighbours and from those of other chunks."""
    pattern = (np.arange(4099) % 251 + 1).astype("u1") ^ np.uint8(37 * chunk % 256)
    return np.resize(pattern, size).tobytes()


def values(size: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(b"".join(content(size, chunk) for chunk in range(CHUNKS)), "u1")


def zarr2(path: Path) -> None:
    for size in SIZES:
        zarr.create_array(
            path / str(size), shape=(CHUNKS * size,), chunks=(size,), dtype="u1", zarr_format=2,
            compressors=numcodecs.Zstd(1), fill_value=0,
        )[...] = values(size)  # fmt: skip
    zarr.open_group(path, mode="a", zarr_format=2)


def zarr3(path: Path) -> None:
    """In shards of seven chunks."""
    zarr.open_group(path, mode="a", zarr_format=3)
    for size in SIZES:
        zarr.create_array(
            path / str(size), shape=(CHUNKS * size,), chunks=(size,), shards=(7 * size,), dtype="u1", zarr_format=3,
            compressors=BloscCodec(cname="lz4"), fill_value=0,
        )[...] = values(size)  # fmt: skip


def n5(path: Path) -> None:
    for size in SIZES:
        write_n5(path / str(size), values(size), [size])
    (path / "attributes.json").write_text('{"n5": "2.0.0"}')


def hdf5(path: Path) -> None:
    with h5py.File(path, "w", libver="latest") as file:
        for size in SIZES:
            options = {"compression": "gzip", "compression_opts": 1, "shuffle": True}
            file.create_dataset(str(size), data=values(size), chunks=(size,), **options)


WRITERS: dict[str, Callable[[Path], None]] = {"s.zarr2": zarr2, "s.zarr3": zarr3, "s.n5": n5, "s.h5": hdf5}


@pytest.fixture(scope="module", params=list(WRITERS))
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name: str = request.param
    path = tmp_path_factory.mktemp("sizes") / name
    WRITERS[name](path)
    return path


def pieces(fd: int) -> Iterator[bytes]:
    while piece := os.read(fd, PIECE):
        yield piece


def read(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return b"".join(pieces(fd))
    finally:
        os.close(fd)


def test_p12_chunks_of_sizes_around_every_limit(source: Path, mount: MountFunction) -> None:
    tree = mount(source)
    wrong = []
    for size in SIZES:
        folder = tree / f"{size}/c"
        names = sorted(os.listdir(folder), key=int)
        assert names == [str(chunk) for chunk in range(CHUNKS)]
        for chunk in [*range(CHUNKS), 5, 2]:  # from front to back, then what was read already
            if read(folder / str(chunk)) != content(size, chunk):
                wrong.append((size, chunk))
    assert wrong == []


def test_p2_any_part_of_chunks_of_sizes_around_every_limit(source: Path, mount: MountFunction) -> None:
    tree = mount(source)
    for size in SIZES:
        for chunk in (6, 2, 0, 4):  # no sequence is followed
            whole = content(size, chunk)
            with open(tree / f"{size}/c/{chunk}", "rb", buffering=0) as file:
                assert os.fstat(file.fileno()).st_size == size
                for start in (size - 1, size - 4097, size // 2, 0):
                    assert os.pread(file.fileno(), 5000, start) == whole[start : start + 5000]
                assert os.pread(file.fileno(), 10, size) == b""


def stored(path: Path, size: int, chunk: int) -> Path:
    """The object that holds a chunk: of a format in which each chunk has one."""
    return path / str(size) / str(chunk)


def settled(path: Path) -> None:
    """Wait until a change of `path` cannot be taken for an earlier one."""
    until(lambda: time.time_ns() - path.stat().st_ctime_ns >= 30_000_000)


def outcome(fd: int, size: int) -> bytes | int:
    """All that an open file shows, in pieces, or the error it ends with."""
    found = b""
    try:
        while len(found) < size and (
            piece := os.pread(fd, PIECE, len(found))
        ):  # the kernel gives what it has before an error
            found += piece
    except OSError as error:
        return error.errno or 0
    return found


@pytest.mark.parametrize("name", ["s.zarr2", "s.n5"])
def test_p9_a_chunk_that_is_replaced_or_cut_off_under_an_open_file(tmp_path: Path, mount: MountFunction, name: str) -> None:
    source = tmp_path / name
    WRITERS[name](source)
    settled(stored(source, SIZES[-1], CHUNKS - 1))
    tree: Mount = mount(source)
    tree.allow(r"chunk|stored|changed|bytes|replaced|zstd|gzip")
    for size in SIZES:
        folder, old = tree / f"{size}/c", content(size, 4)
        for chunk in range(4):  # so the next ones may be in the page cache already
            assert read(folder / str(chunk)) == content(size, chunk)
        opened = os.open(folder / "4", os.O_RDONLY)
        begun = os.open(folder / "5", os.O_RDONLY)
        try:
            assert os.pread(begun, 4096, 0) == content(size, 5)[:4096]
            replacement = tmp_path / "new"
            replacement.write_bytes(stored(source, size, 0).read_bytes())
            os.replace(replacement, stored(source, size, 4))
            os.truncate(stored(source, size, 5), stored(source, size, 5).stat().st_size // 2)
            assert outcome(opened, size) in (old, errno.ESTALE, errno.EIO), size
            assert outcome(begun, size) in (content(size, 5), errno.ESTALE, errno.EIO), size
            settled(stored(source, size, 5))
            assert read(folder / "4") == content(size, 0), "a new open shows what is there now"
            with pytest.raises(OSError, match="Input/output error"):
                read(folder / "5")
            with open(stored(source, size, 6), "ab") as file:
                file.write(b"more")  # behind the end of the compressed stream
            settled(stored(source, size, 6))
            try:
                grown: bytes | int | None = read(folder / "6")
            except OSError as error:
                grown = error.errno
            assert grown in (content(size, 6), errno.EIO), size
        finally:
            os.close(opened)
            os.close(begun)


@pytest.mark.parametrize("name", ["s.zarr3", "s.h5"])
def test_p2_a_file_of_many_chunks_that_is_cut_off_while_open(tmp_path: Path, mount: MountFunction, name: str) -> None:
    """Shards and HDF5: what is shown then is what was there, or an error."""
    source = tmp_path / name
    WRITERS[name](source)
    tree: Mount = mount(source)
    tree.allow(r".")
    opened = {size: os.open(tree / f"{size}/c/1", os.O_RDONLY) for size in SIZES}
    try:
        for size in SIZES:
            assert os.pread(opened[size], 4096, 0) == content(size, 1)[:4096]
        for path in [source] if source.is_file() else [source / f"{size}/c/0" for size in SIZES]:
            os.truncate(path, 3000)
        for size in SIZES:
            assert outcome(opened[size], size) in (content(size, 1), errno.ESTALE, errno.EIO), size
    finally:
        for fd in opened.values():
            os.close(fd)
    for size in SIZES:
        with pytest.raises(OSError, match=r"Input/output error|Stale"):
            read(tree / f"{size}/c/1")
