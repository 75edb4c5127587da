"""The process that writes the skeletons of virtual HDF5 files: confined to nothing at all, as it opens no file.

Run as `python -P -m fsbridge.layouts.files.h5.writer`, it is the process that forks such children, one for each skeleton.
A request's attachments are a specification (`specification.py`) as JSON and the elements that it speaks of; the answer is
`{"end", "offsets", "failed", "pieces"}`, a piece being `[offset, length]` of the bytes in the one attachment. Not here: the
writing (`child/`), anything the daemon runs.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import signal
import socket
from typing import Any

from fsbridge.children import protocol, sandbox, server
from fsbridge.layouts.files.h5.child import skeleton
from fsbridge.layouts.files.h5.limits import SPECIFICATION_BYTES

ENCODINGS = ("ascii", "latin-1", "utf-8")
"""What h5py needs sooner or later."""


def answer(specification: bytes | bytearray, blob: bytes | bytearray) -> tuple[dict[str, Any], list[bytes]]:
    """The skeleton that is specified; what HDF5 cannot write is an answer too."""
    try:
        pages, offsets, failed = skeleton.write(json.loads(specification), bytes(blob))
    except MemoryError:
        return {"error": "too_large", "message": "needs more memory than the process may have"}, []
    except skeleton.ERRORS as error:
        return {"error": "corrupt", "message": f"{type(error).__name__}: {str(error)[:300]}"}, []
    pieces = pages.pieces()
    places = [[offset, len(content)] for offset, content in pieces]
    head = {"end": pages.end, "offsets": offsets, "failed": failed, "pieces": places}
    return head, [b"".join(content for _, content in pieces)]


def serve(sock: socket.socket) -> None:
    """Confine this process, then answer until the other side is gone."""
    setup, _ = protocol.receive(sock, 0)
    sandbox.limit_resources(setup["address_space"])
    protocol.send(sock, {"confined": sandbox.restrict_files(setup["readable"])})
    with contextlib.suppress(protocol.Closed, ConnectionError):
        while True:
            request, attachments = protocol.receive(sock, SPECIFICATION_BYTES)
            signal.alarm(request["seconds"])
            found, content = answer(*attachments)
            protocol.send(sock, found, content)
            signal.alarm(0)


def warm_up() -> None:
    """Do once, before there are children, what each would have to do; afterwards Python could not even load an encoding."""
    for encoding in ENCODINGS:
        codecs.lookup(encoding)
    items = {"attributes": {"a": ["x"], "b": 1.5}, "items": "AAAAAAAA8D8="}
    pair = {"names": ["a"], "formats": ["<i4"], "offsets": [0], "itemsize": 4}
    objects = [
        {"kind": "group", "path": "/g", "attributes": {}},
        {"kind": "dataset", "path": "/s", "shape": [1], "dtype": "<f8", **items},
        {"kind": "dataset", "path": "/t", "shape": [1], "dtype": "text", "items": ["x"], "labels": ["x"]},
        {"kind": "dataset", "path": "/d", "shape": [2], "dtype": pair},
        {"kind": "soft", "path": "/l", "target": "/d"},
    ]
    scales = {"made": [["/s", "s"]], "attached": [["/t", 0, "/s"]]}
    answer(json.dumps({"objects": objects, "scales": scales}).encode(), b"")


if __name__ == "__main__":
    warm_up()
    server.run(serve)
