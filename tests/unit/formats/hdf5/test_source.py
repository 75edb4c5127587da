"""Groups, links, names, attributes and dimension scales of HDF5 files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hdf5_model import array, everything, node, opened, values

from fsbridge.errors import CorruptData, NotFound
from fsbridge.formats.hdf5.arrays import HDF5Array
from fsbridge.formats.hdf5.child import data
from fsbridge.model import Link


def list_names(group: Any) -> list[str]:
    return [child.name for child in group.children()]


def test_groups_and_datasets_are_nodes_and_types_are_not(tmp_path: Path) -> None:
    """Groups and datasets are nodes; committed datatypes are ignored."""
    path = tmp_path / "tree.h5"
    with h5py.File(path, "w") as file:
        file.create_group("a/b/c")
        file["a/x"] = [1, 2]
        file["a/named"] = np.dtype("<i4")
        file.create_dataset("a/typed", (2,), file["a/named"])
    with opened(path) as source:
        assert [here for here, _ in everything(source.root)] == ["/a", "/a/b", "/a/b/c", "/a/typed", "/a/x"]
        assert source.format.name == "hdf5"
        for missing in ("a/named", "nothing"):
            with pytest.raises(NotFound):
                node(source, missing)
        assert source.root.mtime_ns == path.stat().st_mtime_ns
        assert array(source, "a/typed").metadata.dtype.name == "int32"


NAMES = ["..", "zarr.json", "c", "a b", "ü日", "%41", "a\x01b", "x" * 300, "bad\udcff\udc80", "0", "-", ".hidden", "a\\b"]


def test_every_name_that_hdf5_allows_is_listed_and_opened(tmp_path: Path) -> None:
    """Every name that HDF5 allows is listed and opened. What HDF5 would take for a path is not found."""
    path = tmp_path / "names.h5"
    with h5py.File(path, "w") as file:
        for number, name in enumerate(NAMES):
            file.create_dataset(name.encode("utf-8", "surrogateescape"), data=number)
        file.create_group("g/h")
    with opened(path) as source:
        assert sorted(list_names(source.root)) == sorted([*NAMES, "g"])
        for number, name in enumerate(NAMES):
            found = source.root.child(name)
            assert isinstance(found, HDF5Array)
            assert values(found)[()] == number
        for name in ("", ".", "g/h", "g\0", "/"):
            with pytest.raises(NotFound):
                source.root.child(name)


def test_all_members_of_a_large_group_are_listed(tmp_path: Path) -> None:
    """Old and new style groups with more members than one answer holds."""
    for libver in ("earliest", "latest"):
        path = tmp_path / f"{libver}.h5"
        with h5py.File(path, "w", libver=libver) as file:
            for number in range(4003):
                file.create_group(f"g{number}")
        with opened(path) as source:
            assert list_names(source.root) == sorted(f"g{number}" for number in range(4003))


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_pages_come_from_links_read_together(libver: str) -> None:
    """A page holds exactly the links from its start, whichever group was asked about before."""

    class Datasets(data.Datasets):
        window_links = 7
        names_members = 3

    with h5py.File("in memory", "w", driver="core", backing_store=False, libver=libver) as file:
        expected = {}
        for group, count in (("a", 30), ("b", 22)):
            expected[group] = sorted(f"{group}{number}" for number in range(count))
            for name in expected[group]:
                file[f"{group}/{name}"] = h5py.SoftLink("/nothing")
        child = Datasets()
        child.file = file.id
        for group, start in [
            ("a", 0),
            ("a", 3),
            ("b", 3),
            *(("b", n) for n in range(24)),
            ("a", 2),
            ("a", 29),
            ("a", 99),
            ("b", 5),
        ]:
            answer, _ = child.names({"path": [group], "start": start})
            listed = [name for name, *_ in answer["members"]]
            assert listed == expected[group][start:][: len(listed)]
            assert bool(listed) == (start < len(expected[group]))
            later = start + len(listed)
            assert answer["next"] == (later if listed and later < len(expected[group]) else None)


def test_soft_links_are_symlinks_and_hard_links_the_object_itself(tmp_path: Path) -> None:
    """Soft links lead to the same place from the group that holds them; hard links are the object itself."""
    path = tmp_path / "links.h5"
    with h5py.File(path, "w") as file:
        file["a/b/x"] = 5
        file["hard"] = file["a/b/x"]
        file["a/cycle"] = file["a"]
        for name, target in {
            "a/b/absolute": "/a/b/x",
            "a/relative": "b/x",
            "a/b/root": "/",
            "dangling": "/no/such",
            "a/b/self": "self",
            "a/dots": "./b//x/.",
            "a/b/up": "../x",
        }.items():
            file[name] = h5py.SoftLink(target)
    with opened(path) as source:
        links = {here: found.target for here, found in everything(source.root) if isinstance(found, Link)}
        assert links == {
            "/a/b/absolute": "../../a/b/x",
            "/a/relative": "b/x",
            "/a/b/root": "../..",
            "/dangling": "no/such",
            "/a/b/self": "self",
            "/a/dots": "b/x",
            "/a/cycle": ".",
        }
        with pytest.raises(NotFound):
            node(source, "a/b/up")
        assert values(array(source, "hard"))[()] == 5
        with pytest.raises(NotFound):
            source.root.file.ask({"op": "node", "path": ["a", "relative", "x"]})


def test_attributes_are_json_and_a_bad_one_affects_no_other(tmp_path: Path) -> None:
    """Attributes are JSON values. What JSON cannot express is described, and a bad attribute affects only itself."""
    path = tmp_path / "attributes.h5"
    struct = np.array([(1, 2.5, b"ab"), (3, np.inf, b"")], [("i", ">i8"), ("f", "<f4"), ("s", "S2")])
    with h5py.File(path, "w") as file:
        target = file.create_dataset("g/x", data=np.arange(6))
        put = file.attrs
        put["int"], put["big"], put["float"], put["nan"] = -3, np.uint64(2**64 - 1), 0.1, [math.nan, math.inf]
        put["text"], put["bytes"], put["fixed"] = "häß", b"old", np.array([b"a", b"bc"])
        put["texts"] = ["x", "ü"]
        put["flag"], put["complex"] = np.array([True, False]), 1 + 2j
        put["empty"], put["none"] = h5py.Empty("f4"), np.zeros((0, 2), "i2")
        put["matrix"] = np.arange(6, dtype=">u2").reshape(2, 3)
        put["struct"] = struct
        put["object"], put["region"] = target.ref, target.regionref[1:3]
        put["opaque"] = np.void(b"\1\2")
        put.create("enum", 1, dtype=h5py.enum_dtype({"A": 0, "B": 1}))
        put.create("array", np.array([[1, 2]]), (1, 2), np.dtype(("<i4", (2,))))
        put.create("lists", _ragged(), dtype=h5py.vlen_dtype(np.dtype("<i4")))
        put["latin"] = np.bytes_("µ".encode("latin-1"))
        put[b"name\xff"] = 1
        put["long"] = np.longdouble(1) / 3
    with opened(path) as source:
        found = dict(source.root.attributes())
        assert all(math.isnan(value) or value == math.inf for value in found.pop("nan"))
        reference = {"source": ".", "path": "/g/x"}
        opaque, latin = found.pop("opaque"), found.pop("latin")
        assert (opaque["_BASE64"], opaque["_TYPE"]["class"]) == ("AQI=", "opaque")
        assert (latin["_BASE64"], latin["_TEXT"], latin["_TYPE"]["class"]) == ("tQ==", "\\xb5", "string")
        assert float(found.pop("long")) == pytest.approx(1 / 3)
        assert found == {
            "int": -3,
            "big": 2**64 - 1,
            "float": 0.1,
            "text": "häß",
            "bytes": "old",
            "fixed": ["a", "bc"],
            "texts": ["x", "ü"],
            "flag": [True, False],
            "complex": [1.0, 2.0],
            "empty": None,
            "none": [],
            "matrix": [[0, 1, 2], [3, 4, 5]],
            "struct": [{"i": 1, "f": 2.5, "s": "ab"}, {"i": 3, "f": math.inf, "s": ""}],
            "object": {"_REFERENCE": reference},
            "region": {"_REFERENCE": {**reference, "region": [[1], [3]]}},
            "enum": 1,
            "array": [[1, 2]],
            "lists": [[1], [2, 3]],
            "name\\xff": 1,
        }


def _ragged() -> Any:
    found = np.empty(2, object)
    found[:] = [np.array([1], "i4"), np.array([2, 3], "i4")]
    return found


def test_attributes_above_the_limits_are_described(tmp_path: Path) -> None:
    """An attribute of 10 MiB and six of 3 MiB: the rest is shown, and the object stays usable."""
    path = tmp_path / "large.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.attrs["a"] = np.zeros(10 << 20, "u1")
        for number in range(6):
            file.attrs[f"b{number}"] = "x" * (3 << 20)
        file.attrs["c"] = 1
    with opened(path) as source:
        found = source.root.attributes()
        assert "limit" in found["a"]["_ERROR"]
        assert found["b0"] == "x" * (3 << 20)
        assert "limit" in found["b5"]["_ERROR"]
        assert found["c"] == 1


def test_labels_and_scales_name_dimensions_in_this_order(tmp_path: Path) -> None:
    """Labels come first, then the first scale's name, then a scale's own name. The scales' own attributes are hidden."""
    path = tmp_path / "scales.h5"
    with h5py.File(path, "w") as file:
        file["lat"], file["lon"], file["plain"] = np.arange(3.0), np.arange(4.0), np.zeros(2)
        file["lat"].make_scale("latitude")
        file["lon"].make_scale()
        data = file.create_dataset("t", (2, 3, 4), "<f4")
        data.dims[1].attach_scale(file["lat"])
        data.dims[2].attach_scale(file["lon"])
        data.dims[0].label = "time"
        data.attrs["units"] = "K"
    with opened(path) as source:
        assert array(source, "t").metadata.dimension_names == ("time", "lat", "lon")
        assert array(source, "lat").metadata.dimension_names == ("lat",)
        assert array(source, "plain").metadata.dimension_names is None
        assert array(source, "t").metadata.attributes == {"units": "K"}
        assert array(source, "lat").metadata.attributes == {}
        assert array(source, "lat").metadata.native["hdf5"]["scales"]["NAME"] == "latitude"


def test_foreign_attributes_of_scale_names_are_kept(tmp_path: Path) -> None:
    """CLASS and NAME of PyTables are not dimension scales; nonsense in DIMENSION_LABELS does no harm."""
    path = tmp_path / "class.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", data=[1, 2])
        dataset.attrs["CLASS"], dataset.attrs["NAME"], dataset.attrs["DIMENSION_LABELS"] = "ARRAY", "n", 7
    with opened(path) as source:
        found = array(source, "x").metadata
        assert (found.attributes, found.dimension_names) == ({"CLASS": "ARRAY", "NAME": "n"}, None)


def test_labels_that_are_no_list_name_no_dimensions(tmp_path: Path) -> None:
    """Neither the characters of one text nor the error of an unreadable attribute are names."""
    path = tmp_path / "labels.h5"
    with h5py.File(path, "w", libver="latest") as file:
        text, large = (file.create_dataset(name, data=np.zeros((2, 2, 2), "u1")) for name in ("text", "large"))
        text.attrs["DIMENSION_LABELS"] = "zyx"
        large.attrs["DIMENSION_LABELS"] = np.zeros(3, "V4000000")
    with opened(path) as source:
        assert array(source, "text").metadata.dimension_names is None
        assert array(source, "large").metadata.dimension_names is None


@pytest.mark.parametrize("block", [0, 512, 1024, 4096])
@pytest.mark.parametrize("libver", ["earliest", "v108", "latest"])
def test_addresses_are_right_behind_a_user_block(tmp_path: Path, block: int, libver: str) -> None:
    """Addresses are right whatever comes before the superblock, for chunks and contiguous data."""
    path = tmp_path / "block.h5"
    data = np.arange(100, dtype="<i4")
    with h5py.File(path, "w", libver=libver, userblock_size=block) as file:
        file["contiguous"] = data
        file.create_dataset("chunked", data=data, chunks=(7,), compression="gzip")
        file.create_dataset("one", data=data, chunks=(100,))
        file.create_dataset("not_written", (100,), "<i4", fillvalue=5)
    with opened(path) as source:
        for name in ("contiguous", "chunked", "one"):
            np.testing.assert_array_equal(values(array(source, name)), data)
        np.testing.assert_array_equal(values(array(source, "not_written")), np.full(100, 5))
        assert array(source, "not_written").chunks.count() == 0


def test_files_that_are_not_hdf5_are_refused(tmp_path: Path) -> None:
    """Not HDF5, empty, absent."""
    path = tmp_path / "no.h5"
    for content in (b"", b"no", bytes(5000), b"\x89HDF\r\n\x1a\n"):
        path.write_bytes(content)
        with pytest.raises(CorruptData, match=r"no\.h5"), opened(path):
            pass
    with pytest.raises(NotFound, match="absent"), opened(tmp_path / "absent.h5"):
        pass
