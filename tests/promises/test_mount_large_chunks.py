"""P12 of chunks above 64 KiB in every format: read and mapped from real mounts, by the mounting user and by another one.

Small chunks are made on the event loop, large ones by worker threads. What lies in another file than the array's own must be
permitted, too. A row is a format, or a way in which a format keeps its chunks elsewhere.
One mount of all stores in a directory serves all rows, another one is open to other users, a third is of object storage.
Not here: what else a format has (`test_mount_*.py`), layouts and file types (`test_matrix.py`).
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import hangar_data
import icechunk
import numpy as np
import pytest
import tensorstore
import zarr
from fake_s3 import BUCKET, FakeS3
from mounting import Mount, MountFunction
from numpy.typing import NDArray
from stores import kvstore

from fsbridge.config import AT_ONCE_BYTES
from fsbridge.formats.records import NAMES

SHAPE, CHUNKS = (3, 160, 256), (1, 160, 256)
VALUES = np.random.default_rng(6).integers(0, 2**32, SHAPE, "<u4")
"""Three chunks of 160 KiB, which no codec makes much smaller."""

ALICE = 64001
"""Another user than the one that mounts."""

Arrays = Mapping[str, Any]
"""Values by path, as an independent reader reads them from the store."""


def _zarr_python(store: Any, *names: str) -> Arrays:
    return {name: zarr.open_array(store, path=name, mode="r")[...] for name in names}


def _write_zarr(store: Any, version: Any, **options: Any) -> Arrays:
    """An array as it is and a compressed one."""
    group = zarr.create_group(store, zarr_format=version, overwrite=True)
    group.create_array("plain", data=VALUES, chunks=CHUNKS, compressors=None, **options)
    group.create_array("packed", data=VALUES, chunks=CHUNKS, **options)
    return _zarr_python(store, "plain", "packed")


def _zarr2(folder: Path, outside: Path) -> Arrays:
    return _write_zarr(folder, 2)


def _zarr3(folder: Path, outside: Path) -> Arrays:
    return _write_zarr(folder, 3)


def _sharded(folder: Path, outside: Path) -> Arrays:
    return _write_zarr(folder, 3, shards=SHAPE)


def _linked(folder: Path, outside: Path) -> Arrays:
    """Chunk files are symbolic links, as git-annex makes them."""
    found = _write_zarr(folder, 3)
    for number, chunk in enumerate(sorted(path for path in folder.rglob("c/*/0/0"))):
        chunk.rename(outside / f"object{number}")
        chunk.symlink_to(outside / f"object{number}")
    return found


def _nwb(folder: Path, outside: Path) -> Arrays:
    """A group with a link to an array of another file."""
    _write_zarr(outside / "session.nwb.zarr", 2)
    group = zarr.create_group(folder, zarr_format=2, attributes={".specloc": "specifications"})
    link = {"name": "linked", "path": "/packed", "source": os.path.relpath(outside / "session.nwb.zarr", folder)}
    group.create_group("acquisition", attributes={"zarr_link": [link]})
    return {"acquisition/linked": _zarr_python(outside / "session.nwb.zarr", "packed")["packed"]}


def _n5(folder: Path, outside: Path) -> Arrays:
    found = {}
    for name in ("raw", "gzip"):
        grid = {"dimensions": list(SHAPE), "blockSize": list(CHUNKS)}
        metadata = {**grid, "dataType": "uint32", "compression": {"type": name}}
        spec = {"driver": "n5", "kvstore": kvstore(folder / name)}
        tensorstore.open({**spec, "metadata": metadata}, create=True).result()[...] = VALUES
        found[name] = tensorstore.open(spec, open=True).result().read().result()
    (folder / "attributes.json").write_text('{"n5": "4.0.0"}')
    return found


def _hdf5(folder: Path, outside: Path) -> Arrays:
    with h5py.File(folder, "w") as file:
        file["contiguous"] = VALUES
        file.create_dataset("plain", data=VALUES, chunks=CHUNKS)
        file.create_dataset("packed", data=VALUES, chunks=CHUNKS, compression="gzip", shuffle=True)
    return _h5py(folder, "contiguous", "plain", "packed")


def _h5py(path: Path, *names: str) -> Arrays:
    with h5py.File(path) as file:
        return {name: file[name][()] for name in names}


def _hdf5_elsewhere(folder: Path, outside: Path) -> Arrays:
    """Data in other files: a virtual dataset, raw data, and a link."""
    layout = h5py.VirtualLayout(SHAPE, VALUES.dtype)
    for number in range(SHAPE[0]):
        with h5py.File(outside / f"part{number}.h5", "w") as part:
            part.create_dataset("data", data=VALUES[number], chunks=CHUNKS[1:], compression="gzip")
        layout[number] = h5py.VirtualSource(outside / f"part{number}.h5", "data", SHAPE[1:])
    with h5py.File(outside / "other.h5", "w") as other:
        other.create_dataset("data", data=VALUES, chunks=CHUNKS, compression="gzip")
    with h5py.File(folder, "w") as file:
        file.create_virtual_dataset("virtual", layout)
        raw = file.create_dataset("raw", SHAPE, VALUES.dtype, external=[(os.fspath(outside / "data.raw"), 0, VALUES.nbytes)])
        raw[...] = VALUES
        file["linked"] = h5py.ExternalLink(outside / "other.h5", "data")
    return _h5py(folder, "virtual", "raw", "linked")


def _hangar(folder: Path, outside: Path) -> Arrays:
    """Samples of both HDF5 backends."""
    hangar_data.unpack("main", folder)
    expected = hangar_data.Expected.load("main")
    place, samples = expected.branches["master"], ("#2", "#7", "first", "2")
    return {
        f"branches/master/{column}/{sample}": expected.values[place, column, sample]
        for column in ("large01", "wide00")
        for sample in samples
        if (place, column, sample) in expected.values
    }


def _icechunk(folder: Path, outside: Path) -> Arrays:
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(os.fspath(folder)))
    session = repository.writable_session("main")
    _write_zarr(session.store, 3)
    session.commit("all of it")
    found = _zarr_python(repository.readonly_session("main").store, "plain", "packed")
    return {f"branches/main/{name}": values for name, values in found.items()}


def _icechunk_virtual(folder: Path, outside: Path) -> Arrays:
    """Chunks are ranges of a file of another program."""
    (outside / "data.bin").write_bytes(bytes(100) + VALUES.tobytes())
    url, config = f"file://{outside}/", icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(url, icechunk.local_filesystem_store(os.fspath(outside)))
    )
    storage = icechunk.local_filesystem_storage(os.fspath(folder))
    session = icechunk.Repository.create(storage, config).writable_session("main")
    zarr.create_array(
        session.store, name="virtual", shape=SHAPE, chunks=CHUNKS, dtype="<u4", compressors=None, zarr_format=3
    )
    length = VALUES[0].nbytes
    for number in range(SHAPE[0]):
        location = f"{url}data.bin"
        session.store.set_virtual_ref(f"virtual/c/{number}/0/0", location, offset=100 + number * length, length=length)
    session.commit("virtual")
    named = getattr(icechunk.credentials, "LocalFileSystemAccess", None)  # icechunk 2 has it, and warns of None
    allowed = icechunk.containers_credentials({url: named})
    repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=allowed)
    return {"branches/main/virtual": _zarr_python(repository.readonly_session("main").store, "virtual")["virtual"]}


def _zip(folder: Path, outside: Path) -> Arrays:
    found = _write_zarr(outside / "unpacked.zarr", 2)
    shutil.make_archive(os.fspath(folder.with_suffix("")), "zip", outside / "unpacked.zarr")
    return found


def _collection(folder: Path, outside: Path) -> Arrays:
    """Stores in a directory of the directory."""
    (folder / "deeper").mkdir(parents=True)
    found = {"a.n5": _n5(folder / "a.n5", outside), "deeper/b.h5": _hdf5(folder / "deeper/b.h5", outside)}
    return {f"{store}/{name}": values for store, arrays in found.items() for name, values in arrays.items()}


ROWS: Mapping[str, Callable[[Path, Path], Arrays]] = {
    "zarr2": _zarr2,
    "zarr2/nwb": _nwb,
    "zarr3": _zarr3,
    "zarr3/sharded": _sharded,
    "zarr3/linked": _linked,
    "n5": _n5,
    "hdf5": _hdf5,
    "hdf5/elsewhere": _hdf5_elsewhere,
    "hangar": _hangar,
    "icechunk": _icechunk,
    "icechunk/virtual": _icechunk_virtual,
    "zip": _zip,
    "collection": _collection,
}
"""By what `--format` takes; behind a stroke where else the chunks of a format may lie."""

SUFFIXES = {"hdf5": ".h5", "zip": ".zip"}
LOCAL = {"zarr2/nwb", "zarr3/linked", "hdf5/elsewhere", "hangar", "icechunk/virtual"}
"""What object storage cannot hold, and what refers to local files."""


def test_every_format_has_a_row() -> None:
    assert {row.partition("/")[0] for row in ROWS} == set(NAMES) - {"auto"}


def name_of(row: str) -> str:
    """The name of a row's store in the directory."""
    return row.replace("/", "-") + SUFFIXES.get(row.partition("/")[0], "")


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that everybody can enter, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="fsbridge-large-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def arrays(place: Path) -> Mapping[str, Arrays]:
    """By row; the stores lie in `stores`, and what some of them refer to, in `outside`."""
    found = {}
    for row, write in ROWS.items():
        outside = place / "outside" / name_of(row)
        outside.mkdir(parents=True)
        (place / "stores").mkdir(exist_ok=True)
        found[row] = write(place / "stores" / name_of(row), outside)
    for path in place.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return found


@pytest.fixture(scope="module")
def mounted(place: Path, arrays: Mapping[str, Arrays], module_mount: MountFunction) -> Mount:
    return module_mount(place / "stores", "--allow-external", str(place / "outside"))


@pytest.fixture(scope="module")
def shared(place: Path, arrays: Mapping[str, Arrays]) -> Iterator[Mount]:
    """A mount that every user may use."""
    (place / "shared").mkdir()
    found = Mount(place / "stores", place / "shared", ("--allow-other", "--allow-external", str(place / "outside")))
    yield found
    found.stop()


@pytest.fixture(scope="module")
def remote(place: Path, arrays: Mapping[str, Arrays], module_mount: MountFunction) -> Iterator[Mount]:
    server = FakeS3()
    for folder in ("stores", "outside"):
        server.put_tree(place / folder, folder)
    found = module_mount(f"s3://{BUCKET}/stores", "--allow-external", f"s3://{BUCKET}/outside", *server.options)
    yield found
    found.stop()
    server.stop()


def chunk(array: Path, values: NDArray[Any], number: int) -> tuple[Path, bytes]:
    """The file of one chunk, as `zarr.json` describes it, and the bytes that it must have."""
    described = json.loads((array / "zarr.json").read_text())
    shape = described["chunk_grid"]["configuration"]["chunk_shape"]
    grid = [-(-extent // edge) for extent, edge in zip(values.shape, shape, strict=True)]
    index = list(np.ndindex(*grid))[number % int(np.prod(grid))]
    part = values[tuple(slice(i * edge, (i + 1) * edge) for i, edge in zip(index, shape, strict=True))]
    full = np.zeros(shape, values.dtype)
    full[tuple(map(slice, part.shape))] = part
    codecs = {codec["name"]: codec.get("configuration", {}) for codec in described["codecs"]}
    stored = full.astype(full.dtype.newbyteorder({"little": "<", "big": ">"}[codecs["bytes"]["endian"]]))
    assert stored.nbytes > AT_ONCE_BYTES
    return array / "c" / "/".join(map(str, index)), stored.tobytes("F" if "transpose" in codecs else "C")


each_row = pytest.mark.parametrize("row", ROWS)


@each_row
def test_p12_large_chunks_are_read_and_mapped(row: str, arrays: Mapping[str, Arrays], mounted: Mount) -> None:
    for path, values in arrays[row].items():
        file, expected = chunk(mounted / name_of(row) / path, values, 0)
        assert file.read_bytes() == expected, path
        file, expected = chunk(mounted / name_of(row) / path, values, 1)
        with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            assert mapped[:] == expected, path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@each_row
def test_p12_large_chunks_are_read_by_another_user(row: str, arrays: Mapping[str, Arrays], shared: Mount) -> None:
    for path, values in arrays[row].items():
        file, expected = chunk(shared / name_of(row) / path, values, 2)
        done = subprocess.run(["/bin/cat", file], capture_output=True, user=ALICE, group=ALICE, extra_groups=[], cwd="/")
        assert (done.stderr, done.stdout == expected) == (b"", True), path


@pytest.mark.parametrize("row", [row for row in ROWS if row not in LOCAL])
def test_p12_large_chunks_of_object_storage_are_read(row: str, arrays: Mapping[str, Arrays], remote: Mount) -> None:
    for path, values in arrays[row].items():
        file, expected = chunk(remote / name_of(row) / path, values, 2)
        assert file.read_bytes() == expected, path
