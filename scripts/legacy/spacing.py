"""Where programs say that elements lie: spacing and origin in nanometers, x first. Not here: the elements (`whole.py`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from legacy.programs import python, run
from legacy.whole import exists


class Grid(NamedTuple):
    """Nanometers from element to element, and of the first one; None where the format, or the program, has no origin."""

    spacing: tuple[float, ...]
    origin: tuple[float, ...] | None = None

    def wrong(self, expected: Grid) -> str | None:
        """Return what differs from the source by more than a float32's last digits."""
        if not np.allclose(self.spacing, expected.spacing, rtol=1e-5, atol=0):
            return f"spacing {self.spacing}"
        if self.origin is not None and not np.allclose(self.origin, expected.origin or 0, rtol=1e-5, atol=1e-6):
            return f"origin {self.origin}"
        return None


Read = Callable[[list[str], Path, str, Path], Grid]

NANOMETERS = {"nm": 1.0, "um": 1e3, "µm": 1e3, "micron": 1e3, "mm": 1e6, "m": 1e9, "Å": 0.1}


def grid(suffix: str, code: str, factor: float = 1.0, signs: tuple[int, ...] | None = (1, 1, 1)) -> Read:
    """A reader of a few lines of Python that sets `spacing` and `origin`; `signs` of the origin, None where it has none."""

    def read(command: list[str], mount: Path, path: str, folder: Path) -> Grid:
        name = path.rpartition("/")[2]
        lines = (
            f"file, name = {str(exists(mount, path, suffix))!r}, {name!r}\n{code}\nvalues = [list(spacing), list(origin)]"
        )
        spacing, origin = python(lines)(command, mount, path, folder) * factor
        return Grid(tuple(spacing), None if signs is None else tuple(origin * signs))

    return read


ITK = "import SimpleITK\nimage = SimpleITK.ReadImage(file)\nspacing, origin = image.GetSpacing(), image.GetOrigin()"
NIBABEL = """
import nibabel
image = nibabel.load(file)
factor = {"mm": 1e6, "micron": 1e3}[image.header.get_xyzt_units()[0]]
spacing, origin = numpy.array(image.header.get_zooms()) * factor, image.affine[:3, 3] * factor
"""
MRCFILE = """
import mrcfile
found = mrcfile.open(file, header_only=True)
spacing, origin = found.voxel_size.tolist(), found.header.origin.tolist()
"""
IMAGEJ = """
import tifffile
found = tifffile.TiffFile(file)
assert found.imagej_metadata["unit"] == "micron", found.imagej_metadata
x, y = (found.pages[0].tags[name].value for name in ("XResolution", "YResolution"))
spacing, origin = [x[1] / x[0], y[1] / y[0], found.imagej_metadata["spacing"]], [0, 0, 0]
"""

H5PY = """
import h5py
found = h5py.File(file)[name]
scales = [found.dims[axis][0] for axis in (2, 1, 0)]
assert [numpy.asarray(scale.attrs["units"]).astype(str) for scale in scales] == ["nm"] * 3
assert [found.dims[axis].keys() for axis in (2, 1, 0)] == [["x"], ["y"], ["z"]]
spacing, origin = [scale[1] - scale[0] for scale in scales], [scale[0] for scale in scales]
"""
NETCDF4 = """
import netCDF4
found = netCDF4.Dataset(file)
assert found[name].dimensions == ("z", "y", "x"), found[name].dimensions
scales = [found[axis] for axis in "xyz"]
assert [scale.units for scale in scales] == ["nm"] * 3
spacing, origin = [float(scale[1] - scale[0]) for scale in scales], [float(scale[0]) for scale in scales]
"""
XARRAY = """
import xarray
found = xarray.open_dataset(file, decode_cf=False)[name]
assert found.dims == ("z", "y", "x"), found.dims
scales = [found.coords[axis] for axis in "xyz"]
assert [scale.units for scale in scales] == ["nm"] * 3
spacing, origin = [float(scale[1] - scale[0]) for scale in scales], [float(scale[0]) for scale in scales]
"""


def coordinates(read: Callable[[list[str], Path, str], tuple[str, str]]) -> Read:
    """A reader of the coordinates of the three axes: `read` gives the numbers of one and its unit, as text."""

    def grid_of(command: list[str], mount: Path, path: str, folder: Path) -> Grid:
        spacing, origin = [], []
        for axis in "xyz":
            numbers, unit = read(command, exists(mount, path, "h5"), axis)
            first, second = (float(number) * NANOMETERS[unit] for number in re.findall(r"[-+.\de]+", numbers)[:2])
            spacing.append(second - first)
            origin.append(first)
        return Grid(tuple(spacing), tuple(origin))

    return grid_of


def h5dump(command: list[str], file: Path, axis: str) -> tuple[str, str]:
    text = run([*command, "-d", f"/{axis}", "-y", str(file)])
    units = run([*command, "-a", f"/{axis}/units", "-y", str(file)])
    return re.findall(r"\n   DATA \{(.*?)\}", text, re.DOTALL)[0], re.findall(r'DATA \{\s*"([^"]*)"', units)[0]


def ncdump(command: list[str], file: Path, axis: str) -> tuple[str, str]:
    text = run([*command, "-v", axis, str(file)])
    return text.partition("data:")[2].partition("=")[2], re.findall(rf'{axis}:units = "([^"]*)"', text)[0]


def ome_xml(text: str) -> Grid:
    """The physical sizes of an image in OME's words."""
    found = []
    for axis in "XYZ":
        size = re.search(rf'PhysicalSize{axis}="([^"]+)"', text)
        unit = re.search(rf'PhysicalSize{axis}Unit="([^"]+)"', text)
        if size is None:
            raise RuntimeError(f"no PhysicalSize{axis}")
        found.append(float(size[1]) * NANOMETERS[unit[1] if unit else "µm"])
    return Grid(tuple(found))


def tifffile_ome(command: list[str], mount: Path, path: str, folder: Path) -> Grid:
    import tifffile

    with tifffile.TiffFile(exists(mount, path, "ome.tif")) as file:
        return ome_xml(file.ome_metadata or "")


def bioformats(command: list[str], mount: Path, path: str, folder: Path) -> Grid:
    """The jar's other program, which prints what it makes of the metadata."""
    words = [word.replace("ImageConverter", "ImageInfo") for word in command]
    return ome_xml(run([*words, "-nopix", "-omexml-only", "-novalid", str(exists(mount, path, "ome.tif"))]))


def unu(command: list[str], mount: Path, path: str, folder: Path) -> Grid:
    text = run([*command, "head", str(exists(mount, path, "raw.nhdr"))], cwd=(mount / path).parent)
    fields = dict(re.findall(r"^(space [a-z]+): (.*)$", text, re.MULTILINE))
    vectors = [
        [float(number) for number in vector.split(",")] for vector in re.findall(r"\(([^)]*)\)", fields["space directions"])
    ]
    units = [NANOMETERS[unit] for unit in re.findall(r'"([^"]*)"', fields["space units"])]
    spacing = tuple(float(np.linalg.norm(vector)) * unit for vector, unit in zip(vectors, units, strict=True))
    start = [float(number) for number in fields["space origin"].strip("()").split(",")]
    return Grid(spacing, tuple(number * unit for number, unit in zip(start, units, strict=True)))


READERS: dict[str, Read] = {
    "SimpleITK nii": grid("nii", ITK, 1e6),
    "SimpleITK nrrd": grid("nrrd", ITK, 1e6),
    "SimpleITK raw.nhdr": grid("raw.nhdr", ITK, 1e6),
    "SimpleITK mha": grid("mha", ITK, 1e6),
    "SimpleITK raw.mhd": grid("raw.mhd", ITK, 1e6),
    "SimpleITK mrc": grid("mrc", ITK, 0.1),
    "nibabel": grid("nii", NIBABEL, 1.0, (-1, -1, 1)),  # its x and y run to the right and to the front
    "mrcfile": grid("mrc", MRCFILE, 0.1),
    "teem-unu": unu,
    "h5py": grid("h5", H5PY),
    "netCDF4": grid("h5", NETCDF4),
    "xarray netcdf": grid("h5", XARRAY),
    "h5dump": coordinates(h5dump),
    "ncdump": coordinates(ncdump),
    "tifffile": grid("tif", IMAGEJ, 1e3, signs=None),
    "tifffile OME": tifffile_ome,
    "Bio-Formats": bioformats,
}
"""By the name of the program."""
