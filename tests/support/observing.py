"""What a promise is measured by: the errno of an action, a daemon's memory and end, whether a store is as it was."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import random
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mounting import Mount, mounted
from waiting import until


def errno_of(action: Callable[[], Any]) -> int | None:
    """The errno that `action` fails with; None if it succeeds."""
    try:
        action()
    except OSError as error:
        return error.errno
    return None


def bytes_or_none(path: Path) -> bytes | None:
    """Read a file; None if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def snapshot(root: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Mode, size, mtime (ns) and bytes of everything below a directory."""
    found = {}
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(info.st_mode) else b""
        found[str(path)] = (info.st_mode, info.st_size, info.st_mtime_ns, content)
    return found


def read_as_large_as_it_says(path: Path, rng: random.Random) -> None:
    """P2: a file has `st_size` bytes, from wherever and however many are read, and nothing behind them."""
    size = path.stat().st_size
    whole = path.read_bytes()
    assert len(whole) == size, path
    with open(path, "rb", buffering=0) as file:
        for _ in range(20):
            start, length = rng.randrange(size + 1), rng.randrange(size + 10)
            assert os.pread(file.fileno(), length, start) == whole[start : start + length], path
        assert os.pread(file.fileno(), 10, size) == b"", path
        assert os.pread(file.fileno(), 10, size + 10**12) == b"", path
        if size:
            assert mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:] == whole, path


def files_of(folder: Path) -> list[Path]:
    """All files below a directory."""
    return [path for path in folder.rglob("*") if path.is_file()]


def held_by(pid: int) -> list[str]:
    """Return what a process holds open, sorted: paths, or kinds. Not libffi's library, which Ubuntu's Python keeps open."""
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has just been closed
            links.append(os.readlink(entry))
    return sorted(link.partition(":")[0] for link in links if not os.path.basename(link).startswith("libffi.so"))


def memory(pid: int, field: str) -> int:
    """A field of /proc/PID/status, in bytes."""
    with open(f"/proc/{pid}/status") as status:
        (line,) = [line for line in status if line.startswith(field + ":")]
    return int(line.split()[1]) * 1024


def own_memory(pid: int) -> int:
    """A process's bytes, without what is mapped from files: that goes when memory is short, and comes back."""
    return memory(pid, "RssAnon") + memory(pid, "RssShmem")


def gauges(tree: Mount) -> tuple[int, int]:
    """Descriptors and threads of the daemon."""
    process = f"/proc/{tree.process.pid}"
    return len(os.listdir(f"{process}/fd")), len(os.listdir(f"{process}/task"))


class Canary:
    """Unpickling one creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (Path.touch, (self.path,))


def grows_nothing(tree: Mount, use: Callable[[int], object], rounds: tuple[int, int], limit: int) -> None:
    """P11: after `use` of the second number of rounds the daemon is as after the first; `limit`: bytes that may stay."""
    first, then = rounds
    use(first)
    start, resident = gauges(tree), own_memory(tree.process.pid)
    use(then)
    # Fewer is fine: idle read-ahead threads end by themselves.
    until(lambda: all(now <= before for now, before in zip(gauges(tree), start, strict=True)))
    grown = own_memory(tree.process.pid) - resident
    assert grown < limit, f"{grown:,} bytes more"


def ends_honestly(tree: Mount, path: Path, number: signal.Signals) -> None:
    """P10: in use, with `path` open, a signal unmounts; after SIGKILL the mount is no empty directory."""
    if number == signal.SIGKILL:
        tree.kill()
        assert errno_of(lambda: os.listdir(tree)) == errno.ENOTCONN
        assert errno_of(path.read_bytes) == errno.ENOTCONN
        tree.clear()
        assert os.listdir(tree) == []
        return
    descriptor = os.open(path, os.O_RDONLY)
    sleeper = subprocess.Popen(["sleep", "60"], cwd=tree.path)  # its working directory keeps the mount busy
    try:
        assert os.read(descriptor, 10)
        tree.process.send_signal(number)
        assert tree.process.wait(10) == 0
        assert not mounted(tree.path)
    finally:
        sleeper.kill()
        sleeper.wait()
        with contextlib.suppress(OSError):  # the file system behind it has gone
            os.close(descriptor)
