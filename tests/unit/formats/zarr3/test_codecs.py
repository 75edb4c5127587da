"""Codecs, grids and chunk keys: those beyond zarr-python's as zarrs, TensorStore and zfpy wrote them, and what they read."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import imagecodecs
import ml_dtypes
import numpy as np
import pytest
import zfpy
from model_reader import group_at, read_array, read_chunk, stored_chunks
from n5_arrays import write_n5
from paths import DATA
from zarr3_documents import (
    array_document,
    check,
    index,
    int16,
    root_array,
    source,
    values,
    write,
)

from fsbridge.errors import CorruptData, NotFound, Unsupported
from fsbridge.layouts.zarr3 import codecs
from fsbridge.model import Array

pytestmark = pytest.mark.filterwarnings("ignore:::zarr", "ignore::zarr.errors.UnstableSpecificationWarning")

ZARRS = zipfile.ZipFile(DATA / "zarrs.zip")
WORDS = ["", "a", "wörld", "日本", "x" * 50, "b"]
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}


def named(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, "configuration": configuration}


def by_zarrs(folder: Path, name: str) -> Array:
    ZARRS.extractall(folder, [member for member in ZARRS.namelist() if member.startswith(f"{name}/")])
    return root_array(folder / name)


@pytest.mark.parametrize("name", [name.removesuffix(".npy") for name in ZARRS.namelist() if name.endswith(".npy")])
def test_p12_arrays_of_zarrs_have_its_values(tmp_path: Path, name: str) -> None:
    array, expected = by_zarrs(tmp_path, name), np.load(io.BytesIO(ZARRS.read(f"{name}.npy")))
    found = read_array(array)
    assert found.tobytes() == expected.tobytes()
    assert next(array.chunks.strays(), None) is None


@pytest.mark.parametrize("name", ["vlen", "vlen_end", "vlen_v2"])
def test_p12_texts_and_bytes_of_zarrs_have_its_values(tmp_path: Path, name: str) -> None:
    assert read_array(by_zarrs(tmp_path, f"{name}_string")).tolist() == WORDS
    assert read_array(by_zarrs(tmp_path, f"{name}_bytes")).tolist() == [word.encode() for word in WORDS]


def test_optional_elements_by_the_name_that_zarrs_gives_them(tmp_path: Path) -> None:
    array = by_zarrs(tmp_path, "optional")
    assert [codec["name"] for codec in codecs(array.metadata)] == ["zarrs.optional"], "as zarrs wants beside its data type"
    found = bytes(array.chunks.read_all((1,), array.chunks.find((1,)), 100))
    assert found == bytes((4, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0)) + bytes((0, 0, 0, 1)) + int16(7)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ([[1], [0]], "not where"),
        ([[0, 0]], "do not increase"),
        ([3, -1], "does not fit"),
        ([-1, -1], "does not fit"),
        ([[0], 2, [1]], "does not fit"),
        ([2, [0]], "not where"),
        ([[2]], r"2"),
        ([0, 4], r"0"),
    ],
    ids=str,
)
def test_a_reshape_that_does_not_fit_is_damage(tmp_path: Path, shape: Any, reason: str) -> None:
    grid = named("regular", chunk_shape=[2, 2])
    codecs = [named("reshape", shape=shape), LITTLE]
    with pytest.raises(CorruptData, match=f"reshape.*{reason}"):
        root_array(write(tmp_path, array_document(shape=[4, 4], chunk_grid=grid, codecs=codecs)))


def test_shards_after_a_reshape_are_refused(tmp_path: Path) -> None:
    codecs = [named("reshape", shape=[-1]), named("sharding_indexed", chunk_shape=[2], codecs=[LITTLE])]
    array = root_array(write(tmp_path, array_document(codecs=codecs), {"c/0": int16(1, 2)}))
    assert "shards cannot follow a reshape" in (array.metadata.refused or "")


BLOCKS: list[tuple[str, list[Any]]] = [("raw", []), ("gzip", ["gzip"]), ("zstd", [named("zstd", level=0, checksum=False)])]


@pytest.mark.parametrize(("compression", "compressors"), BLOCKS, ids=[name for name, _ in BLOCKS])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float64"])
def test_p12_n5_blocks_are_read_below_metadata_of_zarr(
    tmp_path: Path, dtype: str, compression: str, compressors: list[Any]
) -> None:
    """TensorStore's N5 blocks, the last of which it cuts off where the array ends."""
    values = np.arange(5 * 7 * 3).reshape(5, 7, 3).astype(dtype)
    write_n5(tmp_path, values, [2, 4, 3], compression)
    order = named("transpose", order=[2, 1, 0])
    document = array_document(
        shape=[5, 7, 3],
        data_type=dtype,
        chunk_grid=named("regular", chunk_shape=[2, 4, 3]),
        chunk_key_encoding=named("v2", separator="/"),
        codecs=[named("n5_default", codecs=[order, named("bytes", endian="big"), *compressors])],
    )
    np.testing.assert_array_equal(read_array(root_array(write(tmp_path, document))), values)


@pytest.mark.parametrize("block", ["000100020000000200000002", "0000000200000002", "000000030000", "00000001000000020102"])
def test_n5_blocks_of_another_kind_are_damage(tmp_path: Path, block: str) -> None:
    codecs = [named("n5_default", codecs=[named("transpose", order=[0]), named("bytes", endian="big")])]
    array = root_array(write(tmp_path, array_document(codecs=codecs), {"c/0": bytes.fromhex(block)}))
    with pytest.raises(CorruptData):
        array.chunks.read_into((0,), array.chunks.find((0,)), memoryview(bytearray(4)))


@pytest.mark.parametrize(
    "codecs", [[LITTLE], [named("transpose", order=[0]), LITTLE, "gzip", "gzip"]], ids=["short", "long"]
)
def test_n5_blocks_with_other_codecs_are_refused(tmp_path: Path, codecs: list[Any]) -> None:
    array = root_array(write(tmp_path, array_document(codecs=[named("n5_default", codecs=codecs)]), {"c/0": b""}))
    assert "at most one more" in (array.metadata.refused or "")


SMALL = (
    "float8_e4m3",
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e4m3b11fnuz",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e3m4",
)


BITS = {**dict.fromkeys(SMALL, 8), "bfloat16": 16, "int4": 4, "uint4": 4, "int2": 2, "uint2": 2}
BITS |= {"float6_e2m3fn": 6, "float6_e3m2fn": 6, "float4_e2m1fn": 4}


@pytest.mark.parametrize("name", BITS)
def test_p12_casts_from_numbers_that_numpy_lacks(tmp_path: Path, name: str) -> None:
    """Every number, as ml_dtypes knows it; an integer's upper bits mean nothing."""
    small = np.dtype(getattr(ml_dtypes, name))
    codes = np.arange(1 << BITS[name], dtype=f"u{small.itemsize}")
    np.testing.assert_array_equal(casted(tmp_path, "float32", name, codes), codes.view(small).astype("f4"))
    if "int" in name:
        assert casted(tmp_path, "int16", name, codes | 0x80).tolist() == codes.view(small).astype("i2").tolist()


@pytest.mark.parametrize("name", BITS)
def test_p12_casts_to_numbers_that_numpy_lacks(tmp_path: Path, name: str) -> None:
    """Every number, what lies between two of them, and what is beyond: as ml_dtypes rounds, to the nearest even."""
    small = np.dtype(getattr(ml_dtypes, name))
    every = np.arange(1 << BITS[name], dtype=f"u{small.itemsize}").view(small).astype("f4")
    every = np.unique(every[np.isfinite(every)].astype("f8"))
    stored = np.unique(np.concatenate([every, (every[1:] + every[:-1]) / 2, every[1:] * 0.75 + every[:-1] * 0.25]))
    with np.errstate(all="ignore"):
        expected = (np.rint(stored).astype("i1") if "int" in name else stored).astype(small).astype("f4")
    found = np.frombuffer(casted(tmp_path, name, "float64", stored).tobytes(), small)
    np.testing.assert_array_equal(found.astype("f4"), expected)
    beyond = every[-1:] * 1.5
    with pytest.raises(CorruptData, match="out of range"):
        casted(tmp_path, name, "float64", beyond)
    clamped = np.frombuffer(casted(tmp_path, name, "float64", beyond, out_of_range="clamp").tobytes(), small)
    assert float(clamped[0]) in (every[-1], np.inf)


def casted(folder: Path, dtype: str, stored_type: str, stored: np.ndarray, **more: Any) -> np.ndarray:
    document = array_document(
        shape=[len(stored)],
        data_type=dtype,
        fill_value=0,
        chunk_grid=named("regular", chunk_shape=[len(stored)]),
        codecs=[named("cast_value", data_type=stored_type, **more), LITTLE],
    )
    return read_array(root_array(write(folder, document, {"c/0": stored.tobytes()})))


def test_numbers_that_numpy_lacks_are_big_endian_and_packed_after_a_cast(tmp_path: Path) -> None:
    grid = named("regular", chunk_shape=[4])
    cast = named("cast_value", data_type="bfloat16")
    document = array_document(shape=[4], chunk_grid=grid, data_type="float32", codecs=[cast, named("bytes", endian="big")])
    stored = np.array([1.5, -2, 0, 3], ml_dtypes.bfloat16).view("u2").astype(">u2").tobytes()
    assert read_array(root_array(write(tmp_path / "a", document, {"c/0": stored}))).tolist() == [1.5, -2, 0, 3]
    codecs = [named("cast_value", data_type="int4"), "packbits"]
    packed = array_document(shape=[4], chunk_grid=grid, data_type="int16", codecs=codecs)
    assert read_array(root_array(write(tmp_path / "b", packed, {"c/0": bytes((0x1F, 0x87))}))).tolist() == [-1, 1, 7, -8]


@pytest.mark.parametrize("after", [named("scale_offset", offset=1), named("numcodecs.delta", dtype="<u2")], ids=str)
def test_codecs_of_numbers_are_refused_after_a_cast_to_numbers_that_numpy_lacks(tmp_path: Path, after: Any) -> None:
    codecs = [named("cast_value", data_type="bfloat16"), after, LITTLE]
    array = root_array(write(tmp_path, array_document(data_type="float32", codecs=codecs), {"c/0": bytes(8)}))
    assert "cannot be used on data type" in (array.metadata.refused or "")


MODES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "reversible": ({}, {}),
    "fixed_rate": ({"rate": 10.5}, {"rate": 10.5}),
    "fixed_precision": ({"precision": 19}, {"precision": 19}),
    "fixed_accuracy": ({"tolerance": 0.05}, {"tolerance": 0.05}),
    "expert": ({"minbits": 1, "maxbits": 16658, "maxprec": 19, "minexp": -1074}, {"precision": 19}),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (37,), (9, 10), (5, 6, 7), (3, 4, 5, 6)], ids=str)
def test_p12_zfp_without_a_header_decodes_as_zfpy_does(
    tmp_path: Path, mode: str, dtype: str, shape: tuple[int, ...]
) -> None:
    """Streams and numbers of zfpy, which decodes streams without a header if it is told all about them."""
    configuration, options = MODES[mode]
    if mode == "fixed_accuracy" and dtype[0] == "i":
        dtype = dtype.replace("int", "float")
    values = np.cumsum(np.random.default_rng(0).normal(size=shape or 1) * 1000, -1).astype(dtype)
    stored = zfpy.compress_numpy(values, write_header=False, **options)
    expected = zfpy.decompress_numpy(zfpy.compress_numpy(values, **options))
    document = array_document(
        shape=list(shape),
        data_type=dtype,
        chunk_grid=named("regular", chunk_shape=list(shape)),
        codecs=[named("zfp", mode=mode, **configuration)],
    )
    array = root_array(write(tmp_path, document, {"/".join(["c", *("0" for _ in shape)]): stored}))
    np.testing.assert_array_equal(read_array(array), expected.reshape(shape))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "uint32", "uint64", "float16"])
def test_p12_zfp_promotes_small_numbers(tmp_path: Path, dtype: str) -> None:
    """As the registered specification and zarrs say: zfp's own shifts, clamped unsigned numbers, cast floats."""
    width = 8 * np.dtype(dtype).itemsize
    values = (np.sin(np.arange(400) / 9).reshape(20, 20) * 100 + (100 if dtype[0] == "u" else 0)).astype(dtype)
    if width < 32 and dtype[0] != "f":
        promoted = (values.astype("i4") - (1 << width - 1 if dtype[0] == "u" else 0)) << (31 - width)
    else:
        promoted = values.astype("f4" if dtype[0] == "f" else f"i{width // 8}")
    stored = zfpy.compress_numpy(promoted, write_header=False)
    grid = named("regular", chunk_shape=[20, 20])
    document = array_document(shape=[20, 20], data_type=dtype, chunk_grid=grid, codecs=[named("zfp", mode="reversible")])
    np.testing.assert_array_equal(read_array(root_array(write(tmp_path, document, {"c/0/0": stored}))), values)


@pytest.mark.parametrize(
    ("configuration", "shape"),
    [
        ({"mode": "fixed_rate"}, [2, 2]),
        ({"mode": "other"}, [2, 2]),
        ({"mode": "expert", "minbits": 9, "maxbits": 8, "maxprec": 64, "minexp": 0}, [2, 2]),
        ({"mode": "reversible", "write_header": True}, [2, 2]),
        ({"mode": "reversible"}, [1] * 5),
        ({"mode": "reversible"}, [1, 1, 1, 5000]),
    ],
    ids=str,
)
def test_zfp_that_its_header_cannot_say_is_refused(tmp_path: Path, configuration: dict[str, Any], shape: list[int]) -> None:
    grid = named("regular", chunk_shape=shape)
    codecs = [named("zfp", **configuration)]
    document = array_document(shape=shape, data_type="float32", chunk_grid=grid, codecs=codecs)
    assert "zfp" in (root_array(write(tmp_path, document)).metadata.refused or "")


@pytest.mark.parametrize("separator", ["/", "."])
@pytest.mark.parametrize("member", ["base_encoding", "base-encoding"])
def test_chunk_keys_may_have_a_suffix(tmp_path: Path, separator: str, member: str) -> None:
    keys = named("suffix", suffix=".10", **{member: named("v2", separator=separator)})
    document = array_document(
        shape=[2, 2], chunk_grid=named("regular", chunk_shape=[1, 1]), chunk_key_encoding=keys, fill_value=0
    )
    chunks = {f"0{separator}1.10": int16(3), f"1{separator}0": int16(9), f"1{separator}1.10": int16(4)}
    array = root_array(write(tmp_path, document, chunks))
    assert list(stored_chunks(array)) == [(0, 1), (1, 1)]
    assert read_array(array).tolist() == [[0, 3], [0, 4]]
    assert len(list(array.chunks.strays())) == 1


@pytest.mark.parametrize(
    "base",
    [
        named("fanout", max_children=101),
        named("zarrs.default_suffix", suffix=".bin"),
        named("suffix", suffix=".bin", base_encoding=named("default")),
    ],
    ids=lambda base: base["name"],
)
def test_a_suffix_after_keys_that_cannot_have_one_is_refused(tmp_path: Path, base: dict[str, Any]) -> None:
    """Both were accepted, and one suffix was looked for: all chunks were absent, and the array was its fill value."""
    keys = named("suffix", suffix=".tiff", base_encoding=base)
    with pytest.raises(Unsupported, match="a suffix after"):
        root_array(write(tmp_path, array_document(chunk_key_encoding=keys)))


@pytest.mark.parametrize("suffix", ["/x", "x" * 100, 3])
def test_a_suffix_that_makes_directories_is_refused(tmp_path: Path, suffix: Any) -> None:
    with pytest.raises((Unsupported, CorruptData), match="default_suffix"):
        root_array(write(tmp_path, array_document(chunk_key_encoding=named("zarrs.default_suffix", suffix=suffix))))


def test_a_bounded_grid_of_too_many_cut_chunks_is_refused(tmp_path: Path) -> None:
    grid = named("zarrs.regular_bounded", chunk_shape=[2])
    with pytest.raises(Unsupported, match="edges of chunks"):
        root_array(write(tmp_path, array_document(shape=[(1 << 40) + 1], chunk_grid=grid)))
    assert json.loads((tmp_path / "zarr.json").read_text())["chunk_grid"] == grid
    assert root_array(write(tmp_path, array_document(shape=[1 << 40], chunk_grid=grid))).metadata.grid.edges == (2,)


PICTURE = (np.add.outer(np.arange(32), np.arange(48)) * 3 % 251).astype("u1")
COLOURS = np.stack([PICTURE, PICTURE[::-1], PICTURE[:, ::-1]], -1)
PICTURES: list[tuple[str, np.ndarray, bytes | bytearray]] = [
    ("jpeg", PICTURE, imagecodecs.jpeg8_encode(PICTURE, level=90)),
    ("jpeg", COLOURS, imagecodecs.jpeg8_encode(COLOURS, level=90)),
    ("jpegxl", PICTURE.astype("u2") * 200, imagecodecs.jpegxl_encode(PICTURE.astype("u2") * 200, lossless=True)),
    ("jpegxl", PICTURE / np.float32(251), imagecodecs.jpegxl_encode(PICTURE / np.float32(251), lossless=True)),
    ("jpeg2000", COLOURS, imagecodecs.jpeg2k_encode(COLOURS, level=0)),
]


@pytest.mark.parametrize("shards", [False, True])
@pytest.mark.parametrize(("name", "values", "stored"), PICTURES, ids=[f"{n} {v.shape} {v.dtype}" for n, v, _ in PICTURES])
def test_p12_pictures_by_the_names_that_are_registered(
    tmp_path: Path, name: str, values: np.ndarray, stored: bytes | bytearray, shards: bool
) -> None:
    """What imagecodecs itself decodes; a leading dimension of one is no part of the picture."""
    shape = [*values.shape] if values.ndim == 3 else [1, *values.shape]
    squeezed = [named("reshape", shape=list(values.shape)), named(name, quality=90)]
    inner: list[Any] = [named(name, quality=90)] if values.ndim == 3 else squeezed
    whole = bytes(stored)
    if shards:
        inner = [named("sharding_indexed", chunk_shape=shape, codecs=inner, index_codecs=[LITTLE, named("crc32c")])]
        whole += index((0, len(stored)))
    grid = named("regular", chunk_shape=shape)
    document = array_document(shape=shape, data_type=values.dtype.name, fill_value=0, chunk_grid=grid, codecs=inner)
    found = read_array(root_array(write(tmp_path, document, {"c/0/0/0": whole})))
    expected = getattr(imagecodecs, {"jpeg": "jpeg8", "jpeg2000": "jpeg2k"}.get(name, name) + "_decode")(stored)
    np.testing.assert_array_equal(found, expected.reshape(shape))


@pytest.mark.parametrize(
    ("stored", "reason"),
    [(PICTURES[0][2][:-1], "no end"), (PICTURES[1][2], r"picture of \[32, 48, 3\]"), (b"\xff\xd9", "jpeg")],
    ids=["cut", "colours", "no picture"],
)
def test_a_picture_of_another_kind_is_damage(tmp_path: Path, stored: bytes, reason: str) -> None:
    grid = named("regular", chunk_shape=[32, 48])
    document = array_document(shape=[32, 48], data_type="uint8", chunk_grid=grid, codecs=[named("jpeg")])
    array = root_array(write(tmp_path, document, {"c/0/0": stored}))
    with pytest.raises(CorruptData, match=reason):
        array.chunks.read_into((0, 0), array.chunks.find((0, 0)), memoryview(bytearray(32 * 48)))


def test_pictures_of_numbers_that_they_cannot_hold_are_refused(tmp_path: Path) -> None:
    array = root_array(write(tmp_path, array_document(data_type="int32", codecs=[named("jpeg")])))
    assert array.metadata.refused == "codec 'jpeg' cannot hold chunks of [2] int32"


def test_p12_lzw_by_the_name_that_is_registered(tmp_path: Path) -> None:
    stored = bytes(imagecodecs.lzw_encode(int16(1, 2)))
    array = root_array(write(tmp_path, array_document(codecs=[LITTLE, "lzw"]), {"c/0": stored}))
    assert read_array(array)[:2].tolist() == [1, 2]


def test_chunk_keys_may_be_digits(tmp_path: Path) -> None:
    """The examples of the proposal, and what lies beside them."""
    keys = named("fanout", max_children=101)
    grid = named("regular", chunk_shape=[1, 1, 1])
    document = array_document(shape=[2000, 10, 70000], chunk_grid=grid, chunk_key_encoding=keys)
    chunks = {"d0/12/34/d1/5/d2/6/78/90/c": int16(3), "d0/12/d1/0/d2/0/c": int16(4), "d0/12/d1/0/d2/6/c": int16(5)}
    strays = ["d0/0/5/d1/0/d2/0/c", "d0/12/34/d1/5/d2/6/78/90/x", "d0/99/99/d1/5/d2/6/c", "d0/012/d1/0/d2/0/c"]
    array = root_array(write(tmp_path, document, chunks | dict.fromkeys(strays, int16(9))))
    assert list(stored_chunks(array)) == [(12, 0, 0), (12, 0, 6), (1234, 5, 67890)]
    assert array.chunks.count() == 3
    assert [read_chunk(array, index).item() for index in stored_chunks(array)] == [4, 5, 3]
    for lacking in [(13, 0, 0), (12, 0, 1), (0, 5, 0)]:
        with pytest.raises(NotFound):
            array.chunks.find(lacking)
    for prefix in [(13,), (12, 1), (1234, 5, 6)]:
        with pytest.raises(NotFound):
            array.chunks.find_prefix(prefix)
    assert len(list(array.chunks.strays())) == len(strays)


@pytest.mark.parametrize(("shape", "key"), [([], "c"), ([500], "d0/1/23/c")], ids=str)
def test_chunk_keys_of_digits_of_few_dimensions(tmp_path: Path, shape: list[int], key: str) -> None:
    grid = named("regular", chunk_shape=[1] * len(shape))
    keys = named("fanout", max_children=101)
    array = root_array(
        write(tmp_path, array_document(shape=shape, chunk_grid=grid, chunk_key_encoding=keys), {key: int16(8)})
    )
    assert list(stored_chunks(array)) == ([(123,)] if shape else [()])
    assert read_chunk(array, (123,) if shape else ()).item() == 8


# grids


def test_chunks_of_a_rectilinear_grid_have_their_own_shapes(tmp_path: Path) -> None:
    """zarr 3.4: run lengths, plain lists and a lone edge; chunks overhang the array."""
    data = values(np.dtype("i2"), (8, 5, 4))
    document = array_document(
        shape=[8, 5, 4],
        chunk_grid={
            "name": "rectilinear",
            "configuration": {"kind": "inline", "chunk_shapes": [[[3, 2], 4], [2, 3], 3]},
        },
        codecs=["bytes", "gzip"],
    )
    rows, columns, planes = (3, 3, 4), (2, 3), (3, 3)
    chunks = {}
    padded = np.zeros((10, 5, 6), "i2")
    padded[:8, :, :4] = data
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            for k, plane in enumerate(planes):
                x, y, z = sum(rows[:i]), sum(columns[:j]), sum(planes[:k])
                piece = padded[x : x + row, y : y + column, z : z + plane]
                chunks[f"c/{i}/{j}/{k}"] = gzip.compress(np.ascontiguousarray(piece).tobytes())
    del chunks["c/1/1/0"]
    expected = data.copy()
    expected[3:6, 2:5, :3] = 7
    found = check(write(tmp_path, document, chunks), expected)
    assert found.metadata.grid.edges == ((3, 3, 4), (2, 3), 3)


@pytest.mark.parametrize("shapes", [[[3, 4]], [[3, [4, 0]]], [[3, "4"]], [[]], [0], [[[1, 10**9]]], [[2, 2], [2]]], ids=str)
def test_impossible_rectilinear_grids_are_refused(tmp_path: Path, shapes: Any) -> None:
    grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": shapes}}
    write(tmp_path, array_document(shape=[8], chunk_grid=grid))
    with pytest.raises((CorruptData, Unsupported)):
        source(tmp_path).root  # noqa: B018


def test_p6_edges_of_chunks_are_bounded_and_are_not_kept_as_if_they_were_few(tmp_path: Path) -> None:
    """2 KB of metadata took 600 MB and 12 s; a hundred such documents were kept at a time."""

    def grid(rank: int, count: int) -> dict[str, Any]:
        shapes = [[[1, count], 2]] * rank
        return {
            "shape": [count] * rank,
            "chunk_grid": {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": shapes}},
        }

    write(tmp_path / "many", array_document(**grid(32, 100_000)))
    with pytest.raises(Unsupported, match="edges"):
        source(tmp_path / "many").root  # noqa: B018
    for number in range(40):
        write(tmp_path / "few" / str(number), array_document(**grid(1, 100_000 + number)))
    root = group_at(source(tmp_path / "few").root, "")
    tracemalloc.start()
    try:
        for number in range(40):
            assert root.child(str(number)).kind == "array"
        assert tracemalloc.get_traced_memory()[0] < 10 * 100_000 * 8
    finally:
        tracemalloc.stop()
