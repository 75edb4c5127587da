"""The sample store of `scripts/demo`: writes it with z5py and TensorStore, compares a mount of it element by element.

demo_store.py write STORE
demo_store.py compare STORE MOUNTPOINT
demo_store.py whole STORE MOUNTPOINT      of the layout files
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import h5py
import numpy as np
import tensorstore
import z5py
import zarr

ARRAYS = ["volumes/raw", "volumes/labels"]


def write(store: str) -> None:
    """An electron microscopy volume (z5py, gzip, truncated edges) and its labels (TensorStore, zstd, blocks missing)."""
    rng = np.random.default_rng(2026)
    raw = rng.integers(0, 4096, (40, 60, 100), np.uint16)
    with z5py.File(store, "w", use_zarr_format=False) as file:
        dataset = file.create_dataset("volumes/raw", data=raw, chunks=(32, 32, 64), compression="gzip")
        dataset.attrs.update({"axes": ["x", "y", "z"], "units": ["nm", "nm", "nm"], "resolution": [4.0, 4.0, 40.0]})
    labels = _tensorstore(
        "n5",
        f"{store}/volumes/labels",
        create=True,
        metadata={
            "dataType": "uint64",
            "dimensions": [100, 60, 40],
            "blockSize": [64, 32, 32],
            "compression": {"type": "zstd", "level": 3},
        },
    )
    labels[:, :, :32] = np.asarray(raw.T[:, :, :32] // 100, np.uint64)


def compare(store: str, mount: str) -> None:
    """Exit with an error unless both readers of `mount` see what TensorStore sees in `store`."""
    for name in ARRAYS:
        source = _tensorstore("n5", f"{store}/{name}").read().result()
        readers = {
            "zarr-python": np.asarray(zarr.open_array(f"{mount}/{name}", mode="r")[...]),
            "TensorStore": _tensorstore("zarr3", f"{mount}/{name}").read().result(),
        }
        for reader, seen in readers.items():
            if seen.dtype != source.dtype or not np.array_equal(seen, source):
                sys.exit(f"{name} read by {reader} differs from the source")
            print(f"  {name} {source.shape} {source.dtype}: all {source.size} elements equal in {reader}")


def whole(store: str, mount: str) -> None:
    """Exit with an error unless h5py and numpy see in the whole-array files what TensorStore sees in `store`."""
    for name in ARRAYS:
        source = _tensorstore("n5", f"{store}/{name}").read().result()
        with h5py.File(f"{mount}/brain.h5") as file:
            readers = {"h5py": file[name][()].T, "numpy": np.load(f"{mount}/{name}.npy")}
        for reader, seen in readers.items():
            if seen.shape != source.shape or not np.array_equal(seen, source):
                sys.exit(f"{name} read by {reader} differs from the source")
            print(f"  {name} {source.shape} {source.dtype}: all {source.size} elements equal in {reader}")


def _tensorstore(driver: str, path: str, **spec: object) -> tensorstore.TensorStore:
    create = spec.pop("create", False)
    kvstore = {"driver": "file", "path": f"{path}/"}
    return tensorstore.open({"driver": driver, "kvstore": kvstore, **spec}, open=not create, create=create).result()


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"write": write, "compare": compare, "whole": whole}
    commands[sys.argv[1]](*sys.argv[2:])
