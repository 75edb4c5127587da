"""Datatypes, layouts and fill values of HDF5 files, compared with h5py's reading. Not here: broken texts (`child/`)."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
from hdf5_model import array, decoded, opened, values
from model_reader import split_items

from fsbridge.errors import Unsupported

HDF5 = ctypes.CDLL(h5py.h5p.__file__)
"""What h5py offers for numpy's types only."""
HDF5.H5Dwrite.argtypes = (ctypes.c_int64,) * 5 + (ctypes.c_char_p,)
HDF5.H5Tset_precision.argtypes = HDF5.H5Tset_offset.argtypes = (ctypes.c_int64, ctypes.c_size_t)
HDF5.H5Pset_fill_value.argtypes = (ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)

RANDOM = np.random.default_rng(5)

NUMBERS = [
    *(f"{order}{kind}{size}" for order in "<>" for kind in "iu" for size in (1, 2, 4, 8)),
    *(f"{order}f{size}" for order in "<>" for size in (2, 4, 8)),
    *(f"{order}c{size}" for order in "<>" for size in (8, 16)),
    "?",
    "S7",
]
STRUCTS = {
    "packed": np.dtype([("a", "<i4"), ("b", "<f8"), ("c", "S3")]),
    "big": np.dtype([("a", ">i4"), ("b", ">f8"), ("n", [("x", ">u2"), ("y", "<c8")])]),
    "gaps": np.dtype({"names": ["a", "b"], "formats": ["<i2", ">f8"], "offsets": [1, 8], "itemsize": 20}),
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"chunks": (3, 4)},
    "gzip": {"chunks": (3, 4), "compression": "gzip", "shuffle": True},
}
SHAPE = (7, 10)


def random_elements(dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Numbers of a type, with extremes and NaN."""
    if dtype.fields:
        found = np.zeros(shape, dtype)
        for name in dtype.names or ():
            found[name] = random_elements(dtype[name], shape)
        return found
    if dtype.kind == "S":
        return RANDOM.integers(0, 10**6, shape).astype(dtype)
    if dtype.kind == "b":
        return RANDOM.integers(0, 2, shape).astype(bool)
    if dtype.kind in "fc":
        found = (RANDOM.standard_normal(shape) * 100).astype(dtype)
        found.flat[0] = np.nan
        return found
    limits = np.iinfo(dtype)
    found = RANDOM.integers(limits.min, limits.max, shape, dtype.newbyteorder("="), endpoint=True).astype(dtype)
    found.flat[:2] = limits.min, limits.max
    return found


def raw_elements(dataset: h5py.Dataset) -> bytes:
    """The stored elements' bytes as HDF5 itself gives them, unconverted."""
    tid = dataset.id.get_type()
    found = np.zeros(dataset.size * tid.get_size(), np.uint8)
    dataset.id.read(h5py.h5s.create_simple((max(1, dataset.size),)), h5py.h5s.create_simple((dataset.size,)), found, tid)
    return found.tobytes()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """`write(function)`: a file filled by `function(file)`."""

    def make(fill: Callable[[h5py.File], object], **options: Any) -> Path:
        path = tmp_path / "sample.h5"
        with h5py.File(path, "w", **options) as file:
            fill(file)
        return path

    return make


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_keep_type_order_and_bits(write: Callable[..., Path], layout: str) -> None:
    """Every number of both byte orders keeps its type, order and bits."""
    data = {name: random_elements(np.dtype(name), SHAPE) for name in NUMBERS}

    def fill(file: h5py.File) -> None:
        for number, name in enumerate(NUMBERS):
            file.create_dataset(str(number), data=data[name], **LAYOUTS[layout])

    path = write(fill)
    with opened(path) as source, h5py.File(path) as file:
        for number, name in enumerate(NUMBERS):
            found = array(source, str(number))
            assert found.metadata.dtype.numpy == np.dtype(name)
            read = values(found)
            assert read.tobytes() == data[name].tobytes(), name
            np.testing.assert_array_equal(read, file[str(number)][()])
            assert found.metadata.dtype.native.startswith("H5T_")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", STRUCTS)
def test_compounds_are_structs_of_the_same_size(write: Callable[..., Path], layout: str, name: str) -> None:
    """Compounds are little-endian structs of the same item size; gaps are fields."""
    dtype = STRUCTS[name]
    data = random_elements(dtype, SHAPE)
    path = write(lambda file: file.create_dataset("x", data=data, **LAYOUTS[layout]))
    with opened(path) as source:
        found = array(source, "x")
        assert found.metadata.dtype.itemsize == dtype.itemsize
        assert found.metadata.dtype.name["name"] == "structured"
        read = values(found)
        for field in dtype.names or ():
            assert_same(read[field], data[field])
        assert [field for field in read.dtype.names or () if not field.startswith("_gap")] == list(dtype.names or ())


def assert_same(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    """Equal values, NaN included, whatever the byte order."""
    if expected.dtype.fields:
        for name in expected.dtype.names or ():
            assert_same(found[name], expected[name])
    else:
        np.testing.assert_array_equal(found, expected)


def test_array_fields_of_compounds_are_their_bytes(write: Callable[..., Path]) -> None:
    """An array field is raw bytes, exactly the stored ones, and its type is given."""
    dtype = np.dtype([("n", "<i4"), ("v", "<f8", (2, 3))])
    data = np.zeros(5, dtype)
    data["n"] = np.arange(5)
    data["v"] = RANDOM.standard_normal((5, 2, 3))
    path = write(lambda file: file.create_dataset("x", data=data))
    with opened(path) as source:
        found = array(source, "x")
        assert values(found).tobytes() == data.tobytes()
        assert "H5T_ARRAY(2x3 H5T_IEEE_F64LE)" in found.metadata.native["hdf5"]["type"]


def test_array_type_becomes_dimensions(write: Callable[..., Path]) -> None:
    """Elements that are arrays are shown as more dimensions, as h5py does."""
    data = RANDOM.standard_normal((5, 2, 3))

    def fill(file: h5py.File) -> None:
        for name, options in (("whole", {}), ("cut", {"chunks": (2,), "compression": "gzip"})):
            file.create_dataset(name, (5,), np.dtype(("<f8", (2, 3))), **options)[...] = data

    path = write(fill)
    with opened(path) as source:
        assert array(source, "cut").metadata.grid.edges == (2, 2, 3)
        np.testing.assert_array_equal(values(array(source, "cut")), data)
        np.testing.assert_array_equal(values(array(source, "whole")), data)


def test_enum_is_its_base_with_names(write: Callable[..., Path]) -> None:
    """An enum shows its numbers; the names are an attribute."""
    dtype = h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": -5}, basetype=">i2")
    path = write(lambda file: file.create_dataset("x", data=np.array([0, -5, 1]), dtype=dtype))
    with opened(path) as source:
        found = array(source, "x")
        assert values(found).tolist() == [0, -5, 1]
        assert found.metadata.dtype.name == "int16"
        assert found.metadata.attributes == {"_ENUM": {"RED": 0, "GREEN": 1, "BLUE": -5}}


def test_types_without_a_name_in_zarr_are_raw_bytes(write: Callable[..., Path]) -> None:
    """Types without a name in Zarr are raw bytes; numpy's times keep their unit."""
    times = np.array(["2001-02-03", "1969-01-01", "NaT"], "<M8[us]")

    def fill(file: h5py.File) -> None:
        file.create_dataset("opaque", data=np.array([b"abc", b"\0\1\2"], "V3"))
        file.create_dataset("time", data=times.astype(h5py.opaque_dtype(times.dtype)))
        file.create_dataset("long", data=np.array([1.5, -2], np.longdouble))
        h5py.h5d.create(file.id, b"bits", h5py.h5t.STD_B16BE, h5py.h5s.create_simple((4,)))
        file["bits"].id.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([1, 2, 3, 65535], ">u2").view("V2"), h5py.h5t.STD_B16BE)

    path = write(fill)
    with opened(path) as source, h5py.File(path) as file:
        for name in ("opaque", "time", "long", "bits"):
            assert values(array(source, name)).tobytes() == raw_elements(file[name]), name
        np.testing.assert_array_equal(values(array(source, "time")), times)
        assert array(source, "time").metadata.dtype.name["configuration"] == {"unit": "us", "scale_factor": 1}
        assert array(source, "long").metadata.dtype.name["name"] == "raw_bytes"
        assert values(array(source, "bits")).tolist() == [1, 2, 3, 65535]


def test_integers_with_unused_bits_have_hdf5s_values(write: Callable[..., Path]) -> None:
    """A 12-bit integer in 16 bits has the values that HDF5 gives, signs included."""
    data = np.array([[-2048, 2047, 0], [1, -1, 5]], "<i2")

    def fill(file: h5py.File) -> None:
        tid = h5py.h5t.STD_I16LE.copy()
        tid.set_precision(12)
        tid.set_offset(2)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((2, 2))
        plist.set_filter(h5py.h5z.FILTER_NBIT, h5py.h5z.FLAG_MANDATORY)
        for name, creation in ((b"nbit", plist), (b"plain", None)):
            dataset = h5py.h5d.create(file.id, name, tid, h5py.h5s.create_simple(data.shape), creation)
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, data)

    path = write(fill)
    with opened(path) as source:
        np.testing.assert_array_equal(values(array(source, "nbit")), data)
        np.testing.assert_array_equal(values(array(source, "plain")), data)


def _low(file: h5py.File, name: str, tid: Any, elements: bytes, chunked: bool = False) -> None:
    """Write a dataset of the stored `elements`, of a type that numpy lacks."""
    space, plist = h5py.h5s.create_simple((len(elements) // tid.get_size(),)), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if chunked:
        plist.set_chunk((2,))
        plist.set_deflate(4)
    dataset = h5py.h5d.create(file.id, name.encode(), tid, space, plist)
    assert HDF5.H5Dwrite(dataset.id, tid.id, 0, 0, 0, elements) >= 0


@pytest.mark.parametrize("chunked", [False, True])
def test_p12_integers_with_unused_bits_inside_types_have_hdf5s_values(write: Callable[..., Path], chunked: bool) -> None:
    """Also in compounds, arrays, enumerations and sequences numbers are those that HDF5 gives; gaps are zeros."""
    numbers = [-2048, 2047, -1, 5]
    stored = b"".join((value % 4096 << 4).to_bytes(2, "little") for value in numbers)
    counts = [(len(stored) // 2, stored), (1, stored[:2])]

    def fill(file: h5py.File) -> None:
        tid = h5py.h5t.STD_I16LE.copy()
        tid.set_precision(12)
        tid.set_offset(4)
        pair = h5py.h5t.create(h5py.h5t.COMPOUND, 6)
        pair.insert(b"a", 0, tid)
        pair.insert(b"b", 4, h5py.h5t.STD_U16BE)
        names = h5py.h5t.enum_create(tid)
        names.enum_insert(b"LEAST", -2048)
        elements = b"".join(stored[i : i + 2] + b"\xaa\xbb\1\2" for i in range(0, len(stored), 2))
        _low(file, "pairs", pair, elements, chunked)
        _low(file, "array", h5py.h5t.array_create(tid, (2,)), stored, chunked)
        _low(file, "names", names, stored, chunked)
        bits = h5py.h5t.STD_B16LE.copy()
        assert HDF5.H5Tset_precision(bits.id, 12) >= 0
        assert HDF5.H5Tset_offset(bits.id, 4) >= 0
        _low(file, "bits", bits, stored, chunked)
        pointed = [(length, ctypes.create_string_buffer(data)) for length, data in counts]
        hvl = b"".join(np.array([length, ctypes.addressof(data)], "u8").tobytes() for length, data in pointed)
        _low(file, "sequences", h5py.h5t.vlen_create(tid), hvl, chunked)

    with opened(write(fill)) as source:
        pairs = values(array(source, "pairs"))
        assert pairs["a"].tolist() == numbers
        assert pairs["b"].tolist() == [0x102] * 4
        assert values(array(source, "array")).tolist() == [numbers[:2], numbers[2:]]
        assert values(array(source, "names")).tolist() == numbers
        assert values(array(source, "bits")).tolist() == [value % 4096 for value in numbers]
        assert [np.frombuffer(row, "<i2").tolist() for row in values(array(source, "sequences"))] == [numbers, numbers[:1]]
        assert dict(array(source, "sequences").metadata.attributes) == {"_VLEN": "<i2"}


def test_p12_sequences_of_types_that_numpy_lacks_are_the_stored_ones(write: Callable[..., Path]) -> None:
    """Elements are the stored ones, of the type that `_VLEN` names. h5py converts them, or cannot read them."""
    short = h5py.h5t.IEEE_F32LE.copy()
    short.set_fields(15, 7, 8, 0, 7)
    short.set_precision(16)
    short.set_size(2)
    odd = h5py.h5t.STD_I32LE.copy()
    odd.set_precision(24)
    odd.set_size(3)
    opaque = h5py.h5t.create(h5py.h5t.OPAQUE, 6)
    opaque.set_tag(b"six")
    padded = h5py.h5t.C_S1.copy()
    padded.set_size(3)
    padded.set_strpad(h5py.h5t.STR_SPACEPAD)
    types = {"bfloat16": short, "odd": odd, "opaque": opaque, "padded": padded}
    data = ctypes.create_string_buffer(b"ab a  ", 6)

    def fill(file: h5py.File) -> None:
        for name, base in types.items():
            elements = np.array([6 // base.get_size(), ctypes.addressof(data), 0, 0], "u8")
            _low(file, name, h5py.h5t.vlen_create(base), elements.tobytes())

    with opened(write(fill)) as source:
        for name, base in types.items():
            found = array(source, name)
            assert values(found).tolist() == [b"ab a  ", b""], name
            assert np.dtype(found.metadata.attributes["_VLEN"]).itemsize == base.get_size()


@pytest.mark.parametrize("chunks", [None, (3, 4)])
def test_strings_are_text_and_sequences_are_bytes(write: Callable[..., Path], chunks: tuple[int, int] | None) -> None:
    """Strings are text, sequences are the bytes of their elements; chunks at the edge are full."""
    words = np.array([["", "ä", "x" * 300, "日本"] * 3] * 7, object)[:, :10]
    sequences = np.empty(SHAPE, object)
    for index in np.ndindex(SHAPE):
        sequences[index] = np.arange(sum(index), dtype=">i4")

    def fill(file: h5py.File) -> None:
        file.create_dataset("text", data=words, dtype=h5py.string_dtype(), chunks=chunks)
        file.create_dataset("lists", SHAPE, h5py.vlen_dtype(np.dtype(">i4")), chunks=chunks)
        file["lists"][...] = sequences

    path = write(fill)
    with opened(path) as source:
        text, lists = array(source, "text"), array(source, "lists")
        assert values(text).tolist() == words.tolist()
        assert values(lists).tolist() == [[item.tobytes() for item in row] for row in sequences]
        assert lists.metadata.attributes == {"_VLEN": ">i4"}
        assert (text.metadata.dtype.serializer, lists.metadata.dtype.serializer) == ("vlen-utf8", "vlen-bytes")


def test_fill_values_of_types_that_numpy_lacks_look_like_elements(write: Callable[..., Path]) -> None:
    """They look like elements: stored bytes for floats and integers of odd sizes, all bits for integers of few bits."""
    short, odd, few = h5py.h5t.IEEE_F32LE.copy(), h5py.h5t.STD_I32LE.copy(), h5py.h5t.STD_I16LE.copy()
    short.set_fields(15, 7, 8, 0, 7)
    short.set_precision(16)
    short.set_size(2)
    odd.set_precision(24)
    odd.set_size(3)
    few.set_precision(12)
    types = {
        "bfloat16": (short, b"\xc0\x3f", b"\xc0\x3f"),
        "odd": (odd, b"\1\2\3", b"\1\2\3"),
        "few": (few, b"\xfe\x0f", np.array(-2, "<i2").tobytes()),
    }

    def fill(file: h5py.File) -> None:
        for name, (tid, stored, _) in types.items():
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk((2,))
            assert HDF5.H5Pset_fill_value(plist.id, tid.id, ctypes.create_string_buffer(stored, len(stored))) >= 0
            h5py.h5d.create(file.id, name.encode(), tid, h5py.h5s.create_simple((3,)), plist)

    with opened(write(fill)) as source:
        for name, (_, _, expected) in types.items():
            assert array(source, name).metadata.fill == expected, name


def test_sequences_that_fill_an_overhanging_chunk_keep_the_zeros_at_their_end(write: Callable[..., Path]) -> None:
    filling = np.array([1, 2], "<i4")
    pointed = np.array([len(filling), filling.ctypes.data], "u8")

    def fill(file: h5py.File) -> None:
        tid, plist = h5py.h5t.vlen_create(h5py.h5t.STD_I32LE), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((2,))
        assert HDF5.H5Pset_fill_value(plist.id, tid.id, pointed.ctypes.data) >= 0
        dataset = h5py.Dataset(h5py.h5d.create(file.id, b"x", tid, h5py.h5s.create_simple((3,)), plist))
        dataset[2] = np.array([7], "<i4")

    with opened(write(fill)) as source:
        found = array(source, "x")
        assert found.metadata.fill == filling.tobytes()
        assert split_items(decoded(found, (1,))) == [np.array([7], "<i4").tobytes(), filling.tobytes()]


def test_pointers_inside_structures_are_json(write: Callable[..., Path]) -> None:
    """Compounds with strings, sequences or references are one JSON text per element."""
    dtype = np.dtype(
        [("name", h5py.string_dtype()), ("x", "<f8"), ("to", h5py.ref_dtype), ("n", h5py.vlen_dtype(np.dtype("i2")))]
    )

    def fill(file: h5py.File) -> None:
        file.create_group("g/h")
        dataset = file.create_dataset("x", (3,), dtype)
        dataset[0] = ("a", 1.5, file["g/h"].ref, np.array([1, 2], "i2"))
        dataset[1] = ("ü", np.nan, file["x"].ref, np.array([], "i2"))

    path = write(fill)
    with opened(path) as source:
        found = array(source, "x")
        reference = {"_REFERENCE": {"source": ".", "path": "/g/h"}}
        rows = [json.loads(text, parse_constant=pytest.fail) for text in values(found)]
        assert rows[0] == {"name": "a", "x": 1.5, "to": reference, "n": [1, 2]}
        assert rows[1] == {"name": "ü", "x": "NaN", "to": {"_REFERENCE": {"source": ".", "path": "/x"}}, "n": []}
        assert rows[2] == {"name": "", "x": 0.0, "to": None, "n": []}
        assert "_JSON" in found.metadata.attributes


def test_the_fill_value_of_elements_shown_as_json_is_json(write: Callable[..., Path]) -> None:
    """This is what h5py reads for unwritten data, and never the empty text, which is no JSON."""
    compound = np.dtype([("name", h5py.string_dtype()), ("x", "<f8"), ("n", h5py.vlen_dtype(np.dtype("i2")))])
    pairs = np.dtype((h5py.string_dtype(), (2,)))
    texts = h5py.vlen_dtype(h5py.string_dtype())

    def fill(file: h5py.File) -> None:
        for name, dtype in (("compound", compound), ("pairs", pairs), ("texts", texts)):
            file.create_dataset(name, (4,), dtype, chunks=(2,))
            file.create_dataset(f"late {name}", (4,), dtype)
        file["compound"][0] = ("a", 1.5, np.array([1, 2], "i2"))

    path = write(fill)
    with h5py.File(path) as file:
        assert not file["texts"][3].size
        row = file["compound"][3]
        assert (row["name"], row["x"], row["n"].tolist()) == (b"", 0.0, [])
    with opened(path) as source:
        for name, default in (("compound", {"name": "", "x": 0.0, "n": []}), ("pairs", ["", ""]), ("texts", [])):
            found = array(source, name)
            assert isinstance(found.metadata.fill, str)
            assert json.loads(found.metadata.fill) == default
            rows = [json.loads(text) for text in values(found)]
            assert rows[3] == default
            assert [json.loads(text) for text in values(array(source, f"late {name}"))] == [default] * 4
        assert array(source, "compound").chunks.count() == 1


def test_references_are_paths(write: Callable[..., Path]) -> None:
    """Object and region references show the path of what they refer to; none is empty."""

    def fill(file: h5py.File) -> None:
        target = file.create_dataset("a/b", data=np.arange(12).reshape(3, 4))
        objects = file.create_dataset("objects", (5,), h5py.ref_dtype, chunks=(2,))
        objects[0], objects[1], objects[4] = target.ref, file["a"].ref, file.ref
        file.create_dataset("regions", (2,), h5py.regionref_dtype)[0] = target.regionref[1:3, 2]

    path = write(fill, userblock_size=1024)
    with opened(path) as source:
        objects = array(source, "objects")
        assert values(objects).tolist() == ["/a/b", "/a", "", "", "/"]
        assert objects.metadata.attributes == {"_DTYPE": "object_reference"}
        assert values(array(source, "regions")).tolist() == ["/a/b", ""]


def test_datasets_without_dimensions_or_elements_are_read(write: Callable[..., Path]) -> None:
    """Datasets without dimensions, without elements, without a dataspace."""

    def fill(file: h5py.File) -> None:
        file["scalar"] = 2.5
        file["word"] = "wörd"
        file["null"] = h5py.Empty("<f4")
        file.create_dataset("zero", (3, 0, 2), "<i2")
        file.create_dataset("grown", (0,), "<i2", maxshape=(None,), chunks=(5,))

    path = write(fill)
    with opened(path) as source:
        assert values(array(source, "scalar"))[()] == 2.5
        assert values(array(source, "word"))[()] == "wörd"
        for name, shape in (("null", (0,)), ("zero", (3, 0, 2)), ("grown", (0,))):
            found = array(source, name)
            assert found.metadata.shape == shape
            assert values(found).size == 0
        assert array(source, "null").metadata.attributes == {"_EMPTY": True}


def test_data_inside_the_object_header_is_read(write: Callable[..., Path]) -> None:
    """Data inside the object header."""
    data = np.arange(60, dtype=">i4").reshape(3, 20)

    def fill(file: h5py.File) -> None:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        dataset = h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32BE, h5py.h5s.create_simple(data.shape), plist)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, data)

    with opened(write(fill)) as source:
        np.testing.assert_array_equal(values(array(source, "x")), data)


FILLS: dict[str, tuple[np.dtype[Any], Any]] = {
    "number": (np.dtype(">i4"), -7),
    "float": (np.dtype("<f8"), np.nan),
    "text": (np.dtype("S4"), b"none"),
    "struct": (STRUCTS["big"], np.array((3, 1.5, (2, 1j)), STRUCTS["big"])),
    "bool": (np.dtype("?"), True),
}


@pytest.mark.parametrize("chunks", [None, (4,)])
@pytest.mark.parametrize("name", FILLS)
def test_unwritten_data_is_the_fill_value(write: Callable[..., Path], name: str, chunks: tuple[int] | None) -> None:
    """Unwritten data is the fill value, and its chunks are absent."""
    dtype, value = FILLS[name]

    def fill(file: h5py.File) -> None:
        file.create_dataset("x", (10,), dtype, chunks=chunks, fillvalue=value)
        file.create_dataset("part", (10,), dtype, chunks=(4,), fillvalue=value)[:2] = np.zeros(2, dtype)

    path = write(fill)
    with opened(path) as source, h5py.File(path) as file:
        for dataset, count in (("x", 0), ("part", 1)):
            found = array(source, dataset)
            assert found.chunks.count() == count
            assert_same(values(found), file[dataset][()])


def test_unwritten_strings_are_the_fill_value(write: Callable[..., Path]) -> None:
    """The fill value of strings, absent chunks and edges included."""

    def fill(file: h5py.File) -> None:
        file.create_dataset("x", (10,), h5py.string_dtype(), chunks=(4,), fillvalue="ähm")[9] = "last"

    path = write(fill)
    with opened(path) as source:
        assert values(array(source, "x")).tolist() == ["ähm"] * 9 + ["last"]


def test_large_contiguous_data_is_cut_evenly(write: Callable[..., Path]) -> None:
    """Slabs of a few MiB along the slowest axes; the last one is padded with the fill value."""
    data = np.arange(3 * 5 * 400_000, dtype="<i4").reshape(3, 5, 400_000)
    path = write(lambda file: file.create_dataset("x", data=data, fillvalue=9))
    with opened(path) as source:
        found = array(source, "x")
        assert found.metadata.grid.edges == (1, 2, 400_000)
        assert [found.metadata.chunk_bytes((0, 0, 0)), found.chunks.count()] == [3_200_000, 9]
        np.testing.assert_array_equal(values(found), data)
        last = found.chunks.find((2, 2, 0))
        assert found.chunks.read_range((2, 2, 0), last, 3_199_996, 3_200_000) == b"\x09\0\0\0"
        assert last.stored == 1_600_000


def test_types_nested_too_deep_are_refused_and_hide_no_other(write: Callable[..., Path]) -> None:
    def nested(file: h5py.File) -> None:
        for depth in (16, 17, 200):
            dtype: np.dtype[Any] = np.dtype("<i4")
            for _ in range(depth):
                dtype = np.dtype([("a", dtype)])
            file[f"x{depth}"] = np.arange(3, dtype="<i4").view(dtype)
        file["x16"].attrs.create("deep", np.zeros((), dtype), dtype=dtype)

    path = write(nested)
    with opened(path) as source:
        assert values(array(source, "x16")).tobytes() == np.arange(3, dtype="<i4").tobytes()
        for name in ("x17", "x200"):
            with pytest.raises(Unsupported, match="nested too deep"):
                array(source, name)
        assert "nested too deep" in str(array(source, "x16").metadata.attributes["deep"])


SMALL = {
    "bfloat16": (h5py.h5t.IEEE_F16LE, 2, (15, 7, 8, 0, 7), 127),
    "bfloat16 big": (h5py.h5t.IEEE_F16BE, 2, (15, 7, 8, 0, 7), 127),
    "float8_e5m2": (h5py.h5t.IEEE_F16LE, 1, (7, 2, 5, 0, 2), 15),
    "float8 e4m3": (h5py.h5t.IEEE_F16LE, 1, (7, 3, 4, 0, 3), 7),
}
"""A type to begin with, and the bytes, fields and exponent bias of the floats that HDF5 2.0 names."""


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", SMALL)
def test_p12_floats_that_numpy_lacks_keep_their_names(write: Callable[..., Path], layout: str, kind: str) -> None:
    """The numbers are those that HDF5 itself converts. E4M3 may mean two types, and stays raw bytes."""
    begun, size, fields, bias = SMALL[kind]
    tid = begun.copy()
    tid.set_fields(*fields)
    tid.set_ebias(bias)
    tid.set_precision(8 * size)
    tid.set_size(size)
    numbers = np.array([0, -1.5, 2, 448 if size == 1 else 3e38, 0.25, np.inf], "f4")

    def fill(file: h5py.File) -> None:
        created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if LAYOUTS[layout].get("chunks"):
            created.set_chunk((3,))
        space = h5py.h5s.create_simple((6,))
        dataset = h5py.h5d.create(file.id, b"x", tid, space, created)
        dataset.write(space, space, numbers, h5py.h5t.NATIVE_FLOAT)

    path = write(fill, libver="latest")
    with opened(path) as source, h5py.File(path) as file:
        found = array(source, "x")
        if "e4m3" in kind:
            assert found.metadata.dtype.name["name"] == "raw_bytes"
            return
        name = kind.removesuffix(" big")
        assert (found.metadata.dtype.name, found.metadata.fill_spelling) == (name, 0.0)
        assert found.metadata.dtype.endian == (None if size == 1 else "big" if "big" in kind else "little")
        expected = np.zeros(6, "f4")
        space = h5py.h5s.create_simple((6,))
        file["x"].id.read(space, space, expected, h5py.h5t.NATIVE_FLOAT)
        raw = np.frombuffer(values(found).tobytes(), f"{'>' if 'big' in kind else '<'}u{size}").astype(f"u{size}")
        np.testing.assert_array_equal(raw.view(getattr(ml_dtypes, name)).astype("f4"), expected)


def test_complex_numbers_of_half_precision_keep_their_name(write: Callable[..., Path]) -> None:
    data = np.array([(1.5, -2), (0, np.inf)], [("r", "<f2"), ("i", "<f2")])
    path = write(lambda file: file.create_dataset("x", data=data, fillvalue=np.array((1, 2), data.dtype)))
    with opened(path) as source:
        found = array(source, "x")
        assert (found.metadata.dtype.name, found.metadata.dtype.endian) == ("complex_float16", "little")
        assert found.metadata.fill_spelling == [1.0, 2.0]
        assert values(found).tobytes() == data.tobytes()
