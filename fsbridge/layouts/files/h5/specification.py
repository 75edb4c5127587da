"""What the skeleton of a virtual HDF5 file is to hold: types, attributes, dimension labels and scales, links. JSON, no I/O.

Not here: how it is written (`writer.py`), where its elements come from (`twin.py`).
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.h5.dimensions import Labelled, Scales
from fsbridge.layouts.files.h5.writing import Batch
from fsbridge.meaning import Axis
from fsbridge.meaning.conventions import hdf5
from fsbridge.meaning.conventions import netcdf as netcdf_names
from fsbridge.meaning.conventions.cf import typed
from fsbridge.metadata import JSON
from fsbridge.tree import escape

log = logging.getLogger(__name__)


class Specification:
    """The requests to the writer of a file: objects in the order in which they are made, the root first.

    Each is `{"kind", "path", ...}`.
    """

    def __init__(self, send: Callable[[Batch], None]) -> None:
        """`send` is called with each full batch of objects."""
        self._send = send
        self._objects: list[dict[str, JSON]] = []
        self._left_out: dict[str, JSON] = {}
        self.count = 0

    def add(self, kind: str, path: str, **described: JSON) -> int:
        """Add an object and return its number, counted from 0."""
        if len(self._objects) >= 200:  # few requests, and the writer is busy while others are described
            self._send(self.take_rest())
        self._objects.append({"kind": kind, "path": path, **described})
        self.count += 1
        return self.count - 1

    def leave_out(self, group: str, reasons: Sequence[str]) -> None:
        """Note which members a group lacks in the file, and why."""
        self._left_out[group] = list(reasons)

    def take_rest(self) -> Batch:
        """Return and forget the objects that have not been sent to the writer yet."""
        batch, self._objects = self._objects, []
        return batch

    def make_end(self, scales: Scales) -> dict[str, JSON]:
        """Return the last request: what the file lacks, and which datasets are scales of which dimensions."""
        said: dict[str, JSON] = {"made": scales.made, "attached": scales.attached, "notes": scales.notes}
        return {"left_out": self._left_out, "scales": said}


@dataclass(frozen=True, slots=True)
class Stored:
    """How HDF5 stores an array. `dtype`: as the writer takes it; `order`: the array's dimensions, slowest first.

    `items`: the elements lie in the skeleton, because they have no fixed size, or HDF5 has no such type.
    """

    dtype: JSON
    order: tuple[int, ...]
    items: bool = False


def choose_storage(view: View) -> Stored:
    """Choose how HDF5 stores a view.

    If its first axis is the fastest (N5), the axes are reversed: so no element has to move.
    """
    order = view.natural if view.x_first else tuple(range(len(view.shape)))
    kind = view.metadata.dtype
    if kind.serializer != "bytes":
        return Stored("text" if kind.serializer == "vlen-utf8" else "bytes", order, True)
    if view.stored_dtype is None:
        return Stored(f"|V{kind.itemsize}", order)
    if view.stored_dtype.kind == "U":
        return Stored("text", order, True)
    return Stored(spell_dtype(view.stored_dtype), order)


def spell_dtype(dtype: np.dtype[Any], netcdf: bool = False) -> JSON:
    """Return a dtype as JSON. HDF5 has no dates, which become integers, nor text in compounds, which becomes opaque bytes.

    `netcdf`: bytes become letters, and truth values become numbers.
    """
    if netcdf and dtype.kind == "S" and dtype.itemsize > 1:
        return ["|S1", [dtype.itemsize]]
    if netcdf and dtype.kind == "b":
        return "|i1"
    if dtype.subdtype is not None:
        return [spell_dtype(dtype.subdtype[0], netcdf), list(dtype.subdtype[1])]
    if dtype.names is not None and dtype.fields is not None:
        return {
            "names": list(dtype.names),
            "formats": [spell_dtype(dtype.fields[name][0], netcdf) for name in dtype.names],
            "offsets": [int(dtype.fields[name][1]) for name in dtype.names],
            "itemsize": dtype.itemsize,
        }
    if dtype.kind in "mM":
        return f"{'>' if dtype.byteorder == '>' else '<'}i8"
    return f"|V{dtype.itemsize}" if dtype.kind == "U" else dtype.str


def describe_dataset(view: View, path: str, netcdf: bool = False) -> dict[str, JSON]:
    """Describe the dataset that shows an array. `netcdf`: as netCDF-4's own writer would write it."""
    shown, said = (
        choose_storage(view),
        hdf5.attributes(view.metadata, [view.axes[i] for i in choose_storage(view).order], netcdf),
    )
    letters = _count_letters(view) if netcdf else 0
    dtype = choose_element_type(view, netcdf)
    if netcdf and view.stored_dtype is not None and not shown.items:
        shown = replace(shown, dtype=spell_dtype(dtype, netcdf))
    described: dict[str, JSON] = {
        "kind": "dataset",
        "path": path,
        "shape": [*(view.shape[i] for i in shown.order), *([letters] if letters else [])],
        "dtype": "|S1" if letters else shown.dtype,
        "attributes": keep_netcdf_attributes(said) if netcdf else said,
        "typed": typed(said, view.packing is not None),
        "netcdf": netcdf,
        "labels": [] if netcdf else _find_labels(view, shown.order),
        "bytes": 0 if shown.items else view.selection.size * dtype.itemsize,
    }
    fill = None if shown.items else hdf5.fill_in_netcdf(dtype, said) if netcdf else _find_fill(view)
    if fill is not None:
        described["fill"] = base64.b64encode(fill).decode()
    return described


def choose_element_type(view: View, netcdf: bool) -> np.dtype[Any]:
    """Return the type of elements outside the skeleton.

    Half precision becomes single for netCDF, because its readers crash on it.
    """
    dtype = view.stored_dtype or np.dtype((np.void, view.metadata.dtype.itemsize))
    return np.dtype("f4").newbyteorder(dtype.byteorder) if netcdf and dtype.kind == "f" and dtype.itemsize == 2 else dtype


def _find_fill(view: View) -> bytes | None:
    """Return one element that HDF5 gets as the fill value; None if it gets none."""
    fill = view.metadata.fill
    return fill if isinstance(fill, bytes) and view.stored_dtype is not None and hdf5.is_marker(view.metadata) else None


def _count_letters(view: View) -> int:
    """Return the letters of a text of fixed length, for which netCDF needs one more dimension; 0 if it needs none."""
    dtype = view.stored_dtype
    if (
        dtype is None
        or dtype.kind != "S"
        or choose_storage(view).items
        or (dtype.itemsize == 1 and "hdf5" in view.metadata.native)
    ):
        return 0  # letters of an HDF5 file have their dimension already
    return dtype.itemsize


def keep_netcdf_attributes(attributes: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the attributes with names that netCDF allows. The log names the others."""
    return {name: value for name, value in attributes.items() if _has_attribute(name)}


@lru_cache(1024)
def _has_attribute(name: str) -> bool:
    """True if netCDF allows an attribute called `name`. If not, the log says why, once for all arrays."""
    reason = netcdf_names.refusal(name)
    if reason is not None:
        log.warning("the attribute %.80r is left out of netCDF files: %s", name, reason)
    return reason is None


def spell_items(view: View, items: NDArray[Any]) -> list[str]:
    """Return elements that lie in the skeleton as texts for the writer's JSON. `items`: the elements in HDF5's order."""
    return [_spell_item(value, choose_storage(view).dtype) for value in items.reshape(-1).tolist()]


def _find_labels(view: View, order: tuple[int, ...]) -> list[JSON]:
    """Return the dimension labels that an array has in its HDF5 file.

    Other arrays need none, because their scales have names.
    """
    if "hdf5" not in view.metadata.native:
        return []
    labels = _find_scales(view).get("DIMENSION_LABELS")
    return labels if isinstance(labels, list) and len(labels) == len(order) else []


def _spell_item(value: Any, dtype: JSON) -> str:
    if dtype == "bytes":
        return base64.b64encode(value).decode()
    return value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")


def escape_name(name: str) -> str:
    """Return a member's name as HDF5 can have it.

    An empty one, `.`, `..`, and names with `/` or zero characters are escaped.
    """
    return escape(name).decode("utf-8", "replace") if name in ("", ".", "..") or "/" in name or "\0" in name else name


def make_absolute(names: Sequence[str], target: str, root: Sequence[str]) -> str:
    """Convert a link's target, relative to the group at `names`, to a path in the file of the group at `root`."""
    here = list(names)
    for part in target.split("/"):
        here = here[:-1] if part == ".." else here if part in (".", "") else [*here, part]
    inside = here[len(root) :] if here[: len(root)] == list(root) else here
    return "/" + "/".join(escape_name(part) for part in inside)


def describe_labelled(view: View, name: str, netcdf: bool = False) -> Labelled | None:
    """Return what dimension scales need to know about the dataset `name`; None if it needs no scales and cannot be one.

    `netcdf`: texts of a fixed length have a dimension more.

    An array with a scale for each dimension in its HDF5 file gets new ones, as arrays of other formats do: some of the
    original scales may be netCDF dimensions without a variable, and such a scale is no array.
    """
    order, own, final = choose_storage(view).order, _find_scales(view), False
    scale = str(own.get("NAME") or name) if own.get("CLASS") == "DIMENSION_SCALE" else None
    axes: tuple[Axis, ...] | None
    if "hdf5" in view.metadata.native:
        every = view.metadata.dimension_names
        names = None if every is None else [every[i] for i in view.selection.kept]
        axes = None if names is None else tuple(Axis(names[i]) for i in order)
        final = names is None or None in names or "DIMENSION_LIST" not in own
    else:
        axes = tuple(view.axes[i] for i in order) if is_labelled(view) else None
    shape = tuple(view.shape[i] for i in order)
    if netcdf and (letters := _count_letters(view)) and (axes is not None or not shape):
        shape, axes, scale = (*shape, letters), (*(axes or ()), Axis(netcdf_names.characters_name(letters))), None
    if axes is None and scale is None and len(shape) != 1:
        return None
    return Labelled(shape, axes, scale, final)


def is_labelled(view: View) -> bool:
    """True if a dimension of the array has a name."""
    return any(axis.name is not None for axis in view.axes)


def _find_scales(view: View) -> Mapping[str, JSON]:
    native = view.metadata.native.get("hdf5")
    scales = native.get("scales") if isinstance(native, dict) else None
    return scales if isinstance(scales, dict) else {}
