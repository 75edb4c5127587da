"""What mounts of remote stores show, and requests in words. Not here: how many there may be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from fake_s3 import FakeS3, Request
from mounting import Mount
from n5_arrays import write_n5

MountFunction = Callable[..., Mount]
VALUES = np.arange(64 * 64, dtype="<i4").reshape(64, 64)


def chunk(i: int, j: int) -> bytes:
    return VALUES[16 * i : 16 * i + 16, 16 * j : 16 * j + 16].tobytes()


def described(requests: list[Request]) -> list[str]:
    return [f"{request.kind} {request.key} {request.range}" for request in requests]


def n5(tmp_path: Path, server: FakeS3) -> None:
    """Put an N5 store with the array `a` on the server."""
    write_n5(tmp_path / "x.n5/a", VALUES, [16, 16])
    (tmp_path / "x.n5/attributes.json").write_text('{"n5": "2.0.0"}')
    server.put_tree(tmp_path / "x.n5", "x.n5")
