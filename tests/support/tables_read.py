"""Tables of a source, as text and by pandas. Not here: what they must say."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from fsbridge.config import Config
from fsbridge.mount.lifecycle import open_tree


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    tree = open_tree(Config(source=str(path), mountpoint="/nowhere", layout="files", metadata_ttl=0))
    try:
        yield tree.root
    finally:
        tree.close()


def content(root: Any, *names: str) -> bytes:
    node = root
    for name in names:
        node = node.lookup(name.encode())
    data = bytes(node.open().read(0, 1 << 24))
    assert node.measure().size == len(data)
    return data


def frame(path: Path, name: str, **options: Any) -> pd.DataFrame:
    with opened(path) as root:
        return pd.read_csv(io.BytesIO(content(root, *name.split("/"))), **options)


def lines(path: Path, name: str) -> list[str]:
    with opened(path) as root:
        return content(root, *name.split("/")).decode().splitlines()
