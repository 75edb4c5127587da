"""`GROUP.mtx` and the names of its rows and columns, compared with what scipy reads."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
import zarr
from tables_read import files_of
from tree_walker import find_node, read_file

from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale

TEXT = h5py.string_dtype()


def put(root: Any, path: str, matrix: Any, shape: Any = None) -> None:
    """Write a sparse matrix as anndata 0.12 does, with h5py or with zarr."""
    group = root.create_group(path)
    kind = f"{matrix.format}_matrix"
    group.attrs.update({"encoding-type": kind, "encoding-version": "0.1.0", "shape": list(shape or matrix.shape)})
    for name in ("data", "indices", "indptr"):
        values = getattr(matrix, name)
        group.create_dataset(name, data=values) if isinstance(group, h5py.Group) else group.create_array(name, data=values)


def put_table(root: Any, path: str, names: list[str]) -> None:
    group = root.create_group(path)
    group.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
    group.attrs["column-order"] = np.array([], TEXT) if isinstance(group, h5py.Group) else []
    if isinstance(group, h5py.Group):
        group.create_dataset("_index", data=np.array(names, object), dtype=TEXT)
    else:
        group.create_array("_index", data=np.array(names, "<U8"))


def values_of(dtype: str, count: int) -> np.ndarray[Any, Any]:
    numbers = np.random.default_rng(0)
    if dtype[-2] == "f":
        real = (numbers.standard_normal(count) * 10.0 ** numbers.integers(-4, 4, count)).astype(dtype)
        extremes = np.finfo(dtype)
        real[:7] = [np.nan, np.inf, -np.inf, extremes.max, extremes.min, extremes.tiny, 0]
        return real
    native = "u1" if dtype == "|b1" else dtype[1:]
    limits = np.iinfo(native)
    whole: np.ndarray[Any, Any] = numbers.integers(limits.min, limits.max, count, dtype=native, endpoint=True)
    whole[:2] = limits.min, limits.max
    return whole % 2 == 1 if dtype == "|b1" else whole.astype(dtype)


def sparse(kind: str, dtype: str, shape: tuple[int, int] = (40, 30)) -> Any:
    where = scipy.sparse.random(*shape, 0.2, format=kind, random_state=1)
    return type(where)((values_of(dtype, where.nnz), where.indices, where.indptr), shape=where.shape)


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("dtype", ["|b1", "|i1", "|u1", "<i2", ">i4", "<i8", "<u4", "<f4", ">f4", "<f8", "<f2"])
@pytest.mark.parametrize("version", [None, 2, 3], ids=["hdf5", "zarr2", "zarr3"])
def test_p12_a_sparse_matrix_is_what_scipy_reads(
    kind: str, dtype: str, version: Literal[2, 3] | None, tmp_path: Path
) -> None:
    matrix, path = sparse(kind, dtype), tmp_path / "s"
    if version is None:
        with h5py.File(path, "w") as file:
            put(file, "X", matrix)
    else:
        put(zarr.open_group(path, mode="w", zarr_format=version), "X", matrix)
    with files_of(path) as root:
        text = read_file(root, "X.mtx")
    found = scipy.io.mmread(io.BytesIO(text)).asformat(kind)
    found.sort_indices()
    assert found.shape == matrix.shape
    np.testing.assert_array_equal(found.indptr, matrix.indptr)
    np.testing.assert_array_equal(found.indices, matrix.indices)
    np.testing.assert_array_equal(found.data.astype(matrix.dtype), matrix.data)
    assert len({len(line) for line in text.splitlines()[2:]}) == 1


def test_p2_any_part_of_a_matrix_is_that_part_of_the_whole(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s", "w") as file:
        put(file, "X", sparse("csr", "<f4", (400, 300)))  # more elements than are written at a time
    choose = random.Random(3)
    with files_of(tmp_path / "s") as root:
        whole, handle = read_file(root, "X.mtx"), find_node(root, "X.mtx").open()
        for _ in range(100):
            start, size = choose.randrange(len(whole) + 5), choose.choice([0, 1, 30, 200, 5000, 700_000])
            assert bytes(handle.read(start, size)) == whole[start : start + size]


def test_p12_rows_and_columns_have_the_names_of_the_tables_above(tmp_path: Path) -> None:
    cells, genes, all_genes = [f"c{i}" for i in range(3)], ["g0", "g,1"], ["a", "b", "c", "d"]
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        put_table(file, "obs", cells)
        put_table(file, "var", genes)
        put_table(file, "raw/var", all_genes)
        for path, shape in {"X": (3, 2), "layers/n": (3, 2), "raw/X": (3, 4), "obsp/near": (3, 3), "varp/v": (2, 2),
                            "obsm/few": (3, 2), "uns/other": (3, 2), "layers/wrong": (5, 2)}.items():  # fmt: skip
            put(file, path, scipy.sparse.csr_matrix(np.ones(shape)))
    wanted = {
        "X": (cells, genes), "layers/n": (cells, genes), "raw/X": (cells, all_genes), "obsp/near": (cells, cells),
        "varp/v": (genes, genes), "obsm/few": (cells, None), "uns/other": (None, None), "layers/wrong": (None, genes),
    }  # fmt: skip
    with files_of(tmp_path / "a.h5ad") as root:
        for path, names in wanted.items():
            for suffix, expected in zip(("barcodes", "features"), names, strict=True):
                if expected is None:
                    with pytest.raises(NotFound, match=r"no table above has a name for each of the \d (rows|columns)"):
                        find_node(root, f"{path}.{suffix}.tsv")
                else:
                    assert read_file(root, f"{path}.{suffix}.tsv").decode().splitlines() == expected


def test_matrices_before_anndata_0_7_are_known_by_other_attributes(tmp_path: Path) -> None:
    matrix = scipy.sparse.csc_matrix(np.array([[0, 2], [3, 0]]))
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        put(file, "X", matrix)
        file["X"].attrs.clear()
        file["X"].attrs.update({"h5sparse_format": "csc", "h5sparse_shape": [2, 2]})
    with files_of(tmp_path / "a.h5ad") as root:
        np.testing.assert_array_equal(scipy.io.mmread(io.BytesIO(read_file(root, "X.mtx"))).toarray(), matrix.toarray())


DAMAGE: dict[str, Any] = {
    "ends that descend": ("indptr", [0, 2, 1, 3]),
    "ends beyond the elements": ("indptr", [0, 1, 2, 4]),
    "ends that leave elements out": ("indptr", [0, 1, 2, 2]),
    "ends that do not begin at 0": ("indptr", [1, 1, 2, 3]),
    "too few ends": ("indptr", [0, 1, 3]),
    "columns beyond the matrix": ("indices", [0, 1, 2]),
    "columns before the matrix": ("indices", [0, 1, -1]),
    "too few columns": ("indices", [0, 1]),
    "real columns": ("indices", [0.0, 1.0, 1.0]),
    "elements of two dimensions": ("data", [[1.0], [2.0], [3.0]]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_p3_a_matrix_that_makes_no_sense_is_an_error(damage: str, tmp_path: Path) -> None:
    name, values = DAMAGE[damage]
    with h5py.File(tmp_path / "s", "w") as file:
        put(file, "X", scipy.sparse.csr_matrix(np.array([[1, 0], [0, 2], [0, 3]])))
        del file["X"][name]
        file["X"][name] = values
    with files_of(tmp_path / "s") as root, pytest.raises(CorruptData):
        read_file(root, "X.mtx")


def test_a_group_that_is_no_matrix_has_none(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s", "w") as file:
        file["g/a"] = np.arange(3)
        put(file, "X", scipy.sparse.csr_matrix(np.ones((2, 2))))
        file["X"].attrs["shape"] = "unknown"
        put(file, "Z", scipy.sparse.csr_matrix(np.ones((2, 2), "c8")))
    with files_of(tmp_path / "s") as root:
        for path, reason in {"g": "no sparse matrix", "X": "does not say the shape", "Z": "no elements of type"}.items():
            with pytest.raises(FsbridgeError, match=reason):
                find_node(root, f"{path}.mtx")


def test_p9_a_matrix_that_has_changed_is_another(tmp_path: Path) -> None:
    store = zarr.open_group(tmp_path / "s", mode="w", zarr_format=2)
    put(store, "X", scipy.sparse.csr_matrix(np.array([[1.0, 0], [0, 2]])))
    with files_of(tmp_path / "s") as root:
        handle, file = find_node(root, "X.mtx").open(), find_node(root, "X.mtx")
        before = bytes(handle.read(0, 1000))
        zarr.open_array(tmp_path / "s/X/data", mode="r+")[:] = [1.0, 5.0]
        assert b" 2.0" in before
        assert bytes(handle.read(0, 1000)) == before, "an open file shows one state"
        with pytest.raises(Stale):
            file.open()
        assert b" 5.0" in read_file(root, "X.mtx")
