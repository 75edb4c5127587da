"""A data file, versions of it, exact reads, and whether it is still the same: on local disks here, elsewhere in `remote.py`.

Not here: HDF5.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Hashable, Sequence
from stat import S_ISREG
from typing import Any, Protocol, TypeVar

import numpy as np

from fsbridge import confinement
from fsbridge.children.client import Supply
from fsbridge.errors import AccessDenied, CorruptData, IsADirectory, NotFound, Stale, WouldWait
from fsbridge.formats.hdf5 import beside
from fsbridge.store import Stat, nowait
from fsbridge.store.local import cached
from fsbridge.store.local.acl import stat_within_list
from fsbridge.store.local.status import SECOND_NS, stat_of

Result = TypeVar("Result")

_LASTING = (errno.ELOOP, errno.ENAMETOOLONG)
"""Errors of a path that stay as long as it does."""


class DataVersion(Protocol):
    """One version of a data file."""

    stat: Stat

    @property
    def identity(self) -> Hashable:
        """What a child that may open the file may open; it differs when another file has taken its place."""

    @property
    def opening(self) -> dict[str, Any]:
        """What a child has to know to open the file, beside its name."""

    @property
    def supply(self) -> Supply | None:
        """Gives a child what it asks for while it answers; None: it reads the file itself."""

    @property
    def unchanged(self) -> bool:
        """Whether nobody is known to have written to the file since it was opened."""

    def check(self) -> None:
        """Stale when the file has been written to since it was opened."""

    def read(self, address: int, size: int) -> bytes | bytearray | memoryview:
        """Exactly `size` bytes at `address` of this version; CorruptData beyond the end, Stale if it changed."""

    def read_into(self, address: int, out: memoryview) -> None:
        """As `read`, into `out`."""

    def fetch(self, address: int, size: int) -> None:
        """Have bytes sent that will be read, if the file is far away."""


class DataFile(Protocol):
    """A data file, which may be replaced. `name`: its path or URL, one for each file. `far`: reading it takes requests."""

    name: str
    far: bool

    @property
    def readable(self) -> Sequence[str]:
        """What a child has to open to read it."""

    def look(self) -> Stat:
        """What is there now; NotFound, AccessDenied, or what else keeps it from being read."""

    def open(self, seen: Stat) -> DataVersion:
        """The version that is there now; `seen`: what `look` has just said."""

    def beside(self, name: str) -> str:
        """The name of the file that a link of this one calls `name`."""

    def is_within(self, name: str, folders: Sequence[str]) -> bool:
        """Whether the file `name` lies in one of `folders`, and can be read at all."""

    def permission(self, name: str) -> str:
        """What permits reading the file `name`, which is not within the allowed folders."""

    def other(self, name: str, folders: Sequence[str]) -> DataFile:
        """The file `name`, as long as it lies in one of `folders`."""

    def stats(self, names: Sequence[str]) -> Sequence[Stat | None]:
        """What is there now of files that hold data of this one; None for one that is not there."""


class LocalFile:
    """A file by its path, which may lead through symbolic links that are switched."""

    far = False

    def __init__(self, path: str, within: Sequence[str] | None = None) -> None:
        """`within`: folders that it has to lie in, wherever links lead."""
        self.name = os.path.abspath(path)
        self._within = within
        self._near = False  # whether looking at it takes no waiting once it is known

    @property
    def readable(self) -> Sequence[str]:
        return (os.path.realpath(self.name),) if self._within is None else ()

    def look(self) -> Stat:
        if not nowait.mode.waits:
            if not self._near:
                raise WouldWait
            return stat_of(cached.look_cached(self.name))
        return stat_of(translated(self.name, lambda: os.stat(self.name)))

    def open(self, seen: Stat) -> FileVersion:
        found = FileVersion(self.name)
        if self._within is not None:
            path = os.readlink(f"/proc/self/fd/{found.fd}")  # links may have been switched since they were looked at
            if not self.is_within(path, self._within):
                raise AccessDenied(f"{self.name}: leads to {path}: {self.permission(path)}")
        self._near = cached.is_local(found.fd)
        return found

    def beside(self, name: str) -> str:
        tried = beside.places(beside.folders(self.name), name)
        return beside.without_links(tried[beside.first(tried) or 0])

    def is_within(self, name: str, folders: Sequence[str]) -> bool:
        name = os.path.realpath(name)
        return any(name.startswith(os.path.realpath(folder).rstrip("/") + "/") for folder in folders)

    def permission(self, name: str) -> str:
        return f"--allow-external {os.path.dirname(os.path.realpath(name))} permits reading it"

    def other(self, name: str, folders: Sequence[str]) -> LocalFile:
        return LocalFile(name, folders)

    def stats(self, names: Sequence[str]) -> list[Stat | None]:
        return [_stat_or_none(name) for name in names]


class FileVersion:
    """A descriptor of one version of the file, closed when the last reader lets go of it."""

    __slots__ = ("fd", "identity", "name", "stat")

    def __init__(self, path: str) -> None:
        self.name = path
        self.fd = -1
        self.fd = translated(path, lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        found = os.fstat(self.fd)
        if not S_ISREG(found.st_mode):
            raise IsADirectory(f"{path}: not a file")
        self.stat = stat_within_list(self.fd, stat_of(found))
        self.identity = (found.st_dev, found.st_ino)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    @property
    def opening(self) -> dict[str, Any]:
        return {"path": beside.without_links(self.name), "device": self.identity[0], "inode": self.identity[1]}

    @property
    def supply(self) -> None:
        return None

    @property
    def unchanged(self) -> bool:
        return stat_of(os.fstat(self.fd)).version == self.stat.version

    def check(self) -> None:
        """Stale when the file has been written to since it was opened."""
        if not self.unchanged:
            raise Stale(f"{self.name}: changed while it was read")

    def read(self, address: int, size: int) -> memoryview:
        """Exactly `size` bytes at `address` of this version; CorruptData beyond the end, Stale if it changed."""
        self._inside(address, size)
        data = np.empty(size, np.uint8).data
        self.read_into(address, data)
        return data

    def read_into(self, address: int, out: memoryview) -> None:
        """As `read`, into `out`."""
        self._inside(address, len(out))
        if not nowait.mode.waits:
            out[:] = cached.read_cached(self.fd, address, len(out))
            out = out[:0]
        while out:
            try:
                got = os.preadv(self.fd, [out], address)
            except OSError as error:  # of a failing disk
                error.filename = self.name
                raise
            if not got:
                self.check()
                raise CorruptData(f"{self.name}: the file ends at {address}")
            out, address = out[got:], address + got
        self.check()

    def fetch(self, address: int, size: int) -> None:
        """Nothing is nearer than the file itself."""

    def _inside(self, address: int, size: int) -> None:
        if address + size > self.stat.size:
            raise CorruptData(f"bytes {address} to {address + size} of a file of {self.stat.size}: truncated?")


def lasting(stat: Stat) -> bool:
    """Whether a change after this look shows. On a file system of whole seconds one within the same second does not.

    Finer clocks tick every few milliseconds, in which nobody reads a file and rewrites it.
    """
    return stat.settled or stat.mtime_ns % SECOND_NS != 0


def _stat_or_none(path: str) -> Stat | None:
    try:
        return translated(path, lambda: stat_within_list(path, stat_of(os.stat(path))))
    except NotFound:
        return None


def translated(path: str, call: Callable[[], Result]) -> Result:
    """`call`, with an OSError that says something about the file as one of ours.

    Any other says that it cannot be looked at now: as damage it would leave a member out of what is made meanwhile.
    """
    try:
        return call()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{path}: no such file") from None
    except PermissionError:
        confinement.refused()
        raise AccessDenied(f"{path}: permission denied") from None
    except OSError as error:
        if error.errno in _LASTING:
            raise CorruptData(f"{path}: {error.strerror}") from None
        error.filename = path
        raise
