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
        """What differs from the source by more than a float32's last digits."""
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
        lines = f"file = {str(exists(mount, path, suffix))!r}\n{code}\nvalues = [list(spacing), list(origin)]"
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
assert found.imagej_metadata["unit"] == "nm", found.imagej_metadata
x, y = (found.pages[0].tags[name].value for name in ("XResolution", "YResolution"))
spacing, origin = [x[1] / x[0], y[1] / y[0], found.imagej_metadata["spacing"]], [0, 0, 0]
"""


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
    text = run([*command, "head", str(exists(mount, path, "nhdr"))], cwd=(mount / path).parent)
    fields = dict(re.findall(r"^(space [a-z]+): (.*)$", text, re.MULTILINE))
    vectors = [
        [float(number) for number in vector.split(",")] for vector in re.findall(r"\(([^)]*)\)", fields["space directions"])
    ]
    units = [NANOMETERS[unit] for unit in re.findall(r'"([^"]*)"', fields["space units"])]
    spacing = tuple(float(np.linalg.norm(vector)) * unit for vector, unit in zip(vectors, units, strict=True))
    start = [float(number) for number in fields["space origin"].strip("()").split(",")]
    return Grid(spacing, tuple(number * unit for number, unit in zip(start, units, strict=True)))


READERS: dict[str, Read] = {
    "SimpleITK nii": grid("nii", ITK, 1e6, (-1, -1, 1)),  # ITK's x and y run the other way
    "SimpleITK nrrd": grid("nrrd", ITK),  # which leaves out the unit: nm, as the source has it
    "SimpleITK nhdr": grid("nhdr", ITK),
    "SimpleITK mha": grid("mha", ITK, 1e6),
    "SimpleITK mhd": grid("mhd", ITK, 1e6),
    "SimpleITK mrc": grid("mrc", ITK, 0.1),
    "nibabel": grid("nii", NIBABEL),
    "mrcfile": grid("mrc", MRCFILE, 0.1),
    "teem-unu": unu,
    "tifffile": grid("tif", IMAGEJ, signs=None),
    "tifffile OME": tifffile_ome,
    "Bio-Formats": bioformats,
}
"""By the name of the program."""
