"""Codecs: a closed table of guarded decoders, and the chains made of them. Not here: how formats spell their codecs.

Here are the chain, what every decoder is, and the rule for the size that each must produce; the modules have the decoders.
Formats build a `CodecChain` from `Decoder` objects that functions of this package make. Nothing else in fsbridge decodes
bytes, and nothing else imports numcodecs. There is no registry: no plug-ins, no entry points, no `numcodecs.get_codec`
(P5).

Every decoder
- checks headers and lengths *before* it calls a native decoder (numcodecs' Blosc overruns its buffers otherwise),
- returns exactly the decoded bytes or raises CorruptData, also for a stream that ends early or late or leaves bytes over,
- verifies checksums,
- never allocates more than the expected size (or the limit) plus a constant.

What libraries of extras do not tell, goes unnoticed: bytes after the end, and in two formats that some are missing
(docs/formats.md names them). If the size is not known, a format without an end gives less of data that end early.

    | module | decodes |
    | --- | --- |
    | `table` | nothing itself: a record for each codec, with all its names |
    | `hdf5` | filters that only HDF5 has |
    | `blosc` (with Snappy), `lz4`, `streams` (gzip, zlib, bzip2, xz, zstd) | compressors, with N5's dialects |
    | `numeric` | arrays of numbers, by optional libraries |
    | `blosc2`, `audio`, `images` | what optional libraries decode in child processes |
    | `ends` | nothing itself: where data of `images` must end, if the library makes up what is missing |
    | `filters` | filters, memory and byte order |
    | `zarr3` | casts, packed bits, elements that may be missing |
    | `checksums` | checksums beside the data |
    | `objects` | elements of variable length |
    | `native` | nothing itself: the native libraries, imported when first used |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from fsbridge.errors import CorruptData, TooLarge, Unsupported

Buffer: TypeAlias = bytes | bytearray | memoryview

Read: TypeAlias = Callable[[int, int], Buffer]
"""(offset, length) -> encoded bytes. Both lie inside what is stored."""


class Overflow(CorruptData):
    """More decoded bytes than expected or, if the number is unknown, than allowed."""


def check_size(total: int, size: int | None, limit: int) -> None:
    """Raise CorruptData unless `total` decoded bytes are as many as expected, Overflow if they are more than `limit`."""
    if total > limit:
        raise Overflow(f"decodes to {total} bytes, the limit is {limit}")
    if size is not None and total != size:
        raise CorruptData(f"{total} bytes where {size} were expected")


class Decoder(ABC):
    """One decoding step from bytes to bytes. Stateless, thread-safe, releases the GIL if its library does.

    `direct`: `decode` into `out` needs no other memory of the chunk's size. `in_parts`: `decode_range` and `step` answer
    without decoding everything.
    """

    __slots__ = ()

    direct: ClassVar[bool] = False
    in_parts: ClassVar[bool] = False

    if TYPE_CHECKING:  # a field or a property

        @property
        @abstractmethod
        def name(self) -> str:
            """The name in messages: `blosc`, `gzip`, `delta`."""

    @abstractmethod
    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        """Decode all of `data` to exactly `size` bytes, or for None to what it holds, at most `limit` bytes.

        `out`, if given, is exactly `size` writable bytes: the decoder may fill it and return that very object, or ignore
        it and return other memory. Raises CorruptData; its subclass Overflow if there are more than `limit` bytes;
        Unsupported for an unknown variant of the codec.
        """

    def encoded_size(self, decoded: int) -> int | None:
        """Return the encoded size in bytes of `decoded` bytes, or None if it varies (compressors)."""
        return None

    def decode_range(
        self, read: Read, stored: int, size: int, start: int, stop: int, out: memoryview | None = None
    ) -> Buffer | None:
        """Return bytes [start, stop) of the `size` decoded ones, reading only what it needs of `stored` encoded bytes.

        `out`, if given, has exactly their size: the decoder may fill and return it, see `decode`. Raises CorruptData and
        Unsupported as `decode` does, but damage elsewhere goes unnoticed.
        """
        return None

    def step(self, read: Read, stored: int) -> int | None:
        """Return how many bytes are decoded together: a smaller range costs as much. Raises what `decode_range` does."""
        return None


@dataclass(frozen=True, slots=True)
class CodecChain:
    """Decoders in DECODING order: the first one gets the stored bytes.

    `direct` and `in_parts` are those of a single decoder. A chain without decoders has both, a chain of several has
    neither.
    """

    steps: tuple[Decoder, ...] = ()
    direct: bool = field(init=False, repr=False, compare=False)
    in_parts: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        only = self.steps[0] if len(self.steps) == 1 else None
        object.__setattr__(self, "direct", not self.steps or (only is not None and only.direct))
        object.__setattr__(self, "in_parts", not self.steps or (only is not None and only.in_parts))

    def decode_range(
        self, read: Read, stored: int, size: int, start: int, stop: int, out: memoryview | None = None
    ) -> Buffer | None:
        """Return bytes [start, stop) of the `size` decoded ones of `stored` encoded bytes, or None if not `in_parts`."""
        if not self.steps:
            if stored != size:
                raise CorruptData(f"{stored} bytes where the chunk has {size}")
            return read(start, stop - start)
        if not self.in_parts:
            return None
        try:
            return self.steps[0].decode_range(read, stored, size, start, stop, out)
        except CorruptData as error:
            raise CorruptData(f"{self.steps[0].name}: {error}") from None

    def step(self, read: Read, stored: int) -> int | None:
        """Return the least bytes of a chunk that `decode_range` decodes; None if not `in_parts`. `stored`: encoded ones."""
        if not self.steps:
            return 1
        if not self.in_parts:
            return None
        try:
            return self.steps[0].step(read, stored)
        except CorruptData as error:
            raise CorruptData(f"{self.steps[0].name}: {error}") from None

    @property
    def description(self) -> str:
        """The usual name in encoding order, such as `shuffle+gzip`; `none` for an empty chain."""
        return "+".join(step.name for step in reversed(self.steps)) or "none"

    def decode_into(self, data: Buffer, out: memoryview, limit: int) -> None:
        """Decode stored bytes to exactly the bytes of `out` (contiguous, writable)."""
        result = self._run(data, len(out), limit, out)
        if len(result) != len(out):
            raise CorruptData(f"{len(result)} bytes where the chunk has {len(out)}")
        if result is not out:
            out[:] = memoryview(result).cast("B")

    def decode(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        """Decode stored bytes to `size` bytes, or for None to any number up to `limit`. Raises TooLarge for more."""
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
                if expected is None and isinstance(error, Overflow):  # the data is intact
                    raise TooLarge(f"{step.name}: {error}: a larger --cache-size permits it") from None
                raise CorruptData(f"{step.name}: {error}") from None
            if expected is not None and len(data) != expected:
                raise CorruptData(f"{step.name}: {len(data)} bytes where {expected} were expected")
        return data

    def _sizes(self, size: int | None) -> Sequence[int | None]:
        """Return what each step must produce, derived backwards from the final size."""
        if len(self.steps) == 1:
            return (size,)
        sizes: list[int | None] = []
        for step in reversed(self.steps):
            sizes.append(size)
            size = step.encoded_size(size) if size is not None else None
        return sizes[::-1]


@dataclass(frozen=True, slots=True)
class RefusedStep(Decoder):
    """A decoding step that always raises Unsupported with its reason."""

    name: str
    reason: str

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        raise Unsupported(self.reason)


def refusal(*chains: CodecChain) -> str | None:
    """Return the reason of the first RefusedStep in these chains, or None if there is none."""
    return next((step.reason for chain in chains for step in chain.steps if isinstance(step, RefusedStep)), None)
