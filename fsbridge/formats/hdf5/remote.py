"""HDF5 files that are objects of a store elsewhere: one version of each, pinned by what every answer says of it.

Chunk bytes are read by ranges; the child, which has no network and no file, asks for blocks of the file while it answers.
Not here: which blocks are fetched (`blocks.py`), how a child asks (`child/blocks.py`), requests (`store/object.py`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fsbridge.children.client import Supply
from fsbridge.errors import CorruptData, NotFound, Stale, Unreachable, Unsupported
from fsbridge.formats.hdf5.blocks import BLOCK, HEAD, Blocks
from fsbridge.store import ROOT, Key, Stat, Store
from fsbridge.store.object import ObjectStore

MOST_BLOCKS = 256
"""Blocks that a child may ask for at once."""
MOST_BYTES = 16 << 20
"""Bytes that it may ask for at once, where it wants no blocks but data."""
PART_BYTES = 4 << 20
"""Bytes of one request for data."""


class RemoteFile:
    """The object `key` of a store."""

    readable: Sequence[str] = ()

    def __init__(self, store: ObjectStore, key: Key) -> None:
        self.store = store
        self.key = key
        self.name = store.describe(key)

    def look(self) -> Stat:
        return self.store.stat(self.key, (0, HEAD))

    def open(self, seen: Stat) -> RemoteVersion:
        return RemoteVersion(self, seen)

    def beside(self, name: str) -> str:
        if name.startswith("/"):
            return name  # a path of the machine that wrote it
        scheme, _, path = self.name.partition("://")
        return f"{scheme}://{posixpath.normpath(posixpath.join(posixpath.dirname(path), name))}"

    def is_within(self, name: str, folders: Sequence[str]) -> bool:
        return name.startswith(self._root) and any(name.startswith(folder.rstrip("/") + "/") for folder in folders)

    def permission(self, name: str) -> str:
        if name.startswith(self._root):
            return f"--allow-external {posixpath.dirname(name)} permits reading it"
        return f"only what lies below {self._root} is read from there"

    def is_there(self, name: str) -> bool:
        try:
            self.other(name).look()
        except NotFound:
            return False
        return True

    def other(self, name: str) -> RemoteFile:
        return RemoteFile(self.store, Key.parse(name.removeprefix(self._root)))

    @property
    def _root(self) -> str:
        return self.store.describe(ROOT) + "/"


def remote_file(store: Store, key: Key) -> RemoteFile:
    """The object `key` of a store elsewhere."""
    if not isinstance(store, ObjectStore):
        raise Unsupported(f"{store.describe(key)}: an HDF5 file inside of another store is not read; copy it")
    return RemoteFile(store, key)


class RemoteVersion:
    """One version of the object: every answer that is of another is Stale."""

    identity: Hashable = "remote"

    def __init__(self, file: RemoteFile, stat: Stat) -> None:
        self.stat = stat
        self._file = file
        self._version = stat.version
        self._size = stat.size
        self._gone = False
        self._blocks = Blocks((file.name, stat.version), stat.size, self._fetch_blocks, self._kept)
        self._blocks.begin()

    @property
    def opening(self) -> dict[str, Any]:
        return {"size": self._size, "block": BLOCK}

    @property
    def supply(self) -> Supply:
        return self._supply

    @property
    def unchanged(self) -> bool:
        return not self._gone

    def check(self) -> None:
        """Every answer was checked."""

    def read(self, address: int, size: int) -> bytes:
        if address + size > self._size:
            raise CorruptData(f"bytes {address} to {address + size} of a file of {self._size}: truncated?")
        return self._blocks.part(address, size) if size else b""

    def read_into(self, address: int, out: memoryview) -> None:
        out[:] = self.read(address, len(out))

    # ---- requests

    def _fetch(self, start: int, length: int, block: int = 0) -> bytes:
        """These bytes of this version, which lie in it."""
        try:
            data, found = self._file.store.read_range(self._file.key, start, length, block)
        except (NotFound, Stale):
            self._gone = True
            raise Stale(f"{self._file.name}: replaced or removed") from None
        except CorruptData:
            if self._file.store.stat(self._file.key, (0, HEAD)).version != self._version:
                self._gone = True
                raise Stale(f"{self._file.name}: replaced") from None
            raise Unreachable(f"{self._file.name}: the server lacks bytes of it that it says to have") from None
        if found.version != self._version:
            self._gone = True
            raise Stale(f"{self._file.name}: replaced")
        return data

    def _fetch_blocks(self, start: int, length: int) -> bytes:
        """As `_fetch`, what are whole blocks in the block cache, too; but for the head, which is kept as it comes first."""
        whole = start % BLOCK == 0 and (length % BLOCK == 0 or start + length == self._size)
        return self._fetch(start, length, BLOCK if whole and start else 0)

    def _kept(self, start: int, length: int) -> bytes | None:
        found = self._file.store.kept(self._file.key, start, length)
        return found[0] if found is not None and found[1].version == self._version else None

    # ---- what the child asks for

    def _supply(self, question: Mapping[str, Any], deadline: float) -> tuple[dict[str, Any], Sequence[bytes]]:
        """What a child asks for: blocks by their numbers, of which more than asked for may come, or a range of bytes."""
        wanted = question["want"]
        if isinstance(wanted, dict) and "data" in wanted:
            numbers = _numbers(wanted["data"], self._size + 1, 2)
            start, length = numbers[0], numbers[-1]
            if len(numbers) != 2 or not 0 < length <= min(MOST_BYTES, self._size - start):
                raise CorruptData("the HDF5 process wants bytes that there are not")
            return {}, _together(self._fetch, start, length)
        numbers = _numbers(wanted.get("blocks") if isinstance(wanted, dict) else None, self._blocks.count, MOST_BLOCKS)
        found, requests = self._blocks.get(numbers)
        return {"blocks": [number for number, _ in found], "requests": requests}, [b"".join(data for _, data in found)]


def _numbers(found: Any, end: int, most: int) -> list[int]:
    """A list of numbers below `end` that a child sent; the child parses hostile files, so nothing it says is believed."""
    if not isinstance(found, list) or not 0 < len(found) <= most:
        raise CorruptData("the HDF5 process asks for nonsense")
    if any(type(number) is not int or not 0 <= number < end for number in found):
        raise CorruptData("the HDF5 process asks for what is not in the file")
    return found


def _together(fetch: Callable[[int, int], bytes], start: int, length: int) -> list[bytes]:
    """A range of bytes by several requests at a time."""
    spans = [(at, min(PART_BYTES, start + length - at)) for at in range(start, start + length, PART_BYTES)]
    if len(spans) == 1:
        return [fetch(*spans[0])]
    with ThreadPoolExecutor(len(spans)) as pool:
        return list(pool.map(lambda span: fetch(*span), spans))
