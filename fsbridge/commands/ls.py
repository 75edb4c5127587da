"""`fsbridge ls`: what a directory of the tree contains, without a mount. Not here: the tree (`unmounted/__init__.py`)."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from fsbridge.commands import arguments
from fsbridge.commands.arguments import Parser
from fsbridge.commands.output import show
from fsbridge.commands.sources import Problems, Trees, describe_target, read

if TYPE_CHECKING:
    from fsbridge.tree import Attrs
    from fsbridge.unmounted import VirtualTree

BATCH_LINES = 500
"""Lines that are printed at a time."""


def make_parser(program: str) -> Parser:
    """Return the parser of `ls`."""
    parser = Parser(
        prog=program,
        description="List the files that a mount of SOURCE would show, in the order of the mount.",
        epilog="exit codes: 0 all is listed; 1 wrong usage, no such store, or something cannot be read; 8 interrupted",
    )
    arguments.add_place(parser)
    parser.add_argument("-l", action="store_true", dest="long", help="also show type, size, time, and targets of links")
    parser.add_argument("-R", action="store_true", dest="recursive", help="also list everything below, as whole paths")
    arguments.add_reading(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """List what `argv` names."""
    return read(make_parser(program), argv, _list)


def _list(args: argparse.Namespace, trees: Trees, problems: Problems) -> None:
    tree, path = trees.at(args.place)
    lines = _NameLines()
    with problems.at(path or args.place, partial(trees.elsewhere, args.place)):
        attrs = tree.stat(path)
        if attrs.kind == "directory":
            _list_directory(args, tree, path, "", lines, problems)
        else:
            lines.add(_format_line(args.long, tree, path, path, attrs, problems))
    lines.end()


def _list_directory(
    args: argparse.Namespace, tree: VirtualTree, path: str, below: str, lines: _NameLines, problems: Problems
) -> None:
    """List the directory at `path`. `below`: its path, counted from the directory that was asked for."""
    with problems.at(path or "/"):
        for name, attrs, _ in tree.list(path):
            place = f"{path}/{name}" if path else name
            shown = f"{below}/{name}" if below else name
            lines.add(_format_line(args.long, tree, place, shown, attrs, problems))
            if args.recursive and attrs.kind == "directory":
                _list_directory(args, tree, place, shown, lines, problems)


def _format_line(long: bool, tree: VirtualTree, path: str, shown: str, attrs: Attrs, problems: Problems) -> str:
    if not long:
        return shown
    from fsbridge.unmounted import mode

    size: int | str = "?"
    with problems.at(path):
        size = tree.stat(path, follow=False).size or 0 if attrs.size is None else attrs.size
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(attrs.mtime_ns / 1e9))
    target = describe_target(tree, path, attrs, problems)
    return f"{stat.filemode(mode(attrs.kind))} {size:>14} {when} {shown}{target}"


class _NameLines:
    """Prints file names line by line: unchanged into a pipe, and made printable at a terminal."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._terminal = sys.stdout is not None and sys.stdout.isatty()

    def add(self, line: str) -> None:
        """Add a line to the output. Lines are printed in batches."""
        from fsbridge.errors import printable

        self._lines.append(printable(line) if self._terminal else line)
        if len(self._lines) >= BATCH_LINES:
            self.end()

    def end(self) -> None:
        """Print what was added."""
        if self._lines:
            show(os.linesep.join(self._lines))
            self._lines.clear()
