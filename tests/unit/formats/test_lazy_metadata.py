"""Large attributes are read again when they are wanted: of the same version of the array, or Stale (P6, P9)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from mounting import Mount
from observing import memory

from fsbridge.config import MIB, Config
from fsbridge.errors import Stale
from fsbridge.formats.lazy_metadata import HELD_BYTES, PARSED_BYTES, LazyMapping
from fsbridge.formats.open import open_source
from fsbridge.model import as_array

ZARR3 = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [1],
    "data_type": "uint8",
    "fill_value": 0,
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
    "chunk_key_encoding": {"name": "default"},
    "codecs": [{"name": "bytes"}],
}
ZARR2 = {
    "zarr_format": 2,
    "shape": [1],
    "chunks": [1],
    "dtype": "|u1",
    "fill_value": 0,
    "compressor": None,
    "filters": None,
    "order": "C",
}
N5 = {"dimensions": [1], "blockSize": [1], "dataType": "uint8", "compression": {"type": "raw"}}


def store(path: Path, form: str, names: list[str], attributes: Mapping[str, Any]) -> None:
    """Arrays of equal attributes; their documents are one file of many names."""
    documents: Mapping[str, Mapping[str, Any]] = {
        "zarr3": {"zarr.json": {**ZARR3, "attributes": attributes}},
        "zarr2": {".zarray": ZARR2, ".zattrs": attributes},
        "n5": {"attributes.json": {**N5, **attributes}},
    }[form]
    for name in names:
        (path / name).mkdir(parents=True)
        for file, values in documents.items():
            if name == names[0]:
                (path / name / file).write_text(json.dumps(values))
            else:
                os.link(path / names[0] / file, path / name / file)


@pytest.mark.parametrize("form", ["zarr3", "zarr2", "n5"])
def test_p6_arrays_of_large_attributes_take_little_memory(tmp_path: Path, mount: Callable[..., Mount], form: str) -> None:
    """100 documents of 3 MiB."""
    attributes = {"text": "x" * 3_000_000}
    names = [f"a{number}" for number in range(100)]
    store(tmp_path / "s", form, names, attributes)
    tree = mount(tmp_path / "s")
    shown = json.loads((tree / "a0/zarr.json").read_text())["attributes"]
    assert shown["text"] == attributes["text"]
    before = memory(tree.process.pid, "VmRSS")
    for name in names:
        assert os.stat(tree / name / "zarr.json").st_size > 3_000_000
    grown = memory(tree.process.pid, "VmRSS") - before
    assert grown < 150 * MIB, f"{grown / MIB:.0f} MiB"


def test_p6_hdf5_datasets_of_large_attributes_hold_none(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w", libver="latest") as file:
        for number in range(5):
            dataset = file.create_dataset(f"d{number}", data=np.arange(4), chunks=(2,))
            dataset.attrs["large"] = np.arange(100_000) + number
            dataset.attrs["small"] = number
        file["e"] = [1]
        file["e"].attrs["small"] = 7
    source = open_source(str(tmp_path / "x.h5"), Config(str(tmp_path / "x.h5"), ""))
    try:
        children = [source.root.child(f"d{number}") for number in range(5)]  # type: ignore[union-attr]
        for number, child in enumerate(children):
            array = as_array(child)
            assert array is not None
            assert isinstance(array.metadata.attributes, LazyMapping)
            assert dict(array.metadata.attributes) == {"large": list(range(number, 100_000 + number)), "small": number}
        small = as_array(source.root.child("e"))  # type: ignore[union-attr]
        assert small is not None
        assert small.metadata.attributes == {"small": 7}
        assert not isinstance(small.metadata.attributes, LazyMapping)
    finally:
        source.close()


@pytest.mark.parametrize("form", ["zarr3", "zarr2", "n5"])
def test_p9_attributes_are_of_the_arrays_version_or_stale(tmp_path: Path, form: str) -> None:
    store(tmp_path / "s", form, ["a"], {"text": "x" * 2 * HELD_BYTES})
    source = open_source(str(tmp_path / "s"), Config(str(tmp_path / "s"), ""))
    try:
        array = as_array(source.root.child("a"))  # type: ignore[union-attr]
        assert array is not None
        attributes, native = array.metadata.attributes, array.metadata.native
        assert isinstance(attributes, LazyMapping)
        assert (len(attributes), attributes["text"], "y" in attributes) == (1, "x" * 2 * HELD_BYTES, False)
        assert dict(native)
        (tmp_path / "s/a").rename(tmp_path / "old")
        store(tmp_path / "s", form, ["a"], {"text": "y" * 2 * HELD_BYTES})
        assert attributes["text"][0] == "x", "what was read is of that version for ever"
        fresh = as_array(source.root.child("a"))  # type: ignore[union-attr]
        assert fresh is not None
        assert fresh.metadata.attributes["text"] == "y" * 2 * HELD_BYTES
        unread = LazyMapping(attributes._load, PARSED_BYTES)  # type: ignore[attr-defined]
        with pytest.raises(Stale, match="has changed"):
            dict(unread)
    finally:
        source.close()
