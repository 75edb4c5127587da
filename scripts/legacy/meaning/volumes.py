"""Volumes in programs for medicine and microscopy: which axis is which, where an element lies, what packed numbers mean.

Not here: pictures (channels and their names), equal elements.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import z5py
import zarr
from zarr.core.common import JSON

from legacy.meaning import Check, Field, differs
from legacy.programs import environment, here, python, run, system
from legacy.whole import bioformats

FILES = "volumes.zarr"
SCALE = {"t": 1.5, "c": 1.0, "z": 0.5, "y": 0.2, "x": 0.1}
START = {"t": 2.0, "c": 0.0, "z": 20.0, "y": 10.0, "x": 5.0}
"""Micrometers and seconds."""
EXTENT = {"t": 3, "c": 2, "z": 35, "y": 32, "x": 33}
PLACE = tuple((START[axis] + at * SCALE[axis]) * 1e-3 for axis, at in (("x", 10), ("y", 20), ("z", 30)))
"""In millimeters, of the element x=10, y=20, z=30."""
FORMS = ("nrrd", "raw.nhdr", "mha", "raw.mhd", "nii")


def write(folder: Path) -> None:
    root = zarr.open_group(str(folder / FILES), mode="w")
    for names in ("zyx", "tczyx", "czyx", "tzyx"):
        group = root.create_group(names)
        shape = tuple(EXTENT[name] for name in names)
        group.create_array("a", shape=shape, chunks=shape, dtype="<u2")[...] = values(shape)
        steps: list[JSON] = [
            {"type": "scale", "scale": [SCALE[name] for name in names]},
            {"type": "translation", "translation": [START[name] for name in names]},
        ]
        datasets: list[JSON] = [{"path": "a", "coordinateTransformations": steps}]
        axes: list[JSON] = [described(name) for name in names]
        group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]}
    packed = root.create_array("packed", shape=(10, 11, 12), chunks=(10, 11, 12), dtype="<u2")
    packed.attrs.update({"scale_factor": 0.25, "add_offset": -3.5})
    packed[...] = values((10, 11, 12))
    with z5py.File(str(folder / "volumes.n5"), mode="w") as file:
        file.create_dataset("a", data=values((10, 11, 12)), chunks=(5, 11, 12)).attrs["resolution"] = [4, 4, 40]


def values(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape)) % 60_000).reshape(shape).astype("<u2")


def described(name: str) -> dict[str, str]:
    if name in "zyx":
        return {"name": name, "type": "space", "unit": "micrometer"}
    return {"name": name, "type": "time", "unit": "second"} if name == "t" else {"name": name, "type": "channel"}


Compare = Callable[[list[str], Path, Path], None]


def library(code: str, fact: str, expected: object, path: str = "volumes.zarr/") -> Compare:
    """A few lines of Python that know `folder`, the store as files, and set `values`: what the program shows."""

    def compare(command: list[str], mount: Path, scratch: Path) -> None:
        found = python(f"folder = mount + '/files/{path}'\n{code}")(command, mount, path, scratch)
        if not np.allclose(found, np.asarray(expected), rtol=1e-5, atol=1e-12):
            differs(fact, found.tolist(), expected)

    return compare


def text(arguments: list[str], pattern: str, expected: object) -> Compare:
    """Return what a program prints about files of the store."""

    def compare(command: list[str], mount: Path, scratch: Path) -> None:
        folder = mount / "files" / FILES
        shown = run([*command, *(word.replace("FOLDER", str(folder)) for word in arguments)])
        differs(pattern, re.findall(pattern, shown), expected)

    return compare


ITK = f"""
import SimpleITK
images = [SimpleITK.ReadImage(folder + NAME + "/a." + form) for form in {FORMS!r}]
values = [image.TransformIndexToPhysicalPoint([10, 20, 30, 1, 1][: image.GetDimension()])[:3] for image in images]
"""
NIBABEL = """
import nibabel
found = {names: nibabel.load(folder + names + "/a.nii") for names in ("tczyx", "czyx", "tzyx")}
units = [image.header.get_xyzt_units() for image in found.values()]
assert units == [("mm", "sec")] * 3, units
values = [[*(*image.shape, 1, 1)[3:5], image.header["pixdim"][4]] for image in found.values()]
"""
VTK_MRC = """
import vtk
from vtk.util.numpy_support import vtk_to_numpy
reader = vtk.vtkMRCReader()
reader.SetFileName(folder + "a.mrc")
reader.Update()
values = vtk_to_numpy(reader.GetOutput().GetPointData().GetScalars())
"""
VTK_TIME = """
import vtk
reader = vtk.vtkNIFTIImageReader()
reader.SetFileName(folder + "tczyx/a.nii")
reader.Update()
values = [reader.GetTimeDimension(), reader.GetTimeSpacing(), reader.GetOutput().GetNumberOfScalarComponents()]
"""
VTK_PACKED = """
import vtk
reader = vtk.vtkMetaImageReader()
reader.SetFileName(folder + "packed.mha")
reader.Update()
values = [reader.GetRescaleSlope(), reader.GetRescaleOffset()]
"""
PYNRRD = """
import nrrd
header = nrrd.read_header(folder + "tczyx/a.raw.nhdr")
values = header["axis mins"]
"""
PACKED = """
import nibabel
values = nibabel.load(folder + "packed.nii").get_fdata().T
"""


def places(names: str) -> Check:
    code = ITK.replace("NAME", repr(names))
    return Check("SimpleITK", f"{names}: one place in all forms", here, library(code, names, [PLACE] * len(FORMS)))


def image_info(folder: Path, install: bool) -> list[str]:
    """The program of Bio-Formats that prints what it makes of a file."""
    return [word.replace("ImageConverter", "ImageInfo") for word in bioformats(folder, install)]


def unquantized(command: list[str], mount: Path, scratch: Path) -> None:
    """Return packed numbers as teem reads them."""
    out = scratch / "unquantized.nrrd"
    source = mount / "files" / FILES / "packed.nrrd"
    run([*command, "unquantize", "-double", "-i", str(source), "-o", str(out)])
    head, _, data = out.read_bytes().partition(b"\n\n")
    found = np.frombuffer(data, ">f8" if b"endian: big" in head else "<f8")
    if not np.allclose(found, values((10, 11, 12)).ravel() * 0.25 - 3.5):
        differs("unquantized", found[:4].tolist(), "packed * 0.25 - 3.5")


SIZES = r"Size([TCZ]) = (\d+)"
INFO = ["-nopix", "-no-upgrade"]
ALL = [("Z", "35"), ("T", "3"), ("C", "2")]

FIELD = Field(
    "volumes",
    write,
    (
        *(places(names) for names in ("zyx", "tczyx", "czyx", "tzyx")),
        Check("nibabel", "time is fourth, channels fifth", here,
              library(NIBABEL, "t, c, step", [[3, 2, 1.5], [1, 2, 1], [3, 1, 1.5]])),
        Check("nibabel", "packed numbers", here, library(PACKED, "values", values((10, 11, 12)) * 0.25 - 3.5)),
        Check("VTK MRC", "values of N5", environment("vtk"),
              library(VTK_MRC, "values", values((10, 11, 12)).ravel(), "volumes.n5/")),
        Check("VTK NIfTI", "times, seconds, components", environment("vtk"), library(VTK_TIME, "times", [3, 1.5, 2])),
        Check("VTK MetaImage", "packed numbers", environment("vtk"), library(VTK_PACKED, "rescaling", [0.25, -3.5])),
        Check("pynrrd", "origin beside t and c", environment("pynrrd"),
              library(PYNRRD, "axis mins", [5e-3, 10e-3, 20e-3, 0, 2])),
        Check("teem-unu", "origin beside t and c", system("teem-unu", "teem-apps"),
              text(["head", "FOLDER/tczyx/a.nrrd"], "axis mins: (.*)", ["0.005 0.01 0.02 0 2"])),
        Check("teem-unu", "packed numbers", system("teem-unu", "teem-apps"), unquantized),
        Check("mrinfo", "time step in seconds", system("mrinfo", "mrtrix3"),
              text(["FOLDER/tzyx/a.nii", "-spacing"], r"([0-9.]{3})[0-9]*", ["0.1", "0.2", "0.5", "1.5"])),
        Check("wb_command", "five dimensions", system("wb_command", "connectome-workbench"),
              text(["-file-information", "FOLDER/czyx/a.nii"], "Dimensions: *(.*)", ["33, 32, 35, 1, 2"])),
        *(Check("Bio-Formats", f"sizes of .{suffix}", image_info, text([*INFO, f"FOLDER/tczyx/a.{suffix}"], SIZES, ALL))
          for suffix in ("tif", "nii")),
    ),
)  # fmt: skip
