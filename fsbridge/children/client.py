"""One child process as the daemon sees it: start, ask, deadline, end.

Not here: what answers mean, when to restart a child.

A child is forked by a process of its own (`server.py`), never by the daemon. A fork of a process with threads inherits
locks that are never released, and the daemon's descriptors.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from fsbridge import children as protocol
from fsbridge.asking import before_waiting
from fsbridge.children.starting import START_SECONDS, NoRoom, Program, StartFailed, starter
from fsbridge.errors import (
    AccessDenied,
    CorruptData,
    FsbridgeError,
    NotFound,
    OutOfBudget,
    Stale,
    TimedOut,
    TooDeep,
    TooLarge,
    Unreachable,
    Unsupported,
)
from fsbridge.threads.deadlines import Deadline, Stopwatch

GRACE_SECONDS = 5
"""Seconds after the deadline at which a child ends itself, if the daemon has not done it."""
END_SECONDS = 1.0
"""Seconds to wait until a child has ended. One that hangs in the kernel, at a file of a dead server, cannot even die."""

TOO_SLOW = "the store did not send in time what the child process had to read"
WANT, REFUSED = "want", "refused"
"""Keys of a message by which a child asks back, and of the reply that refuses."""

_ERRORS: dict[str, type[FsbridgeError]] = {
    "not_found": NotFound,
    "corrupt": CorruptData,
    "unsupported": Unsupported,
    "denied": AccessDenied,
    "too_large": TooLarge,
    "too_deep": TooDeep,
    "stale": Stale,
    "unreachable": Unreachable,
}


Supply: TypeAlias = Callable[[Mapping[str, Any], Deadline], tuple[dict[str, Any], Sequence[bytes]]]
"""(message, deadline) -> (message, attachments): answers a child that asks back while it answers.

Raises a FsbridgeError if it has nothing to give. The question then fails with this error.
"""


class ChildDied(CorruptData):
    """The child ended, or was ended, while it answered. The message says how."""


class ChildTooSlow(ChildDied):
    """The child was ended because it did not answer in time."""


class ChildEndless(ChildTooSlow):
    """The child ended itself after it had computed for all the CPU seconds that the question allowed (`computing`)."""


class ChildGone(CorruptData):
    """The child had ended before, or the daemon ended it, so this question is not to blame."""


class _Socket(socket.socket):
    """A socket that is closed without a warning if its child's owner was dropped."""

    def __del__(self) -> None:
        self.close()


class ChildProcess:
    """A running child process. Thread-safe: one question at a time.

    In a process that is forked later it counts as gone, because questions of both processes would mix on its socket.
    """

    _ended = True  # until it has started

    def __init__(self, program: Program, readable: Sequence[str], address_space: int) -> None:
        """Start a child that may open only `readable` (files, folders), with `address_space` bytes of virtual memory.

        Raises ChildDied if it does not start, OutOfBudget if the system has no room for it now.
        """
        before_waiting()
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._starter = starter(program)
        self._ending = threading.Lock()
        self._fate = "it was ended"
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise OutOfBudget(f"no process can be started: {error.strerror}") from None
        ours = self._socket = _Socket(fileno=ours.detach())
        with theirs:
            try:
                self.pid, self._handle = self._starter.start(theirs)
            except NoRoom as error:
                ours.close()
                raise OutOfBudget(str(error)) from None
            except StartFailed as error:
                ours.close()
                raise ChildDied(str(error)) from None
            except BaseException:
                ours.close()
                raise
        self._ended = False
        setup = {"address_space": address_space, "readable": list(readable)}
        answer, _ = self._exchange(setup, 0, Deadline(START_SECONDS))
        self.confined = bool(answer.get("confined"))
        """True if the kernel keeps the child from opening other files."""

    def __del__(self) -> None:
        """End the child of a source that was dropped without being closed."""
        if not self._ended and not self._inherited:
            with contextlib.suppress(RuntimeError):  # the interpreter ends
                # Not here: the thread in which Python collects garbage may hold the lock that `_end` needs.
                _thread.start_new_thread(self._end, (False,))

    @property
    def alive(self) -> bool:
        """True if the child can be asked."""
        if self._inherited:
            return False
        with self._ending:
            if self._ended:
                return False
            return not self._has_ended(0)

    @property
    def _inherited(self) -> bool:
        return self._owner != os.getpid()

    @property
    def busy(self) -> bool:
        """True while a question is being answered."""
        return self._lock.locked()

    def ask(
        self,
        question: dict[str, Any],
        limit: int,
        seconds: float,
        attachments: Sequence[bytes | memoryview] = (),
        supply: Supply | None = None,
    ) -> tuple[dict[str, Any], list[bytearray]]:
        """Return the answer and its attachments, together at most `limit` bytes. `attachments` go with the question.

        `supply` answers a child that asks back.

        Raises what `supply` raises, what the child answers (NotFound, CorruptData, Unsupported, AccessDenied, TooLarge,
        TooDeep, Stale), ChildDied if it ended or did not answer within `seconds`, ChildGone if it had ended before,
        TimedOut if it was busy with other questions for that long.
        """
        before_waiting()
        if self._inherited:
            raise ChildGone("the child process belongs to the parent process, which forked this one")
        deadline = Deadline(seconds)
        if not self._lock.acquire(timeout=seconds):
            raise TimedOut(f"the child process was busy for {seconds:g} s")
        try:
            if not self.alive:
                raise ChildGone(f"the child process had ended ({self._obituary()})")
            left = max(1, int(deadline.left) + GRACE_SECONDS)
            answer, attached = self._exchange({**question, "seconds": left}, limit, deadline, attachments, supply)
        finally:
            self._lock.release()
            if self._ended:
                self._socket.close()
        if (error := error_of(answer)) is not None:
            raise error.anew()  # a frame that keeps the error that it raises is a reference cycle
        return answer, attached

    def close(self) -> None:
        """End the child, whatever it does. A question in progress gets ChildGone."""
        self._end(find_reason=False)

    def _end(self, find_reason: bool = True) -> None:
        """End the child. `find_reason`: if it has ended before by itself, find out how, for the next message."""
        if self._inherited:
            return
        with self._ending:
            if self._ended:
                return
            self._ended = True
            self._kill()  # a child that is ending already keeps its own fate
            gone = find_reason and self._has_ended(END_SECONDS)
            os.close(self._handle)
            if gone:
                status = self._starter.reap(self.pid)
                self._fate = "for an unknown reason" if status is None else _fate(status)
            else:
                self._starter.forget(self.pid)
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the waiting thread, which closes the socket
        if not self.busy:
            self._socket.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            try:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            except ProcessLookupError:
                raise
            except (AttributeError, OSError):  # no pidfd; the number stays the child's until it is reaped
                os.kill(self.pid, signal.SIGKILL)

    def _has_ended(self, seconds: float) -> bool:
        """Tell whether the process has ended, waiting up to `seconds`."""
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _exchange(
        self,
        question: dict[str, Any],
        limit: int,
        deadline: Deadline,
        attachments: Sequence[bytes | memoryview] = (),
        supply: Supply | None = None,
    ) -> tuple[dict[str, Any], list[bytearray]]:
        supplied = _Supplied(supply, deadline)
        try:
            self._socket.settimeout(max(0.001, deadline.left))
            protocol.send(self._socket, question, attachments)
            while True:
                answer, attached = protocol.receive(self._socket, limit, deadline)
                if supply is None or WANT not in answer:
                    break
                message, parts = supplied.give(answer)
                self._socket.settimeout(max(0.001, deadline.left))
                protocol.send(self._socket, message, parts)
        except TimeoutError:
            self._end(find_reason=False)
            raise supplied.excuse() or ChildTooSlow("the child process did not answer in time and was ended") from None
        except (protocol.ProtocolError, OSError) as error:
            gone = self._ended
            self._end()
            if supplied.failure is not None:
                raise supplied.failure.anew() from None
            if gone:
                raise ChildGone("the child process was ended") from None
            if self._fate == signal.SIGPROF.name:
                raise ChildEndless("the child process computed for too long and ended itself") from None
            if isinstance(error, protocol.Closed | ConnectionError):
                raise ChildDied(f"the child process ended ({self._obituary()})") from None
            raise ChildDied(f"the child process answered nonsense and was ended: {error}") from None
        except BaseException:  # such as no memory: the next question would get the answer that is left behind
            self._end(find_reason=False)
            raise
        if supplied.failure is not None:  # whatever the child answered
            raise supplied.failure.anew()
        return answer, attached

    def _obituary(self) -> str:
        self._end()
        return self._fate


class _Supplied:
    """What a child was given while it answered one question. `failure`: why it did not get everything."""

    def __init__(self, supply: Supply | None, deadline: Deadline) -> None:
        self._supply = supply
        self._deadline = deadline
        self._all = Stopwatch()
        self._seconds = 0.0
        self.failure: FsbridgeError | None = None

    def give(self, wanted: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[bytes]]:
        """Return what the child wants. After the first failure the child gets only refusals, so that it answers soon."""
        assert self._supply is not None
        if self.failure is None:
            watch = Stopwatch()
            try:
                given = self._supply(wanted, self._deadline)
                if not self._deadline.passed:
                    return given
                self.failure = TimedOut(TOO_SLOW)
            except FsbridgeError as error:
                self.failure = error.anew()
            finally:
                self._seconds += watch.seconds
        return {REFUSED: True}, ()

    def excuse(self) -> FsbridgeError | None:
        """Return why the child was late, if that was not its own fault."""
        waited = self._seconds > self._all.seconds / 2
        return self.failure.anew() if self.failure else TimedOut(TOO_SLOW) if waited else None


def error_of(answer: Mapping[str, Any]) -> FsbridgeError | None:
    """Return the error that an answer reports, if any."""
    kind = answer.get("error")
    return None if kind is None else _ERRORS.get(str(kind), CorruptData)(str(answer.get("message"))[:500])


def _fate(status: int) -> str:
    """Return `os.waitpid`'s status in words."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
