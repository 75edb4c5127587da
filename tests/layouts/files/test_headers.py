"""Headers of pictures by their formats' own readers: byte orders, types, ranks, axes of space and time, offsets."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import mrcfile
import nibabel
import numpy as np
import pytest
import SimpleITK
import tifffile

from fsbridge.formats.dtypes import data_type
from fsbridge.layouts.files.extents import FileMap, View
from fsbridge.layouts.files.headers.meta import mha
from fsbridge.layouts.files.headers.mrc import mrc
from fsbridge.layouts.files.headers.nii import nii
from fsbridge.layouts.files.headers.nrrd import nrrd
from fsbridge.layouts.files.headers.tiff import ome, tif
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


def test_nifti_takes_the_smaller_of_two_units_and_seconds() -> None:
    micrometers = Axis("x", "micrometer", 4.0)
    axes = (Axis("t", "millisecond", 500.0), Axis("z", "millimeter", 0.04), micrometers, micrometers)
    values = numbers((2, 3, 4, 5), "<f4")
    header = nibabel.Nifti1Header.from_fileobj(io.BytesIO(content(nii(view(values, axes)), values)))
    assert header.get_xyzt_units() == ("micron", "sec")
    np.testing.assert_allclose(header.get_zooms(), [4.0, 4.0, 40.0, 0.5], rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Setting the dtype on a NumPy array:DeprecationWarning")  # mrcfile 1.5.4, numpy 2.5
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


@pytest.mark.parametrize("dtype", ["u1", "i1", "<i2", ">u2", "<i4", ">f4", "<f8"])
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("suffix", ["mha", "nrrd"])
def test_meta_and_nrrd_by_itk(dtype: str, rank: int, suffix: str, tmp_path: Path) -> None:
    values = numbers((3, 4, 5)[-rank:], dtype)
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(content({"mha": mha, "nrrd": nrrd}[suffix](view(values, AXES[-rank:])), values))
    image = SimpleITK.ReadImage(str(path))
    np.testing.assert_array_equal(SimpleITK.GetArrayFromImage(image), values)
    unit = 1e-3 if suffix == "mha" else 1.0  # MetaImage is in millimeters, NRRD in the unit of x
    vectors = np.array(image.GetDirection()).reshape(rank, rank) @ np.diag(image.GetSpacing())
    np.testing.assert_allclose(vectors, np.diag([4.0, -5.0, 0.04][:rank]) * unit, rtol=1e-6)
    np.testing.assert_allclose(image.GetOrigin(), np.array([0.25, 100.0, -0.08][:rank]) * unit, rtol=1e-6)


NAMED = {axis.name: axis for axis in AXES} | {"c": Axis("c", None, None)}


@pytest.mark.parametrize("dtype", ["u1", "<u2", ">u2", ">f4"])
@pytest.mark.parametrize("names", ["yx", "zyx", "tyx", "cyx", "tzyx", "ztyx", "czyx", "tczyx", "ctzyx"])
def test_imagej_tiff_by_tifffile(dtype: str, names: str, tmp_path: Path) -> None:
    shape = tuple({"t": 2, "c": 3, "z": 4, "y": 5, "x": 6}[name] for name in names)
    values = numbers(shape, dtype)
    path = tmp_path / "a.tif"
    path.write_bytes(content(tif(view(values, tuple(NAMED[name] for name in names))), values))
    with tifffile.TiffFile(path) as file:
        assert file.is_imagej
        assert file.byteorder == (">" if dtype[0] == ">" else "<")
        (series,) = file.series
        told = file.imagej_metadata or {}
        found, page = series.asarray(), file.pages[0]
        order = series.axes.lower()
    assert sorted(order) == sorted(names)
    np.testing.assert_array_equal(found, values.transpose([names.index(letter) for letter in order]))
    unit = 1e3 if "z" in names else 1.0  # the nanometers of z, or the micrometers of y
    across = [page.tags[name].value for name in ("XResolution", "YResolution")]
    np.testing.assert_allclose([below / above for above, below in across], [4 * unit, 5 * unit], rtol=1e-6)
    assert told.get("spacing") == (40.0 if "z" in names else None)
    assert told.get("finterval") == (0.5 if "t" in names else None)


@pytest.mark.parametrize("dtype", ["u1", ">u2", "<f4"])
@pytest.mark.parametrize("names", ["yx", "zyx", "tzyx", "tczyx", "cztyx"])
def test_ome_tiff_by_tifffile(dtype: str, names: str, tmp_path: Path) -> None:
    shape = tuple({"t": 2, "c": 3, "z": 4, "y": 5, "x": 6}[name] for name in names)
    values = numbers(shape, dtype)
    path = tmp_path / "a.ome.tif"
    path.write_bytes(content(ome(view(values, tuple(NAMED[name] for name in names))), values))
    with tifffile.TiffFile(path) as file:
        assert file.is_ome
        (series,) = file.series
        found, order = series.asarray(), series.axes.lower()
        pixels = tifffile.xml2dict(file.ome_metadata or "")["OME"]["Image"]["Pixels"]
    np.testing.assert_array_equal(found, values.transpose([names.index(letter) for letter in order]))
    sizes = {"z": (40, "nm"), "y": (5, "µm"), "x": (4, "µm")}
    for name, (size, unit) in sizes.items():
        expected = (size, unit) if name in names else (None, None)
        assert (pixels.get(f"PhysicalSize{name.upper()}"), pixels.get(f"PhysicalSize{name.upper()}Unit")) == expected
    assert (pixels.get("TimeIncrement"), pixels.get("TimeIncrementUnit")) == ((0.5, "s") if "t" in names else (None, None))
