"""A glimpse of a directory: one small object in it, and whether there is anything else. Plain cases only, in few calls.

A listing that shows what documents say asks this of each member. What is not plain (a link, a refusal, an object being
written) has no glimpse: whoever asks about it in the ordinary way (`local.py`) is told what it is, or what is wrong.
"""

from __future__ import annotations

import os
import stat as stat_module
from typing import NamedTuple

from fsbridge.store import Stat
from fsbridge.store.root import LIST
from fsbridge.store.status import same, stat_of

_OBJECT = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW


class Glimpse(NamedTuple):
    """All bytes of an object and its stat; whether it is `alone` in its directory, and that one's mtime."""

    data: bytes
    stat: Stat
    alone: bool
    touched_ns: int


def glimpse(above: int, name: str, member: str, limit: int) -> Glimpse | None:
    """Of the object `member`, of at most `limit` bytes, in the directory `name` of the open directory `above`."""
    try:
        directory = os.open(name, LIST | os.O_NOFOLLOW, dir_fd=above)
    except OSError:
        return None
    try:
        fd = os.open(member, _OBJECT, dir_fd=directory)
        try:
            before = os.fstat(fd)
            size = before.st_size
            if size > limit or not stat_module.S_ISREG(before.st_mode):
                return None
            data = os.pread(fd, size, 0)
            after = os.fstat(fd)
        finally:
            os.close(fd)
        if len(data) != size or not same(before, after):
            return None
        touched_ns = os.fstat(directory).st_mtime_ns
        with os.scandir(directory) as members:
            alone = all(found.name == member for found in members)
    except OSError:
        return None
    finally:
        os.close(directory)
    return Glimpse(data, stat_of(after), alone, touched_ns)
