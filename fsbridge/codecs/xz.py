"""bzip2, xz and lzma, by the standard library. Not here: LZMA inside other containers."""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fsbridge.codecs.chain import Buffer, CodecAbilities, Decoder
from fsbridge.codecs.stream import Decompressor, Output, expand
from fsbridge.errors import Unsupported

MEMORY_BYTES = 256 << 20
"""Most bytes of a decoder's dictionary. The highest preset (9) needs 65 MiB."""
FILTER_KEYS = {
    lzma.FILTER_LZMA1: ("preset", "dict_size", "lc", "lp", "pb"),
    lzma.FILTER_LZMA2: ("preset", "dict_size", "lc", "lp", "pb"),
    lzma.FILTER_DELTA: ("dist",),
}
BRANCH_FILTERS = (
    lzma.FILTER_X86,
    lzma.FILTER_POWERPC,
    lzma.FILTER_IA64,
    lzma.FILTER_ARM,
    lzma.FILTER_ARMTHUMB,
    lzma.FILTER_SPARC,
)


@dataclass(frozen=True, slots=True)
class Bz2(CodecAbilities):
    """One or more bzip2 streams."""

    name: str = "bz2"
    direct: ClassVar[bool] = True

    def encoded_size(self, decoded: int) -> int | None:
        return None

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        errors = (OSError, ValueError, EOFError)
        return expand(bz2.BZ2Decompressor, errors, data, Output(size, limit, out), many=True)


@dataclass(frozen=True, slots=True)
class Lzma(CodecAbilities):
    """LZMA. `format` as in the `lzma` module: 0 automatic, 1 xz (several streams allowed), 2 alone, 3 raw with `filters`."""

    name: str
    format: int
    filters: tuple[tuple[tuple[str, int], ...], ...] = ()
    direct: ClassVar[bool] = True

    def encoded_size(self, decoded: int) -> int | None:
        return None

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        errors = (lzma.LZMAError, ValueError, EOFError)
        return expand(self._start, errors, data, Output(size, limit, out), many=self.format == lzma.FORMAT_XZ)

    def _start(self) -> Decompressor:
        if self.format == lzma.FORMAT_RAW:
            return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[dict(entry) for entry in self.filters])
        return lzma.LZMADecompressor(self.format, MEMORY_BYTES)


def bzip2() -> Decoder:
    """Return the decoder of bzip2 streams."""
    return Bz2()


def xz() -> Decoder:
    """Return the decoder of the .xz container."""
    return Lzma("xz", lzma.FORMAT_XZ)


def lzma_stream(format: int = lzma.FORMAT_XZ, filters: Sequence[Mapping[str, Any]] | None = None) -> Decoder:
    """Return the decoder of numcodecs' `lzma`. `filters` belong to the raw format (3); the others do not need them.

    Raises Unsupported for a format or filter that liblzma does not have.
    """
    if format not in (lzma.FORMAT_AUTO, lzma.FORMAT_XZ, lzma.FORMAT_ALONE, lzma.FORMAT_RAW):
        raise Unsupported(f"lzma format {format!r}")
    if format != lzma.FORMAT_RAW:
        return Lzma("lzma", format)
    if not isinstance(filters, (list, tuple)):
        raise Unsupported(f"raw lzma with filters {filters!r}")
    decoder = Lzma("lzma", format, tuple(_filter(entry) for entry in filters))
    try:
        decoder._start()
    except (lzma.LZMAError, ValueError, OverflowError) as error:
        raise Unsupported(f"lzma filters {filters!r}: {error}") from None
    return decoder


def _filter(entry: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return one filter's parameters that decoding needs, checked."""
    try:
        number = int(entry["id"])
        keys = ("start_offset",) if number in BRANCH_FILTERS else FILTER_KEYS[number]
        chosen = [(key, int(entry[key])) for key in keys if key in entry]
    except (KeyError, TypeError, ValueError):
        raise Unsupported(f"lzma filter {entry!r}") from None
    if dict(chosen).get("dict_size", 0) > MEMORY_BYTES:
        raise Unsupported(f"lzma dictionary of {dict(chosen)['dict_size']} bytes; the limit is {MEMORY_BYTES}")
    return (("id", number), *chosen)
