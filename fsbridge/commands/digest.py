"""`fsbridge digest`: a checksum of each array, the same in every format. Not here: the checksum (`unmounted/digest.py`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments, long_work
from fsbridge.commands.arguments import Parser
from fsbridge.commands.long_work import LongWork
from fsbridge.commands.output import format_count, show
from fsbridge.commands.sources import FAILED, CommandLine, Problems
from fsbridge.errors import SetupError

if TYPE_CHECKING:
    from fsbridge.unmounted.digest import Digest
    from fsbridge.unmounted.units import JobPart, WorkSources


def make_parser(program: str) -> Parser:
    """Return the parser of `digest`."""
    parser = Parser(
        prog=program,
        description="Print a checksum of each array of SOURCE, or below PATH, over its type, shape and elements. The same "
        "data have the same checksum in any format, chunking, byte order and codec. docs/digest.md specifies it.",
        epilog="exit codes: 0 all arrays were read, and with --check all are as in FILE; 1 wrong usage, no such store, or "
        "an array that cannot be read, has another digest or is missing; 2 system error; 8 interrupted",
    )
    parser.add_argument("places", type=types.path, metavar="SOURCE[//PATH]", nargs="+", help=arguments.PLACE)
    parser.add_argument(
        "--check", type=types.path, metavar="FILE", help="compare with an earlier output in FILE, as sha256sum -c does"
    )
    parser.add_argument(
        "--reversed-axes", action="store_true", help="reverse the axes first, so that N5 has the axes that z5py shows"
    )
    long_work.add_options(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Print or check the digests of what `argv` names."""
    line = CommandLine(make_parser(program), argv)
    args = line.args
    if args.check is not None and len(args.places) > 1:
        raise SetupError("--check compares one SOURCE with one file", "name one SOURCE", arguments.USAGE)
    known = None if args.check is None else _read(args.check)
    failed: list[str] = []

    def make(sources: WorkSources, places: list[tuple[int, str]], problems: Problems, part: JobPart) -> Digest:
        from fsbridge.unmounted.digest import Digest, line

        def report(path: str, digest: str) -> None:
            if known is None:
                show(line(path, digest))
                return
            same = known.pop(path) == digest
            show(f"{path}: {'OK' if same else 'FAILED'}", FAILED)
            if not same:
                failed.append(path)

        wanted = None if known is None else frozenset(known)
        return Digest(sources, places, problems.tell, report, wanted, args.reversed_axes, part)

    code = LongWork(line, args.places).run(make)
    if known is None:
        return code
    if args.part[1] == 1:
        for path in known:
            show(f"{path}: MISSING", FAILED)
            failed.append(path)
    if failed:
        verb = "differs" if len(failed) == 1 else "differ"
        print(f"fsbridge: {format_count(len(failed), 'array')} {verb} from {args.check}", file=sys.stderr)
    return FAILED if failed else code


def _read(path: str) -> dict[str, str]:
    from fsbridge.unmounted.digest import parse_lines

    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            return {place: digest for digest, place in parse_lines(file.read())}
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise SetupError(f"{path}: {words}", "make it with: fsbridge digest SOURCE > FILE") from None
