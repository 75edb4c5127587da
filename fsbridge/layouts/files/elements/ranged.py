"""A part of a chunk by ranges of its bytes, for chunks that are too large to be decoded whole.

Not here: when it is read (`reading.py`), what a range costs (`model.Chunks.read_range`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.config import MIB

RANGE_BYTES = 8 * MIB
"""Most bytes that are read at once. They are in memory besides the cache."""

Ranges = Callable[[int, int], bytes]
"""Bytes [start, stop) of the chunk, or an error."""


def copy_part(
    out: NDArray[Any], source: Sequence[slice | int], shape: Sequence[int], order: Sequence[int], read: Ranges
) -> None:
    """Copy `chunk[source]` to `out`, dimensions in the array's order.

    `shape`: of the chunk; `order`: its dimensions, slowest first, as they lie in memory. `read` gets ranges from the first
    to the last wanted element. The region is split along its slowest dimensions until each range fits into `RANGE_BYTES`.
    """
    strides = [0] * len(shape)
    stride = out.itemsize
    for dimension in reversed(order):
        strides[dimension] = stride
        stride *= shape[dimension]
    picks = [
        (chosen, 1, 1) if isinstance(chosen, int) else (chosen.start, chosen.step or 1, _count(chosen, extent))
        for chosen, extent in zip(source, shape, strict=True)
    ]
    kept = [i for i, chosen in enumerate(source) if isinstance(chosen, slice)]
    _copy(out, [picks[i] for i in kept], [strides[i] for i in kept], [order.index(i) for i in kept],
          sum(picks[i][0] * strides[i] for i in range(len(picks)) if i not in kept), read)  # fmt: skip


def _copy(
    out: NDArray[Any],
    picks: list[tuple[int, int, int]],
    strides: list[int],
    ranks: list[int],
    base: int,
    read: Ranges,
) -> None:
    """Copy a part. `picks`: start, step and count for each dimension of `out`; `ranks`: its place in memory (0: slowest)."""
    if 0 in out.shape:
        return
    ends = [sorted((start * stride, (start + (count - 1) * step) * stride))
            for (start, step, count), stride in zip(picks, strides, strict=True)]  # fmt: skip
    low = base + sum(end[0] for end in ends)
    high = base + sum(end[1] for end in ends) + out.itemsize
    longest = [i for i in range(len(picks)) if picks[i][2] > 1]
    if high - low <= RANGE_BYTES or not longest:
        first = base + sum(start * stride for (start, _, _), stride in zip(picks, strides, strict=True))
        steps = [step * stride for (_, step, _), stride in zip(picks, strides, strict=True)]
        out[...] = np.ndarray(out.shape, out.dtype, read(low, high), first - low, steps)
        return
    split = min(longest, key=lambda i: ranks[i])
    start, step, count = picks[split]
    half = max(1, min(count // 2, RANGE_BYTES // max(1, abs(step) * strides[split])))
    for begin in range(0, count, half):
        some = min(half, count - begin)
        part = [*picks[:split], (start + begin * step, step, some), *picks[split + 1 :]]
        _copy(out[(slice(None),) * split + (slice(begin, begin + some),)], part, strides, ranks, base, read)


def _count(chosen: slice, extent: int) -> int:
    return len(range(*chosen.indices(extent)))
