"""What the file system says of an object, in a store's words: version, owner, if a change would show. Not here: asking."""

from __future__ import annotations

import os
import stat as stat_module
import time
from collections.abc import Hashable, Set
from functools import lru_cache
from typing import TypeAlias, cast

from fsbridge.owner import Owner
from fsbridge.store import Member, Stat
from fsbridge.store.local import mounted

SECOND_NS = 1_000_000_000
TICK_NS = 20_000_000
"""Nanoseconds: twice the slowest clock tick of Linux (100 Hz), by which file systems date changes before Linux 6.13."""
COARSE_TICK_NS = 2 * SECOND_NS
"""Nanoseconds: the clock of a file system that keeps whole seconds."""
AHEAD_NS = 60 * SECOND_NS
"""Nanoseconds by which no server's clock is ahead of ours: a time further ahead is that of a clock that was set back since,
and a change from now on has another one. Otherwise nobody could read such an object as part of a whole array until then."""
OWNERS = 64
"""Owners that are kept: a store's objects have few, and share what says so."""

Status: TypeAlias = os.stat_result | mounted.Known


def stat_of(status: Status) -> Stat:
    """What the file system says, as a store does. The version holds ctime, which nobody can set back."""
    mode, size, written, changed = status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    version = (status.st_dev, status.st_ino, written, changed, size)
    owner = _owner(status.st_uid, status.st_gid, mode & 0o7777)
    age = time.time_ns() - changed
    settled = age > (TICK_NS if changed % SECOND_NS else COARSE_TICK_NS) or age < -AHEAD_NS
    return mounted.made(Stat, (mode & 0o170000 == stat_module.S_IFDIR, size, written, version, owner, settled))


def member_of(entry: os.DirEntry[str], stats: bool) -> Member | None:
    """A member of a directory that is no link, with its stat or without; None for what is neither a directory nor a file."""
    is_dir = entry.is_dir(follow_symlinks=False)
    if not is_dir and not entry.is_file(follow_symlinks=False):
        return None
    return Member(entry.name, is_dir, stat_of(entry.stat(follow_symlinks=False)) if stats else None)


def is_other(entry: os.DirEntry[str]) -> bool:
    """Whether a member of a directory is a link or a directory."""
    return entry.is_symlink() or entry.is_dir(follow_symlinks=False)


def identity(found: Stat) -> Hashable:
    """Which object it is, whatever has been written to it; of a directory, whatever came and went in it."""
    return cast("tuple[int, ...]", found.version)[:2]


def same(before: Status, after: Status) -> bool:
    """Whether an open file has not been written between two looks at it."""
    times = before.st_mtime_ns, before.st_ctime_ns, before.st_size
    return times == (after.st_mtime_ns, after.st_ctime_ns, after.st_size)


_owner = lru_cache(OWNERS)(Owner)


def common_owner(owners: Set[tuple[int, int, int] | None]) -> Owner | None:
    """The owner of all, if it is one; each is an `Owner`, or as one."""
    only = next(iter(owners)) if len(owners) == 1 else None
    return None if only is None else _owner(*only)
