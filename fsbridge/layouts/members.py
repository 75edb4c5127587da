"""`SourceMember`: one path of the source, and what it holds now, the same for every layout. Not here: files (the layouts).

A member is identified by its path alone. It finds out by itself what its path holds now, because the kernel may keep its
directory for as long as a shell stands in it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import NoReturn, TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

from fsbridge.asking import anew, as_listed
from fsbridge.config import Config
from fsbridge.decoded import DecodedArray
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import PASSING, FsbridgeError, NotFound, Stale, TooDeep
from fsbridge.layouts.nodes import RenderedDocuments
from fsbridge.links import dead_end
from fsbridge.metadata import JSON, Format
from fsbridge.model import Array, Child, Group, Link, Node, as_array
from fsbridge.threads.parallel import each

T = TypeVar("T")

Opener: TypeAlias = Callable[[], Node]

log = logging.getLogger(__name__)

OPENED_AT_ONCE, OPENED_AHEAD = 32, 128
"""Members of a remote store opened in parallel, and members in a batch that is opened before any of it is listed."""

GROUPS_ABOVE = 3
"""Number of groups above an array with attributes that may describe it: OME's multi-scales have paths of up to 3 names."""

MAX_REMARKS = 10_000
"""Most left-out members that are remembered, so that each is logged only once."""


class LastLook(dict[Hashable, object]):
    """What was found last around the arrays of one group (`surroundings.Look`)."""


@dataclass(frozen=True, slots=True)
class Context:
    """What all nodes of one mount share."""

    format_at: Callable[[Sequence[str]], Format]
    config: Config
    cache: ChunkCache
    rendered: RenderedDocuments = field(default_factory=RenderedDocuments)
    _remarks: set[tuple[str, tuple[str, ...], str]] = field(default_factory=set)
    _decoded: WeakValueDictionary[Hashable, DecodedArray] = field(default_factory=WeakValueDictionary)
    _last_looks: WeakValueDictionary[tuple[str, ...], LastLook] = field(default_factory=WeakValueDictionary)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def last_look(self, names: tuple[str, ...]) -> LastLook:
        """Return what was found last around the arrays of the group at `names`, for all layouts."""
        with self._lock:
            return self._last_looks.setdefault(names, LastLook())

    def share_chunks(self, array: Array, names: tuple[str, ...] | None = None) -> DecodedArray:
        """Return the decoded chunks of one version of an array.

        All layouts share one object if `names`, its path, is given.
        """
        if names is None:
            return self._decoded_chunks(array)
        key = names, array.version
        with self._lock:
            chunks = self._decoded.get(key)
            if chunks is None:
                chunks = self._decoded[key] = self._decoded_chunks(array)
            return chunks

    def _decoded_chunks(self, array: Array) -> DecodedArray:
        config = self.config
        return DecodedArray(array, self.cache, config.max_direct, config.immutable)

    def note_left_out(self, layout: str, names: tuple[str, ...], reason: str) -> None:
        """Note that a layout does not show a member, so that the log says it once."""
        if (layout, names, reason) not in self._remarks and len(self._remarks) < MAX_REMARKS:
            self._remarks.add((layout, names, reason))
            log.warning("/%s is left out of the layout %s: %s", "/".join(names), layout, reason)


class SourceMember:
    """A path of the source. It knows its names, from the root down, and the member that it lies in."""

    __slots__ = ("_is_new", "_lock", "_node", "_open", "above", "context", "names")

    def __init__(
        self, context: Context, open_node: Callable[[], Node], names: tuple[str, ...] = (), above: SourceMember | None = None
    ) -> None:
        """`above`: the group that has this member; None for the root."""
        self.context = context
        self.names = names
        self.above = above
        self._open = open_node
        self._lock = threading.Lock()
        self._node: Group | Array | None = None
        self._is_new = False  # true if the present question has opened it, which then needs no second look

    def __str__(self) -> str:
        """Return the path, for people."""
        return "/".join(("", *self.names))

    @property
    def root(self) -> SourceMember:
        """The root of the source."""
        return self if self.above is None else self.above.root

    @property
    def native(self) -> Mapping[str, JSON]:
        """The source's own metadata documents by name."""
        node = self.refresh_node()
        array = as_array(node)
        return cast(Group, node).native() if array is None else array.metadata.native

    @property
    def source(self) -> str:
        """The path in the source's own file system."""
        config = self.context.config
        return "/".join((config.source.rstrip("/") or "/", *config.inside, *self.names))

    def share_chunks(self, array: Array) -> DecodedArray:
        """Return the chunks of one version of the array at this path. All layouts share them."""
        return self.context.share_chunks(array, self.names)

    def refresh_node(self) -> Group | Array:
        """Return the path's node as it is now, or as old as a remote store may answer.

        An array with an unchanged version stays the same object.
        """
        node, config, is_new = self._node, self.context.config, self._is_new
        if node is not None and (config.immutable or is_new):
            self._is_new = False
            return node
        # A remote group is only known from its listed keys.
        listed = config.is_remote and node is not None and as_array(node) is None
        with as_listed() if listed else nullcontext():
            latest: Node = node if node is not None and node.current() else self._open_current(node)
        if isinstance(latest, Link):
            raise Stale("a link took the place of this directory")
        new = as_array(latest)
        with self._lock:
            old = None if self._node is None else as_array(self._node)
            if old is not None and new is not None and old.version == new.version:
                latest = old  # the same object keeps its chunk space, so its files keep their inodes
            elif new is None and latest == self._node:
                latest = self._node
            self._node = latest
        return latest

    def _open_current(self, before: Group | Array | None) -> Node:
        """Open the path. If its array or group was replaced or removed, open it again without cached answers.

        The groups above may have changed as well.
        """
        try:
            node = self._open()
        except NotFound:
            if before is None:
                raise
        else:
            if before is None or as_array(before) is None or as_array(node) is not None:
                return node
        with anew():
            return self._open()

    def group(self) -> Group:
        """Return the path's group; Stale if it is an array now."""
        node = self.refresh_node()
        if as_array(node) is not None:
            raise Stale(f"{self} is no group any more")
        return cast(Group, node)

    def attributes_above(self) -> list[Mapping[str, JSON]]:
        """Return the attributes of the nearest groups above, the nearest first. A damaged group counts as having none.

        It is an error only where that group itself is shown.
        """
        all_attributes: list[Mapping[str, JSON]] = []
        above = self.above
        while above is not None and len(all_attributes) < GROUPS_ABOVE:
            try:
                all_attributes.append(above.group().attributes())
            except PASSING:
                raise
            except FsbridgeError:
                all_attributes.append({})
            above = above.above
        return all_attributes

    def child(self, name: str, node: Group | Array | None = None) -> SourceMember:
        """Return the member `name` of this group. `node`: the member, if it has been opened already."""
        limit = self.context.config.limits.depth
        if len(self.names) >= limit:
            raise TooDeep(f"{self}/{name}: there are more than {limit} nested groups")
        member = SourceMember(self.context, partial(self._reopen, name), (*self.names, name), self)
        if node is not None:
            member._node, member._is_new = node, True
        return member

    def _reopen(self, name: str) -> Node:
        node = self.refresh_node()
        if as_array(node) is not None:
            raise NotFound(f"{name!r} is not found, because {self} is an array")
        return cast(Group, node).child(name)


def array_at(group: SourceMember | None, path: str) -> tuple[SourceMember, Array] | None:
    """Return the array at a path from a group, and its group; None if no array is there. `/a/b` is a path from the root.

    Links are not followed, and no path leads out of the store.
    """
    *above, name = path.split("/")
    if group is not None and above and not above[0]:
        group = group.root
    for part in above:
        if group is None:
            return None
        if part == "..":
            group = group.above
        elif part not in ("", "."):
            below = group.group().child(part)
            if isinstance(below, Link) or as_array(below) is not None:
                return None
            group = group.child(part, cast(Group, below))
    node = None if group is None else group.group().child(name)
    array = None if node is None or isinstance(node, Link) else as_array(node)
    return None if group is None or array is None else (group, array)


Note: TypeAlias = Callable[[Child], object]
"""Takes note of a member."""


def without_dead_ends(member: SourceMember, layout: str, children: Iterable[Child], dropped: Note) -> Iterator[Child]:
    """Leave out a group's links that lead nowhere or to themselves, with a line in the log. `dropped` is called for each.

    A program that opens everything listed would fail at them. They can still be opened by name, which is ENOENT or ELOOP.
    """
    links: list[Child] = []
    for child in children:
        if child.link is None:
            yield child
            continue
        links.append(child)
        if len(links) == OPENED_AHEAD:
            yield from _leading(member, layout, links, dropped)
            links = []
    yield from _leading(member, layout, links, dropped)


def _leading(member: SourceMember, layout: str, links: list[Child], dropped: Note) -> Iterator[Child]:
    if not links:
        return
    root = member.root.refresh_node()

    def find_end(child: Child) -> str | None:
        return dead_end(root, member.names, Link(child.link or ""))

    reasons = each(find_end, links, OPENED_AT_ONCE) if member.context.config.is_remote else map(find_end, links)
    for child, reason in zip(links, reasons, strict=True):
        if reason is None:
            yield child
        else:
            member.context.note_left_out(layout, (*member.names, child.name), reason)
            dropped(child)


def child_or_none(group: Group, name: str, lacks: Callable[[str], bool] = lambda name: False) -> Node | None:
    """Return the member `name` of a group; None if it does not exist, or if `lacks(name)` is true."""
    try:
        return None if lacks(name) else group.child(name)
    except NotFound:
        return None


def has_child(group: Group, name: str) -> bool:
    """True if the group has the member, even if the member is damaged."""
    try:
        return child_or_none(group, name) is not None
    except FsbridgeError:
        return True


def openers(group: Group, members: Iterable[Child], remote: bool) -> Iterator[tuple[Child, Opener]]:
    """Yield each member of a group with a function that opens it.

    Many members of a `remote` store are opened in parallel.
    """
    members = iter(members)
    while remote and (batch := list(islice(members, OPENED_AHEAD))):
        yield from zip(batch, each(partial(_try_opening, group), batch, OPENED_AT_ONCE), strict=True)
    for child in members:
        yield child, partial(group.child, child.name)


def _try_opening(group: Group, child: Child) -> Opener:
    try:
        node = Link(child.link) if child.link is not None else group.child(child.name)
    except (FsbridgeError, OSError) as error:
        return partial(_raise, error)
    return lambda: node


def _raise(error: Exception) -> NoReturn:
    raise error
