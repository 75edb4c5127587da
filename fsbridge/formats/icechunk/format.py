"""How Icechunk repositories are recognised and opened."""

from __future__ import annotations

from fsbridge.errors import PASSING, AccessDenied, FsbridgeError
from fsbridge.formats.format import Directory, File, Format, Origin
from fsbridge.model import Source

MAGIC = b"ICE\xf0\x9f\xa7\x8aCHUNK"


def _recognise(found: Directory | File) -> bool:
    """`repo`, a file of Icechunk's, from version 2 on; in version 1 the branch `main`, which no repository is without."""
    if not isinstance(found, Directory):
        return False
    if not found.has("repo"):
        refs = found.below("refs")
        may_be = refs.has("branch.main", directory=True) or not found.store.listable  # which has no directories
        return may_be and refs.below("branch.main").has("ref.json")
    try:
        return found.store.read_range(found.key / "repo", 0, len(MAGIC))[0] == MAGIC
    except (AccessDenied, *PASSING):
        raise
    except FsbridgeError:
        return False


def _open(origin: Origin) -> Source:
    from fsbridge.formats.icechunk.hierarchy import IcechunkSource

    assert origin.store is not None
    return IcechunkSource(
        origin.store,
        origin.key,
        origin.config,
        lambda store, config: origin.opener("zarr3", "", config, store),
        origin.owned,
    )


FORMAT = Format("icechunk", (), _recognise, _open, on_store=True)
