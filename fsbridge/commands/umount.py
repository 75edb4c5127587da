"""`fsbridge umount`: arguments. Not here: unmounting (`mount/preflight.py`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fsbridge.commands import argument_types as types
from fsbridge.commands.arguments import Parser, make_absolute
from fsbridge.commands.mount import EPILOG
from fsbridge.errors import SetupError


def make_parser(program: str) -> Parser:
    """Return the parser of `umount`."""
    parser = Parser(
        prog=program,
        description="Unmount mounts of fsbridge. Their daemons end.",
        epilog=f"example: fsbridge umount /mnt/brain\n{EPILOG}",
    )
    parser.add_argument("mountpoints", type=types.path, metavar="MOUNTPOINT", nargs="+", help="a mount of fsbridge")
    parser.add_argument("-l", "--lazy", action="store_true", help="detach the mount now, even while files are open")
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Unmount each mount that `argv` names, even if another one fails."""
    args = make_parser(program).parse_args(argv)
    from fsbridge.mount.preflight import unmount

    code = 0
    for mountpoint in args.mountpoints:
        try:
            unmount(make_absolute(mountpoint), args.lazy)
        except SetupError as error:
            if len(args.mountpoints) == 1:
                raise
            print(f"fsbridge: {error}", file=sys.stderr)
            code = error.exit_code
    return code
