"""`index.html`: a group as a page for people. Pure: text in, text out.

The page is static. All of its text comes from strangers and is escaped, a Content-Security-Policy forbids scripts and
everything from elsewhere, links are relative and lead to files of the mount only. Not here: what there is in a group
(`group_page.py`).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal
from urllib.parse import quote

import numpy as np

from fsbridge.errors import printable
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.meaning import Axes, Axis
from fsbridge.meaning.units import symbol
from fsbridge.metadata import JSON

_STYLE = """
:root{color-scheme:light dark;--line:#d8d8de;--dim:#63636b;--back:#f6f6f8}
@media(prefers-color-scheme:dark){:root{--line:#3a3a42;--dim:#a2a2ac;--back:#26262c}}
body{font:15px/1.45 system-ui,sans-serif;margin:1.2rem auto;max-width:75rem;padding:0 1rem}
h1{font-size:1.5rem;margin:.3rem 0}h1,p,summary,td.name{overflow-wrap:anywhere}td.fact{overflow-wrap:break-word}
p.facts,small,td.dim,summary{color:var(--dim)}
table{border-collapse:collapse;width:100%;margin:1rem 0}
td,th{border-top:1px solid var(--line);padding:.45rem .6rem;text-align:left;vertical-align:top}
th{border:0;font-weight:600;color:var(--dim)}
td.look{width:100px}
img{display:block;width:96px;height:96px;object-fit:contain;image-rendering:auto;background:var(--back)}
img.all{width:auto;height:auto;max-width:100%;background:none}
td.name a.main{font-weight:600}
pre{background:var(--back);padding:.6rem;overflow:auto;max-height:24rem;margin:.4rem 0}
.number{white-space:nowrap}
@media(max-width:700px){thead{display:none}tr{display:block;border-top:1px solid var(--line);padding:.5rem 0}
td{display:block;border:0;padding:.1rem 0}td:empty{display:none}td.fact::before{content:attr(data-is) ": ";color:var(--dim)}}
"""
_POLICY = (
    "default-src 'none'; img-src 'self' file:; base-uri 'none'; form-action 'none'; style-src 'sha256-"
    f"{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
)

_LONGEST_TEXT, _LONGEST_PRE = 300, 65536
"""Most characters that are shown of a name, and of the attributes."""

_UNBROKEN = 24
"""Most characters of a shape or a size that are kept on one line."""

_OPEN_LINES = 12
"""Most lines of attributes that are shown unfolded."""


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member of the group. `path`: the beginning of its files' names, or its directory's name; None: there are none.

    `suffixes`: of its files; `preview`: suffix of its picture; `lines`: code that reads it, by language; `remark`: about a
    link, a pyramid, or an error; `html`: the finished row, if it has been made already.
    """

    name: str
    kind: Literal["group", "array", "directory", "link", "error"]
    path: bytes | None = None
    suffixes: Sequence[str] = ()
    preview: str | None = None
    view: View | None = None
    axes: str = ""
    codec: str = ""
    lines: Mapping[str, JSON] = field(default_factory=dict)
    remark: str | None = None
    html: str | None = None


@dataclass(frozen=True, slots=True)
class WebPage:
    """The content of a page. `above`: the store, and names of the groups down to the one above.

    `more`: some members are left out. `picture`: name of the file with a picture of the whole group. `damage`: why the
    attributes cannot be read.
    """

    title: str
    store: str
    format: str
    above: Sequence[str]
    attributes: Mapping[str, JSON]
    rows: Sequence[MemberRow]
    more: bool = False
    picture: str | None = None
    damage: str | None = None


def page(content: WebPage) -> bytes:
    """Return the file."""
    return "".join(_parts(content)).encode()


def _parts(content: WebPage) -> Iterator[str]:
    title = shown(content.title)
    yield (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    )
    if content.above:
        links = [
            f'<a href="{"../" * (len(content.above) - number)}index.html">{shown(name)}</a>'
            for number, name in enumerate(content.above)
        ]
        yield f"<nav>{' / '.join(links)} /</nav>\n"
    arrays, groups = (sum(row.kind == kind for row in content.rows) for kind in ("array", "group"))
    yield f'<h1>{title}</h1>\n<p class="facts">{shown(content.format)} · {_counts(arrays, groups)}'
    yield f" · {shown(content.store)}</p>\n"
    if content.picture is not None:
        yield f'<p><a href="./{content.picture}"><img class="all" loading="lazy" alt="" src="./{content.picture}"></a></p>\n'
    yield from _attributes(content.attributes)
    if content.damage is not None:
        yield f"<p>The attributes cannot be read: {shown(content.damage)}</p>\n"
    if content.rows:
        heads = "".join(f"<th>{head}</th>" for head in ("", "Name", "Shape", "Axes", "Type", "Chunks", "Size"))
        yield f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n"
        for row in content.rows:
            yield row.html or row_html(row)
        yield "</tbody>\n</table>\n"
    if content.more:
        yield f"<p>The group has more members; this page shows the first {len(content.rows):,}.</p>\n"
    yield "</body>\n</html>\n"


def _counts(arrays: int, groups: int) -> str:
    """Return text with the number of arrays and of groups, if there are any."""
    return ", ".join(_count(n, thing) for n, thing in ((groups, "group"), (arrays, "array")) if n) or "empty"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def shown(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Return text from a store as HTML. Unprintable characters are written as escapes, so that none can reverse the line."""
    cut = text if len(text) <= longest else text[:longest] + "…"
    return f"<bdi>{escape(printable(cut))}</bdi>" if not cut.isascii() else escape(printable(cut))


def link(name: bytes) -> str:
    """Return a relative link to a file in the same directory. It can never have a scheme or lead upwards."""
    return "./" + quote(name, safe="")


def _attributes(attributes: Mapping[str, JSON]) -> Iterator[str]:
    if not attributes:
        return
    text = _json(attributes)
    cut = "" if len(text) <= _LONGEST_PRE else f"<p>Their first {_LONGEST_PRE:,} characters:</p>"
    opened = " open" if text.count("\n") < _OPEN_LINES else ""
    summary = f"<summary>Attributes ({len(attributes):,})</summary>"
    yield f"<details{opened}>{summary}{cut}<pre>{_lines(text[:_LONGEST_PRE])}</pre></details>\n"


def _json(attributes: Mapping[str, JSON]) -> str:
    """Return indented JSON of the attributes, cut soon after the longest text that is shown."""
    found: list[str] = []
    size = 0
    for piece in json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(dict(attributes)):
        found.append(piece)
        size += len(piece)
        if size > _LONGEST_PRE:
            break
    return "".join(found)


def _lines(text: str) -> str:
    """Return text as HTML with its line ends kept and all other unprintable characters written as escapes."""
    return escape("\n".join(printable(line) for line in text.split("\n")))


def row_html(row: MemberRow) -> str:
    """Return the row of the table."""
    name, href = shown(row.name), "" if row.path is None else link(row.path)
    if row.kind == "group" and href:
        name = f'<a class="main" href="{href}/index.html">{name}/</a>'
    elif row.kind == "directory":
        name = f'<a class="main" href="{href}/">{name}/</a>'
    elif "json" in row.suffixes:
        name = f'<a class="main" href="{href}.json">{name}</a>'
    look = ""
    if row.preview is not None:
        look = f'<a href="{href}.{row.preview}"><img loading="lazy" alt="" src="{href}.{row.preview}"></a>'
    beside = f"<br><small>{shown(row.remark)}</small>" if row.remark else ""
    if row.suffixes:
        files = " ".join([f'<a href="{href}.{suffix}">{suffix}</a>' for suffix in row.suffixes])
        beside += f"<br><small>{files}</small>"
    if row.lines:
        code = "\n".join(f"{language}: {text}" for language, text in row.lines.items())
        beside += f"<details><summary>read it</summary><pre>{_lines(code)}</pre></details>"
    cells = f'<td class="look">{look}</td><td class="name">{name}{beside}</td>'
    if row.view is None:
        word = "cannot be read" if row.kind == "error" else row.kind
        return f'<tr>{cells}<td class="dim" colspan="5">{word}</td></tr>\n'
    view = row.view
    grid, dtype = view.metadata.grid, view.metadata.dtype
    facts = {
        "Shape": " \u00d7 ".join(map(str, view.shape)) or "scalar",
        "Axes": row.axes,
        "Type": dtype.native if view.dtype is None else _dtype(view.dtype),
        "Chunks": ", ".join(part for part in (" \u00d7 ".join(map(_edge, grid.edges)), row.codec) if part),
        "Size": _bytes(view.selection.size * dtype.itemsize) if dtype.itemsize else "varying",
    }
    for name, text in facts.items():
        kept = " number" if name in ("Shape", "Size") and len(text) < _UNBROKEN else ""
        cells += f'<td class="fact{kept}" data-is="{name}">{shown(text)}</td>'
    return f"<tr>{cells}</tr>\n"


def _dtype(dtype: np.dtype[Any]) -> str:
    return dtype.name if dtype.names is None else f"{len(dtype.names)} fields: {', '.join(dtype.names)}"


def _edge(edge: int | tuple[int, ...]) -> str:
    return str(edge) if isinstance(edge, int) else f"({', '.join(map(str, edge[:4]))}{', …' if len(edge) > 4 else ''})"


def axes_text(axes: Axes) -> str:
    """Return a row's text about axes; empty if nothing is known about them."""
    known = any(axis != Axis() for axis in axes)
    return "; ".join([_axis(axis, number) for number, axis in enumerate(axes)]) if known else ""


def _axis(axis: Axis, number: int) -> str:
    unit = symbol(axis.unit)
    step = None if axis.scale is None else f"{axis.scale:.6g}{f' {unit}' if unit else ''}"
    return f"{axis.name or number}{f' ({step or unit})' if step or unit else ''}"


def _bytes(count: int) -> str:
    """A number of bytes for people."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if size < 1000:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.3g} {unit}"
