"""Byte order of structs: fields of any order become little endian, the only order that Zarr v3's `structured` knows.

Not here: arrays of simple types, whose byte order is described instead of changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fsbridge.codecs.chain import Buffer, Decoder
from fsbridge.codecs.filters import elements, prepare


@dataclass(frozen=True, slots=True)
class Swap:
    """Elements of `stored` with every field in little endian; bytes between fields stay as they are."""

    stored: np.dtype[Any]
    name: str = "byteswap"

    def encoded_size(self, decoded: int) -> int | None:
        return decoded

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        source = elements(data, self.stored)
        target, result = prepare(len(source), self.stored.newbyteorder("<"), size, limit, out)
        target[:] = data  # numpy copies fields only
        np.copyto(result, source)
        return target


def little_endian(stored: np.dtype[Any]) -> Decoder | None:
    """Elements of `stored` as elements of `stored.newbyteorder("<")`; None where both are the same."""
    return None if stored.newbyteorder("<") == stored else Swap(stored)
