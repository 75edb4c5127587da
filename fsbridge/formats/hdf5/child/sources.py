"""Data of a dataset that are in other files: external raw files and virtual datasets, and whether they may be read.

Part of the HDF5 child. HDF5 opens such files by itself, so what it would open is found out before. Not here: links that lead
out of the file (the daemon follows those), files of a store elsewhere (`others.py`), reading.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from h5py import h5d, h5g, h5l, h5s

from fsbridge.formats.hdf5 import beside
from fsbridge.formats.hdf5.child import elsewhere, h5types
from fsbridge.formats.hdf5.child.blocks import Asker, BlockFile
from fsbridge.formats.hdf5.child.names import BLOCK, check_absent, expression, literal
from fsbridge.formats.hdf5.child.objects import H5_ERRORS, Objects
from fsbridge.formats.hdf5.child.opened import Ahead, Answer, Refusal, failure_of, open_blocks, open_local
from fsbridge.formats.hdf5.child.others import Others
from fsbridge.lru import LRU

MAX_SOURCES = 4096
"""Files that one virtual or external dataset may name."""
MAX_PARTS = 4 * MAX_SOURCES
"""Datasets of other files that one may lead to; of so many it is remembered where their own data are."""
MAX_LINKS = 16
"""Soft links on the way to a source: HDF5's own limit (H5L_NUM_LINKS)."""


class Part(NamedTuple):
    """Data in another local file, at the path by which HDF5 opens it: in a dataset of it, or (None) raw."""

    place: str
    dataset: str | None


class Sources(Objects):
    """One opened file whose datasets may have their data in others."""

    def __init__(self, asker: Asker | None = None, ahead: Callable[[str, BlockFile], Ahead] | None = None) -> None:
        super().__init__(asker, ahead)
        self._others: Others[Sources] | None = None  # of a file elsewhere
        self._further: LRU[Part, tuple[Hashable, Sequence[Part]]] = LRU(MAX_PARTS)
        self._folders_of: tuple[str, list[str]] = "", []
        self._patterned = False  # whether some name stood for whichever files there were

    def open(self, request: dict[str, Any]) -> Answer:
        if self._others is not None:
            self._others.close()
        self._others, self._folders_of = None, ("", [])
        answer = super().open(request)
        if self._asker is not None and self.blocks is not None:
            self._others = Others(self._asker, self.blocks, self._other)
        return answer

    def renew(self) -> None:
        if self._others is not None:
            self._others.forget()
        super().renew()

    def _other(self, place: str, blocks: BlockFile) -> Sources:
        """Another file of the same store elsewhere, opened by HDF5."""
        found = type(self)()
        found.path, found.blocks = place, blocks
        found.file = open_blocks(place, blocks)[0]
        return found

    def sources(self, dataset: Any) -> list[str]:
        """Paths of the other files that hold a dataset's data; denied when one of them may not be read."""
        plist = dataset.get_create_plist()
        count = plist.get_external_count()
        mappings = plist.get_virtual_count() if plist.get_layout() == h5d.VIRTUAL else 0
        if max(count, mappings) > MAX_SOURCES:
            raise Refusal("unsupported", f"data spread over more than {MAX_SOURCES} files")
        if self._others is not None and self.is_elsewhere(dataset):
            elsewhere.check(dataset)
            names = [h5types.text(plist.get_external(i)[0]) for i in range(count)]
            self._others.look([*names, *(literal(plist.get_virtual_filename(i)) for i in range(mappings))])
        raw = self.raw_folder(plist) if count and self.blocks is None else ""
        found = dict.fromkeys(self._allowed(os.path.join(raw, h5types.text(plist.get_external(i)[0]))) for i in range(count))
        seen: set[Part] = set()
        for i in range(mappings):
            name, source = plist.get_virtual_filename(i), plist.get_virtual_dsetname(i)
            if name == ".":
                found |= dict.fromkeys(self._own(source, seen))
            else:
                found |= dict.fromkeys(self._all_files([Part(place, source) for place in self._files(name)], seen))
            if len(found) > MAX_SOURCES:
                raise Refusal("unsupported", f"data spread over more than {MAX_SOURCES} files")
        return list(found)

    def _files(self, name: str) -> Iterator[str]:
        """The files that a name stands for: one, or those that there are of a pattern."""
        if "%b" not in BLOCK.findall(name):
            yield from self._places(literal(name))
            return
        folder, base = os.path.split(name)
        if "%b" in BLOCK.findall(folder):
            raise Refusal("unsupported", "virtual dataset over a pattern of directories")
        folder = literal(folder)
        self._patterned = True
        names = {found for listed in self._folders(folder) for found in self._fitting(listed, expression(base))}
        for found in sorted(names):
            yield from self._places(os.path.join(folder, found))

    def _folders(self, folder: str) -> list[str]:
        """Where there may be files of the pattern that a virtual dataset has for those in `folder`."""
        tried = [os.path.dirname(place) for place in beside.places(self._folders_of_file(), os.path.join(folder, "x"))]
        first = beside.first(tried) or 0
        return [place for i, place in enumerate(tried) if i == first or self._is_allowed(os.path.join(place, "x"))]

    def _fitting(self, folder: str, pattern: re.Pattern[str]) -> list[str]:
        self._allowed(os.path.join(folder, "x"))
        try:
            return [found for found in os.listdir(folder) if pattern.fullmatch(found)]
        except OSError as error:
            check_absent(folder, error)
            return []

    def _places(self, name: str) -> Iterator[str]:
        """The file that a virtual dataset or a link calls `name`, and places where HDF5 would take another one first.

        The daemon knows where files of a store elsewhere are.
        """
        if self.blocks is not None:
            yield name
            return
        tried = beside.places(self._folders_of_file(), name)
        found = beside.first(tried)
        for i, place in enumerate(tried if found is None else tried[: found + 1]):
            if i == (found or 0) or self._is_allowed(place):
                yield place

    def _folders_of_file(self) -> list[str]:
        """Where other files are looked for, found out once for each opening: a virtual dataset may name thousands."""
        if self._folders_of[0] != self.path:
            self._folders_of = self.path, beside.folders(self.path)
        return self._folders_of[1]

    def raw_folder(self, plist: Any) -> str:
        """Where relative names of a dataset's raw files begin: HDF5 itself leaves it to the program."""
        folders = self._folders_of_file()
        names = (h5types.text(plist.get_external(i)[0]) for i in range(plist.get_external_count()))
        name = next((name for name in names if not os.path.isabs(name)), ".")
        return folders[beside.first([os.path.join(folder, name) for folder in folders]) or 0]

    def _allowed(self, name: str) -> str:
        """The path of another file that data lies in, or its URL; denied outside the allowed folders."""
        if self._others is not None:
            return self._others.place(name)
        if not self._is_allowed(name):
            path = os.path.realpath(name)
            permit = f"--allow-external {os.path.dirname(path)} permits reading it"
            raise Refusal("denied", f"has data in another file, {path}: {permit}")
        return name  # as it is called: it may be a link, which somebody switches

    def _is_allowed(self, path: str) -> bool:
        """Whether a local file may be read."""
        path = os.path.realpath(path)
        return any(path.startswith(folder.rstrip("/") + "/") for folder in self.allowed)

    # ---- data of other local files that are in further ones

    def _all_files(self, parts: Iterable[Part], seen: set[Part]) -> Iterator[str]:
        """Paths of the files that these parts are in, and of those that they have their own data in, and so on.

        HDF5 follows virtual datasets of virtual datasets and links to other files without asking.
        """
        pending = list(parts)
        while pending:
            part = pending.pop()
            if part in seen:
                continue
            seen.add(part)
            if len(seen) > MAX_PARTS:
                raise Refusal("unsupported", f"data spread over more than {MAX_PARTS} datasets of other files")
            yield self._allowed(part.place)
            if self.blocks is None and part.dataset is not None:
                pending += self._named_by(part)

    def _named_by(self, part: Part) -> Sequence[Part]:
        """Where a dataset of another file has its data beside that file: remembered while nobody writes to the file."""
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

    def _read_parts(self, part: Part) -> tuple[Sequence[Part], bool]:
        """Those of `_named_by`, and whether they are the same as long as the file is: files may come to fit a pattern."""
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
            parts = [found for path in other._named(part.dataset) for found in other._parts(other._follow(path))]
            return parts, not other._patterned
        except (Refusal, *H5_ERRORS) as error:
            refusal = error if isinstance(error, Refusal) else failure_of(error)
            if refusal.kind in ("corrupt", "stale", "not_found"):
                return (), True  # whoever reads it is told
            raise refusal from None
        finally:
            if other.file is not None:
                other.file.close()

    def _parts(self, found: Any) -> Iterator[Part]:
        """Where the data are of what `_follow` found in this file, if not in the file itself."""
        if isinstance(found, Part):
            yield found
        elif isinstance(found, h5d.DatasetID):
            plist = found.get_create_plist()
            for i in range(plist.get_external_count()):
                yield Part(os.path.join(os.path.dirname(self.path), h5types.text(plist.get_external(i)[0])), None)
            for i in range(plist.get_virtual_count() if plist.get_layout() == h5d.VIRTUAL else 0):
                name, source = plist.get_virtual_filename(i), plist.get_virtual_dsetname(i)
                yield from (Part(place, source) for place in ((self.path,) if name == "." else self._files(name)))

    # ---- other files of a store elsewhere

    def is_elsewhere(self, dataset: Any) -> bool:
        """Whether data of a dataset are in other files that this process cannot open."""
        if self.blocks is None:
            return False
        plist = dataset.get_create_plist()
        if plist.get_layout() != h5d.VIRTUAL:
            return bool(plist.get_external_count())
        return any(plist.get_virtual_filename(i) != "." for i in range(plist.get_virtual_count()))

    def read_block(self, dataset: Any, start: tuple[int, ...], shape: tuple[int, ...], found: Any, memory_type: Any) -> None:
        """The elements of a block of a dataset, wherever they are, in `memory_type`, into the array `found`."""
        if self._others is None or not self.is_elsewhere(dataset):
            memory, selected = select(dataset, start, shape)
            dataset.read(memory, selected, found, memory_type)
        elif dataset.get_create_plist().get_external_count():
            elsewhere.read_external(dataset, self._others.blocks, start, shape, found, memory_type)
        else:
            elsewhere.read_virtual(dataset, self._mapped, start, shape, found, memory_type)

    def _mapped(self, name: str, path: str) -> Any:
        """The dataset at `path` of the file `name`, opened; None where there is none."""
        parts = [literal(part) for part in path.split("/") if part not in ("", ".")]
        assert self._others is not None
        file = self if name == "." else self._others.opened(literal(name))
        found = None if file is None else file._follow(parts)
        if found is None:
            return None
        if not isinstance(found, h5d.DatasetID):
            raise Refusal("unsupported", f"virtual dataset whose source {path} in {name} is behind a link to another file")
        plist = found.get_create_plist()
        if plist.get_layout() == h5d.VIRTUAL or plist.get_external_count():
            raise Refusal("unsupported", f"virtual dataset whose source {path} in {name} has its data in further files")
        return found

    # ---- data in the same file

    def _own(self, name: str, seen: set[Part]) -> Iterator[str]:
        """Sources in this very file: they have to be datasets whose data are in the file itself, or in allowed ones."""
        for parts in self._named(name):
            source = self._follow(parts)
            if source is None:
                continue  # not there: HDF5 reads the fill value
            if not isinstance(source, Part | h5d.DatasetID):
                raise Refusal("corrupt", f"virtual dataset whose source {name} is no dataset")
            if isinstance(source, h5d.DatasetID) and source.get_create_plist().get_layout() == h5d.VIRTUAL:
                raise Refusal("unsupported", f"virtual dataset whose source {name} is a virtual dataset itself")
            yield from self._all_files(self._parts(source), seen)

    def _named(self, name: str) -> Iterator[list[str]]:
        """The paths in this file that a source's name stands for: one, or those that there are of a pattern."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if "%b" in BLOCK.findall("/".join(parts[:-1])):
            raise Refusal("unsupported", "virtual dataset over a pattern of groups")
        if parts and "%b" in BLOCK.findall(parts[-1]):
            group, pattern = self._follow(list(map(literal, parts[:-1]))), expression(parts[-1])
            names = [h5types.text(raw) for raw in group] if isinstance(group, h5g.GroupID) else []
            for found in filter(pattern.fullmatch, names):
                yield [*map(literal, parts[:-1]), found]
        else:
            yield list(map(literal, parts))

    def _follow(self, parts: list[str]) -> Any:
        """The object at a path, soft links followed; where an external link is met, what it names; None for nothing."""
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
                raise Refusal("unsupported", "virtual dataset whose source is behind a link that is not followed")
            target = group.links.get_val(name.encode("utf-8", "surrogateescape"))
            if info.type == h5l.TYPE_EXTERNAL:
                *_, place = self._places(h5types.text(target[0]))
                return Part(place, "/".join([h5types.text(target[1]), *parts]).replace("%", "%%"))
            text = h5types.text(target)
            done = [] if text.startswith("/") else done
            parts = [part for part in text.split("/") if part not in ("", ".")] + parts
        return self.walk(done)


def select(dataset: Any, start: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Memory and file space of a block of elements; a dataset without dimensions is taken as a whole."""
    space = dataset.get_space()
    if not shape:
        return h5s.create(h5s.SCALAR), space
    space.select_hyperslab(start, shape)
    return h5s.create_simple(shape), space
