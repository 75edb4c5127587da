"""A glimpse of a directory is what the store says of it in the ordinary way, or there is none (P3, P4)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsbridge.store import Key
from fsbridge.store.local import LocalStore, moments
from fsbridge.store.local.moments import Seen
from fsbridge.store.local.status import MountPoints


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Directories `g/NAME` with the document that the name says."""
    root = tmp_path / "store"
    for name in ("plain", "beside", "empty", "large", "link", "gone", "fifo", "directory"):
        (root / "g" / name).mkdir(parents=True)
    for name in ("plain", "beside"):
        (root / "g" / name / "document").write_bytes(b"text")
    (root / "g/beside/0").mkdir()
    (root / "g/empty/document").write_bytes(b"")
    (root / "g/large/document").write_bytes(b"x" * 101)
    (root / "g/link/document").symlink_to("../plain/document")
    os.mkfifo(root / "g/fifo/document")
    (root / "g/directory/document").mkdir()
    (root / "g/linked").symlink_to("plain")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/document").write_bytes(b"secret")
    (root / "g/outside").symlink_to("../../outside")
    (root / "g/file").write_bytes(b"")
    return root


@pytest.fixture
def store(path: Path) -> Iterator[LocalStore]:
    opened = LocalStore(str(path))
    yield opened
    opened.close()


def glimpsed(store: LocalStore, key: Key) -> Seen | None:
    """The document of a directory, by a glimpse; None where there is no glimpse of it."""
    directory = store.glimpse(key)
    if directory is None:
        return None
    with directory:
        try:
            return directory.read("document", 100)
        except OSError:
            return None


@pytest.mark.parametrize("listed", [False, True])
def test_p4_only_plain_objects_in_plain_directories_are_glimpsed(path: Path, store: LocalStore, listed: bool) -> None:
    names = [*os.listdir(path / "g"), "nothing"]
    with store.together():
        if listed:
            assert list(store.list(Key("g"), stats=True))
        found = {name: seen for name in names if (seen := glimpsed(store, Key("g") / name)) is not None}
    assert set(found) == {"plain", "beside", "empty"}
    for name, seen in found.items():
        key = Key(f"g/{name}/document")
        assert (seen.data, seen.stat.version) == (store.read(key, 100)[0], store.stat(key).version)
    assert store.glimpse(Key("g/plain")) is None, "outside of a moment"


def test_what_is_beside_an_object_is_as_the_store_tells(path: Path, store: LocalStore) -> None:
    (path / "g/plain/link").symlink_to("document")
    (path / "g/plain/document").write_bytes(b"text")
    os.utime(path / "g/beside/0", (10**9, 10**9))
    os.utime(path / "g/beside", (2 * 10**9, 2 * 10**9))
    with store.together():
        beside = store.glimpse(Key("g/beside"))
        assert beside is not None
        with beside:
            assert beside.read("absent", 100) is None
            assert (beside.holds_only(["document"]), beside.holds_only(["0", "document"])) == (False, True)
            assert [beside.mtime_ns(name) for name in ("", "0", "absent")] == [2 * 10**18, 10**18, 0]
        plain = store.glimpse(Key("g/plain"))
        assert plain is not None
        with plain, pytest.raises(OSError, match="not plain"):
            plain.mtime_ns("link")


@pytest.mark.parametrize("point", ["g/plain", "g/plain/c"])
def test_p7_what_something_is_mounted_on_is_not_glimpsed(
    point: str, path: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MountPoints, "below", lambda *_: frozenset((str(path / point),)))
    with store.together():
        assert glimpsed(store, Key("g/plain")) is None
        assert glimpsed(store, Key("g/beside")) is not None


def test_p9_an_object_that_is_being_written_is_not_glimpsed(
    path: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = os.pread

    def written(fd: int, size: int, start: int) -> bytes:
        data = original(fd, size, start)
        (path / "g/plain/document").write_bytes(b"more than before")
        return data

    monkeypatch.setattr(moments.os, "pread", written)
    with store.together():
        assert glimpsed(store, Key("g/plain")) is None


def test_p11_a_glimpse_leaves_nothing_open(path: Path, store: LocalStore) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with store.together():
        for name in os.listdir(path / "g"):
            glimpsed(store, Key("g") / name)
    assert len(os.listdir("/proc/self/fd")) == before
