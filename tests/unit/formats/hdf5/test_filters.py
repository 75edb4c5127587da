"""Filters of HDF5 chunks as HDF5 and the registered filters write them, filter masks, and the filters only HDF5 decodes."""

from __future__ import annotations

import ctypes
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import lzallright
import numpy as np
import pytest
import tables
from hdf5_model import array, decoded, opened, stored, values

from fsbridge import cli
from fsbridge.codecs import table
from fsbridge.codecs.hdf5 import lzo
from fsbridge.errors import CorruptData, Unsupported
from fsbridge.formats.hdf5.child import chunks
from fsbridge.formats.hdf5.child.objects import H5_ERRORS
from fsbridge.formats.hdf5.filters import find_plugins

hdf5plugin.register(force=True)  # netCDF4, if imported before, made HDF5 find a Blosc filter that takes no parameters

SHAPE, CHUNKS = (50, 33), (16, 10)
RANDOM = np.random.default_rng(7)

DATA = {
    "<i4": RANDOM.integers(-1000, 1000, SHAPE).astype("<i4"),
    ">i2": RANDOM.integers(-1000, 1000, SHAPE).astype(">i2"),
    "<f8": RANDOM.standard_normal(SHAPE).round(2),
}

FILTERS: dict[str, dict[str, Any]] = {
    "gzip": {"compression": "gzip", "compression_opts": 9},
    "shuffle+gzip": {"compression": "gzip", "shuffle": True},
    "shuffle": {"shuffle": True},
    "fletcher32": {"fletcher32": True},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"compression": "lzf"},
    "shuffle+lzf": {"compression": "lzf", "shuffle": True},
    "szip": {"compression": "szip", "compression_opts": ("nn", 8)},
    "bzip2": dict(hdf5plugin.BZip2()),
    "lz4": dict(hdf5plugin.LZ4()),
    "zstd": dict(hdf5plugin.Zstd()),
    "bitshuffle": dict(hdf5plugin.Bitshuffle(cname="none")),
    "bitshuffle+lz4": dict(hdf5plugin.Bitshuffle()),
    "bitshuffle+zstd": dict(hdf5plugin.Bitshuffle(cname="zstd")),
    **{f"blosc {name}": dict(hdf5plugin.Blosc(cname=name)) for name in ("blosclz", "lz4", "lz4hc", "zlib", "zstd")},
}


@pytest.mark.parametrize("name", FILTERS)
def test_filtered_chunks_are_what_was_written(tmp_path: Path, name: str) -> None:
    """Values are equal, chunk for chunk, with partial chunks at two edges."""
    path = tmp_path / "filtered.h5"
    with h5py.File(path, "w") as file:
        for dtype, data in DATA.items():
            file.create_dataset(dtype, data=data, chunks=CHUNKS, **FILTERS[name])
    with opened(path) as source:
        for dtype, data in DATA.items():
            found = array(source, dtype)
            np.testing.assert_array_equal(values(found), data)
            assert found.chunks.count() == 16
            assert found.metadata.codec != "none"


@pytest.mark.parametrize("name", ["shuffle", "bitshuffle", "gzip", "bitshuffle+lz4", "lzf"])
def test_edge_chunks_that_bypass_the_filters_are_what_was_written(tmp_path: Path, name: str) -> None:
    """H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS, which no filter mask tells and plain bit shuffling cannot notice."""
    path = tmp_path / "edges.h5"
    library = ctypes.CDLL(h5py.h5p.__file__)  # h5py lacks this function
    library.H5Pset_chunk_opts.argtypes = (ctypes.c_int64, ctypes.c_uint)
    filters = {"shuffle": (h5py.h5z.FILTER_SHUFFLE, ()), "gzip": (h5py.h5z.FILTER_DEFLATE, (6,)), "lzf": (32000, ())}
    number, options = filters.get(name) or (FILTERS[name]["compression"], FILTERS[name]["compression_opts"])
    with h5py.File(path, "w", libver="latest") as file:
        for dtype, data in DATA.items():
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk(CHUNKS)
            plist.set_filter(number, h5py.h5z.FLAG_OPTIONAL, options)
            assert library.H5Pset_chunk_opts(plist.id, 2) >= 0
            kind, space = h5py.h5t.py_create(data.dtype), h5py.h5s.create_simple(data.shape)
            made = h5py.Dataset(h5py.h5d.create(file.id, dtype.encode(), kind, space, plist))
            made[...] = data
            corner = tuple((extent - 1) // edge * edge for extent, edge in zip(data.shape, CHUNKS, strict=True))
            assert made.id.get_chunk_info_by_coord(corner).size == np.prod(CHUNKS) * data.itemsize
    with h5py.File(path) as file, opened(path) as source:
        for dtype, data in DATA.items():
            np.testing.assert_array_equal(file[dtype][...], data)
            np.testing.assert_array_equal(values(array(source, dtype)), data)


@pytest.mark.parametrize("dtype", ["<i4", ">i2", "<u1"])
def test_integers_in_few_bits_are_what_was_written(tmp_path: Path, dtype: str) -> None:
    """Integers in as few bits as they need."""
    data = RANDOM.integers(0, 100, SHAPE).astype(dtype)
    path = tmp_path / "scaled.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=data, chunks=CHUNKS, scaleoffset=0)
    with opened(path) as source:
        np.testing.assert_array_equal(values(array(source, "x")), data)


def test_floats_of_a_lossy_filter_are_what_hdf5_reads(tmp_path: Path) -> None:
    """Decoding gives what HDF5 reads after the lossy filter."""
    path = tmp_path / "scaled.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=DATA["<f8"], chunks=CHUNKS, scaleoffset=3)
    with h5py.File(path) as file, opened(path) as source:
        np.testing.assert_array_equal(values(array(source, "x")), file["x"][()])


def test_filters_that_a_chunk_skipped_are_not_undone(tmp_path: Path) -> None:
    """Chunks say which filters they skipped: none, the first, the second, all."""
    data = np.arange(40, dtype="<i4")
    path = tmp_path / "masked.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (40,), "<i4", chunks=(10,), compression="gzip", shuffle=True)
        dataset[:10] = data[:10]
        dataset.id.write_direct_chunk((30,), data[30:].tobytes(), filter_mask=3)
        dataset.id.write_direct_chunk((10,), zlib.compress(data[10:20].tobytes()), filter_mask=1)
        shuffled = data[20:30].view("u1").reshape(10, 4).T.tobytes()
        dataset.id.write_direct_chunk((20,), shuffled, filter_mask=2)
    with opened(path) as source, h5py.File(path) as file:
        found = array(source, "x")
        np.testing.assert_array_equal(file["x"][()], data)
        np.testing.assert_array_equal(values(found), data)
        assert [found.chunks.find(index).location.mask for index in stored(found)] == [0, 1, 2, 3]


def test_incompressible_chunks_are_stored_raw(tmp_path: Path) -> None:
    """LZF is an optional filter: random chunks skip it, constant ones do not."""
    data = RANDOM.integers(0, 256, (4, 1000)).astype("u1")
    data[1] = 3
    path = tmp_path / "optional.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=data, chunks=(1, 1000), compression="lzf")
    with opened(path) as source:
        found = array(source, "x")
        assert [found.chunks.find((i, 0)).location.mask for i in range(4)] == [1, 0, 1, 1]
        np.testing.assert_array_equal(values(found), data)


@pytest.mark.parametrize("dtype", ["|u1", "<i4"])
def test_p2_lzf_data_that_end_too_early_are_damage(tmp_path: Path, dtype: str) -> None:
    """HDF5 shows what was in memory behind them. In LZF a byte, one less than their number, precedes literal bytes."""
    data = np.arange(24, dtype=dtype).reshape(4, 6)
    path = tmp_path / "short.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", data=data, chunks=(1, 6), compression="lzf")
        whole = data[1].tobytes()
        for row, length in ((1, len(whole)), (2, len(whole) - 1)):
            made.id.write_direct_chunk((row, 0), bytes((length - 1,)) + whole[:length])
    with opened(path) as source:
        found = array(source, "x")
        assert decoded(found, (0, 0)) == data[0].tobytes()
        assert decoded(found, (1, 0)) == whole
        with pytest.raises(CorruptData, match=rf"LZF data of {len(whole) - 1} bytes where {len(whole)} are expected"):
            decoded(found, (2, 0))
        assert decoded(found, (3, 0)) == data[3].tobytes()


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("edge", [4096, 300, 777])
@pytest.mark.parametrize("dtype", ["|u1", ">i2", "<i4", "<f8"])
def test_p2_szip_data_that_end_too_early_are_damage(tmp_path: Path, dtype: str, edge: int, shuffle: bool) -> None:
    """HDF5 shows what was in memory behind them; lines of 300 and 777 pixels are stored as whole blocks of 16."""
    data = (np.arange(4 * edge) * 7 % 100).astype(dtype)
    path = tmp_path / "short.h5"
    with h5py.File(path, "w") as file:
        options = {"compression": "szip", "compression_opts": ("nn", 16), "shuffle": shuffle}
        made = file.create_dataset("x", data=data, chunks=(edge,), **options)
        whole = made.id.read_direct_chunk((edge,))[1]
        made.id.write_direct_chunk((edge,), whole[: len(whole) // 2])
        other = (len(data[:edge].tobytes()) // 2).to_bytes(4, "little")
        made.id.write_direct_chunk((2 * edge,), other + whole[4:])
    with opened(path) as source:
        found = array(source, "x")
        for index in (0, 3):
            assert decoded(found, (index,)) == data[index * edge :][:edge].tobytes()
        for index in (1, 2):
            with pytest.raises(CorruptData, match=rf"szip data of .* bytes where {data[:edge].nbytes} are expected"):
                decoded(found, (index,))


def test_p2_szip_data_shorter_than_their_header_are_damage(tmp_path: Path) -> None:
    """Two bytes that spell the chunk's size: the rest would have an impossible length."""
    path = tmp_path / "short.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("x", data=np.zeros(4096, "u1"), chunks=(4096,), compression="szip")
        made.id.write_direct_chunk((0,), (4096).to_bytes(2, "little"))
    with opened(path) as source, pytest.raises(CorruptData, match="szip data of no known number of bytes"):
        decoded(array(source, "x"), (0,))


class Asked:
    """A dataset that records the questions that a chunk with LZF or szip may cost; each question takes the same time."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.questions: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name not in ("get_type", "read_direct_chunk"):
            raise AssertionError(f"{name} looks at all chunks")
        self.questions.append(name)
        return getattr(self._dataset, name)


@pytest.mark.parametrize(
    "options", [{"compression": "lzf"}, {"compression": "szip"}, {"compression": "lzf", "shuffle": True}], ids=str
)
def test_an_lzf_or_szip_chunk_costs_one_look(tmp_path: Path, options: dict[str, Any]) -> None:
    """Stored chunks, chunks that skipped the filters, and missing ones: HDF5 reads the latter two."""
    with h5py.File(tmp_path / "f.h5", "w") as file:
        made = file.create_dataset("x", (40, 40), "<i4", chunks=(8, 8), fillvalue=5, **options)
        made[:8, :8] = np.arange(64).reshape(8, 8) // 7
        made[8:16, :8] = 1
        made.id.write_direct_chunk((16, 16), made[:8, :8].tobytes(), 0xFFFF)
        plist = made.id.get_create_plist()
        for start, is_measured in (((0, 0), True), ((8, 0), True), ((16, 16), False), ((32, 8), False)):
            asked = Asked(made.id)
            found = chunks.decode_lzf_or_szip(asked, plist, start)
            assert asked.questions == ["get_type", "read_direct_chunk"]
            assert (found is not None) == is_measured
            if found is not None:
                expected = made[start[0] : start[0] + 8, start[1] : start[1] + 8]
                assert np.ascontiguousarray(found).tobytes() == expected.tobytes()
        with pytest.raises(H5_ERRORS):
            made.id.read_direct_chunk((32, 8))


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"fletcher32": True}, {"shuffle": True, "fletcher32": True}])
def test_lzf_is_decoded_with_other_filters(tmp_path: Path, options: dict[str, bool]) -> None:
    data = np.zeros((40, 60), "<i4")
    data[::3] = 7
    path = tmp_path / "lzf.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=data, chunks=(16, 16), compression="lzf", **options)
        file.create_dataset("sparse", (40, 60), "<i4", chunks=(16, 16), compression="lzf", fillvalue=5, **options)[
            20:30, :20
        ] = 1
    with opened(path) as source, h5py.File(path) as file:
        np.testing.assert_array_equal(values(array(source, "x")), data)
        np.testing.assert_array_equal(values(array(source, "sparse")), file["sparse"][()])


def test_fletcher32_is_verified(tmp_path: Path) -> None:
    """One flipped bit in a chunk costs that chunk, and no other."""
    path = tmp_path / "damaged.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=DATA["<i4"], chunks=CHUNKS, fletcher32=True)
    with opened(path) as source:
        location = array(source, "x").chunks.find((1, 1)).location
    raw = bytearray(path.read_bytes())
    raw[location.address + 5] ^= 1
    path.write_bytes(raw)
    with opened(path) as source:
        found = array(source, "x")
        for index in stored(found):
            out = memoryview(bytearray(found.metadata.chunk_bytes(index) or 0))
            info = found.chunks.find(index)
            if index != (1, 1):
                found.chunks.read_into(index, info, out)
                continue
            with pytest.raises(CorruptData, match=r"damaged.h5:/x chunk \[1, 1\].*fletcher32"):
                found.chunks.read_into(index, info, out)


def test_unknown_filter_is_unsupported(tmp_path: Path) -> None:
    """JPEG (32019), for which no plug-in exists: metadata is shown, and reading a chunk names the missing filter."""
    path = tmp_path / "jpeg.h5"
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((10,))
        plist.set_filter(32019, h5py.h5z.FLAG_OPTIONAL, (1, 2))
        dataset = h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((20,)), plist)
        dataset.write_direct_chunk((0,), b"compressed?")
        dataset.write_direct_chunk((10,), np.arange(10, dtype="<i4").tobytes(), filter_mask=1)
    with opened(path) as source:
        found = array(source, "x")
        out = memoryview(bytearray(40))
        with pytest.raises(Unsupported, match=r"jpeg.h5:/x chunk \[0\].*JPEG \(32019\).*--hdf5-plugins"):
            found.chunks.read_into((0,), found.chunks.find((0,)), out)
        found.chunks.read_into((1,), found.chunks.find((1,)), out)
        assert np.frombuffer(out, "<i4").tolist() == list(range(10))
        assert found.metadata.codec == "32019"


def test_wrong_stored_sizes_are_corrupt(tmp_path: Path) -> None:
    """An unfiltered chunk that differs in size from the array's chunks is refused."""
    path = tmp_path / "short.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (20,), "<i4", chunks=(10,), compression="gzip")
        dataset.id.write_direct_chunk((0,), bytes(39), filter_mask=1)
    with opened(path) as source:
        found = array(source, "x")
        info = found.chunks.find((0,))
        with pytest.raises(CorruptData, match="39 bytes"):
            found.chunks.read_into((0,), info, memoryview(bytearray(40)))
        with pytest.raises(CorruptData, match="39 bytes"):
            found.chunks.read_range((0,), info, 0, 4)


HEAVY = {
    "blosc2": (32026, "<i4", hdf5plugin.Blosc2()),
    "zfp": (32013, "<f8", hdf5plugin.Zfp(reversible=True)),
    "sz3": (32024, "<f8", hdf5plugin.SZ3(absolute=1e-3)),
    "fcidecomp": (32018, "<u2", hdf5plugin.FciDecomp()),
}
"""Filters that only plug-ins decode: number, data type, how to ask for them."""


def write_heavy(path: Path) -> dict[str, Any]:
    """Write one dataset for each, and return what HDF5 reads with its plug-ins."""
    with h5py.File(path, "w") as file:
        for name, (_, dtype, options) in HEAVY.items():
            data = np.arange(DATA["<i4"].size).reshape(DATA["<i4"].shape).astype(dtype)
            file.create_dataset(name, data=data, chunks=CHUNKS, **options)
        return {name: file[name][()] for name in HEAVY}


def test_p5_plugins_of_the_installed_package_are_found(tmp_path: Path) -> None:
    """P5: with `hdf5plugin` installed beside fsbridge, its filters need no option."""
    expected = write_heavy(tmp_path / "heavy.h5")
    with opened(tmp_path / "heavy.h5") as source:
        for name, data in expected.items():
            np.testing.assert_array_equal(values(array(source, name)), data)
            assert array(source, name).metadata.refused is None


@pytest.fixture
def without_plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if `hdf5plugin` was not installed."""
    monkeypatch.setitem(sys.modules, hdf5plugin.__name__, None)
    find_plugins.cache_clear()
    yield
    find_plugins.cache_clear()


@pytest.mark.usefixtures("without_plugins")
def test_p5_plugins_come_from_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P5: if they are neither installed nor named, they are not found, whatever HDF5's variables say. The refusal helps."""
    expected = write_heavy(tmp_path / "heavy.h5")
    monkeypatch.setenv("HDF5_PLUGIN_PATH", hdf5plugin.PLUGIN_PATH)
    with opened(tmp_path / "heavy.h5") as source:
        for name, (number, _, _) in HEAVY.items():
            found = array(source, name)
            out = memoryview(bytearray(found.metadata.chunk_bytes((0, 0)) or 0))
            with pytest.raises(Unsupported, match=rf"(?i){name} \({number}\) needs a plug-in: .*pip install .?hdf5plugin"):
                found.chunks.read_into((0, 0), found.chunks.find((0, 0)), out)
            assert found.metadata.refused is not None
    with opened(tmp_path / "heavy.h5", hdf5_plugins=(hdf5plugin.PLUGIN_PATH,)) as source:
        for name, data in expected.items():
            np.testing.assert_array_equal(values(array(source, name)), data)


@pytest.mark.usefixtures("without_plugins")
def test_info_names_a_missing_filter_unless_its_plugin_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`fsbridge info` names the missing filter and exits with 1; with --hdf5-plugins it reports nothing."""
    write_heavy(tmp_path / "heavy.h5")
    command = ["fsbridge", "info", str(tmp_path / "heavy.h5")]
    assert cli.main(command) == 1
    assert "Blosc2 (32026) needs a plug-in" in capsys.readouterr().out
    assert cli.main([*command, "--hdf5-plugins", hdf5plugin.PLUGIN_PATH]) == 0


def tables_file(name: str) -> Path:
    """A file from PyTables' own tests."""
    return Path(tables.__file__).parent / "tests" / name


@pytest.mark.parametrize("name", ["Tables_lzo1", "Tables_lzo1_shuffle", "Tables_lzo2", "Tables_lzo2_shuffle"])
def test_lzo_of_old_pytables_files_is_decoded(name: str) -> None:
    """The tables that PyTables' tests expect: 100 rows, counted up and down. (Its wheels cannot read them themselves.)"""
    with opened(tables_file(f"{name}.h5")) as source:
        for path in ("tuple0", "group0/tuple1", "group0/group1/tuple2"):
            found = values(array(source, path))
            assert found["var2"].tolist() == list(range(100))
            assert found["var3"].tolist() == list(range(100, 0, -1))
            assert set(found["var1"].tolist()) == {b"    "}


def test_lzo_bombs_are_refused_and_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that could grow without end are not decoded; wrong lengths are corrupt; a missing library is named."""
    packed = lzallright.LZOCompressor().compress(bytes(100_000))
    assert lzo().decode(packed, 100_000, 1 << 20, None) == bytes(100_000)
    wrong = [(packed, 99_999), (packed, 100_001), (packed[:-4], 100_000), (b"x" * 300, 100), (packed + b"x", 100_000)]
    for data, size in wrong:
        with pytest.raises(CorruptData, match="LZO"):
            lzo().decode(data, size, 1 << 20, None)
    with pytest.raises(Unsupported, match="only up to"):
        lzo().decode(packed, 1 << 20, 1 << 20, None)
    monkeypatch.setitem(sys.modules, "lzallright", None)
    with pytest.raises(Unsupported, match=r"pip install .?lzallright"):
        table.filter_decoder(305, ())
