"""The table of all file types of the layout `files`, and which of them can hold an array. Each is a record (`filetype.py`).

A new file type is a module here and a line of the table. "Format" always means N5, Zarr and the like. Listings ask often
which types fit, so no header is made to find out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from fsbridge.layouts.files.arrays.colors import find_color_axis
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.filetypes import envi, h5, meta, mrc, nii, npy, nrrd, pictures, previews, text, tiff
from fsbridge.layouts.files.filetypes.filetype import TOO_LARGE, FileType, find_narrow

FILE_TYPES: Mapping[str, FileType] = {
    one.suffix: one
    for one in (
        *(npy.NPY, npy.RAW),
        *(nrrd.NHDR, nrrd.NRRD, meta.MHD, meta.MHA, nii.NII, mrc.MRC),
        *(tiff.TIF, tiff.LABELS, tiff.OME, h5.H5, h5.NC, envi.ENVI, envi.HEADER),
        *(pictures.PGM, pictures.PNG, text.CSV, text.TXT),
        *(previews.PICTURE, previews.CURVES),
    )
}
"""File types by suffix, in the order of a listing and of `NAME.json`."""

SEVERAL = {"preview": (previews.PICTURE.suffix, previews.CURVES.suffix), "html": ()}
"""Values of `--files` that are no file suffix: `preview` for several types, and `html` for the pages of groups."""

CHOICES = (*(suffix for suffix, one in FILE_TYPES.items() if one.chosen), *SEVERAL)
"""All values that `--files` accepts."""

ALIASES = {alias: suffix for suffix, one in FILE_TYPES.items() for alias in one.aliases}
"""Alternative suffixes, each with the suffix that it stands for."""

SUFFIXES = tuple(sorted([*FILE_TYPES, *ALIASES, "json"], key=len, reverse=True))
"""Everything that can follow an array's name and a dot, the longest first."""


def _thresholds() -> Mapping[Callable[[View], int], Sequence[int]]:
    """Return the limits of all file types, by the function that measures what they limit."""
    limits: dict[Callable[[View], int], set[int]] = {}
    for limit in (TOO_LARGE, *(limit for kind in FILE_TYPES.values() for limit in kind.limits)):
        limits.setdefault(limit.measure, set()).add(limit.most)
    return {measure: sorted(most) for measure, most in limits.items()}


_THRESHOLDS = _thresholds()
_NAMINGS = tuple(dict.fromkeys(kind.can_name for kind in FILE_TYPES.values() if kind.can_name is not None))


class _Alike:
    """A key for a view. Views with equal keys can be held by the same file types.

    Shared metadata are compared by identity first, which is faster.
    """

    __slots__ = ("_beside", "_parts", "view")

    def __init__(self, view: View) -> None:
        named = tuple([can_name(view.name) for can_name in _NAMINGS])
        self.view = view
        # What matters besides metadata.
        self._beside = _sizes(view), view.x_first, named, find_color_axis(view), find_narrow(view), view.dtype
        self._parts: tuple[object, ...] | None = None

    def __hash__(self) -> int:
        return hash((self._beside, self.view.metadata.dtype.native))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Alike) or other._beside != self._beside:
            return False
        return other.view.metadata is self.view.metadata or other.parts == self.parts

    @property
    def parts(self) -> tuple[object, ...]:
        """The parts of the array's metadata that file types look at."""
        if self._parts is None:
            metadata, dtype = self.view.metadata, self.view.metadata.dtype
            numpy = None if dtype.numpy is None else dtype.numpy.str if dtype.numpy.names is None else repr(dtype.numpy)
            self._parts = metadata.order, dtype.native, numpy, dtype.itemsize, dtype.serializer, metadata.varlength
        return self._parts


def _sizes(view: View) -> tuple[object, ...]:
    """Return what file types need to know about the shape: its rank, whether it is empty, and which limits it exceeds.

    Similar arrays mostly differ in their shapes, and asking all file types again for each takes 0.3 ms.
    """
    sides = [bisect_left(most, measure(view)) for measure, most in _THRESHOLDS.items()]
    return len(view.shape), 0 in view.shape, *sides


def reasons(view: View) -> Mapping[str, str | None]:
    """Return why a file type cannot hold the array, by suffix of the file type; None if it can."""
    return _reasons(_Alike(view))


@lru_cache(maxsize=1024)
def _reasons(key: _Alike) -> Mapping[str, str | None]:
    return {suffix: one.refusal(key.view) for suffix, one in FILE_TYPES.items()}


def list_suffixes(view: View, wanted: Sequence[str]) -> list[str]:
    """Return the suffixes of the array's files that a listing with `--files wanted` shows."""
    fits = reasons(view)
    suffixes: list[str] = []
    for suffix in chain.from_iterable(SEVERAL.get(one, (one,)) for one in wanted):
        one = FILE_TYPES[suffix]
        instead = one.instead if fits[suffix] is not None else ()
        chosen = (next((other for other in instead if fits[other] is None), suffix), *one.beside)
        suffixes += [other for other in chosen if fits[other] is None and other not in suffixes]
    return suffixes
