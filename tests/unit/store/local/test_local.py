"""Local store: beneath the root only, exact reads, versions, honest errors (P3, P4)."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from descriptors import list_descriptors
from faulty_mount import FaultyMount
from hypothesis import given
from hypothesis import strategies as st
from waiting import Clock, until, until_ticked

from fsbridge.errors import AccessDenied, CorruptData, FsbridgeError, IsADirectory, NameTooLong, NotFound, Stale, TooLarge
from fsbridge.store import ROOT, Key
from fsbridge.store.local import DAMAGED_MEMBERS, LocalStore
from fsbridge.store.local.descriptors import HAVE_OPENAT2, OpenBeneath, open_beneath, walk_beneath
from fsbridge.store.local.status import stat_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with a secret beside it."""
    store = tmp_path / "store"
    (store / "a" / "b").mkdir(parents=True)
    (store / "a" / "b" / "chunk").write_bytes(b"0123456789")
    (tmp_path / "secret").write_bytes(b"secret")
    return store


@pytest.mark.parametrize("text", ["..", ".", "a//b", "/a", "a/", "a/../b", "a\0b", "a/./b", "\ud800", "a/\ud800x"])
def test_key_refuses_what_no_store_can_hold(text: str) -> None:
    with pytest.raises(NotFound):
        Key.parse(text)


@given(st.text(max_size=12), st.text(max_size=12))
def test_key_components_are_harmless(first: str, second: str) -> None:
    try:
        key = Key.parse(first) / second
    except NotFound:
        return
    assert not {"", ".", ".."} & set(key.split("/"))
    assert "\0" not in key
    assert key.name == second
    assert key.parent == first


def test_p3_objects_deeper_than_a_path_can_say_are_not_absent(root: Path) -> None:
    folder = os.open(root, os.O_RDONLY)
    names = ["g" * 200] * 21
    for name in names:
        os.mkdir(name, dir_fd=folder)
        above, folder = folder, os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(above)
    os.close(os.open("chunk", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)
    store = LocalStore(str(root))
    deep = Key.parse("/".join([*names, "chunk"]))
    for ask in (store.stat, lambda key: store.read(key, 100), lambda key: next(store.list(key)), store.open_object):
        with pytest.raises(NameTooLong):
            ask(deep)
        with pytest.raises(NotFound):
            ask(Key.parse("a/" + "x" * 256))  # which no file system could hold


def test_what_is_in_a_directory_is_read_and_listed(root: Path) -> None:
    store = LocalStore(str(root))
    key = Key.parse("a/b/chunk")
    data, read = store.read(key, 100)
    assert data == b"0123456789"
    assert store.stat(key).version == read.version
    assert store.stat(key.parent).is_dir
    assert store.read_range(key, 2, 3)[0] == b"234"
    assert store.read_range(key, -3, 3)[0] == b"789"
    assert [(e.name, e.is_dir) for e in store.list(ROOT)] == [("a", True)]
    (entry,) = store.list(key.parent, stats=True)
    assert entry.stat is not None
    assert entry.stat.version == read.version
    store.close()


@pytest.mark.parametrize("how", ["in place", "unpacked anew"])
def test_p9_a_rewrite_that_keeps_size_and_mtime_is_another_version(root: Path, how: str) -> None:
    """`rsync --inplace -t`; `tar x`, where the file system gives the inode number out again."""
    store, key, path = LocalStore(str(root)), Key.parse("a/b/chunk"), root / "a/b/chunk"
    os.utime(path, ns=(10**18, 10**18))
    before = store.stat(key)
    until_ticked(path)
    if how == "unpacked anew":
        path.unlink()
    with open(path, "r+b" if path.exists() else "wb") as file:
        file.write(b"9876543210")
    os.utime(path, ns=(10**18, 10**18))
    after = store.stat(key)
    assert (before.size, before.mtime_ns) == (after.size, after.mtime_ns)
    assert before.version != after.version


def test_p9_a_change_within_a_tick_of_the_clock_is_not_settled(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, key = LocalStore(str(root)), Key.parse("a/b/chunk")

    def is_settled_after_a_write() -> bool:
        (root / "a/b/chunk").write_bytes(b"just now")
        os.utime(root / "a/b/chunk", ns=(5, 5))
        return store.stat(key).settled

    until(lambda: not is_settled_after_a_write())  # a slow machine may look too late
    Clock(monkeypatch).settles()
    assert store.stat(key).settled
    status = os.stat_result((0o100644, *range(9)), {"st_ctime_ns": time.time_ns() // 10**9 * 10**9, "st_mtime_ns": 0})
    assert not stat_of(status).settled  # whole seconds only: such a clock ticks once a second or two


@pytest.mark.parametrize("ahead", [5, 30, 3600])
def test_p9_a_time_ahead_of_our_clock_is_settled_by_the_file_systems_own(
    ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until our clock had come there, every file of a whole array of such a store was a stale file handle."""
    clock, device = Clock(monkeypatch), 10**6 + ahead  # a file system that no other test knows
    changed = [(int(time.time()) + ahead) * 10**9 + fraction for fraction in (0, 123_456_789)]
    values = (0o100644, 0, device, *range(3, 10))
    files = [os.stat_result(values, {"st_ctime_ns": when, "st_mtime_ns": 0}) for when in changed]
    assert not any(stat_of(file).settled for file in files)
    clock.passes(3.0)
    assert all(stat_of(file).settled for file in files)


@pytest.mark.parametrize(("size", "settled"), [(1000, True), (10**8, False)])
def test_p9_a_large_object_is_settled_when_one_write_of_it_must_have_ended(size: int, settled: bool) -> None:
    """A write(2) dates the object when it begins: a reader meanwhile got half of each version, and kept it."""
    times = {"st_ctime_ns": time.time_ns() - 10**9 + 1, "st_mtime_ns": 0}
    values = (0o100644, 0, 1, 2, 3, 4, size, 6, 7, 8)
    assert stat_of(os.stat_result(values, times)).settled == settled


@pytest.mark.parametrize(("start", "length"), [(0, 11), (10, 1), (-11, 5), (11, 0), (3, -1)])
def test_range_outside_the_object_is_an_error(root: Path, start: int, length: int) -> None:
    with pytest.raises(CorruptData, match="of an object of 10"):
        LocalStore(str(root)).read_range(Key.parse("a/b/chunk"), start, length)


@pytest.mark.parametrize(
    ("key", "error"),
    [("nothing", NotFound), ("a/b/chunk/x", NotFound), ("a/b", IsADirectory), ("x" * 300, NotFound)],
)
def test_errors_name_the_path(root: Path, key: str, error: type[FsbridgeError]) -> None:
    with pytest.raises(error, match=key[:20]):
        LocalStore(str(root)).read(Key.parse(key), 100)


def test_limit_is_checked_before_reading(root: Path) -> None:
    with pytest.raises(TooLarge, match="10 bytes stored"):
        LocalStore(str(root)).read(Key.parse("a/b/chunk"), 9)


@pytest.mark.parametrize("kind", ["FIFO", "socket", "link to a FIFO"])
def test_p3_p7_what_is_no_file_does_not_exist(root: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Opening a FIFO would block; a chunk cannot be one."""
    path = root / "a" / "special"
    if kind == "socket":
        folder = os.open(path.parent, os.O_PATH)
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(f"/proc/self/fd/{folder}/special")  # a socket's path has few bytes
        os.close(folder)
    else:
        os.mkfifo(path if kind == "FIFO" else root / "pipe")
        if kind != "FIFO":
            path.symlink_to(root / "pipe")
    store, key = LocalStore(str(root)), Key.parse("a/special")
    for _ in range(2):
        for call in (lambda: store.stat(key), lambda: store.read(key, 100), lambda: store.read_range(key, 0, 1)):
            with pytest.raises(NotFound, match="a FIFO, socket or device"):
                call()
    assert [entry.name for entry in store.list(key.parent, stats=True)] == ["b"]
    if kind == "link to a FIFO":
        assert store.mtimes(key.parent, ["special"]) == [None]
    assert len(caplog.records) == 1


def test_p4_an_absolute_link_into_the_store_is_followed(root: Path) -> None:
    (root / "link").symlink_to(root / "a" / "b")
    (root / "out").symlink_to(root.parent / "secret")
    store = LocalStore(str(root))
    assert store.read(Key.parse("link/chunk"), 100)[0] == b"0123456789"
    with pytest.raises(AccessDenied, match="a link out of the store"):
        store.read(Key.parse("out"), 100)


def test_p4_a_link_that_is_replaced_while_it_is_followed_is_followed_again(root: Path) -> None:
    (root / "link").symlink_to(root / "a" / "b" / "chunk")
    races = iter([OSError(errno.EINVAL, "Invalid argument")])

    def resolve_racing(path: str) -> str:
        race = next(races, None)
        if race is not None:
            raise race
        return os.path.realpath(path)

    store = LocalStore(str(root), resolve=resolve_racing)
    assert store.read(Key.parse("link"), 100)[0] == b"0123456789"
    races = itertools.repeat(OSError(errno.EINVAL, "Invalid argument"))
    with pytest.raises(Stale, match="changed each time"):
        store.read(Key.parse("link"), 100)


def calls_of(store: LocalStore) -> list[Callable[[], object]]:
    """One call of each kind."""
    key = Key.parse("a/b/chunk")
    return [
        lambda: store.stat(key),
        lambda: store.stat(ROOT),
        lambda: store.stat(Key.parse("absent")),
        lambda: store.read(key, 100),
        lambda: store.read_range(key, 0, 1),
        lambda: list(store.list(ROOT)),
        lambda: list(store.names(ROOT)),
        lambda: store.mtimes(key.parent, ["chunk"]),
    ]


@pytest.mark.parametrize("how", ["deleted", "renamed", "its parent renamed", "replaced by an empty directory"])
def test_p3_p9_while_there_is_no_store_every_answer_is_an_error(root: Path, how: str) -> None:
    """Never "absent": `rsync --delete` from an empty tree empties the mirror."""
    store = LocalStore(str(root))
    if how == "its parent renamed":
        root.parent.rename(root.parent.with_name("elsewhere"))
    elif how == "deleted":
        shutil.rmtree(root)
    else:
        root.rename(root.with_name("old"))
    if how == "replaced by an empty directory":
        root.mkdir()
    for call in calls_of(store):
        with pytest.raises(Stale, match="store"):
            call()
    if how == "its parent renamed":
        root.parent.with_name("elsewhere").rename(root.parent)
        assert store.read(Key.parse("a/b/chunk"), 100)[0] == b"0123456789"


@pytest.mark.parametrize("how", ["deleted", "renamed", "by a link"])
def test_p9_a_rewritten_store_is_the_new_one(root: Path, how: str) -> None:
    source = root
    if how == "by a link":
        source = root.with_name("latest")
        source.symlink_to(root)
    store = LocalStore(str(source))
    key = Key.parse("a/b/chunk")
    before = store.stat(key)
    new = root.with_name("new")
    shutil.copytree(root, new)
    (new / "a/b/chunk").write_bytes(b"new")
    if how == "deleted":
        shutil.rmtree(root)
    elif how == "renamed":
        root.rename(root.with_name("old"))
    if how == "by a link":
        source.unlink()
        source.symlink_to(new)
    else:
        new.rename(root)
    data, stat = store.read(key, 100)
    assert data == b"new"
    assert stat.version != before.version
    assert store.describe(key) == str(source.resolve() / key)
    with pytest.raises(NotFound):
        store.stat(Key.parse("absent"))
    assert len(list_descriptors(root.parent)) == 1
    store.close()
    assert list_descriptors(root.parent) == []


@pytest.mark.parametrize("what", ["opened", "read"])
def test_p11_what_fails_behind_an_open_leaves_no_descriptor(root: Path, what: str) -> None:
    """A check of `--allow-other` may refuse what has just been opened; an object may be too large."""
    (root / "a/b/chunk").chmod(0o600)
    store, key = LocalStore(str(root), everybody=what == "opened"), Key.parse("a/b/chunk")
    for _ in range(3):
        if what == "opened":
            with pytest.raises(AccessDenied, match="not every user"):
                store.open_object(key)
        else:
            with pytest.raises(TooLarge, match="10 bytes stored"):
                store.read(key, 5)
    assert list_descriptors(root / "a") == []


LISTED_WITHOUT_ROOM = """
import os, resource, sys
from fsbridge.store import Key
from fsbridge.store.local import LocalStore

store, key = LocalStore(sys.argv[1]), Key.parse("a/b")
before = os.listdir("/proc/self/fd")
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
for listing in [lambda: store.list(key, stats=True), lambda: store.names(key)] * 3:
    next_free = os.open("/", os.O_PATH)
    os.close(next_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_free + 1, hard))
    try:
        print(list(listing()))
    except OSError as error:
        print(error.strerror)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(os.listdir("/proc/self/fd") == before)
"""


def test_p11_a_listing_without_room_leaves_no_descriptor(root: Path) -> None:
    """Its directory opens, but `os.scandir` needs a second descriptor. In a process of its own, no thread closes another."""
    words = [sys.executable, "-c", LISTED_WITHOUT_ROOM, str(root)]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.splitlines() == ["Too many open files"] * 6 + ["True"]


def test_p9_a_directory_that_takes_the_place_of_another_shows_in_the_commit(root: Path) -> None:
    """A whole array of which the rest was found in the new directory would be taken for one version."""
    store = LocalStore(str(root))
    before = store.commit(Key("a"))
    (root / "a/another").write_bytes(b"x")
    assert store.commit(Key("a")) == before
    (root / "a").rename(root / "old")
    shutil.copytree(root / "old", root / "a", symlinks=True)
    assert store.commit(Key("a")) != before
    assert store.commit(Key("old")) == before


@pytest.fixture
def faulty(root: Path, tmp_path: Path) -> Iterator[FaultyMount]:
    """The store through a file system of which reads fail as they are told to."""
    mount = FaultyMount(root, tmp_path / "faulty")
    yield mount
    mount.stop()


def test_changed_while_read_is_stale(faulty: FaultyMount) -> None:
    store, key = LocalStore(str(faulty.path)), Key.parse("a/b/chunk")
    faulty.begin(1, {"change": 1.0}, ("read",))
    with pytest.raises(Stale, match="changed while it was read"):
        store.read(key, 100)
    with pytest.raises(Stale, match="changed while it was read"):
        store.read_range(key, 1, 2)
    faulty.release()
    assert store.read(key, 100)[0] == b"0123456789"


def test_p2_what_the_kernel_reads_in_pieces_is_whole(root: Path, faulty: FaultyMount) -> None:
    """One read gives at most 2 GiB, and fewer bytes than it should from some file systems."""
    content = bytes(range(200))
    (root / "a/b/chunk").write_bytes(content)
    store, key = LocalStore(str(faulty.path)), Key.parse("a/b/chunk")
    faulty.begin(1, {"truncate": 1.0}, ("read",))
    assert store.read(key, 200)[0] == content
    assert store.read_range(key, 10, 150)[0] == content[10:160]
    assert faulty.release()["truncate"] > 2


def test_p2_of_a_file_that_has_become_shorter_nothing_is_given(root: Path) -> None:
    with contextlib.closing(LocalStore(str(root)).open_object(Key.parse("a/b/chunk"))) as opened:
        os.truncate(root / "a/b/chunk", 4)
        with pytest.raises(Stale, match="shrank while it was read"):
            opened.read(100)


@pytest.fixture(params=[HAVE_OPENAT2, False], ids=["openat2", "walk"])
def beneath(request: pytest.FixtureRequest) -> OpenBeneath:
    """Both forms of opening."""
    return partial(open_beneath, have_openat2=request.param)


LINKS = {
    "absolute": "/etc/passwd",
    "up": "../secret",
    "deep": "a/b/../../../secret",
    "through": "a/out/secret",
}


@pytest.mark.parametrize("name", list(LINKS))
def test_links_out_of_the_store_are_refused(root: Path, beneath: OpenBeneath, name: str) -> None:
    (root / "a" / "out").symlink_to("../..")
    (root / name).symlink_to(LINKS[name])
    store = LocalStore(str(root), beneath=beneath)
    with pytest.raises(AccessDenied, match="out of the store"):
        store.read(Key(name), 100)
    with pytest.raises(AccessDenied):
        store.stat(Key.parse("a/out/secret"))
    assert name in [entry.name for entry in store.list(ROOT) if not entry.is_dir]


def test_links_inside_are_followed(root: Path, beneath: OpenBeneath) -> None:
    (root / "a" / "link").symlink_to("../a/b")
    (root / "file").symlink_to("a/link/chunk")
    store = LocalStore(str(root), beneath=beneath)
    assert store.read(Key("file"), 100)[0] == b"0123456789"
    assert {(e.name, e.is_dir) for e in store.list(Key("a"))} == {("b", True), ("link", True)}


def test_links_into_an_allowed_directory_are_followed(root: Path, beneath: OpenBeneath) -> None:
    (root / "annexed").symlink_to("../secret")
    store = LocalStore(str(root), beneath=beneath, allowed=[str(root.parent)])
    assert store.read(Key("annexed"), 100)[0] == b"secret"
    (root / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(AccessDenied):
        store.read(Key("passwd"), 100)


def test_dangling_and_circular_links_are_not_absent(
    root: Path, beneath: OpenBeneath, caplog: pytest.LogCaptureFixture
) -> None:
    (root / "gone").symlink_to("never")
    (root / "dir").symlink_to("nodir")
    (root / "loop").symlink_to("loop")
    store = LocalStore(str(root), beneath=beneath)
    for key in ("gone", "dir/0/1"):
        with pytest.raises(CorruptData, match="a link to something that is not there"):
            store.stat(Key.parse(key))
    with pytest.raises(AccessDenied, match="circle"):
        store.stat(Key("loop"))
    assert {"gone", "dir", "loop"} <= {entry.name for entry in store.list(ROOT)}
    assert len(caplog.messages) == 1
    assert "(and 2 more here)" in caplog.text


class Unreadable:
    """A member of a directory with a damaged inode, as `os.scandir` shows it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_symlink(self) -> bool:
        return False

    def is_file(self, *, follow_symlinks: bool) -> bool:
        return False

    def is_dir(self, *, follow_symlinks: bool) -> bool:
        return True

    def stat(self, *, follow_symlinks: bool) -> os.stat_result:
        raise OSError(errno.EUCLEAN, os.strerror(errno.EUCLEAN))


@pytest.fixture
def damage(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Whatever is called so has a damaged inode from now on."""
    names: set[str] = set()
    scandir, stat = os.scandir, os.stat

    @contextlib.contextmanager
    def scan(fd: int) -> Iterator[Iterator[object]]:
        with scandir(fd) as members:
            yield (Unreadable(member.name) if member.name in names else member for member in members)

    def look(path: str, **how: Any) -> os.stat_result:
        if path in names:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, **how)

    monkeypatch.setattr(os, "scandir", scan)
    monkeypatch.setattr(os, "stat", look)
    return names.add


def test_p8_a_damaged_inode_hides_nothing_beside_it(
    root: Path, damage: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("bad", "good"):
        (root / "g" / name).mkdir(parents=True)
    damage("bad")
    store = LocalStore(str(root))
    found = {member.name: member for member in store.list(Key("g"), stats=True)}
    assert found["good"].is_dir
    assert found["bad"].hidden
    assert found["bad"].stat is not None
    assert "g/bad" in caplog.text
    known, unknown = store.mtimes(Key("g"), ["good", "bad"])
    assert (known, unknown) == ((root / "g/good").stat().st_mtime_ns, 0)


def test_p7_a_directory_of_damaged_inodes_alone_is_an_error(root: Path, damage: Callable[[str], None]) -> None:
    names = [f"bad{number}" for number in range(DAMAGED_MEMBERS + 1)]
    for name in names:
        (root / "g" / name).mkdir(parents=True)
        damage(name)
    store = LocalStore(str(root))
    with pytest.raises(OSError, match="store/g"):
        list(store.list(Key("g"), stats=True))
    with pytest.raises(OSError, match="store/g"):
        store.mtimes(Key("g"), names)


def test_p3_what_a_linked_directory_does_not_hold_is_absent(root: Path) -> None:
    """The link itself leads somewhere: a chunk that is not stored there is a fill value, and no damage."""
    far = root.parent / "far"
    far.mkdir()
    (far / "file").write_bytes(b"1")
    (far / "dangling").symlink_to("never")
    for name, target in (("inside", "a/b"), ("out", "../far"), ("absolute", str(far)), ("own", str(root / "a/b"))):
        (root / name).symlink_to(target)
    store = LocalStore(str(root), allowed=[str(far)])
    for key in ("inside/0", "inside/chunk/0", "out/0/1", "absolute/0", "own/0/1", "out/file/0"):
        with pytest.raises(NotFound):
            store.stat(Key.parse(key))
    for key in ("out/dangling", "absolute/dangling"):
        with pytest.raises(CorruptData, match="dangling: a link to something that is not there"):
            store.stat(Key.parse(key))


@pytest.mark.parametrize("open_path", [open_beneath, walk_beneath])
def test_nul_and_dotdot_never_reach_the_kernel(root: Path, open_path: OpenBeneath) -> None:
    fd = os.open(root, os.O_PATH)
    try:
        with pytest.raises(OSError, match="Invalid cross-device link"):
            open_path(fd, "../secret", os.O_RDONLY)
        with pytest.raises((OSError, ValueError)):
            open_path(fd, "a\0/../../secret", os.O_RDONLY)
    finally:
        os.close(fd)
