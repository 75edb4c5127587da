"""What hostile archives say is never believed. Not here: archives that zipfile and zarr write."""

from __future__ import annotations

import contextlib
import io
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zip_archives import EXAMPLES, LIMIT, archive, tree

from fsbridge.errors import CorruptData, FsbridgeError, NotFound, Unsupported
from fsbridge.store import ROOT, Key
from fsbridge.store.zip import ZipStore

# hostile archives


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "a//b", "./a", "a/./b", "..", "a/.."])
def test_names_that_lead_elsewhere_are_hidden(tmp_path: Path, name: str) -> None:
    store = ZipStore(str(archive(tmp_path / "x.zip", {"good": b"1", name: b"2"})))
    assert tree(store) == {"good": b"1"}
    assert store.hidden == 1


def test_names_with_nul_are_hidden(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.zip", {"good": b"1", "eviX": b"2"})
    path.write_bytes(path.read_bytes().replace(b"eviX", b"evi\0"))
    store = ZipStore(str(path))
    assert tree(store) == {"good": b"1"}
    assert store.hidden == 1


def test_a_directory_hides_the_file_of_its_name(tmp_path: Path) -> None:
    store = ZipStore(str(archive(tmp_path / "x.zip", {"c": b"file", "c/0": b"chunk", "c/0/x": b"deeper"})))
    assert tree(store) == {"c/0/x": b"deeper"}
    assert store.hidden == 2


def test_p6_directories_that_names_imply_take_no_memory(tmp_path: Path) -> None:
    """400 KB of an archive, names of 64 KB, took 3 GB; no path is as long as those."""
    path = archive(
        tmp_path / "x.zip", {f"{number}/{'a/' * 2000}x": b"" for number in range(50)} | {"a/" * 2100 + "x": b"", "y": b"1"}
    )
    tracemalloc.start()
    try:
        store = ZipStore(str(path), "")
        assert store.hidden == 1
        assert [entry.name for entry in store.list(Key("7/a/a"))] == ["a"]
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        link = zipfile.ZipInfo("link")
        link.create_system = 3
        link.external_attr = 0o120777 << 16
        file.writestr(link, "/etc/passwd")
        file.writestr("good", b"1")
    store = ZipStore(str(tmp_path / "x.zip"))
    with pytest.raises(Unsupported, match="link"):
        store.read(Key("link"), LIMIT)
    with pytest.raises(Unsupported, match="link"):
        store.stat(Key("link"))
    assert [(entry.name, entry.hidden) for entry in store.list(ROOT, stats=True)] == [("good", False), ("link", True)]
    assert None not in store.mtimes(ROOT, ["good", "link"])
    for behind in ("link/0", "link/0/1"):  # which is not known to be absent (P3)
        for look in (store.stat, lambda key: store.read(key, LIMIT), lambda key: store.read_range(key, 0, 1)):
            with pytest.raises(Unsupported, match="leads through a symbolic link"):
                look(Key(behind))
    with pytest.raises(NotFound):
        store.stat(Key("links/0"))
    assert store.read(Key("good"), LIMIT)[0] == b"1"


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_methods_are_named(tmp_path: Path, method: int) -> None:
    store = ZipStore(str(archive(tmp_path / "x.zip", {"a": b"1" * 100}, method)))
    with pytest.raises(Unsupported, match=f"a: has compression method {method}"):
        store.read(Key("a"), LIMIT)


def test_encrypted_members_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.zip", {"a": b"1"})
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(Unsupported, match="encrypted"):
        ZipStore(str(path)).read(Key("a"), LIMIT)


def write_patched(path: Path, content: bytes, method: int, **changes: int) -> Path:
    """An archive of one member `a` with other sizes or checksum in its central directory."""
    archive(path, {"a": content}, method)
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\1\2")
    for name, value in changes.items():
        struct.pack_into("<L", data, at + {"crc": 16, "stored": 20, "size": 24, "header": 42}[name], value)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        (zipfile.ZIP_STORED, {"crc": 1}),
        (zipfile.ZIP_DEFLATED, {"crc": 1}),
        (zipfile.ZIP_STORED, {"size": 99}),
        (zipfile.ZIP_STORED, {"size": 101}),
        (zipfile.ZIP_STORED, {"stored": 99, "size": 99}),
        (zipfile.ZIP_STORED, {"stored": 100_000, "size": 100_000}),
        (zipfile.ZIP_DEFLATED, {"size": 99}),
        (zipfile.ZIP_DEFLATED, {"size": 101}),
        (zipfile.ZIP_DEFLATED, {"size": 1_000_000}),
        (zipfile.ZIP_DEFLATED, {"stored": 3}),
        (zipfile.ZIP_DEFLATED, {"stored": 100}),
        (zipfile.ZIP_STORED, {"header": 5}),
        (zipfile.ZIP_STORED, {"header": 100_000}),
    ],
)
def test_false_sizes_and_checksums_are_damage(tmp_path: Path, method: int, changes: dict[str, int]) -> None:
    store = ZipStore(str(write_patched(tmp_path / "x.zip", b"z" * 100, method, **changes)))
    with pytest.raises(CorruptData, match=r"x\.zip/a"):
        store.read(Key("a"), LIMIT)
    last = changes.get("size", 100) - 1
    with contextlib.suppress(CorruptData):  # of a part no checksum tells
        assert store.read_range(Key("a"), last, 1)[0] == b"z"
        assert last < 100


def test_a_bomb_costs_no_more_than_it_declares(tmp_path: Path) -> None:
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = bytes(1 << 20)
    bomb = b"".join([*(stream.compress(piece) for _ in range(64)), stream.flush()])
    path = tmp_path / "x.zip"
    archive(path, {"a": bomb})
    data = bytearray(path.read_bytes())
    for signature, method_at, size_at in ((b"PK\3\4", 8, 22), (b"PK\1\2", 10, 24)):
        at = data.index(signature)
        struct.pack_into("<H", data, at + method_at, zipfile.ZIP_DEFLATED)
        struct.pack_into("<L", data, at + size_at, 1000)
    path.write_bytes(data)
    store = ZipStore(str(path))
    with pytest.raises(CorruptData, match="beyond the 1000 bytes declared"):
        store.read(Key("a"), LIMIT)
    with pytest.raises(CorruptData, match="beyond the 1000 bytes declared"):
        store.read_range(Key("a"), 0, 10)


def test_overlapping_members_are_refused(tmp_path: Path) -> None:
    """One run of bytes that several members claim, as in a quine bomb."""
    path = archive(tmp_path / "x.zip", {"a": b"1" * 50, "b": b"2" * 50, "c": b"3" * 50})
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\1\2")
    for offset in (20, 24):
        struct.pack_into("<L", data, at + offset, 120)
    path.write_bytes(data)
    store = ZipStore(str(path))
    with pytest.raises(CorruptData, match="overlap"):
        store.read(Key("a"), LIMIT)
    assert store.read(Key("b"), LIMIT)[0] == b"2" * 50
    assert store.read(Key("c"), LIMIT)[0] == b"3" * 50


def test_a_local_header_of_another_member_is_damage(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.zip", {"a": b"1", "b": b"2"})
    data = bytearray(path.read_bytes())
    first = data.index(b"PK\1\2")
    second = data.index(b"PK\1\2", first + 4)
    struct.pack_into("<L", data, first + 42, struct.unpack_from("<L", data, second + 42)[0])
    path.write_bytes(data)
    with pytest.raises(CorruptData):
        ZipStore(str(path)).read(Key("a"), LIMIT)


def test_members_in_each_other_s_place_are_damage(tmp_path: Path) -> None:
    """No checksum covers a part of a member: only the name in front of its bytes tells."""
    path = archive(tmp_path / "x.zip", {"a": b"1" * 50, "b": b"2" * 50})
    data = bytearray(path.read_bytes())
    first = data.index(b"PK\1\2") + 42
    second = data.index(b"PK\1\2", first) + 42
    data[first : first + 4], data[second : second + 4] = data[second : second + 4], data[first : first + 4]
    path.write_bytes(data)
    store = ZipStore(str(path))
    for name, other in ("ab", "ba"):
        with pytest.raises(CorruptData, match=f"its local header names b'{other}'"):
            store.read_range(Key(name), 10, 20)


@pytest.mark.parametrize("cut", [1, 10, 22, 30, 60, 100])
def test_a_truncated_archive_is_damage(tmp_path: Path, cut: int) -> None:
    path = archive(tmp_path / "x.zip", {"a": b"1", "b": b"2"})
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(CorruptData, match=r"x\.zip"):
        ZipStore(str(path))


def test_an_archive_in_several_parts_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.zip", {"a": b"1"})
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, data.index(b"PK\5\6") + 4, 1)
    path.write_bytes(data)
    with pytest.raises(Unsupported, match="several parts"):
        ZipStore(str(path))


def sample() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("a/b", b"12345" * 10)
        file.writestr("a/c", b"67890" * 30, zipfile.ZIP_DEFLATED)
        with file.open("d", "w", force_zip64=True) as member:
            member.write(b"zip64")
    return buffer.getvalue()


SAMPLE = sample()
EXPECTED = {"a/b": b"12345" * 10, "a/c": b"67890" * 30, "d": b"zip64"}


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=4), st.integers(0, 30))
def test_p2_a_mutated_archive_gives_the_written_bytes_or_an_error(
    tmp_path: Path, changes: list[tuple[int, int]], cut: int
) -> None:
    """Whole members that are read have the bytes that were written, as their checksums say; all else is an error of ours."""
    data = bytearray(SAMPLE)
    for position, value in changes:
        data[position] = value
    path = tmp_path / "x.zip"
    path.write_bytes(data[: len(data) - (cut if cut < 5 else 0)])
    try:
        store = ZipStore(str(path))
        entries = [*store.list(ROOT), *(store.list(Key("a")) if store.stat(Key("a")).is_dir else [])]
    except FsbridgeError:
        return
    for entry in entries:
        for key in (ROOT / entry.name, Key("a") / entry.name):
            try:
                content = store.read(key, LIMIT)[0]
                assert store.read_range(key, len(content) // 2, 1)[0] == content[len(content) // 2 :][:1]
            except FsbridgeError:
                continue
            assert content in EXPECTED.values()
