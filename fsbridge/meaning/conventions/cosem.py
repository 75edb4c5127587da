"""COSEM: `transform` of an array, or of its entry in `multiscales` of the group above. It lists axes slowest first."""

from __future__ import annotations

from dataclasses import replace

from fsbridge.meaning import Attributes, Axis, Meaning
from fsbridge.meaning.attributes import dicts, numbers, one_each, text
from fsbridge.meaning.convention import Convention, Written, sensible, unknown
from fsbridge.meaning.units import fold
from fsbridge.metadata import JSON


def axis_names(attributes: Attributes) -> JSON:
    """Return the names of axes as they are written, the slowest first."""
    transform = attributes.get("transform")
    return transform.get("axes") if isinstance(transform, dict) else None


def _array(written: Written, known: Meaning) -> Meaning:
    transform, rank = written.attributes.get("transform"), written.rank
    if not unknown(known.axes):
        return known
    if not isinstance(transform, dict) and written.groups and written.names:
        for scales in dicts(written.groups[0], "multiscales"):
            for dataset in dicts(scales, "datasets"):
                if dataset.get("path") == written.names[-1]:
                    transform = dataset.get("transform")
    if not isinstance(transform, dict):
        return known
    scale, offset = numbers(transform.get("scale"), rank), numbers(transform.get("translate"), rank)
    if scale is None:
        return known
    labels, units = one_each(transform.get("axes"), rank), one_each(transform.get("units"), rank)
    axes = tuple(
        Axis(text(label), fold(unit), step, start)
        for label, unit, step, start in zip(labels, units, scale, offset or [0.0] * rank, strict=True)
    )
    return replace(known, axes=sensible(axes[::-1] if written.x_first else axes))


COSEM = Convention("COSEM", _array, particular=frozenset(("multiscales",)))
