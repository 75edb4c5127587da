"""Tables say what elements mean: dates, names, lists, labels and times, compared with xarray, pandas and numpy.

Each case is written by the field's own writer in every format that has it, because siblings differ.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pandas as pd
import pytest
import xarray
import zarr
from tables_read import files_of, frame, lines
from tree_walker import read_file

from fsbridge.errors import FsbridgeError

KINDS = ["netcdf", "zarr2", "zarr3"]


def write(data: xarray.Dataset, kind: str, place: Path) -> tuple[Path, xarray.Dataset]:
    """Write a dataset; return the store, and what xarray reads from it."""
    path = place / f"s.{'nc' if kind == 'netcdf' else 'zarr'}"
    if kind == "netcdf":
        data.to_netcdf(path, engine="netcdf4")
        return path, xarray.open_dataset(path).load()
    data.to_zarr(path, zarr_format=2 if kind == "zarr2" else 3, consolidated=False)
    return path, xarray.open_zarr(path, consolidated=False).load()


TIMES = {
    "days": pd.date_range("2000-01-01", periods=4),
    "hours": pd.date_range("1999-12-31T23:00", periods=4, freq="h"),
    "uneven": pd.DatetimeIndex(["2000-01-01T00:30", "2000-01-02T11:15:01", "2000-03-01", "2001-01-01"]),
    "fractions": pd.date_range("2000-01-01", periods=4, freq="125ms"),
    "early": pd.date_range("1700-01-01", periods=4),
    "one": pd.DatetimeIndex(["2000-01-01"]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", TIMES)
@pytest.mark.parametrize("spelled", [None, "hours since 1900-01-01 00:00:0.0", "days since 0001-01-01"])
def test_p12_times_are_the_dates_that_xarray_reads(case: str, kind: str, spelled: str | None, tmp_path: Path) -> None:
    times = TIMES[case]
    data = xarray.Dataset(
        {
            "tas": (("time", "lat"), np.arange(3.0 * len(times)).reshape(-1, 3)),
            "rain": ("time", np.arange(len(times))),
            "when": ("time", times + pd.Timedelta("1D")),
        },
        coords={"time": times, "lat": [10.0, 20.0, 30.5]},
    )
    if spelled is not None:
        data["time"].encoding = {"units": spelled, "dtype": "f8", "calendar": "proleptic_gregorian"}
    path, read = write(data, kind, tmp_path)
    index = read.indexes["time"].astype("M8[us]").rename("time")
    tables = {name: frame(path, f"{name}.csv", parse_dates=["time"]) for name in ("tas", "rain", "time", "s")}
    for name, table in tables.items():
        found = pd.DatetimeIndex(table["time"]).astype("M8[us]")
        assert np.abs(found - index).max() < pd.Timedelta("30us" if spelled else "1us"), name
    assert list(tables["tas"].columns) == ["time", "lat=10.0", "lat=20.0", "lat=30.5"]
    np.testing.assert_array_equal(tables["tas"].iloc[:, 1:], read["tas"])
    assert list(tables["rain"].columns) == ["time", "rain"]
    assert list(tables["time"].columns) == ["time"]
    assert (
        pd.to_datetime(tables["s"]["when"]).to_numpy().astype("M8[us]") == read["when"].to_numpy().astype("M8[us]")
    ).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("calendar", ["noleap", "360_day", "julian", "all_leap"])
def test_dates_of_other_calendars_are_numbers_with_their_unit(calendar: str, kind: str, tmp_path: Path) -> None:
    times = xarray.date_range("2000-02-27", periods=4, calendar=calendar, use_cftime=True)
    data = xarray.Dataset({"tas": ("time", np.arange(4.0)), "rain": ("time", np.arange(4))}, coords={"time": times})
    path, _ = write(data, kind, tmp_path)
    options: dict[str, Any] = {} if kind == "netcdf" else {"engine": "zarr", "consolidated": False}
    raw = xarray.open_dataset(path, decode_times=False, **options)
    name = f"time ({raw['time'].attrs['units']}, {calendar})"
    for file in ("tas", "s", "time"):
        table = frame(path, f"{file}.csv")
        assert table.columns[0] == name
        np.testing.assert_array_equal(table[name], raw["time"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("calendar", ["standard", "proleptic_gregorian", "noleap"])
@pytest.mark.parametrize("word", ["bounds", "climatology"])
@pytest.mark.parametrize("scalar", [False, True])
def test_p12_bounds_of_times_are_dates_as_the_times_are(
    scalar: bool, word: str, calendar: str, kind: str, tmp_path: Path
) -> None:
    edges = np.array([[0.0, 31.0], [31.0, 60.0], [60.0, 90.5]])
    units, rank = {"units": "days since 2000-01-01", "calendar": calendar}, slice(0, 1) if scalar else slice(None)
    dimensions = ("bnds",) if scalar else ("time", "bnds")
    times = ((), 15.0) if scalar else ("time", edges.mean(1))
    data = xarray.Dataset(
        {
            "time_bnds": (dimensions, edges[0] if scalar else edges),
            "other_bnd": (dimensions, edges[0] if scalar else edges),
        },
        coords={"time": (*times, {**units, word: "time_bnds"})},
    )
    path, _ = write(data, kind, tmp_path)
    options: Any = {} if kind == "netcdf" else {"engine": "zarr", "consolidated": False}
    raw = xarray.open_dataset(path, decode_times=False, **options)
    raw["time"].attrs["bounds"] = raw["time"].attrs.get(word)  # xarray knows the bounds of climatology by no word
    wanted = xarray.decode_cf(raw)["time_bnds"].to_numpy().reshape(-1, 2)[rank]
    table, other = frame(path, "time_bnds.csv"), frame(path, "other_bnd.csv")
    own = table.to_numpy().T if scalar else table.iloc[:, 1:].to_numpy()
    if calendar == "noleap":
        assert all(name.endswith("(days since 2000-01-01, noleap)") for name in table.columns)
        np.testing.assert_array_equal(own, edges[rank])
    else:
        assert (own.astype("M8[us]") == wanted.astype("M8[us]")).all()
    assert (other.to_numpy().T if scalar else other[["c0", "c1"]].to_numpy()).tolist() == edges[rank].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_p12_missing_dates_are_empty(kind: str, tmp_path: Path) -> None:
    moments = np.array(["2000-01-01T12", "NaT", "2000-01-03T18"], "M8[ns]")
    data = xarray.Dataset({"when": ("x", moments), "n": ("x", np.arange(3))})
    path, read = write(data, kind, tmp_path)
    found = pd.to_datetime(frame(path, "s.csv")["when"])
    assert found.to_numpy().astype("M8[s]").tolist() == read["when"].to_numpy().astype("M8[s]").tolist()


@pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_p12_booleans_are_logical_and_labels_are_texts(kind: str, tmp_path: Path) -> None:
    data = xarray.Dataset(
        {"ok": ("name", np.array([True, False, True])), "grid": (("name", "band"), np.arange(6).reshape(3, 2))},
        coords={"name": ["a", "b,c", "é"], "band": ["red", "blue"]},
    )
    path, read = write(data, kind, tmp_path)
    table, grid = frame(path, "ok.csv"), frame(path, "grid.csv")
    assert table["ok"].dtype == np.bool_
    assert table["ok"].tolist() == read["ok"].to_numpy().astype(bool).tolist()
    assert table["name"].tolist() == grid["name"].tolist() == read["name"].to_numpy().tolist()
    assert list(grid.columns) == ["name", "red", "blue"]
    assert frame(path, "ok[1:].csv")["name"].tolist() == ["b,c", "é"]
    assert b"TRUE" in "\n".join(lines(path, "ok.csv")).encode(), "R reads TRUE and FALSE in any version"


def test_p12_booleans_of_hdf5_and_anndata_are_logical_or_empty(tmp_path: Path) -> None:
    path, truth = tmp_path / "s.h5", np.array([True, False, True])
    with h5py.File(path, "w") as file:
        obs = file.create_group("obs")
        obs.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "index"})
        obs.attrs["column-order"] = np.array(["own", "nullable", "odd", "field"], h5py.string_dtype())
        obs["index"], obs["own"] = ["a", "b", "c"], truth
        nullable = obs.create_group("nullable")
        nullable.attrs["encoding-type"] = "nullable-boolean"
        nullable["values"], nullable["mask"] = truth, [False, False, True]
        odd = h5py.enum_dtype({"False": 0, "True": 1}, basetype="u1")
        obs.create_dataset("odd", data=truth.astype("u1"), dtype=odd)
        obs["field"] = np.array([(each, 1) for each in truth], [("ok", "?"), ("n", "i4")])
        file["matrix"] = np.array([truth, ~truth])
    table = frame(path, "obs.csv")
    assert lines(path, "obs.csv") == [
        "index,own,nullable,odd,field.ok,field.n",
        "a,TRUE,TRUE,TRUE,TRUE,1",
        "b,FALSE,FALSE,FALSE,FALSE,1",
        "c,TRUE,,TRUE,TRUE,1",
    ]
    assert all(table[name].tolist() == truth.tolist() for name in ("own", "odd", "field.ok"))
    assert table["nullable"].astype("boolean").tolist() == [True, False, pd.NA]
    assert frame(path, "matrix.csv").dtypes.tolist() == [np.dtype(bool)] * 3
    if (r := shutil.which("Rscript")) is not None:
        (tmp_path / "t.csv").write_text("\n".join(lines(path, "obs.csv")))
        code = "d <- read.csv(commandArgs(TRUE)); cat(sapply(d, class)); cat('', is.na(d$nullable))"
        told = subprocess.run([r, "-e", code, tmp_path / "t.csv"], capture_output=True, text=True, check=True).stdout
        assert told.split() == ["character", *["logical"] * 4, "integer", "FALSE", "FALSE", "TRUE"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("matrix", np.arange(6.0).reshape(2, 3)),
        ("whole", np.arange(6).reshape(3, 2)),
        ("7", np.arange(3)),
        ("1e3", np.arange(3.0)),
        ("nan", np.arange(3)),
    ],
)
def test_first_lines_are_never_rows_of_numbers(name: str, values: Any, tmp_path: Path) -> None:
    zarr.open_group(tmp_path / "s.zarr", mode="w").create_array(name, data=values)
    with files_of(tmp_path / "s.zarr") as root:
        text = read_file(root, f"{name}.csv").decode()
    with pytest.raises(ValueError, match="could not convert"):
        np.loadtxt(io.StringIO(text), delimiter=",")
    np.testing.assert_array_equal(np.loadtxt(io.StringIO(text), delimiter=",", skiprows=1), values)
    columns = [f"c{i}" for i in range(values.shape[1])] if values.ndim == 2 else [f"c{name}"]
    assert list(pd.read_csv(io.StringIO(text)).columns) == columns


def test_p12_types_of_netcdf_are_names_lists_texts_and_no_padding(tmp_path: Path) -> None:
    path, fields = tmp_path / "s.nc", np.dtype([("lat", "f4"), ("a", "i1"), ("b", "f8")], align=True)
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("station", 3)
        file.createDimension("string4", 4)
        names = file.createVariable("name", "S1", ("station", "string4"))
        names[:] = netCDF4.stringtochar(np.array(["ab", "cdef", ""], "S4"))
        file.createVariable("temp", "f8", ("station",))[:] = [1, 2, 3]
        rows = np.zeros(3, fields)
        rows["lat"], rows["b"] = [1, 2, 3], 5
        file.createVariable("place", file.createCompoundType(fields, "place_t"), ("station",))[:] = rows
        lists = file.createVariable("lists", file.createVLType(np.int32, "list_t"), ("station",))
        for i, items in enumerate(([1, -2, 3], [], [2**31 - 1])):
            lists[i] = np.array(items, "i4")
        colors = file.createEnumType(np.uint8, "color_t", {"NONE": 9, "RED": 0, "GREEN": 1, "BLUE": 2})
        file.createVariable("color", colors, ("station",), fill_value=9)[:] = [2, 0, 1]
    table = frame(path, "s.csv", keep_default_na=False)
    assert table["name"].tolist() == xarray.open_dataset(path)["name"].to_numpy().astype(str).tolist() == ["ab", "cdef", ""]
    assert frame(path, "name.csv", keep_default_na=False, skip_blank_lines=False)["name"].tolist() == ["ab", "cdef", ""]
    assert [json.loads(cell) for cell in table["lists"]] == [[1, -2, 3], [], [2**31 - 1]]
    assert table["color"].tolist() == frame(path, "color.csv")["color"].tolist() == ["BLUE", "RED", "GREEN"]
    assert [column for column in table.columns if column.startswith("place")] == ["place.lat", "place.a", "place.b"]
    assert list(frame(path, "place.csv").columns) == ["lat", "a", "b"]
    assert table["temp"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("region", ["", "[1:]"])
def test_p12_gaps_of_compounds_are_in_no_file(region: str, tmp_path: Path) -> None:
    pair = np.dtype([("p", "i1"), ("q", "i4")], align=True)
    rows = np.zeros(3, np.dtype([("a", "i1"), ("b", "f8"), ("one", pair), ("two", pair, (2,)), ("_gap0", "V2")], align=True))
    rows["a"], rows["b"], rows["one"]["q"], rows["two"]["p"] = [1, 2, 3], [0.5, 1.5, 2.5], 7, [[1, 2], [3, 4], [5, 6]]
    rows["_gap0"] = np.void(b"xy")
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["t"] = rows
    saved = io.BytesIO()
    np.save(saved, rows)
    rows = np.load(io.BytesIO(saved.getvalue()))  # its type is no longer marked as aligned
    shown = rows[1:] if region else rows
    with files_of(tmp_path / "s.h5") as root:
        files = {suffix: read_file(root, f"t{region}.{suffix}") for suffix in ("npy", "h5", "nc", "raw")}
        (tmp_path / f"t{region}.raw").write_bytes(files["raw"])
        described, page = json.loads(read_file(root, "t.json")), read_file(root, "index.html").decode()
    loaded = np.load(io.BytesIO(files["npy"]))
    assert loaded.dtype == rows.dtype
    assert repr(loaded.tolist()) == repr(shown.tolist())
    for suffix in ("h5", "nc"):
        with h5py.File(io.BytesIO(files[suffix])) as file:
            dataset = file["t"]
            assert dataset.dtype == rows.dtype, suffix
            assert repr(dataset[...].tolist()) == repr(shown.tolist()), suffix
    if not region:
        line = described["raw"]["python"].replace("t.raw", str(tmp_path / "t.raw"))
        mapped = eval(line, {"np": np})
        assert mapped.dtype == rows.dtype
        assert repr(mapped.tolist()) == repr(rows.tolist())
    assert "_gap1" not in page + json.dumps(described)
    header = "a,b,one.p,one.q,two.0.p,two.0.q,two.1.p,two.1.q,_gap0"
    table = lines(tmp_path / "s.h5", f"t{region}.csv")
    assert table[0] == header
    assert table[-1].startswith("3,2.5,0,7,5,0,6,0,")


def test_p12_gaps_that_zarr_python_2_wrote_are_no_columns(tmp_path: Path) -> None:
    """It spelled a type as numpy's `descr` does, in which fields without a name are gaps."""
    rows = np.zeros(
        2, np.dtype([("a", "i1"), ("b", "f8"), ("c", np.dtype([("p", "i1"), ("q", "i4")], align=True))], align=True)
    )
    rows["b"], rows["c"]["q"] = [1, 2], [3, 4]
    (tmp_path / "s.zarr/t").mkdir(parents=True)
    (tmp_path / "s.zarr/.zgroup").write_text('{"zarr_format": 2}')
    document = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": rows.dtype.descr, "compressor": None}
    document |= {"order": "C", "filters": None, "fill_value": None}
    (tmp_path / "s.zarr/t/.zarray").write_text(json.dumps(document))
    (tmp_path / "s.zarr/t/0").write_bytes(rows.tobytes())
    assert lines(tmp_path / "s.zarr", "t.csv") == ["a,b,c.p,c.q", "0,1.0,0,3", "0,2.0,0,4"]
    with files_of(tmp_path / "s.zarr") as root:
        loaded = np.load(io.BytesIO(read_file(root, "t.npy")))
    assert loaded.dtype.names == ("a", "b", "c")
    assert loaded.tolist() == rows.tolist()


@pytest.mark.parametrize("base", ["<i4", ">u2", "<f8", "<f4", "|b1"])
def test_p12_lists_of_numbers_are_lists_and_never_raw_memory(base: str, tmp_path: Path) -> None:
    items = [np.array([1, 0, 3]).astype(base), np.array([]).astype(base), np.array([1]).astype(base)]
    with h5py.File(tmp_path / "s.h5", "w") as file:
        ragged = file.create_dataset("r", (3,), h5py.vlen_dtype(np.dtype(base)))
        for i, each in enumerate(items):
            ragged[i] = each
    wanted = [each.tolist() for each in items]
    assert [json.loads(cell) for cell in frame(tmp_path / "s.h5", "r.csv")["r"]] == wanted
    assert [json.loads(line) for line in lines(tmp_path / "s.h5", "r.txt")] == wanted


def test_p12_lists_that_numcodecs_wrote_are_lists(tmp_path: Path) -> None:
    import numcodecs

    items = np.empty(2, object)
    items[:] = [np.array([1, 2, 3], "<i4"), np.array([], "<i4")]
    (tmp_path / "s.zarr/r").mkdir(parents=True)
    document = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "|O", "compressor": None, "fill_value": None}
    document |= {"order": "C", "filters": [{"id": "vlen-array", "dtype": "<i4"}]}
    (tmp_path / "s.zarr/r/.zarray").write_text(json.dumps(document))
    (tmp_path / "s.zarr/r/0").write_bytes(numcodecs.VLenArray("<i4").encode(items))
    assert lines(tmp_path / "s.zarr", "r.csv") == ["r", '"[1, 2, 3]"', "[]"]


@pytest.mark.parametrize("spelled", ["|O", "no type", "V0", "[('a', 'O')]", "[" * 200, "<M8[s"])
def test_p3_lists_of_what_are_no_numbers_are_an_error(spelled: str, tmp_path: Path) -> None:
    (tmp_path / "s.zarr/r").mkdir(parents=True)
    document = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "compressor": None, "fill_value": None}
    document |= {"order": "C", "filters": [{"id": "vlen-array", "dtype": spelled}]}
    (tmp_path / "s.zarr/r/.zarray").write_text(json.dumps(document))
    with files_of(tmp_path / "s.zarr") as root, pytest.raises(FsbridgeError):
        read_file(root, "r.csv")


def test_p12_enumerations_in_compounds_have_names(tmp_path: Path) -> None:
    kind = h5py.enum_dtype({"A": 1, "B": 5}, basetype="i2")
    rows = np.zeros(2, [("n", "i4"), ("kind", kind), ("deep", [("k", kind)])])
    rows["kind"], rows["deep"]["k"] = [5, 1], [1, 7]
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["t"] = rows
    assert lines(tmp_path / "s.h5", "t.csv") == ["n,kind,deep.k", "0,B,A", "0,A,7"]


def nwb(path: Path) -> Path:
    """Series and a table as pynwb 4.2 writes them: uneven and even timestamps, a rate, and an EnumData."""
    text = h5py.string_dtype()
    with h5py.File(path / "s.nwb", "w") as file:
        for name, times in (("uneven", 100 + np.array([0.0, 0.5, 4.0, 10.0])), ("even", np.arange(4) * 0.25 + 2)):
            series = file.create_group(name)
            series.attrs["neurodata_type"] = "TimeSeries"
            series["data"], series["timestamps"] = np.arange(8.0).reshape(4, 2), times
            series["timestamps"].attrs.update({"interval": 1, "unit": "seconds"})
        rate = file.create_group("rate")
        rate.attrs["neurodata_type"] = "TimeSeries"
        rate["data"], rate["starting_time"] = np.arange(5), 2.5
        rate["starting_time"].attrs.update({"rate": 10.0, "unit": "seconds"})
        words = file.create_group("words")
        words.attrs["neurodata_type"] = "TimeSeries"
        words.create_dataset("data", data=np.array(["lick", "cue"], object), dtype=text)
        words["timestamps"] = [1.5, 9.0]
        table = file.create_group("table")
        table.attrs["colnames"] = np.array(["c", "x", "r"], dtype=object)
        table["id"], table["x"], table["c"] = np.arange(4), [1.0, 2.0, 3.0, 4.0], np.array([1, 0, 2, 1], "u1")
        table.create_dataset("c_elements", data=np.array(["A", "B", "C"], object), dtype=text)
        table["c"].attrs.update({"neurodata_type": "EnumData", "elements": table["c_elements"].ref})
        table["r"], table["r_index"] = np.array([0, 1, 1], "u1"), np.array([1, 1, 2, 3], "u1")
        table["r"].attrs.update({"neurodata_type": "EnumData", "elements": table["c_elements"].ref})
    return path / "s.nwb"


def test_p12_series_of_nwb_have_their_times(tmp_path: Path) -> None:
    path = nwb(tmp_path)
    for name in ("uneven", "even"):
        table = frame(path, f"{name}/data.csv")
        with h5py.File(path) as file:
            np.testing.assert_array_equal(table["time (s)"], file[f"{name}/timestamps"])
        assert list(table.columns) == ["time (s)", "c0", "c1"]
    np.testing.assert_allclose(frame(path, "rate/data.csv")["time (s)"], 2.5 + np.arange(5) / 10, rtol=1e-15)
    np.testing.assert_allclose(frame(path, "rate/data[1:4:2].csv")["time (s)"], [2.6, 2.8], rtol=1e-15)
    assert lines(path, "words/data.csv") == ["time (s),data", "1.5,lick", "9.0,cue"]


def test_uneven_times_are_the_axis_of_a_preview(tmp_path: Path) -> None:
    with files_of(nwb(tmp_path)) as root:
        drawn = read_file(root, "uneven/data.preview.svg").decode()
    texts = re.findall(r">([^<>]*)</text>", drawn)
    assert "time (s)" in texts
    assert {"100", "102", "104", "106", "108", "110"} <= set(texts)


@pytest.mark.parametrize("region", ["", "[1000:]", "[::2]"])
def test_long_uneven_times_are_the_axis_of_a_preview(region: str, tmp_path: Path) -> None:
    """Coordinates of over 65,536 elements are read for a picture only: the axis was a count of elements."""
    count = 100_000
    with h5py.File(tmp_path / "s.nwb", "w") as file:
        series = file.create_group("long")
        series.attrs["neurodata_type"] = "TimeSeries"
        series["data"] = np.arange(count)
        series["timestamps"] = 100 + 10 * (np.arange(count) / (count - 1)) ** 2
        series["timestamps"].attrs["unit"] = "seconds"
    with files_of(tmp_path / "s.nwb") as root:
        drawn = read_file(root, f"long/data{region}.preview.svg").decode()
    texts = re.findall(r">([^<>]*)</text>", drawn)
    assert "time (s)" in texts
    assert {"102", "104", "106", "108"} <= set(texts)
    assert "index" not in " ".join(texts)


def test_p12_words_of_nwb_are_words(tmp_path: Path) -> None:
    table = frame(nwb(tmp_path), "table.csv")
    assert table["c"].tolist() == ["B", "A", "C", "B"]
    assert lines(tmp_path / "s.nwb", "table/c.csv") == ["c", "B", "A", "C", "B"]
    assert table["r"].tolist() == ['["A"]', "[]", '["B"]', '["B"]']


@pytest.mark.parametrize("kind", ["hdf5", "zarr2"])
def test_p12_categories_of_any_age_are_words(kind: str, tmp_path: Path) -> None:
    """AnnData 0.7 has the words in another array, to which an attribute leads; and names of columns with a slash."""
    root: Any = (
        h5py.File(tmp_path / "s.h5ad", "w") if kind == "hdf5" else zarr.open_group(tmp_path / "s", mode="w", zarr_format=2)
    )
    obs = root.create_group("obs")
    obs.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.1.0", "_index": "index"})
    order = ["c", "g/x", "n"]
    obs.attrs["column-order"] = np.array(order, h5py.string_dtype()) if kind == "hdf5" else order
    for name, values in {"c": [1, -1, 0], "g/x": [10, 20, 30], "n": [1, 2, 3]}.items():
        obs.create_dataset(name, data=np.array(values, "i1")) if kind == "hdf5" else obs.create_array(
            name, data=np.array(values, "i1")
        )
    for name, words in {"index": ["v1", "v2", "v3"], "__categories/c": ["A", "B,b"]}.items():
        if kind == "hdf5":
            obs.create_dataset(name, data=np.array(words, object), dtype=h5py.string_dtype())
        else:
            obs.create_array(name, data=np.array(words, "<U3"))
    obs["c"].attrs["categories"] = obs["__categories/c"].ref if kind == "hdf5" else "__categories/c"
    if kind == "hdf5":
        root.close()
    path = tmp_path / ("s.h5ad" if kind == "hdf5" else "s")
    assert lines(path, "obs.csv") == ["index,c,g/x,n", 'v1,"B,b",10,1', "v2,,20,2", "v3,A,30,3"]
    assert lines(path, "obs/c.csv") == ["c", '"B,b"', '""', "A"], "the array by itself says the same"
    with files_of(path) as tree:
        assert json.loads(read_file(tree, "obs.json"))["table"] == {"columns": ["index", *order], "left_out": {}}


def old_anndata(path: Path, kind: str) -> Path:
    """Write what AnnData 0.6 wrote: frames are compounds, and the words of codes lie in `uns`, one word as a scalar."""
    root: Any = (
        h5py.File(path / "old.h5ad", "w") if kind == "hdf5" else zarr.open_group(path / "old", mode="w", zarr_format=2)
    )
    fields = [("index", "S2"), ("kind", "i1"), ("n", "i4"), ("one", "i1"), ("both", "i1"), ("x", "f4")]
    obs = np.array([(b"a", 1, 10, 0, 2, 0.5), (b"b", -1, 20, 0, 1, 1.5), (b"c", 0, 30, -1, 0, 2.5)], fields)
    var = np.array([(b"g", 1), (b"h", 0)], [("index", "S2"), ("both", "i1")])
    words: dict[str, Any] = {"uns/kind_categories": ["A", "B,b"], "uns/both_categories": ["u", "v"], "uns/n": [1, 2]}
    if kind == "hdf5":
        root["obs"], root["var"], root["X"] = obs, var, np.zeros((3, 2), "f4")
        for name, listed in words.items():
            root[name] = listed
        root["uns/one_categories"] = "only"
        root.close()
        return path / "old.h5ad"
    for name, table in {"obs": obs, "var": var}.items():
        root.create_array(name, data=table)
    for name, listed in words.items():
        root.create_array(name, data=np.array(listed))
    root.create_array("uns/one_categories", data=np.array(["only"]))
    return path / "old"


@pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("kind", ["hdf5", "zarr2"])
def test_p12_categories_before_anndata_0_7_are_words(kind: str, tmp_path: Path) -> None:
    """As anndata 0.12 reads it: a column has words if all of its codes have one, as obs and var share the names of these."""
    path = old_anndata(tmp_path, kind)
    assert lines(path, "obs.csv") == [
        "index,kind,n,one,both,x",
        'a,"B,b",10,only,2,0.5',
        "b,,20,only,1,1.5",
        "c,A,30,,0,2.5",
    ]
    assert lines(path, "obs[1:].csv") == ["index,kind,n,one,both,x", "b,,20,only,1,1.5", "c,A,30,,0,2.5"]
    assert lines(path, "var.csv") == ["index,both", "g,v", "h,u"]


def test_pages_say_the_first_and_the_last_date(tmp_path: Path) -> None:
    for number, (times, wanted) in enumerate(
        [
            (pd.date_range("2000-01-01", periods=366), "time: 2000-01-01 \u2026 2000-12-31, daily, proleptic_gregorian"),
            (TIMES["uneven"], "time: 2000-01-01T00:30 \u2026 2001-01-01, uneven, proleptic_gregorian"),
            (TIMES["one"], "time: 2000-01-01, proleptic_gregorian"),
        ]
    ):
        data = xarray.Dataset({"a": ("time", np.arange(len(times)))}, coords={"time": times})
        (tmp_path / str(number)).mkdir()
        path, _ = write(data, "zarr2", tmp_path / str(number))
        with files_of(path) as root:
            assert f">{wanted}<" in read_file(root, "index.html").decode()
