"""Zip archives as zipfile writes them, and the contents of a store. Not here: damage."""

from __future__ import annotations

import zipfile
from pathlib import Path

from fsbridge.store import ROOT, Key
from fsbridge.store.zip import ZipStore

EXAMPLES = 200
LIMIT = 1 << 20

Content = dict[str, bytes]


def archive(path: Path, content: Content, method: int = zipfile.ZIP_STORED, level: int | None = None) -> Path:
    with zipfile.ZipFile(path, "w", method, compresslevel=level) as file:
        for name, data in content.items():
            file.writestr(name, data)
    return path


def tree(store: ZipStore, key: Key = ROOT) -> Content:
    """All files, by walking the listings."""
    found: Content = {}
    for entry, plain in zip(store.list(key, stats=True), store.list(key), strict=True):
        assert entry.name == plain.name
        assert entry.is_dir == plain.is_dir
        below = key / entry.name
        assert entry.stat is not None
        assert entry.stat.version == store.stat(below).version
        assert entry.stat.is_dir == entry.is_dir
        if entry.is_dir:
            found |= tree(store, below)
        else:
            data, stat = store.read(below, LIMIT)
            assert stat.version == entry.stat.version
            assert stat.size == len(data)
            found[str(below)] = data
    return found
