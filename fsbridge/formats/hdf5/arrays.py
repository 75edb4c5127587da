"""HDF5 datasets as model arrays, and what is prefetched of them.

Not here: whether a version is current (`dataset.py`), chunks (`chunks.py`), groups (`source.py`).
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
from fsbridge.formats.hdf5 import pages
from fsbridge.formats.hdf5.answers import Dataset, dataset
from fsbridge.formats.hdf5.chunks import SlabChunks, TableChunks
from fsbridge.formats.hdf5.dataset import DatasetVersion
from fsbridge.formats.hdf5.exact import HDF5Exact, HDF5Origin, exact
from fsbridge.formats.hdf5.file import HDF5File
from fsbridge.formats.hdf5.next_datasets import next_datasets
from fsbridge.formats.hdf5.types import numpy_type, shown
from fsbridge.metadata import Index, Origin
from fsbridge.store import Stat

SENT_BYTES, SENT_CHUNKS = MIB, 64
"""Most bytes and chunks of a dataset that are prefetched before it is read. Datasets read in sequence are mostly smaller."""


class HDF5Array(DatasetVersion):
    """One version of a dataset, with its chunks."""

    kind: ClassVar[Literal["array"]] = "array"

    def __init__(self, file: HDF5File, path: tuple[str, ...], found: Dataset, stat: Stat) -> None:
        kind = shown(found.dtype, found.form, found.fill)
        super().__init__(file, path, found, stat, kind)
        self.chunks: TableChunks | SlabChunks = (
            TableChunks(self, kind) if found.layout == "chunked" and not found.null else SlabChunks(self, kind)
        )

    @property
    def fetch(self) -> Callable[[Index], object] | None:
        return self.chunks.fetch if self.file.data.is_remote else None

    def came(self) -> None:
        """Note that the dataset is being read: for a remote file the datasets that will be read next are prefetched."""
        if self.file.data.is_remote:
            next_datasets(self.file, partial(_send, self.file)).read(self.path)

    def exact(self) -> HDF5Exact:
        """Return the dataset exactly as HDF5 stores it (`exact.Exact`)."""
        return exact(self.file, self.path)

    @property
    def stored_dtype(self) -> np.dtype[Any] | None:
        """The stored dtype if elements are shown in another byte order (compounds with big-endian numbers), else None."""
        if self.chunks.shown.normaliser is None:
            return None
        described = self.dataset.dtype
        while described["class"] == "array":
            described = described["base"]
        return numpy_type(described)

    def watch(self) -> Origin:
        """Return the file's origin if all data is in this file, else the array itself, which checks the other files, too."""
        return self if self.dataset.sources else HDF5Origin(self.file, self.version.file)


_live: WeakValueDictionary[tuple[HDF5File, tuple[str, ...]], HDF5Array] = WeakValueDictionary()


def open_array(file: HDF5File, path: tuple[str, ...], answer: Mapping[str, Any], stat: Stat) -> HDF5Array:
    """Return the dataset that the child described: the same object while it is in use and the file does not change."""
    found = _live.get((file, path))
    if found is None or not found.lasts or found.version.file != stat.version or answer.get("sources"):
        found = HDF5Array(file, path, dataset(answer), stat)
        _live[file, path] = found
    return found


def _send(file: HDF5File, path: tuple[str, ...]) -> None:
    """Prefetch the first stored bytes of a dataset, if their place is known without another question."""
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
