"""Shards: inner chunks as chunks, against what zarr-python and TensorStore wrote; damaged and hostile indexes."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
import zarr
from counting_store import CountingStore
from descriptors import list_descriptors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_reader import read_array, read_chunk, stored_chunks
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr3_documents import GOOD, check, create_tensorstore, index, int16, root_array, sharded, values, write

from fsbridge.asking import WouldWait, without_waiting
from fsbridge.errors import CorruptData, NotFound, Stale, TooLarge, Unsupported
from fsbridge.formats.zarr3.shard_index import EMPTY, ShardIndex
from fsbridge.formats.zarr3.sharding import merge
from fsbridge.store import BATCH_NAMES

pytestmark = pytest.mark.filterwarnings("ignore:::zarr", "ignore::zarr.errors.UnstableSpecificationWarning")

EXAMPLES = 150


# zarr-python


@pytest.mark.parametrize("shape", [(7,), (9, 10), (5, 7, 6)], ids=str)
@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("crc", [True, False])
@pytest.mark.parametrize("part", [False, True])
def test_shards_of_zarr_python_have_its_values(
    tmp_path: Path, shape: tuple[int, ...], location: Any, crc: bool, part: bool
) -> None:
    codec = ShardingCodec(
        chunk_shape=tuple(2 for _ in shape),
        codecs=[BytesCodec(), ZstdCodec()],
        index_codecs=[BytesCodec(), Crc32cCodec()] if crc else [BytesCodec()],
        index_location=location,
    )
    shard = tuple(4 for _ in shape)
    array = zarr.create_array(
        tmp_path, shape=shape, chunks=shard, serializer=codec, dtype="i4", compressors=[], filters=[], fill_value=9
    )
    data = values(np.dtype("i4"), shape)
    region = tuple(slice(1, 4) if part else slice(None) for _ in shape)
    array[region] = data[region]
    found = check(tmp_path, array[...])
    assert found.metadata.grid.edges == tuple(2 for _ in shape)


@pytest.mark.parametrize("dtype", ["bool", ">u2", "float64", "complex128", "M8[us]", "S3", "U2", "string"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_types_of_zarr_python_are_read_in_shards(tmp_path: Path, dtype: str, order: Any) -> None:
    if dtype == "string":
        data: Any = np.array([[f"é{i}" * (j % 3) for j in range(10)] for i in range(9)], dtype=object)
    else:
        data = values(np.dtype(dtype))
    array = zarr.create_array(tmp_path, shape=(9, 10), chunks=(2, 3), shards=(4, 6), dtype=dtype, order=order)
    array[2:, :7] = data[2:, :7]
    np.testing.assert_array_equal(read_array(root_array(tmp_path)), array[...])


@pytest.mark.parametrize("separator", ["/", "."])
def test_nested_shards_have_the_values_of_zarr_python(tmp_path: Path, separator: Any) -> None:
    inner = ShardingCodec(chunk_shape=(2, 1), codecs=[TransposeCodec(order=(1, 0)), BytesCodec(), GzipCodec()])
    outer = ShardingCodec(chunk_shape=(4, 3), codecs=[inner], index_location="start")
    keys: Any = {"name": "default", "separator": separator}
    array = zarr.create_array(
        tmp_path,
        shape=(17, 11),
        chunks=(8, 6),
        serializer=outer,
        dtype="u2",
        compressors=[],
        filters=[],
        chunk_key_encoding=keys,
    )
    data = values(np.dtype("u2"), (17, 11))
    array[1:3, :] = data[1:3, :]
    array[9:, 7:] = data[9:, 7:]
    found = check(tmp_path, array[...])
    assert found.metadata.grid.edges == (2, 1)
    assert found.metadata.order == (1, 0)


def test_a_shard_with_codecs_around_it_is_decoded_once(tmp_path: Path) -> None:
    """The whole shard is decoded once for all its chunks."""
    codec = ShardingCodec(chunk_shape=(2, 2), codecs=[BytesCodec(), GzipCodec()])
    array = zarr.create_array(
        tmp_path, shape=(8, 8), chunks=(4, 4), serializer=codec, dtype="i2", compressors=[ZstdCodec()], filters=[]
    )
    data = values(np.dtype("i2"), (8, 8))
    array[:, :6] = data[:, :6]
    check(tmp_path, array[...])


def test_nested_shards_with_codecs_around_each_have_their_values(tmp_path: Path) -> None:
    inner = ShardingCodec(chunk_shape=(2,), codecs=[BytesCodec(), GzipCodec()])
    outer = ShardingCodec(chunk_shape=(6,), codecs=[inner, GzipCodec()])
    array = zarr.create_array(
        tmp_path, shape=(30,), chunks=(12,), serializer=outer, dtype="i2", compressors=[ZstdCodec()], filters=[]
    )
    data = values(np.dtype("i2"), (30,))
    array[4:21] = data[4:21]
    check(tmp_path, array[...])


# TensorStore


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0], "F"], ids=str)
def test_shards_of_transposed_arrays_have_the_values_of_tensorstore(tmp_path: Path, location: str, order: Any) -> None:
    """`chunk_shape` is that of the transposed array. zarr-python refuses such stores."""
    axes = [2, 1, 0] if order == "F" else order
    shard, inner = (4, 6, 8), (2, 3, 4)
    configuration = {
        "chunk_shape": [inner[axis] for axis in axes],
        "codecs": [{"name": "transpose", "configuration": {"order": [0, 2, 1]}}, {"name": "bytes"}, {"name": "gzip"}],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "crc32c"}],
        "index_location": location,
    }
    codecs = [
        {"name": "transpose", "configuration": {"order": order}},
        {"name": "sharding_indexed", "configuration": configuration},
    ]
    store = create_tensorstore(tmp_path, "int32", (7, 13, 9), list(shard), codecs, fill_value=5)
    data = values(np.dtype("i4"), (7, 13, 9))
    store[:5, 2:, 1:6].write(data[:5, 2:, 1:6]).result()
    found = check(tmp_path, store.read().result())
    assert found.metadata.grid.edges == inner


def test_tensorstore_index_transposed_and_nested(tmp_path: Path) -> None:
    nested = {"chunk_shape": [1, 2], "codecs": [{"name": "bytes"}], "index_codecs": [{"name": "bytes"}]}
    configuration = {
        "chunk_shape": [2, 4],
        "codecs": [{"name": "sharding_indexed", "configuration": nested}],
        "index_codecs": [
            {"name": "transpose", "configuration": {"order": [2, 1, 0]}},
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "crc32c"},
        ],
    }
    codecs = [{"name": "sharding_indexed", "configuration": configuration}]
    store = create_tensorstore(tmp_path, "uint8", (9, 17), [4, 12], codecs)
    data = values(np.dtype("u1"), (9, 17))
    store[3:8, 1:15].write(data[3:8, 1:15]).result()
    check(tmp_path, store.read().result())


def test_a_shard_without_dimensions_has_one_chunk_or_none(tmp_path: Path) -> None:
    document = sharded(chunk_shape=[])
    document |= {"shape": [], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": []}}}
    array = root_array(write(tmp_path, document, {"c": int16(5) + index((0, 2))}))
    assert array.chunks.count() == 1
    assert read_array(array).tolist() == 5
    (tmp_path / "c").unlink()
    assert array.chunks.count() == 0
    assert read_array(array).tolist() == 7


# one range read


def test_an_inner_chunk_is_one_range_read(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path, shape=(64, 64), chunks=(4, 4), shards=(64, 64), dtype="u1", compressors=[])
    array[...] = values(np.dtype("u1"), (64, 64))
    store = CountingStore(str(tmp_path))
    found = root_array(store)
    for position in itertools.product(range(16), range(16)):
        read_chunk(found, position)
    index_bytes = 16 * 16 * 16 + 4
    assert store.ranges.count(index_bytes) == 1
    assert sum(store.ranges) < index_bytes + 64 * 64 * 2  # `read_chunk` also reads a part of each chunk
    assert [key for key in store.wholes if key != "zarr.json"] == []


def test_listing_reads_indexes_only(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path, shape=(64, 64), chunks=(4, 4), shards=(32, 32), dtype="u1")
    array[...] = 1
    store = CountingStore(str(tmp_path))
    found = root_array(store)
    assert len(list(stored_chunks(found))) == 256
    assert found.chunks.count() == 256
    assert store.ranges == [8 * 8 * 16 + 4] * 4


def test_a_huge_grid_is_not_enumerated(tmp_path: Path) -> None:
    document = sharded(chunk_shape=[2])
    document |= {"shape": [2**62], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}}}
    shard = int16(1, 2) + index((EMPTY, EMPTY), (0, 4))
    array = root_array(write(tmp_path, document, {"c/1000000000000": shard}))
    assert list(stored_chunks(array)) == [(2000000000001,)]
    assert array.chunks.count() == 1
    assert read_chunk(array, (2000000000001,)).tolist() == [1, 2]


# damage

DAMAGED = {
    "empty": b"",
    "short": b"\0" * 35,
    "crc": GOOD + index((0, 4), (4, 4))[:-1] + b"\xff",
}
DAMAGED_ENTRIES = {
    "offset": GOOD + index((0, 4), (400, 4)),
    "length": GOOD + index((0, 4), (4, 5)),
    "in the index": GOOD + index((0, 4), (8, 4)),
    "overflow": GOOD + index((0, 4), (2**64 - 4, 8)),
    "offset only": GOOD + index((0, 4), (EMPTY, 4)),
    "length only": GOOD + index((0, 4), (4, EMPTY)),
    "huge": GOOD + index((0, 4), (0, 2**63)),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_index_is_an_error_for_the_shard_only(tmp_path: Path, name: str) -> None:
    """P3: never "absent", because a reader would take that for the fill value."""
    array = root_array(write(tmp_path, sharded(), {"c/0": DAMAGED[name], "c/1": GOOD + index((4, 4), (0, 4))}))
    assert list(stored_chunks(array)) == [(0,), (1,), (2,), (3,)]
    with pytest.raises(CorruptData, match="damaged shard index"):
        array.chunks.count()
    for position in (0, 1, 0):
        with pytest.raises(CorruptData, match=r"c/0: damaged shard index"):
            array.chunks.find((position,))
    assert read_chunk(array, (2,)).tolist() == [3, 4]
    assert read_chunk(array, (3,)).tolist() == [1, 2]


@pytest.mark.parametrize("name", DAMAGED_ENTRIES)
@pytest.mark.parametrize("crc", [True, False])
def test_p8_an_impossible_entry_is_an_error_for_its_inner_chunk_only(tmp_path: Path, name: str, crc: bool) -> None:
    """The other inner chunks of the shard are read. The damaged one is listed, and never absent (P3)."""
    shard = DAMAGED_ENTRIES[name]
    document = sharded() if crc else sharded(index_codecs=["bytes"])
    array = root_array(write(tmp_path, document, {"c/0": shard if crc else shard[:-4]}))
    assert list(stored_chunks(array)) == [(0,), (1,)]
    assert read_chunk(array, (0,)).tolist() == [1, 2]
    with pytest.raises(CorruptData, match=r"c/0, entry \[1\]: this is a damaged entry"):
        array.chunks.count()
    with pytest.raises(
        CorruptData, match=r"c/0, entry \[1\]: this is a damaged entry of the shard index: offset \d+, \d+ bytes"
    ):
        array.chunks.find((1,))


@pytest.mark.filterwarnings("ignore:::zarr")
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_p8_zarr_python_reads_what_a_damaged_entry_leaves(tmp_path: Path, codec: str) -> None:
    """A shard of zarr-python with one entry beyond its end: the three other inner chunks are what zarr-python reads."""
    compressors = [zarr.codecs.ZstdCodec()] if codec == "zstd" else None
    array = zarr.create_array(tmp_path, shape=(8,), chunks=(2,), shards=(8,), dtype="i2", compressors=compressors)
    array[...] = np.arange(8) + 1
    path = tmp_path / "c/0"
    shard = path.read_bytes()
    entries = np.frombuffer(shard[-4 - 64 : -4], "<u8").reshape(4, 2).copy()
    entries[2, 0] = len(shard)
    body = entries.tobytes()
    path.write_bytes(shard[: -4 - 64] + body + google_crc32c.value(body).to_bytes(4, "little"))
    found = root_array(tmp_path)
    assert list(stored_chunks(found)) == [(0,), (1,), (2,), (3,)]
    for position in (0, 1, 3):
        place = slice(2 * position, 2 * position + 2)
        assert read_chunk(found, (position,)).tolist() == np.asarray(array[place]).tolist()
    with pytest.raises(CorruptData, match="damaged entry"):
        found.chunks.find((2,))


def test_a_directory_in_the_place_of_a_shard_is_corrupt_and_hides_no_other(tmp_path: Path) -> None:
    write(tmp_path, sharded(), {"c/0/x": b"", "c/1": GOOD + index((0, 4), (4, 4))})
    array = root_array(tmp_path)
    with pytest.raises(CorruptData):
        array.chunks.find((1,))
    assert len(list(stored_chunks(array))) == 4


def test_a_damaged_nested_index_is_an_error_for_its_chunks_only(tmp_path: Path) -> None:
    nested = {"chunk_shape": [1], "codecs": ["bytes"], "index_codecs": ["bytes"]}
    document = sharded(codecs=[{"name": "sharding_indexed", "configuration": nested}])
    good = int16(5) + index((0, 2), (EMPTY, EMPTY), crc=False)
    bad = int16(5) + index((0, 2), (1, 3), crc=False)
    shard = good + bad + index((0, len(good)), (len(good), len(bad)))
    array = root_array(write(tmp_path, document, {"c/0": shard}))
    assert list(stored_chunks(array)) == [(0,), (2,), (3,)]
    assert read_chunk(array, (0,)).tolist() == [5]
    with pytest.raises(NotFound):
        array.chunks.find((1,))
    assert read_chunk(array, (2,)).tolist() == [5]
    with pytest.raises(CorruptData):
        array.chunks.find((3,))
    with pytest.raises(CorruptData, match="damaged entry"):
        array.chunks.count()
    beyond = good + bad + index((0, len(good)), (len(good), len(bad) + 1))
    (tmp_path / "c/0").write_bytes(beyond)
    array = root_array(tmp_path)
    assert list(stored_chunks(array)) == [(0,), (2,), (3,)]
    for position in (2, 3):
        with pytest.raises(CorruptData):
            array.chunks.find((position,))


def test_a_damaged_inner_chunk_is_an_error_for_itself_only(tmp_path: Path) -> None:
    array = root_array(write(tmp_path, sharded(), {"c/0": GOOD + index((0, 3), (4, 4))}))
    with pytest.raises(CorruptData, match=r"inner chunk \[0\]"):
        array.chunks.read_into((0,), array.chunks.find((0,)), memoryview(bytearray(4)))
    assert read_chunk(array, (1,)).tolist() == [3, 4]


def test_p9_an_inner_chunk_that_is_held_open_is_the_one_that_was_found(tmp_path: Path) -> None:
    array = root_array(write(tmp_path, sharded(), {"c/0": GOOD + index((EMPTY, EMPTY), (4, 4))}))
    with pytest.raises(NotFound):
        array.chunks.open((0,))
    with pytest.raises(NotFound):
        array.chunks.open((4,))
    held, out = array.chunks.open((1,)), bytearray(4)
    (tmp_path / "new").write_bytes(GOOD + index((4, 4), (0, 4)))
    (tmp_path / "new").rename(tmp_path / "c/0")
    now = array.chunks.open((1,))
    for chunk, wanted in ((held, [3, 4]), (now, [1, 2])):
        try:
            chunk.read_into(memoryview(out))
        except Stale:  # its shard has lost its name meanwhile
            assert chunk is held
        else:
            assert np.frombuffer(out, "<i2").tolist() == wanted
        chunk.close()
    held = array.chunks.open((1,))
    (tmp_path / "c/0").write_bytes(GOOD[::-1] + index((0, 4), (4, 4)))
    with pytest.raises((Stale, CorruptData)):
        held.read_into(memoryview(out))
    held.close()


def test_p9_p11_inner_chunks_that_are_opened_together_share_their_open_shard(tmp_path: Path) -> None:
    shards = {f"c/{shard}": GOOD + index((EMPTY, EMPTY) if shard else (0, 4), (4, 4)) for shard in range(2)}
    store = CountingStore(str(write(tmp_path, sharded(), shards)))
    array = root_array(store)
    store.opened.clear()
    before = list_descriptors(tmp_path)
    first = array.chunks.open((0,))
    second = array.chunks.open((1,), first)
    with pytest.raises(NotFound):
        array.chunks.open((2,), second)
    other = array.chunks.open((3,), second)
    assert store.opened == ["c/0", "c/1", "c/1"]
    out = bytearray(4)
    for chunk, wanted in ((first, [1, 2]), (second, [3, 4]), (other, [3, 4])):
        chunk.read_into(memoryview(out))
        assert np.frombuffer(out, "<i2").tolist() == wanted
        chunk.close()
    assert list_descriptors(tmp_path) == before
    first = array.chunks.open((0,))
    second = array.chunks.open((1,), first)
    first.close()
    (tmp_path / "c/0").write_bytes(GOOD[::-1] + index((0, 4), (4, 4)))
    with pytest.raises((Stale, CorruptData)):
        second.read_into(memoryview(out))
    second.close()


def test_what_of_shards_may_be_asked_at_once(tmp_path: Path) -> None:
    plain = root_array(write(tmp_path / "plain", sharded(), {"c/0": GOOD + index((0, 4), (4, 4))}))
    around = sharded()
    around["codecs"].append({"name": "gzip", "configuration": {"level": 1}})
    whole = root_array(write(tmp_path / "whole", around, {}))
    with without_waiting(), pytest.raises(WouldWait):  # such a shard is decoded whole
        whole.chunks.find((1,))
    plain.chunks.find((1,))
    with pytest.raises(NotFound):
        plain.chunks.find((2,))
    with without_waiting():
        held, out = plain.chunks.open((1,)), bytearray(4)
        held.read_into(memoryview(out))
        held.close()
        with pytest.raises(NotFound):
            plain.chunks.find((2,))
    assert np.frombuffer(out, "<i2").tolist() == [3, 4]


def test_a_replaced_shard_is_noticed(tmp_path: Path) -> None:
    array = root_array(write(tmp_path, sharded(), {"c/0": GOOD + index((0, 4), (4, 4))}))
    info = array.chunks.find((1,))
    (tmp_path / "new").write_bytes(GOOD + index((EMPTY, EMPTY), (0, 4)))
    (tmp_path / "new").rename(tmp_path / "c/0")
    with pytest.raises(Stale):
        array.chunks.read_into((1,), info, memoryview(bytearray(4)))
    with pytest.raises(Stale):
        array.chunks.read_range((1,), info, 0, 2)
    assert list(stored_chunks(array)) == [(1,)]
    assert read_chunk(array, (1,)).tolist() == [1, 2]
    before = array.chunks.find((1,))._replace(location=(60, 4))  # as of a longer shard
    (tmp_path / "new").write_bytes(GOOD[:4] + index((EMPTY, EMPTY), (0, 4)))
    (tmp_path / "new").rename(tmp_path / "c/0")
    with pytest.raises(Stale):
        array.chunks.read_into((1,), before, memoryview(bytearray(4)))
    (tmp_path / "c/0").unlink()
    with pytest.raises(Stale):
        array.chunks.read_into((1,), info, memoryview(bytearray(4)))
    with pytest.raises(NotFound):
        array.chunks.find((1,))
    assert list(stored_chunks(array)) == []


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"chunk_shape": [3]}, CorruptData),
        ({"chunk_shape": [0]}, CorruptData),
        ({"chunk_shape": [2, 2]}, CorruptData),
        ({"index_location": "middle"}, CorruptData),
        ({"codecs": 3}, CorruptData),
    ],
    ids=str,
)
def test_configurations_of_shards_that_make_no_sense_are_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception]
) -> None:
    write(tmp_path, sharded(**changes))
    with pytest.raises(error):
        root_array(tmp_path)


@pytest.mark.parametrize(
    "changes", [{"index_codecs": ["bytes", "gzip"]}, {"index_codecs": ["lzx"]}, {"codecs": ["bytes", "lzx"]}], ids=str
)
def test_unknown_codecs_in_shards_refuse_chunks(tmp_path: Path, changes: dict[str, Any]) -> None:
    array = root_array(write(tmp_path, sharded(**changes), {"c/0": GOOD + index((0, 4), (4, 4))}))
    assert (0,) in list(stored_chunks(array))
    with pytest.raises(Unsupported, match=r"lzx|gzip"):
        array.chunks.read_into((0,), array.chunks.find((0,)), memoryview(bytearray(array.metadata.chunk_bytes((0,)) or 0)))


def test_an_unknown_codec_around_shards_refuses_chunks_that_are_listed(tmp_path: Path) -> None:
    document = sharded()
    document["codecs"] += ["lzx"]
    array = root_array(write(tmp_path, document, {"c/0": GOOD}))
    assert list(stored_chunks(array)) == [(0,), (1,)]
    with pytest.raises(Unsupported, match="lzx"):
        array.chunks.find((0,))


def test_shards_of_different_sizes_have_chunks_of_one_size(tmp_path: Path) -> None:
    """zarr 3.4 writes shards of different sizes with chunks of one size."""
    document = sharded()
    configuration = {"kind": "inline", "chunk_shapes": [[2, 6]]}
    document |= {"chunk_grid": {"name": "rectilinear", "configuration": configuration}, "shape": [7]}
    chunks = {
        "c/0": int16(1, 2) + index((0, 4)),
        "c/1": int16(3, 4, 5, 0) + index((0, 4), (EMPTY, EMPTY), (4, 4)),
    }
    check(write(tmp_path, document, chunks), np.array([1, 2, 3, 4, 7, 7, 5], "i2"))


def test_rectilinear_shards_that_hold_no_whole_number_of_chunks_are_refused(tmp_path: Path) -> None:
    document = sharded()
    configuration = {"kind": "inline", "chunk_shapes": [[2, 3, 2]]}
    document |= {"chunk_grid": {"name": "rectilinear", "configuration": configuration}, "shape": [7]}
    write(tmp_path, document)
    with pytest.raises(CorruptData, match="not a whole number of chunks"):
        root_array(tmp_path)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_mutated_shards_give_values_of_their_length_or_our_errors(tmp_path: Path, data: st.DataObject) -> None:
    """After any damage it is the right bytes, one of our errors, or (without a checksum) other bytes of the right length."""
    crc = data.draw(st.booleans())
    document = sharded(index_codecs=["bytes", "crc32c"] if crc else ["bytes"])
    shard = bytearray(GOOD + index((0, 4), (4, 4), crc=crc))
    for _ in range(data.draw(st.integers(1, 3))):
        if data.draw(st.booleans()) and shard:
            shard[data.draw(st.integers(0, len(shard) - 1))] = data.draw(st.integers(0, 255))
        else:
            del shard[data.draw(st.integers(0, len(shard))) :]
    array = root_array(write(tmp_path, document, {"c/0": bytes(shard)}))
    listed = list(stored_chunks(array))
    for position in range(2):
        try:
            chunk = read_chunk(array, (position,))
        except NotFound:
            assert not crc
            assert (position,) not in listed
        except CorruptData:
            assert (position,) in listed
        else:
            assert chunk.shape == (2,)
            assert (position,) in listed


def test_p3_a_directory_of_chunks_is_there_whichever_shard_is_stored(tmp_path: Path) -> None:
    chunks = root_array(write(tmp_path, sharded(), {})).chunks
    with pytest.raises(NotFound):
        chunks.find_prefix(())
    empty, damaged = index(*[(2**64 - 1, 2**64 - 1)] * 2), index((0, 4), (4, 4), crc=False)
    for content, there in ((empty, False), (bytes(8) + index((0, 4), (4, 4)), True), (damaged, True)):
        for shards in ({"c/0": empty, "c/1": content}, {"c/1": content}):
            chunks = root_array(write(tmp_path / str(len(list(tmp_path.iterdir()))), sharded(), shards)).chunks
            if there:
                assert chunks.find_prefix(()) > 0
            else:
                with pytest.raises(NotFound):
                    chunks.find_prefix(())


@pytest.mark.parametrize("exponent", [22, 26, 40, 60])
def test_p6_an_index_above_the_limit_is_too_large_to_read_and_to_list(tmp_path: Path, exponent: int) -> None:
    """A sparse shard of 2**24 inner chunks costs no disk; listing it took 1.9 GB."""
    document = sharded(chunk_shape=[1], index_codecs=[{"name": "bytes", "configuration": {"endian": "little"}}])
    document["shape"] = document["chunk_grid"]["configuration"]["chunk_shape"] = [1 << exponent]
    array = root_array(write(tmp_path, document, {"c/0": b""}))
    os.truncate(tmp_path / "c/0", (1 << min(exponent, 30) + 4) + 100)
    for action in (
        lambda: array.chunks.find((5,)),
        lambda: array.chunks.find_prefix(()),
        lambda: list(array.chunks.scan(())),
        lambda: array.chunks.count(),
    ):
        with pytest.raises(TooLarge, match="see --cache-size"):
            action()


def test_p6_nested_shards_of_too_many_rows_are_too_large(tmp_path: Path) -> None:
    """Each index is small, but all inner chunks together are 2**40."""
    inner = sharded(chunk_shape=[1])["codecs"][0]
    document = sharded(chunk_shape=[1 << 20], codecs=[inner])
    document["shape"] = document["chunk_grid"]["configuration"]["chunk_shape"] = [1 << 40]
    array = root_array(write(tmp_path, document, {"c/0": index(*[(2**64 - 1, 2**64 - 1)] * (1 << 20))}))
    with pytest.raises(TooLarge):
        list(array.chunks.scan(()))


def test_p6_a_large_shard_is_listed_in_batches(tmp_path: Path) -> None:
    document = sharded(chunk_shape=[1], index_codecs=[{"name": "bytes", "configuration": {"endian": "little"}}])
    document["shape"] = document["chunk_grid"]["configuration"]["chunk_shape"] = [10_000]
    array = root_array(write(tmp_path, document, {"c/0": bytes(16 * 10_000)}))
    batches = list(array.chunks.scan(()))
    assert max(map(len, batches)) == BATCH_NAMES
    assert [coordinate for batch in batches for coordinate, _ in batch] == list(range(10_000))


def test_parts_that_are_found_within_the_time_are_listed_in_one_batch() -> None:
    parts = [[(number, 7), (number + 1, 7)] for number in range(0, 20, 2)]
    assert list(merge(iter(parts), 600.0)) == [[(number, 7) for number in range(20)]]
    assert list(merge(iter(parts), 0.0)) == parts
    assert max(map(len, merge(iter(parts * BATCH_NAMES), 600.0))) == BATCH_NAMES


def test_shards_of_one_directory_are_listed_together(tmp_path: Path) -> None:
    document = sharded()
    document["shape"] = [40]
    shards = {f"c/{number}": bytes(8) + index((0, 4), (4, 4)) for number in range(10) if number != 3}
    array = root_array(write(tmp_path, document, shards))
    batches = list(array.chunks.scan(()))
    assert [coordinate for batch in batches for coordinate, _ in batch] == [i for i in range(20) if i // 2 != 3]
    assert len(batches) < len(shards)


def test_a_run_of_inner_chunks_is_fetched_together() -> None:
    entries = np.array([[1000, 100], [EMPTY, EMPTY], [0, 100], [100, 100], [300, 50], [1200, 900]], np.uint64)
    index = ShardIndex(entries, 0, 9010)
    for offset, length in ((0, 100), (1000, 100), (1200, 900)):
        assert index.run(offset, length) == (0, 2100)
    big = ShardIndex(np.array([[number * (1 << 20), 1 << 20] for number in range(10)], np.uint64), 0, 10 << 20)
    assert [big.run(number << 20, 1 << 20)[0] >> 20 for number in range(10)] == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8]
    assert big.run(9 << 20, 1 << 20) == (8 << 20, 2 << 20)
    sparse = ShardIndex(np.array([[0, 10], [900_000, 10]], np.uint64), 0, 10 << 20)
    assert sparse.run(900_000, 10) == (900_000, 10)
    damaged = ShardIndex(np.array([[0, 10], [10, 2**63], [20, 10], [2**63, 5]], np.uint64), 0, 30)
    assert damaged.run(0, 10) == (0, 30)
