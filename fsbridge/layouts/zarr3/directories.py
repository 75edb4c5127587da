"""Directories of groups and arrays, their `zarr.json`, and links.

Not here: the documents' contents (`documents.py`), chunk files (`chunks.py`). A directory is identified by its path alone
and looks behind itself what its path holds now, because the kernel may keep it for as long as a shell stands in it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import cast

from fsbridge.cache import ChunkCache
from fsbridge.config import Config
from fsbridge.errors import FsbridgeError, NotFound, Stale, TooDeep
from fsbridge.kernel.readahead import ReadAhead
from fsbridge.layouts.zarr3.chunks import DIRECTORY, ChunkSpace
from fsbridge.layouts.zarr3.documents import DOCUMENT, array_document, encode, group_document
from fsbridge.model import JSON, Array, Group, Link, Node, as_array
from fsbridge.tree import AnyNode, Attrs, Buffer, Entry, escape, unescape

log = logging.getLogger(__name__)

_DOCUMENT = DOCUMENT.encode()
_SHADOWED = b"%7Aarr.json"
"""A member that is itself called `zarr.json`: the document wins, the member keeps a name of its own."""


_COSTLY = 64 * 1024
"""Bytes of a document that is kept, because rendering it at every lookup would be felt."""


@dataclass(frozen=True, slots=True)
class Context:
    """What every node of one mount shares."""

    format_at: Callable[[Sequence[str]], str]
    config: Config
    cache: ChunkCache
    ahead: ReadAhead


def member_name(name: str) -> bytes:
    """The file name of a group's member; raises NameTooLong."""
    return _SHADOWED if name == DOCUMENT else escape(name)


def model_name(name: bytes) -> str:
    """The group's member behind a file name; NotFound when there can be none."""
    found = DOCUMENT if name == _SHADOWED else unescape(name)
    if found is None:
        raise NotFound(f"{name!r} is the name of no member")
    return found


class MemberDirectory:
    """A group or an array, whichever its path holds now."""

    __slots__ = ("_asked", "_context", "_kept", "_lock", "_names", "_node", "_open", "_space", "extent")

    version: Hashable = None  # one path, one directory: what is in it may change, what it is called may not
    place = None

    def __init__(self, context: Context, open_node: Callable[[], Node], names: tuple[str, ...]) -> None:
        self._context = context
        self._open = open_node
        self._names = names
        self._lock = threading.Lock()
        self._node: Group | Array | None = None
        self._asked = 0.0
        self._space: ChunkSpace | None = None
        self.extent = 0
        self._kept: tuple[object, bytes] | None = None

    @property
    def space(self) -> ChunkSpace | None:
        """The chunk space of the array that is here now, if it is one."""
        return self._space

    def attrs(self) -> Attrs:
        return Attrs("directory", 0, self._present().mtime_ns)

    def xattrs(self) -> Mapping[str, bytes]:
        """Format, source path and the source's own metadata."""
        node = self._present()
        array = as_array(node)
        config = self._context.config
        found = {
            "format": self._context.format_at(self._names).encode(),
            "source": "/".join((config.source.rstrip("/") or "/", *self._names)).encode("utf-8", "surrogateescape"),
        }
        if array is not None:
            found["metadata"] = encode(dict(array.metadata.native))
            found["codec"] = array.metadata.codec.encode()
            found["data_type"] = array.metadata.dtype.native.encode()
        else:
            found["metadata"] = encode(dict(cast(Group, node).native()))
        return {f"user.fsbridge.{name}": value for name, value in found.items()}

    def lookup(self, name: bytes) -> AnyNode:
        """`zarr.json`, the chunk tree of an array, or a member of a group."""
        node = self._present()
        if name == _DOCUMENT:
            return self._document(node)
        array = as_array(node)
        if array is None:
            return self._member(cast(Group, node), model_name(name))
        if name != DIRECTORY:
            raise NotFound(f"{name!r} is not in an array")
        return self._chunk_space(array).stored(())

    def entries(self) -> Iterator[Sequence[Entry]]:
        """`zarr.json` first; one member that cannot be shown hides none of the others."""
        node = self._present()
        document = self._document(node)
        yield [Entry(_DOCUMENT, document.attrs(), lambda: document, document.version)]
        array = as_array(node)
        if array is not None:
            yield from self._array_entries(array)
        else:
            yield from self._group_entries(cast(Group, node))

    def _present(self) -> Group | Array:
        """What the path holds now. Asked again after the time in which `stat` may be late anyway."""
        config = self._context.config
        with self._lock:
            node, asked = self._node, self._asked
        if node is not None:
            if config.immutable:
                return node
            array = as_array(node)
            if (array is None or array.current()) and time.monotonic() - asked < config.metadata_ttl:
                return node
        found = self._open()
        if isinstance(found, Link):
            raise Stale("a link took the place of this directory")
        new = as_array(found)
        with self._lock:
            old = None if self._node is None else as_array(self._node)
            if old is not None and new is not None and old.version == new.version:
                found = old  # keeps its chunk space, so that its files keep their inodes
            else:
                self._space = None
            self._node, self._asked = found, time.monotonic()
        return found

    def _chunk_space(self, array: Array) -> ChunkSpace:
        config = self._context.config
        with self._lock:
            if self._space is None or self._space.array is not array:
                self._space = ChunkSpace(array, self._context.cache, config.max_chunk, config.immutable, self._context.ahead)
            return self._space

    def _document(self, node: Group | Array) -> DocumentFile:
        return DocumentFile(self._render, self._render(node), node.mtime_ns, self._context.config.immutable)

    def _render(self, node: Group | Array | None = None) -> bytes:
        node = self._present() if node is None else node
        array = as_array(node)
        described = cast(Group, node).attributes() if array is None else array.metadata
        kept = self._kept
        if kept is not None and kept[0] is described:
            return kept[1]
        content = group_document(cast(Mapping[str, JSON], described)) if array is None else array_document(array.metadata)
        self._kept = (described, content) if len(content) > _COSTLY else None
        return content

    def _array_entries(self, array: Array) -> Iterator[Sequence[Entry]]:
        space = self._chunk_space(array)
        try:
            node = space.stored(())
            yield [Entry(DIRECTORY, node.attrs(), 0 if node.place else lambda: node, node.version)]
        except NotFound:
            return

    def _group_entries(self, group: Group) -> Iterator[Sequence[Entry]]:
        batch: list[Entry] = []
        listed = 0
        for child in group.children():
            try:
                name = member_name(child.name)
                target = None if child.link is None else link_target(child.link)
            except FsbridgeError as error:
                log.warning("%s: a member is hidden: %s", "/".join(("", *self._names)), error)
                continue
            if target is not None:
                link = LinkNode(target, child.mtime_ns)
                batch.append(Entry(name, link.attrs(), partial(_same, link), target))
            else:
                opener = partial(self._directory, child.name)
                batch.append(Entry(name, Attrs("directory", 0, child.mtime_ns), opener))
            if len(batch) == 1000:
                yield batch
                listed += len(batch)
                batch = []
        self.extent = listed + len(batch)
        yield batch

    def _member(self, group: Group, name: str) -> AnyNode:
        node = group.child(name)
        if isinstance(node, Link):
            return LinkNode(link_target(node.target), group.mtime_ns)
        return self._directory(name, node)

    def _directory(self, name: str, node: Group | Array | None = None) -> MemberDirectory:
        limit = self._context.config.limits.depth
        if len(self._names) >= limit:
            raise TooDeep(f"{'/'.join((*self._names, name))}: more than {limit} nested groups")
        member = MemberDirectory(self._context, partial(self._reopen, name), (*self._names, name))
        if node is not None:
            member._node, member._asked = node, time.monotonic()
        return member

    def _reopen(self, name: str) -> Node:
        node = self._present()
        if as_array(node) is not None:
            raise NotFound(f"{name!r} is not in an array")
        return cast(Group, node).child(name)


class DocumentFile:
    """A `zarr.json`; its bytes are its version."""

    __slots__ = ("_content", "_immutable", "_mtime_ns", "_render", "version")

    place = None
    pinned = None

    def __init__(self, render: Callable[[], bytes], content: bytes, mtime_ns: int, immutable: bool) -> None:
        self._render = render
        self._content = content
        self._mtime_ns = mtime_ns
        self._immutable = immutable
        self.version: Hashable = blake2b(content, digest_size=16).digest()

    def attrs(self) -> Attrs:
        return Attrs("file", len(self._content), self._mtime_ns)

    def measured(self) -> Attrs:
        return self.attrs()

    def xattrs(self) -> Mapping[str, bytes]:
        return {}

    def open(self) -> DocumentHandle:
        """Open it; Stale when the metadata is no longer what this file shows."""
        if not self._immutable and self._render() != self._content:
            raise Stale("the metadata changed")
        return DocumentHandle(self._content, self.version)


@dataclass(frozen=True, slots=True)
class DocumentHandle:
    """An open `zarr.json`."""

    content: bytes
    version: Hashable

    @property
    def size(self) -> int:
        return len(self.content)

    def peek(self, offset: int, size: int) -> Buffer | None:
        return self.content[offset : offset + size]

    def read(self, offset: int, size: int) -> Buffer:
        return self.content[offset : offset + size]

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class LinkNode:
    """A symbolic link inside the mount."""

    target: bytes
    mtime_ns: int

    place = None

    @property
    def version(self) -> Hashable:
        return self.target

    def attrs(self) -> Attrs:
        return Attrs("link", len(self.target), self.mtime_ns)

    def xattrs(self) -> Mapping[str, bytes]:
        return {}


def link_target(target: str) -> bytes:
    """A model link's relative path as the relative path of files."""
    return b"/".join(part.encode() if part in ("..", ".") else member_name(part) for part in target.split("/"))


def _same(node: AnyNode) -> AnyNode:
    return node
