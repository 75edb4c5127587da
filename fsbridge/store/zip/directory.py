"""The central directory of a zip archive as a compact, sorted table of names. Not here: members' data (`__init__.py`).

Written for archives from untrusted sources: every length is checked against the file before it is used, and what cannot
be shown harmlessly is left out or marked. A member costs its name and 42 bytes, so archives may have millions of members
(one file per chunk). The standard library's `zipfile` takes ten times that.

Source of the format: PKWARE APPNOTE.TXT 6.3.10.
"""

from __future__ import annotations

import bisect
import itertools
import re
import struct
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
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
HEADER = np.dtype(
    [
        *(("signature", "S4"), ("made_by", "<u2"), ("needs", "<u2"), ("flags", "<u2"), ("method", "<u2")),
        *(("time", "<u2"), ("date", "<u2"), ("crc", "<u4"), ("stored", "<u4"), ("size", "<u4")),
        *(("name_length", "<u2"), ("extra_length", "<u2"), ("comment_length", "<u2"), ("disk", "<u2")),
        *(("internal", "<u2"), ("attributes", "<u4"), ("header", "<u4")),
    ]
)
LENGTHS = struct.Struct("<3H")
LENGTHS_AT = 28
HEADER_SIGNATURE = b"PK\1\2"
LOCAL = struct.Struct("<4s5H3L2H")
LOCAL_SIGNATURE = b"PK\3\4"
EXTRA = struct.Struct("<2H")
UNKNOWN16, UNKNOWN32 = 0xFFFF, 0xFFFFFFFF

MAX_DIRECTORY = 1024 * MIB
"""Most bytes of a central directory: twelve million members with names of 40 bytes."""

NEWEST = 63
"""The newest version of the format, 6.3, as members name the version that they need."""

ENCRYPTED = 0x0001 | 0x0040 | 0x2000
FILE_TYPE, REGULAR, DIRECTORY = 0o170000, 0o100000, 0o040000

OVERLAPPING = 0x8000
SPECIAL = 0x4000
"""Our own marks among the general purpose flags. PKWARE reserves both bits and never sets them."""

MEMBER_FIELDS = ("header", "stored", "size", "crc", "method")
MEMBER_CODES = "QQQIHH"
BATCH_MEMBERS = 1 << 14
"""Entries converted at a time."""

MAX_NAME = 4096
"""Most bytes of a name: Linux accepts no longer paths."""

HARMFUL = re.compile(rb"\0|^/|^$|//|(?:^|/)\.\.?(?:/|$)")
"""Names that are not keys: empty, `.` and `..` components, NUL. A `/` at the end marks a directory."""

Read = Callable[[int, int], bytes]
"""`(offset, length)` -> exactly these bytes of the archive."""


Column = npt.NDArray[Any]


class ArchiveMember(NamedTuple):
    """A file in the archive. `header`: offset of its local header; `stored`, `size`: bytes in the archive, and decoded.

    `flags` are the general purpose flags, with OVERLAPPING (its bytes belong to another member, too) or SPECIAL (a
    symbolic link or device).
    """

    header: int
    stored: int
    size: int
    crc: int
    method: int
    flags: int


@dataclass(frozen=True, slots=True)
class _Names:
    """Sorted names in one piece of memory; a sequence for `bisect`."""

    text: bytes
    ends: array[int]

    @classmethod
    def pack(cls, names: Sequence[bytes]) -> _Names:
        return cls(b"".join(names), array("Q", itertools.accumulate(map(len, names), initial=0)))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, position: int) -> bytes:
        return self.text[self.ends[position] : self.ends[position + 1]]


@dataclass(frozen=True, slots=True)
class ZipDirectory:
    """All members, sorted by name. A name ending in `/` is a directory that was stored as such.

    `hidden` counts members that were left out because no path can have their name, or because a directory has it. `newer`
    counts members that say they need a newer version of the format than there is.
    """

    names: _Names
    table: Sequence[array[int]]
    hidden: int
    newer: int

    def odd_names(self) -> Iterator[str]:
        """Describe members that are not found under the path that their writer meant."""
        if self.hidden:
            yield f"{self.hidden} members of the archive are hidden: their names are not paths, or a directory has the same"
        if self.newer:
            yield f"{self.newer} members say that they need a newer version of zip than there is: other programs refuse them"

    def find(self, name: bytes) -> ArchiveMember | None:
        """Return the file of this name, or None."""
        position = bisect.bisect_left(self.names, name)
        if position == len(self.names) or self.names[position] != name:
            return None
        return self.member(position)

    def member(self, position: int) -> ArchiveMember:
        """Return the member at a position of `names`."""
        return ArchiveMember._make(column[position] for column in self.table)

    def is_directory(self, name: bytes) -> bool:
        """Tell whether a member lies below `name`, or `name` was stored as a directory. The root always is one."""
        if not name:
            return True
        position = bisect.bisect_left(self.names, name + b"/")
        return position < len(self.names) and self.names[position].startswith(name + b"/")

    def children(self, name: bytes) -> Iterator[tuple[bytes, int | None]]:
        """Yield what is directly below the directory `name`, sorted as in `names`: a file's position there, or None.

        Skips from one child to the next, so the cost is that of the children and not of everything below them.
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


def as_path(name: bytes) -> bytes:
    r"""Return a name with slashes. Some programs write `a\b` where a zip archive has `a/b`, and unpackers accept that."""
    return name.replace(b"\\", b"/") if b"\\" in name and b"/" not in name else name


def data_start(read: Read, size: int, name: bytes, member: ArchiveMember) -> int:
    """Return the offset of a member's data: behind its local header, which must have the same name and method.

    `size`: bytes of the archive.
    """
    header = read(member.header, LOCAL.size)
    signature, _, flags, method, _, _, _, _, _, name_length, extra_length = LOCAL.unpack(header)
    if signature != LOCAL_SIGNATURE or method != member.method or flags & ENCRYPTED:
        raise CorruptData("its local header does not fit the archive's directory")
    named = read(member.header + LOCAL.size, name_length)
    if as_path(named) != name:
        raise CorruptData(f"its local header names {named[:80]!r}")
    start = member.header + LOCAL.size + name_length + extra_length
    if start + member.stored > size:
        raise CorruptData("its data lie outside the archive")
    return int(start)


def read_directory(read: Read, size: int) -> ZipDirectory:
    """Read the central directory of an archive of `size` bytes. Raises CorruptData, TooLarge or Unsupported."""
    start, length, count = _find_directory(read, size)
    if length > MAX_DIRECTORY:
        raise TooLarge(f"the central directory has {length} bytes, the limit is {MAX_DIRECTORY}")
    return _Builder(read(start, length), start).build(count)


def _find_directory(read: Read, size: int) -> tuple[int, int, int]:
    """Return offset, length and number of entries of the central directory, from the records at the end of the archive."""
    tail_start = max(0, size - END.size - 0xFFFF)
    tail = read(tail_start, size - tail_start)
    at = tail.rfind(END_SIGNATURE)
    while at >= 0:
        if at + END.size <= len(tail):
            fields = END.unpack_from(tail, at)
            if at + END.size + fields[7] == len(tail):
                break
        at = tail.rfind(END_SIGNATURE, 0, at)
    if at < 0:
        raise CorruptData("the end of a zip archive is missing: truncated, or still being written")
    _, disk, first_disk, here, count, length, start, _ = END.unpack_from(tail, at)
    end = tail_start + at
    if UNKNOWN16 in (disk, here, count) or UNKNOWN32 in (length, start):
        directory = _find_zip64(read, end)
        if directory is not None:
            return directory
    if disk or first_disk or here != count:
        raise Unsupported("the zip archive has several parts")
    if start + length > end:
        raise CorruptData("the central directory lies outside the archive")
    return start, length, count


def _find_zip64(read: Read, end: int) -> tuple[int, int, int] | None:
    """Read the zip64 records before the end record as `_find_directory` does, or return None if there are none."""
    if end < END64_LOCATOR.size + END64.size:
        return None
    signature, disk, at, disks = END64_LOCATOR.unpack(read(end - END64_LOCATOR.size, END64_LOCATOR.size))
    if signature != END64_LOCATOR_SIGNATURE:
        return None
    if disk or disks > 1:
        raise Unsupported("the zip archive has several parts")
    if at + END64.size > end - END64_LOCATOR.size:
        raise CorruptData("the zip64 end record lies outside the archive")
    signature, _, _, _, disk, first_disk, here, count, length, start = END64.unpack(read(at, END64.size))
    if signature != END64_SIGNATURE:
        raise CorruptData("there is no zip64 end record where its locator points")
    if disk or first_disk or here != count:
        raise Unsupported("the zip archive has several parts")
    if start + length > at:
        raise CorruptData("the central directory lies outside the archive")
    return start, length, count


class _Builder:
    """Collects the entries.

    Of equal names the last one counts, as in every unpacker (zarr's ZipStore writes such archives).
    """

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._start = start
        self._positions = array("Q")
        self._rows: dict[bytes, int] = {}
        self._hidden = self._newer = 0

    def build(self, count: int) -> ZipDirectory:
        """Parse the central directory of `count` entries, which lies at `start` of the archive."""
        self._walk()
        if len(self._positions) & UNKNOWN16 != count & UNKNOWN16:  # some writers without zip64 let the number overflow
            raise CorruptData(f"the central directory has {len(self._positions)} entries where {count} were announced")
        columns = self._columns()
        names = sorted(self._rows)
        directories = _directories(names, self._rows)
        names = [name for name in names if name not in directories]
        rows = np.fromiter((self._rows[name] for name in names), np.int64, len(names))
        hidden = self._hidden + len(self._rows) - len(names)
        table = [array(code, column[rows].tobytes()) for code, column in columns]
        return ZipDirectory(_Names.pack(names), table, hidden, self._newer)

    def _walk(self) -> None:
        """Find the positions and names of all entries. Only this is done entry by entry."""
        data, size, position = self._data, len(self._data), 0
        harmful, rows = HARMFUL.search, self._rows
        while position < size:
            if position + HEADER.itemsize > size:
                raise CorruptData("the central directory ends within an entry")
            name_length, extra_length, comment_length = LENGTHS.unpack_from(data, position + LENGTHS_AT)
            start = position + HEADER.itemsize
            name = as_path(data[start : start + name_length])
            if name_length <= MAX_NAME and harmful(name) is None:
                rows[name] = len(self._positions)
            else:
                self._hidden += 1
            self._positions.append(position)
            position = start + name_length + extra_length + comment_length
        if position != size:
            raise CorruptData("the central directory ends within an entry")

    def _columns(self) -> list[tuple[str, Column]]:
        """Return the fields of `ArchiveMember` for every entry in the archive's order, with the type codes of `array`."""
        positions = np.frombuffer(self._positions, np.uint64)
        columns = [np.empty(len(positions), code) for code in MEMBER_CODES]
        raw = np.frombuffer(self._data, np.uint8)
        bytes_of = np.arange(HEADER.itemsize, dtype=np.uint64)
        for first in range(0, len(positions), BATCH_MEMBERS):
            part = slice(first, first + BATCH_MEMBERS)
            entries = raw[positions[part, None] + bytes_of].view(HEADER)[:, 0]
            if (entries["signature"] != HEADER_SIGNATURE).any():
                raise CorruptData("an entry of the central directory is missing where one was expected")
            self._newer += int(np.count_nonzero(entries["needs"] & 0xFF > NEWEST))
            kind = (entries["attributes"] >> 16) & FILE_TYPE
            special = (entries["made_by"] >> 8 == 3) & ~np.isin(kind, (0, REGULAR, DIRECTORY))
            flags = entries["flags"] & ~np.uint16(OVERLAPPING | SPECIAL) | special * np.uint16(SPECIAL)
            for column, values in zip(columns, [*(entries[name] for name in MEMBER_FIELDS), flags], strict=True):
                column[part] = values
        self._large(columns)
        columns[-1] |= self._overlapping(columns[0], columns[1])
        return list(zip(MEMBER_CODES, columns, strict=True))

    def _large(self, columns: Sequence[Column]) -> None:
        """Read the zip64 extra fields of the entries that have one."""
        header, stored, size = columns[:3]
        for row in np.flatnonzero((header == UNKNOWN32) | (stored == UNKNOWN32) | (size == UNKNOWN32)).tolist():
            position = self._positions[row]
            name_length, extra_length, _ = LENGTHS.unpack_from(self._data, position + LENGTHS_AT)
            start = position + HEADER.itemsize + name_length
            extra = self._data[start : start + extra_length]
            values = _zip64_values(extra, int(size[row]), int(stored[row]), int(header[row]))
            if max(values) >= 2**62:
                raise CorruptData("a zip64 field has impossible sizes")
            size[row], stored[row], header[row] = values

    def _overlapping(self, headers: Column, stored: Column) -> Column:
        """Return OVERLAPPING for members that run into the next one's header or into the central directory."""
        order = np.argsort(headers, kind="stable")
        ends = headers[order] + stored[order] + np.uint64(LOCAL.size)
        limits = np.append(headers[order][1:], np.uint64(self._start))[: len(order)]
        marks = np.zeros(len(headers), np.uint16)
        marks[order[ends > limits]] = OVERLAPPING
        return marks


def _zip64_values(extra: bytes, size: int, stored: int, header: int) -> tuple[int, int, int]:
    """Return `size`, `stored` and `header`, each from the zip64 extra field if its 32 bits are all ones."""
    position = 0
    while position + EXTRA.size <= len(extra):
        kind, length = EXTRA.unpack_from(extra, position)
        position += EXTRA.size
        if kind == 1 and position + length <= len(extra):
            values = iter(struct.unpack_from(f"<{length // 8}Q", extra, position))
            try:
                size = next(values) if size == UNKNOWN32 else size
                stored = next(values) if stored == UNKNOWN32 else stored
                header = next(values) if header == UNKNOWN32 else header
            except StopIteration:
                raise CorruptData("a zip64 field is too short") from None
            break
        position += length
    return size, stored, header


def _directories(names: Iterable[bytes], files: Container[bytes]) -> set[bytes]:
    """Return those of `files` that sorted `names` show to be directories, too. The directory hides the file.

    Other directories are not kept, because a name of 4 KB can imply two thousand.
    """
    directories: set[bytes] = set()
    before = b""
    for name in names:
        parent = name.rpartition(b"/")[0]
        if parent == before:
            continue
        before = parent
        while parent:
            if parent in files:
                directories.add(parent)
            parent = parent.rpartition(b"/")[0]
    return directories
