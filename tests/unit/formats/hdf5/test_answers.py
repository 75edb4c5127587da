"""The daemon believes nothing that the HDF5 process says, because a hostile file may have taken it over (P5, P8)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hdf5_children import watched
from hdf5_model import array, opened

from fsbridge.errors import CorruptData, FsbridgeError
from fsbridge.formats.hdf5.answers import parse_dataset
from fsbridge.formats.hdf5.arrays import HDF5Array
from fsbridge.formats.hdf5.chunks import TableChunks

NONSENSE: list[Any] = [
    None, -1, 0, 1, 2**31, 2**63, 2**64, 10**400, 1.5, float("nan"), True, "", "x", "\udc80", [], [1], [[]], ["a", None],
    {}, {"class": "integer"}, [2**62, 2**62], "integer", "compound", "array",
]  # fmt: skip


def write(path: Path) -> Path:
    with h5py.File(path, "w") as file:
        file["number"] = np.arange(24, dtype=">i4").reshape(4, 6)
        file["number"].dims[0].label = "y"
        file.create_dataset("chunked", data=np.arange(100.0).reshape(10, 10), chunks=(3, 4), compression=4, shuffle=True)
        file["fields"] = np.zeros(3, [("a", "<i4"), ("b", ">f8"), ("c", "S3"), ("d", "<u2", (2,))])
        file["texts"] = ["a", "b"]
        file["references"] = np.array([file["number"].ref], h5py.ref_dtype)
        file["flags"] = np.array([True, False])
        file.create_dataset("enum", (2,), h5py.enum_dtype({"no": 0, "yes": 1}))
        file.create_dataset("sequences", (3,), h5py.vlen_dtype("i4"))[0] = [1, 2]
        file.create_dataset("large", (100, 100), "u1", chunks=(1, 1), fillvalue=3)[3] = 1
    return path


def walk_places(found: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ():
        yield (*above, key)
        yield from walk_places(value, (*above, key))


def change_at(answer: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    found = copy.deepcopy(answer)
    inner: Any = found
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return found


def test_a_description_is_taken_or_damage(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5")
    taken = refused = 0
    with opened(path) as source:
        for name in h5py.File(path):
            found = array(source, name)
            answer, _, stat = found.file.ask({"op": "node", "path": [name]})
            for place in walk_places(answer):
                for value in NONSENSE:
                    try:
                        told = HDF5Array(found.file, (name,), parse_dataset(change_at(answer, place, value)), stat)
                        assert isinstance(told.chunks.count() if not isinstance(told.chunks, TableChunks) else 0, int)
                        taken += 1
                    except FsbridgeError:
                        refused += 1
    assert taken > 100
    assert refused > 1000


@pytest.mark.parametrize(
    ("part", "value"),
    [("chunks", 99), ("chunks", "x"), ("chunks", None), ("outside", -1), ("outside", "x"), ("outside", None)],
)
def test_a_chunk_table_that_does_not_fit_is_damage(tmp_path: Path, part: str, value: Any) -> None:
    lies = {part: value}

    def change(question: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        return answer | lies if question["op"] == "table" else answer

    with opened(write(tmp_path / "x.h5"), watched(change=change)) as source:
        found = array(source, "large")
        with pytest.raises(CorruptData):
            found.chunks.find((3, 99))
        lies.clear()
        assert found.chunks.find((3, 99)).stored == 1
