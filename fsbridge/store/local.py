"""A directory as a store. Every key is opened beneath the root (P4). Not here: zip archives, the meaning of any key.

Symbolic links are followed while they stay beneath the root or in a directory the user has allowed. A link that leads
nowhere is not "absent": a chunk whose content was never fetched (git-annex, DataLad) must not read as fill values.
"""

from __future__ import annotations

import errno
import logging
import os
import stat as stat_module
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from fsbridge.errors import AccessDenied, CorruptData, FsbridgeError, IsADirectory, NotFound, Stale, TooLarge
from fsbridge.store import NAMES, Key, Member, Owner, Stat
from fsbridge.store.beneath import open_beneath

log = logging.getLogger(__name__)

_Refused: TypeAlias = list[FsbridgeError]

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # NONBLOCK: a FIFO in the store must not block the open
_LOOK = os.O_PATH | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

SECOND = 1_000_000_000
TICK = 20_000_000
"""Nanoseconds: twice the slowest clock tick of Linux (100 Hz), by which file systems date changes before Linux 6.13."""
COARSE_TICK = 2 * SECOND
"""Nanoseconds: the clock of a file system that keeps whole seconds."""


class LocalStore:
    """`store.Store` over the directory `root`, following links out of it only into the directories `allowed`."""

    def __init__(self, root: str, allowed: Sequence[str] = ()) -> None:
        self._root = os.path.realpath(root)
        self._fd = os.open(self._root, _LOOK | os.O_DIRECTORY)
        self._allowed = tuple((os.path.realpath(path), os.open(path, _LOOK | os.O_DIRECTORY)) for path in allowed)

    def describe(self, key: Key) -> str:
        """`key` as a path."""
        return os.path.join(self._root, key) if key else self._root

    def close(self) -> None:
        """Close the root; the store cannot be used afterwards."""
        os.close(self._fd)
        for _, fd in self._allowed:
            os.close(fd)

    def stat(self, key: Key) -> Stat:
        """Kind and version of what `key` names, links followed."""
        fd = self._open(key, _LOOK)
        try:
            return stat_of(os.fstat(fd))
        finally:
            os.close(fd)

    def read(self, key: Key, limit: int) -> tuple[bytes, Stat]:
        """The whole object, with the version it had before and after reading."""
        fd, status = self._open_file(key)
        try:
            if status.st_size > limit:
                raise TooLarge(f"{self.describe(key)}: {status.st_size} bytes stored, the limit here is {limit}")
            return self._read(fd, key, 0, status.st_size), self._unchanged(fd, key, status)
        finally:
            os.close(fd)

    def read_range(self, key: Key, start: int, length: int) -> tuple[bytes, Stat]:
        """Exactly `length` bytes from `start`; a negative `start` counts from the end."""
        fd, status = self._open_file(key)
        try:
            first = start if start >= 0 else status.st_size + start
            if first < 0 or length < 0 or first + length > status.st_size:
                raise CorruptData(
                    f"{self.describe(key)}: {length} bytes at {start} wanted of an object of {status.st_size}"
                )
            return self._read(fd, key, first, length), self._unchanged(fd, key, status)
        finally:
            os.close(fd)

    def list(self, key: Key, stats: bool = False) -> Iterator[Member]:
        """Members in the file system's own order, which is stable while the directory does not change."""
        fd = self._open(key, _LIST)
        refused: _Refused = []
        try:
            with os.scandir(fd) as members:
                for member in members:
                    entry = self._entry(key, member, stats, refused)
                    if entry is not None:
                        yield entry
        finally:
            os.close(fd)
            _warn(refused)

    def names(self, key: Key) -> Iterator[Sequence[str]]:
        """From the directory alone: no link is looked at."""
        fd = self._open(key, _LIST)
        try:
            with os.scandir(fd) as members:
                while batch := list(islice(members, NAMES)):
                    yield [member.name for member in batch if member.is_file(follow_symlinks=False) or _is_other(member)]
        finally:
            os.close(fd)

    def _entry(self, key: Key, member: os.DirEntry[str], stats: bool, refused: _Refused) -> Member | None:
        try:
            if member.is_symlink():
                return self._link_entry(key, member, refused)
            if member.is_dir(follow_symlinks=False):
                kind = True
            elif member.is_file(follow_symlinks=False):
                kind = False
            else:
                return None
            if not stats:
                return Member(member.name, kind, None)
            return Member(member.name, kind, stat_of(member.stat(follow_symlinks=False)))
        except FileNotFoundError:
            return None  # removed while we list

    def _link_entry(self, key: Key, member: os.DirEntry[str], refused: _Refused) -> Member:
        found = self._link_stat(key / member.name, member.stat(follow_symlinks=False), refused)
        return Member(member.name, found.is_dir, found)

    def _link_stat(self, key: Key, link: os.stat_result, refused: _Refused) -> Stat:
        try:
            return self.stat(key)
        except FsbridgeError as error:
            refused.append(error)
            # Listed as a file, so that whoever opens it is told what is wrong with the link.
            return stat_of(link)

    def mtimes(self, key: Key, names: Sequence[str]) -> Sequence[int | None]:
        """One call each: the directory is opened once, and only links are resolved beneath the root."""
        fd = self._open(key, _LOOK | os.O_DIRECTORY)
        found: list[int | None] = []
        refused: _Refused = []
        try:
            for name in names:
                try:
                    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                except FileNotFoundError:
                    found.append(None)
                    continue
                if stat_module.S_ISLNK(status.st_mode):
                    found.append(self._link_stat(key / name, status, refused).mtime_ns)
                else:
                    found.append(status.st_mtime_ns)
        finally:
            os.close(fd)
            _warn(refused)
        return found

    def _open_file(self, key: Key) -> tuple[int, os.stat_result]:
        fd = self._open(key, _READ)
        status = os.fstat(fd)
        if stat_module.S_ISREG(status.st_mode):
            return fd, status
        os.close(fd)
        if stat_module.S_ISDIR(status.st_mode):
            raise IsADirectory(f"{self.describe(key)}: a directory where a file was expected")
        raise CorruptData(f"{self.describe(key)}: neither a file nor a directory")

    def _read(self, fd: int, key: Key, start: int, length: int) -> bytes:
        data = os.pread(fd, length, start)
        if len(data) == length:
            return data
        parts = [data]
        missing = length - len(data)
        while missing:  # one read is at most 2 GiB on Linux
            data = os.pread(fd, missing, start + length - missing)
            if not data:
                raise Stale(f"{self.describe(key)}: shrank while it was read")
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def _unchanged(self, fd: int, key: Key, before: os.stat_result) -> Stat:
        after = stat_of(os.fstat(fd))
        if after.version != stat_of(before).version:
            raise Stale(f"{self.describe(key)}: changed while it was read")
        return after

    def _open(self, key: Key, flags: int) -> int:
        try:
            return open_beneath(self._fd, key or ".", flags)
        except FileNotFoundError:
            self._refuse_dangling(key)
            raise NotFound(f"{self.describe(key)}: not there") from None
        except NotADirectoryError:
            raise NotFound(f"{self.describe(key)}: not there (a file where a directory would be)") from None
        except OSError as error:
            if error.errno == _EXDEV:
                return self._open_allowed(key, flags)
            raise _translate(error, self.describe(key)) from None

    def _open_allowed(self, key: Key, flags: int) -> int:
        target = os.path.realpath(self.describe(key))
        for root, fd in self._allowed:
            if target == root or target.startswith(root.rstrip("/") + "/"):
                try:
                    return open_beneath(fd, os.path.relpath(target, root), flags)
                except FileNotFoundError:
                    raise CorruptData(f"{self.describe(key)}: a link to {target}, which is not there") from None
                except OSError as error:
                    raise _translate(error, self.describe(key)) from None
        raise AccessDenied(f"{self.describe(key)}: a link out of the store, to {target}; --allow-external DIR permits it")

    def _refuse_dangling(self, key: Key) -> None:
        while key:
            try:
                fd = open_beneath(self._fd, key, _LOOK | os.O_NOFOLLOW)
            except OSError:
                key = key.parent
                continue
            try:
                if stat_module.S_ISLNK(os.fstat(fd).st_mode):
                    raise CorruptData(f"{self.describe(key)}: a link to something that is not there")
            finally:
                os.close(fd)
            return


_EXDEV = errno.EXDEV


def _is_other(member: os.DirEntry[str]) -> bool:
    return member.is_symlink() or member.is_dir(follow_symlinks=False)


def _warn(refused: _Refused) -> None:
    """One line for all links of a listing that lead nowhere good."""
    if refused:
        more = f" (and {len(refused) - 1} more links here)" if len(refused) > 1 else ""
        log.warning("%s%s", refused[0], more)


def stat_of(status: os.stat_result) -> Stat:
    """What the file system says, as a store does. The version holds ctime, which nobody can set back."""
    changed = status.st_ctime_ns
    version = (status.st_dev, status.st_ino, status.st_mtime_ns, changed, status.st_size)
    owner = Owner(status.st_uid, status.st_gid, stat_module.S_IMODE(status.st_mode))
    is_dir = stat_module.S_ISDIR(status.st_mode)
    settled = time.time_ns() - changed > (TICK if changed % SECOND else COARSE_TICK)
    return Stat(is_dir, status.st_size, status.st_mtime_ns, version, owner, settled)


def _translate(error: OSError, place: str) -> Exception:
    if error.errno in (errno.EPERM, errno.EACCES):
        return AccessDenied(f"{place}: {error.strerror}")
    if error.errno == errno.ENAMETOOLONG:  # the file system cannot hold such an object
        return NotFound(f"{place}: {error.strerror}")
    if error.errno == errno.ELOOP:
        return AccessDenied(f"{place}: symbolic links that lead in a circle")
    return error
