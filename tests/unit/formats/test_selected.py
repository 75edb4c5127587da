"""Selection: a sub-tree is what the whole has there; no file of any layout tells of what is left out; links stay inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from fake_model import FakeGroup, FakeSource, fake_array
from model_reader import group_at
from samples import SAMPLES, Sample
from tree_walker import content, find_node, walk

from fsbridge.config import Config
from fsbridge.errors import AccessDenied, FsbridgeError, NotFound, SetupError
from fsbridge.formats.selected import select
from fsbridge.model import Child, Group, Link, Node
from fsbridge.mount.lifecycle import open_tree

each_format = pytest.mark.parametrize("sample", SAMPLES, indirect=True)


@pytest.fixture(scope="module")
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return SAMPLES[request.param](tmp_path_factory.mktemp("sample"))


def shown(source: Any, below: str = "", **changes: Any) -> dict[str, bytes]:
    """All files below a directory by path."""
    tree = open_tree(Config(source=str(source), mountpoint="/nowhere", **changes))
    try:
        found = walk(find_node(tree.root, below))
    finally:
        tree.close()
    errors = {path: data for path, data in found.items() if isinstance(data, FsbridgeError)}
    assert not errors
    return {path.decode(): data for path, data in found.items() if isinstance(data, bytes)}


def first(sample: Sample) -> str:
    """The path of an array in the group that is looked at, from there."""
    above = f"{sample.group}/"
    return next(path.removeprefix(above) for path in sample.arrays if path.startswith(above))


def names_of(path: str) -> tuple[str, ...]:
    return tuple(path.split("/"))


@each_format
def test_a_sub_tree_is_what_the_whole_has_there(sample: Sample) -> None:
    for path in (sample.group, f"{sample.group}/{first(sample)}"):
        assert shown(sample.source, inside=names_of(path)) == shown(sample.source, path)


@each_format
def test_no_file_names_what_is_left_out(sample: Sample) -> None:
    array, inside = first(sample), names_of(sample.group)
    whole = shown(sample.source, layout="zarr3,files", inside=inside)
    left = shown(sample.source, layout="zarr3,files", inside=inside, exclude=(array,))
    gone = {path for path in whole if path.startswith((f"/zarr3/{array}/", f"/files/{array}."))}
    assert gone
    assert left.keys() == whole.keys() - gone
    page = "/".join(["/files", *array.split("/")[:-1], "index.html"])
    quoted = f'href="./{array.rpartition("/")[2]}.json"'.encode()
    assert quoted in whole[page]
    assert quoted not in left[page]
    only = shown(sample.source, inside=inside, include=(array,))
    assert {path for path in only if not path.endswith("/zarr.json")} <= gone | {path[6:] for path in gone}
    assert f"/{array}/zarr.json" in only


@pytest.mark.parametrize("kind", ["zarr3", "hdf5", "n5"])
def test_the_file_of_the_whole_store_does_not_name_what_is_left_out(kind: str, tmp_path: Path) -> None:
    sample = SAMPLES[kind](tmp_path)
    tree = open_tree(Config(source=str(sample.source), mountpoint="", layout="files", exclude=("g/vol*", "*/curve")))
    try:
        (tmp_path / "g.h5").write_bytes(content(tree.root.lookup(b"g.h5"), 1 << 20))
    finally:
        tree.close()
    with h5py.File(tmp_path / "g.h5") as written:
        assert "volume" not in written
        assert "curve" not in written
        assert np.asarray(written["picture"]).size == sample.arrays["g/picture"].size
        assert "words" in written or kind == "n5"


def group(members: dict[str, Node], **options: Any) -> Group:
    """A root group of those members, of which `options` say what is shown."""
    found = select(FakeSource(FakeGroup(members)), Config("fake", "/mnt", **options)).root
    assert found.kind == "group"
    return found


def names(node: Node) -> list[str]:
    assert node.kind == "group"
    return [child.name for child in node.children()]


def hierarchy() -> dict[str, Node]:
    array = fake_array(np.arange(4), (4,))
    return {
        "a": FakeGroup({"raw": array, "labels": array, "b": FakeGroup({"raw": array})}),
        "c": FakeGroup({"raw": array}),
        "raw": array,
        "up": Link("a/raw"),
    }


def test_patterns_are_of_whole_paths() -> None:
    root = group(hierarchy(), include=("*/raw",))
    assert names(root) == ["a", "c"], "raw is at the top, and groups may lead to more"
    assert names(root.child("a")) == ["raw", "b"]
    root = group(hierarchy(), include=("/a/b/",))
    assert names(root) == ["a"]
    assert names(root.child("a")) == ["b"]
    assert names(group_at(root, "a/b")) == ["raw"]
    for name in ("c", "raw", "up"):
        with pytest.raises(NotFound):
            root.child(name)
    root = group(hierarchy(), include=("a",), exclude=("a/b", "*/labels"))
    assert names(root) == ["a"]
    assert names(root.child("a")) == ["raw"]
    assert names(group(hierarchy(), exclude=("a",))) == ["c", "raw", "up"]
    assert names(group(hierarchy(), include=("A",))) == []


@pytest.mark.parametrize(
    ("target", "leads"),
    [
        ("../x", "../x"),
        ("y", "y"),
        ("../../s/x", "../x"),
        ("../../../o/s/g/y", "../g/y"),
        ("../..", None),
        ("../../x", None),
    ],
)
def test_p4_links_stay_in_the_sub_tree(target: str, leads: str | None) -> None:
    sub = FakeGroup({"x": fake_array(np.arange(4), (4,)), "g": FakeGroup({"l": Link(target)})})
    root = FakeGroup({"o": FakeGroup({"s": sub}), "x": FakeGroup({})})
    found = group_at(select(FakeSource(root), Config("fake", "/mnt", inside=("o", "s"))).root, "g")
    assert list(found.children()) == [Child("l", 3, leads)]
    if leads is not None:
        assert found.child("l") == Link(leads)
        return
    with pytest.raises(AccessDenied, match="outside the part that is mounted"):
        found.child("l")


def test_the_path_may_lead_through_links() -> None:
    array = fake_array(np.arange(4), (4,))
    root = FakeGroup(
        {"HEAD": Link("branches/main"), "branches": FakeGroup({"main": Link("../v/1")}), "v": FakeGroup({"1": array})}
    )
    assert select(FakeSource(root), Config("fake", "/mnt", inside=("HEAD",))).root is array
    root.members["HEAD"] = Link("HEAD")
    with pytest.raises(FsbridgeError, match="too many links"):
        _ = select(FakeSource(root), Config("fake", "/mnt", inside=("HEAD",))).root


def test_a_sub_tree_that_is_not_there_is_said(tmp_path: Path) -> None:
    sample = SAMPLES["zarr3"](tmp_path)
    for inside in (("none",), ("g", "volume", "c")):
        with pytest.raises(SetupError, match=f"//{'/'.join(inside)}: nothing is there"):
            open_tree(Config(source=str(sample.source), mountpoint="", inside=inside))
