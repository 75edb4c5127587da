"""What a mount imports, and which processes it starts, before they are needed, so that it outlives its own package.

A package that is upgraded or removed under a mount takes its files away; what is in memory by then stays. This is done
when the mount answers already, and takes a tenth of a second. Loaded are the rest of those packages of fsbridge that the
store and the layouts have needed so far, and the libraries that these import late.

Not here: formats that the store does not have; libraries of extras that decode in child processes; the process that writes
`.h5` and `.nc`, unless they are listed, because it is as large as a mount.
"""

from __future__ import annotations

import contextlib
import logging
import pkgutil
import sys
from importlib import import_module
from types import ModuleType

from fsbridge import codecs, formats, store
from fsbridge.children.starting import starter
from fsbridge.codecs import native
from fsbridge.config import Config
from fsbridge.formats.records import COLLECTION, ICECHUNK

log = logging.getLogger(__name__)

LEFT_OUT = ("child", "worker", "writer", "lmdb", "confined", "audio", "blosc2", "images", "ends")
"""Names of what only child processes import, and of what is there for codecs that decode in them."""

LIBRARIES = ("numpy.ma", "cramjam", "msgpack", "xxhash", "backports.zstd", "pcodec.standalone", "lzallright")
FILES_LIBRARIES = ("csv", "uuid", "tifffile", "nibabel.nifti1", "nibabel.nifti2")
"""Libraries that are imported where they are needed: everywhere, and by the layout `files`."""


def load(config: Config, format: str) -> None:
    """Import what requests may need, and start the processes that children are forked from."""
    native.warm_up()
    for name in LIBRARIES:
        _import(name)
    _complete(codecs)
    _complete(formats, everything=format == COLLECTION.name)  # the stores of a collection are of any format
    if format == COLLECTION.name:
        from fsbridge.formats.hdf5.filters import make_program

        starter(make_program(config.hdf5_plugins)).begin()
    if config.uses_network or format in (ICECHUNK.name, COLLECTION.name):  # chunks may be elsewhere
        _complete(store, everything=True)
    if "files" in config.layout.split(","):
        _load_files(config)
    log.debug("all is loaded that requests may need")


def _load_files(config: Config) -> None:
    from fsbridge import meaning
    from fsbridge.layouts import files

    for name in FILES_LIBRARIES:
        _import(name)
    _complete(meaning)
    _complete(files)
    if not {"h5", "nc"}.isdisjoint(config.files):
        from fsbridge.layouts.files.h5.writing import start_writer

        start_writer()


def _complete(package: ModuleType, everything: bool = False) -> None:
    """Import the modules of a package, and of the packages in it that are imported already; or of all (`everything`)."""
    for entry in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        wanted = everything or not entry.ispkg or entry.name in sys.modules
        if wanted and entry.name.rpartition(".")[2] not in LEFT_OUT:
            _import(entry.name)
            if entry.ispkg:
                _complete(sys.modules[entry.name], everything)


def _import(name: str) -> None:
    """Import a module. What cannot be imported is told by the request that needs it."""
    with contextlib.suppress(ImportError):
        import_module(name)
