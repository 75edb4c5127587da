"""A forked command (`forking.py`) does what the installed one does: same output, same exit code, same process around it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import forking
import numpy as np
import pytest
import zarr
from forking import environment
from mounting import command, mounted
from waiting import until

LINES = [
    ["--version"],
    ["--help"],
    [],
    ["mount", "--help"],
    ["mont", "a.zarr", "mnt"],
    ["mount", "--no-such-option", "a.zarr", "mnt"],
    ["mount", "absent.zarr", "mnt"],
    ["mount", "a.zarr", "absent"],
    ["umount", "mnt"],
    ["list", "--help"],
    ["status", "--help"],
    ["ctl", "config"],
    ["completion", "bash"],
    ["info", "a.zarr"],
    ["info", "--json", "a.zarr"],
    ["info", "absent.zarr"],
    ["ls", "-l", "a.zarr//data"],
    ["tree", "a.zarr"],
    ["cat", "a.zarr//data/c/0"],
    ["cat", "a.zarr//data/c/7"],
    ["verify", "a.zarr"],
    ["digest", "a.zarr"],
    ["diff", "a.zarr", "b.zarr"],
    ["run", "a.zarr", "--", "sh", "-c", "ls; pwd; ulimit -n; exit 7"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    for name in ("a.zarr", "b.zarr"):
        root = zarr.open_group(folder / name, mode="w")
        root.create_array("data", data=np.array([1, 2, 3 if name == "a.zarr" else 4]), chunks=(2,))
    (folder / "mnt").mkdir()
    return folder


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_it_prints_what_the_installed_command_prints(words: list[str], folder: Path) -> None:
    env = {**environment(), "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "COLUMNS": "100"}
    new = subprocess.run(
        command(*words), capture_output=True, cwd=folder, env=env, stdin=subprocess.DEVNULL, timeout=60, check=False
    )
    forked = forking.run(*words, cwd=folder, env=env, text=False)
    assert (forked.returncode, forked.stdout, forked.stderr) == (new.returncode, new.stdout, new.stderr)


PROCESS = """
import os, resource, signal, sys
print(sys.argv[1:], os.getcwd(), os.environ["ODD"], sorted(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")))
print(resource.getrlimit(resource.RLIMIT_NOFILE), signal.getsignal(signal.SIGINT) is signal.default_int_handler)
print(os.getsid(0) == os.getpid(), oct(os.umask(0)), sys.stdin.read(), sys.stdout.encoding, sys.stderr.errors, __name__)
print(open("/proc/self/cmdline", "rb").read().rstrip(b"\\0").split(b"\\0")[-2:], flush=True)
print("error", file=sys.stderr)
sys.exit(3)
"""


def test_it_is_a_process_as_a_new_one_would_be(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROCESS)
    words, env = ["ä", os.fsdecode(b"\xff")], {**environment(), "ODD": os.fsdecode(b"\xfe")}
    line: list[str | Path] = ["env", "--default-signal=INT", sys.executable, program, *words]
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (old[0] - 1, old[1]))
    try:
        new = subprocess.run(
            line, capture_output=True, input=b"given", check=False, cwd=tmp_path, env=env, start_new_session=True
        )
        forked = forking.run(
            *words, program=program, given=b"given", text=False, cwd=tmp_path, env=env, start_new_session=True
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, old)
    assert forked.stdout == new.stdout
    assert (forked.returncode, forked.stderr) == (new.returncode, new.stderr) == (3, b"error\n")
    assert f"({old[0] - 1}, ".encode() in forked.stdout


def test_signals_and_time_limits_end_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import signal\nprint('ready', flush=True)\nsignal.pause()")
    with forking.start(program=program, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=0.01)
        process.terminate()
        assert process.wait(20) == -signal.SIGTERM
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        forking.run(program=program, timeout=0.1)
    assert time.monotonic() - begun < 20


def test_a_daemon_in_the_background_lets_go_of_the_callers_pipes(folder: Path) -> None:
    done = forking.run("mount", "a.zarr", "mnt", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "")
    assert forking.run("umount", "mnt", cwd=folder).returncode == 0
    until(lambda: not mounted(folder / "mnt"))


def test_what_counts_when_python_starts_is_refused() -> None:
    with pytest.raises(AssertionError, match="PYTHONIOENCODING"):
        forking.start("--version", env={**environment(), "PYTHONIOENCODING": "ascii"})
