"""Headers of pictures by their formats' own readers, and what a header cannot say of odd spacing, units and names."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import mrcfile
import nibabel
import numpy as np
import pytest
import SimpleITK
import tifffile
import tree_walker
from fake_model import FakeGroup, fake_array, tree

from fsbridge.formats.dtypes import data_type
from fsbridge.layouts.files.arrays.element_bytes import find_conversion
from fsbridge.layouts.files.arrays.extents import FileMap, Recorder, View
from fsbridge.layouts.files.arrays.selection import parse_region, select_all
from fsbridge.layouts.files.filetypes.envi import envi_header
from fsbridge.layouts.files.filetypes.meta import mha
from fsbridge.layouts.files.filetypes.mrc import mrc
from fsbridge.layouts.files.filetypes.nii import nii
from fsbridge.layouts.files.filetypes.nrrd import nrrd
from fsbridge.layouts.files.filetypes.tiff import ome, tif
from fsbridge.meaning import Axes, Axis
from fsbridge.meaning.convention import Written
from fsbridge.meaning.reading import read_array
from fsbridge.metadata import JSON, ArrayMetadata, ChunkGrid
from fsbridge.tree import Directory

AXES = (
    Axis("t", "second", 0.5, 3.0),
    Axis("z", "nanometer", 40.0, -80.0),
    Axis("y", "micrometer", -5.0, 100.0),
    Axis("x", "micrometer", 4.0, 0.25),
)
"""Spacing in several units, one of them backwards."""


def make_view(
    values: np.ndarray[Any, Any], axes: Axes, x_first: bool = False, attributes: dict[str, JSON] | None = None
) -> View:
    grid = ChunkGrid(values.shape, values.shape)
    metadata = ArrayMetadata(grid, data_type(values.dtype), attributes=attributes or {})
    return View("a", metadata, select_all(values.shape), replace(read_array(Written(metadata)), axes=axes), x_first)


def make_content(found: FileMap, values: np.ndarray[Any, Any]) -> bytes:
    """The file that this map describes, with elements converted as the product does."""
    assert found.elements is not None
    out = bytearray(found.size)
    for at, piece in found.pieces:
        out[at : at + len(piece)] = piece
    convert = find_conversion(values.dtype, found.elements.dtype)
    stored = np.ascontiguousarray(values.transpose(found.elements.order))
    data = (stored if convert is None else convert(stored)).tobytes()
    out[found.elements.offset : found.elements.offset + len(data)] = data
    return bytes(out)


def make_numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape)) % 100).reshape(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["u1", "i1", "<i2", ">u2", ">i4", "<u8", "<f4", ">f8", "<c8"])
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("x_first", [False, True])
def test_nibabel_reads_nifti_with_spacing_and_places(dtype: str, rank: int, x_first: bool) -> None:
    axes = AXES[-rank:][::-1] if x_first else AXES[-rank:]
    values = make_numbers((2, 3, 4, 5)[-rank:], dtype)
    data = make_content(nii(make_view(values, axes, x_first)), values)
    image: Any = nibabel.Nifti1Image.from_bytes(data)
    np.testing.assert_array_equal(np.asarray(image.dataobj), values if x_first else values.T)
    assert image.get_data_dtype() == np.dtype(dtype)
    steps, starts = [4e-3, -5e-3, 4e-5][:rank], [0.25e-3, 0.1, -8e-5][:rank]
    if rank < 3:
        steps, starts = [*steps, *[1.0] * (3 - rank)], [*starts, *[0.0] * (3 - rank)]
    affine = np.diag([*steps, 1.0])
    affine[:3, 3] = starts
    affine[:2] *= -1  # to the right and to the front
    np.testing.assert_allclose(image.header.get_sform(), affine, rtol=1e-6)
    np.testing.assert_allclose(image.header.get_qform(), affine, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(image.header.get_zooms(), [4e-3, 5e-3, 4e-5, 0.5][:rank], rtol=1e-6)
    assert image.header.get_xyzt_units() == ("mm", "sec" if rank == 4 else "unknown")
    assert (int(image.header["sform_code"]), int(image.header["qform_code"])) == (1, 1)


def nifti_header(data: bytes) -> Any:
    image: Any = nibabel.Nifti1Image.from_bytes(data)
    return image.header


def read_by_itk(path: Path) -> Any:
    """ITK's image, an object of a class without types."""
    return SimpleITK.ReadImage(str(path))


@pytest.mark.parametrize(
    ("unit", "told", "scale"),
    [("millimeter", "mm", 0.5), ("meter", "mm", 500.0), (None, "unknown", 0.5), ("parsec", "unknown", 0.5)],
)
def test_nifti_has_lengths_in_millimeters_if_the_unit_is_known(unit: str | None, told: str, scale: float) -> None:
    values = make_numbers((3, 4, 5), "<f4")
    header = nifti_header(make_content(nii(make_view(values, (Axis("x", unit, 0.5),) * 3)), values))
    assert header.get_xyzt_units()[0] == told
    np.testing.assert_allclose(header.get_zooms(), [scale] * 3)


def test_nifti_has_millimeters_and_seconds() -> None:
    micrometers = Axis("x", "micrometer", 4.0)
    axes = (Axis("t", "millisecond", 500.0), Axis("z", "millimeter", 0.04), micrometers, micrometers)
    values = make_numbers((2, 3, 4, 5), "<f4")
    header = nifti_header(make_content(nii(make_view(values, axes)), values))
    assert header.get_xyzt_units() == ("mm", "sec")
    np.testing.assert_allclose(header.get_zooms(), [4e-3, 4e-3, 0.04, 0.5], rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Setting the dtype on a NumPy array:DeprecationWarning")  # mrcfile 1.5.4, numpy 2.5
@pytest.mark.parametrize("dtype", ["u1", "i1", "<i2", ">i2", "<u2", ">f4", "<f4", "<f2", "<c8"])
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_mrcfile_reads_mrc_with_spacing_and_origin(dtype: str, rank: int, tmp_path: Path) -> None:
    values = make_numbers((2, 3, 4, 5)[-rank:], dtype)
    path = tmp_path / "a.mrc"
    path.write_bytes(make_content(mrc(make_view(values, AXES[-rank:])), values))
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
def test_itk_reads_meta_image_and_nrrd_with_spacing_and_places(dtype: str, rank: int, suffix: str, tmp_path: Path) -> None:
    values = make_numbers((3, 4, 5)[-rank:], dtype)
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(make_content({"mha": mha, "nrrd": nrrd}[suffix](make_view(values, AXES[-rank:])), values))
    image = read_by_itk(path)
    np.testing.assert_array_equal(SimpleITK.GetArrayFromImage(image), values)
    vectors = np.array(image.GetDirection()).reshape(rank, rank) @ np.diag(image.GetSpacing())
    np.testing.assert_allclose(vectors, np.diag([4.0, -5.0, 0.04][:rank]) * 1e-3, rtol=1e-6)
    np.testing.assert_allclose(image.GetOrigin(), np.array([0.25, 100.0, -0.08][:rank]) * 1e-3, rtol=1e-6)


NAMED = {axis.name: axis for axis in AXES} | {"c": Axis("c", None, None)}


@pytest.mark.parametrize("dtype", ["u1", "<u2", ">u2", ">f4", "<f8", ">u4"])
@pytest.mark.parametrize("names", ["yx", "zyx", "tyx", "cyx", "tzyx", "ztyx", "czyx", "tczyx", "ctzyx"])
def test_tifffile_reads_imagej_tiff_with_axes_and_spacing(dtype: str, names: str, tmp_path: Path) -> None:
    shape = tuple({"t": 2, "c": 3, "z": 4, "y": 5, "x": 6}[name] for name in names)
    values = make_numbers(shape, dtype)
    path = tmp_path / "a.tif"
    path.write_bytes(make_content(tif(make_view(values, tuple(NAMED[name] for name in names))), values))
    with tifffile.TiffFile(path) as file:
        assert file.is_imagej
        assert file.byteorder == (">" if dtype[0] == ">" else "<")
        (series,) = file.series
        told = file.imagej_metadata or {}
        found, page = series.asarray(), file.pages.first
        order = series.axes.lower()
    if names == "cyx" and dtype == "u1":
        assert (order, page.photometric) == ("yxs", tifffile.PHOTOMETRIC.RGB), "a colour picture"
        order = "yxc"
    assert sorted(order) == sorted(names)
    np.testing.assert_array_equal(found, values.transpose([names.index(letter) for letter in order]))
    across = [page.tags[name].value for name in ("XResolution", "YResolution")]
    np.testing.assert_allclose([below / above for above, below in across], [4, 5], rtol=1e-6)
    assert told.get("spacing") == (0.04 if "z" in names else None)
    assert told.get("finterval") == (0.5 if "t" in names else None)


@pytest.mark.parametrize("dtype", ["u1", ">u2", "<f4"])
@pytest.mark.parametrize("names", ["yx", "zyx", "tzyx", "tczyx", "cztyx"])
def test_tifffile_reads_ome_tiff_with_axes_and_spacing(dtype: str, names: str, tmp_path: Path) -> None:
    shape = tuple({"t": 2, "c": 3, "z": 4, "y": 5, "x": 6}[name] for name in names)
    values = make_numbers(shape, dtype)
    path = tmp_path / "a.ome.tif"
    path.write_bytes(make_content(ome(make_view(values, tuple(NAMED[name] for name in names))), values))
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


PLACED = {
    "t": Axis("t", "millisecond", 1500.0, 2000.0),
    "c": Axis("c", None, None),
    "z": Axis("z", "nanometer", 500.0, 20_000.0),
    "y": Axis("y", "micrometer", -0.2, 10.0),
    "x": Axis("x", "micrometer", 0.1, 5.0),
}
EXTENTS = {"t": 2, "c": 3, "z": 4, "y": 5, "x": 6}
PLACES = {"x": 5.0e-3 + 3 * 0.1e-3, "y": 10.0e-3 - 2 * 0.2e-3, "z": 20.0e-3 + 0.5e-3}
"""In millimeters, of the element x=3, y=2, z=1."""


def read_placed(names: str, suffix: str, folder: Path, x_first: bool, unit: bool = True) -> tuple[Any, np.ndarray[Any, Any]]:
    """ITK's image of an array with such axes, and the array with its axes in the order of `names`."""
    values = make_numbers(tuple(EXTENTS[name] for name in names), "<u2")
    axes = tuple(PLACED[name] if unit else Axis(name, None, *PLACED[name][2:]) for name in names)
    path = folder / f"a.{suffix}"
    path.write_bytes(make_content({"mha": mha, "nrrd": nrrd, "nii": nii}[suffix](make_view(values, axes, x_first)), values))
    return read_by_itk(path), values


@pytest.mark.parametrize("suffix", ["mha", "nrrd", "nii"])
@pytest.mark.parametrize(
    ("names", "x_first"),
    [("zyx", False), ("yx", False), ("xyz", True), ("xyz", False), ("tzyx", False), ("czyx", False), ("tczyx", False),
     ("xyczt", True), ("xyzt", True), ("zyxt", False)],
)  # fmt: skip
def test_an_element_has_the_same_place_in_every_format(names: str, x_first: bool, suffix: str, tmp_path: Path) -> None:
    """NIfTI was mirrored, NRRD was in the source's unit, and lost its origin beside times and channels."""
    image, values = read_placed(names, suffix, tmp_path, x_first)
    at = {"x": 3, "y": 2, "z": 1, "t": 1, "c": 2}
    found = SimpleITK.GetArrayFromImage(image)
    element = values[tuple(at[name] for name in names)]
    spaces = [name for name in "xyz" if name in names]
    if suffix == "nii":
        dimensions = ["x", "y", "z", "t", "c"][: image.GetDimension()]
    else:
        own = [name for name in (names if x_first else names[::-1]) if name in "tc"]
        dimensions = own + spaces if names == "zyxt" else spaces + own
        if names == "xyczt":
            dimensions = ["x", "y", "c", "z", "t"]
    assert found[tuple(at[name] if name in names else 0 for name in dimensions[::-1])] == element
    place = image.TransformIndexToPhysicalPoint([at[name] if name in names else 0 for name in dimensions])
    shown = {name: place[dimensions.index(name)] for name in spaces}
    assert shown == pytest.approx({name: PLACES[name] for name in spaces}, rel=1e-5)
    if "t" in names:
        where = dimensions.index("t")
        assert image.GetSpacing()[where] == pytest.approx(1.5 if suffix == "nii" else 1500.0)


@pytest.mark.parametrize("suffix", ["mha", "nrrd", "nii"])
def test_places_without_units_are_the_sources_numbers(suffix: str, tmp_path: Path) -> None:
    image, _ = read_placed("zyx", suffix, tmp_path, x_first=False, unit=False)
    assert image.TransformIndexToPhysicalPoint((3, 2, 1)) == pytest.approx((5.3, 9.6, 20_500.0), rel=1e-6)


@pytest.mark.parametrize(
    ("names", "shape"),
    [
        ("tczyx", (6, 5, 4, 2, 3)),
        ("cztyx", (6, 5, 4, 2, 3)),
        ("czyx", (6, 5, 4, 1, 3)),
        ("tyx", (6, 5, 1, 2)),
        ("cyx", (6, 5, 1, 1, 3)),
        ("yxc", (6, 5, 1, 1, 3)),
        ("xyz", (6, 5, 4)),
    ],
)
def test_nifti_has_time_fourth_and_channels_fifth(names: str, shape: tuple[int, ...]) -> None:
    """All came in the source's order: programs took channels for times."""
    values = make_numbers(tuple(EXTENTS[name] for name in names), "<u2")
    data = make_content(nii(make_view(values, tuple(PLACED[name] for name in names))), values)
    image: Any = nibabel.Nifti1Image.from_bytes(data)
    assert image.shape == shape
    present = [name for name, extent in zip("xyztc", shape, strict=False) if extent > 1]
    expected = values.transpose([names.index(name) for name in present])
    np.testing.assert_array_equal(np.asarray(image.dataobj).squeeze(), expected)
    if "t" in names:
        assert image.header.get_xyzt_units()[1] == "sec"
        assert (image.header.get_zooms()[3], float(image.header["toffset"])) == (1.5, 2.0)


def test_nifti_of_axes_without_names_and_of_too_many_channels_stays_as_it_is() -> None:
    values = make_numbers((2, 3, 4, 5), "<u2")
    assert nibabel.Nifti1Image.from_bytes(make_content(nii(make_view(values, (Axis(),) * 4)), values)).shape == (5, 4, 3, 2)
    axes = (Axis("c"), Axis("band"), Axis("rgb"), Axis("y"), Axis("x"))
    three = make_numbers((2, 3, 2, 4, 5), "<u2")
    image = nibabel.Nifti1Image.from_bytes(make_content(nii(make_view(three, axes)), three))
    assert image.shape == (5, 4, 1, 1, 2, 3, 2)
    four = make_numbers((2, 2, 3, 2, 4), "<u2")
    image = nibabel.Nifti1Image.from_bytes(make_content(nii(make_view(four, (Axis("s"), *axes[:3], Axis("x")))), four))
    assert image.shape == (4, 2, 3, 2, 2)


@pytest.mark.parametrize("dtype", [">i2", ">f4", ">u2", ">c8", "<u2"])
def test_mrc_is_little_endian_whatever_the_source_is(dtype: str) -> None:
    values = make_numbers((3, 4, 5), dtype)
    data = make_content(mrc(make_view(values, AXES[1:])), values)
    assert data[212:216] == b"DD\0\0"
    assert data[1024:] == values.astype(values.dtype.newbyteorder("<")).tobytes()


@pytest.mark.parametrize("dtype", ["u1", "<u2", ">i2", "<f4"])
def test_packed_numbers_are_described_with_factor_and_offset(dtype: str, tmp_path: Path) -> None:
    values = make_numbers((3, 4, 5), dtype)
    shown = make_view(values, AXES[1:], attributes={"scale_factor": 0.25, "add_offset": -3.5})
    quantity = values.astype("f8") * 0.25 - 3.5
    image: Any = nibabel.Nifti1Image.from_bytes(make_content(nii(shown), values))
    np.testing.assert_array_equal(image.get_fdata(), quantity.T)
    (tmp_path / "a.nii").write_bytes(make_content(nii(shown), values))
    np.testing.assert_array_equal(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(tmp_path / "a.nii"))), quantity)
    header = make_content(mha(shown), values)
    assert b"ElementToIntensityFunctionSlope = 0.25\nElementToIntensityFunctionOffset = -3.5\n" in header
    (tmp_path / "a.mha").write_bytes(header)
    np.testing.assert_array_equal(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(tmp_path / "a.mha"))), values)
    lines = make_content(nrrd(shown), values).partition(b"\n\n")[0].splitlines()
    told = dict(line.split(b": ", 1) for line in lines if line.startswith(b"old "))
    if dtype in ("u1", "<u2"):  # the middle of the first interval is what a zero stands for
        width = (float(told[b"old max"]) - float(told[b"old min"])) / 2 ** (8 * values.itemsize)
        assert (width, float(told[b"old min"]) + width / 2) == (0.25, -3.5)
    else:
        assert told == {}


UNPLACED = Axis("z", "micrometer")
"""An axis with a unit, but without a regular spacing: irregular depths, or an affine transformation."""


@pytest.mark.parametrize("axes", [(UNPLACED,) * 3, (UNPLACED, Axis("y", "micrometer", 2.0), Axis("x", "micrometer", 2.0))])
def test_unknown_spacing_is_not_one_unit(axes: Axes, tmp_path: Path) -> None:
    values, placed = make_numbers((3, 4, 5), "<u2"), axes[1].scale is not None
    image: Any = nibabel.Nifti1Image.from_bytes(make_content(nii(make_view(values, axes)), values))
    assert image.header.get_xyzt_units()[0] == "unknown"
    assert (int(image.header["sform_code"]), int(image.header["qform_code"])) == (0, 0)
    with tifffile.TiffFile(io.BytesIO(make_content(tif(make_view(values, axes)), values))) as file:
        said = file.imagej_metadata or {}
        units = ("micron", "pixel") if placed else (None, None)
        assert (said.get("unit"), said.get("zunit"), said.get("spacing")) == (*units, None)
    (tmp_path / "a.mrc").write_bytes(make_content(mrc(make_view(values, axes)), values))
    with mrcfile.open(tmp_path / "a.mrc") as volume:
        assert volume.voxel_size.tolist() == ((20000.0, 20000.0, 0.0) if placed else (0.0, 0.0, 0.0))
        np.testing.assert_array_equal(volume.data, values)
    for write in (nrrd, mha):
        path = tmp_path / f"a.{write.__name__}"
        path.write_bytes(make_content(write(make_view(values, axes)), values))
        read = read_by_itk(path)
        assert read.GetSpacing() == ((0.002, 0.002, 1.0) if placed else (1.0, 1.0, 1.0))
        np.testing.assert_array_equal(SimpleITK.GetArrayFromImage(read), values)
    header, _ = nrrd_header(tmp_path / "a.nrrd")
    assert ("spacings: 0.002 0.002 nan" in header, "space" in header) == (placed, False)


def nrrd_header(path: Path) -> tuple[str, bytes]:
    head, _, rest = path.read_bytes().partition(b"\n\n")
    return head.decode(), rest


def test_bands_are_named_by_their_positions_only_if_these_are_known() -> None:
    values = make_numbers((3, 4, 5), "<u2")
    unknown = make_view(values, (Axis("depth", "meter"), Axis("y"), Axis("x")))
    uneven = replace(unknown, meaning=replace(unknown.meaning, positions={0: np.array([0.5, 5.0, 500.0])}))
    texts = [dict(envi_header(shown).pieces)[0] for shown in (unknown, uneven)]
    assert b"band names" not in texts[0]
    assert b"band names = {depth 0.5 meter, depth 5 meter, depth 500 meter}\n" in texts[1]


def test_steps_of_a_region_are_no_spacing_where_none_is_known() -> None:
    assert parse_region("1::2", (10,)).cut_axes((UNPLACED,)) == (UNPLACED,)


def test_frames_without_a_unit_of_time_are_not_seconds_apart() -> None:
    values = make_numbers((2, 3, 4), "<u2")
    for axis, said in ((Axis("t", None, 5.0), None), (Axis("t", "minute", 5.0), 300.0)):
        frames = make_view(values, (axis, Axis("y"), Axis("x")))
        with tifffile.TiffFile(io.BytesIO(make_content(tif(frames), values))) as file:
            assert (file.imagej_metadata or {}).get("finterval") == said
        with tifffile.TiffFile(io.BytesIO(make_content(ome(frames), values))) as file:
            assert ("TimeIncrement" in (file.ome_metadata or "")) == (said is not None)


def test_imagej_gets_lengths_in_microns() -> None:
    values, axes = make_numbers((3, 4), "<u2"), (Axis("y", "angstrom", 2.0), Axis("x", "angstrom", 2.0))
    with tifffile.TiffFile(io.BytesIO(make_content(tif(make_view(values, axes)), values))) as file:
        assert (file.imagej_metadata or {})["unit"] == "micron"
        above, below = file.pages.first.tags["XResolution"].value
    assert below / above == pytest.approx(2e-4)


VALUES = np.arange(24, dtype="u2").reshape(2, 3, 4)


def make_tree(attributes: dict[str, Any], names: tuple[str, ...] | None = None) -> Directory:
    array = fake_array(VALUES, (1, 2, 2), attributes=attributes, dimension_names=names)
    return tree(FakeGroup({"a": array}), layout="files")


def read_file(root: Directory, name: str) -> bytes:
    return tree_walker.content(root.lookup(name.encode()))


@pytest.mark.parametrize("scale", [1e-20, 1e-10, 2.0**-31, 1.0, 2.0**31, 1e11, 1e20])
def test_p8_a_spacing_that_tiff_cannot_hold_costs_the_spacing_only(scale: float) -> None:
    """Pixels of an Angstrom, in meters: the file and the listing of its planes were errors."""
    root = make_tree({"resolution": [scale] * 3, "units": ["m"] * 3})
    planes = [entry.name for batch in cast(Directory, root.lookup(b"a.slices")).entries() for entry in batch]
    assert planes == [b"0000.tif", b"0001.tif"]
    with tifffile.TiffFile(io.BytesIO(read_file(root, "a.tif"))) as read:
        np.testing.assert_array_equal(read.asarray(), VALUES)
        assert read.imagej_metadata is not None
        told = read.pages.first.tags.get("XResolution")
    if 2.0**-31 <= scale * 1e6 <= 2.0**31:  # micrometers
        assert told is not None
        assert told.value[1] / told.value[0] == pytest.approx(scale * 1e6, rel=1e-6)
    else:
        assert told is None or told.value == (1, 1)


@pytest.mark.parametrize("odd", ['um"\nencoding: gzip', "a\\", '"', "\x01", "a\r\nb", "é"])
def test_p12_no_unit_and_no_name_of_an_axis_is_a_line_of_a_header(odd: str) -> None:
    root = make_tree({"resolution": [1.0, 2.0, 3.0], "units": [odd] * 3}, (f"z{odd}", odd, "x"))
    for suffix, data in (("nrrd", VALUES.tobytes()), ("raw.nhdr", b"")):
        header, _, elements = read_file(root, f"a.{suffix}").partition(b"\n\n")
        lines = header.decode("ascii").splitlines()
        fields = [line.split(":")[0] for line in lines[1:]]
        assert len(fields) == len(set(fields)), lines
        assert [line for line in lines if line.startswith("encoding")] == ["encoding: raw"]
        assert all(line.count('"') in (0, 6) and '\\"' not in line and line.isprintable() for line in lines), lines
        assert elements == data
    with tifffile.TiffFile(io.BytesIO(read_file(root, "a.ome.tif"))) as read:
        assert read.ome_metadata is not None
        ET.fromstring(read.ome_metadata)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("step", [10**30, -(10**100), -(10**110)])
def test_a_region_of_one_element_has_a_spacing_whatever_its_step(step: int) -> None:
    root = make_tree({"resolution": [1e20, 2.0, 3.0], "units": ["m", "um", "nm"]})
    region = f"a[::{step},::{step},:]"
    picked = VALUES[::step, ::step]
    np.testing.assert_array_equal(np.load(io.BytesIO(read_file(root, f"{region}.npy"))), picked)
    image = nibabel.Nifti1Image.from_bytes(read_file(root, f"{region}.nii"))
    np.testing.assert_array_equal(np.asarray(image.dataobj).T, picked)
    assert np.isfinite(image.affine).all()
    read_file(root, f"{region}.mrc")


def test_a_step_beyond_its_dimension_is_the_spacing_all_the_same() -> None:
    root = make_tree({"resolution": [4.0, 2.0, 3.0], "units": ["um", "um", "um"]})
    step = max(VALUES.shape) + 3
    header = nifti_header(read_file(root, f"a[::{step},:,:].nii"))
    np.testing.assert_allclose(header.get_zooms(), [3e-3, 2e-3, 4e-3 * step], rtol=1e-6)


def test_a_writer_that_goes_back_changes_no_more_than_it_writes() -> None:
    recorder = Recorder()
    recorder.write(b"header")
    recorder.seek(0)
    recorder.write(b"HE")
    recorder.seek(4)
    recorder.write(b"E")
    assert recorder.merge() == ((0, b"HEadEr"),)
