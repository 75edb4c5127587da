"""Odd columns of tables of anndata and hdmf are left out or written whole. Not here: what elements mean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from tables_read import files_of, frame, lines
from tree_walker import read_file

PAIR = [("p", "i1"), ("q", "f4")]
ENDS = {"c_index": np.array([1, 3, 4], "u1")}
COMPOUNDS = "each row of the column has several compounds; read it by itself"
ODD: dict[str, tuple[dict[str, Any], str]] = {
    "lists of lists": (
        {"c": np.arange(5), "c_index": np.array([2, 3, 4, 5], "u1"), "c_index_index": np.array([1, 3, 4], "u1")},
        "the column has lists of lists; read it by itself",
    ),
    "three dimensions": ({"c": np.zeros((3, 2, 2))}, "the column has 3 dimensions; read it by itself"),
    "no dimension": ({"c": np.array(3.0)}, "the column has 0 dimensions; read it by itself"),
    "nothing in its rows": ({"c": np.zeros((3, 0))}, "the rows of the column have no elements"),
    "compounds in two dimensions": ({"c": np.zeros((3, 2), PAIR)}, COMPOUNDS),
    "lists of compounds": ({"c": np.zeros(4, PAIR), **ENDS}, COMPOUNDS),
    "lists in two dimensions": ({"c": np.zeros((4, 2)), **ENDS}, "the column has 2 dimensions; read it by itself"),
    "more rows": ({"c": np.arange(5)}, "the column has 5 rows, and the table 3"),
    "fewer rows": ({"c": np.arange(2)}, "the column has 2 rows, and the table 3"),
    "lists in more rows": (
        {"c": np.arange(5), "c_index": np.arange(5, dtype="u1")},
        "the column has 5 rows, and the table 3",
    ),
    "no array": ({}, "the group lists this column, but does not have it"),
}


def odd_table(path: Path, kind: str, convention: str, names: Sequence[str], members: dict[str, Any], rows: int = 3) -> Path:
    """Write a table `t` with the columns `names`, and "n" after them."""
    store = path / ("s.h5" if kind == "hdf5" else "s.zarr")
    root: Any = (
        h5py.File(store, "w")
        if kind == "hdf5"
        else zarr.open_group(store, mode="w", zarr_format=2 if kind == "zarr2" else 3)
    )
    group, words = root.create_group("t"), "colnames" if convention == "nwb" else "column-order"
    said = {"neurodata_type": "DynamicTable"} if convention == "nwb" else {"encoding-type": "dataframe", "_index": "id"}
    listed: Any = [*names, "n"]
    group.attrs.update({**said, words: np.array(listed, h5py.string_dtype()) if kind == "hdf5" else listed})
    for name, values in {"id": np.arange(rows), "n": np.arange(rows) * 10, **members}.items():
        group.create_dataset(name, data=values) if kind == "hdf5" else group.create_array(name, data=values)
    if kind == "hdf5":
        root.close()
    return store


@pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("convention", ["nwb", "anndata"])
@pytest.mark.parametrize("kind", ["hdf5", "zarr2", "zarr3"])
@pytest.mark.parametrize("case", ODD)
def test_p12_an_odd_column_is_left_out_and_the_table_stays(case: str, kind: str, convention: str, tmp_path: Path) -> None:
    members, reason = ODD[case]
    path = odd_table(tmp_path, kind, convention, ["c"], members)
    assert lines(path, "t.csv") == ["id,n", "0,0", "1,10", "2,20"]
    with files_of(path) as root:
        said = json.loads(read_file(root, "t.json"))["table"]
    assert said == {"columns": ["id", "n"], "left_out": {"c": f"/t/c: {reason}"}}


@pytest.mark.parametrize("convention", ["nwb", "anndata"])
@pytest.mark.parametrize("kind", ["hdf5", "zarr2", "zarr3"])
@pytest.mark.parametrize("name", ["a\nb", 'q"q', "x,y", "s/t", "é", "c.0", " ", "=1"])
def test_p12_columns_of_any_name_are_columns(name: str, kind: str, convention: str, tmp_path: Path) -> None:
    path = odd_table(tmp_path, kind, convention, [name, name], {name: np.arange(3)})
    table = frame(path, "t.csv")
    assert list(table.columns) == ["id", name, "n"]
    assert table[name].tolist() == [0, 1, 2]


@pytest.mark.parametrize("convention", ["nwb", "anndata"])
@pytest.mark.parametrize("kind", ["hdf5", "zarr2", "zarr3"])
def test_p12_a_column_that_is_called_like_an_index_is_a_column(kind: str, convention: str, tmp_path: Path) -> None:
    path = odd_table(tmp_path, kind, convention, ["c", "c_index"], {"c": np.arange(3), "c_index": np.array([7, 5, 6])})
    assert lines(path, "t.csv") == ["id,c,c_index,n", "0,0,7,0", "1,1,5,10", "2,2,6,20"]


@pytest.mark.parametrize("convention", ["nwb", "anndata"])
@pytest.mark.parametrize("kind", ["hdf5", "zarr2", "zarr3"])
def test_p12_a_table_without_rows_has_its_header(kind: str, convention: str, tmp_path: Path) -> None:
    assert lines(odd_table(tmp_path, kind, convention, ["c"], {"c": np.zeros(0)}, rows=0), "t.csv") == ["id,c,n"]


@pytest.mark.parametrize("convention", ["nwb", "anndata"])
def test_p12_columns_of_references_compounds_and_lists_say_all(convention: str, tmp_path: Path) -> None:
    names = ["refs", "pair", "lists", "far"]
    path = odd_table(tmp_path, "hdf5", convention, names, {"pair": np.zeros(3, [("k", PAIR, (2,)), ("z", "i2")])})
    with h5py.File(path, "a") as file:
        table = file["t"]
        table.create_dataset("refs", data=[table[name].ref for name in ("n", "id", "n")], dtype=h5py.ref_dtype)
        table.create_dataset("far", data=[table["n"].ref] * 4, dtype=h5py.ref_dtype)
        table["far_index"] = np.array([1, 3, 4], "u1")
        table.create_dataset("lists", (3,), h5py.vlen_dtype(np.int32))[0] = [1, 2]
    assert lines(path, "t.csv") == [
        "id,refs,pair.k.0.p,pair.k.0.q,pair.k.1.p,pair.k.1.q,pair.z,lists,far,n",
        '0,/t/n,0,0.0,0,0.0,0,"[1, 2]","[""/t/n""]",0',
        '1,/t/id,0,0.0,0,0.0,0,[],"[""/t/n"", ""/t/n""]",10',
        '2,/t/n,0,0.0,0,0.0,0,[],"[""/t/n""]",20',
    ]
