"""The HDF5 child process: it is confined, opens one file and answers one question at a time.

`python -P -m fsbridge.formats.hdf5.child.worker` runs the process that forks such children. Not here: the answers, and
anything that the daemon runs.
"""

from __future__ import annotations

import codecs
import contextlib
import signal
import socket
from typing import Any

import h5py
import numpy as np

from fsbridge import children as protocol
from fsbridge.children import server
from fsbridge.formats.hdf5.child.alone import LoneFile
from fsbridge.formats.hdf5.child.data_file import Answer
from fsbridge.formats.hdf5.child.objects import FAILURES, describe_failure
from fsbridge.formats.hdf5.child.prefetch import MetadataPrefetch

ENCODINGS = ("ascii", "latin-1", "utf-8")
"""Encodings that h5py needs sooner or later."""
REQUEST_ATTACHMENTS = 0
"""Questions have no attachments: 0 bytes."""


def answer(worker: LoneFile, request: dict[str, Any]) -> Answer:
    """Answer one request. Damage in the file is an answer, too."""
    operations = {
        "open": worker.open,
        "names": worker.names,
        "group": worker.group,
        "node": worker.node,
        "attributes": worker.attributes,
        "attribute_names": worker.attribute_names,
        "attribute": worker.one_attribute,
        "table": worker.table,
        "read": worker.read,
        "lacking": worker.lacking,
        "alone": worker.alone,
    }
    try:
        if request["op"] != "open":
            worker.check_version(request.get("version"))
            worker.reopen_after_refusal()
        return operations[request["op"]](request)
    except FAILURES as error:
        return describe_failure(error), []


def serve(sock: socket.socket) -> None:
    """Confine this process as the first message says, then answer until the other side is gone.

    The alarm ends a process that HDF5 keeps busy for longer than the daemon waits, even if the daemon has died. The timer
    ends a process that computes for longer than its question should take, however busy the machine is.
    """
    setup, _ = protocol.receive(sock, REQUEST_ATTACHMENTS)
    server.limit_resources(setup["address_space"])
    confined = server.restrict_files(setup["readable"])
    protocol.send(sock, {"confined": confined})

    def ask(wanted: dict[str, Any], limit: int) -> tuple[dict[str, Any], list[bytearray]]:
        protocol.send(sock, {"want": wanted})
        return protocol.receive(sock, limit)

    worker = LoneFile(ask, MetadataPrefetch)
    with contextlib.suppress(protocol.Closed, ConnectionError):
        while True:
            request, _ = protocol.receive(sock, REQUEST_ATTACHMENTS)
            signal.alarm(request["seconds"])
            signal.setitimer(signal.ITIMER_PROF, request.get("computing", 0.0))
            reply, attachments = answer(worker, request)
            protocol.send(sock, reply, attachments)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            signal.alarm(0)


def warm_up() -> None:
    """Load, look up and allocate once what every child would have to.

    The confinement would even keep Python from loading encodings when h5py first needs them.
    """
    for encoding in ENCODINGS:
        codecs.lookup(encoding)
    use_hdf5()


def use_hdf5() -> None:
    """Write a file in memory and ask every kind of question about it."""
    with h5py.File("warm-up", "w", driver="core", backing_store=False, libver="latest") as file:
        file.attrs["text"] = "x"
        group = file.create_group("group")
        options = {"chunks": (4,), "compression": "gzip", "maxshape": (None,), "fillvalue": 1.0}
        group.create_dataset("chunked", data=np.arange(8.0), **options)
        group.create_dataset("words", data=["x"], dtype=h5py.string_dtype())
        group["plain"] = np.arange(4)
        group["plain"].make_scale("x")
        worker = LoneFile()
        worker.file = file.id
        for path in ([], ["group"]):
            worker.group({"path": path, "start": 0})
        worker.alone({"most_seconds": 60.0})
        worker.read({"path": ["group", "words"], "start": [0], "shape": [1], "fill": "", "limit": 64})


if __name__ == "__main__":
    warm_up()
    server.run(serve)
