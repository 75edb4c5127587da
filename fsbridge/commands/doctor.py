"""`fsbridge doctor`: what keeps mounts from working here, and a command that helps for each cause.

Not here: what is looked at (`diagnosis.py`, `trial.py`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments
from fsbridge.commands.arguments import Parser
from fsbridge.commands.command_line import CommandLine
from fsbridge.commands.diagnosis import Diagnosis, findings
from fsbridge.errors import printable

SIGNS = {"ok": "ok  ", "note": "note", "bad": "BAD "}


def parser(program: str) -> Parser:
    """Return the parser of `doctor`."""
    parser = Parser(
        prog=program,
        description="Find what keeps mounts from working on this machine. With SOURCE, also open it and decode one chunk of "
        "each codec.",
        epilog="example: fsbridge doctor s3://bucket/brain.zarr --region eu-west-1\n"
        "exit codes: 0 nothing is bad; 1 something is bad, or wrong usage",
    )
    parser.add_argument("source", type=types.path, metavar="SOURCE", nargs="?", help=arguments.SOURCE)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    arguments.add_shared(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Print all findings."""
    line = CommandLine(parser(program), argv)
    args = line.args
    look: Callable[[], Iterator[Diagnosis]] | None = None
    path = ""
    if args.source is not None:
        from fsbridge.commands.trial import trial

        config = line.mounted(args.source)
        path = config.source
        look = partial(trial, config)
    found = []
    for finding in findings(path, look):
        found.append(finding)
        if not args.json:
            print(f"{SIGNS[finding.state]}  {printable(finding.subject)}: {printable(finding.words)}")
            if finding.mend and finding.state != "ok":
                print(f"        {printable(finding.mend)}")
    if args.json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    code = 1 if any(finding.state == "bad" for finding in found) else 0
    if "://" in path:  # the interpreter's own end aborts while a thread is still inside the client library
        sys.stdout.flush()
        os._exit(code)
    return code
