"""The layout zarr2 over an in-memory model: documents, keys, memory orders, `.zmetadata`; read back by zarr-python."""

from __future__ import annotations

import base64
import json
from functools import partial
from pathlib import Path
from typing import Any

import fake_model
import numpy as np
import pytest
import zarr
from fake_model import FakeArray, FakeChunks, FakeGroup, fake_array
from tree_walker import content, walk, written

from fsbridge.errors import CorruptData, NotFound, Stale, TooDeep, TooLarge
from fsbridge.layouts.directories import PathDirectory
from fsbridge.layouts.zarr2 import consolidated_document
from fsbridge.metadata import ArrayMetadata, ChunkGrid, DataType
from fsbridge.model import Link

tree = partial(fake_model.tree, layout="zarr2")


def materialise(root: Any, folder: Path, **changes: Any) -> Path:
    return written(tree(root, **changes), folder)


def document(root: Any, path: bytes = b"/.zarray", **changes: Any) -> dict[str, Any]:
    data = walk(tree(root, **changes))[path]
    assert isinstance(data, bytes)
    values: dict[str, Any] = json.loads(data)
    return values


@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize("order", [None, (2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_zarr_python_reads_every_memory_order(tmp_path: Path, order: tuple[int, ...] | None, separator: str) -> None:
    values = np.arange(5 * 6 * 7, dtype=">i4").reshape(5, 6, 7)
    array = fake_array(values, (2, 3, 4))
    axes = order or (0, 1, 2)
    for index, data in array.chunks.stored.items():
        chunk = np.frombuffer(data, ">i4").reshape(2, 3, 4)
        array.chunks.stored[index] = chunk.transpose(axes).tobytes()
    dtype = DataType("int32", 4, "big", ">i4", np.dtype(">i4"))
    array.metadata = ArrayMetadata(array.metadata.grid, dtype, order=order)
    root = materialise(FakeGroup({"x": array}, {"t": 1}), tmp_path, chunk_separator=separator)
    group = zarr.open_group(str(root), mode="r", zarr_format=2)
    read = group["x"]
    assert isinstance(read, zarr.Array)
    np.testing.assert_array_equal(read[...], values)
    assert dict(group.attrs) == {"t": 1}
    shown = json.loads((root / "x/.zarray").read_text())
    assert shown["order"] == ("F" if order == (2, 1, 0) else "C")
    assert shown["dtype"] == ">i4"
    assert (shown["dimension_separator"], shown["compressor"], shown["filters"]) == (separator, None, None)


@pytest.mark.parametrize("separator", [".", "/"])
def test_p3_missing_chunks_are_absent_and_unlisted(separator: str) -> None:
    array = fake_array(np.ones((4, 4), "u1"), (2, 2))
    del array.chunks.stored[(1, 0)], array.chunks.stored[(1, 1)]
    root = tree(FakeGroup({"x": array}), chunk_separator=separator)
    chunks = {path.decode().removeprefix("/x/") for path in walk(root) if b".z" not in path}
    assert chunks == {f"0{separator}0", f"0{separator}1"}
    directory: Any = root.lookup(b"x")
    for name in (b"1.0", b"0.2", b"0.00", b"0.+0", b"0", b"0.0.0", b".", b"0.", b"0_0"):
        if separator == ".":
            with pytest.raises(NotFound):
                directory.lookup(name)


def test_flat_positions_are_those_that_are_listed() -> None:
    directory: Any = tree(FakeGroup({"x": fake_array(np.ones((3, 5, 2), "u1"), (1, 2, 1))})).lookup(b"x")
    found = [entry for batch in directory.entries() for entry in batch if not entry.name.startswith(b".z")]
    assert len(found) == 3 * 3 * 2 == directory.extent
    for entry in found:
        assert directory.lookup(entry.name).slot == (directory.space, entry.node)


def test_a_scalar_is_called_0(tmp_path: Path) -> None:
    for separator in ("/", "."):
        found = walk(tree(fake_array(np.array(7, "<f8"), ()), chunk_separator=separator))
        assert set(found) == {b"/.zarray", b"/.zattrs", b"/0"}
    assert zarr.open_array(str(materialise(fake_array(np.array(7, "<f8"), ()), tmp_path)), mode="r")[()] == 7.0


@pytest.mark.parametrize(
    ("dtype", "shown"),
    [
        (DataType("bfloat16", 2, "little", "bfloat16", np.dtype("V2")), "|V2"),
        (DataType("int4", 1, None, "int4", np.dtype("V1")), "|V1"),
        (DataType({"name": "raw_bytes", "configuration": {"length_bytes": 16}}, 16, None, "<f16", np.dtype("<f16")), "|V16"),
        (DataType("r24", 3, None, "r24"), "|V3"),
        (DataType("any", 8, "little", "t", np.dtype("<M8[10s]")), "<M8[10s]"),
        (DataType("any", 8, "little", "t", np.dtype("<M8")), "<M8"),
        (DataType("any", 8, "little", "t", np.dtype("<M8[2generic]")), "<M8[2generic]"),
        (DataType("any", 5, None, "t", np.dtype("S5")), "|S5"),
        (
            DataType("any", 11, None, "t", np.dtype([("a", "<i2"), ("b", [("c", ">f4")]), ("d", "u1", (5,))])),
            [["a", "<i2"], ["b", [["c", ">f4"]]], ["d", "|u1", [5]]],
        ),
    ],
)
def test_data_types_are_written_as_numpy_spells_them(dtype: DataType, shown: Any) -> None:
    metadata = ArrayMetadata(ChunkGrid((1,), (1,)), dtype, bytes(dtype.itemsize))
    found = document(FakeArray(metadata, FakeChunks({})))
    assert found["dtype"] == shown
    opaque = isinstance(shown, list) or shown[1] in "SV"
    assert found["fill_value"] == (base64.b64encode(bytes(dtype.itemsize)).decode() if opaque else 0)


@pytest.mark.parametrize(
    ("dtype", "fill", "native", "shown"),
    [
        ("<f4", None, {}, 0.0),
        ("<f4", None, {"attributes.json": {}}, 0.0),
        ("<f4", None, {".zarray": {"fill_value": None}}, None),
        ("<f4", None, {"zarr.json": {}}, None),
        ("<f4", np.float32("nan").tobytes(), {}, "NaN"),
        (">f8", np.array(-np.inf, ">f8").tobytes(), {}, "-Infinity"),
        ("<c8", np.array(1 + 2j, "<c8").tobytes(), {}, [1.0, 2.0]),
        ("<u8", b"\xff" * 8, {}, 2**64 - 1),
        ("|b1", b"\1", {}, True),
        ("<M8[ns]", np.array("NaT", "<M8[ns]").tobytes(), {}, -(2**63)),
        ("<U2", np.array("hi", "<U2").tobytes(), {}, "hi"),
        ("|S2", b"hi", {}, "aGk="),
    ],
)
def test_fill_values_are_null_only_where_the_source_says_so(dtype: str, fill: bytes | None, native: Any, shown: Any) -> None:
    numpy_type = np.dtype(dtype)
    data_type = DataType("any", numpy_type.itemsize, "little", dtype, numpy_type)
    array = FakeArray(ArrayMetadata(ChunkGrid((1,), (1,)), data_type, fill, native=native), FakeChunks({}))
    assert document(array)["fill_value"] == shown


def test_dimension_names_become_an_attribute_where_the_source_has_none() -> None:
    def attributes(**changes: Any) -> dict[str, Any]:
        return document(fake_array(np.ones((2, 2), "u1"), (2, 2), **changes), b"/.zattrs")

    assert attributes(dimension_names=("y", "x"), attributes={"a": 1}) == {"_ARRAY_DIMENSIONS": ["y", "x"], "a": 1}
    own = {"_ARRAY_DIMENSIONS": ["p", "q"]}
    assert attributes(dimension_names=("y", "x"), attributes=own) == own
    assert attributes(dimension_names=("y", None)) == {}


def test_text_has_a_filter(tmp_path: Path) -> None:
    chunks = FakeChunks({(0,): b"\2\0\0\0\2\0\0\0ab\1\0\0\0c"})
    text = DataType("string", 0, None, "|O", None, "vlen-utf8")
    root = FakeGroup({"x": FakeArray(ArrayMetadata(ChunkGrid((3,), (2,)), text, "-"), chunks)})
    array = zarr.open_group(str(materialise(root, tmp_path)), mode="r", zarr_format=2)["x"]
    assert isinstance(array, zarr.Array)
    assert np.asarray(array[...]).tolist() == ["ab", "c", "-"]


def test_names_of_documents_are_not_the_members() -> None:
    names = [".zgroup", ".zattrs", ".zarray", ".zmetadata", "zarr.json"]
    found = walk(tree(FakeGroup({name: FakeGroup({}) for name in names})))
    directories = {path.split(b"/")[1] for path in found if path.count(b"/") == 2}
    assert directories == {b"%2Ezgroup", b"%2Ezattrs", b"%2Ezarray", b"%2Ezmetadata", b"zarr.json"}


def test_chunks_of_several_shapes_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    grid = ChunkGrid((5,), ((2, 3),))
    odd = FakeArray(ArrayMetadata(grid, DataType("uint8", 1, None, "u1", np.dtype("u1"))), FakeChunks({(0,): b"ab"}))
    root = tree(FakeGroup({"odd": odd, "even": fake_array(np.ones(2, "u1"), (2,))}))
    for _ in range(2):
        assert not any(path.startswith(b"/odd") for path in walk(root))
    assert caplog.text.count("/odd is left out of the layout zarr2: Zarr v2 has no chunks of several shapes") == 1
    with pytest.raises(NotFound, match="several shapes"):
        root.lookup(b"odd")


def member_documents(found: dict[bytes, Any]) -> dict[str, Any]:
    """Return the tree's own documents, by path."""
    return {
        path.decode().lstrip("/"): json.loads(data)
        for path, data in found.items()
        if path.rpartition(b"/")[2] in (b".zarray", b".zattrs", b".zgroup")
    }


def test_consolidated_metadata_are_complete_and_true(tmp_path: Path) -> None:
    inner = FakeGroup({"x": fake_array(np.ones((2, 2), "<u2"), (1, 2), dimension_names=("y", "x")), "a/b": FakeGroup({})})
    root = FakeGroup({"g": inner, "l": Link("g"), "dangling": Link("../../nothing")}, {"title": "é"})
    assert b"/.zmetadata" not in walk(tree(root))
    found = walk(tree(root, consolidated=True))
    consolidated = found.pop(b"/.zmetadata")
    assert isinstance(consolidated, bytes)
    whole = json.loads(consolidated)
    assert whole["zarr_consolidated_format"] == 1
    own = member_documents(found)
    assert {path: whole["metadata"].pop(path) for path in own} == own
    linked = {path.replace("g/", "l/", 1) for path in own if path.startswith("g/")}
    assert set(whole["metadata"]) == linked
    del root.members["l"], root.members["dangling"]
    group = zarr.open_consolidated(str(materialise(root, tmp_path, consolidated=True)), zarr_format=2)
    assert group["g/x"].attrs["_ARRAY_DIMENSIONS"] == ["y", "x"]
    assert dict(group.attrs) == {"title": "é"}


def test_p3_consolidated_metadata_do_not_hide_what_cannot_be_read() -> None:
    class Broken(FakeGroup):
        def child(self, name: str) -> Any:
            if name == "bad":
                raise CorruptData("bad document")
            return super().child(name)

    found = walk(tree(FakeGroup({"g": Broken({"bad": FakeGroup({})})}), consolidated=True))
    assert isinstance(found[b"/.zmetadata"], CorruptData)
    assert "g/bad is missing in .zmetadata: bad document" in str(found[b"/.zmetadata"])


def test_consolidated_metadata_have_a_bound() -> None:
    group = FakeGroup({})
    group.members["again"] = Link(".")
    root = tree(group)
    assert isinstance(root, PathDirectory)
    with pytest.raises(TooLarge, match="--consolidated"):
        consolidated_document(root, most_members=5)


@pytest.mark.parametrize(
    "links",
    [
        {"again": "."},  # each path has one link more: the kernel follows 40
        {f"l{i}": f"l{i + 1}/l{i + 1}" for i in range(8)} | {"l8": "."},  # 511 links on the way to one member
    ],
)
def test_p7_links_are_counted_over_a_whole_path(links: dict[str, str]) -> None:
    found = tree(FakeGroup({name: Link(target) for name, target in links.items()}), consolidated=True)
    with pytest.raises(TooDeep, match=r"missing in \.zmetadata: .*more than 40 links"):
        found.lookup(b".zmetadata")


def test_a_link_over_links_is_followed() -> None:
    array = fake_array(np.ones((2, 2), "<u2"), (1, 2))
    deep = FakeGroup({"x": array, "up": Link("../../h//./deep/x"), "gone": Link("x/y"), "none": Link("../nothing/x")})
    circle = {"none1": Link("none2"), "none2": Link("none1"), "none3": Link("none3"), "none4": Link("../../x")}
    root = FakeGroup({"g": FakeGroup({"deep": deep}), "h": Link("g"), "x": Link("h/deep/up"), **circle})
    found = json.loads(content(tree(root, consolidated=True).lookup(b".zmetadata")))["metadata"]
    for folder in ("g/deep", "h/deep"):
        assert {f"{folder}/.zgroup", f"{folder}/x/.zarray", f"{folder}/up/.zarray"} <= set(found)
    assert found["x/.zarray"] == found["g/deep/x/.zarray"]
    assert not any("gone" in name or "none" in name for name in found)


def test_p9_consolidated_metadata_are_those_of_the_time_of_opening() -> None:
    root = FakeGroup({"a": FakeGroup({})})
    directory = tree(root, consolidated=True)
    before: Any = directory.lookup(b".zmetadata")
    root.members["b"] = FakeGroup({})
    with pytest.raises(Stale):
        before.open()
    assert b"b/.zgroup" in content(directory.lookup(b".zmetadata"))
