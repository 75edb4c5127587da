"""What Icechunk's own library would not read or write is refused with a reason, and never shown as absent."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import icechunk
import icechunk_data
import pytest
import zarr
from icechunk_data import write
from model_reader import array_at, group_at

from fsbridge.config import MIB, Config
from fsbridge.errors import CorruptData, Unsupported
from fsbridge.formats.icechunk.manifests import Inline, Manifest, ManifestTable, Native, _inside
from fsbridge.formats.icechunk.records import HEADER_BYTES, Payload, spell, unwrap
from fsbridge.formats.open import open_source
from fsbridge.store.remote.urls import parse_url


@pytest.mark.parametrize(
    "encoding",
    [{"name": "default", "separator": "."}, {"name": "v2", "separator": "."}, {"name": "v2", "separator": "/"}],
)
def test_p3_chunk_keys_that_icechunk_does_not_take_are_refused(tmp_path: Path, encoding: Any) -> None:
    """It knows coordinates only, so under other keys all chunks would seem absent. Icechunk refuses each of them."""
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)))
    session = repository.writable_session("main")
    group = zarr.group(session.store)
    group.create_array("good", shape=(4, 4), chunks=(2, 2), dtype="i4")[...] = 1
    other: Any = group.create_array("other", shape=(4, 4), chunks=(2, 2), dtype="i4", chunk_key_encoding=encoding)
    with pytest.raises(icechunk.IcechunkError):
        other[...] = 1
    session.commit("one")
    source = open_source(str(tmp_path), Config(str(tmp_path), "/nowhere"))
    try:
        main = group_at(source.root, "branches/main")
        assert sorted(child.name for child in main.children()) == ["good", "other"]
        with pytest.raises(Unsupported, match="spelled c/0/1"):
            main.child("other")
        assert array_at(main, "good").chunks.count() == 4
    finally:
        source.close()


def table(changes: dict[int, bytes]) -> ManifestTable:
    """The chunks of a manifest of three, with other bytes at some positions."""
    data = bytearray(icechunk_data.manifest(3, 1))
    for position, content in changes.items():
        data[position : position + len(content)] = content
    return Manifest(Payload(memoryview(bytes(data)), 1), spell(b"M" * 12)).table(b"N" * 8, 1)


LAST = len(icechunk_data.manifest(3, 1)) - 44
"""Where the last chunk's row begins. All rows have one layout, which begins at byte 4; field n is at byte 8 + 2 n."""
INLINE, PLACE = 8 + 2 * 1, 8 + 2 * 4


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({PLACE: bytes(2)}, "has no place, or two"),
        ({INLINE: struct.pack("<H", 4)}, "has no place, or two"),
        ({LAST + 8: struct.pack("<Q", 2**62 + 1)}, "impossible size"),
        ({LAST + 16: struct.pack("<Q", 2**64 - 1)}, "impossible size"),
    ],
)
def test_p8_a_chunk_in_two_places_or_none_is_damage(changes: dict[int, bytes], reason: str) -> None:
    with pytest.raises(CorruptData, match=reason):
        table(changes).chunk(2)


def test_a_chunk_is_where_its_row_says() -> None:
    assert table({}).chunk(2) == Native(spell(b"C" * 12), 2, 1000)
    assert table({LAST + 16: struct.pack("<Q", 2**62)}).chunk(2) == Native(spell(b"C" * 12), 2, 2**62)
    inside = table({PLACE: bytes(2), INLINE: struct.pack("<H", 4)}).chunk(0)
    assert inside == Inline(bytes(1)), "the one byte after the length of its coordinates, which stand there instead"


@pytest.mark.parametrize(
    ("position", "value", "error"),
    [
        (0, 0, CorruptData),
        (11, 0, CorruptData),
        (HEADER_BYTES - 3, 0, Unsupported),
        (HEADER_BYTES - 3, 3, Unsupported),
        (HEADER_BYTES - 2, 2, CorruptData),
        (HEADER_BYTES - 1, 2, Unsupported),
        (HEADER_BYTES + 1, 0, CorruptData),
    ],
)
def test_an_envelope_that_is_not_icechunk_s_is_refused(tmp_path: Path, position: int, value: int, error: Any) -> None:
    write(tmp_path / "r", 1)
    data = bytearray(next((tmp_path / "r" / "snapshots").iterdir()).read_bytes())
    assert len(unwrap(bytes(data), "snapshot", MIB).data) > 100
    data[position] = value
    with pytest.raises(error):
        unwrap(bytes(data), "snapshot", MIB)
    with pytest.raises(CorruptData):
        unwrap(bytes(data[: HEADER_BYTES - 1]), "snapshot", MIB)


@pytest.mark.parametrize(
    ("location", "key"),
    [
        ("s3://bucket/data/a%20b/c", "a b/c"),
        ("s3://bucket/data/", None),
        ("s3://bucket/data", None),
        ("s3://bucket/database/c", None),
        ("s3://other/data/c", None),
        ("gs://bucket/data/c", None),
        ("https://bucket/data/c", None),
    ],
)
def test_p4_virtual_chunks_lie_below_what_is_allowed(location: str, key: str | None) -> None:
    assert _inside(parse_url("s3://bucket/data"), parse_url(location)) == key
