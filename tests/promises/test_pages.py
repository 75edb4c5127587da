"""The kernel's page cache through a real mount: readers see one version of a file, and its bytes (P9, P12)."""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from mounting import MountFunction
from waiting import until

SIZE = 3 << 20
CHUNKS = 8


def write(path: Path, compressor: Any) -> np.ndarray:
    """Chunks of SIZE equal bytes each, by zarr-python."""
    values = np.repeat(np.arange(1, CHUNKS + 1, dtype="u1"), SIZE)
    options: Any = {"compressors": compressor, "zarr_format": 2}
    zarr.create_array(path, shape=values.shape, chunks=(SIZE,), dtype="u1", **options)[...] = values
    return values


def test_p12_a_long_file_is_read_through_the_page_cache(tmp_path: Path, mount: MountFunction) -> None:
    """Read by `read`, by `mmap`, and by both at a time."""
    values = np.random.default_rng(3).integers(0, 1 << 16, (48, 1024, 1024), np.uint16)
    array = zarr.create_array(tmp_path / "s.zarr", shape=values.shape, chunks=(16, 256, 256), dtype="<u2", zarr_format=2)
    array[...] = values
    tree = mount(tmp_path / "s.zarr", "--layout", "files")
    path, wrong = tree / "s.npy", list[int]()

    def read() -> None:
        with open(path, "rb", buffering=0) as file:
            file.seek(128)
            for plane in values:
                if file.read(plane.nbytes) != plane.tobytes():
                    wrong.append(1)

    def map_() -> None:
        if not np.array_equal(np.load(path, mmap_mode="r")[:, :, 7], values[:, :, 7]):
            wrong.append(2)

    for readers in ([read], [map_, read], [read, read]):
        threads = [threading.Thread(target=reader) for reader in readers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


@pytest.mark.parametrize("options", [(), ("--immutable",), ("--no-read-ahead",)])
def test_p12_sequential_readers_see_equal_bytes(tmp_path: Path, mount: MountFunction, options: tuple[str, ...]) -> None:
    values = write(tmp_path / "s.zarr", "auto").reshape(CHUNKS, SIZE)
    tree = mount(tmp_path / "s.zarr", *options)
    names = sorted(os.listdir(tree / "c"))
    wrong: list[str] = []

    def read() -> None:
        for _ in range(3):
            wrong.extend(name for name in names if (tree / "c" / name).read_bytes() != values[int(name)].tobytes())

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert wrong == []


@pytest.mark.parametrize(("pause", "options"), [(0.0, ()), (0.02, ()), (0.02, ("--no-read-ahead",))])
def test_p9_readers_of_replaced_chunks_see_one_version_or_estale(
    tmp_path: Path, mount: MountFunction, pause: float, options: tuple[str, ...]
) -> None:
    """Prefetched chunks are outdated again and again; a reader gets one version of the chunk, and no older one."""
    write(tmp_path / "s.zarr", None)
    assert json.loads((tmp_path / "s.zarr/.zarray").read_text())["compressor"] is None
    tree = mount(tmp_path / "s.zarr", *options)
    names = sorted(os.listdir(tree / "c"))
    stored = [1] * CHUNKS
    for number in range(CHUNKS):
        put(tmp_path, number, 1)
    done = threading.Event()

    def replace() -> None:
        turn = 1
        while not done.is_set():
            turn = turn % 250 + 1
            for number in range(CHUNKS):
                put(tmp_path, number, turn)
                stored[number] = turn
                done.wait(pause)

    found: Counter[str] = Counter()

    def read() -> None:
        for _ in range(6):
            for name in names:
                try:
                    content = np.frombuffer((tree / "c" / name).read_bytes(), np.uint8)
                except OSError as error:
                    found[errno.errorcode[error.errno or 0]] += 1
                else:
                    found["one" if content.size == SIZE and (content == content[0]).all() else "mixed"] += 1

    threads = [threading.Thread(target=replace), *[threading.Thread(target=read) for _ in range(2)]]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    done.set()
    threads[0].join()
    assert set(found) <= {"one", "ESTALE"}
    assert found["one"] > 5
    for number, name in enumerate(names):
        assert set((tree / "c" / name).read_bytes()) == {stored[number]}


@pytest.mark.parametrize("flags", [mmap.MAP_SHARED, mmap.MAP_PRIVATE])
def test_p9_an_outdated_version_that_is_open_and_the_present_one_share_no_pages(
    tmp_path: Path, mount: MountFunction, flags: int
) -> None:
    """Both are read and mapped side by side, with new versions again and again; later the chunk has its usual inode."""
    write(tmp_path / "s.zarr", None)
    put(tmp_path, 3, 1)
    written = (tmp_path / "s.zarr/3").stat().st_ctime
    until(lambda: time.time() > written + 1)  # what may still be written has a number of its own
    tree = mount(tmp_path / "s.zarr")
    path = tree / "c/3"
    usual = path.stat().st_ino
    old = os.open(path, os.O_RDONLY)
    assert set(os.pread(old, 100_000, 0)) == {1}
    for value in (2, 3):
        put(tmp_path, 3, value)
        with open(path, "rb") as new, mmap.mmap(new.fileno(), 0, flags=flags, prot=mmap.PROT_READ) as mapped:
            assert set(new.read()) == {value}
            assert set(mapped[:]) == {value}
            assert os.fstat(new.fileno()).st_ino != usual
            assert set(os.pread(old, 100_000, 0)) == {1}
            with contextlib.suppress(OSError):  # ESTALE, unless the daemon still has it
                assert set(os.pread(old, 100_000, 2_000_000)) == {1}
            assert set(mapped[:]) == {value}
    os.close(old)
    put(tmp_path, 3, 4)
    until(lambda: path.stat().st_ino == usual)  # the kernel may rely on the name for a second
    assert set(path.read_bytes()) == {4}


def put(store: Path, number: int, value: int) -> None:
    """Replace a stored chunk by one of equal bytes, as writers do that never show half a chunk."""
    (store / "new").write_bytes(bytes([value]) * SIZE)
    os.rename(store / "new", store / f"s.zarr/{number}")


@pytest.mark.parametrize("options", [(), ("--metadata-ttl", "0")])
def test_p9_a_small_chunk_is_the_present_one_while_an_outdated_one_is_open(
    tmp_path: Path, mount: MountFunction, options: tuple[str, ...]
) -> None:
    source = tmp_path / "small.zarr"
    zarr.create_array(source, shape=(4096,), chunks=(4096,), dtype="u1", zarr_format=2, compressors=None)[...] = 1
    tree = mount(source, *options)
    for value in range(2, 8):
        time.sleep(0.03)  # settled
        with open(tree / "c/0", "rb", buffering=0) as before:
            assert set(before.read()) == {value - 1}
            (source / "new").write_bytes(bytes([value]) * 4096)
            (source / "new").rename(source / "0")
            time.sleep(0.03)
            with open(tree / "c/0", "rb", buffering=0) as after:
                assert set(after.read()) == {value}
            before.seek(0)
            with contextlib.suppress(OSError):
                assert set(before.read()) == {value - 1}
