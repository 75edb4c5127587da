"""What a program must say of the data beside their values: missing values, names, units, dates, axes, place.

A module for each field of programs. Each writes its own stores with an independent library, and compares what a program
shows through the mount with what the source says. Not here: equal elements (`legacy.programs`, `legacy.whole`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Check:
    """One program and one fact that it must show.

    `prepare(folder, install)` makes the program ready and returns its command; it raises `checks.Skipped` where the program
    cannot be had. `compare(command, mount, scratch)` raises an error that says what differs. `mount` is the root of a mount
    of the folder of stores, with one directory for each layout.
    """

    program: str
    fact: str
    prepare: Callable[[Path, bool], list[str]]
    compare: Callable[[list[str], Path, Path], None]


@dataclass(frozen=True)
class Field:
    """The programs of one field. `write(folder)` writes their stores into a folder that other fields use too."""

    name: str
    write: Callable[[Path], None]
    checks: tuple[Check, ...]


def differs(fact: str, shown: object, expected: object) -> None:
    """Raise ValueError unless a program shows what is expected."""
    if shown != expected:
        raise ValueError(f"{fact}: {shown!r}, expected {expected!r}")
