"""The reading engine: any range of a file's elements, assembled from the chunks that it touches.

Not here: how chunks get into memory (`supply.py`), a file's own bytes (`arrays/nodes.py`). Where no chunk is stored, the
elements have the fill value; a damaged chunk is an error for exactly the reads that touch it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, product
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fsbridge.config import MIB
from fsbridge.errors import TooLarge
from fsbridge.layouts.files.arrays.selection import Selection, Span, find_band, split_into_boxes, split_into_runs
from fsbridge.layouts.files.elements.chunk_bytes import bits, decode_items, fill_item, native_order
from fsbridge.layouts.files.elements.pieces import Piece
from fsbridge.layouts.files.elements.supply import ChunkSupply
from fsbridge.metadata import ArrayMetadata, Index

_GROUP_PART = 4
"""Chunks of one read are decoded in groups of at most this part (a quarter) of the cache."""

GROUP_CHUNKS = 1024
"""Most chunks of such a group, because copying a small chunk takes more memory than its bytes."""

_FETCHED_CHUNKS, _FETCHED_BYTES = 64, 64 * MIB
"""Most chunks, and about how many decoded bytes, that are fetched ahead of a reader of a remote store, as many bytes as it
keeps. More would be given up before they are read, and requested twice."""

_FEW = 64
"""Most chunks in a read that the event loop answers."""

_REMEMBERED_BANDS = 16
"""Most bands that one call of `give_up` drops. If there are more, each is small."""


class _ChunkPart(NamedTuple):
    """The part of a box that lies in one chunk: its place in the box, and its place in the chunk."""

    chunk: Index
    target: tuple[slice, ...]
    source: tuple[slice | int, ...]


class ElementReader:
    """Reads the elements of a region in one memory order. `order`: dimensions of the region, slowest first."""

    def __init__(
        self,
        metadata: ArrayMetadata,
        selection: Selection,
        order: Sequence[int],
        supply: ChunkSupply,
        room: int,
        read_ahead: bool = True,
        group_chunks: int = GROUP_CHUNKS,
    ) -> None:
        """`room`: size of the cache in bytes; `read_ahead`: False if `fetch` is to do nothing.

        `group_chunks`: the most chunks that are opened together.
        """
        self._metadata = metadata
        self._selection = selection
        self._supply = supply
        kept = selection.kept
        self._dimensions = tuple(kept[i] for i in order)
        self._shape = tuple(selection.picks[i].length for i in self._dimensions)
        self._size = metadata.dtype.itemsize
        self.chunks_across = math.prod(min(metadata.grid.counts[i], selection.picks[i].length) for i in self._dimensions[1:])
        """Chunks that one position of the slowest dimension touches."""
        largest = max(1, metadata.chunk_bytes((0,) * len(metadata.shape)) or 1) if all(metadata.grid.counts) else 1
        self._cached = max(1, room // largest)  # number of chunks in the cache
        self._group = min(max(1, self._cached // _GROUP_PART), group_chunks)
        fetches = read_ahead and supply.remote
        self._most_fetched = max(1, min(_FETCHED_BYTES // largest, _FETCHED_CHUNKS)) if fetches else 0
        dropped = [i for i, pick in enumerate(selection.picks) if pick.dropped]
        self._slowest_first = (*dropped, *self._dimensions)
        self._steps = tuple(
            group_chunks * max(1, metadata.grid.shape[i] // max(1, metadata.grid.counts[i]) // abs(selection.picks[i].step))
            for i in self._dimensions
        )  # along each dimension, about how many positions `group_chunks` chunks have
        self._least_step = min(self._steps, default=0)
        self._back = tuple(self._slowest_first.index(i) for i in range(len(selection.picks)))
        axes = {dimension: i for i, dimension in enumerate(sorted(self._dimensions))}
        self._transposed = tuple(axes[i] for i in self._dimensions)
        self._untransposed = tuple(self._transposed.index(i) for i in range(len(self._transposed)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The region's extents, slowest dimension first."""
        return self._shape

    def index(self, position: Sequence[int]) -> tuple[int, ...]:
        """Return the array's index of the element at a position in the region, slowest dimension first."""
        index = [pick.start for pick in self._selection.picks]
        for dimension, at in zip(self._dimensions, position, strict=True):
            index[dimension] += self._selection.picks[dimension].step * int(at)
        return tuple(index)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return elements [start, stop), each as bits without a number type (`chunk_bytes.bits`)."""
        out = np.empty(stop - start, bits(self._size))
        self.read_into(start, stop, out.view(np.uint8).data)
        return out

    def peek(self, start: int, stop: int) -> NDArray[Any] | None:
        """Return elements [start, stop) if they lie in a few chunks, all of them in memory; else None. Never blocks."""
        out = np.empty(stop - start, bits(self._size))
        left = _FEW
        for first, box in split_into_boxes(self._shape, start, stop):
            shape = [high - low for low, high in box]
            target = out[first - start : first - start + math.prod(shape)].reshape(shape)
            for part in self._parts(box):
                known, view = self._supply.in_memory(part.chunk)
                left -= 1
                if not known or left < 0:
                    return None
                if view is None:
                    target[part.target] = self._make_fill()
                else:
                    self._put(target, part, self._supply.reshape(view, part.chunk))
        return out

    def read_into(self, start: int, stop: int, out: memoryview) -> None:
        """Read elements [start, stop) into `out`, which has exactly their size."""
        elements = np.frombuffer(out, bits(self._size))
        for first, box in split_into_boxes(self._shape, start, stop):
            shape = [high - low for low, high in box]
            self._fill(elements[first - start : first - start + math.prod(shape)].reshape(shape), box)

    def read_box(self, box: tuple[Span, ...]) -> NDArray[Any]:
        """Return the elements of a box, which has a span for each dimension, as `read` does."""
        out = np.empty([high - low for low, high in box], bits(self._size))
        self._fill(out, box)
        return out

    def fetch(self, element: int) -> None:
        """Prefetch the stored bytes of the chunks of the band that holds `element`, and of the bands after it.

        Does nothing if the store is local.
        """
        left, start = self._most_fetched, cast("int | None", element)
        while left > 0 and start is not None:
            box, start = self._band(start)
            chunks = [part.chunk for part in islice(self._parts(box), left)]
            self._supply.fetch(chunks)
            left -= len(chunks)

    def give_up(self, start: int, stop: int) -> int:
        """Note that elements [start, stop) will not be read again. The chunks of whole bands among them may then be dropped.

        Returns the first element of the first band that is kept.
        """
        for _ in range(_REMEMBERED_BANDS):
            box, following = self._band(start)
            if following is None or following > stop:
                break
            for part in islice(self._parts(box), self._cached):
                self._supply.give_up(part.chunk)
            start = following
        return start

    def _band(self, element: int) -> tuple[tuple[Span, ...], int | None]:
        return find_band(self._metadata.grid, self._selection, self._dimensions, self._shape, element)

    def read_objects(self, most: float = math.inf) -> NDArray[Any]:
        """Return all elements of variable length: texts or bytes. TooLarge if they have more than `most` bytes."""
        out, left = np.empty(self._shape, object), most
        box = tuple((0, n) for n in self._shape)
        kind = self._metadata.dtype.serializer
        for part in self._parts(box):
            piece = self._supply.find(part.chunk)
            if piece is None:
                out[part.target] = fill_item(kind, self._metadata.fill)
                continue
            shape = self._metadata.grid.chunk_shape(part.chunk)
            native = native_order(self._metadata)
            items = np.empty(math.prod(shape), object)
            items[:] = decode_items(kind, piece.chunk.decode(), len(items))
            items = items.reshape([shape[i] for i in native]).transpose(np.argsort(native))
            elements = items[part.source]  # without dimensions this is the element, not an array
            left -= sum(map(len, elements.reshape(-1).tolist() if self._shape else [elements]))
            if left < 0:
                raise TooLarge(f"the elements of variable length have more than {most} bytes")
            out[part.target] = elements.transpose(self._transposed) if self._shape else elements
        return out

    def _fill(self, out: NDArray[Any], box: tuple[Span, ...]) -> None:
        """Fill `out` with a box, part by part if the box has many chunks."""
        if out.size > self._least_step:
            for along, ((low, high), step) in enumerate(zip(box, self._steps, strict=True)):
                if high - low > step:
                    for first in range(low, high, step):
                        last = min(first + step, high)
                        place = (*(slice(None) for _ in range(along)), slice(first - low, last - low))
                        self._fill(out[place], (*box[:along], (first, last), *box[along + 1 :]))
                    return
        self._fill_part(out, box)

    def _fill_part(self, out: NDArray[Any], box: tuple[Span, ...]) -> None:
        group: list[_ChunkPart] = []
        for part in self._parts(box):
            group.append(part)
            if len(group) == self._group:
                self._copy(group, out)
                group = []
        self._copy(group, out)

    def _copy(self, parts: list[_ChunkPart], out: NDArray[Any]) -> None:
        supply = self._supply
        if len(parts) > 1:
            supply.fetch([part.chunk for part in parts])
        missing: list[tuple[_ChunkPart, Piece]] = []
        pieces = supply.find_all([part.chunk for part in parts])
        for part, piece in zip(parts, pieces, strict=True):  # first the decoded ones: the others need their room
            if piece is None:
                out[part.target] = self._make_fill()
            elif (view := supply.peek(piece)) is not None:
                self._put(out, part, supply.reshape(view, part.chunk))
            else:
                missing.append((part, piece))
        if len(missing) > 1:
            supply.prepare([piece for _, piece in missing])
        for part, piece in missing:
            if not supply.copy_ranges(piece, out[part.target].transpose(self._untransposed), part.source):
                supply.use(piece, partial(self._put, out, part))

    def _put(self, out: NDArray[Any], part: _ChunkPart, chunk: NDArray[Any]) -> None:
        out[part.target] = chunk[part.source].transpose(self._transposed)

    def _make_fill(self) -> Any:
        fill = self._metadata.fill
        return np.frombuffer(fill if isinstance(fill, bytes) else bytes(self._size), bits(self._size))[0]

    def _parts(self, box: tuple[tuple[int, int], ...]) -> Iterator[_ChunkPart]:
        grid, picks = self._metadata.grid, self._selection.picks
        spans = dict(zip(self._dimensions, box, strict=True))
        cut: list[list[tuple[int, slice | int, slice]]] = []
        for i in self._slowest_first:
            low = spans[i][0] if i in spans else 0
            cut.append([
                (run.chunk, run.inside if i in spans else run.start, slice(run.first - low, run.first - low + run.length))
                for run in split_into_runs(grid, i, picks[i], spans.get(i, (0, 1)))
            ])  # fmt: skip
        dropped, back = len(picks) - len(box), self._back
        for chosen in product(*cut):
            yield _ChunkPart(
                tuple([chosen[i][0] for i in back]),
                tuple([run[2] for run in chosen[dropped:]]),
                tuple([chosen[i][1] for i in back]),
            )
