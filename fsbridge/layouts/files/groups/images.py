"""OME-NGFF's images: their names, their channels, and which arrays are their levels. Only the function `images` opens any.

OME-NGFF (0.1 to 0.6) and COSEM list levels in `multiscales`; N5 and BigDataViewer's N5 and HDF5 call them `s0`, `s1`, ...
Channels are those of `omero` (0.4 and 0.5). Not here: axes (`axes.py`), headers that tell it to programs (`filetypes/`), the
file of a pyramid (`pyramids.py`), which level suffices for a preview (`levels.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple, TypeVar

from fsbridge.errors import NotFound
from fsbridge.layouts.json_text import is_finite
from fsbridge.layouts.units import text
from fsbridge.metadata import JSON


class Channel(NamedTuple):
    """One channel. `color`: red, green and blue; `window`: the values that are shown as black and as full colour."""

    label: str | None = None
    color: tuple[int, int, int] | None = None
    window: tuple[float, float] | None = None


class Image(NamedTuple):
    """The image that an array is a level of."""

    name: str
    channels: tuple[Channel, ...] = ()


def image_of(groups: Sequence[Mapping[str, JSON]], names: Sequence[str]) -> Image | None:
    """Return the image of the array at the path `names`; `groups` are the attributes of the groups above, nearest first."""
    for above, attributes in enumerate(groups, 1):
        ome = attributes.get("ome")
        holder: Mapping[str, JSON] = ome if isinstance(ome, dict) else attributes
        scales = holder.get("multiscales")
        for scale in scales if isinstance(scales, list) else ():
            datasets = scale.get("datasets") if isinstance(scale, dict) else None
            paths = [one.get("path") for one in datasets if isinstance(one, dict)] if isinstance(datasets, list) else []
            path = "/".join(names[-above:])
            if path not in paths or not isinstance(scale, dict):
                continue
            own = text(scale.get("name"))
            group = names[-above - 1] if len(names) > above else None
            base = own if own not in (None, "", "/") else group
            level = paths.index(path)
            name = base if base is None or level == 0 else f"{base} {path}"
            return None if name is None else Image(name, _channels(holder.get("omero")))
    return None


def is_labels(groups: Sequence[Mapping[str, JSON]]) -> bool:
    """Return whether the array's group, or the next one above, marks it as an image of labels. `groups`: nearest first."""
    ome = [attributes.get("ome") for attributes in groups[:2]]
    holders = [*groups[:2], *(one for one in ome if isinstance(one, dict))]
    return any("image-label" in holder for holder in holders)


def _channels(omero: JSON) -> tuple[Channel, ...]:
    listed = omero.get("channels") if isinstance(omero, dict) else None
    return tuple(_channel(channel) for channel in listed) if isinstance(listed, list) else ()


def _channel(channel: JSON) -> Channel:
    if not isinstance(channel, dict):
        return Channel()
    color, window = channel.get("color"), channel.get("window")
    rgb = re.fullmatch(r"#?([0-9A-Fa-f]{6})", color) if isinstance(color, str) else None
    ends = [window.get(end) for end in ("start", "end")] if isinstance(window, dict) else []
    numbers = [float(end) for end in ends if is_finite(end)]
    return Channel(
        text(channel.get("label")),
        None if rgb is None else (int(rgb[1][:2], 16), int(rgb[1][2:4], 16), int(rgb[1][4:], 16)),
        (numbers[0], numbers[1]) if len(numbers) == 2 and numbers[0] < numbers[1] else None,
    )


A = TypeVar("A")
Path = tuple[str, ...]

_ENOUGH = 64
"""Most levels of an image. This is more than enough, because each level halves the one before."""

_HINTS = ("downsamplingFactors", "scales", "multiScale", "pixelResolution", "resolution")
"""Attributes that mark an N5 group as one of levels."""


def images(attributes: Mapping[str, JSON], opened: Callable[[Path], A]) -> list[list[A]]:
    """The levels of each image of a group, the first level first; empty if the group is no pyramid.

    `opened` opens the array at a path below the group; NotFound if there is none.
    """
    levels = listed_levels(attributes)
    if levels:
        return [[opened(path) for path in paths] for paths in levels]
    for prefix, rest in (("s", ()), ("", ("cells",))):  # N5, and BigDataViewer's HDF5
        found: list[A] = []
        try:
            for number in count():
                found.append(opened((f"{prefix}{number}", *rest)))
        except NotFound:
            pass
        if len(found) > 1:
            return [found]
    return []


def listed_levels(attributes: Mapping[str, JSON]) -> list[list[Path]]:
    """Return the paths of the levels of each of OME-NGFF's images (0.1 to 0.6)."""
    ome, found = attributes.get("ome"), []
    written = (ome if isinstance(ome, dict) else attributes).get("multiscales")
    for scales in written if isinstance(written, list) else ():
        datasets = scales.get("datasets") if isinstance(scales, dict) else None
        paths = [text(one.get("path")) for one in datasets if isinstance(one, dict)] if isinstance(datasets, list) else []
        split = [tuple(path.strip("/").split("/")) for path in paths if path is not None]
        if split and len(split) <= _ENOUGH and all(part not in ("", ".", "..") for path in split for part in path):
            found.append(split)
    return found


def level_names(attributes: Mapping[str, JSON], names: Callable[[], Iterable[str]] = tuple) -> list[str]:
    """Return the names of members that are the levels of a group's first image, finest first; empty if it is no image.

    Nothing is opened. `names` returns all members; it is called if attributes tell that there are levels, but not which.
    """
    levels = listed_levels(attributes)
    if levels:
        return [path[0] for path in levels[0] if len(path) == 1]
    if any(key in attributes for key in _HINTS):
        numbered = [name for name in names() if re.fullmatch(r"s(0|[1-9][0-9]{0,2})", name)]
        found = sorted(numbered, key=lambda name: int(name[1:]))[:_ENOUGH]
        return found if found == [f"s{number}" for number in range(len(found))] and len(found) > 1 else []
    return []
