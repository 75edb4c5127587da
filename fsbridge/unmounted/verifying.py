"""Decode every stored chunk of a source, and report what is damaged, unsupported or inconsistent.

Not here: arguments and printing (`commands/verify.py`), how a chunk is decoded.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TooLarge, Unsupported
from fsbridge.layouts.files.elements.vlen import decode_items
from fsbridge.metadata import ArrayMetadata, Index
from fsbridge.model import Array, Group, as_array, open_chunk
from fsbridge.unmounted.members import members
from fsbridge.unmounted.units import UNIT_BYTES, UNIT_ITEMS, WHOLE, JobPart, Unit, Work, WorkSources
from fsbridge.unmounted.virtual import VirtualTree, reason

TRIES = 3
"""Most attempts to decode a chunk that keeps changing, before that is a finding."""

Kind: TypeAlias = Literal["damaged", "unsupported", "inconsistent", "unreadable"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with the member at `path`, or with one chunk of it."""

    kind: Kind
    path: str
    reason: str
    chunk: list[int] | None = None


@dataclass(slots=True)
class Counts:
    """How much has been checked."""

    groups: int = 0
    arrays: int = 0
    chunks: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True)
class ChunkBatch(Unit):
    """Stored chunks of the array at `path`."""

    indices: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Decoded:
    """The result for some chunks: how many are intact, and what is wrong with the others."""

    chunks: int
    findings: tuple[Finding, ...]


class Verification(Work[ChunkBatch, Decoded]):
    """One pass over a source. `found` gets each finding, `missing`, if given, each grid cell without a stored chunk.

    Of several jobs each decodes its part of the chunks; the first looks at all else.
    """

    def __init__(
        self,
        sources: WorkSources,
        path: str,
        tell: Callable[[str, Exception], object],
        found: Callable[[Finding], object],
        missing: Callable[[str, Index], object] | None = None,
        part: JobPart = WHOLE,
    ) -> None:
        super().__init__(sources, tell, part)
        self.counts = Counts()
        self._path = path
        self._found = found
        self._missing = missing

    def units(self) -> Iterator[ChunkBatch]:
        for member in members(self.sources.tree(), self._path):
            if member.error is not None:
                self._found(_finding(member.path, member.error))
            elif (array := as_array(cast("Group | Array", member.node))) is not None:
                self.counts.arrays += 1
                yield from self._array(member.path, array)
            else:
                self.counts.groups += 1
                self._look(member.path, self._contradictions(cast(Group, member.node)))

    def _array(self, path: str, array: Array) -> Iterator[ChunkBatch]:
        if array.metadata.refused is not None:
            if self.part.is_first:
                self._found(Finding("unsupported", path, array.metadata.refused))
            return
        self._look(path, array.chunks.strays())
        stored: set[Index] | None = set() if self._missing is not None and self.part.is_first else None
        self.sources.keep(("array", 0, path), lambda: array, anew=True)
        size, indices = 0, list[Index]()
        try:
            for index in _stored(array, ()):
                if stored is not None:
                    stored.add(index)
                if self.part.has_named(f"{path} {index}"):
                    indices.append(index)
                    size += array.metadata.chunk_bytes(index) or UNIT_BYTES // UNIT_ITEMS
                if size >= UNIT_BYTES or len(indices) == UNIT_ITEMS:
                    yield ChunkBatch(path, size, tuple(indices))
                    size, indices = 0, []
        except (FsbridgeError, OSError) as error:
            self._found(_finding(path, error))
            stored = None
        if indices:
            yield ChunkBatch(path, size, tuple(indices))
        if stored is not None and self._missing is not None:
            for index in itertools.product(*map(range, array.metadata.grid.counts)):
                if index not in stored:
                    self.counts.missing += 1
                    self._missing(path, index)

    def _contradictions(self, group: Group) -> Iterator[str]:
        group.attributes()
        yield from group.contradictions()

    def _look(self, path: str, inconsistent: Iterator[str]) -> None:
        """Report inconsistencies outside of the chunks. Only the first job does so."""
        try:
            for words in inconsistent if self.part.is_first else ():
                self._found(Finding("inconsistent", path, words))
        except (FsbridgeError, OSError) as error:
            self._found(_finding(path, error))

    @staticmethod
    def do(sources: WorkSources, unit: ChunkBatch) -> Decoded:
        """Decode chunks."""
        tree, array = sources.tree(), sources.array(0, unit.path)
        decoded, findings = 0, list[Finding]()
        for index in unit.indices:
            if sources.ended:
                break
            try:
                decoded += _decode_present(tree, array, index)
            except (FsbridgeError, OSError) as error:
                findings.append(_finding(unit.path, error, index))
        return Decoded(decoded, tuple(findings))

    def join(self, unit: ChunkBatch, result: Decoded) -> None:
        self.counts.chunks += result.chunks
        for finding in result.findings:
            self._found(finding)


def _finding(path: str, error: Exception, index: Index | None = None) -> Finding:
    kind: Kind = "unreadable"
    if isinstance(error, CorruptData):
        kind = "damaged"
    elif isinstance(error, Unsupported | TooLarge):
        kind = "unsupported"
    return Finding(kind, path, reason(error), None if index is None else list(index))


def _decode_present(tree: VirtualTree, array: Array, index: Index) -> bool:
    """Decode the present version of a chunk; False if it has been removed since it was listed."""
    for left in reversed(range(TRIES)):
        try:
            _decode(tree, array, index)
            break
        except NotFound:
            return False
        except Stale:
            if not left:
                raise
    return True


def _decode(tree: VirtualTree, array: Array, index: Index) -> None:
    """Decode a chunk in memory that counts as the cache's."""
    cache, metadata, chunks = tree.cache, array.metadata, array.chunks
    size, key = metadata.chunk_bytes(index), object()
    if size is not None:
        if size > tree.config.max_direct:
            raise TooLarge(f"a chunk of {size} bytes; see --cache-size")
        with_chunk = open_chunk(chunks, index)
        try:
            cache.get(key, size, with_chunk.read_into, with_chunk.info.stored)
        finally:
            with_chunk.close()
            cache.discard(key)
        return
    info, limit = chunks.find(index), min(tree.config.max_chunk, cache.budget // 2)
    try:
        _check_items(metadata, index, cache.get_all(key, lambda: chunks.read_all(index, info, limit), info.stored + limit))
    finally:
        cache.discard(key)


def _stored(array: Array, prefix: Index) -> Iterator[Index]:
    """The stored chunks with positions that begin with `prefix`."""
    rank = len(array.metadata.shape)
    if not rank:
        try:
            array.chunks.find(())
        except NotFound:
            return
        except (FsbridgeError, OSError):
            pass  # decoding it reports the error
        yield ()
        return
    for batch in array.chunks.scan(prefix):
        for coordinate, _ in batch:
            if len(prefix) + 1 == rank:
                yield (*prefix, coordinate)
            else:
                yield from _stored(array, (*prefix, coordinate))


def _check_items(metadata: ArrayMetadata, index: Index, view: memoryview) -> None:
    """Raise CorruptData unless a chunk of texts or bytes has as many items as its shape says, each of them whole."""
    kind = metadata.dtype.serializer
    if kind in ("vlen-utf8", "vlen-bytes") and not metadata.varlength:
        decode_items(kind, view, metadata.grid.elements(index))
