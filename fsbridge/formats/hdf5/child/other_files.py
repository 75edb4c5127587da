"""The other files of a remote store that hold data of an opened file's datasets. The daemon finds and reads them.

Also the names of such files, and patterns among them. Part of the HDF5 child. Not here: which datasets name them
(`sources.py`), how elements in them are read (`remote_data.py`).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from fsbridge.formats.hdf5.child.block_file import Asker, BlockFile
from fsbridge.formats.hdf5.child.opened import OpenedFile, Refusal

F = TypeVar("F", bound=OpenedFile)


class _Other(NamedTuple):
    """One other file. `serial` differs for each of its versions; `blocks` is None if there is no such file."""

    place: str
    serial: int
    blocks: BlockFile | None


class Others(Generic[F]):
    """The other files of one opened file, by the names that it has for them."""

    def __init__(self, ask: Asker, own: BlockFile, opener: Callable[[str, BlockFile], F]) -> None:
        """`own`: the blocks of the file itself. `opener` lets HDF5 open a file, given its URL and its blocks."""
        self._ask = ask
        self._own = own
        self._opener = opener
        self._known: dict[str, _Other] = {}  # by place
        self._looked: dict[str, _Other] = {}  # by name, during one question
        self._opened: OrderedDict[_Other, F] = OrderedDict()

    def forget(self) -> None:
        """Begin another question: each file is looked up again."""
        self._looked.clear()

    def close(self) -> None:
        """Close all files."""
        while self._opened:
            self._opened.popitem()[1].file.close()

    def look(self, names: Iterable[str]) -> None:
        """Look up files for the present question. Raises Refusal (denied), or OSError if one cannot be read."""
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
        """Return the URL of a file."""
        return self._found(name).place

    def blocks(self, name: str) -> BlockFile | None:
        """Return what reads a file, or None if there is no such file."""
        return self._found(name).blocks

    def opened(self, name: str) -> F | None:
        """Return a file opened by HDF5, or None if there is no such file."""
        other = self._found(name)
        if other.blocks is None:
            return None
        found = self._opened.get(other)
        if found is None:
            found = self._opened[other] = self._opener(other.place, other.blocks)
            # At most four are open at a time, because each keeps blocks.
            while len(self._opened) > 4:
                self._opened.popitem(last=False)[1].file.close()
        self._opened.move_to_end(other)
        return found

    def _found(self, name: str) -> _Other:
        self.look([name])
        return self._looked[name]

    def _asker_of(self, place: str) -> Asker:
        """Return what asks the daemon for blocks of another file."""
        return lambda wanted, limit: self._ask({**wanted, "of": place}, limit)


BLOCK = re.compile(r"%[%b]")
"""In names of virtual datasets `%b` is the number of a block and `%%` one percent sign (H5Dvirtual.c)."""


def literal(name: str) -> str:
    return name.replace("%%", "%")


def expression(name: str) -> re.Pattern[str]:
    """Return what fits a pattern: the same decimal number wherever `%b` stands."""
    out, position, seen = "", 0, False
    for match in BLOCK.finditer(name):
        out += re.escape(name[position : match.start()])
        out += "%" if match[0] == "%%" else "(?P=block)" if seen else "(?P<block>[0-9]+)"
        seen |= match[0] == "%b"
        position = match.end()
    return re.compile(out + re.escape(name[position:]))


def check_absent(place: str, error: OSError) -> None:
    """Raise a Refusal unless `error` means that nothing is there. HDF5 reads the fill value for whatever it cannot open."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        kind = "denied" if isinstance(error, PermissionError) else "unreachable"
        raise Refusal(kind, f"has data in another file, {place}: {error.strerror}")
