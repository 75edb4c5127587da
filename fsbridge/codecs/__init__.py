"""Codecs: a closed table of guarded decoders and the chains made of them. Not here: which format spells which codec how.

Formats build a `CodecChain` from `Decoder` objects made by the functions of this package; nothing else in fsbridge decodes
bytes, and nothing else imports numcodecs. There is no registry: no plug-ins, no entry points, no `numcodecs.get_codec` (P5).

Every decoder
- checks headers and lengths *before* a native decoder is called (numcodecs' Blosc overruns its buffers otherwise),
- returns exactly the decoded bytes or raises CorruptData; a stream ending early, late or with bytes left over is corrupt,
- verifies checksums,
- never allocates more than the size it was told to expect (or the limit) plus a constant.

| module | decodes |
| --- | --- |
| `table` | numcodecs configurations (`{"id": ...}`): Zarr v2, Zarr v3's `numcodecs.*` |
| `hdf5` | HDF5 filters by number and client data |
| `blosc`, `zstd`, `lz4`, `deflate` (gzip, zlib), `xz` (also bzip2) | compressors; N5's dialects beside their codec |
| `pcodec`, `zfp` | arrays of numbers, by libraries that are optional |
| `shuffle`, `filters`, `cast`, `bits`, `swap` | numbers: filters, Zarr v3 casts, packed bits, struct byte order |
| `checksums` | checksums beside the data |
| `objects` | elements of variable length |
| `chain`, `stream`, `native` | the contract; bounded streaming; the native libraries, imported when first used |
"""

from __future__ import annotations

from fsbridge.codecs.chain import Buffer, CodecChain, Decoder, RangeDecoder

__all__ = ["Buffer", "CodecChain", "Decoder", "RangeDecoder"]
