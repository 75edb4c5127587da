"""How old the answers to a thread's questions may be, and whether it may wait for them. Only the kernel side sets this.

The event loop's thread asks every question once inside `without_waiting()`. A store answers it from memory or from the
kernel's caches; what would block raises WouldWait, and the same question runs on a worker. Inside `as_of(moment)` answers
that were asked for at that moment or later will do, and `oldest()` tells the age of those that were used. Outside of it
nothing that is remembered will do: reading and opening compare versions in an order that only present answers keep.
`Locks`: callers that want the same thing wait while one of them makes it.

Not here: what remembers (`store/remote/answers.py`, `kernel/directories.py`), how a disk is asked without waiting
(`store/local/descriptors.py`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class WouldWait(BaseException):
    """Answering would block a thread that may not wait. Not an error: a worker asks again, so no handler may swallow it."""


class Lock(Protocol):
    """`threading.Lock` or `threading.RLock`."""

    def acquire(self, blocking: bool = True) -> bool: ...

    def release(self) -> None: ...


class _Context(threading.local):
    """How old the answers for the calling thread may be, and whether it may wait; times are of `time.monotonic`.

    `as_of`: answers asked for from then on are accepted; `listed`: the same for slow listings. `oldest`: when the oldest
    answer used so far was asked for. `root`: the store's root that was found while the thread may not wait.
    """

    may_wait = True
    as_of = listed = oldest = math.inf
    root: object = None


context = _Context()


class without_waiting:  # noqa: N801  # a context that reads as a preposition
    """A context in which the calling thread does not wait. Contexts nest; each is entered only once."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = context.may_wait, context.root
        context.may_wait, context.root = False, None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        context.may_wait, context.root = self._before


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


class as_of:  # noqa: N801  # as above
    """A context that accepts answers asked for at `moment` or later. `oldest`: when the oldest used one was asked for.

    Contexts nest: an answer used in an inner one counts as used in the outer one, too. Each is entered only once.
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
    """Note that a remembered answer was used, and when it was asked for. Without a context nobody wants to know."""
    if asked < context.oldest < math.inf:
        context.oldest = asked


def oldest() -> float:
    """Return when the oldest answer used in this context was asked for, or when the context began, if that is earlier."""
    return context.oldest if context.oldest < math.inf else time.monotonic()


def from_now() -> as_of:
    """Return a context for a task of many questions, in which an answer given since its beginning is used again.

    If the current context accepts older answers, the new one accepts them, too.
    """
    return as_of(time.monotonic()) if context.as_of == math.inf else as_of(context.as_of, context.listed)


def as_listed() -> as_of:
    """Return a context that accepts answers as old as listings may be, for what a remote store only knows from listings."""
    return as_of(min(context.as_of, context.listed), context.listed)


def anew() -> as_of:
    """Return a context in which nothing that is remembered will do, because a remembered answer was outdated."""
    return as_of(math.inf)


class carried(Generic[T]):  # noqa: N801  # as above
    """A function that other threads call to run `call` with the `as_of` of the thread that makes this object."""

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
        """Note that this thread uses the answers that other threads got by calling this object, so it counts their age."""
        used(min(self._ages, default=math.inf))


class SlowListing(Generic[T]):
    """What is made of a slow listing, which begins now. It may be used again for as long as `as_of.listed` permits."""

    __slots__ = ("_asked", "made")

    def __init__(self) -> None:
        self._asked = oldest()
        self.made: T | None = None
        """The result; None until the listing is complete."""

    def will_do(self) -> bool:
        """True if the result is there and young enough. It then counts as used."""
        if self.made is None or self._asked < context.listed:
            return False
        used(self._asked)
        return True


K = TypeVar("K", bound=Hashable)


class _Held:
    """The lock of one key, and how many callers hold it or wait for it: while there are any, others get the same lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.callers = 0


class Locks(Generic[K]):
    """One lock for each key that is held or waited for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[K, _Held] = {}

    @contextmanager
    def of(self, key: K) -> Iterator[None]:
        """Hold the lock of `key`. WouldWait if another thread holds it and this one may not wait."""
        with self._lock:
            held = self._held.setdefault(key, _Held())
            held.callers += 1
        try:
            with holding(held.lock):
                yield
        finally:
            with self._lock:
                held.callers -= 1
                if not held.callers:
                    del self._held[key]
