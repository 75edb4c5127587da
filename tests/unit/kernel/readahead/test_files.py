"""Read-ahead in files: chunks are decoded once and right, long files made ready in parts. Not here: which are followed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import h5py
import numpy as np
import pytest
from fake_model import FakeChunks, fake_array, tree
from fake_tree import FakeFile, FakeSpace, SpaceDirectory
from handlers import CTX, look_up, with_filesystem
from read_ahead import Following, Later, Now, open_file
from waiting import Clock, eventually, until

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import NotFound
from fsbridge.formats.open import open_source
from fsbridge.kernel.filesystem import Filesystem
from fsbridge.kernel.handles import OpenFile
from fsbridge.kernel.readahead.files import (
    MAX_SPACES,
    MOST_WINDOWS,
    REMOTE,
    Readers,
)
from fsbridge.layouts import root_directory
from fsbridge.metadata import Index
from fsbridge.model import ChunkInfo
from fsbridge.tree import AnyNode, Buffer, Directory, File, Unsettled


def read_all(directory: Directory, count: int) -> list[bytes]:
    following = Following(directory)
    return [following.read(b"c", b"%d" % number) for number in range(count)]


def test_every_chunk_is_decoded_once_and_right() -> None:
    values = np.arange(800, dtype="<u2")
    array = fake_array(values, (80,))
    assert b"".join(read_all(tree(array), 10)) == values.tobytes()
    assert sorted(array.chunks.decoded) == [(i,) for i in range(10)]


class Quietly(Now):
    """A failure of read-ahead is an error for no reader."""

    def submit(self, job: Callable[[], object], dropped: Callable[[], object] = lambda: None, asked: bool = False) -> None:
        with contextlib.suppress(NotFound, ValueError):
            job()


def test_a_sparse_or_damaged_chunk_ahead_harms_no_reader() -> None:
    values = np.arange(800, dtype="<u2")
    array = fake_array(values, (80,))
    del array.chunks.stored[(5,)]
    array.chunks.stored[(3,)] = b"short"
    following = Following(tree(array), Quietly())
    for number in range(10):
        expected = values[80 * number : 80 * (number + 1)].tobytes()
        if number == 5:
            with pytest.raises(NotFound):
                following.read(b"c", b"5")
        elif number == 3:
            with pytest.raises(ValueError, match="different structures"):  # what this fake raises for wrong lengths
                following.read(b"c", b"3")
        else:
            assert following.read(b"c", b"%d" % number) == expected


def test_a_chunk_replaced_after_it_was_read_ahead_is_read_again() -> None:
    array = fake_array(np.zeros(400, "<u2"), (80,))
    following = Following(tree(array))
    assert [following.read(b"c", name) for name in (b"0", b"1")] == [bytes(160)] * 2
    assert (2,) in array.chunks.decoded
    array.chunks.stored[(2,)] = b"\7" * 160
    array.chunks.version += 1
    handle = following.open(b"c", b"2")
    assert handle.peek(0, 160) is None
    assert bytes(handle.read(0, 160)) == b"\7" * 160


FEW = 2
"""Windows that are made ready ahead of a reader of the largest ones."""


def find_windows(reads: list[tuple[int, int]], window: int = 100, most: int = FEW) -> list[tuple[int, int]]:
    """The parts of a long file that are made ready ahead of a reader of those ranges."""
    file = FakeFile(bytes(1000), window=window)
    readers = Readers(Now(), most_windows=most)
    reading = OpenFile(5, file.open(), file)
    readers.note_open(reading.slot, reading.size)
    for start, stop in reads:
        readers.note_read(reading, start, stop)
    return file.prefetched


def test_small_windows_are_made_further_ahead() -> None:
    assert find_windows([(0, 50), (50, 100)], most=MOST_WINDOWS) == [(n, n + 100) for n in range(100, 900, 100)]


def test_a_long_file_is_made_ready_ahead_of_a_sequential_reader() -> None:
    assert find_windows([(0, 50)]) == []
    assert find_windows([(0, 50), (50, 100)]) == [(100, 200), (200, 300)]
    assert find_windows([(0, 50), (50, 100), (100, 150)]) == [(100, 200), (200, 300), (300, 400)]
    assert find_windows([(0, 50), (100, 150), (50, 100)]) == [(150, 250), (250, 350)], "overtaken"
    assert find_windows([(n, n + 50) for n in range(0, 1000, 50)])[-1] == (900, 1000), "its end is the end"
    assert find_windows([(0, 50), (600, 650), (300, 350), (900, 950)]) == []
    assert find_windows([(n, n + 50) for n in range(0, 1000, 50)], window=0) == []
    assert find_windows([(n, n + 10) for n in range(0, 1000, 30)]) == [], "a row of each plane, through mmap"
    assert find_windows([(0, 10), (10, 20)]) == [], "a few bytes"


def test_parts_of_a_long_remote_file_are_made_a_few_at_a_time_too() -> None:
    """With all the threads that wait for the network, each took the others' memory out of the processors' caches."""
    sending, making = Later(), Later()
    readers = Readers(sending, REMOTE, making, FEW)
    file = FakeFile(bytes(1000), window=100)
    opened = OpenFile(1, file.open(), file)
    for start in (0, 50):
        readers.note_read(opened, start, start + 50)
    assert not sending.jobs
    assert len(making.jobs) == 2


def test_unread_spaces_are_forgotten() -> None:
    readers = Readers(Now())
    spaces = [FakeSpace(10) for _ in range(MAX_SPACES + 3)]
    for space in spaces:
        readers.note_open((space, 0), 1)
    assert len(readers._streams) == MAX_SPACES
    for space in spaces:
        readers.forget(space)
    assert not readers._streams


class Ranged(FakeChunks):
    """Chunks that are read by range, too; `asked`: the ranges."""

    def __init__(self, stored: dict[Index, bytes]) -> None:
        super().__init__(stored)
        self.asked: list[tuple[int, int]] = []

    def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes:
        self.asked.append((start, stop))
        return self.stored[index][start:stop]


def test_sequential_reads_decode_the_chunk_and_random_ones_a_part_of_it() -> None:
    values = np.arange(500_000, dtype="<u2")
    array = fake_array(values, (500_000,))
    array.chunks = ranged = Ranged(array.chunks.stored)
    root = tree(array)
    random = open_file(root, b"c", b"0")
    for offset in (0, 40960, 700_000, 8192, 4096):
        assert bytes(random.read(offset, 4096)) == values.tobytes()[offset : offset + 4096]
    assert len(ranged.asked) == 5
    assert array.chunks.decoded == []
    for start, step in ((0, 131072), (0, 4096)):
        whole = open_file(root, b"c", b"0")
        ranged.asked.clear()
        for offset in range(start, 600_000, step):
            part = whole.read(offset, step)
            assert bytes(part) == values.tobytes()[offset : offset + step]
        assert len(ranged.asked) <= 1
    assert len(array.chunks.decoded) == 1


def test_p9_two_changes_within_one_tick_of_the_clock_are_two_versions(tmp_path: Path) -> None:
    """In place, same size, same time: their stamps are equal, and a reader of the first must not get it again."""
    write_raw(tmp_path, b"a")
    config = Config(str(tmp_path), "/mnt")
    source = open_source(config.source, config)
    root = root_directory(source, config, ChunkCache(config.cache_size))
    moment, contents = time.time_ns(), itertools.cycle((b"b", b"c", b"d"))

    def is_read_within_a_tick() -> bool:
        content = next(contents) * 100
        with open(tmp_path / "0", "r+b") as file:
            file.write(content)
        os.utime(tmp_path / "0", ns=(moment, moment))
        handle = open_file(root, b"c", b"0")
        assert bytes(handle.peek(0, 100) or handle.read(0, 100)) == content
        return isinstance(handle.version, Unsettled)

    for _ in range(5):
        until(is_read_within_a_tick)
    source.close()


def test_a_chunk_that_has_settled_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_raw(tmp_path, b"a")
    Clock(monkeypatch).settles()
    config = Config(str(tmp_path), "/mnt")
    source = open_source(config.source, config)
    root = root_directory(source, config, ChunkCache(config.cache_size))
    first, second = open_file(root, b"c", b"0"), open_file(root, b"c", b"0")
    assert first.version == second.version
    assert bytes(first.read(0, 100)) == b"a" * 100
    assert second.peek(0, 100) == b"a" * 100
    source.close()


def write_raw(folder: Path, content: bytes) -> None:
    metadata = {"zarr_format": 2, "shape": [100], "chunks": [100], "dtype": "|u1", "fill_value": 0, "order": "C"}
    (folder / ".zarray").write_text(json.dumps({**metadata, "compressor": None, "filters": None}))
    (folder / "0").write_bytes(content * 100)


def test_chunks_of_an_hdf5_file_are_made_ready_ahead(tmp_path: Path) -> None:
    values = np.arange(30_000, dtype="u2")
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.create_dataset("data", data=values, chunks=(10_000,), compression="gzip")
    config = Config(str(tmp_path / "f.h5"), "/mnt")
    source = open_source(config.source, config)
    chunk: AnyNode = root_directory(source, config, ChunkCache(config.cache_size))
    for name in (b"data", b"c", b"1"):
        chunk = cast(Directory, chunk).lookup(name)
    assert chunk.slot is not None
    space, position = chunk.slot

    def prefetch() -> Buffer | None:  # nothing is made of a file that was written within a tick of the disk's clock
        assert space.prefetch([position]) is None
        return cast(File, chunk).open().peek(0, 20_000)

    ready = until(prefetch)
    source.close()
    assert ready is not None
    assert bytes(ready) == values[10_000:20_000].tobytes()


@pytest.mark.parametrize(("size", "least", "most"), [(1 << 20, 4, 8), (128 << 10, 16, 32)])
def test_files_on_a_disk_are_read_ahead_by_bytes(size: int, least: int, most: int) -> None:
    asked: list[int] = []

    class Asked(FakeSpace):
        def make(self, position: int) -> bool:
            asked.append(position)
            return True

    async def test(filesystem: Filesystem) -> None:
        for number in range(1, 40):
            fh = (await filesystem.open(await look_up(filesystem, b"%d" % number), os.O_RDONLY, CTX)).fh
            await filesystem.read(fh, size - 10, 10)
            await filesystem.release(fh)
        await eventually(lambda: asked and max(asked) >= 39 + least)

    with_filesystem(test, SpaceDirectory(Asked(1000, size), 1000))
    assert max(asked) <= 39 + most
