"""The errno boundary: the one place where an exception becomes a reply to the kernel, and a line in the log.

pyfuse3 ends the whole mount on any exception that is not a FUSEError, so every handler is wrapped by `guarded`. Requests and
errors are counted here, too, and the last errors are kept with their reasons. The event loop counts; another thread may look
at any time, so it takes a copy. Not here: the table of errnos (`errors.py`), the handlers (`filesystem.py`), the reports
made from the counters (`mount/control.py`).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import time
import types
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar, cast

import pyfuse3
import trio

from fsbridge import errors
from fsbridge.config import Config
from fsbridge.errors import FsbridgeError
from fsbridge.lru import Recent
from fsbridge.threads.deadlines import Deadline, Stopwatch

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)

KEPT_ERRORS = 100
"""Number of latest errors that are kept with their reasons: enough to see a pattern, few enough to read."""

REASON_CHARACTERS = 1000
"""Number of characters of a reason that are kept."""

SILENCE_SECONDS = 60.0
"""Seconds before the same damage at the same path is logged again: one failing read is several requests."""

REMEMBERED_PATHS = 4096
"""Number of damaged paths, and of places in the code with bugs, whose last log line is remembered for `SILENCE_SECONDS`."""

LINES_EACH_PATH, LINES_IN_ALL = 100, 1000
"""Most log lines about one path, and about all paths, within `SILENCE_SECONDS`. All chunks of an array count as one path.

Further lines are only counted.
"""

_EXPECTED = (
    errors.NotFound,
    errors.IsADirectory,
    errors.ReadOnly,
    errors.NameTooLong,
    errors.Stale,
)
"""Errors that are ordinary answers: they are not logged."""

_EXPECTED_ERRNOS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ESTALE})

REPLACED = "the package was removed or replaced under this mount: unmount it, and mount again"
"""What is said when something cannot be imported any more (`mount/loading.py`)."""

_OF_THE_KERNEL = 512
"""Errnos from this number on are internal to the kernel (ENOTSUPP), but some file systems return them.

The kernel rejects a FUSE reply that contains one.
"""


class Failure(NamedTuple):
    """How often and when the kernel got an error with one path and reason."""

    path: str
    errno: int
    reason: str
    times: int
    last: float
    """Seconds since 1970."""


class Counters:
    """What has been counted since the mount began."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        """Requests by handler."""
        self.bytes_read = 0
        """Bytes in answers to reads. Bytes pushed into the kernel's pages without a request are not included."""
        self.errors: Counter[int] = Counter()
        """Errors by errno, without the ordinary answers."""
        self._failures: dict[tuple[str, str], Failure] = {}  # the latest one is the last

    def count_failure(self, path: str, errno: int, reason: str) -> None:
        """Count an error, and keep its reason."""
        self.errors[errno] += 1
        key = (path, reason[:REASON_CHARACTERS])
        before = self._failures.pop(key, None)
        self._failures[key] = Failure(path, errno, key[1], before.times + 1 if before else 1, time.time())
        if len(self._failures) > KEPT_ERRORS:
            del self._failures[next(iter(self._failures))]

    def failures(self) -> list[Failure]:
        """The last errors, the latest one last. For any thread."""
        return list(self._failures.values())


class Reporter:
    """Turns exceptions into errnos and log lines. `unexpected` counts bugs: those that are neither ours nor OSErrors."""

    def __init__(self, counters: Counters | None = None) -> None:
        self.unexpected = 0
        self._counters = counters or Counters()
        self._silent = Recent[tuple[str, str], Deadline](REMEMBERED_PATHS)
        self._minute = Stopwatch()
        self._lines = 0
        self._each: dict[str, int] = {}
        self._more: dict[str, int] = {}

    def errno(self, error: Exception, what: str, path: Callable[[], str]) -> int:
        """Return the errno for `error`, which handler `what` raised for the file at `path()`, and log it. Never raises."""
        try:
            return self._judge(error, what, path)
        except Exception:  # a second MemoryError while the first is being told
            return errno.ENOMEM if isinstance(error, MemoryError) else errno.EIO

    def _judge(self, error: Exception, what: str, path: Callable[[], str]) -> int:
        if isinstance(error, FsbridgeError):
            if isinstance(error, errors.Stale):
                self._counters.count_failure(path(), error.errno, str(error))
            elif not isinstance(error, _EXPECTED):
                self._warn(path(), str(error), error.errno)
            return error.errno
        if isinstance(error, OSError):
            code = _answer(error.errno)
            if error.errno not in _EXPECTED_ERRNOS:
                self._warn(path(), str(error) or type(error).__name__, code)
            return code
        if isinstance(error, MemoryError):
            self._warn(path(), "there is not enough memory; a smaller --cache-size may help", errno.ENOMEM)
            return errno.ENOMEM
        if isinstance(error, ImportError):
            self._warn(path(), f"{error}; {REPLACED}", errno.EIO)
            return errno.EIO
        self.unexpected += 1
        name = type(error).__name__
        self._counters.count_failure(path(), errno.EIO, f"unexpected {name} in {what}, a bug: the log has more")
        if self._speak(what, name):
            log.error("unexpected %s in %s of %s", name, what, path(), exc_info=error)
        return errno.EIO

    def remind(self, last: bool = False) -> None:
        """Log how many lines the last minute left out; `last`: also those that the present minute has left out."""
        if self._minute.seconds < SILENCE_SECONDS and not last:
            return
        self._minute.restart()
        more = self._more
        self._lines, self._each, self._more = 0, {}, {}
        for path in list(more)[:LINES_EACH_PATH]:
            log.warning("%s: and %s more within a minute", path, f"{more.pop(path):,}")
        if more:
            log.warning("and %s more elsewhere", f"{sum(more.values()):,}")

    def _warn(self, path: str, reason: str, code: int) -> None:
        self._counters.count_failure(path, code, reason)
        self.remind()
        if not self._speak(path, reason):
            return
        each = self._each.get(path, 0)
        if each < LINES_EACH_PATH and self._lines < LINES_IN_ALL:
            self._each[path] = each + 1
            self._lines += 1
            log.warning("%s: %s", path, reason)
        else:
            path = path if path in self._more or len(self._more) < REMEMBERED_PATHS else "elsewhere"
            self._more[path] = self._more.get(path, 0) + 1

    def _speak(self, *subject: str) -> bool:
        """True if `subject` was not logged within `SILENCE_SECONDS`. It then counts as logged now."""
        key = (subject[0], subject[1])
        last = self._silent.peek(key)
        if last is not None and not last.passed:
            return False
        self._silent.put(key, Deadline(SILENCE_SECONDS))
        return True


def _answer(code: object) -> int:
    """Return the errno of an OSError, or EIO if the kernel must not get that errno.

    Never ENOSYS: the kernel would not call this handler again.
    """
    return code if isinstance(code, int) and 0 < code < _OF_THE_KERNEL and code != errno.ENOSYS else errno.EIO


_WITHOUT_MEMORY = pyfuse3.FUSEError(errno.ENOMEM)
"""The error to raise when there is no memory left to make one."""


class _Guarded(Protocol):
    config: Config
    reporter: Reporter
    counters: Counters
    under_way: int
    """Number of requests that are not answered yet."""

    def path_of(self, handler: str, subject: Any) -> str:
        """Return the path of the node that `subject`, the first argument of `handler`, stands for: an inode or a handle."""

    def note_outdated(self, handler: str, subject: Any) -> None:
        """Note that what is remembered of `subject` is outdated, because `handler` answered Stale."""


S = TypeVar("S", bound=_Guarded)


def guarded(handler: Callable[Concatenate[S, P], Awaitable[R]]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Wrap a handler: only FUSEError leaves it."""

    async def wrapper(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self.under_way += 1
        self.counters.requests[handler.__name__] += 1
        try:
            try:
                answer = handler(self, *args, **kwargs)
                if self.config.loop_limit:
                    return await _watch(answer, self.config.loop_limit, handler.__name__)
                return await answer
            except pyfuse3.FUSEError:
                raise
            except Exception as error:
                if isinstance(error, errors.Stale):
                    with contextlib.suppress(Exception):  # without memory for it, the next listing does it
                        self.note_outdated(handler.__name__, args[0])
                code = self.reporter.errno(error, handler.__name__, lambda: self.path_of(handler.__name__, args[0]))
            except trio.Cancelled:  # the session ends
                code = errno.ENOTCONN
            raise pyfuse3.FUSEError(code)
        except MemoryError:  # while another error became an answer
            raise _WITHOUT_MEMORY.with_traceback(None) from None
        finally:
            self.under_way -= 1

    functools.update_wrapper(wrapper, handler)
    return wrapper


@types.coroutine
def _watch(answer: Awaitable[R], limit: float, name: str) -> Generator[Any, Any, R]:
    """Answer a request, and log each of its steps that computes for longer than `limit` seconds on the event loop.

    What counts is the thread's processor time, because a busy machine makes any step last.
    """
    steps = answer.__await__()
    resume: Callable[[], Any] = partial(next, steps)
    while True:
        begun = time.thread_time()
        try:
            wanted = resume()
        except StopIteration as end:
            return cast(R, end.value)
        finally:
            spent = time.thread_time() - begun
            if spent > limit:
                log.warning("%s kept the event loop for %.0f ms", name, spent * 1000)
        try:
            given = yield wanted
        except BaseException as error:
            resume = partial(steps.throw, error)
        else:
            resume = partial(steps.send, given)


def silent(
    handler: Callable[Concatenate[S, P], Awaitable[None]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, None]]:
    """Wrap a handler without a reply (`forget`, `release`): no exception leaves it."""

    async def wrapper(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self.under_way += 1
        self.counters.requests[handler.__name__] += 1
        try:
            await handler(self, *args, **kwargs)
        except Exception as error:
            self.reporter.errno(error, handler.__name__, lambda: "-")
        finally:
            self.under_way -= 1

    functools.update_wrapper(wrapper, handler)
    return wrapper
