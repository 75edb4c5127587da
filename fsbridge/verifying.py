"""Every stored chunk of a source decoded, and everything found that is damaged, unsupported or inconsistent.

Not here: arguments and printing (`commands/verify.py`), how a chunk is decoded.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from queue import Queue
from typing import Literal, TypeAlias, cast

from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TooLarge, Unsupported
from fsbridge.layouts.files.elements.vlen import decode_items
from fsbridge.metadata import ArrayMetadata, Index
from fsbridge.model import Array, Group, as_array, open_chunk
from fsbridge.ordered import members
from fsbridge.virtual import VirtualTree, reason

WAITING = 256
"""Chunks that wait for a thread."""

TRIES = 3
"""Versions of a chunk that is being changed which are tried before that is a finding."""

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
    """What has been looked at."""

    groups: int = 0
    arrays: int = 0
    chunks: int = 0
    missing: int = 0


class Verification:
    """One pass over a source. `tell` gets each finding, `missing` each cell without a stored chunk if it is given."""

    def __init__(
        self,
        tree: VirtualTree,
        path: str,
        threads: int,
        tell: Callable[[Finding], None],
        missing: Callable[[str, Index], None] | None = None,
        part: tuple[int, int] = (0, 1),
        progress: Callable[[str, int], None] = lambda path, count: None,
    ) -> None:
        """`part`: only every how many-th chunk is decoded; only the first part looks at anything else."""
        self.counts = Counts()
        self._tree = tree
        self._path = path
        self._threads = threads
        self._tell = tell
        self._missing = missing
        self._part = part
        self._progress = progress
        self._lock = threading.Lock()
        self._number = 0
        self._ended: BaseException | None = None  # nobody reads the findings any more, say
        self._work: Queue[Callable[[], None] | None] = Queue(WAITING)

    def run(self) -> None:
        """Look at everything; findings come in no order."""
        workers = [threading.Thread(target=self._take, name="fsbridge-verify", daemon=True) for _ in range(self._threads)]
        for worker in workers:
            worker.start()
        try:
            self._members()
        except BaseException as error:
            self._ended = error
            raise
        finally:
            for _ in workers:
                self._work.put(None)
            for worker in workers:
                worker.join()
        if self._ended is not None:
            raise self._ended

    def _members(self) -> None:
        for member in members(self._tree, self._path):
            if self._ended is not None:
                return
            if member.error is not None:
                self._find(member.path, member.error)
            elif (array := as_array(cast("Group | Array", member.node))) is not None:
                self.counts.arrays += 1
                self._array(member.path, array)
            else:
                self.counts.groups += 1
                self._group(member.path, cast(Group, member.node))

    def _group(self, path: str, group: Group) -> None:
        if self._part[0]:
            return
        try:
            group.attributes()
            for words in group.contradictions():
                self._say(Finding("inconsistent", path, words))
        except (FsbridgeError, OSError) as error:
            self._find(path, error)

    def _array(self, path: str, array: Array) -> None:
        first = not self._part[0]
        if array.metadata.refused is not None:
            if first:
                self._say(Finding("unsupported", path, array.metadata.refused))
            return
        if first:
            try:
                for words in array.chunks.strays():
                    self._say(Finding("inconsistent", path, words))
            except (FsbridgeError, OSError) as error:
                self._find(path, error)
        stored: set[Index] | None = set() if self._missing is not None and first else None
        try:
            for index in _stored(array, ()):
                if self._ended is not None:
                    return
                if stored is not None:
                    stored.add(index)
                self._number += 1
                if (self._number - 1) % self._part[1] == self._part[0]:
                    self._work.put(partial(self._chunk, path, array, index))
        except (FsbridgeError, OSError) as error:
            self._find(path, error)
            return
        if stored is not None and self._missing is not None:
            for index in itertools.product(*map(range, array.metadata.grid.counts)):
                if index not in stored:
                    self.counts.missing += 1
                    self._missing(path, index)

    def _chunk(self, path: str, array: Array, index: Index) -> None:
        for left in reversed(range(TRIES)):
            try:
                size = self._decode(array, index)
            except NotFound:  # removed since it was listed
                return
            except Stale as error:
                if not left:
                    self._find(path, error, index)
            except (FsbridgeError, OSError) as error:
                self._find(path, error, index)
                break
            else:
                with self._lock:
                    self.counts.chunks += 1
                self._progress(path, size)
                return

    def _decode(self, array: Array, index: Index) -> int:
        """Decode a chunk, in memory that counts against the cache; return its size."""
        cache, metadata, chunks = self._tree.cache, array.metadata, array.chunks
        size, key = metadata.chunk_bytes(index), object()
        if size is not None:
            if size > self._tree.config.max_direct:
                raise TooLarge(f"a chunk of {size} bytes; see --cache-size")
            with_chunk = open_chunk(chunks, index)
            try:
                cache.get(key, size, with_chunk.read_into, with_chunk.info.stored)
            finally:
                with_chunk.close()
                cache.discard(key)
            return size
        info, limit = chunks.find(index), min(self._tree.config.max_chunk, cache.budget // 2)
        try:
            view = cache.get_all(key, lambda: chunks.read_all(index, info, limit), info.stored + limit)
            _check_items(metadata, index, view)
            return len(view)
        finally:
            cache.discard(key)

    def _find(self, path: str, error: Exception, index: Index | None = None) -> None:
        kind: Kind = "unreadable"
        if isinstance(error, CorruptData):
            kind = "damaged"
        elif isinstance(error, Unsupported | TooLarge):
            kind = "unsupported"
        self._say(Finding(kind, path, reason(error), None if index is None else list(index)))

    def _say(self, finding: Finding) -> None:
        with self._lock:
            self._tell(finding)

    def _take(self) -> None:
        while (job := self._work.get()) is not None:
            if self._ended is None:
                try:
                    job()
                except Exception as error:
                    self._ended = error


def _stored(array: Array, prefix: Index) -> Iterator[Index]:
    """The stored chunks whose positions begin with `prefix`."""
    rank = len(array.metadata.shape)
    if not rank:
        try:
            array.chunks.find(())
        except NotFound:
            return
        except (FsbridgeError, OSError):
            pass  # whoever decodes it is told
        yield ()
        return
    for batch in array.chunks.scan(prefix):
        for coordinate, _ in batch:
            if len(prefix) + 1 == rank:
                yield (*prefix, coordinate)
            else:
                yield from _stored(array, (*prefix, coordinate))


def _check_items(metadata: ArrayMetadata, index: Index, view: memoryview) -> None:
    """Whether a chunk of texts or bytes has as many as its shape says, each of them whole."""
    kind = metadata.dtype.serializer
    if kind in ("vlen-utf8", "vlen-bytes") and not metadata.varlength:
        decode_items(kind, view, metadata.grid.elements(index))
