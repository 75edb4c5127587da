"""Where a dataset's chunks are stored: HDF5's chunk index as columns, checked against HDF5's own reads.

Part of the HDF5 child. Not here: the contents of chunks (`data.py`), the columns on the daemon's side (`tables.py`).
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from h5py import h5d, h5f, h5p, h5s, h5t

from fsbridge.children.elements import ID, function
from fsbridge.formats.hdf5.child.opened import Refusal

VERIFY_BYTES = 16 << 20
"""Most bytes that are read to verify the addresses of one table. Larger chunks are not used for it."""
CHUNKS_VERIFIED_AT_FIRST, CHUNKS_VERIFIED, CHUNKS_VERIFIED_IF_DUBIOUS = 6, 2, 64
"""Numbers of chunks of a table that are compared with what HDF5 reads.

They apply to the first tables of each kind of index in a file, to later tables, and to tables with chunks outside the
array's shape.
"""

_get_chunk_index_type = function(h5d, "H5Dget_chunk_index_type", ID, ctypes.POINTER(ctypes.c_int))

Column = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True, slots=True)
class ChunkColumns:
    """The chunks of one dataset: grid position (row-major number), address, stored size and filter mask of each.

    `outside` counts further chunks that lie outside the array's shape. `bias` must be added to HDF5's addresses.
    """

    columns: tuple[Column, Column, Column, Column]
    outside: int
    bias: int

    def attachments(self) -> list[bytes]:
        """Return the columns as the daemon reads them: little-endian numbers of 8 bytes."""
        position, address, size, mask = self.columns
        return [column.astype("<u8").tobytes() for column in (position, address + np.uint64(self.bias), size, mask)]


@dataclass(frozen=True, slots=True)
class TableChecks:
    """Settings for comparing chunks with what HDF5 reads. `tables` counts this file's tables by kind of index.

    `read(address, length)` returns bytes of the file. If `is_remote`, reading takes requests, so only one chunk of the
    first table of a kind is compared, unless the file has a user block: more would only find faults of HDF5 itself.
    """

    tables: Counter[Hashable]
    read: Callable[[int, int], bytes]
    user_block: int
    is_remote: bool

    def chunks(self, kind: int, dubious: bool) -> int:
        """Return how many chunks of the next table of this kind of index are compared."""
        if self.is_remote and not self.user_block:
            return int(not self.tables[kind])
        # The first 8 tables of a kind are checked most closely.
        first = self.tables[kind] < 8
        return CHUNKS_VERIFIED_IF_DUBIOUS if dubious else CHUNKS_VERIFIED_AT_FIRST if first else CHUNKS_VERIFIED


def stored_chunks(dataset: Any, verification: TableChecks) -> ChunkColumns:
    """Return the chunks of `dataset`, some of them verified. Raises Refusal if HDF5 reads others than its index says."""
    kind = ctypes.c_int()
    if _get_chunk_index_type(dataset.id, ctypes.byref(kind)) < 0:
        raise Refusal("corrupt", "chunk index that HDF5 cannot tell")
    edges = dataset.get_create_plist().get_chunk()
    shape = dataset.get_space().get_simple_extent_dims()
    counts = [-(-extent // edge) for extent, edge in zip(shape, edges, strict=True)]
    if math.prod(counts) >= 1 << 63:
        raise Refusal("too_large", f"grid of {math.prod(counts)} chunks")
    # H5D_CHUNK_IDX_EARRAY (H5Dpublic.h).
    swizzle = _swizzle(dataset, edges) if kind.value == 4 else None
    blocks = [_columns(rows, edges, counts, swizzle) for rows in _rows(dataset)]
    position, address, size, mask = (np.concatenate([block[i] for block in blocks]) for i in range(4))
    outside = sum(block[4] for block in blocks)
    found = ChunkColumns((position, address, size, mask), outside, 0)
    most = verification.chunks(kind.value, bool(outside))
    bias = _verified_bias(dataset, edges, counts, found, verification, most)
    verification.tables[kind.value] += bool(len(position))
    return ChunkColumns(found.columns, outside, bias)


def _verified_bias(
    dataset: Any,
    edges: Sequence[int],
    counts: Sequence[int],
    found: ChunkColumns,
    verification: TableChecks,
    most: int,
) -> int:
    """Return what to add to all addresses: 0, or the user block, which HDF5 before 1.14.4 leaves out."""
    position, address, size, mask = found.columns
    biases = list(dict.fromkeys((0, verification.user_block)))
    for row in _sample(size, most):
        index = np.unravel_index(int(position[row]), counts)
        offset = tuple(int(i) * edge for i, edge in zip(index, edges, strict=True))
        expected_mask, stored = dataset.read_direct_chunk(offset)
        length = int(size[row])
        biases = [bias for bias in biases if verification.read(int(address[row]) + bias, length) == stored]
        if not biases or expected_mask != int(mask[row]):
            raise Refusal("corrupt", f"the chunk index leads to other bytes than HDF5 reads at {list(offset)}")
    return int(biases[0])


def _sample(sizes: Column, most: int) -> Iterator[int]:
    """Choose rows to verify: the first, the last and some between, while the sizes are reasonable."""
    left = VERIFY_BYTES
    most = min(most, len(sizes))
    for row in sorted({i * (len(sizes) - 1) // max(1, most - 1) for i in range(most)}):
        if int(sizes[row]) <= left:
            left -= int(sizes[row])
            yield row


def _rows(dataset: Any) -> Iterator[Any]:
    """Return blocks of rows `(offset..., address, size, mask)` from one pass over the chunk index."""
    flat: list[int] = []
    blocks: list[Any] = []
    rank = dataset.rank

    def add(info: Any) -> None:
        flat.extend(info.chunk_offset)
        flat.extend((info.byte_offset, info.size, info.filter_mask))
        # 65,536 chunks are gathered as Python objects before they become one array.
        if len(flat) >= (1 << 16) * (rank + 3):
            blocks.append(np.array(flat, np.uint64).reshape(-1, rank + 3))
            flat.clear()

    dataset.chunk_iter(add)
    blocks.append(np.array(flat, np.uint64).reshape(-1, rank + 3))
    return iter(blocks)


def _columns(rows: Any, edges: Sequence[int], counts: Sequence[int], swizzle: _Swizzle | None) -> list[Any]:
    """Return grid position, address, size and mask of the rows inside the grid, and the number of rows outside."""
    rank = len(edges)
    indexes = [rows[:, axis] // np.uint64(edge) for axis, edge in enumerate(edges)]
    if swizzle is not None:
        indexes = swizzle.undo(indexes)
    position = np.zeros(len(rows), np.uint64)
    inside = np.ones(len(rows), bool)
    for index, count in zip(indexes, counts, strict=True):
        inside &= index < count
        position = position * np.uint64(count) + index
    return [position[inside], *(rows[inside, rank + i] for i in range(3)), int(np.count_nonzero(~inside))]


# ---- extensible arrays


@dataclass(frozen=True, slots=True)
class _Swizzle:
    """Corrects the chunk offsets that HDF5 2.0 gives for an extensible array.

    An extensible array numbers its chunks with the unlimited axis first, then the other axes in order. H5Dchunk_iter of
    HDF5 2.0 splits those numbers in the order of the axes instead (H5Dearray.c, H5D__earray_idx_iterate_cb): every axis
    before the unlimited one becomes 0, and the unlimited axis itself has no bound.
    """

    unlimited: int
    radices: tuple[int, ...]
    """Number of chunks along each axis up to the maximal shape; unused for the unlimited axis."""

    def undo(self, indexes: Sequence[Column]) -> list[Column]:
        """Return the true grid indexes for those that HDF5 gives."""
        number = indexes[self.unlimited]
        for axis in range(self.unlimited + 1, len(indexes)):
            number = number * np.uint64(self.radices[axis]) + indexes[axis]
        found = list(indexes)
        for axis in reversed(range(len(indexes))):
            if axis != self.unlimited:
                radix = np.uint64(self.radices[axis])
                number, found[axis] = number // radix, number % radix
        found[self.unlimited] = number
        return found


def _swizzle(dataset: Any, edges: Sequence[int]) -> _Swizzle | None:
    """Return how to correct the indexes of an extensible array, or None if they are right."""
    extents = dataset.get_space().get_simple_extent_dims(True)
    unlimited = [axis for axis, extent in enumerate(extents) if extent == h5s.UNLIMITED]
    if len(unlimited) != 1:
        raise Refusal("corrupt", f"extensible array index with {len(unlimited)} unlimited axes")
    if unlimited[0] == 0 or not _iteration_is_swizzled():
        return None
    return _Swizzle(unlimited[0], tuple(-(-extent // edge) for extent, edge in zip(extents, edges, strict=True)))


@functools.cache
def _iteration_is_swizzled() -> bool:
    """Tell whether this HDF5 has the fault (2.0 has it, 1.14.6 does not), by a dataset of 2 x 3 chunks in memory."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fapl_core(1 << 16, False)
    access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_LATEST)
    scratch = h5f.create(b"swizzle", h5f.ACC_TRUNC, fapl=access)  # in memory only
    try:
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_chunk((1, 1))
        space = h5s.create_simple((2, 3), (2, h5s.UNLIMITED))
        dataset = h5d.create(scratch, b"x", h5t.STD_U8LE, space, plist)
        dataset.write(h5s.ALL, h5s.ALL, np.zeros((2, 3), np.uint8))
        offsets: list[tuple[int, ...]] = []
        dataset.chunk_iter(lambda info: offsets.append(info.chunk_offset))
    finally:
        scratch.close()
    return sorted(offsets) != sorted(np.ndindex(2, 3))
