"""hdmf-zarr's pickled and JSON references as paths; the chunks are those that hdmf-zarr 0.13 wrote."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numcodecs
import numpy as np
import pytest
from nwb_data import expected_facts, unpack

from fsbridge.codecs import Buffer, CodecChain, Overflow
from fsbridge.codecs.blosc import Blosc
from fsbridge.codecs.objects import json2, split
from fsbridge.errors import CorruptData, TooLarge, Unsupported
from fsbridge.formats.hdmf.references import PATH_CHARACTERS, JSONPaths, make_pickled

LIMIT = 1 << 20
OBJECTS = np.dtype("O")
FIELDS = np.dtype([("idx_start", "<i4"), ("count", "<i4"), ("timeseries", "O")])


def split_texts(found: Buffer) -> list[str]:
    return [str(item, "utf-8") for item in split(found)]


def test_a_dataset_of_references_is_the_paths(tmp_path: Path) -> None:
    chunk = unpack("zarr2", tmp_path) / "session.nwb.zarr/general/extracellular_ephys/electrodes/group/0"
    dtype, decoder = make_pickled(OBJECTS, 6, "|O")
    assert dtype.serializer == "vlen-utf8"
    found = CodecChain((Blosc(), decoder)).decode(chunk.read_bytes(), None, LIMIT)
    assert split_texts(found) == expected_facts("zarr2")["general/extracellular_ephys/electrodes/group"]


def test_a_struct_keeps_its_numbers_and_gets_the_path(tmp_path: Path) -> None:
    chunk = unpack("zarr2", tmp_path) / "session.nwb.zarr/intervals/trials/timeseries/0"
    dtype, decoder = make_pickled(FIELDS, 5, "struct")
    assert dtype.numpy == np.dtype([("idx_start", "<i4"), ("count", "<i4"), ("timeseries", f"<U{PATH_CHARACTERS}")])
    out = bytearray(5 * dtype.itemsize)
    CodecChain((Blosc(), decoder)).decode_into(chunk.read_bytes(), memoryview(out), LIMIT)
    rows = [list(row) for row in np.frombuffer(out, dtype.numpy).tolist()]
    assert rows == expected_facts("zarr2")["intervals/trials/timeseries"]


def test_json_references_are_the_paths() -> None:
    elements = np.array([{"source": ".", "path": "/a/b", "object_id": "x"}, "/c", None, {"path": "/\u00e9"}], object)
    decoder = JSONPaths(json2(items=4))
    found = decoder.decode(numcodecs.JSON().encode(elements), None, LIMIT, None)
    assert split_texts(found) == ["/a/b", "/c", "", "/é"]
    for element in ({"source": "."}, "{", {"path": 1}, "{" * 5000):
        stored = numcodecs.JSON().encode(np.array([element], object))
        with pytest.raises((CorruptData, Unsupported)):
            JSONPaths(json2(items=1)).decode(stored, None, LIMIT, None)


def make_objects(*elements: object) -> bytes:
    array = np.empty(len(elements), object)
    array[:] = elements
    return pickle.dumps(array)


def test_elements_that_were_never_written_are_empty() -> None:
    found = make_pickled(OBJECTS, 3, "|O")[1].decode(make_objects(0, None, {"path": "/x"}), None, LIMIT, None)
    assert split_texts(found) == ["", "", "/x"]


@pytest.mark.parametrize("element", [1, 1.5, True, b"/x", {"source": "."}, {"path": None}])
def test_elements_that_are_no_references_are_unsupported(element: object) -> None:
    with pytest.raises(Unsupported):
        make_pickled(OBJECTS, 1, "|O")[1].decode(make_objects(element), None, LIMIT, None)


def test_the_number_of_elements_is_checked() -> None:
    with pytest.raises(CorruptData, match="2 elements where the chunk has 3"):
        make_pickled(OBJECTS, 3, "|O")[1].decode(make_objects("a", "b"), None, LIMIT, None)


def test_decoded_references_above_the_limit_are_refused() -> None:
    with pytest.raises(Overflow):
        make_pickled(OBJECTS, 3, "|O")[1].decode(make_objects(*["x" * 400] * 3), None, 1000, None)
    with pytest.raises(TooLarge):
        make_pickled(FIELDS, 1, "struct")[1].decode(_structs([(1, 2, {"path": "/x"})]), None, 1000, None)


def _structs(rows: list[tuple[object, ...]]) -> bytes:
    array = np.empty(len(rows), [("idx_start", "<i4"), ("count", "<i4"), ("timeseries", "O")])
    array[:] = rows
    return pickle.dumps(array)


def test_a_path_is_never_cut() -> None:
    decoder = make_pickled(FIELDS, 1, "struct")[1]
    longest = "/" + "x" * (PATH_CHARACTERS - 1)
    found = decoder.decode(_structs([(1, 2, {"path": longest})]), None, LIMIT, None)
    assert np.frombuffer(found, make_pickled(FIELDS, 1, "struct")[0].numpy)[0]["timeseries"] == longest
    for path in (longest + "x", "/x\0"):
        with pytest.raises(Unsupported, match="path of"):
            decoder.decode(_structs([(1, 2, {"path": path})]), None, LIMIT, None)


def test_struct_types_that_hold_something_else_are_refused() -> None:
    for fields in (
        [("a", "<i4"), ("b", [("c", "O")])],
        [("a", "O", (2,))],
        [("a", "V8"), ("b", "O")],
    ):
        with pytest.raises(Unsupported, match="in a pickled struct"):
            make_pickled(np.dtype(fields), 1, "struct")


def test_big_endian_fields_become_little_endian() -> None:
    dtype, decoder = make_pickled(np.dtype([("n", ">i4"), ("r", "O")]), 1, "struct")
    array = np.empty(1, [("n", ">i4"), ("r", "O")])
    array[0] = (258, "/x")
    assert bytes(decoder.decode(pickle.dumps(array), None, LIMIT, None))[:4] == struct.pack("<i", 258)
    assert dtype.numpy is not None
    assert dtype.numpy["n"] == np.dtype("<i4")
