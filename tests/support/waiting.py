"""Waiting for what a daemon, the kernel or another thread does in its own time. Not here: pauses of a fixed length."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 20.0
"""Seconds for anything that should be quick, on a loaded machine."""


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait for `condition()`; AssertionError when it does not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)
