"""Stores and the previews in them, as files of a tree. Not here: what must be seen in a preview."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import zarr
from PIL import Image

from fsbridge.config import Config
from fsbridge.mount.lifecycle import Tree, open_tree
from fsbridge.tree import Directory, File


def tree_of(store: Path, **options: Any) -> Tree:
    return open_tree(Config(str(store), "/nowhere", layout="files", **options))


def node(tree: Tree, path: str) -> File:
    found: Any = tree.root
    for name in path.split("/"):
        found = cast(Directory, found).lookup(name.encode())
    return cast(File, found)


def content(tree: Tree, path: str) -> bytes:
    """All bytes of a file; its size is told before any of them is read (P2)."""
    file = node(tree, path)
    size, handle = file.measure().size, file.open()
    try:
        assert size == handle.size
        found = bytes(handle.read(0, handle.size))
        assert len(found) == size
        return found
    finally:
        handle.close()


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
