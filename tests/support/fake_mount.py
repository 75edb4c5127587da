"""Mounts of the in-memory tree (`fake_tree.py`) as real daemons, for tests of the kernel side. Not here: stores."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import forking
from mounting import mounted
from waiting import PATIENCE, until

PROGRAM = Path(__file__).with_name("fake_tree.py")


class FakeMount:
    """A mount point, the real directory behind `keyed` and `plain`, and the daemons started on it."""

    def __init__(self, where: Path) -> None:
        self.path = where / "mnt"
        self.path.mkdir()
        self.disk = where / "disk"
        self.disk.mkdir()
        self.log_path = where / "log"
        self.foreground: forking.Process | None = None

    def command(self, *options: str) -> list[str]:
        return [sys.executable, str(PROGRAM), str(self.disk), str(self.path), *options]

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Mount in the background; returns when the command does."""
        return forking.run(self.disk, self.path, *options, "--log-file", str(self.log_path), program=PROGRAM)

    def start(self, *options: str) -> FakeMount:
        """Mount in the background; it must succeed, silently."""
        done = self.run(*options)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        return self

    def start_foreground(self, *options: str, program: str = "", **process: Any) -> forking.Process:
        """Mount in the foreground, by `program` (source text) if given, and wait until it is mounted."""
        file = PROGRAM
        if program:
            file = self.path.with_name("program.py")
            file.write_text(program)
        words: tuple[str | os.PathLike[str], ...] = (self.disk, self.path, "--foreground", *options)
        started = forking.start(*words, program=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **process)
        self.foreground = started
        until(lambda: self.mounted or started.poll() is not None)
        assert self.mounted, started.communicate()
        return started

    @property
    def mounted(self) -> bool:
        return mounted(self.path)

    @property
    def daemons(self) -> list[int]:
        """Processes that serve this mount point, or try to."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                    if words[0] == os.fsencode(sys.executable) and os.fsencode(self.path) in words and not ended(entry):
                        found.append(int(entry))
        return found

    @property
    def daemon(self) -> int:
        """The one process that serves; a program that it starts (stat, after the mount) looks like it until executed."""
        found: list[int] = []

        def one() -> bool:
            found[:] = self.daemons
            return len(found) == 1

        until(one)
        return found[0]

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    def signal(self, number: int) -> float:
        """Send a signal to the daemon and wait for its end; the seconds until it was unmounted."""
        pid, begin = self.daemon, time.monotonic()
        os.kill(pid, number)
        until(lambda: not self.mounted)
        seconds = time.monotonic() - begin
        self.gone()
        return seconds

    def gone(self) -> None:
        """Wait until no daemon is left."""
        if self.foreground is not None:
            self.foreground.wait(PATIENCE)
        until(lambda: not self.daemons)

    def clear(self) -> None:
        """Take everything away, whatever the test has left."""
        for pid in self.daemons:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.foreground is not None:
            self.foreground.kill()
            self.foreground.communicate()
        while self.mounted:
            subprocess.run(["fusermount3", "-uz", str(self.path)], check=True)


def ended(pid: str | int) -> bool:
    """Also if the parent never waits for it: a container's first process need not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True
