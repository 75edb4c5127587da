"""One version of an HDF5 file as bytes, if these are all that any program needs to read what is in it.

Not here: what a program could need besides (`child/alone.py`), the file that a layout makes of the bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from fsbridge.errors import CorruptData, TooLarge, Unsupported
from fsbridge.formats.hdf5 import answers
from fsbridge.formats.hdf5.file import HDF5File
from fsbridge.formats.hdf5.versions import DataVersion, shows_later_changes
from fsbridge.store import Stat

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WholeFile:
    """One version of a file (`model.StoredFile`)."""

    file: HDF5File
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
        return self.file.data.is_remote

    def settled(self) -> bool:
        """Tell whether any later change of the file would show. Raises Stale if it has changed."""
        return self._find_version().stat.settled

    def read(self, start: int, length: int) -> bytes | memoryview:
        return self._find_version().read(start, length)

    def fetch(self, start: int, length: int) -> None:
        self._find_version().fetch(start, length)

    def _find_version(self) -> DataVersion:
        return self.file.version(self.stat.version)


class _Known(NamedTuple):
    """What a program needs besides the file to read all of the `version`; `needs`: None if it needs nothing."""

    version: Hashable
    needs: str | None


class _Knowledge:
    """The last answer of the child about what one file needs besides itself."""

    last: _Known | None = None


def whole_file(file: HDF5File) -> WholeFile | None:
    """Return the file as it is now.

    None if a program needs more than HDF5 and this file to read all that is in it. None also if that is unknown, because the
    file is damaged, or too large to find out in time. Raises AccessDenied, and errors that may pass in a moment.
    """
    stat, knowledge = file.current().stat, file.keep(_Knowledge, _Knowledge)
    known, seconds = knowledge.last, file.config.metadata_deadline
    if known is None or known.version != stat.version:
        # The child looks at objects for half of a look-up's deadline. A late answer leaves a fifth of it.
        question = {"op": "alone", "most_seconds": 0.5 * seconds}
        try:
            answer, _, stat = file.ask(question, seconds=0.8 * seconds)
            known = _Known(stat.version, answers.parse_optional_text(answer, "needs"))
        except (CorruptData, Unsupported, TooLarge) as error:
            log.info("%s is shown as an HDF5 file made anew: %s", file.path, error)
            return None
        if known.needs is not None:
            log.info("%s is shown as an HDF5 file made anew: %s", file.path, known.needs)
        if shows_later_changes(stat):
            knowledge.last = known
    return WholeFile(file, stat) if known.needs is None else None
