"""`fsbridge export`: the tree of a source as real files. Not here: how they are written (`unmounted/exporting.py`)."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments, long_work
from fsbridge.commands.arguments import Parser
from fsbridge.commands.long_work import LongWork
from fsbridge.commands.output import format_count, format_size
from fsbridge.commands.sources import CommandLine, Problems
from fsbridge.config import Config
from fsbridge.errors import SetupError

if TYPE_CHECKING:
    from fsbridge.unmounted.exporting import Destination, Export
    from fsbridge.unmounted.units import JobPart, WorkSources


def make_parser(program: str) -> Parser:
    """Return the parser of `export`."""
    parser = Parser(
        prog=program,
        description="Write the files that a mount of SOURCE would show to DEST, each whole or not at all. "
        "A second export writes only what is missing or has changed. It compares chunk files by size and time, and files of "
        "whole arrays by their bytes. It deletes nothing.",
        epilog="exit codes: 0 all is written; 1 wrong usage, no such store, or something cannot be read or written; "
        "8 interrupted: files that are complete stay, and the same command continues",
    )
    arguments.add_place(parser)
    shown = "a directory, which is made if it does not exist, or a URL: s3://BUCKET/PATH, gs://..., az://..."
    parser.add_argument("dest", type=types.path, metavar="DEST", help=shown)
    shown = (
        "export only files whose path below DEST matches GLOB, as 'volumes/*.npy'; * matches / too (repeatable). "
        "A GLOB that ends like a file type, as '*.nc', stands for --files too"
    )
    parser.add_argument("--include", action="append", default=[], metavar="GLOB", help=shown)
    shown = "leave out files and directories whose path matches GLOB (repeatable)"
    parser.add_argument("--exclude", action="append", default=[], metavar="GLOB", help=shown)
    long_work.add_options(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Export what `argv` names."""
    line = CommandLine(make_parser(program), argv)
    args = line.args
    if args.files is None:
        args.files = _find_file_types(args.include, args.layout)
    is_url = "://" in args.dest
    dest = _check_url(args.dest) if is_url else arguments.make_absolute(args.dest)
    work = LongWork(line, [args.place], waits=True, remote=is_url)
    begun: list[Export] = []

    def make(sources: WorkSources, places: list[tuple[int, str]], problems: Problems, part: JobPart) -> Export:
        from fsbridge.threads import starting
        from fsbridge.unmounted.exporting import Export, ExportChoice

        choice = ExportChoice(args.include, args.exclude)
        path = places[0][1]
        begun.append(Export(sources, path, _make_destination(sources.configs[0], path, dest), choice, problems.tell, part))
        if work.progress.is_shown:
            starting.start(lambda: work.progress.expect(begun[0].total()), "fsbridge-sum")
        return begun[0]

    try:
        code = work.run(make)
        begun[0].settle()
    except KeyboardInterrupt:
        work.end()
        for export in begun:
            export.clear()
            print(f"fsbridge: interrupted: {_summarize(export)}; the same command continues", file=sys.stderr)
        raise
    except SetupError as error:
        for export in begun:  # the destination takes nothing more
            export.clear()
            words, _, hint = str(error).partition("\n  ")
            raise SetupError(words, hint or f"{_summarize(export)}; the same command continues") from None
        raise
    if args.include and args.part[1] == 1 and code == 0 and not begun[0].counts.written + begun[0].counts.kept:
        patterns = " ".join(f"--include {shlex.quote(pattern)}" for pattern in args.include)
        layout = args.layout or ("files" if args.files else "")
        layout = f"--layout {shlex.quote(layout)} " if layout else ""
        hint = f"see which files there are: fsbridge ls -R {layout}{shlex.quote(args.place)}"
        raise SetupError(f"{patterns}: no file matches", hint)
    if not args.quiet:
        print(f"fsbridge: {_summarize(begun[0])}", file=sys.stderr)
    return code


def _find_file_types(patterns: Sequence[str], layout: str | None) -> tuple[str, ...] | None:
    """Return the file types that the patterns of `--include` end with; None if not all do, or another layout is named."""
    from fsbridge.layouts.files.filetypes import CHOICES

    by_length = sorted(CHOICES, key=len, reverse=True)
    names = [f"{pattern}.preview" if ".preview." in pattern else pattern for pattern in patterns]
    endings = [next((name for name in by_length if pattern.endswith(f".{name}")), None) for pattern in names]
    named = tuple(name for name in endings if name is not None)
    is_files = layout is None or "files" in layout.replace("+", ",").split(",")
    return named if patterns and is_files and len(named) == len(endings) else None


def _check_url(url: str) -> str:
    from fsbridge.unmounted.destinations import location_of

    location_of(url)
    return url


def _make_destination(config: Config, path: str, dest: str) -> Destination:
    if "://" not in dest:
        from fsbridge.unmounted.destinations import Folder

        _check_apart(config, dest)
        return Folder(dest)
    from fsbridge.unmounted.destinations import Bucket, identity

    bucket = Bucket(dest, config.remote, identity(config, path))
    bucket.check_apart(config)
    return bucket


def _check_apart(config: Config, dest: str) -> None:
    """Raise SetupError for an export into the store itself, because it would change the store (P1)."""
    if not config.is_remote:
        source = os.path.realpath(config.source)
        if os.path.commonpath([os.path.realpath(dest), source]) == source:
            raise SetupError(f"{dest} is inside the store {config.source}", "choose a directory elsewhere")


def _summarize(export: Export) -> str:
    counts = export.counts
    failed = f", {counts.failed:,} failed" if counts.failed else ""
    return f"{format_count(counts.written, 'file')} written ({format_size(counts.bytes)}), {counts.kept:,} kept{failed}"
