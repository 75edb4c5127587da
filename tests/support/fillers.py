"""Loads for the chunk cache that are known by their byte. Not here: the cache."""

from __future__ import annotations

from collections.abc import Callable

BIG = 100_000


def filler(byte: int) -> Callable[[memoryview], None]:
    """A loader that fills its buffer with one byte."""

    def load(out: memoryview) -> None:
        out[:] = bytes([byte]) * len(out)

    return load
