"""The machinery that layouts share, over an in-memory model: several layouts at once, paths that change, documents kept."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
from fake_model import FakeArray, FakeGroup, FakeSource, fake_array, tree
from tree_walker import content, walk

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import NotFound, SetupError, Stale
from fsbridge.layouts import LAYOUTS, parse_layouts, root_directory, zarr3


def test_several_layouts_show_one_directory_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsbridge.layouts.LAYOUTS", {**LAYOUTS, "other": LAYOUTS["zarr3"]})
    config = Config("fake", "/mnt", layout="zarr3,other", metadata_ttl=0.0)
    root = root_directory(FakeSource(FakeGroup({"x": FakeGroup({})})), config, ChunkCache(config.cache_size))
    paths = {b"/zarr.json", b"/x/zarr.json"}
    assert set(walk(root)) == {prefix + path for prefix in (b"/zarr3", b"/other") for path in paths}
    assert [entry.name for batch in root.entries() for entry in batch] == [b"zarr3", b"other"]
    with pytest.raises(NotFound):
        root.lookup(b"x")


@pytest.mark.parametrize("text", ["", "zarr", "zarr3,", "zarr3,zarr3", "zarr3, zarr3"])
def test_layouts_that_are_none(text: str) -> None:
    with pytest.raises(SetupError):
        parse_layouts(text)


def test_p9_a_path_that_becomes_an_array_and_a_group_again() -> None:
    """A working directory shows what is there now; what was opened of the other is stale."""
    group = FakeGroup({"x": FakeGroup({"y": FakeGroup({})})})
    directory: Any = tree(group).lookup(b"x")
    document = directory.lookup(b"zarr.json")
    assert set(walk(directory)) == {b"/zarr.json", b"/y/zarr.json"}
    was, group.members["x"] = group.members["x"], fake_array(np.ones(2, "u1"), (2,))
    assert set(walk(directory)) == {b"/zarr.json", b"/c/0"}
    assert json.loads(content(directory.lookup(b"zarr.json")))["node_type"] == "array"
    with pytest.raises(Stale):
        document.open()
    with pytest.raises(NotFound):
        directory.lookup(b"y")
    chunks = directory.lookup(b"c")
    array, group.members["x"] = group.members["x"], was
    array.newest = False  # type: ignore[attr-defined]
    with pytest.raises(Stale):
        chunks.lookup(b"0").open()
    assert set(walk(directory)) == {b"/zarr.json", b"/y/zarr.json"}
    assert content(document) == content(directory.lookup(b"zarr.json"))


@dataclass
class Asked(FakeArray):
    """An array that counts how often it is asked whether it is the newest."""

    asked: int = 0

    def current(self) -> bool:
        self.asked += 1
        return super().current()


@pytest.mark.parametrize(("immutable", "asked"), [(True, 0), (False, 1)])
def test_each_further_question_asks_an_array_whether_it_is_current_unless_it_never_changes(
    immutable: bool, asked: int
) -> None:
    array = Asked(**vars(fake_array(np.ones(2, "u1"), (2,))))
    directory: Any = tree(FakeGroup({"x": array}), immutable=immutable).lookup(b"x")
    directory.attrs()
    assert array.asked == 0, "the look-up has just opened it"
    directory.attrs()
    assert array.asked == asked


def test_large_documents_are_rendered_once_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[Any] = []
    monkeypatch.setattr("fsbridge.layouts.nodes.COSTLY_BYTES", 100)

    def render(attributes: Any) -> bytes:
        rendered.append(attributes)
        return b"x" * len(str(attributes))

    monkeypatch.setattr(zarr3, "group_document", render)
    group = FakeGroup({})
    directory = tree(group)
    for attributes in ({"a": [1] * 100}, {"a": [1.0] * 100}, {"a": [True] * 100}):
        for _ in range(3):
            group.attrs = json.loads(json.dumps(attributes))  # equal, never the same object
            directory.lookup(b"zarr.json")
    assert len(rendered) == 3, "1, 1.0 and true are different documents"


def test_documents_of_arrays_with_the_same_metadata_are_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[Any] = []
    original = zarr3.array_document
    monkeypatch.setattr(zarr3, "array_document", lambda metadata, names: rendered.append(metadata) or original(metadata))
    arrays = [fake_array(np.full(4, number, "u1"), (2,)) for number in range(3)]
    arrays[1] = replace(arrays[1], metadata=arrays[0].metadata)
    root = tree(FakeGroup({str(number): array for number, array in enumerate(arrays)}))
    shown = [content(cast(Any, root.lookup(b"%d" % number)).lookup(b"zarr.json")) for number in (0, 1, 2, 0, 1)]
    assert shown[0] == shown[1] == original(arrays[0].metadata)
    assert shown[2] == original(arrays[2].metadata)
    assert [metadata is arrays[0].metadata for metadata in rendered] == [True, False]
