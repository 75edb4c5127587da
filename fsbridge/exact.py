"""Descriptions of objects of HDF5 files in full detail, which the model lacks and a twin (a copy in HDF5) needs.

Not here: what is in the descriptions (`formats/hdf5/child/exact.py`), how twins are written (`layouts/files/h5`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from fsbridge.metadata import JSON


class ExactMember(NamedTuple):
    """A link of a group in an HDF5 file. `kind`: that of the object of a hard link, or soft, external, user-defined."""

    name: str
    kind: str
    target: str | tuple[str, str] | None
    described: Mapping[str, JSON]


class Origin(Protocol):
    """The version of the file, or of whatever else an object was made of. Equal origins give equal answers."""

    def current(self) -> bool:
        """True if the file, or what else the object was made of, still has this version (blocking)."""


class Exact(Protocol):
    """An object with all details that its HDF5 file has, including types that JSON cannot describe, for a twin in HDF5.

    Only the process that reads the file and the one that writes the twin understand it. `file`: which file the object is in;
    addresses are of that file. `nested`: groups above it in that file. `members`: all of a group's, as they come from the
    file (blocking; Stale, CorruptData, Unsupported, TooLarge).
    """

    @property
    def file(self) -> str: ...

    @property
    def nested(self) -> int: ...

    @property
    def described(self) -> Mapping[str, JSON]: ...

    @property
    def members(self) -> Iterator[ExactMember]: ...

    @property
    def origin(self) -> Origin: ...

    def items(self) -> bytes:
        """Return the elements of an array whose elements have no fixed size (blocking).

        Raises TooLarge, Unsupported, CorruptData.
        """
