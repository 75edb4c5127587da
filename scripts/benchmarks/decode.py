"""Reading stored chunks with numcodecs alone: the loop that fsbridge is compared with, and its oracle. No fsbridge code.

A manifest tells where each chunk's stored bytes lie: `{"codec", "decoded", "chunks": [[name, path, start, length], ...]}`.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from typing import Any

Step = Callable[[bytearray], Any]


def decoder(codec: str) -> Callable[[bytes, bytearray], Any]:
    """A function that decodes stored bytes into a buffer, or returns what it decoded to."""
    import numcodecs

    if codec.startswith("blosc"):
        numcodecs.blosc.use_threads = False
        blosc = numcodecs.Blosc()
        return lambda data, out: blosc.decode(data, out=out)
    if codec == "zstd":
        zstd = numcodecs.Zstd()
        return lambda data, out: zstd.decode(data, out=out)
    if codec == "gzip":
        gzip = numcodecs.GZip()
        return lambda data, out: gzip.decode(data, out=out)
    if codec == "gzip+shuffle":
        zlib_codec, shuffle = numcodecs.Zlib(), numcodecs.Shuffle(2)
        return lambda data, out: shuffle.decode(zlib_codec.decode(data), out=out)
    return lambda data, out: out.__setitem__(slice(None), data)


def plan(chunks: dict[str, Any]) -> list[Step]:
    """One step per chunk: read its stored bytes and decode them into the buffer given."""
    decode = decoder(chunks["codec"])

    def step(path: str, start: int, length: int) -> Step:
        def run(buffer: bytearray) -> Any:
            fd = os.open(path, os.O_RDONLY)
            data = os.pread(fd, length, start)
            os.close(fd)
            return decode(data, buffer)

        return run

    return [step(path, start, length) for _, path, start, length in chunks["chunks"]]


def copy(chunks: dict[str, Any], steps: list[Step], target: str) -> list[int]:
    """Write every decoded chunk to a file of its own below `target`; their CRC-32s, in order."""
    buffer = bytearray(chunks["decoded"])
    sums = []
    for (name, *_), step in zip(chunks["chunks"], steps, strict=True):
        step(buffer)
        path = os.path.join(target, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(buffer)
        sums.append(zlib.crc32(buffer))
    return sums


def write_manifest(path: str, codec: str, decoded: int, chunks: list[tuple[str, str, int, int]]) -> None:
    """Save a manifest, chunks in the order of the grid."""
    with open(path, "w") as file:
        json.dump({"codec": codec, "decoded": decoded, "chunks": chunks}, file)
