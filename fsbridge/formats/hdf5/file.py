"""One HDF5 file in the daemon: a descriptor for chunk bytes, a child process for structure; both rest when unused.

A file is always seen as of one version: every question and every read says of which, and is Stale when the file has changed
meanwhile. Not here: what the answers mean (`answers.py`), how a child is run (`children/client.py`).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from stat import S_ISREG
from typing import Any, TypeVar

from fsbridge.children.client import Child, ChildDied
from fsbridge.config import Config
from fsbridge.errors import AccessDenied, CorruptData, FsbridgeError, IsADirectory, NotFound, Stale
from fsbridge.store import Stat
from fsbridge.store.local import stat_of

Result = TypeVar("Result")

log = logging.getLogger(__name__)

LIVE_CHILDREN = 16
"""Child processes at a time, for all files together: each takes 40 MiB."""
LIVE_DESCRIPTORS = 128
"""Open data files at a time, for all files together: the usual limit of a process is 1024."""
CRASHES, CRASH_WINDOW = 3, 60.0
"""A child that crashes this often within so many seconds is not started again before the time is over."""
ATTEMPTS = 3
"""A question to a file that changes while it is answered is asked so often."""
MAX_LOGGED = 1000
"""Remarks on one file that are remembered so as not to be repeated."""


class OpenFile:
    """A descriptor of one version of the file, closed when the last reader lets go of it."""

    __slots__ = ("fd", "identity", "name", "stat")

    def __init__(self, path: str) -> None:
        self.name = path
        self.fd = -1
        self.fd = _translate(path, lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        found = os.fstat(self.fd)
        if not S_ISREG(found.st_mode):
            raise IsADirectory(f"{path}: not a file")
        self.stat = stat_of(found)
        self.identity = (found.st_dev, found.st_ino)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def check(self) -> None:
        """Stale when the file has been written to since it was opened."""
        if stat_of(os.fstat(self.fd)).version != self.stat.version:
            raise Stale(f"{self.name}: changed while it was read")

    def read(self, address: int, size: int) -> bytearray:
        """Exactly `size` bytes at `address` of this version; CorruptData beyond the end, Stale if it changed."""
        self._inside(address, size)
        data = bytearray(size)
        self.read_into(address, memoryview(data))
        return data

    def read_into(self, address: int, out: memoryview) -> None:
        """As `read`, into `out`."""
        self._inside(address, len(out))
        while out:
            got = os.preadv(self.fd, [out], address)
            if not got:
                self.check()
                raise CorruptData(f"{self.name}: the file ends at {address}")
            out, address = out[got:], address + got
        self.check()

    def _inside(self, address: int, size: int) -> None:
        if address + size > self.stat.size:
            raise CorruptData(f"bytes {address} to {address + size} of a file of {self.stat.size}: truncated?")


class HDF5File:
    """An HDF5 file by path. Thread-safe; every method may block."""

    def __init__(self, path: str, config: Config) -> None:
        self.path = os.path.realpath(path)
        self.config = config
        self._lock = threading.Lock()
        self._opened: OpenFile | None = None
        self._seen = False
        self._child_lock = threading.Lock()
        self._child: Child | None = None
        self._child_version: tuple[tuple[int, int], Hashable] | None = None
        """Device and inode, and the version, of what the child has open."""
        self._failure: tuple[Hashable, FsbridgeError] | None = None
        self._crashes: deque[float] = deque(maxlen=CRASHES)
        self._logged: set[str] = set()
        self._family: dict[str, HDF5File] = {self.path: self}

    def current(self) -> OpenFile:
        """The file as it is now."""
        try:
            stat = stat_of(_translate(self.path, lambda: os.stat(self.path)))
        except NotFound:
            if self._seen:  # what is in it is not absent, it is out of sight: `rsync --delete` must not take it for empty
                raise Stale(f"{self.path}: no longer there") from None
            raise
        with self._lock:
            if self._opened is None or self._opened.stat.version != stat.version:
                self._opened = OpenFile(self.path)
            else:
                self._opened.stat = stat  # it may have settled
            opened = self._opened
        self._seen = True
        _descriptors.use(self)
        return opened

    def version(self, version: Hashable) -> OpenFile:
        """The file, if it is still of that version; Stale otherwise."""
        opened = self.current()
        if opened.stat.version != version:
            raise Stale(f"{self.path}: changed")
        return opened

    def ask(
        self, question: dict[str, Any], *, version: Hashable = None, limit: int = 0, seconds: float | None = None
    ) -> tuple[dict[str, Any], list[bytearray], Stat]:
        """The child's answer, its attachments (at most `limit` bytes), and the stat of the file that it speaks of.

        With `version`: of that one only, or Stale. Raises what `Child.ask` does.
        """
        seconds = self.config.read_deadline if seconds is None else seconds
        for _ in range(ATTEMPTS):
            opened = self.current() if version is None else self.version(version)
            try:
                answer, attachments = self._ask(opened, question, limit, seconds)
                opened.check()
                return answer, attachments, opened.stat
            except ChildDied:
                if _is_current(opened) and self._is_newest(opened):
                    raise
            except FsbridgeError as error:
                if not isinstance(error, Stale) and _is_current(opened):
                    raise
        raise Stale(f"{self.path}: changes faster than it can be read")

    def _is_newest(self, opened: OpenFile) -> bool:
        """Whether the path still names that very file: a child that was ended because of a newer one has not crashed."""
        try:
            return self.current() is opened
        except (NotFound, Stale):
            return True

    def sibling(self, path: str) -> HDF5File:
        """Another file that links of this one lead to: one object per path, closed together."""
        found = self._family.get(path)
        if found is None:
            found = HDF5File(path, self.config)
            found._family = self._family
            found = self._family.setdefault(path, found)
        return found

    def forget_child(self) -> None:
        """Make the next question open the file anew: other files that belong to it have changed."""
        with self._child_lock:
            self._child_version = None

    def remark(self, text: str) -> None:
        """One log line about this file, once."""
        if text not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(text)
            log.warning("%s: %s", self.path, text)

    def close(self) -> None:
        """End the children and let go of the descriptors of this file and its siblings; the next use starts anew."""
        for file in list(self._family.values()):
            _children.drop(file)
            _descriptors.drop(file)
            file._rest_descriptor()
            with file._child_lock:
                file._end_child()

    # ---- the child

    def _ask(
        self, opened: OpenFile, question: dict[str, Any], limit: int, seconds: float
    ) -> tuple[dict[str, Any], list[bytearray]]:
        with self._child_lock:
            child = self._ready_child(opened, seconds)
        _children.use(self)
        try:
            return child.ask(question, limit, seconds)
        except ChildDied as error:
            raise self._crashed(child, error, f"{question['op']} {'/'.join(question.get('path', []))}") from None

    def _ready_child(self, opened: OpenFile, seconds: float) -> Child:
        """A living child that has this version of the file open; the child lock is held."""
        if self._failure is not None:
            version, failure = self._failure
            if version == opened.stat.version:
                raise failure
            self._failure = None
        old, wanted = self._child_version, (opened.identity, opened.stat.version)
        if self._child is not None and (not self._child.alive or (old and old[0] != opened.identity)):
            self._end_child()  # its confinement names the file that was there
        if self._child is None:
            self._child = self._start()
            self._child_version = None
        if self._child_version != wanted:
            self._open_in(self._child, opened, seconds)
            self._child_version = wanted
        return self._child

    def _open_in(self, child: Child, opened: OpenFile, seconds: float) -> None:
        question = {
            "op": "open",
            "path": self.path,
            "allowed": [os.path.realpath(folder) for folder in self.config.allow_external],
            "device": opened.identity[0],
            "inode": opened.identity[1],
        }
        try:
            child.ask(question, 0, seconds)
        except ChildDied as error:
            raise self._crashed(child, error, "open") from None
        except CorruptData as error:
            if _is_current(opened):
                self._failure = (opened.stat.version, CorruptData(f"{self.path}: {error}"))
                raise self._failure[1] from None
            raise

    def _start(self) -> Child:
        now = time.monotonic()
        if len(self._crashes) == CRASHES and now - self._crashes[0] < CRASH_WINDOW:
            raise CorruptData(f"{self.path}: the HDF5 process ended {CRASHES} times within a minute")
        readable = [self.path, *(folder for folder in self.config.allow_external if os.path.isdir(folder))]
        try:
            child = Child(readable, self.config.max_chunk, plugins=self.config.hdf5_plugins)
        except ChildDied as error:
            self._crashes.append(now)
            log.warning("%s: %s", self.path, error)
            raise CorruptData(f"{self.path}: {error}") from None
        if not child.confined:
            _say_once("this kernel has no Landlock: HDF5 processes are not confined to their files")
        return child

    def _crashed(self, child: Child, error: ChildDied, question: str) -> CorruptData:
        """Take note of a crash, once however many were waiting for the child."""
        if self._child is child:
            self._child = None
            self._crashes.append(time.monotonic())
            log.warning("%s: %s: %s", self.path, question, error)
        return ChildDied(f"{self.path}: {question}: {error}")

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def rest_child(self) -> bool:
        """End the child unless it is at work; for the pool."""
        if not self._child_lock.acquire(blocking=False):
            return False
        try:
            if self._child is not None and self._child.busy:
                return False
            self._end_child()
            return True
        finally:
            self._child_lock.release()

    def _rest_descriptor(self) -> bool:
        with self._lock:
            self._opened = None
        return True


class _Recent:
    """The files that hold a resource, least recently used first; those over the limit are asked to give theirs back."""

    def __init__(self, limit: int, rest: Callable[[HDF5File], bool]) -> None:
        self._limit = limit
        self._rest = rest
        self._lock = threading.Lock()
        self._files: OrderedDict[HDF5File, None] = OrderedDict()

    def use(self, file: HDF5File) -> None:
        """`file` holds the resource and uses it now."""
        with self._lock:
            self._files[file] = None
            self._files.move_to_end(file)
            surplus = list(self._files)[:-1][: max(0, len(self._files) - self._limit)]
        for old in surplus:
            if self._rest(old):
                self.drop(old)

    def drop(self, file: HDF5File) -> None:
        """`file` holds the resource no longer."""
        with self._lock:
            self._files.pop(file, None)


_children = _Recent(LIVE_CHILDREN, HDF5File.rest_child)
_descriptors = _Recent(LIVE_DESCRIPTORS, HDF5File._rest_descriptor)
_said: set[str] = set()


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        log.warning("%s", text)


def _is_current(opened: OpenFile) -> bool:
    try:
        opened.check()
    except Stale:
        return False
    return True


def _translate(path: str, call: Callable[[], Result]) -> Result:
    """`call`, with its OSError as one of ours."""
    try:
        return call()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{path}: no such file") from None
    except PermissionError:
        raise AccessDenied(f"{path}: permission denied") from None
    except OSError as error:
        raise CorruptData(f"{path}: {error.strerror}") from None
