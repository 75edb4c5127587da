"""Opens a path or URL as a model source, in the detected format or in the one that the user names.

The rest of fsbridge uses `open_source`. Not here: the formats (`registry.py`), detection, and the errors for what is no
store (`detect.py`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from fsbridge.config import MIB, Config
from fsbridge.errors import FsbridgeError, NotFound, SetupError, Unsupported, perhaps
from fsbridge.formats.collection import OPEN_MEMBERS, CollectionSource
from fsbridge.formats.detect import (
    FIRST_LOOK,
    HINT,
    are_references,
    check_format,
    detect,
    detect_file,
    detect_key,
    promised,
    strange_directory,
    strange_file,
    unreadable,
)
from fsbridge.formats.format import HierarchyPlace
from fsbridge.formats.hdmf import HdmfDialect
from fsbridge.formats.records import COLLECTION, HDF5, NAMES, ZIP
from fsbridge.formats.registry import FORMATS, REFERENCES, REFERENCES_HELP
from fsbridge.formats.selected import check_selection, select
from fsbridge.formats.shared import Shared
from fsbridge.metadata import Format
from fsbridge.model import Source
from fsbridge.store import ROOT, Key, Store
from fsbridge.store.local import LocalStore
from fsbridge.store.local.files import root_check
from fsbridge.store.remote.urls import Location, is_url, parse_url

FIRST_BYTES = MIB
"""Bytes of an object that are requested together with its size, because HDF5 reads so many first."""


def is_directory(path: str) -> bool:
    """True for a directory, False for a file. Raises SetupError for anything else, OSError if nothing is there."""
    mode = os.stat(path).st_mode
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):  # opening a FIFO would wait for a writer
        raise SetupError(f"{path}: it is neither a directory nor a file", HINT)
    return stat.S_ISDIR(mode)


def local_store(path: str, config: Config) -> Store:
    """Return the store of a local directory."""
    check_root = root_check(path, config)
    return LocalStore(path, config.external_folders, config.for_everybody, config.immutable, check_root=check_root)


FolderStore: TypeAlias = Callable[[str, Config], Store]
"""Returns the store of a local directory, as `local_store` does."""


def remote_object(location: Location, config: Config) -> tuple[Store, Key, int]:
    """Return store, key and size of the object at `location`. Raises NotFound if there is none."""
    from fsbridge.store.remote.store import object_store

    store, key = object_store(location.parent, config), Key.parse(location.name)
    return store, key, store.stat(key, (0, FIRST_BYTES)).size


def open_source(path: str, config: Config) -> Source:
    """Open the hierarchy at `path` in the format `config.format`, or in the detected one.

    Raises SetupError, which says what is wrong and what helps, if nothing at `path` can be shown. If the root cannot be
    opened, errors of the format (CorruptData, Unsupported) also become SetupErrors.
    """
    return Opening().source(path, config)


def _make_refusal(path: str, error: FsbridgeError) -> SetupError:
    message = str(error)
    return SetupError(message if message.startswith((path, os.path.abspath(path))) else f"{path}: {message}")


def _find_asked_format(config: Config) -> Format | None:
    """Return the format that the user names, or None for `auto`."""
    if config.format == "auto":
        return None
    return COLLECTION if config.format == COLLECTION.name else FORMATS[config.format].format


def _inside(path: str, store: Store, config: Config) -> Format:
    """Return the format of the zip file's contents. `path`: of the zip file, which `store` reads."""
    asked = _find_asked_format(config)
    if asked is not None and asked.access == "keys":
        check_format(asked, store, path, config)
        return asked
    form = detect(store, config)
    if form is None or form.access != "keys":
        hint = "unpack an archive that is inside the archive, or use --format if the store has no metadata"
        raise SetupError(f"{path}: the zip file has no N5 or Zarr store in it", hint)
    return form


class Opening:
    """Opens the sources of one mount. They share what `Shared` holds."""

    def __init__(
        self, shared: Shared | None = None, folder_store: FolderStore = local_store, open_members: int = OPEN_MEMBERS
    ) -> None:
        """`open_members`: how many unused members of a collection stay open."""
        self._shared = shared or Shared()
        self._folder_store = folder_store
        self._open_members = open_members

    def source(self, path: str, config: Config) -> Source:
        """Open the hierarchy at `path`, as `open_source` says."""
        if config.format not in NAMES:
            raise SetupError(f"unknown format {config.format!r}", perhaps(config.format, "formats", NAMES))
        for folder in config.hdf5_plugins:
            if not os.path.isdir(folder):
                raise SetupError(f"--hdf5-plugins {folder}: no such directory", "name a directory that exists")
        try:
            if is_url(path):
                source = self._remote(parse_url(path), config)
            else:
                source = self._directory(path, config) if is_directory(path) else self._file(path, config)
            try:
                source = select(source, config)
                check_selection(source, config)  # reports a root that cannot be shown now, not at the first `ls`
            except BaseException:
                source.close()
                raise
        except SetupError:
            raise
        except NotFound as error:
            if not config.inside:
                raise _make_refusal(path, error) from None
            raise SetupError(
                f"{config.place}: nothing is there: {error}", f"look for it with: fsbridge info {path}"
            ) from None
        except OSError as error:
            if error.filename in config.external_folders:
                raise SetupError(
                    f"--allow-external {error.filename}: {error.strerror}", "name a directory that exists"
                ) from None
            raise unreadable(path, error, config) from None
        except FsbridgeError as error:
            raise _make_refusal(path, error) from None
        return source

    def open_in_store(self, form: str, store: Store, config: Config, key: Key = ROOT, owned: bool = True) -> Source:
        """Open the hierarchy of the format `form` at `key` of a store.

        A format of single files (HDF5) is opened here only in object storage. `open_path` opens a local file.

        `owned`: closing the source closes the store.
        """
        dialect = HdmfDialect(self.other)
        place = HierarchyPlace(store.describe(key), config, self.other, store, key, owned, dialect, self._shared)
        return FORMATS[form].open(place)

    def open_path(self, form: str, path: str, config: Config) -> Source:
        """Open a local file, or a local repository of files, of the format `form`."""
        return FORMATS[form].open(HierarchyPlace(path, config, self.other, shared=self._shared))

    def other(self, form: str, path: str, config: Config, store: Store | None = None) -> Source:
        """Open another store, for a format that links to it or consists of such stores (`format.Opener`)."""
        if store is not None:
            return self.open_in_store(_inside(path, store, config).name if form == "auto" else form, store, config)
        if form == "auto":
            return self.source(path, replace(config, format="auto", inside=(), include=(), exclude=()))
        return self.open_path(form, path, config)

    def _directory(self, path: str, config: Config) -> Source:
        store = self._folder_store(path, config)
        try:
            form = _find_asked_format(config) or detect(store, config)
            source = self._on_store(form, store, path, config)
            if source is not None:
                return source
        except BaseException:
            store.close()
            raise
        store.close()
        if form is None:
            raise strange_directory(path, config)
        if form.kind == "file":
            raise SetupError(f"{path}: it is a directory, not a file of the format {form.name}", "leave out --format")
        return self.open_path(form.name, path, config)

    def _on_store(self, form: Format | None, store: Store, text: str, config: Config) -> Source | None:
        """Open a source on `store` that owns the store. Returns None without a format, or for a format that reads paths."""
        if form == COLLECTION:
            open_member = partial(self._member, store, text)
            return CollectionSource(store, config, open_member, self._shared, self._open_members)
        if form is None or form.access == "path":
            return None
        if config.format != "auto":
            check_format(form, store, text, config)
        return self.open_in_store(form.name, store, config)

    def _member(self, store: Store, path: str, form: Format, key: Key, config: Config) -> Source:
        """Open the member at `key` of the collection in `store`, which is the directory `path` (`collection.OpenMember`)."""
        if form.access != "path" or (store.has_no_directories and form.remote):
            return self.open_in_store(form.name, store, config, key, owned=False)
        if store.has_no_directories:
            raise Unsupported(f"{store.describe(key)}: {form.name} can be read from local disks only; copy it to one")
        return self.open_path(form.name, os.path.join(path, key), config)

    def _remote(self, location: Location, config: Config) -> Source:
        asked = _find_asked_format(config)
        if asked in (None, HDF5) and location.path and promised(location.name, False) == HDF5:
            source = self._open_promised(location, config)
            if source is not None:
                return source
        from fsbridge.store.remote.store import object_store

        store = object_store(location, config)
        try:
            there = store.begin()
            form = asked or (detect(store, config) if there else None)
            source = self._on_store(form, store, location.text, config)
            if source is not None:
                return source
        except BaseException:
            store.close()
            raise
        store.close()
        if form is not None or (location.path and (not there or location.kind == "http")):
            try:
                return self._object(location, config)
            except NotFound:
                raise SetupError(
                    f"{location.text}: there is no such object, and nothing below it", "check the URL"
                ) from None
        raise SetupError(f"{location.text}: it is no store, and none is below it", "give the URL of the store itself")

    def _open_promised(self, location: Location, config: Config) -> Source | None:
        """Open `location`, which is named like an HDF5 file, by one request. Returns None if it is no HDF5 file.

        A directory may have such a name, or a web server may send a page instead.
        """
        try:
            store, key, size = remote_object(location, config)
            head, _ = store.read_range(key, 0, min(size, FIRST_BYTES))
        except NotFound:
            return None
        form = detect_file(lambda start, length: head[start : start + length], len(head))
        return self.open_in_store(HDF5.name, store, config, key) if form == HDF5 else None

    def _object(self, location: Location, config: Config) -> Source:
        """Open the object at `location`, an HDF5 or zip file. Raises NotFound if there is no object."""
        store, key, size = remote_object(location, config)
        form = detect_key(store, key, size)
        if form is None:
            if are_references(store.read_range(key, 0, min(size, FIRST_LOOK))[0]):
                raise SetupError(f"{location.text}: {REFERENCES}", REFERENCES_HELP)
            what = "neither a store nor an HDF5 or zip file; Hangar repositories can be read from local disks only"
            raise SetupError(
                f"{location.text}: {what}", "check the URL; for a Hangar repository, copy it and mount the copy"
            )
        return self.open_in_store(form.name, store, config, key)

    def _file(self, path: str, config: Config) -> Source:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            detected = detect_file(lambda start, length: os.pread(file.fileno(), length, start), size)
        form = _find_asked_format(config) or detected
        if form is None:
            raise strange_file(path, config)
        kind = ZIP if form.access == "keys" else form  # a keyed format names the contents of a zip file
        if kind.kind != "file":
            raise SetupError(f"{path}: it is a file, not a directory of the format {form.name}", "leave out --format")
        if detected not in (None, kind):
            raise SetupError(f"{path}: the format is {detected.name}, not {form.name}", "leave out --format")
        return self.open_path(kind.name, path, config)
