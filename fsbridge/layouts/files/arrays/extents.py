"""Descriptions of a file's contents: where its own bytes lie, where the array's elements lie, and what it is made from.

Frozen, no I/O. This module imports no library, because `fsbridge --help` names the file types, which import it. Not here:
how elements are read (`elements/`), what a file type writes where (`filetypes/`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from fsbridge.threads.forking import cached_property

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    from fsbridge.layouts.files.arrays.selection import Selection
    from fsbridge.meaning import Affine, Axes, Image, Meaning, Path, Values
    from fsbridge.metadata import JSON, ArrayMetadata

MAX_SIZE = 2**63 - 1
"""Most bytes of a file in Linux."""


class Unfit(Exception):
    """The file type cannot hold the array. The text says why, and is shown in `NAME.json`."""


def remove_padding(dtype: np.dtype[Any], padding: frozenset[Path], path: Path = ()) -> np.dtype[Any]:
    """Return the type without the fields that are padding.

    Gaps take their place, so that all other fields stay where they are.
    """
    import numpy as np

    if dtype.subdtype is not None:
        return np.dtype((remove_padding(dtype.base, padding, path), dtype.shape))
    if dtype.names is None or dtype.fields is None:
        return dtype
    names = [name for name in dtype.names if (*path, name) not in padding or dtype[name].kind != "V" or dtype[name].names]
    return np.dtype(
        {
            "names": names,
            "formats": [remove_padding(dtype[name], padding, (*path, name)) for name in names],
            "offsets": [dtype.fields[name][1] for name in names],
            "itemsize": dtype.itemsize,
        }
    )


def _make_half_complex(order: str) -> np.dtype[Any]:
    """Return a compound for complex numbers of half precision, which numpy lacks.

    Its fields are called as by h5py and NISAR.
    """
    import numpy as np

    return np.dtype([("r", f"{order}f2"), ("i", f"{order}f2")])


@dataclass(frozen=True)
class View:
    """An array, or a region of it, as a file type is to show it.

    `meaning`: of the whole array. `axes`: one per dimension of the region, in the array's order. `x_first`: x is the array's
    first dimension (N5), else its last one. `fortran`: in memory the first dimension is the fastest.
    """

    name: str
    metadata: ArrayMetadata
    selection: Selection
    meaning: Meaning
    x_first: bool

    @property
    def file_name(self) -> str:
        """The array's name as the mount shows it, without a suffix."""
        from fsbridge.tree import escape

        return escape(self.name).decode("utf-8", "surrogateescape")

    @cached_property
    def stored_dtype(self) -> np.dtype[Any] | None:
        """The type of one element in the decoded bytes; None if numpy has no such type.

        Fields that are only padding are left out.
        """
        of, padding = self.metadata.dtype, self.meaning.values.padding
        if of.numpy is None or not of.itemsize:
            return None
        if of.name == "complex_float16":
            return _make_half_complex(">" if of.endian == "big" else "<")
        return remove_padding(of.numpy, padding) if padding else of.numpy

    @cached_property
    def dtype(self) -> np.dtype[Any] | None:
        """The type of one element as the metadata mean it: the stored type, signed or unsigned."""
        stored, signed = self.stored_dtype, self.meaning.values.signed
        if stored is None or signed is None:
            return stored
        import numpy as np

        return np.dtype(f"{'i' if signed else 'u'}{stored.itemsize}").newbyteorder(stored.byteorder)

    @cached_property
    def axes(self) -> Axes:
        """The region's axes, with spacing and offset changed by its steps and starts."""
        return self.selection.cut_axes(self.meaning.axes)

    @cached_property
    def affine(self) -> Affine | None:
        """Where the region's elements lie, if axes are turned or sheared; None if no axis is, or if it is unknown."""
        return self.selection.cut_affine(self.meaning.affine)

    def find_positions(self, dimension: int) -> NDArray[np.float64] | None:
        """Return where the elements lie along a dimension of the region without a regular spacing.

        None if that is unknown.
        """
        place = self.selection.kept[dimension]
        known, pick = self.meaning.positions.get(place), self.selection.picks[place]
        return None if known is None else known[[pick.start + pick.step * i for i in range(pick.length)]]

    @property
    def image(self) -> Image | None:
        """The image that the array is a level of."""
        return self.meaning.image

    @property
    def title(self) -> str:
        """The name of the image; if there is no image, or it has no name, the name of the array."""
        return (None if self.image is None else self.image.name) or self.file_name

    @property
    def missing(self) -> int | float | None:
        """One number that stands for missing elements, for file types that can name only one; None if there is none."""
        return next(iter(self.meaning.values.missing), None)

    @property
    def packing(self) -> tuple[float, float] | None:
        """Factor and offset that convert stored numbers to the quantity they stand for.

        None if the numbers are not packed.
        """
        return self.meaning.values.packing

    @property
    def unit(self) -> str | None:
        """The unit of the elements."""
        return self.meaning.values.unit

    @property
    def attributes(self) -> Mapping[str, JSON]:
        return self.metadata.shown_attributes()

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the region, in the array's order."""
        return self.selection.shape

    @cached_property
    def fortran(self) -> bool:
        """True if the first dimension is the fastest in memory. False with fewer than two dimensions."""
        order = self.metadata.order
        return order is not None and len(order) > 1 and list(order) == list(range(len(order)))[::-1] and len(self.shape) > 1

    @property
    def natural(self) -> tuple[int, ...]:
        """The region's dimensions, slowest first: reversed if the source is in Fortran order, else as they are."""
        dimensions = tuple(range(len(self.shape)))
        return dimensions[::-1] if self.fortran else dimensions

    @property
    def picture(self) -> tuple[int, ...]:
        """The region's dimensions, slowest first, in the order of picture formats: x is the last."""
        dimensions = tuple(range(len(self.shape)))
        return dimensions[::-1] if self.x_first else dimensions

    @property
    def picture_shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions in the order of `picture`."""
        return tuple(self.shape[i] for i in self.picture)

    @property
    def picture_axes(self) -> Axes:
        """The axes in the order of `picture`."""
        return tuple(self.axes[i] for i in self.picture)


@dataclass(frozen=True, slots=True)
class Elements:
    """Where all elements of the region lie in the file: one after the other, from byte `offset` on.

    `order`: dimensions of the region, slowest first. `dtype`: the type in the file, which is the source's own type
    whenever the header can state it.
    """

    offset: int
    order: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class FileMap:
    """What a file of `size` bytes consists of: `pieces` (offset, bytes), the elements, and zeros everywhere else."""

    size: int
    elements: Elements | None = None
    pieces: tuple[tuple[int, bytes], ...] = ()


class Label(NamedTuple):
    """What the indices of one dimension are called. `values`: one for each index; `unit`: is written after the name."""

    name: str
    values: NDArray[Any]
    meaning: Values
    unit: str | None = None


class Labels(NamedTuple):
    """The labels of a table. `name`: of the array; `along`: by dimension of the region, as far as dimensions have labels.

    `words`: by path of a field, the words that its numbers stand for; the path of elements without fields is empty.
    """

    name: str
    along: Mapping[int, Label]
    words: Mapping[Path, NDArray[Any]] = {}


@dataclass(frozen=True, slots=True)
class Generated:
    """A file that is made as a whole when it is opened. `size`: in bytes; None if it is unknown before the file is made.

    `make` gets the elements with their dimensions in `order`, the labels of the dimensions `labelled`, and the largest
    number of bytes that it may return; above that it raises TooLarge. `sample`: `make` gets only this part of the elements.
    `work`: bytes of memory that `make` takes besides.
    """

    make: Callable[[NDArray[Any], Labels, int], bytes | bytearray]
    order: tuple[int, ...]
    size: int | None = None
    sample: Selection | None = None
    work: int = 0
    labelled: tuple[int, ...] = ()


Plan: TypeAlias = FileMap | Generated


@dataclass(slots=True)
class Recorder:
    """A writable file object for writers of headers. It keeps the bytes written, and nothing for gaps that are skipped."""

    pieces: dict[int, bytes] = field(default_factory=dict)
    position: int = 0
    end: int = 0

    def write(self, data: Any) -> int:
        """Keep `data` at the present position."""
        content = bytes(data)
        if content:
            self.pieces[self.position] = content + self.pieces.get(self.position, b"")[len(content) :]
        self.position += len(content)
        self.end = max(self.end, self.position)
        return len(content)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move the position, also beyond the end."""
        self.position = offset + (0, self.position, self.end)[whence]
        return self.position

    def tell(self) -> int:
        """Return the present position."""
        return self.position

    def flush(self) -> None:
        """Do nothing, because nothing is buffered."""

    def merge(self) -> tuple[tuple[int, bytes], ...]:
        """Return the bytes written as pieces (offset, bytes) that do not overlap, sorted.

        Bytes written later replace earlier ones.
        """
        merged: list[tuple[int, bytearray]] = []
        for offset, content in sorted(self.pieces.items()):
            if merged and offset <= merged[-1][0] + len(merged[-1][1]):
                start, data = merged[-1]
                data[offset - start : offset - start + len(content)] = content
            else:
                merged.append((offset, bytearray(content)))
        return tuple((offset, bytes(data)) for offset, data in merged)


def make_whole_file(view: View, header: bytes, order: tuple[int, ...], dtype: np.dtype[Any]) -> FileMap:
    """Return the plan of a file that consists of a header and then all elements, slowest dimension of `order` first."""
    size = len(header) + view.selection.size * dtype.itemsize
    return FileMap(size, Elements(len(header), order, dtype), ((0, header),) if header else ())
