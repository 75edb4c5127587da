"""How old the answers to a thread's questions may be, and whether it may wait for them. Only the kernel side says so.

The event loop's thread asks every question once inside `without_waiting()`. A store answers it from memory or from the
kernel's caches; what would block raises WouldWait, and the same question runs on a worker. Inside `as_of(moment)` answers
that were asked for at that moment or later will do, and `oldest()` tells the age of those that were used. Outside of it
nothing that is remembered will do: reading and opening compare versions in an order that only present answers keep.
Not here: what remembers (`store/remembered.py`), which questions a store answers without waiting (`store/local/cached.py`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Generic, NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class WouldWait(BaseException):
    """Answering would block a thread that may not wait. Not an error: a worker asks again, so no handler may swallow it."""


class Lock(Protocol):
    """`threading.Lock` or `threading.RLock`."""

    def acquire(self, blocking: bool = True) -> bool: ...

    def release(self) -> None: ...


class _Context(threading.local):
    """What the calling thread's questions may take; times are of `time.monotonic`.

    `as_of`, `listed`: answers asked for from then on will do, and listings that take long. `oldest`: when the oldest answer
    was asked for that was used so far. `root`: the store's root that was found while the thread may not wait.
    """

    may_wait = True
    as_of = listed = oldest = math.inf
    root: object = None


context = _Context()


class _WithoutWaiting:
    __slots__ = ()

    def __enter__(self) -> None:
        context.may_wait, context.root = False, None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        context.may_wait, context.root = True, None


_WITHOUT_WAITING = _WithoutWaiting()


def without_waiting() -> _WithoutWaiting:
    """Return a context in which the calling thread does not wait. These contexts do not nest."""
    return _WITHOUT_WAITING


def before_waiting() -> None:
    """Raise WouldWait unless the calling thread may wait. To be called before anything that can block or compute long."""
    if not context.may_wait:
        raise WouldWait


@contextmanager
def holding(lock: Lock) -> Iterator[None]:
    """Hold a lock under which other threads wait for a store. WouldWait if it is taken and this thread may not wait."""
    if not lock.acquire(context.may_wait):
        raise WouldWait
    try:
        yield
    finally:
        lock.release()


class as_of:  # noqa: N801  # a context that reads as a preposition
    """A context: answers asked for at `moment` or later will do. `oldest`: when the oldest that was used was asked for.

    Contexts nest: what an inner one used was used by the outer one, too. Each is entered once.
    """

    __slots__ = ("_before", "_listed", "_moment", "oldest")

    def __init__(self, moment: float, listed: float | None = None) -> None:
        """`moment`: accept answers that were asked for from then on.

        `listed`: the same for listings that are slow or cost requests, if these may be older; None: `moment`.
        """
        self._moment = moment
        self._listed = moment if listed is None else listed
        self.oldest = math.inf

    def __enter__(self) -> as_of:
        self._before = context.as_of, context.listed, context.oldest
        context.as_of, context.listed, context.oldest = self._moment, self._listed, time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.oldest = context.oldest
        context.as_of, context.listed, oldest = self._before
        context.oldest = oldest if context.as_of == math.inf else min(oldest, self.oldest)


def used(asked: float) -> None:
    """Note that a remembered answer was used, and when it was asked for."""
    if asked < context.oldest:
        context.oldest = asked


def oldest() -> float:
    """Return when the oldest answer was asked for that was used in this context: its beginning, unless one is older."""
    return context.oldest if context.oldest < math.inf else time.monotonic()


def from_now() -> as_of:
    """Return a context for a task of many questions: each thing is asked for once, and its answer is then used again.

    If the current context accepts older answers, the new one accepts them, too.
    """
    return as_of(time.monotonic()) if context.as_of == math.inf else as_of(context.as_of, context.listed)


class carried(Generic[T]):  # noqa: N801  # as above
    """`call`, to be called by other threads: their answers may be as old as those of the thread that makes this."""

    __slots__ = ("_ages", "_call", "_listed", "_moment")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._moment, self._listed = context.as_of, context.listed
        self._ages: list[float] = []

    def __call__(self) -> T:
        with as_of(self._moment, self._listed):
            try:
                return self._call()
            finally:
                self._ages.append(oldest())

    def joined(self) -> None:
        """Note that the calling thread uses what those threads were answered."""
        used(min(self._ages, default=math.inf))


class _Made(NamedTuple):
    """`value` was made of answers; the oldest was asked for at the time `asked`."""

    value: object
    asked: float


class Kept(Generic[T]):
    """What was made of a store's answers, which is as old as the oldest of them. Thread-safe."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: _Made | None = None

    def get(self, make: Callable[[], T], listing: bool = False) -> T:
        """Return what was made before if that is young enough, else what `make` makes now.

        `listing`: it is made of listings that take long.
        """
        made = self._made
        if made is not None and made.asked >= (context.listed if listing else context.as_of):
            used(made.asked)
            return made.value  # type: ignore[return-value]
        with as_of(context.as_of, context.listed) as answers:
            value = make()
        self._made = _Made(value, answers.oldest)
        return value

    def put(self, value: T) -> T:
        """Keep what was made in this context, and return it."""
        self._made = _Made(value, oldest())
        return value

    @property
    def last(self) -> T | None:
        """What was made last, however old."""
        return None if self._made is None else self._made.value  # type: ignore[return-value]
