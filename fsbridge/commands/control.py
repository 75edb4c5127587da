"""The commands that ask or tell one running mount something, through its control socket: errors, log-level, access-log.

`access-log` opens the file and hands it to the daemon, so the daemon needs no right to open anything. Not here: what a mount
is doing (`status.py`), which errors count (`kernel/`), what is written to a log, and where (`mount/logs.py`).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence

from fsbridge.commands import argument_types as types
from fsbridge.commands.arguments import Parser, absolute
from fsbridge.commands.output import show
from fsbridge.config import LEVELS
from fsbridge.errors import SetupError, printable


class Errors:
    """`fsbridge errors`: why reads of a mount failed, in words."""

    @staticmethod
    def parser(program: str) -> Parser:
        """Return the parser of `errors`."""
        parser = Parser(
            prog=program,
            description="Show the reasons of the last hundred errors of a mount, the latest last. Equal errors count as "
            "one.",
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

    @staticmethod
    def run(program: str, argv: Sequence[str]) -> int:
        """Show the last errors."""
        args = Errors.parser(program).parse_args(argv)
        from fsbridge.mount.running import ask_one

        found = ask_one(args.mountpoint, {"ask": "errors", "path": _inside(args.path, args.mountpoint)})["errors"]
        if args.json:
            show(json.dumps(found, indent=2))
            return 0
        for error in found:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(error["last"]))
            times = f" ({error['times']:,} times)" if error["times"] > 1 else ""
            show(f"{when}  {error['errno']}  {printable(error['path'])}: {printable(error['reason'])}{times}")
        if not found:
            show("no errors")
        return 0


def _inside(path: str, mountpoint: str) -> str:
    """Return `path` within the mount; it may be given with the mount point in front."""
    whole, point = os.path.abspath(path), os.path.abspath(mountpoint)
    if path.startswith("/") or whole.startswith(f"{point}/"):
        return os.path.relpath(whole, point) if whole.startswith(f"{point}/") else path
    return path


class LogLevel:
    """`fsbridge log-level`: how much a running mount logs."""

    @staticmethod
    def parser(program: str) -> Parser:
        """Return the parser of `log-level`."""
        parser = Parser(
            prog=program,
            description="Change the least severe level that a running mount logs.",
            epilog="example: fsbridge log-level /mnt/brain debug",
        )
        parser.add_argument("mountpoint", type=types.path, metavar="MOUNTPOINT", help="a mount of fsbridge")
        parser.add_argument("level", choices=LEVELS, metavar="LEVEL", help=", ".join(LEVELS))
        return parser

    @staticmethod
    def run(program: str, argv: Sequence[str]) -> int:
        """Change the level."""
        args = LogLevel.parser(program).parse_args(argv)
        from fsbridge.mount.running import ask_one

        ask_one(args.mountpoint, {"ask": "log-level", "level": args.level})
        return 0


class AccessLog:
    """`fsbridge access-log`: have a running mount write down what is read."""

    @staticmethod
    def parser(program: str) -> Parser:
        """Return the parser of `access-log`."""
        parser = Parser(
            prog=program,
            description="Make a running mount append one line of JSON to FILE for each open, and for each read that was not "
            "answered from memory.",
            epilog="example: fsbridge access-log /mnt/brain reads.jsonl; myprogram; fsbridge access-log /mnt/brain --off",
        )
        parser.add_argument("mountpoint", type=types.path, metavar="MOUNTPOINT", help="a mount of fsbridge")
        parser.add_argument("file", type=types.path, metavar="FILE", nargs="?", help="the file that gets the lines")
        parser.add_argument("--off", action="store_true", help="stop writing")
        return parser

    @staticmethod
    def run(program: str, argv: Sequence[str]) -> int:
        """Switch the access log on or off."""
        args = AccessLog.parser(program).parse_args(argv)
        if (args.file is None) != args.off:
            raise SetupError("either FILE or --off is needed", f"see: {program} --help")
        from fsbridge.mount.logs import open_log
        from fsbridge.mount.running import ask_one

        file = None if args.file is None else open_log(absolute(args.file))
        try:
            ask_one(args.mountpoint, {"ask": "access-log"}, file)
        finally:
            if file is not None:
                os.close(file)
        return 0
