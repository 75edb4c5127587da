"""Labelled fields in programs for the earth sciences: values, names, units, dates, missing values, axes.

Each program reads the same dataset from two stores: one in Zarr v3, one in netCDF-4. What it shows is compared with what
xarray says of the source. Not here: tables of the same kind of data (`tables.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cftime
import numpy as np
import xarray

from legacy.meaning import Check, Field, differs
from legacy.programs import run, system
from legacy.whole import magick

STORES = ("climate.zarr", "climate.nc")
"""With a calendar of 360 days, 30 of them in February."""
PLAIN = ("plain.zarr", "plain.nc")
"""With the calendar that GrADS reads."""


def write(folder: Path) -> None:
    kelvin = 260 + np.arange(60.0).reshape(3, 4, 5) / 2
    kelvin[[0, 2], [0, 3], [0, 4]] = np.nan
    frost = np.arange(20, dtype="f4").reshape(4, 5)
    frost[0, 0] = np.nan
    variables = {
        "tas": (("time", "lat", "lon"), kelvin, named("K", "air_temperature", long_name="air temperature")),
        "frost": (("lat", "lon"), frost, {"units": "m"}),
        "rain": ("time", [1.5, np.nan, 3.25], {"units": "mm"}),
    }
    for stores, calendar, last in ((STORES, "360_day", 30), (PLAIN, "standard", 28)):
        dates = [cftime.datetime(2001, month, day, calendar=calendar) for month, day in ((1, 1), (1, 29), (2, last))]
        coordinates = {
            "time": ("time", dates, {"standard_name": "time", "axis": "T"}),
            "lat": ("lat", [-30.0, -10.0, 10.0, 30.0], named("degrees_north", "latitude", axis="Y")),
            "lon": ("lon", [0.0, 10.0, 20.0, 30.0, 40.0], named("degrees_east", "longitude", axis="X")),
        }
        encoding: dict[str, dict[str, object]] = {
            "tas": {"dtype": "i2", "scale_factor": 0.1, "add_offset": 250.0, "_FillValue": -32768},
            "frost": {"dtype": "f4", "_FillValue": 1e20},
            "rain": {"dtype": "f4", "_FillValue": -1.0},
            "time": {"units": "days since 2001-01-01", "calendar": calendar, "dtype": "f8"},
        }
        dataset = xarray.Dataset(variables, coordinates)
        dataset.to_zarr(folder / stores[0], zarr_format=3, encoding=encoding, consolidated=False)
        dataset.to_netcdf(folder / stores[1], engine="netcdf4", encoding=encoding)


def named(units: str, standard_name: str, **attributes: str) -> dict[str, str]:
    return {"units": units, "standard_name": standard_name, **attributes}


Compare = Callable[[list[str], Path, xarray.Dataset, Path], None]


def of(stores: tuple[str, ...], compare: Compare) -> Callable[[list[str], Path, Path], None]:
    """Compare a program's reading of each store with xarray's of the source."""

    def each(command: list[str], mount: Path, scratch: Path) -> None:
        for store in stores:
            options: dict[str, Any] = {"engine": "zarr", "consolidated": False} if store.endswith(".zarr") else {}
            times = xarray.coders.CFDatetimeCoder(use_cftime=True)
            with xarray.open_dataset(scratch / "meaning" / store, decode_times=times, **options) as source:
                try:
                    compare(command, mount / "files" / store, source, scratch)
                except ValueError as error:
                    raise ValueError(f"{store}: {error}") from None

    return each


def close(fact: str, shown: object, expected: Any) -> None:
    """Raise ValueError unless the numbers are those expected, missing where NaN is."""
    found = np.asarray(shown, float)
    if found.shape != np.shape(expected) or not np.allclose(found, expected, rtol=1e-5, equal_nan=True):
        differs(fact, found.tolist(), np.asarray(expected).tolist())


def dates(source: xarray.Dataset) -> list[str]:
    return [date.strftime("%Y-%m-%d") for date in source.time.values]


def attributes(variable: xarray.DataArray) -> dict[str, Any]:
    """Return the source's attributes of a variable, with packing, marker and calendar. NaN becomes None."""
    encoded = ("scale_factor", "add_offset", "_FillValue", "units", "calendar")
    found = {**variable.attrs, **{name: variable.encoding[name] for name in encoded if name in variable.encoding}}
    return {name: value if isinstance(value, str) else number(value) for name, value in found.items()}


def number(value: Any) -> float | None:
    """A number as programs print it: 1e20 has other digits in float32."""
    return None if np.isnan(value) else float(f"{value:.7g}")


def in_gmt(command: list[str], folder: Path, source: xarray.Dataset, scratch: Path) -> None:
    file = f"{folder}/tas.nc"
    shown = run([*command, "grdinfo", file], cwd=scratch)
    field = source.tas
    for words in (
        f"Title: {field.long_name}",
        f"name: {field.long_name} [{field.units}]",
        f"name: time [{source.time.encoding['units']}]",
        "[Geographic grid]",
        "x_min: 0 x_max: 40 x_inc: 10 name: lon ",
        "y_min: -30 y_max: 30 y_inc: 20 name: lat ",
    ):
        differs(words, words in shown, True)
    for step in range(3):
        table = np.array(run([*command, "grd2xyz", f"{file}?tas[{step}]"], cwd=scratch).split(), float).reshape(4, 5, 3)
        south_to_north = table[::-1]
        close("values", south_to_north[..., 2], source.tas.values[step])
        close("latitudes", south_to_north[:, 0, 1], source.lat.values)
        close("longitudes", south_to_north[0, :, 0], source.lon.values)


def in_cdo(command: list[str], folder: Path, source: xarray.Dataset, scratch: Path) -> None:
    for file in (folder / "tas.nc", f"{folder}.nc"):
        only = ["-selname,tas", str(file)]
        rows = [line.split() for line in run([*command, "-s", "outputtab,date,lat,lon,value", *only]).splitlines()[1:]]
        expected = source.tas.stack(row=("time", "lat", "lon"))
        differs("dates", [row[0] for row in rows[::20]], dates(source))
        close("rows", [row[1:] for row in rows], np.transpose([expected.lat, expected.lon, expected.fillna(-32768)]))
        words = run([*command, "-s", "showatts", *only])
        for name in ("units", "long_name", "standard_name"):
            differs(name, f'{name} = "{source.tas.attrs[name]}"' in words, True)
    differs("names", sorted(run([*command, "-s", "showname", f"{folder}.nc"]).split()), sorted(map(str, source)))


def in_ncks(command: list[str], folder: Path, source: xarray.Dataset, scratch: Path) -> None:
    names = ["tas", *map(str, source.coords)]
    for file, members in ((folder / "tas.nc", names), (f"{folder}.nc", [*map(str, source.variables)])):
        shown = json.loads(run([*command, "--jsn", str(file)]))["variables"]
        differs("names", sorted(shown), sorted(members))
        for name in members:
            differs(f"axes of {name}", shown[name]["shape"], list(source[name].dims))
            differs(f"attributes of {name}", shown[name]["attributes"], attributes(source[name]))


def in_ncwa(command: list[str], folder: Path, source: xarray.Dataset, scratch: Path) -> None:
    run([*command, "-O", "-a", "time", str(folder / "tas.nc"), str(scratch / "mean.nc")])
    mean = run(["ncks", "-H", "-C", "-s", "%g ", "-v", "tas", str(scratch / "mean.nc")]).split()
    close("means", mean, source.tas.mean("time").values.ravel())


def in_gdl(command: list[str], folder: Path, source: xarray.Dataset, scratch: Path) -> None:
    asked = [(name, key) for name in ("tas", "time", "lat", "lon") for key in attributes(source[name])]
    lines = [f"file = ncdf_open('{folder}/tas.nc')"]
    for name, key in asked:
        lines.append(f"ncdf_attget, file, '{name}', '{key}', found & print, '=', string(found)")
    lines.append("ncdf_varget, file, 'tas', values & print, '=', values")
    shown = [text.strip() for text in run([*command, "-quiet", "-e", " & ".join(lines)]).split("=")[1:]]
    for (name, key), text in zip(asked, shown[:-1], strict=True):
        said = attributes(source[name])[key]
        differs(f"{name}:{key}", text if isinstance(said, str) else number(float(text)), said)
    values = np.array(shown[-1].split(), float)
    close("values", np.where(values == -32768, np.nan, values * 0.1 + 250), source.tas.values.ravel())


def pdl(folder: Path, install: bool) -> list[str]:
    """Perl with PDL and its module for netCDF."""
    try:
        run(["perl", "-MPDL::NetCDF", "-e", "1"])
    except (RuntimeError, FileNotFoundError):
        system("a module of Perl is not in PATH", "libpdl-netcdf-perl")(folder, install)
    return ["perl"]


PDL = """
my $file = PDL::NetCDF->new($ARGV[0]);
print join(" ", @{$file->getdimensionnames("tas")}), "\n";
print $file->getatt(@$_), "\n" for ["units", "tas"], ["long_name", "tas"], ["calendar", "time"], ["units", "lat"];
print join(" ", $file->get($_)->list), "\n" for "time", "lat", "lon";
"""


def in_pdl(command: list[str], folder: Path, source: xarray.Dataset, scratch: Path) -> None:
    """Not the packed values: PDL::NetCDF 4.20 unpacks them wrongly from netCDF's own file, too."""
    shown = run([*command, "-MPDL", "-MPDL::NetCDF", "-e", PDL, str(folder / "tas.nc")]).splitlines()
    said = [" ".join(map(str, source.tas.dims)), source.tas.units, source.tas.long_name, source.time.encoding["calendar"]]
    differs("names and units", shown[:5], [*said, source.lat.units])
    for line, expected in zip(shown[5:], ([0, 28, 59], source.lat.values, source.lon.values), strict=True):
        close("coordinates", line.split(), expected)


def in_grads(command: list[str], folder: Path, source: xarray.Dataset, scratch: Path) -> None:
    steps = "".join(f"set t {step}\nd tas\n" for step in (1, 2))
    asked = f"q file\nset gxout print\n{steps}quit\n"
    shown = run_with(asked, [*command, "-blc", f"sdfopen {folder}/tas.nc"])
    differs("name", re.findall(r"tas +0 +t,y,x +(.*)", shown), [source.tas.long_name])
    differs("place", re.findall(r"(?:LON|LAT) set to (.*?) *\n", shown), ["0 40", "-30 30"])
    grids = re.findall(r"Undef = (\S+)\s+([-+.e\d\s]+?)\s*(?:Time|GX)", shown)
    for step, (undefined, words) in enumerate(grids):
        found = np.array(words.split(), float)
        close("values", np.where(found == float(undefined), np.nan, found), source.tas.values[step].ravel())
    differs("steps", len(grids), 2)
    differs("dates", re.findall(r"Time values set: (\S+):0 ", shown)[1:], ["2001:1:1", "2001:2:1"])


def run_with(text: str, command: list[str]) -> str:
    """Return what a program prints for commands at its prompt."""
    return run(["sh", "-c", 'text=$1; shift; printf %s "$text" | "$@"', "sh", text, *command])


def in_gdal(suffix: str, keys: tuple[str, ...]) -> Compare:
    """Bands as GDAL's netCDF driver shows them of the file that netCDF4 wrote."""

    def compare(command: list[str], folder: Path, source: xarray.Dataset, scratch: Path) -> None:
        own = json.loads(run([*command, "-json", "-mm", f'NETCDF:"{scratch / "meaning/climate.nc"}":tas']))
        if suffix == "nc":
            shown = json.loads(run([*command, "-json", "-mm", str(folder / "tas.nc")]))
            differs("place", shown["geoTransform"], own["geoTransform"])
            bands = shown["bands"]
        else:
            bands = json.loads(run([*command, "-json", "-mm", str(folder / "tas.tif")]))["bands"]
        for key in keys:
            differs(key, [band.get(key) for band in bands], [band[key] for band in own["bands"]])

    return compare


def on_earth(command: list[str], folder: Path, source: xarray.Dataset, scratch: Path) -> None:
    """Return the middle of each pixel, and the coordinate system, from GDAL."""
    shown = json.loads(run([*command, "-json", str(folder / "tas.tif")]))
    left, width, _, top, _, height = shown["geoTransform"]
    close("longitudes", left + (np.arange(source.lon.size) + 0.5) * width, source.lon.values)
    close("latitudes", top + (np.arange(source.lat.size) + 0.5) * height, source.lat.values)
    differs("system", 'ID["EPSG",4326]' in shown["coordinateSystem"]["wkt"], True)


def in_magick(command: list[str], folder: Path, source: xarray.Dataset, scratch: Path) -> None:
    """The preview: what is missing must not take all the others' colours, as it does in any program's picture of 1e20."""
    name = command[0].replace("convert", "identify")
    colours = int(run([name, "-format", "%k", str(folder / "frost.preview.png")]))
    if colours < source.frost.size // 2:
        differs("colours", colours, "as many as there are values")


VALUES = ("computedMin", "computedMax", "noDataValue", "offset", "scale")


def check(name: str, program: str, package: str, fact: str, compare: Compare, stores: tuple[str, ...] = STORES) -> Check:
    return Check(name, fact, system(program, package), of(stores, compare))


FIELD = Field(
    "climate",
    write,
    (
        check("GMT", "gmt", "gmt", "names, units, place, missing", in_gmt),
        check("CDO", "cdo", "cdo", "360_day dates, names, missing", in_cdo),
        check("NCO ncks", "ncks", "nco", "axes and all attributes", in_ncks),
        check("NCO ncwa", "ncwa", "nco", "mean over time without missing", in_ncwa),
        check("GDL", "gdl", "gnudatalanguage", "all attributes, values", in_gdl),
        Check("PDL", "names, units, coordinates", pdl, of(STORES, in_pdl)),
        check("GrADS", "grads", "grads", "names, dates, place, missing", in_grads, PLAIN),
        check("GDAL", "gdalinfo", "gdal-bin", ".nc as the netCDF driver's own",
              in_gdal("nc", (*VALUES, "unit", "metadata"))),
        check("GDAL", "gdalinfo", "gdal-bin", ".tif: values, missing, packing", in_gdal("tif", VALUES)),
        check("GDAL", "gdalinfo", "gdal-bin", ".tif: place on the earth", on_earth),
        Check("ImageMagick", "preview beside 1e20", magick, of(STORES, in_magick)),
    ),
)  # fmt: skip
