"""The root of a mount that shows several layouts. Not here: any of them.

It never changes, because its contents follow from the command line.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial

from fsbridge.errors import NotFound
from fsbridge.layouts.directories import PathDirectory
from fsbridge.tree import AnyNode, Attrs, Entry, NodeAbilities


class LayoutsDirectory(NodeAbilities):
    """The root of a mount that shows several layouts: one directory each, named as the layout, and nothing else."""

    version: Hashable = None
    slot = None
    space = None

    def __init__(self, roots: Mapping[str, PathDirectory]) -> None:
        self._roots = {name.encode(): root for name, root in roots.items()}
        self.extent = len(roots)

    def attrs(self) -> Attrs:
        return next(iter(self._roots.values())).attrs()

    def xattrs(self) -> Mapping[str, bytes]:
        return next(iter(self._roots.values())).xattrs()

    def lookup(self, name: bytes) -> AnyNode:
        root = self._roots.get(name)
        if root is None:
            raise NotFound(f"{name!r} is no layout of this mount")
        return root

    def present(self) -> LayoutsDirectory:
        return self

    def entries(self) -> Iterator[Sequence[Entry]]:
        attrs = self.attrs()
        yield [Entry(name, attrs, partial(self.lookup, name)) for name in self._roots]
