"""The machinery that layouts share: several at once, paths that change, documents kept, and documents opened at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asked import at_once
from fake_model import FakeArray, FakeGroup, fake_array, tree
from tree_walker import content, walk

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import NotFound, SetupError, Stale
from fsbridge.formats.open import open_source
from fsbridge.layouts import parse_layouts, root_directory
from fsbridge.layouts.nodes import BytesHandle
from fsbridge.layouts.zarr3 import array_document
from fsbridge.tree import Directory


def test_several_layouts_show_one_directory_each() -> None:
    root = tree(FakeGroup({"x": FakeGroup({})}), layout="zarr3,n5")
    names = ((b"/zarr3", b"zarr.json"), (b"/n5", b"attributes.json"))
    assert set(walk(root)) == {layout + folder + document for layout, document in names for folder in (b"/", b"/x/")}
    assert [entry.name for batch in root.entries() for entry in batch] == [b"zarr3", b"n5"]
    with pytest.raises(NotFound):
        root.lookup(b"x")


@pytest.mark.parametrize("text", ["", "zarr", "zarr3,", "zarr3,zarr3", "zarr3, zarr3"])
def test_names_of_unknown_or_repeated_layouts_are_refused(text: str) -> None:
    with pytest.raises(SetupError):
        parse_layouts(text)


def test_p9_a_path_may_become_an_array_and_then_a_group_again() -> None:
    """A working directory shows what is there now; what was opened of the other is stale."""
    group = FakeGroup({"x": FakeGroup({"y": FakeGroup({})})})
    directory: Any = tree(group).lookup(b"x")
    document = directory.lookup(b"zarr.json")
    assert set(walk(directory)) == {b"/zarr.json", b"/y/zarr.json"}
    was, array = group.members["x"], fake_array(np.ones(2, "u1"), (2,))
    group.members["x"] = array
    assert set(walk(directory)) == {b"/zarr.json", b"/c/0"}
    assert json.loads(content(directory.lookup(b"zarr.json")))["node_type"] == "array"
    with pytest.raises(Stale):
        document.open()
    with pytest.raises(NotFound):
        directory.lookup(b"y")
    chunks = directory.lookup(b"c")
    group.members["x"] = was
    array.newest = False
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
def test_each_question_asks_an_array_if_it_is_current_unless_it_never_changes(immutable: bool, asked: int) -> None:
    array = Asked(**vars(fake_array(np.ones(2, "u1"), (2,))))
    directory: Any = tree(FakeGroup({"x": array}), immutable=immutable).lookup(b"x")
    directory.attrs()
    assert array.asked == 0, "the look-up has just opened it"
    directory.attrs()
    assert array.asked == asked


def document_bytes(directory: Directory) -> bytes:
    """The very object in memory that `zarr.json` is read from."""
    document: Any = directory.lookup(b"zarr.json")
    return content_of(document.open())


def test_large_documents_are_rendered_once_while_nothing_changes() -> None:
    group = FakeGroup({})
    directory = tree(group)
    documents = []
    for attributes in ({"a": [1] * 30_000}, {"a": [1.0] * 30_000}, {"a": [True] * 30_000}):
        for _ in range(3):
            group.attrs = json.loads(json.dumps(attributes))  # equal, never the same object
            documents.append(document_bytes(directory))
    assert len({id(document) for document in documents}) == 3, "1, 1.0 and true are different documents"


def test_documents_of_arrays_with_the_same_metadata_are_rendered_once() -> None:
    arrays = [fake_array(np.full(4, number, "u1"), (2,)) for number in range(3)]
    arrays[1] = replace(arrays[1], metadata=arrays[0].metadata)
    root: Any = tree(FakeGroup({str(number): array for number, array in enumerate(arrays)}))
    documents = [document_bytes(root.lookup(b"%d" % number)) for number in (0, 1, 2, 0, 1)]
    assert set(documents) == {array_document(arrays[0].metadata)}
    same = [document is documents[0] for document in documents]
    assert same == [True, True, False, True, True]


Documents = dict[str, Any]

V2 = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "|u1", "fill_value": 0, "order": "C"}
V3 = {"zarr_format": 3, "shape": [2], "data_type": "uint8", "fill_value": 0, "codecs": ["bytes"]}
GRID = {"name": "regular", "configuration": {"chunk_shape": [2]}}
FORMATS: dict[str, tuple[Callable[[Any], Documents], Documents]] = {
    "zarr2": (
        lambda attributes: {".zgroup": {"zarr_format": 2}, ".zattrs": attributes},
        {".zarray": {**V2, "compressor": None, "filters": None}},
    ),
    "zarr3": (
        lambda attributes: {"zarr.json": {"zarr_format": 3, "node_type": "group", "attributes": attributes}},
        {"zarr.json": {**V3, "node_type": "array", "chunk_grid": GRID, "chunk_key_encoding": "default"}},
    ),
    "n5": (
        lambda attributes: {"attributes.json": attributes},
        {"attributes.json": {"dimensions": [2], "blockSize": [2], "dataType": "uint8", "compression": {"type": "raw"}}},
    ),
}
"""By format: the documents of a group with some attributes, and those of an array."""


def write(path: Path, documents: Documents) -> None:
    path.mkdir(exist_ok=True)
    for name, values in documents.items():
        (path / "new").write_text(json.dumps(values))
        (path / "new").rename(path / name)


@contextmanager
def shown(path: Path, layout: str, **options: Any) -> Iterator[Any]:
    """The root directory of a mount of that layout."""
    config = Config(str(path), "/mnt", layout=layout, **options)
    source = open_source(config.source, config)
    try:
        yield root_directory(source, config, ChunkCache(config.cache_size))
    finally:
        source.close()


def content_of(handle: BytesHandle | None) -> bytes:
    assert handle is not None
    assert isinstance(handle.content, bytes)
    return handle.content


@pytest.fixture(params=FORMATS)
def store(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, str]:
    """A store with a group `g`, and its format."""
    group, _ = FORMATS[request.param]
    write(tmp_path / "store", group({"n5": "2.0.0"} if request.param == "n5" else {}))
    write(tmp_path / "store/g", group({"unit": "mV"}))
    return tmp_path / "store", request.param


@pytest.mark.parametrize(("layout", "name"), [("zarr3", b"zarr.json"), ("zarr2", b".zattrs"), ("n5", b"attributes.json")])
def test_p9_a_groups_document_is_opened_at_once_and_is_the_present_one(
    store: tuple[Path, str], layout: str, name: bytes
) -> None:
    path, format_ = store
    group, array = FORMATS[format_]
    with shown(path, layout) as root:
        document = root.lookup(b"g").lookup(name)
        assert content_of(at_once(document.open)) == content_of(document.open())
        write(path / "g", group({"unit": "s"}))
        assert at_once(document.open) is None
        with pytest.raises(Stale):
            document.open()
        document = root.lookup(b"g").lookup(name)
        assert b'"s"' in content_of(at_once(document.open))
        write(path / "g", array)
        if (format_, layout) == ("zarr2", "zarr2"):  # the array has the group's `.zattrs`
            assert content_of(at_once(document.open)) == content_of(document.open())
        else:
            assert at_once(document.open) is None


def test_p9_a_document_of_a_group_that_was_removed_is_not_opened_at_once(store: tuple[Path, str]) -> None:
    path, _ = store
    with shown(path, "zarr3") as root:
        document = root.lookup(b"g").lookup(b"zarr.json")
        (path / "g").rename(path / "h")
        assert at_once(document.open) is None
        (path / "h").rename(path / "g")
        assert content_of(at_once(document.open)) == content_of(document.open())


def test_p8_a_damaged_document_of_a_group_is_left_to_a_worker(store: tuple[Path, str]) -> None:
    path, format_ = store
    with shown(path, "zarr3") as root:
        document = root.lookup(b"g").lookup(b"zarr.json")
        name = next(reversed(FORMATS[format_][0]({})))
        (path / "g" / name).write_text("{")
        assert at_once(document.open) is None


def test_in_an_immutable_store_a_groups_document_is_what_it_was(store: tuple[Path, str]) -> None:
    path, format_ = store
    with shown(path, "zarr3", immutable=True) as root:
        document = root.lookup(b"g").lookup(b"zarr.json")
        write(path / "g", FORMATS[format_][0]({"unit": "s"}))
        assert b'"mV"' in content_of(at_once(document.open))


def test_links_to_other_files_are_looked_at_by_a_worker(tmp_path: Path) -> None:
    """The target of hdmf-zarr's links is a question that may wait, and the layout `n5` shows it."""
    path = tmp_path / "store"
    links = [{"name": "x", "path": "/y", "source": "../other"}]
    group = FORMATS["zarr2"][0]
    write(path, group({".specloc": "specifications"}))
    write(path / "linking", group({"zarr_link": links}))
    write(path / "plain", group({}))
    with shown(path, "n5") as root:
        for name, waits in ((b"linking", True), (b"plain", False)):
            document = root.lookup(name).lookup(b"attributes.json")
            content = content_of(document.open())
            assert (at_once(document.open) is None) == waits
            assert content_of(document.open()) == content
