"""What a listing of the layout `files` costs and tells: sizes and times of whole arrays, whose chunks nobody looks at."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import zarr

from fsbridge.config import Config
from fsbridge.errors import Stale
from fsbridge.mount.lifecycle import open_tree
from fsbridge.store.local import LocalStore
from fsbridge.tree import Entry, File

VARIANTS: dict[str, dict[str, Any]] = {
    "zarr2 flat": {"zarr_format": 2},
    "zarr2 nested": {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "zarr3": {"zarr_format": 3},
    "zarr3 flat": {"zarr_format": 3, "chunk_key_encoding": {"name": "default", "separator": "."}},
    "zarr3 sharded": {"zarr_format": 3, "shards": (8, 8)},
}


@pytest.fixture(params=VARIANTS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A group of one array `a` of 4 x 4 chunks, dated to the year 2001 with all that is in it."""
    options = VARIANTS[request.param]
    root = tmp_path / "store.zarr"
    group = zarr.open_group(root, mode="w", zarr_format=options["zarr_format"])
    more = {name: value for name, value in options.items() if name != "zarr_format"}
    group.create_array("a", shape=(16, 16), chunks=(4, 4), dtype="<u2", **more)[...] = np.arange(256).reshape(16, 16) + 1
    for path in (*root.rglob("*"), root):
        os.utime(path, (10**9, 10**9))
    return root


def listed(root: Path) -> dict[bytes, Entry]:
    tree = open_tree(Config(source=str(root), mountpoint="/nowhere", layout="files", metadata_ttl=0))
    try:
        return {entry.name: entry for batch in tree.root.entries() for entry in batch}
    finally:
        tree.close()


def test_a_listing_looks_at_no_chunk_and_is_what_stat_says(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    for operation in ("list", "names", "mtimes"):
        original = getattr(LocalStore, operation)

        def noted(self: LocalStore, key: str, *more: Any, original: Any = original, **named: Any) -> Any:
            looked.append(key)
            return original(self, key, *more, **named)

        monkeypatch.setattr(LocalStore, operation, noted)
    found = listed(store)
    assert set(found) == {b"a.json", b"a.npy"}
    assert looked == [""], "only the group itself is listed, once"
    file = found[b"a.npy"]
    assert file.attrs.size == 128 + 16 * 16 * 2
    assert callable(file.node)
    assert cast(File, file.node()).attrs() == file.attrs
    assert set(looked) == {""}


def test_arrays_that_are_alike_have_the_sizes_that_their_files_have(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "s.zarr", mode="w")
    for name, attributes in (("a", {}), ("longer", {}), ("with space", {}), ("b", {"unit": "µm"}), ("a.npy", {})):
        group.create_array(name, shape=(4, 4), chunks=(4, 4), dtype="<u2", attributes=attributes)
    tree = open_tree(Config(source=str(tmp_path / "s.zarr"), mountpoint="/nowhere", layout="files"))
    found = {entry.name: entry for batch in tree.root.entries() for entry in batch}
    assert set(found) == {b"%s.%s" % (name, suffix) for name in (b"a", b"longer", b"with space", b"b", b"a.npy")
                          for suffix in (b"json", b"npy")} - {b"a.npy"}  # fmt: skip
    for name, entry in found.items():
        file: Any = tree.root.lookup(name)
        assert (entry.attrs, entry.version) == (file.attrs(), file.version)
        handle = file.open()
        assert len(handle.read(0, handle.size)) == handle.size == entry.attrs.size
    tree.close()


def test_a_description_whose_array_has_changed_is_stale(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=2)
    array = group.create_array("a", shape=(4, 4), chunks=(4, 4), dtype="<u2")
    tree = open_tree(Config(source=str(tmp_path / "s.zarr"), mountpoint="/nowhere", layout="files", metadata_ttl=0))
    file: Any = tree.root.lookup(b"a.json")
    array.attrs["more"] = "than before"
    with pytest.raises(Stale):
        file.open()
    assert b"than before" in bytes(cast(Any, tree.root.lookup(b"a.json")).open().content)
    tree.close()


def test_a_chunk_that_comes_later_shows_in_the_mtime(store: Path) -> None:
    before = listed(store)[b"a.npy"].attrs.mtime_ns
    assert before == 10**18
    chunks = store / "a" / "c" if (store / "a" / "c").is_dir() else store / "a"
    os.utime(chunks, (2 * 10**9, 2 * 10**9))  # as the directory's own entry, which a new chunk changes
    assert listed(store)[b"a.npy"].attrs.mtime_ns == 2 * 10**18


@pytest.mark.parametrize("scales", [None, (1.0, 2.0)])
def test_arrays_that_share_their_metadata_have_the_axes_that_the_group_gives_each(
    scales: tuple[float, ...] | None, tmp_path: Path
) -> None:
    def dataset(path: str, scale: float) -> dict[str, Any]:
        return {"path": path, "coordinateTransformations": [{"type": "scale", "scale": [scale, scale]}]}

    told = [dataset(f"s{level}", scale) for level, scale in enumerate(scales or ())]
    group = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=2)
    group.attrs.put({"multiscales": [{"datasets": told}]} if told else {})
    for level in range(2):
        group.create_array(f"s{level}", shape=(4, 4), chunks=(4, 4), dtype="<u2")
    tree = open_tree(Config(source=str(tmp_path / "s.zarr"), mountpoint="/nowhere", layout="files"))
    for level, name in enumerate((b"s0.json", b"s1.json")):
        file: Any = tree.root.lookup(name)
        described = json.loads(bytes(file.open().read(0, file.attrs().size)))
        assert [axis["scale"] for axis in described["axes"]] == [scales[level] if scales else None] * 2
    tree.close()
