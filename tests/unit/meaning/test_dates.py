"""Numbers with a unit of dates, compared with cftime, which netCDF's own programs use."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import cftime
import numpy as np
import pytest
from numpy.typing import NDArray

from fsbridge.meaning.dates import dates_of, iso_dates, unit_of_dates

Unit: TypeAlias = Literal["D", "s", "ms", "us", "ns"]
UNITS = [
    "days since 2000-01-01",
    "Days since 1-1-1 00:00:0.0",
    "day since 1850-01-01 00:00:00",
    "hours since 1900-01-01 00:00:0.0",
    "h since 1970-01-01T06:30Z",
    "minutes since 2000-02-29 01:00 +05:30",
    "min since 1999-12-31 23:59:59.5 -03:00",
    "seconds since 1970-01-01T00:00:00Z",
    "s since 1582-10-15",
    "days since 1582-10-04",
    "days since 1500-02-29",
    "milliseconds since 2020-02-29",
    "microseconds since 1970-01-01 00:00:00 UTC",
]
CALENDARS = [None, "standard", "gregorian", "Gregorian", "proleptic_gregorian"]


def spelled(moments: NDArray[np.datetime64[Any]] | None, unit: Unit = "us") -> list[str]:
    assert moments is not None
    return [str(each) for each in np.datetime_as_string(moments, unit=unit)]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("calendar", CALENDARS)
def test_p12_numbers_are_the_dates_that_cftime_makes_of_them(unit: str, calendar: str | None) -> None:
    dates, rule = dates_of(unit, calendar), (calendar or "standard").lower()
    if unit == "days since 1500-02-29" and rule == "proleptic_gregorian":
        assert dates is None, "1500 was no leap year there"
        return
    assert dates is not None
    now = cftime.date2num(cftime.datetime(2024, 2, 29, 12, calendar=rule), unit, rule)
    for numbers in (np.array([now, now - 0.5, now + 1.25, now * 0.9]), np.array([int(now), int(now) + 1])):
        wanted = cftime.num2date(numbers, unit, rule)
        moments = iso_dates(numbers, dates)
        if moments is None:
            assert min(wanted) < cftime.datetime(1582, 10, 15, calendar=rule), "only dates before the switch are refused"
            continue
        for found, date in zip(moments.astype("M8[us]").tolist(), wanted, strict=True):
            away = cftime.datetime(*found.timetuple()[:6], found.microsecond, calendar=rule) - date
            assert abs(away.total_seconds()) < (3e-5 if "1-1-1" in unit else 2e-6), "as precise as a double is"


@pytest.mark.parametrize(
    ("unit", "calendar"),
    [
        ("days since 2000-01-01", "noleap"),
        ("days since 2000-01-01", "360_day"),
        ("days since 2000-01-01", "julian"),
        ("days since 2000-01-01", "a calendar"),
        ("months since 2000-01-01", None),
        ("years since 2000-01-01", None),
        ("common_years since 2000-01-01", "standard"),
        ("days since 2000-02-30", "standard"),
        ("days since 2000-13-01", "standard"),
        ("days since 1582-10-10", "standard"),
        ("days since 0000-01-01", "standard"),
        ("days since -4713-01-01", "standard"),
        ("days since yesterday", None),
        ("days since 2000-01-01 25:00", None),
        ("days since", None),
        ("days", None),
        ("K", None),
        (None, None),
    ],
)
def test_what_no_one_agrees_on_is_no_date(unit: str | None, calendar: str | None) -> None:
    assert dates_of(unit, calendar) is None


def test_dates_that_iso_8601_or_the_calendar_cannot_write_are_none() -> None:
    standard, proleptic = dates_of("days since 2000-01-01", None), dates_of("days since 2000-01-01", "proleptic_gregorian")
    assert standard is not None
    assert proleptic is not None
    before = np.array([-160_000])  # 1561
    assert iso_dates(before, standard) is None
    assert spelled(iso_dates(before, proleptic)) == ["1561-12-08T00:00:00.000000"]
    for number in (-800_000, 3_000_000, 2**62, -(2**62)):
        for kind in ("i8", "f8"):
            assert iso_dates(np.array([number], kind), proleptic) is None
    assert iso_dates(np.array([2**64 - 1], "u8"), proleptic) is None
    assert iso_dates(np.array([1e300]), proleptic) is None


def test_numbers_that_are_none_are_no_dates_and_do_not_matter_to_the_others() -> None:
    dates = dates_of("hours since 2000-01-01", None)
    assert dates is not None
    moments = iso_dates(np.array([np.nan, 1.5, np.inf]), dates)
    assert moments is not None
    assert np.isnat(moments).tolist() == [True, False, True]
    assert spelled(moments[1:2]) == ["2000-01-01T01:30:00.000000"]
    none = iso_dates(np.array([], "i4"), dates)
    assert none is not None
    assert len(none) == 0


@pytest.mark.parametrize(
    ("unit", "number", "wanted", "finest"),
    [
        ("days since 2000-01-01", 1, "2000-01-02", "D"),
        ("hours since 2000-01-01", 1, "2000-01-01T01:00:00", "s"),
        ("ms since 2000-01-01", 1, "2000-01-01T00:00:00.001", "ms"),
        ("us since 2000-01-01", 1, "2000-01-01T00:00:00.000001", "us"),
        ("ns since 2000-01-01", 1, "2000-01-01T00:00:00.000000001", "ns"),
        ("nanoseconds since 2000-01-01", -1, "1999-12-31T23:59:59.999999999", "ns"),
    ],
)
def test_dates_are_written_with_no_more_digits_than_needed(unit: str, number: int, wanted: str, finest: Unit) -> None:
    dates = dates_of(unit, None)
    assert dates is not None
    moments = iso_dates(np.array([number]), dates)
    assert moments is not None
    assert unit_of_dates(moments) == finest
    assert spelled(moments, finest) == [wanted]


def test_dates_are_not_more_precise_than_the_numbers() -> None:
    """Hours in days are no round numbers: 01:00 would be 00:59:59.999997 or the like."""
    dates = dates_of("days since 0001-01-01", "proleptic_gregorian")
    assert dates is not None
    hours = 24 * 730_000 + np.arange(1000)
    moments = iso_dates(hours / 24, dates)
    assert moments is not None
    assert unit_of_dates(moments) == "s"
    np.testing.assert_array_equal(moments, np.datetime64("0001-01-01", "h") + hours)


def test_time_zones_of_one_digit_count_as_in_the_example_of_the_cf_conventions() -> None:
    """cftime takes only two digits, and reads this as if there were no time zone."""
    dates = dates_of("seconds since 1992-10-8 15:15:42.5 -6:00", None)
    assert dates is not None
    assert spelled(iso_dates(np.array([0]), dates)) == ["1992-10-08T21:15:42.500000"]
