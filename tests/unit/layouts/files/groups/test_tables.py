"""`GROUP.csv`, `GROUP.json` and the first lines of tables, compared with what pandas and the writers say."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray
import zarr
from tables_read import files_of
from tree_walker import read_file

from fsbridge.errors import CorruptData, NotFound, Stale


def frame(data: bytes) -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(data))


@pytest.fixture
def weather(tmp_path: Path) -> Path:
    values = {
        "temp": ("time", np.array([1.5, 2.5, 3.5])),
        "rain": ("time", np.array([1, 2, 3])),
        "grid": (("time", "x"), np.arange(6.0).reshape(3, 2)),
    }
    data = xarray.Dataset(values, coords={"time": [10, 20, 30], "x": [0.5, 1.5]})
    data.to_zarr(tmp_path / "weather.zarr", zarr_format=2)
    return tmp_path / "weather.zarr"


def test_p12_tables_have_names_and_coordinates(weather: Path) -> None:
    with files_of(weather) as root:
        assert read_file(root, "temp.csv") == b"time,temp\n10,1.5\n20,2.5\n30,3.5\n"
        assert read_file(root, "temp[1:3].csv") == b"time,temp\n20,2.5\n30,3.5\n"
        assert read_file(root, "grid.csv") == b"time,x=0.5,x=1.5\n10,0.0,1.0\n20,2.0,3.0\n30,4.0,5.0\n"
        assert read_file(root, "time.csv") == b"time\n10\n20\n30\n"


def test_p12_arrays_of_one_dimension_are_one_table(weather: Path) -> None:
    with files_of(weather) as root:
        table = frame(read_file(root, "weather.csv")).set_index("time")
    expected = xarray.open_zarr(weather)[["temp", "rain"]].to_dataframe()
    pd.testing.assert_frame_equal(table[["temp", "rain"]], expected[["temp", "rain"]])


@pytest.mark.parametrize("version", [2, 3, None], ids=["zarr2", "zarr3", "netcdf"])
def test_p12_missing_elements_are_empty_cells(version: Literal[2, 3] | None, tmp_path: Path) -> None:
    """Markers of missing elements were data to readers of `.csv`; packed numbers are as they are stored."""
    numbers = {
        "temp": ("time", np.array([1.5, np.nan, 0.0]), {}, {"dtype": "f4", "_FillValue": 1e20}),
        "depth": ("time", np.array([np.nan, 2.5, 0.0]), {}, {"dtype": "f8"}),  # xarray's own marker is NaN
        "rain": ("time", np.array([1.5, np.nan, 2.0]), {}, {"dtype": "i2", "_FillValue": -99, "scale_factor": 0.5}),
        "old": ("time", np.array([7, 8, -1]), {"missing_value": -1}, {"dtype": "i4"}),
        "count": ("time", np.array([0, 8, 9], "i4"), {}, {}),
        "grid": (("time", "x"), np.array([[1.0, np.nan]] * 3), {}, {"dtype": "i2", "_FillValue": -1}),
    }
    data = xarray.Dataset(numbers, coords={"time": [10, 20, 30]})
    place = tmp_path / f"s.{'zarr' if version else 'nc'}"
    if version is None:
        data.to_netcdf(place, engine="netcdf4")
    else:
        data.to_zarr(place, zarr_format=version, consolidated=False)
    with files_of(place) as root:
        table = frame(read_file(root, "s.csv")).set_index("time")
        alone = frame(read_file(root, "temp.csv")).set_index("time")
        assert read_file(root, "grid.csv") == b"time,c0,c1\n" + b"".join(b"%d,1,\n" % time for time in (10, 20, 30))
    masked = xarray.open_dataset(place) if version is None else xarray.open_zarr(place, consolidated=False)
    names = ["temp", "depth", "old", "count"]
    pd.testing.assert_frame_equal(table[names], masked[names].to_dataframe()[names], check_dtype=False)
    assert table["rain"].tolist()[::2] == [3, 4]
    assert np.isnan(table["rain"].tolist()[1])
    pd.testing.assert_series_equal(alone["temp"], table["temp"])


@pytest.mark.parametrize(("dtype", "marker", "cell"), [("f4", 1e20, "NaN"), ("f8", np.nan, "NaN"), ("i4", -1, '""')])
def test_p12_a_table_of_one_column_keeps_its_rows(dtype: str, marker: float, cell: str, tmp_path: Path) -> None:
    """An empty line is no row to readers, and one of quotes makes a column of texts to polars."""
    group = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=3)
    array = group.create_array("a", shape=(3,), dtype=dtype, attributes={"missing_value": [marker]})
    array[:] = np.array([3, marker, 5], dtype)
    with files_of(tmp_path / "s.zarr") as root:
        text = read_file(root, "a.csv")
    assert text.decode().splitlines()[2] == cell
    np.testing.assert_array_equal(frame(text)["a"], [3, np.nan, 5])


def test_p12_zeros_are_no_missing_elements_because_zarr_2_fills_with_them(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=2)
    array = group.create_array("a", shape=(3,), dtype="i4", fill_value=0)
    array[:] = [0, 1, 2]
    array.attrs["_ARRAY_DIMENSIONS"] = ["x"]
    with files_of(tmp_path / "s.zarr") as root:
        assert read_file(root, "a.csv") == b"a\n0\n1\n2\n"


def test_p9_a_table_shows_coordinates_that_have_changed(weather: Path) -> None:
    with files_of(weather) as root:
        assert read_file(root, "temp.csv").splitlines()[1] == b"10,1.5"
        zarr.open_array(weather / "time", mode="r+")[:] = [11, 21, 31]
        assert read_file(root, "temp.csv").splitlines()[1] == b"11,1.5"
        table = root.lookup(b"weather.csv")
        zarr.open_array(weather / "rain", mode="r+").resize((4,))
        with pytest.raises((Stale, NotFound)):
            table.open()


def nwb_table(path: Path) -> Path:
    """A DynamicTable as hdmf-common 1.8 stores it: `colnames` in order, an `id`, and a ragged column with its index."""
    with h5py.File(path / "t.nwb", "w") as file:
        group = file.create_group("trials")
        group.attrs["colnames"] = np.array(["start", "tags", "stim"], dtype=object)
        group["id"] = np.arange(3)
        group["start"] = [0.0, 1.0, 2.0]
        group["stim"] = np.array(["a", "b,c", "d"], dtype=object)
        group["tags"] = np.array(["x", "y", "z"], dtype=object)
        group["tags_index"] = np.array([0, 1, 3], "u1")
    return path / "t.nwb"


def test_p12_a_table_of_nwb_has_its_columns_in_order(tmp_path: Path) -> None:
    with files_of(nwb_table(tmp_path), "npy", "csv") as root:
        assert b"trials.csv" in {entry.name for batch in root.entries() for entry in batch}
        rows = list(csv.reader(io.StringIO(read_file(root, "trials.csv").decode())))
    assert rows == [
        ["id", "start", "tags", "stim"],
        ["0", "0.0", "[]", "a"],
        ["1", "1.0", '["x"]', "b,c"],
        ["2", "2.0", '["y", "z"]', "d"],
    ]


def test_p3_a_ragged_column_with_a_wrong_index_is_damage(tmp_path: Path) -> None:
    path = nwb_table(tmp_path)
    with h5py.File(path, "r+") as file:
        file["trials/tags_index"][:] = [0, 3, 1]
    with files_of(path) as root, pytest.raises(CorruptData, match="tags_index"):
        read_file(root, "trials.csv")


def test_p12_a_frame_of_anndata_has_its_categories(tmp_path: Path) -> None:
    """AnnData 0.10 stores them so: a code of -1 is a missing value, and so is a value with a true mask."""
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        group = file.create_group("obs")
        group.attrs.update({"_index": "cell", "encoding-type": "dataframe"})
        group.attrs["column-order"] = np.array(["kind", "n"], dtype=object)
        group["cell"] = np.array(["k1", "k2", "k3"], dtype=object)
        kind = group.create_group("kind")
        kind.attrs["encoding-type"] = "categorical"
        kind["codes"], kind["categories"] = np.array([1, -1, 0], "i1"), np.array(["u", "v"], dtype=object)
        number = group.create_group("n")
        number.attrs["encoding-type"] = "nullable-integer"
        number["values"], number["mask"] = np.array([5, 6, 7]), np.array([False, True, False])
    with files_of(tmp_path / "a.h5ad") as root:
        assert read_file(root, "obs.csv") == b"cell,kind,n\nk1,v,5\nk2,,\nk3,u,7\n"


def test_p3_a_column_that_a_table_cannot_hold_is_left_out_with_a_sentence(tmp_path: Path) -> None:
    path = nwb_table(tmp_path)
    with h5py.File(path, "r+") as file:
        del file["trials/stim"]
        file["trials/stim"] = np.zeros((3, 2, 2))
        file["trials/tags_index_index"] = np.array([1, 2, 3], "u1")
    with files_of(path) as root:
        assert read_file(root, "trials.csv") == b"id,start\n0,0.0\n1,1.0\n2,2.0\n"
        said = json.loads(read_file(root, "trials.json"))["table"]
    assert said["columns"] == ["id", "start"]
    assert said["left_out"]["stim"].endswith("trials/stim: the column has 3 dimensions; read it by itself")
    assert said["left_out"]["tags"].endswith("trials/tags: the column has lists of lists; read it by itself")


def test_p3_a_table_without_any_column_that_it_can_hold_is_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "t.nwb", "w") as file:
        group = file.create_group("trials")
        group.attrs["colnames"] = np.array(["stim"], dtype=object)
        group["id"], group["stim"] = np.arange(3), np.zeros((3, 2, 2))
    with files_of(tmp_path / "t.nwb") as root:
        with pytest.raises(NotFound, match=r"trials/stim: the column has 3 dimensions"):
            root.lookup(b"trials.csv")
        assert "3 dimensions" in json.loads(read_file(root, "trials.json"))["table"]["not_possible"]


def test_p12_attributes_of_groups_are_documents(tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", attributes={"lab": "µ", "odd": float("nan")})
    root.create_group("sub", attributes={"a": [1, 2]}).create_array("v", shape=(2,), dtype="i4")
    with files_of(tmp_path / "s.zarr") as tree:
        names = {entry.name for batch in tree.entries() for entry in batch}
        assert names == {b"sub", b"sub.json", b"store.json"}
        assert json.loads(read_file(tree, "store.json"))["attributes"] == {"lab": "µ", "odd": "NaN"}
        said = json.loads(read_file(tree, "sub.json"))
        assert said == {"name": "sub", "path": "/sub", "kind": "group", "format": "zarr3", "attributes": {"a": [1, 2]}}
