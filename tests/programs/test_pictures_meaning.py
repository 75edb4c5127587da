"""What pictures say beside their elements: colours, names of channels, missing elements, place on the earth."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import tifffile
import xarray
import zarr
from mounting import MountFunction

from fsbridge.metadata import JSON

RGB = np.random.default_rng(1).integers(0, 255, (20, 30, 3)).astype("u1")


def png(path: Path) -> np.ndarray[Any, Any]:
    """The samples of a PNG without filters."""
    content = path.read_bytes()
    width, height, _, kind = struct.unpack(">IIBB", content[16:26])
    start = content.index(b"IDAT")
    (length,) = struct.unpack(">I", content[start - 4 : start])
    samples = {0: 1, 2: 3, 6: 4}[kind]
    rows = np.frombuffer(zlib.decompress(content[start + 4 : start + 4 + length]), "u1").reshape(height, -1)[:, 1:]
    return rows.reshape(height, width, samples)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    group = zarr.open_group(tmp_path / "photos.zarr", mode="w", zarr_format=3)
    arrays: dict[str, tuple[np.ndarray[Any, Any], tuple[str, ...] | None]] = {
        "yxc": (RGB, ("y", "x", "c")),
        "cyx": (np.ascontiguousarray(RGB.transpose(2, 0, 1)), ("c", "y", "x")),
        "bare": (RGB, None),
        "zyx": (np.ascontiguousarray(RGB.transpose(2, 0, 1)), ("z", "y", "x")),
    }
    for name, (values, names) in arrays.items():
        shape = values.shape
        group.create_array(name, shape=shape, chunks=shape, dtype="u1", dimension_names=names)[...] = values
    return tmp_path / "photos.zarr"


def test_channels_of_bytes_are_colours(photos: Path, mount: MountFunction) -> None:
    mounted = mount(photos, "--layout", "files").path
    for name in ("yxc", "cyx", "bare"):
        np.testing.assert_array_equal(png(mounted / f"{name}.png"), RGB)
        for suffix in ("tif", "ome.tif"):
            with tifffile.TiffFile(mounted / f"{name}.{suffix}") as file:
                assert file.pages.first.photometric == tifffile.PHOTOMETRIC.RGB
                np.testing.assert_array_equal(file.asarray(), RGB)
    assert not (mounted / "zyx.png").exists()
    with tifffile.TiffFile(mounted / "zyx.tif") as file:
        assert len(file.pages) == 3, "planes are no colours"


def test_names_colours_and_windows_of_channels(tmp_path: Path, mount: MountFunction) -> None:
    group = zarr.open_group(tmp_path / "cells.zarr", mode="w", zarr_format=3)
    axes = [{"name": name, "type": kind} for name, kind in (("c", "channel"), ("y", "space"), ("x", "space"))]
    windows = [{"start": 10, "end": 2000, "min": 0, "max": 65535}, {"start": 0, "end": 500, "min": 0, "max": 65535}]
    channels: list[JSON] = [
        {"label": label, "color": color, "window": window}
        for label, color, window in zip(("DAPI", "GFP"), ("0000FF", "00FF00"), windows, strict=True)
    ]
    datasets: list[JSON] = [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1, 1, 1]}]}]
    scales: list[JSON] = [{"name": "my cells", "axes": axes, "datasets": datasets}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": scales, "omero": {"channels": channels}}
    group.create_array("0", shape=(2, 4, 5), chunks=(2, 4, 5), dtype="<u2")[...] = 7
    mounted = mount(tmp_path / "cells.zarr", "--layout", "files", "--files", "tif,ome.tif").path
    sizes = {entry.name: entry.stat().st_size for entry in mounted.iterdir() if entry.is_file()}
    assert sizes["0.tif"] == len((mounted / "0.tif").read_bytes())
    with tifffile.TiffFile(mounted / "0.tif") as file:
        told = file.imagej_metadata or {}
    assert (told["Labels"], told["Ranges"], told["mode"]) == (["DAPI", "GFP"], (10, 2000, 0, 500), "composite")
    assert [np.asarray(lut)[:, 255].tolist() for lut in told["LUTs"]] == [[0, 0, 255], [0, 255, 0]]
    with tifffile.TiffFile(mounted / "0.ome.tif") as file:
        assert not file.is_bigtiff, "ImageJ 1.53 reads no BigTIFF"
        image = tifffile.xml2dict(file.ome_metadata or "")["OME"]["Image"]
    assert image["Name"] == "my cells"
    found = [(channel["Name"], channel["Color"]) for channel in image["Pixels"]["Channel"]]
    assert found == [("DAPI", 0x0000FFFF), ("GFP", 0x00FF00FF)]


@pytest.mark.parametrize("north_first", [True, False])
def test_a_map_has_its_place_and_its_missing_elements(tmp_path: Path, north_first: bool, mount: MountFunction) -> None:
    latitudes = np.arange(89.0, -90, -2)[:: 1 if north_first else -1]
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as dataset:
        for name, values, unit in (("lat", latitudes, "degrees_north"), ("lon", np.arange(0, 360, 2.0), "degrees_east")):
            dataset.createDimension(name, len(values))
            dataset.createVariable(name, "f8", (name,))[:] = values
            dataset[name].units = unit
        packed = dataset.createVariable("tas", "i2", ("lat", "lon"), fill_value=-32768)
        packed.setncatts({"scale_factor": 0.01, "add_offset": 200.0, "units": "°C & more"})
    mounted = mount(tmp_path / "a.nc", "--layout", "files", "--files", "envi").path
    header = (mounted / "tas.envi.hdr").read_text()
    assert "data ignore value = -32768\n" in header
    assert "data gain values = {0.01}\ndata offset values = {200}\n" in header
    place = "map info = {Geographic Lat/Lon, 1, 1, -1, 90, 2, 2, WGS-84, units=Degrees}\n"
    assert (place in header) == north_first
    assert ("map info" in header) == north_first, "ENVI has no lines that go from south to north"
    with tifffile.TiffFile(mounted / "tas.tif") as file:
        tags = file.pages.first.tags
        assert tags[42113].value == "-32768"
        assert '<Item name="SCALE" sample="0" role="scale">0.01</Item>' in tags[42112].value
        assert '<Item name="UNITTYPE" sample="0" role="unittype">&#176;C &amp;amp; more</Item>' in tags[42112].value


def placed(path: Path) -> tuple[list[float], dict[str, Any]]:
    """Return a GeoTIFF's outer corner of the first pixel, its steps, down and across, and its coordinate system."""
    with tifffile.TiffFile(path) as file:
        tags, told = file.pages.first.tags, file.geotiff_metadata or {}
        if 34264 in tags:
            matrix = np.asarray(tags[34264].value).reshape(4, 4)
            assert not matrix[0, 1]
            assert not matrix[1, 0]
            return [matrix[1, 3], matrix[0, 3], matrix[1, 1], matrix[0, 0]], told
        if 33922 not in tags:
            return [], told
        *pixel, x, y, _ = tags[33922].value
        assert pixel == [0, 0, 0]
        across, down, _ = tags[33550].value
        return [y, x, -down, across], told


UTM = 'PROJCS["WGS 84 / UTM zone 33N",GEOGCS["WGS 84",AUTHORITY["EPSG","4326"]],AUTHORITY["EPSG","32633"]]'


def test_p12_evenly_spaced_maps_are_geotiffs(tmp_path: Path, mount: MountFunction) -> None:
    """The corner of the first pixel is half a step before the coordinates that xarray wrote; sizes are true all the same."""
    values = np.arange(12, dtype="f4").reshape(3, 4)
    degrees = {"lat": ("degrees_north", [10.0, 8.0, 6.0]), "lon": ("degrees_east", [350.0, 351.0, 352.0, 353.0])}
    meters = {"y": ("km", [5000.0, 5000.5, 5001.0]), "x": ("m", [2000.0, 1000.0, 0.0, -1000.0])}
    uneven = {"latitude": ("degrees_north", [1.0, 2.0, 4.0]), "longitude": ("degrees_east", [0.0, 1.0, 2.0, 3.0])}
    rotated = {"rlat": ("degrees", [1.0, 2.0, 3.0]), "rlon": ("degrees", [0.0, 1.0, 2.0, 3.0])}
    coordinates = {
        name: (name, values, {"units": unit})
        for axes in (degrees, meters, uneven, rotated)
        for name, (unit, values) in axes.items()
    }
    mappings = {
        "utm": {"grid_mapping_name": "transverse_mercator", "spatial_ref": UTM},
        "sphere": {"grid_mapping_name": "latitude_longitude", "earth_radius": 6371229.0},
        "etrs": {"grid_mapping_name": "latitude_longitude", "epsg_code": "EPSG:4258"},
        "pole": {"grid_mapping_name": "rotated_latitude_longitude"},
        "words": {"crs_wkt": "WORDS[" * 1000},
    }
    pictures = {
        "plain": (degrees, None), "south": (degrees, None), "etrs_map": (degrees, "etrs"), "sphere_map": (degrees, "sphere"),
        "words_map": (degrees, "words"), "utm_map": (meters, "utm: x y"), "unsaid": (meters, None), "uneven": (uneven, None),
        "turned": (rotated, "pole"), "lost": (meters, "nowhere"),
    }  # fmt: skip
    variables: dict[str, tuple[tuple[str, ...], object, object]] = {
        name: (tuple(axes), values, {} if mapping is None else {"grid_mapping": mapping})
        for name, (axes, mapping) in pictures.items()
    }
    variables |= {name: ((), 0, told) for name, told in mappings.items()}
    dataset = xarray.Dataset(variables, coordinates)
    dataset["south"] = ("back", "lon"), values
    dataset["back"] = "back", [6.0, 8.0, 10.0], {"units": "degrees_north"}
    dataset.to_zarr(tmp_path / "a.zarr", zarr_format=3, consolidated=False)
    mounted = mount(tmp_path / "a.zarr", "--layout", "files", "--files", "tif").path
    sizes = {entry.name: entry.stat().st_size for entry in os.scandir(mounted) if entry.name.endswith(".tif")}
    assert sizes == {name: len((mounted / name).read_bytes()) for name in sizes}
    world, utm = [11.0, 349.5, -2.0, 1.0], [4999750.0, 2500.0, 500.0, -1000.0]
    expected: dict[str, tuple[list[float], int | None]] = {
        "plain": (world, 4326), "south": ([5.0, 349.5, 2.0, 1.0], 4326), "etrs_map": (world, 4258),
        "sphere_map": (world, None), "words_map": (world, None), "utm_map": (utm, 32633),
        "unsaid": ([], None), "uneven": ([], None), "turned": ([], None), "lost": (utm, None),
    }  # fmt: skip
    for name, (place, code) in expected.items():
        found, told = placed(mounted / f"{name}.tif")
        assert found == place, name
        system = told.get("ProjectedCSTypeGeoKey", told.get("GeographicTypeGeoKey"))
        assert (None if system is None else int(system)) == code, name
        assert told.get("GTRasterTypeGeoKey") in ((None,) if code is None else (1,)), "pixels are areas"


@pytest.mark.parametrize(
    ("labels", "colors", "shown"),
    [
        (None, None, True),
        (("R", "G", "B"), ("FF0000", "00FF00", "0000FF"), True),
        ((None, None, None), ("FF0000", "00FF00", "0000FF"), True),
        (("mCherry", "GFP", "DAPI"), ("FF0000", "00FF00", "0000FF"), False),
        (("a", "b", "c", "d"), ("FF0000", "00FF00", "0000FF", "FFFFFF"), False),
    ],
)
def test_channels_of_a_microscope_are_no_colours(
    tmp_path: Path, labels: Any, colors: Any, shown: bool, mount: MountFunction
) -> None:
    """bioformats2raw writes every image with five axes, colour pictures as three channels called R, G, B or nothing."""
    count = 3 if labels is None else len(labels)
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    datasets: list[JSON] = [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1.0] * 5}]}]
    axes: list[JSON] = [{"name": name} for name in "tczyx"]
    group.attrs["multiscales"] = [{"version": "0.4", "name": "a", "axes": axes, "datasets": datasets}]
    if labels is not None:
        channels = [{"label": label, "color": color} for label, color in zip(labels, colors, strict=True)]
        group.attrs["omero"] = {"channels": [{k: v for k, v in one.items() if v is not None} for one in channels]}
    group.create_array("0", shape=(1, count, 1, 20, 30), chunks=(1, 1, 1, 20, 30), dtype="u1")[0, :3, 0] = RGB.transpose(
        2, 0, 1
    )
    mounted = mount(tmp_path / "a.zarr", "--layout", "files").path
    assert (mounted / "0.png").exists() == shown
    with tifffile.TiffFile(mounted / "0.ome.tif") as file:
        assert (file.pages.first.photometric == tifffile.PHOTOMETRIC.RGB) == shown
        if shown:
            np.testing.assert_array_equal(file.asarray(), RGB)
            np.testing.assert_array_equal(png(mounted / "0.png"), RGB)


def test_p2_a_colour_picture_above_4_gib_has_no_classic_tiff(tmp_path: Path, mount: MountFunction) -> None:
    names = ("y", "x", "c")
    shape = (38000, 38000, 3)
    zarr.create_array(tmp_path / "a.zarr", shape=shape, chunks=(1000, 1000, 3), dtype="u1", dimension_names=names)
    mounted = mount(tmp_path / "a.zarr", "--layout", "files").path
    assert not (mounted / "a.tif").exists()
    assert (mounted / "a.ome.tif").stat().st_size > 38000 * 38000 * 3
