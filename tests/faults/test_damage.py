"""P3 and P8 for every codec: damaged chunks are errors of their own, named once in the log; their neighbours are unharmed.

Each array has eight chunks; five of them are damaged, each in another way. What a codec cannot notice by design (a flipped
bit in bytes without a checksum) must still have the right length.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import tensorstore
import z5py
import zarr
from mounting import Mount, MountFunction
from n5_arrays import write_n5
from stores import kvstore

CHUNK = 512
VALUES = np.arange(8 * CHUNK, dtype="<i4") * 7 % 1013


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\xa5" * 37)


def flip(path: Path) -> None:
    stored = bytearray(path.read_bytes())
    stored[len(stored) * 2 // 3] ^= 0x10
    path.write_bytes(stored)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[int, Callable[[Path], None]] = {1: truncate, 2: empty, 3: lengthen, 4: flip, 5: directory}
"""By the position of the chunk that suffers; chunks 0, 6 and 7 stay whole."""


@dataclass(frozen=True)
class Codec:
    """An array named `name` in a store of its own; `notices` whether a flipped bit cannot pass."""

    name: str
    write: Callable[[Path], None]
    chunk: str
    notices: bool = False


def _zarr3_by_tensorstore(path: Path, metadata: dict[str, Any]) -> None:
    spec = {"driver": "zarr3", "kvstore": kvstore(path), "metadata": metadata}
    tensorstore.open(spec, create=True).result().write(VALUES).result()


def n5(compression: str, notices: bool = False, **options: Any) -> Codec:
    name = "-".join(["n5", compression, *map(str, options.values())])
    return Codec(name, lambda path: write_n5(path, VALUES, [CHUNK], {"type": compression, **options}), "{}", notices)


def n5_lz4(path: Path) -> None:
    with z5py.File(str(path.parent), "w", use_zarr_format=False) as file:
        file.create_dataset(path.name, data=VALUES, chunks=(CHUNK,), compression="lz4")


def v2(name: str, compressor: Any, notices: bool = False, filters: Any = None) -> Codec:
    def write(path: Path) -> None:
        zarr.create_array(
            path, shape=VALUES.shape, chunks=(CHUNK,), dtype="<i4", zarr_format=2, compressors=compressor, filters=filters
        )[...] = VALUES

    return Codec(f"v2-{name}", write, "{}", notices)


def v3(name: str, codecs: list[dict[str, Any]], notices: bool = False) -> Codec:
    metadata = {
        "shape": [8 * CHUNK],
        "data_type": "int32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [CHUNK]}},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, *codecs],
    }
    return Codec(f"v3-{name}", lambda path: _zarr3_by_tensorstore(path, metadata), "c/{}", notices)


def v3_codec(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, "configuration": configuration}


CODECS = [
    n5("raw"),
    n5("gzip", True),
    n5("gzip", True, useZlib=True),
    n5("bzip2", True),
    n5("xz", True),
    n5("zstd"),
    *(n5("blosc", cname=name, clevel=5, shuffle=1) for name in ("lz4", "blosclz", "zlib", "zstd")),
    Codec("n5-lz4", n5_lz4, "{}"),
    v2("none", None),
    v2("zlib", numcodecs.Zlib(), True),
    v2("gzip", numcodecs.GZip(), True),
    v2("bz2", numcodecs.BZ2(), True),
    v2("lzma", numcodecs.LZMA(), True),
    v2("lz4", numcodecs.LZ4()),
    v2("zstd", numcodecs.Zstd()),
    v2("zstd-checksum", numcodecs.Zstd(checksum=True), True),
    *(v2(f"blosc-{name}", numcodecs.Blosc(cname=name)) for name in ("lz4", "lz4hc", "blosclz", "zlib", "zstd")),
    v2("shuffle", None, filters=[numcodecs.Shuffle(4)]),
    v2("delta", None, filters=[numcodecs.Delta("<i4")]),
    v2("crc32", None, True, [numcodecs.CRC32()]),
    v2("adler32", None, True, [numcodecs.Adler32()]),
    v2("fletcher32", None, True, [numcodecs.Fletcher32()]),
    v3("none", []),
    v3("gzip", [v3_codec("gzip", level=5)], True),
    v3("zstd", [v3_codec("zstd", level=3)]),
    v3("crc32c", [{"name": "crc32c"}], True),
    v3("blosc", [v3_codec("blosc", cname="lz4", clevel=5, shuffle="shuffle", typesize=4, blocksize=0)]),
]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory, module_mount: MountFunction) -> Mount:
    root = tmp_path_factory.mktemp("damaged") / "all"
    for codec in CODECS:
        array = root / codec.name / "a"
        array.parent.mkdir(parents=True)
        if not codec.name.startswith("n5-lz4"):
            _group(codec.name, array.parent)
        codec.write(array)
        for position, damage in DAMAGES.items():
            damage(array / codec.chunk.format(position))
    mount = module_mount(root)
    mount.allow(r"WARNING .*/a/(c/)?[1-5]: ")
    return mount


def _group(name: str, path: Path) -> None:
    if name.startswith("v"):
        zarr.create_group(path, zarr_format=2 if name[1] == "2" else 3)
    else:
        (path / "attributes.json").write_text('{"n5": "2.0.0"}')


def slice_values(position: int) -> bytes:
    return VALUES[position * CHUNK : (position + 1) * CHUNK].tobytes()


def read_errno(path: Path) -> int | None:
    """The errno of reading the chunk with a flipped bit, 0 if it reads; its length must be right then."""
    try:
        content = path.read_bytes()
    except OSError as error:
        return error.errno
    assert len(content) == 4 * CHUNK
    return 0


def native(codec: Codec, stored: bytes) -> bytes:
    """N5 holds big-endian elements, and the mount shows them as they are."""
    return np.frombuffer(stored, ">i4" if codec.name.startswith("n5") else "<i4").astype("<i4").tobytes()


@pytest.mark.parametrize("codec", CODECS, ids=[codec.name for codec in CODECS])
def test_p3_damage_is_an_error_and_p8_stays_local(codec: Codec, damaged: Mount) -> None:
    chunks = damaged / f"{codec.name}/a/c"
    for position, damage in DAMAGES.items():
        if damage is flip:
            continue
        with pytest.raises(OSError, match=r"\[Errno") as caught:
            (chunks / str(position)).read_bytes()
        assert caught.value.errno == errno.EIO, f"{damage.__name__}: {caught.value}"
    assert read_errno(chunks / "4") in ({errno.EIO} if codec.notices else {errno.EIO, 0}), "a flipped bit went unnoticed"
    for position in (0, 6, 7):
        assert native(codec, (chunks / str(position)).read_bytes()) == slice_values(position), (
            f"chunk {position} is unharmed"
        )
    for position in DAMAGES:
        if position == 4 and not codec.notices:
            continue
        lines = damaged.told(re.escape(f"{codec.name}/a/{codec.chunk.format(position)}: "))
        assert len(lines) == 1, f"chunk {position}: one line in the log, not {lines}"


@pytest.mark.parametrize("codec", CODECS, ids=[codec.name for codec in CODECS])
def test_damage_does_not_change_listings(codec: Codec, damaged: Mount) -> None:
    names = {path.name for path in (damaged / f"{codec.name}/a/c").iterdir()}
    assert {"0", "1", "2", "3", "4", "6", "7"} <= names <= set("01234567")


def test_the_daemon_is_alive_after_all_damage(damaged: Mount) -> None:
    assert damaged.alive


def test_p3_a_reader_gets_an_error_not_the_fill_value(damaged: Mount) -> None:
    array = zarr.open_array(damaged.path / "v3-gzip/a", mode="r")
    assert np.array_equal(array[:CHUNK], VALUES[:CHUNK])
    with pytest.raises(OSError, match=r"\[Errno 5\]"):
        array[CHUNK : 2 * CHUNK]


def test_p3_a_lost_store_is_not_an_empty_one(tmp_path: Path, mount: MountFunction) -> None:
    """The store vanishes below the mount: its chunks are absent, and nothing that was not stored is made up."""
    n5("gzip").write(tmp_path / "a.n5/a")
    mounted = mount(tmp_path / "a.n5")
    assert (mounted / "a/c/0").stat().st_size == 4 * CHUNK
    shutil.rmtree(tmp_path / "a.n5/a")
    mounted.allow("WARNING")
    with pytest.raises(OSError, match=r"\[Errno"):
        (mounted / "a/c/1").read_bytes()
