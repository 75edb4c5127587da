"""HDF5 filters: a dataset's pipeline as codec chains, one per filter mask, and the plug-ins that the child may load.

Plug-ins are code. They come only from the `hdf5plugin` package, if the user installed it, and from folders that the user
named, whatever HDF5's own environment variables say. Not here: decoders (`codecs/table.py`), the child.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from importlib import util

from fsbridge.children.starting import Program
from fsbridge.codecs import CodecChain, Decoder, table
from fsbridge.errors import Unsupported
from fsbridge.formats.hdf5.answers import Filter


class FilterPipeline:
    """Filters in encoding order, decoded backwards. Filter i is skipped for chunks with bit i set in their mask."""

    def __init__(self, filters: Sequence[Filter], normaliser: Decoder | None) -> None:
        self._filters = filters
        self._last = () if normaliser is None else (normaliser,)
        self._chains: dict[int, CodecChain | None] = {}

    def chain(self, mask: int) -> CodecChain | None:
        """Return the chain for a chunk's mask, or None if HDF5 must decode. Raises Unsupported if HDF5 cannot either."""
        mask &= (1 << len(self._filters)) - 1
        if mask not in self._chains:
            self._chains[mask] = self._build(mask)
        return self._chains[mask]

    def _build(self, mask: int) -> CodecChain | None:
        used = [entry for i, entry in enumerate(self._filters) if not mask >> i & 1]
        steps: list[Decoder] = []
        for entry in reversed(used):
            step = table.filter_decoder(entry.number, entry.values)
            if step is not None:
                steps.append(step)
            elif all(other.available for other in used):
                return None
            else:
                raise Unsupported(_refusal(entry))
        return CodecChain((*steps, *self._last))


def _refusal(entry: Filter) -> str:
    """Return which filter is missing, and the command that helps."""
    codec = table.FILTERS.get(entry.number)
    name = codec.name if codec is not None else entry.name[:60]
    what = f"HDF5 filter {name} ({entry.number})" if name else f"HDF5 filter {entry.number}"
    if codec is not None and codec.library is not None:
        return f"{what} needs a plug-in: {codec.library.install}"
    return f"{what} is decoded neither here nor by the installed HDF5: --hdf5-plugins DIR names a folder with its plug-in"


WORKER = "fsbridge.formats.hdf5.child.worker"
NO_PLUGINS = "::"
"""HDF5 never looks for plug-ins if HDF5_PLUGIN_PRELOAD has this value (H5PLpkg.h, H5PL_NO_PLUGIN)."""
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
"""Where the dynamic linker looks for what a plug-in needs."""


@functools.cache
def find_plugins() -> tuple[str, ...]:
    """Return the folder of the `hdf5plugin` package if it is installed beside fsbridge. Nothing of it is imported.

    It is looked for once: children of a mount whose packages were removed since are still forked from the same program.
    """
    spec = util.find_spec(table.HDF5PLUGIN.name)
    folders = [] if spec is None else spec.submodule_search_locations or []
    return tuple(path for path in (os.path.join(folder, "plugins") for folder in folders) if os.path.isdir(path))


def make_program(named: Sequence[str]) -> Program:
    """Return the child's program, which finds plug-ins in the folders `named` and in the installed package."""
    folders = (*map(os.path.realpath, named), *find_plugins())
    setting = ("HDF5_PLUGIN_PATH", os.pathsep.join(folders)) if folders else ("HDF5_PLUGIN_PRELOAD", NO_PLUGINS)
    return Program(WORKER, (setting, ("HDF5_USE_FILE_LOCKING", "FALSE")), without="HDF5_")


def find_readable(named: Sequence[str]) -> list[str]:
    """Return what the child must read besides data to load plug-ins."""
    folders = (*map(os.path.realpath, named), *find_plugins())
    return [path for path in (*folders, *LIBRARIES) if os.path.exists(path)] if folders else []
