"""Zarr v2 as zarr-python 3, TensorStore and z5 write it, and documents as other writers leave them.

zarr-python 2's own stores are in `programs/test_zarr_python_2.py`, types and fill values in `test_types.py`.
"""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import tensorstore as ts
import z5py
import zarr
from hypothesis import example, given, settings
from hypothesis import strategies as st
from model_reader import array_at, read_array, read_bytes
from zarr2_documents import GOOD, open_root, put

from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, Unsupported
from fsbridge.formats.documents import Document
from fsbridge.formats.keyed.hierarchy import PLAIN
from fsbridge.formats.zarr2 import parse_array
from fsbridge.formats.zarr2.types import parse_fill
from fsbridge.model import Array, Source
from fsbridge.store import Stat

SHAPE, CHUNKS = (7, 11, 5), (3, 4, 2)


def numbers(dtype: str) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(SHAPE)) % 251 - (100 if dtype[1] in "if" else 0)).reshape(SHAPE).astype(dtype)


@pytest.mark.parametrize(
    "codec", [numcodecs.JSON(), numcodecs.MsgPack(), numcodecs.VLenUTF8()], ids=lambda codec: codec.codec_id
)
def test_p12_objects_in_fortran_order_are_refused_except_in_one_row(
    tmp_path: Path, opened: list[Source], codec: Any
) -> None:
    """Documents are in C order anyway, and zarr-python 2 reads others than it writes: refused, except a single row."""
    for name, shape, refused in (("square", (2, 3), codec.codec_id != "vlen-utf8"), ("row", (1, 3), False)):
        words = np.array(list("abcdef"), object)[: np.prod(shape)].reshape(shape)
        stored = bytes(codec.encode(np.asarray(words, order="F")))
        changes = {"shape": shape, "chunks": shape, "dtype": "|O", "order": "F", "filters": [codec.get_config()]}
        array = open_root(put(tmp_path / name, {**changes, "fill_value": ""}, {"0.0": stored}), opened)
        assert (array.metadata.refused is not None) == refused
        if refused:
            with pytest.raises(Unsupported, match="Fortran"):
                read_array(array)
        else:
            assert read_array(array).tolist() == words.tolist()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize("dtype", ["|b1", "|u1", "<i2", ">u4", "<f4", ">f8", "<c8", ">c16", "<M8[ms]", "<f2"])
def test_arrays_of_zarr_python_3_have_its_metadata_and_values(
    tmp_path: Path, opened: list[Source], order: Any, separator: Any, dtype: str
) -> None:
    group = zarr.open_group(str(tmp_path / "s.zarr"), mode="w", zarr_format=2, attributes={"a": float("nan")})
    array = group.create_array(
        "x/a",
        shape=SHAPE,
        chunks=CHUNKS,
        dtype=dtype,
        order=order,
        chunk_key_encoding={"name": "v2", "separator": separator},
        attributes={"_ARRAY_DIMENSIONS": ["z", "y", "x"]},
    )
    data = numbers(dtype)
    array[:4] = data[:4]
    seen = array_at(open_root(tmp_path / "s.zarr", opened), "x/a")
    assert seen.metadata.dimension_names == ("z", "y", "x")
    assert seen.metadata.order == ((2, 1, 0) if order == "F" else None)
    assert seen.metadata.dtype.numpy == np.dtype(dtype)
    assert seen.chunks.count() == 18
    written = array[...]
    assert isinstance(written, np.ndarray)
    assert read_array(seen).tobytes() == written.astype(dtype).tobytes()


TS_COMPRESSORS: list[Any] = [
    None,
    {"id": "zlib", "level": 3},
    {"id": "bz2", "level": 1},
    {"id": "zstd", "level": 3},
    {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1},
]


@pytest.mark.parametrize("compressor", TS_COMPRESSORS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_tensorstore_have_its_values(tmp_path: Path, opened: list[Source], compressor: Any, order: str) -> None:
    data = numbers(">i2")
    metadata = {"shape": SHAPE, "chunks": CHUNKS, "dtype": ">i2", "compressor": compressor, "order": order, "fill_value": 7}
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(tmp_path / "deep/a")}, "metadata": metadata}
    ts.open(spec, create=True).result()[:3] = data[:3]
    data[3:] = 7
    array = array_at(open_root(tmp_path, opened), "deep/a")  # TensorStore writes no group documents
    assert np.array_equal(read_array(array), data)


def test_structs_of_tensorstore_need_no_fill_value(tmp_path: Path, opened: list[Source]) -> None:
    metadata = {"shape": [4], "chunks": [4], "dtype": [["a", ">i2"], ["b", "<f4"]], "compressor": None, "fill_value": None}
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(tmp_path)}, "metadata": metadata, "field": "a"}
    ts.open(spec, create=True).result()[...] = np.arange(1, 5, dtype="i2")
    array = array_at(open_root(tmp_path, opened), "")
    assert array.metadata.dtype.name["name"] == "structured"
    assert read_array(array)["a"].tolist() == [1, 2, 3, 4]
    assert array.metadata.fill is None


@pytest.mark.parametrize("compression", ["raw", "blosc", "zlib", "bzip2"])
def test_z5_fill_values_are_floats(tmp_path: Path, opened: list[Source], compression: str) -> None:
    file = z5py.File(str(tmp_path / "s.zarr"), "a", use_zarr_format=True)
    file.create_dataset("a", shape=SHAPE, chunks=CHUNKS, dtype="int32", compression=compression)[:3] = numbers("<i4")[:3]
    array = array_at(open_root(tmp_path / "s.zarr", opened), "a")
    assert isinstance(array.metadata.native[".zarray"]["fill_value"], float | int)
    assert np.array_equal(read_array(array)[:3], numbers("<i4")[:3])


@pytest.mark.parametrize("dtype", [[("a", "<i4"), ("b", "<f8")], [("a", ">i2"), ("b", "S3")], "S4", "<U3"])
def test_structs_and_texts_of_zarr_python_3_keep_their_bytes(tmp_path: Path, opened: list[Source], dtype: Any) -> None:
    data = np.zeros(5, dtype)
    data[...] = [(i, i) if data.dtype.names else str(i) for i in range(5)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.create_array(str(tmp_path / "a"), data=data, chunks=(2,), zarr_format=2)
    seen = read_array(array_at(open_root(tmp_path / "a", opened), ""))
    assert seen.astype(data.dtype).tobytes() == data.tobytes()


def test_strings_of_zarr_python_3_may_have_any_length(tmp_path: Path, opened: list[Source]) -> None:
    data = np.array(["a", "", "wörld"], dtype=np.dtypes.StringDType())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = zarr.create_array(str(tmp_path / "a"), shape=(5,), chunks=(3,), dtype=str, zarr_format=2, fill_value="x")
        array[:3] = data
    assert read_array(array_at(open_root(tmp_path / "a", opened), "")).tolist() == ["a", "", "wörld", "x", "x"]


@pytest.mark.parametrize("dtype", ["<U3", ">U3", "|S3", "|V3"])
def test_p12_texts_of_fixed_length_that_zarr_python_3_0_took_for_objects(
    tmp_path: Path, opened: list[Source], dtype: str
) -> None:
    """zarr-python 3.0.0 to 3.0.10 writes these types with an object codec."""
    text = np.dtype(dtype).kind == "U"
    items = ["a", "", "b\u2603", "abc"] if text else [b"a\0\0", b"\0\0\0", b"bc\xff", b"abc"]
    codec = numcodecs.VLenUTF8() if text else numcodecs.VLenBytes()
    change = {
        "dtype": dtype,
        "filters": [codec.get_config()],
        "shape": [6],
        "chunks": [4],
        "fill_value": "" if text else None,
    }
    chunk = bytes(codec.encode(np.array(items, object)))
    found = open_root(put(tmp_path, change, {"0": chunk}), opened)
    assert found.metadata.dtype.numpy == np.dtype(dtype)
    assert read_array(found).tobytes() == np.array([*items, *items[1:2] * 2], dtype).tobytes()
    for damaged in (chunk[:-1], chunk + b"\0", chunk.replace(b"abc", b"abcd").replace(b"\3\0\0\0ab", b"\4\0\0\0ab")):
        (tmp_path / "0").write_bytes(damaged)
        with pytest.raises(CorruptData, match="vlen"):
            read_array(found)


def test_trap_15_unknown_parameters_are_ignored(tmp_path: Path, opened: list[Source]) -> None:
    data = np.arange(4, dtype="<i4")
    compressors: list[tuple[dict[str, Any], Any]] = [
        ({"id": "lzma", "preset": 6, "delta": 1}, numcodecs.LZMA()),  # GDAL 3.10
        ({"id": "zstd", "level": 1, "checksum": False, "nthreads": 3}, numcodecs.Zstd()),
        ({"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0, "typesize": 4}, numcodecs.Blosc()),
    ]
    for number, (config, codec) in enumerate(compressors):
        path = tmp_path / str(number)
        put(path, {"chunks": [4], "compressor": config}, {"0": bytes(codec.encode(data))})
        assert np.array_equal(read_array(array_at(open_root(path, opened), "")), data)


@pytest.mark.parametrize("dtype", ["<f4", "<i8", "<f2", "<u2"])
def test_optional_codecs_of_numcodecs_decode_as_it_does(tmp_path: Path, opened: list[Source], dtype: str) -> None:
    """pcodec and zfpy as compressors of whole arrays, as numcodecs encodes them.

    They are refused if filters change the type.
    """
    data = numbers(dtype)[:3, :4, :2].copy()
    codecs = [numcodecs.PCodec()] + ([numcodecs.ZFPY(mode=3, precision=64)] if dtype in ("<f4", "<i8") else [])
    for codec in codecs:
        config = {"dtype": dtype, "shape": [3, 4, 2], "chunks": [3, 4, 2], "compressor": codec.get_config()}
        put(tmp_path / codec.codec_id, config, {"0.0.0": bytes(codec.encode(data))})
        array = open_root(tmp_path / codec.codec_id, opened)
        assert array.metadata.codec == codec.codec_id
        assert read_array(array).tobytes() == np.asarray(codec.decode(codec.encode(data))).tobytes()
    put(tmp_path / "f", {"compressor": {"id": "pcodec"}, "filters": [{"id": "delta", "dtype": "<i4"}]}, {"0": b"x"})
    assert "needs the type of the elements" in open_root(tmp_path / "f", opened).metadata.refused


def test_unknown_codecs_are_refused_by_name(tmp_path: Path, opened: list[Source]) -> None:
    put(tmp_path / "a", {"compressor": {"id": "jpeg2k", "level": 4}}, {"0": b"x"})
    put(tmp_path / "b", {"filters": [{"id": "secret"}]}, {"0": b"x"})
    put(tmp_path / "c", {"compressor": "gzip"}, {"0": b"x"})
    root = open_root(tmp_path, opened)
    for name, codec in (("a", "jpeg2k"), ("b", "secret")):
        array = root.child(name)
        with pytest.raises(Unsupported, match=codec):
            array.chunks.read_into((0,), array.chunks.find((0,)), memoryview(bytearray(8)))
    with pytest.raises(CorruptData, match="compressor is a string"):
        root.child("c")


def test_trap_12_zgroup_and_zattrs_are_not_needed(tmp_path: Path, opened: list[Source]) -> None:
    put(tmp_path / "g/h/a", {}, {"0": bytes(8)})
    (tmp_path / "g/.zattrs").write_text('{"x": 1}')
    root = open_root(tmp_path, opened)
    assert root.attributes() == {}
    assert [child.name for child in root.children()] == ["g"]
    assert root.child("g").attributes() == {"x": 1}
    assert root.child("g").native() == {".zattrs": {"x": 1}}
    assert array_at(root, "g/h/a").metadata.dimension_names is None


def test_attributes_may_come_later(tmp_path: Path, opened: list[Source]) -> None:
    put(tmp_path / "a", {})
    root = open_root(tmp_path, opened)
    before = array_at(root, "a")
    (tmp_path / "a/.zattrs").write_text('{"_ARRAY_DIMENSIONS": ["t"]}')
    assert not before.current()
    after = array_at(root, "a")
    assert after.metadata.dimension_names == ("t",)
    assert after.version != before.version


def test_nczarr_extra_documents_are_ignored(tmp_path: Path, opened: list[Source]) -> None:
    put(tmp_path / "a", {"dtype": ">S1", "fill_value": "\0", "_NCZARR_ARRAY": {"dimrefs": ["/x"]}}, {"0": b"ab"})
    for name in (".nczarr", ".nczgroup", ".nczattr", "a/.nczarray", "a/.nczvar"):
        (tmp_path / name).write_text("{}")
    (tmp_path / ".zgroup").write_text('{"zarr_format": 2, "_NCZARR_GROUP": {}}')
    (tmp_path / "a/.zattrs").write_text('{"_ARRAY_DIMENSIONS": ["x"], "_nczarr_array": {"storage": "chunked"}}')
    root = open_root(tmp_path, opened)
    assert [child.name for child in root.children()] == ["a"]
    assert read_array(array_at(root, "a")).tolist() == [b"a", b"b", b"", b""]


def test_java_n5_zarr_spells_things_as_strings(tmp_path: Path, opened: list[Source]) -> None:
    change = {"fill_value": "7", "filters": [], "compressor": {}, "dimension_separator": ""}
    put(tmp_path, {**change, "shape": [4, 4], "chunks": [2, 2]}, {"0/1": bytes(16)})
    assert read_array(array_at(open_root(tmp_path, opened), "")).tolist() == [[7, 7, 0, 0]] * 2 + [[7] * 4] * 2


def test_nczarr_shuffles_whole_elements(tmp_path: Path, opened: list[Source]) -> None:
    """netCDF-C 4.10 writes `elementsize: 0`. These are its bytes, which it reads as 1.5 everywhere."""
    shuffle, compressor = {"id": "shuffle", "elementsize": 0}, {"id": "zlib", "level": 4}
    change = {"shape": [3, 5], "chunks": [3, 5], "dtype": "<f4", "fill_value": "NaN"}
    chunk = bytes.fromhex("785e6360c0070ea0027b54000020930ef2")
    put(tmp_path, {**change, "compressor": compressor, "filters": [shuffle]}, {"0.0": chunk})
    assert read_array(array_at(open_root(tmp_path, opened), "")).tolist() == [[1.5] * 5] * 3


@pytest.mark.parametrize(("key", "expected"), [("0/0", 1), ("0.0", 1), ("1/0", 1), (".zattrs", 0)])
def test_separator_is_seen_from_the_chunks(tmp_path: Path, opened: list[Source], key: str, expected: int) -> None:
    put(tmp_path, {"shape": [4, 4], "chunks": [2, 2]}, {key: b"{}" if not expected else bytes(16)})
    assert array_at(open_root(tmp_path, opened), "").chunks.count() == expected


def test_an_array_without_chunks_learns_its_separator_later(tmp_path: Path, opened: list[Source]) -> None:
    put(tmp_path, {"shape": [4, 4], "chunks": [2, 2]})
    root = open_root(tmp_path, opened)
    assert root.current()
    put(tmp_path, {"shape": [4, 4], "chunks": [2, 2]}, {"1/1": bytes(16)})
    assert not root.current()


@pytest.mark.parametrize("key", ["0", "00", "0.0"])
def test_trap_16_a_0d_chunk_is_called_0(tmp_path: Path, opened: list[Source], key: str) -> None:
    put(tmp_path, {"shape": [], "chunks": [], "fill_value": 9}, {key: b"\5\0\0\0"})
    array = array_at(open_root(tmp_path, opened), "")
    assert int(read_array(array)) == (5 if key == "0" else 9)


@pytest.mark.parametrize(
    "changes",
    [{"compressor": ...}, {"shape": [4.0], "chunks": [2.0]}, {"fill_value": [-32767]}, {"fill_value": "3"}],
    ids=str,
)
def test_p12_documents_as_writers_spell_them(tmp_path: Path, opened: list[Source], changes: dict[str, Any]) -> None:
    """zarr-python 3 or TensorStore read all but the list, which netCDF-C 4.8.0 has written and zarr-python 2 reads."""
    put(tmp_path / "a", changes, {"0": np.array([5, 6], "<i4").tobytes()})
    fill = {"[-32767]": -32767, "'3'": 3}.get(repr(changes.get("fill_value")), 0)
    assert read_array(open_root(tmp_path / "a", opened)).tolist() == [5, 6, fill, fill]


def test_dimensions_of_length_zero_have_no_chunks(tmp_path: Path, opened: list[Source]) -> None:
    put(tmp_path, {"shape": [0, 3], "chunks": [0, 3]}, {"0.0": bytes(12)})
    array = array_at(open_root(tmp_path, opened), "")
    assert array.metadata.grid.edges == (1, 3)
    assert array.chunks.count() == 0
    with pytest.raises(NotFound):
        array.chunks.find((0, 0))


@pytest.mark.parametrize("compressor", [None, "zlib", "gzip", "bz2", "lzma", "lz4", "zstd", "blosc"])
@pytest.mark.parametrize("damage", ["empty", "cut", "longer", "flipped"])
def test_damaged_chunks_are_errors_of_their_own(tmp_path: Path, opened: list[Source], compressor: str, damage: str) -> None:
    data = np.arange(1000, dtype="<i4")
    codec = numcodecs.get_codec({"id": compressor}) if compressor else None
    good = bytes(codec.encode(data)) if codec else data.tobytes()
    bad = {"empty": b"", "cut": good[:-3], "longer": good + b"\0\0\0", "flipped": bytes([good[0] ^ 0x55]) + good[1:]}[damage]
    put(tmp_path, {"shape": [2000], "chunks": [1000], "compressor": {"id": compressor} if compressor else None})
    (tmp_path / "0").write_bytes(bad)
    (tmp_path / "1").write_bytes(good)
    array = array_at(open_root(tmp_path, opened), "")
    assert read_bytes(array, (1,)) == data.tobytes()
    if compressor is None and damage == "flipped":
        return
    with pytest.raises((CorruptData, Unsupported), match=r"0: "):  # Unsupported: a Blosc version that does not exist
        array.chunks.read_into((0,), array.chunks.find((0,)), memoryview(bytearray(4000)))


def test_a_replaced_chunk_is_stale(tmp_path: Path, opened: list[Source]) -> None:
    put(tmp_path, {}, {"0": bytes(8)})
    array = array_at(open_root(tmp_path, opened), "")
    info = array.chunks.find((0,))
    (tmp_path / "new").write_bytes(b"12345678")
    (tmp_path / "new").rename(tmp_path / "0")
    with pytest.raises(Stale):
        array.chunks.read_into((0,), info, memoryview(bytearray(8)))
    with pytest.raises(Stale):
        array.chunks.read_range((0,), info, 0, 4)


WORDS = st.sampled_from(["<i4", "|O", "|S3", "<U2", "F", "/", "zlib", "json2"])
NAMES = st.sampled_from(["id", "dtype", "labels", "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@given(changes=st.dictionaries(st.sampled_from([*GOOD, "dimension_separator"]), VALUES, min_size=1))
@example(changes={"filters": [{}]})
@settings(max_examples=300)
def test_any_document_is_an_array_or_a_clear_error(changes: dict[str, Any]) -> None:
    document = Document({**GOOD, **changes}, "here", Stat(False, 0, 0, None), 0)
    with contextlib.suppress(FsbridgeError):
        metadata, _ = parse_array(document, None, PLAIN)
        assert len(metadata.grid.counts) == len(metadata.shape)


@given(fill=VALUES, dtype=st.sampled_from(["<i4", "|u1", "<f4", "<c8", "|b1", "|S3", "<U2", "<M8[s]", "|V3", "<f16"]))
@settings(max_examples=300)
def test_any_fill_value_is_an_element_or_corrupt_data(fill: Any, dtype: str) -> None:
    stored = np.dtype(dtype)
    with contextlib.suppress(CorruptData):
        raw = parse_fill(fill, stored)
        assert raw is None or len(raw) == stored.itemsize


def test_read_range_is_the_part_of_the_whole(tmp_path: Path, opened: list[Source]) -> None:
    data = np.arange(100_000, dtype="<i4")
    blosc = numcodecs.Blosc("zstd", 3, 1, blocksize=4096)
    whole = {"shape": [100_000], "chunks": [100_000]}
    put(tmp_path / "raw", whole, {"0": data.tobytes()})
    config = {"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 1}
    put(tmp_path / "blosc", {**whole, "compressor": config}, {"0": bytes(blosc.encode(data))})
    root = open_root(tmp_path, opened)
    for name in ("raw", "blosc"):
        array: Array = root.child(name)
        info = array.chunks.find((0,))
        for start, stop in ((0, 400_000), (1, 2), (4095, 4097), (399_999, 400_000), (12_345, 54_321)):
            assert array.chunks.read_range((0,), info, start, stop) == data.tobytes()[start:stop]
