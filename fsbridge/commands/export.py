"""`fsbridge export`: the tree of a source as real files. Not here: how they are written (`exporting.py`)."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments
from fsbridge.commands.arguments import Parser
from fsbridge.commands.progress import Progress, add_quiet, size
from fsbridge.errors import SetupError

if TYPE_CHECKING:
    from fsbridge.commands.trees import Problems, Trees
    from fsbridge.exporting import Choice, Export
    from fsbridge.virtual import VirtualTree

REMOTE_THREADS = 32
"""Files at a time of a remote store, where each waits for a server."""


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
    parser.add_argument("--threads", type=types.positive, metavar="N", help="files at a time (default: processors and 2)")
    arguments.add_part(parser)
    add_quiet(parser)
    arguments.add_shared(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Export what `argv` names."""
    args = parser(program).parse_args(argv)
    from fsbridge.commands import trees

    progress = Progress(args.quiet)
    begun: list[Export] = []
    try:
        return trees.run(args, lambda opened, problems: _export(args, opened, problems, progress, begun))
    except KeyboardInterrupt:
        progress.close()
        for export in begun:
            export.clear()
            print(f"fsbridge: interrupted: {_told(export)}; the same command goes on", file=sys.stderr)
        raise
    finally:
        progress.close()


def _export(args: argparse.Namespace, opened: Trees, problems: Problems, progress: Progress, begun: list[Export]) -> None:
    from fsbridge.exporting import Choice, Export

    tree, path = opened.at(args.place)
    choice = Choice(args.include, args.exclude, *args.part)
    threads = args.threads or (REMOTE_THREADS if tree.config.is_remote else (os.cpu_count() or 1) + 2)
    dest = arguments.absolute(args.dest)
    if "://" in args.dest:
        raise SetupError(f"{args.dest}: export writes to directories only", "name a directory on a disk")
    _check_apart(tree, dest)
    export = Export(tree, path, dest, choice, threads, problems.tell, progress.done)
    begun.append(export)
    if progress.is_shown:
        threading.Thread(target=_sum, args=(tree, path, choice, progress), name="fsbridge-sum", daemon=True).start()
    try:
        export.run()
    except OSError as error:
        raise SetupError(f"{dest}: {error.strerror or error}", f"{_told(export)}; the same command goes on") from None
    progress.close()
    if not args.quiet:
        print(f"fsbridge: {_told(export)}", file=sys.stderr)


def _check_apart(tree: VirtualTree, dest: str) -> None:
    """An export into the store itself would change it (P1)."""
    source = tree.config.source
    if not tree.config.is_remote:
        inside = os.path.commonpath([os.path.realpath(dest), os.path.realpath(source)])
        if inside == os.path.realpath(source):
            raise SetupError(f"{dest} is inside the store {source}", "choose a directory elsewhere")


def _sum(tree: VirtualTree, path: str, choice: Choice, progress: Progress) -> None:
    """Tell `progress` how many bytes there are, as far as listings tell it."""
    total, number = 0, 0
    top = path.strip("/")
    below = len(top) + 1 if top else 0
    for whole, member in tree.walk(path, lambda whole: choice.enters(whole[below:]), lambda path, error: None):
        if member.attrs.kind == "directory" or not choice.takes(whole[below:]):
            continue
        number += 1
        if (number - 1) % choice.parts == choice.part and member.attrs.kind == "file":
            total += member.attrs.size or 0
    progress.expect(total)


def _told(export: Export) -> str:
    counts = export.counts
    failed = f", {counts.failed:,} failed" if counts.failed else ""
    return f"{counts.written:,} files written ({size(counts.bytes)}), {counts.kept:,} kept{failed}"
