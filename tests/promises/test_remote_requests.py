"""What walks through many arrays cost in requests, as `docs/object-storage.md` says. Without a mount, so that it is exact.

The servers send pages of a tenth as many keys as others do, so that a tenth as many arrays take as many pages.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from fake_s3 import BUCKET, FakeS3

from fsbridge.config import Config, Remote, RemoteLimits
from fsbridge.unmounted import VirtualTree

GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}
ARRAY = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [8],
    "data_type": "int32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0,
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
}
ZARRAY = {
    "zarr_format": 2,
    "shape": [8],
    "chunks": [2],
    "dtype": "<i4",
    "fill_value": 0,
    "order": "C",
    "filters": None,
    "compressor": None,
    "dimension_separator": "/",
}


@pytest.fixture
def server() -> Iterator[FakeS3]:
    server = FakeS3()
    server.page = 100
    yield server
    server.stop()


def walk(tree: VirtualTree, path: str = "", depth: int = 9) -> int:
    """Return how many members lie up to `depth` below `path`, as `find -maxdepth` does."""
    members = list(tree.list(path))
    below = [f"{path}/{member.name}" for member in members if member.attrs.kind == "directory"] if depth > 1 else []
    return len(members) + sum(walk(tree, place.strip("/"), depth - 1) for place in below)


def counted(server: FakeS3, name: str, depth: int = 9, **config: Any) -> tuple[int, Counter[str]]:
    """Return how many members a store has, and the requests that a walk through them took besides those of mounting."""
    limits = RemoteLimits(page_keys=server.page)
    remote = Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint, limits=limits)
    config.setdefault("metadata_ttl", 60.0)
    with server.counted() as opening:
        tree = VirtualTree(Config(f"s3://{BUCKET}/{name}", "", remote=remote, **config))
        tree.stat("")
    assert len(opening) <= 3
    with tree, server.counted() as requests:
        members = walk(tree, depth=depth)
    return members, Counter(request.kind for request in requests)


def put_arrays(server: FakeS3, count: int) -> None:
    """Put the group `z` of so many arrays of 4 chunks."""
    server.put("z/zarr.json", json.dumps(GROUP).encode(), 1e9)
    for number in range(count):
        server.put(f"z/a{number}/zarr.json", json.dumps(ARRAY).encode(), 1e9)
        for chunk in range(4):
            server.put(f"z/a{number}/c/{chunk}", bytes(8), 1e9)


def test_a_walk_through_arrays_costs_a_request_for_each_document_and_ten_more(server: FakeS3) -> None:
    put_arrays(server, 100)
    members, requests = counted(server, "z")
    assert members == 1 + 100 * 7
    assert requests["GET"] <= 100 + 1
    assert requests["LIST"] <= 9


@pytest.mark.parametrize(("read_ahead", "most"), [(True, 5), (False, 251)])
def test_find_over_250_arrays_lists_them_together_unless_read_ahead_is_off(
    server: FakeS3, read_ahead: bool, most: int
) -> None:
    server.page = 1000
    put_arrays(server, 250)
    assert counted(server, "z", read_ahead=read_ahead)[1]["LIST"] in range(most - 2, most + 1)


def test_find_over_arrays_of_zarr_v3_with_consolidated_metadata(server: FakeS3) -> None:
    """One document, and the pages of a listing that has all of them."""
    documents = {f"a{number}": {**ARRAY, "attributes": {"number": number}} for number in range(100)}
    root = {**GROUP, "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": documents}}
    for name, document in {"": root, **{f"{name}/": document for name, document in documents.items()}}.items():
        server.put(f"z/{name}zarr.json", json.dumps(document, indent=2).encode(), 1e9)
    members, requests = counted(server, "z", depth=2)
    assert members == 1 + 100 * 3
    assert requests == {"GET": 1, "LIST": 2}


def test_find_over_arrays_of_zarr_v2_with_consolidated_metadata(server: FakeS3) -> None:
    documents: dict[str, object] = {".zgroup": {"zarr_format": 2}}
    for number in range(100):
        documents |= {f"a{number}/.zarray": ZARRAY, f"a{number}/.zattrs": {"number": number}}
    documents[".zmetadata"] = {"metadata": dict(documents), "zarr_consolidated_format": 1}
    for name, document in documents.items():
        server.put(f"z/{name}", json.dumps(document, indent=4, sort_keys=True).encode(), 1e9)
    members, requests = counted(server, "z", depth=2)
    assert members == 1 + 100 * 3
    assert requests["GET"] <= 4
    assert requests["LIST"] == 3
