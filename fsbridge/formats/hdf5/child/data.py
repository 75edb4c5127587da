"""The datasets of one opened HDF5 file: description, chunk table, and chunks that only HDF5 can decode.

Part of the HDF5 child. Not here: groups and attributes (`objects.py`), what the daemon makes of the answers.
"""

from __future__ import annotations

import base64
import ctypes
import math
import os
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
from h5py import h5d, h5f, h5i, h5p, h5s, h5t, h5z

from fsbridge.children.hdf5_functions import DEFAULT, ID, MEMORY, find_function
from fsbridge.formats.hdf5.child import chunks, h5types, remote_data, values
from fsbridge.formats.hdf5.child.chunks import VERIFY_BYTES, ChunkColumns, TableChecks, read_stored_chunks
from fsbridge.formats.hdf5.child.data_file import Answer, Refusal
from fsbridge.formats.hdf5.child.h5types import widen
from fsbridge.formats.hdf5.child.lacking import LackingSources
from fsbridge.formats.hdf5.child.objects import FAILURES, H5_ERRORS, encode_name, make_buffer
from fsbridge.formats.hdf5.child.sources import select

SMALL_TABLE_CHUNKS = 64
"""A chunk table comes with the description of a dataset with a grid of at most this many chunks."""

TEXTS_LOOKED_AT = 16_384
"""Most strings of a dataset that are read to find out whether they are UTF-8, which takes some milliseconds."""

_LAYOUTS = {h5d.COMPACT: "compact", h5d.CONTIGUOUS: "contiguous", h5d.CHUNKED: "chunked", h5d.VIRTUAL: "virtual"}
_SPACES = {h5s.NULL: "null", h5s.SCALAR: "scalar", h5s.SIMPLE: "simple"}
_FILL_DEFAULT, _FILL_USER_DEFINED = 1, 2
_read_dataset = find_function(h5p, "H5Dread", ID, ID, ID, ID, ID, MEMORY)
_reclaim = find_function(h5p, "H5Dvlen_reclaim", ID, ID, ID, MEMORY)
_get_chunk_opts = find_function(h5p, "H5Pget_chunk_opts", ID, ctypes.POINTER(ctypes.c_uint))


class Datasets(LackingSources):
    """One opened file with its datasets."""

    def _open_dataset(self, path: list[str]) -> Any:
        """Open the dataset at `path` so that HDF5 looks for other files in the same places as `find_sources`."""
        dataset = self.walk(path)
        if not isinstance(dataset, h5d.DatasetID):
            raise Refusal("not_found", "not a dataset")
        if self.has_remote_data(dataset):
            remote_data.refuse_unreadable(dataset)
            return dataset
        return self._reopen(dataset, path) if self.find_sources(dataset) else dataset

    def _reopen(self, dataset: Any, path: list[str]) -> Any:
        """Open the dataset again, with this file's own folder as the place of the files that it names."""
        raw = "${ORIGIN}" if self.blocks is not None else self.raw_folder(dataset.get_create_plist())
        h5i.dec_ref(dataset)  # HDF5 accepts no other prefix while the dataset is open
        access = h5p.create(h5p.DATASET_ACCESS)
        access.set_efile_prefix(os.fsencode(raw))
        access.set_virtual_prefix(b"${ORIGIN}")
        return h5d.open(self.walk(path[:-1]), encode_name(path[-1]), access)

    def describe(self, dataset: Any, path: list[str], bare: bool) -> dict[str, Any]:
        sources = self.find_sources(dataset)
        attributes = {} if bare else self.read_attributes(dataset)
        if sources and not self.has_remote_data(dataset):
            dataset = self._reopen(dataset, path)  # HDF5 then does not open its files again, as it did for the attributes
        tid, space, plist = dataset.get_type(), dataset.get_space(), dataset.get_create_plist()
        layout = "external" if plist.get_external_count() else _LAYOUTS.get(plist.get_layout(), "unknown")
        described = h5types.describe(tid)
        form = h5types.choose_form(described)
        kind = _SPACES.get(space.get_simple_extent_type(), "unknown")
        rank = space.get_simple_extent_ndims() if kind == "simple" else 0
        unreadable = h5types.why_unreadable(described)
        fill = self._read_fill(tid, plist, described) if unreadable is None else None
        if form == "text" and described["class"] == "string" and unreadable is None and not sources:
            form = form if self._is_text(dataset, described, space, plist, fill) else "bytes"
        storage = None if self.has_remote_data(dataset) else self._count_stored(dataset)
        # If no data is stored and there is a user block, HDF5 gives an address, because it adds the block to "no
        # address".
        offset = dataset.get_offset() if layout == "contiguous" and storage != 0 else None
        if offset is not None and form == "raw":
            self._verify_contiguous(dataset, tid, space, offset)
        return {
            "kind": "dataset",
            "type": described,
            "form": form,
            "unreadable": unreadable,
            "space": kind,
            "shape": list(space.get_simple_extent_dims()) if kind == "simple" else [],
            "layout": layout,
            "chunks": list(plist.get_chunk()) if layout == "chunked" else None,
            "filters": [_describe_filter(plist.get_filter(i)) for i in range(plist.get_nfilters())],
            "unfiltered_edges": layout == "chunked" and _has_unfiltered_edges(plist),
            "offset": offset,
            "storage": storage,
            "sources": sources,
            "attributes": attributes,
            "dimension_names": _find_dimension_names(path, rank, attributes),
            "fill": None if fill is None else base64.b64encode(fill).decode(),
            "table": self._read_small_table(dataset, plist, space) if layout == "chunked" and kind == "simple" else None,
        }

    def _is_text(self, dataset: Any, described: dict[str, Any], space: Any, plist: Any, fill: bytes | None) -> bool:
        """True unless strings are found that are not UTF-8, of whatever character set the type is said to be.

        Only a few of a local file are looked at. Another one that is not UTF-8 is an error of its chunk.
        """
        count, shape = space.get_simple_extent_npoints(), space.get_simple_extent_dims()
        chunk = plist.get_chunk() if plist.get_layout() == h5d.CHUNKED else ()
        parts = [] if fill is None else [fill]
        if self.blocks is None and 0 < count <= TEXTS_LOOKED_AT and math.prod(chunk) <= 4 * TEXTS_LOOKED_AT:
            with suppress(*FAILURES):  # reading a chunk reports the error
                parts += self._read_elements(dataset, described, (0,) * len(shape), shape)
        return all(map(_is_utf8, parts))

    def _read_small_table(self, dataset: Any, plist: Any, space: Any) -> dict[str, Any] | None:
        """Return the stored chunks of a dataset with a small grid, or None if the daemon must ask for them."""
        cells = math.prod(-(-n // edge) for n, edge in zip(space.get_simple_extent_dims(), plist.get_chunk(), strict=True))
        if cells > SMALL_TABLE_CHUNKS:
            return None
        try:
            with self.refuse_requests() if self.verified else nullcontext():  # the first table is worth a few requests
                stored = self._read_stored_chunks(dataset)
        except (Refusal, *H5_ERRORS):
            return None  # the error is reported when the table itself is asked for
        columns = base64.b64encode(b"".join(stored.attachments())).decode()
        return {"chunks": len(stored.columns[0]), "outside": stored.outside, "columns": columns}

    def _read_stored_chunks(self, dataset: Any) -> ChunkColumns:
        return read_stored_chunks(
            dataset, TableChecks(self.verified, self.read_bytes, self.user_block, self.blocks is not None)
        )

    def _count_stored(self, dataset: Any) -> int | None:
        """Return the stored bytes, or None if a whole chunk index would have to be fetched to know them."""
        try:
            with self.refuse_requests() as lacking:  # HDF5 may continue without the missing blocks
                size: int = dataset.get_storage_size()
        except H5_ERRORS:
            if not lacking:
                raise
        return None if lacking else size

    def _read_fill(self, tid: Any, plist: Any, described: dict[str, Any]) -> bytes | None:
        """Return the fill value of one element in the bytes of its form, or None for the default, zeros.

        This is what HDF5 gives for unwritten data. Elements that are shown as JSON have their default as JSON, too: `[]`
        or `{"a": 0}`, never an empty text.
        """
        defined = plist.fill_value_defined()
        if defined != _FILL_USER_DEFINED and (defined != _FILL_DEFAULT or h5types.choose_form(described) != "json"):
            return None
        if _is_plain(described):
            value = np.zeros((), tid.dtype)
            plist.get_fill_value(value)
            return value.tobytes()
        plist = plist.copy()
        plist.remove_filter(h5z.FILTER_ALL)
        plist.set_layout(h5d.CONTIGUOUS)
        plist.set_alloc_time(h5d.ALLOC_TIME_LATE)
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_fapl_core(1 << 16, False)
        scratch = h5f.create(b"fill-value", h5f.ACC_TRUNC, fapl=access)  # in memory only
        try:
            dataset = h5d.create(scratch, b"x", tid.copy(), h5s.create(h5s.SCALAR), plist)
            return self._read_elements(dataset, described, (), ())[0]
        except H5_ERRORS:
            if defined == _FILL_USER_DEFINED:
                raise
            return None  # HDF5 cannot convert this type at all, and reading a chunk will say so
        finally:
            scratch.close()

    # ---- data

    def table(self, request: dict[str, Any]) -> Answer:
        """Return the stored chunks as columns of grid position, address, size and filter mask, and how many lie outside."""
        stored = self._read_stored_chunks(self._open_dataset(request["path"]))
        return {"chunks": len(stored.columns[0]), "outside": stored.outside}, list(stored.attachments())

    def _verify_contiguous(self, dataset: Any, tid: Any, space: Any, address: int) -> None:
        """Check that the first element is the same when HDF5 reads it and when it is read by its address."""
        size = tid.get_size()
        self.verified["contiguous"] += 1
        # The first 16 contiguous datasets of a local file are checked; in a remote file only one, because it takes a
        # request.
        most = 16 if self.blocks is None else 1
        if self.verified["contiguous"] > most or size > VERIFY_BYTES or not space.get_simple_extent_npoints():
            return
        shape = (1,) * space.get_simple_extent_ndims()
        element = self._read_raw(dataset, tid, (0,) * len(shape), shape)
        if self.read_bytes(address, size) != element.tobytes():
            raise Refusal("corrupt", "contiguous data is not at the address that HDF5 gives")

    def read(self, request: dict[str, Any]) -> Answer:
        """Return the elements of one chunk through HDF5: `shape` from `start`, filled with `fill` outside the array."""
        dataset = self._open_dataset(request["path"])
        described = h5types.describe(dataset.get_type())
        unreadable = h5types.why_unreadable(described)
        if unreadable is not None:
            raise Refusal("unsupported", unreadable)
        start, shape = tuple(request["start"]), tuple(request["shape"])
        extent = dataset.get_space().get_simple_extent_dims() or ()
        inside = tuple(min(edge, size - first) for first, edge, size in zip(start, shape, extent, strict=True))
        form = h5types.choose_form(described)
        if form in ("raw", "converted"):
            stored = self._decode_lzf_or_szip(dataset, form, start, shape, inside)
            if stored is None:
                stored = self._read_raw(dataset, widen(dataset.get_type()), start, inside)
            return {}, [_pad(stored, shape, inside, bytes.fromhex(request["fill"]))]
        parts = self._read_elements(dataset, described, start, inside)
        if inside != shape:
            grid = np.empty(shape, object)
            grid.fill(bytes.fromhex(request["fill"]))  # numpy.full would remove zero bytes at the end
            block = np.empty(len(parts), object)
            block[:] = parts
            grid[tuple(slice(0, n) for n in inside)] = block.reshape(inside)
            parts = list(grid.reshape(-1))
        return {}, [_encode(parts, request["limit"])]

    def _read_elements(
        self, dataset: Any, described: dict[str, Any], start: tuple[int, ...], shape: tuple[int, ...]
    ) -> list[bytes]:
        """Return the elements one by one, in the bytes of their form."""
        form = h5types.choose_form(described)
        if form in ("raw", "converted"):
            tid = widen(dataset.get_type())
            raw = self._read_raw(dataset, tid, start, shape).tobytes()
            return [raw[i : i + tid.get_size()] for i in range(0, len(raw), tid.get_size())]
        if form == "sequences":
            return self._read_sequences(dataset, start, shape)
        dtype = dataset.dtype
        block = make_buffer(shape, dtype)
        self.read_block(dataset, start, shape, block, h5t.py_create(dtype))
        return values.encode_items(
            block.reshape(math.prod(shape), *block.shape[len(shape) :]), described, form, self.resolve
        )

    def _read_sequences(self, dataset: Any, start: tuple[int, ...], shape: tuple[int, ...]) -> list[bytes]:
        """Return the elements of each sequence as stored; h5py would convert them to types that numpy has."""
        tid = widen(dataset.get_type())
        size = tid.get_super().get_size()
        memory, selected = select(dataset, start, shape)
        pointers = np.zeros((math.prod(shape), 2), np.uint64)  # hvl_t: a length, a pointer
        try:
            if _read_dataset(dataset.id, tid.id, memory.id, selected.id, DEFAULT, pointers.ctypes.data) < 0:
                raise Refusal("corrupt", "HDF5 cannot read the sequences")
            return [ctypes.string_at(pointer, size * length) if length else b"" for length, pointer in pointers.tolist()]
        finally:
            _reclaim(tid.id, memory.id, DEFAULT, pointers.ctypes.data)

    def _decode_lzf_or_szip(
        self, dataset: Any, form: str, start: tuple[int, ...], shape: tuple[int, ...], inside: tuple[int, ...]
    ) -> Any:
        """Return the part of a chunk that lies inside the array, or None if HDF5 must read the chunk.

        Only a chunk that was compressed by LZF or szip, and by nothing else, is decoded here.
        """
        plist = dataset.get_create_plist()
        if form != "raw" or plist.get_layout() != h5d.CHUNKED or not plist.get_nfilters() or plist.get_chunk() != shape:
            return None
        if inside != shape and _has_unfiltered_edges(plist):
            return None
        chunk = chunks.decode_lzf_or_szip(dataset, plist, start)
        return None if chunk is None else chunk[tuple(slice(0, n) for n in inside)]

    def _read_raw(self, dataset: Any, tid: Any, start: tuple[int, ...], shape: tuple[int, ...]) -> Any:
        """Return a block of elements in memory type `tid`, as `(*shape, size)` uint8."""
        block = np.zeros((*shape, tid.get_size()), np.uint8)
        self.read_block(dataset, start, shape, block, tid)
        return block


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_plain(described: dict[str, Any]) -> bool:
    """Tell whether numpy has exactly this type, so that nothing is converted."""
    if described["class"] == "integer":
        return "precision" not in described and described["size"] in (1, 2, 4, 8) and described["order"] != "other"
    return described["class"] == "float" and bool(described["ieee"])


def _find_dimension_names(path: list[str], rank: int, attributes: dict[str, Any]) -> list[str | None]:
    """Return the dimension names: DIMENSION_LABELS, else the first attached scale's name, else a scale's own name.

    Source: HDF5 dimension scales, netCDF-4.
    """
    names: list[str | None] = [None] * rank
    try:
        if "DIMENSION_LIST" in attributes:
            for i, scale in zip(range(rank), attributes["DIMENSION_LIST"], strict=True):
                if scale and scale[0]:
                    names[i] = scale[0]["_REFERENCE"]["path"].rpartition("/")[2]
        elif rank == 1 and path and attributes.get("CLASS") == "DIMENSION_SCALE":
            names = [path[-1]]
        labels = attributes.get("DIMENSION_LABELS")
        if isinstance(labels, list):  # otherwise it is one text, or an error
            names = [label or name for label, name in zip(labels, names, strict=True)]
        "".join(name or "" for name in names).encode()
    except (ValueError, TypeError, LookupError, AttributeError):
        return [None] * rank  # another program uses attributes of these names for something else
    return _keep_unique(names)


def _keep_unique(names: list[str | None]) -> list[str | None]:
    """Keep each name once, because no reader accepts two dimensions of one name (a covariance matrix has them)."""
    return [name if name not in names[:i] else None for i, name in enumerate(names)]


def _pad(block: Any, shape: tuple[int, ...], inside: tuple[int, ...], fill: bytes) -> bytes:
    """Place a block of elements in a chunk of `shape`; the rest is the fill value."""
    if inside == shape:
        return bytes(block.tobytes())
    size = block.shape[-1]
    whole = np.empty((*shape, size), np.uint8)
    whole[...] = np.frombuffer(fill or bytes(size), np.uint8)
    whole[tuple(slice(0, n) for n in inside)] = block
    return whole.tobytes()


def _encode(parts: list[bytes], limit: int) -> bytearray:
    """Encode elements as Zarr does for those of variable length. Raises Refusal above `limit` bytes."""
    size = values.count_vlen_bytes(parts)
    if size > limit:
        raise Refusal("too_large", f"a chunk has {size} bytes, the limit is {limit}: a larger --cache-size permits it")
    return values.encode_vlen(parts)


def _describe_filter(entry: tuple[int, int, tuple[int, ...], bytes]) -> dict[str, Any]:
    number, flags, parameters, name = entry
    return {
        "id": number,
        "flags": flags,
        "values": list(parameters),
        "name": h5types.decode_name(name).encode("utf-8", "replace").decode(),
        "available": bool(h5z.filter_avail(number)),
    }


def _has_unfiltered_edges(plist: Any) -> bool:
    """Tell whether chunks that overhang the dataset are stored unfiltered. Their filter masks do not tell it."""
    options = ctypes.c_uint()
    if _get_chunk_opts(plist.id, ctypes.byref(options)) < 0:
        raise Refusal("corrupt", "HDF5 cannot tell the options of the chunks")
    return bool(options.value & 2)
