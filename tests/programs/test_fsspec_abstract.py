"""fsspec's own tests of reading, on trees that hold what those tests expect. Not here: what stores look like through it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zarr
from fake_tree import FakeDirectory, FakeFile
from fsspec.tests.abstract import AbstractFixtures
from fsspec.tests.abstract.get import AbstractGetTests

from fsbridge.tree import Directory
from fsbridge.unmounted import VirtualTree, close_unused
from fsbridge.unmounted.filesystem import FsbridgeFileSystem


class TreeInMemory(VirtualTree):
    """A tree that is empty at first, whatever the source has."""

    memory = FakeDirectory()

    @property
    def root(self) -> Directory:
        return self.memory


class Prepared(FsbridgeFileSystem):
    """The file system, over a tree in memory that fsspec's fixtures fill: of the real one nothing can be changed."""

    cachable = False

    def __init__(self, source: Path) -> None:
        super().__init__(source)
        self._in_memory = TreeInMemory(super().tree.config)
        self._in_memory.memory = FakeDirectory()
        close_unused(self, self._in_memory.close)

    @property
    def tree(self) -> VirtualTree:
        return self._in_memory

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._folder(path.split("/"))

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        self.makedirs(path)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        self.pipe(path, b"")

    def pipe(self, path: str, value: bytes) -> None:
        *folders, name = path.split("/")
        self._folder(folders).members[name.encode()] = FakeFile(value)

    def rm(self, path: str, recursive: bool = False) -> None:
        *folders, name = path.split("/")
        del self._folder(folders).members[name.encode()]

    def _folder(self, names: list[str]) -> FakeDirectory:
        folder = self.tree.root
        for name in names:
            assert isinstance(folder, FakeDirectory)
            folder = folder.members.setdefault(name.encode(), FakeDirectory())
        assert isinstance(folder, FakeDirectory)
        return folder


class TestReading(AbstractFixtures, AbstractGetTests):  # type: ignore[misc]  # fsspec has no types
    @pytest.fixture
    def fs(self, tmp_path: Path) -> Prepared:
        zarr.create_group(tmp_path / "a.zarr")
        return Prepared(tmp_path / "a.zarr")

    @pytest.fixture
    def fs_path(self) -> str:
        return "top"
