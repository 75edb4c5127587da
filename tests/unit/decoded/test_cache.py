"""ChunkCache: one decoding per chunk, bytes within the budget, no reuse of memory that is still in view (P6, P11)."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pytest
from fillers import BIG, filler
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from fsbridge.config import MIB
from fsbridge.decoded.cache import ChunkCache
from fsbridge.decoded.memory import BLOCK_BYTES, SLOW_SECONDS, SMALL_BLOCKS, Fresh, Slot, TurnSeconds, map_memory
from fsbridge.errors import CorruptData, OutOfBudget, TooLarge


def test_decodes_once_for_many_readers() -> None:
    cache, started, calls = ChunkCache(10 * BIG), threading.Event(), []

    def load(out: memoryview) -> None:
        calls.append(len(out))
        started.wait(5)
        out[:] = b"x" * len(out)

    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(bytes(cache.get("k", 10, load)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    started.set()
    for thread in threads:
        thread.join()
    assert results == [b"x" * 10] * 8
    assert calls == [10]
    assert bytes(cache.peek("k") or b"") == b"x" * 10


def test_an_error_reaches_everyone_and_is_not_cached() -> None:
    cache = ChunkCache(BIG)

    def load(out: memoryview) -> None:
        raise CorruptData("broken")

    for _ in range(2):
        with pytest.raises(CorruptData, match="broken"):
            cache.get("k", 10, load)
    assert cache.get("k", 10, filler(1)) == b"\1" * 10
    cache.clear()
    assert cache.gauges().reserved == 0


def test_a_reader_that_waits_for_a_failed_decoding_decodes_by_itself() -> None:
    """Want of memory, or the disk's error, is not the chunk's damage."""
    cache, going = ChunkCache(BIG), threading.Event()
    found: list[object] = []
    errors: list[BaseException] = [MemoryError(), OSError(errno.ESTALE, "stale")]

    def load(out: memoryview) -> None:
        assert going.wait(60)
        if errors:
            raise errors.pop()
        filler(3)(out)

    def get() -> None:
        try:
            found.append(bytes(cache.get("k", 10, load)))
        except (MemoryError, OSError) as error:
            found.append(type(error))

    threads = [threading.Thread(target=get, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    going.set()
    for thread in threads:
        thread.join(60)
    assert sorted(map(str, found)) == sorted(map(str, [MemoryError, OSError, b"\3" * 10, b"\3" * 10]))


class _Scarce:
    """Stands before a cache's lock, or one of its tables: there is no memory for its use at the `at`-th time."""

    def __init__(self, real: Any, at: int) -> None:
        self.real, self.left = real, at

    def _count(self) -> Any:
        self.left -= 1
        if not self.left:
            raise MemoryError
        return self.real

    def __enter__(self) -> None:
        self._count().__enter__()

    def __exit__(self, *error: Any) -> None:
        self.real.__exit__(*error)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._count()[key] = value

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __contains__(self, key: Any) -> bool:
        return key in self.real

    def __len__(self) -> int:
        return len(self.real)

    def __delitem__(self, key: Any) -> None:
        del self.real[key]

    def __iter__(self) -> Any:
        return iter(self.real)


@contextlib.contextmanager
def scarce(owner: object, name: str, at: int) -> Iterator[None]:
    """Let there be no memory for the `at`-th use of an attribute."""
    real = getattr(owner, name)
    setattr(owner, name, _Scarce(real, at))
    with contextlib.suppress(MemoryError):
        yield
    setattr(owner, name, real)


@pytest.mark.parametrize("at", range(1, 5))
@pytest.mark.parametrize("way", ["get", "get_all", "prefetch"])
def test_p7_a_reader_of_a_chunk_does_not_wait_for_one_that_ended_without_memory(way: str, at: int) -> None:
    cache, found = ChunkCache(BIG), []

    def load(*_out: memoryview) -> NoReturn:
        raise MemoryError

    ways: dict[str, Callable[[], object]] = {
        "get": lambda: cache.get("k", 10, load),
        "get_all": lambda: cache.get_all("k", load, 10),
        "prefetch": lambda: cache.prefetch("k", 10, load),
    }
    with scarce(cache, "_lock", at):
        ways[way]()
    reader = threading.Thread(target=lambda: found.append(bytes(cache.get("k", 10, filler(1)))), daemon=True)
    reader.start()
    reader.join(60)
    assert found == [b"\1" * 10]


@pytest.mark.parametrize("name", ["_entries", "_loads", "_sizes", "_lent"])
@pytest.mark.parametrize("size", [10, BIG])
@pytest.mark.parametrize("way", ["get", "get_all", "prefetch"])
def test_p6_no_room_is_lost_where_a_table_cannot_grow(way: str, size: int, name: str) -> None:
    cache = ChunkCache(10 * BIG)
    ways: dict[str, Callable[[], object]] = {
        "get": lambda: cache.get("k", size, filler(1), 1000),
        "get_all": lambda: cache.get_all("k", lambda: b"\1" * size, 1000),
        "prefetch": lambda: cache.prefetch("k", size, filler(1), 1000),
    }
    with scarce(cache._unasked if name == "_sizes" else cache, name, 1):
        ways[way]()
    cache.clear()
    gauges = cache.gauges()
    assert (gauges.reserved, gauges.loading, cache._unasked.nbytes) == (0, 0, 0)


@pytest.mark.parametrize("size", [1000, BIG])
def test_memory_in_view_is_never_reused(size: int) -> None:
    cache = ChunkCache(4 * size + 20_000)
    kept = cache.get(0, size, filler(0))[10:20]
    for key in range(1, 50):
        cache.get(key, size, filler(key))
        cache.note_consumed(key)
        assert bytes(kept) == b"\0" * 10
        assert cache.gauges().reserved + cache.gauges().pooled <= cache.budget
    del kept
    cache.clear()
    assert cache.gauges().reserved == 0
    assert cache.gauges().pooled == 0


def test_consumed_chunks_are_recycled_first() -> None:
    cache = ChunkCache(100 * BIG)
    keep = bytes(cache.get("keep", BIG, filler(9)))
    for key in range(50):
        cache.get(key, BIG, filler(key))
        cache.note_consumed(key)
    assert cache.gauges().chunks == 2, "the arena should have stayed at one consumed buffer"
    assert bytes(cache.peek("keep") or b"") == keep


def test_a_full_cache_fills_the_memory_of_the_chunks_that_go() -> None:
    """The first touch of fresh memory costs more than decoding a chunk into it."""
    taken = 0

    class Counted(Fresh):
        def slots(self, capacity: int, most: int) -> list[Slot]:
            nonlocal taken
            slots = super().slots(capacity, most)
            taken += len(slots)
            return slots

    cache = ChunkCache(20 * BIG, fresh=Counted())
    for key in range(100):
        assert bytes(cache.get(key, BIG, filler(key))) == bytes([key]) * BIG
        assert cache.gauges().reserved + cache.gauges().pooled <= cache.budget
    assert taken <= 20


def test_small_buffers_share_huge_pages_and_are_given_back_one_by_one() -> None:
    cache = ChunkCache(100 * BIG)
    kept = cache.get("kept", BIG, filler(7))
    assert cache.gauges().pooled > 0, "its siblings are free buffers"
    assert cache.gauges().reserved + cache.gauges().pooled <= cache.budget
    buffer = np.frombuffer(cache.get("other", BIG, filler(8)), np.uint8)
    address = buffer.__array_interface__["data"][0]
    assert 0 < abs(address - np.frombuffer(kept, np.uint8).__array_interface__["data"][0]) < 4 << 20
    del buffer
    cache.discard("other")
    cache.clear()
    assert cache.gauges().pooled == 0
    assert ctypes.string_at(address, 10) == bytes(10), "the memory went back to the system"
    assert bytes(kept) == b"\7" * BIG


def test_memory_is_in_small_pages_while_touching_huge_ones_takes_longer() -> None:
    advised, times = [], iter([0.0, 2 * SLOW_SECONDS, *([5.0] * 4)])  # of the first huge page, and of two later ones

    class Mapped(mmap.mmap):
        def madvise(self, option: int, *where: int) -> None:
            advised.append(option)
            super().madvise(option, *where)

    memory = Fresh(lambda: next(times), lambda size: Mapped(-1, size, flags=mmap.MAP_PRIVATE))
    slots = [memory.slots(BLOCK_BYTES // 4, 4) for _ in range(SMALL_BLOCKS + 3)]
    assert advised == [mmap.MADV_HUGEPAGE, *[mmap.MADV_NOHUGEPAGE] * SMALL_BLOCKS, *[mmap.MADV_HUGEPAGE] * 2]
    assert all(not any(slot.block[slot.start : slot.start + slot.size]) for four in slots[::4] for slot in four)


@pytest.mark.parametrize("limit", [BIG, 3 * BIG, 8 * BIG])
def test_p6_chunks_are_evicted_if_the_system_has_less_memory_than_the_budget(
    limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Batch systems limit address space: once the cache had taken all of it, no other chunk could be read ever after."""
    taken = 0

    def map_scarce(size: int) -> mmap.mmap:
        nonlocal taken
        if taken + size > limit + 4096:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        mapped = map_memory(size)
        taken += size
        weakref.finalize(mapped, give_back, size)
        return mapped

    def give_back(size: int) -> None:
        nonlocal taken
        taken -= size

    cache = ChunkCache(50 * BIG, fresh=Fresh(map_block=map_scarce, block_bytes=BIG))  # one buffer in each block
    for key in range(40):
        assert bytes(cache.get(key, BIG, filler(key))) == bytes([key]) * BIG
    told = (
        f"less memory than the {50 * BIG // MIB} MiB of --cache-size: decoded chunks take {cache._room // MIB} MiB at most"
    )
    assert told in caplog.messages[-1], "the reason why the cache is smaller than asked for is missing"
    held = cache.get("held", BIG, filler(1))
    assert bytes(held[:9]) == b"\1" * 9
    if limit == BIG:
        with pytest.raises(OSError, match="memory"):
            cache.get("other", BIG, filler(2))
    del held
    assert bytes(cache.get("other", BIG, filler(2))) == b"\2" * BIG
    cache.clear()
    assert (cache.gauges().reserved, cache.gauges().pooled, taken) == (0, 0, 0)


def test_least_recently_used_goes_first() -> None:
    cache = ChunkCache(3000)
    for key in ("a", "b", "c"):
        cache.get(key, 1000, filler(1))
    cache.peek("a")
    cache.get("d", 1000, filler(1))
    assert cache.peek("b") is None
    assert cache.peek("a") is not None


def test_budget_includes_the_encoded_bytes() -> None:
    cache = ChunkCache(3000, patience=0.05)
    with pytest.raises(TooLarge, match="--cache-size"):
        cache.get("k", 2000, filler(1), encoded=2000)
    held = cache.get("k", 2000, filler(1))
    with pytest.raises(OutOfBudget, match="within"):
        cache.get("j", 2000, filler(1))
    del held
    assert cache.get("j", 2000, filler(2)) == b"\2" * 2000


def test_p7_a_reader_with_a_buffer_does_not_wait_for_room_that_others_wait_for() -> None:
    cache, both, found = ChunkCache(4000, patience=600), threading.Barrier(2), []

    def assemble(key: str) -> None:
        """Something made of a chunk, in a buffer of its own, or without where there is no room for both."""

        def load(out: memoryview) -> None:
            both.wait(60)
            out[:] = cache.get((key, "chunk"), 2000, filler(7))[:1500]

        with contextlib.suppress(OutOfBudget):
            found.append(bytes(cache.get(key, 1500, load)))
            return
        found.append(bytes(cache.get((key, "chunk"), 2000, filler(7))[:1500]))

    threads = [threading.Thread(target=assemble, args=(key,), daemon=True) for key in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [b"\7" * 1500] * 2


def test_a_reader_that_waits_for_a_decoding_without_room_decodes_by_itself() -> None:
    cache, began, found = ChunkCache(4000, patience=0.3), threading.Event(), []
    held = cache.get("held", 4000, filler(1))

    def first() -> None:
        began.set()
        with pytest.raises(OutOfBudget):
            cache.get("k", 1000, filler(2))

    def second() -> None:
        cache._patience = 60
        found.append(bytes(cache.get("k", 1000, filler(2))))

    threads = [threading.Thread(target=first, daemon=True), threading.Thread(target=second, daemon=True)]
    threads[0].start()
    assert began.wait(60)
    while not cache.gauges().loading:
        pass
    threads[1].start()
    threads[0].join(60)
    del held
    threads[1].join(60)
    assert found == [b"\2" * 1000]


def test_unsized_chunks_are_counted_too() -> None:
    cache = ChunkCache(3000)
    for key in range(5):
        assert cache.get_all(key, lambda: b"x" * 1000, 100) == b"x" * 1000
    assert cache.gauges().cached <= 3000
    cache.clear()
    assert cache.gauges().reserved == 0


def test_views_are_read_only() -> None:
    cache = ChunkCache(BIG)
    with pytest.raises(TypeError):
        cache.get("k", 10, filler(1))[0] = 1
    assert cache.get_all("j", lambda: b"x").readonly


def test_p6_chunks_of_a_single_number_take_more_than_their_bytes() -> None:
    """A million of them are 8 MB, and would take two gigabytes."""
    cache = ChunkCache(1 << 22)

    def load(buffer: memoryview) -> None:
        buffer[:] = b"8 bytes."

    for number in range(25_000):
        assert bytes(cache.get(number, 8, load)) == b"8 bytes."
    assert cache.gauges().chunks <= 16_384 + (1 << 22) // 2048
    assert bytes(cache.peek(24_999) or b"") == b"8 bytes."
    assert cache.peek(0) is None


@given(
    st.lists(
        st.tuples(st.sampled_from(("prefetch", "fail", "get", "peek", "discard", "clear")), st.integers(0, 9)), max_size=60
    )
)
def test_prefetched_chunks_take_a_quarter_at_most(steps: list[tuple[str, int]]) -> None:
    cache = ChunkCache(16 * MIB)
    unasked: set[int] = set()

    def load(out: memoryview) -> None:
        out[:] = bytes(len(out))

    def fail(out: memoryview) -> None:
        raise CorruptData("damaged")

    for step, key in steps:
        held = cache.holds(key)
        if step == "prefetch":
            made = cache.prefetch(key, MIB, load)
            assert (made is not None) == (not held and len(unasked) < 4)
            unasked |= {key} if made is not None else set()
        elif step == "fail":
            with contextlib.nullcontext() if held or len(unasked) == 4 else pytest.raises(CorruptData):
                cache.prefetch(key, MIB, fail)
        elif step == "get":
            cache.get(key, MIB, load)
        elif step == "peek":
            cache.peek(key)
        elif step == "discard":
            cache.discard(key)
        else:
            cache.clear()
            unasked.clear()
        if step in ("get", "peek", "discard"):
            unasked.discard(key)


def test_p6_what_decoding_a_chunk_of_unknown_size_may_take_is_reserved_before() -> None:
    """Several such chunks that are decoded at once would take any multiple of the budget."""
    cache, started, go, within = Refusing(3000), threading.Event(), threading.Event(), []

    def first() -> bytes:
        started.set()
        assert go.wait(10)
        within.append(cache.gauges().reserved)
        return b"x" * 1000

    def second() -> bytes:
        within.append(cache.gauges().reserved)
        return b"y" * 500

    threads = [threading.Thread(target=cache.get_all, args=("a", first, 2000))]
    threads[0].start()
    assert started.wait(10)
    threads.append(threading.Thread(target=cache.get_all, args=("b", second, 2000)))
    threads[1].start()
    until(lambda: cache.refused)
    go.set()
    for thread in threads:
        thread.join()
    assert within == [2000, 3000], "both were decoded at once, or what the first took in fact was not known"
    assert cache.gauges().reserved == 1500
    with pytest.raises(CorruptData):
        cache.get_all("c", fail, 2000)
    cache.clear()
    assert cache.gauges().reserved == 0


class Refusing(ChunkCache):
    """Counts how often a chunk found no room."""

    refused = 0

    def _take(self, *given: Any) -> bool:
        taken = super()._take(*given)
        self.refused += not taken
        return taken

    def was_refused(self, times: int) -> bool:
        return self.refused >= times


def fail() -> bytes:
    raise CorruptData("broken")


LONG = TurnSeconds(60.0, 60.0, 60.0)


def test_large_chunks_that_are_being_read_take_turns() -> None:
    """With more readers than there is room for, every read would throw out another reader's chunk."""
    cache = Refusing(3 * BIG, turn_seconds=LONG)
    cache.get("a", 2 * BIG, filler(1))
    assert cache.peek("a") is not None
    other = threading.Thread(target=cache.get, args=("b", 2 * BIG, filler(2)))
    other.start()
    for times in range(1, 11):
        until(partial(cache.was_refused, times))
        assert cache.peek("a") is not None
    cache.note_consumed("a")
    other.join()
    assert cache.peek("b") is not None
    assert cache.peek("a") is None


@pytest.mark.parametrize("short", ["whole", "between", "polite"])
def test_a_large_chunk_s_turn_ends_when_its_reader_pauses_or_others_have_waited(short: str) -> None:
    cache = ChunkCache(3 * BIG, turn_seconds=replace(LONG, **{short: 0.0}))
    cache.get("a", 2 * BIG, filler(1))
    assert cache.peek("a") is not None
    cache.get("b", 2 * BIG, filler(2))
    assert cache.peek("a") is None
