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
    | `blosc`, `zstd`, `lz4`, `deflate` (gzip, zlib), `xz` (also bzip2) | compressors, with N5's dialects |
    | `lzo`, `snappy` | compressors of old HDF5 files and of old Blosc frames |
    | `pcodec`, `zfp` | arrays of numbers, by optional libraries |
    | `shuffle`, `filters`, `cast`, `bits`, `packbits`, `arrays` | filters, casts, packed bits, memory and byte order |
    | `checksums` | checksums beside the data |
    | `objects`, `optional` | elements of variable length, elements that may be missing |
    | `chain`, `stream`, `native` | the contract; bounded streaming; the native libraries, imported when first used |
"""

from __future__ import annotations

from fsbridge.codecs.chain import Buffer, CodecAbilities, CodecChain, Decoder

__all__ = ["Buffer", "CodecAbilities", "CodecChain", "Decoder"]
