"""The file of an array that a name stands for: a file of some type, or the directory of the array's planes.

Not here: how a name is read (`names.py`), which arrays there are (`layout.py`), what the files hold (`nodes.py`).
"""

from __future__ import annotations

import logging

from fsbridge.errors import NotFound
from fsbridge.layouts.files.arrays import OpenArray
from fsbridge.layouts.files.filetypes import FILE_TYPES
from fsbridge.layouts.files.h5.nodes import H5Array
from fsbridge.layouts.files.names import SLICES
from fsbridge.layouts.files.nodes import ArrayFile
from fsbridge.layouts.files.selection import parse_region
from fsbridge.layouts.files.slices import PlaneSpace, SlicesDirectory
from fsbridge.tree import AnyNode

log = logging.getLogger(__name__)


def file_of(array: OpenArray, region: str | None, suffix: str, name: str) -> AnyNode:
    """The file `NAME[region].suffix` or `NAME@region.suffix`; NotFound for a bad region, which the log explains."""
    selection = None
    if region is not None:
        try:
            selection = parse_region(region, array.metadata.shape)
        except ValueError as error:
            log.debug("%s: no region of %s: %s", name, array.name, error)
            raise NotFound(f"{name}: {error}") from None
    if suffix == SLICES:
        return SlicesDirectory(PlaneSpace(array, selection))
    if suffix not in FILE_TYPES:
        raise NotFound(f"{name!r}: no such file type")
    at = name.startswith(f"{array.name}@")
    full = None if region is None else f"{array.name}@{region}" if at else f"{array.name}[{region}]"
    return H5Array(array, selection, full) if suffix == "h5" else ArrayFile(array, suffix, selection, full)
