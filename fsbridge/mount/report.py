"""What a daemon reports about itself: the answers that the control socket gives. Not here: the socket (`control.py`).

Everything is read from counters without waiting for the event loop or a store: either may hang, and this is to say so.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Mapping
from typing import Any

from fsbridge.cache import ChunkCache
from fsbridge.config import LEVELS, Config
from fsbridge.deadlines import Stopwatch
from fsbridge.errors import SetupError, printable
from fsbridge.kernel.boundary import Failure
from fsbridge.kernel.filesystem import Filesystem
from fsbridge.mount.control import Answer
from fsbridge.mount.logs import AccessLog

SERVING, WAITING, BUSY = "serving", "waits for the store", "busy"
"""States of a mount: it answers; a request takes long; the event loop does not get to run."""

LOOP_SECONDS = 0.2
"""Seconds for which a status question waits for the event loop. After that the loop counts as busy."""


class Report:
    """The answers of one daemon."""

    def __init__(self, config: Config, filesystem: Filesystem, cache: ChunkCache | None) -> None:
        self._config = config
        self._filesystem = filesystem
        self._cache = cache
        self._uptime = Stopwatch()
        self._access_log: AccessLog | None = None

    def answers(self) -> dict[str, Answer]:
        """Return the functions that answer the questions of the control socket, by the question's name."""
        return {"status": self._status, "errors": self._errors, "log-level": self._log_level, "access-log": self._accesses}

    def log_accesses(self, descriptor: int | None) -> None:
        """Write accesses to the file behind a copy of `descriptor`; None: stop that."""
        before = self._access_log
        self._access_log = None if descriptor is None else AccessLog(os.dup(descriptor), self._filesystem.inodes.exact_path)
        self._filesystem.accesses.tell = None if self._access_log is None else self._access_log.tell
        if before is not None:
            before.close()

    def words(self) -> str:
        """Return the status line for systemd. Does not block."""
        cache, state = self._cache_use(), WAITING if self._waits() else SERVING
        return f"{printable(self._config.place)}: {state}, cache {cache['used'] >> 20} of {cache['size'] >> 20} MiB"

    def _status(self, _question: Mapping[str, Any], _descriptors: list[int]) -> dict[str, Any]:
        counters, slow = self._filesystem.counters, self._slow()
        failures = counters.failures()
        return {
            "state": self._state(),
            "uptime": self._uptime.seconds,
            "requests": dict(counters.requests),
            "under_way": self._filesystem.under_way,
            "slow": {"requests": sum(number for number, _ in slow), "seconds": max(seconds for _, seconds in slow)},
            "bytes_read": counters.bytes_read,
            "bytes_decoded": self._cache.counts().decoded if self._cache else 0,
            "cache": self._cache_use(),
            "errors": {_name(code): times for code, times in dict(counters.errors).items()},
            "last_error": _described(failures[-1]) if failures else None,
            "log_level": logging.getLevelName(logging.getLogger().level).lower(),
            "access_log": self._access_log is not None,
        }

    def _slow(self) -> list[tuple[int, float]]:
        jobs = self._filesystem.jobs
        return [jobs.metadata.slow(), jobs.data.slow()]

    def _waits(self) -> bool:
        return any(number for number, _ in self._slow())

    def _state(self) -> str:
        turn = threading.Event()
        self._filesystem.jobs.on_loop(turn.set)
        if not turn.wait(LOOP_SECONDS):
            return BUSY
        return WAITING if self._waits() else SERVING

    def _cache_use(self) -> dict[str, int]:
        if self._cache is None:
            return {"size": 0, "used": 0, "chunks": 0, "hits": 0, "misses": 0}
        gauges, counts = self._cache.gauges(), self._cache.counts()
        used = {"size": self._cache.budget, "used": gauges.cached, "chunks": gauges.chunks}
        return {**used, "hits": counts.hits, "misses": counts.misses}

    def _errors(self, question: Mapping[str, Any], _descriptors: list[int]) -> dict[str, Any]:
        below = str(question.get("path", "")).strip("/")
        failures = self._filesystem.counters.failures()
        return {"errors": [_described(failure) for failure in failures if _beneath(failure.path.strip("/"), below)]}

    def _log_level(self, question: Mapping[str, Any], _descriptors: list[int]) -> dict[str, Any]:
        level = question.get("level")
        if level not in LEVELS:
            raise SetupError(f"there is no log level {level!r}", f"levels: {', '.join(LEVELS)}")
        logging.getLogger().setLevel(str(level).upper())
        return {"log_level": level}

    def _accesses(self, _question: Mapping[str, Any], descriptors: list[int]) -> dict[str, Any]:
        self.log_accesses(descriptors[0] if descriptors else None)
        return {"access_log": bool(descriptors)}


def _beneath(path: str, below: str) -> bool:
    """True if an error at `path` concerns `below`. A chunk's errors are kept under the path of its array."""
    if path.endswith("/...") and below.startswith(path[:-3]):
        return True
    return not below or path == below or path.startswith(f"{below}/")


def _name(code: int) -> str:
    return errno.errorcode.get(code, str(code))


def _described(failure: Failure) -> dict[str, Any]:
    return {**failure._asdict(), "errno": _name(failure.errno)}
