"""The programs: how each is installed, which layout it reads, and how it hands over an array. Not here: what is compared.

Each reads in a process of its own and leaves the elements as an `.npy` file or as text, in its own order of dimensions.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from checks import Skipped

SECONDS = 120
"""Within which a program must have read one array."""


@dataclass(frozen=True)
class Program:
    """`prepare(folder)` makes it ready and returns its command; `read(command, mount, path, folder)` gives the elements.

    `mount` is the layout's root, `path` the array's. `turned`: it shows dimensions in the reversed order of the layout's;
    `pictures`: x is its last dimension; `large`: it reads what is larger than 4 GB, and only that.
    `excuses`: what it says itself, or is known for, by format, where it cannot read an array.
    """

    name: str
    layout: str
    prepare: Callable[[Path, bool], list[str]]
    read: Callable[[list[str], Path, str, Path], np.ndarray[Any, Any]]
    turned: bool = False
    pictures: bool = False
    large: bool = False
    excuses: tuple[tuple[str, str], ...] = ()


def run(command: list[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Return what a program prints; if it fails, raise an error with its last words."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL, cwd=cwd, env=env
    )
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


# Readers in Python: a line that sets `values`, run by an interpreter that has the library


def here(_folder: Path, _install: bool) -> list[str]:
    """This environment's Python."""
    return [sys.executable]


def environment(*packages: str) -> Callable[[Path, bool], list[str]]:
    """A virtual environment with `packages`, which cannot stand beside the ones that the tests need."""

    def prepare(folder: Path, install: bool) -> list[str]:
        python = folder / re.sub(r"\W", "-", " ".join(packages)) / "bin/python"
        if not python.exists():
            if not install:
                raise Skipped(f"pip install {' '.join(packages)} into an environment of its own")
            try:
                run([sys.executable, "-m", "venv", str(python.parent.parent)])
                run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                shutil.rmtree(python.parent.parent, ignore_errors=True)
                raise Skipped(f"pip install {' '.join(packages)}: {str(error)[:80]}") from None
        return [str(python)]

    return prepare


def python(code: str) -> Callable[[list[str], Path, str, Path], np.ndarray[Any, Any]]:
    """A reader of a few lines that knows `mount` and `path`, and leaves `values`."""

    def read(command: list[str], mount: Path, path: str, folder: Path) -> np.ndarray[Any, Any]:
        result = folder / "values.npy"
        lines = f"import sys, numpy\nmount, path, result = sys.argv[1:]\n{code}\nnumpy.save(result, numpy.asarray(values))\n"
        run([*command, "-W", "ignore", "-c", lines, str(mount), path, str(result)])
        found: np.ndarray[Any, Any] = np.load(result)
        return found

    return read


TENSORSTORE = """
import tensorstore
store = {"driver": "file", "path": f"{mount}/{path}/"}
values = tensorstore.open({"driver": "%s", "kvstore": store}, open=True, read=True).result().read().result()
"""

XARRAY = """
import os, xarray
folder, name = os.path.split(f"{mount}/{path}")
values = xarray.open_zarr(folder, consolidated=False, mask_and_scale=False)[name].values
"""

Z5PY = """
import z5py
values = z5py.File(mount, "r", use_zarr_format=%s)[path][...]
"""


# Programs of the system


def system(program: str, package: str) -> Callable[[Path, bool], list[str]]:
    """A Debian package's program."""

    def prepare(_folder: Path, install: bool) -> list[str]:
        if shutil.which(program) is None:
            if not install or os.geteuid() != 0:
                raise Skipped(f"apt-get install {package}")
            try:
                run(["apt-get", "install", "-y", "--no-install-recommends", package])
            except (RuntimeError, subprocess.TimeoutExpired, FileNotFoundError) as error:
                raise Skipped(f"apt-get install {package}: {str(error)[:80]}") from None
        return [program]

    return prepare


def gdal(command: list[str], mount: Path, path: str, folder: Path) -> np.ndarray[Any, Any]:
    """Plane by plane, along the first dimension, by `gdal_translate`; `gdalmdiminfo` says the shape."""
    import json

    store, _, name = path.rpartition("/")
    described = json.loads(run([*command, "-array", name, str(mount / store)]))
    shape = described["dimension_size"]
    planes = []
    for plane in range(shape[0]) if len(shape) > 2 else [None]:
        which = "" if plane is None else f":{plane}"
        source = f'ZARR:"{mount / store}":/{name}{which}'
        run(["gdal_translate", "-q", "-of", "ENVI", source, str(folder / "plane.img")])
        kind = {"UInt16": "<u2", "Int16": "<i2", "Byte": "u1", "Float64": "<f8"}[described["datatype"]]
        planes.append(np.fromfile(folder / "plane.img", kind))
    return np.concatenate(planes).reshape(shape)


def ncdump(command: list[str], mount: Path, path: str, folder: Path) -> np.ndarray[Any, Any]:
    """The numbers of the text dump."""
    store, _, name = path.rpartition("/")
    text = run([*command, "-v", name, f"file://{mount / store}#mode=zarr,file"])
    head, _, data = text.partition("data:")
    extents = dict(re.findall(r"^\s*(\S+) = (\d+) ;", head, re.MULTILINE))
    found = re.search(rf"^\s*(\w+) \\?{re.escape(name)}\((.*?)\) ;", head, re.MULTILINE)
    assert found is not None, head
    numbers = re.sub(r"[^-\d_\s]", " ", data.partition("=")[2]).split()
    kind = {"ushort": "u2", "short": "i2", "ubyte": "u1", "uint": "u4", "int": "i4"}[found[1]]
    values = np.array([0 if number == "_" else int(number) for number in numbers]).astype(kind)  # `_`: the fill value
    return values.reshape([int(extents[name.strip()]) for name in found[2].split(",")])


ZARRITA = """
import * as fs from "node:fs";
import * as zarr from "zarrita";
import FileSystemStore from "@zarrita/storage/fs";
const [, , mount, path, result] = process.argv;
const array = await zarr.open.%s(zarr.root(new FileSystemStore(mount)).resolve("/" + path), { kind: "array" });
const chunk = await zarr.get(array);
const rank = array.shape.length;
const out = new chunk.data.constructor(chunk.data.length);
const index = new Array(rank).fill(0);
for (let n = 0; n < out.length; n++) {
  out[n] = chunk.data[index.reduce((sum, i, axis) => sum + i * chunk.stride[axis], 0)];
  for (let axis = rank - 1; axis >= 0 && ++index[axis] === array.shape[axis]; axis--) index[axis] = 0;
}
fs.writeFileSync(result, out);
console.log(JSON.stringify({ shape: array.shape, dtype: array.dtype }));
"""


def node(folder: Path, install: bool) -> list[str]:
    """Node.js with zarrita."""
    if shutil.which("npm") is None:
        raise Skipped("apt-get install nodejs npm")
    where = folder / "zarrita"
    if not (where / "node_modules/zarrita").exists():
        if not install:
            raise Skipped("npm install zarrita @zarrita/storage")
        where.mkdir(exist_ok=True)
        (where / "package.json").write_text('{"type": "module"}')
        try:
            run(["npm", "install", "--silent", "zarrita@0.7.5", "@zarrita/storage"], cwd=where)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            raise Skipped(f"npm install zarrita: {str(error)[:80]}") from None
    for version in ("v2", "v3"):
        (where / f"{version}.mjs").write_text(ZARRITA % version)
    return ["node", str(where)]


def zarrita(version: str) -> Callable[[list[str], Path, str, Path], np.ndarray[Any, Any]]:
    """zarrita.js, told which version of Zarr the store has."""

    def read(command: list[str], mount: Path, path: str, folder: Path) -> np.ndarray[Any, Any]:
        import json

        result = folder / "values.raw"
        said = json.loads(run([command[0], f"{command[1]}/{version}.mjs", str(mount), path, str(result)]))
        return np.fromfile(result, said["dtype"]).reshape(said["shape"])

    return read


ZARR2 = environment("zarr==2.18.7", "numcodecs<0.16")

PROGRAMS = (
    Program("zarr-python 3", "zarr2", here, python("import zarr\nvalues = zarr.open(f'{mount}/{path}', mode='r')[...]")),
    Program("zarr-python 2.18", "zarr2", ZARR2, python("import zarr\nvalues = zarr.open(mount, mode='r')[path][...]")),
    Program(
        "zarr-python 2.18 N5Store",
        "n5",
        ZARR2,
        python("import zarr\nvalues = zarr.open(zarr.N5Store(mount), mode='r')[path][...]"),
        turned=True,
    ),
    Program("TensorStore zarr", "zarr2", here, python(TENSORSTORE % "zarr")),
    Program("TensorStore n5", "n5", here, python(TENSORSTORE % "n5")),
    Program(
        "z5py zarr",
        "zarr2",
        here,
        python(Z5PY % True),
        excuses=(("N5|Zarr v2 F", "only supports C order"), (".*", "Unsupported zarr dtype")),
    ),
    Program("z5py n5", "n5", here, python(Z5PY % False), turned=True),
    Program(
        "xarray",
        "zarr2",
        environment("xarray", "zarr>=3.1"),
        python(XARRAY),
        excuses=(("Hangar|NWB", "_ARRAY_DIMENSIONS"),),  # their dimensions have no names
    ),
    Program("GDAL", "zarr2", system("gdalmdiminfo", "gdal-bin"), gdal),
    Program(
        "netCDF-C ncdump",
        "zarr2",
        system("ncdump", "netcdf-bin"),
        ncdump,
        # netCDF-C 4.9.0 opens no store with a list of texts, a null or OME's `multiscales` in its attributes, by any writer
        excuses=(
            ("Zarr v2 F", "ignores `order`"),
            ("N5", "NetCDF: Invalid argument"),
            ("Zarr v3 sharded", "NetCDF: internal library error"),
        ),
    ),
    Program("zarrita v2", "zarr2", node, zarrita("v2")),
    Program("zarrita v3", "zarr3", node, zarrita("v3")),
)
