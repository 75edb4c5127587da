"""Rows about the layouts `zarr2` and `n5`: the same chunks as in `zarr3`, as they are, with bytes swapped, and cropped.

Not here: the layout `files`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from benchmarks import data, mounts
from benchmarks.programs import together
from benchmarks.rounds import Contender, Pair, Row, alternate
from benchmarks.settings import Settings

UNCHANGED, CONVERTED = 0.9, 0.7
"""The least share of zarr3's speed if nothing is converted, and if bytes are swapped or cropped."""


def names() -> list[str]:
    """Row names in the order they run."""
    return ["layouts zarr2", "layouts n5", "layouts cropped"]


def rows(settings: Settings) -> Iterator[Row]:
    """Run the rows that are wanted."""
    geometry = data.Geometry.of(settings.size, settings.chunk)
    for format_ in ("zarr2", "n5"):
        if settings.wants(f"layouts {format_}"):
            stored = data.make(format_, "blosc-lz4", geometry, settings.directory)
            yield compared(settings, f"layouts {format_}", stored.source, geometry.bytes, format_ == "n5")
            settings.discard(stored)
    if settings.wants("layouts cropped"):
        path, size = cropped(settings, geometry)
        yield compared(settings, "layouts cropped", path, size, False)
        settings.remove(path)


def compared(settings: Settings, name: str, source: str, size: int, unchanged: bool) -> Row:
    """All chunk files of a fresh mount by two processes, in each layout. `unchanged`: N5's blocks are the source's bytes."""
    data.warm(source)

    def contender(layout: str, below: str) -> Contender:
        def run() -> float:
            with mounts.Mounted(source, "--layout", layout) as mount:
                root = os.path.join(mount.path, below)
                return together("files", [{"root": root, "part": part, "parts": 2} for part in range(2)])[0]

        return Contender(layout, run)

    samples = alternate(
        [contender("zarr3", "c"), contender("zarr2", ""), contender("n5", "")], settings.rounds, settings.say
    )
    pairs = [Pair("zarr2", "zarr3", UNCHANGED), Pair("n5", "zarr3", UNCHANGED if unchanged else CONVERTED)]
    return Row(name, "MB/s", size / 1e6, samples, pairs)


def cropped(settings: Settings, geometry: data.Geometry) -> tuple[str, int]:
    """An array of which no chunk lies in it as a whole, and the bytes of its chunks."""
    import numcodecs
    import numpy as np
    import zarr

    path = settings.place("cropped.zarr")
    depth, height, width = geometry.chunk
    count = geometry.bytes // geometry.chunk_bytes
    array = zarr.create_array(
        path, shape=(depth * count, height - 1, width - 1), chunks=geometry.chunk, dtype="<u2",
        compressors=numcodecs.Blosc("lz4"), zarr_format=2, overwrite=True,
    )  # fmt: skip
    slab = next(data.slabs(geometry))[:, : height - 1, : width - 1]
    for number in range(count):
        array[number * depth : (number + 1) * depth] = np.roll(slab, number, 2)
    return path, count * geometry.chunk_bytes
