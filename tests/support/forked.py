"""Running something in a process that is forked from the test's own, as multiprocessing does it on Linux."""

from __future__ import annotations

import multiprocessing
import os
import resource
import select
import signal
import warnings
from collections.abc import Callable
from typing import Any

PATIENCE = 60.0
"""Seconds for anything that a forked process does, on a loaded machine."""


def in_fork(call: Callable[[], object]) -> str:
    """Run `call` in a forked process and return what it raised, or "". A process that hangs is ended, and is said to."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn if there are threads
        pid = os.fork()
    if pid == 0:
        text = "it ended early"
        try:
            call()
            text = ""
        except BaseException as error:
            text = repr(error)
        finally:
            os.write(writing, text.encode()[:4000] or b"\0")
            os._exit(0)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], PATIENCE)
        said = os.read(reading, 4000).decode().rstrip("\0") if ready else "it hangs"
    finally:
        os.close(reading)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return said


def leave_root() -> None:
    """Become an ordinary user: permissions and limits do not count for root. Only `in_fork`."""
    if os.geteuid() == 0:
        os.setuid(65534)


def allow_no_processes() -> None:
    """Let this process start neither processes nor threads. Only `in_fork`."""
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    leave_root()


_given: Any = None


def _take(given: Any) -> None:
    global _given
    _given = given


def _item(number: int) -> Any:
    return _given[number]


def loaded(dataset: Any, count: int, method: str, workers: int = 2) -> list[Any]:
    """Return the first `count` items of a dataset, read by several processes, as PyTorch's DataLoader does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context = multiprocessing.get_context(method)
        with context.Pool(workers, _take, (dataset,)) as pool:
            return pool.map_async(_item, range(count), 1).get(PATIENCE)
