"""Names of chunks in the store of a keyed array. Not here: which chunks are stored (`chunkfiles.py`).

A chunk key is accepted only in its canonical spelling. Files named `00`, `+1`, `1_0` or in Arabic digits are no chunks, and
neither are temporary files, metadata documents and numbers outside the grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, cast

from fsbridge.metadata import Index, parse_coordinate

SPREAD_NAMES = 64
"""`ChunkKeys.spread` returns at least this many names, if the grid has so many. Longer axes than its square are thinned."""


class ChunkKeys(NamedTuple):
    """The spelling of chunk keys: `prefix` is `c` in Zarr v3's default encoding, else empty.

    The key of a 0-D array's only chunk is the prefix, or `0` without one (N5, Zarr v2, Zarr v3's `v2` encoding).
    """

    separator: Literal["/", "."]
    prefix: Literal["", "c"] = ""

    @property
    def directory(self) -> str:
        """The directory below the array's own that holds all chunks; empty if that is the array's own directory."""
        return self.prefix if self.separator == "/" else ""

    def encode(self, index: Index) -> str:
        """Return the key of the chunk at `index`, relative to the array's own key."""
        if not index:
            return self.prefix or "0"
        below = self.separator.join(map(str, index))
        return f"{self.prefix}{self.separator}{below}" if self.prefix else below

    def decode(self, name: str, counts: Sequence[int]) -> Index | None:
        """Return the chunk with the key `name` in a grid of `counts`; None if no chunk has that key."""
        if not counts:
            return () if name == self.encode(()) else None
        start = f"{self.prefix}{self.separator}" if self.prefix else ""
        names = name.removeprefix(start).split(self.separator)
        if not name.startswith(start) or len(names) != len(counts):
            return None
        found = tuple(map(parse_coordinate, names, counts))
        return None if None in found else cast(Index, found)

    def spread(self, counts: Sequence[int]) -> list[str]:
        """Return dozens of beginnings of chunk names, spread evenly over a grid of `counts`, to split one long listing."""
        axes: list[range] = []
        for count in counts:
            if math.prod(map(len, axes)) >= SPREAD_NAMES:
                break
            axes.append(range(0, count, 1 + count // (SPREAD_NAMES * SPREAD_NAMES)))
        start = self.prefix if self.separator == "." else ""
        return [self.separator.join([*start, *map(str, index)]) for index in itertools.product(*axes)]
