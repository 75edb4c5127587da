"""One HDF5 file in the daemon: chunk bytes are read directly, its structure by a child process.

The descriptor and the child are given back when unused. Every question and every read names the version of the file that
it is about, and raises Stale if the file has changed. Not here: what the answers mean (`answers.py`), how a child is run
and restarted (`children/`).
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, TypeVar

from fsbridge import asking
from fsbridge.asking import WouldWait
from fsbridge.children.client import ChildDied, ChildProcess
from fsbridge.children.starting import Program
from fsbridge.children.supervisor import AVOIDED_SECONDS, Supervisor
from fsbridge.config import MIB, Config
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TimedOut, Unreachable
from fsbridge.formats.hdf5 import filters
from fsbridge.formats.hdf5.versions import DataFile, DataVersion, shows_later_changes
from fsbridge.formats.shared import Shared, SharedPart
from fsbridge.store import Stat
from fsbridge.threads import starting
from fsbridge.threads.deadlines import Deadline, Stopwatch

T = TypeVar("T")
StartChild: TypeAlias = Callable[[Program, Sequence[str], int], ChildProcess]
"""Starts a child: its program, the paths that it may open, its bytes of virtual memory."""

log = logging.getLogger(__name__)

ADDRESS_SPACE_BYTES = 2 << 30
"""Bytes of virtual memory of a child beside two chunks: h5py and numpy take 0.6 GiB, HDF5's metadata the rest."""
BRIEF = frozenset({"open", "names", "group", "node", "attributes", "attribute_names", "attribute"})
"""Questions that are answered within `HDF5Limits.computing_seconds`."""


@dataclass(frozen=True, slots=True)
class HDF5Limits:
    """What the HDF5 files of a mount may use, all together or each."""

    children: int = 16
    """Most child processes at a time, for all files together. Each takes some MiB beyond what all share."""
    descriptors: int = 128
    """Most open data files at a time, for all files together. The usual limit of a process is 1024."""
    computing_seconds: float = 5.0
    """CPU seconds of a child for a brief question, because damage can make HDF5 loop.

    Brief questions take milliseconds; a first reference among 100,000 objects takes 2 s. Three attempts in a row, each with
    half the time of the one before, end within the deadline for metadata.
    """
    avoided_seconds: float = AVOIDED_SECONDS
    """Seconds for which a question, or a version of a file, that ended children is not tried again."""
    idle_seconds: float = 15.0
    """Seconds without use after which blocks and processes of remote files are dropped. A few requests bring them back."""
    slab_bytes: int = 4 * MIB
    """Bytes of one slab of data that the file itself does not cut: large enough to read fast, small enough to cache."""


class IdleTimer:
    """Calls `give_back`, on a thread of its own, when there was no use for some seconds.

    If that returns False, it is called again later.
    """

    def __init__(self, give_back: Callable[[], bool], seconds: float) -> None:
        self._seconds = seconds
        self._give_back = give_back
        self._lock = threading.Lock()
        self._since = Stopwatch()
        self._waiting = False

    def note_use(self) -> None:
        """Note a use."""
        with self._lock:
            self._since.restart()
            if self._waiting:
                return
            self._waiting = True
        starting.later(self._seconds, self._look, "fsbridge-idle")

    def _look(self) -> None:
        with self._lock:
            left = self._seconds - self._since.seconds
            self._waiting = left > 0
        if left > 0:
            starting.later(left, self._look, "fsbridge-idle")
        elif not self._give_back():
            self.note_use()


class _View(NamedTuple):
    """The version that a child has open."""

    child: ChildProcess
    identity: Hashable
    version: Hashable
    lasts: bool
    """False if the file may have been rewritten within one tick of its clock, so that a change would not show."""


class _Failure(NamedTuple):
    """The error of opening a version of the file. Opening is not tried again until `rest` has passed."""

    version: Hashable
    error: FsbridgeError
    rest: Deadline


class HDF5File:
    """An HDF5 file. `path` is its path or URL. Thread-safe; every method may block."""

    def __init__(self, data: DataFile, config: Config, shared: Shared | None = None) -> None:
        """`shared`: what all sources of the mount share; None for a file by itself."""
        self.data = data
        self.shared = shared or Shared()
        self._pools = self.shared.of(Pools)
        self.limits = self._pools.limits
        self.path = data.name
        self.config = config
        self._lock = threading.Lock()
        self._data_version: DataVersion | None = None
        self._latest: Hashable = None
        self.supervisor = Supervisor(self.path, self._start, self.limits.avoided_seconds)
        self._view: _View | None = None
        self._failure: _Failure | None = None
        self._died_opening: Hashable = None
        self._logged: set[str] = set()
        self._family: dict[str, HDF5File] = {self.path: self}
        self._rest = IdleTimer(self.rest_child, self.limits.idle_seconds)
        self._kept: dict[type, object] = {}

    def current(self) -> DataVersion:
        """Return the current version of the file. Raises Stale if a file that was open once is missing."""
        try:
            return self._current()
        except NotFound:
            if (
                self._latest is not None
            ):  # it is hidden rather than absent: `rsync --delete` must not take the file for empty
                raise Stale(f"{self.path}: no longer there") from None
            raise

    def _current(self) -> DataVersion:
        asking.before_waiting()
        stat = self.data.look()
        with self._lock:
            if self._data_version is None or self._data_version.stat.version != stat.version:
                self._data_version = self.data.open(stat)
            else:
                self._data_version.stat = self._data_version.stat._replace(settled=stat.settled)
            data_version = self._data_version
            changed = self._latest != data_version.stat.version
            self._latest = data_version.stat.version
        if changed:
            self.supervisor.forgive()
        self._pools.descriptors.use(self)
        return data_version

    def version(self, version: Hashable) -> DataVersion:
        """Return the file if it still has that version. Raises Stale otherwise.

        For a thread that may not wait, not even for a lock: raises WouldWait unless that version is open and current.
        """
        if not asking.context.may_wait:
            known = self._data_version
            if known is None or known.stat.version != version or (stat := self.data.look()).version != version:
                raise WouldWait
            known.stat = known.stat._replace(settled=stat.settled)
            return known
        data_version = self.current()
        if data_version.stat.version != version:
            raise Stale(f"{self.path}: changed")
        return data_version

    def ask(
        self, question: dict[str, Any], *, version: Hashable = None, limit: int = 0, seconds: float | None = None
    ) -> tuple[dict[str, Any], list[bytearray], Stat]:
        """Return the child's answer, its attachments (at most `limit` bytes), and the stat of the file that was asked.

        With `version` only that version is asked, or Stale is raised. Raises what `Supervisor.ask` does.
        """
        asking.before_waiting()
        seconds = self.config.read_deadline if seconds is None else seconds
        for _ in range(3):  # while the file keeps changing
            data_version = self.current() if version is None else self.version(version)
            try:
                answer, attachments = self._ask(data_version, question, limit, seconds)
                data_version.check()
                return answer, attachments, data_version.stat
            except (Unreachable, TimedOut):
                raise  # this says nothing about the file
            except FsbridgeError as error:
                if not isinstance(error, Stale) and data_version.unchanged and self._is_newest(data_version):
                    raise
                self.supervisor.forgive()  # the change may be what ended the child
        raise Stale(f"{self.path}: changes faster than it can be read")

    def _is_newest(self, data_version: DataVersion) -> bool:
        """Return False if the path now names another version of the file.

        An error then says nothing about this version: its child may have been ended to open the other one.
        """
        try:
            return self.current() is data_version
        except (NotFound, Stale):
            return True

    def open_sibling(self, path: str) -> HDF5File:
        """Return another file that links of this one lead to: one object for each path, closed together."""
        other = self._family.get(path)
        if other is None:
            other = HDF5File(self.data.other(path, self.config.allow_external), self.config, self.shared)
            other.data.look()  # a missing file is not kept, because links can name any number of them
            other._family = self._family
            other = self._family.setdefault(path, other)
        return other

    def forget_child(self) -> None:
        """Make the next question open the file again, because other files that belong to it have changed."""
        self._view = None

    def remark(self, text: str) -> None:
        """Log one line about this file, once."""
        # At most 1000 lines are remembered.
        if text not in self._logged and len(self._logged) < 1000:
            self._logged.add(text)
            log.warning("%s: %s", self.path, text)

    def keep(self, kind: type[T], make: Callable[[], T]) -> T:
        """Return another module's object for this file, made by `make`; the same object until `drop_kept`."""
        value = self._kept.get(kind) or self._kept.setdefault(kind, make())
        assert isinstance(value, kind)
        return value

    def drop_kept(self) -> None:
        """Forget all objects of `keep`. Called when the file is closed or has been idle for long."""
        self._kept.clear()

    @property
    def family(self) -> frozenset[HDF5File]:
        """The file itself and those that its links lead to."""
        return frozenset(self._family.values())

    def close(self) -> None:
        """End the children and close the descriptors of this file and its siblings. The next use opens them again."""
        for file in list(self._family.values()):
            self._pools.children.drop(file)
            self._pools.descriptors.drop(file)
            file._rest_descriptor()
            file.supervisor.close()

    # ---- the child

    def _ask(
        self, data_version: DataVersion, question: dict[str, Any], limit: int, seconds: float
    ) -> tuple[dict[str, Any], list[bytearray]]:
        failure, view = self._failure, self._view
        if failure is not None and failure.version == data_version.stat.version and not failure.rest.passed:
            raise failure.error.anew()
        if view is not None and view.identity != data_version.identity:
            self.supervisor.close()  # its confinement names the previous file
        self._pools.children.use(self)
        if data_version.supply is not None:  # it holds blocks of a remote file
            self._rest.note_use()
        if question["op"] in BRIEF:
            question = {**question, "computing": self.limits.computing_seconds}
        question = {**question, "version": _number_of(data_version)}
        subject = f"{question['op']} {'/'.join(question.get('path', []))} {question.get('what', '')}".rstrip()
        part = f" at {question['start']}" if question["op"] == "read" else ""  # a chunk
        return self.supervisor.ask(
            question,
            subject,
            limit,
            seconds,
            lambda child: self._show(child, data_version, seconds),
            data_version.supply,
            part,
        )

    def _show(self, child: ChildProcess, data_version: DataVersion, seconds: float) -> None:
        """Let the child open this version of the file, unless the child has it open already.

        A version that cannot be opened is not retried soon.
        """
        view = self._view
        if view is not None and view.child is child and view.version == data_version.stat.version and view.lasts:
            return
        lasts = data_version.supply is not None or shows_later_changes(data_version.stat)
        question = {
            "op": "open",
            "computing": self.limits.computing_seconds,
            "path": self.path,
            "version": _number_of(data_version),
            "allowed": [os.path.realpath(folder) for folder in self.config.allow_external],
            **data_version.opening,
        }
        try:
            child.ask(question, 0, seconds, supply=data_version.supply)
        except ChildDied as error:
            if self._died_opening != data_version.stat.version:
                self._died_opening = data_version.stat.version
                raise
            # Perhaps the file is not the cause.
            raise self._fail(data_version, f"open: {error}", self.limits.avoided_seconds) from None
        except CorruptData as error:
            if data_version.unchanged:
                raise self._fail(data_version, str(error)) from None
            raise
        except FsbridgeError:
            child.close()  # it may only be allowed to open the file that was there when it started
            raise
        self._died_opening = None
        self._view = _View(child, data_version.identity, data_version.stat.version, lasts)

    def _fail(self, data_version: DataVersion, reason: str, seconds: float = math.inf) -> CorruptData:
        failure = CorruptData(f"{self.path}: {reason}")
        self._failure = _Failure(data_version.stat.version, failure.anew(), Deadline(seconds))
        return failure

    def _start(self) -> ChildProcess:
        folders = [folder for folder in self.config.allow_external if os.path.isdir(folder)]
        named = self.config.hdf5_plugins
        readable = [*self.data.readable, *folders, *filters.find_readable(named)]
        child = self._pools.start(filters.make_program(named), readable, ADDRESS_SPACE_BYTES + 2 * self.config.max_chunk)
        if not child.confined:
            self._pools.say_once("this kernel has no Landlock: HDF5 processes are not confined to their files")
        return child

    def rest_child(self) -> bool:
        """End the child unless it is at work. For the pool."""
        return self.supervisor.rest()

    def _rest_descriptor(self) -> bool:
        with self._lock:
            self._data_version = None
        return True


def _number_of(data_version: DataVersion) -> int:
    """Return a number that identifies a version in questions to a child.

    The child may have been given another version since it opened this one.
    """
    return hash(data_version.stat.version)


class _Recent:
    """The files that hold a resource, least recently used first. Those above the limit are asked to give it back."""

    def __init__(self, limit: int, rest: Callable[[HDF5File], bool]) -> None:
        self._limit = limit
        self._rest = rest
        self._lock = threading.Lock()
        self._files: OrderedDict[HDF5File, None] = OrderedDict()

    def use(self, file: HDF5File) -> None:
        """Note that `file` holds the resource and uses it now."""
        with self._lock:
            self._files[file] = None
            self._files.move_to_end(file)
            excess = len(self._files) - self._limit
            surplus = [] if excess <= 0 else [old for old in islice(self._files, excess) if old is not file]
        for old in surplus:
            if self._rest(old):
                self.drop(old)

    def files(self) -> list[HDF5File]:
        """Return the files that hold the resource."""
        with self._lock:
            return list(self._files)

    def drop(self, file: HDF5File) -> None:
        """Note that `file` holds the resource no longer."""
        with self._lock:
            self._files.pop(file, None)


class Pools(SharedPart):
    """The files of a mount that hold a child process, and those that hold a descriptor."""

    def __init__(self, limits: HDF5Limits | None = None, start: StartChild = ChildProcess) -> None:
        """`start` starts a child process for a file."""
        self.limits = limits or HDF5Limits()
        self.start = start
        self.children = _Recent(self.limits.children, HDF5File.rest_child)
        self.descriptors = _Recent(self.limits.descriptors, HDF5File._rest_descriptor)
        self._said: set[str] = set()

    def close(self) -> None:
        for file in (*self.children.files(), *self.descriptors.files()):
            file.close()

    def say_once(self, text: str) -> None:
        """Log a line that is not about one file, once for the mount."""
        if text not in self._said:
            self._said.add(text)
            log.warning("%s", text)
