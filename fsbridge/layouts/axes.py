"""The axes of an array (name, unit, scale, offset), as OME-NGFF, N5, COSEM, xarray, HDF5 and NWB write them.

Pure functions over attributes. Not here: headers that tell axes to programs (layout `files`), where attributes are stored.
A value that makes no sense is left out: a scale of zero, for example.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fsbridge.layouts.conventions import MAX_ID, in_zarr3
from fsbridge.layouts.json_text import is_finite
from fsbridge.layouts.units import fold, text
from fsbridge.metadata import JSON, ArrayMetadata, Axes, Axis

Attributes = Mapping[str, JSON]

Coordinate = Callable[[str], tuple[NDArray[np.float64] | None, Attributes] | None]
"""Find a 1-D array in the same group by name. Return its values (None: too many to read) and attributes, or None."""


PARTICULAR = frozenset(("multiscales", "ome", "scales", "downsamplingFactors", "neurodata_type", MAX_ID))
"""Attributes of a group that describe its members one by one. All others that describe axes hold for every member."""

LEAST, MOST = 1e-20, 1e20
"""Least and greatest magnitude of a scale or an offset: 32-bit floats can hold these in every unit that a header uses."""

REGULAR_TOLERANCE = 1e-5
"""Largest deviation of a coordinate from regular spacing, as a fraction of the step: float32 coordinates are rounded."""


def axes_of(
    metadata: ArrayMetadata, groups: Sequence[Attributes], names: Sequence[str], x_first: bool, coordinate: Coordinate
) -> Axes:
    """The axes in the array's own order.

    `groups`: attributes of the groups above the array, the nearest first; `names`: the array's path below the last of
    them; `x_first`: true if the source is N5, which writes attributes in its own order.
    """
    rank = len(metadata.shape)
    found = (
        _ome(groups, names, rank, x_first)
        or _cosem(metadata, groups, names, rank, x_first)
        or (_n5(metadata, groups, names, rank) if x_first else None)
        or _sizes(metadata.attributes, rank, x_first)
        or (Axis(),) * rank
    )
    found, labels = tuple(map(_sensible, found)), metadata.dimension_names
    if labels is not None:
        found = tuple(axis._replace(name=axis.name or text(label)) for axis, label in zip(found, labels, strict=True))
    if any(axis.name is not None for axis in found):
        found = tuple(_by_coordinate(axis, n, coordinate) for axis, n in zip(found, metadata.shape, strict=True))
    return tuple(map(_sensible, _nwb(found, groups[0] if groups else {}, names, coordinate)))


def _ome(groups: Sequence[Attributes], names: Sequence[str], rank: int, x_first: bool) -> Axes | None:
    """Return the axes that `multiscales` of a group above describes (OME-NGFF 0.4 to 0.6)."""
    found = _ome_level(groups, names)
    return None if found is None else _ome_axes(*found, rank, x_first)


def first_level(groups: Sequence[Attributes], names: Sequence[str], rank: int) -> Axes | None:
    """Return the axes, in C order, of the first level of the array's OME-NGFF image; None if the array is not a level."""
    found = _ome_level(groups, names)
    if found is None:
        return None
    scales, _ = found
    axes = _ome_axes(scales, next(_dicts(scales, "datasets")), rank, False)
    return None if axes is None else tuple(map(_sensible, axes))


def ome_names(metadata: ArrayMetadata, groups: Sequence[Attributes], names: Sequence[str]) -> tuple[str, ...] | None:
    """Return the `dimension_names` that OME-Zarr 0.5 demands of a level of an image that is converted from 0.4 to 0.5.

    `groups` and `names` as in `axes_of`. None if no such image lists the array, or does not name all of its axes.
    """
    converted = [in_zarr3(attributes, names[:-above]) for above, attributes in enumerate(groups, 1)]
    images = [{} if new == old else new for new, old in zip(converted, groups, strict=True)]
    found = _ome_level(images, names)
    written = None if found is None else found[0].get("axes")
    labels = [text(axis.get("name")) for axis in written if isinstance(axis, dict)] if isinstance(written, list) else []
    named = tuple(label for label in labels if label)
    return named if len(named) == len(labels) == len(metadata.shape) else None


def _ome_level(groups: Sequence[Attributes], names: Sequence[str]) -> tuple[Attributes, Attributes] | None:
    """Return the entry of `multiscales` that lists the array, and the entry of its `datasets` that is the array."""
    for above, attributes in enumerate(groups, 1):
        ome = attributes.get("ome")
        listed = (ome if isinstance(ome, dict) else attributes).get("multiscales")
        path = "/".join(names[-above:])
        for scales in listed if isinstance(listed, list) else ():
            for dataset in _dicts(scales, "datasets"):
                if str(dataset.get("path", "")).strip("/") == path:
                    return scales, dataset
    return None


def _ome_axes(scales: Attributes, dataset: Attributes, rank: int, x_first: bool) -> Axes | None:
    written = _written_axes(scales, dataset)
    named = written if isinstance(written, list) and len(written) == rank else [None] * rank
    if "transform" in dataset and "coordinateTransformations" not in dataset:
        return None  # COSEM's
    factors, offsets, known = _composed(scales, dataset, rank)
    axes = [
        Axis(
            text(axis.get("name")) if isinstance(axis, dict) else text(axis),
            fold(axis.get("unit")) if isinstance(axis, dict) else None,
            factor if known else None,
            offset,
        )
        for axis, factor, offset in zip(named, factors, offsets, strict=True)
    ]
    return tuple(reversed(axes)) if x_first else tuple(axes)


def _written_axes(scales: Attributes, dataset: Attributes) -> JSON:
    """Return the axes of OME-Zarr 0.6: those of the coordinate system that the dataset is transformed to."""
    if "coordinateSystems" not in scales:
        return scales.get("axes")
    outputs = [transform.get("output") for transform in _dicts(dataset, "coordinateTransformations")]
    names = [output.get("name") if isinstance(output, dict) else output for output in outputs]
    systems = [system for system in _dicts(scales, "coordinateSystems") if system.get("name") in names]
    return systems[0].get("axes") if systems else None


def _composed(scales: Attributes, dataset: Attributes, rank: int) -> tuple[list[float], list[float], bool]:
    """Return scale and offset of each axis, and True if a scale is given.

    If any transformation is not a scale, a translation or the identity, all scales are 1, all offsets 0, and the flag False.
    """
    factors, offsets, known = [1.0] * rank, [0.0] * rank, False
    for transform in _transformations(scales, dataset):
        kind = transform.get("type")
        values = _numbers(transform.get(kind), rank) if kind in ("scale", "translation") else None
        if kind == "identity":
            continue
        if values is None:
            return [1.0] * rank, [0.0] * rank, False
        if kind == "scale":
            known = True
            factors = [a * b for a, b in zip(factors, values, strict=True)]
            offsets = [a * b for a, b in zip(offsets, values, strict=True)]
        else:
            offsets = [a + b for a, b in zip(offsets, values, strict=True)]
    return factors, offsets, known


def _transformations(scales: Attributes, dataset: Attributes) -> Iterator[Attributes]:
    """Yield the transformations of a dataset, in the order in which they apply.

    Before version 0.6, those of the whole image follow. In 0.6 they lead to further coordinate systems, and are left out.
    """
    above = () if "coordinateSystems" in scales else _dicts(scales, "coordinateTransformations")
    for transform in (*_dicts(dataset, "coordinateTransformations"), *above):
        if transform.get("type") == "sequence":
            yield from _dicts(transform, "transformations")
        else:
            yield transform


def _cosem(
    metadata: ArrayMetadata, groups: Sequence[Attributes], names: Sequence[str], rank: int, x_first: bool
) -> Axes | None:
    """Return the axes of COSEM's `transform`, which lists them slowest first.

    It is an attribute of the array, or of its entry in the multi-scale group above.
    """
    transform = metadata.attributes.get("transform")
    if not isinstance(transform, dict) and groups and names:
        for scales in _dicts(groups[0], "multiscales"):
            for dataset in _dicts(scales, "datasets"):
                if dataset.get("path") == names[-1]:
                    transform = dataset.get("transform")
    if not isinstance(transform, dict):
        return None
    scale, offset = _numbers(transform.get("scale"), rank), _numbers(transform.get("translate"), rank)
    if scale is None:
        return None
    labels, units = _list(transform.get("axes"), rank), _list(transform.get("units"), rank)
    axes = tuple(
        Axis(text(label), fold(unit), step, start)
        for label, unit, step, start in zip(labels, units, scale, offset or [0.0] * rank, strict=True)
    )
    return axes[::-1] if x_first else axes


def _n5(metadata: ArrayMetadata, groups: Sequence[Attributes], names: Sequence[str], rank: int) -> Axes | None:
    """Return the axes from N5's attributes of the array, or of a group above it, which list x first.

    They are `axes`, `units`, `resolution` (Neuroglancer) and `pixelResolution` (n5-viewer, BigDataViewer). A group's
    resolution is that of the full-size level.
    """
    own = metadata.attributes
    factors = _numbers(own.get("downsamplingFactors"), rank)
    for above, attributes in enumerate((own, *groups)):
        scale, units = _resolution(attributes, rank)
        labels = _list(attributes.get("axes"), rank)
        if scale is None and not any(isinstance(label, str) for label in labels):
            continue
        level = _level(attributes, names[-1] if names else "", rank) if above else None
        reduced = factors or level
        if scale is not None and reduced and not (above == 0 and _of_its_level(scale, reduced, groups)):
            scale = [a * b for a, b in zip(scale, reduced, strict=True)]
        offset = _numbers(attributes.get("offset"), rank) if above == 0 else None
        steps: Sequence[float | None] = [None] * rank if scale is None else scale
        return tuple(
            Axis(text(label), fold(unit), step, start)
            for label, unit, step, start in zip(labels, units, steps, offset or [0.0] * rank, strict=True)
        )
    return None


def _of_its_level(scale: Sequence[float], factors: Sequence[float], groups: Sequence[Attributes]) -> bool:
    """True if a level's own resolution already includes its downsampling factors.

    That is so if it equals the resolution of a group above times the factors.

    If no group above has a resolution, the answer is False: the level's own resolution then counts as that of the full size.
    n5-viewer (`N5SingleScaleMetadata`) does the same, and so does Neuroglancer for an array that is opened by itself.
    """
    full = next((found for above in groups if (found := _resolution(above, len(scale))[0]) is not None), None)
    return full is not None and np.allclose(scale, np.multiply(full, factors), rtol=1e-6, atol=0)


def _resolution(attributes: Attributes, rank: int) -> tuple[list[float] | None, Sequence[JSON]]:
    """Return the scale (None: there is none) and the units that N5's attributes of one group or array give."""
    units = _list(attributes.get("units"), rank)
    scale = _numbers(attributes.get("resolution"), rank)
    if scale is not None:
        return scale, units
    written = attributes.get("pixelResolution")
    if isinstance(written, dict):
        return _numbers(written.get("dimensions"), rank), [written.get("unit")] * rank
    return _numbers(written, rank), ["um"] * rank


def _level(attributes: Attributes, name: str, rank: int) -> list[float] | None:
    """Return the downsampling factors that a group's `scales` or `downsamplingFactors` lists for its level `sN`."""
    if not (name.startswith("s") and name[1:].isascii() and name[1:].isdigit()):
        return None
    for key in ("scales", "downsamplingFactors"):
        levels = attributes.get(key)
        if isinstance(levels, list) and int(name[1:]) < len(levels):
            return _numbers(levels[int(name[1:])], rank)
    return None


def _sizes(attributes: Attributes, rank: int, x_first: bool) -> Axes | None:
    """Return axes from other attributes of sizes; None if there are none.

    They are `element_size_um` (ilastik, BigDataViewer's HDF5), which is slowest first, or else `resolution` and `units`.
    """
    scale = _numbers(attributes.get("element_size_um"), rank)
    if scale is not None:
        axes = tuple(Axis(None, "micrometer", step) for step in scale)
        return axes[::-1] if x_first else axes
    scale = _numbers(attributes.get("resolution"), rank)
    if scale is None:
        return None
    units = _list(attributes.get("units"), rank)
    return tuple(Axis(None, fold(unit), step) for unit, step in zip(units, scale, strict=True))


def _by_coordinate(axis: Axis, length: int, coordinate: Coordinate) -> Axis:
    """Take unit and scale from a 1-D array with the dimension's name (CF); the scale only if it is regularly spaced."""
    if axis.scale is not None or axis.name is None:
        return axis
    found = coordinate(axis.name)
    if found is None or (found[0] is not None and len(found[0]) != length):
        return axis
    values, attributes = found
    spacing = None if values is None else regular(values)
    unit = axis.unit or fold(attributes.get("units") or attributes.get("unit"))
    return axis._replace(unit=unit) if spacing is None else Axis(axis.name, unit, *spacing)


def regular(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return step and first value of coordinates; None if they are not regularly spaced, or are fewer than two."""
    if len(values) < 2 or not np.isfinite(values).all():
        return None
    first, step = float(values[0]), float(values[-1] - values[0]) / (len(values) - 1)
    if not step or not math.isfinite(step):
        return None
    away = np.abs(values - (first + step * np.arange(len(values))))
    rounding = abs(float(np.abs(values).max())) * 2.0**-22  # coordinates may have been rounded to float32
    regular = float(away.max()) <= abs(step) * REGULAR_TOLERANCE + rounding and rounding < abs(step) / 4
    return (step, first) if regular else None


def _nwb(axes: Axes, group: Attributes, names: Sequence[str], coordinate: Coordinate) -> Axes:
    """Return the axes with time as the first one, if the array is `data` of a TimeSeries of NWB.

    `starting_time` beside the array has the start, and the `rate` in Hz as an attribute; or else `timestamps` has all times.
    """
    if not axes or not names or names[-1] != "data" or "neurodata_type" not in group or axes[0].scale is not None:
        return axes
    start = coordinate("starting_time")
    rate = start[1].get("rate") if start is not None else None
    if start is not None and is_finite(rate) and rate > 0:
        first = float(start[0].flat[0]) if start[0] is not None and start[0].size else 0.0
        return (Axis("time", "second", 1.0 / rate, first), *axes[1:])
    stamps = coordinate("timestamps")
    if stamps is None:
        return axes
    spacing = None if stamps[0] is None else regular(stamps[0])
    return (Axis("time", "second", *spacing) if spacing else Axis("time", "second"), *axes[1:])


def _dicts(holder: JSON, name: str) -> Iterator[Attributes]:
    values = holder.get(name) if isinstance(holder, Mapping) else None
    yield from (value for value in values if isinstance(value, dict)) if isinstance(values, list) else ()


def _numbers(value: JSON, rank: int) -> list[float] | None:
    """Return a list of `rank` finite numbers; None for any other value."""
    if not isinstance(value, list) or len(value) != rank or not rank or not all(map(is_finite, value)):
        return None
    return [float(item) for item in value]


def _list(value: JSON, rank: int) -> list[JSON]:
    return value if isinstance(value, list) and len(value) == rank else [None] * rank


def _sensible(axis: Axis) -> Axis:
    """Return the axis without its scale or its offset where that is beyond `LEAST` or `MOST`."""
    scale = axis.scale if axis.scale is not None and LEAST <= abs(axis.scale) <= MOST else None
    return axis._replace(scale=scale, offset=axis.offset if abs(axis.offset) <= MOST else 0.0)
