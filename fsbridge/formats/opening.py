"""Formats: from a store to the model; one module or package per format, and the one function that opens them all.

`open_source` is what the rest of fsbridge uses. Formats are imported when they are needed: a mount of an N5 container never
loads h5py's or LMDB's side. Not here: the order of detection (`detection.py`), what is no store (`strangers.py`).
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from functools import partial

from fsbridge.config import MIB, Config
from fsbridge.errors import FsbridgeError, NotFound, SetupError, Unsupported
from fsbridge.formats.collection import CollectionSource
from fsbridge.formats.detection import FORMATS, KEYED, ON_STORES, detect, detect_file, detect_key, format_of, promised
from fsbridge.formats.format import Origin
from fsbridge.formats.hdmf.dialect import HdmfDialect
from fsbridge.formats.strangers import HINT, check_format, strange_directory, strange_file, unreadable
from fsbridge.model import Source
from fsbridge.store import ROOT, Key, Store
from fsbridge.store.local.store import LocalStore
from fsbridge.store.remote.opening import object_store
from fsbridge.store.remote.urls import Location, is_url, parse_url

NAMES = ("auto", *(form.name for form in FORMATS), "collection")
"""What `--format` takes. On a zip file the keyed formats name what is inside it."""

FILES = ("hdf5", "zip")
"""Formats of single files; any keyed format of a file is one inside a zip file."""


def open_source(path: str, config: Config) -> Source:
    """Open the hierarchy at `path` in the format that `config.format` names, or in the one it is found to have.

    Raises SetupError, saying what is wrong and what helps, when there is nothing at `path` that can be shown; that is also
    what becomes of the format's own error (CorruptData, Unsupported) when the root cannot be opened.
    """
    if config.format not in NAMES:
        raise SetupError(f"unknown format {config.format!r}", f"formats: {', '.join(NAMES)}")
    for folder in config.hdf5_plugins:
        if not os.path.isdir(folder):
            raise SetupError(f"--hdf5-plugins {folder}: no such directory", "name a directory that is there")
    try:
        if is_url(path):
            source = _open_remote(parse_url(path), config)
        else:
            mode = os.stat(path).st_mode
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):  # opening a FIFO would wait for whoever writes to it
                raise SetupError(f"{path}: neither a directory nor a file", HINT)
            source = _open_directory(path, config) if stat.S_ISDIR(mode) else _open_file(path, config)
        try:
            _ = source.root  # a root that cannot be shown is said now, not at the first `ls`
        except BaseException:
            source.close()
            raise
    except SetupError:
        raise
    except OSError as error:
        if error.filename in config.external_folders:
            raise SetupError(
                f"--allow-external {error.filename}: {error.strerror}", "name a directory that is there"
            ) from None
        raise unreadable(path, error, config) from None
    except FsbridgeError as error:
        raise _refused(path, error) from None
    return source


def _refused(path: str, error: FsbridgeError) -> SetupError:
    message = str(error)
    return SetupError(message if message.startswith((path, os.path.abspath(path))) else f"{path}: {message}")


def open_keyed(form: str, store: Store, config: Config, key: Key = ROOT, owned: bool = True) -> Source:
    """The hierarchy of the format `form` at `key` of any kind of store; a file, of a store elsewhere.

    `owned`: the source closes the store.
    """
    origin = Origin(store.describe(key), config, _opener, store, key, owned, HdmfDialect(_opener))
    return format_of(form).open(origin)


def open_path(form: str, path: str, config: Config) -> Source:
    """The file, or the repository of files, of the format `form` at `path`."""
    return format_of(form).open(Origin(path, config, _opener))


def _opener(form: str, path: str, config: Config, store: Store | None = None) -> Source:
    """What formats are handed for the other stores that they are made of or lead to (`format.Opener`)."""
    if store is not None:
        return open_keyed(_inside(path, store, config) if form == "auto" else form, store, config)
    return open_source(path, replace(config, format="auto")) if form == "auto" else open_path(form, path, config)


def _inside(path: str, store: Store, config: Config) -> str:
    """The format of what is in the zip file at `path`, which `store` reads."""
    if config.format in KEYED:
        check_format(config.format, store, path, config)
        return config.format
    form = detect(store, config)
    if form is None or form not in KEYED:
        hint = "unpack an archive in an archive; say --format if it is a store without any metadata"
        raise SetupError(f"{path}: a zip file without an N5 or Zarr store in it", hint)
    return form


def _open_directory(path: str, config: Config) -> Source:
    store = LocalStore(path, config.external_folders, config.allow_other, config.immutable)
    try:
        form = detect(store, config) if config.format == "auto" else config.format
        source = _on_store(form, store, path, config)
        if source is not None:
            return source
    except BaseException:
        store.close()
        raise
    store.close()
    if form is not None and form not in FILES:
        return open_path(form, path, config)
    if form is None:
        raise strange_directory(path, config)
    raise SetupError(f"{path}: a directory, not a file of format {form}", "leave --format away")


def _on_store(form: str | None, store: Store, text: str, config: Config) -> Source | None:
    """What lies on `store`, which it owns then; None for a format whose files are opened by their path, and for none."""
    if form == "collection":
        return CollectionSource(store, config, partial(_open_member, store, text))
    if form not in ON_STORES:
        return None
    if config.format != "auto":
        check_format(form, store, text, config)
    return open_keyed(form, store, config)


def _open_member(store: Store, path: str, form: str, key: Key, config: Config) -> Source:
    """The member at `key` of a collection, whose directory is `store` and lies at `path`; see `collection.OpenMember`."""
    if form in ON_STORES or (store.prefixes and form in FILES):
        return open_keyed(form, store, config, key, owned=False)
    if store.prefixes:
        raise Unsupported(f"{store.describe(key)}: {form} is read from local disks only; copy it")
    return open_path(form, os.path.join(path, key), config)


def _open_remote(location: Location, config: Config) -> Source:
    if config.format in ("auto", "hdf5") and location.path and promised(location.name, False) == "hdf5":
        source = _open_promised(location, config)
        if source is not None:
            return source
    store = object_store(location, config)
    try:
        there = store.begin()
        form = (detect(store, config) if there else None) if config.format == "auto" else config.format
        source = _on_store(form, store, location.text, config)
        if source is not None:
            return source
    except BaseException:
        store.close()
        raise
    store.close()
    if form is not None or (location.path and (not there or location.kind == "http")):
        try:
            return _open_object(location, config)
        except NotFound:
            raise SetupError(f"{location.text}: nothing lies below it, and no object is there", "check the URL") from None
    raise SetupError(f"{location.text}: no store, and none beneath it", "give the URL of the store itself")


def _open_promised(location: Location, config: Config) -> Source | None:
    """The HDF5 file that the name of `location` promises, by one request; None where a directory may have such a name.

    Of which a web server may send a page.
    """
    store, key = object_store(location.parent, config), Key.parse(location.name)
    try:
        head, _ = store.read_range(key, 0, min(store.stat(key, (0, MIB)).size, MIB))  # so many bytes HDF5 wants first
    except NotFound:
        return None
    found = detect_file(lambda start, length: head[start : start + length], len(head))
    return open_keyed("hdf5", store, config, key) if found == "hdf5" else None


def _open_object(location: Location, config: Config) -> Source:
    """The single object at `location`: an HDF5 or a zip file. NotFound when there is no object."""
    store, key = object_store(location.parent, config), Key.parse(location.name)
    found = detect_key(store, key, store.stat(key, (0, MIB)).size)
    if found is None:
        what = "neither a store nor an HDF5 or zip file; Hangar repositories are read from local disks only"
        raise SetupError(f"{location.text}: {what}", "check the URL, or copy the repository and mount the copy")
    return open_keyed(found, store, config, key)


def _open_file(path: str, config: Config) -> Source:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        found = detect_file(lambda start, length: os.pread(file.fileno(), length, start), size)
    form = found if config.format == "auto" else config.format
    if form is None:
        raise strange_file(path, config)
    if form not in FILES and form not in KEYED:
        raise SetupError(f"{path}: a file, not a directory of format {form}", "leave --format away")
    kind = form if form in FILES else "zip"
    if found not in (None, kind):
        raise SetupError(f"{path}: of the format {found}, not {form}", "leave --format away")
    return open_path(kind, path, config)
