"""The content of `index.html` for a group, or for a store that is one array: its present members, from metadata alone.

What a listing finds about a group's members is kept for its page, which then costs little extra: the row of similar arrays
is made once, and each array's name and axes are put in. Not here: the HTML (`page.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple, cast

from fsbridge.asking import before_waiting
from fsbridge.errors import FsbridgeError, NotFound, is_lasting
from fsbridge.layouts.conventions import greatest
from fsbridge.layouts.files.arrays.description import Described, is_plain, reading_lines
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.names import Neighbours
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.arrays.selection import whole
from fsbridge.layouts.files.filetypes import reasons
from fsbridge.layouts.files.groups.images import level_names
from fsbridge.layouts.files.groups.surroundings import Around, OpenGroup, known_attributes
from fsbridge.layouts.files.looks.page import MemberRow, WebPage, axes_text, page, row_html, shown
from fsbridge.layouts.files.looks.plates import PICTURE, plate_of
from fsbridge.layouts.members import Opener, openers
from fsbridge.layouts.nodes import file_name
from fsbridge.metadata import JSON
from fsbridge.model import Child, Group, Link, Node, as_array
from fsbridge.tree import MAX_NAME

NAME = "index.html"
"""What the page is called."""

MOST_ROWS = 2000
"""Members that a page shows."""

_NAME, _AXES = "fsbridge-NAME-7d1f", "fsbridge-AXES-7d1f"
"""Placeholders for an array's name and axes in a remembered row. No other text of the row contains them."""

_LONGEST = 200
"""Most characters of a name that can be followed by any suffix without becoming too long for a file name."""


class _Seen(NamedTuple):
    view: View
    alike: Described


class Rows:
    """The members that one listing has come across so far."""

    def __init__(self) -> None:
        self.members: list[Child] = []
        """The first `MOST_ROWS` + 1 members, in the order of the listing."""
        self._groups: dict[str, Group] = {}
        self._arrays: dict[str, _Seen] = {}
        self._alike: dict[Described, str | None] = {}  # finished rows with placeholders

    def member(self, child: Child) -> None:
        """Remember a member."""
        if len(self.members) <= MOST_ROWS:
            self.members.append(child)

    def array(self, view: View, alike: Described) -> None:
        """Remember an array's view. `alike`: the key under which similar arrays share a description and a row."""
        if len(self._arrays) <= MOST_ROWS:
            self._arrays[view.name] = _Seen(view, alike)

    def group(self, name: str, group: Group) -> None:
        """Remember a group."""
        if len(self._groups) <= MOST_ROWS:
            self._groups[name] = group

    def opener(self, name: str) -> Opener | None:
        """Return a function that returns a remembered group without opening it; None if it is not remembered."""
        group = self._groups.get(name)
        return None if group is None else lambda: group

    def row(self, name: str, neighbours: Neighbours) -> MemberRow | None:
        """The row of an array; None if the array is not remembered and must be opened for it."""
        seen = self._arrays.get(name)
        if seen is None:
            return None
        plain = is_plain(name) and len(name) <= _LONGEST and not neighbours.names
        html = self._row_of_all(seen.alike) if plain else None
        if html is None:
            return array_row(name, seen.view, neighbours)
        return MemberRow(name, "array", html=html.replace(_NAME, name).replace(_AXES, shown(axes_text(seen.view.axes))))

    def _row_of_all(self, alike: Described) -> str | None:
        """Return the row of arrays equal to `alike`, with placeholders; None if its own text contains a placeholder."""
        if alike not in self._alike:
            view = replace(alike.view, name=_NAME)
            dtype = view.metadata.dtype
            words = (dtype.native, dtype.name, repr(dtype.numpy), view.metadata.codec)
            clash = any(_NAME in text or _AXES in text for text in words)
            row = None if clash else row_html(replace(array_row(_NAME, view, Neighbours()), axes=_AXES))
            self._alike[alike] = row
        return self._alike[alike]


def array_row(name: str, view: View, neighbours: Neighbours, remark: str | None = None) -> MemberRow:
    """Return the row of an array that is called `name`."""
    fits, stem, leave = reasons(view), file_name(name, frozenset()), neighbours.leave
    suffixes = [
        suffix
        for suffix in ("json", *(suffix for suffix, reason in fits.items() if reason is None))
        if leave(name, suffix) and len(stem) + 1 + len(suffix) <= MAX_NAME
    ]
    preview = next((suffix for suffix in ("preview.svg", "preview.png") if suffix in suffixes), None)
    lines = reading_lines(view) if "raw" in suffixes else {}
    lines = {language: text for language, text in lines.items() if language != "c"}
    codec, axes = view.metadata.codec, axes_text(view.axes)
    return MemberRow(name, "array", stem, suffixes, preview, view, axes, codec, lines, remark)


def group_page(shown: OpenGroup, group: Group, store: str, seen: Rows | None = None) -> bytes:
    """Return the page of a group. `store`: the name of the whole store; `seen`: what a listing has just found."""
    if seen is None:
        before_waiting()
    member, damage = shown.path.member, None
    attributes: Mapping[str, JSON] = {}
    try:
        attributes = group.attributes()
    except (FsbridgeError, OSError) as error:
        if not is_lasting(error):
            raise
        damage = str(error)
    around = shown.fresh() if seen is None else shown.last_around()
    members = list(islice(group.children(), MOST_ROWS + 1)) if seen is None else seen.members
    more = members[MOST_ROWS:]
    members = sorted(members[:MOST_ROWS], key=lambda child: _in_order(child.name))
    names = member.names
    with member.context.together():
        rows = list(_rows(shown, group, members, around, seen or Rows()))
    content = WebPage(
        title=names[-1] if names else store,
        store=f"/{'/'.join(names)} in {store}" if names else "the whole store",
        format=member.context.format_at(names).name,
        above=[store, *names[:-1]] if names else [],
        attributes=attributes,
        rows=rows,
        more=bool(more),
        picture=None if plate_of(attributes) is None else PICTURE,
        damage=damage,
    )
    return page(content)


def array_page(array: OpenArray, store: str, format: str) -> bytes:
    """Return the page of a store that is one array."""
    rows = [array_row(array.name, array.view(), Neighbours())]
    return page(WebPage(store, "the whole store", format, [], dict(array.metadata.shown_attributes()), rows))


def _in_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key that orders numbers in names by value: `s2` before `s10`."""
    return [(int(part), "") if part.isdecimal() and len(part) < 20 else (-1, part) for part in re.split(r"([0-9]+)", name)]


def _rows(shown: OpenGroup, group: Group, members: list[Child], around: Around, seen: Rows) -> Iterator[MemberRow]:
    for child, opener in openers(group, members, shown.path.member.context.config.is_remote):
        try:
            known = None if child.link is not None else seen.row(child.name, around.neighbours)
            yield known or _row(shown, group, child, seen.opener(child.name) or opener, around)
        except NotFound:
            continue  # removed meanwhile
        except (FsbridgeError, OSError) as error:
            if isinstance(error, OSError) and not is_lasting(error):
                raise
            yield MemberRow(child.name, "error", remark=str(error))


def _row(shown: OpenGroup, group: Group, child: Child, opener: Opener, around: Around) -> MemberRow:
    member = shown.path.member
    path = file_name(child.name, frozenset())
    names = (*member.names, child.name)
    if child.link is None and around.surroundings.impartial and (brief := group.brief(child.name)) is not None:
        x_first = member.context.format_at(names).first_axis_fastest
        axes = around.surroundings.axes(brief.metadata, names, x_first, brief.shared)
        most = greatest(brief.metadata)
        view = View(child.name, brief.metadata, whole(brief.metadata.shape), axes, x_first, greatest=most)
        return array_row(child.name, view, around.neighbours)
    node: Node = Link(child.link) if child.link is not None else opener()
    remark = None
    if isinstance(node, Link):
        remark, resolved = f"link to {node.target}", shown.resolved(node)
        if resolved is None or isinstance(resolved, Link):
            return MemberRow(child.name, "link", remark=f"{remark}, which leads nowhere")
        node = resolved
    array = as_array(node)
    if array is not None:
        return array_row(child.name, shown.opened(child.name, array, around).view(), around.neighbours, remark)
    pyramid = level_names(known_attributes(cast(Group, node)))
    leave = partial(around.neighbours.leave, child.name)
    preview = "preview.png" if pyramid and leave("preview.png") else None
    suffixes = [suffix for suffix in ("h5",) if leave(suffix) and len(path) + 3 <= MAX_NAME]
    return MemberRow(child.name, "group", path, suffixes, preview, remark="pyramid" if pyramid else remark)
