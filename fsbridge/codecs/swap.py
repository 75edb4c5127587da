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
    """Elements of `stored` as those of `shown`, which has other byte orders; bytes between fields stay as they are."""

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
    """Elements of `stored` as elements of `little(stored, keep_arrays)`; None where both are the same."""
    shown = little(stored, keep_arrays)
    return None if shown == stored else Swap(stored, shown)


def little(stored: np.dtype[Any], keep_arrays: bool = False) -> np.dtype[Any]:
    """`stored` with every field in little endian; with `keep_arrays` but for fields that are arrays."""
    if not keep_arrays:
        return stored.newbyteorder("<")
    if stored.subdtype is not None:
        return stored
    if stored.names is None or stored.fields is None:
        return stored.newbyteorder("<")
    fields = [stored.fields[name] for name in stored.names]
    formats, offsets = [little(field[0], True) for field in fields], [field[1] for field in fields]
    return np.dtype({"names": stored.names, "formats": formats, "offsets": offsets, "itemsize": stored.itemsize})
