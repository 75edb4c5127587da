"""What one listing comes across, kept for the page of the group, which then costs little extra.

The row of similar arrays is made once, and each array's name and axes are put in. Not here: the page (`group_page.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from fsbridge.layouts.files.arrays.description import Described, is_plain, reading_lines
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.names import Neighbours
from fsbridge.layouts.files.filetypes import reasons
from fsbridge.layouts.files.looks.page import MemberRow, axes_text, row_html, shown
from fsbridge.layouts.members import Opener
from fsbridge.layouts.nodes import file_name
from fsbridge.model import Child, Group
from fsbridge.tree import MAX_NAME

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
