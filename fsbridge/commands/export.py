"""`fsbridge export`: the tree of a source as real files. Not here: how they are written (`unmounted/exporting.py`)."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments, long_work
from fsbridge.commands.arguments import Parser
from fsbridge.commands.command_line import CommandLine
from fsbridge.commands.long_work import LongWork
from fsbridge.commands.progress import size
from fsbridge.config import Config
from fsbridge.errors import SetupError

if TYPE_CHECKING:
    from fsbridge.commands.trees import Problems
    from fsbridge.unmounted.exporting import Export
    from fsbridge.unmounted.units import WorkSources


def parser(program: str) -> Parser:
    """Return the parser of `export`."""
    parser = Parser(
        prog=program,
        description="Write the files that a mount of SOURCE would show into the directory DEST, each whole or not at all. "
        "A second export writes only what is missing or has changed, told by size and time, of whole arrays by their bytes; "
        "nothing is deleted.",
        epilog="exit codes: 0 all is there; 1 wrong usage, no such store, or something cannot be read or written; "
        "8 interrupted: what is complete stays, and the same command goes on",
    )
    parser.add_argument("place", type=types.path, metavar="SOURCE[//PATH]", help=arguments.PLACE)
    parser.add_argument("dest", type=types.path, metavar="DEST", help="a directory, which is made if it is not there")
    shown = "only files whose path below DEST fits, as 'volumes/*.npy' (repeatable; * matches / too)"
    parser.add_argument("--include", action="append", default=[], metavar="GLOB", help=shown)
    shown = "no files and directories whose path fits (repeatable)"
    parser.add_argument("--exclude", action="append", default=[], metavar="GLOB", help=shown)
    long_work.add_options(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Export what `argv` names."""
    line = CommandLine(parser(program), argv)
    args = line.args
    dest = arguments.absolute(args.dest)
    if "://" in args.dest:
        raise SetupError(f"{args.dest}: export writes to directories only", "name a directory on a disk")
    work = LongWork(line, [args.place], waits=True)
    begun: list[Export] = []

    def make(sources: WorkSources, places: list[tuple[int, str]], problems: Problems) -> Export:
        from fsbridge.unmounted.exporting import Choice, Export
        from fsbridge.unmounted.folder import Folder
        from fsbridge.unmounted.units import JobPart

        _check_apart(sources.configs[0], dest)
        choice, part = Choice(args.include, args.exclude), JobPart(*args.part)
        begun.append(Export(sources, places[0][1], Folder(dest), choice, problems.tell, part))
        if work.progress.is_shown:
            count = threading.Thread(target=lambda: work.progress.expect(begun[0].total()), name="fsbridge-sum", daemon=True)
            count.start()
        return begun[0]

    try:
        code = work.run(make)
    except KeyboardInterrupt:
        work.end()
        for export in begun:
            export.clear()
            print(f"fsbridge: interrupted: {_told(export)}; the same command goes on", file=sys.stderr)
        raise
    except SetupError as error:
        for export in begun:  # the destination takes nothing more
            export.clear()
            raise SetupError(str(error), f"{_told(export)}; the same command goes on") from None
        raise
    if not args.quiet:
        print(f"fsbridge: {_told(begun[0])}", file=sys.stderr)
    return code


def _check_apart(config: Config, dest: str) -> None:
    """Raise SetupError for an export into the store itself, because it would change the store (P1)."""
    if not config.is_remote:
        source = os.path.realpath(config.source)
        if os.path.commonpath([os.path.realpath(dest), source]) == source:
            raise SetupError(f"{dest} is inside the store {config.source}", "choose a directory elsewhere")


def _told(export: Export) -> str:
    counts = export.counts
    failed = f", {counts.failed:,} failed" if counts.failed else ""
    return f"{counts.written:,} files written ({size(counts.bytes)}), {counts.kept:,} kept{failed}"
