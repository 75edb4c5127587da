"""Hangar repositories through the model: nodes by their paths, and values to compare. Not here: what is demanded of them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, cast

import numpy as np
from model_reader import read_array

from fsbridge.config import Config
from fsbridge.formats.hangar.hierarchy import HangarSource, open_hangar
from fsbridge.formats.hangar.records import (
    RowRecord,
    parse_record,
)
from fsbridge.formats.hdf5.source import open_hdf5
from fsbridge.model import Array, Group, Node, as_array


def opened(path: Path, **options: Any) -> HangarSource:
    return open_hangar(str(path), config := Config(str(path), "/nowhere", **options), lambda file: open_hdf5(file, config))


def walk(source: Any, *path: str) -> Node:
    node = source.root
    for name in path:
        node = node.child(name)
    return cast(Node, node)


def group(source: Any, *path: str) -> Group:
    return cast(Group, walk(source, *path))


def sample(source: Any, *path: str) -> Array:
    array = as_array(walk(source, *path))
    assert array is not None
    return array


def names(node: Node) -> list[str]:
    return [child.name for child in cast(Group, node).children()]


def value(array: Array) -> Any:
    """The sample as Hangar gives it: an array, a str or bytes."""
    found = read_array(array)
    return found if array.metadata.dtype.itemsize else found[()]


def same(found: Any, wanted: Any) -> bool:
    if not isinstance(wanted, np.ndarray):
        return type(found) is type(wanted) and bool(found == wanted)
    return bool(found.shape == wanted.shape and found.tobytes() == wanted.tobytes())


def snapshot(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every file below `folder`: size, mtime and content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (status.st_size, status.st_mtime_ns, digest)
    return found


def row_of(array: Array) -> RowRecord:
    record = parse_record(array.metadata.attributes["record"].encode())
    assert isinstance(record, RowRecord)
    return record
