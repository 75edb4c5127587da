"""Consolidated metadata of stores in object storage: a copy saves the request only where it is the document itself (P9)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import pytest
import zarr
from fake_s3 import BUCKET, FakeS3, Request
from model_reader import group_at

from fsbridge.config import Config, Remote
from fsbridge.formats.open import Opening
from fsbridge.model import Group
from fsbridge.store.remote.answers import Answers
from fsbridge.store.remote.client import Client
from fsbridge.store.remote.store import ObjectStore
from fsbridge.store.remote.urls import parse_url

ARRAYS = 40


Version: TypeAlias = Literal[2, 3]


@pytest.fixture(params=[3, 2])
def version(request: pytest.FixtureRequest) -> Version:
    number: Version = request.param
    return number


@pytest.fixture
def local(tmp_path: Path, version: Version) -> Path:
    """A store with the arrays `a0` to `a39`, and as many in the group `g`."""
    root = zarr.open_group(tmp_path / "z", mode="w", zarr_format=version)
    for group in (root, root.create_group("g")):
        for number in range(ARRAYS):
            group.create_array(f"a{number}", data=np.full(4, number, "<i4"), chunks=(4,), attributes={"number": number})
    consolidate(tmp_path / "z", version)
    return tmp_path / "z"


def consolidate(path: Path, version: Version) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in Zarr v3 it is no part of the specification
        zarr.consolidate_metadata(str(path), zarr_format=version)


def open_root(server: FakeS3, version: Version) -> Group:
    """The hierarchy as a mount opens it."""
    options = Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint)
    store = ObjectStore(Client(parse_url(f"s3://{BUCKET}/z"), options), Answers(60.0, 60.0))
    assert store.begin()
    root = group_at(Opening().open_in_store(f"zarr{version}", store, Config("", "")).root, "")
    root.attributes()
    return root


def numbers(group: Group) -> list[object]:
    """The attribute `number` of each array."""
    values: list[object] = []
    for number in range(ARRAYS):
        array = group.child(f"a{number}")
        assert array.kind == "array"
        assert array.metadata.shape == (4,)
        values.append(array.metadata.attributes["number"])
    return values


def documents(requests: list[Request]) -> list[Request]:
    return [request for request in requests if request.kind == "GET"]


def test_copies_that_are_the_documents_themselves_spare_requests(server: FakeS3, local: Path, version: Version) -> None:
    server.put_tree(local, "z")
    root = open_root(server, version)
    with server.counted() as requests:
        assert numbers(root) == list(range(ARRAYS))
    # Until it looks like a walk; a Zarr v2 array has two, and a copy.
    assert len(documents(requests)) <= 2 * (4 - version) + 3
    assert len(requests) - len(documents(requests)) == 1
    group = group_at(root, "g")
    with server.counted() as requests:
        assert numbers(group) == list(range(ARRAYS))
    assert not requests


def test_zarr_python_2_spells_documents_otherwise(server: FakeS3, tmp_path: Path) -> None:
    """Indented by four, sorted."""

    def text(value: object) -> bytes:
        return json.dumps(value, indent=4, sort_keys=True, ensure_ascii=True, separators=(",", ": ")).encode()

    rest = {"compressor": None, "fill_value": 0, "filters": None, "order": "C", "zarr_format": 2}
    consolidated: dict[str, object] = {".zgroup": {"zarr_format": 2}}
    for number in range(ARRAYS):
        consolidated[f"a{number}/.zarray"] = {"chunks": [4], "dtype": "<i4", "shape": [4], **rest}
        consolidated[f"a{number}/.zattrs"] = {"number": number}
    for name, value in consolidated.items():
        server.put(f"z/{name}", text(value), 1e9)
    server.put("z/.zmetadata", text({"metadata": consolidated, "zarr_consolidated_format": 1}), 1e9)
    root = open_root(server, 2)
    with server.counted() as requests:
        assert numbers(root) == list(range(ARRAYS))
    assert len(documents(requests)) <= 7


def by_another_program(path: Path, version: Version) -> None:
    """The consolidated metadata are left behind."""
    zarr.open_array(path / "a30", mode="r+", zarr_format=version).attrs["number"] = -1


def by_a_group_that_knows_no_better(path: Path, version: Version) -> None:
    """The root's document is stored anew, later than the array's, and in Zarr v3 with it the copies of before."""
    group = zarr.open_group(path, mode="r+", zarr_format=version)
    zarr.open_array(path / "a30", mode="r+", zarr_format=version).attrs["number"] = -1
    group.attrs["later"] = True


@pytest.mark.parametrize("change", [by_another_program, by_a_group_that_knows_no_better])
def test_p9_a_copy_that_is_out_of_date_is_not_believed(
    server: FakeS3, local: Path, version: Version, change: Callable[[Path, Version], None]
) -> None:
    change(local, version)
    server.put_tree(local, "z")
    assert numbers(open_root(server, version)) == [-1 if number == 30 else number for number in range(ARRAYS)]


@pytest.mark.parametrize("etag", ["not-of-the-bytes", "d41d8cd98f00b204e9800998ecf8427e-2"])
def test_p9_without_the_md5_of_a_document_it_is_read(server: FakeS3, local: Path, version: Version, etag: str) -> None:
    server.put_tree(local, "z")
    for key, stored in list(server.objects.items()):
        server.put(key, stored.data, stored.mtime, f"{etag}{len(key)}")
    root = open_root(server, version)
    with server.counted() as requests:
        assert numbers(root) == list(range(ARRAYS))
    assert len(documents(requests)) >= ARRAYS


def test_one_array_alone_costs_no_listing(server: FakeS3, local: Path, version: Version) -> None:
    server.put_tree(local, "z")
    root = open_root(server, version)
    with server.counted() as requests:
        root.child("a7")
        root.child("a9")
    assert {request.kind for request in requests} == {"GET"}
    assert len(requests) == 2, "attributes are read only on demand"
