"""Open files and open directories of the mount: the handle table and the position in a listing.

Not here: requests and replies (`filesystem.py`), what the handles read (`tree.py`), the kernel's pages (`pages.py`). The
event loop's thread owns everything here; only `Listing.fetch` and `Listing.close` run on worker threads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from fsbridge.config import listed_lifetime
from fsbridge.tree import MAX_NAME, Contents, Dated, Directory, Entry, Handle, Numbered, Space

log = logging.getLogger(__name__)

T = TypeVar("T")

class HandleTable(Generic[T]):
    """Numbers for open things. Numbers are never given twice."""

    def __init__(self) -> None:
        self._open: dict[int, T] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._open)

    def __getitem__(self, number: int) -> T:
        return self._open[number]

    def get(self, number: int) -> T | None:
        """What `number` stands for, if it is open."""
        return self._open.get(number)

    def replace(self, number: int, thing: T) -> None:
        """Let an open number stand for `thing` from now on."""
        self._open[number] = thing

    def add(self, thing: T) -> int:
        """Number of a newly opened thing."""
        number = self._next
        self._next += 1
        self._open[number] = thing
        return number

    def pop(self, number: int) -> T:
        """Close a number."""
        return self._open.pop(number)


class OpenFile:
    """One open of a file, at `place` of a space if it is numbered.

    `unversioned`: its inode stands for several versions, so `PageVersions` watches it.
    """

    __slots__ = ("ahead", "ended", "followed", "handle", "inode", "place", "size", "unversioned", "version")

    def __init__(self, inode: int, handle: Handle, unversioned: bool, place: tuple[Space, int] | None = None) -> None:
        self.inode = inode
        self.place = place
        self.ended = False  # whether its last byte was read
        self.followed = 0  # where its reader is
        self.ahead = 0  # up to where its bytes were asked for before he did
        self.handle = handle
        self.size = handle.size
        self.version = handle.version
        self.unversioned = unversioned


class Listing:
    """One open directory: a stream of batches and the position in it. It holds one batch, however large the directory.

    Positions count entries; 0 is the beginning of a new listing.
    """

    def __init__(self, inode: int, directory: Directory) -> None:
        self.inode = inode
        self.directory = directory
        self.shown: Contents = directory
        """What this listing began to show; its entries are numbered by this one's space."""
        self.batch: Sequence[Entry] = ()
        self.start = 0
        """Position of the batch's first entry."""
        self.asked = 0.0
        """When the store was asked for the batch, by the monotonic clock."""
        self._stream: Iterator[Sequence[Entry]] | None = None
        self._ended = False

    def lifetime(self, ttl: float) -> float:
        """Seconds that the batch's entries stay valid from now on: what is left since the store was asked for them (P9)."""
        return max(0.0, listed_lifetime(ttl, self.shown.extent) - (time.monotonic() - self.asked))

    def at(self, position: int) -> bool:
        """Whether `batch` holds the entry at `position`, or the listing ends there."""
        return self._stream is not None and (
            self.start <= position < self.start + len(self.batch) or (self._ended and position >= self.start)
        )

    def fetch(self, position: int, rewind: bool) -> None:
        """Move the batch to `position` or towards it; `rewind` begins a new listing.

        Blocks: for a worker thread, one at a time. Returns early after an empty batch, with which a directory says that it
        is still at work: ask again.
        """
        if rewind or self._stream is None or position < self.start:
            self.shown = self.directory.present()
            self._stream = iter(self.shown.entries())
            self.batch, self.start, self._ended = (), 0, False
        while not self._ended and position >= self.start + len(self.batch):
            self.start += len(self.batch)
            self.batch = ()
            self.asked = time.monotonic()
            batch = next(self._stream, None)
            if batch is None:
                self._ended = True
            else:
                if isinstance(batch, Numbered | Dated):
                    self.asked = batch.asked
                self.batch = _showable(batch)
                if not batch:
                    return

    @property
    def holds(self) -> bool:
        """Whether the store may hold something open for this listing."""
        return self._stream is not None and not self._ended

    def close(self) -> None:
        """Drop the stream, and what the store holds open for it (may block)."""
        self._stream = None
        self.batch = ()


def _showable(batch: Sequence[Entry]) -> Sequence[Entry]:
    """The batch without names that would make the kernel refuse the whole listing."""
    if isinstance(batch, Numbered):
        return batch
    for entry in batch:
        name = entry.name
        if not _possible(name):
            log.warning("a listing has the impossible name %r; it is left out", name)
            return [entry for entry in batch if _possible(entry.name)]
    return batch


def _possible(name: bytes) -> bool:
    return 0 < len(name) <= MAX_NAME and b"/" not in name and b"\0" not in name and name not in (b".", b"..")
