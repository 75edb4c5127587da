"""NWB: the times of a TimeSeries, packed elements and their unit, times of events, and tables (hdmf's DynamicTable).

Not here: links and references of hdmf, which are not what elements mean (`formats/hdmf`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fsbridge.meaning import Attributes, Axis, Columns, GroupMeaning, Meaning
from fsbridge.meaning.attributes import is_finite, place, text
from fsbridge.meaning.convention import Convention, Written, sensible
from fsbridge.meaning.conventions.cf import along, packing_of, unit_of

TYPE = "neurodata_type"

_INDEX = "_index"
"""Ending of the name of an array that says where the elements of each row of another one end (hdmf's VectorIndex)."""


def _array(written: Written, known: Meaning) -> Meaning:
    values, attributes, dtype = known.values, written.attributes, written.metadata.dtype.numpy
    if values.packing is None and "conversion" in attributes and "unit" in attributes and dtype is not None:
        packing = packing_of(attributes, "conversion", "offset") if dtype.kind in "iuf" else None
        values = replace(values, packing=packing)
    name = written.names[-1] if written.names and written.groups and TYPE in written.groups[0] else ""
    if name == "data" and known.axes and known.axes[0].scale is None:
        known = _time(written, known)
    # In files of hdmf that are no NWB files the attribute is called `data_type`.
    is_coded = attributes.get(TYPE, attributes.get("data_type")) == "EnumData"
    ends, words = known.ends, place(attributes.get("elements")) if is_coded else None
    values = replace(values, words=values.words or ({} if words is None else {(): words}))
    if name.endswith("spike_times") and dtype is not None and dtype.kind == "f" and written.rank == 1:
        beside = written.coordinate(f"{name}{_INDEX}")
        ends = None if beside is None or beside[0] is None else beside[0].astype(np.int64)
        values = replace(values, events=True, unit=values.unit or "s")
    values = replace(values, unit=values.unit or unit_of(attributes.get("unit")))
    return replace(known, values=values, ends=ends, long_name=known.long_name or _describe(written, name))


def _describe(written: Written, name: str) -> str | None:
    """Return the description of an array, or of the series that has it as `data`.

    None if there is none, or only a placeholder.
    """
    holder = written.groups[0] if name == "data" else written.attributes if TYPE in written.attributes else {}
    described = text(holder.get("description"))
    return None if described in ("no description", "") else described


def _time(written: Written, known: Meaning) -> Meaning:
    """Add the times of a series. `starting_time` has the start and the `rate` in Hz; else `timestamps` has all times."""
    start = written.coordinate("starting_time")
    rate = start[1].get("rate") if start is not None else None
    time = Axis("time", "second")
    if start is not None and is_finite(rate) and rate > 0:
        first = float(start[0].flat[0]) if start[0] is not None and start[0].size else 0.0
        return replace(known, axes=sensible((time._replace(scale=1.0 / rate, offset=first), *known.axes[1:])))
    stamps = written.coordinate("timestamps")
    if stamps is None:
        return known
    axis, uneven = along(time, stamps[0], {})
    fits = uneven is not None and len(uneven) == written.metadata.shape[0]
    positions = {**known.positions, 0: uneven} if uneven is not None and fits else known.positions
    coordinates = {**known.coordinates, 0: "timestamps"}
    return replace(known, axes=sensible((axis, *known.axes[1:])), positions=positions, coordinates=coordinates)


def _group(attributes: Attributes, known: GroupMeaning) -> GroupMeaning:
    names = attributes.get("colnames")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return known
    return replace(known, columns=Columns(tuple(names), "id", False))


def index_name(column: str) -> str:
    """Return the name of the array that says where the rows of a column end, if there is one."""
    return f"{column}{_INDEX}"


NWB = Convention("NWB", _array, _group, frozenset((TYPE,)))
