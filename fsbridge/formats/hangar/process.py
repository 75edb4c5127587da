"""The daemon's side of the process that reads a Hangar repository's databases, one for all of a repository.

Not here: the other side (`lmdb.py`), what is asked and why (`repository.py`), how a child is run (`children/`). Thread-safe.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from typing import Any

from fsbridge.children.client import ChildDied, ChildProcess
from fsbridge.children.starting import Program
from fsbridge.children.supervisor import Supervisor
from fsbridge.errors import FsbridgeError, Stale

PROGRAM = Program("fsbridge.formats.hangar.lmdb")
ANSWER_BYTES = 260 << 20
"""Bytes of values in one answer: `lmdb.VALUE_BYTES`, and a page of a scan with one such value."""
ATTEMPTS = 3
"""Times that a question is asked whose database was written to while it ended the process."""


class DatabaseProcess:
    """Answers about the databases below `root`, within `seconds` each."""

    def __init__(self, root: str, seconds: float) -> None:
        self._root = root
        self._seconds = seconds
        self._supervisor = Supervisor(root, lambda: ChildProcess(PROGRAM, [root], 0))

    def ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytearray]:
        """The answer and its values. Raises CorruptData for a damaged database, Stale for one that changes too fast."""
        path = os.path.join(self._root, request["path"])
        for _ in range(ATTEMPTS):
            before = _written(path)
            try:
                return self._ask(request)
            except ChildDied:  # LMDB aborts on a page that a writer has reused meanwhile, as on damage
                if _written(path) == before:
                    raise
                self._supervisor.forgive()
        raise Stale(f"{path}: written faster than it can be read")

    def _ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytearray]:
        what = "".join(request["keys"][:1]) if request["op"] == "get" else f"{request['prefix']}{request['after'] or ''}"
        try:
            answer, attachments = self._supervisor.ask(
                request, f"{request['op']} {request['path']} {what[:100]!a}", ANSWER_BYTES, self._seconds
            )
        except ChildDied:
            raise
        except FsbridgeError as error:
            raise error.at(self._root) from None
        return answer, attachments[0] if attachments else bytearray()

    def close(self) -> None:
        """End the process."""
        self._supervisor.close()


def _written(path: str) -> Hashable:
    """Differs once somebody has written to the file, or replaced it."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
