"""The Hangar repositories of tests/data/hangar/, unpacked, and what Hangar's checkout reads (tests/data/make_hangar.py)."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

DATA = Path(__file__).parents[1] / "data" / "hangar"


def unpack(name: str, folder: Path) -> Path:
    """Unpack the repository `main`, `crashed` or `partial` into `folder`; the path that holds its `.hangar`."""
    folder.mkdir(exist_ok=True)
    with tarfile.open(DATA / f"{name}.tar.xz") as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian 12's Python has no filters yet
        tar.extractall(folder)
    return folder


@dataclass(frozen=True)
class Expected:
    """Values by `(commit, column, sample[, subsample])`; branches by name; commits by digest."""

    values: dict[tuple[str, ...], Any]
    branches: dict[str, str]
    commits: dict[str, dict[str, Any]]

    @classmethod
    def load(cls, name: str) -> Expected:
        document = json.loads((DATA / f"{name}.json").read_text())
        with np.load(DATA / f"{name}.npz") as archive:
            arrays = dict(archive)
        values: dict[tuple[str, ...], Any] = {
            tuple(place.split("|")): arrays[str(number)] for place, number in document["arrays"].items()
        }
        for place, text in document["texts"].items():
            values[tuple(place.split("|"))] = text["str"] if "str" in text else bytes.fromhex(text["bytes"])
        return cls(values, document["branches"], document["commits"])

    def keys(self, commit: str, column: str) -> set[tuple[str, ...]]:
        """Sample (and subsample) keys of a column; those of table10 are a part only."""
        return {place[2:] for place in self.values if place[:2] == (commit, column)}


def put(path: Path, values: dict[bytes, bytes | None]) -> None:
    """Write to one of a repository's databases, as Hangar does; None deletes."""
    with lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 28) as database, database.begin(write=True) as txn:
        for key, value in values.items():
            if value is None:
                txn.delete(key)
            else:
                txn.put(key, value)


def get(path: Path, key: bytes) -> bytes:
    """One value of a database."""
    with lmdb.open(str(path), subdir=False, lock=False, readonly=True) as environment, environment.begin() as txn:
        value = txn.get(key)
    assert value is not None
    return bytes(value)
