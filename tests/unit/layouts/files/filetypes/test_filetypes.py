"""Which formats fit: what is remembered of arrays that are alike is what each format says of each."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fsbridge.formats.dtypes import BYTES, STRING, data_type
from fsbridge.layouts.files import filetypes
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.selection import select_all
from fsbridge.layouts.files.filetypes import FILE_TYPES, reasons
from fsbridge.meaning import Axis, Meaning
from fsbridge.metadata import ArrayMetadata, ChunkGrid, DataType

NUMPY: list[str | list[tuple[str, str]]] = [
    "?",
    "u1",
    "i1",
    "<u2",
    ">u2",
    "<f2",
    "<f4",
    "<i8",
    "<f8",
    "<c16",
    "S5",
    "<U3",
    "V3",
    "S70000",
    [("a", "<u2"), ("b", "u1")],
]
DTYPES = [*(data_type(np.dtype(one)) for one in NUMPY), STRING, BYTES]
"""What the formats tell from each other."""

SHAPES = [
    *((), (1,), (9,), (2, 3), (4, 5, 6), (4, 5, 6, 7), (2,) * 5, (2,) * 6, (2,) * 7, (2,) * 8, (1,) * 11, (1,) * 17),
    *((0,), (0, 3), (2, 0, 0, 0), (3, 1, 0, 0), (2, 0, 1, 1), (0, 70000, 2, 2)),  # those in the middle are like truths
    *((32767,), (32768,), (32767, 3), (3, 32768), (32767, 32767), (32767, 32767, 32767)),  # NIfTI
    *((65536, 3, 3), (3, 3, 65537), (256, 256, 3, 3), (257, 256, 3, 3), (3, 3, 257, 256), (65, 3, 3, 1024)),  # pages
    *((32, 32768), (1024, 1024), (1025, 1024), (16, 256, 257), (4096, 4096), (4096, 4097)),  # text
    *((16384, 16384), (16384, 16383), (16385, 16384), (23170, 23170), (23171, 23171), (3, 30000, 30000)),  # PNG
    *((2, 2**31 - 1), (2, 2**31), (2**31 - 1,), (2**31,), (65536, 65536, 1, 1), (2, 65536, 65536)),  # TIFF, MRC
    *((2**60,), (2**61,), (2**62,), (2**63 - 1,), (2**31, 2**31), (2**31, 2**32)),  # HDF5, files
]
"""On both sides of all limits, where rank allows it."""


def make_view(shape: tuple[int, ...], dtype: DataType, x_first: bool = False, reverse: bool = False) -> View:
    order = tuple(reversed(range(len(shape)))) if reverse else None
    metadata = ArrayMetadata(ChunkGrid(shape, (1,) * len(shape)), dtype, order=order)
    return View("a", metadata, select_all(shape), Meaning((Axis(),) * len(shape)), x_first)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("x_first", [False, True])
def test_formats_say_the_same_of_each_array_whichever_came_before(x_first: bool, backwards: bool) -> None:
    shapes = sorted(SHAPES, key=lambda shape: (len(shape), math.prod(shape)), reverse=backwards)
    filetypes._reasons.cache_clear()
    for dtype in DTYPES:
        for shape in shapes:
            one = make_view(shape, dtype, x_first, x_first)
            assert reasons(one) == {suffix: kind.refusal(one) for suffix, kind in FILE_TYPES.items()}, (shape, dtype)


def test_formats_are_asked_once_for_arrays_that_differ_in_shape_only() -> None:
    """They lie on the same side of the limits of all file types."""
    filetypes._reasons.cache_clear()
    for number in range(1, 30):
        reasons(make_view((number, 512, 400 + number), DTYPES[3]))
    assert filetypes._reasons.cache_info().misses == 1


@pytest.mark.parametrize(
    ("shape", "fits"),
    [((46341, 3, 3), True), ((2**31 - 1, 1, 1), True), ((2**31, 1, 1), False), ((2, 2**30, 1, 1), False), ((1, 9), True)],
)
def test_mrc_holds_as_many_sections_as_its_header_can_say(shape: tuple[int, ...], fits: bool) -> None:
    """The square of a volume's sections was taken: 46,341 of them were too many."""
    assert (reasons(make_view(shape, data_type(np.dtype("<i2"))))["mrc"] is None) == fits


def test_a_row_of_numbers_is_no_image() -> None:
    """Latitudes had `.nii`, `.mha` and `.envi` beside the two files that matter."""
    images = ("nii", "mha", "raw.mhd", "mrc", "envi", "envi.hdr", "tif", "ome.tif")
    for shape, fits in (((36,), False), ((36, 3), True)):
        found = reasons(make_view(shape, data_type(np.dtype("<f4"))))
        assert [found[suffix] is None for suffix in images] == [fits] * len(images)
        assert found["csv"] is found["npy"] is found["nrrd"] is None
