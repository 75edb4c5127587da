"""How elements of the source become those of a file, where its header cannot say what the source has.

The closed list of what is done; anything else is refused, because bytes by another name would be wrong values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fsbridge.errors import Unsupported

Conversion: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]


def conversion(native: np.dtype[Any], shown: np.dtype[Any]) -> Conversion | None:
    """What makes elements of type `shown` from the bits of `native` ones; None where both are the same bytes.

    Numbers change their byte order, and become wider where every value stays what it is; compounds change both field by
    field. Bytes keep their place under another name of as many.
    """
    if native == shown:
        return None
    numbers = native.kind in "biufc" and shown.kind in "biufc"
    if (numbers and np.can_cast(native, shown, "safe")) or (native.names is not None and shown.names is not None):
        return lambda bits: bits.view(native).astype(shown)
    if not numbers and native.itemsize == shown.itemsize and native.isnative == shown.isnative:
        return None
    raise Unsupported(f"elements of type {native.str} cannot be shown as {shown.str}")
