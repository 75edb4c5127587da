"""What mounts of remote stores show, and requests in words. Not here: how many there may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import zarr
from fake_s3 import BUCKET, FakeS3, Request
from mounting import Mount
from n5_arrays import write_n5

MountFunction = Callable[..., Mount]
VALUES = np.arange(64 * 64, dtype="<i4").reshape(64, 64)


def serve_arrays(tmp_path: Path) -> FakeS3:
    """Serve Zarr v2 and v3 stores with the array `raw` in chunks of 16 x 16; v3 also with the sharded array `shards`."""
    server = FakeS3()
    for version in (2, 3):
        group = zarr.open_group(tmp_path / f"v{version}", mode="w", zarr_format=version)
        group.create_array("raw", data=VALUES, chunks=(16, 16))
        if version == 3:
            group.create_array("shards", data=VALUES, chunks=(16, 16), shards=(32, 32))
        server.put_tree(tmp_path / f"v{version}", f"v{version}")
    return server


def mount_uploaded(folder: Path, mount: MountFunction) -> Iterator[Mount]:
    """Mount the copy of a folder in object storage until the test is over."""
    server = FakeS3()
    server.put_tree(folder, "all")
    mounted = mount(f"s3://{BUCKET}/all", *server.options)
    yield mounted
    mounted.stop()
    server.stop()


def chunk(i: int, j: int) -> bytes:
    return VALUES[16 * i : 16 * i + 16, 16 * j : 16 * j + 16].tobytes()


def described(requests: list[Request]) -> list[str]:
    return [f"{request.kind} {request.key} {request.range}" for request in requests]


def n5(tmp_path: Path, server: FakeS3) -> None:
    """Put an N5 store with the array `a` on the server."""
    write_n5(tmp_path / "x.n5/a", VALUES, [16, 16])
    (tmp_path / "x.n5/attributes.json").write_text('{"n5": "2.0.0"}')
    server.put_tree(tmp_path / "x.n5", "x.n5")
