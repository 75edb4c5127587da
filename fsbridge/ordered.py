"""Arrays of a source as sequences of elements in C order and in one byte order: what digests and comparisons read.

Memory is bounded by the cache. Not here: chunks (`decoded/`), how ranges are assembled (`layouts/files/elements/`).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.lib.recfunctions import repack_fields
from numpy.typing import NDArray

from fsbridge.decoded import DecodedArray
from fsbridge.errors import FsbridgeError, NotFound, TooDeep, Unsupported
from fsbridge.layouts.files.elements.finding import FoundChunks
from fsbridge.layouts.files.elements.reading import ElementReader
from fsbridge.layouts.files.elements.spill import Spill
from fsbridge.layouts.files.elements.supply import ChunkSupply
from fsbridge.layouts.files.selection import Pick, Selection, whole
from fsbridge.model import Array, Child, Group, Link, Node, as_array
from fsbridge.tree import escape, unescape
from fsbridge.virtual import VirtualTree, split
from fsbridge.workers import Workers

BAND_ITEMS = 1 << 24
"""Elements of variable length that are in memory at a time, at most."""


@dataclass(frozen=True, slots=True)
class OrderedMember:
    """A group or an array, or the error of what cannot be opened. `path` is that of the mount, from `/`."""

    path: str
    node: Group | Array | None
    error: Exception | None = None


def members(tree: VirtualTree, path: str = "") -> Iterator[OrderedMember]:
    """The group or array at `path` and all below it, in the order of their names; links are not followed."""
    node: Node = tree.source.root
    for name in split(path):
        model = unescape(name)
        if model is None or as_array(node) is not None:
            raise NotFound("no such group or array")
        node = cast(Group, node).child(model)
    if isinstance(node, Link):
        raise NotFound(f"a link to {node.target}: name that")
    yield from _below("/" + "/".join(os.fsdecode(name) for name in split(path)), node, tree.config.limits.depth)


def _below(path: str, node: Group | Array, depth: int) -> Iterator[OrderedMember]:
    if (array := as_array(node)) is not None:
        yield OrderedMember(path, array)
        return
    group = cast(Group, node)
    yield OrderedMember(path, group)
    try:
        if depth < 0:
            raise TooDeep("too many nested groups")
        children = sorted(group.children(), key=_shown)
    except (FsbridgeError, OSError) as error:
        yield OrderedMember(path, None, error)
        return
    for child in children:
        below = f"{path.rstrip('/')}/{child.name!a}"
        try:
            below = f"{path.rstrip('/')}/{os.fsdecode(escape(child.name))}"
            found = Link(child.link) if child.link is not None else group.child(child.name)
        except (FsbridgeError, OSError) as error:
            yield OrderedMember(below, None, error)
            continue
        if not isinstance(found, Link):
            yield from _below(below, found, depth - 1)


def _shown(child: Child) -> bytes:
    """What a member's name is sorted by: its file name, where it can have one."""
    try:
        return escape(child.name)
    except FsbridgeError:
        return child.name.encode("utf-8", "backslashreplace")


def type_text(array: Array) -> str:
    """The Zarr v3 data type of the elements: its name, or its JSON with sorted keys and without blanks."""
    name = array.metadata.dtype.name
    return name if isinstance(name, str) else json.dumps(name, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class OrderedArray:
    """The elements of one version of an array in C order; with `reversed_axes`, of its transpose."""

    def __init__(self, tree: VirtualTree, array: Array, reversed_axes: bool = False) -> None:
        """Unsupported for elements that have no bytes of their own."""
        metadata = array.metadata
        if metadata.refused is not None:
            raise Unsupported(metadata.refused)
        if metadata.varlength or metadata.dtype.serializer == "optional":
            raise Unsupported("its chunks differ in size although its elements do not, or elements may be missing")
        self.array = array
        self.is_text = metadata.dtype.serializer != "bytes"
        self.shape = metadata.shape[::-1] if reversed_axes else metadata.shape
        self.size = math.prod(self.shape)
        rank = range(len(metadata.shape))
        self._order = tuple(reversed(rank)) if reversed_axes else tuple(rank)
        config = tree.config
        chunks = DecodedArray(array, tree.cache, config.max_direct, config.immutable)
        self._version = chunks.whole()
        self._helpers = Workers("helper", (os.cpu_count() or 1) - 1)
        self._spill = Spill(config.spill_dir, config.spill_size)
        self._room = tree.cache.budget
        native = metadata.dtype.numpy
        self.dtype = None if native is None or self.is_text else _packed(native)
        self._supply: ChunkSupply | None = None
        if not self.is_text:
            self._supply, self._reader = self._open(whole(metadata.shape))

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Elements [start, stop) of a fixed size, little-endian, packed: of `dtype`, or rows of bytes where that is None."""
        found, dtype = self._reader.read(start, stop), self.array.metadata.dtype
        if self.dtype is not None:
            assert dtype.numpy is not None
            return found.view(dtype.numpy).astype(self.dtype, copy=False)
        rows = found.view(np.uint8).reshape(-1, dtype.itemsize)
        return rows[:, ::-1] if dtype.endian == "big" else rows

    def texts(self) -> Iterator[list[bytes]]:
        """All elements of variable length as bytes, band by band; text is UTF-8."""
        for selection in self._bands():
            supply, reader = self._open(selection)
            try:
                found = reader.objects().reshape(-1)
            finally:
                supply.close()
            yield [item.encode() if isinstance(item, str) else bytes(item) for item in found]

    def close(self) -> None:
        """Give back what was spilt."""
        if self._supply is not None:
            self._supply.close()

    def _open(self, selection: Selection) -> tuple[ChunkSupply, ElementReader]:
        supply = ChunkSupply(FoundChunks(self._version), selection, self._order, self._helpers, self._spill)
        return supply, ElementReader(supply.metadata, selection, self._order, supply, self._room)

    def _bands(self) -> Iterator[Selection]:
        """Regions along the slowest dimension, as long as a chunk."""
        shape, grid = self.array.metadata.shape, self.array.metadata.grid
        if not shape:
            yield whole(shape)
            return
        axis = self._order[0]
        edges = grid.edges[axis]
        plane = max(1, math.prod(shape) // max(1, shape[axis]))
        step = max(1, min(edges if isinstance(edges, int) else min(edges), BAND_ITEMS // plane))
        if plane > BAND_ITEMS:
            raise Unsupported(f"{plane} elements of variable length in one plane")
        for start in range(0, shape[axis], step):
            picks = [Pick(0, 1, n) for n in shape]
            picks[axis] = Pick(start, 1, min(step, shape[axis] - start))
            yield Selection(tuple(picks))


def _packed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    little = dtype.newbyteorder("<")
    return little if little.names is None else np.dtype(repack_fields(little, recurse=True))
