"""The daemon's side of the processes that start children: one per program, started on first use, and again if it has ended.

In a program that opens and closes sources, they end with the last of these. Thread-safe. Not here: that process
(`server.py`), talking to a child (`client.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import fsbridge
from fsbridge.children.server import FORGET, MESSAGE_BYTES, NO, REAP, START
from fsbridge.errors import SHORTAGES
from fsbridge.threads import starting
from fsbridge.threads.forking import PerProcess, make_lock

START_SECONDS = 30.0
"""Seconds to start Python and import h5py: 0.3 on an idle machine, much more on a busy one."""


class StartFailed(Exception):
    """No child could be started. The message says why."""


class NoRoom(StartFailed):
    """The system has no room for another process, or for descriptors, at the moment."""


@dataclass(frozen=True, slots=True)
class Program:
    """What one kind of children runs: a module that calls `server.run`, with variables added to the environment."""

    module: str
    environment: tuple[tuple[str, str], ...] = ()
    without: str = ""
    """The children do not get variables of the daemon that begin with this; empty: they get all."""


class Starter:
    """The process that forks the children of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._living: set[int] = set()

    def begin(self) -> None:
        """Start the process if it does not run, and wait until it can fork. From then on it reads no file of the package."""
        with self._lock, contextlib.suppress(OSError):
            if self._control is None:
                self._launch()
        self.reap(1)  # no child of that process, which therefore answers at once

    def start(self, sock: socket.socket) -> tuple[int, int]:
        """Start a child that serves `sock`.

        Return its number and a descriptor of the process. Raises StartFailed, NoRoom.
        """
        with self._lock:
            for last in (False, True):
                try:
                    control = self._control or self._launch()
                    socket.send_fds(control, [START], [sock.fileno()])
                    reply, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 1)
                    if reply.startswith(NO):
                        raise NoRoom(f"no process can be started: {reply.removeprefix(NO).decode()}")
                    if reply and descriptors:
                        self._living.add(int(reply))
                        return int(reply), descriptors[0]
                    if reply:  # the child has no socket any more, and ends
                        control.send(FORGET + reply)
                        raise NoRoom(f"no process can be started: {os.strerror(errno.EMFILE)}")
                    raise ConnectionError("it ended")
                except OSError as error:
                    self._end()
                    if error.errno in SHORTAGES:
                        raise NoRoom(f"no process can be started: {error.strerror}") from None
                    if last:
                        raise StartFailed(f"the process that starts child processes failed: {error}") from None
                except MemoryError:  # the next question would get this child
                    self._end()
                    raise
        raise AssertionError

    def reap(self, number: int) -> int | None:
        """Return how a child that has ended did so, in os.waitpid's form, or None if that is unknown."""
        with self._lock:
            self._living.discard(number)
            if self._control is None:
                return None
            try:
                self._control.send(REAP + b"%d" % number)
                reply = self._control.recv(MESSAGE_BYTES)
                return None if reply == NO else int(reply)
            except (OSError, ValueError, MemoryError):
                self._end()
                return None

    def forget(self, number: int) -> None:
        """Reap a child that may still be ending: giving back its memory takes milliseconds or more."""
        with self._lock, contextlib.suppress(OSError):
            self._living.discard(number)
            if self._control is not None:
                self._control.send(FORGET + b"%d" % number)

    def close(self) -> None:
        """End the process. The next child starts another one."""
        with self._lock:
            self._end()

    def close_unused(self) -> None:
        """End the process unless a child that it has forked is still in use."""
        with self._lock:
            if not self._living:
                self._end()

    @property
    def pid(self) -> int | None:
        """The process's number while it runs."""
        return None if self._process is None else self._process.pid

    def _launch(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = self._start_kept(theirs.fileno())
        ours.settimeout(START_SECONDS)
        self._control = ours
        return ours

    def _start_kept(self, stdin: int) -> subprocess.Popen[bytes]:
        """Start the process from a thread that ends only after it, because the kernel kills it when that thread ends."""
        started: SimpleQueue[subprocess.Popen[bytes] | Exception] = SimpleQueue()

        def keep() -> None:
            try:
                process = self._start(stdin)
            except Exception as error:
                started.put(error)
                return
            started.put(process)
            process.wait()

        starting.start_now(keep, "fsbridge-starter")
        result = started.get()
        if isinstance(result, Exception):
            raise result
        return result

    def _start(self, stdin: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", self.program.module],
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_environment(self.program),
            cwd="/",
        )

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
        self._process = self._control = None
        self._living.clear()


class _Shared:
    """The starters of this process, and the number of their users: callers of `use` that have not called `end_use` yet."""

    def __init__(self) -> None:
        self.starters: dict[Program, Starter] = {}
        self.users = 0


_shared: PerProcess[_Shared] = PerProcess(_Shared(), _Shared)
_lock = make_lock()


def starter(program: Program) -> Starter:
    """Return the process that starts children of `program`."""
    with _lock:
        starters = _shared.get().starters
        if program not in starters:
            starters[program] = Starter(program)
        return starters[program]


def use() -> None:
    """Count one more user of the starters."""
    with _lock:
        _shared.get().users += 1


def end_use() -> None:
    """Count one user less. When there is none any more, starters without a child end."""
    with _lock:  # whoever comes next waits, and then starts another
        shared = _shared.get()
        shared.users -= 1
        for process in shared.starters.values() if not shared.users else ():
            process.close_unused()


@atexit.register
def close_all() -> None:
    """End all starters."""
    with _lock:
        for process in _shared.get().starters.values():
            process.close()


_CREDENTIALS = ("AWS_", "AZURE_", "GOOGLE_")
"""Prefixes of variables with credentials. Children make no requests, and read files from untrusted sources."""


def _environment(program: Program) -> dict[str, str]:
    """Return the daemon's environment with the program's changes, without credentials, and with one computing thread."""
    own: Mapping[str, str] = os.environ
    left_out = (*_CREDENTIALS, program.without) if program.without else _CREDENTIALS
    kept = {name: value for name, value in own.items() if not name.startswith(left_out)}
    package = str(Path(fsbridge.__file__).resolve().parent.parent)
    paths = [package, *(path for path in kept.get("PYTHONPATH", "").split(os.pathsep) if path)]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(paths),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **dict(program.environment),
    }
