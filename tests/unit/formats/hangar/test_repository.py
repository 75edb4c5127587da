"""Damaged Hangar repositories, and the process that reads them: faults are errors with a reason. Not here: whole ones."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hangar_data import Expected, get, put
from hangar_model import group, names, opened, row_of, same, sample, value, walk
from numcodecs import blosc

from fsbridge.children.client import ChildDied, ChildProcess
from fsbridge.children.supervisor import CALL_ATTEMPTS, Answer
from fsbridge.errors import AccessDenied, CorruptData, FsbridgeError, Unsupported
from fsbridge.formats.hangar.records import (
    RowRecord,
    TextRecord,
    parse_record,
    split_records,
)
from fsbridge.formats.hangar.repository import DatabaseProcess, HangarRepository
from fsbridge.store.local import LocalStore

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


def test_records_that_lead_nowhere_are_corrupt(crashed: Path) -> None:
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
            next(record for record in split_records(blosc.decompress(stored)) if record.startswith(name))
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


# ---- the child process


@pytest.fixture
def process(crashed: Path, children: list[ChildProcess]) -> Iterator[DatabaseProcess]:
    """What reads the databases, with the `children` that it starts."""

    def start(*given: Any) -> ChildProcess:
        children.append(ChildProcess(*given))
        return children[-1]

    process = DatabaseProcess(str(crashed / ".hangar"), 10.0, start)
    yield process
    process.close()


@pytest.fixture
def children() -> list[ChildProcess]:
    return []


def test_a_killed_process_is_started_again(crashed: Path, process: DatabaseProcess, children: list[ChildProcess]) -> None:
    repository = HangarRepository(LocalStore(str(crashed / ".hangar")), process)
    for number in range(1, 6):
        assert [digest for digest, _ in repository.commits()] == [Expected.load("crashed").branches["master"]]
        assert len(children) == number
        os.kill(children[-1].pid, signal.SIGKILL)
    assert repository.head() == "master"
    repository.close()
    assert not any(child.alive for child in children)


def test_p8_a_process_that_a_writer_ended_is_no_damage(crashed: Path) -> None:
    """LMDB ends the process on a page that was overwritten while it was read. Without a writer that is damage."""
    writes: list[bool] = []

    class Ending(ChildProcess):
        def ask(self, *given: Any, **options: Any) -> Answer:
            if writes:
                if writes.pop():
                    put(crashed / ".hangar/ref.lmdb", {b"x": b"y"})
                raise ChildDied("ended")
            return super().ask(*given, **options)

    process = DatabaseProcess(str(crashed / ".hangar"), 10.0, Ending)
    with closing(HangarRepository(LocalStore(str(crashed / ".hangar")), process)) as repository:
        writes += [True] * CALL_ATTEMPTS
        assert list(repository.commits())
        assert not writes
        writes += [False] * CALL_ATTEMPTS
        with pytest.raises(ChildDied):
            list(repository.commits())


def test_the_process_can_open_nothing_but_the_repository(crashed: Path, tmp_path: Path, process: DatabaseProcess) -> None:
    outside = tmp_path / "outside.lmdb"
    outside.write_bytes((crashed / ".hangar" / "branch.lmdb").read_bytes())
    (crashed / ".hangar" / "link.lmdb").symlink_to(outside)
    for path in ("../../outside.lmdb", str(outside), "link.lmdb"):
        with pytest.raises(AccessDenied):
            process.ask({"op": "get", "path": path, "keys": ["head"]})
    for path in ("nothing.lmdb", "README.txt", "data", ""):
        with pytest.raises(CorruptData):
            process.ask({"op": "get", "path": path, "keys": ["head"]})
    assert process.ask({"op": "get", "path": "branch.lmdb", "keys": ["head", "", "x" * 600]})[1] == b"branch:master"
