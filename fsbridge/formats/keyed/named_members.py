"""Members of groups in stores that cannot list (web servers), as far as metadata name them.

Consolidated metadata (Zarr v2 and v3) and OME-Zarr's `multiscales` name members. Any other member is only found if its
name is asked for. Not here: chunks
(`unlisted.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fsbridge.formats.documents import DocumentReader
from fsbridge.metadata import JSON
from fsbridge.store import ROOT, Key


def named_members(
    documents: DocumentReader, consolidated: Sequence[str], key: Key, attributes: Mapping[str, JSON]
) -> list[str] | None:
    """Return the names of members of the group at `key` that metadata name, or None if there is no such metadata.

    `consolidated`: names of the documents that may hold consolidated metadata; `attributes`: the group's.
    """
    names = _multiscales(attributes)
    told = bool(names)
    above = key
    while True:
        for path in _consolidated(documents, consolidated, above):
            told = True
            full = f"{above}/{path}".strip("/")
            if full.startswith(f"{key}/" if key else ""):
                names.add(full[len(key) + 1 if key else 0 :].partition("/")[0])
        if above == ROOT:
            return sorted(name for name in names if name) if told else None
        above = above.parent


def _consolidated(documents: DocumentReader, names: Sequence[str], key: Key) -> Iterator[str]:
    """Yield the paths, relative to `key`, of groups and arrays in the consolidated metadata at `key`."""
    for name in names:
        document = documents.read(key / name)
        found: JSON = None if document is None else document.values
        for step in ("consolidated_metadata", "metadata") if name == "zarr.json" else ("metadata",):
            found = found.get(step) if isinstance(found, dict) else None
        for path in found if isinstance(found, dict) else ():
            if isinstance(path, str):
                yield path if name == "zarr.json" else path.rpartition("/")[0]


def _multiscales(attributes: Mapping[str, JSON]) -> set[str]:
    """Return the members that OME-Zarr attributes name: the arrays of an image's resolutions."""
    ome = attributes.get("ome")
    scales = (ome if isinstance(ome, dict) else attributes).get("multiscales")
    found: set[str] = set()
    for scale in scales if isinstance(scales, list) else ():
        datasets = scale.get("datasets") if isinstance(scale, dict) else None
        for dataset in datasets if isinstance(datasets, list) else ():
            path = dataset.get("path") if isinstance(dataset, dict) else None
            if isinstance(path, str):
                found.add(path.strip("/").partition("/")[0])
    return found
