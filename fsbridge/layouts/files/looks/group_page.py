"""The content of `index.html` for a group, or for a store that is one array: its present members, and few values.

Not here: the HTML (`page.py`), rows of members that a listing has come across (`rows.py`), what is linked of a group as a
whole (`group_links.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import cast

from fsbridge.asking import before_waiting
from fsbridge.errors import FsbridgeError, NotFound, is_lasting
from fsbridge.layouts.directories import PathDirectory
from fsbridge.layouts.files.arrays.names import Neighbours
from fsbridge.layouts.files.arrays.open_array import OpenArray
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.groups.surroundings import OpenGroup
from fsbridge.layouts.files.looks.group_links import IMAGE, PICTURES, find_own_files, find_suffixes
from fsbridge.layouts.files.looks.page import MemberRow, WebPage, make_link, make_page
from fsbridge.layouts.files.looks.rows import MOST_ROWS, SeenMembers, make_array_row
from fsbridge.layouts.files.looks.values import PageValues
from fsbridge.layouts.members import Opener, has_child, openers
from fsbridge.layouts.nodes import DocumentFile, file_name
from fsbridge.layouts.surroundings import Look
from fsbridge.meaning.conventions.netcdf import without_notes
from fsbridge.meaning.conventions.xarray import legible
from fsbridge.metadata import JSON
from fsbridge.model import Child, Group, Link, Node, as_array
from fsbridge.tree import MAX_NAME


def make_page_file(shown: OpenGroup, seen: SeenMembers | None = None) -> DocumentFile:
    """Return the page of a group.

    `seen`: members that a listing has just come across, so that they need not be opened again.
    """
    return DocumentFile(partial(_make_group_page_now, shown.path), _make_group_page(shown, seen), shown.group.mtime_ns)


def _make_group_page_now(path: PathDirectory) -> bytes | None:
    shown = path.refresh()
    return _make_group_page(shown) if isinstance(shown, OpenGroup) else None


def _make_group_page(shown: OpenGroup, seen: SeenMembers | None = None) -> bytes:
    if seen is None:
        before_waiting()
    group, member, store, damage = shown.group, shown.path.member, shown.store, None
    attributes: Mapping[str, JSON] = {}
    try:
        attributes = without_notes(group.attributes())
    except (FsbridgeError, OSError) as error:
        if not is_lasting(error):
            raise
        damage = str(error)
    neighbours = shown.neighbours() if seen is None else shown.noted_neighbours
    members = list(islice(group.children(), MOST_ROWS + 1)) if seen is None else seen.members
    more = members[MOST_ROWS:]
    members = sorted(members[:MOST_ROWS], key=lambda child: _make_sort_key(child.name))
    names = member.names
    rows = list(_make_rows(shown, group, members, neighbours, seen or SeenMembers()))
    present = {child.name for child in members}
    files = dict(find_own_files(shown, partial(has_child, group) if more else present.__contains__))
    picture = next((href for name, href in files.items() if name.endswith(PICTURES)), None)
    content = WebPage(
        title=names[-1] if names else store,
        store=f"/{'/'.join(names)} in {store}" if names else "",
        format=member.context.format_at(names).name,
        above=[store, *names[:-1]] if names else [],
        attributes=attributes,
        rows=rows,
        more=bool(more),
        files=list(files.items()),
        picture=picture,
        damage=damage,
    )
    return make_page(content)


def make_array_page(array: OpenArray, store: str, format: str) -> bytes:
    """Return the page of a store with an array as its root."""
    row = make_array_row(array.name, array.make_view(), Neighbours(), PageValues().spell(array))
    picture = None
    if row.preview is not None and row.path is not None and row.value is None:
        picture = make_link(row.path + b"." + row.preview.encode())
    return make_page(WebPage(store, "", format, [], legible(array.metadata), [row], picture=picture))


def _make_sort_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that orders numbers in names by value: `s2` before `s10`."""
    return [(int(part), "") if part.isdecimal() and len(part) < 20 else (-1, part) for part in re.split(r"([0-9]+)", name)]


def _make_rows(
    shown: OpenGroup, group: Group, members: list[Child], neighbours: Neighbours, seen: SeenMembers
) -> Iterator[MemberRow]:
    look, values = shown.look(), PageValues()
    for child, opener in openers(group, members, shown.path.member.context.config.is_remote):
        try:
            known = None if child.link is not None else seen.make_row(child.name, neighbours, values)
            yield known or _make_row(shown, group, child, seen.find_opener(child.name) or opener, look, neighbours, values)
        except NotFound:
            continue  # removed meanwhile
        except (FsbridgeError, OSError) as error:
            if isinstance(error, OSError) and not is_lasting(error):
                raise
            yield MemberRow(child.name, "error", remark=str(error))


def _make_row(
    shown: OpenGroup, group: Group, child: Child, opener: Opener, look: Look, neighbours: Neighbours, values: PageValues
) -> MemberRow:
    path = file_name(child.name, frozenset())
    node: Node = Link(child.link) if child.link is not None else opener()
    remark = None
    if isinstance(node, Link):
        remark, resolved = f"link to {node.target}", shown.resolve_link(node)
        if resolved is None or isinstance(resolved, Link):
            return MemberRow(child.name, "link", remark=f"{remark}, which leads nowhere")
        node = resolved
    array = as_array(node)
    if array is not None:
        opened = shown.open_array(child.name, array, look)
        return make_array_row(child.name, opened.make_view(), neighbours, values.spell(opened), remark)
    member = cast(Group, node)
    if member.is_plain():
        return MemberRow(child.name, "directory", path)
    suffixes = [
        suffix
        for suffix in find_suffixes(member, shown.kinds)
        if neighbours.allow(child.name, suffix) and len(path) + 1 + len(suffix) <= MAX_NAME
    ]
    preview = IMAGE if IMAGE in suffixes else None
    return MemberRow(child.name, "group", path, suffixes, suffixes, preview, remark=remark)


PAGE = GroupFile("index.html", make_page_file, wanted="html", named=False, inside=True, opened=True, of_rows=make_page_file)
