"""Times that are counted from a moment, as in `days since 2000-01-01`: their dates in each calendar of climate models.

What such a unit says, and a few dates, in words. Not here: dates of many numbers, as numpy has them (`dates.py`); which
attributes say the unit and the calendar (`conventions/cf.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

from fsbridge.meaning import Axis, Positions

DAY = 86_400_000_000
"""Microseconds of a day."""
_HOUR, _MINUTE, _SECOND = DAY // 24, DAY // 1440, DAY // 86400

_PERIODS = {
    1: "monthly", 12: "yearly",
    DAY: "daily", 7 * DAY: "weekly", _HOUR: "hourly", _MINUTE: "every minute", _SECOND: "every second",
}  # fmt: skip
"""Words for a number of months, or of microseconds."""

UNEVEN = "uneven"

_MOST_DATES = 10_000
"""Most dates that are compared to find out whether they are months apart: 30 ms. An axis may claim any length."""

_NANOSECONDS = {
    name: count
    for count, names in (
        (86_400_000_000_000, "d day days"),
        (3_600_000_000_000, "h hr hrs hour hours"),
        (60_000_000_000, "min mins minute minutes"),
        (1_000_000_000, "s sec secs second seconds"),
        (1_000_000, "ms msec msecs millisec millisecs millisecond milliseconds"),
        (1_000, "us µs μs usec microsec microsecs microsecond microseconds"),
        (1, "ns nanosec nanosecs nanosecond nanoseconds"),
    )
    for name in names.split()
}
"""Nanoseconds of a unit. Years and months are none: their lengths are a matter of opinion."""

_SINCE = re.compile(r"\s*([A-Za-zµμ]+)\s+since\s+(.*?)\s*", re.IGNORECASE | re.DOTALL)
_MOMENT = re.compile(
    r"(\d{1,5})-(\d{1,2})-(\d{1,2})"
    r"(?:(?:\s+|[Tt]\s*)(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?)?"
    r"\s*(?:Z|UTC|GMT|00?(?::?00)?|([+-])(\d{1,2}):?(\d{2})?)?",
    re.ASCII,
)
"""Date, time of day, time zone."""

_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_YEARS = {
    "noleap": _MONTHS, "365_day": _MONTHS, "all_leap": (31, 29, *_MONTHS[2:]), "366_day": (31, 29, *_MONTHS[2:]),
    "360_day": (30,) * 12,
}  # fmt: skip
"""The lengths of months where all years are alike."""

REFORM = 2_299_161
"""The Julian day of 1582-10-15, the first one of the Gregorian calendar."""

_EARLIEST = 1
"""The first year of calendars whose earlier years are counted in several ways."""


class Moment(NamedTuple):
    """A date, and the microseconds that have passed of its day."""

    year: int
    month: int
    day: int
    passed: int

    def text(self) -> str:
        """Return the moment as ISO 8601 spells it; at midnight only the date."""
        date = f"{self.year:04d}-{self.month:02d}-{self.day:02d}"
        minutes, left = divmod(self.passed, 60_000_000)
        if not self.passed:
            return date
        tail = f":{left / 1e6:09.6f}".rstrip("0").rstrip(".") if left % 1_000_000 else f":{left // 1_000_000:02d}"
        return f"{date}T{minutes // 60:02d}:{minutes % 60:02d}{tail if left else ''}"


Dates: TypeAlias = Callable[[float], Moment | None]
"""Returns the moment that a number stands for; None for one before the calendar begins."""


class Times(NamedTuple):
    """How numbers with a unit count time. `length`: the microseconds of one unit."""

    length: float
    dates: Dates


class Count(NamedTuple):
    """What is counted, and from when. `step`: the nanoseconds of 1.

    `first`: the microseconds from the calendar's day 0 to the moment that the number 0 stands for.
    """

    step: int
    first: int
    calendar: _System


def is_since(unit: str | None) -> bool:
    """True if a unit counts from a date."""
    return unit is not None and _SINCE.fullmatch(unit) is not None


def describe_dates(unit: str | None, calendar: str | None) -> str | None:
    """Return a unit that counts from a date, with its calendar, for people; None for any other unit."""
    return None if unit is None or not is_since(unit) else f"{unit}, {calendar}" if calendar else unit


def parse_count(unit: str | None, calendar: str | None) -> Count | None:
    """Return what a unit such as `days since 2000-01-01` counts; None if it does not count from a known moment.

    `calendar`: None for the standard one. Months and years have no fixed length, so the result is None for them.
    """
    match = None if unit is None else _SINCE.fullmatch(unit)
    moment = None if match is None else _MOMENT.fullmatch(match[2])
    system = _System.of((calendar or "standard").casefold())
    if match is None or moment is None or system is None:
        return None
    step = _NANOSECONDS.get(match[1].casefold())
    year, month, day = map(int, moment.group(1, 2, 3))
    start = system.number(year, month, day)
    hour, minute, second = (int(part or 0) for part in moment.group(4, 5, 6))
    if step is None or start is None or hour > 24 or minute > 59 or second > 60:
        return None
    away = (int(moment[9] or 0) * 60 + int(moment[10] or 0)) * (-1 if moment[8] == "-" else 1)
    passed = ((hour * 60 + minute - away) * 60 + second) * 1_000_000 + int((moment[7] or "").ljust(6, "0")[:6])
    return Count(step, start * DAY + passed, system)


def times(unit: str | None, calendar: str | None) -> Times | None:
    """Return how numbers with this unit count time; None if `parse_count` returns None."""
    count = parse_count(unit, calendar)
    if count is None:
        return None
    length = count.step / 1000

    def date(value: float) -> Moment | None:
        number, rest = divmod(count.first + round(value * length / 1000) * 1000, DAY)
        day = count.calendar.date(number)
        return None if day is None else Moment(*day, rest)

    return Times(length, date)


class DateSpan(NamedTuple):
    """The dates along an axis in words: the first, the last, and how often there is one; None if there is only one.

    `calendar`: the one that the axis names, if any.
    """

    calendar: str | None
    first: str
    last: str
    every: str | None


def span(axis: Axis, length: int, positions: Positions | None) -> DateSpan | None:
    """Return the dates along an axis with `length` elements; None if the unit counts from no date, or an end is no date.

    `positions`: where the elements lie, if they are uneven.
    """
    counted = times(axis.unit, axis.calendar)
    if counted is None or not length or (axis.scale is None and positions is None):
        return None
    ends = (
        [axis.offset, axis.offset + (axis.scale or 0) * (length - 1)] if positions is None else positions[[0, -1]].tolist()
    )
    first, last = (counted.dates(end) if math.isfinite(end) else None for end in ends)
    if first is None or last is None:
        return None
    every = _period(axis, length, positions, counted) if length > 1 else None
    return DateSpan(axis.calendar, first.text(), last.text(), every)


def _period(axis: Axis, length: int, positions: Positions | None, counted: Times) -> str:
    """Return in words how often there is a date."""
    import numpy as np

    step = None if axis.scale is None or positions is not None else round(abs(axis.scale) * counted.length / 1000) * 1000
    if length <= _MOST_DATES and (step is None or step >= 28 * DAY):
        ordered = axis.offset + np.arange(length) * (axis.scale or 0) if positions is None else positions
        months = _months(ordered.tolist(), counted.dates)
        if months:
            return _PERIODS.get(months, f"every {months} months")
    if step is None:
        return UNEVEN
    if step in _PERIODS:
        return _PERIODS[step]
    sizes = ((DAY, "days"), (_HOUR, "hours"), (_MINUTE, "minutes"))
    size, word = next(((size, word) for size, word in sizes if step >= size), (_SECOND, "s"))
    return f"every {step / size:.7g} {word}"


def _months(values: Sequence[float], dates: Dates) -> int:
    """Return the number of months from each date to the next; 0 if it is not always the same number."""
    moments = [dates(value) if math.isfinite(value) else None for value in values]
    counts = [moment.year * 12 + moment.month for moment in moments if moment is not None]
    steps = {abs(later - sooner) for sooner, later in pairwise(counts)}
    return steps.pop() if len(steps) == 1 and len(counts) == len(values) else 0


class _System(NamedTuple):
    """A calendar: functions that convert a date to a number, and a number to a date; None if there is no such date."""

    number: Callable[[int, int, int], int | None]
    date: Callable[[int], tuple[int, int, int] | None]

    @classmethod
    def of(cls, name: str) -> _System | None:
        if name in _YEARS:
            return _alike(_YEARS[name])
        if name not in ("standard", "gregorian", "proleptic_gregorian", "julian"):
            return None
        reform = {"proleptic_gregorian": 0, "julian": None}.get(name, REFORM)

        def number(year: int, month: int, day: int) -> int | None:
            gregorian, julian = _julian_day(year, month, day, True), _julian_day(year, month, day, False)
            day_number = julian if reform is None or gregorian < reform else gregorian
            return day_number if year >= _EARLIEST and date(day_number) == (year, month, day) else None

        def date(number: int) -> tuple[int, int, int] | None:
            day = _of_julian_day(number, reform is not None and number >= reform)
            return day if day[0] >= _EARLIEST else None

        return cls(number, date)


def _alike(months: tuple[int, ...]) -> _System:
    before, year_days = list(accumulate(months, initial=0)), sum(months)

    def number(year: int, month: int, day: int) -> int | None:
        there = 1 <= month <= 12 and 1 <= day <= months[month - 1]
        return year * year_days + before[month - 1] + day - 1 if there else None

    def date(number: int) -> tuple[int, int, int] | None:
        year, rest = divmod(number, year_days)
        month = next(month for month in range(1, 13) if rest < before[month])
        return (year, month, rest - before[month - 1] + 1) if year >= 0 else None

    return _System(number, date)


def _julian_day(year: int, month: int, day: int, gregorian: bool) -> int:
    """Return the Julian day of a date at noon (Richards 2013)."""
    late = (14 - month) // 12
    years, months = year + 4800 - late, month + 12 * late - 3
    days = day + (153 * months + 2) // 5 + 365 * years + years // 4
    return days - years // 100 + years // 400 - 32045 if gregorian else days - 32083


def _of_julian_day(number: int, gregorian: bool) -> tuple[int, int, int]:
    """Return year, month and day of a Julian day (Richards 2013)."""
    f = number + 1401 + ((4 * number + 274277) // 146097 * 3 // 4 - 38 if gregorian else 0)
    e = 4 * f + 3
    h = 5 * (e % 1461 // 4) + 2
    month = (h // 153 + 2) % 12 + 1
    return e // 1461 - 4716 + (14 - month) // 12, month, h % 153 // 5 + 1
