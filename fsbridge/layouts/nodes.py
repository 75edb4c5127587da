"""Nodes that every layout has: documents made in memory, and links. Not here: what a document says, which ones there are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import ClassVar

from fsbridge.errors import Stale
from fsbridge.layouts.rendered import SHARED_ARRAYS, SHARED_BYTES
from fsbridge.tree import Attrs, Buffer, Entry, NodeAbilities, Ready


class SingleFile(NodeAbilities):
    """Base class of files that are not in a `tree.Space`: they have neither numbers nor extended attributes."""

    __slots__ = ()

    slot = None
    pinned = None

    def xattrs(self) -> Mapping[str, bytes]:
        return {}


class DocumentFile(SingleFile):
    """A file made in memory. A digest of its bytes is its version, and all that is kept between two uses.

    `render` makes the bytes again (None: the document no longer exists), because an open must see the present store.
    """

    __slots__ = ("_mtime_ns", "_render", "_size", "version")

    def __init__(
        self,
        render: Callable[[], bytes | None],
        content: bytes,
        mtime_ns: int,
    ) -> None:
        self._render = render
        self._size = len(content)
        self._mtime_ns = mtime_ns
        self.version: Hashable = _digest(content)

    def entry(self, name: bytes) -> Entry:
        """Return the file as a member of a listing."""
        return Entry(name, self.attrs(), Ready(self), self.version)

    def attrs(self) -> Attrs:
        return Attrs("file", self._size, self._mtime_ns)

    def measured(self) -> Attrs:
        return self.attrs()

    def open(self) -> BytesHandle:
        """Open it; Stale when the metadata is no longer what this file shows."""
        content = self._render()
        if content is None or _digest(content) != self.version:
            raise Stale("the metadata changed")
        return BytesHandle(content, self.version)


def _digest(content: bytes) -> bytes:
    return _shared_digest(content) if len(content) <= SHARED_BYTES else blake2b(content, digest_size=16).digest()


@lru_cache(SHARED_ARRAYS)
def _shared_digest(content: bytes) -> bytes:
    """Return the digest of a document. It is cached, because many arrays have the same document."""
    return blake2b(content, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class BytesHandle:
    """An open file with all of its bytes in memory."""

    content: Buffer
    version: Hashable

    window: ClassVar[int] = 0

    @property
    def size(self) -> int:
        return len(self.content)

    def peek(self, offset: int, size: int) -> Buffer | None:
        return self.content[offset : offset + size]

    def read(self, offset: int, size: int) -> Buffer:
        return self.content[offset : offset + size]

    def prefetch(self, start: int, stop: int) -> None:
        """Nothing is left to do: all of it is in memory."""

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class LinkNode(NodeAbilities):
    """A symbolic link inside the mount."""

    target: bytes
    mtime_ns: int

    slot = None

    @property
    def version(self) -> Hashable:
        return self.target

    def entry(self, name: bytes) -> Entry:
        """Return the link as a member of a listing."""
        return Entry(name, self.attrs(), Ready(self), self.target)

    def attrs(self) -> Attrs:
        return Attrs("link", len(self.target), self.mtime_ns)

    def xattrs(self) -> Mapping[str, bytes]:
        return {}
