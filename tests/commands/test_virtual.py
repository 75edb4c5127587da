"""The tree without a mount is the mount's: names, kinds, sizes, bytes, links, errors; for every writer's stores."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from descriptors import list_descriptors
from fake_s3 import FakeS3
from mounting import MountFunction
from source_places import config, numbers, remote, tree_of, upload, write_all, write_each

from fsbridge.config import Remote, parse_place
from fsbridge.errors import FsbridgeError, NotFound, SetupError
from fsbridge.unmounted import VirtualTree, open_file


def tree_in_process(tree: VirtualTree) -> dict[str, bytes | None]:
    """Return the same as `tree_of` for a mount."""
    found: dict[str, bytes | None] = {}
    for path, member in tree.walk():
        found[path] = b"-> " + os.fsencode(tree.target(path)) if member.attrs.kind == "link" else None
        if member.attrs.kind == "file":
            with open_file(member.node()) as listed, tree.open(path) as file:
                assert listed.size == file.size == tree.stat(path).size
                found[path] = b"".join(bytes(file.read(at, at + 5000)) for at in range(0, file.size, 5000))
    return found


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def each(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_each(tmp_path_factory.mktemp("each"))


def test_p12_the_virtual_tree_is_that_of_the_mount_for_every_writer(every: Path, mount: MountFunction) -> None:
    mounted = mount(every, "--layout", "zarr2,files")
    mounted.allow("is left out of the layout")
    with VirtualTree(config(every, "zarr2,files")) as tree:
        found = tree_in_process(tree)
    assert found == tree_of(mounted)
    assert len(found) > 1000


def test_p12_the_virtual_tree_is_that_of_the_mount_from_every_place(
    each: dict[str, Path], server: FakeS3, mount: MountFunction
) -> None:
    layout = "zarr3,files"
    places: list[tuple[Path | str, Remote | None]]
    places = [*((path, None) for path in each.values()), *((url, remote(server)) for url in upload(server, each).values())]
    for place, options in places:
        mounted = mount(place, "--layout", layout, *(server.options if options else []))
        with VirtualTree(config(place, layout, options)) as tree:
            assert tree_in_process(tree) == tree_of(mounted), place
        mounted.stop()


def test_errors_are_those_of_the_mount(each: dict[str, Path], mount: MountFunction) -> None:
    (each["zarr3"] / "a/b/c/1/1/0").write_bytes(b"damage")
    try:
        mounted = mount(each["zarr3"])
        mounted.allow("a/b")
        with VirtualTree(config(each["zarr3"])) as tree:
            for path in ("nope", "a/b/c/9", "a/b/c/01", "zarr.json/x", "a/b/c", "a/b/c/1/1/0"):
                with pytest.raises(OSError, match=r".") as caught:
                    (mounted / path).read_bytes()
                with pytest.raises(FsbridgeError) as raised, tree.open(path) as file:
                    file.read(0, file.size)
                assert raised.value.errno == caught.value.errno, path
            with pytest.raises(FsbridgeError) as raised:
                list(tree.list("zarr.json"))
            assert raised.value.errno == errno.ENOTDIR
    finally:
        zarr.open_array(each["zarr3"] / "a/b")[...] = numbers()


def test_p9_an_open_sees_the_store_as_of_then(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a.zarr", shape=(4,), chunks=(4,), dtype="<i4", compressors=None)
    array[...] = 1
    with VirtualTree(config(tmp_path / "a.zarr")) as tree:
        for value in (1, 2):
            array[...] = value
            with tree.open("c/0") as file:
                assert bytes(file.read(0, 16)) == np.full(4, value, "<i4").tobytes()
        (tmp_path / "a.zarr/c/0").unlink()
        with pytest.raises(NotFound):
            tree.open("c/0")
        array.resize((8,))
        array[...] = 3
        with tree.open("c/1") as file:
            assert bytes(file.read(0, 16)) == np.full(4, 3, "<i4").tobytes()


def test_links_are_followed_within_the_tree_only(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("g/data", data=[1, 2, 3])
        file["soft"] = h5py.SoftLink("/g/data")
        file["round"] = h5py.SoftLink("/round")
    with VirtualTree(config(tmp_path / "a.h5")) as tree:
        assert tree.stat("soft", follow=False).kind == "link"
        assert tree.stat("soft").kind == "directory"
        with tree.open("soft/zarr.json") as one, tree.open("soft/../data/zarr.json") as other:
            assert bytes(one.read(0, one.size)) == bytes(other.read(0, other.size))
            assert json.loads(bytes(one.read(0, one.size)))["shape"] == [3]
        with pytest.raises(FsbridgeError) as raised:
            tree.stat("round")
        assert raised.value.errno == errno.ELOOP


def test_many_threads_read_at_a_time(each: dict[str, Path]) -> None:
    with VirtualTree(config(each["sharded"], "files")) as tree:
        expected = tree_in_process(tree)
        found: list[object] = []

        def read() -> None:
            try:
                found.append(tree_in_process(tree))
            except BaseException as error:
                found.append(error)

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [expected] * 8


def test_p11_a_closed_tree_leaves_no_descriptors(each: dict[str, Path]) -> None:
    for name in ("zarr3", "zarr2", "n5", "zarr3 zip"):
        with VirtualTree(config(each[name], "files")) as tree:
            tree_in_process(tree)
        assert list_descriptors(each[name]) == []


def test_what_is_no_store_is_said_as_by_mount(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no such file or directory"):
        VirtualTree(config(tmp_path / "nope"))
    zarr.create_group(tmp_path / "a.zarr")
    with pytest.raises(SetupError, match="unknown layout"):
        VirtualTree(config(tmp_path / "a.zarr", "n6"))


@pytest.mark.parametrize(
    ("text", "source", "path"),
    [
        ("a.zarr", "a.zarr", ""),
        ("a.zarr//", "a.zarr", ""),
        ("a.zarr//b/c", "a.zarr", "b/c"),
        ("/x/a.zarr//b", "/x/a.zarr", "b"),
        ("s3://bucket/a.zarr", "s3://bucket/a.zarr", ""),
        ("s3://bucket/a.zarr//b/zarr.json", "s3://bucket/a.zarr", "b/zarr.json"),
        ("//a", "//a", ""),
        ("file:///a.zarr", "file:///a.zarr", ""),
        ("file:///a.zarr//b", "file:///a.zarr", "b"),
    ],
)
def test_a_place_is_a_source_and_a_path(text: str, source: str, path: str) -> None:
    assert parse_place(text) == (source, path)
