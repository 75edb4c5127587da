"""NeXus: the group of class `NXdata` around an array says in `axes` which arrays beside have its coordinates.

Not here: what these coordinates say (`cf.py`), tables of events, geometry of instruments.
"""

from __future__ import annotations

from dataclasses import replace

from fsbridge.meaning import Meaning
from fsbridge.meaning.attributes import single, text
from fsbridge.meaning.convention import Convention, Written

_NONE = "."
"""Stands for a dimension without coordinates."""


def _array(written: Written, known: Meaning) -> Meaning:
    group = written.groups[0] if written.groups else {}
    if single(group.get("NX_class")) != "NXdata" or list(written.names[-1:]) != [single(group.get("signal"))]:
        return known
    listed = group.get("axes")
    names = listed if isinstance(listed, list) else [listed]
    if len(names) != written.rank:
        return known
    said = [None if name == _NONE else text(name) for name in names]
    axes = [axis._replace(name=axis.name or name) for axis, name in zip(known.axes, said, strict=True)]
    return replace(known, axes=tuple(axes))


NEXUS = Convention("NeXus", _array, particular=frozenset(("signal",)))
