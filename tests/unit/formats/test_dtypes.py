"""Element types: zarr-python opens what `data_type` says and sees the same values."""

import base64
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from fsbridge.errors import CorruptData, Unsupported
from fsbridge.formats.dtypes import data_type, endian, normaliser, raw

NESTED = np.dtype([("a", "<i4"), ("n", [("x", "<u2"), ("y", "S3")]), ("u", "<U2"), ("v", "V3"), ("q", "?")])
TYPES = [
    *("?", "i1", "u1", "<i2", ">i2", "<u4", ">u8", "<f2", ">f4", "<f8", "<c8", ">c16"),
    *("<M8[10us]", ">M8[D]", "<m8[ns]", "S5", "<U4", ">U3", "V3", "V1"),
    np.dtype([("a", "<i4"), ("b", "<f8")]),
    np.dtype([("a", ">i4"), ("b", "<f8"), ("c", "i1")]),
    NESTED,
    NESTED.newbyteorder(">"),
]


@pytest.mark.parametrize("spelling", TYPES, ids=str)
def test_zarr_python_reads_every_type(tmp_path: Path, spelling: Any) -> None:
    stored = np.dtype(spelling)
    dtype = data_type(stored)
    values = np.zeros(6, stored)
    bytes_of = values.view(np.uint8)
    bytes_of[:] = np.arange(bytes_of.size) % (2 if stored.kind == "b" else 3)
    if "U" in str(stored):
        values = np.zeros(6, stored)
    values[0] = np.zeros(1, stored)[0]
    step = normaliser(stored)
    data = values.tobytes() if step is None else bytes(step.decode(values.tobytes(), values.nbytes, 10**6, None))
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [6],
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [6]}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes", **({"configuration": {"endian": dtype.endian}} if dtype.endian else {})}],
        "fill_value": _fill(dtype.name),
        "attributes": {},
    }
    (tmp_path / "c").mkdir()
    (tmp_path / "c/0").write_bytes(data)
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr-python says that these types are not in the specification
        array = zarr.open_array(str(tmp_path), mode="r")
        assert array.dtype.itemsize == dtype.itemsize == stored.itemsize
        seen = np.asarray(array[...])
    assert dtype.numpy is not None
    expected = np.frombuffer(data, dtype.numpy)
    assert seen.astype(dtype.numpy).tobytes() == expected.tobytes()
    assert np.array_equal(expected.astype(stored), values) or values.tobytes() == expected.astype(stored).tobytes()


def _fill(name: Any) -> Any:
    simple = {"null_terminated_bytes": "", "fixed_length_utf32": "", "numpy.datetime64": 0, "numpy.timedelta64": 0}
    if isinstance(name, str):
        return False if name == "bool" else [0, 0] if name.startswith("complex") else 0
    if name["name"] in simple:
        return simple[name["name"]]
    size = name["configuration"].get("length_bytes") or sum(_size(field) for _, field in name["configuration"]["fields"])
    return base64.b64encode(bytes(size)).decode()


def _size(name: Any) -> int:
    if isinstance(name, str):
        return 1 if name == "bool" else int("".join(filter(str.isdigit, name))) // 8
    if name["name"].startswith("numpy."):
        return 8
    configuration = name["configuration"]
    return configuration.get("length_bytes") or sum(_size(field) for _, field in configuration["fields"])


def test_what_zarr_cannot_say_is_raw_bytes_of_the_same_size() -> None:
    for stored in (
        np.dtype([("a", "i1"), ("b", ">f8")], align=True),
        np.dtype({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [4, 0]}),
        np.dtype((">f4", (3, 2))),
        np.dtype(np.longdouble),
        np.dtype([("a", "V0"), ("b", "i4")]),
    ):
        dtype = data_type(stored)
        assert dtype.name == {"name": "raw_bytes", "configuration": {"length_bytes": stored.itemsize}}
        assert (dtype.itemsize, dtype.endian, dtype.numpy) == (stored.itemsize, None, stored)
        assert normaliser(stored) is None


def test_a_subarray_field_is_raw_bytes_in_its_struct() -> None:
    dtype = data_type(np.dtype([("a", ">i4"), ("b", ">f4", (2, 3))]))
    assert dtype.name["configuration"]["fields"][1] == ["b", {"name": "raw_bytes", "configuration": {"length_bytes": 24}}]
    assert dtype.native == "[('a', '>i4'), ('b', '>f4', (2, 3))]"
    step = normaliser(np.dtype([("a", ">i4"), ("b", ">f4", (2, 3))]))
    assert step is not None
    out = memoryview(bytearray(28))
    values = np.zeros(1, np.dtype([("a", ">i4"), ("b", ">f4", (2, 3))]))
    values["a"], values["b"] = 1, 2
    assert step.decode(values.tobytes(), 28, 100, out) is out
    assert np.frombuffer(out, "<i4", 1)[0] == 1
    assert (np.frombuffer(out, "<f4", 6, 4) == 2).all()


def test_types_without_a_fixed_size_are_refused() -> None:
    for stored in ("O", [("a", "O")], "S0", "U0"):
        with pytest.raises(Unsupported):
            data_type(np.dtype(stored))
    with pytest.raises(CorruptData):
        raw(0, "bfloat0")


def test_native_byte_order_is_reported() -> None:
    orders = {"=i4": "little", "<f8": "little", ">U2": "big", "S3": None, "i1": None, "V4": None}
    assert {spelling: endian(np.dtype(spelling)) for spelling in orders} == orders
