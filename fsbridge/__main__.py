"""The command's entry: `fsbridge`, and `python -m fsbridge` where it is not installed. Not here: arguments (`commands/`).

It imports nothing before it can answer an interrupt: imports take a tenth of a second, and more on a busy machine.
"""

from __future__ import annotations

import os
import sys

INTERRUPTED = 8
"""Exit code of mount(8) for an interrupt."""


def main() -> int:
    """Run the command of `sys.argv` and return its exit code. An interrupt ends the process here and now."""
    try:
        from fsbridge.cli import main as command

        code = command()
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        os._exit(code)  # the interpreter's own end waits for threads inside a library, which may still log or hang
    return code


if __name__ == "__main__":
    sys.exit(main())
