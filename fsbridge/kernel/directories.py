"""The remembered contents of recently read directories, so that opening and listing one again needs no worker thread.

A listing is shown until it is too old (P9). Above `KernelLimits.directories_bytes` the least recently used ones go. The
second walk of a tree lives from this: it takes a tenth of the first one's time. Not here: which directories are read ahead
(`readahead/directories.py`), positions in a listing (`handles.py`).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import cast

from fsbridge.errors import FsbridgeError
from fsbridge.kernel.ages import Ages
from fsbridge.kernel.handles import KnownListing, all_batches
from fsbridge.kernel.inodes import ROOT, InodeTable
from fsbridge.kernel.limits import USUAL, KernelLimits
from fsbridge.tree import Attrs, Directory, Entry, Numbered

USED_SECONDS = 3.0
"""Seconds since its last use for which a directory is remembered, although it is too old to be shown."""

BELOW_DIRECTORIES = 16
"""Most directories below one that are read with it: an array's chunk directories, or a chain of nested groups."""


class Directories:
    """The directories of one mount that were read lately, by inode. For the event loop's thread."""

    def __init__(self, inodes: InodeTable, ages: Ages, limits: KernelLimits = USUAL) -> None:
        self._inodes = inodes
        self._ages = ages
        self._max_bytes = limits.directories_bytes
        self._readings: OrderedDict[int, KnownListing] = OrderedDict()  # the one used last is the last
        self.nbytes = 0
        """Memory that the directories take, roughly, in bytes."""

    def __len__(self) -> int:
        return len(self._readings)

    def find_young(self, inode: int) -> KnownListing | None:
        """Return the remembered contents of a directory if they are young enough to be shown, else None."""
        reading = self.find(inode)
        if reading is None or self.is_expired(reading):
            reading = self._read_with_parent(inode)
        return None if reading is None or self.is_expired(reading) else reading

    def look_up(self, parent: int, name: bytes) -> tuple[int, Attrs, float] | None:
        """Return inode and attributes of a remembered directory, and the seconds for which they stay valid; else None."""
        inode = self._inodes.named(parent, name)
        reading = None if inode is None else self.find_young(inode)
        if inode is None or reading is None or reading.attrs is None:
            return None
        left = self._ages.left(reading.asked)
        return (inode, reading.attrs, left) if left > 0 else None

    def find(self, inode: int) -> KnownListing | None:
        """Return the remembered contents of a directory, however old, or None. They count as used now."""
        reading = self._readings.get(inode)
        if reading is not None:
            self._readings.move_to_end(inode)
            reading.used.restart()
        return reading

    def peek(self, inode: int) -> KnownListing | None:
        """Return the remembered contents of a directory, however old, or None. They do not count as used."""
        return self._readings.get(inode)

    def remember(self, inode: int, reading: KnownListing) -> None:
        """Keep what a directory contains, unless the kernel has forgotten it meanwhile."""
        if not self._inodes.knows(inode):
            return
        self.forget(inode)
        self._readings[inode] = reading
        self.nbytes += reading.nbytes
        while self.nbytes > self._max_bytes and self._readings:
            self.forget(next(iter(self._readings)))
        self.expire()

    def doubt(self, inode: int | None) -> None:
        """Forget the contents of a directory and of all directories above it, because something there has changed."""
        while inode is not None and self._inodes.knows(inode):
            self.forget(inode)
            inode = None if inode == ROOT else self._inodes.parent(inode)

    def expire(self) -> None:
        """Forget expired directories, the least recently used first, up to the first one that has not expired.

        One that was used just now stays a little longer: its members are entered one after the other.
        """
        while self._readings:
            inode, reading = next(iter(self._readings.items()))
            if not self.is_expired(reading) or reading.used.seconds < USED_SECONDS:
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

    def is_expired(self, reading: KnownListing) -> bool:
        """True if what a directory contained is too old to be shown."""
        return not self._ages.may_show_again(reading.asked, reading.shown.extent)

    def _read_with_parent(self, inode: int) -> KnownListing | None:
        """Return the contents of a directory that were read together with the one above it, or None."""
        place = self._inodes.place(inode)
        above = None if place is None else self._readings.get(place.parent)
        if place is None or above is None or not above.below:
            return None
        before = above.nbytes
        reading = above.take(place.position if place.name is None else place.name)
        if reading is not None:
            self.nbytes -= before - above.nbytes
            self.remember(inode, reading)
        return reading


def read_directory(
    ages: Ages, limits: KernelLimits, node: Directory, attrs: Attrs | None = None, asked: float = math.inf
) -> KnownListing | None:
    """Read all of a directory; None if it is too large or takes long. Blocks; raises what the listing raises.

    `attrs`: its attributes, if the listing of the directory above gave them at the time `asked`.
    """
    with ages.begin_listing(node.extent) as answers:
        shown = node.refresh()  # this asks for the present state, so the attributes need not
        attrs = attrs or node.attrs()
        batches = all_batches(shown, limits)
    if batches is None:
        return None
    reading = KnownListing(node, shown, batches, min(asked, answers.oldest))
    reading.attrs = attrs
    return reading


def read_tree(ages: Ages, limits: KernelLimits, node: Directory) -> KnownListing | None:
    """Read all of a directory, and the directories below it if they are few; see `read_directory`.

    A walk of small arrays costs a third less than if each array's directory of chunks were read by a job of its own.
    """
    reading = read_directory(ages, limits, node)
    if reading is not None:
        _read_below(ages, limits, reading, reading, iter(range(BELOW_DIRECTORIES)))
    return reading


def _read_below(ages: Ages, limits: KernelLimits, top: KnownListing, reading: KnownListing, room: Iterator[int]) -> None:
    """Read the directories below `reading`, at most as many as `room` has left.

    Chunk directories of any depth are kept in `top`, the reading of the array's directory, and directories with names in
    the reading of the directory above them.
    """
    members = list(islice(_directories(reading), BELOW_DIRECTORIES + 1))
    if len(members) > BELOW_DIRECTORIES:
        return  # a program that enters them is followed
    for entry in members:
        if next(room, None) is None:
            return
        try:
            below = _read_member(ages, limits, reading, entry)
        except (FsbridgeError, OSError):
            continue  # the program that enters it meets the error
        if below is None:
            return
        if isinstance(entry.node, int):
            _read_below(ages, limits, top, below, room)
            top.keep(entry.node, below)
        else:
            _read_below(ages, limits, below, below, room)
            reading.keep(entry.name, below)


def _read_member(ages: Ages, limits: KernelLimits, reading: KnownListing, entry: Entry) -> KnownListing | None:
    if isinstance(entry.node, int):
        assert reading.shown.space is not None
        node = cast(Directory, reading.shown.space.node(entry.node))
        return read_directory(ages, limits, node, entry.attrs, reading.asked)
    assert entry.node is not None
    return read_directory(ages, limits, cast(Directory, entry.node()))


def _directories(reading: KnownListing) -> Iterator[Entry]:
    for batch in reading.batches:
        if not isinstance(batch, Numbered) or batch.kind == "directory":
            yield from (entry for entry in batch if entry.attrs.kind == "directory")
