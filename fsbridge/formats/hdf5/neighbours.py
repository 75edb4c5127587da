"""Datasets of a file far away that are read one after the other: what is stored of the next ones is sent ahead.

Who reads two datasets, of which one comes after the other in a walk by names, is expected to go on. Within a dataset the
kernel side reads ahead. Not here: how chunks are sent (`store/ahead.py`), which of them lie where (`chunks.py`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import partial

from fsbridge.formats.hdf5 import pages
from fsbridge.formats.hdf5.file import HDF5File
from fsbridge.formats.hdf5.pages import Path
from fsbridge.idle import IdleThreads

log = logging.getLogger(__name__)

FIRST_DATASETS, MOST_DATASETS = 4, 32
"""Datasets that are sent ahead of their reader: at first, and after some growth."""


class Neighbours:
    """Who reads which datasets of one file. `send(path)` has what is stored of a dataset sent, unless that is much."""

    def __init__(self, file: HDF5File, send: Callable[[Path], None]) -> None:
        self._file = file
        self._send = send
        self._last: Path | None = None
        self._coming: Iterator[Path] = iter(())
        self._sent: deque[Path] = deque()
        self._ahead = 0
        self._threads = IdleThreads(_reported, 1, "neighbours")

    def read(self, path: Path) -> None:
        """Somebody reads of the dataset at `path`. Does not wait."""
        last = self._last
        if path != last:
            self._last = path
            self._threads.submit(partial(self._moved, last, path))

    def _moved(self, last: Path | None, path: Path) -> None:
        if path in self._sent:
            while self._sent.popleft() != path:
                pass
            self._ahead = min(2 * self._ahead, MOST_DATASETS)
        elif last is not None and next(self._following(last), None) == path:
            self._coming, self._ahead = self._following(path), FIRST_DATASETS
            self._sent.clear()
        else:
            return
        while len(self._sent) < self._ahead and self._last == path:  # else he has gone on meanwhile
            following = next(self._coming, None)
            if following is None:
                return
            self._sent.append(following)
            self._send(following)

    def _following(self, path: Path) -> Iterator[Path]:
        """The datasets behind `path` in a walk by names."""
        seen = {pages.address(self._file, path[:depth]) for depth in range(len(path))}
        for depth in reversed(range(len(path))):
            yield from self._within(path[:depth], path[depth], seen)

    def _within(self, group: Path, after: str | None, seen: set[int]) -> Iterator[Path]:
        """The datasets in a group, and in the groups in it, each group once, because they may contain each other."""
        start: int | None = 0
        while start is not None:
            page = pages.page(self._file, group, start)
            for name, member in page.members.items():
                if after is not None:
                    after = None if name == after else after
                elif member.kind == "dataset":
                    yield (*group, name)
                elif member.kind == "group" and member.address is not None and member.address not in seen:
                    seen.add(member.address)
                    yield from self._within((*group, name), None, seen)
            start = page.following


_every: dict[HDF5File, Neighbours] = {}


def neighbours(file: HDF5File, send: Callable[[Path], None]) -> Neighbours:
    """Those of a file, the same until it is forgotten."""
    return _every.get(file) or _every.setdefault(file, Neighbours(file, send))


def forget(files: Collection[HDF5File]) -> None:
    """Drop what is remembered of files that are closed."""
    for file in files:
        _every.pop(file, None)


def _reported(error: Exception) -> None:
    log.error("sending ahead: %r", error)
