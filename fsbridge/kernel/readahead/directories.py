"""Read-ahead of directories: a program (a visitor) that enters a directory's first members will enter the next ones.

What directories contain is read for many siblings in one job. A store on a disk mostly computes: its directories are read
when a visitor comes to one that was not read, because a thread beside the event loop would only slow that down. A remote
store mostly waits: its directories are read before a visitor comes to them. Not here: what was read
(`directories.py`), read-ahead within a long listing (`__init__.py`) and of files (`files.py`).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, cast

import trio

from fsbridge.errors import FsbridgeError
from fsbridge.kernel.ages import Ages
from fsbridge.kernel.directories import Directories, read_directory, read_numbered, read_record, read_tree
from fsbridge.kernel.handles import READING_CHUNKS, Reading
from fsbridge.kernel.inodes import InodeTable
from fsbridge.kernel.jobs import Jobs
from fsbridge.kernel.records import HELD, Record
from fsbridge.threads.deadlines import Stopwatch
from fsbridge.threads.workers import Workers
from fsbridge.tree import Directory

MAX_WALKS = 64
"""Number of directories in which visitors are followed from member to member at the same time."""

DEPTH_DIRECTORIES, DEPTH_SECONDS = 64, 0.05
"""Most directories that are read ahead of one visitor, and most seconds that this may take where members have names.

The seconds let only few HDF5 files be read ahead. If more were, their children would have ended before the visitor comes.
"""

WAITING_SECONDS = 0.003
"""If reading a directory takes more seconds than this, and half of them are waiting, several threads read ahead."""

GAP_DIRECTORIES = 4
"""Members that a visitor may leave out and still be followed: chunk directories may not exist."""

AT_A_TIME_SECONDS = 0.01
"""Most seconds for which one job reads directories while its visitor waits for the first of them."""

PATIENCE_SECONDS = 0.1
"""Seconds that a request waits for a directory that is being read ahead, before it reads the directory itself."""

BESIDE_MEMBERS, BESIDE_DIRECTORIES = 256, 8
"""Number of members from which on a directory keeps the kernel busy while the next ones are read, and how many are read."""

MAX_VISITORS = 8
"""Visitors of one level of directories that are followed at once."""

_Ahead: TypeAlias = tuple[int, Callable[[], "Reading | None"]]
"""The inode of a directory, and what reads it."""


class _Visitor:
    __slots__ = ("hits", "last", "stop")

    def __init__(self, position: int) -> None:
        self.last = position
        self.stop = position + 1  # all before it have been read, or were passed
        self.hits = 0


class Runs:
    """The visitors of an array's chunk directories at `positions`, which are all of one depth.

    They are numbered, not named. Neighbours have neighbouring numbers, also where they hang in different directories.
    """

    def __init__(self, positions: range) -> None:
        self._positions = positions
        self._visitors: list[_Visitor] = []  # the latest visitor is the last

    def entered(self, position: int) -> range:
        """Return the directories to read now that the one at `position`, which has not been read, is entered."""
        visitor = min(
            (found for found in self._visitors if found.last <= position <= found.stop + GAP_DIRECTORIES),
            key=lambda found: position - found.last,
            default=None,
        )
        if visitor is None:
            self._visitors = [*self._visitors[1 - MAX_VISITORS :], _Visitor(position)]
            return range(0)
        if position == visitor.last:
            return range(0)
        visitor.last = position
        visitor.hits += 1
        depth = min(DEPTH_DIRECTORIES, 1 << min(visitor.hits, 20))
        visitor.stop = min(position + 1 + depth, self._positions.stop)
        return range(position, visitor.stop)

    def passed(self, position: int) -> range:
        """Return the directories to read while the kernel is busy with the present one, if directories are large.

        The directory at `position` is being entered, and was read before.
        """
        for visitor in self._visitors:
            if visitor.last < position <= visitor.stop + GAP_DIRECTORIES:
                visitor.last = position
                visitor.stop = max(visitor.stop, min(position + 1 + BESIDE_DIRECTORIES, self._positions.stop))
                return range(position + 1, min(position + 1 + BESIDE_DIRECTORIES, self._positions.stop))
        return range(0)


class _Walk:
    """One directory with members that are entered one after the other, in the order of its listing or of their names."""

    __slots__ = ("_hits", "_last", "_most", "_order", "_orders", "_positions", "_read", "waits")

    def __init__(self, names: list[bytes], waits: bool = False) -> None:
        self._order = names
        self._orders = [names]  # the other one is made when it is first needed
        self._positions: list[dict[bytes, int]] = []
        self._last = -1  # the position that was entered last
        self._read = 0  # all before it have been read, or were passed
        self._hits = 0
        self._most = DEPTH_DIRECTORIES
        self.waits = waits
        """True if reading a member is mostly waiting."""

    def took(self, seconds: float, worked: float = 0.0, left: int = 0) -> None:
        """Note how long it took to read one member of a batch: `seconds`, and in `worked` the processor time.

        `left`: how many members at the end of the batch were not read.
        """
        self._read = max(self._last + 1, self._read - left)
        self.waits = seconds > max(WAITING_SECONDS, 2 * worked)
        self._most = max(1, min(DEPTH_DIRECTORIES, int(DEPTH_SECONDS / max(seconds, 1e-6))))

    def next(self, name: bytes, missing: bool) -> Sequence[bytes]:
        """Note that the member `name` is entered, and return the members to read now.

        `missing`: True if `name` itself has not been read yet. While `waits` is False, this need not be called for members
        that have been read.
        """
        if not (self.waits or missing):
            return ()
        following = self._last + 1 if self.waits else self._read
        if not (0 < following < len(self._order) and self._order[following] == name):
            following = self._find(name)
        self._last = following
        depth = min(self._most, 1 << min(self._hits, 20)) if self._hits else 0
        self._hits += 1
        if not self.waits:
            self._read = following + 1 + depth
            return self._order[following : self._read] if depth else ()
        first = max(self._read, following + 1)
        end = min(following + 1 + depth, len(self._order))
        if end - first < (depth + 1) // 2 and end < len(self._order):
            return ()  # not yet worth a job
        self._read = max(first, end)
        return self._order[first:end]

    def _find(self, name: bytes) -> int:
        """Return the position of the member `name`, which is not the expected next one.

        The position is one in `_order`, which becomes the order by name if that fits the visitor better.
        """
        if not self._positions:
            self._orders.append(sorted(self._order))
            self._positions = [{member: at for at, member in enumerate(order)} for order in self._orders]
        last = self._order[self._last] if self._last >= 0 else None
        ways = zip(self._orders, self._positions, strict=True)
        for order, positions in sorted(ways, key=lambda way: way[0] is not self._order):
            found, before = positions.get(name, -1), -1 if last is None else positions[last]
            after = before + 1 if self.waits or order is not self._order else max(before + 1, self._read)
            if last is not None and before < found <= after + GAP_DIRECTORIES:
                if order is not self._order:  # if this is by chance, the next member restores the order
                    self._order, self._read = order, found
                return found
        self._order, self._hits, self._read = self._orders[0], 0, 0
        return self._positions[0].get(name, -1)


class _Numbered:
    """The programs that walk through the chunk directories of one space, by level, and what was read ahead for them."""

    __slots__ = ("large", "levels", "unvisited")

    def __init__(self) -> None:
        self.large = False
        """True if each directory keeps the kernel busy for long enough to read the next one in parallel."""
        self.levels: dict[int, Runs] = {}
        self.unvisited: set[int] = set()
        """Inodes read ahead and not entered yet. The kernel may not know them, so it may never send a `forget` for them."""


class Walks:
    """The programs that walk through the tree, and what is being read for them. For the event loop's thread."""

    def __init__(
        self,
        inodes: InodeTable,
        directories: Directories,
        jobs: Jobs,
        thread: Workers,
        threads: Workers,
        ages: Ages,
        remote: bool,
    ) -> None:
        """Take what read-ahead needs; the directories it reads are handed to `directories`.

        `thread`: one thread for reads that only compute, because two would slow each other and the event loop down.
        `threads`: for reads that mostly wait. `remote`: True if all reads wait for a server. Then each directory is a job of
        its own, and chunk directories are not read ahead, because listing them takes further requests to the server.
        """
        self._remote = remote
        self._inodes = inodes
        self._directories = directories
        self._thread = thread
        self._threads = threads
        self._jobs = jobs
        self._ages = ages
        self._walks: OrderedDict[int, _Walk] = OrderedDict()
        self._awaited: dict[int, trio.Event | None] = {}  # inodes being read ahead; what their visitors wait for
        self._numbered: OrderedDict[int, _Numbered] = OrderedDict()  # by the first number of the range
        self._unvisited: dict[int, _Numbered] = {}
        self._waits = remote  # true if any walk waits

    def __len__(self) -> int:
        return len(self._walks) + len(self._awaited) + len(self._numbered)

    def forget(self, inode: int) -> None:
        """Forget an inode that the kernel has dropped."""
        self._walks.pop(inode, None)

    def forget_space(self, base: int) -> None:
        """Forget the visitors of the space with the range at `base`: the kernel has forgotten it, or it was parked."""
        numbered = self._numbered.pop(base, None)
        if numbered is not None:
            for inode in numbered.unvisited:
                self._unvisited.pop(inode, None)
                self._directories.forget(inode)

    def clear(self) -> None:
        """Forget what was read ahead of numbered directories."""
        self._numbered.clear()
        self._unvisited.clear()

    async def entered(self, inode: int, known: bool) -> None:
        """Have the directories read that the visitor of `inode` will want next.

        `known`: the contents of `inode` are in memory. If the directory itself is being read ahead, waits for that, but
        not for long.
        """
        large = False
        if self._unvisited and (numbered := self._unvisited.pop(inode, None)) is not None:
            numbered.unvisited.discard(inode)
            large = numbered.large
        if not known or large or (self._waits and self._is_counted(inode)):
            self._read_next(inode, not known)
        if not known:
            await self._arrival(inode)

    def _is_counted(self, inode: int) -> bool:
        """True if the directory's walk must also be told of steps to directories that were read already."""
        record = self._inodes.record(inode)
        walk = None if record is None else self._walks.get(record.parent)
        return self._remote if walk is None else walk.waits

    async def _arrival(self, inode: int) -> None:
        """Wait for a directory that is being read ahead, but not for long."""
        if inode not in self._awaited:
            return
        event = self._awaited[inode]
        if event is None:
            event = self._awaited[inode] = trio.Event()
        with trio.move_on_after(PATIENCE_SECONDS):
            await event.wait()

    def _read_next(self, inode: int, missing: bool) -> None:
        """Have workers read what the visitor of a directory will probably want next.

        `missing`: the directory itself has not been read, and is read first.
        """
        record = self._inodes.record(inode)
        if record is None:
            found, apart = self._next_numbered(inode, missing)
            threads = self._thread
        else:
            found = self._next_named(record, missing)
            walk = self._walks.get(record.parent)
            apart = self._remote or (walk is not None and walk.waits)
            threads = self._threads if apart else self._thread
        batch = [ahead for ahead in found if ahead[0] not in self._awaited and self._directories.known(ahead[0]) is None]
        if batch:
            self._awaited.update((number, None) for number, _ in batch)
            for job in [[ahead] for ahead in batch] if apart else [batch]:
                threads.submit(partial(self._read_ahead, job), partial(self._over, job))

    def _next_named(self, record: Record, missing: bool) -> list[_Ahead]:
        walk = self._walks.get(record.parent) or self._begin(record.parent)
        if walk is None:
            return []
        self._walks.move_to_end(record.parent)
        read = partial(read_directory if self._remote else read_tree, self._ages)
        members = [self._inodes.member(record.parent, name) for name in walk.next(record.name, missing)]
        for member in members:
            if member is not None and not member.is_open:
                self._directories.recall(member.inode, member.name)
        return [(member.inode, partial(read_record, member, read)) for member in members if member is not None]

    def _next_numbered(self, inode: int, missing: bool) -> tuple[list[_Ahead], bool]:
        """Return the numbered directories to read, and whether each of them is worth a separate job."""
        node = self._directories.find(inode)
        if self._remote or isinstance(node, HELD) or node.slot is None:
            return [], False
        space, position = node.slot
        level, members = space.level(position), cast(Directory, node).extent
        if len(level) < 2 or members > READING_CHUNKS:
            return [], False
        base = inode - position
        numbered = self._numbered.get(base)
        if numbered is None:
            numbered = self._numbered[base] = _Numbered()
            if len(self._numbered) > MAX_WALKS:
                self.forget_space(next(iter(self._numbered)))
        self._numbered.move_to_end(base)
        numbered.large = members >= BESIDE_MEMBERS
        runs = numbered.levels.get(level.start) or numbered.levels.setdefault(level.start, Runs(level))
        next_ones = runs.entered(position) if missing else runs.passed(position)
        for number in next_ones:
            if number != position:
                numbered.unvisited.add(base + number)
                self._unvisited[base + number] = numbered
        return [(base + number, partial(read_numbered, self._ages, space, number)) for number in next_ones], numbered.large

    def _begin(self, parent: int) -> _Walk | None:
        reading = self._directories.known(parent)
        if reading is None:
            return None
        names = [
            name
            for batch in reading.batches
            for name, attrs, node, _ in batch
            if attrs.kind == "directory" and not isinstance(node, int)
        ]
        if len(names) < 2:
            return None
        walk = self._walks[parent] = _Walk(names, self._remote)
        if len(self._walks) > MAX_WALKS:
            self._walks.popitem(last=False)
        return walk

    def _read_ahead(self, batch: Sequence[_Ahead]) -> None:
        """Read several directories, on one of the idle threads.

        Failures are left to the request that asks for the directory.
        """
        done: list[tuple[int, Reading]] = []
        begun, worked, read = Stopwatch(), time.thread_time(), 0
        try:
            for inode, reader in batch:
                read += 1
                try:
                    reading = reader()
                except (FsbridgeError, OSError):
                    continue
                if reading is not None:
                    done.append((inode, reading))
                if begun.seconds > AT_A_TIME_SECONDS:
                    break
        finally:
            spent = begun.seconds / read, (time.thread_time() - worked) / read
            self._jobs.on_loop(partial(self._arrived, batch, done, *spent, len(batch) - read))

    def _over(self, batch: Sequence[_Ahead]) -> None:
        """Wake the requests that wait for `batch`, because the job for it was dropped."""
        self._jobs.on_loop(partial(self._tell, [inode for inode, _ in batch]))

    def _arrived(
        self,
        batch: Sequence[_Ahead],
        done: Sequence[tuple[int, Reading]],
        seconds: float,
        worked: float = 0.0,
        left: int = 0,
    ) -> None:
        """Keep directories that were read ahead; `seconds`, `worked` and `left` as for `_Walk.took`."""
        for inode, reading in done:
            self._directories.remember(inode, reading)
        self._tell([inode for inode, _ in batch])
        record = self._inodes.record(batch[0][0])
        walk = None if record is None else self._walks.get(record.parent)
        if walk is not None and not self._remote:  # there many are waited for at a time, however long one takes
            walk.took(seconds, worked, left)
            self._waits = any(walk.waits for walk in self._walks.values())

    def _tell(self, inodes: Sequence[int]) -> None:
        for inode in inodes:
            event = self._awaited.pop(inode, None)
            if event is not None:
                event.set()
