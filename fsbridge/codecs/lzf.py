"""liblzf's format, as HDF5's filter 32000 (h5py) stores it. Not here: LZF file headers, compression.

In Python: the bindings on PyPI are hardly maintained. About 20-100 MB/s of decoded bytes; h5py's chunks are at most 1 MiB.
"""

from __future__ import annotations

from fsbridge.codecs.chain import Buffer
from fsbridge.errors import CorruptData


def decode(data: Buffer, size: int) -> bytearray:
    """Exactly `size` decoded bytes; CorruptData for anything else."""
    stored = bytes(data)
    end = len(stored)
    out = bytearray()
    position = 0
    try:
        while position < end:
            control = stored[position]
            position += 1
            if control < 32:  # that many literals and one more
                literal = stored[position : position + control + 1]
                position += control + 1
                out += literal
                continue
            length = (control >> 5) + 2
            if length == 9:
                length += stored[position]
                position += 1
            start = len(out) - ((control & 31) << 8) - stored[position] - 1
            position += 1
            if start < 0:
                raise CorruptData("a reference to before the beginning of the data")
            if len(out) > size:
                raise CorruptData(f"decodes to more than {size} bytes")
            copy = out[start : start + length]
            if len(copy) < length:  # the copy overlaps what it makes: a repeating pattern
                copy = (copy * (length // len(copy) + 1))[:length]
            out += copy
    except IndexError:
        raise CorruptData("the compressed data ends early") from None
    if position != end or len(out) != size:
        raise CorruptData(f"decodes to {len(out)} bytes, not {size}")
    return out
