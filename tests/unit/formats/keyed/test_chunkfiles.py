"""Chunk keys and the stored chunks of nested and flat arrays."""

import itertools
import os
import shutil
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import until

from fsbridge.errors import AccessDenied, CorruptData, NotFound, TimedOut, TooLarge
from fsbridge.formats.keyed.chunkfiles import FlatChunkFiles, NestedChunkFiles, chunk_files
from fsbridge.formats.keyed.chunkkeys import ChunkFiles, ChunkKeys
from fsbridge.formats.keyed.storedchunks import LIMITS, ChunkListing, FlatDirectories, ListingLimits, Numbers
from fsbridge.metadata import ChunkGrid, Index, parse_coordinate, parse_coordinates
from fsbridge.model import ChunkInfo
from fsbridge.store import Key, Range, Stat
from fsbridge.store.local import LocalStore

KINDS = [ChunkKeys(separator, prefix) for separator in ("/", ".") for prefix in ("", "c")]
FOREIGN = ["00", "+1", "1_0", "01", " 1", "1 ", "-1", "\N{ARABIC-INDIC DIGIT ONE}"]
FOREIGN += ["1.5.0.0", "1e1", "0x1", "", "2.0.0", "99999999999999999999", "cc"]


Names: TypeAlias = Iterator[Sequence[str]]


class ListedStore(LocalStore):
    """A store that notes its listings. What comes of them goes through `change`."""

    def __init__(self, path: Path, change: Callable[[Names], Names] = iter) -> None:
        super().__init__(str(path))
        self.listings: list[Key] = []
        self._change = change

    def names(self, key: Key, cuts: Sequence[str] = ()) -> Names:
        self.listings.append(key)
        return self._change(super().names(key, cuts))


def make(
    tmp_path: Path,
    grid: ChunkGrid,
    keys: ChunkKeys,
    limits: ListingLimits = LIMITS,
    change: Callable[[Names], Names] = iter,
) -> ChunkFiles:
    return files_of(ListedStore(tmp_path, change), grid, keys, limits)


def files_of(store: LocalStore, grid: ChunkGrid, keys: ChunkKeys, limits: ListingLimits = LIMITS) -> ChunkFiles:
    return chunk_files(store, Key("a"), grid, keys, FlatDirectories(store, limits))


def shared_listing(files: ChunkFiles) -> ChunkListing:
    """The listing that all readers of a flat directory wait for."""
    assert isinstance(files, FlatChunkFiles)
    return files._join()


def put(tmp_path: Path, key: str, mtime: int = 7) -> None:
    path = tmp_path / "a" / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    os.utime(path, ns=(mtime, mtime))


def version_of(info: ChunkInfo | None) -> Hashable:
    assert info is not None
    return info.version


def settle(tmp_path: Path) -> None:
    """Wait until a change of the directory could not go unseen."""
    until(lambda: LocalStore(str(tmp_path)).stat(Key("a")).settled)


def everything(files: ChunkFiles, rank: int, prefix: Index = ()) -> Iterator[Index]:
    for batch in files.scan(prefix):
        assert list(batch) == sorted(batch)
        for coordinate, _ in batch:
            if len(prefix) == rank - 1:
                yield (*prefix, coordinate)
            else:
                yield from everything(files, rank, (*prefix, coordinate))


@pytest.mark.parametrize("keys", KINDS)
def test_every_stored_chunk_is_found_and_no_other(tmp_path: Path, keys: ChunkKeys) -> None:
    grid = ChunkGrid((30, 5, 70), (10, 2, 7))
    stored = {(0, 0, 0), (0, 0, 9), (0, 2, 3), (2, 1, 1), (2, 1, 2)}
    for index in stored:
        put(tmp_path, keys.encode(index), mtime=sum(index))
    files = make(tmp_path, grid, keys)
    assert set(everything(files, 3)) == stored
    assert files.count() == len(stored)
    for index in itertools.product(range(3), range(3), range(10)):
        if index in stored:
            info = files.find(index)
            assert (info.stored, info.mtime_ns) == (1, sum(index))
        else:
            with pytest.raises(NotFound):
                files.find(index)
    assert files.find_prefix((2,)) > 0
    for absent in ((1,), (0, 1), (3,), (2, 3), (-1,)):
        with pytest.raises(NotFound):
            files.find_prefix(absent)
        assert list(files.scan(absent)) == []


def test_any_chunk_is_found_behind_directories_that_hold_none(tmp_path: Path) -> None:
    files = make(tmp_path, ChunkGrid((4, 4, 4), (1, 1, 1)), ChunkKeys("/"))
    assert isinstance(files, NestedChunkFiles)
    for first, second in itertools.product(range(3), range(3)):
        (tmp_path / f"a/{first}/{second}").mkdir(parents=True)
    put(tmp_path, "0/1/x")
    put(tmp_path, "0/1/9")
    put(tmp_path, "9/0/0")
    assert files.first() is None
    put(tmp_path, "1/1/3")
    assert files.first() == (1, 1, 3)


@pytest.mark.parametrize("keys", KINDS)
def test_foreign_names_are_no_chunks(tmp_path: Path, keys: ChunkKeys) -> None:
    put(tmp_path, keys.encode((1, 0, 1)))
    for name in filter(None, FOREIGN):
        put(tmp_path, name)
        put(tmp_path, keys.encode((1, 0)) + keys.separator + name)
        put(tmp_path, f"c.{name}.0.0")
    put(tmp_path, ".zarray")
    put(tmp_path, "zarr.json")
    files = make(tmp_path, ChunkGrid((2, 1, 2), (1, 1, 1)), keys)
    assert list(everything(files, 3)) == [(1, 0, 1)]
    assert files.count() == 1


@pytest.mark.parametrize(("keys", "name"), list(zip(KINDS, ["0", "c", "0", "c"], strict=True)))
def test_trap_16_a_0d_array_has_one_chunk_at_its_key(tmp_path: Path, keys: ChunkKeys, name: str) -> None:
    files = make(tmp_path, ChunkGrid((), ()), keys)
    assert files.key(()) == f"a/{name}"
    assert files.count() == 0
    with pytest.raises(NotFound):
        files.find(())
    put(tmp_path, name)
    assert files.find(()).stored == 1
    assert files.find_prefix(()) == 7
    assert files.count() == 1
    assert list(files.scan(())) == []


@pytest.mark.parametrize("keys", KINDS)
def test_a_directory_in_place_of_a_chunk_is_listed_and_corrupt(tmp_path: Path, keys: ChunkKeys) -> None:
    (tmp_path / "a" / keys.encode((0, 1))).mkdir(parents=True)
    files = make(tmp_path, ChunkGrid((2, 2), (1, 1)), keys)
    assert list(everything(files, 2)) == [(0, 1)]
    with pytest.raises(CorruptData, match="a directory in place of a chunk"):
        files.find((0, 1))


@pytest.mark.parametrize("keys", KINDS)
def test_an_array_without_chunks_lists_and_counts_none(tmp_path: Path, keys: ChunkKeys) -> None:
    (tmp_path / "a").mkdir()
    files = make(tmp_path, ChunkGrid((2, 2), (1, 1)), keys)
    assert list(files.scan(())) == []
    assert files.count() == 0
    with pytest.raises(NotFound):
        files.find_prefix(())


@pytest.mark.parametrize("keys", KINDS)
def test_a_zero_length_array_has_no_chunks(tmp_path: Path, keys: ChunkKeys) -> None:
    put(tmp_path, keys.encode((0, 0)))
    files = make(tmp_path, ChunkGrid((0, 2), (1, 1)), keys)
    assert list(everything(files, 2)) == []
    with pytest.raises(NotFound):
        files.find((0, 0))


@pytest.mark.parametrize("keys", KINDS)
def test_changes_are_seen(tmp_path: Path, keys: ChunkKeys) -> None:
    put(tmp_path, keys.encode((0, 0)))
    files = make(tmp_path, ChunkGrid((2, 2), (1, 1)), keys)
    assert list(everything(files, 2)) == [(0, 0)]
    put(tmp_path, keys.encode((1, 1)))
    assert sorted(everything(files, 2)) == [(0, 0), (1, 1)]
    (tmp_path / "a" / keys.encode((0, 0))).unlink()
    with pytest.raises(NotFound):
        files.find((0, 0))


def test_a_file_in_place_of_a_chunk_directory_holds_no_chunks(tmp_path: Path) -> None:
    put(tmp_path, "0")
    files = make(tmp_path, ChunkGrid((2, 2), (1, 1)), ChunkKeys("/"))
    with pytest.raises(NotFound):
        files.find((0, 0))
    with pytest.raises(NotFound):
        files.find_prefix((0,))
    assert list(files.scan(())) == []


def test_flat_index_is_made_once_for_all_readers(tmp_path: Path) -> None:
    put(tmp_path, "0.0")
    store = ListedStore(tmp_path)
    settle(tmp_path)
    indexes = FlatDirectories(store)
    grid = ChunkGrid((4, 4), (1, 1))
    for _ in range(3):
        files = chunk_files(store, Key("a"), grid, ChunkKeys("."), indexes)
        assert list(everything(files, 2)) == [(0, 0)]
        assert files.find_prefix((0,)) > 0
    assert store.listings == [Key("a")]
    put(tmp_path, "3.0")
    settle(tmp_path)
    assert files.count() == 2
    assert store.listings == [Key("a")] * 2
    resized = chunk_files(store, Key("a"), ChunkGrid((4, 2), (1, 1)), ChunkKeys("."), indexes)
    assert list(everything(resized, 2)) == [(0, 0), (3, 0)]


def test_flat_indexes_stay_within_their_budget(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    indexes = FlatDirectories(store, ListingLimits(memory=5000))
    for number in range(10):
        put(tmp_path.joinpath(f"{number}"), "0.0")
        files = chunk_files(store, Key(f"{number}/a"), ChunkGrid((4, 4), (1, 1)), ChunkKeys("."), indexes)
        assert files.count() == 1
    known = [number for number in range(10) if indexes.peek(Key(f"{number}/a"), files.listing_key) is not None]
    assert known == [6, 7, 8, 9]


def test_a_long_flat_listing_comes_in_sorted_batches(tmp_path: Path) -> None:
    stored = [(i, j) for i in range(30) for j in range(i % 4)]
    for index in stored:
        put(tmp_path, ChunkKeys(".").encode(index), mtime=index[1])
    files = make(tmp_path, ChunkGrid((30, 4), (1, 1)), ChunkKeys("."), ListingLimits(window=10, batch=4))
    batches = list(files.scan(()))
    assert all(len(batch) <= 4 for batch in batches)
    assert [i for batch in batches for i, _ in batch] == [i for i in range(30) if i % 4]
    assert [list(batch) for batch in files.scan((3,))] == [[(0, 0), (1, 1), (2, 2)]]
    assert list(everything(files, 2)) == stored


def test_a_grid_too_large_to_number_is_still_read(tmp_path: Path) -> None:
    put(tmp_path, f"{2**61}.7")
    files = make(tmp_path, ChunkGrid((2**62, 2**62), (1, 1)), ChunkKeys("."))
    assert files.find((2**61, 7)).stored == 1
    with pytest.raises(TooLarge):
        list(files.scan(()))


def test_a_grid_of_nearly_2_to_the_64_cells_is_listed(tmp_path: Path) -> None:
    last = (2**32 - 1, 2**32 - 2)
    put(tmp_path, ChunkKeys(".").encode(last))
    put(tmp_path, "0.0")
    files = make(tmp_path, ChunkGrid((2**32, 2**32 - 1), (1, 1)), ChunkKeys("."))
    assert list(everything(files, 2)) == [(0, 0), last]


@pytest.mark.parametrize("name", FOREIGN)
def test_what_no_writer_spells_is_no_coordinate(name: str) -> None:
    assert parse_coordinate(name, 2) is None


@given(st.text(max_size=8) | st.integers(0, 2**64).map(str))
@settings(max_examples=300)
def test_a_coordinate_is_its_canonical_spelling(name: str) -> None:
    value = parse_coordinate(name, 2**63)
    if value is not None:
        assert str(value) == name
    elif name.isascii() and name.isdigit():
        assert str(int(name)) != name or int(name) >= 2**63


@given(
    st.lists(st.text(max_size=4) | st.integers(-3, 20).map(str) | st.sampled_from(["1_0", "00", "+1", "\u0661", "\udcff"]))
)
@settings(max_examples=300)
def test_many_names_are_judged_as_one_by_one(names: list[str]) -> None:
    assert parse_coordinates(names, 15) == [int(name) for name in names if parse_coordinate(name, 15) is not None]


def test_a_long_first_listing_delays_no_read(tmp_path: Path) -> None:
    put(tmp_path, "0.0")
    settle(tmp_path)
    go = threading.Event()

    def slow(names: Names) -> Names:
        go.wait()
        return names

    files = make(tmp_path, ChunkGrid((2, 2), (1, 1)), ChunkKeys("."), ListingLimits(wait=0.0), slow)
    listing = files.scan(())
    assert not next(listing)
    assert not next(listing)
    assert files.find_prefix((1,)) > 0  # it is not known yet that it is empty
    assert files.find((0, 0)).stored == 1
    go.set()
    assert [i for batch in listing for i, _ in batch] == [0]
    with pytest.raises(NotFound):
        files.find_prefix((1,))


def test_p7_a_long_pass_says_that_it_goes_on(tmp_path: Path) -> None:
    """If all members have been shown already, or are not below what is listed, a waiting reader gives up in the end."""
    put(tmp_path, "0.0")
    settle(tmp_path)
    go = threading.Event()

    def slow(names: Names) -> Names:
        for _ in range(4):
            yield ["0.0"]
        assert go.wait(60)

    files = make(tmp_path, ChunkGrid((2, 2), (1, 1)), ChunkKeys("."), ListingLimits(wait=0.0, look=0.0), slow)
    making = shared_listing(files)
    until(lambda: len(making.batches) == 4)
    try:
        assert [[i for i, _ in batch] for batch in itertools.islice(files.scan(()), 4)] == [[0], [], [], []]
        assert [[i for i, _ in batch] for batch in itertools.islice(files.scan((1,)), 4)] == [[], [], [], []]
    finally:
        go.set()


def test_a_store_that_lists_no_further_is_given_up(tmp_path: Path) -> None:
    put(tmp_path, "0.0")
    store = LocalStore(str(tmp_path))
    go = threading.Event()

    def hung(others: list[str]) -> Iterator[Numbers]:
        go.wait()
        yield np.zeros(1, np.uint64)

    indexes = FlatDirectories(store, ListingLimits(patience=0.0))
    with pytest.raises(TimedOut, match="stopped listing"):
        indexes.join(Key("a"), None, hung).wait(0.001)
    go.set()
    assert indexes.join(Key("a"), None, hung).wait(60) is not None


def test_a_change_during_a_pass_is_in_the_next_one(tmp_path: Path) -> None:
    put(tmp_path, "0.0")
    settle(tmp_path)
    indexes = FlatDirectories(LocalStore(str(tmp_path)))
    begun, go = threading.Event(), threading.Event()
    made: list[int] = []

    def read(others: list[str]) -> Iterator[Numbers]:
        made.append(len(list((tmp_path / "a").iterdir())))
        begun.set()
        go.wait()
        yield np.arange(made[-1], dtype=np.uint64)

    first = indexes.join(Key("a"), None, read)
    begun.wait()
    assert indexes.join(Key("a"), None, read) is first
    put(tmp_path, "0.1")
    second = indexes.join(Key("a"), None, read)
    assert second is not first
    assert indexes.join(Key("a"), None, read) is second
    go.set()
    found = [waited.wait(60) for waited in (first, second)]
    assert [len(index) for index in found if index is not None] == made == [1, 2]


class JustChanged(LocalStore):
    """A store in which everything has changed a moment ago."""

    def stat(self, key: Key, read: Range | None = None) -> Stat:
        return super().stat(key, read)._replace(settled=False)


def test_a_directory_that_has_just_changed_is_indexed_again(tmp_path: Path) -> None:
    """Another change within the same tick of the file system's clock would not show in its stamp."""
    put(tmp_path, "0.0")
    files = files_of(JustChanged(str(tmp_path)), ChunkGrid((4, 4), (1, 1)), ChunkKeys("."))
    stamp = (tmp_path / "a").stat().st_mtime_ns
    assert files.count() == 1
    put(tmp_path, "3.0")
    os.utime(tmp_path / "a", ns=(stamp, stamp))
    assert files.count() == 2


@pytest.mark.parametrize("shape", [(100,), (10, 10), (5, 4, 5)])
def test_a_long_pass_is_listed_while_it_goes_on(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """The first names come before the store has given the last, each of them once, whatever the depth."""
    rank, keys = len(shape), ChunkKeys(".", "c")
    stored = sorted(index for index in np.ndindex(*shape) if sum(index) % 3)
    for index in stored:
        put(tmp_path, keys.encode(index))
    go = threading.Event()

    def slowly(parts: Names) -> Names:
        names = sorted((name for part in parts for name in part), key=lambda name: name[::-1])
        for start in range(0, len(names), 7):
            if start == 28:
                assert go.wait(60)
            yield names[start : start + 7]

    files = make(tmp_path, ChunkGrid(shape, (1,) * rank), keys, ListingLimits(wait=0.01), slowly)
    listing = files.scan(())
    early = [coordinate for coordinate, _ in next(batch for batch in listing if batch)]
    prefix = stored[-1][:-1]
    inner = files.scan(prefix)
    inside = [coordinate for coordinate, _ in next(inner)]
    go.set()
    rest = [coordinate for batch in listing for coordinate, _ in batch]
    assert sorted(early + rest) == sorted({index[0] for index in stored})
    inside += [coordinate for batch in inner for coordinate, _ in batch]
    assert sorted(inside) == [index[-1] for index in stored if index[:-1] == prefix]
    assert files.count() == len(stored)


def test_an_error_of_a_pass_is_raised_in_all_threads_that_wait_for_it(tmp_path: Path) -> None:
    put(tmp_path, "0.0")
    indexes = FlatDirectories(LocalStore(str(tmp_path)))

    def read(others: list[str]) -> Iterator[Numbers]:
        raise PermissionError(13, "no")

    with pytest.raises(PermissionError):
        indexes.join(Key("a"), None, read).wait(60)
    with pytest.raises(PermissionError):
        indexes.join(Key("a"), None, read).wait(60)


def test_a_pass_that_fails_midway_is_no_complete_listing(tmp_path: Path) -> None:
    """Also for a slow reader: it learns of the error after it has got what was found."""
    for number in range(8):
        put(tmp_path, f"{number}.0")
    settle(tmp_path)
    go = threading.Event()

    def failing(names: Names) -> Names:
        yield ["1.0", "2.0"]
        assert go.wait(60)
        raise PermissionError(13, "no")

    files = make(tmp_path, ChunkGrid((8, 2), (1, 1)), ChunkKeys("."), ListingLimits(wait=0.01), failing)
    making = shared_listing(files)
    until(lambda: making.batches)
    listing = files.scan(())
    assert [coordinate for coordinate, _ in next(batch for batch in listing if batch)] == [1, 2]
    assert not next(listing)
    go.set()
    until(lambda: making.state == "failed")
    with pytest.raises(PermissionError):
        list(listing)


def test_an_outdated_index_is_enough_to_walk_through(tmp_path: Path) -> None:
    put(tmp_path, "0.0")
    store = ListedStore(tmp_path)
    files = files_of(store, ChunkGrid((4, 4), (1, 1)), ChunkKeys("."), ListingLimits(wait=60.0))
    files.find_prefix((0,))
    put(tmp_path, "3.0")
    files.find_prefix((0,))
    assert len(store.listings) == 1
    files.find_prefix((3,))
    assert len(store.listings) == 2


@pytest.mark.parametrize("keys", KINDS)
def test_a_chunk_that_was_rewritten_in_place_is_listed_with_its_new_time(tmp_path: Path, keys: ChunkKeys) -> None:
    put(tmp_path, keys.encode((0, 1)))
    files = make(tmp_path, ChunkGrid((2, 2), (1, 1)), keys)
    assert [list(batch) for batch in files.scan((0,))] == [[(1, 7)]]
    os.utime(tmp_path / "a" / keys.encode((0, 1)), ns=(9, 9))
    assert [list(batch) for batch in files.scan((0,))] == [[(1, 9)]]


def test_p3_directories_behind_links_that_lead_nowhere_are_listed(tmp_path: Path) -> None:
    """Their chunks are not absent: a copy of the listing must not have fill values in their place. Others are no chunks."""
    put(tmp_path, "0/1")
    for name, target in (("1", "nowhere"), ("2", "/etc"), ("3", "0"), ("7", "nowhere"), ("other", "nowhere"), ("4", "0/1")):
        (tmp_path / "a" / name).symlink_to(target)
    store = LocalStore(str(tmp_path))
    files = chunk_files(store, Key("a"), ChunkGrid((6, 2), (1, 1)), ChunkKeys("/"), FlatDirectories(store))
    assert [coordinate for batch in files.scan(()) for coordinate, _ in batch] == [0, 1, 2, 3]
    for prefix, error in (((1,), CorruptData), ((2,), AccessDenied)):
        with pytest.raises(error):
            files.find_prefix(prefix)
        with pytest.raises(error):
            files.find((*prefix, 0))
        with pytest.raises(error):
            list(files.scan(prefix))
    with pytest.raises((CorruptData, AccessDenied)):
        files.count()
    (tmp_path / "a" / "1").unlink()
    (tmp_path / "a" / "2").unlink()
    assert files.count() == 2


def test_mtimes_say_what_a_listing_says(tmp_path: Path) -> None:
    put(tmp_path, "0.0")
    (tmp_path / "a" / "0.1").symlink_to("0.0")
    (tmp_path / "a" / "1.0").symlink_to("nowhere")
    (tmp_path / "a" / "1.1").mkdir()
    store = LocalStore(str(tmp_path))
    listed = {entry.name: entry.stat.mtime_ns for entry in store.list(Key("a"), stats=True) if entry.stat is not None}
    assert len(listed) == 4
    assert dict(zip(listed, store.mtimes(Key("a"), list(listed)), strict=True)) == listed
    assert list(store.mtimes(Key("a"), ["2.0", "0.0"])) == [None, 7]


def test_a_failed_listing_raises_an_error_of_its_own_in_each_thread(tmp_path: Path) -> None:
    """One exception object raised in many threads would collect the tracebacks of all of them."""
    put(tmp_path / "a", "0.0")

    def broken(others: list[str]) -> Iterator[Numbers]:
        yield np.array([0], np.uint64)
        raise AccessDenied("a: not for you")

    listing = FlatDirectories(LocalStore(str(tmp_path))).join(Key("a"), (), broken)
    caught = []
    for _ in range(2):
        with pytest.raises(AccessDenied, match="not for you") as error:
            listing.wait(5.0)
        caught.append(error.value)
    assert caught[0] is not caught[1]
    assert caught[0].__cause__ is caught[1].__cause__
    assert listing.state == "failed"


@pytest.mark.parametrize("keys", KINDS)
def test_p3_chunks_that_are_found_together_are_as_each_is_found(tmp_path: Path, keys: ChunkKeys) -> None:
    """What needs a look of its own, as links do, is left out."""
    grid = ChunkGrid((4, 100), (1, 1))
    files = make(tmp_path, grid, keys)
    wanted = list(itertools.product(range(4), range(100)))
    if keys.separator == "/":
        (tmp_path / "a" / keys.lead[0] if keys.lead else tmp_path / "a").mkdir(parents=True)
    assert files.find_all(wanted) == dict.fromkeys(wanted)
    put(tmp_path, keys.encode((0, 7)))
    (tmp_path / "a" / keys.encode((0, 8))).mkdir()
    (tmp_path / "a" / keys.encode((0, 9))).symlink_to("nothing")
    os.mkfifo(tmp_path / "a" / keys.encode((0, 10)))
    unknown = {(0, 8), (0, 9), (0, 10)}
    if keys.separator == "/":
        (tmp_path / "a" / keys.encode((1, 0))).parent.symlink_to("nowhere")
        (tmp_path / "a" / keys.encode((2, 0))).parent.write_bytes(b"no directory")
        unknown |= {index for index in wanted if index[0] == 1}
    found = files.find_all(wanted)
    assert set(found) == set(wanted) - unknown
    assert version_of(found.pop((0, 7))) == files.find((0, 7)).version
    assert set(found.values()) == {None}
    for index in found:
        with pytest.raises(NotFound):
            files.find(index)
    assert files.find_all([(3, 5), (3, 6)]) == {}, "to look at few costs less than to open their directory"
    put(tmp_path, keys.encode((3, 50)))
    assert version_of(files.find_all(wanted)[3, 50]) == files.find((3, 50)).version, "it is as old as the call"


class ReplacedOnce(LocalStore):
    """A store of which the directory `a/c` is replaced by a copy before its member `50` is looked at, the first time."""

    replaced = False

    def stats(self, key: Key, names: Iterable[str]) -> dict[str, Stat | None]:
        return super().stats(key, map(self._replace_before, names))

    def _replace_before(self, name: str) -> str:
        root = Path(self.describe(Key("")))
        if name == "50" and not self.replaced:
            shutil.copytree(root / "a/c", root / "new")
            (root / "a/c").rename(root / "old")
            (root / "new").rename(root / "a/c")
            shutil.rmtree(root / "old")
            self.replaced = True
        return name


def test_p3_no_chunk_is_absent_because_its_directory_is_replaced_meanwhile(tmp_path: Path) -> None:
    store = ReplacedOnce(str(tmp_path))
    files = files_of(store, ChunkGrid((100,), (1,)), ChunkKeys("/", "c"))
    for number in range(100):
        put(tmp_path, f"c/{number}")
    wanted = [(i,) for i in range(100)]
    assert files.find_all(wanted) == {}
    assert store.replaced
    assert all(version_of(info) == files.find(index).version for index, info in files.find_all(wanted).items())
    assert len(files.find_all(wanted)) == len(wanted)
