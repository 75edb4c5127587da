"""Groups as the child tells of them: a page of members at a time with all their descriptions, remembered within a budget.

A walk of a file asks once per group instead of several times per dataset. What is remembered is of one version of the file,
so that it is either still true or never asked for again. Not here: what becomes of a description (`source.py`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fsbridge.children.client import ChildDied
from fsbridge.errors import CorruptData
from fsbridge.formats.hdf5 import answers
from fsbridge.formats.hdf5.answers import Member
from fsbridge.formats.hdf5.file import HDF5File
from fsbridge.lru import LRU
from fsbridge.metadata import JSON
from fsbridge.store import Stat

PAGES_BYTES = 32 << 20
"""Memory for pages, of all files together: some 30,000 datasets."""
PAGE_LIMIT_BYTES = 4 << 20
"""Bytes of descriptions in one answer; the child sends half of it at most, and one description more."""
MEMBER_BYTES = 300
"""Memory of a member beside its description."""
LATEST_GROUPS = 256
"""Groups of which it is known where somebody is in them."""

BEYOND_MEMBERS = 1 << 62
"""Number of no member: to ask for nothing but the group itself."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Some members of a group in the order of the file; the first page of a group also has its attributes and address.

    `descriptions`: by name, what the child answers about a member, as JSON. `following`: number of the next page's first
    member, None after the last page.
    """

    stat: Stat
    members: Mapping[str, Member]
    descriptions: Mapping[str, bytes]
    following: int | None
    address: int | None
    attributes: Mapping[str, JSON] | None
    nbytes: int


class Key(NamedTuple):
    """Which page: of which version of which file (as opened with its options), of which group, from which member on."""

    file: HDF5File
    version: Hashable
    path: Path
    start: int


_pages: LRU[Key, Page] = LRU(PAGES_BYTES)
_latest: LRU[Key, int] = LRU(LATEST_GROUPS)
"""Where the page begins that had the member of a group which was described last: the next one is near."""


def page(file: HDF5File, path: Path, start: int) -> Page:
    """The members of the group at `path` from number `start` on, as the file is now. Raises what `HDF5File.ask` does.

    A group of which one member ends the child is listed by name alone.
    """
    found = _pages.get(Key(file, file.current().stat.version, path, start))
    if found is not None:
        return found
    question = {"op": "group", "path": list(path), "start": start}
    try:
        answer, attachments, stat = file.ask(question, limit=PAGE_LIMIT_BYTES)
    except ChildDied:
        return _names(file, path, start)
    members, following = answers.members(answer)
    texts = answers.descriptions(answer, attachments)
    new = Page(
        stat=stat,
        members={member.name: member for member in members},
        descriptions={member.name: text for member, text in zip(members, texts, strict=True) if text},
        following=answers.later(file.path, path, start, following),
        address=answers.address(answer.get("address")),
        attributes=answers.attributes(answer) if start == 0 else None,
        nbytes=len(attachments[0]) + MEMBER_BYTES * len(members) + len(repr(answer.get("attributes"))),
    )
    if stat.settled:
        _pages.put(Key(file, stat.version, path, start), new, new.nbytes)
    return new


def described(file: HDF5File, path: Path, name: str) -> tuple[bytes, Stat] | None:
    """What the last listing of the group at `path` said about a member, as JSON, if the file is still the same."""
    version = file.current().stat.version
    group = Key(file, version, path, 0)
    for begin in dict.fromkeys((_latest.get(group) or 0, 0)):
        start: int | None = begin
        while start is not None and (found := _pages.get(group._replace(start=start))) is not None:
            if name in found.members:
                _latest.put(group, start)
                description = found.descriptions.get(name)
                return None if description is None else (description, found.stat)
            start = found.following
    return None


def _names(file: HDF5File, path: Path, start: int) -> Page:
    """A page without descriptions, which opens no member; not remembered."""
    answer, _, stat = file.ask({"op": "names", "path": list(path), "start": start})
    members, following = answers.members(answer)
    listed = {member.name: member for member in members}
    return Page(
        stat, listed, {}, answers.later(file.path, path, start, following), answers.address(answer.get("address")), None, 0
    )


def attributes(file: HDF5File, path: Path) -> Mapping[str, JSON]:
    """The attributes of the group at `path`."""
    if file.current().stat.settled:  # else nothing would be remembered of a page
        found = page(file, path, 0).attributes
        if found is not None:
            return found
    try:
        return answers.attributes(file.ask({"op": "attributes", "path": list(path)})[0])
    except ChildDied:
        return _one_by_one(file, path)


def description(file: HDF5File, path: Path) -> tuple[Mapping[str, Any], Stat]:
    """What the last listing said about the member at `path`, else what is there, asked for by itself."""
    found = described(file, path[:-1], path[-1])
    return node(file, path) if found is None else (json.loads(found[0]), found[1])


def node(file: HDF5File, path: Path) -> tuple[Mapping[str, Any], Stat]:
    """What is at `path`, asked for by itself. Attributes that end the child are described, and all else is as it is."""
    question = {"op": "node", "path": list(path)}
    try:
        answer, _, stat = file.ask(question)
    except ChildDied as error:
        try:
            answer, _, stat = file.ask(question | {"op": "node", "bare": True, "what": "without attributes"})
        except ChildDied:
            raise error from None
        answer = {**answer, "attributes": _one_by_one(file, path)}
    return answer, stat


def _one_by_one(file: HDF5File, path: Path) -> dict[str, JSON]:
    """The attributes of an object, each asked for by itself."""
    names = answers.texts(file.ask({"op": "attribute_names", "path": list(path)})[0], "names")
    found: dict[str, JSON] = {}
    for number, name in enumerate(names):
        question = {"op": "attribute", "path": list(path), "number": number, "what": str(number)}
        try:
            found[name] = file.ask(question)[0].get("value")
        except (ChildDied, CorruptData) as error:
            found[name] = {"_ERROR": f"attribute cannot be read: {str(error)[:300]}"}
    return found


def address(file: HDF5File, path: Path) -> int:
    """Where the group at `path` is in the file."""
    found = _pages.get(Key(file, file.current().stat.version, path, 0))
    if found is not None and found.address is not None:
        return found.address
    answer, _, _ = file.ask({"op": "names", "path": list(path), "start": BEYOND_MEMBERS})
    return answers.address(answer.get("address"))


def forget(files: Collection[HDF5File]) -> None:
    """Drop what is remembered of files that are closed."""
    _pages.drop_where(lambda key: key.file in files)
    _latest.drop_where(lambda key: key.file in files)
