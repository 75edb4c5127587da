"""How Zarr v2 is recognised and opened."""

from __future__ import annotations

from fsbridge.formats.format import Directory, File, Format, Origin
from fsbridge.formats.keyed.hierarchy import KeyedSource
from fsbridge.formats.keyed.store import KeyedStore
from fsbridge.model import Source

DOCUMENTS = (".zarray", ".zgroup", ".zmetadata")


def _recognise(found: Directory | File) -> bool:
    return isinstance(found, Directory) and any(found.has(name) for name in DOCUMENTS)


def _open(origin: Origin) -> Source:
    from fsbridge.formats.zarr2.hierarchy import Zarr2

    assert origin.store is not None
    hierarchy = Zarr2(KeyedStore(origin.store, origin.config), origin.dialect)
    return KeyedSource("zarr2", hierarchy, origin.key, origin.owned)


FORMAT = Format("zarr2", (".zarr",), _recognise, _open, keyed=True)
