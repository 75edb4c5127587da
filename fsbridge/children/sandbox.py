"""Confinement of a child process: memory, no core dumps, and with Landlock no files except the named ones.

It needs nothing outside the standard library and `landlock.py`, because it runs in processes that have HDF5 loaded, when
their imports are done. Not here: which files a child may open (the daemon decides), the system calls (`landlock.py`).
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Sequence

from fsbridge import landlock

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends, even if this process is stopped.

    If a filter of system calls forbids that, the process still ends when its socket closes, unless it is stopped.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def limit_resources(address_space: int) -> None:
    """Allow no core dumps, which would hold data, and at most `address_space` bytes of virtual memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = address_space if hard == resource.RLIM_INFINITY else min(address_space, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def restrict_files(readable: Sequence[str]) -> bool:
    """Let this process open only `readable` (files, or folders with everything below), and only to read.

    Returns False if the kernel has no Landlock: then the child's own checks are the only protection.
    """
    if not landlock.version():
        return False
    handle = landlock.ruleset(readable)
    try:
        landlock.restrict(handle)
    finally:
        os.close(handle)
    return True
