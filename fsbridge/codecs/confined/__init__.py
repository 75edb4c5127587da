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

LIBRARY = "FSBRIDGE_LIBRARY"
"""The variable that names the library that the children's program imports."""

CHILDREN = min(4, os.cpu_count() or 1)
"""Most children of one library."""
SECONDS = 30.0
"""Longest wait for a decoded chunk."""

LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
"""Where the dynamic linker looks for what parts of a library need that are loaded late."""

_pools: PerProcess[dict[tuple[str, str, int], LifoQueue[Supervisor]]] = PerProcess({}, dict)
_lock = make_lock()


@dataclass(frozen=True, slots=True)
class Confined(Decoder):
    """Stands for a decoder of a child process.

    `question`: which decoder, as JSON text; `module`: its library's; `program`: the module that the children run.
    `computing`: CPU seconds for a chunk, after which a child ends itself.
    """

    name: str
    question: str
    module: str
    program: str = "fsbridge.codecs.confined.worker"
    computing: float = 20.0

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
        asked = {**json.loads(self.question), "size": size, "limit": limit, "computing": self.computing}
        idle = _idle(self.program, self.module, limit)
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


def _idle(worker: str, module: str, limit: int) -> LifoQueue[Supervisor]:
    """Return the idle children for a library and chunks of at most `limit` bytes. They start when they are first asked."""
    with _lock:
        pools = _pools.get()
        if (worker, module, limit) not in pools:
            # Python's own memory for small objects would keep what the last chunk left in it.
            unpooled = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0"), ("PYTHONMALLOC", "malloc")
            program = Program(worker, ((LIBRARY, module), *unpooled))
            # A decoder of pictures holds its samples as floats, several times.
            files, room = _files(module), (3 << 30) + 8 * limit
            pool = pools[worker, module, limit] = LifoQueue[Supervisor]()
            for _ in range(CHILDREN):
                pool.put(Supervisor("decoding", lambda: ChildProcess(program, files, room)))
        return pools[worker, module, limit]


def _files(module: str) -> list[str]:
    """Return the folders of a library, parts of which may be loaded when they are first needed."""
    spec = util.find_spec(module)
    folders = [] if spec is None else [os.path.realpath(path) for path in spec.submodule_search_locations or []]
    beside = [f"{folder}.libs" for folder in folders]
    return [path for path in (*folders, *beside, *LIBRARIES) if os.path.exists(path)]
