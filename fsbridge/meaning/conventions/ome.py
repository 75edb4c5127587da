"""OME-NGFF, versions 0.1 to 0.6: `multiscales`, `omero`, `image-label`, `plate` and `well`, also inside of `ome`.

Not here: how 0.4 and 0.5 become each other (`ome_versions.py`), COSEM's `transform` in the same lists (`cosem.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from fsbridge.meaning import (
    Acquisition,
    Affine,
    Attributes,
    Axes,
    Axis,
    Channel,
    Field,
    GroupMeaning,
    Image,
    Kind,
    Meaning,
    Orientation,
    Path,
    Plate,
    Well,
)
from fsbridge.meaning.attributes import dicts, is_finite, text
from fsbridge.meaning.convention import Convention, Written, sensible, sensible_affine
from fsbridge.meaning.conventions.ome_transformations import Matrix, compose, is_scaled
from fsbridge.meaning.units import fold
from fsbridge.metadata import JSON

MOST_SIDE = 64
"""Most rows, and most columns, of a plate. A plate of 1,536 wells has 32 by 48."""

_MOST_LEVELS = 64
"""Most levels of an image. This is more than enough, because each level halves the one before."""

_MOST_COLORS = 65536
"""Most colours of objects that are read."""

_KINDS: Mapping[str, Kind] = {"space": "space", "time": "time", "channel": "channel"}

_ORIENTATIONS: Mapping[str, Orientation] = {
    "right-to-left": "L", "left-to-right": "R", "anterior-to-posterior": "P", "posterior-to-anterior": "A",
    "inferior-to-superior": "S", "superior-to-inferior": "I",
}  # fmt: skip
"""RFC-4: the second word says where coordinates grow. Those of animals (dorsal, rostral) are no names of a human body."""


class ImageLevel(NamedTuple):
    """An array as a level of an image: its entries in `multiscales` and in `datasets`, and its number there.

    `holder`: the attributes beside `multiscales`; `group`: what the image's group is called, if that is known.
    """

    scales: Attributes
    dataset: Attributes
    number: int
    path: str
    holder: Attributes
    group: str | None


def level_of(groups: Sequence[Attributes], names: Sequence[str]) -> ImageLevel | None:
    """Return as which level of an image the array at the path `names` is listed; None if as none.

    `groups`: see `Written`.
    """
    for above, attributes in enumerate(groups, 1):
        holder = _holder(attributes)
        path = "/".join(names[-above:])
        for scales in dicts(holder, "multiscales"):
            for number, dataset in enumerate(dicts(scales, "datasets")):
                if str(dataset.get("path", "")).strip("/") == path:
                    group = names[-above - 1] if len(names) > above else None
                    return ImageLevel(scales, dataset, number, path, holder, group)
    return None


def first_level(groups: Sequence[Attributes], names: Sequence[str], rank: int) -> Axes | None:
    """Return the axes, in C order, of the first level of the array's image; None if the array is not a level."""
    level = level_of(groups, names)
    if level is None:
        return None
    placed = _axes(level.scales, next(dicts(level.scales, "datasets")), rank, False)
    return None if placed is None else sensible(placed[0])


def axis_names(groups: Sequence[Attributes], names: Sequence[str], rank: int) -> tuple[str, ...] | None:
    """Return the names of the axes of the array's image; None if it is no level, or some axis has no name."""
    level = level_of(groups, names)
    written = None if level is None else level.scales.get("axes")
    labels = [text(axis.get("name")) for axis in written if isinstance(axis, dict)] if isinstance(written, list) else []
    named = tuple(label for label in labels if label)
    return named if len(named) == len(labels) == rank else None


def _holder(attributes: Attributes) -> Attributes:
    """Return the attributes that hold the image's metadata: those in `ome`, since version 0.5."""
    ome = attributes.get("ome")
    return ome if isinstance(ome, dict) else attributes


def _array(written: Written, known: Meaning) -> Meaning:
    level = level_of(written.groups, written.names)
    if level is not None:
        placed = _axes(level.scales, level.dataset, written.rank, written.x_first)
        axes, affine = placed or (known.axes, known.affine)
        known = replace(known, axes=sensible(axes), affine=affine, image=_image(level))
    holders = [holder for above in written.groups[:2] for holder in (above, _holder(above)) if "image-label" in holder]
    if holders:
        colors = tuple(_colors(holders[0]["image-label"]))
        known = replace(known, values=replace(known.values, labels=True, colors=colors))
    return known


def _colors(written: JSON) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
    """Yield numbers of objects and their colours: red, green, blue and how opaque."""
    for one in islice(dicts(written, "colors"), _MOST_COLORS):
        number, parts = one.get("label-value"), one.get("rgba")
        if isinstance(number, int) and isinstance(parts, list) and len(parts) == 4 and all(_is_index(p, 256) for p in parts):
            yield number, (parts[0], parts[1], parts[2], parts[3])


def _image(level: ImageLevel) -> Image:
    own = text(level.scales.get("name"))
    base = own if own not in (None, "", "/") else level.group
    name = base if base is None or level.number == 0 else f"{base} {level.path}"
    return Image(name, _channels(level.holder.get("omero")))


def _channels(omero: JSON) -> tuple[Channel, ...]:
    listed = omero.get("channels") if isinstance(omero, dict) else None
    return tuple(_channel(channel) for channel in listed) if isinstance(listed, list) else ()


def _channel(channel: JSON) -> Channel:
    if not isinstance(channel, dict):
        return Channel()
    color, window = channel.get("color"), channel.get("window")
    rgb = re.fullmatch(r"#?([0-9A-Fa-f]{6})", color) if isinstance(color, str) else None
    ends = [window.get(end) for end in ("start", "end")] if isinstance(window, dict) else []
    limits = [float(end) for end in ends if is_finite(end)]
    return Channel(
        text(channel.get("label")),
        None if rgb is None else (int(rgb[1][:2], 16), int(rgb[1][2:4], 16), int(rgb[1][4:], 16)),
        (limits[0], limits[1]) if len(limits) == 2 and limits[0] < limits[1] else None,
    )


def _axes(scales: Attributes, dataset: Attributes, rank: int, x_first: bool) -> tuple[Axes, Affine | None] | None:
    """Return the axes of a level, and how its dimensions are turned against them. None if COSEM's `transform` describes it.

    A dimension that runs along one axis has this axis. Dimensions that run along several axes share these, in their order.
    """
    if "transform" in dataset and "coordinateTransformations" not in dataset:
        return None
    written = _written_axes(scales, dataset)
    named = [_axis(axis) for axis in written] if isinstance(written, list) and len(written) == rank else [Axis()] * rank
    transformations = [*_transformations(scales, dataset)]
    matrix = compose(transformations, rank)
    is_known = matrix is not None and is_scaled(transformations)
    axes, turned = [*named], []
    for dimensions, targets in _parts(np.eye(rank + 1) if matrix is None else matrix):
        if len(dimensions) == len(targets) == 1 and matrix is not None:
            (dimension,), (target,) = dimensions, targets
            scale, offset = float(matrix[target, dimension]), float(matrix[target, -1])
            axes[dimension] = named[target]._replace(scale=scale if is_known else None, offset=offset)
        elif len(dimensions) == len(targets):
            for dimension, target in zip(dimensions, targets, strict=True):
                axes[dimension] = named[target]
            turned += [*zip(dimensions, targets, strict=True)]
    affine = None if matrix is None or not turned else _affine(matrix, sorted(turned))
    if x_first:
        axes.reverse()
        affine = affine and _reverse(affine, rank)
    return tuple(axes), affine


def _axis(written: JSON) -> Axis:
    if not isinstance(written, dict):
        return Axis(text(written))
    orientation = written.get("orientation")
    anatomical = orientation.get("value") if isinstance(orientation, dict) else None
    return Axis(
        text(written.get("name")),
        fold(written.get("unit")),
        kind=_KINDS.get(str(written.get("type"))),
        orientation=_ORIENTATIONS.get(str(anatomical)),
    )


def _parts(matrix: Matrix) -> Iterator[tuple[list[int], list[int]]]:
    """Yield groups of dimensions and axes that belong together: outside of each group, their part of the matrix is zero."""
    rank = len(matrix) - 1
    used = matrix[:rank, :rank] != 0
    left = {*range(rank)}
    while left:
        dimensions, targets = {min(left)}, set[int]()
        while True:
            more_targets = {i for i in range(rank) if used[i, [*dimensions]].any()}
            more = dimensions | {i for i in range(rank) if used[[*more_targets], i].any()}
            if more_targets == targets and more == dimensions:
                break
            targets, dimensions = more_targets, more
        left -= dimensions
        yield sorted(dimensions), sorted(targets)


def _affine(matrix: Matrix, turned: Sequence[tuple[int, int]]) -> Affine | None:
    dimensions, targets = [dimension for dimension, _ in turned], [target for _, target in turned]
    rows = tuple(tuple(map(float, row)) for row in matrix[np.ix_(targets, dimensions)])
    return sensible_affine(Affine(tuple(dimensions), rows, tuple(map(float, matrix[targets, -1]))))


def _reverse(affine: Affine, rank: int) -> Affine:
    """Return the same transformation for the dimensions in reversed order."""
    dimensions = tuple(rank - 1 - dimension for dimension in reversed(affine.dimensions))
    return Affine(dimensions, tuple(row[::-1] for row in reversed(affine.matrix)), affine.offset[::-1])


def _written_axes(scales: Attributes, dataset: Attributes) -> JSON:
    """Return a level's axes as they are written. In OME-Zarr 0.6 they are those of the coordinate system of the dataset."""
    if "coordinateSystems" not in scales:
        return scales.get("axes")
    outputs = [transform.get("output") for transform in dicts(dataset, "coordinateTransformations")]
    names = [output.get("name") if isinstance(output, dict) else output for output in outputs]
    systems = [system for system in dicts(scales, "coordinateSystems") if system.get("name") in names]
    return systems[0].get("axes") if systems else None


def _transformations(scales: Attributes, dataset: Attributes) -> Iterator[Attributes]:
    """Yield the transformations of a dataset, in the order in which they apply.

    Before version 0.6, the transformations of the whole image follow. In 0.6 those lead to further coordinate systems, and
    are left out.
    """
    above = () if "coordinateSystems" in scales else dicts(scales, "coordinateTransformations")
    yield from (*dicts(dataset, "coordinateTransformations"), *above)


def _group(attributes: Attributes, known: GroupMeaning) -> GroupMeaning:
    holder = _holder(attributes)
    images = tuple(_levels(holder)) or known.images
    plate, fields = holder.get("plate"), holder.get("well")
    return replace(
        known,
        images=images,
        plate=_plate(plate) if isinstance(plate, dict) else known.plate,
        fields=tuple(_fields(fields)) if isinstance(fields, dict) else known.fields,
    )


def _levels(holder: Attributes) -> Iterator[tuple[Path, ...]]:
    """Yield the paths of the levels of each image."""
    for scales in dicts(holder, "multiscales"):
        paths = [text(dataset.get("path")) for dataset in dicts(scales, "datasets")]
        split = [_path(path) for path in paths if path is not None]
        if split and len(split) <= _MOST_LEVELS and None not in split:
            yield tuple(path for path in split if path is not None)


def _plate(written: Mapping[str, Any]) -> Plate | None:
    """Return the plate; None if its metadata make no sense."""
    rows, columns = (_sides(written.get(side)) for side in ("rows", "columns"))
    listed = written.get("wells")
    if not rows or not columns or not isinstance(listed, list):
        return None
    wells = []
    for one in listed:
        path = _path(one.get("path")) if isinstance(one, dict) else None
        if path is None or not isinstance(one, dict):
            return None
        row, column = one.get("rowIndex"), one.get("columnIndex")
        if row is None and column is None and len(path) == 2 and path[0] in rows and path[1] in columns:  # before 0.4
            row, column = rows.index(path[0]), columns.index(path[1])
        if not (_is_index(row, len(rows)) and _is_index(column, len(columns))):
            return None
        assert isinstance(row, int)
        assert isinstance(column, int)
        wells.append(Well(path, row, column))
    places = {(well.row, well.column) for well in wells}
    if len(places) != len(wells):
        return None
    return Plate(text(written.get("name")), rows, columns, tuple(wells), tuple(_acquisitions(written)))


def _acquisitions(plate: Mapping[str, Any]) -> Iterator[Acquisition]:
    for one in dicts(plate, "acquisitions"):
        number = _whole(one.get("id"))
        if number is not None:
            yield Acquisition(number, text(one.get("name")))


def _fields(well: Mapping[str, Any]) -> Iterator[Field]:
    for image in dicts(well, "images"):
        path = _path(image.get("path"))
        if path is not None:
            yield Field(path, _whole(image.get("acquisition")))


def _whole(value: JSON) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _sides(written: JSON) -> tuple[str, ...]:
    """Return the names of rows or columns; none if one lacks a name, or if there are too many."""
    sides = written if isinstance(written, list) else []
    names = [text(one.get("name")) if isinstance(one, dict) else None for one in sides]
    named = tuple(name for name in names if name is not None)
    return named if len(named) == len(names) <= MOST_SIDE else ()


def _path(written: JSON) -> Path | None:
    """Split a relative path; None if it is empty or contains `.` or `..`."""
    parts = tuple((text(written) or "").strip("/").split("/"))
    return None if any(part in ("", ".", "..") for part in parts) else parts


def _is_index(value: JSON, count: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count


def names_of_members(attributes: Attributes) -> set[str]:
    """Return the names of the members that the lists of images mention, whatever they are: the first part of each path."""
    datasets = (dataset for scales in dicts(_holder(attributes), "multiscales") for dataset in dicts(scales, "datasets"))
    paths = (dataset.get("path") for dataset in datasets)
    return {path.strip("/").partition("/")[0] for path in paths if isinstance(path, str)}


OME = Convention("OME-NGFF", _array, _group, frozenset(("multiscales", "ome")))
