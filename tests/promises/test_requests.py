"""How many requests each use of a remote mount takes. Not here: faults, secrets, messages (`test_remote.py`)."""

from __future__ import annotations

import errno
import itertools
import json
import struct
import subprocess
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import zarr
from fake_s3 import BUCKET, FakeS3
from mounting import Mount
from numpy.typing import NDArray
from remote_mounts import VALUES, MountFunction, chunk, described, n5, serve_arrays
from zarr.core.chunk_key_encodings import ChunkKeyEncodingParams

from fsbridge.config import Config, Remote
from fsbridge.unmounted import VirtualTree


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeS3]:
    server = serve_arrays(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def v3(server: FakeS3, mount: MountFunction) -> Iterator[Mount]:
    """The Zarr v3 store, mounted from its bucket."""
    mounted = mount(f"s3://{BUCKET}/v3", *server.options)
    yield mounted
    mounted.stop()  # before the server


@pytest.mark.parametrize(("version", "path", "first"), [(3, "raw/c/0/1", 2), (2, "raw/c/0/1", 2), (3, "shards/c/0/1", 2)])
def test_requests_of_a_mount_and_of_a_chunk_by_its_path(
    server: FakeS3, mount: MountFunction, version: int, path: str, first: int
) -> None:
    with server.counted() as requests:
        mounted = mount(f"s3://{BUCKET}/v{version}", *server.options, "--metadata-ttl", "60")
    assert len(requests) <= 3, described(requests)
    with server.counted() as requests:
        assert (mounted / path).read_bytes() == chunk(0, 1)
    assert len(requests) <= first, described(requests)
    mounted.settle(lambda: server.in_flight)
    with server.counted() as requests:
        assert (mounted / path.replace("c/0/1", "c/3/3")).read_bytes() == chunk(3, 3)
    # The chunk (a small shard comes with its index); what is read ahead.
    own = [request for request in requests if request.key.endswith(("c/3/3", "3.3", "c/1/1"))]
    assert len(own) <= 1, described(requests)
    mounted.stop()


@pytest.mark.parametrize("separator", [".", "/"])
def test_directories_of_chunks_are_never_listed_for_the_sake_of_a_chunk(
    separator: Literal[".", "/"], server: FakeS3, tmp_path: Path
) -> None:
    """A dotted array has all its chunks in one directory: a listing of that would have a page for each thousand."""
    encoding: ChunkKeyEncodingParams = {"name": "v2", "separator": separator}
    group = zarr.open_group(tmp_path / "deep", mode="w", zarr_format=2).create_group("below")
    group.create_array("raw", data=VALUES, chunks=(16, 16), chunk_key_encoding=encoding)
    server.put_tree(tmp_path / "deep", "deep")
    remote = Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint, listing_ttl=0.0)
    with (
        VirtualTree(Config(f"s3://{BUCKET}/deep", "", metadata_ttl=0.0, remote=remote)) as tree,
        server.counted() as requests,
    ):
        for path in ("c/0/1", "c/3/3", "c/2"):
            tree.stat(f"below/raw/{path}")
    assert not [one for one in described(requests) if one.startswith("LIST deep/below/raw")], described(requests)


@pytest.fixture
def large(server: FakeS3, tmp_path: Path) -> NDArray[np.int32]:
    """A Zarr v3 store with the array `a` in shards of 1 MiB, 16 chunks each, on the server: what is in it."""
    noise = np.random.default_rng(0).integers(0, 2**31, (1024, 1024), dtype="<i4")
    group = zarr.open_group(tmp_path / "large", mode="w", zarr_format=3)
    group.create_array("a", data=noise, chunks=(128, 128), shards=(512, 512))
    server.put_tree(tmp_path / "large", "large")
    return noise


def test_requests_of_a_range_in_a_large_shard(server: FakeS3, large: NDArray[np.int32], mount: MountFunction) -> None:
    """Its index and the bytes; read in order, the bytes that lie together come together, and each once."""
    mounted = mount(f"s3://{BUCKET}/large", *server.options, "--metadata-ttl", "60")
    with server.counted() as requests:
        assert (mounted / "a/c/0/0").read_bytes() == large[:128, :128].tobytes()
    assert len(requests) <= 3, described(requests)
    with server.counted() as requests:
        assert (mounted / "a/c/4/4").read_bytes() == large[512:640, 512:640].tobytes()
    assert len([request for request in requests if request.key.endswith("c/1/1")]) <= 2, described(requests)
    mounted.settle(lambda: server.in_flight)
    with server.counted() as requests:
        for i in range(8):
            for j in range(8):
                tile = large[128 * i : 128 * i + 128, 128 * j : 128 * j + 128]
                assert (mounted / f"a/c/{i}/{j}").read_bytes() == tile.tobytes()
            mounted.settle(lambda: server.in_flight)  # on a busy machine the reader overtakes threads that fetch ahead
    assert len(requests) <= 20, described(requests)  # of 64 chunks in four shards
    mounted.stop()


@pytest.mark.parametrize("immutable", [True, False])
def test_after_a_restart_shards_and_documents_come_from_the_block_cache(
    server: FakeS3, large: NDArray[np.int32], tmp_path: Path, mount: MountFunction, immutable: bool
) -> None:
    options = [*server.options, "--block-cache", str(tmp_path / "blocks"), *(["--immutable"] if immutable else [])]
    every = [(i, j) for i in range(8) for j in range(8)]
    for restart in range(5):  # blocks are written in the background, and those that were not in time are fetched again
        mounted = mount(f"s3://{BUCKET}/large", *options)
        with server.counted() as requests:
            for i, j in every:
                tile = large[128 * i : 128 * i + 128, 128 * j : 128 * j + 128]
                assert (mounted / f"a/c/{i}/{j}").read_bytes() == tile.tobytes()
            mounted.settle(lambda: server.in_flight)
        time.sleep(0.5)
        mounted.stop()
        fetched = [request for request in requests if immutable or "if-none-match" not in request.headers]
        if restart and not fetched:
            return
    pytest.fail(f"not in the block cache: {described(fetched)}")


def test_a_whole_array_is_fetched_many_chunks_at_a_time_and_each_once(server: FakeS3, mount: MountFunction) -> None:
    mounted = mount(f"s3://{BUCKET}/v3", *server.options, "--layout", "files")
    with server.counted() as requests, server.gathered(9, lambda request: "/c/" in request.key):
        assert np.array_equal(np.load(mounted / "raw.npy"), VALUES)
    asked = [request.key for request in requests if "/c/" in request.key and request.kind == "GET"]
    assert len(asked) == len(set(asked)) == 16, described(requests)
    mounted.stop()


def test_an_arrays_document_and_its_groups_are_looked_at_at_a_time(server: FakeS3, mount: MountFunction) -> None:
    """Axes are told by the groups above an array."""
    mounted = mount(f"s3://{BUCKET}/v3", *server.options, "--layout", "files", "--metadata-ttl", "0.3")
    time.sleep(0.4)
    with server.gathered(2, lambda request: request.key in ("v3/zarr.json", "v3/raw/zarr.json")):
        assert (mounted / "raw.npy").stat().st_size == VALUES.nbytes + 128
    mounted.stop()


def test_requests_of_an_arrays_file(server: FakeS3, mount: MountFunction) -> None:
    """`raw.npy` may be an array of its own: three requests, one after the other, told that it is none."""
    mounted = mount(f"s3://{BUCKET}/v3", *server.options, "--layout", "files", "--metadata-ttl", "60")
    with server.counted() as requests:
        np.testing.assert_array_equal(np.load(mounted / "raw.npy"), VALUES)
    assert described(requests)[0] == "GET v3/raw/zarr.json "
    assert not [request for request in requests if "npy" in request.key], described(requests)
    with pytest.raises(FileNotFoundError):
        (mounted / "other.npy").stat()
    new = server.objects["v3/raw/zarr.json"].data
    server.put("v3/new.raw/zarr.json", new, 1e9)  # which the mount has not listed
    assert (mounted / "new.raw.npy").stat().st_size == VALUES.nbytes + 128
    mounted.stop()


def test_requests_of_an_n5_store(server: FakeS3, tmp_path: Path, mount: MountFunction) -> None:
    """The question if blocks hold varying numbers of elements is not asked before one is read."""
    n5(tmp_path, server)
    mounted = mount(f"s3://{BUCKET}/x.n5", *server.options, "--metadata-ttl", "60")
    with server.counted() as requests:
        assert (mounted / "a/c/1/2").read_bytes() == VALUES[16:32, 32:48].T.astype(">i4").tobytes()
    assert described(requests) == ["GET x.n5/a/attributes.json ", "GET x.n5/a/1/2 "]
    mounted.stop()


def test_n5_blocks_of_varying_length_are_noticed_when_one_is_read(
    server: FakeS3, tmp_path: Path, mount: MountFunction
) -> None:
    document = {"dimensions": [4, 4], "blockSize": [4, 4], "dataType": "uint8", "compression": {"type": "raw"}}
    server.put("v.n5/attributes.json", b'{"n5": "2.0.0"}', 1e9)
    server.put("v.n5/a/attributes.json", json.dumps(document).encode(), 1e9)
    server.put("v.n5/a/0/0", struct.pack(">HHIII", 1, 2, 4, 4, 3) + b"abc", 1e9)
    mounted = mount(f"s3://{BUCKET}/v.n5", *server.options)
    mounted.allow("varying numbers")
    deadline = time.monotonic() + 20
    while True:
        try:
            found = (mounted / "a/c/0/0").read_bytes()
            break
        except OSError as error:
            assert error.errno == errno.ESTALE  # noqa: PT017 - once, and never wrong bytes
            assert time.monotonic() < deadline
    assert found == b"abc"
    mounted.stop()


@pytest.mark.parametrize(("version", "path"), [(3, "raw/c/3/3"), (2, "raw/c/3/3"), (3, "shards/c/3/3")])
def test_a_chunk_with_old_metadata_costs_one_conditional_request_more(
    server: FakeS3, mount: MountFunction, version: int, path: str
) -> None:
    """One request, for the document that describes the array; its attributes were not asked for."""
    mounted = mount(f"s3://{BUCKET}/v{version}", *server.options)
    assert (mounted / path.replace("3/3", "0/1")).read_bytes() == chunk(0, 1)
    time.sleep(1.3)
    begun = time.monotonic()
    with server.counted() as requests:
        assert (mounted / path).read_bytes() == chunk(3, 3)
    again = int(time.monotonic() - begun)  # on a slow machine the lifetime may end meanwhile
    assert len(requests) <= 2 + again, described(requests)
    asked = [request for request in requests if "if-none-match" in request.headers]
    assert 1 <= len(asked) <= 1 + again, described(requests)
    mounted.stop()


def test_p9_attributes_of_zarr_v2_are_requested_only_when_they_are_read(server: FakeS3, mount: MountFunction) -> None:
    """One request is not made after the other, and a change is seen."""
    server.put("v2/raw/.zattrs", b'{"a": 1}', 1e9)
    mounted = mount(f"s3://{BUCKET}/v2", *server.options, "--metadata-ttl", "0.3")

    def attributes() -> object:
        return json.loads((mounted / "raw/zarr.json").read_bytes())["attributes"]

    assert (mounted / "raw/c/0/1").read_bytes() == chunk(0, 1)
    inode = (mounted / "raw/c/0/1").stat().st_ino
    assert attributes() == {"a": 1}
    with server.gathered(2, lambda request: request.key in ("v2/raw/.zarray", "v2/raw/.zattrs")):
        time.sleep(0.4)
        assert attributes() == {"a": 1}
    assert (mounted / "raw/c/0/1").stat().st_ino == inode, "nothing has changed"
    server.put("v2/raw/.zattrs", b'{"a": 2, "_ARRAY_DIMENSIONS": ["y", "x"]}', 2e9)
    time.sleep(0.4)
    assert attributes() == {"a": 2, "_ARRAY_DIMENSIONS": ["y", "x"], "_FillValue": 0}
    assert json.loads((mounted / "raw/zarr.json").read_bytes())["dimension_names"] == ["y", "x"]
    assert (mounted / "raw/zarr.json").stat().st_mtime == 2e9
    del server.objects["v2/raw/.zattrs"]
    time.sleep(0.4)
    assert attributes() == {}
    assert (mounted / "raw/c/3/3").read_bytes() == chunk(3, 3)
    mounted.stop()


@pytest.mark.parametrize("read_ahead", [True, False])
def test_a_listing_requests_no_attributes_of_zarr_v2_without_read_ahead(server: FakeS3, read_ahead: bool) -> None:
    server.put("v2/raw/.zattrs", b'{"a": 1}', 1e9)
    remote = Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint)
    with VirtualTree(Config(f"s3://{BUCKET}/v2", "", read_ahead=read_ahead, remote=remote)) as tree:
        assert "raw" in [member.name for member in tree.list()]
        assert tree.stat("raw/c/0/1").size == len(chunk(0, 1))
    assert ("v2/raw/.zattrs" in [request.key for request in server.requests]) == read_ahead


def test_absent_attributes_of_old_metadata_cost_one_request(server: FakeS3, mount: MountFunction) -> None:
    """They were looked for as a directory, too."""
    server.objects.pop("v2/raw/.zattrs", None)
    mounted = mount(f"s3://{BUCKET}/v2", *server.options)
    assert (mounted / "raw/c/0/1").read_bytes() == chunk(0, 1)
    time.sleep(1.2)
    begun = time.monotonic()
    with server.counted() as requests:
        assert (mounted / "raw/c/3/3").read_bytes() == chunk(3, 3)
    again = int(time.monotonic() - begun)  # on a slow machine the lifetime may end meanwhile
    assert len([request for request in requests if "zattrs" in request.key]) <= 1 + again, described(requests)
    mounted.stop()


def test_requests_of_find(server: FakeS3, v3: Mount) -> None:
    for i in range(100):
        for j in range(100):
            server.put(f"v3/many/c/{i}/{j}", b"x", 1e9)
    document = server.objects["v3/raw/zarr.json"].data.replace(b"64", b"1600")
    server.put("v3/many/zarr.json", document)
    with server.counted() as requests:
        found = subprocess.run(["find", v3 / "many", "-type", "f"], capture_output=True, text=True, check=True).stdout
    assert len(found.splitlines()) == 10_001
    asked = [request for request in requests if "if-none-match" not in request.headers]  # such a one each second
    assert len(asked) <= 12, described(requests)
    with server.counted() as requests:
        subprocess.run(["find", v3 / "many", "-type", "f"], capture_output=True, check=True)
    assert not [request for request in requests if request.kind == "LIST"]


def test_a_walk_over_many_arrays_waits_for_many_at_once(server: FakeS3, mount: MountFunction) -> None:
    document = server.objects["v3/raw/zarr.json"].data
    server.put("many/zarr.json", server.objects["v3/zarr.json"].data)
    for number in range(200):
        server.put(f"many/a{number}/zarr.json", document, 1e9)
        server.put(f"many/a{number}/c/0/0", chunk(0, 0), 1e9)
    mounted = mount(f"s3://{BUCKET}/many", *server.options)
    begun = itertools.count()  # the first visits are no walk yet
    with (
        server.counted() as requests,
        server.gathered(9, lambda request: "/a" in request.key and next(begun) >= 20),
    ):
        found = subprocess.run(["find", mounted.path, "-maxdepth", "2"], capture_output=True, text=True, check=True).stdout
    assert len(found.splitlines()) == 2 + 3 * 200
    listings = [request for request in requests if request.kind == "LIST"]
    assert len(listings) <= 2, described(listings)
    with server.counted() as requests:  # and all chunks: not one listing after the other
        found = subprocess.run(["find", mounted.path, "-type", "f"], capture_output=True, text=True, check=True).stdout
    assert len(found.splitlines()) == 1 + 2 * 200
    listings = [request for request in requests if request.kind == "LIST"]
    assert len(listings) <= 8, described(listings)
    mounted.stop()


@pytest.mark.parametrize("version", [2, 3])
def test_requests_of_find_over_many_arrays_with_consolidated_metadata(
    version: Literal[2, 3], server: FakeS3, tmp_path: Path, mount: MountFunction
) -> None:
    group = zarr.open_group(tmp_path / "cons", mode="w", zarr_format=version)
    for number in range(150):
        group.create_array(f"a{number}", shape=(4,), chunks=(4,), dtype="<i4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is no part of the specification
        zarr.consolidate_metadata(str(tmp_path / "cons"), zarr_format=version)
    server.put_tree(tmp_path / "cons", "cons")
    mounted = mount(f"s3://{BUCKET}/cons", *server.options, "--metadata-ttl", "60")
    with server.counted() as requests:
        found = subprocess.run(["find", mounted.path, "-maxdepth", "2"], capture_output=True, text=True, check=True).stdout
    assert len(found.splitlines()) == 2 + 3 * 150
    assert len(requests) <= 8, described(
        requests
    )  # one array, one listing, and what is on its way when it looks like a walk
    assert [request.key for request in requests if ".zmetadata" in request.key] in ([], ["cons/.zmetadata"])
    mounted.stop()
