"""Icechunk repositories that icechunk itself wrote: both versions of the format, on disk, in a bucket, damaged, growing."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import icechunk
import icechunk_data
import numpy as np
import pytest
import zarr
from fake_s3 import BUCKET, FakeS3
from hypothesis import given, settings
from hypothesis import strategies as st
from icechunk_data import CHANGED, EXPECTED, METADATA, VALUES
from model_reader import read_array
from mounting import fsbridge
from paths import DATA

from fsbridge.config import MIB, Config, Remote
from fsbridge.decoded import DecodedArray
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Stale, TooLarge
from fsbridge.formats.icechunk import IcechunkSource, flatbuffers
from fsbridge.formats.icechunk.flatbuffers import Table
from fsbridge.formats.icechunk.manifests import Manifest, Native, Virtual, VirtualObjects
from fsbridge.formats.icechunk.records import (
    HEADER_BYTES,
    History,
    Kind,
    Payload,
    Snapshot,
    SnapshotNode,
    parse_id,
    spell,
    unwrap,
)
from fsbridge.formats.icechunk.repository import Repository
from fsbridge.formats.open import open_source
from fsbridge.model import Group, as_array
from fsbridge.store import ROOT, Key
from fsbridge.store.local import LocalStore


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


def opened(path: Path | str) -> IcechunkSource:
    return cast(IcechunkSource, open_source(str(path), Config(str(path), "")))


def member(source: IcechunkSource, path: str) -> Any:
    node: Any = source.root
    for name in path.split("/"):
        node = node.child(name)
    return node


def names(group: Any) -> list[str]:
    return [child.name for child in group.children()]


def values(source: IcechunkSource, path: str) -> Any:
    array = as_array(member(source, path))
    assert array is not None
    return read_array(array)


def test_branches_tags_and_snapshots_hold_what_was_written(written: Path) -> None:
    source = opened(written)
    assert source.format.name == "icechunk"
    assert names(source.root) == ["branches", "snapshots", "tags"]
    assert names(member(source, "branches")) == ["dev", "main"]
    assert names(member(source, "tags")) == ["a b", "v1"]
    for path, expected in EXPECTED.items():
        np.testing.assert_array_equal(values(source, f"branches/main/{path}"), expected, path)
    np.testing.assert_array_equal(values(source, "tags/v1/a"), VALUES)
    np.testing.assert_array_equal(values(source, "tags/a b/a"), CHANGED)
    np.testing.assert_array_equal(values(source, "branches/dev/a"), np.where(np.arange(100)[:, None] < 30, CHANGED, 6))
    main: Group = member(source, "branches/main")
    assert main.attributes() == {"title": "second"}
    assert sorted(names(main)) == ["a", "empty", "scalar", "sub"]
    source.close()


def test_the_history_is_in_attributes(written: Path) -> None:
    source = opened(written)
    branches, tags = (member(source, name).attributes() for name in ("branches", "tags"))
    commits = member(source, "snapshots").attributes()
    assert sorted(names(member(source, "snapshots"))) == sorted(commits)
    assert len(commits) == 4
    first, second = commits[tags["v1"]], commits[tags["a b"]]
    assert (first["message"], first["metadata"]) == ("first", METADATA)
    assert (second["message"], second["parent"]) == ("second: é", tags["v1"])
    assert branches["main"] == tags["a b"]
    assert commits[branches["dev"]]["parent"] == branches["main"]
    for id in commits:
        assert names(member(source, f"snapshots/{id}")) is not None
    np.testing.assert_array_equal(values(source, f"snapshots/{tags['v1']}/a"), VALUES)


def test_icechunk_itself_reads_the_same(grown: Path) -> None:
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(grown)))
    source = opened(grown)
    assert set(member(source, "branches").attributes()) == theirs.list_branches()
    assert set(member(source, "tags").attributes()) == theirs.list_tags()
    commits = member(source, "snapshots").attributes()
    for branch in theirs.list_branches():
        for info in theirs.ancestry(branch=branch):
            ours = commits[info.id]
            assert (ours["message"], ours["parent"]) == (info.message, info.parent_id)
            assert ours["written_at"] == info.written_at.isoformat()
            if info.parent_id is None:
                continue  # nothing was written yet
            group: Any = zarr.open_group(theirs.readonly_session(snapshot_id=info.id).store, mode="r")
            for path, _ in group.members(max_depth=None):
                if isinstance(group[path], zarr.Array):
                    np.testing.assert_array_equal(values(source, f"snapshots/{info.id}/{path}"), group[path][...])


def test_p9_a_whole_array_is_of_one_commit(grown: Path) -> None:
    """Also if the commit changes only chunks that were not read yet, and nothing in the metadata."""
    source = opened(grown)
    array = as_array(member(source, "branches/main/a"))
    assert array is not None
    chunks = DecodedArray(array, ChunkCache(16 * MIB), MIB)
    version = chunks.whole()
    assert version.open((0, 0)) is not None
    assert chunks.whole() is version
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(grown)))
    session = repository.writable_session("main")
    group: Any = zarr.open_group(session.store)
    group["a"][30:60, :50] = 8
    session.commit("another")
    with pytest.raises(Stale, match="commit"):
        version.open((1, 0))
    later = chunks.whole()
    assert later is not version
    found = later.open((1, 0))
    assert found is not None
    assert set(found.decode().cast("i").tolist()) == {8}
    tagged = as_array(member(source, "tags/a b/a"))
    assert tagged is not None
    assert DecodedArray(tagged, ChunkCache(16 * MIB), MIB, immutable=True).whole().open((1, 0)) is not None
    source.close()


def test_p8_a_commit_that_cannot_be_read_hides_no_other(version_1: Path) -> None:
    source = opened(version_1)
    commits = dict(source.repository.commits())
    source.close()
    first = next(id for id, commit in commits.items() if commit.parent is None)
    below = next(commit for commit in commits.values() if commit.parent == first)
    (version_1 / "snapshots" / first).unlink()
    source = opened(version_1)
    snapshots = member(source, "snapshots")
    assert set(names(snapshots)) == set(commits)
    assert "is missing" in snapshots.attributes()[first]["metadata"]["_ERROR"]
    assert snapshots.attributes()[below.id]["parent"] == first
    with pytest.raises(CorruptData, match="is missing"):
        names(snapshots.child(first))
    source.close()


def test_p9_history_that_was_cut_since_a_branch_was_read_is_shown_as_it_is_now(grown: Path) -> None:
    source = opened(grown)
    source.repository.snapshot(source.repository.branch("main"))
    storage = icechunk.local_filesystem_storage(str(grown))
    repository = icechunk.Repository.open(storage)
    before = {commit.id for commit in repository.ancestry(branch="main")}
    for tag in repository.list_tags():
        repository.delete_tag(tag)
    now = datetime.now(UTC)
    repository.expire_snapshots(older_than=now)
    repository.garbage_collect(now)
    later = icechunk.Repository.open(storage)
    left = {commit.id for branch in later.list_branches() for commit in later.ancestry(branch=branch)}
    assert before - left, "some are gone"
    found = source.repository.commits()
    assert set(found) == left
    assert not any("_ERROR" in commit.metadata for commit in found.values())
    source.close()


def test_p9_history_that_was_cut_is_not_shown_from_memory(grown: Path) -> None:
    """The files of expired snapshots are still there, and the oldest remaining one was written again."""
    source = opened(grown)
    before = dict(member(source, "snapshots").attributes())
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(grown)))
    for tag in repository.list_tags():
        repository.delete_tag(tag)
    tip = source.repository.commit(source.repository.branch("dev"))
    repository.expire_snapshots(older_than=datetime.fromtimestamp(tip.written_ns / 1e9, UTC))
    later = icechunk.Repository.open(icechunk.local_filesystem_storage(str(grown)))
    expected = {commit.id: commit.parent_id for branch in later.list_branches() for commit in later.ancestry(branch=branch)}
    after = member(source, "snapshots").attributes()
    assert {id: told["parent"] for id, told in after.items()} == expected
    assert set(before) - set(after), "some have expired"
    assert any(told != before[id] for id, told in after.items()), "and one has another parent"
    source.close()


def test_a_history_that_is_listed_again_is_not_read_again(grown: Path, server: FakeS3) -> None:
    server.put_tree(grown, "repository")
    for path, found in list(server.objects.items()):
        server.put(path, found.data, 1e9)
    remote = Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint)
    url = f"s3://{BUCKET}/repository"
    source = cast(IcechunkSource, open_source(url, Config(url, "", remote=remote)))
    told = dict(member(source, "snapshots").attributes())
    with server.counted() as requests:
        assert dict(member(source, "snapshots").attributes()) == told
    assert not [request for request in requests if "snapshots" in request.key]
    source.close()


def damaged(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:-7])
    else:
        data = bytearray(path.read_bytes())
        data[HEADER_BYTES + len(data) // 3] ^= 0x55
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["missing", "truncated", "flipped"])
@pytest.mark.parametrize("folder", ["chunks", "manifests", "snapshots"])
def test_p3_p8_damage_is_an_error_and_never_absence(repository: Path, folder: str, how: str) -> None:
    """Every file of the folder is damaged in turn: each array is then right or an error, and never seems to lack a chunk."""
    for path in sorted((repository / folder).iterdir()):
        content = path.read_bytes()
        damaged(path, how)
        source = opened(repository)
        for name, expected in EXPECTED.items():
            try:
                found = values(source, f"branches/main/{name}")
            except NotFound as error:
                raise AssertionError(f"{path}, {name}: absent") from error
            except FsbridgeError as error:
                problem: str | None = str(error)
            else:
                problem = None
                if how != "flipped" or folder == "snapshots":  # chunks have no checksums, nor have manifests that hold some
                    np.testing.assert_array_equal(found, expected)
            if how != "flipped" or folder != "manifests":  # a changed manifest may name another place, as if intended
                assert problem is None or str(repository) in problem
        source.close()
        path.write_bytes(content)


def test_p3_a_repository_without_its_refs_is_broken_and_not_empty(repository: Path) -> None:
    source = opened(repository)
    if source.repository.version == 1:
        (repository / "refs/branch.main/ref.json").write_text('{"snapshot": "not one"}')
        with pytest.raises(CorruptData, match=r"ref\.json"):
            member(source, "branches/main")
        return
    (repository / "repo").unlink()
    with pytest.raises(CorruptData, match="repo is missing"):
        member(source, "branches/main")


def test_a_repository_beside_other_stores_is_a_member_of_a_collection(repository: Path, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "other.zarr", data=np.arange(3))
    source = open_source(str(tmp_path), Config(str(tmp_path), ""))
    assert source.format.name == "collection"
    found = member(cast(IcechunkSource, source), "repository/branches/main/a")
    np.testing.assert_array_equal(read_array(found), CHANGED)
    assert source.format_at(("repository",)).name == "icechunk"
    source.close()


def test_info_names_the_format_and_lists_arrays(written: Path) -> None:
    result = fsbridge("info", written)
    assert result.returncode == 0, result.stderr
    assert f"{written}: icechunk\n" in result.stdout
    assert "/branches/main/sub/b " in result.stdout


def test_a_virtual_chunk_of_a_file_that_changed_later_is_an_error(tmp_path: Path) -> None:
    path = icechunk_data.virtual(tmp_path, {0: ("outside/file.bin", 10)}, datetime.now(UTC))
    config = Config(str(path), "", allow_external=(str(tmp_path / "outside"),))
    source = open_source(str(path), config)
    chunks = cast(Any, source.root).child("branches").child("main").child("v").chunks
    out = bytearray(4)
    chunks.read_into((0,), chunks.find((0,)), memoryview(out))
    assert out == bytes(range(10, 14))
    os.utime(tmp_path / "outside/file.bin", (4e9, 4e9))
    with pytest.raises(CorruptData, match="changed after"):
        chunks.find((0,))
    source.close()


# ---- parsers


@given(st.binary(min_size=1, max_size=20))
def test_identifiers_are_spelled_and_parsed_back(identifier: bytes) -> None:
    assert parse_id(spell(identifier), len(identifier)) == identifier


@pytest.mark.parametrize(
    "text", ["", "1CECHNKREP0F1RSTCMT", "1CECHNKREP0F1RSTCMTU", "1CECHNKREP0F1RSTCMT1", "1cechnkrep0f1rstcmt0"]
)
def test_other_spellings_of_identifiers_name_nothing(text: str) -> None:
    with pytest.raises(NotFound):
        parse_id(text)


@given(st.binary(max_size=60))
@settings(max_examples=500)
def test_p8_any_bytes_are_a_json_value_or_an_error(data: bytes) -> None:
    with contextlib.suppress(CorruptData):
        json.dumps(flatbuffers.loads(data), allow_nan=False)


def test_p6_a_flexbuffer_of_references_to_references_ends() -> None:
    """A vector of 8 references to a vector of 8 references to ..., 30 levels deep, would be 8^30 values."""
    data = bytearray(b"\x01\x05\x04")  # a vector of one integer
    target, kinds = 1, bytes([1 << 2])
    for _ in range(14):
        data.append(8)
        start = len(data)
        data += bytes(start + i - target for i in range(8)) + bytes([10 << 2]) * 8
        target = start
    data += bytes([len(data) - target, 10 << 2, 1])
    with pytest.raises(CorruptData, match="too many"):
        flatbuffers.loads(bytes(data))
    assert kinds


def files(folder: Path, kind: Kind) -> Iterator[tuple[str, memoryview, int]]:
    for path in sorted((folder / f"{kind}s").iterdir()):
        payload = unwrap(path.read_bytes(), kind, MIB)
        yield path.name, payload.data, payload.version


@pytest.mark.parametrize("kind", ["snapshot", "manifest", "repository"])
def test_p8_mutated_files_are_right_or_an_error(written: Path, kind: Kind) -> None:
    """Bytes are changed inside the envelope, which without zstd has no checksum of its own."""
    generator = random.Random(7)
    found: list[tuple[str, memoryview, int]]
    if kind == "repository":
        if not (written / "repo").exists():
            return
        payload = unwrap((written / "repo").read_bytes(), "repository", MIB)
        found = [("repo", payload.data, payload.version)]
    else:
        found = list(files(written, kind))
    for _ in range(600):
        name, data, version = generator.choice(found)
        changed = bytearray(data)
        for _ in range(generator.randint(1, 4)):
            changed[generator.randrange(len(changed))] = generator.choice((0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256)))
        if generator.random() < 0.2:
            changed = changed[: generator.randrange(len(changed))]
        examine(kind, name, bytes(changed), version)


def examine(kind: Kind, name: str, data: bytes, version: int) -> None:
    payload = Payload(memoryview(data), version)
    try:
        if kind == "snapshot":
            snapshot = Snapshot(payload, name)
            for key in snapshot:
                node = snapshot.node(key)
                if node is not None and node.data is not None:
                    snapshot.manifests(key).of((0,) * snapshot.manifests(key).extents.shape[1])
        elif kind == "repository":
            assert dict(History(payload)) is not None
        else:
            manifest = Manifest(payload, name)
            for array in Table.root(payload.data).vector(1):
                id = array.struct(0, 8) or b""
                for rank in (0, 1, 2, 4):
                    try:
                        table = manifest.table(id, rank)
                    except CorruptData:
                        continue
                    for number, key in enumerate(table.keys):
                        assert table.find(tuple(np.frombuffer(bytes(key).ljust(4 * rank, b"\0"), ">u4").tolist())) == number
                        with contextlib.suppress(CorruptData):
                            table.chunk(number)
    except FsbridgeError:
        pass


def test_p6_a_manifest_takes_little_more_than_its_bytes() -> None:
    """Rows are read in place. Objects or columns for them took more than four times its bytes."""
    data, rank = icechunk_data.manifest(300_000, 3), 3
    tracemalloc.start()
    try:
        manifest = Manifest(Payload(memoryview(data), 1), spell(b"M" * 12))
        table = manifest.table(b"N" * 8, rank)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(table.keys) == 300_000
    assert table.range((0, 0)) == (0, 300_000)
    number = table.find((0, 0, 299_999))
    assert number is not None
    assert table.chunk(number) == Native(spell(b"C" * 12), 299_999, 1000)
    assert table.find((0, 0, 300_000)) is None
    assert peak < 16 * 300_000 + (12 << 20), "keys and positions, and what a block of rows takes"
    assert manifest.nbytes == len(data) + 16 * 300_000


def test_p6_few_bytes_do_not_stand_for_a_table_of_gigabytes() -> None:
    """References of four bytes each to one row: a gigabyte could claim a table of 255 million coordinates."""
    data = icechunk_data.manifest(500_000, 12, rows=1)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData, match=r"500000 chunks in \d+ bytes"):
            Manifest(Payload(memoryview(data), 1), spell(b"M" * 12)).table(b"N" * 8, 12)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_p6_a_path_of_many_directories_takes_no_more_than_its_snapshot() -> None:
    """Each directory on the way to a node has a path of its own: a megabyte of them took a gigabyte."""
    nodes = [f"/{group}/{array}" for group in "abc" for array in range(1000)]
    found = Snapshot(Payload(memoryview(icechunk_data.snapshot(["/", "/a", *nodes])), 1), spell(b"S" * 12))
    assert sorted(found.members[ROOT]) == ["a", "b", "c"]
    assert len(found.members[Key("b")]) == 1000
    data = icechunk_data.snapshot([f"/{number}" + "/directory" * 500 for number in range(200)])
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData, match="paths"):
            Snapshot(Payload(memoryview(data), 1), spell(b"S" * 12))
        assert tracemalloc.get_traced_memory()[1] < 4 * len(data) + 2 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["snapshot", "manifest"])
def test_p6_a_file_that_decodes_to_more_than_the_cache_holds_is_refused(repository: Path, kind: Kind) -> None:
    for path in (repository / f"{kind}s").iterdir():
        stored = path.read_bytes()
        size = len(unwrap(stored, kind, MIB).data)
        with pytest.raises(TooLarge, match="--cache-size"):
            unwrap(stored, kind, size - 1)
        source = Repository(LocalStore(str(repository)), ROOT, Config(str(repository), "", cache_size=len(stored) - 1))
        with pytest.raises(TooLarge, match="--cache-size"):
            source.snapshot(path.name) if kind == "snapshot" else source.table(path.name, SnapshotNode(b"", b"", None), 1)
        source.store.close()


def test_locations_of_many_virtual_chunks_are_compressed_with_a_dictionary() -> None:
    """The manifest of 1,000 virtual chunks by icechunk 2.3.0: from so many on it compresses their locations."""
    (path,) = [path for path in (DATA / "icechunk").iterdir() if path.suffix != ".zip"]
    payload = unwrap(path.read_bytes(), "manifest", MIB)
    (array,) = Table.root(payload.data).vector(1)
    table = Manifest(payload, path.name).table(array.struct(0, 8) or b"", 1)
    assert table.dictionary
    for number in range(1000):
        row = table.find((number,))
        assert row is not None
        chunk = table.chunk(row)
        assert isinstance(chunk, Virtual)
        assert (chunk.start, chunk.location) == (10 * number, f"file:///srv/outside/file{number % 3}.bin")


@pytest.mark.parametrize(
    "location", ["s3://bucket/data/%2E%2E/secret", "s3://bucket/data/a%2F%2Fb", "s3://bucket/data/%00", "file:///usr/../x"]
)
def test_p4_locations_that_icechunk_would_not_write_are_damage(location: str) -> None:
    config = Config("/usr", "", allow_external=("s3://bucket/data", "/usr"))
    with pytest.raises(CorruptData, match="where a virtual chunk should be"):
        VirtualObjects(config, dict).stat(Virtual(location, 0, 4, None, 0))
