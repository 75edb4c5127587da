"""Every kind of chunk index that HDF5 has, over ranks, unlimited axes and versions of the file format, against h5py."""

from __future__ import annotations

import ctypes
import itertools
import logging
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hdf5_children import watched
from hdf5_model import array, opened, values

from fsbridge.errors import CorruptData
from fsbridge.formats.hdf5.child import chunks
from fsbridge.formats.hdf5.child.data_file import Refusal

SHAPE, EDGES = (5, 7, 3), (2, 3, 2)
LIBVERS = ("earliest", "v110", "latest")
LATEST_KINDS = {"single", "implicit", "fixed array", "extensible array", "b-tree 2"}


Shape = tuple[int, ...]


def kind_of(maxshape: tuple[int | None, ...], shape: Shape, edges: Shape, early: bool, filtered: bool) -> str:
    """The chunk index that HDF5 1.10 and later choose (H5D__layout_set_latest_indexing)."""
    unlimited = sum(extent is None for extent in maxshape)
    if unlimited:
        return "extensible array" if unlimited == 1 else "b-tree 2"
    if shape == maxshape == edges:
        return "single"
    return "implicit" if early and not filtered else "fixed array"


def variants() -> Iterator[tuple[str, tuple[int, ...], tuple[int | None, ...], tuple[int, ...], bool, bool]]:
    """Name, shape, maximal shape, chunk shape, early allocation and compression of each dataset."""
    for rank in range(1, len(SHAPE) + 1):
        shape = SHAPE[:rank]
        for growth in itertools.product("sbu", repeat=rank):  # the same, bigger, unlimited
            grown = {"s": 0, "b": 5}
            maxshape = tuple(None if g == "u" else n + grown[g] for g, n in zip(growth, shape, strict=True))
            for early, filtered, edges in (
                (False, False, EDGES[:rank]),
                (True, False, EDGES[:rank]),
                (False, True, EDGES[:rank]),
                (False, False, shape),
            ):
                whole = "whole" if edges == shape else "cut"
                yield f"{''.join(growth)}-{early:d}{filtered:d}-{whole}", shape, maxshape, edges, early, filtered


def write(group: h5py.Group, name: str, data: Any, maxshape: Any, edges: Any, early: bool, filtered: bool) -> h5py.Dataset:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(edges)
    if filtered:
        plist.set_deflate(1)
    if early:
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    limits = tuple(h5py.h5s.UNLIMITED if extent is None else extent for extent in maxshape)
    space = h5py.h5s.create_simple(data.shape, limits)
    dataset = h5py.Dataset(h5py.h5d.create(group.id, name.encode(), h5py.h5t.STD_I32LE, space, plist))
    dataset[...] = data
    return dataset


@pytest.mark.parametrize("libver", LIBVERS)
def test_every_chunk_index_reads_as_h5py_does(tmp_path: Path, libver: str) -> None:
    """Index kinds x rank x growing axes x versions: every chunk is where HDF5 reads it."""
    path = tmp_path / "matrix.h5"
    kinds: Counter[str] = Counter()
    with h5py.File(path, "w", libver=libver) as file:
        for name, shape, maxshape, edges, early, filtered in variants():
            write(file, name, np.arange(math.prod(shape)).reshape(shape) + 1, maxshape, edges, early, filtered)
            kinds[kind_of(maxshape, shape, edges, early, filtered)] += 1
    assert set(kinds) == LATEST_KINDS
    with opened(path) as source, h5py.File(path) as file:
        for name, dataset in file.items():
            np.testing.assert_array_equal(values(array(source, name)), dataset[()], err_msg=name)


@pytest.mark.parametrize("unlimited", [0, 1, 2])
def test_extensible_arrays_of_many_chunks_read_as_h5py_does(tmp_path: Path, unlimited: int) -> None:
    """Beyond the array's own blocks and pages, sparse, with gaps, and grown step by step along the unlimited axis."""
    path = tmp_path / "many.h5"
    shape = [6, 5, 4]
    maxshape: list[int | None] = [9, 8, 7]
    shape[unlimited], maxshape[unlimited] = 40, None
    with h5py.File(path, "w", libver="latest") as file:
        dataset = file.create_dataset("x", tuple(shape), "<i4", maxshape=tuple(maxshape), chunks=(2, 2, 2), fillvalue=-1)
        for step in range(60):
            shape[unlimited] = 40 + 20 * step
            dataset.resize(tuple(shape))
            place = [slice(None), slice(1, 4), slice(None)]
            place[unlimited] = slice(shape[unlimited] - 7 - step % 5, shape[unlimited] - 2)
            dataset[tuple(place)] = np.random.default_rng(step).integers(0, 1 << 30, dataset[tuple(place)].shape)
        shape[unlimited - 1] -= 1
        dataset.resize(tuple(shape))
    with opened(path) as source, h5py.File(path) as file:
        found = array(source, "x")
        assert found.chunks.count() > 900
        np.testing.assert_array_equal(values(found), file["x"][()])


def test_a_growing_second_axis_keeps_every_chunk_in_place(tmp_path: Path) -> None:
    """240 numbers with a second axis that may grow: all forty chunks, where they belong."""
    path = tmp_path / "x.h5"
    data = np.arange(240).reshape(4, 60) + 1
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("x", data=data, chunks=(2, 3), maxshape=(10, None))
    with opened(path) as source:
        found = array(source, "x")
        assert found.chunks.count() == 40
        np.testing.assert_array_equal(values(found), data)


def verification(file: h5py.File) -> chunks.TableChecks:
    """A verification as for a file that was just opened."""
    descriptor = file.id.get_vfd_handle()
    return chunks.TableChecks(Counter(), lambda start, length: os.pread(descriptor, length, start), 0, False)


class Misread:
    """A dataset with a chunk index that HDF5 tells wrongly, as `change` says. `read_direct_chunk` reads the right chunks."""

    def __init__(self, dataset: Any, change: Callable[[list[Any]], list[Any]]) -> None:
        self.dataset, self.change = dataset, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dataset, name)

    def chunk_iter(self, add: Callable[[Any], None]) -> None:
        infos: list[Any] = []
        self.dataset.chunk_iter(infos.append)
        for info in self.change(infos):
            add(info)


def with_offsets(infos: list[Any], *offsets: tuple[int, ...]) -> list[Any]:
    """The chunks, the last ones at other offsets."""
    moved = zip(infos[-len(offsets) :], offsets, strict=True)
    return [*infos[: -len(offsets)], *(info._replace(chunk_offset=offset) for info, offset in moved)]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_chunk_at_a_wrong_address_is_refused(tmp_path: Path, libver: str) -> None:
    """Chunks that HDF5 itself reads elsewhere are refused, whatever HDF5's iteration says."""
    with h5py.File(tmp_path / "x.h5", "w", libver=libver) as file:
        dataset = file.create_dataset("x", data=np.arange(40), chunks=(2,), maxshape=(None,))
        good = chunks.read_stored_chunks(dataset.id, verification(file))
        assert (len(good.columns[0]), good.outside) == (20, 0)
        wrong = Misread(dataset.id, lambda infos: with_offsets(infos, infos[-1].chunk_offset, infos[-2].chunk_offset))
        with pytest.raises(Refusal, match="other bytes"):
            chunks.read_stored_chunks(wrong, verification(file))


def test_chunks_outside_the_grid_are_never_dropped_silently(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are counted and reported. A table that has one chunk inside by mistake is refused."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", data=np.arange(200), chunks=(2,), maxshape=(None,))
        wrong = Misread(dataset.id, lambda infos: with_offsets(infos, (250,), (252,)))
        found = chunks.read_stored_chunks(wrong, verification(file))
        assert (len(found.columns[0]), found.outside) == (98, 2)
    caplog.set_level(logging.WARNING)

    def change(question: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        return answer | ({"outside": 2} if question["op"] == "table" else {})

    with opened(path, watched(change=change)) as source:
        assert array(source, "x").chunks.count() == 100
        assert list(array(source, "x").chunks.strays()) == [f"{path}:/x: 2 stored chunks outside its shape"]
    assert [r.getMessage() for r in caplog.records if "outside" in r.getMessage()] == [
        f"{path}: x: 2 stored chunks outside its shape are not shown"
    ]


def test_impossible_positions_are_corrupt() -> None:
    """The daemon checks the child's answer again."""
    from fsbridge.formats.hdf5.tables import ChunkTable

    with pytest.raises(CorruptData, match="outside"):
        ChunkTable((4,), [np.array([9], np.uint64)] * 4)


def test_p2_what_szip_has_not_filled_is_not_taken_for_elements() -> None:
    """Lines of ten pixels are stored as sixteen, so even the bytes of a whole chunk may be too few lines."""
    filled = [0]

    def decompress(out: int, length: ctypes.c_size_t, stored: bytes, count: int, form: ctypes.Structure) -> int:
        length.value = filled[0]
        return 0

    stored = (100).to_bytes(4, "little") + b"x"
    for filled[0], line, whole in ((154, 10, True), (153, 10, False), (100, 10, False), (100, 8, True), (99, 8, False)):
        found = chunks._decode_szip(decompress, stored, 100, (0, 8, 8, line))
        assert found is not None
        assert (len(found) == 100) == whole
    for settings in ((0, 8, 8), (0, 8, 0, 8), (0, 8, 24, 8), (0, 8, 64, 8)):
        assert chunks._decode_szip(decompress, stored, 100, settings) is None, "HDF5 tells what is wrong"


def test_p2_bytes_that_were_shuffled_otherwise_than_by_element_are_left_to_hdf5(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        found = file.create_dataset("x", data=np.arange(64, dtype="<i4"), chunks=(64,), shuffle=True, compression="lzf").id
        plist = found.get_create_plist()
        assert chunks.decode_lzf_or_szip(found, plist, (0,)) is not None
        plist.remove_filter(h5py.h5z.FILTER_ALL)
        plist.set_filter(h5py.h5z.FILTER_SHUFFLE, 0, (2,))
        plist.set_filter(chunks.LZF, 0, ())
        assert chunks.decode_lzf_or_szip(found, plist, (0,)) is None
