"""Independent readers in a process of their own: zarr-python and TensorStore open a store and say everything they see in it.

    read(path, "zarr")              {member path: Member} of every array and group below `path`, a Zarr v3 hierarchy
    read(path, "tensorstore")       the same of every array
    read(path, "zarr-zarr2")        of a Zarr v2 hierarchy; also "tensorstore-zarr2", "z5py-zarr2", "xarray-zarr2"
    read(path, "tensorstore-n5")    of an N5 container; also "z5py-n5"

Reading a mount from the test's own process would do as well for the bytes; a separate process is what a user's program
is, and a reader that dies or hangs cannot take the test with it.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import forking
import numpy as np


@dataclass
class Member:
    """A group (`values` is None) or an array as a reader sees it; `error` is why the reader could not read it."""

    values: Any = None
    attributes: dict[str, Any] = field(default_factory=dict)
    dimension_names: tuple[str | None, ...] | None = None
    chunks: tuple[int, ...] | None = None
    fill: Any = None
    error: str | None = None


Reader = tuple[Callable[[str], Member], Callable[[str], Member]]
"""What reads an array, and what reads a group, by its folder."""


def read(path: str | os.PathLike[str], reader: str, timeout: float = 120) -> dict[str, Member]:
    """Open the hierarchy at `path` with `reader` in a process of its own; members by path, the root is the empty path."""
    result = forking.run(reader, path, program=Path(__file__), timeout=timeout, text=False)
    if result.returncode != 0:
        raise AssertionError(f"{reader} on {path}:\n" + result.stderr.decode(errors="replace"))
    found: dict[str, Member] = pickle.loads(result.stdout)
    return found


def _with_zarr(zarr_format: Literal[2, 3]) -> Reader:
    import zarr
    from zarr.storage import LocalStore  # of a bare path zarr-python 3.4 takes what follows `#` for a URL's fragment

    def group(path: str) -> Member:
        return Member(attributes=dict(zarr.open_group(LocalStore(path), mode="r", zarr_format=zarr_format).attrs))

    def array(path: str) -> Member:
        node = zarr.open_array(LocalStore(path), mode="r", zarr_format=zarr_format)
        names = getattr(node.metadata, "dimension_names", None)
        return Member(
            node[...], dict(node.attrs), None if names is None else tuple(names), tuple(node.chunks), node.fill_value
        )

    return array, group


def _with_tensorstore(driver: str) -> Reader:
    import tensorstore

    def array(path: str) -> Member:
        spec = {"driver": driver, "kvstore": {"driver": "file", "path": f"{path}/"}}
        store = tensorstore.open(spec, read=True, open=True).result()
        labels = tuple(label or None for label in store.domain.labels)
        fill = None if store.fill_value is None else store.fill_value[()]
        chunks = tuple(int(n or 0) for n in store.chunk_layout.read_chunk.shape or ())
        return Member(store.read().result(), {}, labels, chunks, fill)

    return array, lambda path: Member()


def _with_z5py(root: str, zarr_format: bool) -> Reader:
    import z5py

    def array(path: str) -> Member:
        with z5py.File(root, "r", use_zarr_format=zarr_format) as file:
            node = file[os.path.relpath(path, root)]
            return Member(node[...], dict(node.attrs), None, tuple(node.chunks))

    return array, lambda path: Member()


def _with_xarray() -> Reader:
    import xarray

    def array(path: str) -> Member:
        folder, name = os.path.split(path)
        with xarray.open_zarr(folder, consolidated=False, zarr_format=2, mask_and_scale=False, decode_times=False) as data:
            return Member(data[name].values, dict(data[name].attrs), tuple(map(str, data[name].dims)))

    return array, lambda path: Member()


def _is_array(folder: str, files: list[str]) -> bool | None:
    """Tell if a directory of any layout is an array; None if it is neither array nor group."""
    if "zarr.json" in files:
        return bool(_document(folder, "zarr.json")["node_type"] == "array")
    if "attributes.json" in files:
        return "dimensions" in _document(folder, "attributes.json")
    return ".zarray" in files if ".zarray" in files or ".zgroup" in files else None


def _document(folder: str, name: str) -> dict[str, Any]:
    with open(os.path.join(folder, name)) as file:
        found: dict[str, Any] = json.load(file)
        return found


def _each(root: str, array: Callable[[str], Member], group: Callable[[str], Member]) -> dict[str, Member]:
    found = {}
    for folder, folders, files in os.walk(root):
        is_array = _is_array(folder, files)
        if is_array is None:
            continue
        if is_array:
            folders.clear()
        name = os.path.relpath(folder, root).removeprefix(".").lstrip("/")
        try:
            found[name] = array(folder) if is_array else group(folder)
        except Exception as error:  # the reader's own, of any kind: the test says which ones it expects
            found[name] = Member(error=f"{type(error).__name__}: {error}")
    return found


READERS: dict[str, Callable[[str], Reader]] = {
    "zarr": lambda _root: _with_zarr(3),
    "tensorstore": lambda _root: _with_tensorstore("zarr3"),
    "zarr-zarr2": lambda _root: _with_zarr(2),
    "tensorstore-zarr2": lambda _root: _with_tensorstore("zarr"),
    "z5py-zarr2": lambda root: _with_z5py(root, True),
    "xarray-zarr2": lambda _root: _with_xarray(),
    "tensorstore-n5": lambda _root: _with_tensorstore("n5"),
    "z5py-n5": lambda root: _with_z5py(root, False),
}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.modules["readers"] = sys.modules["__main__"]  # so that Member is pickled under the name the tests know
    Member.__module__ = "readers"
    seen = _each(sys.argv[2], *READERS[sys.argv[1]](sys.argv[2]))
    sys.stdout.buffer.write(pickle.dumps(seen))


def assert_same(seen: Any, source: Any) -> None:
    """Equal shape, type and bits; byte order is a matter of the reader."""
    seen, source = np.asarray(seen), np.asarray(source)
    assert seen.shape == source.shape
    if source.dtype.kind in "OT":
        assert list(seen.ravel()) == list(source.ravel())
        return
    assert seen.dtype.newbyteorder("=") == source.dtype.newbyteorder("=")
    native = source.dtype.newbyteorder("=")
    assert np.ascontiguousarray(seen, native).tobytes() == np.ascontiguousarray(source, native).tobytes()
