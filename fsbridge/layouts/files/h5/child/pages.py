"""A sparse file in memory into which h5py writes. Part of the process that writes skeletons. Not here: HDF5."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

PAGE = 4096
"""Least bytes that the kernel requests."""


class Pages:
    """A file object in memory that has only the pages that were written, for h5py's `fileobj` driver."""

    def __init__(self) -> None:
        self.pages: dict[int, bytearray] = {}
        self._numbers: list[int] = []  # of the pages, in order
        self.position = 0
        self.end = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self.position = offset + (0, self.position, self.end)[whence]
        return self.position

    def tell(self) -> int:
        return self.position

    def write(self, data: Any) -> int:
        content = memoryview(data).cast("B")
        done = 0
        while done < len(content):
            number, start = divmod(self.position + done, PAGE)
            count = min(PAGE - start, len(content) - done)
            page = self.pages.get(number)
            if page is None:
                page = self.pages[number] = bytearray(PAGE)
                insort(self._numbers, number)
            page[start : start + count] = content[done : done + count]
            done += count
        self.position += done
        self.end = max(self.end, self.position)
        return done

    def readinto(self, buffer: Any) -> int:
        out = memoryview(buffer).cast("B")
        done, wanted = 0, max(0, min(len(out), self.end - self.position))
        while done < wanted:
            number, start = divmod(self.position + done, PAGE)
            count = min(PAGE - start, wanted - done)
            page = self.pages.get(number)
            out[done : done + count] = bytes(count) if page is None else page[start : start + count]
            done += count
        self.position += done
        return done

    def read(self, size: int = -1) -> bytes:
        out = bytearray(self.end - self.position if size < 0 else size)
        return bytes(out[: self.readinto(out)])

    def truncate(self, size: int | None = None) -> int:
        self.end = self.position if size is None else size
        return self.end

    def flush(self) -> None:
        """Do nothing, because nothing is buffered."""

    def discard(self, start: int, stop: int) -> None:
        """Drop the pages that contain any of the bytes [start, stop), because another process supplies these."""
        first = bisect_left(self._numbers, start // PAGE)
        last = bisect_left(self._numbers, -(-stop // PAGE))
        for number in self._numbers[first:last]:
            del self.pages[number]
        del self._numbers[first:last]

    def pieces(self) -> list[tuple[int, bytes]]:
        """Runs of written pages."""
        runs: list[tuple[int, bytearray]] = []
        for number in self._numbers:
            if runs and runs[-1][0] + len(runs[-1][1]) == number * PAGE:
                runs[-1][1].extend(self.pages[number])
            else:
                runs.append((number * PAGE, bytearray(self.pages[number])))
        return [(offset, bytes(content)) for offset, content in runs]
