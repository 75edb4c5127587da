"""Hangar repositories, compared with Hangar's own checkout. Not here: records, damage (`test_repository.py`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hangar_data import Expected, get, put, unpack
from hangar_model import group, names, opened, row_of, same, sample, snapshot, value, walk
from numcodecs import blosc

from fsbridge.config import Config
from fsbridge.errors import NotFound, SetupError, Stale, Unsupported
from fsbridge.formats.hangar.hierarchy import HangarRoot, HangarSource, SampleArray
from fsbridge.formats.hangar.records import (
    compute_digest,
)
from fsbridge.formats.open import open_source
from fsbridge.model import Link, as_array

# ---- equal to Hangar's checkout


def test_every_sample_of_every_commit_equals_the_checkout(main: HangarSource) -> None:
    expected = Expected.load("main")
    assert len(expected.values) > 1000
    for place, wanted in expected.values.items():
        array = sample(main, "commits", *place)
        if isinstance(wanted, np.ndarray):
            assert array.metadata.dtype.numpy == wanted.dtype, place
        assert same(value(array), wanted), place


def test_branches_show_their_commit(main: HangarSource) -> None:
    expected = Expected.load("main")
    assert names(walk(main, "branches")) == sorted(expected.branches)
    assert sorted(names(walk(main, "commits"))) == sorted(expected.commits)
    for branch, commit in expected.branches.items():
        for column in ("variable00", "text", "nested10"):
            for place in expected.values:
                if place[:2] == (commit, column):
                    array = sample(main, "branches", branch, *place[1:])
                    assert same(value(array), expected.values[place])


def test_listings_are_the_checkouts(main: HangarSource) -> None:
    expected = Expected.load("main")
    for commit in expected.commits:
        columns = {place[1] for place in expected.values if place[0] == commit}
        assert set(names(walk(main, "commits", commit))) == columns
        for column in columns - {"table10"}:
            found: set[tuple[str, ...]] = set()
            for name in names(walk(main, "commits", commit, column)):
                node = walk(main, "commits", commit, column, name)
                found |= {(name,)} if as_array(node) is not None else {(name, sub) for sub in names(node)}
            assert found == expected.keys(commit, column), (commit, column)


def test_integer_and_text_keys_are_different_samples(main: HangarSource) -> None:
    commit = Expected.load("main").branches["master"]
    assert {"2", "#2", "#7", "a.b-c_d", "#1000000"} <= set(names(walk(main, "commits", commit, "variable10")))
    with pytest.raises(NotFound):
        walk(main, "commits", commit, "variable10", "7")


def test_absent_names_are_not_found(main: HangarSource) -> None:
    master = ("branches", "master")
    for path in (
        ("nothing",), ("branches", "nothing"), ("branches", "mas"), ("commits", "a=00"), ("commits", ""),
        ("commits", Expected.load("main").branches["master"] + ":ref"), ("branches", ""), ("branches", "\udcff"),
        (*master, "nothing"), (*master, ""), (*master, "text", "nothing"), (*master, "text", ""), (*master, "text", "2 "),
        (*master, "nested00", "nothing"), (*master, "nested00", "#2", "nothing"), (*master, "nested00", "#2:left"),
        (*master, "tiny01"), (*master, "variable00", "first"), (*master, "text", "\udcff"),
    ):  # fmt: skip
        with pytest.raises(NotFound):
            walk(main, *path)


def test_attributes_are_what_hangar_recorded(main: HangarSource) -> None:
    expected = Expected.load("main")
    root = group(main).attributes()
    assert root == {"software_version": "0.5.2", "head": "master"}
    for digest, wanted in expected.commits.items():
        found = group(main, "commits", digest).attributes()
        for key in ("commit_message", "commit_user", "commit_email", "commit_time"):
            assert found[key] == wanted[key]
        assert found["parents"] == [parent for parent in wanted["parents"] if parent]
        assert group(main, "commits", digest).mtime_ns == int(wanted["commit_time"] * 1e9)
    assert len(group(main, "branches", "master").attributes()["parents"]) == 2
    column = group(main, "branches", "master", "variable00").attributes()
    assert (column["shape"], column["dtype"], column["schema_type"]) == ([20, 5, 3], "int32", "variable_shape")
    attributes = sample(main, "branches", "master", "variable00", "#2").metadata.attributes
    assert attributes["digest"].startswith("0=")
    assert attributes["record"].startswith("00:")


def test_an_empty_commit_has_no_columns(main: HangarSource) -> None:
    assert names(walk(main, "branches", "empty-end")) == []


def test_the_default_branch_is_linked(main: HangarSource) -> None:
    assert walk(main, "head") == Link("branches/master")
    assert [child.link for child in group(main).children() if child.name == "head"] == ["branches/master"]


def test_the_staging_area_is_shown_while_something_is_not_committed(main: HangarSource, crashed: Path) -> None:
    assert names(walk(main)) == ["branches", "commits", "head", "staged"]
    assert value(sample(main, "staged", "text", "staged")) == "not committed"
    wanted = (np.arange(48) % 97).reshape(4, 4, 3).astype("int32")
    assert same(value(sample(main, "staged", "variable00", "staged")), wanted)
    assert "row" not in names(walk(main, "staged", "table10"))
    assert "row" in names(walk(main, "branches", "master", "table10"))
    source = opened(crashed)
    assert names(walk(source)) == ["branches", "commits", "head"]
    with pytest.raises(NotFound):
        walk(source, "staged")
    source.close()


def test_a_crashed_writers_repository_is_read(crashed: Path) -> None:
    before = snapshot(crashed)
    source = opened(crashed)
    for place, wanted in Expected.load("crashed").values.items():
        assert same(value(sample(source, "commits", *place)), wanted), place
    source.close()
    assert snapshot(crashed) == before


def test_remote_samples_are_listed_and_say_where_they_are(tmp_path: Path) -> None:
    source = opened(unpack("partial", tmp_path))
    assert names(walk(source, "branches")) == ["master", "origin/master"]
    for place, wanted in Expected.load("partial").values.items():
        assert same(value(sample(source, "branches", "origin/master", *place[1:])), wanted), place
    for column in ("remote_fixed", "remote_variable", "remote_text"):
        assert names(walk(source, "branches", "master", column)) == ["a", "b"]
    with pytest.raises(Unsupported, match=r"remote_variable/a: .*remote server.*fetch-data"):
        walk(source, "branches", "master", "remote_variable", "a")
    source.close()


@pytest.mark.parametrize("column", ["remote_fixed", "remote_text"])
def test_remote_samples_of_known_shape_have_metadata(tmp_path: Path, column: str) -> None:
    """Readers can open the column; only the data is an error."""
    source = opened(unpack("partial", tmp_path))
    schema = group(source, "branches", "master", column).attributes()
    array = sample(source, "branches", "master", column, "a")
    assert list(array.metadata.shape) == schema.get("shape", [])
    assert array.current()
    index = (0,) * len(array.metadata.shape)
    assert [list(batch) for batch in array.chunks.scan(())] == [[(0, array.mtime_ns)]]
    info = array.chunks.find(index)
    out = memoryview(bytearray(array.metadata.chunk_bytes(index) or 0))
    reads: list[Callable[[], object]] = [
        array.chunks.count,
        lambda: array.chunks.read_all(index, info, 1 << 26),
        lambda: array.chunks.read_into(index, info, out),
        lambda: array.chunks.size(index, info),
    ]
    for read in reads:
        with pytest.raises(Unsupported, match=rf"{column}/a: .*remote server.*fetch-data"):
            read()
    source.close()


def test_a_repository_is_recognised_by_its_folder_or_the_one_around_it(crashed: Path) -> None:
    for path in (crashed, crashed / ".hangar"):
        source = open_source(str(path), Config(str(path), "/nowhere"))
        assert source.format.name == "hangar"
        assert names(walk(source, "branches", "master")) == ["array", "text", "volume"]
        source.close()
    with pytest.raises(SetupError, match="not a Hangar repository"):
        opened(crashed / ".hangar" / "data")


def test_data_files_without_records_are_hdf5(crashed: Path) -> None:
    folder = crashed / ".hangar" / "data" / "00"
    source = open_source(str(folder), Config(str(folder), "/nowhere"))
    (name,) = names(walk(source))
    rows = sample(source, name, "0")
    assert rows.metadata.shape == (250, 800)
    expected = Expected.load("crashed").values
    wanted = [v.reshape(-1) for place, v in expected.items() if place[1] == "array"]
    found = []
    for i in range(3):
        data = bytearray(3200)
        rows.chunks.read_into((i, 0), rows.chunks.find((i, 0)), memoryview(data))
        found.append(np.frombuffer(data, "<i4"))
    for row in wanted:
        assert any(np.array_equal(stored[: len(row)], row) for stored in found)
    with pytest.raises(NotFound):
        rows.chunks.find((3, 0))
    source.close()


# ---- freshness


def test_a_branch_that_moves_is_seen_at_once(plain: Path) -> None:
    expected = Expected.load("main")
    source = opened(plain)
    branch = group(source, "branches", "master")
    array = sample(source, "branches", "master", "variable00", "#2")
    assert array.current()
    assert "first" not in names(branch.child("variable00"))
    first = next(digest for digest, commit in expected.commits.items() if not any(commit["parents"]))
    put(plain / ".hangar" / "branch.lmdb", {b"branch:master": first.encode()})
    assert "first" in names(branch.child("variable00"))
    assert array.current(), "the older commit has the same sample under this name"
    put(plain / ".hangar" / "branch.lmdb", {b"branch:master": expected.branches["empty-end"].encode()})
    assert not array.current()
    put(plain / ".hangar" / "branch.lmdb", {b"branch:master": b""})
    assert names(branch) == []
    assert branch.attributes() == {"branch": "master", "commit": None}
    source.close()


def test_a_data_file_that_changes_makes_open_chunks_stale(plain: Path) -> None:
    source = opened(plain)
    array = sample(source, "branches", "master", "table10", "#2")
    info = array.chunks.find((0,))
    record = row_of(array)
    path = plain / ".hangar" / "data" / "10" / f"{record.uid}.npy"
    path.write_bytes(path.read_bytes())
    with pytest.raises(Stale):
        array.chunks.read_into((0,), info, memoryview(bytearray(8)))
    source.close()


def test_reading_beside_a_writer_sees_one_state_at_a_time(crashed: Path) -> None:
    """The writer sets all records of the staging area to the same number, again and again."""
    path = crashed / ".hangar" / "stage_ref.lmdb"
    stop = threading.Event()
    keys = [f"f:array:k{i:04}".encode() for i in range(3000)]
    rounds = 0

    def write() -> None:
        nonlocal rounds
        while not stop.is_set():
            rounds += 1
            put(path, dict.fromkeys(keys, b"0=%040d" % rounds))

    put(path, dict.fromkeys(keys, b"0=%040d" % 0))
    source = opened(crashed)
    assert isinstance(source.root, HangarRoot)
    repository = source.root.repository
    writer = threading.Thread(target=write)
    writer.start()
    try:
        reads = 0
        while reads < 30 or (rounds < 2 and writer.is_alive()):  # the scheduler decides which of them runs
            reads += 1
            try:
                table = repository.read_staged()
                assert table is not None
            except Stale:
                continue
            assert len({table.digest("array", (key[8:].decode(),)) for key in keys}) == 1
    finally:
        stop.set()
        writer.join()
        source.close()
    assert rounds > 1


def test_a_remote_sample_that_was_fetched_is_seen(tmp_path: Path) -> None:
    root = unpack("partial", tmp_path)
    source = opened(root)
    database = root / ".hangar" / "hash.lmdb"
    here = sample(source, "branches", "master", "fetched", "a")
    digest, record = (here.metadata.attributes[key].encode() for key in ("digest", "record"))
    for _ in range(2):
        put(database, {b"h:" + digest: b"50:1=e2727a1aacc4"})
        assert not here.current()
        with pytest.raises(Unsupported, match="remote server"):
            sample(source, "branches", "master", "fetched", "a")
        put(database, {b"h:" + digest: record})
        assert here.current()
    source.close()


def test_a_database_that_outgrows_its_map_is_read(crashed: Path) -> None:
    """LMDB maps 10 MiB of a smaller file; a writer can make it larger."""
    source = opened(crashed)
    wanted = names(walk(source, "branches", "master", "array"))
    big: dict[bytes, bytes | None] = {b"h:0=%040d" % i: bytes(4000) for i in range(5000)}
    put(crashed / ".hangar" / "hash.lmdb", big)
    assert (crashed / ".hangar" / "hash.lmdb").stat().st_size > 12 << 20
    for name in wanted:
        assert value(sample(source, "branches", "master", "array", name)).ndim == 2
    source.close()


# ---- size


def test_a_hundred_thousand_samples_are_listed_and_found(crashed: Path) -> None:
    """Opening and finding do not depend on parsing all of them."""
    commit = Expected.load("crashed").branches["master"]
    old = blosc.decompress(get(crashed / ".hangar" / "ref.lmdb", f"{commit}:ref".encode())).split(b"$")
    digest = next(record.split(b" ")[1] for record in old if record.startswith(b"f:array:a "))
    records = sorted([*old, *(b"f:array:s%06d " % i + digest for i in range(100_000))])
    packed = blosc.compress(b"$".join(records), b"zstd", 1, 0)
    spec = get(crashed / ".hangar" / "ref.lmdb", f"{commit}:spec".encode())
    large = compute_digest(commit.encode(), blosc.decompress(spec), records).encode()
    put(crashed / ".hangar" / "ref.lmdb", {large: commit.encode(), large + b":spec": spec, large + b":ref": bytes(packed)})
    put(crashed / ".hangar" / "branch.lmdb", {b"branch:master": large})
    source = opened(crashed)
    assert len(names(walk(source, "branches", "master", "array"))) == 100_003
    wanted = Expected.load("crashed").values[commit, "array", "a"]
    assert same(value(sample(source, "branches", "master", "array", "s077777")), wanted)
    with pytest.raises(NotFound):
        walk(source, "branches", "master", "array", "s100000")
    source.close()


def test_a_sample_is_an_immutable_view(main: HangarSource) -> None:
    array = walk(main, "branches", "master", "variable00", "#2")
    assert isinstance(array, SampleArray)
    assert array.version == sample(main, "branches", "master", "variable00", "#2").version
    assert array.chunks.count() == 1
    with pytest.raises(NotFound):
        array.chunks.find((0, 0, 1))
    with pytest.raises(NotFound):
        array.chunks.find_prefix((1,))
