"""Stores of every format where commands find them: on disk, in zip files, on the fake S3 server; and trees of mounts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import zarr
from fake_s3 import BUCKET, FakeS3
from n5_arrays import write_n5
from stores import CASES, write_collection

from fsbridge.config import Config, Remote

DATA_SHAPE = (7, 5, 4)


def numbers() -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    """Elements that differ from each other."""
    return np.arange(np.prod(DATA_SHAPE), dtype=np.int32).reshape(DATA_SHAPE)


def write_each(folder: Path) -> dict[str, Path]:
    """Write equal numbers to an array `a/b` in a store of each format, by its own writer. N5 has its axes reversed."""
    data = numbers()
    made: dict[str, Path] = {}
    for name, shards in {"zarr3": None, "sharded": (6, 4, 4)}.items():
        root = zarr.open_group(made.setdefault(name, folder / f"{name}.zarr"), mode="w", zarr_format=3)
        root.create_array("a/b", shape=data.shape, dtype=data.dtype, chunks=(3, 2, 4), shards=shards)[...] = data
    root = zarr.open_group(made.setdefault("zarr2", folder / "zarr2.zarr"), mode="w", zarr_format=2)
    root.create_array("a/b", shape=data.shape, dtype=">i4", chunks=(4, 3, 2), order="F")[...] = data
    with h5py.File(made.setdefault("hdf5", folder / "hdf5.h5"), "w") as file:
        file.create_dataset("a/b", data=data, chunks=(2, 5, 3), compression="gzip", shuffle=True)
    made["n5"] = folder / "n5.n5"
    write_n5(made["n5"] / "a/b", data, [3, 2, 4])
    (made["n5"] / "attributes.json").write_text('{"n5": "2.5.1"}')
    for name in ("zarr2", "zarr3", "sharded", "n5"):
        made[f"{name} zip"] = Path(shutil.make_archive(os.fspath(folder / f"{name}-packed"), "zip", made[name]))
    return made


def upload(server: FakeS3, made: dict[str, Path]) -> dict[str, str]:
    """URLs of the same stores on the fake server."""
    urls = {}
    for path in made.values():
        if path.is_dir():
            server.put_tree(path, path.name)
        else:
            server.put(path.name, path.read_bytes())
        urls[f"s3 {path.name}"] = f"s3://{BUCKET}/{path.name}"
    return urls


def remote(server: FakeS3) -> Remote:
    """Return the settings that `server.options` mean."""
    return Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint)


def write_all(folder: Path) -> Path:
    """The stores of every writer in the suite, as one collection."""
    return write_collection(folder, CASES)


def tree_of(root: str | os.PathLike[str]) -> dict[str, bytes | None]:
    """Return the content of a real directory by path: bytes of files, links as `-> target`, None for directories."""
    found: dict[str, bytes | None] = {}
    for folder, names, files in os.walk(root):
        for name in [*names, *files]:
            path = os.path.join(folder, name)
            shown = os.path.relpath(path, root)
            if os.path.islink(path):
                found[shown] = b"-> " + os.fsencode(os.readlink(path))
            else:
                found[shown] = None if os.path.isdir(path) else Path(path).read_bytes()
    return found


def config(source: str | os.PathLike[str], layout: str = "zarr3", remote: Remote | None = None) -> Config:
    """The configuration of a mount of `source`."""
    return Config(os.fspath(source), "", layout=layout, remote=remote or Remote())
