"""NeXus: the group of class `NXdata` around an array says in `axes` which arrays beside have its coordinates.

In older files the array itself has `axes`, as one text, or the arrays beside have the number of their dimension. Not here:
what these coordinates say (`cf.py`), tables of events, geometry of instruments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from fsbridge.meaning import Meaning
from fsbridge.meaning.attributes import single, text
from fsbridge.meaning.convention import Convention, Written
from fsbridge.metadata import JSON

_NONE = "."
"""Stands for a dimension without coordinates."""


def _array(written: Written, known: Meaning) -> Meaning:
    group = written.groups[0] if written.groups else {}
    if single(group.get("NX_class")) != "NXdata":
        return known
    names = _names(written)
    if len(names) != written.rank:
        return known
    said = [None if name == _NONE else text(name) for name in names]
    axes = [axis._replace(name=axis.name or name) for axis, name in zip(known.axes, said, strict=True)]
    return replace(known, axes=tuple(axes))


def _names(written: Written) -> Sequence[JSON]:
    group, own = written.groups[0], text(single(written.attributes.get("axes")))
    if list(written.names[-1:]) == [single(group.get("signal"))] and "axes" in group:
        listed = group["axes"]
        return listed if isinstance(listed, list) else [listed]
    if own is not None:
        return [name.strip() for name in re.split("[:,]", own.strip("[]"))]
    return _by_number(written) if _whole(written.attributes.get("signal")) == 1 else []


def _by_number(written: Written) -> Sequence[JSON]:
    """Return for each dimension the array beside that has its number in the attribute `axis`; 1 is the fastest dimension.

    Of several for one dimension, the one with `primary` 1 counts.
    """
    by_dimension: list[dict[str, bool]] = [{} for _ in range(written.rank)]
    for name in written.members():
        values, attributes = written.coordinate(name) or (None, {})
        number = _whole(attributes.get("axis")) or 0
        if values is None or not 1 <= number <= written.rank:
            continue
        dimension = written.rank - number
        if len(values) - written.metadata.shape[dimension] in (0, 1):  # edges are one more
            by_dimension[dimension][name] = _whole(attributes.get("primary")) == 1
    chosen = [[name for name, is_primary in names.items() if is_primary or len(names) == 1] for names in by_dimension]
    return [names[0] if len(names) == 1 else _NONE for names in chosen]


def _whole(value: JSON) -> int | None:
    """Return a whole number, which may be written as text."""
    value = single(value)
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


NEXUS = Convention("NeXus", _array, particular=frozenset(("signal",)))
