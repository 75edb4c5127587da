"""One version of a data file: a descriptor, exact reads, and whether the file is still that one. Not here: HDF5."""

from __future__ import annotations

import os
from collections.abc import Callable
from stat import S_ISREG
from typing import TypeVar

from fsbridge import confinement
from fsbridge.errors import AccessDenied, CorruptData, IsADirectory, NotFound, Stale
from fsbridge.store import Stat
from fsbridge.store.local import stat_of

Result = TypeVar("Result")


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
        self.stat = stat_of(found)
        self.identity = (found.st_dev, found.st_ino)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    @property
    def unchanged(self) -> bool:
        """Whether nobody has written to the file since it was opened."""
        return stat_of(os.fstat(self.fd)).version == self.stat.version

    def check(self) -> None:
        """Stale when the file has been written to since it was opened."""
        if not self.unchanged:
            raise Stale(f"{self.name}: changed while it was read")

    def read(self, address: int, size: int) -> bytearray:
        """Exactly `size` bytes at `address` of this version; CorruptData beyond the end, Stale if it changed."""
        self._inside(address, size)
        data = bytearray(size)
        self.read_into(address, memoryview(data))
        return data

    def read_into(self, address: int, out: memoryview) -> None:
        """As `read`, into `out`."""
        self._inside(address, len(out))
        while out:
            got = os.preadv(self.fd, [out], address)
            if not got:
                self.check()
                raise CorruptData(f"{self.name}: the file ends at {address}")
            out, address = out[got:], address + got
        self.check()

    def _inside(self, address: int, size: int) -> None:
        if address + size > self.stat.size:
            raise CorruptData(f"bytes {address} to {address + size} of a file of {self.stat.size}: truncated?")


def stat_now(path: str) -> Stat:
    """What is at `path` now; NotFound, AccessDenied or CorruptData."""
    return stat_of(translated(path, lambda: os.stat(path)))


def translated(path: str, call: Callable[[], Result]) -> Result:
    """`call`, with its OSError as one of ours."""
    try:
        return call()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{path}: no such file") from None
    except PermissionError:
        confinement.refused()
        raise AccessDenied(f"{path}: permission denied") from None
    except OSError as error:
        raise CorruptData(f"{path}: {error.strerror}") from None
