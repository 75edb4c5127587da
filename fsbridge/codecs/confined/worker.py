"""A child process that decodes chunks by one library: it is confined, and answers one question at a time.

`python -P -m fsbridge.codecs.confined.worker` runs the process that forks such children. It has imported the library.

Each chunk is decoded twice, with two fillings of fresh memory and of the memory around the stored bytes. Bytes that differ
were never written by the decoder, or come from beyond its input: some libraries let that happen if the data ends early.
Not here: the decoders, anything that the daemon runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
from typing import Any

import numpy as np

from fsbridge import children as protocol
from fsbridge.children import server
from fsbridge.codecs import Buffer, Decoder, Overflow
from fsbridge.codecs.confined import LIBRARY
from fsbridge.codecs.table import CONFINED, Parameters
from fsbridge.errors import CorruptData, TooLarge, Unsupported

M_PERTURB, FILLINGS = -6, (0x5A, 0xA5)
ROOM = 1 << 18
"""Bytes of filling before the stored bytes, and after them, where as many as the chunk should have are added."""
MOST_BYTES = 1 << 40
"""Bytes of a chunk that the daemon may send. It checks them, and the limit of memory holds."""

_libc = ctypes.CDLL(None)


def answer(request: dict[str, Any], data: Buffer) -> tuple[dict[str, Any], list[Buffer]]:
    """Decode one chunk. Damage is an answer, too."""
    codec = CONFINED[request["codec"]]
    size, limit, stored, shape = request["size"], request["limit"], request["stored"], request["shape"]
    shape = None if shape is None else tuple(shape)
    try:
        parameters = Parameters(codec.name, request["values"], stored and np.dtype(stored), request["items"], shape)
        decoder = codec.build_here(parameters)
        first, second = (_decode(decoder, data, size, limit, filling) for filling in FILLINGS)
        if bytes(first) != bytes(second):  # views of arrays are compared byte by byte, ten times as slowly
            raise CorruptData("the decoder left bytes unwritten or read beyond its data, as if that ended early")
        return {}, [first]
    except TooLarge as error:
        return {"error": "too_large", "message": str(error)}, []
    except Overflow as error:
        return {"error": "too_large" if size is None else "corrupt", "message": str(error)}, []  # as a chain tells it
    except Unsupported as error:
        return {"error": "unsupported", "message": str(error)}, []
    except ImportError as error:
        return {"error": "unsupported", "message": f"codec {codec.name!r}: its library cannot be loaded: {error}"}, []
    except MemoryError:
        return {"error": "corrupt", "message": "decoding takes more memory than the chunk's size explains"}, []
    except Exception as error:  # whatever the library raises
        return {"error": "corrupt", "message": str(error)[:200] or type(error).__name__}, []


def _decode(decoder: Decoder, data: Buffer, size: int | None, limit: int, filling: int) -> memoryview:
    """Decode with memory that is filled as told, where the C library can do that."""
    around = np.full(len(data) + (size or 0) + 2 * ROOM, filling, np.uint8)
    stored = around[ROOM : ROOM + len(data)]
    stored[:] = np.frombuffer(data, np.uint8)
    stored.flags.writeable = False
    with contextlib.suppress(AttributeError):
        _libc.mallopt(M_PERTURB, filling)
    decoded = memoryview(decoder.decode(stored.data, size, limit, None)).cast("B")
    if size is None and len(decoded) > limit:
        raise TooLarge(str(Overflow(f"decodes to {len(decoded)} bytes, the limit is {limit}")))
    if size is not None and len(decoded) != size:
        raise CorruptData(f"{len(decoded)} bytes where {size} were expected")
    return decoded


def serve(sock: socket.socket) -> None:
    """Confine this process as the first message says, then answer until the other side is gone.

    The alarm ends a process that a library keeps busy for longer than the daemon waits, even if the daemon has died. The
    timer ends one that computes for longer than a chunk should take.
    """
    setup, _ = protocol.receive(sock, 0)
    server.limit_resources(setup["address_space"])
    protocol.send(sock, {"confined": server.restrict_files(setup["readable"])})
    with contextlib.suppress(protocol.Closed, ConnectionError):
        while True:
            request, (data,) = protocol.receive(sock, MOST_BYTES)
            signal.alarm(request["seconds"])
            signal.setitimer(signal.ITIMER_PROF, request["computing"])
            reply, attachments = answer(request, data)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            protocol.send(sock, reply, attachments)
            signal.alarm(0)


def warm_up() -> None:
    """Import the library. If it cannot be loaded, each question is answered with the reason."""
    for codec in CONFINED.values():
        if codec.library is not None and codec.library.module == os.environ[LIBRARY] and codec.confined is not None:
            with contextlib.suppress(ImportError, OSError):
                codec.confined()
            return


if __name__ == "__main__":
    warm_up()
    server.run(serve)
