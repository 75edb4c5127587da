"""Calls that wait for something remote: many in parallel, or one that goes on when an interrupt ends the wait for it.

Daemon threads make the calls, so a server that hangs does not delay the end of the process. Not here: work that can be left
undone (`workers.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar

from fsbridge import asking
from fsbridge.errors import TimedOut
from fsbridge.threads import starting
from fsbridge.threads.deadlines import Deadline

INTERRUPT_SECONDS = 0.5
"""Seconds after which a waiting thread looks for an interrupt, because Python misses one just before the wait begins."""

T = TypeVar("T")
U = TypeVar("U")


class Answer(Generic[T]):
    """The result or error of a call that another thread makes."""

    def __init__(self, call: Callable[[], T], name: str) -> None:
        """Begin `call` on a new thread with this `name`."""
        self._here = threading.Event()
        self._outcome: tuple[T] | BaseException | None = None
        starting.start(partial(self._make, call), name)

    def wait(self, seconds: float) -> bool:
        """Wait at most so many seconds; true if the result is there."""
        return self._here.wait(max(0.0, seconds))

    def get(self) -> T:
        """Wait for the result and return it, or raise the error. May be called once."""
        while not self._here.wait(INTERRUPT_SECONDS):
            pass
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, tuple):
            return outcome[0]
        assert outcome is not None, "the result has been fetched already"
        try:
            raise outcome
        finally:
            del outcome  # breaks the cycle traceback -> frame -> error

    def _make(self, call: Callable[[], T]) -> None:
        try:
            self._outcome = (call(),)
        except BaseException as error:
            self._outcome = error
        finally:
            self._here.set()
            del self  # breaks the same cycle if the result is never fetched


def apart(call: Callable[[], T]) -> T:
    """Run `call` in a thread of its own; return or raise what it does. Ctrl-C ends the wait at once; the thread goes on.

    Python handles signals between two of its own steps, so while a library waits for a server in the main thread, Ctrl-C
    would wait for the answer.
    """
    return Answer(call, "fsbridge-apart").get()


def each(
    call: Callable[[T], U],
    given: Sequence[T],
    most: int,
    deadline: Deadline | None = None,
    start: Callable[[Callable[[], object], str], object] = starting.start_now,
) -> list[U]:
    """Return the results of `call` for each of `given`, in their order; at most `most` calls run at a time.

    After the first error no further call begins, and the error is raised. After the `deadline` no further call begins
    either, and TimedOut is raised. `start` starts the threads.
    """
    if len(given) < 2:
        return [call(one) for one in given]
    results: dict[int, U] = {}
    errors: list[BaseException] = []
    lock, numbers = threading.Lock(), iter(range(len(given)))
    ended: SimpleQueue[None] = SimpleQueue()

    def work() -> None:
        try:
            while not errors:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                if deadline is not None and deadline.passed:
                    raise TimedOut("the answers did not come in time")
                results[number] = call(given[number])
        except BaseException as error:
            errors.append(error)
        finally:
            ended.put(None)

    threads, carried = 0, asking.carried(work)
    try:
        for _ in range(min(most, len(given))):
            start(carried, "fsbridge-together")
            threads += 1
    except OSError:  # no room for more: those that have started do it all, or this one
        if not threads:
            work()
            threads = 1
    for _ in range(threads):
        ended.get()
    carried.joined()
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()  # breaks the cycle traceback -> frame -> errors
    return [results[number] for number in range(len(given))]
