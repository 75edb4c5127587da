"""The directory of a local store: the one that is at its path now. Not here: anything beneath it (`__init__.py`)."""

from __future__ import annotations

import errno
import logging
import os
import threading

from fsbridge import asking, confinement
from fsbridge.asking import WouldWait
from fsbridge.errors import AccessDenied, NameTooLong, NotFound, Stale
from fsbridge.store.local import descriptors
from fsbridge.store.local.status import Status

log = logging.getLogger(__name__)

LOOK = os.O_PATH | os.O_CLOEXEC
PATH_BYTES = 4096
"""Most bytes of a path in Linux, including the NUL at its end."""
LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class OpenedRoot:
    """A directory held open; `path` is its real path. Closed when the last call that uses it has ended."""

    __slots__ = ("fd", "identity", "is_local", "path")

    def __init__(self, path: str) -> None:
        self.fd = -1
        self.fd = os.open(path, LOOK | os.O_DIRECTORY)
        self.is_local = descriptors.is_local(self.fd)
        self.identity = _identity(os.fstat(self.fd))
        self.path = os.path.realpath(path)

    def is_empty(self) -> bool:
        """True if the directory is known to be empty; False if it may not be listed."""
        try:
            fd = os.open(".", LIST, dir_fd=self.fd)
        except PermissionError:
            confinement.refused()
            return False
        try:
            with os.scandir(fd) as members:
                return next(members, None) is None
        finally:
            os.close(fd)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class Root:
    """The directory that is at `path` at each call. It is held open, so that its inode number is not reused."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._lock = threading.Lock()
        self._opened: OpenedRoot | None = OpenedRoot(self._path)
        self.path = self._opened.path

    def now(self) -> OpenedRoot:
        """Return the directory that is there now; Stale if there is none, or a new one that is still empty."""
        opened = self._opened
        if not asking.context.may_wait:
            return opened if opened is not None and asking.context.root is opened else self._now_cached()
        try:
            if opened is not None and _identity(os.stat(self._path)) == opened.identity:
                return opened
            return self._renew()
        except (FileNotFoundError, NotADirectoryError):
            raise Stale(f"{self._path}: no longer there") from None
        except OSError as error:
            raise translate(error, self._path) from None

    def near(self) -> OpenedRoot:
        """Return the directory as it was last opened; WouldWait if its file system may keep a caller waiting."""
        opened = self._opened
        if opened is None or not opened.is_local:
            raise WouldWait
        return opened

    def _now_cached(self) -> OpenedRoot:
        """Return the present directory without waiting; its path is checked once in each `asking.without_waiting`."""
        opened = self.near()
        status = descriptors.look_cached(self._path)
        if (status.st_dev, status.st_ino) != opened.identity:
            raise WouldWait
        asking.context.root = opened
        return opened

    def _renew(self) -> OpenedRoot:
        with self._lock:
            old, new = self._opened, OpenedRoot(self._path)
            if old is None:
                raise Stale(f"{self._path}: closed")
            if new.identity == old.identity:
                return old
            if new.is_empty():
                raise Stale(f"{self._path}: an empty directory has taken its place")
            log.info("%s: another directory has taken its place", self._path)
            self._opened, self.path = new, new.path
            return new

    def close(self) -> None:
        """Give up the directory. It is closed when the last call that uses it has ended."""
        self._opened = None


def translate(error: OSError, place: str) -> Exception:
    """Return the error that a store's caller gets for an error of the operating system at `place`."""
    if error.errno in (errno.EPERM, errno.EACCES):
        confinement.refused()
        return AccessDenied(f"{place}: {error.strerror}")
    if error.errno == errno.ENAMETOOLONG:
        too_deep = len(os.fsencode(place)) >= PATH_BYTES  # the file may exist; in a shorter path a name is too long
        return (
            NameTooLong(f"{place}: the path is too long for Linux") if too_deep else NotFound(f"{place}: {error.strerror}")
        )
    if error.errno == errno.ELOOP:
        return AccessDenied(f"{place}: symbolic links lead in a circle")
    return error


def named(error: OSError, place: str) -> OSError:
    """Return `error` with `place` as its file name, because an error about a descriptor names no file."""
    error.filename = place
    return error


def _identity(status: Status) -> tuple[int, int]:
    return status.st_dev, status.st_ino
