"""Nodes that every layout has: documents made in memory, and links. Also the cache of documents, and members' file names.

A member's name is escaped if a document of the layout has the same name. Not here: what a document says, which ones there
are, names that no file system can show (`tree.escape`), names of the files of whole arrays (`files/arrays/names.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import TypeAlias

from fsbridge.errors import FsbridgeError, NotFound, Stale, is_lasting
from fsbridge.lru import LRU
from fsbridge.metadata import ArrayMetadata
from fsbridge.tree import AnyNode, Attrs, Buffer, Entry, File, Handle, Ready, Symlink, escape, unescape


def file_name(name: str, taken: frozenset[bytes]) -> bytes:
    """Return a member's file name. If a document has `taken` the name, its first byte is escaped. Raises NameTooLong."""
    escaped = escape(name)
    return b"%%%02X" % escaped[0] + escaped[1:] if escaped in taken else escaped


def model_name(name: bytes, taken: frozenset[bytes]) -> str:
    """Return the member's name that a file name stands for; NotFound if there can be none."""
    for document in taken:
        if name == b"%%%02X" % document[0] + document[1:]:
            return document.decode()
    member_name = None if name in taken else unescape(name)
    if member_name is None:
        raise NotFound(f"no member can have the file name {name!r}")
    return member_name


def link_target(target: str, taken: frozenset[bytes]) -> bytes:
    """Convert the relative path of a link in the model to a relative path of files in the mount."""
    return b"/".join(part.encode() if part in ("..", ".") else file_name(part, taken) for part in target.split("/"))


COSTLY_BYTES = 64 * 1024
"""Bytes above which a directory's documents are cached, because making them for every look-up would be slow."""

RENDERED_BYTES = 16 << 20
"""Most bytes of large documents in the cache. The latest one is kept whatever its size."""

SHARED_ARRAYS = 256
"""Most metadata objects with cached documents. Similar arrays of a store share one metadata object."""

SHARED_BYTES = 4096
"""Most bytes of documents cached for a metadata object, about as much as the metadata objects themselves take."""

Documents: TypeAlias = Mapping[bytes, bytes]


class RenderedDocuments:
    """Cached documents of directories, each with the identity of what it was made of. Thread-safe."""

    def __init__(self) -> None:
        self._known: LRU[Hashable, tuple[Hashable, Documents]] = LRU(RENDERED_BYTES)
        self._shared: LRU[Hashable, tuple[ArrayMetadata, Documents]] = LRU(SHARED_ARRAYS)

    def get(self, key: Hashable, made_of: Callable[[], Hashable], render: Callable[[], Documents]) -> Documents:
        """Return the documents of `key`: cached while `made_of()` returns an equal identity, else made by `render`."""
        known = self._known.get(key)
        if known is not None and known[0] == made_of():
            return known[1]
        documents = render()
        size = sum(map(len, documents.values()))
        identity = made_of() if size > COSTLY_BYTES else None
        if identity is None:
            self._known.drop(key)
        else:
            self._known.put(key, (identity, documents), size)
        return documents

    def share(self, variant: Hashable, metadata: ArrayMetadata, render: Callable[[], Documents]) -> Documents:
        """Return the documents that all arrays with this same metadata object share. `variant`: how the arrays are shown."""
        key = variant, id(metadata)  # unique while we hold the object
        known = self._shared.get(key)
        if known is None:
            documents = render()
            known = metadata, documents
            if sum(map(len, documents.values())) <= SHARED_BYTES:
                self._shared.put(key, known)
        return known[1]


class DocumentFile(File):
    """A file made in memory. Its version is a digest of its bytes, which is all that is kept between two uses.

    `render` makes the bytes again (None: the document no longer exists), because opening must show the present store.
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
        self.version = _digest(content)

    def entry(self, name: bytes) -> Entry:
        """Return the file as a member of a listing."""
        return Entry(name, self.attrs(), Ready(self), self.version)

    def attrs(self) -> Attrs:
        return Attrs("file", self._size, self._mtime_ns)

    def open(self) -> BytesHandle:
        """Open the file; Stale if what it was made of has changed."""
        content = self._render()
        if content is None or _digest(content) != self.version:
            raise Stale("the metadata has changed since the file was looked up")
        return BytesHandle(content, self.version)


def list_documents(
    names: Sequence[bytes],
    documents: Callable[[], Mapping[bytes, bytes]],
    file: Callable[[bytes, bytes], DocumentFile],
    lookup: Callable[[bytes], AnyNode],
    mtime_ns: int,
) -> list[Entry]:
    """Return the entries of documents. A document that cannot be made is listed, too: looking it up raises the reason."""
    try:
        made = documents()
    except (FsbridgeError, OSError) as error:
        if not is_lasting(error):
            raise
        made = {}
    attrs = Attrs("file", None, mtime_ns)
    return [
        file(name, made[name]).entry(name) if name in made else Entry(name, attrs, partial(lookup, name)) for name in names
    ]


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


class BytesHandle(Handle):
    """An open file with all of its bytes in memory."""

    __slots__ = ("content", "size", "version")

    def __init__(self, content: Buffer, version: Hashable) -> None:
        self.content = content
        self.size = len(content)
        self.version = version

    def peek(self, offset: int, size: int) -> Buffer | None:
        return self.content[offset : offset + size]

    def read(self, offset: int, size: int) -> Buffer:
        return self.content[offset : offset + size]


@dataclass(frozen=True, slots=True)
class LinkNode(Symlink):
    """A symbolic link inside the mount."""

    target: bytes
    mtime_ns: int

    @property
    def version(self) -> Hashable:
        return self.target

    def entry(self, name: bytes) -> Entry:
        """Return the link as a member of a listing."""
        return Entry(name, self.attrs(), Ready(self), self.target)

    def attrs(self) -> Attrs:
        return Attrs("link", len(self.target), self.mtime_ns)
