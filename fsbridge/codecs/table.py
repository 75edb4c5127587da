"""The closed table of numcodecs' codecs by id, as Zarr v2 documents and Zarr v3's `numcodecs.*` spell them.

Not here: a registry, or a way to add to the table (P5). Parameters that decoding does not need are ignored: for instance
GDAL writes a `delta` into `lzma`, which numcodecs itself refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fsbridge.codecs import blosc, checksums, deflate, filters, lz4, objects, shuffle, xz, zstd
from fsbridge.codecs.chain import Decoder
from fsbridge.errors import Unsupported

COMPRESSORS: dict[str, Callable[[Mapping[str, Any]], Decoder]] = {
    "adler32": lambda config: checksums.adler32(_location(config, "start")),
    "base64": lambda config: filters.base64(),
    "blosc": lambda config: blosc.blosc(),
    "bz2": lambda config: xz.bzip2(),
    "crc32": lambda config: checksums.crc32(_location(config, "start")),
    "crc32c": lambda config: checksums.crc32c(_location(config, "end")),
    "fletcher32": lambda config: checksums.fletcher32(),
    "gzip": lambda config: deflate.gzip(),
    "jenkins_lookup3": lambda config: checksums.jenkins_lookup3(_integer(config, "initval", 0), config.get("prefix")),
    "lz4": lambda config: lz4.lz4(),
    "lzma": lambda config: xz.lzma_stream(_integer(config, "format", 1), config.get("filters")),
    "shuffle": lambda config: shuffle.shuffle(_integer(config, "elementsize", 4)),
    "zlib": lambda config: deflate.zlib_stream(),
    "zstd": lambda config: zstd.zstd(),
}
"""Bytes to bytes."""

NUMBERS: dict[str, tuple[Callable[..., Decoder], tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "astype": (filters.astype, ("encode_dtype", "decode_dtype"), ("encode_dtype", "decode_dtype"), ()),
    "bitround": (filters.bitround, (), (), ()),
    "delta": (filters.delta, ("dtype", "astype"), ("dtype",), ()),
    "fixedscaleoffset": (filters.fixed_scale_offset, ("dtype", "astype"), ("dtype",), ("offset", "scale")),
    "packbits": (filters.packbits, (), (), ()),
    "quantize": (filters.quantize, ("dtype", "astype"), ("dtype",), ()),
}
"""Arrays of numbers: the function, its data types, those of them that are required, its other parameters (required)."""

OBJECTS: dict[str, tuple[Callable[..., Decoder], tuple[str, ...], str]] = {
    "categorize": (objects.categorize, ("labels", "dtype", "astype"), "vlen-utf8"),
    "json2": (objects.json2, ("encoding", "strict"), "vlen-utf8"),
    "msgpack2": (objects.msgpack2, ("raw",), "vlen-utf8"),
    "vlen-array": (objects.vlen_array, ("dtype",), "vlen-bytes"),
    "vlen-bytes": (objects.vlen_bytes, (), "vlen-bytes"),
    "vlen-utf8": (objects.vlen_utf8, (), "vlen-utf8"),
}
"""Objects: the function, its parameters, and Zarr v3's name for what it decodes to."""

NEVER = {"pickle": "would run code from the store"}


def decoder(config: object, byteorder: str | None = None) -> Decoder:
    """The decoder of a compressor or a filter of numbers, from a configuration with its `id`.

    `byteorder`: `<` or `>` for the data types in the configuration, whatever they say: in Zarr v3 the `bytes` codec rules.
    Raises Unsupported for ids outside the table and for parameters that are needed and make no sense.
    """
    codec, values = _parse(config)
    if codec in COMPRESSORS:
        return COMPRESSORS[codec](values)
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
    function, names, serializer = OBJECTS[codec]
    parameters = {name: values[name] for name in names if values.get(name) is not None}
    try:
        return function(**parameters, items=items), serializer
    except (TypeError, ValueError, AttributeError) as error:
        raise Unsupported(f"codec {codec!r}: {error}") from None


def is_object_codec(config: object) -> bool:
    """Whether a configuration names a codec of variable-length elements (or one that is refused as such)."""
    codec, values = _parse(config)
    fixed = codec == "categorize" and values.get("dtype", "|O") not in objects.OBJECT_TYPES
    return (codec in OBJECTS and not fixed) or codec in NEVER


def _parse(config: object) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(config, Mapping) or not isinstance(config.get("id"), str):
        raise Unsupported(f"codec {config!r} without an id")
    return config["id"], config


def _reason(codec: str) -> str:
    return f"codec {codec!r} {NEVER[codec]}" if codec in NEVER else f"codec {codec!r} is not known"


def _numbers(codec: str, config: Mapping[str, Any], byteorder: str | None) -> Decoder:
    function, types, required, others = NUMBERS[codec]
    missing = [name for name in (*required, *others) if config.get(name) is None]
    if missing:
        raise Unsupported(f"codec {codec!r} without {missing[0]!r}")
    parameters = {name: config[name] for name in others}
    for name in types:
        if config.get(name) is not None:
            dtype = filters.number(config[name])
            parameters[name] = dtype if byteorder is None else _ordered(dtype, byteorder)
    return function(**parameters)


def _ordered(dtype: np.dtype[Any], byteorder: str) -> np.dtype[Any]:
    return dtype.newbyteorder("<" if byteorder == "<" else ">")


def _integer(config: Mapping[str, Any], name: str, default: int) -> int:
    value = config.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Unsupported(f"codec {config['id']!r} with {name} {value!r}")
    return value


def _location(config: Mapping[str, Any], default: str) -> str:
    return str(config.get("location") or default)
