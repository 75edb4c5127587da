"""HDF5 datasets as model arrays, and what is sent of them ahead.

Not here: whether one is still the present version (`dataset.py`), chunks (`chunks.py`, `slabs.py`), groups (`source.py`).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal
from weakref import WeakValueDictionary

import numpy as np

from fsbridge.config import MIB
from fsbridge.errors import NotFound
from fsbridge.exact import Origin
from fsbridge.formats.hdf5 import pages
from fsbridge.formats.hdf5.answers import Dataset, dataset
from fsbridge.formats.hdf5.chunks import TableChunks
from fsbridge.formats.hdf5.dataset import DatasetVersion
from fsbridge.formats.hdf5.exact import HDF5Exact, HDF5Origin, exact
from fsbridge.formats.hdf5.file import HDF5File
from fsbridge.formats.hdf5.neighbours import neighbours
from fsbridge.formats.hdf5.slabs import SlabChunks
from fsbridge.formats.hdf5.types import numpy_type, shown
from fsbridge.metadata import Index
from fsbridge.owner import Owners, searchable
from fsbridge.store import AtOnce, Stat, nowait

SENT_BYTES, SENT_CHUNKS = MIB, 64
"""What is sent of a dataset before anybody has read of it: of most that are read one after the other, all."""


class HDF5Array(DatasetVersion):
    """One version of a dataset, with its chunks."""

    kind: ClassVar[Literal["array"]] = "array"

    def __init__(self, file: HDF5File, path: tuple[str, ...], found: Dataset, stat: Stat) -> None:
        kind = shown(found.dtype, found.form, found.fill)
        super().__init__(file, path, found, stat, kind)
        self.chunks: TableChunks | SlabChunks = (
            TableChunks(self, kind) if found.layout == "chunked" and not found.null else SlabChunks(self, kind)
        )
        near = not file.data.far and not found.sources and found.form == "raw"
        self.at_once: AtOnce | None = nowait.at_once if near and isinstance(self.chunks, TableChunks) else None

    @property
    def fetch(self) -> Callable[[Index], object] | None:
        return self.chunks.fetch if self.file.data.far else None

    def came(self) -> None:
        """Somebody reads of it: of a file far away, what he reads next is sent."""
        if self.file.data.far:
            neighbours(self.file, partial(_send, self.file)).read(self.path)

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

    def watch(self) -> Origin:
        """The file's, where all of the array is in it."""
        return self if self.dataset.sources else HDF5Origin(self.file, self.version.file)


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
