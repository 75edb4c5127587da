"""The process that starts child processes: it has imported what they need once, and forks one for each file.

A child's program calls `run` with what its children do. `starting.py` starts it with a socket (SOCK_SEQPACKET) as
standard input, and it ends when that closes. A fork takes milliseconds, while starting Python and h5py takes 0.3 s. The
process is no fork of the daemon: it has one thread, no descriptor of a store, and never opens a file of a store. Its
children limit themselves: memory, no core dumps, and with Landlock no files except the named ones.

Not here: what children do, which files they may open (the daemon decides), the system calls of Landlock (`landlock.py`).
It needs nothing outside the standard library and `landlock.py`.

    start, with the child's socket      -> the child's process number, with a descriptor of the process (`_Life`),
                                           or "no" and the reason
    reap NUMBER                         -> how the child ended, as os.waitpid says; its descriptor must have told that it
                                           has ended. "no" if an earlier process of this kind forked it: its end is unknown
    forget NUMBER                       no answer; reaps a child that may still be ending
"""

from __future__ import annotations

import array
import ctypes
import gc
import os
import resource
import select
import signal
import socket
from collections.abc import Callable, Sequence

from fsbridge.children import landlock

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends, even if this process is stopped.

    If a filter of system calls forbids that, the process still ends when its socket closes, unless it is stopped.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def limit_resources(address_space: int) -> None:
    """Allow no core dumps, which would hold data, and at most `address_space` bytes of virtual memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = address_space if hard == resource.RLIM_INFINITY else min(address_space, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def restrict_files(readable: Sequence[str]) -> bool:
    """Let this process open only `readable` (files, or folders with everything below), and only to read.

    Returns False if the kernel has no Landlock: then the child's own checks are the only protection.
    """
    if not landlock.version():
        return False
    handle = landlock.ruleset(readable)
    try:
        landlock.restrict(handle)
    finally:
        os.close(handle)
    return True


Serve = Callable[[socket.socket], None]

START, REAP, FORGET = b"start", b"reap", b"forget"
NO = b"no "
REAP_SECONDS = 0.2
"""Seconds between looks whether a forgotten child has ended."""
MESSAGE_BYTES = 64
"""Bytes of the longest message."""


def serve(control: socket.socket, child: Serve) -> None:
    """Fork and reap as asked until the other side is gone."""
    forgotten: set[int] = set()
    while True:
        ready, _, _ = select.select([control], [], [], REAP_SECONDS if forgotten else None)
        message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 1) if ready else (FORGET, [], 0, None)
        if not message:
            return
        if message == START:
            _start(control, child, descriptors[0])
        elif message.startswith(FORGET):
            forgotten |= {int(number) for number in message.removeprefix(FORGET).split()}
        else:
            answer = _wait_for(int(message.removeprefix(REAP)), 0)
            control.send(NO if answer is None else b"%d" % answer[1])
        forgotten = {number for number in forgotten if _wait_for(number, os.WNOHANG) == (0, 0)}


def _wait_for(number: int, options: int) -> tuple[int, int] | None:
    """Return os.waitpid's answer, or None if the number is no child of this process."""
    try:
        return os.waitpid(number, options)
    except ChildProcessError:
        return None


class _Life:
    """A descriptor that becomes readable when a child ends.

    It is a pidfd. If the system has none (before Linux 5.3, or because of a seccomp filter), it is the end of a pipe
    whose other end the child holds while it lives.
    """

    def __init__(self) -> None:
        self._pipe: tuple[int, int] | None = None
        try:
            os.close(os.pidfd_open(os.getpid()))
        except (AttributeError, OSError):
            self._pipe = os.pipe()

    def in_child(self) -> None:
        """Close the parent's end of the pipe in the forked child. The child's own end closes when the child ends."""
        if self._pipe is not None:
            os.close(self._pipe[0])

    def descriptor(self, number: int) -> int:
        """Return the daemon's descriptor for the forked child."""
        if self._pipe is None:
            return os.pidfd_open(number)
        os.close(self._pipe[1])
        return self._pipe[0]

    def close(self) -> None:
        """Close the descriptors: no child could be forked."""
        for end in self._pipe or ():
            os.close(end)


def _start(control: socket.socket, child: Serve, descriptor: int) -> None:
    life = None
    try:
        life = _Life()
        number = os.fork()
    except OSError as error:  # the system has no room for another process now
        os.close(descriptor)
        if life is not None:
            life.close()
        control.send(NO + (error.strerror or "?").encode()[: MESSAGE_BYTES - len(NO)])
        return
    if number == 0:
        code = 1
        try:
            die_with_parent()
            control.close()
            life.in_child()
            with socket.socket(fileno=descriptor) as sock:
                child(sock)
            code = 0
        finally:
            os._exit(code)
    os.close(descriptor)
    handle = life.descriptor(number)
    control.sendmsg([b"%d" % number], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [handle]))])
    os.close(handle)


def _detached_control() -> socket.socket:
    """Return standard input as a socket with another number, and give children the null device instead."""
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return control


def run(child: Serve) -> None:
    """Serve standard input. Each child runs `child` with its socket."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C at the terminal is meant for the daemon
    gc.collect()
    gc.freeze()  # a collection in a child would copy everything that it shares with this process
    serve(_detached_control(), child)
