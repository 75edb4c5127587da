"""Virtual chunks of Icechunk in other stores: below the URLs that the user allows, of the version that was referred to."""

from __future__ import annotations

import errno
import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr
from fake_s3 import BUCKET, FakeS3, Fault
from mounting import MountFunction
from observing import errno_of
from paths import DATA

CONTENT = bytes(range(100))
DATA_URL = f"s3://{BUCKET}/data"


def repository(folder: Path, server: FakeS3, references: dict[int, tuple[str, int, Any]]) -> Path:
    """A repository with an array `v` of 400 bytes in chunks of 4, some of them at URLs: URL, offset, checksum."""
    store = icechunk.s3_store(
        region="us-east-1", endpoint_url=server.endpoint, allow_http=True, force_path_style=True, anonymous=True
    )
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(f"{DATA_URL}/", store))
    created = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder)), config)
    session = created.writable_session("main")
    zarr.create_array(session.store, name="v", shape=(400,), chunks=(4,), dtype="u1", compressors=None)
    for number, (url, offset, checksum) in references.items():
        session.store.set_virtual_ref(
            f"v/c/{number}", url, offset=offset, length=4, checksum=checksum, validate_container=False
        )
    session.commit("virtual")
    return folder


def test_p4_objects_are_read_below_allowed_urls_alone(tmp_path: Path, mount: MountFunction, server: FakeS3) -> None:
    url, options = DATA_URL, server.options
    for key in ("data/file.bin", "data/x y.bin", "database/file.bin"):
        server.put(key, CONTENT, time.time() - 1000)
    names = ["data/file.bin", "data/x%20y.bin", "data/none.bin", "database/file.bin", "data/../secret"]
    places = {number: (f"{url.removesuffix('/data')}/{name}", 10 * number, None) for number, name in enumerate(names)}
    source = repository(tmp_path / "repository", server, {**places, 5: (f"{url}/file.bin", 98, None)})
    tree = mount(source, *options)
    tree.allow(f"lies in .*--allow-external {url}$")
    assert errno_of((tree / "branches/main/v/c/0").read_bytes) == errno.EACCES
    assert not server.requests
    tree = mount(source, "--allow-external", url, *options)
    tree.allow("c/[2345]")
    assert (tree / "branches/main/v/c/0").read_bytes() == CONTENT[:4]
    assert (tree / "branches/main/v/c/1").read_bytes() == CONTENT[10:14]
    assert errno_of((tree / "branches/main/v/c/2").read_bytes) == errno.EIO, "missing is not absent"
    assert errno_of((tree / "branches/main/v/c/3").read_bytes) == errno.EACCES, "a beginning of a name is no directory"
    refused = (errno.EACCES, errno.EOPNOTSUPP)  # icechunk 1 wrote the resolved URL, icechunk 2 what it was given
    assert errno_of((tree / "branches/main/v/c/4").read_bytes) in refused
    assert errno_of((tree / "branches/main/v/c/5").read_bytes) == errno.EIO, "too short"
    with server.counted() as requests:
        assert errno_of((tree / "branches/main/v/c/6").read_bytes) == errno.ENOENT
    assert not requests


def test_p9_an_object_is_of_the_version_that_was_referred_to(tmp_path: Path, mount: MountFunction, server: FakeS3) -> None:
    """ETags are compared as icechunk does, times as S3 does with If-Unmodified-Since."""
    server.put("data/file.bin", CONTENT, time.time() - 1000)
    url, etag = f"{DATA_URL}/file.bin", server.objects["data/file.bin"].etag
    checks = [None, etag, f'"{etag}"', datetime.now(UTC), '"another"', datetime(2001, 1, 1, tzinfo=UTC)]
    references = {number: (url, 10 * number, checksum) for number, checksum in enumerate(checks)}
    source = repository(tmp_path / "repository", server, references)
    allowed = icechunk.containers_credentials({f"{DATA_URL}/": icechunk.s3_anonymous_credentials()})
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(source)), authorize_virtual_chunk_access=allowed)
    array = zarr.open_array(theirs.readonly_session("main").store, path="v", mode="r")
    tree = mount(source, "--allow-external", DATA_URL, "--metadata-ttl", "0", *server.options)
    tree.allow("c/[0-5]")
    chunks = tree / "branches/main/v/c"
    for number in range(4):
        assert (chunks / str(number)).read_bytes() == np.asarray(array[4 * number : 4 * number + 4]).tobytes()
    with pytest.raises(icechunk.IcechunkError, match="has changed"):
        array[16:20]
    assert [errno_of((chunks / str(number)).read_bytes) for number in (4, 5)] == [errno.EIO, errno.EIO]
    server.put("data/file.bin", bytes(reversed(CONTENT)), time.time() + 10)
    assert (chunks / "0").read_bytes() == bytes(reversed(CONTENT))[:4], "what is not checked is as it is now"
    assert [errno_of((chunks / str(number)).read_bytes) for number in (1, 2, 3)] == [errno.EIO] * 3


def test_a_chunk_is_one_request_and_failures_are_errors(tmp_path: Path, mount: MountFunction, server: FakeS3) -> None:
    server.put("data/file.bin", CONTENT, time.time() - 1000)
    source = repository(tmp_path / "repository", server, {n: (f"{DATA_URL}/file.bin", n, None) for n in range(90)})
    server.put_tree(source, "repository")
    tree = mount(f"s3://{BUCKET}/repository", "--allow-external", DATA_URL, "--metadata-ttl", "60", *server.options)
    tree.allow("c/8[0-9]|fsbridge")
    chunks = tree / "branches/main/v/c"
    assert (chunks / "0").read_bytes() == CONTENT[:4]
    with server.counted() as requests:
        for number in range(10, 20):
            assert (chunks / str(number)).read_bytes() == CONTENT[number : number + 4]
            tree.settle(lambda: server.in_flight)  # a request that arrives during its open is sent again
    assert {request.key for request in requests} == {"data/file.bin"}
    ranges = [request.range for request in requests]
    again = sorted({asked for asked in ranges if ranges.count(asked) > 1})
    assert not again, "of what is ahead, too"
    server.fault = lambda request: Fault(status=403) if request.key.startswith("data/") else None
    assert errno_of((chunks / "89").read_bytes) == errno.EACCES
    server.fault = lambda request: None
    assert (chunks / "89").read_bytes() == CONTENT[89:93]


@pytest.mark.parametrize("kind", ["native", "virtual"])
def test_remote_chunks_are_requested_many_at_a_time_and_each_once(
    tmp_path: Path, mount: MountFunction, server: FakeS3, kind: str
) -> None:
    server.put("data/file.bin", CONTENT, time.time() - 1000)
    references = {n: (f"{DATA_URL}/file.bin", n, None) for n in range(90)} if kind == "virtual" else {}
    source = repository(tmp_path / "repository", server, references)
    values = np.frombuffer(b"".join(CONTENT[n : n + 4] for n in range(90)), "u1")
    if kind == "native":
        config = icechunk.RepositoryConfig.default()
        config.inline_chunk_threshold_bytes = 0
        theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(source)), config)
        session = theirs.writable_session("main")
        zarr.open_array(session.store, path="v", mode="r+")[:360] = values
        session.commit("native")
    server.put_tree(source, "repository")
    tree = mount(
        f"s3://{BUCKET}/repository",
        "--allow-external",
        DATA_URL,
        "--layout",
        "files",
        "--metadata-ttl",
        "60",
        *server.options,
    )
    os.listdir(tree / "branches/main")
    stored = ("data/", "repository/chunks/")
    with server.counted() as requests, server.gathered(9, lambda request: request.key.startswith(stored)):
        np.testing.assert_array_equal(np.load(tree / "branches/main/v.npy")[:360], values)
    asked = [(request.key, request.range) for request in requests if request.key.startswith(stored)]
    assert len(set(asked)) == 90
    assert len(asked) <= (92 if kind == "virtual" else 90), (
        "what is asked to see which version an object is may be on its way"
    )
    tree.stop()


def test_locations_may_begin_with_the_name_of_a_container(tmp_path: Path, mount: MountFunction, server: FakeS3) -> None:
    """Written by icechunk 2.3.0, which reads the same. The server that the repository names is not asked."""
    shutil.unpack_archive(DATA / "icechunk/containers.zip", tmp_path / "repository")
    server.put("data/file.bin", CONTENT)
    server.put("data/sub dir/x y.bin", CONTENT)
    tree = mount(tmp_path / "repository", "--allow-external", DATA_URL, *server.options)
    for number, offset in enumerate((10, 20, 2, 4)):
        assert (tree / f"branches/main/v/c/{number}").read_bytes() == CONTENT[offset : offset + 4]
