"""P9 and P11 for HDF5 files that are replaced again and again: old versions are closed, readers do not disturb each
other.
"""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from descriptors import list_descriptors
from hdf5_children import watched
from hdf5_model import array, opened, values

from fsbridge.children.client import ChildDied, ChildProcess
from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import FsbridgeError, NotFound, Stale
from fsbridge.formats.hdf5.source import open_hdf5
from fsbridge.formats.hdf5.versions import LocalDataFile
from fsbridge.layouts import root_directory
from fsbridge.store import Stat


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Disable the search for reference cycles, which is rare in a mount that knows many arrays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def replace(path: Path, value: int) -> None:
    """Put a new file in the place of the one at `path`."""
    new = path.with_suffix(".new")
    with h5py.File(new, "w") as file:
        file["x"] = np.full(10, value)
    os.rename(new, path)


def test_p11_replaced_files_are_let_go_at_once(tmp_path: Path, no_collection: None) -> None:
    """Each look for something missing kept the version of the file without it, with its space on the disk."""
    path = tmp_path / "x.h5"
    replace(path, 0)
    with opened(path) as source:
        for value in range(1, 6):
            replace(path, value)
            assert values(array(source, "x"))[0] == value
            with pytest.raises(NotFound, match="no such object"):
                source.root.child("nothing")
            assert list_descriptors(path) == [str(path)]


def test_p9_a_file_that_goes_between_two_looks_is_stale_not_absent(tmp_path: Path) -> None:
    """It disappeared after the look and before it was opened. That was ENOENT, which `rsync --delete` believes."""
    path = tmp_path / "x.h5"
    replace(path, 0)
    goes = False

    class Going(LocalDataFile):
        def look(self) -> Stat:
            stat = super().look()
            if goes:
                os.rename(path, tmp_path / "away")
            return stat

    with closing(open_hdf5(Going(os.fspath(path)), Config(os.fspath(path), "/nowhere"))) as source:
        replace(path, 1)
        goes = True
        with pytest.raises(Stale, match="no longer there"):
            source.root.child("x")
        goes = False
        os.rename(tmp_path / "away", path)
        assert values(array(source, "x"))[0] == 1


def test_p9_what_ended_a_child_while_the_file_changed_is_asked_of_the_new_one(tmp_path: Path) -> None:
    """The question was avoided for a minute, although the file was another one by then."""
    path = tmp_path / "x.h5"
    replace(path, 0)
    deaths = iter(range(2))

    def die(child: ChildProcess, question: dict[str, Any]) -> None:
        if question.get("op") == "names" and (number := next(deaths, None)) is not None:
            if number == 1:
                replace(path, 1)
                source.file.current()  # another reader sees the new file before the question has failed
            child.close()
            raise ChildDied("answered nonsense")

    with opened(path, watched(during=die)) as source:
        answer, _, stat = source.file.ask({"op": "names", "path": [], "start": 0})
        assert [member[0] for member in answer["members"]] == ["x"]
        assert stat.version == source.file.current().stat.version


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_p3_no_member_is_left_out_of_an_export_while_the_file_cannot_be_read(tmp_path: Path, number: int) -> None:
    """A store's `.h5` lacked an array as long as the file did not change."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a"], file["b"] = np.arange(5), np.arange(6)
    left = 0

    def check(path: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(number, os.strerror(number))

    config = Config(str(path), "/nowhere", layout="files")
    with closing(open_hdf5(LocalDataFile(str(path), check=check), config)) as source:
        right = read_tree(root_directory(source, config, ChunkCache(1 << 20)))
        failed = 0
        for at in range(1, 200):
            root, left = root_directory(source, config, ChunkCache(1 << 20)), at
            try:
                assert read_tree(root) == right
            except (FsbridgeError, OSError):
                failed += 1
            if left > 0:
                break
            left = 0
            assert read_tree(root) == right
    assert failed > 5


def read_tree(root: Any) -> Any:
    """The members, and the file of the whole store."""
    names = {entry.name.partition(b".")[0] for batch in root.entries() for entry in batch}
    handle = root.lookup(b"x.h5").open()
    try:
        return names, bytes(handle.read(0, handle.size))
    finally:
        handle.close()
