"""A file that the daemon reads for the child: h5py's driver `fileobj` over blocks that are requested from the daemon.

Part of the HDF5 child. A read returns every byte that HDF5 wants or raises OSError, because the driver ignores how many
bytes it got. Not here: which blocks the daemon reads at a time, and from where (`blocks.py`, `remote.py` of the daemon).
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

Asker: TypeAlias = Callable[[dict[str, Any], int], tuple[dict[str, Any], list[bytearray]]]
"""Asks the daemon: (what is wanted, most bytes that may come) -> (its message, the bytes)."""

MOST_WANTED = 256
"""Most blocks in one question to the daemon."""
DATA_BYTES = 512 << 10
"""A read of more bytes than this is data. It is requested by itself and its bytes are not kept."""
MOST_DATA_BYTES = 16 << 20
"""Most bytes of data in one question to the daemon."""

GROUP_NODE, CHUNK_NODE = 0, 1
"""Node types of version 1 B-trees."""
ENTRIES = {GROUP_NODE: 32, CHUNK_NODE: 64}
"""Most entries of a B-tree node by its type: HDF5's defaults."""
_NODE = struct.Struct("<4sBBH16x")


class BlockFile:
    """A file of `size` bytes, read in blocks of `block` bytes.

    `refused` is true once the daemon had nothing to give; the daemon reports the reason itself. `requests` counts the
    requests that the daemon needed for the answers.
    """

    def __init__(self, ask: Asker, size: int, block: int) -> None:
        self._ask = ask
        self.size = size
        self._block = block
        self._position = 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._lacking: set[int] | None = None
        # Groups of blocks that are needed together, the latest ones.
        self._groups: deque[set[int]] = deque(maxlen=64)
        self.base = 0
        self.instead: tuple[int, bytes] | None = None
        self.refused = False
        self.requests = 0

    # ---- what the driver calls

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset if whence == os.SEEK_SET else self.size + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, out: Any) -> int:
        view = memoryview(out).cast("B")
        start, length = self._position, len(view)
        self._fill(start, view)
        if self.instead is not None:
            self._overlay(start, view)
        self._position += length
        if length <= DATA_BYTES and bytes(view[:4]) == b"TREE":
            self._remember_children(bytes(view))
        return length

    def flush(self) -> None:
        """Do nothing, because nothing is ever written."""

    # ---- what this process calls

    def read(self, start: int, length: int) -> bytes:
        """Return exactly these bytes. Raises OSError if they cannot be had."""
        data = bytearray(length)
        self._fill(start, memoryview(data))
        return bytes(data)

    def has(self, address: int) -> bool:
        """Tell whether the first block of the object at this address is present."""
        start = address + self.base
        return start >= self.size or start // self._block in self._blocks

    def request(self, numbers: Iterable[int]) -> None:
        """Request those of these blocks that are not present."""
        missing = sorted(number for number in numbers if number not in self._blocks)
        for start in range(0, len(missing), MOST_WANTED):
            self._want(missing[start : start + MOST_WANTED], ())

    @contextlib.contextmanager
    def only_present(self) -> Iterator[set[int]]:
        """Let reads fail instead of asking the daemon. Afterwards the yielded set holds the blocks that were missing."""
        before = self._lacking
        self._lacking = set()
        try:
            yield self._lacking
        finally:
            self._lacking = before

    # ---- blocks

    def _fill(self, start: int, view: memoryview) -> None:
        inside = max(0, min(len(view), self.size - start))
        view[inside:] = bytes(len(view) - inside)  # HDF5's own drivers return zeros behind the end of the file
        view, length = view[:inside], inside
        if length > DATA_BYTES:
            self._fill_data(start, view)
            return
        numbers = range(start // self._block, -(-(start + length) // self._block)) if length else range(0)
        missing = [number for number in numbers if number not in self._blocks]
        if missing and self._lacking is not None:
            # Trial reads also want the 4096 bytes behind what they read: behind an object's header lies the first node of
            # its chunk index.
            behind = min(start + length + 4096, self.size - 1) // self._block
            missing += [number for number in range(numbers[-1] + 1, behind + 1) if number not in self._blocks]
        if missing:
            self._want(missing, numbers)
        for number in numbers:
            first = number * self._block
            data = self._blocks[number]
            self._blocks.move_to_end(number)
            begin, end = max(start, first), min(start + length, first + len(data))
            view[begin - start : end - start] = data[begin - first : end - first]

    def _fill_data(self, start: int, view: memoryview) -> None:
        if self._lacking is not None:
            raise OSError("not asked for")
        for at in range(0, len(view), MOST_DATA_BYTES):
            part = view[at : at + MOST_DATA_BYTES]
            _, attachments = self._ask_for({"data": [start + at, len(part)]}, len(part))
            got = 0
            for data in attachments:
                part[got : got + len(data)] = data
                got += len(data)
            if got != len(part):
                raise OSError("the daemon sent too few bytes")

    def _want(self, missing: Sequence[int], needed: Sequence[int]) -> None:
        """Request blocks and those that are needed together with them. The `needed` blocks are present afterwards."""
        wanted = dict.fromkeys(missing)
        for group in self._groups:
            if not group.isdisjoint(missing):
                wanted |= dict.fromkeys(number for number in sorted(group) if number not in self._blocks)
        if self._lacking is not None:
            self._lacking.update(wanted)
            raise OSError("not here")
        # The daemon may send more blocks than it was asked for: those that will probably be wanted next.
        answer, attachments = self._ask_for({"blocks": list(wanted)[:MOST_WANTED]}, 512 * self._block)
        data, at = memoryview(attachments[0]), 0
        for number in answer["blocks"]:
            length = min(self._block, self.size - number * self._block)
            self._blocks[number] = bytes(data[at : at + length])
            at += length
        self.requests += answer["requests"]
        for number in needed:
            self._blocks.move_to_end(number)
        # 384 blocks are 12 MiB. The daemon keeps more.
        while len(self._blocks) > 384:
            self._blocks.popitem(last=False)

    def _ask_for(self, wanted: dict[str, Any], limit: int) -> tuple[dict[str, Any], list[bytearray]]:
        if not self.refused:
            answer, attachments = self._ask(wanted, limit)
            if "refused" not in answer:
                return answer, attachments
            self.refused = True
        raise OSError("the file cannot be read")

    def _overlay(self, start: int, view: memoryview) -> None:
        assert self.instead is not None
        at, data = self.instead
        begin, end = max(start, at), min(start + len(view), at + len(data))
        if begin < end:
            view[begin - start : end - start] = data[begin - at : end - at]

    # ---- what is read next

    def _remember_children(self, node: bytes) -> None:
        """Remember the children of a B-tree node (version 1), to request them together: HDF5 reads them one by one.

        Bytes that only look like a node cost one useless request, because HDF5 still decides what is read.
        """
        if len(node) < _NODE.size:
            return
        _, kind, level, used = _NODE.unpack_from(node)
        entries = ENTRIES.get(kind, 0)
        if kind == GROUP_NODE:
            key = 8
        elif kind == CHUNK_NODE and level:
            key = (len(node) - _NODE.size - 8 * entries) // (entries + 1)
        else:
            return
        step = key + 8
        if key < 8 or not used <= entries or _NODE.size + used * step > len(node):
            return
        wanted: set[int] = set()
        for (address,) in (struct.unpack_from("<Q", node, _NODE.size + i * step + key) for i in range(used)):
            start = address + self.base
            if 0 <= start < self.size:
                # The first 1024 bytes of a child: a node, or the header of an object.
                wanted |= {start // self._block, min(start + 1024, self.size - 1) // self._block}
        if len(wanted) > 1:
            self._groups.append(wanted)
