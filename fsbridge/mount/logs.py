"""The daemon's log, which goes to stderr in the foreground, to syslog in the background, or to a file; and the access log.

The access log has one line of JSON for each opened file, and for each read that was not answered from memory. Both logs
have a queue and a thread of their own, because writing may block and the event loop must not. Not here: what is worth a
line (`kernel/boundary.py`), what counts as an access (`kernel/filesystem.py`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import NamedTuple

from fsbridge.config import Config
from fsbridge.errors import SetupError, printable
from fsbridge.mount.preflight import PROCESSES, SYSLOG, SYSTEM
from fsbridge.threads import starting

LINE = "%(levelname)s %(message)s"
DATED = "%(asctime)s %(levelname)s %(message)s"

QUEUED_LINES = 2000
"""Most lines that wait to be written: about 2 MiB."""

QUEUED_ACCESSES = 10_000
"""Most lines that wait for a slow disk. Further ones are dropped; the next written line says how many."""


class _Printable(logging.Formatter):
    """Formats a record as one line, even if quoted names contain line breaks. A traceback follows in indented lines."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = printable(record.getMessage())
        if self.usesTime():
            record.asctime = self.formatTime(record)
        lines = [self.formatMessage(record)]
        if record.exc_info:
            lines += [f"    {printable(line)}" for line in self.formatException(record.exc_info).splitlines()]
        return "\n".join(lines)


class _Json(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": when, "level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class _Queued(logging.handlers.QueueHandler):
    """Queues records unformatted, because formatting a traceback reads files. If the queue is full they are lost."""

    queue: SimpleQueue[logging.LogRecord]

    def __init__(self, records: SimpleQueue[logging.LogRecord]) -> None:
        super().__init__(records)
        self.lost = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        if self.queue.qsize() < QUEUED_LINES:
            self.queue.put(record)
        else:
            self.lost += 1


class _Listener(logging.handlers.QueueListener):
    """Writes the queued records, and the number of those lost."""

    def __init__(self, queued: _Queued, handler: logging.Handler) -> None:
        super().__init__(queued.queue, handler)
        self._queued = queued

    def handle(self, record: logging.LogRecord) -> None:
        if record is _REOPEN:
            for handler in self.handlers:
                if isinstance(handler, logging.FileHandler):
                    with contextlib.suppress(OSError):  # a full disk: it is closed nevertheless
                        handler.close()  # the next record opens the file of that name
            return
        try:
            super().handle(record)
        except OSError:  # there is no such file, nor a place for one: the next record tries again
            self._queued.lost += 1
            return
        lost, self._queued.lost = self._queued.lost, 0
        if lost:
            words = "the log could not be written in time, so %s lines are lost"
            super().handle(logging.LogRecord(__name__, logging.WARNING, __file__, 0, words, (f"{lost:,}",), None))

    def end(self, patience: float) -> bool:
        """Write what is queued, for at most `patience` seconds; true if that was enough."""
        thread = self._thread
        assert thread is not None
        self.enqueue_sentinel()
        thread.join(patience)
        return not thread.is_alive()


class Warnings(logging.Handler):
    """Keeps the lines of warnings that are logged inside its `with` block."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.setFormatter(_Printable("fsbridge: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def __enter__(self) -> Warnings:
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)


_REOPEN = logging.LogRecord(__name__, logging.INFO, __file__, 0, "reopen", None, None)


class Log:
    """The daemon's log, until `close`."""

    def __init__(self, config: Config) -> None:
        """Begin to log as `config` says; SetupError if that is impossible."""
        handler = _handler(config)
        self._queued = _Queued(SimpleQueue())
        self._listener = _Listener(self._queued, handler)
        try:
            self._listener.start()
        except RuntimeError as error:  # the first thread of all
            raise SetupError(f"{error}: {PROCESSES}", exit_code=SYSTEM) from None
        root = logging.getLogger()
        root.setLevel(config.log_level.upper())
        root.addHandler(self._queued)
        logging.raiseExceptions = False  # a full disk below the log file is no reason to print tracebacks

    def reopen(self) -> None:
        """Go on in a new file, if the present one was moved away. Does not block."""
        self._queued.queue.put(_REOPEN)

    def close(self, patience: float = 1.0) -> bool:
        """Write what is queued, for at most `patience` seconds; true if that was enough.

        If not, no program reads the log, and the interpreter's own end would wait for it: leave by `os._exit`.
        """
        logging.getLogger().removeHandler(self._queued)
        return self._listener.end(patience)


def _handler(config: Config, syslog: str = SYSLOG) -> logging.Handler:
    handler: logging.Handler
    if config.log_file is not None:
        try:
            handler = logging.FileHandler(config.log_file, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise SetupError(f"log file {config.log_file}: {error.strerror}") from None
        form = DATED
    elif config.foreground:
        handler, form = logging.StreamHandler(sys.stderr), f"fsbridge: {LINE}"
    elif os.path.exists(syslog):
        handler, form = logging.handlers.SysLogHandler(syslog), f"fsbridge[{os.getpid()}]: {LINE}"
        handler.ident = f"fsbridge[{os.getpid()}]: " if config.log_format == "json" else ""
    else:
        return logging.NullHandler()
    handler.setFormatter(_Json() if config.log_format == "json" else _Printable(form))
    return handler


def open_log(path: str) -> int:
    """Open the access log at `path` for appending; SetupError if it cannot be written."""
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SetupError(f"access log {path}: {error.strerror}") from None


class _Access(NamedTuple):
    time: datetime
    what: str
    path: str
    offset: int
    size: int
    seconds: float


class AccessLog:
    """Writes to `descriptor`, which it owns, until `close`. `path` gives the path of an inode."""

    def __init__(self, descriptor: int, path: Callable[[int], str]) -> None:
        self._descriptor = descriptor
        self._path = path
        self._queue: SimpleQueue[_Access | None] = SimpleQueue()
        self._lost = 0
        starting.start(self._write, "fsbridge-accesses")

    def tell(self, what: str, inode: int, offset: int, size: int, seconds: float) -> None:
        """Have an access written. Does not block; for the event loop."""
        if self._queue.qsize() < QUEUED_ACCESSES:
            self._queue.put(_Access(datetime.now(UTC), what, self._path(inode), offset, size, seconds))
        else:
            self._lost += 1

    def close(self) -> None:
        """Have the queued lines written and the file closed. Does not wait."""
        self._queue.put(None)

    def _write(self) -> None:
        while (access := self._queue.get()) is not None:
            lost, self._lost = self._lost, 0
            line = {
                "time": access.time.isoformat(timespec="milliseconds"),
                "what": access.what,
                "path": access.path,
                "offset": access.offset,
                "size": access.size,
                "milliseconds": round(access.seconds * 1000, 3),
            }
            if lost:
                line["lost_before"] = lost
            try:
                os.write(self._descriptor, json.dumps(line).encode() + b"\n")
            except OSError:  # a full disk: the next line that can be written says how many were lost
                self._lost += lost + 1
        os.close(self._descriptor)
