"""Zarr v2: `.zarray`, `.zgroup`, `.zattrs`, and what they mean. Not here: elements (`types.py`).

`.zgroup` is not needed and `.zmetadata` is not believed: writers leave out the first (TensorStore) and leave the second
behind when they do not consolidate again. The directories are the truth. NCZarr's and other documents are ignored.

`.zattrs` of a remote array is read only when its attributes are asked for: reading chunks takes one document less.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any, Literal
from weakref import WeakValueDictionary

from fsbridge.codecs import CodecChain, refusal
from fsbridge.errors import FsbridgeError, NotFound, Stale, Unsupported
from fsbridge.formats.documents import (
    Document,
    DocumentReader,
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
from fsbridge.formats.keyed.hierarchy import Dialect, KeyedArray, Version, newest, versions
from fsbridge.formats.keyed.store import KeyedStore
from fsbridge.formats.lazy_metadata import lazy, light, lighten
from fsbridge.formats.strict_json import Fields
from fsbridge.formats.zarr2.types import parse_elements
from fsbridge.meaning.conventions.xarray import dimension_names
from fsbridge.metadata import JSON, ArrayMetadata, ChunkGrid, parse_coordinate
from fsbridge.model import Array, Group
from fsbridge.store import WHOLE, Key, Stat


class LateAttributes:
    """The `.zattrs` at `key` that belong to one version, `array`, of `.zarray`. Thread-safe.

    They are part of the array's version: once they have been read, they must stay the same.
    """

    __slots__ = ("__weakref__", "_documents", "_key", "_lock", "_stat", "array", "is_read")

    def __init__(self, documents: DocumentReader, key: Key, array: Stat) -> None:
        self._documents = documents
        self._key = key
        self._lock = threading.Lock()
        self._stat: Stat | None = None
        self.array = array
        self.is_read = False

    def read(self) -> Document | None:
        """Return the document, perhaps with its damage; None if there is none.

        Raises Stale if it differs from the first reading.
        """
        document = self._documents.attempt(self._key)
        stat = None if document is None else document.stat
        with self._lock:
            if not self.is_read:
                self._stat, self.is_read = stat, True
            before = self._stat
        if (stat is None) != (before is None) or (
            stat is not None and before is not None and stat.version != before.version
        ):
            raise Stale(f"{self._key}: the array's attributes have changed")
        return document

    def current(self) -> bool:
        """True if the attributes are unchanged, as far as they were read."""
        return not self.is_read or self._documents.same(self._key, self._stat)

    def prefetch(self) -> None:
        """Prefetch the answer of `current`."""
        if self.is_read:
            self._documents.prefetch(self._key)

    def mtime_ns(self) -> int:
        """Return the document's modification time once it has been read; 0 if there is none."""
        return 0 if self._stat is None else self._stat.mtime_ns


ARRAY, GROUP, ATTRIBUTES, CONSOLIDATED = ".zarray", ".zgroup", ".zattrs", ".zmetadata"


Separator = Literal["/", "."]


class Zarr2Hierarchy:
    """Zarr v2's rules for one store (`keyed.Hierarchy`)."""

    document = None
    consolidated = (CONSOLIDATED,)
    of_groups = (GROUP, ATTRIBUTES)

    def __init__(self, keyed: KeyedStore, dialect: Dialect) -> None:
        self.keyed = keyed
        self._dialect = dialect
        self._kinds = Kinds(partial(_parse, dialect), _split)
        self._parse = lighten(self._kinds.parse, self.keyed.attributes)
        self._parsed: Repeated[tuple[ArrayMetadata, CodecChain, Separator | None]] = Repeated()
        self._copies = Copies(keyed.documents, CONSOLIDATED)
        self._lock = threading.Lock()
        self._known: WeakValueDictionary[Key, LateAttributes] = WeakValueDictionary()

    def open(self, key: Key) -> Group | Array:
        documents, array, attrs = self.keyed.documents, key / ARRAY, key / ATTRIBUTES
        self._copies.adopt(array)
        self._copies.adopt(attrs)
        has_no_directories = self.keyed.store.has_no_directories
        wanted = not has_no_directories or self._are_wanted(key)
        if has_no_directories and wanted:
            documents.prefetch(attrs)  # both documents in parallel
        document = documents.read(array)
        if document is None:
            return self._dialect.group(self, key)
        later = self._late(key, document) if has_no_directories else None
        wanted = wanted or "O" in str(document.values.get("dtype"))  # attributes tell what such objects are
        attributes = None
        if later is None:
            attributes = documents.attempt(attrs)
        elif wanted or later.is_read:
            attributes = later.read()
        try:
            return self._array(key, document, attributes, later)
        except FsbridgeError as error:
            raise error if str(error).startswith(document.place) else error.at(document.place) from None

    def _are_wanted(self, key: Key) -> bool:
        """True if a remote array's attributes are probably needed: they are cached, or the group above was listed.

        `find -maxdepth 2` over 1,000 arrays takes 3.4 s at 30 ms; 4.1 s if `.zattrs` is always requested after `.zarray`
        (at 200 ms 1.7 times as long). They are not always requested, because a chunk by its path needs no attributes.
        """
        keyed = self.keyed
        was_listed = keyed.config.read_ahead and keyed.listed_groups.get(key.parent) is not None
        return was_listed or keyed.documents.knows(key / ATTRIBUTES)

    def _late(self, key: Key, document: Document) -> LateAttributes:
        """Return the attributes beside a version of the array's document: the same object as long as they are unchanged."""
        with self._lock:
            attributes = self._known.get(key)
        if attributes is None or attributes.array.version != document.stat.version or not attributes.current():
            attributes = LateAttributes(self.keyed.documents, key / ATTRIBUTES, document.stat)
            with self._lock:
                self._known[key] = attributes
        return attributes

    def group_attributes(self, key: Key) -> Mapping[str, JSON]:
        document = self.keyed.documents.read(key / ATTRIBUTES)
        return document.values if document is not None else {}

    def group_documents(self, key: Key) -> Mapping[str, JSON]:
        read = {name: self.keyed.documents.read(key / name) for name in (GROUP, ATTRIBUTES)}
        group = read[GROUP]
        if group is not None and (version := group.fields.integer("zarr_format")) != 2:
            raise Unsupported(f"{group.place}: Zarr format {version} in a Zarr v2 document")
        return {name: document.values for name, document in read.items() if document is not None}

    def is_said_group(self, key: Key) -> bool:
        documents = self.keyed.documents
        return documents.read(key / GROUP) is not None and documents.read(key / ARRAY) is None

    def unfinished(self, key: Key) -> None:
        """Return None, because each document says what it describes."""

    def _array(
        self, key: Key, document: Document, attributes: Document | None, later: LateAttributes | None = None
    ) -> Array:
        """Return the array of a document. `later`: the attributes of a remote array, which may not have been read yet."""
        metadata, chain, separator = self._parsed.made(self._parse, document, attributes)
        version = _version(document, attributes, later)
        size = document.length + (0 if attributes is None else attributes.length)
        if later is not None and not later.is_read:
            metadata = lazy(metadata, lambda: self._late_metadata(document, later))
        else:
            metadata = light(metadata, size, partial(self._metadata, key, version, later), self.keyed.attributes)
        unprobed = separator is None and len(metadata.shape) > 1
        if separator is None and unprobed:
            separator = self._find_stored_separator(key, metadata.grid)
        files = self.keyed.chunk_files(key, metadata.grid, ChunkKeys(separator or "."))
        chunks = KeyedChunks(self.keyed, files, metadata, chain)
        return KeyedArray(
            metadata,
            (*version, separator),
            newest(document, attributes),
            chunks,
            self._check(key, document, attributes, metadata.grid if unprobed and not separator else None, later),
            self.keyed,
            key,
            chunks.fetch if self.keyed.store.remote else None,
            None if later is None else later.mtime_ns,
        )

    def _check(
        self,
        key: Key,
        document: Document,
        attributes: Document | None,
        unprobed: ChunkGrid | None,
        later: LateAttributes | None,
    ) -> Callable[[], bool]:
        """Return a function that is true while these documents are unchanged."""
        first, second = document.stat, None if attributes is None else attributes.stat  # the documents may be large
        check: Callable[[], bool]
        if later is None:
            check = partial(_are_unchanged, self.keyed.documents, key / ARRAY, first, key / ATTRIBUTES, second)
        else:
            check = partial(_are_unchanged_remotely, self.keyed.documents, key / ARRAY, first, later)
        return check if unprobed is None else lambda: check() and self._find_stored_separator(key, unprobed) is None

    def _metadata(self, key: Key, version: Version, later: LateAttributes | None) -> ArrayMetadata:
        documents, (of_array, of_attributes) = self.keyed.documents, version
        document = documents.again(key / ARRAY, of_array)
        if later is not None:
            attributes = later.read()
        else:
            attributes = None if of_attributes is None else documents.again(key / ATTRIBUTES, of_attributes)
        return parse_array(document, attributes, self._dialect)[0]

    def _late_metadata(self, document: Document, later: LateAttributes) -> ArrayMetadata:
        return self._parsed.made(self._parse, document, later.read())[0]

    def _find_stored_separator(self, key: Key, grid: ChunkGrid) -> Separator | None:
        """Return the separator of the stored chunks, or None if none is stored.

        zarr-python before 2.8 wrote nested stores (early OME-Zarr) without `dimension_separator`.
        """
        nested = False
        counts = grid.counts
        if not self.keyed.store.listable:
            first = ChunkKeys("/").encode((0,) * len(counts))
            try:
                self.keyed.store.stat(Key(f"{key}/{first}" if key else first), WHOLE)
            except NotFound:
                return "."
            return "/"
        flat = re.compile(r"\.".join(["[0-9]+"] * len(counts)))
        if self.keyed.store.has_no_directories:  # a full listing would take a request for each thousand members
            for name in chain.from_iterable(islice(self.keyed.store.names(key), 2)):
                if flat.fullmatch(name):
                    return "."
                nested = nested or parse_coordinate(name, counts[0]) is not None
            return "/" if nested else None
        # 1024 directory entries are enough to find the separator of an array that does not name it.
        for _, entry in zip(range(1024), self.keyed.store.list(key), strict=False):
            if flat.fullmatch(entry.name):
                return "."
            nested = nested or ((entry.is_dir or entry.hidden) and parse_coordinate(entry.name, counts[0]) is not None)
        return "/" if nested else None


def _version(document: Document, attributes: Document | None, later: LateAttributes | None) -> Version:
    return versions(document, attributes) if later is None else (document.stat.version, later)


def _are_unchanged(documents: DocumentReader, array: Key, first: Stat, attributes: Key, second: Stat | None) -> bool:
    return documents.same(array, first) and documents.same(attributes, second)


def _are_unchanged_remotely(documents: DocumentReader, array: Key, first: Stat, later: LateAttributes) -> bool:
    later.prefetch()  # both answers in parallel
    return documents.same(array, first) and later.current()


def _parse(
    dialect: Dialect, document: Document, attributes: Document | None
) -> tuple[ArrayMetadata, CodecChain, Separator | None]:
    return *parse_array(document, attributes, dialect), parse_separator(document.fields)


def _split(values: Mapping[str, JSON], attributes: Mapping[str, JSON] | None) -> Split | None:
    shape, chunks = shape_of(values, "shape"), shape_of(values, "chunks")
    objects = "O" in str(values.get("dtype"))  # attributes tell what objects are
    if objects or shape is None or chunks is None or 0 in chunks:  # the shape tells what chunks of no extent are
        return None
    own, native = attributes or {}, {ARRAY: values, **({ATTRIBUTES: attributes} if attributes is not None else {})}

    def joined(known: ArrayMetadata, *rest: Any) -> tuple[Any, ...]:
        grid, names = reshape_grid(known.grid, shape), dimension_names(own, len(shape))
        return replace(known, grid=grid, attributes=own, dimension_names=names, native=native), *rest

    return Split({**values, "shape": len(shape)}, joined)


def parse_separator(fields: Fields) -> Separator | None:
    """Read `dimension_separator`. Returns None if it is missing or empty (n5-zarr)."""
    if fields.values.get("dimension_separator") in (None, ""):
        return None
    return "/" if fields.choice("dimension_separator", ("/", ".")) == "/" else "."


def parse_array(document: Document, attributes: Document | None, dialect: Dialect) -> tuple[ArrayMetadata, CodecChain]:
    """Return an array's metadata and how its chunks are decoded. Raises CorruptData or Unsupported."""
    fields = document.fields
    if fields.integer("zarr_format") != 2:
        raise Unsupported(f"{document.place}: Zarr format {fields.integer('zarr_format')} in a Zarr v2 document")
    shape = fields.integers("shape")
    chunks = fields.integers("chunks", length=len(shape))
    edges = chunk_edges(shape, chunks)
    grid = ChunkGrid(shape, edges)
    values = attributes.values if attributes is not None else {}
    order = fields.choice("order", ("C", "F"))
    turned = order == "F" and sum(edge > 1 for edge in edges) > 1
    elements = parse_elements(fields, math.prod(edges), values, dialect, turned)
    damage = None if attributes is None else attributes.damage
    if damage is not None:
        values = {}
    native = {ARRAY: document.values, **({ATTRIBUTES: values} if attributes is not None and damage is None else {})}
    metadata = ArrayMetadata(
        grid,
        elements.dtype,
        fill=elements.fill,
        fill_spelling=elements.fill_spelling,
        order=tuple(reversed(range(len(shape)))) if order == "F" and len(shape) > 1 else None,
        attributes=values,
        dimension_names=dimension_names(values, len(shape)),
        native=native,
        codec=elements.chain.description,
        refused=refusal(elements.chain),
        attributes_error=damage,
    )
    return metadata, elements.chain
