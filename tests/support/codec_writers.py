"""A chunk of every codec that Zarr knows by an id, as the codec's own library writes it and reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import blosc2
import flac_numcodecs
import numcodecs
import numcodecs.abc
import numpy as np
import wavpack_numcodecs.wavpack
from imagecodecs import numcodecs as images

from fsbridge.codecs import table


class Chunk(NamedTuple):
    """One whole array. `decoded`: what the library reads, texts and objects in Zarr's vlen encoding."""

    config: dict[str, Any]
    values: np.ndarray[Any, Any]
    stored: bytes
    decoded: bytes


class Blosc2(numcodecs.abc.Codec):  # type: ignore[misc]
    """The class with this id that zarr-python's users have."""

    codec_id = "blosc2"

    def encode(self, buf: Any) -> Any:
        return blosc2.compress2(buf, codec=blosc2.Codec.ZSTD)

    def decode(self, buf: Any, out: Any = None) -> Any:
        return blosc2.decompress2(buf)


RAMP = np.add.outer(np.arange(16), np.arange(24)) * 3 % 251
PICTURE, DEEP = RAMP.astype("u1"), (RAMP * 200).astype("u2")
COLOURS = np.stack([PICTURE, PICTURE[::-1], PICTURE[:, ::-1]], -1)
WAVES = np.sin(RAMP / 9).astype("f4")
RECORDED = np.cumsum(np.random.default_rng(0).integers(-9, 9, (800, 2)), 0).astype("i2")
WORDS = np.array(["", "a", "wörld", "日本", "x" * 300] * 3, object)

VALUES: Mapping[str, np.ndarray[Any, Any]] = {
    **dict.fromkeys(("qoi", "webp"), COLOURS),
    **dict.fromkeys(("byteshuffle", "floatpred", "packints"), DEEP),
    **dict.fromkeys(("bfloat16", "float24", "quantize", "sperr", "sz3", "zfp"), WAVES),
    "rgbe": COLOURS / np.float32(251),
    "ultrahdr": np.stack([WAVES, WAVES[::-1], WAVES[:, ::-1], np.ones_like(WAVES)], -1).astype("f2") ** 2,
}
"""What imagecodecs' codecs get that do not take a picture of grey values."""


def _options(name: str, values: np.ndarray[Any, Any]) -> dict[str, Any]:
    """What the class of a codec of imagecodecs cannot do without."""
    if name in ("byteshuffle", "floatpred", "meshopt", "pcodec", "rcomp", "sz3"):
        return {"shape": list(values.shape), "dtype": values.dtype.str}
    options: dict[str, dict[str, Any]] = {
        "checksum": {"kind": "crc32"},
        "packints": {"dtype": "<u2", "bitspersample": 16},
        "rgbe": {"header": True},
        "quantize": {"mode": "bitround", "nsd": 3},
        "sperr": {"level": 16, "mode": "bpp"},
        "szip": {"options_mask": 4, "pixels_per_block": 8, "bits_per_pixel": 8, "pixels_per_scanline": 24},
    }
    return options.get(name, {})


READ_ONLY = {
    *("ccittfax3", "ccittfax4", "ccittrle", "dds", "dicomrle", "eer", "lzo"),  # imagecodecs has no encoder
    *("heif", "jpegxs"),  # its wheels have neither encoder nor decoder
}
"""Codecs of imagecodecs that it cannot write."""

NUMCODECS: Mapping[str, tuple[Callable[[], Any], np.ndarray[Any, Any]]] = {
    "adler32": (numcodecs.Adler32, DEEP),
    "astype": (lambda: numcodecs.AsType("<i4", "<i2"), RECORDED),
    "base64": (numcodecs.Base64, DEEP),
    "bitround": (lambda: numcodecs.BitRound(5), WAVES),
    "blosc": (numcodecs.Blosc, DEEP),
    "bz2": (numcodecs.BZ2, DEEP),
    "categorize": (lambda: numcodecs.Categorize(["a", "wörld", "日本", "x" * 300], object), WORDS),
    "crc32": (numcodecs.CRC32, DEEP),
    "crc32c": (numcodecs.checksum32.CRC32C, DEEP),
    "delta": (lambda: numcodecs.Delta("<i2"), RECORDED),
    "fixedscaleoffset": (lambda: numcodecs.FixedScaleOffset(1, 10, "<f4", "<i2"), WAVES),
    "fletcher32": (numcodecs.Fletcher32, DEEP),
    "gzip": (numcodecs.GZip, DEEP),
    "jenkins_lookup3": (numcodecs.JenkinsLookup3, DEEP),
    "json2": (numcodecs.JSON, WORDS),
    "lz4": (numcodecs.LZ4, DEEP),
    "lzma": (numcodecs.LZMA, DEEP),
    "msgpack2": (numcodecs.MsgPack, WORDS),
    "packbits": (numcodecs.PackBits, RAMP > 99),
    "pcodec": (numcodecs.PCodec, WAVES),
    "quantize": (lambda: numcodecs.Quantize(2, "<f4"), WAVES),
    "shuffle": (lambda: numcodecs.Shuffle(2), DEEP),
    "vlen-array": (lambda: numcodecs.VLenArray("u1"), np.empty(3, object)),
    "vlen-bytes": (numcodecs.VLenBytes, np.array([word.encode() for word in WORDS], object)),
    "vlen-utf8": (numcodecs.VLenUTF8, WORDS),
    "zfpy": (lambda: numcodecs.ZFPY(mode=4, tolerance=0.01), WAVES),
    "zlib": (numcodecs.Zlib, DEEP),
    "zstd": (numcodecs.Zstd, DEEP),
    "blosc2": (Blosc2, DEEP),
    "flac": (flac_numcodecs.Flac, RECORDED),
    "wavpack": (lambda: wavpack_numcodecs.wavpack.WavPack(bps=3, num_decoding_threads=1), RECORDED),
}
NUMCODECS["vlen-array"][1][:] = [np.arange(n, dtype="u1") for n in (0, 3, 7)]


@cache
def chunk(name: str) -> Chunk:
    """A chunk of the codec with this id."""
    if name in NUMCODECS:
        make, values = NUMCODECS[name]
        codec = make()
    else:
        kind = name.removeprefix("imagecodecs_")
        values = VALUES.get(kind, PICTURE)
        codec = getattr(images, kind.capitalize())(**_options(kind, values))
    config = dict(codec.get_config())
    stored = np.frombuffer(codec.encode(values), "u1").tobytes()
    found = codec.decode(stored)
    if values.dtype == object:
        again = numcodecs.VLenUTF8() if table.VLEN.get(_kind(name)) == "vlen-utf8" else numcodecs.VLenBytes()
        items = np.empty(len(values), object)
        items[:] = [item if isinstance(item, str | bytes) else item.tobytes() for item in found]
        return Chunk(config, values, stored, bytes(again.encode(items)))
    return Chunk(
        config, values, stored, np.ascontiguousarray(found).tobytes() if isinstance(found, np.ndarray) else bytes(found)
    )


def _kind(name: str) -> str:
    return next(codec.kind for codec in (*table.NUMCODECS, *table.ADDED) if codec.name == name)


def names() -> list[str]:
    """The ids of all codecs that have a writer."""
    return [*NUMCODECS, *(f"imagecodecs_{name}" for name in table.IMAGES if name not in READ_ONLY)]
