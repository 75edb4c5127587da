"""Files that are made as a whole: what is open of them leaves room in the cache for other readers."""

from __future__ import annotations

import json
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import zarr
from waiting import until

from fsbridge.config import MIB, Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import OutOfBudget, TooLarge
from fsbridge.formats.open import open_source
from fsbridge.layouts import root_directory
from fsbridge.layouts.files.arrays.made import MadeFiles
from fsbridge.mount.lifecycle import Tree, open_tree
from fsbridge.tree import File, Handle


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Three tables with texts of 0.8 MiB each, in a cache of 4 MiB."""
    group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=2)
    for number, name in enumerate("abc"):
        group.create_array(name, shape=(50_000, 2), chunks=(10_000, 2), dtype="<i8")[...] = np.full(
            (50_000, 2), 10**7 + number
        )
    return open_tree(Config(str(tmp_path / "s"), "/nowhere", layout="files", cache_size=4 * MIB))


def open_file(tree: Tree, name: str) -> Handle:
    return cast(File, tree.root.lookup(name.encode())).open()


def test_p7_files_that_are_made_leave_room_and_one_too_many_is_refused_at_once(tree: Tree) -> None:
    first, again, second = open_file(tree, "a.csv"), open_file(tree, "a.csv"), open_file(tree, "b.csv")
    with pytest.raises(OutOfBudget, match=r"close some, or --cache-size 6M permits it"):
        open_file(tree, "c.csv")
    whole = open_file(tree, "c.npy")
    assert bytes(whole.read(0, whole.size)).endswith(np.int64(10**7 + 2).tobytes())
    first.close()
    with pytest.raises(OutOfBudget):  # another reader still has it open
        open_file(tree, "c.csv")
    again.close()
    third = open_file(tree, "c.csv")
    assert bytes(third.read(0, 24)) == b"c0,c1\n10000002,10000002\n"
    assert bytes(second.read(0, 24)) == b"c0,c1\n10000001,10000001\n"


@pytest.mark.parametrize("name", ["a.csv", "s.csv"])
def test_p6_room_is_made_before_a_file_is_made(name: str, tmp_path: Path) -> None:
    """Chunks filled the cache, and the file came on top of them."""

    class NotedCache(ChunkCache):
        """A cache that notes what it holds while a file is made."""

        def get_all(self, key: Hashable, load: Callable[[], bytes | bytearray | memoryview], needed: int = 0) -> memoryview:
            def noted() -> bytes | bytearray | memoryview:
                seen.append(count_held())
                made = load()
                seen.append(count_held())
                return made

            return super().get_all(key, noted, needed)

    def count_held() -> int:
        gauges = cache.gauges()
        return gauges.cached + gauges.pooled

    seen: list[int] = []
    cache = NotedCache(4 * MIB)
    group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=2)
    for label, length, axis in (("a", 60_000, "x"), ("b", 60_000, "x"), ("other", 510_000, "y")):
        array = group.create_array(label, shape=(length,), chunks=(10_000,), dtype="<i8", fill_value=None)
        array[:] = 10**12
        array.attrs["_ARRAY_DIMENSIONS"] = [axis]
    config = Config(str(tmp_path / "s"), "/nowhere", layout="files", cache_size=4 * MIB)
    source = open_source(config.source, config)
    tree = Tree(root_directory(source, config, cache), source.close)
    other = open_file(tree, "other.npy")
    other.read(0, other.size)
    assert count_held() > 7 * MIB // 2
    made = open_file(tree, name)
    assert max(seen) + made.size < 4 * MIB


def test_p6_texts_of_any_length_are_refused_before_they_are_all_in_memory(tmp_path: Path) -> None:
    """A gigabyte of them was read before their file was refused."""
    group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=3)
    group.create_array("a", shape=(60,), chunks=(4,), dtype="str")[:] = "x" * (MIB // 2)
    opened = open_tree(Config(str(tmp_path / "s"), "/nowhere", layout="files", cache_size=8 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="4194304 bytes"):
            open_file(opened, "a.csv")
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


def test_p6_tables_take_little_more_than_their_elements_and_text(tmp_path: Path) -> None:
    """Each cell took a hundred bytes."""
    group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=2)
    for label in "ab":
        group.create_array(label, shape=(40_000,), chunks=(40_000,), dtype="<i4", fill_value=None)[:] = 10**8
    opened = open_tree(Config(str(tmp_path / "s"), "/nowhere", layout="files"))
    tracemalloc.start()
    try:
        made = open_file(opened, "s.csv")
        assert made.size == 4 + 40_000 * 20
        assert tracemalloc.get_traced_memory()[1] < 6 * MIB
    finally:
        tracemalloc.stop()


def test_p6_texts_of_fixed_length_are_not_read_where_they_take_gigabytes(tmp_path: Path) -> None:
    """Two hundred bytes of metadata took 3.5 GB when the virtual HDF5 file that shows them was listed."""
    document = {"zarr_format": 2, "shape": [3], "chunks": [1], "order": "C", "compressor": None, "filters": None}
    (tmp_path / "s/a").mkdir(parents=True)
    (tmp_path / "s/.zgroup").write_text('{"zarr_format": 2}')
    (tmp_path / "s/a/.zarray").write_text(json.dumps(document | {"dtype": "<U30000000", "fill_value": ""}))
    opened = open_tree(Config(str(tmp_path / "s"), "/nowhere", layout="files"))
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="360000000 bytes"):
            open_file(opened, "a.h5")
        assert tracemalloc.get_traced_memory()[1] < 32 * MIB
    finally:
        tracemalloc.stop()


def test_p6_files_are_made_one_after_the_other_where_they_have_no_room_together() -> None:
    made, seen, goes_on = MadeFiles(4 * MIB), Counter[str](), threading.Event()

    def make(name: str, needed: int) -> None:
        with made.room.take(needed):
            seen[name] += 1
            assert goes_on.wait(60)

    threads = [
        threading.Thread(target=make, args=(name, needed), daemon=True)
        for name, needed in (("too large by itself", 5 * MIB), ("waits", MIB), ("waits, too", 3 * MIB))
    ]
    for thread in threads:
        thread.start()
        until(lambda: seen)
    threads[1].join(0.1)
    assert list(seen) == ["too large by itself"]
    goes_on.set()
    for thread in threads:
        thread.join(60)
    assert seen.total() == 3
    assert not made.room._at_work


def test_p7_a_file_of_a_store_that_hangs_stops_no_other_one() -> None:
    made, done = MadeFiles(4 * MIB, stalled_seconds=0.05), threading.Event()

    def make() -> None:
        with made.room.take(2 * MIB):
            done.set()

    with made.room.take(2 * MIB):
        threading.Thread(target=make, daemon=True).start()
        assert done.wait(20)
