"""The encoded bytes of a stored chunk, read only as far as the wanted part of the decoded bytes needs them.

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
    """`stored` bytes that `chain`, which decodes in parts, makes `size` decoded ones of. `place`: for messages."""

    chain: CodecChain
    read: Read
    stored: int
    size: int
    place: Callable[[], str]

    def decode_range(self, start: int, stop: int) -> bytes | None:
        """The decoded bytes [start, stop). Errors as of `read` and of the decoder."""
        found = self._placed(lambda: self.chain.decode_range(self.read, self.stored, self.size, start, stop))
        return None if found is None else bytes(found)

    def decode_into(self, start: int, out: memoryview) -> None:
        """As many decoded bytes as `out` has, from `start` on."""
        found = self._placed(
            lambda: self.chain.decode_range(self.read, self.stored, self.size, start, start + len(out), out)
        )
        if found is None or len(found) != len(out):
            raise CorruptData(f"{self.place()}: no {len(out)} bytes at {start} of {self.size}")
        view = memoryview(found).cast("B")
        if view.obj is not out.obj:
            out[:] = view

    def step(self) -> int | None:
        """Decoded bytes that are decoded together."""
        return self._placed(lambda: self.chain.step(self.read, self.stored))

    def _placed(self, decode: Callable[[], T]) -> T:
        try:
            return decode()
        except (CorruptData, Unsupported) as error:
            place = self.place()
            raise error if str(error).startswith(place) else error.at(place) from None
