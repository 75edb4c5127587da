"""The table and the JSON document of a run. Not here: measuring."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks.rounds import Row, Spread, ratio, spread


def table(rows: list[Row]) -> str:
    """Return the table for people: medians with their range, ratios round by round with theirs, and the goals."""
    lines = []
    for row in rows:
        lines += ["", f"## {row.name}{'; ' + ', '.join(row.notes) if row.notes else ''}", ""]
        if row.pairs:
            lines += _speeds(row) if row.amount else []
            lines += ["", "| ratio | median | range | wanted |", "| --- | --- | --- | --- |"]
            for pair in row.pairs:
                found = ratio(row.samples, pair)
                lines.append(
                    f"| {pair.ours} / {pair.theirs} | {found.median:.2f}x | {found.low:.2f} - {found.high:.2f} | "
                    f"{_verdict(found.median, pair.target)} |"
                )
        if row.bounds:
            lines += ["", f"| figure ({row.unit}) | median | range | wanted |", "| --- | --- | --- | --- |"]
            for bound in row.bounds:
                found = spread(row.samples[bound.name])
                wanted = "" if bound.at_most is None else f"<= {bound.at_most:g} {_mark(found.median <= bound.at_most)}"
                lines.append(f"| {bound.name} | {_figure(found.median)} | {_range(found)} | {wanted} |")
    return "\n".join(lines)


def document(machine: dict[str, Any], settings: dict[str, Any], rows: list[Row]) -> dict[str, Any]:
    """Return the report for programs: every sample."""
    return {"machine": machine, "settings": settings, "rows": [_row(row) for row in rows]}


def _row(row: Row) -> dict[str, Any]:
    ratios = [{**asdict(pair), **asdict(ratio(row.samples, pair))} for pair in row.pairs]
    return {**asdict(row), "ratios": ratios}


def _speeds(row: Row) -> list[str]:
    assert row.amount is not None
    lines = [f"| reader | {row.unit}, median | range |", "| --- | --- | --- |"]
    for name, seconds in row.samples.items():
        found = spread([row.amount / value for value in seconds])
        lines.append(f"| {name} | {_figure(found.median)} | {_range(found)} |")
    return lines


def _verdict(value: float, target: float | None) -> str:
    return "" if target is None else f">= {target:.3g} {_mark(value >= target)}"


def _mark(reached: bool) -> str:
    return "reached" if reached else "NOT REACHED"


def _range(found: Spread) -> str:
    return f"{_figure(found.low)} - {_figure(found.high)}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
