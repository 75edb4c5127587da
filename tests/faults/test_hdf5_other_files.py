"""HDF5 data in other files: which are found, and which changes are noticed (P4, P9, P12). Not here: ways out of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from hdf5_files import write_pattern
from hdf5_model import array, node, opened, values
from hdf5_other_files import write_outside

from fsbridge.errors import AccessDenied, Stale


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return write_outside(tmp_path / "outside")


def test_patterns_of_file_names_grow_with_the_files(tmp_path: Path, outside: Path) -> None:
    """A virtual dataset over `part-%b.h5` is read if its folder is allowed, and grows with the files."""
    data = tmp_path / "data"
    data.mkdir()

    def write_part(number: int) -> None:
        with h5py.File(data / f"100%-{number}.h5", "w") as file:
            file["x"] = np.arange(5)[np.newaxis] + 10 * number

    for number in range(2):
        write_part(number)
    write_pattern(data / "main.h5", "100%%-%b.h5", "/x")
    with opened(data / "main.h5") as source, pytest.raises(AccessDenied, match="--allow-external"):
        source.root.child("v")
    with opened(data / "main.h5", allow_external=(str(data),)) as source:
        found = array(source, "v")
        with h5py.File(data / "main.h5") as file:
            np.testing.assert_array_equal(values(found), file["v"][()])
        assert len(found.dataset.sources) == 2
        write_part(2)
        new = array(source, "v")
        assert new.version != found.version
        assert values(new).tolist() == [list(range(10 * number, 10 * number + 5)) for number in range(3)]
        (data / "100%-3.h5").symlink_to(outside / "secret.h5")
        with pytest.raises(AccessDenied, match="secret"):
            array(source, "v")


def test_p4_p9_new_files_that_fit_a_pattern_are_noticed(tmp_path: Path, outside: Path) -> None:
    """The file with the pattern does not change."""
    data = tmp_path / "data"
    data.mkdir()
    write_pattern(data / "near.h5", "deep-%b.h5", "/x")
    with h5py.File(data / "main.h5", "w") as file:
        layout = h5py.VirtualLayout((4, 5), "<i8")
        layout[:] = h5py.VirtualSource("near.h5", "v", (4, 5))
        file.create_virtual_dataset("x", layout)
    with opened(data / "main.h5", allow_external=(str(data),)) as source:
        for number in range(2):
            with h5py.File(data / f"deep-{number}.h5", "w") as file:
                file["x"] = np.full((1, 5), number)
            assert len(array(source, "x").dataset.sources) == 2 + number
        (data / "deep-2.h5").symlink_to(outside / "secret.h5")
        with pytest.raises(AccessDenied, match="secret"):
            array(source, "x")


def test_patterns_of_dataset_names_need_no_permission_in_one_file(tmp_path: Path) -> None:
    """In one file no permission is needed."""
    write_pattern(tmp_path / "x.h5", ".", "/parts/row%b")
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        for number in range(3):
            file[f"parts/row{number}"] = np.arange(5)[np.newaxis] + 10 * number
    with opened(tmp_path / "x.h5") as source, h5py.File(tmp_path / "x.h5") as file:
        np.testing.assert_array_equal(values(array(source, "v")), file["v"][()])


def test_p4_a_pattern_of_dataset_names_needs_permission_where_it_leads_out(tmp_path: Path, outside: Path) -> None:
    write_pattern(tmp_path / "x.h5", ".", "/parts/row%b")
    with h5py.File(outside / "deep.h5", "w") as file:
        file["row"] = np.arange(5)[np.newaxis]
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        file["parts/row0"] = np.arange(5)[np.newaxis]
        file["parts/row1"] = h5py.ExternalLink(str(outside / "deep.h5"), "/row")
    with opened(tmp_path / "x.h5") as source, pytest.raises(AccessDenied, match="deep"):
        array(source, "v")


def test_virtual_sources_behind_soft_links_are_found(tmp_path: Path) -> None:
    """NeXus files name the sources of virtual datasets by soft links."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["real"], file["entry/alias"] = np.arange(5), h5py.SoftLink("/real")
        layout = h5py.VirtualLayout((5,), "<i8")
        layout[:] = h5py.VirtualSource(".", "/entry/alias", (5,))
        file.create_virtual_dataset("v", layout)
    with opened(tmp_path / "x.h5") as source:
        assert values(array(source, "v")).tolist() == [0, 1, 2, 3, 4]


def test_the_master_file_of_a_detector_is_read_with_its_data_files(tmp_path: Path) -> None:
    """A master file over data files in its own folder (as EIGER's, by h5py): virtual dataset, raw file, external links."""
    for number in range(3):
        with h5py.File(tmp_path / f"run_data_{number}.h5", "w") as file:
            file.create_dataset("entry/data", data=np.full((2, 4, 4), number, "<u2"), chunks=(1, 4, 4), compression="gzip")
    (tmp_path / "flat.raw").write_bytes(np.arange(16, dtype="<f4").tobytes())
    with h5py.File(tmp_path / "run_master.h5", "w") as file:
        layout = h5py.VirtualLayout((6, 4, 4), "<u2")
        for number in range(3):
            name = f"run_data_{number}.h5"
            layout[2 * number : 2 * number + 2] = h5py.VirtualSource(name, "entry/data", (2, 4, 4))
            file[f"entry/data_{number}"] = h5py.ExternalLink(name, "entry/data")
        file.create_virtual_dataset("entry/all", layout)
        file.create_dataset("entry/flat", (4, 4), "<f4", external=[("flat.raw", 0, 64)])
        for name in ("all", "flat"):
            file[f"entry/{name}"].attrs["detector"] = name
    master = tmp_path / "run_master.h5"
    with opened(master, allow_external=(str(tmp_path),)) as source, h5py.File(master) as file:
        assert values(array(source, "entry/flat")).tolist() == np.arange(16.0).reshape(4, 4).tolist()
        for name in ("all", "flat"):
            assert array(source, f"entry/{name}").metadata.attributes == {"detector": name}
        for name in ("all", "data_0", "data_1", "data_2"):
            np.testing.assert_array_equal(values(array(source, f"entry/{name}")), file[f"entry/{name}"][()], name)


@pytest.mark.parametrize("link", ["folder", "file"])
def test_p9_a_link_to_the_file_that_is_switched_leads_to_the_new_one(tmp_path: Path, link: str) -> None:
    """Releases are switched like this; what external links name is beside the file itself, not beside the link."""
    for number in (1, 2):
        (tmp_path / f"v{number}").mkdir()
        with h5py.File(tmp_path / f"v{number}/x.h5", "w") as file:
            file["a"] = np.full(5, number)
            file["other"] = h5py.ExternalLink("y.h5", "/b")
        with h5py.File(tmp_path / f"v{number}/y.h5", "w") as file:
            file["b"] = np.full(2, 10 * number)
    (current, path) = (
        (tmp_path / "current", tmp_path / "current/x.h5") if link == "folder" else (tmp_path / "current.h5",) * 2
    )
    target = "v{}" if link == "folder" else "v{}/x.h5"
    current.symlink_to(target.format(1))
    with opened(path, allow_external=(str(tmp_path),)) as source:
        for number in (1, 2):
            (tmp_path / "new").symlink_to(target.format(number))
            (tmp_path / "new").rename(current)
            np.testing.assert_array_equal(values(array(source, "a")), np.full(5, number))
            np.testing.assert_array_equal(values(array(source, "other")), np.full(2, 10 * number))


def move_together(tmp_path: Path, write: Callable[[Path], None]) -> Path:
    """The main file of a folder `move_together`. Its files were written in a folder `old` that no longer exists."""
    old = tmp_path / "old"
    old.mkdir()
    with h5py.File(old / "data-0.h5", "w") as file:
        file["x"] = np.arange(5)[np.newaxis]
    write(old)
    old.rename(tmp_path / "moved")
    return tmp_path / "moved" / "main.h5"


def write_absolute(folder: Path) -> None:
    """Files that name their source by an absolute path, as rhdf5 always does: a virtual dataset and a link."""
    with h5py.File(folder / "main.h5", "w") as file:
        layout = h5py.VirtualLayout((1, 5), "<i8")
        layout[:] = h5py.VirtualSource(str(folder / "data-0.h5"), "x", (1, 5))
        file.create_virtual_dataset("v", layout, fillvalue=-1)
        file["link"] = h5py.ExternalLink(str(folder / "data-0.h5"), "x")


def write_absolute_pattern(folder: Path) -> None:
    write_pattern(folder / "main.h5", str(folder / "data-%b.h5"), "/x")


def write_absolute_further(folder: Path) -> None:
    """A source that is itself a link by an absolute path."""
    with h5py.File(folder / "near.h5", "w") as file:
        file["x"] = h5py.ExternalLink(str(folder / "data-0.h5"), "x")
    with h5py.File(folder / "main.h5", "w") as file:
        layout = h5py.VirtualLayout((1, 5), "<i8")
        layout[:] = h5py.VirtualSource("near.h5", "x", (1, 5))
        file.create_virtual_dataset("v", layout, fillvalue=-1)


@pytest.mark.parametrize("write", [write_absolute, write_absolute_pattern, write_absolute_further])
def test_p12_p9_files_that_were_moved_together_are_found_beside_each_other(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    """HDF5 finds them, too. They were refused or, if the old folder was allowed as advised, read as fill values."""
    path = move_together(tmp_path, write)
    refused: list[tuple[str, ...]] = [(), (str(tmp_path / "old"),)]
    for allowed in refused:
        with opened(path, allow_external=allowed) as source:
            for name in {"v", "link"} & {child.name for child in source.root.children()}:
                with pytest.raises(AccessDenied, match=r"--allow-external \S*moved"):
                    node(source, name)
    for allowed in [(str(path.parent),), (str(path.parent), str(tmp_path / "old"))]:
        with opened(path, allow_external=allowed) as source:
            for name in sorted({"v", "link"} & {child.name for child in source.root.children()}):
                found = array(source, name)
                assert values(found).tolist() == [list(range(5))]
                with h5py.File(tmp_path / "new.h5", "w") as file:
                    file["x"] = np.arange(5)[np.newaxis] + 10
                (path.parent / "data-0.h5").rename(tmp_path / "before.h5")
                (tmp_path / "new.h5").rename(path.parent / "data-0.h5")
                assert values(array(source, name)).tolist() == [list(range(10, 15))]
                if name == "v":
                    assert not found.current()
                (tmp_path / "before.h5").rename(path.parent / "data-0.h5")


def test_p9_a_file_that_comes_to_be_at_an_absolute_path_is_noticed(tmp_path: Path) -> None:
    path = move_together(tmp_path, write_absolute)
    with opened(path, allow_external=(str(tmp_path),)) as source:
        found = array(source, "v")
        assert values(found).tolist() == [list(range(5))]
        (tmp_path / "old").mkdir()
        with h5py.File(tmp_path / "old" / "data-0.h5", "w") as file:
            file["x"] = np.arange(5)[np.newaxis] + 20
        assert not found.current()
        for name in ("v", "link"):
            assert values(array(source, name)).tolist() == [list(range(20, 25))]


def write_relative(folder: Path) -> Path:
    """A main file with a virtual dataset, a raw file and a link to files beside it."""
    with h5py.File(folder / "main.h5", "w") as file:
        layout = h5py.VirtualLayout((5,), "<i8")
        layout[:] = h5py.VirtualSource("data.h5", "x", (5,))
        file.create_virtual_dataset("v", layout, fillvalue=-1)
        file.create_dataset("raw", (5,), "<i8", external=[("data.raw", 0, 40)])
        file["link"] = h5py.ExternalLink("data.h5", "x")
    return folder / "main.h5"


def write_data(path: Path, first: int) -> None:
    with h5py.File(path.with_suffix(".h5"), "w") as file:
        file["x"] = np.arange(5) + first
    path.with_suffix(".raw").write_bytes((np.arange(5) + first).astype("<i8").tobytes())


def test_p9_a_link_to_a_source_that_is_switched_is_noticed(tmp_path: Path) -> None:
    """Old values were shown for ever, or new ones as those of the old version."""
    main = write_relative(tmp_path)
    for number in range(2):
        write_data(tmp_path / f"version{number}", 10 * number)
    for ending in ("h5", "raw"):
        (tmp_path / f"data.{ending}").symlink_to(f"version0.{ending}")
    with opened(main, allow_external=(str(tmp_path),)) as source:
        before = {name: array(source, name) for name in ("v", "raw")}
        for found in before.values():
            assert values(found).tolist() == list(range(5))
        for ending in ("h5", "raw"):
            (tmp_path / "new").symlink_to(f"version1.{ending}")
            (tmp_path / "new").rename(tmp_path / f"data.{ending}")
        for name, found in before.items():
            assert not found.current()
            with pytest.raises(Stale):
                values(found)
            assert array(source, name).version != found.version
            assert values(array(source, name)).tolist() == list(range(10, 15))


@pytest.mark.parametrize("data", ["links", "objects"])
def test_p12_other_files_lie_beside_the_link_to_a_file_or_beside_the_file(tmp_path: Path, data: str) -> None:
    """With git-annex all names are links, and HDF5 looks beside the link first. The data was read as fill values."""
    objects, links = tmp_path / "objects", tmp_path / "links"
    for folder in (objects, links):
        folder.mkdir()
    write_data(tmp_path / data / "data", 1)
    write_relative(objects).rename(objects / "SHA256E-1.h5")
    (links / "main.h5").symlink_to("../objects/SHA256E-1.h5")
    with opened(links / "main.h5", allow_external=(str(tmp_path),)) as source, h5py.File(links / "main.h5") as file:
        for name in ("v", "link"):
            np.testing.assert_array_equal(values(array(source, name)), file[name][()])
        for name in ("v", "link", "raw"):
            assert values(array(source, name)).tolist() == [1, 2, 3, 4, 5], name


def test_p12_files_that_links_lead_to_look_beside_their_own_links(tmp_path: Path) -> None:
    """With git-annex (all names are links) a virtual dataset behind a link to another file was read as fill values."""
    objects, links = tmp_path / "objects", tmp_path / "links"
    for folder in (objects, links):
        folder.mkdir()
    write_data(objects / "data", 1)
    write_relative(objects)
    with h5py.File(objects / "top.h5", "w") as file:
        for name in ("v", "link", "raw"):
            file[name] = h5py.ExternalLink("main.h5", name)
    for number, name in enumerate(("top.h5", "main.h5", "data.h5", "data.raw")):
        key = objects / f"SHA256E-{number}{Path(name).suffix}"
        (objects / name).rename(key)
        (links / name).symlink_to(f"../objects/{key.name}")
    with opened(links / "top.h5", allow_external=(str(tmp_path),)) as source, h5py.File(links / "top.h5") as file:
        for name in ("v", "link"):
            np.testing.assert_array_equal(values(array(source, name)), file[name][()])
        for name in ("v", "link", "raw"):
            assert values(array(source, name)).tolist() == [1, 2, 3, 4, 5], name


def test_p9_a_link_to_a_linked_file_that_is_switched_is_noticed(tmp_path: Path) -> None:
    """Old values were shown for ever. A link that is switched to something that is not allowed is not read."""
    data, private = tmp_path / "data", tmp_path / "private"
    for folder in (data, private):
        folder.mkdir()
    main = write_relative(data)
    for number, folder in enumerate((data, data, private)):
        write_data(folder / f"version{number}", 10 * number)
    (data / "data.h5").symlink_to("version0.h5")
    with opened(main, allow_external=(str(data),)) as source:
        first = array(source, "link")
        assert values(first).tolist() == list(range(5))
        (data / "new").symlink_to("version1.h5")
        (data / "new").rename(data / "data.h5")
        assert not first.current()
        with pytest.raises(Stale):
            values(first)
        second = array(source, "link")
        assert second.version != first.version
        assert values(second).tolist() == list(range(10, 15))
        (data / "new").symlink_to(private / "version2.h5")
        (data / "new").rename(data / "data.h5")
        with pytest.raises(AccessDenied, match="private"):
            second.current()
        with pytest.raises(AccessDenied, match="private"):
            values(second)
        with pytest.raises(AccessDenied, match="private"):
            array(source, "link")
