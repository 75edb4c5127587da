"""Snappy's raw format: streams in some Blosc frames of TensorStore, PyTables and old numcodecs. Not here: framing.

cramjam decodes it, by a library in safe Rust: it writes within the given memory only, and says what is wrong unless each
byte of the stream is used and each byte of the memory is filled. Other threads run meanwhile.
"""

from __future__ import annotations

from fsbridge.errors import CorruptData


def decompress_into(data: memoryview, out: memoryview) -> None:
    """Decode a stream to exactly the bytes of `out`; CorruptData for any other stream."""
    import cramjam  # takes 10 ms, and such data is rare

    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size == len(out):
            size = cramjam.snappy.decompress_raw_into(data, out)
    except cramjam.DecompressionError as error:
        raise CorruptData(str(error)) from None
    if size != len(out):
        raise CorruptData(f"snappy data of {size} bytes where {len(out)} were expected")
