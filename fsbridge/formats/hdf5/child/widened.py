"""Types whose integers use all of their bits, for types some of whose integers do not (n-bit): HDF5 converts while it reads.

Part of the HDF5 child. Not here: which types those are (`h5types.py`), reading.
"""

from __future__ import annotations

from typing import Any

from h5py import h5p, h5t

from fsbridge.children.hdf5 import ID, SIZE, function
from fsbridge.formats.hdf5.child import h5types

_set_precision = function(h5p, "H5Tset_precision", ID, SIZE)
_set_offset = function(h5p, "H5Tset_offset", ID, SIZE)
_get_precision = function(h5p, "H5Tget_precision", ID, result=SIZE)
"""h5py has them for integers, not for bit fields."""


def widened(tid: Any) -> Any:
    """The type to read elements of `tid` as: the same, its integers of the same sizes with all of their bits.

    So is an enumeration: a number without a name has no place in one that HDF5 converts to.
    """
    return _changed(tid, True)


def shifted(tid: Any) -> Any:
    """The type of what `widened` gives, which says how many bits of an integer are used: the lowest ones.

    Not of one that uses fewer than half: HDF5 2.0 takes such a type for damage, and opens nothing that has it.
    """
    return _changed(tid, False)


def _changed(tid: Any, wide: bool) -> Any:
    if not h5types.is_partial(h5types.describe(tid)):
        return tid
    number = tid.get_class()
    if number in (h5t.INTEGER, h5t.BITFIELD):
        found, bits = tid.copy(), 8 * tid.get_size()
        wide |= bits > 8 and 2 * _get_precision(tid.id) < bits
        if _set_offset(found.id, 0) < 0 or (wide and _set_precision(found.id, bits) < 0):
            raise ValueError("an integer whose bits HDF5 cannot move")
        return found
    if number == h5t.COMPOUND:
        found = h5t.create(h5t.COMPOUND, tid.get_size())
        for i in range(tid.get_nmembers()):
            found.insert(tid.get_member_name(i), tid.get_member_offset(i), _changed(tid.get_member_type(i), wide))
        return found
    base = _changed(tid.get_super(), wide)
    if number == h5t.ARRAY:
        return h5t.array_create(base, tid.get_array_dims())
    if number == h5t.VLEN:
        return h5t.vlen_create(base)
    if wide:
        return base
    found = h5t.enum_create(base)
    for i in range(tid.get_nmembers()):
        found.enum_insert(tid.get_member_name(i), tid.get_member_value(i))
    return found
