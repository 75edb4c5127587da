"""Prefetch for datasets of a remote file that are read one after the other.

If a dataset is read that follows the last one in a walk by names, the walk is expected to continue. Within a
dataset the kernel side reads ahead. Not here: how chunks are prefetched (`store/remote/`), where they are (`chunks.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from fsbridge.formats.hdf5 import pages
from fsbridge.formats.hdf5.answers import HDF5Member
from fsbridge.formats.hdf5.file import HDF5File
from fsbridge.formats.hdf5.pages import Path
from fsbridge.workers import Workers

FIRST_DATASETS, MOST_DATASETS = 4, 32
"""Datasets that are prefetched: at first, and at most after some growth."""
MOST_PAGES = 32
"""Most pages of members that are searched for the next dataset at a time. Most files have one in each group, or none."""

_NONE_YET: Path = ()
"""Marks the end of a page in a walk, where no dataset was found yet."""


class NextDatasets:
    """Follows which datasets of one file are read. `send(path)` prefetches the beginning of a dataset."""

    def __init__(self, file: HDF5File, send: Callable[[Path], None]) -> None:
        self._file = file
        self._send = send
        self._last: Path | None = None
        self._coming: Iterator[Path] = iter(())
        self._sent: deque[Path] = deque()
        self._ahead = 0
        self._threads = Workers("next-datasets", 1)

    def read(self, path: Path) -> None:
        """Note that the dataset at `path` is being read. Does not wait."""
        last = self._last
        if path != last:
            self._last = path
            self._threads.submit(partial(self._moved, last, path))

    def _moved(self, last: Path | None, path: Path) -> None:
        if path in self._sent:
            while self._sent.popleft() != path:
                pass
            self._ahead = min(2 * self._ahead, MOST_DATASETS)
        elif last is not None and self._next(self._following(last), path) == path:
            self._coming, self._ahead = self._following(path), FIRST_DATASETS
            self._sent.clear()
        else:
            return
        while len(self._sent) < self._ahead and (following := self._next(self._coming, path)) is not None:
            self._sent.append(following)
            self._send(following)

    def _next(self, walk: Iterator[Path], path: Path) -> Path | None:
        """Return the next dataset of a walk, or None after too many pages or once another dataset than `path` is read."""
        pages_left = MOST_PAGES
        while pages_left and self._last == path:
            found = next(walk, None)
            if found != _NONE_YET:
                return found
            pages_left -= 1
        return None

    def _following(self, path: Path) -> Iterator[Path]:
        """Yield the datasets behind `path` in a walk by names, each group once, because groups may contain each other.

        `_NONE_YET` follows each page of members.
        """
        seen = {pages.address(self._file, path[:depth]) for depth in range(len(path))}
        ways = [self._members(path[:depth], path[depth]) for depth in range(len(path))]  # the innermost group is the last
        while ways:
            found = next(ways[-1], None)
            if found is None:
                ways.pop()
                continue
            place, member = found
            if member is None or member.kind == "dataset":
                yield place
            elif self._is_entered(place, member, seen):
                ways.append(self._members(place, None))

    def _members(self, group: Path, after: str | None) -> Iterator[tuple[Path, HDF5Member | None]]:
        """Yield members of a group with their paths, only those behind the name `after`.

        Yield `_NONE_YET` and None after each page.
        """
        start: int | None = 0
        while start is not None:
            page = pages.page(self._file, group, start)
            for name, member in page.members.items():
                if after is not None:
                    after = None if name == after else after
                else:
                    yield (*group, name), member
            start = page.following
            yield _NONE_YET, None

    def _is_entered(self, path: Path, member: HDF5Member, seen: set[int]) -> bool:
        """Tell whether a member is a group that the mount shows and that the walk has not visited."""
        if member.kind != "group" or member.address in seen or len(path) > self._file.config.limits.depth:
            return False
        if member.address is not None:
            seen.add(member.address)
        return member.address is not None


def next_datasets(file: HDF5File, send: Callable[[Path], None]) -> NextDatasets:
    """Return the `NextDatasets` of a file, the same object until `HDF5File.drop_kept`."""
    return file.kept(NextDatasets, lambda: NextDatasets(file, send))
