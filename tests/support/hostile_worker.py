"""The worker of confined codecs with a library that does what chunks say, in place of FLAC's."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np

from fsbridge.children import server
from fsbridge.codecs import table
from fsbridge.codecs.confined import worker


class Hostile:
    """A decoder that a chunk commands."""

    name = "flac"

    def decode(self, data: Any, size: int | None, limit: int, out: Any) -> Any:
        word = bytes(data).decode()
        if word == "crash":
            ctypes.string_at(0)
        if word == "loop":
            while True:
                pass
        if word == "bomb":
            return bytes(np.ones(1 << 34, "u1"))
        if word == "unwritten":
            return np.empty(size or 0, "u1").data
        if word == "beyond":
            place = np.frombuffer(data, "u1").ctypes.data
            return ctypes.string_at(place + len(word), 4) + ctypes.string_at(place - 4, (size or 4) - 4)
        if word == "open":
            return Path("/etc/passwd").read_bytes()[:4]
        if word == "write":
            Path("/tmp/written-by-a-decoder").write_bytes(b"x")
        if word == "raise":
            raise RuntimeError("the library says no")
        if word == "long":
            return bytes((size or 0) + 1)
        return f"{os.getpid():0{size}}".encode()


codec = table.Codec("flac", lambda of: Hostile(), library=table.CONFINED["flac"].library, confined=int)
vars(worker)["CONFINED"] = {"flac": codec}
worker.warm_up()
server.run(worker.serve)
