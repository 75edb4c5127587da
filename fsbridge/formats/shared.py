"""What the sources of one mount share: caches and pools, one of each kind, and sources that stay open.

Not here: how a source is opened, what is cached.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from fsbridge.asking import Locks, before_waiting
from fsbridge.lru import LRU
from fsbridge.model import Source

K = TypeVar("K", bound=Hashable)
P = TypeVar("P", bound="SharedPart")


class SharedPart(Protocol):
    """A cache or a pool that `Shared` makes.

    Parts of formats derive from this class; a part of a store needs only `close`.
    """

    __slots__ = ()

    def close(self) -> None:
        """End child processes and close descriptors, if the part has any. Its memory is released with the object."""
        return


class Shared:
    """One object of each kind for all sources of a mount, made when it is first asked for. Thread-safe.

    A limit of memory, processes or descriptors then holds for the mount and not for each of its sources.
    """

    def __init__(self, *parts: SharedPart) -> None:
        """`parts` are used instead of new ones of the same classes."""
        self._made: dict[type[SharedPart], SharedPart] = {type(part): part for part in parts}

    def of(self, kind: type[P]) -> P:
        """Return the object of the class `kind`, which is made without arguments."""
        instance = self._made.get(kind)
        if instance is None:
            instance = self._made.setdefault(kind, kind())
        return instance  # type: ignore[return-value]

    def close(self) -> None:
        """Close all parts. A part that is used later opens again what it needs."""
        for part in list(self._made.values()):
            part.close()


class OpenedSources(Generic[K]):
    """Open sources by key, each opened once. Failures are not kept.

    While a source is being opened, only threads that want the same source wait, because its disk may hang.
    """

    def __init__(self, kept: int | None = None) -> None:
        """`kept`: most unused sources that stay open, among those that can be closed (`rests`); None: no limit."""
        self._opening: Locks[K] = Locks()
        self._lasting: dict[K, Source] = {}
        self._resting: LRU[K, Source] | None = None if kept is None else LRU(kept, self._let_go)
        self._closed = False

    def open(self, key: K, opener: Callable[[K], Source]) -> Source:
        """Return the source of `key`; `opener` opens it if it is not open."""
        known = self._known(key)
        if known is not None:
            return known
        before_waiting()
        with self._opening.of(key):
            return self._known(key) or self._keep(key, opener(key))

    def close(self) -> None:
        """Close all sources."""
        self._closed = True
        if self._resting is not None:
            self._resting.clear()
        while self._lasting:
            self._lasting.popitem()[1].close()

    def _let_go(self, source: Source) -> None:
        if self._closed:
            source.close()
        else:
            source.rest()

    def _known(self, key: K) -> Source | None:
        return self._lasting.get(key) or (None if self._resting is None else self._resting.get(key))

    def _keep(self, key: K, source: Source) -> Source:
        if self._resting is not None and source.rests:
            return self._resting.put(key, source)
        self._lasting[key] = source
        return source
