"""Members of a hierarchy as a table; what has no column stands below a row. Not here: the members (`contents.py`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from fsbridge.commands.contents import Row
from fsbridge.errors import printable
from fsbridge.meaning import Axis
from fsbridge.meaning.kinds import is_geographic
from fsbridge.meaning.times import UNEVEN
from fsbridge.meaning.units import symbol
from fsbridge.metadata import JSON

HEADING = ("path", "kind", "shape", "chunks", "dtype", "codec", "stored/total", "bytes")
SHORTENED = tuple(map(HEADING.index, ("chunks", "dtype", "codec")))
"""Columns whose cells may be cut: a compound type of 30 fields takes hundreds of characters; `--json` has it in full."""

CELL_CHARACTERS = 12
"""Least number of characters to which a cell is cut."""

ELLIPSIS = "..."

ATTRIBUTE_CHARACTERS = 1000
"""Most characters that are shown of an attribute's value."""


def format_table(rows: Sequence[Row], width: int | None = None, detailed: bool = False, first: bool = False) -> str:
    """Return rows as aligned text columns under a heading. The widest cells lose their middle, to fit into `width` columns.

    `detailed`: also show attributes, and fill values of zero; `first`: show these of the first row only.
    """
    cells = [HEADING, *(tuple(map(printable, _make_cells(row))) for row in rows)]
    if width is not None:
        cells = _fit(cells, width)
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEADING) - 1)]
    lines = ["  ".join([*map(str.ljust, line, widths), line[len(widths)]]).rstrip() for line in cells]
    shown = [lines[0]]
    for number, (row, line) in enumerate(zip(rows, lines[1:], strict=True)):
        shown += [line, *(f"    {printable(text)}" for text in _list_details(row, detailed or (first and not number)))]
    return "\n".join(shown)


def _list_details(row: Row, detailed: bool) -> Iterator[str]:
    """Yield the lines that are shown below a row: its axes, its values, its attributes, and what layouts make of it."""
    texts = (_format_axes(row), _format_values(row, detailed), _format_place(row), _format_others(row), row.reason, row.note)
    yield from filter(None, texts)
    if detailed:
        for name, value in (row.attributes or {}).items():
            yield f"{name} = {_format_attribute(value)}"
    for how, names in (row.files or {}).items():
        yield f"{'--layout files' if how == 'files' else how}: {' '.join(names)}"
    for layout, names in (row.hidden or {}).items():
        yield f"hidden in the layout {layout}, which has files of these names: {' '.join(names)}"
    for layout, reason in (row.left_out or {}).items():
        yield f"not in the layout {layout}: {reason}"


def _fit(cells: list[tuple[str, ...]], width: int) -> list[tuple[str, ...]]:
    """Cut the cells that do not fit into `width` columns, those of the widest column first.

    Paths and counts are never cut.
    """
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    excess = sum(widths) + 2 * (len(widths) - 1) - width
    while excess > 0:
        widest = max(SHORTENED, key=widths.__getitem__)
        rest = max([widths[i] for i in SHORTENED if i != widest and widths[i] < widths[widest]], default=0)
        cut = min(excess, widths[widest] - max(CELL_CHARACTERS, rest - 1))
        if cut <= 0:
            break
        widths[widest] -= cut
        excess -= cut
    return [tuple(map(shorten, line, widths)) for line in cells]


def shorten(text: str, width: int) -> str:
    """Return `text` in at most `width` columns, if necessary without its middle."""
    if len(text) <= width:
        return text
    tail = (width - len(ELLIPSIS)) // 2
    return f"{text[: width - len(ELLIPSIS) - tail]}{ELLIPSIS}{text[len(text) - tail :]}"


def _format_attribute(value: JSON) -> str:
    """Return the value of an attribute: a text as it is, else as JSON. A long one loses its end."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= ATTRIBUTE_CHARACTERS else f"{text[:ATTRIBUTE_CHARACTERS]}{ELLIPSIS} (--json has all of it)"


def _format_others(row: Row) -> str | None:
    if row.others is None:
        return None
    files = row.others["files"]
    return f"{files:,} other file{'s' * (files > 1)}, {format_size(row.others['bytes'])}"


def _format_axes(row: Row) -> str | None:
    if row.axes is None:
        return None
    texts = list(map(_format_axis, row.axes))
    return "axes: " + ("; " if any(": " in text for text in texts) else ", ").join(texts)


def _format_axis(axis: Mapping[str, JSON]) -> str:
    """Describe an axis: `lat: -87.5 ... 87.5 degrees_north, step 5`."""
    name, unit, first, last = axis["name"] or "?", symbol(axis["unit"]), axis.get("first"), axis.get("last")
    behind = f" {unit}" if unit else ""
    if first is None:
        return f"{name}{f' [{unit}]' if unit else ''}"
    if "every" in axis or isinstance(first, str):
        dates = "calendar" in axis or "every" in axis
        ends = first if first == last else f"{first} ... {last}"
        return ", ".join([f"{name}: {ends}{'' if dates else behind}", *_pick_words(axis, "every", "calendar")])
    scale = axis.get("scale")
    if scale is not None and not first and not is_geographic(Axis(axis["name"], axis["unit"])):
        return f"{name}: step {scale:.7g}{behind}"
    if first == last:
        return f"{name}: {first:.9g}{behind}"
    return f"{name}: {first:.9g} ... {last:.9g}{behind}, {UNEVEN if scale is None else f'step {scale:.7g}'}"


def _pick_words(axis: Mapping[str, JSON], *names: str) -> Iterator[str]:
    yield from (axis[name] for name in names if name in axis)


def _format_values(row: Row, detailed: bool) -> str | None:
    """Describe the elements: `values: in K, missing -9999, fill 0`; None if there is nothing to say."""
    packed = row.packing or {}
    parts = [
        f"in {row.unit}" if row.unit else "",
        f"missing {' or '.join(map(_format_number, row.missing))}" if row.missing else "",
        f"stored * {packed['factor']:.9g} + {packed['offset']:.9g}" if packed else "",
        f"fill {_format_number(row.fill)}" if row.fill is not None and (detailed or _is_telling(row)) else "",
    ]
    return f"values: {', '.join(filter(None, parts))}" if any(parts) else None


def _is_telling(row: Row) -> bool:
    """True if the fill value is neither 0 nor NaN, nor among the missing values."""
    return bool(row.fill) and row.fill != "NaN" and row.fill not in (row.missing or ())


def _format_number(value: JSON) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _format_place(row: Row) -> str | None:
    """Describe the map or the image that the array belongs to; None if it belongs to none."""
    parts = []
    if row.place is not None:
        code, kind = row.place["epsg"], {True: "latitudes and longitudes", False: "a projection", None: None}
        system = [f"EPSG:{code}" if code else None, kind[row.place["geographic"]]]
        parts.append(f"map: {', '.join(filter(None, system)) or 'of an unknown coordinate system'}")
    if row.image is not None:
        labels = ", ".join(label or "?" for label in row.image["channels"])
        known = [row.image["name"], f"channels: {labels}" if labels else None]
        parts += [f"image: {', '.join(filter(None, known))}"] if any(known) else []
    return "; ".join(parts) or None


def format_size(count: float | None) -> str:
    """Return a number of bytes as people read it, with three digits."""
    if count is None:
        return "?"
    for unit in ("B", "kB", "MB", "GB", "TB", "PB", "EB"):
        if count < 999.5 or unit == "EB":
            break
        count /= 1000
    return f"{count:.3g}{unit}"


def _make_cells(row: Row) -> tuple[str, ...]:
    if row.kind == "link":
        return (f"{row.path} -> {row.target}", "link", "", "", "", "", "", "")
    if row.shape is None or row.chunks is None:
        return (row.path, row.kind, "", "", "", "", "", "")
    chunks = [str(edge) if isinstance(edge, int) else "+".join(map(str, edge)) for edge in row.chunks]
    stored = "?" if row.stored is None else str(row.stored)
    return (
        row.path,
        row.kind,
        "x".join(map(str, row.shape)) or "scalar",
        "x".join(chunks) or "scalar",
        row.dtype or "",
        row.codec or "",
        f"{stored}/{row.total}",
        f"{format_size(row.stored_bytes)}/{format_size(row.decoded_bytes)}",
    )
