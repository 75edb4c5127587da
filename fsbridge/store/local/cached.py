"""Questions to a local file system without waiting for its disk: openat2 with RESOLVE_CACHED, preadv with RWF_NOWAIT.

In a thread that may not wait (`asking.py`) these calls answer from the kernel's caches, or raise WouldWait. They keep the
interpreter's lock. To release it and take it again costs more time than such a call, and many times more while other
threads decode. Not here: which questions a store answers this way (`store.py`).
"""

from __future__ import annotations

import ctypes
import errno
import os

from fsbridge.asking import WouldWait, context
from fsbridge.config import AT_ONCE_BYTES
from fsbridge.errors import NotFound
from fsbridge.store.local.beneath import RESOLVE_BENEATH, openat2
from fsbridge.store.local.status import Status, look_open

_AT_FDCWD = -100
_RESOLVE_NO_XDEV = 0x01
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_CACHED = 0x20
_BENEATH_CACHED = RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_XDEV | _RESOLVE_CACHED
"""Refuses links: ENOENT for a link's target does not mean that the link is absent."""

_LOOK = os.O_PATH | os.O_CLOEXEC

_LOCAL = frozenset((0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010))
"""ext2 to ext4, XFS, Btrfs, tmpfs, F2FS: where fstat of an open file never waits. Network file systems ask their server."""

_libc = ctypes.CDLL(None, use_errno=True)
_keeping = ctypes.PyDLL(None, use_errno=True)
_syscall, _statx, _close = _keeping.syscall, _keeping.statx, _keeping.close


def open_cached(root: int, path: str, flags: int) -> int:
    """Open `path` beneath `root` on the same file system; NotFound if it is known to be absent, WouldWait for all else."""
    fd, number = openat2(root, path, flags, _BENEATH_CACHED, _syscall)
    if fd >= 0:
        return fd
    if number == errno.ENOENT:
        raise NotFound(f"{path}: not there")
    raise WouldWait


def status_cached(root: int, path: str) -> Status:
    """Return the status of `path`, see `open_cached`. One function, because each open of a file calls it often."""
    fd = open_cached(root, path, _LOOK)
    try:
        return look_open(fd, _statx)
    finally:
        _close(fd)


def look_cached(path: str) -> Status:
    """Return the status of the absolute `path`, links followed; WouldWait if that may take a disk access."""
    fd, _ = openat2(_AT_FDCWD, path, _LOOK, _RESOLVE_CACHED, _syscall)
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
