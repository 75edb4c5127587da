"""The daemon's side of the process that writes skeletons (`writer.py`). It sends objects while others are being described.

Not here: what objects are (`specification.py`), the file that comes of them (`twin.py`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import Full, Queue
from typing import Any, TypeAlias

from fsbridge.children.client import ChildDied, ChildProcess, ChildTooSlow
from fsbridge.children.starting import Program, starter
from fsbridge.errors import CorruptData, TimedOut, anew
from fsbridge.layouts.files.h5.child import ADDRESS_SPACE_BYTES, PATIENCE_SECONDS, SKELETON_BYTES
from fsbridge.metadata import JSON
from fsbridge.threads import starting

WRITER = Program(
    "fsbridge.layouts.files.h5.writer",
    (("HDF5_USE_FILE_LOCKING", "FALSE"), ("HDF5_PLUGIN_PRELOAD", "::")),  # as in the process that reads HDF5
    without="HDF5_",
)


def start_writer() -> None:
    """Start the process from which the writers are forked. Otherwise it starts when the first file is opened."""
    starter(WRITER).begin()


_WAITING = 4
"""Most batches of objects that wait for the process."""


class WriterDied(ChildDied):
    """The process that wrote the skeleton has ended, so the whole file has failed, not one member of it."""


Answer = tuple[dict[str, Any], bytes]


Batch: TypeAlias = Sequence[Mapping[str, JSON]]
"""Objects in the order of their making."""


def _start_process() -> ChildProcess:
    return ChildProcess(WRITER, [], ADDRESS_SPACE_BYTES)


class SkeletonWriter:
    """Writes one skeleton, in a process of its own.

    `send` and `finish` raise CorruptData, TooLarge, TimedOut or WriterDied, `send` also for an earlier batch.
    """

    def __init__(self, start: Callable[[], ChildProcess] = _start_process) -> None:
        """`start` starts the process that writes."""
        self._start = start
        self._batches: Queue[Batch | None] = Queue(_WAITING)
        self._sending = False
        self._over = threading.Event()
        self._child: ChildProcess | None = None
        self._error: Exception | None = None

    def begin(self) -> None:
        """Start the process early, so that it is ready for the first objects."""
        if not self._sending:
            self._sending = True
            starting.start(self._send_all, "fsbridge-skeleton")

    def send(self, batch: Batch) -> None:
        """Queue objects to be written. Raise the error of an earlier batch, if there was one."""
        self.begin()
        if self._error is not None:
            raise anew(self._error)
        self._put(batch)

    def finish(self, last: Batch, end: Mapping[str, JSON]) -> Answer:
        """Send the last objects and the final request. Return the answer with everything that was written."""
        self._settle()
        if self._error is not None:
            raise anew(self._error)
        self._ask(last)
        child = self._ensure_process()
        head, (content,) = _ask_child(
            lambda: child.ask({"op": "finish"}, SKELETON_BYTES, PATIENCE_SECONDS, [json.dumps(end).encode()])
        )
        return head, bytes(content)

    def close(self) -> None:
        """Wait until everything that was sent has been written, then end the process."""
        self._settle()
        if self._child is not None:
            self._child.close()

    def _settle(self) -> None:
        """Wait until everything that was sent has been written."""
        if self._sending:
            self._sending = False
            self._put(None)
            self._over.wait(_WAITING * PATIENCE_SECONDS)

    def _put(self, batch: Batch | None) -> None:
        try:
            self._batches.put(batch, timeout=2 * PATIENCE_SECONDS)
        except Full:
            raise TimedOut("the process that writes the HDF5 skeleton takes no more objects") from None

    def _send_all(self) -> None:
        try:
            self._try(self._ensure_process)
            while (batch := self._batches.get()) is not None:
                self._try(partial(self._ask, batch))
        finally:
            self._over.set()

    def _try(self, step: Callable[[], object]) -> None:
        """Call `step` unless an earlier step has failed. Remember its error."""
        if self._error is None:
            try:
                step()
            except Exception as error:  # the next call of `send` or `finish` raises the error
                self._error = anew(error)

    def _ask(self, batch: Batch) -> None:
        child, text = self._ensure_process(), json.dumps(batch).encode()
        _ask_child(lambda: child.ask({"op": "objects"}, 0, PATIENCE_SECONDS, [text]))

    def _ensure_process(self) -> ChildProcess:
        if self._child is None:
            self._child = self._start()
        return self._child


def _ask_child(ask: Callable[[], tuple[dict[str, Any], list[bytearray]]]) -> tuple[dict[str, Any], list[bytearray]]:
    """Ask the process by calling `ask`. An error gets a text that says that it is about the skeleton."""
    try:
        return ask()
    except ChildTooSlow:
        raise TimedOut(f"the HDF5 skeleton was not written within {PATIENCE_SECONDS:g} s") from None
    except CorruptData as error:
        kind = WriterDied if isinstance(error, ChildDied) else CorruptData
        raise kind(f"the HDF5 skeleton cannot be written: {error}") from None
