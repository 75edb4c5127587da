"""The HDF5 child process: one file, confined, answering one question at a time.

Run as `python -P -m fsbridge.formats.hdf5.worker`, it is the process that forks such children. Not here: the answers
(`child/`), and anything the daemon runs.
"""

from __future__ import annotations

import codecs
import contextlib
import signal
import socket
from typing import Any

from fsbridge.children import protocol, sandbox, server
from fsbridge.formats.hdf5.child.exact import Exact
from fsbridge.formats.hdf5.child.foresight import Foresight
from fsbridge.formats.hdf5.child.objects import H5_ERRORS, failure
from fsbridge.formats.hdf5.child.opened import Answer, Refusal
from fsbridge.formats.hdf5.child.warm_up import use_hdf5

ENCODINGS = ("ascii", "latin-1", "utf-8")
"""What h5py needs sooner or later."""
REQUEST_ATTACHMENTS = 0
"""Bytes: questions have none."""


def answer(worker: Exact, request: dict[str, Any]) -> Answer:
    """The answer to one request; damage in the file is an answer too."""
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
        "exact": worker.exact,
        "exact_items": worker.exact_items,
    }
    try:
        if request["op"] != "open":
            worker.expect(request.get("version"))
            worker.renew()
        return operations[request["op"]](request)
    except (Refusal, MemoryError, *H5_ERRORS) as error:
        return failure(error), []


def serve(sock: socket.socket) -> None:
    """Confine this process as the first message says, then answer until the other side is gone.

    The alarm ends a process that HDF5 keeps busy for longer than the daemon waits, also when there is no daemon any more;
    the timer one that computes for longer than what it was asked takes, however busy the machine is.
    """
    setup, _ = protocol.receive(sock, REQUEST_ATTACHMENTS)
    sandbox.limit_resources(setup["address_space"])
    confined = sandbox.restrict_files(setup["readable"])
    protocol.send(sock, {"confined": confined})

    def ask(wanted: dict[str, Any], limit: int) -> tuple[dict[str, Any], list[bytearray]]:
        protocol.send(sock, {"want": wanted})
        return protocol.receive(sock, limit)

    worker = Exact(ask, Foresight)
    with contextlib.suppress(protocol.Closed, ConnectionError):
        while True:
            request, _ = protocol.receive(sock, REQUEST_ATTACHMENTS)
            signal.alarm(request["seconds"])
            signal.setitimer(signal.ITIMER_PROF, request.get("computing", 0.0))
            found, attachments = answer(worker, request)
            protocol.send(sock, found, attachments)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            signal.alarm(0)


def warm_up() -> None:
    """Do once, before there are children, what each of them would have to do: load, look up, allocate.

    The confinement would even keep Python from loading encodings when h5py first needs them.
    """
    for encoding in ENCODINGS:
        codecs.lookup(encoding)
    use_hdf5()


if __name__ == "__main__":
    warm_up()
    server.run(serve)
