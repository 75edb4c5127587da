"""Layouts: pure functions from the model to the tree; they never see stores or codecs.

Not here: formats, kernel replies. A layout decides which files a hierarchy is shown as, and nothing else.
"""

from __future__ import annotations

from fsbridge.cache import ChunkCache
from fsbridge.config import Config
from fsbridge.errors import SetupError
from fsbridge.kernel.readahead import ReadAhead
from fsbridge.model import Source
from fsbridge.tree import Directory

LAYOUTS = ("zarr3",)


def root_directory(source: Source, config: Config, cache: ChunkCache, ahead: ReadAhead | None = None) -> Directory:
    """The root of the tree that shows `source` in the layout `config.layout`."""
    if config.layout not in LAYOUTS:
        raise SetupError(f"unknown layout {config.layout!r}", f"known layouts: {', '.join(LAYOUTS)}")
    from fsbridge.layouts.zarr3.directories import Context, MemberDirectory

    return MemberDirectory(Context(source.format_at, config, cache, ahead or ReadAhead()), lambda: source.root, ())
