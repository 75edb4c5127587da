"""HDF5 child processes that hang, die, are too many or find no room (P3, P7, P8, P11). Not here: damaged files."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import h5py
import pytest
from fake_mount import ended
from forking import environment
from hdf5_children import asked, child_of, chunked, stopped, watched
from hdf5_model import array, opened, values
from observing import held_by
from paths import TESTS
from waiting import until

from fsbridge import children as protocol
from fsbridge.children import client, server, starting
from fsbridge.config import Config
from fsbridge.errors import CorruptData, OutOfBudget, TimedOut, TooLarge
from fsbridge.formats.hdf5 import filters
from fsbridge.formats.hdf5.file import HDF5Limits, Pools
from fsbridge.formats.hdf5.source import open_hdf5
from fsbridge.formats.shared import Shared


def test_hanging_child_is_ended_at_the_deadline(tmp_path: Path) -> None:
    """A question that is not answered in time ends the child. Questions that waited for it report that it was busy."""
    with opened(chunked(tmp_path / "x.h5")) as source:
        array(source, "x")
        child = stopped(child_of(source))
        outcomes: list[Any] = []
        thread = asked(source, child, outcomes, seconds=3.0)
        with pytest.raises(TimedOut):
            source.file.ask({"op": "attributes", "path": ["x"]}, seconds=0.1)
        thread.join()
        assert [type(outcome) for outcome in outcomes] == [client.ChildTooSlow]
        assert not child.alive
        assert array(source, "x").chunks.count() == 4


def test_the_process_that_starts_children_is_replaced_when_it_is_killed(tmp_path: Path) -> None:
    """It has one thread and no descriptor but its own socket. When it is killed, another takes its place."""
    with opened(chunked(tmp_path / "x.h5")) as source:
        starter = starting.starter(filters.make_program(()))
        first = starter.pid
        assert first is not None
        assert len(os.listdir(f"/proc/{first}/task")) == 1
        until(lambda: held_by(first) == ["/dev/null"] * 3 + ["socket"])  # the child's own is closed after its start
        question = {"op": "attributes", "path": []}
        os.kill(first, signal.SIGKILL)
        assert source.file.ask(question)[0] == {"attributes": {}}
        os.kill(child_of(source).pid, signal.SIGKILL)
        assert source.file.ask(question)[0] == {"attributes": {}}
        assert starter.pid not in (None, first)


def test_p11_the_end_of_a_child_is_logged_once_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    with opened(chunked(tmp_path / "x.h5")) as source:
        child, starter = child_of(source), starting.starter(filters.make_program(()))
        first = starter.pid
        os.kill(child.pid, signal.SIGKILL)
        status = starter.reap(child.pid)
        assert status is not None
        assert os.WTERMSIG(status) == signal.SIGKILL
        assert starter.reap(child.pid) is None, "the child is forgotten"
        assert starter.pid == first
        starter.close()
        assert starter.reap(child.pid) is None
        assert starter.pid is None
        assert source.file.ask({"op": "attributes", "path": []})[0] == {"attributes": {}}
        number = child_of(source).pid
        source.file.supervisor.close()
        until(lambda: not os.path.exists(f"/proc/{number}"))


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_the_process_that_starts_children_outlives_those_of_its_predecessor(tmp_path: Path, how: str) -> None:
    """It crashed over each child that ended, and left the children it had started to its successor, which crashed, too."""
    with opened(chunked(tmp_path / "x.h5")) as old, opened(chunked(tmp_path / "y.h5")) as new:
        question, starter = {"op": "attributes", "path": []}, starting.starter(filters.make_program(()))
        assert starter.pid is not None
        os.kill(starter.pid, signal.SIGKILL)
        new.file.supervisor.close()
        assert new.file.ask(question)[0] == {"attributes": {}}
        second = starter.pid
        if how == "killed":
            os.kill(child_of(old).pid, signal.SIGKILL)
        else:
            old.file.supervisor.close()
        for source in (old, new, old):
            assert source.file.ask(question)[0] == {"attributes": {}}
            source.file.supervisor.close()
        assert starter.pid == second


def test_p8_a_child_that_cannot_be_killed_delays_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P8: a process that hangs in the kernel survives SIGKILL for a while. Other files use their own children."""
    with opened(chunked(tmp_path / "x.h5")) as source, opened(chunked(tmp_path / "y.h5")) as other:
        child = stopped(child_of(source))
        begun = time.monotonic()
        with monkeypatch.context() as patch:
            patch.setattr(signal, "pidfd_send_signal", lambda handle, number: None)
            with pytest.raises(client.ChildTooSlow):
                source.file.ask({"op": "attributes", "path": []}, seconds=0.2)
            other.file.supervisor.close()
            assert other.file.ask({"op": "attributes", "path": []})[0] == {"attributes": {}}
            assert source.file.ask({"op": "attributes", "path": ["x"]})[0] == {"attributes": {}}
        assert time.monotonic() - begun < 20
        assert Path(f"/proc/{child.pid}").exists()
        os.kill(child.pid, signal.SIGKILL)


def test_child_ends_with_the_daemon(tmp_path: Path) -> None:
    """A daemon that is killed leaves no process behind."""
    script = """
        import os, signal, sys
        from hdf5_model import opened
        from fsbridge.children.starting import starter
        from fsbridge.formats.hdf5.filters import make_program
        with opened(sys.argv[1]) as source:
            print(source.file.supervisor.child.pid, starter(make_program(())).pid, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(chunked(tmp_path / "x.h5"))],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        cwd=TESTS / "support",
    )
    pids = done.stdout.split()
    assert len(pids) == 2
    until(lambda: all(map(ended, pids)))


def test_child_has_no_descriptors_of_the_daemon(tmp_path: Path) -> None:
    """It holds its socket, the null device and its file, and is a program of its own."""
    with open(tmp_path / "other", "w") as other, opened(chunked(tmp_path / "x.h5")) as source:
        os.set_inheritable(other.fileno(), True)
        child = child_of(source)
        assert set(held_by(child.pid)) == {"socket", "/dev/null", str(tmp_path / "x.h5")}


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xff\xff\xff",
        b"\4\0\0\0nope",
        b"\2\0\0\0[]",
        b'\x14\0\0\0{"attachments":[-1]}',
        b'\x16\0\0\0{"attachments":[1000]}',
    ],
)
def test_nonsense_from_the_child_is_refused(message: bytes) -> None:
    """Lengths and types are checked before anything is allocated or believed."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(message)
        theirs.close()
        with pytest.raises(protocol.ProtocolError):
            protocol.receive(ours, 100)


def _descriptors() -> set[tuple[str, str]]:
    """The descriptors of this process, and what they are."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


def test_p11_many_files_share_few_children(tmp_path: Path) -> None:
    """P11: many open files share few processes and descriptors; all stay readable; nothing is left after closing."""
    with opened(chunked(tmp_path / "first.h5")):
        gc.collect()  # the process that starts children stays
    before = _descriptors()
    for number in range(6):
        chunked(tmp_path / f"{number}.h5", start=100 * number)
    shared = Shared(Pools(HDF5Limits(children=2, descriptors=4)))
    sources = [open_hdf5(str(tmp_path / f"{n}.h5"), Config("x", "/nowhere"), shared) for n in range(6)]
    arrays = [array(source, "x") for source in sources]
    assert sum(source.file.supervisor.child is not None for source in sources) <= 3
    for number, found in enumerate(arrays):
        assert values(found)[0] == 100 * number
    assert sum(path.startswith(str(tmp_path)) for _, path in _descriptors()) <= 5
    children = [child_of(source) for source in sources if source.file.supervisor.child is not None]
    for source in sources:
        source.close()
    assert not any(child.alive for child in children)
    gc.collect()
    assert _descriptors() - before == set()


def test_p3_a_file_that_was_not_to_blame_is_opened_again(tmp_path: Path) -> None:
    """Each child that opens the file is killed, as by a system short of memory; later no longer."""
    is_short = False

    def kill(child: client.ChildProcess, question: dict[str, Any]) -> None:
        if is_short and question.get("op") == "open":
            os.kill(child.pid, signal.SIGKILL)

    with opened(chunked(tmp_path / "x.h5"), watched(during=kill, limits=HDF5Limits(avoided_seconds=0.0))) as source:
        source.file.close()
        is_short = True
        with pytest.raises(CorruptData, match="SIGKILL"):
            source.file.ask({"op": "attributes", "path": []})
        is_short = False
        assert source.file.ask({"op": "attributes", "path": []})[0] == {"attributes": {}}


def test_p3_no_room_for_a_process_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A passing shortage is ENOMEM, and ends when it is over."""
    path = chunked(tmp_path / "x.h5")
    with opened(path) as source:
        source.file.close()
        assert source.file.supervisor.child is None
        starter = starting.starter(filters.make_program(()))
        for code in (errno.EAGAIN, errno.EMFILE):

            def refuse(*_: object, code: int = code) -> Any:
                raise OSError(code, os.strerror(code))

            with monkeypatch.context() as patch:
                patch.setattr(socket, "send_fds", refuse)
                for _ in range(3):
                    with pytest.raises(OutOfBudget, match=os.strerror(code)):
                        source.file.ask({"op": "attributes", "path": []})
            assert source.file.ask({"op": "attributes", "path": []})[0] == {"attributes": {}}
            source.file.close()
        assert starter.pid is not None


WITHOUT_ROOM = """
import os, resource
from fsbridge.children import server

del os.pidfd_open
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
if os.geteuid() == 0:
    os.setuid(65534)  # the limit is not for root
server.run(lambda sock: None)
"""


def test_p8_the_process_that_starts_children_outlives_a_shortage() -> None:
    """It refuses, keeps nothing, and serves on, on a system without process descriptors."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    other, given = socket.socketpair()
    starting_process = subprocess.Popen([sys.executable, "-c", WITHOUT_ROOM], stdin=theirs.fileno(), env=environment())
    descriptors = []
    with ours, theirs, other, given:
        for _ in range(3):
            socket.send_fds(ours, [server.START], [given.fileno()])
            assert ours.recv(server.MESSAGE_BYTES) == server.NO + os.strerror(errno.EAGAIN).encode()
            descriptors.append(len(os.listdir(f"/proc/{starting_process.pid}/fd")))
        assert len(set(descriptors)) == 1
        given.close()
        assert other.recv(1) == b""
        ours.shutdown(socket.SHUT_RDWR)
        assert starting_process.wait(30) == 0


def test_missing_landlock_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """One line, however many files."""
    caplog.set_level(logging.WARNING)
    pools = Shared().of(Pools)
    for _ in range(3):
        pools.say_once("nothing")
    assert [record.getMessage() for record in caplog.records] == ["nothing"]


def test_memory_of_the_child_is_bounded(tmp_path: Path) -> None:
    """A read of 8 GiB fails in the child alone."""
    path = tmp_path / "huge.h5"
    with h5py.File(path, "w") as out:
        out.create_dataset("x", (1 << 33,), "u1")
    with opened(path) as source:
        question = {"op": "read", "path": ["x"], "start": [0], "shape": [1 << 33], "fill": "", "limit": 1 << 40}
        with pytest.raises(TooLarge, match="memory"):
            source.file.ask(question, limit=1 << 33)
        assert source.root.attributes() == {}
        assert array(source, "x").chunks.count() == 0


def test_p8_without_process_descriptors_the_end_of_a_child_is_known() -> None:
    """Before Linux 5.3, and if a seccomp filter forbids them, no HDF5 file could be opened."""
    paths = os.pathsep.join([str(TESTS / "support"), str(TESTS.parent)])
    program = starting.Program("without_pidfd", (("PYTHONPATH", paths),))
    before = _descriptors()
    first, second = (client.ChildProcess(program, [], 1 << 32) for _ in range(2))
    kinds = {what.partition(":")[0] for _, what in _descriptors() - before}
    assert "pipe" in kinds
    assert "anon_inode" not in kinds, "a process descriptor"
    assert first.alive
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not first.alive)
    with pytest.raises(client.ChildGone, match="SIGKILL"):
        first.ask({"op": "attributes", "path": []}, 0, 10.0)
    assert second.alive
    second.close()
    until(lambda: not os.path.exists(f"/proc/{second.pid}"))
    starting.starter(program).close()
