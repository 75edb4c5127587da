"""FLAC and WavPack: recordings of electrodes, as flac-numcodecs and wavpack-numcodecs write them. Not here: encoding.

Both give samples of one time after the other, in C order of the chunk. More channels than the codec has are one channel.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsbridge.codecs import Buffer, Decoder
from fsbridge.errors import CorruptData, TooLarge


@dataclass(frozen=True, slots=True)
class Flac(Decoder):
    """Decodes a FLAC stream. libFLAC checks the CRC of each frame."""

    name: str = "flac"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        handle = os.memfd_create("chunk")
        try:
            with open(handle, "wb", closefd=False) as file:  # the decoder reads files only
                file.write(data)
            decoder = flac_library().FlacNumpyDecoder(f"/proc/self/fd/{handle}")
            decoder.process()
        finally:
            os.close(handle)
        if decoder._error is not None:  # libFLAC goes on after a damaged frame
            raise CorruptData(str(decoder._error))
        return np.ascontiguousarray(decoder.decoded_data).view(np.uint8).ravel().data


@dataclass(frozen=True, slots=True)
class WavPack(Decoder):
    """Decodes a WavPack file."""

    name: str = "wavpack"

    def decode(self, data: Buffer, size: int | None, limit: int, out: memoryview | None) -> Buffer:
        decoded: bytes = wavpack_library().decompress(bytes(data), None, 1)
        if size is None and len(decoded) > limit:
            raise TooLarge(f"decodes to {len(decoded)} bytes, the limit is {limit}")
        return decoded


def flac_library() -> Any:
    """Return `flac_numcodecs.flac`."""
    from flac_numcodecs import flac

    return flac


def wavpack_library() -> Any:
    """Return `wavpack_numcodecs.wavpack`."""
    from wavpack_numcodecs import wavpack

    return wavpack
