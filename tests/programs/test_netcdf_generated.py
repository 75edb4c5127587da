"""`.nc` is what netCDF-4's own writer would write: each generated data set, in each source, in two programs.

The file that `Dataset.to_netcdf` wrote of the same data set, read by the same program, says what must be shown. Not here:
dates and places as other programs understand them (`scripts/legacy-check`).
"""

from __future__ import annotations

import warnings
from pathlib import Path

import netcdf_readers
import pytest
from conftest import MountFunction
from netcdf_cases import CASES, Case
from netcdf_readers import Read, Shown
from zarr.errors import UnstableSpecificationWarning

READ = [(case, source, unit) for case in CASES for source in case.sources for unit in case.units]
PROGRAMS = {"ncdump": netcdf_readers.ncdump, "netCDF4": netcdf_readers.netcdf4}


def files_of(case: Case, source: str, unit: str, mounted: Path) -> dict[Path, str | None]:
    """The files of one unit. Of a single array, its name: of many arrays, every third is read."""
    store = mounted / f"{case.name}-{source}"
    if unit == "store":
        return {mounted / f"{store.name}.nc": None}
    if unit == "group":
        return {store / "g.nc": None}
    names = [str(name) for name in case.dataset.variables if not case.below or name in case.below]
    return {(store / "g" if case.below else store) / f"{name}.nc": name for name in names[:: 1 if len(names) < 10 else 3]}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, module_mount: MountFunction) -> tuple[Path, Path]:
    """Where the mount shows the sources, and where xarray's own files are."""
    sources, native = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("native")
    with warnings.catch_warnings(category=UnstableSpecificationWarning, action="ignore"):
        for case in CASES:
            case.write(sources, native)
    return module_mount(sources, "--layout", "files").path, native


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request: pytest.FixtureRequest, folders: tuple[Path, Path]) -> Read:
    """What one program shows of all files."""
    mounted, native = folders
    files = [native / f"{case.name}.nc" for case in CASES]
    files += [file for case, source, unit in READ for file in files_of(case, source, unit, mounted)]
    return PROGRAMS[request.param](files)


def differences(shown: Shown, expected: Shown) -> list[str]:
    """Return what is missing and what is too much."""
    missing, more = expected.lines() - shown.lines(), shown.lines() - expected.lines()
    return [f"- {line[:200]}" for line in sorted(missing)] + [f"+ {line[:200]}" for line in sorted(more)]


@pytest.mark.parametrize(
    ("case", "source", "unit"),
    READ,
    ids=lambda value: value.name if isinstance(value, Case) else value,
)
def test_p12_nc_is_what_netcdf_writes(case: Case, source: str, unit: str, program: Read, folders: tuple[Path, Path]) -> None:
    mounted, native = folders
    native_groups = program[native / f"{case.name}.nc"]
    assert not isinstance(native_groups, str), native_groups
    problems = []
    for file, array in files_of(case, source, unit, mounted).items():
        expected = native_groups
        if unit != "store":
            expected = {"": native_groups["g"] if array is None else native_groups[""].only(array)}
        found = program[file]
        if isinstance(found, str):
            problems.append(f"{file.name}: {found}")
        elif found.keys() != expected.keys():
            problems.append(f"{file.name}: groups {sorted(found)}, expected {sorted(expected)}")
        else:
            problems += [
                f"{file.name}/{path} {line}" for path in expected for line in differences(found[path], expected[path])
            ]
    assert not problems, "\n".join(problems)
