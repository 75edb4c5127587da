"""The layout n5 over an in-memory model: attributes, reversed axes, blocks, what is left out; z5py and TensorStore read."""

from __future__ import annotations

import itertools
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import fake_model
import numpy as np
import pytest
import tensorstore
import z5py
import zarr
from fake_model import FakeArray, FakeChunks, FakeGroup, FakeSource, fake_array
from tree_walker import content, walk, written
from zarr.codecs import TransposeCodec

from fsbridge.asking import as_of
from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import NotFound, SetupError, Stale, Unsupported
from fsbridge.formats.dtypes import endian
from fsbridge.layouts import root_directory
from fsbridge.layouts.directories import PathDirectory
from fsbridge.layouts.members import Context, SourceMember
from fsbridge.layouts.n5 import N5, BlockListings
from fsbridge.layouts.n5.documents import array_document
from fsbridge.metadata import ArrayMetadata, ChunkGrid, DataType
from fsbridge.mount.lifecycle import open_tree

tree = partial(fake_model.tree, layout="n5")


def materialise(root: Any, folder: Path) -> Path:
    return written(tree(root), folder)


def attributes(root: Any, path: bytes = b"/x/attributes.json") -> dict[str, Any]:
    data = walk(tree(root))[path]
    assert isinstance(data, bytes)
    found: dict[str, Any] = json.loads(data)
    return found


def by_tensorstore(path: Path) -> Any:
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": f"{path}/"}}
    return tensorstore.open(spec, open=True, read=True).result()


@pytest.mark.parametrize("byte_order", ["<", ">"])
@pytest.mark.parametrize("kind", ["u1", "i2", "u4", "f4", "f8", "i8"])
@pytest.mark.parametrize("order", [None, (2, 1, 0), (1, 2, 0)])
def test_readers_see_the_source_with_reversed_axes(
    tmp_path: Path, kind: str, byte_order: str, order: tuple[int, ...] | None
) -> None:
    values = np.arange(5 * 6 * 7).astype(byte_order + kind).reshape(5, 6, 7)
    array = fake_array(values, (2, 3, 4))
    axes = order or (0, 1, 2)
    for index, data in array.chunks.stored.items():
        array.chunks.stored[index] = np.frombuffer(data, values.dtype).reshape(2, 3, 4).transpose(axes).tobytes()
    dtype = DataType(values.dtype.name, values.dtype.itemsize, endian(values.dtype), kind, values.dtype)
    array.metadata = ArrayMetadata(array.metadata.grid, dtype, order=order)
    root = materialise(FakeGroup({"g": FakeGroup({"x": array})}), tmp_path / "c.n5")
    in_n5 = values if order == (2, 1, 0) else values.T  # its first dimension is the fastest already
    with z5py.File(str(root), "r", use_zarr_format=False) as file:
        np.testing.assert_array_equal(file["g/x"][...], in_n5.T)
    np.testing.assert_array_equal(by_tensorstore(root / "g/x").read().result(), in_n5)


def test_tensorstore_reads_arrays_of_one_dimension_and_of_none(tmp_path: Path) -> None:
    values = np.arange(5, dtype="<u2")
    root = materialise(FakeGroup({"x": fake_array(values, (2,)), "s": fake_array(np.array(3, "<i4"), ())}), tmp_path)
    assert (root / "x/2").read_bytes() == bytes.fromhex("0000 0001 00000001 0004")
    assert (root / "s/0").read_bytes() == bytes.fromhex("0000 0000 00000003")
    np.testing.assert_array_equal(by_tensorstore(root / "x").read().result(), values)
    assert by_tensorstore(root / "s").read().result() == 3


def test_p8_a_resolution_that_no_double_holds_is_none() -> None:
    array = fake_array(np.zeros((2, 2), "<u2"), (2, 2), attributes={"resolution": [10**400, 2]})
    described = json.loads(array_document(array.metadata, False))
    assert "resolution" not in described
    assert described["resolution_"] == [10**400, 2]


def test_p3_absent_blocks_are_unlisted_and_zeros() -> None:
    array = fake_array(np.ones((4, 6), "<u2"), (2, 2))
    for index in ((0, 1), (1, 1), (1, 2)):
        del array.chunks.stored[index]
    root = tree(FakeGroup({"x": array}))
    assert {path for path in walk(root) if path.startswith(b"/x/")} == {
        b"/x/attributes.json", b"/x/0/0", b"/x/0/1", b"/x/2/0",
    }  # fmt: skip
    directory: Any = root.lookup(b"x")
    with pytest.raises(NotFound):
        directory.lookup(b"1").lookup(b"0")
    with pytest.raises(NotFound):
        directory.lookup(b"3")


@pytest.mark.parametrize("kind", ["<i2", ">i2"])
def test_a_fill_value_that_is_not_zero_fills_blocks_that_open_by_name(tmp_path: Path, kind: str) -> None:
    values = np.full((3, 5), 7, kind)
    array = fake_array(values, (2, 2))
    dtype = DataType("int16", 2, endian(values.dtype), kind, values.dtype)
    array.metadata = ArrayMetadata(array.metadata.grid, dtype, fill=np.array(-2, kind).tobytes())
    del array.chunks.stored[(1, 2)], array.chunks.stored[(0, 0)]
    root = FakeGroup({"x": array})
    shown = walk(tree(root))
    assert b"/x/2/1" not in shown
    directory: Any = tree(root).lookup(b"x")
    corner = directory.lookup(b"2").lookup(b"1")
    assert content(corner, 3) == bytes.fromhex("0000 0002 00000001 00000001 fffe")
    materialise(root, tmp_path)
    for x, y in ((2, 1), (0, 0)):
        file = tmp_path / f"x/{x}/{y}"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content(directory.lookup(b"%d" % x).lookup(b"%d" % y), 5))
    values[:2, :2], values[2:, 4:] = -2, -2
    np.testing.assert_array_equal(by_tensorstore(tmp_path / "x").read().result(), values.T)


@pytest.mark.parametrize("written", ["nothing", "a corner"])
@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "form", [{}, {"shards": (4, 4)}, {"zarr_format": 2}, {"chunk_key_encoding": {"name": "v2", "separator": "/"}}]
)
def test_p12_an_array_without_a_directory_of_chunks_is_its_fill_value(
    form: dict[str, Any], order: str, others: bool, written: str, tmp_path: Path
) -> None:
    turned: dict[str, Any] = {"order": order} if form.get("zarr_format") == 2 else {}
    if order == "F" and not turned:
        turned = {"filters": TransposeCodec(order=(1, 0))}
    array = zarr.create_array(tmp_path / "a", shape=(5, 9), chunks=(2, 2), dtype="i2", fill_value=3, **form, **turned)
    if written == "a corner":
        array[4, 8] = 5
    config = Config(str(tmp_path / "a"), "/nowhere", layout="n5", allow_other=others)
    shown = open_tree(config)
    try:
        attributes = json.loads(content(shown.root.lookup(b"attributes.json"), 1 << 20))
        values = np.zeros(attributes["dimensions"], "i2")
        for cell in itertools.product(*(range(-(-extent // 2)) for extent in values.shape)):
            block: Any = shown.root
            for coordinate in cell:
                block = block.lookup(b"%d" % coordinate)
            here = tuple(slice(2 * coordinate, 2 * coordinate + 2) for coordinate in cell)
            values[here] = np.frombuffer(content(block, 20), ">i2", offset=12).reshape(values[here].shape[::-1]).T
    finally:
        shown.close()
    expected = np.asarray(array[:])
    np.testing.assert_array_equal(values, expected if values.shape == expected.shape else expected.T)


def test_p9_a_filled_block_is_stale_once_it_is_stored() -> None:
    array = fake_array(np.full((2, 2), 7, "<i2"), (1, 2), fill=b"\1\0")
    stored = array.chunks.stored.pop((0, 0))
    directory: Any = tree(FakeGroup({"x": array})).lookup(b"x")
    file = directory.lookup(b"0").lookup(b"0")
    pinned, handle = file.pinned, file.open()
    filled = bytes(handle.read(0, 100))
    array.chunks.stored[(0, 0)] = stored
    assert bytes(handle.read(0, 100)) == filled, "one version, as when it was opened"
    with pytest.raises(Stale):
        pinned.open()
    now = directory.lookup(b"0").lookup(b"0").open()
    assert bytes(now.read(0, 100))[12:] == b"\0\7\0\7"
    assert now.version != handle.version
    pinned = directory.lookup(b"0").lookup(b"0").pinned
    del array.chunks.stored[(0, 0)]
    with pytest.raises(Stale):
        pinned.open()


def test_what_n5_cannot_hold_is_left_out_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    text = ArrayMetadata(ChunkGrid((1,), (1,)), DataType("string", 0, None, "|O", None, "vlen-utf8"))
    odd = ArrayMetadata(ChunkGrid((5,), ((2, 3),)), DataType("uint8", 1, None, "u1", np.dtype("u1")))
    names = ("bool", "complex64", "float16", "S3", "i2,f4", "m8[s]")
    members = {name: fake_array(np.zeros(2, name), (2,)) for name in names}
    root = FakeGroup({**members, "text": FakeArray(text, FakeChunks({})), "odd": FakeArray(odd, FakeChunks({}))})
    directory = tree(root)
    for _ in range(2):
        assert set(walk(directory)) == {b"/attributes.json"}
    assert caplog.text.count("is left out of the layout n5") == len(root.members)
    for name in root.members:
        with pytest.raises(NotFound, match="left out"):
            directory.lookup(name.encode())


def test_a_root_that_n5_cannot_hold_is_not_mounted() -> None:
    flags = fake_array(np.zeros(2, "bool"), (2,))
    with pytest.raises(SetupError, match="N5 has no data type"):
        tree(flags)
    config = Config("fake", "/mnt", layout="zarr3,n5")
    root = root_directory(FakeSource(flags), config, ChunkCache(config.cache_size))
    found = walk(root)
    assert isinstance(found[b"/n5"], Unsupported)
    assert isinstance(found[b"/zarr3/c/0"], bytes)


def test_attributes_about_axes_are_reversed_with_the_axes(tmp_path: Path) -> None:
    own = {
        "axes": ["z", "y"], "units": ["nm", "um"], "resolution": [40, 4.5], "offset": [1, 2], "scales": [[1, 2], [3, 4]],
        "downsamplingFactors": [2, 1], "pixelResolution": {"unit": "um", "dimensions": [4, 5]}, "other": [1, 2],
        "_ARRAY_DIMENSIONS": ["z", "y"],
    }  # fmt: skip
    array = fake_array(np.ones((4, 6), "<u2"), (2, 2), attributes=own)
    found = attributes(FakeGroup({"x": array}))
    assert {name: found[name] for name in own} == {
        "axes": ["y", "z"], "units": ["um", "nm"], "resolution": [4.5, 40], "offset": [2, 1], "scales": [[2, 1], [4, 3]],
        "downsamplingFactors": [1, 2], "pixelResolution": {"unit": "um", "dimensions": [5, 4]}, "other": [1, 2],
        "_ARRAY_DIMENSIONS": ["z", "y"],
    }  # fmt: skip
    store = by_tensorstore(materialise(FakeGroup({"x": array}), tmp_path) / "x")
    assert store.domain.labels == ("y", "z")
    assert [unit.multiplier for unit in store.dimension_units] == [4.5, 40]
    array.metadata = ArrayMetadata(array.metadata.grid, array.metadata.dtype, order=(1, 0), attributes=own)
    kept = attributes(FakeGroup({"x": array}))
    assert {name: kept[name] for name in own} == {**own, "_ARRAY_DIMENSIONS": ["y", "z"]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("resolution", -1.0),
        ("units", "nm"),
        ("axes", ["x"]),
        ("axes", ["x", "x"]),
        ("axes", [{"name": "x"}, {"name": "y"}]),
        ("units", [1, 2]),
        ("resolution", [1, "NaN"]),
        ("resolution", [True, 2]),
        ("dimensions", [1, 2]),
        ("compression", "x"),
        ("n5", 7),
    ],
)
def test_attributes_that_n5_readers_take_for_something_else_get_another_name(tmp_path: Path, name: str, value: Any) -> None:
    array = fake_array(np.ones((4, 6), "<u2"), (2, 2), attributes={name: value, f"{name}_": 1})
    group = FakeGroup({"x": array}, {name: value})
    found = attributes(group)
    assert found[f"{name}__"] == value
    assert found[f"{name}_"] == 1
    assert by_tensorstore(materialise(group, tmp_path) / "x").read().result().shape == (6, 4)
    structural = name in ("dimensions", "compression", "n5")
    in_group = attributes(group, b"/attributes.json")
    assert in_group[f"{name}_" if structural else name] == value
    assert in_group["n5"] == "2.0.0"


def test_dimension_names_become_axes() -> None:
    def axes(*names: str | None) -> Any:
        array = fake_array(np.ones((4, 6), "<u2"), (2, 2), dimension_names=names)
        return attributes(FakeGroup({"x": array})).get("axes")

    assert axes("z", "y") == ["y", "z"]
    assert axes(None, "y") == ["y", ""]
    assert axes(None, None) is None
    assert axes("y", "y") is None


def test_an_n5_source_keeps_its_own_document() -> None:
    own = {
        "dimensions": [6, 4], "compression": {"type": "gzip", "level": 3}, "blockSize": [2, 2], "dataType": "uint16",
        "axes": ["x", "y"], "resolution": 4, "n5": "4.0.0", "codecs": [1],
    }  # fmt: skip
    array = fake_array(np.ones((6, 4), ">u2"), (2, 2))
    dtype = DataType("uint16", 2, "big", "uint16", np.dtype(">u2"))
    array.metadata = ArrayMetadata(array.metadata.grid, dtype, order=(1, 0), native={"attributes.json": own})

    class N5Group(FakeGroup):
        def native(self) -> Any:
            return {"attributes.json": {"n5": "3.1.0", "k": 1}}

    root = N5Group({"x": array, "g": N5Group({})})
    assert attributes(root) == {**own, "compression": {"type": "raw"}}
    assert attributes(root, b"/attributes.json") == attributes(root, b"/g/attributes.json") == {"n5": "3.1.0", "k": 1}
    old = {"dimensions": [6, 4], "compressionType": "gzip", "blockSize": [2, 2], "dataType": "uint16"}
    array.metadata = ArrayMetadata(array.metadata.grid, dtype, order=(1, 0), native={"attributes.json": old})
    raw = {name: value for name, value in old.items() if name != "compressionType"}
    assert attributes(root) == {**raw, "compression": {"type": "raw"}}


@pytest.mark.parametrize("kept", [2_000_000, 3])
def test_listings_by_reversed_axes_show_each_stored_block(kept: int) -> None:
    """The walk through the store is kept, or it is too long for that."""
    array = fake_array(np.ones((4, 5, 6), "u1"), (1, 1, 1))
    rng = np.random.default_rng(3)
    for index in list(array.chunks.stored):
        if rng.random() < 0.8:
            del array.chunks.stored[index]
    config = Config("fake", "/mnt", metadata_ttl=1.0)
    context = Context(FakeSource(array).format_at, config, ChunkCache(config.cache_size))
    directory = PathDirectory(N5(BlockListings(kept, batch=2)), SourceMember(context, lambda: array))
    expected = {"/".join(map(str, index[::-1])).encode() for index in array.chunks.stored}
    found = {path.lstrip(b"/") for path in walk(directory)} - {b"attributes.json"}
    assert found == expected
    first = [entry.name for batch in directory.entries() for entry in batch if entry.attrs.kind == "directory"]
    assert set(first) == {name.split(b"/")[0] for name in expected}


@pytest.mark.parametrize("mtime_ns", [-(2**70), 7, 2**63 - 1, 2**63, 2**70])
def test_p2_times_of_any_century_are_listed(mtime_ns: int) -> None:
    """Times may need more than the 64 bits in which most times of a walk are kept."""

    class Dated(FakeChunks):
        def scan(self, prefix: Any) -> Any:
            for batch in super().scan(prefix):
                yield [(i, mtime_ns) for i, _ in batch]

    array = fake_array(np.ones((4, 6), "<u2"), (2, 2))
    array.chunks = Dated(array.chunks.stored)
    root: Any = tree(array)
    directory = root.lookup(b"2")
    found = [(entry.name, entry.attrs.mtime_ns) for batch in directory.entries() for entry in batch]
    assert found == [(b"0", mtime_ns), (b"1", mtime_ns)]


@pytest.mark.parametrize("extent", [1 << 20, 1 << 31, 1 << 32, 1 << 40])
def test_p3_blocks_of_grids_beyond_64_bits_are_listed(extent: int) -> None:
    array = fake_array(np.ones((1, 1), "<u2"), (1, 1))
    array.metadata = ArrayMetadata(ChunkGrid((extent, extent), (1, 1)), array.metadata.dtype)
    last, data = extent - 1, array.chunks.stored[0, 0]
    array.chunks.stored = dict.fromkeys([(0, 0), (5, last), (last, 3), (last, last)], data)
    shown = {path for path in walk(tree(FakeGroup({"x": array}))) if b"json" not in path}
    assert shown == {b"/x/0/0", b"/x/%d/5" % last, b"/x/3/%d" % last, b"/x/%d/%d" % (last, last)}


def test_a_walk_is_kept_for_as_long_as_a_listing_may_be_old() -> None:
    array = fake_array(np.ones((3, 4, 5), "u1"), (1, 1, 1))
    scanned: list[Any] = []

    class Watched(FakeChunks):
        def scan(self, prefix: Any) -> Any:
            scanned.append(prefix)
            return super().scan(prefix)

    array.chunks = Watched(array.chunks.stored)
    for moment, walks in ((0.0, 1), (math.inf, 1 + 5 + 5 * 4)):
        directory: Any = tree(FakeGroup({"x": array})).lookup(b"x")
        scanned.clear()
        with as_of(moment):
            assert len(walk(directory)) == 61
        assert len(scanned) == walks * (1 + 3 + 12)


def test_sizes_are_exact_in_listings() -> None:
    array = fake_array(np.ones((3, 4, 5), "<u2"), (2, 3, 2))
    directory: Any = tree(FakeGroup({"x": array})).lookup(b"x")
    for x, y in itertools.product(range(3), range(2)):
        inner = directory.lookup(b"%d" % x).lookup(b"%d" % y)
        for batch in inner.entries():
            for entry in batch:
                assert entry.attrs.size == len(content(inner.lookup(entry.name)))
                assert inner.lookup(entry.name).slot == (inner.space, entry.node)


@pytest.mark.parametrize("order", [None, (1, 2, 0)])
def test_a_block_that_was_read_ahead_is_decoded_once_and_converted(order: tuple[int, ...] | None) -> None:
    array = fake_array(np.arange(5 * 6 * 7, dtype="<u2").reshape(5, 6, 7), (4, 4, 4))
    array.metadata = ArrayMetadata(array.metadata.grid, array.metadata.dtype, order=order)
    directory: Any = tree(FakeGroup({"x": array})).lookup(b"x")
    for place in ((0, 0, 0), (1, 1, 1)):
        node = directory.lookup(b"%d" % place[0]).lookup(b"%d" % place[1]).lookup(b"%d" % place[2])
        whole = content(node)
        space, position = node.slot
        space.chunks.cache.clear()
        array.chunks.decoded.clear()
        assert space.prefetch([position]) is None
        assert bytes(node.open().read(0, len(whole))) == whole
        assert bytes(node.open().read(len(whole) - 7, 100)) == whole[-7:]
        assert len(array.chunks.decoded) == 1
