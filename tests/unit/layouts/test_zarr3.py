"""The zarr3 layout over an in-memory model: names, documents, chunk files, freshness; read back by zarr-python."""

from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from fake_model import FakeArray, FakeChunks, FakeGroup, fake_array, tree
from hypothesis import given
from hypothesis import strategies as st
from tree_walker import content, walk, written

from fsbridge.errors import CorruptData, FsbridgeError, NameTooLong, NotFound, Stale, TooDeep, TooLarge
from fsbridge.formats.dtypes import data_type, endian
from fsbridge.layouts import zarr2
from fsbridge.layouts.json_text import encode
from fsbridge.layouts.zarr3 import array_document
from fsbridge.metadata import ArrayMetadata, ChunkGrid, DataType
from fsbridge.model import Link
from fsbridge.tree import escape, unescape


def materialise(root: Any, folder: Path) -> Path:
    return written(tree(root), folder)


def document(root: Any) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(content(tree(root).lookup(b"zarr.json")))
    return values


@pytest.mark.parametrize("shape", [(), (5,), (4, 6), (3, 4, 5)])
def test_zarr_python_reads_the_tree(tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int), dtype="<i4").reshape(shape) + 1
    array = fake_array(values, tuple(2 for _ in shape), attributes={"a": [1, float("nan")]})
    root = zarr.open_group(str(materialise(FakeGroup({"g": FakeGroup({"x": array})}, {"t": 1}), tmp_path)), mode="r")
    read = root["g/x"]
    assert isinstance(read, zarr.Array)
    np.testing.assert_array_equal(read[...], values)
    assert dict(read.attrs) == {"a": [1, "NaN"]}
    assert dict(root.attrs) == {"t": 1}


def test_names_of_members_are_escaped_reversibly() -> None:
    names = ["a/b", "..", ".", "", "zarr.json", "100%", "new\nline", "\udcff", "plain", "c"]
    found = walk(tree(FakeGroup({name: FakeGroup({}) for name in names})))
    directories = {path.split(b"/")[1] for path in found} - {b"zarr.json"}
    assert len(directories) == len(names)
    assert {b"a%2Fb", b"%2E%2E", b"%2E", b"%", b"%7Aarr.json", b"100%25", b"new%0Aline", b"\xff", b"c"} <= directories


def test_one_bad_name_hides_no_neighbour(caplog: pytest.LogCaptureFixture) -> None:
    root = tree(FakeGroup({"x" * 300: FakeGroup({}), "y": FakeGroup({})}))
    for _ in range(2):
        assert set(walk(root)) == {b"/zarr.json", b"/y/zarr.json"}
    assert caplog.text.count("is left out of the layout zarr3: the name has 300 bytes") == 1, "not once per listing"


@given(st.binary(max_size=12).map(lambda raw: raw.decode("utf-8", "surrogateescape")))
def test_escape_is_reversible(name: str) -> None:
    assert unescape(escape(name)) == name


@given(st.binary(min_size=1, max_size=12))
def test_unescape_accepts_only_canonical_names(raw: bytes) -> None:
    name = unescape(raw)
    assert name is None or escape(name) == raw


def test_escape_refuses_what_no_name_can_hold() -> None:
    with pytest.raises(NameTooLong):
        escape("/" * 86)
    with pytest.raises(CorruptData):
        escape("\ud800")


def test_missing_chunks_are_absent_and_unlisted() -> None:
    array = fake_array(np.ones((4, 4), "u1"), (2, 2))
    del array.chunks.stored[(1, 0)], array.chunks.stored[(1, 1)]
    root = tree(FakeGroup({"x": array}))
    assert set(walk(root)) == {b"/zarr.json", b"/x/zarr.json", b"/x/c/0/0", b"/x/c/0/1"}
    directory: Any = root.lookup(b"x")
    chunks = directory.lookup(b"c")
    for name in (b"1", b"2", b"00", b"+0", b"-1", b"", "\u0661".encode(), b"0" * 30):
        with pytest.raises(NotFound):
            chunks.lookup(name)


def test_space_positions_are_a_bijection() -> None:
    directory: Any = tree(FakeGroup({"x": fake_array(np.ones((3, 5, 2), "u1"), (1, 2, 1))})).lookup(b"x")
    space = directory.lookup(b"c").slot[0]
    nodes = [space.node(position) for position in range(space.size)]
    assert [node.slot[1] for node in nodes] == list(range(space.size))
    assert space.size == 1 + 3 + 9 + 18


def test_changed_metadata_is_noticed_at_open_and_lookup() -> None:
    group = FakeGroup({"x": fake_array(np.ones(4, "u1"), (2,))})
    root = tree(group)
    directory: Any = root.lookup(b"x")
    document, chunk = directory.lookup(b"zarr.json"), directory.lookup(b"c").lookup(b"0")
    old: Any = group.members["x"]
    old.newest = False
    new = fake_array(np.ones(6, "u1"), (3,))
    new.version = 1
    group.members["x"] = new
    with pytest.raises(Stale):
        document.open()
    with pytest.raises(Stale):
        chunk.open()
    assert json.loads(content(directory.lookup(b"zarr.json")))["shape"] == [6]
    assert content(directory.lookup(b"c").lookup(b"0")) == b"\1\1\1"


def test_unchanged_metadata_keeps_the_space() -> None:
    directory: Any = tree(FakeGroup({"x": fake_array(np.ones(4, "u1"), (2,))})).lookup(b"x")
    assert directory.lookup(b"c").slot == directory.lookup(b"c").slot


def test_changed_chunk_under_an_open_handle_is_stale() -> None:
    array = fake_array(np.ones(4, "u1"), (2,))
    directory: Any = tree(array)
    handle = directory.lookup(b"c").lookup(b"0").open()
    array.chunks.version = 1
    with pytest.raises(Stale):
        handle.read(0, 2)


def test_variable_length_chunks_have_their_decoded_size() -> None:
    chunks = FakeChunks({(0,): b"\1\0\0\0\2\0\0\0ab"})
    array = FakeArray(ArrayMetadata(ChunkGrid((1,), (1,)), DataType("string", 0, None, "|O", None, "vlen-utf8")), chunks)
    assert walk(tree(array))[b"/c/0"] == b"\1\0\0\0\2\0\0\0ab"
    assert document(array)["codecs"] == [{"name": "vlen-utf8"}]
    assert chunks.decoded == [(0,)], "decoded more than once"


@pytest.mark.parametrize("dtype", [[("a", "<i2"), ("s", "S3")], [("x", "u1")], [("n", [("y", "<f8")]), ("t", "<M8[s]")]])
def test_p12_the_bytes_of_a_struct_have_an_order(tmp_path: Path, dtype: Any) -> None:
    """zarr-python 3.4 warned that it was missing, each time that somebody opened the array."""
    values = np.frombuffer(bytes(range(2 * np.dtype(dtype).itemsize)), dtype)
    metadata = ArrayMetadata(ChunkGrid((2,), (2,)), data_type(values.dtype), bytes(values.itemsize))
    array = FakeArray(metadata, FakeChunks({(0,): values.tobytes()}))
    found: Any = zarr.open_array(materialise(array, tmp_path), mode="r")
    assert found.dtype == values.dtype
    assert found[...].tobytes() == values.tobytes()


def test_a_damaged_text_is_listed_and_only_reading_it_fails() -> None:
    class Damaged(FakeChunks):
        def read_all(self, index: Any, info: Any, limit: int = 0) -> bytes:
            raise CorruptData("damaged")

        size: Any = read_all

    text = DataType("string", 0, None, "|O", None, "vlen-utf8")
    for shape, name in (((1,), b"/c/0"), ((), b"/c")):
        array = FakeArray(ArrayMetadata(ChunkGrid(shape, shape), text), Damaged({(0,) * len(shape): b"damaged"}))
        found = walk(tree(array))
        assert isinstance(found[b"/zarr.json"], bytes)
        assert isinstance(found[name], CorruptData)


def test_a_chunk_above_the_limit_shows_metadata_only() -> None:
    found = walk(tree(fake_array(np.ones(4000, "u1"), (4000,)), cache_size=6000))
    assert isinstance(found[b"/zarr.json"], bytes)
    assert isinstance(found[b"/c/0"], TooLarge)


def test_a_damaged_member_harms_no_neighbour() -> None:
    class Broken(FakeGroup):
        def child(self, name: str) -> Any:
            if name == "bad":
                raise CorruptData("bad document")
            return super().child(name)

    found = walk(tree(Broken({"bad": FakeGroup({}), "good": FakeGroup({})})))
    assert isinstance(found[b"/bad"], CorruptData)
    assert isinstance(found[b"/good/zarr.json"], bytes)


def test_cycles_end_with_an_error() -> None:
    group = FakeGroup({})
    group.members["again"] = group
    found = walk(tree(group))
    errors = [error for error in found.values() if isinstance(error, FsbridgeError)]
    assert len(errors) == 1
    assert isinstance(errors[0], TooDeep)


def test_links_are_relative_and_escaped() -> None:
    target = FakeGroup({"a%b": FakeGroup({})})
    found = walk(tree(FakeGroup({"g": FakeGroup({"l": Link("../zarr.json/a%b")}), "zarr.json": target})))
    assert found[b"/g/l"] == b"-> ../%7Aarr.json/a%25b"


@pytest.mark.parametrize(
    ("dtype", "fill", "shown"),
    [
        ("<f4", np.float32("nan").tobytes(), "NaN"),
        ("<f4", b"\x01\x00\xc0\x7f", "0x7fc00001"),
        (">f8", np.array(np.inf, ">f8").tobytes(), "Infinity"),
        ("<f2", np.array(0.5, "<f2").tobytes(), 0.5),
        ("<c8", np.array(1 + 2j, "<c8").tobytes(), [1.0, 2.0]),
        ("<u8", b"\xff" * 8, 2**64 - 1),
        ("|b1", b"\1", True),
        ("<M8[ns]", np.array("NaT", "<M8[ns]").tobytes(), -(2**63)),
        ("<U2", np.array("hi", "<U2").tobytes(), "hi"),
        ("|S2", b"hi", "aGk="),
        ("<i2", None, 0),
    ],
)
def test_fill_values_are_written_as_zarr_v3_spells_them(dtype: str, fill: bytes | None, shown: Any) -> None:
    numpy_type = np.dtype(dtype)
    kind = DataType("any", numpy_type.itemsize, endian(numpy_type), dtype, numpy_type)
    array = FakeArray(ArrayMetadata(ChunkGrid((1,), (1,)), kind, fill), FakeChunks({}))
    assert document(array)["fill_value"] == shown


@pytest.mark.parametrize("dtype", ["V900000000", "|S900000000", "<U300000000"])
def test_p6_zeros_of_large_elements_are_not_spelled_out(dtype: str) -> None:
    metadata = ArrayMetadata(ChunkGrid((1,), (1,)), data_type(np.dtype(dtype)))
    tracemalloc.start()
    try:
        assert json.loads(array_document(metadata))["fill_value"] == ""
        assert zarr2.fill_value(metadata) == ""
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_p6_a_fill_value_that_would_be_too_large_is_an_error() -> None:
    metadata = ArrayMetadata(ChunkGrid((1,), (1,)), data_type(np.dtype([("a", "S900000000")])))
    with pytest.raises(TooLarge, match="900000000 bytes"):
        array_document(metadata)


def test_raw_bits_fill_is_a_list_of_bytes() -> None:
    metadata = ArrayMetadata(ChunkGrid((1,), (1,)), DataType("r16", 2, None, "bfloat16"), b"\x01\x02")
    assert document(FakeArray(metadata, FakeChunks({})))["fill_value"] == [1, 2]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def strict(value: Any) -> Any:
    """The value as strict JSON has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: strict(member) for key, member in value.items()}
    return [strict(member) for member in value] if isinstance(value, list) else value


@given(json_values)
def test_documents_are_strict_json(value: Any) -> None:
    def refuse(token: str) -> None:
        raise AssertionError(token)

    read = json.loads(encode(value), parse_constant=refuse)
    assert json.dumps(read, sort_keys=True) == json.dumps(strict(value), sort_keys=True)


def test_documents_hold_values_of_derived_types_and_nothing_else() -> None:
    assert json.loads(encode({"x": np.str_("ab"), "y": [np.float64("nan"), np.float64(2)], "z": (1, True)})) == {
        "x": "ab",
        "y": ["NaN", 2.0],
        "z": [1, True],
    }
    with pytest.raises(TypeError, match="bytes is no JSON"):
        encode({"x": b"ab"})


def test_documents_are_legible() -> None:
    text = encode({"shape": [1, 2], "codecs": [{"name": "bytes"}], "empty": {}}).decode()
    assert text == '{\n  "shape": [1, 2],\n  "codecs": [\n    {"name": "bytes"}\n  ],\n  "empty": {}\n}\n'
