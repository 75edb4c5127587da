"""Decoded chunks of one array: versions, limits, and one version of an array as a whole (P9)."""

from __future__ import annotations

import pickle
import threading
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from fake_model import FakeArray, FakeChunks, fake_array

from fsbridge import decoded as array_versions
from fsbridge.config import MIB, Config
from fsbridge.decoded import ArrayVersion, DecodedArray
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import CorruptData, NotFound, Stale, TimedOut, TooLarge
from fsbridge.formats.open import open_source
from fsbridge.metadata import ArrayMetadata, ChunkGrid, DataType, Index
from fsbridge.model import ChunkInfo

VALUES = np.arange(100, dtype="<u2").reshape(10, 10)


def chunks_of(array: FakeArray, **options: Any) -> DecodedArray:
    return DecodedArray(array, ChunkCache(16 * MIB), options.pop("max_chunk", MIB), **options)


def replace(array: FakeArray, index: tuple[int, ...], data: bytes | None) -> None:
    """Store other bytes for one chunk; the other chunks keep their versions."""
    if data is None:
        del array.chunks.stored[index]
    else:
        array.chunks.stored[index] = data
    versions.setdefault(id(array), {})[index] = time.perf_counter_ns()


def fill(out: memoryview, data: bytes) -> None:
    out[:] = data


versions: dict[int, dict[tuple[int, ...], int]] = {}


@pytest.fixture
def array(monkeypatch: pytest.MonkeyPatch) -> FakeArray:
    """4 x 5 chunks of 3 x 2 elements; each chunk has a version of its own."""
    versions.clear()
    made = fake_array(VALUES, (3, 2))
    find = made.chunks.find

    def find_each(index: tuple[int, ...]) -> ChunkInfo:
        return find(index)._replace(version=("v", versions.get(id(made), {}).get(index, 0)))

    monkeypatch.setattr(made.chunks, "find", find_each)
    monkeypatch.setattr(made.chunks, "read_into", lambda index, info, out: fill(out, made.chunks.stored[index]))
    return made


def test_a_chunk_has_its_size_version_and_bytes(array: FakeArray) -> None:
    chunks = chunks_of(array)
    chunk = chunks.open((1, 4))
    assert (chunk.size, chunk.version, chunks.size((1, 4))) == (12, ("v", 0), 12)
    assert chunk.peek(0, 12) is None
    assert bytes(chunk.decoded()) == VALUES[3:6, 8:].tobytes()
    assert bytes(chunk.peek(2, 4) or b"") == bytes(chunk.read(2, 4)) == VALUES[3:6, 8:].tobytes()[2:6]
    with pytest.raises(NotFound):
        chunks.open((9, 9))


def test_p9_open_of_a_chunk_that_is_no_longer_the_one_meant_is_stale(array: FakeArray) -> None:
    chunks = chunks_of(array)
    assert chunks.open((0, 0), ("v", 0)).size == 12
    with pytest.raises(Stale):
        chunks.open((0, 0), ("v", 1))
    array.newest = False
    with pytest.raises(Stale):
        chunks.open((0, 0))
    assert chunks_of(array, immutable=True).open((0, 0)).size == 12


def test_no_chunk_above_the_limit_is_decoded_whole(array: FakeArray) -> None:
    chunk = chunks_of(array, max_chunk=11).open((0, 0))
    for ask in (chunk.decoded, lambda: chunk.read(0, 12)):
        with pytest.raises(TooLarge, match="the limit is 11"):
            ask()
    assert chunks_of(array, max_chunk=11).prefetch([(0, 0)]) is None
    assert not array.chunks.decoded, "left undone"


@pytest.mark.parametrize("remote", [False, True])
def test_a_small_part_of_a_remote_chunk_takes_one_request(
    array: FakeArray, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    """A part by itself takes two of them, one after the other; the whole chunk one."""
    asked: list[tuple[int, int]] = []

    def read_range(index: object, info: object, start: int, stop: int) -> bytes:
        asked.append((start, stop))
        return array.chunks.stored[(0, 0)][start:stop]

    monkeypatch.setattr(array.chunks, "read_range", read_range)
    monkeypatch.setattr(type(array), "fetch", (lambda index: None) if remote else None)
    chunk = chunks_of(array).open((0, 0))
    assert bytes(chunk.read(8, 2)) == array.chunks.stored[(0, 0)][8:10]
    assert asked == ([] if remote else [(8, 10)])
    assert (chunk.peek(0, 12) is not None) == remote


def test_chunks_that_are_read_ahead_are_all_opened_first_and_closed_at_the_end(
    array: FakeArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, object]] = []

    class Open:
        def __init__(self, index: Index, beside: object) -> None:
            self.info, self.index = array.chunks.find(index), index
            events.append(("open", index))

        def read_into(self, out: memoryview) -> None:
            events.append(("read", self.index))
            if self.index == (0, 0):
                raise CorruptData("damaged")
            array.chunks.read_into(self.index, self.info, out)

        def close(self) -> None:
            events.append(("close", self.index))

    monkeypatch.setattr(array.chunks, "open", Open)
    chunks, wanted = chunks_of(array), [(0, 0), (9, 9), (0, 1)]
    assert chunks.prefetch(wanted) is None
    assert chunks.holds((0, 1))
    assert events == [(what, index) for what in ("open", "read", "close") for index in wanted if index != (9, 9)]


def test_prefetched_chunks_are_in_the_cache_and_those_without_room_are_reported(
    array: FakeArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = chunks_of(array)
    assert chunks.prefetch([(0, 0)]) is None
    assert bytes(chunks.open((0, 0)).peek(0, 12) or b"") == array.chunks.stored[(0, 0)]
    monkeypatch.setattr(chunks.cache, "prefetch", lambda *given: None)
    assert chunks.prefetch([(0, 0), (0, 1)]) == 1


def test_p3_what_cannot_be_decoded_is_met_by_the_read_and_not_by_the_open(
    array: FakeArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(index: object, info: object, out: object) -> None:
        raise CorruptData("broken")

    monkeypatch.setattr(array.chunks, "read_into", fail)
    chunk = chunks_of(array).open((0, 0))
    with pytest.raises(CorruptData):
        chunk.read(0, 12)


def test_p9_one_version_of_an_array_never_mixes_two_of_a_chunk(array: FakeArray) -> None:
    version = chunks_of(array).whole()
    replace(array, (3, 3), bytes(12))
    first = version.open((3, 3))
    assert first is not None
    assert bytes(first.decoded()) == bytes(12), "the present bytes will do for what was never asked for"
    assert version.open((3, 3)) is not None
    replace(array, (3, 3), b"\1" * 12)
    with pytest.raises(Stale, match="3, 3"):
        version.open((3, 3))
    assert version.open((3, 2)) is not None
    array.newest = False
    with pytest.raises(Stale):
        version.open((3, 2))


def test_p9_several_chunks_are_opened_with_one_look_at_the_metadata_after_the_last_was_found(
    array: FakeArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    find = array.chunks.find

    def finding(index: tuple[int, ...]) -> ChunkInfo:
        asked.append(index)
        return find(index)

    monkeypatch.setattr(array.chunks, "find", finding)
    monkeypatch.setattr(FakeArray, "current", lambda self: asked.append("metadata") or "gone" not in asked)
    version = ArrayVersion(chunks_of(array))
    replace(array, (0, 1), None)
    found = version.open_all([(0, 0), (0, 1), (1, 0)])
    assert [None if chunk is None else chunk.index for chunk in found] == [(0, 0), None, (1, 0)]
    assert asked == [(0, 0), (0, 1), (1, 0), "metadata"]
    replace(array, (1, 0), b"other" * 2 + b"  ")
    with pytest.raises(Stale):
        version.open_all([(0, 0), (1, 0)])
    asked.append("gone")
    with pytest.raises(Stale):
        version.open_all([(2, 2)])


def test_p9_a_chunk_that_appears_or_goes_is_stale_in_a_version_that_has_used_it(array: FakeArray) -> None:
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


def test_p9_the_version_of_an_array_stays_while_nothing_of_it_that_was_used_changes(array: FakeArray) -> None:
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
def test_p8_a_chunk_that_cannot_be_looked_at_any_more_does_not_close_the_whole_array(
    array: FakeArray, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Each open of the array as a whole was that error, until the mount ended."""
    chunks, find = chunks_of(array), array.chunks.find
    before = chunks.whole()
    assert before.open((0, 0)) is not None
    damaged = (0, 0)

    def found(index: Index) -> ChunkInfo:
        if index == damaged:
            raise error
        return find(index)

    monkeypatch.setattr(array.chunks, "find", found)
    now = chunks.whole()
    assert now is not before
    assert now.open((1, 0)) is not None
    with pytest.raises(type(error)):
        now.open((0, 0))


@pytest.mark.parametrize("changed", [None, (0, 0), (2, 3), (3, 4), (1, 1)])
def test_p9_what_readers_of_a_version_have_used_is_known_when_it_is_gone(
    array: FakeArray, changed: tuple[int, ...] | None
) -> None:
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


def test_p7_p9_too_many_chunks_to_look_at_in_time_are_not_taken_for_changed_ones(
    array: FakeArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was written to the store, and files that are made of 100,000 chunks were stale at each open."""
    chunks = chunks_of(array)
    version = chunks.whole()
    version.open((0, 0))
    monkeypatch.setattr(array_versions, "_OPEN_SECONDS", -1.0)
    with pytest.raises(TimedOut):
        chunks.whole()
    assert chunks.whole() is not version, "so that the array can be opened again"
    assert version.open((0, 1)) is not None
    find = array.chunks.find
    monkeypatch.setattr(array.chunks, "find", lambda index: find(index)._replace(changed_ns=time.time_ns() + 10**12))
    monkeypatch.setattr(array_versions, "_READ_SECONDS", -1.0)
    with pytest.raises(TimedOut):
        version.open((0, 2))


def test_p7_p9_used_chunks_of_a_remote_store_are_looked_at_by_requests_at_the_same_time(
    array: FakeArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(array), "fetch", lambda index: None)
    chunks, find, together = chunks_of(array), array.chunks.find, threading.Barrier(20)
    version = chunks.whole()
    version.open_all([(i, j) for i in range(4) for j in range(5)])

    def finding(index: Index) -> ChunkInfo:
        together.wait(20)
        return find(index)

    monkeypatch.setattr(array.chunks, "find", finding)
    assert chunks.whole() is version


def test_p9_a_clock_that_is_set_back_hides_no_change(array: FakeArray, monkeypatch: pytest.MonkeyPatch) -> None:
    version, find, present = chunks_of(array).whole(), array.chunks.find, time.time_ns
    version.open((0, 0))
    replace(array, (0, 0), bytes(12))
    monkeypatch.setattr(time, "time_ns", lambda: present() - 10**12)
    changed_ns = time.time_ns()
    monkeypatch.setattr(array.chunks, "find", lambda index: find(index)._replace(changed_ns=changed_ns))
    with pytest.raises(Stale):
        version.open((0, 1))


def test_p9_unused_chunks_of_a_version_may_change(array: FakeArray) -> None:
    used_chunks = chunks_of(array).whole().used_chunks()
    replace(array, (0, 0), None)
    chunks_of(array).whole().resume(used_chunks)


STORED = {
    "zarr2": {"zarr_format": 2},
    "zarr2-nested": {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "zarr3": {},
    "sharded": {"shards": (1, 4)},
}


def stored_array(path: Path, kind: str) -> tuple[Any, Any, DecodedArray]:
    """An array of 4 x 8 ones in chunks of 1 x 2, by zarr-python: zarr's array, fsbridge's source, its decoded chunks."""
    array = zarr.create_array(path / "s", shape=(4, 8), chunks=(1, 2), dtype="u1", compressors=None, **STORED[kind])
    array[:] = 1
    source = open_source(str(path / "s"), Config(source=str(path / "s"), mountpoint=""))
    return array, source, chunks_of(source.root)


def elements_of(version: ArrayVersion, row: int, column: int) -> bytes:
    return bytes(version.open((row, column)).decoded())  # type: ignore[union-attr]


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


def test_p9_a_chunk_that_was_found_before_an_open_is_looked_for_again(
    array: FakeArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a reader had found, but not yet used, came into the pages of a file opened after its replacement."""
    version, find = chunks_of(array).whole(), array.chunks.find

    def replaced_meanwhile(index: tuple[int, ...]) -> ChunkInfo:
        found = find(index)
        monkeypatch.setattr(array.chunks, "find", find)
        replace(array, index, bytes(12))
        assert version.current(), "the chunk was not used"
        return found

    monkeypatch.setattr(array.chunks, "find", replaced_meanwhile)
    chunk = version.open((1, 1))
    assert chunk is not None
    assert bytes(chunk.decoded()) == bytes(12)
    assert version.current()


def sparse(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeArray, list[Index]]:
    """An array of 1,000 chunks of which none is stored, and which are found together, but for every fifth."""
    array, asked = fake_array(np.zeros(1000, "u1"), (1,)), []
    array.chunks.stored.clear()
    find = array.chunks.find
    monkeypatch.setattr(array.chunks, "find", lambda index: asked.append(index) or find(index))

    def find_all(indices: Sequence[Index]) -> dict[Index, ChunkInfo | None]:
        return {index: find(index) if index in array.chunks.stored else None for index in indices if index[0] % 5}

    monkeypatch.setattr(array.chunks, "find_all", find_all, raising=False)
    return array, asked


def test_p7_many_chunks_are_looked_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, a mebibyte of chunks of two bytes took longer than a read may."""
    array, asked = sparse(monkeypatch)
    chunks, fifths = chunks_of(array), [(i,) for i in range(0, 1000, 5)]
    version = chunks.whole()
    assert version.open_all([(i,) for i in range(500)]) == [None] * 500
    array.chunks.stored[700,] = array.chunks.stored[701,] = b"x"
    assert [i for i, chunk in enumerate(version.open_all([(i,) for i in range(500, 1000)])) if chunk] == [200, 201]
    assert asked == fifths
    assert version.current()
    assert asked == fifths * 2
    array.chunks.stored[31,] = b"y"
    assert not version.current()
    with pytest.raises(Stale):
        version.open_all([(i,) for i in range(100)])
    assert chunks.whole() is not version


def test_p9_chunks_that_were_absent_before_an_open_are_looked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    array, _ = sparse(monkeypatch)
    version, find_all = chunks_of(array).whole(), array.chunks.find_all
    version.open_all([(i,) for i in range(100)])

    def stored_meanwhile(indices: Sequence[Index]) -> Mapping[Index, ChunkInfo | None]:
        found = find_all(indices)
        monkeypatch.setattr(array.chunks, "find_all", find_all)
        array.chunks.stored[251,] = b"z"
        assert version.current(), "the chunk was not used"
        return found

    monkeypatch.setattr(array.chunks, "find_all", stored_meanwhile)
    chunk = version.open_all([(i,) for i in range(200, 300)])[51]
    assert chunk is not None
    assert bytes(chunk.decoded()) == b"z"


def test_p9_two_readers_that_see_a_change_at_once_get_one_version(array: FakeArray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each made the other's file stale, and a program that had just opened one could not read it."""
    chunks = chunks_of(array)
    old, both = chunks.whole(), threading.Barrier(2)

    def changed(version: ArrayVersion) -> bool:
        both.wait(30)
        return version is not old

    monkeypatch.setattr(ArrayVersion, "current", changed)
    with ThreadPoolExecutor(2) as pool:
        first, second = [found.result() for found in [pool.submit(chunks.whole) for _ in range(2)]]
    assert first is second is not old


def test_p9_a_chunk_changed_within_a_tick_is_waited_for(array: FakeArray, monkeypatch: pytest.MonkeyPatch) -> None:
    find, moment = array.chunks.find, time.monotonic() + 0.03
    monkeypatch.setattr(array.chunks, "find", lambda index: find(index)._replace(settled=time.monotonic() > moment))
    chunk = chunks_of(array).whole().open((0, 0))
    assert chunk is not None
    assert chunk.version == ("v", 0)
    assert time.monotonic() > moment
    versions = count()
    monkeypatch.setattr(array.chunks, "find", lambda index: find(index)._replace(version=next(versions), settled=False))
    monkeypatch.setattr(array_versions, "_TICK_TRIES", 2)
    with pytest.raises(Stale, match="being written"):
        chunks_of(array).whole().open((0, 0))


def test_p9_a_chunk_dated_by_a_clock_of_seconds_is_waited_for_while_it_stays(
    array: FakeArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, looks = array.chunks.find, count(1)
    monkeypatch.setattr(array.chunks, "find", lambda index: find(index)._replace(settled=next(looks) > 8))
    for name in ("_TICK_SECONDS", "_SECOND_SECONDS"):
        monkeypatch.setattr(array_versions, name, 0.0)
    chunk = chunks_of(array).whole().open((0, 0))
    assert chunk is not None
    assert chunk.version == ("v", 0)


def test_an_immutable_store_needs_no_waiting(array: FakeArray, monkeypatch: pytest.MonkeyPatch) -> None:
    find = array.chunks.find
    monkeypatch.setattr(array.chunks, "find", lambda index: find(index)._replace(settled=False))
    monkeypatch.delattr(array_versions.time, "sleep")
    assert chunks_of(array, immutable=True).whole().open((0, 0)) is not None


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


def texts(*sizes: int) -> FakeArray:
    """An array of texts in chunks of which only decoding tells the size: their decoded bytes, of which a tenth is stored."""

    class Texts(FakeChunks):
        def find(self, index: Index) -> ChunkInfo:
            return ChunkInfo(0, len(self.stored[index]) // 10, 7)

        def read_all(self, index: Index, info: ChunkInfo, limit: int = 0) -> bytes:
            self.decoded.append(limit)  # type: ignore[arg-type]
            if len(self.stored[index]) > limit:
                raise CorruptData("more than the limit")
            return self.stored[index]

    chunks = Texts({(i,): bytes(size) for i, size in enumerate(sizes)})
    grid = ChunkGrid((len(sizes),), (1,))
    return FakeArray(ArrayMetadata(grid, DataType("string", 0, None, "|O", None, "vlen-utf8")), chunks)


def test_p6_of_a_chunk_of_unknown_size_no_more_is_decoded_than_there_is_room_for() -> None:
    array = texts(7 * MIB, 7 * MIB, 8 * MIB, 9 * MIB, 100)
    opened = chunks_of(array, max_chunk=16 * MIB)
    limits: Any = array.chunks.decoded
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
