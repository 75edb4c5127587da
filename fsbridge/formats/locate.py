"""Where SOURCE is: a local directory or file, or keys of object storage. Not here: detecting its format."""

from __future__ import annotations

import os
import stat

from fsbridge.config import MIB, Config
from fsbridge.errors import SetupError
from fsbridge.formats.not_a_store import HINT
from fsbridge.store import Key, Store
from fsbridge.store.local.store import LocalStore
from fsbridge.store.remembered import Remembered
from fsbridge.store.remote.urls import Location

FIRST_BYTES = MIB
"""Bytes of an object that are requested together with its size, because HDF5 reads so many first."""


def is_directory(path: str) -> bool:
    """True for a directory, False for a file. Raises SetupError for anything else, OSError if nothing is there."""
    mode = os.stat(path).st_mode
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):  # opening a FIFO would wait for a writer
        raise SetupError(f"{path}: neither a directory nor a file", HINT)
    return stat.S_ISDIR(mode)


def local_store(path: str, config: Config) -> Store:
    """Return the store of a local directory."""
    return Remembered(LocalStore(path, config.external_folders, config.for_everybody, config.immutable))


def remote_object(location: Location, config: Config) -> tuple[Store, Key, int]:
    """Return store, key and size of the object at `location`. Raises NotFound if there is none."""
    from fsbridge.store.remote.store import object_store

    store, key = object_store(location.parent, config), Key.parse(location.name)
    return store, key, store.stat(key, (0, FIRST_BYTES)).size
