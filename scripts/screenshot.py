"""Draws the page of a group of a small store. Not here: Chromium (`browser.py`).

screenshot.py FILE
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import zarr
from browser import browser
from zarr.core.common import JSON

import fsbridge

WIDTH, HEIGHT = 1000, 200


def write(store: Path) -> None:
    """Cells with dark walls around them, each what is nearest to its middle: grey values, labels, and a curve."""
    rng = np.random.default_rng(2026)
    shape, extent = (40, 160, 240), np.array([400.0, 160.0, 240.0])  # z is ten times as far
    places = np.moveaxis(np.indices(shape), 0, -1) * (extent / shape)
    middles = rng.uniform(0, 1, (90, 3)) * extent
    away = np.linalg.norm(places[20, ..., None, :] - middles, axis=-1)
    nearest, second = np.moveaxis(np.partition(away, 1)[..., :2], -1, 0)
    plane = rng.uniform(1800, 3600, len(middles))[away.argmin(-1)] * np.clip((second - nearest) / 6, 0.15, 1)
    raw = np.clip(plane + rng.normal(0, 150, shape), 0, 4095).astype(np.uint16)
    labels = np.broadcast_to(away.argmin(-1) + 1, shape).astype(np.uint64)
    group = zarr.open_group(str(store), mode="w").create_group("volumes", attributes={"subject": "M17", "session": 3})
    told: dict[str, JSON] = {"resolution": [40.0, 4.0, 4.0], "units": ["nm", "nm", "nm"]}
    for name, values in (("raw", raw), ("labels", labels)):
        array = group.create_array(
            name, shape=shape, chunks=(16, 64, 64), dtype=values.dtype, dimension_names=["z", "y", "x"], attributes=told
        )
        array[...] = values
    trace = np.convolve(rng.normal(0, 1, 6000), np.exp(-np.arange(200) / 40))[:6000].astype(np.float32)
    curve = group.create_array(
        "membrane", shape=trace.shape, chunks=(2000,), dtype="f4", dimension_names=["t"], attributes={"units": "mV"}
    )
    curve[...] = trace


def main(file: Path) -> int:
    """Write the picture; the exit code."""
    command = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if command is None:
        print("screenshot: there is no Chromium here: apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "brain.zarr"
        write(store)
        with fsbridge.mounted(str(store), layout="files") as tree, browser(command) as page:
            page.open(Path(tree) / "volumes/index.html", WIDTH, HEIGHT)
            lost = [name for name, width in page.pictures().items() if not width]
            if lost or page.errors():
                print(f"screenshot: {lost} could not be shown; {page.errors()}", file=sys.stderr)
                return 1
            picture = page.screenshot()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(picture)
    print(f"screenshot: {file}, {len(picture):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
