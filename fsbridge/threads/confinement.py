"""The second wall around the store (P4): threads that work for the mount may open nothing that the mount does not need.

The first wall is that stored objects are opened beneath the store's root; this one is the kernel's, where it has Landlock.
`begin` puts it up; what `start` starts afterwards is behind it, with all threads and processes that come from there. Rules
of a thread can only become stricter, and they are about what is at a path, not about the path. So a thread that is refused
something after an object at one of the paths was replaced has outdated rules: its work is Stale, it ends, and its successor
gets rules for what is there now.

In front of the wall are the event loop's thread, because a thread behind it cannot unmount (it opens stored objects too, but
with openat2 and without links), the thread that writes the log, and the processes that start children, which are confined to
fewer files still. Not here: the system calls (`landlock.py`), what a mount needs (`mount/lifecycle.py`).
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from fsbridge import landlock
from fsbridge.errors import Stale
from fsbridge.threads.parallel import Answer

log = logging.getLogger(__name__)

T = TypeVar("T")

AGAIN_SECONDS = 0.2
"""Seconds between attempts to start a thread: a container at its limit usually has room again in a moment."""
BEGUN_SECONDS = 5.0
"""Seconds after which a thread that was started and has not begun never will: it had no memory for it."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What threads may open: files, and folders with all below them."""

    data: tuple[str, ...]
    """Paths only to read. They may be replaced while the mount lives."""
    software: tuple[str, ...] = ()
    """Paths to read and to run."""
    writable: tuple[str, ...] = ()
    network: bool = False
    """True if the threads may connect to servers."""


class _Rules:
    """A Landlock rule set for the needs, made of what was at their paths at one time."""

    def __init__(self, needs: Needs) -> None:
        self._needs = needs
        self.handle = -1
        self._found = self._identities()
        self.handle = landlock.ruleset(needs.data, needs.software, needs.writable, needs.network)

    def __del__(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)

    def _identities(self) -> list[tuple[int, int] | None]:
        return [_identity(path) for path in self._needs.data]

    def hold(self) -> bool:
        """True if the rules' objects are still at their paths, and this thread may read them as far as its user may."""
        return self._found == self._identities() and not any(map(_walled, self._needs.data))

    def renewed(self) -> _Rules:
        """Return new rules for the same needs, made of what is at their paths now."""
        return _Rules(self._needs)


class _Begun(threading.Event):
    """The event for which `Thread.start` waits, with a time limit in case the thread ends before it has begun."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(BEGUN_SECONDS if timeout is None else timeout)


class _Wanted:
    """A daemon thread to be started. If several are started for it, only the first to begin runs `target`."""

    def __init__(self, target: Callable[[], object], name: str) -> None:
        self._target = target
        self._name = name
        self._turn = threading.Lock()

    def start(self) -> None:
        """Start a thread; RuntimeError or MemoryError if there is no room for it."""
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        thread._started = _Begun()  # type: ignore[attr-defined]
        thread.start()
        if thread.ident is None:
            raise MemoryError("no memory for a new thread")

    def _run(self) -> None:
        if self._turn.acquire(blocking=False):
            self._target()


class _Starts:
    """A thread in front of the wall that starts others. If the system has no room for one, it tries again."""

    def __init__(self) -> None:
        self._wanted: SimpleQueue[tuple[_Wanted, SimpleQueue[bool] | None]] = SimpleQueue()
        threading.Thread(target=self._work, name="fsbridge-starts", daemon=True).start()

    def soon(self, thread: _Wanted) -> None:
        """Start a thread as soon as there is room for it."""
        self._wanted.put((thread, None))

    def now(self, work: Callable[[], object]) -> None:
        """Start a thread; OSError when there is no room for it."""
        started: SimpleQueue[bool] = SimpleQueue()
        self._wanted.put((_Wanted(work, "fsbridge-apart"), started))
        if not started.get():
            raise OSError(errno.EAGAIN, "no thread can be started")

    def _work(self) -> None:
        late: deque[_Wanted] = deque()
        seconds = 0.0
        while True:
            again = False
            try:
                thread, asked = self._wanted.get(timeout=seconds if late else None)
            except Empty:
                thread, asked, again = late.popleft(), None, True
            try:
                thread.start()
            except (RuntimeError, MemoryError) as error:
                seconds = AGAIN_SECONDS
                if asked is None:
                    late.append(thread)
                    if not again and len(late) == 1:
                        with suppress(MemoryError):  # else this thread of `_Starts` would end, and nothing restarts it
                            log.error("%s: trying again until there is room for a thread", error)
            else:
                seconds = 0.0
            if asked is not None:
                asked.put(seconds == 0.0)


class _Wall:
    """The rules that new threads get."""

    def __init__(self, rules: _Rules) -> None:
        self.rules = rules
        self._lock = threading.Lock()

    def renew(self, old: _Rules) -> None:
        """Replace the rules `old` by ones for the objects that are at their paths now, unless another thread has done so.

        If the paths cannot be looked at, `old` stays. The next thread that is refused an access tries again.
        """
        with self._lock:
            if self.rules is old:
                try:
                    self.rules = old.renewed()
                except OSError as error:
                    log.debug("the Landlock rules for new threads cannot be renewed: %s", error)


class _Thread(threading.local):
    rules: _Rules | None = None


_here = _Thread()
_wall: _Wall | None = None
_starts: _Starts | None = None


def begin(needs: Needs) -> bool:
    """Put the wall up; without Landlock, log a debug line and return False.

    Call it once. The calling thread itself stays in front of the wall, that is, unconfined. With or without a wall, threads
    that cannot be started at once are from now on started later.
    """
    global _wall, _starts
    _starts = _starts or _Starts()
    if not landlock.version():
        log.debug("this kernel has no Landlock: only the checks of paths keep threads inside the store")
        return False
    try:
        _wall = _Wall(_Rules(needs))
    except OSError as error:
        log.debug("Landlock is refused (%s): only the checks of paths keep threads inside the store", error)
        return False
    return True


def start(target: Callable[[], object], name: str) -> None:
    """Start a daemon thread, behind the wall if there is one; later, if the system has no room for it yet.

    After `begin` another thread starts it, so the event loop never waits for a thread to begin.
    """
    wall = _wall
    thread = _Wanted(target if wall is None else partial(_behind, wall, target), name)
    if _starts is None:
        thread.start()
    else:
        _starts.soon(thread)


def later(seconds: float, call: Callable[[], object], name: str) -> None:
    """Run `call` on a daemon thread after `seconds`."""

    def wait() -> None:
        time.sleep(seconds)
        call()

    start(wait, name)


def _behind(wall: _Wall, target: Callable[[], object]) -> None:
    rules = wall.rules
    try:
        landlock.restrict(rules.handle)
        _here.rules = rules
    except OSError as error:
        log.debug("Landlock is refused (%s): %s is not confined", error, threading.current_thread().name)
    target()


def refused() -> None:
    """Raise Stale if an access may have been refused only because of this thread's rules. Call after a refusal.

    May block.
    """
    wall, rules = _wall, _here.rules
    if wall is None or rules is None or (rules is wall.rules and rules.hold()):
        return
    wall.renew(rules)
    if rules is not wall.rules:
        raise Stale("the store has been replaced")


def outgrown() -> bool:
    """True if this thread's Landlock rules are out of date and it must be replaced."""
    wall, rules = _wall, _here.rules
    return wall is not None and rules is not None and rules is not wall.rules


def outside(call: Callable[[], T]) -> T:
    """Run `call()` in front of the wall; return its result or raise its error. No stored name may decide what it opens.

    OSError if there is a wall and no room for another thread.
    """
    return call() if _wall is None or _starts is None else Answer(call, _starts.now).get()


def apart(call: Callable[[], object], name: str) -> None:
    """Run `call` on a thread of its own in front of the wall; OSError if there is no room for a thread."""
    if _wall is None or _starts is None:
        try:
            threading.Thread(target=call, name=name, daemon=True).start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, str(error)) from None
    else:
        _starts.now(call)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _walled(path: str) -> bool:
    """True if access(2), which ignores Landlock, permits reading `path`: then only the wall keeps this thread from it."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
    except PermissionError:
        return os.access(path, os.R_OK, effective_ids=True)
    except OSError:
        return False
    return False
