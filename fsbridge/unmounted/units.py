"""Long work over sources, cut into units, and the groups and arrays that it walks through.

This module decides which units are this job's, which workers do them, and in which order their results are joined.
`Threads` does units here, `cluster.py` on other machines. Not here: any kind of work (`exporting.py`, `verifying.py`,
`digest.py`, `comparing.py`), progress and messages (`commands/long_work.py`).
"""

from __future__ import annotations

import math
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar, cast
from zlib import crc32

from fsbridge.config import Config
from fsbridge.errors import FsbridgeError, NotFound, TooDeep
from fsbridge.links import follow
from fsbridge.lru import LRU
from fsbridge.model import Array, Child, Group, Link, Node, OtherFile, as_array
from fsbridge.threads.deadlines import Deadline
from fsbridge.tree import escape, unescape
from fsbridge.unmounted import VirtualTree, split


@dataclass(frozen=True, slots=True)
class OrderedMember:
    """A group or an array, or the error of what cannot be opened. `path` is that of the mount, from `/`.

    `others`: the other files of a group.
    """

    path: str
    node: Group | Array | None
    error: Exception | None = None
    others: Sequence[OtherFile] = ()

    def other_files(self) -> Iterator[OtherFile]:
        """Yield the other files in the directory of the group or array."""
        array = None if self.node is None else as_array(self.node)
        return iter(self.others) if array is None else chain.from_iterable(array.other_files())


def members(
    tree: VirtualTree, path: str = "", linked: Callable[[str, Link], object] = lambda path, link: None
) -> Iterator[OrderedMember]:
    """Yield the group or array at `path` and all below it, in the order of their names; links are not followed.

    `linked` gets the path of each link, and the link.
    """
    node = find_member(tree, path)
    yield from _below("/" + "/".join(os.fsdecode(name) for name in split(path)), node, tree.config.limits.depth, linked)


def follow_link(tree: VirtualTree, path: str, link: Link) -> Group | Array:
    """Return what a link at `path` leads to. Raises the errors of `links.follow`."""
    names = [name for name in map(unescape, split(path)[:-1]) if name is not None]
    return follow(tree.source.root, names, link.target).node


def find_member(tree: VirtualTree, path: str) -> Group | Array:
    """Return the group or array at `path`, as `members` names it; NotFound if there is none."""
    node: Node = tree.source.root
    for name in split(path):
        model = unescape(name)
        if model is None or as_array(node) is not None:
            raise NotFound("no such group or array")
        node = cast(Group, node).child(model)
    if isinstance(node, Link):
        raise NotFound(f"a link to {node.target}: name its target instead")
    return node


def _below(path: str, node: Group | Array, depth: int, linked: Callable[[str, Link], object]) -> Iterator[OrderedMember]:
    if (array := as_array(node)) is not None:
        yield OrderedMember(path, array)
        return
    group, others, problem = cast(Group, node), list[OtherFile](), None
    children: list[Child] = []
    try:
        if depth < 0:
            raise TooDeep("too many nested groups")
        children = sorted(group.listing(others.append), key=_encode_name)
    except (FsbridgeError, OSError) as error:
        problem = error
    yield OrderedMember(path, group, None, sorted(others))
    if problem is not None:
        yield OrderedMember(path, None, problem)
    for child in children:
        below = f"{path.rstrip('/')}/{child.name!a}"
        try:
            below = f"{path.rstrip('/')}/{os.fsdecode(escape(child.name))}"
            member = Link(child.link) if child.link is not None else group.child(child.name)
        except (FsbridgeError, OSError) as error:
            yield OrderedMember(below, None, error)
            continue
        if isinstance(member, Link):
            linked(below, member)
        else:
            yield from _below(below, member, depth - 1, linked)


def shown_path(path: str, name: str) -> str:
    """Return the path of what is called `name` in the directory at `path`, also if no file can have the name."""
    try:
        return f"{path.rstrip('/')}/{os.fsdecode(escape(name))}"
    except FsbridgeError:
        return f"{path.rstrip('/')}/{name!a}"


def _encode_name(child: Child) -> bytes:
    """Return the key that sorts members: the file name, if the member can have one."""
    try:
        return escape(child.name)
    except FsbridgeError:
        return child.name.encode("utf-8", "backslashreplace")


UNIT_BYTES = 16 << 20
"""Approximate decoded bytes of a unit: enough to be worth handing over, few enough for many workers to share the work.

A unit is larger if a band of chunks, or a chunk, is only read as a whole."""

PIECE_BYTES = 4 << 20
"""Bytes of a stored file that are read at a time."""

UNIT_ITEMS = 1024
"""Most files or chunks of a unit, however small they are."""

WAITING = 8
"""Most units for each thread that are handed over, or are done and wait for the result of an earlier unit."""

KEPT = 64
"""Most opened arrays and files that are kept for later units of the same array or file."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Unit:
    """Work for one thread of any machine. `path`: its subject, for messages; `size`: its bytes, for the progress."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class OtherUnit(Unit):
    """The file `name` in the directory of the group or array at `directory` of a source. It belongs to no array or group."""

    source: int
    directory: str
    name: str

    def pieces(self, sources: WorkSources) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the file. NotFound if it is no longer there, Stale if it changes meanwhile."""
        stored = find_member(sources.tree(self.source), self.directory).other_file(self.name)
        if stored is None:
            raise NotFound("no longer there")
        stored.settled()
        for start in range(0, stored.size, PIECE_BYTES):
            if sources.ended:
                raise FsbridgeError("interrupted")
            yield stored.read(start, min(PIECE_BYTES, stored.size - start))
        stored.settled()


def other_units(source: int, member: OrderedMember) -> Iterator[OtherUnit]:
    """Yield a unit for each other file of a group or array."""
    for file in member.other_files():
        yield OtherUnit(shown_path(member.path, file.name), file.size or 0, source, member.path, file.name)


U = TypeVar("U", bound=Unit)


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark that needs no work. `say` is called after the results of the units before it have been joined."""

    say: Callable[[], object]


@dataclass(frozen=True, slots=True)
class JobPart:
    """Every `count`-th unit of work, from the `number`-th on: one of several jobs that share it."""

    number: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """True if this job also does the work that belongs to no unit."""
        return not self.number

    def has(self, number: int) -> bool:
        """True if a unit of that number is this job's."""
        return number % self.count == self.number

    def has_named(self, name: str) -> bool:
        """True if a unit without a number is this job's. Its name decides, because jobs may see different neighbours."""
        return self.count == 1 or self.has(crc32(name.encode("utf-8", "surrogateescape")))


WHOLE = JobPart()
"""All units, for one job."""


class Watcher(Protocol):
    """Is told of work on files of a size that no listing tells, so that `Unit.size` lacks it. Any thread may call it."""

    def begun(self, size: int) -> None:
        """Note that a file of this size has been opened."""

    def done(self, path: str, count: int) -> None:
        """Note that `count` further bytes of the file at `path` are done."""


class WorkSources:
    """Sources opened in this process. A pickled copy opens them again in the process that unpickles it. Thread-safe."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self.configs = tuple(configs)
        self.ended = False
        """True if the results are no longer wanted: work ends at the next opportunity."""
        self.watcher: Watcher | None = None
        """None in other processes: they tell of a file when it is whole."""
        self._opening = threading.Lock()
        self._trees: dict[int, VirtualTree] = {}
        self._kept: LRU[Hashable, object] = LRU(KEPT)

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkSources, (self.configs,)

    def tree(self, number: int = 0) -> VirtualTree:
        """Return the tree of source `number`; SetupError if it cannot be opened."""
        with self._opening:
            if number not in self._trees:
                self._trees[number] = VirtualTree(self.configs[number])
            return self._trees[number]

    def array(self, number: int, path: str) -> Array:
        """Return the array at a path of source `number`: the same version for all units, as far as there is room."""
        return self.keep(("array", number, path), lambda: self._array(number, path))

    def _array(self, number: int, path: str) -> Array:
        array = as_array(find_member(self.tree(number), path))
        if array is None:
            raise FsbridgeError(f"{path}: no longer an array")
        return array

    def keep(self, key: Hashable, make: Callable[[], T], anew: bool = False) -> T:
        """Return what `make` makes, kept for later calls with the same `key`. `anew`: make another one and keep that."""
        kept = None if anew else self._kept.get(key)
        if kept is None:
            made = make()
            with self._opening:  # another thread may have made one meanwhile
                kept = None if anew else self._kept.get(key)
                if kept is None:
                    kept = self._kept.put(key, made)
        return cast(T, kept)

    def close(self) -> None:
        """End the work on the sources and close them."""
        self.ended = True
        with self._opening:
            trees, self._trees = self._trees, {}
        self._kept.clear()
        for tree in trees.values():
            tree.close()


class Doers(Protocol):
    """Threads, here or elsewhere, that do units of work."""

    @property
    def threads(self) -> int:
        """How many threads there are, so that enough units are submitted at a time."""

    def submit(self, do: Callable[[WorkSources, U], R], unit: U) -> Future[R]:
        """Let one of the threads do a unit, with the sources that are open where the thread runs."""

    def close(self, seconds: float | None = None) -> None:
        """Wait until the units that have begun are done, for at most so many `seconds`; None: for as long as it takes."""


class Work(ABC, Generic[U, R]):
    """One command's work. This process cuts it into units and joins the results; any machine does the units."""

    def __init__(self, sources: WorkSources, tell: Callable[[str, Exception], object], part: JobPart) -> None:
        """`tell` gets the path and the error of what cannot be done."""
        self.sources = sources
        self.tell = tell
        self.part = part

    @abstractmethod
    def units(self) -> Iterator[U | Remark]:
        """Yield the units of this job's part, and remarks to be reported between their results."""

    @staticmethod
    @abstractmethod
    def do(sources: WorkSources, unit: U) -> R:
        """Do a unit with this machine's sources."""

    @abstractmethod
    def join(self, unit: U, result: R) -> None:
        """Take the result of a unit; they come one at a time and in the order of `units`."""

    def failed(self, unit: U, error: Exception) -> None:
        """Take the error of a unit that failed. Called in place of `join`."""
        self.tell(unit.path, error)


def perform(work: Work[U, R], doers: Doers, progress: Callable[[str, int], object]) -> None:
    """Do all units. An exception that is neither fsbridge's nor an OSError ends the work."""
    waiting: deque[tuple[U, Future[R]] | Remark] = deque()
    most = WAITING * doers.threads

    def settle() -> None:
        first = waiting.popleft()
        if isinstance(first, Remark):
            first.say()
            return
        unit, future = first
        try:
            result = future.result()
        except (FsbridgeError, OSError) as error:
            work.failed(unit, error)
        else:
            work.join(unit, result)
        progress(unit.path, unit.size)

    try:
        for unit in work.units():
            if work.sources.ended:
                return
            waiting.append(unit if isinstance(unit, Remark) else (unit, doers.submit(work.do, unit)))
            while waiting and (len(waiting) >= most or isinstance(waiting[0], Remark) or waiting[0][1].done()):
                settle()
        while waiting and not work.sources.ended:
            settle()
    except BaseException:
        work.sources.ended = True
        raise
    finally:
        for left in waiting:
            if not isinstance(left, Remark):
                left[1].cancel()


class Threads:
    """Daemon threads of this process: one that waits for a server does not delay the end of the process."""

    def __init__(self, sources: WorkSources, threads: int) -> None:
        self.threads = threads
        self._sources = sources
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._running = [threading.Thread(target=self._take, name="fsbridge-unit", daemon=True) for _ in range(threads)]
        for thread in self._running:
            thread.start()

    def submit(self, do: Callable[[WorkSources, U], R], unit: U) -> Future[R]:
        """Have a thread do a unit."""
        future: Future[R] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(do(self._sources, unit))
            except BaseException as error:
                future.set_exception(error)

        self._jobs.put(job)
        return future

    def close(self, seconds: float | None = None) -> None:
        """Wait until the units that have begun are done, for at most so many `seconds`; None: for as long as it takes."""
        deadline = Deadline(math.inf if seconds is None else seconds)
        for _ in self._running:
            self._jobs.put(None)
        for thread in self._running:
            thread.join(None if seconds is None else deadline.left)

    def _take(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job
