"""`.nc` is what netCDF-4's own writer would write: each generated data set, in each source, in two programs.

The file that `Dataset.to_netcdf` wrote of the same data set, read by the same program, says what must be shown. Not here:
dates and places as other programs understand them (`scripts/legacy-check`).
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import netcdf_readers
import numpy as np
import pytest
import xarray
from mounting import MountFunction
from netcdf_cases import CASES, NUMPY, Case, write_numpy
from netcdf_readers import Read, Shown
from zarr.errors import UnstableSpecificationWarning

READ = [(case, source, unit) for case in CASES for source in case.sources for unit in case.units]
PROGRAMS = {"ncdump": netcdf_readers.ncdump, "netCDF4": netcdf_readers.netcdf4}


def files_of(case: Case, source: str, unit: str, mounted: Path) -> dict[Path, str | None]:
    """The files of one unit. Of a single array, its name: of more than four arrays, every third is read."""
    store = mounted / f"{case.name}-{source}"
    if unit == "store":
        return {mounted / f"{store.name}.nc": None}
    if unit == "group":
        return {store / "g.nc": None}
    names = [str(name) for name in case.dataset.variables if not case.below or name in case.below]
    return {(store / "g" if case.below else store) / f"{name}.nc": name for name in names[:: 1 if len(names) < 5 else 3]}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, module_mount: MountFunction) -> tuple[Path, Path]:
    """Where the mount shows the sources, and where xarray's own files are."""
    sources, native = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("native")
    with warnings.catch_warnings(category=UnstableSpecificationWarning, action="ignore"):
        for case in CASES:
            case.write(sources, native)
        write_numpy(sources)
    mount = module_mount(sources, "--layout", "files")
    mount.allow("is left out of ")
    return mount.path, native


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request: pytest.FixtureRequest, folders: tuple[Path, Path]) -> Read:
    """What one program shows of all files."""
    mounted, native = folders
    files = [native / f"{case.name}.nc" for case in CASES]
    files += [file for case, source, unit in READ for file in files_of(case, source, unit, mounted)]
    files += [file for name in NUMPY for version in (2, 3) for file in numpy_files(mounted, name, version)]
    return PROGRAMS[request.param](files)


def numpy_files(mounted: Path, name: str, version: int) -> list[Path]:
    store = mounted / f"{name}-{version}.zarr"
    return [file for file in (mounted / f"{store.name}.nc", store / "v.nc") if file.exists()]


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


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", ["half", "complex"])
def test_p12_numbers_without_a_type_in_netcdf_are_equal_or_left_out_by_name(
    name: str, version: int, program: Read, folders: tuple[Path, Path]
) -> None:
    """They are shown as they are, or left out by name; what stands beside them is shown, and no program dies."""
    mounted, _ = folders
    whole, *alone = numpy_files(mounted, name, version)
    reasons = (mounted / f"{name}-{version}.zarr.json").read_text()
    for file in (whole, *alone):
        found = program[file]
        assert not isinstance(found, str), found
        shown = found[""]
        assert file is not whole or re.findall(r"\d+", shown.elements["w"]) == ["0", "1", "2"]
        if "v" in shown.variables:
            numbers = np.array(re.findall(r"[-+.\de]+", shown.elements["v"]), NUMPY[name].real.dtype)
            np.testing.assert_array_equal(numbers.view(NUMPY[name].dtype), NUMPY[name])
        else:
            assert re.search(rf'"left_out": .*"v: [^"]*{NUMPY[name].dtype.name}', reasons), reasons


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", ["instants", "spans"])
def test_p12_xarray_reads_dates_and_spans_of_numpy(
    name: str, version: int, program: Read, folders: tuple[Path, Path]
) -> None:
    for file in numpy_files(folders[0], name, version):
        assert not isinstance(program[file], str), program[file]
        with xarray.open_dataset(file, decode_timedelta=True) as dataset:
            np.testing.assert_array_equal(dataset["v"].values, NUMPY[name].astype(dataset["v"].dtype))
            assert dataset["v"].dtype.kind == NUMPY[name].dtype.kind
