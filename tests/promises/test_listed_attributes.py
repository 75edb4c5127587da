"""What a listing does not know of its members changes nothing that the kernel knows of them, through real mounts."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from mounting import MountFunction

from fsbridge.store.local.status import Known, look_open

OPTIONS = {
    "texts/c/0": (),
    "texts/0": ("--layout", "zarr2"),
    "numbers.csv": ("--layout", "files", "--files", "csv"),
    "texts.txt": ("--layout", "files", "--files", "txt"),
    "s.h5": ("--layout", "files", "--files", "h5"),
    ".zmetadata": ("--layout", "zarr2", "--consolidated"),
}
"""Files that must be made before their size is known, and mounts that list them."""

USE = """
import mmap, os, sys
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
    os.listdir(os.path.dirname(sys.argv[1]))
    sys.stdout.buffer.write(mapped[:])
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    group = zarr.create_group(tmp_path / "s.zarr", zarr_format=3)
    texts = np.array([f"{i:05}" * 4 for i in range(2000)], dtype=object)
    group.create_array("texts", shape=texts.shape, chunks=(1000,), dtype=str)[...] = texts
    group.create_array("numbers", shape=(900, 3), chunks=(100, 3), dtype="<i4")[...] = np.arange(2700).reshape(900, 3)
    return tmp_path / "s.zarr"


def known(fd: int) -> Known:
    """Return what the kernel has cached of an open file or directory."""
    return look_open(fd, ctypes.CDLL(None).statx)


@pytest.mark.parametrize("name", OPTIONS)
def test_p2_a_listing_does_not_change_the_size_of_a_file(name: str, store: Path, mount: MountFunction) -> None:
    """A size of zero, for however short a time, was the end of the file for its readers, and of its mapped pages."""
    path = mount(store, *OPTIONS[name]) / name
    size = os.stat(path).st_size
    with open(path, "rb") as file:
        content = file.read()
        assert len(content) == size > 0
        inode = os.fstat(file.fileno()).st_ino
        for _ in range(3):
            assert {found.name: found.inode() for found in os.scandir(path.parent)}[path.name] == inode
            assert known(file.fileno()).st_size == size
        assert os.stat(path).st_ino == inode
    mapped = subprocess.run([sys.executable, "-c", USE, path], capture_output=True, check=False)
    assert (mapped.returncode, mapped.stdout == content) == (0, True), mapped


def test_p2_files_of_unknown_size_are_read_while_others_list(store: Path, mount: MountFunction) -> None:
    path = mount(store) / "texts/c/0"
    content, over = path.read_bytes(), threading.Event()

    def walk() -> None:
        while not over.is_set():
            os.listdir(path.parent)

    walkers = [threading.Thread(target=walk) for _ in range(2)]
    for walker in walkers:
        walker.start()
    try:
        for _ in range(300):
            assert path.read_bytes() == content
            assert os.stat(path).st_size == len(content)
    finally:
        over.set()
        for walker in walkers:
            walker.join()


def test_listed_inodes_are_those_of_stat(store: Path, mount: MountFunction) -> None:
    """Also of members that the kernel did not know before, and of those that it was not told of again."""
    for name, options in OPTIONS.items():
        tree: Any = mount(store, *options)
        for _ in range(2):
            found = {one.path: one.inode() for one in os.scandir((tree / name).parent)}
            assert {path: os.stat(path).st_ino for path in found} == found
