"""Hangar records that do not fit their data, read without digests, so that only fsbridge's own checks can tell."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hangar_data import put, unpack
from hangar_model import sample
from model_reader import read_array
from waiting import PATIENCE

from fsbridge.config import Config, Limits
from fsbridge.errors import CorruptData, FsbridgeError, TooLarge, Unsupported
from fsbridge.formats.hangar.backends import _Npy
from fsbridge.formats.hangar.hierarchy import HangarSource, open_hangar
from fsbridge.formats.hdf5.source import open_hdf5
from fsbridge.model import Array, Source

SAMPLE = "#2"


class Repository:
    """The repository `main`, opened without digests."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.folder = path / ".hangar"
        config = Config(str(path), "/nowhere", verify=False, **options)
        self.source: HangarSource = open_hangar(str(path), config, lambda file: open_hdf5(file, config))

    def sample(self, column: str) -> Array:
        return sample(self.source, "branches", "master", column, SAMPLE)

    def record(self, column: str) -> list[str]:
        """The record's fields, as they are in the database."""
        return str(self.sample(column).metadata.attributes["record"]).split(":")

    @contextmanager
    def file(self, column: str) -> Iterator[Path]:
        """The file of the sample, which may be changed inside the block."""
        backend, uid, *_ = self.record(column)
        path = self.folder / "data" / backend / f"{uid}{'.npy' if backend == '10' else '.hdf5'}"
        before = path.read_bytes()
        yield path
        path.write_bytes(before)

    @contextmanager
    def recorded(self, column: str, fields: list[str]) -> Iterator[None]:
        """Give the sample that record inside the block."""
        key, before = f"h:{self.sample(column).metadata.attributes['digest']}".encode(), self.record(column)
        put(self.folder / "hash.lmdb", {key: ":".join(fields).encode()})
        yield
        put(self.folder / "hash.lmdb", {key: ":".join(before).encode()})

    def refuses(self, column: str, fields: list[str]) -> None:
        with self.recorded(column, fields), pytest.raises(CorruptData, match=f"{column}/{SAMPLE}"):
            read_array(self.sample(column))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    """One repository for all tests here: each leaves it unchanged."""
    found = Repository(unpack("main", tmp_path_factory.mktemp("main")))
    yield found
    found.source.close()


@pytest.mark.parametrize(
    ("column", "others"),
    [
        ("fixed00_gzip", ("fixed00_gzip_shuffle", "fixed00_lzf_shuffle")),  # of another size; of the same, but unsigned
        ("fixed01_lzf_shuffle", ("fixed01_gzip", "fixed01_blosc_lz4", "large01")),
        ("variable10", ("table10", "scalar10")),
        ("table10", ("variable10", "scalar10")),
    ],
)
def test_a_file_of_other_elements_is_refused(repository: Repository, column: str, others: tuple[str, ...]) -> None:
    own = repository.record(column)
    for other in others:
        repository.refuses(column, [own[0], repository.record(other)[1], *own[2:]])


@pytest.mark.parametrize(
    ("column", "shapes"),
    [
        ("fixed00_gzip", ("5 8", "4 7", "5", "35", "5 7 1", "7 5", "")),
        ("fixed01_gzip", ("3 4 4", "3 4 6", "60", "")),
        ("variable00", ("21 5 1", "15 5 4", "0 5 1", "15 5")),
        ("variable10", ("4 3", "0 3", "3")),
        ("table10", ("5", "3", "2 2", "")),
        ("scalar00", ("1",)),
    ],
)
def test_a_shape_that_the_column_has_not_is_refused(repository: Repository, column: str, shapes: tuple[str, ...]) -> None:
    own = repository.record(column)
    for shape in shapes:
        repository.refuses(column, [*own[:-1], shape])


@pytest.mark.parametrize("column", ["fixed00_gzip", "fixed01_gzip", "variable00"])
def test_the_last_row_of_a_dataset_is_read_and_none_behind_it(repository: Repository, column: str) -> None:
    *own, dataset, _, shape = repository.record(column)
    with repository.file(column) as path, h5py.File(path, swmr=True) as file:
        rows, last = len(file[dataset]), file[dataset][-1]
    with repository.recorded(column, [*own, dataset, str(rows - 1), shape]):
        found = np.asarray(read_array(repository.sample(column)))
    assert found.tobytes() == last.reshape(-1)[: found.size].tobytes()  # it was never written: it is the fill value
    repository.refuses(column, [*own, dataset, str(rows), shape])


@pytest.mark.parametrize("column", ["table10", "variable10", "scalar10"])
def test_the_last_row_of_a_npy_file_is_read_and_none_behind_it(repository: Repository, column: str) -> None:
    *own, _, shape = repository.record(column)
    extents = tuple(slice(0, int(extent)) for extent in shape.split())
    with repository.file(column) as path:
        rows = np.load(path)
        rows[-1] = np.arange(rows[-1].size).reshape(rows[-1].shape) + 1
        np.save(path, rows)
        with path.open("ab") as file:
            file.write(b"behind the last row" * 100)
        with repository.recorded(column, [*own, str(len(rows) - 1), shape]):
            assert np.array_equal(read_array(repository.sample(column)), rows[-1][extents])
        repository.refuses(column, [*own, str(len(rows)), shape])


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda rows: np.asfortranarray(rows), Unsupported),
        (lambda rows: rows.astype(rows.dtype.newbyteorder(">")), CorruptData),
        (lambda rows: rows.astype("<i2"), CorruptData),
        (lambda rows: rows[:, :-1], CorruptData),
        (lambda rows: rows[:, :, None], CorruptData),
        (lambda rows: rows.reshape(-1), CorruptData),
        (lambda rows: rows[0, 0], Unsupported),
        (lambda rows: rows[:1], CorruptData),
        (lambda rows: rows.astype(object), Unsupported),
    ],
)
def test_a_npy_file_that_hangar_would_not_write_is_refused(
    repository: Repository, change: Callable[[np.ndarray], np.ndarray], wanted: type[FsbridgeError]
) -> None:
    with repository.file("table10") as path:
        np.save(path, change(np.load(path)))
        with pytest.raises(wanted, match=f"table10/{SAMPLE}"):
            read_array(repository.sample("table10"))


def test_chunks_that_hold_several_rows_are_refused(repository: Repository) -> None:
    dataset = repository.record("fixed01_gzip")[3]
    with repository.file("fixed01_gzip") as path:
        with h5py.File(path, swmr=True) as file:
            rows = file[dataset][:]
        with h5py.File(path, "w") as file:
            file.create_dataset(dataset, data=rows, chunks=(2, *rows.shape[1:]))
        with pytest.raises(Unsupported, match="one row a chunk"):
            read_array(repository.sample("fixed01_gzip"))


def test_a_row_in_chunks_of_any_shape_is_put_together(repository: Repository) -> None:
    """Hangar cuts long rows. What is not stored is the dataset's own fill value."""
    *_, dataset, index, _ = repository.record("large01")
    wanted = np.asarray(read_array(repository.sample("large01")))
    with repository.file("large01") as path:
        with h5py.File(path, "w") as file:
            cut = file.create_dataset(dataset, (9, *wanted.shape), "<f8", chunks=(1, 128, 299), fillvalue=-3.5)
            cut[int(index), 200:, :500] = wanted[200:, :500]
            expected = cut[int(index)]
        assert np.array_equal(read_array(repository.sample("large01")), expected)
    assert (expected == -3.5).any()
    assert np.array_equal(read_array(repository.sample("large01")), wanted)


def test_text_that_is_no_utf8_is_corrupt(repository: Repository) -> None:
    backend, uid, key, _ = repository.record("text")
    path, text = repository.folder / "data" / backend / uid / "data.mdb", str(read_array(repository.sample("text"))[()])
    put(path, {key.encode(): b"caf\xe9"})
    with pytest.raises(CorruptData, match="not UTF-8"):
        read_array(repository.sample("text"))
    put(path, {key.encode(): text.encode()})
    assert read_array(repository.sample("text"))[()] == text


@pytest.mark.parametrize(("column", "size"), [("fixed01_gzip", 3 * 4 * 5 * 4), ("table10", 4 * 2), ("blobs", None)])
def test_p6_samples_above_the_limit_are_refused(repository: Repository, column: str, size: int | None) -> None:
    size = size or 8 + len(read_array(repository.sample(column))[()])
    for most in (size, size - 1):
        limited = Repository(repository.folder.parent, limits=Limits(max_chunk=most))
        with closing(limited.source), nullcontext() if most == size else pytest.raises(TooLarge):
            read_array(limited.sample(column))


@pytest.mark.parametrize("header", [b"{'descr': (", b"{'descr': (), 'fortran_order': False, 'shape': (2,)}", b"1", b"\xff"])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_damaged_npy_header_is_corrupt_data(header: bytes, version: int) -> None:
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    with pytest.raises(CorruptData):
        _Npy.parse(b"\x93NUMPY" + bytes([version, 0]) + length + header)


def test_a_read_of_one_data_file_does_not_wait_for_another_slow_one(crashed: Path) -> None:
    slow, go_on, paths = threading.Event(), threading.Event(), list[str]()

    def open_file(path: str) -> Source:
        paths.append(path)
        if not slow.is_set():
            slow.set()
            go_on.wait(PATIENCE)
        return open_hdf5(path, config)

    config = Config(str(crashed), "/nowhere")
    with closing(open_hangar(str(crashed), config, open_file)) as source:
        samples = [sample(source, "branches", "master", column, "a") for column in ("array", "volume")]
        first, second = (threading.Thread(target=read_array, args=(array,)) for array in samples)
        first.start()
        slow.wait(PATIENCE)
        second.start()
        second.join(PATIENCE)
        assert not second.is_alive()
        go_on.set()
        first.join(PATIENCE)
    assert len(set(paths)) == 2
