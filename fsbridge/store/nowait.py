"""Whether this thread may wait. Inside `at_once()` what would have to wait for a disk raises WouldWait: a worker asks again.

Not here: which questions a store answers so, and how (`local/cached.py`).
"""

from __future__ import annotations

import threading
from types import TracebackType

from fsbridge.errors import WouldWait


class _Mode(threading.local):
    """Whether this thread may wait; `root` is the root that it has found in its place since it may not."""

    waits = True
    root: object = None


mode = _Mode()


class AtOnce:
    """A context in which this thread does not wait. Contexts do not nest."""

    __slots__ = ()

    def __enter__(self) -> None:
        mode.waits, mode.root = False, None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        mode.waits, mode.root = True, None


_AT_ONCE = AtOnce()


def at_once() -> AtOnce:
    """See `AtOnce`."""
    return _AT_ONCE


def must_wait() -> None:
    """What follows may wait for a disk: WouldWait where that is not allowed."""
    if not mode.waits:
        raise WouldWait
