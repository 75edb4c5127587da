"""Members of a directory that are mount points: a dead server must not hold up a listing (P7). Not here: stores.

Neither Linux's list of mounts nor statx(2) with AT_STATX_DONT_SYNC asks a server.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import struct
import time
from typing import Any, NamedTuple

from fsbridge import confinement

_FLAGS = 0x100 | 0x800 | 0x4000
"""AT_SYMLINK_NOFOLLOW, AT_NO_AUTOMOUNT, AT_STATX_DONT_SYNC."""
_EMPTY_PATH = 0x1000
"""AT_EMPTY_PATH: with an empty name, the open object itself."""
_BASIC_STATS = 0x7FF
_SECOND = 1_000_000_000
_STATX = struct.Struct("=20xIIH2xQQ48xqI4xqI12xII")
"""Fields of struct statx: user, group, mode, inode, size; ctime and mtime in seconds and ns; the two parts of the device."""

_Statx = ctypes.c_char * 256

made = tuple.__new__
"""Makes a named tuple from all its values, in a third of its constructor's time, because each request makes some."""

_libc = ctypes.CDLL(None, use_errno=True)
_escape = re.compile(rb"\\([0-7]{3})")


class _Mounts(NamedTuple):
    asked: float
    points: tuple[str, ...]
    beneath: dict[str, frozenset[str]]


_mounts = _Mounts(-math.inf, (), {})


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


def beneath(path: str) -> frozenset[str]:
    """Return the mount points below the directory `path`. The answer is up to a second old."""
    global _mounts
    now, mounts = time.monotonic(), _mounts
    if now - mounts.asked > 1:
        _mounts = mounts = _Mounts(now, tuple(map(os.fsdecode, _points())), {})
    found = mounts.beneath.get(path)
    if found is None:
        below = path.rstrip("/") + "/"
        found = mounts.beneath[path] = frozenset(point for point in mounts.points if point.startswith(below))
    return found


def on(path: str, points: frozenset[str]) -> bool:
    """True if one of the mount points `points` is the directory `path`, or lies below it."""
    return any(point == path or point.startswith(f"{path}/") for point in points)


def look(directory: int, name: str) -> Known:
    """Return what is known about a member of the open `directory` without asking a server; OSError as in stat(2)."""
    return look_open(directory, _libc.statx, os.fsencode(name), 0)


def look_open(fd: int, statx: Any, name: bytes = b"", flags: int = _EMPTY_PATH) -> Known:
    """Return what `look` does, for the open file `fd`, or for `name` in the open directory `fd`."""
    buffer = _Statx()
    if statx(fd, name, flags | _FLAGS, _BASIC_STATS, buffer):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name or None)
    uid, gid, mode, inode, size, changed, changed_ns, written, written_ns, major, minor = _STATX.unpack_from(buffer)
    device, written, changed = os.makedev(major, minor), written * _SECOND + written_ns, changed * _SECOND + changed_ns
    return made(Known, (mode, inode, device, uid, gid, size, written, changed))


def _points() -> list[bytes]:
    try:
        with confinement.outside(lambda: open("/proc/self/mountinfo", "rb")) as lines:
            points = [line.split(b" ", 5)[4] for line in lines]
    except OSError:
        return []
    return [_escape.sub(lambda found: bytes((int(found[1], 8),)), point) for point in points]
