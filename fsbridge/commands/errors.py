"""`fsbridge errors`: why reads of a mount failed, in words. Not here: which errors count (`kernel/`)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fsbridge.commands import argument_types as types
from fsbridge.commands.arguments import Parser
from fsbridge.commands.output import show
from fsbridge.errors import printable


def make_parser(program: str) -> Parser:
    """Return the parser of `errors`."""
    parser = Parser(
        prog=program,
        description="Show the reasons of the last hundred errors of a mount, the latest last. Equal errors count as one.",
        epilog="example: fsbridge errors /mnt/brain volumes/raw\n"
        "exit codes: 0 the mount answers, perhaps without errors; 1 wrong usage; 2 the mount does not answer; "
        "32 nothing is mounted there",
    )
    parser.add_argument("mountpoint", type=types.path, metavar="MOUNTPOINT", help="a mount of fsbridge")
    parser.add_argument(
        "path", metavar="PATH", nargs="?", default="", help="show only errors of this path in the mount, and below it"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Show the last errors."""
    args = make_parser(program).parse_args(argv)
    from fsbridge.mount.running import ask_one

    def render(answer: Mapping[str, Any]) -> str:
        errors = answer["errors"]
        return json.dumps(errors, indent=2) if args.json else "\n".join(map(_format_line, errors)) or "no errors"

    show(ask_one(args.mountpoint, {"ask": "errors", "path": _find_path_inside(args.path, args.mountpoint)}, render))
    return 0


def _format_line(error: Mapping[str, Any]) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(error["last"]))
    times = f" ({error['times']:,} times)" if error["times"] > 1 else ""
    return printable(f"{when}  {error['errno']}  {error['path']}: {error['reason']}{times}")


def _find_path_inside(path: str, mountpoint: str) -> str:
    """Return `path` within the mount; it may be given with the mount point in front, by any of its names.

    The path is followed from its top down to the mount point only, because a mount that hangs must not be touched.
    """
    from fsbridge.mount.preflight import find_mount

    names, mounted = os.path.abspath(path).split("/"), find_mount(mountpoint)
    if not path or mounted is None:
        return path
    for end in range(2, len(names) + 1):
        above = find_mount("/".join(names[:end]))
        if above is not None and above.point == mounted.point:
            return "/".join(names[end:])
    return path
