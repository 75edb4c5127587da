"""Numbers for the nodes in a tree of directories by coordinate, so that a listing needs no object for each node.

Pure. Not here: what the nodes are (`chunks.py`, `files/slices.py`), which inodes they get (`kernel/inodes.py`).
"""

from __future__ import annotations

import math
from bisect import bisect_right

from fsbridge.metadata import Index


class Numbering:
    """Nodes are numbered breadth first: 0 is the top directory, then each coordinate of the first axis, and so on.

    Each level is in C order. Numbers are exact Python integers, however large the grid.
    """

    __slots__ = ("counts", "levels")

    def __init__(self, counts: tuple[int, ...]) -> None:
        self.counts = counts
        sizes = [math.prod(counts[:level]) for level in range(len(counts) + 1)]
        self.levels = tuple(sum(sizes[:level]) for level in range(len(sizes) + 1))

    @property
    def size(self) -> int:
        """Number of positions."""
        return self.levels[-1]

    @property
    def rank(self) -> int:
        """Number of axes: the depth of the files."""
        return len(self.counts)

    def position(self, prefix: Index) -> int:
        """The number of the node at `prefix`."""
        linear = 0
        for coordinate, count in zip(prefix, self.counts, strict=False):
            linear = linear * count + coordinate
        return self.levels[len(prefix)] + linear

    def prefix(self, position: int) -> Index:
        """The coordinates of the node at `position`."""
        level = bisect_right(self.levels, position) - 1
        linear = position - self.levels[level]
        prefix = [0] * level
        for axis in range(level - 1, 0, -1):
            linear, prefix[axis] = divmod(linear, self.counts[axis])
        if level:
            prefix[0] = linear
        return tuple(prefix)

    def level(self, position: int) -> range:
        """Return the numbers of all nodes at the same depth as the node `position`."""
        depth = bisect_right(self.levels, position) - 1
        return range(self.levels[depth], self.levels[depth + 1])
