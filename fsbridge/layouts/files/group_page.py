"""The content of `index.html` for a group, or for a store that is one array: its present members, from metadata alone.

Not here: the HTML (`page.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import cast

from fsbridge.asking import before_waiting
from fsbridge.errors import SHORTAGES, FsbridgeError, NotFound
from fsbridge.layouts.conventions import greatest
from fsbridge.layouts.files.arrays import OpenArray
from fsbridge.layouts.files.extents import View
from fsbridge.layouts.files.groups import Around, OpenGroup
from fsbridge.layouts.files.levels import members as levels
from fsbridge.layouts.files.listed_rows import MOST_ROWS, Rows, array_row
from fsbridge.layouts.files.names import Neighbours
from fsbridge.layouts.files.page import MemberRow, WebPage, page
from fsbridge.layouts.files.plates import PICTURE, plate_of
from fsbridge.layouts.files.selection import whole
from fsbridge.layouts.member_names import file_name
from fsbridge.layouts.members import Opener, openers
from fsbridge.model import Child, Group, Link, Node, as_array
from fsbridge.tree import MAX_NAME

NAME = "index.html"
"""What the page is called."""


def group_page(shown: OpenGroup, group: Group, store: str, seen: Rows | None = None) -> bytes:
    """Return the page of a group. `store`: the name of the whole store; `seen`: what a listing has just found."""
    if seen is None:
        before_waiting()
    member, attributes = shown.path.member, group.attributes()
    around = shown.fresh() if seen is None else shown.last_around()
    members = list(islice(group.children(), MOST_ROWS + 1)) if seen is None else seen.members
    more = members[MOST_ROWS:]
    members = sorted(members[:MOST_ROWS], key=lambda child: _in_order(child.name))
    names = member.names
    with member.context.together():
        rows = list(_rows(shown, group, members, around, seen or Rows()))
    told = WebPage(
        title=names[-1] if names else store,
        store=f"/{'/'.join(names)} in {store}" if names else "the whole store",
        format=member.context.format_at(names).name,
        above=[store, *names[:-1]] if names else [],
        attributes=attributes,
        rows=rows,
        more=bool(more),
        picture=None if plate_of(attributes) is None else PICTURE,
    )
    return page(told)


def array_page(array: OpenArray, store: str, format: str) -> bytes:
    """Return the page of a store that is one array."""
    rows = [array_row(array.name, array.view(), Neighbours())]
    return page(WebPage(store, "the whole store", format, [], dict(array.metadata.attributes), rows))


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
            if isinstance(error, OSError) and error.errno in SHORTAGES:
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
    pyramid = levels(cast(Group, node).attributes())
    leave = partial(around.neighbours.leave, child.name)
    preview = "preview.png" if pyramid and leave("preview.png") else None
    suffixes = [suffix for suffix in ("h5",) if leave(suffix) and len(path) + 3 <= MAX_NAME]
    return MemberRow(child.name, "group", path, suffixes, preview, remark="pyramid" if pyramid else remark)
