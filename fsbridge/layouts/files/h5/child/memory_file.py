"""The file in memory into which HDF5 writes a skeleton, and the places in it for elements that lie outside the skeleton.

The file is sparse: it has only the pages that were written. Elements get pages of their own, because a damaged element makes
the kernel's page that contains it unreadable. So that page must contain neither HDF5's own structures, which are needed to
read the file at all, nor another dataset. HDF5 can only align all objects or all large ones, so everything else is written
first. Part of the writing process. Not here: what is written.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

import numpy as np
from h5py import h5d, h5f, h5fd, h5p, h5s

PAGE = 4096
"""Least bytes that the kernel requests."""


class PagedFile:
    """A file object in memory for h5py's `fileobj` driver.

    It holds only pages that were written; all other bytes are zero.
    """

    def __init__(self) -> None:
        self.pages: dict[int, bytearray] = {}
        self._numbers: list[int] = []  # numbers of the written pages, ascending
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
        """Drop the pages that contain any of the bytes [start, stop), because the daemon supplies these bytes itself."""
        first = bisect_left(self._numbers, start // PAGE)
        last = bisect_left(self._numbers, -(-stop // PAGE))
        for number in self._numbers[first:last]:
            del self.pages[number]
        del self._numbers[first:last]

    def list_pieces(self) -> list[tuple[int, bytes]]:
        """Return each run of written pages as its offset and its bytes."""
        runs: list[tuple[int, bytearray]] = []
        for number in self._numbers:
            if runs and runs[-1][0] + len(runs[-1][1]) == number * PAGE:
                runs[-1][1].extend(self.pages[number])
            else:
                runs.append((number * PAGE, bytearray(self.pages[number])))
        return [(offset, bytes(content)) for offset, content in runs]


MAX_RANK = 32
"""H5S_MAX_RANK (H5Spublic.h)."""


class Allocation:
    """Allocates space in a file for the elements of datasets."""

    def __init__(self, file: h5f.FileID) -> None:
        self._file = file
        self._access = h5p.create(h5p.DATASET_ACCESS)
        self._access.set_chunk_cache(1, 0, 1.0)  # no cache: HDF5 would write a whole chunk from it
        self._single = h5s.create(h5s.SCALAR)

    def allocate(self, path: bytes, count: int) -> int:
        """Allocate space for a dataset's elements and return its offset in the file.

        ValueError if it is not `count` bytes long.
        """
        dataset = h5d.open(self._file, path, self._access)
        space, kind = dataset.get_space(), dataset.get_type()
        if rank := space.get_simple_extent_ndims():
            space.select_hyperslab((0,) * rank, (1,) * rank)
        dataset.write(self._single, space, np.zeros((), f"V{kind.get_size()}"), kind)
        offset, stored = dataset.get_offset(), dataset.get_storage_size()
        if offset is None:  # it can grow, and has one chunk
            offset = dataset.get_chunk_info(0).byte_offset
        if offset is None:
            raise ValueError("HDF5 does not tell where the elements are")
        if stored != count:
            raise ValueError(f"HDF5 stores {stored} bytes of elements, not {count}")
        return int(offset)


def open_aligned(pages: Any, alignment: int) -> h5f.FileID:
    """Open the file in `pages` so that every new object in it begins at a multiple of `alignment`."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fileobj_driver(h5fd.fileobj_driver, pages)
    access.set_alignment(1, alignment)
    access.set_libver_bounds(h5f.LIBVER_EARLIEST, h5f.LIBVER_LATEST)
    return h5f.open(b"skeleton", h5f.ACC_RDWR, fapl=access)
