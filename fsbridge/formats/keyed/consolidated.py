"""Consolidated metadata (Zarr v2 and v3): copies of documents, and the names of members.

A copy is used only if the store confirms that it equals the document.

Consolidated metadata may be out of date, and modification times do not show it: zarr-python 3 writes the old copies again
if a program changes an array and then an attribute of a root group that was opened earlier. But an object store's listing
has the MD5 and length of each document. The copy is written as JSON text in the way of the library that wrote the
document; if MD5 and length of this text equal those in the listing, the copy is the document (P9). So one listing replaces
one request per array. Without such a listing, or if the text differs, documents are read one by one.

In stores that cannot list (web servers), the members of a group are those that consolidated metadata or OME-Zarr's
`multiscales` name. Any other member is only found if its name is asked for.

Not here: when a listing is worth its price (`store/remote/listings.py`), chunks in stores that cannot list
(`chunkkeys.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from fsbridge.errors import FsbridgeError, NotFound, anew, is_lasting
from fsbridge.formats.documents import Document, DocumentReader
from fsbridge.meaning.conventions.ome import names_of_members
from fsbridge.metadata import JSON
from fsbridge.store import ROOT, Key, Store


class Copies:
    """The copies of documents in one hierarchy. They lie in documents called `name`: `zarr.json` or `.zmetadata`."""

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
            return self._name != "zarr.json" and self._documents.shows(place)
        return self._name != "zarr.json" or known.values.get("consolidated_metadata") is not None

    def _texts(self, directory: Key, key: Key) -> Iterator[bytes]:
        """Yield the copy in `directory` of the document at `key` as JSON text, as zarr-python 3 and 2 write it."""
        place = directory / self._name
        document = self._documents.known(place) or self._documents.attempt(place)
        try:
            copies = _copies(document, self._name) or {}
        except FsbridgeError:  # then there are none to use
            return
        path = key[len(directory) + 1 :] if directory else str(key)
        copy = copies.get(path.removesuffix("/zarr.json"))
        if not isinstance(copy, dict):
            return
        yield json.dumps(copy, indent=2).encode()
        if copy.get("consolidated_metadata") is not None:  # an empty one, only in the copy
            yield json.dumps({name: copy[name] for name in copy if name != "consolidated_metadata"}, indent=2).encode()
        if self._name != "zarr.json":
            yield json.dumps(copy, indent=4, sort_keys=True, separators=(",", ": ")).encode()


def _copies(document: Document | None, name: str) -> Mapping[str, JSON] | None:
    """Return the copies in a document called `name`, by path; None if documents of this kind have none.

    Raises CorruptData if something else is in their place, or the document's damage.
    """
    if document is None or (name == "zarr.json" and document.values.get("consolidated_metadata") is None):
        return None
    if name != "zarr.json":
        return document.fields.mapping("metadata")
    inline = document.fields.fields("consolidated_metadata")
    inline.choice("kind", ("inline",))
    return inline.mapping("metadata")


def copied_members(documents: DocumentReader, name: str, group: Key) -> int:
    """Return how many groups and arrays have copies in the group's document `name`; 0 if it cannot be read."""
    try:
        copies = _copies(documents.attempt(group / name), name) or {}
    except FsbridgeError as error:
        if not is_lasting(error):
            raise
        return 0
    return len(copies) if name == "zarr.json" else sum(path.endswith(("/.zarray", "/.zgroup")) for path in copies)


def contradictions(documents: DocumentReader, store: Store, name: str, group: Key) -> Iterator[str]:
    """Yield a message for each copy in the group's document `name` that is missing, or differs from its original.

    Raises the errors of `_copies`. Documents that cannot be read are not mentioned, because opening their node reports the
    error.
    """
    listed = _copies(documents.read(group / name), name)
    if listed is None:
        return
    if name == "zarr.json":
        copies, kinds, attributes = {f"{path}/{name}": copy for path, copy in listed.items()}, [name], list[str]()
    else:
        copies, kinds, attributes = dict(listed), [".zgroup", ".zarray"], [".zattrs"]
    nodes = {"", *(path.rpartition("/")[0] for path in copies if path.rpartition("/")[2] in kinds)}
    for path, copy in copies.items():
        document = _readable(documents, group, path)
        directory, _, kind = path.rpartition("/")
        if document is None and copy == {} and kind in attributes and directory in nodes:  # no attributes need no document
            continue
        if document is None:
            yield f"{name} has a copy of {path}, which does not exist"
        elif document.damage is None and _own(document.values) != _own(copy):
            yield f"{name} has a copy of {path} that is not what is stored there"
    for path in _members(store, group, copies):
        for place in (f"{path}/{kind}" for kind in (attributes if path in nodes else kinds)):
            document = None if place in copies else _readable(documents, group, place)
            if document is not None and document.damage is None and document.values:
                yield f"{name} has no copy of {place}"


def _readable(documents: DocumentReader, group: Key, path: str) -> Document | None:
    """Return the document at a path below a group, perhaps with its damage; None if there is none."""
    try:
        return documents.attempt(Key.parse(f"{group}/{path}".strip("/")))
    except NotFound:
        return None


def _members(store: Store, group: Key, copies: Mapping[str, JSON]) -> Iterator[str]:
    """Yield the paths of all directories in a group, and in each group below it that has a copy."""
    below = (path.rpartition("/")[0] for path, copy in copies.items() if path.endswith("/.zgroup") or _is_group(copy))
    for above in ["", *below] if store.listable else ():
        try:
            for entry in store.list(Key.parse(f"{group}/{above}".strip("/"))):
                if entry.is_dir:
                    yield f"{above}/{entry.name}".lstrip("/")
        except FsbridgeError as error:  # opening the group reports it
            if not is_lasting(error):
                raise


def _is_group(copy: JSON) -> bool:
    return isinstance(copy, dict) and copy.get("node_type") == "group"


_ABSENT: dict[str, JSON] = {"attributes": {}, "storage_transformers": [], "dimension_names": None}
"""Optional members of a document with their default values: some writers spell out the default only in copies."""


def _own(document: JSON) -> JSON:
    """Return a document without the copies in it, and without members that have their default value."""
    if not isinstance(document, dict):
        return document
    own = {k: v for k, v in document.items() if k not in _ABSENT or v != _ABSENT[k]}
    if _holds_copies(own.get("consolidated_metadata")):
        own.pop("consolidated_metadata", None)
    if own.get("chunk_key_encoding") == {"name": "default", "configuration": {"separator": "/"}}:
        own["chunk_key_encoding"] = {"name": "default"}
    return own


def _holds_copies(inline: JSON) -> bool:
    """True for a `consolidated_metadata` of Zarr v3, which may also be null."""
    return inline is None or (
        isinstance(inline, dict) and inline.get("kind") == "inline" and isinstance(inline.get("metadata"), dict)
    )


def _above(directory: Key) -> Iterator[Key]:
    """Yield the directories above, beginning with the root; the root yields itself."""
    above = [directory]
    while above[-1]:
        above.append(above[-1].parent)
    yield from reversed(above[1:] or [ROOT])


def named_members(
    documents: DocumentReader, consolidated: Sequence[str], key: Key, attributes: Mapping[str, JSON]
) -> list[str] | None:
    """Return the group's members as consolidated metadata and OME-Zarr attributes name them; None if there is neither.

    A document that cannot be read names none. Its error is raised if no other document names any.

    `key`: where the group is; `consolidated`: names of the documents that may hold consolidated metadata, there or in any
    directory above; `attributes`: the group's.
    """
    names = names_of_members(attributes)
    listed = bool(names)
    damage: Exception | None = None
    above = key
    while True:
        for document, name in ((documents.attempt(above / name), name) for name in consolidated):
            try:
                copies = _copies(document, name)
            except FsbridgeError as error:
                damage = error
                continue
            for path in copies or ():
                listed = True
                full = f"{above}/{path if name == 'zarr.json' else path.rpartition('/')[0]}".strip("/")
                if full.startswith(f"{key}/" if key else ""):
                    names.add(full[len(key) + 1 if key else 0 :].partition("/")[0])
        if above == ROOT:
            if damage is not None and not listed:
                raise anew(damage)
            return sorted(name for name in names if name) if listed else None
        above = above.parent
