"""What directories contain is remembered in little memory: packed, it shows the same as it was read, for no longer (P9)."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from fake_tree import FakeDirectory, FakeFile, FakeLink, FakeSpace, SpaceDirectory
from handlers import CTX, Replies, Steps, family, walked, with_filesystem

from fsbridge.config import Config
from fsbridge.kernel import directory_cache, handles
from fsbridge.kernel.ages import Ages
from fsbridge.kernel.directory_cache import DirectoryCache, pack, unpacked
from fsbridge.kernel.inodes import MAX_SPACE
from fsbridge.kernel.readings import read_directory
from fsbridge.tree import Attrs, Dated, Entry, Numbered

AGES = Ages(Config("fake", "/mnt", metadata_ttl=60.0))


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory is read whole, however long a busy machine takes for it."""
    monkeypatch.setattr(handles, "BEGINNING_SECONDS", 60.0)


class Mixed(FakeDirectory):
    """Numbered members and others."""

    def entries(self) -> Any:
        yield [Entry(b"zarr.json", Attrs("file", 10, 3), lambda: FakeFile(b"x"), b"digest")]
        yield Numbered("directory", 0, 7, [(2, 11), (5, 12)], 50.0)
        yield Dated([Entry(b"c", Attrs("file", None, 5), 4), Entry(b"l", Attrs("link", 3, 6), lambda: FakeLink(b"a"))], 60.0)


@pytest.fixture
def packs_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stays as it was read."""
    monkeypatch.setattr(directory_cache, "ROOM_BYTES", 0)
    monkeypatch.setattr(directory_cache, "OPEN_BYTES", 0)


def shown(reading: Any) -> list[Any]:
    return [(entry._replace(node=None) if callable(entry.node) else entry) for batch in reading.batches for entry in batch]


def read_now(reading: Any) -> Any:
    return handles.Reading(reading.node, reading.shown, reading.batches, time.monotonic())


def test_p9_what_is_packed_shows_the_same() -> None:
    space = FakeSpace(100)
    reading = read_directory(AGES, Mixed(space=space, extent=17))
    assert reading is not None
    reading.below[4] = handles.Reading(reading.node, reading.shown, reading.batches[1:2], 70.0)
    again = unpacked(pack(reading) or b"")
    assert shown(again) == shown(reading)
    assert {again.asked, *(batch.asked for batch in again.batches)} == {50.0}, "as old as what is oldest"  # type: ignore[attr-defined]
    assert (again.attrs, again.shown.extent) == (reading.attrs, 17)
    assert again.shown.space is not None
    assert (again.shown.space.identity, again.shown.space.size) == (space.identity, 100)
    assert shown(again.below[4]) == shown(reading.below[4])


def test_what_could_not_be_opened_by_its_name_is_not_packed() -> None:
    class Versioned(SpaceDirectory):
        def entries(self) -> Any:
            yield [Entry(b"1", Attrs("file", None, 1), lambda: FakeFile(), b"version")]

    for node in (Versioned(FakeSpace(9), 3), Mixed(space=FakeSpace(MAX_SPACE + 1))):
        reading = read_directory(AGES, node)
        assert reading is not None
        assert pack(reading) is None
    odd = read_directory(AGES, FakeDirectory({b"f": FakeFile(b"x", keyed=True)}))
    assert odd is not None
    assert pack(odd) is not None
    odd.batches = [[entry._replace(version=object()) for entry in odd.batches[0]]]
    assert pack(odd) is None


def test_what_has_room_stays_as_it_was_read() -> None:
    """Then its members are opened at once, not each by a job that looks for its name."""
    kept = DirectoryCache(60.0)
    reading = read_directory(AGES, Mixed(space=FakeSpace(100)))
    assert reading is not None
    known = [read_now(reading) for _ in range(1000)]
    for inode, each in enumerate(known):
        kept.put(inode, each)
    assert all(kept.get(inode) is each for inode, each in enumerate(known))


def test_p6_an_array_takes_some_hundred_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_cache, "ROOM_BYTES", 0)
    kept = DirectoryCache(60.0)
    reading = read_directory(AGES, Mixed(space=FakeSpace(100)))
    assert reading is not None
    for inode in range(10_000):
        kept.put(inode, read_now(reading))
    assert kept.nbytes < directory_cache.OPEN_BYTES + 10_000 * 200
    assert len(kept) == 10_000
    assert kept.get(5) is kept.get(5), "unpacked once while somebody is in it"
    for inode in range(10_000):
        kept.drop(inode)
    assert (kept.nbytes, kept._open_bytes, len(kept), len(kept._unpacked)) == (0, 0, 0, 0)


def test_p6_the_more_is_packed_the_less_stays_as_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_cache, "ROOM_BYTES", 1 << 20)
    monkeypatch.setattr(directory_cache, "OPEN_BYTES", 1 << 17)
    kept = DirectoryCache(60.0)
    reading = read_directory(AGES, Mixed(space=FakeSpace(100)))
    assert reading is not None
    open_bytes = []
    for inode in range(4000):
        kept.put(inode, read_now(reading))
        if inode % 500 == 499:
            open_bytes.append(kept._open_bytes)
    assert open_bytes[0] > open_bytes[1] > open_bytes[2]
    assert open_bytes[0] > directory_cache.ROOM_BYTES // 2
    assert open_bytes[-1] <= directory_cache.OPEN_BYTES


def test_p6_a_pack_goes_with_the_last_of_its_directories(packs_all: None) -> None:
    kept = DirectoryCache(60.0)
    for inode in range(directory_cache.PACKED_TOGETHER):
        kept._open[inode] = reading = read_now(read_directory(AGES, Mixed()))
        kept._open_bytes += reading.nbytes
        kept.nbytes += reading.nbytes
    kept.put(100, read_now(read_directory(AGES, Mixed())))
    first, last = kept._packed[0], kept._packed[100]
    assert kept._packed[directory_cache.PACKED_TOGETHER - 1] is first is not last
    taken = kept.nbytes
    for inode in range(1, directory_cache.PACKED_TOGETHER):
        kept.drop(inode)
        assert kept.nbytes == taken
        assert kept.get(0) is not None
    kept.drop(0)
    assert kept.nbytes == last.nbytes < taken


def test_a_walk_of_what_is_packed_opens_nothing(monkeypatch: pytest.MonkeyPatch, packs_all: None) -> None:
    root = family(50)

    async def test(steps: Steps) -> None:
        first = [(name, await steps.list(inode)) for name, inode in await steps.list(1)]
        await steps.idle()
        jobs = steps.jobs
        steps.filesystem.inodes.park()
        assert [(name, await steps.list(inode)) for name, inode in await steps.list(1)] == first
        assert steps.jobs == jobs

    walked(root, monkeypatch, test)


def test_a_member_of_what_is_packed_is_opened_by_its_name(monkeypatch: pytest.MonkeyPatch, packs_all: None) -> None:
    async def test(steps: Steps) -> None:
        for _ in range(2):
            for _, inode in await steps.list(1):
                ((_, file),) = await steps.list(inode)
                found = await steps.filesystem.open(file, 0, CTX)
                assert bytes(await steps.filesystem.read(found.fh, 0, 10)) == b"x"
                await steps.filesystem.release(found.fh)
            steps.filesystem.inodes.park()

    walked(family(5), monkeypatch, test)


def test_p9_rewinding_what_is_packed_lists_anew(monkeypatch: pytest.MonkeyPatch, packs_all: None) -> None:
    root = family(2)

    async def test(filesystem: Any) -> None:
        replies = Replies(monkeypatch)
        for _ in range(2):
            fh = await filesystem.opendir(1, CTX)
            assert len(await replies.all(filesystem, fh)) == 4
        root.members[b"new"] = FakeFile(b"y")
        assert len(await replies.all(filesystem, fh)) == 5

    with_filesystem(test, root, metadata_ttl=60.0)


def test_p9_what_is_packed_is_shown_no_longer_than_the_ttl(monkeypatch: pytest.MonkeyPatch, packs_all: None) -> None:
    root = family(3)

    async def test(steps: Steps) -> None:
        await steps.list(1)
        root.members[b"new"] = FakeFile(b"y")
        await steps.shown(b"new", within=0.2)

    walked(root, monkeypatch, test, metadata_ttl=0.2)


def test_p6_what_is_too_old_is_forgotten(monkeypatch: pytest.MonkeyPatch, packs_all: None) -> None:
    kept = DirectoryCache(60.0)
    reading = read_directory(AGES, Mixed())
    assert reading is not None
    for inode in range(100):
        kept.put(inode, read_now(reading))
    assert len(kept) == 100
    now = time.monotonic()
    monkeypatch.setattr(directory_cache, "time", SimpleNamespace(monotonic=lambda: now + 120))
    kept.expire()
    assert (len(kept), kept.nbytes) == (0, 0)
