"""What HDF5's child process runs: which filter plug-ins it may load, and what it has to read for that. Not here: the child.

Plug-ins are code, so they come from the `hdf5plugin` package, where the user installed it, and from folders that the user
named; from nowhere else, whatever HDF5's own environment variables say.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from importlib import util

from fsbridge.children.starting import Program

WORKER = "fsbridge.formats.hdf5.worker"
NO_PLUGINS = "::"
"""What HDF5 takes in HDF5_PLUGIN_PRELOAD to never look for plug-ins (H5PLpkg.h, H5PL_NO_PLUGIN)."""
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
"""Where the dynamic linker looks for what a plug-in needs."""


@functools.cache
def installed() -> tuple[str, ...]:
    """The folder of the `hdf5plugin` package, if it is installed beside fsbridge; nothing of it is imported."""
    found = util.find_spec("hdf5plugin")
    folders = [] if found is None else found.submodule_search_locations or []
    return tuple(path for path in (os.path.join(folder, "plugins") for folder in folders) if os.path.isdir(path))


def program(named: Sequence[str]) -> Program:
    """The child's program, which finds plug-ins in the folders `named` and in the installed package."""
    folders = (*map(os.path.realpath, named), *installed())
    setting = ("HDF5_PLUGIN_PATH", os.pathsep.join(folders)) if folders else ("HDF5_PLUGIN_PRELOAD", NO_PLUGINS)
    return Program(WORKER, (setting, ("HDF5_USE_FILE_LOCKING", "FALSE")), without="HDF5_")


def readable(named: Sequence[str]) -> list[str]:
    """What the child has to read besides data, to load plug-ins."""
    folders = (*map(os.path.realpath, named), *installed())
    return [path for path in (*folders, *LIBRARIES) if os.path.exists(path)] if folders else []
