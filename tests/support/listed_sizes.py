"""Listings of whole-array files, and whether each size listed is the size read. Not here: what the tests demand of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

from fsbridge.asking import from_now
from fsbridge.config import Config
from fsbridge.layouts.files.filetypes import ALIASES, SUFFIXES
from fsbridge.mount.lifecycle import Tree, open_tree
from fsbridge.tree import Entry


def listed(root: Path) -> dict[bytes, Entry]:
    tree = open_tree(Config(source=str(root), mountpoint="/nowhere", layout="files", files=("npy",), metadata_ttl=0))
    try:
        return {entry.name: entry for batch in tree.root.entries() for entry in batch if entry.name != b"store.json"}
    finally:
        tree.close()


ALL_FORMATS = tuple(suffix for suffix in SUFFIXES if suffix != "json" and suffix not in ALIASES)


def dataset(path: Path, kind: str, shape: list[int], attributes: dict[str, Any] | None = None) -> Path:
    """An N5 array without blocks, dated to the year 2001."""
    path.mkdir(parents=True)
    form = {"dimensions": shape, "blockSize": [4] * len(shape), "dataType": kind, "compression": {"type": "raw"}}
    (path / "attributes.json").write_text(json.dumps({**form, **(attributes or {})}))
    return dated(path)


def dated(path: Path) -> Path:
    for member in (*path.rglob("*"), path):
        os.utime(member, (10**9, 10**9))
    return path


def all_entries(tree: Tree) -> dict[bytes, Entry]:
    """List the root as the kernel side does, without the root's own document."""
    batches = list(tree.root.refresh().entries())
    return {entry.name: entry for batch in batches for entry in batch if entry.name != b"store.json"}


def check_sizes(root: Path, formats: tuple[str, ...]) -> dict[bytes, Entry]:
    """List a store of arrays, check that each file has the size, time and version that the listing says; return it."""
    tree = open_tree(Config(source=str(root), mountpoint="/nowhere", layout="files", files=formats))
    try:
        listed = all_entries(tree)
        with from_now():  # as in a request: a look-up lists the group again otherwise
            for name, entry in listed.items():
                if entry.attrs.size is not None and entry.attrs.kind == "file" and callable(entry.node):
                    for node in (cast(Any, entry.node()), cast(Any, tree.root.lookup(name))):
                        assert (node.version, node.attrs()) == (entry.version, entry.attrs), name
                    if name.endswith(b".json"):
                        assert len(node.open().content) == entry.attrs.size, name
                    assert node.measure().size == entry.attrs.size, name
    finally:
        tree.close()
    return listed
