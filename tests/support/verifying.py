"""`fsbridge verify` as a program, and small stores for it. Not here: kinds of damage."""

from __future__ import annotations

import json
import os
from pathlib import Path

import h5py
import numpy as np
from in_process import fsbridge


def verify(*words: str | os.PathLike[str], timeout: float = 300) -> tuple[int, list[dict[str, object]], str]:
    done = fsbridge("verify", "--json", *words, timeout=timeout)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


GROUP2 = '{"zarr_format": 2}'
ARRAY2 = json.dumps(
    {"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i4", "compressor": None, "filters": None}
    | {"fill_value": 0, "order": "C"}
)


def zarr2_store(path: Path) -> Path:
    """A Zarr v2 store with the group `g`, the array `g/a` in it, and one chunk."""
    (path / "g/a").mkdir(parents=True)
    for name, text in ((".zgroup", GROUP2), ("g/.zgroup", GROUP2), ("g/a/.zarray", ARRAY2), ("g/a/0", "\0" * 8)):
        (path / name).write_text(text)
    return path


def virtual_file(path: Path) -> None:
    """`v.h5` with data of `s0.h5` and `s1.h5`, of a virtual dataset of `w.h5`, and of this file itself."""
    for number in range(2):
        with h5py.File(path / f"s{number}.h5", "w") as file:
            file["d"] = np.arange(3) + 1
            file["link"] = h5py.SoftLink("/d")
    with h5py.File(path / "w.h5", "w") as file:
        layout = h5py.VirtualLayout((3,), "i8")
        layout[:] = h5py.VirtualSource("s1.h5", "link", (3,))
        file.create_virtual_dataset("w", layout)
    with h5py.File(path / "v.h5", "w") as file:
        file["own"] = np.arange(3)
        layout = h5py.VirtualLayout((4, 3), "i8")
        sources = [("s0.h5", "d"), ("s1.h5", "d"), ("w.h5", "w"), (".", "own")]
        for row, (name, dataset) in enumerate(sources):
            layout[row] = h5py.VirtualSource(name, dataset, (3,))
        file.create_virtual_dataset("v", layout, fillvalue=-5)
