"""A local data file, versions of it, exact reads, and whether it is unchanged.

`remote.py` has the same for remote stores.

Not here: HDF5.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from stat import S_ISREG
from typing import Any, Protocol, TypeVar

import numpy as np

from fsbridge import asking
from fsbridge.asking import WouldWait
from fsbridge.children.client import Supply
from fsbridge.errors import AccessDenied, CorruptData, IsADirectory, NotFound, Stale
from fsbridge.formats.hdf5 import file_search
from fsbridge.store import Stat
from fsbridge.store.local import descriptors
from fsbridge.store.local.descriptors import OpenPath
from fsbridge.store.local.files import OPEN
from fsbridge.store.local.status import SECOND_NS, stat_of

Result = TypeVar("Result")

_LASTING = (errno.ELOOP, errno.ENAMETOOLONG)
"""Errors of a path that last as long as the path."""


class DataVersion(Protocol):
    """One version of a data file."""

    stat: Stat

    @property
    def identity(self) -> Hashable:
        """The identity of the file. A child may open only this file, not another one that has replaced it."""

    @property
    def opening(self) -> dict[str, Any]:
        """Parameters, besides the name, with which a child opens the file."""

    @property
    def supply(self) -> Supply | None:
        """Answers a child's questions for bytes; None if the child reads the file itself."""

    @property
    def unchanged(self) -> bool:
        """False once the file is known to have been written to since it was opened."""

    def check(self) -> None:
        """Raise Stale if the file has been written to since it was opened."""

    def read(self, address: int, size: int) -> bytes | memoryview:
        """Return exactly `size` bytes at `address` of this version.

        Raises CorruptData beyond the end, Stale if it changed.
        """

    def read_into(self, address: int, out: memoryview) -> None:
        """Read as `read` does, into `out`."""

    def fetch(self, address: int, size: int) -> None:
        """Prefetch bytes, if the file is remote."""


class DataFile(Protocol):
    """A data file, which may be replaced. `name` is its path or URL. `is_remote`: reading it takes requests."""

    name: str
    is_remote: bool

    @property
    def readable(self) -> Sequence[str]:
        """Return the paths that a child must open to read the file."""

    def look(self) -> Stat:
        """Return what is there now. Raises NotFound, AccessDenied, or what else keeps it from being read."""

    def open(self, seen: Stat) -> DataVersion:
        """Return the current version. `seen` is what `look` has just returned."""

    def sibling_path(self, name: str) -> str:
        """Return the name of the file that a link of this one calls `name`."""

    def is_within(self, name: str, folders: Sequence[str]) -> bool:
        """Tell whether the file `name` lies in one of `folders` and can be read at all."""

    def permission(self, name: str) -> str:
        """Return which option permits reading the file `name` outside the allowed folders."""

    def other(self, name: str, folders: Sequence[str]) -> DataFile:
        """Return the file `name`, which must lie in one of `folders`."""

    def stats(self, names: Sequence[str]) -> Sequence[Stat | None]:
        """Return what is there now for files that hold data of this one; None for a missing file."""


class LocalDataFile:
    """A file by its path, which may lead through symbolic links that are switched."""

    is_remote = False

    def __init__(
        self,
        path: str,
        within: Sequence[str] | None = None,
        check: Callable[[str], None] | None = None,
        open_path: OpenPath = os.open,
        is_local: Callable[[int], bool] = descriptors.is_local,
    ) -> None:
        """`within`: folders that it must lie in, wherever links lead. `check`, `open_path`: see `store/local/files.py`.

        `is_local` tells whether looking at an open file takes no request of a network file system.
        """
        self.name = os.path.abspath(path)
        self._within = within
        self._check = check
        self._open_path = open_path
        self._is_local = is_local
        self._near = False  # whether looking at it never waits once it is known

    @property
    def readable(self) -> Sequence[str]:
        return (os.path.realpath(self.name),) if self._within is None else ()

    def look(self) -> Stat:
        if not asking.context.may_wait:
            if not self._near or self._check is not None:
                raise WouldWait
            return stat_of(descriptors.look_cached(self.name))
        return translate_errors(self.name, partial(_look, self.name, self._check))

    def open(self, seen: Stat) -> FileVersion:
        version = FileVersion(self.name, self._open_path)
        if self._within is not None:
            path = os.readlink(f"/proc/self/fd/{version.fd}")  # links may have been switched since they were looked at
            if not self.is_within(path, self._within):
                raise AccessDenied(f"{self.name}: leads to {path}: {self.permission(path)}")
        self._near = self._is_local(version.fd)
        return version

    def sibling_path(self, name: str) -> str:
        tried = file_search.places(file_search.folders(self.name), name)
        return file_search.without_links(tried[file_search.first(tried) or 0])

    def is_within(self, name: str, folders: Sequence[str]) -> bool:
        name = os.path.realpath(name)
        return any(name.startswith(os.path.realpath(folder).rstrip("/") + "/") for folder in folders)

    def permission(self, name: str) -> str:
        return f"--allow-external {os.path.dirname(os.path.realpath(name))} permits reading it"

    def other(self, name: str, folders: Sequence[str]) -> LocalDataFile:
        return LocalDataFile(name, folders, self._check, self._open_path, self._is_local)

    def stats(self, names: Sequence[str]) -> list[Stat | None]:
        return [_stat_or_none(name, self._check) for name in names]


class FileVersion:
    """A descriptor of one version of the file. It is closed when its last user drops this object."""

    __slots__ = ("fd", "identity", "name", "stat")

    def __init__(self, path: str, open_path: OpenPath = os.open) -> None:
        self.name = path
        self.fd = -1
        self.fd = translate_errors(path, lambda: open_path(path, OPEN))
        status = os.fstat(self.fd)
        if not S_ISREG(status.st_mode):
            raise IsADirectory(f"{path}: not a file")
        self.stat = stat_of(status)
        self.identity = (status.st_dev, status.st_ino)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    @property
    def opening(self) -> dict[str, Any]:
        return {"path": file_search.without_links(self.name), "device": self.identity[0], "inode": self.identity[1]}

    @property
    def supply(self) -> None:
        return None

    @property
    def unchanged(self) -> bool:
        return stat_of(os.fstat(self.fd)).version == self.stat.version

    def check(self) -> None:
        """Raise Stale if the file has been written to since it was opened."""
        if not self.unchanged:
            raise Stale(f"{self.name}: changed while it was read")

    def read(self, address: int, size: int) -> memoryview:
        """Return exactly `size` bytes at `address` of this version.

        Raises CorruptData beyond the end, Stale if it changed.
        """
        self._check_inside(address, size)
        data = np.empty(size, np.uint8).data
        self.read_into(address, data)
        return data

    def read_into(self, address: int, out: memoryview) -> None:
        """Read as `read` does, into `out`."""
        self._check_inside(address, len(out))
        if not asking.context.may_wait:
            out[:] = descriptors.read_cached(self.fd, address, len(out))
            out = out[:0]
        while out:
            try:
                got = os.preadv(self.fd, [out], address)
            except OSError as error:  # a failing disk
                error.filename = self.name
                raise
            if not got:
                self.check()
                raise CorruptData(f"{self.name}: the file ends at {address}")
            out, address = out[got:], address + got
        self.check()

    def fetch(self, address: int, size: int) -> None:
        """Do nothing, because the file itself is local."""

    def _check_inside(self, address: int, size: int) -> None:
        if address + size > self.stat.size:
            raise CorruptData(f"bytes {address} to {address + size} are not in a file of {self.stat.size}: is it truncated?")


def shows_later_changes(stat: Stat) -> bool:
    """Tell whether a later change will show in the stat.

    On a file system with whole seconds, a change within the same second does not show. Finer clocks tick every few
    milliseconds, too short to read a file and rewrite it.
    """
    return stat.settled or stat.mtime_ns % SECOND_NS != 0


def _look(path: str, check: Callable[[str], None] | None) -> Stat:
    if check is not None:
        check(path)
    return stat_of(os.stat(path))


def _stat_or_none(path: str, check: Callable[[str], None] | None) -> Stat | None:
    try:
        return translate_errors(path, partial(_look, path, check))
    except NotFound:
        return None


def translate_errors(path: str, call: Callable[[], Result]) -> Result:
    """Return `call()`, and translate an OSError that says something about the file into an error of fsbridge.

    Any other OSError means that the file cannot be read now. It is raised as it is: if it became CorruptData, a copy made
    meanwhile would leave the member out.
    """
    try:
        return call()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{path}: no such file") from None
    except PermissionError:
        raise AccessDenied(f"{path}: permission denied") from None
    except OSError as error:
        if error.errno in _LASTING:
            raise CorruptData(f"{path}: {error.strerror}") from None
        error.filename = path
        raise
