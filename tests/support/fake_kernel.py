"""What Linux does between a program and the handlers of a mount: names, attributes and pages that it remembers.

It remembers as `fs/fuse` does: names and attributes for as long as it was told, pages of an inode until an open or a
changed time empties them; a path that was ESTALE is looked up once more, each of its names anew. Not here: what is right.
"""

from __future__ import annotations

import builtins
import errno
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from pyfuse3 import EntryAttributes, FUSEError, ReaddirToken

from fsbridge.kernel.filesystem import Filesystem
from fsbridge.kernel.replies import UNTOLD

T = TypeVar("T")

CTX: Any = None
PAGE_BYTES = 4096
REQUEST_PAGES = 32
"""Pages of a request at most."""


@dataclass
class Dentry:
    """What a name stands for, and until when the kernel does not ask again."""

    inode: Inode
    until: float = 0.0


@dataclass(eq=False, repr=False)
class Inode:
    """A number of the mount that the kernel knows."""

    number: int
    directory: bool
    lookups: int = 0
    size: int = 0
    mtime_ns: int = 0
    until: float = 0.0
    pins: int = 0
    above: Inode | None = None
    names: dict[bytes, Dentry] = field(default_factory=dict)
    pages: dict[int, bytes] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class Opened:
    """A file that a program has open."""

    inode: Inode
    fh: int
    direct: bool
    path: tuple[bytes, ...]


class ReplyBuffer(ReaddirToken):
    """Stands for pyfuse3's buffer for the reply to `readdir`."""

    def add(self, name: bytes, entry: EntryAttributes, next_id: int) -> bool:
        """Take an entry if there is room for it."""
        raise NotImplementedError


def add_entry(token: ReaddirToken, name: bytes, entry: EntryAttributes, next_id: int) -> bool:
    """Add an entry to a `ReplyBuffer`, as `pyfuse3.readdir_reply` does to pyfuse3's."""
    return cast(ReplyBuffer, token).add(name, entry, next_id)


class FakeKernel:
    """The kernel side of one mount; its coroutines run on the event loop of `filesystem`."""

    def __init__(self, filesystem: Filesystem) -> None:
        self.filesystem = filesystem
        self.root = Inode(1, True, 1)
        self.inodes = {1: self.root}

    # What programs do

    async def open(self, path: tuple[bytes, ...]) -> Opened:
        async def ask(inode: Inode) -> Opened:
            reply = await self.filesystem.open(inode.number, os.O_RDONLY, CTX)
            if not reply.keep_cache:
                self._drop_pages(inode)
            inode.pins += 1
            return Opened(inode, reply.fh, bool(reply.direct_io), path)

        return await self._ask_at(path, ask)

    async def close(self, file: Opened) -> None:
        await self.filesystem.release(file.fh)
        file.inode.pins -= 1
        await self._evict(file.inode, gone=True)

    async def read(self, file: Opened, offset: int, size: int, mapped: bool = False) -> bytes:
        """Through the page cache; `mapped`: a page fault, for which no attributes are asked."""
        inode = file.inode
        if file.direct and not mapped:
            return bytes(await self.filesystem.read(file.fh, offset, size))
        if not mapped:
            await self._ask_attributes(inode)
        size = max(0, min(size, inode.size - offset))
        data = bytearray()
        first, end = offset // PAGE_BYTES, -(-(offset + size) // PAGE_BYTES) if size else 0
        while first < end:
            page = inode.pages.get(first)
            if page is None:
                await self._fill(file, first, min(end, first + REQUEST_PAGES))
                continue
            data += page
            first += 1
        skipped = offset % PAGE_BYTES
        return bytes(data[skipped : skipped + size])

    async def stat(self, path: tuple[bytes, ...]) -> tuple[bool, int, int]:
        """Return its kind (directory or not), its size and its mtime."""

        async def ask(inode: Inode) -> tuple[bool, int, int]:
            await self._ask_attributes(inode)
            return inode.directory, inode.size, inode.mtime_ns

        return await self._ask_at(path, ask)

    async def list(self, path: tuple[bytes, ...], room: int) -> list[bytes]:
        """Names in a directory, `room` of them each request."""

        async def ask(inode: Inode) -> Opened:
            opened = Opened(inode, await self.filesystem.opendir(inode.number, CTX), False, path)
            inode.pins += 1
            return opened

        opened = await self._ask_at(path, ask)
        try:
            return await self._list(opened.inode, opened.fh, room)
        finally:
            await self.filesystem.releasedir(opened.fh)
            opened.inode.pins -= 1
            await self._evict(opened.inode, gone=True)

    async def forget(self, wanted: Callable[[Inode], bool] = lambda inode: True) -> None:
        """Memory is short: forget what is not in use, if it is `wanted`."""
        for inode in [*self.inodes.values()]:
            if self.inodes.get(inode.number) is inode and wanted(inode):
                await self._evict(inode)

    # How it does them

    async def _ask_at(self, path: tuple[bytes, ...], ask: Callable[[Inode], Awaitable[T]]) -> T:
        """What `ask` says of the inode at a path; where anything on the way is stale, the way is asked for anew, once."""
        try:
            with _pinned(inode := await self._walk(path, False)):
                return await ask(inode)
        except FUSEError as error:
            if error.errno != errno.ESTALE:
                raise
        with _pinned(inode := await self._walk(path, True)):
            return await ask(inode)

    async def _list(self, inode: Inode, fh: int, room: int) -> builtins.list[bytes]:
        names: builtins.list[bytes] = []
        start = 0
        while True:
            reply = _Reply(room)
            await self.filesystem.readdir(fh, start, reply)
            if not reply.entries:
                return names
            start = reply.entries[-1][2]
            for name, entry, _ in reply.entries:
                if name not in (b".", b".."):
                    names.append(name)
                    await self._take_entry(inode, name, entry)

    async def _take_entry(self, above: Inode, name: bytes, entry: Any) -> None:
        """An entry of a listing: as good as a look-up."""
        if entry.st_size == UNTOLD:
            await self.filesystem.forget([(entry.st_ino, 1)])
            return
        dentry = above.names.get(name)
        if dentry is not None and (dentry.inode.number != entry.st_ino or dentry.inode.directory != _is_directory(entry)):
            await self._drop(above, name)
        self._link(above, name, entry)

    async def _walk(self, path: tuple[bytes, ...], again: bool) -> Inode:
        inode = self.root
        for name in path:
            if not inode.directory:
                raise FUSEError(errno.ENOTDIR)
            with _pinned(inode):
                inode = await self._step(inode, name, again)
        return inode

    async def _step(self, above: Inode, name: bytes, again: bool) -> Inode:
        dentry = above.names.get(name)
        if dentry is not None and not again and time.monotonic() < dentry.until:
            return dentry.inode
        if dentry is not None:
            try:
                entry = await self.filesystem.lookup(above.number, name, CTX)
            except FUSEError:
                entry = None
            if entry is not None and entry.st_ino == dentry.inode.number:
                return self._link(above, name, entry)
            if entry is not None and entry.st_ino:
                await self.filesystem.forget([(entry.st_ino, 1)])
            await self._drop(above, name)
        entry = await self.filesystem.lookup(above.number, name, CTX)
        if not entry.st_ino:
            raise FUSEError(errno.ENOENT)
        return self._link(above, name, entry)

    def _link(self, above: Inode, name: bytes, entry: Any) -> Inode:
        inode = self.inodes.get(entry.st_ino)
        if inode is None:
            inode = self.inodes[entry.st_ino] = Inode(entry.st_ino, _is_directory(entry), above=above)
            above.pins += 1
        assert inode.directory == _is_directory(entry), "a number stands for a file and a directory"
        inode.lookups += 1
        above.names[name] = Dentry(inode, time.monotonic() + entry.entry_timeout)
        self._set_attributes(inode, entry)
        return inode

    def _set_attributes(self, inode: Inode, entry: Any) -> None:
        if not inode.directory and (inode.size, inode.mtime_ns) != (entry.st_size, entry.st_mtime_ns):
            self._drop_pages(inode)
        inode.size, inode.mtime_ns = entry.st_size, entry.st_mtime_ns
        inode.until = time.monotonic() + entry.attr_timeout

    async def _ask_attributes(self, inode: Inode) -> None:
        if time.monotonic() >= inode.until:
            self._set_attributes(inode, await self.filesystem.getattr(inode.number, CTX))

    async def _fill(self, file: Opened, first: int, end: int) -> None:
        inode = file.inode
        offset, size = first * PAGE_BYTES, (end - first) * PAGE_BYTES
        data = bytes(await self.filesystem.read(file.fh, offset, size))
        assert len(data) == min(size, inode.size - offset), "a short answer: the kernel would fill up with zeros"
        for page in range(first, end):
            at = (page - first) * PAGE_BYTES
            inode.pages.setdefault(page, data[at : at + PAGE_BYTES])

    def _drop_pages(self, inode: Inode) -> None:
        inode.pages.clear()

    async def _drop(self, above: Inode, name: bytes) -> None:
        """A name stands for something else: what is below goes with it, unless it is in use."""
        dentry = above.names.pop(name, None)
        if dentry is not None:
            await self._evict(dentry.inode, gone=True)

    async def _evict(self, inode: Inode, gone: bool = False) -> None:
        """Forget an inode that is not in use; `gone`: only if it has no name any more."""
        if inode is self.root or self.inodes.get(inode.number) is not inode:
            return
        above = inode.above
        assert above is not None
        named = any(dentry.inode is inode for dentry in above.names.values())
        if gone and named:
            return
        for name in [*inode.names]:
            if name not in inode.names:
                continue
            child = inode.names[name].inode
            if not child.pins and not child.names:
                del inode.names[name]
                await self._evict(child, gone=True)
            elif gone:
                await self._drop(inode, name)
            else:
                await self._evict(child)
        if inode.pins or inode.names or self.inodes.get(inode.number) is not inode:
            return
        for name in [name for name, dentry in above.names.items() if dentry.inode is inode]:
            del above.names[name]
        del self.inodes[inode.number]
        above.pins -= 1
        await self.filesystem.forget([(inode.number, inode.lookups)])
        await self._evict(above, gone=True)


@dataclass
class _Entry:
    st_ino: int
    st_size: int
    st_mtime_ns: int
    st_mode: int
    attr_timeout: float
    entry_timeout: float


class _Reply(ReplyBuffer):
    """Takes `room` entries."""

    def __init__(self, room: int) -> None:
        self._room = room
        self.entries: list[tuple[bytes, _Entry, int]] = []

    def add(self, name: bytes, entry: EntryAttributes, next_id: int) -> bool:
        if len(self.entries) >= self._room:
            return False
        kept = _Entry(entry.st_ino, entry.st_size, entry.st_mtime_ns, entry.st_mode, entry.attr_timeout, entry.entry_timeout)
        self.entries.append((name, kept, next_id))
        return True


def _is_directory(entry: Any) -> bool:
    return bool(entry.st_mode & 0o170000 == 0o040000)


@contextmanager
def _pinned(inode: Inode) -> Iterator[None]:
    inode.pins += 1
    try:
        yield
    finally:
        inode.pins -= 1
