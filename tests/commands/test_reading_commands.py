"""`fsbridge ls`, `tree` and `cat`: what a mount shows, printed; closed pipes, odd names, errors in one line each."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path

import forking
import h5py
import numpy as np
import pytest
import zarr
from fake_s3 import FakeS3
from forking import environment
from mounting import MountFunction, command, fsbridge
from source_places import numbers, tree_of, upload, write_all, write_each

from fsbridge import cli

LISTED = b"a\na/b.json\na/b.npy\na/index.html\na.json\nindex.html\nstore.json\n"


@pytest.fixture(scope="module")
def each(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_each(tmp_path_factory.mktemp("each"))


def printed(*words: str | os.PathLike[str]) -> bytes:
    done = forking.run(*words, text=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return bytes(done.stdout)


def test_ls_and_cat_are_find_and_cat_of_the_mount(tmp_path: Path, mount: MountFunction) -> None:
    store = write_all(tmp_path / "stores")
    mounted = mount(store, "--layout", "files")
    expected = tree_of(mounted)
    assert sorted(os.fsdecode(printed("ls", "-R", store, "--layout", "files")).splitlines()) == sorted(expected)
    files = [path for path, content in expected.items() if content is not None][:200]
    told = printed("cat", "--layout", "files", *(f"{store}//{path}" for path in files))
    assert told == b"".join(expected[path] or b"" for path in files)


def test_each_format_on_disk_in_zip_files_and_on_a_server(
    each: dict[str, Path], server: FakeS3, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    def printed_here(*words: str | os.PathLike[str]) -> bytes:
        """Like `printed`, without a process for each of many commands."""
        assert cli.main(["fsbridge", *(os.fspath(word) for word in words), "--layout", "files", *server.options]) == 0
        said = capfdbinary.readouterr()
        assert said.err == b""
        return said.out

    places: list[Path | str] = [*each.values(), *upload(server, each).values()]
    for place in places:
        assert printed_here("ls", "-R", place) == LISTED
        assert (np.load(io.BytesIO(printed_here("cat", f"{place}//a/b.npy"))) == numbers()).all()


def test_a_region_through_a_pipe(each: dict[str, Path]) -> None:
    plane = printed("cat", f"{each['zarr3']}//a/b[3,:,:].npy", "--layout", "files")
    assert (np.load(io.BytesIO(plane)) == numbers()[3]).all()


def test_long_lines_say_kind_size_and_where_links_lead(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("g/data", data=[1, 2, 3])
        file["soft"] = h5py.SoftLink("/g/data")
    lines = printed("ls", "-l", tmp_path / "a.h5").decode().splitlines()
    assert [line.split()[0] for line in lines] == ["-r--r--r--", "dr-xr-xr-x", "lrwxrwxrwx"]
    assert lines[2].endswith("soft -> g/data")
    assert int(lines[0].split()[1]) == len(printed("cat", f"{tmp_path}/a.h5//zarr.json"))


def test_tree_draws_what_ls_lists(each: dict[str, Path]) -> None:
    drawn = printed("tree", each["zarr2"], "--layout", "zarr2").decode().splitlines()
    listed = printed("ls", "-R", each["zarr2"], "--layout", "zarr2").decode().splitlines()
    assert [line.split("── ")[1] for line in drawn[1:]] == [path.rpartition("/")[2] for path in listed]
    assert drawn[0] == str(each["zarr2"])
    assert drawn[-1].startswith("    ")
    assert printed("tree", "-d", "-L", "1", each["zarr2"]).decode().splitlines()[1:] == ["└── a"]


def test_what_cannot_be_read_is_one_line_and_hides_nothing_else(each: dict[str, Path]) -> None:
    done = fsbridge("cat", f"{each['zarr3']}//nope", f"{each['zarr3']}//a", f"{each['zarr3']}//zarr.json")
    assert done.returncode == 1
    assert done.stdout.startswith("{")
    assert done.stderr.count("fsbridge: ") == done.stderr.count("\n") == 2
    done = fsbridge("ls", each["zarr3"] / "nope")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no such file or directory" in done.stderr


@pytest.mark.parametrize(
    "line",
    ["ls -R {}", "tree {}", "cat {}//zarr.json", "list --json", "ctl config", "completion zsh"],
)
def test_a_reader_that_has_seen_enough_is_no_error(line: str, each: dict[str, Path]) -> None:
    assert_unread_is_well(*line.format(each["zarr3"]).split())


def test_a_reader_that_has_seen_enough_of_status_is_no_error(each: dict[str, Path], mount: MountFunction) -> None:
    """Of one mount: one of another test at the same time may not answer, which is exit code 2."""
    assert_unread_is_well("status", str(mount(each["zarr3"]).path))


def assert_unread_is_well(*words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as output:
        done = forking.run(*words, stdout=output)
    assert (done.returncode, done.stderr) == (0, "")


def test_where_nothing_can_be_printed_is_one_line(each: dict[str, Path]) -> None:
    line = 'exec "$@" > /dev/full'
    words = ["sh", "-c", line, "sh", *command("ls", each["zarr3"])]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 2
    assert done.stderr.startswith("fsbridge: standard output")
    assert done.stderr.count("\n") == 1


def test_odd_names_are_as_the_mount_has_them(tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    for name in ("größe 量", "new\nline", "%"):
        root.create_group(name)
    (tmp_path / "a.zarr" / os.fsdecode(b"bad\xff")).mkdir()
    (tmp_path / "a.zarr" / os.fsdecode(b"bad\xff") / ".zgroup").write_text('{"zarr_format": 2}')
    listed = printed("ls", tmp_path / "a.zarr").splitlines()
    assert {"größe 量".encode(), b"new%0Aline", b"%25", b"bad\xff"} < set(listed)
    assert b"zarr_format" in printed("cat", str(tmp_path) + os.fsdecode(b"/a.zarr//bad\xff/zarr.json"))
