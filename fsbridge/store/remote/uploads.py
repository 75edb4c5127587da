"""Objects written to a bucket for an export, each whole or not at all; the one module that changes anything there.

A mount never comes here (P1). Not here: which objects, and what is known of those that are there
(`unmounted/destinations.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, TypeAlias

from fsbridge.config import MIB, Patience, Remote
from fsbridge.errors import FsbridgeError
from fsbridge.store.remote.backends import backend
from fsbridge.store.remote.faults import NoBucket, Refused, translate
from fsbridge.store.remote.urls import Location, endpoint_of

Piece: TypeAlias = bytes | memoryview
"""Some bytes of an object."""

_PATIENCE = Patience(120.0, 180.0, 8, 5.0)
"""For uploads: a slow line must be able to send one part within a request."""

CONNECTIONS = 32
"""Unused connections that are kept."""

SMALL = MIB
"""Largest object in bytes that is sent without waiting for others. Each thread may have one of these in memory."""

PART = 8 * MIB
"""Bytes of a part of a large object, and of the largest object that is sent in one request."""

PARTS = 10_000
"""Parts of one object at most, as Amazon has it."""

LARGE_AT_ONCE = 4
"""Most objects above `SMALL` at a time: of each, two parts are under way and one is being filled."""

NOTE = "fsbridge"
"""The name of the note in an object's metadata. Azure takes letters, digits and underscores only."""


class DestinationRefuses(FsbridgeError):
    """The bucket accepts no objects: it does not exist, or it refuses access."""


class Uploads:
    """The bucket of `location`, with keys as in the bucket. Thread-safe. A process that forks must make it after that."""

    def __init__(self, location: Location, remote: Remote) -> None:
        self._absent_403 = remote.absent_403
        self._bucket = location._replace(path="", text=location.text[: len(location.text) - len(location.path)].rstrip("/"))
        remote = replace(remote, endpoint=endpoint_of(location, remote.endpoint))
        self._store = backend(self._bucket, remote, _PATIENCE, CONNECTIONS)
        self._large = threading.BoundedSemaphore(LARGE_AT_ONCE)

    def look(self, key: str) -> tuple[int, str] | None:
        """Return size and note of an object; None if it is absent."""
        try:
            response = self._store.get(self._speakable(key), options={"head": True})
            return int(response.meta["size"]), dict(response.attributes).get(NOTE, "")
        except FileNotFoundError:
            return None
        except Exception as error:
            if self._absent_403 and type(error).__name__ == "PermissionDeniedError":
                return None
            raise self._translate(error, key) from None

    def holds(self, key: str, size: int, pieces: Iterator[Piece]) -> bool:
        """True if `pieces` have `size` bytes in all, and the object at `key` begins with them."""
        at = 0
        with self._turn(size):
            for piece in pieces:
                if not self._has_piece(key, at, piece):
                    return False
                at += len(piece)
        return at == size

    def _has_piece(self, key: str, start: int, piece: Piece) -> bool:
        try:
            response = self._store.get(key, options={"range": (start, start + len(piece))})
            return memoryview(response.bytes()) == memoryview(piece).cast("B")
        except FileNotFoundError:
            return False
        except Exception as error:
            raise self._translate(error, key) from None

    def put(self, key: str, size: int, note: str, pieces: Iterator[Piece]) -> None:
        """Write an object of `size` bytes, with `note` as an attribute unless it is empty."""
        self._speakable(key)
        with self._turn(size):
            self._put(key, size, note, pieces)

    def _turn(self, size: int) -> AbstractContextManager[object]:
        """Return the context in which to send an object of `size` bytes. It lets few large ones in at a time: memory."""
        return self._large if size > SMALL else nullcontext()

    def _put(self, key: str, size: int, note: str, pieces: Iterator[Piece]) -> None:
        failures: list[Exception] = []
        given = _noting(pieces, failures)
        options: dict[str, Any] = {"attributes": {NOTE: note}} if note else {}
        try:
            if size <= PART:
                self._store.put(key, b"".join(given), use_multipart=False, **options)
            else:
                part = part_bytes(size)
                at_once = 2 if part == PART else 1
                self._store.put(key, given, use_multipart=True, chunk_size=part, max_concurrency=at_once, **options)
        except Exception as error:
            if failures:
                raise failures[0] from None
            raise self._translate(error, key) from None

    def _speakable(self, key: str) -> str:
        """Return `key`; FsbridgeError if it is not UTF-8, because no object can have such a key."""
        try:
            key.encode()
        except UnicodeEncodeError:
            raise FsbridgeError("its name is not UTF-8, so no object can have it") from None
        return key

    def _translate(self, error: Exception, key: str) -> FsbridgeError:
        if type(error).__name__ == "InvalidPathError":
            return FsbridgeError("no object can have its name")
        fault = translate(error, f"{self._bucket.text}/{key}", writes=True)
        return DestinationRefuses(str(fault)) if isinstance(fault, Refused | NoBucket) else fault


def part_bytes(size: int) -> int:
    """Return the size in bytes of each part of an object: `PART`, or as many MiB as make no more than `PARTS` parts."""
    return max(PART, -(-size // PARTS // MIB) * MIB)


def _noting(pieces: Iterator[Piece], failures: list[Exception]) -> Iterator[Piece]:
    """Yield `pieces`. If reading one fails, add the error to `failures`, to tell it from an error of the server."""
    try:
        yield from pieces
    except Exception as error:
        failures.append(error)
        raise
