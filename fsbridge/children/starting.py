"""The daemon's side of the processes that start children: one per program, started when first needed, again if it is gone.

Not here: that process (`server.py`), talking to a child (`client.py`). Thread-safe.
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
from functools import partial
from pathlib import Path

import fsbridge
from fsbridge import confinement
from fsbridge.children.server import FORGET, MESSAGE_BYTES, NO, REAP, START
from fsbridge.errors import SHORTAGES

START_SECONDS = 30.0
"""Seconds to start Python and import h5py: 0.3 alone, much more when the machine is busy."""


class StartFailed(Exception):
    """No child could be started; the message says why."""


class NoRoom(StartFailed):
    """The system has no room for another process, or for descriptors, at the moment."""


@dataclass(frozen=True, slots=True)
class Program:
    """What children of one kind run: a module that calls `server.run`, and environment variables beside the daemon's."""

    module: str
    environment: tuple[tuple[str, str], ...] = ()
    without: str = ""
    """Beginning of the daemon's own variables that the children do not get."""


class Starter:
    """The process that forks the children of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self, sock: socket.socket) -> tuple[int, int]:
        """A new child that serves `sock`: its number and a descriptor of the process. Raises StartFailed, NoRoom."""
        with self._lock:
            for last in (False, True):
                try:
                    control = self._control or self._launch()
                    socket.send_fds(control, [START], [sock.fileno()])
                    reply, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 1)
                    if reply.startswith(NO):
                        raise NoRoom(f"no process can be started: {reply.removeprefix(NO).decode()}")
                    if reply and descriptors:
                        return int(reply), descriptors[0]
                    if reply:  # it has no socket any more, and ends
                        control.send(FORGET + reply)
                        raise NoRoom(f"no process can be started: {os.strerror(errno.EMFILE)}")
                    raise ConnectionError("it ended")
                except OSError as error:
                    self._end()
                    if error.errno in SHORTAGES:
                        raise NoRoom(f"no process can be started: {error.strerror}") from None
                    if last:
                        raise StartFailed(f"the process that starts others failed: {error}") from None
                except MemoryError:  # who asks next would get this one's child
                    self._end()
                    raise
        raise AssertionError

    def reap(self, number: int) -> int | None:
        """How a child that has ended did so, as os.waitpid says; None when nobody knows any more."""
        with self._lock:
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
        """As `reap`, of a child that may still be ending: until its memory is given back milliseconds pass, or more."""
        with self._lock, contextlib.suppress(OSError):
            if self._control is not None:
                self._control.send(FORGET + b"%d" % number)

    def close(self) -> None:
        """End the process; the next child starts another."""
        with self._lock:
            self._end()

    @property
    def pid(self) -> int | None:
        """The process's number while it runs."""
        return None if self._process is None else self._process.pid

    def _launch(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = confinement.outside(partial(self._start, theirs.fileno()))
        ours.settimeout(START_SECONDS)
        self._control = ours
        return ours

    def _start(self, stdin: int) -> subprocess.Popen[bytes]:
        """In front of the wall: the store's files of later are not those that the threads of now may open."""
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


_starters: dict[Program, Starter] = {}
_lock = threading.Lock()


def starter(program: Program) -> Starter:
    """The process that starts children of `program`."""
    with _lock:
        if program not in _starters:
            _starters[program] = Starter(program)
        return _starters[program]


@atexit.register
def close_all() -> None:
    """End all starters."""
    with _lock:
        for found in _starters.values():
            found.close()


_CREDENTIALS = ("AWS_", "AZURE_", "GOOGLE_")
"""Beginnings of the variables that requests are signed by. Children make none, and read what others have written."""


def _environment(program: Program) -> dict[str, str]:
    """The daemon's environment with the program's changes and without credentials; one thread."""
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
