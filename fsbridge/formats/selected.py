"""The selected part of a source: a sub-tree, and in it the groups and arrays that match patterns.

It is between format and layouts, so no file of any layout shows or mentions the rest. Links that lead out of the
sub-tree are refused. Not here: the names of the options (`commands/arguments.py`), files of an export.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate, islice
from shlex import quote
from typing import cast

from fsbridge.asking import before_waiting
from fsbridge.config import Config
from fsbridge.errors import PASSING, AccessDenied, FsbridgeError, NotFound, SetupError
from fsbridge.links import follow
from fsbridge.metadata import JSON, Format
from fsbridge.model import Array, Child, Group, Link, Node, OtherFile, Source, StoredFile, as_array
from fsbridge.threads.parallel import each

OPENED_AT_ONCE, OPENED_AHEAD = 32, 128
"""Members opened to learn whether they are groups: most in parallel (remote stores only), and most in one batch."""

SEARCHED_GROUPS = 1000
"""Most groups that are searched for something that `--include` matches, before a mount begins."""


def select(source: Source, config: Config) -> Source:
    """Return `source`, or the part of it that `config` selects."""
    if not (config.inside or config.include or config.exclude):
        return source
    return SelectedSource(source, config)


def check_selection(source: Source, config: Config) -> None:
    """Raise SetupError if `--include` matches nothing: an empty tree would look like an empty store."""
    root = source.root
    if config.include and isinstance(root, SelectedGroup) and not _holds_something(root):
        patterns = " ".join(f"--include {quote(pattern)}" for pattern in config.include)
        hint = f"see what there is: fsbridge info {quote(config.place)}"
        raise SetupError(f"{patterns}: no group or array in {config.place} matches", hint)


def _holds_something(root: SelectedGroup) -> bool:
    """True if `include` matches something below the group, or may do so."""
    pending = [root]
    for _ in range(SEARCHED_GROUPS):
        if not pending:
            return False
        group = pending.pop()
        try:
            for child in group.children():
                if group.takes(child.name):
                    return True
                node = group.child(child.name)
                if isinstance(node, SelectedGroup):
                    pending.append(node)
        except (FsbridgeError, OSError):  # what is there cannot be read, which using it will report
            return True
    return True


@dataclass(frozen=True, slots=True)
class Choice:
    """The patterns (`fnmatch`) that select nodes by their path from the mounted root; `*` matches `/`, too.

    A pattern that matches a group selects everything below it. `remote`: opening a member takes requests.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    remote: bool = False

    def excludes(self, path: str) -> bool:
        """True if the node at `path` and everything below it are left out."""
        return _matches(path, self.exclude)

    def includes(self, path: str) -> bool:
        """True if `include` selects the node at `path` and everything below it."""
        return not self.include or _matches(path, self.include)

    def leads_on(self, path: str) -> bool:
        """True if `include` may select something below `path`."""
        return any(_may_match_below(pattern, path) for pattern in self.include)


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _may_match_below(pattern: str, path: str) -> bool:
    literal = pattern[: min((pattern.index(sign) for sign in "*?[" if sign in pattern), default=len(pattern))]
    below = f"{path}/"
    return literal.startswith(below) or (literal != pattern and below.startswith(literal))


class SelectedSource(Source):
    """`model.Source` of a part of another source, which it owns."""

    def __init__(self, source: Source, config: Config) -> None:
        self._source = source
        self._inside = config.inside
        self._choice = Choice(
            tuple(pattern.strip("/") for pattern in config.include),
            tuple(pattern.strip("/") for pattern in config.exclude),
            config.is_remote,
        )
        self._above: tuple[str, ...] = ()  # where the sub-tree was found last

    @property
    def format(self) -> Format:
        """The format of the sub-tree."""
        return self._source.format_at(self._above)

    @property
    def root(self) -> Group | Array:
        """The node that is now at the sub-tree's path, links followed. Raises NotFound if there is none."""
        self._above, node = self._find()
        if as_array(node) is not None:
            return node
        return SelectedGroup(cast(Group, node), self._above, (), self._choice, not self._choice.include)

    def format_at(self, path: Sequence[str]) -> Format:
        return self._source.format_at((*self._above, *path))

    @property
    def remark(self) -> str | None:
        return self._source.remark

    @property
    def rests(self) -> bool:
        return self._source.rests

    @property
    def lease(self) -> object:
        return self._source.lease

    def rest(self) -> None:
        self._source.rest()

    def close(self) -> None:
        self._source.close()

    def _find(self) -> tuple[tuple[str, ...], Group | Array]:
        target = follow(self._source.root, self._inside)
        return tuple(name for name, _ in target.trail), target.node


def _join(names: Sequence[str], target: str) -> list[str]:
    """Return the path, from the root, of a link's target; the link is in the group at `names`.

    Raises AccessDenied if the target leads above the root.
    """
    if not _stays(names, target):
        raise AccessDenied(f"a link leads out of the store: {target}")
    place = list(names)
    for part in _parts(target):
        place = place[:-1] if part == ".." else [*place, part]
    return place


def _stays(names: Sequence[str], target: str) -> bool:
    """True if no step of a link's target leads above the root; the link is in the group at `names`."""
    depths = accumulate((-1 if part == ".." else 1 for part in _parts(target)), initial=len(names))
    return min(depths) >= 0


def _parts(target: str) -> list[str]:
    return [part for part in target.split("/") if part not in ("", ".")]


def _text(names: Sequence[str]) -> str:
    """Return a path for patterns and messages, as it is in the mount: a `/` in a name is escaped."""
    return "/".join(name.replace("/", "%2F") for name in names)


@dataclass(frozen=True, slots=True)
class SelectedGroup(Group):
    """`model.Group`: a group with only its selected members.

    `above`: path of the sub-tree in the source; `names`: path of this group in the sub-tree. `whole`: the whole group is
    included, because the path of the group, or of one above it, matches.
    """

    group: Group
    above: tuple[str, ...]
    names: tuple[str, ...]
    choice: Choice
    whole: bool

    @property
    def version(self) -> Hashable:
        return self.group.version

    @property
    def listing_version(self) -> Hashable:
        return self.group.listing_version

    def current(self) -> bool:
        return self.group.current()

    @property
    def mtime_ns(self) -> int:
        return self.group.mtime_ns

    def directory_ns(self) -> int | None:
        return self.group.directory_ns()

    def attributes(self) -> Mapping[str, JSON]:
        return self.group.attributes()

    def native(self) -> Mapping[str, JSON]:
        """Return the group's documents without copies of members' documents, because some members may be left out."""
        documents = self.group.native()
        if not self._chooses:
            return documents
        kept = {name: document for name, document in documents.items() if name not in (".zmetadata", "external links")}
        for name, document in kept.items():
            if isinstance(document, dict) and "consolidated_metadata" in document:
                kept[name] = {key: value for key, value in document.items() if key != "consolidated_metadata"}
        return kept

    def whole_file(self) -> StoredFile | None:
        return None if self._chooses else self.group.whole_file()

    def copies(self) -> int:
        return self.group.copies()

    def contradictions(self) -> Iterator[str]:
        return self.group.contradictions()

    def skipped(self) -> Iterator[str]:
        return self.group.skipped()

    def is_plain(self) -> bool:
        return self.group.is_plain()

    def other_file(self, name: str) -> StoredFile | None:
        return self.group.other_file(name) if self.takes(name) else None

    @property
    def costly(self) -> bool:
        return self.group.costly

    def lacks(self, name: str) -> bool:
        return self.takes(name) is False or self.group.lacks(name)

    def prefetch(self, members: Iterable[str]) -> None:
        self.group.prefetch(members)

    def children(self) -> Iterator[Child]:
        return self.listing(lambda file: None)

    def listing(self, others: Callable[[OtherFile], object]) -> Iterator[Child]:
        members = self.group.listing(lambda file: self.takes(file.name) and others(file))
        children = (child for child in members if self.takes(child.name) is not False)
        if self.whole:
            yield from map(self._list_member, children)
            return
        while batch := list(islice(children, OPENED_AHEAD)):
            if self.choice.remote:
                before_waiting()
                shown = each(self._is_here, batch, OPENED_AT_ONCE)
            else:
                shown = list(map(self._is_here, batch))
            yield from (self._list_member(child) for child, here in zip(batch, shown, strict=True) if here)

    def child(self, name: str) -> Node:
        takes = self.takes(name)
        if takes is False:
            raise NotFound(f"/{_text((*self.names, name))}: it is left out by --include or --exclude")
        node = self.group.child(name)
        if takes is None and node.kind != "group":
            raise NotFound(f"/{_text((*self.names, name))}: it is left out by --include")
        if isinstance(node, Link):
            return self._link(name, node.target)
        if as_array(node) is not None:
            return node
        return SelectedGroup(cast(Group, node), self.above, (*self.names, name), self.choice, takes is True)

    @property
    def _chooses(self) -> bool:
        return bool(self.choice.include or self.choice.exclude)

    def takes(self, name: str) -> bool | None:
        """True if a member is shown. None if it is shown only if it is a group, because members below it may be included."""
        if not self._chooses:
            return True
        path = _text((*self.names, name))
        if self.choice.excludes(path):
            return False
        if self.whole or self.choice.includes(path):
            return True
        return None if self.choice.leads_on(path) else False

    def _is_here(self, child: Child) -> bool:
        """True if a member is listed. A member that must be a group, but cannot be opened, is listed to show its error."""
        if self.takes(child.name):
            return True
        if child.link is not None:
            return False
        try:
            return self.group.child(child.name).kind == "group"
        except NotFound:
            return False
        except PASSING:
            raise
        except (FsbridgeError, OSError):
            return True

    def _list_member(self, child: Child) -> Child:
        """Return a member for a listing. A refused link is listed as a plain member, which then cannot be opened."""
        if child.link is None:
            return child
        try:
            return child._replace(link=self._link(child.name, child.link).target)
        except AccessDenied:
            return child._replace(link=None)

    def _link(self, name: str, target: str) -> Link:
        """Return a link of this group, changed if necessary so that it stays in the sub-tree.

        Raises AccessDenied if it leads out of the sub-tree.
        """
        if _stays(self.names, target):
            return Link(target)
        above = len(self.above)
        whole = (*self.above, *self.names)
        place = _join(whole, target) if above and _stays(whole, target) else []
        if not place or tuple(place[:above]) != self.above:
            path = f"/{_text((*self.names, name))}"
            raise AccessDenied(f"{path}: it is a link to {target}, which is outside the part that is mounted")
        return Link("/".join([".."] * len(self.names) + place[above:]) or ".")
