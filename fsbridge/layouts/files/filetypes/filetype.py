"""`FileType`: all that is known of one kind of whole-array file, in one record; and the checks that most kinds share.

This module and those of the kinds import no library, because `fsbridge --help` names all kinds. Not here: the kinds
themselves (one module for each program family), the table of them (`__init__.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsbridge.layouts.files.arrays.extents import MAX_SIZE, Plan, Unfit, View

if TYPE_CHECKING:
    from typing import Any

    import numpy as np

Check = Callable[[View], None]


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a file can hold. `measure` returns how much a view has; `reason`: for people, why it is too much.

    Listings treat arrays as equal if all limits of all file types give the same results for their shapes. So a check that
    depends on the shape in any other way must be a `Limit`.
    """

    measure: Callable[[View], int]
    most: int
    reason: str


@dataclass(frozen=True, slots=True)
class FileType:
    """A kind of whole-array file. A new one is a module that exports a record like this, and a line in `FILE_TYPES`.

    `suffix`: follows the array's name and a dot. `aliases`: other suffixes of the same file.
    `plan`: makes the header, for a view for which `refusal` is None; None if `h5/` makes the file.
    `types`: element types that it can hold, as numpy spells them (`u2`); None: `check` decides.
    `ranks`: the fewest and the most dimensions, none of them empty; None: any.
    `limits`, `check`: further conditions; `check` raises Unfit, and imports no library.
    `can_name`: returns whether the file can contain an array's name; None: it can contain any.
    `names_array`: the file contains the array's name or another file's, so its size depends on the length of the name.
    `quick`: making the header takes microseconds and no library, so the event loop may do it.
    `bare`: the file has nothing but the elements and their type, so attributes that cannot be read do not matter to it.
    `beside`: suffixes that are listed together with it, because one file refers to the other.
    `instead`: suffixes to list if this type cannot hold the array; the first that can is listed.
    `narrows`: elements of 64 bits are stored in fewer bits if all are known to fit (`narrow_dtype`).
    `chosen`: `--files` can name it; else it is only listed beside another type.
    """

    suffix: str
    plan: Callable[[View], Plan] | None
    types: tuple[str, ...] | None = None
    ranks: tuple[int, int] | None = None
    limits: tuple[Limit, ...] = ()
    check: Check | None = None
    can_name: Callable[[str], bool] | None = None
    names_array: bool = False
    quick: bool = False
    bare: bool = False
    beside: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    narrows: bool = False
    chosen: bool = True

    def refusal(self, view: View) -> str | None:
        """Return why the file cannot hold the array; None if it can. Makes no header and imports no library."""
        try:
            self._check(view)
        except Unfit as error:
            return str(error)
        return None

    def make_plan(self, view: View) -> Plan:
        """Return what the file consists of; Unfit if it cannot hold the array."""
        self._check(view)
        assert self.plan is not None, f"{self.suffix} is made elsewhere"
        return self.plan(view)

    def _check(self, view: View) -> None:
        if view.metadata.dtype.element is not None:
            raise Unfit("the elements may be missing, which the file cannot show")
        if view.metadata.varlength:  # N5 does not say where in the array the elements of such a block are
            raise Unfit("the blocks have varying numbers of elements")
        if self.can_name is not None and not self.can_name(view.name):
            raise Unfit("the header cannot name a data file that is called like this array")
        if self.types is not None:
            (narrow_dtype if self.narrows else check_dtype)(view, *self.types)
        if self.ranks is not None:
            check_rank(view, *self.ranks)
        for limit in (*self.limits, TOO_LARGE):
            if limit.measure(view) > limit.most:
                raise Unfit(limit.reason)
        if self.check is not None:
            self.check(view)


def check_dtype(view: View, *allowed: str) -> np.dtype[Any]:
    """Return the dtype of the view's elements; Unfit unless the file type allows it.

    `allowed`: numpy's `u2`, `f4`, ...
    """
    dtype = view.dtype
    if dtype is None or dtype.names is not None or dtype.subdtype is not None:
        raise Unfit(f"the format has no elements of type {view.metadata.dtype.native}")
    code = f"{dtype.kind}{dtype.itemsize}"
    if code == "b1" and "u1" in allowed and "b1" not in allowed:
        import numpy as np

        return np.dtype("u1")  # the same bytes
    if code not in allowed:
        raise Unfit(f"the format has no elements of type {dtype.name}")
    return dtype


def find_narrow(view: View) -> np.dtype[Any] | None:
    """Return the smallest type, of 16 or 32 bits, that is known to hold all elements of 64 bits; None if there is none."""
    dtype = view.dtype
    greatest = view.meaning.values.greatest
    if dtype is None or greatest is None or dtype.kind not in "iu" or dtype.itemsize != 8:
        return None
    import numpy as np

    code = next((code for code in ("u2", "u4") if greatest <= np.iinfo(code).max), None)
    return None if code is None else np.dtype(code).newbyteorder(dtype.byteorder)


def narrow_dtype(view: View, *allowed: str) -> np.dtype[Any]:
    """Return what `check_dtype` returns, but a narrower type for elements of 64 bits that are known to fit into one.

    It has 32 bits, or 16 if the elements fit and the file type has no types of 32. Programs that read labels support no
    wider types. Each element is checked when it is read.
    """
    small = find_narrow(view)
    if small is None or not {"u2", "u4"} & {*allowed}:
        return check_dtype(view, *allowed)
    if "u4" in allowed:
        import numpy as np

        return np.dtype("u4").newbyteorder(small.byteorder)
    return small if small.itemsize == 2 else check_dtype(view, *allowed)


def check_rank(view: View, least: int, most: int) -> None:
    """Raise Unfit unless the region has `least` to `most` dimensions, none of them empty."""
    rank = len(view.shape)
    if not least <= rank <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise Unfit(f"the format needs {wanted} dimensions, and the array has {rank}")
    if 0 in view.shape:
        raise Unfit("the format cannot hold an array without elements")


def extent(view: View) -> int:
    """Return the length of the longest dimension."""
    return max(view.shape, default=1)


def elements(view: View) -> int:
    """Return the number of elements of the region."""
    return view.selection.size


def texts(view: View) -> int:
    """Return the number of elements of variable length. Each takes some sixty bytes of memory while a file is made."""
    return view.selection.size if view.dtype is None else 0


def nbytes(view: View) -> int:
    """Return the bytes of all elements."""
    return view.selection.size * view.metadata.dtype.itemsize


def planes(view: View) -> int:
    """Return the number of planes over the last two axes."""
    return math.prod(view.picture_shape[:-2])


TOO_LARGE = Limit(nbytes, MAX_SIZE - 2**32, "the file would have 2^63 bytes or more")
"""Limit of all file types. The difference to `MAX_SIZE` is room for headers."""
