"""`fsbridge info`: arguments, and what lies in sources, or in one group or array of them, printed as a table or as JSON.

Not here: what is found (`contents.py`), how the table is made (`member_table.py`).
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
from collections.abc import Sequence

from fsbridge.commands import argument_types as types
from fsbridge.commands import arguments, places
from fsbridge.commands.arguments import Parser
from fsbridge.commands.output import show
from fsbridge.commands.sources import FAILED, CommandLine, Source
from fsbridge.config import Config
from fsbridge.errors import SetupError, printable

TABLE_COLUMNS = 120
"""Width of the table if there is no terminal and no COLUMNS in the environment."""


def make_parser(program: str) -> Parser:
    """Return the parser of `info`."""
    parser = Parser(
        prog=program,
        description="Show the groups and arrays of each SOURCE as a table, without mounting it. Chunks are read only of "
        "coordinates; in object storage, of those of the first 16 groups.",
        epilog="example: fsbridge info brain.n5//volumes/raw\n"
        "exit codes: 0 all metadata can be read; 1 wrong usage, no such store, or some metadata cannot be read",
    )
    place = "a store; with //PATH, the group or array at PATH: all that is known of it, and what is below it"
    parser.add_argument("sources", type=types.path, nargs="+", metavar="SOURCE[//PATH]", help=place)
    arguments.add_format(parser)
    parser.add_argument(
        "--layout",
        default="zarr3",
        metavar="NAME,...",
        help="say what these layouts leave out, and which files the layout files has",
    )
    parser.add_argument(
        "-a", "--attributes", action="store_true", help="also show attributes; always on for one array, or with //PATH"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table; of several sources, a list")
    arguments.add_permissions(parser)
    arguments.add_remote(parser)
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Print what each source holds, and what the layouts leave out of it.

    Exit code 0, or 1 when a source or a member cannot be read. Raises SetupError if the only source cannot.
    """
    line = CommandLine(make_parser(program), argv)
    from fsbridge.commands.terminal import warnings_to_terminal

    warnings_to_terminal()
    documents: list[dict[str, object]] = []
    code = 0
    for number, given in enumerate(line.args.sources):
        try:
            code = _show_source(line.find_source(given), given, documents, line.args.json, number > 0) or code
        except SetupError as error:
            if len(line.args.sources) == 1:
                raise
            print(f"fsbridge: {error}", file=sys.stderr)
            code = FAILED
    if line.args.json:
        show(json.dumps(documents[0] if len(line.args.sources) == 1 else documents, indent=2), code)
    return code


def _show_source(origin: Source, given: str, documents: list[dict[str, object]], as_json: bool, further: bool) -> int:
    """Print one source, or add it to the `documents`, and return the exit code. `further`: it is not the first."""
    config = _make_config(origin, given)
    gc.disable()  # collecting garbage takes a tenth of the imports' time and finds none
    from fsbridge.commands.contents import make_document, read

    gc.enable()
    name, rows = read(config)
    broken = sum(row.reason is not None for row in rows)
    code = FAILED if broken else 0
    if as_json:
        members = [make_document(row) for row in rows]
        documents.append({"source": config.source, "format": name, "members": members})
    else:
        from fsbridge.commands.member_table import format_table

        width = shutil.get_terminal_size((TABLE_COLUMNS, 0)).columns
        alone = bool(config.inside) or rows[0].kind == "array"
        text = format_table(rows, width, origin.args.attributes, alone)
        show(f"{chr(10) if further else ''}{printable(config.source)}: {name}\n{text}", code)
    if broken:
        print(f"fsbridge: {broken} of {len(rows)} members have metadata that cannot be read", file=sys.stderr)
    return code


def _make_config(origin: Source, given: str) -> Config:
    args = origin.args
    source, inside = places.split_member(arguments.join_place(origin.text, given) if origin.is_named else given, args.format)
    return Config(
        source=source,
        mountpoint="",
        inside=inside,
        format=args.format,
        layout=args.layout.replace("+", ","),
        allow_external=arguments.resolve_folders(args.allow_external),
        hdf5_plugins=arguments.resolve_folders(args.hdf5_plugins),
        remote=arguments.make_remote(args),
    )
