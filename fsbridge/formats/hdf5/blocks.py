"""One version of a remote object in blocks of 32 KiB, as HDF5 reads its metadata: kept, prefetched, several at a time.

HDF5 reads metadata in many small pieces, often next to each other. Therefore the file's head comes first, its tail
together with the first block behind the head, longer and longer runs while blocks are read in sequence, and blocks that
are known to be needed together in parallel. Not here: HDF5, the process that asks (`remote.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fsbridge.asking import Locks
from fsbridge.codecs import native
from fsbridge.config import MIB
from fsbridge.formats.hdf5.file import HDF5Limits, IdleTimer
from fsbridge.formats.shared import SharedPart
from fsbridge.lru import LRU
from fsbridge.threads.deadlines import Deadline
from fsbridge.threads.parallel import each


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """Sizes of blocks, and what may be kept and requested of them."""

    block: int = 32 * 1024
    """Bytes of a block. At 30 ms latency a request for a block takes as long as one for a byte."""
    head: int = MIB
    """Bytes of a file's head and tail, read by one request each. Most files have nearly all metadata there."""
    longest_run: int = 128
    """Most blocks that are prefetched in sequence: 4 MiB."""
    at_once: int = 64
    """Most requests at a time."""
    memory: int = 32 * MIB
    """Bytes of memory for blocks, for all files of a mount."""
    idle_seconds: float = HDF5Limits().idle_seconds
    """Seconds without a new block after which all are dropped."""


WINDOW = MIB
"""Bytes of a window. The second read of a small part of a window requests the whole window."""
LARGEST_PART = 256 * 1024
"""Largest part, in bytes, that counts as small."""


class BlockMemory(SharedPart):
    """The blocks of all files of a mount. They are dropped when none was added for a while."""

    def __init__(self, limits: BlockLimits | None = None) -> None:
        self.limits = limits or BlockLimits()
        self.blocks: LRU[tuple[Hashable, int], bytes] = LRU(self.limits.memory)
        self.rest = IdleTimer(self._give_back, self.limits.idle_seconds)

    def _give_back(self) -> bool:
        self.blocks.clear()
        native.give_freed_memory_back()
        return True


class Blocks:
    """The blocks of one version of a file, which `name` identifies. Thread-safe.

    `fetch(start, length)` returns bytes of the version, by a request if necessary, or raises. `find_kept` returns bytes only
    if no request is necessary.
    """

    def __init__(
        self,
        name: Hashable,
        size: int,
        fetch: Callable[[int, int], bytes],
        find_kept: Callable[[int, int], bytes | None],
        memory: BlockMemory,
        read_ahead: bool,
    ) -> None:
        self._limits = memory.limits
        self._block = memory.limits.block
        self.count = -(-size // self._block)
        self._name = name
        self._size = size
        self._fetch = fetch
        self._find_kept = find_kept
        self._memory = memory
        self._read_ahead = read_ahead
        self._lock = threading.Lock()
        self._tail_is_due = True
        self._end = 0
        self._ahead = 1
        # The latest 64 windows of which a part was read. An older one is forgotten, so that scattered reads stay single.
        self._read_once: LRU[int, bool] = LRU(64)
        self._windows_coming: Locks[int] = Locks()

    @property
    def head(self) -> int:
        """Bytes of the head."""
        return min(self._limits.head, self._size)

    def begin(self) -> None:
        """Keep the head if it is available without a request, as it is after the first look-up of the file."""
        if self._find(0) is None:
            data = self._find_kept(0, self.head)
            if data is not None:
                self._remember(0, data)

    def get(self, wanted: Sequence[int], deadline: Deadline) -> tuple[list[tuple[int, bytes]], int]:
        """Return blocks by number and the number of requests.

        Further blocks that came along or are kept are returned, too. Raises TimedOut if the deadline passes
        before all requests have begun.
        """
        blocks: dict[int, bytes] = {}
        missing: list[int] = []
        for number in sorted(set(wanted)):
            data = self._find(number) or self._find_on_disk(number)
            if data is None:
                missing.append(number)
            else:
                blocks[number] = data
        runs = self._plan(missing) if missing else []
        blocks |= self._request(runs, deadline) if missing else self._find_behind(max(blocks))
        return sorted(blocks.items()), len(runs)

    def read_part(self, start: int, length: int) -> bytes:
        """Return bytes of a small chunk. The second small read in a window reads the whole window.

        A single read is requested as it is, because it may stay the only one.
        """
        small, window = length <= LARGEST_PART, start // WINDOW
        with self._lock:
            is_second = small and self._read_once.get(window) is not None
            if small:
                self._read_once.put(window, True)
        data = self._find_bytes(start, length) or self._find_kept(start, length)
        if data is not None:
            return data
        if not is_second:
            return self._fetch(start, length)
        with self._windows_coming.of(window):
            return self._find_bytes(start, length) or self._read_windows(start, length)

    def plan_ahead(self, start: int, length: int) -> list[tuple[int, int]]:
        """Return the spans (start, length) that `read_part` would request for these bytes; none if they are present."""
        if not length or self._find_bytes(start, length) is not None:
            return []
        if length > LARGEST_PART:
            return [(start, length)]
        firsts = range(start // WINDOW * WINDOW, start + length, WINDOW)
        spans = [(first, min(WINDOW, self._size - first)) for first in firsts]
        return [span for span in spans if self._find_bytes(*span) is None]

    def _read_windows(self, start: int, length: int) -> bytes:
        """Return the bytes, and read all blocks of the windows that they lie in."""
        step = WINDOW // self._block
        runs: list[tuple[int, int]] = []
        for first in range(start // WINDOW * step, -(-(start + length) // self._block), step):
            missing = [number for number in range(first, min(first + step, self.count)) if self._find(number) is None]
            if missing:
                runs.append((missing[0], missing[-1] - missing[0] + 1))
        return self._join(start, length, self._request(runs) if runs else {})

    def _find_bytes(self, start: int, length: int) -> bytes | None:
        """Return bytes if all of their blocks are kept here or in the block cache."""
        blocks: dict[int, bytes] = {}
        for number in range(start // self._block, -(-(start + length) // self._block)):
            data = self._find(number) or self._find_on_disk(number)
            if data is None:
                return None
            blocks[number] = data
        return self._join(start, length, blocks)

    def _join(self, start: int, length: int, blocks: Mapping[int, bytes]) -> bytes:
        """Join bytes from `blocks`. A block that is not among them is kept, or is requested."""
        first = start // self._block
        numbers = range(first, -(-(start + length) // self._block))
        whole = b"".join(
            blocks.get(number) or self._find(number) or self._fetch(*self._find_span(number, 1)) for number in numbers
        )
        return whole[start - first * self._block : start - first * self._block + length]

    def _find_behind(self, number: int) -> dict[int, bytes]:
        """Return the kept blocks that follow block `number` without a gap."""
        blocks: dict[int, bytes] = {}
        for following in range(number + 1, min(number + 1 + self._limits.head // self._block, self.count)):
            data = self._find(following)
            if data is None:
                break
            blocks[following] = data
        return blocks

    def _find(self, number: int) -> bytes | None:
        return self._memory.blocks.get((self._name, number))

    def _find_on_disk(self, number: int) -> bytes | None:
        """Return a block from the block cache, which has it by itself or as a part of the file's head."""
        in_head = number < self._limits.head // self._block
        start, length = (0, self.head) if in_head else self._find_span(number, 1)
        data = self._find_kept(start, length)
        return None if data is None else self._remember(start // self._block, data)[number]

    def _find_span(self, first: int, count: int) -> tuple[int, int]:
        start = first * self._block
        return start, min(count * self._block, self._size - start)

    def _remember(self, first: int, data: bytes) -> dict[int, bytes]:
        self._memory.rest.note_use()
        blocks: dict[int, bytes] = {}
        for number in range(first, first + -(-len(data) // self._block)):
            start = (number - first) * self._block
            blocks[number] = self._memory.blocks.put((self._name, number), data[start : start + self._block], self._block)
        return blocks

    # ---- requests

    def _request(self, runs: Collection[tuple[int, int]], deadline: Deadline | None = None) -> dict[int, bytes]:
        spans = [self._find_span(first, count) for first, count in runs]
        parts = each(lambda span: self._fetch(*span), spans, self._limits.at_once, deadline)
        blocks: dict[int, bytes] = {}
        for (start, _), data in zip(spans, parts, strict=True):
            blocks |= self._remember(start // self._block, data)
        return blocks

    def _plan(self, missing: Sequence[int]) -> Sequence[tuple[int, int]]:
        """Return runs of blocks (first, count) to request: the missing ones, and those that will probably be read next."""
        in_head = self._limits.head // self._block
        runs = [(0, min(in_head, self.count))] if missing[0] < in_head else []
        beyond = [number for number in missing if number >= in_head]
        if len(beyond) == 1 and self._read_ahead:
            beyond = self._plan_sequence(beyond[0])
        if beyond and self._tail_is_due:
            self._tail_is_due = False
            tail = range(max(in_head, self.count - self._limits.head // self._block), self.count)
            beyond = sorted({*beyond, *(number for number in tail if self._find(number) is None)})
        return [*runs, *_join_runs(beyond, self._limits.longest_run)]

    def _plan_sequence(self, number: int) -> list[int]:
        """Return the number of a block, and numbers of blocks behind it that will probably be read next.

        With each read that continues the sequence there are twice as many, at most the longest run. The chunk tables of HDF5
        1.10 and later need that: a chunk of a dataset with 60,000 takes 12 requests with it, and 54 without it.
        """
        with self._lock:
            follows = self._end <= number <= self._end + self._ahead
            self._ahead = min(2 * self._ahead, self._limits.longest_run) if follows else 1
            self._end = number + self._ahead
            return [n for n in range(number, min(self._end, self.count)) if n == number or self._find(n) is None]


def _join_runs(numbers: Iterable[int], longest: int) -> list[tuple[int, int]]:
    """Join blocks in order, with small gaps, to runs (first, count) of at most `longest` blocks."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        # Up to two unwanted blocks between wanted ones come along, which is cheaper than another request.
        if runs and number <= sum(runs[-1]) + 2 and number - runs[-1][0] < longest:
            runs[-1] = runs[-1][0], number - runs[-1][0] + 1
        else:
            runs.append((number, 1))
    return runs
