"""Read-ahead: which readers are followed and how far (P6, P8, P11). Not here: what files give (`test_files.py`)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import zarr
from fake_s3 import BUCKET, FakeS3
from fake_tree import FakeDirectory, FakeFile, FakeSpace, SpaceDirectory
from fillers import BIG, filler
from read_ahead import Following, Later, Now
from waiting import Clock, until

from fsbridge.config import Config, Remote
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import CorruptData
from fsbridge.formats.open import open_source
from fsbridge.kernel.handles import KnownListing, Listing, OpenFile
from fsbridge.kernel.readahead.files import (
    DEPTH_FILES,
    LISTED_SECONDS,
    MAX_STREAMS,
    MOST_FILES,
    REMOTE,
    Depths,
    Readers,
    Streams,
)
from fsbridge.layouts import root_directory
from fsbridge.tree import Attrs, Dated, Entry, Numbered


class FarSpace(FakeSpace):
    """A thousand files far away; `sent` gets those that are asked for."""

    def __init__(self, sent: list[int]) -> None:
        super().__init__(1000)
        self._sent = sent

    def fetch(self, position: int) -> bool:
        self._sent.append(position)
        return True


class Ahead(list[int]):
    """Records what was decoded ahead. `full`: nothing more may be."""

    full = False

    def take(self, numbers: Sequence[int]) -> int | None:
        if self.full:
            return numbers[0]
        self += numbers
        return None


def follow(numbers: list[int], count: int = 100, finish: bool = True) -> list[list[int]]:
    """Return what is decoded ahead at each open of `numbers`."""
    ahead = Ahead()
    streams = Streams(Now(), count, ahead.take)
    steps = []
    for number in numbers:
        streams.note_open(number)
        steps.append(ahead.copy())
        ahead.clear()
        if finish:
            streams.note_finished(number)
    return steps


def test_a_sequential_reader_is_read_ahead_more_and_more() -> None:
    assert follow([7, 8, 9, 10, 11]) == [[], [9], [10, 11], [12, 13, 14], [15]]


def test_smaller_files_are_read_ahead_several_at_a_time() -> None:
    ahead = Ahead()
    streams = Streams(Now(), 40, ahead.take, Depths(1, 2, 8, batch=4))
    steps = []
    for number in range(40):
        streams.note_open(number)
        steps.append(ahead.copy())
        ahead.clear()
        streams.note_finished(number)
    assert steps[:9] == [[], [2], [3, 4], [], [*range(5, 13)], [], [], [], [13, 14, 15, 16]]
    assert sum(map(len, steps)) == 38, "each once, to the last one"


def test_files_without_room_have_their_turn_with_the_next_open() -> None:
    ahead: list[int] = []
    full = {7}

    class Full(FakeSpace):
        def make(self, position: int) -> bool:
            if position in full:
                full.remove(position)
                return False
            ahead.append(position)
            return True

    readers, space = Readers(Now(), Depths(1, 2, 8, batch=4)), Full(40)
    for number in range(12):
        file = OpenFile(5, FakeFile(b"x").open(), FakeFile(slot=(space, number)))
        readers.note_open(file.slot, file.size)
        readers.note_read(file, 0, file.size)
    assert sorted(ahead) == sorted(set(ahead))
    assert set(range(2, 16)) <= set(ahead)
    assert not full


def test_how_many_files_are_read_ahead_depends_on_their_size() -> None:
    asked: list[int] = []

    class Counted(FakeSpace):
        def make(self, position: int) -> bool:
            asked.append(position)
            return True

    for size, most in (
        (8 << 20, DEPTH_FILES),
        (2 << 20, DEPTH_FILES),
        (1 << 20, 8),
        (512 << 10, 16),
        (4 << 10, MOST_FILES),
        (0, MOST_FILES),
    ):
        readers, space = Readers(Now()), Counted(1000)
        asked.clear()
        for number in range(20):
            file = OpenFile(5, FakeFile(b"x").open(), FakeFile(slot=(space, number)))
            file.size = size
            readers.note_open(file.slot, file.size)
            readers.note_read(file, 0, size)
        assert max(asked) - 19 <= most
        assert max(asked) - 19 > most // 2 - 1


def test_what_found_no_room_has_its_turn_with_the_next_open() -> None:
    ahead = Ahead()
    streams = Streams(Now(), 100, ahead.take)
    for number in range(8):
        ahead.full = number in (3, 4)
        streams.note_open(number)
        streams.note_finished(number)
    assert ahead == [2, 3, 4, 6, 7, 8, 9, 10, 11], "5 was read meanwhile"


def test_nothing_behind_the_end_of_the_array_is_read_ahead() -> None:
    assert follow([0, 1, 2, 3, 4], count=5) == [[], [2], [3, 4], [], []]


def test_one_chunk_and_random_chunks_cost_nothing_more() -> None:
    assert follow([50, 3, 90, 12, 70, 31]) == [[]] * 6


def test_a_reader_that_stops_early_is_not_read_ahead() -> None:
    assert follow(list(range(10)), finish=False) == [[]] * 10


def test_two_readers_taking_turns_are_one_stream() -> None:
    ahead = Ahead()
    streams = Streams(Now(), 100, ahead.take)
    for number in range(0, 20, 2):
        streams.note_open(number)
        streams.note_open(number + 1)
        streams.note_finished(number + 1)
        streams.note_finished(number)
    assert ahead == sorted(set(ahead))
    assert set(range(3, 20)) <= set(ahead)


def test_two_distant_readers_are_two_streams() -> None:
    steps = follow([0, 50, 1, 51, 2, 52])
    assert steps == [[], [], [2], [52], [3, 4], [53, 54]]


def test_the_number_of_streams_is_bounded() -> None:
    ahead = Ahead()
    streams = Streams(Now(), 10**6, ahead.take)
    for number in range(0, 10**5, 100):
        streams.note_open(number)
        streams.note_finished(number)
    assert ahead == []
    oldest = 10**5 - 100 * MAX_STREAMS
    streams.note_open(oldest + 1)
    assert ahead == [oldest + 2]
    streams.note_open(oldest - 100 + 1)
    assert ahead == [oldest + 2], "the readers before it are forgotten"


def test_two_readers_of_one_array_do_not_make_each_others_files_ready_again() -> None:
    ahead = Ahead()
    streams = Streams(Now(), 100, ahead.take)
    for number in (*range(20, 30), *range(10, 20)):
        streams.note_open(number)
        streams.note_finished(number)
    assert max(ahead) < 40
    assert len(ahead) == len(set(ahead))
    assert not set(ahead) & {20, 21, *range(10, 12)}


def test_stored_bytes_of_remote_files_are_prefetched_first_and_further_ahead() -> None:
    ahead, sent = Ahead(), []

    def fetch(number: int) -> bool:
        assert number not in ahead
        sent.append(number)
        return True

    streams = Streams(Now(), 1000, ahead.take, REMOTE, fetch)
    steps = []
    for number in range(4):
        streams.note_open(number)
        streams.note_finished(number)
        steps.append((ahead[-1] if ahead else 0, sent[-1] if sent else 0))
    assert steps == [(0, 0), (9, 33), (18, 66), (19, 67)]
    assert sent == list(range(2, 68))


def test_remote_files_behind_the_first_are_prefetched_just_after_a_listing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program that opens a file by its path alone may want no other."""
    sent: list[int] = []
    space, clock = FarSpace(sent), Clock(monkeypatch)
    readers = Readers(Now(), REMOTE)
    readers.note_open((space, 10))
    assert not sent
    readers.note_listing(SpaceDirectory(space, 100), 30)
    readers.note_open((space, 20))
    readers.note_open((space, 998))
    assert sent == [21, 22, 23, 24, 999]
    readers.forget(space)
    readers.note_open((space, 40))
    assert len(sent) == 5
    readers.note_listing(SpaceDirectory(space, 100), 30)
    clock.passes(LISTED_SECONDS)
    readers.note_open((space, 60))
    assert len(sent) == 5, "long ago"
    readers.note_listing(SpaceDirectory(space, 100), 30)
    readers.note_open((space, 70), again=True)
    assert len(sent) == 5, "the kernel may have it, and those behind it"
    near = Readers(Now())
    near.note_listing(SpaceDirectory(space, 100), 30)
    near.note_open((space, 80))
    assert len(sent) == 5


def test_opening_the_first_remote_file_of_a_listing_prefetches_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """He will read all of them: `cp -r`, `cat *`, `tar`, and each of several that share the directories of an array."""
    sent: list[int] = []
    space, clock = FarSpace(sent), Clock(monkeypatch)
    readers = Readers(Now(), REMOTE)
    for first in (100, 200, 300, None):
        readers.note_listing(SpaceDirectory(space, first or 0), first)
    for opened in (200, 100):
        readers.note_open((space, opened))
        assert sent == list(range(opened + 1, opened + 1 + REMOTE.begun))
        sent.clear()
    readers.note_open((space, 301))
    assert sent == [302, 303, 304, 305]
    clock.passes(LISTED_SECONDS)
    readers.note_open((space, 300))
    assert len(sent) == 4, "long ago"


def test_a_listing_reports_its_first_file() -> None:
    chunks, document = Numbered("file", 8, 40, [(3, 0), (4, 0)], 0.0), Entry(b".zarray", Attrs("file", 1, 0), 2)
    directory = FakeDirectory()

    def first_of(*batches: Sequence[Entry]) -> int | None:
        return Listing(1, directory, KnownListing(directory, directory, batches, 0.0)).first

    assert first_of(chunks) == 43
    assert first_of(Dated([document], 0.0)) == 2
    assert first_of() is None
    assert first_of(Numbered("file", 8, 4, [], 0.0)) is None
    named = Entry(b".zarray", Attrs("file", 1, 0), FakeFile, 1)
    assert first_of(Dated([named, *chunks], 0.0)) == 43


def test_no_more_remote_files_are_made_at_a_time_once_all_are_prefetched() -> None:
    """The last files of an array were made by all the threads that send: many at a time, and none of them soon."""
    ahead, threads, makers = Ahead(), Later(), Later()
    streams = Streams(threads, 40, ahead.take, REMOTE, lambda number: True, makers)
    for number in range(38):
        streams.note_open(number)
        streams.note_finished(number)
        threads.work()
    assert not ahead
    makers.work()
    assert sorted(ahead) == list(range(2, 40))


def test_remote_files_that_are_ready_are_not_prefetched() -> None:
    """Steps overtook each other on slow threads: what had been made was sent once more."""
    ahead, sent, threads = Ahead(), [], Later()

    def fetch(number: int) -> bool:
        assert number not in ahead
        sent.append(number)
        return True

    streams = Streams(threads, 1000, ahead.take, REMOTE, fetch)
    for number in range(8):
        streams.note_open(number)
        streams.note_finished(number)
    threads.work()
    assert sent == sorted(set(sent))
    assert set(ahead) <= set(sent)


def test_decoded_remote_chunks_are_not_prefetched(server: FakeS3, tmp_path: Path) -> None:
    """A second listing, and an open of its first file, prefetched the next files again."""
    values = np.arange(400, dtype="<i4")
    group = zarr.open_group(tmp_path / "x", mode="w", zarr_format=3)
    group.create_array("raw", data=values, chunks=(100,))
    server.put_tree(tmp_path / "x", "x")
    reached = Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint)
    config = Config(f"s3://{BUCKET}/x", "", metadata_ttl=60.0, remote=reached)
    with closing(open_source(config.source, config)) as source:
        following = Following(root_directory(source, config, ChunkCache(config.cache_size)))
        assert following.read(b"raw", b"c", b"1") == values[100:200].tobytes()
        assert following.file.slot is not None
        space, position = following.file.slot
        with server.counted() as requests:
            for other in (position, position + 1):
                assert space.fetch(other)
            until(lambda: any(request.key == "x/raw/c/2" for request in server.requests) and not server.in_flight)
        assert [request.key for request in requests] == ["x/raw/c/2"]


def test_prefetch_is_used_once_and_counted() -> None:
    cache = ChunkCache(10 * BIG)
    assert cache.prefetch("k", BIG, filler(1))
    assert not cache.prefetch("k", BIG, filler(2))
    assert bytes(cache.get("k", BIG, filler(3))) == b"\1" * BIG
    cache.clear()
    assert cache.gauges().reserved == 0


def test_prefetched_chunks_take_a_part_of_the_budget_only() -> None:
    cache = ChunkCache(10 * BIG)
    assert [cache.prefetch(key, BIG, filler(key)) is not None for key in range(4)] == [True, True, False, False]
    assert cache.peek(0) is not None  # it was read, so there is room for another
    assert cache.prefetch(4, BIG, filler(4))


def test_prefetch_never_waits_for_room() -> None:
    cache = ChunkCache(3 * BIG, patience=60)
    held = [cache.get(key, BIG, filler(key)) for key in range(2)]
    assert not cache.prefetch("k", BIG // 2, filler(9), encoded=2 * BIG)
    assert [bytes(view[:1]) for view in held] == [b"\0", b"\1"]


@pytest.mark.parametrize("readers", [0, 1])
def test_a_reader_that_waits_for_a_failed_prefetch_reads_by_itself(readers: int) -> None:
    """`readers`: how many wait when it fails."""
    cache, begun = ChunkCache(10 * BIG), threading.Event()

    def load(out: memoryview) -> None:
        begun.set()
        until(lambda: cache.counts().misses == readers)
        raise CorruptData("broken")

    def ahead() -> None:
        with pytest.raises(CorruptData):
            cache.prefetch("k", 10, load)

    thread = threading.Thread(target=ahead)
    thread.start()
    assert begun.wait(10)
    if not readers:
        thread.join()
    assert bytes(cache.get("k", 10, filler(5))) == b"\5" * 10
    thread.join()
    assert cache.gauges().loading == 0
