"""Warnings of what a command uses, printed like its errors. Not here: errors (`sources.py`), a mount's log.

A module of its own, because `fsbridge --help` needs no log.
"""

from __future__ import annotations

import logging
import sys

from fsbridge.errors import printable


class _Lines(logging.Formatter):
    """Formats a log record like an error of a command: on one line, even if quoted names contain line breaks."""

    def format(self, record: logging.LogRecord) -> str:
        lines = self.formatException(record.exc_info).splitlines() if record.exc_info else []
        return "\n    ".join(map(printable, [f"fsbridge: {record.getMessage()}", *lines]))


def warnings_to_terminal() -> None:
    """Print warnings in the same way as errors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    logging.getLogger().addHandler(handler)
