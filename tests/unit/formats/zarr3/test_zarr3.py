"""Zarr v3 hierarchies and arrays through the model, against the stores and the reading of zarr-python and TensorStore."""

from __future__ import annotations

import gzip
import io
import json
import warnings
import zipfile
from pathlib import Path
from typing import Any, cast

import numcodecs
import numpy as np
import pytest
import zarr
from model_reader import array_at, read_array, stored_chunks
from paths import DATA
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr3_documents import (
    FLOAT8,
    NUMBERS,
    SHAPE,
    STRUCT,
    Document,
    array_document,
    check,
    create_tensorstore,
    int16,
    root_array,
    root_group,
    source,
    values,
    write,
)

from fsbridge.config import Config
from fsbridge.errors import CorruptData, NotFound, Stale, Unsupported
from fsbridge.formats.keyed.hierarchy import KeyedArray, KeyedGroup
from fsbridge.formats.open import Opening
from fsbridge.model import Array
from fsbridge.store.zip import ZipStore

pytestmark = pytest.mark.filterwarnings("ignore:::zarr", "ignore::zarr.errors.UnstableSpecificationWarning")

OTHERS = ("complex128", "M8[ns]", "m8[10us]", "M8[D]", "S3", "S1", "U4", "V5")


# zarr-python


@pytest.mark.parametrize("dtype", [*NUMBERS, *OTHERS])
@pytest.mark.parametrize("order", ["C", "F"])
def test_types_and_orders_of_zarr_python_are_read(tmp_path: Path, dtype: str, order: Any) -> None:
    data = values(np.dtype(dtype))
    array = zarr.create_array(tmp_path, shape=SHAPE, chunks=(4, 3), dtype=dtype, order=order)
    array[:8, :6] = data[:8, :6]
    found = check(tmp_path, array[...])
    assert len(list(stored_chunks(found))) == 4
    assert found.metadata.dtype.numpy == np.dtype(dtype)


@pytest.mark.parametrize("dtype", ["int16", "float64", "complex64", "M8[s]", "U2"])
def test_zarr_python_big_endian_is_described(tmp_path: Path, dtype: str) -> None:
    data = values(np.dtype(dtype))
    array = zarr.create_array(tmp_path, shape=SHAPE, chunks=(4, 4), dtype=dtype, serializer=BytesCodec(endian="big"))
    array[...] = data
    found = check(tmp_path, data)
    assert found.metadata.dtype.endian == "big"
    raw = bytearray(found.metadata.chunk_bytes((0, 0)) or 0)
    found.chunks.read_into((0, 0), found.chunks.find((0, 0)), memoryview(raw))
    assert raw == data[:4, :4].astype(data.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize(
    "compressors",
    [
        [],
        [GzipCodec(level=3)],
        [ZstdCodec(level=3, checksum=True)],
        [BloscCodec(cname="lz4", shuffle="bitshuffle")],
        [BloscCodec(cname="zlib", shuffle="noshuffle")],
        [Crc32cCodec()],
        [GzipCodec(), Crc32cCodec(), ZstdCodec()],
    ],
    ids=lambda codecs: "+".join(type(codec).__name__ for codec in codecs) or "none",
)
def test_compressors_of_zarr_python_are_decoded(tmp_path: Path, compressors: Any) -> None:
    data = values(np.dtype("i4"))
    array = zarr.create_array(tmp_path, shape=SHAPE, chunks=(5, 4), dtype="i4", compressors=compressors, fill_value=3)
    array[:5] = data[:5]
    check(tmp_path, array[...])


@pytest.mark.parametrize("encoding", ["default", "v2"])
@pytest.mark.parametrize("separator", ["/", "."])
@pytest.mark.parametrize("shape", [(), (7,), (5, 6), (3, 4, 5)], ids=str)
def test_trap_16_chunk_keys_are_those_of_zarr_python(
    tmp_path: Path, encoding: str, separator: str, shape: tuple[int, ...]
) -> None:
    """Trap 16: the key of a 0-D array is `c`, or `0` in the v2 encoding."""
    keys: Any = {"name": encoding, "separator": separator}
    array = zarr.create_array(tmp_path, shape=shape, chunks=tuple(2 for _ in shape), dtype="i2", chunk_key_encoding=keys)
    array[...] = values(np.dtype("i2"), shape)
    found = check(tmp_path, np.asarray(array[...]))
    if not shape:
        assert (tmp_path / ("c" if encoding == "default" else "0")).is_file()
        assert found.chunks.count() == 1


@pytest.mark.parametrize("transposes", [[(1, 0, 2)], [(2, 0, 1), (2, 0, 1)], [(2, 1, 0), (1, 2, 0), (1, 2, 0)]], ids=str)
def test_transposes_are_described(tmp_path: Path, transposes: list[tuple[int, ...]]) -> None:
    data = values(np.dtype("u2"), (4, 5, 6))
    filters = [TransposeCodec(order=order) for order in transposes]
    array = zarr.create_array(tmp_path, shape=data.shape, chunks=(2, 3, 4), dtype="u2", filters=filters)
    array[...] = data
    found = check(tmp_path, data)
    assert found.metadata.order is not None


def test_strings_and_bytes_may_have_any_length(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path)
    text = np.array([["a", "", "wörld"], ["\U0001f600", "x" * 300, "e"]], dtype=object)
    strings = group.create_array("s", shape=(2, 3), chunks=(2, 2), dtype=str, fill_value="none")
    strings[:, :2] = text[:, :2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        blobs = group.create_array("b", shape=(2,), chunks=(2,), dtype="variable_length_bytes", fill_value=b"f")
    blobs[...] = np.array([b"\x00\xff", b""], dtype=object)
    found = root_group(tmp_path)
    s, b = found.child("s"), found.child("b")
    assert isinstance(s, KeyedArray)
    assert isinstance(b, KeyedArray)
    assert read_array(s).tolist() == np.asarray(strings[...]).tolist()
    assert read_array(b).tolist() == [b"\x00\xff", b""]
    assert b.metadata.fill == b"f"
    assert s.metadata.dtype.serializer == "vlen-utf8"


def test_trap_9_structs_of_zarr_python_31_are_read(tmp_path: Path) -> None:
    """Trap 9: `structured`, with a fill value of base64."""
    fill = np.array((1, 2.5, b"ab", "é", (3, 5)), STRUCT)
    array = zarr.create_array(tmp_path, shape=SHAPE, chunks=(4, 4), dtype=STRUCT, fill_value=fill[()])
    array[:4, :4] = values(STRUCT, (4, 4))
    found = check(tmp_path, array[...])
    assert found.metadata.fill == fill.tobytes()
    assert json.loads((tmp_path / "zarr.json").read_text())["data_type"]["name"] in ("structured", "struct")  # 3.1, 3.4


@pytest.mark.parametrize("order", [(0,), None])
def test_trap_9_structs_of_zarr_python_34_are_read(tmp_path: Path, order: Any) -> None:
    """Trap 9: `struct`, fields and fill value as objects, `endian` for all fields."""
    fields = [
        {"name": "a", "data_type": "int16"},
        {"name": "b", "data_type": "float64"},
        {"name": "s", "data_type": {"name": "null_terminated_bytes", "configuration": {"length_bytes": 3}}},
        {"name": "u", "data_type": {"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}},
        {
            "name": "n",
            "data_type": {
                "name": "struct",
                "configuration": {
                    "fields": [
                        {"name": "x", "data_type": "uint8"},
                        {
                            "name": "t",
                            "data_type": {"name": "numpy.datetime64", "configuration": {"unit": "ns", "scale_factor": 1}},
                        },
                    ]
                },
            },
        },
    ]
    data = values(STRUCT, (4,))
    stored = data.astype(STRUCT.newbyteorder(">"))
    document = array_document(
        data_type={"name": "struct", "configuration": {"fields": fields}},
        fill_value={"a": 1, "b": 2.5, "s": "YWI=", "u": "é", "n": {"x": 3, "t": 5}},
        codecs=[{"name": "bytes", "configuration": {"endian": "big"}}],
    )
    write(tmp_path, document, {"c/0": stored[:2].tobytes()})
    expected = np.full(4, np.array((1, 2.5, b"ab", "é", (3, 5)), STRUCT))
    expected[:2] = data[:2]
    found = check(tmp_path, expected)
    assert found.metadata.dtype.name["name"] == "structured"
    assert found.metadata.dtype.native.startswith("struct(")


# TensorStore


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("codecs", ["plain", "big", "transposed", "compressed"])
def test_arrays_of_tensorstore_have_its_values(tmp_path: Path, dtype: str, codecs: str) -> None:
    lists: dict[str, Any] = {
        "plain": ["bytes"],
        "big": [{"name": "bytes", "configuration": {"endian": "big"}}],
        "transposed": [{"name": "transpose", "configuration": {"order": order}} for order in ("F", [1, 0], "F")],
        "compressed": ["bytes", "zstd", "gzip", "crc32c"],
    }
    listed = [{"name": codec} if isinstance(codec, str) else codec for codec in lists[codecs]]
    store = create_tensorstore(tmp_path / "deep" / "array", dtype, SHAPE, [4, 3], listed)
    data = values(np.dtype(dtype))
    store[:8, :6].write(data[:8, :6]).result()
    deep = root_group(tmp_path).child("deep")
    assert isinstance(deep, KeyedGroup)
    assert deep.attributes() == {}
    array = deep.child("array")
    assert isinstance(array, KeyedArray)
    np.testing.assert_array_equal(read_array(array), store.read().result())


@pytest.mark.parametrize("dtype", ["bfloat16", *(f"float8_{name}" for name in FLOAT8), "float4_e2m1fn"])
@pytest.mark.parametrize("endian", ["little", "big"])
def test_tensorstore_small_floats_keep_their_names_and_bits(tmp_path: Path, dtype: str, endian: str) -> None:
    codecs = [{"name": "bytes", "configuration": {"endian": endian}}]
    store = create_tensorstore(tmp_path, dtype, (5,), [4], codecs, fill_value=1.5)
    data = np.array([0.5, -1, 2, 3], "f4").astype(store.dtype.numpy_dtype)
    store[:4].write(data).result()
    array = root_array(tmp_path)
    size = data.dtype.itemsize
    assert array.metadata.dtype.name == array.metadata.dtype.native == dtype
    assert array.metadata.dtype.endian == (
        "little" if size > 1 else None
    )  # in `.npy` they are raw bytes, which tell no order
    assert array.metadata.fill_spelling == 1.5
    assert read_array(array).tobytes() == store.read().result().tobytes()


@pytest.mark.parametrize("dtype", ["int4", "int2"])
def test_trap_16_narrow_integers_of_tensorstore_have_zero_upper_bits(tmp_path: Path, dtype: str) -> None:
    """Trap 16: one byte an element, the upper bits of which TensorStore leaves zero."""
    store = create_tensorstore(tmp_path, dtype, (6,), [4], [{"name": "bytes"}, {"name": "gzip"}], fill_value=-2)
    data = np.array([-2, -1, 0, 1]).astype(store.dtype.numpy_dtype)
    store[:4].write(data).result()
    array = root_array(tmp_path)
    assert array.metadata.dtype.name == array.metadata.dtype.native == dtype
    assert array.metadata.fill_spelling == -2
    stored = read_array(array)[:4].view("u1")
    bits = int(dtype.removeprefix("int"))
    np.testing.assert_array_equal(stored, np.array([-2, -1, 0, 1]) & ((1 << bits) - 1))


@pytest.mark.parametrize("fill", [0, 1.5, -2, "NaN", "Infinity", "-Infinity", "0x7fc00001", "0xffc00000", 1e-40])
def test_float_fill_values_of_tensorstore_keep_the_bits_of_a_nan(tmp_path: Path, fill: Any) -> None:
    """TensorStore keeps the bits of a NaN."""
    store = create_tensorstore(tmp_path, "float32", (2,), [2], [{"name": "bytes"}], fill_value=fill)
    metadata = root_array(tmp_path).metadata
    assert metadata.fill == np.asarray(store.fill_value, "<f4").tobytes()


# what writers get wrong


@pytest.mark.parametrize(
    ("changes", "encode"),
    [
        ({"codecs": ...}, bytes),
        ({"codecs": []}, bytes),
        ({"codecs": [{"name": "gzip", "configuration": {"level": 6}}]}, gzip.compress),
        ({"codecs": ["bytes"]}, bytes),
        ({"codecs": [{"name": "endian", "configuration": {"endian": "little"}}]}, bytes),
        ({"codecs": [{"name": "bytes"}]}, bytes),
        ({"codecs": [{"name": "bytes", "configuration": None}]}, bytes),
        ({"chunk_key_encoding": "default"}, bytes),
        ({"chunk_key_encoding": {"name": "default"}}, bytes),
        ({"data_type": {"name": "int16"}}, bytes),
        ({"fill_value": 0.0}, bytes),
        ({"fill_value": ...}, bytes),
        ({"storage_transformers": []}, bytes),
        ({"extra": {"must_understand": False, "name": "x"}}, bytes),
        ({"codecs": [{"name": "transpose", "configuration": {"order": "F"}}, "bytes"]}, bytes),
        ({"codecs": [{"name": "transpose", "configuration": {"order": "C"}}, "bytes"]}, bytes),
    ],
    ids=lambda value: json.dumps(value, default=str)[:70] if isinstance(value, dict) else "",
)
def test_trap_8_variants_that_real_writers_make(tmp_path: Path, changes: Document, encode: Any) -> None:
    """Trap 8: the table of variants; what is no damage is read."""
    write(tmp_path, array_document(**{"fill_value": None, **changes}), {"c/1": encode(int16(5, -6))})
    check(tmp_path, np.array([0, 0, 5, -6], "i2"))


def test_p12_an_axis_of_length_0_may_have_chunks_of_0(tmp_path: Path) -> None:
    """zarr-python before 3.2 writes them, and reads an empty array."""
    grid = {"name": "regular", "configuration": {"chunk_shape": [0, 3]}}
    write(tmp_path / "empty", array_document(shape=[0, 3], chunk_grid=grid))
    assert zarr.open_array(tmp_path / "empty", mode="r").shape == (0, 3)
    write(tmp_path / "full", array_document(shape=[2, 3], chunk_grid=grid))
    group = root_group(tmp_path)
    assert cast(Any, group.child("empty")).metadata.grid.edges == (1, 3)
    with pytest.raises(CorruptData, match="chunk extent 0"):
        group.child("full")


def square(*codecs: Any) -> Document:
    """An array of two dimensions with these codecs."""
    grid = {"name": "regular", "configuration": {"chunk_shape": [2, 2]}}
    return {"shape": [4, 4], "chunk_grid": grid, "codecs": [*codecs, "bytes"]}


def deep(levels: int) -> Document:
    """Shards in shards."""
    inner = [deep(levels - 1)] if levels else ["bytes"]
    return {"name": "sharding_indexed", "configuration": {"chunk_shape": [2], "codecs": inner}}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"codecs": ["bytes", "transpose"]}, CorruptData),
        ({"codecs": ["bytes", "bytes"]}, CorruptData),
        ({"codecs": ["gzip", "bytes"]}, CorruptData),
        ({"codecs": [{"name": "transpose", "configuration": {"order": [1]}}, "bytes"]}, CorruptData),
        (square({"name": "transpose", "configuration": {"order": [0, 0]}}), CorruptData),
        (square({"name": "transpose", "configuration": {"order": [0, 2]}}), CorruptData),
        (square({"name": "transpose", "configuration": {"order": [0]}}), CorruptData),
        (square({"name": "transpose", "configuration": {"order": "K"}}), CorruptData),
        ({"codecs": ["bytes", *["gzip"] * 100]}, CorruptData),
        ({"codecs": [deep(100)]}, CorruptData),
        ({"codecs": [{"name": "bytes", "configuration": 5}]}, CorruptData),
        ({"codecs": ["vlen-utf8"]}, CorruptData),
        ({"codecs": ["numcodecs.json2"]}, CorruptData),
        ({"codecs": [{"name": "optional", "configuration": {"mask_codecs": [], "data_codecs": []}}]}, CorruptData),
        ({"codecs": [{"configuration": {}}]}, CorruptData),
        ({"codecs": {}}, CorruptData),
        ({"codecs": None}, CorruptData),
        ({"codecs": 0}, CorruptData),
        ({"storage_transformers": 0}, CorruptData),
        ({"storage_transformers": {}}, CorruptData),
        ({"storage_transformers": ""}, CorruptData),
        ({"storage_transformers": [{"name": "x"}]}, Unsupported),
        ({"extra": 1}, Unsupported),
        ({"extra": {"must_understand": True}}, Unsupported),
        ({"data_type": "int128"}, Unsupported),
        ({"data_type": "r12"}, CorruptData),
        ({"data_type": "string"}, CorruptData),
        ({"data_type": {"name": "int16", "must_understand": False}}, CorruptData),
        ({"data_type": 5}, CorruptData),
        ({"chunk_grid": {"name": "hexagonal"}}, Unsupported),
        ({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2], "offset": [1]}}}, Unsupported),
        ({"chunk_key_encoding": {"name": "default", "configuration": {"reversed": True}}}, Unsupported),
        ({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0]}}}, CorruptData),
        ({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2]}}}, CorruptData),
        ({"chunk_key_encoding": {"name": "fan_in"}}, Unsupported),
        ({"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "-"}}}, CorruptData),
        ({"fill_value": "7"}, CorruptData),
        ({"fill_value": 40000}, CorruptData),
        ({"fill_value": True}, CorruptData),
        ({"shape": [-1]}, CorruptData),
        ({"shape": [2**63]}, CorruptData),
        ({"shape": ...}, CorruptData),
        ({"dimension_names": ["a", "b"]}, CorruptData),
        ({"dimension_names": [3]}, CorruptData),
        ({"zarr_format": "https://purl.org/zarr/spec/protocol/core/3.0"}, Unsupported),
        ({"zarr_format": 2}, CorruptData),
        ({"node_type": "table"}, CorruptData),
    ],
    ids=lambda value: json.dumps(value, default=str)[:70] if isinstance(value, dict) else "",
)
def test_documents_that_are_refused_are_named(tmp_path: Path, changes: Document, error: type[Exception]) -> None:
    write(tmp_path, array_document(**changes))
    with pytest.raises(error, match=r"zarr\.json"):
        source(tmp_path).root  # noqa: B018


def test_texts_in_a_document_of_numcodecs_become_vlen_utf8(tmp_path: Path) -> None:
    texts = np.array(["a", "", "h\u00e9", "d"], object)
    chunks = {f"c/{i}": bytes(numcodecs.JSON().encode(texts[2 * i : 2 * i + 2])) for i in range(2)}
    document = array_document(data_type="string", fill_value="", codecs=["numcodecs.json2"])
    array = root_array(write(tmp_path, document, chunks))
    for i in range(2):
        info = array.chunks.find((i,))
        expected = bytes(numcodecs.VLenUTF8().encode(texts[2 * i : 2 * i + 2]))
        assert bytes(array.chunks.read_all((i,), info, 1 << 20)) == expected


def test_big_endian_structs_of_numbers_that_numpy_lacks_are_refused(tmp_path: Path) -> None:
    """Raw bytes would keep their order, but `struct` says little endian."""
    fields = {"fields": [["a", "int16"], ["b", "bfloat16"]]}
    big = {"name": "bytes", "configuration": {"endian": "big"}}
    document = array_document(data_type={"name": "struct", "configuration": fields}, fill_value="AAAAAA==", codecs=[big])
    array = root_array(write(tmp_path, document, {"c/0": bytes(8)}))
    with pytest.raises(Unsupported, match="big-endian"):
        array.chunks.read_into((0,), array.chunks.find((0,)), memoryview(bytearray(8)))


def test_storage_transformers_are_named_in_the_refusal(tmp_path: Path) -> None:
    write(tmp_path, array_document(storage_transformers=[{"name": "indirect"}]))
    with pytest.raises(Unsupported, match=r"storage transformers \('indirect'\), of which fsbridge knows none"):
        source(tmp_path).root  # noqa: B018


def sharding(shape: list[int]) -> Document:
    return {"name": "sharding_indexed", "configuration": {"chunk_shape": shape, "codecs": ["bytes"]}}


@pytest.mark.parametrize(
    "codecs",
    [
        ["bytes", {"name": "lzx", "must_understand": False}],
        ["bytes", "numcodecs.pickle", "gzip"],
        [{"name": "numcodecs.zfpy", "configuration": {"mode": 4}}],
        ["morton", "sharding_indexed"],
        [{"name": "numcodecs.delta", "configuration": {"astype": "|O"}}, "bytes"],
        [{"name": "numcodecs.delta", "configuration": {"dtype": ">i2"}}, "bytes"],
        [{"name": "numcodecs.delta", "configuration": {"dtype": "<f2"}}, "bytes"],
        [{"name": "numcodecs.quantize", "configuration": {"dtype": ">i2", "digits": 1}}, "bytes"],
        [{"name": "numcodecs.fixedscaleoffset", "configuration": {"dtype": "<i4", "offset": 0, "scale": 1}}, "bytes"],
        [{"name": "numcodecs.astype", "configuration": {"encode_dtype": "<i4", "decode_dtype": "<f2"}}, "bytes"],
        ["packbits", "bytes_of_the_future"],
        [{"name": "numcodecs.delta", "configuration": {"dtype": "<i2"}}, sharding([2])],
        ["numcodecs.packbits", "bytes"],
        [{"name": "cast_value", "configuration": {"data_type": "complex64"}}, "bytes"],
    ],
    ids=str,
)
def test_unknown_codecs_refuse_chunks_by_name(tmp_path: Path, codecs: list[Any]) -> None:
    """The metadata are shown, as in the other formats, and no chunk is ever guessed."""
    array = root_array(write(tmp_path, array_document(codecs=codecs), {"c/0": int16(1, 2)}))
    assert list(stored_chunks(array)) == [(0,)]
    with pytest.raises(
        Unsupported, match=r"c/0.*(lzx|pickle|zfpy|morton|delta|quantize|scale|astype|bytes_of_|shard|packbits|cast)"
    ):
        array.chunks.read_into((0,), array.chunks.find((0,)), memoryview(bytearray(4)))
    assert array.chunks.read_range((0,), array.chunks.find((0,)), 0, 1) is None


@pytest.mark.parametrize(
    "codec",
    [
        {"name": "transpose", "configuration": {"order": [0]}},
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "sharding_indexed", "configuration": {"chunk_shape": [2], "codecs": ["bytes"], "index_codecs": ["bytes"]}},
    ],
    ids=str,
)
def test_p12_unknown_members_are_refused_unless_they_need_not_be_understood(tmp_path: Path, codec: Any) -> None:
    """An unknown member in a configuration that says what the bytes mean: both references refuse it."""
    refused = []
    for name, value in (("strict", True), ("lax", {"must_understand": False})):
        changed = {**codec, "configuration": {**codec["configuration"], "of_the_future": value}}
        codecs = [changed, "bytes"] if codec["name"] == "transpose" else [changed]
        array = root_array(write(tmp_path / name, array_document(codecs=codecs), {"c/0": int16(1, 2)}))
        refused.append(array.metadata.refused)
    assert "unknown member 'of_the_future'" in str(refused[0])
    assert refused[1] is None


@pytest.mark.parametrize(
    "codecs",
    [["bytes", "zstd", "lzx"], [{"name": "numcodecs.delta", "configuration": {"astype": "|O"}}, "bytes"]],
    ids=str,
)
def test_p3_the_same_document_twice_is_refused_with_the_key_of_each(tmp_path: Path, codecs: list[Any]) -> None:
    for name in "ab":
        write(tmp_path / name, array_document(codecs=codecs), {"c/0": int16(1, 2)})
    group = root_group(tmp_path)
    for name, other in ("ab", "ba"):
        chunks = cast(Array, group.child(name)).chunks
        with pytest.raises(Unsupported, match=f"{tmp_path}/{name}/") as told:
            chunks.read_into((0,), chunks.find((0,)), memoryview(bytearray(4)))
        assert f"{tmp_path}/{other}" not in str(told.value)


def test_arrays_with_the_same_document_share_their_metadata_and_nothing_else(tmp_path: Path) -> None:
    for number, name in enumerate("abc"):
        write(tmp_path / name, array_document(fill_value=number // 2), {"c/0": int16(number, 9)})
    a, b, c = (cast(Array, root_group(tmp_path).child(name)) for name in "abc")
    assert a.metadata.fill == b.metadata.fill == int16(0)
    assert c.metadata.fill == int16(1)
    group = root_group(tmp_path)
    a, b = (cast(Array, group.child(name)) for name in "ab")
    assert a.metadata is b.metadata
    assert a.version != b.version
    assert [read_array(array)[0] for array in (a, b, c)] == [0, 1, 2]
    write(tmp_path / "b", array_document(shape=[2]))
    assert not b.current()
    assert a.current()
    assert cast(Array, group.child("b")).metadata.shape == (2,)
    assert cast(Array, group.child("a")).metadata.shape == (4,)


@pytest.mark.parametrize(
    "codec",
    [
        {"name": "gzip", "configuration": {"level": 5, "unknown": {"a": 1}}},
        {"name": "gzip", "configuration": {"level": "high"}},
        {"name": "numcodecs.gzip", "configuration": {"id": "zlib", "delta": 1}},
    ],
    ids=str,
)
def test_trap_15_parameters_that_decoding_does_not_need_are_ignored(tmp_path: Path, codec: Any) -> None:
    """Trap 15."""
    chunks = {f"c/{i}": gzip.compress(int16(i, -i)) for i in range(2)}
    check(write(tmp_path, array_document(codecs=["bytes", codec]), chunks), np.array([0, 0, 1, -1], "i2"))


def test_raw_bits_are_elements_of_their_bytes(tmp_path: Path) -> None:
    document = array_document(data_type="r24", fill_value=[1, 2, 3])
    array = root_array(write(tmp_path, document, {"c/1": b"abcdef"}))
    assert read_array(array).tobytes() == b"\1\2\3\1\2\3abcdef"
    assert array.metadata.dtype.native == "r24"


# hierarchies


def test_groups_need_no_documents_and_no_consolidated_metadata(tmp_path: Path) -> None:
    """Groups with and without documents, and consolidated metadata that is out of date."""
    group = zarr.create_group(tmp_path, attributes={"a": 1})
    below = group.create_group("x", attributes={"nan": float("nan"), "é": [1, {"b": None}]})
    below.create_array("y", shape=(2,), dtype="i1")
    zarr.consolidate_metadata(str(tmp_path))
    (tmp_path / "implicit" / "deeper").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"")
    root = root_group(tmp_path)
    assert root.attributes() == {"a": 1}
    assert "consolidated_metadata" in root.native()["zarr.json"]
    assert sorted(child.name for child in root.children()) == ["implicit", "x"]
    x, implicit = root.child("x"), root.child("implicit")
    assert isinstance(x, KeyedGroup)
    assert isinstance(implicit, KeyedGroup)
    assert x.attributes()["é"] == [1, {"b": None}]
    assert implicit.attributes() == {}
    assert implicit.native() == {}
    assert [child.name for child in implicit.children()] == ["deeper"]
    assert isinstance(x.child("y"), KeyedArray)
    for name in ("file", "nothing"):
        with pytest.raises(NotFound):
            root.child(name)


def test_one_bad_document_hides_only_itself(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path)
    group.create_array("good", shape=(2,), dtype="i1")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "zarr.json").write_text('{"zarr_format": 3, "node_type"')
    root = root_group(tmp_path)
    assert sorted(child.name for child in root.children()) == ["bad", "good"]
    with pytest.raises(CorruptData, match=r"bad/zarr\.json"):
        root.child("bad")
    assert isinstance(root.child("good"), KeyedArray)


def test_an_array_is_current_until_its_document_changes(tmp_path: Path) -> None:
    write(tmp_path, array_document(), {"c/0": int16(1, 2)})
    array = root_array(tmp_path)
    info = array.chunks.find((0,))
    assert array.current()
    write(tmp_path, array_document(shape=[6]))
    assert not array.current()
    (tmp_path / "c/0").unlink()
    (tmp_path / "c/0").write_bytes(int16(3, 4))
    with pytest.raises(Stale):
        array.chunks.read_into((0,), info, memoryview(bytearray(4)))


def test_dimension_names_may_be_missing(tmp_path: Path) -> None:
    document = array_document(shape=[4, 4], chunk_grid={"name": "regular", "configuration": {"chunk_shape": [2, 2]}})
    assert root_array(write(tmp_path, document | {"dimension_names": ["y", None]})).metadata.dimension_names == ("y", None)


@pytest.mark.parametrize("damage", [b"", b"\0" * 3, b"\0" * 5])
def test_a_damaged_chunk_is_corrupt_and_hides_no_other(tmp_path: Path, damage: bytes) -> None:
    write(tmp_path, array_document(), {"c/0": damage, "c/1": int16(1, 2)})
    array = root_array(tmp_path)
    with pytest.raises(CorruptData, match="c/0"):
        array.chunks.read_into((0,), array.chunks.find((0,)), memoryview(bytearray(4)))
    array.chunks.read_into((1,), array.chunks.find((1,)), memoryview(bytearray(4)))


# zarr-python 3.4, zarrs, GDAL and zarrita.js: archives made by tests/data/make_*


def archived() -> list[tuple[str, str]]:
    found = []
    for name in ("zarr34", "gdal", "zarrita"):
        with zipfile.ZipFile(DATA / f"{name}.zip") as file:
            found += [(name, member.removesuffix(".npy")) for member in file.namelist() if member.endswith(".npy")]
    return found


@pytest.mark.parametrize(("name", "member"), archived())
def test_arrays_of_other_writers_have_their_values(name: str, member: str) -> None:
    opened = Opening().open_in_store("zarr3", ZipStore(str(DATA / f"{name}.zip"), base=""), Config("", ""))
    with zipfile.ZipFile(DATA / f"{name}.zip") as file:
        expected = np.load(io.BytesIO(file.read(f"{member}.npy")))
    found = read_array(array_at(opened.root, member))
    if found.dtype == object:
        assert found.tolist() == expected.tolist()
    else:
        np.testing.assert_array_equal(found, expected)
    opened.close()
