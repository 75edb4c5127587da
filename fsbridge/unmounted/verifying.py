"""Decode every stored chunk of a source, and report what is damaged, unsupported or inconsistent.

Not here: arguments and printing (`commands/verify.py`), how a chunk is decoded.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TooDeep, TooLarge, Unsupported
from fsbridge.layouts.files.elements.chunk_bytes import decode_items
from fsbridge.metadata import ArrayMetadata, Index
from fsbridge.model import Array, Group, Link, as_array
from fsbridge.unmounted import reason
from fsbridge.unmounted.units import (
    UNIT_BYTES,
    UNIT_ITEMS,
    WHOLE,
    JobPart,
    OrderedMember,
    OtherUnit,
    Unit,
    Work,
    WorkSources,
    follow_link,
    members,
    other_units,
)

TRIES = 3
"""Most attempts to decode a chunk that keeps changing, before that is a finding."""

Kind: TypeAlias = Literal["damaged", "unsupported", "inconsistent", "skipped", "unreadable"]


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
    others: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True)
class ChunkBatch(Unit):
    """Stored chunks of the array at `path`."""

    indices: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Decoded:
    """The result for some chunks or other files: how many are intact, and what is wrong with the rest."""

    chunks: int = 0
    others: int = 0
    findings: tuple[Finding, ...] = ()


class Verification(Work["ChunkBatch | OtherUnit", Decoded]):
    """One pass over a source. `report` gets each finding, `missing`, if given, each grid cell without a stored chunk.

    Of several jobs each decodes its part of the chunks; the first looks at all else.
    """

    def __init__(
        self,
        sources: WorkSources,
        path: str,
        tell: Callable[[str, Exception], object],
        report: Callable[[Finding], object],
        missing: Callable[[str, Index], object] | None = None,
        part: JobPart = WHOLE,
    ) -> None:
        super().__init__(sources, tell, part)
        self.counts = Counts()
        self._path = path
        self._report = report
        self._missing = missing

    def units(self) -> Iterator[ChunkBatch | OtherUnit]:
        for member in members(self.sources.tree(), self._path, self._report_link):
            if member.error is not None:
                self._report(_finding(member.path, member.error))
            elif (array := as_array(cast("Group | Array", member.node))) is not None:
                self.counts.arrays += 1
                if array.metadata.attributes_error is not None and self.part.is_first:
                    self._report(_finding(member.path, array.metadata.attributes_error))
                yield from self._array(member.path, array)
                yield from self._other_files(member)
            else:
                self.counts.groups += 1
                group = cast(Group, member.node)
                self._look(member.path, "inconsistent", self._contradictions(group))
                self._look(member.path, "skipped", group.skipped())
                yield from self._other_files(member)

    def _other_files(self, member: OrderedMember) -> Iterator[OtherUnit]:
        try:
            yield from (unit for unit in other_units(0, member) if self.part.has_named(unit.path))
        except (FsbridgeError, OSError) as error:
            self._report(_finding(member.path, error))

    def _array(self, path: str, array: Array) -> Iterator[ChunkBatch]:
        if array.metadata.refused is not None:
            if self.part.is_first:
                self._report(Finding("unsupported", path, array.metadata.refused))
            return
        self._look(path, "inconsistent", array.chunks.strays())
        self._look(path, "skipped", self._unseen(array))
        stored: set[Index] | None = set() if self._missing is not None and self.part.is_first else None
        self.sources.keep(("array", 0, path), lambda: array, anew=True)
        size, indices, whole = 0, list[Index](), self.part.count == 1
        try:
            for index in _stored(array, ()):
                if stored is not None:
                    stored.add(index)
                if whole or self.part.has_named(f"{path} {index}"):
                    indices.append(index)
                    size += array.metadata.chunk_bytes(index) or UNIT_BYTES // UNIT_ITEMS
                if size >= UNIT_BYTES or len(indices) == UNIT_ITEMS:
                    yield ChunkBatch(path, size, tuple(indices))
                    size, indices = 0, []
        except (FsbridgeError, OSError) as error:
            self._report(_finding(path, error))
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
        group.native()
        yield from group.contradictions()

    def _unseen(self, array: Array) -> Iterator[str]:
        len(array.metadata.attributes)  # those of a remote array are read when they are asked for
        yield from array.skipped()

    def _look(self, path: str, kind: Kind, remarks: Iterator[str]) -> None:
        """Report what is wrong outside of the chunks. Only the first job does so."""
        try:
            for words in remarks if self.part.is_first else ():
                self._report(Finding(kind, path, words))
        except (FsbridgeError, OSError) as error:
            self._report(_finding(path, error))

    def _report_link(self, path: str, link: Link) -> None:
        """Report a link that leads nowhere, or to what cannot be opened. Only the first job does so."""
        try:
            if self.part.is_first:
                follow_link(self.sources.tree(), path, link)
        except (NotFound, TooDeep) as error:
            self._report(Finding("inconsistent", path, f"a link to {link.target}, which leads nowhere: {reason(error)}"))
        except (FsbridgeError, OSError) as error:
            self._report(_finding(path, error))

    @staticmethod
    def do(sources: WorkSources, unit: ChunkBatch | OtherUnit) -> Decoded:
        """Decode chunks, or read another file."""
        if isinstance(unit, OtherUnit):
            return _read_other(sources, unit)
        batch = _Batch(sources, unit)
        metadata = batch.array.metadata
        sizes = (metadata.chunk_bytes(index) for index in unit.indices)
        room = max((size for size in sizes if size is not None and size <= batch.tree.config.max_direct), default=0)
        if room and len(unit.indices) > 1:
            batch.decode_in(room)
        batch.decode()
        return Decoded(batch.decoded, 0, tuple(batch.findings))

    def join(self, unit: ChunkBatch | OtherUnit, result: Decoded) -> None:
        self.counts.chunks += result.chunks
        self.counts.others += result.others
        for finding in result.findings:
            self._report(finding)


def _finding(path: str, error: Exception, index: Index | None = None) -> Finding:
    kind: Kind = "unreadable"
    if isinstance(error, CorruptData):
        kind = "damaged"
    elif isinstance(error, Unsupported | TooLarge):
        kind = "unsupported"
    return Finding(kind, path, reason(error), None if index is None else list(index))


def _read_other(sources: WorkSources, unit: OtherUnit) -> Decoded:
    """Read a file that belongs to no array or group. One that has been removed since it was listed is not counted."""
    for attempt in range(1, TRIES + 1):
        try:
            for _ in unit.pieces(sources):
                pass
        except NotFound:
            break
        except (FsbridgeError, OSError) as error:
            if not isinstance(error, Stale) or attempt == TRIES:
                return Decoded(findings=(_finding(unit.path, error),))
        else:
            return Decoded(others=1)
    return Decoded()


class _Batch:
    """The chunks of a unit, decoded in memory that counts as the cache's."""

    def __init__(self, sources: WorkSources, unit: ChunkBatch) -> None:
        self.tree, self.array = sources.tree(), sources.array(0, unit.path)
        self.decoded = 0
        self.findings: list[Finding] = []
        self._sources = sources
        self._unit = unit
        self._left = list(unit.indices)

    def decode_in(self, room: int) -> None:
        """Decode the chunks that fit in `room` bytes, decoded and stored, one after the other in one buffer.

        One buffer costs less than one for each chunk. `decode` decodes the chunks that are left.
        """
        key, cache = object(), self.tree.cache
        try:
            cache.get(key, room, self._fill, room)
        finally:
            cache.discard(key)

    def _fill(self, buffer: memoryview) -> None:
        self._each(lambda index: self._decode_into(index, buffer))

    def decode(self) -> None:
        """Decode the chunks that are left."""
        self._each(self._decode_alone)

    def _each(self, decode: Callable[[Index], bool]) -> None:
        """Decode the present version of each chunk. One that has been removed since it was listed is not counted."""
        left, self._left = self._left, []
        for index in left:
            if self._sources.ended:
                return
            for attempt in range(1, TRIES + 1):
                try:
                    self.decoded += decode(index)
                except NotFound:
                    pass
                except (FsbridgeError, OSError) as error:
                    if isinstance(error, Stale) and attempt < TRIES:
                        continue
                    self.findings.append(_finding(self._unit.path, error, index))
                break

    def _decode_into(self, index: Index, buffer: memoryview) -> bool:
        """Decode a chunk into `buffer` and return True. If it does not fit, leave it for `decode` and return False."""
        size = self.array.metadata.chunk_bytes(index)
        if size is not None and size <= len(buffer):
            chunk = self.array.chunks.open(index)
            try:
                if chunk.info.stored <= len(buffer):
                    chunk.read_into(buffer[:size])
                    return True
            finally:
                chunk.close()
        self._left.append(index)
        return False

    def _decode_alone(self, index: Index) -> bool:
        cache, config, metadata, chunks = self.tree.cache, self.tree.config, self.array.metadata, self.array.chunks
        size, key = metadata.chunk_bytes(index), object()
        try:
            if size is None:
                info, limit = chunks.find(index), min(config.max_chunk, cache.budget // 2)
                view = cache.get_all(key, lambda: chunks.read_all(index, info, limit), info.stored + limit)
                _check_items(metadata, index, view)
                return True
            if size > config.max_direct:
                raise TooLarge(f"the chunk has {size} bytes; see --cache-size")
            chunk = chunks.open(index)
            try:
                cache.get(key, size, chunk.read_into, chunk.info.stored)
            finally:
                chunk.close()
            return True
        finally:
            cache.discard(key)


def _stored(array: Array, prefix: Index) -> Iterator[Index]:
    """Yield the positions of the stored chunks that begin with `prefix`."""
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
    """Raise CorruptData unless a chunk of texts or bytes has as many items as its shape says, each of them whole.

    Zarr's texts are UTF-8, and its readers refuse any other.
    """
    kind = metadata.dtype.serializer
    if kind in ("vlen-utf8", "vlen-bytes") and not metadata.varlength:
        try:
            "".join(
                item for item in decode_items(kind, view, metadata.grid.elements(index)) if isinstance(item, str)
            ).encode()
        except UnicodeEncodeError:
            raise CorruptData("a text in it is not UTF-8") from None
