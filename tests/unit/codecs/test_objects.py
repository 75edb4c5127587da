"""Object codecs against numcodecs' encoders; the closed table; struct byte order."""

from __future__ import annotations

import json
import struct
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numcodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsbridge.codecs import CodecChain, filters, objects, table
from fsbridge.errors import CorruptData, FsbridgeError, TooLarge, Unsupported

LIMIT = 1 << 20
TEXTS = ["", "a", "wörld", "日本", "x" * 300]


def array(items: list[Any]) -> np.ndarray:
    result = np.empty(len(items), object)
    result[:] = items
    return result


def vlen(items: list[bytes]) -> bytes:
    """The vlen encoding by numcodecs."""
    return bytes(numcodecs.VLenBytes().encode(array(items)))


TEXT_CODECS = {
    "vlen-utf8": (numcodecs.VLenUTF8(), {"id": "vlen-utf8"}),
    "json2": (numcodecs.JSON(), {"id": "json2", "indent": None, "encoding": "utf-8", "strict": True}),
    "msgpack2": (numcodecs.MsgPack(), {"id": "msgpack2", "raw": False}),
    "categorize": (
        numcodecs.Categorize([text for text in TEXTS if text], "O"),
        {"id": "categorize", "labels": [text for text in TEXTS if text], "dtype": "|O", "astype": "|u1"},
    ),
}


@pytest.mark.parametrize("outer", ["blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd", None])
def test_p6_texts_beyond_the_limit_are_no_damage(outer: str | None) -> None:
    """Only decoding tells the size of texts: a chunk that is too large is not corrupt, and a larger cache permits it."""
    stored = bytes(numcodecs.VLenUTF8().encode(array(["text"] * 1000)))
    steps = (table.decoder({"id": outer}),) if outer else ()
    encoded = numcodecs.get_codec({"id": outer}).encode(stored) if outer else stored
    chain = CodecChain((*steps, objects.vlen_utf8(1000)))
    assert chain.decode(encoded, None, len(stored)) == stored
    with pytest.raises(TooLarge, match="--cache-size"):
        chain.decode(encoded, None, len(stored) - 1)


@pytest.mark.parametrize("name", TEXT_CODECS)
def test_texts_become_vlen_utf8(name: str) -> None:
    codec, config = TEXT_CODECS[name]
    for items in ([], ["a"], TEXTS, TEXTS * 50):
        if name == "json2" and not items:
            continue  # numcodecs writes no data type for an empty list of objects
        stored = bytes(codec.encode(array(items)))
        expected = bytes(numcodecs.VLenUTF8().encode(array(items)))
        decoder, serializer = table.object_decoder(config, len(items))
        assert serializer == "vlen-utf8"
        assert CodecChain((decoder,)).decode(stored, None, LIMIT) == expected
        assert CodecChain((decoder,)).decode(stored, len(expected), LIMIT) == expected
        for size, limit in ((len(expected) + 1, LIMIT), (None, 3)):
            with pytest.raises(CorruptData):
                decoder.decode(stored, size, limit, None)
        with pytest.raises(CorruptData, match="items"):
            table.object_decoder(config, len(items) + 1)[0].decode(stored, None, LIMIT, None)
        for bad in (b"", stored[:-1], stored[: len(stored) // 2], b"\xff" + stored[1:]) if items else ():
            with pytest.raises(CorruptData):
                decoder.decode(bad, None, LIMIT, None)


def test_documents_hold_other_objects_too() -> None:
    items = [None, 5, "5", 1.5, True, {"a": [1, "ü"]}, ["x"]]
    texts = [b"", b"5", b"5", b"1.5", b"true", '{"a":[1,"ü"]}'.encode(), b'["x"]']
    for codec, config in (TEXT_CODECS["json2"], TEXT_CODECS["msgpack2"]):
        stored = bytes(codec.encode(array(items)))
        assert table.object_decoder(config, len(items))[0].decode(stored, None, LIMIT, None) == vlen(texts)


def test_documents_of_many_dimensions_and_scalars() -> None:
    values = np.array([["a", "b", "c"], ["d", "e", "f"]], object)
    for codec, config in (TEXT_CODECS["json2"], TEXT_CODECS["msgpack2"]):
        stored = bytes(codec.encode(values))
        assert table.object_decoder(config, 6)[0].decode(stored, None, LIMIT, None) == vlen([bytes([c]) for c in b"abcdef"])
    scalar = bytes(numcodecs.JSON().encode(np.array("one", object)))
    assert objects.json2(items=1).decode(scalar, None, LIMIT, None) == vlen([b"one"])
    shapes = ['[["a"],["b","c"],"|O",[2,2]]', '["a","|O",[2]]', '["a","|O",["1"]]', '["a","|O",1]', '["|O"]']
    for bad in (*shapes, "{}", "[]", "[1", "[NaN"):
        with pytest.raises(CorruptData):
            objects.json2().decode(bad.encode(), None, LIMIT, None)
    with pytest.raises(CorruptData):
        objects.json2().decode(b'["\\ud800","|O",[1]]', None, LIMIT, None)
    with pytest.raises(CorruptData):
        objects.json2().decode(b"[" * 100_000, None, LIMIT, None)
    with pytest.raises(TooLarge):
        objects.json2().decode(bytes(objects.MAX_DOCUMENT_BYTES + 1), None, LIMIT, None)


def test_bytes_and_arrays_become_vlen_bytes() -> None:
    items = [b"", b"abc", b"\xff\0"]
    stored = vlen(items)
    decoder, serializer = table.object_decoder({"id": "vlen-bytes"}, 3)
    assert (decoder.decode(stored, None, LIMIT, None), serializer) == (stored, "vlen-bytes")
    arrays = array([np.array([1, 2], "<i4"), np.array([], "<i4"), np.array([3], "<i4")])
    stored = bytes(numcodecs.VLenArray("<i4").encode(arrays))
    decoder, serializer = table.object_decoder({"id": "vlen-array", "dtype": "<i4"}, 3)
    assert (decoder.decode(stored, None, LIMIT, None), serializer) == (stored, "vlen-bytes")
    with pytest.raises(CorruptData, match="not a multiple"):
        table.object_decoder({"id": "vlen-array", "dtype": "<i8"}, 3)[0].decode(stored, None, LIMIT, None)


@pytest.mark.parametrize(
    "bad",
    [
        b"\0\0\0",
        b"\1\0\0\0",
        b"\1\0\0\0\5\0\0\0abcd",
        b"\1\0\0\0\1\0\0\0ab",
        b"\1\0\0\0\2\0\0\0\xc3\x28",
        b"\2\0\0\0\1\0\0\0\xc3\1\0\0\0\xbc",
        b"\0\0\0\0\0",
        b"\xff\xff\xff\xff\0\0\0\0",
        b"\1\0\0\0\xff\xff\xff\xffx",
    ],
)
def test_broken_vlen_encodings_are_corrupt(bad: bytes) -> None:
    with pytest.raises(CorruptData):
        objects.vlen_utf8().decode(bad, None, LIMIT, None)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text()))
def test_vlen_utf8_accepts_what_numcodecs_writes(items: list[str]) -> None:
    stored = bytes(numcodecs.VLenUTF8().encode(array(items)))
    assert objects.vlen_utf8(len(items)).decode(stored, len(stored), LIMIT, None) == stored
    assert objects.encode((item.encode() for item in items), None, LIMIT) == stored


def test_n5_strings_end_at_zeros_and_damage_is_noticed() -> None:
    decoder = objects.NulStrings(3)
    stored = bytes.fromhex("61000077c3b6726c6400")
    assert decoder.decode(stored, None, LIMIT, None) == vlen([b"a", b"", "wörld".encode()])
    assert objects.NulStrings().decode(b"", None, LIMIT, None) == vlen([])
    for bad in (stored[:-1], stored + b"\0", b"", b"\xff\0\0\0"):
        with pytest.raises(CorruptData):
            decoder.decode(bad, None, LIMIT, None)


def test_categorize_gives_the_labels_as_fixed_strings() -> None:
    codec = numcodecs.Categorize(["female", "male"], "<U6", "<i2")
    values = np.array(["male", "female", "", "other", "male"], "<U6")
    stored = codec.encode(values).tobytes()
    config = json.loads(json.dumps(codec.get_config()))
    decoder = table.decoder(config)
    expected = codec.decode(stored).tobytes()
    assert decoder.decode(stored, len(expected), LIMIT, None) == expected
    assert decoder.encoded_size(len(expected)) == len(stored)
    with pytest.raises(CorruptData, match="label"):
        decoder.decode(struct.pack("<5h", 0, 1, 2, 3, 1), len(expected), LIMIT, None)
    for changed in ({"dtype": "<i4"}, {"astype": "f4"}, {"labels": [1]}, {"labels": "ab"}, {"dtype": 5}):
        with pytest.raises(Unsupported):
            table.decoder(config | changed)


def test_p6_labels_that_no_element_has_take_no_memory() -> None:
    """Their number and the size of each are the metadata's; a chunk of one element made elements of all of them."""
    labels = [f"label {number}" for number in range(50)]
    decoder = table.decoder({"id": "categorize", "labels": labels, "dtype": f"<U{LIMIT}", "astype": "u1"})
    tracemalloc.start()
    try:
        found = decoder.decode(b"\x07", None, 4 * LIMIT, None)
        assert np.frombuffer(found, f"<U{LIMIT}").tolist() == ["label 6"]
        assert tracemalloc.get_traced_memory()[1] < 20 * LIMIT
    finally:
        tracemalloc.stop()


CODECS = [
    *(numcodecs.Blosc(cname, 3, shuffle) for cname in ("lz4", "zstd") for shuffle in (0, 1, 2)),
    numcodecs.Zlib(), numcodecs.GZip(), numcodecs.BZ2(), numcodecs.LZMA(), numcodecs.LZMA(format=2),
    numcodecs.LZMA(format=3, filters=[{"id": 3, "dist": 4}, {"id": 33, "preset": 1}]), numcodecs.LZ4(), numcodecs.Zstd(),
    numcodecs.Delta("<i4"), numcodecs.FixedScaleOffset(10, 2, "<f4", "<i2"), numcodecs.Quantize(2, "<f4"),
    numcodecs.AsType("<f4", "<f8"), numcodecs.BitRound(10), numcodecs.Shuffle(4), numcodecs.CRC32(), numcodecs.Adler32(),
    numcodecs.Fletcher32(), numcodecs.JenkinsLookup3(3), numcodecs.Base64(), numcodecs.CRC32(location="end"),
]  # fmt: skip


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_the_table_decodes_what_numcodecs_configures(codec: numcodecs.abc.Codec) -> None:
    values = np.arange(0, 4000, 4, dtype="<i4")
    if codec.codec_id in ("fixedscaleoffset", "quantize", "bitround"):
        values = values.astype("<f4")
    elif codec.codec_id == "astype":
        values = values.astype("<f8")
    config = json.loads(json.dumps({**codec.get_config(), "unknown": 1}))
    stored = np.frombuffer(codec.encode(values), "u1").tobytes()
    decoder = table.decoder(config)
    out = memoryview(bytearray(values.nbytes))
    CodecChain((decoder,)).decode_into(stored, out, LIMIT)
    assert bytes(out) == np.frombuffer(np.ascontiguousarray(codec.decode(stored)), "u1").tobytes()


@pytest.mark.parametrize("codec", ["pickle", "zfpy", "pcodec", "n5_wrapper", "json", "msgpack", "imagecodecs_jetraw", ""])
def test_ids_outside_the_table_are_refused_by_name(codec: str) -> None:
    for make in (table.decoder, lambda config: table.object_decoder(config, 1)):
        with pytest.raises(Unsupported, match=repr(codec)):
            make({"id": codec, "protocol": 5})


@pytest.mark.parametrize(
    "config",
    [
        None, [], "gzip", {}, {"id": None}, {"id": ["gzip"]}, {"id": "delta"}, {"id": "delta", "dtype": "O"},
        {"id": "fixedscaleoffset", "dtype": "f4"}, {"id": "fixedscaleoffset", "dtype": "f4", "scale": "x", "offset": 1},
        {"id": "shuffle", "elementsize": "4"}, {"id": "shuffle", "elementsize": -4}, {"id": "astype", "decode_dtype": "f4"},
        {"id": "lzma", "format": 3}, {"id": "lzma", "format": 3, "filters": [{"id": 33, "dict_size": 1 << 40}]},
        {"id": "lzma", "format": 3, "filters": "x"}, {"id": "lzma", "format": 3, "filters": 5},
        {"id": "crc32", "location": "middle"}, {"id": "jenkins_lookup3", "prefix": [1]},
        {"id": "jenkins_lookup3", "initval": 1 << 32}, {"id": "quantize", "digits": 1, "dtype": "i4"},
    ],
)  # fmt: skip
def test_configurations_that_make_no_sense_are_refused(config: Any) -> None:
    with pytest.raises(Unsupported):
        table.decoder(config)
    strange: list[Any] = [{"id": "json2", "encoding": "cp037"}, {"id": "vlen-array"}, {"id": "categorize"}]
    for changed in (*strange, {"id": "json2", "encoding": 5}):
        with pytest.raises(Unsupported):
            table.object_decoder(changed, None)


STRUCTS = [
    np.dtype([("a", ">i2"), ("b", "<f8"), ("c", "u1")]),
    np.dtype([("a", ">f4"), ("n", [("x", ">u8"), ("y", "<i2", (2, 3))]), ("s", "S5"), ("u", ">U3")]),
    np.dtype([("c", ">c16"), ("m", ">f4", (3,)), ("t", ">M8[ns]"), ("v", "V7"), ("?", "?")]),
    np.dtype({"names": ["a", "b"], "formats": [">i4", ">i2"], "offsets": [3, 10], "itemsize": 15}),
]


@pytest.mark.parametrize("dtype", STRUCTS, ids=str)
def test_structs_become_little_endian(dtype: np.dtype) -> None:
    stored = np.random.default_rng(1).bytes(dtype.itemsize * 33)
    decoder = filters.little_endian(dtype)
    assert decoder is not None
    out = memoryview(bytearray(len(stored)))
    for result in (decoder.decode(stored, len(stored), LIMIT, out), decoder.decode(stored, None, LIMIT, None)):
        want, got = np.frombuffer(stored, dtype), np.frombuffer(result, dtype.newbyteorder("<"))
        for name in dtype.names or ():
            np.testing.assert_array_equal(want[name], got[name])
        assert filters.little_endian(dtype.newbyteorder("<")) is None
    covered = np.zeros(dtype.itemsize, bool)
    for field, start in ((entry[0], entry[1]) for entry in (dtype.fields or {}).values()):
        covered[start : start + field.itemsize] = True
    before, after = (np.frombuffer(data, "u1").reshape(-1, dtype.itemsize) for data in (stored, out))
    np.testing.assert_array_equal(before[:, ~covered], after[:, ~covered])
    with pytest.raises(FsbridgeError):
        decoder.decode(stored[:-1], None, LIMIT, None)


@pytest.mark.parametrize("codec", ["strings", "json2"])
def test_p6_decoding_short_elements_takes_little_more_than_their_bytes(codec: str) -> None:
    """One Python object each, all at once, took thirty times their bytes."""
    items = 50_000
    texts = ["ab"] * items
    data = b"ab\0" * items if codec == "strings" else json.dumps([*texts, "|O", [items]]).encode()
    decoder = objects.NulStrings(items) if codec == "strings" else objects.json2(items=items)
    tracemalloc.start()
    try:
        found = decoder.decode(data, None, 1 << 20, None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == struct.pack("<I", items) + items * (struct.pack("<I", 2) + b"ab")
    assert peak < {"strings": 3, "json2": 16}[codec] * len(found)


def test_p6_one_large_document_is_parsed_after_the_other() -> None:
    """Its Python objects take ten times its bytes."""
    data = json.dumps(["x" * 2_000_000, "|O", [1]]).encode()
    together = threading.Barrier(2)

    def load(data: Any) -> Any:
        with pytest.raises(threading.BrokenBarrierError):
            together.wait(0.3)
        return json.loads(bytes(data))

    decoder = objects.ObjectDocument("json2", load, 1)
    with ThreadPoolExecutor(2) as pool:
        chunks = list(pool.map(lambda _: decoder.decode(data, None, 1 << 22, None), range(2)))
    assert {len(chunk) for chunk in chunks} == {2_000_008}
