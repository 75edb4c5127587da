"""OME-NGFF's metadata of an image other than axes: its name, and the names, colours and windows of its channels.

Pure functions over attributes. Not here: axes (`axes.py`), headers that tell it to programs (`filetypes/`). Source: OME-NGFF
0.4 and 0.5, `multiscales` and `omero`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
