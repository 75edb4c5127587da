"""`fsbridge verify`: whether a source is intact. Not here: looking (`unmounted/verifying.py`)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fsbridge.commands import arguments, long_work
from fsbridge.commands.arguments import Parser
from fsbridge.commands.long_work import LongWork
from fsbridge.commands.output import format_count, show
from fsbridge.commands.sources import FAILED, CommandLine, Problems

if TYPE_CHECKING:
    from fsbridge.metadata import Index
    from fsbridge.unmounted.units import JobPart, WorkSources
    from fsbridge.unmounted.verifying import Finding, Verification


def make_parser(program: str) -> Parser:
    """Return the parser of `verify`."""
    parser = Parser(
        prog=program,
        description="Decode every stored chunk of SOURCE and list what is damaged, unsupported, inconsistent or skipped: "
        "chunks, metadata, copies of metadata, links that lead nowhere, files among the chunks that are not chunks, and "
        "other files of the store.",
        epilog="exit codes: 0 all is well; 1 something is wrong or skipped, wrong usage, no such store, or nobody reads the "
        "output; 2 system error; 8 interrupted",
    )
    arguments.add_place(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object for each finding")
    parser.add_argument("--missing", action="store_true", help="also list the cells that have no stored chunk")
    long_work.add_options(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Print all findings."""
    # Settings are for mounts: only the command line can turn off the check of checksums here.
    line = CommandLine(make_parser(program), argv, left_out={"no-verify"})
    args = line.args
    work = LongWork(line, [args.place], waits=True)
    done: list[tuple[Verification, Problems]] = []

    def make(sources: WorkSources, places: list[tuple[int, str]], problems: Problems, part: JobPart) -> Verification:
        from fsbridge.unmounted.verifying import Verification

        def tell(finding: Finding) -> None:
            problems.count += 1
            _print(args, asdict(finding), finding.reason)

        def missing(path: str, index: Index) -> None:
            _print(args, {"kind": "missing", "path": path, "chunk": list(index)}, "")

        verification = Verification(sources, places[0][1], problems.tell, tell, missing if args.missing else None, part)
        done.append((verification, problems))
        return verification

    code = work.run(make)
    if not args.quiet:
        counts, finding_count = done[0][0].counts, done[0][1].count
        said = f"{format_count(counts.groups, 'group')}, {format_count(counts.arrays, 'array')}"
        said += f", {format_count(counts.chunks, 'chunk')} decoded"
        said += f", {format_count(counts.others, 'other file')} read" if counts.others else ""
        verdict = format_count(finding_count, "finding") if finding_count else "all is well"
        print(f"fsbridge: {said}: {verdict}", file=sys.stderr)
    return code


def _print(args: argparse.Namespace, finding: dict[str, Any], reason: str) -> None:
    from fsbridge.errors import printable

    if args.json:
        show(json.dumps({key: value for key, value in finding.items() if value is not None}), FAILED)
        return
    chunk = "" if finding["chunk"] is None else f": chunk {finding['chunk']}"
    show(printable(f"{finding['kind']}: {finding['path']}{chunk}{reason and f': {reason}'}"), FAILED)
