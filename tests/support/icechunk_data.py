"""Repositories written by icechunk itself, version 1 or 2, whichever runs; run as a program it makes one in FOLDER.

`tests/data/icechunk/version2.zip` was made so by icechunk 2.3.0: it needs Python 3.12, which not all test runs have. So were
`containers.zip` (virtual chunks at `vcc:` URLs) and `moved.zip` (branches and tags before and after they were moved).
"""

from __future__ import annotations

import shutil
import struct
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

VALUES = np.arange(100 * 200, dtype=np.int32).reshape(100, 200)
CHANGED = np.where(np.arange(100)[:, None] < 30, 5, VALUES)
"""`VALUES` after the second commit."""
SMALL = np.array([7, 7, 7, 7, 7, 7, 0, 0, 0, 0], np.uint16)
DEEP = np.arange(3 * 4 * 5 * 6, dtype=np.float64).reshape(3, 4, 5, 6)
METADATA = {"author": "Ada", "number": 1.5, "nested": {"list": [1, True, None, "x"]}, "count": -3}
EXPECTED = {"a": CHANGED, "sub/b": SMALL, "sub/deep": DEEP, "scalar": np.int64(42), "empty": np.full((4, 4), 9, np.uint8)}
"""The arrays on the branch `main`, by path."""


def write_as(writer: str, folder: Path) -> None:
    """Write what the installed icechunk writes (1.x: version 1 of the format), or what 2.3.0 wrote ("version 2")."""
    if writer == "installed":
        write(folder)
    else:
        shutil.unpack_archive(Path(__file__).parents[1] / "data/icechunk/version2.zip", folder)


def write(folder: Path, version: int | None = None) -> None:
    """A repository with two commits on `main`, one more on `dev`, and the tags `v1` (the first commit) and `a b`.

    `a`: chunk objects, some of which both commits share; `sub/b`: chunks in the manifest, two of them absent; `sub/deep`:
    rank 4; `scalar`: rank 0; `empty`: nothing is stored. `version`: of the format, else the newest that icechunk writes.
    """
    import icechunk
    import zarr

    chosen: dict[str, Any] = {} if version is None or icechunk.__version__.startswith("1.") else {"spec_version": version}
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder)), **chosen)
    session = repository.writable_session("main")
    group: Any = zarr.group(session.store, attributes={"title": "first"})
    group.create_array("a", shape=VALUES.shape, chunks=(30, 50), dtype="i4")[:] = VALUES
    group.create_array("sub/b", shape=(10,), chunks=(3,), dtype="u2", compressors=None)[:6] = 7
    group.create_array("sub/deep", shape=DEEP.shape, chunks=(2, 3, 2, 6), dtype="f8")[:] = DEEP
    group.create_array("scalar", shape=(), dtype="i8")[...] = 42
    group.create_array("empty", shape=(4, 4), chunks=(2, 2), dtype="u1", fill_value=9)
    first = session.commit("first", metadata=METADATA)
    session = repository.writable_session("main")
    group = zarr.open_group(session.store)
    group["a"][:30] = 5
    group.attrs["title"] = "second"
    second = session.commit("second: é")
    repository.create_tag("v1", first)
    repository.create_tag("a b", second)
    repository.create_branch("dev", second)
    session = repository.writable_session("dev")
    group = zarr.open_group(session.store)
    group["a"][30:] = 6
    session.commit("on dev")


def manifest(chunks: int, rank: int, rows: int | None = None) -> bytes:
    """A manifest as FlatBuffer, of an array `NNNNNNNN` with `chunks` native chunks in so many `rows`, or fewer.

    Its own identifier is twelve letters M. With fewer rows than chunks they are referred to again and again.
    """
    rows = chunks if rows is None else rows
    data, places = _begun({"row": (36, (4, 0, 8, 16, 24)), "array": (16, (4, 12)), "manifest": (20, (4, 16))})
    data += struct.pack("<i12sI", len(data) - places["manifest"], b"M" * 12, 4)
    data += struct.pack("<II", 1, 4)  # the only array stands right behind
    data += struct.pack("<i8sI", len(data) - places["array"], b"N" * 8, 4)
    data += struct.pack("<I", chunks)
    form = [("table", "<i4"), ("index", "<u4"), ("start", "<u8"), ("length", "<u8"), ("id", "S12"), ("rank", "<u4")]
    found = np.zeros(rows, [*form, ("coordinates", "<u4", (rank,))])
    references = len(data) + 4 * np.arange(chunks, dtype=np.int64)
    positions = len(data) + 4 * chunks + found.itemsize * np.arange(rows, dtype=np.int64)
    found["table"], found["index"] = positions - places["row"], 32
    found["start"], found["length"], found["id"] = np.arange(rows), 1000, b"C" * 12
    found["rank"], found["coordinates"][:, -1] = rank, np.arange(rows)
    data += (np.resize(positions, chunks) - references).astype("<u4").tobytes()
    return bytes(data + found.tobytes())


def snapshot(paths: list[str]) -> bytes:
    """A snapshot as FlatBuffer, of groups at `paths`. Its own identifier is twelve letters S."""
    data, places = _begun({"node": (20, (4, 12, 16)), "snapshot": (20, (4, 0, 16))})
    data += struct.pack("<i12sI", len(data) - places["snapshot"], b"S" * 12, 4)
    data += struct.pack("<I", len(paths))
    references = len(data)
    data += bytes(4 * len(paths))
    for number, path in enumerate(paths):
        at = len(data)
        struct.pack_into("<I", data, references + 4 * number, at - references - 4 * number)
        raw = path.encode() + bytes(1)
        data += struct.pack("<i8sII", at - places["node"], number.to_bytes(8), 8, 8 + len(raw) + -len(raw) % 4)
        data += struct.pack("<I", len(raw) - 1) + raw + bytes(-len(raw) % 4)
        data += struct.pack("<I", 40) + b"{}".ljust(40)
    return bytes(data)


def virtual(tmp_path: Path, locations: dict[int, tuple[str, int]], modified: datetime | None = None) -> Path:
    """A repository with an array `v` of 400 bytes in chunks of 4, some of them in files; `outside/file.bin` is one."""
    import icechunk
    import zarr

    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file.bin").write_bytes(bytes(range(100)))
    url = f"file://{tmp_path}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(url, icechunk.local_filesystem_store(str(tmp_path))))
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "repository")), config)
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="v", shape=(400,), chunks=(4,), dtype="u1", compressors=None)
    for number, (name, offset) in locations.items():
        session.store.set_virtual_ref(f"v/c/{number}", url + name, offset=offset, length=4, checksum=modified)
    session.commit("virtual")
    return tmp_path / "repository"


if __name__ == "__main__":
    write(Path(sys.argv[1]))


def _begun(tables: dict[str, tuple[int, tuple[int, ...]]]) -> tuple[bytearray, dict[str, int]]:
    """A FlatBuffer with the layouts of its tables (the size of each, and where its fields are), and where those lie."""
    data = bytearray(4)
    places = {}
    for name, (size, fields) in tables.items():
        places[name] = len(data)
        data += struct.pack(f"<{2 + len(fields)}H", 4 + 2 * len(fields), size, *fields)
    data += bytes(-len(data) % 4)
    struct.pack_into("<I", data, 0, len(data))
    return data, places
