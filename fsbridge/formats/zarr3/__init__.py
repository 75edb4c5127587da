"""Zarr v3: `zarr.json` and the hierarchy it describes. Not here: data types (`types.py`), codecs (`codecs.py`), shards.

What writers do beyond or against the core specification (3.1), and how it is handled:

    | found | written by | here |
    | --- | --- | --- |
    | directories without `zarr.json` | TensorStore | groups |
    | inline `consolidated_metadata` | zarr-python 3 | the directories are the truth; see `keyed/consolidated.py` |
    | bare strings as extension points | the 3.1 specification | accepted |
    | no `codecs`, or only bytes-to-bytes ones | GDAL 3.10, zarrita.js | little-endian `bytes` |
    | `fill_value: null` or none | GDAL 3.10 | none: zeros |
    | `rectilinear` grids | zarr-python 3.4 | read |
    | `zarrs.regular_bounded` grids, whose last chunks are cut | zarrs | read |
    | `zarrs.default_suffix`, `suffix`: keys with an end | zarrs, a proposal | read |
    | `fanout`: coordinates as directories of digits | a proposal | read |
    | unknown members without `"must_understand": false` | | refused |
    | `storage_transformers` | | refused unless empty |
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from fsbridge.codecs import refusal
from fsbridge.errors import CorruptData, FsbridgeError, Unsupported
from fsbridge.formats.documents import (
    Document,
    Kinds,
    Repeated,
    Split,
    chunk_edges,
    reshape_grid,
    shape_of,
)
from fsbridge.formats.keyed.chunkkeys import ChunkKeys
from fsbridge.formats.keyed.chunks import KeyedChunks
from fsbridge.formats.keyed.consolidated import Copies
from fsbridge.formats.keyed.hierarchy import Dialect, KeyedArray, newest, versions
from fsbridge.formats.keyed.store import KeyedStore
from fsbridge.formats.lazy_metadata import light, lighten
from fsbridge.formats.strict_json import Fields, kind
from fsbridge.formats.zarr3.array_codecs import check_members, extension
from fsbridge.formats.zarr3.codecs import CodecPipeline, parse_codecs
from fsbridge.formats.zarr3.fill_values import fill_bytes, fill_spelling
from fsbridge.formats.zarr3.shard_index import ShardCache
from fsbridge.formats.zarr3.sharding import ShardedChunks
from fsbridge.formats.zarr3.shards import Shards
from fsbridge.formats.zarr3.types import parse_type
from fsbridge.lru import LRU
from fsbridge.metadata import JSON, MAX_EXTENT, MAX_RANK, ArrayMetadata, ChunkGrid
from fsbridge.model import Array, Group
from fsbridge.store import Key

DOCUMENT = "zarr.json"

ARRAY_MEMBERS = frozenset(
    (
        *("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs"),
        *("attributes", "dimension_names", "storage_transformers", "consolidated_metadata"),
    )
)
GROUP_MEMBERS = frozenset(("zarr_format", "node_type", "attributes", "consolidated_metadata"))


MAX_EDGES = 1 << 20
"""Most edges of a rectilinear grid, over all dimensions. More could not be listed in one `zarr.json` of the mount."""


MAX_SUFFIX = 64
"""Most characters at the end of a chunk's key."""

ParsedArray: TypeAlias = tuple[ArrayMetadata, CodecPipeline, ChunkGrid, ChunkKeys]


class Zarr3Hierarchy:
    """Zarr v3's rules for one store: `keyed.Hierarchy`."""

    document = DOCUMENT
    consolidated = of_groups = (DOCUMENT,)

    def __init__(self, keyed: KeyedStore, dialect: Dialect) -> None:
        self.keyed = keyed
        self._dialect = dialect
        # Shard indexes take at most this part of the memory for decoded chunks: 2 million inner chunks by default.
        self.shards: ShardCache = LRU(keyed.config.cache_size // 8)
        self._kinds = Kinds(_parse, _split)
        self._parse = lighten(self._kinds.parse, self.keyed.attributes)
        self._parsed: Repeated[ParsedArray] = Repeated(lambda made: _edges_listed(made[2]))
        self._copies = Copies(keyed.documents, DOCUMENT)

    def open(self, key: Key) -> Group | Array:
        """Return the array or group at the directory `key`. A directory without a document is a group."""
        self._copies.adopt(key / DOCUMENT)
        try:
            document = self.keyed.documents.read(key / DOCUMENT)
            is_array = document is not None and _describes_array(document.fields)
        except (FsbridgeError, OSError) as error:
            return self._dialect.group(self, key).in_spite_of(error)
        if document is None or not is_array:
            return self._dialect.group(self, key)
        try:
            return self._array(key, document)
        except FsbridgeError as error:
            return self._dialect.group(self, key).in_spite_of(error, says_array=True)

    def group_attributes(self, key: Key) -> Mapping[str, JSON]:
        """Return `attributes`, empty for a directory without a document."""
        document = self._group_document(key)
        return {} if document is None else attributes(document.fields)

    def group_documents(self, key: Key) -> Mapping[str, JSON]:
        """Return `zarr.json`."""
        document = self._group_document(key)
        return {} if document is None else {DOCUMENT: document.values}

    def _group_document(self, key: Key) -> Document | None:
        """Return the document of a group. Raises the error of one that `open` could not use."""
        document = self.keyed.documents.read(key / DOCUMENT)
        if document is not None and _describes_array(document.fields):
            self._array(key, document)
        return document

    def is_said_group(self, key: Key) -> bool:
        document = self.keyed.documents.read(key / DOCUMENT)
        return document is not None and not _describes_array(document.fields)

    def unfinished(self, key: Key) -> None:
        """Return None, because each document says what it describes."""

    def _array(self, key: Key, document: Document) -> Array:
        parsed = self._parsed.made(self._parse, document)
        if _is_its_own(parsed[0]):
            parsed = parse_array(document.fields)
        metadata, pipeline, outer, keys = parsed
        version, again = versions(document), partial(self.keyed.documents.again, key / DOCUMENT, document.stat.version)
        metadata = light(metadata, document.length, lambda: parse_array(again().fields)[0], self.keyed.attributes)
        check = partial(self.keyed.documents.same, key / DOCUMENT, document.stat)  # the document may be large
        chunks = self._chunks(key, metadata, pipeline, outer, keys, version)
        fetch = chunks.fetch if self.keyed.store.remote else None
        return KeyedArray(metadata, version, newest(document), chunks, check, self.keyed, key, fetch)

    def _chunks(
        self, key: Key, metadata: ArrayMetadata, pipeline: CodecPipeline, outer: ChunkGrid, keys: ChunkKeys, version: Any
    ) -> KeyedChunks | ShardedChunks:
        files = self.keyed.chunk_files(key, outer, keys)
        if pipeline.levels:
            levels, chain = pipeline.levels, pipeline.chain
            return ShardedChunks(Shards(self.keyed, files, outer, levels, version, self.shards), metadata, chain)
        return KeyedChunks(self.keyed, files, metadata, pipeline.chain)


def _is_its_own(metadata: ArrayMetadata) -> bool:
    """True if metadata cannot be shared, because the reason for unreadable chunks may contain this array's name."""
    return metadata.refused is not None or metadata.dtype.element is not None


def _describes_array(fields: Fields) -> bool:
    """True if the document is an array's, False if it is a group's. Raises CorruptData or Unsupported for any other."""
    check_format(fields)
    if fields.choice("node_type", ("array", "group")) == "array":
        return True
    check_members(fields, GROUP_MEMBERS)
    return False


def check_format(fields: Fields) -> None:
    """Check that `zarr_format` is 3. A draft of 2021 has a URL there."""
    value = fields.value("zarr_format")
    if isinstance(value, str) and "://" in value:
        raise Unsupported(f"{fields.place}: zarr_format {value[:80]!r} is that of an abandoned draft of Zarr v3")
    fields.integer("zarr_format", 3, 3)


def attributes(fields: Fields) -> Mapping[str, JSON]:
    """Return user attributes, empty if they are `null` or missing."""
    value = fields.values.get("attributes")
    return {} if value is None else fields.mapping("attributes")


def _parse(document: Document) -> ParsedArray:
    return parse_array(document.fields)


def _split(values: Mapping[str, JSON]) -> Split | None:
    own = values.get("attributes")
    if not isinstance(own, dict):
        return None
    shape, grid = shape_of(values, "shape"), values.get("chunk_grid")
    if shape is None or not isinstance(grid, dict) or grid.get("name") != "regular":  # its chunks depend on the shape
        return None
    chunks = shape_of(grid.get("configuration"), "chunk_shape")
    if chunks is None or 0 in chunks:  # the shape tells what chunks of no extent are
        return None
    said = {**values, "attributes": None, "shape": len(shape)}

    def joined(known: ArrayMetadata, pipeline: CodecPipeline, outer: ChunkGrid, keys: ChunkKeys) -> ParsedArray:
        stored = reshape_grid(outer, shape)
        grid = stored if known.grid is outer else reshape_grid(known.grid, shape)
        return replace(known, grid=grid, attributes=own, native={DOCUMENT: values}), pipeline, stored, keys

    return Split(said, joined)


def parse_array(fields: Fields) -> ParsedArray:
    """Read an array's document: metadata of its chunks, how to decode one, the grid and the keys of stored objects.

    Raises CorruptData for what is impossible, Unsupported for what is unknown.
    """
    check_members(fields, ARRAY_MEMBERS)
    if fields.values.get("storage_transformers") is not None and (names := _transformers(fields)):
        raise Unsupported(f"{fields.place}: it needs storage transformers ({names}), of which fsbridge knows none")
    shape = fields.integers("shape", 0, MAX_EXTENT)
    try:
        outer = parse_grid(fields, shape)
        keys = parse_keys(fields)
        of = parse_type(fields.value("data_type"), fields.place)
        codecs = fields.sequence("codecs") if "codecs" in fields else []
        first = outer.chunk_shape(tuple(0 for _ in shape)) if all(outer.counts) else tuple(map(_first_edge, outer.edges))
        pipeline = parse_codecs(codecs, of, first, fields.place, outer.regular)
        fill = fill_bytes(fields.values.get("fill_value"), of, fields.place)
        if isinstance(fill, bytes) and pipeline.dtype.endian == "big":
            fill = of.big_endian(fill)
        metadata = ArrayMetadata(
            grid=_inner_grid(outer, pipeline, fields) if pipeline.levels else outer,
            dtype=pipeline.dtype,
            fill=fill,
            fill_spelling=fill_spelling(fields.values.get("fill_value"), of),
            order=pipeline.order,
            attributes=attributes(fields),
            dimension_names=_dimension_names(fields, len(shape)),
            native={DOCUMENT: fields.values},
            codec=pipeline.description,
            refused=refusal(pipeline.chain, *(level.outer for level in pipeline.levels)),
        )
    except FsbridgeError as error:
        raise error if str(error).startswith(fields.place) else error.at(fields.place) from None
    return metadata, pipeline, outer, keys


def _transformers(fields: Fields) -> str:
    """Return the names in `storage_transformers`."""
    listed = fields.sequence("storage_transformers")
    return ", ".join(repr(extension(item, f"{fields.place}: storage_transformers")[0][:80]) for item in listed)


def parse_grid(fields: Fields, shape: tuple[int, ...]) -> ChunkGrid:
    """Read `chunk_grid`: `regular`, `rectilinear` as zarr-python 3.4 writes it, or the cut chunks of zarrs."""
    name, configuration = extension(fields.value("chunk_grid"), f"{fields.place}: chunk_grid")
    if name == "regular":
        check_members(configuration, ("chunk_shape",))
        return ChunkGrid(shape, chunk_edges(shape, configuration.integers("chunk_shape", 0, MAX_EXTENT, len(shape))))
    if name == "zarrs.regular_bounded":
        check_members(configuration, ("chunk_shape",))
        lengths = configuration.integers("chunk_shape", 1, MAX_EXTENT, len(shape))
        return ChunkGrid(shape, tuple(map(partial(_cut, configuration), shape, lengths)))
    if name != "rectilinear":
        raise Unsupported(f"{fields.place}: chunk_grid {name[:80]!r} is not known")
    check_members(configuration, ("kind", "chunk_shapes"))
    configuration.choice("kind", ("inline",))
    listed = configuration.sequence("chunk_shapes")
    if len(listed) != len(shape) or len(listed) > MAX_RANK:
        configuration.fail("chunk_shapes", f"has {len(listed)} entries for {len(shape)} dimensions")
    edges: list[int | tuple[int, ...]] = []
    room = MAX_EDGES
    for value in listed:
        edges.append(axis_edges := _edges(value, configuration, room))
        room -= 1 if isinstance(axis_edges, int) else len(axis_edges)
    return ChunkGrid(shape, tuple(edges))


def _cut(configuration: Fields, extent: int, length: int) -> int | tuple[int, ...]:
    """Return the edges of a dimension whose last chunk ends with the array."""
    whole, rest = divmod(extent, length)
    if whole > MAX_EDGES // MAX_RANK and rest:
        raise Unsupported(
            f"{configuration.place}: there are more than {MAX_EDGES // MAX_RANK} edges of chunks in one dimension"
        )
    return (*[length] * whole, rest) if rest else length


def _edges_listed(grid: ChunkGrid) -> int:
    """Return how many edges a grid lists one by one, each of which takes about as much memory as a byte of a document."""
    return sum(len(edge) for edge in grid.edges if isinstance(edge, tuple))


def _edges(value: JSON, configuration: Fields, room: int) -> int | tuple[int, ...]:
    """Return the edge that all chunks of a dimension have, or the list of all edges, expanded from `[edge, repetitions]`.

    `room`: the largest length of the list.
    """
    if not isinstance(value, list):
        return _edge(value, configuration)
    edges: list[int] = []
    for item in value:
        edge, count = (item[0], _edge(item[1], configuration)) if isinstance(item, list) and len(item) == 2 else (item, 1)
        if len(edges) + count > room:
            raise Unsupported(f"{configuration.place}: there are more than {MAX_EDGES} edges of chunks")
        edges += itertools.repeat(_edge(edge, configuration), count)
    return tuple(edges)


def _edge(value: JSON, configuration: Fields) -> int:
    return Fields({"chunk_shapes": value}, configuration.place).integer("chunk_shapes", 1, MAX_EXTENT)


def _first_edge(edge: int | tuple[int, ...]) -> int:
    return edge if isinstance(edge, int) else edge[0] if edge else 1


def _inner_grid(outer: ChunkGrid, pipeline: CodecPipeline, fields: Fields) -> ChunkGrid:
    """Return the grid of inner chunks.

    Shards of a rectilinear grid may differ, but each holds a whole number of inner chunks.
    """
    for edges, inner in zip(outer.edges, pipeline.levels[0].cell, strict=True):
        if any(edge % inner for edge in (edges if isinstance(edges, tuple) else (edges,))):
            fields.fail("chunk_grid", f"has shards that are not a whole number of chunks of {inner}")
    return ChunkGrid(outer.shape, pipeline.chunk_shape)


def parse_keys(fields: Fields) -> ChunkKeys:
    """Read `chunk_key_encoding`: `default` (separator `/`), `v2` (separator `.`), either with a suffix, or `fanout`.

    TensorStore leaves out the configuration.
    """
    name, configuration = extension(fields.value("chunk_key_encoding"), f"{fields.place}: chunk_key_encoding")
    if name == "suffix":  # the proposal spells the other member in two ways
        check_members(configuration, ("suffix", "base_encoding", "base-encoding"))
        base = "base-encoding" if "base-encoding" in configuration else "base_encoding"
        keys = parse_keys(Fields({"chunk_key_encoding": configuration.value(base)}, fields.place))
        if keys.suffix or keys.fanout:
            raise Unsupported(
                f"{configuration.place}: there cannot be a suffix after {'a suffix' if keys.suffix else 'fanout'}"
            )
        return keys._replace(suffix=_suffix(configuration))
    if name == "fanout":
        check_members(configuration, ("max_children",))
        most = configuration.integer("max_children", 4, MAX_EXTENT) if "max_children" in configuration else 1001
        return ChunkKeys("/", fanout=most - 1)
    if name not in ("default", "v2", "zarrs.default_suffix"):
        raise Unsupported(f"{fields.place}: chunk_key_encoding {name[:80]!r} is not known")
    check_members(configuration, ("separator", "suffix") if name == "zarrs.default_suffix" else ("separator",))
    separator = configuration.choice("separator", ("/", "."), "." if name == "v2" else "/")
    suffix = _suffix(configuration) if name == "zarrs.default_suffix" else ""
    return ChunkKeys("/" if separator == "/" else ".", "" if name == "v2" else "c", suffix)


def _suffix(configuration: Fields) -> str:
    """Return how all keys end. A slash is refused, because it would make a directory of each chunk."""
    suffix = configuration.string("suffix")
    if "/" in suffix or "\0" in suffix or len(suffix) > MAX_SUFFIX:
        raise Unsupported(f"{configuration.place}: chunks cannot have keys that end with {suffix[:80]!r}")
    return suffix


def _dimension_names(fields: Fields, rank: int) -> tuple[str | None, ...] | None:
    if fields.values.get("dimension_names") is None:
        return None
    names = fields.sequence("dimension_names")
    for name in names:
        if name is not None and not isinstance(name, str):
            fields.fail("dimension_names", f"holds {kind(name)}")
    if len(names) != rank:
        raise CorruptData(f"{fields.place}: there are {len(names)} dimension_names for {rank} dimensions")
    return tuple(names)
