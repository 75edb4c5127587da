"""The table: every program on every format, each cell what became of it. Exit code 1 if anything was read wrongly.

A cell is `equal` (every element, and where the program tells them spacing, unit and origin), `differs`, `no: ...` (the
program's own words, or what it is known for) or `skipped`.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import numpy as np
from checks import Skipped, main, told
from mounting import Mount

from legacy.hdf5 import PROGRAMS as HDF5
from legacy.meaning.fields import FIELDS
from legacy.programs import PROGRAMS, Program
from legacy.spacing import READERS, Grid
from legacy.stores import Sample, write
from legacy.whole import PROGRAMS as WHOLE_ARRAYS

CELL = 44
"""Characters of a cell at most."""


def cell(program: Program, command: list[str], mount: Path, sample: Sample, folder: Path) -> tuple[str, bool]:
    """The outcome of one reading, and if it is all right."""
    try:
        seen = program.read(command, mount / program.layout, sample.path, folder)
    except Exception as error:  # a program's own failure, of any kind
        words = str(error)
        known = any(re.fullmatch(formats, sample.format) and text in words for formats, text in program.excuses)
        last: object = words.strip().splitlines()[-1:] or [type(error)]
        said = next((text for _, text in program.excuses if text in words), last)
        return f"no: {said}", known
    expected = sample.values
    if program.layout == "n5" and not sample.fastest_first:
        expected = expected.T
    if program.pictures and sample.format == "N5":
        expected = expected.T
    if program.turned:
        expected = expected.T
    if seen.shape == expected.shape and np.array_equal(seen, expected):
        return placed(program, command, mount, sample, folder)
    for formats, text in program.excuses:
        if re.fullmatch(formats, sample.format) and text.startswith("ignores"):
            return f"no: {text}", True
    return f"differs: {seen.shape} for {expected.shape}" if seen.shape != expected.shape else "differs", False


def placed(program: Program, command: list[str], mount: Path, sample: Sample, folder: Path) -> tuple[str, bool]:
    """Compare the places that a program gives to equal elements."""
    read = READERS.get(program.name)
    if read is None or sample.spacing is None:
        return "equal", True
    try:
        found = read(command, mount / program.layout, sample.path, folder)
    except Exception as error:  # a program's own failure, of any kind
        return f"no spacing: {str(error).strip().splitlines()[-1:] or [type(error)]}", False
    wrong = found.wrong(Grid(sample.spacing, sample.origin))
    if wrong is not None:
        return f"differs: {wrong}", False
    return f"equal, with spacing{'' if found.origin is None else ' and origin'}", True


def check(names: list[str], folder: Path, install: bool) -> bool:
    """Print the table; whether all is well."""
    wrong: list[str] = []
    skipped: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        samples = write(Path(scratch) / "stores")
        options = ["--layout", "zarr3,zarr2,n5,files", "--files", "all"]
        mount = Mount(Path(scratch) / "stores", Path(scratch) / "mount", options)
        mount.allow("is left out of the layout n5")
        try:
            for program in (*PROGRAMS, *WHOLE_ARRAYS, *HDF5):
                if names and not any(name.lower() in program.name.lower() for name in names):
                    continue
                try:
                    command = program.prepare(folder, install)
                except Skipped as reason:
                    skipped.append(f"{program.name}: {reason}")
                    continue
                print(program.name)
                for sample in [sample for sample in samples if sample.large == program.large]:
                    text, well = cell(program, command, mount.path, sample, Path(scratch))
                    print(f"    {sample.format:16}  {text[:CELL]}", flush=True)
                    if not well:
                        wrong.append(f"{program.name}, {sample.format}: {text}")
        finally:
            mount.stop()
        check_meaning(names, folder, install, Path(scratch), skipped, wrong)
    return told(skipped, wrong)


def check_meaning(
    names: list[str], folder: Path, install: bool, scratch: Path, skipped: list[str], wrong: list[str]
) -> None:
    """Print whether each program shows what the source says beside the values."""
    stores = scratch / "meaning"
    stores.mkdir()
    checks = [
        (field, check)
        for field in FIELDS
        for check in field.checks
        if not names or any(name.lower() in f"{field.name} {check.program}".lower() for name in names)
    ]
    if not checks:
        return
    for field in dict.fromkeys(field for field, _ in checks):
        field.write(stores)
    mount = Mount(stores, scratch / "meaning-mount", ["--layout", "zarr3,zarr2,n5,files", "--files", "all"])
    mount.allow("is left out of the layout n5")
    try:
        for _, check in checks:
            try:
                command = check.prepare(folder, install)
            except Skipped as reason:
                skipped.append(f"{check.program}: {reason}")
                continue
            try:
                check.compare(command, mount.path, scratch)
                text = "as the source says"
            except Exception as error:  # a program's own failure, of any kind
                text = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
                wrong.append(f"{check.program}, {check.fact}: {text}")
            print(f"{check.program:20}  {check.fact:36}  {text[:CELL]}", flush=True)
    finally:
        mount.stop()


if __name__ == "__main__":
    sys.exit(main("legacy", __doc__, "programs", check))
