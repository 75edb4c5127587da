"""Groups of a file: pages of members with all their descriptions, memoised by the file's version within a budget.

A walk of a file asks once per group instead of several times per dataset. Not here: what a description becomes
(`source.py`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fsbridge.children.client import ChildDied
from fsbridge.errors import CorruptData
from fsbridge.formats.hdf5 import answers
from fsbridge.formats.hdf5.answers import HDF5Member
from fsbridge.formats.hdf5.file import HDF5File
from fsbridge.formats.shared import Shared, SharedPart
from fsbridge.lru import LRU
from fsbridge.metadata import JSON
from fsbridge.store import Stat

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Some members of a group in the order of the file. The first page has the group's attributes and address, too.

    `descriptions`: the child's answer for a member by name, as JSON. `following`: number of the next page's first member,
    None after the last page.
    """

    stat: Stat
    members: Mapping[str, HDF5Member]
    descriptions: Mapping[str, bytes]
    following: int | None
    address: int | None
    attributes: Mapping[str, JSON] | None
    nbytes: int


class PageKey(NamedTuple):
    """Identifies a page: version and file (as opened with its options), group, number of the first member."""

    file: HDF5File
    version: Hashable
    path: Path
    start: int


class KeptPages(SharedPart):
    """The pages that are kept, for all files of the mount."""

    def __init__(self) -> None:
        self.by_key: LRU[PageKey, GroupPage] = LRU(32 << 20)  # bytes: some 30,000 datasets
        self.latest: LRU[PageKey, int] = LRU(256)
        """For each group the start of the page that was used last. The next wanted member is probably in the same page."""


def read_page(file: HDF5File, path: Path, start: int) -> GroupPage:
    """Return the members of the group at `path` from number `start`, as the file is now. Raises what `HDF5File.ask` does.

    If a member ends the child, the group is listed by names alone.
    """
    kept = file.shared.of(KeptPages).by_key
    kept_page = kept.get(PageKey(file, file.current().stat.version, path, start))
    if kept_page is not None:
        return kept_page
    question = {"op": "group", "path": list(path), "start": start}
    try:
        # The child sends at most half of these bytes of descriptions, and one description more.
        answer, attachments, stat = file.ask(question, limit=4 << 20)
    except ChildDied:
        return _read_names(file, path, start)
    members, following = answers.parse_members(answer)
    texts = answers.parse_descriptions(answer, attachments)
    # A member takes 300 bytes beside its description.
    new = GroupPage(
        stat=stat,
        members={member.name: member for member in members},
        descriptions={member.name: text for member, text in zip(members, texts, strict=True) if text},
        following=answers.check_next(file.path, path, start, following),
        address=answers.parse_address(answer.get("address")),
        attributes=answers.parse_attributes(answer) if start == 0 else None,
        nbytes=len(attachments[0]) + 300 * len(members) + len(repr(answer.get("attributes"))),
    )
    if stat.settled:
        kept.put(PageKey(file, stat.version, path, start), new, new.nbytes)
    return new


def find_description(file: HDF5File, path: Path, name: str) -> tuple[bytes, Stat] | None:
    """Return the last listing's description of a member, as JSON, if the file is unchanged."""
    version = file.current().stat.version
    group, pages = PageKey(file, version, path, 0), file.shared.of(KeptPages)
    for begin in dict.fromkeys((pages.latest.get(group) or 0, 0)):
        start: int | None = begin
        while start is not None and (kept_page := pages.by_key.get(group._replace(start=start))) is not None:
            if name in kept_page.members:
                pages.latest.put(group, start)
                description = kept_page.descriptions.get(name)
                return None if description is None else (description, kept_page.stat)
            start = kept_page.following
    return None


def _read_names(file: HDF5File, path: Path, start: int) -> GroupPage:
    """Return a page without descriptions, for which no member is opened. It is not kept."""
    answer, _, stat = file.ask({"op": "names", "path": list(path), "start": start})
    members, following = answers.parse_members(answer)
    listed = {member.name: member for member in members}
    following = answers.check_next(file.path, path, start, following)
    return GroupPage(stat, listed, {}, following, answers.parse_address(answer.get("address")), None, 0)


def read_attributes(file: HDF5File, path: Path) -> Mapping[str, JSON]:
    """Return the attributes of the group at `path`."""
    if file.current().stat.settled:  # otherwise the page would not be kept
        values = read_page(file, path, 0).attributes
        if values is not None:
            return values
    try:
        return answers.parse_attributes(file.ask({"op": "attributes", "path": list(path)})[0])
    except ChildDied:
        return _read_one_by_one(file, path)


def read_description(file: HDF5File, path: Path) -> tuple[Mapping[str, Any], Stat]:
    """Return the last listing's description of the member at `path`, or ask for it."""
    member = find_description(file, path[:-1], path[-1])
    return read_node(file, path) if member is None else (json.loads(member[0]), member[1])


def read_node(file: HDF5File, path: Path) -> tuple[Mapping[str, Any], Stat]:
    """Ask what is at `path`. If its attributes end the child, each of them is asked for by itself."""
    question = {"op": "node", "path": list(path)}
    try:
        answer, _, stat = file.ask(question)
    except ChildDied as error:
        try:
            answer, _, stat = file.ask(question | {"op": "node", "bare": True, "what": "without attributes"})
        except ChildDied:
            raise error from None
        answer = {**answer, "attributes": _read_one_by_one(file, path)}
    return answer, stat


def _read_one_by_one(file: HDF5File, path: Path) -> dict[str, JSON]:
    """Return the attributes of an object, each asked for by itself."""
    names = answers.parse_texts(file.ask({"op": "attribute_names", "path": list(path)})[0], "names")
    values: dict[str, JSON] = {}
    for number, name in enumerate(names):
        question = {"op": "attribute", "path": list(path), "number": number, "what": str(number)}
        try:
            values[name] = file.ask(question)[0].get("value")
        except (ChildDied, CorruptData) as error:
            values[name] = {"_ERROR": f"attribute cannot be read: {str(error)[:300]}"}
    return values


def read_address(file: HDF5File, path: Path) -> int:
    """Return the address of the group at `path` in the file."""
    first_page = file.shared.of(KeptPages).by_key.get(PageKey(file, file.current().stat.version, path, 0))
    if first_page is not None and first_page.address is not None:
        return first_page.address
    # No group has this many members, so only the group itself is asked for.
    answer, _, _ = file.ask({"op": "names", "path": list(path), "start": 1 << 62})
    return answers.parse_address(answer.get("address"))


def forget(files: Collection[HDF5File], shared: Shared) -> None:
    """Drop what is kept for files that are closed."""
    pages = shared.of(KeptPages)
    pages.by_key.drop_where(lambda key: key.file in files)
    pages.latest.drop_where(lambda key: key.file in files)
