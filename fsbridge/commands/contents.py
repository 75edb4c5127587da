"""A hierarchy as rows and as documents, straight from the model. Not here: rows as a table (`member_table.py`).

Paths are those that the mount would show. A member that cannot be read is listed with the reason; it hides nothing else.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Literal, TypeAlias, cast

from fsbridge.asking import from_now
from fsbridge.commands.member_meaning import list_facts
from fsbridge.config import LEAST_CACHE, Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import FsbridgeError, NotFound, SetupError, TooDeep, Unlistable
from fsbridge.formats.open import open_source
from fsbridge.layouts import LAYOUTS, parse_layouts
from fsbridge.layouts.directories import Layout, PathDirectory
from fsbridge.layouts.members import Context, SourceMember, openers
from fsbridge.layouts.surroundings import Look, Surroundings
from fsbridge.links import dead_end, follow
from fsbridge.meaning import Meaning
from fsbridge.meaning.convention import Written
from fsbridge.meaning.conventions.netcdf import without_notes
from fsbridge.meaning.conventions.xarray import legible
from fsbridge.meaning.reading import read_array
from fsbridge.metadata import JSON, ArrayMetadata, ChunkGrid, DataType, Format, Index
from fsbridge.model import Array, Child, Chunks, Group, Link, Node, OtherFile, Source, as_array
from fsbridge.threads.parallel import apart
from fsbridge.tree import escape

REMOTE_LOOKS = 16
"""Most groups of a remote store of which coordinates are read, because each coordinate takes requests."""

COUNTED_CHUNKS = 10_000
"""Stored chunks that are looked at, one by one, for their sizes: more would take minutes."""

Kind: TypeAlias = Literal["group", "array", "directory", "link", "unreadable"]


@dataclass(frozen=True, slots=True)
class Row:
    """One member of a hierarchy. Fields that do not apply to its `kind`, or are not known, are None.

    A `directory` holds only other files, which belong to no array or group. `others`: number and bytes of the other files in
    the member's directory. `hidden`: by layout, the names of the other files that its own files replace.
    """

    path: str
    kind: Kind
    shape: list[int] | None = None
    chunks: list[int | list[int]] | None = None
    dtype: str | None = None
    codec: str | None = None
    stored: int | None = None
    total: int | None = None
    stored_bytes: int | None = None
    decoded_bytes: int | None = None
    axes: list[dict[str, JSON]] | None = None
    unit: str | None = None
    missing: list[JSON] | None = None
    fill: JSON = None
    packing: dict[str, float] | None = None
    place: dict[str, JSON] | None = None
    image: dict[str, JSON] | None = None
    attributes: dict[str, JSON] | None = None
    target: str | None = None
    reason: str | None = None
    note: str | None = None
    others: dict[str, int] | None = None
    hidden: dict[str, list[str]] | None = None
    left_out: dict[str, str] | None = None
    files: dict[str, list[str]] | None = None


def read(config: Config) -> tuple[str, list[Row]]:
    """Return the name of the format, and a row for each member from `config.inside` on. SetupError if that cannot be opened.

    Each array's row says what the layouts of `config` leave out of it. An interrupt does not wait for a remote store.
    """
    layouts = [LAYOUTS[name](config) for name in parse_layouts(config.layout)]
    listed = partial(_read, config, layouts)
    return apart(listed) if config.is_remote else listed()


def _read(config: Config, layouts: Sequence[Layout]) -> tuple[str, list[Row]]:
    source = config.source
    try:
        opened = open_source(source, replace(config, inside=()))
    except SetupError:
        raise
    except (FsbridgeError, OSError) as error:
        raise SetupError(f"{source}: {_describe_error(error)}") from None
    try:
        return _read_member(opened, config, layouts)
    finally:
        opened.close()


def _read_member(opened: Source, config: Config, layouts: Sequence[Layout]) -> tuple[str, list[Row]]:
    root = opened.root
    at = SourceMember(Context(opened.format_at, config, ChunkCache(config.cache_size)), lambda: root)
    try:
        target = follow(root, config.inside)
        for name, node in target.trail:
            at = at.child(name, node)
        path = "".join(f"/{os.fsdecode(escape(name))}" for name in at.names) or "/"
    except (FsbridgeError, OSError) as error:
        hint = f"see what is there: fsbridge info {shlex.quote(config.source)}"
        raise SetupError(f"{config.place}: {_describe_error(error)}", hint) from None
    survey = _Survey(root, layouts, config.is_remote)
    first, *below = _walk_node(path, target.node, config.limits.depth, survey, at, _Around(at.above))
    if first.files is None and first.reason is None and (config.inside or first.kind == "array"):
        first = replace(first, files=_list_files(path, target.node, [LAYOUTS["files"](config)]))
    if opened.remark is not None:
        first = replace(first, note=opened.remark)
    return opened.format_at(at.names).name, [first, *below]


@dataclass(frozen=True, slots=True)
class _Survey:
    """What the rows of all members share. `remote`: opening a member takes requests, so many are opened at a time."""

    root: Group | Array
    layouts: Sequence[Layout]
    remote: bool
    looks: list[Surroundings] = field(default_factory=list)
    """Those that have read coordinates."""


class _Around:
    """The surroundings of a group's arrays, which tell what the arrays mean. Looks around when the first array is met."""

    def __init__(self, group: SourceMember | None) -> None:
        """`group`: None for an array that is the root."""
        self._group = group
        self._found: Surroundings | None = None

    def find_meaning(self, at: SourceMember, metadata: ArrayMetadata, survey: _Survey) -> Meaning:
        """Return what an array of the group means. Raises the errors of coordinates that may be readable later."""
        x_first = at.context.format_at(at.names).first_axis_fastest
        if self._found is None:
            self._found = Surroundings(Look(at.context, self._group))
        if survey.remote and self._found not in survey.looks and len(survey.looks) >= REMOTE_LOOKS:
            return read_array(Written(metadata, self._found.groups, at.names, x_first))
        if self._found not in survey.looks:
            survey.looks.append(self._found)
        return self._found.meaning(metadata, at.names, x_first)


def walk(root: Group | Array, depth: int, layouts: Sequence[Layout] = ()) -> Iterator[Row]:
    """Yield one row for each member of a hierarchy without a source, each group before its members.

    The root's path is `/`. `depth` limits nested groups.
    """
    context = Context(lambda path: Format(""), Config("", ""), ChunkCache(LEAST_CACHE))
    survey, at = _Survey(root, layouts, False), SourceMember(context, lambda: root)
    yield from _walk_node("/", root, depth, survey, at, _Around(None))


def _walk_node(path: str, node: Node, depth: int, survey: _Survey, at: SourceMember, around: _Around) -> Iterator[Row]:
    """Yield the rows of a node and of everything below it.

    `at`: its path in the source; `around`: its group's surroundings.
    """
    if isinstance(node, Link):
        assert at.above is not None
        yield Row(path, "link", target=node.target, note=dead_end(survey.root, at.above.names, node))
    elif (array := as_array(node)) is not None:
        yield _describe_array(path, array, survey, at, around)
    else:
        yield from _walk_group(path, cast(Group, node), depth, survey, at)


def _walk_group(path: str, group: Group, depth: int, survey: _Survey, at: SourceMember) -> Iterator[Row]:
    reason = note = attributes = files = hidden = None
    kind: Kind = "group"
    children: list[Child] = []
    others: list[OtherFile] = []
    try:
        attributes = without_notes(group.attributes())
    except (FsbridgeError, OSError) as error:
        reason = _describe_error(error)
    try:
        if depth < 0:
            raise TooDeep("groups are nested too deeply")
        children = sorted(group.listing(others.append), key=lambda child: child.name)
        kind = "directory" if group.is_plain() else "group"
        files = None if reason or kind == "directory" else _list_files(path, group, survey.layouts)
        hidden = _find_hidden(others, at, survey.layouts)
    except Unlistable as error:
        note = _describe_error(error)
    except (FsbridgeError, OSError) as error:
        reason = reason or _describe_error(error)
    attributes = attributes if kind == "group" else None
    counted = _count(others)
    yield Row(path, kind, reason=reason, note=note, attributes=attributes, others=counted, hidden=hidden, files=files)
    around = _Around(at)
    for child, opener in openers(group, children, survey.remote):
        try:
            below = f"{path.rstrip('/')}/{os.fsdecode(escape(child.name))}"
        except FsbridgeError as error:
            yield Row(f"{path.rstrip('/')}/{child.name!a}", "unreadable", reason=_describe_error(error))
            continue
        try:
            node = opener()
            inner = at.child(child.name, None if isinstance(node, Link) else node)
        except (FsbridgeError, OSError) as error:
            yield Row(below, "unreadable", reason=_describe_error(error))
            continue
        yield from _walk_node(below, node, depth - 1, survey, inner, around)


def _count(others: Iterable[OtherFile]) -> dict[str, int] | None:
    sizes = [file.size or 0 for file in others]
    return {"files": len(sizes), "bytes": sum(sizes)} if sizes else None


def _find_hidden(others: Iterable[OtherFile], at: SourceMember, layouts: Sequence[Layout]) -> dict[str, list[str]] | None:
    """Return by layout the names of other files that the layout replaces by files of its own."""
    names, by_layout = sorted(file.name for file in others), dict[str, list[str]]()
    for layout in layouts if names and not at.names else ():  # below the root, the layout files has none of them
        shown = PathDirectory(layout, at).refresh()
        by_layout[layout.name] = [name for name in names if shown.is_own(name)]
    return {layout: hidden for layout, hidden in by_layout.items() if hidden} or None


def _list_files(path: str, node: Group | Array, layouts: Sequence[Layout]) -> dict[str, list[str]] | None:
    """Return the files that the layout `files` shows for a node; None if that is none of the `layouts`."""
    array, name = as_array(node), path.rpartition("/")[2]
    named = (
        layout.group_file_names(name, cast(Group, node)) if array is None else layout.file_names(name, array.metadata)
        for layout in layouts
    )
    return next((files for files in named if files), None)


def _count_stored_bytes(chunks: Chunks, rank: int, remote: bool) -> int | None:
    """Return the bytes of all stored chunks; None if the store does not tell them without further reading."""
    indices: list[Index] = [()]
    for _ in range(rank):
        indices = [(*prefix, number) for prefix in indices for batch in chunks.scan(prefix) for number, _ in batch]
    sizes = chunks.listed_sizes(indices)
    total = 0
    for index in indices:
        size = sizes.get(index)
        if size is None and remote:
            return None
        try:
            size = chunks.find(index).stored if size is None else size
        except NotFound:
            continue
        if not size:
            return None
        total += size
    return total


def _describe_array(path: str, array: Array, survey: _Survey, at: SourceMember, around: _Around) -> Row:
    metadata = array.metadata
    layouts = survey.layouts
    refusals = {layout.name: layout.refusal(metadata) for layout in layouts}
    damage = metadata.attributes_error
    stored, reason, note = None, metadata.refused if damage is None else _describe_error(damage), None
    stored_bytes = hidden = None
    others: list[OtherFile] = []
    try:
        with from_now():
            stored = array.chunks.count()
            if stored <= COUNTED_CHUNKS:
                stored_bytes = _count_stored_bytes(array.chunks, len(metadata.shape), survey.remote)
        others = [] if survey.remote else list(chain.from_iterable(array.other_files()))
        hidden = _find_hidden(others, at, layouts)
    except Unlistable:
        note = "the number of stored chunks is unknown, because the server does not list"
    except (FsbridgeError, OSError) as error:
        reason = _describe_error(error)
    try:
        meaning = around.find_meaning(at, metadata, survey)
    except (FsbridgeError, OSError) as error:
        meaning = read_array(Written(metadata))
        note = note or f"what lies beside it cannot be read: {_describe_error(error)}"
    itemsize = metadata.dtype.itemsize
    return Row(
        path,
        "array",
        shape=list(metadata.shape),
        chunks=_list_edges(metadata.grid),
        dtype=_name_type(metadata.dtype),
        codec=metadata.codec,
        stored=stored,
        total=math.prod(metadata.grid.counts),
        stored_bytes=stored_bytes,
        decoded_bytes=math.prod(metadata.shape) * itemsize if itemsize else None,
        attributes=legible(metadata) if damage is None else {},
        reason=reason,
        note=note,
        others=_count(others),
        hidden=hidden,
        files=_list_files(path, array, layouts),
        left_out={name: refusal for name, refusal in refusals.items() if refusal is not None} or None,
        **list_facts(metadata, meaning),
    )


def _name_type(dtype: DataType) -> str:
    """Return the data type in a word if there is one (`int16` for HDF5's H5T_STD_I16LE), else as the source spells it."""
    if dtype.serializer != "bytes":
        return {"vlen-utf8": "string", "vlen-bytes": "bytes"}.get(dtype.serializer, dtype.native)
    plain = dtype.numpy is not None and dtype.numpy.kind in "biufc" and not dtype.native.isalnum()
    return dtype.numpy.name if plain and dtype.numpy is not None else dtype.native


def _list_edges(grid: ChunkGrid) -> list[int | list[int]]:
    return [list(edge) if isinstance(edge, tuple) else edge for edge in grid.edges]


def _describe_error(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def make_document(row: Row) -> dict[str, object]:
    """Return what `--json` prints for a member."""
    return {key: value for key, value in asdict(row).items() if value is not None}
