"""Names of dimensions that belong to an array's format: those of Zarr v3, and of HDF5's dimension scales."""

from __future__ import annotations

from dataclasses import replace

from fsbridge.meaning import Meaning
from fsbridge.meaning.attributes import text
from fsbridge.meaning.convention import Convention, Written


def _array(written: Written, known: Meaning) -> Meaning:
    labels = written.metadata.dimension_names
    if labels is None:
        return known
    axes = zip(known.axes, labels, strict=True)
    return replace(known, axes=tuple(axis._replace(name=axis.name or text(label)) for axis, label in axes))


NAMES = Convention("names of dimensions", _array)
