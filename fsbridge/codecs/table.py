"""The closed table of numcodecs' codecs by id, as Zarr v2 documents and Zarr v3's `numcodecs.*` spell them.

A codec is one line of `CODECS`. Parameters that decoding does not need are ignored: for instance GDAL writes a `delta`
into `lzma`, which numcodecs itself refuses. Not here: a registry, or a way to add to the table (P5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from fsbridge.codecs import Decoder
from fsbridge.errors import Unsupported

Kind: TypeAlias = Literal["bytes", "numbers", "array", "text", "objects"]
"""What a codec encodes: bytes; numbers (to numbers); a whole array of numbers; objects, shown as text or as bytes."""


class Parameters:
    """A codec's configuration, and what else is known about the chunk.

    `byteorder`: `<` or `>` for the data types in the configuration, whatever they say; `stored`: the elements of an
    array; `items`: number of elements of every chunk.
    """

    def __init__(
        self,
        config: object,
        byteorder: str | None = None,
        stored: np.dtype[Any] | None = None,
        items: int | None = None,
    ) -> None:
        if not isinstance(config, Mapping) or not isinstance(config.get("id"), str):
            raise Unsupported(f"codec {config!r} has no id")
        self.values: Mapping[str, Any] = config
        self.codec: str = config["id"]
        self.byteorder = byteorder
        self.stored = stored
        self.items = items

    def get(self, name: str, default: Any = None) -> Any:
        """Return the parameter, or `default` if it is absent or null."""
        value = self.values.get(name)
        return default if value is None else value

    def required(self, name: str) -> Any:
        """Return a parameter that has no default."""
        value = self.values.get(name)
        if value is None:
            raise Unsupported(f"codec {self.codec!r} has no {name!r}")
        return value

    def integer(self, name: str, default: int) -> int:
        value = self.values.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise Unsupported(f"codec {self.codec!r} has {name} {value!r}, which is not an integer")
        return value

    def location(self, default: str) -> str:
        """Return where a checksum is."""
        return str(self.values.get("location") or default)

    def dtype(self, name: str = "dtype") -> np.dtype[Any]:
        """Return a data type of numbers that must be given."""
        found: np.dtype[Any] = _filters().number(self.required(name))
        return found if self.byteorder is None else found.newbyteorder("<" if self.byteorder == "<" else ">")

    def astype(self) -> np.dtype[Any] | None:
        """Return the data type of what is stored, if it is given."""
        return None if self.values.get("astype") is None else self.dtype("astype")

    def elements(self) -> np.dtype[Any]:
        """Return the elements of the array, which a codec of whole arrays must know."""
        if self.stored is None:
            raise Unsupported(f"codec {self.codec!r} needs the type of the elements, which is not known here")
        return self.stored


@dataclass(frozen=True, slots=True)
class Codec:
    """One row of the table. `make` returns the decoder, or raises Unsupported for parameters that make no sense."""

    kind: Kind
    make: Callable[[Parameters], Decoder]


def _blosc() -> Any:  # decoder modules are imported when first named, because together they take a tenth of a mount's start
    from fsbridge.codecs import blosc

    return blosc


def _checksums() -> Any:
    from fsbridge.codecs import checksums

    return checksums


def _filters() -> Any:
    from fsbridge.codecs import filters

    return filters


def _lz4() -> Any:
    from fsbridge.codecs import lz4

    return lz4


def _numeric() -> Any:
    from fsbridge.codecs import numeric

    return numeric


def _objects() -> Any:
    from fsbridge.codecs import objects

    return objects


def _streams() -> Any:
    from fsbridge.codecs import streams

    return streams


CODECS: Mapping[str, Codec] = {
    "adler32": Codec("bytes", lambda of: _checksums().adler32(of.location("start"))),
    "astype": Codec("numbers", lambda of: _filters().astype(of.dtype("encode_dtype"), of.dtype("decode_dtype"))),
    "base64": Codec("bytes", lambda of: _filters().base64()),
    "bitround": Codec("numbers", lambda of: _filters().bitround()),
    "blosc": Codec("bytes", lambda of: _blosc().blosc()),
    "bz2": Codec("bytes", lambda of: _streams().bzip2()),
    "categorize": Codec(
        "text",
        lambda of: _objects().categorize(of.required("labels"), of.get("dtype", "|O"), of.get("astype", "u1"), of.items),
    ),
    "crc32": Codec("bytes", lambda of: _checksums().crc32(of.location("start"))),
    "crc32c": Codec("bytes", lambda of: _checksums().crc32c(of.location("end"))),
    "delta": Codec("numbers", lambda of: _filters().delta(of.dtype(), of.astype())),
    "fixedscaleoffset": Codec(
        "numbers",
        lambda of: _filters().fixed_scale_offset(of.required("offset"), of.required("scale"), of.dtype(), of.astype()),
    ),
    "fletcher32": Codec("bytes", lambda of: _checksums().fletcher32()),
    "gzip": Codec("bytes", lambda of: _streams().gzip()),
    "jenkins_lookup3": Codec("bytes", lambda of: _checksums().jenkins_lookup3(of.integer("initval", 0), of.get("prefix"))),
    "json2": Codec("text", lambda of: _objects().json2(of.get("encoding", "utf-8"), of.get("strict", True), of.items)),
    "lz4": Codec("bytes", lambda of: _lz4().lz4()),
    "lzma": Codec("bytes", lambda of: _streams().lzma_stream(of.integer("format", 1), of.get("filters"))),
    "msgpack2": Codec("text", lambda of: _objects().msgpack2(of.get("raw", False), of.items)),
    "packbits": Codec("numbers", lambda of: _filters().packbits()),
    "pcodec": Codec("array", lambda of: _numeric().pcodec(of.elements())),
    "quantize": Codec("numbers", lambda of: _filters().quantize(of.dtype(), of.astype())),
    "shuffle": Codec("bytes", lambda of: _filters().shuffle(of.integer("elementsize", 4))),
    "vlen-array": Codec("objects", lambda of: _objects().vlen_array(of.required("dtype"), of.items)),
    "vlen-bytes": Codec("objects", lambda of: _objects().vlen_bytes(of.items)),
    "vlen-utf8": Codec("text", lambda of: _objects().vlen_utf8(of.items)),
    "zfpy": Codec("array", lambda of: _numeric().zfp(of.elements())),
    "zlib": Codec("bytes", lambda of: _streams().zlib_stream()),
    "zstd": Codec("bytes", lambda of: _streams().zstd()),
}

FIXED: Mapping[str, str] = {"U": "vlen-utf8", "S": "vlen-bytes", "V": "vlen-bytes"}
"""The object codec that zarr-python 3.0 put before elements of fixed length, by numpy's kind."""

NEVER = {"pickle": "would run code from the store"}

SERIALIZERS: Mapping[str, str] = {"text": "vlen-utf8", "objects": "vlen-bytes"}
"""The Zarr v3 serializer of the elements that an object codec decodes, by the kind of the codec."""


def is_compressor(codec: str) -> bool:
    """True if `codec` is in the table and decodes bytes to bytes."""
    return codec in CODECS and CODECS[codec].kind == "bytes"


def decoder(config: object, byteorder: str | None = None, stored: np.dtype[Any] | None = None) -> Decoder:
    """Return the decoder of a compressor, or of a filter on numbers, from a configuration with its `id`.

    `byteorder`: `<` or `>`. It replaces the byte order of the data types in the configuration, because in Zarr v3 the
    `bytes` codec decides. `stored`: the elements of the array; codecs of whole arrays are Unsupported without it. Raises
    Unsupported for ids outside the table and for needed parameters that make no sense.
    """
    of = Parameters(config, byteorder, stored)
    known = CODECS.get(of.codec)
    if known is None or (known.kind in SERIALIZERS and of.codec != "categorize"):
        raise Unsupported(_reason(of.codec))
    return _make(known, of)


def object_decoder(config: object, items: int | None) -> tuple[Decoder, str]:
    """Return the decoder of an object codec and the Zarr v3 serializer of its result (`vlen-utf8`, `vlen-bytes`).

    `items`: number of elements of every chunk. Raises Unsupported as `decoder` does.
    """
    of = Parameters(config, items=items)
    known = CODECS.get(of.codec)
    if known is None or known.kind not in SERIALIZERS:
        raise Unsupported(_reason(of.codec))
    return _make(known, of), SERIALIZERS[known.kind]


def fixed_decoder(codec: str, stored: np.dtype[Any], items: int) -> Decoder:
    """Return the decoder of an object codec before elements of fixed length. Raises Unsupported unless `FIXED` has both."""
    if FIXED.get(stored.kind) != codec:
        raise Unsupported(_reason(codec))
    found: Decoder = _objects().fixed(stored.kind == "U", stored, items)
    return found


def _make(known: Codec, of: Parameters) -> Decoder:
    try:
        return known.make(of)
    except (TypeError, ValueError, AttributeError) as error:
        raise Unsupported(f"codec {of.codec!r}: {error}") from None


def _reason(codec: str) -> str:
    return f"codec {codec!r} {NEVER[codec]}" if codec in NEVER else f"codec {codec!r} is not known"
