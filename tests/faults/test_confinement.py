"""The second wall (P4): what the daemon's threads may open when the first one, opening beneath the root, were not there.

The fake tree opens files by plain paths, so a link in it leads anywhere. Where the kernel has no Landlock there is no such
wall; then these tests only show that all else works without it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import subprocess
import sys
import textwrap
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import pytest
from fake_mount import FakeMount
from forking import environment
from mounting import Mount
from test_replaced_stores import answer, write
from waiting import until

from fsbridge import landlock
from fsbridge.kernel.jobs import DATA_THREADS, METADATA_THREADS
from fsbridge.threads import confinement
from fsbridge.threads.confinement import Needs

LANDLOCK = landlock.version() > 0


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeMount]:
    mount = FakeMount(tmp_path)
    yield mount
    mount.clear()


AT_ONCE = "import os, sys; sys.stdout.flush(); os._exit(0)"
"""How a confined program ends, as the daemon does: the interpreter's own end may load libgcc, which is behind the wall."""


def run(script: str, *arguments: str | Path) -> str:
    """Output of a Python program: a wall is for ever, so it is put up in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", f"{textwrap.dedent(script)}\n{AT_ONCE}", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_p4_a_thread_of_the_daemon_that_opens_a_file_outside_the_store_is_refused(fake: FakeMount) -> None:
    secret = fake.path.parent / "secret"
    secret.write_bytes(b"secret")
    (fake.disk / "inside").write_bytes(b"inside")
    (fake.disk / "escape").symlink_to(secret)
    (fake.disk / "passwd").symlink_to("/etc/passwd")
    fake.start()
    for folder in ("plain", "keyed"):
        assert answer(fake.path / folder / "inside") == b"inside"
        for name in ("escape", "passwd"):
            assert answer(fake.path / folder / name) == "EACCES" or not LANDLOCK
    assert answer(fake.path / "hello") == b"hello, world\n"


def test_p4_all_threads_that_work_are_confined_and_the_one_that_unmounts_is_not(fake: FakeMount) -> None:
    fake.start()
    daemon = fake.daemon

    def confined() -> dict[int, bool]:
        found = {}
        for task in os.listdir(f"/proc/{daemon}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                found[int(task)] = "NoNewPrivs:\t1" in Path(f"/proc/{daemon}/task/{task}/status").read_text()
        return found

    if LANDLOCK:
        until(lambda: sum(confined().values()) >= METADATA_THREADS + DATA_THREADS)  # both lanes
    assert not confined()[daemon]


def test_p4_the_wall_moves_with_a_store_that_is_replaced(fake: FakeMount) -> None:
    """The directory at the path is another one: threads with rules for the old one make way for others, unnoticed."""
    (fake.disk / "file").write_bytes(b"old")
    secret = fake.path.parent / "secret"
    secret.write_bytes(b"secret")
    fake.start("--metadata-ttl", "0")
    assert answer(fake.path / "plain/file") == b"old"
    for number in range(20):
        fake.disk.rename(fake.path.parent / f"old{number}")
        fake.disk.mkdir()
        (fake.disk / f"file{number}").write_bytes(b"%d" % number)
        (fake.disk / f"escape{number}").symlink_to(secret)
        assert answer(fake.path / f"keyed/file{number}") == b"%d" % number
        assert answer(fake.path / f"keyed/escape{number}") == "EACCES" or not LANDLOCK
    tasks, most = f"/proc/{fake.daemon}/task", METADATA_THREADS + DATA_THREADS + 30
    until(lambda: len(os.listdir(tasks)) < most)  # each successor takes the place of another thread, which may be ending yet


def test_p3_p4_a_store_that_is_replaced_is_read_without_an_error(tmp_path: Path, mount: Callable[..., Mount]) -> None:
    """The first reader, in any thread, opens it; with an HDF5 file in it, which a child process opens."""
    current = tmp_path / "current"
    for value in range(12):
        folder = tmp_path / f"v{value}"
        write(folder / "s.zarr", value)
        with h5py.File(folder / "x.h5", "w") as file:
            file["d"] = [value] * 4
    (tmp_path / "v0").rename(current)
    mounted = mount(current, "--metadata-ttl", "0")
    for value in range(12):
        if value:
            current.rename(tmp_path / f"old{value}")
            (tmp_path / f"v{value}").rename(current)
        assert answer(mounted / "s.zarr/a/c/0") == bytes([value]) * 4
        assert answer(mounted / "x.h5/d/c/0") == b"".join(value.to_bytes(8, "little") for _ in range(4))
        assert sorted(os.listdir(mounted.path)) == ["s.zarr", "x.h5", "zarr.json"]


@pytest.mark.parametrize("kind", ["h5", "zip"])
def test_p4_a_file_that_is_replaced_by_renaming_is_read(tmp_path: Path, mount: Callable[..., Mount], kind: str) -> None:
    source = tmp_path / f"x.{kind}"

    def put(value: int) -> None:
        if kind == "h5":
            with h5py.File(tmp_path / "next", "w") as file:
                file.create_dataset("a", data=[value] * 4, dtype="u1", chunks=(4,))
        else:
            write(tmp_path / f"z{value}", value)
            with zipfile.ZipFile(tmp_path / "next", "w") as archive:
                for path in (tmp_path / f"z{value}").rglob("*"):
                    archive.write(path, path.relative_to(tmp_path / f"z{value}"))
        os.replace(tmp_path / "next", source)

    put(0)
    mounted = mount(source, "--metadata-ttl", "0")
    for value in range(5):
        if value:
            put(value)
        assert answer(mounted / "a/c/0") == bytes([value]) * 4


@pytest.mark.parametrize("identity", ["own", "reused"])
def test_a_thread_is_outgrown_when_another_thing_is_at_a_path_that_it_needs(tmp_path: Path, identity: str) -> None:
    """Also where the file system gives it the number of the one that was there."""
    script = """
        import sys, threading
        from pathlib import Path
        from fsbridge.threads import confinement
        from fsbridge.threads.confinement import Needs
        from fsbridge.errors import Stale

        root = Path(sys.argv[1])
        inside, outside = root / "data/file", root / "outside"
        inside.parent.mkdir()
        inside.write_text("inside")
        outside.write_text("outside")
        said = []

        def look(path):
            try:
                said.append(path.read_text())
            except PermissionError:
                try:
                    confinement.refused()
                    said.append("refused")
                except Stale:
                    said.append("outgrown" if confinement.outgrown() else "?")

        def on(*calls):
            over = threading.Event()
            def work():
                for call in calls:
                    call()
                over.set()
            confinement.start(work, "test")
            assert over.wait(20)

        def nested():
            on(lambda: look(outside), lambda: look(inside))

        if sys.argv[2] == "reused":
            confinement._identity = lambda path: (1, 1)
        assert confinement.begin(Needs((str(inside.parent),)))
        on(lambda: look(inside), lambda: look(outside), lambda: look(inside), nested)
        look(outside)
        def replace():
            inside.parent.rename(root / "old")
            inside.parent.mkdir()
            inside.write_text("replaced")
        on(lambda: confinement.outside(replace), lambda: look(inside), nested)
        on(lambda: look(inside), lambda: look(outside), lambda: said.append(confinement.outside(outside.read_text)))
        def write(path):
            try:
                path.write_text("x")
            except PermissionError:
                said.append("not written")
        on(lambda: write(inside), lambda: write(root / "new"))
        print(*said)
    """
    if LANDLOCK:
        said = run(script, tmp_path, identity).split()
        assert said[:6] == ["inside", "refused", "inside", "refused", "inside", "outside"]
        assert said[6:] == [
            *["outgrown", "refused", "replaced"],
            *["replaced", "refused", "outside", "not", "written", "not", "written"],
        ]


def test_p7_threads_keep_their_rules_while_the_store_may_not_be_looked_at(tmp_path: Path) -> None:
    """A ticket for a network disk may run out: the refusal stands, and afterwards all is as it was."""
    script = """
        import os, sys, threading
        from fsbridge.threads import confinement
        from fsbridge import landlock
        from fsbridge.threads.confinement import Needs

        said = []

        def on(call):
            over = threading.Event()
            def work():
                try:
                    said.append(call())
                except BaseException as error:
                    said.append(type(error).__name__)
                over.set()
            confinement.start(work, "test")
            assert over.wait(20)

        def refuse(*_):
            raise PermissionError(13, "Permission denied")

        assert confinement.begin(Needs((sys.argv[1],)))
        stat, rules = os.stat, landlock.ruleset
        os.stat = landlock.ruleset = refuse
        on(confinement.refused)
        on(confinement.outgrown)
        os.stat, landlock.ruleset = stat, rules
        on(confinement.refused)
        on(lambda: os.listdir(sys.argv[1]))
        print(*said)
    """
    if LANDLOCK:
        assert run(script, tmp_path).split() == ["None", "False", "None", "[]"]


def test_p7_threads_that_cannot_be_started_now_are_started_later(tmp_path: Path) -> None:
    """At a container's limit of processes, jobs and children waited for ever for threads that never came."""
    script = """
        import sys, threading
        from fsbridge.threads import confinement
        from fsbridge.threads.confinement import Needs

        start, room = threading.Thread.start, threading.Event()
        said, over, refused = [], threading.Semaphore(0), threading.Semaphore(0)

        def limited(thread):
            if not room.is_set():
                refused.release()
                raise RuntimeError("can't start new thread")
            start(thread)

        def outer():
            confinement.start(inner, "inner")  # by the thread in front of the wall, if there is one
            said.append("outer")
            over.release()

        def inner():
            said.append("inner")
            over.release()

        confinement.begin(Needs((sys.argv[1],)))
        threading.Thread.start = limited
        try:
            said.append(confinement.outside(lambda: "no wall"))
        except OSError as error:
            said.append(error.strerror)
        confinement.start(outer, "outer")
        confinement.later(0, lambda: over.release(), "later")
        for _ in range(2):
            assert refused.acquire(timeout=20)
        room.set()
        for _ in range(3):
            assert over.acquire(timeout=20)
        print(*sorted(said), sep="|")
    """
    outside = "no thread can be started" if LANDLOCK else "no wall"
    assert sorted(run(script, tmp_path).strip().split("|")) == sorted(["inner", "outer", outside])


def test_p7_a_thread_that_ends_before_it_begins_is_started_again(tmp_path: Path) -> None:
    """Without memory a thread never began, and its starter, the event loop too, waited for it for ever."""
    script = """
        import sys, threading
        from fsbridge.threads import confinement
        from fsbridge.threads.confinement import Needs

        begin, lost = threading.Thread._bootstrap, []

        def bootstrap(thread):
            if len(lost) < 2:
                lost.append(thread.name)
            else:
                begin(thread)

        confinement.BEGUN_SECONDS = 0.1
        confinement.begin(Needs((sys.argv[1],)))
        threading.Thread._bootstrap = bootstrap
        ran = threading.Semaphore(0)
        for name in ("one", "two"):
            confinement.start(ran.release, name)
        for _ in range(2):
            assert ran.acquire(timeout=20)
        print(len(lost), ran.acquire(timeout=0.3))
    """
    assert run(script, tmp_path).split() == ["2", "False"]


def test_without_landlock_there_is_one_debug_line_and_everything_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(confinement, "_starts", None)
    monkeypatch.setattr(landlock, "version", lambda: 0)
    assert not confinement.begin(Needs((str(tmp_path),)))
    monkeypatch.setattr(landlock, "version", lambda: 1)
    monkeypatch.setattr(landlock, "ruleset", refuse)
    assert not confinement.begin(Needs((str(tmp_path),)))
    assert [record.levelname for record in caplog.records] == ["DEBUG", "DEBUG"]
    ran = threading.Event()
    confinement.start(ran.set, "test")
    assert ran.wait(20)
    confinement.refused()
    assert not confinement.outgrown()
    assert confinement.outside(lambda: 1) == 1
