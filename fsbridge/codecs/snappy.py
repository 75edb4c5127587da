"""Snappy's raw format, in which Blosc frames of TensorStore, PyTables and old numcodecs may have streams. Not here: framing.

cramjam decodes it, by a library in safe Rust: it writes within the given memory only, and says what is wrong unless each
byte of the stream is used and each byte of the memory is filled. It lets other threads go on meanwhile.
"""

from __future__ import annotations

from fsbridge.errors import CorruptData


def decompress_into(data: memoryview, out: memoryview) -> None:
    """Decode a stream to exactly the bytes of `out`; CorruptData for any other stream."""
    import cramjam  # takes a hundredth of a second, for data that are rare

    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size == len(out):
            size = cramjam.snappy.decompress_raw_into(data, out)
    except cramjam.DecompressionError as error:
        raise CorruptData(str(error)) from None
    if size != len(out):
        raise CorruptData(f"snappy data of {size} bytes where {len(out)} were expected")
