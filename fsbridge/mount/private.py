"""A mount for one program: in a mount namespace of its own where the kernel allows that, else in a private folder.

The calling process enters the namespace, serves the mount from a child, runs the program and waits for it. The daemon ends
when this process ends, however that happens. Not here: serving (`daemon.py`), a mount for a `with` block (`__init__.py`).
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
from fsbridge.errors import SetupError
from fsbridge.mount import preflight
from fsbridge.mount.lifecycle import mount
from fsbridge.mount.preflight import INTERNAL, MNT_DETACH, SYSTEM
from fsbridge.threads.deadlines import Deadline

NO_SUCH_PROGRAM, CANNOT_RUN, BY_SIGNAL = 127, 126, 128
"""Exit codes of a shell: no such program, not executable, and what is added to the number of a fatal signal."""

END_SECONDS = 2.0
"""Seconds for the daemon to end after SIGTERM (P10)."""

STEP_SECONDS = 0.01

PR_SET_PDEATHSIG = 1

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that are passed on to the program. SIGINT and SIGQUIT of a terminal reach it directly."""

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REC, MS_SLAVE = 1, 2, 4, 0x4000, 1 << 19


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
        while preflight.find_mount(self._folder) is None:
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
        if preflight.find_mount(self._folder) is not None:
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

    SetupError if it could not be mounted. The signal handlers are not restored, because this process must end soon.
    """
    folder = tempfile.mkdtemp(prefix="fsbridge-")
    try:
        signals = _Signals()
        if _namespace_is_permitted(folder):
            _enter_namespace()
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


def _enter_namespace() -> None:
    """Move this process, which has one thread, into a mount namespace where it may mount; OSError if that is refused.

    User and groups stay what they are.
    """
    libc = _libc()
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWNS):
        _check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS))
        with contextlib.suppress(FileNotFoundError):
            _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    _check(libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None))  # what others unmount is unmounted here, too


def join_namespace(path: str) -> None:
    """Move this process, which has one thread, into the mount namespace of the file `path`; OSError if that is refused."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc().setns(file, CLONE_NEWNS))
    finally:
        os.close(file)


def _namespace_is_permitted(folder: str) -> bool:
    """True if a process may enter a mount namespace and then mount FUSE on `folder`. A child tries it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _enter_namespace()
            _try_mount(folder)
            code = 0
        except OSError:
            pass
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return status == 0


def _try_mount(folder: str) -> None:
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()}"
    flags = MS_RDONLY | MS_NOSUID | MS_NODEV
    libc = _libc()
    _check(libc.mount(b"fsbridge", os.fsencode(folder), b"fuse.fsbridge", flags, options.encode()))
    libc.umount2(os.fsencode(folder), MNT_DETACH)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
