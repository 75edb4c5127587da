"""How zip files with a keyed hierarchy in them are recognised and opened. Not here: the archive (`store/zip.py`)."""

from __future__ import annotations

from dataclasses import replace

from fsbridge.errors import SetupError
from fsbridge.formats.format import Directory, File, Format, Origin
from fsbridge.model import Source
from fsbridge.store import ROOT

MAGICS = (b"PK\x03\x04", b"PK\x05\x06")


def _recognise(found: Directory | File) -> bool:
    return isinstance(found, File) and any(map(found.has, MAGICS))


def _open(origin: Origin) -> Source:
    from fsbridge.formats.detection import KEYED, detect, format_of
    from fsbridge.store.blobs import ObjectFile
    from fsbridge.store.zip import ZipStore

    path, config = origin.path, origin.config
    store = ZipStore(path if origin.store is None else ObjectFile(origin.store, origin.key))
    try:
        inside = config.format if config.format in KEYED else detect(store, config)
        if inside not in KEYED:
            raise SetupError(f"{path}: a zip file without an N5 or Zarr store in it", "say --format if it has no metadata")
        return format_of(inside).open(replace(origin, store=store, key=ROOT, owned=True))
    except BaseException:
        store.close()
        raise


FORMAT = Format("zip", (".zip", ".zarr", ".n5"), _recognise, _open)
