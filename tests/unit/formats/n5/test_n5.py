"""N5 as its writers leave it: TensorStore, z5, zarr-python 2, and blocks as the Java code makes them."""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import itertools
import json
import lzma
import os
import struct
import tracemalloc
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import codec_samples
import numpy as np
import pytest
import tensorstore as ts
import z5py
from hypothesis import given, settings
from hypothesis import strategies as st
from model_reader import array_at, read_array, split_items
from numcodecs.lz4 import compress as lz4_compress

from fsbridge.config import Config
from fsbridge.errors import CorruptData, NotFound, SetupError, Stale, Unsupported
from fsbridge.formats.documents import Document
from fsbridge.formats.n5 import parse_dataset
from fsbridge.formats.open import open_source
from fsbridge.model import Array, Group, Source
from fsbridge.store import Stat
from fsbridge.store.local import LocalStore

TYPES = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32", "float64"]
TS_COMPRESSIONS: list[dict[str, Any]] = [
    {"type": "raw"},
    {"type": "gzip"},
    {"type": "gzip", "useZlib": True, "level": 3},
    {"type": "bzip2"},
    {"type": "xz"},
    {"type": "zstd", "level": 3},
    *({"type": "blosc", "cname": name, "clevel": 5, "shuffle": s} for name, s in (("lz4", 1), ("zstd", 2), ("blosclz", 0))),
]
SHAPE, BLOCK = (7, 11, 5), (3, 4, 2)


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape, dtype=int)) % 251 - (100 if dtype[0] in "if" else 0)).reshape(shape).astype(dtype)


def open_root(path: Path, opened: list[Source]) -> Group | Array:
    source = open_source(str(path), Config(str(path), ""))
    opened.append(source)
    assert source.format.name == "n5"
    return source.root


def write_ts(path: Path, data: np.ndarray[Any, Any], block: tuple[int, ...], **extra: Any) -> None:
    metadata = {"dimensions": data.shape, "blockSize": block, "dataType": data.dtype.name, **extra}
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(path)}, "metadata": metadata}
    ts.open(spec, create=True).result()[...] = data


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("compression", TS_COMPRESSIONS, ids=lambda c: "-".join(map(str, c.values())))
def test_arrays_of_tensorstore_have_its_metadata_and_values(
    tmp_path: Path, opened: list[Source], dtype: str, compression: dict[str, Any]
) -> None:
    data = numbers(SHAPE, dtype)
    data[:3] = 0  # TensorStore does not store blocks of zeros
    write_ts(tmp_path / "a", data, BLOCK, compression=compression, axes=["x", "y", "z"], units=["nm", "nm", ""])
    array = array_at(open_root(tmp_path, opened), "a")
    assert (array.metadata.shape, array.metadata.grid.edges, array.metadata.order) == (SHAPE, BLOCK, (2, 1, 0))
    assert array.metadata.dtype.name == dtype
    assert array.metadata.dimension_names == ("x", "y", "z")
    assert array.metadata.attributes["units"] == ["nm", "nm", ""]
    assert array.chunks.count() == 18
    assert np.array_equal(read_array(array), data)


@pytest.mark.parametrize("compression", ["raw", "gzip", "bzip2", "xz", "lz4", "blosc", "zstd"])
@pytest.mark.parametrize("dtype", ["uint8", "int32", "float64"])
def test_z5_writes_truncated_edges(tmp_path: Path, opened: list[Source], compression: str, dtype: str) -> None:
    data = numbers(SHAPE, dtype)
    file = z5py.File(str(tmp_path / "c.n5"), "a")
    try:
        dataset = file.create_dataset("g/h/a", shape=SHAPE, chunks=BLOCK, dtype=dtype, compression=compression)
    except RuntimeError:
        pytest.fail(f"z5 without {compression}")
    dataset[...] = data
    dataset.attrs["resolution"] = [4, 4, 40]
    array = array_at(open_root(tmp_path / "c.n5", opened), "g/h/a")
    assert array.metadata.shape == SHAPE[::-1]
    assert array.metadata.attributes == {"resolution": [4, 4, 40]}
    assert np.array_equal(read_array(array).transpose(), data)


# Blocks as the Java code writes them, assembled from the specification's bytes.


def dataset(path: Path, dimensions: list[int], block: list[int], dtype: str, compression: Any = None, **extra: Any) -> Path:
    path.mkdir(parents=True)
    document = {"dataType": dtype, "blockSize": block, "dimensions": dimensions, **extra}
    if compression is not None or not extra:
        document["compression"] = compression or {"type": "raw"}
    (path / "attributes.json").write_text(json.dumps(document))
    return path


def header(sizes: tuple[int, ...], mode: int = 0, elements: int | None = None) -> bytes:
    if mode == 2:
        return struct.pack(">HI", 2, elements)
    plain = struct.pack(f">HH{len(sizes)}I", mode, len(sizes), *sizes)
    return plain if mode == 0 else plain + struct.pack(">I", elements)


def put(path: Path, block: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(block)


def read_all(array: Array, index: tuple[int, ...]) -> bytes:
    info = array.chunks.find(index)
    size = array.chunks.size(index, info)
    data = array.chunks.read_all(index, info, 1 << 26)
    assert len(data) == size
    return bytes(data)


def read_fixed(array: Array, index: tuple[int, ...]) -> bytes:
    size = array.metadata.chunk_bytes(index)
    assert size is not None
    out = bytearray(b"\xee" * size)
    array.chunks.read_into(index, array.chunks.find(index), memoryview(out))
    return bytes(out)


def test_trap_1_object_blocks_have_no_dimensions(tmp_path: Path, opened: list[Source]) -> None:
    path = dataset(tmp_path / "a", [4, 4], [2, 2], "object", {"type": "gzip"})
    payload = b"\xac\xed\x00\x05anything"
    put(path / "1/0", header((), 2, len(payload)) + gzip.compress(payload))
    array = array_at(open_root(tmp_path, opened), "a")
    assert array.metadata.varlength
    assert array.metadata.chunk_bytes((1, 0)) is None
    assert read_all(array, (1, 0)) == payload


def test_trap_1_varlength_blocks_count_elements(tmp_path: Path, opened: list[Source]) -> None:
    path = dataset(tmp_path / "a", [4], [4], "uint16")
    put(path / "0", header((4,), 1, 3) + bytes(range(6)))
    array = array_at(open_root(tmp_path, opened), "a")
    assert array.metadata.varlength
    assert read_all(array, (0,)) == bytes(range(6))


def test_trap_1_string_blocks_count_bytes(tmp_path: Path, opened: list[Source]) -> None:
    path = dataset(tmp_path / "a", [3], [3], "string")
    put(path / "0", header((3,), 1, 10) + bytes.fromhex("61 00 00 77 c3 b6 72 6c 64 00"))
    array = array_at(open_root(tmp_path, opened), "a")
    assert (array.metadata.dtype.name, array.metadata.dtype.serializer) == ("string", "vlen-utf8")
    assert read_array(array).tolist() == ["a", "", "wörld"]


def test_truncated_string_blocks_are_padded_with_empty_strings(tmp_path: Path, opened: list[Source]) -> None:
    path = dataset(tmp_path / "a", [3, 3], [2, 2], "string", {"type": "gzip"})
    for x, y in itertools.product(range(2), range(2)):
        sizes = (2 - x, 2 - y)
        items = [f"{2 * x + i},{2 * y + j}" for j in range(sizes[1]) for i in range(sizes[0])]  # first dimension fastest
        payload = b"".join(item.encode() + b"\0" for item in items)
        put(path / f"{x}/{y}", header(sizes, 1, len(payload)) + gzip.compress(payload))
    array = array_at(open_root(tmp_path, opened), "a")
    assert read_array(array).tolist() == [[f"{x},{y}" for y in range(3)] for x in range(3)]
    assert split_items(read_all(array, (1, 1))) == [b"2,2", b"", b"", b""]


def test_p6_truncated_string_blocks_take_little_more_than_their_encoding(tmp_path: Path, opened: list[Source]) -> None:
    """Each empty string that fills a chunk was an object, twice."""
    count = 1 << 17
    path = dataset(tmp_path / "a", [3, 2, count // 4], [2, 2, count // 4], "string", {"type": "raw"})
    put(path / "1/0/0", header((1, 2, count // 4), 1, count) + b"a\0" * (count // 2))
    array = array_at(open_root(tmp_path, opened), "a")
    tracemalloc.start()
    try:
        data = read_all(array, (1, 0, 0))
        assert tracemalloc.get_traced_memory()[1] < 6 * len(data)
    finally:
        tracemalloc.stop()
    assert data == struct.pack("<I", count) + (b"\1\0\0\0a" + bytes(4)) * (count // 2)


@pytest.mark.parametrize(
    ("payload", "count", "reason"),
    [
        (b"a\0b\0", 4, "items"),
        (b"a\0b\0c", 5, "no end"),
        (b"a\0b\0\xff\0", 6, "utf-8"),
        (b"a\0b\0c\0", 5, "6 bytes|trailing|5"),
    ],
)
def test_damaged_string_blocks_are_corrupt_with_a_reason(
    tmp_path: Path, opened: list[Source], payload: bytes, count: int, reason: str
) -> None:
    path = dataset(tmp_path / "a", [3], [3], "string")
    put(path / "0", header((3,), 1, count) + payload)
    array = array_at(open_root(tmp_path, opened), "a")
    with pytest.raises(CorruptData, match=reason):
        array.chunks.read_all((0,), array.chunks.find((0,)), 1 << 26)


def test_label_multisets_are_known_without_any_block(tmp_path: Path, opened: list[Source]) -> None:
    dataset(tmp_path / "a", [4], [4], "uint8", isLabelMultiset=True, compression={"type": "raw"})
    assert array_at(open_root(tmp_path, opened), "a").metadata.varlength


def test_a_varlength_block_in_an_array_of_fixed_blocks_is_an_error(tmp_path: Path, opened: list[Source]) -> None:
    path = dataset(tmp_path / "a", [8], [4], "uint16")
    put(path / "0", header((4,)) + bytes(8))
    array = array_at(open_root(tmp_path, opened), "a")
    put(path / "1", header((4,), 1, 3) + bytes(6))
    assert not array.metadata.varlength
    with pytest.raises(CorruptData, match="varlength block of 3 elements"):
        read_fixed(array, (1,))
    assert read_fixed(array, (0,)) == bytes(8)


def test_an_array_without_blocks_is_looked_at_again(tmp_path: Path, opened: list[Source]) -> None:
    path = dataset(tmp_path / "a", [8], [4], "uint16")
    root = open_root(tmp_path, opened)
    before = array_at(root, "a")
    put(path / "1", header((4,), 1, 3) + bytes(6))
    assert not before.current()
    after = array_at(root, "a")
    assert after.metadata.varlength
    assert after.version != before.version


def test_p8_a_block_that_the_disk_cannot_read_is_not_its_arrays_error(
    tmp_path: Path, opened: list[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = dataset(tmp_path / "a", [4], [4], "uint16")
    put(path / "0", header((4,), 1, 3) + bytes(6))
    root = open_root(tmp_path, opened)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as failing:
        failing.setattr(LocalStore, "read_range", fail)
        before = array_at(root, "a")
        assert not before.metadata.varlength
        assert before.current()
    assert not before.current()
    assert array_at(root, "a").metadata.varlength


def test_mode_1_with_all_elements_is_an_ordinary_block(tmp_path: Path, opened: list[Source]) -> None:
    path = dataset(tmp_path / "a", [4], [4], "uint16")
    put(path / "0", header((4,), 1, 4) + bytes(range(8)))
    array = array_at(open_root(tmp_path, opened), "a")
    assert not array.metadata.varlength
    assert read_fixed(array, (0,)) == bytes(range(8))


def test_trap_3_edges_of_every_size_mix_in_one_dataset(tmp_path: Path, opened: list[Source]) -> None:
    path = dataset(tmp_path / "a", [5, 5], [3, 3], "uint16", {"type": "gzip"})
    data = np.arange(25, dtype=">u2").reshape(5, 5)  # [y, x]
    for x, y in itertools.product(range(2), range(2)):
        part = data[3 * y : 3 * y + 3, 3 * x : 3 * x + 3]
        if (x, y) == (1, 1):  # padded, as TensorStore writes it; the others truncated, as Java does
            part = np.pad(part, ((0, 1), (0, 1)))
        put(path / f"{x}/{y}", header(part.shape[::-1]) + gzip.compress(part.tobytes()))
    array = array_at(open_root(tmp_path, opened), "a")
    assert np.array_equal(read_array(array).transpose(), data)
    chunk = np.frombuffer(read_fixed(array, (1, 0)), ">u2").reshape(3, 3)
    assert np.array_equal(chunk, np.pad(data[:3, 3:], ((0, 0), (0, 1))))


@pytest.mark.parametrize("itemsize_type", ["uint8", "float16", "float32", "float64", "complex128"])
def test_a_block_smaller_than_its_place_lies_at_the_origin(tmp_path: Path, opened: list[Source], itemsize_type: str) -> None:
    path = dataset(tmp_path / "a", [4, 4, 4], [4, 4, 4], itemsize_type)
    part = np.arange(1, 7).reshape(1, 2, 3).astype(np.dtype(itemsize_type).newbyteorder(">"))
    put(path / "0/0/0", header((3, 2, 1)) + part.tobytes())
    array = array_at(open_root(tmp_path, opened), "a")
    expected = np.zeros((4, 4, 4), part.dtype)
    expected[:1, :2, :3] = part
    assert read_fixed(array, (0, 0, 0)) == expected.tobytes()


java_lz4 = partial(codec_samples.java_lz4, block=64)


def test_trap_2_three_dialects_of_lz4_are_decoded(tmp_path: Path, opened: list[Source]) -> None:
    rows = [bytes(200), bytes(range(200)), b"ab" * 100]
    path = dataset(tmp_path / "a", [200, 9], [200, 1], "uint8", {"type": "lz4", "blockSize": 65536})
    for number, row in enumerate(rows):
        put(path / f"0/{number}", header((200, 1)) + java_lz4(row))
        put(path / f"0/{number + 3}", header((200, 1)) + lz4_compress(row))  # zarr-python 2
        put(path / f"0/{number + 6}", header((200, 1)) + lz4_compress(row)[4:])  # z5
    array = array_at(open_root(tmp_path, opened), "a")
    for number in range(9):
        assert read_fixed(array, (0, number)) == rows[number % 3]


@pytest.mark.parametrize("change", ["checksum", "end mark", "trailing"])
def test_trap_2_java_lz4_is_checked(tmp_path: Path, opened: list[Source], change: str) -> None:
    stream = bytearray(java_lz4(bytes(range(200))))
    if change == "checksum":
        stream[17] ^= 1
    elif change == "end mark":
        del stream[-21:]
    else:
        stream += b"\0"
    path = dataset(tmp_path / "a", [200], [200], "uint8", {"type": "lz4"})
    put(path / "0", header((200,)) + stream)
    array = array_at(open_root(tmp_path, opened), "a")
    with pytest.raises(CorruptData):
        read_fixed(array, (0,))


def members(data: bytes) -> bytes:
    return gzip.compress(data[:5]) + gzip.compress(data[5:])


@pytest.mark.parametrize("use_zlib", [True, False, None])
@pytest.mark.parametrize("stream", [gzip.compress, zlib.compress, members])
def test_gzip_is_what_its_bytes_say(tmp_path: Path, opened: list[Source], use_zlib: bool | None, stream: Any) -> None:
    compression = {"type": "gzip", "level": -1} if use_zlib is None else {"type": "gzip", "useZlib": use_zlib}
    path = dataset(tmp_path / "a", [16], [16], "uint8", compression)
    put(path / "0", header((16,)) + stream(bytes(range(16))))
    assert read_fixed(array_at(open_root(tmp_path, opened), "a"), (0,)) == bytes(range(16))


VERSION_0 = {"raw": bytes, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "lz4": java_lz4}


@pytest.mark.parametrize(("name", "compress"), list(VERSION_0.items()), ids=list(VERSION_0))
def test_version_0_names_its_compression_otherwise(tmp_path: Path, opened: list[Source], name: str, compress: Any) -> None:
    path = dataset(tmp_path / "a", [4], [4], "uint8", compressionType=name)
    put(path / "0", header((4,)) + compress(b"\1\2\3\4"))
    array = array_at(open_root(tmp_path, opened), "a")
    assert read_fixed(array, (0,)) == b"\1\2\3\4"
    assert array.metadata.attributes == {}


def test_the_list_of_codecs_of_version_4_is_read(tmp_path: Path, opened: list[Source]) -> None:
    path = dataset(tmp_path / "a", [4], [4], "uint8", codecs=["n5bytes", {"name": "gzip", "configuration": {"level": 5}}])
    put(path / "0", header((4,)) + gzip.compress(b"\1\2\3\4"))
    assert read_fixed(array_at(open_root(tmp_path, opened), "a"), (0,)) == b"\1\2\3\4"


@pytest.mark.parametrize(
    ("codecs", "error"),
    [
        (["gzip", "n5bytes"], Unsupported),
        (["n5bytes", "n5bytes"], Unsupported),
        ([{"name": "n5bytes", "configuration": {"endian": "little"}}], Unsupported),
        (["n5bytes", 5], CorruptData),
    ],
    ids=str,
)
def test_codecs_that_mean_other_blocks_are_refused(
    tmp_path: Path, opened: list[Source], codecs: list[Any], error: type[Exception]
) -> None:
    dataset(tmp_path / "a", [4], [4], "uint8", codecs=codecs)
    with pytest.raises(error):
        array_at(open_root(tmp_path, opened), "a")


def test_a_compression_may_be_a_name_alone(tmp_path: Path, opened: list[Source]) -> None:
    put(dataset(tmp_path / "a", [4], [4], "uint8", "gzip") / "0", header((4,)) + gzip.compress(b"\1\2\3\4"))
    assert read_fixed(array_at(open_root(tmp_path, opened), "a"), (0,)) == b"\1\2\3\4"


def test_a_block_of_numbers_in_an_array_of_strings_is_corrupt(tmp_path: Path, opened: list[Source]) -> None:
    put(dataset(tmp_path / "a", [3], [3], "string") / "0", header((3,)) + bytes(3))
    array = array_at(open_root(tmp_path, opened), "a")
    with pytest.raises(CorruptData, match="mode 0"):
        read_all(array, (0,))


@pytest.mark.parametrize("compression", [{"type": "jpeg", "quality": 90}, {"type": "shuffle", "elementsize": "x"}])
def test_a_compression_that_cannot_be_decoded_shows_metadata_and_refuses_blocks(
    tmp_path: Path, opened: list[Source], compression: dict[str, Any]
) -> None:
    path = dataset(tmp_path / "a", [4], [4], "uint8", compression)
    put(path / "0", header((4,)) + b"\xff\xd8")
    array = array_at(open_root(tmp_path, opened), "a")
    with pytest.raises(Unsupported, match=compression["type"]):
        read_fixed(array, (0,))


DAMAGED = {
    "empty": b"",
    "cut in the header": header((4, 4))[:7],
    "unknown mode": b"\0\3" + header((4, 4))[2:] + bytes(16),
    "another rank": header((16,)) + bytes(16),
    "larger than the block size": header((5, 4)) + bytes(20),
    "2^32 - 1": header((2**32 - 1, 2**32 - 1)) + bytes(16),
    "too short": header((4, 4)) + bytes(15),
    "too long": header((4, 4)) + bytes(17),
    "object": header((), 2, 16) + bytes(16),
    "varlength": header((4, 4), 1, 2**32 - 1) + bytes(16),
}


@pytest.mark.parametrize("kind", sorted(DAMAGED))
def test_damaged_blocks_are_errors_of_their_own(tmp_path: Path, opened: list[Source], kind: str) -> None:
    path = dataset(tmp_path / "a", [4, 4000], [4, 4], "uint8")
    put(path / "0/0", header((4, 4)) + bytes(range(16)))
    array = array_at(open_root(tmp_path, opened), "a")
    put(path / "0/999", DAMAGED[kind])
    info = array.chunks.find((0, 999))
    with pytest.raises(CorruptData, match="a/0/999"):
        array.chunks.read_into((0, 999), info, memoryview(bytearray(16)))
    with pytest.raises(CorruptData, match="a/0/999"):
        array.chunks.read_range((0, 999), info, 0, 4)
    assert read_fixed(array, (0, 0)) == bytes(range(16))


def test_a_replaced_block_is_stale(tmp_path: Path, opened: list[Source]) -> None:
    path = dataset(tmp_path / "a", [4], [4], "uint8")
    put(path / "0", header((4,)) + bytes(4))
    array = array_at(open_root(tmp_path, opened), "a")
    info = array.chunks.find((0,))
    put(path / "new", header((4,)) + b"\1\2\3\4")
    (path / "new").rename(path / "0")
    with pytest.raises(Stale):
        array.chunks.read_into((0,), info, memoryview(bytearray(4)))
    with pytest.raises(Stale):
        array.chunks.read_range((0,), info, 0, 2)
    (path / "0").unlink()
    with pytest.raises(Stale):
        array.chunks.read_into((0,), info, memoryview(bytearray(4)))
    with pytest.raises(NotFound):
        array.chunks.find((0,))


def test_raw_blocks_above_every_limit_are_read_by_range(tmp_path: Path, opened: list[Source]) -> None:
    path = dataset(tmp_path / "a", [2**31], [2**31], "uint8")
    with open(path / "0", "wb") as file:
        file.write(header((2**31,)))
        file.seek(8 + 2**31 - 3)
        file.write(b"end")
    array = array_at(open_root(tmp_path, opened), "a")
    assert array.metadata.chunk_bytes((0,)) == 2**31 > Config("", "").max_chunk
    assert array.chunks.read_range((0,), array.chunks.find((0,)), 2**31 - 4, 2**31) == b"\0end"


def test_groups_and_datasets_are_distinguished_as_java_does(tmp_path: Path, opened: list[Source]) -> None:
    dataset(tmp_path / "g/a", [4], [4], "uint8")
    (tmp_path / "attributes.json").write_text('{"n5": "4.0.0", "x": {"y": [null, {"c": 5}]}}')
    (tmp_path / "setup0/timepoint0").mkdir(parents=True)
    scales = {"downsamplingFactors": [[1, 1, 1], [2, 2, 1]], "dataType": "uint16", "multiScale": True}
    (tmp_path / "setup0/attributes.json").write_text(json.dumps(scales))
    root: Any = open_root(tmp_path, opened)
    assert root.attributes() == {"x": {"y": [None, {"c": 5}]}}
    assert sorted(child.name for child in root.children()) == ["g", "setup0"]
    assert root.child("setup0").attributes() == scales
    assert [child.name for child in root.child("setup0").children()] == ["timepoint0"]
    assert root.child("g").attributes() == {}
    with pytest.raises(NotFound):
        root.child("nothing")
    with pytest.raises(NotFound):
        root.child("attributes.json")


@pytest.mark.parametrize("version", ["1.0.0", "2.5.1", "4.9.0", "nonsense", 4, None])
def test_versions_below_5_open(tmp_path: Path, opened: list[Source], version: object) -> None:
    (tmp_path / "attributes.json").write_text(json.dumps({"n5": version}))
    open_root(tmp_path, opened)


def test_version_5_is_refused(tmp_path: Path, opened: list[Source]) -> None:
    (tmp_path / "attributes.json").write_text('{"n5": "5.0.0"}')
    with pytest.raises(SetupError, match=r"N5 version 5\.0\.0"):
        open_root(tmp_path, opened)


def test_trap_4_cosem_axes_are_slowest_first(tmp_path: Path, opened: list[Source]) -> None:
    transform = {"axes": ["z", "y", "x"], "scale": [4, 4, 4], "translate": [0, 0, 0], "units": ["nm"] * 3}
    dataset(tmp_path / "a", [4, 4, 4], [4, 4, 4], "uint8", {"type": "raw"}, transform=transform)
    metadata = array_at(open_root(tmp_path, opened), "a").metadata
    assert metadata.dimension_names == ("x", "y", "z")
    assert metadata.attributes["transform"] == transform


def test_a_single_array_can_be_the_root(tmp_path: Path, opened: list[Source]) -> None:
    write_ts(tmp_path / "a", numbers(SHAPE, "uint8"), BLOCK, compression={"type": "gzip"})
    array = array_at(open_root(tmp_path / "a", opened), "")
    assert np.array_equal(read_array(array), numbers(SHAPE, "uint8"))


@pytest.mark.parametrize("rank", [0, 1, 4])
def test_arrays_of_any_rank_have_their_first_axis_fastest(tmp_path: Path, opened: list[Source], rank: int) -> None:
    shape = (3, 4, 5, 6)[:rank]
    data = numbers(shape, "int32") + 1
    write_ts(tmp_path / "a", data, (2, 3, 2, 4)[:rank], compression={"type": "raw"})
    array = array_at(open_root(tmp_path, opened), "a")
    assert array.metadata.order == (tuple(reversed(range(rank))) if rank > 1 else None)
    assert np.array_equal(read_array(array), data)


BAD_DATASETS = [
    {"dimensions": [-1]},
    {"dimensions": [2**63]},
    {"dimensions": [True]},
    {"dimensions": [4.5]},
    {"dimensions": "4"},
    {"blockSize": [0]},
    {"blockSize": [4, 4]},
    {"dataType": 5},
    {"dataType": "uint24"},
    {"dataType": "datetime64[zz]"},
    {"dataType": "datetime64[99999999999ns]"},
    {"compression": 5},
    {"compression": {}},
    {"compression": {"type": 5}},
    {"dimensions": [1] * 33, "blockSize": [1] * 33},
]


@pytest.mark.parametrize("change", BAD_DATASETS, ids=str)
def test_bad_datasets_are_clear_errors(tmp_path: Path, opened: list[Source], change: dict[str, Any]) -> None:
    good = {"dimensions": [4], "blockSize": [4], "dataType": "uint8", "compression": {"type": "raw"}}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a/attributes.json").write_text(json.dumps({**good, **change}))
    (tmp_path / "b/attributes.json").write_text(json.dumps(good))
    root: Any = open_root(tmp_path, opened)
    with pytest.raises((CorruptData, Unsupported), match=r"a/attributes\.json"):
        root.child("a")
    assert root.child("b").metadata.shape == (4,)
    assert {child.name for child in root.children()} == {"a", "b"}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["raw", "gzip", "uint8", "string", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "name", "id"]), inner, max_size=3),
    max_leaves=6,
)


@given(
    changes=st.dictionaries(
        st.sampled_from(["dimensions", "blockSize", "dataType", "compression", "compressionType", "codecs", "transform"]),
        JSON_VALUES,
        min_size=1,
    )
)
@settings(max_examples=200)
def test_any_dataset_document_is_an_array_or_a_clear_error(changes: dict[str, Any]) -> None:
    good = {"dimensions": [4], "blockSize": [4], "dataType": "uint8", "compression": {"type": "raw"}}
    document = Document({**good, **changes}, "here", Stat(False, 0, 0, None), 0)
    with contextlib.suppress(CorruptData, Unsupported):
        metadata, _ = parse_dataset(document)
        assert len(metadata.grid.counts) == len(metadata.shape)
