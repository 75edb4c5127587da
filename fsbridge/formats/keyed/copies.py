"""Copies of documents in consolidated metadata, used only if the store confirms that a copy equals the document.

Consolidated metadata may be out of date, and modification times do not show it: zarr-python 3 writes the old copies again
if a program changes an array and then an attribute of a root group that was opened earlier. But an object store's listing
has the MD5 and length of each document. The copy is written as JSON text in the way of the library that wrote the
document; if MD5 and length of this text equal those in the listing, the copy is the document (P9). So one listing replaces
one request per array. Without such a listing, or if the text differs, documents are read one by one.

Not here: when a listing is worth its price (`store/remote/listings.py`), stores that list nothing (`named_members.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from fsbridge.errors import FsbridgeError, NotFound
from fsbridge.formats.documents import DocumentReader
from fsbridge.metadata import JSON
from fsbridge.store import ROOT, Key


class Copies:
    """The copies in one hierarchy. They are in the documents called `name`: `zarr.json` or `.zmetadata`."""

    def __init__(self, documents: DocumentReader, name: str) -> None:
        self._documents = documents
        self._name = name

    def adopt(self, key: Key) -> None:
        """Cache the document at `key` without reading it, if the store confirms a copy of it."""
        if not self._documents.vouched_for or self._documents.knows(key):
            return
        places = [above for above in _above(key.parent) if self._may_have(above)]
        if places:
            self._documents.adopt(key, (text for place in places for text in self._texts(place, key)))

    def _may_have(self, directory: Key) -> bool:
        place = directory / self._name
        known = self._documents.known(place)
        if known is None:
            return self._name != "zarr.json" and self._documents.shown(place)
        return self._name != "zarr.json" or known.values.get("consolidated_metadata") is not None

    def _texts(self, directory: Key, key: Key) -> Iterator[bytes]:
        """Yield the copy in `directory` of the document at `key` as JSON text, as zarr-python 3 and 2 write it."""
        place = directory / self._name
        document = self._documents.known(place) or self._documents.read(place)
        found: JSON = None if document is None else document.values
        for step in ("consolidated_metadata", "metadata") if self._name == "zarr.json" else ("metadata",):
            found = found.get(step) if isinstance(found, dict) else None
        path = key[len(directory) + 1 :] if directory else str(key)
        copy = found.get(path.removesuffix("/zarr.json")) if isinstance(found, dict) else None
        if not isinstance(copy, dict):
            return
        yield json.dumps(copy, indent=2).encode()
        if copy.get("consolidated_metadata") is not None:  # an empty one, only in the copy
            yield json.dumps({name: copy[name] for name in copy if name != "consolidated_metadata"}, indent=2).encode()
        if self._name != "zarr.json":
            yield json.dumps(copy, indent=4, sort_keys=True, separators=(",", ": ")).encode()


def contradictions(documents: DocumentReader, name: str, group: Key) -> Iterator[str]:
    """Yield a message for each copy in the group's document `name` that differs from the document itself."""
    whole = documents.read(group / name)
    found: JSON = None if whole is None else whole.values
    for step in ("consolidated_metadata", "metadata") if name == "zarr.json" else ("metadata",):
        found = found.get(step) if isinstance(found, dict) else None
    for path, copy in found.items() if isinstance(found, dict) else ():
        try:
            key = Key.parse(f"{group}/{path}".strip("/"))
            document = documents.read(key / name if name == "zarr.json" else key)
        except NotFound:
            document = None
        except FsbridgeError:  # opening it reports the error
            continue
        if document is None and copy == {}:  # a group without attributes needs no document
            continue
        if document is None:
            yield f"{name} has a copy of {path}, which is not there"
        elif _own(document.values) != _own(copy):
            yield f"{name} has a copy of {path} that is not what is stored there"


_ABSENT: dict[str, JSON] = {"attributes": {}, "storage_transformers": [], "dimension_names": None}
"""Optional members of a document with their default values: some writers spell out the default only in copies."""


def _own(document: JSON) -> JSON:
    """Return a document without the copies in it and without members that have their default value."""
    if not isinstance(document, dict):
        return document
    own = {k: v for k, v in document.items() if k != "consolidated_metadata" and (k not in _ABSENT or v != _ABSENT[k])}
    if own.get("chunk_key_encoding") == {"name": "default", "configuration": {"separator": "/"}}:
        own["chunk_key_encoding"] = {"name": "default"}
    return own


def _above(directory: Key) -> Iterator[Key]:
    """Yield the directories above, beginning with the root; the root yields itself."""
    above = [directory]
    while above[-1]:
        above.append(above[-1].parent)
    yield from reversed(above[1:] or [ROOT])
