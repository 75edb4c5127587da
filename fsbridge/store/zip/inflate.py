"""Reads ranges of deflated members without inflating from the start each time. Not here: what a member is (`store.py`).

While a large member is inflated, the decompressor's state is kept every few MiB (as in zran of zlib's examples), and the
next range begins at the state before it. So the inner chunks of a shard in a compressed archive cost a few MiB of inflating
each, and not the whole shard.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from fsbridge.config import MIB
from fsbridge.errors import CorruptData
from fsbridge.lru import LRU

PIECE_BYTES = MIB
"""Compressed bytes read, or decoded bytes made, at a time."""


STEP_BYTES = 4 * MIB
"""Decoded bytes between two kept states: about 15 ms of inflating. Smaller members need none."""

MAX_STATES = 256
"""States kept for all archives, enough for 1 GiB of deflated members. Each takes about 48 KiB (zlib's window and tables)."""

Read = Callable[[int, int], bytes]


class _State(NamedTuple):
    """A decompressor that has made `done` bytes from `used` bytes of input."""

    done: int
    used: int
    stream: Any


class Inflater:
    """Inflates ranges of the members of one archive. Thread-safe."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._own = object()

    def range(self, position: int, stored: int, size: int, start: int, length: int) -> bytes:
        """Return bytes [start, start + length) of the member of `size` bytes.

        Its `stored` deflated bytes lie at `position`.

        Raises CorruptData. A range up to the member's end also checks that the stream ends there and nowhere else.
        """
        done, used, stream = self._before(position, start)
        stop = start + length
        parts: list[bytes] = []
        held = memoryview(b"")
        while done < stop or (stop == size and not stream.eof):
            if not held and used < stored and not stream.eof:
                held = memoryview(self._read(position + used, min(stored - used, PIECE_BYTES)))
            # A decompressor keeps the input that it did not use, and so does each state, so it gets only 16 KiB at a
            # time.
            feed = held[: (16 * 1024)]
            try:
                # One byte more than declared shows a member that is larger than it says.
                piece = stream.decompress(feed, min(PIECE_BYTES, size - done + 1))
            except zlib.error as error:
                raise CorruptData(str(error)) from None
            if not (piece or feed or stream.eof) or (stream.eof and done + len(piece) < stop):
                raise CorruptData(f"deflated data that end after {done + len(piece)} of {size} bytes")
            taken = len(feed) - len(stream.unconsumed_tail)
            held, used = held[taken:], used + taken
            if done + len(piece) > size:
                raise CorruptData(f"deflated data beyond the {size} bytes declared")
            parts.append(piece[max(0, start - done) : max(0, stop - done)])
            if (done + len(piece)) // STEP_BYTES > done // STEP_BYTES and not stream.eof:
                self._keep(position, _State(done + len(piece), used, stream.copy()))
            done += len(piece)
        if stop == size and (used < stored or stream.unused_data):
            raise CorruptData("bytes left over after the deflated data")
        return b"".join(parts)

    def _before(self, position: int, start: int) -> _State:
        """Return the last state that is not beyond `start`, ready for use."""
        steps = start // STEP_BYTES
        for number in range(steps, max(0, steps - MAX_STATES), -1):
            state = _states.get((self._own, position, number))
            if state is not None and state.done <= start:
                return state._replace(stream=state.stream.copy())
        return _State(0, 0, zlib.decompressobj(-zlib.MAX_WBITS))

    def _keep(self, position: int, state: _State) -> None:
        key = (self._own, position, state.done // STEP_BYTES)
        if _states.get(key) is None:
            _states.put(key, state)


_states: LRU[tuple[object, int, int], _State] = LRU(MAX_STATES)
"""Kept states by archive object, position of the member in the archive, and number of whole steps."""
