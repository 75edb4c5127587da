"""Mounts that are refused, each with its reason and what helps. Not here: mounts that begin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import forking
import pytest
from commands_run import refused, run
from fake_mount import PROGRAM, FakeMount
from waiting import until

from fsbridge.config import Config, Remote
from fsbridge.errors import SetupError
from fsbridge.mount import preflight


def run_program(text: str, where: Path, *words: str | os.PathLike[str]) -> subprocess.CompletedProcess[str]:
    """Run a program in Python that starts as `fsbridge` does."""
    (where / "program.py").write_text(text)
    return forking.run(*words, program=where / "program.py")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"files": ("tif",)}, "--files is for the layout files, but the layout is zarr3\n  add: --layout files"),
        ({"consolidated": True, "layout": "n5,files"}, "--consolidated is for the layout zarr2, but the layout is n5,files"),
        ({"chunk_separator": "/"}, "--chunk-separator is for the layout zarr2"),
        ({"remote": Remote(block_cache="/b")}, "--block-cache is for URLs, and /store is not one"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SetupError, match=words) as caught:
        preflight.check(Config("/store", "", **changes))
    assert caught.value.exit_code == 1


def test_a_file_as_mount_point_is_refused(fake: FakeMount) -> None:
    fake.path.rmdir()
    fake.path.write_text("")
    assert "is not a directory" in refused(fake)


def test_a_spill_folder_that_cannot_be_used_is_refused(fake: FakeMount) -> None:
    missing = fake.path.parent / "no-such-folder"
    done = fake.run("--spill-dir", str(missing))
    assert done.returncode == 1
    assert f"--spill-dir {missing}: No such file or directory\n  make it with: mkdir -p {missing}\n" in done.stderr
    done = fake.run("--spill-dir", "/proc")
    assert done.returncode == 1
    assert "name a directory on a local disk" in done.stderr


def test_a_mount_point_in_use_is_refused(fake: FakeMount) -> None:
    fake.start()
    first = fake.daemon
    done = fake.run()
    assert done.returncode == 32
    assert f"{fake.path} is already a mount point (of {fake.disk}, type fuse.fsbridge)\n" in done.stderr
    assert f"unmount it with: fsbridge umount {fake.path}" in done.stderr
    assert fake.daemon == first
    fake.start("-o", "nonempty")
    until(lambda: len(fake.daemons) == 2)
    subprocess.run(["umount", fake.path], check=True)
    until(lambda: fake.daemons == [first])
    assert fake.mounted


def test_p8_nestings_are_refused(fake: FakeMount, tmp_path: Path) -> None:
    inside = fake.disk / "a" / "b"
    inside.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(fake.disk / "a")
    store = str(fake.disk)
    nestings = [
        (store, str(inside), "is inside the store"),
        (store, store, "is inside the store"),
        (store, str(link / "b"), "is inside the store"),
        (str(inside), store, "is inside the mount point"),
        (str(link), store, "is inside the mount point"),
    ]
    for source, point, reason in nestings:
        done = forking.run(source, point, program=PROGRAM)
        assert done.returncode == 32, (source, point)
        assert reason in done.stderr
        assert "choose a mount point elsewhere" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make bind mounts")
def test_p8_nestings_through_bind_mounts_are_refused(fake: FakeMount, tmp_path: Path) -> None:
    (fake.disk / "a" / "m").mkdir(parents=True)
    bound = tmp_path / "bound"
    bound.mkdir()
    subprocess.run(["mount", "--bind", fake.disk / "a", bound], check=True)
    try:
        for source, point in ((fake.disk, bound / "m"), (bound / "m", fake.disk)):
            done = forking.run(source, point, program=PROGRAM)
            assert done.returncode == 32
            assert "is inside" in done.stderr
    finally:
        subprocess.run(["umount", bound], check=True)


def test_why_a_source_cannot_be_opened_is_said_by_the_caller(fake: FakeMount, tmp_path: Path) -> None:
    program = """
import sys
from fsbridge.commands.mount import parse
from fsbridge.errors import CorruptData, SetupError
from fsbridge.mount.lifecycle import mount
def broken(config):
    raise {error}
try:
    sys.exit(mount(parse("t", sys.argv[1:]), broken))
except SetupError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""
    for error, code, words in (
        ("CorruptData('zarr.json: no JSON')", 32, f"{fake.disk}: zarr.json: no JSON\n"),
        ("FileNotFoundError(2, 'No such file or directory')", 32, f"{fake.disk}: No such file or directory\n"),
        ("SetupError('no store there', 'look elsewhere')", 1, "no store there\n  look elsewhere\n"),
    ):
        for options in ([], ["--foreground"]):
            done = run_program(program.replace("{error}", error), tmp_path, fake.disk, fake.path, *options)
            assert (done.returncode, done.stdout, done.stderr) == (code, "", words)
    done = run_program(program.replace("{error}", "ValueError('a bug')"), tmp_path, fake.disk, fake.path)
    assert done.returncode == 2
    assert "ValueError: a bug" in done.stderr
    assert "the daemon ended before it was ready (exit code 4)" in done.stderr
    assert not fake.mounted


@pytest.mark.parametrize(
    ("missing", "words"),
    [("pyfuse3", ["mount"]), ("trio", ["mount", "--foreground"]), ("numpy", ["mount"]), ("numpy", ["info"])],
    ids=lambda value: "-".join(value) if isinstance(value, list) else value,
)
def test_a_library_that_cannot_be_loaded_is_one_line(missing: str, words: list[str], tmp_path: Path) -> None:
    """libfuse3 after an upgrade of the system; a checkout without its environment."""
    (tmp_path / "mnt").mkdir()
    (tmp_path / "store.zarr").mkdir()
    (tmp_path / "store.zarr/.zgroup").write_text('{"zarr_format": 2}')
    program = "import sys; sys.modules[sys.argv.pop(1)] = None; from fsbridge.cli import main; sys.exit(main())"
    places = [tmp_path / "store.zarr", tmp_path / "mnt"][: 1 if words == ["info"] else 2]
    done = run(sys.executable, "-c", program, missing, *words, *places)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first == f"fsbridge: Python cannot load what fsbridge needs: import of {missing} halted; None in sys.modules"
    assert second.startswith(f"  {sys.executable} -m pip install --force-reinstall --no-cache-dir ")
    assert f" '{missing}>=" in second


def test_without_dev_fuse_the_reason_is_said(fake: FakeMount) -> None:
    """In a private mount namespace, where /dev/fuse is something else."""
    for hide, code, message in (
        ("mount --bind /dev/null /dev/fuse", 32, "fake_tree: cannot mount on"),
        ("mount -t tmpfs none /dev", 2, "fake_tree: /dev/fuse does not exist\n  load the module with: modprobe fuse"),
    ):
        shell = ["unshare", "-m", "sh", "-c", f'{hide} && exec "$0" "$@"']
        done = run(*shell, *fake.command())
        assert done.returncode == code
        assert done.stderr.startswith(message)
        assert len(done.stderr.splitlines()) <= 2
