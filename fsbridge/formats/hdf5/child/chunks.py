"""Where a dataset's chunks are stored: HDF5's chunk index as columns, checked against HDF5's own reads.

This module also decodes chunks compressed with LZF or szip, perhaps after shuffling, with HDF5's own libraries, and
refuses those that are too short: HDF5 does not check how many bytes these filters decoded and would show whatever was in
memory behind them. Part of the HDF5 child. Not here: other contents of chunks (`data.py`), the columns on the daemon's
side (`tables.py`).
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from h5py import h5d, h5f, h5p, h5s, h5t, h5z

from fsbridge.children.hdf5_functions import ID, find_function
from fsbridge.formats.hdf5.child.data_file import Refusal
from fsbridge.formats.hdf5.child.objects import H5_ERRORS

VERIFY_BYTES = 16 << 20
"""Most bytes that are read to verify the addresses of one table. Larger chunks are not used for it."""

_get_chunk_index_type = find_function(h5d, "H5Dget_chunk_index_type", ID, ctypes.POINTER(ctypes.c_int))

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
    first table of a kind is compared, unless the file has a user block: more chunks would only show faults of HDF5 itself.
    """

    tables: Counter[Hashable]
    read: Callable[[int, int], bytes]
    user_block: int
    is_remote: bool

    def count_chunks(self, kind: int, is_dubious: bool) -> int:
        """Return how many chunks of the next table of this kind of index are compared.

        `is_dubious`: the table has chunks outside the array's shape.
        """
        if self.is_remote and not self.user_block:
            return int(not self.tables[kind])
        if is_dubious:
            return 64
        return 6 if self.tables[kind] < 8 else 2  # the first 8 tables of a kind are checked more closely


def read_stored_chunks(dataset: Any, verification: TableChecks) -> ChunkColumns:
    """Return the chunks of `dataset`, some of them verified. Raises Refusal if HDF5 reads others than the index names."""
    kind = ctypes.c_int()
    if _get_chunk_index_type(dataset.id, ctypes.byref(kind)) < 0:
        raise Refusal("corrupt", "HDF5 cannot tell the kind of the chunk index")
    edges = dataset.get_create_plist().get_chunk()
    shape = dataset.get_space().get_simple_extent_dims()
    counts = [-(-extent // edge) for extent, edge in zip(shape, edges, strict=True)]
    if math.prod(counts) >= 1 << 63:
        raise Refusal("too_large", f"a grid of {math.prod(counts)} chunks is too large")
    # H5D_CHUNK_IDX_EARRAY (H5Dpublic.h).
    swizzle = _swizzle(dataset, edges) if kind.value == 4 else None
    blocks = [_columns(rows, edges, counts, swizzle) for rows in _rows(dataset)]
    position, address, size, mask = (np.concatenate([block[i] for block in blocks]) for i in range(4))
    outside = sum(block[4] for block in blocks)
    columns = ChunkColumns((position, address, size, mask), outside, 0)
    most = verification.count_chunks(kind.value, bool(outside))
    bias = _verified_bias(dataset, edges, counts, columns, verification, most)
    verification.tables[kind.value] += bool(len(position))
    return ChunkColumns(columns.columns, outside, bias)


def _verified_bias(
    dataset: Any,
    edges: Sequence[int],
    counts: Sequence[int],
    columns: ChunkColumns,
    verification: TableChecks,
    most: int,
) -> int:
    """Return what to add to all addresses: 0, or the user block, which HDF5 before 1.14.4 leaves out."""
    position, address, size, mask = columns.columns
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
        true_indexes = list(indexes)
        for axis in reversed(range(len(indexes))):
            if axis != self.unlimited:
                radix = np.uint64(self.radices[axis])
                number, true_indexes[axis] = number // radix, number % radix
        true_indexes[self.unlimited] = number
        return true_indexes


def _swizzle(dataset: Any, edges: Sequence[int]) -> _Swizzle | None:
    """Return how to correct the indexes of an extensible array, or None if they are right."""
    extents = dataset.get_space().get_simple_extent_dims(True)
    unlimited = [axis for axis, extent in enumerate(extents) if extent == h5s.UNLIMITED]
    if len(unlimited) != 1:
        raise Refusal("corrupt", f"an extensible array index needs one unlimited axis, not {len(unlimited)}")
    if unlimited[0] == 0 or not _iteration_is_swizzled():
        return None
    return _Swizzle(unlimited[0], tuple(-(-extent // edge) for extent, edge in zip(extents, edges, strict=True)))


@functools.cache
def _iteration_is_swizzled() -> bool:
    """Tell whether this HDF5 gives wrong offsets (2.0 does, 1.14.6 does not), by a dataset of 2 x 3 chunks in memory."""
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


LZF = 32000
"""The filter's registered number."""
SZIP_HEADER = 4
"""HDF5 stores the decoded length in 4 bytes before szip's own (H5Zszip.c)."""

Bytes = npt.NDArray[np.uint8]
Decode = Callable[[bytes, int, tuple[int, ...]], Bytes | None]
"""(stored bytes, decoded size, filter values) -> at most `size` decoded bytes, or None if HDF5 must decode them."""


def decode_lzf_or_szip(dataset: Any, plist: Any, start: tuple[int, ...]) -> Any:
    """Decode the chunk at `start` if LZF or szip made it; None if HDF5 must. Return `(*shape, element size)` uint8.

    Raises Refusal if the chunk has fewer elements than its shape.
    """
    filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
    size, edges = dataset.get_type().get_size(), plist.get_chunk()
    number, _, settings, _ = filters[-1]
    shuffled = len(filters) == 2 and filters[0][0] == h5z.FILTER_SHUFFLE and filters[0][2] == (size,)
    if number not in DECODERS or not (shuffled or len(filters) == 1):
        return None
    try:
        mask, stored = dataset.read_direct_chunk(start)
    except H5_ERRORS:  # It is not stored, or HDF5 will report the error. `get_chunk_info_by_coord` would search all chunks.
        return None
    count = math.prod(edges)
    data = None if mask else DECODERS[number](stored, count * size, settings)
    if data is None:
        return None
    if len(data) != count * size:
        name = "LZF" if number == LZF else "szip"
        raise Refusal(
            "corrupt", f"{name} data of {len(data) or 'no known number of'} bytes where {count * size} are expected"
        )
    return (data.reshape(size, count).T if shuffled else data).reshape(*edges, size)


def _lzf(stored: bytes, size: int, settings: tuple[int, ...]) -> Bytes | None:
    if _decompress_lzf is None:
        return None
    data = np.empty(size, np.uint8)
    return data[: _decompress_lzf(stored, len(stored), data.ctypes.data, size)]  # 0 bytes: too many, or not LZF


class _Szip(ctypes.Structure):
    """`SZ_com_t` (szlib.h)."""

    _fields_ = (
        ("options_mask", ctypes.c_int),
        ("bits_per_pixel", ctypes.c_int),
        ("pixels_per_block", ctypes.c_int),
        ("pixels_per_scanline", ctypes.c_int),
    )


def _szip(stored: bytes, size: int, settings: tuple[int, ...]) -> Bytes | None:
    return None if _decompress_szip is None else _decode_szip(_decompress_szip, stored, size, settings)


def _decode_szip(decompress: Callable[..., int], stored: bytes, size: int, settings: tuple[int, ...]) -> Bytes | None:
    """Decode szip; `decompress` is szip's own function.

    Each line of pixels is stored as whole blocks. The library leaves the missing pixels of a short line unset, so it is
    asked for whole blocks. Pixels of 32 and 64 bits are stored as bytes: first the first byte of every pixel, then the
    second, ...
    """
    if len(settings) < 4:
        return None
    mask, block, bits, line = settings[:4]
    if bits not in (8, 16, 32, 64) or size % (bits // 8):
        return None
    # The limits of szlib.h. HDF5 never writes a line that is shorter than a block, so whole blocks take less than twice the
    # size.
    possible = 2 <= block <= 32 and block <= line <= 4096
    if not possible or len(stored) < SZIP_HEADER or int.from_bytes(stored[:SZIP_HEADER], "little") != size:
        return np.empty(0, np.uint8)
    pixel = 2 if bits == 16 else 1
    pixels, whole = size // pixel, -(-line // block) * block
    lines = -(-pixels // line)
    padded = np.zeros(lines * whole * pixel, np.uint8)
    length = ctypes.c_size_t(len(padded))
    form = _Szip(mask, 8 * pixel, block, whole)
    if decompress(padded.ctypes.data, length, stored[SZIP_HEADER:], len(stored) - SZIP_HEADER, form):
        return np.empty(0, np.uint8)
    needed = ((lines - 1) * whole + pixels - (lines - 1) * line) * pixel
    if length.value < needed:
        return padded[: min(length.value, size - 1)]
    data = padded.reshape(lines, whole * pixel)[:, : line * pixel].reshape(-1)[:size]
    return data if bits <= 16 else data.reshape(bits // 8, -1).T.reshape(-1)


DECODERS: Mapping[int, Decode] = {LZF: _lzf, h5z.FILTER_SZIP: _szip}


def _function(name: str, *arguments: Any) -> Callable[..., int] | None:
    """Return a function of the libraries that h5py has loaded, or None if it is missing."""
    try:
        c_function = getattr(ctypes.CDLL(h5z.__file__), name)
    except (AttributeError, OSError):
        return None
    c_function.argtypes, c_function.restype = arguments, ctypes.c_uint
    return c_function  # type: ignore[no-any-return]


_decompress_lzf = _function("lzf_decompress", ctypes.c_char_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_uint)
_decompress_szip = _function(
    "SZ_BufftoBuffDecompress",
    *(ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(_Szip)),
)
