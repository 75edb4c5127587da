"""`fsbridge verify`: whether a source is intact. Not here: looking (`verifying.py`)."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments
from fsbridge.commands.arguments import Parser
from fsbridge.commands.pipes import show
from fsbridge.commands.progress import Progress, add_quiet

if TYPE_CHECKING:
    from fsbridge.commands.trees import Problems, Trees
    from fsbridge.metadata import Index
    from fsbridge.verifying import Finding

REMOTE_THREADS = 32
"""Chunks at a time of a remote store, where each waits for a server."""


def parser(program: str) -> Parser:
    """Return the parser of `verify`."""
    parser = Parser(
        prog=program,
        description="Decode every stored chunk of SOURCE and list what is damaged, unsupported or inconsistent: chunks, "
        "metadata, copies of metadata, names among the chunks that are no chunk.",
        epilog="exit codes: 0 all is well; 1 something is not, or wrong usage, or no such store; 8 interrupted",
    )
    parser.add_argument("place", type=types.path, metavar="SOURCE[//PATH]", help=arguments.PLACE)
    parser.add_argument("--json", action="store_true", help="print one JSON object for each finding")
    parser.add_argument("--missing", action="store_true", help="list the cells without a stored chunk, too")
    parser.add_argument("--threads", type=types.positive, metavar="N", help="chunks at a time (default: processors and 1)")
    arguments.add_part(parser)
    add_quiet(parser)
    arguments.add_shared(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Print all findings."""
    args = parser(program).parse_args(argv)
    from fsbridge.commands import trees

    progress = Progress(args.quiet)
    try:
        return trees.run(args, lambda opened, problems: _verify(args, opened, problems, progress))
    finally:
        progress.close()


def _verify(args: argparse.Namespace, opened: Trees, problems: Problems, progress: Progress) -> None:
    from fsbridge.printable import printable
    from fsbridge.verifying import Verification

    def tell(finding: Finding) -> None:
        problems.count += 1
        if args.json:
            show(json.dumps({key: value for key, value in asdict(finding).items() if value is not None}))
        else:
            chunk = "" if finding.chunk is None else f"chunk {finding.chunk}: "
            show(printable(f"{finding.kind}: {finding.path}: {chunk}{finding.reason}"))

    def missing(path: str, index: Index) -> None:
        if args.json:
            show(json.dumps({"kind": "missing", "path": path, "chunk": list(index)}))
        else:
            show(printable(f"missing: {path}: chunk {list(index)}"))

    tree, path = opened.at(args.place)
    threads = args.threads or (REMOTE_THREADS if tree.config.is_remote else (os.cpu_count() or 1) + 1)
    look = Verification(tree, path, threads, tell, missing if args.missing else None, args.part, progress.done)
    with problems.at(args.place):
        look.run()
    progress.close()
    if not args.quiet:
        counts, found = look.counts, f"{problems.count:,} findings" if problems.count else "all is well"
        said = f"{counts.groups:,} groups, {counts.arrays:,} arrays, {counts.chunks:,} chunks decoded: {found}"
        print(f"fsbridge: {said}", file=sys.stderr)
