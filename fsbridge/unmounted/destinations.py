"""Where an export writes to: a directory, or objects below a URL of object storage.

In a directory each file is written under a random temporary name, gets its object's mtime, and is renamed. Object storage
has neither links nor directories; each object has a note that identifies its source. Not here: which files
(`exporting.py`), requests (`store/remote/uploads.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from fsbridge.config import Config, Remote
from fsbridge.errors import FsbridgeError, SetupError
from fsbridge.store.remote.uploads import Uploads
from fsbridge.store.remote.urls import Location, parse_url
from fsbridge.tree import Attrs, Buffer
from fsbridge.unmounted.units import UNIT_ITEMS

CHANGING_NS = 2_000_000_000
"""Nanoseconds within which two changes may leave the same mtime. A file with so recent a source is written again later."""


class Folder:
    """A directory of this machine. Paths are relative to it. A pickled copy names the same path on another machine.

    A file is written under a random temporary name, and renaming is what makes it whole. So several exports into one
    directory, or two workers with one unit, never write to the same file. Thread-safe.

    `left_seconds`: the age at which a temporary file belongs to no export that still runs. Each export writes to its files
    several times a minute.
    """

    unit_items = UNIT_ITEMS

    def __init__(self, path: str, left_seconds: float = 3600.0) -> None:
        self.path = path
        self._left_seconds = left_seconds
        self._unfinished: set[str] = set()  # temporary files that this process has made and not renamed

    def __reduce__(self) -> tuple[Any, ...]:
        return Folder, (self.path, self._left_seconds)

    def target(self, path: str) -> str:
        """Return the path of the file at `path`, beginning with the directory's own path."""
        return os.path.join(self.path, os.fsdecode(path.encode("utf-8", "surrogateescape"))) if path else self.path

    @property
    def is_directory(self) -> bool:
        """True if the directory exists, so that a single file goes into it."""
        return os.path.isdir(self.path)

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents."""
        os.makedirs(self.target(path), exist_ok=True)

    def check_directory(self, path: str) -> None:
        """Raise FileExistsError if a link lies at `path`: an export never writes through a link (P4)."""
        target = self.target(path)
        if os.path.islink(target):
            raise FileExistsError(errno.EEXIST, f"{target} is a link, where a directory is to be written")

    def remove_leftovers(self, path: str) -> None:
        """Remove the temporary files of killed exports from the directory at `path`, or around the file at `path`.

        They are those to which nothing has been written for `left_seconds`.
        """
        target = self.target(path)
        folder = target if os.path.isdir(target) else os.path.dirname(target) or "."
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if _TEMPORARY.fullmatch(entry.name) and _is_left(entry, self._left_seconds):
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)

    def make_link(self, path: str, leads: str) -> bool:
        """Make a link; False if the same link exists already."""
        target = self.target(path)
        with contextlib.suppress(OSError):
            if os.readlink(target) == leads:
                return False
        os.makedirs(os.path.dirname(target), exist_ok=True)
        temporary = _temporary(target)
        os.symlink(leads, temporary)
        try:
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
        return True

    def size(self, path: str) -> int | None:
        """Return the size of an existing file in bytes; None if there is no regular file."""
        with contextlib.suppress(FileNotFoundError):
            there = os.lstat(self.target(path))
            return there.st_size if stat.S_ISREG(there.st_mode) else None
        return None

    def has(self, path: str, attrs: Attrs) -> bool:
        """True if the existing file has this size and was made from a stored object with this mtime."""
        return self.size(path) == attrs.size and os.lstat(self.target(path)).st_mtime_ns == attrs.mtime_ns

    def holds(self, path: str, size: int, pieces: Iterator[Buffer]) -> bool:
        """True if the existing file consists of exactly these bytes. `size` is not used."""
        with open(self.target(path), "rb") as file:
            return all(file.read(len(piece)) == piece for piece in pieces) and not file.read(1)

    def write(self, path: str, attrs: Attrs, pieces: Iterator[Buffer]) -> int:
        """Write a file whole, or not at all; return its size."""
        temporary, descriptor = self._create(path)
        try:
            try:
                count = _write(descriptor, 0, pieces)
                _date(descriptor, attrs)
            finally:
                os.close(descriptor)
            self._rename(temporary, path)
        except BaseException:
            self.give_up(temporary)
            raise
        return count

    def begin(self, path: str) -> str:
        """Begin a file, which `finish` or `give_up` ends; return its temporary path."""
        temporary, descriptor = self._create(path)
        os.close(descriptor)
        return temporary

    def write_range(self, temporary: str, start: int, pieces: Iterator[Buffer]) -> int:
        """Write a part of a file that was begun; return how many bytes. Any thread of any machine may call it."""
        descriptor = os.open(temporary, _FLAGS)
        try:
            return _write(descriptor, start, pieces)
        finally:
            os.close(descriptor)

    def finish(self, temporary: str, path: str, attrs: Attrs) -> None:
        """Set the time of a complete file, and rename it from its temporary path to `path`."""
        descriptor = os.open(temporary, _FLAGS)
        try:
            size = os.fstat(descriptor).st_size
            if size != attrs.size:
                raise FsbridgeError(f"{size} of {attrs.size} bytes were written")
            _date(descriptor, attrs)
        finally:
            os.close(descriptor)
        self._rename(temporary, path)

    def give_up(self, temporary: str) -> None:
        """Remove an incomplete file."""
        self._unfinished.discard(temporary)
        with contextlib.suppress(OSError):
            os.unlink(temporary)

    def clear(self) -> None:
        """Remove all incomplete files of this process."""
        for temporary in list(self._unfinished):
            self.give_up(temporary)

    def _create(self, path: str) -> tuple[str, int]:
        """Make a temporary file beside the file at `path`; return its path and a descriptor."""
        target = self.target(path)
        temporary = _temporary(target)
        self._unfinished.add(temporary)  # before it exists, because `clear` must not miss it
        flags = _FLAGS | os.O_CREAT | os.O_EXCL
        try:
            try:
                return temporary, os.open(temporary, flags, 0o666)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                return temporary, os.open(temporary, flags, 0o666)
        except BaseException:
            self._unfinished.discard(temporary)
            raise

    def _rename(self, temporary: str, path: str) -> None:
        os.replace(temporary, self.target(path))
        self._unfinished.discard(temporary)

    def settle(self) -> None:
        """Make the file system write to disk what it holds in memory."""
        folder = self.path if os.path.isdir(self.path) else os.path.dirname(self.path) or "."
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            ctypes.CDLL(None, use_errno=True).syncfs(descriptor)
        finally:
            os.close(descriptor)


_FLAGS = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags of files that are written. O_NONBLOCK: opening a FIFO is an error, not an endless wait."""

_TEMPORARY = re.compile(r"\.fsbridge-[0-9a-f]{16}\.part")


def _temporary(target: str) -> str:
    """Return a new temporary path beside `target`."""
    return os.path.join(os.path.dirname(target), f".fsbridge-{secrets.token_hex(8)}.part")


def _is_left(entry: os.DirEntry[str], seconds: float) -> bool:
    """True if a temporary file or link is too old to belong to a running export.

    Its ctime tells, because its mtime becomes that of the source before it is renamed.
    """
    status = entry.stat(follow_symlinks=False)
    old = status.st_ctime < time.time() - seconds
    return old and (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode))


def _write(descriptor: int, start: int, pieces: Iterator[Buffer]) -> int:
    """Write pieces from `start` on; return how many bytes."""
    at = start
    for piece in pieces:
        view = memoryview(piece)
        while view:
            done = os.pwrite(descriptor, view, at)
            at, view = at + done, view[done:]
    return at - start


def _date(descriptor: int, attrs: Attrs) -> None:
    """Give a file the mtime of its source, unless that is so recent that a further change might not alter it."""
    if attrs.mtime_ns < time.time_ns() - CHANGING_NS:
        os.utime(descriptor, ns=(attrs.mtime_ns, attrs.mtime_ns))


class Bucket:
    """The objects below a URL, to which paths are relative. A pickled copy opens it again on its machine. Thread-safe."""

    unit_items = 16  # few, because each waits for the server twice

    def __init__(self, url: str, remote: Remote, made_of: str) -> None:
        """Open nothing yet.

        `made_of`: what the export is made of (`identity`). An object's note has it, besides the file's size and time.
        """
        self.path = url
        self._remote = remote
        self._made_of = made_of
        self._location = location_of(url)
        self._opening = threading.Lock()
        self._opened: Uploads | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Bucket, (self.path, self._remote, self._made_of)

    @property
    def is_directory(self) -> bool:
        """True if a single file is put below the URL, not at it: the URL ends with a slash or names only a bucket."""
        return self.path.endswith("/") or not self._location.path

    def check_apart(self, config: Config) -> None:
        """Raise SetupError if the destination of an export lies in its source, or the source in the destination (P1).

        The export would write over objects of its own source, or put new ones beside them.
        """
        if not config.is_remote:
            return
        here, source = self._location, parse_url(config.source)
        same = (here.kind, here.root, here.account) == (source.kind, source.root, source.account)
        if same and (_is_below(here.path, source.path) or _is_below(source.path, here.path)):
            raise SetupError(f"{self.path} is inside the store {config.source}, or around it", "choose a URL elsewhere")

    def make_directory(self, path: str) -> None:
        """Make nothing, because there are no directories; but check that the bucket of the export itself answers."""
        if not path:
            self._uploads().look(self._key("zarr.json"))

    def check_directory(self, path: str) -> None:
        """Do nothing: object storage has no directories, so nothing can lie in the place of one."""

    def make_link(self, path: str, leads: str) -> bool:
        """Raise FsbridgeError, because object storage has no links."""
        raise FsbridgeError(f"a link to {leads}, and object storage has none; --exclude leaves it out")

    def size(self, path: str) -> int | None:
        """Return the size of an existing object in bytes; None if it is absent."""
        info = self._uploads().look(self._key(path))
        return None if info is None else info[0]

    def has(self, path: str, attrs: Attrs) -> bool:
        """True if the existing object has the size of `attrs` and was made from that version of the same source."""
        return self._uploads().look(self._key(path)) == (attrs.size, self._note(attrs))

    def holds(self, path: str, size: int, pieces: Iterator[Buffer]) -> bool:
        """True if the existing object, which has this size, consists of these bytes."""
        return self._uploads().holds(self._key(path), size, pieces)

    def write(self, path: str, attrs: Attrs, pieces: Iterator[Buffer]) -> int:
        """Write an object whole, or not at all; return its size. It gets no note if its source may still be changing."""
        assert attrs.size is not None
        settled = attrs.mtime_ns < time.time_ns() - CHANGING_NS
        self._uploads().put(self._key(path), attrs.size, self._note(attrs) if settled else "", pieces)
        return attrs.size

    def settle(self) -> None:
        """Do nothing: an object that was put is stored."""

    def remove_leftovers(self, path: str) -> None:
        """Do nothing: the parts of an incomplete upload are not visible."""

    def clear(self) -> None:
        """Do nothing: an incomplete object is never visible."""

    def _note(self, attrs: Attrs) -> str:
        return f"{attrs.size} {attrs.mtime_ns} {self._made_of}"

    def _key(self, path: str) -> str:
        return "/".join(filter(None, [self._location.path, path]))

    def _uploads(self) -> Uploads:
        with self._opening:
            if self._opened is None:
                self._opened = Uploads(self._location, self._remote)
            return self._opened


def location_of(url: str) -> Location:
    """Return the location of a URL; SetupError unless objects can be written there."""
    location = None if url.lower().startswith("file://") else parse_url(url)
    if location is None or location.kind == "http":
        raise SetupError(f"{url}: export writes to directories, s3://, gs:// and az:// only", "name one of these")
    return location


def _is_below(path: str, other: str) -> bool:
    return not other or path == other or path.startswith(f"{other}/")


def identity(config: Config, path: str) -> str:
    """Return what distinguishes exports of one tree from those of another tree into the same place."""
    parts = [config.source, path.strip("/"), config.layout, config.chunk_separator]
    return blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
