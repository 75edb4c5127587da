"""What commands share that read the tree without a mount: opening places, reporting errors, ending on interrupts.

Not here: the tree itself (`unmounted/virtual.py`), any command's own work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fsbridge.commands.command_line import CommandLine
from fsbridge.config import Config
from fsbridge.errors import FsbridgeError, SetupError, printable
from fsbridge.parallel import apart
from fsbridge.unmounted.virtual import VirtualTree, reason

FAILED = 1
"""The exit code of a command that could not read something, and has said what."""


class Problems:
    """Errors as lines at the terminal, and how many there were."""

    def __init__(self) -> None:
        self.count = 0

    def tell(self, place: str, error: Exception) -> None:
        """Print that `place` cannot be read, and why."""
        self.count += 1
        said = reason(error).removeprefix(f"{place}: ")
        print(f"fsbridge: {printable(place)}: {printable(said)}", file=sys.stderr)

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Report errors of what is done for `place` and continue after it."""
        try:
            yield
        except SetupError:
            raise
        except (FsbridgeError, OSError) as error:
            self.tell(place, error)

    @property
    def exit_code(self) -> int:
        """Exit code of the command."""
        return FAILED if self.count else 0


class Trees:
    """The sources that a command line names, each opened once."""

    def __init__(self, line: CommandLine) -> None:
        self._line = line
        self._opened: dict[Config, VirtualTree] = {}

    def at(self, place: str) -> tuple[VirtualTree, str]:
        """The tree and the path in it of `SOURCE//PATH`; SetupError if the source cannot be opened."""
        config, path = self._line.opened(place)
        if config not in self._opened:
            self._opened[config] = VirtualTree(config)
        return self._opened[config], path

    def close(self) -> None:
        """Close all trees that have been opened."""
        for tree in self._opened.values():
            tree.close()


def run(line: CommandLine, work: Callable[[Trees, Problems], None]) -> int:
    """Do `work`, which opens trees by name, and return the exit code."""
    trees = Trees(line)

    def body(problems: Problems) -> None:
        try:
            work(trees, problems)
        finally:
            trees.close()

    return report(body)


def report(work: Callable[[Problems], None]) -> int:
    """Do `work` on a thread of its own and return the exit code. An interrupt does not wait for threads at a server."""
    from fsbridge.mount.logs import to_terminal

    to_terminal()
    problems = Problems()
    apart(lambda: work(problems))
    return problems.exit_code
