"""The closed table of codecs: one record for each, with its names in every format and how its decoder is made.

A new codec is a decoder in a module beside this one and a record here. Its library may be one that an extra installs;
what is missing is told from the record. A library that parses data in C, without the guards of the modules here, decodes in
a child process (`confined`).

Parameters that decoding does not need are ignored: for instance GDAL writes a `delta` into `lzma`, which numcodecs itself
refuses. Not here: a registry, or a way to add to the table (P5); what a format makes of a codec besides its decoder, such
as shards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module, util
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fsbridge.codecs import Decoder
from fsbridge.errors import Unsupported
from fsbridge.installing import install

if TYPE_CHECKING:
    import numpy as np

Kind: TypeAlias = Literal["bytes", "numbers", "array", "text", "objects"]
"""What a codec encodes: bytes; numbers (to numbers); a whole array of numbers; objects, shown as text or as bytes."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """A codec's configuration, and what else is known about the chunk.

    `stored`: the elements of an array; `items`: number of elements of every chunk; `shape`: that of every chunk, as the
    codec sees it; `client`: the client data of an HDF5 filter, which has no configuration.
    """

    codec: str
    values: Mapping[str, Any] = field(default_factory=dict)
    stored: np.dtype[Any] | None = None
    items: int | None = None
    shape: tuple[int, ...] | None = None
    client: tuple[int, ...] = ()

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

    def elements(self) -> np.dtype[Any]:
        """Return the elements of the array, which a codec of whole arrays must know."""
        if self.stored is None:
            raise Unsupported(f"codec {self.codec!r} needs the type of the elements, which is not known here")
        return self.stored

    def extents(self) -> tuple[int, ...]:
        """Return the shape of chunks, which some codecs must know."""
        if self.shape is None:
            raise Unsupported(f"codec {self.codec!r} needs the shape of the chunks, which is not known or differs")
        return self.shape


@dataclass(frozen=True, slots=True)
class Library:
    """A library that the plain installation lacks: the name of its distribution, and the extra that installs it.

    `before`: a command that makes it installable, for what is compiled.
    """

    name: str
    extra: str
    before: str = ""

    @property
    def module(self) -> str:
        """The name under which it is imported."""
        return self.name.replace("-", "_")

    @property
    def is_installed(self) -> bool:
        """True if it can be imported. Nothing of it is imported to find out."""
        return util.find_spec(self.module) is not None

    @property
    def install(self) -> str:
        """The command that installs it here."""
        return install(self.name, self.before)


@dataclass(frozen=True, slots=True)
class Codec:
    """The record of an encoding: its names, and how its decoder is made.

    `make` returns the decoder, or None for a variant of an HDF5 filter that only HDF5 itself decodes. It is None for a
    filter that always needs a plug-in. Raises Unsupported for parameters that make no sense, ImportError without `library`.
    `zarr3`: its own name in Zarr v3; `n5`: the type of N5's own compression; `hdf5`: the number of the filter.

    `confined`: imports the library; such a codec has a name that no other has, and decodes in a child process that has
    imported it. `writers`: who writes the codec, if it is not one of numcodecs.
    """

    name: str
    make: Callable[[Parameters], Any] | None = None
    kind: Kind = "bytes"
    zarr3: str | None = None
    n5: str | None = None
    hdf5: int | None = None
    library: Library | None = None
    confined: Callable[[], object] | None = None
    writers: str = ""

    def decoder(
        self,
        values: Mapping[str, Any],
        stored: np.dtype[Any] | None = None,
        items: int | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> Decoder:
        """Return the decoder for a configuration. Raises Unsupported; its text has the command for a missing library."""
        made: Decoder = self.build(Parameters(self.name, values, stored, items, shape))
        return made

    def build(self, of: Parameters) -> Any:
        """Return what `make` returns, or its stand-in for a child process. Raises Unsupported as `decoder` does."""
        if self.confined is None:
            return self.build_here(of)
        if self.library is not None and not self.library.is_installed:
            raise self.lacking(self.library)
        return _load("confined").Confined.of(self.build_here(of), of, self.library)

    def build_here(self, of: Parameters) -> Any:
        """Return what `make` returns."""
        try:
            return None if self.make is None else self.make(of)
        except ImportError:
            if self.library is None:
                raise
            raise self.lacking(self.library) from None
        except KeyError as error:
            raise Unsupported(f"codec {self.name!r} has no {error}") from None
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise Unsupported(f"codec {self.name!r}: {error}") from None

    def lacking(self, library: Library) -> Unsupported:
        """Return the error for a library that is not installed, with the command that installs it."""
        return Unsupported(f"codec {self.name!r} needs a library that is not installed: {library.install}")


def _load(name: str) -> Any:
    """Return a module of decoders. Each is imported when first needed, because all take a tenth of a mount's start."""
    return import_module(f"fsbridge.codecs.{name}")


LZALLRIGHT, PCODEC, ZFPY = Library("lzallright", "codecs"), Library("pcodec", "codecs"), Library("zfpy", "codecs")
BLOSC2, IMAGECODECS = Library("blosc2", "blosc2"), Library("imagecodecs", "images")
FLAC, WAVPACK = (
    Library("flac-numcodecs", "ephys", "apt-get install gcc python3-dev"),
    Library("wavpack-numcodecs", "ephys", "apt-get install gcc python3-dev wavpack libwavpack-dev"),
)
HDF5PLUGIN = Library("hdf5plugin", "hdf5plugin")
"""Plug-ins that HDF5 loads in its child process."""

NUMCODECS = (
    Codec("adler32", lambda of: _load("checksums").adler32(of.location("start"))),
    Codec("astype", lambda of: _load("filters").astype(of.required("encode_dtype"), of.required("decode_dtype")), "numbers"),
    Codec("base64", lambda of: _load("filters").Base64()),
    Codec("bitround", lambda of: _load("filters").Verbatim("bitround"), "numbers"),
    Codec("blosc", lambda of: _load("blosc").Blosc(), zarr3="blosc", hdf5=32001),
    Codec("bz2", lambda of: _load("streams").Bz2(), n5="bzip2", hdf5=307),
    Codec(
        "categorize",
        lambda of: _load("objects").categorize(
            of.required("labels"), of.get("dtype", "|O"), of.get("astype", "u1"), of.items
        ),
        "text",
    ),
    Codec("crc32", lambda of: _load("checksums").crc32(of.location("start"))),
    Codec("crc32c", lambda of: _load("checksums").crc32c(of.location("end")), zarr3="crc32c"),
    Codec("delta", lambda of: _load("filters").delta(of.required("dtype"), of.get("astype")), "numbers"),
    Codec(
        "fixedscaleoffset",
        lambda of: _load("filters").fixed_scale_offset(
            of.required("offset"), of.required("scale"), of.required("dtype"), of.get("astype")
        ),
        "numbers",
    ),
    Codec("fletcher32", lambda of: _load("checksums").fletcher32()),
    Codec("gzip", lambda of: _load("streams").Deflate("gzip", "gzip"), zarr3="gzip"),
    Codec(
        "jenkins_lookup3",
        lambda of: _load("checksums").jenkins_lookup3(of.integer("initval", 0), of.get("prefix")),
    ),
    Codec(
        "json2",
        lambda of: _load("objects").json2(of.get("encoding", "utf-8"), of.get("strict", True), of.items),
        "text",
    ),
    Codec("lz4", lambda of: _load("lz4").Lz4()),
    Codec("lzma", lambda of: _load("streams").lzma_stream(of.integer("format", 1), of.get("filters"))),
    Codec("msgpack2", lambda of: _load("objects").msgpack2(of.get("raw", False), of.items), "text"),
    Codec("packbits", lambda of: _load("filters").PackBits(), "numbers"),
    Codec("pcodec", lambda of: _load("numeric").pcodec(of.elements()), "array", library=PCODEC),
    Codec("quantize", lambda of: _load("filters").quantize(of.required("dtype"), of.get("astype")), "numbers"),
    Codec("shuffle", lambda of: _load("filters").shuffle(of.integer("elementsize", 4))),
    Codec("vlen-array", lambda of: _load("objects").vlen_array(of.required("dtype"), of.items), "objects"),
    Codec("vlen-bytes", lambda of: _load("objects").vlen_bytes(of.items), "objects"),
    Codec("vlen-utf8", lambda of: _load("objects").vlen_utf8(of.items), "text"),
    Codec(
        "zfpy",
        lambda of: _load("numeric").zfp(of.elements()),
        "array",
        library=ZFPY,
        confined=lambda: _load("numeric").zfp_library(),
    ),
    Codec("zlib", lambda of: _load("streams").Deflate("zlib", "zlib"), hdf5=1),
    Codec("zstd", lambda of: _load("streams").Zstd(), zarr3="zstd", hdf5=32015),
)
"""The codecs of numcodecs. `name` is the id: in Zarr v2, as `numcodecs.<id>` in Zarr v3, and in N5 by zarr-python 2."""

IMAGES = (
    *("aec", "apng", "avif", "bfloat16", "bitorder", "bitshuffle", "blosc", "blosc2", "bmp", "brotli", "byteshuffle", "bz2"),
    *("ccittfax3", "ccittfax4", "ccittrle", "checksum", "dds", "deflate", "delta", "dicomrle", "eer", "float24"),
    *("floatpred", "gif", "heif", "htj2k", "jpeg", "jpeg2k", "jpegls", "jpegxl", "jpegxr", "jpegxs", "lerc", "ljpeg"),
    *("lz4", "lz4f", "lz4h5", "lzf", "lzfse", "lzham", "lzma", "lzo", "lzw", "meshopt", "packbits", "packints", "pcodec"),
    *("pglz", "png", "qoi", "quantize", "rcomp", "rgbe", "snappy", "sperr", "spng", "sz3", "szip", "tiff", "ultrahdr"),
    *("webp", "xor", "zfp", "zlib", "zlibng", "zopfli", "zstd"),
)
"""The codecs of imagecodecs: `imagecodecs_<name>`."""

ADDED = (
    Codec(
        "blosc2",
        lambda of: _load("blosc2").Blosc2(),
        library=BLOSC2,
        confined=lambda: _load("blosc2").library(),
        writers="python-blosc2, satip",
    ),
    Codec(
        "flac",
        lambda of: _load("audio").Flac(),
        library=FLAC,
        confined=lambda: _load("audio").flac_library(),
        writers="SpikeInterface (flac-numcodecs)",
    ),
    Codec(
        "wavpack",
        lambda of: _load("audio").WavPack(),
        library=WAVPACK,
        confined=lambda: _load("audio").wavpack_library(),
        writers="SpikeInterface, Allen Institute (wavpack-numcodecs)",
    ),
    *(
        Codec(
            f"imagecodecs_{name}",
            lambda of: _load("images").image(of.codec, of.values),
            library=IMAGECODECS,
            confined=lambda: _load("images").library(),
            writers="imagecodecs",
        )
        for name in IMAGES
        if name != "blosc"
    ),
    # imagecodecs believes what a Blosc header says
    Codec("imagecodecs_blosc", lambda of: _load("blosc").Blosc(), writers="imagecodecs"),
)
"""Codecs that other packages register with numcodecs; `name` is the id, and with or without `numcodecs.` Zarr v3's name."""

OTHERS = (
    Codec(
        "zfp",
        lambda of: _load("numeric").bare_zfp(of.elements(), of.extents(), of.values),
        "array",
        zarr3="zfp",
        library=ZFPY,
        confined=lambda: _load("numeric").zfp_library(),
        writers="zarrs",
    ),
    *(
        Codec(
            name,
            lambda of: _load("images").registered(of.codec, of.elements(), of.extents()),
            "array",
            zarr3=name,
            library=IMAGECODECS,
            confined=lambda: _load("images").library(),
            writers="imagecodecs, zarrs_jpeg",
        )
        for name in ("jpeg", "jpegxl", "jpeg2000")
    ),
    Codec(
        "lzw",
        lambda of: _load("images").image(of.codec, {}),
        zarr3="lzw",
        library=IMAGECODECS,
        confined=lambda: _load("images").library(),
        writers="imagecodecs",
    ),
    Codec("gzip", lambda of: _load("streams").Deflate("gzip", "either"), n5="gzip"),
    Codec("lz4", lambda of: _load("lz4").N5Lz4(), n5="lz4"),
    Codec("xz", lambda of: _load("streams").Lzma("xz", 1), n5="xz"),
    Codec("shuffle", lambda of: _load("hdf5").shuffle(of.client), hdf5=2),
    Codec("fletcher32", lambda of: _load("checksums").hdf5_fletcher32(), hdf5=3),
    Codec("nbit", lambda of: _load("hdf5").nbit(of.client), hdf5=5),
    Codec("scaleoffset", lambda of: _load("hdf5").scale_offset(of.client), hdf5=6),
    Codec("LZO", lambda of: _load("hdf5").lzo(), hdf5=305, library=LZALLRIGHT),
    Codec("lz4", lambda of: _load("lz4").Hdf5Lz4(), hdf5=32004),
    Codec("bitshuffle", lambda of: _load("hdf5").bitshuffle(of.client), hdf5=32008),
    Codec("ZFP", hdf5=32013, library=HDF5PLUGIN),
    Codec("FPZip", hdf5=32014),
    Codec("SZ", hdf5=32017, library=HDF5PLUGIN),
    Codec("FCIDECOMP", hdf5=32018, library=HDF5PLUGIN),
    Codec("JPEG", hdf5=32019),
    Codec("SZ3", hdf5=32024, library=HDF5PLUGIN),
    Codec("Blosc2", hdf5=32026, library=HDF5PLUGIN),
    Codec("SPERR", hdf5=32028, library=HDF5PLUGIN),
    Codec("HTJ2K", hdf5=32040, library=HDF5PLUGIN),
)
"""Encodings that numcodecs has not, or not in this way: N5's own, and the filters of HDF5."""

CODECS = (*NUMCODECS, *ADDED, *OTHERS)

PREFIX = "numcodecs."
_BY_ID = {codec.name: codec for codec in (*NUMCODECS, *ADDED)}

CONFINED: Mapping[str, Codec] = {codec.name: codec for codec in CODECS if codec.confined is not None}
"""Codecs that child processes decode."""

ZARR3: Mapping[str, Codec] = {
    **{PREFIX + codec.name: codec for codec in (*NUMCODECS, *ADDED)},
    **{codec.name: codec for codec in ADDED if codec.name != "flac"},  # which is in another order for many channels
    **{codec.zarr3: codec for codec in CODECS if codec.zarr3 is not None},
}
"""Codecs by the names that Zarr v3 may have for them."""

N5: Mapping[str, Codec] = {
    **{codec.name: codec for codec in (*NUMCODECS, *ADDED) if codec.kind == "bytes"},
    **{codec.n5: codec for codec in CODECS if codec.n5 is not None},
}
"""Codecs by the type of a compression in N5."""

FILTERS: Mapping[int, Codec] = {codec.hdf5: codec for codec in CODECS if codec.hdf5 is not None}
"""Filters of HDF5 by their numbers.

LZF (32000) is left to HDF5, because h5py always has it, and in Python it would decode 10 MB/s while other threads wait.
"""

FIXED: Mapping[str, str] = {"U": "vlen-utf8", "S": "vlen-bytes", "V": "vlen-bytes"}
"""The object codec that zarr-python 3.0 put before elements of fixed length, by numpy's kind."""

NEVER = {"pickle": "would run code from the store", "zarrs.gdeflate": "has no decoder that Python can use"}

VLEN: Mapping[str, str] = {"text": "vlen-utf8", "objects": "vlen-bytes"}
"""The encoding of variable length to which an object codec decodes, by its kind; it is a serializer of Zarr v3."""


def libraries() -> dict[Library, list[Codec]]:
    """Return the libraries of all extras, each with the codecs that need it."""
    codecs: dict[Library, list[Codec]] = {}
    for codec in CODECS:
        if codec.library is not None:
            codecs.setdefault(codec.library, []).append(codec)
    return codecs


def decoder(config: object, stored: np.dtype[Any] | None = None) -> Decoder:
    """Return the decoder of a compressor, or of a filter on numbers, from a configuration with its `id`.

    `stored`: the elements of the array; codecs of whole arrays are Unsupported without it. Raises Unsupported for ids
    outside the table and for needed parameters that make no sense.
    """
    codec, values = _find_codec(config)
    if codec.kind in VLEN and codec.name != "categorize":
        raise unknown(codec.name)
    return codec.decoder(values, stored)


def object_decoder(config: object, items: int | None) -> tuple[Decoder, str]:
    """Return the decoder of an object codec and the Zarr v3 serializer of its result (`vlen-utf8`, `vlen-bytes`).

    `items`: number of elements of every chunk. Raises Unsupported as `decoder` does.
    """
    codec, values = _find_codec(config)
    if codec.kind not in VLEN:
        raise unknown(codec.name)
    return codec.decoder(values, items=items), VLEN[codec.kind]


def fixed_decoder(codec: str, stored: np.dtype[Any], items: int) -> Decoder:
    """Return the decoder of an object codec before elements of fixed length. Raises Unsupported unless `FIXED` has both."""
    if FIXED.get(stored.kind) != codec:
        raise unknown(codec)
    made: Decoder = _load("objects").fixed(stored.kind == "U", stored, items)
    return made


def filter_decoder(number: int, client: Sequence[int]) -> Decoder | None:
    """Return the decoder of an HDF5 filter, or None if only HDF5 itself can decode it. Raises Unsupported as `decoder` does.

    `client`: the data in the dataset's pipeline (after `set_local`).
    """
    codec = FILTERS.get(number)
    made: Decoder | None = None if codec is None else codec.build(Parameters(codec.name, client=tuple(map(int, client))))
    return made


def _find_codec(config: object) -> tuple[Codec, Mapping[str, Any]]:
    """Return the codec that a configuration with an `id` names, and its parameters."""
    if not isinstance(config, Mapping) or not isinstance(config.get("id"), str):
        raise Unsupported(f"codec {config!r} has no id")
    codec = _BY_ID.get(config["id"])
    if codec is None:
        raise unknown(config["id"])
    return codec, config


def unknown(codec: str) -> Unsupported:
    """Return the error for a name that is not in the table, or not at this place."""
    return Unsupported(f"codec {codec[:80]!r} {NEVER.get(codec.removeprefix(PREFIX), 'is not known')}")
