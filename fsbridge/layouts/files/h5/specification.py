"""What the skeleton of a virtual HDF5 file is to hold: types, attributes, dimension labels and scales, links. JSON, no I/O.

Not here: how it is written (`writer.py`), where its elements come from (`twin.py`).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.h5.dimensions import Labelled
from fsbridge.layouts.files.h5.writing import Batch
from fsbridge.meaning import Axis
from fsbridge.meaning.conventions import anndata, hdf5, nwb
from fsbridge.meaning.conventions.cf import typed
from fsbridge.metadata import JSON
from fsbridge.tree import escape

BATCH_OBJECTS = 200
"""Objects from which on a batch is sent."""


class Specification:
    """The writer's input: objects in the order of their making, each `{"kind", "path", ...}`, the root first."""

    def __init__(self, send: Callable[[Batch], None]) -> None:
        """`send` gets batches of objects."""
        self._send = send
        self._objects: list[dict[str, JSON]] = []
        self._left_out: dict[str, JSON] = {}
        self.count = 0

    def add(self, kind: str, path: str, **described: JSON) -> int:
        """Add an object and return its number."""
        if len(self._objects) >= BATCH_OBJECTS:
            self._send(self.rest())
        self._objects.append({"kind": kind, "path": path, **described})
        self.count += 1
        return self.count - 1

    def leave_out(self, group: str, reasons: Sequence[str]) -> None:
        """Name what a group lacks, and why."""
        self._left_out[group] = list(reasons)

    def rest(self) -> Batch:
        """Return and forget the objects that have not been sent to the writer yet."""
        batch, self._objects = self._objects, []
        return batch

    def end(self, made: Sequence[Sequence[str]], attached: Sequence[Sequence[JSON]]) -> dict[str, JSON]:
        """Return the last request: what the file lacks, which datasets are dimension scales, and for which others."""
        scales: dict[str, JSON] = {"made": [list(item) for item in made], "attached": [list(item) for item in attached]}
        return {"left_out": self._left_out, "scales": scales}


@dataclass(frozen=True, slots=True)
class Stored:
    """How HDF5 shows an array: `dtype` as the writer takes it, `order` of the array's dimensions, slowest first.

    `items`: its elements are written into the skeleton, because they have no fixed size or HDF5 no such type.
    """

    dtype: JSON
    order: tuple[int, ...]
    items: bool = False


def stored(view: View) -> Stored:
    """Return how HDF5 shows a view: an array with its first axis fastest (N5) has reversed axes, without any copying."""
    order = view.natural if view.x_first else tuple(range(len(view.shape)))
    kind = view.metadata.dtype
    if kind.serializer != "bytes":
        return Stored("text" if kind.serializer == "vlen-utf8" else "bytes", order, True)
    if view.stored_dtype is None:
        return Stored(f"|V{kind.itemsize}", order)
    if view.stored_dtype.kind == "U":
        return Stored("text", order, True)
    return Stored(spell(view.stored_dtype), order)


def spell(dtype: np.dtype[Any]) -> JSON:
    """A dtype as JSON; dates become integers, and text of fixed length within compounds opaque: HDF5 has neither."""
    if dtype.subdtype is not None:
        return [spell(dtype.subdtype[0]), list(dtype.subdtype[1])]
    if dtype.names is not None and dtype.fields is not None:
        return {
            "names": list(dtype.names),
            "formats": [spell(dtype.fields[name][0]) for name in dtype.names],
            "offsets": [int(dtype.fields[name][1]) for name in dtype.names],
            "itemsize": dtype.itemsize,
        }
    if dtype.kind in "mM":
        return f"{'>' if dtype.byteorder == '>' else '<'}i8"
    return f"|V{dtype.itemsize}" if dtype.kind == "U" else dtype.str


def dataset(view: View, path: str) -> dict[str, JSON]:
    """Describe the dataset that shows an array."""
    shown, said = stored(view), attributes(view)
    described: dict[str, JSON] = {
        "kind": "dataset",
        "path": path,
        "shape": [view.shape[i] for i in shown.order],
        "dtype": shown.dtype,
        "attributes": said,
        "typed": typed(said, view.packing is not None),
        "characters": (is_labelled(view) or not view.shape) and characters(view.attributes),  # scalars: grid mappings
        "labels": _labels(view, shown.order),
        "bytes": 0 if shown.items else view.selection.size * view.metadata.dtype.itemsize,
    }
    fill = view.metadata.fill
    if isinstance(fill, bytes) and view.stored_dtype is not None and not shown.items and hdf5.is_marker(view.metadata):
        described["fill"] = base64.b64encode(fill).decode()
    return described


def items_of(view: View, items: NDArray[Any]) -> list[str]:
    """Return the elements that are part of the skeleton, as JSON, from an array in HDF5's order."""
    return [_item(value, stored(view).dtype) for value in items.reshape(-1).tolist()]


def _labels(view: View, order: tuple[int, ...]) -> list[JSON]:
    """Return the dimension labels of an HDF5 file's array. Other arrays need none, because their scales have names."""
    if "hdf5" not in view.metadata.native:
        return []
    labels = _scales(view).get("DIMENSION_LABELS")
    return labels if isinstance(labels, list) and len(labels) == len(order) else []


def _item(value: Any, dtype: JSON) -> str:
    if dtype == "bytes":
        return base64.b64encode(value).decode()
    return value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")


def attributes(view: View) -> dict[str, JSON]:
    """Return the array's attributes, with more for facts that HDF5 has no place for: missing value, sizes, type of dates."""
    return hdf5.attributes(view.metadata, [view.axes[i] for i in stored(view).order])


def component(name: str) -> str:
    """Return a member's name as HDF5 can have it: it is escaped if it is `.` or `..`, or holds `/` or a zero character."""
    return escape(name).decode("utf-8", "replace") if name in ("", ".", "..") or "/" in name or "\0" in name else name


def absolute(names: Sequence[str], target: str, root: Sequence[str]) -> str:
    """Convert a link's target, relative to the group at `names`, to a path in the file of the group at `root`."""
    here = list(names)
    for part in target.split("/"):
        here = here[:-1] if part == ".." else here if part in (".", "") else [*here, part]
    inside = here[len(root) :] if here[: len(root)] == list(root) else here
    return "/" + "/".join(component(part) for part in inside)


def labelled(view: View, name: str) -> Labelled | None:
    """Return what dimension scales need to know about the dataset `name`; None if it needs no scales and can be none.

    An array with a scale for each dimension in its HDF5 file gets one for each, as arrays of other formats do: some of the
    original scales may be netCDF dimensions without a variable, which are no arrays.
    """
    order, own, final = stored(view).order, _scales(view), False
    scale = str(own.get("NAME") or name) if own.get("CLASS") == "DIMENSION_SCALE" else None
    axes: tuple[Axis, ...] | None
    if "hdf5" in view.metadata.native:
        names = view.metadata.dimension_names
        axes = None if names is None else tuple(Axis(names[i]) for i in order)
        final = names is None or None in names or "DIMENSION_LIST" not in own
    else:
        axes = tuple(view.axes[i] for i in order) if is_labelled(view) else None
    if axes is None and scale is None and len(view.shape) != 1:
        return None
    return Labelled(tuple(view.shape[i] for i in order), axes, scale, final)


def is_labelled(view: View) -> bool:
    """True if a dimension of the array has a name."""
    return any(axis.name is not None for axis in view.axes)


def characters(attributes: Mapping[str, JSON]) -> bool:
    """True if texts are written with a fixed length, as netCDF does and its readers want it.

    Readers of AnnData and NWB, which go by h5py, want texts of variable length.
    """
    return (anndata.MARKS | nwb.MARKS).isdisjoint(attributes)


def _scales(view: View) -> Mapping[str, JSON]:
    native = view.metadata.native.get("hdf5")
    found = native.get("scales") if isinstance(native, dict) else None
    return found if isinstance(found, dict) else {}
