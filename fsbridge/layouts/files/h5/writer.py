"""The process that writes skeletons of virtual HDF5 files. It opens no file, so the sandbox grants it no access at all.

Run as `python -P -m fsbridge.layouts.files.h5.writer`, it is the process that forks such children, one for each skeleton.
Requests and their attachments:

    objects    objects (`specification.py`) as JSON
    finish     `{"left_out", "scales"}` as JSON

The answer to the last one is `{"end", "offsets", "pieces", "failed"}` and the bytes of all pieces. "pieces": offset and
length of each; "offsets": one for each object, in the order of the requests; "failed": the paths of those that the file
lacks, and why. Not here: the writing (`child/`), anything the daemon runs.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import signal
import socket
from collections.abc import Sequence
from typing import Any

from fsbridge import children as protocol
from fsbridge.children import server
from fsbridge.layouts.files.h5.child import SPECIFICATION_BYTES
from fsbridge.layouts.files.h5.child.skeleton import ERRORS, Skeleton

ENCODINGS = ("ascii", "latin-1", "utf-8")
"""Encodings that h5py uses, loaded before the process is confined."""


def answer(skeleton: Skeleton, op: str, attachments: Sequence[bytes | bytearray]) -> tuple[dict[str, Any], list[bytes]]:
    """Execute one request and return the answer. If HDF5 cannot write the file at all, the answer says so."""
    try:
        if op == "objects":
            skeleton.add(json.loads(attachments[0]))
            return {}, []
        pages, offsets = skeleton.finish(**json.loads(attachments[0]))
    except MemoryError:
        return {"error": "too_large", "message": "needs more memory than the process may have"}, []
    except ERRORS as error:
        return {"error": "corrupt", "message": f"{type(error).__name__}: {str(error)[:300]}"}, []
    pieces = pages.list_pieces()
    places = [[offset, len(content)] for offset, content in pieces]
    head = {"end": pages.end, "offsets": offsets, "pieces": places, "failed": list(skeleton.failed.values())}
    return head, [b"".join(content for _, content in pieces)]


def serve(sock: socket.socket) -> None:
    """Confine this process, then answer requests until the other side closes the socket."""
    setup, _ = protocol.receive(sock, 0)
    server.limit_resources(setup["address_space"])
    protocol.send(sock, {"confined": server.restrict_files(setup["readable"])})
    skeleton = Skeleton()
    with contextlib.suppress(protocol.Closed, ConnectionError):
        while True:
            request, attachments = protocol.receive(sock, SPECIFICATION_BYTES)
            signal.alarm(request["seconds"])
            reply, content = answer(skeleton, request["op"], attachments)
            protocol.send(sock, reply, content)
            signal.alarm(0)


def warm_up() -> None:
    """Load all modules and encodings before children are forked, because a confined child can load nothing."""
    for encoding in ENCODINGS:
        codecs.lookup(encoding)
    items = {"attributes": {"a": ["x"], "b": 1.5}, "items": "AAAAAAAA8D8="}
    pair = {"names": ["a"], "formats": ["<i4"], "offsets": [0], "itemsize": 4}
    objects = [
        {"kind": "group", "path": "/", "attributes": {}},
        {"kind": "group", "path": "/g", "attributes": {}},
        {"kind": "dataset", "path": "/s", "shape": [1], "dtype": "<f8", **items},
        {"kind": "dataset", "path": "/t", "shape": [1], "dtype": "text", "items": ["x"], "labels": ["x"]},
        {"kind": "dataset", "path": "/d", "shape": [2], "dtype": pair},
        {"kind": "soft", "path": "/l", "target": "/d"},
    ]
    scales = {"made": [["/s", "s"]], "attached": [["/t", 0, "/s"]]}
    skeleton = Skeleton()
    answer(skeleton, "objects", [json.dumps(objects).encode()])
    answer(skeleton, "finish", [json.dumps({"left_out": {}, "scales": scales}).encode()])


if __name__ == "__main__":
    warm_up()
    server.run(serve)
