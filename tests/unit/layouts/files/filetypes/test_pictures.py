"""What making a picture costs. Not here: what is in it (`arrays/test_extents.py`)."""

from __future__ import annotations

import tracemalloc

import numpy as np

from fsbridge.layouts.files.filetypes import pictures


def test_p6_a_picture_is_made_in_twice_its_bytes() -> None:
    """Besides those of the array."""
    elements = np.arange(2000 * 2000, dtype="<u2").reshape(2000, 2000)
    tracemalloc.start()
    try:
        found = pictures._png(elements, 1 << 30)
        assert tracemalloc.get_traced_memory()[1] < 2.3 * elements.nbytes
    finally:
        tracemalloc.stop()
    assert len(found) > elements.nbytes
