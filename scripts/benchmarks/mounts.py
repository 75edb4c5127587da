"""A mounted daemon and what it costs: start, memory, processor time. Not here: what is read from it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from types import TracebackType

from fsbridge.mount.daemon import read_ahead

READY = 60.0
STOP = 20.0
TICK = os.sysconf("SC_CLK_TCK")


class Mounted:
    """A fresh mount of `source` with `options`: empty caches in the daemon and in the kernel. A context manager."""

    def __init__(self, source: str, *options: str) -> None:
        self.path = tempfile.mkdtemp(prefix="fsbridge-bench-")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the mount
        command = [sys.executable, "-m", "fsbridge", "mount", "--foreground", *options, source, self.path]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        self.pid = self._process.pid

    def __enter__(self) -> Mounted:
        device = os.stat(os.path.dirname(self.path)).st_dev
        deadline = time.monotonic() + READY
        while os.stat(self.path).st_dev == device:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._log.seek(0)
                raise RuntimeError(f"fsbridge did not mount: {self._log.read().decode(errors='replace')}")
            time.sleep(0.005)
        spent = -1.0
        while self.processor() > spent:  # what the daemon does right after it is ready is no part of a read
            spent = self.processor()
            time.sleep(0.3)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait(STOP)
        os.rmdir(self.path)
        self._log.seek(0)
        words = self._log.read().decode(errors="replace")
        self._log.close()
        if words:
            print(words, file=sys.stderr, end="")

    def memory(self) -> tuple[float, float]:
        """Resident memory now and at its peak, in MB, of the daemon and its children."""
        now = peak = 0
        for pid in (self.pid, *_children(self.pid)):
            with open(f"/proc/{pid}/status") as file:
                fields = dict(line.split(":", 1) for line in file)
            now += int(fields["VmRSS"].split()[0])
            peak += int(fields["VmHWM"].split()[0])
        return now * 1024 / 1e6, peak * 1024 / 1e6

    def processor(self) -> float:
        """Seconds of processor time that the daemon has used."""
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK


class Floor:
    """The copy of a directory tree that a bare pyfuse3 file system serves from memory (`floor.py`). A context manager.

    The kernel reads ahead in it as far as in a mount of fsbridge.
    """

    def __init__(self, tree: str) -> None:
        self.path = tempfile.mkdtemp(prefix="fsbridge-floor-")
        self._process = subprocess.Popen([sys.executable, "-m", "benchmarks.floor", tree, self.path])

    def __enter__(self) -> Floor:
        while not os.path.ismount(self.path):
            if self._process.poll() is not None:
                raise RuntimeError("the floor did not mount")
            time.sleep(0.05)
        read_ahead(os.stat(self.path).st_dev)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        subprocess.run(["fusermount3", "-u", self.path], check=True)
        self._process.wait(STOP)
        os.rmdir(self.path)


def start_up(source: str, *options: str) -> float:
    """Seconds from exec to the command's return: then the mount answers."""
    path = tempfile.mkdtemp(prefix="fsbridge-bench-")
    start = time.monotonic()
    subprocess.run([sys.executable, "-m", "fsbridge", "mount", *options, source, path], check=True, stdin=subprocess.DEVNULL)
    seconds = time.monotonic() - start
    subprocess.run(["fusermount3", "-u", path], check=True)
    os.rmdir(path)
    return seconds


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]
