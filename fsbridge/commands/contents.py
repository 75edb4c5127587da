"""A hierarchy as rows, as a table and as documents, straight from the model. Not here: printing them (`info.py`).

Paths are those that the mount would show. A member that cannot be read is listed with the reason; it hides nothing else.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from itertools import chain
from typing import Literal, TypeAlias, cast

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import FsbridgeError, NotFound, SetupError, TooDeep, Unlistable, printable
from fsbridge.formats.open import open_source
from fsbridge.layouts import parse_layouts, root_directories
from fsbridge.layouts.directories import Layout, PathDirectory
from fsbridge.layouts.members import SourceMember, openers
from fsbridge.links import dead_end
from fsbridge.meaning.convention import Written
from fsbridge.meaning.conventions.xarray import legible
from fsbridge.meaning.reading import read_array
from fsbridge.meaning.units import symbol
from fsbridge.metadata import JSON, ArrayMetadata, ChunkGrid, DataType, Index
from fsbridge.model import Array, Child, Chunks, Group, Link, Node, OtherFile, as_array
from fsbridge.threads.parallel import apart
from fsbridge.tree import escape

HEADING = ("path", "kind", "shape", "chunks", "dtype", "codec", "stored/total", "bytes")
SHORTENED = tuple(map(HEADING.index, ("chunks", "dtype", "codec")))
"""Columns whose cells may be cut: a compound type of 30 fields takes hundreds of characters; `--json` has it in full."""

CELL_CHARACTERS = 12
"""Least number of characters to which a cell is cut."""

ELLIPSIS = "..."

COUNTED_CHUNKS = 10_000
"""Stored chunks that are looked at, one by one, for their sizes: more would make people wait for minutes."""

Kind: TypeAlias = Literal["group", "array", "directory", "link", "unreadable"]


@dataclass(frozen=True, slots=True)
class Row:
    """One member of a hierarchy. Fields that do not apply to its `kind`, or are not known, are None.

    A `directory` holds other files alone, which belong to no array or group. `others`: how many other files lie in the
    member's directory, and their bytes. `hidden`: by layout, the names of those in whose place it shows files of its own.
    `reason` says why it, or its chunks, cannot be read; `note` what is not known about it although it can be read.
    `chunks` is the chunk shape, per dimension an edge length or the list of all of them; `stored` and `total` count chunks;
    `stored_bytes` and `decoded_bytes` are those of all stored chunks, and of all elements. `axes` have a name and a unit.
    `left_out`: by layout, why an array is not shown in it. `files`: what the layout files lists, and opens by name.
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
    axes: list[dict[str, str | None]] | None = None
    attributes: dict[str, JSON] | None = None
    target: str | None = None
    reason: str | None = None
    note: str | None = None
    others: dict[str, int] | None = None
    hidden: dict[str, list[str]] | None = None
    left_out: dict[str, str] | None = None
    files: dict[str, list[str]] | None = None


def read(config: Config) -> tuple[str, list[Row]]:
    """The name of the format of `config.source`, and all members; SetupError if it cannot be opened.

    Each array's row says what the layouts of `config` leave out of it. An interrupt does not wait for a remote store.
    """
    parse_layouts(config.layout)  # a mistake there is told before the store is opened
    listed = partial(_read, config)
    return apart(listed) if config.is_remote else listed()


def _read(config: Config) -> tuple[str, list[Row]]:
    source = config.source
    try:
        opened = open_source(source, config)
    except SetupError:
        raise
    except (FsbridgeError, OSError) as error:
        raise SetupError(f"{source}: {_reason(error)}") from None
    try:
        x_first = opened.format.first_axis_fastest
        shown = list(root_directories(opened, config, ChunkCache(config.cache_size)).values())
        return opened.format.name, list(walk(opened.root, config.limits.depth, shown, config.is_remote, x_first))
    finally:
        opened.close()


@dataclass(frozen=True, slots=True)
class _Above:
    """The groups above a member: their attributes, the nearest first, and the member's path below the `root`.

    `x_first`: the first axis of an array is x, else its last one is. `shown`: the roots of the trees of the layouts.
    """

    root: Group | Array
    x_first: bool = False
    shown: Sequence[PathDirectory] = ()
    groups: tuple[Mapping[str, JSON], ...] = ()
    names: tuple[str, ...] = ()

    @property
    def layouts(self) -> list[Layout]:
        return [directory.layout for directory in self.shown]


def walk(
    root: Group | Array, depth: int, shown: Sequence[PathDirectory] = (), remote: bool = False, x_first: bool = False
) -> Iterator[Row]:
    """Yield one row per member, each group before its members; the root's path is `/`. `depth` limits nested groups.

    `shown`: the roots of the trees of the layouts. `remote`: opening a member takes requests, so many members are opened at
    a time.
    """
    yield from _node("/", root, depth, remote, _Above(root, x_first, shown))


def table(rows: list[Row], width: int | None = None) -> str:
    """Rows as aligned text columns, under a heading; the widest cells lose their middle, to fit into `width` columns."""
    cells = [HEADING, *(tuple(map(printable, _cells(row))) for row in rows)]
    if width is not None:
        cells = _fit(cells, width)
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEADING) - 1)]
    lines = ["  ".join([*map(str.ljust, line, widths), line[len(widths)]]).rstrip() for line in cells]
    for i, row in reversed(list(enumerate(rows, 1))):
        for text in (row.note, row.reason, _others_text(row), _axes_text(row)):
            if text is not None:
                lines.insert(i + 1, f"    {printable(text)}")
        for layout, names in (row.hidden or {}).items():
            said = f"hidden in the layout {layout}, which has files of these names: {' '.join(names)}"
            lines.insert(i + 1, f"    {printable(said)}")
        for layout, reason in (row.left_out or {}).items():
            lines.insert(i + 1, f"    not in the layout {layout}: {printable(reason)}")
        for how, names in reversed((row.files or {}).items()):
            lines.insert(i + 1, f"    {how}: {printable(' '.join(names))}")
    return "\n".join(lines)


def _fit(cells: list[tuple[str, ...]], width: int) -> list[tuple[str, ...]]:
    """The cells with those of the shortened columns cut, the widest column first; paths and counts are never cut."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    excess = sum(widths) + 2 * (len(widths) - 1) - width
    while excess > 0:
        widest = max(SHORTENED, key=widths.__getitem__)
        rest = max([widths[i] for i in SHORTENED if i != widest and widths[i] < widths[widest]], default=0)
        cut = min(excess, widths[widest] - max(CELL_CHARACTERS, rest - 1))
        if cut <= 0:
            break
        widths[widest] -= cut
        excess -= cut
    return [tuple(map(shorten, line, widths)) for line in cells]


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` columns, without its middle."""
    if len(text) <= width:
        return text
    tail = (width - len(ELLIPSIS)) // 2
    return f"{text[: width - len(ELLIPSIS) - tail]}{ELLIPSIS}{text[len(text) - tail :]}"


def _node(path: str, node: Node, depth: int, remote: bool, above: _Above) -> Iterator[Row]:
    if isinstance(node, Link):
        yield Row(path, "link", target=node.target, note=dead_end(above.root, above.names[:-1], node))
    elif (array := as_array(node)) is not None:
        yield _array(path, array, remote, above)
    else:
        yield from _group(path, cast(Group, node), depth, remote, above)


def _group(path: str, group: Group, depth: int, remote: bool, above: _Above) -> Iterator[Row]:
    reason = note = attributes = files = hidden = None
    kind: Kind = "group"
    children: list[Child] = []
    others: list[OtherFile] = []
    try:
        attributes = dict(group.attributes())
    except (FsbridgeError, OSError) as error:
        reason = _reason(error)
    try:
        if depth < 0:
            raise TooDeep("too many nested groups")
        children = sorted(group.listing(others.append), key=lambda child: child.name)
        kind = "directory" if group.is_plain() else "group"
        files = None if reason or kind == "directory" else _files_of(path, group, above.layouts)
        hidden = None if above.names else _hidden(others, above)  # below the root, the layout files has none of them
    except Unlistable as error:
        note = _reason(error)
    except (FsbridgeError, OSError) as error:
        reason = reason or _reason(error)
    attributes = attributes if kind == "group" else None
    counted = _counted(others)
    yield Row(path, kind, reason=reason, note=note, attributes=attributes, others=counted, hidden=hidden, files=files)
    for child, opener in openers(group, children, remote):
        try:
            below = f"{path.rstrip('/')}/{os.fsdecode(escape(child.name))}"
        except FsbridgeError as error:
            yield Row(f"{path.rstrip('/')}/{child.name!a}", "unreadable", reason=_reason(error))
            continue
        try:
            node = opener()
        except (FsbridgeError, OSError) as error:
            yield Row(below, "unreadable", reason=_reason(error))
            continue
        inner = replace(above, groups=(attributes or {}, *above.groups), names=(*above.names, child.name))
        yield from _node(below, node, depth - 1, remote, inner)


def _counted(others: Iterable[OtherFile]) -> dict[str, int] | None:
    sizes = [file.size or 0 for file in others]
    return {"files": len(sizes), "bytes": sum(sizes)} if sizes else None


def _hidden(others: Iterable[OtherFile], above: _Above) -> dict[str, list[str]] | None:
    """Return the names of other files in whose place the layouts show files of their own, by layout."""
    names, found = sorted(file.name for file in others), dict[str, list[str]]()
    for root in above.shown if names else ():
        member = reduce(SourceMember.child, above.names, root.member)
        shown = PathDirectory(root.layout, member).present()
        found[root.layout.name] = [name for name in names if shown.is_own(name)]
    return {layout: hidden for layout, hidden in found.items() if hidden} or None


def _others_text(row: Row) -> str | None:
    if row.others is None:
        return None
    files = row.others["files"]
    return f"{files:,} other file{'s' * (files > 1)}, {_size(row.others['bytes'])}"


def _files_of(path: str, group: Group, layouts: Sequence[Layout]) -> dict[str, list[str]] | None:
    named = (layout.group_file_names(path.rpartition("/")[2], group) for layout in layouts)
    return next((files for files in named if files is not None), None)


def _stored_bytes(chunks: Chunks, rank: int) -> int | None:
    """Return the bytes of all stored chunks; None if the store does not tell them without more reading."""
    total = 0
    found: list[Index] = [()]
    for _ in range(rank):
        found = [(*prefix, number) for prefix in found for batch in chunks.scan(prefix) for number, _ in batch]
    for index in found:
        try:
            size = chunks.find(index).stored
        except NotFound:
            continue
        if not size:
            return None
        total += size
    return total


def _axes(metadata: ArrayMetadata, above: _Above) -> list[dict[str, str | None]] | None:
    """Return names and units of an array's dimensions, as it or a group above says; None if none says either."""
    axes = read_array(Written(metadata, above.groups, above.names, above.x_first)).axes
    known = any(axis.name or axis.unit for axis in axes)
    return [{"name": axis.name, "unit": axis.unit} for axis in axes] if known else None


def _axes_text(row: Row) -> str | None:
    if row.axes is None:
        return None
    units = [symbol(axis["unit"]) for axis in row.axes]
    return "axes: " + ", ".join(
        f"{axis['name'] or '?'}{f' [{unit}]' if unit else ''}" for axis, unit in zip(row.axes, units, strict=True)
    )


def _size(count: float | None) -> str:
    """Return a number of bytes as people read it, with three digits."""
    if count is None:
        return "?"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            break
        count /= 1000
    return f"{count:.3g}{unit}"


def _array(path: str, array: Array, remote: bool, above: _Above) -> Row:
    metadata = array.metadata
    refusals = {layout.name: layout.refusal(metadata) for layout in above.layouts}
    damage = metadata.attributes_error
    stored, reason, note = None, metadata.refused if damage is None else _reason(damage), None
    stored_bytes = hidden = None
    others: list[OtherFile] = []
    try:
        stored = array.chunks.count()
        stored_bytes = _stored_bytes(array.chunks, len(metadata.shape)) if stored <= COUNTED_CHUNKS and not remote else None
        others = [] if remote else list(chain.from_iterable(array.other_files()))
        hidden = None if above.names else _hidden(others, above)  # below the root, the layout files has none of them
    except Unlistable:
        note = "the number of stored chunks is unknown, because the server does not list"
    except (FsbridgeError, OSError) as error:
        reason = _reason(error)
    itemsize = metadata.dtype.itemsize
    return Row(
        path,
        "array",
        shape=list(metadata.shape),
        chunks=_edges(metadata.grid),
        dtype=_type(metadata.dtype),
        codec=metadata.codec,
        stored=stored,
        total=math.prod(metadata.grid.counts),
        stored_bytes=stored_bytes,
        decoded_bytes=math.prod(metadata.shape) * itemsize if itemsize else None,
        axes=_axes(metadata, above),
        attributes=legible(metadata) if damage is None else {},
        reason=reason,
        note=note,
        others=_counted(others),
        hidden=hidden,
        files=next(filter(None, (layout.file_names(path.rpartition("/")[2], metadata) for layout in above.layouts)), None),
        left_out={name: refusal for name, refusal in refusals.items() if refusal is not None} or None,
    )


def _type(dtype: DataType) -> str:
    """Return the data type in a word if there is one (`int16` for HDF5's H5T_STD_I16LE), else as the source spells it."""
    if dtype.serializer != "bytes":
        return {"vlen-utf8": "string", "vlen-bytes": "bytes"}.get(dtype.serializer, dtype.native)
    plain = dtype.numpy is not None and dtype.numpy.kind in "biufc" and not dtype.native.isalnum()
    return dtype.numpy.name if plain and dtype.numpy is not None else dtype.native


def _edges(grid: ChunkGrid) -> list[int | list[int]]:
    return [list(edge) if isinstance(edge, tuple) else edge for edge in grid.edges]


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def document(row: Row) -> dict[str, object]:
    """Return what `--json` prints for a member."""
    return {key: value for key, value in asdict(row).items() if value is not None}


def _cells(row: Row) -> tuple[str, ...]:
    if row.kind == "link":
        return (f"{row.path} -> {row.target}", "link", "", "", "", "", "", "")
    if row.shape is None or row.chunks is None:
        return (row.path, row.kind, "", "", "", "", "", "")
    chunks = [str(edge) if isinstance(edge, int) else "+".join(map(str, edge)) for edge in row.chunks]
    stored = "?" if row.stored is None else str(row.stored)
    return (
        row.path,
        row.kind,
        "x".join(map(str, row.shape)) or "scalar",
        "x".join(chunks) or "scalar",
        row.dtype or "",
        row.codec or "",
        f"{stored}/{row.total}",
        f"{_size(row.stored_bytes)}/{_size(row.decoded_bytes)}",
    )
