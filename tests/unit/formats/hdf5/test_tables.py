"""Chunk tables: finding, scanning, memory, and the budget of the cache."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hdf5_children import noting
from hdf5_model import array, opened, values
from hypothesis import given
from hypothesis import strategies as st
from paths import TESTS
from waiting import Clock

from fsbridge.errors import CorruptData, NotFound
from fsbridge.formats.hdf5.tables import ChunkAddress, ChunkTable, TableCache

MANY = 1_000_000


def make_table(counts: tuple[int, ...], positions: list[int], masks: int = 0) -> ChunkTable:
    column = np.array(positions, np.uint64)
    return ChunkTable(counts, [column, column * np.uint64(100), column + np.uint64(1), column * np.uint64(masks)])


@given(st.data())
def test_scan_and_find_agree_with_the_set_of_chunks(data: st.DataObject) -> None:
    """Whatever is stored, each prefix lists what lies below it, once and ascending, and nothing else is found."""
    counts = tuple(data.draw(st.lists(st.integers(1, 5), min_size=0, max_size=4)))
    cells = int(np.prod(counts, dtype=int))
    positions = data.draw(st.lists(st.integers(0, cells - 1), unique=True))
    masks = data.draw(st.integers(0, 1))
    found = make_table(counts, positions, masks)
    indexes = {tuple(int(i) for i in np.unravel_index(p, counts)) if counts else (): p for p in positions}
    assert len(found) == len(positions)
    for depth in range(len(counts)):
        for prefix in np.ndindex(counts[:depth]):
            below = sorted({index[depth] for index in indexes if index[:depth] == prefix})
            assert [i for batch in found.scan(prefix) for i in batch] == below
            assert found.any_below(prefix) == bool(below)
    for index in np.ndindex(counts):
        if index in indexes:
            position = indexes[index]
            assert found.find(index) == ChunkAddress(position * 100, position + 1, position * masks)
        else:
            with pytest.raises(NotFound):
                found.find(index)
    for outside in ((*counts,), (-1,) * max(1, len(counts)), (0,) * (len(counts) + 1)):
        if outside != ():
            with pytest.raises(NotFound):
                found.any_below(outside)


def test_impossible_tables_are_corrupt() -> None:
    """Two chunks at one place, a chunk outside the grid."""
    with pytest.raises(CorruptData, match="two chunks"):
        make_table((4,), [1, 2, 1])
    with pytest.raises(CorruptData, match="outside"):
        make_table((2, 2), [4])


def test_tables_are_loaded_once_and_kept_within_a_budget() -> None:
    """Many callers load a table once; the least recently used tables are dropped; a failed load is retried."""
    one = make_table((100,), list(range(100)))
    cache = TableCache(3 * one.nbytes)
    loads: list[Any] = []

    def load(key: Any) -> ChunkTable:
        loads.append(key)
        return make_table((100,), list(range(100)))

    threads = [threading.Thread(target=lambda: cache.get("a", lambda: load("a"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == ["a"]
    for key in ("b", "c", "a", "d"):
        cache.get(key, partial(load, key))
    assert loads == ["a", "b", "c", "d"]
    cache.get("a", lambda: load("a"))
    cache.get("b", lambda: load("b"))
    assert loads == ["a", "b", "c", "d", "b"]
    with pytest.raises(CorruptData):
        cache.get("x", lambda: make_table((1,), [5]))
    assert len(cache.get("x", lambda: load("x"))) == 100


def write_many(path: Path) -> None:
    """10^6 chunks of one byte, in the order of their positions."""
    with h5py.File(path, "w", libver="latest") as file:
        dataset = file.create_dataset("x", (1000, MANY // 1000), "u1", chunks=(1, 1))
        dataset.id.write_direct_chunk((0, 0), b"\x07")
        del dataset
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((1, 1))
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plist.set_fill_value(np.array(7, "u1"))
        h5py.h5d.create(file.id, b"early", h5py.h5t.STD_U8LE, h5py.h5s.create_simple((1000, MANY // 1000)), plist)


def test_a_million_chunks_are_read_within_bounded_memory(tmp_path: Path) -> None:
    """They are listed, found and read within bounded memory: the table and its transfer, without an object per chunk."""
    path = tmp_path / "many.h5"
    write_many(path)
    script = """
        import resource, sys
        from hdf5_model import array, opened, values
        with opened(sys.argv[1]) as source:
            few, many = array(source, "x"), array(source, "early")
            few.chunks.count()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            assert many.chunks.count() == 1_000_000
            assert sum(len(batch) for batch in many.chunks.scan(())) == 1000
            assert [i for batch in many.chunks.scan((999,)) for i, _ in batch] == list(range(1000))
            out = memoryview(bytearray(1))
            for index in ((0, 0), (500, 499), (999, 999)):
                many.chunks.read_into(index, many.chunks.find(index), out)
                assert out[0] == 7
            assert many.chunks.table().nbytes <= 24_000_000
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=TESTS / "support",
    )
    assert done.returncode == 0, done.stderr
    grown, child = (int(line) * 1024 for line in done.stdout.split())
    assert grown < 160 << 20, f"{grown >> 20} MiB"
    assert child < 600 << 20, f"{child >> 20} MiB"


def test_small_tables_come_with_the_description(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset with a small grid costs no question of its own."""
    path = tmp_path / "small.h5"
    with h5py.File(path, "w") as file:
        for number in range(20):
            file.create_dataset(f"x{number}", data=np.arange(10) + number, chunks=(3,), compression="gzip")
        file.create_dataset("empty", (10,), "<i4", chunks=(3,))
    Clock(monkeypatch).settles()
    asked: list[str] = []
    with opened(path, noting(asked)) as source:
        names = [child.name for child in source.root.children()]
        asked.clear()
        for name in names:
            found = array(source, name)
            assert found.chunks.count() == (0 if name == "empty" else 4)
            if name != "empty":
                assert values(found).tolist() == list(range(int(name[1:]), int(name[1:]) + 10))
        assert not asked


def test_a_table_is_read_only_when_needed(tmp_path: Path) -> None:
    """Metadata needs no chunk table."""
    path = tmp_path / "lazy.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (1000,), "<i4", chunks=(5,))[:10] = 1
    asked: list[str] = []
    with opened(path, noting(asked)) as source:
        found = array(source, "x")
        asked.clear()
        assert found.metadata.shape == (1000,)
        assert asked == []
        for _ in range(3):
            found.chunks.find((1,))
            assert found.chunks.count() == 2
        assert asked == ["table"]
