"""What becomes of this process's state in a process that is forked: PyTorch's DataLoader and multiprocessing do that.

The child has a copy of all memory, but shares sockets and child processes with its parent, and has none of the parent's
threads. Their locks may be held for ever, and their work is never done. So what consists of such things is kept as
`PerProcess`, a module's own lock is made by `make_lock`, and `cached_property` here holds none. Not here: what is kept.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakSet

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property:  # noqa: N801  # in place of functools'
        """`functools.cached_property` as Python has it from 3.12 on: without a lock, which a thread might hold at a fork."""

        def __init__(self, make: Callable[[Any], Any]) -> None:
            self._make = make
            self.__doc__ = make.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._make(instance)
            return value


__all__ = ["PerProcess", "cached_property", "make_lock"]

T = TypeVar("T")

_kept: WeakSet[PerProcess[Any]] = WeakSet()
_inherited: list[object] = []
"""What the parent process uses. It is never closed or freed here, because that could wait for a lock of a lost thread."""


class PerProcess(Generic[T]):
    """A thing that each process has of its own: a forked process makes another at its first use. Thread-safe."""

    def __init__(self, made: T | None, make: Callable[[], T]) -> None:
        """`made`: the thing that this process has, None if it has none yet. `make`: makes one later; may raise."""
        self.made = made
        """What belongs to this process; None if it has not been made yet."""
        self._make = make
        self._lock = threading.Lock()
        _kept.add(self)

    def get(self) -> T:
        """Return the thing that belongs to this process. It is made now if the process has none yet."""
        made = self.made
        if made is None:
            with self._lock:
                made = self.made = self._make() if self.made is None else self.made
        return made

    def renew(self) -> None:
        """Put aside the thing that this forked process has inherited: the next `get` makes another."""
        _inherited.append(self.made)
        self.made = None
        self._lock = threading.Lock()


def make_lock() -> threading.Lock:
    """Return a lock for the life of a module, which is free again in a forked process."""
    lock = threading.Lock()
    os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]
    return lock


def _renew_all() -> None:
    for kept in list(_kept):
        kept.renew()


os.register_at_fork(after_in_child=_renew_all)
