"""Plates of wells in programs for screens: all fields as one plate. Not here: single images (`volumes.py`)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from legacy.meaning import Check, Field, differs
from legacy.programs import run
from legacy.whole import bioformats

STORE = "plate.zarr"
WELLS = (("A/1", 0, 0), ("A/3", 0, 2), ("B/2", 1, 1))


def write(folder: Path) -> None:
    told: dict[str, Any] = {
        "name": "screen",
        "rows": [{"name": name} for name in "AB"],
        "columns": [{"name": name} for name in "123"],
        "wells": [{"path": path, "rowIndex": row, "columnIndex": column} for path, row, column in WELLS],
    }
    root = zarr.open_group(str(folder / STORE), mode="w", attributes={"ome": {"version": "0.5", "plate": told}})
    axes = [{"name": "c", "type": "channel"}, *({"name": name, "type": "space"} for name in "yx")]
    for number, (path, _, _) in enumerate(WELLS):
        well = root.create_group(path, attributes={"ome": {"version": "0.5", "well": {"images": [{"path": "0"}]}}})
        scales = [{"axes": axes, "datasets": [{"path": "0"}]}]
        field = well.create_group("0", attributes={"ome": {"version": "0.5", "multiscales": scales}})
        array = field.create_array("0", shape=(2, 64, 80 + number), chunks=(1, 64, 64), dtype="<u2")
        array[...] = np.full(array.shape, number + 1, "<u2")


def info(folder: Path, install: bool) -> list[str]:
    """Bio-Formats' program that prints metadata."""
    return [word.replace("ImageConverter", "ImageInfo") for word in bioformats(folder, install)]


def in_bioformats(command: list[str], mount: Path, scratch: Path) -> None:
    file = mount / "files" / STORE / f"{STORE}.companion.ome"
    shown = run([*command, "-nopix", "-no-upgrade", str(file)])
    differs("images", re.findall(r"Series count = (\d+)", shown), [str(len(WELLS))])
    differs("widths", re.findall(r"Width = (\d+)", shown), [str(80 + number) for number in range(len(WELLS))])


FIELD = Field("plates", write, (Check("Bio-Formats", "companion.ome: one plate", info, in_bioformats),))
