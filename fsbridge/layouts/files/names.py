"""File names of arrays: `NAME.suffix` and `NAME[region].suffix`. Of two readings the longer array name wins.

Pure. Not here: which arrays there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fsbridge.layouts.files.headers import SUFFIXES

SLICES = "slices"
"""Suffix of the directory of an array's planes."""

_SHORTEST_FIRST = (*sorted((*SUFFIXES, SLICES), key=len),)


class Reading(NamedTuple):
    """One way to read a file name."""

    array: str
    region: str | None
    suffix: str


def readings(name: str) -> Iterator[Reading]:
    """All ways to read a file name, the longest array name first; without a region before with one."""
    bases = [(name[: -len(suffix) - 1], suffix) for suffix in _SHORTEST_FIRST if name.endswith(f".{suffix}")]
    found = [Reading(base, None, suffix) for base, suffix in bases if base]
    for base, suffix in bases:
        if base.endswith("]"):
            cuts = [i for i, char in enumerate(base) if char == "["]
            found += [Reading(base[:cut], base[cut + 1 : -1], suffix) for cut in cuts if cut]
    yield from sorted(found, key=lambda reading: -len(reading.array))


def full_store_name(source: str) -> str:
    """The store's name with its suffix."""
    return source.rstrip("/").rpartition("/")[2] or "root"


def store_name(source: str) -> str:
    """What the root's files are called: the store's name without its suffix (`brain.n5`, `brain.zarr.zip`: `brain`)."""
    name = full_store_name(source)
    stem = name[:-4] if name.lower().endswith(".zip") else name
    return stem.rpartition(".")[0] or stem
