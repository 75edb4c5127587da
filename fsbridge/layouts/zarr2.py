"""The layout `zarr2` over the machinery of all layouts: three documents, chunk files beside them, and `.zmetadata`.

`.zmetadata` has all documents of the hierarchy. It is complete, or an error that says why it cannot be, because readers rely
on it: zarr-python 3 opens it by default and treats a member that it does not name as absent. Not here: chunk files
(`chunks.py`).
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fsbridge.asking import from_now
from fsbridge.decoded import DecodedChunks
from fsbridge.errors import NotFound
from fsbridge.layouts.chunk_variants import FilledSpace, flat_cell, flat_entries
from fsbridge.layouts.chunks import ChunkDirectory, ChunkSpace
from fsbridge.layouts.consolidated import Descendants
from fsbridge.layouts.directories import ArrayDirectory, GroupDirectory, PathDirectory
from fsbridge.layouts.forms import ChunkForm, chunk_steps
from fsbridge.layouts.json_text import SPELLED_BYTES, encode, in_base64, number, scalar, text
from fsbridge.layouts.nodes import DocumentFile
from fsbridge.meaning.conventions.ome_versions import in_zarr2
from fsbridge.meaning.conventions.xarray import DIMENSIONS, zarr2_attributes, zarr2_fill, zarr2_text
from fsbridge.metadata import JSON, ArrayMetadata, DataType, Format, Index
from fsbridge.model import Array, Group
from fsbridge.tree import AnyNode, Attrs, Entry

GROUP, ARRAY, ATTRIBUTES = b".zgroup", b".zarray", b".zattrs"


def group_documents(attributes: Mapping[str, JSON]) -> dict[bytes, bytes]:
    """Return the documents of a group, by file name."""
    return {GROUP: encode({"zarr_format": 2}), ATTRIBUTES: encode(dict(attributes))}


def array_documents(metadata: ArrayMetadata, separator: str) -> dict[bytes, bytes]:
    """Return the documents of an array, by file name. `.zattrs` is left out if the attributes cannot be read.

    `separator`: between the coordinates of a chunk key.
    """
    described = {ARRAY: encode(array_document(metadata, separator))}
    return described if metadata.attributes_error else {**described, ATTRIBUTES: encode(array_attributes(metadata))}


def array_document(metadata: ArrayMetadata, separator: str) -> dict[str, JSON]:
    """Return `.zarray` of an array, which must have a regular grid."""
    serializer = metadata.dtype.serializer
    return {
        "zarr_format": 2,
        "shape": list(metadata.shape),
        "chunks": list(metadata.grid.edges),
        "dtype": dtype(metadata.dtype),
        "fill_value": fill_value(metadata),
        "order": "F" if fortran(metadata) else "C",
        "compressor": None,
        "filters": None if serializer == "bytes" else [{"id": serializer}],
        "dimension_separator": separator,
    }


def array_attributes(metadata: ArrayMetadata) -> dict[str, JSON]:
    """Return `.zattrs`: the source's attributes, with names of dimensions if all have one and no attribute has them yet."""
    scalar = not metadata.shape and ".zarray" not in metadata.native  # xarray needs an empty list, too
    names = () if scalar else metadata.dimension_names
    if names is None or DIMENSIONS in metadata.attributes or any(name is None for name in names):
        return zarr2_attributes(metadata)
    return {DIMENSIONS: list(names), **zarr2_attributes(metadata)}


def fortran(metadata: ArrayMetadata) -> bool:
    """True if decoded chunks have their first dimension fastest, which `.zarray` states as order F."""
    order = metadata.order
    return order is not None and len(order) > 1 and list(order) == sorted(order, reverse=True)


def is_transposed(metadata: ArrayMetadata) -> bool:
    """True if decoded chunks have a memory order that `.zarray` cannot state: neither C nor F."""
    order = metadata.order
    return order is not None and list(order) != sorted(order) and not fortran(metadata)


def dtype(of: DataType) -> JSON:
    """Return the `dtype` member: numpy's spelling, a packed struct's fields, or `|V` for types that Zarr v2 lacks."""
    if of.serializer != "bytes":
        return "|O"
    named = of.name if isinstance(of.name, str) else of.name.get("name")
    if of.numpy is None or named in ("raw_bytes", None) or of.numpy.subdtype is not None:
        return f"|V{of.itemsize}"
    return _fields(of.numpy) if of.numpy.names is not None else _typestr(of.numpy)


def _typestr(of: np.dtype[Any]) -> str:
    """Return numpy's spelling of a type. numpy leaves out the factor of dates and durations without a unit: it is added."""
    factor = np.datetime_data(of)[1] if of.str[1:] in ("M8", "m8") else 1
    return of.str if factor == 1 else f"{of.str}[{factor}generic]"


def _fields(of: np.dtype[Any]) -> JSON:
    """Return a packed struct as a list of `[name, type]` and `[name, type, shape]`."""
    entries: list[JSON] = []
    fields: Any = of.fields
    for name in of.names or ():
        inner, shape = fields[name][0], []
        if inner.subdtype is not None:
            inner, shape = inner.subdtype[0], [list(inner.subdtype[1])]
        entries.append([name, _fields(inner) if inner.names is not None else _typestr(inner), *shape])
    return entries


def fill_value(metadata: ArrayMetadata) -> JSON:
    """Return the `fill_value` member. It is null only if the source's is, or if every chunk has a file (`zarr2_fill`).

    If it is null, zarr-python 2 fills absent chunks with whatever is in memory.
    """
    if zarr2_text(metadata) or (metadata.fill is None and _says_null(metadata.native)):
        return None
    of = metadata.dtype
    if of.serializer == "vlen-utf8":
        return text(metadata.fill)
    if of.serializer == "vlen-bytes":
        return in_base64(metadata.fill if isinstance(metadata.fill, bytes) else b"")
    if not isinstance(metadata.fill, bytes) and of.itemsize > SPELLED_BYTES:
        return ""
    raw = zarr2_fill(metadata)
    if raw is None:
        return None
    shown = dtype(of)
    if of.numpy is None or not isinstance(shown, str) or shown[1] in "SV":  # also long double, shown as bytes
        return in_base64(raw)
    return scalar(raw, of.numpy, lambda value, _: number(float(value)))  # Zarr v2 cannot write a NaN's payload


def _says_null(native: Mapping[str, JSON]) -> bool:
    """True if the source is a Zarr array and its own document has a null fill value or none."""
    document = native.get(".zarray") or native.get("zarr.json")
    return isinstance(document, Mapping) and document.get("fill_value") is None


CONSOLIDATED = b".zmetadata"

LISTED_CHUNKS = 65536
"""Most chunks of an array for which a listing includes files of chunks that are not stored."""


class Zarr2:
    """Shows a source as an uncompressed Zarr v2 hierarchy (`directories.Layout`)."""

    name = "zarr2"
    documents = frozenset((GROUP, ARRAY, ATTRIBUTES, CONSOLIDATED))
    of_groups, of_arrays = (GROUP, ATTRIBUTES), (ARRAY, ATTRIBUTES)

    def __init__(self, separator: str = ".", consolidated: bool = False) -> None:
        """`separator`: between the coordinates of a chunk key. `consolidated`: the root has a `.zmetadata`."""
        self.separator = separator
        self.consolidated = consolidated

    def selective(self, format: Format) -> bool:
        return not format.uniform_chunks

    def refusal(self, metadata: ArrayMetadata) -> str | None:
        if not metadata.grid.regular:
            return "Zarr v2 has no chunks of several shapes"
        if metadata.dtype.element is not None:
            return "Zarr v2 has no elements that may be missing"
        if metadata.dtype.serializer != "bytes" and is_transposed(metadata):
            return "Zarr v2 has no elements of variable length in this memory order"
        return None

    def file_names(self, name: str, metadata: ArrayMetadata) -> None:
        return None

    def group_file_names(self, name: str, group: Group) -> None:
        return None

    def describe(self, group: Group) -> JSON:
        attributes = group.attributes()
        return in_zarr2(attributes) if "zarr.json" in group.native() else dict(attributes)

    def group_documents(self, described: JSON, names: Sequence[str]) -> Mapping[bytes, bytes]:
        return group_documents(described)

    def array_documents(self, metadata: ArrayMetadata, root: bool, around: JSON = None) -> Mapping[bytes, bytes]:
        return array_documents(metadata, self.separator)

    def group(self, path: PathDirectory, group: Group) -> GroupDirectory:
        root = not path.member.names
        return ConsolidatedGroup(path, group) if self.consolidated and root else GroupDirectory(path, group)

    def array(self, path: PathDirectory, array: Array) -> ArrayDirectory:
        return Zarr2Array(path, array, self.separator.encode())


class Zarr2Array(ArrayDirectory):
    """An array's directory: chunk files beside the documents, in one directory or nested."""

    def __init__(self, path: PathDirectory, array: Array, separator: bytes) -> None:
        super().__init__(path, array)
        self.space: ChunkSpace = Zarr2Space(path.identity(array), path.member.share_chunks(array), separator)
        self.separator = separator
        self._listed = 0

    @property
    def extent(self) -> int:
        """Number of chunks in the last complete listing, if the directory is flat."""
        return self._listed

    def chunk(self, name: bytes) -> AnyNode:
        if self.separator == b"/" and self.space.rank:
            return ChunkDirectory(self.space, ()).lookup(name)
        cell = flat_cell(self.space, name, self.separator)
        if cell is None:
            raise NotFound(f"{name!r} is no chunk of this grid")
        return self.space.find_node(cell)

    def chunk_entries(self) -> Iterator[Sequence[Entry]]:
        if self.separator == b"/" and self.space.rank:
            yield from ChunkDirectory(self.space, ()).entries()
            return
        listed = 0
        for batch in flat_entries(self.space, self.separator):
            listed += len(batch)
            yield batch
        self._listed = listed


class Zarr2Space(FilledSpace):
    """Shows decoded chunks as they are, or in C order if the document cannot say their order.

    If `.zarray`'s `fill_value` differs from the source's fill value, absent chunks are shown as files.
    """

    __slots__ = ("_form", "_separator")

    def __init__(self, identity: Hashable, chunks: DecodedChunks, separator: bytes) -> None:
        metadata = chunks.metadata
        own = metadata.fill if isinstance(metadata.fill, bytes) else bytes(metadata.dtype.itemsize)
        said = fill_value(metadata) is None and zarr2_fill(metadata) is not None  # the source itself says null
        super().__init__(identity, chunks, None if said or zarr2_fill(metadata) == own else own, listed=LISTED_CHUNKS)
        shape = metadata.grid.chunk_shape((0,) * len(metadata.shape)) if is_transposed(metadata) else None
        steps = () if shape is None else chunk_steps(metadata, shape)
        self._form = None if shape is None else ChunkForm(b"", shape, steps, metadata.dtype.itemsize)
        self._separator = separator.decode()

    def name(self, position: int) -> str:
        return super().name(position).replace("/", self._separator)

    def form(self, cell: Index) -> ChunkForm | None:
        return self._form


class ConsolidatedGroup(GroupDirectory):
    """The root with `.zmetadata`, which is made for a look-up, and again when it is opened."""

    def lookup(self, name: bytes) -> AnyNode:
        if name != CONSOLIDATED:
            return super().lookup(name)
        return DocumentFile(self._make, self._make(), self.group.mtime_ns)

    def entries(self) -> Iterator[Sequence[Entry]]:
        stream = super().entries()
        yield next(stream)
        yield [Entry(CONSOLIDATED, Attrs("file", None, self.group.mtime_ns), partial(self.lookup, CONSOLIDATED))]
        yield from stream

    def _make(self) -> bytes:
        """Return `.zmetadata` as it is now."""
        with from_now():
            return consolidated_document(self.path)


def consolidated_document(path: PathDirectory, most_members: int = 10_000) -> bytes:
    """Return `.zmetadata` of the hierarchy below `path`. Raises the error of any member that cannot be read.

    TooLarge above `most_members` groups and arrays. The default takes a few seconds and some ten megabytes.
    """
    descendants = Descendants(most_members, CONSOLIDATED.decode(), ": mount without --consolidated")
    documents: dict[str, JSON] = {}
    for prefix, made in descendants.documents(path):
        documents |= {prefix + name.decode(): json.loads(content) for name, content in made.items()}
    return encode({"zarr_consolidated_format": 1, "metadata": documents})
