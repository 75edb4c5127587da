"""`fsbridge diff`: nothing between formats, each way in which stores can differ, exit codes of diff(1)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray
import zarr
from fake_s3 import FakeS3
from in_process import fsbridge
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


def group(path: Path, **arrays: np.ndarray) -> zarr.Group:  # type: ignore[type-arg]
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


def test_a_tolerance(tmp_path: Path) -> None:
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


def test_reversed_axes(each: dict[str, Path], tmp_path: Path) -> None:
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["a/b"] = np.ascontiguousarray(numbers().T)
    assert diff(each["n5"], tmp_path / "t.h5") == (1, ["/a/b: shapes [7, 5, 4] and [4, 5, 7]"])
    assert diff(each["n5"], tmp_path / "t.h5", "--reversed-axes") == (0, [])


def test_texts(tmp_path: Path) -> None:
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
