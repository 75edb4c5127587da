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
from typing import Literal
from urllib.parse import quote

from fsbridge.errors import printable
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.looks.previews import SMALL
from fsbridge.meaning import Axis
from fsbridge.meaning.kinds import is_channel, is_geographic, is_time
from fsbridge.meaning.times import describe_dates, span
from fsbridge.meaning.units import fold, symbol
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
td.look{width:112px}
img{display:block;width:112px;height:112px;object-fit:contain;object-position:left top}
img.curve{height:64px;object-fit:fill}
img.all{width:auto;height:auto;max-width:100%}
span.value{overflow-wrap:anywhere}
span.axis{display:block}
td.name a.main{font-weight:600}
td.name pre{white-space:pre-wrap;overflow-wrap:anywhere}
pre{background:var(--back);padding:.6rem;overflow:auto;max-height:24rem;margin:.4rem 0}
.number{white-space:nowrap}
@media(max-width:700px){thead{display:none}tr{display:block;border-top:1px solid var(--line);padding:.5rem 0}
td{display:block;border:0;padding:.1rem 0}td:empty{display:none}td.fact::before{content:attr(data-is) ": ";color:var(--dim)}}
"""
_POLICY = (
    "default-src 'none'; img-src 'self' file:; base-uri 'none'; form-action 'none'; style-src 'sha256-"
    f"{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
)

_LONGEST_TEXT, _LONGEST_PRE, _LONGEST_VALUE = 300, 65536, 120
"""Most characters that are shown of a name, of the attributes, and of a value."""


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A row of the table.

    `path`: the beginning of the names of the member's files, or its directory's name; None: it has none.

    `suffixes`: of its files; `first`: the suffixes wanted most; `preview`: suffix of its picture; `value`: shown instead of
    a picture; `lines`: code that reads it, by language; `remark`: about a link, a pyramid, or an error; `html`: the finished
    row, if it has been made already.
    """

    name: str
    kind: Literal["group", "array", "directory", "link", "error"]
    path: bytes | None = None
    suffixes: Sequence[str] = ()
    first: Sequence[str] = ()
    preview: str | None = None
    value: str | None = None
    view: View | None = None
    lines: Mapping[str, JSON] = field(default_factory=dict)
    remark: str | None = None
    html: str | None = None


@dataclass(frozen=True, slots=True)
class WebPage:
    """The content of a page. `above`: the store, and names of the groups down to the one above.

    `more`: the group has more members than the page. `files`: names of the group's own files, with relative links;
    `picture`: the link of a picture of the group. `damage`: why the attributes cannot be read.
    """

    title: str
    store: str
    format: str
    above: Sequence[str]
    attributes: Mapping[str, JSON]
    rows: Sequence[MemberRow]
    more: bool = False
    files: Sequence[tuple[str, str]] = ()
    picture: str | None = None
    damage: str | None = None


def make_page(content: WebPage) -> bytes:
    """Return the page as HTML."""
    return "".join(_make_parts(content)).encode()


def _make_parts(content: WebPage) -> Iterator[str]:
    title = escape_text(content.title)
    yield (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    )
    if content.above:
        links = [
            f'<a href="{"../" * (len(content.above) - number)}index.html">{escape_text(name)}</a>'
            for number, name in enumerate(content.above)
        ]
        yield f"<nav>{' / '.join(links)} /</nav>\n"
    arrays, groups = (sum(row.kind == kind for row in content.rows) for kind in ("array", "group"))
    yield f'<h1>{title}</h1>\n<p class="facts">{escape_text(content.format)} · {_spell_counts(arrays, groups)}'
    yield f" · {escape_text(content.store)}</p>\n" if content.store else "</p>\n"
    if content.files:
        named = " · ".join(f'<a href="{href}">{escape_text(name)}</a>' for name, href in content.files)
        yield f"<p>All of it: {named}</p>\n"
    if content.picture is not None:
        yield f'<p><a href="{content.picture}"><img class="all" loading="lazy" alt="" src="{content.picture}"></a></p>\n'
    yield from _make_attributes(content.attributes)
    if content.damage is not None:
        yield f"<p>The attributes cannot be read: {escape_text(content.damage)}</p>\n"
    if content.rows:
        heads = "".join(f"<th>{head}</th>" for head in ("", "Name", "Shape", "Axes", "Type", "Chunks", "Size"))
        yield f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n" if arrays else "<table>\n<tbody>\n"
        for row in content.rows:
            yield row.html or make_row_html(row)
        yield "</tbody>\n</table>\n"
    if content.more:
        yield f"<p>The group has more members; this page shows the first {len(content.rows):,}.</p>\n"
    yield "</body>\n</html>\n"


def _spell_counts(arrays: int, groups: int) -> str:
    """Return text with the number of groups and of arrays, as far as there are any; `empty` without both."""
    return ", ".join(_spell_count(n, thing) for n, thing in ((groups, "group"), (arrays, "array")) if n) or "empty"


def _spell_count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def escape_text(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Return text from a store as HTML, cut after `longest` characters.

    Unprintable characters are written as escapes, so that none can reverse the line.
    """
    cut = text if len(text) <= longest else text[:longest] + "…"
    return f"<bdi>{escape(printable(cut))}</bdi>" if not cut.isascii() else escape(printable(cut))


def make_link(name: bytes) -> str:
    """Return a relative link to the file `name` of the same directory. It can never have a scheme or lead upwards."""
    return "./" + quote(name, safe="")


def make_link_above(name: bytes) -> str:
    """Return a relative link to the file `name` of the directory above."""
    return "../" + quote(name, safe="")


def _make_attributes(attributes: Mapping[str, JSON]) -> Iterator[str]:
    if not attributes:
        return
    text = _spell_json(attributes)
    cut = "" if len(text) <= _LONGEST_PRE else f"<p>Their first {_LONGEST_PRE:,} characters:</p>"
    opened = " open" if text.count("\n") < 12 else ""  # a few lines are shown unfolded
    summary = f"<summary>Attributes ({len(attributes):,})</summary>"
    yield f"<details{opened}>{summary}{cut}<pre>{_escape_lines(text[:_LONGEST_PRE])}</pre></details>\n"


def _spell_json(attributes: Mapping[str, JSON]) -> str:
    """Return indented JSON of the attributes, cut soon after the longest text that is shown."""
    pieces: list[str] = []
    size = 0
    for piece in json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(dict(attributes)):
        pieces.append(piece)
        size += len(piece)
        if size > _LONGEST_PRE:
            break
    return "".join(pieces)


def _escape_lines(text: str) -> str:
    """Return text as HTML with its line ends kept and all other unprintable characters written as escapes."""
    return escape("\n".join(printable(line) for line in text.split("\n")))


def make_row_html(row: MemberRow) -> str:
    """Return a row of the table as HTML."""
    name, href = escape_text(row.name), "" if row.path is None else make_link(row.path)
    if row.kind == "group" and href:
        name = f'<a class="main" href="{href}/index.html">{name}/</a>'
    elif row.kind == "directory":
        name = f'<a class="main" href="{href}/">{name}/</a>'
    elif "json" in row.suffixes:
        name = f'<a class="main" href="{href}.json">{name}</a>'
    beside = "".join(
        f"<br><small>{escape_text(text)}</small>" for text in (_describe_elements(row.view), row.remark) if text
    )
    beside += _make_file_links(href, row)
    cells = f'<td class="look">{_make_first_cell(href, row)}</td><td class="name">{name}{beside}</td>'
    if row.view is None:
        word = "cannot be read" if row.kind == "error" else row.kind
        return f'<tr>{cells}<td class="dim" colspan="5">{word}</td></tr>\n'
    view = row.view
    grid, dtype = view.metadata.grid, view.metadata.dtype
    codec = "" if view.metadata.codec == "none" else view.metadata.codec
    facts = {
        "Shape": " \u00d7 ".join(map(str, view.shape)) or "scalar",
        "Type": _spell_dtype(view),
        "Chunks": ", ".join(part for part in (" \u00d7 ".join(map(_spell_edge, grid.edges)), codec) if part),
        "Size": _spell_bytes(view.selection.size * dtype.itemsize) if dtype.itemsize else "varying",
    }
    for name, text in facts.items():
        kept = " number" if name in ("Shape", "Size") and len(text) < 24 else ""  # short ones stay on one line
        cells += f'<td class="fact{kept}" data-is="{name}">{escape_text(text)}</td>'
        if name == "Shape":
            lines = [f'<span class="axis">{escape_text(line)}</span>' for line in describe_axes(view)]
            cells += f'<td class="fact" data-is="Axes">{" ".join(lines)}</td>'
    return f"<tr>{cells}</tr>\n"


def _make_first_cell(href: str, row: MemberRow) -> str:
    """Return the content of the first cell of a row: a value, or a picture with a link to its file."""
    if row.value is not None:
        return f'<span class="value">{escape_text(row.value, _LONGEST_VALUE)}</span>'
    if row.preview is None:
        return ""
    kind, part = (' class="curve"', f"#{SMALL}") if row.preview.endswith("svg") else ("", "")
    file = f"{href}.{row.preview}"
    return f'<a href="{file}"><img{kind} loading="lazy" alt="" src="{file}{part}"></a>'


def _describe_elements(view: View | None) -> str:
    """Return what the elements are, and their unit, as far as both are known."""
    if view is None:
        return ""
    words, unit = view.meaning.long_name or "", symbol(fold(view.unit)) or ""
    return f"{words} ({unit})" if words and unit else words or (f"in {unit}" if unit else "")


def _make_file_links(href: str, row: MemberRow) -> str:
    """Return links to a member's files.

    The files that few people want are folded away, with the code that reads the array.
    """
    first, others = (
        " ".join([f'<a href="{href}.{suffix}">{suffix}</a>' for suffix in suffixes])
        for suffixes in (row.first, [suffix for suffix in row.suffixes if suffix not in row.first])
    )
    made = f"<br><small>{first}</small>" if first else ""
    if others or row.lines:
        code = "\n".join(f"{language}: {text}" for language, text in row.lines.items())
        read = f"<pre>{_escape_lines(code)}</pre>" if code else ""
        made += f"<details><summary>more</summary><small>{others}</small>{read}</details>"
    return made


def _spell_dtype(view: View) -> str:
    """Return the type of the elements: fields by their names, texts with their length in characters or bytes."""
    dtype, stored = view.dtype, view.metadata.dtype
    if dtype is None:
        return "text" if stored.serializer == "vlen-utf8" else stored.native
    if dtype.kind in "SU" and dtype.subdtype is None:
        of, size = ("characters", 4) if dtype.kind == "U" else ("bytes", 1)
        return f"text, up to {dtype.itemsize // size} {of}"
    return dtype.name if dtype.names is None else f"{len(dtype.names)} fields: {', '.join(dtype.names)}"


def _spell_edge(edge: int | tuple[int, ...]) -> str:
    return str(edge) if isinstance(edge, int) else f"({', '.join(map(str, edge[:4]))}{', …' if len(edge) > 4 else ''})"


def describe_axes(view: View) -> list[str]:
    """Return one text for each axis of a whole array, without the axes about which nothing is known."""
    lines = [_describe_axis(view, dimension) for dimension, axis in enumerate(view.axes) if axis != Axis()]
    return [*(f"{line};" for line in lines[:-1]), *lines[-1:]]


def _describe_axis(view: View, dimension: int) -> str:
    """Return an axis' name, its step, and its first and last position if these tell where it lies."""
    axis, count = view.axes[dimension], view.shape[dimension]
    unit, places = describe_dates(axis.unit, axis.calendar) or symbol(axis.unit), view.meaning.positions.get(dimension)
    if (dates := span(axis, count, places)) is not None:
        words = f"{dates.first} \u2026 {dates.last}" if count > 1 else dates.first
        return ", ".join(filter(None, (f"{axis.name or dimension}: {words}", dates.every, axis.calendar)))
    ends: list[float] = []
    if places is not None and count:
        ends = [float(places[0]), float(places[-1])]
    elif axis.scale is not None and count and (axis.offset or is_time(axis) or is_geographic(axis)):
        ends = [axis.offset, axis.offset + (count - 1) * axis.scale]
    parts = []
    if ends:
        parts.append(_append_unit(" \u2026 ".join(map(_spell_number, ends[:count])), unit))
    if axis.scale is not None and not is_channel(axis):
        parts.append(f"step {_append_unit(_spell_number(axis.scale), None if ends else unit)}")
    elif unit and not ends:
        parts.append(f"in {unit}")
    return f"{axis.name or dimension}{': ' if parts else ''}{', '.join(parts)}"


def _append_unit(text: str, unit: str | None) -> str:
    return f"{text} {unit}" if unit else text


def _spell_number(value: float) -> str:
    """Return a number for people. It is spelled without an exponent if it has at most twelve digits, as times often have."""
    return f"{value:.12g}" if 1e6 <= abs(value) < 1e12 else f"{value:.6g}"


def _spell_bytes(count: int) -> str:
    """Return a number of bytes for people, such as `1.5 MiB`."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if size < 1000:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.3g} {unit}"
