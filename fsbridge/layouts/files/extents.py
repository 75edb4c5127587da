"""The extent map of a file: at which offset its own bytes lie and at which the array's elements, and what it is made from.

Frozen descriptions, no I/O. Not here: how elements are read (`elements/`), what a format writes where (`headers/`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fsbridge.layouts.files.selection import Selection
from fsbridge.metadata import JSON, ArrayMetadata, Axes
from fsbridge.tree import escape

MAX_SIZE = 2**63 - 1
"""Bytes that a file of Linux can have."""


class Unfit(Exception):
    """The format cannot hold the array; the sentence says why, as `NAME.json` shows it."""


VARYING = "blocks with varying numbers of elements"
"""Why no file holds an N5 array of blocks in its varlength or object mode: nothing says where an element is."""


@dataclass(frozen=True)
class View:
    """An array, or a region of it, as a format is to show it.

    `dtype`: of one element in the decoded bytes; None where numpy has no such type. `axes`: one per dimension of the region,
    in the array's order. `x_first`: the array's first dimension is x (N5), else its last one is. `fortran`: in memory the
    first dimension is the fastest.
    """

    name: str
    metadata: ArrayMetadata
    selection: Selection
    axes: Axes
    x_first: bool

    @property
    def file_name(self) -> str:
        """As the mount shows it, without a suffix."""
        return escape(self.name).decode("utf-8", "surrogateescape")

    @property
    def dtype(self) -> np.dtype[Any] | None:
        return self.metadata.dtype.numpy if self.metadata.dtype.itemsize else None

    @property
    def attributes(self) -> Mapping[str, JSON]:
        return self.metadata.attributes

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Of the region, in the array's order."""
        return self.selection.shape

    @cached_property
    def fortran(self) -> bool:
        """Whether the elements lie in memory with the first dimension fastest (more than one dimension, all reversed)."""
        order = self.metadata.order
        return order is not None and len(order) > 1 and list(order) == list(range(len(order)))[::-1] and len(self.shape) > 1

    @property
    def natural(self) -> tuple[int, ...]:
        """The region's dimensions, slowest first, as the source has them in memory; C order where that is neither."""
        dimensions = tuple(range(len(self.shape)))
        return dimensions[::-1] if self.fortran else dimensions

    @property
    def picture(self) -> tuple[int, ...]:
        """The region's dimensions, slowest first, as picture formats want them: x is the last."""
        dimensions = tuple(range(len(self.shape)))
        return dimensions[::-1] if self.x_first else dimensions

    @property
    def picture_shape(self) -> tuple[int, ...]:
        """Extents in the order of `picture`."""
        return tuple(self.shape[i] for i in self.picture)

    @property
    def picture_axes(self) -> Axes:
        """Axes in the order of `picture`."""
        return tuple(self.axes[i] for i in self.picture)


@dataclass(frozen=True, slots=True)
class Elements:
    """All elements of the region, one after the other, from `offset` on.

    `order`: dimensions of the region, slowest first. `dtype`: as the file has them, which is how the source has them
    wherever a header can say so.
    """

    offset: int
    order: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class FileMap:
    """A file of exactly `size` bytes: `pieces` of its own by offset, elements, and zeros where neither is."""

    size: int
    elements: Elements | None = None
    pieces: tuple[tuple[int, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Generated:
    """A file that is made as a whole when it is opened. `size` in bytes; None: only making it tells.

    `make` gets the region's elements in the order of `order`, and a limit in bytes above which it raises TooLarge.
    """

    make: Callable[[NDArray[Any], int], bytes | bytearray]
    order: tuple[int, ...]
    size: int | None = None


Plan: TypeAlias = FileMap | Generated


@dataclass(slots=True)
class Recorder:
    """A writable file that keeps what is written, and leaves out what is only skipped over: for writers of headers."""

    pieces: dict[int, bytes] = field(default_factory=dict)
    position: int = 0
    end: int = 0

    def write(self, data: Any) -> int:
        """Keep `data` at the present position."""
        content = bytes(data)
        if content:
            self.pieces[self.position] = content + self.pieces.get(self.position, b"")[len(content) :]
        self.position += len(content)
        self.end = max(self.end, self.position)
        return len(content)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move the position, also beyond the end."""
        self.position = offset + (0, self.position, self.end)[whence]
        return self.position

    def tell(self) -> int:
        """The present position."""
        return self.position

    def flush(self) -> None:
        """Nothing waits."""

    def merged(self) -> tuple[tuple[int, bytes], ...]:
        """What was written last wherever it was written, as pieces that do not overlap, by offset."""
        merged: list[tuple[int, bytearray]] = []
        for offset, content in sorted(self.pieces.items()):
            if merged and offset <= merged[-1][0] + len(merged[-1][1]):
                start, data = merged[-1]
                data[offset - start : offset - start + len(content)] = content
            else:
                merged.append((offset, bytearray(content)))
        return tuple((offset, bytes(data)) for offset, data in merged)


def whole_file(view: View, header: bytes, order: tuple[int, ...], dtype: np.dtype[Any]) -> FileMap:
    """A header, then all elements. Unfit above the size that a file can have."""
    size = len(header) + view.selection.size * dtype.itemsize
    if size > MAX_SIZE:
        raise Unfit("2^63 bytes and more are no file")
    return FileMap(size, Elements(len(header), order, dtype), ((0, header),) if header else ())


def plain(view: View, *allowed: str) -> np.dtype[Any]:
    """The dtype of elements of which the format knows the kind; Unfit for others. `allowed`: numpy's `u2`, `f4`, ..."""
    dtype = view.dtype
    if dtype is None or dtype.names is not None or dtype.subdtype is not None:
        raise Unfit(f"the format has no elements of type {view.metadata.dtype.native}")
    code = f"{dtype.kind}{dtype.itemsize}"
    if code == "b1" and "u1" in allowed and "b1" not in allowed:
        return np.dtype("u1")  # the same bytes
    if code not in allowed:
        raise Unfit(f"the format has no elements of type {dtype.name}")
    return dtype


def ranked(view: View, least: int, most: int) -> None:
    """Unfit unless the region has `least` to `most` dimensions, none of them empty."""
    rank = len(view.shape)
    if not least <= rank <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise Unfit(f"the format holds {wanted} dimensions, the array has {rank}")
    if 0 in view.shape:
        raise Unfit("the format cannot say that a dimension is empty")
