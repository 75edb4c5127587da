"""NIfTI-Zarr: each element lies where nibabel finds it by the same header."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_model import fake_array
from nibabel.nifti1 import Nifti1Header
from nibabel.nifti2 import Nifti2Header

from fsbridge.meaning import Meaning
from fsbridge.meaning.convention import Written
from fsbridge.meaning.reading import read_array

STRAIGHT = np.array([[-2.0, 0, 0, 90], [0, 2, 0, -126], [0, 0, 3, -72], [0, 0, 0, 1]])
TURNED = np.array([[1.6, -1.2, 0, 90], [1.2, 1.6, 0, -126], [0, 0, 3, -72], [0, 0, 0, 1]])


def read(header: Any, level: str) -> Meaning:
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "zyx"]
    scales = (
        [{"type": "scale", "scale": [3, 2, 2]}],
        [
            {"type": "scale", "scale": [6, 4, 4]},
            {"type": "translation", "translation": [1.5, 1, 1]},
        ],
    )
    datasets = [{"path": str(i), "coordinateTransformations": one} for i, one in enumerate(scales)]
    group = {"multiscales": [{"version": "0.4", "axes": axes, "datasets": datasets}]}
    values = np.frombuffer(header.binaryblock, np.uint8).astype(np.float64)
    array = fake_array(np.zeros((4, 5, 6), "u1"), (4, 5, 6)).metadata
    return read_array(Written(array, (group,), (level,), False, {"nifti": (values, {})}.get))


def place(meaning: Meaning, index: tuple[float, ...]) -> list[float]:
    """Return x, y, z of an element."""
    found = [axis.offset + i * (axis.scale or 0.0) for axis, i in zip(meaning.axes, index, strict=True)]
    if meaning.affine is not None:
        dimensions = list(meaning.affine.dimensions)
        own = np.array(meaning.affine.matrix) @ np.array(index)[dimensions] + meaning.affine.offset
        for dimension, value in zip(dimensions, own, strict=True):
            found[dimension] = float(value)
    return found[::-1]


@pytest.mark.parametrize("kind", [Nifti1Header, Nifti2Header])
@pytest.mark.parametrize("matrix", [STRAIGHT, TURNED], ids=["straight", "turned"])
@pytest.mark.parametrize("form", ["sform", "qform"])
def test_the_header_of_nifti_wins(kind: Any, matrix: np.ndarray[Any, Any], form: str) -> None:
    header = kind()
    header.set_data_shape((6, 5, 4))
    getattr(header, f"set_{form}")(matrix, code=1)
    header.set_xyzt_units("mm")
    for level, inner in (("0", lambda i: i), ("1", lambda i: 2 * np.array(i) + 0.5)):
        found = read(header, level)
        assert [(axis.unit, axis.orientation) for axis in found.axes] == [("millimeter", way) for way in "SAR"]
        for index in ((0, 0, 0), (3, 4, 5), (1, 2, 0)):
            expected = header.get_best_affine() @ [*inner(index[::-1]), 1.0]
            np.testing.assert_allclose(place(found, index), expected[:3], rtol=1e-5, atol=1e-5)


def test_a_header_without_a_place_says_none() -> None:
    header: Any = Nifti1Header()
    found = read(header, "0")
    z = found.axes[0]
    assert (z.scale, z.unit, z.orientation) == (3.0, "micrometer", None)
