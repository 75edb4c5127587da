"""Large attributes are read again when they are wanted: of the same version of the array, or Stale (P6, P9)."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from model_reader import array_at
from small_documents import write

from fsbridge.config import Config
from fsbridge.errors import Stale
from fsbridge.formats.lazy_metadata import HELD_BYTES, PARSED_BYTES, LazyMapping, ParsedAttributes
from fsbridge.formats.open import open_source


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
        for number, array in enumerate([array_at(source.root, f"d{number}") for number in range(5)]):
            assert isinstance(array.metadata.attributes, LazyMapping)
            assert dict(array.metadata.attributes) == {"large": list(range(number, 100_000 + number)), "small": number}
        small = array_at(source.root, "e")
        assert small.metadata.attributes == {"small": 7}
        assert not isinstance(small.metadata.attributes, LazyMapping)
    finally:
        source.close()


@pytest.mark.parametrize("form", ["zarr3", "zarr2", "n5"])
def test_p9_attributes_are_of_the_arrays_version_or_stale(tmp_path: Path, form: str) -> None:
    write(tmp_path / "s", form, ["a"], {"text": "x" * 2 * HELD_BYTES})
    source = open_source(str(tmp_path / "s"), Config(str(tmp_path / "s"), ""))
    try:
        array = array_at(source.root, "a")
        attributes, native = array.metadata.attributes, array.metadata.native
        assert isinstance(attributes, LazyMapping)
        assert (len(attributes), attributes["text"], "y" in attributes) == (1, "x" * 2 * HELD_BYTES, False)
        assert dict(native)
        (tmp_path / "s/a").rename(tmp_path / "old")
        write(tmp_path / "s", form, ["a"], {"text": "y" * 2 * HELD_BYTES})
        assert attributes["text"][0] == "x", "what was read is of that version for ever"
        assert array_at(source.root, "a").metadata.attributes["text"] == "y" * 2 * HELD_BYTES
        unread = LazyMapping(attributes._load, PARSED_BYTES, ParsedAttributes())
        with pytest.raises(Stale, match="has changed"):
            dict(unread)
    finally:
        source.close()
