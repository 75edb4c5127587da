"""One version of an HDF5 dataset: its place, its description as model metadata, and whether it is still current.

Not here: the dataset as a model array (`arrays.py`), its chunks (`chunks.py`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fsbridge.asking import before_waiting
from fsbridge.codecs import CodecChain
from fsbridge.errors import CorruptData, NotFound, Stale, Unsupported
from fsbridge.formats.hdf5 import pages
from fsbridge.formats.hdf5.answers import Dataset, parse_dataset
from fsbridge.formats.hdf5.file import HDF5File
from fsbridge.formats.hdf5.filters import FilterPipeline
from fsbridge.formats.hdf5.types import ShownType, show_type, spell, spell_fill
from fsbridge.formats.hdf5.versions import DataVersion, shows_later_changes
from fsbridge.formats.lazy_metadata import ParsedAttributes, light
from fsbridge.metadata import JSON, ArrayMetadata, ChunkGrid
from fsbridge.model import Array
from fsbridge.store import Stat


class Version(NamedTuple):
    """One version of a dataset: the file's version, its path, and the versions of other files that hold its data."""

    file: Hashable
    path: tuple[str, ...]
    sources: tuple[Hashable, ...]


class DatasetVersion(Array):
    """One version of a dataset."""

    metadata: ArrayMetadata
    version: Version

    def __init__(self, file: HDF5File, path: tuple[str, ...], description: Dataset, stat: Stat, kind: ShownType) -> None:
        """`description` is the child's description, `kind` how its elements are shown."""
        self.file = file
        self.path = path
        self.stat = stat
        self.lasts = file.data.is_remote or shows_later_changes(stat)
        self.dataset = replace(description, attributes={})
        self.version = Version(stat.version, path, _versions(file.data.stats(description.sources)))
        parsed = file.shared.of(ParsedAttributes)
        size = len(repr(description.attributes))
        self.metadata = light(self._metadata(description, kind), size, self._read_metadata, parsed)

    @property
    def mtime_ns(self) -> int:
        return self.stat.mtime_ns

    @abstractmethod
    def note_read(self) -> None:
        """Note that the dataset is being read."""

    def current(self) -> bool:
        """Tell whether the file, and every other file that holds the data, is unchanged."""
        try:
            self.open_version()
        except (Stale, NotFound):
            return False
        return True

    def open_version(self) -> DataVersion:
        """Return the file of this version. Raises Stale if it changed."""
        if self.dataset.sources:
            before_waiting()
        data_version = self.file.version(self.version.file)
        if self.dataset.sources and _versions(self.file.data.stats(self.dataset.sources)) != self.version.sources:
            self.file.forget_child()
            raise Stale(f"{self.place}: a file that holds its data changed")
        self.stat = data_version.stat  # it may have settled since
        return data_version

    @property
    def place(self) -> str:
        """File and path for messages."""
        return f"{self.file.path}:/{'/'.join(self.path)}"

    def _read_metadata(self) -> ArrayMetadata:
        answer, stat = pages.read_description(self.file, self.path)
        if stat.version != self.version.file:
            raise Stale(f"{self.place}: changed")
        description = parse_dataset(answer)
        return self._metadata(description, show_type(description.dtype, description.form, description.fill))

    def _metadata(self, description: Dataset, kind: ShownType) -> ArrayMetadata:
        return array_metadata(description, kind, self.file.limits.slab_bytes)


def _versions(others: Sequence[Stat | None]) -> tuple[Hashable, ...]:
    """Return the versions of other files; None for a missing one, for which HDF5 reads the fill value."""
    return tuple(None if other is None else other.version for other in others)


def array_metadata(description: Dataset, kind: ShownType, slab_bytes: int) -> ArrayMetadata:
    """Return a dataset's metadata. Raises CorruptData or Unsupported if its description makes no sense.

    `slab_bytes`: see `HDF5Limits`.
    """
    shape = (0,) if description.null else description.shape
    attributes: dict[str, JSON] = {
        **kind.attributes,
        **({"_EMPTY": True} if description.null else {}),
        **_own(description.attributes),
    }
    named = any(name is not None for name in description.dimension_names)
    inner: tuple[str | None, ...] = (None,) * len(kind.dims)
    fill = _fill(description, kind)
    return ArrayMetadata(
        grid=ChunkGrid(shape + kind.dims, _edges(description, shape, slab_bytes) + kind.dims),
        dtype=kind.dtype,
        fill=fill,
        fill_spelling=None if isinstance(fill, str) else spell_fill(kind.dtype, fill),
        attributes=attributes,
        dimension_names=description.dimension_names + inner if named else None,
        native={"hdf5": _native(description)},
        codec="+".join(entry.name or str(entry.number) for entry in description.filters) or "none",
        refused=_refusal(description),
    )


def _refusal(description: Dataset) -> str | None:
    """Return why elements, or chunks that went through all filters, cannot be read; None if they can be read."""
    if description.unreadable is not None:
        return description.unreadable
    try:
        FilterPipeline(description.filters, None).chain(0)
    except (CorruptData, Unsupported) as error:
        return str(error)
    return None


def _edges(description: Dataset, shape: tuple[int, ...], slab_bytes: int) -> tuple[int, ...]:
    """Return the file's chunk shape. If it has none, return that of slabs of at most `slab_bytes`.

    The slowest axes of a slab have the length 1, the next axis is cut evenly, and the others are not cut.
    """
    if description.chunks is not None and not description.null:
        return description.chunks
    size = description.dtype["size"]
    # At most 65,536 elements if each is a Python object in the child.
    items = max(1, min(slab_bytes // size, (1 << 16) if description.form not in ("raw", "converted") else slab_bytes))
    edges: list[int] = []
    rest = math.prod(shape)
    for extent in shape:
        rest = rest // extent if extent else 0
        rows = max(1, items // rest) if rest else max(1, extent)
        if any(edge > 1 for edge in edges) or rows >= extent:
            edges.append(max(1, extent))
        else:
            edges.append(-(-extent // -(-extent // rows)))
    return tuple(edges)


def _fill(description: Dataset, kind: ShownType) -> bytes | str | None:
    """Return the fill value of one shown element."""
    if description.fill is None:
        return None
    if kind.dtype.serializer == "vlen-utf8":
        try:
            return description.fill.decode("utf-8")
        except UnicodeDecodeError:
            raise Unsupported("the fill value is not UTF-8") from None
    if kind.dtype.serializer == "vlen-bytes":
        return description.fill
    size = kind.dtype.itemsize
    if len(description.fill) != size * math.prod(kind.dims):
        raise CorruptData(f"a fill value of {len(description.fill)} bytes does not fit the elements")
    element = description.fill[:size]
    if element * math.prod(kind.dims) != description.fill:
        raise Unsupported("the elements of a fill value of an array type differ")
    steps = () if kind.normaliser is None else (kind.normaliser,)
    return bytes(CodecChain(steps).decode(element, size, size))


_SCALE_ATTRIBUTES = ("DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS")


def _own(attributes: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the attributes without those of dimension scales, which are in `dimension_names` and the native metadata."""
    dropped = set(_SCALE_ATTRIBUTES)
    if attributes.get("CLASS") == "DIMENSION_SCALE":
        dropped |= {"CLASS", "NAME"}
    return {name: value for name, value in attributes.items() if name not in dropped}


def _native(description: Dataset) -> JSON:
    scales = {name: value for name, value in description.attributes.items() if name in (*_SCALE_ATTRIBUTES, "CLASS", "NAME")}
    return {
        "type": spell(description.dtype),
        "datatype": dict(description.dtype),
        "layout": description.layout,
        "chunks": None if description.chunks is None else list(description.chunks),
        "filters": [{"id": f.number, "name": f.name, "values": list(f.values)} for f in description.filters],
        **({} if description.storage is None else {"storage": description.storage}),
        **({"sources": list(description.sources)} if description.sources else {}),
        **({"scales": scales} if scales else {}),
    }
