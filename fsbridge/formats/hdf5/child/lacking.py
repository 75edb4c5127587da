"""Data of a dataset that should be in other files, or in other datasets, and are not there. Part of the HDF5 child.

HDF5 says nothing of them: it reads the fill value in place of an absent source of a virtual dataset, and zeros behind the
end of a raw file. Not here: which files may be read (`sources.py`).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

from h5py import h5d, h5o

from fsbridge.formats.hdf5 import file_search
from fsbridge.formats.hdf5.child import h5types
from fsbridge.formats.hdf5.child.data_file import Answer, Refusal, open_local
from fsbridge.formats.hdf5.child.objects import H5_ERRORS
from fsbridge.formats.hdf5.child.remote_data import BLOCK, unescape
from fsbridge.formats.hdf5.child.sources import MAX_PARTS, OtherData, Sources


class LackingSources(Sources):
    """One opened file, and what its datasets lack."""

    def lacking(self, request: dict[str, Any]) -> Answer:
        """Describe data of the dataset at `path` that are not there, so that HDF5 reads something else in their place.

        For an absent source of a virtual dataset it reads the fill value, and zeros behind the end of a raw file.
        """
        dataset = self.walk(request["path"])
        h5o.get_info(dataset)  # as `visititems` does: unlike reading, it goes from node to node of the index of chunks
        self.find_sources(dataset)  # refuses what may not be read
        return {"lacking": list(dict.fromkeys(itertools.islice(self._find_lacking(dataset, set()), MAX_PARTS)))}, []

    def _find_lacking(self, dataset: Any, seen: set[OtherData]) -> Iterator[str]:
        """Yield what `lacking` returns. `seen`: datasets that were looked at."""
        plist = dataset.get_create_plist()
        if self.blocks is None:
            yield from self._find_short(dataset, plist)
        for i in range(plist.get_virtual_count() if plist.get_layout() == h5d.VIRTUAL else 0):
            name, source = plist.get_virtual_filename(i), plist.get_virtual_dsetname(i)
            if "%b" in BLOCK.findall(name + source):
                continue  # a pattern stands for the files and datasets that are there
            part = OtherData(self.path if name == "." else unescape(name), source)
            if self.blocks is not None and name != ".":
                if self._open_mapped(name, source) is None:
                    yield _describe_absent(part.place, _split_names(source))
            elif part not in seen and len(seen) < MAX_PARTS:
                seen.add(part)
                yield from self._find_lacking_at(part, name == ".", seen)

    def _find_lacking_at(self, part: OtherData, is_here: bool, seen: set[OtherData]) -> Iterator[str]:
        """Describe what is missing of a virtual dataset's source `part`, in this file (`is_here`) or another local one."""
        parts = _split_names(part.dataset or "")
        missing = _describe_absent(part.place, parts)
        if is_here:
            target = self._follow(parts)
            if isinstance(target, OtherData):
                yield from self._find_lacking_at(target, False, seen)
            elif target is None:
                yield missing
            return
        tried = list(self._find_places(part.place))
        number = file_search.first(tried)
        if number is None:
            yield missing
            return
        other = type(self)()
        other.path, other.allowed = tried[number], self.allowed
        try:
            other.file = open_local(other.path)[0]
            target = other._follow(parts)
            if target is None:
                yield missing
            elif isinstance(target, OtherData):
                yield from other._find_lacking_at(target, False, seen)
            elif isinstance(target, h5d.DatasetID):
                yield from other._find_lacking(target, seen)
        except (Refusal, *H5_ERRORS):
            return  # reading reports the error
        finally:
            if other.file is not None:
                other.file.close()

    def _find_short(self, dataset: Any, plist: Any) -> Iterator[str]:
        """Yield local raw files that end before the data that they should hold."""
        count = plist.get_external_count()
        left = dataset.get_space().get_simple_extent_npoints() * dataset.get_type().get_size() if count else 0
        for i in range(count):
            name, offset, size = plist.get_external(i)
            place, held = os.path.join(self.raw_folder(plist), h5types.decode_name(name)), min(size, left)
            left -= held
            try:
                lacking = offset + held - os.stat(place).st_size if held else 0
            except OSError:
                continue  # reading reports the error
            if lacking > 0:
                yield f"{place} has {lacking} bytes too few: zeros stand in their place"


def _split_names(source: str) -> list[str]:
    """Return the names in the path of a virtual dataset's source."""
    return [unescape(name) for name in source.split("/") if name not in ("", ".")]


def _describe_absent(place: str, names: list[str]) -> str:
    return f"{place}:/{'/'.join(names)} is not there: the fill value stands in its place"
