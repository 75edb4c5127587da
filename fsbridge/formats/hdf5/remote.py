"""HDF5 files that are objects of a remote store. Every answer of the server must confirm the version that is read.

Chunk bytes are read by ranges. The child has neither network nor file, so it asks for blocks of the file while it
answers. Not here: which blocks are requested (`blocks.py`), how a child asks (`child/block_file.py`), requests
(`store/remote/`).
"""

from __future__ import annotations

import itertools
import posixpath
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from fsbridge.children.client import Supply
from fsbridge.errors import AccessDenied, CorruptData, NotFound, Stale, Unreachable, Unsupported
from fsbridge.formats.hdf5.blocks import BlockMemory, Blocks
from fsbridge.formats.shared import Shared
from fsbridge.store import ROOT, Key, Stat, Store
from fsbridge.store.remote.store import ObjectStore
from fsbridge.threads.deadlines import Deadline
from fsbridge.threads.parallel import each

PART_BYTES = 4 << 20
"""Bytes of one request for data."""
MOST_FILES = 4096
"""Most other files in one question of a child."""
AT_ONCE = 32
"""Most requests at a time, for data and for finding files."""


class RemoteFile:
    """The object `key` of a store. `folders`: URLs below which other files that it names may be read."""

    readable: Sequence[str] = ()
    is_remote = True

    def __init__(self, store: ObjectStore, key: Key, folders: Sequence[str] = (), memory: BlockMemory | None = None) -> None:
        self.memory = memory or BlockMemory()
        self.store = store
        self.key = key
        self.name = store.describe(key)
        self.folders = folders

    def look(self) -> Stat:
        return self.store.stat(self.key, (0, self.memory.limits.head))

    def open(self, seen: Stat) -> RemoteVersion:
        return RemoteVersion(self, seen)

    def sibling_path(self, name: str) -> str:
        if name.startswith("/"):
            return name  # a path on the machine that wrote it
        scheme, _, path = self.name.partition("://")
        return f"{scheme}://{posixpath.normpath(posixpath.join(posixpath.dirname(path), name))}"

    def is_within(self, name: str, folders: Sequence[str]) -> bool:
        return name.startswith(self._root) and any(name.startswith(folder.rstrip("/") + "/") for folder in folders)

    def permission(self, name: str) -> str:
        if name.startswith(self._root):
            return f"--allow-external {posixpath.dirname(name)} permits reading it"
        return f"only what lies below {self._root} is read from there"

    def other(self, name: str, folders: Sequence[str]) -> RemoteFile:
        return RemoteFile(self.store, Key.parse(name.removeprefix(self._root)), folders, self.memory)

    def stats(self, names: Sequence[str]) -> list[Stat | None]:
        if not all(self.is_within(name, self.folders) for name in names):
            raise CorruptData(f"{self.name}: the HDF5 process names files that it may not read")
        return each(lambda name: _stat_of(self.other(name, self.folders)), names, AT_ONCE)

    def open_named(self, name: str) -> RemoteFile:
        """Return the file that a dataset of this one calls `name`. Raises AccessDenied outside the allowed folders."""
        place = self.sibling_path(name)
        if not self.is_within(place, self.folders):
            raise AccessDenied(f"has data in another file, {place}: {self.permission(place)}")
        return self.other(place, self.folders)

    @property
    def _root(self) -> str:
        return self.store.describe(ROOT) + "/"


def _stat_of(file: RemoteFile) -> Stat | None:
    """Return the stat of the object that is there now, or None if there is none."""
    try:
        return file.look()
    except NotFound:
        return None


def remote_file(store: Store, key: Key, folders: Sequence[str], shared: Shared) -> RemoteFile:
    """Return the HDF5 file at `key` of a remote store. It may lead to other files, which must lie below `folders` (URLs)."""
    if not isinstance(store, ObjectStore):
        raise Unsupported(f"{store.describe(key)}: an HDF5 file inside of another store is not read; copy it")
    return RemoteFile(store, key, folders, shared.of(BlockMemory))


class RemoteVersion:
    """One version of the object. An answer of any other version is Stale."""

    identity: Hashable = "remote"

    def __init__(self, file: RemoteFile, stat: Stat) -> None:
        self.stat = stat
        self._file = file
        self._version = stat.version
        self._block = file.memory.limits.block
        self._size = stat.size
        self._gone = False
        self._others = _Others()
        self._blocks = Blocks(
            (file.name, stat.version), stat.size, self._fetch_blocks, self._find_kept, file.memory, file.store.read_ahead
        )
        self._blocks.begin()

    @property
    def opening(self) -> dict[str, Any]:
        return {"size": self._size, "block": self._block}

    @property
    def supply(self) -> Supply:
        return self._supply

    @property
    def unchanged(self) -> bool:
        return not self._gone

    def check(self) -> None:
        """Do nothing, because every answer was checked."""

    def read(self, address: int, size: int) -> bytes:
        if address + size > self._size:
            raise CorruptData(f"bytes {address} to {address + size} are not in a file of {self._size}: is it truncated?")
        return self._blocks.read_part(address, size) if size else b""

    def read_into(self, address: int, out: memoryview) -> None:
        out[:] = self.read(address, len(out))

    def fetch(self, address: int, size: int) -> None:
        for around in self._blocks.plan_ahead(address, size) if address + size <= self._size else ():
            self._file.store.fetch(self._file.key, (address, size), around)

    # ---- requests

    def _fetch(self, start: int, length: int, block: int = 0) -> bytes:
        """Return these bytes of this version, which must lie in it."""
        try:
            data, stat = self._file.store.read_range(self._file.key, start, length, block)
        except (NotFound, Stale):
            self._gone = True
            raise Stale(f"{self._file.name}: replaced or removed") from None
        except CorruptData:
            if self._file.store.stat(self._file.key, (0, self._file.memory.limits.head)).version != self._version:
                self._gone = True
                raise Stale(f"{self._file.name}: replaced") from None
            raise Unreachable(f"{self._file.name}: the server sent fewer bytes than it says the file has") from None
        if stat.version != self._version:
            self._gone = True
            raise Stale(f"{self._file.name}: replaced")
        return data

    def _fetch_blocks(self, start: int, length: int) -> bytes:
        """Return bytes as `_fetch` does, and store whole blocks in the block cache.

        The head is left out, because it is there already.
        """
        whole = start % self._block == 0 and (length % self._block == 0 or start + length == self._size)
        return self._fetch(start, length, self._block if whole and start else 0)

    def _find_kept(self, start: int, length: int) -> bytes | None:
        kept_bytes = self._file.store.kept(self._file.key, start, length)
        return kept_bytes[0] if kept_bytes is not None and kept_bytes[1].version == self._version else None

    # ---- what the child asks for

    def _supply(self, question: Mapping[str, Any], deadline: Deadline) -> tuple[dict[str, Any], Sequence[bytes]]:
        """Answer a child that wants blocks by number, a range of bytes or other files, or any of these of another file."""
        wanted = question["want"]
        if isinstance(wanted, dict) and "files" in wanted:
            try:
                files = [self._file.open_named(name) for name in _check_names(wanted["files"])]
            except AccessDenied as error:
                return {"denied": str(error)}, []
            return {"files": self._others.look(files), "block": self._block}, []
        if isinstance(wanted, dict) and "of" in wanted:
            return self._others.find_version(wanted.pop("of")).supply({"want": wanted}, deadline)
        if isinstance(wanted, dict) and "data" in wanted:
            numbers = _check_numbers(wanted["data"], self._size + 1, 2)
            start, length = numbers[0], numbers[-1]
            # Most bytes of data in one question.
            if len(numbers) != 2 or not 0 < length <= min(16 << 20, self._size - start):
                raise CorruptData("the HDF5 process asks for bytes beyond the end of the file, or for too many")
            return {}, _fetch_together(self._fetch, start, length, deadline)
        # At most 256 blocks in one question.
        numbers = _check_numbers(wanted.get("blocks") if isinstance(wanted, dict) else None, self._blocks.count, 256)
        blocks, requests = self._blocks.get(numbers, deadline)
        return {"blocks": [number for number, _ in blocks], "requests": requests}, [b"".join(data for _, data in blocks)]


class _Others:
    """Versions of other files that hold data of one file, by URL. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._versions: dict[str, tuple[int, RemoteVersion]] = {}
        self._numbers = itertools.count(1)

    def look(self, files: Sequence[RemoteFile]) -> list[tuple[str, int, int | None]]:
        """Return for each file its URL, a number for its current version, and its size; 0 and None if it is missing."""
        looks: list[tuple[str, int, int | None]] = []
        for file, stat in zip(files, each(_stat_of, files, AT_ONCE), strict=True):
            if stat is None:
                looks.append((file.name, 0, None))
                continue
            with self._lock:
                number, version = self._versions.get(file.name, (0, None))
                if version is None or version.stat.version != stat.version or not version.unchanged:
                    number = next(self._numbers)
                    self._versions[file.name] = number, file.open(stat)
            looks.append((file.name, number, stat.size))
        return looks

    def find_version(self, place: Any) -> RemoteVersion:
        """Return the version that was looked at last. Raises CorruptData for a file that was never asked about."""
        with self._lock:
            version = self._versions.get(place) if isinstance(place, str) else None
        if version is None:
            raise CorruptData("the HDF5 process asks for bytes of a file that it has not looked up")
        return version[1]


def _check_names(names: Any) -> list[str]:
    """Return names of files that a child sent, checked."""
    if not isinstance(names, list) or len(names) > MOST_FILES:
        raise CorruptData(f"the HDF5 process sent no list of at most {MOST_FILES} file names")
    # A name has at most 4096 bytes.
    if any(not isinstance(name, str) or not name or "\0" in name or len(name) > 4096 for name in names):
        raise CorruptData("the HDF5 process sent an impossible file name")
    return names


def _check_numbers(numbers: Any, end: int, most: int) -> list[int]:
    """Return 1 to `most` numbers below `end` that a child sent, checked, because the child parses hostile files."""
    if not isinstance(numbers, list) or not 0 < len(numbers) <= most:
        raise CorruptData(f"the HDF5 process sent no list of 1 to {most} numbers")
    if any(type(number) is not int or not 0 <= number < end for number in numbers):
        raise CorruptData("the HDF5 process asks for a part that the file does not have")
    return numbers


def _fetch_together(fetch: Callable[[int, int], bytes], start: int, length: int, deadline: Deadline) -> list[bytes]:
    """Return a range of bytes, read by several requests at a time."""
    spans = [(at, min(PART_BYTES, start + length - at)) for at in range(start, start + length, PART_BYTES)]
    return each(lambda span: fetch(*span), spans, AT_ONCE, deadline)
