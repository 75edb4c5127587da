"""The worked example of docs/contributing.md: a small format is one module and one line of the table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_reader import read_array
from npy_folder import FORMAT, NPY_FOLDER, NpyArray

from fsbridge.config import Config
from fsbridge.errors import CorruptData, NotFound, Stale, Unsupported
from fsbridge.formats.open import open_source
from fsbridge.formats.registry import FORMATS
from fsbridge.model import Source

ARRAYS = {
    "cube": np.arange(60, dtype="<i2").reshape(3, 4, 5),
    "big": np.linspace(0, 1, 7, dtype=">f8"),
    "one": np.array(5.5, "<f4"),
    "none": np.empty((0, 3), "u1"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, array in ARRAYS.items():
        np.save(tmp_path / name, array)
    return tmp_path


@pytest.fixture
def source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    monkeypatch.setitem(FORMATS, NPY_FOLDER.name, FORMAT)  # the table is a dict
    found = open_source(str(folder), Config(str(folder), ""))
    yield found
    found.close()


def child(source: Source, name: str) -> NpyArray:
    root: Any = source.root
    found: NpyArray = root.child(name)
    return found


def test_p12_every_element_is_numpys(source: Source) -> None:
    root: Any = source.root
    assert source.format is NPY_FOLDER
    assert {member.name for member in root.children()} == set(ARRAYS)
    for name, expected in ARRAYS.items():
        found = read_array(child(source, name))
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_p9_a_replaced_file_is_another_version(source: Source, folder: Path) -> None:
    before = child(source, "cube")
    info = before.chunks.find((0, 0, 0))
    np.save(folder / "new", ARRAYS["cube"] + 1)
    os.replace(folder / "new.npy", folder / "cube.npy")
    assert not before.current()
    with pytest.raises(Stale):
        before.chunks.read_range((0, 0, 0), info, 0, 4)
    np.testing.assert_array_equal(read_array(child(source, "cube")), ARRAYS["cube"] + 1)
    os.remove(folder / "cube.npy")
    with pytest.raises(Stale):
        before.chunks.read_into((0, 0, 0), info, memoryview(bytearray(120)))
    with pytest.raises(NotFound):
        child(source, "cube")


def test_p3_what_cannot_be_read_is_an_error(source: Source, folder: Path) -> None:
    whole = (folder / "cube.npy").read_bytes()
    (folder / "short.npy").write_bytes(whole[:-1])
    (folder / "no.npy").write_bytes(b"nothing")
    np.save(folder / "fortran", np.asfortranarray(ARRAYS["cube"]))
    np.save(folder / "objects", np.array([None, {}], object), allow_pickle=True)
    for name, error in (("short", CorruptData), ("no", CorruptData), ("fortran", Unsupported), ("objects", Unsupported)):
        with pytest.raises(error, match=rf"{name}\.npy"):
            child(source, name)
    with pytest.raises(NotFound, match="one chunk"):
        child(source, "cube").chunks.find((0, 0, 1))
