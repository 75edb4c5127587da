"""Objects of one version of an HDF5 file exactly as HDF5 stores them (`exact.Exact`).

Not here: their contents (`child/`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

from fsbridge import confinement
from fsbridge.errors import CorruptData, FsbridgeError
from fsbridge.formats.hdf5 import answers, pages
from fsbridge.formats.hdf5.file import HDF5File
from fsbridge.metadata import JSON, ExactMember
from fsbridge.parallel import Answer


@dataclass(frozen=True, slots=True)
class HDF5Origin:
    """One version of a file."""

    source: HDF5File
    version: Hashable

    def current(self) -> bool:
        """Tell whether the file still has that version."""
        try:
            return self.source.current().stat.version == self.version
        except FsbridgeError:
            return False


class _Page(NamedTuple):
    """Some members of a group, and the number of the next page's first member."""

    members: Sequence[ExactMember]
    following: int | None


@dataclass(frozen=True, slots=True)
class HDF5Exact:
    """An object of one version of a file."""

    origin: HDF5Origin
    path: tuple[str, ...]
    described: Mapping[str, JSON]
    first: _Page

    @property
    def members(self) -> Iterator[ExactMember]:
        """Yield the members. Each page is asked for while the one before is in use, because the child is idle meanwhile."""
        pages_of = self._pages()
        page = next(pages_of, None)
        while page is not None:
            coming = Answer(partial(next, pages_of, None), lambda work: confinement.start(work, "fsbridge-exact"))
            yield from page.members
            page = coming.get()

    def _pages(self) -> Iterator[_Page]:
        """Yield the pages. The ordinary listing of the same members is requested, too, because they will be opened next."""
        page, done, listing = self.first, 0, cast("int | None", 0)
        # If H5P_CRT_ORDER_TRACKED is set, members come in the order of creation, but the listing is in the order of
        # names.
        by_name = not cast(int, self.described.get("links", 0)) & 1
        while True:
            done += len(page.members)
            while listing is not None and (listing < done or not by_name):
                listing = pages.page(self.origin.source, self.path, listing).following
            yield page
            if page.following is None:
                return
            question = {"op": "exact", "path": list(self.path), "start": page.following}
            answer, _, _ = self.origin.source.ask(question, version=self.origin.version)
            page = _page(self.file, self.path, page.following, answer)

    @property
    def file(self) -> str:
        return self.origin.source.path

    @property
    def nested(self) -> int:
        return len(self.path)

    def items(self) -> bytes:
        """Return all elements, with their values, of a dataset whose stored elements only point at the values.

        They are encoded as in `children/elements.py`. Raises TooLarge, Unsupported or CorruptData.
        """
        question = {"op": "exact_items", "path": list(self.path)}
        # `child/exact.py` sends less than this many bytes.
        _, attachments, _ = self.origin.source.ask(question, version=self.origin.version, limit=100 << 20)
        if len(attachments) != 1:
            raise CorruptData(f"{self.file}: HDF5 process: no elements")
        return bytes(attachments[0])


def exact(file: HDF5File, path: tuple[str, ...]) -> HDF5Exact:
    """Return the object at `path` as the file is now, and a group's first members. Raises what `HDF5File.ask` does."""
    answer, _, stat = file.ask({"op": "exact", "path": list(path), "start": 0})
    described, first = answers.mapping(answer.get("object")), _page(file.path, path, 0, answer)
    return HDF5Exact(HDF5Origin(file, stat.version), path, described, first)


def _page(file: str, path: tuple[str, ...], start: int, answer: Mapping[str, JSON]) -> _Page:
    members, following = answers.exact_members(answer)
    return _Page(members, answers.later(file, path, start, following))
