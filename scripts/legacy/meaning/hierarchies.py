"""Stores shown as another version of Zarr: what is missing, and what OME-Zarr says.

Not here: whole arrays, equal elements.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np
import xarray
import zarr
from zarr.core.common import JSON

from legacy.meaning import Check, Field, differs
from legacy.programs import environment, here, run, system

LABELLED, OLD, NEW = "labelled.zarr", "ome4.zarr", "ome5.zarr"

KELVIN = [[np.nan, 280.0, 0.0, 0.0], [281.0, 0.0, 0.0, 0.0]]
"""A missing value, real zeros, and a chunk of nothing but zeros."""

AXES: list[JSON] = [
    {"name": "y", "type": "space", "unit": "micrometer"},
    {"name": "x", "type": "space", "unit": "micrometer"},
]


def write(folder: Path) -> None:
    variables = {
        "kelvin": (("y", "x"), np.array(KELVIN)),
        "count": (("y", "x"), np.array([[1, 0, 0, 0], [2, 0, 0, 0]])),
        "flag": ("y", np.array([True, False])),
        "word": ("y", np.array(["a", ""], object)),
    }
    encoding = {
        "kelvin": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -32768, "chunks": (2, 2)},
        "count": {"chunks": (2, 2)},
    }
    xarray.Dataset(variables).to_zarr(folder / LABELLED, zarr_format=3, encoding=encoding, consolidated=False)
    versions: tuple[tuple[str, Literal[2, 3]], ...] = ((OLD, 2), (NEW, 3))
    for name, version in versions:
        root = zarr.create_group(folder / name, zarr_format=version)
        root.create_array("0", shape=(4, 6), chunks=(2, 3), dtype="u2")[...] = 1
        scale: JSON = {"type": "scale", "scale": [0.5, 0.25]}
        image: dict[str, JSON] = {"axes": AXES, "datasets": [{"path": "0", "coordinateTransformations": [scale]}]}
        if version == 2:
            root.attrs["multiscales"] = [{**image, "version": "0.4"}]
        else:
            root.attrs["ome"] = {"version": "0.5", "multiscales": [image]}


XARRAY = """
import json, sys, xarray
with xarray.open_dataset(sys.argv[1], engine="zarr", consolidated=False) as shown:
    texts = [name for name in shown if shown[name].dtype.kind not in "biuf"]
    found = {**shown.drop_vars(texts).fillna(-1), **{name: shown[name] for name in texts}}
    print(json.dumps({name: found[name].values.tolist() for name in found}))
"""

OME = """
import sys
from ome_zarr.io import parse_url
from ome_zarr.reader import Reader
location = parse_url(sys.argv[1])
for node in Reader(location)():
    scale = node.metadata["coordinateTransformations"][0][0]["scale"]
    print(location.fmt.version, [axis["unit"] for axis in node.metadata["axes"]], scale)
"""


def in_xarray(command: list[str], mount: Path, scratch: Path) -> None:
    shown = json.loads(run([*command, "-W", "ignore", "-c", XARRAY, str(mount / "zarr2" / LABELLED)]))
    expected = {
        "kelvin": np.nan_to_num(KELVIN, nan=-1).tolist(),
        "count": [[1, 0, 0, 0], [2, 0, 0, 0]],
        "flag": [True, False],
        "word": ["a", ""],
    }
    differs("values, -1 for missing", shown, expected)


def in_gdal(command: list[str], mount: Path, scratch: Path) -> None:
    for name, expected in (("kelvin", -32768), ("count", None)):
        shown = json.loads(run([*command, "-json", f'ZARR:"{mount / "zarr2" / LABELLED}":/{name}']))
        differs(f"no-data value of {name}", shown["bands"][0].get("noDataValue"), expected)


def in_ome_zarr(command: list[str], mount: Path, scratch: Path) -> None:
    for path, version in ((f"zarr2/{NEW}", "0.4"), (f"zarr3/{OLD}", "0.5")):
        shown = run([*command, "-W", "ignore", "-c", OME, str(mount / path)]).strip()
        differs(path, shown, f"{version} ['micrometer', 'micrometer'] [0.5, 0.25]")


FIELD = Field(
    "hierarchies",
    write,
    (
        Check("xarray", "what is missing, what is zero", here, in_xarray),
        Check("gdalinfo", "no-data value", system("gdalinfo", "gdal-bin"), in_gdal),
        Check("ome-zarr", "0.4 and 0.5", environment("ome-zarr"), in_ome_zarr),
    ),
)
