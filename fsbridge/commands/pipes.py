"""Standard output of commands, which may be a pipe that its reader closes early. Not here: the content."""

from __future__ import annotations

import os
import sys

from fsbridge.errors import SetupError

SYSTEM = 2
"""The exit code of mount(8) for errors of the system."""


class ReaderGone(Exception):
    """The reader of standard output has seen enough (`| head`): the command ends without an error."""


def show(text: str) -> None:
    """Print the line or lines `text`, as `write` does."""
    write(os.fsencode(text + "\n"))


def write(data: bytes | bytearray | memoryview) -> None:
    """Write `data` to standard output; ReaderGone if its reader has closed it, SetupError if it cannot be written."""
    if sys.stdout is None:
        raise SetupError("standard output is closed", exit_code=SYSTEM)
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter reports an error when it ends
        if not isinstance(error, BrokenPipeError):
            raise SetupError(f"standard output: {error.strerror}", exit_code=SYSTEM) from None
        raise ReaderGone from None
