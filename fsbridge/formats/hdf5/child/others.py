"""The other files of a store elsewhere that datasets of an opened file have data in: the daemon finds and reads them.

Part of the HDF5 child. Not here: what names them (`sources.py`), how elements in them are read (`elsewhere.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from fsbridge.formats.hdf5.child.blocks import Asker, BlockFile
from fsbridge.formats.hdf5.child.opened import OpenedFile, Refusal

MAX_OPEN = 4
"""Those that are open at a time: each keeps blocks."""

F = TypeVar("F", bound=OpenedFile)


class _Other(NamedTuple):
    """One of them; `serial` differs for each version of it, `blocks` None where there is none."""

    place: str
    serial: int
    blocks: BlockFile | None


class Others(Generic[F]):
    """Those of one opened file, by the names that it has for them."""

    def __init__(self, ask: Asker, own: BlockFile, opener: Callable[[str, BlockFile], F]) -> None:
        """`own`: the blocks of the file itself; `opener`: has HDF5 open the one at a place."""
        self._ask = ask
        self._own = own
        self._opener = opener
        self._known: dict[str, _Other] = {}  # by place
        self._looked: dict[str, _Other] = {}  # by name, as of this question
        self._opened: OrderedDict[_Other, F] = OrderedDict()

    def forget(self) -> None:
        """Another question begins: each file is looked at again."""
        self._looked.clear()

    def close(self) -> None:
        """Close all."""
        while self._opened:
            self._opened.popitem()[1].file.close()

    def look(self, names: Iterable[str]) -> None:
        """Find out about files, if the daemon lets all of them be read: as they are at this question."""
        unknown = [name for name in dict.fromkeys(names) if name not in self._looked and name != "."]
        if not unknown:
            return
        answer, _ = self._ask({"files": unknown}, 0)
        if "refused" in answer:
            self._own.refused = True
            raise OSError("a file cannot be read")
        if "denied" in answer:
            raise Refusal("denied", answer["denied"])
        for name, (place, serial, size) in zip(unknown, answer["files"], strict=True):
            known = self._known.get(place)
            if known is None or known.serial != serial or (known.blocks is not None and known.blocks.refused):
                blocks = None if size is None else BlockFile(self._asker_of(place), size, answer["block"])
                self._known[place] = known = _Other(place, serial, blocks)
            self._looked[name] = known

    def place(self, name: str) -> str:
        """Its URL."""
        return self._found(name).place

    def blocks(self, name: str) -> BlockFile | None:
        """What reads it; None where there is no such file."""
        return self._found(name).blocks

    def opened(self, name: str) -> F | None:
        """The file, opened by HDF5; None where there is no such file."""
        other = self._found(name)
        if other.blocks is None:
            return None
        found = self._opened.get(other)
        if found is None:
            found = self._opened[other] = self._opener(other.place, other.blocks)
            while len(self._opened) > MAX_OPEN:
                self._opened.popitem(last=False)[1].file.close()
        self._opened.move_to_end(other)
        return found

    def _found(self, name: str) -> _Other:
        self.look([name])
        return self._looked[name]

    def _asker_of(self, place: str) -> Asker:
        """Asks the daemon for blocks of another file."""
        return lambda wanted, limit: self._ask({**wanted, "of": place}, limit)
