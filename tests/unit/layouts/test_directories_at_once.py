"""Documents of groups that the event loop opens itself: the present ones, or none at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from asked import at_once

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import Stale
from fsbridge.formats.hdmf import HdmfGroup
from fsbridge.formats.open import open_source
from fsbridge.layouts import root_directory
from fsbridge.layouts.nodes import BytesHandle

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


def content(handle: BytesHandle | None) -> bytes:
    assert handle is not None
    return bytes(handle.content)


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
        assert content(at_once(document.open)) == content(document.open())
        write(path / "g", group({"unit": "s"}))
        assert at_once(document.open) is None
        with pytest.raises(Stale):
            document.open()
        document = root.lookup(b"g").lookup(name)
        assert b'"s"' in content(at_once(document.open))
        write(path / "g", array)
        if (format_, layout) == ("zarr2", "zarr2"):  # the array has the group's `.zattrs`
            assert content(at_once(document.open)) == content(document.open())
        else:
            assert at_once(document.open) is None


def test_p9_a_document_of_a_group_that_was_removed_is_not_opened_at_once(store: tuple[Path, str]) -> None:
    path, _ = store
    with shown(path, "zarr3") as root:
        document = root.lookup(b"g").lookup(b"zarr.json")
        (path / "g").rename(path / "h")
        assert at_once(document.open) is None
        (path / "h").rename(path / "g")
        assert content(at_once(document.open)) == content(document.open())


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
        assert b'"mV"' in content(at_once(document.open))


def test_links_to_other_files_are_looked_at_by_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target of hdmf-zarr's links is a question that may wait, and the layout `n5` shows it."""
    path = tmp_path / "store"
    links = [{"name": "x", "path": "/y", "source": "../other"}]
    group = FORMATS["zarr2"][0]
    write(path, {**group({".specloc": "specifications"})})
    write(path / "g", group({"zarr_link": links}))
    asked: list[object] = []
    native = HdmfGroup.native
    monkeypatch.setattr(HdmfGroup, "native", lambda self: (asked.append(self.key), native(self))[1])
    with shown(path, "n5") as root:
        document = root.lookup(b"g").lookup(b"attributes.json")
        opened = content(document.open())
        asked.clear()
        assert at_once(document.open) is None
        assert asked == ["g"]
        assert content(document.open()) == opened
