"""A directory as a store. Every key is opened beneath the root (P4). Not here: zip archives, the meaning of any key.

The root is what its path leads to at the time of each call: a store that is deleted and written anew, or renamed and
replaced, is the new one. While there is none, every answer is Stale: an empty tree would have a mirror emptied.

Symbolic links are followed while they stay beneath the root or in a directory the user has allowed. A link that leads
nowhere is not "absent": a chunk whose content was never fetched (git-annex, DataLad) must not read as fill values.
FIFOs, sockets and devices do not exist for us.
"""

from __future__ import annotations

import errno
import logging
import os
import stat as stat_module
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import chain, islice
from typing import TypeAlias

from fsbridge.errors import AccessDenied, CorruptData, FsbridgeError, IsADirectory, NotFound, Stale
from fsbridge.store import BATCH_NAMES, WHOLE, AtOnce, Key, Member, Range, Stat, Times, mounted, nowait
from fsbridge.store.beneath import open_beneath
from fsbridge.store.bounds import check_limit, check_range
from fsbridge.store.glimpse import Glimpse
from fsbridge.store.hung_members import HungMembers
from fsbridge.store.local_object import LocalObject
from fsbridge.store.moments import Moment, Moments
from fsbridge.store.reached import reached_owner
from fsbridge.store.root import LIST, LOOK, OpenedRoot, Root, translate
from fsbridge.store.status import Status, common_owner, identity, is_other, member_of, same, stat_of

log = logging.getLogger(__name__)

_Refused: TypeAlias = list[FsbridgeError]

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # NONBLOCK: a FIFO in the store must not block the open

LINK_ATTEMPTS = 5
"""A path on which links are being replaced is followed anew this often."""
LOGGED_SPECIALS = 1000


class _Special(NotFound):
    """A FIFO, socket or device."""


class LocalStore:
    """`store.Store` over the directory `root`, following links out of it only into the directories `allowed`.

    `owners`: what is reached by a link is only for those who may enter the directories above it. `immutable`: while what is
    asked for is found without waiting, nobody looks whether the root is still in its place.
    """

    prefixes = False
    far = False
    listable = True
    at_once: AtOnce | None = staticmethod(nowait.at_once)

    def __init__(self, root: str, allowed: Sequence[str] = (), owners: bool = False, immutable: bool = False) -> None:
        self._root = Root(root)
        self._allowed = tuple(Root(path) for path in allowed)
        self._owners = owners
        self._immutable = immutable
        self._specials: set[str] = set()
        self._links: HungMembers[Sequence[Member]] = HungMembers()
        self._moments = Moments()

    def together(self) -> AbstractContextManager[None]:
        """A moment, in which this thread's questions cost less (`moments.py`); none where each path's owners count."""
        return nullcontext() if self._owners else self._moments

    def describe(self, key: Key) -> str:
        """`key` as a path."""
        return f"{self._root.path.rstrip('/')}/{key}" if key else self._root.path

    def close(self) -> None:
        """Let go of the root; from now on everything is Stale."""
        for root in (self._root, *self._allowed):
            root.close()

    def fetch(self, key: Key, read: Range = WHOLE, around: Range | None = None) -> None:
        """It is near."""

    def foresee(self, key: Key, cuts: Sequence[str] = ()) -> None:
        """Nothing to do: a listing costs what it lists."""

    def opened(self, key: Key) -> LocalObject:
        """The file, open for reading."""
        fd, status = self._open_file(key)
        return LocalObject(self, key, fd, status)

    def stat(self, key: Key, read: Range | None = None) -> Stat:
        """Kind and version of what `key` names, links followed."""
        moment = self._moments.now
        if moment is not None:
            if (known := moment.stat(key)) is not None:
                return known
            if (near := moment.look(key)) is not None or (near := self._look_beside(moment, key)) is not None:
                return stat_of(self._regular(key, near))
        elif not nowait.mode.waits and not self._owners and not self._immutable:
            return stat_of(self._regular(key, nowait.status_cached(self._root.now().fd, key or ".")))
        fd = self._open(key, LOOK)
        try:
            status = self._regular(key, nowait.look(fd))
            found = self.stat_open(fd, key, status)
            if moment is not None and found.is_dir and moment.hold(key, fd, found):
                fd = -1
            return found
        finally:
            if fd >= 0:
                nowait.close(fd)

    def commit(self, key: Key) -> Hashable:
        """Which directory is at `key`: another one when a whole tree has taken its place, by a renaming or a link."""
        return identity(self.stat(key))

    def _look_beside(self, moment: Moment, key: Key) -> os.stat_result | None:
        """What lies at `key`, if the moment is asked about its directory again, which it holds from then on."""
        if not key or not moment.again(above := key.parent):
            return None
        with suppress(NotFound):
            self.stat(above)
        return moment.look(key)

    def _regular(self, key: Key, status: Status) -> Status:
        if status.st_mode & 0o170000 in (stat_module.S_IFREG, stat_module.S_IFDIR):
            return status
        raise self._special(key)

    def stat_open(self, fd: int, key: Key, status: Status) -> Stat:
        """The stat of the open object that `key` has led to."""
        found = stat_of(status)
        if not self._owners or found.owner is None:
            return found
        bases = [root.path for root in (self._root, *self._allowed)]
        return found._replace(owner=reached_owner(fd, self.describe(key), bases, found.owner))

    def read(self, key: Key, limit: int) -> tuple[bytes, Stat]:
        """The whole object, with the version it had before and after reading."""
        fd, status = self._open_file(key)
        try:
            check_limit(self, key, status.st_size, limit)
            return self.read_open(fd, key, 0, status.st_size), self._moments.read(key, self.unchanged(fd, key, status))
        finally:
            os.close(fd)

    def read_range(self, key: Key, start: int, length: int) -> tuple[bytes, Stat]:
        """Exactly `length` bytes from `start`; a negative `start` counts from the end."""
        fd, status = self._open_file(key)
        try:
            first = start if start >= 0 else status.st_size + start
            check_range(self, key, first, length, status.st_size)
            return self.read_open(fd, key, first, length), self.unchanged(fd, key, status)
        finally:
            os.close(fd)

    def list(self, key: Key, stats: bool = False) -> Iterator[Member]:
        """Members in the file system's own order, which is stable while the directory does not change."""
        nowait.must_wait()
        fd = self._open(key, LIST)
        refused: _Refused = []
        links: dict[Key, os.stat_result] = {}
        mounts = mounted.beneath(self._root.path) if stats else frozenset()
        try:
            if (moment := self._moments.now if stats else None) is not None:
                moment.share(key, fd)
            with os.scandir(fd) as members:
                for member in members:
                    if mounts and self.describe(key / member.name) in mounts:
                        status = mounted.look(fd, member.name)
                        yield Member(member.name, stat_module.S_ISDIR(status.st_mode), stat_of(status))
                        continue
                    try:
                        if member.is_symlink():
                            links[key / member.name] = member.stat(follow_symlinks=False)
                        elif (entry := member_of(member, stats)) is not None:
                            if moment is not None:
                                moment.listed(key / member.name, entry.stat)
                            yield entry
                    except FileNotFoundError:
                        continue  # removed while we list
                    if len(links) == BATCH_NAMES:
                        yield from self._linked(links, refused)
                        links = {}
            if links:
                yield from self._linked(links, refused)
        finally:
            os.close(fd)
            _warn(refused)

    def glimpse(self, key: Key) -> Glimpse | None:
        """The directory at `key`, see `glimpse.py`; None outside of a moment, and where another file system may be."""
        nowait.must_wait()
        moment, mounts = self._moments.now, mounted.beneath(self._root.path)
        if moment is None or (mounts and mounted.on(self.describe(key), mounts)):
            return None
        place = moment.place(key)
        if place is None:
            with suppress(FsbridgeError, OSError):
                self.stat(key.parent)  # which is held from then on
            place = moment.place(key)
        try:
            return None if place is None else Glimpse(*place)
        except OSError:
            return None

    def names(self, key: Key, cuts: Sequence[str] = ()) -> Iterator[Sequence[str]]:
        """From the directory alone: no link is looked at."""
        nowait.must_wait()
        fd = self._open(key, LIST)
        try:
            if (moment := self._moments.now) is not None:
                moment.share(key, fd)  # whoever wants names will want their times
            with os.scandir(fd) as members:
                while batch := list(islice(members, BATCH_NAMES)):
                    yield [member.name for member in batch if member.is_file(follow_symlinks=False) or is_other(member)]
        finally:
            os.close(fd)

    def _linked(self, links: Mapping[Key, os.stat_result], refused: _Refused) -> Iterator[Member]:
        """What links lead to. One that leads to a dead server is listed as a directory: its look-up will tell."""

        def look(key: Key) -> Sequence[Member]:
            try:
                found = self.stat(key)
            except _Special:
                return ()
            except (FsbridgeError, OSError) as error:
                if isinstance(error, FsbridgeError):
                    refused.append(error)
                return (Member(key.name, False, stat_of(links[key]), True),)
            return (Member(key.name, found.is_dir, found),)

        for key, found in zip(links, self._links.answers(list(links), look, lambda _: False), strict=True):
            if found is None:
                yield Member(key.name, True, stat_of(links[key])._replace(is_dir=True))
            else:
                yield from found

    def mtimes(self, key: Key, names: Sequence[str]) -> Sequence[int | None]:
        """One call each: the directory is opened once, and only links are resolved beneath the root."""
        nowait.must_wait()
        moment = self._moments.now
        held = None if moment is None else moment.held(key)
        fd = self._open(key, LOOK | os.O_DIRECTORY) if held is None else held
        found = Times()
        owners: set[tuple[int, int, int] | None] = set()
        refused: _Refused = []
        try:
            for name in names:
                try:
                    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                except FileNotFoundError:
                    found.append(None)
                    continue
                if stat_module.S_ISLNK(status.st_mode):
                    shown = self._shown(key / name, status, refused)
                    found.append(None if shown is None else shown.mtime_ns)
                    owners.add(None if shown is None else shown.owner)
                else:
                    found.append(status.st_mtime_ns)
                    owners.add((status.st_uid, status.st_gid, status.st_mode & 0o7777))  # an Owner costs as much as the look
        finally:
            if held is None:
                os.close(fd)
            _warn(refused)
        found.owner = common_owner(owners)
        return found

    def _shown(self, key: Key, status: os.stat_result, refused: _Refused) -> Stat | None:
        """What a link is listed with."""
        try:
            return self.stat(key)
        except _Special:
            return None
        except FsbridgeError as error:
            refused.append(error)
            return stat_of(status)  # as a file, so that whoever opens it is told what is wrong with the link

    def _open_file(self, key: Key) -> tuple[int, Status]:
        fd = self._open(key, _READ)
        try:
            status = nowait.look(fd)
        except OSError:  # of a server that has lost it
            nowait.close(fd)
            raise
        if stat_module.S_ISREG(status.st_mode):
            return fd, status
        os.close(fd)
        if stat_module.S_ISDIR(status.st_mode):
            raise IsADirectory(f"{self.describe(key)}: a directory where a file was expected")
        raise self._special(key)

    def read_open(self, fd: int, key: Key, start: int, length: int) -> bytes:
        """Exactly these bytes of an open file, which had them when it was looked at."""
        if not nowait.mode.waits:
            return nowait.read_cached(fd, start, length)
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

    def unchanged(self, fd: int, key: Key, before: Status) -> Stat:
        """An open file's stat if it is as `before`, else Stale."""
        after = nowait.look(fd)
        if not same(before, after):
            raise Stale(f"{self.describe(key)}: changed while it was read")
        return self.stat_open(fd, key, after)

    def _open(self, key: Key, flags: int) -> int:
        if self._immutable and not nowait.mode.waits:
            with suppress(NotFound):  # else there may be no store any more
                return nowait.open_cached(self._root.near().fd, key or ".", flags)
        moment = self._moments.now
        if moment is not None:
            try:
                if (near := moment.open(key, flags)) is not None:
                    return near
            except FileNotFoundError:
                if self._root.now() is moment.root(self._root):
                    raise NotFound(f"{self.describe(key)}: not there") from None
        for _ in range(LINK_ATTEMPTS):
            root = self._root.now() if moment is None else moment.root(self._root)
            if not nowait.mode.waits:
                return nowait.open_cached(root.fd, key or ".", flags)
            try:
                return open_beneath(root.fd, key or ".", flags)
            except (FileNotFoundError, NotADirectoryError) as error:
                if self._root.now() is not root:
                    moment = None
                    continue
                why = "" if isinstance(error, FileNotFoundError) else " (a file where a directory would be)"
                if not why:
                    self._refuse_dangling(root, key)
                raise NotFound(f"{self.describe(key)}: not there{why}") from None
            except OSError as error:
                if error.errno == errno.ENXIO:
                    raise self._special(key) from None
                if error.errno != errno.EXDEV:
                    raise translate(error, self.describe(key)) from None
            fd = self._open_link(root, key, flags)
            if fd is not None:
                return fd
        raise Stale(f"{self.describe(key)}: links on the way change faster than they can be followed")

    def _open_link(self, root: OpenedRoot, key: Key, flags: int) -> int | None:
        """Open what an absolute link, or one out of the root, leads to; None when it is another one by now."""
        try:
            target = os.path.realpath(os.path.join(root.path, key))
        except OSError:  # EINVAL: what was a link is a file by now
            return None
        for directory in chain((root,), (allowed.now() for allowed in self._allowed)):
            if target == directory.path or target.startswith(directory.path.rstrip("/") + "/"):
                try:
                    return open_beneath(directory.fd, os.path.relpath(target, directory.path), flags)
                except (FileNotFoundError, NotADirectoryError):
                    self._refuse_dangling(root, key)
                    raise NotFound(f"{self.describe(key)}: not there") from None
                except OSError as error:
                    if error.errno == errno.EXDEV:
                        return None
                    raise translate(error, self.describe(key)) from None
        raise AccessDenied(f"{self.describe(key)}: a link out of the store, to {target}; --allow-external DIR permits it")

    def _refuse_dangling(self, root: OpenedRoot, key: Key) -> None:
        """CorruptData where `key` is not there because a link on the way leads to nothing."""
        while key and not os.path.lexists(os.path.join(root.path, key)):
            key = key.parent
        path = os.path.join(root.path, key)
        if key and os.path.islink(path) and not os.path.exists(path):
            raise CorruptData(f"{self.describe(key)}: a link to something that is not there")

    def _special(self, key: Key) -> _Special:
        """The error for a FIFO, socket or device; one log line for each, and for a thousand in all."""
        text = f"{self.describe(key)}: a FIFO, socket or device, which fsbridge leaves alone"
        if key not in self._specials and len(self._specials) < LOGGED_SPECIALS:
            self._specials.add(key)
            log.warning("%s", text)
        return _Special(text)


def _warn(refused: _Refused) -> None:
    """One line for all links of a listing that lead nowhere good."""
    if refused:
        more = f" (and {len(refused) - 1} more links here)" if len(refused) > 1 else ""
        log.warning("%s%s", refused[0], more)
