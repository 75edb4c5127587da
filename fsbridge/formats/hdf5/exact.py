"""Objects of one version of an HDF5 file just as HDF5 has them (`exact.Exact`). Not here: what that is (`child/`)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsbridge.errors import CorruptData, FsbridgeError
from fsbridge.exact import ExactMember
from fsbridge.formats.hdf5 import answers
from fsbridge.formats.hdf5.file import HDF5File
from fsbridge.metadata import JSON

ITEMS_LIMIT_BYTES = 100 << 20
"""Bytes of elements in one answer: `child/exact.py` gives less."""


@dataclass(frozen=True, slots=True)
class HDF5Origin:
    """One version of a file."""

    source: HDF5File
    version: Hashable

    def current(self) -> bool:
        """Whether the file is still of that version."""
        try:
            return self.source.current().stat.version == self.version
        except FsbridgeError:
            return False


@dataclass(frozen=True, slots=True)
class HDF5Exact:
    """An object of one version of a file."""

    origin: HDF5Origin
    path: tuple[str, ...]
    described: Mapping[str, JSON]
    members: Sequence[ExactMember] = ()

    @property
    def file(self) -> str:
        return self.origin.source.path

    @property
    def nested(self) -> int:
        return len(self.path)

    def items(self) -> bytes:
        """Elements that only point at their values; TooLarge, Unsupported, CorruptData."""
        question = {"op": "exact_items", "path": list(self.path)}
        _, attachments, _ = self.origin.source.ask(question, version=self.origin.version, limit=ITEMS_LIMIT_BYTES)
        if len(attachments) != 1:
            raise CorruptData(f"{self.file}: HDF5 process: no elements")
        return bytes(attachments[0])


def exact(file: HDF5File, path: tuple[str, ...]) -> HDF5Exact:
    """The object at `path` with its members, as the file is now. Raises what `HDF5File.ask` does."""
    version: Hashable = None
    described: Mapping[str, Any] = {}
    members: list[ExactMember] = []
    start: int | None = 0
    while start is not None:
        answer, _, stat = file.ask({"op": "exact", "path": list(path), "start": start}, version=version)
        if version is None:
            version, described = stat.version, answers.mapping(answer.get("object"))
        found, following = answers.exact_members(answer)
        members += found
        start = answers.later(file.path, path, start, following)
    return HDF5Exact(HDF5Origin(file, version), path, described, members)
