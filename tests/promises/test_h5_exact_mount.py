"""The virtual twin of an HDF5 file is the file: HDF5's own tools find no difference, for every writer."""

from __future__ import annotations

import base64
import ctypes
import io
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, cast

import h5py
import netCDF4
import new_references
import numpy as np
import pytest
import zarr
from conftest import MountFunction
from exact_files import WRITERS, h5py_links, h5py_rare, h5py_types, netcdf
from h5py import h5d, h5p, h5s, h5t

from fsbridge.children import client
from fsbridge.children.elements import ID, MEMORY, function
from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.formats.hdf5 import pages
from fsbridge.formats.open import open_source
from fsbridge.layouts import root_directory
from fsbridge.layouts.files.h5.specification import Specification
from fsbridge.layouts.files.h5.twin import Shown, written
from fsbridge.layouts.files.h5.writing import Batch, SkeletonWriter, WriterDied
from fsbridge.tree import Directory, File


def dump(path: Path) -> str:
    """All that h5dump says, but for the line breaks, which depend on the length of addresses, and the file's own path.

    HDF5 1.14's names the file in each reference.
    """
    done = subprocess.run(["h5dump", str(path)], capture_output=True, check=True)
    text = re.sub(rb"\(\d+(,\d+)*\):", b"", done.stdout.partition(b"\n")[2]).replace(os.fsencode(path), b"")
    return b" ".join(re.sub(rb"(DATASET|GROUP|DATATYPE|OBJECT) \d+ ", rb"\1 ", text).split()).decode("utf-8", "replace")


def differences(one: Path, other: Path) -> str:
    """Return what h5diff finds, also about objects that only one of the files has."""
    done = subprocess.run(["h5diff", "-c", str(one), str(other)], capture_output=True, check=False)
    return f"{done.returncode}: " + (done.stdout + done.stderr).decode("utf-8", "replace")


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_p12_hdf5_s_own_tools_find_no_difference(write: object, tmp_path: Path, mount: MountFunction) -> None:
    source = tmp_path / "store.h5"
    write(source)  # type: ignore[operator]
    tree = mount(source, "--layout", "files")
    twin = tree / "store.h5"
    shutil.copy(source, tmp_path / "copy.h5")
    assert differences(source, twin) == differences(source, tmp_path / "copy.h5")
    assert dump(twin) == dump(source)
    assert os.stat(twin).st_size == len(twin.read_bytes())


def whole_file(source: Path) -> bytes:
    """The bytes of `store.h5` in a fresh mount of the source."""
    config = Config(str(source), "/mnt", layout="files")
    opened = open_source(config.source, config)
    try:
        handle = cast(File, root_directory(opened, config, ChunkCache(1 << 24)).lookup(b"store.h5")).open()
        try:
            return bytes(handle.read(0, handle.size))
        finally:
            handle.close()
    finally:
        opened.close()


def test_p9_a_virtual_file_is_the_same_whenever_it_is_made(tmp_path: Path) -> None:
    """HDF5 writes the second at which an object is made into it, unless it is told not to."""
    sources = [tmp_path / name / "store.h5" for name in (*WRITERS, "large")]
    for source, write in zip(sources, (*WRITERS.values(), large_headers), strict=True):
        source.parent.mkdir()
        write(source)  # type: ignore[operator]
    before = [whole_file(source) for source in sources]
    assert h5py.File(io.BytesIO(before[-1]))["type"].dtype == np.dtype("f4")
    time.sleep(1.1)
    for source, found in zip(sources, before, strict=True):
        assert whole_file(source) == found, source


def large_headers(path: Path) -> None:
    """Objects with attributes that take headers of the later kind, which hold four times each."""
    with h5py.File(path, "w", libver="v110") as file:
        file["group/deep/array"], file["type"] = np.arange(3), np.dtype("f4")
        for owner in (file, file["group"], file["group/deep"], file["group/deep/array"], file["type"]):
            owner.attrs["large"] = np.zeros(10000)


def test_p12_types_spaces_and_orders_are_the_file_s_own(tmp_path: Path, mount: MountFunction) -> None:
    """Check what h5dump does not print and h5diff does not compare."""
    h5py_types(tmp_path / "types.h5")
    tree = mount(tmp_path / "types.h5", "--layout", "files")
    with h5py.File(tree / "types.h5") as found, h5py.File(tmp_path / "types.h5") as expected:
        assert list(found) == list(expected)
        for name, dataset in expected.items():
            one, other = found[name].id, dataset.id
            assert one.get_type().equal(other.get_type()), name
            kinds = [each.get_space().get_simple_extent_type() for each in (one, other)]
            assert kinds[0] == kinds[1], name
            assert one.get_space().get_simple_extent_dims(True) == other.get_space().get_simple_extent_dims(True), name
            assert one.get_create_plist().fill_value_defined() == other.get_create_plist().fill_value_defined(), name
            np.testing.assert_equal(np.asarray(found[name].fillvalue), np.asarray(dataset.fillvalue), name)
        attributes = [h5t.TypeID.equal(found["carrier"].attrs.get_id(name).get_type(), expected["carrier"].attrs.get_id(name)
                      .get_type()) for name in expected["carrier"].attrs]  # fmt: skip
        assert all(attributes)
        assert len(attributes) > 50


def test_p12_links_types_and_references_lead_where_they_did(tmp_path: Path, mount: MountFunction) -> None:
    h5py_links(tmp_path / "links.h5")
    tree = mount(tmp_path / "links.h5", "--layout", "files")
    with h5py.File(tree / "links.h5") as file:
        assert list(file["ordered"]) == ["z", "b", "m", "a", "relative", "parent"]
        assert list(file["ordered/z"].attrs) == ["z", "y", "x", "w", "v", "u", "t", "s", "r"]
        assert file["hard"] == file["ordered"]
        assert file["ordered/parent"] == file["/"]
        assert file["again"] == file["ordered/z"]
        assert [file.get(name, getlink=True).path for name in ("soft", "nowhere")] == ["/ordered/z", "/not/there"]
        assert file.get("ordered/relative", getlink=True).path == "./z"
        link = file.get("outside", getlink=True)
        assert (link.filename, link.path) == ("other.h5", "/some/where")
        assert file["aaa_uses_type"].id.get_type().committed()
        assert file[file["references"][1]].name in ("/again", "/ordered/z")
        np.testing.assert_array_equal(file["image"][file["regions"][0]], np.arange(24).reshape(4, 6)[1:3, ::2])
        assert file["image"].dims[0][0] == file["y"]
        assert file["image"].dims[1].keys() == ["axis x"]


def test_p12_comments_and_the_bits_of_numbers_are_the_file_s_own(tmp_path: Path, mount: MountFunction) -> None:
    """Integers that begin above bit 0 keep that place: their elements are shown from bit 0 on."""
    h5py_rare(tmp_path / "rare.h5")
    tree = mount(tmp_path / "rare.h5", "--layout", "files")
    with h5py.File(tree / "rare.h5") as found, h5py.File(tmp_path / "rare.h5") as expected:
        assert list(found) == list(expected)
        for name in (b"large", b"compact", b"/"):
            assert found.id.get_comment(name) == expected.id.get_comment(name) == f"of {name.decode()}: ä".encode()
        for name, dataset in expected.items():
            one, other = found[name].id.get_type(), dataset.id.get_type()
            if other.get_class() == h5t.INTEGER:
                assert (one.get_size(), one.get_precision()) == (other.get_size(), other.get_precision()), name
                assert one.get_offset() == 0, name
            elif name.startswith("halves"):
                np.testing.assert_array_equal(found[name][()], dataset[()])
                assert found[name][0].tolist()[0] == -3
            else:
                assert one.equal(other), name
        np.testing.assert_array_equal(found["large"].attrs["large"], np.arange(30000.0))


def test_p8_integers_of_few_bits_inside_other_types_hide_no_file(tmp_path: Path, mount: MountFunction) -> None:
    """HDF5 2.0 takes types that begin with fewer bits than they leave unused for damage."""
    with h5py.File(tmp_path / "few.h5", "w") as file:
        few = h5t.STD_I32LE.copy()
        few.set_precision(3)
        few.set_offset(20)
        pair = h5t.create(h5t.COMPOUND, 8)
        pair.insert(b"few", 0, few)
        pair.insert(b"two", 4, h5t.array_create(h5t.STD_I16BE, (2,)))
        dataset = h5d.create(file.id, b"few", pair, h5s.create_simple((2,)))
        numbers = np.array([(-3, (1, 2)), (2, (3, 4))], [("few", "<i4"), ("two", ">i2", 2)])
        dataset.write(h5s.ALL, h5s.ALL, numbers, h5t.py_create(numbers.dtype))
    tree = mount(tmp_path / "few.h5", "--layout", "files")
    with h5py.File(tree / "few.h5") as found:
        np.testing.assert_array_equal(found["few"][()], numbers)


def test_p12_the_file_of_a_group_and_of_an_array(tmp_path: Path, mount: MountFunction) -> None:
    """References to objects outside of them are null; all else is as it was."""
    h5py_links(tmp_path / "links.h5")
    h5py_types(tmp_path / "types.h5")
    tree = mount(tmp_path, "--layout", "files")
    with h5py.File(tree / "links.h5/ordered.h5") as file:
        assert list(file) == ["z", "b", "m", "a", "relative", "parent"]
        assert list(file["z"].attrs) == ["z", "y", "x", "w", "v", "u", "t", "s", "r"]
    with h5py.File(tree / "links.h5/image.h5") as file:
        np.testing.assert_array_equal(file["image"][()], np.arange(24).reshape(4, 6))
        assert file[file["image"].attrs["region"]].name == "/image"
        assert file["image"].dims[1].label == "x axis"
    with h5py.File(tree / "types.h5.h5") as file, h5py.File(tmp_path / "types.h5") as expected:
        assert file["nested"].dtype == expected["nested"].dtype
    for name in (
        "nested",
        "text_2_1",
        "matrix",
        "growing",
        "enum",
        "null_f4",
        "ragged",
        "rows",
        "carrier",
        "not_yet",
        "bits",
    ):
        path = tree / f"types.h5/{name}.h5"
        size = os.stat(path).st_size
        assert len(path.read_bytes()) == size
        done = subprocess.run(
            ["h5diff", str(tmp_path / "types.h5"), str(path), f"/{name}"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, "found" in done.stdout) == (0, False), (name, done.stdout, done.stderr)
    with h5py.File(tree / "types.h5/matrix[1,:,1:3].h5") as file:
        np.testing.assert_array_equal(file["matrix"][()], np.arange(24).reshape(2, 3, 4)[1, :, 1:3])


def test_p12_netcdf_reads_the_twin_as_it_reads_the_file(tmp_path: Path, mount: MountFunction) -> None:
    netcdf(tmp_path / "store.nc")
    tree = mount(tmp_path / "store.nc", "--layout", "files")
    shown, expected = (
        subprocess.run(["ncdump", str(path)], capture_output=True, text=True, check=True).stdout.partition("{")[2]
        for path in (tree / "store.h5", tmp_path / "store.nc")
    )
    assert shown == expected
    with netCDF4.Dataset(tree / "store.h5") as dataset:
        assert dataset.dimensions["time"].isunlimited()
        assert len(dataset.dimensions["bare"]) == 7


def facts(kind: str = "i4", extent: int = 2) -> dict[str, object]:
    """A description of a dataset as HDF5 gives it."""
    tid, space = h5t.py_create(np.dtype(kind)), h5s.create_simple((extent,))
    attribute = {"name": "n", "type": encoded(h5t.STD_I16BE.encode()), "committed": None,
                 "space": encoded(h5s.create(h5s.SCALAR).encode()), "data": encoded(b"\0\5")}  # fmt: skip
    return {"address": 1, "type": encoded(tid.encode()), "committed": None, "space": encoded(space.encode()), "chunks": None,
            "stored": True, "items": False, "order": 0, "attributes": [attribute]}  # fmt: skip


def encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def test_p8_what_hdf5_says_and_cannot_be_written_costs_its_own_types_alone() -> None:
    """A type or a size that makes no sense: the description that other formats have."""
    writer = SkeletonWriter()
    specification = Specification(writer.send)
    specification.add("group", "/", attributes={})
    for name, typed in {"good": facts(), "bad": {**facts(), "type": encoded(b"no type")}, "other": facts("i8", 5)}.items():
        own = {"shape": [2], "dtype": "<i4", "attributes": {"n": 5}, "bytes": 8, "labels": []}
        specification.add("dataset", f"/{name}", **own, **specification.typed("file", typed))
    exact, plain = np.dtype(">i4"), np.dtype("<i4")
    arrays = {number: Shown(lambda: None, 8, (0,), plain, exact) for number in (1, 2, 3)}  # type: ignore[arg-type,return-value]
    try:
        twin, failed = written(writer, specification, specification.end([], []), arrays)
    finally:
        writer.close()
    assert not failed
    content = bytearray(twin.size)
    twin.overlay(content, 0)
    with h5py.File(io.BytesIO(content)) as file:
        assert {dataset.shape for dataset in file.values()} == {(2,)}
        assert {dataset.attrs["n"].dtype for dataset in file.values()} == {np.dtype("i2")}
        shown = {file[name].id.get_offset(): name for name in file}
    orders = {shown[part.start]: part.elements.dtype for part in twin.parts}
    assert orders == {"good": exact, "bad": plain, "other": plain}  # the byte order in which the elements are written


def test_p8_the_writing_process_that_ends_over_types_is_asked_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin of an array, and that of a group."""
    with h5py.File(tmp_path / "store.h5", "w") as file:
        file.create_dataset("g/a", data=np.arange(3, dtype=">i2")).attrs["n"] = np.int16(5)
    real, typed = SkeletonWriter._ask, []

    def dies_once(self: SkeletonWriter, batch: Batch) -> None:
        typed.append(any("typed" in item for item in batch.objects))
        if typed[-1]:
            raise WriterDied("it ended")
        real(self, batch)

    monkeypatch.setattr(SkeletonWriter, "_ask", dies_once)
    config = Config(str(tmp_path / "store.h5"), "/mnt", layout="files")
    source = open_source(config.source, config)
    try:
        root = root_directory(source, config, ChunkCache(1 << 20))
        for name, path in ((b"store.h5", "g/a"), (b"g/a.h5", "a")):
            folder = root
            for part in name.split(b"/")[:-1]:
                folder = cast(Directory, folder.lookup(part))
            handle = cast(File, folder.lookup(name.split(b"/")[-1])).open()
            with h5py.File(io.BytesIO(bytes(handle.read(0, handle.size)))) as found:
                assert found[path].attrs["n"].dtype == np.dtype("i8")
                assert found[path][()].tolist() == [0, 1, 2]
            handle.close()
    finally:
        source.close()
    assert typed == [True, False] * 2


def test_p8_a_dataset_that_ends_hdf5_is_left_out_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its group's other members are in the file of the group, described as those of other formats are."""
    with h5py.File(tmp_path / "store.h5", "w") as file:
        file["group/bad"], file["group/good"], file["other"] = np.arange(2), np.arange(3), np.arange(4)
    exchange = client.ChildProcess._exchange

    def die(child: client.ChildProcess, question: dict[str, Any], *rest: Any) -> Any:
        of_group = question.get("op") in ("group", "exact") and question.get("path") == ["group"]
        if of_group or question.get("path") == ["group", "bad"]:
            os.kill(child.pid, signal.SIGSEGV)
        return exchange(child, question, *rest)

    monkeypatch.setattr(client.ChildProcess, "_exchange", die)
    monkeypatch.setattr(pages, "described", lambda *_: None)
    config = Config(str(tmp_path / "store.h5"), "/mnt", layout="files")
    source = open_source(config.source, config)
    try:
        handle = cast(File, root_directory(source, config, ChunkCache(1 << 20)).lookup(b"store.h5")).open()
        with h5py.File(io.BytesIO(bytes(handle.read(0, handle.size)))) as found:
            assert (sorted(found), list(found["group"])) == (["group", "other"], ["good"])
            assert found["group"].attrs["fsbridge_left_out"][0].startswith("bad: ")
            assert (found["group/good"][()].tolist(), found["other"][()].tolist()) == ([0, 1, 2], [0, 1, 2, 3])
        handle.close()
    finally:
        source.close()


def test_p8_members_behind_a_page_that_ends_hdf5_are_described_as_those_of_other_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members on the pages before it are as the file has them, and none is there twice or not at all."""
    with h5py.File(tmp_path / "store.h5", "w") as file:
        for number in range(450):
            file.create_dataset(f"a{number:03}", data=np.arange(3) + number).attrs["n"] = np.int16(5)
    exchange = client.ChildProcess._exchange

    def die(child: client.ChildProcess, question: dict[str, Any], *rest: Any) -> Any:
        if question.get("op") == "exact" and question["start"] == 200:
            os.kill(child.pid, signal.SIGSEGV)
        return exchange(child, question, *rest)

    monkeypatch.setattr(client.ChildProcess, "_exchange", die)
    config = Config(str(tmp_path / "store.h5"), "/mnt", layout="files")
    source = open_source(config.source, config)
    try:
        handle = cast(File, root_directory(source, config, ChunkCache(1 << 20)).lookup(b"store.h5")).open()
        with h5py.File(io.BytesIO(bytes(handle.read(0, handle.size)))) as found:
            assert sorted(found) == [f"a{number:03}" for number in range(450)]
            assert [found[f"a{number:03}"].attrs["n"].dtype.char for number in (0, 199, 200, 449)] == ["h", "h", "l", "l"]
            assert all(found[f"a{number:03}"][()].tolist() == [number, number + 1, number + 2] for number in (0, 200, 449))
        handle.close()
    finally:
        source.close()


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_p12_a_group_of_many_pages_is_the_file_s_own(libver: str, tmp_path: Path, mount: MountFunction) -> None:
    """In the order of creation, which is not that of the listing; with groups and links between the pages."""
    with h5py.File(tmp_path / "store.h5", "w", libver=libver, track_order=libver == "latest") as file:
        for number in reversed(range(450)):
            file.create_dataset(f"a{number}", data=np.arange(3) + number)
            if number % 100 == 0:
                file.create_dataset(f"g{number}/below", data=number)
                file[f"link{number}"] = h5py.SoftLink(f"/g{number}/below")
    tree = mount(tmp_path / "store.h5", "--layout", "files")
    assert differences(tmp_path / "store.h5", tree / "store.h5").startswith("0: ")
    with h5py.File(tree / "store.h5") as found, h5py.File(tmp_path / "store.h5") as expected:
        assert list(found) == list(expected)


def test_p3_what_hdf5_cannot_hold_again_is_named(tmp_path: Path, mount: MountFunction) -> None:
    """A user-defined link, and a dataset that cannot be read, are left out alone."""
    with h5py.File(tmp_path / "store.h5", "w") as file:
        file["good"] = np.arange(3)
        file.create_dataset("damaged", data=np.arange(1000), chunks=(1000,), compression="gzip")
        file.create_dataset("text", data=["x"] * 5, dtype=h5py.string_dtype(), chunks=(5,), compression="gzip")
        place = [file[name].id.get_chunk_info(0).byte_offset for name in ("damaged", "text")]
    with open(tmp_path / "store.h5", "r+b") as raw:
        for offset in place:
            raw.seek(offset)
            raw.write(b"no zlib")
    tree = mount(tmp_path / "store.h5", "--layout", "files")
    tree.allow("text|damaged")
    with h5py.File(tree / "store.h5") as file:
        assert sorted(file) == ["damaged", "good"]
        assert file.attrs["fsbridge_left_out"][0].startswith("text: ")
        np.testing.assert_array_equal(file["good"][()], [0, 1, 2])
        with pytest.raises(OSError, match=r"Input/output error"):
            file["damaged"][()]


def test_p3_array_types_with_a_varied_fill_value_are_raw_bytes_and_their_own_in_the_twin(
    tmp_path: Path, mount: MountFunction
) -> None:
    """No other format can say such a fill value: they were errors, and left out of the twin."""
    types = {
        "big": h5t.array_create(h5t.STD_I16BE, (2,)),
        "compound": h5t.array_create(h5t.py_create(np.dtype([("x", "<i4"), ("y", "<f4")]), logical=True), (2,)),
        "nested": h5t.array_create(h5t.array_create(h5t.STD_I32LE, (2,)), (3,)),
    }
    set_fill = function(h5p, "H5Pset_fill_value", ID, ID, MEMORY)
    path = tmp_path / "store.h5"
    with h5py.File(path, "w") as file:
        for name, kind in types.items():
            size = kind.get_size()
            for chunked in (True, False):
                made = h5p.create(h5p.DATASET_CREATE)
                if chunked:
                    made.set_chunk((4,))
                assert set_fill(made.id, kind.id, ctypes.create_string_buffer(bytes(range(1, size + 1)), size)) >= 0
                full = f"{name}{'' if chunked else ' whole'}".encode()
                found = h5d.create(file.id, full, kind, h5s.create_simple((10,)), made)
                if chunked:
                    found.write_direct_chunk((4,), bytes(range(100, 100 + 4 * size)))
    tree = mount(path, "--layout", "files,zarr3")
    with h5py.File(path) as file, h5py.File(tree / "files/store.h5") as twin:
        assert sorted(twin) == sorted(file)
        for name in file:
            expected = file[name][...].tobytes()
            assert h5t.TypeID.equal(file[name].id.get_type(), twin[name].id.get_type())
            assert twin[name][...].tobytes() == expected
            array = np.load(tree / f"files/{name}.npy")
            assert array.dtype.kind == "V"
            assert array.tobytes() == expected
            assert zarr.open_array(tree / "zarr3" / name, mode="r")[...].tobytes() == expected


def test_p3_external_links_that_lead_nowhere_are_links_in_the_twin(tmp_path: Path, mount: MountFunction) -> None:
    """One to a file that is no HDF5 file was left out."""
    (tmp_path / "bad.h5").write_bytes(b"no HDF5 file")
    with h5py.File(tmp_path / "store.h5", "w") as file:
        file["own"] = np.arange(4)
        for name in ("gone", "bad"):
            file[name] = h5py.ExternalLink(f"{name}.h5", "/x")
    tree = mount(tmp_path / "store.h5", "--layout", "files", "--allow-external", tmp_path)
    with h5py.File(tree / "store.h5") as twin:
        assert {name: twin.get(name, getlink=True).filename for name in ("gone", "bad")} == {
            "gone": "gone.h5",
            "bad": "bad.h5",
        }
        assert sorted(twin) == ["bad", "gone", "own"]


def test_p12_new_references_are_in_the_twin(tmp_path: Path, mount: MountFunction) -> None:
    """References to objects, regions and attributes, in a dataset and an attribute.

    In the twin of one array they lead nowhere.
    """
    path = tmp_path / "store.h5"
    new_references.write(path)
    tree = mount(path, "--layout", "files")
    for file in (path, tree / "store.h5"):
        with h5py.File(file) as opened_file:
            assert new_references.read(opened_file, "refs") == new_references.WRITTEN
            assert new_references.read(opened_file) == new_references.WRITTEN
            assert opened_file["group/target"][()].tolist() == [[0, 1, 2], [3, 4, 5]]
    with h5py.File(tree / "refs.h5") as alone:
        assert new_references.read(alone, "refs") == [None] * 4


def test_p3_a_new_reference_out_of_the_file_is_named_in_the_twin_that_lacks_it(tmp_path: Path, mount: MountFunction) -> None:
    """It is named in the attribute of its group, and in the log. Everything else is there."""
    new_references.write(tmp_path / "store.h5", tmp_path / "other.h5")
    tree = mount(tmp_path / "store.h5", "--layout", "files")
    tree.allow("away is left out of the virtual HDF5 file")
    with h5py.File(tree / "store.h5") as file:
        assert sorted(file) == ["group", "refs"]
        assert new_references.read(file, "refs") == new_references.WRITTEN
        assert "a reference that leads out of the file" in file.attrs["fsbridge_left_out"][0]
    assert tree.told("away is left out")
