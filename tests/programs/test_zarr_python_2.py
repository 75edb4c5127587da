"""Stores written by zarr-python 2.18 (N5Store, Zarr v2), compared with its own reading; see data/make_zarr_python_2.py."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from model_reader import array_at, read_array
from zarr_python_2_data import ARCHIVE, FIXED, OBJECTS

from fsbridge.config import Config
from fsbridge.formats.open import open_source
from fsbridge.model import Group, Node, Source


def group_of(node: Node) -> Group:
    assert isinstance(node, Group)
    return node


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Source]]:
    root = tmp_path_factory.mktemp("zarr2")
    shutil.unpack_archive(ARCHIVE, root)
    names = ("a.n5", "a.zarr", "nested.zarr", "lower.zarr")
    sources = {name: open_source(str(root / name), Config(str(root / name), "")) for name in names}
    yield sources
    for source in sources.values():
        source.close()


@pytest.mark.parametrize("name", sorted(FIXED))
def test_elements_of_a_fixed_size_are_those_that_were_written(stores: dict[str, Source], name: str) -> None:
    store, _, path = name.partition("/")
    array = array_at(stores[store].root, path)
    expected = FIXED[name]
    seen = read_array(array)
    if store == "a.n5":
        seen = seen.transpose()
    assert seen.shape == expected.shape
    assert array.metadata.dtype.itemsize == expected.dtype.itemsize
    assert seen.astype(expected.dtype).tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_objects_are_those_that_were_written(stores: dict[str, Source], name: str) -> None:
    array = array_at(stores["a.zarr"].root, name.partition("/")[2])
    seen = read_array(array).ravel().tolist()
    fill = OBJECTS[name][-1] if isinstance(OBJECTS[name][-1], str) and "square" in name else ""
    if any(text in name for text in ("json", "msgpack", "utf8")):  # JSON text, or Python's: so is the fill value 0
        fill = "0"
    expected = [fill if item in (0, None) else item for item in OBJECTS[name]]
    assert [item.hex() if isinstance(item, bytes) else item for item in seen] == expected


def test_pickled_text_is_read_without_unpickling(stores: dict[str, Source]) -> None:
    array = array_at(stores["a.zarr"].root, "o/pickle")
    assert array.metadata.shape == (9,)
    assert array.chunks.count() == 2
    written = slice(8)  # the rest is filled with the number 0, which is text only in the other array
    assert (
        read_array(array)[written].tolist() == read_array(array_at(stores["a.zarr"].root, "o/vlen-utf8"))[written].tolist()
    )


def test_trap_12_stale_consolidated_metadata_hides_nothing(stores: dict[str, Source]) -> None:
    assert "late" in {child.name for child in group_of(group_of(stores["a.zarr"].root).child("d")).children()}


def test_trap_13_nan_in_attributes_is_a_number(stores: dict[str, Source]) -> None:
    attributes: Any = group_of(stores["a.zarr"].root).attributes()
    assert np.isnan(attributes["nan"][0])
    assert attributes["nan"][1:] == [float("inf"), -float("inf")]


def test_trap_4_xarray_names_are_slowest_first_in_n5(stores: dict[str, Source]) -> None:
    metadata = array_at(stores["a.n5"].root, "t/uint8").metadata
    assert metadata.dimension_names == ("x", "y")
    assert metadata.attributes["_ARRAY_DIMENSIONS"] == ["y", "x"]
    assert metadata.shape == (3, 5)


def test_groups_of_n5_without_a_version_are_read(stores: dict[str, Source]) -> None:
    group: Any = stores["a.n5"].root
    assert group.attributes() == {"multiScale": True}
    assert group.native()["attributes.json"]["n5"] == "2.0.0"


def test_trap_12_nested_keys_are_detected_without_dimension_separator(stores: dict[str, Source]) -> None:
    array = array_at(stores["nested.zarr"].root, "a")
    assert "dimension_separator" not in array.metadata.native[".zarray"]
    assert array.chunks.count() == 6


def test_a_store_with_lower_case_keys_is_read(stores: dict[str, Source]) -> None:
    root = group_of(stores["lower.zarr"].root)
    assert [child.name for child in root.children()] == ["group"]
    assert array_at(root, "group/array").metadata.shape == (5, 3)
