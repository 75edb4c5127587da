"""The elements of an open file as bytes, assembled on request, or prefetched for a sequential reader in windows.

Elements are converted to the file's type if its header cannot state the source's type. The list of conversions is closed:
anything else is refused, because bytes of a wrong type would be wrong values. Not here: how elements are put together from
chunks (`elements/reading.py`), a file's own bytes (`nodes.py`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fsbridge.config import MIB
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import CorruptData, FsbridgeError, Unsupported
from fsbridge.layouts.files.arrays.extents import Elements
from fsbridge.layouts.files.elements.reading import ElementReader
from fsbridge.layouts.files.elements.supply import ChunkSupply
from fsbridge.tree import Buffer


class Misfit(CorruptData):
    """An element has a value that the file's type cannot hold.

    `position`: its number among the elements that were converted.
    """

    def __init__(self, position: int, value: int, shown: np.dtype[Any]) -> None:
        super().__init__(f"element number {position} is {value}, which {shown.name} cannot hold")
        self.position = position
        self.value = value
        self.shown = shown

    def locate(self, index: tuple[int, ...]) -> CorruptData:
        """Return the error for people, which names the element by its index in the array."""
        place = ", ".join(map(str, index))
        return CorruptData(f"element [{place}] is {self.value}, which {self.shown.name} cannot hold; NAME.npy has it")


Conversion: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]


def find_conversion(native: np.dtype[Any], shown: np.dtype[Any]) -> Conversion | None:
    """Return a function that converts the bits of `native` elements to the type `shown`; None if the bytes stay the same.

    Numbers change their byte order, and become wider if no value changes; compounds do both field by field. Whole numbers of
    64 bits may also become narrower: an element that does not fit then raises Misfit. Elements of any other type stay as
    they are if both types have the same size; else Unsupported is raised.
    """
    if native == shown:
        return None
    numbers = native.kind in "biufc" and shown.kind in "biufc"
    if (numbers and np.can_cast(native, shown, "safe")) or (native.names is not None and shown.names is not None):
        return lambda bits: bits.view(native).astype(shown)
    if native.kind in "iu" and native.itemsize == 8 and shown.kind == "u":
        return lambda elements: _narrow(elements.view(native), shown)
    if not numbers and native.itemsize == shown.itemsize and native.isnative == shown.isnative:
        return None
    raise Unsupported(f"elements of type {native.str} cannot be shown as {shown.str}")


def _narrow(elements: NDArray[Any], shown: np.dtype[Any]) -> NDArray[Any]:
    most = np.iinfo(shown).max
    if elements.size and (elements.max() > most or elements.min() < 0):
        position = int(np.argmax((elements > most) | (elements < 0)))
        raise Misfit(position, int(elements.reshape(-1)[position]), shown)
    return elements.astype(shown)


WINDOW_BYTES, SMALL_WINDOW_BYTES = 16 * MIB, 4 * MIB
"""Most bytes of a window for small chunks, and for large ones. A large window contains larger parts of small chunks. More of
a small window is still in the processor's cache when the kernel copies it."""

PART_BYTES = 64 * 1024
"""Least bytes of a chunk's part in a window for which the calls cost little in comparison with the copying."""

WINDOW_PART = 16
"""A window takes at most this part (a sixteenth) of the cache."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Limits by which a sequential reader is told from others."""

    streaming_bytes: int = MIB
    """Bytes read in a row after which the whole file is expected to be read."""
    overtaken_bytes: int = 2 * MIB
    """Most bytes by which requests of the kernel overtake each other. A window this far behind is no longer needed."""


STREAM_LIMITS = StreamLimits()

_OPEN_WINDOWS, _OPEN_BYTES = 6, 48 * MIB
"""Most windows of one open file in memory, or bytes if windows are small. The kernel requests fewer ahead: without a window,
each read would be assembled alone, from chunks that may have been evicted."""

_PASSED_BYTES = 4 * WINDOW_BYTES
"""Chunks of at most so many bytes before the reader's position are given up at once. Windows finish in any order, so these
chunks may still be in the cache; earlier ones are not."""

_FEW = 16 * 1024
"""Most bytes of a request that the event loop assembles itself from chunks in memory: enough for a page of `mmap`."""


class ElementBytes:
    """The elements of a file as bytes. Thread-safe.

    A window is the range between two multiples of `window`. It holds whole planes (or rows) of the file, so that each chunk
    has one part in it. Its bytes stay in the cache until the reader has passed them. A reader that needs them while they are
    being made waits for the cache.
    """

    __slots__ = (
        "_ahead",
        "_behind",
        "_cache",
        "_closed",
        "_convert",
        "_elements",
        "_end",
        "_last",
        "_limits",
        "_progress",
        "_reader",
        "_run",
        "_supply",
        "_width",
        "size",
        "window",
    )

    def __init__(
        self,
        elements: Elements,
        reader: ElementReader,
        supply: ChunkSupply,
        native: np.dtype[Any] | None,
        cache: ChunkCache,
        limits: StreamLimits = STREAM_LIMITS,
    ) -> None:
        """`native`: type of the source's elements; None if numpy has no such type."""
        self._elements = elements
        self._reader = reader
        self._supply = supply
        shown = elements.dtype
        self._convert = None if native is None else find_conversion(native, shown)
        self._cache = cache
        self._limits = limits
        self._width = shown.itemsize
        self._progress = 0  # number of bytes that were read without a window
        self._end = self._run = 0  # end of the last such read, and bytes read in a row up to it
        self._behind = 0  # first element whose chunks have not been given up
        self._last = -2  # the last window that was assembled
        self._closed = False
        self._ahead: dict[int, bool] = {}  # windows that are in the cache (True), or are being assembled
        self.size = math.prod(reader.shape) * self._width
        """Bytes of all elements, as the file has them."""
        wanted = min(max(SMALL_WINDOW_BYTES, reader.chunks_across * PART_BYTES), WINDOW_BYTES)
        self.window = self._choose_window(min(wanted, cache.budget // WINDOW_PART))
        """Bytes that are prefetched at a time; 0 if the file is not longer than one window."""

    def _choose_window(self, most: int) -> int:
        """Return the largest number of bytes, at most `most`, that whole planes, rows or elements fill.

        0 if no element fits, or if all elements do.
        """
        if self.size <= most or most < self._width:
            return 0
        unit = self._width
        for extent in reversed(self._reader.shape):
            if unit * extent > most:
                break
            unit *= extent
        return most // unit * unit

    def peek(self, start: int, stop: int) -> Buffer | None:
        """Return bytes [start, stop) if that needs no waiting, else None. Never blocks.

        The bytes must have been assembled already, or be few bytes of chunks in memory.
        """
        if not self._ahead:
            return self._peek_few(start, stop) if stop - start <= _FEW else None
        parts: list[Buffer] = []
        position = start
        while position < stop:
            number, begin = divmod(position, self.window)
            part = self._peek_window(number, begin, min(begin + stop - position, self.window))
            if not part:
                return self._peek_few(start, stop) if stop - start <= _FEW else None
            parts.append(part)
            position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _peek_window(self, number: int, start: int, stop: int) -> Buffer | None:
        """Return bytes [start, stop) of window `number` if it is in memory, else None."""
        if self._ahead.get(number):
            view = self._cache.peek((self, number))
            if view is not None:
                if start >= self._limits.overtaken_bytes:
                    self._forget(number)
                return view[start:stop]
            self._ahead.pop(number, None)  # the cache has evicted the window
        return None

    def _peek_few(self, start: int, stop: int) -> Buffer | None:
        first, last = start // self._width, -(-stop // self._width)
        elements = self._reader.peek(first, last)
        if elements is None:
            return None
        shown = elements if self._convert is None else self._convert_elements(first, elements)
        return shown.view(np.uint8).data[start - first * self._width : stop - first * self._width]

    def prefetch(self, start: int, stop: int) -> None:
        """Prefetch the windows of bytes [start, stop), and the stored bytes of more behind them if the store is remote.

        Does nothing for a reader of only a few bytes, because a window may touch thousands of chunks.
        """
        if self._progress < self._limits.streaming_bytes or not self.window or self._closed:
            return
        self._reader.fetch(start // self._width)
        most = max(_OPEN_WINDOWS, _OPEN_BYTES // self.window)
        behind = -(-stop // self.window) if stop >= self.size else stop // self.window
        for number in range(start // self.window, behind):
            if not self._closed and number not in self._ahead and len(self._ahead) < most:
                self._assemble(number)
        if self._closed:
            self.close()

    def read(self, start: int, stop: int) -> Buffer:
        """Return bytes [start, stop) of the elements."""
        if not self.window or start // self.window == (stop - 1) // self.window:
            return self._read_within(start // self.window if self.window else 0, start, stop)
        out = np.empty(stop - start, np.uint8).data
        position = start
        while position < stop:  # one window at a time, because several may fill the whole cache
            number = position // self.window
            end = min(stop, (number + 1) * self.window)
            out[position - start : end - start] = self._read_within(number, position, end)
            position = end
        return out

    def _read_within(self, number: int, start: int, stop: int) -> Buffer:
        """Return bytes [start, stop) of the elements, all of them in window `number`."""
        coming = number in self._ahead and self._cache.holds((self, number))
        if coming or (number == self._last + 1 and number not in self._ahead):  # waiting is faster than many small parts
            with contextlib.suppress(FsbridgeError):  # the damage may be in other bytes
                return self._assemble(number)[start - number * self.window : stop - number * self.window]
        self._progress += stop - start
        self._expect(start, stop)
        first, last = start // self._width, -(-stop // self._width)
        out = np.empty((last - first) * self._width, np.uint8).data
        self._fill(first, last, out)
        if self._progress >= self._limits.streaming_bytes and not self._ahead:
            self._give_up(stop)
        return out[start - first * self._width : stop - first * self._width]

    def _expect(self, start: int, stop: int) -> None:
        """Fetch the stored bytes of the next chunks if a sequential reader reads from a remote store.

        Without a mount nothing else fetches them: 128 MB in chunks of 2 MiB take 0.7 s at a latency of 100 ms, and 5.7 s
        without this.
        """
        self._run = self._run + stop - start if abs(start - self._end) <= self._limits.overtaken_bytes else 0
        self._end = stop
        if self._run >= self._limits.streaming_bytes:
            self._reader.fetch(start // self._width)

    def _assemble(self, number: int) -> memoryview:
        """Return all bytes of window `number`. Assemble the window first if it is not in memory."""
        begin = number * self.window
        end = min(begin + self.window, self.size)
        self._ahead.setdefault(number, False)
        try:
            view = self._cache.get(
                (self, number), end - begin, lambda out: self._fill(begin // self._width, end // self._width, out)
            )
        except BaseException:
            self._ahead.pop(number, None)
            raise
        self._ahead[number] = True
        self._last = max(self._last, number)
        begun = min((other for other, ready in list(self._ahead.items()) if not ready), default=number + 1)
        self._give_up(begun * self.window)
        return view

    def _give_up(self, stop: int) -> None:
        """Tell the reader that no byte before `stop` will be read again, so that it can drop chunks."""
        last = stop // self._width
        if self._behind < last:
            self._behind = self._reader.give_up(max(self._behind, last - _PASSED_BYTES // self._width), last)

    def _fill(self, first: int, last: int, out: memoryview) -> None:
        """Fill `out` with elements [first, last), converted to the file's type."""
        if self._convert is None:
            self._reader.read_into(first, last, out)
        else:
            np.frombuffer(out, self._elements.dtype)[...] = self._convert_elements(first, self._reader.read(first, last))

    def _convert_elements(self, first: int, elements: NDArray[Any]) -> NDArray[Any]:
        """Convert elements to the file's type.

        `first`: number of the first element, so that an error can name the wrong one.
        """
        assert self._convert is not None
        try:
            return self._convert(elements)
        except Misfit as error:
            place = np.unravel_index(first + error.position, self._reader.shape)
            raise error.locate(self._reader.index([int(at) for at in place])) from None

    def _forget(self, before: int) -> None:
        """Drop the windows before number `before`, so that their buffers are reused next."""
        for number in list(self._ahead):
            if number < before:
                self._ahead.pop(number, None)
                self._cache.discard((self, number))  # the memory stays valid until its bytes have been sent

    def close(self) -> None:
        """Drop the assembled windows and free the disk space of spilled chunks."""
        self._closed = True
        for number in list(self._ahead):
            self._ahead.pop(number, None)
            self._cache.discard((self, number))
        self._supply.close()
