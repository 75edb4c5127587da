"""What commands say to a mistake that people make in the first minutes: what is wrong, and what helps."""

from __future__ import annotations

import argparse
import errno
import os
from pathlib import Path
from typing import Any

import forking
import in_process
import numpy as np
import pytest
import zarr

from fsbridge.commands import command
from fsbridge.config import Config
from fsbridge.errors import SetupError
from fsbridge.mount import lifecycle, preflight
from fsbridge.mount.preflight import Mounted


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with an array in a group."""
    path = tmp_path / "s.zarr"
    zarr.open_group(path, mode="w").create_array("g/a", data=np.arange(6).reshape(2, 3))
    return path


@pytest.mark.parametrize("command", ["cat", "ls"])
@pytest.mark.parametrize("file", ["g/a.json", "g.json", "index.html"])
def test_a_name_that_only_the_layout_files_has_is_found_there(store: Path, command: str, file: str) -> None:
    done = in_process.fsbridge(command, f"{store}//{file}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[1:] == ["  the layout files has it: add --layout files"]
    done = in_process.fsbridge(command, "--layout", "files", f"{store}//{file}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["cat", "ls"])
def test_a_name_that_no_layout_has_is_only_absent(store: Path, command: str) -> None:
    for options in ([], ["--layout", "files"]):
        done = in_process.fsbridge(command, f"{store}//g/b.npy", *options)
        assert done.returncode == 1
        assert "--layout" not in done.stderr


def test_a_program_without_the_two_hyphens_is_told_of_them(store: Path) -> None:
    done = in_process.fsbridge("run", store, "ls", "-l", "{}")
    assert done.returncode == 1
    assert done.stderr == f"fsbridge: -- is missing before the program\n  write: fsbridge run {store} -- ls -l '{{}}'\n"
    done = in_process.fsbridge("run", store, "--layuot", "files")
    assert "perhaps --layout?" in done.stderr


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENODEV, errno.EACCES])
def test_without_fuse_other_ways_are_named(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refused(path: str, flags: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(preflight.os, "open", refused)
    with pytest.raises(SetupError, match="fsbridge cat, fsbridge export, and fsspec"):
        preflight.check_device()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["info", "--format", "zarr"], "perhaps zarr3? formats: auto, zarr3, "),
        (["info", "--format", "hdf"], "perhaps hdf5? formats: "),
        (["ls", "--layout", "filez"], "perhaps files? known layouts: zarr3, "),
        (["ls", "--layout", "nothing"], "  known layouts: zarr3, "),
    ],
)
def test_a_mistyped_format_or_layout_is_answered_by_the_nearest(store: Path, words: list[str], said: str) -> None:
    done = in_process.fsbridge(*words, store)
    assert done.returncode == 1
    assert said in done.stderr


def test_a_pattern_that_matches_nothing_is_an_error(store: Path, tmp_path: Path) -> None:
    """An empty mount or an empty export would look like an empty store."""
    (tmp_path / "mnt").mkdir()
    done = forking.run("mount", "--include", "tsa", store, tmp_path / "mnt")
    assert done.returncode != 0
    assert f"fsbridge: --include tsa: no group or array in {store} matches\n" in done.stderr
    done = in_process.fsbridge("ls", "--include", "*/b", store)
    assert (done.returncode, done.stdout) == (1, "")
    for pattern in ("g", "g/a", "*a", "g/*"):
        assert in_process.fsbridge("ls", "--include", pattern, store).stdout == "zarr.json\ng\n", pattern
    done = in_process.fsbridge("export", "--include", "*.xyz", store, tmp_path / "out")
    assert done.returncode == 1
    assert (
        done.stderr == f"fsbridge: --include '*.xyz': no file matches\n  see which files there are: fsbridge ls -R {store}\n"
    )
    done = in_process.fsbridge("export", "--files", "nc", "--include", "*.xyz", store, tmp_path / "out")
    assert done.stderr.endswith(f": fsbridge ls -R --layout files {store}\n")
    for _ in range(2):  # files that are kept match, too
        assert in_process.fsbridge("export", "--include", "*.json", store, tmp_path / "out").returncode == 0


def test_a_directory_that_may_not_be_read_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`mount` looks into both directories, in case they were exchanged."""
    from fsbridge.commands import mount

    asked: list[Config] = []

    def listed(path: str) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    def mounted(config: Config) -> int:
        asked.append(config)
        return 0

    monkeypatch.setattr(mount.os, "listdir", listed)
    monkeypatch.setattr(lifecycle, "mount", mounted)
    assert mount.run("fsbridge mount", [str(tmp_path), str(tmp_path)]) == 0
    assert [config.source for config in asked] == [str(tmp_path)]


def test_only_a_mount_of_fsbridge_is_to_be_unmounted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for fstype, advised in (("proc", False), ("nfs4", False), ("fuse.fsbridge", True)):
        found = Mounted("0:1", "/", str(tmp_path), fstype, "there")
        monkeypatch.setattr(preflight, "mounted_at", lambda path, found=found: found)
        monkeypatch.setattr(preflight, "check_device", lambda: None)
        with pytest.raises(SetupError) as error:
            preflight.check(Config("/", str(tmp_path)))
        assert ("fsbridge umount" in str(error.value)) == advised


def test_a_missing_syslog_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    mounts: list[Any] = []
    monkeypatch.setattr(preflight, "mounts", lambda: mounts)
    monkeypatch.setattr(lifecycle, "SYSLOG", "/no/such/socket")
    for number in range(3):
        mounts.append(Mounted("0:1", "/", f"/mnt/{number}", "fuse.fsbridge", "s"))
        lifecycle._say_where(Config("/s", f"/mnt/{number}"))
    assert capsys.readouterr().err.count("there is no syslog") == 1


def test_what_few_need_is_behind_ctl() -> None:
    assert "log-level, access-log, config, cache" in " ".join(forking.run("--help").stdout.split())
    done = in_process.fsbridge("ctl", "config")
    assert done.returncode == 0
    done = in_process.fsbridge("config")
    assert (done.returncode, done.stderr) == (
        1,
        "fsbridge: config: neither a command nor a store\n  perhaps fsbridge ctl config?\n",
    )
    done = in_process.fsbridge("ctl", "confg")
    assert done.stderr.startswith("fsbridge: ctl confg: no such command\n  perhaps config?")


@pytest.mark.parametrize("word", ["mout", "Mount", "mount2", "umounts", "list_"])
def test_a_mistyped_command_is_no_source(word: str) -> None:
    done = in_process.fsbridge(word, "a", "b")
    assert done.returncode == 1
    assert done.stderr.startswith(f"fsbridge: {word}: neither a command nor a store\n  perhaps fsbridge ")


@pytest.mark.parametrize("name", ["ls", "cat", "tree"])
def test_the_help_of_a_reading_command_is_short_and_names_the_rest(name: str) -> None:
    parser = command(name).parser(f"fsbridge {name}")
    shown = [action for action in parser._actions if action.option_strings and action.help != argparse.SUPPRESS]
    assert len(shown) <= 11
    assert "those of: fsbridge mount --help" in " ".join(parser.format_help().split())
    assert parser.parse_args(["s", "--cache-size", "1M", "--endpoint", "e"]).endpoint == "e"
