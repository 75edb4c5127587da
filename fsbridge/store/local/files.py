"""The files beneath a directory: every key is opened beneath the root (P4), and only what is permitted is opened.

Symbolic links are followed while they stay beneath the root or in a directory the user has allowed. A link that leads
nowhere is not "absent": a chunk whose content was never fetched (git-annex, DataLad) must not read as fill values.
FIFOs, sockets and devices count as absent.

`Everybody` is the rule of `--allow-other`: what all users may read is shown, anything else is refused, for root too. An
object may be opened if owner, group and all others may read it (`r`), and may list and enter (`r` and `x`) every
directory that leads to it from the root of its store; a link's target counts in the same way. No entry of an access control
list may permit less. So it does not matter which user asks. Lists of NFS 4 and SMB are not read: their servers show in the
mode what they permit. Not here: the questions of a store (`__init__.py`).
"""

from __future__ import annotations

import errno
import logging
import os
import stat as stat_module
import struct
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

from fsbridge import asking
from fsbridge.config import Config
from fsbridge.errors import AccessDenied, CorruptData, IsADirectory, NotFound, Stale
from fsbridge.lru import LRU
from fsbridge.store import Key, Stat, check_limit, check_range
from fsbridge.store.local import descriptors
from fsbridge.store.local.descriptors import (
    LOOK,
    STEP,
    OpenBeneath,
    OpenedRoot,
    OpenPath,
    Root,
    named,
    open_beneath,
    translate,
    walk_beneath,
)
from fsbridge.store.local.status import Status, same, stat_of

READ, LIST = 0o444, 0o555
"""The bits that all users need on a file, and on a directory."""

_ACL = "system.posix_acl_access"
_HEAD, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_ACL_VERSION = 2
_NO_LIST = frozenset((errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS))

REMEMBERED_LISTS = 4096
"""Most objects, with their ctime, whose access control lists are remembered to permit enough."""


class Everybody:
    """Decides what all users may open. Thread-safe. Only access control lists of unchanged objects are remembered."""

    def __init__(self) -> None:
        self._permitted: LRU[Hashable, bool] = LRU(REMEMBERED_LISTS)

    def check(self, fd: int) -> None:
        """Raise AccessDenied unless all users may read the open file, or list and enter the open directory."""
        status = descriptors.look(fd)
        wanted = LIST if stat_module.S_ISDIR(status.st_mode) else READ
        if status.st_mode & wanted != wanted:
            raise _denied(fd, f"its mode is {stat_module.S_IMODE(status.st_mode):04o}", wanted)
        if not self._list_permits(fd, status, wanted):
            raise _denied(fd, "its access control list lets some users do less", wanted)

    def open_beneath(self, root: int, path: str, flags: int) -> int:
        """Open `path` below the directory `root`, if all users may list and enter each directory on the way.

        Errors as in `descriptors.open_beneath`; in a thread that may not wait, as in `descriptors.open_cached`.
        """
        if asking.context.may_wait:
            return walk_beneath(root, path, flags, self.check)
        self.check(root)
        above, _, name = path.rpartition("/")
        directory = root
        try:
            for part in above.split("/") if above else ():
                entered = descriptors.open_cached(directory, part, STEP)
                if directory != root:
                    descriptors.close(directory)
                directory = entered
                self.check(directory)
            return descriptors.open_cached(directory, name or ".", flags)
        finally:
            if directory != root:
                descriptors.close(directory)

    def _list_permits(self, fd: int, status: Status, wanted: int) -> bool:
        key = (status.st_dev, status.st_ino, status.st_ctime_ns, wanted)
        if self._permitted.get(key):
            return True
        try:
            data = os.getxattr(f"/proc/self/fd/{fd}", _ACL)  # by path: an O_PATH descriptor gives no attributes
        except OSError as error:
            permits = error.errno in _NO_LIST
        else:
            permits = list_permits(data, wanted & 0o7)
        if permits and stat_of(status).settled:
            self._permitted.put(key, True)
        return permits

    def check_path(self, path: str, bases: Sequence[str]) -> None:
        """Raise AccessDenied unless all users may read what is at `path`.

        Directories on the way are checked from the first of `bases` that `path` is in, also those above a link. A path in
        none of them is the mounted file itself, for which no directory is checked.
        """
        real = os.path.realpath(path)
        base = _base_of(path, bases)
        if real != path and base is not None:
            try:
                os.close(self._open_below(path, base))
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
        fd = self._open_below(real, _base_of(real, map(os.path.realpath, bases)))
        try:
            self.check(fd)
        finally:
            os.close(fd)

    def _open_below(self, path: str, base: str | None) -> int:
        if base is None:
            return os.open(path, LOOK)
        root = os.open(base, LOOK)
        try:
            return self.open_beneath(root, os.path.relpath(path, base), LOOK)
        finally:
            os.close(root)


def file_check(config: Config) -> Callable[[str], None] | None:
    """Return a check that refuses paths that some users may not read; None if the mount is not for all users.

    The check is for files that are in no store.
    """
    if not config.for_everybody:
        return None
    everybody, bases = Everybody(), tuple(map(os.path.abspath, (config.source, *config.external_folders)))
    return lambda path: everybody.check_path(path, bases)


def root_check(path: str, config: Config) -> Callable[[], None] | None:
    """Return a check of the directory `path`, the root of a store, and of those above it that are part of the mount.

    None if the mount is not for all users, or if nothing above is part of it, because the store is the mounted one.
    """
    check = file_check(config)
    return None if check is None or path == config.source else partial(check, os.path.abspath(path))


def path_opener(config: Config, beneath: OpenBeneath = open_beneath) -> OpenPath:
    """Return an `os.open` for what is opened by its absolute path, such as the files in a collection.

    What is below SOURCE, or below a directory of `--allow-external`, is opened beneath it (by `beneath`), however links are
    switched meanwhile. Raises AccessDenied if they lead out. A path that is below none of them is one that the user named.
    """
    bases = tuple(map(os.path.abspath, (config.source, *config.external_folders)))

    def open_path(path: str, flags: int) -> int:
        if _base_of(path, bases) is None:
            return os.open(path, flags)
        real = path
        for _ in range(LINK_ATTEMPTS):
            try:
                real = os.path.realpath(path)
            except OSError:  # EINVAL: a file has replaced the link
                continue
            base = _base_of(real, map(os.path.realpath, bases))
            if base is None:
                break
            root = os.open(base, LOOK | os.O_DIRECTORY)
            try:
                return beneath(root, os.path.relpath(real, base), flags)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise named(error, path) from None
            finally:
                os.close(root)
        folder = os.path.dirname(real)
        raise AccessDenied(f"{path}: a link out of the store, to {real}; --allow-external {folder} permits it")

    return open_path


def _base_of(path: str, bases: Iterable[str]) -> str | None:
    """Return the first of `bases` that `path` is below."""
    return next((base for base in bases if path.startswith(base.rstrip("/") + "/")), None)


def list_permits(data: bytes, wanted: int) -> bool:
    """True if each entry of an access control list, as Linux stores it, permits what is wanted; False if it is damaged."""
    if len(data) < _HEAD.size or (len(data) - _HEAD.size) % _ENTRY.size or _HEAD.unpack_from(data)[0] != _ACL_VERSION:
        return False
    return all(permits & wanted == wanted for _, permits, _ in _ENTRY.iter_unpack(data[_HEAD.size :]))


def _denied(fd: int, why: str, wanted: int) -> AccessDenied:
    path = os.readlink(f"/proc/self/fd/{fd}")
    right = "a+rx" if wanted == LIST else "a+r"
    return AccessDenied(
        f"{path}: not every user may read it: {why}; run chmod {right}, or mount with --umask and decide who reads the mount"
    )


log = logging.getLogger(__name__)

OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # NONBLOCK: a FIFO in the store must not block the open

LINK_ATTEMPTS = 5
"""Attempts to follow a path while links on it are being replaced."""
LOGGED_SPECIALS = 1000


class Special(NotFound):
    """A FIFO, socket or device."""


class LocalFiles:
    """The files and directories beneath `root`, with links out of it only into the directories `allowed`.

    `everybody` refuses what some users may not read. `immutable`: as long as objects are found without
    waiting, nothing checks whether the root has been replaced.
    """

    def __init__(
        self,
        root: str,
        allowed: Sequence[str],
        everybody: bool,
        immutable: bool,
        open_path: OpenPath = os.open,
        beneath: OpenBeneath = open_beneath,
        check_root: Callable[[], None] | None = None,
        resolve: Callable[[str], str] = os.path.realpath,
    ) -> None:
        """`open_path` opens the root, and `beneath` what lies in it. `check_root`: see `root_check`.

        `resolve` returns where a path leads to when all its links are followed.
        """
        self.root = Root(root, open_path)
        self._beneath = beneath
        self._check_root = check_root
        self._resolve = resolve
        self.everybody = Everybody() if everybody else None
        self.immutable = immutable
        self._allowed = tuple(Root(path) for path in allowed)
        self._specials: set[str] = set()

    def close(self) -> None:
        """Close the root; every later call raises Stale."""
        for root in (self.root, *self._allowed):
            root.close()

    def describe(self, key: Key) -> str:
        """Return `key` as a path for a message."""
        return f"{self.root.path.rstrip('/')}/{key}" if key else self.root.path

    def open_file(self, key: Key) -> tuple[int, Status]:
        """Return a descriptor of the file at `key`, which the caller closes, and its status."""
        fd = self.open(key, OPEN)
        try:
            status = descriptors.look(fd)
        except OSError as error:  # such as ESTALE from a server that has lost it
            descriptors.close(fd)
            raise named(error, self.describe(key)) from None
        if stat_module.S_ISREG(status.st_mode):
            return fd, status
        os.close(fd)
        if stat_module.S_ISDIR(status.st_mode):
            raise IsADirectory(f"{self.describe(key)}: a directory where a file was expected")
        raise self._special(key)

    def regular(self, key: Key, status: Status) -> Status:
        """Return `status` if it is that of a file or a directory; else raise Special."""
        if status.st_mode & 0o170000 in (stat_module.S_IFREG, stat_module.S_IFDIR):
            return status
        raise self._special(key)

    def read_open(self, fd: int, key: Key, start: int, length: int) -> bytes:
        """Return exactly these bytes of an open file; Stale if it has become shorter since it was looked at."""
        if not asking.context.may_wait:
            return descriptors.read_cached(fd, start, length)
        try:
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
        except OSError as error:
            raise named(error, self.describe(key)) from None
        return b"".join(parts)

    def unchanged(self, fd: int, key: Key, before: Status) -> Stat:
        """Return an open file's stat; Stale if it is no longer as `before`."""
        try:
            after = descriptors.look(fd)
        except OSError as error:
            raise named(error, self.describe(key)) from None
        if not same(before, after):
            raise Stale(f"{self.describe(key)}: changed while it was read")
        return stat_of(after)

    def open(self, key: Key, flags: int) -> int:
        """Return a descriptor of what `key` leads to, which the caller closes.

        `O_PATH` alone gives a descriptor for a stat, even of an object that some users may not read, if all users may enter
        its directory.
        """
        fd = self._open(key, flags)
        if self.everybody is not None and flags & (os.O_PATH | os.O_DIRECTORY) != os.O_PATH:
            try:
                self.everybody.check(fd)
            except BaseException:
                descriptors.close(fd)
                raise
        return fd

    def _open(self, key: Key, flags: int) -> int:
        if self.immutable and not asking.context.may_wait:
            with suppress(NotFound):  # after NotFound the root must be checked: the whole store may be gone
                return self._open_beneath(self.root.near(), key, flags)
        for _ in range(LINK_ATTEMPTS):
            root = self.root.now()
            if not asking.context.may_wait:
                return self._open_beneath(root, key, flags)
            try:
                return self._open_beneath(root, key, flags)
            except (FileNotFoundError, NotADirectoryError) as error:
                if self.root.now() is not root:
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
        raise Stale(f"{self.describe(key)}: a link on the path changed each time that it was followed")

    def _open_beneath(self, root: OpenedRoot, path: str, flags: int) -> int:
        """Open `path` beneath a root. Raises OSError; in a thread that may not wait, WouldWait or NotFound."""
        if self._check_root is not None:
            asking.before_waiting()
            self._check_root()
        if self.everybody is not None:
            return self.everybody.open_beneath(root.fd, path, flags)
        if not asking.context.may_wait:
            return descriptors.open_cached(root.fd, path or ".", flags)
        return self._beneath(root.fd, path or ".", flags)

    def _open_link(self, root: OpenedRoot, key: Key, flags: int) -> int | None:
        """Open the target of an absolute link, or of one that leads out of the root; None if the link has been replaced."""
        try:
            target = self._resolve(os.path.join(root.path, key))
        except OSError:  # EINVAL: a file has replaced the link
            return None
        for directory in chain((root,), (allowed.now() for allowed in self._allowed)):
            if target == directory.path or target.startswith(directory.path.rstrip("/") + "/"):
                try:
                    return self._open_beneath(directory, os.path.relpath(target, directory.path), flags)
                except (FileNotFoundError, NotADirectoryError):
                    self._refuse_dangling(root, key)
                    raise NotFound(f"{self.describe(key)}: not there") from None
                except OSError as error:
                    if error.errno == errno.EXDEV:
                        return None
                    raise translate(error, self.describe(key)) from None
        raise AccessDenied(f"{self.describe(key)}: a link out of the store, to {target}; --allow-external DIR permits it")

    def _refuse_dangling(self, root: OpenedRoot, key: Key) -> None:
        """Raise CorruptData if `key` is missing because a link on the way leads to nothing."""
        while key and not os.path.lexists(os.path.join(root.path, key)):
            key = key.parent
        path = os.path.join(root.path, key)
        if key and os.path.islink(path) and not os.path.exists(path):
            raise CorruptData(f"{self.describe(key)}: a link to something that is not there")

    def _special(self, key: Key) -> Special:
        """Return the error for a FIFO, socket or device; each is logged once, up to a thousand in all."""
        text = f"{self.describe(key)}: a FIFO, socket or device, which fsbridge leaves alone"
        if key not in self._specials and len(self._specials) < LOGGED_SPECIALS:
            self._specials.add(key)
            log.warning("%s", text)
        return Special(text)


class LocalObject:
    """An open file of a store (`store.OpenedObject`). It owns the descriptor and closes it."""

    __slots__ = ("_at_once", "_before", "_fd", "_files", "_key", "stat")

    def __init__(self, files: LocalFiles, key: Key, fd: int, status: Status) -> None:
        self._files = files
        self._key = key
        self._fd = fd
        self._before = status
        self._at_once = not asking.context.may_wait  # true for a local file system, where fstat never waits
        self.stat = stat_of(status)

    def read(self, limit: int) -> bytes:
        size = self._before.st_size
        check_limit(self._files, self._key, size, limit)
        return self._read(0, size)

    def read_range(self, start: int, length: int) -> bytes:
        check_range(self._files, self._key, start, length, self._before.st_size)
        return self._read(start, length)

    def _read(self, start: int, length: int) -> bytes:
        files, key = self._files, self._key
        data = files.read_open(self._fd, key, start, length)
        if not same(self._before, descriptors.look(self._fd, self._at_once)):
            raise Stale(f"{files.describe(key)}: changed while it was read")
        return data

    def close(self) -> None:
        descriptors.close(self._fd, self._at_once)
