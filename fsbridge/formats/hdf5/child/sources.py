"""Data of a dataset in other files, external raw files and virtual datasets, and whether those files may be read.

HDF5 opens such files by itself, so this module finds out beforehand what HDF5 would open. Part of the HDF5 child. Not
here: links that lead out of the file (the daemon follows those), other files of a remote store (`remote_data.py`),
reading.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from h5py import h5d, h5g, h5l, h5s

from fsbridge.formats.hdf5 import file_search
from fsbridge.formats.hdf5.child import h5types, remote_data
from fsbridge.formats.hdf5.child.block_file import Asker, BlockFile
from fsbridge.formats.hdf5.child.data_file import Answer, Prefetcher, Refusal, failure_of, open_blocks, open_local
from fsbridge.formats.hdf5.child.objects import H5_ERRORS, Objects
from fsbridge.formats.hdf5.child.remote_data import BLOCK, Others, check_absent, make_expression, unescape
from fsbridge.lru import LRU

MAX_SOURCES = 4096
"""Most files that one virtual or external dataset may name."""
MAX_PARTS = 4 * MAX_SOURCES
"""Most datasets of other files that one dataset may lead to, and for which the location of their own data is kept."""
MAX_LINKS = 16
"""Most soft links on the way to a source: HDF5's own limit (H5L_NUM_LINKS)."""


class OtherData(NamedTuple):
    """Data in another local file. HDF5 opens the file by the path `place`.

    `dataset`: path of the dataset that holds the data; None if the file is raw.
    """

    place: str
    dataset: str | None


class Sources(Objects):
    """One opened file with datasets that may have their data in other files."""

    def __init__(self, asker: Asker | None = None, prefetcher: Callable[[str, BlockFile], Prefetcher] | None = None) -> None:
        super().__init__(asker, prefetcher)
        self._others: Others[Sources] | None = None  # for a remote file
        self._further: LRU[OtherData, tuple[Hashable, Sequence[OtherData]]] = LRU(MAX_PARTS)
        self._folders_of: tuple[str, list[str]] = "", []
        self._patterned = False  # whether some name was a pattern, so that the answer depends on which files exist

    def open(self, request: dict[str, Any]) -> Answer:
        if self._others is not None:
            self._others.close()
        self._others, self._folders_of = None, ("", [])
        answer = super().open(request)
        if self._asker is not None and self.blocks is not None:
            self._others = Others(self._asker, self.blocks, self._open_other)
        return answer

    def reopen_after_refusal(self) -> None:
        if self._others is not None:
            self._others.forget()
        super().reopen_after_refusal()

    def _open_other(self, place: str, blocks: BlockFile) -> Sources:
        """Let HDF5 open another file of the same remote store, and return it."""
        other = type(self)()
        other.path, other.blocks = place, blocks
        other.file = open_blocks(place, blocks)[0]
        return other

    def find_sources(self, dataset: Any) -> list[str]:
        """Return the paths of the other files that hold a dataset's data.

        Refuses (denied) if one of them may not be read.
        """
        plist = dataset.get_create_plist()
        count = plist.get_external_count()
        mappings = plist.get_virtual_count() if plist.get_layout() == h5d.VIRTUAL else 0
        if max(count, mappings) > MAX_SOURCES:
            raise Refusal("unsupported", f"has data spread over more than {MAX_SOURCES} files")
        if self._others is not None and self.has_remote_data(dataset):
            remote_data.refuse_unreadable(dataset)
            names = [h5types.decode_name(plist.get_external(i)[0]) for i in range(count)]
            self._others.look([*names, *(unescape(plist.get_virtual_filename(i)) for i in range(mappings))])
        raw = self.raw_folder(plist) if count and self.blocks is None else ""
        paths = dict.fromkeys(
            self._check_allowed(os.path.join(raw, h5types.decode_name(plist.get_external(i)[0]))) for i in range(count)
        )
        seen: set[OtherData] = set()
        for i in range(mappings):
            name, source = plist.get_virtual_filename(i), plist.get_virtual_dsetname(i)
            if name == ".":
                paths |= dict.fromkeys(self._find_own(source, seen))
            else:
                paths |= dict.fromkeys(
                    self._find_all_files([OtherData(place, source) for place in self._find_files(name)], seen)
                )
            if len(paths) > MAX_SOURCES:
                raise Refusal("unsupported", f"has data spread over more than {MAX_SOURCES} files")
        return list(paths)

    def _find_files(self, name: str) -> Iterator[str]:
        """Yield the files that a name stands for: one, or those that fit a pattern."""
        if "%b" not in BLOCK.findall(name):
            yield from self._find_places(unescape(name))
            return
        folder, base = os.path.split(name)
        if "%b" in BLOCK.findall(folder):
            raise Refusal("unsupported", "is a virtual dataset over a pattern of directories")
        folder = unescape(folder)
        self._patterned = True
        names = {
            entry for listed in self._find_folders(folder) for entry in self._list_fitting(listed, make_expression(base))
        }
        for entry in sorted(names):
            yield from self._find_places(os.path.join(folder, entry))

    def _find_folders(self, folder: str) -> list[str]:
        """Return the folders where files of a virtual dataset's pattern in `folder` may be."""
        tried = [os.path.dirname(place) for place in file_search.places(self._find_own_folders(), os.path.join(folder, "x"))]
        first = file_search.first(tried) or 0
        return [place for i, place in enumerate(tried) if i == first or self._is_allowed(os.path.join(place, "x"))]

    def _list_fitting(self, folder: str, pattern: re.Pattern[str]) -> list[str]:
        self._check_allowed(os.path.join(folder, "x"))
        try:
            return [entry for entry in os.listdir(folder) if pattern.fullmatch(entry)]
        except OSError as error:
            check_absent(folder, error)
            return []

    def _find_places(self, name: str) -> Iterator[str]:
        """Yield the path of the file that a virtual dataset or a link calls `name`.

        Paths that HDF5 tries earlier are yielded before it if they may be read. If there is no such file, the first path
        and the others that may be read are yielded. For a remote store the daemon finds the file, so the result is `name`.
        """
        if self.blocks is not None:
            yield name
            return
        tried = file_search.places(self._find_own_folders(), name)
        position = file_search.first(tried)
        for i, place in enumerate(tried if position is None else tried[: position + 1]):
            if i == (position or 0) or self._is_allowed(place):
                yield place

    def _find_own_folders(self) -> list[str]:
        """Return the folders that are searched for other files.

        They are computed once for each opening, because a virtual dataset may name thousands of files.
        """
        if self._folders_of[0] != self.path:
            self._folders_of = self.path, file_search.folders(self.path)
        return self._folders_of[1]

    def raw_folder(self, plist: Any) -> str:
        """Return the folder of a dataset's raw files with relative names. HDF5 itself leaves that to the program."""
        folders = self._find_own_folders()
        names = (h5types.decode_name(plist.get_external(i)[0]) for i in range(plist.get_external_count()))
        name = next((name for name in names if not os.path.isabs(name)), ".")
        return folders[file_search.first([os.path.join(folder, name) for folder in folders]) or 0]

    def _check_allowed(self, name: str) -> str:
        """Return the path of another file that holds data, or its URL. Refuses (denied) outside the allowed folders."""
        if self._others is not None:
            return self._others.place(name)
        if not self._is_allowed(name):
            path = os.path.realpath(name)
            permit = f"--allow-external {os.path.dirname(path)} permits reading it"
            raise Refusal("denied", f"has data in another file, {path}: {permit}")
        with suppress(OSError):  # what is absent, or cannot be looked at, is found out later
            if not stat.S_ISREG(os.stat(name).st_mode):  # HDF5 would wait for a writer of a FIFO
                raise Refusal("corrupt", f"has data in {name}, which is no regular file")
        return name  # not the real path: it may be a link that is switched later

    def _is_allowed(self, path: str) -> bool:
        """Tell whether a local file may be read."""
        path = os.path.realpath(path)
        return any(path.startswith(folder.rstrip("/") + "/") for folder in self.allowed)

    # ---- data of other local files that are in further ones

    def _find_all_files(self, parts: Iterable[OtherData], seen: set[OtherData]) -> Iterator[str]:
        """Yield the files of these parts, the files that hold the data of those parts, and so on.

        HDF5 follows virtual datasets of virtual datasets, and links to other files, without asking.
        """
        pending = list(parts)
        while pending:
            part = pending.pop()
            if part in seen:
                continue
            seen.add(part)
            if len(seen) > MAX_PARTS:
                raise Refusal("unsupported", f"has data spread over more than {MAX_PARTS} datasets of other files")
            yield self._check_allowed(part.place)
            if self.blocks is None and part.dataset is not None:
                pending += self._find_parts(part)

    def _find_parts(self, part: OtherData) -> Sequence[OtherData]:
        """Return where a dataset of another file has data outside that file. The answer is kept until the file changes."""
        try:
            status = os.stat(part.place)
            if not os.access(part.place, os.R_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            check_absent(part.place, error)
            return ()  # HDF5 reads the fill value
        version = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._further.get(part)
        if known is None or known[0] != version:
            parts, lasting = self._read_parts(part)
            known = version, parts
            if lasting:
                self._further.put(part, known)
        return known[1]

    def _read_parts(self, part: OtherData) -> tuple[Sequence[OtherData], bool]:
        """Return the answer for `_find_parts`, and whether it holds until the file changes.

        It does not hold for a pattern, which new files may fit.
        """
        assert part.dataset is not None
        try:
            os.close(os.open(part.place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        except OSError as error:
            check_absent(part.place, error)
            return (), False
        other = type(self)()
        other.path, other.allowed = part.place, self.allowed
        try:
            other.file = open_local(part.place)[0]
            parts = [data for path in other._find_named(part.dataset) for data in other._list_parts(other._follow(path))]
            return parts, not other._patterned
        except (Refusal, *H5_ERRORS) as error:
            if failure_of(error).kind not in ("corrupt", "stale", "not_found"):
                raise failure_of(error) from None
            return (), True  # the error is reported when the data is read
        finally:
            if other.file is not None:
                other.file.close()

    def _list_parts(self, target: Any) -> Iterator[OtherData]:
        """Yield the places outside this file with the data of an object that `_follow` returned."""
        if isinstance(target, OtherData):
            yield target
        elif isinstance(target, h5d.DatasetID):
            plist = target.get_create_plist()
            for i in range(plist.get_external_count()):
                yield OtherData(
                    os.path.join(os.path.dirname(self.path), h5types.decode_name(plist.get_external(i)[0])), None
                )
            for i in range(plist.get_virtual_count() if plist.get_layout() == h5d.VIRTUAL else 0):
                name, source = plist.get_virtual_filename(i), plist.get_virtual_dsetname(i)
                yield from (OtherData(place, source) for place in ((self.path,) if name == "." else self._find_files(name)))

    # ---- other files of a store elsewhere

    def has_remote_data(self, dataset: Any) -> bool:
        """Tell whether data of a dataset is in other files that this process cannot open."""
        if self.blocks is None:
            return False
        plist = dataset.get_create_plist()
        if plist.get_layout() != h5d.VIRTUAL:
            return bool(plist.get_external_count())
        return any(plist.get_virtual_filename(i) != "." for i in range(plist.get_virtual_count()))

    def read_block(self, dataset: Any, start: tuple[int, ...], shape: tuple[int, ...], block: Any, memory_type: Any) -> None:
        """Read a block of a dataset, wherever its data is, in `memory_type`, into the array `block`."""
        if self._others is None or not self.has_remote_data(dataset):
            memory, selected = select(dataset, start, shape)
            dataset.read(memory, selected, block, memory_type)
        elif dataset.get_create_plist().get_external_count():
            remote_data.read_external(dataset, self._others.blocks, start, shape, block, memory_type)
        else:
            remote_data.read_virtual(dataset, self._open_mapped, start, shape, block, memory_type)

    def _open_mapped(self, name: str, path: str) -> Any:
        """Return the opened dataset at `path` of the file `name`, or None if there is none."""
        parts = [unescape(part) for part in path.split("/") if part not in ("", ".")]
        assert self._others is not None
        file = self if name == "." else self._others.open_other(unescape(name))
        dataset = None if file is None else file._follow(parts)
        if dataset is None:
            return None
        if not isinstance(dataset, h5d.DatasetID):
            raise Refusal("unsupported", f"is a virtual dataset whose source {path} in {name} lies behind a link to a file")
        plist = dataset.get_create_plist()
        if plist.get_layout() == h5d.VIRTUAL or plist.get_external_count():
            raise Refusal("unsupported", f"is a virtual dataset whose source {path} in {name} has its data in further files")
        return dataset

    # ---- data in the same file

    def _find_own(self, name: str, seen: set[OtherData]) -> Iterator[str]:
        """Yield the other files with data of a virtual dataset's source in this file. `name`: its path, or a pattern."""
        for parts in self._find_named(name):
            source = self._follow(parts)
            if source is None:
                continue  # it is missing: HDF5 reads the fill value
            if not isinstance(source, OtherData | h5d.DatasetID):
                raise Refusal("corrupt", f"is a virtual dataset whose source {name} is no dataset")
            if isinstance(source, h5d.DatasetID) and source.get_create_plist().get_layout() == h5d.VIRTUAL:
                raise Refusal("unsupported", f"is a virtual dataset whose source {name} is a virtual dataset itself")
            yield from self._find_all_files(self._list_parts(source), seen)

    def _find_named(self, name: str) -> Iterator[list[str]]:
        """Yield the paths in this file that a source's name stands for: one, or those that fit a pattern."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if "%b" in BLOCK.findall("/".join(parts[:-1])):
            raise Refusal("unsupported", "is a virtual dataset over a pattern of groups")
        if parts and "%b" in BLOCK.findall(parts[-1]):
            group, pattern = self._follow(list(map(unescape, parts[:-1]))), make_expression(parts[-1])
            names = [h5types.decode_name(raw) for raw in group] if isinstance(group, h5g.GroupID) else []
            for entry in filter(pattern.fullmatch, names):
                yield [*map(unescape, parts[:-1]), entry]
        else:
            yield list(map(unescape, parts))

    def _follow(self, parts: list[str]) -> Any:
        """Return the object at a path with soft links followed, or None for nothing.

        If an external link is on the way, return the file and path that it names.
        """
        done: list[str] = []
        links = MAX_LINKS
        while parts:
            name, *parts = parts
            group = self.walk(done)
            if not isinstance(group, h5g.GroupID) or not group.links.exists(name.encode("utf-8", "surrogateescape")):
                return None
            info = self._link(group, name)
            if info.type == h5l.TYPE_HARD:
                done.append(name)
                continue
            links -= 1
            if info.type not in (h5l.TYPE_SOFT, h5l.TYPE_EXTERNAL) or links < 0:
                raise Refusal("unsupported", "is a virtual dataset whose source is behind a link that is not followed")
            target = group.links.get_val(name.encode("utf-8", "surrogateescape"))
            if info.type == h5l.TYPE_EXTERNAL:
                *_, place = self._find_places(h5types.decode_name(target[0]))
                return OtherData(place, "/".join([h5types.decode_name(target[1]), *parts]).replace("%", "%%"))
            text = h5types.decode_name(target)
            done = [] if text.startswith("/") else done
            parts = [part for part in text.split("/") if part not in ("", ".")] + parts
        return self.walk(done)


def select(dataset: Any, start: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Return memory space and file space of a block of elements. A scalar dataset is selected as a whole."""
    space = dataset.get_space()
    if not shape:
        return h5s.create(h5s.SCALAR), space
    space.select_hyperslab(start, shape)
    return h5s.create_simple(shape), space
