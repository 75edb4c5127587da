"""Stored chunks of every codec by independent encoders, with the decoder that must give the data back."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import sys
import tempfile
import zlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import codec_writers
import h5py
import hdf5plugin
import numcodecs
import numpy as np
import xxhash
import zfpy

from fsbridge.codecs import CodecChain, Decoder, blosc, filters, lz4, n5, objects, streams, table, zarr3

if sys.version_info >= (3, 14):
    from compression.zstd import CompressionParameter, ZstdCompressor
else:
    from backports.zstd import CompressionParameter, ZstdCompressor

ZFP_MODES: list[tuple[int, dict[str, float]]] = [(2, {"rate": 8}), (3, {"precision": 20}), (4, {"tolerance": 1e-3})]
"""zfp's modes of a fixed rate, a fixed precision and a fixed accuracy, by its numbers."""

# Small dictionaries and windows: a decoder allocates them whole, which is what takes its time on chunks this small.
LZMA_FILTERS = [{"id": lzma.FILTER_DELTA, "dist": 2}, {"id": lzma.FILTER_LZMA2, "preset": 0}]
SKIPPABLE = b"\x50\x2a\x4d\x18\x03\0\0\0xyz"
BLOSC_COMPRESSORS = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")


def zstd_encode(data: bytes, *, content_size: bool = True, checksum: bool = False) -> bytes:
    """A frame by the streaming interface, which declares the content size only when told."""
    options = {
        CompressionParameter.content_size_flag: int(content_size),
        CompressionParameter.checksum_flag: int(checksum),
        CompressionParameter.window_log: 17,
    }
    compressor = ZstdCompressor(options={int(option): value for option, value in options.items()})
    if content_size:
        compressor.set_pledged_input_size(len(data))
        return compressor.compress(data, compressor.FLUSH_FRAME)
    half = len(data) // 2
    return compressor.compress(data[:half]) + compressor.compress(data[half:], compressor.FLUSH_FRAME)


def java_lz4(data: bytes, block: int = 1 << 16) -> bytes:
    """lz4-java's LZ4BlockOutputStream, assembled by hand around numcodecs' LZ4 blocks."""
    level = max(0, (block - 1).bit_length() - 10)
    parts = []
    for start in range(0, len(data), block):
        piece = data[start : start + block]
        packed = bytes(numcodecs.lz4.compress(piece))[4:]
        method, stored = (0x20, packed) if len(packed) < len(piece) else (0x10, piece)
        checksum = xxhash.xxh32(piece, seed=0x9747B28C).intdigest() & 0x0FFFFFFF
        parts.append(b"LZ4Block" + struct.pack("<BIII", method | level, len(stored), len(piece), checksum) + stored)
    return b"".join(parts) + b"LZ4Block" + struct.pack("<BIII", 0x10 | level, 0, 0, 0)


def blosc_encode(data: bytes, cname: str, shuffle: int, blocksize: int = 4096, typesize: int = 2) -> bytes:
    """A Blosc-1 frame by numcodecs."""
    return bytes(numcodecs.blosc.compress(np.frombuffer(data, "u1"), cname.encode(), 5, shuffle, blocksize, typesize))


COMPRESSORS: dict[str, tuple[Callable[[bytes], bytes], Decoder]] = {
    "gzip": (gzip.compress, streams.Deflate("gzip", "gzip")),
    "gzip members": (lambda d: gzip.compress(d[:100]) + gzip.compress(d[100:]), streams.Deflate("gzip", "gzip")),
    "zlib": (zlib.compress, streams.Deflate("zlib", "zlib")),
    "n5 gzip": (gzip.compress, streams.Deflate("gzip", "either")),
    "n5 gzip as zlib": (zlib.compress, streams.Deflate("gzip", "either")),
    "bz2": (lambda d: bz2.compress(d, 1), streams.Bz2()),
    "xz": (lambda d: lzma.compress(d, preset=0), streams.Lzma("xz", 1)),
    "lzma xz": (lambda d: lzma.compress(d, preset=0), streams.lzma_stream(1)),
    "lzma alone": (lambda d: lzma.compress(d, lzma.FORMAT_ALONE, preset=0), streams.lzma_stream(2)),
    "lzma raw": (lambda d: lzma.compress(d, lzma.FORMAT_RAW, filters=LZMA_FILTERS), streams.lzma_stream(3, LZMA_FILTERS)),
    "zstd": (lambda d: bytes(numcodecs.Zstd(level=3).encode(d)), streams.Zstd()),
    "zstd checksum": (lambda d: zstd_encode(d, checksum=True), streams.Zstd()),
    "zstd unknown size": (lambda d: zstd_encode(d, content_size=False), streams.Zstd()),
    "zstd frames": (lambda d: zstd_encode(d[:50]) + zstd_encode(d[50:], content_size=False), streams.Zstd()),
    "zstd skippable": (lambda d: SKIPPABLE + zstd_encode(d), streams.Zstd()),
    "lz4": (lambda d: bytes(numcodecs.LZ4().encode(d)), lz4.Lz4()),
    "n5 lz4 java": (lambda d: java_lz4(d, 1 << 12), lz4.N5Lz4()),
    "n5 lz4 numcodecs": (lambda d: bytes(numcodecs.LZ4().encode(d)), lz4.N5Lz4()),
    "n5 lz4 z5": (lambda d: bytes(numcodecs.LZ4().encode(d))[4:], lz4.N5Lz4()),
    **{
        f"blosc {cname} {shuffle}": (partial(blosc_encode, cname=cname, shuffle=shuffle), blosc.Blosc())
        for cname in BLOSC_COMPRESSORS
        for shuffle in (0, 1, 2)
    },
}
"""Encoder and decoder of arbitrary bytes."""

FILTERS = {
    "delta": numcodecs.Delta("<i4", "<i2"),
    "fixedscaleoffset": numcodecs.FixedScaleOffset(10, 2, "<f4", "<i2"),
    "quantize": numcodecs.Quantize(2, "<f8", "<f4"),
    "astype": numcodecs.AsType("<f4", "<f8"),
    "packbits": numcodecs.PackBits(),
    "shuffle": numcodecs.Shuffle(4),
    "base64": numcodecs.Base64(),
    "crc32": numcodecs.CRC32(),
    "adler32": numcodecs.Adler32(location="end"),
    "fletcher32": numcodecs.Fletcher32(),
    "jenkins_lookup3": numcodecs.JenkinsLookup3(),
    "crc32c": numcodecs.checksum32.CRC32C(),
}

HDF5: dict[str, dict[str, Any]] = {
    "hdf5 gzip shuffle fletcher32": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "hdf5 scaleoffset": {"scaleoffset": 0, "fillvalue": 3},
    "hdf5 lz4": dict(hdf5plugin.LZ4(nbytes=1024)),
    "hdf5 bitshuffle": dict(hdf5plugin.Bitshuffle(cname="none")),
    "hdf5 bitshuffle lz4": dict(hdf5plugin.Bitshuffle(cname="lz4")),
    "hdf5 bitshuffle zstd": dict(hdf5plugin.Bitshuffle(cname="zstd", nelems=64)),
}


class Sample(NamedTuple):
    """One stored chunk; `size`: of the decoded data."""

    stored: bytes
    size: int


class Case(NamedTuple):
    """A decoder with chunks that it decodes. `sized`: it cannot do so without being told the size."""

    chain: CodecChain
    samples: list[Sample]
    sized: bool = False


def hdf5_chunk(path: Path, data: np.ndarray, options: dict[str, Any]) -> tuple[CodecChain, bytes]:
    """A one-chunk dataset by h5py: its filters as a chain, and the stored chunk."""
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("d", data=data, chunks=data.shape, **options)
        file.flush()
        mask, stored = dataset.id.read_direct_chunk((0,) * data.ndim)
        plist = dataset.id.get_create_plist()
        pipeline = [plist.get_filter(i) for i in range(plist.get_nfilters())]
    assert not mask
    steps = [table.filter_decoder(entry[0], entry[2]) for entry in pipeline]
    return CodecChain(tuple(step for step in steps[::-1] if step is not None)), stored


@cache
def cases() -> dict[str, Case]:
    """Every codec with chunks of up to a few thousand bytes: smooth, random and repetitive data."""
    rng = np.random.default_rng(7)
    smooth = np.cumsum(rng.integers(-3, 4, 3000)).astype("<i2")
    data = [smooth.tobytes(), rng.bytes(1500), bytes(5000), b"abcabc" * 90]
    found = {
        name: Case(CodecChain((decoder,)), [Sample(encode(d), len(d)) for d in data], name == "n5 lz4 z5")
        for name, (encode, decoder) in COMPRESSORS.items()
    }
    for name, codec in FILTERS.items():
        kind = {"quantize": "<f8", "fixedscaleoffset": "<f4", "astype": "<f8", "packbits": "?"}.get(name, "<i4")
        values = [smooth[:501].astype(kind), np.zeros(64, kind)]
        stored = [np.frombuffer(codec.encode(value), "u1").tobytes() for value in values]
        chain = CodecChain((table.decoder(codec.get_config()),))
        found[name] = Case(chain, [Sample(s, v.nbytes) for s, v in zip(stored, values, strict=True)])
    with tempfile.TemporaryDirectory() as folder:
        for name, options in HDF5.items():
            chain, chunk = hdf5_chunk(Path(folder) / "h.h5", smooth.astype("<i4"), options)
            found[name] = Case(chain, [Sample(chunk, 4 * len(smooth))], sized=True)
    return found | _others(smooth) | confined()


@cache
def confined() -> dict[str, Case]:
    """Every codec that decodes in child processes and has a writer, under its name in the table."""
    found = {}
    for name in codec_writers.names():
        if name in table.CONFINED and name != "zfpy":
            chunk = codec_writers.chunk(name)
            chain = CodecChain((table.decoder(chunk.config, chunk.values.dtype),))
            found[name] = Case(chain, [Sample(chunk.stored, len(chunk.decoded))])
    waves = np.sin(np.arange(300).reshape(10, 5, 6) / 7).astype("f4")
    bare = table.CONFINED["zfp"].decoder({"mode": "fixed_rate", "rate": 8}, waves.dtype, shape=waves.shape)
    zfp = Case(CodecChain((bare,)), [Sample(zfpy.compress_numpy(waves, rate=8, write_header=False), waves.nbytes)], True)
    headed = CodecChain((table.decoder({"id": "zfpy"}, stored=waves.dtype),))
    modes = [numcodecs.ZFPY(mode=mode, **options) for mode, options in ZFP_MODES]
    zfpy_samples = [Sample(bytes(codec.encode(waves)), waves.nbytes) for codec in modes]
    return found | {"zfp": zfp, "zfpy": Case(headed, zfpy_samples, True)}


def _others(smooth: np.ndarray) -> dict[str, Case]:
    """Codecs with samples that are made by hand: objects, casts, structs, nbit."""
    texts = np.array(["", "a", "wörld", "日本", "x" * 300] * 9, object)
    whole = bytes(numcodecs.VLenUTF8().encode(texts))
    struct_type = np.dtype([("a", ">i2"), ("b", ">f8"), ("c", "u1")])
    structs = np.random.default_rng(1).bytes(struct_type.itemsize * 40)
    swapper = filters.little_endian(struct_type)
    assert swapper is not None
    nbit = table.filter_decoder(5, (8, 0, 40, 1, 4, 1, 11, 5))
    assert nbit is not None
    casts = (zarr3.cast_value(np.dtype("<i2"), np.dtype("u1")), zarr3.scale_offset(np.dtype("<i4"), 3, 2))
    even = (2 * smooth.astype("<i4")).tobytes()
    packed = zarr3.packed_bits(1, 4, True, None, None, "first_byte")
    transposed = filters.Untranspose((4, 5, 6), (2, 0, 1), 2)
    waves = np.sin(np.arange(300).reshape(10, 5, 6) / 7).astype("<f4")

    def encoded(codec: Any) -> Sample:
        return Sample(bytes(codec.encode(waves)), waves.nbytes)

    mask_bits = zarr3.packed_bits(1, 1, False, None, None, "none")
    elements = bytes(numcodecs.Zstd().encode(np.arange(20, dtype="<i2")))
    maybe = struct.pack("<QQ", 5, len(elements)) + b"\x55" * 5 + elements
    return {
        "packed bits": Case(CodecChain((packed,)), [Sample(b"\0" + bytes(range(100)), 200)], sized=True),
        "transpose": Case(CodecChain((transposed,)), [Sample(structs[:240], 240)]),
        "vlen-utf8": Case(CodecChain((objects.vlen_utf8(45),)), [Sample(whole, len(whole))]),
        "vlen-array": Case(CodecChain((objects.vlen_array("u1"),)), [Sample(whole, len(whole))]),
        "vlen offsets": Case(
            CodecChain((objects.VlenOffsets(CodecChain(), CodecChain(), 4, False, True, 3),)),
            [Sample(struct.pack("<Q4I", 16, 0, 1, 1, 4) + b"abcd", 20)],
        ),
        "n5_default": Case(
            CodecChain((n5.DefaultBlock((5, 4), 2, CodecChain((streams.Zstd(),))),)),
            [Sample(struct.pack(">HHII", 0, 2, 5, 3) + bytes(numcodecs.Zstd().encode(structs[:30])), 40)],
        ),
        "json2": Case(CodecChain((objects.json2(),)), [Sample(bytes(numcodecs.JSON().encode(texts)), len(whole))]),
        "msgpack2": Case(CodecChain((objects.msgpack2(),)), [Sample(bytes(numcodecs.MsgPack().encode(texts)), len(whole))]),
        "n5 strings": Case(CodecChain((objects.NulStrings(),)), [Sample(b"a\0\0w\xc3\xb6rld\0", 23)]),
        "byteswap": Case(CodecChain((swapper,)), [Sample(structs, len(structs))]),
        "cast_value": Case(CodecChain(casts[:1]), [Sample(np.arange(200, dtype="<i2").tobytes(), 200)]),
        "scale_offset": Case(CodecChain(casts[1:]), [Sample(even, len(even))]),
        "pcodec": Case(CodecChain((table.decoder({"id": "pcodec"}, stored=waves.dtype),)), [encoded(numcodecs.PCodec())]),
        "optional": Case(
            CodecChain((zarr3.Optional(40, CodecChain((mask_bits,)), CodecChain((streams.Zstd(),)), 2),)),
            [Sample(maybe, 16 + 40 + 2 * 20)],
        ),
        "hdf5 nbit": Case(CodecChain((nbit,)), [Sample(bytes(range(55)), 160)]),
    }
