"""An in-memory tree for tests of the kernel side, and a program that mounts one: `python fake_tree.py SOURCE MOUNTPOINT`.

The tree is made of plain objects that a test may change, slow down or break. Not here: stores, formats, layouts.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fsbridge.asking import before_waiting
from fsbridge.errors import NotFound, Stale
from fsbridge.lru import register
from fsbridge.tree import Attrs, Directory, Entry, File, Handle, Space, Symlink

log = logging.getLogger(__name__)


@dataclass
class FakeHandle(Handle):
    """An open `FakeFile`; `peekable` bytes are answered without a worker."""

    file: FakeFile
    data: bytes
    version: Hashable
    closed: bool = False
    window: int = 0

    def __post_init__(self) -> None:
        self.size = len(self.data)

    def prefetch(self, start: int, stop: int) -> None:
        self.file.prefetched.append((start, stop))

    def peek(self, offset: int, size: int) -> memoryview | None:
        return memoryview(self.data)[offset : offset + size] if self.file.peekable else None

    def read(self, offset: int, size: int) -> memoryview:
        self.file.reads += 1
        if self.file.on_read is not None:
            self.file.on_read()
        if self.version != self.file.stamp:
            raise Stale("the fake file changed")
        return memoryview(self.data)[offset : offset + size]

    def close(self) -> None:
        self.closed = True
        self.file.closes += 1


@dataclass
class FakeFile(File):
    """A file of `data`; `stamp` identifies its bytes. With `keyed`, a new stamp is a new node, as for `zarr.json`."""

    data: bytes = b""
    stamp: int = 0
    keyed: bool = False
    mtime_ns: int = 10**18
    peekable: bool = False
    slot: Any = None
    on_read: Callable[[], object] | None = None
    on_open: Callable[[], object] | None = None
    window: int = 0
    at_once: bool = False
    prefetched: list[tuple[int, int]] = field(default_factory=list)
    reads: int = 0
    opens: int = 0
    closes: int = 0

    pinned: Any = None

    def __post_init__(self) -> None:
        self.version = ("stamp", self.stamp) if self.keyed else None

    def attrs(self) -> Attrs:
        return Attrs("file", len(self.data), self.mtime_ns + self.stamp)

    def xattrs(self) -> Mapping[str, bytes]:
        return {"user.fsbridge.test": b"value", "user.fsbridge.size": b"%d" % len(self.data)}

    def open(self) -> FakeHandle:
        if not self.at_once:
            before_waiting()
        self.opens += 1
        if self.on_open is not None:
            self.on_open()
        return FakeHandle(self, self.data, self.stamp, window=self.window)


@dataclass
class Snapshot(File):
    """One version of a keyed file: what a lookup returns, outdated once the file's stamp has moved on."""

    file: FakeFile
    stamp: int

    def __post_init__(self) -> None:
        self.version = ("stamp", self.stamp)

    def attrs(self) -> Attrs:
        return self.file.attrs()

    def xattrs(self) -> Mapping[str, bytes]:
        return self.file.xattrs()

    def open(self) -> FakeHandle:
        if self.stamp != self.file.stamp:
            raise Stale("the fake file changed")
        return self.file.open()


@dataclass
class FakeLink(Symlink):
    """A symbolic link."""

    target: bytes
    version: Hashable = None

    def attrs(self) -> Attrs:
        return Attrs("link", len(self.target), 10**18)


@dataclass
class FakeDirectory(Directory):
    """A directory over a dictionary that tests may change; listed in batches of `batch`."""

    members: dict[bytes, Any] = field(default_factory=dict)
    version: Hashable = None
    space: Any = None
    extent: int = 0
    batch: int = 3
    listings: int = 0
    on_list: Callable[[], object] | None = None
    on_lookup: Callable[[], object] | None = None

    def attrs(self) -> Attrs:
        return Attrs("directory", 0, 10**18)

    def xattrs(self) -> Mapping[str, bytes]:
        return {"user.fsbridge.test": b"directory"}

    def lookup(self, name: bytes) -> Any:
        before_waiting()
        if self.on_lookup is not None:
            self.on_lookup()
        return self._node(name)

    def entries(self) -> Iterator[Sequence[Entry]]:
        self.listings += 1
        names = list(self.members)
        for start in range(0, len(names), self.batch):
            if self.on_list is not None:
                self.on_list()
            yield [self._entry(name) for name in names[start : start + self.batch] if name in self.members]

    def _node(self, name: bytes) -> Any:
        node = self.members.get(name)
        if node is None:
            raise NotFound(f"{name!r} is not here")
        if isinstance(node, FakeFile) and node.keyed:
            return Snapshot(node, node.stamp)
        return node

    def _entry(self, name: bytes) -> Entry:
        node = self._node(name)
        return Entry(name, node.attrs(), lambda: node, node.version)


@dataclass(eq=False)
class FakeSpace(Space):
    """`size` numbered files; the one at position n holds the decimal digits of n, `width` of them."""

    size: int
    width: int = 8
    stamp: int = 0
    directory: Any = None
    identity: Hashable = None
    """None: another one than that of any other object."""

    def __post_init__(self) -> None:
        if self.identity is None:
            self.identity = id(self)

    def node(self, position: int) -> Any:
        if position == 0:
            return self.directory
        return FakeFile(b"%0*d" % (self.width, position), stamp=self.stamp, slot=(self, position))

    def name(self, position: int) -> str:
        return str(position)

    def level(self, position: int) -> range:
        return range(1)

    def prefetch(self, positions: Sequence[int]) -> int | None:
        return next((position for position in positions if not self.make(position)), None)

    def make(self, position: int) -> bool:
        """Make one file ready; False where there is no room."""
        return True


@dataclass(eq=False)
class SpaceDirectory(Directory):
    """The directory at position 0 of a `FakeSpace`; it lists `listed` of its files, named by their positions."""

    space: Any = None
    listed: int = 0
    batch: int = 1000
    version: Hashable = None
    extent: int = 0

    def __post_init__(self) -> None:
        self.space.directory = self

    @property
    def slot(self) -> tuple[FakeSpace, int]:
        return self.space, 0

    def attrs(self) -> Attrs:
        return Attrs("directory", 0, 10**18)

    def lookup(self, name: bytes) -> Any:
        before_waiting()
        if not name.isdigit() or not 0 < int(name) <= self.listed:
            raise NotFound(f"{name!r} is not here")
        return self.space.node(int(name))

    def entries(self) -> Iterator[Sequence[Entry]]:
        attrs = Attrs("file", self.space.width, 10**18)
        for start in range(1, self.listed + 1, self.batch):
            stop = min(start + self.batch, self.listed + 1)
            yield [Entry(b"%d" % position, attrs, position) for position in range(start, stop)]


@dataclass
class DiskFile(File):
    """A real file; its version is its stamp, or None for a node of all versions."""

    path: str
    version: Hashable

    def attrs(self) -> Attrs:
        before_waiting()
        status = os.stat(self.path)
        return Attrs("file", status.st_size, status.st_mtime_ns)

    def open(self) -> FakeHandle:
        before_waiting()
        with open(self.path, "rb") as file:
            now = disk_stamp(file.fileno())  # of the bytes that are read: the path may be another file by now
            if self.version not in (None, now):
                raise Stale("the file changed")
            data = file.read()
        return FakeHandle(FakeFile(data, stamp=now), data, now)


class DiskDirectory(FakeDirectory):
    """The files of a real directory; `keyed`: a version is a node of its own."""

    def __init__(self, path: str, keyed: bool) -> None:
        super().__init__()
        self.path = path
        self.keyed = keyed

    def entries(self) -> Iterator[Sequence[Entry]]:
        self.members = dict.fromkeys(os.listdir(os.fsencode(self.path)))
        return super().entries()

    def _node(self, name: bytes) -> DiskFile:
        path = os.path.join(self.path, os.fsdecode(name))
        try:
            return DiskFile(path, disk_stamp(path) if self.keyed else None)
        except FileNotFoundError:
            raise NotFound(path) from None


def disk_stamp(file: str | int) -> Any:
    """Return what identifies one version of a real file."""
    status = os.stat(file)
    return status.st_ino, status.st_mtime_ns, status.st_size


def demo(disk: str) -> FakeDirectory:
    """The tree that most mount tests use; `keyed` and `plain` show the real directory `disk`."""
    hang = threading.Event()
    pattern = bytes(range(256)) * 4096
    return FakeDirectory(
        {
            b"hello": FakeFile(b"hello, world\n", keyed=True),
            b"empty": FakeFile(b""),
            b"big": FakeFile(pattern),
            b"peek": FakeFile(pattern, peekable=True),
            b"hang": FakeFile(pattern, on_read=hang.wait),
            b"slow": FakeFile(b"slow\n", on_read=lambda: time.sleep(0.2)),
            b"broken": FakeFile(pattern, on_read=lambda: 1 // 0),
            b"link": FakeLink(b"hello"),
            b"dir": FakeDirectory({b"%d" % n: FakeFile(b"%d\n" % n) for n in range(10)}),
            b"space": SpaceDirectory(FakeSpace(200_001), 1000),
            b"keyed": DiskDirectory(disk, keyed=True),
            b"plain": DiskDirectory(disk, keyed=False),
        }
    )


class Forgetful:
    """An object that remembers something and reports when it has forgotten it."""

    def clear(self) -> None:
        log.info("what is remembered is forgotten")


def main() -> int:
    """Mount `demo(SOURCE)`; the command line is that of `fsbridge mount`."""
    import sys

    from fsbridge.commands.mount import parse
    from fsbridge.errors import SetupError
    from fsbridge.mount.lifecycle import Tree, mount

    forgetful = Forgetful()
    register(forgetful)

    def forget() -> None:
        log.info("the cache is empty")

    try:
        return mount(parse("fake_tree", sys.argv[1:]), lambda config: Tree(demo(config.source), lambda: None, forget))
    except SetupError as error:
        print(f"fake_tree: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
