"""`fsbridge run` and `fsbridge.mounted`: a program with a mount of its own, and nothing left of it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import forking
import pytest
from fake_s3 import FakeS3
from forking import environment
from mounting import mounted
from paths import ROOT
from source_places import tree_of, upload, write_each

import fsbridge
from fsbridge.errors import SetupError

SHOW = 'ls {}/a; cat {}/a/b.json | head -c 1; grep -c " $FSBRIDGE_MOUNT " /proc/self/mountinfo; echo $FSBRIDGE_MOUNT'


@pytest.fixture(scope="module")
def each(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_each(tmp_path_factory.mktemp("each"))


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of private folders; it must be empty at the end."""
    made = tmp_path / "tmp"
    made.mkdir(mode=0o777)
    monkeypatch.setenv("TMPDIR", os.fspath(made))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield made
    assert list(made.iterdir()) == []


def run(*words: str | os.PathLike[str]) -> subprocess.CompletedProcess[str]:
    return forking.run("run", *words)


@pytest.mark.parametrize("name", ["zarr3", "sharded", "zarr2", "n5", "hdf5", "zarr3 zip"])
def test_only_the_program_sees_the_mount(name: str, each: dict[str, Path], folders: Path) -> None:
    done = run(each[name], "--layout", "files", "--", "sh", "-c", SHOW)
    *listed, path = done.stdout.split()
    assert (done.returncode, listed, done.stderr) == (0, ["b.json", "b.npy", "index.html", "{1"], "")
    assert Path(path).parent == folders
    assert not mounted(path)


def test_a_program_reads_a_store_on_a_server(each: dict[str, Path], server: FakeS3, folders: Path) -> None:
    url = next(iter(upload(server, {"zarr3": each["zarr3"]}).values()))
    done = run(url, "--layout", "files", *server.options, "--", "ls", "{}/a")
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["b.json", "b.npy", "index.html"], "")


@pytest.mark.parametrize(("line", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("true", 0)])
def test_the_exit_code_is_the_programs(line: str, code: int, each: dict[str, Path], folders: Path) -> None:
    assert run(each["zarr3"], "--", "sh", "-c", line).returncode == code


def test_mistakes_are_said_before_anything_runs(each: dict[str, Path], tmp_path: Path, folders: Path) -> None:
    mistakes: list[tuple[list[str | Path], int, str]] = [
        ([each["zarr3"]], 1, "no program is given"),
        ([each["zarr3"], "--"], 1, "no program is given"),
        ([tmp_path / "nope", "--", "true"], 1, "no such file or directory"),
        ([each["zarr3"], "--layout", "n6", "--", "true"], 1, "unknown layout"),
        ([each["zarr3"], "--", "/nope"], 127, "/nope: No such file or directory"),
    ]
    for words, code, text in mistakes:
        done = run(*words)
        assert (done.returncode, done.stdout) == (code, ""), words
        assert text in done.stderr
        assert "Traceback" not in done.stderr


def test_p10_signals_reach_the_program_and_the_mount_goes_with_it(each: dict[str, Path], folders: Path) -> None:
    program = "trap 'ls {} >/dev/null && exit 5' TERM; echo ready; while :; do sleep 0.1; done"
    with forking.start("run", each["zarr3"], "--", "sh", "-c", program, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.terminate()
        assert running.wait(10) == 5


def test_p10_a_killed_command_leaves_no_mount(each: dict[str, Path], tmp_path: Path) -> None:
    script = "echo $FSBRIDGE_MOUNT $$; exec sleep 60"
    with forking.start("run", each["zarr3"], "--", "sh", "-c", script, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        path, program = running.stdout.readline().split()
        running.kill()
        running.wait(10)
    try:
        deadline = time.monotonic() + 10
        while path in Path(f"/proc/{program}/mountinfo").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert not mounted(path)
    finally:
        os.kill(int(program), signal.SIGKILL)
        os.rmdir(path)


def test_run_makes_an_ordinary_mount_if_namespaces_are_not_allowed(each: dict[str, Path], folders: Path) -> None:
    program = (
        "import sys; from fsbridge.mount import private; private._namespace_is_permitted = lambda folder: False; "
        "from fsbridge.cli import main; sys.exit(main(['fsbridge', *sys.argv[1:]]))"
    )
    line = "ls {}; echo $FSBRIDGE_MOUNT; exit 3"
    words = [sys.executable, "-c", program, "run", str(each["zarr3"]), "--", "sh", "-c", line]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), check=False)
    assert (done.returncode, done.stdout.split()[:2], done.stderr) == (3, ["a", "zarr.json"], "")
    assert not mounted(done.stdout.split()[2])


def _opened_to_all(*folders: str | Path) -> str:
    """Commands for a mount namespace that show `folders` to all users, also below a home directory that is its owner's."""
    places = sorted({Path(os.path.realpath(folder)) for folder in folders})
    closed = {place: [above for above in place.parents if not above.stat().st_mode & 0o001] for place in places}
    hidden = {place: above[-1] for place, above in closed.items() if above}
    names = [shlex.quote(os.fspath(place)) for place in hidden]
    keep = [f"mkdir -p kept/{i} && mount --bind {name} kept/{i}" for i, name in enumerate(names)]
    cover = [f"mount -t tmpfs -o mode=755 none {shlex.quote(os.fspath(above))}" for above in sorted(set(hidden.values()))]
    show = [f"mkdir -p {name} && mount --bind kept/{i} {name}" for i, name in enumerate(names)]
    return " && ".join([*keep, *cover, *show, ""])


def test_another_user_needs_no_fusermount3(each: dict[str, Path], tmp_path: Path) -> None:
    """Only a readable /dev/fuse, here one in a mount namespace of the test's."""
    lines = (
        f"{_opened_to_all(ROOT, sys.prefix, sys.base_prefix)}mknod fuse c 10 229 && chmod 666 fuse && "
        "mount --bind fuse /dev/fuse && mkdir -m 777 tmp && "
        'TMPDIR=$PWD/tmp PATH=/nowhere exec /usr/bin/setpriv --reuid 65534 --regid 65534 --clear-groups "$@"'
    )
    place = os.fspath(each["zarr3"])
    program = [sys.executable, "-m", "fsbridge", "run", place, "--", "/bin/sh", "-c", "/bin/cat {}/a/zarr.json"]
    for folder in [tmp_path, *tmp_path.parents[:3], *each["zarr3"].parents]:
        folder.chmod(folder.stat().st_mode | 0o755)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", lines, "sh", *program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment() | {"PYTHONPATH": os.fspath(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"node_type": "group"' in done.stdout
    assert list((tmp_path / "tmp").iterdir()) == []


def test_mounted_is_the_mount_for_a_while(each: dict[str, Path], folders: Path) -> None:
    with fsbridge.mounted(each["sharded"], layout="files", files=["npy", "raw"], cache_size="64M", immutable=True) as path:
        assert sorted(tree_of(path)) == ["a", "a.json", "a/b.json", "a/b.npy", "a/b.raw", "store.json"]
        with (path / "a/b.npy").open("rb") as held:
            held.read(6)
    assert not mounted(path)


def test_mounted_says_what_the_command_says(tmp_path: Path, each: dict[str, Path], folders: Path) -> None:
    with pytest.raises(SetupError, match="no such file or directory"), fsbridge.mounted(tmp_path / "nope"):
        pass
    with pytest.raises(SetupError, match="unrecognized arguments: --nonsense"), fsbridge.mounted(each["n5"], nonsense=3):
        pass
    with pytest.raises(ZeroDivisionError), fsbridge.mounted(each["n5"]) as path:
        raise ZeroDivisionError
    assert not mounted(path)
