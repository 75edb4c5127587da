"""Decoded chunks, through which every layout reads: of one array (`chunks.py`), and as one version of it (`versions.py`).

Not here: how a chunk is found or decoded (`model.Chunks`), the memory of decoded bytes (`cache.py`).
"""

from fsbridge.decoded.chunks import DecodedChunk, DecodedChunks, settled
from fsbridge.decoded.versions import ArrayVersion, DecodedArray, Touched

__all__ = ["ArrayVersion", "DecodedArray", "DecodedChunk", "DecodedChunks", "Touched", "settled"]
