"""File names of arrays: suffixes, regions, names that can be read in several ways."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from fake_model import FakeGroup, fake_array, tree
from tree_walker import content

from fsbridge.errors import NotFound
from fsbridge.layouts.files.arrays.names import Neighbours, find_store_name, parse_name
from fsbridge.layouts.files.arrays.selection import parse_region

VALUES: Any = np.arange(5 * 7 * 3).reshape(5, 7, 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.npy", [("a", None, "npy")]),
        ("a.ome.tif", [("a.ome", None, "tif"), ("a", None, "ome.tif")]),
        ("a[1:2].nii", [("a[1:2]", None, "nii"), ("a", "1:2", "nii")]),
        ("a[0][1].h5", [("a[0][1]", None, "h5"), ("a[0]", "1", "h5"), ("a", "0][1", "h5")]),
        ("a@1:2,0.nii", [("a@1:2,0", None, "nii"), ("a", "1:2,0", "nii")]),
        ("a@b@0.nc", [("a@b@0", None, "nc"), ("a@b", "0", "nc"), ("a", "b@0", "nc")]),
        ("a.envi.hdr", [("a", None, "envi.hdr")]),
        ("a.slices", [("a", None, "slices")]),
        ("a", []),
        (".npy", []),
        ("a.xyz", []),
    ],
)
def test_a_file_name_is_read_in_every_way_with_the_longest_name_first(name: str, expected: list[Any]) -> None:
    assert [tuple(reading) for reading in parse_name(name)] == expected


@pytest.mark.parametrize(
    ("source", "name"),
    [("/data/brain.n5", "brain"), ("/data/brain.zarr.zip", "brain"), ("s3://b/x/brain.ome.zarr/", "brain"),
     ("/data/brain.OME.zarr.zip", "brain"), ("/data/a.b.ome.ozx", "a.b"), ("/data/.ome.zarr", ".ome"),
     ("/data/chrome.zarr", "chrome"), ("/data/plain", "plain"), ("/data/.hidden", ".hidden")],
)  # fmt: skip
def test_files_of_the_root_are_called_after_the_store(source: str, name: str) -> None:
    assert find_store_name(source) == name


@pytest.mark.parametrize(
    "text",
    ["1", "-1", ":", "::2", "::-1", "4:1:-2", "2:100", "...,1", "1,...", "0,::3,-2", "5:2", "1:2,", "-100:2", "+1",
     "...", "4::-3,:,1", f"{10**20}:", f":{-(10**20)}", f"::{10**20}", f"::{-(10**20)}"],
)  # fmt: skip
def test_regions_select_what_numpy_selects(text: str) -> None:
    expected = eval(f"VALUES[{text}]")
    selection = parse_region(text, VALUES.shape)
    assert selection.shape == expected.shape
    picked = VALUES[np.ix_(*([p.start + p.step * i for i in range(p.length)] for p in selection.picks))]
    np.testing.assert_array_equal(picked.reshape(selection.shape), expected)


@pytest.mark.parametrize(
    "text", ["", "9", str(10**20), "::0", "a", "1,,2", ":,:,:,:", "...,...", "1_0", "[", "1.5", "٣", "1:2:3:4"]
)
def test_bad_regions_say_what_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_region(text, VALUES.shape)


@pytest.mark.parametrize(
    ("name", "text"),
    [("a@1_2,_,-1.npy", "1:2,:,-1"), ("a@__2,...,_-1.npy", "::2,...,:-1"), ("a@_.npy", ":"), ("a@1:2,_.npy", "1:2,:")],
)
def test_a_region_has_a_name_that_windows_can_hold(name: str, text: str) -> None:
    root = tree(FakeGroup({"a": fake_array(VALUES, (2, 1, 2))}), layout="files")
    np.testing.assert_array_equal(np.load(io.BytesIO(content(root.lookup(name.encode())))), eval(f"VALUES[{text}]"))


def test_a_header_of_such_a_region_names_a_file_that_windows_can_hold() -> None:
    root = tree(FakeGroup({"a": fake_array(VALUES, (2, 1, 2))}), layout="files")
    assert b"data file: a@1_2,_.raw\n" in content(root.lookup(b"a@1_2,_.raw.nhdr"))


def test_a_region_in_brackets_is_numpy_s_alone() -> None:
    root = tree(FakeGroup({"a": fake_array(VALUES, (2, 1, 2))}), layout="files")
    with pytest.raises(NotFound):
        root.lookup(b"a[1_2].npy")


def test_members_named_like_files_are_known_to_the_arrays_of_those_files() -> None:
    found = Neighbours.find_among(["a", "b", "a.npy", "a[0].npy", "x.y", "b.ome.tif"])
    assert found.names == {"a.npy", "a[0].npy", "x.y", "b.ome.tif"}
    assert found.claims == {"a": ("a.npy", "a[0].npy"), "a[0]": ("a[0].npy",), "b": ("b.ome.tif",), "b.ome": ("b.ome.tif",)}
    assert len(found.find_collisions("a")) == 2
    assert not found.find_collisions("x")
    left = {("a", "npy"), ("b", "ome.tif")}
    assert {key for key in (("a", "npy"), ("a", "raw"), ("b", "ome.tif"), ("c", "npy")) if not found.allow(*key)} == left


@pytest.mark.parametrize("name", ["a.nhdr", "a.mhd", "a.tif.nhdr", "a.hdr", "a.img", "a.nii.hdr", "a[0].nhdr"])
def test_programs_that_look_for_a_second_file_find_none(name: str) -> None:
    """Bio-Formats read `a.tif` by `a.nhdr` where there was one, with times taken for channels."""
    assert list(parse_name(name)) == []
