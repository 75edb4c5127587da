"""Independent readers in a process of their own: zarr-python and TensorStore open a store and say everything they see in it.

    read(path, "zarr")              {member path: Member} of every array and group below `path`
    read(path, "tensorstore")       the same of every array

Reading a mount from the test's own process would do as well for the bytes; a separate process is what a user's program
is, and a reader that dies or hangs cannot take the test with it.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Member:
    """A group (`values` is None) or an array as a reader sees it."""

    values: Any = None
    attributes: dict[str, Any] = field(default_factory=dict)
    dimension_names: tuple[str | None, ...] | None = None
    chunks: tuple[int, ...] | None = None
    fill: Any = None


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

    def array(node: Any) -> Member:
        names = node.metadata.dimension_names
        return Member(
            node[...], dict(node.attrs), None if names is None else tuple(names), tuple(node.chunks), node.fill_value
        )

    top = zarr.open(root, mode="r", zarr_format=3)
    if isinstance(top, zarr.Array):
        return {"": array(top)}
    found = {"": Member(attributes=dict(top.attrs))}
    for path, node in top.members(max_depth=None):
        found[path] = array(node) if isinstance(node, zarr.Array) else Member(attributes=dict(node.attrs))
    return found


def _with_tensorstore(root: str) -> dict[str, Member]:
    import json

    import tensorstore

    found = {}
    for folder, folders, files in os.walk(root):
        if "zarr.json" not in files:
            continue
        with open(os.path.join(folder, "zarr.json")) as file:
            document = json.load(file)
        if document["node_type"] == "array":
            folders.clear()
            store = tensorstore.open(
                {"driver": "zarr3", "kvstore": {"driver": "file", "path": folder + "/"}}, read=True, open=True
            ).result()
            labels = tuple(label or None for label in store.domain.labels)
            found[os.path.relpath(folder, root).removeprefix(".").lstrip("/")] = Member(
                store.read().result(), document.get("attributes", {}), labels, store.chunk_layout.read_chunk.shape
            )
    return found


if __name__ == "__main__":
    sys.modules["readers"] = sys.modules["__main__"]  # so that Member is pickled under the name the tests know
    Member.__module__ = "readers"
    seen = {"zarr": _with_zarr, "tensorstore": _with_tensorstore}[sys.argv[1]](sys.argv[2])
    sys.stdout.buffer.write(pickle.dumps(seen))
