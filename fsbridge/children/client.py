"""One child process as the daemon sees it: start, ask, deadline, end. Not here: what the answers mean, when to restart.

A child is forked by a process of its own (`server.py`), never by the daemon: a fork of a threaded process inherits locks
that nobody will release, and the daemon's descriptors.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fsbridge.children import protocol
from fsbridge.children.starting import START_SECONDS, Program, StartFailed, starter
from fsbridge.errors import (
    AccessDenied,
    CorruptData,
    FsbridgeError,
    NotFound,
    Stale,
    TimedOut,
    TooDeep,
    TooLarge,
    Unsupported,
)

GRACE_SECONDS = 5
"""Seconds after the deadline at which a child ends itself, should the daemon not have done it."""
END_SECONDS = 1.0
"""What an ending child gets to end in: one that hangs in the kernel, at a dead server's file, does not even die."""

_ERRORS: dict[str, type[FsbridgeError]] = {
    "not_found": NotFound,
    "corrupt": CorruptData,
    "unsupported": Unsupported,
    "denied": AccessDenied,
    "too_large": TooLarge,
    "too_deep": TooDeep,
    "stale": Stale,
}


class ChildDied(CorruptData):
    """The child ended, or had to be ended, while it answered; the message says how."""


class ChildTooSlow(ChildDied):
    """The child had to be ended because it did not answer in time."""


class ChildGone(CorruptData):
    """There is no child any more, through no fault of this question."""


class ChildProcess:
    """A running child process. Thread-safe: one question at a time."""

    def __init__(self, program: Program, readable: Sequence[str], address_space: int) -> None:
        """Start a child that may open nothing but `readable` (files, folders), with so many bytes of virtual memory.

        Raises ChildDied when it does not come to life.
        """
        self._lock = threading.Lock()
        self._starter = starter(program)
        self._ending = threading.Lock()
        self._ended = False
        self._fate = "it was ended"
        ours, theirs = socket.socketpair()
        self._socket = ours
        with theirs:
            try:
                self.pid, self._handle = self._starter.start(theirs)
            except StartFailed as error:
                ours.close()
                raise ChildDied(str(error)) from None
        setup = {"address_space": address_space, "readable": list(readable)}
        answer, _ = self._exchange(setup, 0, time.monotonic() + START_SECONDS)
        self.confined = bool(answer.get("confined"))
        """Whether the kernel keeps the child from opening other files."""

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        with self._ending:
            if self._ended:
                return False
            return not self._has_ended(0)

    @property
    def busy(self) -> bool:
        """Whether a question is being answered."""
        return self._lock.locked()

    def ask(
        self, question: dict[str, Any], limit: int, seconds: float, attachments: Sequence[bytes] = ()
    ) -> tuple[dict[str, Any], list[bytearray]]:
        """The answer and its attachments, together at most `limit` bytes; `attachments` go with the question.

        Raises what the child answers (NotFound, CorruptData, Unsupported, AccessDenied, TooLarge, TooDeep, Stale), ChildDied
        when it ended or did not answer within `seconds`, ChildGone when it had ended before, TimedOut when it was busy with
        other questions for that long.
        """
        deadline = time.monotonic() + seconds
        if not self._lock.acquire(timeout=seconds):
            raise TimedOut(f"the child process was busy for {seconds:g} s")
        try:
            if not self.alive:
                raise ChildGone(f"the child process is gone ({self._obituary()})")
            left = max(1, int(deadline - time.monotonic()) + GRACE_SECONDS)
            answer, found = self._exchange({**question, "seconds": left}, limit, deadline, attachments)
        finally:
            self._lock.release()
            if self._ended:
                self._socket.close()
        error = error_of(answer)
        if error is not None:
            raise error
        return answer, found

    def close(self) -> None:
        """End the child, whatever it does; a question that it is at gets ChildGone."""
        self._end(interesting=False)

    def _end(self, interesting: bool = True) -> None:
        """End the child, and find out how it had ended if that is `interesting`."""
        with self._ending:
            if self._ended:
                return
            self._ended = True
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)  # one that is ending already keeps its own fate
            gone = interesting and self._has_ended(END_SECONDS)
            os.close(self._handle)
            if gone:
                status = self._starter.reap(self.pid)
                self._fate = "nobody knows how" if status is None else _fate(status)
            else:
                self._starter.forget(self.pid)
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for an answer, who then closes it
        if not self.busy:
            self._socket.close()

    def _has_ended(self, seconds: float) -> bool:
        """Whether the process has come to its end, if need be `seconds` from now."""
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _exchange(
        self, question: dict[str, Any], limit: int, deadline: float, attachments: Sequence[bytes] = ()
    ) -> tuple[dict[str, Any], list[bytearray]]:
        try:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            protocol.send(self._socket, question, attachments)
            return protocol.receive(self._socket, limit, deadline)
        except TimeoutError:
            self._end(interesting=False)
            raise ChildTooSlow("the child process did not answer in time and was ended") from None
        except (protocol.ProtocolError, OSError) as error:
            if self._ended:
                raise ChildGone("the child process was ended") from None
            self._end()
            if isinstance(error, protocol.Closed | ConnectionError):
                raise ChildDied(f"the child process ended ({self._obituary()})") from None
            raise ChildDied(f"the child process answered nonsense and was ended: {error}") from None

    def _obituary(self) -> str:
        self._end()
        return self._fate


def error_of(answer: Mapping[str, Any]) -> FsbridgeError | None:
    """The error that an answer is, if it is one."""
    kind = answer.get("error")
    return None if kind is None else _ERRORS.get(str(kind), CorruptData)(str(answer.get("message"))[:500])


def _fate(status: int) -> str:
    """`os.waitpid`'s status in words."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
