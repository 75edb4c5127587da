"""One version of an HDF5 dataset: where it is, what HDF5 says of it, and whether it is still the present one.

Not here: the dataset as a model array (`arrays.py`), its chunks (`chunks.py`, `slabs.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

from fsbridge.errors import NotFound, Stale
from fsbridge.formats.hdf5 import pages
from fsbridge.formats.hdf5.answers import Dataset, dataset
from fsbridge.formats.hdf5.file import HDF5File
from fsbridge.formats.hdf5.metadata import array_metadata
from fsbridge.formats.hdf5.types import Shown, shown
from fsbridge.formats.hdf5.versions import DataVersion, lasting
from fsbridge.formats.lazy_metadata import light
from fsbridge.metadata import ArrayMetadata
from fsbridge.owner import Owner, restricted
from fsbridge.store import Stat


class Version(NamedTuple):
    """One version of a dataset: the file's version, its path, and the versions of other files that hold its data."""

    file: Hashable
    path: tuple[str, ...]
    sources: tuple[Hashable, ...]


class DatasetVersion(ABC):
    """One version of a dataset."""

    def __init__(self, file: HDF5File, path: tuple[str, ...], found: Dataset, stat: Stat, kind: Shown) -> None:
        """`found`: what the child says of it; `kind`: how its elements are shown."""
        self.file = file
        self.path = path
        self.stat = stat
        self.lasts = file.data.far or lasting(stat)
        self.dataset = replace(found, attributes={})
        others = file.data.stats(found.sources)
        self.version = Version(stat.version, path, _versions(others))
        self._others = [other.owner for other in others if other is not None]
        self.metadata = light(array_metadata(found, kind), len(repr(found.attributes)), self._described)

    @property
    def mtime_ns(self) -> int:
        return self.stat.mtime_ns

    @property
    def owner(self) -> Owner | None:
        """Whom the file, and every other file that holds the data, lets read."""
        return restricted(self.stat.owner, *self._others) if self._others else self.stat.owner

    @abstractmethod
    def came(self) -> None:
        """Somebody reads of it."""

    def current(self) -> bool:
        """Whether the file, and every other file that holds the data, is unchanged."""
        try:
            self.opened()
        except (Stale, NotFound):
            return False
        return True

    def opened(self) -> DataVersion:
        """The file of this version; Stale if it changed."""
        opened = self.file.version(self.version.file)
        if self.dataset.sources and _versions(self.file.data.stats(self.dataset.sources)) != self.version.sources:
            self.file.forget_child()
            raise Stale(f"{self.place}: a file that holds its data changed")
        self.stat = opened.stat  # which may have settled
        return opened

    @property
    def place(self) -> str:
        """File and path for messages."""
        return f"{self.file.path}:/{'/'.join(self.path)}"

    def _described(self) -> ArrayMetadata:
        answer, stat = pages.description(self.file, self.path)
        if stat.version != self.version.file:
            raise Stale(f"{self.place}: changed")
        found = dataset(answer)
        return array_metadata(found, shown(found.dtype, found.form, found.fill))


def _versions(others: Sequence[Stat | None]) -> tuple[Hashable, ...]:
    """Versions of other files; None for one that is not there (HDF5 then reads the fill value)."""
    return tuple(None if other is None else other.version for other in others)
