"""`fsbridge diff`: nothing between formats, each way in which stores can differ, exit codes of diff(1)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
import zarr
from fake_s3 import FakeS3
from in_process import fsbridge
from nwb_data import unpack
from source_places import numbers, upload, write_each


@pytest.fixture(scope="module")
def each(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_each(tmp_path_factory.mktemp("each"))


def diff(*words: str | os.PathLike[str]) -> tuple[int, list[str]]:
    done = fsbridge("diff", *words)
    assert done.returncode in (0, 1), done.stderr
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_p12_formats_do_not_differ(each: dict[str, Path], server: FakeS3) -> None:
    for path in each.values():
        assert diff(each["zarr3"], path) == (0, []), path
    for url in upload(server, {name: each[name] for name in ("sharded", "hdf5")}).values():
        assert diff(url, each["n5"], *server.options) == (0, [])


def group(path: Path, **arrays: np.ndarray) -> zarr.Group:
    root = zarr.open_group(path, mode="w", zarr_format=3)
    for name, data in arrays.items():
        root.create_array(name, shape=data.shape, dtype=data.dtype, chunks=tuple(max(1, n // 2) for n in data.shape))[
            ...
        ] = data
    return root


def test_each_way_to_differ_is_one_line(tmp_path: Path) -> None:
    data = np.arange(60, dtype="<i4").reshape(6, 10)
    changed = data.copy()
    changed[2, 3] += 5
    changed[4, 9] -= 7
    one = group(tmp_path / "one", same=data, elements=data, kind=data, shape=data, attributes=data, left=data, node=data)
    two = group(
        tmp_path / "two", same=data, elements=changed, kind=data.astype("<i8"), shape=data[:3], attributes=data, right=data
    )
    two.create_group("node")
    one["attributes"].attrs["unit"] = "nm"
    one.attrs.update(a=1, b=[1, 2], c=0)
    two.attrs.update(a=2, b=[1, 2])
    assert diff(tmp_path / "one", tmp_path / "two") == (
        1,
        [
            "/: attributes differ: a, c",
            "/attributes: attributes differ: unit",
            "/elements: 2 of 60 elements differ, the first at [2, 3], largest difference 7",
            "/kind: data types int32 and int64",
            "/left: only in the first",
            "/node: an array and a group",
            "/right: only in the second",
            "/shape: shapes [6, 10] and [3, 10]",
        ],
    )
    assert diff(f"{tmp_path}/one//same", f"{tmp_path}/two//same") == (0, [])
    assert diff(f"{tmp_path}/one//same", f"{tmp_path}/two//elements")[0] == 1


def test_elements_within_the_tolerance_are_equal(tmp_path: Path) -> None:
    data = np.linspace(0, 1, 100)
    data[3] = np.nan
    other = data + 1e-7
    group(tmp_path / "one", a=data)
    group(tmp_path / "two", a=other)
    code, lines = diff(tmp_path / "one", tmp_path / "two")
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith("/a: 99 of 100 elements differ, the first at [0], largest difference 1.0")
    assert diff(tmp_path / "one", tmp_path / "two", "--tolerance", "2e-7") == (0, [])
    other[50] += 1
    group(tmp_path / "two", a=other)
    code, lines = diff(tmp_path / "one", tmp_path / "two", "--tolerance", "1e-6")
    assert lines[0].startswith("/a: 1 of 100 elements differ, the first at [50], largest difference 1.0")


def test_large_integers_are_compared_exactly(tmp_path: Path) -> None:
    group(tmp_path / "one", a=np.array([2**63 - 1, -(2**63), 2**53 + 1]), b=np.array([2**64 - 1], "u8"))
    group(tmp_path / "two", a=np.array([2**63 - 1, 2**63 - 1, 2**53]), b=np.array([0], "u8"))
    assert diff(tmp_path / "one", tmp_path / "two")[1] == [
        f"/a: 2 of 3 elements differ, the first at [1], largest difference {2**64 - 1}",
        f"/b: 1 of 1 elements differ, the first at [0], largest difference {2**64 - 1}",
    ]


def test_arrays_with_reversed_axes_are_equal_if_told(each: dict[str, Path], tmp_path: Path) -> None:
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["a/b"] = np.ascontiguousarray(numbers().T)
    assert diff(each["n5"], tmp_path / "t.h5") == (1, ["/a/b: shapes [7, 5, 4] and [4, 5, 7]"])
    assert diff(each["n5"], tmp_path / "t.h5", "--reversed-axes") == (0, [])


def test_texts_that_differ_are_counted(tmp_path: Path) -> None:
    for name, texts in {"one": ["a", "naïve", ""], "two": ["a", "naive", ""]}.items():
        root = zarr.open_group(tmp_path / name, mode="w")
        root.create_array("t", shape=(3,), dtype="string", chunks=(2,))[...] = np.array(texts, object)
    assert diff(tmp_path / "one", tmp_path / "two") == (1, ["/t: 1 of 3 elements differ, the first at [1]"])
    assert diff(tmp_path / "one", tmp_path / "one") == (0, [])


def test_trouble_is_exit_code_2(each: dict[str, Path], tmp_path: Path) -> None:
    for words in (
        [each["zarr3"], tmp_path / "nope"],
        [each["zarr3"]],
        [each["zarr3"], each["n5"], "--tolerance", "-1"],
        [f"{each['zarr3']}//nope", each["n5"]],
    ):
        done = fsbridge("diff", *words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert "Traceback" not in done.stderr
    shutil.copytree(each["zarr3"], tmp_path / "damaged")
    (tmp_path / "damaged/a/b/c/1/1/0").write_bytes(b"damage")
    done = fsbridge("diff", each["zarr3"], tmp_path / "damaged")
    assert (done.returncode, done.stdout) == (2, "")
    assert "/a/b" in done.stderr


def test_what_xarray_writes_in_each_format_is_equal(tmp_path: Path) -> None:
    """Each format says in its own way which elements are missing, and what the dimensions are called."""
    variables = {
        "t": (("time", "x"), np.array([[1, np.nan], [2, 3]], "f4"), {"units": "K"}),
        "i": (("x",), np.array([1, -9], "i2"), {"_FillValue": np.int16(-9)}),
    }
    dataset = xarray.Dataset(variables, {"time": ("time", [0, 1], {"units": "days since 2000-01-01"})}, {"title": "a"})
    places = [tmp_path / name for name in ("two.zarr", "three.zarr", "one.nc")]
    dataset.to_zarr(places[0], zarr_format=2)
    dataset.to_zarr(places[1], zarr_format=3, consolidated=False)
    dataset.to_netcdf(places[2])
    for layout in ("zarr2", "zarr3"):
        for place in places[:3]:
            out = tmp_path / f"{layout} of {place.name}"
            assert fsbridge("export", "-q", "--layout", layout, place, out).returncode == 0
            places.append(out)
    for place in places[1:]:
        done = fsbridge("diff", places[0], place)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), place
    dataset.assign_attrs(title="b").to_netcdf(tmp_path / "other.nc")
    assert fsbridge("diff", places[0], tmp_path / "other.nc").stdout == "/: attributes differ: title\n"
    done = fsbridge("diff", "--data-only", places[0], tmp_path / "other.nc")
    assert (done.returncode, done.stdout) == (0, "")
    dataset.assign(i=("x", np.array([1, 2], "i2"))).to_netcdf(tmp_path / "changed.nc")
    assert fsbridge("diff", "--data-only", places[0], tmp_path / "changed.nc").returncode == 1


def test_numbers_of_one_truth_values_and_dimensions_are_compared_as_meaning(tmp_path: Path) -> None:
    dataset = xarray.Dataset({"a": (("y", "x"), np.ones((3, 3), bool))}, attrs={"version": 3, "scale": 2.0})
    dataset.to_zarr(tmp_path / "three.zarr", zarr_format=3, consolidated=False)
    dataset.to_netcdf(tmp_path / "one.nc")
    assert diff(tmp_path / "three.zarr", tmp_path / "one.nc") == (0, [])
    dataset.assign_attrs(version=4).to_netcdf(tmp_path / "newer.nc")
    assert diff(tmp_path / "three.zarr", tmp_path / "newer.nc") == (1, ["/: attributes differ: version"])
    dataset.transpose("x", "y").to_netcdf(tmp_path / "turned.nc")
    assert diff(tmp_path / "three.zarr", tmp_path / "turned.nc") == (1, ["/a: dimensions y, x and x, y"])


def image(path: Path, zarr_format: Any) -> None:
    """Write an image of two levels in OME-Zarr 0.4 or 0.5."""
    root = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    for i, size in enumerate((32, 16)):
        names = ["y", "x"] if zarr_format == 3 else None
        level = root.create_array(str(i), shape=(size, size), dtype="uint16", chunks=(16, 16), dimension_names=names)
        level[...] = np.arange(size * size, dtype="uint16").reshape(size, size)
    scales = [{"path": str(i), "coordinateTransformations": [{"type": "scale", "scale": [2.0**i] * 2}]} for i in (0, 1)]
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "yx"]
    described: dict[str, Any] = {"name": "cells", "axes": axes, "datasets": scales}
    omero = {"channels": [{"label": "DAPI", "color": "0000FF"}]}
    if zarr_format == 3:
        root.attrs["ome"] = {"version": "0.5", "multiscales": [described], "omero": omero}
    else:
        root.attrs.update(multiscales=[{**described, "version": "0.4"}], omero=omero)


def test_an_image_equals_its_export_in_each_layout(tmp_path: Path) -> None:
    for zarr_format in (2, 3):
        image(tmp_path / f"{zarr_format}.zarr", zarr_format)
        for layout in ("zarr2", "zarr3", "n5"):
            out = tmp_path / f"{zarr_format} as {layout}"
            assert fsbridge("export", "-q", "--layout", layout, tmp_path / f"{zarr_format}.zarr", out).returncode == 0
            words = ["--reversed-axes"] if layout == "n5" else []
            assert diff(tmp_path / f"{zarr_format}.zarr", out, *words) == (0, []), out
    assert diff(tmp_path / "2.zarr", tmp_path / "3.zarr") == (0, [])
    document = tmp_path / "2 as n5" / "1" / "attributes.json"
    document.write_text(document.read_text().replace("micrometer", "nanometer"))
    found = diff(tmp_path / "2.zarr", tmp_path / "2 as n5", "--reversed-axes")
    assert found == (1, ["/1: attributes differ: units"])
    document = tmp_path / "2 as zarr3" / "zarr.json"
    document.write_text(document.read_text().replace("DAPI", "GFP"))
    assert diff(tmp_path / "2.zarr", tmp_path / "2 as zarr3") == (1, ["/: attributes differ: ome"])


@pytest.fixture(scope="module")
def nwb(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One session as pynwb writes it in HDF5, and as hdmf-zarr exports that to Zarr v2 and v3."""
    folder = tmp_path_factory.mktemp("nwb")
    for name in ("hdf5", "zarr2", "zarr3"):
        unpack(name, folder / name)
    return {"hdf5": folder / "hdf5/session.nwb", **{n: folder / n / "export.nwb.zarr" for n in ("zarr2", "zarr3")}}


def test_nwb_in_hdf5_equals_what_hdmf_zarr_exports(nwb: dict[str, Path]) -> None:
    for one, other in (("hdf5", "zarr2"), ("hdf5", "zarr3"), ("zarr3", "hdf5"), ("zarr2", "zarr3")):
        assert diff(nwb[one], nwb[other]) == (0, []), (one, other)


def test_nwb_equals_its_export_although_that_has_copies_in_place_of_links(nwb: dict[str, Path], tmp_path: Path) -> None:
    for name in nwb:
        for layout in ("zarr2", "zarr3"):
            out = tmp_path / f"{name} as {layout}"
            assert fsbridge("export", "-q", "--layout", layout, nwb[name], out).returncode == 0
            assert diff(nwb[name], out) == (0, []), out
    copied = tmp_path / "hdf5 as zarr3" / "acquisition/shares_timestamps/timestamps"
    target = copied.resolve()
    copied.unlink()
    shutil.copytree(target, copied)
    (copied / "zarr.json").write_text((copied / "zarr.json").read_text().replace("seconds", "minutes"))
    expected = ["/acquisition/shares_timestamps/timestamps: attributes differ: unit"]
    assert diff(nwb["hdf5"], tmp_path / "hdf5 as zarr3") == (1, expected)


def attributes_changed(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["attributes"].update({name: value})


SHARED = "/acquisition/shares_timestamps/timestamps"
LINK = {"source": ".", "name": "timestamps"}


@pytest.mark.parametrize(
    ("path", "change", "expected"),
    [("acquisition/raw/data", attributes_changed("unit", "V"), ["/acquisition/raw/data: attributes differ: unit"]),
     ("acquisition/raw/electrodes", attributes_changed("table", {"_REFERENCE": {"source": ".", "path": "/general"}}),
      ["/acquisition/raw/electrodes: attributes differ: table"]),
     ("general/session_id", attributes_changed("_DTYPE", "object_reference"),
      ["/general/session_id: attributes differ: _DTYPE"]),
     ("acquisition/shares_timestamps", attributes_changed("_LINKS", []), [f"{SHARED}: only in the first"]),
     ("acquisition/shares_timestamps", attributes_changed("_LINKS", [{**LINK, "path": "/acquisition/raw/data"}]),
      [f"{SHARED}: a link to ../../acquisition/with_timestamps/timestamps and a link to ../raw/data"]),
     ("acquisition/shares_timestamps", attributes_changed("_LINKS", [{**LINK, "path": "/acquisition/none"}]),
      [f"{SHARED}: a link to ../../acquisition/with_timestamps/timestamps and a link to ../none"])],
)  # fmt: skip
def test_a_difference_of_nwb_in_any_attribute_or_link_is_found(
    nwb: dict[str, Path], tmp_path: Path, path: str, change: Callable[[dict[str, Any]], None], expected: list[str]
) -> None:
    changed = tmp_path / "changed.nwb.zarr"
    shutil.copytree(nwb["zarr3"], changed)
    document = json.loads((changed / path / "zarr.json").read_text())
    change(document)
    (changed / path / "zarr.json").write_text(json.dumps(document))
    (root := changed / "zarr.json").write_text(json.dumps({**json.loads(root.read_text()), "consolidated_metadata": None}))
    assert diff(nwb["hdf5"], changed) == (1, expected)


@pytest.mark.parametrize(
    ("path", "change"),
    [("intervals/trials/timeseries", lambda file, row: (row[0], 4, row[2])),
     ("intervals/trials/timeseries", lambda file, row: (row[0], row[1], file["acquisition/raw"].ref)),
     ("general/extracellular_ephys/electrodes/group", lambda file, row: file["general"].ref),
     ("acquisition/raw/data", lambda file, row: row + 1), ("session_start_time", lambda file, row: "2025")],
)  # fmt: skip
def test_a_difference_of_nwb_in_any_element_is_found(
    nwb: dict[str, Path], tmp_path: Path, path: str, change: Callable[[h5py.File, Any], Any]
) -> None:
    changed = tmp_path / "changed.nwb"
    shutil.copyfile(nwb["hdf5"], changed)
    with h5py.File(changed, "r+") as file:
        dataset = file[path]
        where = (1,) * dataset.ndim
        dataset[where] = np.array(change(file, dataset[where]), dataset.dtype)
        expected = f"/{path}: 1 of {dataset.size} elements differ, the first at {list(where)}"
    for other in ("zarr2", "zarr3"):
        code, lines = diff(changed, nwb[other])
        assert (code, [line.partition(", largest")[0] for line in lines]) == (1, [expected])


@pytest.mark.parametrize("depth", [700, 100_000])
def test_text_that_is_deeply_nested_json_is_another_value(depth: int, tmp_path: Path) -> None:
    for name, value in (("one", "[" * depth + "]" * depth), ("other", [1, 2])):
        zarr.open_group(tmp_path / name, mode="w", attributes={"x": value})
    done = fsbridge("diff", tmp_path / "one", tmp_path / "other")
    assert (done.returncode, done.stdout, done.stderr) == (1, "/: attributes differ: x\n", "")
