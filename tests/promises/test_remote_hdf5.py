"""HDF5 and NWB files at URLs through real mounts: as on a local disk, alone and beside other stores, with every layout."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from fake_s3 import BUCKET, FakeS3, Fault
from mounting import Mount, fsbridge
from nwb_data import expected_arrays, unpack
from readers import read
from waiting import until

MountFunction = Callable[..., Mount]
VALUES = np.arange(300 * 500, dtype="<i4").reshape(300, 500)
PLAIN = np.tile(VALUES[::-1], (6, 1))
"""More than what comes with the first request."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection of one HDF5 file, an NWB file, Zarr stores, and a file that is no store."""
    folder = tmp_path_factory.mktemp("stores")
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("raw", data=VALUES, chunks=(100, 100), compression="gzip")
        file.create_dataset("group/plain", data=PLAIN)
        file.create_dataset("text", data=["one", "two"], dtype=h5py.string_dtype())
        file["group"].attrs["unit"] = "mV"
    (nwb,) = unpack("hdf5", folder / "deeper").rglob("*.nwb")
    shutil.move(nwb, folder / "y.nwb")
    shutil.rmtree(folder / "deeper")
    zarr.open_group(folder / "z.zarr", mode="w", zarr_format=3).create_array("raw", data=VALUES, chunks=(100, 100))
    shutil.copy(folder / "x.h5", folder / "by magic.mat")
    (folder / "notes.txt").write_text("no store")
    (folder / "broken.h5").write_bytes(b"no HDF5 file")
    return folder


@pytest.fixture
def server(folder: Path) -> Iterator[FakeS3]:
    server = FakeS3()
    server.put_tree(folder, "stores")
    yield server
    server.stop()


@pytest.fixture(params=["s3", "http"])
def place(request: pytest.FixtureRequest, server: FakeS3) -> tuple[str, list[str]]:
    """The URL of the stores by each protocol, and the options to reach it."""
    return (f"s3://{BUCKET}/stores", server.options) if request.param == "s3" else (server.url("stores"), [])


def await_absent(path: Path) -> None:
    """Until `path`, which a new version of its file lacks, is gone: what was looked up is believed for a second or two."""
    until(lambda: not path.exists())


def contents(path: Path) -> dict[str, bytes]:
    return {str(found.relative_to(path)): found.read_bytes() for found in sorted(path.rglob("*")) if found.is_file()}


def test_p12_a_file_at_a_url_is_what_it_is_on_a_disk(
    folder: Path, place: tuple[str, list[str]], mount: MountFunction
) -> None:
    url, options = place
    for name in ("x.h5", "y.nwb"):
        local, remote = mount(folder / name), mount(f"{url}/{name}", *options)
        found = contents(remote.path)
        assert len(found) > 10
        assert found == contents(local.path)
        remote.stop()
        local.stop()


def test_p12_zarr_python_and_pynwb_agree(folder: Path, server: FakeS3, mount: MountFunction) -> None:
    mounted = mount(f"s3://{BUCKET}/stores/y.nwb", *server.options)
    found = read(mounted.path, "zarr")
    arrays = expected_arrays("hdf5")
    assert arrays
    for name, expected in arrays.items():
        np.testing.assert_array_equal(found[name.strip("/")].values, expected)


@pytest.mark.parametrize("layout", ["zarr2", "n5", "files"])
def test_every_layout_shows_it(folder: Path, server: FakeS3, mount: MountFunction, layout: str) -> None:
    local = mount(folder / "x.h5", "--layout", layout)
    remote = mount(f"s3://{BUCKET}/stores/x.h5", *server.options, "--layout", layout)
    for mounted in (local, remote):
        mounted.allow("/text is left out")
    assert contents(remote.path) == contents(local.path)
    if layout == "files":
        np.testing.assert_array_equal(np.load(remote / "raw.npy"), VALUES)
        with h5py.File(io.BytesIO((remote / "x.h5").read_bytes())) as file:  # by itself it would hold up the server's thread
            np.testing.assert_array_equal(file["group/plain"], PLAIN)


def test_p4_p12_data_in_other_files_need_permission_as_on_a_disk(
    server: FakeS3, mount: MountFunction, tmp_path: Path
) -> None:
    for number in range(3):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file.create_dataset("x", data=VALUES + number, chunks=(100, 100), compression="gzip")
    with h5py.File(tmp_path / "master.h5", "w") as file:
        layout = h5py.VirtualLayout((3, 300, 500), "<i4")
        for number in range(3):
            layout[number] = h5py.VirtualSource(f"{number}.h5", "x", (300, 500))
        file.create_virtual_dataset("all", layout)
    server.put_tree(tmp_path, "detector")
    url = f"s3://{BUCKET}/detector"
    remote = mount(f"{url}/master.h5", *server.options)
    remote.allow("--allow-external s3://bucket/detector permits")
    assert sorted(os.listdir(remote.path)) == ["all", "zarr.json"]
    with pytest.raises(PermissionError):
        os.listdir(remote / "all")
    remote.stop()
    local = mount(tmp_path / "master.h5", "--allow-external", tmp_path)
    remote = mount(f"{url}/master.h5", *server.options, "--allow-external", url)
    assert contents(remote.path) == contents(local.path)
    np.testing.assert_array_equal(zarr.open_array(remote / "all", mode="r")[2], VALUES + 2)


def test_members_of_a_collection_at_a_url(folder: Path, server: FakeS3, mount: MountFunction) -> None:
    mounted = mount(f"s3://{BUCKET}/stores", *server.options)
    mounted.allow("broken.h5")
    assert set(os.listdir(mounted.path)) == {"zarr.json", "x.h5", "y.nwb", "z.zarr", "by magic.mat", "broken.h5"}
    for name in ("x.h5", "by magic.mat", "z.zarr"):
        np.testing.assert_array_equal(zarr.open_array(mounted / name / "raw", mode="r")[...], VALUES)
    with pytest.raises(OSError, match="Input/output error"):
        os.listdir(mounted / "broken.h5")
    with pytest.raises(FileNotFoundError):
        os.stat(mounted / "notes.txt")
    assert json.loads((mounted / "x.h5/group/zarr.json").read_bytes())["attributes"]["unit"] == "mV"


def test_a_listing_of_many_files_opens_none(server: FakeS3, mount: MountFunction) -> None:
    data = server.objects["stores/x.h5"].data
    for number in range(200):
        server.put(f"many/n{number}.h5", data, 1e9 + number)
    with server.counted() as requests:
        mounted = mount(f"s3://{BUCKET}/many", *server.options)
        assert len(os.listdir(mounted.path)) == 201
    assert len(requests) <= 4, [f"{request.kind} {request.key}" for request in requests]


def test_requests_of_a_mount_and_of_a_chunk(server: FakeS3, mount: MountFunction, tmp_path: Path) -> None:
    """400 datasets are listed by what came with the first request; a chunk is one more."""
    with h5py.File(tmp_path / "l.h5", "w") as file:
        for number in range(400):
            file.create_dataset(f"g{number % 20}/d{number}", data=np.arange(100.0))
        file.create_dataset("big", data=np.zeros((60, 100_000), "u1"), chunks=(1, 100_000))
    server.put("l.h5", (tmp_path / "l.h5").read_bytes(), 1e9)
    with server.counted() as requests:
        mounted = mount(f"s3://{BUCKET}/l.h5", *server.options)
        shown = subprocess.run(["find", mounted.path, "-name", "zarr.json"], capture_output=True, text=True, check=True)
    assert len(shown.stdout.splitlines()) == 422
    ranged = [request.range for request in requests if request.range]
    assert len(ranged) <= 12, ranged
    with server.counted() as requests:
        assert (mounted / "big/c/30/0").read_bytes() == bytes(100_000)
    assert [request for request in requests if request.range]


def test_p9_a_replaced_file_is_read_again_except_through_open_files(
    server: FakeS3, mount: MountFunction, tmp_path: Path
) -> None:
    mounted = mount(f"s3://{BUCKET}/stores/x.h5", *server.options)
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("raw", data=VALUES[::-1], chunks=(100, 100))
    with open(mounted / "group/plain/c/0/0", "rb", buffering=0) as held:
        server.put("stores/x.h5", path.read_bytes(), 2e9)
        await_absent(mounted / "group")
        with contextlib.suppress(OSError):  # Stale, unless all of it was read when it was opened
            assert held.read() == PLAIN.tobytes()
    np.testing.assert_array_equal(zarr.open_array(mounted / "raw", mode="r")[...], VALUES[::-1])
    mounted.allow("replaced|changed")


@pytest.mark.parametrize("status", [403, 503])
def test_p3_p8_a_server_that_fails_makes_errors_and_recovers(server: FakeS3, mount: MountFunction, status: int) -> None:
    mounted = mount(f"s3://{BUCKET}/stores/x.h5", *server.options)
    mounted.allow("x.h5")
    server.fault = lambda request: Fault(status=status)
    with pytest.raises(OSError, match="Permission denied" if status == 403 else "Input/output error"):
        (mounted / "group/plain/c/0/0").read_bytes()
    server.fault = lambda request: None
    assert (mounted / "group/plain/c/0/0").read_bytes() == PLAIN.tobytes()


def test_p11_a_warm_block_cache_needs_no_server(server: FakeS3, mount: MountFunction, tmp_path: Path) -> None:
    options = [*server.options, "--immutable", "--block-cache", str(tmp_path / "blocks")]
    first = mount(f"s3://{BUCKET}/stores/y.nwb", *options)
    expected = contents(first.path)
    first.stop()
    for _ in range(5):  # blocks are written in the background, and those that were not in time are fetched again
        with server.counted() as requests:
            again = mount(f"s3://{BUCKET}/stores/y.nwb", *options)
            assert contents(again.path) == expected
        again.stop()
        if not requests:
            break
    assert not requests, [request.range for request in requests]


def test_info_of_a_file_at_a_url(server: FakeS3, place: tuple[str, list[str]]) -> None:
    url, options = place
    shown = fsbridge("info", *options, f"{url}/x.h5")
    assert shown.returncode == 0, shown.stderr
    assert "x.h5: hdf5" in shown.stdout
    assert "/group/plain" in shown.stdout
    assert "15/15" in shown.stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broken.h5", "HDF5 cannot open the file"),
        ("none.h5", "there is no such object, and nothing below it"),
        ("notes.txt", "neither a store nor an HDF5 or zip file"),
    ],
)
def test_what_cannot_be_opened_is_one_line(server: FakeS3, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "mnt").mkdir()
    done = fsbridge("mount", *server.options, f"s3://{BUCKET}/stores/{name}", tmp_path / "mnt")
    assert done.returncode != 0
    assert text in done.stderr


@pytest.mark.parametrize("generation", ["zarr2", "zarr3"])
def test_p12_nwb_in_zarr_at_a_url_is_what_it_is_on_a_disk(
    server: FakeS3, mount: MountFunction, tmp_path: Path, generation: str
) -> None:
    """Links are relative symbolic links there, too."""
    stores = [path for path in unpack(generation, tmp_path / "stores").rglob("*") if (path / ".specloc").exists()]
    found = sorted({path.parent for path in (tmp_path / "stores").rglob("*") if path.name in (".zgroup", "zarr.json")})
    root = min(stores or found, key=lambda path: len(path.parts))
    server.put_tree(root, "nwb")
    local, remote = mount(root), mount(f"s3://{BUCKET}/nwb", *server.options)
    for mounted in (local, remote):
        mounted.allow("is not followed")
    assert contents(remote.path) == contents(local.path)

    def links(root: Path) -> dict[str, str]:
        return {str(path.relative_to(root)): os.readlink(path) for path in root.rglob("*") if path.is_symlink()}

    assert links(local.path)
    assert links(remote.path) == links(local.path)


def test_a_directory_on_a_web_server_may_have_the_name_of_a_file(folder: Path, server: FakeS3, mount: MountFunction) -> None:
    """The server sends a page for it, which is no HDF5 file."""
    server.put_tree(folder / "z.zarr", "web/z.nwb")
    server.put("web/z.nwb", b"<html>Index of z.nwb</html>")
    mounted = mount(server.url("web/z.nwb/raw").removesuffix("/raw"))
    np.testing.assert_array_equal(zarr.open_array(mounted / "raw", mode="r")[...], VALUES)
