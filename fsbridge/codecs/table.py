"""The closed table of numcodecs' codecs by id, as Zarr v2 documents and Zarr v3's `numcodecs.*` spell them.

Not here: a registry, or a way to add to the table (P5). Parameters that decoding does not need are ignored: for instance
GDAL writes a `delta` into `lzma`, which numcodecs itself refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fsbridge.codecs.chain import Decoder
from fsbridge.errors import Unsupported

COMPRESSORS = frozenset(
    (
        *("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"),
        *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"),
        *("base64", "shuffle"),
    )
)
"""Bytes to bytes."""

NUMBERS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "astype": ("astype", ("encode_dtype", "decode_dtype"), ("encode_dtype", "decode_dtype"), ()),
    "bitround": ("bitround", (), (), ()),
    "delta": ("delta", ("dtype", "astype"), ("dtype",), ()),
    "fixedscaleoffset": ("fixed_scale_offset", ("dtype", "astype"), ("dtype",), ("offset", "scale")),
    "packbits": ("packbits", (), (), ()),
    "quantize": ("quantize", ("dtype", "astype"), ("dtype",), ()),
}
"""Arrays of numbers: its function in `filters`, its data types, the required ones, other parameters (all required)."""

OBJECTS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "categorize": ("categorize", ("labels", "dtype", "astype"), "vlen-utf8"),
    "json2": ("json2", ("encoding", "strict"), "vlen-utf8"),
    "msgpack2": ("msgpack2", ("raw",), "vlen-utf8"),
    "vlen-array": ("vlen_array", ("dtype",), "vlen-bytes"),
    "vlen-bytes": ("vlen_bytes", (), "vlen-bytes"),
    "vlen-utf8": ("vlen_utf8", (), "vlen-utf8"),
}
"""Objects: its function in `objects`, its parameters, and Zarr v3's name for what it decodes to."""

NEVER = {"pickle": "would run code from the store"}


def decoder(config: object, byteorder: str | None = None) -> Decoder:
    """The decoder of a compressor or a filter of numbers, from a configuration with its `id`.

    `byteorder`: `<` or `>` for the data types in the configuration, whatever they say: in Zarr v3 the `bytes` codec rules.
    Raises Unsupported for ids outside the table and for parameters that are needed and make no sense.
    """
    codec, values = _parse(config)
    if codec in COMPRESSORS:
        return _compressor(codec, values)
    if codec in NUMBERS:
        return _numbers(codec, values, byteorder)
    if codec == "categorize":
        return object_decoder(config, None)[0]
    raise Unsupported(_reason(codec))


def object_decoder(config: object, items: int | None) -> tuple[Decoder, str]:
    """The decoder of an object codec and the Zarr v3 serializer of its result (`vlen-utf8`, `vlen-bytes`).

    `items`: number of elements of every chunk. Raises Unsupported as `decoder` does.
    """
    codec, values = _parse(config)
    if codec not in OBJECTS:
        raise Unsupported(_reason(codec))
    from fsbridge.codecs import objects

    name, names, serializer = OBJECTS[codec]
    function = getattr(objects, name)
    parameters = {given: values[given] for given in names if values.get(given) is not None}
    try:
        return function(**parameters, items=items), serializer
    except (TypeError, ValueError, AttributeError) as error:
        raise Unsupported(f"codec {codec!r}: {error}") from None


def _parse(config: object) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(config, Mapping) or not isinstance(config.get("id"), str):
        raise Unsupported(f"codec {config!r} without an id")
    return config["id"], config


def _reason(codec: str) -> str:
    return f"codec {codec!r} {NEVER[codec]}" if codec in NEVER else f"codec {codec!r} is not known"


def _compressor(codec: str, config: Mapping[str, Any]) -> Decoder:
    """One of COMPRESSORS, whose module is imported when it is first named: together they are a tenth of a mount's start."""
    match codec:
        case "blosc":
            from fsbridge.codecs.blosc import blosc

            return blosc()
        case "bz2" | "lzma":
            from fsbridge.codecs import xz

            return xz.bzip2() if codec == "bz2" else xz.lzma_stream(_integer(config, "format", 1), config.get("filters"))
        case "gzip" | "zlib":
            from fsbridge.codecs import deflate

            return deflate.gzip() if codec == "gzip" else deflate.zlib_stream()
        case "lz4":
            from fsbridge.codecs.lz4 import lz4

            return lz4()
        case "zstd":
            from fsbridge.codecs.zstd import zstd

            return zstd()
        case "base64":
            from fsbridge.codecs.filters import base64

            return base64()
        case "shuffle":
            from fsbridge.codecs.shuffle import shuffle

            return shuffle(_integer(config, "elementsize", 4))
        case _:
            return _checksum(codec, config)


def _checksum(codec: str, config: Mapping[str, Any]) -> Decoder:
    from fsbridge.codecs import checksums

    match codec:
        case "adler32":
            return checksums.adler32(_location(config, "start"))
        case "crc32":
            return checksums.crc32(_location(config, "start"))
        case "crc32c":
            return checksums.crc32c(_location(config, "end"))
        case "fletcher32":
            return checksums.fletcher32()
        case _:
            return checksums.jenkins_lookup3(_integer(config, "initval", 0), config.get("prefix"))


def _numbers(codec: str, config: Mapping[str, Any], byteorder: str | None) -> Decoder:
    from fsbridge.codecs import filters

    name, types, required, others = NUMBERS[codec]
    missing = [key for key in (*required, *others) if config.get(key) is None]
    if missing:
        raise Unsupported(f"codec {codec!r} without {missing[0]!r}")
    parameters = {key: config[key] for key in others}
    for key in types:
        if config.get(key) is not None:
            dtype = filters.number(config[key])
            parameters[key] = dtype if byteorder is None else _ordered(dtype, byteorder)
    made: Decoder = getattr(filters, name)(**parameters)
    return made


def _ordered(dtype: np.dtype[Any], byteorder: str) -> np.dtype[Any]:
    return dtype.newbyteorder("<" if byteorder == "<" else ">")


def _integer(config: Mapping[str, Any], name: str, default: int) -> int:
    value = config.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Unsupported(f"codec {config['id']!r} with {name} {value!r}")
    return value


def _location(config: Mapping[str, Any], default: str) -> str:
    return str(config.get("location") or default)
