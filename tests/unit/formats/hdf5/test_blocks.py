"""How many requests a remote HDF5 file costs, and what is prefetched of it. Not here: faults, versions, other files."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from fake_s3 import FakeS3
from hdf5_children import watched
from hdf5_model import array, everything, opened, values
from remote_hdf5 import FOLDER, opened_remote, remote_store, upload
from remote_hdf5_files import assert_same_as_local, names, write_rich
from waiting import until

from fsbridge.config import Config
from fsbridge.formats.hdf5.arrays import HDF5Array
from fsbridge.formats.hdf5.blocks import BlockLimits, BlockMemory, Blocks
from fsbridge.formats.hdf5.file import HDF5Limits
from fsbridge.formats.hdf5.remote import RemoteFile
from fsbridge.formats.hdf5.source import HDF5Group, open_hdf5
from fsbridge.store import Key
from fsbridge.store.remote.blocks import BlockCache
from fsbridge.store.remote.store import ObjectStore
from fsbridge.threads.deadlines import Deadline

# ---- requests


def test_a_list_of_400_datasets_takes_at_most_four_requests(server: FakeS3, tmp_path: Path) -> None:
    """Most of them come with the first look at the file."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for number in range(400):
            file.create_dataset(f"g{number % 20}/d{number}", data=np.arange(100.0))
        file.create_dataset("big", data=np.zeros(6_000_000, "u1"), chunks=(2000,))
    with server.counted() as requests, opened_remote(server, tmp_path / "x.h5") as source:
        assert sum(isinstance(found, HDF5Array) for _, found in everything(source.root)) == 401
    ranges = [request.range for request in requests if request.range]  # and whether the file is still the same
    assert len(ranges) <= 4, ranges


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of requests at a time, for each time that blocks were missing."""
    found: list[int] = []
    request = Blocks._request

    def note(blocks: Blocks, runs: Collection[tuple[int, int]], *deadline: Deadline) -> dict[int, bytes]:
        found.append(len(runs))
        return request(blocks, runs, *deadline)

    monkeypatch.setattr(Blocks, "_request", note)
    return found


def test_requests_for_headers_all_over_the_file_are_made_together(server: FakeS3, large: Path, rounds: list[int]) -> None:
    """Headers of a group are requested together; after the first group also those of the next ones, with chunk tables."""
    with server.counted() as requests, opened_remote(server, large) as source:
        with server.gathered(16, lambda request: rounds and rounds[-1] >= 16):
            found = [node for _, node in everything(source.root) if isinstance(node, HDF5Array)]
        assert len(found) == 401
        assert len(rounds) <= 16, rounds
        rounds.clear()
        assert sum(node.chunks.count() == 4 for node in found) == 400
        assert len(rounds) <= 4, rounds  # the table of the large one
        assert array(source, "big").chunks.count() == 2000
    spans = [request.range for request in requests if request.range]
    assert len(spans) == len(set(spans))


def test_groups_that_are_asked_for_in_nearly_their_order_are_a_walk(server: FakeS3, large: Path, rounds: list[int]) -> None:
    """Several groups are asked for at a time, and overtake each other."""
    with opened_remote(server, large) as source:
        order = [name for name in names(source.root) if name != "big"]
        for number in range(0, len(order), 3):
            order[number : number + 3] = reversed(order[number : number + 3])
        for name in order:
            group = source.root.child(name)
            assert isinstance(group, HDF5Group)
            assert len(names(group)) == 20
        assert len(rounds) <= 16, rounds


def test_the_chunk_table_of_a_b_tree_takes_few_rounds(server: FakeS3, tmp_path: Path, rounds: list[int]) -> None:
    """Its nodes lie between the chunks, because it grew while data was written, and each is named by the one above."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (0, 20_000), "u1", maxshape=(None, 20_000), chunks=(1, 20_000))
        for number in range(0, 1000, 10):
            dataset.resize((number + 10, 20_000))
            dataset[number:] = np.random.default_rng(number).integers(0, 255, (10, 20_000))
    with opened_remote(server, path) as source:
        found = array(source, "x")
        rounds.clear()
        assert found.chunks.count() == 1000
        assert len(rounds) <= 5
        with opened(path) as local:
            np.testing.assert_array_equal(values(found), values(array(local, "x")))


@pytest.mark.parametrize("read_ahead", [True, False])
def test_longer_and_longer_runs_of_blocks_are_requested_only_with_read_ahead(
    server: FakeS3, tmp_path: Path, read_ahead: bool
) -> None:
    """The chunk table lies in one piece behind the head of the file, and is not all of the tail."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["before"] = np.zeros(1_100_000, "u1")
        file.create_dataset("x", (60_000,), "<i2", chunks=(1,), compression="gzip")[::1000] = 1
        file["after"] = np.zeros(2_100_000, "u1")
    with opened_remote(server, path, read_ahead=read_ahead) as source:
        found = array(source, "x")
        with server.counted() as requests:
            assert found.chunks.count() == 60
    assert (len(requests) > 16) != read_ahead, [request.range for request in requests]


@pytest.mark.parametrize("libver", [None, "latest"])
def test_p12_attempts_that_fail_change_no_answer(server: FakeS3, tmp_path: Path, libver: str | None) -> None:
    """In blocks of 512 bytes nearly everything is missing at first, so that HDF5 fails wherever it can."""
    small = BlockLimits(block=512, head=512)
    assert assert_same_as_local(server, write_rich(tmp_path / "rich.h5", libver=libver), small) == 11
    path = tmp_path / "deep.h5"
    with h5py.File(path, "w", libver=libver) as file:
        for number in range(60):
            dataset = file.create_dataset(f"a{number % 3}/b{number % 5}/x{number}", data=np.arange(1000) + number)
            dataset.attrs["words"] = ["one", f"{number}" * 100]
            dataset.attrs["other"] = file["a0"].ref
    assert assert_same_as_local(server, path, small) == 3 + 15 + 60


@pytest.mark.parametrize("rows", [1, 10], ids=["small", "large"])
def test_chunks_are_prefetched_in_parallel(server: FakeS3, tmp_path: Path, rows: int) -> None:
    """Each byte is sent once; small chunks come with their neighbours."""
    data = np.random.default_rng(0).integers(0, 2**62, (80, 10_000))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("chunked", data=data, chunks=(rows, 10_000), compression="gzip")
        file["plain"] = np.tile(data, (2, 1))
    with opened_remote(server, tmp_path / "x.h5") as source:
        for name in ("chunked", "plain"):
            found = array(source, name)
            indices = list(np.ndindex(found.metadata.grid.counts))
            assert found.chunks.count() == len(indices)  # their places are known
            with server.counted() as requests, server.gathered(3, lambda request: request.range):
                assert found.fetch is not None
                for index in indices:
                    found.fetch(index)
                for index in indices:
                    chunk = bytearray(found.metadata.chunk_bytes(index) or 0)
                    found.chunks.read_into(index, found.chunks.find(index), memoryview(chunk))
            ranges = sorted(tuple(map(int, request.range[6:].split("-"))) for request in requests if request.range)
            assert len(ranges) <= max(16, len(indices) // 4)
            assert all(before < first for (_, before), (first, _) in itertools.pairwise(ranges)), ranges
            np.testing.assert_array_equal(values(found), data if name == "chunked" else np.tile(data, (2, 1)))


@pytest.fixture
def many(tmp_path: Path) -> dict[str, int]:
    """The file many.h5 of 60 datasets of 320 kB in three groups, one of which leads back to the root: their values."""
    found = {f"g{number % 3}/d{number:02}": number for number in range(60)}
    with h5py.File(tmp_path / "many.h5", "w") as file:
        for name, number in found.items():
            file.create_dataset(name, data=np.full(40_000, number), chunks=(20_000,) if number % 2 else None)
        file["g1/loop"] = file["/"]
    return dict(sorted(found.items()))


def read_once(found: HDF5Array) -> set[int]:
    """The values of a dataset, each chunk read once."""
    read: set[int] = set()
    for index in np.ndindex(found.metadata.grid.counts):
        chunk = bytearray(found.metadata.chunk_bytes(index) or 0)
        found.chunks.read_into(index, found.chunks.find(index), memoryview(chunk))
        read |= set(np.frombuffer(chunk, "<i8").tolist())
    return read


def test_datasets_that_are_read_one_after_the_other_are_prefetched(
    server: FakeS3, tmp_path: Path, many: dict[str, int]
) -> None:
    begun = itertools.count()  # the first ones come alone
    with opened_remote(server, tmp_path / "many.h5") as source:
        list(everything(source.root))
        with server.counted() as requests, server.gathered(4, lambda request: request.range and next(begun) >= 10):
            for name, number in many.items():
                assert read_once(array(source, name)) == {number}
    ranges = [request.range for request in requests if request.range]
    assert len(set(ranges)) <= 90
    assert len(ranges) <= 120, "what its reader asks for just before it is sent comes twice"


@pytest.mark.parametrize(("step", "read_ahead"), [(-7, True), (1, False)], ids=["scattered reads", "no read-ahead"])
def test_nothing_is_prefetched_for_scattered_reads_or_without_read_ahead(
    server: FakeS3, tmp_path: Path, many: dict[str, int], step: int, read_ahead: bool
) -> None:
    sent: list[Key] = []

    class Noting(ObjectStore):
        def fetch(self, key: Key, *where: Any) -> None:
            sent.append(key)

    with opened_remote(server, tmp_path / "many.h5", kind=Noting, read_ahead=read_ahead) as source:
        list(everything(source.root))
        for name in list(many)[::step]:
            assert read_once(array(source, name)) == {many[name]}
        assert sent == []


def test_the_block_cache_answers_without_a_request(server: FakeS3, tmp_path: Path) -> None:
    path = write_rich(tmp_path / "x.h5")
    key = upload(server, path)
    for warm in (False, True):
        cache = BlockCache(str(tmp_path / "blocks"), 1 << 30, FOLDER)
        store = remote_store(server, ttl=float("inf"), blocks=cache)
        with server.counted() as requests:
            source = open_hdf5(RemoteFile(store, key), Config("x", "/nowhere"))
            try:
                for name, found in sorted(everything(source.root), reverse=warm):
                    if isinstance(found, HDF5Array):
                        assert values(found) is not None, name
            finally:
                source.close()
        cache.flush()
        if warm:
            assert not requests, [request.range for request in requests]


def test_p6_p11_an_idle_file_gives_its_resources_back(server: FakeS3, large: Path) -> None:
    asked: list[int] = []
    memory = BlockMemory(BlockLimits(idle_seconds=0.2))
    shared = watched(lambda child, question: asked.append(child.pid), limits=HDF5Limits(idle_seconds=0.2), parts=[memory])
    with opened_remote(server, large, shared) as source:
        for number in (7, 8):
            asked.clear()
            assert (values(array(source, f"g{number}/d{number}")) == number).all()
            until(lambda: not memory.blocks.used and source.file.supervisor.child is None)
            assert asked
            until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in asked))  # not even as a zombie


def test_small_chunks_next_to_each_other_come_together(server: FakeS3, large: Path) -> None:
    """The first of a megabyte by itself, with the second all of it; each is asked for once."""
    with opened_remote(server, large) as source:
        found = array(source, "big")
        assert found.chunks.count() == 2000
        with server.counted() as requests:
            np.testing.assert_array_equal(values(found), np.arange(400_000))
    ranges = [request.range for request in requests if request.range]
    assert len(ranges) <= 12, ranges
