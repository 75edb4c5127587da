"""Stores and the previews in them, as files of a tree. Not here: what must be seen in a preview."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import zarr
from PIL import Image
from tree_walker import read_file

from fsbridge.config import Config
from fsbridge.mount.lifecycle import Tree, open_tree


def tree_of(store: Path, **options: Any) -> Tree:
    return open_tree(Config(str(store), "/nowhere", layout="files", **options))


def content(tree: Tree, path: str) -> bytes:
    return read_file(tree.root, path)


def image(tree: Tree, path: str) -> Image.Image:
    found = Image.open(io.BytesIO(content(tree, path)))
    found.load()
    return found


def group(path: Path, **attributes: Any) -> zarr.Group:
    return zarr.open_group(path, mode="w", zarr_format=3, attributes=attributes)


def array(parent: zarr.Group, name: str, values: Any, chunks: tuple[int, ...], **options: Any) -> zarr.Array[Any]:
    made = parent.create_array(name, shape=values.shape, chunks=chunks, dtype=values.dtype, **options)
    made[...] = values
    return made
