"""How N5 is recognised and opened."""

from __future__ import annotations

from fsbridge.formats.format import Directory, File, Format, Origin
from fsbridge.formats.keyed.hierarchy import KeyedSource
from fsbridge.formats.keyed.store import KeyedStore
from fsbridge.model import Source


def _recognise(found: Directory | File) -> bool:
    """`attributes.json` with `n5` or `dimensions`."""
    values = found.document("attributes.json") if isinstance(found, Directory) else None
    return values is not None and ("n5" in values or "dimensions" in values)


def _open(origin: Origin) -> Source:
    from fsbridge.formats.n5.hierarchy import N5

    assert origin.store is not None
    return KeyedSource("n5", N5(KeyedStore(origin.store, origin.config)), origin.key, origin.owned)


FORMAT = Format("n5", (".n5",), _recognise, _open, keyed=True)
