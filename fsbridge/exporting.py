"""The tree of a source written to a real directory: several files at a time, each whole or not at all, resumable.

A file is written under a temporary name, gets the mtime of what it was made of, and is renamed. A second export keeps what
has that size and time, after comparing the bytes of files that are made of many stored objects. Nothing is deleted but
temporary files. Not here: arguments and progress (`commands/export.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from hashlib import blake2b
from queue import Queue

from fsbridge.errors import FsbridgeError, Stale
from fsbridge.tree import AnyNode, Attrs
from fsbridge.virtual import Listed, ReadableFile, VirtualTree, measured, open_file

PIECE = 4 << 20
"""Bytes that are read at a time."""

LARGE, RANGE = 64 << 20, 8 << 20
"""Bytes from which on several threads read one file, and how many each takes: next to each other, as chunks lie."""

WAITING = 256
"""Pieces of work that wait for a thread."""

CHANGING_NS = 2_000_000_000
"""Nanoseconds for which a change may not show in a modification time: such a file is written again the next time."""

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Errors of the destination that every further file would meet."""

TRIES = 3
"""Versions of a file that is being changed which are tried before that is an error."""


@dataclass(slots=True)
class ExportCounts:
    """What has become of the files and links so far."""

    written: int = 0
    kept: int = 0
    failed: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """Which files are exported: patterns of `fnmatch` for whole paths, `*` matches `/` too; and every how many-th."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    part: int = 0
    parts: int = 1

    def enters(self, path: str) -> bool:
        """Whether to look into a directory."""
        return not any(fnmatchcase(path, pattern) for pattern in self.exclude)

    def takes(self, path: str) -> bool:
        """Whether a file is to be exported, as far as its path tells."""
        return self.enters(path) and (not self.include or any(fnmatchcase(path, pattern) for pattern in self.include))


@dataclass(slots=True)
class _Writing:
    """A file that is being written. `left`: ranges of it that are not done."""

    target: str
    path: str
    attrs: Attrs
    file: ReadableFile
    descriptor: int
    temporary: str
    left: int = 1
    lock: threading.Lock = field(default_factory=threading.Lock)
    failed: bool = False


class Export:
    """One export of `tree` below `path` into the directory `folder`."""

    def __init__(
        self,
        tree: VirtualTree,
        path: str,
        folder: str,
        choice: Choice,
        threads: int,
        tell: Callable[[str, Exception], None],
        progress: Callable[[str, int], None] = lambda path, count: None,
    ) -> None:
        """`tell` gets what could not be exported, `progress` each path with the bytes that were just written of it."""
        self.counts = ExportCounts()
        self._tree = tree
        self._path = path
        self._folder = folder
        self._choice = choice
        self._threads = threads
        self._tell = tell
        self._progress = progress
        self._lock = threading.Lock()
        self._ended = False
        self._fatal: Exception | None = None
        self._temporary: set[str] = set()
        self._work: Queue[Callable[[], None] | None] = Queue(WAITING)

    def run(self) -> None:
        """Export all; errors of single files are told, those that end everything (no space, say) are raised."""
        workers = [threading.Thread(target=self._take, name="fsbridge-export", daemon=True) for _ in range(self._threads)]
        for worker in workers:
            worker.start()
        try:
            attrs = self._tree.stat(self._path)
            if attrs.kind == "directory":
                os.makedirs(self._folder, exist_ok=True)
                self._each()
            else:
                name = self._path.rpartition("/")[2]
                target = os.path.join(self._folder, name) if os.path.isdir(self._folder) else self._folder
                self._file(target, self._path, Listed(name, attrs, lambda: self._tree.node(self._path)))
        except BaseException:
            self._ended = True
            raise
        finally:
            for _ in workers:
                self._work.put(None)
            for worker in workers:
                worker.join()
            self.clear()
        if self._fatal is not None:
            raise self._fatal
        sync(self._folder)

    def clear(self) -> None:
        """End, and remove what is not complete. May be called at any time."""
        self._ended = True
        with self._lock:
            unfinished, self._temporary = self._temporary, set()
        for path in unfinished:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _each(self) -> None:
        choice, number = self._choice, 0
        top = "/".join(part for part in self._path.split("/") if part)
        below = len(top) + 1 if top else 0
        for whole, member in self._tree.walk(top, lambda path: self._enters(path[below:]), self._fail):
            path = whole[below:]
            target = self._target(path)
            if self._ended:
                return
            if member.attrs.kind == "directory":
                if not choice.include and choice.parts == 1:
                    with self._telling(whole):
                        os.makedirs(target, exist_ok=True)
                continue
            if not choice.takes(path):
                continue
            number += 1
            if (number - 1) % choice.parts != choice.part:
                continue
            with self._telling(whole):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                if member.attrs.kind == "link":
                    self._link(target, self._tree.target(whole))
                else:
                    self._file(target, whole, member)

    def _target(self, path: str) -> str:
        return os.path.join(self._folder, os.fsdecode(path.encode("utf-8", "surrogateescape")))

    def _enters(self, path: str) -> bool:
        """Whether to export what is in a directory; never by way of a link that lies in the destination."""
        if not self._choice.enters(path):
            return False
        target = self._target(path)
        if os.path.islink(target):
            self._fail(path, FileExistsError(errno.EEXIST, f"{target} is a link, where a directory is to be written"))
            return False
        return True

    def _link(self, target: str, leads: str) -> None:
        with contextlib.suppress(OSError):
            if os.readlink(target) == leads:
                self._count(kept=1)
                return
        temporary = self._named(target)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        os.symlink(leads, temporary)
        os.replace(temporary, target)
        with self._lock:
            self._temporary.discard(temporary)
        self._count(written=1)

    def _file(self, target: str, path: str, member: Listed) -> None:
        attrs = member.attrs
        with contextlib.suppress(FileNotFoundError):
            there = os.lstat(target)
            if attrs.size is None:
                attrs = measured(member.node())
            if (there.st_size, there.st_mtime_ns) == (attrs.size, attrs.mtime_ns) and stat.S_ISREG(there.st_mode):
                if self._tree.config.immutable or member.node().slot is not None:
                    self._count(kept=1)
                    self._progress(path, attrs.size or 0)
                else:
                    self._work.put(partial(self._compared, target, path, member))
                return
        if attrs.size is None or attrs.size < LARGE:
            self._work.put(partial(self._small, target, path, member))
            return
        writing = self._begin(target, path, attrs, member.node())
        starts = range(0, writing.file.size, RANGE)
        writing.left = len(starts)
        for start in starts:
            self._work.put(partial(self._range, writing, start))

    def _compared(self, target: str, path: str, member: Listed) -> None:
        """Export a file of many stored objects unless it is there already: its time does not tell of them all."""
        try:
            same = self._same(target, path, member)
        except (FsbridgeError, OSError) as error:
            self._fail(path, error)
            return
        if same:
            self._count(kept=1)
        else:
            self._small(target, path, member)

    def _same(self, target: str, path: str, member: Listed) -> bool:
        with open(target, "rb") as there, open_file(member.node()) as file:
            for at in range(0, file.size, PIECE):
                if self._ended:
                    return True
                stop = min(at + PIECE, file.size)
                if file.read(at, stop) != there.read(stop - at):
                    return False
                self._progress(path, stop - at)
            return not there.read(1)

    def _small(self, target: str, path: str, member: Listed) -> None:
        """Export a file whole; one that is being changed is looked up again."""
        for left in reversed(range(TRIES)):
            if self._ended:
                return
            try:
                node = member.node() if left == TRIES - 1 else self._tree.node(path)
                writing = self._begin(target, path, member.attrs, node)
                try:
                    self._copy(writing, 0, writing.file.size)
                except BaseException:
                    writing.failed = True
                    raise
                finally:
                    self._end(writing)
                return
            except Stale as error:
                if not left:
                    self._fail(path, error)
            except (FsbridgeError, OSError) as error:
                self._fail(path, error)
                return

    def _range(self, writing: _Writing, start: int) -> None:
        try:
            if not writing.failed:
                self._copy(writing, start, min(start + RANGE, writing.file.size))
        except (FsbridgeError, OSError) as error:
            with writing.lock:
                first, writing.failed = not writing.failed, True
            if first:
                self._fail(writing.path, error)
        with writing.lock:
            writing.left -= 1
            last = not writing.left
        if last:
            with self._telling(writing.path):
                self._end(writing)

    def _begin(self, target: str, path: str, attrs: Attrs, node: AnyNode) -> _Writing:
        file = open_file(node)
        try:
            temporary = self._named(target)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(temporary, flags, 0o666)
        except BaseException:
            file.close()
            raise
        return _Writing(target, path, attrs, file, descriptor, temporary)

    def _copy(self, writing: _Writing, start: int, stop: int) -> None:
        for at in range(start, stop, PIECE):
            if self._ended:
                return
            data = memoryview(writing.file.read(at, min(at + PIECE, stop)))
            done = 0
            while done < len(data):
                done += os.pwrite(writing.descriptor, data[done:], at + done)
            self._progress(writing.path, len(data))

    def _end(self, writing: _Writing) -> None:
        """Give a whole file its name; take away one that failed."""
        try:
            if writing.attrs.mtime_ns < time.time_ns() - CHANGING_NS:
                os.utime(writing.descriptor, ns=(writing.attrs.mtime_ns, writing.attrs.mtime_ns))
        finally:
            os.close(writing.descriptor)
            writing.file.close()
        with self._lock:
            if writing.temporary in self._temporary:  # else `clear` has removed it
                if writing.failed or self._ended:
                    os.unlink(writing.temporary)
                else:
                    os.replace(writing.temporary, writing.target)
                    self.counts.written += 1
                    self.counts.bytes += writing.file.size
                self._temporary.discard(writing.temporary)

    def _named(self, target: str) -> str:
        """A temporary name beside `target`, always the same: what a killed export left is written over."""
        folder, name = os.path.split(target)
        digest = blake2b(os.fsencode(name), digest_size=8).hexdigest()
        temporary = os.path.join(folder, f".fsbridge-{digest}.part")
        with self._lock:
            self._temporary.add(temporary)
        return temporary

    def _take(self) -> None:
        while (job := self._work.get()) is not None:
            try:
                job()
            except Exception as error:  # a bug: nothing goes on behind it
                self._fatal, self._ended = error, True

    def _count(self, kept: int = 0, written: int = 0) -> None:
        with self._lock:
            self.counts.kept += kept
            self.counts.written += written

    @contextlib.contextmanager
    def _telling(self, path: str) -> Iterator[None]:
        try:
            yield
        except (FsbridgeError, OSError) as error:
            self._fail(path, error)

    def _fail(self, path: str, error: Exception) -> None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            self._fatal, self._ended = error, True
            return
        with self._lock:
            self.counts.failed += 1
        self._tell(path, error)


def sync(folder: str) -> None:
    """Have the file system of `folder` write to the disk what it holds."""
    descriptor = os.open(folder if os.path.isdir(folder) else os.path.dirname(folder) or ".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        ctypes.CDLL(None, use_errno=True).syncfs(descriptor)
    finally:
        os.close(descriptor)
