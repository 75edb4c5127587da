"""`fsbridge diff`: where two sources differ, whatever their formats. Not here: comparing (`unmounted/comparing.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments, long_work
from fsbridge.commands.arguments import Parser
from fsbridge.commands.long_work import LongWork
from fsbridge.commands.output import show
from fsbridge.commands.sources import CommandLine, Problems
from fsbridge.errors import SetupError

if TYPE_CHECKING:
    from fsbridge.unmounted.comparing import Comparison, Difference
    from fsbridge.unmounted.units import JobPart, WorkSources

DIFFERENT, TROUBLE = 1, 2
"""Exit codes of diff(1)."""


def make_parser(program: str) -> Parser:
    """Return the parser of `diff`."""
    parser = Parser(
        prog=program,
        description="Show where two stores differ: groups and arrays that only one has, data types, shapes, attributes and "
        "elements. Formats, chunks and codecs do not matter. With --part a job compares and counts its part of the elements "
        "only. The first job also compares everything else.",
        epilog="exit codes: 0 nothing differs; 1 something differs; 2 something cannot be compared; 8 interrupted",
    )
    parser.add_argument("first", type=types.path, metavar="SOURCE[//PATH]", help=arguments.PLACE)
    parser.add_argument(
        "second", type=types.path, metavar="SOURCE[//PATH]", help="the store to compare with, and a path in it"
    )
    shown = "treat numbers as equal that differ by at most NUMBER (default: 0)"
    parser.add_argument("--tolerance", type=types.number, default=0.0, metavar="NUMBER", help=shown)
    shown = "compare the arrays of the first store with the transposed arrays of the second: x,y,z with z,y,x"
    parser.add_argument("--reversed-axes", action="store_true", help=shown)
    parser.add_argument("--data-only", action="store_true", help="do not compare attributes")
    long_work.add_options(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Print the differences."""
    different: list[str] = []

    try:
        line = CommandLine(make_parser(program), argv)
        args = line.args

        def make(sources: WorkSources, places: list[tuple[int, str]], problems: Problems, part: JobPart) -> Comparison:
            from fsbridge.errors import printable
            from fsbridge.unmounted.comparing import Comparison

            def report(difference: Difference) -> None:
                different.append(difference.path)
                show(printable(f"{difference.path}: {difference.words}"), DIFFERENT)

            pair = places[0], places[1]
            return Comparison(sources, pair, problems.tell, report, args.tolerance, args.reversed_axes, part, args.data_only)

        code = LongWork(line, [args.first, args.second]).run(make)
    except SetupError as error:
        error.exit_code = TROUBLE
        raise
    return TROUBLE if code else DIFFERENT if different else 0
