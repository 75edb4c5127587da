"""Previews of arrays of one dimension: curves and rasters as SVG. Not here: previews that are pictures."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from preview_trees import array, content, group, image, tree_of

from fsbridge.layouts.files.looks.previews.curves import choose_ticks, compute_envelope, spell_number
from fsbridge.layouts.files.looks.previews.png import draw_letters

SVG = "{http://www.w3.org/2000/svg}"


def path_points(svg: bytes) -> list[list[tuple[float, float]]]:
    """The points of each outline of the curves."""
    found = []
    for path in ElementTree.fromstring(svg).iter(f"{SVG}path"):
        for outline in path.attrib["d"].rstrip("Z").split("Z"):
            found.append([cast(tuple[float, float], tuple(map(float, pair.split()))) for pair in outline[1:].split("L")])
    return found


def test_p12_a_curve_is_the_envelope_of_unpacked_elements_over_the_axis(tmp_path: Path) -> None:
    made = group(tmp_path / "s")
    packed = np.zeros(100_000, "i2")
    packed[77_777], packed[10_000] = 30_000, -30_000
    names = {"dimension_names": ["time"]}
    array(made, "a", packed, (4096,), attributes={"scale_factor": 0.5, "add_offset": 100.0, "units": "m"}, **names)
    array(made, "time", np.arange(100_000) * 0.25 + 1000, (100_000,), attributes={"units": "s"}, **names)
    tree = tree_of(tmp_path / "s")
    svg = content(tree, "a.preview.svg")
    (outline,) = path_points(svg)
    assert len(outline) == 2 * 2000
    texts = [found.text for found in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert "a (m)" in texts
    assert {"time (s)", "20000", "25000"} <= set(texts)  # the coordinate is too long for headers, not for a picture
    assert {"-10000", "0", "10000"} <= set(texts)  # of 0.5 * packed + 100
    highest, lowest = min(outline, key=lambda point: point[1]), max(outline, key=lambda point: point[1])
    left, right = outline[0][0], outline[1999][0]
    assert (highest[0] - left) / (right - left) == pytest.approx(0.77777, abs=1e-3)
    assert (lowest[0] - left) / (right - left) == pytest.approx(0.1, abs=1e-3)
    assert image(tree, "a.preview.png").size[0] == 512


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(allow_infinity=False) | st.just(math.inf), min_size=1, max_size=200), st.integers(1, 50))
def test_p12_no_element_lies_outside_of_its_envelope(values: list[float], points: int) -> None:
    found = np.array(values)
    x, low, high = compute_envelope(found, lambda part: part.astype(np.float64), points)
    assert len(x) == min(points, len(values))
    edges = [i * len(values) // len(x) for i in range(len(x) + 1)]
    for i, (begin, stop) in enumerate(itertools.pairwise(edges)):
        part = found[begin:stop]
        part = part[np.isfinite(part)]
        expected = (part.min(), part.max()) if len(part) else (math.nan, math.nan)
        assert np.array_equal((low[i], high[i]), expected, equal_nan=True)


def test_gaps_are_not_drawn_over_and_columns_and_fields_are_panels_of_their_own(tmp_path: Path) -> None:
    made = group(tmp_path / "s")
    gap = np.arange(1000.0)
    gap[300:400] = np.nan
    array(made, "gap", gap, (1000,))
    array(made, "columns", np.arange(4000.0).reshape(1000, 4), (1000, 4))
    with h5py.File(tmp_path / "t.h5", "w") as file:
        fields = np.zeros(50, [("time", "<f8"), ("label", "S4"), ("count", "<i4")])
        fields["time"], fields["count"] = np.arange(50) / 10, np.arange(50)
        file["table"] = fields
    tree = tree_of(tmp_path / "s")
    assert [len(outline) // 2 for outline in path_points(content(tree, "gap.preview.svg"))] == [300, 600]
    assert len(path_points(content(tree, "columns.preview.svg"))) == 4
    table = ElementTree.fromstring(content(tree_of(tmp_path / "t.h5"), "table.preview.svg"))
    texts = [found.text for found in table.iter(f"{SVG}text")]
    assert "time" in texts
    assert "count" in texts
    assert "label" not in texts


def test_channels_first_are_a_curve_each(tmp_path: Path) -> None:
    """2 x 5000 was a picture of one line of pixels."""
    made = group(tmp_path / "s")
    both = np.stack([np.linspace(0, 1, 5000), np.linspace(3, 2, 5000)])
    array(made, "unnamed", both, (1, 1000))
    array(made, "timed", both, (1, 1000), dimension_names=["electrode", "time"])
    array(made, "channels", np.tile(both, (4, 1)), (8, 1000), dimension_names=["channel", "wavelength"])
    array(made, "bounds", both.T[::100].copy(), (50, 2), dimension_names=["lat", "bnds"])
    tree = tree_of(tmp_path / "s")
    for name, count in (("unnamed", 2), ("timed", 2), ("channels", 8), ("bounds", 2)):
        found = path_points(content(tree, f"{name}.preview.svg"))
        assert len(found) == count
        rising, falling = found[0], found[1]
        assert rising[0][1] > rising[len(rising) // 2 - 1][1]  # y grows downwards
        assert falling[0][1] < falling[len(falling) // 2 - 1][1]
    assert b"time index" in content(tree, "timed.preview.svg")
    part = [found.text for found in ElementTree.fromstring(content(tree, "unnamed[:,1000:].preview.svg")).iter(f"{SVG}text")]
    assert {"2000", "4000", "index"} <= {*part}


def test_a_thumbnail_of_curves_has_the_curves_and_no_letters(tmp_path: Path) -> None:
    array(group(tmp_path / "s"), "a", np.sin(np.arange(500) / 20), (500,))
    svg = content(tree_of(tmp_path / "s"), "a.preview.svg")
    (view,) = ElementTree.fromstring(svg).iter(f"{SVG}view")
    assert view.attrib["id"] == "small"
    assert view.attrib["preserveAspectRatio"] == "none"  # fills its place, whatever that is
    left, top, width, height = map(float, view.attrib["viewBox"].split())
    (outline,) = path_points(svg)
    assert all(left <= x <= left + width and top < y < top + height for x, y in outline)
    assert max(x for x, _ in outline) - min(x for x, _ in outline) == pytest.approx(width)
    assert b"@media(max-width:240px){text,.grid,.axis{display:none}" in svg


def test_times_of_spikes_are_a_raster_with_a_row_for_each_unit(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["units/spike_times"] = np.concatenate([np.arange(10.0), np.arange(5.0) + 0.5])
        file["units/spike_times_index"] = np.array([10, 15])
        file["units"].attrs["neurodata_type"] = "Units"
    svg = ElementTree.fromstring(content(tree_of(tmp_path / "s.h5"), "units/spike_times.preview.svg"))
    (marks,) = svg.iter(f"{SVG}path")
    rows = [mark.split("v")[0].split()[1] for mark in marks.attrib["d"].split("M")[1:]]
    assert sorted(rows.count(row) for row in set(rows)) == [5, 10]


def test_hostile_names_are_text_in_a_picture_of_curves(tmp_path: Path) -> None:
    name = '</title><script>alert("1")</script>\u202e&'
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file[name.replace("/", "|")] = np.arange(10)
    svg = ElementTree.fromstring(content(tree_of(tmp_path / "s.h5"), f"{name.replace('/', '|')}.preview.svg"))
    assert not list(svg.iter(f"{SVG}script"))
    assert svg.find(f"{SVG}title") is not None
    assert "\\u202e" in (svg.findtext(f"{SVG}title") or "")


@pytest.mark.parametrize("low", [0.0, -3.5, 1e-300, 1e300, 123456.789])
@pytest.mark.parametrize("span", [1e-9, 1.0, 1e6])
def test_ticks_are_few_round_and_distinct(low: float, span: float) -> None:
    high = low + span if low + span != low else low * 1.001
    found = choose_ticks(low, high, 5)
    assert 1 <= len(found) <= 12
    texts = [spell_number(value, (low, high)) for value in found]
    assert len(set(texts)) == len(texts)
    assert all(low - span * 1e-6 <= value <= high + span * 1e-6 for value in found)


@pytest.mark.parametrize("values", [[0, 5e-324], [-5e-324, 5e-324], [1e-310, 3e-310], [1e-322, 1e-322]], ids=str)
def test_p8_curves_of_denormal_numbers_are_drawn(tmp_path: Path, values: list[float]) -> None:
    """As in memory that was never initialised."""
    array(group(tmp_path / "s"), "a", np.array(values * 5), (10,))
    tree = tree_of(tmp_path / "s")
    assert b"nan" not in content(tree, "a.preview.svg").lower()
    assert image(tree, "a.preview.png").size


def test_letters_that_there_are_no_pixels_for_are_question_marks() -> None:
    assert draw_letters("A").shape == (8, 6)
    assert (draw_letters("漢") == draw_letters("?")).all()
    assert draw_letters("").shape == (8, 0)
    assert draw_letters("°").any()
