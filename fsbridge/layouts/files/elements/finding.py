"""The chunks of one version of an array that readers of its files have found. Not here: their bytes (`supply.py`)."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TypeAlias, cast

from fsbridge.decoded import ArrayVersion, DecodedChunk
from fsbridge.metadata import Index
from fsbridge.model import Together

REMEMBERED_CHUNKS = 65536
"""Most chunks that an open file remembers, so that they are not looked up again at each read."""

Known: TypeAlias = OrderedDict[Index, DecodedChunk | None]
"""Chunks of one version of an array that have been looked up; None: the chunk is not stored."""


class FoundChunks:
    """The chunks that readers of one open file have found. Thread-safe."""

    def __init__(
        self,
        version: ArrayVersion,
        known: Known | None = None,
        together: Together = nullcontext,
    ) -> None:
        """`known`: chunks that other readers of this version have found. `together`: see `tree.together`."""
        self.version = version
        self.known: Known = OrderedDict() if known is None else known
        self._together = together

    def all(self, wanted: Sequence[Index]) -> dict[Index, DecodedChunk | None]:
        """Return the wanted chunks of this version; None for one that is not stored. Stale if the array has changed."""
        found: dict[Index, DecodedChunk | None] = {}
        for index in wanted:
            if (before := self.known.get(index, self)) is not self:  # itself: nothing is known
                found[index] = cast("DecodedChunk | None", before)
        missing = [index for index in dict.fromkeys(wanted) if index not in found]
        if missing:
            with self._together():
                opened = dict(zip(missing, self.version.open_all(missing), strict=True))
            found.update(opened)
            self.known.update(opened)
            while len(self.known) > REMEMBERED_CHUNKS:
                with contextlib.suppress(KeyError):  # others use it too
                    self.known.popitem(last=False)
        return found
