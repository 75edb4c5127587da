"""Opens, looks at and reads files beneath a directory, without leaving it, and without waiting where a thread may not wait.

- `open_beneath` is openat2(2) with RESOLVE_BENEATH, or `walk_beneath`: the same rules step by step, for kernels before 5.6
  and sandboxes that forbid openat2.
- `open_cached` and the like ask a local file system without waiting for its disk: openat2 with RESOLVE_CACHED, preadv with
  RWF_NOWAIT. In a thread that may not wait (`asking.py`) they answer from the kernel's caches, or raise WouldWait. They keep
  the interpreter's lock. To release it and take it again costs more time than such a call, and many times more while other
  threads decode.
- `Root` is the directory of a local store: the one that is at its path now.

Not here: what is opened and why (`files.py`), which questions a store answers without waiting (`__init__.py`).
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from fsbridge import asking
from fsbridge.asking import WouldWait, context
from fsbridge.config import AT_ONCE_BYTES
from fsbridge.errors import AccessDenied, NameTooLong, NotFound, Stale
from fsbridge.store.local.status import Status, look_open

log = logging.getLogger(__name__)

LOOK = os.O_PATH | os.O_CLOEXEC
LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
PATH_BYTES = 4096
"""Most bytes of a path in Linux, including the NUL at its end."""

_SYS_OPENAT2 = 437  # the same number on every Linux architecture
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_BENEATH = 0x08
STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags that open one directory on the way, but no link."""
_MAX_LINKS = 40  # the kernel's own limit

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_syscall = _libc.syscall
_ENCODING = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_HOW_BYTES = ctypes.sizeof(_OpenHow)


def openat2(root: int, path: str, flags: int, resolve: int, call: Any = _syscall) -> tuple[int, int]:
    """Open by the system call. Return a descriptor and 0, or -1 and an errno. `call`: the C library's `syscall`."""
    how = ctypes.byref(_OpenHow(flags, 0, resolve))
    fd: int = call(_SYS_OPENAT2, root, path.encode(*_ENCODING), how, _HOW_BYTES)
    return (fd, 0) if fd >= 0 else (-1, ctypes.get_errno())


def _probe() -> bool:
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        fd, _ = openat2(root, ".", os.O_PATH | os.O_CLOEXEC, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
        if fd >= 0:
            os.close(fd)
        return fd >= 0
    finally:
        os.close(root)


HAVE_OPENAT2 = _probe()
"""True if the kernel has it, and lets this process use it."""


OpenBeneath: TypeAlias = Callable[[int, str, int], int]
"""What `open_beneath` does: gets the descriptor of a directory, a path and flags, and returns a descriptor."""


def open_beneath(root: int, path: str, flags: int, have_openat2: bool = HAVE_OPENAT2) -> int:
    """Open relative `path` below the directory descriptor `root`, following links that stay below it.

    Raises OSError: EXDEV when the path leads out of `root`, else what open(2) says.
    """
    if "\0" in path:  # C would cut the path here and open something else
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if not have_openat2:
        return walk_beneath(root, path, flags)
    for _ in range(100):
        fd, number = openat2(root, path, flags, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
        if fd >= 0:
            return fd
        if number not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a rename elsewhere made the kernel unsure; ask again
            break
    raise OSError(number, os.strerror(number), path)


def walk_beneath(root: int, path: str, flags: int, check: Callable[[int], None] | None = None) -> int:
    """Do the same as `open_beneath`, one component at a time, without openat2.

    `check` is called with a descriptor of each directory on the way, also of those that links lead through.
    """
    pending = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    trail = [os.dup(root)]
    links = 0
    try:
        if check is not None:
            check(root)
        while pending:
            part = pending.pop()
            if part == "..":
                if len(trail) == 1:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
                os.close(trail.pop())
                continue
            try:
                if pending:
                    trail.append(os.open(part, STEP, dir_fd=trail[-1]))
                    if check is not None:
                        check(trail[-1])
                    continue
                target = None if flags & os.O_NOFOLLOW else _readlink(part, trail[-1])
                if target is None:
                    return os.open(part, flags | os.O_NOFOLLOW, dir_fd=trail[-1])
            except NotADirectoryError:  # a link, or a file
                target = _readlink(part, trail[-1]) if pending else None
                if target is None:
                    raise
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
            pending += [step for step in reversed(target.split("/")) if step not in ("", ".")]
        return os.open(".", flags, dir_fd=trail[-1])
    finally:
        for fd in trail:
            os.close(fd)


def _readlink(name: str, directory: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None  # not a link
        raise


_AT_FDCWD = -100
_RESOLVE_NO_XDEV = 0x01
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_CACHED = 0x20
_BENEATH_CACHED = RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_XDEV | _RESOLVE_CACHED
"""Refuses links: ENOENT for a link's target does not mean that the link is absent."""


_LOCAL = frozenset((0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010))
"""ext2 to ext4, XFS, Btrfs, tmpfs, F2FS: where fstat of an open file never waits. Network file systems ask their server."""

_keeping = ctypes.PyDLL(None, use_errno=True)
_syscall_keeping, _statx, _close = _keeping.syscall, _keeping.statx, _keeping.close


def open_cached(root: int, path: str, flags: int, call: Any = _syscall_keeping) -> int:
    """Open `path` beneath `root` on the same file system; NotFound if it is known to be absent, WouldWait for all else.

    `call`: see `openat2`.
    """
    fd, number = openat2(root, path, flags, _BENEATH_CACHED, call)
    if fd >= 0:
        return fd
    if number == errno.ENOENT:
        raise NotFound(f"{path}: not there")
    raise WouldWait


def status_cached(root: int, path: str) -> Status:
    """Return the status of `path`, see `open_cached`. One function, because each open of a file calls it often."""
    fd = open_cached(root, path, LOOK)
    try:
        return look_open(fd, _statx)
    finally:
        _close(fd)


def look_cached(path: str) -> Status:
    """Return the status of the absolute `path`, links followed; WouldWait if that may take a disk access."""
    fd, _ = openat2(_AT_FDCWD, path, LOOK, _RESOLVE_CACHED, _syscall_keeping)
    if fd < 0:
        raise WouldWait
    try:
        return look_open(fd, _statx)
    finally:
        _close(fd)


def look(fd: int, at_once: bool = False) -> Status:
    """Return the status of an open file. `at_once`: `open_cached` opened it, so this never waits."""
    return os.fstat(fd) if context.may_wait and not at_once else look_open(fd, _statx)


def close(fd: int, at_once: bool = False) -> None:
    """Close an open file. `at_once`: see `look`."""
    if context.may_wait and not at_once:
        os.close(fd)
    else:
        _close(fd)


def read_cached(fd: int, start: int, length: int) -> bytes:
    """Read `length` bytes from the page cache; WouldWait if some of them are not there, or if they are many."""
    if length > AT_ONCE_BYTES:
        raise WouldWait
    buffer = bytearray(length)
    try:
        if length and os.preadv(fd, [buffer], start, os.RWF_NOWAIT) != length:
            raise WouldWait
    except OSError:  # EAGAIN, or a file system that cannot tell
        raise WouldWait from None
    return bytes(buffer)


def is_local(fd: int) -> bool:
    """True if an open directory lies on a local file system, where fstat of an open file never waits."""
    buffer = (ctypes.c_long * 32)()
    return _libc.fstatfs(fd, ctypes.byref(buffer)) == 0 and (buffer[0] & 0xFFFFFFFF) in _LOCAL


OpenPath: TypeAlias = Callable[[str, int], int]
"""What `os.open` does: gets a path and flags, and returns a descriptor."""


class OpenedRoot:
    """A directory held open; `path` is its real path. Closed when the last call that uses it has ended."""

    __slots__ = ("fd", "identity", "is_local", "path")

    def __init__(self, path: str, open_path: OpenPath) -> None:
        self.fd = -1
        self.fd = open_path(path, LOOK | os.O_DIRECTORY)
        self.is_local = is_local(self.fd)
        self.identity = _identity(os.fstat(self.fd))
        self.path = os.path.realpath(path)

    def is_empty(self) -> bool:
        """True if the directory is known to be empty; False if it may not be listed."""
        try:
            fd = os.open(".", LIST, dir_fd=self.fd)
        except PermissionError:
            return False
        try:
            with os.scandir(fd) as members:
                return next(members, None) is None
        finally:
            os.close(fd)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class Root:
    """The directory that is at `path` at each call. It is held open, so that its inode number is not reused."""

    def __init__(self, path: str, open_path: OpenPath = os.open) -> None:
        self._path = os.path.abspath(path)
        self._open_path = open_path
        self._lock = threading.Lock()
        self._opened: OpenedRoot | None = OpenedRoot(self._path, open_path)
        self.path = self._opened.path

    def now(self) -> OpenedRoot:
        """Return the directory that is there now; Stale if there is none, or a new one that is still empty."""
        opened = self._opened
        if not asking.context.may_wait:
            return opened if opened is not None and asking.context.root is opened else self._now_cached()
        try:
            if opened is not None and _identity(os.stat(self._path)) == opened.identity:
                return opened
            return self._renew()
        except (FileNotFoundError, NotADirectoryError):
            raise Stale(f"{self._path}: no longer there") from None
        except OSError as error:
            raise translate(error, self._path) from None

    def near(self) -> OpenedRoot:
        """Return the directory as it was last opened; WouldWait if its file system may keep a caller waiting."""
        opened = self._opened
        if opened is None or not opened.is_local:
            raise WouldWait
        return opened

    def _now_cached(self) -> OpenedRoot:
        """Return the present directory without waiting. Its path is checked only once in each `asking.without_waiting`."""
        opened = self.near()
        status = look_cached(self._path)
        if (status.st_dev, status.st_ino) != opened.identity:
            raise WouldWait
        asking.context.root = opened
        return opened

    def _renew(self) -> OpenedRoot:
        with self._lock:
            old, new = self._opened, OpenedRoot(self._path, self._open_path)
            if old is None:
                raise Stale(f"{self._path}: closed")
            if new.identity == old.identity:
                return old
            if new.is_empty():
                raise Stale(f"{self._path}: an empty directory has taken its place")
            log.info("%s: another directory has taken its place", self._path)
            self._opened, self.path = new, new.path
            return new

    def close(self) -> None:
        """Give up the directory. It is closed when the last call that uses it has ended."""
        self._opened = None


def translate(error: OSError, place: str) -> Exception:
    """Return the error that a store's caller gets for an error of the operating system at `place`."""
    if error.errno in (errno.EPERM, errno.EACCES):
        return AccessDenied(f"{place}: {error.strerror}")
    if error.errno == errno.ENAMETOOLONG:
        too_deep = len(os.fsencode(place)) >= PATH_BYTES  # the file may exist; in a shorter path a name is too long
        return (
            NameTooLong(f"{place}: the path is too long for Linux") if too_deep else NotFound(f"{place}: {error.strerror}")
        )
    if error.errno == errno.ELOOP:
        return AccessDenied(f"{place}: symbolic links lead in a circle")
    return error


def named(error: OSError, place: str) -> OSError:
    """Return `error` with `place` as its file name, because an error about a descriptor names no file."""
    error.filename = place
    return error


def _identity(status: Status) -> tuple[int, int]:
    return status.st_dev, status.st_ino
