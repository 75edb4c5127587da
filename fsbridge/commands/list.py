"""`fsbridge list`: the mounts of this machine as a table or JSON. Not here: what each does (`status.py`)."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from fsbridge import __version__
from fsbridge.commands.arguments import Parser
from fsbridge.commands.output import show
from fsbridge.errors import printable

HEADING = ("mount point", "source", "format", "layout", "pid", "for", "state")


def make_parser(program: str) -> Parser:
    """Return the parser of `list`."""
    parser = Parser(
        prog=program,
        description="List the mounts of fsbridge on this machine. A mount that hangs is listed too, and delays nothing.",
        epilog="example: fsbridge list --json | jq -r '.[].mountpoint'",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """List the mounts."""
    args = make_parser(program).parse_args(argv)
    from fsbridge.mount.running import ask, list_running

    mounts = list_running()
    states = [status.state or "running" for status in ask(mounts, {"ask": "status"})]
    if args.json:
        rows = [
            {**{name: getattr(mount, name) for name in mount.__slots__ if name != "socket"}, "state": state}
            for mount, state in zip(mounts, states, strict=True)
        ]
        show(json.dumps(rows, indent=2))
        return 0
    table = [HEADING] if mounts else []
    for mount, state in zip(mounts, states, strict=True):
        if mount.version not in ("", __version__):
            state = f"{state}, of fsbridge {mount.version}"
        pid, age = (str(mount.pid), format_duration(time.time() - mount.started)) if mount.pid else ("-", "-")
        table.append((mount.mountpoint, mount.source, mount.format or "-", mount.layout or "-", pid, age, state))
    widths = [max(len(printable(row[column])) for row in table) for column in range(len(HEADING))] if table else []
    for row in table:
        show("  ".join(printable(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def format_duration(seconds: float) -> str:
    """Return seconds in words for people: `5 s`, `12 min`, `3 h 4 min`, `2 d 5 h`."""
    whole = max(0, int(seconds))
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{whole} s"
