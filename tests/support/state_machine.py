"""A state machine: a store that changes between any two steps of its readers, and what each step may show of it.

Hypothesis chooses the steps, a kernel that remembers as Linux does stands between them and the handlers (`fake_kernel.py`).
Not here: changes in the middle of a step (`tests/support/soak.py`), which stores there are (`test_states.py`).
"""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
import struct
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import h5py
import numpy as np
import pytest
import trio
from changing_store import COLUMNS, HEIGHT, ROWS, SHAPES, ChangingStore, Shape
from fake_kernel import FakeKernel, Opened, add_entry
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from pyfuse3 import FUSEError
from waiting import until

from fsbridge.config import MIB, Config
from fsbridge.kernel.filesystem import Filesystem
from fsbridge.kernel.jobs import Jobs
from fsbridge.kernel.readahead import ReadAhead
from fsbridge.mount.lifecycle import open_tree

T = TypeVar("T")

TTL = 5.0
"""Seconds; they pass when a step says so."""
LATER = 0.5
"""Seconds by which a small directory's listing may be older."""
NAMES = ("a", "b")
LAYOUTS = ("zarr3", "zarr2", "n5", "files")
AT = [(i, j) for i in range(ROWS) for j in range(COLUMNS)]
FILL = 0
WHICH = st.integers(0, 11)


def _csv(data: bytes) -> Any:
    return np.loadtxt(io.StringIO(data.decode()), np.int64, delimiter=",", ndmin=2, skiprows=1)


def _hdf5(data: bytes) -> Any:
    with h5py.File(io.BytesIO(data)) as file:
        (found,) = file.values()
        return found[:]


MADE: dict[str, Callable[[bytes], Any]] = {
    ".csv": _csv,
    ".h5": _hdf5,
    "[::-1,::-1].npy": lambda data: np.load(io.BytesIO(data))[::-1, ::-1],
    "[::-1,::-1].h5": lambda data: _hdf5(data)[::-1, ::-1],
}
"""Files of other formats, read."""


@dataclass(repr=False)
class Reader:
    """A file that is open: what it may show."""

    file: Opened
    kind: str
    name: str
    since: float
    header: int = 0
    order: str = "<"
    suffix: str = ""
    stamps: set[int | None] = field(default_factory=set)
    seen: dict[Any, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"{b'/'.join(self.file.path).decode()} of stamp {self.stamps}"


class Mounted:
    """A mount without FUSE, its event loop on a thread of its own."""

    def __init__(self, source: Path, **options: Any) -> None:
        self.config = Config(str(source), "/mnt", spill_size=64 * MIB, **options)
        self.tree = open_tree(self.config)
        self._end = trio.Event()
        started = threading.Event()

        async def main() -> None:
            self.token = trio.lowlevel.current_trio_token()
            self.filesystem = Filesystem(self.tree.root, self.config, jobs := Jobs(2, 2), reply=add_entry)
            self.kernel = FakeKernel(self.filesystem)
            jobs.start()
            started.set()
            await self._end.wait()
            jobs.stop()

        self._thread = threading.Thread(target=trio.run, args=(main,), daemon=True)
        self._thread.start()
        started.wait()

    def do(self, ask: Callable[..., Awaitable[T]], *given: Any, **named: Any) -> T:
        async def asked() -> T:
            with trio.fail_after(30):
                return await ask(*given, **named)

        return trio.from_thread.run(asked, trio_token=self.token)

    def tried(self, ask: Callable[..., Awaitable[T]], *given: Any, **named: Any) -> tuple[T | None, str]:
        """Return the result of a call, or the name of its error."""
        try:
            return self.do(ask, *given, **named), ""
        except FUSEError as error:
            return None, errno.errorcode[error.errno]

    def end(self) -> None:
        """Everything is closed: nothing may be left."""
        filesystem = self.filesystem
        try:
            self.do(self.kernel.forget)
            siblings = filesystem.ahead.siblings if isinstance(filesystem.ahead, ReadAhead) else None
            until(lambda: not filesystem.jobs.running and (siblings is None or not siblings.reading))
            left = {
                "inodes": len(filesystem.inodes) - 1,
                "files": len(filesystem.files),
                "listings": len(filesystem.listings),
                "pages": len(filesystem.pages),
                "loads": len(filesystem.loads),
                "under way": filesystem.under_way,
                "unexpected": filesystem.reporter.unexpected,
            }
            assert not any(left.values()), left
        finally:
            self.token.run_sync_soon(self._end.set)
            self._thread.join()
            self.tree.clear()
            self.tree.close()


class Changing(RuleBasedStateMachine):
    """See the module's text. `form`: of the store."""

    form: ClassVar[str] = "zarr3"
    read_ahead: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._folder = Path(tempfile.mkdtemp(prefix="fsbridge-states-"))
        clock, self._passed = time.monotonic, 0.0
        self._patch.setattr(time, "monotonic", lambda: clock() + self._passed)
        self.store = self.make_store(self._folder / "store")
        self.readers: list[Reader] = []
        self.store.make("a", SHAPES[0], AT, True)
        self.mounted = Mounted(
            self.store.folder,
            layout=",".join(LAYOUTS),
            cache_size=3 * MIB,  # a chunk must fit beside open files, which may take half of it
            metadata_ttl=TTL,
            read_ahead=self.read_ahead,
        )
        self.kernel = self.mounted.kernel

    def make_store(self, folder: Path) -> Any:
        """The store that is mounted."""
        return ChangingStore(folder, self.form)

    def teardown(self) -> None:
        try:
            for reader in self.readers:
                self.mounted.do(self.kernel.close, reader.file)
        finally:
            try:
                self.mounted.end()
            finally:
                self._patch.undo()
                shutil.rmtree(self._folder)

    # Changes

    @rule(
        name=st.sampled_from(NAMES),
        shape=st.sampled_from(SHAPES),
        stored=st.sets(st.sampled_from(AT)),
        renamed=st.booleans(),
    )
    def make(self, name: str, shape: Shape, stored: set[tuple[int, int]], renamed: bool) -> None:
        self.store.make(name, shape, sorted(stored), renamed)

    @rule(name=st.sampled_from(NAMES), group=st.booleans())
    def remove(self, name: str, group: bool) -> None:
        self.store.remove(name, group)

    @rule(which=WHICH)
    def move(self, which: int) -> None:
        name = _one_of(self.store.arrays(), which)
        if name is None:
            return
        self.store.move(name, NAMES[1 - NAMES.index(name)])

    @rule(which=WHICH, how=st.sampled_from(["rename", "place", "kept"]))
    def redescribe(self, which: int, how: str) -> None:
        name = _one_of(self.store.arrays(), which)
        if name is None:
            return
        self.store.redescribe(name, how)

    @rule(which=WHICH, at=st.sampled_from(AT), how=st.sampled_from(["rename", "place", "kept"]), times=st.integers(1, 2))
    def write(self, which: int, at: tuple[int, int], how: str, times: int) -> None:
        name = _one_of(self.store.arrays(), which)
        if name is None:
            return
        for _ in range(times):
            self.store.write(name, at, how)

    @rule(which=WHICH)
    def unlink(self, which: int) -> None:
        stored = [(name, at) for name in self.store.arrays() for at in self.store.chunks(name)]
        if stored:
            self.store.unlink(*stored[which % len(stored)])

    @rule(seconds=st.sampled_from([0.6, TTL * 0.8, TTL + 1, 100.0]))
    def pass_time(self, seconds: float) -> None:
        self._passed += seconds

    @rule()
    def settle(self) -> None:
        """Long enough for the clock of the file system to tell changes apart."""
        time.sleep(0.025)

    # Readers

    @rule(name=st.sampled_from(NAMES), layout=st.sampled_from(LAYOUTS[:3]), at=st.sampled_from(AT))
    def open_chunk(self, name: str, layout: str, at: tuple[int, int]) -> None:
        self._open("chunk", name, layout, ("chunk", name, *at), self._chunk_path(layout, name, at))

    @rule(name=st.sampled_from(NAMES), layout=st.sampled_from(LAYOUTS))
    def open_document(self, name: str, layout: str) -> None:
        self._open("document", name, layout, ("array", name), self._document_path(layout, name))

    @rule(name=st.sampled_from(NAMES))
    def open_whole(self, name: str) -> None:
        reader = self._open("whole", name, "files", ("array", name), self.whole_path(name, ".npy"))
        if reader is None:
            return
        head = self._read(reader, 0, 10, False)
        if head is None:
            return
        reader.header = 10 + struct.unpack("<H", head[8:10])[0]
        head = self._read(reader, 0, reader.header, False)
        assert head is None or b"fortran_order" in head

    @rule(name=st.sampled_from(NAMES), suffix=st.sampled_from(sorted(MADE)))
    def read_other(self, name: str, suffix: str) -> None:
        """All of a file in another format, or of a region."""
        if suffix == ".h5" and self.store.histories.now(("group", name)):
            return  # a group's file has that name, too
        reader = self._open("other", name, "files", ("array", name), self.whole_path(name, suffix))
        if reader is not None:
            reader.suffix = suffix
            self._check_all(reader)

    def _check_all(self, reader: Reader) -> None:
        data = self._read(reader, 0, reader.file.inode.size, False)
        if data is None:
            return
        elements = MADE[reader.suffix](data)
        if elements.shape[0] > elements.shape[1]:  # N5's own order
            elements = elements.T
        width = elements.shape[1] // COLUMNS
        for column in range(COLUMNS):
            for row in range(ROWS * HEIGHT):
                key = ("chunk", reader.name, row // HEIGHT, column)
                part = elements[row, column * width : (column + 1) * width].astype(np.int64)
                low, high = part & 0xFFFF_FFFF, part >> 32
                assert ((high == 0) | (high == low)).all()  # an element of 8 bytes is two words
                allowed = {_stamp(value) for value in self.store.histories.within(key, reader.since)}
                self._check_chunk(reader, key, allowed, low.astype(f"{reader.order}i4").tobytes(), 0)

    def _open(self, kind: str, name: str, layout: str, stored: Any, path: tuple[str, ...]) -> Reader | None:
        begun = time.monotonic()
        allowed = self.store.histories
        file, error = self.mounted.tried(self.kernel.open, _encoded(path))
        if file is None:
            too_large = error == "EFBIG" and path[-1].endswith(".csv")
            if not too_large and not self.excused(name, error, begun - TTL):
                assert error == "ENOENT", f"{path}: {error}"
                assert None in allowed.within(stored, begun - TTL), f"{path} was there all the time"
            return None
        little = self.form != "n5" and layout != "n5"
        reader = Reader(file, kind, name, begun, order="<" if little else ">")
        reader.stamps = {_stamp(value) for value in allowed.within(stored, begun)}
        if kind == "document":
            reader.stamps |= set(allowed.within(("group", name), begun))
        assert reader.stamps != {None}, f"{path} is not there"
        if kind == "chunk" and layout == "n5":
            reader.header = 12
        self.readers.append(reader)
        return reader

    @rule(which=WHICH, mapped=st.booleans(), place=st.integers(0, 1000), size=st.sampled_from([1, 100, 4096, 70_000, MIB]))
    def read(self, which: int, mapped: bool, place: int, size: int) -> None:
        reader = _one_of(self.readers, which)
        if reader is None:
            return
        self._check(reader, reader.file.inode.size * place // 1000, size, mapped)

    @rule(which=WHICH)
    def read_all(self, which: int) -> None:
        reader = _one_of(self.readers, which)
        if reader is None:
            return
        for offset in range(0, reader.file.inode.size, 1 << 17):
            self._check(reader, offset, 1 << 17, False)

    @rule(which=WHICH)
    def close(self, which: int) -> None:
        reader = _one_of(self.readers, which)
        if reader is None:
            return
        self.readers.remove(reader)
        self.mounted.do(self.kernel.close, reader.file)

    @rule(which=WHICH, at=st.sampled_from(AT), how=st.sampled_from(["rename", "kept"]), mapped=st.booleans())
    def read_around_a_change(self, which: int, at: tuple[int, int], how: str, mapped: bool) -> None:
        reader = _one_of(self.readers, which)
        if reader is None or reader.name not in self.store.arrays():
            return
        size = reader.file.inode.size
        for place in range(0, size, size // ROWS // HEIGHT + 1):
            self._check(reader, place, 100, mapped)
        self.store.write(reader.name, at, how)
        for place in range(0, size, size // 20 + 1):
            self._check(reader, place, 100, mapped)

    @rule(name=st.sampled_from(NAMES), layout=st.sampled_from(LAYOUTS[:3]), at=st.sampled_from(AT))
    def open_again_after_a_change(self, name: str, layout: str, at: tuple[int, int]) -> None:
        for _ in range(2):
            if name in self.store.arrays():
                self.store.write(name, at, "kept")
                self.settle()
            reader = self._open("chunk", name, layout, ("chunk", name, *at), self._chunk_path(layout, name, at))
            if reader is not None:
                self._check(reader, 0, 100, False)
                self.readers.remove(reader)
                self.mounted.do(self.kernel.close, reader.file)

    @rule(name=st.sampled_from(NAMES), layout=st.sampled_from(LAYOUTS[:3]), at=st.sampled_from(AT))
    def stat_chunk(self, name: str, layout: str, at: tuple[int, int]) -> None:
        self._stat(name, ("chunk", name, *at), self._chunk_path(layout, name, at))

    @rule(name=st.sampled_from(NAMES), layout=st.sampled_from(LAYOUTS))
    def stat_document(self, name: str, layout: str) -> None:
        self._stat(name, ("array", name), self._document_path(layout, name))

    def _stat(self, name: str, stored: Any, path: tuple[str, ...]) -> None:
        begun = time.monotonic()
        found, error = self.mounted.tried(self.kernel.stat, _encoded(path))
        if found is None:
            if not self.excused(name, error, begun - TTL):
                assert error == "ENOENT", f"{path}: {error}"
                assert None in self.store.histories.within(stored, begun - TTL), f"{path} was there all the time"
        else:
            groups = self.store.histories.within(("group", name), begun - TTL - LATER) if stored[0] == "array" else []
            values = [*self.store.histories.within(stored, begun - TTL - LATER), *groups]
            assert set(values) != {None}, f"{path} has not been there for long"

    @rule(name=st.sampled_from(NAMES), layout=st.sampled_from(LAYOUTS[:3]), room=st.sampled_from([1, 3, 100]))
    def list_all(self, name: str, layout: str, room: int) -> None:
        """Every chunk that was there all the time, and none that has not been there for long."""
        begun = time.monotonic()
        expected = {self._chunk_path(layout, name, at): ("chunk", name, *at) for at in AT}
        place = (layout, *self.place(name))
        found = set(self._listed(name, place, len(place), room))
        for path, stored in expected.items():
            values = self.store.histories.within(stored, begun - TTL - LATER)
            if path in found:
                assert set(values) != {None}, f"{path} is listed"
            else:
                assert None in values or self.excused(name, "", begun - TTL - LATER), f"{path} is not listed"
        assert found <= expected.keys() | {(*place, *path) for path in DOCUMENTS}, found

    def _listed(self, name: str, path: tuple[str, ...], depth: int, room: int) -> Iterator[tuple[str, ...]]:
        begun = time.monotonic()
        names, error = self.mounted.tried(self.kernel.list, _encoded(path), room)
        if names is None:
            if not self.excused(name, error, begun - TTL - LATER):
                absent = all(self.store.histories.now((kind, name)) is None for kind in ("array", "group"))
                assert error == "ENOENT", f"{path}: {error}"
                assert absent or self._changed(name, begun - TTL - LATER), f"{path} is there"
            return
        assert len(set(names)) == len(names)
        for member in names:
            below = (*path, os.fsdecode(member))
            levels = {"n5": 2, "zarr3": 3}.get(path[0], 0)
            if (member.isdigit() or member == b"c") and len(below) < depth + levels:
                yield from self._listed(name, below, depth, room)
            else:
                yield below

    @rule(room=st.sampled_from([1, 100]), layout=st.sampled_from(LAYOUTS))
    def list_root(self, room: int, layout: str) -> None:
        begun = time.monotonic()
        found, error = self.mounted.tried(self.kernel.list, _encoded((layout,)), room)
        if found is None:
            assert error != "ENOENT", error
            assert any(self.excused(name, error, begun - TTL - LATER) for name in NAMES), error
            return
        names = [os.fsdecode(name) for name in found]
        for name in NAMES:
            if self.excused(name, "", begun - TTL - LATER):
                continue
            shown = self.place(name)[0] if len(self.place(name)) > 1 or layout != "files" else f"{name}.npy"
            arrays = self.store.histories.within(("array", name), begun - TTL - LATER)
            groups = self.store.histories.within(("group", name), begun - TTL - LATER)
            there = [a or (shown != f"{name}.npy" and g) for a in arrays for g in groups]
            assert any(there) if shown in names else not all(arrays), (shown, names)

    @rule(which=WHICH)
    def forget(self, which: int) -> None:
        self.mounted.do(self.kernel.forget, lambda inode: inode.number % 4 == which % 4)

    @rule()
    def forget_all(self) -> None:
        self.mounted.do(self.kernel.forget)

    @rule()
    def park(self) -> None:
        """Do what a signal or a lack of memory does: park inodes, forget directories."""

        async def drop() -> None:
            self.mounted.filesystem.inodes.park()
            self.mounted.filesystem.directories.clear()

        self.mounted.do(drop)
        self.mounted.tree.clear()

    # What is right

    def _read(self, reader: Reader, offset: int, size: int, mapped: bool) -> bytes | None:
        """The bytes; None for an error, which there must be a reason for."""
        data, error = self.mounted.tried(self.kernel.read, reader.file, offset, size, mapped=mapped)
        if data is None and not self.excused(reader.name, error, reader.since):
            assert error in ("ESTALE", "ENOENT"), f"{reader}: {error}"
            assert self._changed(reader.name, reader.since), f"{reader}: {error}, nothing has changed"
        return data

    def excused(self, name: str, error: str, since: float) -> bool:
        """Tell if the parents of the array were broken at some time since then, so that this error is allowed."""
        return False

    def _changed(self, name: str, since: float) -> bool:
        paths = [path for path in self.store.histories.paths() if path[1] == name]
        return any(len(self.store.histories.within(path, since)) > 1 for path in paths)

    def _check(self, reader: Reader, offset: int, size: int, mapped: bool) -> None:
        if reader.kind == "other":
            self._check_all(reader)
            return
        data = self._read(reader, offset, size, mapped)
        if data is None:
            return
        if reader.kind == "document":
            for stamp in map(int, re.findall(rb'"stamp": ?(\d+)[,\s}]', data)):  # a group has none
                assert reader.seen.setdefault(0, stamp) == stamp, f"{reader}: {stamp}"
                assert stamp in reader.stamps, f"{reader}: {stamp}"
        elif reader.kind == "chunk":
            skipped = max(0, reader.header - offset)
            self._check_chunk(reader, 0, reader.stamps, data[skipped:], max(0, offset - reader.header))
        else:
            self._check_whole(reader, offset, data)

    def _check_chunk(self, reader: Reader, key: Any, allowed: set[int | None], data: bytes, offset: int) -> None:
        words = np.frombuffer(data[-offset % 4 :][: (len(data) - -offset % 4) // 4 * 4], f"{reader.order}i4")
        if not len(words):
            return
        stamp = int(words[0])
        assert (words == stamp).all(), f"{reader} {key}: {set(words.tolist())}"
        assert stamp in allowed or (key and None in allowed and stamp == FILL), f"{reader} {key}: {stamp} of {allowed}"
        assert reader.seen.setdefault(key, stamp) == stamp, f"{reader} {key}: {stamp}"
        if key:
            self.check_together(reader)

    def check_together(self, reader: Reader) -> None:
        """All that a reader of a whole array has seen may be of one time."""

    def _check_whole(self, reader: Reader, offset: int, data: bytes) -> None:
        shapes = {value[0] for value in self.store.histories.within(("array", reader.name), reader.since) if value}
        shape = next(shape for shape in shapes if reader.file.inode.size == reader.header + ROWS * COLUMNS * shape.nbytes)
        run = shape.width * shape.itemsize
        position = offset - reader.header
        data, position = data[max(0, -position) :], max(0, position)
        while data:
            row, column = divmod(position // run, COLUMNS)
            part, data = data[: run - position % run], data[run - position % run :]
            key = ("chunk", reader.name, row // HEIGHT, column)
            allowed = {_stamp(value) for value in self.store.histories.within(key, reader.since)}
            self._check_chunk(reader, key, allowed, part, position)
            position += len(part)

    # Where things are

    def _chunk_path(self, layout: str, name: str, at: tuple[int, int]) -> tuple[str, ...]:
        i, j = at[::-1] if self.form == "n5" else at
        place = (layout, *self.place(name))
        if layout == "zarr2":
            return (*place, f"{i}.{j}")
        if layout == "zarr3":
            return (*place, "c", str(i), str(j))
        return (*place, str(at[1]), str(at[0]))

    def _document_path(self, layout: str, name: str) -> tuple[str, ...]:
        document = {"zarr3": "zarr.json", "zarr2": ".zattrs", "n5": "attributes.json"}
        return self.whole_path(name, ".json") if layout == "files" else (layout, *self.place(name), document[layout])

    def whole_path(self, name: str, suffix: str) -> tuple[str, ...]:
        *above, last = self.place(name)
        return ("files", *above, f"{last}{suffix}")

    def place(self, name: str) -> tuple[str, ...]:
        """Return the path of an array in the mount."""
        return (name,)


def _one_of(things: Sequence[T], which: int) -> T | None:
    return things[which % len(things)] if things else None


DOCUMENTS = [("zarr.json",), (".zarray",), (".zattrs",), (".zgroup",), ("attributes.json",)]


def _stamp(value: Any) -> int | None:
    stamp: int | None = value[1] if isinstance(value, tuple) else value
    return stamp


def _encoded(path: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(name.encode() for name in path)
