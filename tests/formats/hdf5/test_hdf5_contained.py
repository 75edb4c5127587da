"""P4 for HDF5: links, raw storage and virtual datasets that lead out of the file are not followed."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from hdf5_model import array, node, opened, values
from paths import TESTS

from fsbridge.errors import NotFound, Stale, Unsupported
from fsbridge.model import Link

SECRET = np.arange(100, dtype="<i4") + 7000


def _external_link(file: h5py.File, target: str) -> None:
    file["escape"] = h5py.ExternalLink(target, "/secret")


def _external_link_to_root(file: h5py.File, target: str) -> None:
    file["escape"] = h5py.ExternalLink(target, "/")


def _nested_link(file: h5py.File, target: str) -> None:
    """A soft link through an external link."""
    file["inner/out"] = h5py.ExternalLink(target, "/")
    file["escape"] = h5py.SoftLink("/inner/out/secret")


def _external_storage(file: h5py.File, target: str) -> None:
    file.create_dataset("escape", (100,), "<i4", external=[(target, 0, 400)])


def _nested_storage(file: h5py.File, target: str) -> None:
    """A virtual dataset of this file over external storage."""
    file.create_dataset("inner/raw", (100,), "<i4", external=[(target, 0, 400)])
    layout = h5py.VirtualLayout((100,), "<i4")
    layout[:] = h5py.VirtualSource(".", "/inner/raw", (100,))
    file.create_virtual_dataset("escape", layout)


def _virtual(file: h5py.File, target: str) -> None:
    layout = h5py.VirtualLayout((100,), "<i4")
    layout[:] = h5py.VirtualSource(target, "/secret", (100,))
    file.create_virtual_dataset("escape", layout)


def _virtual_through_link(file: h5py.File, target: str) -> None:
    """A virtual dataset of this file whose source is reached through an external link."""
    file["inner/out"] = h5py.ExternalLink(target, "/")
    layout = h5py.VirtualLayout((100,), "<i4")
    layout[:] = h5py.VirtualSource(".", "/inner/out/secret", (100,))
    file.create_virtual_dataset("escape", layout)


ESCAPES: dict[str, Callable[[h5py.File, str], None]] = {
    function.__name__.strip("_"): function
    for function in (
        _external_link, _external_link_to_root, _nested_link, _external_storage, _nested_storage, _virtual,
        _virtual_through_link,
    )
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with an HDF5 file and raw data that nobody may open."""
    folder = tmp_path / "outside"
    folder.mkdir()
    with h5py.File(folder / "secret.h5", "w") as file:
        file["secret"] = SECRET
    (folder / "secret.bin").write_bytes(SECRET.tobytes())
    return folder


def craft(tmp_path: Path, name: str, absolute: bool) -> Path:
    """A file in `store/` that leads to `outside/` by one mechanism."""
    store = tmp_path / "store"
    store.mkdir(exist_ok=True)
    path = store / f"{name}.h5"
    raw = "storage" in name
    target = f"{tmp_path}/outside/secret" if absolute else "../outside/secret"
    with h5py.File(path, "w") as file:
        file["good"] = [1, 2, 3]
        ESCAPES[name](file, target + (".bin" if raw else ".h5"))
    return path


STRACE = ("strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=open,openat,openat2", "-s", "4096", "-o")
READ_ALL = """
    import sys
    from hdf5_model import everything, opened, values
    from fsbridge.errors import FsbridgeError
    from fsbridge.formats.hdf5.arrays import HDF5Array

    def look(source, path):
        try:
            node = source.root
            for part in path.split("/"):
                node = node.child(part)
            print("reached", path, type(node).__name__)
        except (FsbridgeError, AttributeError) as error:
            print(type(error).__name__)
        for op in ("node", "table", "read"):
            try:
                question = {"op": op, "path": path.split("/"), "start": [0], "shape": [100], "fill": ""}
                print("answered", path, op, source.file.ask(question, limit=1000)[:2])
            except FsbridgeError:
                pass

    for file in sys.argv[1:]:
        with opened(file) as source:
            for node in dict(everything(source.root)).values():
                if isinstance(node, HDF5Array):
                    print("values", values(node).tolist())
            for path in ("escape", "escape/secret", "inner/out", "inner/out/secret", "inner/raw"):
                look(source, path)
"""


@pytest.mark.parametrize("absolute", [True, False], ids=["absolute", "relative"])
def test_nothing_outside_is_opened_p4(tmp_path: Path, outside: Path, absolute: bool) -> None:
    """P4: reading everything, and asking the child directly, opens no file outside, and shows none of its bytes."""
    paths = [craft(tmp_path, name, absolute) for name in ESCAPES]
    trace = tmp_path / "trace"
    done = subprocess.run(
        [*STRACE, str(trace), sys.executable, "-c", textwrap.dedent(READ_ALL), *map(str, paths)],
        capture_output=True, text=True, check=False, cwd=TESTS,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("values")] == ["values [1, 2, 3]"] * len(paths)
    assert [line for line in lines if line.startswith("reached")] == ["reached escape Link"]
    opens = trace.read_text().splitlines()
    assert [line for line in opens if "outside/secret" in line] == []
    assert all(any(path.name in line for line in opens) for path in paths)
    asked = [line for line in lines if line.startswith("answered")]
    assert all(re.search(r" node \(\{'kind': '(external|soft)'", line) for line in asked), asked


def test_confined_child_opens_nothing_else(tmp_path: Path, outside: Path) -> None:
    """The second wall: a child that were talked into opening another file cannot (where the kernel has Landlock)."""
    path = craft(tmp_path, "virtual", True)
    script = """
        import sys, h5py
        from fsbridge.children import sandbox
        print(sandbox.restrict_files([sys.argv[1]]))
        with h5py.File(sys.argv[1], locking=False) as file:
            print(file["good"][()].tolist(), file["escape"][:3].tolist())
        for other in (sys.argv[2], "/etc/hostname", sys.argv[1] + ".new"):
            try:
                open(other, "ab" if other.endswith("new") else "rb")
            except PermissionError:
                print("refused")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(path), str(outside / "secret.h5")],
        capture_output=True, text=True, check=True,
    )
    lines = done.stdout.splitlines()
    if lines[0] == "True":
        assert lines[1:] == ["[1, 2, 3] [0, 0, 0]", "refused", "refused", "refused"]


def test_absent_with_one_log_line(tmp_path: Path, outside: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is not followed is not listed, not found, and mentioned once."""
    caplog.set_level(logging.WARNING)
    for name in ("external_link", "external_storage", "virtual"):
        with opened(craft(tmp_path, name, True)) as source:
            for _ in range(3):
                assert [child.name for child in source.root.children()] == ["good"]
                with pytest.raises(NotFound):
                    source.root.child("escape")
    messages = [record.getMessage() for record in caplog.records if "Landlock" not in record.getMessage()]
    assert len(messages) == 3, messages
    assert all("is not followed" in message for message in messages)


@pytest.mark.parametrize("absolute", [True, False], ids=["absolute", "relative"])
@pytest.mark.parametrize("name", ["external_link", "external_link_to_root", "external_storage", "virtual"])
def test_allowed_folders(tmp_path: Path, outside: Path, name: str, absolute: bool) -> None:
    """With the folder allowed the data is there; with another one it is not."""
    path = craft(tmp_path, name, absolute)
    where = "escape/secret" if name == "external_link_to_root" else "escape"
    other = tmp_path / "out"
    other.mkdir()
    with opened(path, allow_external=(str(other),)) as source, pytest.raises(NotFound):
        node(source, where)
    with opened(path, allow_external=(str(outside),)) as source:
        assert "escape" in [child.name for child in source.root.children()]
        np.testing.assert_array_equal(values(array(source, where)), SECRET)


def test_links_of_an_allowed_file_stay_in_it(tmp_path: Path) -> None:
    """Soft links below an external link lead to the same objects, as long as these are in the mount; loops end."""
    folder = tmp_path / "allowed"
    folder.mkdir()
    with h5py.File(folder / "other.h5", "w") as file:
        file["top/a/x"], file["elsewhere"] = 1, 2
        file["top/a/inside"], file["top/a/outside"] = h5py.SoftLink("/top/a/x"), h5py.SoftLink("/elsewhere")
        file["top/loop"] = h5py.ExternalLink("../main.h5", "/")
    with h5py.File(tmp_path / "main.h5", "w") as file:
        file["link"] = h5py.ExternalLink("allowed/other.h5", "/top")
        file["group/self"] = h5py.SoftLink("/link")
    with opened(tmp_path / "main.h5", allow_external=(str(tmp_path),)) as source:
        assert node(source, "link/a/inside") == Link("../a/x")
        with pytest.raises(NotFound):
            node(source, "link/a/outside")
        assert [child.name for child in node(source, "link/a").children()] == ["inside", "x"]  # type: ignore[union-attr]
        assert node(source, "link/loop/link/loop/group/self") == Link("../link")
        assert values(array(source, "link/loop/link/a/x"))[()] == 1
        assert len(source.file._family) == 2


def test_allowed_data_that_changes(tmp_path: Path, outside: Path) -> None:
    """P9: a virtual dataset notices that a file of its data changed."""
    path = craft(tmp_path, "virtual", False)
    with opened(path, allow_external=(str(outside),)) as source:
        old = array(source, "escape")
        info = old.chunks.find((0,))
        np.testing.assert_array_equal(values(old), SECRET)
        with h5py.File(outside / "secret.h5", "r+") as file:
            file["secret"][0] = -1
        os.utime(outside / "secret.h5", ns=(1, 1))
        assert not old.current()
        with pytest.raises(Stale):
            old.chunks.read_into((0,), info, memoryview(bytearray(400)))
        new = array(source, "escape")
        assert new.version != old.version
        assert values(new)[:2].tolist() == [-1, 7001]


def test_virtual_dataset_within_the_file(tmp_path: Path) -> None:
    """Sources in the same file need no permission; holes are the fill value."""
    path = tmp_path / "inside.h5"
    with h5py.File(path, "w") as file:
        file["a"], file["g/b"] = np.arange(5), np.arange(5, 10)
        layout = h5py.VirtualLayout((3, 5), "<i8")
        layout[0] = h5py.VirtualSource(file["a"])
        layout[2] = h5py.VirtualSource(file["g/b"])
        file.create_virtual_dataset("v", layout, fillvalue=-1)
    with opened(path) as source:
        assert values(array(source, "v")).tolist() == [[0, 1, 2, 3, 4], [-1] * 5, [5, 6, 7, 8, 9]]


def test_patterns_of_file_names_are_unsupported(tmp_path: Path) -> None:
    """A virtual dataset over `part-%b.h5` can grow by files that nobody looked at."""
    path = tmp_path / "pattern.h5"
    with h5py.File(path, "w") as file:
        source = h5py.h5s.create_simple((1, 5))
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        space = h5py.h5s.create_simple((10, 5), (h5py.h5s.UNLIMITED, 5))
        block = h5py.h5s.create_simple((10, 5), (h5py.h5s.UNLIMITED, 5))
        block.select_hyperslab((0, 0), (h5py.h5s.UNLIMITED, 1), (1, 1), (1, 5))
        plist.set_virtual(block, b"part-%b.h5", b"x", source)
        h5py.h5d.create(file.id, b"v", h5py.h5t.STD_I64LE, space, plist)
    with opened(path, allow_external=(str(tmp_path),)) as opened_file, pytest.raises(Unsupported, match="pattern"):
        opened_file.root.child("v")
