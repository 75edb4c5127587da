"""P4 for HDF5: links, raw storage and virtual datasets that lead out of the file are not followed."""

from __future__ import annotations

import errno
import logging
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from forked import in_fork
from hdf5_files import write_pattern
from hdf5_model import array, everything, group, node, opened, values
from hdf5_other_files import SECRET, write_outside
from paths import TESTS

from fsbridge import cli
from fsbridge.children import server
from fsbridge.errors import AccessDenied, CorruptData, FsbridgeError, NotFound, Stale, TooDeep, Unreachable
from fsbridge.formats.hdf5.child.data import Datasets
from fsbridge.formats.hdf5.child.data_file import Refusal
from fsbridge.model import Link


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
    """A virtual dataset of this file; an external link leads to its source."""
    file["inner/out"] = h5py.ExternalLink(target, "/")
    layout = h5py.VirtualLayout((100,), "<i4")
    layout[:] = h5py.VirtualSource(".", "/inner/out/secret", (100,))
    file.create_virtual_dataset("escape", layout)


ESCAPES: dict[str, Callable[[h5py.File, str], None]] = {
    function.__name__.strip("_"): function
    for function in (
        _external_link,
        _external_link_to_root,
        _nested_link,
        _external_storage,
        _nested_storage,
        _virtual,
        _virtual_through_link,
    )
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return write_outside(tmp_path / "outside")


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
    from hdf5_model import opened, values
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
        for op in ("node", "table", "read", "group", "names"):
            try:
                start = 0 if op in ("group", "names") else [0]
                question = {"op": op, "path": path.split("/"), "start": start, "shape": [100], "fill": "", "limit": 1 << 20}
                print("answered", path, op, source.file.ask(question, limit=1000)[:2])
            except FsbridgeError:
                pass

    for file in sys.argv[1:]:
        with opened(file) as source:
            for child in source.root.children():
                try:
                    node = source.root.child(child.name)
                except FsbridgeError:
                    continue
                if isinstance(node, HDF5Array):
                    print("values", values(node).tolist())
            for path in ("escape", "escape/secret", "inner/out", "inner/out/secret", "inner/raw"):
                look(source, path)
"""


@pytest.mark.parametrize("absolute", [True, False], ids=["absolute", "relative"])
def test_p4_nothing_outside_is_opened(tmp_path: Path, outside: Path, absolute: bool) -> None:
    """P4: reading everything, and asking the child directly, opens no file outside, and shows none of its bytes."""
    paths = [craft(tmp_path, name, absolute) for name in ESCAPES]
    trace = tmp_path / "trace"
    done = subprocess.run(
        [*STRACE, str(trace), sys.executable, "-c", textwrap.dedent(READ_ALL), *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
        cwd=TESTS / "support",
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
    """Second protection: even a child that is made to open another file cannot (if the kernel has Landlock)."""
    path = craft(tmp_path, "virtual", True)
    script = """
        import sys, h5py
        from fsbridge.children import server
        print(server.restrict_files([sys.argv[1]]))
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
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    if lines[0] == "True":
        assert lines[1:] == ["[1, 2, 3] [0, 0, 0]", "refused", "refused", "refused"]


@pytest.mark.parametrize("name", ["external_link", "external_storage", "virtual", "virtual_through_link", "nested_storage"])
def test_p3_data_in_other_files_is_listed_and_denied(tmp_path: Path, outside: Path, name: str) -> None:
    """P3: it is listed, it is "Permission denied" and not absent, and the message names the option that permits it."""
    path = craft(tmp_path, name, True)
    with opened(path) as source:
        assert {"escape", "good"} <= {child.name for child in source.root.children()}
        for _ in range(2):
            with pytest.raises(AccessDenied, match=re.escape(f"--allow-external {outside}")) as raised:
                source.root.child("escape")
            assert str(path) + ":/escape" in str(raised.value)
        assert values(array(source, "good")).tolist() == [1, 2, 3]


@pytest.mark.parametrize("absolute", [True, False], ids=["absolute", "relative"])
@pytest.mark.parametrize("name", ["external_link", "external_link_to_root", "external_storage", "virtual"])
def test_data_in_other_files_is_read_if_its_folder_is_allowed(
    tmp_path: Path, outside: Path, name: str, absolute: bool
) -> None:
    """The data is read if its folder is allowed, and not if another one is."""
    path = craft(tmp_path, name, absolute)
    where = "escape/secret" if name == "external_link_to_root" else "escape"
    other = tmp_path / "out"
    other.mkdir()
    with opened(path, allow_external=(str(other),)) as source, pytest.raises(AccessDenied):
        node(source, where)
    with opened(path, allow_external=(str(outside),)) as source:
        assert "escape" in [child.name for child in source.root.children()]
        np.testing.assert_array_equal(values(array(source, where)), SECRET)


def test_links_of_an_allowed_file_stay_in_it(tmp_path: Path) -> None:
    """Soft links below an external link lead to the same objects, if these are in the mount."""
    folder = tmp_path / "allowed"
    folder.mkdir()
    with h5py.File(folder / "other.h5", "w") as file:
        file["top/a/x"], file["elsewhere"] = 1, 2
        file["top/a/inside"], file["top/a/outside"] = h5py.SoftLink("/top/a/x"), h5py.SoftLink("/elsewhere")
    with h5py.File(tmp_path / "main.h5", "w") as file:
        file["link"] = h5py.ExternalLink("allowed/other.h5", "/top")
    with opened(tmp_path / "main.h5", allow_external=(str(tmp_path),)) as source:
        assert node(source, "link/a/inside") == Link("../a/x")
        with pytest.raises(NotFound):
            node(source, "link/a/outside")
        assert [child.name for child in group(source, "link/a").children()] == ["inside", "x"]


def test_an_external_link_to_a_soft_link_is_followed(tmp_path: Path) -> None:
    """It is followed as HDF5 does: in its file, over further links of both kinds, to a dataset or a group."""
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["data/x"] = np.arange(3)
        file["soft"], file["data/here"] = h5py.SoftLink("/data"), h5py.SoftLink("x")
        file["back"] = h5py.ExternalLink("main.h5", "/own")
    with h5py.File(tmp_path / "main.h5", "w") as file:
        file["own/y"] = np.arange(4)
        file["group"], file["dataset"] = h5py.ExternalLink("other.h5", "/soft"), h5py.ExternalLink("other.h5", "/soft/here")
        file["home"], file["missing"] = h5py.ExternalLink("other.h5", "/back/y"), h5py.ExternalLink("other.h5", "/soft/no")
        file["gone"] = h5py.ExternalLink("gone.h5", "/x")
    with opened(tmp_path / "main.h5", allow_external=(str(tmp_path),)) as source, h5py.File(tmp_path / "main.h5") as file:
        for path in ("group/x", "dataset", "home"):
            np.testing.assert_array_equal(values(array(source, path)), file[path][()])
        for name in ("missing", "gone"):
            assert name in [child.name for child in source.root.children()]
            with pytest.raises(CorruptData, match="an external link to something that is not there"):
                source.root.child(name)


def test_p11_nothing_is_kept_of_missing_files(tmp_path: Path) -> None:
    """Links may name any number of missing files. One that appears later is followed."""
    with h5py.File(tmp_path / "main.h5", "w") as file:
        for number in range(5):
            file[str(number)] = h5py.ExternalLink(f"gone{number}.h5", "/x")
    with opened(tmp_path / "main.h5", allow_external=(str(tmp_path),)) as source:
        for number in range(5):
            with pytest.raises(CorruptData, match="not there"):
                source.root.child(str(number))
        assert source.file.family == {source.file}
        with h5py.File(tmp_path / "gone3.h5", "w") as file:
            file["x"] = np.arange(3)
        np.testing.assert_array_equal(values(array(source, "3")), np.arange(3))
        assert len(source.file.family) == 2


def test_circular_external_links_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Links that only lead to each other are ELOOP at once."""
    for one, other in ("ab", "ba"):
        with h5py.File(tmp_path / f"{one}.h5", "w") as file:
            file["x"], file["y"] = h5py.ExternalLink(f"{other}.h5", "/x"), h5py.ExternalLink(f"{other}.h5", "/y/deep/er")
    with opened(tmp_path / "a.h5", allow_external=(str(tmp_path),)) as source:
        assert [child.name for child in source.root.children()] == ["x", "y"]
        for name in "xy":
            with pytest.raises(TooDeep, match="16 links"):
                source.root.child(name)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_hard_link_cycles_are_symlinks(tmp_path: Path) -> None:
    """A group that is its own ancestor is a relative link to that ancestor. Other hard links stay."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        group = file.create_group("g")
        group["a"], group["b"], group["root"] = group, group, file["/"]
        group["x"] = np.arange(3)
        inner = group.create_group("inner")
        inner["up"], inner["x"], file["again"] = group, group["x"], inner
    expected = {
        "/g": None,
        "/g/a": ".",
        "/g/b": ".",
        "/g/root": "..",
        "/g/x": None,
        "/g/inner": None,
        "/g/inner/up": "..",
        "/g/inner/x": None,
        "/again": None,
        "/again/x": None,
        "/again/up": None,
        "/again/up/a": ".",
        "/again/up/b": ".",
        "/again/up/root": "../..",
        "/again/up/x": None,
        "/again/up/inner": "..",
    }
    with opened(tmp_path / "x.h5") as source:
        found = dict(everything(source.root))
        assert {path: node.target if isinstance(node, Link) else None for path, node in found.items()} == expected


def test_cycles_through_external_links_are_symlinks(tmp_path: Path) -> None:
    """Links through other files lead to the same object: its file and address identify it."""
    with h5py.File(tmp_path / "main.h5", "w") as file:
        file["g/x"] = 1
        file["g/out"], file["g/top"] = h5py.ExternalLink("other.h5", "/"), h5py.ExternalLink("other.h5", "/h")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["h/back"], file["h/group"] = h5py.ExternalLink("main.h5", "/"), h5py.ExternalLink("main.h5", "/g")
    with opened(tmp_path / "main.h5", allow_external=(str(tmp_path),)) as source:
        links = {path: node.target for path, node in everything(source.root) if isinstance(node, Link)}
    assert links == {
        "/g/out/h/back": "../../..",
        "/g/out/h/group": "../..",
        "/g/top/back": "../..",
        "/g/top/group": "..",
    }


def test_info_ends_on_cycles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two links of a group to itself and its parent: three lines."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("g")
        group["loop"], group["self"] = file["/"], group
    assert cli.main(["fsbridge", "info", str(tmp_path / "a.h5")]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == ["/", "/g", "/g/loop", "/g/self"]


def test_a_change_of_data_in_another_file_is_noticed(tmp_path: Path, outside: Path) -> None:
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


def _virtual_over(path: Path, name: str, source: str) -> None:
    """A file with a virtual dataset `x` over the five numbers `source` of the file that it calls `name`."""
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "a") as file:
        layout = h5py.VirtualLayout((5,), "<i8")
        layout[:] = h5py.VirtualSource(name, source, (5,))
        file.create_virtual_dataset("x", layout)


def _linked(path: Path, name: str, target: str, group: str) -> None:
    """A file with an external link, at `group` or in it."""
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "a") as file:
        file[group] = h5py.ExternalLink(name, target)


def _further_virtual(main: Path, deep: str) -> None:
    _virtual_over(main, "parts/one.h5", "x")
    _virtual_over(main.parent / "parts/one.h5", f"../{deep}", "group/numbers")


def _further_both(main: Path, deep: str) -> None:
    _virtual_over(main, "parts/one.h5", "x")
    _virtual_over(main.parent / "parts/one.h5", ".", "inner")
    _linked(main.parent / "parts/one.h5", f"../{deep}", "group/numbers", "inner")


def _further_link(main: Path, deep: str) -> None:
    _virtual_over(main, "parts/one.h5", "there/numbers")
    _linked(main.parent / "parts/one.h5", f"../{deep}", "group", "there")


def _further_own_link(main: Path, deep: str) -> None:
    _virtual_over(main, ".", "there/x")
    _linked(main, "parts/one.h5", "/", "there")
    _virtual_over(main.parent / "parts/one.h5", f"../{deep}", "group/numbers")


FURTHER = [_further_virtual, _further_both, _further_link, _further_own_link]


@pytest.mark.parametrize("craft", FURTHER)
def test_p9_a_change_of_data_in_further_files_is_noticed(tmp_path: Path, craft: Callable[[Path, str], None]) -> None:
    """A source of a virtual dataset may have its data in another file, which is replaced while the others stay."""

    def write(first: int) -> None:
        with h5py.File(tmp_path / "new.h5", "w") as file:
            file["group/numbers"] = np.arange(first, first + 5)
        (tmp_path / "new.h5").rename(tmp_path / "deep.h5")

    craft(tmp_path / "main.h5", "deep.h5")
    write(10)
    with opened(tmp_path / "main.h5", allow_external=(str(tmp_path),)) as source:
        old = array(source, "x")
        info = old.chunks.find((0,))
        assert values(old).tolist() == [10, 11, 12, 13, 14]
        write(20)
        assert not old.current()
        with pytest.raises(Stale):
            old.chunks.read_into((0,), info, memoryview(bytearray(40)))
        assert values(array(source, "x")).tolist() == [20, 21, 22, 23, 24]
        (tmp_path / "deep.h5").unlink()
        assert array(source, "x").version != old.version


@pytest.mark.parametrize("craft", FURTHER)
def test_p4_further_files_need_permission_too(tmp_path: Path, outside: Path, craft: Callable[[Path, str], None]) -> None:
    """HDF5 would open them without asking, whatever is between."""
    folder = tmp_path / "allowed"
    folder.mkdir()
    with h5py.File(outside / "deep.h5", "w") as file:
        file["group/numbers"] = np.arange(5)
    craft(folder / "main.h5", os.path.relpath(outside / "deep.h5", folder))
    with opened(folder / "main.h5", allow_external=(str(folder),)) as source, pytest.raises(AccessDenied, match="deep"):
        array(source, "x")


def test_p3_p8_a_dataset_over_a_damaged_file_is_listed_and_cannot_be_read(tmp_path: Path) -> None:
    _virtual_over(tmp_path / "main.h5", "part.h5", "x")
    (tmp_path / "part.h5").write_bytes(b"no HDF5")
    with opened(tmp_path / "main.h5", allow_external=(str(tmp_path),)) as source:
        found = array(source, "x")
        assert found.metadata.shape == (5,)
        for _ in range(2):
            with pytest.raises(CorruptData, match="file signature not found"):
                values(found)
        with h5py.File(tmp_path / "mended.h5", "w") as file:
            file["x"] = np.arange(5)
        (tmp_path / "mended.h5").rename(tmp_path / "part.h5")
        assert values(array(source, "x")).tolist() == [0, 1, 2, 3, 4]


def test_p3_sources_that_cannot_be_looked_at_are_not_missing(tmp_path: Path) -> None:
    """HDF5 reads the fill value for any file that it cannot open, but only a missing file is a hole."""
    _virtual_over(tmp_path / "main.h5", "parts/one.h5", "x")
    with opened(tmp_path / "main.h5", allow_external=(str(tmp_path),)) as source:
        assert values(array(source, "x")).tolist() == [0] * 5
        (tmp_path / "parts").symlink_to("parts")
        with pytest.raises((Unreachable, CorruptData), match="Too many levels"):
            array(source, "x")
    write_pattern(tmp_path / "none.h5", "none/one%b.h5", "x")
    assert sources_of(tmp_path / "none.h5") == []
    write_pattern(tmp_path / "loop.h5", "parts/one%b.h5", "x")
    with pytest.raises(Refusal, match="Too many levels"):
        sources_of(tmp_path / "loop.h5")


def sources_of(path: Path, prepare: Callable[[], object] = lambda: None, child: Datasets | None = None) -> list[str]:
    """The other files with the data of the only dataset, as the child looks for them once `prepare` was called."""
    child = child or Datasets()
    child.path, child.allowed = str(path), [str(path.parent)]
    with h5py.File(path) as file:
        child.file = file.id
        prepare()
        (dataset,) = file.values()
        return child.find_sources(dataset.id)


@pytest.mark.parametrize("refused", ["open", "access"])
def test_p3_sources_that_may_not_be_opened_are_not_missing(refused: str) -> None:
    """Files are refused by their permissions, or by the confinement of the child.

    The permission may have been withdrawn after the first look, of which the answer is kept.
    """

    def prepare() -> None:
        if refused == "open":
            assert server.restrict_files([str(main)])
        else:
            os.chmod(main.with_name("one.h5"), 0)
            if os.getuid() == 0:
                os.setuid(65534)  # every file is open to root

    def look() -> None:
        child = Datasets()
        if refused == "access":
            assert sources_of(main, child=child) == [str(main.with_name("one.h5"))]
        with pytest.raises(Refusal, match="Permission denied") as refusal:
            sources_of(main, prepare, child)
        assert refusal.value.kind == "denied"

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        main = Path(folder) / "main.h5"
        _virtual_over(main, "one.h5", "x")
        (Path(folder) / "one.h5").touch()
        assert in_fork(look) == ""


def test_p3_an_external_link_to_what_cannot_be_looked_at_is_there(tmp_path: Path) -> None:
    """So are a link to a missing file and a link to something missing in its file."""
    for name in ("loop.h5", "missing.h5"):
        _linked(tmp_path / "main.h5", name, "/", name[:-3])
    (tmp_path / "loop.h5").symlink_to("loop.h5")
    _linked(tmp_path / "main.h5", "main.h5", "/nothing", "own")
    with opened(tmp_path / "main.h5", allow_external=(str(tmp_path),)) as source:
        assert [child.name for child in source.root.children()] == ["loop", "missing", "own"]
        reasons = {"loop": "symbolic links", "missing": "not there: .*missing.h5", "own": "not there: no such object"}
        for name, reason in reasons.items():
            with pytest.raises(FsbridgeError, match=f"{name}: an external link.*{reason}") as found:
                source.root.child(name)
            assert found.value.errno != errno.ENOENT


def test_virtual_datasets_of_each_other_end(tmp_path: Path) -> None:
    """Two datasets that name each other: the files are found, and the search ends."""
    _virtual_over(tmp_path / "a.h5", "b.h5", "x")
    _virtual_over(tmp_path / "b.h5", "a.h5", "x")
    with opened(tmp_path / "a.h5", allow_external=(str(tmp_path),)) as source:
        assert len(array(source, "x").dataset.sources) == 2


def test_virtual_datasets_within_the_file_need_no_permission(tmp_path: Path) -> None:
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
