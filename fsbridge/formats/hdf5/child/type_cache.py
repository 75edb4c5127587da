"""A cache of what is asked of HDF5 types: most attributes of a file have one of a few. Part of the HDF5 child.

Not here: how a type is described (`h5types.py`).
"""

from __future__ import annotations

import functools
from functools import cached_property
from typing import Any

from h5py import h5t

from fsbridge.children import elements
from fsbridge.formats.hdf5.child import h5types

_KEPT_TYPES, _KEPT_BYTES = 256, 1024
"""Types that are kept, and bytes of each as HDF5 encodes it at most."""


class KnownType:
    """One type."""

    def __init__(self, tid: Any) -> None:
        """Raises NestedTooDeep."""
        self._tid = tid
        self.described = h5types.describe(tid)
        self.unreadable = h5types.unreadable(self.described)
        """Why h5py cannot be asked for such elements; None where it can."""
        self.untold = h5types.unreadable(self.described, new=True)
        """Why HDF5 cannot."""

    @cached_property
    def form(self) -> elements.Form:
        """Of elements in memory; ValueError for references that cannot be taken along."""
        return elements.form(self._tid)

    @cached_property
    def dtype(self) -> Any:
        """As h5py has it; TypeError where it has none."""
        return self._tid.dtype

    @cached_property
    def memory(self) -> Any:
        """The type of elements in a numpy array of `dtype`."""
        return h5t.py_create(self.dtype)


def known_type(tid: Any) -> KnownType:
    """What there is to know of a type; NestedTooDeep."""
    encoded = tid.encode()
    found = _decoded(encoded) if len(encoded) <= _KEPT_BYTES else None
    if found is None or h5types.refers(found.described):  # references belong to the file that they were asked for in
        return KnownType(tid)
    return found


@functools.lru_cache(_KEPT_TYPES)
def _decoded(encoded: bytes) -> KnownType:
    return KnownType(h5t.decode(encoded))
