"""How zip files with a keyed hierarchy in them are recognised and opened.

Not here: the archive (`store/zip/`), which hierarchy is in it (`opening.py`).
"""

from __future__ import annotations

from fsbridge.formats.format import Directory, File, Format, Origin
from fsbridge.model import Source

MAGICS = (b"PK\x03\x04", b"PK\x05\x06")


def _recognise(found: Directory | File) -> bool:
    return isinstance(found, File) and any(map(found.has, MAGICS))


def _open(origin: Origin) -> Source:
    from fsbridge.store.blobs import ObjectFile
    from fsbridge.store.zip.store import ZipStore

    store = ZipStore(origin.path if origin.store is None else ObjectFile(origin.store, origin.key))
    try:
        return origin.opener("auto", origin.path, origin.config, store)
    except BaseException:
        store.close()
        raise


FORMAT = Format("zip", (".zip", ".zarr", ".n5"), _recognise, _open)
