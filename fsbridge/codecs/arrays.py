"""Memory order of arrays and byte order of structs. Not here: filters that change values (`filters.py`, `cast.py`).

The fields of a struct become little-endian, the only order that Zarr v3's `structured` has. The byte order of simple
types is described and not changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsbridge.codecs.chain import Buffer, CodecAbilities, Decoder
from fsbridge.codecs.filters import elements, prepare
from fsbridge.errors import CorruptData


@dataclass(frozen=True, slots=True)
class Untranspose(CodecAbilities):
    """Undoes a transpose by `order`. `shape` is that of the transposed array, which is decoded to the original one."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    itemsize: int
    name: str = "transpose"

    def encoded_size(self, decoded: int) -> int | None:
        return decoded

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if len(data) != math.prod(self.shape) * self.itemsize:
            raise CorruptData(f"{len(data)} bytes are no array of shape {list(self.shape)}")
        stored = np.frombuffer(data, f"V{self.itemsize}").reshape(self.shape)
        return stored.transpose(np.argsort(self.order)).tobytes()


def untranspose(shape: tuple[int, ...], order: tuple[int, ...], itemsize: int) -> Decoder:
    """Return the decoder for an array that has `shape` after it was transposed by `order`."""
    return Untranspose(shape, order, itemsize)


@dataclass(frozen=True, slots=True)
class Swap(CodecAbilities):
    """Turns elements of `stored` into those of `shown`, which has other byte orders. Bytes between fields are kept."""

    stored: np.dtype[Any]
    shown: np.dtype[Any]
    name: str = "byteswap"

    def encoded_size(self, decoded: int) -> int | None:
        return decoded

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        source = elements(data, self.stored)
        target, result = prepare(len(source), self.shown, size, limit, out)
        target[:] = data  # numpy copies fields only
        np.copyto(result, source)
        return target


def little_endian(stored: np.dtype[Any], keep_arrays: bool = False) -> Decoder | None:
    """Return the decoder from elements of `stored` to those of `little(stored, keep_arrays)`.

    None if both are the same.
    """
    shown = little(stored, keep_arrays)
    return None if shown == stored else Swap(stored, shown)


def little(stored: np.dtype[Any], keep_arrays: bool = False) -> np.dtype[Any]:
    """Return `stored` with every field little-endian; with `keep_arrays` except fields that are arrays."""
    if not keep_arrays:
        return stored.newbyteorder("<")
    if stored.subdtype is not None:
        return stored
    if stored.names is None or stored.fields is None:
        return stored.newbyteorder("<")
    fields = [stored.fields[name] for name in stored.names]
    formats, offsets = [little(field[0], True) for field in fields], [field[1] for field in fields]
    return np.dtype({"names": stored.names, "formats": formats, "offsets": offsets, "itemsize": stored.itemsize})
