"""A directory is listed although one of its members hangs (P3, P7): its name is known, and what it is tells its look-up."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import forking
import h5py
import numpy as np
import pytest
import zarr
from mounting import READY, Mount, mounted
from observing import errno_of
from waiting import until

from fsbridge.store import Key
from fsbridge.store.local.status import MountPoints, known_status
from fsbridge.threads.workers import HungMembers


class Hanging:
    """A store that hangs: a mount inside the collection, with a daemon that can be stopped."""

    def __init__(self, store: Path, point: Path) -> None:
        point.mkdir()
        self.point = point
        self.process = forking.start("mount", "--foreground", "--metadata-ttl", "0", store, point)
        until(lambda: mounted(point) or self.process.poll() is not None, READY)
        assert mounted(point)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self.go_on()
        subprocess.run(["umount", "-l", self.point], check=False)
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Hanging]:
    array = np.arange(1, 11, dtype="u1")
    (tmp_path / "c").mkdir()
    for store in (tmp_path / "inner", tmp_path / "c/healthy.zarr"):
        zarr.create_array(store / "x", data=array, chunks=(1,), compressors=None)
        zarr.create_group(store, zarr_format=3)
    inner = Hanging(tmp_path / "inner", tmp_path / "c/hung")
    try:
        yield inner
    finally:
        inner.end()


def attributes(folder: Path) -> Mapping[str, bool]:
    """Names and kinds as `ls -l` has them, without a look-up of its own."""
    with os.scandir(folder) as members:
        return {member.name: member.is_dir(follow_symlinks=False) for member in members}


@pytest.mark.parametrize(("kind", "listed_before"), [("collection", True), ("collection", False), ("hierarchy", False)])
def test_p3_p7_a_directory_is_listed_while_a_member_hangs(
    tmp_path: Path, hanging: Hanging, mount: Callable[..., Mount], kind: str, listed_before: bool
) -> None:
    names = {"healthy.zarr": True, "hung": True, "zarr.json": False}
    if kind == "collection":
        with h5py.File(tmp_path / "c/file.h5", "w") as file:
            file["d"] = [1]
        (tmp_path / "c/readme.txt").write_text("no store")
        names["file.h5"] = True
    tree = mount(tmp_path / "c")
    tree.allow("does not answer|deadline")
    assert (tree / "hung/x/c/1").read_bytes() == b"\2"
    if listed_before:
        assert attributes(tree.path) == names
    time.sleep(1.1)  # what is known of it is too old to be shown
    hanging.stop()
    begin = time.monotonic()
    for _ in range(3):
        assert attributes(tree.path) == names
        assert (tree / "healthy.zarr/x/c/3").read_bytes() == b"\4"
        time.sleep(1.1)
    assert time.monotonic() - begin < 25, "three listings, each far below a deadline of 10 s"
    if kind == "collection":  # at once: the listing has met it
        assert errno_of((tree / "hung/x/c/2").read_bytes) == errno.ETIMEDOUT
    assert attributes(tree.path) == names
    hanging.go_on()
    deadline = time.monotonic() + 20
    while errno_of((tree / "hung/x/c/2").read_bytes) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (tree / "hung/x/c/2").read_bytes() == b"\3"
    assert attributes(tree.path) == names


def test_p7_a_group_is_listed_while_links_in_it_lead_to_a_server_that_hangs(
    tmp_path: Path, hanging: Hanging, mount: Callable[..., Mount]
) -> None:
    """Links lead to the mount itself and to what lies in it, from a group that was not read before."""
    group = zarr.open_group(tmp_path / "group.zarr", mode="w")
    for number in range(3):
        group.create_array(f"a{number}", data=np.arange(1, 5, dtype="u1"), chunks=(2,), compressors=None)
    links: dict[str, Path | str] = {
        "link": hanging.point,
        "deep": hanging.point / "x",
        "zz": "a1",
        "deeper": hanging.point / "x/c",
    }
    for name, target in links.items():
        (tmp_path / "group.zarr" / name).symlink_to(target)
    tree = mount(tmp_path / "group.zarr", "--allow-external", str(tmp_path / "c"))
    tree.allow("does not answer|deadline")
    hanging.stop()
    begin = time.monotonic()
    for _ in range(2):
        assert attributes(tree.path) == {
            "a0": True,
            "a1": True,
            "a2": True,
            **dict.fromkeys(links, True),
            "zarr.json": False,
        }
        assert (tree / "a2/c/1").read_bytes() == b"\3\4"
        assert (tree / "zz/c/1").read_bytes() == b"\3\4"
        time.sleep(1.1)
    assert time.monotonic() - begin < 25, "far below two deadlines of 10 s"
    hanging.go_on()
    deadline = time.monotonic() + 20
    while errno_of((tree / "deep/c/2").read_bytes) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (tree / "deep/c/2").read_bytes() == b"\3"
    assert (tree / "link/x/c/2").read_bytes() == b"\3"


def test_p7_a_hung_member_is_not_asked_again_and_delays_no_other() -> None:
    go_on, asked = threading.Event(), []
    keys = [Key(f"{number:03d}") for number in range(300)]
    hung = {keys[3], keys[4], keys[299]}

    def ask(key: Key) -> str:
        asked.append(key)
        if key in hung:
            go_on.wait()
        return f"answer {key}"

    # The threads of the other members may come late on a busy machine.
    members: HungMembers[str] = HungMembers(patience=60.0, known_patience=0.5)

    def answers() -> Sequence[str | None]:
        return list(members.answers(keys, ask, hung.__contains__))

    expected = [None if key in hung else f"answer {key}" for key in keys]
    assert answers() == expected
    assert {key for key in keys if members.hangs(key)} == hung
    assert answers() == expected
    until(lambda: hung < set(asked))
    assert sorted(asked) == sorted([*keys, *(key for key in keys if key not in hung)])
    go_on.set()
    deadline = time.monotonic() + 20
    while any(map(members.hangs, keys)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert answers() == [f"answer {key}" for key in keys]


def test_p7_no_more_than_some_members_hang_at_a_time() -> None:
    go_on, asked = threading.Event(), []

    def ask(key: Key) -> str:
        asked.append(key)
        go_on.wait()
        return "answer"

    members: HungMembers[str] = HungMembers(patience=0.05, most_hanging=4)
    keys = [Key(str(number)) for number in range(50)]
    assert list(members.answers(keys, ask, lambda key: False)) == [None] * 50
    until(lambda: len(asked) == 4)  # on a busy machine patience may end before a thread has begun
    go_on.set()
    until(lambda: not any(map(members.hangs, keys)))
    assert len(asked) == 4


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_p7_a_member_without_memory_for_its_answer_does_not_hang_for_ever() -> None:
    short = [True]

    def ask(key: Key) -> str:
        if key == "1" and short:
            short.clear()
            raise MemoryError
        return f"answer {key}"

    members: HungMembers[str] = HungMembers()
    keys = [Key(str(number)) for number in range(3)]
    assert list(members.answers(keys, ask, lambda key: False)) == ["answer 0", None, "answer 2"]
    assert not any(map(members.hangs, keys))
    until(lambda: "fsbridge-members" not in [thread.name for thread in threading.enumerate()])  # its error is reported here
    assert list(members.answers(keys, ask, lambda key: False)) == ["answer 0", "answer 1", "answer 2"]


def test_what_is_mounted_is_found_in_the_kernels_list_and_looked_at_there(hanging: Hanging) -> None:
    parent = hanging.point.parent
    deadline = time.monotonic() + 10
    mounts = MountPoints()
    while str(hanging.point) not in mounts.points_below(str(parent)) and time.monotonic() < deadline:
        time.sleep(0.1)  # the list may be a second old
    assert mounts.points_below(str(parent)) == {str(hanging.point)}
    assert mounts.points_below(str(hanging.point)) == frozenset()
    folder = os.open(parent, os.O_RDONLY)
    try:
        for name in ("hung", "healthy.zarr"):
            status, known = os.stat(parent / name), known_status(folder, name)  # in this order: it tells what was told last
            assert all(getattr(status, name) == value for name, value in known._asdict().items()), (known, status)
        with pytest.raises(FileNotFoundError):
            known_status(folder, "absent")
    finally:
        os.close(folder)
