"""The layout zarr3 of a store with consolidated metadata has them too: those of the mount, complete, and as new as the rest.

zarr-python, xarray and TensorStore read them in a mount or a copy of its documents.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
import xarray
import zarr
from fake_s3 import BUCKET, FakeS3
from mounting import MountFunction
from tree_walker import written

from fsbridge.config import Config, Remote
from fsbridge.layouts import zarr3
from fsbridge.unmounted import VirtualTree

pytestmark = pytest.mark.filterwarnings("ignore:::zarr")


def climate(path: Path, zarr_format: Any, consolidated: bool = True) -> xarray.Dataset:
    """Write a compressed dataset with a group below it."""
    values = np.arange(24, dtype="f4").reshape(2, 3, 4)
    data = xarray.Dataset(
        {"tas": (("time", "y", "x"), values, {"units": "K"})}, {"time": [0, 1], "y": [1.0, 2.0, 3.0]}, {"title": "é"}
    )
    data.to_zarr(path, zarr_format=zarr_format, consolidated=False)
    data.to_zarr(path, group="deep/er", zarr_format=zarr_format, consolidated=False)
    if consolidated:
        zarr.consolidate_metadata(str(path))
    return data


def document(tree: VirtualTree, path: str = "zarr.json") -> Any:
    with tree.open(path) as file:
        return json.loads(bytes(file.read(0, file.size)))


def opened(source: Path | str, **options: Any) -> VirtualTree:
    return VirtualTree(Config(str(source), "", **options))


def members(tree: VirtualTree, path: str = "zarr.json") -> Any:
    return document(tree, path).get("consolidated_metadata", {}).get("metadata")


def shapes(member: dict[str, Any]) -> dict[str, Any]:
    """What zarr-python spells in one way only."""
    return {name: member.get(name) for name in ("node_type", "shape", "data_type", "attributes", "dimension_names")}


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_xarray_opens_a_mount_of_a_consolidated_store_without_a_warning(
    mount: MountFunction, tmp_path: Path, zarr_format: int
) -> None:
    data = climate(tmp_path / "s.zarr", zarr_format)
    mounted = mount(tmp_path / "s.zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = xarray.open_zarr(mounted.path).load()
    xarray.testing.assert_equal(shown, data)
    group = zarr.open_consolidated(mounted.path)
    assert "deep/er/y" in dict(group.members(max_depth=None))
    member = group["deep/er/tas"]
    assert isinstance(member, zarr.Array)
    np.testing.assert_array_equal(member[...], data["tas"].to_numpy())
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{mounted.path}/tas/"}}
    np.testing.assert_array_equal(tensorstore.open(spec, open=True).result().read().result(), data["tas"].to_numpy())


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_consolidated_metadata_are_the_documents_that_the_mount_shows(tmp_path: Path, zarr_format: int) -> None:
    climate(tmp_path / "s.zarr", zarr_format)
    with opened(tmp_path / "s.zarr") as tree:
        shown = document(tree)["consolidated_metadata"]
        paths = ["tas", "time", "y", "deep", "deep/er", "deep/er/tas", "deep/er/time", "deep/er/y"]
        assert shown == {
            "kind": "inline",
            "must_understand": False,
            "metadata": {path: document(tree, f"{path}/zarr.json") for path in shown["metadata"]},
        }
        assert sorted(shown["metadata"]) == sorted(paths)
        assert [codec["name"] for codec in shown["metadata"]["tas"]["codecs"]] == ["bytes"], (
            "a copy of the source's document"
        )


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_zarr_python_consolidates_itself_is_the_same(tmp_path: Path, zarr_format: int) -> None:
    climate(tmp_path / "s.zarr", zarr_format)
    with opened(tmp_path / "s.zarr") as tree:
        copy, shown = written(tree.root, tmp_path / "copy"), members(tree)
    zarr.consolidate_metadata(str(copy))
    written_there = json.loads((copy / "zarr.json").read_text())["consolidated_metadata"]
    assert {**written_there, "metadata": None} == {"kind": "inline", "must_understand": False, "metadata": None}
    assert {path: shapes(member) for path, member in written_there["metadata"].items()} == {
        path: shapes(member) for path, member in shown.items()
    }


def test_a_store_without_consolidated_metadata_has_none_in_the_mount(tmp_path: Path) -> None:
    climate(tmp_path / "s.zarr", 3, consolidated=False)
    with opened(tmp_path / "s.zarr") as tree:
        assert "consolidated_metadata" not in document(tree)


def test_each_group_that_has_them_in_the_source_has_them_in_the_mount(tmp_path: Path) -> None:
    climate(tmp_path / "s.zarr", 3, consolidated=False)
    zarr.consolidate_metadata(str(tmp_path / "s.zarr"), path="deep")
    with opened(tmp_path / "s.zarr") as tree:
        assert members(tree) is None
        assert sorted(members(tree, "deep/zarr.json")) == ["er", "er/tas", "er/time", "er/y"]


def test_members_that_are_not_chosen_are_not_named(tmp_path: Path) -> None:
    climate(tmp_path / "s.zarr", 3)
    with opened(tmp_path / "s.zarr", exclude=("deep",)) as tree:
        assert sorted(members(tree)) == ["tas", "time", "y"]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_p9_a_change_of_a_member_shows_although_the_copy_in_the_source_is_old(
    mount: MountFunction, tmp_path: Path, zarr_format: int
) -> None:
    climate(tmp_path / "s.zarr", zarr_format)
    mounted = mount(tmp_path / "s.zarr", "--metadata-ttl", "0")
    zarr.open_consolidated(mounted.path)
    own = zarr.open_group(str(tmp_path / "s.zarr"), use_consolidated=False)
    own["deep/er/tas"].attrs["units"] = "degC"
    own.create_array("new", shape=(2,), dtype="u1")
    shown = zarr.open_consolidated(mounted.path)
    assert shown["deep/er/tas"].attrs["units"] == "degC"
    assert "new" in shown


def test_p8_a_member_that_cannot_be_described_is_never_called_absent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    climate(tmp_path / "s.zarr", 3)
    (tmp_path / "s.zarr/deep/er/tas/zarr.json").write_text("{")
    with opened(tmp_path / "s.zarr") as tree:
        for _ in range(2):
            shown = document(tree)
            assert shown["attributes"] == {"title": "é"}
            assert "consolidated_metadata" not in shown
    assert caplog.text.count("/zarr.json/consolidated_metadata is left out of the layout zarr3: deep/er/tas") == 1


def test_there_is_a_bound(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "s.zarr"
    climate(root, 3)
    own = json.loads((root / "zarr.json").read_text())
    copies, group = own["consolidated_metadata"]["metadata"], {"zarr_format": 3, "node_type": "group"}

    def add(name: str) -> None:
        (root / name).mkdir()
        (root / name / "zarr.json").write_text(json.dumps(group))
        copies[name] = {**group, "attributes": {}}

    for number in range(zarr3.MAX_MEMBERS - len(copies)):
        add(f"g{number}")
    (root / "zarr.json").write_text(json.dumps(own))
    with opened(root) as tree:
        assert len(members(tree)) == zarr3.MAX_MEMBERS
        add("more")
        assert members(tree) is None, "the copies do not name it"
        assert f"more than {zarr3.MAX_MEMBERS + 1} groups and arrays" in caplog.text
        caplog.clear()
        (root / "zarr.json").write_text(json.dumps(own))
        assert members(tree) is None
        assert not caplog.text, "there are too many copies, so nothing is counted"


def test_a_listing_makes_no_consolidated_metadata(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Making them would say that a member is damaged."""
    climate(tmp_path / "s.zarr", 3)
    (tmp_path / "s.zarr/deep/er/tas/zarr.json").write_text("{")
    with opened(tmp_path / "s.zarr") as tree:
        assert {entry.name for entry in tree.list("")} == {"zarr.json", "tas", "time", "y", "deep"}
        assert "deep/er/tas" not in caplog.text
        assert members(tree) is None
        assert "deep/er/tas" in caplog.text


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_consolidated_metadata_of_a_remote_store_are_those_of_the_mount(
    server: FakeS3, tmp_path: Path, zarr_format: int
) -> None:
    climate(tmp_path / "s.zarr", zarr_format)
    for file in (path for path in (tmp_path / "s.zarr").rglob("*") if path.is_file()):
        server.put(str(file.relative_to(tmp_path)), file.read_bytes(), 1e9)
    remote = Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint)
    with opened(f"s3://{BUCKET}/s.zarr", remote=remote) as tree, opened(tmp_path / "s.zarr") as local:
        assert document(tree) == document(local)
        assert len(members(tree)) == 8
