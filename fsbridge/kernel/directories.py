"""The remembered contents of recently read directories, so that opening and listing one again needs no worker thread.

A listing is shown until it is too old (P9). Above `MAX_BYTES` the least recently used ones are dropped; their members are
then opened by name. A directory that a program has not entered yet is read as a whole, with the directories below it if
those are few. Not here: which ones are read ahead (`readahead/directories.py`), positions in a listing (`handles.py`).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import cast

from fsbridge.errors import FsbridgeError
from fsbridge.kernel.ages import Ages
from fsbridge.kernel.handles import Reading, all_batches
from fsbridge.kernel.inodes import ROOT, InodeTable
from fsbridge.kernel.records import Parked, Record
from fsbridge.tree import AnyNode, Attrs, Directory, Entry, Numbered, Space

MAX_BYTES = 32 << 20
"""Memory for all remembered directories, in bytes: roughly 5,000 arrays with three directories each."""

BELOW_DIRECTORIES = 16
"""Most directories below one that are read with it: an array's chunk directories, or a chain of nested groups."""


class Directories:
    """The directories of one mount that were read lately, by inode. For the event loop's thread."""

    def __init__(self, inodes: InodeTable, ages: Ages) -> None:
        self._inodes = inodes
        self._ages = ages
        self._readings: OrderedDict[int, Reading] = OrderedDict()  # the one used last is the last
        self.nbytes = 0
        """Memory that the directories take, roughly, in bytes."""

    def __len__(self) -> int:
        return len(self._readings)

    def known(self, inode: int) -> Reading | None:
        """Return the remembered contents of a directory if they are young enough to be shown, else None."""
        reading = self._get(inode) or self._read_with_parent(inode)
        return None if reading is None or self._expired(reading) else reading

    def looked_up(self, parent: int, name: bytes) -> tuple[int, Attrs, float] | None:
        """Return inode and attributes of a remembered directory, and the seconds for which they stay valid; else None."""
        inode = self._inodes.named(parent, name)
        reading = None if inode is None else self.known(inode)
        if inode is None or reading is None or reading.attrs is None:
            return None
        left = self._ages.left(reading.asked)
        return (inode, reading.attrs, left) if left > 0 else None

    def find(self, inode: int) -> Record | Parked | AnyNode:
        """The node behind an inode, see `InodeTable.find`.

        A node that is not open gets its opener from a remembered listing of its directory, if there is one. The listing may
        be old, because the node itself knows which version of its content it stands for.
        """
        found = self._inodes.find(inode)
        if isinstance(found, Parked) or (isinstance(found, Record) and not found.is_open):
            self.recall(inode, found.name if isinstance(found, Record) else None)
            found = self._inodes.find(inode)
        return found

    def recall(self, inode: int, name: bytes | None) -> None:
        """Tell the inode table how to open a node, if a listing of its directory is remembered.

        `name`: the node's name, or None if it has a number in a space instead of a name.
        """
        reading = self._get(self._inodes.parent(inode))
        if reading is not None:
            self._inodes.recall(inode, None if name is None else reading.member(name), reading.shown.space)

    def remember(self, inode: int, reading: Reading) -> None:
        """Keep what a directory contains, unless the kernel has forgotten it meanwhile."""
        if not self._inodes.knows(inode):
            return
        self.forget(inode)
        self._readings[inode] = reading
        self.nbytes += reading.nbytes
        while self.nbytes > MAX_BYTES and self._readings:
            self.forget(next(iter(self._readings)))
        self.expire()

    def doubt(self, inode: int | None) -> None:
        """Forget the contents of a directory and of all directories above it, because something there has changed."""
        while inode is not None and self._inodes.knows(inode):
            self.forget(inode)
            inode = None if inode == ROOT else self._inodes.parent(inode)

    def expire(self) -> None:
        """Forget expired directories, the least recently used first, up to the first one that has not expired."""
        while self._readings:
            inode, reading = next(iter(self._readings.items()))
            if not self._expired(reading):
                return
            self.forget(inode)

    def forget(self, inode: int) -> None:
        """Forget the contents of one directory, for example because the kernel has dropped its inode."""
        reading = self._readings.pop(inode, None)
        if reading is not None:
            self.nbytes -= reading.nbytes

    def clear(self) -> None:
        """Forget all directories."""
        self._readings.clear()
        self.nbytes = 0

    def _get(self, inode: int) -> Reading | None:
        """Return the remembered contents of a directory, however old, or None. They count as used now."""
        reading = self._readings.get(inode)
        if reading is not None:
            self._readings.move_to_end(inode)
        return reading

    def _expired(self, reading: Reading) -> bool:
        return not self._ages.listed_again(reading.asked, reading.shown.extent)

    def _read_with_parent(self, inode: int) -> Reading | None:
        """Return the contents of a directory that were read together with the directory above it, or None."""
        place = self._inodes.place(inode)
        above = None if place is None else self._readings.get(place.parent)
        if place is None or above is None:
            return None
        if place.name is None:
            return above.below.get(place.position)
        reading = above.named.pop(place.name, None)
        if reading is not None:
            above.nbytes -= reading.nbytes
            self.nbytes -= reading.nbytes
            self.remember(inode, reading)
        return reading


def read_directory(ages: Ages, node: Directory, attrs: Attrs | None = None, asked: float = math.inf) -> Reading | None:
    """Read all of a directory; None if it is too large or takes long. Blocks; raises what the listing raises.

    `attrs`: its attributes, if the listing of the directory above gave them at the time `asked`.
    """
    with ages.listed(node.extent) as answers:
        shown = node.present()  # this asks for the present state, so the attributes need not
        attrs = attrs or node.attrs()
        batches = all_batches(shown)
    if batches is None:
        return None
    reading = Reading(node, shown, batches, min(asked, answers.oldest))
    reading.attrs = attrs
    return reading


def read_tree(ages: Ages, node: Directory) -> Reading | None:
    """Read all of a directory, and the directories below it if they are few; see `read_directory`."""
    reading = read_directory(ages, node)
    if reading is not None:
        _read_below(ages, reading, reading, iter(range(BELOW_DIRECTORIES)))
    return reading


def _read_below(ages: Ages, top: Reading, reading: Reading, room: Iterator[int]) -> None:
    """Read the directories below `reading`, at most as many as `room` has left.

    Chunk directories of any depth are kept in `top`, the reading of the array's directory; named ones in their parent's.
    """
    found = list(islice(_directories(reading), BELOW_DIRECTORIES + 1))
    for entry in found[:BELOW_DIRECTORIES]:
        numbered = isinstance(entry.node, int)
        if not numbered and len(found) > BELOW_DIRECTORIES:
            continue  # their visitor is followed
        if next(room, None) is None:
            return
        try:
            below = _read_member(ages, reading, entry)
        except (FsbridgeError, OSError):
            continue  # the program that enters it meets the error
        if below is None:
            return
        if isinstance(entry.node, int):
            top.below[entry.node] = below
            top.nbytes += below.nbytes
            _read_below(ages, top, below, room)
        else:
            _read_below(ages, below, below, room)
            reading.named[entry.name] = below
            reading.nbytes += below.nbytes


def _read_member(ages: Ages, reading: Reading, entry: Entry) -> Reading | None:
    if isinstance(entry.node, int):
        assert reading.shown.space is not None
        return read_directory(ages, cast(Directory, reading.shown.space.node(entry.node)), entry.attrs, reading.asked)
    assert entry.node is not None
    return read_directory(ages, cast(Directory, entry.node()))


def _directories(reading: Reading) -> Iterator[Entry]:
    for batch in reading.batches:
        if not isinstance(batch, Numbered) or batch.kind == "directory":
            yield from (entry for entry in batch if entry.attrs.kind == "directory")


def read_record(record: Record, read: Callable[[Directory], Reading | None]) -> Reading | None:
    """Open the directory of an ordinary inode and return what `read` makes of it. Blocks."""
    node = record.open()
    with node.together():
        return read(cast(Directory, node))


def read_numbered(ages: Ages, space: Space, position: int) -> Reading | None:
    """Read all of a numbered directory; None also if it is empty, because it may not exist. Blocks."""
    reading = read_directory(ages, cast(Directory, space.node(position)))
    return reading if reading is not None and reading.batches else None
