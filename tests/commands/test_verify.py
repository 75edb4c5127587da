"""`fsbridge verify`: well where all is well, and each kind of damage named."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import forking
import h5py
import hangar_data
import icechunk_data
import lmdb
import numpy as np
import pytest
import zarr
from fake_s3 import FakeS3
from in_process import fsbridge
from source_places import upload, write_all, write_each


@pytest.fixture
def each(tmp_path: Path) -> dict[str, Path]:
    return write_each(tmp_path)


def verify(*words: str | os.PathLike[str], timeout: float = 300) -> tuple[int, list[dict[str, object]], str]:
    done = fsbridge("verify", "--json", *words, timeout=timeout)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_all_is_well_in_every_format_and_place(each: dict[str, Path], server: FakeS3) -> None:
    for name, path in each.items():
        code, found, said = verify(path)
        assert (code, found) == (0, []), name
        assert "2 groups, 1 arrays" in said
        assert "all is well" in said
    for url in upload(server, each).values():
        assert verify(url, *server.options)[:2] == (0, []), url


def test_p3_no_writers_store_is_called_damaged(tmp_path: Path) -> None:
    code, found, _ = verify(write_all(tmp_path / "stores"))
    assert (code, found) == (0, [])


def damaged_chunk(path: Path) -> None:
    (path / "a/b/c/1/1/0").write_bytes(b"damage")


def cut_chunk(path: Path) -> None:
    chunk = path / "a/b/c/1/1/0"
    chunk.write_bytes(chunk.read_bytes()[:-3])


def chunk_outside(path: Path) -> None:
    (path / "a/b/c/9").mkdir()
    (path / "a/b/c/9/0").mkdir()
    (path / "a/b/c/9/0/0").write_bytes(b"")


def odd_name(path: Path) -> None:
    (path / "a/b/c/0/0/01").write_bytes(b"")


def document(path: Path) -> None:
    (path / "a/b/zarr.json").write_text("{")


def unknown_codec(path: Path) -> None:
    text = (path / "a/b/zarr.json").read_text()
    (path / "a/b/zarr.json").write_text(text.replace('"zstd"', '"nonsense"'))


def stale_copy(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in Zarr v3 it is no part of the specification
        zarr.consolidate_metadata(path)
    values = json.loads((path / "a/b/zarr.json").read_text())
    values["attributes"] = {"new": 1}
    (path / "a/b/zarr.json").write_text(json.dumps(values))


def directory_as_chunk(path: Path) -> None:
    (path / "a/b/c/1/1/0").unlink()
    (path / "a/b/c/1/1/0").mkdir()


@pytest.mark.parametrize(
    ("harm", "kind", "place", "chunk", "text"),
    [
        (damaged_chunk, "damaged", "/a/b", [1, 1, 0], "c/1/1/0"),
        (cut_chunk, "damaged", "/a/b", [1, 1, 0], "c/1/1/0"),
        (chunk_outside, "inconsistent", "/a/b", None, "c/9: a directory where no chunk can be"),
        (odd_name, "inconsistent", "/a/b", None, "c/0/0/01: not a chunk of a grid of [3, 3, 1]"),
        (document, "damaged", "/a/b", None, "zarr.json"),
        (unknown_codec, "unsupported", "/a/b", None, "nonsense"),
        (stale_copy, "inconsistent", "/", None, "a copy of a/b that is not what is stored there"),
        (directory_as_chunk, "damaged", "/a/b", [1, 1, 0], "a directory in place of a chunk"),
    ],
)
def test_each_kind_of_damage_is_found(
    harm: Callable[[Path], None], kind: str, place: str, chunk: list[int] | None, text: str, each: dict[str, Path]
) -> None:
    harm(each["zarr3"])
    code, found, said = verify(each["zarr3"])
    assert (code, len(found)) == (1, 1), found
    assert (found[0]["kind"], found[0]["path"], found[0].get("chunk")) == (kind, place, chunk)
    assert text in str(found[0]["reason"])
    assert "1 findings" in said


def test_a_shard_with_a_wrong_index_is_reported(each: dict[str, Path]) -> None:
    shard = each["sharded"] / "a/b/c/0/0/0"
    data = bytearray(shard.read_bytes())
    data[-10] ^= 1
    shard.write_bytes(data)
    code, found, _ = verify(each["sharded"])
    assert code == 1
    assert {one["kind"] for one in found} == {"damaged"}
    assert all("c/0/0/0" in str(one["reason"]) for one in found)


def test_copies_that_spell_out_what_goes_without_saying_are_well(each: dict[str, Path]) -> None:
    """Neuroglancer's test data have such shards."""
    stale_copy(each["zarr3"])  # then made to differ in nothing but spelling
    own = json.loads((each["zarr3"] / "a/b/zarr.json").read_text())
    own.pop("storage_transformers", None)
    own.update(attributes={}, chunk_key_encoding={"name": "default"})
    (each["zarr3"] / "a/b/zarr.json").write_text(json.dumps(own))
    whole = json.loads((each["zarr3"] / "zarr.json").read_text())
    copy = whole["consolidated_metadata"]["metadata"]["a/b"]
    copy.update(storage_transformers=[], chunk_key_encoding={"name": "default", "configuration": {"separator": "/"}})
    copy.pop("attributes", None)
    (each["zarr3"] / "zarr.json").write_text(json.dumps(whole))
    assert verify(each["zarr3"])[:2] == (0, [])


def test_consolidated_metadata_of_zarr_v2(tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    root.create_array("x", shape=(4,), chunks=(2,), dtype="i4")[...] = 1
    root.create_array("gone", shape=(4,), chunks=(2,), dtype="i4")[...] = 1
    zarr.consolidate_metadata(tmp_path / "a.zarr")
    assert verify(tmp_path / "a.zarr")[:2] == (0, [])
    zarr.open_array(tmp_path / "a.zarr/x").attrs["unit"] = "nm"
    for name in ("0", "1", ".zarray", ".zattrs"):
        (tmp_path / "a.zarr/gone" / name).unlink()
    _, found, _ = verify(tmp_path / "a.zarr")
    assert sorted(str(one["reason"]) for one in found) == [
        ".zmetadata has a copy of gone/.zarray, which does not exist",
        ".zmetadata has a copy of x/.zattrs that is not what is stored there",
    ]


def test_names_beside_flat_chunks(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a.zarr", shape=(4, 4), chunks=(2, 2), dtype="i4", zarr_format=2)
    array[...] = 1
    for name in ("2.0", "0.0.0", "readme.txt", ".hidden"):
        (tmp_path / "a.zarr" / name).write_bytes(b"")
    (tmp_path / "a.zarr/folder").mkdir()
    _, found, _ = verify(tmp_path / "a.zarr")
    names = sorted(str(one["reason"]).partition(":")[0].rpartition("/")[2] for one in found)
    assert names == ["0.0.0", "2.0", "folder", "readme.txt"]


def test_hdf5_and_n5_damage(each: dict[str, Path]) -> None:
    with h5py.File(each["hdf5"]) as file:
        info = file["a/b"].id.get_chunk_info(1)
    with open(each["hdf5"], "r+b") as raw:
        raw.seek(info.byte_offset)
        raw.write(b"\0" * 4)
    (each["n5"] / "a/b/1/1/0").write_bytes(b"\0")
    for name in ("hdf5", "n5"):
        code, found, _ = verify(each[name])
        assert (code, len(found), found[0]["kind"]) == (1, 1, "damaged"), found


def test_icechunk_manifests_that_name_missing_objects(tmp_path: Path) -> None:
    icechunk_data.write(tmp_path / "repository")
    assert verify(tmp_path / "repository")[:2] == (0, [])
    gone = sorted((tmp_path / "repository/chunks").iterdir())[0]
    gone.unlink()
    code, found, _ = verify(tmp_path / "repository")
    assert code == 1
    assert {one["kind"] for one in found} == {"damaged"}
    assert all(f"{gone} is missing" in str(one["reason"]) for one in found)


def test_hangar_samples_that_are_not_what_their_digests_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = hangar_data.unpack("crashed", tmp_path / "repository")
    assert verify(repository)[:2] == (0, [])
    records = repository / ".hangar/hash.lmdb"
    with lmdb.open(str(records), subdir=False, lock=False) as database, database.begin() as transaction:
        key, record = next((key, record) for key, record in transaction.cursor() if record.startswith(b"00:"))
    fields = record.split(b":")
    hangar_data.put(records, {key: b":".join([*fields[:2], fields[2][::-1], *fields[3:]])})
    monkeypatch.setenv("FSBRIDGE_NO_VERIFY", "1")  # for mounts
    code, found, _ = verify(repository)
    assert code == 1
    assert {one["kind"] for one in found} == {"damaged"}
    assert all("xxhash64 is" in str(one["reason"]) for one in found)


def test_missing_cells_are_listed_and_no_finding(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a.zarr", shape=(4, 4), chunks=(2, 2), dtype="i4")
    array[:2] = 1
    code, found, _ = verify(tmp_path / "a.zarr", "--missing")
    assert code == 0
    assert found == [{"kind": "missing", "path": "/", "chunk": [1, 0]}, {"kind": "missing", "path": "/", "chunk": [1, 1]}]


def test_lines_parts_and_paths(each: dict[str, Path]) -> None:
    damaged_chunk(each["zarr3"])
    done = fsbridge("verify", each["zarr3"], "-q")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("damaged: /a/b: chunk [1, 1, 0]: ")
    parts = [verify(each["zarr3"], "--part", f"{part}/3") for part in (1, 2, 3)]
    assert sorted(code for code, _, _ in parts) == [0, 0, 1]
    assert fsbridge("verify", f"{each['zarr3']}//a/b").returncode == 1
    assert fsbridge("verify", f"{each['zarr3']}//nope").returncode == 1


def test_a_reader_that_has_seen_enough_ends_it(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a.zarr", shape=(3000,), chunks=(1,), dtype="i4")
    array[...] = 1
    for chunk in (tmp_path / "a.zarr/c").iterdir():
        chunk.write_bytes(b"damage")
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as output:
        done = forking.run("verify", "-q", tmp_path / "a.zarr", stdout=output)
    assert (done.returncode, done.stderr) == (0, "")


def test_texts_that_are_cut_are_found(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a.zarr", shape=(2,), chunks=(2,), dtype="string", compressors=None)
    array[...] = np.array(["one", "two"], object)
    assert verify(tmp_path / "a.zarr")[:2] == (0, [])
    chunk = tmp_path / "a.zarr/c/0"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    assert verify(tmp_path / "a.zarr")[1][0]["kind"] == "damaged"


def test_p6_large_chunks_in_a_small_cache(tmp_path: Path) -> None:
    data = np.arange(1 << 22, dtype="<i4")
    zarr.create_array(tmp_path / "a.zarr", data=data, chunks=(1 << 19,))
    assert verify(tmp_path / "a.zarr", "--cache-size", "4M")[:2] == (0, [])
    _, found, _ = verify(tmp_path / "a.zarr", "--cache-size", "1M")
    assert {one["kind"] for one in found} == {"unsupported"}
