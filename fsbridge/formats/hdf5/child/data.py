"""Datasets of one opened HDF5 file: description, chunk table, and chunks that only HDF5 can decode. Part of the HDF5 child.

Not here: groups and attributes (`objects.py`), what the daemon makes of it all.
"""

from __future__ import annotations

import ctypes
import math
import os
from typing import Any

import numpy as np
from h5py import h5a, h5d, h5f, h5p, h5s, h5t, h5z

from fsbridge.formats.hdf5.child import h5types, values
from fsbridge.formats.hdf5.child.chunks import VERIFY, stored_chunks
from fsbridge.formats.hdf5.child.objects import H5_ERRORS, Answer, Objects, Refusal, buffer, member_name

MAX_SOURCES = 4096
"""Files that one virtual or external dataset may name."""

_LAYOUTS = {h5d.COMPACT: "compact", h5d.CONTIGUOUS: "contiguous", h5d.CHUNKED: "chunked", h5d.VIRTUAL: "virtual"}
_SPACES = {h5s.NULL: "null", h5s.SCALAR: "scalar", h5s.SIMPLE: "simple"}
_FILL_DEFAULT, _FILL_USER_DEFINED = 1, 2
_DONT_FILTER_PARTIAL_CHUNKS = 2
_get_chunk_opts = ctypes.CDLL(h5p.__file__).H5Pget_chunk_opts
"""A function of the HDF5 that h5py is linked with, which h5py lacks."""
_get_chunk_opts.argtypes = (ctypes.c_int64, ctypes.POINTER(ctypes.c_uint))


class Datasets(Objects):
    """One opened file with its datasets."""

    def check_storage(self, dataset: Any) -> list[str]:
        """The other files that hold a dataset's data; denied when one of them may not be read."""
        plist = dataset.get_create_plist()
        count = plist.get_external_count()
        mappings = plist.get_virtual_count() if plist.get_layout() == h5d.VIRTUAL else 0
        if max(count, mappings) > MAX_SOURCES:
            raise Refusal("unsupported", f"data spread over more than {MAX_SOURCES} files")
        files = [h5types.text(plist.get_external(i)[0]) for i in range(count)]
        for i in range(mappings):
            name = plist.get_virtual_filename(i)
            if name == ".":
                self._check_virtual_source(plist.get_virtual_dsetname(i))
            elif "%" in name:
                raise Refusal("unsupported", "virtual dataset over a pattern of file names")
            else:
                files.append(name)
        return [self._allowed(name) for name in dict.fromkeys(files)]

    def _dataset(self, path: list[str]) -> Any:
        """The dataset at `path`, opened so that HDF5 looks for other files where `check_storage` did."""
        dataset = self.walk(path)
        if not isinstance(dataset, h5d.DatasetID):
            raise Refusal("not_found", "not a dataset")
        if not self.check_storage(dataset):
            return dataset
        del dataset  # HDF5 takes no other prefix while the dataset is open
        access = h5p.create(h5p.DATASET_ACCESS)
        access.set_efile_prefix(b"${ORIGIN}")
        access.set_virtual_prefix(b"${ORIGIN}")
        return h5d.open(self.walk(path[:-1]), member_name(path[-1]), access)

    def _check_virtual_source(self, name: str) -> None:
        """A source in this very file must be reached by hard links and lie in the file itself."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if "%" in name:
            raise Refusal("unsupported", "virtual dataset over a pattern of dataset names")
        try:
            source = self.walk(parts)
        except Refusal:
            raise Refusal("denied", f"virtual dataset whose source {name} is not in this file") from None
        if not isinstance(source, h5d.DatasetID):
            raise Refusal("corrupt", f"virtual dataset whose source {name} is no dataset")
        plist = source.get_create_plist()
        if plist.get_layout() == h5d.VIRTUAL or plist.get_external_count():
            raise Refusal("denied", f"virtual dataset whose source {name} has its data elsewhere again")

    def _allowed(self, name: str) -> str:
        """The real path of another file that data lies in; denied outside the allowed folders."""
        path = os.path.realpath(os.path.join(os.path.dirname(self.path), name))
        if not any(path.startswith(folder.rstrip("/") + "/") for folder in self.allowed):
            raise Refusal("denied", f"data in another file, {name!r}, is not followed")
        return path

    def describe(self, dataset: Any, path: list[str]) -> Answer:
        sources = self.check_storage(dataset)
        tid, space, plist = dataset.get_type(), dataset.get_space(), dataset.get_create_plist()
        described = h5types.describe(tid)
        layout = "external" if plist.get_external_count() else _LAYOUTS.get(plist.get_layout(), "unknown")
        kind = _SPACES.get(space.get_simple_extent_type(), "unknown")
        answer: dict[str, Any] = {
            "kind": "dataset",
            "type": described,
            "form": h5types.form(described),
            "space": kind,
            "shape": list(space.get_simple_extent_dims()) if kind == "simple" else [],
            "layout": layout,
            "chunks": list(plist.get_chunk()) if layout == "chunked" else None,
            "filters": [_filter(plist.get_filter(i)) for i in range(plist.get_nfilters())],
            "unfiltered_edges": layout == "chunked" and _unfiltered_edges(plist),
            "offset": dataset.get_offset() if layout == "contiguous" else None,
            "storage": dataset.get_storage_size(),
            "sources": sources,
            "attributes": self.attributes_of(dataset),
            "dimension_names": self._dimension_names(dataset, path, space) if kind == "simple" else [],
        }
        fill = self._fill(tid, plist, described)
        if answer["offset"] is not None and answer["form"] == "raw":
            self._verify_contiguous(dataset, tid, space, answer["offset"])
        return answer | {"has_fill": fill is not None}, [] if fill is None else [fill]

    def _fill(self, tid: Any, plist: Any, described: dict[str, Any]) -> bytes | None:
        """One element's fill value in its form's bytes, as HDF5 gives it for unwritten data; None: the default, zeros.

        Elements that are shown as JSON have their default as JSON, too: `[]`, `{"a": 0}`, never the empty text.
        """
        defined = plist.fill_value_defined()
        if defined != _FILL_USER_DEFINED and (defined != _FILL_DEFAULT or h5types.form(described) != "json"):
            return None
        plist = plist.copy()
        plist.remove_filter(h5z.FILTER_ALL)
        plist.set_layout(h5d.CONTIGUOUS)
        plist.set_alloc_time(h5d.ALLOC_TIME_LATE)
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_fapl_core(1 << 16, False)
        scratch = h5f.create(b"fill-value", h5f.ACC_TRUNC, fapl=access)  # in memory only
        try:
            dataset = h5d.create(scratch, b"x", tid.copy(), h5s.create(h5s.SCALAR), plist)
            return self._elements(dataset, described, (), ())[0]
        finally:
            scratch.close()

    def _dimension_names(self, dataset: Any, path: list[str], space: Any) -> list[str | None]:
        """DIMENSION_LABELS, else the first attached scale's name, else a scale's own (HDF5 dimension scales, netCDF-4)."""
        rank = space.get_simple_extent_ndims()
        names: list[str | None] = [None] * rank
        try:
            if h5a.exists(dataset, b"DIMENSION_LIST"):
                scales = self.attribute(h5a.open(dataset, b"DIMENSION_LIST"))
                for i, scale in zip(range(rank), scales, strict=True):
                    if scale and scale[0]:
                        names[i] = scale[0]["_REFERENCE"]["path"].rpartition("/")[2]
            elif rank == 1 and path and self._is_scale(dataset):
                names = [path[-1]]
            if h5a.exists(dataset, b"DIMENSION_LABELS"):
                labels = self.attribute(h5a.open(dataset, b"DIMENSION_LABELS"))
                names = [label or name for label, name in zip(labels, names, strict=True)]
            "".join(name or "" for name in names).encode()
        except (*H5_ERRORS, IndexError):
            return [None] * rank  # somebody else's attributes of these names
        return names

    def _is_scale(self, dataset: Any) -> bool:
        if not h5a.exists(dataset, b"CLASS"):
            return False
        return bool(self.attribute(h5a.open(dataset, b"CLASS")) == "DIMENSION_SCALE")

    # ---- data

    def table(self, request: dict[str, Any]) -> Answer:
        """The stored chunks: columns of grid position, address, size and filter mask; how many are outside the grid."""
        found = stored_chunks(self.file, self._dataset(request["path"]))
        return {"chunks": len(found.columns[0]), "outside": found.outside}, list(found.attachments())

    def _verify_contiguous(self, dataset: Any, tid: Any, space: Any, address: int) -> None:
        """The first element read by HDF5 and by address must be the same."""
        size = tid.get_size()
        if size > VERIFY or not space.get_simple_extent_npoints():
            return
        shape = (1,) * space.get_simple_extent_ndims()
        found = self._raw(dataset, tid, (0,) * len(shape), shape)
        if os.pread(self.file.get_vfd_handle(), size, address) != found.tobytes():
            raise Refusal("corrupt", "the address of contiguous data does not lead to it")

    def read(self, request: dict[str, Any]) -> Answer:
        """The elements of one chunk through HDF5: `shape` from `start`, the part outside the array filled with `fill`."""
        dataset = self._dataset(request["path"])
        described = h5types.describe(dataset.get_type())
        start, shape = tuple(request["start"]), tuple(request["shape"])
        extent = dataset.get_space().get_simple_extent_dims() or ()
        inside = tuple(min(edge, size - first) for first, edge, size in zip(start, shape, extent, strict=True))
        form = h5types.form(described)
        if form in ("raw", "converted"):
            found = self._raw(dataset, _memory_type(dataset, form), start, inside)
            return {}, [_padded(found, shape, inside, bytes.fromhex(request["fill"]))]
        parts = self._elements(dataset, described, start, inside)
        if inside != shape:
            grid = np.full(shape, bytes.fromhex(request["fill"]), object)
            block = np.empty(len(parts), object)
            block[:] = parts
            grid[tuple(slice(0, n) for n in inside)] = block.reshape(inside)
            parts = list(grid.reshape(-1))
        return {}, [values.vlen(parts)]

    def _elements(
        self, dataset: Any, described: dict[str, Any], start: tuple[int, ...], shape: tuple[int, ...]
    ) -> list[bytes]:
        """Elements one by one, in their form's bytes."""
        form = h5types.form(described)
        if form in ("raw", "converted"):
            tid = _memory_type(dataset, form)
            raw = self._raw(dataset, tid, start, shape).tobytes()
            return [raw[i : i + tid.get_size()] for i in range(0, len(raw), tid.get_size())]
        found, memory_type = buffer(shape, dataset.dtype)
        memory, selected = _select(dataset, start, shape)
        dataset.read(memory, selected, found, memory_type)
        return values.items(found.reshape(math.prod(shape), *found.shape[len(shape) :]), described, form, self.resolve)

    def _raw(self, dataset: Any, tid: Any, start: tuple[int, ...], shape: tuple[int, ...]) -> Any:
        """The bytes of a block of elements in memory type `tid`, as `(*shape, size)` uint8."""
        found = np.zeros((*shape, tid.get_size()), np.uint8)
        memory, selected = _select(dataset, start, shape)
        dataset.read(memory, selected, found, tid)
        return found


def _memory_type(dataset: Any, form: str) -> Any:
    """The type to read elements as: the stored one, so that HDF5 converts nothing; integers with unused bits widened."""
    tid = dataset.get_type()
    return tid if form == "raw" else h5t.py_create(np.dtype(tid.dtype.str))


def _select(dataset: Any, start: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Memory and file space of a block of elements; a dataset without dimensions is taken as a whole."""
    space = dataset.get_space()
    if not shape:
        return h5s.create(h5s.SCALAR), space
    space.select_hyperslab(start, shape)
    return h5s.create_simple(shape), space


def _padded(found: Any, shape: tuple[int, ...], inside: tuple[int, ...], fill: bytes) -> bytes:
    """A block of elements in a chunk of `shape`, whose rest is the fill value."""
    if inside == shape:
        return bytes(found.tobytes())
    size = found.shape[-1]
    whole = np.empty((*shape, size), np.uint8)
    whole[...] = np.frombuffer(fill or bytes(size), np.uint8)
    whole[tuple(slice(0, n) for n in inside)] = found
    return whole.tobytes()


def _filter(found: tuple[int, int, tuple[int, ...], bytes]) -> dict[str, Any]:
    number, flags, parameters, name = found
    return {
        "id": number,
        "flags": flags,
        "values": list(parameters),
        "name": h5types.text(name).encode("utf-8", "replace").decode(),
        "available": bool(h5z.filter_avail(number)),
    }


def _unfiltered_edges(plist: Any) -> bool:
    """Whether chunks that overhang the dataset are stored unfiltered, which no filter mask says."""
    options = ctypes.c_uint()
    if _get_chunk_opts(plist.id, ctypes.byref(options)) < 0:
        raise Refusal("corrupt", "chunk options that HDF5 cannot tell")
    return bool(options.value & _DONT_FILTER_PARTIAL_CHUNKS)
