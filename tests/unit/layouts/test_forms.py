"""Forms of chunk files: every range of every conversion equals what numpy makes of the whole chunk."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fsbridge.layouts.forms import ChunkForm, chunk_steps
from fsbridge.metadata import ArrayMetadata, ChunkGrid, DataType


@st.composite
def chunks(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int, bool, bytes]:
    """Full extents, the part that is shown, the memory order, bytes of an element, whether to swap them, and a header."""
    full = tuple(draw(st.lists(st.integers(1, 5), max_size=4)))
    shown = tuple(draw(st.integers(0, extent)) for extent in full)
    order = tuple(draw(st.permutations(range(len(full)))))
    itemsize = draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    return full, shown, order, itemsize, draw(st.booleans()) and itemsize in (2, 4, 8), draw(st.binary(max_size=9))


@given(chunks(), st.data())
def test_every_range_equals_the_whole(
    chunk: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int, bool, bytes], data: st.DataObject
) -> None:
    full, shown, order, itemsize, swap, header = chunk
    rank = len(full)
    metadata = ArrayMetadata(ChunkGrid(full, full), DataType("r", itemsize, None, "r"), order=order)
    values = np.random.default_rng(1).integers(0, 256, (*full, itemsize), np.uint8)
    decoded = values.transpose(*order, rank).tobytes()
    form = ChunkForm(header, shown, chunk_steps(metadata, full), itemsize, swap)
    part = values[tuple(map(slice, shown))]
    whole = header + (part[..., ::-1] if swap else part).tobytes()
    assert form.size == len(whole)
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    first, last = form.extent(start, stop)
    assert 0 <= first <= last <= len(decoded)
    assert bytes(form.convert(start, stop, decoded[first:last])) == whole[start:stop]


def test_a_plain_form_copies_nothing() -> None:
    form = ChunkForm(b"", (4, 5), (10, 2), 2)
    assert form.plain
    data = memoryview(bytes(40))[10:20]
    assert form.extent(10, 20) == (10, 20)
    assert form.convert(10, 20, data) is data


def test_one_row_of_a_transposed_chunk_needs_no_more_than_its_neighbourhood() -> None:
    form = ChunkForm(b"", (100, 100), (100, 1), 1)
    assert form.extent(0, 100) == (0, 100)
    assert ChunkForm(b"", (100, 50), (100, 1), 1).extent(50, 100) == (100, 150), "cropped: the second row only"
