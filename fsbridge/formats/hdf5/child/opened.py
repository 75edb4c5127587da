"""The opened HDF5 file itself: one of a local disk, or one whose blocks the daemon gives. Part of the HDF5 child.

Not here: what is in it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeAlias

from h5py import h5f, h5fd, h5p

from fsbridge.children.hdf5 import ID, function
from fsbridge.formats.hdf5.child import superblock
from fsbridge.formats.hdf5.child.blocks import Asker, BlockFile
from fsbridge.formats.hdf5.child.h5types import NestedTooDeep

Answer: TypeAlias = tuple[dict[str, Any], list[bytes | bytearray | memoryview]]
"""JSON and attachments."""

_OPEN_FOR_WRITING = "already open for write"
"""In HDF5's message for files whose superblock says that a writer has them open (H5F.c, since 1.10)."""
_READ_ATTEMPTS = 22
"""Of a SWMR reader, per piece of metadata whose checksum is wrong. HDF5 (H5Centry.c, H5C__load_entry) waits 1 ns after the
first and twice as long after each: 4 ms in all, much longer than a write takes. Its own default, 100, never ends."""
_set_read_attempts = function(h5p, "H5Pset_metadata_read_attempts", ID, ctypes.c_uint)

_ERRNO = re.compile(r"\berrno = (\d+)")
"""In messages of HDF5's drivers (H5FD_SEC2, H5FD_read: "file read failed: time = ..., errno = 5, error message = ...")."""
_REPLACED = (errno.ENOENT, errno.EACCES)
"""For a file that the daemon has open: another one is at its path, which this process may not open, or none."""

_UNUSUAL_UNUSED_BITS = 1
"""H5F_RFIC_UNUSUAL_NUM_UNUSED_NUMERIC_BITS (H5Fpublic.h): n-bit integers that use few of their bits are no damage."""
try:
    _relax_integrity_checks = function(h5p, "H5Pset_relax_file_integrity_checks", ID, ctypes.c_uint64)
except AttributeError:  # before HDF5 2.0, which checks what earlier ones did not
    _relax_integrity_checks = None


class Refusal(Exception):
    """An answer that is an error: `kind` is not_found, corrupt, unsupported, denied, too_large, stale or unreachable."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Ahead(Protocol):
    """What brings blocks of a file before they are wanted; paths are names as they are stored."""

    def members(self, path: tuple[bytes, ...], links: Sequence[Any]) -> Iterator[Any]:
        """The links of a group one after the other, each after what it leads to is here."""

    def listed(self, path: tuple[bytes, ...], groups: Iterable[tuple[bytes, ...]]) -> None:
        """A group has been listed, in which there are these others."""

    def everything(self) -> None:
        """All objects will be visited."""

    def close(self) -> None:
        """Let go of the file."""


class OpenedFile:
    """One opened file."""

    def __init__(self, asker: Asker | None = None, ahead: Callable[[str, BlockFile], Ahead] | None = None) -> None:
        """`asker`: asks the daemon for blocks of a file that this process cannot open; `ahead`: brings them before."""
        self._asker = asker
        self._make_ahead = ahead
        self.ahead: Ahead | None = None
        self._opening: dict[str, Any] = {}
        self.blocks: BlockFile | None = None
        self.path = ""
        self.allowed: list[str] = []
        self.file: Any = None
        self.user_block = 0
        self.verified: Counter[Hashable] = Counter()
        self.paths: dict[int, str] | None = None

    def open(self, request: dict[str, Any]) -> Answer:
        """Open (again) the file at `path`: that of `device` and `inode`, none put in its place, or the daemon's blocks."""
        if self.ahead is not None:
            self.ahead.close()
        if self.file is not None:
            self.file.close()
        self.file, self.paths, self.blocks, self.ahead = None, None, None, None
        self.verified.clear()
        self._opening, self.path, self.allowed = request, request["path"], request["allowed"]
        if "device" in request:
            self.file, swmr = open_local(self.path)
            found = os.fstat(self.file.get_vfd_handle())
            if (found.st_dev, found.st_ino) != (request["device"], request["inode"]):
                raise Refusal("stale", "the file was replaced while it was opened")
        else:
            assert self._asker is not None
            self.blocks = BlockFile(self._asker, request["size"], request["block"])
            self.file, swmr = open_blocks(self.path, self.blocks)
            self.ahead = None if self._make_ahead is None else self._make_ahead(self.path, self.blocks)
        self.user_block = self.file.get_create_plist().get_userblock()
        return {"swmr": swmr, "user_block": self.user_block}, []

    def expect(self, version: Any) -> None:
        """Refuse a question about another version than the one that is open: others have had this process open theirs."""
        if version != self._opening.get("version"):
            raise Refusal("stale", "another version of the file was opened before the question came")

    def renew(self) -> None:
        """Open the file again if the last question could not be answered for lack of blocks: HDF5 may be half through."""
        if self.blocks is not None and self.blocks.refused:
            self.open(self._opening)

    def stored(self, address: int, length: int) -> bytes:
        """Bytes of the file, past HDF5."""
        if self.blocks is not None:
            return self.blocks.read(address, length)
        return os.pread(self.file.get_vfd_handle(), length, address)

    def present(self) -> AbstractContextManager[set[int]]:
        """What is done within takes no request: it fails where it would, and afterwards the set is not empty."""
        return nullcontext(set()) if self.blocks is None else self.blocks.only_present()


def failure_of(error: BaseException) -> Refusal:
    """What an error of h5py is. A call of the system that failed says nothing about what is in the file, and may pass."""
    if isinstance(error, NestedTooDeep):
        return Refusal("unsupported", reason(error))
    return Refusal("corrupt" if _ERRNO.search(str(error)) is None else "unreachable", reason(error))


def reason(error: BaseException) -> str:
    """An h5py error in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def open_local(path: str) -> tuple[Any, bool]:
    """Open without locks (read-only media); a file that a writer left or holds open, as a SWMR reader.

    HDF5 refuses such files otherwise: a crashed writer's flags stay in the superblock. Others are not opened
    as SWMR: then HDF5 would read damaged metadata many times, with pauses, in the hope of a writer.
    """
    raw, access = os.fsencode(path), _access()
    try:
        return h5f.open(raw, h5f.ACC_RDONLY, fapl=access), False
    except OSError as error:
        if _OPEN_FOR_WRITING not in str(error):
            raise _cannot_open(error) from None
        if _set_read_attempts(access.id, _READ_ATTEMPTS) < 0:
            raise Refusal("corrupt", "HDF5 takes no limit of attempts to read metadata") from None
        try:
            return h5f.open(raw, h5f.ACC_RDONLY | h5f.ACC_SWMR_READ, fapl=access), True
        except OSError as again:
            raise _cannot_open(again if _ERRNO.search(str(again)) else error) from None


def _cannot_open(error: OSError) -> Refusal:
    found, number = failure_of(error), _ERRNO.search(str(error))
    replaced = number is not None and int(number[1]) in _REPLACED
    return Refusal("stale" if replaced else found.kind, f"HDF5 cannot open the file: {found}")


def open_blocks(name: str, blocks: BlockFile) -> tuple[Any, bool]:
    """Open a file that the daemon reads; one that says to be open for writing as if it did not."""
    raw, access = os.fsencode(name), _access()
    access.set_fileobj_driver(h5fd.fileobj_driver, blocks)
    blocks.instead = superblock.unmarked(blocks.read, blocks.size)
    try:
        file = h5f.open(raw, h5f.ACC_RDONLY, fapl=access)
    except OSError as error:
        raise _cannot_open(error) from None
    blocks.base = file.get_create_plist().get_userblock()
    return file, blocks.instead is not None


def _access() -> Any:
    """How files are opened, whatever reads them."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_file_locking(False, False)
    access.set_fclose_degree(h5f.CLOSE_STRONG)
    if _relax_integrity_checks is not None:
        _relax_integrity_checks(access.id, _UNUSUAL_UNUSED_BITS)
    return access
