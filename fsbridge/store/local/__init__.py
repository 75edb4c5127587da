"""A directory as a store. Not here: how a key is opened, and which links are followed (`files.py`), zip archives.

The root is whatever its path leads to at each call, so a store that is deleted and written again, or replaced by a rename,
shows its new content. While there is none every call raises Stale, because an empty tree would make a mirroring program
delete its copy.
"""

from __future__ import annotations

import errno
import logging
import os
import stat as stat_module
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from fsbridge import asking
from fsbridge.errors import FsbridgeError, NotFound
from fsbridge.store import BATCH_NAMES, Key, Member, Range, Stat, Store, check_limit, check_range
from fsbridge.store.local import descriptors
from fsbridge.store.local.descriptors import LIST, LOOK, OpenBeneath, OpenPath, named, open_beneath
from fsbridge.store.local.files import LocalFiles, LocalObject, Special
from fsbridge.store.local.status import MountPoints, identity, is_other, known_status, member_of, stat_of
from fsbridge.threads.workers import HungMembers

log = logging.getLogger(__name__)

_Refused: TypeAlias = list[FsbridgeError | OSError]

_DAMAGED = frozenset((errno.EIO, errno.EUCLEAN, errno.EBADMSG))
"""Errors of file systems for an inode that they cannot read, or whose checksum is wrong."""
DAMAGED_MEMBERS = 64
"""Most members with damaged inodes that a listing tolerates: a bad sector holds 16 inodes or fewer. A dead server fails for
every member, each after a timeout of its own, so a listing must give up soon."""


_UNKNOWN = Stat(False, 0, 0, None, settled=False)
"""The stat shown for a damaged member: opening it tells the error."""


class LocalStore(Store):
    """`store.Store` over the directory `root`. For the other parameters see `LocalFiles`."""

    def __init__(
        self,
        root: str,
        allowed: Sequence[str] = (),
        everybody: bool = False,
        immutable: bool = False,
        open_path: OpenPath = os.open,
        beneath: OpenBeneath = open_beneath,
        check_root: Callable[[], None] | None = None,
        resolve: Callable[[str], str] = os.path.realpath,
    ) -> None:
        self._files = LocalFiles(root, allowed, everybody, immutable, open_path, beneath, check_root, resolve)
        self._root = self._files.root
        self._links: HungMembers[Sequence[Member]] = HungMembers()
        self._mounts = MountPoints()

    def describe(self, key: Key) -> str:
        """Return `key` as a path for a message."""
        return self._files.describe(key)

    def close(self) -> None:
        """Close the root; every later call raises Stale."""
        self._files.close()

    def open_object(self, key: Key) -> LocalObject:
        """Open the file for reading."""
        fd, status = self._files.open_file(key)
        return LocalObject(self._files, key, fd, status)

    def stat(self, key: Key, read: Range | None = None) -> Stat:
        """Return kind and version of what `key` names, links followed."""
        if not asking.context.may_wait and self._files.everybody is None and not self._files.immutable:
            return stat_of(self._files.regular(key, descriptors.status_cached(self._root.now().fd, key or ".")))
        fd = self._files.open(key, LOOK)
        try:
            return stat_of(self._files.regular(key, descriptors.look(fd)))
        except OSError as error:
            raise named(error, self.describe(key)) from None
        finally:
            descriptors.close(fd)

    def check_access(self, key: Key) -> None:
        """Raise AccessDenied if the mount is for all users and some may not read the object at `key`."""
        if self._files.everybody is not None:
            os.close(self._files.open_file(key)[0])

    def commit(self, key: Key) -> Hashable:
        """Return which directory is at `key` now: another one if a rename or a link has put a whole tree in its place."""
        return identity(self.stat(key))

    def read(self, key: Key, limit: int) -> tuple[bytes, Stat]:
        """Return the whole object, with the version that it had both before and after reading."""
        fd, status = self._files.open_file(key)
        try:
            check_limit(self, key, status.st_size, limit)
            data = self._files.read_open(fd, key, 0, status.st_size)
            return data, self._files.unchanged(fd, key, status)
        finally:
            os.close(fd)

    def read_range(self, key: Key, start: int, length: int) -> tuple[bytes, Stat]:
        """Return exactly `length` bytes from `start`; a negative `start` counts from the end."""
        fd, status = self._files.open_file(key)
        try:
            first = start if start >= 0 else status.st_size + start
            check_range(self, key, first, length, status.st_size)
            return self._files.read_open(fd, key, first, length), self._files.unchanged(fd, key, status)
        finally:
            os.close(fd)

    def list(self, key: Key, stats: bool = False) -> Iterator[Member]:
        """Yield the members in the file system's own order, which is stable while the directory does not change."""
        asking.before_waiting()
        fd = self._files.open(key, LIST)
        refused: _Refused = []
        links: dict[Key, os.stat_result] = {}
        mounts = self._mounts.points_below(self._root.path) if stats else frozenset()
        try:
            with os.scandir(fd) as members:
                for member in members:
                    if mounts and self._files.describe(key / member.name) in mounts:
                        status = known_status(fd, member.name)
                        yield Member(member.name, stat_module.S_ISDIR(status.st_mode), stat_of(status))
                        continue
                    try:
                        if member.is_symlink():
                            links[key / member.name] = member.stat(follow_symlinks=False)
                        elif (entry := member_of(member, stats)) is not None:
                            yield entry
                    except FileNotFoundError:
                        continue  # removed while we list
                    except OSError as error:
                        self._allow_damaged(key / member.name, error, refused)
                        yield Member(member.name, False, _UNKNOWN, True)
                    if len(links) == BATCH_NAMES:
                        yield from self._follow_links(links, refused)
                        links = {}
            if links:
                yield from self._follow_links(links, refused)
        except OSError as error:
            raise named(error, self.describe(key)) from None
        finally:
            os.close(fd)
            _warn(refused)

    def _allow_damaged(self, key: Key, error: OSError, refused: _Refused) -> None:
        """Let a listing go on after the damaged member `key`; raise `error` if it has another cause, or after many."""
        if error.errno not in _DAMAGED or sum(isinstance(damage, OSError) for damage in refused) >= DAMAGED_MEMBERS:
            raise error
        refused.append(named(error, self.describe(key)))

    def names(self, key: Key, cuts: Sequence[str] = ()) -> Iterator[Sequence[str]]:
        """Yield the names that the directory holds, without following links."""
        asking.before_waiting()
        fd = self._files.open(key, LIST)
        try:
            with os.scandir(fd) as members:
                while batch := list(islice(members, BATCH_NAMES)):
                    yield [member.name for member in batch if member.is_file(follow_symlinks=False) or is_other(member)]
        except OSError as error:
            raise named(error, self.describe(key)) from None
        finally:
            os.close(fd)

    def stats(self, key: Key, names: Iterable[str]) -> dict[str, Stat | None]:
        """See `Store.stats`. Links and damaged members are left out. It takes a third of the time of `stat`."""
        asking.before_waiting()
        try:
            fd = self._files.open(key, LOOK | os.O_DIRECTORY)
        except NotFound:
            return dict.fromkeys(names)
        by_name: dict[str, Stat | None] = {}
        try:
            for name in names:
                try:
                    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                except FileNotFoundError:
                    by_name[name] = None
                except OSError:
                    continue
                else:
                    if stat_module.S_ISREG(status.st_mode):
                        by_name[name] = stat_of(status)
            # Another directory may have taken its place, and its members may have been removed since.
            return by_name if identity(self.stat(key)) == identity(stat_of(os.fstat(fd))) else {}
        finally:
            os.close(fd)

    def left_out(self, key: Key) -> Iterator[str]:
        """Describe FIFOs, sockets and devices, and links to them."""
        fd = self._files.open(key, LIST)
        try:
            with os.scandir(fd) as members:
                names = sorted(member.name for member in members if member_of(member, False) is None)
        except OSError as error:
            raise named(error, self.describe(key)) from None
        finally:
            os.close(fd)
        for name in names:
            try:
                self.stat(key / name)
            except Special as error:
                yield str(error)
            except (FsbridgeError, OSError):
                continue  # it is listed, and opening it reports the error

    def _follow_links(self, links: Mapping[Key, os.stat_result], refused: _Refused) -> Iterator[Member]:
        """Yield what links lead to. A link to a dead server is listed as a directory; looking it up raises the error."""

        def look(key: Key) -> Sequence[Member]:
            try:
                stat = self.stat(key)
            except Special:
                return ()
            except (FsbridgeError, OSError) as error:
                if isinstance(error, FsbridgeError):
                    refused.append(error)
                return (Member(key.name, False, stat_of(links[key]), True),)
            return (Member(key.name, stat.is_dir, stat),)

        for key, members in zip(links, self._links.answers(list(links), look, lambda _: False), strict=True):
            if members is None:
                yield Member(key.name, True, stat_of(links[key])._replace(is_dir=True))
            else:
                yield from members

    def mtimes(self, key: Key, names: Sequence[str]) -> Sequence[int | None]:
        """Return mtimes, by one stat of each member. The directory is opened only once; links are followed like any path."""
        asking.before_waiting()
        fd = self._files.open(key, LOOK | os.O_DIRECTORY)
        times: list[int | None] = []
        refused: _Refused = []
        try:
            for name in names:
                try:
                    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                except FileNotFoundError:
                    times.append(None)
                    continue
                except OSError as error:
                    self._allow_damaged(key / name, error, refused)
                    times.append(_UNKNOWN.mtime_ns)
                    continue
                if stat_module.S_ISLNK(status.st_mode):
                    shown = self._stat_link(key / name, status, refused)
                    times.append(None if shown is None else shown.mtime_ns)
                else:
                    times.append(status.st_mtime_ns)
        except OSError as error:
            raise named(error, self.describe(key)) from None
        finally:
            os.close(fd)
            _warn(refused)
        return times

    def _stat_link(self, key: Key, status: os.stat_result, refused: _Refused) -> Stat | None:
        """Return the stat that a link is listed with; None if it leads to a FIFO, socket or device."""
        try:
            return self.stat(key)
        except Special:
            return None
        except FsbridgeError as error:
            refused.append(error)
            return stat_of(status)  # as a file, so that opening it tells what is wrong with the link


def _warn(refused: _Refused) -> None:
    """Log one line for all members of a listing that could not be followed or read."""
    if refused:
        more = f" (and {len(refused) - 1} more here)" if len(refused) > 1 else ""
        log.warning("%s%s", refused[0], more)
