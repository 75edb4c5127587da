"""Alternating rounds (A B C A B C ...), medians, and ratios with their spread. Not here: what is measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Samples = dict[str, list[float]]


@dataclass(frozen=True)
class Contender:
    """Something that is timed: `run` prepares itself untimed and returns seconds."""

    name: str
    run: Callable[[], float]


@dataclass(frozen=True)
class Pair:
    """A ratio to report: how many times faster `ours` is than `theirs`; `target` is the least that is wanted."""

    ours: str
    theirs: str
    target: float | None = None


@dataclass(frozen=True)
class Bound:
    """An absolute figure to report: `at_most` in the unit of the sample."""

    name: str
    at_most: float | None = None


@dataclass
class Row:
    """One row's samples. `amount` units of work per sample (bytes or files); None: the samples are the figures."""

    name: str
    unit: str
    amount: float | None
    samples: Samples
    pairs: Sequence[Pair] = ()
    bounds: Sequence[Bound] = ()
    notes: list[str] = field(default_factory=list)


def alternate(contenders: Sequence[Contender], rounds: int, say: Callable[[str], None]) -> Samples:
    """Seconds of each contender, one sample per round, in the order of the rounds."""
    samples: Samples = {contender.name: [] for contender in contenders}
    for number in range(rounds):
        for contender in contenders:
            say(f"round {number + 1}/{rounds}: {contender.name}")
            samples[contender.name].append(contender.run())
    return samples


@dataclass(frozen=True)
class Spread:
    """Median and range."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Median and range of some figures."""
    return Spread(statistics.median(values), min(values), max(values))


def ratio(samples: Samples, pair: Pair) -> Spread:
    """How many times faster `pair.ours` was, round by round: what both suffered in one round cancels out."""
    both = zip(samples[pair.ours], samples[pair.theirs], strict=True)
    return spread([theirs / ours for ours, theirs in both])
