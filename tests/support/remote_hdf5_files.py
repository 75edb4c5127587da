"""HDF5 files for a server, and a walk through their groups. Not here: requests (`remote_hdf5.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
from fake_s3 import FakeS3
from hdf5_model import opened, values
from remote_hdf5 import opened_remote

from fsbridge.errors import FsbridgeError
from fsbridge.formats.hdf5.arrays import HDF5Array
from fsbridge.formats.hdf5.blocks import BlockLimits, BlockMemory
from fsbridge.formats.hdf5.source import HDF5Group
from fsbridge.formats.shared import Shared
from fsbridge.model import Link


def names(group: Any) -> list[str]:
    return [child.name for child in group.children()]


def walk(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All nodes below a group by path; the error's class for one that cannot be opened."""
    for name in names(group):
        try:
            found = group.child(name)
        except FsbridgeError as error:
            yield f"{path}/{name}", type(error).__name__
            continue
        yield f"{path}/{name}", found
        if isinstance(found, HDF5Group):
            yield from walk(found, f"{path}/{name}")


def write_large(path: Path, libver: str | None = None) -> Path:
    """400 datasets in 20 groups, each with 160,000 bytes of data behind its header, and among them one of 2,000 chunks."""
    with h5py.File(path, "w", libver=libver) as file:
        for number in range(400):
            if number == 200:
                file.create_dataset("big", data=np.arange(400_000), chunks=(200,))
            dataset = file.create_dataset(f"g{number % 20}/d{number}", data=np.full(20_000, number), chunks=(5_000,))
            dataset.attrs["unit"] = "mV"
    return path


def write_rich(path: Path, **options: Any) -> Path:
    """Every layout and kind of element, with filters of ours and filters that only HDF5 has."""
    noise = np.random.default_rng(0).integers(0, 2**15, (300, 400))
    with h5py.File(path, "w", **options) as file:
        file.create_dataset("chunked", data=noise, chunks=(64, 100), compression="gzip", shuffle=True)
        file.create_dataset("plugin", data=noise, chunks=(64, 100), **hdf5plugin.Blosc2())
        file.create_dataset("contiguous", data=noise.astype(">f4"))
        file.create_dataset("text", data=[f"text {i}" for i in range(1000)], dtype=h5py.string_dtype(), chunks=(100,))
        file.create_dataset("one text", data="ü")
        file.create_dataset("table", data=np.zeros(50, [("a", "<i4"), ("b", "<f8", (3,))]))
        file["group/scale"] = np.arange(300)
        file["group/scale"].make_scale("x")
        file["chunked"].dims[0].attach_scale(file["group/scale"])
        file["group"].attrs["target"] = file["chunked"].ref
        file["group/soft"] = h5py.SoftLink("/chunked")
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((4,))
        h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_I32LE, space, compact).write(
            h5py.h5s.ALL, h5py.h5s.ALL, np.arange(4, dtype="i4")
        )
        layout = h5py.VirtualLayout((300, 800), noise.dtype)
        layout[:, :400] = h5py.VirtualSource(file["chunked"])
        layout[:, 400:] = h5py.VirtualSource(file["chunked"])
        file.create_virtual_dataset("virtual", layout)
    return path


def assert_same_as_local(server: FakeS3, path: Path, limits: BlockLimits | None = None) -> int:
    """All nodes, descriptions and values of a file are those that it has on a local disk, whatever the `limits`."""
    count = 0
    with opened(path) as local, opened_remote(server, path, Shared(BlockMemory(limits))) as remote:
        here, there = dict(walk(local.root)), dict(walk(remote.root))
        assert there.keys() == here.keys()
        for name, expected in here.items():
            found = there[name]
            count += 1
            if isinstance(expected, Link | str):
                assert found == expected
            elif isinstance(expected, HDF5Array):
                assert isinstance(found, HDF5Array)
                for key in ("grid", "dtype", "fill", "attributes", "dimension_names", "codec", "refused"):
                    assert getattr(found.metadata, key) == getattr(expected.metadata, key), (name, key)
                if expected.metadata.refused is None:
                    np.testing.assert_array_equal(values(found), values(expected), err_msg=name)
            else:
                assert not isinstance(found, HDF5Array | Link)
                assert found.attributes() == expected.attributes()
    return count
