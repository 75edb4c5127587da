"""The central directory of a zip archive as a compact, sorted table of names. Not here: members' data (`zip.py`).

Written for archives that nobody vouches for: every length is checked against the file before it is used, and what cannot be
shown harmlessly is left out or marked. A member costs its name and about 75 bytes, so that archives of millions of members
(one file per chunk) are bearable; the standard library's `zipfile` takes ten times that.

Source of the format: PKWARE APPNOTE.TXT 6.3.10.
"""

from __future__ import annotations

import bisect
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fsbridge.config import MIB
from fsbridge.errors import CorruptData, TooLarge, Unsupported

END = struct.Struct("<4s4H2LH")
END_SIGNATURE = b"PK\5\6"
END64_LOCATOR = struct.Struct("<4sLQL")
END64_LOCATOR_SIGNATURE = b"PK\6\7"
END64 = struct.Struct("<4sQ2H2L4Q")
END64_SIGNATURE = b"PK\6\6"
HEADER = struct.Struct("<4s6H3L5H2L")
HEADER_SIGNATURE = b"PK\1\2"
LOCAL = struct.Struct("<4s5H3L2H")
LOCAL_SIGNATURE = b"PK\3\4"
EXTRA = struct.Struct("<2H")
ZIP64_EXTRA = 1
UNKNOWN16, UNKNOWN32 = 0xFFFF, 0xFFFFFFFF
MAX_COMMENT = 0xFFFF

MAX_DIRECTORY = 1024 * MIB
"""Bytes of a central directory: twelve million members with names of 40 bytes."""

ENCRYPTED = 0x0001 | 0x0040 | 0x2000
UNIX = 3
FILE_TYPE, REGULAR, DIRECTORY = 0o170000, 0o100000, 0o040000

OVERLAPPING = 0x8000
SPECIAL = 0x4000
"""Marks of ours beside the general purpose flags: both bits are reserved by PKWARE and never set."""

Read = Callable[[int, int], bytes]
"""`(offset, length)` -> exactly these bytes of the archive."""


Column = npt.NDArray[Any]


class _Header(NamedTuple):
    """An entry of the central directory."""

    signature: bytes
    made_by: int
    needs: int
    flags: int
    method: int
    time: int
    date: int
    crc: int
    stored: int
    size: int
    name_length: int
    extra_length: int
    comment_length: int
    disk: int
    internal: int
    attributes: int
    header: int


class Member(NamedTuple):
    """A file in the archive. `header`: offset of its local header; `stored`, `size`: bytes in the archive, and decoded.

    `flags`: the general purpose flags, with OVERLAPPING (its bytes belong to another member, too) or SPECIAL (a symbolic
    link or device).
    """

    header: int
    stored: int
    size: int
    crc: int
    method: int
    flags: int


@dataclass(frozen=True, slots=True)
class ZipDirectory:
    """All members, sorted by name. A name ending in `/` is a directory that was stored as such.

    `hidden`: members left out because no path can have their name, or because a directory has it.
    """

    names: Sequence[bytes]
    table: Sequence[Column]
    hidden: int

    def find(self, name: bytes) -> Member | None:
        """The file of this name."""
        position = bisect.bisect_left(self.names, name)
        if position == len(self.names) or self.names[position] != name:
            return None
        return self.member(position)

    def member(self, position: int) -> Member:
        """The member at a position of `names`."""
        return Member._make(int(column[position]) for column in self.table)

    def is_directory(self, name: bytes) -> bool:
        """Whether any member lies below `name`, or it was stored as a directory; the root always is one."""
        if not name:
            return True
        position = bisect.bisect_left(self.names, name + b"/")
        return position < len(self.names) and self.names[position].startswith(name + b"/")

    def children(self, name: bytes) -> Iterator[tuple[bytes, int | None]]:
        """What lies directly below the directory `name`, in order of names: a file's position in `names`, or None.

        Skips from one child to the next, so the cost is that of the children, not of all that is below them.
        """
        prefix = name + b"/" if name else b""
        position = bisect.bisect_left(self.names, prefix)
        while position < len(self.names) and self.names[position].startswith(prefix):
            rest = self.names[position][len(prefix) :]
            child, slash, _ = rest.partition(b"/")
            if not rest:
                position += 1
            elif slash:
                yield child, None
                position = bisect.bisect_left(self.names, prefix + child + b"0", position)  # "0" follows "/"
            else:
                yield child, position
                position += 1


def read_directory(read: Read, size: int) -> ZipDirectory:
    """Read the central directory of an archive of `size` bytes. Raises CorruptData, TooLarge or Unsupported."""
    start, length, count = _find_directory(read, size)
    if length > MAX_DIRECTORY:
        raise TooLarge(f"central directory of {length} bytes, the limit is {MAX_DIRECTORY}")
    return _Builder(start).build(read(start, length), count)


def _find_directory(read: Read, size: int) -> tuple[int, int, int]:
    """Offset, length and number of entries of the central directory, from the records at the end of the archive."""
    tail_start = max(0, size - END.size - MAX_COMMENT)
    tail = read(tail_start, size - tail_start)
    at = tail.rfind(END_SIGNATURE)
    while at >= 0:
        if at + END.size <= len(tail):
            fields = END.unpack_from(tail, at)
            if at + END.size + fields[7] == len(tail):
                break
        at = tail.rfind(END_SIGNATURE, 0, at)
    if at < 0:
        raise CorruptData("no end of a zip archive: truncated, or still being written")
    _, disk, first_disk, here, count, length, start, _ = END.unpack_from(tail, at)
    end = tail_start + at
    if UNKNOWN16 in (disk, here, count) or UNKNOWN32 in (length, start):
        found = _find_zip64(read, end)
        if found is not None:
            return found
    if disk or first_disk or here != count:
        raise Unsupported("a zip archive of several parts")
    if start + length > end:
        raise CorruptData("the central directory lies outside the archive")
    return start, length, count


def _find_zip64(read: Read, end: int) -> tuple[int, int, int] | None:
    """As `_find_directory`, from the zip64 records before the end record; None when there are none."""
    if end < END64_LOCATOR.size + END64.size:
        return None
    signature, disk, at, disks = END64_LOCATOR.unpack(read(end - END64_LOCATOR.size, END64_LOCATOR.size))
    if signature != END64_LOCATOR_SIGNATURE:
        return None
    if disk or disks > 1:
        raise Unsupported("a zip archive of several parts")
    if at + END64.size > end - END64_LOCATOR.size:
        raise CorruptData("the zip64 end record lies outside the archive")
    signature, _, _, _, disk, first_disk, here, count, length, start = END64.unpack(read(at, END64.size))
    if signature != END64_SIGNATURE:
        raise CorruptData("no zip64 end record where its locator points")
    if disk or first_disk or here != count:
        raise Unsupported("a zip archive of several parts")
    if start + length > at:
        raise CorruptData("the central directory lies outside the archive")
    return start, length, count


class _Builder:
    """Collects the entries; for equal names the last one counts, as in every unpacker (zarr's ZipStore writes such)."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._columns = [array(code) for code in "QQQIHH"]
        self._places: dict[bytes, int] = {}
        self._hidden = 0

    def build(self, data: bytes, count: int) -> ZipDirectory:
        """Parse the central directory `data` of `count` entries."""
        position = entries = 0
        while position < len(data):
            position = self._entry(data, position)
            entries += 1
        if entries & UNKNOWN16 != count & UNKNOWN16:  # some writers without zip64 let the number overflow
            raise CorruptData(f"{entries} entries in the central directory where {count} were announced")
        directories = _directories(self._places)
        names = sorted(name for name in self._places if name not in directories)
        places = np.fromiter((self._places[name] for name in names), np.int64, len(names))
        columns = [np.frombuffer(column, column.typecode) for column in self._columns]
        columns[-1] = columns[-1] | self._overlapping(columns[0], columns[1])
        hidden = self._hidden + len(self._places) - len(names)
        return ZipDirectory(names, [column[places] for column in columns], hidden)

    def _entry(self, data: bytes, position: int) -> int:
        """Take the entry at `position`; the position of the next one."""
        if position + HEADER.size > len(data):
            raise CorruptData("the central directory ends within an entry")
        header = _Header._make(HEADER.unpack_from(data, position))
        name_start = position + HEADER.size
        extra_start = name_start + header.name_length
        end = extra_start + header.extra_length + header.comment_length
        if header.signature != HEADER_SIGNATURE or end > len(data):
            raise CorruptData("the central directory has no complete entry where one was expected")
        size, stored, start = header.size, header.stored, header.header
        if UNKNOWN32 in (size, stored, start):
            size, stored, start = _zip64_values(data[extra_start : extra_start + header.extra_length], size, stored, start)
        flags = header.flags & ~(OVERLAPPING | SPECIAL)
        kind = (header.attributes >> 16) & FILE_TYPE if header.made_by >> 8 == UNIX else 0
        if kind not in (0, REGULAR, DIRECTORY):
            flags |= SPECIAL
        self._add(data[name_start:extra_start], Member(start, stored, size, header.crc, header.method, flags))
        return end

    def _add(self, name: bytes, member: Member) -> None:
        if max(member.header, member.stored, member.size) >= 2**62:
            raise CorruptData(f"impossible sizes of {name[:80]!r}")
        for column, value in zip(self._columns, member, strict=True):
            column.append(value)
        parts = name.removesuffix(b"/").split(b"/")
        if b"\0" in name or any(part in (b"", b".", b"..") for part in parts):
            self._hidden += 1
        else:
            self._places[name] = len(self._columns[0]) - 1

    def _overlapping(self, headers: Column, stored: Column) -> Column:
        """OVERLAPPING for members that run into the next one's header or the central directory."""
        order = np.argsort(headers, kind="stable")
        ends = headers[order] + stored[order] + np.uint64(LOCAL.size)
        limits = np.append(headers[order][1:], np.uint64(self._start))[: len(order)]
        marks = np.zeros(len(headers), np.uint16)
        marks[order[ends > limits]] = OVERLAPPING
        return marks


def _zip64_values(extra: bytes, size: int, stored: int, header: int) -> tuple[int, int, int]:
    """The 64-bit values of those that are all ones, from the zip64 extra field."""
    position = 0
    while position + EXTRA.size <= len(extra):
        kind, length = EXTRA.unpack_from(extra, position)
        position += EXTRA.size
        if kind == ZIP64_EXTRA and position + length <= len(extra):
            values = iter(struct.unpack_from(f"<{length // 8}Q", extra, position))
            try:
                size = next(values) if size == UNKNOWN32 else size
                stored = next(values) if stored == UNKNOWN32 else stored
                header = next(values) if header == UNKNOWN32 else header
            except StopIteration:
                raise CorruptData("a zip64 field that is too short") from None
            break
        position += length
    return size, stored, header


def _directories(names: dict[bytes, int]) -> set[bytes]:
    """Every directory that the names imply: a file of the same name is hidden by it."""
    found: set[bytes] = set()
    for name in names:
        parent = name.rpartition(b"/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition(b"/")[0]
    return found
