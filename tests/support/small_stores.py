"""A small store of each format of keys, and every file of its tree with its bytes or its error. Not here: any fault."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numcodecs
import numpy as np
import zarr
from n5_arrays import write_n5
from tree_walker import content
from zarr import codecs

from fsbridge.errors import FsbridgeError
from fsbridge.layouts.json_text import encode
from fsbridge.tree import Directory

VALUES = np.arange(12 * 10, dtype="<i4").reshape(12, 10)


def _n5(path: Path) -> None:
    write_n5(path / "a", VALUES, [4, 5])
    (path / "attributes.json").write_text('{"n5": "4.0.0"}')


def _zarr2(path: Path) -> None:
    zarr.create_group(path, zarr_format=2)
    options: Any = {"chunks": (4, 5), "dtype": "<i4", "zarr_format": 2, "compressors": numcodecs.Zlib()}
    zarr.create_array(path / "a", shape=VALUES.shape, **options)[...] = VALUES


def _zarr3(path: Path) -> None:
    zarr.create_group(path, zarr_format=3)
    compressors = [codecs.GzipCodec(), codecs.Crc32cCodec()]
    zarr.create_array(path / "a", shape=VALUES.shape, chunks=(4, 5), dtype="<i4", compressors=compressors)[...] = VALUES


def _sharded(path: Path) -> None:
    zarr.create_group(path, zarr_format=3)
    options: Any = {"chunks": (2, 5), "shards": (4, 10), "dtype": "<i4", "compressors": [codecs.GzipCodec()]}
    zarr.create_array(path / "a", shape=VALUES.shape, **options)[...] = VALUES


def _zipped(path: Path) -> None:
    _zarr2(path)
    shutil.make_archive(str(path), "zip", path)


FORMATS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "n5": ("n5", _n5),
    "zarr2": ("zarr2", _zarr2),
    "zarr3": ("zarr3", _zarr3),
    "sharded": ("zarr3", _sharded),
    "zip": ("zarr2", _zipped),
}


def files(directory: Directory, path: bytes = b"") -> Iterator[tuple[bytes, bytes | Exception | None]]:
    """Every listed file with its bytes or its error, and directories that broke off, as (path, error)."""
    try:
        for batch in directory.entries():
            for entry in batch:
                place = path + b"/" + entry.name
                try:
                    node = directory.lookup(entry.name)
                    if isinstance(node, Directory):
                        yield from files(node, place)
                    else:
                        yield place, content(node)
                except (FsbridgeError, OSError) as error:
                    yield place, error
    except (FsbridgeError, OSError) as error:
        yield path, error


Found: TypeAlias = dict[bytes, bytes | Exception | None]


def absent(right: Found, found: Found) -> list[bytes]:
    """Return paths that are neither found nor below anything that could not be read."""
    broken = {path for path, what in found.items() if isinstance(what, Exception)}
    above = {path: [path[:end] for end in range(len(path)) if path[end : end + 1] == b"/"] for path in right}
    return [path for path in right if path not in found and broken.isdisjoint(above[path])]


def is_complete(what: object, right: object) -> bool:
    """True if a file is right: also a group's document without the copies of its members', if one cannot be read."""
    if what == right:
        return True
    document = json.loads(right) if isinstance(right, bytes) and b"consolidated_metadata" in right else {}
    return bool(document.pop("consolidated_metadata", None)) and what == encode(document)
