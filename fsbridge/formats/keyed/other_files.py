"""Other files: objects of a keyed store that belong to no array or group, such as a README or a Parquet file.

They are shown as the plain files that they are. The name decides, because a listing of a million chunks must not look at
each: hidden files, metadata documents of any keyed format and names of chunks are none. Not here: where they are listed
(`hierarchy.py` for groups, `chunkfiles.py` for arrays).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from fsbridge.errors import FsbridgeError, NotFound, Stale, is_lasting
from fsbridge.formats.small import read_object_range
from fsbridge.model import OtherFile
from fsbridge.store import BATCH_NAMES, Key, Stat, Store

_CHUNK = r"c|(?:c[.])?[0-9]+(?:[.][0-9]+)*"

is_chunk_name = re.compile(_CHUNK).fullmatch
"""Matches the last part of a chunk's key, whatever the grid."""

is_other_name = re.compile(rf"(?!(?:[.].*|zarr[.]json|attributes[.]json|{_CHUNK})\Z).+", re.DOTALL).fullmatch
"""Matches names of other files."""


@dataclass(frozen=True, slots=True)
class KeyedFile:
    """One version of an other file (`model.StoredFile`)."""

    store: Store
    key: Key
    stat: Stat

    @property
    def size(self) -> int:
        return self.stat.size

    @property
    def mtime_ns(self) -> int:
        return self.stat.mtime_ns

    @property
    def version(self) -> Hashable:
        return self.stat.version

    @property
    def is_remote(self) -> bool:
        return self.store.remote

    def settled(self) -> bool:
        """True if any further change will be noticed; Stale if the file has changed already."""
        try:
            now = self.store.stat(self.key)
        except NotFound:
            raise Stale(f"{self.store.describe(self.key)}: removed") from None
        if now.version != self.stat.version:
            raise Stale(f"{self.store.describe(self.key)}: replaced")
        return now.settled

    def read(self, start: int, length: int) -> bytes:
        return read_object_range(self.store, self.key, self.stat, start, length)

    def fetch(self, start: int, length: int) -> None:
        self.store.fetch(self.key, (start, length))


def other_file(store: Store, directory: Key, name: str) -> KeyedFile | None:
    """Return the other file `name` in a directory as it is now; None if there is none."""
    if not is_other_name(name):
        return None
    try:
        key = directory / name
        stat = store.stat(key)
    except NotFound:
        return None
    return KeyedFile(store, key, stat) if _is_file(store, stat) else None


def other_files(store: Store, directory: Key, names: Iterable[str]) -> Iterator[Sequence[OtherFile]]:
    """Yield the files among members with names of other files, in batches."""
    names = iter(names)
    while batch := list(islice(names, BATCH_NAMES)):
        yield [file for name in batch if (file := _list_file(store, directory, name)) is not None]


def _list_file(store: Store, directory: Key, name: str) -> OtherFile | None:
    try:
        stat = store.stat(directory / name)
    except NotFound:
        return None  # removed while it was listed, or a FIFO
    except (FsbridgeError, OSError) as error:
        if not is_lasting(error):
            raise
        return OtherFile(name, None, 0)  # opening it raises the error
    return None if stat.is_dir else OtherFile(name, stat.size, stat.mtime_ns)


def _is_file(store: Store, stat: Stat) -> bool:
    """True for a file. A web server makes pages for directories, and they have no date."""
    return not stat.is_dir and (store.listable or stat.mtime_ns != 0)
