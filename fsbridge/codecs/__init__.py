"""Codecs: a closed table of guarded decoders and the chains made of them. Not here: which format spells which codec how.

Formats build a `CodecChain` from `Decoder` objects made by the functions of this package; nothing else in fsbridge decodes
bytes, and nothing else imports numcodecs. There is no registry: no plug-ins, no entry points, no `numcodecs.get_codec` (P5).

Every decoder
- checks headers and lengths *before* a native decoder is called (numcodecs' Blosc overruns its buffers otherwise),
- returns exactly the decoded bytes or raises CorruptData; a stream ending early, late or with bytes left over is corrupt,
- verifies checksums,
- never allocates more than the size it was told to expect (or the limit) plus a constant.
"""

from __future__ import annotations

from fsbridge.codecs.chain import Buffer, CodecChain, Decoder

__all__ = ["Buffer", "CodecChain", "Decoder"]
