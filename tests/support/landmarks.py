"""Arrays with known places, and readers of places in their files. Not here: which types say them (`test_landmarks.py`)."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import mrcfile
import nibabel
import nrrd
import numpy as np
import SimpleITK
import tifffile
from fake_model import FakeGroup, fake_array, tree
from tree_walker import content, read_file

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.formats.open import open_source
from fsbridge.layouts import root_directory
from fsbridge.tree import Directory

VALUES = np.arange(60, dtype="<u2").reshape(3, 4, 5)
LANDMARKS = [*itertools.islice(itertools.product(*map(range, VALUES.shape)), 0, None, 3)]
"""Twenty elements, by their indexes z, y, x."""

Place = Callable[[tuple[float, ...]], np.ndarray[Any, Any]]
"""Returns the coordinates x, y, z of an element in millimeters: to the left, to the back, up."""


@dataclass(frozen=True)
class Source:
    """An array. `place`: where its elements lie; None if it does not say it. `sizes`: of an element along z, y and x, in mm.

    `said`: file types that say the place, or the sizes. `order`: the dimension for each axis x, y, z of a file.
    """

    said: str
    place: Place | None = None
    sizes: tuple[float | None, ...] = (None, None, None)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    group: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] | None = ("z", "y", "x")
    order: tuple[int, ...] = (2, 1, 0)
    beside: Mapping[str, tuple[Any, Mapping[str, Any]]] = field(default_factory=dict)

    def files(self) -> Directory:
        members: dict[str, Any] = {
            "a": fake_array(VALUES, (1, 2, 5), attributes=self.attributes, dimension_names=self.names)
        }
        for name, (values, attributes) in self.beside.items():
            array = np.asarray(values, "<f8")
            members[name] = fake_array(
                array, array.shape, attributes=attributes, dimension_names=(name,) if array.ndim == 1 else None
            )
        return tree(FakeGroup(members, dict(self.group)), layout="files")

    def content(self, suffix: str, directory: Path) -> bytes:
        """Return the array's file of that type."""
        return content(self.files().lookup(f"a.{suffix}".encode()))


@dataclass(frozen=True)
class ImarisFile(Source):
    """A file as Imaris writes it: attributes are arrays of single letters, and the array is padded to whole chunks."""

    def content(self, suffix: str, directory: Path) -> bytes:
        path = directory / "a.ims"
        with h5py.File(path, "w") as file:
            level = file.create_group("DataSet/ResolutionLevel 0/TimePoint 0/Channel 0")
            level.create_dataset("Data", data=np.pad(VALUES, ((0, 1), (0, 0), (0, 3))), chunks=(2, 4, 8))
            image = {
                "Unit": "um",
                "ExtMin0": 0,
                "ExtMax0": 20,
                "ExtMin1": 7.5,
                "ExtMax1": 27.5,
                "ExtMin2": -100,
                "ExtMax2": 20,
            }
            attributes_of: dict[str, dict[str, Any]] = {
                level.name: {"ImageSizeX": 5, "ImageSizeY": 4, "ImageSizeZ": 3},
                "DataSetInfo/Image": {"X": 5, "Y": 4, "Z": 3, **image},
                "DataSetInfo/Channel 0": {"Name": "DAPI", "Color": "1 0 0", "ColorRange": "0 59"},
            }
            for name, attributes in attributes_of.items():
                for key, value in attributes.items():
                    file.require_group(name).attrs[key] = np.frombuffer(str(value).encode(), "S1")
            array = f"{level.name}/Data.{suffix}"
        with closing(open_source(str(path), Config(str(path), "/mnt"))) as source:
            return read_file(root_directory(source, Config(str(path), "/mnt", layout="files"), ChunkCache(1 << 20)), array)


def straight(steps: Iterable[float], starts: Iterable[float] = (0.0, 0.0, 0.0), signs: Iterable[float] = (1, 1, 1)) -> Place:
    """Return places of axes that are parallel to the dimensions. `steps`, `starts`: for z, y, x; `signs`: for x, y, z."""
    scale, offset, sign = (np.array([*values]) for values in (steps, starts, signs))
    return lambda index: (offset + scale * index)[::-1] * sign


def turned(matrix: Any, unit: float = 1e-3) -> Place:
    """Return places by a matrix with rows for z, y, x, and columns for the dimensions and a shift."""
    rows = np.array(matrix) * unit
    return lambda index: (rows @ [*index, 1.0])[::-1]


def ngff(*transformations: Any, version: str = "0.6", orientation: str | None = None, **of_image: Any) -> dict[str, Any]:
    letters = {"z": "inferior-to-superior", "y": "posterior-to-anterior", "x": "left-to-right"} if orientation else {}
    axes: list[dict[str, Any]] = [{"name": name, "type": "space", "unit": "micrometer"} for name in "zyx"]
    for axis in axes:
        if letters:
            axis["orientation"] = {"type": "anatomical", "value": letters[axis["name"]]}
    listed = [{**one, "input": "a", "output": "world"} for one in transformations]
    datasets = [{"path": "a", "coordinateTransformations": listed}]
    systems = {"coordinateSystems": [{"name": "world", "axes": axes}]} if version == "0.6" else {"axes": axes}
    return {"ome": {"version": version, "multiscales": [{**systems, "datasets": datasets, **of_image}]}}


def read_nii(data: bytes, _: Path) -> Place | None:
    image: Any = nibabel.Nifti1Image.from_bytes(data)
    header = image.header
    if not header["sform_code"]:
        assert (int(header["qform_code"]), header.get_xyzt_units()[0]) == (0, "unknown")
        return None
    assert header.get_xyzt_units()[0] == "mm"
    if header["qform_code"]:
        np.testing.assert_allclose(header.get_qform(), header.get_sform(), rtol=1e-5, atol=1e-7)
    return lambda at: (image.affine @ [*at, 1.0])[:3] * (-1, -1, 1)


def by_itk(data: bytes, path: Path) -> Place:
    path.write_bytes(data)
    image: Any = SimpleITK.ReadImage(str(path))
    return lambda at: np.array(image.TransformContinuousIndexToPhysicalPoint([float(i) for i in at]))


def read_nrrd(data: bytes, directory: Path) -> Place | None:
    path = directory / "a.nrrd"
    path.write_bytes(data)
    _, header = nrrd.read(str(path))
    if "space directions" not in header:
        assert not np.isfinite(header.get("spacings", [np.nan])).all()
        return None
    found = by_itk(data, path)
    for at in itertools.product((0, 2), repeat=3):
        own = header["space origin"] + np.array(at) @ header["space directions"]
        np.testing.assert_allclose(own, found(at), rtol=1e-6)
    assert header["space units"] == ["mm"] * 3
    return found


def read_mha(data: bytes, directory: Path) -> Place | None:
    found = by_itk(data, directory / "a.mha")
    steps = [np.subtract(found(np.eye(3)[i]), found((0, 0, 0))) for i in range(3)]
    return None if any((step == np.eye(3)[i]).all() for i, step in enumerate(steps)) else found


PLACES: dict[str, Callable[[bytes, Path], Place | None]] = {
    "nii": read_nii,
    "nrrd": read_nrrd,
    "mha": read_mha,
}
"""Readers of files with places: each returns where the element of an index x, y, z lies."""


def sizes_of_tif(data: bytes) -> list[float | None]:
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        told = file.imagej_metadata or {}
        tags: Any = file.pages.first.tags
        across = [tags[name].value for name in ("YResolution", "XResolution") if name in tags]
        if "unit" not in told:
            assert "spacing" not in told
            return [None, None, None]
        assert told["unit"] == "micron"
        z = None if told.get("zunit") == "pixel" else told.get("spacing")
        return [z and z * 1e-3, *(down / up * 1e-3 for up, down in across)]


def sizes_of_ome(data: bytes) -> list[float | None]:
    units = {"µm": 1e-3, "mm": 1.0, "m": 1e3}
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        pixels = tifffile.xml2dict(file.ome_metadata or "")["OME"]["Image"]["Pixels"]
    found = [(pixels.get(f"PhysicalSize{axis}"), pixels.get(f"PhysicalSize{axis}Unit")) for axis in "ZYX"]
    return [None if size is None else float(size) * units[unit] for size, unit in found]


def sizes_of_mrc(data: bytes) -> list[float | None]:
    header = mrcfile.mrcinterpreter.MrcInterpreter(io.BytesIO(data)).voxel_size.tolist()
    return [size * 1e-7 or None for size in header[::-1]]


SPACING = {"mrc": sizes_of_mrc, "tif": sizes_of_tif, "ome.tif": sizes_of_ome}
"""Readers of files with the sizes of elements only, along z, y and x in millimeters."""
