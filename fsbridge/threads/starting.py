"""Start daemon threads: now, later if the system has no room for one yet, or after some seconds.

At a container's limit of processes a thread cannot be started, and without memory one that was started may never begin. In a
mount a request must not fail for that, and the event loop must not wait for a thread to begin. So after `begin` a thread of
its own starts all others, and tries again until there is room (P7). Not here: what threads do.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

log = logging.getLogger(__name__)

AGAIN_SECONDS = 0.2
"""Seconds between attempts to start a thread: a container at its limit usually has room again in a moment."""
BEGUN_SECONDS = 5.0
"""Seconds after which a thread that was started and has not begun never will: it had no memory for it."""


class _Begun(threading.Event):
    """The event for which `Thread.start` waits, with a time limit in case the thread ends before it has begun."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(self._seconds if timeout is None else timeout)


class WantedThread:
    """A daemon thread to be started. If several are started for it, only the first to begin runs `target`.

    `begun_seconds` and `kind`: see `ThreadStarter`.
    """

    def __init__(self, target: Callable[[], object], name: str, begun_seconds: float, kind: type[threading.Thread]) -> None:
        self._target = target
        self._name = name
        self._begun_seconds = begun_seconds
        self._kind = kind
        self._turn = threading.Lock()

    def start(self) -> None:
        """Start a thread; RuntimeError or MemoryError if there is no room for it."""
        thread = self._kind(target=self._run, name=self._name, daemon=True)
        thread._started = _Begun(self._begun_seconds)  # type: ignore[attr-defined]
        thread.start()
        if thread.ident is None:
            raise MemoryError("no memory for a new thread")

    def give_up(self) -> bool:
        """Make sure that `target` never runs; False if it runs already."""
        return self._turn.acquire(blocking=False)

    def _run(self) -> None:
        if self._turn.acquire(blocking=False):
            try:
                self._target()
            finally:
                del self._target  # breaks the cycle target -> error -> traceback -> frame -> this object -> target


class _Starts:
    """A thread that starts others. If the system has no room for one, it tries again."""

    def __init__(self, again_seconds: float) -> None:
        self._again_seconds = again_seconds
        self._wanted: SimpleQueue[WantedThread] = SimpleQueue()
        threading.Thread(target=self._work, name="fsbridge-starts", daemon=True).start()

    def soon(self, thread: WantedThread) -> None:
        """Start a thread as soon as there is room for it."""
        self._wanted.put(thread)

    def _work(self) -> None:
        late: deque[WantedThread] = deque()
        seconds = 0.0
        while True:
            again = False
            try:
                thread = self._wanted.get(timeout=seconds if late else None)
            except Empty:
                thread, again = late.popleft(), True
            try:
                thread.start()
            except (RuntimeError, MemoryError) as error:
                seconds = self._again_seconds
                late.append(thread)
                if not again and len(late) == 1:
                    with suppress(MemoryError):  # else this thread of `_Starts` would end, and nothing restarts it
                        log.error("%s: trying again until there is room for a thread", error)
            else:
                seconds = 0.0


class ThreadStarter:
    """Starts the daemon threads of a process.

    `again_seconds`: see `AGAIN_SECONDS`; `begun_seconds`: see `BEGUN_SECONDS`; `kind`: the class of the threads.
    """

    def __init__(
        self,
        again_seconds: float = AGAIN_SECONDS,
        begun_seconds: float = BEGUN_SECONDS,
        kind: type[threading.Thread] = threading.Thread,
    ) -> None:
        self._again_seconds = again_seconds
        self._begun_seconds = begun_seconds
        self._kind = kind
        self._starts: _Starts | None = None

    def begin(self) -> None:
        """From now on start a thread later if it cannot be started at once. Only for a process that will not fork."""
        self._starts = self._starts or _Starts(self._again_seconds)

    def start(self, target: Callable[[], object], name: str) -> None:
        """Start a daemon thread.

        If the system has no room for it, raise RuntimeError or MemoryError; once `begin` was called, start it later instead.
        """
        thread = self._wanted(target, name)
        if self._starts is None:
            thread.start()
        else:
            self._starts.soon(thread)

    def start_now(self, target: Callable[[], object], name: str) -> None:
        """Start a daemon thread; OSError if there is no room for it, and then `target` never runs. May block."""
        thread = self._wanted(target, name)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            if thread.give_up():
                raise OSError(errno.EAGAIN, str(error)) from None

    def later(self, seconds: float, call: Callable[[], object], name: str) -> None:
        """Run `call` on a daemon thread after `seconds`."""

        def wait() -> None:
            time.sleep(seconds)
            call()

        self.start(wait, name)

    def _wanted(self, target: Callable[[], object], name: str) -> WantedThread:
        return WantedThread(target, name, self._begun_seconds, self._kind)


_starter = ThreadStarter()
begin, start, start_now, later = _starter.begin, _starter.start, _starter.start_now, _starter.later
"""Those of this process, see `ThreadStarter`."""
