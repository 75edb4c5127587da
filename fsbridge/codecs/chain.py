"""A chain of decoders and the rule for the size that each of them must produce. Not here: any single codec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, cast

from fsbridge.errors import CorruptData, TooLarge

Buffer: TypeAlias = bytes | bytearray | memoryview

Read: TypeAlias = Callable[[int, int], Buffer]
"""Encoded bytes: offset and length, both inside of what is stored."""


class Overflow(CorruptData):
    """More decoded bytes than are expected or, where nobody knows how many there are, than are allowed."""


class Decoder(Protocol):
    """One bytes-to-bytes decoding step. Stateless, thread-safe, releases the GIL where its library does."""

    @property
    def name(self) -> str:
        """For people and messages: `blosc`, `gzip`, `delta`."""

    def encoded_size(self, decoded: int) -> int | None:
        """Size in bytes of the encoded form of `decoded` bytes; None when it varies (compressors)."""

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        """Decode all of `data` to exactly `size` bytes (None: to whatever it holds, at most `limit` bytes).

        `out`, when given, is exactly `size` writable bytes: the decoder may fill it and return that very object, or ignore
        it and return other memory. Raises CorruptData, of which Overflow says that there are more than `limit`; Unsupported
        for a variant of the codec that it does not know.
        """


class RangeDecoder(Protocol):
    """The ability of some decoders to decode a part."""

    def decode_range(
        self, read: Read, stored: int, size: int, start: int, stop: int, out: memoryview | None = None
    ) -> Buffer:
        """Bytes [start, stop) of the `size` decoded ones of `stored` encoded bytes, of which it reads what it needs.

        `out`, when given, is exactly of their size: the decoder may fill and return it, see `Decoder.decode`.
        Raises CorruptData and Unsupported as `Decoder.decode` does, but damage elsewhere is not seen.
        """

    def step(self, read: Read, stored: int) -> int:
        """Decoded bytes that are decoded together: a range of fewer costs as much. Errors as of `decode_range`."""


@dataclass(frozen=True, slots=True)
class CodecChain:
    """Decoders in DECODING order: the first one gets the stored bytes.

    `direct`: whether `decode_into` needs no memory of the chunk's size but the chunk's own, as decoders say that have an
    attribute of that name; `in_parts`: whether `decode_range` can answer without decoding everything.
    """

    steps: tuple[Decoder, ...] = ()
    direct: bool = field(init=False, repr=False, compare=False)
    in_parts: bool = field(init=False, repr=False, compare=False)
    _ranged: RangeDecoder | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        only = self.steps[0] if len(self.steps) == 1 else None
        # By name: `isinstance` of a protocol takes 10 us, and each array of a store has a chain or several.
        ranged = cast(RangeDecoder, only) if hasattr(only, "decode_range") else None
        object.__setattr__(self, "direct", not self.steps or hasattr(only, "direct"))
        object.__setattr__(self, "in_parts", not self.steps or ranged is not None)
        object.__setattr__(self, "_ranged", ranged)

    def decode_range(
        self, read: Read, stored: int, size: int, start: int, stop: int, out: memoryview | None = None
    ) -> Buffer | None:
        """Bytes [start, stop) of the `size` decoded ones of `stored` encoded bytes; None if not `in_parts`."""
        if not self.steps:
            if stored != size:
                raise CorruptData(f"{stored} bytes where the chunk has {size}")
            return read(start, stop - start)
        step = self._ranged
        if step is None:
            return None
        try:
            return step.decode_range(read, stored, size, start, stop, out)
        except CorruptData as error:
            raise CorruptData(f"{self.steps[0].name}: {error}") from None

    def step(self, read: Read, stored: int) -> int | None:
        """Decoded bytes that `decode_range` decodes together, of `stored` encoded ones; None if not `in_parts`."""
        if not self.steps:
            return 1
        step = self._ranged
        if step is None:
            return None
        try:
            return step.step(read, stored)
        except CorruptData as error:
            raise CorruptData(f"{self.steps[0].name}: {error}") from None

    @property
    def description(self) -> str:
        """In encoding order, as people say it: `shuffle+gzip`; `none` for an empty chain."""
        return "+".join(step.name for step in reversed(self.steps)) or "none"

    def decode_into(self, data: Buffer, out: memoryview, limit: int) -> None:
        """Decode stored bytes to exactly the bytes of `out` (contiguous, writable)."""
        result = self._run(data, len(out), limit, out)
        if len(result) != len(out):
            raise CorruptData(f"{len(result)} bytes where the chunk has {len(out)}")
        if result is not out:
            out[:] = memoryview(result).cast("B")

    def decode(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        """Decode stored bytes to `size` bytes (None: any number up to `limit`; TooLarge for more)."""
        result = self._run(data, size, limit, None)
        if size is not None and len(result) != size:
            raise CorruptData(f"{len(result)} bytes where the chunk has {size}")
        return result

    def _run(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        if size is not None and size > limit:
            raise TooLarge(f"chunk of {size} bytes, the limit is {limit}: a larger --cache-size permits it")
        sizes = self._sizes(size)
        last = len(self.steps) - 1
        for position, (step, expected) in enumerate(zip(self.steps, sizes, strict=True)):
            try:
                data = step.decode(data, expected, limit, out if position == last else None)
            except CorruptData as error:
                if expected is None and isinstance(error, Overflow):  # nothing is wrong with it
                    raise TooLarge(f"{step.name}: {error}: a larger --cache-size permits it") from None
                raise CorruptData(f"{step.name}: {error}") from None
            if expected is not None and len(data) != expected:
                raise CorruptData(f"{step.name}: {len(data)} bytes where {expected} were expected")
        return data

    def _sizes(self, size: int | None) -> Sequence[int | None]:
        """What each step must produce, derived backwards from the size of the whole."""
        if len(self.steps) == 1:
            return (size,)
        sizes: list[int | None] = []
        for step in reversed(self.steps):
            sizes.append(size)
            size = step.encoded_size(size) if size is not None else None
        return sizes[::-1]
