"""The inode table against a model of the kernel: identity, counts, ranges of spaces, nothing left behind."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zarr
from fake_tree import FakeDirectory, FakeFile, FakeSpace, SpaceDirectory
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import Stale
from fsbridge.formats.open import open_source
from fsbridge.kernel.inodes import MAX_SPACE, ROOT, InodeTable
from fsbridge.kernel.limits import KernelLimits
from fsbridge.kernel.records import HELD, Parked, Record, open_node
from fsbridge.layouts import root_directory
from fsbridge.tree import AnyNode, Attrs, Entry, Ready

STEPS = 60
EXAMPLES = 100

FILE = Attrs("file", 1, 0)


def make_file(version: int) -> FakeFile:
    return FakeFile(stamp=version, keyed=True)


def make_entry(name: bytes, node: Any, version: Any = None) -> Entry:
    return Entry(name, FILE, partial(give, node), version)


def give(node: AnyNode) -> AnyNode:
    return node


def find_unparked(table: InodeTable, inode: int) -> AnyNode:
    """The node of a numbered inode in an open space."""
    node = table.find(inode)
    assert not isinstance(node, HELD)
    return node


def count_open(table: InodeTable, inodes: list[int]) -> int:
    """How many of them are open."""
    records = [table.record(inode) for inode in inodes]
    return sum(record is not None and record.is_open for record in records)


def test_a_version_is_an_inode_of_its_own() -> None:
    table = InodeTable(FakeDirectory())
    first = table.count_looked_up(ROOT, b"a", make_file(1), "file")
    assert table.count_looked_up(ROOT, b"a", make_file(1), "file") == first
    second = table.count_looked_up(ROOT, b"a", make_file(2), "file")
    assert second != first
    assert table.count_looked_up(ROOT, b"a", make_file(2), "file") == second
    table.forget(first, 2)
    table.forget(second, 2)
    assert len(table) == 1


def test_the_same_name_elsewhere_or_of_another_kind_is_another_inode() -> None:
    table = InodeTable(FakeDirectory())
    here = table.count_looked_up(ROOT, b"a", FakeFile(), "file")
    assert table.count_looked_up(here, b"a", FakeFile(), "file") != here
    assert table.count_looked_up(ROOT, b"a", FakeDirectory(), "directory") != here


def test_an_opened_node_stays_while_its_version_does() -> None:
    """The numbers of a space hang on the node that owns it."""
    table = InodeTable(FakeDirectory())
    node = make_file(1)
    inode = table.count_looked_up(ROOT, b"a", node, "file")
    table.count_looked_up(ROOT, b"a", make_file(1), "file")
    record = table.find(inode)
    assert isinstance(record, Record)
    assert record.open() is node


def test_a_listed_node_is_opened_at_first_use_and_adopted_by_a_lookup() -> None:
    table = InodeTable(FakeDirectory())
    opened: list[FakeFile] = []

    def open_listed() -> FakeFile:
        opened.append(make_file(3))
        return opened[-1]

    inode, reliable = table.count_listed(ROOT, Entry(b"a", FILE, open_listed), None)
    assert reliable
    assert not opened
    assert table.count_looked_up(ROOT, b"a", make_file(7), "file") == inode, "its content was not seen yet"
    assert not opened
    again, reliable = table.count_listed(ROOT, make_entry(b"a", make_file(8)), None)
    assert again == inode, "a listing that does not know the version must not take the inode away"
    assert not reliable, "but the kernel has to look the name up before it relies on it"
    assert table.count_listed(ROOT, make_entry(b"a", make_file(7), ("stamp", 7)), None) == (inode, True)
    assert table.count_listed(ROOT, make_entry(b"a", make_file(8), ("stamp", 8)), None)[0] != inode


def test_a_listed_node_that_changed_before_its_first_use_is_stale() -> None:
    table = InodeTable(FakeDirectory())
    inode, _ = table.count_listed(ROOT, make_entry(b"a", make_file(2), ("stamp", 1)), None)
    record = table.find(inode)
    assert isinstance(record, Record)
    with pytest.raises(Stale):
        record.open()
    inode, _ = table.count_listed(ROOT, make_entry(b"b", FakeDirectory()), None)
    record = table.find(inode)
    assert isinstance(record, Record)
    with pytest.raises(Stale):
        record.open()


def test_p6_only_the_nodes_used_last_stay_open_and_the_others_are_opened_again() -> None:
    root = FakeDirectory({b"%d" % i: FakeDirectory({b"f": make_file(1)}) for i in range(100)})
    table = InodeTable(root, limits=KernelLimits(opened_nodes=10))
    inodes = []
    for name, directory in root.members.items():
        inode, _ = table.count_listed(ROOT, Entry(name, directory.attrs(), partial(give, directory)), None)
        inodes.append((inode, table.count_looked_up(inode, b"f", directory.members[b"f"], "file")))
    told = [number for pair in inodes for number in pair]
    assert count_open(table, told) == 10
    for (_, inode), directory in zip(inodes, root.members.values(), strict=True):
        record = table.find(inode)
        assert isinstance(record, Record)
        assert record.open().version == directory.members[b"f"].version
        assert count_open(table, told) <= 10
    root.members[b"3"].members[b"f"] = make_file(2)
    record = table.find(inodes[3][1])
    assert isinstance(record, Record)
    with pytest.raises(Stale):
        record.open()
    for directory_inode, inode in inodes:
        table.forget(inode, 1)
        table.forget(directory_inode, 1)
    assert len(table) == 1
    assert not table._opened


def test_p6_what_the_kernel_knows_of_an_array_is_half_a_kilobyte() -> None:
    """Its directory, its document, and its chunks; `find` over 100,000 arrays has the kernel know of them all."""
    table, arrays, shown = InodeTable(FakeDirectory(), limits=KernelLimits(opened_nodes=20)), 1500, Attrs("directory", 0, 0)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(arrays):
            inode, _ = table.count_listed(ROOT, Entry(b"array%06d" % number, shown, FakeDirectory), None)
            table.count_listed(inode, Entry(b"zarr.json", FILE, FakeFile, number.to_bytes(16, "big")), None)
            base = table.base(inode, FakeSpace(10, identity=b"%016d" % number))
            assert base is not None
            table.count(base, 3)
        gc.collect()
        assert len(table) == 1 + 3 * arrays
        assert tracemalloc.get_traced_memory()[0] < 512 * arrays
        for inode in range(ROOT + 1, table._rows.next):
            table.forget(inode, 3)
        gc.collect()
        assert len(table) == 1
        assert tracemalloc.get_traced_memory()[0] < 64 * 1024
    finally:
        tracemalloc.stop()


class _Array(FakeDirectory):
    """A directory that makes its space again whenever it is opened."""

    def __init__(self, version: int = 1) -> None:
        super().__init__()
        self.space = FakeSpace(10, stamp=version, identity=("the array", version))
        SpaceDirectory(self.space, 9)


def test_p6_a_parked_space_keeps_its_numbers() -> None:
    table = InodeTable(root := FakeDirectory({b"a": _Array()}), limits=KernelLimits(opened_nodes=4))
    inode = table.count_looked_up(ROOT, b"a", root.members[b"a"], "directory")
    space = root.members[b"a"].space
    base = table.base(inode, space)
    assert base is not None
    table.count(base, 2)
    for number in range(10):
        table.count_looked_up(ROOT, b"other-%d" % number, FakeFile(), "file")
    root.members[b"a"] = _Array()
    parked = table.find(base + 7)
    assert isinstance(parked, Parked)
    assert parked.open().slot == (root.members[b"a"].space, 7)
    assert find_unparked(table, base + 8).slot == (root.members[b"a"].space, 8)
    for number in range(10, 20):
        table.count_looked_up(ROOT, b"other-%d" % number, FakeFile(), "file")
    root.members[b"a"] = _Array(version=2)
    parked = table.find(base + 7)
    assert isinstance(parked, Parked)
    with pytest.raises(Stale):
        parked.open()
    assert table.base(inode, root.members[b"a"].space) != base


def test_a_space_that_a_worker_has_opened_may_be_parked_before_it_is_registered() -> None:
    released: list[object] = []
    table = InodeTable(
        root := FakeDirectory({b"a": _Array()}),
        lambda base, space: released.append(space),
        limits=KernelLimits(opened_nodes=3),
    )
    inode = table.count_looked_up(ROOT, b"a", root.members[b"a"], "directory")
    base = table.base(inode, root.members[b"a"].space)
    assert base is not None
    table.count(base, 2)
    others = [table.count_looked_up(ROOT, b"%d" % number, FakeDirectory(), "directory") for number in range(3)]
    parked = table.find(base + 7)
    assert isinstance(parked, Parked)
    parked.open()
    for other in others:
        table.find(other)
    assert released == [root.members[b"a"].space] * 2
    table.count_looked_up(ROOT, b"0", FakeDirectory(), "directory")
    assert table.find(base + 7) is not None
    table.forget(base + 7, 2)
    assert not table._spaces


def test_spaces_have_ranges_and_one_record() -> None:
    table = InodeTable(FakeDirectory())
    small, large = FakeSpace(10), FakeSpace(1000)
    SpaceDirectory(small, 9), SpaceDirectory(large, 999)
    base = table.base(ROOT, small)
    assert base is not None
    table.count(base, 3)
    other = table.base(ROOT, large)
    assert other == base + 10
    table.count(other, 1)
    assert table.count_looked_up(ROOT, b"4", small.node(4), "file") == base + 4
    assert find_unparked(table, base + 999 + 10).slot == (large, 999)
    assert len(table) == 3
    with pytest.raises(Stale):
        table.find(base + 1010)
    table.forget(base + 1, 1)
    table.forget(base + 2, 3)
    assert len(table) == 2
    with pytest.raises(Stale):
        table.find(base + 4)
    table.forget(other + 500, 1)
    assert len(table) == 1


def test_a_space_in_a_directory_of_another_space_is_never_parked() -> None:
    """Its directory has no name by which it could be found again."""
    released: list[object] = []
    table = InodeTable(FakeDirectory(), lambda base, space: released.append(space))
    outer, inner = FakeSpace(10), FakeSpace(10)
    SpaceDirectory(outer, 9), SpaceDirectory(inner, 9)
    above = table.base(ROOT, outer)
    assert above is not None
    table.count(above, 1)
    base = table.base(above, inner)
    assert base is not None
    table.count(base, 2)
    table.park()
    assert released == [outer]
    assert find_unparked(table, base + 3).slot == (inner, 3)
    table.forget(base + 3, 2)
    assert released == [outer, inner]
    assert len(table) == 2
    assert (table.number(inner, 3), table.known_base(inner)) == (None, None)


def test_an_empty_listing_leaves_no_range() -> None:
    table = InodeTable(FakeDirectory())
    space = FakeSpace(10)
    base = table.base(ROOT, space)
    assert base is not None
    table.count(base, 0)
    assert len(table) == 1


def test_a_space_too_large_for_a_range_has_single_inodes() -> None:
    table = InodeTable(FakeDirectory())
    space = FakeSpace(MAX_SPACE * 1000)
    assert table.base(ROOT, space) is None
    far = MAX_SPACE * 999
    listed, _ = table.count_listed(ROOT, Entry(b"x", FILE, far), space)
    assert table.count_looked_up(ROOT, b"x", space.node(far), "file") == listed
    assert table.count_looked_up(ROOT, b"y", space.node(far - 1), "file") != listed
    record = table.find(listed)
    assert isinstance(record, Record)
    assert record.open().slot == (space, far)
    table.forget(listed, 2)
    with pytest.raises(Stale):
        table.find(listed)


def test_numbers_fit_the_kernel_after_millions_of_large_spaces() -> None:
    table = InodeTable(FakeDirectory())
    for _ in range(100):
        space = FakeSpace(MAX_SPACE)
        base = table.base(ROOT, space)
        assert base is not None
        table.count(base, 0)
        assert base < 2**63 / 10_000


def test_paths_for_the_log_show_what_is_known_of_them() -> None:
    table = InodeTable(FakeDirectory())
    group = table.count_looked_up(ROOT, b"group", FakeDirectory(), "directory")
    file = table.count_looked_up(group, b"zarr.json", FakeFile(), "file")
    assert table.path(ROOT) == "/"
    assert table.path(file) == "/group/zarr.json"
    space = FakeSpace(10)
    base = table.base(group, space)
    assert base is not None
    assert table.path(base + 1) == "/group/..."
    assert table.path(2**60) == "?"
    table.forget(group, 1)
    assert table.path(file) == "/?/zarr.json"


def test_forgetting_what_is_unknown_does_nothing() -> None:
    table = InodeTable(FakeDirectory())
    table.forget(12345, 1)
    table.forget(ROOT, 100)
    assert table.find(ROOT)


class Kernel(RuleBasedStateMachine):
    """Looks names up, lists, forgets; knows which inode stands for what and how often it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.table = InodeTable(FakeDirectory())
        self.spaces = [FakeSpace(size) for size in (1, 7, 1000, MAX_SPACE + 1)]
        for space in self.spaces:
            SpaceDirectory(space, 3)
        self.counts: dict[int, int] = {}
        self.identity: dict[int, tuple[bytes | int, int]] = {}
        """By inode: a name and a version, or the number of a space and a position."""

    def count_told(self, inode: int, identity: tuple[bytes | int, int]) -> None:
        assert inode > ROOT
        self.counts[inode] = self.counts.get(inode, 0) + 1
        assert self.identity.setdefault(inode, identity) == identity, "one inode, two identities"

    @rule(name=st.sampled_from([b"a", b"b"]), version=st.integers(0, 2))
    def look_up(self, name: bytes, version: int) -> None:
        self.count_told(self.table.count_looked_up(ROOT, name, make_file(version), "file"), (name, version))

    @rule(name=st.sampled_from([b"a", b"b"]), version=st.integers(0, 2))
    def list_known(self, name: bytes, version: int) -> None:
        inode, reliable = self.table.count_listed(ROOT, make_entry(name, make_file(version), ("stamp", version)), None)
        assert reliable
        self.count_told(inode, (name, version))

    @rule(which=st.integers(0, 3), position=st.integers(0, 10**6))
    def look_up_numbered(self, which: int, position: int) -> None:
        space = self.spaces[which]
        position %= space.size
        self.count_told(self.table._count_numbered(ROOT, b"n", space, position, "file"), (which, position))

    @rule(which=st.integers(0, 3), shown=st.integers(0, 7))
    def list_numbered(self, which: int, shown: int) -> None:
        space = self.spaces[which]
        base = self.table.base(ROOT, space)
        if base is None:
            assert space.size > MAX_SPACE
            return
        shown = min(shown, space.size)
        self.table.count(base, shown)
        for position in range(shown):
            self.count_told(base + position, (which, position))

    @precondition(lambda self: self.counts)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        inode = data.draw(st.sampled_from(sorted(self.counts)))
        lookups = data.draw(st.integers(1, self.counts[inode]))
        self.table.forget(inode, lookups)
        self.counts[inode] -= lookups
        if not self.counts[inode]:
            del self.counts[inode]

    @invariant()
    def all_told_are_known(self) -> None:
        for inode in self.counts:
            holder, (which, number) = self.table.find(inode), self.identity[inode]
            assert not isinstance(holder, Parked)
            node = open_node(holder)
            if isinstance(which, int):
                assert node.slot == (self.spaces[which], number)
            else:
                assert isinstance(holder, Record)
                assert (holder.name, node.version) == (which, ("stamp", number))

    @invariant()
    def nothing_else_is_held(self) -> None:
        spaces = {inode: self.identity[inode][0] for inode in self.counts if self.identity[inode][0] in (0, 1, 2)}
        assert len(self.table) == 1 + len(self.counts) - len(spaces) + len(set(spaces.values()))

    def teardown(self) -> None:
        for inode, lookups in self.counts.items():
            self.table.forget(inode, lookups)
        assert len(self.table) == 1
        for held in (self.table._spaces, self.table._singles, self.table._opened):
            assert not held


Kernel.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
TestKernel = Kernel.TestCase


def test_what_a_listing_has_made_opens_without_a_worker_even_after_parking() -> None:
    root = FakeDirectory()
    table = InodeTable(root)
    file = make_file(1)
    listed = Entry(b"a", Attrs("file", 1, 0), Ready(file), ("stamp", 1))
    inode, _ = table.count_listed(ROOT, listed, None)
    record = table.find(inode)
    assert isinstance(record, Record)
    assert record.node is file
    record.park()
    assert record.node is None
    assert table.count_listed(ROOT, listed, None) == (inode, True)
    assert record.node is file


def test_p6_an_array_that_is_parked_or_forgotten_is_freed_without_the_collector(tmp_path: Path) -> None:
    """Its directory and what that shows refer to each other: `find` over 20,000 arrays left 80 MB of such pairs behind."""
    zarr.create_array(tmp_path / "s/a", shape=(4,), chunks=(2,), dtype="u1", zarr_format=3)[...] = 1
    config = Config(str(tmp_path / "s"), "")
    source = open_source(config.source, config)
    root: Any = root_directory(source, config, ChunkCache(config.cache_size))
    table = InodeTable(root)
    gc.disable()
    try:
        again = []
        for _ in range(2):  # the second look-up finds the same array anew
            node = root.lookup(b"a")
            node.attrs()
            again.append(weakref.ref(node.refresh()))
            table.count_looked_up(ROOT, b"a", node, "directory")
            del node
        assert again[0]() is not None
        assert again[1]() is None
        table.park()
        assert again[0]() is None
        node = root.lookup(b"a")
        shown = weakref.ref(node.refresh())
        inode = table.count_looked_up(ROOT, b"a", node, "directory")
        del node
        table.forget(inode, 3)
        assert shown() is None
    finally:
        gc.enable()
        source.close()
