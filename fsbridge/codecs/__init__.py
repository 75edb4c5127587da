"""Codecs: a closed table of guarded decoders, and the chains made of them. Not here: how formats spell their codecs.

Formats build a `CodecChain` from `Decoder` objects that functions of this package make. Nothing else in fsbridge decodes
bytes, and nothing else imports numcodecs. There is no registry: no plug-ins, no entry points, no `numcodecs.get_codec`
(P5).

Every decoder
- checks headers and lengths *before* it calls a native decoder (numcodecs' Blosc overruns its buffers otherwise),
- returns exactly the decoded bytes or raises CorruptData, also for a stream that ends early or late or leaves bytes over,
- verifies checksums,
- never allocates more than the expected size (or the limit) plus a constant.

    | module | decodes |
    | --- | --- |
    | `table` | numcodecs configurations (`{"id": ...}`): Zarr v2, Zarr v3's `numcodecs.*` |
    | `hdf5` | HDF5 filters by number and client data |
    | `blosc` (with Snappy), `zstd`, `lz4`, `streams` (gzip, zlib, bzip2, xz) | compressors, with N5's dialects |
    | `numeric` | arrays of numbers, by optional libraries |
    | `filters` | filters, memory and byte order |
    | `zarr3` | casts, packed bits, elements that may be missing |
    | `checksums` | checksums beside the data |
    | `objects` | elements of variable length |
    | `chain`, `native` | the contract; the native libraries, imported when first used |
"""

from __future__ import annotations

from fsbridge.codecs.chain import Buffer, CodecAbilities, CodecChain, Decoder

__all__ = ["Buffer", "CodecAbilities", "CodecChain", "Decoder"]
