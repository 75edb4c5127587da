"""The status of mounts in the text format of Prometheus, as node_exporter's textfile collector and scrapers take it.

Not here: the command (`status.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fsbridge.mount.running import GONE, SILENT, UNKNOWN, Told

Values = Callable[[Mapping[str, Any]], Mapping[tuple[str, str], float]]
"""Turns a daemon's answer into the numbers of one metric, by name and value of an extra label (both empty for none)."""


class Metric(NamedTuple):
    """One metric of each mount."""

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


def text(told: Sequence[Told]) -> str:
    """Return the metrics of all mounts that have answered, and for each mount whether it did."""
    return "".join(f"{line}\n" for line in _lines(told))


def _lines(told: Sequence[Told]) -> Iterator[str]:
    yield "# HELP fsbridge_up Whether the daemon of the mount answers."
    yield "# TYPE fsbridge_up gauge"
    for one in told:
        if one.state != UNKNOWN:
            yield f"fsbridge_up{_labels(one)} {int(one.state not in (GONE, SILENT))}"
    for metric in METRICS:
        yield f"# HELP fsbridge_{metric.name} {metric.help}"
        yield f"# TYPE fsbridge_{metric.name} {metric.kind}"
        for one in told:
            for (label, value), number in metric.values(one.answer).items() if one.answer else ():
                yield f"fsbridge_{metric.name}{_labels(one, label, value)} {number}"


def _labels(told: Told, label: str = "", value: str = "") -> str:
    labels = {"mountpoint": told.mount.mountpoint, "source": told.mount.source, **({label: value} if label else {})}
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items()) + "}"


def _escaped(text: str) -> str:
    plain = text.encode("utf-8", "replace").decode()  # a path may have bytes that are no text
    return plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
