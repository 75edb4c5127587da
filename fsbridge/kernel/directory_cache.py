"""A cache of directory listings by inode, each shown for no longer than a listing may be old (P9).

Recent listings stay as they were read, with the nodes that their members open; older ones are packed and compressed, to some
hundred bytes for the three directories of an array, and their members are opened again by name. The least recent go first.
Not here: reading directories (`readings.py`), which ones are read ahead (`readahead/directories.py`).
"""

from __future__ import annotations

import marshal
import math
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

from fsbridge.config import listed_again
from fsbridge.kernel.handles import Reading
from fsbridge.kernel.inode_rows import KINDS
from fsbridge.kernel.inodes import MAX_SPACE
from fsbridge.kernel.records import SpaceName
from fsbridge.tree import Attrs, Dated, Entry, Kind, Numbered, Space

MAX_BYTES = 64 << 20
"""Memory for all: 250,000 arrays of one chunk."""

ROOM_BYTES = 48 << 20
"""Memory, roughly, up to which all stay as they were read, so that their members open at once: 5,000 arrays."""

OPEN_BYTES, CROWDING = 4 << 20, 4
"""Memory, roughly, for those that stay so at least: 500 arrays; a byte of packed ones takes so many of the others' room."""

UNPACKED = 64
"""Directories that stay unpacked: somebody is in them."""

PACKED_BYTES = 128
"""What finding a packed one takes besides its bytes."""

PACKED_TOGETHER = 16
"""Directories that are packed together: compressed, they take a third; and who is in one comes to the next ones soon."""


class _Pack:
    """What some directories contain, by inode, compressed. `until`: when the first of them may not be shown any more."""

    __slots__ = ("_data", "left", "nbytes", "until")

    def __init__(self, readings: dict[int, bytes], until: float) -> None:
        self._data = zlib.compress(marshal.dumps(readings), 1)
        self.left = len(readings)
        """Those of them that are still wanted."""
        self.nbytes = len(self._data) + PACKED_BYTES * len(readings)
        self.until = until

    def readings(self) -> dict[int, bytes]:
        found: dict[int, bytes] = marshal.loads(zlib.decompress(self._data))
        return found


class DirectoryCache:
    """Readings by inode. `ttl`: seconds, infinite for an immutable store. For the event loop's thread."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._open: OrderedDict[int, Reading] = OrderedDict()  # the last one used last
        self._open_bytes = 0
        self._packed: dict[int, _Pack | Reading] = {}  # the last one packed last; what cannot be packed is as it was
        self._last: tuple[_Pack | None, dict[int, bytes]] = None, {}  # the last pack that was looked into
        self._unpacked: OrderedDict[int, Reading] = OrderedDict()  # of `_packed`, the last one used last
        self.nbytes = 0
        """Memory, roughly, of all."""

    def __len__(self) -> int:
        return len(self._open) + len(self._packed)

    def get(self, inode: int) -> Reading | None:
        """However old it is."""
        reading = self._open.get(inode)
        if reading is not None:
            self._open.move_to_end(inode)
            return reading
        packed = self._packed.get(inode)
        if not isinstance(packed, _Pack):
            return packed
        reading = self._unpacked.get(inode)
        if reading is None:
            if self._last[0] is not packed:
                self._last = packed, packed.readings()
            reading = self._unpacked[inode] = unpacked(self._last[1][inode])
            if len(self._unpacked) > UNPACKED:
                self._unpacked.popitem(last=False)
        else:
            self._unpacked.move_to_end(inode)
        return reading

    def fresh(self, inode: int) -> bool:
        """Whether there is one that may be shown."""
        packed = self._packed.get(inode)
        if isinstance(packed, _Pack):
            return time.monotonic() < packed.until
        reading = self._open.get(inode) or packed
        return reading is not None and not self.expired(reading)

    def expired(self, reading: Reading) -> bool:
        """Whether it is too old to be shown (P9)."""
        return time.monotonic() >= self._until(reading)

    def put(self, inode: int, reading: Reading) -> None:
        """Remember what a directory contains."""
        self.drop(inode)
        self._open[inode] = reading
        self._open_bytes += reading.nbytes
        self.nbytes += reading.nbytes
        while self._open and self._open_bytes > max(OPEN_BYTES, ROOM_BYTES - CROWDING * (self.nbytes - self._open_bytes)):
            self._pack([self._open.popitem(last=False) for _ in range(min(PACKED_TOGETHER, len(self._open)))])
        while self.nbytes > MAX_BYTES and self._packed:
            for oldest in list(islice(self._packed, 1 + len(self._packed) // 16)):
                self.drop(oldest)
        self.expire()

    def pop_named(self, inode: int, name: bytes) -> Reading | None:
        """What was read of the member `name` together with the directory `inode`; the caller remembers it by its inode."""
        above = self._open.get(inode)
        reading = None if above is None else above.named.pop(name, None)
        if above is not None and reading is not None:
            above.nbytes -= reading.nbytes
            self._open_bytes -= reading.nbytes
            self.nbytes -= reading.nbytes
        return reading

    def expire(self) -> None:
        """Forget what is too old."""
        for old in (self._packed, self._open):
            for inode in list(_while(lambda inode: not self.fresh(inode), old)):
                self.drop(inode)

    def drop(self, inode: int) -> None:
        """Forget one."""
        reading = self._open.pop(inode, None)
        if reading is not None:
            self._open_bytes -= reading.nbytes
            self.nbytes -= reading.nbytes
        packed = self._packed.pop(inode, None)
        if isinstance(packed, _Pack):
            self._unpacked.pop(inode, None)
            packed.left -= 1
            if not packed.left:
                self.nbytes -= packed.nbytes
                self._last = None, {}
        elif packed is not None:
            self.nbytes -= packed.nbytes

    def clear(self) -> None:
        """Forget all."""
        for kept in (self._open, self._packed, self._unpacked):
            kept.clear()
        self._last = None, {}
        self._open_bytes = self.nbytes = 0

    def _until(self, reading: Reading) -> float:
        return reading.asked + listed_again(self._ttl, reading.shown.extent)

    def _pack(self, readings: Sequence[tuple[int, Reading]]) -> None:
        """Keep less of them, which are not among the open ones any more."""
        packed: dict[int, bytes] = {}
        until = math.inf
        for inode, reading in readings:
            self._open_bytes -= reading.nbytes
            data = pack(reading)
            if data is None:
                self._packed[inode] = reading
                continue
            self.nbytes -= reading.nbytes
            packed[inode] = data
            until = min(until, self._until(reading))
        if packed:
            new = _Pack(packed, until)
            self._packed.update(dict.fromkeys(packed, new))
            self.nbytes += new.nbytes


def _while(condition: Callable[[int], bool], inodes: dict[int, Any]) -> Iterator[int]:
    for inode in inodes:
        if not condition(inode):
            return
        yield inode


class _Shown(NamedTuple):
    """What is left of a directory's contents when it is packed."""

    space: Space | None
    extent: int

    def entries(self) -> Iterator[Sequence[Entry]]:
        raise NotImplementedError("a listing that begins anew opens its directory")


def pack(reading: Reading) -> bytes | None:
    """A reading as bytes; None if its members cannot be opened again by their names, or what they are has no bytes."""
    try:
        return marshal.dumps(_plain(reading))
    except ValueError:  # a version, say, that is no plain value
        return None


def unpacked(packed: bytes) -> Reading:
    """The reading that was packed, without nodes."""
    return _reading(marshal.loads(packed))


def _plain(reading: Reading) -> tuple[Any, ...]:
    """The reading as plain values: all of it as old as what is oldest, chunk directories with their array's space."""
    space, node = reading.shown.space, reading.node
    if space is not None and space.size > MAX_SPACE:
        raise ValueError("numbers of nodes that are told one by one")
    by_name = node is None or node.slot is None
    parts = (reading, *reading.below.values())
    asked = [batch.asked for part in parts for batch in part.batches if isinstance(batch, Dated | Numbered)]
    return (
        min([reading.asked, *asked]),
        None if space is None else (space.identity, space.size),
        None if reading.attrs is None else _plain_attrs(reading.attrs),
        _plain_contents(reading, by_name),
        [(position, _plain_contents(below, False)) for position, below in reading.below.items()],
    )


def _plain_contents(reading: Reading, by_name: bool) -> tuple[Any, ...]:
    return reading.shown.extent, [_plain_batch(batch, by_name) for batch in reading.batches]


def _plain_batch(batch: Sequence[Entry], by_name: bool) -> tuple[Any, ...] | list[Any]:
    if isinstance(batch, Numbered):
        return KINDS.index(batch.kind), batch.size, batch.first, list(batch.pairs)
    return [_plain_entry(entry, by_name) for entry in batch]


def _plain_entry(entry: Entry, by_name: bool) -> tuple[Any, ...]:
    name, attrs, node, version = entry
    if not isinstance(node, int):
        if not by_name:
            raise ValueError("who is found by a number only cannot open it again")
        node = None
    return name, node, version, *_plain_attrs(attrs)


def _plain_attrs(attrs: Attrs) -> tuple[Any, ...]:
    return KINDS.index(attrs.kind), attrs.size, attrs.mtime_ns


def _reading(plain: tuple[Any, ...]) -> Reading:
    asked, own, attrs, contents, below = plain
    space = None if own is None else cast(Space, SpaceName(*own))  # who needs more of it looks whether it is one
    reading = _contents(contents, space, asked)
    reading.attrs = None if attrs is None else _attrs(*attrs)
    reading.below = {position: _contents(told, space, asked) for position, told in below}
    return reading


def _contents(plain: tuple[Any, ...], space: Space | None, asked: float) -> Reading:
    extent, batches = plain
    return Reading(None, _Shown(space, extent), [_batch(batch, asked) for batch in batches], asked)


def _batch(plain: tuple[Any, ...] | list[Any], asked: float) -> Dated | Numbered:
    if isinstance(plain, list):
        return Dated([Entry(name, _attrs(*attrs), node, version) for name, node, version, *attrs in plain], asked)
    kind, size, first, pairs = plain
    return Numbered(KINDS[kind], size, first, pairs, asked)


def _attrs(kind: int, size: int | None, mtime_ns: int) -> Attrs:
    told: Kind = KINDS[kind]
    return Attrs(told, size, mtime_ns)
