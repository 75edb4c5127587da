"""Which axes of a picture are space, and their spacing in one unit: what the headers of picture formats share."""

from __future__ import annotations

from fsbridge.layouts.files.units import converted, meters, seconds
from fsbridge.metadata import Axes, Axis

TIMES = frozenset({"t", "time", "frame", "frames"})
CHANNELS = frozenset({"c", "ch", "channel", "channels", "band", "bands", "rgb", "s", "sample", "samples"})


def is_time(axis: Axis) -> bool:
    """By its unit, else by its name."""
    return seconds(axis.unit) is not None or (axis.name or "").casefold() in TIMES


def is_channel(axis: Axis) -> bool:
    """By its name."""
    return (axis.name or "").casefold() in CHANNELS


def is_space(axis: Axis) -> bool:
    """Whatever is neither time nor channel: axes without a name too."""
    return not is_time(axis) and not is_channel(axis)


def spacing(axis: Axis, unit: str | None) -> float:
    """The axis' scale in `unit`; as it is where its own unit is not known, 1 without a scale."""
    scale = 1.0 if axis.scale is None else axis.scale
    found = None if unit is None else converted(scale, axis.unit, unit)
    return scale if found is None else found


def offset(axis: Axis, unit: str | None) -> float:
    """The axis' offset, converted as its spacing is."""
    found = None if unit is None else converted(axis.offset, axis.unit, unit)
    return axis.offset if found is None else found


def length_unit(axes: Axes) -> str | None:
    """The unit of length of the first axis of space that has one."""
    return next((axis.unit for axis in axes if is_space(axis) and meters(axis.unit) is not None), None)


def number(value: float) -> str:
    """The shortest decimal text that is the same double, whole numbers without a point."""
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
