"""What `fsbridge verify` finds of odd files, links and archives. Not here: damaged documents and chunks."""

from __future__ import annotations

import json
import os
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import nwb_data
import pytest
from in_process import fsbridge
from source_places import write_each
from verifying import ARRAY2, GROUP2, verify, virtual_file, zarr2_store


@pytest.fixture
def each(tmp_path: Path) -> dict[str, Path]:
    return write_each(tmp_path)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def socket_at(path: Path) -> None:
    os.mknod(path, 0o600 | stat.S_IFSOCK)


def link_to_a_device(path: Path) -> None:
    path.symlink_to(path.with_name(".device"))
    os.mkfifo(path.with_name(".device"))


@pytest.mark.parametrize("make", [fifo, socket_at, link_to_a_device])
@pytest.mark.parametrize("name", ["a/b/c/1/1/0", "a/b/c/1", "a/b/c", "a/b/zarr.json", "a/zarr.json", "zarr.json", "a/more"])
def test_p3_what_is_neither_file_nor_directory_is_not_well(
    name: str, make: Callable[[Path], None], each: dict[str, Path]
) -> None:
    place = each["zarr3"] / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    make(place)
    done = fsbridge("verify", "--format", "zarr3", each["zarr3"])
    assert done.returncode == 1
    assert f"{place}: a FIFO, socket or device" in done.stdout


def test_a_fifo_among_flat_chunks_is_not_well(tmp_path: Path) -> None:
    os.mkfifo(zarr2_store(tmp_path / "s") / "g/a/1")
    code, found, _ = verify(tmp_path / "s")
    assert (code, [(one["kind"], one["path"]) for one in found]) == (1, [("inconsistent", "/g/a")])


def test_p3_links_that_lead_nowhere_are_not_well(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "l.h5", "w") as file:
        file["g/x"] = 1
        file["g/good"], file["g/round"] = h5py.SoftLink("/g/x"), h5py.SoftLink("again")
        file["again"] = h5py.SoftLink("g/good")
    assert verify(tmp_path / "l.h5")[0] == 1  # `g/round` leads to `g/again`, which is not there
    with h5py.File(tmp_path / "l.h5", "a") as file:
        del file["g/round"]
        file["g/round"] = h5py.SoftLink("/again")
    assert verify(tmp_path / "l.h5")[:2] == (0, [])
    with h5py.File(tmp_path / "l.h5", "a") as file:
        file["g/gone"], file["g/self"], file["below"] = map(h5py.SoftLink, ("/nothing", "self", "/g/x/y"))
    code, found, _ = verify(tmp_path / "l.h5")
    assert (code, [(one["kind"], one["path"]) for one in found]) == (
        1,
        [("inconsistent", "/below"), ("inconsistent", "/g/gone"), ("inconsistent", "/g/self")],
    )
    assert all("leads nowhere" in str(one["reason"]) for one in found)
    assert verify(f"{tmp_path}/l.h5//g/x")[0] == 0


def test_links_of_hdmf_that_are_skipped_are_not_well(tmp_path: Path) -> None:
    store = nwb_data.unpack("zarr2", tmp_path / "stores")
    assert verify(store / "session.nwb.zarr")[:2] == (0, [])
    code, found, _ = verify(store / "linking.nwb.zarr")
    assert code == 1
    assert {one["kind"] for one in found} == {"skipped"}
    assert all("is not followed (--allow-external)" in str(one["reason"]) for one in found)
    assert verify(store / "linking.nwb.zarr", "--allow-external", store)[:2] == (0, [])
    document = store / "session.nwb.zarr/.zattrs"
    attributes = json.loads(document.read_text())
    attributes["zarr_link"] = [{"name": "nowhere", "path": "/nothing", "source": "."}, {"name": 3}]
    document.write_text(json.dumps(attributes))
    (store / "session.nwb.zarr/.zmetadata").unlink()
    code, found, _ = verify(store / "session.nwb.zarr")
    assert sorted((one["kind"], one["path"]) for one in found) == [("inconsistent", "/nowhere"), ("skipped", "/")]


def test_p3_a_zip_whose_names_have_backslashes_has_its_arrays(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w.zip", "w") as archive:
        archive.writestr(".zgroup", GROUP2)
        archive.writestr("x|.zarray", ARRAY2)
        archive.writestr("x|0", bytes(8))
    (tmp_path / "w.zip").write_bytes((tmp_path / "w.zip").read_bytes().replace(b"x|", b"x\\"))
    code, found, said = verify(tmp_path / "w.zip")
    assert (code, found) == (0, [])
    assert "1 array, 1 chunk decoded" in said


def test_p3_members_of_a_zip_that_are_hidden_are_not_well(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w.zip", "w") as archive:
        archive.writestr(".zgroup", GROUP2)
        archive.writestr("../x", "")
    assert [one["kind"] for one in verify(tmp_path / "w.zip")[1]] == ["skipped"]


def test_p3_a_name_that_only_the_directory_of_a_zip_has_is_not_well(tmp_path: Path) -> None:
    """The directory has no checksum: a chunk whose name is damaged there would be the fill value."""
    with zipfile.ZipFile(tmp_path / "w.zip", "w") as archive:
        archive.writestr(".zgroup", GROUP2)
        archive.writestr("x/.zarray", ARRAY2)
        archive.writestr("x/0", bytes(8))
    assert verify(tmp_path / "w.zip")[:2] == (0, [])
    data = (tmp_path / "w.zip").read_bytes()
    at = data.rindex(b"x/0")
    (tmp_path / "w.zip").write_bytes(data[:at] + b"x_0" + data[at + 3 :])
    code, found, _ = verify(tmp_path / "w.zip")
    assert (code, [one["kind"] for one in found]) == (1, ["skipped", "damaged"])  # x_0 would be one of the other files
    assert all("its local header names b'x/0'" in str(one["reason"]) for one in found)


@pytest.mark.parametrize("name", ["s0.h5", "s1.h5", "raw"])
def test_p7_a_source_that_is_a_fifo_is_refused_at_once(name: str, tmp_path: Path) -> None:
    """HDF5 would wait for its writer until the deadline, at each question."""
    virtual_file(tmp_path)
    with h5py.File(tmp_path / "v.h5", "a") as file:
        file.create_dataset("x", (4,), "u1", external=[(str(tmp_path / "raw"), 0, 4)])
    (tmp_path / "raw").write_bytes(b"abcd")
    assert verify(tmp_path / "v.h5", "--allow-external", tmp_path)[:2] == (0, [])
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    code, found, _ = verify(tmp_path / "v.h5", "--allow-external", tmp_path)
    assert (code, {one["path"] for one in found}) == (1, {"/x" if name == "raw" else "/v"})
    assert all("which is no regular file" in str(one["reason"]) for one in found)


def test_a_zip_that_other_programs_refuse_is_not_well(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w.zip", "w") as archive:
        archive.writestr(".zgroup", GROUP2)
    data = bytearray((tmp_path / "w.zip").read_bytes())
    data[data.rindex(b"PK\1\2") + 6] = 197
    (tmp_path / "w.zip").write_bytes(data)
    with pytest.raises(NotImplementedError, match=r"version 19\.7"):
        zipfile.ZipFile(tmp_path / "w.zip")
    assert [one["kind"] for one in verify(tmp_path / "w.zip")[1]] == ["skipped"]
