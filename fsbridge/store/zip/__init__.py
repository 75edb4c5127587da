"""A zip archive as a store, read in place. Not here: its central directory (`directory.py`), writing.

Stored members are read by range; deflated ones are inflated, never beyond their declared size. While a large one is
inflated, the decompressor's state is kept every few MiB (as in zran of zlib's examples), and the next range begins at the
state before it. So the inner chunks of a shard cost a few MiB of inflating each, and not the whole shard. Each read
checks that the archive at the path is still the opened one. If it was replaced or rewritten, its directory is read again
and every version changes. Members are never unpacked to disk, and symbolic links in the archive are never followed.
"""

from __future__ import annotations

import logging
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fsbridge.asking import before_waiting
from fsbridge.config import MIB
from fsbridge.errors import CorruptData, FsbridgeError, IsADirectory, NotFound, Stale, Unsupported
from fsbridge.lru import LRU
from fsbridge.store import Key, Member, Range, Stat, Store, check_limit, check_range
from fsbridge.store.blobs import Blob, BlobFile, LocalFile
from fsbridge.store.zip.directory import (
    ENCRYPTED,
    OVERLAPPING,
    SPECIAL,
    ArchiveMember,
    ZipDirectory,
    data_start,
    read_directory,
)

log = logging.getLogger(__name__)

STORED, DEFLATED = 0, 8
LINK = "a symbolic link or device in the archive"

PIECE_BYTES = MIB
"""Compressed bytes read, or decoded bytes made, at a time."""

STEP_BYTES = 4 * MIB
"""Decoded bytes between two kept states: about 15 ms of inflating. Smaller members need none."""

MAX_STATES = 256
"""States kept for all archives of a mount: 1 GiB of deflated members. Each takes about 48 KiB (zlib's window and tables)."""

Read = Callable[[int, int], bytes]


class _State(NamedTuple):
    """A decompressor that has made `done` bytes from `used` bytes of input."""

    done: int
    used: int
    stream: Any


States: TypeAlias = "LRU[tuple[object, int, int], _State]"
"""Kept states by archive object, position of the member in the archive, and number of whole steps."""


class Inflater:
    """Inflates ranges of the members of one archive. Thread-safe."""

    def __init__(self, read: Read, states: States, piece_bytes: int = PIECE_BYTES, step_bytes: int = STEP_BYTES) -> None:
        self._read = read
        self._piece_bytes = piece_bytes
        self._step_bytes = step_bytes
        self._states = states
        self._own = object()

    def range(self, position: int, stored: int, size: int, start: int, length: int) -> bytes:
        """Return bytes [start, start + length) of the member of `size` bytes.

        Its `stored` deflated bytes lie at `position`.

        Raises CorruptData. A range up to the member's end also checks that the stream ends there and nowhere else.
        """
        done, used, stream = self._before(position, start)
        stop = start + length
        parts: list[bytes] = []
        held = memoryview(b"")
        while done < stop or (stop == size and not stream.eof):
            if not held and used < stored and not stream.eof:
                held = memoryview(self._read(position + used, min(stored - used, self._piece_bytes)))
            # A decompressor keeps the input that it did not use, and so does each state, so it gets only 16 KiB at a
            # time.
            feed = held[: (16 * 1024)]
            try:
                # One byte more than declared shows a member that is larger than it says.
                piece = stream.decompress(feed, min(self._piece_bytes, size - done + 1))
            except zlib.error as error:
                raise CorruptData(str(error)) from None
            if not (piece or feed or stream.eof) or (stream.eof and done + len(piece) < stop):
                raise CorruptData(f"the deflated data end after {done + len(piece)} of {size} bytes")
            taken = len(feed) - len(stream.unconsumed_tail)
            held, used = held[taken:], used + taken
            if done + len(piece) > size:
                raise CorruptData(f"the deflated data go beyond the {size} bytes declared")
            parts.append(piece[max(0, start - done) : max(0, stop - done)])
            if (done + len(piece)) // self._step_bytes > done // self._step_bytes and not stream.eof:
                self._keep(position, _State(done + len(piece), used, stream.copy()))
            done += len(piece)
        if stop == size and (used < stored or stream.unused_data):
            raise CorruptData("bytes are left over after the deflated data")
        return b"".join(parts)

    def _before(self, position: int, start: int) -> _State:
        """Return the last state that is not beyond `start`, ready for use."""
        steps = start // self._step_bytes
        for number in range(steps, max(0, steps - MAX_STATES), -1):
            state = self._states.get((self._own, position, number))
            if state is not None and state.done <= start:
                return state._replace(stream=state.stream.copy())
        return _State(0, 0, zlib.decompressobj(-zlib.MAX_WBITS))

    def _keep(self, position: int, state: _State) -> None:
        key = (self._own, position, state.done // self._step_bytes)
        if self._states.get(key) is None:
            self._states.put(key, state)


LIVE_ARCHIVES = 128
"""Most open archives of a mount, the ones used last. The usual limit of a process is 1024 descriptors."""


class OpenArchives:
    """The open archives of one mount, and the decoding states that are kept for them: both have a largest number."""

    def __init__(self, most: int = LIVE_ARCHIVES) -> None:
        """`most`: how many archives may be open at a time."""
        self.states: States = LRU(MAX_STATES)
        self._open: LRU[int, ZipStore] = LRU(most, ZipStore.rest)  # by id, unique while the store is in here

    def note_use(self, store: ZipStore) -> None:
        """Note that a store has an open archive; the one used longest ago may be closed for it."""
        if self._open.get(id(store)) is None:
            self._open.put(id(store), store)

    def close(self) -> None:
        """Close all archives. One that is used later is opened again."""
        self._open.clear()


class _Archive:
    """One version of the archive: its bytes and its directory."""

    def __init__(self, blob: Blob, name: str, states: States) -> None:
        self.blob = blob
        self.directory: ZipDirectory = read_directory(blob.pread, blob.stat.size)
        for text in self.directory.odd_names():
            log.warning("%s: %s", name, text)
        self.inflater = Inflater(blob.pread, states)

    @property
    def stat(self) -> Stat:
        """The archive's own stat."""
        return self.blob.stat


class ZipStore(Store):
    """The zip archive `file`, an object or a local path, as a store (`store.Store`).

    `base`: the directory in the archive that is the store's root; None: a lone top directory with a name that ends in one of
    `suffixes`, or the top. `shared`: what this archive shares with the other archives of the mount.
    """

    rests = True

    def __init__(
        self,
        file: str | BlobFile,
        base: str | None = None,
        shared: OpenArchives | None = None,
        suffixes: tuple[str, ...] = (),
    ) -> None:
        self._shared = shared or OpenArchives()
        self._file = LocalFile(file) if isinstance(file, str) else file
        self._path = self._file.name
        self._lock = threading.Lock()
        self._archive: _Archive | None = self._open()
        if base is None:
            self._base = _single_directory(self._archive.directory, self._path, suffixes)
        else:
            self._base = os.fsencode(base)

    @property
    def hidden(self) -> int:
        """Number of members that cannot be shown: names that are not paths (`../x`), files where directories are."""
        return self._now().directory.hidden

    def describe(self, key: Key) -> str:
        """Return `key` as a path that begins with the archive's."""
        return os.path.join(self._path, os.fsdecode(self._name(key)))

    def close(self) -> None:
        """Drop the archive. Its descriptor closes when the last read ends, and the next use opens it again."""
        with self._lock:
            self._archive = None

    def rest(self) -> None:
        """Drop the archive, unless a thread is opening it now: waiting for that could block on its disk."""
        if self._lock.acquire(blocking=False):
            self._archive = None
            self._lock.release()

    def stat(self, key: Key, read: Range | None = None) -> Stat:
        """Return kind and version.

        A directory has the archive's version. Raises Unsupported for a link: its target is unknown.
        """
        archive = self._now()
        member = archive.directory.find(self._name(key))
        if member is not None and member.flags & SPECIAL:
            raise Unsupported(f"{self.describe(key)}: {LINK}")
        return self._stat(archive, key)

    def _stat(self, archive: _Archive, key: Key) -> Stat:
        if archive.directory.is_directory(self._name(key)):
            return _directory_stat(archive)
        return _member_stat(archive, self._member(archive, key))

    def mtimes(self, key: Key, names: Sequence[str]) -> Sequence[int | None]:
        """Return the modification times from the archive's directory alone."""
        archive = self._now()
        times: list[int | None] = []
        for name in names:
            try:
                times.append(self._stat(archive, key / name).mtime_ns)
            except NotFound:
                times.append(None)
        return times

    def read(self, key: Key, limit: int) -> tuple[bytes, Stat]:
        """Return the whole member, its CRC-32 verified."""
        archive = self._now()
        member = self._member(archive, key)
        check_limit(self, key, member.size, limit)
        try:
            data = self._range(archive, key, member, 0, member.size)
            archive.blob.check()
        except FsbridgeError as error:
            raise error.at(self.describe(key)) from None
        if zlib.crc32(data) != member.crc:
            raise CorruptData(f"{self.describe(key)}: its CRC-32 is wrong")
        return data, _member_stat(archive, member)

    def read_range(self, key: Key, start: int, length: int) -> tuple[bytes, Stat]:
        """Return exactly `length` bytes from `start` (negative: from the end). The CRC-32 covers only whole members."""
        archive = self._now()
        member = self._member(archive, key)
        first = start if start >= 0 else member.size + start
        check_range(self, key, first, length, member.size)
        try:
            data = self._range(archive, key, member, first, length)
            archive.blob.check()
        except FsbridgeError as error:
            raise error.at(self.describe(key)) from None
        return data, _member_stat(archive, member)

    def list(self, key: Key, stats: bool = False) -> Iterator[Member]:
        """Yield the members of a directory, sorted. Symbolic links and devices appear as files that cannot be read."""
        archive, name = self._now(), self._name(key)
        directory = archive.directory
        if not directory.is_directory(name):
            raise NotFound(f"{self.describe(key)}: no such directory in the archive")
        for child, position in directory.children(name):
            if position is None:
                yield Member(os.fsdecode(child), True, _directory_stat(archive) if stats else None)
            else:
                member = directory.member(position)
                stat = _member_stat(archive, member) if stats else None
                yield Member(os.fsdecode(child), False, stat, bool(member.flags & SPECIAL))

    def left_out(self, key: Key) -> Iterator[str]:
        """Describe members that are not found under the path that their writer meant: for the root, all of them.

        The archive's directory has no checksum, but the local headers say the names once more.
        """
        if key:
            return
        archive = self._now()
        directory = archive.directory
        yield from (f"{self._path}: {text}" for text in directory.odd_names())
        for position in np.argsort(np.asarray(directory.table[0]), kind="stable"):  # as they lie in the archive
            name, member = directory.names[position], directory.member(position)
            try:
                if not name.endswith(b"/"):
                    data_start(archive.blob.pread, archive.stat.size, name, member)
            except FsbridgeError as error:
                yield f"{os.path.join(self._path, os.fsdecode(name))}: {error}"

    def _name(self, key: Key) -> bytes:
        name = os.fsencode(key)
        return b"/".join(part for part in (self._base, name) if part)

    def _open(self) -> _Archive:
        try:
            return _Archive(self._file.open(), self._path, self._shared.states)
        except (FileNotFoundError, NotFound):
            raise Stale(f"{self._path}: the archive is no longer there") from None
        except FsbridgeError as error:
            raise error.at(self._path) from None

    def _now(self) -> _Archive:
        """Return the archive that is at the path now."""
        before_waiting()
        try:
            stat = self._file.look()
        except (FileNotFoundError, NotFound):
            raise Stale(f"{self._path}: the archive is no longer there") from None
        with self._lock:
            archive = self._archive
            if archive is None or archive.stat.version != stat.version:
                archive = self._archive = self._open()
            else:
                archive.blob.stat = archive.blob.stat._replace(settled=stat.settled)  # it may be settled by now
        self._shared.note_use(self)
        return archive

    def _member(self, archive: _Archive, key: Key) -> ArchiveMember:
        name = self._name(key)
        member = archive.directory.find(name)
        if member is not None:
            return member
        if archive.directory.is_directory(name):
            raise IsADirectory(f"{self.describe(key)}: a directory where a file was expected")
        above = name.rpartition(b"/")[0]
        while above:  # a member below a symbolic link is not known to be absent
            parent = archive.directory.find(above)
            if parent is not None and parent.flags & SPECIAL:
                raise Unsupported(f"{self.describe(key)}: its path leads through {LINK}")
            above = above.rpartition(b"/")[0]
        raise NotFound(f"{self.describe(key)}: not in the archive")

    def _range(self, archive: _Archive, key: Key, member: ArchiveMember, start: int, length: int) -> bytes:
        """Return bytes of a member, after all checks of what the archive says about it.

        The range lies within its declared size.
        """
        if member.flags & OVERLAPPING:
            raise CorruptData("its bytes overlap another member's")
        if member.flags & SPECIAL:
            raise Unsupported(LINK)
        if member.flags & ENCRYPTED:
            raise Unsupported("is encrypted")
        if member.method not in (STORED, DEFLATED):
            raise Unsupported(f"has compression method {member.method}; only stored and deflated members are read")
        data = data_start(archive.blob.pread, archive.stat.size, self._name(key), member)
        if member.method == STORED:
            if member.stored != member.size:
                raise CorruptData(f"is stored with {member.stored} bytes, but declared to have {member.size}")
            return archive.blob.pread(data + start, length)
        # Deflate cannot shrink data by more than this factor.
        if member.size > member.stored * 1032:
            raise CorruptData(f"{member.stored} deflated bytes cannot become the {member.size} declared")
        return archive.inflater.range(data, member.stored, member.size, start, length)


def _directory_stat(archive: _Archive) -> Stat:
    return archive.stat._replace(is_dir=True)


def _member_stat(archive: _Archive, member: ArchiveMember) -> Stat:
    """Return a member's stat. Its version is the archive's, with the member's place and checksum."""
    version = (archive.stat.version, member.header, member.crc)
    return archive.stat._replace(size=member.size, version=version)


def _single_directory(directory: ZipDirectory, path: str, suffixes: tuple[str, ...]) -> bytes:
    """Return the path of the root: that of a lone top directory named like a store or the archive, else the archive's top.

    `zip -r brain.zarr.zip brain.zarr` makes such a directory.
    """
    children = directory.children(b"")
    first, second = next(children, None), next(children, None)
    if first is None or second is not None or first[1] is not None:
        return b""
    name = os.fsdecode(first[0])
    stem = os.path.basename(path).removesuffix(".zip").removesuffix(".ozx")
    return first[0] if name == stem or name.endswith(suffixes) else b""
