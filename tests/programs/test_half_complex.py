"""Complex numbers of half precision, of which radar products (NISAR) consist, have the fields `r` and `i`, as in h5py."""

from __future__ import annotations

import io
import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from fsbridge.config import Config
from fsbridge.unmounted import VirtualTree


def content(tree: VirtualTree, name: str) -> bytes:
    with tree.open(name) as file:
        return bytes(file.read(0, file.size))


@pytest.mark.parametrize("order", ["<", ">"])
def test_p12_half_complex_numbers_are_the_fields_that_h5py_reads(order: str, tmp_path: Path) -> None:
    values = np.array([(1, 2), (3, -4.5), (0, 65504)], [("r", f"{order}f2"), ("i", f"{order}f2")])
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["a"] = values

    with VirtualTree(Config(str(tmp_path / "s.h5"), "", layout="files")) as tree:
        for name, expected in (("a.npy", values), ("a[1:].npy", values[1:]), ("a@1_.npy", values[1:])):
            loaded = np.load(io.BytesIO(content(tree, name)))
            assert loaded.dtype == values.dtype
            np.testing.assert_array_equal(loaded, expected)
        assert content(tree, "a.csv") == b"r,i\n1.0,2.0\n3.0,-4.5\n0.0,65504.0\n"
        with h5py.File(io.BytesIO(content(tree, "a.h5"))) as file:
            assert file["a"].dtype == values.dtype
            np.testing.assert_array_equal(file["a"][...], values)
        described = json.loads(content(tree, "a.json"))
        assert (described["data_type"], described["dtype"]) == (
            "complex_float16",
            [["r", f"{order}f2"], ["i", f"{order}f2"]],
        )
