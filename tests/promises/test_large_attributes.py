"""Arrays with large attributes take little memory in a mount (P6)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from mounting import MountFunction
from observing import memory
from small_documents import write

from fsbridge.config import MIB


@pytest.mark.parametrize("form", ["zarr3", "zarr2", "n5"])
def test_p6_arrays_of_large_attributes_take_little_memory(tmp_path: Path, mount: MountFunction, form: str) -> None:
    """50 documents of 2 MB."""
    attributes = {"text": "x" * 2_000_000}
    names = [f"a{number}" for number in range(50)]
    write(tmp_path / "s", form, names, attributes)
    tree = mount(tmp_path / "s")
    shown = json.loads((tree / "a0/zarr.json").read_text())["attributes"]
    assert shown["text"] == attributes["text"]
    before = memory(tree.process.pid, "VmRSS")
    for name in names:
        assert os.stat(tree / name / "zarr.json").st_size > 2_000_000
    grown = memory(tree.process.pid, "VmRSS") - before
    assert grown < 60 * MIB, f"{grown / MIB:.0f} MiB"
