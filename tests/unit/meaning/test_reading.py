"""Axes out of attributes as OME-NGFF, N5, COSEM, xarray, ilastik and NWB write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_model import fake_array

from fsbridge.layouts.files.arrays.selection import parse_region
from fsbridge.meaning import Axis
from fsbridge.meaning.convention import Written
from fsbridge.meaning.conventions.cf import regular
from fsbridge.meaning.kinds import is_space, is_time
from fsbridge.meaning.reading import read_array
from fsbridge.meaning.units import convert, fold, symbol

X, Y, Z = (Axis(name, "nanometer", scale) for name, scale in (("x", 4.0), ("y", 5.0), ("z", 40.0)))
SPACES = tuple(axis._replace(kind="space") for axis in (X, Y, Z))
UNNAMED = tuple(axis._replace(name=None) for axis in (X, Y, Z))


def axes(
    own: dict[str, Any] = {},  # noqa: B006  # never changed
    *groups: dict[str, Any],
    names: tuple[str, ...] = ("a",),
    x_first: bool = False,
    shape: tuple[int, ...] = (3, 4, 5),
    labels: Any = None,
    beside: dict[str, Any] = {},  # noqa: B006
) -> tuple[Axis, ...]:
    array = fake_array(np.zeros(shape, "u1"), shape, attributes=own, dimension_names=labels)
    return read_array(Written(array.metadata, groups, names, x_first, beside.get)).axes


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_transformations_of_ome_ngff_give_axes_their_scales(version: str) -> None:
    scale = {"type": "scale", "scale": [40, 5, 4]}
    multiscales = [{
        "axes": [{"name": name, "type": "space", "unit": "nanometer"} for name in "zyx"],
        "datasets": [{"path": "0", "coordinateTransformations": [scale]},
                     {"path": "s/1", "coordinateTransformations": [{"type": "scale", "scale": [80, 10, 8]},
                                                                   {"type": "translation", "translation": [20, 2.5, 2]}]}],
        "coordinateTransformations": [{"type": "scale", "scale": [2, 1, 1]}],
    }]  # fmt: skip
    group = {"multiscales": multiscales} if version == "0.4" else {"ome": {"version": "0.5", "multiscales": multiscales}}
    x, y, z = SPACES
    assert axes({}, group, names=("0",)) == (z._replace(scale=80.0), y, x)
    found = axes({}, {}, group, names=("img", "s", "1"))
    assert [axis.scale for axis in found] == [160, 10, 8]
    assert [axis.offset for axis in found] == [40, 2.5, 2]
    assert axes({}, group, names=("other",)) == (Axis(),) * 3


@pytest.mark.parametrize("named", [True, False])  # as ngff-zarr 0.50 writes it, and drafts of 0.6
def test_ome_ngff_0_6_has_one_transformation_from_each_array(named: bool) -> None:
    """One transformation from each array to the intrinsic system; those from there to others are not of the image."""

    def system(name: str) -> Any:
        return {"name": name} if named else name

    def transform(**described: Any) -> dict[str, Any]:
        return {"input": {"path": "s0"}, "output": system("intrinsic"), "name": "a", **described}

    def found(**described: Any) -> tuple[Axis, ...]:
        world = {"input": system("intrinsic"), "output": system("world"), "type": "scale", "scale": [7, 7, 7]}
        systems = [{"name": name, "axes": [{"name": axis, "unit": unit} for axis in "zyx"]}
                   for name, unit in (("world", "meter"), ("intrinsic", "nanometer"))]  # fmt: skip
        datasets = [{"path": "s0", "coordinateTransformations": [transform(**described)]}]
        scales = {"coordinateSystems": systems, "datasets": datasets, "coordinateTransformations": [world, world]}
        return axes({}, {"ome": {"version": "0.6", "multiscales": [scales]}}, names=("s0",))

    scale, shift = {"type": "scale", "scale": [40, 5, 4]}, {"type": "translation", "translation": [1, 0, 3.0]}
    assert found(**scale) == (Z, Y, X)
    moved = (Z._replace(offset=1.0), Y, X._replace(offset=3.0))
    assert found(type="sequence", transformations=[scale, shift]) == moved
    unknown = tuple(axis._replace(scale=None) for axis in (Z, Y, X))
    assert found(type="identity") == unknown
    affine = {"type": "affine", "affine": [[1, 0, 0, 0]] * 3}
    assert found(type="sequence", transformations=[scale, affine, shift]) == unknown


def test_no_part_of_a_transformation_stored_elsewhere_is_shown() -> None:
    elsewhere = [{"type": "scale", "path": "where"}, {"type": "translation", "translation": [1, 2, 3]}]
    datasets = [{"path": "a", "coordinateTransformations": elsewhere}]
    scales = {"datasets": datasets, "coordinateTransformations": [{"type": "scale", "scale": [2, 2, 2]}]}
    assert axes({}, {"multiscales": [scales]}) == (Axis(),) * 3


@pytest.mark.parametrize(
    ("own", "groups", "expected"),
    [
        ({"pixelResolution": {"unit": "nm", "dimensions": [4, 5, 40]}}, (), UNNAMED),
        ({"pixelResolution": [4, 5, 40]}, (), tuple(axis._replace(unit="micrometer") for axis in UNNAMED)),
        ({"axes": ["x", "y", "z"], "units": ["nm"] * 3, "resolution": [4, 5, 40]}, (), (X, Y, Z)),
        ({"pixelResolution": [2, 2.5, 20], "downsamplingFactors": [2, 2, 2]}, (),
         tuple(axis._replace(unit="micrometer") for axis in UNNAMED)),
        ({}, ({"axes": ["x", "y", "z"], "units": ["nm"] * 3, "resolution": [2, 5, 10],
               "scales": [[1, 1, 1], [2, 1, 4]]},), (X, Y, Z)),
        ({"downsamplingFactors": [2, 1, 4]}, ({"axes": ["x", "y", "z"], "units": ["nm"] * 3, "resolution": [2, 5, 10]},),
         (X, Y, Z)),
        ({"resolution": [4, 5, 40], "downsamplingFactors": [2, 1, 4]}, ({"resolution": [2, 5, 10]},),
         tuple(axis._replace(unit=None) for axis in UNNAMED)),
        ({"resolution": [2, 5, 10], "downsamplingFactors": [2, 1, 4]}, ({"resolution": [2, 5, 10]},),
         tuple(axis._replace(unit=None) for axis in UNNAMED)),
        ({"resolution": [2, 5, 10], "downsamplingFactors": [2, 1, 4]}, ({},),
         tuple(axis._replace(unit=None) for axis in UNNAMED)),
        ({"pixelResolution": {"unit": "nm", "dimensions": [4, 5, 40]}, "downsamplingFactors": [2, 1, 4]},
         ({}, {"pixelResolution": {"unit": "nm", "dimensions": [2, 5, 10]}}), UNNAMED),
        ({"resolution": [4, 5, 40], "offset": [1, 2, 3]}, (),
         tuple(Axis(None, None, axis.scale, offset) for axis, offset in zip(UNNAMED, (1.0, 2.0, 3.0), strict=True))),
        ({"transform": {"axes": ["z", "y", "x"], "units": ["nm"] * 3, "scale": [40, 5, 4], "translate": [0, 0, 0]}}, (),
         (X, Y, Z)),
        ({}, ({"multiscales": [{"datasets": [{"path": "s1", "transform": {
            "axes": ["z", "y", "x"], "units": ["nm"] * 3, "scale": [40, 5, 4], "translate": [0, 0, 0]}}]}]},), (X, Y, Z)),
        ({"pixelResolution": "nonsense", "resolution": [1, "a", 2], "units": 7}, (), (Axis(),) * 3),
    ],
)  # fmt: skip
def test_the_dialects_of_n5_give_axes_units_and_scales(own: dict[str, Any], groups: Any, expected: tuple[Axis, ...]) -> None:
    assert axes(own, *groups, names=("s1",), x_first=True) == expected


@pytest.mark.parametrize(
    ("own", "unit"),
    [({"axes": ["x", "y", "z"]}, None), ({"axes": ["x", "y", "z"], "units": ["nm"] * 3}, "nanometer"),
     ({"units": ["nm"] * 3}, "nanometer"), ({"units": ["nm"] * 3, "pixelResolution": "nonsense"}, "nanometer"),
     ({"resolution": [1, 2, 3]}, None)],
)  # fmt: skip
def test_n5_without_a_unit_has_none(own: dict[str, Any], unit: str | None) -> None:
    for found in (axes(own, x_first=True), axes({}, own, names=("s0",), x_first=True)):
        assert [axis.unit for axis in found] == [unit] * 3
        assert [axis.scale for axis in found] == own.get("resolution", [None] * 3)


def test_an_axis_counts_what_its_image_says() -> None:
    written = [{"name": "q", "type": "time"}, {"name": "t", "type": "space"}, {"name": "x", "type": "other"}]
    group = {"multiscales": [{"axes": written, "datasets": [{"path": "a"}]}]}
    found = axes({}, group)
    assert [is_time(axis) for axis in found] == [True, False, False]
    assert [is_space(axis) for axis in found] == [False, True, True]


def test_arrays_called_like_dimensions_are_coordinates_of_xarray() -> None:
    beside = {
        "time": (np.arange(3) * 0.5 + 10, {"units": "s"}),
        "lat": (np.array([1.0, 2.0, 4.0, 5.0]), {"units": "degrees_north"}),
        "lon": (None, {"units": "degrees_east"}),
    }
    found = axes(labels=("time", "lat", "lon"), beside=beside)
    assert found == (Axis("time", "second", 0.5, 10.0), Axis("lat", "degrees_north"), Axis("lon", "degrees_east"))
    packed = {"time": (np.arange(3.0), {"units": "s", "scale_factor": [0.5], "add_offset": 10.0})}
    assert axes(labels=("time", None, None), beside=packed)[0] == Axis("time", "second", 0.5, 10.0)
    wrong_length = {"time": (np.arange(4.0), {"units": "s"})}
    assert axes(labels=("time", None, None), beside=wrong_length)[0] == Axis("time")


def test_ilastik_and_nwb_give_axes_units_and_scales() -> None:
    found = axes({"element_size_um": [0.04, 0.005, 0.004]})
    assert [axis.scale for axis in found] == [0.04, 0.005, 0.004]
    assert {axis.unit for axis in found} == {"micrometer"}
    series = {"neurodata_type": "TimeSeries"}
    beside = {"starting_time": (np.array(2.5), {"rate": 20.0})}
    assert axes({}, series, names=("acq", "data"), beside=beside)[0] == Axis("time", "second", 0.05, 2.5)
    beside = {"timestamps": (np.array([1.0, 2.0, 9.0]), {})}
    assert axes({}, series, names=("acq", "data"), beside=beside)[0] == Axis("time", "second")


def test_p8_what_no_header_can_hold_is_left_out() -> None:
    """Integers that no double holds, halves of characters: each made the listing of the whole group an error."""
    huge = 10**400
    assert axes({"resolution": [huge, 1, 1]}) == axes({"element_size_um": [huge, 1, 1]}) == (Axis(),) * 3
    found = axes({"resolution": [1e300, 1e-300, 2.0], "units": ["\ud800", "nm", "nm"]}, labels=("\ud800", None, "x"))
    assert found == (Axis(), Axis(None, "nanometer"), Axis("x", "nanometer", 2.0))
    scales = [{"type": "translation", "translation": [1e308, 0, 1]}, {"type": "scale", "scale": [1e308, 2, 2]}]
    group = {"multiscales": [{"datasets": [{"path": "a", "coordinateTransformations": scales}]}]}
    assert axes({}, group) == (Axis(), Axis(None, None, 2.0), Axis(None, None, 2.0, 2.0))


def test_spacing_is_regular_if_all_steps_are_alike() -> None:
    assert regular(np.arange(5.0) * 2 + 1) == (2.0, 1.0)
    assert regular((np.arange(1000) * 0.1).astype("f4").astype("f8")) is not None
    for values in ([1.0], [1.0, 2.0, 4.0], [1.0, np.nan], [3.0, 3.0]):
        assert regular(np.array(values)) is None


@pytest.mark.parametrize(("text", "start", "scale"), [("2:", 2, 1), ("::3", 0, 3), ("8:2:-2", 8, -2), ("-3:", 7, 1)])
def test_a_region_moves_and_widens_its_axes(text: str, start: int, scale: int) -> None:
    axis = Axis("x", "nanometer", 4.0, 100.0)
    (found,) = parse_region(text, (10,)).cut_axes((axis,))
    assert found == Axis("x", "nanometer", 4.0 * scale, 100.0 + 4.0 * start)


@pytest.mark.parametrize(
    ("spelling", "unit"),
    [("nm", "nanometer"), ("µm", "micrometer"), ("μm", "micrometer"), ("Micron", "micrometer"), ("mm", "millimeter"),
     ("Mm", "Mm"), ("angstrom", "angstrom"), ("Å", "angstrom"), ("s", "second"), (" um ", "micrometer"),
     ("", None), (7, None), ("parsec", "parsec")],
)  # fmt: skip
def test_units_are_folded(spelling: Any, unit: str | None) -> None:
    assert fold(spelling) == unit


def test_units_are_converted() -> None:
    assert convert(40.0, "nanometer", "millimeter") == 4e-05
    assert convert(1.0, "second", "millimeter") is None
    assert convert(2.0, "minute", "second") == 120.0
    assert symbol("micrometer") == "µm"


@pytest.mark.parametrize("written", ["time:angle", "[time,angle]", "time, angle", ["time:angle"]])
def test_older_files_of_nexus_name_axes_in_one_text_in_the_order_of_c(written: Any) -> None:
    array = fake_array(np.zeros((3, 4)), (3, 4), attributes={"signal": 1, "axes": written}).metadata
    found = read_array(Written(array, ({"NX_class": "NXdata"},), ("a",)))
    assert [axis.name for axis in found.axes] == ["time", "angle"]
    assert read_array(Written(array, ({"NX_class": "NXdetector"},), ("a",))).axes == (Axis(), Axis())
    group = {"NX_class": "NXdata", "signal": "a", "axes": ["q", "."]}
    assert [axis.name for axis in read_array(Written(array, (group,), ("a",))).axes] == ["q", None], "the newer way wins"


def test_the_oldest_files_of_nexus_number_dimensions_from_the_fastest_one() -> None:
    """As the manual says it: `data[j][i]`, where i is the time of flight and has the number 1."""
    array = fake_array(np.zeros((3, 4)), (3, 4), attributes={"signal": "1"}).metadata
    beside: dict[str, Any] = {
        "time_of_flight": (np.arange(4.0) * 2, {"axis": 1, "units": "s"}),
        "edges": (np.arange(5.0), {"axis": [1], "primary": 2}),
        "polar_angle": (np.arange(3.0), {"axis": "2", "primary": "1"}),
        "other_angle": (np.arange(3.0), {"axis": 2, "primary": 2}),
        "too_long": (np.arange(7.0), {"axis": 2, "primary": 1}),
        "title": (None, {"axis": 2}),
        "latitude": (np.arange(3.0), {"axis": "Y"}),
        "third": (np.arange(3.0), {"axis": 3}),
    }

    def read() -> list[str | None]:
        written = Written(array, ({"NX_class": "NXdata"},), (), coordinate=beside.get, members=lambda: [*beside, "group"])
        return [axis.name for axis in read_array(written).axes]

    assert read() == ["polar_angle", None], "two without a rank"
    beside["time_of_flight"][1]["primary"] = 1
    assert read() == ["polar_angle", "time_of_flight"]
