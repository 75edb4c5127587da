"""One HDF5 child process as the daemon sees it: spawn, ask, deadline, end. Not here: what the answers mean, when to restart.

The child is a new program (`subprocess`), never a fork of the daemon: a fork of a threaded process inherits locks that
nobody will release, and the daemon's descriptors.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fsbridge
from fsbridge.children import protocol
from fsbridge.errors import AccessDenied, CorruptData, FsbridgeError, NotFound, Stale, TimedOut, TooLarge, Unsupported

START_DEADLINE = 30.0
"""Seconds to start Python and import h5py: 0.3 alone, much more when the machine is busy."""
GRACE = 5
"""Seconds after the deadline at which a child ends itself, should the daemon not have done it."""
ADDRESS_SPACE = 2 << 30
"""Bytes of virtual memory beside two chunks: h5py and numpy take 0.6 GiB, HDF5's metadata the rest."""

NO_PLUGINS = "::"
"""What HDF5 takes in HDF5_PLUGIN_PRELOAD to never look for plug-ins (H5PLpkg.h, H5PL_NO_PLUGIN)."""
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
"""Where the dynamic linker looks for what a plug-in needs."""

_ERRORS: dict[str, type[FsbridgeError]] = {
    "not_found": NotFound,
    "corrupt": CorruptData,
    "unsupported": Unsupported,
    "denied": AccessDenied,
    "too_large": TooLarge,
    "stale": Stale,
}
WORKER = "fsbridge.formats.hdf5.worker"


class ChildDied(CorruptData):
    """The child ended, or had to be ended, while it answered; `log` says how."""


class Child:
    """A running child process. Thread-safe: one question at a time."""

    def __init__(self, readable: Sequence[str], chunk_limit: int, module: str = WORKER, plugins: Sequence[str] = ()) -> None:
        """Start a child that may open nothing but `readable`; `chunk_limit` is the most bytes it will be asked to read.

        `plugins`: folders from which HDF5 may load filters; the child can then also read the system's libraries.
        `module` is the program; Hangar's databases have another one, which speaks the same protocol.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_environment(plugins),
                cwd="/",
            )
        self._socket = ours
        self._lock = threading.Lock()
        setup = {"address_space": ADDRESS_SPACE + 2 * chunk_limit, "readable": [*readable, *_libraries(plugins)]}
        answer, _ = self._exchange(setup, 0, time.monotonic() + START_DEADLINE)
        self.confined = bool(answer.get("confined"))
        """Whether the kernel keeps the child from opening other files."""

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    @property
    def busy(self) -> bool:
        """Whether a question is being answered."""
        return self._lock.locked()

    def ask(self, question: dict[str, Any], limit: int, seconds: float) -> tuple[dict[str, Any], list[bytearray]]:
        """The answer and its attachments, together at most `limit` bytes.

        Raises what the child answers (NotFound, CorruptData, Unsupported, AccessDenied, TooLarge, Stale), ChildDied when
        it ended or did not answer within `seconds`, TimedOut when it was busy with other questions for that long.
        """
        deadline = time.monotonic() + seconds
        if not self._lock.acquire(timeout=seconds):
            raise TimedOut(f"the child process was busy for {seconds:g} s")
        try:
            if not self.alive:
                raise ChildDied(f"the child process is gone ({self._obituary()})")
            left = max(1, int(deadline - time.monotonic()) + GRACE)
            answer, attachments = self._exchange({**question, "seconds": left}, limit, deadline)
        finally:
            self._lock.release()
        error = answer.get("error")
        if error is not None:
            raise _ERRORS.get(error, CorruptData)(str(answer.get("message"))[:500])
        return answer, attachments

    def close(self) -> None:
        """End the child, whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._socket.close()

    def _exchange(
        self, question: dict[str, Any], limit: int, deadline: float
    ) -> tuple[dict[str, Any], list[bytearray]]:
        try:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            protocol.send(self._socket, question)
            return protocol.receive(self._socket, limit, deadline)
        except TimeoutError:
            self.close()
            raise ChildDied("the child process did not answer in time and was ended") from None
        except (protocol.Closed, ConnectionError):
            self._process.wait()  # it closed its socket by ending
            self.close()
            raise ChildDied(f"the child process ended ({self._obituary()})") from None
        except (protocol.ProtocolError, OSError) as error:
            self.close()
            raise ChildDied(f"the child process answered nonsense and was ended: {error}") from None

    def _obituary(self) -> str:
        code = self._process.returncode
        if code is None or code >= 0:
            return f"exit status {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"


def _libraries(plugins: Sequence[str]) -> list[str]:
    return [path for path in (*plugins, *LIBRARIES) if os.path.exists(path)] if plugins else []


def _environment(plugins: Sequence[str]) -> dict[str, str]:
    """The daemon's environment without HDF5's own settings (folders, plug-ins, locks); one thread."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HDF5_")}
    package = str(Path(fsbridge.__file__).resolve().parent.parent)
    paths = [package, *(path for path in kept.get("PYTHONPATH", "").split(os.pathsep) if path)]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(paths),
        **({"HDF5_PLUGIN_PATH": os.pathsep.join(plugins)} if plugins else {"HDF5_PLUGIN_PRELOAD": NO_PLUGINS}),
        "HDF5_USE_FILE_LOCKING": "FALSE",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
