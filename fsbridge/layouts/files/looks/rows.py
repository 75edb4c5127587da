"""What one listing comes across, kept for the page of the group, which then costs little extra.

The row of arrays that are alike is made once, and each array's name is put in. Not here: the page (`group_page.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from fsbridge.layouts.files.arrays.description import is_plain, make_reading_lines
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.names import Neighbours
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.filetypes import ALIASES, reasons
from fsbridge.layouts.files.looks.page import MemberRow, make_row_html
from fsbridge.layouts.files.looks.previews.sampling import is_table
from fsbridge.layouts.files.looks.values import PageValues, has_value
from fsbridge.layouts.members import Opener
from fsbridge.layouts.nodes import file_name
from fsbridge.meaning import Axis
from fsbridge.meaning.kinds import is_geographic, is_time
from fsbridge.model import Child, Group
from fsbridge.tree import MAX_NAME

MOST_ROWS = 2000
"""Members that a page shows."""

_NAME = "fsbridge-NAME-7d1f"
"""Placeholder for an array's name in a remembered row. In another text, a name without special letters would replace it."""

_LONGEST = 200
"""Most characters of a name that can be followed by any suffix without becoming too long for a file name."""


class SeenMembers:
    """The members that one listing has come across so far, for the group's page."""

    def __init__(self) -> None:
        self.members: list[Child] = []
        """The first `MOST_ROWS` + 1 members, in the order of the listing."""
        self._groups: dict[str, Group] = {}
        self._arrays: dict[str, tuple[OpenArray, Hashable]] = {}
        self._alike: dict[Hashable, str] = {}  # finished rows with a placeholder

    def add_member(self, child: Child) -> None:
        """Remember a member."""
        if len(self.members) <= MOST_ROWS:
            self.members.append(child)

    def add_array(self, array: OpenArray, alike: Hashable) -> None:
        """Remember an array. `alike`: a key that is equal for arrays that differ only in plain names and in attributes."""
        if len(self._arrays) <= MOST_ROWS:
            self._arrays[array.name] = array, alike

    def add_group(self, name: str, group: Group) -> None:
        """Remember a group."""
        if len(self._groups) <= MOST_ROWS:
            self._groups[name] = group

    def find_opener(self, name: str) -> Opener | None:
        """Return a function that returns a remembered group without opening it again.

        None if the group is not remembered.
        """
        group = self._groups.get(name)
        return None if group is None else lambda: group

    def make_row(self, name: str, neighbours: Neighbours, values: PageValues) -> MemberRow | None:
        """Make the row of a remembered array. None if the array is not remembered, so that it must be opened for its row."""
        if name not in self._arrays:
            return None
        array, alike = self._arrays[name]
        view = array.make_view()
        if not is_plain(name) or len(name) > _LONGEST or neighbours.names or has_value(view):
            return make_array_row(name, view, neighbours, values.spell(array))
        key = alike, view.meaning.long_name
        if key not in self._alike:
            self._alike[key] = make_row_html(make_array_row(_NAME, replace(view, name=_NAME), neighbours))
        return MemberRow(name, "array", html=self._alike[key].replace(_NAME, name))


def make_array_row(
    name: str, view: View, neighbours: Neighbours, value: str | None = None, remark: str | None = None
) -> MemberRow:
    """Make the row of the array `name`. `value`: the array's only value, as text, if the page shows that."""
    fits, stem, allow = reasons(view), file_name(name, frozenset()), neighbours.allow
    possible = [suffix for suffix, reason in fits.items() if reason is None]
    possible += [alias for alias, suffix in ALIASES.items() if suffix in possible]
    suffixes = [suffix for suffix in ("json", *possible) if allow(name, suffix) and len(stem) + 1 + len(suffix) <= MAX_NAME]
    preview = next((suffix for suffix in ("preview.svg", "preview.png") if suffix in suffixes), None)
    wanted = next((suffix for suffix in _choose_first(view) if suffix in suffixes), None)
    first = [suffix for suffix in (wanted, "npy", preview) if suffix in suffixes]
    lines = make_reading_lines(view) if "raw" in suffixes else {}
    lines = {language: text for language, text in lines.items() if language != "c"}
    return MemberRow(name, "array", stem, suffixes, first, preview, value, view, lines, remark)


def _choose_first(view: View) -> Sequence[str]:
    """Return the suffixes of the files that people open first, the best first. They depend on what the array is."""
    if is_table(view) or view.dtype is None or view.dtype.kind not in "biufc":
        return "csv", "txt", "nc"
    if any(is_geographic(axis) or _is_dated(axis) for axis in view.axes):
        return "nc", "h5"
    if view.image is not None and view.image.channels:
        return "ome.tif", "tif", "h5"
    return "tif", "h5"


def _is_dated(axis: Axis) -> bool:
    """True if an axis is time since a date, which netCDF can say and pictures cannot."""
    return is_time(axis) and " since " in (axis.unit or "")
