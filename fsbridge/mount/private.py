"""A mount for one program: in a mount namespace of its own where the kernel allows that, else in a private folder.

The calling process enters the namespace, serves the mount from a child, runs the program and waits for it. The daemon ends
when this process ends, however that happens. Not here: serving (`daemon.py`), the system calls (`namespace.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import NoReturn

from fsbridge.config import Config
from fsbridge.deadlines import Deadline
from fsbridge.errors import SetupError
from fsbridge.mount import namespace, preflight
from fsbridge.mount.lifecycle import mount
from fsbridge.mount.preflight import INTERNAL, SYSTEM

NO_SUCH_PROGRAM, CANNOT_RUN, BY_SIGNAL = 127, 126, 128
"""Exit codes of a shell: no such program, not executable, and what is added to the number of a fatal signal."""

END_SECONDS = 2.0
"""Seconds for the daemon to end after SIGTERM (P10)."""

STEP_SECONDS = 0.01

PR_SET_PDEATHSIG = 1

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that are passed on to the program. SIGINT and SIGQUIT of a terminal reach it directly."""


class _Server:
    """The child that serves the mount of `config`. Its warnings go to the terminal, as in the foreground."""

    def __init__(self, config: Config) -> None:
        self._folder = config.mountpoint
        parent = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            _serve(replace(config, foreground=True), parent)

    def wait_until_ready(self, signals: _Signals) -> None:
        """Wait until the mounted root answers. SystemExit on a signal, or if the child ended (it prints why)."""
        while preflight.mounted_at(self._folder) is None:
            ended, status = os.waitpid(self._child, os.WNOHANG)
            if ended:
                self._child = 0
                raise SystemExit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else SYSTEM)
            if signals.early:
                raise SystemExit(BY_SIGNAL + signals.early[0])
            time.sleep(STEP_SECONDS)
        os.stat(self._folder)

    def end(self) -> None:
        """End the child, which unmounts. If it has not ended after `END_SECONDS`, kill it and unmount here."""
        if self._child:
            os.kill(self._child, signal.SIGTERM)
            deadline = Deadline(END_SECONDS)
            while os.waitpid(self._child, os.WNOHANG) == (0, 0):
                if deadline.passed:
                    os.kill(self._child, signal.SIGKILL)
                    os.waitpid(self._child, 0)
                    break
                time.sleep(STEP_SECONDS)
        if preflight.mounted_at(self._folder) is not None:
            preflight.unmount(self._folder, lazy=True)


class _Signals:
    """Signals to this process that are meant for the program; those that come before it runs are in `early`."""

    def __init__(self) -> None:
        self.early: list[int] = []
        self._program: subprocess.Popen[bytes] | None = None
        for number in _PASSED_ON:
            signal.signal(number, self._pass_on)

    def run(self, words: list[str], env: dict[str, str]) -> int:
        """Run the program to its end and return the exit code that stands for it."""
        for terminals in (signal.SIGINT, signal.SIGQUIT):  # no SIG_IGN, which the program would inherit
            signal.signal(terminals, lambda number, frame: None)
        try:
            self._program = subprocess.Popen(words, env=env)
        except OSError as error:
            code = NO_SUCH_PROGRAM if isinstance(error, FileNotFoundError) else CANNOT_RUN
            raise SetupError(f"{words[0]}: {error.strerror}", exit_code=code) from None
        for number in self.early:
            self._program.send_signal(number)
        code = self._program.wait()
        return BY_SIGNAL - code if code < 0 else code

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        if self._program is None:
            self.early.append(number)
        else:
            with contextlib.suppress(ProcessLookupError):
                self._program.send_signal(number)


def run_with_mount(config: Config, command: Callable[[str], tuple[list[str], dict[str, str]]]) -> int:
    """Run a program with the mount, and return its exit code. `command` maps the mount's path to words and environment.

    SetupError if it could not be mounted. The process ends soon afterwards: its signal handlers stay as they are.
    """
    folder = tempfile.mkdtemp(prefix="fsbridge-")
    try:
        signals = _Signals()
        if namespace.permitted(folder):
            namespace.enter()
        server = _Server(replace(config, mountpoint=folder))
        try:
            server.wait_until_ready(signals)
            return signals.run(*command(folder))
        finally:
            server.end()
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _serve(config: Config, parent: int) -> NoReturn:
    code = INTERNAL
    try:
        for number in _PASSED_ON:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()  # a terminal's ctrl-C is for the program
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() == parent:
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)  # a reader of the program's output must not wait for us
            code = mount(config)
    except SetupError as error:
        print(f"fsbridge: {error}", file=sys.stderr)
        code = error.exit_code
    finally:
        os._exit(code)
