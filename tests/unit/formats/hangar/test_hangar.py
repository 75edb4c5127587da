"""Hangar repositories through the model, compared with what Hangar's own checkout returned."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
import pytest
from hangar_data import Expected, get, put, unpack
from hypothesis import given, settings
from hypothesis import strategies as st
from model_reader import read_array
from numcodecs import blosc
from waiting import PATIENCE

from fsbridge.children.client import ChildDied, error_of
from fsbridge.children.supervisor import Supervisor
from fsbridge.config import Config
from fsbridge.errors import AccessDenied, CorruptData, FsbridgeError, NotFound, SetupError, Stale, Unreachable, Unsupported
from fsbridge.formats.hangar.backends import _Npy
from fsbridge.formats.hangar.hierarchy import HangarSource, SampleArray, open_hangar
from fsbridge.formats.hangar.lmdb import Databases
from fsbridge.formats.hangar.records import (
    RefTable,
    RemoteRecord,
    RowRecord,
    TextRecord,
    commit_digest,
    parse_commit,
    parse_record,
    parse_schema,
    tree_records,
)
from fsbridge.formats.hdf5.source import open_hdf5
from fsbridge.formats.open import open_source
from fsbridge.model import Array, Group, Link, Node, as_array

EXAMPLES = 300


def opened(path: Path, **options: Any) -> HangarSource:
    return open_hangar(str(path), config := Config(str(path), "/nowhere", **options), lambda file: open_hdf5(file, config))


def walk(source: Any, *path: str) -> Node:
    node = source.root
    for name in path:
        node = node.child(name)
    return cast(Node, node)


def group(source: Any, *path: str) -> Group:
    return cast(Group, walk(source, *path))


def sample(source: Any, *path: str) -> Array:
    array = as_array(walk(source, *path))
    assert array is not None
    return array


def names(node: Node) -> list[str]:
    return [child.name for child in cast(Group, node).children()]


def value(array: Array) -> Any:
    """The sample as Hangar gives it: an array, a str or bytes."""
    found = read_array(array)
    return found if array.metadata.dtype.itemsize else found[()]


def same(found: Any, wanted: Any) -> bool:
    if not isinstance(wanted, np.ndarray):
        return type(found) is type(wanted) and bool(found == wanted)
    return bool(found.shape == wanted.shape and found.tobytes() == wanted.tobytes())


def snapshot(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every file below `folder`: size, mtime and content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (status.st_size, status.st_mtime_ns, digest)
    return found


@pytest.fixture(scope="module")
def main_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("main", tmp_path_factory.mktemp("main"))


@pytest.fixture(scope="module")
def main(main_path: Path) -> Iterator[HangarSource]:
    before = snapshot(main_path)
    source = opened(main_path)
    yield source
    source.close()
    assert snapshot(main_path) == before, "the repository was written to"


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    return unpack("crashed", tmp_path / "crashed")


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
            found = set()
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


def test_attributes(main: HangarSource) -> None:
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
    schema = walk(source, "branches", "master", column).attributes()
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


def test_the_folder_itself_and_detection(crashed: Path) -> None:
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


# ---- damage


def flip(path: Path, offset: int) -> None:
    """Invert one bit, without changing the file's times."""
    status = path.stat()
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def row_of(array: Array) -> RowRecord:
    record = parse_record(array.metadata.attributes["record"].encode())
    assert isinstance(record, RowRecord)
    return record


def chunk_offset(path: Path, record: RowRecord) -> int:
    """Return the place of a row's first chunk, from h5py."""
    with h5py.File(path, "r", swmr=True) as file:
        dataset = file[record.dataset]
        place = (record.index, *[0] * (dataset.ndim - 1))
        return int(dataset.id.get_chunk_info_by_coord(place).byte_offset)


@pytest.mark.parametrize("column", ["array", "volume"])
def test_a_flipped_bit_in_an_hdf5_row_is_corrupt(crashed: Path, column: str, caplog: pytest.LogCaptureFixture) -> None:
    source = opened(crashed)
    place = ("branches", "master", column)
    record = row_of(sample(source, *place, "a"))
    path = crashed / ".hangar" / "data" / record.backend / f"{record.uid}.hdf5"
    source.close()
    flip(path, chunk_offset(path, record) + 100)
    source = opened(crashed)
    with pytest.raises(CorruptData, match=f"sample {column}/a: .*{record.uid}.hdf5"):
        value(sample(source, *place, "a"))
    neighbour = [v for p, v in Expected.load("crashed").values.items() if p[1:] == (column, "b")]
    assert same(value(sample(source, *place, "b")), neighbour[0])
    source.close()


@pytest.fixture
def plain(tmp_path: Path, main_path: Path) -> Path:
    """A copy of the main repository to damage."""
    return unpack("main", tmp_path / "main")


def test_wrong_data_names_sample_file_and_both_digests(plain: Path) -> None:
    """The `.npy` rows are stored as they are: only the digest knows."""
    source = opened(plain)
    place = ("branches", "master", "table10", "#2")
    record = row_of(sample(source, *place))
    path = plain / ".hangar" / "data" / "10" / f"{record.uid}.npy"
    wanted = value(sample(source, *place))
    source.close()
    flip(path, 128 + record.index * 8 + 1)
    source = opened(plain)
    message = f"sample table10/#2: .*data/10/{record.uid}.npy: .*xxhash64 is [0-9a-f]{{16}}, .* says {record.checksum}"
    with pytest.raises(CorruptData, match=message):
        value(sample(source, *place))
    source.close()
    source = opened(plain, verify=False)
    assert not same(value(sample(source, *place)), wanted)
    source.close()


def test_wrong_text_is_corrupt(plain: Path) -> None:
    source = opened(plain)
    place = ("branches", "master", "text", "#2")
    record = parse_record(sample(source, *place).metadata.attributes["record"].encode())
    assert isinstance(record, TextRecord)
    source.close()
    path = plain / ".hangar" / "data" / "30" / record.uid / "data.mdb"
    put(path, {record.key.encode(): b"something else"})
    source = opened(plain)
    with pytest.raises(CorruptData, match=r"sample text/#2: .*data\.mdb: .*xxhash64"):
        value(sample(source, *place))
    put(path, {record.key.encode(): None})
    with pytest.raises(CorruptData, match="no value under"):
        value(sample(source, *place))
    source.close()


def test_missing_files_are_damage_not_absence(plain: Path) -> None:
    source = opened(plain)
    expected = Expected.load("main").branches["master"]
    for folder, column in (("00", "variable00"), ("01", "large01"), ("10", "table10"), ("30", "text"), ("31", "blobs")):
        array = sample(source, "commits", expected, column, "#2")
        (plain / ".hangar" / "data" / folder).rename(plain / ".hangar" / "data" / f"{folder}-gone")
        with pytest.raises(CorruptData, match=f"sample {column}/#2: .*is missing"):
            array.chunks.find((0,) * len(array.metadata.shape))
    source.close()


def test_records_that_lead_nowhere(crashed: Path) -> None:
    source = opened(crashed)
    array = sample(source, "branches", "master", "array", "a")
    digest, record = array.metadata.attributes["digest"], row_of(array)
    head = f"00:{record.uid}:{record.checksum}"
    for text in (
        f"{head}:99999:0:40 20",  # no such dataset
        f"{head}:0:250:40 20",  # no such row
        f"{head}:0:200:40 20",  # a row that was never written: zeros, but not with this digest
        f"{head}:0:0:41 20",  # not the schema's shape
        f"{head}:0:0:40",
        f"{head}:0:0:0 20",
        f"01:{record.uid}:{record.checksum}:0:0:40 20",
        f"00:missing1:{record.checksum}:0:0:40 20",
        f"30:{record.uid}:0123:{record.checksum}",
        "00:2HvGf9$3 199*20 2 3",
        "77:what",
        "",
    ):
        put(crashed / ".hangar" / "hash.lmdb", {f"h:{digest}".encode(): text.encode()})
        with pytest.raises((CorruptData, Unsupported), match="array/a"):
            value(sample(source, "branches", "master", "array", "a"))
    assert not array.current()
    put(crashed / ".hangar" / "hash.lmdb", {f"h:{digest}".encode(): None})
    with pytest.raises(CorruptData, match="no record"):
        sample(source, "branches", "master", "array", "a")
    source.close()


@pytest.mark.parametrize("name", ["branch.lmdb", "ref.lmdb", "hash.lmdb"])
def test_damaged_databases_do_not_end_the_daemon(crashed: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever LMDB does with it, the result is an error or the end of the child process."""
    path = crashed / ".hangar" / name
    data = path.read_bytes()
    random = np.random.default_rng(4)
    caplog.set_level(logging.CRITICAL)
    for number in range(4):
        damaged = bytearray(data)
        for position in random.integers(8192 if number else 0, len(data), 400):
            damaged[position] = random.integers(256)
        path.write_bytes(damaged)
        try:
            source = opened(crashed)
        except FsbridgeError:
            continue
        for place in Expected.load("crashed").values:
            try:
                assert same(value(sample(source, "commits", *place)), Expected.load("crashed").values[place])
            except FsbridgeError:
                continue
        source.close()
    path.write_bytes(data[:5000])
    with pytest.raises(FsbridgeError):
        value(sample(opened(crashed), "branches", "master", "array", "a"))


def test_a_bomb_in_a_commit_is_corrupt(crashed: Path) -> None:
    commit = Expected.load("crashed").branches["master"]
    bomb = bytearray(blosc.compress(b"f:a:b 0=1$" * 1000, b"zstd", 1, 0))
    bomb[4:8] = (1 << 30).to_bytes(4, "little")
    put(crashed / ".hangar" / "ref.lmdb", {f"{commit}:ref".encode(): bytes(bomb)})
    source = opened(crashed)
    with pytest.raises(CorruptData, match="Blosc"):
        names(walk(source, "branches", "master"))
    assert group(source, "branches", "master").attributes()["commit_message"] == "before the crash"
    source.close()


@pytest.mark.parametrize("part", [":ref", ":spec", ""])
def test_a_commit_that_is_not_what_its_digest_says_is_corrupt(plain: Path, part: str) -> None:
    """Neither LMDB nor Blosc would notice: another sample would be shown under the name."""
    expected = Expected.load("main")
    commit = expected.branches["master"]
    database, key = plain / ".hangar" / "ref.lmdb", f"{commit}{part}".encode()
    stored = get(database, key)
    if part == ":ref":
        seven, eight = (
            next(record for record in tree_records(blosc.decompress(stored)) if record.startswith(name))
            for name in (b"f:table10:#7 ", b"f:table10:#8 ")
        )
        exchanged = blosc.decompress(stored).replace(seven, b"f:table10:#7 " + eight.split(b" ")[1])
        stored = bytes(blosc.compress(exchanged, b"zstd", 1, 0))
    elif part == ":spec":
        stored = bytes(
            blosc.compress(blosc.decompress(stored).replace(b'"commit_message":"', b'"commit_message":"!'), b"zlib", 1)
        )
    else:
        stored = next(digest for digest, found in expected.commits.items() if not any(found["parents"])).encode()
    put(database, {key: stored})
    source = opened(plain)
    with pytest.raises(CorruptData, match=commit):
        names(walk(source, "branches", "master"))
    source.close()


def test_a_damaged_commit_hides_no_other(plain: Path) -> None:
    commits = sorted(Expected.load("main").commits)
    put(plain / ".hangar" / "ref.lmdb", {f"{commits[0]}:spec".encode(): b"no Blosc", f"{commits[1]}:spec".encode(): None})
    source = opened(plain)
    assert sorted(names(walk(source, "commits"))) == commits
    for commit in commits[:2]:
        with pytest.raises(CorruptData, match=commit):
            walk(source, "commits", commit)
    assert group(source, "commits", commits[2]).attributes()["commit"] == commits[2]
    source.close()


# ---- releases


def test_repositories_before_0_5_are_refused(crashed: Path) -> None:
    put(crashed / ".hangar" / "branch.lmdb", {b"software_version": b"0.4.0"})
    with pytest.raises(Unsupported, match=r"written by Hangar 0\.4\.0; fsbridge reads 0\.5 and later"):
        opened(crashed)
    put(crashed / ".hangar" / "branch.lmdb", {b"software_version": None})
    with pytest.raises(Unsupported, match="no release"):
        opened(crashed)


# ---- freshness


def test_a_branch_that_moves_is_seen_at_once(plain: Path) -> None:
    expected = Expected.load("main")
    source = opened(plain)
    branch = group(source, "branches", "master")
    array = sample(source, "branches", "master", "variable00", "#2")
    assert array.current()
    assert "first" not in names(cast(Group, branch).child("variable00"))
    first = next(digest for digest, commit in expected.commits.items() if not any(commit["parents"]))
    put(plain / ".hangar" / "branch.lmdb", {b"branch:master": first.encode()})
    assert "first" in names(cast(Group, branch).child("variable00"))
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
    repository = source.root.repository  # type: ignore[attr-defined]
    writer = threading.Thread(target=write)
    writer.start()
    try:
        reads = 0
        while reads < 30 or (rounds < 2 and writer.is_alive()):  # the scheduler decides which of them runs
            reads += 1
            try:
                table = repository.staged()
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


def test_a_database_that_outgrows_its_map(crashed: Path) -> None:
    """LMDB maps 10 MiB of a smaller file; a writer can make it larger."""
    source = opened(crashed)
    wanted = names(walk(source, "branches", "master", "array"))
    big = {b"h:0=%040d" % i: bytes(4000) for i in range(5000)}
    put(crashed / ".hangar" / "hash.lmdb", big)
    assert (crashed / ".hangar" / "hash.lmdb").stat().st_size > 12 << 20
    for name in wanted:
        assert value(sample(source, "branches", "master", "array", name)).ndim == 2
    source.close()


# ---- the child process


def database_process(source: HangarSource) -> Any:
    return cast(Any, source.root).repository._databases


def test_a_killed_process_is_started_again(crashed: Path) -> None:
    source = opened(crashed)
    process = database_process(source)
    for _ in range(5):
        child = process._supervisor.child
        os.kill(child.pid, signal.SIGKILL)
        assert names(walk(source, "commits")) == [Expected.load("crashed").branches["master"]]
        assert process._supervisor.child.pid != child.pid
    source.close()
    assert process._supervisor.child is None


def test_p8_a_process_that_a_writer_ended_is_no_damage(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LMDB ends the process on a page that was overwritten while it was read. Without a writer that is damage."""
    writing = [True] * 2

    def ask(supervisor: Supervisor, *arguments: Any) -> Any:
        if writing:
            if writing.pop():
                put(crashed / ".hangar/ref.lmdb", {b"x": b"y"})
            raise ChildDied("ended")
        return original(supervisor, *arguments)

    source, original = opened(crashed), Supervisor.ask
    monkeypatch.setattr(Supervisor, "ask", ask)
    assert [child.name for child in group(source, "commits").children()]
    assert not writing
    writing.append(False)
    with pytest.raises(ChildDied):
        list(group(source, "commits").children())
    source.close()


def test_the_process_can_open_nothing_but_the_repository(crashed: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.lmdb"
    outside.write_bytes((crashed / ".hangar" / "branch.lmdb").read_bytes())
    (crashed / ".hangar" / "link.lmdb").symlink_to(outside)
    source = opened(crashed)
    process = database_process(source)
    for path in ("../../outside.lmdb", str(outside), "link.lmdb"):
        with pytest.raises(AccessDenied):
            process.ask({"op": "get", "path": path, "keys": ["head"]})
    for path in ("nothing.lmdb", "README.txt", "data", ""):
        with pytest.raises(CorruptData):
            process.ask({"op": "get", "path": path, "keys": ["head"]})
    assert process.ask({"op": "get", "path": "branch.lmdb", "keys": ["head", "", "x" * 600]})[1] == b"branch:master"
    source.close()


@pytest.mark.parametrize(("number", "kind"), [(errno.EACCES, AccessDenied), (errno.EMFILE, Unreachable)])
def test_p3_a_database_that_cannot_be_opened_is_no_damage(
    crashed: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[FsbridgeError]
) -> None:
    def refuse(root: int, path: str, flags: int) -> int:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr("fsbridge.formats.hangar.lmdb.open_beneath", refuse)
    root = os.open(crashed / ".hangar", os.O_PATH)
    answer, _ = Databases(root).answer({"op": "get", "path": "ref.lmdb", "keys": []})
    os.close(root)
    found = error_of(answer)
    assert (type(found), str(found)) == (kind, f"ref.lmdb: {os.strerror(number)}")


def test_a_read_of_one_data_file_does_not_wait_for_another_slow_one(crashed: Path) -> None:
    source = opened(crashed)
    backends = cast(Any, source.root).backends
    original, slow, go_on = backends._files._open_file, threading.Event(), threading.Event()
    paths = [str(path) for path in sorted((crashed / ".hangar/data").glob("*/*.hdf5"))]

    def open_file(path: str) -> Any:
        if path == paths[0]:
            slow.set()
            go_on.wait(PATIENCE)
        return original(path)

    backends._files._open_file = open_file
    first = threading.Thread(target=backends._files._file, args=(paths[0], None))
    second = threading.Thread(target=backends._files._file, args=(paths[1], None))
    first.start()
    slow.wait(PATIENCE)
    second.start()
    second.join(PATIENCE)
    assert not second.is_alive()
    go_on.set()
    first.join(PATIENCE)
    source.close()


# ---- size


def test_a_hundred_thousand_samples(crashed: Path) -> None:
    """Opening and finding do not depend on parsing all of them."""
    commit = Expected.load("crashed").branches["master"]
    old = blosc.decompress(get(crashed / ".hangar" / "ref.lmdb", f"{commit}:ref".encode())).split(b"$")
    digest = next(record.split(b" ")[1] for record in old if record.startswith(b"f:array:a "))
    records = sorted([*old, *(b"f:array:s%06d " % i + digest for i in range(100_000))])
    packed = blosc.compress(b"$".join(records), b"zstd", 1, 0)
    spec = get(crashed / ".hangar" / "ref.lmdb", f"{commit}:spec".encode())
    large = commit_digest(commit.encode(), blosc.decompress(spec), records).encode()
    put(crashed / ".hangar" / "ref.lmdb", {large: commit.encode(), large + b":spec": spec, large + b":ref": bytes(packed)})
    put(crashed / ".hangar" / "branch.lmdb", {b"branch:master": large})
    source = opened(crashed)
    assert len(names(walk(source, "branches", "master", "array"))) == 100_003
    wanted = Expected.load("crashed").values[commit, "array", "a"]
    assert same(value(sample(source, "branches", "master", "array", "s077777")), wanted)
    with pytest.raises(NotFound):
        walk(source, "branches", "master", "array", "s100000")
    source.close()


# ---- records


def test_record_syntax() -> None:
    record = parse_record(b"00:foak1tfb:6f6395267249ee85:0:186:6")
    assert record == RowRecord("00", "foak1tfb", "6f6395267249ee85", "0", 186, (6,))
    assert parse_record(b"01:rlUK3C:8067007c0f05c359:16:105:10 10").shape == (10, 10)  # type: ignore[union-attr]
    assert parse_record(b"10:abcdefgh:8067007c0f05c359:7:") == RowRecord("10", "abcdefgh", "8067007c0f05c359", "", 7, ())
    assert parse_record(b"30:abcdefgh:0123:8067007c0f05c359") == TextRecord("30", "abcdefgh", "8067007c0f05c359", "0123")
    assert parse_record(b"50:1=e2727a1aacc4") == RemoteRecord("1=e2727a1aacc4")
    for old in (b"00:2HvGf9$3 199*20 2 3", b"00:rlUK3C$8067007c0f05c359$16 105*10 10"):
        with pytest.raises(Unsupported, match=r"before 0\.5"):
            parse_record(old)
    digest = b"8067007c0f05c359"
    for damaged in (b"00:../../etc:%s:0:0:1" % digest, b"10:a/b:%s:0:" % digest, b"00:a:b:0:0:1", b"30:a:012:x", b"\xff"):
        with pytest.raises(CorruptData):
            parse_record(damaged)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.one_of(st.binary(max_size=80), st.from_regex(rb"(00|01|10|30|31|50):[a-z0-9:$* ]{0,60}", fullmatch=True)))
def test_any_bytes_are_a_record_or_an_error(raw: bytes) -> None:
    try:
        record = parse_record(raw)
    except FsbridgeError:
        return
    if not isinstance(record, RemoteRecord):
        assert record.uid.isalnum()


SCHEMA = (
    b"{'column_layout':'flat','column_type':'ndarray','schema_hasher_tcode':'1','data_hasher_tcode':'0','schema_type':"
    b"'variable_shape','shape':(20,5,3),'dtype':'int32','backend':'00','backend_options':{'complib':'lzf','complevel':None}}"
)


def test_schema_syntax() -> None:
    schema = parse_schema(SCHEMA)
    assert (schema.shape, schema.dtype, schema.variable, schema.nested) == ((20, 5, 3), np.dtype("<i4"), True, False)
    assert schema.document["backend_options"] == {"complib": "lzf", "complevel": None}
    for damaged in (
        b"__import__('os').system('true')", b"{", b"[" * 60000, b"{1:2}", b"{[]:1}", b"()", b"{" + b"'a':1," * 20000 + b"}",
        SCHEMA.replace(b"(20,5,3)", b"(20,-5,3)"), SCHEMA.replace(b"(20,5,3)", b"None"), SCHEMA.replace(b"int32", b"no"),
        SCHEMA.replace(b"int32", b"O"), SCHEMA.replace(b"int32", b"i4,i4"), SCHEMA.replace(b"flat", b"round"),
    ):  # fmt: skip
        with pytest.raises((CorruptData, Unsupported)):
            parse_schema(damaged)


@pytest.mark.parametrize("header", [b"{'descr': (", b"{'descr': (), 'fortran_order': False, 'shape': (2,)}", b"1", b"\xff"])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_damaged_npy_header_is_corrupt_data(header: bytes, version: int) -> None:
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    with pytest.raises(CorruptData):
        _Npy.parse(b"\x93NUMPY" + bytes([version, 0]) + length + header)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, len(SCHEMA)), st.binary(max_size=8), st.integers(0, 8))
def test_a_damaged_schema_is_an_error_or_a_schema(position: int, inserted: bytes, removed: int) -> None:
    try:
        schema = parse_schema(SCHEMA[:position] + inserted + SCHEMA[position + removed :])
    except FsbridgeError:
        return
    assert schema.kind in ("ndarray", "str", "bytes")


def test_commit_syntax() -> None:
    spec = b'{"commit_time":1.5,"commit_message":"m","commit_user":"u","commit_email":"e"}'
    commit = parse_commit("a=1", spec, b"a=2 << a=3")
    assert (commit.parents, commit.mtime_ns) == (("a=2", "a=3"), 1_500_000_000)
    times = [spec.replace(b"1.5", time) for time in (b"1e400", b"NaN", b"-1", b'"x"')]
    for damaged in (b"", b"[]", b"{}", spec.replace(b'"m"', b"1"), *times):
        with pytest.raises(CorruptData):
            parse_commit("a=1", damaged, b"")


def test_tree_records_are_sorted_or_get_sorted() -> None:
    records = b"f:b:y 0=2$s:b:f 1=1$f:b:x 0=1$n:c:k.a:s 0=3$n:c:k:s 0=4$n:c:k:t 0=5$s:c:n 1=2"
    table = RefTable(tree_records(records))
    assert list(table.columns()) == [("b", "1=1"), ("c", "1=2")]
    assert list(table.samples("b", nested=False)) == ["x", "y"]
    assert list(table.samples("c", nested=True)) == ["k.a", "k"]
    assert list(table.subsamples("c", "k")) == ["s", "t"]
    assert table.digest("c", ("k", "t")) == "0=5"
    with pytest.raises(CorruptData):
        RefTable([b"f:b:y 0=2", b"f:b:z "]).digest("b", ("z",))


def test_a_sample_is_an_immutable_view(main: HangarSource) -> None:
    array = walk(main, "branches", "master", "variable00", "#2")
    assert isinstance(array, SampleArray)
    assert array.version == sample(main, "branches", "master", "variable00", "#2").version
    assert array.chunks.count() == 1
    with pytest.raises(NotFound):
        array.chunks.find((0, 0, 1))
    with pytest.raises(NotFound):
        array.chunks.find_prefix((1,))
