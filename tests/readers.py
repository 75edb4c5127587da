"""Independent readers in a process of their own: zarr-python and TensorStore open a store and say everything they see in it.

    read(path, "zarr")              {member path: Member} of every array and group below `path`
    read(path, "tensorstore")       the same of every array

Reading a mount from the test's own process would do as well for the bytes; a separate process is what a user's program
is, and a reader that dies or hangs cannot take the test with it.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Member:
    """A group (`values` is None) or an array as a reader sees it; `error` is why the reader could not read it."""

    values: Any = None
    attributes: dict[str, Any] = field(default_factory=dict)
    dimension_names: tuple[str | None, ...] | None = None
    chunks: tuple[int, ...] | None = None
    fill: Any = None
    error: str | None = None


def read(path: str | os.PathLike[str], reader: str, timeout: float = 120) -> dict[str, Member]:
    """Open the Zarr v3 hierarchy at `path` with `reader` in a subprocess; members by path, the root is the empty path."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, reader, os.fspath(path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
    )
    if result.returncode != 0:
        raise AssertionError(f"{reader} on {path}:\n" + result.stderr.decode(errors="replace"))
    found: dict[str, Member] = pickle.loads(result.stdout)
    return found


def _with_zarr(root: str) -> dict[str, Member]:
    import zarr

    def group(path: str) -> Member:
        return Member(attributes=dict(zarr.open_group(path, mode="r", zarr_format=3).attrs))

    def array(path: str) -> Member:
        node = zarr.open_array(path, mode="r", zarr_format=3)
        names = node.metadata.dimension_names
        return Member(
            node[...], dict(node.attrs), None if names is None else tuple(names), tuple(node.chunks), node.fill_value
        )

    return _each(root, array, group)


def _with_tensorstore(root: str) -> dict[str, Member]:
    import tensorstore

    def array(path: str) -> Member:
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/"}}
        store = tensorstore.open(spec, read=True, open=True).result()
        labels = tuple(label or None for label in store.domain.labels)
        fill = None if store.fill_value is None else store.fill_value[()]
        return Member(store.read().result(), {}, labels, store.chunk_layout.read_chunk.shape, fill)

    return _each(root, array, lambda path: Member())


def _each(root: str, array: Callable[[str], Member], group: Callable[[str], Member]) -> dict[str, Member]:
    found = {}
    for folder, folders, files in os.walk(root):
        if "zarr.json" not in files:
            continue
        with open(os.path.join(folder, "zarr.json")) as file:
            is_array = json.load(file)["node_type"] == "array"
        if is_array:
            folders.clear()
        name = os.path.relpath(folder, root).removeprefix(".").lstrip("/")
        try:
            found[name] = array(folder) if is_array else group(folder)
        except Exception as error:  # the reader's own, of any kind: the test says which ones it expects
            found[name] = Member(error=f"{type(error).__name__}: {error}")
    return found


if __name__ == "__main__":
    sys.modules["readers"] = sys.modules["__main__"]  # so that Member is pickled under the name the tests know
    Member.__module__ = "readers"
    seen = {"zarr": _with_zarr, "tensorstore": _with_tensorstore}[sys.argv[1]](sys.argv[2])
    sys.stdout.buffer.write(pickle.dumps(seen))
