"""Directories that show groups and arrays, in any layout: documents, members, links. Each `Layout` says what differs.

Not here: what a path holds now (`members.py`), what members are called (`nodes.py`), the documents' contents and the
chunk files (the layouts' own packages).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b, sha256
from typing import Protocol, cast

from fsbridge.errors import PASSING, FsbridgeError, NameTooLong, NotFound, Stale, Unsupported
from fsbridge.layouts.json_text import encode
from fsbridge.layouts.members import Note, Opener, SourceMember, openers, without_dead_ends
from fsbridge.layouts.nodes import DocumentFile, LinkNode, file_name, link_target, list_documents, model_name
from fsbridge.layouts.stored_file import StoredFileNode
from fsbridge.metadata import JSON, ArrayMetadata, Format
from fsbridge.model import Array, Child, Group, Link, Node, OtherFile, as_array
from fsbridge.threads.deadlines import Stopwatch
from fsbridge.tree import AnyNode, Attrs, Contents, Directory, Entry, Space

BATCH_ENTRIES = 1000
"""Most members of a group that a listing returns in one batch."""

BATCH_SECONDS = 0.25
"""Seconds after which a listing returns the members found so far, if any: opening each one can be slow."""


class Layout(Protocol):
    """Decides as which files groups and arrays are shown."""

    @property
    def name(self) -> str:
        """The name that `--layout` takes."""

    @property
    def documents(self) -> frozenset[bytes]:
        """File names of all documents of this layout. A member with one of these names is escaped, see `nodes.file_name`."""

    @property
    def of_groups(self) -> Sequence[bytes]:
        """File names of the documents that each group has."""

    @property
    def of_arrays(self) -> Sequence[bytes]:
        """File names of the documents that each array has."""

    def selective(self, format: Format) -> bool:
        """True if arrays of that format may be left out, so that a listing must open members to know."""

    def refusal(self, metadata: ArrayMetadata) -> str | None:
        """Return why an array is left out; None if it can be shown."""

    def file_names(self, name: str, metadata: ArrayMetadata) -> dict[str, list[str]] | None:
        """Return the file names of an array, grouped by whether a listing shows them; None if arrays are directories."""

    def group_file_names(self, name: str, group: Group) -> dict[str, list[str]] | None:
        """Return what `file_names` returns, for a group; None if groups have no files of their own.

        `name`: empty for the root.
        """

    def describe(self, group: Group) -> JSON:
        """Return what the documents of a group consist of, such as its attributes."""

    def group_documents(self, described: JSON, names: Sequence[str]) -> Mapping[bytes, bytes]:
        """Return the documents of the group at the path `names`, by file name. `described`: what `describe` returned."""

    def array_documents(self, metadata: ArrayMetadata, root: bool, around: JSON = None) -> Mapping[bytes, bytes]:
        """Return the documents of an array, by file name. `root`: the array is the whole mount.

        `around`: what `ArrayDirectory.find_surroundings` returned.
        """

    def group(self, path: PathDirectory, group: Group) -> GroupDirectory:
        """Return the content of a group's directory."""

    def array(self, path: PathDirectory, array: Array) -> ArrayDirectory:
        """Return the content of an array's directory."""


class PathDirectory(Directory):
    """The directory of one path: a `GroupDirectory` or an `ArrayDirectory`, whichever the path holds now.

    A path keeps its directory object when its content is replaced: a shell whose current directory was a group then sees the
    array that took its place.
    """

    __slots__ = ("_lock", "_shown", "layout", "member")

    def __init__(self, layout: Layout, member: SourceMember) -> None:
        self.layout = layout
        self.member = member
        self._lock = threading.Lock()
        self._shown: GroupDirectory | ArrayDirectory | None = None

    @property
    def space(self) -> Space | None:
        """The chunk space of the array that was last found here; None if no array was found, or if it has no such space."""
        return None if self._shown is None else self._shown.space

    @property
    def extent(self) -> int:
        return 0 if self._shown is None else self._shown.extent

    def attrs(self) -> Attrs:
        shown = self.refresh()
        node = shown.array if isinstance(shown, ArrayDirectory) else shown.group
        changed_ns = node.directory_ns()
        return Attrs("directory", 0, node.mtime_ns if changed_ns is None else changed_ns)

    def identity(self, array: Array) -> Hashable:
        """Return a short digest that identifies the chunk space of this version of the array within the mount."""
        whole = repr((self.layout.name, self.member.names, array.version))
        return blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def xattrs(self) -> Mapping[str, bytes]:
        """Return format, source path and the source's own metadata; for an array also its codec and data type."""
        member = self.member
        source = member.source.encode("utf-8", "surrogateescape")
        values = {"format": member.context.format_at(member.names).name.encode(), "source": source}
        values["metadata"] = encode(dict(member.native))
        array = as_array(member.refresh_node())
        if array is not None:
            values |= {"codec": array.metadata.codec.encode(), "data_type": array.metadata.dtype.native.encode()}
        return {f"user.fsbridge.{name}": value for name, value in values.items()}

    def let_go(self) -> None:
        """Drop the cached content, because it refers back to this object. The next use makes it again."""
        self._shown = None

    def lookup(self, name: bytes) -> AnyNode:
        return self.refresh().lookup(name)

    def entries(self) -> Iterator[Sequence[Entry]]:
        return self.refresh().entries()

    def refresh(self) -> GroupDirectory | ArrayDirectory:
        """Return the content of the path. It stays the same object for a group, and for one version of an array.

        Stale if nothing is left at the path, so that the kernel looks it up again: the name may now be that of a directory
        of chunks.
        """
        try:
            node = self.member.refresh_node()
        except NotFound as error:
            raise Stale(str(error)) from None
        array = as_array(node)
        with self._lock:
            shown = self._shown
            if array is not None:
                if not isinstance(shown, ArrayDirectory) or shown.array is not array:
                    refused = self.layout.refusal(array.metadata) is not None
                    self._shown = shown = RefusedArray(self, array) if refused else self.layout.array(self, array)
            elif isinstance(shown, GroupDirectory):
                shown.group = cast(Group, node)
            else:
                self._shown = shown = self.layout.group(self, cast(Group, node))
            return shown


class GroupDirectory(Contents):
    """What the directory of a group contains: the layout's documents, then the members.

    A layout may override `list_member` and `find`, which say how one member appears. `group` is the group as last opened.
    """

    extent = 0
    """Members of the last complete listing."""

    def __init__(self, path: PathDirectory, group: Group) -> None:
        self.path = path
        self.group = group

    def lookup(self, name: bytes) -> AnyNode:
        """Return the layout's document `name`, or else the member of that name."""
        group, taken = self.group, self.path.layout.documents
        content = self.documents().get(name) if name in taken else None
        if content is not None:
            return self._file(name, content, group.mtime_ns)
        member = model_name(name, taken)
        try:
            return self.find(group, member)
        except NotFound:
            if (stored := group.other_file(member)) is None:
                raise
            return StoredFileNode(stored)

    def _file(self, name: bytes, content: bytes, mtime_ns: int) -> DocumentFile:
        return document_file(self.path, name, content, mtime_ns)

    def entries(self) -> Iterator[Sequence[Entry]]:
        """Yield the documents, the members and the other files. What cannot be shown is left out, and logged once."""
        others: list[OtherFile] = []
        yield from self.listing(self.list_member, others)
        if others:
            yield other_entries(self.path, others, self)

    def is_own(self, name: str) -> bool:
        """True if a file of the layout has the name of one of the group's other files."""
        return False

    def listing(
        self,
        list_member: Callable[[Group, Child, Opener], Iterable[Entry]],
        others: list[OtherFile],
        dropped: Note = lambda child: None,
    ) -> Iterator[Sequence[Entry]]:
        """Yield the entries of one listing. `list_member` makes those of each member.

        Several listings may go on at the same time.

        `others` gets the other files, `dropped` each link that is not listed because it leads nowhere.
        """
        group = self.group
        names = () if not self.path.layout.of_groups or group.is_plain() else self.path.layout.of_groups
        file = partial(self._file, mtime_ns=group.mtime_ns)
        batch = list_documents(names, self.measure_documents, file, self.lookup, group.mtime_ns)
        if batch:
            yield batch
        batch, count, watch = [], 0, Stopwatch()
        layout, member = self.path.layout, self.path.member
        remote = member.context.config.is_remote and layout.selective(member.context.format_at(member.names))
        members = without_dead_ends(member, layout.name, self.members(group, others), dropped)
        for child, opener in openers(group, members, remote):
            try:
                batch += list_member(group, child, opener)
            except PASSING:
                raise  # leaving the member out would tell a program that it is absent
            except FsbridgeError as error:
                member.context.note_left_out(layout.name, (*member.names, child.name), str(error))
                continue
            if len(batch) >= BATCH_ENTRIES or watch.seconds > BATCH_SECONDS:
                yield batch
                count += len(batch)
                batch = []
                watch.restart()
        self.extent = count + len(batch)
        yield batch

    def members(self, group: Group, others: list[OtherFile]) -> Iterable[Child]:
        """Return all members, for a listing. Append the other files to `others`."""
        return group.listing(others.append)

    def list_member(self, group: Group, child: Child, opener: Opener) -> Iterable[Entry]:
        """Return the entries that show a member in a listing: a link, or a directory that is not open yet.

        `opener` opens the member, for layouts that must know what it is.
        """
        layout, member = self.path.layout, self.path.member
        taken = layout.documents
        name = file_name(child.name, taken)
        if child.link is not None:
            return [LinkNode(link_target(child.link, taken), child.mtime_ns).entry(name)]
        if layout.selective(member.context.format_at((*member.names, child.name))) and self._leaves_out(child.name, opener):
            return []
        return [Entry(name, Attrs("directory", 0, child.mtime_ns), partial(self.directory, child.name))]

    def find(self, group: Group, name: str) -> AnyNode:
        """Return the member `name`; NotFound if there is none."""
        node = group.child(name)
        reason = self.refusal(node)
        if reason is not None:
            raise NotFound(f"{name!r} is left out: {reason}")
        if isinstance(node, Link):
            return LinkNode(link_target(node.target, self.path.layout.documents), group.mtime_ns)
        return self.directory(name, node)

    def refusal(self, node: Node) -> str | None:
        """Return why a member is left out; None if it is shown."""
        array = as_array(node)
        return None if array is None else self.path.layout.refusal(array.metadata)

    def _leaves_out(self, name: str, opener: Opener) -> bool:
        """True if a member is an array that this layout leaves out, which is logged once.

        False if the member is unreadable.
        """
        try:
            reason = self.refusal(opener())
        except (FsbridgeError, OSError):  # the member is listed, and a program that opens it gets the error
            return False
        if reason is not None:
            self.path.member.context.note_left_out(self.path.layout.name, (*self.path.member.names, name), reason)
        return reason is not None

    def directory(self, name: str, node: Group | Array | None = None) -> PathDirectory:
        """Return the directory of the member `name`. `node`: the member, if it has been opened already."""
        return PathDirectory(self.path.layout, self.path.member.child(name, node))

    def documents(self) -> Mapping[bytes, bytes]:
        """Return the layout's documents by name, as the group is now."""
        return self.own_documents()

    def measure_documents(self) -> Mapping[bytes, bytes]:
        """Return the documents that a listing shows with a size, without those that take long to make."""
        return self.documents()

    def own_documents(self) -> Mapping[bytes, bytes]:
        """Return the documents without what they say about members.

        Large ones are cached until the group's attributes change.

        A directory that holds only other files has none, because programs would take a document for one of the files.
        """
        path = self.path
        if self.group.is_plain():
            return {}
        described = path.layout.describe(self.group)
        return path.member.context.rendered.get(
            (path.layout.name, path.member.names),
            lambda: sha256(json.dumps(described).encode()).digest(),  # a digest takes much less time than the documents
            lambda: path.layout.group_documents(described, path.member.names),
        )


class ArrayDirectory(Contents):
    """The content of the directory of one version of an array: the layout's documents, then what a layout adds (chunks).

    A layout overrides `chunk` and `chunk_entries`, and `find_surroundings` if its documents repeat what groups above say.
    """

    space: Space | None = None

    def __init__(self, path: PathDirectory, array: Array) -> None:
        self.path = path
        self.array = array

    def lookup(self, name: bytes) -> AnyNode:
        """Return the layout's document `name`, or else the chunk file or directory of that name."""
        content = self.documents().get(name) if name in self.path.layout.documents else None
        if content is None and name in self.path.layout.of_arrays:
            self.array.metadata.shown_attributes()  # raises the reason why the document cannot be made
        if content is not None:
            return self._file(name, content)
        try:
            return self.chunk(name)
        except NotFound:
            if (stored := self.array.other_file(model_name(name, self.path.layout.documents))) is None:
                raise
            return StoredFileNode(stored)

    def entries(self) -> Iterator[Sequence[Entry]]:
        """Yield the documents, what the layout adds, and the other files.

        The other files of a remote array open only by name: listing them would take a request for each array.
        """
        layout, mtime_ns = self.path.layout, self.array.mtime_ns
        yield list_documents(layout.of_arrays, self.documents, self._file, self.lookup, mtime_ns)
        yield from self.chunk_entries()
        if not self.path.member.context.config.is_remote:
            for files in self.array.other_files():
                yield other_entries(self.path, files, self)

    def is_own(self, name: str) -> bool:
        """True if a file of the layout has the name of one of the array's other files."""
        try:
            self.chunk(file_name(name, self.path.layout.documents))
        except PASSING:
            raise
        except FsbridgeError as error:
            return not isinstance(error, NotFound)
        return True

    def _file(self, name: bytes, content: bytes) -> DocumentFile:
        return document_file(self.path, name, content, self.array.mtime_ns)

    def chunk(self, name: bytes) -> AnyNode:
        """Return the chunk file, or the directory of chunk files, that is called `name`; NotFound if the store has none."""
        raise NotFound(f"the array's directory has no member {name!r}")

    def chunk_entries(self) -> Iterator[Sequence[Entry]]:
        """Yield the members that the layout adds to the documents."""
        yield from ()

    def find_surroundings(self) -> Hashable:
        """Return what the documents depend on besides the array's metadata, as of now.

        Documents are cached until it changes.
        """
        return None

    def documents(self) -> Mapping[bytes, bytes]:
        """Return the layout's documents by name."""
        path, metadata, around = self.path, self.array.metadata, self.find_surroundings()
        layout, names, rendered = path.layout, path.member.names, path.member.context.rendered
        return rendered.share(
            (layout.name, not names, around),
            metadata,
            lambda: rendered.get(
                (layout.name, names),
                lambda: (self.array.version, around),
                lambda: layout.array_documents(metadata, not names, around),
            ),
        )


class RefusedArray(ArrayDirectory):
    """An array that the layout leaves out. It still needs a directory if it is the root, or was a group before."""

    def lookup(self, name: bytes) -> AnyNode:
        raise self._error()

    def entries(self) -> Iterator[Sequence[Entry]]:
        raise self._error()

    def _error(self) -> Unsupported:
        layout, path = self.path.layout, self.path.member
        return Unsupported(f"{path} is left out of the layout {layout.name}: {layout.refusal(self.array.metadata)}")


def other_entries(
    path: PathDirectory, files: Iterable[OtherFile], shown: GroupDirectory | ArrayDirectory
) -> Sequence[Entry]:
    """Return the entries of other files. A file that cannot be shown is left out, and logged once."""
    layout, member = path.layout, path.member
    entries = []
    for file in files:
        try:
            name, reason = file_name(file.name, layout.documents), "the layout has a file of its own of that name"
            if not shown.is_own(file.name):
                entries.append(Entry(name, Attrs("file", file.size, file.mtime_ns), partial(shown.lookup, name)))
                continue
        except NameTooLong as error:
            reason = str(error)
        member.context.note_left_out(layout.name, (*member.names, file.name), reason)
    return entries


def document_file(path: PathDirectory, name: bytes, content: bytes, mtime_ns: int) -> DocumentFile:
    """Return a document file. When it is opened, it is made again from what its path holds at that time."""
    return DocumentFile(partial(_document_now, path, name), content, mtime_ns)


def _document_now(path: PathDirectory, name: bytes) -> bytes | None:
    return path.refresh().documents().get(name)


class LayoutsDirectory(Directory):
    """The root of a mount that shows several layouts.

    It has one directory for each, with the layout's name, and nothing else.

    It never changes, because its contents follow from the command line.
    """

    def __init__(self, roots: Mapping[str, PathDirectory]) -> None:
        self._roots = {name.encode(): root for name, root in roots.items()}

    @property
    def extent(self) -> int:
        return len(self._roots)

    def attrs(self) -> Attrs:
        return next(iter(self._roots.values())).attrs()

    def xattrs(self) -> Mapping[str, bytes]:
        return next(iter(self._roots.values())).xattrs()

    def lookup(self, name: bytes) -> AnyNode:
        root = self._roots.get(name)
        if root is None:
            raise NotFound(f"{name!r} is no layout of this mount")
        return root

    def entries(self) -> Iterator[Sequence[Entry]]:
        attrs = self.attrs()
        yield [Entry(name, attrs, partial(self.lookup, name)) for name in self._roots]
