"""Units of length and time: one name for the many spellings of each, and its value in meters or seconds."""

from __future__ import annotations

from fsbridge.meaning.attributes import text

_LENGTHS = {
    "picometer": (1e-12, "pm picometers picometre picometres"),
    "angstrom": (1e-10, "Å Å A ang angstroms ångström ångstrom"),
    "nanometer": (1e-9, "nm nanometers nanometre nanometres"),
    "micrometer": (1e-6, "um µm μm micron microns micrometers micrometre micrometres"),
    "millimeter": (1e-3, "mm millimeters millimetre millimetres"),
    "centimeter": (1e-2, "cm centimeters centimetre centimetres"),
    "meter": (1.0, "m meters metre metres"),
    "kilometer": (1e3, "km kilometers kilometre kilometres"),
}
_TIMES = {
    "nanosecond": (1e-9, "ns nanoseconds"),
    "microsecond": (1e-6, "us µs μs usec microseconds"),
    "millisecond": (1e-3, "ms msec milliseconds"),
    "second": (1.0, "s sec secs seconds"),
    "minute": (60.0, "min minutes"),
    "hour": (3600.0, "h hr hours"),
}
_FOLDED = {
    word.casefold() if len(word) > 2 else word: name
    for table in (_LENGTHS, _TIMES)
    for name, (_, words) in table.items()
    for word in (name, *words.split())
}
_SYMBOLS = {
    "picometer": "pm", "angstrom": "Å", "nanometer": "nm", "micrometer": "µm", "millimeter": "mm", "centimeter": "cm",
    "meter": "m", "kilometer": "km", "nanosecond": "ns", "microsecond": "µs", "millisecond": "ms", "second": "s",
    "minute": "min", "hour": "h",
}  # fmt: skip


def fold(unit: object) -> str | None:
    """Return a known unit in its one standard spelling, and any other as it is.

    None if it is no text, empty, or unprintable.
    """
    word = (text(unit) or "").strip()
    if not word or not word.isprintable():
        return None
    return _FOLDED.get(word) or (_FOLDED.get(word.casefold()) if len(word) > 2 else None) or word


def meters(unit: str | None) -> float | None:
    """Return the length of one `unit`, as spelled by `fold`, in meters; None if it is no unit of length."""
    return _LENGTHS[unit][0] if unit in _LENGTHS else None


def seconds(unit: str | None) -> float | None:
    """Return the duration of one `unit`, as spelled by `fold`, in seconds; None if it is no unit of time."""
    return _TIMES[unit][0] if unit in _TIMES else None


def symbol(unit: str | None) -> str | None:
    """Return a known unit's usual abbreviation, such as `µm`, and any other unit as it is."""
    return None if unit is None else _SYMBOLS.get(unit, unit)


def convert(value: float, unit: str | None, target: str) -> float | None:
    """Convert `value` from `unit` to `target`; None if the units measure different things."""
    for measure in (meters, seconds):
        own, other = measure(unit), measure(target)
        if own is not None and other is not None:
            return value if unit == target else float(f"{value * (own / other):.15g}")  # 4e-05, not 3.9999999999999996e-05
    return None
