"""Layouts: from the model to the tree; they never see stores or codecs.

A layout decides which files a hierarchy is shown as, and nothing else. A new one is a module or package, and a line of
`LAYOUTS`. Not here: formats, kernel replies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from fsbridge.errors import SetupError, perhaps

if TYPE_CHECKING:
    from fsbridge.config import Config
    from fsbridge.decoded.cache import ChunkCache
    from fsbridge.layouts.directories import Layout, PathDirectory
    from fsbridge.model import Source
    from fsbridge.tree import Directory


def _zarr3(config: Config) -> Layout:
    from fsbridge.layouts.zarr3 import Zarr3

    return Zarr3()


def _zarr2(config: Config) -> Layout:
    from fsbridge.layouts.zarr2 import Zarr2

    return Zarr2(config.chunk_separator, config.consolidated)


def _n5(config: Config) -> Layout:
    from fsbridge.layouts.n5 import N5

    return N5()


def _files(config: Config) -> Layout:
    from fsbridge.layouts.files.layout import Files

    return Files(config)


LAYOUTS: Mapping[str, Callable[[Config], Layout]] = {"zarr3": _zarr3, "zarr2": _zarr2, "n5": _n5, "files": _files}
"""Every layout by the name that `--layout` takes; its modules are imported when it is asked for."""


def parse_layouts(text: str) -> tuple[str, ...]:
    """Split a list such as `zarr3,n5` into names. SetupError if a name is unknown, or occurs twice."""
    names = tuple(text.split(","))
    for name in names:
        if name not in LAYOUTS:
            raise SetupError(f"unknown layout {name!r}", perhaps(name, "known layouts", LAYOUTS))
    if len(set(names)) < len(names):
        raise SetupError(f"--layout {text} names a layout twice")
    return names


def root_directories(source: Source, config: Config, cache: ChunkCache) -> Mapping[str, PathDirectory]:
    """Return a root directory of `source` for each of the layouts `config.layout`, by name."""
    from fsbridge.layouts.directories import PathDirectory
    from fsbridge.layouts.members import Context, SourceMember

    context = Context(source.format_at, config, cache)
    return {
        name: PathDirectory(LAYOUTS[name](config), SourceMember(context, lambda: source.root))
        for name in parse_layouts(config.layout)
    }


def root_directory(source: Source, config: Config, cache: ChunkCache) -> Directory:
    """Return the root directory that shows `source` in its layout.

    With several layouts, one that has a directory for each.
    """
    from fsbridge.layouts.directories import LayoutsDirectory
    from fsbridge.model import as_array

    roots = root_directories(source, config, cache)
    array = as_array(source.root)
    reasons = [None if array is None else root.layout.refusal(array.metadata) for root in roots.values()]
    if all(reasons):
        raise SetupError(f"{config.place}: the layout {config.layout} cannot show it: {reasons[0]}")
    return next(iter(roots.values())) if len(roots) == 1 else LayoutsDirectory(roots)
