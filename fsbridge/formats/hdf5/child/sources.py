"""Data of a dataset that are elsewhere: external raw files and virtual datasets, and whether they may be read.

Part of the HDF5 child. HDF5 opens such files by itself, so what it would open is found out before. Not here: links that lead
out of the file (the daemon follows those), reading.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from h5py import h5d, h5g, h5l

from fsbridge.formats.hdf5.child import h5types
from fsbridge.formats.hdf5.child.objects import Objects
from fsbridge.formats.hdf5.child.opened import Refusal

MAX_SOURCES = 4096
"""Files that one virtual or external dataset may name."""
MAX_LINKS = 16
"""Soft links on the way to a source: HDF5's own limit (H5L_NUM_LINKS)."""
_BLOCK = re.compile(r"%[%b]")
"""In names of virtual datasets: `%b` is the number of a block, `%%` one percent sign (H5Dvirtual.c)."""


class Sources(Objects):
    """One opened file whose datasets may have their data in others."""

    def sources(self, dataset: Any) -> list[str]:
        """Real paths of the other files that hold a dataset's data; denied when one of them may not be read."""
        plist = dataset.get_create_plist()
        count = plist.get_external_count()
        mappings = plist.get_virtual_count() if plist.get_layout() == h5d.VIRTUAL else 0
        if max(count, mappings) > MAX_SOURCES:
            raise Refusal("unsupported", f"data spread over more than {MAX_SOURCES} files")
        found = dict.fromkeys(self._allowed(h5types.text(plist.get_external(i)[0])) for i in range(count))
        for i in range(mappings):
            name, source = plist.get_virtual_filename(i), plist.get_virtual_dsetname(i)
            found |= dict.fromkeys(self._own(source) if name == "." else self._files(name))
            if len(found) > MAX_SOURCES:
                raise Refusal("unsupported", f"data spread over more than {MAX_SOURCES} files")
        return list(found)

    def _files(self, name: str) -> Iterator[str]:
        """The files that a name stands for: one, or those that there are of a pattern."""
        if "%b" not in _BLOCK.findall(name):
            yield self._allowed(_literal(name))
            return
        folder, base = os.path.split(name)
        if "%b" in _BLOCK.findall(folder):
            raise Refusal("unsupported", "virtual dataset over a pattern of directories")
        folder = os.path.join(os.path.dirname(self.path), _literal(folder))
        self._allowed(os.path.join(folder, "x"))
        pattern = _expression(base)
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            return
        yield from (self._allowed(os.path.join(folder, found)) for found in names if pattern.fullmatch(found))

    def _allowed(self, name: str) -> str:
        """The real path of another file that data lies in; denied outside the allowed folders, and for a file of blocks."""
        if self.blocks is not None:  # HDF5 would take this very file for the other one: its driver knows no names
            raise Refusal("denied", f"has data in another file, {name}: read from local disks only")
        path = os.path.realpath(os.path.join(os.path.dirname(self.path), name))
        if not any(path.startswith(folder.rstrip("/") + "/") for folder in self.allowed):
            permit = f"--allow-external {os.path.dirname(path)} permits reading it"
            raise Refusal("denied", f"has data in another file, {path}: {permit}")
        return path

    def _own(self, name: str) -> Iterator[str]:
        """Sources in this very file: they have to be datasets whose data are in the file itself, or in allowed ones."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if "%b" in _BLOCK.findall("/".join(parts[:-1])):
            raise Refusal("unsupported", "virtual dataset over a pattern of groups")
        if parts and "%b" in _BLOCK.findall(parts[-1]):
            group, pattern = self._follow(list(map(_literal, parts[:-1]))), _expression(parts[-1])
            names = [h5types.text(raw) for raw in group] if isinstance(group, h5g.GroupID) else []
            for found in filter(pattern.fullmatch, names):
                yield from self._own_dataset([*map(_literal, parts[:-1]), found], name)
        else:
            yield from self._own_dataset(list(map(_literal, parts)), name)

    def _own_dataset(self, parts: list[str], name: str) -> Iterator[str]:
        source = self._follow(parts)
        if source is None:
            return  # not there: HDF5 reads the fill value
        if isinstance(source, str):
            yield source
            return
        if not isinstance(source, h5d.DatasetID):
            raise Refusal("corrupt", f"virtual dataset whose source {name} is no dataset")
        plist = source.get_create_plist()
        if plist.get_layout() == h5d.VIRTUAL:
            raise Refusal("unsupported", f"virtual dataset whose source {name} is a virtual dataset itself")
        yield from (self._allowed(h5types.text(plist.get_external(i)[0])) for i in range(plist.get_external_count()))

    def _follow(self, parts: list[str]) -> Any:
        """The object at a path, soft links followed; the file's path where an external link is met; None for nothing."""
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
                return self._allowed(h5types.text(target[0]))
            text = h5types.text(target)
            done = [] if text.startswith("/") else done
            parts = [part for part in text.split("/") if part not in ("", ".")] + parts
        return self.walk(done)


def _literal(name: str) -> str:
    return name.replace("%%", "%")


def _expression(name: str) -> re.Pattern[str]:
    """What names of a pattern look like: the same decimal number wherever `%b` stands."""
    out, position, seen = "", 0, False
    for match in _BLOCK.finditer(name):
        out += re.escape(name[position : match.start()])
        out += "%" if match[0] == "%%" else "(?P=block)" if seen else "(?P<block>[0-9]+)"
        seen |= match[0] == "%b"
        position = match.end()
    return re.compile(out + re.escape(name[position:]))
