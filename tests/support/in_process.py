"""`fsbridge` commands run in the test's own process, which takes a tenth of the time that a new one does.

Not here: mounts, signals, closed pipes, how the command is started (`mounting.py`).
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import subprocess

from fsbridge import cli


def fsbridge(*arguments: str | os.PathLike[str], timeout: float = 0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its exit code and output, as `mounting.fsbridge` does."""
    words = ["fsbridge", *(os.fspath(argument) for argument in arguments)]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape", write_through=True) for _ in range(2))
    handlers = list(logging.getLogger().handlers)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main(words)
    finally:
        logging.getLogger().handlers[:] = handlers
    return subprocess.CompletedProcess(words, code, *(stream.buffer.getvalue().decode() for stream in (out, err)))
