"""The superblock of a file that says to be open for writing, as if it was closed. Part of the HDF5 child.

HDF5 knows that such a file's end is not where the superblock says for a SWMR reader only, and that with no driver but those
of local disks. An object in a store has no writer, so the mark is nothing but what a writer left. Not here: opening.
"""

from __future__ import annotations

from collections.abc import Callable

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_BYTES = 12 + 4 * 8 + 4
"""Of a superblock of version 2 or 3 whose addresses take 8 bytes."""
_VERSION, _OFFSETS, _FLAGS, _END = 8, 9, 11, 28
_WORD = 0xFFFF_FFFF


def unmarked(read: Callable[[int, int], bytes], size: int) -> tuple[int, bytes] | None:
    """Where the superblock is, and what it would be without the mark; None for one that has none."""
    start = 0
    while start + _BYTES <= size:
        found = read(start, _BYTES)
        if found.startswith(SIGNATURE):
            if found[_VERSION] not in (2, 3) or found[_OFFSETS] != 8 or not found[_FLAGS]:
                return None
            if lookup3(found[:-4]) != int.from_bytes(found[-4:], "little"):
                return None
            end = max(int.from_bytes(found[_END : _END + 8], "little"), size - start)  # the writer did not come to say so
            body = found[:_FLAGS] + b"\0" + found[_FLAGS + 1 : _END] + end.to_bytes(8, "little") + found[_END + 8 : -4]
            return start, body + lookup3(body).to_bytes(4, "little")
        start = 2 * start or 512
    return None


def lookup3(data: bytes) -> int:
    """Bob Jenkins' checksum, as HDF5 has it of its metadata (H5checksum.c)."""
    a = b = c = 0xDEADBEEF + len(data) & _WORD
    whole = max(0, len(data) - 1) // 12 * 12
    for at in range(0, whole, 12):
        a, b, c = (word + part & _WORD for word, part in zip((a, b, c), _words(data[at : at + 12]), strict=True))
        for n in (4, 6, 8, 16, 19, 4):
            a = (a - c & _WORD) ^ _turned(c, n)
            c = c + b & _WORD
            a, b, c = b, c, a
    if len(data) == whole:
        return c
    a, b, c = (word + part & _WORD for word, part in zip((a, b, c), _words(data[whole:].ljust(12, b"\0")), strict=True))
    for n in (14, 11, 25, 16, 4, 14, 24):
        c = (c ^ b) - _turned(b, n) & _WORD
        a, b, c = b, c, a
    return b


def _words(part: bytes) -> tuple[int, int, int]:
    return int.from_bytes(part[:4], "little"), int.from_bytes(part[4:8], "little"), int.from_bytes(part[8:], "little")


def _turned(word: int, n: int) -> int:
    return (word << n | word >> 32 - n) & _WORD
