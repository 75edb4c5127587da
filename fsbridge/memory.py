"""Memory for decoded chunks: which sizes are reused, and blocks in huge pages from which buffers of one size are cut.

Not here: who has a buffer, and how many there may be (`cache.py`).
"""

from __future__ import annotations

import contextlib
import mmap
import weakref
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

POOLED_BYTES = 64 * 1024
"""Buffers below this many bytes come from malloc, which reuses them well by itself."""

BLOCK_BYTES = 4 * 1024 * 1024
"""Bytes of memory from which several smaller buffers are cut: huge pages, of which their first touch costs a sixth."""

_PAGE_BYTES = 4096


class Slot(NamedTuple):
    """The memory of one buffer: its own, or a part of a block that holds several."""

    block: mmap.mmap
    start: int
    size: int

    def drop(self) -> None:
        """Give the memory back, although the rest of the block may be in use; nobody looks at it."""
        self.block.madvise(mmap.MADV_DONTNEED, self.start, self.size)


class Lent(weakref.ref[NDArray[np.uint8]]):
    """A buffer that somebody may be looking at. `slot`: where it lies, if it is pooled."""

    __slots__ = ("capacity", "slot")

    capacity: int
    slot: Slot | None


def capacity_of(size: int) -> int:
    """Bytes really taken by a buffer of `size` bytes."""
    return size if size < POOLED_BYTES else -(-size // _PAGE_BYTES) * _PAGE_BYTES


def fresh(capacity: int, count: int) -> list[Slot]:
    """Memory of our own in huge pages where the system has them: its first touch costs a sixth of that of small ones."""
    count = max(1, count)
    block = mmap.mmap(-1, capacity * count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        block.madvise(mmap.MADV_HUGEPAGE)
    return [Slot(block, capacity * number, capacity) for number in range(count)]
