"""Data sets of which each shows what netCDF programs trip over, written by xarray and zarr as Zarr and as netCDF-4.

`write` leaves four files or folders of each case: `NAME-2.zarr`, `NAME-3.zarr`, `NAME-4.nc` as sources of a mount, and
`NAME.nc`, which `Dataset.to_netcdf` wrote: what a program shows of that file is what it must show of `.nc` in a mount. A
member `g` of each holds the same data set again. Not here: programs that read them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray
import zarr

SOURCES = ("2.zarr", "3.zarr", "4.nc")
UNITS = ("store", "group", "array")
"""Of what there is a file: all of a source, one of its groups, one array."""


@dataclass(frozen=True)
class Case:
    """`dataset` with its encoding, and where netCDF cannot hold its attributes, what it holds instead (`in_netcdf`).

    `zeros` are variables with a storage default of 0, which means nothing. `below` are variables that only `g` of a source
    has, and nothing else: all that they name lies in the root. `sources` says which can hold the data set.
    """

    name: str
    dataset: xarray.Dataset
    in_netcdf: xarray.Dataset | None = None
    encoding: dict[str, dict[str, Any]] = field(default_factory=dict)
    zeros: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    sources: tuple[str, ...] = SOURCES
    units: tuple[str, ...] = UNITS

    def write(self, sources: Path, native: Path) -> None:
        """Write the sources into one folder, and the file of the same name that xarray makes into another."""
        to_netcdf = self.dataset if self.in_netcdf is None else self.in_netcdf
        targets = [native / f"{self.name}.nc", *(sources / f"{self.name}-{source}" for source in self.sources)]
        for group in (None, "g"):
            for target in targets:
                dataset = self.dataset if target.suffix == ".zarr" else to_netcdf
                if self.below and target.parent == sources:
                    names = set(map(str, dataset.variables))
                    dataset = dataset.drop_vars(self.below if group is None else names - set(self.below))
                mode: Any = "w" if group is None else "a"
                encoding = {name: options for name, options in self.encoding.items() if name in dataset.variables}
                if target.suffix == ".nc":
                    dataset.to_netcdf(target, mode, group=group, encoding=encoding)
                else:
                    self._write_zarr(dataset.drop_vars(self.zeros), target, group, encoding)

    def _write_zarr(self, rest: xarray.Dataset, target: Path, group: str | None, encoding: dict[str, Any]) -> None:
        version: Any = int(target.name[-len("2.zarr")])
        encoding = {name: options for name, options in encoding.items() if name not in self.zeros}
        rest.to_zarr(target, group=group, mode="w" if group is None else "a", zarr_format=version, consolidated=False,
                     encoding=encoding)  # fmt: skip
        for name in self.zeros:
            variable = self.dataset[name].variable
            names: dict[str, Any] = {"dimension_names": variable.dims} if version == 3 else {}
            array = zarr.open_group(target, path=group or "").create_array(
                name, shape=variable.shape, chunks=variable.shape, dtype=variable.dtype, fill_value=0, **names
            )
            array[...] = variable.values
            if version == 2:
                array.attrs["_ARRAY_DIMENSIONS"] = [str(name) for name in variable.dims]


def attributed(attributes: dict[str, Any]) -> xarray.Dataset:
    """A data set with these attributes of the root, of an array, of a coordinate and of a scalar."""
    variables = {"v": ("x", np.arange(3, dtype="i2"), attributes), "s": ((), np.int32(7), attributes)}
    return xarray.Dataset(variables, {"x": ("x", np.array([2, 5, 9], "i4"), attributes)}, attributes)


PLAIN = {
    "title": "A title",
    "micro": "µm",
    "empty": "",
    "long": "abcdefghij" * 7000,
    "lines": 'one\n"two";\n',
    "integer": 5,
    "real": 0.5,
    "integers": [1, 2],
    "reals": [0.5, 1e20],
    "one": [3],
    "texts": ["a", "", "bcd"],
    "a name with spaces": "kept",
}
"""Attributes that netCDF-4 can hold as they are."""

FILLS = {"none": None, "zero": None, "filled": 1, "nan": np.nan}


def typed(types: tuple[str, ...]) -> tuple[xarray.Dataset, dict[str, dict[str, Any]], tuple[str, ...]]:
    """Arrays of each type with each fill value, their encoding, and the names of those with a storage default of 0."""
    variables, encoding = {}, {}
    for dtype in types:
        for fill, value in FILLS.items():
            if fill == "nan" and dtype[0] != "f":
                continue
            name = f"{dtype}_{fill}"
            variables[name] = ("x", np.arange(4).astype(dtype))
            encoding[name] = {"_FillValue": None if value is None else np.dtype(dtype).type(value)}
    return xarray.Dataset(variables), encoding, tuple(name for name in variables if name.endswith("_zero"))


def of_types(name: str, types: tuple[str, ...]) -> Case:
    dataset, encoding, zeros = typed(types)
    return Case(name, dataset, None, encoding, zeros)


def of_values(name: str, values: Any) -> Case:
    """An array of these, a scalar of the first, and an array that has nothing to do with them."""
    values = np.array(values)
    return Case(
        name, xarray.Dataset({"v": ("station", values), "s": ((), values[0]), "w": ("station", np.arange(len(values)))})
    )


def climate() -> Case:
    """Bounds, a scalar coordinate, areas of cells, a variable of flags, levels with terms of a formula."""
    time, lat, lon, lev = np.arange(2.0), np.array([-30.0, 0.0, 30.0]), np.arange(4.0) * 90, np.array([0.9, 0.5])
    rain = np.arange(24, dtype="i2").reshape(2, 3, 4) % 7
    own: dict[str, Any] = {"missing_value": np.int16(6), "valid_range": np.array([0, 5], "i2")}
    variables: dict[str, Any] = {
        "rain": (("time", "lat", "lon"), rain, {
            "units": "mm", "standard_name": "precipitation_amount", "cell_methods": "time: sum",
            "cell_measures": "area: area", "ancillary_variables": "quality", **own,
        }),
        "quality": (("time", "lat", "lon"), (rain % 3).astype("i1"), {
            "flag_values": np.array([0, 1, 2], "i1"), "flag_masks": np.array([1, 2, 3], "i1"), "flag_meanings": "a b c",
        }),
        "area": (("lat", "lon"), np.arange(12, dtype="f4").reshape(3, 4) + 1, {"units": "m2"}),
        "wind": (("time", "lev", "lat"), np.arange(12, dtype="f8").reshape(2, 2, 3), {"units": "m s-1"}),
        "pressure": (("time", "lat"), np.full((2, 3), 1e5), {"units": "Pa"}),
        "time_bnds": (("time", "bnds"), np.stack([time, time + 1], 1)),
        "lat_bnds": (("lat", "bnds"), np.stack([lat - 15, lat + 15], 1)),
    }  # fmt: skip
    coordinates: dict[str, Any] = {
        "time": ("time", time, {"units": "days since 2001-01-01", "calendar": "noleap", "bounds": "time_bnds", "axis": "T"}),
        "lat": ("lat", lat, {"units": "degrees_north", "standard_name": "latitude", "bounds": "lat_bnds"}),
        "lon": ("lon", lon, {"units": "degrees_east", "standard_name": "longitude", "actual_range": np.array([0.0, 270.0])}),
        "lev": ("lev", lev, {
            "standard_name": "atmosphere_sigma_coordinate", "positive": "down", "formula_terms": "sigma: lev ps: pressure",
        }),
        "height": ((), 2.0, {"units": "m", "standard_name": "height", "positive": "up"}),
    }  # fmt: skip
    attributes = {"Conventions": "CF-1.8", "title": "Rain", "levels": 2}
    dataset = xarray.Dataset(variables, coordinates, attributes)
    return Case("climate", dataset, None, unfilled(variables, coordinates))


def unfilled(*variables: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The encoding of arrays without `_FillValue`, which xarray gives to real numbers that have none."""
    return {name: {"_FillValue": None} for some in variables for name in some}


def mapped(
    name: str, mapping: str, words: dict[str, Any], axes: dict[str, Any], attributes: dict[str, str], **options: Any
) -> Case:
    """A field of small integers, zeros among them, with a grid mapping; 2-D latitudes and longitudes where it names them."""
    (y, (_, ys, _)), (x, (_, xs, _)) = axes.items()
    coordinates = dict(axes)
    if "coordinates" in attributes:
        coordinates["lat"] = (
            (y, x),
            50 + np.add.outer(ys, xs / 10),
            {"units": "degrees_north", "standard_name": "latitude"},
        )
        coordinates["lon"] = (
            (y, x),
            10 + np.add.outer(ys / 10, xs),
            {"units": "degrees_east", "standard_name": "longitude"},
        )
    field_ = np.arange(ys.size * xs.size, dtype="i2").reshape(ys.size, xs.size) % 5
    variables: dict[str, Any] = {"field": ((y, x), field_, {"units": "1", "long_name": "a field", **attributes})}
    if words:
        variables[mapping] = ((), np.int32(0), words)
    plain = {name: xarray.Variable(*value) for name, value in (*variables.items(), *coordinates.items())}
    dataset = xarray.Dataset(plain, attrs={"Conventions": "CF-1.8"})
    return Case(name, dataset, None, unfilled(variables, coordinates), **options)


UTM_WKT = (
    'PROJCS["WGS 84 / UTM zone 33N",GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],'
    'PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433],AUTHORITY["EPSG","4326"]],PROJECTION["Transverse_Mercator"],'
    'PARAMETER["latitude_of_origin",0],PARAMETER["central_meridian",15],PARAMETER["scale_factor",0.9996],'
    'PARAMETER["false_easting",500000],PARAMETER["false_northing",0],UNIT["metre",1],AXIS["Easting",EAST],'
    'AXIS["Northing",NORTH],AUTHORITY["EPSG","32633"]]'
)
UTM = mapped(
    "utm", "spatial_ref",
    {
        "crs_wkt": UTM_WKT, "spatial_ref": UTM_WKT, "grid_mapping_name": "transverse_mercator",
        "GeoTransform": "399990.0 20.0 0.0 5500030.0 0.0 -20.0",
    },
    {
        "y": ("y", 5500020 - 20 * np.arange(4.0), {"units": "m", "standard_name": "projection_y_coordinate"}),
        "x": ("x", 400000 + 20 * np.arange(5.0), {"units": "m", "standard_name": "projection_x_coordinate"}),
    },
    {"grid_mapping": "spatial_ref"},
)  # fmt: skip
ROTATED: tuple[Any, ...] = (
    "rotated_pole",
    {
        "grid_mapping_name": "rotated_latitude_longitude",
        "grid_north_pole_latitude": 39.25,
        "grid_north_pole_longitude": -162.0,
    },
    {
        "rlat": ("rlat", np.array([-1.0, 0.0, 1.0]), {"units": "degrees", "standard_name": "grid_latitude"}),
        "rlon": ("rlon", np.array([-2.0, -1.0, 0.0, 1.0]), {"units": "degrees", "standard_name": "grid_longitude"}),
    },
    {"grid_mapping": "rotated_pole", "coordinates": "lat lon"},
)
CURVILINEAR = mapped(
    "curvilinear", "", {},
    {"y": ("y", np.arange(3.0), {"units": "1"}), "x": ("x", np.arange(4.0), {"units": "1"})},
    {"coordinates": "lat lon"},
)  # fmt: skip

OWN_TYPE = {
    "missing_value": 3, "valid_min": 1, "valid_max": 2, "valid_range": [1, 2], "flag_values": [1, 2], "flag_masks": [1, 2],
    "actual_range": [0, 3],
}  # fmt: skip
"""Attributes that must have the type of their variable, which JSON has lost."""


def own_type() -> Case:
    variables = {}
    for dtype in ("i1", "i2", "u2", "i4", "f4", "f8"):
        words = {name: np.array(value, dtype)[()] for name, value in OWN_TYPE.items()}
        variables[dtype] = ("x", np.arange(4).astype(dtype), words)
    return Case("own_type", xarray.Dataset(variables), None, unfilled(variables))


def odd(name: str, attributes: dict[str, Any], held: dict[str, str]) -> Case:
    """Attributes that netCDF cannot hold as they are, beside one that it can; `held` is what it holds instead."""
    beside = {"title": "A title"}
    return Case(name, attributed({**beside, **attributes}), attributed({**beside, **held}), sources=SOURCES[:2])


JSON = {
    "affine": [[1, 2], [3, 4]], "cube": [[[1.5]]], "unequal": [[1], [2, 3]], "checked": True, "checks": [True, False],
    "words": {"a": [1]}, "nothing": None,
}  # fmt: skip
"""Attributes that netCDF holds as JSON text."""

CASES: tuple[Case, ...] = (
    Case("plain", attributed(PLAIN)),
    odd("json", JSON, {name: json.dumps(value) for name, value in JSON.items()}),
    odd("dimension_list", {"DIMENSION_LIST": "left by a converter"}, {}),
    odd("long_name", {"n" * 300: "a name that netCDF has no room for"}, {}),
    own_type(),
    of_types("integers", ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")),
    of_types("reals", ("f4", "f8")),
    of_values("bool", [True, False, True]),
    of_values("bytes", np.array([b"ab", b"abcd", b""], "S4")),
    of_values("texts", np.array(["ab", "µm", ""], "U3")),
    of_values("dates", np.array(["2001-01-01T00:00:00", "2001-01-01T00:00:05", "1969-12-31T23:59:59"], "M8[ns]")),
    climate(),
    mapped("rotated", *ROTATED),
    mapped("inherited", *ROTATED, below=("field",), units=UNITS[2:]),
    CURVILINEAR,
    UTM,
)

NUMPY: dict[str, np.ndarray[Any, Any]] = {
    "half": np.array([0.5, -1.0, 65504.0], "f2"),
    "complex": np.array([1 + 2j, -0.5j, 0], "c8"),
    "instants": np.array(["2001-01-01T00:00:00", "NaT", "1969-12-31T23:59:59"], "M8[s]"),
    "spans": np.array([1, -5, "NaT"], "m8[ms]"),
}
"""What xarray cannot write as netCDF, or writes as something else in Zarr, too. Only zarr writes it."""


def write_numpy(folder: Path) -> None:
    """Write a store for each of these arrays, `v`, with another array beside it, `w`."""
    for name, values in NUMPY.items():
        for version in (2, 3):
            group = zarr.open_group(folder / f"{name}-{version}.zarr", mode="w", zarr_format=version)
            for key, data in (("v", values), ("w", np.arange(3))):
                names: dict[str, Any] = {"dimension_names": ["x"]} if version == 3 else {}
                group.create_array(key, shape=data.shape, chunks=data.shape, dtype=data.dtype, **names)[...] = data
                if version == 2:
                    group[key].attrs["_ARRAY_DIMENSIONS"] = ["x"]
