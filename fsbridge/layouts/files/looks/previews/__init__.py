"""Pictures of arrays for people: `NAME.preview.png` and `NAME.preview.svg`, made of a few chunks. Not exact values."""

DECODED_BYTES = 64 * 2**20
"""Bytes of chunks that are decoded for one preview."""

CHUNKS = 4096
"""Chunks that are looked up for one preview, stored or not: each takes time and memory beside that for its bytes."""

SMALL = "small"
"""Name of the part of an SVG with the curves alone, which fills a thumbnail: `NAME.preview.svg#small`."""
