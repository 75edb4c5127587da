"""Mounted Icechunk repositories: others read them (P12), commits are seen (P9), no link leads out (P4), few requests."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import icechunk
import icechunk_data
import numpy as np
import pytest
import zarr
from fake_s3 import BUCKET, FakeS3
from icechunk_data import CHANGED, EXPECTED, SMALL, VALUES
from mounting import MountFunction
from observing import errno_of
from paths import DATA
from readers import read


@pytest.fixture(scope="module", params=["installed", "version 2"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("icechunk") / "repository"
    icechunk_data.write_as(request.param, folder)
    return folder


@pytest.fixture
def repository(written: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    shutil.copytree(written, tmp_path / "repository")
    return tmp_path / "repository"


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """Written by the installed icechunk, which can continue it."""
    icechunk_data.write(tmp_path / "grown")
    return tmp_path / "grown"


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    """A repository in version 1 of the format, which every icechunk writes."""
    icechunk_data.write(tmp_path / "version 1", 1)
    return tmp_path / "version 1"


@pytest.mark.parametrize("reader", ["zarr", "tensorstore"])
def test_p12_mounted_and_read_by_others(written: Path, mount: MountFunction, reader: str) -> None:
    tree = mount(written)
    found = read(tree / "branches/main", reader)
    for path, expected in EXPECTED.items():
        np.testing.assert_array_equal(found[path].values, expected, path)
    assert errno_of(lambda: os.stat(tree / "branches/main/sub/b/c/2")) == errno.ENOENT
    assert (tree / "branches/main/sub/b/c/1").read_bytes() == SMALL[3:6].tobytes()
    shown = json.loads((tree / "tags/zarr.json").read_text())
    assert set(shown["attributes"]) == {"v1", "a b"}


def test_p9_a_commit_is_seen_by_the_next_open(grown: Path, mount: MountFunction) -> None:
    tree = mount(grown, "--metadata-ttl", "0")
    chunk, same = tree / "branches/main/a/c/0/0", tree / "branches/main/a/c/1/0"
    before = chunk.read_bytes()
    assert before == np.full((30, 50), 5, np.int32).tobytes()
    inode = same.stat().st_ino
    with open(chunk, "rb") as held:
        repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(grown)))
        session = repository.writable_session("main")
        group: Any = zarr.open_group(session.store)
        group["a"][:30, :50] = 8
        group.create_array("later", data=np.arange(4))
        session.commit("third")
        assert chunk.read_bytes() == np.full((30, 50), 8, np.int32).tobytes()
        assert "later" in os.listdir(tree / "branches/main")
        assert errno_of(lambda: held.seek(0) or held.read()) in (None, errno.ESTALE)
    assert (tree / "tags/a b/a/c/0/0").read_bytes() == before
    assert same.read_bytes() == VALUES[30:60, :50].tobytes()
    assert same.stat().st_ino == inode, "a chunk that both snapshots share is one version"
    repository.create_branch("later", repository.lookup_branch("main"))
    assert "later" in os.listdir(tree / "branches")
    repository.delete_branch("later")
    assert errno_of(lambda: os.listdir(tree / "branches/later/a/c")) == errno.ENOENT


def test_p9_branches_and_tags_of_version_2_that_move_are_seen_by_the_next_open(tmp_path: Path, mount: MountFunction) -> None:
    """`moved.zip`, by icechunk 2.3.0: the repository as it is, with `repo.before`, an older state of the only file that
    changes.
    """
    shutil.unpack_archive(DATA / "icechunk/moved.zip", tmp_path / "r")
    (tmp_path / "r/repo").rename(tmp_path / "after")
    (tmp_path / "r/repo.before").rename(tmp_path / "r/repo")
    tree = mount(tmp_path / "r", "--metadata-ttl", "0")

    def shown() -> dict[str, int]:
        found = [path for path in (*tree.path.glob("branches/*"), *tree.path.glob("tags/*")) if path.is_dir()]
        return {f"{path.parent.name}/{path.name}": (path / "a/c/0").read_bytes()[0] for path in found}

    before = {"branches/main": 1, "branches/other": 1, "branches/short": 1, "tags/gone": 1, "tags/kept": 1}
    assert shown() == before
    commits = sorted(os.listdir(tree / "snapshots"))
    with open(tree / "tags/kept/a/c/0", "rb") as held:
        (tmp_path / "after").rename(tmp_path / "r/repo")
        assert shown() == {"branches/later": 2, "branches/main": 2, "branches/other": 2, "tags/kept": 1, "tags/new": 2}
        assert held.read() == b"\1\1", "a tag's snapshot never changes"
    for name in ("branches/short/a/c/0", "tags/gone/a/c/0"):
        assert errno_of((tree / name).stat) == errno.ENOENT
    assert set(commits) < set(os.listdir(tree / "snapshots"))


def test_p3_refs_of_version_1_with_odd_file_names_are_shown(version_1: Path, mount: MountFunction) -> None:
    """On disk icechunk finds these by their names alone: its own lists show their file names, or leave them out."""
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(version_1)))
    odd = ["日本 2", "a#b", "é>f", "~x[1]"]
    for name in odd:
        repository.create_tag(name, repository.lookup_branch("dev"))
        repository.create_branch(name, repository.lookup_branch("dev"))
    for file in ("tag.a%2Fb", "tag.a%00b", "tag.%zz"):
        shutil.copytree(version_1 / "refs/branch.dev", version_1 / "refs" / file)
    tree = mount(version_1)
    first = (tree / "branches/dev/a/c/1/0").read_bytes()
    assert {*odd, "dev", "main"} < set(os.listdir(tree / "branches")), "and zarr.json"
    assert len(os.listdir(tree / "tags")) == 1 + len(["v1", "a b", *odd]) + 3
    for folder in ("tags", "branches"):
        for name in os.listdir(tree / folder):
            if name not in ("main", "v1", "a b", "zarr.json"):
                assert (tree / folder / name / "a/c/1/0").read_bytes() == first


def test_p4_links_out_of_the_repository_are_refused(repository: Path, tmp_path: Path, mount: MountFunction) -> None:
    (tmp_path / "secret").write_bytes(b"secret" * 10_000)
    for chunk in (repository / "chunks").iterdir():
        chunk.unlink()
        chunk.symlink_to(tmp_path / "secret")
    tree = mount(repository)
    tree.allow("chunks/")
    assert errno_of(lambda: (tree / "branches/main/a/c/1/0").read_bytes()) == errno.EACCES


def test_a_bucket_absent_chunks_cost_no_request(written: Path, mount: MountFunction, server: FakeS3) -> None:
    server.put_tree(written, "repository")
    tree = mount(f"s3://{BUCKET}/repository", *server.options, "--metadata-ttl", "60")
    found = read(tree / "branches/main", "zarr")
    for path, expected in EXPECTED.items():
        np.testing.assert_array_equal(found[path].values, expected, path)
    with server.counted() as requests:
        assert errno_of(lambda: os.stat(tree / "branches/main/sub/b/c/3")) == errno.ENOENT
        subprocess.run(["find", tree / "branches/main"], check=True, capture_output=True)
    assert not requests
    with server.counted() as requests:
        assert (tree / "tags/v1/a/c/0/0").read_bytes() == VALUES[:30, :50].tobytes()
        tree.settle(lambda: server.in_flight)
    own = [request for request in requests if request.key.startswith("repository/chunks")]
    assert len(own) == len({request.key for request in own}), "each chunk once"
    tree.stop()


def test_a_listing_reads_no_manifest(written: Path, mount: MountFunction, server: FakeS3) -> None:
    """A snapshot tells which arrays have manifests. They were read one after the other to learn whether there is a chunk."""
    server.put_tree(written, "repository")
    tree = mount(f"s3://{BUCKET}/repository", *server.options, "--layout", "files,zarr3")
    with server.counted() as requests:
        listed = subprocess.run(
            ["ls", "-lR", tree / "files/branches/main"], check=True, capture_output=True, text=True
        ).stdout
        assert (tree / "zarr3/branches/main/a/c").is_dir()
    assert "deep.npy" in listed
    assert not (tree / "zarr3/branches/main/empty/c").exists()
    asked = [request.key for request in requests if "manifests" in request.key]
    assert len(asked) <= 1, "the scalar's: its only chunk is looked at"
    tree.stop()


def test_a_web_server_needs_no_listing_for_version_2(mount: MountFunction, server: FakeS3, tmp_path: Path) -> None:
    shutil.unpack_archive(DATA / "icechunk/version2.zip", tmp_path)
    server.put_tree(tmp_path, "repository")
    server.listing = False
    tree = mount(server.url("repository"), "--allow-http")
    assert sorted(os.listdir(tree / "branches")) == ["dev", "main", "zarr.json"]
    np.testing.assert_array_equal(read(tree / "branches/main", "zarr")["a"].values, CHANGED)
    tree.stop()


def test_a_web_server_shows_version_1_by_its_names(mount: MountFunction, server: FakeS3, version_1: Path) -> None:
    server.put_tree(version_1, "repository")
    server.listing = False
    tree = mount(server.url("repository"), "--allow-http")
    assert sorted(os.listdir(tree.path)) == ["branches", "snapshots", "tags", "zarr.json"]
    tree.allow("cannot be listed; members can be looked up by name")
    assert errno_of(lambda: os.listdir(tree / "branches")) == errno.EOPNOTSUPP
    assert errno_of(lambda: os.stat(tree / "branches/other")) == errno.ENOENT
    for path in ("branches/main", "tags/a b"):
        np.testing.assert_array_equal(read(tree / path, "zarr")["a"].values, CHANGED)
    tree.stop()


def test_p4_virtual_chunks_are_read_from_allowed_directories_alone(tmp_path: Path, mount: MountFunction) -> None:
    many = {number: ("outside/file.bin", number) for number in range(80)}  # so many that icechunk 2 may compress locations
    source = icechunk_data.virtual(tmp_path, {**many, 90: ("outside/none.bin", 0), 91: ("outside/file.bin", 98)})
    tree = mount(source)
    tree.allow("lies in .*--allow-external")
    assert errno_of(lambda: (tree / "branches/main/v/c/5").read_bytes()) == errno.EACCES
    tree = mount(source, "--allow-external", str(tmp_path / "outside"))
    tree.allow("c/9[01]")
    for number in many:
        assert (tree / f"branches/main/v/c/{number}").read_bytes() == bytes(range(number, number + 4))
    assert errno_of(lambda: (tree / "branches/main/v/c/90").read_bytes()) == errno.EIO, "missing is not absent"
    assert errno_of(lambda: (tree / "branches/main/v/c/91").read_bytes()) == errno.EIO, "too short"
    assert errno_of(lambda: (tree / "branches/main/v/c/99").read_bytes()) == errno.ENOENT


def test_p9_a_virtual_chunk_has_the_present_bytes_of_its_file(tmp_path: Path, mount: MountFunction) -> None:
    source = icechunk_data.virtual(tmp_path, {0: ("outside/file.bin", 10)})
    tree = mount(source, "--allow-external", str(tmp_path / "outside"), "--metadata-ttl", "0")
    chunk = tree / "branches/main/v/c/0"
    assert chunk.read_bytes() == bytes(range(10, 14))
    (tmp_path / "outside/file.bin").write_bytes(bytes(reversed(range(100))))
    assert chunk.read_bytes() == bytes(range(89, 85, -1))
