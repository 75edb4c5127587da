"""A stored chunk that is decoded in part: only the encoded bytes needed for that part are read.

Not here: where they are (the formats), decoding (`codecs/`), which parts are wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from fsbridge.codecs import CodecChain
from fsbridge.codecs.chain import Read
from fsbridge.errors import CorruptData, Unsupported

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Encoded:
    """A chunk of `stored` encoded and `size` decoded bytes, decoded in part by `chain`. `place`: for messages."""

    chain: CodecChain
    read: Read
    stored: int
    size: int
    place: Callable[[], str]

    def decode_range(self, start: int, stop: int) -> bytes | None:
        """Return the decoded bytes [start, stop), or None if `chain` cannot. Raises errors of `read` and the decoder."""
        found = self._placed(lambda: self.chain.decode_range(self.read, self.stored, self.size, start, stop))
        return None if found is None else bytes(found)

    def decode_into(self, start: int, out: memoryview) -> None:
        """Fill `out` with decoded bytes from `start` on. Raises CorruptData if there are fewer."""
        found = self._placed(
            lambda: self.chain.decode_range(self.read, self.stored, self.size, start, start + len(out), out)
        )
        if found is None or len(found) != len(out):
            raise CorruptData(f"{self.place()}: no {len(out)} bytes at {start} of {self.size}")
        view = memoryview(found).cast("B")
        if view.obj is not out.obj:
            out[:] = view

    def step(self) -> int | None:
        """Return the unit of decoding in decoded bytes, or None if only the whole chunk can be decoded."""
        return self._placed(lambda: self.chain.step(self.read, self.stored))

    def _placed(self, decode: Callable[[], T]) -> T:
        try:
            return decode()
        except (CorruptData, Unsupported) as error:
            place = self.place()
            raise error if str(error).startswith(place) else error.at(place) from None
