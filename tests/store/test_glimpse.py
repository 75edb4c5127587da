"""A glimpse of a directory is what the store says of it in the ordinary way, or there is none (P3, P4)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsbridge.store import Key, glimpse, mounted
from fsbridge.store.local import LocalStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Directories `g/NAME` whose document is what the name says."""
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


@pytest.mark.parametrize("listed", [False, True])
def test_p4_only_plain_objects_in_plain_directories_are_glimpsed(path: Path, store: LocalStore, listed: bool) -> None:
    names = [*os.listdir(path / "g"), "nothing"]
    with store.together():
        if listed:
            assert list(store.list(Key("g"), stats=True))
        found = {name: store.glimpse(Key("g") / name, "document", 100) for name in names}
    seen = {name: glimpsed for name, glimpsed in found.items() if glimpsed is not None}
    assert set(seen) == {"plain", "beside", "empty"}
    for name, glimpsed in seen.items():
        assert (glimpsed.data, glimpsed.stat.version) == (
            store.read(Key(f"g/{name}/document"), 100)[0],
            store.stat(Key(f"g/{name}/document")).version,
        )
        assert glimpsed.alone == (name != "beside")
        assert glimpsed.touched_ns == store.stat(Key(f"g/{name}")).mtime_ns
    assert store.glimpse(Key("g/plain"), "document", 100) is None, "outside of a moment"


def test_p7_what_something_is_mounted_on_is_not_glimpsed(
    path: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounted, "beneath", lambda _: frozenset((str(path / "g/plain"),)))
    with store.together():
        assert store.glimpse(Key("g/plain"), "document", 100) is None
        assert store.glimpse(Key("g/beside"), "document", 100) is not None


def test_p9_an_object_that_is_being_written_is_not_glimpsed(
    path: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = os.pread

    def written(fd: int, size: int, start: int) -> bytes:
        data = original(fd, size, start)
        (path / "g/plain/document").write_bytes(b"more than before")
        return data

    monkeypatch.setattr(glimpse.os, "pread", written)
    with store.together():
        assert store.glimpse(Key("g/plain"), "document", 100) is None


def test_p11_a_glimpse_leaves_nothing_open(path: Path, store: LocalStore) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with store.together():
        for name in os.listdir(path / "g"):
            store.glimpse(Key("g") / name, "document", 100)
    assert len(os.listdir("/proc/self/fd")) == before
