"""hdmf-zarr's links (NWB): members of a group that exist only as entries in its attributes. It also recognises these stores.

    "zarr_link": [{"name": "timestamps", "path": "/acquisition/ts/timestamps", "source": "."}]     Zarr v2, hdmf-zarr <= 0.13
    "_LINKS":    [{"name": ..., "path": ..., "source": ...}]                                       Zarr v3, hdmf-zarr >= 0.14

`source` is the folder of the file that holds the target, relative to the file that holds the link. "." is this file,
whose root is the nearest group above with a `.specloc`. A link inside the file becomes a relative symbolic link. If it
leads to another file in an allowed directory, its target is mounted in its place; other links are left out with a log
line. Not here: references in data (`references.py`).
"""

from __future__ import annotations

import json
import logging
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from fsbridge import asking
from fsbridge.codecs import Decoder, table
from fsbridge.errors import FsbridgeError, NotFound, TooDeep, is_lasting
from fsbridge.formats.format import Opener
from fsbridge.formats.keyed.hierarchy import Dialect, Hierarchy, KeyedGroup
from fsbridge.meaning.conventions.hdmf import LINKS, SPECIFICATIONS
from fsbridge.metadata import JSON, DataType
from fsbridge.model import Child, Group, Link, Node, OtherFile, Source, as_array
from fsbridge.store import ROOT, Key, is_path

log = logging.getLogger(__name__)

MAX_HOPS = 40
"""Most links followed on the way to one target, as in Linux."""
MAX_NESTED = 8
"""Most links mounted inside each other, because they can form a circle."""
MAX_REMARKS = 1000
"""Most links that are logged."""


class LinkRecord(NamedTuple):
    """One link of a group: `path` in the file that `source` leads to."""

    path: str
    source: str


class Hops:
    """Counts the links on the way to one target, including those to other files.

    Two files can lead to each other.
    """

    def __init__(self) -> None:
        self._left = MAX_HOPS

    def count_link(self, place: str) -> None:
        """Count one link. Raises TooDeep if that is one too many."""
        self._left -= 1
        if self._left < 0:
            raise TooDeep(f"{place}: more than {MAX_HOPS} links on the way")


def parse_links(attributes: Mapping[str, JSON]) -> Mapping[str, LinkRecord]:
    """Return a group's links by name. Entries that are malformed or lead out by `..` are left out."""
    records: dict[str, LinkRecord] = {}
    for attribute in LINKS:
        entries = attributes.get(attribute)
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict):
                continue
            name, path, source = entry.get("name"), entry.get("path"), entry.get("source", ".")
            if not (isinstance(name, str) and isinstance(path, str) and isinstance(source, str) and name):
                continue
            if not is_path(source):
                continue
            if not {".", ".."} & set(path.split("/")):
                parts = (part for part in path.split("/") if part)
                records.setdefault(name, LinkRecord("/".join(parts), source))
    return records


@dataclass(frozen=True, slots=True)
class HdmfGroup(KeyedGroup):
    """A group of a Zarr hierarchy, with its links.

    `top` is the highest group that is mounted around it. A link to somewhere outside `top` is mounted in its place,
    because a symbolic link would lead to something else. `nested` counts such places above this group. `opener` opens
    other files.
    """

    opener: Opener
    top: Key = ROOT
    nested: int = 0

    def native(self) -> Mapping[str, JSON]:
        """Return the documents, and under `external links` the links that lead to other files."""
        documents = KeyedGroup.native(self)
        outside = {name: entry._asdict() for name, entry in self._read_links().items() if not self._is_here(entry)}
        return {**documents, "external links": outside} if outside else documents

    def listing(self, others: Callable[[OtherFile], object]) -> Iterator[Child]:
        """Yield directories, then links. A directory hides a link of its name. Damaged attributes hide only links."""
        try:
            missing = dict(self._read_links())
        except (FsbridgeError, OSError) as error:  # reported when the attributes or a link are asked for
            if not is_lasting(error):
                raise
            missing = {}
        for child in KeyedGroup.listing(self, others):
            missing.pop(child.name, None)
            yield child
        mtime_ns = self.mtime_ns if missing else 0
        for name, entry in missing.items():
            listed = self._list_link(name, entry, mtime_ns)
            if listed is not None:
                yield listed

    def _list_link(self, name: str, entry: LinkRecord, mtime_ns: int) -> Child | None:
        """Return a link for a listing, in whatever way it is shown; None if it leads nowhere or is not followed."""
        try:
            target = self._find_symlink(entry)
            if target is None:
                if not self._is_here(entry) and self._find_allowed(entry) is None:
                    self._remark(name, entry, "is not followed (--allow-external)")
                    return None
                self._follow(name, entry, Hops())
        except (NotFound, TooDeep) as error:
            self._remark(name, entry, f"leads nowhere: {error}")
            return None
        except (FsbridgeError, OSError) as error:  # opening it raises the error
            if not is_lasting(error):
                raise
            target = None
        return Child(name, mtime_ns, target)

    def child(self, name: str) -> Node:
        """Return the member `name`: a directory, or the target of a link."""
        return self.member(name, Hops())

    def member(self, name: str, hops: Hops) -> Node:
        """Return a member as a step of a path. Raises TooDeep if `hops` allows no further link."""
        try:
            node = KeyedGroup.child(self, name)
        except NotFound:
            entry = self._read_links().get(name)
            if entry is None:
                raise
            return self._follow(name, entry, hops)
        return self._below(node, self.top, self.nested)

    def _below(self, node: Node, top: Key, nested: int) -> Node:
        """Return a member as a group of the same file, whatever its own attributes say."""
        if isinstance(node, KeyedGroup):
            return HdmfGroup(node.hierarchy, node.key, self.opener, top, nested, unread=node.unread)
        return node

    def _follow(self, name: str, entry: LinkRecord, hops: Hops) -> Node:
        target = self._find_symlink(entry)
        if target is not None:
            return Link(target)
        if self.nested == MAX_NESTED:
            raise TooDeep(f"{self._place()}: link {name!r} is inside {MAX_NESTED} others, and no more are followed")
        if self._is_here(entry):
            root: Node = HdmfGroup(self.hierarchy, self._find_file(), self.opener)
        else:
            folder = self._find_allowed(entry)
            if folder is None:
                self._remark(name, entry, "is not followed (--allow-external)")
                raise NotFound(f"{self._place()}: {name!r} is a link to {entry.source!r}, which is not followed")
            root = self.hierarchy.keyed.externals.open(folder, self._open_external).root
        hops.count_link(f"{self._place()}: link {name!r}")
        try:
            node = resolve(root, entry.path, hops)
        except NotFound as error:
            raise NotFound(f"{self._place()}: link {name!r}: {error}") from None
        return self._below(node, node.key, self.nested + 1) if isinstance(node, KeyedGroup) else node

    def _read_links(self) -> Mapping[str, LinkRecord]:
        return parse_links(self.attributes())

    def _find_file(self) -> Key:
        """Return the root of the file of this group: the nearest group with `.specloc` above it, or the highest group."""
        top = key = self.key
        while SPECIFICATIONS not in self.hierarchy.group_attributes(key):
            if not self.hierarchy.group_documents(key):
                return top
            top = key
            if not key:
                return top
            key = key.parent
        return key

    def _find_symlink(self, entry: LinkRecord) -> str | None:
        """Return the relative target of a link, or None if a symbolic link cannot express it."""
        if not self._is_here(entry):
            return None
        target = "/".join(part for part in (self._find_file(), entry.path) if part)
        if self.top and not f"{target}/".startswith(f"{self.top}/"):
            return None
        return posixpath.relpath(f"/{target}", f"/{self.key}")

    def _is_here(self, entry: LinkRecord) -> bool:
        """Tell whether a link leads into the file that it is in."""
        if entry.source in (".", ""):
            return True
        return self._find_folder(entry) == os.path.realpath(self.hierarchy.keyed.store.describe(self._find_file()))

    def _find_folder(self, entry: LinkRecord) -> str | None:
        """Return the real path of the file that a link leads to, or None in stores that are not directories."""
        asking.before_waiting()
        root = self.hierarchy.keyed.store.describe(self._find_file())
        return os.path.realpath(os.path.join(root, entry.source)) if os.path.isdir(root) else None

    def _find_allowed(self, entry: LinkRecord) -> str | None:
        """Return the real path of the file that a link leads to, if it may be followed."""
        path = self._find_folder(entry)
        allowed = (os.path.realpath(folder).rstrip("/") + "/" for folder in self.hierarchy.keyed.config.allow_external)
        if path is None or not any(f"{path}/".startswith(folder) for folder in allowed) or not os.path.isdir(path):
            return None
        return path

    def _open_external(self, path: str) -> Source:
        return self.opener("auto", path, self.hierarchy.keyed.config)

    def _place(self) -> str:
        return self.hierarchy.keyed.store.describe(self.key)

    def _remark(self, name: str, entry: LinkRecord, what: str) -> None:
        """Log once why a link is not listed."""
        place, said = self._place(), self.hierarchy.keyed.remarks
        if (place, name) not in said and len(said) < MAX_REMARKS:
            said.add((place, name))
            log.warning("%s: the link %r to %s in %r %s", place, name, entry.path, entry.source, what)

    def skipped(self) -> Iterator[str]:
        """Describe what every keyed group leaves out, and also entries that are no links and links that are not listed."""
        yield from KeyedGroup.skipped(self)
        attributes, place = self.attributes(), self._place()
        for attribute in LINKS:
            entries = attributes.get(attribute, [])
            for entry in entries if isinstance(entries, list) else [entries]:
                if not parse_links({attribute: [entry]}):
                    yield f"{place}: {attribute} has an entry that is no link: {json.dumps(entry)[:200]}"
        missing = dict(parse_links(attributes))
        for child in self.children() if missing else ():
            missing.pop(child.name, None)
        for name, link in missing.items():
            why = (
                "leads nowhere" if self._is_here(link) or self._find_allowed(link) else "is not followed (--allow-external)"
            )
            yield f"{place}: the link {name!r} to {link.path} in {link.source!r} {why}"


def resolve(root: Node, path: str, hops: Hops | None = None) -> Node:
    """Return the node at `path` below `root`, following links. Raises NotFound, or TooDeep for too many links."""
    trail, pending, hops = [root], path.split("/")[::-1], hops or Hops()
    while pending:
        part = pending.pop()
        if part in ("", "."):
            continue
        if part == "..":
            trail[1:] = trail[1:-1]
            continue
        group = trail[-1]
        if as_array(group) is not None:
            raise NotFound(f"{part!r} below an array")
        node = group.member(part, hops) if isinstance(group, HdmfGroup) else cast(Group, group).child(part)
        if isinstance(node, Link):
            hops.count_link(path)
            pending.extend(node.target.split("/")[::-1])
        else:
            trail.append(node)
    return trail[-1]


class HdmfDialect(Dialect):
    """Recognises hdmf's stores by their attributes. `opener` opens the files of links."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener

    def group(self, hierarchy: Hierarchy, key: Key) -> KeyedGroup:
        """Return a group with links, or the root of a file, which makes the groups below it groups of the same file."""
        try:
            attributes = hierarchy.group_attributes(key)
        except (FsbridgeError, OSError) as error:  # the error is reported when the attributes are read
            if not is_lasting(error):
                raise  # its links must not seem absent
            attributes = {}
        if not any(name in attributes for name in (*LINKS, SPECIFICATIONS)):
            return super().group(hierarchy, key)
        return HdmfGroup(hierarchy, key, self._opener)

    def objects(
        self, stored: np.dtype[Any], codec: JSON, items: int, native: str, attributes: Mapping[str, JSON]
    ) -> tuple[DataType, Decoder] | None:
        """Return the type and the decoder of pickled arrays of references, and of references in JSON; None for other codecs.

        hdmf-zarr marks an array of references by `zarr_dtype`, which is `str` or `scalar` for text.
        """
        name = codec.get("id") if isinstance(codec, dict) else None
        if name != "pickle" and not (name == "json2" and attributes.get("zarr_dtype") == "object"):
            return None
        from fsbridge.formats.hdmf import references

        if name == "pickle":
            return references.make_pickled(stored, items, native)
        return references.make_json(native, table.object_decoder(codec, items)[0])
