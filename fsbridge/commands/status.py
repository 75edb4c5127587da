"""`fsbridge status`: what mounts are doing, once or repeatedly, for people and for programs.

Not here: how daemons are asked (`mount/running.py`), what they tell (`mount/report.py`), the text format for Prometheus
(`prometheus.py`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsbridge.commands import argument_types as types
from fsbridge.commands.arguments import Parser
from fsbridge.commands.list import duration
from fsbridge.deadlines import Stopwatch
from fsbridge.errors import printable
from fsbridge.mount.running import GONE, SILENT, UNKNOWN, Running, Told, ask, running, serving

SYSTEM = 2
"""The exit code of mount(8) for errors of the system: here, a mount that does not answer."""

CLEAR = "\x1b[H\x1b[J"

ADVICE = {
    GONE: "its daemon is gone: fsbridge umount {point}",
    SILENT: "its daemon is stopped or hangs: kill -9 {pid}; fsbridge umount --lazy {point}",
    UNKNOWN: "it is another user's, or has no control socket: ask as the user who mounted it, or as root",
}
"""What each state without an answer from a daemon means, and what helps."""


def parser(program: str) -> Parser:
    """Return the parser of `status`."""
    parser = Parser(
        prog=program,
        description="Show what mounts are doing: requests, bytes, cache, errors. A mount that hangs delays no other.",
        epilog="example: fsbridge status /mnt/brain --watch\n"
        "exit codes: 0 all mounts answer; 1 wrong usage; 2 a mount does not answer; 32 nothing is mounted there",
    )
    parser.add_argument(
        "mountpoint", type=types.path, metavar="MOUNTPOINT", nargs="?", help="a mount of fsbridge (default: all mounts)"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print JSON instead of text, with --watch one line each time")
    how.add_argument("--prometheus", action="store_true", help="print metrics in the text format of Prometheus")
    parser.add_argument(
        "--watch",
        nargs="?",
        type=types.seconds,
        const=1.0,
        metavar="SECONDS",
        help="show it again every SECONDS (default: 1)",
    )
    return parser


@dataclass(frozen=True, slots=True)
class Look:
    """The answers of all mounts at one time."""

    since: Stopwatch
    told: list[Told]


def run(program: str, argv: Sequence[str]) -> int:
    """Show the status of the mounts that `argv` names."""
    args = parser(program).parse_args(argv)
    before: Look | None = None
    try:
        while True:
            look = _look(args.mountpoint)
            if args.prometheus:
                from fsbridge.commands.prometheus import text

                sys.stdout.write(text(look.told))
            elif args.json:
                print(json.dumps([document(told) for told in look.told], indent=None if args.watch else 2))
            else:
                words = "\n\n".join(_words(told, _rates(told, look, before)) for told in look.told) or "nothing is mounted"
                print(f"{CLEAR if args.watch and sys.stdout.isatty() else ''}{words}")
            if args.watch is None:
                return SYSTEM if any(told.state in (GONE, SILENT) for told in look.told) else 0
            sys.stdout.flush()
            time.sleep(args.watch)
            before = look
    except KeyboardInterrupt:
        if args.watch is None:
            raise
        return 0


def _look(mountpoint: str | None) -> Look:
    mounts: list[Running] = running() if mountpoint is None else serving(mountpoint)
    return Look(Stopwatch(), ask(mounts, {"ask": "status"}))


def document(told: Told) -> dict[str, Any]:
    """Return what the JSON output says about one mount."""
    mount = {name: getattr(told.mount, name) for name in told.mount.__slots__ if name != "socket"}
    return {**mount, **told.answer, "state": told.state}


def _rates(told: Told, look: Look, before: Look | None) -> Mapping[str, float]:
    """Return requests, bytes read and decoded per second since the look before; empty without an answer at that time."""
    then = next((other for other in before.told if other.mount == told.mount), None) if before else None
    if before is None or then is None or not told.answer or not then.answer:
        return {}
    seconds = max(1e-3, before.since.seconds - look.since.seconds)
    return {name: (value - _totals(then)[name]) / seconds for name, value in _totals(told).items()}


def _totals(told: Told) -> dict[str, float]:
    said = told.answer
    return {"requests": sum(said["requests"].values()), "read": said["bytes_read"], "decoded": said["bytes_decoded"]}


def _words(told: Told, rates: Mapping[str, float]) -> str:
    mount, said = told.mount, told.answer
    lines = [f"{printable(mount.mountpoint)}: {told.state}", f"  source    {printable(mount.source)}"]
    if mount.format:
        lines[-1] += f" ({mount.format}, layout {mount.layout})"
    if not said:
        return "\n".join([*lines, f"  {ADVICE[told.state].format(pid=mount.pid, point=mount.mountpoint)}"])
    if said["slow"]["requests"]:
        lines[0] += f" for {duration(said['slow']['seconds'])} ({said['slow']['requests']} requests)"
    lines.append(f"  daemon    pid {mount.pid}, fsbridge {mount.version}, for {duration(said['uptime'])}")
    total, each = sum(said["requests"].values()), sorted(said["requests"].items(), key=lambda item: -item[1])
    most = ", ".join(f"{name} {number:,}" for name, number in each[:4])
    lines.append(
        f"  requests  {total:,}{_rate(rates, 'requests')}, {said['under_way']} under way{f'; {most}' if most else ''}"
    )
    lines.append(
        f"  bytes     {size(said['bytes_read'])} read{_rate(rates, 'read')}, "
        f"{size(said['bytes_decoded'])} decoded{_rate(rates, 'decoded')}"
    )
    cache, asked = said["cache"], said["cache"]["hits"] + said["cache"]["misses"]
    hits = f", {cache['hits'] * 100 // asked} % of {asked:,} found there" if asked else ""
    lines.append(f"  cache     {size(cache['used'])} of {size(cache['size'])}, {cache['chunks']:,} chunks{hits}")
    errors = ", ".join(f"{number:,} {name}" for name, number in said["errors"].items())
    lines.append(f"  errors    {errors or 'none'}")
    if said["last_error"]:
        last = said["last_error"]
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last["last"]))
        lines.append(f"            the last one {when}, {printable(last['path'])}: {printable(last['reason'])}")
    return "\n".join(lines)


def _rate(rates: Mapping[str, float], name: str) -> str:
    if name not in rates:
        return ""
    return f" ({rates[name]:,.0f}/s)" if name == "requests" else f" ({size(rates[name])}/s)"


def size(number: float) -> str:
    """A number of bytes as a person reads it: `12 KiB`, `3.4 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            break
        number /= 1024
    return f"{number:.0f} {unit}" if unit == "B" or number >= 10 else f"{number:.1f} {unit}"
