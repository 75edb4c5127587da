"""Where the daemon's log goes: stderr in the foreground, syslog in the background, or a file.

Records pass through a queue to a thread of their own, because writing them may block and the event loop must not.
Not here: what is worth a line (`kernel/boundary.py`).
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import queue
import sys
import threading

from fsbridge.config import Config
from fsbridge.errors import SetupError

LINE = "%(levelname)s %(message)s"
DATED = "%(asctime)s %(levelname)s %(message)s"


class _Queued(logging.handlers.QueueHandler):
    """Puts records into the queue as they are: formatting a traceback reads source files."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record


class Log:
    """The daemon's log, from `open` to `close`."""

    def __init__(self, config: Config) -> None:
        handler = _handler(config)
        records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
        self._queued = _Queued(records)
        self._listener = logging.handlers.QueueListener(records, handler)
        root = logging.getLogger()
        root.setLevel(config.log_level.upper())
        root.addHandler(self._queued)
        logging.raiseExceptions = False  # a full disk below the log file is no reason to print tracebacks
        self._listener.start()

    def close(self, patience: float = 1.0) -> None:
        """Write what is queued, for at most `patience` seconds."""
        logging.getLogger().removeHandler(self._queued)
        last = threading.Thread(target=self._listener.stop, daemon=True)
        last.start()
        last.join(patience)


def _handler(config: Config) -> logging.Handler:
    handler: logging.Handler
    if config.log_file is not None:
        try:
            handler = logging.FileHandler(config.log_file, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise SetupError(f"log file {config.log_file}: {error.strerror}") from None
        handler.setFormatter(logging.Formatter(DATED))
    elif config.foreground:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(f"fsbridge: {LINE}"))
    elif os.path.exists("/dev/log"):
        handler = logging.handlers.SysLogHandler("/dev/log")
        handler.setFormatter(logging.Formatter(f"fsbridge[{os.getpid()}]: {LINE}"))
    else:
        handler = logging.NullHandler()
    return handler
