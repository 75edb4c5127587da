"""The chunk of each sample of a Hangar repository (`model.Chunks`): a sample is an array of one chunk.

Not here: where its data is, and how it is read (`backends.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fsbridge.errors import FsbridgeError, NotFound, Stale, TooLarge, Unsupported
from fsbridge.formats.hangar.backends import Backends
from fsbridge.formats.hangar.records import RowRecord, Schema, TextRecord
from fsbridge.metadata import Index
from fsbridge.model import ChunkAbilities, ChunkInfo
from fsbridge.store import Stat

ONLY_REMOTE = "its data is only on the remote server; `hangar fetch-data` brings it here"


@dataclass(frozen=True, slots=True)
class SampleChunks(ChunkAbilities):
    """`model.Chunks` of a sample: its one chunk."""

    backends: Backends
    name: str
    record: RowRecord | TextRecord
    schema: Schema
    shape: tuple[int, ...]

    def find(self, index: Index) -> ChunkInfo:
        if index != (0,) * len(self.shape):
            raise NotFound(f"sample {self.name} has one chunk")
        stat = self._stat()
        return ChunkInfo((self.record, stat.version), 0, stat.mtime_ns, None, stat.settled)

    def _stat(self) -> Stat:
        try:
            return self.backends.stat(self.record)
        except FsbridgeError as error:
            raise error.at(f"sample {self.name}") from None

    def find_prefix(self, prefix: Index) -> int:
        if any(prefix):
            raise NotFound(f"sample {self.name} has one chunk")
        return self.touched_ns()

    def touched_ns(self) -> int:
        return self._stat().mtime_ns

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        if not any(prefix):
            yield [(0, self._stat().mtime_ns)]

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        self._unchanged(index, info)
        if not isinstance(self.record, RowRecord):
            raise Unsupported(f"sample {self.name} has no fixed size")
        try:
            self.backends.read_rows(self.record, self.schema, out)
        except FsbridgeError as error:
            raise error.at(f"sample {self.name}") from None
        self._unchanged(index, info)

    def read_all(self, index: Index, info: ChunkInfo, limit: int) -> bytes | bytearray:
        if isinstance(self.record, RowRecord):
            out = bytearray(self.size(index, info))
            self.read_into(index, info, memoryview(out))
            return out
        self._unchanged(index, info)
        try:
            value = self.backends.read_text(self.record)
        except FsbridgeError as error:
            raise error.at(f"sample {self.name}") from None
        if len(value) + 8 > limit:
            raise TooLarge(f"sample of {len(value)} bytes, the limit is {limit}")
        return b"".join([(1).to_bytes(4, "little"), len(value).to_bytes(4, "little"), value])

    def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes | None:
        """Return None: a part cannot be checked, because the digest is that of the whole sample."""
        return None

    def size(self, index: Index, info: ChunkInfo) -> int:
        if self.schema.dtype is not None:
            return math.prod(self.shape) * self.schema.dtype.itemsize
        return len(self.read_all(index, info, self.backends.limit))

    def count(self) -> int:
        return 1

    def _unchanged(self, index: Index, info: ChunkInfo) -> None:
        if self.find(index).version != info.version:
            raise Stale(f"sample {self.name}: {self.backends.path(self.record)} changed")


@dataclass(frozen=True, slots=True)
class RemoteChunks(ChunkAbilities):
    """`model.Chunks` of a sample that only the remote server has: its one chunk is listed, but reading it is Unsupported."""

    name: str
    mtime_ns: int
    shape: tuple[int, ...]

    def find(self, index: Index) -> ChunkInfo:
        if index != (0,) * len(self.shape):
            raise NotFound(f"sample {self.name} has one chunk")
        return ChunkInfo("remote", 0, self.mtime_ns)

    def find_prefix(self, prefix: Index) -> int:
        if any(prefix):
            raise NotFound(f"sample {self.name} has one chunk")
        return self.mtime_ns

    def scan(self, prefix: Index) -> Iterator[Sequence[tuple[int, int]]]:
        if not any(prefix):
            yield [(0, self.mtime_ns)]

    def read_into(self, index: Index, info: ChunkInfo, out: memoryview) -> None:
        raise self._unsupported()

    def read_all(self, index: Index, info: ChunkInfo, limit: int) -> bytes:
        raise self._unsupported()

    def read_range(self, index: Index, info: ChunkInfo, start: int, stop: int) -> bytes | None:
        return None

    def size(self, index: Index, info: ChunkInfo) -> int:
        raise self._unsupported()

    def count(self) -> int:
        """Raise Unsupported: 0 would mean that the sample is the fill value, and 1 that it can be read.

        `fsbridge info` shows the error as the reason.
        """
        raise self._unsupported()

    def _unsupported(self) -> Unsupported:
        return Unsupported(f"sample {self.name}: {ONLY_REMOTE}")
