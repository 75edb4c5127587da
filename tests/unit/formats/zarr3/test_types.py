"""Zarr v3 data types and fill values, against numpy, ml_dtypes and zarr-python's own reading; and any JSON at all."""

from __future__ import annotations

import base64
import gzip
import json
import math
import struct
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_reader import read_array
from zarr.codecs import numcodecs as zarr_numcodecs
from zarr3_documents import array_document, root_array, write

from fsbridge.config import Config
from fsbridge.errors import CorruptData, FsbridgeError, TooLarge, Unsupported
from fsbridge.formats import dtypes
from fsbridge.formats.open import Opening
from fsbridge.formats.zarr3.fill_values import fill_bytes, fill_spelling
from fsbridge.formats.zarr3.types import NARROW, parse_type
from fsbridge.installing import install
from fsbridge.layouts.zarr3 import array_document as shown_document
from fsbridge.metadata import ArrayMetadata
from fsbridge.store.local import LocalStore

pytestmark = pytest.mark.filterwarnings("ignore:::zarr", "ignore::zarr.errors.UnstableSpecificationWarning")

EXAMPLES = 400
JSON = Any


def named(name: str, /, **configuration: JSON) -> JSON:
    return {"name": name, "configuration": configuration}


STRUCT = named("structured", fields=[["a", "int16"], ["b", named("raw_bytes", length_bytes=2)]])

FILLS: list[tuple[JSON, JSON, bytes | str | None]] = [
    ("bool", True, b"\1"),
    ("bool", 0, b"\0"),
    ("int8", -128, b"\x80"),
    ("uint64", 2**64 - 1, b"\xff" * 8),
    ("int64", -(2**63), b"\0" * 7 + b"\x80"),
    ("int32", 7.0, b"\7\0\0\0"),
    ("float32", 1, np.float32(1).tobytes()),
    ("float64", "NaN", np.array(np.nan, "<f8").tobytes()),
    ("float32", "-Infinity", np.array(-np.inf, "<f4").tobytes()),
    ("float32", "0x7fc00001", b"\1\0\xc0\x7f"),
    ("float64", "0x7ff8000000000001", b"\1\0\0\0\0\0\xf8\x7f"),
    ("float16", "0x0001", b"\1\0"),
    ("float64", float("nan"), np.array(np.nan, "<f8").tobytes()),
    ("complex64", [1.5, "NaN"], np.array([1.5, np.nan], "<f4").tobytes()),
    ("complex64", ["0x7fc00001", "Infinity"], b"\1\0\xc0\x7f" + np.array(np.inf, "<f4").tobytes()),
    ("float32", "nan", np.array(np.nan, "<f4").tobytes()),
    ("float32", "-inf", np.array(-np.inf, "<f4").tobytes()),
    ("complex64", ["inf", "nan"], np.array([np.inf, np.nan], "<f4").tobytes()),
    ("float8_e4m3fn", "nan", b"\x7f"),
    ("complex128", 2, np.array(2, "<c16").tobytes()),
    ("r24", [1, 2, 255], b"\1\2\xff"),
    (named("raw_bytes", length_bytes=3), "AQL/", b"\1\2\xff"),
    (named("null_terminated_bytes", length_bytes=4), "YWI=", b"ab\0\0"),
    (named("fixed_length_utf32", length_bytes=12), "é\U0001f600", "é\U0001f600\0".encode("utf-32-le")),
    (named("numpy.datetime64", unit="us", scale_factor=10), "NaT", b"\0" * 7 + b"\x80"),
    (named("numpy.timedelta64", unit="s", scale_factor=1), -1, b"\xff" * 8),
    (named("numpy.datetime64", unit="μs", scale_factor=1), 5, b"\5" + b"\0" * 7),
    ("string", "tëxt", "tëxt"),
    ("variable_length_bytes", "AQL/", b"\1\2\xff"),
    ("bytes", [1, 2, 255], b"\1\2\xff"),
    (STRUCT, base64.b64encode(b"\1\0xy").decode(), b"\1\0xy"),
    (STRUCT, {"a": 1, "b": "eHk="}, b"\1\0xy"),
    ("bfloat16", 1.5, b"\xc0\x3f"),
    ("bfloat16", "0x7fc1", b"\xc1\x7f"),
    ("float8_e4m3fn", "NaN", b"\x7f"),
    ("complex_bfloat16", [1, 0], b"\x80\x3f\0\0"),
    ("complex_float16", [1, 0], b"\0\x3c\0\0"),
    ("int4", -8, b"\xf8"),
    ("uint2", 3, b"\3"),
]


@pytest.mark.parametrize(("spelling", "value", "expected"), FILLS, ids=str)
def test_fill_values_become_the_bytes_of_an_element(spelling: JSON, value: JSON, expected: bytes | str | None) -> None:
    of = parse_type(spelling, "x")
    assert fill_bytes(value, of, "x") == expected
    assert fill_bytes(None, of, "x") is None


LARGE_TEXT = named("fixed_length_utf32", length_bytes=1_200_000_000)
LARGE_BYTES = named("null_terminated_bytes", length_bytes=900_000_000)


@pytest.mark.parametrize(
    ("spelling", "zeros", "other"),
    [
        (LARGE_TEXT, "", "a"),
        (LARGE_BYTES, "", "YQ=="),
        (LARGE_BYTES, "AAAA", "YQ=="),
        (named("struct", fields=[["a", LARGE_TEXT], ["b", "int8"]]), {"a": "", "b": 0}, {"a": "", "b": 1}),
        (named("struct", fields=[["a", LARGE_TEXT], ["b", STRUCT]]), {"a": "", "b": "AAAAAA=="}, {"a": "", "b": "AQAAAA=="}),
    ],
    ids=str,
)
def test_p6_a_fill_value_takes_no_more_memory_than_its_document(spelling: JSON, zeros: JSON, other: JSON) -> None:
    tracemalloc.start()
    try:
        of = parse_type(spelling, "x")
        assert fill_bytes(zeros, of, "x") is None
        with pytest.raises(TooLarge, match="fill"):
            fill_bytes(other, of, "x")
        with pytest.raises(CorruptData):
            fill_bytes(5, of, "x")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("spelling", "value"),
    [
        ("bool", 2),
        ("bool", "true"),
        ("int8", 128),
        ("int8", 1.5),
        ("int8", True),
        ("int8", "1"),
        ("int8", float("inf")),
        ("uint8", -1),
        ("float32", "nano"),
        ("float32", "0x1ffffffff"),
        ("float32", [1]),
        ("float32", True),
        ("float64", 10**400),
        ("complex64", [1]),
        ("complex64", [1, 2, 3]),
        ("r16", [1]),
        ("r16", [1, 256]),
        ("r16", "A"),
        (named("raw_bytes", length_bytes=3), "AQ=="),
        (named("null_terminated_bytes", length_bytes=1), "YWI="),
        (named("fixed_length_utf32", length_bytes=4), "ab"),
        (named("fixed_length_utf32", length_bytes=4), 1),
        (named("numpy.datetime64", unit="s", scale_factor=1), "2020"),
        ("string", 1),
        ("string", ["a"]),
        ("bytes", "ä"),
        (STRUCT, {"a": 1}),
        (STRUCT, {"a": 1, "b": "eHk=", "c": 1}),
        (STRUCT, "AQ=="),
        (STRUCT, 5),
        ("int4", 8),
        ("float8_e4m3fn", "Infinity"),
        ("float4_e2m1fn", "NaN"),
    ],
    ids=str,
)
def test_impossible_fill_values_are_corrupt(spelling: JSON, value: JSON) -> None:
    with pytest.raises(CorruptData, match="fill_value"):
        fill_bytes(value, parse_type(spelling, "x"), "x")


@pytest.mark.parametrize(
    ("spelling", "error"),
    [
        ("int128", Unsupported),
        ("r0", Unsupported),
        ("r12", CorruptData),
        ("r99999999999999", Unsupported),
        ("r9999999999", CorruptData),
        (named("raw_bytes", length_bytes=0), CorruptData),
        (named("raw_bytes", length_bytes=2**31), CorruptData),
        (named("raw_bytes"), CorruptData),
        (named("fixed_length_utf32", length_bytes=6), CorruptData),
        (named("numpy.datetime64", unit="century", scale_factor=1), CorruptData),
        (named("numpy.datetime64", unit="s", scale_factor=0), CorruptData),
        (named("struct", fields=[]), CorruptData),
        (named("struct", fields=[["a", "int8"], ["a", "int8"]]), CorruptData),
        (named("struct", fields=[["", "int8"]]), CorruptData),
        (named("struct", fields=[["a", "string"]]), Unsupported),
        (named("struct", fields=[["a", "int4"]]), Unsupported),
        (named("struct", fields=[["a"]]), CorruptData),
        (named("struct", fields=["a"]), CorruptData),
        (named("struct", fields=3), CorruptData),
        ({"configuration": {}}, CorruptData),
        ({"name": "int8", "configuration": 3}, CorruptData),
        (None, CorruptData),
        (["int8"], CorruptData),
    ],
    ids=str,
)
def test_impossible_types_are_refused(spelling: JSON, error: Any) -> None:
    with pytest.raises(error):
        parse_type(spelling, "x")


def test_type_names_of_the_source_are_kept() -> None:
    """Issue 10, point 9: whatever reads the source's name reads the mount's, which is the same."""
    spellings = [spelling for spelling, _, _ in FILLS]
    spellings += [*NARROW, *dtypes.MINIFLOATS, *(f"complex_{name}" for name in dtypes.MINIFLOATS), "complex_float32"]
    for spelling in spellings:
        for endian in ("little", "big"):
            shown = parse_type(spelling, "x").to_model(endian)
            assert shown.name == spelling
            assert shown.numpy is None or shown.numpy.itemsize == shown.itemsize
    assert parse_type({"name": "int8"}, "x").to_model("little").name == "int8"
    struct = named("struct", fields=[{"name": "a", "data_type": "int16"}])  # zarr-python 3.1 opens the older name only
    assert parse_type(struct, "x").to_model("little").name == named("structured", fields=[["a", "int16"]])


@pytest.mark.parametrize(("spelling", "value", "expected"), FILLS, ids=str)
def test_fill_values_in_big_endian_have_the_bytes_of_each_number_reversed(
    spelling: JSON, value: JSON, expected: bytes | str | None
) -> None:
    of = parse_type(spelling, "x")
    if isinstance(expected, bytes) and of.itemsize:
        big = of.big_endian(expected)
        stored = of.stored("big")
        if stored.kind != "V":
            assert big == np.frombuffer(expected, of.numpy).astype(stored).tobytes()
        elif spelling in ("bfloat16", "complex_bfloat16", "complex_float16"):
            assert big == np.frombuffer(expected, "<u2").astype(">u2").tobytes()
        elif spelling == STRUCT:
            assert big == b"\0\1xy"
        else:
            assert big == expected


@pytest.mark.parametrize(
    ("spelling", "zero"), [("bfloat16", 0.0), ("int4", 0), ("complex_bfloat16", [0.0, 0.0]), ("r16", None)]
)
def test_a_fill_value_of_null_is_the_zero_of_its_type(spelling: str, zero: JSON) -> None:
    assert fill_spelling(None, parse_type(spelling, "x")) == zero


@pytest.mark.parametrize("name", [*dtypes.MINIFLOATS, "bfloat16"])
def test_small_floats_are_those_of_ml_dtypes(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    if name != "bfloat16":
        codes = np.arange(1 << dtypes.MINIFLOATS[name].bits, dtype="u1")
        numbers = codes.view(dtype).astype("f8")
        ours = [dtypes.decode_minifloat(int(code), dtypes.MINIFLOATS[name]) for code in codes]
        np.testing.assert_array_equal(ours, numbers)
        for code, number in zip(codes, numbers, strict=True):
            if not math.isnan(number):
                assert dtypes.encode_minifloat(float(number), name) == bytes([code])
    for value in np.random.default_rng(0).normal(size=200) * 3:
        if name != "float8_e8m0fnu":
            assert dtypes.encode_minifloat(float(value), name) == np.array(value).astype("f4").astype(dtype).tobytes()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-45, 3.4e38])
def test_extremes_of_bfloat16_are_rounded_as_ml_dtypes_does(value: float) -> None:
    expected = np.array(value, "f4").astype(ml_dtypes.bfloat16)
    found = np.frombuffer(dtypes.encode_minifloat(value, "bfloat16"), ml_dtypes.bfloat16)[0]
    assert str(found) == str(expected)


# any document

words = st.sampled_from(
    [
        *("bytes", "gzip", "zstd", "blosc", "crc32c", "transpose", "sharding_indexed", "vlen-utf8", "packbits"),
        *("scale_offset", "cast_value", "bitround", "endian", "numcodecs.delta", "numcodecs.packbits", "numcodecs.shuffle"),
        *("numcodecs.fixedscaleoffset", "numcodecs.quantize", "numcodecs.astype", "numcodecs.lzma", "numcodecs.pickle"),
        *("int16", "float32", "bool", "string", "bytes", "r16", "int4", "bfloat16", "struct", "complex64", "regular"),
        *("optional", "numcodecs.pcodec", "numcodecs.zfpy", "numcodecs.json2", "structured", "float8_e4m3fn"),
        *("reshape", "zarrs.squeeze", "zarrs.vlen", "zarrs.vlen_v2", "n5_default", "zfp", "reversible", "uint32"),
        *("zarrs.regular_bounded", "zarrs.default_suffix", "suffix", ".tiff"),
        *("rectilinear", "default", "v2", "little", "big", "F", "start", "<i4", "NaN", "0x7fc0", "inline", "/", "."),
    ]
)
leaves = st.one_of(st.none(), st.booleans(), st.integers(-3, 9), st.integers(), st.floats(), words, st.text(max_size=5))
keys = st.sampled_from(
    [
        *("name", "configuration", "chunk_shape", "order", "endian", "codecs", "index_codecs", "index_location", "fields"),
        *("data_type", "length_bytes", "unit", "scale_factor", "separator", "chunk_shapes", "kind", "dtype"),
        *("must_understand", "astype", "offset", "scale", "scalar_map"),
        *("mask_codecs", "data_codecs", "shape", "mode", "rate", "index_data_type", "suffix", "base_encoding"),
        *("decode", "keepbits", "elementsize", "first_bit", "last_bit"),
    ]
)
anything = st.recursive(
    leaves, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=5)), max_leaves=12
)
codec = st.fixed_dictionaries({"name": words}, optional={"configuration": st.dictionaries(keys, anything, max_size=4)})
member = st.one_of(anything, codec, st.lists(codec, max_size=3))
VALID = array_document(attributes={}, dimension_names=None, storage_transformers=[])


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from([*VALID, "extra"]), member, min_size=1, max_size=3), st.booleans())
def test_any_document_is_an_array_or_an_error_of_ours(tmp_path: Path, changes: dict[str, JSON], chunk: bool) -> None:
    write(tmp_path, VALID | changes, {"c/0": b"\1\0\2\0"} if chunk else None)
    source = Opening().open_in_store("zarr3", LocalStore(str(tmp_path)), Config("", ""))
    try:
        root: Any = source.root
        if isinstance(getattr(root, "metadata", None), ArrayMetadata):
            for batch in root.chunks.scan(()):
                for coordinate, _ in batch:
                    place = (coordinate, *(0 for _ in root.metadata.shape[1:]))
                    info = root.chunks.find(place)
                    size = root.metadata.chunk_bytes(place)
                    if size is None:
                        root.chunks.read_all(place, info, 1 << 26)
                    elif size < 1 << 20:
                        root.chunks.read_into(place, info, memoryview(bytearray(size)))
    except FsbridgeError:
        pass
    finally:
        source.close()


# numcodecs in Zarr v3

NUMBER_FILTERS: list[tuple[str, str, dict[str, JSON]]] = [
    ("i4", "Delta", {"dtype": "<i4"}),
    ("i4", "Delta", {"dtype": "<i4", "astype": "<i2"}),
    ("f8", "FixedScaleOffset", {"offset": 1.5, "scale": 10, "dtype": "<f8", "astype": "<i4"}),
    ("f4", "Quantize", {"digits": 2, "dtype": "<f4"}),
    ("f4", "BitRound", {"keepbits": 5}),
    ("i4", "AsType", {"encode_dtype": "<i8", "decode_dtype": "<i4"}),
    ("bool", "PackBits", {}),
]
BYTES_CODECS: list[tuple[str, dict[str, JSON]]] = [
    *((name, {}) for name in ("Blosc", "LZ4", "Zstd", "Zlib", "GZip", "BZ2", "LZMA", "Shuffle", "CRC32", "CRC32C")),
    *((name, {}) for name in ("Adler32", "Fletcher32", "JenkinsLookup3")),
    ("LZMA", {"format": 2}),
    ("Shuffle", {"elementsize": 2}),
    ("CRC32C", {"location": "start"}),
    ("JenkinsLookup3", {"initval": 7}),
]


@pytest.mark.parametrize(("dtype", "name", "parameters"), NUMBER_FILTERS, ids=str)
@pytest.mark.parametrize("shards", [None, (8, 8)])
def test_filters_of_numcodecs_decode_as_in_zarr_python(
    tmp_path: Path, dtype: str, name: str, parameters: dict[str, JSON], shards: Any
) -> None:
    filters = [getattr(zarr_numcodecs, name)(**parameters)]
    data = (np.random.default_rng(0).normal(size=(9, 10)) * 100).astype(dtype)
    array = zarr.create_array(tmp_path, shape=(9, 10), chunks=(4, 4), shards=shards, dtype=dtype, filters=filters)
    array[...] = data
    np.testing.assert_array_equal(read_array(root_array(tmp_path)), array[...])


@pytest.mark.parametrize(("name", "parameters"), BYTES_CODECS, ids=str)
def test_compressors_and_checksums_of_numcodecs_are_decoded(tmp_path: Path, name: str, parameters: dict[str, JSON]) -> None:
    codecs = [getattr(zarr_numcodecs, name)(**parameters)]
    data = np.random.default_rng(0).integers(0, 1000, (9, 10)).astype("i4")
    array = zarr.create_array(tmp_path, shape=(9, 10), chunks=(4, 4), dtype="i4", compressors=codecs)
    array[...] = data
    np.testing.assert_array_equal(read_array(root_array(tmp_path)), data)


@pytest.mark.parametrize("dtype", ["i2", "i4", "u8", "f2", "f4", "f8"])
@pytest.mark.parametrize("shards", [None, (8, 8)])
def test_serializers_of_numcodecs_decode_as_in_zarr_python(tmp_path: Path, dtype: str, shards: Any) -> None:
    """pcodec and zfpy, the codecs of numcodecs' own extras: exactly what zarr-python reads."""
    data = (np.random.default_rng(0).normal(size=(9, 10)) * 100).astype(dtype)
    codecs: list[Any] = [zarr_numcodecs.PCodec(level=4)]
    if dtype in ("i4", "f4", "f8"):
        codecs += [zarr_numcodecs.ZFPY(mode=2, rate=12), zarr_numcodecs.ZFPY(mode=4, tolerance=0.5)]
    for number, codec in enumerate(codecs):
        path, options = tmp_path / str(number), {"serializer": codec, "compressors": [], "filters": []}
        array = zarr.create_array(path, shape=(9, 10), chunks=(4, 4), shards=shards, dtype=dtype, **options)
        array[...] = data
        np.testing.assert_array_equal(read_array(root_array(path)), array[...])


@pytest.mark.parametrize("codec", ["pcodec", "zfpy"])
def test_a_missing_library_is_named_with_the_command_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    """The array is shown; its chunks, and `info`, say what to install."""
    monkeypatch.setitem(sys.modules, codec, None)
    monkeypatch.setitem(sys.modules, "pcodec.standalone", None)
    codecs = [named(f"numcodecs.{codec}")]
    array = root_array(write(tmp_path, array_document(data_type="float32", codecs=codecs), {"c/0": b"x"}))
    assert array.metadata.refused is not None
    assert array.metadata.refused.endswith(f"is not installed: {install(codec)}")
    with pytest.raises(Unsupported, match=rf"{codec}.*pip install"):
        array.chunks.read_all((0,), array.chunks.find((0,)), 1 << 26)


OPTIONAL = named("optional", name="int16")


def maybe(mask: bytes, data: bytes) -> bytes:
    return struct.pack("<QQ", len(mask), len(data)) + mask + data


@pytest.mark.parametrize("data_codecs", [["bytes", "gzip"], [named("bytes", endian="big"), "gzip"]])
def test_optional_elements_are_shown_with_codecs_that_change_nothing(tmp_path: Path, data_codecs: list[JSON]) -> None:
    """zarrs' experimental `optional`: a mask and the elements that are there, shown with codecs that change nothing."""
    big = data_codecs[0] != "bytes"
    codecs = [named("optional", mask_codecs=["packbits"], data_codecs=data_codecs)]
    elements = np.array([1, -2, 300], ">i2" if big else "<i2").tobytes()
    document = array_document(
        shape=[8], data_type=OPTIONAL, fill_value=None, codecs=codecs, chunk_grid=named("regular", chunk_shape=[4])
    )
    chunks = {"c/0": maybe(b"\x0b", gzip.compress(elements)), "c/1": maybe(b"\x0b", gzip.compress(elements[2:]))}
    array = root_array(write(tmp_path, document, chunks))
    assert (array.metadata.dtype.name, array.metadata.dtype.serializer) == (OPTIONAL, "optional")
    assert array.chunks.read_all((0,), array.chunks.find((0,)), 1 << 26) == maybe(b"\1\1\0\1", elements)
    with pytest.raises(CorruptData):
        array.chunks.read_all((1,), array.chunks.find((1,)), 1 << 26)
    shown = json.loads(shown_document(array.metadata))
    endian = named("bytes", endian="big" if big else "little")
    assert shown["codecs"] == [named("optional", mask_codecs=[{"name": "bytes"}], data_codecs=[endian])]
    assert (shown["data_type"], shown["fill_value"]) == (OPTIONAL, None)
    write(tmp_path / "again", shown, {"c/0": maybe(b"\1\1\0\1", elements)})
    again = root_array(tmp_path / "again")
    assert again.chunks.read_all((0,), again.chunks.find((0,)), 1 << 26) == maybe(b"\1\1\0\1", elements)


def test_optional_elements_in_optional_elements(tmp_path: Path) -> None:
    inner = named("optional", mask_codecs=["packbits"], data_codecs=["bytes"])
    codecs = [named("optional", mask_codecs=["packbits"], data_codecs=[inner])]
    spelling = named("optional", name="optional", configuration={"name": "int8"})
    document = array_document(shape=[4], data_type=spelling, fill_value=[None], codecs=codecs)
    stored = maybe(b"\3", maybe(b"\2", b"\7"))
    array = root_array(write(tmp_path, document, {"c/0": stored, "c/1": maybe(b"\0", b"")}))
    assert array.metadata.fill_spelling == [None]
    assert array.chunks.read_all((0,), array.chunks.find((0,)), 1 << 26) == maybe(b"\1\1", maybe(b"\0\1", b"\7"))
    assert array.chunks.read_all((1,), array.chunks.find((1,)), 1 << 26) == maybe(b"\0\0", b"")
    for damaged in (b"", stored[:-1], stored + b"x", maybe(b"\1", maybe(b"\2", b"\7"))):
        (tmp_path / "c/0").write_bytes(damaged)
        with pytest.raises(CorruptData):
            array.chunks.read_all((0,), array.chunks.find((0,)), 1 << 26)


def test_transpose_after_a_codec_that_depends_on_neighbours(tmp_path: Path) -> None:
    """`delta` sees the chunk in its own order, so the transpose behind it has to be undone, not described."""
    data = np.arange(24, dtype="i4").reshape(4, 6) ** 2
    deltas = np.diff(data.ravel(), prepend=0).reshape(4, 6).astype("<i4")
    codecs = [
        named("numcodecs.delta", dtype="<i4"),
        named("transpose", order=[1, 0]),
        named("bytes", endian="little"),
    ]
    grid = named("regular", chunk_shape=[4, 6])
    document = array_document(shape=[4, 6], data_type="int32", chunk_grid=grid, codecs=codecs)
    array = root_array(write(tmp_path, document, {"c/0/0": deltas.T.tobytes()}))
    assert array.metadata.order is None
    np.testing.assert_array_equal(read_array(array), data)


@pytest.mark.parametrize("named_type", ["<i4", "<u4", "int32"])
def test_delta_sums_the_bits_of_the_arrays_own_elements(tmp_path: Path, named_type: str) -> None:
    """Zeros of either sign: the sums are the same bits."""
    data = np.array([7, 2**32 - 1, 0], "<u4")
    document = array_document(
        shape=[3],
        data_type="uint32",
        chunk_grid=named("regular", chunk_shape=[3]),
        codecs=[named("numcodecs.delta", dtype=named_type), named("bytes", endian="little")],
    )
    deltas = np.diff(data, prepend=np.uint32(0))
    np.testing.assert_array_equal(read_array(root_array(write(tmp_path, document, {"c/0": deltas.tobytes()}))), data)


def test_document_survives_as_native(tmp_path: Path) -> None:
    write(tmp_path, array_document(data_type="bfloat16", fill_value=0))
    array = root_array(tmp_path)
    assert array.metadata.native["zarr.json"] == json.loads((tmp_path / "zarr.json").read_text())
