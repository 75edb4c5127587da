"""`fsbridge digest`: a checksum of each array, the same in every format. Not here: the checksum (`digest.py` above)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments
from fsbridge.commands.arguments import Parser
from fsbridge.commands.pipes import show
from fsbridge.commands.progress import Progress, add_quiet
from fsbridge.errors import SetupError

if TYPE_CHECKING:
    from fsbridge.commands.trees import Problems, Trees


def parser(program: str) -> Parser:
    """Return the parser of `digest`."""
    parser = Parser(
        prog=program,
        description="Print a checksum of type, shape and elements of each array of SOURCE, or below PATH: the same for the "
        "same data in any format, chunking, byte order and codec. docs/digest.md specifies it.",
        epilog="exit codes: 0 all arrays are read, and with --check all are as in FILE; 1 wrong usage, no such store, an "
        "array that cannot be read, has another digest or is missing; 8 interrupted",
    )
    parser.add_argument("places", type=types.path, metavar="SOURCE[//PATH]", nargs="+", help=arguments.PLACE)
    parser.add_argument(
        "--check", type=types.path, metavar="FILE", help="compare with what was printed before, as sha256sum -c"
    )
    parser.add_argument("--reversed-axes", action="store_true", help="of the transposed arrays: N5 as z5py shows it")
    arguments.add_part(parser)
    add_quiet(parser)
    arguments.add_shared(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Print or check the digests of what `argv` names."""
    args = parser(program).parse_args(argv)
    from fsbridge.commands import trees

    if args.check is not None and len(args.places) > 1:
        raise SetupError("--check compares one source with one file", "name one SOURCE", arguments.USAGE)
    progress = Progress(args.quiet)
    try:
        return trees.run(args, lambda opened, problems: _digest(args, opened, problems, progress))
    finally:
        progress.close()


def _digest(args: argparse.Namespace, opened: Trees, problems: Problems, progress: Progress) -> None:
    from fsbridge.digest import digest, line
    from fsbridge.model import as_array
    from fsbridge.ordered import members

    known = None if args.check is None else _read(args.check)
    part, parts = args.part
    number = 0
    for place in args.places:
        tree, path = opened.at(place)
        with problems.at(place):
            for member in members(tree, path):
                if member.error is not None:
                    problems.tell(member.path, member.error)
                    continue
                array = None if member.node is None else as_array(member.node)
                if array is None or (known is not None and member.path not in known):
                    continue
                number += 1
                if (number - 1) % parts != part:
                    continue
                with problems.at(member.path):
                    found = digest(tree, array, args.reversed_axes, partial(progress.done, member.path))
                    if known is None:
                        show(line(member.path, found))
                    else:
                        same = known.pop(member.path) == found
                        show(f"{member.path}: {'OK' if same else 'FAILED'}")
                        problems.count += not same
    for path in known or () if parts == 1 else ():
        show(f"{path}: MISSING")
        problems.count += 1
    if known is not None and problems.count:
        print(f"fsbridge: {problems.count} of the arrays are not as {args.check} says", file=sys.stderr)


def _read(path: str) -> dict[str, str]:
    from fsbridge.digest import parse_lines

    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return {place: found for found, place in parse_lines(file.read())}
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise SetupError(f"{path}: {words}", "make it with: fsbridge digest SOURCE > FILE") from None
