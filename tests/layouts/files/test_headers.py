"""Headers of pictures by their formats' own readers: byte orders, types, ranks, axes of space and time, offsets."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import mrcfile
import nibabel
import numpy as np
import pytest

from fsbridge.formats.dtypes import data_type
from fsbridge.layouts.files.extents import FileMap, View
from fsbridge.layouts.files.headers.mrc import mrc
from fsbridge.layouts.files.headers.nii import nii
from fsbridge.layouts.files.selection import whole
from fsbridge.metadata import ArrayMetadata, Axes, Axis, ChunkGrid

AXES = (
    Axis("t", "second", 0.5, 3.0),
    Axis("z", "nanometer", 40.0, -80.0),
    Axis("y", "micrometer", -5.0, 100.0),
    Axis("x", "micrometer", 4.0, 0.25),
)
"""Spacing in several units, one of them backwards."""


def view(values: np.ndarray[Any, Any], axes: Axes, x_first: bool = False) -> View:
    metadata = ArrayMetadata(ChunkGrid(values.shape, values.shape), data_type(values.dtype))
    return View("a", metadata, whole(values.shape), axes, x_first)


def content(found: FileMap, values: np.ndarray[Any, Any]) -> bytes:
    """The file that this map describes."""
    assert found.elements is not None
    out = bytearray(found.size)
    for at, piece in found.pieces:
        out[at : at + len(piece)] = piece
    data = values.transpose(found.elements.order).astype(found.elements.dtype).tobytes()
    out[found.elements.offset : found.elements.offset + len(data)] = data
    return bytes(out)


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape)) % 100).reshape(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["u1", "i1", "<i2", ">u2", ">i4", "<u8", "<f4", ">f8", "<c8"])
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("x_first", [False, True])
def test_nifti_by_nibabel(dtype: str, rank: int, x_first: bool) -> None:
    axes = AXES[-rank:][::-1] if x_first else AXES[-rank:]
    values = numbers((2, 3, 4, 5)[-rank:], dtype)
    data = content(nii(view(values, axes, x_first)), values)
    image: Any = nibabel.Nifti1Image.from_bytes(data)
    np.testing.assert_array_equal(np.asarray(image.dataobj), values if x_first else values.T)
    assert image.get_data_dtype() == np.dtype(dtype)
    steps, starts = [4.0, -5.0, 0.04][:rank], [0.25, 100.0, -0.08][:rank]
    if rank < 3:
        steps, starts = [*steps, *[1.0] * (3 - rank)], [*starts, *[0.0] * (3 - rank)]
    affine = np.diag([*steps, 1.0])
    affine[:3, 3] = starts
    np.testing.assert_allclose(image.header.get_sform(), affine, rtol=1e-6)
    np.testing.assert_allclose(image.header.get_qform(), affine, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(image.header.get_zooms(), [4.0, 5.0, 0.04, 0.5][:rank], rtol=1e-6)
    assert image.header.get_xyzt_units() == ("micron", "sec" if rank == 4 else "unknown")
    assert (int(image.header["sform_code"]), int(image.header["qform_code"])) == (1, 1)


@pytest.mark.parametrize(
    ("unit", "told", "scale"),
    [("millimeter", "mm", 0.5), ("meter", "mm", 500.0), (None, "unknown", 0.5), ("parsec", "unknown", 0.5)],
)
def test_nifti_units(unit: str | None, told: str, scale: float) -> None:
    values = numbers((3, 4, 5), "<f4")
    header = nibabel.Nifti1Header.from_fileobj(io.BytesIO(content(nii(view(values, (Axis("x", unit, 0.5),) * 3)), values)))
    assert header.get_xyzt_units()[0] == told
    np.testing.assert_allclose(header.get_zooms(), [scale] * 3)


@pytest.mark.parametrize("dtype", ["u1", "i1", "<i2", ">i2", "<u2", ">f4", "<f4", "<f2", "<c8"])
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_mrc_by_mrcfile(dtype: str, rank: int, tmp_path: Path) -> None:
    values = numbers((2, 3, 4, 5)[-rank:], dtype)
    path = tmp_path / "a.mrc"
    path.write_bytes(content(mrc(view(values, AXES[-rank:])), values))
    with mrcfile.open(path) as file:
        np.testing.assert_array_equal(file.data, values)
        assert file.data.dtype.newbyteorder("=") == np.dtype("u2" if dtype == "u1" else dtype).newbyteorder("=")
        assert (file.is_single_image(), file.is_volume(), file.is_volume_stack()) == (rank == 2, rank == 3, rank == 4)
        expected = (40_000.0, 50_000.0, 400.0 if rank > 2 else 1.0)
        np.testing.assert_allclose(file.voxel_size.tolist(), expected, rtol=1e-6)
        starts = (2_500.0, 1_000_000.0, -800.0 if rank > 2 else 0.0)
        np.testing.assert_allclose(file.header.origin.tolist(), starts, rtol=1e-6)
    assert mrcfile.validate(path, print_file=io.StringIO())
