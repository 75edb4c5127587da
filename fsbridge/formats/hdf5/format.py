"""How HDF5 files are recognised and opened."""

from __future__ import annotations

from fsbridge.formats.format import Directory, File, Format, Origin
from fsbridge.model import Source

MAGIC = b"\x89HDF\r\n\x1a\n"
USER_BLOCKS = (0, *(512 << power for power in range(12)))
"""Where an HDF5 file may begin: after a user block of 0, 512, 1024, ... bytes; up to 1 MiB in practice."""


def _recognise(found: Directory | File) -> bool:
    return isinstance(found, File) and any(found.has(MAGIC, offset) for offset in USER_BLOCKS)


def _open(origin: Origin) -> Source:
    from fsbridge.formats.hdf5.source import open_hdf5

    if origin.store is None:
        return open_hdf5(origin.path, origin.config)
    from fsbridge.formats.hdf5.remote import remote_file

    return open_hdf5(remote_file(origin.store, origin.key, origin.config.allow_external), origin.config)


FORMAT = Format("hdf5", (".h5", ".hdf5", ".nwb"), _recognise, _open)
