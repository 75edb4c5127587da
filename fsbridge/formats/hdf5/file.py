"""One HDF5 file in the daemon: chunk bytes are read directly, structure by a child process; both rest when unused.

A file is always seen as of one version: every question and every read says of which, and is Stale when the file has changed
meanwhile. Not here: what the answers mean (`answers.py`), how a child is run and restarted (`children/`).
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Any, NamedTuple

from fsbridge.children.client import ChildDied, ChildProcess
from fsbridge.children.supervisor import AVOIDED_SECONDS, Supervisor
from fsbridge.config import Config
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TimedOut, Unreachable, WouldWait
from fsbridge.formats.hdf5 import plugins
from fsbridge.formats.hdf5.idle_timer import IdleTimer
from fsbridge.formats.hdf5.versions import DataFile, DataVersion, lasting
from fsbridge.store import Stat, nowait

log = logging.getLogger(__name__)

ADDRESS_SPACE_BYTES = 2 << 30
"""Bytes of virtual memory of a child beside two chunks: h5py and numpy take 0.6 GiB, HDF5's metadata the rest."""
COMPUTING_SECONDS = 5.0
"""CPU seconds of a child for one of the questions below: damage can make HDF5 go in circles.

They take milliseconds; a first reference among 100,000 objects 2 s. Three in a row, each with half of the time of the one
before, are answered within the deadline for metadata.
"""
BRIEF = frozenset({"open", "names", "group", "node", "attributes", "attribute_names", "attribute"})
LIVE_CHILDREN = 16
"""Child processes at a time, for all files together: each takes some MiB beyond what all share."""
LIVE_DESCRIPTORS = 128
"""Open data files at a time, for all files together: the usual limit of a process is 1024."""
READ_ATTEMPTS = 3
"""A question to a file that changes while it is answered is asked so often."""
MAX_LOGGED = 1000
"""Remarks on one file that are remembered so as not to be repeated."""


class _View(NamedTuple):
    """What a child has open."""

    child: ChildProcess
    identity: Hashable
    version: Hashable
    lasts: bool
    """Whether a change after it was opened shows; else the file may have been rewritten within the clock's tick."""


class _Failure(NamedTuple):
    """Why a version of the file cannot be opened, which is not tried again until then (monotonic)."""

    version: Hashable
    error: FsbridgeError
    until: float


class HDF5File:
    """An HDF5 file; `path`: its path or URL. Thread-safe; every method may block."""

    def __init__(self, data: DataFile, config: Config) -> None:
        self.data = data
        self.path = data.name
        self.config = config
        self._lock = threading.Lock()
        self._opened: DataVersion | None = None
        self._latest: Hashable = None
        self.supervisor = Supervisor(self.path, self._start)
        self._view: _View | None = None
        self._failure: _Failure | None = None
        self._died_opening: Hashable = None
        self._logged: set[str] = set()
        self._family: dict[str, HDF5File] = {self.path: self}
        self._rest = IdleTimer(self.rest_child)

    def current(self) -> DataVersion:
        """The file as it is now."""
        try:
            return self._current()
        except NotFound:
            if self._latest is not None:  # not absent but out of sight: `rsync --delete` must not take it for empty
                raise Stale(f"{self.path}: no longer there") from None
            raise

    def _current(self) -> DataVersion:
        stat = self.data.look()
        with self._lock:
            if self._opened is None or self._opened.stat.version != stat.version:
                self._opened = self.data.open(stat)
            else:
                self._opened.stat = self._opened.stat._replace(settled=stat.settled)
            opened = self._opened
            changed = self._latest != opened.stat.version
            self._latest = opened.stat.version
        if changed:
            self.supervisor.forgive()
        _descriptors.use(self)
        return opened

    def version(self, version: Hashable) -> DataVersion:
        """The file, if it is still of that version; Stale otherwise."""
        if not nowait.mode.waits:
            return self._version_at_once(version)
        opened = self.current()
        if opened.stat.version != version:
            raise Stale(f"{self.path}: changed")
        return opened

    def _version_at_once(self, version: Hashable) -> DataVersion:
        """The same without waiting, not even for a lock: WouldWait unless the file is open, and is what it was."""
        opened = self._opened
        if opened is None or opened.stat.version != version or (stat := self.data.look()).version != version:
            raise WouldWait
        opened.stat = opened.stat._replace(settled=stat.settled)
        return opened

    def ask(
        self, question: dict[str, Any], *, version: Hashable = None, limit: int = 0, seconds: float | None = None
    ) -> tuple[dict[str, Any], list[bytearray], Stat]:
        """The child's answer, its attachments (at most `limit` bytes), and the stat of the file that it speaks of.

        With `version`: of that version only, or Stale. Raises what `Supervisor.ask` does.
        """
        nowait.must_wait()
        seconds = self.config.read_deadline if seconds is None else seconds
        for _ in range(READ_ATTEMPTS):
            opened = self.current() if version is None else self.version(version)
            try:
                answer, attachments = self._ask(opened, question, limit, seconds)
                opened.check()
                return answer, attachments, opened.stat
            except (Unreachable, TimedOut):
                raise  # no answer about the file at all
            except FsbridgeError as error:
                if not isinstance(error, Stale) and opened.unchanged and self._is_newest(opened):
                    raise
                self.supervisor.forgive()  # what ended a child was perhaps the change
        raise Stale(f"{self.path}: changes faster than it can be read")

    def _is_newest(self, opened: DataVersion) -> bool:
        """Whether the path still names that very file: a child that was ended because of a newer one has not crashed."""
        try:
            return self.current() is opened
        except (NotFound, Stale):
            return True

    def sibling(self, path: str) -> HDF5File:
        """Another file that links of this one lead to: one object per path, closed together."""
        found = self._family.get(path)
        if found is None:
            found = HDF5File(self.data.other(path, self.config.allow_external), self.config)
            found.data.look()  # of a file that is not there nothing is kept: links can name as many of those as they like
            found._family = self._family
            found = self._family.setdefault(path, found)
        return found

    def forget_child(self) -> None:
        """Make the next question open the file anew: other files that belong to it have changed."""
        self._view = None

    def remark(self, text: str) -> None:
        """One log line about this file, once."""
        if text not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(text)
            log.warning("%s: %s", self.path, text)

    @property
    def family(self) -> frozenset[HDF5File]:
        """The file itself and those that its links lead to."""
        return frozenset(self._family.values())

    def close(self) -> None:
        """End the children and let go of the descriptors of this file and its siblings; the next use starts anew."""
        for file in list(self._family.values()):
            _children.drop(file)
            _descriptors.drop(file)
            file._rest_descriptor()
            file.supervisor.close()

    # ---- the child

    def _ask(
        self, opened: DataVersion, question: dict[str, Any], limit: int, seconds: float
    ) -> tuple[dict[str, Any], list[bytearray]]:
        failure, view = self._failure, self._view
        if failure is not None and failure.version == opened.stat.version and time.monotonic() < failure.until:
            raise failure.error.anew()
        if view is not None and view.identity != opened.identity:
            self.supervisor.close()  # its confinement names the file that was there
        _children.use(self)
        if opened.supply is not None:  # it holds blocks of a file elsewhere
            self._rest.used()
        if question["op"] in BRIEF:
            question = {**question, "computing": COMPUTING_SECONDS}
        question = {**question, "version": _mark(opened)}
        subject = f"{question['op']} {'/'.join(question.get('path', []))} {question.get('what', '')}".rstrip()
        part = f" at {question['start']}" if question["op"] == "read" else ""  # a chunk
        return self.supervisor.ask(
            question, subject, limit, seconds, lambda child: self._show(child, opened, seconds), opened.supply, part
        )

    def _show(self, child: ChildProcess, opened: DataVersion, seconds: float) -> None:
        """Let the child open this version of the file, unless it has. One that it cannot open is not tried again (soon)."""
        view = self._view
        if view is not None and view.child is child and view.version == opened.stat.version and view.lasts:
            return
        lasts = opened.supply is not None or lasting(opened.stat)
        question = {
            "op": "open",
            "computing": COMPUTING_SECONDS,
            "path": self.path,
            "version": _mark(opened),
            "allowed": [os.path.realpath(folder) for folder in self.config.allow_external],
            **opened.opening,
        }
        try:
            child.ask(question, 0, seconds, supply=opened.supply)
        except ChildDied as error:
            if self._died_opening != opened.stat.version:
                self._died_opening = opened.stat.version
                raise
            raise self._fail(opened, f"open: {error}", AVOIDED_SECONDS) from None  # perhaps it was not the file's fault
        except CorruptData as error:
            if opened.unchanged:
                raise self._fail(opened, str(error)) from None
            raise
        except FsbridgeError:
            child.close()  # perhaps it may only open another file that was there when it started
            raise
        self._died_opening = None
        self._view = _View(child, opened.identity, opened.stat.version, lasts)

    def _fail(self, opened: DataVersion, reason: str, seconds: float = math.inf) -> CorruptData:
        failure = CorruptData(f"{self.path}: {reason}")
        self._failure = _Failure(opened.stat.version, failure.anew(), time.monotonic() + seconds)
        return failure

    def _start(self) -> ChildProcess:
        folders = [folder for folder in self.config.allow_external if os.path.isdir(folder)]
        named = self.config.hdf5_plugins
        readable = [*self.data.readable, *folders, *plugins.readable(named)]
        child = ChildProcess(plugins.program(named), readable, ADDRESS_SPACE_BYTES + 2 * self.config.max_chunk)
        if not child.confined:
            _say_once("this kernel has no Landlock: HDF5 processes are not confined to their files")
        return child

    def rest_child(self) -> bool:
        """End the child unless it is at work; for the pool."""
        return self.supervisor.rest()

    def _rest_descriptor(self) -> bool:
        with self._lock:
            self._opened = None
        return True


def _mark(opened: DataVersion) -> int:
    """What stands for a version in questions: a child may have been shown another one since it was made ready for this."""
    return hash(opened.stat.version)


class _Recent:
    """The files that hold a resource, least recently used first; those over the limit are asked to give theirs back."""

    def __init__(self, limit: int, rest: Callable[[HDF5File], bool]) -> None:
        self._limit = limit
        self._rest = rest
        self._lock = threading.Lock()
        self._files: OrderedDict[HDF5File, None] = OrderedDict()

    def use(self, file: HDF5File) -> None:
        """`file` holds the resource and uses it now."""
        with self._lock:
            self._files[file] = None
            self._files.move_to_end(file)
            excess = len(self._files) - self._limit
            surplus = [] if excess <= 0 else [old for old in islice(self._files, excess) if old is not file]
        for old in surplus:
            if self._rest(old):
                self.drop(old)

    def drop(self, file: HDF5File) -> None:
        """`file` holds the resource no longer."""
        with self._lock:
            self._files.pop(file, None)


_children = _Recent(LIVE_CHILDREN, HDF5File.rest_child)
_descriptors = _Recent(LIVE_DESCRIPTORS, HDF5File._rest_descriptor)
_said: set[str] = set()


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        log.warning("%s", text)
