"""Whether the file alone is all that any HDF5 program needs to read it. Part of the HDF5 child.

Not here: where the data in other files are (`sources.py`), the bytes of the file.
"""

from __future__ import annotations

import ctypes
from typing import Any

from h5py import h5d, h5g, h5l, h5o, h5p

from fsbridge.children.hdf5_functions import ID, MEMORY, SIZE, find_function
from fsbridge.formats.hdf5.child import h5types
from fsbridge.formats.hdf5.child.data import Datasets
from fsbridge.formats.hdf5.child.data_file import Answer
from fsbridge.threads.deadlines import Deadline

OWN_FILTERS = frozenset(range(1, 7))
"""Filters that belong to HDF5 itself (H5Zpublic.h): deflate, shuffle, fletcher32, szip, nbit, scaleoffset."""

_get_filters = find_function(h5p, "H5Pget_nfilters", ID)
_get_filter = find_function(
    h5p, "H5Pget_filter2", ID, ctypes.c_uint, MEMORY, ctypes.POINTER(ctypes.c_size_t), MEMORY, SIZE, MEMORY, MEMORY
)


class LoneFile(Datasets):
    """One opened file, and what its readers need besides it."""

    most_objects = 100_000
    """Most objects that are looked at. It takes some 80 us for each."""

    def alone(self, request: dict[str, Any]) -> Answer:
        """Return what a reader needs besides the file and HDF5's own filters, or why that is unknown; None if nothing.

        Each object is opened, but no data are read. Takes at most about `most_seconds`.
        """
        return {"needs": self._find_needs(Deadline(request["most_seconds"]))}, []

    def _find_needs(self, end: Deadline) -> str | None:
        if self.is_marked:
            return "it has the mark of a program that writes to it"  # readers would refuse it
        if self.prefetcher is not None:
            self.prefetcher.prefetch_everything(end)
        root = h5g.open(self.file, b"/")
        seen: set[int] = set()

        def look(name: bytes, info: Any) -> str | None:
            if info.type == h5l.TYPE_EXTERNAL:
                return f"/{h5types.decode_name(name)} is a link to another file"
            if info.type == h5l.TYPE_HARD and info.u not in seen:
                seen.add(info.u)
                needs = _find_needs_of(h5o.open(root, name))
                if needs is not None:
                    return f"/{h5types.decode_name(name)} {needs}"
            if len(seen) > self.most_objects or end.passed:
                return "it has more objects than can be looked at in time"
            return None

        need: str | None = _find_needs_of(root) or root.links.visit(look, info=True)
        return need


def _find_needs_of(member: Any) -> str | None:
    """Return what a reader of one object needs besides the file; None if nothing."""
    if not isinstance(member, h5d.DatasetID | h5g.GroupID):
        return None
    plist = member.get_create_plist()
    count = _get_filters(plist.id)
    if count < 0:
        return "has filters that HDF5 cannot tell"
    for number in range(count):  # a group's own are those of its links
        kind = _get_filter(plist.id, number, None, ctypes.c_size_t(0), None, 0, None, None)
        if kind not in OWN_FILTERS:
            return f"has the filter {kind}, which does not belong to HDF5 itself"
    if isinstance(member, h5g.GroupID):
        return None
    if plist.get_external_count():
        return "has its data in raw files"
    virtual = plist.get_virtual_count() if plist.get_layout() == h5d.VIRTUAL else 0
    if any(plist.get_virtual_filename(number) != "." for number in range(virtual)):
        return "has its data in other files"
    return None
