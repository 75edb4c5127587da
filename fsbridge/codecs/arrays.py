"""Memory order of arrays. Not here: filters that change values (`filters.py`, `cast.py`), byte order."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fsbridge.codecs.chain import Buffer, Decoder
from fsbridge.errors import CorruptData


@dataclass(frozen=True, slots=True)
class Untranspose:
    """Undoes a transpose by `order`; the result, an array of `shape`, is what is stored."""

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
    """The array that was transposed by `order` into one of `shape`."""
    return Untranspose(shape, order, itemsize)
