"""`.nc` in programs for maps and for the earth sciences: what each says of a file of the mount and of netCDF's own file.

Every program tells of one field: attributes, place, coordinate system, missing elements, values. Its words of the file that
`Dataset.to_netcdf` wrote of the same data set are what its words of the mount's must be, of a whole store and of one array.
Not here: what ncdump and netCDF4 show (`tests/programs/test_netcdf_generated.py`).
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from netcdf_cases import CASES

from legacy.meaning import Check, Field
from legacy.programs import run, system


class Shown(NamedTuple):
    """A data set, its field that programs show, and the variables that it names."""

    case: str
    field: str
    beside: tuple[str, ...]


CLIMATE = Shown("climate", "rain", ("time", "lat", "lon", "height", "area", "quality", "time_bnds"))
ROTATED = Shown("rotated", "field", ("rotated_pole", "lat", "lon", "rlat"))
CURVILINEAR = Shown("curvilinear", "field", ("lat", "lon"))
UTM = Shown("utm", "field", ("spatial_ref", "y", "x"))
STATIONS = Shown("bytes", "v", ())
SHOWN = (CLIMATE, ROTATED, CURVILINEAR, UTM)

Tell = Callable[[list[str], Path, Shown, Path], str]
"""What a program tells of a file, in lines; the last is a folder for what it writes."""


def write(folder: Path) -> None:
    native = folder.parent / "native"
    native.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in CASES:
            if case.name in {shown.case for shown in (*SHOWN, STATIONS)}:
                case.write(folder, native)


def lines(text: str, file: Path) -> list[str]:
    """Return what a program told, without names of files; their order says nothing."""
    for name in (str(file), f"{file.parent}/", file.name):
        text = text.replace(name, "FILE")
    return sorted(line.strip() for line in text.splitlines() if line.strip())


def alike(tell: Tell, shown: Shown) -> Callable[[list[str], Path, Path], None]:
    """Compare what a program tells of the mount's files with what it tells of netCDF's own."""

    def compare(command: list[str], mount: Path, scratch: Path) -> None:
        native = scratch / "native" / f"{shown.case}.nc"
        expected = lines(tell(command, native, shown, scratch), native)
        if not expected:
            raise ValueError("nothing is told of netCDF's own file")
        for source in ("2.zarr", "3.zarr", "4.nc"):
            store = mount / "files" / f"{shown.case}-{source}"
            for file in (store.with_name(f"{store.name}.nc"), store / f"{shown.field}.nc"):
                where = f"{source}, {'one array' if file.parent == store else 'store'}"
                try:
                    found = lines(tell(command, file, shown, scratch), file)
                except RuntimeError as error:
                    raise ValueError(f"{where}: {error}") from None
                if found != expected:
                    less, more = set(expected) - set(found), set(found) - set(expected)
                    raise ValueError(f"{where}: without {sorted(less)}, but with {sorted(more)}".replace("\n", " "))

    return compare


def in_gmt(command: list[str], file: Path, shown: Shown, scratch: Path) -> str:
    text = run([*command, "grdinfo", f"{file}?{shown.field}"], cwd=scratch)
    text += ";".join(run([*command, "grd2xyz", f"{file}?{shown.field}"], cwd=scratch).splitlines())
    return re.sub(r".* format: .*", "", text)  # chunks and compression


def in_gdl(command: list[str], file: Path, shown: Shown, scratch: Path) -> str:
    """Attributes by number, as a program finds them that knows no names."""
    words = [f"file = ncdf_open('{file}')"]
    for name in (shown.field, *shown.beside):
        words.append(f"id = ncdf_varid(file, '{name}') & about = ncdf_varinq(file, id)")
        words.append("for n = 0, about.natts - 1 do begin & key = ncdf_attname(file, id, n)")
        words.append(
            f"ncdf_attget, file, id, key, found & print, '{name}', ' ', key, ' ', string(found), format='(99(A))' & endfor"
        )
    words.append(f"ncdf_varget, file, '{shown.field}', values & print, 'values', values, format='(A, 999(I0, \" \"))'")
    return run([*command, "-quiet", "-e", " & ".join(words)])


OCTAVE = """
pkg load netcdf
file = "{file}"; names = {{{names}}};
every = ncinfo(file).Variables;
for variable = every
  if any(strcmp(variable.Name, names))
    for attribute = variable.Attributes
      printf("%s %s %s %s\\n", variable.Name, attribute.Name, class(attribute.Value), disp(attribute.Value));
    end
    printf("%s %s%s\\n", variable.Name, variable.Datatype, sprintf(" %d", variable.Size));
  end
end
printf("values%s\\n", sprintf(" %g", ncread(file, names{{1}})));
"""


def in_octave(command: list[str], file: Path, shown: Shown, scratch: Path) -> str:
    names = ", ".join(f'"{name}"' for name in (shown.field, *shown.beside))
    return run([*command, "--quiet", "--eval", OCTAVE.format(file=file, names=names)])


NCL = """
begin
  source = addfile("{file}", "r")
  names = (/{names}/)
  do n = 0, dimsizes(names) - 1
    value := source->$names(n)$
    print(names(n) + " " + typeof(value) + " " + str_join(getvardims(value), ","))
    keys := getvaratts(value)
    do i = 0, dimsizes(keys) - 1
      if (.not. ismissing(keys(i))) then
        print(names(n) + " " + keys(i) + " " + typeof(value@$keys(i)$) + " " + str_join(tostring(value@$keys(i)$), ","))
      end if
    end do
    print(names(n) + " " + str_join(tostring(ndtooned(value)), ","))
  end do
  field := source->{field}
  print("missing " + num(ismissing(field)) + ", " + min(field) + " to " + max(field))
end
"""


def in_ncl(command: list[str], file: Path, shown: Shown, scratch: Path) -> str:
    script = scratch / "show.ncl"
    names = ", ".join(f'"{name}"' for name in (shown.field, *shown.beside))
    script.write_text(NCL.format(file=file, names=names, field=shown.field))
    text = run([*command, "-Q", "-n", str(script)])
    if found := re.search(r"^(fatal|warning):.*", text, re.MULTILINE):
        raise RuntimeError(found[0])
    return text


def in_ferret(command: list[str], file: Path, shown: Shown, scratch: Path) -> str:
    """Debian has the program without its data, which are in no way needed."""
    script = scratch / "show.jnl"
    shows = "".join(f"show attribute/all {name}\n" for name in (shown.field, *shown.beside))
    script.write_text(f'use "{file}"\nshow grid {shown.field}\nlist/norowlab/nohead {shown.field}\n{shows}quit\n')
    places = dict.fromkeys(["FER_GO", "FER_DATA", "FER_GRIDS", "FER_PALETTE", "FER_DESCR"], ".")
    fixed = {"FER_DIR": "/usr/share/ferret-vis", "FER_EXTERNAL_FUNCTIONS": "/usr/lib/ferret-vis/external_functions"}
    text = run([*command, "-nojnl", "-script", str(script)], cwd=scratch, env={**os.environ, **places, **fixed})
    return re.sub(r"GRID G\w+", "", text)  # made-up names


QGIS = """
import sys
from qgis.core import QgsApplication, QgsRasterLayer
application = QgsApplication([], False)
application.initQgis()
layer = QgsRasterLayer(f'NETCDF:"{sys.argv[1]}":{sys.argv[2]}', "layer")
source = layer.dataProvider()
print(layer.isValid(), layer.crs().authid() or layer.crs().toWkt(), layer.extent().toString(6))
for band in range(1, layer.bandCount() + 1):
    block = source.block(band, layer.extent(), layer.width(), layer.height())
    cells = [(row, column) for row in range(layer.height()) for column in range(layer.width())]
    print(layer.bandName(band), [None if block.isNoData(*cell) else block.value(*cell) for cell in cells])
"""


def qgis(folder: Path, install: bool) -> list[str]:
    return having(["/usr/bin/python3", "-c", "import qgis.core"], "python3-qgis", folder, install)[:1]


def having(probe: list[str], package: str, folder: Path, install: bool) -> list[str]:
    """Install a package unless its module can be loaded."""
    try:
        run(probe)
    except (RuntimeError, FileNotFoundError):
        system("a module is not in PATH", package)(folder, install)
    return probe


def in_qgis(command: list[str], file: Path, shown: Shown, scratch: Path) -> str:
    offscreen = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "GDAL_PAM_ENABLED": "NO"}
    return run([*command, "-c", QGIS, str(file), shown.field], env=offscreen)


TERRA = """
suppressMessages(library(terra))
raster <- rast(commandArgs(TRUE)[1], commandArgs(TRUE)[2])
cat(crs(raster, describe = TRUE)$name, as.vector(ext(raster)), "\\n")
cat(units(raster), names(raster), as.character(time(raster)), "\\n")
cat("values", values(raster), "\\n")
"""


def terra(folder: Path, install: bool) -> list[str]:
    return having(["Rscript", "-e", "library(terra)"], "r-cran-terra", folder, install)[:1]


def in_terra(command: list[str], file: Path, shown: Shown, scratch: Path) -> str:
    return run([*command, "-e", TERRA, str(file), shown.field], env={**os.environ, "GDAL_PAM_ENABLED": "NO"})


NCDF4 = """
suppressMessages(library(ncdf4))
file <- nc_open(commandArgs(TRUE)[1])
for (name in commandArgs(TRUE)[-1])
  cat(name, file$var[[name]]$prec, file$var[[name]]$varsize, "values", ncvar_get(file, name), "\\n")
"""


def ncdf4(folder: Path, install: bool) -> list[str]:
    return having(["Rscript", "-e", "library(ncdf4)"], "r-cran-ncdf4", folder, install)[:1]


def in_ncdf4(command: list[str], file: Path, shown: Shown, scratch: Path) -> str:
    """It takes R along where netCDF-C dies, as Debian's does of fixed strings of HDF5."""
    return run([*command, "-e", NCDF4, str(file), shown.field, *shown.beside])


GRASS = """
r.in.gdal --quiet input="NETCDF:\\"$1\\":$2" output=map || exit 1
g.region raster=map
r.info -gr map
r.out.ascii --quiet input=map output=- | tr "\\n" ";"
"""


def in_grass(command: list[str], file: Path, shown: Shown, scratch: Path) -> str:
    """Refuses a file with no coordinate system, or with another than the location's."""
    text = run([*command, "--tmp-location", "EPSG:32633", "--exec", "sh", "-c", GRASS, "sh", str(file), shown.field])
    return "\n".join(line for line in text.splitlines() if "..." not in line)


PARAVIEW = """
import sys
from paraview.simple import NetCDFReader
from paraview import servermanager
reader = NetCDFReader(FileName=[sys.argv[1]], Dimensions=sys.argv[3], SphericalCoordinates=0)
reader.UpdatePipeline()
data = servermanager.Fetch(reader)
print(data.GetClassName(), data.GetBounds(), list(reader.TimestepValues))
for place in (data.GetPointData(), data.GetCellData()):
    array = place.GetArray(sys.argv[2])
    if array is not None:
        print(array.GetDataTypeAsString(), [array.GetValue(n) for n in range(array.GetNumberOfValues())])
"""


def in_paraview(command: list[str], file: Path, shown: Shown, scratch: Path) -> str:
    script = scratch / "show.py"
    script.write_text(PARAVIEW)
    dimensions = "(lat, lon)" if shown is CLIMATE else "(y, x)"
    return run([*command, "--force-offscreen-rendering", str(script), str(file), shown.field, dimensions])


def in_cdo(command: list[str], file: Path, shown: Shown, scratch: Path) -> str:
    only = ["-selname," + shown.field, str(file)]
    grid = run([*command, "-s", "griddes", *only])
    grid = re.sub(r"^area .*\n", "", grid, flags=re.MULTILINE)  # which it finds or not by the order of the variables
    return grid + run([*command, "-s", "infon", *only]) + run([*command, "-s", "showatts", *only])


def in_gdal(command: list[str], file: Path, shown: Shown, scratch: Path) -> str:
    words = ["-json", "-stats", f'NETCDF:"{file}":{shown.field}']
    said: dict[str, Any] = json.loads(run([*command, *words], env={**os.environ, "GDAL_PAM_ENABLED": "NO"}))
    for band in said["bands"]:
        if band.get("noDataValue") == -32767:  # netCDF's own default for what was never written; none is here
            del band["noDataValue"]
    kept = {key: said.get(key) for key in ("size", "coordinateSystem", "geoTransform", "bands")}
    return "\n".join(
        f"{key} {json.dumps(value)}" for key, value in {**kept, **said["metadata"].get("GEOLOCATION", {})}.items()
    )


def checks(
    program: str, prepare: Callable[[Path, bool], list[str]], tell: Tell, every: tuple[Shown, ...] = SHOWN
) -> tuple[Check, ...]:
    return tuple(Check(program, f".nc of {shown.case} as netCDF's own", prepare, alike(tell, shown)) for shown in every)


def octave(folder: Path, install: bool) -> list[str]:
    return having(["octave-cli", "--eval", "pkg load netcdf"], "octave-netcdf", folder, install)[:1]


FIELD = Field(
    "netcdf",
    write,
    (
        *checks("GMT", system("gmt", "gmt"), in_gmt, (CLIMATE, UTM, CURVILINEAR)),
        *checks("GDL", system("gdl", "gnudatalanguage"), in_gdl),
        *checks("Octave", octave, in_octave),
        *checks("NCL", system("ncl", "ncl-ncarg"), in_ncl),
        *checks("Ferret", system("ferret_c", "ferret-vis"), in_ferret),
        *checks("QGIS", qgis, in_qgis, (CLIMATE, UTM)),
        *checks("terra", terra, in_terra, (CLIMATE, UTM)),
        *checks("R ncdf4", ncdf4, in_ncdf4, (STATIONS,)),
        *checks("GRASS", system("grass", "grass-core"), in_grass, (UTM,)),
        *checks("ParaView", system("pvpython", "python3-paraview"), in_paraview, (CLIMATE, CURVILINEAR)),
        *checks("CDO", system("cdo", "cdo"), in_cdo),
        *checks("GDAL", system("gdalinfo", "gdal-bin"), in_gdal),
    ),
)
