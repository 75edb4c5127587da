"""Previews that are pictures: what Pillow sees is what zarr-python reads, at a bounded cost. Not here: curves."""

from __future__ import annotations

import io
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
import z5py
import zarr
from fake_model import FakeArray, FakeChunks, FakeGroup, fake_array
from fake_model import tree as fake_tree
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from preview_trees import array, content, group, image, tree_of
from tree_walker import content as whole_content
from tree_walker import find_node

from fsbridge.config import MIB
from fsbridge.errors import CorruptData, NotFound, Stale
from fsbridge.layouts.files.arrays.extents import Unfit, View
from fsbridge.layouts.files.arrays.selection import select_all
from fsbridge.layouts.files.looks.previews import CHUNKS, DECODED_BYTES, sampling
from fsbridge.layouts.files.looks.previews.picture import plan_picture
from fsbridge.layouts.files.looks.previews.sampling import Wish, choose_sample
from fsbridge.meaning import Axis, Meaning
from fsbridge.meaning.convention import Written
from fsbridge.meaning.reading import read_array
from fsbridge.metadata import ArrayMetadata, ChunkGrid, DataType, Index
from fsbridge.model import ChunkInfo


def each(pixels: Any, shape: tuple[int, ...]) -> Any:
    """One pixel for each element. All pixels of an element are alike, and a small picture is not small."""
    found = np.asarray(pixels)
    times = found.shape[0] // shape[0]
    single = found[::times, ::times]
    assert (np.repeat(np.repeat(single, times, 0), times, 1) == found).all()
    assert single.shape[:2] == shape
    assert max(found.shape[:2]) >= 256
    return single


def grey(values: Any) -> Any:
    """Percentile stretch as numpy does it."""
    finite = values[np.isfinite(values)]
    low, high = np.percentile(finite.astype(np.float64), [1, 99])
    return np.rint(np.clip((values.astype(np.float64) - low) / (high - low), 0, 1) * 255), (low, high)


def view_of(
    values: Any, axes: tuple[Axis, ...] | None = None, chunks: tuple[int, ...] | None = None, **changes: Any
) -> View:
    metadata = fake_array(values, chunks or values.shape, **changes).metadata
    meaning = read_array(Written(metadata))
    return View("a", metadata, select_all(values.shape), replace(meaning, axes=axes or meaning.axes), False)


def test_p12_the_middle_plane_of_a_volume_is_drawn_between_percentiles(tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 60000, (9, 40, 50)).astype("<u2")
    array(group(tmp_path / "s"), "a", values, (2, 16, 16), dimension_names=["z", "y", "x"])
    found = image(tree_of(tmp_path / "s"), "a.preview.png")
    plane = zarr.open_array(tmp_path / "s/a", mode="r")[4]
    expected, (low, high) = grey(np.asarray(plane))
    assert found.mode == "L"
    assert found.size == (300, 240)
    assert np.abs(each(found, (40, 50)).astype(int) - expected).max() <= 1
    assert [float(end) for end in found.info["Limits"].split()] == pytest.approx([low, high])
    assert found.info["Elements"] == "[4,0:40:1,0:50:1]"


@pytest.mark.parametrize("big", [(2000, 700), (700, 3000)])
def test_p12_large_planes_are_every_nth_element(tmp_path: Path, big: tuple[int, int]) -> None:
    values = np.arange(math.prod(big), dtype="<u4").reshape(big) * np.uint32(1000)
    array(group(tmp_path / "s"), "a", values, (256, 256))
    found = image(tree_of(tmp_path / "s"), "a.preview.png")
    assert max(found.size) == sampling.PIXELS
    step = max(big) // sampling.PIXELS
    part = values[::step, ::step]
    rows, columns = ((2 * np.arange(n) + 1) * of // (2 * n) for n, of in zip(found.size[::-1], part.shape, strict=True))
    expected, _ = grey(part)
    assert np.abs(np.asarray(found).astype(int) - expected[rows[:, None], columns]).max() <= 2


def test_p12_climate_fields_are_north_up_coloured_and_transparent_where_missing(tmp_path: Path) -> None:
    lat, lon = np.arange(-89.0, 90, 2), np.arange(1.0, 360, 2)
    field = (lat[:, None] + np.zeros(len(lon))).astype("f4")
    field[:10, :20] = np.nan  # far south, in the west
    xarray.Dataset(
        {"tas": (("time", "lat", "lon"), field[None], {"units": "degC"})},
        coords={
            "lat": ("lat", lat, {"units": "degrees_north"}),
            "lon": ("lon", lon, {"units": "degrees_east"}),
            "time": ("time", [0]),
        },
    ).to_zarr(tmp_path / "s", zarr_format=2, encoding={"tas": {"_FillValue": 1e20}}, consolidated=False)
    found = image(tree_of(tmp_path / "s"), "tas.preview.png")
    pixels = np.asarray(found)
    assert found.mode == "RGBA"
    assert found.info["Unit"] == "degC"
    assert found.size[0] == 2 * len(lon)
    drawn = each(pixels[: 2 * len(lat)], (len(lat), len(lon)))
    assert (drawn[..., 3] == np.where(np.isnan(field), 0, 255)[::-1]).all()
    assert tuple(drawn[0, 0, :3]) == (253, 231, 37)  # viridis ends in yellow, in the north
    assert tuple(drawn[-1, -1, :3]) == (68, 1, 84)
    legend = pixels[2 * len(lat) :]
    assert (legend[..., 3] == 255).all()
    assert (legend[..., :3].sum(axis=-1) == 0).sum() > 20  # the letters


def test_latitudes_that_fall_or_are_irregular_are_north_up_too(tmp_path: Path) -> None:
    for name, lat in (
        ("falling", np.arange(80.0, -81, -20)),
        ("irregular", np.array([-80.0, -50, -45, -20, 0, 10, 35, 77, 88])),
    ):
        field = (lat[:, None] + np.zeros(12)).astype("f4")
        xarray.Dataset(
            {"tas": (("lat", "lon"), field)},
            coords={
                "lat": ("lat", lat, {"units": "degrees_north"}),
                "lon": ("lon", np.arange(12.0) * 20, {"units": "degrees_east"}),
            },
        ).to_zarr(tmp_path / name, zarr_format=2, consolidated=False)
        drawn = np.asarray(image(tree_of(tmp_path / name), "tas.preview.png"))
        shown = drawn[: len(drawn) - 22, drawn.shape[1] // 2, 1].astype(int)
        assert shown[0] > shown[-1]  # viridis' green grows with the value


def test_missing_numbers_of_hdf5_are_transparent_and_infinite_ones_are_drawn(tmp_path: Path) -> None:
    values = np.linspace(0, 1, 400).reshape(20, 20).astype("f4")
    values[3, 4], values[5, 6], values[7, 8], values[9, 9] = 1e20, np.inf, -np.inf, np.nan
    with h5py.File(tmp_path / "s.h5", "w") as file:
        made = file.create_dataset("a", data=values, chunks=(10, 10))
        made.attrs["_FillValue"] = np.array([1e20], "f4")
    pixels = each(image(tree_of(tmp_path / "s.h5"), "a.preview.png"), values.shape)
    assert {tuple(map(int, place)) for place in np.argwhere(pixels[..., 1] == 0)} == {(3, 4), (9, 9)}
    assert pixels[5, 6, 0] == 255
    assert pixels[7, 8, 0] == 0


@pytest.mark.parametrize("dtype", ["<u8", ">u8"])
def test_p12_labels_have_a_colour_each_and_none_where_there_is_nothing(tmp_path: Path, dtype: str) -> None:
    labels = np.repeat(np.repeat(np.arange(64).reshape(8, 8), 5, 0), 5, 1).astype(dtype)
    labels[labels == 63] = 2**63 + 63
    array(group(tmp_path / "s"), "a", labels, (16, 16))
    pixels = each(image(tree_of(tmp_path / "s"), "a.preview.png"), labels.shape).reshape(-1, 4)
    colors = [np.unique(pixels[labels.reshape(-1) == label], axis=0) for label in np.unique(labels)]
    assert all(len(found) == 1 for found in colors)
    assert len({tuple(found[0]) for found in colors}) == 64
    assert [int(found[0][3]) for found in colors] == [0] + [255] * 63


def test_labels_have_the_colours_of_ome_zarr(tmp_path: Path) -> None:
    colors = [{"label-value": 7, "rgba": [1, 2, 3, 200]}, {"label-value": 8, "rgba": [256, 0, 0, 0]}, {"label-value": 9}]
    attributes = {"ome": ome(["0"], "yx") | {"image-label": {"colors": colors}}}
    made = group(tmp_path / "s").create_group("nuclei", attributes=attributes)
    array(made, "0", np.arange(100, dtype="u2").reshape(10, 10), (10, 10))
    pixels = np.asarray(image(tree_of(tmp_path / "s"), "nuclei/0.preview.png").convert("RGBA"))
    pixels = pixels[:: len(pixels) // 10, :: len(pixels) // 10]  # a small picture is enlarged
    assert pixels[0, 7].tolist() == [1, 2, 3, 200]
    assert pixels[0, 8, 3] == pixels[0, 9, 3] == 255, "not said, so it is as without colours"


def test_labels_of_ome_zarr_are_named_by_the_group(tmp_path: Path) -> None:
    made = group(tmp_path / "s").create_group("nuclei", attributes={"ome": ome(["0"], "yx") | {"image-label": {}}})
    array(made, "0", np.arange(100, dtype="u2").reshape(10, 10), (10, 10))
    tree = tree_of(tmp_path / "s")
    assert image(tree, "nuclei/0.preview.png").info["Colors"] == "labels"
    assert image(tree, "nuclei.preview.png").info["Title"] == "nuclei"


def ome(paths: list[str], axes: str, scale: dict[str, float] | None = None, **more: Any) -> dict[str, Any]:
    kinds = {"c": "channel", "t": "time"}
    named = [{"name": name, "type": kinds.get(name, "space")} for name in axes]
    for axis in named:
        if axis["type"] == "space":
            axis["unit"] = "micrometer"
    levels = [
        {
            "path": path,
            "coordinateTransformations": [
                {"type": "scale", "scale": [(scale or {}).get(name, 1.0) * 2**i for name in axes]}
            ],
        }
        for i, path in enumerate(paths)
    ]
    return {"version": "0.5", "multiscales": [{"axes": named, "datasets": levels}], **more}


def test_p12_channels_are_added_up_in_the_colours_and_windows_of_omero(tmp_path: Path) -> None:
    channels = [
        {"color": "FF0000", "window": {"start": 0, "end": 100}},
        {"color": "00FF80", "window": {"start": 50, "end": 250}},
    ]
    made = group(tmp_path / "s").create_group("i", attributes={"ome": ome(["0"], "cyx", omero={"channels": channels})})
    values = np.random.default_rng(2).integers(0, 300, (2, 30, 20)).astype("u2")
    array(made, "0", values, (1, 16, 16))
    found = image(tree_of(tmp_path / "s"), "i/0.preview.png")
    levels = [
        np.rint(np.clip((values[i].astype(float) - low) / (high - low), 0, 1) * 255)
        for i, (low, high) in enumerate([(0, 100), (50, 250)])
    ]
    expected = sum(
        level[..., None] * np.array(color) for level, color in zip(levels, [(255, 0, 0), (0, 255, 128)], strict=True)
    )
    assert found.mode == "RGB"
    assert np.abs(each(found, (30, 20)).astype(int) - np.minimum(255, expected / 255)).max() <= 1
    assert found.info["Limits"] == "0 100; 50 250"


def pyramid(path: Path) -> Any:
    made = group(path).create_group("i", attributes={"ome": ome(["0", "1", "2"], "zyx")})
    full = np.random.default_rng(3).integers(0, 255, (8, 2048, 1024)).astype("u1")
    for level in range(3):
        step = 2**level
        array(made, str(level), full[::step, ::step, ::step], (4, 256, 256))
    return full


def test_a_preview_is_made_of_the_coarsest_level_that_suffices(tmp_path: Path) -> None:
    full = pyramid(tmp_path / "s")
    for level in "01":
        shutil.rmtree(tmp_path / "s/i" / level / "c")
        (tmp_path / "s/i" / level / "c").mkdir()  # their chunks are all zero now
    tree = tree_of(tmp_path / "s")
    coarse = full[::4, ::4, ::4]
    expected, _ = grey(coarse[1])
    for name in ("i/0", "i/1", "i/2", "i"):
        found = image(tree, f"{name}.preview.png")
        assert found.size == (256, 512)
        assert np.abs(np.asarray(found).astype(int) - expected).max() <= 1
        assert found.info["Title"] == name[-1]


def test_p3_a_damaged_chunk_is_an_error_and_no_black_tile(tmp_path: Path) -> None:
    pyramid(tmp_path / "s")
    damaged = tmp_path / "s/i/2/c/0/0/0"
    damaged.write_bytes(damaged.read_bytes()[:-5])
    tree = tree_of(tmp_path / "s")
    for name in ("i/0", "i/2", "i"):
        with pytest.raises(CorruptData):
            find_node(tree.root, f"{name}.preview.png").measure()


def test_arrays_that_are_called_like_levels_and_are_none_are_not_taken_for_them(tmp_path: Path) -> None:
    made = group(tmp_path / "s", multiScale=True)
    array(made, "s0", np.full((600, 600), 7, "u1"), (600, 600))
    array(made, "s1", np.arange(700 * 900, dtype="u2").reshape(700, 900), (700, 900))
    assert image(tree_of(tmp_path / "s"), "s0.preview.png").info["Limits"] == "7 8"


def test_p9_a_preview_of_changed_chunks_is_stale_and_the_next_look_is_another(tmp_path: Path) -> None:
    made = group(tmp_path / "s")
    values = np.arange(100, dtype="u1").reshape(10, 10)
    stored = array(made, "a", values, (10, 10))
    tree = tree_of(tmp_path / "s", metadata_ttl=0.0)
    before = find_node(tree.root, "a.preview.png")
    first = content(tree, "a.preview.png")
    stored[...] = values[::-1].copy()
    with pytest.raises(Stale):
        before.open()
    before.settle()
    after = find_node(tree.root, "a.preview.png")
    assert after.version != before.version
    assert content(tree, "a.preview.png") != first


def test_elements_are_as_high_and_wide_as_they_are(tmp_path: Path) -> None:
    made = group(tmp_path / "s").create_group("i", attributes={"ome": ome(["0"], "zyx", {"y": 3.0, "x": 1.5})})
    array(made, "0", np.arange(2 * 40 * 50, dtype="u2").reshape(2, 40, 50), (1, 40, 50))
    assert image(tree_of(tmp_path / "s"), "i/0.preview.png").size == (200, 320)


@pytest.mark.parametrize(
    ("shape", "names", "size"),
    [
        ((64, 5000), None, (512, 64)),  # of unknown proportions: a line of 7 pixels shows nothing
        ((5000, 20), None, (80, 512)),
        ((40, 5000), ("y", "x"), (512, 4)),  # an image is as thin as it is
        ((3, 3), None, (258, 258)),
        ((1, 1), ("y", "x"), (256, 256)),
        ((300, 200), None, (200, 300)),
    ],
)
def test_small_and_thin_pictures_are_large_enough_to_be_seen(
    shape: tuple[int, int], names: tuple[str, str] | None, size: tuple[int, int]
) -> None:
    values = np.arange(math.prod(shape), dtype="f4").reshape(shape)
    made = plan_picture(view_of(values, tuple(map(Axis, names or (None, None)))))
    assert made.order == (0, 1)
    picks = made.selection.picks
    part = values[tuple(slice(one.start, one.start + one.length * one.step, one.step) for one in picks)]
    found = Image.open(io.BytesIO(made.draw(part)))
    assert found.size == size
    if shape == (64, 5000):
        assert made.selection.picks[0].length == 64  # no row is left out


def test_a_stack_of_colour_pictures_without_names_shows_one_of_them() -> None:
    """As for machine learning: pictures, rows, columns, colours. It showed rows of one column and its three colours."""
    values = np.random.default_rng(1).integers(0, 255, (6, 40, 50, 3)).astype("u1")
    made = plan_picture(view_of(values))
    assert [pick.length for pick in made.selection.picks] == [1, 40, 50, 3]
    found = Image.open(io.BytesIO(made.draw(values[3].transpose(made.order))))
    assert found.mode == "RGB"
    assert (each(found, (40, 50)) == values[3]).all()


def test_p12_n5_shows_its_first_dimension_from_left_to_right(tmp_path: Path) -> None:
    values = np.arange(30 * 20, dtype="u1").reshape(30, 20)
    with z5py.File(str(tmp_path / "s.n5"), "w", use_zarr_format=False) as file:
        file.create_dataset("a", shape=values.shape, chunks=(8, 8), dtype="uint8", compression="gzip")[:] = values
    found = image(tree_of(tmp_path / "s.n5"), "a.preview.png")
    assert np.abs(each(found, (30, 20)).astype(int) - grey(values)[0]).max() <= 1


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        (np.tri(20, dtype="bool"), "L"),
        (np.exp(1j * np.arange(400)).reshape(20, 20).astype("c8") * np.arange(20), "L"),
        (np.full((20, 20), np.nan, "f4"), "LA"),
        (np.full((20, 20), 3, "i8"), "L"),
        (np.random.default_rng(4).integers(0, 255, (20, 30, 3)).astype("u1"), "RGB"),
        (np.random.default_rng(4).integers(0, 255, (20, 30, 4)).astype("u1"), "RGBA"),
        (np.array([["2020", "NaT"], ["2021", "2022"]], "M8[s]"), "LA"),
        (np.finfo("f8").max * np.array([[-1, 1], [0, 0.5]]), "L"),
    ],
)
def test_every_kind_of_number_has_a_preview(values: Any, mode: str) -> None:
    made = plan_picture(view_of(values))
    found = Image.open(io.BytesIO(made.draw(values.transpose(made.order))))
    found.load()
    assert found.mode == mode
    if values.dtype.kind == "b":
        assert (each(found, values.shape) == values * 255).all()
    if values.dtype.kind == "c":
        assert np.abs(each(found, values.shape).astype(int) - grey(np.abs(values))[0]).max() <= 1
    if values.dtype == np.uint8:
        assert (each(found, values.shape[:2]) == values).all()


@pytest.mark.parametrize("name", ["_FillValue", "missing_value", "maxId", "actual_range", "scale_factor", "valid_min"])
def test_p8_a_number_that_no_element_can_be_is_ignored(tmp_path: Path, name: str) -> None:
    """An integer of 400 digits was an OverflowError in each preview of the array."""
    made, values = group(tmp_path / "s"), np.arange(256, dtype="u1").reshape(16, 16)
    array(made, "a", values, values.shape, attributes={name: [0, 10**400] if name == "actual_range" else 10**400})
    found = image(tree_of(tmp_path / "s"), "a.preview.png")
    assert np.abs(each(found, (16, 16)).astype(int) - grey(values)[0]).max() <= 1
    tree = tree_of(tmp_path / "s", files=("npy", "tif", "nii", "png", "csv", "h5", "preview", "html"))
    for batch in tree.root.entries():
        for entry in batch:
            assert content(tree, entry.name.decode())


def test_p8_an_axis_that_is_latitude_and_longitude_at_once_is_neither() -> None:
    axes = Axis("t"), Axis("q"), Axis("lon", "degrees_north")
    values = np.arange(3 * 8 * 8, dtype="u1").reshape(3, 8, 8)
    parts = sampling.choose_plane(view_of(values, axes))
    assert (parts.rows, parts.columns, parts.geographic) == (1, 2, False)


def test_what_cannot_be_drawn_has_no_preview(tmp_path: Path) -> None:
    made = group(tmp_path / "s")
    made.create_array("empty", shape=(0, 5), chunks=(1, 5), dtype="f8")
    made.create_array("huge", shape=(20_000, 20_000), chunks=(20_000, 20_000), dtype="u1")
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["text"] = np.array([b"a", b"b"])
    for store, name in (("s", "empty"), ("s", "huge"), ("t.h5", "text")):
        with pytest.raises(NotFound):
            find_node(tree_of(tmp_path / store).root, f"{name}.preview.png")


def test_p7_the_middle_is_shown_where_all_of_a_plane_would_cost_too_much(tmp_path: Path) -> None:
    made = group(tmp_path / "s")
    stored = made.create_array("a", shape=(1_000_000, 2_000_000), chunks=(1000, 1000), dtype="u2")
    stored[499_000:501_000, 999_000:1_001_000] = np.tile(np.arange(2000, dtype="u2"), (2000, 1))
    found = image(tree_of(tmp_path / "s"), "a.preview.png")
    rows, columns = ([int(n) for n in part.split(":")] for part in found.info["Elements"][1:-1].split(","))
    assert rows[0] < 500_000 < rows[1]
    assert columns[0] < 1_000_000 < columns[1]
    assert (rows[1] - rows[0]) // 1000 * ((columns[1] - columns[0]) // 1000) * 2 * 10**6 <= 64 * MIB


@pytest.mark.parametrize("colors", [(), (3,)])
def test_p7_many_small_chunks_are_sampled_more_coarsely(colors: tuple[int, ...]) -> None:
    shape = (*colors, 1_500_000, 1 << 20)
    metadata = ArrayMetadata(ChunkGrid(shape, (1,) * len(shape)), DataType("u", 1, "little", "u", np.dtype("u1")))
    found = plan_picture(
        View("a", metadata, select_all(shape), Meaning(tuple(map(Axis, ["c", "y", "x"][-len(shape) :]))), False)
    )
    picks = found.selection.picks[-2:]
    assert not found.middle
    assert 1000 < found.selection.size <= CHUNKS
    assert all(pick.step * (pick.length + 1) > n for pick, n in zip(picks, shape[-2:], strict=True)), "all of the plane"


@dataclass
class CountedChunks(FakeChunks):
    """`asked`: how often it was asked for a chunk."""

    asked: int = 0

    def find(self, index: Index) -> ChunkInfo:
        self.asked += 1
        return super().find(index)


def test_p6_p9_a_preview_of_very_many_small_chunks_is_made_of_few_of_them() -> None:
    chunks = CountedChunks({(0, 0): b"\x09"}), CountedChunks({})
    grids = ChunkGrid((1 << 20, 1 << 20), (1, 1)), ChunkGrid((1 << 40,), (1,))
    types = DataType("u", 1, "little", "|u1", np.dtype("u1")), DataType("f", 4, "little", "<f4", np.dtype("<f4"))
    plane = FakeArray(ArrayMetadata(grids[0], types[0], b"\x07"), chunks[0])
    line = FakeArray(ArrayMetadata(grids[1], types[1]), chunks[1])
    root = fake_tree(FakeGroup({"a": plane, "b": line}), layout="files")
    picture = Image.open(io.BytesIO(whole_content(root.lookup(b"a.preview.png"))))
    assert picture.getpixel((0, 0)) != picture.getpixel((100, 100)), "the one stored chunk is at the corner"
    assert b"elements" in whole_content(root.lookup(b"b.preview.svg"))
    assert all(1000 < one.asked <= 2 * CHUNKS for one in chunks)


def test_channels_are_left_out_where_a_chunk_of_each_would_be_too_much() -> None:
    grid = ChunkGrid((5, 8000, 8000), (1, 5000, 5000))
    metadata = ArrayMetadata(grid, DataType("u", 1, "little", "u", np.dtype("u1")))
    found = choose_sample(metadata, select_all(grid.shape), {1: Wish(512), 2: Wish(512)}, {}, {0: 5})
    assert found.selection.picks[0].length == 2
    assert found.selection.shape[1:] > (500, 500)


extents = st.integers(1, 5000) | st.integers(1, 2**40)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(extents, st.integers(1, 3000)), min_size=2, max_size=4), st.sampled_from([1, 2, 8]), st.data())
def test_p6_no_preview_decodes_more_than_its_limit(dims: list[tuple[int, int]], itemsize: int, data: st.DataObject) -> None:
    shape, chunks = tuple(n for n, _ in dims), tuple(edge for _, edge in dims)
    dtype = np.dtype(f"u{itemsize}")
    metadata = ArrayMetadata(ChunkGrid(shape, chunks), DataType("u", itemsize, "little", "u", dtype))
    most = st.none() | st.integers(1, 512)
    shown = {len(shape) - 1: Wish(data.draw(most)), len(shape) - 2: Wish(data.draw(most))}
    at = {i: n // 2 for i, n in enumerate(shape[:-2])}
    try:
        found = choose_sample(metadata, select_all(shape), shown, at)
    except Unfit:
        assert math.prod(chunks) * itemsize > DECODED_BYTES
        return
    touched = 1
    for pick, edge, n in zip(found.selection.picks, chunks, shape, strict=True):
        last = pick.start + (pick.length - 1) * pick.step
        assert 0 <= pick.start <= last < n
        touched *= pick.length if pick.step >= edge else last // edge - pick.start // edge + 1
    assert touched * math.prod(chunks) * itemsize <= DECODED_BYTES
    assert touched <= CHUNKS
    if not found.middle:
        for dimension, wish in shown.items():
            assert wish.most is not None or found.selection.picks[dimension].length == shape[dimension]


@pytest.mark.parametrize("make", [lambda: np.zeros((512, 512), "u1"), lambda: np.zeros(10**6, "f4")])
def test_p11_a_preview_that_is_looked_at_again_is_not_made_again(tmp_path: Path, make: Callable[[], Any]) -> None:
    values = make()
    array(group(tmp_path / "s"), "a", values, values.shape)
    tree = tree_of(tmp_path / "s")
    first, second = find_node(tree.root, "a.preview.png"), find_node(tree.root, "a.preview.png")
    assert first.version == second.version
    one, other = first.open(), second.open()
    assert memoryview(one.read(0, one.size)).obj is memoryview(other.read(0, other.size)).obj
