"""What a thread asks of a local store within a moment: the same answers as outside, by fewer calls (P3, P4, P9, P11)."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsbridge.errors import AccessDenied, CorruptData, FsbridgeError, NotFound, Stale
from fsbridge.store import ROOT, Key
from fsbridge.store.local import LocalStore, status
from fsbridge.store.local import files as local_files
from fsbridge.store.local.descriptors import open_beneath
from fsbridge.store.local.moments import HELD_DIRECTORIES, SEEN_OBJECTS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with everything in it that a name can stand for, and something beside it."""
    root = tmp_path / "store"
    (root / "a/b").mkdir(parents=True)
    (root / "a/chunk").write_bytes(b"chunk")
    (root / "a/b/0").write_bytes(b"0")
    (root / "a/empty").mkdir()
    os.mkfifo(root / "a/fifo")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_bytes(b"secret")
    for name, target in {
        "near": "chunk", "far": "../a/b", "gone": "nothing", "out": "../../outside/secret", "escape": "../../outside",
        "absolute": str(root / "a/chunk"), "circle": "circle",
    }.items():  # fmt: skip
        (root / "a" / name).symlink_to(target)
    return root


@pytest.fixture
def store(path: Path) -> Iterator[LocalStore]:
    opened = LocalStore(str(path))
    yield opened
    opened.close()


def answer(ask: Callable[[], Any]) -> Any:
    """Return the answer to a question, or its error."""
    try:
        found = ask()
        return found if isinstance(found, tuple) else sorted(map(repr, found))
    except (FsbridgeError, OSError) as error:
        return type(error), str(error)


def add(directory: Path) -> None:
    """A new member, which shows in the directory's mtime however coarse the clock is."""
    (directory / "new").write_bytes(b"new")
    os.utime(directory, ns=(1, 1))


def questions(store: LocalStore) -> list[Callable[[], Any]]:
    names = ["a", "a/b", "a/b/0", "a/nothing", "a/nothing/0", "a/chunk/0", "b", "a/empty", "a/escape/secret", "a/far/0"]
    names += [f"a/{name}" for name in ("chunk", "fifo", "near", "far", "gone", "out", "escape", "absolute", "circle")]
    asked: list[Callable[[], Any]] = []
    for key in (ROOT, *map(Key.parse, names)):
        asked += [
            lambda key=key: store.stat(key),
            lambda key=key: store.read(key, 100),
            lambda key=key: store.read_range(key, 0, 1),
            lambda key=key: store.list(key),
            lambda key=key: store.list(key, stats=True),
            lambda key=key: [name for names in store.names(key) for name in names],
            lambda key=key: store.mtimes(key, ["0", "chunk", "b", "near", "far", "gone", "out", "fifo"]),
        ]
    return asked


def test_p4_a_moment_answers_as_the_store_does(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links are followed by the same rules, and what lies outside stays there, whatever was looked at before."""
    monkeypatch.setattr(status, "TICK_NS", -(10**18))  # whether a change would show depends on the time of asking
    alone = [answer(ask) for ask in questions(store)]
    with store.together():
        together = [answer(ask) for ask in questions(store)]
    assert together == alone
    with store.together():
        backwards = [answer(ask) for ask in reversed(questions(store))]
    assert backwards[::-1] == alone
    kinds = {result[0] for result in alone if result and isinstance(result[0], type)}
    assert kinds >= {NotFound, CorruptData, AccessDenied}


def test_a_moment_finds_nothing_twice(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    original = local_files.open_beneath
    monkeypatch.setattr(local_files, "open_beneath", lambda *given: opened.append(given[1]) or original(*given))
    with store.together():
        store.stat(Key("a"))
        store.read(Key("a/chunk"), 10)
        assert store.stat(Key("a")).is_dir
        assert {name for names in store.names(Key("a/b")) for name in names} == {"0"}
        assert store.mtimes(Key("a/b"), ["0", "1"])[1] is None
        store.read(Key("a/b/0"), 10)
    assert opened == ["a"]


def test_p9_a_moment_sees_what_is_there_when_it_begins(path: Path, store: LocalStore) -> None:
    with store.together():
        before = store.stat(Key("a"))
        add(path / "a")
        assert store.stat(Key("a")) == before
        assert store.read(Key("a/new"), 10)[0] == b"new"
    assert store.stat(Key("a")).version != before.version
    with store.together():
        assert store.stat(Key("a")).version != before.version


def test_p9_what_was_read_in_a_moment_is_the_same_until_it_ends(path: Path, store: LocalStore) -> None:
    """A question if it has changed is then answered so, for as long as the moment remembers it."""
    key, chunk = Key("a/chunk"), path / "a/chunk"
    with store.together():
        data, before = store.read(key, 100)
        assert store.stat(key) == before
        chunk.write_bytes(b"changed")
        assert store.stat(key) == before
        assert store.read(key, 100)[0] == b"changed"
        assert store.stat(key).version != before.version
    with store.together():
        assert store.stat(key).version != before.version
        for number in range(2 * SEEN_OBJECTS):
            (path / f"a/b/{number}").write_bytes(b"x")
            store.read(Key(f"a/b/{number}"), 1)
        os.utime(path / f"a/b/{number}", ns=(1, 1))
        assert store.stat(Key(f"a/b/{number}")).mtime_ns == 1
    assert data == b"chunk"


def test_p3_nothing_is_absent_because_the_store_was_replaced_in_a_moment(path: Path, store: LocalStore) -> None:
    with store.together():
        store.stat(Key("a"))
        shutil.rmtree(path)
        with pytest.raises(Stale):
            store.read(Key("a/chunk"), 10)
        (path / "a").mkdir(parents=True)
        (path / "a/chunk").write_bytes(b"other")
        assert store.read(Key("a/chunk"), 10)[0] == b"other"
    assert store.read(Key("a/chunk"), 10)[0] == b"other"


def test_p9_no_moment_hides_that_another_directory_has_taken_a_place(path: Path, store: LocalStore) -> None:
    """A whole array of which the rest was found in the new directory was taken for one version."""
    with store.together():
        before = store.commit(Key("a"))
        assert store.stat(Key("a/b/0")).size == 1
        (path / "a/b/1").write_bytes(b"x")
        assert store.commit(Key("a")) == before
        (path / "a").rename(path / "old")
        shutil.copytree(path / "old", path / "a", symlinks=True, ignore=shutil.ignore_patterns("fifo"))
        assert store.commit(Key("a")) != before
        assert store.commit(Key("old")) == before


def descriptors_below(path: Path) -> int:
    """Descriptors of this store; others come and go with what other tests have left to the collector."""
    targets = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            targets.append(os.readlink(f"/proc/self/fd/{number}"))
    return sum(target.startswith(f"{path}/") for target in targets)


def test_p11_a_moment_leaves_no_descriptors(path: Path, store: LocalStore) -> None:
    for number in range(3 * HELD_DIRECTORIES):
        (path / f"d{number}/below").mkdir(parents=True)
    with store.together():
        for number in range(3 * HELD_DIRECTORIES):
            assert store.stat(Key(f"d{number}")).is_dir
            assert [list(names) for names in store.names(Key(f"d{number}"))] == [["below"]]
            with store.together():
                assert [member.name for member in store.list(Key(f"d{number}"))] == ["below"]
        assert descriptors_below(path) == HELD_DIRECTORIES - 1, "the root, in which all of them are, is held, too"
    assert descriptors_below(path) == 0


def test_p4_a_directory_is_held_while_its_files_are_looked_at_and_links_lead_not_out_of_it(
    path: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path / "chunks/0").mkdir(parents=True)
    for number in range(10):
        (path / f"chunks/0/{number}").write_bytes(b"chunk" * number)
    (path / "chunks/0/link").symlink_to(path.parent / "outside/secret")
    opened: list[str] = []

    def counting(root: int, key: str, flags: int) -> int:
        opened.append(key)
        return open_beneath(root, key, flags)

    monkeypatch.setattr(local_files, "open_beneath", counting)
    with store.together():
        assert [store.stat(Key(f"chunks/0/{number}")).size for number in range(10)] == [5 * number for number in range(10)]
        assert opened == ["chunks/0/0", "chunks/0"]
        with pytest.raises(NotFound):
            store.stat(Key("chunks/0/10"))
        with pytest.raises(AccessDenied):
            store.stat(Key("chunks/0/link"))
        (path / "chunks/0/0").write_bytes(b"another")
        assert store.stat(Key("chunks/0/0")).size == 7, "each look is as of now"
        shutil.rmtree(path / "chunks")
        with pytest.raises(NotFound):
            store.stat(Key("chunks/0/1"))


def test_p4_listed_directories_are_entered_and_links_are_not(
    path: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by one call, and what is in it by another; a link that takes the place of one leads nowhere outside."""
    outside = path.parent / "outside"
    (outside / "document").write_bytes(b"secret")
    names = [f"d{number:03}" for number in range(3 * HELD_DIRECTORIES)]
    for name in names:
        (path / name).mkdir()
        (path / name / "document").write_bytes(name.encode())
    with store.together():
        listed = {member.name: member.stat for member in store.list(ROOT, stats=True)}
        shutil.rmtree(path / names[-1])
        (path / names[-1]).symlink_to(outside)
        monkeypatch.setattr(local_files, "open_beneath", None)
        for name in names[:-1]:
            assert store.stat(Key(name)) == listed[name]
            assert store.read(Key(f"{name}/document"), 10)[0] == name.encode()
        assert descriptors_below(path) == HELD_DIRECTORIES - 1  # and the root
        monkeypatch.undo()
        with pytest.raises(AccessDenied):
            store.read(Key(f"{names[-1]}/document"), 10)
    assert descriptors_below(path) == 0


def test_a_listing_outlives_the_moment_that_it_was_begun_in(store: LocalStore) -> None:
    with store.together():
        store.stat(Key("a"))
        begun = store.list(Key("a"), stats=True)
        first = next(begun)
    rest = {member.name for member in begun}
    assert rest | {first.name} == {member.name for member in store.list(Key("a"))}


def test_a_moment_is_of_one_thread(path: Path, store: LocalStore) -> None:
    seen: list[Any] = []
    with store.together():
        before = store.stat(Key("a"))
        add(path / "a")
        thread = threading.Thread(target=lambda: seen.append(store.stat(Key("a"))))
        thread.start()
        thread.join()
        assert store.stat(Key("a")) == before
    assert seen[0].version != before.version
