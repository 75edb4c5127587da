"""`fsbridge ctl log-level`: how much a running mount logs. Not here: where its log goes (`mount/logs.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from fsbridge.commands import argument_types as types
from fsbridge.commands.arguments import Parser
from fsbridge.config import LEVELS


def make_parser(program: str) -> Parser:
    """Return the parser of `log-level`."""
    parser = Parser(
        prog=program,
        description="Change the least severe level that a running mount logs.",
        epilog="example: fsbridge ctl log-level /mnt/brain debug",
    )
    parser.add_argument("mountpoint", type=types.path, metavar="MOUNTPOINT", help="a mount of fsbridge")
    parser.add_argument("level", choices=LEVELS, metavar="LEVEL", help=", ".join(LEVELS))
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Change the log level of mounts."""
    args = make_parser(program).parse_args(argv)
    from fsbridge.mount.running import ask_one

    ask_one(args.mountpoint, {"ask": "log-level", "level": args.level}, dict)
    return 0
