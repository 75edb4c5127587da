"""A file's status as a store's stat: its version, and whether a change would show in it. Not here: system calls."""

from __future__ import annotations

import os
import stat as stat_module
import time
from collections.abc import Hashable
from typing import TypeAlias, cast

from fsbridge.store import Member, Stat
from fsbridge.store.local import mounted

SECOND_NS = 1_000_000_000
TICK_NS = 20_000_000
"""Nanoseconds: twice the slowest clock tick of Linux (100 Hz), by which file systems date changes before Linux 6.13."""
COARSE_TICK_NS = 2 * SECOND_NS
"""Nanoseconds: the clock of a file system that keeps whole seconds."""
WRITTEN_BYTES = 20_000_000
"""Least bytes per second that a write(2) is taken to write. It dates the object when it begins, so until it has ended a
reader may get old and new bytes mixed."""
WRITING_NS = 5 * SECOND_NS
"""Nanoseconds that a write(2) is taken to last at most."""

Status: TypeAlias = os.stat_result | mounted.Known


def stat_of(status: Status) -> Stat:
    """Return the stat for a status. The version holds ctime, which no program can set back."""
    mode, size, written, changed = status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    version = (status.st_dev, status.st_ino, written, changed, size)
    age = time.time_ns() - changed
    is_dir = mode & 0o170000 == stat_module.S_IFDIR
    writing = 0 if is_dir else min(size * SECOND_NS // WRITTEN_BYTES, WRITING_NS)
    tick = max(TICK_NS if changed % SECOND_NS else COARSE_TICK_NS, writing)
    settled = age > tick or (age < 0 and _since(status.st_dev, changed) > tick)
    return mounted.made(Stat, (is_dir, size, written, version, settled))


def _since(device: int, changed: int) -> int:
    """Return nanoseconds since the time `changed`, which is ahead of our clock, by the clock of its file system.

    A file server's clock may be ahead, or ours was set back. Its clock shows at least the latest time seen on it, and is
    taken to run as fast as ours.
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


def identity(found: Stat) -> Hashable:
    """Return what identifies an object, also after writes to it; a directory, also after its members have changed."""
    return cast("tuple[int, ...]", found.version)[:2]


def same(before: Status, after: Status) -> bool:
    """True if an open file has not been written between two looks at it."""
    times = before.st_mtime_ns, before.st_ctime_ns, before.st_size
    return times == (after.st_mtime_ns, after.st_ctime_ns, after.st_size)
