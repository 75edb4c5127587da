"""Pages of groups are kept for one version of the file, within a budget, until the file is closed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hdf5_children import noting
from hdf5_model import array, node, opened, values
from waiting import Clock

from fsbridge.formats.hdf5.pages import GroupPage, KeptPages, PageKey
from fsbridge.store import Stat


def write(path: Path, count: int) -> None:
    with h5py.File(path, "w", libver="latest") as file:
        file.attrs["count"] = count
        group = file.create_group("group")
        for number in range(count):
            group.create_dataset(f"x{number:04d}", data=np.arange(3) + number, chunks=(2,))


def test_a_walk_asks_once_per_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """300 datasets with their attributes, metadata and chunks: two questions, one per page of the group."""
    path = tmp_path / "x.h5"
    write(path, 300)
    Clock(monkeypatch).settles()
    asked: list[str] = []
    with opened(path, noting(asked)) as source:
        asked.clear()
        for _ in range(3):
            group: Any = node(source, "group")
            for number, child in enumerate(group.children()):
                found = group.child(child.name)
                assert found.chunks.count() == 2
                assert values(found).tolist() == [number, number + 1, number + 2]
        assert set(asked) == {"group"}
        assert len(asked) <= 4  # a page ends early on a busy machine


def test_p9_what_changes_is_asked_again(tmp_path: Path) -> None:
    """P9: each look is at the file as it is, whatever was listed a moment ago."""
    path = tmp_path / "x.h5"
    for count in (1, 3, 2, 5, 4):
        write(tmp_path / "new.h5", count)
        os.replace(tmp_path / "new.h5", path)
        if count == 1:
            context = opened(path)
            source = context.__enter__()
        group: Any = node(source, "group")
        assert source.root.attributes() == {"count": count}
        assert len(list(group.children())) == count
        assert values(group.child(f"x{count - 1:04d}")).tolist() == [count - 1, count, count + 1]
    with h5py.File(path, "r+") as file:
        file["group/late"] = 7
    assert "late" in [child.name for child in group.children()]
    assert values(group.child("late"))[()] == 7
    context.__exit__(None, None, None)


def test_an_array_in_use_is_one_object(tmp_path: Path) -> None:
    """One object exists for one version of a dataset, and only while it is in use."""
    path = tmp_path / "x.h5"
    write(path, 2)
    with opened(path) as source:
        first = array(source, "group/x0000")
        assert array(source, "group/x0000") is first
        os.utime(path, ns=(5, 5))
        assert array(source, "group/x0000") is not first


def test_pages_of_a_closed_file_are_forgotten(tmp_path: Path) -> None:
    write(tmp_path / "x.h5", 1)
    with opened(tmp_path / "x.h5") as source:
        page = GroupPage(Stat(False, 1, 1, 1), {}, {}, None, None, None, 400)
        kept = source.file.shared.of(KeptPages).by_key
        kept.put(PageKey(source.file, 1, (), 0), page, page.nbytes)
        assert kept.get(PageKey(source.file, 1, (), 0)) is page
    assert kept.get(PageKey(source.file, 1, (), 0)) is None
    assert not kept.used
