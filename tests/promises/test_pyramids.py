"""`GROUP.ome.tif`: images of several levels as one tiled OME-TIFF, read by tifffile and compared with what was written."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import h5py
import numpy as np
import pytest
import tifffile
import zarr
from mounting import MountFunction
from n5_arrays import write_n5
from PIL import Image
from tree_walker import content, find_node

from fsbridge.config import Config
from fsbridge.errors import FsbridgeError, NotFound, Stale
from fsbridge.layouts.files.filetypes import pyramid as pyramids
from fsbridge.metadata import JSON
from fsbridge.mount.lifecycle import open_tree
from fsbridge.tree import AnyNode, File

IMAGE = np.random.default_rng(1).integers(0, 60000, (2, 3, 300, 410), dtype="<u2")
"""c, z, y, x; neither height nor width is a multiple of anything."""
LEVELS = [IMAGE, IMAGE[:, :, ::2, ::2], IMAGE[:, :, ::4, ::4]]
AXES = [{"name": "c", "type": "channel"}, *({"name": name, "type": "space", "unit": "micrometer"} for name in "zyx")]
OMERO = {
    "channels": [
        {"label": "DAPI", "color": "0000FF", "window": {"start": 0, "end": 9000}},
        {"label": "GFP", "color": "00FF00", "window": {"start": 5, "end": 500}},
    ]
}


def multiscales(levels: list[Any], version: str = "0.4") -> dict[str, Any]:
    datasets = [
        {
            "path": str(number),
            "coordinateTransformations": [
                {"type": "scale", "scale": [1.0, *(0.5 * LEVELS[0].shape[i] / level.shape[i] for i in (1, 2, 3))]}
            ],
        }
        for number, level in enumerate(levels)
    ]
    return {"multiscales": [{"version": version, "name": "cells", "axes": AXES, "datasets": datasets}], "omero": OMERO}


def ngff(folder: Path, levels: list[Any], zarr_format: Any = 3, chunks: tuple[int, ...] = (1, 1, 64, 128)) -> Path:
    told = multiscales(levels, "0.5" if zarr_format == 3 else "0.4")
    root = zarr.create_group(folder / "s.zarr", zarr_format=zarr_format)
    group = root.create_group("cells", attributes={"ome": told} if zarr_format == 3 else told)
    for number, level in enumerate(levels):
        group.create_array(str(number), shape=level.shape, chunks=chunks, dtype=level.dtype)[...] = level
    return folder / "s.zarr"


def n5(folder: Path) -> Path:
    """Levels that halve z, too, as N5 has them; x is first."""
    for number in range(3):
        values = IMAGE[0, :, :: 2**number, :: 2**number][:: 2**number].T
        write_n5(folder / f"s.n5/cells/s{number}", values, [64, 64, 2])
    (folder / "s.n5/attributes.json").write_text('{"n5": "4.0.0"}')
    (folder / "s.n5/cells/attributes.json").write_text('{"scales": [[1, 1, 1], [2, 2, 2], [4, 4, 4]]}')
    return folder / "s.n5"


def bigdataviewer(folder: Path) -> Path:
    with h5py.File(folder / "s.h5", "w") as file:
        for number, level in enumerate(LEVELS):
            file.create_dataset(f"t00000/s00/{number}/cells", data=level[0].astype("<i2"), chunks=(1, 64, 64))
    return folder / "s.h5"


@pytest.fixture
def find() -> Iterator[Callable[..., AnyNode]]:
    """Looks up a file of a store."""
    trees = []

    def look(source: Path, path: str) -> AnyNode:
        trees.append(open_tree(Config(source=str(source), mountpoint="/nowhere", layout="files", metadata_ttl=0)))
        found: AnyNode = find_node(trees[-1].root, path)
        return found

    yield look
    for tree in trees:
        tree.close()


def tiles(node: AnyNode, level: int) -> list[tuple[int, int]]:
    """Return where the tiles of a level begin in a file, and how many bytes each has."""
    with tiff(node) as file:
        pages = [cast(tifffile.TiffPage, page) for page in file.series[0].levels[level].pages]
        return [place for page in pages for place in zip(page.dataoffsets, page.databytecounts, strict=True)]


def tiff(node: AnyNode) -> tifffile.TiffFile:
    return tifffile.TiffFile(io.BytesIO(content(node, 50_000)))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_p12_ngff_is_one_pyramid(zarr_format: int, tmp_path: Path, find: Callable[..., AnyNode]) -> None:
    with tiff(find(ngff(tmp_path, LEVELS, zarr_format), "cells.ome.tif")) as file:
        assert file.is_ome
        assert not file.is_bigtiff
        (series,) = file.series
        assert (series.axes, series.name) == ("CZYX", "cells")
        for level, values in zip(series.levels, LEVELS, strict=True):
            np.testing.assert_array_equal(level.asarray(), values)
        page: Any = series.levels[0].pages[0]
        assert (page.tilelength, page.tilewidth) == (64, 128), "a tile is a chunk"
        told = tifffile.xml2dict(file.ome_metadata or "")["OME"]["Image"]["Pixels"]
        assert (told["PhysicalSizeX"], told["PhysicalSizeXUnit"]) == (0.5, "µm")
        assert [channel["Name"] for channel in told["Channel"]] == ["DAPI", "GFP"]
        assert [channel["Color"] for channel in told["Channel"]] == [0x0000FFFF, 0x00FF00FF]
        windows = tifffile.xml2dict(file.ome_metadata or "")["OME"]["StructuredAnnotations"]["MapAnnotation"]["Value"]["M"]
        assert [window["value"] for window in windows] == ["0 9000", "5 500"]


def test_p12_levels_of_other_planes_are_images_of_their_own(tmp_path: Path, find: Callable[..., AnyNode]) -> None:
    with tiff(find(n5(tmp_path), "cells.ome.tif")) as file:
        assert len(file.series) == 3
        for number, series in enumerate(file.series):
            np.testing.assert_array_equal(
                series.asarray(squeeze=False).squeeze(),
                IMAGE[0, :, :: 2**number, :: 2**number][:: 2**number].squeeze(),
            )


@pytest.mark.parametrize(("names", "samples"), [("cyx", 3), ("yxc", 3), ("tczyx", 3), ("yxc", 4)])
@pytest.mark.parametrize("big", [False, True])
def test_p12_levels_of_colours_are_colours(
    names: str, samples: int, big: bool, tmp_path: Path, find: Callable[..., AnyNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    if big:
        monkeypatch.setattr(pyramids, "CLASSIC_BYTES", 100)
    picture = np.random.default_rng(1).integers(0, 255, (150, 210, samples)).astype("u1")
    levels = [picture, picture[::2, ::2], picture[::4, ::4]]
    axes = [{"name": name} for name in names]
    datasets = [{"path": str(number)} for number in range(3)]
    scales = [{"version": "0.4", "name": "slide", "axes": axes, "datasets": datasets}]
    root = zarr.create_group(tmp_path / "s.zarr", zarr_format=2, attributes={"multiscales": scales})
    for number, level in enumerate(levels):
        values = np.moveaxis(level, -1, 0) if names != "yxc" else level
        values = values[None, :, None] if names == "tczyx" else values
        root.create_array(str(number), shape=values.shape, chunks=tuple(min(n, 64) for n in values.shape), dtype="u1")[
            ...
        ] = values
    with tiff(find(tmp_path / "s.zarr", "s.ome.tif")) as file:
        (series,) = file.series
        assert file.is_bigtiff == big
        page = file.pages[0]
        assert isinstance(page, tifffile.TiffPage)
        assert (page.photometric, series.axes, len(series.levels)) == (tifffile.PHOTOMETRIC.RGB, "YXS", 3)
        for shown, values in zip(series.levels, levels, strict=True):
            np.testing.assert_array_equal(shown.asarray(), values)
        told = tifffile.xml2dict(file.ome_metadata or "")["OME"]["Image"]
        assert (told["Name"], told["Pixels"]["Channel"]["SamplesPerPixel"]) == ("slide", samples)


def told(node: AnyNode) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(content(node, 50_000))
    return found


def test_a_group_says_which_levels_are_in_which_image(tmp_path: Path, find: Callable[..., AnyNode]) -> None:
    halved = {"path": "s1", "shape": [205, 150, 2]}, {"path": "s2", "shape": [103, 75, 1]}
    deep = told(find(n5(tmp_path), "cells.json"))["pyramid"]["images"]
    assert [image["levels"] for image in deep] == [[{"path": "s0", "shape": [410, 300, 3]}], *([level] for level in halved)]
    source = ngff(tmp_path, LEVELS)
    flat = told(find(source, "cells.json"))["pyramid"]["images"]
    expected = [{"path": str(number), "shape": list(level.shape)} for number, level in enumerate(LEVELS)]
    assert flat == [{"name": "cells", "levels": expected}]
    (source / "cells/1/zarr.json").write_text("{")
    assert "not_possible" in told(find(source, "cells.json"))["pyramid"]
    assert "pyramid" not in told(find(source, "store.json"))


def test_p9_a_missing_level_is_described_the_same_however_it_was_asked(tmp_path: Path, find: Callable[..., AnyNode]) -> None:
    source = ngff(tmp_path, LEVELS)
    shutil.rmtree(source / "cells/1")
    assert told(find(source, "cells.json"))["pyramid"] == {"not_possible": "there is no array /cells/1"}


def test_p12_levels_of_bigdataviewer_are_in_one_tiff(tmp_path: Path, find: Callable[..., AnyNode]) -> None:
    with tiff(find(bigdataviewer(tmp_path), "t00000/s00.ome.tif")) as file:
        assert len(file.series) == 1
        for level, values in zip(file.series[0].levels, LEVELS, strict=True):
            np.testing.assert_array_equal(level.asarray(), values[0].astype("<i2"))


@pytest.mark.parametrize("dtype", ["u1", "i1", ">u2", ">f4", "<f8", "<i4", ">c8"])
def test_p12_levels_of_each_type_are_in_one_tiff(dtype: str, tmp_path: Path, find: Callable[..., AnyNode]) -> None:
    """Levels may differ in their byte order: a file has one."""
    root = zarr.create_group(tmp_path / "s.zarr", zarr_format=2, attributes=multiscales(LEVELS[:2]))
    values = [level.astype(dtype) for level in LEVELS[:2]]
    for number, level in enumerate(values):
        kind: Any = level.dtype if number == 0 else level.dtype.newbyteorder("=")
        root.create_array(str(number), shape=level.shape, chunks=(1, 1, 100, 100), dtype=kind)[...] = level
    with tiff(find(tmp_path / "s.zarr", "s.ome.tif")) as file:
        for shown, expected in zip(file.series[0].levels, values, strict=True):
            np.testing.assert_array_equal(shown.asarray(), expected)
            assert shown.dtype == np.dtype(dtype).newbyteorder("=")


def test_bigtiff_and_any_range_of_bytes(
    tmp_path: Path, find: Callable[..., AnyNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyramids, "CLASSIC_BYTES", 100)
    node: Any = find(ngff(tmp_path, LEVELS), "cells.ome.tif")
    whole = content(node, 50_000)
    with tifffile.TiffFile(io.BytesIO(whole)) as file:
        assert file.is_bigtiff
        for level, values in zip(file.series[0].levels, LEVELS, strict=True):
            np.testing.assert_array_equal(level.asarray(), values)
    handle = node.open()
    for start in np.random.default_rng(3).integers(0, len(whole), 200).tolist():
        assert bytes(handle.read(start, 777)) == whole[start : start + 777]
    handle.close()


def test_p2_a_damaged_tile_is_an_error_and_no_other(tmp_path: Path, find: Callable[..., AnyNode]) -> None:
    source = ngff(tmp_path, LEVELS)
    places = tiles(find(source, "cells.ome.tif"), 0)
    (source / "cells/0/c/0/0/1/1").write_bytes(b"no chunk")
    node = find(source, "cells.ome.tif")
    assert isinstance(node, File)
    handle, across = node.open(), -(-IMAGE.shape[-1] // 128)
    for number, (offset, size) in enumerate(places):
        if number == across + 1:
            with pytest.raises(FsbridgeError):
                handle.read(offset, size)
        else:
            handle.read(offset, size)
    handle.close()


def test_p9_a_changed_level_or_description_is_another_file(tmp_path: Path, find: Callable[..., AnyNode]) -> None:
    source = ngff(tmp_path, LEVELS)
    node: Any = find(source, "cells.ome.tif")
    node.open().close()
    zarr.open_group(source / "cells").attrs["ome"] = multiscales(LEVELS[:2], "0.5")
    with pytest.raises(Stale):
        node.open()
    with tiff(find(source, "cells.ome.tif")) as file:
        assert len(file.series[0].levels) == 2
    node = find(source, "cells.ome.tif")
    array: Any = zarr.open_array(source / "cells/1")
    handle, (start, tile) = node.open(), tiles(node, 1)[0]
    old = bytes(handle.read(start, tile))
    array[...] = 7
    assert bytes(handle.read(start, tile)) == old
    handle.close()
    with pytest.raises(Stale):
        node.open()


@pytest.mark.parametrize("path", ["cells", "empty", "odd", "outside"])
def test_a_group_that_is_no_pyramid_has_no_such_file(path: str, tmp_path: Path, find: Callable[..., AnyNode]) -> None:
    root = zarr.create_group(tmp_path / "s.zarr")
    told = {name: multiscales(LEVELS, "0.5") for name in ("empty", "odd", "outside")}
    told["odd"]["multiscales"] = [{"datasets": [7, {"path": ["x"]}, {}]}, 3]
    told["outside"]["multiscales"][0]["datasets"] = [{"path": "../cells"}]
    for name in ("cells", *told):
        root.create_group(name, attributes={"ome": told[name]} if name in told else {})
    with pytest.raises(NotFound):
        find(tmp_path / "s.zarr", f"{path}.ome.tif")


def test_listed_and_read_through_a_mount(tmp_path: Path, mount: MountFunction) -> None:
    mounted = mount(ngff(tmp_path, LEVELS), "--layout", "files", "--files", "ome.tif")
    assert sorted(os.listdir(mounted)) == ["cells", "cells.json", "cells.ome.tif", "store.json"]
    with tifffile.TiffFile(mounted / "cells.ome.tif") as file:
        for level, values in zip(file.series[0].levels, LEVELS, strict=True):
            np.testing.assert_array_equal(level.asarray(), values)


def plate(folder: Path) -> tuple[Path, dict[str, np.ndarray[Any, Any]]]:
    """Two rows of three wells, of which there are three with two fields each, as OME-NGFF 0.4 says it."""
    rng, images = np.random.default_rng(5), {}
    wells = [("A/1", 0, 0), ("A/3", 0, 2), ("B/2", 1, 1)]
    told = {
        "version": "0.4",
        "name": "screen",
        "rows": [{"name": "A"}, {"name": "B"}],
        "columns": [{"name": "1"}, {"name": "2"}, {"name": "3"}],
        "wells": [{"path": path, "rowIndex": row, "columnIndex": column} for path, row, column in wells],
    }
    root = zarr.create_group(folder / "p.zarr", zarr_format=2, attributes={"plate": told})
    for number, (path, _, _) in enumerate(wells):
        fields = [{"path": "0"}, {"path": "1"}]
        well = root.create_group(path, attributes={"well": {"version": "0.4", "images": fields}})
        for field in ("0", "1"):
            scales = {"version": "0.4", "axes": [{"name": name} for name in "cyx"], "datasets": [{"path": "0"}]}
            values = rng.integers(0, 1000, (2, 64, 64)).astype("<u2")
            values[:, : 20 * (number + 1)] = 9000
            array = well.create_group(field, attributes={"multiscales": [scales]}).create_array(
                "0", shape=values.shape, chunks=(1, 64, 64), dtype="<u2"
            )
            array[...] = values
            images[f"{path}/{field}"] = values
    return folder / "p.zarr", images


def test_p12_a_plate_places_the_files_of_its_fields(tmp_path: Path, find: Callable[..., AnyNode]) -> None:
    source, images = plate(tmp_path)
    document = ElementTree.fromstring(content(find(source, "p.companion.ome"), 50_000))
    space = {"": "http://www.openmicroscopy.org/Schemas/OME/2016-06"}
    shown = document.find("Plate", space)
    assert shown is not None
    assert (shown.get("Name"), shown.get("Rows"), shown.get("Columns")) == ("screen", "2", "3")
    placed = {
        (well.get("Row"), well.get("Column")): [str(one.get("ID")) for one in well.findall("WellSample/ImageRef", space)]
        for well in shown.findall("Well", space)
    }
    files = {str(image.get("ID")): image.find("Pixels/TiffData/UUID", space) for image in document.findall("Image", space)}
    assert len({None if file is None else file.text for file in files.values()}) == 6, "each file has a name of its own"
    wells = {("0", "0"): "A/1", ("0", "2"): "A/3", ("1", "1"): "B/2"}
    assert placed.keys() == wells.keys()
    for place, well in wells.items():
        for field, identity in zip(("0", "1"), placed[place], strict=True):
            told = files[identity]
            assert told is not None
            assert told.get("FileName") == f"{well}/{field}.ome.tif"
            with tiff(find(source, f"{well}/{field}.ome.tif")) as file:
                assert tifffile.xml2dict(file.ome_metadata or "")["OME"]["UUID"] == told.text
                np.testing.assert_array_equal(file.asarray(), images[f"{well}/{field}"])


def test_a_plate_s_picture_has_its_wells_in_their_places(tmp_path: Path, find: Callable[..., AnyNode]) -> None:
    source, _ = plate(tmp_path)
    with Image.open(io.BytesIO(content(find(source, "plate.png"), 50_000))) as picture:
        pixels = np.asarray(picture.convert("RGBA")).astype(int)
    side, left, top = 96, 8, 10
    assert pixels.shape == (top + 2 * side, left + 3 * side, 4)
    assert (pixels[:top, left:, 3] > 0).any(), "names of columns"
    assert (pixels[top:, : left - 2, 3] > 0).any(), "names of rows"
    cells = pixels[top:, left:].reshape(2, side, 3, side, 4).swapaxes(1, 2)[:, :, : side - 2, : side - 2]
    opaque = (cells[..., 3] == 255).all(axis=(2, 3))
    np.testing.assert_array_equal(opaque, [[True, False, True], [False, True, False]])
    bright = [(cells[place][..., :3].sum(-1).mean(-1) > 300).mean() for place in ((0, 0), (0, 2), (1, 1))]
    np.testing.assert_allclose(bright, [20 / 64, 40 / 64, 60 / 64], atol=0.03)


@pytest.mark.parametrize("window", [None, {"start": 0, "end": 4000}])
def test_wells_of_a_plate_are_as_bright_as_their_elements(
    window: dict[str, JSON] | None, tmp_path: Path, find: Callable[..., AnyNode]
) -> None:
    source, _ = plate(tmp_path)
    for number, well in enumerate(("A/1", "A/3", "B/2")):
        array: Any = zarr.open_array(source / well / "0/0")
        array[0] = np.linspace(0, 1000 * 2**number, 4096, dtype="u2").reshape(64, 64)
        array[1] = 0
        if window is not None:
            channels: list[JSON] = [{"color": color, "window": window} for color in ("FFFFFF", "00FF00")]
            zarr.open_group(source / well / "0").attrs["omero"] = {"channels": channels}
    with Image.open(io.BytesIO(content(find(source, "plate.png"), 50_000))) as picture:
        assert picture.info["Limits"].split("; ")[0] == "0 4000" or window is None
        pixels = np.asarray(picture.convert("RGB")).astype(int)[10:, 8:]
    means = [
        pixels[96 * row : 96 * row + 94, 96 * column : 96 * column + 94, 0].mean()
        for row, column in ((0, 0), (0, 2), (1, 1))
    ]
    assert means[1] / means[0] == pytest.approx(2, rel=0.05)
    assert means[2] / means[1] == pytest.approx(2, rel=0.12), "the brightest elements of all are cut off"


@pytest.mark.parametrize("names", [["a very long name indeed"] * 3, ["\u0000", "ﷺ", "°"]])
def test_a_plate_s_picture_has_room_for_any_names(names: list[str], tmp_path: Path, find: Callable[..., AnyNode]) -> None:
    source, _ = plate(tmp_path)
    root = zarr.open_group(source)
    told: Any = root.attrs["plate"]
    root.attrs["plate"] = {**told, "rows": [{"name": name} for name in names], "columns": [{"name": name} for name in names]}
    with Image.open(io.BytesIO(content(find(source, "plate.png"), 50_000))) as picture:
        assert picture.height == 10 + 3 * 96
        assert 3 * 96 <= picture.width < 3 * 96 + 12 * 18 * 6 + 8


def test_a_plate_s_picture_is_made_of_levels_that_are_as_fine_as_its_pixels(
    tmp_path: Path, find: Callable[..., AnyNode]
) -> None:
    source, _ = plate(tmp_path)
    alone = content(find(source, "plate.png"), 50_000)
    for well in ("A/1", "A/3", "B/2"):
        image = zarr.open_group(source / well / "0")
        told: Any = image.attrs["multiscales"]
        image.attrs["multiscales"] = [{**told[0], "datasets": [{"path": "0"}, {"path": "1"}]}]
        image.create_array("1", data=np.zeros((2, 8, 8), "<u2"))
    assert content(find(source, "plate.png"), 50_000) == alone


def test_a_plate_s_page_shows_its_picture(tmp_path: Path, mount: MountFunction) -> None:
    source, _ = plate(tmp_path)
    mounted = mount(source, "--layout", "files", "--files", "html,preview").path
    assert 'src="./plate.png"' in (mounted / "index.html").read_text()
    assert {"index.html", "plate.png"} <= {*os.listdir(mounted)}
    assert (mounted / "plate.png").stat().st_size == len((mounted / "plate.png").read_bytes())
    assert 'src="./plate.png"' not in (mounted / "A/index.html").read_text()


def test_p3_a_plate_with_a_damaged_well_is_an_error_and_no_dark_place(tmp_path: Path, find: Callable[..., AnyNode]) -> None:
    source, _ = plate(tmp_path)
    (source / "B/2/0/0/0.0.0").write_bytes(b"no chunk")
    node = find(source, "plate.png")
    with pytest.raises(FsbridgeError):
        cast(Any, node).measure()
    (source / "A/1/.zattrs").write_text("{")
    with pytest.raises(FsbridgeError):
        find(source, "p.companion.ome")


def test_p8_a_plate_of_any_name_is_well_formed_xml(tmp_path: Path, find: Callable[..., AnyNode]) -> None:
    source, _ = plate(tmp_path)
    root = zarr.open_group(source)
    told: Any = root.attrs["plate"]
    root.attrs["plate"] = {**told, "name": "a\x01\ufffe\u202eb<"}
    document = ElementTree.fromstring(content(find(source, "p.companion.ome"), 50_000))
    shown = document.find("{http://www.openmicroscopy.org/Schemas/OME/2016-06}Plate")
    assert shown is not None
    assert shown.get("Name") == "ab<"


def test_p9_a_changed_well_is_another_picture(tmp_path: Path, find: Callable[..., AnyNode]) -> None:
    source, _ = plate(tmp_path)
    node: Any = find(source, "plate.png")
    before = content(node, 50_000)
    array: Any = zarr.open_array(source / "A/1/0/0")
    array[...] = 3
    with pytest.raises(Stale):
        node.open()
    assert content(find(source, "plate.png"), 50_000) != before


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": []},
        {"columns": [{}]},
        {"wells": [{"path": "../x", "rowIndex": 0, "columnIndex": 0}]},
        {"wells": [{"path": "A/1", "rowIndex": 2, "columnIndex": 0}]},
        {"wells": [{"path": "A/1", "rowIndex": True, "columnIndex": 0}]},
        {"wells": [{"path": path, "rowIndex": 0, "columnIndex": 0} for path in ("A/1", "A/3")]},
        {"rows": [{"name": str(number)} for number in range(2000)]},
    ],
)
def test_plates_that_make_no_sense_are_none(wrong: dict[str, Any], tmp_path: Path, find: Callable[..., AnyNode]) -> None:
    source, _ = plate(tmp_path)
    root = zarr.open_group(source)
    told: Any = root.attrs["plate"]
    root.attrs["plate"] = {**told, **wrong}
    for name in ("plate.png", "p.companion.ome"):
        with pytest.raises(NotFound):
            find(source, name)
