"""Zip archives as stores: what zipfile and zarr write reads back. Not here: hostile archives (`test_directory.py`)."""

from __future__ import annotations

import os
import struct
import threading
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from descriptors import list_descriptors
from hypothesis import given, settings
from hypothesis import strategies as st
from model_reader import read_array
from waiting import until
from zip_archives import EXAMPLES, LIMIT, Content, archive, tree

from fsbridge.config import Config
from fsbridge.errors import CorruptData, FsbridgeError, IsADirectory, NotFound, SetupError, Stale, TooLarge, Unsupported
from fsbridge.formats.open import Opening, open_source
from fsbridge.lru import LRU
from fsbridge.store import ROOT, Key
from fsbridge.store.blobs import LocalBlob, LocalFile
from fsbridge.store.zip import Inflater, OpenArchives, ZipStore

CONTENT: Content = {
    "zarr.json": b"{}",
    "a/zarr.json": b"[1]" * 100,
    "a/c/0/0": os.urandom(3000),
    "a/c/0/1": bytes(5000),
    "a/c/10/0": b"",
    "a-b/x": b"sibling",
    "é/ü": b"utf-8",
}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_all_members_are_listed_and_read(tmp_path: Path, method: int) -> None:
    store = ZipStore(str(archive(tmp_path / "x.zip", CONTENT, method)))
    assert tree(store) == CONTENT
    assert [entry.name for entry in store.list(ROOT)] == ["a-b", "a", "zarr.json", "é"]
    assert [entry.name for entry in store.list(Key("a"))] == ["c", "zarr.json"]
    assert store.hidden == 0
    assert store.describe(Key("a/c")) == str(tmp_path / "x.zip/a/c")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_range_of_a_member_is_exact_or_an_error(tmp_path: Path, method: int) -> None:
    data = bytes(range(256)) * 40 + os.urandom(5000)
    store = ZipStore(str(archive(tmp_path / "x.zip", {"d/f": data}, method)))
    key = Key("d/f")
    for start, length in [(0, 0), (0, 1), (1, 255), (5000, 5000), (0, len(data)), (len(data) - 1, 1), (len(data), 0)]:
        assert store.read_range(key, start, length)[0] == data[start : start + length]
    assert store.read_range(key, -20, 20)[0] == data[-20:]
    for start, length in [(0, len(data) + 1), (-len(data) - 1, 1), (5, -1), (-3, 4)]:
        with pytest.raises(CorruptData, match="d/f"):
            store.read_range(key, start, length)
    assert store.read_range(key, 0, 1)[1].version == store.stat(key).version


def test_a_range_of_a_large_deflated_member_reads_little(tmp_path: Path) -> None:
    """Inflating begins at a state kept before the range, in any order of ranges."""
    rng = np.random.default_rng(0)
    data = rng.integers(0, 4, 11 << 20, dtype=np.uint8).tobytes()
    path = archive(tmp_path / "x.zip", {"f": data, "g": data[::-1]}, zipfile.ZIP_DEFLATED, 1)
    reads: list[int] = []

    class CountedBlob(LocalBlob):
        def pread(self, start: int, length: int) -> bytes:
            reads.append(length)
            return super().pread(start, length)

    class CountedFile(LocalFile):
        def open(self) -> LocalBlob:
            return CountedBlob(self.name)

    store = ZipStore(CountedFile(str(path)))
    for start in rng.integers(0, len(data) - 5000, 20).tolist():
        for name, expected in (("f", data), ("g", data[::-1])):
            assert store.read_range(Key(name), start, 5000)[0] == expected[start : start + 5000]
    assert store.read_range(Key("f"), -10, 10)[0] == data[-10:]
    reads.clear()
    assert store.read_range(Key("f"), 10 << 20, 100)[0] == data[10 << 20 :][:100]
    assert sum(reads) < 2 << 20
    assert store.read(Key("g"), 1 << 30)[0] == data[::-1]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_any_range_of_any_stream_is_exact_or_an_error(data: st.DataObject) -> None:
    """With tiny pieces and steps, so that every boundary is met: the bytes, or an error for any other size."""
    unit = data.draw(st.binary(min_size=1, max_size=20))
    content = (unit * 400)[: data.draw(st.integers(0, 400))]
    stream = zlib.compressobj(data.draw(st.integers(0, 9)), zlib.DEFLATED, -15)
    deflated = stream.compress(content) + stream.flush()
    piece_bytes, step_bytes = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 100))
    inflater = Inflater(lambda start, length: deflated[start : start + length], LRU(8), piece_bytes, step_bytes)
    for _ in range(5):
        start = data.draw(st.integers(0, len(content)))
        length = data.draw(st.integers(0, len(content) - start))
        assert inflater.range(0, len(deflated), len(content), start, length) == content[start : start + length]
    for size in (len(content) + 1, len(content) - 1):
        if size >= 0:
            with pytest.raises(CorruptData):
                inflater.range(0, len(deflated), size, 0, size)
    with pytest.raises(CorruptData):
        inflater.range(0, len(deflated) - 1, len(content), 0, len(content))
    deflated += b"behind"
    assert inflater.range(0, len(deflated) - 6, len(content), 0, len(content)) == content
    with pytest.raises(CorruptData):
        inflater.range(0, len(deflated), len(content), 0, len(content))


def test_states_of_inflating_are_limited() -> None:
    data = bytes(12 << 20)
    stream = zlib.compressobj(1, zlib.DEFLATED, -15)
    deflated = stream.compress(data) + stream.flush()
    states: LRU[tuple[object, int, int], Any] = LRU(3)
    for _ in range(2):  # of all archives together
        inflater = Inflater(lambda start, length: deflated[start % 2**20 :][:length], states)
        for member in range(3):
            assert inflater.range(member << 20, len(deflated), len(data), 0, len(data)) == data
            assert inflater.range(member << 20, len(deflated), len(data), 9 << 20, 10) == bytes(10)
    assert states.used == 3


def test_p6_a_state_of_inflating_holds_no_input() -> None:
    """Each kept up to a MiB that the decompressor had been given and not come to: an archive's took 256 MiB, not 12."""
    part = np.random.default_rng(0).bytes(1 << 16) + bytes((1 << 20) - (1 << 16))
    stream = zlib.compressobj(1, zlib.DEFLATED, -15)
    deflated = b"".join(stream.compress(part) for _ in range(64)) + stream.flush()
    inflater = Inflater(lambda start, length: deflated[start:][:length], LRU(256))
    tracemalloc.start()
    try:
        assert inflater.range(0, len(deflated), 64 << 20, (64 << 20) - 10, 10) == bytes(10)
        assert tracemalloc.get_traced_memory()[0] < 16 * (64 << 10)
    finally:
        tracemalloc.stop()


def test_what_is_not_in_the_archive_is_not_found(tmp_path: Path) -> None:
    store = ZipStore(str(archive(tmp_path / "x.zip", CONTENT)))
    for key in ("nothing", "a/c/0/2", "a/c/0/0/x", "a/c/1", "zarr.json/x"):
        with pytest.raises(NotFound):
            store.stat(Key(key))
        with pytest.raises(NotFound):
            store.read(Key(key), LIMIT)
        with pytest.raises(NotFound):
            next(store.list(Key(key)))
    with pytest.raises(IsADirectory):
        store.read(Key("a/c"), LIMIT)
    with pytest.raises(NotFound):
        next(store.list(Key("zarr.json")))
    with pytest.raises(TooLarge):
        store.read(Key("a/c/0/1"), 4999)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_trap_12_the_last_of_equal_names_counts(tmp_path: Path) -> None:
    """Trap 12: zarr's ZipStore writes a chunk again under the same name."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        for data in (b"first", b"second", b"the third"):
            file.writestr("zarr.json", data)
            file.writestr("c/0", data * 2)
    store = ZipStore(str(tmp_path / "x.zip"))
    assert tree(store) == {"zarr.json": b"the third", "c/0": b"the third" * 2}


def test_archives_with_64_bit_sizes_are_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in CONTENT.items():
            with file.open(name, "w", force_zip64=True) as member:
                member.write(data)
    assert tree(ZipStore(str(tmp_path / "x.zip"))) == CONTENT


def beyond_4_gib(path: Path) -> Path:
    """An archive beyond 4 GiB, almost all of it a hole in the file."""
    after = zipfile.ZipInfo("after")
    after.extra = TIMES
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("before", b"one")
        assert file.fp is not None
        file.start_dir = 5 << 30
        file.fp.seek(5 << 30)
        file.writestr(after, b"two")
    return path


TIMES = struct.pack("<2HBL", 0x5455, 5, 1, 1700000000)
"""Info-ZIP's extra field of an extended timestamp."""


def test_members_beyond_4_gib_are_read(tmp_path: Path) -> None:
    assert tree(ZipStore(str(beyond_4_gib(tmp_path / "x.zip")))) == {"before": b"one", "after": b"two"}


def test_a_zip64_field_behind_another_one_is_read(tmp_path: Path) -> None:
    path = beyond_4_gib(tmp_path / "x.zip")
    large = struct.pack("<2HQ", 1, 8, 5 << 30)
    with path.open("r+b") as file:
        file.seek(5 << 30)
        end = file.read()
        assert large + TIMES in end
        file.seek(5 << 30)
        file.write(end.replace(large + TIMES, TIMES + large))
    with zipfile.ZipFile(path) as file:
        assert file.read("after") == b"two"
    assert tree(ZipStore(str(path))) == {"before": b"one", "after": b"two"}


@pytest.mark.parametrize(
    ("record", "at", "form", "value", "error"),
    [
        (b"PK\6\7", 4, "<L", 1, Unsupported),  # the locator: the end record's disk, its offset, the number of disks
        (b"PK\6\7", 8, "<Q", 1 << 40, CorruptData),
        (b"PK\6\7", 8, "<Q", 0, CorruptData),
        (b"PK\6\7", 16, "<L", 2, Unsupported),
        (b"PK\6\6", 16, "<L", 1, Unsupported),  # the end record: disks, entries, length and offset of the directory
        (b"PK\6\6", 20, "<L", 1, Unsupported),
        (b"PK\6\6", 24, "<Q", 1, Unsupported),
        (b"PK\6\6", 32, "<Q", 3, Unsupported),
        (b"PK\6\6", 40, "<Q", 1 << 33, CorruptData),
        (b"PK\6\6", 48, "<Q", 6 << 30, CorruptData),
    ],
)
def test_a_zip64_end_record_that_lies_is_refused(
    tmp_path: Path, record: bytes, at: int, form: str, value: int, error: type[FsbridgeError]
) -> None:
    path = beyond_4_gib(tmp_path / "x.zip")
    with path.open("r+b") as file:
        file.seek(5 << 30)
        file.seek((5 << 30) + file.read().rindex(record) + at)
        file.write(struct.pack(form, value))
    with pytest.raises(error):
        ZipStore(str(path))


@pytest.mark.parametrize(("at", "value", "error"), [(8, 3, Unsupported), (10, 3, Unsupported), (12, 999, CorruptData)])
def test_an_end_record_that_lies_is_refused(tmp_path: Path, at: int, value: int, error: type[FsbridgeError]) -> None:
    path = archive(tmp_path / "x.zip", {"a": b"1", "b": b"2"})
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, data.index(b"PK\5\6") + at, value)
    path.write_bytes(data)
    with pytest.raises(error):
        ZipStore(str(path))


def test_fewer_entries_than_announced_are_damage(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.zip", {"a": b"1", "b": b"2"})
    data = bytearray(path.read_bytes())
    struct.pack_into("<2H", data, data.index(b"PK\5\6") + 8, 3, 3)
    path.write_bytes(data)
    with pytest.raises(CorruptData, match="2 entries"):
        ZipStore(str(path))


def test_more_members_than_16_bits_count_are_all_there(tmp_path: Path) -> None:
    """Writers without zip64 let the number of entries overflow."""
    count = 66000
    local, central = bytearray(), bytearray()
    for number in range(count):
        name = b"c/%d/%d" % divmod(number, 1000)
        header = struct.pack("<4H3L2H", 0, 0, 0, 0, 0, 0, 0, len(name), 0)
        central += b"PK\1\2\0\0\0\0" + header + bytes(10) + struct.pack("<L", len(local)) + name
        local += b"PK\3\4\0\0" + header + name
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count & 0xFFFF, count & 0xFFFF, len(central), len(local), 0)
    (tmp_path / "x.zip").write_bytes(local + central + end)
    store = ZipStore(str(tmp_path / "x.zip"))
    assert sum(1 for row in store.list(Key("c")) for _ in store.list(Key("c") / row.name)) == count
    assert store.read(Key("c/65/999"), LIMIT)[0] == b""


def test_stored_directories_and_comments_are_understood(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.mkdir("empty")
        file.mkdir("full")
        file.writestr("full/f", b"1")
        file.comment = b"a comment with PK\5\6 in it" + bytes(40)
    store = ZipStore(str(tmp_path / "x.zip"))
    assert [(entry.name, entry.is_dir) for entry in store.list(ROOT)] == [("empty", True), ("full", True)]
    assert list(store.list(Key("empty"))) == []
    assert tree(store) == {"full/f": b"1"}


def test_files_and_directories_as_zip_packs_them_are_listed(tmp_path: Path) -> None:
    """With the types and modes of a file system, which Python leaves out for what it packs from memory."""
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/f").write_bytes(b"1")
    (tmp_path / "d/f").chmod(0o4755)
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        for name in ("d", "d/e", "d/f"):
            file.write(tmp_path / name, name)
        assert [member.external_attr >> 28 for member in file.infolist()] == [4, 4, 8]
    store = ZipStore(str(tmp_path / "x.zip"))
    assert [(entry.name, entry.is_dir) for entry in store.list(Key("d"))] == [("e", True), ("f", False)]
    assert tree(store) == {"d/f": b"1"}


def test_an_empty_archive_is_an_empty_store(tmp_path: Path) -> None:
    zipfile.ZipFile(tmp_path / "x.zip", "w").close()
    assert tree(ZipStore(str(tmp_path / "x.zip"))) == {}


@pytest.mark.parametrize(
    ("archive_name", "names", "base"),
    [
        ("brain.zarr.zip", ["brain.zarr/zarr.json", "brain.zarr/c/0"], "brain.zarr"),
        ("brain.zip", ["brain/zarr.json"], "brain"),
        ("brain.zip", ["other.n5/attributes.json"], "other.n5"),
        ("brain.zip", ["raw/zarr.json"], ""),
        ("brain.zip", ["brain/zarr.json", "README"], ""),
        ("brain.zip", ["brain/zarr.json", "more/zarr.json"], ""),
        ("brain.zip", ["brain"], ""),
    ],
)
def test_a_single_top_directory_named_like_the_archive_is_the_root(
    tmp_path: Path, archive_name: str, names: list[str], base: str
) -> None:
    path = archive(tmp_path / archive_name, dict.fromkeys(names, b"x"))
    prefix = f"{base}/" if base else ""
    assert sorted(tree(ZipStore(str(path), suffixes=(".n5",)))) == sorted(name.removeprefix(prefix) for name in names)
    assert sorted(tree(ZipStore(str(path), base=""))) == sorted(names)


# changes


def test_p7_a_fifo_in_place_of_the_archive_is_no_archive(tmp_path: Path) -> None:
    """Opening one waits for its writer, and so do all other readers."""
    path = archive(tmp_path / "a.zip", CONTENT)
    store = ZipStore(str(path))
    path.unlink()
    os.mkfifo(path)
    told: list[type[Exception]] = []  # an error would keep the descriptors of its frames

    def look() -> None:
        try:
            store.stat(ROOT)
        except (FsbridgeError, OSError) as error:
            told.append(type(error))

    threading.Thread(target=look, daemon=True).start()
    until(lambda: told, 5)
    assert told == [CorruptData]


def test_a_replaced_archive_is_noticed(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.zip", {"a": b"old", "b": b"1"})
    store = ZipStore(str(path))
    before = store.stat(Key("a")).version
    archive(tmp_path / "new.zip", {"a": b"new", "c": b"2"}).rename(path)
    assert store.stat(Key("a")).version != before
    assert tree(store) == {"a": b"new", "c": b"2"}
    path.write_bytes(b"PK\3\4 nothing")
    for _ in range(2):
        with pytest.raises(CorruptData):
            store.read(Key("a"), LIMIT)
    path.unlink()
    with pytest.raises(Stale):
        store.stat(ROOT)
    archive(path, {"z": b""})
    assert tree(store) == {"z": b""}


def test_p11_each_archive_has_one_descriptor(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.zip", CONTENT)
    store = ZipStore(str(path))
    for number in range(5):
        archive(tmp_path / "new.zip", {"a": b"%d" % number}).rename(path)
        assert tree(store) == {"a": b"%d" % number}
    assert list_descriptors(tmp_path) == [str(path)]
    store.close()
    assert list_descriptors(tmp_path) == []


# zarr's own archives


@pytest.mark.parametrize("shards", [None, (4, 4)])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_archives_of_zarr_python_are_read(tmp_path: Path, shards: Any, compression: int) -> None:
    data = np.arange(81, dtype="i4").reshape(9, 9)
    with zarr.storage.ZipStore(tmp_path / "x.zip", mode="w", compression=compression) as written:
        group = zarr.create_group(written, attributes={"k": 1})
        array = group.create_array("deep/a", shape=data.shape, chunks=(2, 2), shards=shards, dtype="i4", fill_value=-1)
        array[:6] = data[:6]
    source = Opening().open_in_store("zarr3", ZipStore(str(tmp_path / "x.zip")), Config("", ""))
    root: Any = source.root
    assert root.attributes() == {"k": 1}
    found = root.child("deep").child("a")
    expected = np.where(np.arange(9)[:, None] < 6, data, -1)
    np.testing.assert_array_equal(read_array(found), expected)
    source.close()


def test_an_archive_that_cannot_be_read_is_named_once(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.zip", {"zarr.json": b"{}"})
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(SetupError) as caught:
        open_source(str(path), Config(str(path), ""))
    assert str(caught.value).count(str(path)) == 1


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zarr_2_archives_written_in_pieces_are_read(tmp_path: Path, compression: int) -> None:
    """Each write to a chunk adds a member of the same name."""
    with zarr.storage.ZipStore(tmp_path / "x.zip", mode="w", compression=compression) as written:
        array = zarr.create_array(written, name="a", shape=(6, 4), chunks=(3, 4), dtype=">i2", zarr_format=2, order="F")
        for row in range(6):
            array[row] = np.arange(4) + 10 * row
    source: Any = open_source(str(tmp_path / "x.zip"), Config("", ""))
    assert source.format.name == "zarr2"
    np.testing.assert_array_equal(read_array(source.root.child("a")), np.arange(4) + 10 * np.arange(6)[:, None])
    source.close()


def test_p3_names_with_backslashes_are_paths(tmp_path: Path) -> None:
    """.NET before 4.6.1 wrote them: all of the store would seem to be missing. A backslash beside slashes is a letter."""
    path = archive(tmp_path / "x.zip", {"good/a": b"1", "x|y|z": b"2", "good/x|z": b"3", "..|x|": b"4"})
    path.write_bytes(path.read_bytes().replace(b"|", b"\\"))
    store = ZipStore(str(path), "")
    assert tree(store) == {"good/a": b"1", "x/y/z": b"2", "good/x\\z": b"3"}
    assert store.hidden == 1


def test_p11_descriptors_of_many_archives_are_bounded(tmp_path: Path) -> None:
    """A collection of as many zip files as a process may have descriptors took the whole mount with it."""
    shared = OpenArchives(most=3)
    stores = [ZipStore(str(archive(tmp_path / f"{n}.zip", {"a": b"%d" % n})), shared=shared) for n in range(9)]
    for _ in range(2):
        for number, store in enumerate(stores):
            assert store.read(Key("a"), 10)[0] == b"%d" % number
        assert len(list_descriptors(tmp_path)) <= 3
    with stores[4]._lock:  # no caller waits for one that is being opened
        shared.close()
    assert stores[4].read(Key("a"), 10)[0] == b"4"
