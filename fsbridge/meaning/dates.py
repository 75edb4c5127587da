"""Numbers that are dates, by a unit such as "days since 2000-01-01" and a calendar (CF conventions, 4.4), as ISO 8601.

Pure. Not here: what a unit and a calendar say (`times.py`), which arrays have such a unit (`conventions/cf.py`), numpy's own
dates, which need no unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fsbridge.meaning.times import DAY, REFORM, parse_count

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_EPOCH = 2_440_588
"""The Julian day of 1970-01-01."""
_NONE = -(2**63)
"""What xarray writes for a date that is missing, without saying so."""

_YEARS = -62_135_596_800_000_000, 253_402_300_800_000_000
"""Microseconds from 1970 to the beginning of the year 1 and to the end of the year 9999, which ISO 8601 can write."""


class Dates(NamedTuple):
    """How numbers of one unit become dates. `step`: the nanoseconds of 1; `first`: the microseconds from 1970 to 0."""

    step: int
    first: int
    least: int
    """Microseconds from 1970 to the first date that ISO 8601 can write in this calendar."""


def dates_of(unit: str | None, calendar: str | None) -> Dates | None:
    """Return how numbers become dates; None if the unit is no unit of dates, or if ISO 8601 lacks dates of the calendar."""
    count, name = parse_count(unit, calendar), (calendar or "standard").casefold()
    if count is None or name not in ("standard", "gregorian", "proleptic_gregorian"):
        return None
    least = _YEARS[0] if name == "proleptic_gregorian" else (REFORM - _EPOCH) * DAY
    return Dates(count.step, count.first - _EPOCH * DAY, least)


def iso_dates(numbers: NDArray[Any], dates: Dates) -> NDArray[np.datetime64[Any]] | None:
    """Convert numbers to dates, and those that are not finite to NaT; None if ISO 8601 cannot write one of them.

    Real numbers are rounded to microseconds, or to seconds or milliseconds if they are too imprecise for these.
    """
    import numpy as np

    if numbers.dtype.kind == "f":
        known = np.isfinite(numbers)
        with np.errstate(over="ignore", invalid="ignore"):
            away = np.rint(np.where(known, numbers, 0).astype(np.float64) * (dates.step / 1000))
        micro = np.where(np.abs(away) < 2.0**62, away, 2.0**62).astype(np.int64)
        parts = None
    elif numbers.dtype.kind in "iu":
        known = numbers != _NONE if numbers.dtype == np.int64 else np.ones(numbers.shape, np.bool_)
        numbers = np.where(known, numbers, np.zeros((), numbers.dtype))
        most = 2**62 // max(1, dates.step // 1000)
        if numbers.size and (int(numbers.max()) > most or int(numbers.min()) < -most):
            return None
        whole = numbers.astype(np.int64)
        micro, parts = (whole // 1000, whole % 1000) if dates.step < 1000 else (whole * (dates.step // 1000), None)
    else:
        return None
    if micro.size and (int(micro.max()) > 2**62 or int(micro.min()) < -(2**62)):
        return None
    micro = micro + dates.first
    if numbers.dtype.kind == "f" and known.any():
        micro[known] = _round(micro[known], 2 * float(np.spacing(np.abs(numbers[known]).max())) * dates.step / 1000)
    if ((micro < dates.least) | (micro >= _YEARS[1]))[known].any():
        return None
    moments = micro.astype("M8[us]")
    if parts is not None and parts.any():
        moments = moments.astype("M8[ns]") + parts.astype("m8[ns]")
        if (np.abs(micro) > 2**63 // 1000).any():
            return None
    return np.where(known, moments, np.array("NaT", moments.dtype))


def _round(micro: NDArray[np.int64], precision: float) -> NDArray[np.int64]:
    """Round times to whole seconds, else to whole milliseconds, if that changes none by more than the numbers' precision."""
    import numpy as np

    for unit in (1_000_000, 1000):
        whole = (micro + unit // 2) // unit * unit
        if np.abs(whole - micro).max() <= precision:
            return whole
    return micro


def spell_dates(moments: NDArray[np.datetime64[Any]], unit: str) -> list[str]:
    """Return dates as text, rounded to `unit`, which `unit_of_dates` returned; an empty text for NaT."""
    import numpy as np

    rounded = moments + np.timedelta64(_HALVES.get(unit, 0), "us").astype(f"m8[{np.datetime_data(moments.dtype)[0]}]")
    texts = np.datetime_as_string(rounded, unit=unit, casting="unsafe")  # type: ignore[call-overload]
    return ["" if missing else str(text) for text, missing in zip(texts, np.isnat(moments).tolist(), strict=True)]


_HALVES = {"D": DAY // 2, "s": 500_000, "ms": 500}
"""Half of a unit in microseconds."""


def unit_of_dates(moments: NDArray[np.datetime64[Any]]) -> str:
    """Return the coarsest unit, by numpy's name, in which dates can be written: "D" if all are at midnight."""
    import numpy as np

    known = moments[~np.isnat(moments)]
    return next((unit for unit in ("D", "s", "ms", "us") if (known.astype(f"M8[{unit}]") == known).all()), "ns")
