"""Progress of long work: a bar on a terminal, a line every ten seconds elsewhere, nothing with `--quiet`.

Not here: the work. tqdm draws the bar and is imported only where there is a terminal.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from fsbridge.deadlines import Stopwatch
from fsbridge.errors import printable

LINE_SECONDS = 10.0
"""Seconds between two lines."""

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float) -> str:
    """Spell a number of bytes for people."""
    unit = 0
    while count >= 1024 and unit < len(UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} {UNITS[unit]}" if unit == 0 else f"{count:.1f} {UNITS[unit]}"


class Progress:
    """Shows how many bytes are done, the rate, the present path, and the time left if `expect` has set the total."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet or sys.stderr is None
        self._lock = threading.Lock()
        self._bytes = 0
        self._begun, self._said = Stopwatch(), Stopwatch()
        self._bar: Any = None
        if not self._quiet and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(unit="B", unit_scale=True, unit_divisor=1024, leave=False, dynamic_ncols=True)

    @property
    def is_shown(self) -> bool:
        """True if a bar is drawn, so that the total is needed."""
        return self._bar is not None

    def expect(self, total: int) -> None:
        """Set the total number of bytes."""
        with self._lock:
            if self._bar is not None:
                self._bar.total = total

    def done(self, path: str, count: int) -> None:
        """Add bytes of a path that are done. Any thread may call it."""
        if self._quiet:
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
            line = f"fsbridge: {size(self._bytes)}, {size(rate)}/s: {printable(path)}"
        print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the bar."""
        with self._lock:
            self._quiet = True
            if self._bar is not None:
                self._bar.close()
                self._bar = None
