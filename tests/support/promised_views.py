"""How each layout shows an array: the rows of the table of promises, which is sample x layout x promise.

The samples are in `samples.py`, the promises in `test_promises.py`, `test_promised_ends.py`, `test_freshness.py` and
`test_matrix.py`. Not here: readers of each file type.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import tensorstore
import zarr
from numpy.typing import NDArray
from promised_store import CHUNKS

Array: TypeAlias = NDArray[Any]
Edges: TypeAlias = tuple[int, ...]

NOT_NUMBERS = ("00", "+1", "1_0", "\u0661", "-1", "1.0", " 1", "0x1", "1e0", "01")
"""What Python takes for a number, or nearly, and the key of no chunk has."""


@dataclass(frozen=True)
class View:
    """A layout with its options. In names of files `{}` stands for the array's path."""

    name: str
    layout: str
    document: str
    """The file that describes an array."""
    chunk_name: Callable[[Sequence[object], Edges], str]
    """Names the file that shows a chunk's elements, by the chunk's place and shape; the array's path comes before it."""
    encode: Callable[[Array, Edges], bytes]
    """Makes that file's bytes of those elements of the chunk that are within the array."""
    read: Callable[[Path], Any]
    """Reads an array with an independent library, by the array's path in a mount."""
    listed: frozenset[str]
    """What is listed of the promised store beside its chunks."""
    nothing: tuple[str, ...] = ()
    """Names that nothing has, whatever the array is; for a layout of chunks there are more."""
    readers: tuple[str, ...] = ()
    """Programs of `readers.py` that read the mount."""
    more_options: tuple[str, ...] = ()
    turned: bool = False
    """The first axis is the fastest, so the axes of arrays in C order are reversed."""
    whole: tuple[str, ...] = ()
    """Files with all elements of an array. A layout that has them shows regions instead of chunks, and no holes."""
    others: tuple[str, ...] = ()
    """Further files of the promised store that are looked at closely."""

    @property
    def options(self) -> tuple[str, ...]:
        """Return what `fsbridge mount` is told."""
        return ("--layout", self.layout, *self.more_options)

    def chunk(self, array: str, *place: object, edges: Edges = CHUNKS) -> str:
        """Name the file that shows a chunk's elements."""
        return array + self.chunk_name(place, edges)

    def content(self, values: Array, *place: int, edges: Edges = CHUNKS) -> bytes:
        """Return that file's bytes."""
        part = values[tuple(slice(i * edge, (i + 1) * edge) for i, edge in zip(place, edges, strict=True))]
        return self.encode(part, edges)

    def hole(self, values: Array, *place: int) -> bytes | None:
        """Return what stands for a chunk that the store lacks: its fill values, or None if there is no file then."""
        return self.content(np.zeros_like(values), *place) if self.whole else None

    def listing(self, places: Iterable[tuple[int, ...]]) -> set[str]:
        """Return all files that are listed of the promised store if it has the chunks at these places."""
        return {*self.listed, *(self.chunk("a", *place) for place in places if not self.whole)}

    def absent(self, array: str, dimensions: int) -> list[str]:
        """Return names that nothing has: they are not canonical, beyond the array's end, or mean nothing."""
        names = [name.format(array) for name in self.nothing if dimensions or self.whole]
        zeros = [0] * dimensions
        for wrong in () if self.whole else (*NOT_NUMBERS, 99999):
            names += [self.chunk(array, *zeros[:axis], wrong, *zeros[axis + 1 :]) for axis in range(dimensions)]
        return names


def _padded(part: Array, edges: Edges) -> bytes:
    whole = np.zeros(edges, part.dtype)
    whole[tuple(slice(edge) for edge in part.shape)] = part
    return whole.tobytes()


def _block(part: Array, edges: Edges) -> bytes:
    header = struct.pack(f">HH{part.ndim}I", 0, part.ndim, *reversed(part.shape))
    return header + part.astype(part.dtype.newbyteorder(">")).tobytes()


def _region(place: Sequence[Any], edges: Edges) -> str:
    bounds = [f"{i * edge}:{(i + 1) * edge}" for i, edge in zip(place, edges, strict=False)]
    return f"[{','.join(bounds)}].raw"


def _joined(separator: str, before: str, place: Sequence[object]) -> str:
    return before + separator.join(map(str, place))


def _by_zarr(folder: Path) -> Any:
    document = folder / "zarr.json"
    if zarr.__version__.startswith("3.1.") and document.exists() and '"rectilinear"' in document.read_text():
        return _by_the_specification(folder)
    with zarr.config.set({"array.rectilinear_chunks": True}):  # an experiment of zarr-python's, so far
        return zarr.open_array(folder, mode="r")[...]


def _by_the_specification(folder: Path) -> Array:
    """Read a grid of chunks of many sizes, which the newest zarr-python for Python 3.11 does not know."""
    told = json.loads((folder / "zarr.json").read_text())
    (codec,) = told["codecs"]
    dtype = np.dtype(told["data_type"]).newbyteorder(codec["configuration"]["endian"])
    edges = [np.array(lengths) for lengths in told["chunk_grid"]["configuration"]["chunk_shapes"]]
    found = np.full(told["shape"], told["fill_value"], dtype)
    for file in (folder / "c").rglob("*"):
        if file.is_file():
            at = [int(part) for part in file.relative_to(folder / "c").parts]
            shape = [lengths[i] for lengths, i in zip(edges, at, strict=True)]
            place = tuple(slice(lengths[:i].sum(), lengths[: i + 1].sum()) for lengths, i in zip(edges, at, strict=True))
            found[place] = np.frombuffer(file.read_bytes(), dtype).reshape(shape)
    return found


def _by_tensorstore(folder: Path) -> Any:
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": f"{folder}/"}}
    return tensorstore.open(spec, open=True).result().read().result()


ZARR3 = View(
    name="zarr3",
    layout="zarr3",
    document="{}/zarr.json",
    chunk_name=lambda place, _: _joined("/", "/c/", place),
    encode=_padded,
    read=_by_zarr,
    readers=("zarr", "tensorstore"),
    listed=frozenset(("zarr.json", "a/zarr.json")),
    nothing=tuple(f"{{}}/c/{wrong}" for wrong in NOT_NUMBERS),
)
ZARR2 = View(
    name="zarr2",
    layout="zarr2",
    document="{}/.zarray",
    chunk_name=lambda place, _: _joined(".", "/", place),
    encode=_padded,
    read=_by_zarr,
    readers=("zarr-zarr2", "tensorstore-zarr2"),
    listed=frozenset((".zgroup", ".zattrs", "a/.zarray", "a/.zattrs")),
)
NESTED = replace(
    ZARR2,
    name="zarr2-nested",
    more_options=("--chunk-separator", "/"),
    chunk_name=lambda place, _: _joined("/", "/", place),
)
N5 = View(
    name="n5",
    layout="n5",
    document="{}/attributes.json",
    chunk_name=lambda place, _: _joined("/", "/", place[::-1]),
    encode=_block,
    read=_by_tensorstore,
    readers=("tensorstore-n5", "z5py-n5"),
    listed=frozenset(("attributes.json", "a/attributes.json")),
    turned=True,
)
_SUFFIXES = "json npy raw raw.nhdr raw.mhd nrrd mha csv h5 nc nii tif ome.tif envi envi.hdr preview.png"
_FILES = [f"a.{suffix}" for suffix in _SUFFIXES.split()]
_NOTHING = (".jpg", "[99999].npy", "[0", "[x].npy", "[1_0].npy", "[0x1].npy", ".slices/9999.tif", "b.npy", "b.h5")
_REGIONS = [f"a[{region}].{suffix}" for region in ("3", "1:30:7,::-2", "5:5") for suffix in ("npy", "raw", "h5")]
FILES = View(
    name="files",
    layout="files",
    more_options=("--files", "all"),
    document="{}.json",
    chunk_name=_region,
    encode=lambda part, _: part.tobytes(),
    read=lambda path: np.load(f"{path}.npy"),
    listed=frozenset(("index.html", "store.json", "store.h5", "store.nc", *_FILES)),
    nothing=tuple(f"{{}}{end}" for end in _NOTHING),
    whole=("{}.npy", "{}.raw", "{}.csv", "{}.h5"),
    others=("a.npy", "a.nii", "a.ome.tif", "a.csv", "a.h5", "store.h5", "a[3:9,::2].nrrd", *_REGIONS),
)

CHUNKED = (ZARR3, ZARR2, NESTED, N5)
VIEWS = (*CHUNKED, FILES)


def each(views: Sequence[View]) -> pytest.MarkDecorator:
    """Let a test run once for each of these views."""
    return pytest.mark.parametrize("view", views, ids=[view.name for view in views])
