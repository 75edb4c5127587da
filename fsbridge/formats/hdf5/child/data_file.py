"""The opened HDF5 file itself: on a local disk, or read in blocks through the daemon. Part of the HDF5 child.

Not here: the contents of the file.
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

from fsbridge.children.hdf5_functions import ID, find_function
from fsbridge.formats.hdf5.child.block_file import Asker, BlockFile
from fsbridge.formats.hdf5.child.h5types import NestedTooDeep
from fsbridge.threads.deadlines import Deadline

Answer: TypeAlias = tuple[dict[str, Any], list[bytes | bytearray | memoryview]]
"""JSON and attachments."""

_OPEN_FOR_WRITING = "already open for write"
"""Part of HDF5's message for a file with the mark "open for writing" in its superblock (H5F.c, since 1.10)."""
_STRICT = re.compile(
    "stored datatype size in chunk layout does not match|stored chunk dimension encoding length does not match"
)
"""Matches what HDF5 2.0 says of two redundant numbers of a layout message (H5Dchunk.c), which earlier versions ignore.

PureHDF writes wrong ones. The data are intact.
"""
_set_read_attempts = find_function(h5p, "H5Pset_metadata_read_attempts", ID, ctypes.c_uint)

_ERRNO = re.compile(r"\berrno = (\d+)")
"""Finds the errno in messages of HDF5's drivers (H5FD_SEC2, H5FD_read: "file read failed: time = ..., errno = 5, ...")."""
_REPLACED = (errno.ENOENT, errno.EACCES)
"""The daemon has the file open, so these mean that another file, or none, is at its path now."""

try:
    _relax_integrity_checks = find_function(h5p, "H5Pset_relax_file_integrity_checks", ID, ctypes.c_uint64)
except AttributeError:  # before HDF5 2.0, which checks what earlier versions did not
    _relax_integrity_checks = None


class Refusal(Exception):
    """An answer that is an error. `kind` is not_found, corrupt, unsupported, denied, too_large, stale or unreachable."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Prefetcher(Protocol):
    """Prefetches blocks of a file. Paths are tuples of stored names."""

    def prefetch_members(self, path: tuple[bytes, ...], links: Sequence[Any]) -> Iterator[Any]:
        """Yield the links of a group, each when its object's metadata is present."""

    def note_listing(self, path: tuple[bytes, ...], groups: Iterable[tuple[bytes, ...]]) -> None:
        """Note that a group was listed and which groups it contains."""

    def prefetch_everything(self, end: Deadline | None = None) -> None:
        """Prefetch what a visit of all objects reads; nothing more after `end`."""

    def close(self) -> None:
        """Close the prefetcher's own opening of the file."""


class OpenedFile:
    """One opened file."""

    def __init__(self, asker: Asker | None = None, prefetcher: Callable[[str, BlockFile], Prefetcher] | None = None) -> None:
        """`asker` requests blocks of a file that this process cannot open. `prefetcher` makes the prefetcher of a file."""
        self._asker = asker
        self._make_prefetcher = prefetcher
        self.prefetcher: Prefetcher | None = None
        self._opening: dict[str, Any] = {}
        self.blocks: BlockFile | None = None
        self.path = ""
        self.allowed: list[str] = []
        self.file: Any = None
        self.user_block = 0
        self.is_marked = False
        self.verified: Counter[Hashable] = Counter()
        self.paths: dict[int, str] | None = None

    def open(self, request: dict[str, Any]) -> Answer:
        """Open the requested file, or reopen it: a local file with this `device` and `inode`, or blocks of the daemon."""
        if self.prefetcher is not None:
            self.prefetcher.close()
        if self.file is not None:
            self.file.close()
        self.file, self.paths, self.blocks, self.prefetcher = None, None, None, None
        self.verified.clear()
        self._opening, self.path, self.allowed = request, request["path"], request["allowed"]
        if "device" in request:
            self.file, self.is_marked = open_local(self.path)
            status = os.fstat(self.file.get_vfd_handle())
            if (status.st_dev, status.st_ino) != (request["device"], request["inode"]):
                raise Refusal("stale", "the file was replaced while it was opened")
        else:
            assert self._asker is not None
            self.blocks = BlockFile(self._asker, request["size"], request["block"])
            self.file, self.is_marked = open_blocks(self.path, self.blocks)
            self.prefetcher = None if self._make_prefetcher is None else self._make_prefetcher(self.path, self.blocks)
        self.user_block = self.file.get_create_plist().get_userblock()
        return {"swmr": self.is_marked, "user_block": self.user_block}, []

    def check_version(self, version: Any) -> None:
        """Raise Refusal (stale) if a question is not about the open version, which another request may have replaced."""
        if version != self._opening.get("version"):
            raise Refusal("stale", "another version of the file was opened before the question came")

    def reopen_after_refusal(self) -> None:
        """Open the file again if the last question lacked blocks, because HDF5 may have stopped half-way."""
        if self.blocks is not None and self.blocks.refused:
            self.open(self._opening)

    def read_bytes(self, address: int, length: int) -> bytes:
        """Return bytes of the file, without HDF5."""
        if self.blocks is not None:
            return self.blocks.read(address, length)
        return os.pread(self.file.get_vfd_handle(), length, address)

    def refuse_requests(self) -> AbstractContextManager[set[int]]:
        """Let reads that need a request fail. Afterwards the yielded set holds the missing blocks."""
        return nullcontext(set()) if self.blocks is None else self.blocks.only_present()


def failure_of(error: BaseException) -> Refusal:
    """Turn an h5py error into a Refusal; a Refusal is returned as it is.

    A failed system call says nothing about the file's contents and may be transient. Raise the result without assigning it
    to a variable first: the error would refer to its own frame, and every open dataset of the callers would live until
    Python collects its garbage.
    """
    if isinstance(error, Refusal):
        return error
    if isinstance(error, NestedTooDeep):
        return Refusal("unsupported", reason(error))
    if _STRICT.search(str(error)):
        # Without a filter or a layout h5repack copies such a dataset as it is.
        hint = "rewrite the file with h5repack of such a version: h5repack -f GZIP=4 OLD NEW"
        said = f"HDF5 2 refuses its chunk layout, which HDF5 1.10 to 1.14 read: {hint}"
        return Refusal("unsupported", f"{said} ({reason(error)})")
    return Refusal("corrupt" if _ERRNO.search(str(error)) is None else "unreachable", reason(error))


def reason(error: BaseException) -> str:
    """Return an h5py error in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def open_local(path: str) -> tuple[Any, bool]:
    """Open a file without locks (read-only media), and as a SWMR reader if a writer has it open or left it so.

    HDF5 refuses such files otherwise, because a crashed writer's flags stay in the superblock. Other files are not opened
    as SWMR, because HDF5 would then read damaged metadata again and again, with pauses, and hope for a writer.
    """
    raw, access = os.fsencode(path), _make_access()
    try:
        return h5f.open(raw, h5f.ACC_RDONLY, fapl=access), False
    except OSError as error:
        if _OPEN_FOR_WRITING not in str(error):
            raise _cannot_open(error) from None
        # How often a SWMR reader reads metadata with a wrong checksum. HDF5 (H5Centry.c, H5C__load_entry) waits 1 ns
        # after the first attempt and doubles the wait each time: 4 ms in all, much longer than a write takes. Its
        # default, 100, never ends.
        if _set_read_attempts(access.id, 22) < 0:
            raise Refusal("corrupt", "HDF5 takes no limit of attempts to read metadata") from None
        try:
            return h5f.open(raw, h5f.ACC_RDONLY | h5f.ACC_SWMR_READ, fapl=access), True
        except OSError as again:
            raise _cannot_open(again if _ERRNO.search(str(again)) else error) from None


def _cannot_open(error: OSError) -> Refusal:
    fault, number = failure_of(error), _ERRNO.search(str(error))
    replaced = number is not None and int(number[1]) in _REPLACED
    return Refusal("stale" if replaced else fault.kind, f"HDF5 cannot open the file: {fault}")


def open_blocks(name: str, blocks: BlockFile) -> tuple[Any, bool]:
    """Open a file that the daemon reads. A mark that it is open for writing is ignored."""
    raw, access = os.fsencode(name), _make_access()
    access.set_fileobj_driver(h5fd.fileobj_driver, blocks)
    blocks.instead = clear_mark(blocks.read, blocks.size)
    try:
        file = h5f.open(raw, h5f.ACC_RDONLY, fapl=access)
    except OSError as error:
        raise _cannot_open(error) from None
    blocks.base = file.get_create_plist().get_userblock()
    return file, blocks.instead is not None


def _make_access() -> Any:
    """Return the access properties (H5P) with which every file is opened."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_file_locking(False, False)
    access.set_fclose_degree(h5f.CLOSE_STRONG)
    if _relax_integrity_checks is not None:
        # H5F_RFIC_UNUSUAL_NUM_UNUSED_NUMERIC_BITS (H5Fpublic.h): n-bit integers that use few of their bits are valid.
        _relax_integrity_checks(access.id, 1)
    return access


SIGNATURE = b"\x89HDF\r\n\x1a\n"
_BYTES = 12 + 4 * 8 + 4
"""Size of a superblock of version 2 or 3 with addresses of 8 bytes."""
_VERSION, _OFFSETS, _FLAGS, _END = 8, 9, 11, 28
_WORD = 0xFFFF_FFFF


def clear_mark(read: Callable[[int, int], bytes], size: int) -> tuple[int, bytes] | None:
    """Return where the superblock is and its bytes without the mark "open for writing", or None if it has no mark.

    HDF5 accepts a marked file, which does not end where the superblock says, only from a SWMR reader and only with its
    drivers for local disks. An object in a store has no writer, so the mark is only what a crashed writer left.
    """
    start = 0
    while start + _BYTES <= size:
        head = read(start, _BYTES)
        if head.startswith(SIGNATURE):
            if head[_VERSION] not in (2, 3) or head[_OFFSETS] != 8 or not head[_FLAGS]:
                return None
            if lookup3(head[:-4]) != int.from_bytes(head[-4:], "little"):
                return None
            end = max(int.from_bytes(head[_END : _END + 8], "little"), size - start)  # the writer did not get to update it
            body = head[:_FLAGS] + b"\0" + head[_FLAGS + 1 : _END] + end.to_bytes(8, "little") + head[_END + 8 : -4]
            return start, body + lookup3(body).to_bytes(4, "little")
        start = 2 * start or 512
    return None


def lookup3(data: bytes) -> int:
    """Return Bob Jenkins' checksum, as HDF5 computes it for its metadata (H5checksum.c)."""
    a = b = c = 0xDEADBEEF + len(data) & _WORD
    whole = max(0, len(data) - 1) // 12 * 12
    for at in range(0, whole, 12):
        a, b, c = (word + part & _WORD for word, part in zip((a, b, c), _split_words(data[at : at + 12]), strict=True))
        for n in (4, 6, 8, 16, 19, 4):
            a = (a - c & _WORD) ^ _rotate(c, n)
            c = c + b & _WORD
            a, b, c = b, c, a
    if len(data) == whole:
        return c
    a, b, c = (
        word + part & _WORD for word, part in zip((a, b, c), _split_words(data[whole:].ljust(12, b"\0")), strict=True)
    )
    for n in (14, 11, 25, 16, 4, 14, 24):
        c = (c ^ b) - _rotate(b, n) & _WORD
        a, b, c = b, c, a
    return b


def _split_words(part: bytes) -> tuple[int, int, int]:
    return int.from_bytes(part[:4], "little"), int.from_bytes(part[4:8], "little"), int.from_bytes(part[8:], "little")


def _rotate(word: int, n: int) -> int:
    return (word << n | word >> 32 - n) & _WORD
