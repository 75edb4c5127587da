"""`fsbridge status`: what mounts are doing, once or repeatedly, for people and for programs.

Not here: how daemons are asked (`mount/running.py`), what they tell (`mount/control.py`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fsbridge.commands import argument_types as types
from fsbridge.commands.arguments import Parser
from fsbridge.commands.list import format_duration
from fsbridge.commands.output import SYSTEM, format_size, show, write
from fsbridge.errors import printable
from fsbridge.mount.running import (
    GONE,
    MISUNDERSTOOD,
    SILENT,
    UNKNOWN,
    MountStatus,
    Running,
    ask,
    find_serving,
    list_running,
    misunderstood,
)
from fsbridge.threads.deadlines import Stopwatch

CLEAR = "\x1b[H\x1b[J"

ADVICE = {
    GONE: "its daemon has ended: fsbridge umount {point}",
    SILENT: "its daemon is stopped or hangs: kill -9 {pid}; fsbridge umount --lazy {point}",
    UNKNOWN: "it belongs to another user, or has no control socket: ask as the user who mounted it, or as root",
}
"""What each state without an answer from a daemon means, and what helps."""


def make_parser(program: str) -> Parser:
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
class Answers:
    """The answers of all mounts at one time."""

    since: Stopwatch
    statuses: list[MountStatus]


def run(program: str, argv: Sequence[str]) -> int:
    """Show the status of the mounts that `argv` names."""
    args = make_parser(program).parse_args(argv)
    before: Answers | None = None
    try:
        while True:
            look = _look(args.mountpoint)
            code = SYSTEM if any(status.state in (GONE, SILENT) for status in look.statuses) else 0
            if args.prometheus:
                write(format_metrics(look.statuses).encode(), code)
            elif args.json:
                show(json.dumps([make_document(status) for status in look.statuses], indent=None if args.watch else 2), code)
            else:
                words = "\n\n".join(_describe(status, _compute_rates(status, look, before)) for status in look.statuses)
                show(f"{CLEAR if args.watch and sys.stdout.isatty() else ''}{words or 'nothing is mounted'}", code)
            if args.watch is None:
                return code
            time.sleep(args.watch)
            before = look
    except KeyboardInterrupt:
        if args.watch is None:
            raise
        return 0


def _look(mountpoint: str | None) -> Answers:
    mounts: list[Running] = list_running() if mountpoint is None else find_serving(mountpoint)
    return Answers(Stopwatch(), ask(mounts, {"ask": "status"}))


def make_document(status: MountStatus) -> dict[str, Any]:
    """Return what `--json` prints about one mount."""
    mount = {name: getattr(status.mount, name) for name in status.mount.__slots__ if name != "socket"}
    return {**mount, **status.answer, "state": status.state}


def _compute_rates(status: MountStatus, look: Answers, before: Answers | None) -> Mapping[str, float]:
    """Return requests, bytes read and bytes decoded per second since the look `before`.

    Empty unless both looks have an answer.
    """
    then = next((other for other in before.statuses if other.mount == status.mount), None) if before else None
    if before is None or then is None:
        return {}
    seconds = max(1e-3, before.since.seconds - look.since.seconds)
    try:
        return {name: (value - _sum_up(then)[name]) / seconds for name, value in _sum_up(status).items()}
    except MISUNDERSTOOD:
        return {}


def _sum_up(status: MountStatus) -> dict[str, float]:
    said = status.answer
    return {"requests": sum(said["requests"].values()), "read": said["bytes_read"], "decoded": said["bytes_decoded"]}


def _describe(status: MountStatus, rates: Mapping[str, float]) -> str:
    mount = status.mount
    source = f"  source    {mount.source}" + (f" ({mount.format}, layout {mount.layout})" if mount.format else "")
    if status.state in ADVICE:
        lines = [f"{mount.mountpoint}: {status.state}", source]
        lines.append(f"  {ADVICE[status.state].format(pid=mount.pid, point=mount.mountpoint)}")
    else:
        lines, unknown = [f"{mount.mountpoint}: {status.state or 'state unknown'}", source], False
        for add in (_add_slow, _add_daemon, _add_requests, _add_bytes, _add_cache, _add_errors):
            try:
                add(lines, status, rates)
            except MISUNDERSTOOD:
                unknown = True
        if unknown:
            lines.append(f"  {misunderstood(mount)}; the rest is unknown")
    return "\n".join(map(printable, lines))


def _add_slow(lines: list[str], status: MountStatus, rates: Mapping[str, float]) -> None:
    slow = status.answer["slow"]
    if slow["requests"]:
        lines[0] += f" for {format_duration(slow['seconds'])} ({slow['requests']} requests)"


def _add_daemon(lines: list[str], status: MountStatus, rates: Mapping[str, float]) -> None:
    mount = status.mount
    lines.append(f"  daemon    pid {mount.pid}, fsbridge {mount.version}, for {format_duration(status.answer['uptime'])}")


def _add_requests(lines: list[str], status: MountStatus, rates: Mapping[str, float]) -> None:
    said = status.answer
    total, each = sum(said["requests"].values()), sorted(said["requests"].items(), key=lambda item: -item[1])
    most = ", ".join(f"{name} {number:,}" for name, number in each[:4])
    lines.append(
        f"  requests  {total:,}{_format_rate(rates, 'requests')}, {said['under_way']} under way{f'; {most}' if most else ''}"
    )


def _add_bytes(lines: list[str], status: MountStatus, rates: Mapping[str, float]) -> None:
    said = status.answer
    lines.append(
        f"  bytes     {format_size(said['bytes_read'])} read{_format_rate(rates, 'read')}, "
        f"{format_size(said['bytes_decoded'])} decoded{_format_rate(rates, 'decoded')}"
    )


def _add_cache(lines: list[str], status: MountStatus, rates: Mapping[str, float]) -> None:
    cache = status.answer["cache"]
    asked = cache["hits"] + cache["misses"]
    hits = f", {cache['hits'] * 100 // asked} % of {asked:,} found there" if asked else ""
    lines.append(
        f"  cache     {format_size(cache['used'])} of {format_size(cache['size'])}, {cache['chunks']:,} chunks{hits}"
    )


def _add_errors(lines: list[str], status: MountStatus, rates: Mapping[str, float]) -> None:
    said = status.answer
    errors = ", ".join(f"{number:,} {name}" for name, number in said["errors"].items())
    lines.append(f"  errors    {errors or 'none'}")
    if last := said["last_error"]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last["last"]))
        lines.append(f"            the last one {when}, {last['path']}: {last['reason']}")


def _format_rate(rates: Mapping[str, float], name: str) -> str:
    if name not in rates:
        return ""
    return f" ({rates[name]:,.0f}/s)" if name == "requests" else f" ({format_size(rates[name])}/s)"


Values = Callable[[Mapping[str, Any]], Mapping[tuple[str, str], float]]
"""Turns a daemon's answer into the numbers of one metric, by name and value of an extra label (both empty for none)."""


class Metric(NamedTuple):
    """One metric, which every mount has."""

    name: str
    kind: str
    help: str
    values: Values


def _plain(value: Callable[[Mapping[str, Any]], float]) -> Values:
    return lambda said: {("", ""): value(said)}


METRICS = (
    Metric("uptime_seconds", "gauge", "Seconds since the mount began.", _plain(lambda said: said["uptime"])),
    Metric(
        "requests_total",
        "counter",
        "Requests of the kernel.",
        lambda said: {("request", name): number for name, number in said["requests"].items()},
    ),
    Metric("requests_under_way", "gauge", "Requests that are not answered yet.", _plain(lambda said: said["under_way"])),
    Metric("requests_slow", "gauge", "Jobs that wait long for the store.", _plain(lambda said: said["slow"]["requests"])),
    Metric("read_bytes_total", "counter", "Bytes of answers to reads.", _plain(lambda said: said["bytes_read"])),
    Metric("decoded_bytes_total", "counter", "Bytes that were decoded.", _plain(lambda said: said["bytes_decoded"])),
    Metric("cache_bytes", "gauge", "Decoded bytes in the cache.", _plain(lambda said: said["cache"]["used"])),
    Metric("cache_size_bytes", "gauge", "Bytes that the cache may hold.", _plain(lambda said: said["cache"]["size"])),
    Metric("cache_hits_total", "counter", "Chunks found in the cache.", _plain(lambda said: said["cache"]["hits"])),
    Metric("cache_misses_total", "counter", "Chunks not found in the cache.", _plain(lambda said: said["cache"]["misses"])),
    Metric(
        "errors_total",
        "counter",
        "Errors by errno.",
        lambda said: {("errno", name): number for name, number in said["errors"].items()},
    ),
)


def format_metrics(statuses: Sequence[MountStatus]) -> str:
    """Return the metrics of all mounts that have answered, in the format of Prometheus.

    For each mount, say whether it answered.

    node_exporter's textfile collector and scrapers take it.
    """
    return "".join(f"{line}\n" for line in _make_lines(statuses))


def _make_lines(statuses: Sequence[MountStatus]) -> Iterator[str]:
    yield "# HELP fsbridge_up Whether the daemon of the mount answers."
    yield "# TYPE fsbridge_up gauge"
    for one in statuses:
        if one.state != UNKNOWN:
            yield f"fsbridge_up{_format_labels(one)} {int(one.state not in (GONE, SILENT))}"
    for metric in METRICS:
        yield f"# HELP fsbridge_{metric.name} {metric.help}"
        yield f"# TYPE fsbridge_{metric.name} {metric.kind}"
        for one in statuses:
            try:
                numbers = {place: float(number) for place, number in metric.values(one.answer).items()}
            except MISUNDERSTOOD:  # the daemon did not answer, or its version has no such number
                continue
            for (label, value), number in numbers.items():
                yield f"fsbridge_{metric.name}{_format_labels(one, label, value)} {number:.17g}"


def _format_labels(status: MountStatus, label: str = "", value: str = "") -> str:
    labels = {"mountpoint": status.mount.mountpoint, "source": status.mount.source, **({label: value} if label else {})}
    return "{" + ",".join(f'{name}="{_escape(text)}"' for name, text in labels.items()) + "}"


def _escape(text: str) -> str:
    plain = text.encode("utf-8", "replace").decode()  # a path may have bytes that are no text
    return plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
