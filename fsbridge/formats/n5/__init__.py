"""N5: `attributes.json` in directories, and what it means. Not here: the bytes of blocks (`blocks.py`).

Written for N5's specification 4.0.0 and its writers: n5 (Java) 1.5 to 4.0, z5, TensorStore, zarr-python 2.

Everything keeps N5's own order, first dimension fastest: `shape` is `dimensions`, a chunk's path is its grid position,
and `order` tells that the bytes are in the reverse of Zarr's order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fsbridge.codecs import CodecChain, Decoder, RefusedStep, refusal, table
from fsbridge.codecs.n5 import header_size, parse_header
from fsbridge.errors import PASSING, FsbridgeError, Unsupported
from fsbridge.formats.documents import (
    Document,
    Kinds,
    Repeated,
    Split,
    chunk_edges,
    reshape_grid,
    shape_of,
)
from fsbridge.formats.dtypes import STRING, data_type
from fsbridge.formats.keyed.chunkfiles import NestedChunkFiles
from fsbridge.formats.keyed.chunkkeys import ChunkKeys
from fsbridge.formats.keyed.hierarchy import KeyedArray, KeyedGroup, newest, versions
from fsbridge.formats.keyed.store import KeyedStore
from fsbridge.formats.lazy_metadata import light, lighten
from fsbridge.formats.n5.blocks import N5Chunks
from fsbridge.formats.strict_json import Fields, kind
from fsbridge.meaning.conventions.n5 import dimension_names
from fsbridge.metadata import JSON, ArrayMetadata, ChunkGrid, DataType
from fsbridge.model import Array, Group
from fsbridge.store import Key

DOCUMENT = "attributes.json"

MAJOR_VERSION = 4
"""The newest specification that we know. Java refuses containers of a greater major version, too."""

STRUCTURAL = frozenset(("n5", "dimensions", "blockSize", "dataType", "compression", "compressionType"))
"""Attributes that describe the container or the blocks, and are not user attributes."""

NUMBERS = re.compile(
    r"u?int(8|16|32|64)|float(16|32|64)|complex(64|128)|bool|(datetime64|timedelta64)\[[0-9]*[a-zA-Z]{1,2}\]"
)
"""N5's ten types, and the numpy names that zarr-python 2's N5Store writes for arrays of any other type."""


class _Element(NamedTuple):
    """The meaning of a `dataType`: the type of an element, and whether blocks may hold any number of elements."""

    dtype: DataType
    varlength: bool = False


class N5Hierarchy:
    """N5's rules for one store (`keyed.Hierarchy`)."""

    document = DOCUMENT
    consolidated = ()
    of_groups = (DOCUMENT,)

    def __init__(self, keyed: KeyedStore) -> None:
        self.keyed = keyed
        self._kinds = Kinds(parse_dataset, _split)
        self._parse = lighten(self._kinds.parse, self.keyed.attributes)
        self._parsed: Repeated[tuple[ArrayMetadata, CodecChain]] = Repeated()
        self._irregular: set[Key] = set()  # remote arrays whose blocks turned out to hold varying numbers of elements

    def open(self, key: Key) -> Group | Array:
        try:
            document = self.keyed.documents.read(key / DOCUMENT)
        except (FsbridgeError, OSError) as error:
            return KeyedGroup(self, key).in_spite_of(error)
        if document is None:
            return KeyedGroup(self, key)
        if not key:
            check_version(document)
        if not is_dataset(document.values):
            return KeyedGroup(self, key)
        try:
            return self._array(key, document)
        except FsbridgeError as error:
            return KeyedGroup(self, key).in_spite_of(error, says_array=True)

    def group_attributes(self, key: Key) -> Mapping[str, JSON]:
        document = self._group_document(key)
        return {name: value for name, value in document.values.items() if name != "n5"} if document is not None else {}

    def group_documents(self, key: Key) -> Mapping[str, JSON]:
        document = self._group_document(key)
        return {DOCUMENT: document.values} if document is not None else {}

    def _group_document(self, key: Key) -> Document | None:
        """Return the document of a group. Raises the error of one that `open` could not use."""
        document = self.keyed.documents.read(key / DOCUMENT)
        if document is not None and is_dataset(document.values):
            self._array(key, document)
        return document

    def is_said_group(self, key: Key) -> bool:
        document = self.keyed.documents.read(key / DOCUMENT)
        return document is not None and not is_dataset(document.values)

    def unfinished(self, key: Key) -> str | None:
        """Return what `attributes.json` lacks to be an array's, if it has two of an array's attributes; else None.

        BigDataViewer's groups have one.
        """
        document = self.keyed.documents.read(key / DOCUMENT)
        lacking = [] if document is None else lacks(document.values)
        if document is None or len(lacking) > 2:
            return None
        return f"{document.place}: no array for lack of {' and '.join(lacking)}"

    def _array(self, key: Key, document: Document) -> Array:
        try:
            metadata, chain = self._parsed.made(self._parse, document)
        except FsbridgeError as error:
            raise error if str(error).startswith(document.place) else error.at(document.place) from None
        files = self._files(key, metadata.grid)
        varlength: bool | None = metadata.varlength
        if not varlength and metadata.dtype.itemsize:
            # In a store without directories, looking for a block first would take longer than reading one.
            known_only = self.keyed.store.has_no_directories
            varlength = key in self._irregular if known_only else self._stores_varlength(files)
            metadata = replace(metadata, varlength=True) if varlength else metadata
        version, again = versions(document), partial(self.keyed.documents.again, key / DOCUMENT, document.stat.version)
        metadata = light(metadata, document.length, lambda: parse_dataset(again())[0], self.keyed.attributes)
        chunks = N5Chunks(self.keyed, files, metadata, chain, partial(self._turns_out, key, files))
        return KeyedArray(
            metadata,
            (*version, bool(varlength)),
            newest(document),
            chunks,
            partial(self._current, key, version, files if varlength is None else None, bool(varlength)),
            self.keyed,
            key,
            chunks.fetch if self.keyed.store.remote else None,
        )

    def _files(self, key: Key, grid: ChunkGrid) -> NestedChunkFiles:
        return NestedChunkFiles(self.keyed.store, key, grid, ChunkKeys("/"))

    def _stores_varlength(self, files: NestedChunkFiles) -> bool | None:
        """Read the header of a stored block, because N5's metadata does not tell. Returns None if no block can be read."""
        try:
            index = files.first()
            if index is None:
                return None
            info = files.find(index)
            length = min(info.stored, header_size(len(index)))
            block = parse_header(self.keyed.read_range(files.key(index), info, 0, length), len(index))
        except PASSING:
            raise
        except FsbridgeError:
            return False  # a damaged block is an error of its own, not of its array
        except OSError:
            return None  # the disk cannot read this block now; its header may be read again later
        return not block.regular

    def _turns_out(self, key: Key, files: NestedChunkFiles) -> bool:
        """True if the array was shown with fixed blocks, because none had been read yet, but its blocks are varlength."""
        if self.keyed.store.has_no_directories and key not in self._irregular and self._stores_varlength(files):
            self._irregular.add(key)
        return key in self._irregular

    def _current(self, key: Key, version: object, unprobed: NestedChunkFiles | None, varlength: bool) -> bool:
        if versions(self.keyed.documents.read(key / DOCUMENT)) != version or (key in self._irregular and not varlength):
            return False
        return unprobed is None or not self._stores_varlength(unprobed)


def is_dataset(values: Mapping[str, JSON]) -> bool:
    """Apply Java's rule: three attributes, and one that names the compression; anything else is a group."""
    return not lacks(values)


def lacks(values: Mapping[str, JSON]) -> list[str]:
    """Return the names of an array's attributes that are missing."""
    compressed = any(name in values for name in ("compression", "compressionType", "codecs"))
    wanted = [name for name in ("dimensions", "blockSize", "dataType") if name not in values]
    return wanted if compressed else [*wanted, "compression"]


def check_version(document: Document) -> None:
    """Refuse a root of a newer major version. A missing or malformed version is accepted, as in Java."""
    version = document.values.get("n5")
    match = re.match(r"([0-9]{1,9})\.", version) if isinstance(version, str) else None
    if match is not None and int(match[1]) > MAJOR_VERSION:
        raise Unsupported(
            f"{document.place}: the store has N5 version {version}; fsbridge knows versions up to {MAJOR_VERSION}"
        )


def parse_dataset(document: Document) -> tuple[ArrayMetadata, CodecChain]:
    """Return an array's metadata and how its blocks are decoded. Raises CorruptData or Unsupported."""
    fields = document.fields
    shape = fields.integers("dimensions")
    grid = ChunkGrid(shape, chunk_edges(shape, fields.integers("blockSize", length=len(shape))))
    element = parse_type(fields)
    chain = CodecChain(parse_compression(fields))
    rank = len(grid.shape)
    metadata = ArrayMetadata(
        grid,
        element.dtype,
        order=tuple(reversed(range(rank))) if rank > 1 else None,
        attributes=_attributes(document.values),
        dimension_names=dimension_names(document.values, rank),
        varlength=element.varlength or (document.values.get("isLabelMultiset") is True and element.dtype.itemsize > 0),
        native={DOCUMENT: document.values},
        codec=chain.description,
        refused=refusal(chain),
    )
    return metadata, chain


def _attributes(values: Mapping[str, JSON]) -> Mapping[str, JSON]:
    structural = STRUCTURAL if "compression" in values or "compressionType" in values else STRUCTURAL | {"codecs"}
    return {name: value for name, value in values.items() if name not in structural}


def _split(values: Mapping[str, JSON]) -> Split | None:
    attributes, shape, blocks = _attributes(values), shape_of(values, "dimensions"), shape_of(values, "blockSize")
    if shape is None or blocks is None or 0 in blocks:  # the shape tells what blocks of no extent are
        return None
    said = {name: value for name, value in values.items() if name not in attributes or name == "isLabelMultiset"}
    said["dimensions"] = len(shape)

    def joined(known: ArrayMetadata, chain: CodecChain) -> tuple[ArrayMetadata, CodecChain]:
        grid, names = reshape_grid(known.grid, shape), dimension_names(values, len(shape))
        return replace(known, grid=grid, attributes=attributes, dimension_names=names, native={DOCUMENT: values}), chain

    return Split(said, joined)


def parse_type(fields: Fields) -> _Element:
    """Read `dataType`. Numbers are stored big-endian."""
    name = fields.string("dataType")
    if name == "string":
        return _Element(STRING)
    if name == "object":
        return _Element(data_type(np.dtype("u1"), "object"), varlength=True)
    if NUMBERS.fullmatch(name) is None:
        raise Unsupported(f"data type {name[:60]!r} is not known")
    try:
        stored: np.dtype[Any] = np.dtype(name).newbyteorder(">")
    except (TypeError, ValueError):
        raise Unsupported(f"data type {name[:60]!r} is not known") from None
    return _Element(data_type(stored, name))


def parse_compression(fields: Fields) -> tuple[Decoder, ...]:
    """Return the decoders of a block's payload, in decoding order. Parameters that only writers need are ignored."""
    if "compression" in fields:
        value = fields.value("compression")
        if isinstance(value, str):
            return _decoders(value, {})
        compression = fields.fields("compression")
        return _decoders(compression.string("type"), compression.values)
    if "compressionType" in fields:  # N5 1.x
        return _decoders(fields.string("compressionType"), {})
    return _parse_codecs(fields)


def _parse_codecs(fields: Fields) -> tuple[Decoder, ...]:
    """Read N5 4.x's `codecs`: the block codec `n5bytes`, then codecs of its bytes in encoding order."""
    decoders: list[Decoder] = []
    for position, item in enumerate(fields.sequence("codecs")):
        if isinstance(item, str):
            name, configuration = item, Fields({}, fields.place)
        elif isinstance(item, dict):
            codec = Fields(item, f"{fields.place}: codecs[{position}]")
            name = codec.string("name" if "name" in codec else "type")
            configuration = codec.fields("configuration") if "configuration" in codec else codec
        else:
            fields.fail("codecs", f"holds {kind(item)} where a codec is needed")
        if (name == "n5bytes") != (position == 0):
            raise Unsupported(f"codec {name[:60]!r} cannot be at position {position} of `codecs`")
        if position == 0:
            if configuration.values.get("endian", "big") != "big":
                raise Unsupported("codec 'n5bytes' is not big-endian")
        else:
            decoders[:0] = _decoders(name, configuration.values)
    return tuple(decoders)


def _decoders(name: str, parameters: Mapping[str, JSON]) -> tuple[Decoder, ...]:
    """Return the decoder of a compression. One that cannot be decoded reports its reason when a block is read."""
    if name == "raw":
        return ()
    if name not in table.N5:
        return (RefusedStep(name, f"compression {name[:60]!r} is not known"),)
    try:
        return (table.N5[name].decoder(parameters),)
    except Unsupported as error:
        return (RefusedStep(name, str(error)),)
