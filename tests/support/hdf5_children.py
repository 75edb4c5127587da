"""Chunked HDF5 files and the child that a source of them has. Not here: faults of children."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from waiting import until

from fsbridge.children import client
from fsbridge.errors import FsbridgeError
from fsbridge.formats.hdf5.source import HDF5Source


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
