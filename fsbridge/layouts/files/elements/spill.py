"""Decoded chunks in an unlinked file, for working sets larger than the cache, so that no chunk is decoded many times.

Disk space is allocated before it is used, so that a full disk is an error when a file is opened, and not a signal while it
is read. Not here: which chunks are spilled (`supply.py`).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator

from fsbridge.config import MIB
from fsbridge.errors import TooLarge
from fsbridge.threads import starting

LEAVING_SECONDS = 2.0
"""Seconds to wait for space that is being freed: for gigabytes, a local disk needs some tenths of a second."""


class Spill:
    """The disk space that one mount may use in `directory`: at most `limit` bytes. Thread-safe."""

    def __init__(self, directory: str, limit: int, allocate: Callable[[int, int, int], None] = os.posix_fallocate) -> None:
        """`allocate`: gives a file disk space, from an offset on; OSError if there is none."""
        self.directory = directory
        self.limit = limit
        self.allocate = allocate
        self._changed = threading.Condition()
        self._taken = 0
        self._leaving = 0  # number of files that are about to free their space

    @property
    def free(self) -> int:
        """Bytes that may still be taken."""
        return self.limit - self._taken

    def take(self, amount: int) -> bool:
        """Take `amount` bytes; False if there is no room for them, also after waiting for files that are being closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._taken + amount <= self.limit or not self._leaving, LEAVING_SECONDS)
            if self._taken + amount > self.limit:
                return False
            self._taken += amount
            return True

    def give(self, amount: int) -> None:
        """Count `amount` bytes as free again."""
        with self._changed:
            self._taken -= amount

    def count_leaving(self, files: int) -> None:
        """Add `files` to the number of files that are about to free their space."""
        with self._changed:
            self._leaving += files
            self._changed.notify_all()


class SpillFile:
    """A file without a name that keeps chunks in slots of `slot` bytes.

    If it cannot grow, the least recently used chunk is dropped.
    """

    def __init__(self, spill: Spill, slot: int, reserved: int = 0) -> None:
        """`reserved`: slots that must be there from the beginning; TooLarge if there is no room for them."""
        self._spill = spill
        self._slot = -(-slot // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        self._lock = threading.Lock()
        self._used: OrderedDict[Hashable, int] = OrderedDict()
        self._pinned: dict[int, int] = {}
        self._free: list[int] = []
        self._count = 0
        self._file = -1
        try:
            self._file = os.open(spill.directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            if reserved and not self._grow(reserved):
                raise OSError("no room")
        except OSError as error:
            self.close()
            raise self._without_room(reserved * self._slot, error) from None

    def _without_room(self, needed: int, error: OSError) -> TooLarge:
        free, directory = self._spill.free, self._spill.directory
        if needed > free:
            enough = -(-(self._spill.limit - free + needed) // MIB)
            words = f"but --spill-size has {free} bytes left: --spill-size {enough}M permits it, or a larger --cache-size"
        else:
            words = f"but {directory} has no room for them ({error.strerror or error}): name another --spill-dir"
        return TooLarge(f"{needed} bytes of decoded chunks must be kept beside the cache, {words}")

    def _grow(self, slots: int) -> bool:
        """Allocate more slots; False if there is no room.

        The caller holds the lock, or is the only thread that knows the file.
        """
        amount = slots * self._slot
        if not self._spill.take(amount):
            return False
        try:
            self._spill.allocate(self._file, self._count * self._slot, amount)
            count = self._count + slots
            free = [*self._free, *range(self._count, count)]
        except OSError:
            self._spill.give(amount)
            return False
        except BaseException:
            self._spill.give(amount)
            raise
        self._free, self._count = free, count  # together, because a slot listed twice would get two chunks
        return True

    @contextlib.contextmanager
    def using(self, key: Hashable, size: int) -> Iterator[memoryview | None]:
        """Yield the bytes of a chunk, mapped into memory only while the context lasts; None if it is not there."""
        with self._lock:
            slot, mapping = self._used.get(key), None
            if slot is not None:
                with contextlib.suppress(OSError):  # without memory to map it, the chunk is decoded again
                    mapping = mmap.mmap(self._file, self._slot, prot=mmap.PROT_READ, offset=slot * self._slot)
                    self._used.move_to_end(key)
                    self._pinned[slot] = self._pinned.get(slot, 0) + 1
        try:
            yield None if mapping is None else memoryview(mapping)[:size]
        finally:
            if slot is not None and mapping is not None:
                with self._lock:
                    self._unpin(slot)

    def holds(self, key: Hashable) -> bool:
        """True if the file has the chunk."""
        return key in self._used

    def put(self, key: Hashable, data: memoryview) -> None:
        """Keep a chunk if there is room for it, or if another chunk can be dropped for it."""
        with self._lock:
            if key in self._used or self._file < 0:
                return
            try:
                file = os.dup(self._file)
            except OSError:  # without a descriptor, the chunk is decoded again
                return
        try:
            self._put(file, key, data)
        finally:
            os.close(file)

    def _put(self, file: int, key: Hashable, data: memoryview) -> None:
        with self._lock:
            if self._file < 0 or (not self._free and not self._grow(1) and not self._make_room()):
                return
            slot = self._free[-1]
            self._pinned[slot] = 1
            self._free.pop()
        done = 0
        with contextlib.suppress(OSError):  # if the disk fails, the chunk is decoded again
            while done < len(data):
                done += os.pwrite(file, data[done:], slot * self._slot + done)
        with self._lock:
            self._unpin(slot)
            if self._file >= 0:
                if done == len(data) and key not in self._used:
                    self._used[key] = slot
                else:
                    self._free.append(slot)

    def _make_room(self) -> bool:
        """Drop the least recently used chunk without readers, if there is one (the lock is held)."""
        old = next((key for key, slot in self._used.items() if slot not in self._pinned), None)
        if old is None:
            return False
        self._free.append(self._used.pop(old))
        return True

    def forget(self, key: Hashable) -> None:
        """Forget a chunk that is not expected to be read again."""
        with self._lock:
            slot = self._used.get(key)
            if slot is not None and slot not in self._pinned:
                del self._used[key]
                self._free.append(slot)

    def _unpin(self, slot: int) -> None:
        """Note that one user of a slot is done (the lock is held)."""
        self._pinned[slot] -= 1
        if not self._pinned[slot]:
            del self._pinned[slot]

    def close_later(self) -> None:
        """Close the file in another thread: freeing disk space is slow, and the event loop must not wait for it."""
        if self._file >= 0:
            self._spill.count_leaving(1)
            starting.start(self._close_now, "fsbridge-spill")

    def _close_now(self) -> None:
        try:
            self.close()
        finally:
            self._spill.count_leaving(-1)

    def close(self) -> None:
        """Free the disk space. Chunks in use stay readable until their readers are done."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._spill.give(self._count * self._slot)
            self._file = -1
            self._used.clear()
            self._count = 0
            self._free.clear()

    def __del__(self) -> None:
        if self._file >= 0:
            self.close()
