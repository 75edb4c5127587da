"""`fsbridge cat`: the bytes of files that a mount would show. Not here: where they come from (`unmounted/__init__.py`)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments
from fsbridge.commands.arguments import Parser
from fsbridge.commands.output import write
from fsbridge.commands.sources import Problems, Trees, read

PIECE = 4 << 20
"""Bytes that are read at a time: enough for several chunks to be decoded at once, little beside the cache."""


def make_parser(program: str) -> Parser:
    """Return the parser of `cat`."""
    parser = Parser(
        prog=program,
        description="Print files as a mount of SOURCE would show them, as cat(1) does.",
        epilog="exit codes: 0 all is printed; 1 wrong usage, no such store, or something cannot be read; 8 interrupted",
    )
    parser.add_argument("places", type=types.path, metavar="SOURCE//PATH", nargs="+", help=arguments.PLACE)
    arguments.add_reading(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Print what `argv` names."""
    return read(make_parser(program), argv, _print)


def _print(args: argparse.Namespace, trees: Trees, problems: Problems) -> None:
    for place in args.places:
        tree, path = trees.at(place)
        with problems.at(path or place, partial(trees.elsewhere, place)), tree.open(path) as file:
            for start in range(0, file.size, PIECE):
                write(file.read(start, start + PIECE))
