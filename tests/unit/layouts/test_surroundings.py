"""What stands around arrays is read once, and again only if it has changed."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from fake_model import fake_array

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.formats.open import open_source
from fsbridge.layouts.members import Context, SourceMember
from fsbridge.layouts.surroundings import Look, Surroundings, _Part
from fsbridge.meaning import Axis, System
from fsbridge.metadata import JSON
from fsbridge.model import Group, as_array


@pytest.fixture
def group(tmp_path: Path) -> SourceMember:
    root = zarr.create_group(tmp_path / "s", attributes={"above": 1})
    made = root.create_group("g", attributes={"units": "m"})
    made.create_array("x", data=np.array([0.0, 2.0, 4.0]), dimension_names=["x"], attributes={"units": "s"})
    made.create_array("bounds", data=np.zeros((3, 2)))
    config = Config(str(tmp_path / "s"), "/nowhere")
    source = open_source(config.source, config)
    context = Context(source.format_at, config, ChunkCache(config.cache_size))
    return SourceMember(context, lambda: source.root).child("g")


def around(group: SourceMember) -> Surroundings:
    return Surroundings(Look(group.context, group))


def rewrite(path: Path, change: dict[str, Any]) -> None:
    """Replace a document, as a writer does it."""
    document = json.loads(path.read_text())
    path.with_suffix(".new").write_text(json.dumps({**document, **change}))
    os.replace(path.with_suffix(".new"), path)


def test_attributes_of_groups_and_arrays_beside_are_found(group: SourceMember) -> None:
    found = around(group)
    assert found.groups == [{"units": "m"}, {"above": 1}]
    values, attributes = found.coordinate("x") or (None, None)
    assert values is not None
    assert (values.tolist(), attributes) == ([0.0, 2.0, 4.0], {"units": "s"})
    assert found.coordinate("bounds") is None
    bounds = found.variable("bounds")
    assert bounds is not None
    assert bounds.values.shape == (3, 2)
    assert found.coordinate("y") is found.variable("y") is None


def test_p9_only_what_was_used_counts_and_only_if_it_says_something_else(group: SourceMember, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    used, other = around(group), around(group)
    assert used.groups
    assert used.coordinate("x") is not None
    assert other.coordinate("y") is None
    before = used.version
    assert used.is_current()
    assert other.is_current()
    zarr.open_array(folder / "g/x", mode="r+")[:] = [0.0, 1.0, 2.0]
    assert not used.is_current()
    assert other.is_current(), "it has not used that array"
    now = around(group)
    assert now.groups
    values, _ = now.coordinate("x") or (None, {})
    assert values is not None
    assert values.tolist() == [0.0, 1.0, 2.0]
    assert now.version != before
    rewrite(folder / "zarr.json", {})
    zarr.open_group(folder, mode="r+").create_array("new", shape=(1,), dtype="u1")
    assert now.is_current(), "the groups say the same"
    rewrite(folder / "zarr.json", {"attributes": {"above": 2}})
    assert not now.is_current()
    zarr.open_group(folder / "g", mode="r+").create_array("y", data=np.zeros(1))
    assert not other.is_current(), "there is such an array now"


def test_p9_what_a_meaning_has_read_beside_an_array_counts(group: SourceMember, tmp_path: Path) -> None:
    folder = tmp_path / "s/g"
    made = zarr.open_group(folder, mode="r+")
    made.create_array("crs", shape=(), dtype="i4", attributes={"grid_mapping_name": "mercator", "epsg_code": 3395})
    array = fake_array(np.zeros(3, "u1"), (3,), attributes={"grid_mapping": "crs"}, dimension_names=("x",))
    before = around(group)
    meaning = before.meaning(array.metadata, ("g", "a"), False)
    assert (meaning.system, meaning.axes) == (System(3395, False), (Axis("x", "second", 2.0),))
    assert before.is_current()
    rewrite(folder / "crs/zarr.json", {"attributes": {"grid_mapping_name": "mercator", "epsg_code": 3857}})
    assert not before.is_current()
    now = around(group)
    assert now.meaning(array.metadata, ("g", "a"), False).system == System(3857, False)
    assert now.version != before.version


def test_p9_attributes_of_a_group_elsewhere_count(group: SourceMember, tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "s", mode="r+")
    root.create_group("i").create_group("image", attributes={"unit": "m"})
    before, without = around(group), around(group)
    assert before.read_distant(("i", "image")) == {"unit": "m"}
    for path in (("i", "none"), ("g", "x"), ("g", "x", "y")):
        assert without.read_distant(path) is None
    assert before.is_current()
    assert without.is_current()
    rewrite(tmp_path / "s/i/image/zarr.json", {"attributes": {"unit": "s"}})
    assert not before.is_current()
    assert without.is_current(), "it has not used that group"
    now = around(group)
    assert now.read_distant(("i", "image")) == {"unit": "s"}
    assert now.version != before.version
    root.create_group("i/none")
    assert not without.is_current(), "there is such a group now"


def test_p9_names_of_members_count(group: SourceMember, tmp_path: Path) -> None:
    before = around(group)
    assert sorted(before.members()) == ["bounds", "x"]
    assert before.is_current()
    zarr.open_group(tmp_path / "s/g", mode="r+").create_group("new")
    assert not before.is_current()
    assert "new" in around(group).members()


def test_a_look_reads_again_only_what_has_changed(group: SourceMember, tmp_path: Path) -> None:
    reads: list[str] = []

    class NotedLook(Look):
        def _read_array(self, name: str) -> _Part:
            reads.append(name)
            return super()._read_array(name)

    def around(group: SourceMember) -> Surroundings:
        return Surroundings(NotedLook(group.context, group))

    first = around(group)
    for name in ("x", "bounds", "x"):
        first.variable(name)
    assert reads == ["x", "bounds"]
    second = around(group)
    assert second.variable("x") is not None
    assert second.version != first.version
    assert reads == ["x", "bounds"]
    os.utime(tmp_path / "s/g/x/c/0")
    third = around(group)
    assert third.variable("bounds") is not None
    assert third.variable("x") is not None
    assert reads == ["x", "bounds", "x"]


def test_a_group_has_its_documents_version_and_is_current_while_one_says_so(group: SourceMember, tmp_path: Path) -> None:
    found, folder = group.group(), tmp_path / "s/g"
    version = found.version
    assert found.version == version
    rewrite(folder / "zarr.json", {"attributes": {}})
    assert found.version != version
    assert found.current()
    (folder / "zarr.json").unlink()
    assert not found.current()
    assert group.group().attributes() == {}, "a directory without a document is a group as well"


def test_p7_a_group_in_a_store_that_hangs_keeps_no_other_one_waiting(group: SourceMember) -> None:
    """Python 3.11 has one lock for a cached property of all instances of a class."""
    entered, goes_on, impartial = threading.Event(), threading.Event(), list[bool]()

    class Hanging(SourceMember):
        def group(self) -> Group:
            entered.set()
            assert goes_on.wait(60)
            return super().group()

    hanging = Hanging(group.context, group.group, ("hangs",))
    waiting = threading.Thread(target=lambda: around(hanging).impartial, daemon=True)
    waiting.start()
    assert entered.wait(60)
    other = threading.Thread(target=lambda: impartial.append(around(group).impartial), daemon=True)
    other.start()
    other.join(30.0)
    seen = list(impartial)
    goes_on.set()
    waiting.join(60)
    assert seen == [True]


def test_arrays_at_paths_are_found_but_none_beyond_the_store_or_behind_an_array(group: SourceMember, tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "s")
    mapping: dict[str, JSON] = {"grid_mapping_name": "latitude_longitude", "epsg_code": "EPSG:4258"}
    root.create_array("maps/crs", data=np.array(0), attributes=mapping)
    zarr.create_array(str(tmp_path / "outside"), data=np.array(0), attributes=mapping)
    found, unknown = System(4258, True), System(None, None)
    for path, system in (
        ("/maps/crs", found),
        ("../maps/crs: x", found),
        ("./../maps/../maps/crs", found),
        ("../../outside", unknown),
        ("/../outside", unknown),
        ("x/crs", unknown),
        ("/gone/crs", unknown),
        ("/", unknown),
    ):
        array = root.create_array("g/a", data=np.zeros(3), attributes={"grid_mapping": path}, overwrite=True)
        assert array.shape == (3,)
        opened = group.group().child("a")
        metadata = as_array(opened)
        assert metadata is not None
        assert around(group).meaning(metadata.metadata, ("g", "a"), False).system == system, path


def test_a_mapping_at_a_path_is_read_again_when_it_changes(group: SourceMember, tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "s")
    crs = root.create_array("crs", data=np.array(0), attributes={"epsg_code": "EPSG:4258"})
    found = around(group)
    assert (found.coordinate("/crs") or ((), {}))[1] == {"epsg_code": "EPSG:4258"}
    assert found.is_current()
    crs.attrs["epsg_code"] = "EPSG:4326"
    assert not found.is_current()
    assert (around(group).coordinate("../crs") or ((), {}))[1] == {"epsg_code": "EPSG:4326"}
