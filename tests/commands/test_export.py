"""`fsbridge export`: the mount's tree as real files; resumed after kills and interrupts, in parts, in bounded memory."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import forking
import h5py
import numpy as np
import pytest
import xarray
import zarr
from fake_s3 import FakeS3
from forking import environment
from in_process import fsbridge
from mounting import MountFunction, command
from source_places import config, numbers, tree_of, upload, write_all, write_each

from fsbridge.commands.output import Progress
from fsbridge.errors import FsbridgeError
from fsbridge.tree import Attrs, Buffer
from fsbridge.unmounted.destinations import Folder
from fsbridge.unmounted.exporting import Export, ExportChoice, ExportCounts
from fsbridge.unmounted.units import WorkSources

ALL_ARE_LEFT = -1.0
"""The age at which a temporary file counts as left behind: before it was made."""


@pytest.fixture(scope="module")
def each(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_each(tmp_path_factory.mktemp("each"))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 chunks, and an array of 64 MiB."""
    path = tmp_path_factory.mktemp("many") / "many.zarr"
    root = zarr.open_group(path, mode="w")
    root.create_array("small", data=np.arange(200_000, dtype="<i4"), chunks=(100,))
    root.create_array("large", data=np.arange(1 << 24, dtype="<i4").reshape(64, 512, 512), chunks=(8, 64, 512))
    return path


def export(*words: str | os.PathLike[str]) -> str:
    done = fsbridge("export", *words, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stderr


def export_here(place: Path, layout: str, dest: Folder, large: int = 64 << 20) -> ExportCounts:
    """Export in this thread, files of at least `large` bytes in four ranges."""

    def fail(path: str, error: Exception) -> None:
        raise error

    sources = WorkSources([config(place, layout)])
    whole = Export(sources, "", dest, ExportChoice(), fail, large=large, range_bytes=large // 4)
    for unit in whole.units():
        whole.join(unit, whole.do(sources, unit))
    sources.close()
    return whole.counts


def age(store: Path) -> None:
    """Date a store long ago: what has just been written is exported again the next time."""
    for path in (store, *store.rglob("*")):
        os.utime(path, ns=(10**18, 10**18))


def told(text: str) -> tuple[int, int]:
    """Files written and kept."""
    found = re.search(r"([\d,]+) files? written .*, ([\d,]+) kept", text)
    assert found is not None, text
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))


def test_p12_an_export_is_a_copy_of_the_mount_for_every_writer(tmp_path: Path, mount: MountFunction) -> None:
    store = write_all(tmp_path / "stores")
    age(store)
    mounted = mount(store, "--layout", "zarr3,files")
    expected = tree_of(mounted)
    said = export(store, tmp_path / "out", "--layout", "zarr3,files")
    assert tree_of(tmp_path / "out") == expected
    files = sum(content is not None for content in expected.values())
    assert told(said) == (files, 0)
    assert told(export(store, tmp_path / "out", "--layout", "zarr3,files")) == (0, files)


def test_each_format_in_zip_files_and_on_a_server(each: dict[str, Path], server: FakeS3, tmp_path: Path) -> None:
    places: dict[str, Path | str] = {**each, **upload(server, each)}
    for name, place in places.items():
        export(place, tmp_path / name, "--layout", "files", *(server.options if name.startswith("s3") else []))
        assert (np.load(tmp_path / name / "a/b.npy") == numbers()).all(), name
        assert sorted(os.listdir(tmp_path / name / "a")) == ["b.json", "b.npy", "index.html"]


def test_links_modes_and_times_are_those_of_the_mount(tmp_path: Path, mount: MountFunction) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("g/data", data=[1, 2, 3])
        file["soft"] = h5py.SoftLink("/g/data")
    os.utime(tmp_path / "a.h5", ns=(10**18, 10**18 + 123))
    export(tmp_path / "a.h5", tmp_path / "out")
    assert tree_of(tmp_path / "out") == tree_of(mount(tmp_path / "a.h5"))
    assert os.readlink(tmp_path / "out/soft") == "g/data"
    assert (tmp_path / "out/g/data/zarr.json").stat().st_mtime_ns == 10**18 + 123
    assert told(export(tmp_path / "a.h5", tmp_path / "out"))[0] == 0


def test_the_disk_has_it_when_the_command_has_ended(
    each: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[Folder] = []
    monkeypatch.setattr(Folder, "settle", lambda folder: settled.append(folder))
    export(each["n5"], tmp_path / "out")
    assert [folder.path for folder in settled] == [str(tmp_path / "out")]


def test_a_second_export_writes_what_has_changed(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a.zarr", shape=(40,), chunks=(4,), dtype="<i4")
    array[...] = 1
    age(tmp_path / "a.zarr")
    export(tmp_path / "a.zarr", tmp_path / "out")
    array[4:8] = 7
    (tmp_path / "out/c/5").unlink()
    (tmp_path / "out/c/6").write_bytes(b"cut")
    assert told(export(tmp_path / "a.zarr", tmp_path / "out")) == (3, 8)
    exported = zarr.open_array(tmp_path / "out", mode="r")
    assert np.asarray(exported[...]).tolist() == [1] * 4 + [7] * 4 + [1] * 32
    assert told(export(tmp_path / "a.zarr", tmp_path / "out"))[0] <= 1  # the change may be too young to be told by its time


@pytest.mark.parametrize("version", [2, 3])
def test_p9_a_second_export_of_whole_arrays_has_each_changed_chunk(version: Literal[2, 3], tmp_path: Path) -> None:
    """Nested chunks that are written again change neither the time of the array's directory nor that of its metadata."""
    array = zarr.create_array(tmp_path / "a.zarr", shape=(8, 8), chunks=(2, 2), dtype="<i4", zarr_format=version)
    array[...] = 1
    age(tmp_path / "a.zarr")
    assert told(export(tmp_path / "a.zarr", tmp_path / "out", "--layout", "files")) == (3, 0)
    assert told(export(tmp_path / "a.zarr", tmp_path / "out", "--layout", "files")) == (0, 3)
    for number in (2, 3):
        array[0:2, 0:2] = number
        export(tmp_path / "a.zarr", tmp_path / "out", "--layout", "files")
        assert (np.load(tmp_path / "out/a.npy") == array[...]).all()


def test_killed_at_random_moments_and_resumed(many: Path, tmp_path: Path) -> None:
    words = ("export", many, tmp_path / "out", "--layout", "zarr3,files")
    rng, done = random.Random(7), 0
    for number in range(20):
        with forking.start(*words, stderr=subprocess.DEVNULL) as running:
            time.sleep(rng.uniform(0, 0.3))
            while running.poll() is None and len(list((tmp_path / "out/zarr3").rglob("*"))) <= done + 20:
                time.sleep(rng.uniform(0, 0.1))
            running.send_signal(signal.SIGKILL if number % 2 else signal.SIGINT)
            running.wait(30)
        done = len(list((tmp_path / "out/zarr3").rglob("*")))
    written = export_here(many, "zarr3,files", Folder(str(tmp_path / "out"), ALL_ARE_LEFT)).written
    whole = tmp_path / "whole"
    said = export(many, whole, "--layout", "zarr3,files")
    assert tree_of(tmp_path / "out") == tree_of(whole)
    assert written < told(said)[0]


def test_p10_an_interrupt_keeps_what_is_complete_and_says_how_to_go_on(many: Path, tmp_path: Path) -> None:
    with forking.start("export", many, tmp_path / "out", stderr=subprocess.PIPE) as running:
        while not list((tmp_path / "out").rglob("c/*")):
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        begun = time.monotonic()
        _, said = running.communicate(timeout=20)
        assert time.monotonic() - begun < 2 + 6  # on a busy machine
    assert running.returncode == 8
    assert "interrupted" in said
    assert "the same command continues" in said
    for path in (tmp_path / "out/small/c").glob("[0-9]*"):
        assert path.stat().st_size == 400
    # on a busy machine a thread may have left a file that it had not completed
    export_here(many, "zarr3", Folder(str(tmp_path / "out"), ALL_ARE_LEFT))
    assert not list((tmp_path / "out").rglob(".fsbridge-*"))


@pytest.fixture
def ranges(tmp_path: Path) -> Path:
    """A store with a chunk of 4,000 bytes, and a small one."""
    root = zarr.open_group(tmp_path / "s.zarr", mode="w")
    root.create_array("large", data=np.ones(4000, "|u1"), chunks=(4000,), compressors=None)
    root.create_array("small", data=np.ones(8, "|u1"), chunks=(8,))
    age(tmp_path / "s.zarr")
    return tmp_path / "s.zarr"


class Shared(Folder):
    """A folder into which a second export of `store` begins and ends when `method` is called for the first time."""

    def __init__(self, path: str, store: Path, method: str) -> None:
        super().__init__(path)
        self.store, self.method = store, method

    def interrupt(self, method: str) -> None:
        if self.method == method:
            self.method = ""
            assert export_here(self.store, "zarr3", Folder(self.path), 4000).written > 0

    def write(self, path: str, attrs: Attrs, pieces: Iterator[Buffer]) -> int:
        self.interrupt("write")
        return super().write(path, attrs, pieces)

    def write_range(self, temporary: str, start: int, pieces: Iterator[Buffer]) -> int:
        self.interrupt("write_range")
        return super().write_range(temporary, start, pieces)

    def finish(self, temporary: str, path: str, attrs: Attrs) -> None:
        self.interrupt("finish")
        super().finish(temporary, path, attrs)


@pytest.mark.parametrize("method", ["write", "write_range", "finish"])
def test_p2_a_second_export_beside_the_first_is_harmless(method: str, ranges: Path, tmp_path: Path) -> None:
    folder = Shared(str(tmp_path / "out"), ranges, method)
    export_here(ranges, "zarr3", folder, 4000)
    assert not folder.method, "the second export took place"
    for name in ("large", "small"):
        assert np.all(zarr.open_array(tmp_path / f"out/{name}", mode="r")[...] == 1)
    assert not list((tmp_path / "out").rglob(".fsbridge-*"))


def test_p2_a_file_that_lacks_bytes_is_not_renamed(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    temporary = folder.begin("a")
    folder.write_range(temporary, 0, iter([b"123"]))
    with pytest.raises(FsbridgeError, match="3 of 4 bytes were written"):
        folder.finish(temporary, "a", Attrs("file", 4, 0))
    folder.clear()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["fifo", "hard link", "link"])
def test_p4_nothing_that_lies_at_a_temporary_name_is_written(
    kind: str, ranges: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda count: "0" * 16)
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "out").mkdir()
    planted = tmp_path / "out/.fsbridge-0000000000000000.part"
    if kind == "fifo":
        os.mkfifo(planted)
    else:
        os.link(tmp_path / "victim", planted) if kind == "hard link" else planted.symlink_to(tmp_path / "victim")
    done = fsbridge("export", ranges, tmp_path / "out")
    assert done.returncode == 1
    assert "fsbridge: zarr.json: File exists\n" in done.stderr
    assert "1 failed" in done.stderr
    assert (tmp_path / "victim").read_text() == "precious"


def test_leftovers_of_killed_exports_are_removed_by_their_age(ranges: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(ranges, out)
    left = [out / ".fsbridge-0123456789abcdef.part", out / "large/c/.fsbridge-0123456789abcdef.part"]
    others = [out / ".fsbridge-other.part", out / "large/c/.fsbridge-0123456789abcdef.part.gz"]
    for path in [*left, *others]:
        path.write_bytes(b"x")
    os.utime(left[0], ns=(0, 0))  # it may be about to be renamed
    export(ranges, out)
    assert all(path.exists() for path in [*left, *others])
    export_here(ranges, "zarr3", Folder(str(out), ALL_ARE_LEFT))
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in others)


def test_p8_a_group_may_be_called_as_a_temporary_file(tmp_path: Path) -> None:
    zarr.open_group(tmp_path / "s.zarr", mode="w").create_group(".fsbridge-0123456789abcdef.part")
    for _ in range(2):
        export_here(tmp_path / "s.zarr", "zarr3", Folder(str(tmp_path / "out"), ALL_ARE_LEFT))
    assert sorted(tree_of(tmp_path / "out")) == sorted(
        ["zarr.json", ".fsbridge-0123456789abcdef.part", ".fsbridge-0123456789abcdef.part/zarr.json"]
    )


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("words", [("--layout", "files"), ("--files", "nc"), ()])
def test_netcdf_files_are_exported_by_their_pattern(tmp_path: Path, words: tuple[str, ...], zarr_format: Any) -> None:
    """What xarray's `to_netcdf` writes of the store, of a group and of one variable."""
    values = np.arange(24, dtype="f4").reshape(2, 3, 4)
    times = np.array(["2000-01-01", "2000-02-01"], "M8[ns]")
    coordinates = {"time": times, "lat": ("lat", [-45.0, 0.0, 45.0], {"units": "degrees_north"})}
    data = xarray.Dataset({"tas": (("time", "lat", "lon"), values, {"units": "K"})}, coordinates, {"title": "t"})
    data.to_zarr(tmp_path / "c.zarr", zarr_format=zarr_format, consolidated=False)
    data.to_zarr(tmp_path / "c.zarr", zarr_format=zarr_format, consolidated=False, group="model/r1")
    data.to_netcdf(tmp_path / "own.nc")
    export(tmp_path / "c.zarr", tmp_path / "out", *words, "--include", "*.nc")
    found = {name for name, content in tree_of(tmp_path / "out").items() if content is not None}
    assert {"c.nc", "tas.nc", "model.nc", "model/r1.nc", "model/r1/tas.nc"} <= found
    assert all(name.endswith(".nc") for name in found)
    with xarray.open_dataset(tmp_path / "own.nc") as own:
        for name in ("c.nc", "model/r1.nc"):
            with xarray.open_dataset(tmp_path / "out" / name) as shown:
                xarray.testing.assert_identical(shown, own)
        for name in ("tas.nc", "model/r1/tas.nc"):
            with xarray.open_dataset(tmp_path / "out" / name) as shown:
                xarray.testing.assert_identical(shown["tas"], own["tas"])


class Seen:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.parts: list[tuple[str, int]] = []

    def begun(self, size: int) -> None:
        self.sizes.append(size)

    def done(self, path: str, count: int) -> None:
        self.parts.append((path, count))


def test_progress_shows_within_a_file_of_unlisted_size(tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "s.zarr", mode="w")
    root.create_array("a/b", data=np.arange(4 << 20, dtype="<i4").reshape(4, 1 << 20), compressors=None)
    sources = WorkSources([replace(config(tmp_path / "s.zarr", "files"), files=("nc",))])
    seen = sources.watcher = Seen()
    whole = Export(sources, "", Folder(str(tmp_path / "out")), ExportChoice(["a/b.nc"]), lambda path, error: None)
    units = list(whole.units())
    for unit in units:
        whole.join(unit, whole.do(sources, unit))
    size = (tmp_path / "out/a/b.nc").stat().st_size
    assert seen.sizes == [size]
    assert {path for path, _ in seen.parts} == {"a/b.nc"}
    assert len(seen.parts) > 3
    assert sum(count for _, count in seen.parts) + sum(unit.size for unit in units) == size
    assert Export(sources, "a/b.nc", Folder(str(tmp_path)), ExportChoice(), lambda path, error: None).total() == size
    sources.close()


class Terminal(io.StringIO):
    """What standard error is to a person."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("listed_first", [True, False])
def test_the_total_has_files_of_unlisted_size(listed_first: bool) -> None:
    with contextlib.redirect_stderr(Terminal()) as shown:
        progress = Progress(False)
        if listed_first:
            progress.expect(100)
        progress.begun(50)
        if not listed_first:
            progress.expect(100)
        time.sleep(0.2)  # the bar is drawn ten times a second
        progress.done("a.nc", 30)
        assert "| 30.0/150 [" in shown.getvalue()
        progress.close()


def test_parts_make_the_whole(many: Path, tmp_path: Path) -> None:
    for part in range(1, 4):
        export(many, tmp_path / "out", "--part", f"{part}/3")
    export(many, tmp_path / "whole")
    assert tree_of(tmp_path / "out") == tree_of(tmp_path / "whole")
    assert fsbridge("export", many, tmp_path / "out", "--part", "4/3").returncode == 1


def test_only_files_that_match_patterns_are_exported(each: dict[str, Path], tmp_path: Path) -> None:
    export(each["zarr3"], tmp_path / "one", "--files", "npy,raw", "--include", "*.raw")
    assert sorted(tree_of(tmp_path / "one")) == ["a", "a/b.raw"]
    export(each["zarr3"], tmp_path / "raw", "--include", "*.raw")
    assert tree_of(tmp_path / "raw") == tree_of(tmp_path / "one"), "the pattern names the file type"
    export(each["zarr3"], tmp_path / "both", "--layout", "zarr3,files", "--include", "*.raw")
    assert sorted(tree_of(tmp_path / "both")) == ["files", "files/a", "files/a/b.raw"]
    export(each["zarr3"], tmp_path / "png", "--include", "*.preview.png", "--include", "*/b.nc")
    assert sorted(tree_of(tmp_path / "png")) == ["a", "a/b.nc", "a/b.preview.png"]
    export(each["zarr3"], tmp_path / "two", "--exclude", "a/b/c", "--exclude", "zarr.json")
    assert sorted(tree_of(tmp_path / "two")) == ["a", "a/b", "a/b/zarr.json", "a/zarr.json"]
    export(f"{each['zarr3']}//a/b/c", tmp_path / "three")
    assert (tmp_path / "three/0/0/0").stat().st_size == 3 * 2 * 4 * 4
    export(f"{each['zarr3']}//a/b.npy", tmp_path / "b.npy", "--layout", "files")
    assert (np.load(tmp_path / "b.npy") == numbers()).all()


def test_damaged_members_are_reported_and_hide_nothing_else(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a.zarr", shape=(8,), chunks=(2,), dtype="<i4")
    array[...] = 1
    (tmp_path / "a.zarr/c/2").write_bytes(b"damage")
    done = fsbridge("export", tmp_path / "a.zarr", tmp_path / "out")
    assert done.returncode == 1
    assert "c/2" in done.stderr
    assert "4 files written" in done.stderr
    assert "1 failed" in done.stderr
    assert sorted(os.listdir(tmp_path / "out/c")) == ["0", "1", "3"]


def test_a_full_disk_is_one_line(many: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "none", disk], check=True)
    try:
        done = fsbridge("export", f"{many}//large", disk / "out")
        assert done.returncode == 1
        assert "No space left on device" in done.stderr
        assert done.stderr.count("\n") == 2
    finally:
        subprocess.run(["umount", disk], check=True)


def test_p1_an_export_is_never_written_into_the_store(each: dict[str, Path], tmp_path: Path) -> None:
    done = fsbridge("export", each["zarr3"], each["zarr3"] / "a/out")
    assert done.returncode == 1
    assert "inside the store" in done.stderr
    assert not (each["zarr3"] / "a/out").exists()


def test_p4_a_link_in_the_destination_is_not_followed(each: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out/a").symlink_to(tmp_path / "elsewhere")
    done = fsbridge("export", each["zarr3"], tmp_path / "out")
    assert done.returncode == 1
    assert "is a link" in done.stderr
    assert os.listdir(tmp_path / "elsewhere") == []


def test_p6_a_store_larger_than_the_cache(many: Path, tmp_path: Path) -> None:
    words = command("export", many, tmp_path / "out", "--layout", "files", "--cache-size", "8M", "-q")
    before = shutil.disk_usage(tmp_path).free
    assert before > 1 << 30
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-c", _PEAK, *words], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 200 * 1024  # KiB; Python and its libraries take 90 MiB
    data = np.load(tmp_path / "out/large.npy", mmap_mode="r")
    assert (data[17] == np.arange(17 << 18, 18 << 18).reshape(512, 512)).all()


_PEAK = (
    "import resource, subprocess, sys\ncode = subprocess.run(sys.argv[1:]).returncode\n"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\nsys.exit(code)"
)
