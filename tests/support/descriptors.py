"""Descriptors of this process that lead to the files of one test.

Not here: how many descriptors the process has. Other threads and the garbage collector close theirs when they like,
so that a number before and a number after say little about the test between them.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def list_descriptors(place: Path) -> list[str]:
    """The path of each descriptor of this process that leads to `place` or below it, of removed files as well."""
    paths = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile, as that of the listing is
            paths.append(os.readlink(f"/proc/self/fd/{number}").removesuffix(" (deleted)"))
    return [path for path in paths if Path(path).is_relative_to(place)]
