"""Landmarks: elements of a small array with known places, in files of all types, by readers of these file types.

For each convention and file type, the reader (`support/landmarks.py`) finds the places that the source says, or the file
says none. What holds is a table in `docs/meaning.md`, which is made from this test.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import netCDF4
import nibabel
import numpy as np
import pytest
import rasterio
import rasterio.warp
import tifffile
from fake_model import FakeGroup, fake_array, tree
from landmarks import LANDMARKS, PLACES, SPACING, ImarisFile, Source, ngff, straight, turned
from tree_walker import content

from fsbridge.model import Node
from fsbridge.tree import Directory

DOCS = Path(__file__).parents[2] / "docs" / "meaning.md"


SCALE = {"type": "scale", "scale": [40.0, 5.0, 4.0]}
SHIFT = {"type": "translation", "translation": [-80.0, 10.0, 2.0]}
TILT = [[2.0, 0.0, 0.0], [0.0, 0.48, 0.14], [0.0, -0.14, 0.48]]
AFFINE = [[2.0, 0.0, 0.0, 7.0], [0.0, 0.48, 0.14, -1.0], [0.0, -0.14, 0.48, 3.0]]
SHEAR = [[2.0, 0.0, 0.0, 7.0], [0.5, 0.5, 0.0, -1.0], [0.0, 0.0, 0.5, 3.0]]
SWAPPED = [[0.0, 0.0, 4.0, 0.0], [0.0, 5.0, 0.0, 0.0], [40.0, 0.0, 0.0, 0.0]]
EVERY, TURNED = "nii nrrd mha mrc tif ome.tif", "nii nrrd mha"
SIZES = (0.04, 0.005, 0.004)
MOVED = straight(SIZES, (-0.08, 0.01, 0.002))
DEPTHS = [0.5, 1.6, 50.0]


def metres(count: int, step: float) -> tuple[Any, dict[str, Any]]:
    return np.arange(count) * step, {"units": "m"}


SFORM = np.array([[1.6, -1.2, 0, 90], [1.2, 1.6, 0, -126], [0, 0, 3, -72], [0, 0, 0, 1]])


def header() -> Any:
    make: Any = nibabel.Nifti1Header  # has no types
    made = make()
    made.set_sform(SFORM, code=1)
    made.set_xyzt_units("mm")
    return np.frombuffer(made.binaryblock, np.uint8)


SOURCES = {
    "OME-NGFF 0.5: scale, translation": Source(EVERY, MOVED, SIZES, group=ngff(SCALE, SHIFT, version="0.5")),
    "OME-NGFF 0.5: scale of the image as well": Source(
        EVERY,
        straight(2 * np.array(SIZES)),
        (0.08, 0.01, 0.008),
        group=ngff(SCALE, version="0.5", coordinateTransformations=[{"type": "scale", "scale": [2, 2, 2]}]),
    ),
    "OME-NGFF 0.6: `sequence`": Source(
        EVERY, MOVED, SIZES, group=ngff({"type": "sequence", "transformations": [SCALE, SHIFT]})
    ),
    "OME-NGFF 0.6: `affine`": Source(
        TURNED, turned(AFFINE), (2e-3, None, None), group=ngff({"type": "affine", "affine": AFFINE})
    ),
    "OME-NGFF 0.6: `affine` with a shear": Source(
        TURNED, turned(SHEAR), (None, None, 0.5e-3), group=ngff({"type": "affine", "affine": SHEAR})
    ),
    "OME-NGFF 0.6: `rotation`, `scale`": Source(
        TURNED,
        order=(0, 2, 1),
        place=turned([[0.0, 0.6, 0.8, 0.0], [0.0, 0.8, -0.6, 0.0], [2.0, 0.0, 0.0, 0.0]]),
        group=ngff(
            {
                "type": "sequence",
                "transformations": [
                    {"type": "scale", "scale": [2, 1, 1]},
                    {"type": "rotation", "rotation": [[0, 0.6, 0.8], [0, 0.8, -0.6], [1, 0, 0]]},
                ],
            }
        ),
        sizes=(2e-3, None, None),
    ),
    "OME-NGFF 0.6: `mapAxis`": Source(
        EVERY,
        turned(SWAPPED),
        order=(0, 1, 2),
        sizes=(0.04, 0.005, 0.004),
        group=ngff({"type": "sequence", "transformations": [SCALE, {"type": "mapAxis", "mapAxis": [2, 1, 0]}]}),
    ),
    "OME-NGFF 0.6: `byDimension`": Source(
        TURNED,
        turned(AFFINE),
        (2e-3, None, None),
        group=ngff(
            {
                "type": "byDimension",
                "transformations": [
                    {
                        "type": "affine",
                        "affine": [[0.48, 0.14, -1.0], [-0.14, 0.48, 3.0]],
                        "input_axes": [1, 2],
                        "output_axes": [1, 2],
                    },
                    {
                        "transformation": {"type": "affine", "affine": [[2.0, 7.0]]},
                        "input_axes": [0],
                        "output_axes": [0],
                    },
                ],
            }
        ),
    ),
    "OME-NGFF 0.6: `bijection`, `inverseOf`": Source(
        EVERY,
        straight(SIZES),
        SIZES,
        group=ngff(
            {
                "type": "bijection",
                "forward": {"type": "inverseOf", "transformation": {"type": "scale", "scale": [1 / 40, 0.2, 0.25]}},
                "inverse": {"type": "scale", "scale": [1 / 40, 0.2, 0.25]},
            }
        ),
    ),
    "OME-NGFF 0.6: `displacements`": Source(
        "", group=ngff({"type": "displacements", "path": "field"}), beside={"field": (np.ones((3, 4, 5, 3)), {})}
    ),
    "OME-NGFF 0.6: `coordinates`": Source(
        "", group=ngff({"type": "coordinates", "path": "field"}), beside={"field": (np.ones((3, 4, 5, 3)), {})}
    ),
    "OME-NGFF 0.6: `affine` in an array of its own": Source(
        "", group=ngff({"type": "affine", "path": "matrix"}), beside={"matrix": (AFFINE, {})}
    ),
    "OME-NGFF RFC-4: `orientation`": Source(
        EVERY,
        straight(SIZES, (-0.08, 0.01, 0.002), (-1, -1, 1)),
        SIZES,
        group=ngff(SCALE, SHIFT, version="0.5", orientation="RAS"),
    ),
    "NIfTI-Zarr: `sform`": Source(
        TURNED,
        lambda index: (SFORM @ [*index[::-1], 1.0])[:3] * (-1, -1, 1),
        (3.0, None, None),
        group=ngff(SCALE, version="0.5"),
        beside={"nifti": (header(), {})},
    ),
    "N5": Source(EVERY, straight(SIZES), SIZES, attributes={"resolution": [40, 5, 4], "units": ["um"] * 3}),
    "COSEM": Source(
        EVERY,
        MOVED,
        SIZES,
        attributes={
            "transform": {"axes": ["z", "y", "x"], "units": ["um"] * 3, "scale": [40, 5, 4], "translate": [-80, 10, 2]}
        },
    ),
    "Imaris: `DataSetInfo`": ImarisFile(EVERY, straight(SIZES, (-0.08, 0.01, 0.002)), SIZES),
    "CF: even coordinates": Source(
        EVERY,
        straight((20e3, 10e3, 10e3)),
        (20e3, 10e3, 10e3),
        beside={"z": metres(3, 20), "y": metres(4, 10), "x": metres(5, 10)},
    ),
    "NeXus: `NXdata` with `signal`, `axes`": Source(
        EVERY,
        straight((20e3, 10e3, 10e3)),
        (20e3, 10e3, 10e3),
        group={"NX_class": "NXdata", "signal": "a", "axes": ["z", "y", "x"]},
        names=None,
        beside={"z": metres(3, 20), "y": metres(4, 10), "x": metres(5, 10)},
    ),
    "NeXus before 2014: `signal=1`, `axes` of the array": Source(
        EVERY,
        straight((20e3, 10e3, 10e3)),
        (20e3, 10e3, 10e3),
        names=None,
        attributes={"signal": 1, "axes": "height:north,east"},
        group={"NX_class": "NXdata"},
        beside={"height": metres(3, 20), "north": metres(4, 10), "east": metres(5, 10)},
    ),
    "NeXus before 2014: `signal=1`, `axis` of the coordinates": Source(
        EVERY,
        straight((20e3, 10e3, 10e3)),
        (20e3, 10e3, 10e3),
        names=None,
        attributes={"signal": 1},
        group={"NX_class": "NXdata"},
        beside={
            name: (values, {**units, "axis": number})
            for number, name, (values, units) in (
                (1, "east", metres(5, 10)),
                (2, "north", metres(4, 10)),
                (3, "height", metres(3, 20)),
            )
        },
    ),
    "CF: uneven depths": Source(
        "",
        None,
        (None, 10e3, 10e3),
        beside={"z": (DEPTHS, {"units": "m"}), "y": metres(4, 10), "x": metres(5, 10)},
    ),
    "names of axes alone": Source("", None),
}


@pytest.mark.parametrize("suffix", PLACES)
@pytest.mark.parametrize("name", SOURCES)
def test_p12_each_landmark_is_where_the_source_says(name: str, suffix: str, tmp_path: Path) -> None:
    source = SOURCES[name]
    data = source.content(suffix, tmp_path)
    place = PLACES[suffix](data, tmp_path)
    if suffix not in source.said.split():
        assert place is None, "not said"
        return
    assert place is not None
    assert source.place is not None
    for landmark in LANDMARKS:
        at = tuple(landmark[dimension] for dimension in source.order)
        np.testing.assert_allclose([*place(at)], [*source.place(landmark)], rtol=1e-5, atol=1e-7, err_msg=str(landmark))


@pytest.mark.parametrize("suffix", SPACING)
@pytest.mark.parametrize("name", SOURCES)
def test_p12_the_size_of_elements_is_the_one_of_the_source(name: str, suffix: str, tmp_path: Path) -> None:
    source = SOURCES[name]
    found = SPACING[suffix](source.content(suffix, tmp_path))
    order = source.order[::-1] if suffix == "mrc" else (0, 1, 2)
    for size, expected in zip(found, [source.sizes[dimension] for dimension in order], strict=True):
        assert size is None or expected == pytest.approx(size, rel=1e-5), "not said"
    if suffix in source.said.split():
        assert None not in found


def test_p12_an_array_of_one_channel_has_its_name_colour_and_window(tmp_path: Path) -> None:
    source = SOURCES["Imaris: `DataSetInfo`"]
    with tifffile.TiffFile(io.BytesIO(source.content("ome.tif", tmp_path))) as file:
        pixels = tifffile.xml2dict(file.ome_metadata or "")["OME"]["Image"]["Pixels"]
    assert (pixels["SizeC"], pixels["Channel"]["Name"]) == (1, "DAPI")
    assert pixels["Channel"]["Color"] == int.from_bytes(bytes((255, 0, 0, 255)), "big", signed=True)
    with tifffile.TiffFile(io.BytesIO(source.content("tif", tmp_path))) as file:
        told = file.imagej_metadata or {}
    assert (told["Labels"], told["Ranges"]) == (["DAPI"] * 4, (0.0, 59.0))
    assert told["LUTs"][..., -1].tolist() == [255, 0, 0]


@pytest.mark.parametrize("suffix", ["nii", "nrrd", "mha", "mrc", "tif", "ome.tif", "envi.hdr", "h5", "preview.png"])
@pytest.mark.parametrize("name", ["`displacements`", "`coordinates`", "`affine` in an array of its own"])
def test_p12_a_field_leaves_places_as_unknown_as_they_are_without(name: str, suffix: str, tmp_path: Path) -> None:
    source = SOURCES[f"OME-NGFF 0.6: {name}"]
    unplaced = replace(source, group=ngff({"type": "identity"}))
    assert source.content(suffix, tmp_path) == unplaced.content(suffix, tmp_path)
    placed = replace(source, group=ngff(SCALE))
    assert source.content(suffix, tmp_path) != placed.content(suffix, tmp_path), "this file type can say it"


MAP = np.arange(60, dtype="<i2").reshape(3, 4, 5)
CENTERS = {"y": 5000.0 - 10 * np.arange(4), "x": 300.0 + 20 * np.arange(5)}
UTM = 'PROJCRS["WGS 84 / UTM zone 33N",CS[Cartesian,2],LENGTHUNIT["metre",1],ID["EPSG",32633]]'
LEVELS: dict[str, tuple[Any, dict[str, Any]]] = {"lev": ([1000.0, 850.0, 500.0], {"units": "hPa"})}
SIX = (20.0, 0.0, 290.0, 0.0, -10.0, 5005.0)
SKEWED = (20.0, 3.0, 290.0, 4.0, -10.0, 5005.0)


@dataclass(frozen=True)
class Map:
    """A stack of maps. `six`: x = six[0] * column + six[1] * row + six[2], and the same for y. `said`: by which files.

    `code`: of its system, in EPSG; `gdal` if GDAL's netCDF driver says which it is. `coded`: files that say it.
    """

    said: str
    six: tuple[float, ...] = SIX
    code: int | str | None = 32633
    coded: str = "tif envi"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, tuple[Any, Mapping[str, Any]]] = field(default_factory=dict)

    def files(self) -> Directory:
        attributes = {**({"grid_mapping": "crs"} if "crs" in self.beside else {}), **self.attributes}
        array = fake_array(MAP, (1, 4, 5), attributes=attributes, dimension_names=("lev", "y", "x"))
        members: dict[str, Any] = {"a": array}
        for name, (values, said) in (LEVELS | dict(self.beside)).items():
            own = np.asarray(values, "<f8")
            names = (name,) if own.ndim else ()
            members[name] = fake_array(own, own.shape, attributes=dict(said), dimension_names=names)
        return tree(FakeGroup(members), layout="files")


def system_by_gdal(source: Map, path: Path) -> rasterio.CRS:
    """Return the system that GDAL's netCDF driver finds for the same grid mapping."""
    with netCDF4.Dataset(path, "w") as file:
        file.Conventions = "CF-1.8"
        for name, values in CENTERS.items():
            file.createDimension(name, len(values))
            axis = file.createVariable(name, "f8", (name,))
            axis.setncatts({"units": "m", "standard_name": f"projection_{name}_coordinate"})
            axis[:] = values
        file.createVariable("crs", "i4").setncatts(source.beside["crs"][1])
        file.createVariable("a", "i2", ("y", "x")).grid_mapping = "crs"
    with rasterio.open(f"netcdf:{path}:a") as opened:
        return opened.crs


def degrees(system: rasterio.CRS) -> Any:
    """Return longitudes and latitudes of twenty places within 3,000 km of the origin of a map."""
    x, y = np.random.default_rng(1).uniform(-3e6, 3e6, (2, 20))
    return np.array(rasterio.warp.transform(system, "EPSG:4326", x, y))


def centers(unit: str = "m") -> dict[str, tuple[Any, Mapping[str, Any]]]:
    return {name: (values, {"units": unit}) for name, values in CENTERS.items()}


def mapping(**attributes: Any) -> dict[str, tuple[Any, Mapping[str, Any]]]:
    return {"crs": (np.zeros(()), attributes)}


POLAR: dict[str, Any] = {
    "grid_mapping_name": "polar_stereographic",
    "latitude_of_projection_origin": 90.0,
    "straight_vertical_longitude_from_pole": -45.0,
    "standard_parallel": 70.0,
}

SHIFTED = {"false_easting": 1000.0, "false_northing": -2000.0}
GRS80: dict[str, Any] = {"semi_major_axis": 6378137.0, "inverse_flattening": 298.257222101}
SPHERE: dict[str, Any] = {"earth_radius": 6371229.0}
PROJECTIONS: dict[str, dict[str, Any]] = {
    "lambert_conformal_conic": {
        "standard_parallel": [25.0, 40.0],
        "longitude_of_central_meridian": -97.0,
        "latitude_of_projection_origin": 30.0,
        **SHIFTED,
        **GRS80,
    },
    "lambert_conformal_conic, one parallel": {
        "standard_parallel": 38.5,
        "longitude_of_central_meridian": -97.5,
        "latitude_of_projection_origin": 38.5,
        **SPHERE,
    },
    "albers_conical_equal_area": {
        "standard_parallel": [29.5, 45.5],
        "longitude_of_central_meridian": -96.0,
        "latitude_of_projection_origin": 23.0,
        **SHIFTED,
        **GRS80,
    },
    "lambert_azimuthal_equal_area": {
        "longitude_of_projection_origin": -2.5,
        "latitude_of_projection_origin": 54.9,
        **SHIFTED,
        **GRS80,
    },
    "transverse_mercator": {
        "scale_factor_at_central_meridian": 0.9993,
        "longitude_of_central_meridian": 19.0,
        "latitude_of_projection_origin": 10.0,
        **SHIFTED,
        **GRS80,
    },
    "mercator": {"standard_parallel": 20.0, "longitude_of_projection_origin": 100.0, **SHIFTED, **SPHERE},
    "mercator, scale factor": {
        "scale_factor_at_projection_origin": 0.9,
        "longitude_of_projection_origin": 100.0,
        **GRS80,
    },
    "polar_stereographic": {
        "latitude_of_projection_origin": -90.0,
        "straight_vertical_longitude_from_pole": 15.0,
        "standard_parallel": -75.0,
        **SHIFTED,
        **SPHERE,
    },
    "polar_stereographic, scale factor": {
        "latitude_of_projection_origin": 90.0,
        "straight_vertical_longitude_from_pole": -30.0,
        "scale_factor_at_projection_origin": 0.994,
        **GRS80,
    },
}

MAPS = {
    "CF: coordinates, `crs_wkt` of UTM": Map("tif envi", beside=centers() | mapping(crs_wkt=UTM)),
    "CF: a mapping without a known system": Map(
        "tif envi", code=None, beside=centers() | mapping(grid_mapping_name="oblique_mercator")
    ),
    "CF: polar stereographic by its parameters": Map(
        "tif envi",
        code="gdal",
        beside=centers() | mapping(**POLAR, semi_major_axis=6378273.0, semi_minor_axis=6356889.449),
    ),
    "CF: transverse Mercator by its parameters": Map(
        "tif envi",
        beside=centers()
        | mapping(
            grid_mapping_name="transverse_mercator",
            latitude_of_projection_origin=0.0,
            longitude_of_central_meridian=15.0,
            scale_factor_at_central_meridian=0.9996,
            false_easting=500000.0,
            false_northing=0.0,
            semi_major_axis=6378137.0,
            inverse_flattening=298.257223563,
        ),
    ),
    **{
        f"CF: `{name.replace(',', '`,')}{'' if ',' in name else '`'}": Map(
            "tif envi",
            coded="tif" if name == "mercator, scale factor" else "tif envi",
            code="gdal",
            beside=centers() | mapping(grid_mapping_name=name.partition(",")[0], **parameters),
        )
        for name, parameters in PROJECTIONS.items()
    },
    "CF: `lambert_conformal_conic`, origin beside its parallel": Map(
        "tif envi",
        code=None,
        beside=centers()
        | mapping(
            grid_mapping_name="lambert_conformal_conic",
            **PROJECTIONS["lambert_conformal_conic, one parallel"] | {"latitude_of_projection_origin": 30.0},
        ),
    ),
    "GDAL: `GeoTransform`": Map("tif envi", beside=mapping(crs_wkt=UTM, GeoTransform="290 20 0 5005 0 -10")),
    "GDAL: `GeoTransform` with a rotation": Map(
        "tif", SKEWED, beside=mapping(crs_wkt=UTM, GeoTransform="290 20 3 5005 4 -10")
    ),
    "GeoZarr: `spatial:transform`": Map("tif envi", attributes={"proj:code": "EPSG:32633", "spatial:transform": [*SIX]}),
    "GeoZarr: `spatial:transform` with a rotation": Map(
        "tif", SKEWED, attributes={"proj:code": "EPSG:32633", "spatial:transform": [*SKEWED]}
    ),
    "EOPF: `proj:epsg`, coordinates": Map("tif envi", attributes={"proj:epsg": 32633}, beside=centers()),
}


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("suffix", ["tif", "envi"])
@pytest.mark.parametrize("name", MAPS)
def test_p12_a_map_is_where_the_source_says(name: str, suffix: str, tmp_path: Path) -> None:
    source = MAPS[name]
    for part in {"tif": ["tif"], "envi": ["envi", "envi.hdr"]}[suffix]:
        (tmp_path / f"a.{part}").write_bytes(content(source.files().lookup(f"a.{part}".encode())))
    with rasterio.open(tmp_path / f"a.{suffix}") as file:
        np.testing.assert_array_equal(file.read(), MAP, "all planes are bands")
        assert [text.removesuffix(" (lev 1000 hPa)") for text in file.descriptions] == [
            "lev 1000 hPa",
            "lev 850 hPa",
            "lev 500 hPa",
        ]
        if suffix not in source.said.split():
            assert (file.transform.is_identity, file.crs) == (True, None), "not said"
            return
        np.testing.assert_allclose(tuple(file.transform)[:6], source.six)
        if source.code == "gdal" and suffix in source.coded.split():
            expected = degrees(system_by_gdal(source, tmp_path / "a.nc"))
            np.testing.assert_allclose(degrees(file.crs), expected, rtol=0, atol=1e-9)
            return
        said = None if file.crs is None or source.code is None else file.crs.to_epsg()
        assert said == (source.code if suffix in source.coded.split() else None)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize(("unit", "kind"), [("rad", "geostationary"), ("degrees", "rotated_latitude_longitude")])
def test_p12_angles_are_no_places_of_a_map(unit: str, kind: str, tmp_path: Path) -> None:
    source = Map("", code=None, beside=centers(unit) | mapping(grid_mapping_name=kind, **GRS80))
    (tmp_path / "a.tif").write_bytes(content(source.files().lookup(b"a.tif")))
    with rasterio.open(tmp_path / "a.tif") as file:
        assert (file.transform.is_identity, file.crs) == (True, None)


@pytest.mark.parametrize("dtype", ["i1", "u1", "<i8", "<u8", "<f2", "<c8", "<c16"])
@pytest.mark.parametrize("bands", [False, True])
def test_p12_gdal_reads_maps_of_all_its_types(dtype: str, bands: bool, tmp_path: Path) -> None:
    values = (np.arange(60).reshape(3, 4, 5) - (0 if "u" in dtype else 30)).astype(dtype)
    shown, names = (values, ("lev", "y", "x")) if bands else (values[0], ("y", "x"))
    attributes = {"proj:code": "EPSG:32633", "spatial:transform": [*SIX]}
    members: dict[str, Node] = {"a": fake_array(shown, shown.shape, attributes=attributes, dimension_names=names)}
    (tmp_path / "a.tif").write_bytes(content(tree(FakeGroup(members), layout="files").lookup(b"a.tif")))
    with rasterio.open(tmp_path / "a.tif") as file:
        np.testing.assert_array_equal(file.read(), shown if bands else shown[None])
        assert file.crs.to_epsg() == 32633
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "a.tif"), shown)


def test_a_volume_that_is_no_map_has_no_place_on_earth(tmp_path: Path) -> None:
    """GDAL would take y for negative, and nanometers for meters."""
    source = Source("", group=ngff(SCALE, version="0.5"))
    header = content(source.files().lookup(b"a.envi.hdr")).decode()
    assert "map info" not in header
    assert "pixel size = {4e-06, 5e-06, units=Meters}\n" in header


def table() -> str:
    """Return the table of `docs/meaning.md`."""
    suffixes = EVERY.split()
    rows = [["what the source has", *(f"`.{suffix}`" for suffix in suffixes)], ["---"] * (len(suffixes) + 1)]
    for name, source in SOURCES.items():
        rows.append([name, *("said" if suffix in source.said.split() else "not said" for suffix in suffixes)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def map_table() -> str:
    """Return the table of maps in `docs/meaning.md`."""
    rows = [["what the source has", "`.tif`", "`.envi`"], ["---"] * 3]
    for name, source in MAPS.items():
        cells = []
        for suffix in ("tif", "envi"):
            place, system = suffix in source.said.split(), source.code is not None and suffix in source.coded.split()
            cells.append(("place, system" if system else "place") if place else "not said")
        rows.append([name, *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


@pytest.mark.parametrize("made", [table, map_table])
def test_the_page_has_the_tables_of_this_test(made: Callable[[], str]) -> None:
    assert made() in DOCS.read_text(), f"docs/meaning.md needs this table:\n{made()}"
