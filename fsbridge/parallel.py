"""Calls that wait for something far away: many in parallel, and one that an interrupt leaves behind.

They are made by daemon threads: a server that hangs does not hold up the end of the process. The threads are confined
(`confinement.py`) if the one that starts them is. Not here: work that can be left undone (`idle.py`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from fsbridge.errors import TimedOut

T = TypeVar("T")
U = TypeVar("U")


def begun(call: Callable[[], T], start: Callable[[Callable[[], None]], object]) -> Callable[[], T]:
    """Have a thread that `start` starts make `call`. What comes back waits for what that returns or raises, once."""
    ended: SimpleQueue[tuple[T] | BaseException] = SimpleQueue()

    def wait() -> T:
        found = ended.get()
        if isinstance(found, tuple):
            return found[0]
        try:
            raise found
        finally:
            del found  # breaks the cycle traceback -> frame -> error

    start(partial(_end, call, ended))
    return wait


def _end(call: Callable[[], T], ended: SimpleQueue[tuple[T] | BaseException]) -> None:
    try:
        ended.put((call(),))
    except BaseException as error:
        ended.put(error)


def apart(call: Callable[[], T], start: Callable[[threading.Thread], object] = threading.Thread.start) -> T:
    """What `call` returns or raises in a thread that `start` starts. Who waits hears a ctrl-C at once, and leaves it behind.

    A library that waits for a server returns to the interpreter, which alone tells the main thread of signals, only with
    the answer.
    """

    def begin(work: Callable[[], None]) -> None:
        start(threading.Thread(target=work, name="fsbridge-apart", daemon=True))

    return begun(call, begin)()


def each(call: Callable[[T], U], given: Sequence[T], most: int, deadline: float = math.inf) -> list[U]:
    """`call` of each of `given`, at most `most` at a time, in their order.

    After the first error, which is raised, no further call begins; nor after the `deadline` (monotonic), with TimedOut.
    """
    if len(given) < 2:
        return [call(one) for one in given]
    found: dict[int, U] = {}
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
                if time.monotonic() > deadline:
                    raise TimedOut("no answer in time")
                found[number] = call(given[number])
        except BaseException as error:
            errors.append(error)
        finally:
            ended.put(None)

    threads = 0
    try:
        for _ in range(min(most, len(given))):
            threading.Thread(target=work, name="fsbridge-together", daemon=True).start()
            threads += 1
    except RuntimeError:  # no room for more: those that have started do it all, or this one
        if not threads:
            work()
            threads = 1
    for _ in range(threads):
        ended.get()
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()  # breaks the cycle traceback -> frame -> errors
    return [found[number] for number in range(len(given))]
