"""Decoded chunks of one array: versions, limits, and one version of an array as a whole (P9)."""

from __future__ import annotations

import math
import pickle
import threading
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from fake_model import FakeArray, FakeChunks, fake_array
from waiting import Clock

from fsbridge.config import MIB, Config
from fsbridge.decoded import ArrayVersion, DecodedArray, LookLimits
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import CorruptData, NotFound, Stale, TimedOut, TooLarge
from fsbridge.formats.open import open_source
from fsbridge.metadata import ArrayMetadata, ChunkGrid, DataType, Index
from fsbridge.model import Array, ChunkInfo, OpenChunk, Source, as_array

VALUES = np.arange(100, dtype="<u2").reshape(10, 10)


def chunks_of(
    array: Array, max_chunk: int = MIB, immutable: bool = False, limits: LookLimits | None = None, budget: int = 16 * MIB
) -> DecodedArray:
    return DecodedArray(array, ChunkCache(budget), max_chunk, immutable, limits)


@dataclass
class WatchedChunks(FakeChunks):
    """Each chunk has a version of its own; `asked` are the look-ups. `on_find` may change what a look-up has found."""

    versions: dict[Index, int] = field(default_factory=dict)
    asked: list[Index | str] = field(default_factory=list)
    on_find: Callable[[Index, ChunkInfo], ChunkInfo] | None = None

    def find(self, index: Index) -> ChunkInfo:
        self.asked.append(index)
        info = super().find(index)._replace(version=("v", self.versions.get(index, 0)))
        return info if self.on_find is None else self.on_find(index, info)

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        out[:] = self.stored[index]


@dataclass(eq=False)
class WatchedArray(FakeArray):
    """An array of `WatchedChunks`; its own look-ups are among theirs. `remote`: its chunks are worth fetching early."""

    chunks: WatchedChunks
    remote: bool = False

    def current(self) -> bool:
        self.chunks.asked.append("metadata")
        return super().current()

    @property
    def fetch(self) -> Callable[[Index], object] | None:
        return (lambda index: None) if self.remote else None


def watched_array(chunks: type[WatchedChunks] = WatchedChunks) -> WatchedArray:
    """4 x 5 chunks of 3 x 2 elements."""
    array = fake_array(VALUES, (3, 2))
    return WatchedArray(array.metadata, chunks(array.chunks.stored))


@pytest.fixture
def array() -> WatchedArray:
    return watched_array()


def replace(array: WatchedArray, index: Index, data: bytes | None) -> None:
    """Store other bytes for one chunk; the other chunks keep their versions."""
    if data is None:
        del array.chunks.stored[index]
    else:
        array.chunks.stored[index] = data
    array.chunks.versions[index] = time.perf_counter_ns()


def test_a_chunk_has_its_size_version_and_bytes(array: WatchedArray) -> None:
    chunks = chunks_of(array)
    chunk = chunks.open((1, 4))
    assert (chunk.size, chunk.version, chunks.size((1, 4))) == (12, ("v", 0), 12)
    assert chunk.peek(0, 12) is None
    assert bytes(chunk.decode()) == VALUES[3:6, 8:].tobytes()
    assert bytes(chunk.peek(2, 4) or b"") == bytes(chunk.read(2, 4)) == VALUES[3:6, 8:].tobytes()[2:6]
    with pytest.raises(NotFound):
        chunks.open((9, 9))


def test_p9_open_of_a_chunk_that_is_no_longer_the_one_meant_is_stale(array: WatchedArray) -> None:
    chunks = chunks_of(array)
    assert chunks.open((0, 0), ("v", 0)).size == 12
    with pytest.raises(Stale):
        chunks.open((0, 0), ("v", 1))
    array.newest = False
    with pytest.raises(Stale):
        chunks.open((0, 0))
    assert chunks_of(array, immutable=True).open((0, 0)).size == 12


def test_no_chunk_above_the_limit_is_decoded_whole(array: WatchedArray) -> None:
    chunk = chunks_of(array, max_chunk=11).open((0, 0))
    reads: list[Callable[[], object]] = [chunk.decode, lambda: chunk.read(0, 12)]
    for read in reads:
        with pytest.raises(TooLarge, match="the limit is 11"):
            read()
    assert chunks_of(array, max_chunk=11).prefetch([(0, 0)]) is None
    assert not array.chunks.decoded, "left undone"


@pytest.mark.parametrize("remote", [False, True])
def test_a_small_part_of_a_remote_chunk_takes_one_request(remote: bool) -> None:
    """A part by itself takes two of them, one after the other; the whole chunk one."""
    asked: list[tuple[int, int]] = []

    class Divisible(WatchedChunks):
        def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes:
            asked.append((start, stop))
            return self.stored[index][start:stop]

    array = watched_array(Divisible)
    array.remote = remote
    chunk = chunks_of(array).open((0, 0))
    assert bytes(chunk.read(8, 2)) == array.chunks.stored[(0, 0)][8:10]
    assert asked == ([] if remote else [(8, 10)])
    assert (chunk.peek(0, 12) is not None) == remote


def test_chunks_that_are_read_ahead_are_all_opened_first_and_closed_at_the_end() -> None:
    events: list[tuple[str, Index]] = []

    class HeldOpen(WatchedChunks):
        def open(self, index: Index, neighbour: OpenChunk | None = None) -> OpenChunk:
            info, held = self.find(index), ExitStack()
            events.append(("open", index))
            held.callback(events.append, ("close", index))
            return OpenChunk(info, partial(self.read_into, index, info), held)

        def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
            events.append(("read", index))
            if index == (0, 0):
                raise CorruptData("damaged")
            super().read_into(index, info, out)

    chunks, wanted = chunks_of(watched_array(HeldOpen)), [(0, 0), (9, 9), (0, 1)]
    assert chunks.prefetch(wanted) is None
    assert chunks.holds((0, 1))
    assert events == [(what, index) for what in ("open", "read", "close") for index in wanted if index != (9, 9)]


def test_prefetched_chunks_are_in_the_cache_and_those_without_room_are_reported(array: WatchedArray) -> None:
    chunks = chunks_of(array, budget=4 * 12)
    assert chunks.prefetch([(0, 0)]) is None
    assert chunks.prefetch([(0, 0), (0, 1)]) == 1, "prefetched chunks take a quarter of the cache at most"
    assert bytes(chunks.open((0, 0)).peek(0, 12) or b"") == array.chunks.stored[(0, 0)]


def test_p3_what_cannot_be_decoded_is_met_by_the_read_and_not_by_the_open() -> None:
    class Damaged(WatchedChunks):
        def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
            raise CorruptData("broken")

    chunk = chunks_of(watched_array(Damaged)).open((0, 0))
    with pytest.raises(CorruptData):
        chunk.read(0, 12)


def test_p9_one_version_of_an_array_never_mixes_two_of_a_chunk(array: WatchedArray) -> None:
    version = chunks_of(array).whole()
    replace(array, (3, 3), bytes(12))
    first = version.open((3, 3))
    assert first is not None
    assert bytes(first.decode()) == bytes(12), "the present bytes will do for what was never asked for"
    assert version.open((3, 3)) is not None
    replace(array, (3, 3), b"\1" * 12)
    with pytest.raises(Stale, match="3, 3"):
        version.open((3, 3))
    assert version.open((3, 2)) is not None
    array.newest = False
    with pytest.raises(Stale):
        version.open((3, 2))


def test_p9_chunks_opened_together_take_one_look_at_the_metadata_at_the_end(
    array: WatchedArray,
) -> None:
    version = ArrayVersion(chunks_of(array), LookLimits())
    replace(array, (0, 1), None)
    found = version.open_all([(0, 0), (0, 1), (1, 0)])
    assert [None if chunk is None else chunk.index for chunk in found] == [(0, 0), None, (1, 0)]
    assert array.chunks.asked == [(0, 0), (0, 1), (1, 0), "metadata"]
    replace(array, (1, 0), b"other" * 2 + b"  ")
    with pytest.raises(Stale):
        version.open_all([(0, 0), (1, 0)])
    array.newest = False
    with pytest.raises(Stale):
        version.open_all([(2, 2)])


def test_p9_a_chunk_that_appears_or_goes_is_stale_in_a_version_that_has_used_it(array: WatchedArray) -> None:
    version = chunks_of(array).whole()
    replace(array, (0, 0), None)
    assert version.open((0, 0)) is None
    assert version.open((0, 0)) is None
    assert version.open((0, 1)) is not None
    replace(array, (0, 0), bytes(12))
    replace(array, (0, 1), None)
    for index in ((0, 0), (0, 1)):
        with pytest.raises(Stale):
            version.open(index)


def test_p9_the_version_of_an_array_stays_while_its_used_chunks_do(array: WatchedArray) -> None:
    chunks = chunks_of(array)
    version = chunks.whole()
    for index in ((0, 0), (3, 4)):
        version.open(index)
    replace(array, (2, 2), bytes(12))
    assert chunks.whole().version == version.version
    replace(array, (3, 4), bytes(12))
    assert chunks.whole().version != version.version
    assert chunks_of(array, immutable=True).whole().version == chunks_of(array, immutable=True).whole().version
    array.newest = False
    with pytest.raises(Stale):
        chunks.whole()


@pytest.mark.parametrize("error", [CorruptData("a directory in place of a chunk"), OSError(5, "a failing disk")])
def test_p8_a_chunk_that_has_become_unreadable_does_not_close_the_whole_array(array: WatchedArray, error: Exception) -> None:
    """Each open of the array as a whole was that error, until the mount ended."""
    chunks = chunks_of(array)
    before = chunks.whole()
    assert before.open((0, 0)) is not None

    def fail(index: Index, info: ChunkInfo) -> ChunkInfo:
        if index == (0, 0):
            raise error
        return info

    array.chunks.on_find = fail
    now = chunks.whole()
    assert now is not before
    assert now.open((1, 0)) is not None
    with pytest.raises(type(error)):
        now.open((0, 0))


@pytest.mark.parametrize("changed", [None, (0, 0), (2, 3), (3, 4), (1, 1)])
def test_p9_what_readers_of_a_version_have_used_is_known_when_it_is_gone(array: WatchedArray, changed: Index | None) -> None:
    """Any version will do for chunks that were not used."""
    version = chunks_of(array).whole()
    replace(array, (0, 2), None)
    used = [(0, 0), (0, 1), (0, 2), (2, 3), (3, 4)]
    version.open_all(used[::-1])
    used_chunks = version.used_chunks()
    if changed is not None:
        replace(array, changed, bytes(12))
    other = chunks_of(array).whole()
    if changed in used:
        with pytest.raises(Stale):
            other.resume(used_chunks)
        return
    other.resume(used_chunks)
    replace(array, (0, 2), bytes(12))
    with pytest.raises(Stale):
        other.open((0, 2))
    with pytest.raises(Stale):
        chunks_of(array).whole().resume(other.used_chunks())


def test_p7_p9_chunks_that_are_too_many_to_look_at_do_not_count_as_changed(array: WatchedArray) -> None:
    """Nothing was written to the store, and files that are made of 100,000 chunks were stale at each open."""
    chunks = chunks_of(array, limits=LookLimits(open_seconds=-1.0, read_seconds=-1.0))
    version = chunks.whole()
    version.open((0, 0))
    with pytest.raises(TimedOut):
        chunks.whole()
    assert chunks.whole() is not version, "so that the array can be opened again"
    assert version.open((0, 1)) is not None
    array.chunks.on_find = lambda index, info: info._replace(changed_ns=time.time_ns() + 10**12)
    with pytest.raises(TimedOut):
        version.open((0, 2))


def test_p7_p9_used_chunks_of_a_remote_store_are_looked_at_in_parallel(array: WatchedArray) -> None:
    array.remote = True
    chunks, together = chunks_of(array), threading.Barrier(20)
    version = chunks.whole()
    version.open_all([(i, j) for i in range(4) for j in range(5)])

    def wait_for_the_others(index: Index, info: ChunkInfo) -> ChunkInfo:
        together.wait(20)
        return info

    array.chunks.on_find = wait_for_the_others
    assert chunks.whole() is version


def test_p9_a_clock_that_is_set_back_hides_no_change(array: WatchedArray, monkeypatch: pytest.MonkeyPatch) -> None:
    version = chunks_of(array).whole()
    version.open((0, 0))
    replace(array, (0, 0), bytes(12))
    Clock(monkeypatch).is_set_back(1000)
    changed_ns = time.time_ns()
    array.chunks.on_find = lambda index, info: info._replace(changed_ns=changed_ns)
    with pytest.raises(Stale):
        version.open((0, 1))


def test_p9_unused_chunks_of_a_version_may_change(array: WatchedArray) -> None:
    used_chunks = chunks_of(array).whole().used_chunks()
    replace(array, (0, 0), None)
    chunks_of(array).whole().resume(used_chunks)


STORED: dict[str, dict[str, Any]] = {
    "zarr2": {"zarr_format": 2},
    "zarr2-nested": {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "zarr3": {},
    "sharded": {"shards": (1, 4)},
}


def stored_array(path: Path, kind: str) -> tuple[zarr.Array[Any], Source, DecodedArray]:
    """An array of 4 x 8 ones in chunks of 1 x 2, by zarr-python: zarr's array, fsbridge's source, its decoded chunks."""
    array = zarr.create_array(path / "s", shape=(4, 8), chunks=(1, 2), dtype="u1", compressors=None, **STORED[kind])
    array[:] = 1
    source = open_source(str(path / "s"), Config(source=str(path / "s"), mountpoint=""))
    opened = as_array(source.root)
    assert opened is not None
    return array, source, chunks_of(opened)


def elements_of(version: ArrayVersion, row: int, column: int) -> bytes:
    chunk = version.open((row, column))
    assert chunk is not None
    return bytes(chunk.decode())


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("value", [2, 0], ids=["replaced", "removed"])
def test_p9_a_chunk_changed_with_others_that_were_read_is_stale(tmp_path: Path, kind: str, value: int) -> None:
    array, source, chunks = stored_array(tmp_path, kind)
    version = chunks.whole()
    assert elements_of(version, 0, 0) == b"\1\1"
    array[:] = value
    with pytest.raises(Stale):
        version.open((3, 3))
    source.close()


@pytest.mark.parametrize("kind", STORED)
def test_p9_a_chunk_that_changed_alone_is_read_and_moves_the_moment_on(tmp_path: Path, kind: str) -> None:
    array, source, chunks = stored_array(tmp_path, kind)
    version = chunks.whole()
    assert elements_of(version, 0, 0) == b"\1\1"
    array[3] = 2
    assert elements_of(version, 3, 0) == b"\2\2"
    array[2] = 0
    assert version.open((2, 1)) is None or kind == "sharded"
    assert version.current()
    array[3, :2] = 5
    array[1] = 5
    with pytest.raises(Stale):
        version.open((1, 1))
    source.close()


def test_p11_of_what_was_read_one_after_the_other_little_is_kept() -> None:
    """A virtual file of many arrays keeps that of each, for as long as it is open."""
    version = chunks_of(fake_array(np.zeros(5000, "u1"), (1,))).whole()
    version.open_all([(number,) for number in range(5000)])
    kept = pickle.dumps(version.used_chunks())
    assert len(kept) < 1000


def test_p9_a_chunk_that_was_found_before_an_open_is_looked_for_again(array: WatchedArray) -> None:
    """What a reader had found, but not yet used, came into the pages of a file opened after its replacement."""
    version = chunks_of(array).whole()

    def replace_once(index: Index, info: ChunkInfo) -> ChunkInfo:
        array.chunks.on_find = None
        replace(array, index, bytes(12))
        assert version.current(), "the chunk was not used"
        return info

    array.chunks.on_find = replace_once
    chunk = version.open((1, 1))
    assert chunk is not None
    assert bytes(chunk.decode()) == bytes(12)
    assert version.current()


@dataclass
class SparseChunks(FakeChunks):
    """Chunks that are found together, but for every fifth. `asked`: those that were looked for one by one.

    `on_find_all` is called when some have been found together.
    """

    asked: list[Index] = field(default_factory=list)
    on_find_all: Callable[[], object] | None = None

    def find(self, index: Index) -> ChunkInfo:
        self.asked.append(index)
        return super().find(index)

    def find_all(self, indices: Sequence[Index]) -> Mapping[Index, ChunkInfo | None]:
        found: dict[Index, ChunkInfo | None] = {}
        for index in indices:
            if index[0] % 5:
                found[index] = super().find(index) if index in self.stored else None
        if self.on_find_all is not None:
            self.on_find_all()
        return found


def sparse_array() -> tuple[FakeArray, SparseChunks]:
    """An array of 1,000 chunks of which none is stored."""
    metadata, chunks = fake_array(np.zeros(1000, "u1"), (1,)).metadata, SparseChunks({})
    return FakeArray(metadata, chunks), chunks


def test_p7_many_chunks_are_looked_for_together() -> None:
    """One by one, a mebibyte of chunks of two bytes took longer than a read may."""
    array, sparse = sparse_array()
    chunks, fifths = chunks_of(array), [(i,) for i in range(0, 1000, 5)]
    version = chunks.whole()
    assert version.open_all([(i,) for i in range(500)]) == [None] * 500
    sparse.stored[700,] = sparse.stored[701,] = b"x"
    assert [i for i, chunk in enumerate(version.open_all([(i,) for i in range(500, 1000)])) if chunk] == [200, 201]
    assert sparse.asked == fifths
    assert version.current()
    assert sparse.asked == fifths * 2
    sparse.stored[31,] = b"y"
    assert not version.current()
    with pytest.raises(Stale):
        version.open_all([(i,) for i in range(100)])
    assert chunks.whole() is not version


def test_p9_chunks_that_were_absent_before_an_open_are_looked_for_again() -> None:
    array, sparse = sparse_array()
    version = chunks_of(array).whole()
    version.open_all([(i,) for i in range(100)])

    def store_once() -> None:
        sparse.on_find_all = None
        sparse.stored[251,] = b"z"
        assert version.current(), "the chunk was not used"

    sparse.on_find_all = store_once
    chunk = version.open_all([(i,) for i in range(200, 300)])[51]
    assert chunk is not None
    assert bytes(chunk.decode()) == b"z"


def test_p9_two_readers_that_see_a_change_at_once_get_one_version(array: WatchedArray) -> None:
    """Each made the other's file stale, and a program that had just opened one could not read it."""
    chunks = chunks_of(array)
    old, both = chunks.whole(), threading.Barrier(2)
    assert old.open((0, 0)) is not None
    replace(array, (0, 0), bytes(12))

    def wait_for_the_other(index: Index, info: ChunkInfo) -> ChunkInfo:
        both.wait(30)
        return info

    array.chunks.on_find = wait_for_the_other
    with ThreadPoolExecutor(2) as pool:
        first, second = [found.result() for found in [pool.submit(chunks.whole) for _ in range(2)]]
    assert first is second is not old


def test_p9_a_chunk_changed_within_a_tick_is_waited_for(array: WatchedArray) -> None:
    moment = time.monotonic() + 0.03
    array.chunks.on_find = lambda index, info: info._replace(settled=time.monotonic() > moment)
    chunk = chunks_of(array).whole().open((0, 0))
    assert chunk is not None
    assert chunk.version == ("v", 0)
    assert time.monotonic() > moment
    versions = count()
    array.chunks.on_find = lambda index, info: info._replace(version=next(versions), settled=False)
    with pytest.raises(Stale, match="being written"):
        chunks_of(array, limits=LookLimits(tick_tries=2)).whole().open((0, 0))


def test_p9_a_chunk_dated_by_a_clock_of_seconds_is_waited_for_while_it_stays(array: WatchedArray) -> None:
    looks = count(1)
    array.chunks.on_find = lambda index, info: info._replace(settled=next(looks) > 8)
    chunk = chunks_of(array, limits=LookLimits(tick_seconds=0.0, slow_seconds=0.0)).whole().open((0, 0))
    assert chunk is not None
    assert chunk.version == ("v", 0)


def test_an_immutable_store_needs_no_waiting(array: WatchedArray) -> None:
    array.chunks.on_find = lambda index, info: info._replace(settled=False)
    endless = LookLimits(tick_seconds=math.inf, slow_seconds=math.inf)  # with which any pause is an OverflowError
    with pytest.raises(OverflowError):
        chunks_of(array, limits=endless).whole().open((0, 0))
    assert chunks_of(array, immutable=True, limits=endless).whole().open((0, 0)) is not None


def test_the_memory_of_an_array_version_is_eight_bytes_a_chunk() -> None:
    array = fake_array(np.zeros(5000, "u1"), (1,))
    version = chunks_of(array).whole()
    for number in range(5000):
        version.open((number,))
    assert sum(marks.nbytes for marks in version._blocks.values()) <= 8 * 5000 + 4096


def test_p6_chunks_far_from_each_other_take_less_than_a_page_each() -> None:
    """A reader of one place in a hundred thousand planes of many chunks touched 4 KiB for each."""
    array = fake_array(np.zeros((1, 1), "u1"), (1, 1))
    grid = ChunkGrid((2000, 1024), (1, 1))
    version = chunks_of(FakeArray(ArrayMetadata(grid, array.metadata.dtype), FakeChunks({}))).whole()
    tracemalloc.start()
    try:
        for plane in range(2000):
            assert version.open((plane, 5)) is None
        assert tracemalloc.get_traced_memory()[0] < 1024 * 2000
    finally:
        tracemalloc.stop()


@dataclass
class Texts(FakeChunks):
    """Chunks of which only decoding tells the size, and of which a tenth is stored; `limits` are those of the decodings."""

    limits: list[int] = field(default_factory=list)

    def find(self, index: Index) -> ChunkInfo:
        return ChunkInfo(0, len(self.stored[index]) // 10, 7)

    def read_all(self, index: Index, info: ChunkInfo, limit: int = 0) -> bytes:
        self.limits.append(limit)
        if len(self.stored[index]) > limit:
            raise CorruptData("more than the limit")
        return self.stored[index]


def test_p6_a_chunk_of_unknown_size_is_decoded_only_as_far_as_there_is_room() -> None:
    sizes = (7 * MIB, 7 * MIB, 8 * MIB, 9 * MIB, 100)
    texts = Texts({(i,): bytes(size) for i, size in enumerate(sizes)})
    metadata = ArrayMetadata(ChunkGrid((len(sizes),), (1,)), DataType("string", 0, None, "|O", None, "vlen-utf8"))
    opened, limits = chunks_of(FakeArray(metadata, texts), max_chunk=16 * MIB), texts.limits
    assert opened.open((0,)).size == 7 * MIB
    assert limits.pop(0) < 3 * MIB, "much is decoded before its size is known"
    assert limits.pop(0) == 8 * MIB, "the most that may be: as much again is needed where decoding takes several steps"
    assert opened.open((1,)).size == 7 * MIB
    assert 7 * MIB <= limits.pop(0) <= 8 * MIB, "another one of the array"
    assert opened.open((2,)).size == 8 * MIB
    with pytest.raises(CorruptData, match="more than the limit"):
        opened.open((3,))
    assert opened.open((4,)).size == 100
    opened.cache.clear()
    assert opened.cache.gauges().reserved == 0
