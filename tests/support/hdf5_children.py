"""Chunked HDF5 files and the child that a source of them has. Not here: faults of children."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import h5py
import numpy as np
from waiting import until

from fsbridge.children import client
from fsbridge.errors import FsbridgeError
from fsbridge.formats.hdf5.file import HDF5Limits, Pools
from fsbridge.formats.hdf5.source import HDF5Source
from fsbridge.formats.shared import Shared, SharedPart


def chunked(path: Path, rows: int = 40, start: int = 0) -> Path:
    with h5py.File(path, "w") as out:
        out.create_dataset("x", data=np.arange(start, start + rows), chunks=(10,), compression="gzip")
    return path


def stopped(child: client.ChildProcess) -> client.ChildProcess:
    """Stop the child, so that it does not answer for now."""
    os.kill(child.pid, signal.SIGSTOP)
    return child


def child_of(source: HDF5Source) -> client.ChildProcess:
    """The child of an opened file."""
    assert source.file.supervisor.child is not None
    return source.file.supervisor.child


Answer: TypeAlias = tuple[dict[str, Any], list[bytearray]]
Hook: TypeAlias = Callable[[client.ChildProcess, dict[str, Any]], object]


def watched(
    before: Hook = lambda child, question: None,
    during: Hook = lambda child, question: None,
    change: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]] = lambda question, answer: answer,
    limits: HDF5Limits | None = None,
    parts: Sequence[SharedPart] = (),
) -> Shared:
    """What sources share, with children that are watched.

    `before` is called before a child is asked, `during` while it is asked and no other question can be. Both may raise, or
    kill the child. `change` returns what is told in place of an answer. `parts` are shared as well.
    """

    class Watched(client.ChildProcess):
        def ask(self, question: dict[str, Any], *rest: Any, **options: Any) -> Answer:
            before(self, question)
            answer, attachments = super().ask(question, *rest, **options)
            return change(question, answer), attachments

        def _exchange(self, question: dict[str, Any], *rest: Any) -> Answer:
            during(self, question)
            return super()._exchange(question, *rest)

    return Shared(Pools(limits, Watched), *parts)


def noting(questions: list[str], limits: HDF5Limits | None = None) -> Shared:
    """What sources share, with children that note their questions in `questions`."""
    return watched(before=lambda child, question: questions.append(question["op"]), limits=limits)


def asked(source: HDF5Source, child: client.ChildProcess, outcomes: list[Any], **options: Any) -> threading.Thread:
    """A thread that asks for the root's attributes and notes the answer or the error."""

    def ask() -> None:
        try:
            outcomes.append(source.file.ask({"op": "attributes", "path": []}, **options)[0])
        except FsbridgeError as error:
            outcomes.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: child.busy)
    return thread
