"""NeXus: the group of class `NXdata` around an array says in `axes` which arrays beside have its coordinates.

In older files the array itself has `axes`, as one text. Not here: what these coordinates say (`cf.py`), tables of events,
geometry of instruments.
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
    return [] if own is None else [name.strip() for name in re.split("[:,]", own.strip("[]"))]


NEXUS = Convention("NeXus", _array, particular=frozenset(("signal",)))
