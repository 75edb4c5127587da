"""What `--xattrs` says of groups, arrays and chunks of real stores: their own format, source path, metadata and storage."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from mounting import Mount
from tree_walker import find_node

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.formats.open import open_source
from fsbridge.layouts import root_directory
from fsbridge.tree import Directory


def xattrs(directory: Directory, path: str) -> dict[str, str]:
    found = find_node(directory, path).xattrs()
    return {name.removeprefix("user.fsbridge."): value.decode() for name, value in found.items()}


def test_source_facts_of_every_member_of_a_collection(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "two/x", shape=(4,), chunks=(2,), dtype="<u2", compressors=None, zarr_format=2)[:] = 7
    zarr.create_array(tmp_path / "three/x", shape=(4,), chunks=(2,), dtype="<u2", compressors=None, zarr_format=3)[:] = 7
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.create_dataset("x", data=np.full(4, 7, "<u2"), chunks=(2,), compression="gzip")
    config = Config(str(tmp_path), "/mnt")
    source = open_source(str(tmp_path), config)
    root = root_directory(source, config, ChunkCache(config.cache_size))
    try:
        assert xattrs(root, "")["format"] == "collection"
        for member, form, document in (("two", "zarr2", ".zarray"), ("three", "zarr3", "zarr.json")):
            found = xattrs(root, f"{member}/x")
            assert found["format"] == form == xattrs(root, member)["format"]
            assert found["source"] == str(tmp_path / member / "x")
            assert (found["codec"], found["data_type"][-2:]) == ("none", "u2" if form == "zarr2" else "16")
            assert document in json.loads(found["metadata"])
            assert xattrs(root, f"{member}/x/c/1") == {"chunk_index": "[1]", "stored_size": "4", "codec": "none"}
        assert xattrs(root, "file.h5/x")["format"] == "hdf5"
        assert xattrs(root, "file.h5/x/c/0")["codec"] == "deflate"
    finally:
        source.close()


def test_an_attribute_that_the_kernel_does_not_take_is_not_listed(tmp_path: Path, mount: Callable[..., Mount]) -> None:
    """rsync -X fails where one that is listed cannot be read."""
    zarr.create_group(tmp_path / "s.zarr", attributes={"long": "x" * 70_000}, zarr_format=3)
    tree = mount(tmp_path / "s.zarr", "--xattrs")
    assert sorted(os.listxattr(tree.path)) == ["user.fsbridge.format", "user.fsbridge.source"]
    with pytest.raises(OSError, match="too long"):
        os.getxattr(tree.path, "user.fsbridge.metadata")
