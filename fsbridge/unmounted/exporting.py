"""Export the tree of a source: several files at a time, each whole or not at all, resumable.

A second export keeps files that have the size and the time of their source. Files made from many stored objects are also
compared byte by byte. Nothing is deleted but temporary files. Not here: how a destination is written
(`destinations.py`), arguments (`commands/export.py`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Protocol

from fsbridge.errors import FsbridgeError, SetupError, Stale
from fsbridge.store.remote.uploads import DestinationRefuses
from fsbridge.tree import AnyNode, Attrs, Buffer
from fsbridge.unmounted import ReadableFile, measure_node, open_file
from fsbridge.unmounted.destinations import Folder
from fsbridge.unmounted.units import UNIT_BYTES, WHOLE, JobPart, Unit, Watcher, Work, WorkSources

PIECE = 4 << 20
"""Bytes that are read at a time."""

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Errors of the destination that every further file would meet."""

TRIES = 3
"""Most attempts to export a file that keeps changing, before it is an error."""


class Destination(Protocol):
    """Where an export writes to: `Folder` or `Bucket`. Paths are relative to it."""

    @property
    def path(self) -> str:
        """The destination, as messages name it."""

    @property
    def unit_items(self) -> int:
        """Most files of a unit, however small they are."""

    @property
    def is_directory(self) -> bool:
        """True if the destination is a directory, so that a single file is put into it and not in its place."""

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents."""

    def check_directory(self, path: str) -> None:
        """Raise OSError if anything but a directory lies at `path`."""

    def make_link(self, path: str, leads: str) -> bool:
        """Make a link; False if the same link exists already. FsbridgeError if the destination has no links."""

    def size(self, path: str) -> int | None:
        """Return the size of an existing file in bytes; None if there is none."""

    def has(self, path: str, attrs: Attrs) -> bool:
        """True if the existing file has this size and was made from a stored object with this mtime."""

    def holds(self, path: str, size: int, pieces: Iterator[Buffer]) -> bool:
        """True if the existing file, which has this size, consists of these bytes."""

    def write(self, path: str, attrs: Attrs, pieces: Iterator[Buffer]) -> int:
        """Write a file whole, or not at all; return its size, which is that of `attrs`."""

    def settle(self) -> None:
        """Make all that was written durable, even if the machine stops."""

    def remove_leftovers(self, path: str) -> None:
        """Remove what killed exports left in the directory at `path`, or around the file at `path`."""

    def clear(self) -> None:
        """Remove all incomplete files of this process."""


@dataclass(slots=True)
class ExportCounts:
    """Numbers of files and links written, kept and failed so far, and of bytes written."""

    written: int = 0
    kept: int = 0
    failed: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ExportChoice:
    """The choice of exported files, by patterns of `fnmatch` for whole paths: `*` matches `/` too."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def enters(self, path: str) -> bool:
        """True if a directory is to be searched."""
        return not any(fnmatchcase(path, pattern) for pattern in self.exclude)

    def takes(self, path: str) -> bool:
        """True if a file is to be exported, as far as its path tells."""
        return self.enters(path) and (not self.include or any(fnmatchcase(path, pattern) for pattern in self.include))


@dataclass(frozen=True, slots=True)
class Exported:
    """A file of the tree. `below`: its path in the destination. `node`: opens the listed file; None in a pickled copy."""

    path: str
    below: str
    attrs: Attrs
    node: Callable[[], AnyNode] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Exported, (self.path, self.below, self.attrs)


@dataclass(frozen=True, slots=True)
class FileBatch(Unit):
    """Files that are written whole, or bytes [start, stop) of one large file, which was begun at the path `temporary`."""

    dest: Destination
    files: tuple[Exported, ...]
    range: tuple[int, int] | None = None
    temporary: str = ""


class Outcome(NamedTuple):
    """The outcome for a file. `error`: why it could not be exported."""

    written: bool
    bytes: int
    error: Exception | None = None


class Export(Work[FileBatch, "list[Outcome]"]):
    """One export of the tree of a source, or of what is at a path in it.

    Several threads write a file of at least `large` bytes to a directory, each `range_bytes` at a time.
    """

    def __init__(
        self,
        sources: WorkSources,
        path: str,
        dest: Destination,
        choice: ExportChoice,
        tell: Callable[[str, Exception], object],
        part: JobPart = WHOLE,
        *,
        large: int = 64 << 20,
        range_bytes: int = 8 << 20,
    ) -> None:
        super().__init__(sources, tell, part)
        self.counts = ExportCounts()
        self._top = "/".join(name for name in path.split("/") if name)
        self._dest = dest
        self._choice = choice
        self._large, self._range_bytes = large, range_bytes
        self._begun: set[str] = set()  # temporary paths of large files that are being written

    def units(self) -> Iterator[FileBatch]:
        batch: list[Exported] = []
        size = 0
        for file in self._files():
            large = (file.attrs.size or 0) >= self._large and isinstance(self._dest, Folder)
            if large and not self._dest.has(file.below, file.attrs):
                yield from self._ranges(file)
                continue
            batch.append(file)
            size += file.attrs.size or 0
            if size >= UNIT_BYTES or len(batch) == self._dest.unit_items or file.attrs.size is None:
                yield FileBatch(batch[0].path, size, self._dest, tuple(batch))
                batch, size = [], 0
        if batch:
            yield FileBatch(batch[0].path, size, self._dest, tuple(batch))

    def total(self) -> int:
        """Return the bytes of this job's files, as far as listings tell them."""

        def enters(path: str) -> bool:
            return self._choice.enters(self._below(path))

        tree = self.sources.tree()
        attrs = tree.stat(self._top)
        if attrs.kind != "directory":
            return attrs.size or 0
        walk = tree.walk(self._top, enters, lambda path, error: None)
        return sum(member.attrs.size or 0 for path, member in walk if member.attrs.kind == "file" and self._is_mine(path))

    def settle(self) -> None:
        """Make what was written durable, if the destination still keeps it in memory."""
        self._dest.settle()

    def clear(self) -> None:
        """Remove incomplete files. Call it only after all writing has ended."""
        self._dest.clear()

    def _below(self, path: str) -> str:
        return path[len(self._top) + 1 :] if self._top else path

    def _is_mine(self, path: str) -> bool:
        return self._choice.takes(self._below(path)) and self.part.has_named(path)

    def _files(self) -> Iterator[Exported]:
        """Yield all files; make directories and links on the way."""
        tree = self.sources.tree()
        attrs = tree.stat(self._top)
        if attrs.kind != "directory":
            name = self._top.rpartition("/")[2] if self._dest.is_directory else ""
            self._dest.remove_leftovers("")
            yield Exported(self._top, name, attrs)
            return
        try:
            self._dest.make_directory("")
        except DestinationRefuses as error:
            raise SetupError(str(error)) from error
        except OSError as error:
            raise SetupError(f"{self._dest.path}: {error.strerror}") from error
        self._dest.remove_leftovers("")
        for path, member in tree.walk(self._top, self._enters, self._fail):
            below = self._below(path)
            try:
                if member.attrs.kind == "directory":
                    if not self._choice.include and self.part.is_first:
                        self._dest.make_directory(below)
                elif not self._is_mine(path):
                    continue
                elif member.attrs.kind == "link":
                    self._count(Outcome(self._dest.make_link(below, tree.target(path)), 0))
                else:
                    yield Exported(path, below, member.attrs, member.node)
            except (FsbridgeError, OSError) as error:
                self._fail(path, error)

    def _enters(self, path: str) -> bool:
        below = self._below(path)
        if not self._choice.enters(below):
            return False
        try:
            self._dest.check_directory(below)
        except OSError as error:
            self._fail(path, error)
            return False
        self._dest.remove_leftovers(below)
        return True

    def _ranges(self, file: Exported) -> Iterator[FileBatch]:
        try:
            opened = _open_for_all(self.sources, file, anew=True)
            if opened.size != file.attrs.size:
                raise Stale("it was changed while it was listed")
            assert isinstance(self._dest, Folder)
            temporary = self._dest.begin(file.below)
        except (FsbridgeError, OSError) as error:
            self._fail(file.path, error)
            return
        self._begun.add(temporary)
        for start in range(0, opened.size, self._range_bytes):
            stop = min(start + self._range_bytes, opened.size)
            yield FileBatch(file.path, stop - start, self._dest, (file,), (start, stop), temporary)

    @staticmethod
    def do(sources: WorkSources, unit: FileBatch) -> list[Outcome]:
        """Write files, or some bytes of one."""
        if unit.range is None:
            return [_export_file(sources, unit.dest, file) for file in unit.files]
        assert isinstance(unit.dest, Folder)
        pieces = _pieces(sources, _open_for_all(sources, unit.files[0]), *unit.range)
        return [Outcome(True, unit.dest.write_range(unit.temporary, unit.range[0], pieces))]

    def join(self, unit: FileBatch, result: list[Outcome]) -> None:
        if unit.range is not None:
            self._join_range(unit, unit.files[0])
            return
        for file, outcome in zip(unit.files, result, strict=True):
            if outcome.error is not None:
                self._fail(file.path, outcome.error)
            else:
                self._count(outcome)

    def _join_range(self, unit: FileBatch, file: Exported) -> None:
        assert unit.range is not None
        assert isinstance(self._dest, Folder)
        if unit.temporary not in self._begun or unit.range[1] != file.attrs.size:  # it was given up, or more ranges follow
            return
        try:
            if measure_node(self.sources.tree().node(file.path)) != file.attrs:
                raise Stale("it was changed while it was read")
            self._dest.finish(unit.temporary, file.below, file.attrs)
        except (FsbridgeError, OSError) as error:
            self.failed(unit, error)
        else:
            self._begun.remove(unit.temporary)
            self._count(Outcome(True, unit.range[1]))

    def failed(self, unit: FileBatch, error: Exception) -> None:
        if unit.range is not None:
            if unit.temporary not in self._begun:  # the failure of another range has been counted
                return
            assert isinstance(self._dest, Folder)
            self._begun.remove(unit.temporary)
            self._dest.give_up(unit.temporary)
        for file in unit.files:
            self._fail(file.path, error)

    def _count(self, outcome: Outcome) -> None:
        if outcome.written:
            self.counts.written += 1
            self.counts.bytes += outcome.bytes
        else:
            self.counts.kept += 1

    def _fail(self, path: str, error: Exception) -> None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise SetupError(f"{self._dest.path}: {error.strerror}") from error
        if isinstance(error, DestinationRefuses):
            raise SetupError(str(error)) from error
        self.counts.failed += 1
        self.tell(path, error)


def _export_file(sources: WorkSources, dest: Destination, file: Exported) -> Outcome:
    """Export a whole file unless it exists already. If it changes meanwhile, look it up again."""
    for left in reversed(range(TRIES)):
        try:
            first = left == TRIES - 1 and file.node is not None
            node = file.node() if first and file.node is not None else sources.tree().node(file.path)
            if _is_there(sources, dest, file, node):
                return Outcome(False, 0)
            with open_file(node) as opened:
                attrs, pieces = file.attrs._replace(size=opened.size), _pieces(sources, opened, 0, opened.size)
                if sources.watcher is not None and file.attrs.size is None:
                    sources.watcher.begun(opened.size)
                    pieces = _tell_progress(pieces, file.path, sources.watcher)
                return Outcome(True, dest.write(file.below, attrs, pieces))
        except Stale as error:
            if not left:
                return Outcome(False, 0, error)
        except (FsbridgeError, OSError) as error:
            return Outcome(False, 0, error)
    raise AssertionError("not reached")


def _is_there(sources: WorkSources, dest: Destination, file: Exported, node: AnyNode) -> bool:
    """True if the file has been exported already.

    A file made of one stored object is recognised by its size and time. A file made of many has the time of only one of
    them, so its bytes are compared, too, unless the store is immutable.
    """
    attrs = file.attrs
    if attrs.size is None:
        if dest.size(file.below) is None:
            return False
        attrs = measure_node(node)
    if not dest.has(file.below, attrs):
        return False
    if sources.tree().config.immutable or node.slot is not None:
        return True
    with open_file(node) as opened:
        return opened.size == attrs.size and dest.holds(file.below, attrs.size, _pieces(sources, opened, 0, opened.size))


def _pieces(sources: WorkSources, opened: ReadableFile, start: int, stop: int) -> Iterator[Buffer]:
    for at in range(start, stop, PIECE):
        if sources.ended:
            raise FsbridgeError("interrupted")
        yield opened.read(at, min(at + PIECE, stop))


def _tell_progress(pieces: Iterator[Buffer], path: str, watcher: Watcher) -> Iterator[Buffer]:
    """Yield the pieces, and tell of each when it has been written."""
    for piece in pieces:
        yield piece
        watcher.done(path, len(piece))


def _open_for_all(sources: WorkSources, file: Exported, anew: bool = False) -> ReadableFile:
    """Return a large file, opened once in this process so that all units read one version."""

    def make() -> ReadableFile:
        opened = open_file(file.node() if file.node is not None else sources.tree().node(file.path))
        opened.close_when_unused()
        return opened

    return sources.keep(("file", file.path), make, anew)
