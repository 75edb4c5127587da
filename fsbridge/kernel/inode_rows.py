"""The rows of the inode table: number, parent, name, version and lookup count of each inode that the kernel knows.

Each ordinary inode has a row, and each space has one row for its whole range of numbers. For most inodes this row is the
only thing in memory. Not here: the nodes (`inodes.py`), how rows are kept (`columns.py`). Not thread-safe.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from typing import NamedTuple, TypeAlias

from fsbridge.kernel.columns import Columns
from fsbridge.tree import Kind

KINDS: tuple[Kind, ...] = ("directory", "file", "link")


class Rows(NamedTuple):
    """A page of rows, sorted by first number. A space's row has no name, and its version is the space's identity."""

    numbers: array[int]
    sizes: array[int]
    parents: array[int]
    counts: array[int]
    kinds: bytearray
    names: list[bytes | None]
    versions: list[Hashable]

    @classmethod
    def empty(cls) -> Rows:
        return cls(array("q"), array("q"), array("q"), array("q"), bytearray(), [], [])


class _Hashes(NamedTuple):
    """A page of first numbers by the hash of (parent, name), or of a space's identity."""

    hashes: array[int]
    numbers: array[int]

    @classmethod
    def empty(cls) -> _Hashes:
        return cls(array("q"), array("q"))


Row: TypeAlias = tuple[Rows, int]
"""A page and the place in it. Valid until a row is added or removed."""


class InodeRows:
    """The rows. `next`: the first number that was never given."""

    def __init__(self, next: int) -> None:
        self._rows: Columns[Rows] = Columns(Rows.empty)
        self._hashes: Columns[_Hashes] = Columns(_Hashes.empty)
        self.next = next

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, number: int) -> Row | None:
        """Return the row of the inode `number`, or of the space that has this number; None if there is none."""
        row = self._rows.last(number)
        if row is None:
            return None
        rows, at = row
        return row if number - rows.numbers[at] < rows.sizes[at] else None

    def member(self, parent: int, name: bytes) -> Row | None:
        """Return the latest row of the member `name` of a directory, or None."""
        for page, at in self._hashes.all(hash((parent, name))):
            row = rows, place = self._at(page.numbers[at])
            if rows.parents[place] == parent and rows.names[place] == name:
                return row
        return None

    def space(self, identity: Hashable) -> Row | None:
        """Return the row of the space with this identity, or None."""
        for page, at in self._hashes.all(hash(identity)):
            row = rows, place = self._at(page.numbers[at])
            if rows.names[place] is None and rows.versions[place] == identity:
                return row
        return None

    def add(self, parent: int, name: bytes | None, kind: Kind, version: Hashable, count: int, size: int = 1) -> Row:
        """Add a row with the next number. `name`: None for a space. First call `outdated` for another row of that name."""
        number, size = self.next, max(1, size)
        self.next += size
        row = self._rows.add(number, size, parent, count, KINDS.index(kind), name, version)
        try:
            self._hashes.add(hash(version) if name is None else hash((parent, name)), number)
        except BaseException:  # without a hash it could not be found
            self._rows.remove(*row)
            raise
        return row

    def outdated(self, row: Row) -> None:
        """Forget that the name leads to this row, because it leads to another inode from now on."""
        rows, at = row
        name = rows.names[at]
        key, number = hash(rows.versions[at]) if name is None else hash((rows.parents[at], name)), rows.numbers[at]
        for page, at in self._hashes.all(key):
            if page.numbers[at] == number:
                self._hashes.remove(page, at)
                return

    def remove(self, row: Row) -> None:
        """Remove a row, because the kernel has forgotten its number."""
        self.outdated(row)
        self._rows.remove(*row)

    def path(self, number: int) -> str:
        """Return a node's path inside the mount, for messages; parts that are no longer known are `?`.

        A node that has a number in a space instead of a name is shown as `...` in the directory that the space belongs to.
        """
        names: list[bytes] = []
        while (row := self.row(number)) is not None and row[0].parents[row[1]]:
            names.append(row[0].names[row[1]] or b"...")
            number = row[0].parents[row[1]]
        if row is None:
            if not names:
                return "?"
            names.append(b"?")
        return "/" + b"/".join(reversed(names)).decode("utf-8", "backslashreplace")

    def _at(self, number: int) -> Row:
        row = self._rows.last(number)
        assert row is not None
        return row
