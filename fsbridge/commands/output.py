"""What commands print: standard output, which may be a pipe that its reader closes early, and the progress of long work.

Progress is a bar on a terminal, a line every ten seconds elsewhere, and nothing with `--quiet`. tqdm draws the bar, and is
imported only where there is a terminal. Not here: the content, the work.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from fsbridge.errors import SetupError, printable
from fsbridge.threads.deadlines import Stopwatch

SYSTEM = 2
"""The exit code of mount(8) for errors of the system."""

LINE_SECONDS = 10.0
"""Seconds between two lines."""


class ReaderGone(Exception):
    """The reader of standard output has seen enough (`| head`). The command ends without a message, with `exit_code`."""

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


def show(text: str, unheard: int = 0) -> None:
    """Print `text`, one line or several, as `write` writes."""
    write(os.fsencode(text + "\n"), unheard)


def write(data: bytes | bytearray | memoryview, unheard: int = 0) -> None:
    """Write `data` to standard output; ReaderGone if its reader has closed it, SetupError if it cannot be written.

    `unheard`: the exit code if the reader has gone. A command whose exit code is a verdict must not end with 0 before it
    knows.
    """
    if sys.stdout is None:
        raise SetupError("standard output is closed", exit_code=SYSTEM)
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter reports an error when it ends
        if not isinstance(error, BrokenPipeError):
            raise SetupError(f"standard output: {error.strerror}", exit_code=SYSTEM) from None
        raise ReaderGone(unheard) from None


def format_count(number: int, word: str) -> str:
    """Return a number of things as a person says it: `1 array`, `12,000 arrays`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def format_size(number: float) -> str:
    """Return a number of bytes as a person reads it: `12 KiB`, `3.4 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            break
        number /= 1024
    return f"{number:.0f} {unit}" if unit == "B" or number >= 10 else f"{number:.1f} {unit}"


class Progress:
    """Shows how many bytes are done, the rate, and the present path. After `expect` also the time that is left."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet or sys.stderr is None
        self._lock = threading.Lock()
        self._bytes = self._expected = 0
        self._begun, self._said = Stopwatch(), Stopwatch()
        self._bar: Any = None
        if not self._quiet and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(unit="B", unit_scale=True, unit_divisor=1024, leave=False, dynamic_ncols=True)

    @property
    def is_shown(self) -> bool:
        """True if a progress bar is drawn, so that the total is needed."""
        return self._bar is not None

    def expect(self, total: int) -> None:
        """Set the total number of bytes, as far as listings tell it."""
        with self._lock:
            if self._bar is not None:
                self._bar.total = total + self._expected

    def begun(self, size: int) -> None:
        """Add the size of a file to the total, because no listing has told it."""
        with self._lock:
            self._expected += size
            if self._bar is not None and self._bar.total is not None:
                self._bar.total += size

    def done(self, path: str, count: int) -> None:
        """Add bytes that are done, and show their path. Any thread may call it."""
        if self._quiet or not count:
            return
        with self._lock:
            self._bytes += count
            if self._bar is not None:
                self._bar.set_postfix_str(printable(path)[-40:], refresh=False)
                self._bar.update(count)
                return
            if self._said.seconds < LINE_SECONDS:
                return
            self._said.restart()
            rate = self._bytes / self._begun.seconds
            line = f"fsbridge: {format_size(self._bytes)}, {format_size(rate)}/s: {printable(path)}"
        print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the bar."""
        with self._lock:
            self._quiet = True
            if self._bar is not None:
                self._bar.close()
                self._bar = None
