"""Read-ahead among the chunk directories of one array: which ones a walk will enter next.

Those directories are numbered, not named, and neighbours have neighbouring numbers, also where they hang in different
directories. Not here: reading them (`directories.py`), the files in them (`files.py`).
"""

from __future__ import annotations

DEPTH_DIRECTORIES = 64
"""Directories read ahead of one visitor: some milliseconds of work where they are small."""

GAP_DIRECTORIES = 4
"""Number of directories that a visitor may leave out and still be followed: they may not exist."""

BESIDE_MEMBERS, BESIDE_DIRECTORIES = 256, 8
"""Number of members from which on a directory keeps the kernel busy while the next ones are read, and how many are read."""

MAX_VISITORS = 8
"""Visitors of one level of directories that are followed at once."""

NOTHING = range(0)


class _Visitor:
    __slots__ = ("hits", "last", "stop")

    def __init__(self, position: int) -> None:
        self.last = position
        self.stop = position + 1  # all before it have been read, or were passed
        self.hits = 0


class Runs:
    """The visitors of the directories at `positions`, which are all of one depth."""

    def __init__(self, positions: range) -> None:
        self._positions = positions
        self._visitors: list[_Visitor] = []  # the latest visitor is the last

    def entered(self, position: int) -> range:
        """Return the directories to read now that the one at `position`, which has not been read, is entered."""
        visitor = min(
            (found for found in self._visitors if found.last <= position <= found.stop + GAP_DIRECTORIES),
            key=lambda found: position - found.last,
            default=None,
        )
        if visitor is None:
            self._visitors = [*self._visitors[1 - MAX_VISITORS :], _Visitor(position)]
            return NOTHING
        if position == visitor.last:
            return NOTHING
        visitor.last = position
        visitor.hits += 1
        depth = min(DEPTH_DIRECTORIES, 1 << min(visitor.hits, 20))
        visitor.stop = min(position + 1 + depth, self._positions.stop)
        return range(position, visitor.stop)

    def passed(self, position: int) -> range:
        """Return the directories to read in parallel if directories are large.

        The directory at `position` is being entered, and was read before.
        """
        for visitor in self._visitors:
            if visitor.last < position <= visitor.stop + GAP_DIRECTORIES:
                visitor.last = position
                visitor.stop = max(visitor.stop, min(position + 1 + BESIDE_DIRECTORIES, self._positions.stop))
                return range(position + 1, min(position + 1 + BESIDE_DIRECTORIES, self._positions.stop))
        return NOTHING
