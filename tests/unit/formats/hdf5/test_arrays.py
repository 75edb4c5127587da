"""Which datasets are prefetched when datasets are read one after the other: how far the search goes, where it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import pytest
from hdf5_children import watched
from hdf5_model import opened

from fsbridge.children.client import ChildProcess
from fsbridge.formats.hdf5.arrays import MOST_DATASETS, MOST_PAGES, NextDatasets
from fsbridge.formats.hdf5.source import HDF5Source
from fsbridge.threads.workers import Workers

Names = tuple[str, ...]


class AtOnce(Workers):
    """Runs at once instead of on a thread."""

    def __init__(self) -> None:
        super().__init__("none", 0)

    def submit(self, job: Callable[[], object], *rest: object, **options: object) -> None:
        job()


@pytest.fixture
def asked() -> list[Names]:
    """The groups of which a page of members was asked for."""
    return []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with the datasets `a` and `b`, groups without any (some a thousand deep), then `z` and more behind it."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for name in ("a", "b", "c/deep" + "/g" * 1000 + "/never", *(f"z/{number:03}" for number in range(100))):
            file[name] = 1
        for number in range(3 * MOST_PAGES):
            file.create_group(f"m/{number:03}")
        file["m/loop"] = file["/"]
    return path


@pytest.fixture
def source(path: Path, asked: list[Names]) -> Iterator[HDF5Source]:
    def note(child: ChildProcess, question: dict[str, Any]) -> None:
        if question["op"] == "group":
            asked.append(tuple(question["path"]))

    with opened(path, watched(before=note)) as source:
        asked.clear()
        yield source


def test_p7_p8_the_search_for_the_next_dataset_is_short_and_goes_on(source: HDF5Source, asked: list[Names]) -> None:
    sent: list[Names] = []
    ahead = NextDatasets(source.file, sent.append, AtOnce())
    ahead.read(("a",))
    ahead.read(("b",))
    assert not sent, "it lies behind many groups"
    assert 0 < len(asked) <= 2 * (MOST_PAGES + 1)
    assert max(map(len, asked)) <= source.file.config.limits.depth
    for number in range(50):  # a reader that arrives there by itself is followed again
        ahead.read(("z", f"{number:03}"))
    assert sent == [("z", f"{number:03}") for number in range(2, 50 + MOST_DATASETS)]


def test_p7_the_search_ends_once_the_reader_has_left(path: Path) -> None:
    sent: list[Names] = []
    asked: list[Names] = []

    def leave(child: ChildProcess, question: dict[str, Any]) -> None:
        if question["op"] == "group" and question["path"] == ["z"]:
            asked.append(("z",))
            ahead._last = ("elsewhere",)

    with opened(path, watched(before=leave)) as source:
        ahead = NextDatasets(source.file, sent.append, AtOnce())
        ahead.read(("z", "000"))
        ahead.read(("z", "001"))
    assert not sent
    assert asked == [("z",)]
