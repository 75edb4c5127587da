"""One small store of each source format, written by an independent library, and the elements that were written.

`test_matrix.py` looks at each of them in every layout. Not here: compressions, data types and edges (`stores.py`).
"""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import hangar_data
import icechunk
import numpy as np
import zarr
from n5_arrays import write_n5
from paths import DATA

VOLUME = np.arange(3 * 40 * 50, dtype="<u2").reshape(3, 40, 50) * 7
PICTURE = np.arange(40 * 50, dtype="u1").reshape(40, 50)
LABELS = np.arange(2 * 20 * 30, dtype="<u8").reshape(2, 20, 30) // 7
WORDS = ["one", "zwö", "", "a,b"]
CURVE = np.linspace(-1, 1, 30) ** 3
ARRAYS: Mapping[str, Any] = {
    "g/volume": VOLUME,
    "g/picture": PICTURE,
    "g/curve": CURVE,
    "g/labels": LABELS,
    "g/words": np.array(WORDS, object),
}


@dataclass(frozen=True)
class Sample:
    """`source`: what is mounted. `arrays`: elements by path, in the format's own order. `group`: one that holds some.

    `lacks`: file types that none of the arrays can be. `whole`: it is small enough to be one HDF5 file.
    """

    source: Path
    arrays: Mapping[str, Any]
    group: str = "g"
    lacks: frozenset[str] = frozenset()
    whole: bool = True


def _zarr(store: Any, zarr_format: Any, overwrite: bool = False) -> None:
    group = zarr.create_group(store, zarr_format=zarr_format, overwrite=overwrite).create_group("g")
    for path, values in ARRAYS.items():
        kind: Any = str if values.dtype == object else values.dtype
        chunks = tuple(max(1, n // 2) for n in values.shape)
        group.create_array(path.removeprefix("g/"), shape=values.shape, chunks=chunks, dtype=kind)[...] = values


def _zarr3(folder: Path) -> Sample:
    _zarr(folder / "s.zarr", 3)
    return Sample(folder / "s.zarr", ARRAYS)


def _zarr_34(folder: Path) -> Sample:
    """What zarr-python 3.4 writes and 3.1 does not: structs, grids of chunks of many sizes, `cast_value`, `scale_offset`."""
    with zipfile.ZipFile(DATA / "zarr34.zip") as archive:
        names = [name for name in archive.namelist() if name == "zarr.json" or name.startswith("g/")]
        archive.extractall(folder / "s.zarr", [name for name in names if not name.endswith(".npy")])
        arrays = {path: np.load(io.BytesIO(archive.read(f"{path}.npy"))) for path in (*ARRAYS, "g/records")}
    arrays["g/words"] = arrays["g/words"].astype(object)
    return Sample(folder / "s.zarr", arrays)


def _zarr2(folder: Path) -> Sample:
    _zarr(folder / "s.zarr", 2)
    return Sample(folder / "s.zarr", ARRAYS)


def _n5(folder: Path) -> Sample:
    """N5 has no texts; its first axis is the fastest."""
    arrays = {path: values.T for path, values in ARRAYS.items() if values.dtype != object}
    for path, values in arrays.items():
        write_n5(folder / "s.n5" / path, values, [max(1, n // 2) for n in values.shape])
    (folder / "s.n5/attributes.json").write_text('{"n5": "4.0.0"}')
    return Sample(folder / "s.n5", arrays, lacks=frozenset(("txt",)))


def _hdf5(folder: Path) -> Sample:
    with h5py.File(folder / "s.h5", "w") as file:
        for path, values in ARRAYS.items():
            file.create_dataset(path, data=values, chunks=True)
    return Sample(folder / "s.h5", ARRAYS)


def _zip(folder: Path) -> Sample:
    _zarr(folder / "s.zarr", 2)
    shutil.make_archive(str(folder / "s.zarr"), "zip", folder / "s.zarr")
    return Sample(folder / "s.zarr.zip", ARRAYS)


def _hangar(folder: Path) -> Sample:
    columns = ("fixed01_gzip_shuffle", "fixed00_blosc_blosclz", "table10", "text")
    return _repository("main", folder, columns, "2", group=columns[0], whole=False, lacks=frozenset(("u32.tif",)))


def _hangar_small(folder: Path) -> Sample:
    return _repository(
        "crashed", folder, ("volume", "array", "text"), "b", lacks=frozenset(("pgm", "png", "preview.svg", "u32.tif"))
    )


def _repository(name: str, folder: Path, columns: tuple[str, ...], key: str, group: str = "", **options: Any) -> Sample:
    expected = hangar_data.Expected.load(name)
    arrays = {f"branches/master/{one}/{key}": expected.values[expected.branches["master"], one, key] for one in columns}
    place = f"branches/master/{group}".rstrip("/")
    return Sample(hangar_data.unpack(name, folder / "s"), arrays, place, **options)


def _icechunk(folder: Path) -> Sample:
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder / "s")))
    session = repository.writable_session("main")
    _zarr(session.store, 3, overwrite=True)
    session.commit("all of it")
    arrays = {f"branches/main/{path}": values for path, values in ARRAYS.items()}
    return Sample(folder / "s", arrays, "branches/main/g")


def _collection(folder: Path) -> Sample:
    for name, write in {"n": _n5, "h": _hdf5}.items():
        (folder / "s" / name).mkdir(parents=True)
        write(folder / "s" / name)
    return Sample(folder / "s", {f"h/s.h5/{path}": values for path, values in ARRAYS.items()}, "h/s.h5/g")


SAMPLES: Mapping[str, Callable[[Path], Sample]] = {
    "zarr3": _zarr3,
    "zarr3/3.4": _zarr_34,
    "zarr2": _zarr2,
    "n5": _n5,
    "hangar": _hangar,
    "hangar/small": _hangar_small,
    "icechunk": _icechunk,
    "hdf5": _hdf5,
    "zip": _zip,
    "collection": _collection,
}
"""By what `--format` takes; behind a stroke what else there is of a format."""
