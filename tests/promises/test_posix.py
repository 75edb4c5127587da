"""What POSIX promises of a read-only file system (`posix_checks.py`), on object storage. Disks: `test_promises.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mounting import Mount, MountFunction
from posix_checks import check
from remote_mounts import mount_uploaded
from stores import CASES, write_collection

CHOSEN = [
    "tensorstore-n5/compression-gzip",
    "z5py-n5/compression-lz4",
    "zarr-python-v2/compressor-blosc-lz4-1",
    "zarr-python-v3/shard-zstd",
    "tensorstore-zarr3/transpose",
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory, module_mount: MountFunction) -> Iterator[Mount]:
    cases = [case for case in CASES if case.path in CHOSEN]
    yield from mount_uploaded(write_collection(tmp_path_factory.mktemp("posix") / "all", cases), module_mount)


@pytest.mark.parametrize("path", CHOSEN)
@pytest.mark.parametrize("file", ["zarr.json", "c/0/0/0"])
def test_files_of_arrays_keep_the_rules_of_posix(tree: Mount, path: str, file: str) -> None:
    array = tree / path
    assert check(array / file, array) >= 50


def test_files_of_the_root_keep_the_rules_of_posix(tree: Mount) -> None:
    assert check(tree / "zarr.json", Path(tree)) >= 50
