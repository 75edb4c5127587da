"""Which formats can hold an array, and why others cannot, without making a header: for listings and `NAME.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

from fsbridge.layouts.files.extents import VARYING, Unfit, View
from fsbridge.layouts.files.headers import BESIDE, MAKERS, meta, nii, nrrd, pictures, tiff
from fsbridge.layouts.files.headers.text import MAX_ELEMENTS, MAX_TEXTS

_CHECKS = {**MAKERS, "nii": nii.check, "tif": tiff.check_tif, "ome.tif": tiff.check_ome}
"""The makers, but for those that import a library first."""

ALL = (*MAKERS, "h5")


class Alike:
    """A view that is equal to another when the same formats fit. One look tells of shared metadata."""

    __slots__ = ("_parts", "beside", "view")

    def __init__(self, view: View) -> None:
        self.view = view
        named = meta.nameable(view.name), nrrd.nameable(view.name)
        self.beside: tuple[object, ...] = (_extents(view), view.x_first, named)
        """What matters besides the array's metadata."""
        self._parts: tuple[object, ...] | None = None

    def __hash__(self) -> int:
        return hash((self.beside, self.view.metadata.dtype.native))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Alike) or other.beside != self.beside:
            return False
        return other.view.metadata is self.view.metadata or other.parts == self.parts

    @property
    def parts(self) -> tuple[object, ...]:
        """What matters of the array's metadata."""
        if self._parts is None:
            self._parts = self._told()
        return self._parts

    def _told(self) -> tuple[object, ...]:
        metadata, dtype = self.view.metadata, self.view.metadata.dtype
        numpy = None if dtype.numpy is None else dtype.numpy.str if dtype.numpy.names is None else repr(dtype.numpy)
        return metadata.order, dtype.native, numpy, dtype.itemsize, dtype.serializer, metadata.varlength


def _extents(view: View) -> tuple[object, ...]:
    """What formats ask of the shape: the little that matters of most, which are far from all other limits; else all of it.

    Arrays differ in shape more often than in anything else, and to ask all formats takes a third of a millisecond.
    """
    shape, size = view.shape, view.selection.size
    if not shape or min(shape) == 0 or max(shape) > nii.MAX_EXTENT:
        return shape
    if size * (1 + view.metadata.dtype.itemsize) > pictures.MAX_BYTES:
        return shape
    pages = math.prod(view.picture_shape[:-2])
    return "far", len(shape), pages > tiff.MAX_PAGES, size > MAX_TEXTS, size > MAX_ELEMENTS


def reasons(view: View) -> Mapping[str, str | None]:
    """For each format None if it can hold the array, else why it cannot."""
    return _reasons(Alike(view))


@lru_cache(maxsize=1024)
def _reasons(key: Alike) -> Mapping[str, str | None]:
    return {suffix: _reason(key.view, suffix) for suffix in ALL}


def _reason(view: View, suffix: str) -> str | None:
    if view.metadata.dtype.element is not None:
        return "elements that may be missing"
    if view.metadata.varlength:
        return VARYING
    if suffix == "h5":
        texts = view.metadata.dtype.serializer != "bytes" or (view.dtype is not None and view.dtype.kind == "U")
        if texts and view.selection.size > MAX_TEXTS:
            return f"more than {MAX_TEXTS} elements of variable length"
        return "too large for an HDF5 file" if view.selection.size * view.metadata.dtype.itemsize >= 2**61 else None
    try:
        _CHECKS[suffix](view)
    except Unfit as error:
        return str(error)
    return None


def listed(view: View, wanted: Sequence[str]) -> list[str]:
    """Suffixes of the files that a listing shows for `--files wanted`, those that can hold the array.

    `npy` stands for `txt` or `csv` where numpy cannot load the array without pickle.
    """
    fits = reasons(view)
    found: list[str] = []
    for suffix in wanted:
        chosen = [suffix, *BESIDE.get(suffix, ())]
        if suffix == "npy" and fits["npy"] is not None:
            chosen = [next((text for text in ("txt", "csv") if fits[text] is None), "npy")]
        found += [one for one in chosen if fits[one] is None and one not in found]
    return found
