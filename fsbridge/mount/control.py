"""The control socket of a daemon: a client sends one question as a line of JSON and gets one answer.

A separate thread answers. It reads counters and waits neither for the event loop nor for a store: either may hang, and this
is to say so.

Beside the socket lies a file of JSON with what never changes (mount point, source, pid), so that even a daemon that hangs
can be named. Only the daemon's user and root can open the two. Not here: the asking side (`running.py`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import secrets
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fsbridge.config import LEVELS, Config
from fsbridge.errors import SetupError, printable
from fsbridge.threads import starting
from fsbridge.threads.deadlines import Stopwatch

if TYPE_CHECKING:  # the asking commands import this module, too
    from fsbridge.decoded.cache import ChunkCache
    from fsbridge.kernel.boundary import Failure
    from fsbridge.kernel.filesystem import Filesystem
    from fsbridge.mount.logs import AccessLog

log = logging.getLogger(__name__)

Answer: TypeAlias = Callable[[Mapping[str, Any], list[int]], Mapping[str, Any]]
"""Maps a question and the descriptors that came with it to an answer; SetupError says why there is none."""

QUESTION_BYTES = 65536
"""Bytes of a question at most."""

PATIENCE_SECONDS = 0.3
"""Seconds that a client has to send its question and take the answer: the next client waits meanwhile."""

AGAIN_SECONDS = 0.2
"""Seconds until the next question is taken after one failed because no descriptor was free."""

SERVING, WAITING, BUSY = "serving", "waits for the store", "busy"
"""States of a mount: it answers; a request takes long; the event loop does not get to run."""

LOOP_SECONDS = 0.2
"""Seconds for which a status question waits for the event loop. After that the loop counts as busy."""


def folders() -> list[str]:
    """Return the folders that this user's control sockets may be in, the best one first."""
    user = os.geteuid()
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    places = [f"{given}/fsbridge"] if given.startswith("/") else []
    places.append(f"/run/user/{user}/fsbridge")
    if user == 0:
        places.append("/run/fsbridge")
    return list(dict.fromkeys([*places, f"/tmp/fsbridge-{user}"]))


def is_private(path: str) -> bool:
    """True if `path` is a folder of this user's that no other user can look into."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _choose_folder(places: Sequence[str]) -> str:
    """Return the first of the folders that exists or can be made, for this user alone; OSError if there is none."""
    problem: OSError | None = None
    for path in places:
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
            if is_private(path):
                return path
            problem = PermissionError(f"{path} is not a directory that only this user can write to")
        except OSError as error:
            problem = error
    assert problem is not None
    raise problem


@contextlib.contextmanager
def short_address(path: str) -> Iterator[str]:
    """Give a short address of the socket, through its folder's descriptor. Addresses have at most 107 bytes."""
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)


class Control:
    """The control socket of this process, until `close`. If none can be made, the mount is served without one."""

    def __init__(self, facts: Mapping[str, Any], answers: Mapping[str, Answer]) -> None:
        """`facts`: what never changes; `answers`: by the question's name."""
        self._answers = answers
        self._paths: list[str] = []
        self._socket: socket.socket | None = None
        try:
            self._begin(facts)
        except OSError as error:
            log.info("the control socket cannot be made, so `fsbridge status` shows little of this mount: %s", error)
            self.close()
        else:
            starting.start(self._serve, "fsbridge-control")

    def _begin(self, facts: Mapping[str, Any]) -> None:
        base = f"{_choose_folder(folders())}/{os.getpid()}-{secrets.token_hex(4)}"
        path, described = f"{base}.sock", f"{base}.json"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        with short_address(path) as address:
            self._socket.bind(address)
        self._paths.append(path)
        os.chmod(path, 0o600)  # no other user could connect before this: the folder is private
        self._socket.listen(64)
        self._paths.append(described)
        new = Path(f"{base}.new")
        new.touch(0o600)
        new.write_text(json.dumps({**facts, "pid": os.getpid(), "started": time.time()}))
        new.rename(described)

    def close(self) -> None:
        """Remove the socket."""
        for path in self._paths:
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._paths.clear()
        if self._socket is not None:
            self._socket.close()

    def _serve(self) -> None:
        listening = self._socket
        assert listening is not None
        while listening.fileno() >= 0:
            try:
                connection = listening.accept()[0]
            except OSError:  # closed, or no descriptor is left
                time.sleep(AGAIN_SECONDS)
                continue
            with connection, contextlib.suppress(OSError, MemoryError):
                connection.settimeout(PATIENCE_SECONDS)
                self._reply(connection)

    def _reply(self, connection: socket.socket) -> None:
        text, descriptors, _, _ = socket.recv_fds(connection, QUESTION_BYTES, 1)
        try:
            while text and not text.endswith(b"\n") and len(text) < QUESTION_BYTES:
                more = connection.recv(QUESTION_BYTES - len(text))
                if not more:
                    break
                text += more
            answer = self._answer(text, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        connection.sendall(json.dumps(answer).encode() + b"\n")

    def _answer(self, text: bytes, descriptors: list[int]) -> Mapping[str, Any]:
        try:
            question = json.loads(text)
            answer = self._answers[question["ask"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            return {"error": "the daemon does not know this request; it may be another version of fsbridge"}
        try:
            return answer(question, descriptors)
        except SetupError as error:
            return {"error": str(error)}
        except Exception as error:  # a bug must not end the thread: the daemon would answer nothing more
            log.error("unexpected %s in the control socket", type(error).__name__, exc_info=error)
            return {"error": f"unexpected {type(error).__name__}: see the log of the daemon"}


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
        from fsbridge.mount.logs import AccessLog

        before = self._access_log
        self._access_log = None if descriptor is None else AccessLog(os.dup(descriptor), self._filesystem.inodes.exact_path)
        self._filesystem.tell_access = None if self._access_log is None else self._access_log.tell
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
            "last_error": _describe(failures[-1]) if failures else None,
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
        return {"errors": [_describe(failure) for failure in failures if _beneath(failure.path.strip("/"), below)]}

    def _log_level(self, question: Mapping[str, Any], _descriptors: list[int]) -> dict[str, Any]:
        level = question.get("level")
        if level not in LEVELS:
            raise SetupError(f"unknown log level {level!r}", f"levels: {', '.join(LEVELS)}")
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


def _describe(failure: Failure) -> dict[str, Any]:
    return {**failure._asdict(), "errno": _name(failure.errno)}
