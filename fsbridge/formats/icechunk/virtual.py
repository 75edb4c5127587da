"""Virtual chunks: bytes in objects beside the repository, in directories and below URLs that the user allows (P4).

A reference may name the version of its object, by an ETag or the time of its last change. Then bytes of another version
are an error, as in icechunk. What a repository says about servers and credentials is not used. Not here: the references.
"""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from fsbridge.config import Config
from fsbridge.errors import AccessDenied, CorruptData, NotFound, SetupError, Unsupported
from fsbridge.formats.icechunk.manifests import Virtual
from fsbridge.store import Key, Stat, Store
from fsbridge.store.local.store import LocalStore
from fsbridge.store.remote.answers import is_version
from fsbridge.store.remote.urls import Location, is_url, parse_url

FILE, CONTAINER = "file://", "vcc://"


_Place: TypeAlias = tuple[str, Callable[[], Store], Key]
"""The name of a store, what opens it, and the key of an object in it."""


class VirtualObjects:
    """The objects below what `config.allow_external` names. Thread-safe."""

    def __init__(self, config: Config, containers: Callable[[], Mapping[str, str]]) -> None:
        """`containers` returns URL prefixes by the names that may stand for them in locations."""
        self._config = config
        self._containers = containers
        self._locations = [parse_url(url) for url in config.external_urls]
        self._lock = threading.Lock()
        self._stores: dict[str, Store] = {}

    def close(self) -> None:
        """Close the directories and the connections to servers."""
        with self._lock:
            while self._stores:
                self._stores.popitem()[1].close()

    def stat(self, chunk: Virtual) -> Stat:
        """Return the object as it is now. Raises CorruptData if it is missing, or not the version that was referred to."""
        try:
            store, key = self._find(chunk.location)
            return _checked(chunk, store, store.stat(key, (chunk.start, chunk.length)))
        except NotFound as error:
            raise CorruptData(f"{error}, where a virtual chunk should be") from None

    def read(self, chunk: Virtual, first: int, length: int) -> tuple[bytes, Stat]:
        """Return `length` bytes of the chunk from its byte `first`, and the object's stat.

        Raises what `stat` does, and CorruptData if the object is too short.
        """
        try:
            store, key = self._find(chunk.location)
            data, stat = store.read_range(key, chunk.start + first, length)
        except NotFound as error:
            raise CorruptData(f"{error}, where a virtual chunk should be") from None
        return data, _checked(chunk, store, stat)

    def fetch(self, chunk: Virtual, first: int, length: int) -> None:
        """Prefetch these bytes of the chunk.

        Does not block, so nothing is prefetched from a web server that was never asked.
        """
        name, make, key = self._place(chunk.location)
        if name in self._stores or (is_url(name) and not name.startswith("http")):
            self._opened(name, make).fetch(key, (chunk.start + first, length))

    def _find(self, location: str) -> tuple[Store, Key]:
        name, make, key = self._place(location)
        return self._opened(name, make), key

    def _place(self, location: str) -> _Place:
        if location.startswith(CONTAINER):
            name, _, path = location[len(CONTAINER) :].partition("/")
            url = self._containers().get(name)
            if url is None:
                raise CorruptData(f"a virtual chunk in the container {name!r}, of which the repository says nothing")
            location = f"{url.rstrip('/')}/{path}"
        return self._file(location) if location.lower().startswith(FILE) else self._object(location)

    def _file(self, location: str) -> _Place:
        path = urllib.parse.unquote("/" + location[len(FILE) :].partition("/")[2])
        for folder in self._config.external_folders:
            inside = path.removeprefix(folder.rstrip("/") + "/")
            if inside != path:
                return folder, partial(LocalStore, folder, everybody=self._config.for_everybody), Key.parse(inside)
        raise _refused(path, path.rpartition("/")[0])

    def _object(self, location: str) -> _Place:
        try:
            place = parse_url(location)
        except SetupError as error:
            raise Unsupported(f"a virtual chunk that cannot be looked for: {error}") from None
        for allowed in self._locations:
            inside = _inside(allowed, place)
            if inside is not None:
                return allowed.text, partial(self._reached, allowed), Key.parse(inside)
        raise _refused(place.text, place.parent.text)

    def _opened(self, name: str, make: Callable[[], Store]) -> Store:
        with self._lock:
            known = self._stores.get(name)
        if known is not None:
            return known
        made = make()
        with self._lock:
            found = self._stores.setdefault(name, made)
        if found is not made:
            made.close()
        return found

    def _reached(self, location: Location) -> Store:
        """Open the store at `location`. The options for endpoint and region apply only to the repository's kind of store."""
        source = parse_url(self._config.source) if self._config.is_remote else location
        remote = self._config.remote
        remote = remote if source.kind == location.kind else replace(remote, endpoint="", region="")
        from fsbridge.store.remote.store import object_store

        try:
            store = object_store(location, replace(self._config, remote=remote))
            if location.kind == "http":  # a server that has a page for every name also has it for missing chunks
                store.begin()
        except SetupError as error:
            raise Unsupported(str(error)) from None
        return store


def _refused(place: str, folder: str) -> AccessDenied:
    return AccessDenied(f"a virtual chunk lies in {place}; to read it, mount with --allow-external {folder}")


def _checked(chunk: Virtual, store: Store, stat: Stat) -> Stat:
    if chunk.etag is not None:
        if not store.prefixes:
            raise Unsupported(f"a virtual chunk in {chunk.location} is checked by an ETag, which files have not")
        if not is_version(stat, chunk.etag):
            raise CorruptData(f"{chunk.location} is not the version that the repository refers to")
    if chunk.modified and stat.mtime_ns // 10**9 > chunk.modified:
        raise CorruptData(f"{chunk.location} was changed after the repository had referred to a chunk in it")
    return stat


def _inside(allowed: Location, place: Location) -> str | None:
    """Return the key of `place` in the store at `allowed`, or None if it is not below it."""
    if (allowed.kind, allowed.root) != (place.kind, place.root) or place.account not in ("", allowed.account):
        return None
    above = f"{allowed.path}/" if allowed.path else ""
    if not place.path.startswith(above) or place.path == above:
        return None
    return urllib.parse.unquote(place.path[len(above) :])  # icechunk takes all locations for URLs
