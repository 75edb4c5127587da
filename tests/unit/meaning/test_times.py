"""Dates of times that are counted from a moment, compared with cftime."""

from __future__ import annotations

import random

import cftime
import pytest

from fsbridge.meaning import Axis
from fsbridge.meaning.times import describe_dates, span, times

CALENDARS = ("standard", "gregorian", "proleptic_gregorian", "julian", "noleap", "365_day", "all_leap", "366_day", "360_day")
STARTS = (
    "1850-01-01", "2000-02-28 06:30:00", "2000-02-28 6:30:00 0:00", "0001-01-01", "1582-10-04T12:00",
    "1999-12-30 23:59:59.5", "2000-02-28 01:00 +05:30",
)  # fmt: skip


@pytest.mark.parametrize("calendar", CALENDARS)
@pytest.mark.parametrize("unit", ["days", "hours", "minutes", "seconds"])
def test_dates_are_those_of_cftime(calendar: str, unit: str) -> None:
    numbers = random.Random(f"{calendar} {unit}")
    for start in STARTS:
        since = f"{unit} since {start}"
        counted = times(since, calendar)
        assert counted is not None, since
        for value in [0, 1, 0.5, *(numbers.randrange(0, 800_000) for _ in range(40))]:
            moment = counted.dates(value)
            expected = cftime.num2date(value, since.replace("T", " "), calendar)
            assert moment is not None
            assert moment[:3] == (expected.year, expected.month, expected.day), (since, value)
            passed = ((expected.hour * 60 + expected.minute) * 60 + expected.second) * 1_000_000 + expected.microsecond
            assert abs(moment.passed - passed) <= 1000


def test_a_time_of_day_is_written_where_it_is_not_midnight() -> None:
    def text(value: float) -> str | None:
        counted = times("days since 2000-01-01", None)
        moment = counted and counted.dates(value)
        return moment and moment.text()

    assert [text(value) for value in (0, 0.5, 1.25 / 86400, 59)] == [
        "2000-01-01", "2000-01-01T12:00", "2000-01-01T00:00:01.25", "2000-02-29",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "calendar"),
    [
        ("days", None),
        ("months since 2000-01-01", None),
        ("days since 2000-02-30", None),
        ("days since 2000-02-29", "noleap"),
        ("days since 1582-10-10", None),
        ("days since 2000-01-01 25:00", None),
        ("days since 0000-01-01", None),
        ("days since 2000-01-01", "none"),
        ("days since then", None),
        (None, None),
    ],
)
def test_what_cannot_be_counted_is_not_known(unit: str | None, calendar: str | None) -> None:
    assert times(unit, calendar) is None


def test_an_axis_of_any_length_has_dates_at_once() -> None:
    axis = Axis("t", "days since 2000-01-01", 30.0, 0.0)
    assert span(axis, 10**6, None) == (None, "2000-01-01", "84137-02-16", "every 30 days")
    assert span(axis._replace(calendar="360_day"), 3, None) == ("360_day", "2000-01-01", "2000-03-01", "monthly")
    assert span(axis, 2**40, None) is not None


def test_a_unit_of_dates_is_written_with_its_calendar() -> None:
    assert describe_dates("days since 2000-01-01", "noleap") == "days since 2000-01-01, noleap"
    assert describe_dates("days since 2000-01-01", None) == "days since 2000-01-01"
    assert describe_dates("days", "noleap") is None
