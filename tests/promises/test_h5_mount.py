"""Virtual HDF5 files through real mounts: h5py and netCDF4 read in them what the source has (P12)."""

from __future__ import annotations

import base64
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import z5py
import zarr
from mounting import MountFunction
from nwb_data import expected_arrays, unpack
from zarr.core.common import JSON

from fsbridge.children.client import ChildProcess
from fsbridge.errors import CorruptData
from fsbridge.layouts.files.h5.child import ADDRESS_SPACE_BYTES
from fsbridge.layouts.files.h5.writing import WRITER

VALUES = np.random.default_rng(0).integers(0, 60000, (20, 30, 40)).astype("<u2")


def hdf5(path: Path) -> Path:
    """Write all that HDF5 can hold and h5py can write: the twin must have all of it."""
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "tëst"
        file.attrs["numbers"] = [1.5, 2.5]
        group = file.create_group("g")
        group.attrs["n"] = 7
        data = group.create_dataset("d", data=VALUES, chunks=(8, 16, 16), compression="gzip", fillvalue=3)
        data.attrs["units"] = "nm"
        group["z"], group["y"] = np.arange(20.0), np.arange(30.0)
        for i, name in enumerate(("z", "y")):
            group[name].make_scale(name)
            data.dims[i].attach_scale(group[name])
            data.dims[i].label = name
        file["link"] = h5py.SoftLink("/g/d")
        file["groups"] = h5py.SoftLink("/g")
        file["words"] = np.array(["one", "zwö", ""], dtype=object)
        file["table"] = np.array([(1, 2.5, b"x"), (3, 0.1, b"yy")], dtype=[("a", "i4"), ("b", "f4"), ("c", "S3")])
        file["flags"] = np.array([True, False])
        file["complex"] = np.array([1 + 2j, 3 - 1j])
        file["half"] = np.array([1.5, 2.5], "f2")
        file["scalar"] = 3.5
        file["empty"] = np.zeros((0, 4), "i4")
        file["big"] = np.arange(10, dtype=">i8")
        file.create_dataset("holes", shape=(64, 64), chunks=(8, 8), dtype="f4", fillvalue=9.0)[8:16, 8:16] = 1.0
    return path


def same(found: Any, expected: Any, path: str = "/") -> int:
    """Compare two HDF5 hierarchies, and count datasets."""
    assert set(found) == set(expected), path
    assert {k: np.asarray(v).tolist() for k, v in found.attrs.items() if not k.endswith("_LIST")} == {
        k: np.asarray(v).tolist() for k, v in expected.attrs.items() if not k.endswith("_LIST")
    }, path
    count = 0
    for name in expected:
        links = [file.get(name, getlink=True) for file in (found, expected)]
        assert type(links[0]) is type(links[1])
        if isinstance(links[0], h5py.SoftLink):
            assert links[0].path == links[1].path
        elif isinstance(expected[name], h5py.Group):
            count += same(found[name], expected[name], f"{path}{name}/")
        else:
            one, other = found[name], expected[name]
            assert (one.shape, one.dtype, one.fillvalue) == (other.shape, other.dtype, other.fillvalue), name
            np.testing.assert_array_equal(one[()], other[()], err_msg=f"{path}{name}")
            assert [d.label for d in one.dims] == [d.label for d in other.dims]
            assert [list(d.keys()) for d in one.dims] == [list(d.keys()) for d in other.dims]
            count += 1
    return count


def test_p12_the_twin_of_an_hdf5_file_is_equal(tmp_path: Path, mount: MountFunction) -> None:
    source = hdf5(tmp_path / "store.h5")
    mounted = mount(source, "--layout", "files")
    with h5py.File(mounted / "store.h5") as found, h5py.File(source) as expected:
        assert same(found, expected) == 12
    with h5py.File(mounted / "g.h5") as found, h5py.File(source) as expected:
        same(found, expected["g"])
    assert sorted(os.listdir(mounted / "g")) == ["d.json", "d.npy", "index.html", "y.json", "y.npy", "z.json", "z.npy"]
    assert os.readlink(mounted / "link.h5") == "g/d.h5"
    with h5py.File(mounted / "groups.h5") as found:
        np.testing.assert_array_equal(found["d"][()], VALUES)


def n5(path: Path) -> str:
    with z5py.File(str(path), "w", use_zarr_format=False) as file:
        file.create_dataset("g/a", shape=VALUES.shape, chunks=(8, 16, 16), dtype="uint16", compression="gzip")[:] = VALUES
        file["g/a"].attrs["pixelResolution"] = {"unit": "nm", "dimensions": [4.0, 5.0, 40.0]}
        file["g"].attrs["group"] = {"nested": [1, 2]}
    return "g/a"


def zarr2(path: Path) -> str:
    group = zarr.create_group(path, zarr_format=2)
    group.create_array("f/a", shape=VALUES.shape, chunks=(8, 16, 16), dtype="<u2", order="F")[...] = VALUES
    return "f/a"


def zarr3(path: Path) -> str:
    group = zarr.create_group(path)
    names = ["z", "y", "x"]
    array = group.create_array(
        "s/a", shape=VALUES.shape, chunks=(5, 10, 10), shards=(10, 20, 40), dtype="<u2", dimension_names=names
    )
    array[...] = VALUES
    for name, n in zip(names, VALUES.shape, strict=True):
        scale = group.create_array(f"s/{name}", shape=(n,), chunks=(n,), dtype="<f8", dimension_names=[name])
        scale[...] = np.arange(n) * 4.0 + 1
        scale.attrs["units"] = "um"
    return "s/a"


@pytest.mark.parametrize("write", [n5, zarr2, zarr3])
def test_p12_stores_as_hdf5(write: Any, tmp_path: Path, mount: MountFunction) -> None:
    """N5 appears slowest axis first, as z5py shows it; Zarr in F order is turned round."""
    path = write(tmp_path / "brain.store")
    mounted = mount(tmp_path / "brain.store", "--layout", "files", "--files", "npy,h5")
    assert "brain.h5" in os.listdir(mounted)
    with h5py.File(mounted / "brain.h5") as file:
        np.testing.assert_array_equal(file[path][()], VALUES)
        np.testing.assert_array_equal(file[path][3, ::7, 5], VALUES[3, ::7, 5])
        if write is n5:
            np.testing.assert_allclose(file[path].attrs["element_size_um"], [0.04, 0.005, 0.004])
            assert json.loads(file["g"].attrs["group"]) == {"nested": [1, 2]}
    single = mounted / f"{path}.h5"
    with os.scandir(single.parent) as entries:
        listed = {entry.name: entry.stat().st_size for entry in entries}
    assert os.stat(single).st_size == listed["a.h5"]
    with h5py.File(single) as file:
        np.testing.assert_array_equal(file["a"][()], VALUES)
    with h5py.File(mounted / f"{path}[2:5,:,7].h5") as file:
        own = VALUES.T if write is n5 else VALUES
        expected = own[2:5, :, 7]
        np.testing.assert_array_equal(file["a"][()], expected.T if write is n5 else expected)
    if write is zarr3:
        with netCDF4.Dataset(mounted / "s.h5") as dataset:
            assert dataset["a"].dimensions == ("z", "y", "x")
            np.testing.assert_array_equal(dataset["a"][:], VALUES)
            assert dataset["z"].units == "um"
        with h5py.File(single) as file:
            np.testing.assert_array_equal(file["x"][()], np.arange(40) * 4.0 + 1)


def test_p12_text_of_a_fixed_size_has_its_fill_value(tmp_path: Path, mount: MountFunction) -> None:
    """It was bytes of some address; and netCDF crashes on text that is said to be empty."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    for name, fill in {"one": b"ab", "full": b"abcd", "bytes": b"\xff\xfe", "empty": b""}.items():
        group.create_array(name, shape=(3,), chunks=(2,), dtype="S4", fill_value=fill)
    mounted = mount(tmp_path / "a.zarr", "--layout", "files").path
    with h5py.File(mounted / "a.h5") as file:
        for name in ("one", "full", "bytes", "empty"):
            assert file[name].fillvalue == zarr.open_array(tmp_path / "a.zarr" / name).metadata.fill_value, name
            assert file[name][...].tolist() == [file[name].fillvalue] * 3
    program = "import netCDF4, sys; print(netCDF4.Dataset(sys.argv[1])['empty'][:].tolist())"
    found = subprocess.run([sys.executable, "-c", program, mounted / "empty.h5"], check=True, capture_output=True, text=True)
    assert found.stdout == "['', '', '']\n"


def test_p12_real_zeros_of_a_zarr_store_are_not_missing_for_netcdf(tmp_path: Path, mount: MountFunction) -> None:
    """GDAL and QGIS masked them."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=3)
    arrays: dict[str, dict[str, JSON]] = {"rain": {}, "said": {"_FillValue": 0}}
    for name, attributes in arrays.items():
        made = group.create_array(name, shape=(3,), dtype="i2", dimension_names=["x"], attributes=attributes)
        made[...] = np.arange(3)
    mounted = mount(tmp_path / "a.zarr", "--layout", "files").path
    program = (
        "import netCDF4, sys; file = netCDF4.Dataset(sys.argv[1]); "
        "print(*[file[name].get_fill_value() for name in ('rain', 'said')], file['rain'][:].tolist())"
    )
    found = subprocess.run([sys.executable, "-c", program, mounted / "a.nc"], check=True, capture_output=True, text=True)
    assert found.stdout == "None 0 [0, 1, 2]\n"


def test_an_empty_list_is_an_empty_attribute(tmp_path: Path, mount: MountFunction) -> None:
    """It was the text `[]`: AnnData, which lists the columns of a table in such an attribute, looked for one called `[`."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", attributes={"column-order": []})
    group.create_array("x", shape=(3,), chunks=(2,), dtype="f4", attributes={"none": [], "nested": [[]]})
    with h5py.File(mount(tmp_path / "a.zarr", "--layout", "files") / "a.h5") as file:
        assert file.attrs["column-order"].shape == file["x"].attrs["none"].shape == (0,)
        assert file["x"].attrs["nested"] == "[[]]"


def test_missing_values_as_xarray_writes_them_are_numbers(tmp_path: Path, mount: MountFunction) -> None:
    """Zarr v3 has them as base64, which no reader of netCDF knows."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    missing: str | float
    for name, missing in (("xarray", "AAAAAIjDDMA="), ("text", "none"), ("number", -9999.0)):
        group.create_array(name, shape=(3,), chunks=(2,), dtype="f4", attributes={"_FillValue": missing})
    with h5py.File(mount(tmp_path / "a.zarr", "--layout", "files") / "a.h5") as file:
        found = {name: file[name].attrs["_FillValue"] for name in file}
    assert found == {"xarray": struct.unpack("<d", base64.b64decode("AAAAAIjDDMA="))[0], "text": "none", "number": -9999.0}


def test_p12_nwb_as_hdf5(tmp_path: Path, mount: MountFunction) -> None:
    source = next(unpack("zarr2", tmp_path / "nwb").glob("*.nwb*"))
    mounted = mount(source, "--layout", "files")
    mounted.allow("left out")
    with h5py.File(mounted / f"{source.stem}.h5") as file:
        for path, numbers in expected_arrays("zarr2").items():
            np.testing.assert_array_equal(file[path][()], numbers, err_msg=path)


def size_of(path: Path) -> int | None:
    """None if the deadline of look-ups passes."""
    try:
        return os.stat(path).st_size
    except TimeoutError:
        return None


def test_a_thousand_datasets_in_a_second(tmp_path: Path, mount: MountFunction) -> None:
    for i in range(1000):
        folder = tmp_path / f"s.n5/g{i % 20}/a{i}"
        (folder / "0/0").mkdir(parents=True)
        (folder / "attributes.json").write_text(json.dumps(
            {"dimensions": [2048, 2048, 64], "blockSize": [64, 64, 64], "dataType": "uint16", "compression": {"type": "raw"}}
        ))  # fmt: skip
    (tmp_path / "s.n5/attributes.json").write_text('{"n5": "2.5.0"}')
    mounted = mount(tmp_path / "s.n5", "--layout", "files")
    mounted.allow("s.h5")
    begun = time.monotonic()
    while (size := size_of(mounted / "s.h5")) is None:  # on a slow machine it is still being made
        assert time.monotonic() < begun + 60
    assert 1000 * 2**29 < size < 1000 * 2**29 + 2**23
    with h5py.File(mounted / "s.h5") as file:
        assert file["g7/a7"][0, 0, :3].tolist() == [0, 0, 0]


def test_p9_a_changed_group_has_a_new_file(tmp_path: Path, mount: MountFunction) -> None:
    group = zarr.create_group(tmp_path / "s.zarr")
    array = group.create_array("a", shape=(4, 4), chunks=(2, 4), dtype="<i4")
    array[...] = 1
    mounted = mount(tmp_path / "s.zarr", "--layout", "files", "--metadata-ttl", "0.1")
    with h5py.File(mounted / "s.h5") as file:
        assert (file["a"][()] == 1).all()
    array[...] = 2
    group.create_array("b", shape=(2,), chunks=(2,), dtype="<i4")[...] = 5
    time.sleep(0.3)
    with h5py.File(mounted / "s.h5") as file:
        assert (file["a"][()] == 2).all()
        assert (file["b"][()] == 5).all()


def test_p8_a_text_that_utf8_cannot_hold_costs_no_other_text(tmp_path: Path, mount: MountFunction) -> None:
    """JSON can have half a surrogate pair; HDF5's texts cannot."""
    array = zarr.create_array(tmp_path / "a.zarr", shape=(2, 2), chunks=(2, 2), dtype="<i4", dimension_names=("y", None))
    array[...] = 1
    document = json.loads((tmp_path / "a.zarr/zarr.json").read_text())
    document["attributes"] = {"many": ["\ud800a", "µm"], "one": "b\ud800", "number": 1.5, "flags": [True, False]}
    (tmp_path / "a.zarr/zarr.json").write_text(json.dumps(document))
    with h5py.File(mount(tmp_path / "a.zarr", "--layout", "files") / "a.h5") as file:
        found = dict(file["a"].attrs)
        assert [dimension[0].name for dimension in file["a"].dims] == ["/y", "/a_dim_1"]
    assert list(found["many"]) == ["?a", "µm"]
    assert (found["one"], found["number"], found["flags"].tolist()) == ("b?", 1.5, [True, False])


def test_p8_p12_integers_of_any_size_are_attributes_and_hide_no_file(tmp_path: Path, mount: MountFunction) -> None:
    """One below -2**63 ended the process that writes the file; beside negative ones or fractions, others were rounded."""
    texts = {
        "low": -(2**63) - 1,
        "high": 2**64,
        "both": [-1, 2**63 + 1],
        "mixed": [0.5, 2**53 + 1],
        "lowest": [[-(2**63) - 1]],
    }
    numbers = {
        "least": -(2**63),
        "most": 2**64 - 1,
        "list": [[2**63, 2**64 - 1]],
        "exact": [0.5, 2**53],
        "nan": [1, float("nan")],
    }
    zarr.create_group(tmp_path / "a.zarr", attributes={**texts, **numbers})
    with h5py.File(mount(tmp_path / "a.zarr", "--layout", "files") / "a.h5") as file:
        assert {name: json.loads(file.attrs[name]) for name in texts} == texts
        for name, value in numbers.items():
            np.testing.assert_array_equal(file.attrs[name], value)
        assert (file.attrs["least"].dtype, file.attrs["most"].dtype, file.attrs["list"].dtype) == (
            np.int64,
            np.uint64,
            np.uint64,
        )


def test_what_cannot_be_held_is_left_out_by_name(tmp_path: Path, mount: MountFunction) -> None:
    group = zarr.create_group(tmp_path / "s.zarr")
    group.create_array("a", shape=(4,), chunks=(4,), dtype="<i4")[...] = 1
    text = group.create_array("text", shape=(4,), chunks=(4,), dtype=str)
    text[...] = np.array(["a", "b", "c", "d"], dtype=object)
    (tmp_path / "s.zarr/text/c/0").write_bytes(b"damaged")
    mounted = mount(tmp_path / "s.zarr", "--layout", "files")
    mounted.allow("text")
    with h5py.File(mounted / "s.h5") as file:
        assert list(file) == ["a"]
        assert file.attrs["fsbridge_left_out"][0].startswith("text: ")
    with pytest.raises(OSError, match="Input/output error"):
        (mounted / "text.h5").read_bytes()


def test_p5_the_writer_is_confined() -> None:
    """It opens no file: where the kernel has Landlock it cannot, whatever a specification makes of it."""
    child = ChildProcess(WRITER, [], ADDRESS_SPACE_BYTES)
    try:
        assert child.confined
        root = json.dumps([{"kind": "group", "path": "/", "attributes": {}}]).encode()
        child.ask({"op": "objects"}, 0, 30.0, [root])
        end = json.dumps({"left_out": {}, "scales": {"made": [], "attached": []}}).encode()
        answer, (content,) = child.ask({"op": "finish"}, 1 << 20, 30.0, [end])
        assert answer["offsets"] == [None]
        assert content[:4] == b"\x89HDF"
        with pytest.raises(CorruptData, match="KeyError"):
            child.ask({"op": "objects"}, 0, 30.0, [b"[{}]"])
    finally:
        child.close()
