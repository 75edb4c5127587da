"""Elements of an open file: bytes asked for, and windows assembled ahead of a reader, equal numpy's."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from fake_model import FakeArray, FakeChunks, fake_array
from numpy.typing import NDArray

from fsbridge.children.client import ChildDied, ChildGone
from fsbridge.decoded import DecodedArray
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import CorruptData, FsbridgeError, Unreachable, Unsupported
from fsbridge.layouts.files.arrays.element_bytes import ElementBytes, StreamLimits
from fsbridge.layouts.files.arrays.extents import Elements
from fsbridge.layouts.files.arrays.selection import select_all
from fsbridge.layouts.files.elements.pieces import FoundChunks
from fsbridge.layouts.files.elements.reading import ElementReader
from fsbridge.layouts.files.elements.spill import Spill
from fsbridge.layouts.files.elements.supply import ChunkSupply
from fsbridge.metadata import Index
from fsbridge.model import ChunkInfo
from fsbridge.threads.workers import Workers

VALUES = np.arange(64 * 48 * 40, dtype="<u2").reshape(64, 48, 40)
PLANE = 48 * 40 * 2


STREAMING = StreamLimits(streaming_bytes=PLANE, overtaken_bytes=PLANE)
"""A reader that has read a plane reads everything."""


def open_elements(
    array: FakeArray,
    tmp_path: Path,
    shown: str = "<u2",
    read_ahead: bool = True,
    cache: ChunkCache | None = None,
    kind: type[ElementBytes] = ElementBytes,
) -> ElementBytes:
    cache = ChunkCache(1 << 20) if cache is None else cache
    order = tuple(range(len(array.metadata.shape)))
    version = DecodedArray(array, cache, cache.budget // 2).whole()
    supply = ChunkSupply(
        FoundChunks(version), select_all(array.metadata.shape), order, Workers("helper", 1), Spill(str(tmp_path), 1 << 20)
    )
    reader = ElementReader(array.metadata, select_all(array.metadata.shape), order, supply, cache.budget, read_ahead)
    native = array.metadata.dtype.numpy
    return kind(Elements(0, order, np.dtype(shown)), reader, supply, native, cache, STREAMING)


def test_a_window_holds_whole_planes(tmp_path: Path) -> None:
    source = open_elements(fake_array(VALUES, (8, 16, 16)), tmp_path)
    assert source.size == VALUES.nbytes
    assert source.window == (1 << 20) // 16 // PLANE * PLANE
    assert open_elements(fake_array(VALUES[:2], (8, 16, 16)), tmp_path).window == 0, "nothing is ahead in a short file"


def cache_of(source: ElementBytes) -> ChunkCache:
    return source._cache


def read_stream(source: ElementBytes, step: int) -> bytes:
    """The whole file, read as the kernel does, with windows made on another thread."""
    found, window, ahead = [], source.window, 2 * step
    for start in range(0, source.size, step):
        stop = min(start + step, source.size)
        worker = threading.Thread(target=source.prefetch, args=(ahead, min(ahead + window, source.size)))
        if start >= 2 * step and ahead < min(start + 2 * window, source.size):
            worker.start()
            ahead = min(ahead + window, source.size)
        peeked = source.peek(start, stop)
        found.append(bytes(source.read(start, stop) if peeked is None else peeked))
        if worker.ident is not None:
            worker.join()
    return b"".join(found)


@pytest.mark.parametrize("step", [1000, 4096, 10001, 30000])
@pytest.mark.parametrize("shown", ["<u2", ">u2"])
def test_a_stream_through_windows_is_the_array(step: int, shown: str, tmp_path: Path) -> None:
    array = fake_array(VALUES, (8, 16, 16))
    source = open_elements(array, tmp_path, shown=shown)
    assert read_stream(source, step) == VALUES.astype(shown).tobytes()
    assert len(array.chunks.decoded) == len(array.chunks.stored), "each chunk once"
    source.close()
    kept = cache_of(source).gauges()
    assert kept.cached == sum(map(len, array.chunks.stored.values())), "chunks alone are left"


def test_a_reader_that_is_faster_than_the_windows_makes_them(tmp_path: Path) -> None:
    """A reader of the next window does not take it in small parts while the threads ahead are busy."""
    source = open_elements(fake_array(VALUES, (8, 16, 16)), tmp_path)
    source.read(0, PLANE)
    source.prefetch(PLANE, source.window)
    begin = source.window
    assert bytes(source.read(begin, begin + 10)) == VALUES.tobytes()[begin : begin + 10]
    assert source.peek(begin + 10, 2 * begin) is not None


class NotedCache(ChunkCache):
    """A cache that notes the bands of chunks that are given up while it has them."""

    def __init__(self) -> None:
        super().__init__(1 << 20)
        self.given_up: set[int] = set()

    def note_consumed(self, key: Hashable) -> None:
        if self.holds(key):
            assert isinstance(key, tuple)
            self.given_up.add(key[1][0])
        super().note_consumed(key)


def test_chunks_are_given_up_although_windows_are_not_ready_in_their_order(tmp_path: Path) -> None:
    array, cache = fake_array(VALUES, (8, 16, 16)), NotedCache()
    source = open_elements(array, tmp_path, cache=cache)
    source.read(0, PLANE)
    source._ahead[0] = False  # its maker takes long over it
    source.prefetch(source.window, 3 * source.window)
    assert not cache.given_up
    del source._ahead[0]
    source.prefetch(3 * source.window, source.size)
    assert cache.given_up == {0, 2, 3, 4, 5, 6}, "all but the last band, and one that was not read"


@dataclass(eq=False)
class FarArray(FakeArray):
    """An array with stored bytes that are prefetched; `sent`: the chunks."""

    sent: list[Index] = field(default_factory=list)

    @property
    def fetch(self) -> Callable[[Index], object]:
        return self.sent.append


def make_far_array(values: NDArray[np.generic]) -> FarArray:
    array = fake_array(values, (8, 16, 16))
    return FarArray(array.metadata, array.chunks)


@pytest.mark.parametrize("read_ahead", [True, False])
def test_a_sequential_reader_of_a_remote_store_has_the_next_chunks_prefetched(tmp_path: Path, read_ahead: bool) -> None:
    array = make_far_array(VALUES[:48])
    every, band = list(np.ndindex(array.metadata.grid.counts)), 9
    source = open_elements(array, tmp_path, read_ahead=read_ahead)
    source.read(40 * PLANE, 40 * PLANE + 100)
    source.read(0, PLANE // 2)
    assert array.sent == [*every[5 * band : 5 * band + 3], *every[:6]], "those of the bytes that were read"
    source.read(PLANE // 2, PLANE)
    source.read(PLANE, 2 * PLANE)
    assert len(array.sent) == len(set(array.sent)) == (len(every) if read_ahead else 3 + band), "each once"
    assert bytes(source.read(0, PLANE)) == VALUES[0].tobytes()


def test_stored_bytes_behind_a_prefetched_window_are_prefetched(tmp_path: Path) -> None:
    array = make_far_array(VALUES)
    every = list(np.ndindex(array.metadata.grid.counts))
    source = open_elements(array, tmp_path)
    source._progress = PLANE
    source.prefetch(source.window, 2 * source.window)
    assert array.sent == every[2 * 9 :], "from the second window on"


def test_no_window_is_left_out_because_others_are_not_ready(tmp_path: Path) -> None:
    """Its reader made it himself, of chunks that had been given up: far away they were all sent a second time."""
    array = fake_array(VALUES, (8, 16, 16))
    source = open_elements(array, tmp_path)
    source.read(0, PLANE)
    source._ahead |= dict.fromkeys(range(2, 2 + (32 << 20) // source.window), False)  # as many as are asked for ahead
    source.prefetch(source.window, 2 * source.window)
    assert source.peek(source.window, 2 * source.window) is not None


def test_windows_behind_the_reader_are_given_up(tmp_path: Path) -> None:
    source = open_elements(fake_array(VALUES, (8, 16, 16)), tmp_path)
    source.read(0, PLANE)
    source.prefetch(0, 3 * source.window)
    assert len(source._ahead) == 3
    assert source.peek(2 * source.window, 2 * source.window + 10) is not None
    assert len(source._ahead) == 3, "requests overtake each other"
    assert source.peek(2 * source.window + PLANE, 2 * source.window + PLANE + 10) is not None
    assert list(source._ahead) == [2]
    assert source.peek(0, 20_000) is None
    assert bytes(source.read(0, 20_000)) == VALUES.tobytes()[:20_000]


@pytest.mark.parametrize("shown", ["<u2", ">u2"])
def test_a_few_bytes_of_chunks_in_memory_need_no_worker(shown: str, tmp_path: Path) -> None:
    array = fake_array(VALUES, (8, 16, 16), fill=b"\x09\x00")
    del array.chunks.stored[1, 1, 0]
    values = VALUES.copy()
    values[8:16, 16:32, :16] = 9
    content = values.astype(shown).tobytes()
    source = open_elements(array, tmp_path, shown=shown)
    assert source.peek(0, 80) is None
    for plane in (9, 12):
        source.read(plane * PLANE, plane * PLANE + PLANE)
    for start in range(8 * PLANE, 16 * PLANE, 997):
        found = source.peek(start, start + 500)
        assert found is not None
        assert bytes(found) == content[start : start + 500]
    assert source.peek(16 * PLANE - 10, 16 * PLANE + 10) is None
    cache_of(source).clear()
    assert source.peek(8 * PLANE, 8 * PLANE + 500) is None


def test_p8_a_damaged_chunk_of_a_window_fails_its_own_bytes_only(tmp_path: Path) -> None:
    class Damaged(FakeChunks):
        def read_all(self, index: Index, info: ChunkInfo, limit: int = 1 << 30) -> bytes:
            if index == (2, 1, 1):
                raise CorruptData("damaged")
            return super().read_all(index, info, limit)

    array = fake_array(VALUES, (8, 16, 16))
    array.chunks = Damaged(array.chunks.stored)
    source, content = open_elements(array, tmp_path), VALUES.tobytes()
    source.read(0, PLANE)
    with pytest.raises(CorruptData):
        source.prefetch(source.window, 2 * source.window)
    source.prefetch(2 * source.window, 3 * source.window)
    bad = np.zeros(VALUES.shape, bool)
    bad[16:24, 16:32, 16:32] = True
    for start in range(0, source.size, 80):
        if bad.reshape(-1)[start // 2 : start // 2 + 40].any():
            with pytest.raises(CorruptData):
                source.read(start, start + 80)
        else:
            assert bytes(source.read(start, start + 80)) == content[start : start + 80]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_nothing_is_made_ahead_for_a_file_that_is_closed(when: str, tmp_path: Path) -> None:
    """`head` of a long file left eight windows to be made for no reader."""

    class ClosedMeanwhile(ElementBytes):
        def _assemble(self, number: int) -> memoryview:
            view = super()._assemble(number)
            self.close()
            return view

    array = fake_array(VALUES, (8, 16, 16))
    source = open_elements(array, tmp_path, kind=ElementBytes if when == "before" else ClosedMeanwhile)
    source.read(0, PLANE)
    if when == "before":
        source.close()
    known = len(array.chunks.decoded)
    source.prefetch(source.window, source.size)
    assert len(array.chunks.decoded) - known <= (0 if when == "before" else 3 * 9), "those of one window"
    assert not source._ahead


@pytest.mark.parametrize("passing", [Unreachable("no answer"), ChildGone("it was ended"), ChildDied("SIGSEGV")])
def test_p3_what_passes_is_not_remembered_as_damage(passing: FsbridgeError, tmp_path: Path) -> None:
    """A server that had not answered once made its chunk an error for as long as the file was open."""
    errors = [passing]

    class Failing(FakeChunks):
        def read_all(self, index: Index, info: ChunkInfo, limit: int = 1 << 30) -> bytes:
            if errors:
                raise errors.pop()
            return super().read_all(index, info, limit)

    array = fake_array(VALUES, (8, 16, 16))
    array.chunks = Failing(array.chunks.stored)
    source = open_elements(array, tmp_path)
    with contextlib.suppress(type(passing)):  # several chunks are decoded together, and those that failed once more
        source.read(0, 80)
    assert bytes(source.read(0, 80)) == VALUES.tobytes()[:80]


def test_p7_a_read_of_more_windows_than_the_cache_holds_ends(tmp_path: Path) -> None:
    """A request of a mebibyte is of 16 windows where they are a sixteenth of a cache of one mebibyte."""
    source = open_elements(fake_array(VALUES, (8, 16, 16)), tmp_path, cache=ChunkCache(100_000, patience=600.0))
    source.read(0, PLANE)
    source.prefetch(source.window, 2 * source.window)
    found: list[bytes] = []
    begin = 2 * source.window
    reader = threading.Thread(target=lambda: found.append(bytes(source.read(begin, source.size))), daemon=True)
    reader.start()
    reader.join(60)
    assert found == [VALUES.tobytes()[begin:]]


@pytest.mark.parametrize("dtype", ["<c8", ">c8", "<u2", ">f4", "<i8"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_the_byte_order_of_a_file_may_be_another(dtype: str, order: Literal["<", ">"], tmp_path: Path) -> None:
    """Complex numbers kept their bytes, and no error said so."""
    values = (np.arange(24) * (1 + 2j if "c" in dtype else 1)).reshape(2, 3, 4).astype(dtype)
    shown = values.dtype.newbyteorder(order)
    source = open_elements(fake_array(values, (1, 2, 2)), tmp_path, shown=shown.str)
    assert bytes(source.read(0, source.size)) == values.astype(shown).tobytes()
    source.close()


@pytest.mark.parametrize(
    ("dtype", "shown"), [("<f8", "<i4"), ("<i4", "<u4"), ("<u2", "V4"), ("<i8", ">M8[s]"), ("<c8", "<f4")]
)
def test_conversions_that_are_impossible_are_refused(dtype: str, shown: str, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="cannot be shown"):
        open_elements(fake_array(np.zeros((2, 3, 4), dtype), (1, 2, 2)), tmp_path, shown=shown)
