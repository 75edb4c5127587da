"""A checksum of an array's type, shape and elements, as `docs/digest.md` specifies it, and of each other file's bytes.

Not here: printing.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsbridge.errors import FsbridgeError
from fsbridge.model import Array, as_array
from fsbridge.unmounted.ordered import OrderedArray, ordered, type_text
from fsbridge.unmounted.units import WHOLE, JobPart, OtherUnit, Unit, Work, WorkSources, members, other_units

VERSION = "fsbridge-digest-1"

BLOCK = 65536
"""Elements of a block."""

READ_BYTES = 8 << 20
"""Bytes that are read at a time: enough for several chunks to be decoded at once."""


@dataclass(frozen=True, slots=True)
class BlockRange(Unit):
    """Elements [start, stop) of the array at `path` of a source, in whole blocks. `is_last`: the array ends with them."""

    source: int
    start: int
    stop: int
    is_last: bool
    reversed_axes: bool


class Digest(Work["BlockRange | OtherUnit", bytes]):
    """The digests of all arrays and other files at some places; `report` gets each with its path."""

    def __init__(
        self,
        sources: WorkSources,
        places: Sequence[tuple[int, str]],
        tell: Callable[[str, Exception], object],
        report: Callable[[str, str], object],
        wanted: Collection[str] | None = None,
        reversed_axes: bool = False,
        part: JobPart = WHOLE,
    ) -> None:
        """`places`: numbers of sources, and paths in them. `wanted`: only what has these paths.

        A job's part consists of whole arrays and files.
        """
        super().__init__(sources, tell, part)
        self._places = places
        self._report = report
        self._wanted = wanted
        self._reversed = reversed_axes
        self._hash: Any = None  # of the array that is being joined; None if one of its units has failed
        self._arrays: deque[OrderedArray] = deque()  # arrays with units still to come, in their order

    def units(self) -> Iterator[BlockRange | OtherUnit]:
        number = 0
        for source, path in self._places:
            try:
                for member in members(self.sources.tree(source), path):
                    if member.error is not None:
                        self.tell(member.path, member.error)
                        continue
                    array = None if member.node is None else as_array(member.node)
                    if array is not None and self._is_wanted(member.path):
                        if self.part.has(number):
                            yield from self._cut(source, member.path, array)
                        number += 1
                    for unit in other_units(source, member):
                        if self._is_wanted(unit.path):
                            if self.part.has(number):
                                yield unit
                            number += 1
            except (FsbridgeError, OSError) as error:
                self.tell(path or self.sources.configs[source].source, error)

    def _is_wanted(self, path: str) -> bool:
        return self._wanted is None or path in self._wanted

    def _cut(self, source: int, path: str, array: Array) -> Iterator[BlockRange]:
        try:
            elements = ordered(self.sources, source, path, self._reversed, array)
        except (FsbridgeError, OSError) as error:
            self.tell(path, error)
            return
        self._arrays.append(elements)
        itemsize = array.metadata.dtype.itemsize
        for start, stop in elements.pieces(BLOCK):
            last = stop == elements.size
            yield BlockRange(path, (stop - start) * itemsize, source, start, stop, last, self._reversed)

    @staticmethod
    def do(sources: WorkSources, unit: BlockRange | OtherUnit) -> bytes:
        """Return the SHA-256 digests of the blocks, joined, or that of another file."""
        if isinstance(unit, OtherUnit):
            whole = hashlib.sha256()
            for piece in unit.pieces(sources):
                whole.update(piece)
            return whole.digest()
        elements = ordered(sources, unit.source, unit.path, unit.reversed_axes)
        blocks = _text_blocks(elements) if elements.is_text else _blocks(elements, unit)
        digests = bytearray()
        for block in blocks:
            digests += hashlib.sha256(block).digest()
            if sources.ended:
                break
        return bytes(digests)

    def join(self, unit: BlockRange | OtherUnit, result: bytes) -> None:
        if isinstance(unit, OtherUnit):
            self._report(unit.path, result.hex())
            return
        elements = self._arrays[0]
        if not unit.start:
            shape = ",".join(map(str, elements.shape))
            header = f"{VERSION}\n{type_text(elements.array.metadata.dtype.name)}\n{shape}\n"
            self._hash = hashlib.sha256(header.encode("utf-8", "surrogatepass"))  # half a pair may be in a field's name
        if self._hash is not None:
            self._hash.update(result)
        if unit.is_last:
            self._end(unit.path)

    def failed(self, unit: BlockRange | OtherUnit, error: Exception) -> None:
        if isinstance(unit, OtherUnit):
            self.tell(unit.path, error)
            return
        if not unit.start or self._hash is not None:
            self.tell(unit.path, error)
        self._hash = None
        if unit.is_last:
            self._end(unit.path)

    def _end(self, path: str) -> None:
        elements = self._arrays.popleft()
        if self._hash is None:
            return
        try:
            elements.check()
        except (FsbridgeError, OSError) as error:
            self.tell(path, error)
        else:
            self._report(path, self._hash.hexdigest())


def _blocks(elements: OrderedArray, unit: BlockRange) -> Iterator[memoryview]:
    itemsize = max(1, elements.array.metadata.dtype.itemsize)
    step = max(1, READ_BYTES // itemsize // BLOCK) * BLOCK
    with elements.reading() as sequence:
        for start in range(unit.start, unit.stop, step):
            piece = np.ascontiguousarray(sequence.read(start, min(start + step, unit.stop)))
            data = piece.reshape(-1).view(np.uint8).data
            width = BLOCK * (len(data) // len(piece))
            yield from (data[at : at + width] for at in range(0, len(data), width))


def _text_blocks(elements: OrderedArray) -> Iterator[bytes]:
    block, count = bytearray(), 0
    for band in elements.texts():
        for item in band:
            block += len(item).to_bytes(8, "little") + item
            count += 1
            if count == BLOCK:
                yield bytes(block)
                block, count = bytearray(), 0
    if count:
        yield bytes(block)


def line(path: str, digest: str) -> str:
    """Return the line of an array, in the format of sha256sum."""
    return f"{digest}  {path}"


def parse_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield digest and path of each line; ValueError names the first line that is malformed."""
    lines = text.removesuffix("\n").split("\n") if text else []  # other line separators of Unicode may be in a path
    for number, line in enumerate(lines, 1):
        digest, blanks, path = line.removesuffix("\r").partition("  ")
        if len(digest) != 64 or not blanks or set(digest) - set("0123456789abcdef"):
            raise ValueError(f"line {number}: not a digest and a path")
        yield digest, path
