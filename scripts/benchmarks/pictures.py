"""Rows about what is looked at: the preview of a large pyramid, and one tile of it, in a mount that has decoded nothing yet.

Not here: whole arrays (`whole.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from benchmarks import data, mounts
from benchmarks.rounds import Bound, Contender, Row, alternate
from benchmarks.settings import Settings

SHAPE = (65536, 81920)
"""The first level; elements of two bytes: 10 GB. Only the chunks that are looked at are stored."""
CHUNK = 512
PREVIEW, TILE, AGAIN = 2.0, 1.0, 0.1
"""Seconds that are wanted: of both with what a first look at a store costs, and of a second tile."""


def names() -> list[str]:
    """Row names in the order they run."""
    return ["pictures pyramid"]


def rows(settings: Settings) -> Iterator[Row]:
    """Run the row if it is wanted."""
    if settings.wants("pictures pyramid"):
        path = store(settings)
        yield pyramid(settings, path)
        settings.remove(path)


def store(settings: Settings) -> str:
    """OME-Zarr 0.5: each level is half of the one before, down to one that fits into a preview."""
    import numpy as np
    import zarr

    path, shapes = settings.place("pyramid.zarr"), [SHAPE]
    while max(shapes[-1]) > CHUNK:
        shapes.append((shapes[-1][0] // 2, shapes[-1][1] // 2))
    steps = [{"type": "scale", "scale": [2.0**level] * 2} for level in range(len(shapes))]
    datasets = [{"path": str(level), "coordinateTransformations": [step]} for level, step in enumerate(steps)]
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "yx"]
    told = {"version": "0.5", "multiscales": [{"name": "slide", "axes": axes, "datasets": datasets}]}
    root = zarr.open_group(path, mode="w", zarr_format=3)
    group = root.create_group("slide", attributes={"ome": told})
    numbers = np.random.default_rng(1).integers(0, 4096, (2 * CHUNK, 2 * CHUNK)).astype("<u2")
    for level, shape in enumerate(shapes):
        array = group.create_array(str(level), shape=shape, chunks=(CHUNK, CHUNK), dtype="<u2")
        array[: 2 * CHUNK, : 2 * CHUNK] = numbers[: shape[0], : shape[1]]
    data.warm(path)
    return path


def pyramid(settings: Settings, source: str) -> Row:
    """Seconds from opening a file to its last byte."""
    import tifffile

    with (
        mounts.Mounted(source, "--layout", "files") as mount,
        tifffile.TiffFile(os.path.join(mount.path, "slide.ome.tif")) as file,
    ):
        page = file.series[0].levels[0].pages[0]
        assert isinstance(page, tifffile.TiffPage)
        places = list(zip(page.dataoffsets[:2], page.databytecounts[:2], strict=True))
    again: list[float] = []

    def preview() -> float:
        with mounts.Mounted(source, "--layout", "files") as mount:
            begun = time.perf_counter()
            with open(os.path.join(mount.path, "slide.preview.png"), "rb") as picture:
                assert picture.read(4) == b"\x89PNG"
            return time.perf_counter() - begun

    def tile() -> float:
        with mounts.Mounted(source, "--layout", "files") as mount:
            begun = time.perf_counter()
            with open(os.path.join(mount.path, "slide.ome.tif"), "rb", buffering=0) as image:
                times = []
                for place, count in places:
                    assert any(os.pread(image.fileno(), count, place))
                    times.append(time.perf_counter())
            again.append(times[1] - times[0])
            return times[0] - begun

    contenders = [Contender("preview", preview), Contender("tile", tile), Contender("next tile", lambda: again[-1])]
    samples = alternate(contenders, settings.rounds, settings.say)
    bounds = [Bound("preview", PREVIEW), Bound("tile", TILE), Bound("next tile", AGAIN)]
    return Row("pictures pyramid", "s", None, samples, bounds=bounds, notes=["10 GB, OME-Zarr 0.5"])
