"""How Zarr v3 is recognised and opened."""

from __future__ import annotations

from fsbridge.errors import Unsupported
from fsbridge.formats.format import Directory, File, Format, Origin
from fsbridge.formats.keyed.hierarchy import KeyedSource
from fsbridge.formats.keyed.store import KeyedStore
from fsbridge.model import Source


def _recognise(found: Directory | File) -> bool:
    """`zarr.json`. The draft of 2021 names the specification by URL there, and its arrays lie in `meta`: Unsupported."""
    if not isinstance(found, Directory) or not found.has("zarr.json"):
        return False
    values = found.document("zarr.json")
    if values is not None and isinstance(values.get("zarr_format"), str):
        place = found.store.describe(found.key / "zarr.json")
        raise Unsupported(f"{place}: the abandoned Zarr v3 draft of 2021, not Zarr v3")
    return True


def _open(origin: Origin) -> Source:
    from fsbridge.formats.zarr3.hierarchy import Zarr3

    assert origin.store is not None
    hierarchy = Zarr3(KeyedStore(origin.store, origin.config), origin.dialect)
    return KeyedSource("zarr3", hierarchy, origin.key, origin.owned)


FORMAT = Format("zarr3", (), _recognise, _open, keyed=True)  # a broken `.zarr` is taken for Zarr v2
