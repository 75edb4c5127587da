"""Conversion of the source's elements to a file's type, if its header cannot state the source's type.

The list of conversions is closed. Anything else is refused, because bytes of a wrong type would be wrong values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fsbridge.errors import CorruptData, Unsupported


class Misfit(CorruptData):
    """An element that the file's type cannot hold. `position`: its number among those that were converted."""

    def __init__(self, position: int, value: int, shown: np.dtype[Any]) -> None:
        super().__init__(f"element number {position} is {value}, which {shown.name} cannot hold")
        self.position = position
        self.value = value
        self.shown = shown

    def named(self, index: tuple[int, ...]) -> CorruptData:
        """Return the error that names the element by its index in the array."""
        place = ", ".join(map(str, index))
        return CorruptData(f"element [{place}] is {self.value}, which {self.shown.name} cannot hold; NAME.npy has it")


Conversion: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]


def conversion(native: np.dtype[Any], shown: np.dtype[Any]) -> Conversion | None:
    """Return a function that converts the bits of `native` elements to the type `shown`; None if both have the same bytes.

    Numbers change their byte order, and become wider if every value stays what it is; compounds change both field by field.
    Whole numbers of 64 bits may become narrower ones, with Misfit for an element that does not fit. Other elements of equal
    size stay as they are. Unsupported for all else.
    """
    if native == shown:
        return None
    numbers = native.kind in "biufc" and shown.kind in "biufc"
    if (numbers and np.can_cast(native, shown, "safe")) or (native.names is not None and shown.names is not None):
        return lambda bits: bits.view(native).astype(shown)
    if native.kind in "iu" and native.itemsize == 8 and shown.kind == "u":
        return lambda found: _narrowed(found.view(native), shown)
    if not numbers and native.itemsize == shown.itemsize and native.isnative == shown.isnative:
        return None
    raise Unsupported(f"elements of type {native.str} cannot be shown as {shown.str}")


def _narrowed(found: NDArray[Any], shown: np.dtype[Any]) -> NDArray[Any]:
    most = np.iinfo(shown).max
    if found.size and (found.max() > most or found.min() < 0):
        position = int(np.argmax((found > most) | (found < 0)))
        raise Misfit(position, int(found.reshape(-1)[position]), shown)
    return found.astype(shown)
