"""The life of a mount: fork, open the store, mount, say that it is ready, serve, unmount.

The command returns when the mounted root answers. The order matters: the fork comes before threads and stores (neither
survives a fork), the checks before the fork (their words go to the terminal), and nothing on the event loop's thread ever
touches the mount (it would wait for itself). Not here: requests (`kernel/filesystem.py`), the checks (`preflight.py`),
serving (`daemon.py`).

SIGTERM and SIGINT detach the mount at once, whatever is open or hangs. In the foreground SIGHUP does the same, because the
terminal has been closed; in the background it drops caches and reopens the log. After a crash the mount is left behind on
purpose: readers get ENOTCONN, never an empty directory that a mirroring tool would take for the truth.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import select
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from fsbridge import __version__
from fsbridge.config import Config
from fsbridge.errors import FsbridgeError, SetupError, printable
from fsbridge.lru import drop_all
from fsbridge.mount import preflight
from fsbridge.mount.preflight import FAILED, INTERNAL, INTERRUPTED, SYSLOG, SYSTEM
from fsbridge.threads import starting
from fsbridge.threads.parallel import Answer
from fsbridge.tree import Directory

if TYPE_CHECKING:
    from fsbridge.decoded.cache import ChunkCache

log = logging.getLogger(__name__)

SOURCE_SECONDS = 0.5
"""Seconds for the store to close at the end; a hung one is left to the operating system."""

INTERRUPT_SECONDS = 0.5
"""Seconds after which a waiting thread looks for an interrupt, because Python misses one just before the wait begins."""

NEW_OBJECTS = 50_000
"""New objects before the garbage collector runs. With Python's 700 it takes a quarter of a walk of many arrays."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The tree that is mounted.

    `close` releases its resources, and `clear` drops what it only remembers. Reports use `cache`, its decoded chunks, and
    `format`, the name of its source's format.
    """

    root: Directory
    close: Callable[[], None]
    clear: Callable[[], None] = lambda: None
    cache: ChunkCache | None = None
    format: str = ""


def open_tree(config: Config) -> Tree:
    """Open the source of `config` and make the tree of its layouts."""
    from fsbridge.decoded.cache import ChunkCache
    from fsbridge.formats.open import open_source
    from fsbridge.layouts import root_directory

    source, cache = open_source(config.source, config), ChunkCache(config.cache_size)
    return Tree(root_directory(source, config, cache), source.close, cache.clear, cache, source.format.name)


def mount(config: Config, opener: Callable[[Config], Tree] = open_tree) -> int:
    """Mount `config` and return the exit code: at once in the background, after the unmount in the foreground."""
    gc.disable()  # until the store is open: collecting garbage takes a tenth of the imports' time and finds none
    _complete_standard_streams()
    os.environ.update(config.environment)
    preflight.check(config)
    if config.foreground:
        return _serve(config, opener, lambda warnings: None)
    return _in_background(config, opener)


def _complete_standard_streams() -> None:
    """Open descriptors 0 to 2 if they are closed. Else the next opened file, such as /dev/fuse, would get printed text."""
    for standard in (0, 1, 2):
        try:
            os.fstat(standard)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # open takes the lowest free number, which is this one
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None: closed by the caller
            stream.flush()


def _in_background(config: Config, opener: Callable[[Config], Tree]) -> int:
    """Fork the daemon and wait for its report: `0` when it is ready, else an exit code and a message."""
    receiving, sending = os.pipe()
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Python loses an interrupt that comes while it forks
    try:
        child = os.fork()
    except OSError as error:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        raise SetupError(f"{error.strerror}: {preflight.PROCESSES}", exit_code=SYSTEM) from None
    if child == 0:
        code = INTERNAL
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            os.close(receiving)
            code = _daemon(config, opener, sending)
        except KeyboardInterrupt:  # the terminal's, which the caller has got, too
            code = INTERRUPTED
        except BaseException:
            traceback.print_exc()  # a bug: to the terminal while the caller still waits, later the log has it
        finally:
            os._exit(code)
    os.close(sending)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        with open(receiving, "rb") as pipe:
            answered = select.poll()
            answered.register(pipe, select.POLLIN)
            while not answered.poll(INTERRUPT_SECONDS * 1000):
                pass
            said = pipe.read()
    except KeyboardInterrupt:
        os.kill(child, signal.SIGTERM)
        raise
    if said == b"0":
        _say_where(config)
        gc.freeze()  # otherwise the interpreter would look for garbage in all that was imported, and the caller would wait
        return 0
    number, _, message = said.decode("utf-8", "replace").partition(" ")
    if not message:
        _, status = os.waitpid(child, 0)
        raise SetupError(f"the daemon ended before it was ready ({_describe_end(status)})", exit_code=SYSTEM)
    message, _, hint = message.partition("\n  ")
    raise SetupError(message, hint, int(number))


def _say_where(
    config: Config, syslog: str = SYSLOG, mounts: Callable[[], Sequence[preflight.Mounted]] = preflight.list_mounts
) -> None:
    """Print where the tree is and how to unmount it, if a person is at the terminal.

    If the log is lost because there is no syslog, print that in any case, but only for the first of several mounts.
    """
    lines = []
    if config.log_file is None and not os.path.exists(syslog) and _is_first(mounts()):
        lines.append("fsbridge: there is no syslog, so the log of the daemon is lost; --log-file FILE keeps it")
    if sys.stderr is not None and sys.stderr.isatty():
        point = shlex.quote(config.mountpoint)
        lines.append(f"{printable(config.place)} is mounted: ls {point}; to unmount: fsbridge umount {point}")
    with contextlib.suppress(OSError, AttributeError):  # closed by the caller
        sys.stderr.write("".join(f"{line}\n" for line in lines))
        sys.stderr.flush()


def _is_first(mounts: Sequence[preflight.Mounted]) -> bool:
    """True if this machine has no other mount of fsbridge: at most one in all."""
    return sum(mount.fstype == "fuse.fsbridge" for mount in mounts) <= 1


def _daemon(config: Config, opener: Callable[[Config], Tree], sending: int) -> int:
    os.setsid()
    os.chdir("/")

    def ready(warnings: Sequence[str]) -> None:
        with contextlib.suppress(OSError):  # the caller has closed it
            os.write(2, "".join(f"{line}\n" for line in warnings).encode("utf-8", "backslashreplace"))
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.close(null)
        os.write(sending, b"0")
        os.close(sending)

    try:
        return _serve(config, opener, ready)
    except (SetupError, ImportError) as error:
        shown = error if isinstance(error, SetupError) else preflight.unloadable(error)
        os.write(sending, f"{shown.exit_code} {shown}".encode())
        return shown.exit_code


def _serve(config: Config, opener: Callable[[Config], Tree], ready: Callable[[Sequence[str]], None]) -> NoReturn:
    """Open, mount, serve until the unmount or a signal, and end the process. Raises SetupError until it is ready.

    `ready` gets the warnings that were logged while the store was opened.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's BLAS threads spin, and nothing here needs them
    from fsbridge.codecs.native import give_freed_memory_back, keep_freed_memory
    from fsbridge.mount.control import Control
    from fsbridge.mount.daemon import Daemon
    from fsbridge.mount.loading import load
    from fsbridge.mount.logs import Log, Warnings, open_log

    keep_freed_memory()
    record = Log(config)
    try:
        accesses = None if config.access_log is None else open_log(config.access_log)
        try:
            with Warnings() as warned:
                tree = opener(config)
        except SetupError:
            raise
        except (FsbridgeError, OSError) as error:
            raise SetupError(f"{config.source}: {_describe(error)}", exit_code=FAILED) from None
        try:
            gc.freeze()  # what was imported stays: looking through it again and again would be in vain
            gc.set_threshold(NEW_OBJECTS)
            gc.enable()

            def reload() -> None:
                tree.clear()
                record.reopen()

            def give_back() -> None:
                drop_all()
                gc.collect()
                give_freed_memory_back()

            starting.begin()
            more = partial(load, config, tree.format)
            daemon = Daemon(config, tree.root, partial(ready, warned.lines), more, reload, give_back, tree.cache)
            if accesses is not None:
                daemon.report.log_accesses(accesses)
            control = Control(_collect_facts(config, tree), daemon.report.answers())
            try:
                code = daemon.run()
            finally:
                control.close()
        finally:
            _close_within(tree.close, SOURCE_SECONDS)
    finally:
        gc.enable()
        written = record.close()
    for stream in (sys.stdout, sys.stderr) if written else ():
        with contextlib.suppress(AttributeError, OSError):  # closed by the caller, or by its reader
            stream.flush()
    os._exit(code)  # the interpreter's own end waits for hung workers, and aborts while a thread is inside a C++ library


def _collect_facts(config: Config, tree: Tree) -> dict[str, str]:
    """Return the part of a report on the mount that never changes. Called before it is mounted: realpath touches it."""
    point = config.mountpoint if preflight.is_descriptor(config.mountpoint) else os.path.realpath(config.mountpoint)
    said = {"mountpoint": point, "source": config.place, "layout": config.layout, "version": __version__}
    return {**said, "format": tree.format}


def _close_within(close: Callable[[], None], seconds: float) -> None:
    def closing() -> None:
        try:
            close()
        except (FsbridgeError, OSError) as error:
            log.warning("closing the store: %s", error)

    Answer(closing, "fsbridge-close").wait(seconds)


def _describe(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error)


def _describe_end(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit code {os.waitstatus_to_exitcode(status)}"
