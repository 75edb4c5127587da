"""The reading engine against numpy: every range of any region, order and chunking, decoded once, within a small cache."""

from __future__ import annotations

import itertools
import os
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_model import FakeArray, FakeChunks, fake_array
from numpy.typing import NDArray
from waiting import until

from fsbridge.decoded import DecodedArray
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import CorruptData, Stale, TooLarge
from fsbridge.layouts.files.arrays.selection import Selection, find_band, parse_region, select_all, split_into_boxes
from fsbridge.layouts.files.elements.chunk_bytes import RANGE_BYTES
from fsbridge.layouts.files.elements.pieces import FoundChunks
from fsbridge.layouts.files.elements.reading import GROUP_CHUNKS, ElementReader
from fsbridge.layouts.files.elements.spill import Spill
from fsbridge.layouts.files.elements.supply import ChunkSupply
from fsbridge.metadata import ArrayMetadata, ChunkGrid, DataType, Index
from fsbridge.model import ChunkInfo
from fsbridge.threads.workers import Workers

VALUES = np.arange(5 * 7 * 6, dtype="<u2").reshape(5, 7, 6)


def make_reader(
    array: FakeArray,
    selection: Selection,
    order: tuple[int, ...],
    tmp_path: Path,
    budget: int = 1 << 20,
    spill: int = 1 << 20,
    group_chunks: int = GROUP_CHUNKS,
    range_bytes: int = RANGE_BYTES,
) -> ElementReader:
    cache = ChunkCache(budget)
    version = DecodedArray(array, cache, budget).whole()
    kept = selection.kept
    dropped = [i for i, pick in enumerate(selection.picks) if pick.dropped]
    full = (*dropped, *(kept[i] for i in order))
    helpers, room = Workers("helper", 1), Spill(str(tmp_path), spill)
    supply = ChunkSupply(FoundChunks(version), selection, full, helpers, room, range_bytes=range_bytes)
    return ElementReader(array.metadata, selection, order, supply, budget, group_chunks=group_chunks)


@pytest.mark.parametrize("text", [":", "1:4,::2,::-1", "2", "...,3", "::-2,1:6:3,0", "4:4", "-1,2:5,1", "-5,-7:-1:6,-6"])
def test_regions_in_every_order_equal_numpy(text: str, tmp_path: Path) -> None:
    expected = eval(f"VALUES[{text}]")
    selection = parse_region(text, VALUES.shape)
    for order in itertools.permutations(range(expected.ndim)):
        found = make_reader(fake_array(VALUES, (2, 3, 4)), selection, order, tmp_path)
        flat = np.ascontiguousarray(expected.transpose(order)).reshape(-1)
        assert found.read(0, expected.size).tobytes() == flat.tobytes()
        for start, stop in itertools.combinations(range(0, expected.size + 1, 7), 2):
            assert found.read(start, stop).tobytes() == flat[start:stop].tobytes(), (order, start, stop)


@pytest.mark.parametrize("text", [":", "1:4,::2,::-1", "2", "...,3", "::-2,1:6:3,0"])
def test_reads_of_more_chunks_than_are_looked_at_together_equal_numpy(text: str, tmp_path: Path) -> None:
    """Cut along whichever dimension has the most chunks."""
    expected = eval(f"VALUES[{text}]")
    for order in itertools.permutations(range(expected.ndim)):
        array, selection = fake_array(VALUES, (2, 1, 2)), parse_region(text, VALUES.shape)
        found = make_reader(array, selection, order, tmp_path, group_chunks=2)
        flat = np.ascontiguousarray(expected.transpose(order)).reshape(-1)
        for start, stop in itertools.combinations(range(0, expected.size + 1, 11), 2):
            assert found.read(start, stop).tobytes() == flat[start:stop].tobytes(), (order, start, stop)


@pytest.mark.parametrize("shape", [(5_000,), (1, 5_000), (2_500, 2)])
def test_p6_a_read_of_many_small_chunks_takes_little_beside_them(shape: tuple[int, ...], tmp_path: Path) -> None:
    values = np.arange(5_000, dtype="<u4").reshape(shape)
    array = fake_array(values, (*(1 for _ in shape[1:]), 2))
    found = make_reader(array, select_all(shape), tuple(range(len(shape))), tmp_path, budget=64 << 20)
    tracemalloc.start()
    try:
        data = found.read(0, values.size)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert data.tobytes() == values.tobytes()
    assert peak - kept < 1 << 20


@pytest.mark.parametrize("order", [(2, 1, 0), (1, 2, 0)])
def test_sources_in_another_memory_order_are_read_right_in_every_order(order: tuple[int, ...], tmp_path: Path) -> None:
    """Zarr's F order and v3's transpose: chunks are turned round once where the file's fastest dimension is another."""
    array = fake_array(VALUES, (2, 3, 4), order=order)
    for index, content in array.chunks.stored.items():
        chunk = np.frombuffer(content, "<u2").reshape(2, 3, 4)
        array.chunks.stored[index] = np.ascontiguousarray(chunk.transpose(order)).tobytes()
    for wanted in itertools.permutations(range(3)):
        found = make_reader(array, select_all(VALUES.shape), wanted, tmp_path)
        assert found.read(0, VALUES.size).tobytes() == np.ascontiguousarray(VALUES.transpose(wanted)).tobytes()


@pytest.mark.parametrize("edges", [(2, 3, 4), (1, 3, 4), (1, 1, 4), (1, 1, 1), (5, 7, 6), (2, 1, 1), ((1, 4), 7, 2)])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_a_band_has_the_chunks_of_its_elements_and_ends_where_others_begin(edges: Any, order: tuple[int, ...]) -> None:
    """Decoded together: the box touches the chunks of all elements up to the next band, and no others."""
    grid = ChunkGrid((5, 7, 6), edges)
    chunks = np.empty((5, 7, 6), object)
    for index in np.ndindex(5, 7, 6):
        bounds = ([*itertools.accumulate(edge)] if isinstance(edge, tuple) else range(edge, 99, edge) for edge in edges)
        chunks[index] = tuple(sum(at >= bound for bound in some) for at, some in zip(index, bounds, strict=True))
    turned = chunks.transpose(order)
    flat = turned.reshape(-1)
    element = 0
    while element < len(flat):
        box, following = find_band(grid, select_all((5, 7, 6)), order, turned.shape, element)
        touched = set(turned[tuple(slice(*span) for span in box)].reshape(-1))
        assert touched == set(flat[element:following])
        assert following is None or flat[following] not in touched
        element = len(flat) if following is None else following


def cut_array(values: NDArray[np.generic], edges: tuple[int | tuple[int, ...], ...], order: tuple[int, ...]) -> FakeArray:
    """`values` in chunks of several shapes, with elements in that order of dimensions."""
    bounds = []
    for extent, edge in zip(values.shape, edges, strict=True):
        every = edge if isinstance(edge, tuple) else (edge,) * -(-extent // edge)
        bounds.append([0, *itertools.accumulate(every)])
    padded = np.zeros([last[-1] for last in bounds], values.dtype)
    padded[tuple(slice(0, extent) for extent in values.shape)] = values
    stored = {}
    for index in itertools.product(*(range(len(some) - 1) for some in bounds)):
        chunk = padded[tuple(slice(some[i], some[i + 1]) for i, some in zip(index, bounds, strict=True))]
        stored[index] = np.ascontiguousarray(chunk.transpose(order)).tobytes()
    dtype = DataType(values.dtype.name, values.dtype.itemsize, "little", values.dtype.str, values.dtype)
    native = None if order == tuple(range(values.ndim)) else order
    return FakeArray(ArrayMetadata(ChunkGrid(values.shape, edges), dtype, order=native), FakeChunks(stored))


@pytest.mark.parametrize("native", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("edges", [((1, 3, 1), (4, 1, 2), (5, 1)), (2, (1, 1, 5), 6), ((5,), 3, (2, 2, 1, 1))])
@pytest.mark.parametrize("text", [":", "1:4,::2,::-1", "...,5", "::-2,1:6:3,0"])
def test_chunks_of_several_shapes_equal_numpy(
    edges: tuple[int | tuple[int, ...], ...], native: tuple[int, ...], text: str, tmp_path: Path
) -> None:
    expected = eval(f"VALUES[{text}]")
    array = cut_array(VALUES, edges, native)
    for order in itertools.permutations(range(expected.ndim)):
        found = make_reader(array, parse_region(text, VALUES.shape), order, tmp_path)
        flat = np.ascontiguousarray(expected.transpose(order)).reshape(-1)
        for start, stop in itertools.combinations(range(0, expected.size + 1, 19), 2):
            assert found.read(start, stop).tobytes() == flat[start:stop].tobytes(), (order, start, stop)


def test_what_is_not_stored_is_the_fill_value(tmp_path: Path) -> None:
    array = fake_array(VALUES, (2, 3, 4), fill=b"\x09\x00")
    del array.chunks.stored[1, 1, 0]
    expected = VALUES.copy()
    expected[2:4, 3:6, :4] = 9
    found = make_reader(array, select_all(VALUES.shape), (0, 1, 2), tmp_path)
    assert found.read(0, VALUES.size).tobytes() == expected.tobytes()


def test_p8_a_damaged_chunk_fails_exactly_the_reads_that_touch_it(tmp_path: Path) -> None:
    class Damaged(FakeChunks):
        def read_all(self, index: Index, info: ChunkInfo, limit: int = 1 << 30) -> bytes:
            if index == (1, 1, 0):
                raise CorruptData("damaged")
            return super().read_all(index, info, limit)

    array = fake_array(VALUES, (2, 3, 4))
    array.chunks = Damaged(array.chunks.stored)
    found = make_reader(array, select_all(VALUES.shape), (0, 1, 2), tmp_path)
    touched = np.zeros(VALUES.shape, bool)
    touched[2:4, 3:6, :4] = True
    for position, bad in enumerate(touched.reshape(-1)):
        if bad:
            with pytest.raises(CorruptData):
                found.read(position, position + 1)
        else:
            assert found.read(position, position + 1)[0] == position


@pytest.mark.parametrize("budget", [1 << 20, 2048])
def test_no_chunk_is_decoded_once_per_plane(budget: int, tmp_path: Path) -> None:
    """Also when a band is larger than the cache: then it is spilt."""
    values = np.arange(16 * 32 * 32, dtype="<u2").reshape(16, 32, 32)
    array = fake_array(values, (8, 8, 8))
    found = make_reader(array, select_all(values.shape), (0, 1, 2), tmp_path, budget)
    for plane in range(16):
        expected = values[plane].tobytes()
        assert found.read(plane * 1024, (plane + 1) * 1024).tobytes() == expected
    assert len(array.chunks.decoded) <= 1.5 * len(array.chunks.stored)


def test_streaming_decodes_each_chunk_once(tmp_path: Path) -> None:
    """Also if a band takes half the cache."""
    values = np.arange(64 * 64 * 64, dtype="<u2").reshape(64, 64, 64)
    array = fake_array(values, (8, 16, 16))
    found = make_reader(array, select_all(values.shape), (0, 1, 2), tmp_path, 2 * 8 * 64 * 64 * 2, 0)
    behind = 0
    for plane in range(0, 64, 2):
        first, last = plane * 4096, (plane + 2) * 4096
        assert found.read(first, last).tobytes() == values[plane : plane + 2].tobytes()
        behind = found.give_up(behind, last)
    assert len(array.chunks.decoded) == len(array.chunks.stored)


def test_without_room_for_a_band_opening_fails(tmp_path: Path) -> None:
    values = np.zeros((16, 32, 32), "<u2")
    with pytest.raises(TooLarge, match=r"131072 bytes|65536 bytes"):
        make_reader(fake_array(values, (8, 8, 8)), select_all(values.shape), (0, 1, 2), tmp_path, 2048, 4096)


def test_a_sparse_array_needs_no_room(tmp_path: Path) -> None:
    values = np.zeros((16, 32, 32), "<u2")
    array = fake_array(values, (8, 8, 8))
    array.chunks.stored = {(0, 0, 0): array.chunks.stored[0, 0, 0]}
    assert not make_reader(array, select_all(values.shape), (0, 1, 2), tmp_path, 2048, 4096).read(0, values.size).any()


def test_p9_a_chunk_that_was_used_and_replaced_is_stale(tmp_path: Path) -> None:
    array = fake_array(VALUES, (2, 3, 4))
    cache = ChunkCache(1 << 20)
    chunks = DecodedArray(array, cache, 1 << 19)

    def open_reader() -> ElementReader:
        supply = ChunkSupply(
            FoundChunks(chunks.whole()), select_all(VALUES.shape), (0, 1, 2), Workers("helper", 1), Spill(str(tmp_path), 0)
        )
        return ElementReader(array.metadata, select_all(VALUES.shape), (0, 1, 2), supply, 1 << 20)

    found = open_reader()
    before = found.read(0, 1).tobytes()
    array.chunks.version += 1
    array.chunks.stored = {index: bytes(len(content)) for index, content in array.chunks.stored.items()}
    assert found.read(0, 1).tobytes() == before  # still in memory
    cache.clear()
    with pytest.raises(Stale):
        found.read(0, 1)
    assert open_reader().read(0, VALUES.size).tobytes() == bytes(VALUES.nbytes)


@pytest.mark.parametrize("replaced", [False, True])
def test_p9_a_chunk_that_a_new_array_has_replaced_is_stale_not_damaged(replaced: bool) -> None:
    class Directories(FakeChunks):
        def find(self, index: Index) -> ChunkInfo:
            raise CorruptData(f"{index}: a directory in place of a chunk")

    array = fake_array(VALUES, (2, 3, 4))
    version = DecodedArray(array, ChunkCache(1 << 20), 1 << 19).whole()
    array.chunks = Directories(array.chunks.stored)
    array.newest = not replaced
    with pytest.raises(Stale if replaced else CorruptData):
        version.open((0, 0, 0))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (3, 1, 4), (2, 3, 2, 2)])
def test_boxes_cover_a_range_exactly(shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape))
    numbers = np.arange(size).reshape(shape)
    for start in range(size + 1):
        for stop in range(start, size + 1):
            found: list[int] = []
            for first, box in split_into_boxes(shape, start, stop):
                part = numbers[tuple(slice(low, high) for low, high in box)].reshape(-1)
                assert part[0] == first
                found += part.tolist()
            assert found == list(range(start, stop))


@pytest.mark.parametrize("order", [None, (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("text", [":", "1:4,::2,::-1", "2", "...,3", "::-2,1:6:3,0"])
def test_p6_a_chunk_larger_than_the_cache_is_read_by_ranges(
    order: tuple[int, ...] | None, text: str, tmp_path: Path
) -> None:
    asked: list[int] = []

    class Ranged(FakeChunks):
        def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes:
            asked.append(stop - start)
            return self.stored[index][start:stop]

    array = fake_array(VALUES, (3, 7, 6), order=order)
    for index, content in array.chunks.stored.items():
        chunk = np.frombuffer(content, "<u2").reshape(3, 7, 6)
        array.chunks.stored[index] = np.ascontiguousarray(chunk.transpose(order)).tobytes() if order else content
    array.chunks = chunks = Ranged(array.chunks.stored)
    expected, selection = eval(f"VALUES[{text}]"), parse_region(text, VALUES.shape)
    for wanted in itertools.permutations(range(expected.ndim)):
        found = make_reader(array, selection, wanted, tmp_path, budget=250, range_bytes=30)
        assert found.read(0, expected.size).tobytes() == np.ascontiguousarray(expected.transpose(wanted)).tobytes()
    assert max(asked) <= 30
    assert not chunks.decoded
    array.chunks = FakeChunks(chunks.stored)  # without ranges
    with pytest.raises(TooLarge, match="a chunk of 252 bytes is too large for a cache of 250: --cache-size 1M permits it"):
        found.read(0, 1)


def test_p7_closing_does_not_wait_for_the_disk_that_holds_spilt_chunks(tmp_path: Path) -> None:
    """It is done on the event loop."""
    goes_on, entered, over = threading.Event(), threading.Event(), threading.Event()

    def allocate(file: int, start: int, length: int) -> None:
        if start:  # for all chunks but the first one
            entered.set()
            assert goes_on.wait(60)
        os.posix_fallocate(file, start, length)

    cache, spill = ChunkCache(1 << 20), Spill(str(tmp_path), 1 << 20, allocate)
    version = DecodedArray(fake_array(VALUES, (2, 3, 4)), cache, 1 << 20).whole()
    supply = ChunkSupply(FoundChunks(version), select_all(VALUES.shape), (0, 1, 2), Workers("helper", 1), spill)

    def use(index: Index) -> None:
        piece = supply.find(index)
        assert piece is not None
        supply.use(piece, lambda elements: None)

    def close() -> None:
        supply.close()
        over.set()

    for index in ((0, 0, 0), (0, 0, 1), (0, 0, 0)):  # the second time a chunk is kept
        use(index)
        cache.clear()
    assert spill.free < spill.limit
    putting = threading.Thread(target=use, args=((0, 0, 1),), daemon=True)
    putting.start()
    assert entered.wait(60)
    threading.Thread(target=close, daemon=True).start()
    closed = over.wait(5.0)
    goes_on.set()
    putting.join(60)
    assert closed
    until(lambda: spill.free == spill.limit)
