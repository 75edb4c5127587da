"""Calls that wait for something far away, many at a time.

They are made by daemon threads: a server that hangs does not hold up the end of the process. The threads are behind the wall
(`confinement.py`) if the one that starts them is. Not here: work that can be left undone (`idle.py`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeVar

from fsbridge.errors import TimedOut

T = TypeVar("T")
U = TypeVar("U")


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

    threads = min(most, len(given))
    for _ in range(threads):
        threading.Thread(target=work, name="fsbridge-together", daemon=True).start()
    for _ in range(threads):
        ended.get()
    if errors:
        raise errors[0]
    return [found[number] for number in range(len(given))]
