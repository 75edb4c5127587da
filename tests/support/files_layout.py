"""Trees of the layout `files` with parameters that no option of a mount has. Not here: trees as a mount has them."""

from __future__ import annotations

from collections.abc import Sequence

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.formats.open import open_source
from fsbridge.layouts.directories import PathDirectory
from fsbridge.layouts.files.arrays.open_array import SHARED_LIMITS, SharedLimits
from fsbridge.layouts.files.group_files import GROUP_FILES
from fsbridge.layouts.files.groups.group_file import GroupFile
from fsbridge.layouts.files.layout import Files
from fsbridge.layouts.members import Context, SourceMember
from fsbridge.model import Source
from fsbridge.mount.lifecycle import Tree


def tree_of(
    source: Source, config: Config, kinds: Sequence[GroupFile] = GROUP_FILES, limits: SharedLimits = SHARED_LIMITS
) -> Tree:
    """The tree of an open source."""
    cache = ChunkCache(config.cache_size)
    member = SourceMember(Context(source.format_at, config, cache), lambda: source.root)
    return Tree(PathDirectory(Files(config, kinds, limits), member), source.close, cache.clear, cache)


def open_files(config: Config, kinds: Sequence[GroupFile] = GROUP_FILES, limits: SharedLimits = SHARED_LIMITS) -> Tree:
    """Open the source of `config` and make its tree."""
    return tree_of(open_source(config.source, config), config, kinds, limits)
