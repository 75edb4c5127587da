"""Contexts in which this process lacks memory or threads. Not here: what the tests demand of it then."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _NoMemory(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise MemoryError


@contextmanager
def no_memory_to_log(logger: logging.Logger) -> Iterator[None]:
    """A context in which logging fails."""
    handler = _NoMemory()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def no_room_for_threads() -> Iterator[None]:
    """A context in which this process can start no thread: each would need more address space than there is."""
    before = threading.stack_size(1 << 50)
    try:
        yield
    finally:
        threading.stack_size(before)
