"""Files of a source that are made as a whole, such as tables: as bytes, text and by pandas. Not here: what they must say."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from tree_walker import read_file

from fsbridge.config import Config
from fsbridge.mount.lifecycle import open_tree


@contextmanager
def files_of(path: Path, *files: str) -> Iterator[Any]:
    """The root of the layout `files`. `files`: those that listings show."""
    tree = open_tree(
        Config(source=str(path), mountpoint="/nowhere", layout="files", files=files or ("npy",), metadata_ttl=0)
    )
    try:
        yield tree.root
    finally:
        tree.close()


def frame(path: Path, name: str, **options: Any) -> pd.DataFrame:
    with files_of(path) as root:
        return pd.read_csv(io.BytesIO(read_file(root, name)), **options)


def lines(path: Path, name: str) -> list[str]:
    with files_of(path) as root:
        return read_file(root, name).decode().splitlines()
