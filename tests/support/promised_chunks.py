"""A chunk of the store that promises are tested with. Not here: the promises."""

from __future__ import annotations

import numpy as np

SHAPE = (40, 30)


def chunk(values: np.ndarray, i: int, j: int) -> bytes:
    return np.ascontiguousarray(values[i * 10 : (i + 1) * 10, j * 10 : (j + 1) * 10]).tobytes()
