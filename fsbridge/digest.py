"""A checksum of an array's type, shape and elements, as `docs/digest.md` specifies it. Not here: which arrays, printing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from fsbridge.model import Array
from fsbridge.ordered import OrderedArray, type_text
from fsbridge.virtual import VirtualTree

VERSION = "fsbridge-digest-1"

BLOCK = 65536
"""Elements of a block."""

READ_BYTES = 8 << 20
"""Bytes that are read at a time: several chunks are decoded at once then."""

HASHERS, QUEUED = 2, 64
"""Threads that hash, and blocks that wait for one."""


def digest(
    tree: VirtualTree, array: Array, reversed_axes: bool = False, progress: Callable[[int], None] = lambda count: None
) -> str:
    """The digest of an array in hexadecimal; `progress` gets the number of bytes of each block."""
    elements = OrderedArray(tree, array, reversed_axes)
    try:
        shape = ",".join(map(str, elements.shape))
        found = hashlib.sha256(f"{VERSION}\n{type_text(array)}\n{shape}\n".encode())
        blocks = _text_blocks(elements) if elements.is_text else _blocks(elements)
        with ThreadPoolExecutor(HASHERS, "fsbridge-hash") as pool:
            waiting: list[Future[bytes]] = []
            for block in blocks:
                waiting.append(pool.submit(_hashed, block))
                progress(len(block))
                if len(waiting) > QUEUED:
                    found.update(waiting.pop(0).result())
            for one in waiting:
                found.update(one.result())
        return found.hexdigest()
    finally:
        elements.close()


def _hashed(block: bytes | memoryview) -> bytes:
    return hashlib.sha256(block).digest()


def _blocks(elements: OrderedArray) -> Iterator[memoryview]:
    itemsize = max(1, elements.array.metadata.dtype.itemsize)
    step = max(1, READ_BYTES // itemsize // BLOCK) * BLOCK
    for start in range(0, elements.size, step):
        part = np.ascontiguousarray(elements.read(start, min(start + step, elements.size)))
        data = part.reshape(-1).view(np.uint8).data
        width = BLOCK * (len(data) // len(part))
        yield from (data[at : at + width] for at in range(0, len(data), width))


def _text_blocks(elements: OrderedArray) -> Iterator[bytes]:
    block, count = bytearray(), 0
    for band in elements.texts():
        for item in band:
            block += len(item).to_bytes(8, "little") + item
            count += 1
            if count == BLOCK:
                yield bytes(block)
                block, count = bytearray(), 0
    if count:
        yield bytes(block)


def line(path: str, found: str) -> str:
    """The line of an array, as sha256sum prints it."""
    return f"{found}  {path}"


def parse_lines(text: str) -> Iterator[tuple[str, str]]:
    """Digest and path of each line; ValueError names the first that is none."""
    for number, line in enumerate(text.splitlines(), 1):
        found, blanks, path = line.partition("  ")
        if len(found) != 64 or not blanks or set(found) - set("0123456789abcdef"):
            raise ValueError(f"line {number}: not a digest and a path")
        yield found, path
