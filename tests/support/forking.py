"""Commands in processes forked from one that has imported what they import: a start takes 15 ms instead of 360.

`start` is for commands what `subprocess.Popen` is for programs, `run` what `subprocess.run` is. The forked process gets its
arguments, directory, environment, descriptors, limits, umask and session as a new one would. This module is also the program
of the process that forks: it has one thread, so that no lock is copied while it is held, and it ends with the tests.

Not here: how a command starts (its entry point, its imports, `PYTHON...` variables, signals before its first line). Tests of
that start the installed command (`mounting.command`).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import resource
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paths import ROOT

REQUEST_BYTES = 1 << 17
ROOM = 1 << 15
"""Bytes of a command line that a forked process can show in /proc, where programs such as ps look for it."""
LATER = ("nibabel.nifti1", "obstore.store", "tifffile")
"""Libraries that fsbridge imports when it needs them, and that take more than 20 ms."""
READERS = ("tensorstore", "zarr")
"""What programs import that read mounts (`readers.py`)."""
APART = ("fsbridge.__main__", "fsbridge.unmounted.cluster")
"""Modules that no mount imports: the entry, which does nothing else, and dask's, which take 0.7 s."""
LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
AT_START = ("PYTHON", "LC_", "LANG", "LD_")
"""How the names of variables begin that count when the interpreter starts."""


def environment() -> dict[str, str]:
    """Return the test's own environment, with this checkout importable when fsbridge is not installed."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


class Process:
    """A command that runs: the part of `subprocess.Popen` that tests use."""

    def __init__(self, words: list[str], status: socket.socket, pipes: list[int | None], text: bool) -> None:
        self.args = words
        self.returncode: int | None = None
        self._status = status
        self._text = text
        self.stdout, self.stderr = (None if pipe is None else os.fdopen(pipe, "r" if text else "rb") for pipe in pipes)
        message = status.recv(64).decode()
        if not message.startswith("pid "):
            raise AssertionError(f"no process was forked for {words}: {message or 'the parent has ended'}")
        self.pid = int(message.removeprefix("pid "))

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                message = self._status.recv(64).decode()
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            if not message:
                raise AssertionError(f"the parent of {self.args} has ended before it")
            self.returncode = int(message.removeprefix("exit "))
            self._status.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """Read both pipes to their ends, wait, and return what was read. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        read = {stream: bytearray() for stream in (self.stdout, self.stderr) if stream and not stream.closed}
        with selectors.DefaultSelector() as waiting:
            for stream in read:
                waiting.register(stream, selectors.EVENT_READ, read[stream])
            while waiting.get_map():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left < 0:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
                for key, _ in waiting.select(left):
                    data = os.read(key.fd, 1 << 16)
                    key.data.extend(data)
                    if not data:
                        waiting.unregister(key.fileobj)
        for stream in read:
            stream.close()
        self.wait(None if deadline is None else max(deadline - time.monotonic(), 0))
        out, err = (self._shown(read[stream]) if stream in read else None for stream in (self.stdout, self.stderr))
        return out, err

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _shown(self, data: bytearray) -> str | bytes:
        return data.decode().replace("\r\n", "\n").replace("\r", "\n") if self._text else bytes(data)


class _Parent:
    """This process's side of the one that forks: started on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None

    def ask(self, request: dict[str, Any], descriptors: Sequence[int]) -> None:
        with self._lock:
            self._control = self._control or self._launch()
        socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)

    def _launch(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_BYTES)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), " " * ROOM],
                stdin=subprocess.DEVNULL,
                env={**environment(), "OPENBLAS_NUM_THREADS": "1"},  # it would start threads
                pass_fds=[theirs.fileno()],
            )
        atexit.register(process.wait)
        atexit.register(ours.close)  # the other way round
        return ours


_parent = _Parent()


def start(
    *words: str | os.PathLike[str],
    program: Path | None = None,
    stdin: Any = subprocess.DEVNULL,
    stdout: Any = None,
    stderr: Any = None,
    env: dict[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    start_new_session: bool = False,
    text: bool = True,
) -> Process:
    """Start `fsbridge WORDS`, or a `program` in Python that runs as `__main__`; the parameters are those of `Popen`.

    Pipes are for what is written only. The environment differs from the tests' in nothing that counts when Python starts.
    """
    env = environment() if env is None else env
    differing = {name for name, _ in env.items() ^ environment().items() if name.startswith(AT_START)}
    assert not differing, f"start the installed command: {differing} count when the interpreter starts"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pipes: list[int | None] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(theirs)
        descriptors = [theirs.fileno()]
        for number, stream in enumerate((stdin, stdout, stderr)):
            if stream is subprocess.PIPE:
                reading, descriptor = os.pipe()
                pipes.append(reading)
                stack.callback(os.close, descriptor)
            else:
                pipes.append(None)
                if stream is None:
                    descriptor = number
                elif stream is subprocess.STDOUT:
                    descriptor = descriptors[2]
                elif stream is subprocess.DEVNULL:
                    descriptor = os.open(os.devnull, os.O_RDWR)
                    stack.callback(os.close, descriptor)
                else:
                    descriptor = stream if isinstance(stream, int) else stream.fileno()
            descriptors.append(descriptor)
        line = [str(program or Path(sys.executable).with_name("fsbridge")), *map(os.fsdecode, words)]
        request = {
            "line": line,
            "program": program and str(program),
            "environment": env,
            "directory": os.fsdecode(cwd or os.getcwd()),
            "new session": start_new_session,
            "limits": {number: resource.getrlimit(number) for number in LIMITS},
            "umask": _umask(),
        }
        _parent.ask(request, descriptors)
    return Process(line, ours, pipes[1:], text)


def run(
    *words: str | os.PathLike[str], timeout: float = 60, given: bytes | None = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a command, or a `program`, to its end and return its exit code and output; `given` is its standard input."""
    with contextlib.ExitStack() as stack:
        if given is not None:
            options["stdin"] = stack.enter_context(open(os.memfd_create("stdin"), "w+b"))
            options["stdin"].write(given)
            options["stdin"].seek(0)
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = stack.enter_context(start(*words, **options))
        try:
            out, err = process.communicate(timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.wait(), out, err)


def _umask() -> int:
    """Return this process's umask without changing it, which would show in its other threads."""
    status = Path("/proc/self/status").read_text()
    return int(status[status.index("Umask:") :].split()[1], 8)


class _Forker:
    """The process that forks. `children` has each one's number and status socket by its pidfd."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.waiting = selectors.DefaultSelector()
        self.waiting.register(control, selectors.EVENT_READ)
        self.children: dict[int, tuple[int, socket.socket]] = {}

    def serve(self) -> dict[str, Any] | None:
        """Fork for each request until the tests have ended. Returns in each child, with its request."""
        while True:
            for key, _ in self.waiting.select():
                if key.fileobj is not self.control:
                    self._report(key.fd)
                    continue
                message, descriptors, _, _ = socket.recv_fds(self.control, REQUEST_BYTES, 4)
                if not message:
                    return None
                request: dict[str, Any] = json.loads(message)
                status = socket.socket(fileno=descriptors[0])
                number = os.fork()
                if number == 0:
                    self._close()
                    _become(request, descriptors[1:])
                    status.send(f"pid {os.getpid()}".encode())
                    status.close()
                    return request
                for descriptor in descriptors[1:]:
                    os.close(descriptor)
                pidfd = os.pidfd_open(number)
                self.children[pidfd] = number, status
                self.waiting.register(pidfd, selectors.EVENT_READ)

    def _report(self, pidfd: int) -> None:
        number, status = self.children.pop(pidfd)
        self.waiting.unregister(pidfd)
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
        with status, contextlib.suppress(BrokenPipeError, ConnectionResetError):  # nothing waits for it any more
            status.send(f"exit {code}".encode())

    def _close(self) -> None:
        """Close what belongs to the process that forks, as objects: closed by number, they would close others later."""
        self.waiting.close()
        self.control.close()
        for pidfd, (_, status) in self.children.items():
            os.close(pidfd)
            status.close()


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Make this process what a new one would be."""
    if request["new session"]:
        os.setsid()
    os.chdir(request["directory"])
    os.umask(request["umask"])
    for limit, values in request["limits"].items():
        resource.setrlimit(int(limit), values)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    streams = {"stdin": "r", "stdout": "w", "stderr": "w"}
    for number, (name, mode) in enumerate(streams.items()):
        before = getattr(sys, name)
        raw = os.fdopen(number, f"{mode}b", closefd=False)
        lines = name == "stderr" or (name == "stdout" and os.isatty(number))
        stream: Any = io.TextIOWrapper(raw, before.encoding, before.errors, line_buffering=lines)
        stream.mode = mode  # as sys's own have it
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv = request["line"]
    _show_line([sys.executable, *sys.argv])


def _show_line(words: list[str]) -> None:
    """Write the command line and the process's name where /proc shows them."""
    start, stop = (int(field) for field in Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    line = b"".join(os.fsencode(word) + b"\0" for word in words)[: stop - start]
    ctypes.memmove(start, line.ljust(stop - start, b"\0"), stop - start)
    Path("/proc/self/comm").write_bytes(os.fsencode(Path(words[1]).name)[:15])


def _import_everything() -> None:
    """Import what mounts and commands import; children's programs are no part of it."""
    import fsbridge

    for module in pkgutil.walk_packages(fsbridge.__path__, "fsbridge."):
        if module.name not in APART and ".child" not in module.name:
            importlib.import_module(module.name)
    for name in (*LATER, *READERS):
        importlib.import_module(name)
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads: what they lock would stay locked in every process that is forked"


def main() -> int:
    forker = _Forker(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # this process ends with the tests, whose Ctrl-C it gets, too
    _import_everything()
    gc.collect()
    gc.freeze()  # for ever: what is frozen need not be copied and torn down in each child
    request = forker.serve()
    if request is None:
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where tests run in the background, and shells ignore it
    if request["program"]:
        sys.path.insert(0, os.path.dirname(request["program"]))
        runpy.run_path(request["program"], run_name="__main__")
        return 0
    from fsbridge.__main__ import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
