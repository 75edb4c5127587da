"""Texts of HDF5 files that are not UTF-8, and array fields of impossible sizes. Not here: the other types."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from hdf5_model import array, decoded, opened, values
from model_reader import split_items

from fsbridge.errors import CorruptData
from fsbridge.formats.hdf5.child.data import TEXTS_LOOKED_AT
from fsbridge.formats.hdf5.types import numpy_type


@pytest.mark.parametrize("dims", [[1 << 40], [1 << 31], [65536, 65536], [0], [-1], [1] * 33, [3]])
def test_an_array_field_that_is_not_of_its_size_is_damage(dims: list[int]) -> None:
    number = {"class": "integer", "size": 4, "signed": True, "order": "little"}
    described = {"class": "array", "size": 8, "dims": dims, "base": number}
    with pytest.raises(CorruptData, match="impossible array type"):
        numpy_type({"class": "compound", "size": 8, "fields": [["a", 0, described]]})


@pytest.mark.parametrize("charset", ["ascii", "utf-8"])
@pytest.mark.parametrize("chunks", [None, (2,)])
def test_p12_texts_that_are_not_utf8_are_bytes(tmp_path: Path, charset: str, chunks: tuple[int, ...] | None) -> None:
    """zarr-python cannot decode such a `string`; h5py gives the bytes, whatever character set is declared."""
    words = [b"caf\xe9", "h\u00e4".encode(), b"", b"d"]
    with h5py.File(tmp_path / "s.h5", "w") as file:
        made = file.create_dataset("latin", (4,), h5py.string_dtype(charset), chunks=chunks)
        for number, word in enumerate(words):
            made[number] = word
        file.create_dataset("text", data=["h\u00e4".encode(), b"b"], dtype=h5py.string_dtype(charset))
        file.create_dataset("scalar", data=b"\xb5m", dtype=h5py.string_dtype(charset))
    with opened(tmp_path / "s.h5") as source:
        latin, text, scalar = (array(source, name) for name in ("latin", "text", "scalar"))
        assert (latin.metadata.dtype.name, scalar.metadata.dtype.name) == ("variable_length_bytes",) * 2
        assert latin.metadata.dtype.native.startswith("H5T_STRING(variable")
        assert values(latin).tolist() == words
        assert values(scalar).tolist() == b"\xb5m"
        assert text.metadata.dtype.name == "string"
        assert values(text).tolist() == ["h\u00e4", "b"]


def test_p3_a_text_that_is_not_utf8_among_many_is_an_error_of_its_chunk(tmp_path: Path) -> None:
    """Too many are not looked at before they are read."""
    count = TEXTS_LOOKED_AT + 2
    with h5py.File(tmp_path / "s.h5", "w") as file:
        made = file.create_dataset("text", (count,), h5py.string_dtype("ascii"), chunks=(count // 2,))
        made[...] = np.full(count, b"a", object)
        made[count // 2 + 3] = b"caf\xe9"
    with opened(tmp_path / "s.h5") as source:
        text = array(source, "text")
        assert text.metadata.dtype.name == "string"
        assert split_items(decoded(text, (0,))) == [b"a"] * (count // 2)
        with pytest.raises(CorruptData, match=r"s\.h5:/text: chunk \[1\]: item 3: .*utf-8"):
            decoded(text, (1,))
