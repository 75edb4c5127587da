"""A cache of stored bytes on disk for remote stores: what was fetched once is still there after a restart.

A block is a whole object or a part that was read, in a file of its own: a header (URL, key, ETag, size, time, range), the
bytes, a CRC-32C of both. Files are written by a thread of its own and renamed. A damaged file, or one of another version,
counts as missing. Only versions with a real ETag are kept. Not here: whether a version is still current.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable
from hashlib import blake2b
from shlex import quote

import google_crc32c

from fsbridge import asking
from fsbridge.config import MIB
from fsbridge.errors import SetupError
from fsbridge.store import WHOLE, Range, Stored
from fsbridge.store.remote.answers import stat_of
from fsbridge.store.remote.client import Object, is_weak
from fsbridge.threads import starting
from fsbridge.threads.deadlines import Stopwatch

log = logging.getLogger(__name__)

MAGIC = b"fsbridge-block-1\n"
LARGEST_BYTES = 64 * MIB
"""Largest block in bytes. Larger ones are not kept."""
WAITING_BLOCKS = 4096
"""Most blocks that wait to be written. More are not kept, because writing must not delay a read."""
WAITING_BYTES = 64 * MIB
"""Most bytes that wait to be written, for the same reason."""
LOOKED_BYTES = 8 * MIB
"""Blocks up to this size in bytes stay in memory between `find` and `get`, so that they are read once."""
FREE_PART = 0.05
"""Part of the disk's space, and of its inodes, that always stays free, even if the cache is smaller than its limit."""
TOUCHED_SECONDS = 60.0
"""Least seconds between two updates of the time at which a block was last used."""
COUNTED_SECONDS = 60.0
"""Seconds between two counts of all blocks: other mounts write here, too."""
COUNTED_PART = 1 / 16
"""Most of the cache's size that is written between two counts."""
PIECE_BYTES = 1 << 20
"""Bytes of a block that are written at a time."""

CLUSTER_BYTES = 4096
"""A file takes a multiple of this many bytes on a disk."""

_FOLDER = re.compile(r"[0-9a-f]{2}")
_BLOCK = re.compile(r"[0-9a-f]{32}|\.[0-9a-f]{16}")
"""Our own files, including those of a writer that was killed. All other files belong to others."""


class BlockCache:
    """The cache in `folder` for the store `url`. All caches in the folder together take about `size` bytes.

    Raises SetupError if the folder cannot be used, or if other users can write to it and so change what is read.
    """

    def __init__(
        self,
        folder: str,
        size: int,
        url: str,
        waiting_bytes: int = WAITING_BYTES,
        statvfs: Callable[[int], os.statvfs_result] = os.fstatvfs,
    ) -> None:
        """`statvfs` tells how much room the disk has, by the folder's descriptor."""
        self._size = size
        self._most_waiting = waiting_bytes
        self._statvfs = statvfs
        self._url = url
        self._folder = open_private(folder)
        self._place = folder
        self._failing = False  # whether the last block could not be written
        self._queue: queue.Queue[tuple[str, bytes, Stored]] = queue.Queue(WAITING_BLOCKS)
        self._looked: tuple[str, Object, Stored] | None = None  # found last, and usually got next
        self._waiting = 0
        self._used = self._uncounted = 0
        self._counted: Stopwatch | None = None  # since the last count of all blocks
        self._writer = False  # whether its thread runs, or will run
        self._lock = threading.Lock()

    def holds(self, key: str, span: Range = WHOLE) -> bool:
        """Tell whether there is a block, of any version."""
        asking.before_waiting()
        name = self._name(key, span)
        with contextlib.suppress(OSError):
            os.stat(f"{name[:2]}/{name}", dir_fd=self._folder, follow_symlinks=False)
            return True
        return False

    def find(self, key: str, span: Range = WHOLE) -> tuple[Object, Stored] | None:
        """Return the version and the bytes of a block, if there is one."""
        block = self._read(key, span, None)
        if block is not None and len(block[1]) <= LOOKED_BYTES:
            self._looked = (self._name(key, span), *block)
        return block

    def get(self, key: str, etag: str | None, size: int, span: Range = WHOLE) -> Stored | None:
        """Return the bytes of a block if it is present in that version.

        `size` is the object's, which its ETag should determine.
        """
        block = None if etag is None else self._read(key, WHOLE if span == (0, size) else span, etag)
        return None if block is None or block[0].size != size else block[1]

    def keep(self, meta: Object, data: Stored, start: int = 0, block: int = 0) -> None:
        """Keep the bytes of an object from `start`, in blocks of `block` bytes or as one."""
        if not stat_of(meta).settled:
            return  # another version might have the same ETag
        for at in range(0, len(data), block or len(data) or 1):
            part = data[at : at + block] if block else data
            self.put(meta, part, WHOLE if len(part) == meta.size else (start + at, len(part)))

    def put(self, meta: Object, data: Stored, span: Range = WHOLE) -> None:
        """Have a block written soon. Does not block."""
        if meta.etag is None or is_weak(meta.etag) or len(data) > min(LARGEST_BYTES, self._size // 4):
            return
        header = {"url": self._url, "key": meta.key, "etag": meta.etag, "size": meta.size, "mtime": meta.mtime_ns}
        head = MAGIC + json.dumps({**header, "span": span}).encode() + b"\n"
        with self._lock:
            if self._waiting and self._waiting + len(data) > self._most_waiting:
                return
            with contextlib.suppress(queue.Full):
                self._queue.put_nowait((self._name(meta.key, span), head, data))
                self._waiting += len(data)
            if not self._writer:
                self._writer = True
                starting.start(self._write_all, "fsbridge-blocks")

    def flush(self) -> None:
        """Wait until everything is written."""
        while self._queue.unfinished_tasks:
            time.sleep(0.01)

    def _name(self, key: str, span: Range) -> str:
        digest = blake2b(f"{self._url}\0{key}\0{span[0]}\0{span[1]}".encode("utf-8", "surrogateescape"), digest_size=16)
        return digest.hexdigest()

    def _read(self, key: str, span: Range, etag: str | None) -> tuple[Object, Stored] | None:
        asking.before_waiting()
        name = self._name(key, span)
        looked, self._looked = self._looked, None
        if looked is not None and looked[0] == name and looked[1].etag == etag:
            return looked[1:]
        loaded = self._load(name)
        if loaded is None:
            return None
        content, checksum = loaded
        end = content.find(b"\n", len(MAGIC))
        if not content.startswith(MAGIC) or end < 0:
            return None
        if int(google_crc32c.value(content)).to_bytes(4, "little") != checksum:
            log.warning("%s: a damaged block of the block cache is fetched anew", key)
            return None
        header = json.loads(content[len(MAGIC) : end])
        if (header["url"], header["key"], header["span"]) != (self._url, key, list(span)):
            return None
        if etag is not None and header["etag"] != etag:
            return None
        return Object(key, header["size"], header["mtime"], header["etag"]), memoryview(content)[end + 1 :]

    def _load(self, name: str) -> tuple[bytes, bytes] | None:
        """Return the contents of a block's file and its checksum, or None if there is none or the cache's disk fails."""
        with contextlib.suppress(OSError):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # opening a FIFO would wait
            fd = os.open(f"{name[:2]}/{name}", flags, dir_fd=self._folder)
            try:
                with open(fd, "rb", buffering=0, closefd=False) as file:
                    status = os.fstat(fd)
                    if not stat.S_ISREG(status.st_mode):
                        return None
                    content = file.read(max(0, min(status.st_size, 2 * LARGEST_BYTES) - 4)) or b""
                    checksum = file.read(4)
                    with contextlib.suppress(OSError):
                        if time.time() - status.st_mtime > TOUCHED_SECONDS:
                            os.utime(fd)
                return content, checksum
            finally:
                os.close(fd)
        return None

    # ---- the writer's thread

    def _write_all(self) -> None:
        while True:
            name, head, data = self._queue.get()
            try:
                self._write(name, head, data)
                self._failing = False
            except (OSError, MemoryError) as error:
                level = logging.INFO if self._failing else logging.WARNING
                reason = error.strerror if isinstance(error, OSError) else "no memory"
                log.log(level, "block cache %s: nothing can be kept there now: %s", self._place, reason)
                self._failing = True
            finally:
                with self._lock:
                    self._waiting -= len(data)
                self._queue.task_done()

    def _write(self, name: str, head: bytes, data: Stored) -> None:
        """Write a block piece by piece, so that one of 60 MiB is not in memory twice."""
        size = len(head) + len(data) + 4
        if not self._has_room(size):
            return
        with contextlib.suppress(FileExistsError):
            os.mkdir(name[:2], 0o700, dir_fd=self._folder)
        passing = f"{name[:2]}/.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(passing, flags, 0o600, dir_fd=self._folder), "wb") as file:
                file.write(head)
                checksum, view = int(google_crc32c.value(head)), memoryview(data)
                for start in range(0, len(view), PIECE_BYTES):
                    piece = bytes(view[start : start + PIECE_BYTES])
                    checksum = int(google_crc32c.extend(checksum, piece))
                    file.write(piece)
                file.write(checksum.to_bytes(4, "little"))
            os.rename(passing, f"{name[:2]}/{name}", src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(passing, dir_fd=self._folder)
            raise
        self._used += _on_disk(size)
        self._uncounted += _on_disk(size)

    def _has_room(self, more: int) -> bool:
        """Tell whether this many bytes fit, after removing the blocks that were used longest ago."""
        more = _on_disk(more)
        short = self._short_of(more)
        recent = (
            self._counted is not None
            and self._counted.seconds < COUNTED_SECONDS
            and self._uncounted < self._size * COUNTED_PART
        )
        if short <= 0 and self._used + more <= self._size and recent:
            return True
        blocks = sorted(blocks_in(self._folder))
        self._counted, self._uncounted = Stopwatch(), 0
        self._used = sum(size for _, size, _ in blocks)
        short = max(short, self._used + more - self._size)
        if short > 0:
            short += self._size // 20  # so that the next block needs no count
        for _, size, path in blocks:
            if short <= 0:
                break
            with contextlib.suppress(OSError):
                os.unlink(path, dir_fd=self._folder)
                short -= size
                self._used -= size
        return self._used + more <= self._size and self._short_of(more) <= 0

    def _short_of(self, more: int) -> int:
        """Return how many bytes to free for `more` and for what must stay free; at least 1 if the disk lacks inodes."""
        disk = self._statvfs(self._folder)
        short = int(disk.f_blocks * disk.f_frsize * FREE_PART) + more - disk.f_bavail * disk.f_frsize
        return max(short, 1) if disk.f_favail < disk.f_files * FREE_PART else short

    def __del__(self) -> None:
        fd = getattr(self, "_folder", None)
        if fd is not None:
            os.close(fd)


def blocks_in(folder: int) -> list[tuple[float, int, str]]:
    """Return for each block below the descriptor `folder` when it was used last, its size on disk and its path."""
    blocks = []
    for name in os.listdir(folder):
        if _FOLDER.fullmatch(name) is None:
            continue
        try:
            fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except OSError:
            continue
        try:
            with os.scandir(fd) as members:
                for member in members:
                    if _BLOCK.fullmatch(member.name) is None or not member.name.startswith((name, ".")):
                        continue
                    with contextlib.suppress(OSError):
                        status = member.stat(follow_symlinks=False)
                        blocks.append((status.st_mtime, _on_disk(status.st_size), f"{name}/{member.name}"))
        finally:
            os.close(fd)
    return blocks


def store_of(folder: int, path: str) -> str:
    """Return the URL of the store of the block at `path`, or "" if the file is not a block of this version."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
        with open(fd, "rb") as file:
            return str(json.loads(file.readline())["url"]) if file.read(len(MAGIC)) == MAGIC else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _on_disk(size: int) -> int:
    return -(-size // CLUSTER_BYTES) * CLUSTER_BYTES


def open_private(folder: str) -> int:
    """Return a descriptor of the folder, which is made if necessary and must be accessible to us alone."""
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise SetupError(f"block cache {folder}: {(error.strerror or str(error)).lower()}") from None
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        os.close(fd)
        hint = f"choose a folder for it alone, as: --block-cache {quote(os.path.join(folder, 'fsbridge'))}"
        raise SetupError(f"block cache {folder}: other users could change what is read from it", hint)
    return fd
