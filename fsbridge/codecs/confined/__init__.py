"""Decoding in child processes: libraries that parse in C what a store contains may crash there, or overrun their buffers.

A few children of each library serve all chunks; each question is one chunk, and its answer the decoded bytes. A child that
met damage is not asked again, because the damage may have reached its memory. Not here: the children (`worker.py`), their
limits (`children/server.py`), the decoders.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from importlib import util
from queue import Empty, LifoQueue
from typing import Any

from fsbridge.asking import before_waiting
from fsbridge.children.client import ChildProcess
from fsbridge.children.starting import Program
from fsbridge.children.supervisor import Supervisor
from fsbridge.codecs import Buffer, Decoder
from fsbridge.errors import CorruptData, FsbridgeError, TimedOut
from fsbridge.threads.forking import PerProcess, make_lock

WORKER, LIBRARY = "fsbridge.codecs.confined.worker", "FSBRIDGE_LIBRARY"
"""The children's program, and the variable that names the library that it imports."""

CHILDREN = min(4, os.cpu_count() or 1)
"""Most children of one library."""
SECONDS, COMPUTING_SECONDS = 30.0, 20.0
"""Longest wait for a decoded chunk, and CPU seconds after which a child ends itself."""
ADDRESS_SPACE_BYTES, FACTOR = 3 << 30, 8
"""Bytes of virtual memory of a child: so many, and for each byte that a chunk may have FACTOR more. A decoder of pictures
holds its samples as floats, several times."""

LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
"""Where the dynamic linker looks for what parts of a library need that are loaded late."""

_pools: PerProcess[dict[tuple[str, int], LifoQueue[Supervisor]]] = PerProcess({}, dict)
_lock = make_lock()


@dataclass(frozen=True, slots=True)
class Confined(Decoder):
    """Stands for a decoder of a child process. `question`: which one, as JSON text; `module`: its library's."""

    name: str
    question: str
    module: str

    @classmethod
    def of(cls, decoder: Any, parameters: Any, library: Any) -> Confined:
        """Return the stand-in for `decoder`, which a record of the table has made from its `Parameters`."""
        question = {
            "codec": parameters.codec,
            "values": dict(parameters.values),
            "stored": None if parameters.stored is None else parameters.stored.str,
            "items": parameters.items,
            "shape": parameters.shape,
        }
        return cls(decoder.name, json.dumps(question), library.module)

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        before_waiting()
        view = memoryview(data).cast("B")
        asked = {**json.loads(self.question), "size": size, "limit": limit, "computing": COMPUTING_SECONDS}
        idle = _idle(self.module, limit)
        try:
            supervisor = idle.get(timeout=SECONDS)
        except Empty:
            raise TimedOut(f"{self.name}: all child processes were busy for {SECONDS:g} s") from None
        try:
            subject = f"a chunk of {len(view)} bytes ({hashlib.blake2b(view, digest_size=6).hexdigest()})"
            _, attachments = supervisor.ask(asked, subject, limit if size is None else size, SECONDS, attachments=(view,))
            if len(attachments) != 1:
                raise CorruptData("the child process answered without the decoded bytes")
            return attachments[0]
        except FsbridgeError:
            supervisor.rest()
            raise
        finally:
            idle.put(supervisor)


def _idle(module: str, limit: int) -> LifoQueue[Supervisor]:
    """Return the idle children for a library and chunks of at most `limit` bytes. They start when they are first asked."""
    with _lock:
        pools = _pools.get()
        if (module, limit) not in pools:
            # Python's own memory for small objects would keep what the last chunk left in it.
            unpooled = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0"), ("PYTHONMALLOC", "malloc")
            program = Program(WORKER, ((LIBRARY, module), *unpooled))
            files, room = _files(module), ADDRESS_SPACE_BYTES + FACTOR * limit
            pool = pools[module, limit] = LifoQueue[Supervisor]()
            for _ in range(CHILDREN):
                pool.put(Supervisor("decoding", lambda: ChildProcess(program, files, room)))
        return pools[module, limit]


def _files(module: str) -> list[str]:
    """Return the folders of a library, parts of which may be loaded when they are first needed."""
    spec = util.find_spec(module)
    folders = [] if spec is None else [os.path.realpath(path) for path in spec.submodule_search_locations or []]
    beside = [f"{folder}.libs" for folder in folders]
    return [path for path in (*folders, *beside, *LIBRARIES) if os.path.exists(path)]
