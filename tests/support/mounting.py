"""Real mounts for tests: the command in a process of its own, watched from readiness to the end. Not here: fixtures.

What is tested is the command that a user runs, never a file system object inside the test's own process. A mount that cannot
be made is a failure, not a skip; a daemon that logs something no test asked for is a failure too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import forking

READY = 30.0
"""Seconds until a mount must answer, on a loaded machine."""
LOOP_LIMIT = "250"
"""Milliseconds of computing without a pause for one request on the event loop: more fails the test.

The first request of a kind imports what it needs, which alone takes up to a hundred."""
STOP = 10.0
"""Seconds from SIGTERM to the daemon's end; P10 promises two on an idle machine."""


def command(*arguments: str | os.PathLike[str]) -> list[str]:
    """Return the command line of the installed `fsbridge`, the script beside this Python or else the module.

    For tests of how it starts, or of what starts it (a shell, env, prlimit): all others start it by `forking.py`.
    """
    script = Path(sys.executable).with_name("fsbridge")
    start = [str(script)] if script.exists() else [sys.executable, "-m", "fsbridge"]
    return [*start, *(os.fspath(argument) for argument in arguments)]


def fsbridge(*arguments: str | os.PathLike[str], timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run `fsbridge` to its end and return its exit code and output."""
    return forking.run(*arguments, timeout=timeout)


def without_log_notice(printed: str) -> str:
    """Return what a mount printed, without its notice that there is no syslog: only some machines have one."""
    return "".join(line for line in printed.splitlines(keepends=True) if "there is no syslog, so the log" not in line)


class Mounted(NamedTuple):
    """One mount in the kernel's list; `options` are those of the mount point, `super_options` of the file system."""

    options: set[str]
    fstype: str
    source: str
    super_options: set[str]


def mounts_at(path: str | os.PathLike[str]) -> list[Mounted]:
    """Return the mounts at `path`, from the kernel's list: asking the file system itself could hang."""
    found = []
    for line in os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).split("\n")[:-1]:  # others may mount at any name
        fields = [re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), field) for field in line.split(" ")]
        if fields[4] == os.fspath(path):
            fstype, source, options = fields[fields.index("-", 6) + 1 :]
            found.append(Mounted(set(fields[5].split(",")), fstype, source, set(options.split(","))))
    return found


def mounted(path: str | os.PathLike[str]) -> bool:
    """Tell if something is mounted at `path`."""
    return bool(mounts_at(path))


def await_disconnected(point: str | os.PathLike[str]) -> None:
    """Wait until the kernel has noticed that the daemon of `point` is dead.

    What is asked before is aborted (ECONNABORTED): the last descriptor of /dev/fuse may belong to a dying child.
    """
    deadline = time.monotonic() + STOP
    while True:
        try:
            os.listdir(point)
        except OSError as error:
            if error.errno != errno.ECONNABORTED:
                return
        if time.monotonic() > deadline:
            raise AssertionError(f"{point}: is still answered {STOP} s after its daemon was killed")
        time.sleep(0.01)


class Mount:
    """One running daemon in the foreground and the tree it shows; `path`-like.

    `installed`: it is a new process of the installed command. A forked one begins with the memory of its parent, which
    has imported all readers, so tests that compare memory with a limit need a new one.
    """

    def __init__(
        self, source: str | os.PathLike[str], where: Path, options: Sequence[str] = (), installed: bool = False
    ) -> None:
        self.source = source
        self.path = where / "mnt"
        self.path.mkdir(parents=True)
        self.log_path = where / "log"
        self._allowed: list[re.Pattern[str]] = []
        self._killed = False
        with open(self.log_path, "wb") as log:
            words = ("mount", "--foreground", "--loop-limit", LOOP_LIMIT, *options, source, self.path)
            self.process: forking.Process | subprocess.Popen[bytes]
            if installed:
                self.process = subprocess.Popen(
                    command(*words),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=forking.environment(),
                    start_new_session=True,
                )
            else:
                self.process = forking.start(*words, stdout=log, stderr=log, start_new_session=True)
        try:
            self._await_ready()
        except BaseException:
            self._kill()
            raise

    def __fspath__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def __repr__(self) -> str:
        return f"<Mount {self.path} pid {self.process.pid}>"

    @property
    def alive(self) -> bool:
        """True if the daemon runs and its root answers."""
        return self.process.poll() is None and self._answers(10)

    def log(self) -> list[str]:
        """Return what the daemon has written so far, line by line."""
        return self.log_path.read_text(errors="replace").splitlines()

    def told(self, pattern: str, count: int = 1) -> list[str]:
        """The log's lines that match `pattern`, once there are `count` of them: a thread of the daemon writes them."""
        deadline = time.monotonic() + READY
        while len(lines := [line for line in self.log() if re.search(pattern, line)]) < count:
            if time.monotonic() > deadline:
                raise AssertionError("\n".join([f"not logged {count} times in {READY} s: {pattern}", *self.log()]))
            time.sleep(0.01)
        return lines

    def settle(self, busy: Callable[[], object] = lambda: False) -> None:
        """Wait until nothing is read ahead: no thread of the daemon wants to run for 0.3 s, nor is anything `busy`."""
        deadline, quiet, idle = time.monotonic() + READY, 0, None
        while quiet < 6:
            assert time.monotonic() < deadline, f"{self} is busy after {READY} s"
            time.sleep(0.05)
            before, idle = idle, _idle_since(self.process.pid)
            quiet = quiet + 1 if idle is not None and idle == before and not busy() else 0

    def allow(self, pattern: str) -> None:
        """Lines that match `pattern` (a regular expression) are expected: they do not fail the test."""
        self._allowed.append(re.compile(pattern))

    def unexpected(self) -> list[str]:
        """Log lines that nothing allowed."""
        return [line for line in self.log() if line.strip() and not any(p.search(line) for p in self._allowed)]

    def stop(self) -> None:
        """End the daemon with SIGTERM; AssertionError unless it ended well.

        Well means: exit code 0, unmounted, no process left, nothing unexpected logged.
        """
        if self._killed:
            self.clear()
            return
        problems = []
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP)
            if code != 0:
                problems.append(f"the daemon ended with exit code {code}")
        except subprocess.TimeoutExpired:
            problems.append(f"the daemon still runs {STOP} s after SIGTERM")
        if mounted(self.path):
            problems.append("still mounted")
        deadline = time.monotonic() + STOP
        while _session(self.process.pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        if _session(self.process.pid):
            problems.append(f"processes left: {sorted(_session(self.process.pid))}")
        self._kill()
        problems += [f"unexpected log line: {line}" for line in self.unexpected()]
        if problems:
            raise AssertionError("\n".join([f"{self}:", *problems, "log:", *self.log()[-60:]]))

    def kill(self) -> None:
        """`kill -9`, as a crash would end it; the mount stays behind until `clear`."""
        self._killed = True
        self.process.kill()
        self.process.wait(STOP)
        await_disconnected(self.path)

    def clear(self) -> None:
        """Take away what is left after `kill`."""
        self._kill()

    def _await_ready(self) -> None:
        deadline = time.monotonic() + READY
        while not (mounted(self.path) and self._answers(deadline - time.monotonic())):
            log = "\n".join(self.log())
            if self.process.poll() is not None:
                raise AssertionError(f"fsbridge ended with {self.process.returncode} before mounting:\n{log}")
            if time.monotonic() > deadline:
                raise AssertionError(f"not mounted after {READY} s:\n{log}")
            time.sleep(0.02)

    def _answers(self, timeout: float) -> bool:
        try:
            return subprocess.run(["stat", self.path], capture_output=True, timeout=max(timeout, 1)).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def _kill(self) -> None:
        for pid in _session(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            self.process.wait(STOP)
        except subprocess.TimeoutExpired:  # it waits for its own mount: abort the connection
            subprocess.run(["umount", "-f", self.path], capture_output=True)
            self.process.wait(STOP)
        while mounted(self.path):
            if subprocess.run(["fusermount3", "-u", self.path], capture_output=True).returncode != 0:
                subprocess.run(["fusermount3", "-uz", self.path], check=True)


MountFunction: TypeAlias = Callable[..., Mount]
"""Mounts a source, with options as words."""


def _idle_since(process: int) -> dict[str, str] | None:
    """Count for each thread of a process how often it has run; None while one runs, waits for a processor or for a disk."""
    found = {}
    for thread in os.listdir(f"/proc/{process}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            status = Path(f"/proc/{process}/task/{thread}/status").read_text()
            if "State:\tS" not in status:
                return None
            found[thread] = status[status.index("voluntary_ctxt_switches") :]
    return found


def _session(leader: int) -> set[int]:
    """Processes of the session that `leader` began: the daemon and its children, no one else's."""
    members = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                members.add(int(entry))
    return members
