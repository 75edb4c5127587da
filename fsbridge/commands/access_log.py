"""`fsbridge ctl access-log`: have a running mount write down what is read. Not here: what is written (`mount/logs.py`).

This command opens the file and hands it to the daemon, so the daemon needs no right to open anything.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from fsbridge.commands import argument_types as types
from fsbridge.commands.arguments import Parser, make_absolute
from fsbridge.errors import SetupError


def make_parser(program: str) -> Parser:
    """Return the parser of `access-log`."""
    parser = Parser(
        prog=program,
        description="Make a running mount append one line of JSON to FILE for each open, and for each read that was not "
        "answered from memory.",
        epilog="example: fsbridge ctl access-log /mnt/brain reads.jsonl; program; fsbridge ctl access-log /mnt/brain --off",
    )
    parser.add_argument("mountpoint", type=types.path, metavar="MOUNTPOINT", help="a mount of fsbridge")
    parser.add_argument("file", type=types.path, metavar="FILE", nargs="?", help="the file that gets the lines")
    parser.add_argument("--off", action="store_true", help="stop writing")
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Switch the access log on or off."""
    args = make_parser(program).parse_args(argv)
    if (args.file is None) != args.off:
        raise SetupError("either FILE or --off is needed", f"see: {program} --help")
    from fsbridge.mount.logs import open_log
    from fsbridge.mount.running import ask_one

    file = None if args.file is None else open_log(make_absolute(args.file))
    try:
        ask_one(args.mountpoint, {"ask": "access-log"}, dict, file)
    finally:
        if file is not None:
            os.close(file)
    return 0
