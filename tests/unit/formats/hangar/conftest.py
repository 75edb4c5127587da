"""Fixtures shared by the tests of `hangar`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hangar_data import unpack
from hangar_model import opened, snapshot

from fsbridge.formats.hangar.hierarchy import HangarSource


@pytest.fixture(scope="module")
def main_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("main", tmp_path_factory.mktemp("main"))


@pytest.fixture(scope="module")
def main(main_path: Path) -> Iterator[HangarSource]:
    before = snapshot(main_path)
    source = opened(main_path)
    yield source
    source.close()
    assert snapshot(main_path) == before, "the repository was written to"


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    return unpack("crashed", tmp_path / "crashed")


@pytest.fixture
def plain(tmp_path: Path, main_path: Path) -> Path:
    """A copy of the main repository to damage."""
    return unpack("main", tmp_path / "main")
