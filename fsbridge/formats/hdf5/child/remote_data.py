"""Data of a dataset in other files of a remote store: virtual datasets and external raw files, read here.

HDF5 itself would read the opened file in place of each of them, because the driver that reads blocks knows no names. The
elements are the ones that HDF5 reads from a local disk: the fill value where a source is missing, zeros behind the end of
a raw file. The daemon finds and reads the files. Part of the HDF5 child. Not here: which datasets name them and which
files may be read (`sources.py`, and the daemon, which checks every name).
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from h5py import h5d, h5f, h5p, h5s, h5z

from fsbridge.formats.hdf5.child import h5types
from fsbridge.formats.hdf5.child.block_file import Asker, BlockFile
from fsbridge.formats.hdf5.child.data_file import OpenedFile, Refusal
from fsbridge.lru import LRU

F = TypeVar("F", bound=OpenedFile)


class _Other(NamedTuple):
    """One other file. `version`: a number that stands for its version; `blocks`: None if there is no such file."""

    place: str
    version: int
    blocks: BlockFile | None


class Others(Generic[F]):
    """The other files of one opened file, by the names that it has for them."""

    def __init__(self, ask: Asker, own: BlockFile, opener: Callable[[str, BlockFile], F]) -> None:
        """`own`: the blocks of the file itself. `opener` lets HDF5 open a file, given its URL and its blocks."""
        self._ask = ask
        self._own = own
        self._opener = opener
        self._by_place: dict[str, _Other] = {}  # by place
        self._by_name: dict[str, _Other] = {}  # by name, during one question
        # At most four are open at a time, because each keeps blocks.
        self._files: LRU[_Other, F] = LRU(4, lambda opened: opened.file.close())

    def forget(self) -> None:
        """Begin another question: each file is looked up again."""
        self._by_name.clear()

    def close(self) -> None:
        """Close all files."""
        self._files.clear()

    def look(self, names: Iterable[str]) -> None:
        """Look up files for the present question. Raises Refusal (denied), or OSError if one cannot be read."""
        unknown = [name for name in dict.fromkeys(names) if name not in self._by_name and name != "."]
        if not unknown:
            return
        answer, _ = self._ask({"files": unknown}, 0)
        if "refused" in answer:
            self._own.refused = True
            raise OSError("a file cannot be read")
        if "denied" in answer:
            raise Refusal("denied", answer["denied"])
        for name, (place, version, size) in zip(unknown, answer["files"], strict=True):
            known = self._by_place.get(place)
            if known is None or known.version != version or (known.blocks is not None and known.blocks.refused):
                blocks = None if size is None else BlockFile(self._asker_of(place), size, answer["block"])
                self._by_place[place] = known = _Other(place, version, blocks)
            self._by_name[name] = known

    def place(self, name: str) -> str:
        """Return the URL of a file."""
        return self._find(name).place

    def blocks(self, name: str) -> BlockFile | None:
        """Return what reads a file, or None if there is no such file."""
        return self._find(name).blocks

    def open_other(self, name: str) -> F | None:
        """Return a file opened by HDF5, or None if there is no such file."""
        other = self._find(name)
        if other.blocks is None:
            return None
        return self._files.get(other) or self._files.put(other, self._opener(other.place, other.blocks))

    def _find(self, name: str) -> _Other:
        self.look([name])
        return self._by_name[name]

    def _asker_of(self, place: str) -> Asker:
        """Return what asks the daemon for blocks of another file."""
        return lambda wanted, limit: self._ask({**wanted, "of": place}, limit)


BLOCK = re.compile(r"%[%b]")
"""In names of virtual datasets `%b` is the number of a block and `%%` one percent sign (H5Dvirtual.c)."""


def unescape(name: str) -> str:
    return name.replace("%%", "%")


def make_expression(name: str) -> re.Pattern[str]:
    """Return a regular expression for the names that fit a pattern: `%b` stands for the same decimal number everywhere."""
    out, position, seen = "", 0, False
    for match in BLOCK.finditer(name):
        out += re.escape(name[position : match.start()])
        out += "%" if match[0] == "%%" else "(?P=block)" if seen else "(?P<block>[0-9]+)"
        seen |= match[0] == "%b"
        position = match.end()
    return re.compile(out + re.escape(name[position:]))


def check_absent(place: str, error: OSError) -> None:
    """Raise a Refusal unless `error` means that nothing is there. HDF5 reads the fill value for whatever it cannot open."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        kind = "denied" if isinstance(error, PermissionError) else "unreachable"
        raise Refusal(kind, f"has data in another file, {place}: {error.strerror}")


Blocks = Callable[[str], BlockFile | None]
"""name -> the file of that name, or None if there is none."""
Source = Callable[[str, str], Any]
"""(file name, dataset name) -> the opened dataset, or None if there is none."""

_ID = ctypes.c_int64
_library = ctypes.CDLL(h5p.__file__)
_project = _library.H5Sselect_project_intersection
_move_back = _library.H5Sselect_adjust
"""Functions of the HDF5 that h5py is linked with; h5py does not offer them."""
_project.argtypes, _project.restype = (_ID, _ID, _ID), _ID
_move_back.argtypes = (_ID, ctypes.POINTER(ctypes.c_int64))


def grows(space: Any) -> bool:
    """Tell whether a selection has no end, so that the shape of the dataset depends on which files exist."""
    if space.get_select_type() != h5s.SEL_HYPERSLABS or not space.is_regular_hyperslab():
        return False
    _, _, counts, blocks = space.get_regular_hyperslab()
    return h5s.UNLIMITED in (*counts, *blocks)


def refuse_unreadable(dataset: Any) -> None:
    """Raise Refusal if a dataset with data in other remote files is of a kind that cannot be read there."""
    if h5types.choose_form(h5types.describe(dataset.get_type())) not in ("raw", "converted"):
        raise Refusal("unsupported", "has elements of variable length in other files: read from local disks only")
    plist = dataset.get_create_plist()
    for i in range(plist.get_virtual_count() if plist.get_layout() == h5d.VIRTUAL else 0):
        if "%b" in BLOCK.findall(plist.get_virtual_filename(i) + plist.get_virtual_dsetname(i)):
            raise Refusal("unsupported", "is a virtual dataset over a pattern of files: read from local disks only")
        if grows(plist.get_virtual_vspace(i)) or grows(plist.get_virtual_srcspace(i)):
            raise Refusal("unsupported", "is a virtual dataset that grows with other files: read from local disks only")


def read_virtual(
    dataset: Any, source: Source, start: Sequence[int], shape: tuple[int, ...], block: Any, memory_type: Any
) -> None:
    """Read a block of a virtual dataset, in `memory_type`, into the array `block`."""
    plist = dataset.get_create_plist()
    with _make_scratch(dataset, shape, _copy_fill(dataset)) as filled:
        filled.read(h5s.ALL, h5s.ALL, block, memory_type)
    for i in range(plist.get_virtual_count()):
        whole = _apply_selection(dataset.get_space(), plist.get_virtual_vspace(i))
        part = whole.copy()
        part.select_hyperslab(tuple(start), shape, op=h5s.SELECT_AND)
        count = part.get_select_npoints()
        mapped = source(plist.get_virtual_filename(i), plist.get_virtual_dsetname(i)) if count else None
        if mapped is None:
            continue
        there = _apply_selection(mapped.get_space(), plist.get_virtual_srcspace(i))
        number = _project(whole.id, there.id, part.id) if there.select_valid() else -1
        if number < 0:
            raise Refusal("corrupt", "is a virtual dataset whose source is smaller than what is mapped")
        if _move_back(part.id, (ctypes.c_int64 * len(shape))(*start)) < 0:
            raise Refusal("corrupt", "is a virtual dataset whose mapping HDF5 cannot move")
        memory = h5s.create_simple(shape)
        memory.select_copy(part)
        mapped.read(memory, h5s.SpaceID(number), block, memory_type)


def _apply_selection(space: Any, selection: Any) -> Any:
    """Apply to `space` a selection that the file stores without an extent or with a smaller one."""
    if selection.get_select_type() == h5s.SEL_ALL:
        space.select_all()
    elif selection.get_simple_extent_ndims() != space.get_simple_extent_ndims():
        raise Refusal("corrupt", "is a virtual dataset whose source has another number of dimensions")
    else:
        space.select_copy(selection)
    return space


def read_external(
    dataset: Any, blocks: Blocks, start: Sequence[int], shape: tuple[int, ...], block: Any, memory_type: Any
) -> None:
    """Read a block of a dataset in raw files, in `memory_type`, into the array `block`."""
    extent, tid = dataset.get_space().get_simple_extent_dims() or (), dataset.get_type()
    first, count = _find_contiguous(start, shape, extent)
    data = _read_external_bytes(dataset.get_create_plist(), blocks, first * tid.get_size(), count * tid.get_size())
    with _make_scratch(dataset, shape, h5p.create(h5p.DATASET_CREATE)) as stored:
        stored.write(h5s.ALL, h5s.ALL, np.frombuffer(data, np.uint8), tid)
        stored.read(h5s.ALL, h5s.ALL, block, memory_type)


def _find_contiguous(start: Sequence[int], shape: Sequence[int], extent: Sequence[int]) -> tuple[int, int]:
    """Return the number of a block's first element and the count of elements. Refuses elements that are not adjacent."""
    first = last = 0
    count = 1
    for begin, edge, length in zip(start, shape, extent, strict=True):
        first, last, count = first * length + begin, last * length + begin + edge - 1, count * edge
    if count and last - first + 1 != count:
        raise Refusal("unsupported", "the block's elements in raw files do not follow each other")
    return first, count


def _read_external_bytes(plist: Any, blocks: Blocks, first: int, length: int) -> bytes:
    """Return bytes of a dataset that are in raw files, one part after the other."""
    joined, position = bytearray(length), 0
    for i in range(plist.get_external_count()):
        name, offset, size = plist.get_external(i)
        begin, end = max(first, position), min(first + length, position + size)
        if begin < end:
            file = blocks(name.decode("utf-8", "surrogateescape"))
            if file is None:
                raise Refusal("corrupt", f"its raw file {name.decode('utf-8', 'replace')} is not there")
            joined[begin - first : end - first] = file.read(offset + begin - position, end - begin)
        position += size
    return bytes(joined)


def _copy_fill(dataset: Any) -> Any:
    """Return properties to create an unwritten dataset with the fill value of `dataset`: no filters, no chunks."""
    plist = dataset.get_create_plist()
    plist.remove_filter(h5z.FILTER_ALL)
    plist.set_layout(h5d.CONTIGUOUS)
    plist.set_alloc_time(h5d.ALLOC_TIME_LATE)
    return plist


@contextmanager
def _make_scratch(dataset: Any, shape: tuple[int, ...], plist: Any) -> Iterator[Any]:
    """Make a dataset in memory with the type of another one."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fapl_core(1 << 16, False)
    file = h5f.create(b"elsewhere", h5f.ACC_TRUNC, fapl=access)
    try:
        space = h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)
        yield h5d.create(file, b"x", dataset.get_type().copy(), space, plist)
    finally:
        file.close()
