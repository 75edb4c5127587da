"""The serving process: initialise FUSE, run the event loop, answer signals, keep systemd informed, leave.

Not here: systemd's units (`share/`), what systemd and the control socket are told (`control.py`), forking and the way to
readiness as the caller sees it (`lifecycle.py`), requests (`kernel/filesystem.py`).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

import pyfuse3
import trio

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import SetupError
from fsbridge.kernel.boundary import SILENCE_SECONDS
from fsbridge.kernel.filesystem import Filesystem
from fsbridge.kernel.jobs import Jobs
from fsbridge.kernel.session import quick_requests
from fsbridge.mount import preflight
from fsbridge.mount.control import Report
from fsbridge.mount.preflight import FAILED, SYSTEM
from fsbridge.threads import starting
from fsbridge.tree import Directory

log = logging.getLogger(__name__)

READ_AHEAD_KIB = 1024
"""Kernel read-ahead: measured best; the default 128 KiB costs eight times the requests."""

IDLE_TASKS = 8
"""Tasks kept waiting for requests, so that a burst does not start and end one task per request."""

MAX_TASKS = 1000
"""Requests in progress at once; further ones wait in the kernel."""

FORGOTTEN_SECONDS = 2.0
"""Seconds between checks of how many inodes the kernel has forgotten."""

_STAT = "import os, sys; print(os.stat(sys.argv[1]).st_dev)"

_IGNORED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
"""Signals that are ignored, because by default they end the process and would leave a dead mount."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

STATUS_SECONDS = 10.0
"""Seconds between two status lines: `systemctl status` is read by people."""


class Daemon:
    """One mount being served.

    `ready` is called on a separate thread once the mounted root has answered, then `warm_up`, which may take long. `reload`
    is called on the event loop after SIGHUP if the daemon runs in the background; it must not block. `give_back` is called
    on a separate thread when much memory has become free, and may free more: also once the kernel has forgotten
    `forgotten_inodes` of those that it knew.
    """

    def __init__(
        self,
        config: Config,
        root: Directory,
        ready: Callable[[], None],
        warm_up: Callable[[], None] = lambda: None,
        reload: Callable[[], None] = lambda: None,
        give_back: Callable[[], None] = lambda: None,
        cache: ChunkCache | None = None,
        forgotten_inodes: int = 10_000,
    ) -> None:
        self.config = config
        self.jobs = Jobs.remote() if config.uses_network else Jobs()
        self.filesystem = Filesystem(root, config, self.jobs)
        self.report = Report(config, self.filesystem, cache)
        self._ready = ready
        self._warm_up = warm_up
        self._reload = reload
        self._give_back = give_back
        self._forgotten_inodes = forgotten_inodes
        self._end: Callable[[], None] = lambda: None
        self._ending = False
        self._served = False  # true once it was reported that it is mounted
        self._problem: SetupError | None = None

    def run(self) -> int:
        """Mount and serve. Returns the exit code after an unmount or a signal; SetupError if it never became ready."""
        early: list[int] = []
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        for number in _SIGNALS:  # outside the event loop too: a signal that simply killed us would leave a dead mount
            signal.signal(number, lambda number, _frame: early.append(number))
        self._init()
        stays = False
        try:
            trio.run(self._main, early)
        except BaseException as error:
            stays = self._served
            if stays:
                log.critical(
                    "the daemon failed; the mount stays, so that programs get errors and not an empty directory",
                    exc_info=True,
                )
            elif isinstance(error, OSError):
                raise SetupError(f"{self.config.mountpoint}: {error.strerror}", exit_code=SYSTEM) from None
            raise
        finally:
            # This detaches the mount, even while files are open. After a bug the mount stays, and answers ENOTCONN.
            pyfuse3.close(unmount=not stays)
        if self._problem is not None:
            raise self._problem
        return 0

    def _init(self) -> None:
        with _captured_stderr() as words:
            try:
                with self._quick_requests():  # before 3.5, pyfuse3 makes its lock here and not in `main`
                    pyfuse3.init(self.filesystem, self.config.mountpoint, kernel_options(self.config))
            except RuntimeError as error:
                reason = words() or str(error)
            else:
                return
        place = self.config.mountpoint
        raise SetupError(f"cannot mount on {place}: {reason}", preflight.hint(reason, place), FAILED)

    async def _main(self, early: list[int]) -> None:
        with trio.open_signal_receiver(*_SIGNALS) as signals:
            self.jobs.start()
            async with trio.open_nursery() as nursery:
                self._end = partial(trio.lowlevel.current_trio_token().run_sync_soon, nursery.cancel_scope.cancel)
                nursery.start_soon(self._until_signal, signals, nursery.cancel_scope)
                nursery.start_soon(self._remind)
                nursery.start_soon(notify_regularly, self.report.words)
                nursery.start_soon(self._watch_forgotten)
                try:
                    starting.start_now(self._probe, "fsbridge-probe")
                except OSError as error:
                    self._problem = SetupError(f"{error.strerror}: {preflight.PROCESSES}", exit_code=SYSTEM)
                    nursery.cancel_scope.cancel()
                if set(early) - (set() if self.config.foreground else {signal.SIGHUP}):
                    nursery.cancel_scope.cancel()
                with self._quick_requests():
                    await pyfuse3.main(min_tasks=IDLE_TASKS, max_tasks=MAX_TASKS)
                log.info("%s was unmounted", self.config.mountpoint)
                nursery.cancel_scope.cancel()
            self._ending = True
            self.jobs.stop()

    def _quick_requests(self) -> contextlib.AbstractContextManager[None]:
        return quick_requests(self.jobs.due, lambda: not self.filesystem.under_way)

    async def _until_signal(self, signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        """End serving on a signal, without waiting for requests, which may hang. In the background SIGHUP only reloads."""
        async for number in signals:
            if number == signal.SIGHUP and not self.config.foreground:
                log.info("SIGHUP: dropping caches, reopening the log")
                self.filesystem.ages.doubt()
                self._drop()
                self._reload()
                continue
            log.info("%s: unmounting %s", signal.Signals(number).name, self.config.mountpoint)
            self._ending = True
            notify("STOPPING=1")
            scope.cancel()
            return

    def _drop(self) -> None:
        self.filesystem.inodes.park()
        self.filesystem.directories.clear()
        self.filesystem.ahead.clear()
        starting.start(self._give_back, "fsbridge-drop")

    async def _watch_forgotten(self) -> None:
        """Drop caches when the kernel has forgotten many inodes, as after a walk through many arrays."""
        inodes, most = self.filesystem.inodes, 0
        while True:
            await trio.sleep(FORGOTTEN_SECONDS)
            self.filesystem.directories.expire()
            most = max(most, len(inodes))
            if most - len(inodes) >= self._forgotten_inodes:
                most = len(inodes)
                self._drop()

    async def _remind(self) -> None:
        """Log within a minute how many lines were left out of the log."""
        reporter = self.filesystem.reporter
        try:
            while True:
                await trio.sleep(SILENCE_SECONDS)
                reporter.remind()
        finally:
            reporter.remind(last=True)

    def _probe(self) -> None:
        """Wait on a separate thread until the mounted root answers."""
        try:
            if not preflight.is_descriptor(self.config.mountpoint):
                read_ahead(_root_device(self.config.mountpoint))
            elif not self.filesystem.begun.wait(self.config.metadata_deadline):  # where it is mounted, only mount.fuse knows
                raise TimeoutError(errno.ETIMEDOUT, "the kernel sent no request")
            self._served = True
            self._ready()
        except OSError as error:
            if not self._ending:
                words = f"{self.config.mountpoint}: the mounted root does not answer: {error.strerror}"
                self._problem = SetupError(words, exit_code=SYSTEM)
                with contextlib.suppress(trio.RunFinishedError):
                    self._end()
            return
        log.info("%s is mounted on %s", self.config.place, self.config.mountpoint)
        notify("READY=1")
        self._warm_up()


def kernel_options(config: Config) -> set[str]:
    """Return the options for libfuse: always read-only and with the kernel's own permission checks."""
    options = {"ro", "default_permissions", *config.kernel_options}
    for name, value in (("subtype", "fsbridge"), ("fsname", config.place)):
        given = [option for option in options if option.startswith(f"{name}=")]
        options.difference_update(given)
        options.add(f"{name}={_octal(given[-1].partition('=')[2] if given else value)}")
    if config.allow_other:
        options.add("allow_other")
    return options


def _root_device(mountpoint: str, folders: str | None = None) -> int:
    """Return the device number of the mounted root, found by another process; OSError if that process fails.

    A thread of this process that waits for the mount could not be killed: it holds /dev/fuse open, so its request would
    neither be answered nor aborted, and `kill -9` would leave a mount that hangs instead of ENOTCONN.
    """
    program = shutil.which("stat", path=folders or preflight.program_folders())
    command = [program, "-c", "%d"] if program else [sys.executable, "-ISc", _STAT]  # images without a shell have none
    asked = subprocess.run([*command, mountpoint], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        raise OSError(errno.EIO, asked.stderr.strip().rpartition("\n")[2])
    return int(asked.stdout)


def read_ahead(device: int) -> None:
    """Set the mount's read-ahead if permitted (root); otherwise the kernel's default stays."""
    setting = f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb"
    with contextlib.suppress(OSError), open(setting, "w") as file:
        file.write(str(READ_AHEAD_KIB))


def _octal(text: str) -> str:
    """Return `text` with backslash escapes for libfuse's option parser, in ASCII because pyfuse3 passes nothing else."""
    return "".join(chr(byte) if 0x20 < byte < 0x7F and byte not in b",\\" else f"\\{byte:03o}" for byte in os.fsencode(text))


def _nameless(make: Callable[[str], int]) -> int:
    """Return a descriptor of a file without a name: one that `make` makes in memory; on disk if a filter forbids that."""
    try:
        return make("stderr")
    except OSError:
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())


@contextlib.contextmanager
def _captured_stderr(make_file: Callable[[str], int] = os.memfd_create) -> Iterator[Callable[[], str]]:
    """Collect what libfuse and fusermount3 write to descriptor 2: the only place where they say what is wrong."""
    saved, memory = os.dup(2), _nameless(make_file)

    def words() -> str:
        text = os.pread(memory, 4096, 0).decode("utf-8", "replace")
        return "; ".join(line.strip() for line in text.splitlines() if line.strip())

    os.dup2(memory, 2)
    try:
        yield words
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(memory)


def notify(state: str) -> None:
    """Send `state` as sd_notify(3) does. Nothing is sent where systemd does not listen, or if its socket is full."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sock:
        sock.connect(address)
        sock.send(state.encode())


async def notify_regularly(words: Callable[[], str]) -> None:
    """Send systemd the line `words()` regularly, and tell its watchdog that the event loop runs.

    Without that, systemd restarts the service.
    """
    if not os.environ.get("NOTIFY_SOCKET"):
        return
    watched = watchdog_seconds()
    while True:
        await trio.sleep(min(STATUS_SECONDS, watched / 2 or STATUS_SECONDS))
        notify(f"STATUS={words()}" + ("\nWATCHDOG=1" if watched else ""))


def watchdog_seconds() -> float:
    """Return the seconds within which systemd wants to hear from this process; 0 if it does not watch it."""
    text, process = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not text.isdecimal() or (process and process != str(os.getpid())):
        return 0.0
    return int(text) / 1_000_000
