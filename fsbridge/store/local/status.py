"""What Linux knows about files: a status as a store's stat, with its version, and which directories are mount points.

Not here: how a file is found (`files.py`), answers without waiting for a disk (`descriptors.py`).
"""

from __future__ import annotations

import ctypes
import os
import re
import stat as stat_module
import struct
import time
from collections.abc import Hashable
from typing import Any, NamedTuple, TypeAlias, cast

from fsbridge.store import Member, Stat
from fsbridge.threads.deadlines import Stopwatch

_FLAGS = 0x100 | 0x800 | 0x4000
"""AT_SYMLINK_NOFOLLOW, AT_NO_AUTOMOUNT, AT_STATX_DONT_SYNC."""
_EMPTY_PATH = 0x1000
"""AT_EMPTY_PATH: with an empty name, the open object itself."""
_BASIC_STATS = 0x7FF
SECOND_NS = 1_000_000_000
_STATX = struct.Struct("=20xIIH2xQQ48xqI4xqI12xII")
"""Fields of struct statx: user, group, mode, inode, size; ctime and mtime in seconds and ns; the two parts of the device."""

_Statx = ctypes.c_char * 256

made = tuple.__new__
"""Makes a named tuple from all its values, in a third of its constructor's time, because each request makes some."""

_libc = ctypes.CDLL(None, use_errno=True)
_octal = re.compile(rb"\\([0-7]{3})")


class Known(NamedTuple):
    """The known status of a file, with field names of `os.stat_result`."""

    st_mode: int
    st_ino: int
    st_dev: int
    st_uid: int
    st_gid: int
    st_size: int
    st_mtime_ns: int
    st_ctime_ns: int


class MountPoints:
    """The mount points below a store's root, read at most a second ago. No listing waits for a server behind one (P7).

    Neither Linux's list of mounts nor statx(2) with AT_STATX_DONT_SYNC asks a server.
    """

    def __init__(self) -> None:
        self._found: tuple[str, frozenset[str], Stopwatch] | None = None

    def points_below(self, path: str) -> frozenset[str]:
        """Return the mount points below the directory `path`."""
        if self._found is None or self._found[0] != path or self._found[2].seconds > 1:
            read, below = Stopwatch(), path.rstrip("/") + "/"
            self._found = path, frozenset(point for point in map(os.fsdecode, _points()) if point.startswith(below)), read
        return self._found[1]

    def concern(self, path: str, root: str) -> bool:
        """True if one of the mount points below the directory `root` is the directory `path`, or lies below it."""
        return any(point == path or point.startswith(f"{path}/") for point in self.points_below(root))


def known_status(directory: int, name: str) -> Known:
    """Return what is known about a member of the open `directory` without asking a server; OSError as in stat(2)."""
    return look_open(directory, _libc.statx, os.fsencode(name), 0)


def look_open(fd: int, statx: Any, name: bytes = b"", flags: int = _EMPTY_PATH) -> Known:
    """Return what `known_status` does, for the open file `fd`, or for `name` in the open directory `fd`."""
    buffer = _Statx()
    if statx(fd, name, flags | _FLAGS, _BASIC_STATS, buffer):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name or None)
    uid, gid, mode, inode, size, changed, changed_ns, written, written_ns, major, minor = _STATX.unpack_from(buffer)
    device, written, changed = os.makedev(major, minor), written * SECOND_NS + written_ns, changed * SECOND_NS + changed_ns
    return made(Known, (mode, inode, device, uid, gid, size, written, changed))


def _points() -> list[bytes]:
    try:
        with open("/proc/self/mountinfo", "rb") as lines:
            points = [line.split(b" ", 5)[4] for line in lines]
    except OSError:
        return []
    return [_octal.sub(lambda match: bytes((int(match[1], 8),)), point) for point in points]


TICK_NS = 20_000_000
"""Nanoseconds: twice the slowest clock tick of Linux (100 Hz), by which file systems date changes before Linux 6.13."""
COARSE_TICK_NS = 2 * SECOND_NS
"""Nanoseconds: the clock of a file system that keeps whole seconds."""
WRITTEN_BYTES = 20_000_000
"""Bytes per second that the slowest write(2) is assumed to write. A write dates the object when it begins, so until it ends
a reader may get old and new bytes mixed."""
WRITING_NS = 5 * SECOND_NS
"""Nanoseconds that the longest write(2) is assumed to last."""

Status: TypeAlias = os.stat_result | Known


def stat_of(status: Status) -> Stat:
    """Return the stat for a status. The version holds ctime, which no program can set back."""
    mode, size, written, changed = status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    version = (status.st_dev, status.st_ino, written, changed, size)
    now = time.time_ns()
    age = now - changed
    is_dir = mode & 0o170000 == stat_module.S_IFDIR
    writing = 0 if is_dir else min(size * SECOND_NS // WRITTEN_BYTES, WRITING_NS)
    tick = max(TICK_NS if changed % SECOND_NS else COARSE_TICK_NS, writing)
    if age < 0:
        age = _since(status.st_dev, changed)
    return made(Stat, (is_dir, size, written, version, age > tick, now - age + tick))


def _since(device: int, changed: int) -> int:
    """Return the nanoseconds since a change at the time `changed`, which is in the future by our clock.

    Such a time comes from a file server with a clock ahead of ours, or from before our clock was set back. The latest time
    seen on a file system is a lower bound for its clock, which is assumed to run as fast as ours.
    """
    now = time.monotonic_ns()
    ahead = _ahead[device] = max(changed - now, _ahead.get(device, changed - now))
    return now + ahead - changed


_ahead: dict[int, int] = {}
"""Least nanoseconds by which the clock of each file system is ahead of the monotonic clock."""


def member_of(entry: os.DirEntry[str], stats: bool) -> Member | None:
    """Return a directory entry as a member, with its stat or without; None if it is neither a directory nor a file."""
    is_dir = entry.is_dir(follow_symlinks=False)
    if not is_dir and not entry.is_file(follow_symlinks=False):
        return None
    return Member(entry.name, is_dir, stat_of(entry.stat(follow_symlinks=False)) if stats else None)


def is_other(entry: os.DirEntry[str]) -> bool:
    """True if a member of a directory is a link or a directory."""
    return entry.is_symlink() or entry.is_dir(follow_symlinks=False)


def identity(stat: Stat) -> Hashable:
    """Return what identifies an object or directory and stays the same after writes to it: its device and inode."""
    return cast("tuple[int, ...]", stat.version)[:2]


def same(before: Status, after: Status) -> bool:
    """True if an open file has not been written between two looks at it."""
    times = before.st_mtime_ns, before.st_ctime_ns, before.st_size
    return times == (after.st_mtime_ns, after.st_ctime_ns, after.st_size)
