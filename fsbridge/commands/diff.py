"""`fsbridge diff`: where two sources differ, whatever their formats. Not here: comparing (`comparing.py`)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments
from fsbridge.commands.arguments import Parser
from fsbridge.commands.pipes import show
from fsbridge.commands.progress import Progress, add_quiet
from fsbridge.errors import SetupError

if TYPE_CHECKING:
    from fsbridge.commands.trees import Problems, Trees

DIFFERENT, TROUBLE = 1, 2
"""Exit codes of diff(1)."""


def parser(program: str) -> Parser:
    """Return the parser of `diff`."""
    parser = Parser(
        prog=program,
        description="Show where two stores differ: groups and arrays that only one has, data types, shapes, attributes and "
        "elements; formats, chunks and codecs do not matter.",
        epilog="exit codes are those of diff(1): 0 nothing differs; 1 something does; 2 trouble; 8 interrupted",
    )
    parser.add_argument("first", type=types.path, metavar="SOURCE[//PATH]", help=arguments.PLACE)
    parser.add_argument("second", type=types.path, metavar="SOURCE[//PATH]", help="the other one")
    shown = "numbers that differ by no more are equal (default: 0)"
    parser.add_argument("--tolerance", type=types.number, default=0.0, metavar="NUMBER", help=shown)
    shown = "compare the first with the transposed arrays of the second: x,y,z with z,y,x"
    parser.add_argument("--reversed-axes", action="store_true", help=shown)
    add_quiet(parser)
    arguments.add_shared(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Print the differences."""
    different: list[str] = []
    try:
        args = parser(program).parse_args(argv)
        from fsbridge.commands import trees

        progress = Progress(args.quiet)
        try:
            code = trees.run(args, lambda opened, problems: _compare(args, opened, problems, progress, different))
        finally:
            progress.close()
    except SetupError as error:
        error.exit_code = TROUBLE
        raise
    return TROUBLE if code else DIFFERENT if different else 0


def _compare(args: argparse.Namespace, opened: Trees, problems: Problems, progress: Progress, different: list[str]) -> None:
    from fsbridge.comparing import compare
    from fsbridge.printable import printable

    places = opened.at(args.first), opened.at(args.second)
    with problems.at(f"{args.first}, {args.second}"):
        for found in compare(*places, args.tolerance, args.reversed_axes, progress.done):
            if found.error is not None:
                problems.tell(found.path, found.error)
            else:
                different.append(found.path)
                show(printable(f"{found.path}: {found.words}"))
