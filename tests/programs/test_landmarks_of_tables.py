"""Landmarks of tables and series: twenty elements with known dates, times, names and values, by readers of each file type.

`.csv` is read by pandas, and by R where it is installed; `.nc` by xarray; `.h5` by h5py. Each finds what the source says,
or the file does not say it. What holds is a table in `docs/meaning.md`, which is made from this test.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cftime
import h5py
import netCDF4
import numpy as np
import pandas as pd
import pytest
import xarray
import zarr
from tables_read import files_of
from tree_walker import read_file

DOCS = Path(__file__).parents[2] / "docs" / "meaning.md"
COUNT = 20
VALUES = np.arange(COUNT) * 3 + 1
CODES = np.arange(COUNT) % 3
WORDS = ["red", "green", "blue"]
NAMES = [f"site {i}" for i in range(COUNT)]
UNEVEN = 100 + np.cumsum(np.arange(COUNT) % 4 + 0.5)
EVERY = "csv nc h5"

Points = Sequence[tuple[Any, Any]]
"""What each element is called (its date, time or name; None if it is not called anything), and its value or name."""


@dataclass(frozen=True)
class Series:
    """An array of twenty elements. `write` writes a store; `array`: the path of the array in it; `said`: by which files.

    `codes`: the numbers that files have which do not say the names.
    """

    said: str
    write: Callable[[Path], Path]
    points: Points
    array: str = "a"
    codes: Sequence[Any] | None = None


def by_xarray(suffix: str, **coordinates: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (name, along), path = next(iter(coordinates.items())), folder / f"s{suffix}"
        data = xarray.Dataset({"a": (name, VALUES)}, coords={name: along})
        if suffix == ".nc":
            data.to_netcdf(path, engine="netcdf4")
        else:
            data.to_zarr(path, zarr_format=2, consolidated=False)
        return path

    return write


def nwb(folder: Path, rate: float | None = None) -> Path:
    with h5py.File(folder / "s.nwb", "w") as file:
        series = file.create_group("series")
        series.attrs["neurodata_type"] = "TimeSeries"
        series["data"] = VALUES
        if rate is None:
            series["timestamps"] = UNEVEN
            series["timestamps"].attrs.update({"interval": 1, "unit": "seconds"})
        else:
            series["starting_time"] = 2.5
            series["starting_time"].attrs.update({"rate": rate, "unit": "seconds"})
    return folder / "s.nwb"


def words_of_nwb(folder: Path, attribute: str = "neurodata_type") -> Path:
    with h5py.File(folder / "s.nwb", "w") as file:
        file["a"], file["a_elements"] = CODES.astype("u1"), WORDS
        file["a"].attrs.update({attribute: "EnumData", "elements": file["a_elements"].ref})
    return folder / "s.nwb"


def anndata(folder: Path) -> Path:
    root = zarr.open_group(folder / "s", mode="w", zarr_format=2)
    root.create_array("obs/a", data=CODES.astype("i1")).attrs.update({"categories": "__categories/a", "ordered": False})
    root.create_array("obs/__categories/a", data=np.array(WORDS))
    return folder / "s"


def enumeration(folder: Path) -> Path:
    kind = h5py.enum_dtype({word: number for number, word in enumerate(WORDS)}, basetype="u1")
    with h5py.File(folder / "s.h5", "w") as file:
        file.create_dataset("a", data=CODES.astype("u1"), dtype=kind)
    return folder / "s.h5"


def letters(folder: Path) -> Path:
    with netCDF4.Dataset(folder / "s.nc", "w") as file:
        file.createDimension("x", COUNT)
        file.createDimension("string7", 7)
        file.createVariable("a", "S1", ("x", "string7"))[:] = netCDF4.stringtochar(np.array(NAMES, "S7"))
    return folder / "s.nc"


def flags(folder: Path) -> Path:
    said = {"flag_values": np.arange(3, dtype="i1"), "flag_meanings": " ".join(WORDS)}
    xarray.Dataset({"a": ("x", CODES.astype("i1"), said)}).to_netcdf(folder / "s.nc", engine="netcdf4")
    return folder / "s.nc"


def truth(folder: Path) -> Path:
    xarray.Dataset({"a": ("x", CODES > 0)}).to_netcdf(folder / "s.nc", engine="netcdf4")
    return folder / "s.nc"


DATES = pd.date_range("1999-12-30T06:00", periods=COUNT, freq="6h")
OTHER = xarray.date_range("2000-02-27", periods=COUNT, calendar="noleap", use_cftime=True)
NAMED: Points = [(None, WORDS[code]) for code in CODES]


def spelled(dates: Sequence[Any]) -> list[str]:
    return [date.strftime("%Y-%m-%dT%H:%M:%S") for date in dates]


SOURCES = {
    "CF: dates": Series(EVERY, by_xarray(".nc", time=DATES), [*zip(spelled(DATES), VALUES, strict=True)]),
    "CF: dates in Zarr": Series(EVERY, by_xarray(".zarr", time=DATES), [*zip(spelled(DATES), VALUES, strict=True)]),
    "CF: dates of the calendar `noleap`": Series(
        EVERY, by_xarray(".nc", time=OTHER), [*zip(spelled(OTHER), VALUES, strict=True)]
    ),
    "xarray: coordinates that are texts": Series("csv nc", by_xarray(".nc", site=NAMES), [*zip(NAMES, VALUES, strict=True)]),
    "xarray: true and false": Series(EVERY, truth, [(None, bool(code)) for code in CODES], codes=[*(CODES > 0) * 1]),
    "CF: `flag_values`, `flag_meanings`": Series("nc h5", flags, NAMED, codes=[*CODES]),
    "netCDF: letters along a dimension": Series(EVERY, letters, [(None, name) for name in NAMES]),
    "HDF5: enumeration": Series("csv", enumeration, NAMED, codes=[*CODES]),
    "NWB: `timestamps`": Series("csv", nwb, [*zip(UNEVEN, VALUES, strict=True)], "series/data"),
    "NWB: `starting_time`, `rate`": Series(
        "csv h5", lambda folder: nwb(folder, 8.0), [*zip(2.5 + np.arange(COUNT) / 8, VALUES, strict=True)], "series/data"
    ),
    "NWB: `elements` of an `EnumData`": Series("csv", words_of_nwb, NAMED, codes=[*CODES]),
    "hdmf: `elements` of an `EnumData`": Series(
        "csv", lambda folder: words_of_nwb(folder, "data_type"), NAMED, codes=[*CODES]
    ),
    "AnnData: `categories`": Series("csv", anndata, NAMED, "obs/a", codes=[*CODES]),
}


def dated(numbers: Any, unit: str, calendar: str) -> list[str]:
    return spelled(cftime.num2date(np.asarray(numbers), unit, calendar))


def read_csv(data: bytes, _: str, __: Path) -> Points:
    table = pd.read_csv(io.BytesIO(data), keep_default_na=False)
    values = table.iloc[:, -1].tolist()
    if len(table.columns) == 1:
        return [(None, value) for value in values]
    title, first = table.columns[0], table.iloc[:, 0]
    if (unit := re.fullmatch(r"time \((.* since .*), (\w+)\)", title)) is not None:
        return [*zip(dated(first, unit[1], unit[2]), values, strict=True)]
    if title == "time":
        return [*zip(spelled(pd.to_datetime(first, format="ISO8601").tolist()), values, strict=True)]
    assert title in ("time (s)", "site")
    return [*zip(first.tolist(), values, strict=True)]


def read_nc(data: bytes, name: str, folder: Path) -> Points:
    (folder / "a.nc").write_bytes(data)
    with xarray.open_dataset(folder / "a.nc", decode_times=xarray.coders.CFDatetimeCoder(use_cftime=None)) as found:
        array = found[name].load()
    values = array.to_numpy()
    if "flag_values" in array.attrs:
        names = dict(zip(array.attrs["flag_values"].tolist(), array.attrs["flag_meanings"].split(), strict=True))
        return [(None, names[value]) for value in values.tolist()]
    values = values.astype(str) if values.dtype.kind in "SO" else values
    if not array.coords:
        return [(None, value) for value in values.tolist()]
    ((_, along),) = array.coords.items()
    labels: list[Any] = along.to_numpy().astype(str).tolist()
    if along.dtype.kind == "M" or "time" in along.name:
        labels = spelled(along.indexes[str(along.name)].tolist())
    return [*zip(labels, values.tolist(), strict=True)]


def read_h5(data: bytes, name: str, _: Path) -> Points:
    with h5py.File(io.BytesIO(data)) as file:
        dataset = file[name]
        values, said = dataset[...], dict(dataset.attrs)
        scales = [*dataset.dims[0].values()]
        along = None if not scales else (scales[0][...], dict(scales[0].attrs))
    if values.ndim == 2:
        values = np.ascontiguousarray(values).view(f"S{values.shape[1]}")[:, 0].astype(str)
    if "flag_values" in said:
        names = dict(zip(said["flag_values"].tolist(), said["flag_meanings"].split(), strict=True))
        return [(None, names[value]) for value in values.tolist()]
    if said.get("dtype") == "bool":
        values = values.astype(bool)
    if along is None or b"but not a netCDF variable" in bytes(along[1].get("NAME", b"")):
        return [(None, value) for value in values.tolist()]
    if along[1].get("units") == "s":
        return [*zip(along[0].tolist(), values.tolist(), strict=True)]
    if "units" in along[1]:
        return [*zip(dated(along[0], along[1]["units"], along[1]["calendar"]), values.tolist(), strict=True)]
    return [*zip([each.decode() for each in along[0].tolist()], values.tolist(), strict=True)]


READERS: dict[str, Callable[[bytes, str, Path], Points]] = {"csv": read_csv, "nc": read_nc, "h5": read_h5}


def made(source: Series, suffix: str, folder: Path) -> bytes:
    with files_of(source.write(folder)) as root:
        return read_file(root, f"{source.array}.{suffix}")


@pytest.mark.parametrize("suffix", READERS)
@pytest.mark.parametrize("name", SOURCES)
def test_p12_each_landmark_is_called_what_the_source_says(name: str, suffix: str, tmp_path: Path) -> None:
    source = SOURCES[name]
    found = READERS[suffix](made(source, suffix, tmp_path), source.array.rpartition("/")[2], tmp_path)
    labels: Sequence[Any] = [label for label, _ in source.points]
    values: Sequence[Any] = [value for _, value in source.points]
    if suffix not in source.said.split():
        labels, values = (None,) * COUNT, source.codes or values  # not said, and nothing else either
    assert [value for _, value in found] == [*values]
    for (label, _), wanted in zip(found, labels, strict=True):
        assert label == (pytest.approx(wanted) if isinstance(wanted, float) else wanted)


@pytest.mark.parametrize("name", SOURCES)
def test_r_reads_the_landmarks_of_tables(name: str, tmp_path: Path) -> None:
    source, program = SOURCES[name], shutil.which("Rscript")
    if program is None:
        return  # pandas has read the same table
    (tmp_path / "t.csv").write_bytes(made(source, "csv", tmp_path))
    code = 'd <- read.csv(commandArgs(TRUE), check.names=FALSE); cat(sapply(d, class), "\\n"); for (i in 1:nrow(d)) '
    code += 'cat(paste(sapply(d, function(x) if (is.numeric(x)) sprintf("%.17g", x[i]) else as.character(x[i])), '
    code += 'collapse="\\t"), "\\n", sep="")'
    told = subprocess.run([program, "-e", code, tmp_path / "t.csv"], capture_output=True, text=True, check=True).stdout
    kinds, *rows = told.splitlines()
    said, (label, value) = "csv" in source.said.split(), source.points[0]
    numeric = {"integer", "numeric"}
    kind = (
        numeric if isinstance(value, np.integer) or not said else {"logical"} if isinstance(value, bool) else {"character"}
    )
    assert kinds.split()[-1] in kind
    cells = [row.split("\t") for row in rows]
    values = [value for _, value in source.points] if said else source.codes
    assert [row[-1] for row in cells] == [
        str(each).upper() if isinstance(each, bool) else str(each) for each in values or ()
    ]
    assert len(cells[0]) == (1 if label is None else 2)
    if isinstance(label, float):
        assert [float(row[0]) for row in cells] == pytest.approx([label for label, _ in source.points])
    elif label in NAMES:
        assert [row[0] for row in cells] == NAMES


def table() -> str:
    """Return the table of `docs/meaning.md`."""
    rows = [["what the source has", *(f"`.{suffix}`" for suffix in READERS)], ["---"] * (len(READERS) + 1)]
    for name, source in SOURCES.items():
        rows.append([name, *("said" if suffix in source.said.split() else "not said" for suffix in READERS)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def test_the_page_has_the_table_of_this_test() -> None:
    assert table() in DOCS.read_text(), f"docs/meaning.md needs this table:\n{table()}"
