"""What one listing comes across, kept for the page of the group, which then costs little extra.

The row of arrays that are alike is made once, and each array's name is put in. Not here: the page (`group_page.py`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from fsbridge.layouts.files.arrays.description import is_plain, reading_lines
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.names import Neighbours
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.filetypes import reasons
from fsbridge.layouts.files.looks.page import MemberRow, axes_text, row_html
from fsbridge.layouts.members import Opener
from fsbridge.layouts.nodes import file_name
from fsbridge.model import Child, Group
from fsbridge.tree import MAX_NAME

MOST_ROWS = 2000
"""Members that a page shows."""

_NAME = "fsbridge-NAME-7d1f"
"""Placeholder for an array's name in a remembered row. In another text, a name without special letters would replace it."""

_LONGEST = 200
"""Most characters of a name that can be followed by any suffix without becoming too long for a file name."""


class Rows:
    """The members that one listing has come across so far."""

    def __init__(self) -> None:
        self.members: list[Child] = []
        """The first `MOST_ROWS` + 1 members, in the order of the listing."""
        self._groups: dict[str, Group] = {}
        self._arrays: dict[str, tuple[OpenArray, Hashable]] = {}
        self._alike: dict[Hashable, str] = {}  # finished rows with a placeholder

    def member(self, child: Child) -> None:
        """Remember a member."""
        if len(self.members) <= MOST_ROWS:
            self.members.append(child)

    def array(self, array: OpenArray, alike: Hashable) -> None:
        """Remember an array. `alike`: equal for arrays that differ at most in plain names and in attributes."""
        if len(self._arrays) <= MOST_ROWS:
            self._arrays[array.name] = array, alike

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
        if name not in self._arrays:
            return None
        array, alike = self._arrays[name]
        if not is_plain(name) or len(name) > _LONGEST or neighbours.names:
            return array_row(name, array.view(), neighbours)
        if alike not in self._alike:
            self._alike[alike] = row_html(array_row(_NAME, replace(array.view(), name=_NAME), neighbours))
        return MemberRow(name, "array", html=self._alike[alike].replace(_NAME, name))


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
