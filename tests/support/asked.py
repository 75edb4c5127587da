"""Questions as the event loop asks them: without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fsbridge.asking import WouldWait, without_waiting
from fsbridge.errors import FsbridgeError


def at_once(question: Callable[[], Any]) -> Any:
    """Return the answer; None where the question is left to a worker, or answered by an error."""
    try:
        with without_waiting():
            return question()
    except (WouldWait, FsbridgeError):
        return None
