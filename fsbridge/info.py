"""`fsbridge info`: a hierarchy as a table or as JSON, straight from the model. Not here: mounts, argument parsing.

Paths are those that the mount would show. A member that cannot be read is listed with the reason; it hides nothing else.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal, TypeAlias, cast

from fsbridge.config import Config, Remote
from fsbridge.errors import FsbridgeError, SetupError, TooDeep
from fsbridge.formats.opening import open_source
from fsbridge.layouts import LAYOUTS, parse_layouts
from fsbridge.layouts.directories import Layout
from fsbridge.layouts.members import openers
from fsbridge.metadata import ChunkGrid, DataType
from fsbridge.model import Array, Group, Link, Node, as_array
from fsbridge.parallel import apart
from fsbridge.printable import printable
from fsbridge.store.remote.urls import is_url
from fsbridge.tree import escape

HEADING = ("path", "kind", "shape", "chunks", "dtype", "codec", "stored/total")
SHORTENED = tuple(map(HEADING.index, ("chunks", "dtype", "codec")))
"""Columns whose cells may be cut: a compound type of 30 fields takes hundreds of characters; `--json` has it in full."""

CELL_CHARACTERS = 12
"""Characters that are left of a cell at least."""

TABLE_COLUMNS = 120
"""Width of the table where there is no terminal and no COLUMNS in the environment."""

ELLIPSIS = "..."

SYSTEM = 2
"""The exit code of mount(8) for errors of the system."""

Kind: TypeAlias = Literal["group", "array", "link", "unreadable"]


@dataclass(frozen=True, slots=True)
class Row:
    """One member. What does not apply to its `kind` is None; `reason` says why it, or its chunks, cannot be read.

    `chunks` is the chunk shape, per dimension an edge length or the list of all of them; `stored` and `total` count chunks.
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
    target: str | None = None
    reason: str | None = None
    left_out: dict[str, str] | None = None
    files: dict[str, list[str]] | None = None


def run(
    source: str,
    format: str = "auto",
    as_json: bool = False,
    allow_external: tuple[str, ...] = (),
    hdf5_plugins: tuple[str, ...] = (),
    layout: str = "zarr3",
    remote: Remote | None = None,
) -> int:
    """Print what `source` holds, and what the layouts named by `layout` leave out of it.

    Exit code 0, or 1 when a member cannot be read. Raises SetupError if `source` cannot.
    """
    config = Config(
        source=source,
        mountpoint="",
        format=format,
        layout=layout,
        allow_external=allow_external,
        hdf5_plugins=hdf5_plugins,
        remote=remote or Remote(),
    )
    layouts = [LAYOUTS[name](config) for name in parse_layouts(layout)]
    read = partial(_read, source, config, layouts)
    name, rows = apart(read) if is_url(source) else read()
    if as_json:
        _print(json.dumps({"source": source, "format": name, "members": [_document(row) for row in rows]}, indent=2))
    else:
        _print(f"{printable(source)}: {name}\n{table(rows, shutil.get_terminal_size((TABLE_COLUMNS, 0)).columns)}")
    broken = sum(row.reason is not None for row in rows)
    if broken:
        print(f"fsbridge: {broken} of {len(rows)} members cannot be read in full", file=sys.stderr)
    return 1 if broken else 0


def _read(source: str, config: Config, layouts: Sequence[Layout]) -> tuple[str, list[Row]]:
    """The name of the format, and all members."""
    try:
        opened = open_source(source, config)
    except SetupError:
        raise
    except (FsbridgeError, OSError) as error:
        raise SetupError(f"{source}: {_reason(error)}") from None
    try:
        return opened.format, list(walk(opened.root, config.limits.depth, layouts, config.is_remote))
    finally:
        opened.close()


def _print(text: str) -> None:
    """To standard output; a reader that has seen enough (`| head`) is no error. SetupError where nothing can be written."""
    if sys.stdout is None:
        raise SetupError("standard output is closed", exit_code=SYSTEM)
    try:
        sys.stdout.buffer.write(os.fsencode(text + "\n"))
        sys.stdout.buffer.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter complains at its end
        if not isinstance(error, BrokenPipeError):
            raise SetupError(f"standard output: {error.strerror}", exit_code=SYSTEM) from None


def walk(root: Node, depth: int, layouts: Sequence[Layout] = (), far: bool = False) -> Iterator[Row]:
    """One row per member, each group before its members; the root's path is `/`. `depth` limits nested groups.

    `far`: to open a member takes requests, so that many are opened at a time.
    """
    yield from _node("/", root, depth, layouts, far)


def table(rows: list[Row], width: int | None = None) -> str:
    """Rows as aligned text columns, under a heading; the widest cells lose their middle, to fit into `width` columns."""
    cells = [HEADING, *(tuple(map(printable, _cells(row))) for row in rows)]
    if width is not None:
        cells = _fit(cells, width)
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEADING) - 1)]
    lines = ["  ".join([*map(str.ljust, line, widths), line[len(widths)]]).rstrip() for line in cells]
    for i, row in reversed(list(enumerate(rows, 1))):
        if row.reason is not None:
            lines.insert(i + 1, f"    {printable(row.reason)}")
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


def _node(path: str, node: Node, depth: int, layouts: Sequence[Layout], far: bool) -> Iterator[Row]:
    if isinstance(node, Link):
        yield Row(path, "link", target=node.target)
    elif (array := as_array(node)) is not None:
        yield _array(path, array, layouts)
    else:
        yield from _group(path, cast(Group, node), depth, layouts, far)


def _group(path: str, group: Group, depth: int, layouts: Sequence[Layout], far: bool) -> Iterator[Row]:
    reason = None
    try:
        if depth < 0:
            raise TooDeep("too many nested groups")
        group.attributes()
        children = sorted(group.children(), key=lambda child: child.name)
    except (FsbridgeError, OSError) as error:
        reason, children = _reason(error), []
    yield Row(path, "group", reason=reason)
    for child, opener in openers(group, children, far):
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
        yield from _node(below, node, depth - 1, layouts, far)


def _array(path: str, array: Array, layouts: Sequence[Layout]) -> Row:
    metadata = array.metadata
    refusals = {layout.name: layout.refusal(metadata) for layout in layouts}
    stored, reason = None, metadata.refused
    try:
        stored = array.chunks.count()
    except (FsbridgeError, OSError) as error:
        reason = _reason(error)
    return Row(
        path,
        "array",
        shape=list(metadata.shape),
        chunks=_edges(metadata.grid),
        dtype=_type(metadata.dtype),
        codec=metadata.codec,
        stored=stored,
        total=math.prod(metadata.grid.counts),
        reason=reason,
        files=next(filter(None, (layout.file_names(path.rpartition("/")[2], metadata) for layout in layouts)), None),
        left_out={name: refusal for name, refusal in refusals.items() if refusal is not None} or None,
    )


def _type(dtype: DataType) -> str:
    """The data type in a word where there is one (`int16` for HDF5's H5T_STD_I16LE), else as the source spells it."""
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


def _document(row: Row) -> dict[str, object]:
    return {key: value for key, value in asdict(row).items() if value is not None}


def _cells(row: Row) -> tuple[str, ...]:
    if row.kind == "link":
        return (f"{row.path} -> {row.target}", "link", "", "", "", "", "")
    if row.shape is None or row.chunks is None:
        return (row.path, row.kind, "", "", "", "", "")
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
    )
