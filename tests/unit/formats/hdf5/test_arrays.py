"""Which datasets are prefetched when datasets are read one after the other: how far the search goes, where it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import pytest

from fsbridge.config import Config
from fsbridge.formats.hdf5 import arrays, pages
from fsbridge.formats.hdf5.arrays import MOST_DATASETS, MOST_PAGES, NextDatasets
from fsbridge.formats.hdf5.source import HDF5Source, open_hdf5

Names = tuple[str, ...]


class AtOnce:
    """Runs at once instead of on a thread."""

    def __init__(self, *_given: object) -> None: ...

    def submit(self, job: Callable[[], object]) -> None:
        job()


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HDF5Source]:
    """A file with the datasets `a` and `b`, groups without any (some a thousand deep), then `z` and more behind it."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for name in ("a", "b", "c/deep" + "/g" * 1000 + "/never", *(f"z/{number:03}" for number in range(100))):
            file[name] = 1
        for number in range(3 * MOST_PAGES):
            file.create_group(f"m/{number:03}")
        file["m/loop"] = file["/"]
    monkeypatch.setattr(arrays, "Workers", AtOnce)
    found = open_hdf5(str(path), Config(str(path), "/nowhere"))
    yield found
    found.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Names]:
    """The groups that were searched."""
    found: list[Names] = []
    page = pages.page
    monkeypatch.setattr(pages, "page", lambda file, path, start: found.append(path) or page(file, path, start))
    return found


def test_p7_p8_the_search_for_the_next_dataset_is_short_and_goes_on_with_its_reader(
    source: HDF5Source, asked: list[Names]
) -> None:
    sent: list[Names] = []
    ahead = NextDatasets(source.file, sent.append)
    ahead.read(("a",))
    ahead.read(("b",))
    assert not sent, "it lies behind many groups"
    assert 0 < len(asked) <= 2 * (MOST_PAGES + 1)
    assert max(map(len, asked)) <= source.file.config.limits.depth
    for number in range(50):  # a reader that arrives there by itself is followed again
        ahead.read(("z", f"{number:03}"))
    assert sent == [("z", f"{number:03}") for number in range(2, 50 + MOST_DATASETS)]


def test_p7_the_search_ends_once_the_reader_has_left(source: HDF5Source, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Names] = []
    ahead = NextDatasets(source.file, sent.append)
    page, asked = pages.page, 0

    def leaving(*given: Any) -> pages.Page:
        nonlocal asked
        asked += 1
        ahead._last = ("elsewhere",)
        return page(*given)

    ahead.read(("z", "000"))
    monkeypatch.setattr(pages, "page", leaving)
    ahead.read(("z", "001"))
    assert not sent
    assert asked == 1
