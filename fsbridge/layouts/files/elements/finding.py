"""The chunks of one version of an array that readers of its files have found. Not here: their bytes (`supply.py`)."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TypeAlias, cast

from fsbridge.decoded import ArrayVersion, DecodedChunk
from fsbridge.errors import Stale
from fsbridge.metadata import Index
from fsbridge.model import AtOnce
from fsbridge.owner import READ_MODE, Owner, restricted

REMEMBERED_CHUNKS = 65536
"""Chunks of which an open file remembers what it found, so that they are not looked for again at each read."""

Known: TypeAlias = OrderedDict[Index, DecodedChunk | None]
"""What was found of chunks in one version of an array; None: the chunk is not stored."""


class FoundChunks:
    """The chunks that readers of one open file have found. Thread-safe."""

    def __init__(
        self,
        version: ArrayVersion,
        known: Known | None = None,
        owner: Owner | None = None,
        narrow: Callable[[Owner | None], None] = lambda owner: None,
        together: AtOnce = nullcontext,
    ) -> None:
        """`known`: what has been found of this version by others. `owner`: who may read the file, where others are let in;
        `narrow` is told when a chunk is for fewer. `together`: see `tree.together`.
        """
        self.version = version
        self.known: Known = OrderedDict() if known is None else known
        self._owner = owner
        self._narrow = narrow
        self._together = together

    def all(self, wanted: Sequence[Index]) -> dict[Index, DecodedChunk | None]:
        """Chunks in this version of the array; None where one is not stored. Raises Stale if that has changed."""
        found: dict[Index, DecodedChunk | None] = {}
        for index in wanted:
            if (before := self.known.get(index, self)) is not self:  # itself: nothing is known
                found[index] = cast("DecodedChunk | None", before)
        missing = [index for index in dict.fromkeys(wanted) if index not in found]
        if missing:
            with self._together():
                opened = dict(zip(missing, self.version.open_all(missing), strict=True))
            for chunk in opened.values():
                self._check(chunk)
            found.update(opened)
            self.known.update(opened)
            while len(self.known) > REMEMBERED_CHUNKS:
                with contextlib.suppress(KeyError):  # others use it too
                    self.known.popitem(last=False)
        return found

    def _check(self, found: DecodedChunk | None) -> None:
        """Stale where a chunk's owner lets fewer read it than the file's: nobody here knows who does."""
        owner = self._owner
        if owner is None or found is None:
            return
        narrower = restricted(owner, found.info.owner)
        if narrower is None or narrower.mode & READ_MODE != owner.mode & READ_MODE:
            self._narrow(narrower)
            raise Stale(f"chunk {found.index} may be read by fewer users than the array's files, which are for these now")
