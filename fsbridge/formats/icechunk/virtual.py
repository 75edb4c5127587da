"""Virtual chunks: bytes in objects beside the repository, in directories and below URLs that the user allows (P4).

A reference may tell of which version its object was, by an ETag or the time of its last change: then bytes of another one
are an error, as in icechunk. What a repository says of servers and credentials is not used. Not here: who refers to them.
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
from fsbridge.store.remote.opening import object_store
from fsbridge.store.remote.urls import Location, is_url, parse_url

FILE, CONTAINER = "file://", "vcc://"


_Place: TypeAlias = tuple[str, Callable[[], Store], Key]
"""The name of a store, what opens it, and the key of an object in it."""


class VirtualObjects:
    """The objects in what `config.allow_external` names. Thread-safe."""

    def __init__(self, config: Config, containers: Callable[[], Mapping[str, str]]) -> None:
        """`containers`: URLs by the names that locations may begin with instead."""
        self._config = config
        self._containers = containers
        self._locations = [parse_url(url) for url in config.external_urls]
        self._lock = threading.Lock()
        self._stores: dict[str, Store] = {}

    def close(self) -> None:
        """Let go of the directories, and of what is known of servers."""
        with self._lock:
            while self._stores:
                self._stores.popitem()[1].close()

    def stat(self, chunk: Virtual) -> Stat:
        """The object as it is now; CorruptData when it is missing, or not the one that was referred to."""
        try:
            store, key = self._find(chunk.location)
            return _checked(chunk, store, store.stat(key, (chunk.start, chunk.length)))
        except NotFound as error:
            raise CorruptData(f"{error}, where a virtual chunk should be") from None

    def read(self, chunk: Virtual, first: int, length: int) -> tuple[bytes, Stat]:
        """`length` bytes of the chunk from its byte `first` on, and the object's stat as they were read.

        Errors as of `stat`, CorruptData when the object is too short.
        """
        try:
            store, key = self._find(chunk.location)
            data, stat = store.read_range(key, chunk.start + first, length)
        except NotFound as error:
            raise CorruptData(f"{error}, where a virtual chunk should be") from None
        return data, _checked(chunk, store, stat)

    def fetch(self, chunk: Virtual, first: int, length: int) -> None:
        """These bytes of the chunk will be wanted soon. Does not block: a web server is asked when it is read."""
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
                return folder, partial(LocalStore, folder, owners=self._config.allow_other), Key.parse(inside)
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
        """Servers and regions that were named for the repository are those of its own kind of store."""
        source = parse_url(self._config.source) if self._config.is_remote else location
        remote = self._config.remote
        remote = remote if source.kind == location.kind else replace(remote, endpoint="", region="")
        try:
            store = object_store(location, replace(self._config, remote=remote))
            if location.kind == "http":  # a server that has a page for every name has it for chunks that are gone
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
    """The key that `place` has in the store at `allowed`; None when it is not below it."""
    if (allowed.kind, allowed.root) != (place.kind, place.root) or place.account not in ("", allowed.account):
        return None
    above = f"{allowed.path}/" if allowed.path else ""
    if not place.path.startswith(above) or place.path == above:
        return None
    return urllib.parse.unquote(place.path[len(above) :])  # icechunk takes all locations for URLs
