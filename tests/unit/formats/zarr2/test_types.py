"""Types and fill values of Zarr v2 in every spelling. Not here: arrays as programs write them."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore as ts
import zarr
from model_reader import array_at, read_array, read_bytes
from zarr2_documents import open_root, put

from fsbridge.errors import CorruptData, TooLarge, Unsupported
from fsbridge.formats.zarr2.types import parse_fill, parse_named_fill
from fsbridge.formats.zarr2.types import parse_type as parse_dtype
from fsbridge.layouts.zarr3 import array_document
from fsbridge.metadata import JSON
from fsbridge.model import Source

FILLS: list[tuple[str, Any, Any]] = [
    ("<f4", "NaN", np.nan),
    (">f8", "-Infinity", -np.inf),
    ("<f8", float("inf"), np.inf),
    ("<f4", 1, 1.0),
    ("<f2", 0.5, 0.5),
    ("<c8", ["NaN", 1.0], complex(np.nan, 1)),
    (">c16", [1, "-Infinity"], complex(1, -np.inf)),
    ("<c8", 0, 0j),
    ("<i4", 0.0, 0),
    ("<i4", "0", 0),
    ("|u1", "255", 255),
    ("<u8", "18446744073709551615", 2**64 - 1),
    ("<i8", "-1.0", -1),
    ("<f4", "0.5", 0.5),
    (">i4", -5, -5),
    (">i4", [-32767], -32767),
    ("<f8", [1.5], 1.5),
    ("<f4", "nan", np.nan),
    ("<f4", "-nan", np.nan),
    ("<f4", "inf", np.inf),
    ("<f8", "-inf", -np.inf),
    ("<f8", "-infinity", -np.inf),
    ("<u8", 2**64 - 1, 2**64 - 1),
    ("|b1", True, True),
    ("|b1", 1, True),
    ("|b1", 0, False),
    ("|S3", "YWI=", b"ab"),
    ("|S3", "", b""),
    ("|S1", 0, b""),
    ("<U3", "aö", "aö"),
    (">U3", "", ""),
    ("<U3", 0, ""),
    (">M8[s]", "NaT", np.datetime64("NaT", "s")),
    (">M8[s]", None, np.datetime64("NaT", "s")),
    ("<M8[ns]", -(2**63), np.datetime64("NaT", "ns")),
    ("<m8[D]", 3, np.timedelta64(3, "D")),
    (">M8[s]", "1970-01-01T00:00:00", np.datetime64(0, "s")),
    ("<M8[10us]", "2001-02-03T04:05:06.789010", np.datetime64("2001-02-03T04:05:06.789010", "us")),
    ("<M8[Y]", "1970", np.datetime64(0, "Y")),
]


@pytest.mark.parametrize(("dtype", "fill", "expected"), FILLS, ids=str)
def test_fill_values_are_read_in_every_spelling(dtype: str, fill: Any, expected: Any) -> None:
    stored = np.dtype(dtype)
    raw = parse_fill(json.loads(json.dumps(fill)), stored)
    assert raw is not None
    assert raw == np.array(expected, stored).tobytes()


def test_fill_values_of_opaque_types_are_base64_or_zero() -> None:
    assert parse_fill("AQI=", np.dtype("V3")) == b"\1\2\0"
    struct = np.dtype([("a", ">i2"), ("b", "S3")])
    assert parse_fill("AAEwAAA=", struct) == b"\0\1" + b"0\0\0"  # zarr-python 3.1's default for text in a struct is "0"
    assert parse_fill(0, struct) == bytes(5)
    assert parse_fill(None, struct) is None


@pytest.mark.parametrize(
    ("dtype", "zeros", "other"), [("|S900000000", "", "YQ=="), (">U300000000", "\0", "a"), ("V900000000", 0, "YQ==")]
)
def test_p6_a_fill_value_takes_no_more_memory_than_its_document(dtype: str, zeros: Any, other: Any) -> None:
    """200 bytes of metadata took gigabytes, and every other array of the mount timed out meanwhile."""
    tracemalloc.start()
    try:
        assert parse_fill(zeros, np.dtype(dtype)) is None
        with pytest.raises(TooLarge, match="fill"):
            parse_fill(other, np.dtype(dtype))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


BAD_FILLS: dict[str, list[Any]] = {
    "<i4": [0.5, "NaN", "0x1", "1_0", "", float("nan"), 10**400],
    "|u1": [-1, 256, "-1"],
    "|i1": [[], [1, 2], [[1]]],
    "<f4": ["nano", "in", "1e", 10**400, {}],
    "<c8": [[1, 2, 3]],
    "|b1": [2, "true"],
    "|S3": ["YWJjZA==", "a", 5],
    "<U2": ["abc", 5],
    "<M8[s]": ["2020-13-01", "2020-01-01T00:00:00.5", "x", 2**63],
    "<m8[s]": ["2020-01-01"],
}


@pytest.mark.parametrize(("dtype", "fill"), [(dtype, fill) for dtype, fills in BAD_FILLS.items() for fill in fills])
def test_impossible_fill_values_are_corrupt(dtype: str, fill: Any) -> None:
    with pytest.raises(CorruptData, match="fill value"):
        parse_fill(fill, np.dtype(dtype))


@pytest.mark.parametrize("fill", [0, 1.5, True, None, "", "x"])
@pytest.mark.filterwarnings("ignore:::zarr")
def test_p12_text_fill_values_are_those_of_zarr_python_3(tmp_path: Path, opened: list[Source], fill: Any) -> None:
    """`fill_value: 0` of an array of texts, zarr-python 2's default, reads '0' in zarr-python 3."""
    put(tmp_path / "a", {"dtype": "|O", "fill_value": fill, "filters": [{"id": "vlen-utf8"}], "compressor": None})
    expected = np.asarray(zarr.open_array(tmp_path / "a", mode="r")[...])
    assert read_array(open_root(tmp_path / "a", opened)).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", ["<M8[s]", ">m8[ms]"])
@pytest.mark.filterwarnings("ignore:::zarr")
def test_p12_dates_without_fill_value_are_those_of_zarr_python_3(tmp_path: Path, opened: list[Source], dtype: str) -> None:
    """`fill_value: null` of dates reads NaT there; zeros would be the date 1970-01-01, which looks like data."""
    put(tmp_path / "a", {"dtype": dtype, "fill_value": None}, {"0": np.array([5, 6], dtype).tobytes()})
    expected = np.asarray(zarr.open_array(tmp_path / "a", mode="r")[...])
    assert np.isnat(expected).tolist() == [False, False, True, True]
    found = read_array(open_root(tmp_path / "a", opened))
    assert found.astype("i8").tolist() == expected.astype("i8").tolist()


@pytest.mark.parametrize(
    ("dtype", "fill", "shown"),
    [
        ("bfloat16", None, 0.0),
        ("bfloat16", 1.5, 1.5),
        ("bfloat16", "-Infinity", "-Infinity"),
        *((f"float8_{name}", "NaN", "NaN") for name in ("e3m4", "e4m3fn", "e4m3fnuz", "e4m3b11fnuz", "e5m2", "e5m2fnuz")),
        ("float8_e4m3fn", -2, -2.0),
        ("float4_e2m1fn", None, 0.0),
        ("float4_e2m1fn", "Ag==", 1.0),
        ("int4", None, 0),
        ("int4", -2, -2),
        ("int2", 1, 1),
    ],
)
def test_p12_types_that_numpy_lacks_are_those_of_tensorstore(
    tmp_path: Path, opened: list[Source], dtype: str, fill: Any, shown: Any
) -> None:
    """TensorStore writes them by their names in Zarr v3, and reads them there."""
    changes = {"shape": [5], "chunks": [3], "dtype": dtype, "fill_value": fill}
    path = put(tmp_path / "a", changes)
    kvstore = {"driver": "file", "path": f"{path}/"}
    written = ts.open({"driver": "zarr", "kvstore": kvstore}).result()
    written[:3].write(np.array([1, -2, 0], written.dtype.numpy_dtype)).result()
    array = open_root(path, opened)
    assert read_bytes(array, (0,)) == (path / "0").read_bytes()
    document = array_document(array.metadata)
    assert (json.loads(document)["data_type"], json.loads(document)["fill_value"]) == (dtype, shown)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/zarr.json").write_bytes(document)
    copy = ts.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{tmp_path}/b/"}}).result()
    expected, got = (store.read().result()[3:].astype(float) for store in (written, copy))
    np.testing.assert_array_equal(got, expected)
    wrongs: list[JSON] = ["x", {}, [1]]
    for wrong in wrongs:
        with pytest.raises(CorruptData, match="fill value"):
            parse_named_fill(wrong, dtype)


def test_struct_fill_is_swapped_with_the_data(tmp_path: Path, opened: list[Source]) -> None:
    change = {"dtype": [["a", ">i2"], ["b", ">f4"]], "fill_value": "AAE/gAAA"}
    put(tmp_path, change, {"0": bytes.fromhex("000340000000") * 2})
    array = array_at(open_root(tmp_path, opened), "")
    assert array.metadata.dtype.native == "[('a', '>i2'), ('b', '>f4')]"
    assert read_array(array).tolist() == [(3, 2.0), (3, 2.0), (1, 1.0), (1, 1.0)]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ([["a", "<i4"], ["b", "<f4", [2, 3]]], 28),
        ([["a", "<i4"], ["b", [["x", "|u1"], ["y", ">u2"]]]], 7),
        ([["a", "<i4", 3]], 12),
        ("|V7", 7),
        ("<f16", 16),
        ("<M8[10us]", 8),
        (">m8[3generic]", 8),
    ],
)
def test_types_have_the_size_that_their_spelling_says(dtype: Any, expected: int) -> None:
    assert parse_dtype(dtype).itemsize == expected


BAD_TYPES: list[Any] = [
    *("i4,f8", "float64", "<i3", "<q8", "", "O4", "=i4", "<M8[zz]", "|V9999999999", "(3,)<i4", 5, None, [], {"a": 1}),
    *([["a"]], [["a", "<i4"], ["a", "<i4"]], [[5, "<i4"]], [["a", "<i4", -1]], [["a", "<i4", [True]]], [["a", 5]]),
    [["a", "<i4", [2**40]]],
]


@pytest.mark.parametrize("dtype", BAD_TYPES, ids=str)
def test_impossible_types_are_refused(dtype: Any) -> None:
    with pytest.raises((CorruptData, Unsupported)):
        parse_dtype(dtype)


BAD_ARRAYS: list[dict[str, Any]] = [
    {"zarr_format": 3},
    {"zarr_format": "2"},
    {"shape": [-1]},
    {"shape": [2**63]},
    {"shape": None},
    {"chunks": [0]},
    {"chunks": [2, 2]},
    {"chunks": None},
    {"order": "A"},
    {"order": None},
    {"filters": {}},
    {"filters": [5]},
    {"compressor": 5},
    {"dtype": "|S0"},
    {"dimension_separator": "-"},
    {"dimension_separator": 5},
    {"shape": [1] * 33, "chunks": [1] * 33},
]


@pytest.mark.parametrize("change", BAD_ARRAYS, ids=str)
def test_bad_documents_are_errors_of_their_own(tmp_path: Path, opened: list[Source], change: dict[str, Any]) -> None:
    put(tmp_path / "a", change)
    put(tmp_path / "b", {})
    root = open_root(tmp_path, opened)
    with pytest.raises((CorruptData, Unsupported), match=r"a/\.zarray"):
        root.child("a")
    assert array_at(root, "b").metadata.shape == (4,)


def test_p8_damaged_attributes_are_an_error_of_their_own(tmp_path: Path, opened: list[Source]) -> None:
    """TensorStore reads such an array; each use of the attributes is the error, and none of anything else."""
    put(tmp_path / "a", {}, {"0": np.arange(2, dtype="<i4").tobytes()})
    (tmp_path / "a/.zattrs").write_text("{")
    array = open_root(tmp_path, opened).child("a")
    assert read_array(array).tolist() == [0, 1, 0, 0]
    assert array.current()
    with pytest.raises(CorruptData, match=r"\.zattrs"):
        array.metadata.shown_attributes()
    (tmp_path / "a/.zattrs").write_text("{}")
    assert not array.current()
    assert open_root(tmp_path, opened).child("a").metadata.shown_attributes() == {}


def test_p8_damaged_attributes_are_an_error_of_an_array_that_needs_them(tmp_path: Path, opened: list[Source]) -> None:
    """hdmf-zarr's `zarr_dtype` tells whether texts are references."""
    put(tmp_path / "a", {"dtype": "|O", "filters": [{"id": "json2"}]})
    (tmp_path / "a/.zattrs").write_text("{")
    with pytest.raises(CorruptData, match=r"\.zattrs"):
        open_root(tmp_path, opened).child("a")
