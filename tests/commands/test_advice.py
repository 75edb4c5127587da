"""What commands say to a mistake that people make in the first minutes: what is wrong, and what helps."""

from __future__ import annotations

import argparse
import errno
import os
from pathlib import Path

import forking
import in_process
import numpy as np
import pytest
import zarr
from forked import in_fork, leave_root

from fsbridge.commands import command, mount
from fsbridge.errors import SetupError
from fsbridge.mount import preflight


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
def test_without_fuse_other_ways_are_named(number: int, tmp_path: Path) -> None:
    error = preflight.without_fuse(OSError(number, os.strerror(number)))
    assert "fsbridge cat, fsbridge export, and fsspec" in str(error)
    with pytest.raises(SetupError, match="fsbridge cat, fsbridge export, and fsspec"):
        preflight.check_device(str(tmp_path / "fuse"))


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


def test_a_directory_that_may_not_be_read_is_one_line(tmp_path: Path) -> None:
    """`mount` looks into both directories, in case they were exchanged. What is wrong is said by what follows."""
    (tmp_path / "closed").mkdir(0o000)

    def begin() -> None:
        leave_root()
        with pytest.raises(SetupError, match=r"^(mount point .*/closed: Permission denied$|cannot open /dev/fuse: )"):
            mount.run("fsbridge mount", [str(tmp_path / "closed"), str(tmp_path / "closed")])

    assert in_fork(begin) == ""


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
    parser = command(name).make_parser(f"fsbridge {name}")
    shown = [action for action in parser._actions if action.option_strings and action.help != argparse.SUPPRESS]
    assert len(shown) <= 11
    assert "those of: fsbridge mount --help" in " ".join(parser.format_help().split())
    assert parser.parse_args(["s", "--cache-size", "1M", "--endpoint", "e"]).endpoint == "e"
