"""The rule of `--allow-other`: what all users may read is shown, anything else is refused, for root too.

An object may be opened if owner, group and all others may read it (`r`), and may list and enter (`r` and `x`) every
directory that leads to it from the root of its store; a link's target counts in the same way. No entry of an access control
list may permit less. So it does not matter which user asks. Lists of NFS 4 and SMB are not read:
their servers show in the mode what they permit. Not here: links out of the store (`files.py`).
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Hashable, Sequence

from fsbridge import asking
from fsbridge.config import Config
from fsbridge.errors import AccessDenied
from fsbridge.lru import LRU
from fsbridge.store.local import descriptors
from fsbridge.store.local.descriptors import STEP, walk_beneath
from fsbridge.store.local.status import Status, stat_of

READ, LIST = 0o444, 0o555
"""The bits that all users need on a file, and on a directory."""

_LOOK = os.O_PATH | os.O_CLOEXEC
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
        wanted = LIST if stat.S_ISDIR(status.st_mode) else READ
        if status.st_mode & wanted != wanted:
            raise _denied(fd, f"its mode is {stat.S_IMODE(status.st_mode):04o}", wanted)
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

        Directories on the way are checked from the first of `bases` that `path` is in. A path in none of them is the mounted
        file itself, for which no directory is checked.
        """
        path = os.path.realpath(path)
        base = next((base for base in map(os.path.realpath, bases) if path.startswith(base.rstrip("/") + "/")), None)
        if base is None:
            fd = os.open(path, _LOOK)
        else:
            root = os.open(base, _LOOK)
            try:
                fd = self.open_beneath(root, os.path.relpath(path, base), _LOOK)
            finally:
                os.close(root)
        try:
            self.check(fd)
        finally:
            os.close(fd)


def file_check(config: Config) -> Callable[[str], None] | None:
    """Return a check that refuses paths that some users may not read; None if the mount is not for all users.

    The check is for files that are in no store.
    """
    if not config.for_everybody:
        return None
    everybody, bases = Everybody(), (config.source, *config.external_folders)
    return lambda path: everybody.check_path(path, bases)


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
