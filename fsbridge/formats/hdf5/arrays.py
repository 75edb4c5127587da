"""HDF5 datasets as model arrays: one version of each, its metadata, and whether it is still the present one.

Not here: their chunks (`chunks.py`, `slabs.py`), groups (`source.py`), descriptors and processes (`file.py`).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from fsbridge.config import MIB
from fsbridge.errors import NotFound, Stale
from fsbridge.exact import Origin
from fsbridge.formats.hdf5 import pages
from fsbridge.formats.hdf5.answers import Dataset, dataset
from fsbridge.formats.hdf5.chunks import TableChunks
from fsbridge.formats.hdf5.exact import HDF5Exact, HDF5Origin, exact
from fsbridge.formats.hdf5.file import HDF5File
from fsbridge.formats.hdf5.metadata import array_metadata
from fsbridge.formats.hdf5.neighbours import neighbours
from fsbridge.formats.hdf5.slabs import SlabChunks
from fsbridge.formats.hdf5.types import numpy_type, shown
from fsbridge.formats.hdf5.versions import DataVersion, lasting
from fsbridge.formats.lazy_metadata import light
from fsbridge.metadata import ArrayMetadata, Index
from fsbridge.owner import Owner, Owners, restricted, searchable
from fsbridge.store import AtOnce, Stat, nowait

SENT_BYTES, SENT_CHUNKS = MIB, 64
"""What is sent of a dataset before anybody has read of it: of most that are read one after the other, all."""


class Version(NamedTuple):
    """One version of a dataset: the file's version, its path, and the versions of other files that hold its data."""

    file: Hashable
    path: tuple[str, ...]
    sources: tuple[Hashable, ...]


class HDF5Array:
    """One version of a dataset."""

    kind: ClassVar[Literal["array"]] = "array"

    def __init__(self, file: HDF5File, path: tuple[str, ...], found: Dataset, stat: Stat) -> None:
        self.file = file
        self.path = path
        self.stat = stat
        self.lasts = file.data.far or lasting(stat)
        self.dataset = replace(found, attributes={})
        others = file.data.stats(found.sources)
        self._version = Version(stat.version, path, _versions(others))
        self._others = [other.owner for other in others if other is not None]
        kind = shown(found.dtype, found.form)
        self.metadata = light(array_metadata(found, kind), len(repr(found.attributes)), self._described)
        self.chunks: TableChunks | SlabChunks = (
            TableChunks(self, kind) if found.layout == "chunked" and not found.null else SlabChunks(self, kind)
        )
        near = not file.data.far and not found.sources and found.form == "raw"
        self.at_once: AtOnce | None = nowait.at_once if near and isinstance(self.chunks, TableChunks) else None

    @property
    def version(self) -> Version:
        return self._version

    @property
    def mtime_ns(self) -> int:
        return self.stat.mtime_ns

    @property
    def fetch(self) -> Callable[[Index], object] | None:
        return self.chunks.fetch if self.file.data.far else None

    def came(self) -> None:
        """Somebody reads of it: of a file far away, what he reads next is sent."""
        if self.file.data.far:
            neighbours(self.file, partial(_send, self.file)).read(self.path)

    def _described(self) -> ArrayMetadata:
        answer, stat = pages.description(self.file, self.path)
        if stat.version != self._version.file:
            raise Stale(f"{self.place}: changed")
        found = dataset(answer)
        return array_metadata(found, shown(found.dtype, found.form))

    def exact(self) -> HDF5Exact:
        """The dataset just as HDF5 has it (`exact.Exact`)."""
        return exact(self.file, self.path)

    @property
    def stored_dtype(self) -> np.dtype[Any] | None:
        """How the file has elements that are shown in another byte order: compounds with numbers that are big-endian."""
        if self.chunks.shown.normaliser is None:
            return None
        described = self.dataset.dtype
        while described["class"] == "array":
            described = described["base"]
        return numpy_type(described)

    def owners(self) -> Owners:
        """The file's."""
        return Owners(searchable(self.stat.owner), self.stat.owner)

    @property
    def owner(self) -> Owner | None:
        """Whom the file, and every other file that holds the data, lets read."""
        return restricted(self.stat.owner, *self._others) if self._others else self.stat.owner

    def watch(self) -> Origin:
        """The file's, where all of the array is in it."""
        return self if self.dataset.sources else HDF5Origin(self.file, self._version.file)

    def current(self) -> bool:
        """Whether the file, and every other file that holds the data, is unchanged."""
        try:
            self.opened()
        except (Stale, NotFound):
            return False
        return True

    def opened(self) -> DataVersion:
        """The file of this version; Stale if it changed."""
        opened = self.file.version(self._version.file)
        if self.dataset.sources and _versions(self.file.data.stats(self.dataset.sources)) != self._version.sources:
            self.file.forget_child()
            raise Stale(f"{self.place}: a file that holds its data changed")
        self.stat = opened.stat  # which may have settled
        return opened

    @property
    def place(self) -> str:
        """File and path for messages."""
        return f"{self.file.path}:/{'/'.join(self.path)}"


_live: WeakValueDictionary[tuple[HDF5File, tuple[str, ...]], HDF5Array] = WeakValueDictionary()


def open_array(file: HDF5File, path: tuple[str, ...], answer: Mapping[str, Any], stat: Stat) -> HDF5Array:
    """The dataset that the child has described; the same object while somebody holds it and the file does not change."""
    found = _live.get((file, path))
    if found is None or not found.lasts or found.version.file != stat.version or answer.get("sources"):
        found = HDF5Array(file, path, dataset(answer), stat)
        _live[file, path] = found
    return found


def _send(file: HDF5File, path: tuple[str, ...]) -> None:
    """Have the first of what is stored of a dataset sent, where that is known without a question of its own."""
    answer, stat = pages.description(file, path)
    array = open_array(file, path, answer, stat)
    left, chunks = SENT_BYTES, array.chunks
    if isinstance(chunks, TableChunks) and array.dataset.table is None:
        return
    for index in itertools.islice(np.ndindex(array.metadata.grid.counts), SENT_CHUNKS):
        with contextlib.suppress(NotFound):
            place = chunks.stored_at(index)
            left -= 0 if place is None else place[1]
            if left < 0:
                return
            chunks.fetch(index)


def _versions(others: Sequence[Stat | None]) -> tuple[Hashable, ...]:
    """Versions of other files; None for one that is not there (HDF5 then reads the fill value)."""
    return tuple(None if other is None else other.version for other in others)
