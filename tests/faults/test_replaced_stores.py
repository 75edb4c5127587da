"""Stores that are deleted, written anew or rewritten under a mount: an open sees the store as it is then (P3, P9)."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import pytest
from mounting import Mount
from waiting import until

TTL = 1.1
"""Seconds after which what `stat` and listings show is no longer what it was (P9)."""

GROUP = json.dumps({"zarr_format": 3, "node_type": "group"})


def array(chunk: int) -> str:
    """A one-dimensional uint8 array of one uncompressed chunk."""
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [chunk],
            "data_type": "uint8",
            "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk]}},
            "chunk_key_encoding": {"name": "default"},
            "codecs": [{"name": "bytes"}],
        }
    )


def put(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def write(store: Path, value: int) -> None:
    """A group with one array of four bytes `value`."""
    put(store / "a/zarr.json", array(4))
    put(store / "a/c/0", bytes([value]) * 4)
    put(store / "zarr.json", GROUP)


def answer(path: Path) -> bytes | str:
    """The file's bytes, or the name of the error."""
    try:
        return path.read_bytes()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def list_names(path: Path) -> list[str] | str:
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        return errno.errorcode[error.errno or 0]


@pytest.mark.parametrize("how", ["deleted", "renamed"])
def test_p3_p9_a_rewritten_store_is_shown_and_a_missing_one_is_an_error(
    tmp_path: Path, mount: Callable[..., Mount], how: str
) -> None:
    """`zarr.open_group(path, mode="w")`, `mv store old; mv new store`; an empty tree would empty a mirror."""
    store, mirror = tmp_path / "s.zarr", tmp_path / "mirror"
    write(store, 1)
    mounted = mount(store)
    assert answer(mounted / "a/c/0") == b"\1" * 4
    shutil.copytree(mounted.path, mirror)
    if how == "deleted":
        shutil.rmtree(store)
    else:
        store.rename(tmp_path / "old")
    time.sleep(TTL)  # a listing may be so old
    assert list_names(mounted.path) == "ESTALE"
    assert answer(mounted / "a/c/0") == "ESTALE"
    assert answer(mounted / "nothing") == "ESTALE"
    copied = subprocess.run(["rsync", "-a", "--delete", f"{mounted.path}/", f"{mirror}/"], capture_output=True)
    assert copied.returncode != 0
    assert (mirror / "a/c/0").read_bytes() == b"\1" * 4
    write(tmp_path / "new", 2)
    (tmp_path / "new").rename(store)
    until(lambda: answer(mounted / "a/c/0") != "ESTALE")
    assert answer(mounted / "a/c/0") == b"\2" * 4
    assert list_names(mounted.path) == ["a", "zarr.json"]
    time.sleep(TTL)  # the attributes of the directory itself
    subprocess.run(["rsync", "-ac", "--delete", f"{mounted.path}/", f"{mirror}/"], check=True)
    assert (mirror / "a/c/0").read_bytes() == b"\2" * 4


def test_p3_an_hdf5_file_that_is_removed_is_no_empty_group(tmp_path: Path, mount: Callable[..., Mount]) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["d"] = list(range(4))
    mounted = mount(tmp_path / "x.h5")
    assert len(answer(mounted / "d/c/0")) == 32
    (tmp_path / "x.h5").rename(tmp_path / "y.h5")
    time.sleep(TTL)
    assert list_names(mounted.path) == "ESTALE"
    assert answer(mounted / "d/c/0") == "ESTALE"
    (tmp_path / "y.h5").rename(tmp_path / "x.h5")
    time.sleep(1.1)
    assert len(answer(mounted / "d/c/0")) == 32


def test_p9_the_document_of_a_group_is_that_at_its_open(tmp_path: Path, mount: Callable[..., Mount]) -> None:
    store = tmp_path / "s"
    for name in ("", "g/", "h/"):
        put(store / f"{name}zarr.json", GROUP)
    (store / "i").mkdir()
    mounted = mount(store)

    def kind(name: str) -> str:
        found = answer(mounted / name / "zarr.json")
        return found if isinstance(found, str) else json.loads(found)["node_type"]

    assert [kind(name) for name in "ghi"] == ["group"] * 3
    shutil.rmtree(store / "g")
    shutil.rmtree(store / "h")
    for name in "hi":
        put(store / name / "zarr.json", array(4))
    assert [kind(name) for name in "ghi"] == ["ENOENT", "array", "array"]


READER = """
import errno, os, sys
bad = good = 0
print("ready", flush=True)
while not os.path.exists(sys.argv[2]):
    try:
        fd = os.open(sys.argv[1], os.O_RDONLY)
    except OSError as error:
        bad += 1
        print(errno.errorcode[error.errno], flush=True)
        continue
    try:
        data = os.read(fd, 65536)
        good += 1
        assert len(data) == 65536 and len(set(data)) == 1, "a mixture"
    except OSError as error:
        assert error.errno == errno.ESTALE, error
    os.close(fd)
print(bad, good)
"""


def test_p3_p9_a_store_that_is_replaced_is_read_without_an_error(tmp_path: Path, mount: Callable[..., Mount]) -> None:
    """With an HDF5 file in it, which a confined child process opens."""
    current = tmp_path / "current"
    for value in range(12):
        folder = tmp_path / f"v{value}"
        write(folder / "s.zarr", value)
        with h5py.File(folder / "x.h5", "w") as file:
            file["d"] = [value] * 4
    (tmp_path / "v0").rename(current)
    mounted = mount(current, "--metadata-ttl", "0")
    for value in range(12):
        if value:
            current.rename(tmp_path / f"old{value}")
            (tmp_path / f"v{value}").rename(current)
        assert answer(mounted / "s.zarr/a/c/0") == bytes([value]) * 4
        assert answer(mounted / "x.h5/d/c/0") == b"".join(value.to_bytes(8, "little") for _ in range(4))
        assert sorted(os.listdir(mounted.path)) == ["s.zarr", "x.h5", "zarr.json"]


@pytest.mark.parametrize("kind", ["h5", "zip"])
def test_p9_a_file_that_is_replaced_by_renaming_is_read(tmp_path: Path, mount: Callable[..., Mount], kind: str) -> None:
    source = tmp_path / f"x.{kind}"

    def put(value: int) -> None:
        if kind == "h5":
            with h5py.File(tmp_path / "next", "w") as file:
                file.create_dataset("a", data=[value] * 4, dtype="u1", chunks=(4,))
        else:
            write(tmp_path / f"z{value}", value)
            with zipfile.ZipFile(tmp_path / "next", "w") as archive:
                for path in (tmp_path / f"z{value}").rglob("*"):
                    archive.write(path, path.relative_to(tmp_path / f"z{value}"))
        os.replace(tmp_path / "next", source)

    put(0)
    mounted = mount(source, "--metadata-ttl", "0")
    for value in range(5):
        if value:
            put(value)
        assert answer(mounted / "a/c/0") == bytes([value]) * 4


@contextlib.contextmanager
def readers(count: int, path: Path, end: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that open and read `path` again and again until `end` exists; their last line: errors, successes."""
    started = [
        subprocess.Popen([sys.executable, "-c", READER, path, end], stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        yield started
    finally:
        end.touch()
        for process in started:
            process.wait(20)
            if process.stdout is not None:
                process.stdout.close()


def test_p9_open_never_fails_while_the_chunk_is_there(tmp_path: Path, mount: Callable[..., Mount]) -> None:
    store, size = tmp_path / "s", 65536
    put(store / "zarr.json", array(size))
    put(store / "c/0", b"\1" * size)
    mounted = mount(store)
    with readers(3, mounted / "c/0", tmp_path / "end") as running:
        for value in range(2, 22):
            time.sleep(0.1)
            put(store / "new", bytes([value]) * size)
            (store / "new").rename(store / "c/0")
        (tmp_path / "end").touch()
        said = [process.communicate(timeout=20)[0].splitlines() for process in running]
    assert [lines[:-1] for lines in said] == [[]] * 3
    assert all(int(lines[-1].split()[1]) > 0 for lines in said)


@pytest.mark.parametrize("how", ["in place", "removed and written anew"])
def test_p9_a_rewrite_that_keeps_size_and_mtime_is_seen(tmp_path: Path, mount: Callable[..., Mount], how: str) -> None:
    """`rsync --inplace -t`, `tar x`."""
    chunk = tmp_path / "s/c/0"
    put(tmp_path / "s/zarr.json", array(4096))
    put(chunk, b"\1" * 4096)
    os.utime(chunk, (10**9, 10**9))
    time.sleep(0.05)
    mounted = mount(tmp_path / "s")
    assert answer(mounted / "c/0") == b"\1" * 4096
    if how != "in place":
        chunk.unlink()
    with open(chunk, "r+b" if how == "in place" else "wb") as file:
        file.write(b"\2" * 4096)
    os.utime(chunk, (10**9, 10**9))
    assert answer(mounted / "c/0") == b"\2" * 4096
