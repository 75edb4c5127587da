"""Virtual chunks: bytes in files beside the repository, in directories that the user allows. Not here: who refers to them.

A reference may tell when its file had last changed: then bytes of a file that changed later are an error, as in icechunk.
"""

from __future__ import annotations

import os
import threading
import urllib.parse
from collections.abc import Sequence

from fsbridge.errors import AccessDenied, CorruptData, NotFound, Unsupported
from fsbridge.formats.icechunk.manifests import Virtual
from fsbridge.store import Key, Stat
from fsbridge.store.local import LocalStore

SCHEME = "file://"


class VirtualFiles:
    """The files beneath the directories `allowed`. Thread-safe."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = [os.path.abspath(path) for path in allowed]
        self._lock = threading.Lock()
        self._stores: dict[str, LocalStore] = {}

    def close(self) -> None:
        """Let go of the directories."""
        with self._lock:
            while self._stores:
                self._stores.popitem()[1].close()

    def stat(self, reference: Virtual) -> Stat:
        """The file as it is now; CorruptData when it is missing, or not the one that was referred to."""
        store, key = self._find(reference.location)
        try:
            return self._checked(reference, store.stat(key, (0, None)))
        except NotFound as error:
            raise CorruptData(f"{error}, where a virtual chunk should be") from None

    def read(self, reference: Virtual, start: int, length: int) -> tuple[bytes, Stat]:
        """Bytes of the file and its stat as they were read; errors as of `stat`, CorruptData when it is too short."""
        store, key = self._find(reference.location)
        try:
            data, stat = store.read_range(key, start, length)
        except NotFound as error:
            raise CorruptData(f"{error}, where a virtual chunk should be") from None
        return data, self._checked(reference, stat)

    def _find(self, location: str) -> tuple[LocalStore, Key]:
        if not location.lower().startswith(SCHEME):
            scheme = location.partition(":")[0] if "://" in location else ""
            raise Unsupported(
                f"a virtual chunk in {f'a store of kind {scheme}' if scheme else 'an unnamed file'}: only files are read"
            )
        path = urllib.parse.unquote("/" + location[len(SCHEME) :].partition("/")[2])
        for folder in self._allowed:
            inside = path.removeprefix(folder.rstrip("/") + "/")
            if inside != path:
                return self._store(folder), Key.parse(inside)
        folder = os.path.dirname(path)
        raise AccessDenied(f"a virtual chunk lies in {path}; to read it, mount with --allow-external {folder}")

    def _store(self, folder: str) -> LocalStore:
        with self._lock:
            if folder not in self._stores:
                self._stores[folder] = LocalStore(folder)
            return self._stores[folder]

    def _checked(self, reference: Virtual, stat: Stat) -> Stat:
        if reference.etag is not None:
            raise Unsupported(f"a virtual chunk in {reference.location} is checked by an ETag, which files have not")
        if reference.modified and stat.mtime_ns // 10**9 > reference.modified:
            raise CorruptData(f"{reference.location} was changed after the repository had referred to a chunk in it")
        return stat
