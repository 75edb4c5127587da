"""Copies of documents in consolidated metadata, each believed only where the store vouches that it is the document itself.

Consolidated metadata may be out of date, and no time tells that: a program that changes an array and then an attribute of
the root through a group that was opened before (as zarr-python 3 does) stores the old copies again. But an object store's
listing shows the MD5 of each document, and copies are values of JSON that were spelled as the document is by the library
that wrote both: where the spelling's MD5 and length are those of the listing, the copy is the document (P9). So one listing
stands for as many requests as there are arrays; without such a listing, or with any other spelling, documents are read one
by one.

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
    """The copies in one hierarchy, all of them below the documents called `name`."""

    def __init__(self, documents: DocumentReader, name: str) -> None:
        self._documents = documents
        self._name = name

    def adopt(self, key: Key) -> None:
        """Have the document at `key` known without a request, if there is a copy of it that may be believed."""
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
        """The document at `key` as zarr-python 3 and zarr-python 2 spell the copy in `directory`."""
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
        if copy.get("consolidated_metadata") is not None:  # a group's copy tells of its own, which are none
            yield json.dumps({name: copy[name] for name in copy if name != "consolidated_metadata"}, indent=2).encode()
        if self._name != "zarr.json":
            yield json.dumps(copy, indent=4, sort_keys=True, separators=(",", ": ")).encode()


def contradictions(documents: DocumentReader, name: str, group: Key) -> Iterator[str]:
    """Describe the documents below a group that are not as the copies in its document `name` say."""
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
        except FsbridgeError:  # opening it tells the error
            continue
        if document is None and copy == {}:  # attributes of a group that has none, which need no document
            continue
        if document is None:
            yield f"{name} has a copy of {path}, which is not there"
        elif _own(document.values) != _own(copy):
            yield f"{name} has a copy of {path} that is not what is stored there"


_ABSENT: dict[str, JSON] = {"attributes": {}, "storage_transformers": [], "dimension_names": None}
"""Members of a document that may be left out, and the value that this means: some writers spell it only in copies."""


def _own(document: JSON) -> JSON:
    """Return a document without the copies in it, and without members that say no more than their absence."""
    if not isinstance(document, dict):
        return document
    own = {k: v for k, v in document.items() if k != "consolidated_metadata" and (k not in _ABSENT or v != _ABSENT[k])}
    if own.get("chunk_key_encoding") == {"name": "default", "configuration": {"separator": "/"}}:
        own["chunk_key_encoding"] = {"name": "default"}
    return own


def _above(directory: Key) -> Iterator[Key]:
    """The directories above, from the root on."""
    above = [directory]
    while above[-1]:
        above.append(above[-1].parent)
    yield from reversed(above[1:] or [ROOT])
