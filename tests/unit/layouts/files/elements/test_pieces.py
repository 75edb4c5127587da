"""Large chunks in slabs: any region equals the source's, a plane takes a small part of its chunks, frames lie and change."""

from __future__ import annotations

import contextlib
import itertools
import json
from pathlib import Path
from typing import Any, cast

import numcodecs
import numpy as np
import pytest
import zarr
import zarr.codecs
from files_layout import open_files

from fsbridge.codecs.blosc import HEADER, Blosc
from fsbridge.config import Config
from fsbridge.errors import CorruptData, FsbridgeError, Stale
from fsbridge.layouts.files.arrays.open_array import SharedLimits
from fsbridge.layouts.files.arrays.selection import parse_region, select_all
from fsbridge.layouts.files.elements.pieces import SLAB_LIMITS, SlabLimits, Slabs, choose_slabs
from fsbridge.metadata import ArrayMetadata, ChunkGrid, DataType
from fsbridge.mount.lifecycle import Tree
from fsbridge.tree import File, Handle

SHAPE, CHUNKS, BLOCK = (40, 30, 50), (16, 16, 32), 1024
"""A position of a chunk's first dimension has one block."""

CHUNK_BYTES = CHUNKS[0] * BLOCK

VALUES = (np.arange(np.prod(SHAPE)) % 1013).astype("<u2").reshape(SHAPE)
REGIONS = (":", "3", ":,7", ":,:,49", "17:33,2:29,::3", "::-1", "::5,::-2", "39", "-9:,:5,:3", "5:7", "16", "15:17")
STORES = ("zarr2", "zarr2 F", "zarr2 raw", "zarr3", "n5")


def write_store(kind: str, root: Path, blosc: Any) -> None:
    """`a` of `VALUES`, in the order that the kind of store has."""
    if kind == "n5":
        block = {"type": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 1, "blocksize": BLOCK, "nthreads": 1}
        (root / "a").mkdir(parents=True)
        grid = {"dimensions": SHAPE[::-1], "blockSize": CHUNKS[::-1], "dataType": "uint16", "compression": block}
        (root / "a/attributes.json").write_text(json.dumps(grid))
        for index in itertools.product(*(range(-(-n // m)) for n, m in zip(SHAPE, CHUNKS, strict=True))):
            part = VALUES[tuple(slice(i * m, (i + 1) * m) for i, m in zip(index, CHUNKS, strict=True))]
            sizes = b"".join(n.to_bytes(4, "big") for n in part.shape[::-1])
            path = root / "a" / "/".join(str(i) for i in index[::-1])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"\0\0\0\3" + sizes + blosc.encode(np.ascontiguousarray(part).astype(">u2")))
        return
    group = zarr.open_group(root, mode="w", zarr_format=3 if kind == "zarr3" else 2)
    compressor = zarr.codecs.BloscCodec(cname="zstd", blocksize=BLOCK) if kind == "zarr3" else blosc
    more: dict[str, Any] = {"order": "F"} if kind == "zarr2 F" else {}
    compressors = None if kind == "zarr2 raw" else compressor
    group.create_array("a", shape=SHAPE, chunks=CHUNKS, dtype="<u2", compressors=compressors, **more)[...] = VALUES


SMALL = SlabLimits(slab_bytes=2 * BLOCK, long_slab_bytes=4 * BLOCK, file_bytes=16 * BLOCK)
"""Chunks of 16 KiB are large, files of 16 KiB long."""


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each range that Blosc has decoded since; whole chunks are 0."""
    asked: list[int] = []
    ranged, whole_frame = Blosc.decode_range, Blosc.decode

    def decode_range(self: Blosc, read: Any, stored: int, size: int, start: int, stop: int, out: Any = None) -> Any:
        asked.append(stop - start)
        return ranged(self, read, stored, size, start, stop, out)

    def decode(self: Blosc, *given: Any) -> Any:
        asked.append(0)
        return whole_frame(self, *given)

    monkeypatch.setattr(Blosc, "decode_range", decode_range)
    monkeypatch.setattr(Blosc, "decode", decode)
    return asked


def open_store(root: Path, limits: SlabLimits = SMALL, **options: Any) -> Tree:
    return open_files(Config(str(root), "/nowhere", layout="files", **options), limits=SharedLimits(slabs=limits))


def open_file(tree: Tree, name: str) -> Handle:
    return cast(File, tree.root.lookup(name.encode())).open()


def read_region(tree: Tree, region: str) -> bytes:
    handle = open_file(tree, f"a[{region}].raw")
    try:
        return bytes(handle.read(0, handle.size))
    finally:
        handle.close()


def make_raw(kind: str, region: str = ":") -> bytes:
    """Return the content of a raw file, in the order of the source's memory."""
    part = eval(f"VALUES[{region}]")
    part = part.transpose() if kind == "zarr2 F" else part
    return np.ascontiguousarray(part).astype(">u2" if kind == "n5" else "<u2").tobytes()


def spell_region(kind: str, region: str) -> str:
    """The region as the source's dimensions are numbered: N5 has them the other way round."""
    items = [*region.split(","), ":", ":"][:3]
    return ",".join(items[::-1]) if kind == "n5" else region


@pytest.mark.parametrize("kind", STORES)
def test_any_region_is_what_the_source_has(kind: str, tmp_path: Path, parts: list[int]) -> None:
    write_store(kind, tmp_path / "s", numcodecs.Blosc("zstd", blocksize=BLOCK))
    tree = open_store(tmp_path / "s")
    for region in REGIONS:
        assert read_region(tree, spell_region(kind, region)) == make_raw(kind, region), region
        tree.clear()
    handle, expected = open_file(tree, "a.raw"), make_raw(kind)
    for start in range(0, len(expected), 7001):
        tree.clear()
        assert bytes(handle.read(start, 5000)) == expected[start : start + 5000], start
    handle.close()
    tree.close()
    assert kind == "zarr2 raw" or any(parts), "nothing was decoded in part"


def test_a_plane_takes_a_small_part_of_its_chunks(tmp_path: Path, parts: list[int]) -> None:
    """Chunks of a usual size."""
    array = zarr.create_array(
        tmp_path / "s/a", shape=(64, 256, 512), chunks=(64, 256, 256), dtype="<u2", zarr_format=2,
        compressors=numcodecs.Blosc("lz4"),
    )  # fmt: skip
    array[...] = values = np.arange(64 * 256 * 512, dtype="<u4").astype("<u2").reshape(64, 256, 512)
    tree = open_store(tmp_path / "s", SLAB_LIMITS)
    assert read_region(tree, "9") == values[9].tobytes()
    assert 0 not in parts
    assert sum(parts) <= 2 * SLAB_LIMITS.slab_bytes
    handle = open_file(tree, "a.raw")
    assert bytes(handle.read(20 << 18, 4096)) == values[20].tobytes()[:4096]
    assert 0 not in parts
    assert sum(parts) <= 2 * SLAB_LIMITS.slab_bytes + 2 * SLAB_LIMITS.long_slab_bytes
    handle.close()
    del parts[:]
    assert read_region(tree, ":,7") == values[:, 7].tobytes()
    assert parts == [0, 0], "a reader of a row of each slab gets the chunks at once"
    tree.close()


@pytest.mark.parametrize("cache_size", [256 << 20, 40 * BLOCK])
def test_frames_of_one_block_are_decoded_once(cache_size: int, tmp_path: Path, parts: list[int]) -> None:
    """Whatever the metadata lets hope; also where a band of them is spilt."""
    write_store("zarr2", tmp_path / "s", numcodecs.Blosc("zstd", blocksize=16 * BLOCK))
    tree = open_store(tmp_path / "s", cache_size=cache_size, spill_dir=str(tmp_path))
    handle, step = open_file(tree, "a.raw"), VALUES[0].nbytes
    for plane in range(SHAPE[0]):
        assert bytes(handle.read(plane * step, step)) == VALUES[plane].tobytes()
    handle.close()
    tree.close()
    chunks = 3 * 2 * 2
    assert set(parts) == {0}
    assert len(parts) <= (1 if cache_size > VALUES.nbytes else 3) * chunks


def test_slabs_that_the_cache_cannot_hold_are_spilt(tmp_path: Path, parts: list[int]) -> None:
    write_store("zarr2", tmp_path / "s", numcodecs.Blosc("zstd", blocksize=BLOCK))
    tree = open_store(tmp_path / "s", cache_size=40 * BLOCK, spill_dir=str(tmp_path))
    handle, step = open_file(tree, "a.raw"), VALUES[0].nbytes
    for plane in range(SHAPE[0]):
        assert bytes(handle.read(plane * step, step)) == VALUES[plane].tobytes()
    handle.close()
    tree.close()
    assert sum(parts) <= 2 * 3 * 2 * 2 * 16 * BLOCK


def test_p8_a_frame_with_a_wrong_header_decodes_like_the_whole_or_is_an_error(tmp_path: Path) -> None:
    """Every byte of the header, and some of the block offsets; what is in other chunks stays right."""
    write_store("zarr2", tmp_path / "s", numcodecs.Blosc("zstd", blocksize=BLOCK))
    stored = tmp_path / "s/a/0.0.0"
    right, row, failed = stored.read_bytes(), SHAPE[2] * 2, 0
    for place in (*range(HEADER.size), *range(HEADER.size, HEADER.size + 4 * CHUNKS[0], 3)):
        wrong = bytearray(right)
        wrong[place] ^= 0x55
        stored.write_bytes(bytes(wrong))
        possible = {VALUES.tobytes()[:64]}
        with contextlib.suppress(FsbridgeError):
            possible.add(bytes(Blosc().decode(bytes(wrong), CHUNK_BYTES, CHUNK_BYTES, None))[:64])
        tree = open_store(tmp_path / "s")
        handle = open_file(tree, "a.raw")
        try:
            found = bytes(handle.read(0, 64))
        except FsbridgeError:
            failed += 1
        else:
            assert found in possible, place
        below = CHUNKS[1] * row
        assert bytes(handle.read(below, 64)) == VALUES.tobytes()[below : below + 64]
        handle.close()
        tree.close()
    assert failed >= HEADER.size - 4
    stored.write_bytes(right[:-1])
    tree = open_store(tmp_path / "s")
    with pytest.raises(CorruptData):
        read_region(tree, "0")
    tree.close()


def test_p9_slabs_of_two_versions_are_never_mixed(tmp_path: Path) -> None:
    write_store("zarr2", tmp_path / "s", numcodecs.Blosc("zstd", blocksize=BLOCK))
    tree = open_store(tmp_path / "s")
    handle, step = open_file(tree, "a.raw"), VALUES[0].nbytes
    assert bytes(handle.read(0, 64)) == VALUES.tobytes()[:64]
    array = cast(Any, zarr.open_array(tmp_path / "s/a", mode="r+"))
    array[...] = VALUES[::-1]
    with pytest.raises(Stale):
        handle.read(12 * step, 64)
    handle.close()
    with contextlib.suppress(Stale):  # once, on which the kernel looks its path up again
        read_region(tree, "12")
    assert read_region(tree, "12") == VALUES[::-1][12].tobytes()
    tree.close()


def make_metadata(chunks: tuple[int, ...], order: tuple[int, ...] | None = None) -> ArrayMetadata:
    dtype = DataType(name="uint16", itemsize=2, endian="little", numpy=np.dtype("<u2"), native="<u2")
    return ArrayMetadata(ChunkGrid(tuple(4 * n for n in chunks), chunks), dtype, order=order)


@pytest.mark.parametrize(
    ("chunks", "order", "region", "expected"),
    [
        ((64, 256, 256), None, ":", Slabs(0, 4)),
        ((64, 256, 256), None, "5", Slabs(0, 16)),
        ((64, 256, 256), (2, 1, 0), ":", Slabs(2, 4)),
        ((1, 64, 256, 256), None, ":", Slabs(1, 4)),
        ((64, 64, 64), None, ":", Slabs()),
        ((61, 256, 256), None, ":", Slabs()),
        ((64, 256, 256), None, ":,3", Slabs()),
        ((2**22,), None, ":", Slabs(0, 4)),
        ((2147483647,), None, "5:6", Slabs()),
        ((1, 1), None, ":", Slabs()),
    ],
)
def test_large_chunks_are_cut_into_equal_slabs_where_that_saves_decoding(
    chunks: tuple[int, ...], order: tuple[int, ...] | None, region: str, expected: Slabs
) -> None:
    """Along the slowest dimension. A prime extent is not cut, nor is anything for a reader of a row of each slab."""
    array = make_metadata(chunks, order)
    selection = select_all(array.shape) if region == ":" else parse_region(region, array.shape)
    assert choose_slabs(array, selection, order or tuple(range(len(chunks)))) == expected
