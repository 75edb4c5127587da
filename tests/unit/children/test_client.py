"""Child processes end with the process that wants them, whatever state they are in."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from forked import in_fork
from waiting import until

from fsbridge.children import starting
from fsbridge.children.client import ChildGone, ChildProcess
from fsbridge.children.starting import Program

PARENT = """
import signal
from fsbridge.children.client import ChildProcess
from fsbridge.children.starting import Program, starter
program = Program("fsbridge.formats.hdf5.child.worker")
child = ChildProcess(program, [], 1 << 32)
print(child.pid, starter(program).pid, flush=True)
signal.pause()
"""


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_p10_stopped_children_do_not_outlive_the_daemon(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        parent.send_signal(number)
    try:
        until(lambda: not any(map(runs, pids)))
    finally:
        for pid in filter(runs, pids):
            os.kill(pid, signal.SIGKILL)


def test_p11_a_child_ends_when_its_owner_is_dropped() -> None:
    child = ChildProcess(Program("fsbridge.formats.hdf5.child.worker"), [], 1 << 32)
    pid = child.pid
    assert runs(pid)
    cycle: list[object] = [child]
    cycle.append(cycle)
    del child, cycle
    gc.collect()
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_forked_process_has_no_child_and_its_owner_keeps_it() -> None:
    child = ChildProcess(Program("fsbridge.formats.hdf5.child.worker"), [], 1 << 32)

    def forked() -> None:
        nonlocal child
        assert not child.alive
        with pytest.raises(ChildGone):
            child.ask({}, 0, 1.0)
        child.close()
        del child
        gc.collect()
        starting.close_all()

    with child._lock, child._ending:  # as threads hold them that the forked process does not have
        assert in_fork(forked) == ""
    assert child.alive
    assert runs(child.pid)
    child.close()
