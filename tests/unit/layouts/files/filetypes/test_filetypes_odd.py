"""Headers of files with arrays of odd spacing, units and axis names: what a header cannot say is left out of it."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from typing import Any

import nibabel
import numpy as np
import pytest
import tifffile
from fake_model import FakeGroup, fake_array, tree
from tree_walker import content

from fsbridge.layouts.files.arrays.extents import Recorder
from fsbridge.tree import Directory

VALUES = np.arange(24, dtype="u2").reshape(2, 3, 4)


def shown(attributes: dict[str, Any], names: tuple[str, ...] | None = None) -> Directory:
    array = fake_array(VALUES, (1, 2, 2), attributes=attributes, dimension_names=names)
    return tree(FakeGroup({"a": array}), layout="files")


def file(root: Directory, name: str) -> bytes:
    return content(root.lookup(name.encode()))


@pytest.mark.parametrize("scale", [1e-20, 1e-10, 2.0**-31, 1.0, 2.0**31, 1e11, 1e20])
def test_p8_a_spacing_that_tiff_cannot_hold_costs_the_spacing_only(scale: float) -> None:
    """Pixels of an Angstrom, in meters: the file and the listing of its planes were errors."""
    root = shown({"resolution": [scale] * 3, "units": ["m"] * 3})
    planes = [entry.name for batch in root.lookup(b"a.slices").entries() for entry in batch]  # type: ignore[union-attr]
    assert planes == [b"0000.tif", b"0001.tif"]
    with tifffile.TiffFile(io.BytesIO(file(root, "a.tif"))) as read:
        np.testing.assert_array_equal(read.asarray(), VALUES)
        assert read.imagej_metadata is not None
        told = read.pages.first.tags.get("XResolution")  # type: ignore[union-attr]
    if 2.0**-31 <= scale * 1e6 <= 2.0**31:  # micrometers
        assert told is not None
        assert told.value[1] / told.value[0] == pytest.approx(scale * 1e6, rel=1e-6)
    else:
        assert told is None or told.value == (1, 1)


@pytest.mark.parametrize("odd", ['um"\nencoding: gzip', "a\\", '"', "\x01", "a\r\nb", "é"])
def test_p12_no_unit_and_no_name_of_an_axis_is_a_line_of_a_header(odd: str) -> None:
    root = shown({"resolution": [1.0, 2.0, 3.0], "units": [odd] * 3}, (f"z{odd}", odd, "x"))
    for suffix, data in (("nrrd", VALUES.tobytes()), ("raw.nhdr", b"")):
        header, _, elements = file(root, f"a.{suffix}").partition(b"\n\n")
        lines = header.decode("ascii").splitlines()
        fields = [line.split(":")[0] for line in lines[1:]]
        assert len(fields) == len(set(fields)), lines
        assert [line for line in lines if line.startswith("encoding")] == ["encoding: raw"]
        assert all(line.count('"') in (0, 6) and '\\"' not in line and line.isprintable() for line in lines), lines
        assert elements == data
    with tifffile.TiffFile(io.BytesIO(file(root, "a.ome.tif"))) as read:
        assert read.ome_metadata is not None
        ET.fromstring(read.ome_metadata)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("step", [10**30, -(10**100), -(10**110)])
def test_a_region_of_one_element_has_a_spacing_whatever_its_step(step: int) -> None:
    root = shown({"resolution": [1e20, 2.0, 3.0], "units": ["m", "um", "nm"]})
    region = f"a[::{step},::{step},:]"
    picked = VALUES[::step, ::step]
    np.testing.assert_array_equal(np.load(io.BytesIO(file(root, f"{region}.npy"))), picked)
    image = nibabel.Nifti1Image.from_bytes(file(root, f"{region}.nii"))
    np.testing.assert_array_equal(np.asarray(image.dataobj).T, picked)
    assert np.isfinite(image.affine).all()
    file(root, f"{region}.mrc")


def test_a_step_beyond_its_dimension_is_the_spacing_all_the_same() -> None:
    root = shown({"resolution": [4.0, 2.0, 3.0], "units": ["um", "um", "um"]})
    step = max(VALUES.shape) + 3
    image = nibabel.Nifti1Image.from_bytes(file(root, f"a[::{step},:,:].nii"))
    np.testing.assert_allclose(image.header.get_zooms(), [3e-3, 2e-3, 4e-3 * step], rtol=1e-6)


def test_a_writer_that_goes_back_changes_no_more_than_it_writes() -> None:
    recorder = Recorder()
    recorder.write(b"header")
    recorder.seek(0)
    recorder.write(b"HE")
    recorder.seek(4)
    recorder.write(b"E")
    assert recorder.merged() == ((0, b"HEadEr"),)
