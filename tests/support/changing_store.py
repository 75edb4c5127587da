"""Stores that change under a mount: every chunk and document carries a stamp, and it is known what was where, and when.

Written by hand, so that a change is one call to the file system, or a few. Not here: the mount, what may be seen of it.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

ROWS, COLUMNS = 2, 3
"""Chunks of an array, each `HEIGHT` elements high."""
HEIGHT = 2


@dataclass(frozen=True)
class Shape:
    """The kind of an array: `width` of its chunks, bytes of an element, and if they are compressed."""

    width: int
    itemsize: int
    packed: bool

    @property
    def nbytes(self) -> int:
        return HEIGHT * self.width * self.itemsize


SHAPES = [Shape(600, 4, True), Shape(600, 8, False), Shape(20_000, 4, True), Shape(40_000, 8, False)]


@dataclass(frozen=True)
class Version:
    """The content of a path from one time until another one."""

    since: float
    until: float
    value: Any


class Histories:
    """The content of each path, and when it had it: `None` is nothing."""

    def __init__(self) -> None:
        self._all: dict[Any, list[Version]] = {}

    def set(self, path: Any, value: Any, begun: float) -> None:
        """A change that began at a time has just been made."""
        versions = self._all.setdefault(path, [Version(-1.0, float("inf"), None)])
        if versions[-1].value == value:
            return
        versions[-1] = replace(versions[-1], until=time.monotonic())
        versions.append(Version(begun, float("inf"), value))

    def now(self, path: Any) -> Any:
        return self._all[path][-1].value if path in self._all else None

    def within(self, path: Any, since: float) -> list[Any]:
        """All that it has held since a time."""
        return [version.value for version in self._all.get(path, [Version(0, float("inf"), None)]) if version.until >= since]

    def paths(self) -> list[Any]:
        return [*self._all]


class ChangingStore:
    """Arrays by name below the root. In `histories`: `("array", name)` has a `(Shape, stamp)`, `("group", name)` is True,
    `("chunk", name, i, j)` has a stamp.
    """

    def __init__(self, folder: Path, form: str) -> None:
        self.folder, self.form = folder, form
        self.histories = Histories()
        self._stamp = 0
        folder.mkdir()
        self.group(folder)

    def stamp(self) -> int:
        self._stamp += 1
        return self._stamp

    def arrays(self) -> list[str]:
        return [path[1] for path in self.histories.paths() if path[0] == "array" and self.histories.now(path)]

    def chunks(self, name: str) -> list[tuple[int, int]]:
        found = [(i, j) for i in range(ROWS) for j in range(COLUMNS)]
        return [at for at in found if self.histories.now(("chunk", name, *at)) is not None]

    # Changes

    def make(self, name: str, shape: Shape, stored: list[tuple[int, int]], renamed: bool) -> None:
        """An array in the place of whatever is there: made elsewhere and moved there, or made on the spot."""
        begun = time.monotonic()
        place = self.folder / name
        new = self.folder.with_name("new") if renamed else place
        if not renamed:
            self._remove(place)
        new.mkdir()
        stamps, document = {at: self.stamp() for at in stored}, self.stamp()
        self.fill(new, shape, document, stamps)
        if renamed:
            self._replace(new, place)
        self._now_is(name, (shape, document), stamps, begun)

    def fill(self, folder: Path, shape: Shape, document: int, stamps: dict[tuple[int, int], int]) -> None:
        """Put an array into an empty folder."""
        self._document(folder, shape, document)
        for row in {at[0] for at in stamps} if self.form == "sharded" else ():
            self._write(
                folder / self._key((row, 0)), self._shard(shape, {at: s for at, s in stamps.items() if at[0] == row})
            )
        for at, stamp in stamps.items() if self.form != "sharded" else ():
            self._write(folder / self._key(at), self._encoded(shape, stamp))

    def _now_is(self, name: str, array: Any, stamps: dict[tuple[int, int], int], begun: float, group: bool = False) -> None:
        self.histories.set(("array", name), array, begun)
        self.histories.set(("group", name), True if group else None, begun)
        for i in range(ROWS):
            for j in range(COLUMNS):
                self.histories.set(("chunk", name, i, j), stamps.get((i, j)), begun)

    def remove(self, name: str, group: bool = False) -> None:
        """An array, or with `group` it becomes an empty one."""
        begun = time.monotonic()
        self._remove(self.folder / name)
        if group:
            (self.folder / name).mkdir()
            self.group(self.folder / name)
        self._now_is(name, None, {}, begun, group)

    def move(self, name: str, to: str) -> None:
        """An array gets another name, in place of what had it."""
        begun = time.monotonic()
        self._replace(self.folder / name, self.folder / to)
        stamps = {at: self.histories.now(("chunk", name, *at)) for at in self.chunks(name)}
        array = self.histories.now(("array", name))
        self._now_is(to, array, stamps, begun)
        self._now_is(name, None, {}, begun)

    def redescribe(self, name: str, how: str) -> None:
        """Other attributes, the same array."""
        shape, _ = self.histories.now(("array", name))
        begun, stamp = time.monotonic(), self.stamp()
        self._document(self.folder / name, shape, stamp, how)
        self.histories.set(("array", name), (shape, stamp), begun)

    def write(self, name: str, at: tuple[int, int], how: str) -> None:
        """A chunk with a new stamp: `rename`, `place` (written over) or `kept` (renamed, with the mtime it had before)."""
        shape, _ = self.histories.now(("array", name))
        begun, stamp = time.monotonic(), self.stamp()
        path = self.folder / name / self._key(at)
        if self.form == "sharded":
            row = {other: self.histories.now(("chunk", name, *other)) for other in self.chunks(name) if other[0] == at[0]}
            self._write(path, self._shard(shape, {**row, at: stamp}), how)
        else:
            self._write(path, self._encoded(shape, stamp), how)
        self.histories.set(("chunk", name, *at), stamp, begun)

    def unlink(self, name: str, at: tuple[int, int]) -> None:
        """A chunk is not stored any more."""
        begun = time.monotonic()
        path = self.folder / name / self._key(at)
        if self.form == "sharded":
            shape, _ = self.histories.now(("array", name))
            row = {other: self.histories.now(("chunk", name, *other)) for other in self.chunks(name) if other[0] == at[0]}
            del row[at]
            if row:
                self._write(path, self._shard(shape, row))
            else:
                path.unlink()
        else:
            path.unlink()
        self.histories.set(("chunk", name, *at), None, begun)

    # How they are stored

    def _replace(self, new: Path, place: Path) -> None:
        """In two steps, between which nothing is there."""
        old = self.folder.with_name("old")
        if place.exists():
            os.rename(place, old)
        os.rename(new, place)
        self._remove(old)

    def _remove(self, path: Path) -> None:
        if path.exists():
            shutil.rmtree(path)

    def _write(self, path: Path, data: bytes, how: str = "rename") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if how == "place":
            with open(path, "r+b" if path.exists() else "wb") as file:
                file.write(data)
                file.truncate()
            return
        before = path.stat() if how == "kept" and path.exists() else None
        new = path.with_name(".renamed")
        new.write_bytes(data)
        if before is not None:
            os.utime(new, ns=(before.st_mtime_ns, before.st_mtime_ns))
        os.rename(new, path)

    def group(self, folder: Path) -> None:
        """Make a group of a folder."""
        name, document = {
            "zarr3": ("zarr.json", {"zarr_format": 3, "node_type": "group"}),
            "sharded": ("zarr.json", {"zarr_format": 3, "node_type": "group"}),
            "zarr2": (".zgroup", {"zarr_format": 2}),
            "n5": ("attributes.json", {"n5": "4.0.0"}),
        }[self.form]
        (folder / name).write_text(json.dumps(document))

    def _document(self, folder: Path, shape: Shape, stamp: int, how: str = "rename") -> None:
        whole, chunk = [ROWS * HEIGHT, COLUMNS * shape.width], [HEIGHT, shape.width]
        codecs: list[Any] = [{"name": "bytes", "configuration": {"endian": "little"}}]
        if shape.packed:
            codecs.append({"name": "gzip", "configuration": {"level": 1}})
        grid = chunk
        if self.form == "sharded":
            index = [codecs[0], {"name": "crc32c"}]
            inner = {"chunk_shape": chunk, "codecs": codecs, "index_codecs": index, "index_location": "end"}
            codecs, grid = [{"name": "sharding_indexed", "configuration": inner}], [HEIGHT, whole[1]]
        name, document = {
            "zarr3": (
                "zarr.json",
                {
                    "zarr_format": 3,
                    "node_type": "array",
                    "shape": whole,
                    "data_type": f"int{8 * shape.itemsize}",
                    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": grid}},
                    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
                    "fill_value": 0,
                    "codecs": codecs,
                    "attributes": {"stamp": stamp},
                },
            ),
            "zarr2": (
                ".zarray",
                {
                    "zarr_format": 2,
                    "shape": whole,
                    "chunks": chunk,
                    "dtype": f"<i{shape.itemsize}",
                    "compressor": {"id": "zlib", "level": 1} if shape.packed else None,
                    "fill_value": 0,
                    "order": "C",
                    "filters": None,
                },
            ),
            "n5": (
                "attributes.json",
                {
                    "dimensions": whole[::-1],
                    "blockSize": chunk[::-1],
                    "dataType": f"int{8 * shape.itemsize}",
                    "compression": {"type": "gzip" if shape.packed else "raw"},
                    "stamp": stamp,
                },
            ),
        }[self.form.replace("sharded", "zarr3")]
        self._write(folder / name, json.dumps(document).encode(), how)
        if self.form == "zarr2":
            self._write(folder / ".zattrs", json.dumps({"stamp": stamp}).encode(), how)

    def _key(self, at: tuple[int, int]) -> str:
        i, j = at
        return {"zarr3": f"c/{i}/{j}", "sharded": f"c/{i}/0", "zarr2": f"{i}.{j}", "n5": f"{j}/{i}"}[self.form]

    def _encoded(self, shape: Shape, stamp: int) -> bytes:
        order = ">" if self.form == "n5" else "<"
        data = np.full(shape.nbytes // 4, stamp, f"{order}i4").tobytes()
        if shape.packed:
            data = zlib.compress(data, 1) if self.form == "zarr2" else _gzip(data)
        if self.form == "n5":
            data = struct.pack(">HHII", 0, 2, shape.width, HEIGHT) + data
        return data

    def _shard(self, shape: Shape, stamps: dict[tuple[int, int], int]) -> bytes:
        data, index = b"", b""
        by_column = {at[1]: stamp for at, stamp in stamps.items()}
        for column in range(COLUMNS):
            if column in by_column:
                part = self._encoded(shape, by_column[column])
                index += struct.pack("<QQ", len(data), len(part))
                data += part
            else:
                index += b"\xff" * 16
        return data + index + int(google_crc32c.value(index)).to_bytes(4, "little")


def _gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()
