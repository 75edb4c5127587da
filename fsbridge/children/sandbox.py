"""Confinement of a child process: memory, no core dumps, and where the kernel has Landlock nothing but named files to open.

Not here: what the child may open (the daemon says so), the system calls (`landlock.py`). Only the standard library: this
runs beside HDF5, after all imports.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence

from fsbridge import landlock


def limit_resources(address_space: int) -> None:
    """No core dumps (they would hold data), and at most `address_space` bytes of virtual memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = address_space if hard == resource.RLIM_INFINITY else min(address_space, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def restrict_files(readable: Sequence[str]) -> bool:
    """From now on this process can open nothing but `readable` (files, or folders with all below), and only to read.

    False where the kernel has no Landlock: then the checks of the worker are the only wall.
    """
    if not landlock.version():
        return False
    handle = landlock.ruleset(readable)
    try:
        landlock.restrict(handle)
    finally:
        os.close(handle)
    return True
