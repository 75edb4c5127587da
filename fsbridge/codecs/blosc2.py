"""Blosc2 chunks and frames outside HDF5, by python-blosc2. Not here: Blosc 1 (`blosc.py`), Blosc2 as a filter of HDF5.

A chunk begins with 32 bytes: `version, compressor's version, flags, element size`, then u32 LE of the decoded bytes, a
block and the chunk itself. A frame (`b2frame`) has chunks and metadata of its own.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from fsbridge.codecs import Buffer, Decoder, check_size
from fsbridge.errors import CorruptData, Unsupported

HEADER = struct.Struct("<4B3I")
EXTENDED, LAZY, FLAGS_AT = 32, 0x08, 31
"""Bytes of the header of Blosc2's own chunks; the flag of one whose blocks are in another file, and where it is."""
FRAME, FRAME_MAGIC_AT = b"b2frame\0", 2


@dataclass(frozen=True, slots=True)
class Blosc2(Decoder):
    """Decodes one chunk, of Blosc2 or Blosc 1, or one contiguous frame."""

    name: str = "blosc2"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        raw = bytes(data)
        if raw[FRAME_MAGIC_AT : FRAME_MAGIC_AT + len(FRAME)] == FRAME:
            return self._frame(raw, size, limit)
        if len(raw) < HEADER.size:
            raise CorruptData(f"{len(raw)} bytes are too few for a header")
        *_, decoded, block, stored = HEADER.unpack_from(raw)
        check_size(decoded, size, limit)
        if stored != len(raw) or (decoded and not 0 < block <= decoded):
            raise CorruptData(f"the header tells of {stored} bytes in blocks of {block}; there are {len(raw)}")
        if len(raw) >= EXTENDED and raw[0] >= 5 and raw[FLAGS_AT] & LAZY:
            raise Unsupported("Blosc2 chunks with their blocks in another file are not read")
        decompressed: bytes = library().decompress2(raw)
        return decompressed

    def _frame(self, raw: bytes, size: int | None, limit: int) -> Buffer:
        frame = library().schunk_from_cframe(raw, copy=True)
        check_size(frame.nbytes, size, limit)
        decoded: bytes = frame[:] if frame.nbytes else b""
        return decoded


def library() -> Any:
    """Return `blosc2`, decoding with one thread."""
    import blosc2

    blosc2.set_nthreads(1)
    return blosc2
