"""`fsbridge info`: arguments, and the hierarchy of a source printed as a table or as JSON.

Not here: what is in the table (`info.py` of the package).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments
from fsbridge.commands.arguments import Parser
from fsbridge.commands.output import show
from fsbridge.commands.sources import FAILED, CommandLine
from fsbridge.config import Config, parse_place

TABLE_COLUMNS = 120
"""Width of the table if there is no terminal and no COLUMNS in the environment."""


def parser(program: str) -> Parser:
    """Return the parser of `info`."""
    parser = Parser(
        prog=program,
        description="Show the groups and arrays of SOURCE as a table, without mounting it. Chunks are not read.",
        epilog="example: fsbridge info brain.n5//volumes/raw --layout files\n"
        "exit codes: 0 all metadata can be read; 1 wrong usage, no such store, or some metadata cannot be read",
    )
    place = "a store; with //PATH, show what the layout has at PATH, or why it has nothing there"
    parser.add_argument("source", type=types.path, metavar="SOURCE[//PATH]", help=place)
    arguments.add_format(parser)
    parser.add_argument(
        "--layout",
        default="zarr3",
        metavar="NAME,...",
        help="say what these layouts leave out, and which files the layout files has",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments.add_permissions(parser)
    arguments.add_remote(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Print what SOURCE holds, and what the layouts leave out of it.

    Exit code 0, or 1 when a member cannot be read. Raises SetupError if SOURCE cannot.
    """
    line = CommandLine(parser(program), argv)
    given, found = line.args.source, line.source(line.args.source)
    if parse_place(given)[1] and ("://" in found.text or os.path.lexists(found.text)):
        from fsbridge.commands import ls

        return ls.run(program, ["-l", *(word for word in argv if word != "--json")])
    from fsbridge.mount.logs import to_terminal

    to_terminal()
    args = found.args
    source, inside = arguments.source_and_path(arguments.below(found.text, given)) if found.is_named else (given, ())
    config = Config(
        source=arguments.source(source) if "://" in source else arguments.not_misspelt(source),
        mountpoint="",
        inside=inside,
        format=args.format,
        layout=args.layout.replace("+", ","),
        allow_external=arguments.folders(args.allow_external),
        hdf5_plugins=arguments.folders(args.hdf5_plugins),
        remote=arguments.remote(args),
    )
    from fsbridge.commands.contents import document, read, table
    from fsbridge.errors import printable

    name, rows = read(config)
    broken = sum(row.reason is not None for row in rows)
    code = FAILED if broken else 0
    if args.json:
        members = [document(row) for row in rows]
        show(json.dumps({"source": config.source, "format": name, "members": members}, indent=2), code)
    else:
        width = shutil.get_terminal_size((TABLE_COLUMNS, 0)).columns
        show(f"{printable(config.source)}: {name}\n{table(rows, width)}", code)
    if broken:
        print(f"fsbridge: {broken} of {len(rows)} members have metadata that cannot be read", file=sys.stderr)
    return code
