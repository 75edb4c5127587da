"""`fsbridge verify`: well where all is well, and each damage named. Not here: odd files, links (`test_verify_files.py`)."""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import hangar_data
import icechunk_data
import lmdb
import numpy as np
import pytest
import zarr
from fake_s3 import BUCKET, FakeS3
from in_process import fsbridge
from source_places import upload, write_all, write_each
from verifying import ARRAY2, verify, virtual_file, zarr2_store


@pytest.fixture
def each(tmp_path: Path) -> dict[str, Path]:
    return write_each(tmp_path)


def test_all_is_well_in_every_format_and_place(each: dict[str, Path], server: FakeS3) -> None:
    for name, path in each.items():
        code, found, said = verify(path)
        assert (code, found) == (0, []), name
        assert "2 groups, 1 array," in said
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
        (stale_copy, "inconsistent", "/", None, "a copy of a/b/zarr.json that is not what is stored there"),
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
    assert "1 finding\n" in said


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


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda inline: inline.update(metadata=None), "'metadata' is null, not an object"),
        (lambda inline: inline.update(metadata=7), "'metadata' is an integer, not an object"),
        (lambda inline: inline.pop("metadata"), "'metadata' is missing"),
        (lambda inline: inline.update(metadata={}), "has no copy of g/"),
        (lambda inline: drop(inline["metadata"], "g"), "has no copy of g/"),
        (lambda inline: drop(inline["metadata"], "g/x"), "has no copy of g/x/"),
    ],
)
def test_p3_consolidated_metadata_in_which_zarr_python_finds_less_is_not_well(
    harm: Callable[[Any], Any], reason: str, version: Any, tmp_path: Path
) -> None:
    root = zarr.open_group(path := tmp_path / "a.zarr", mode="w", zarr_format=version)
    root.create_array("g/x", shape=(4,), chunks=(2,), dtype="i4")[...] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in Zarr v3 it is no part of the specification
        zarr.consolidate_metadata(path)
    assert verify(path)[:2] == (0, [])
    document = path / (".zmetadata" if version == 2 else "zarr.json")
    values = json.loads(document.read_text())
    harm(values if version == 2 else values["consolidated_metadata"])
    document.write_text(json.dumps(values))
    with pytest.raises((KeyError, AttributeError, TypeError, FileNotFoundError)):
        _ = zarr.open_group(path, mode="r")["g/x"]
    code, found, _ = verify(path)
    assert (code, len(found)) == (1, 1), found
    assert reason in str(found[0]["reason"])


def test_p3_copies_in_a_copy_that_are_none_are_not_well(tmp_path: Path) -> None:
    """zarr-python gives the copy of a group an empty list of copies, and refuses the whole store if that is damaged."""
    zarr.open_group(path := tmp_path / "a.zarr", mode="w", zarr_format=2).create_group("g")
    zarr.consolidate_metadata(path)
    values = json.loads((path / ".zmetadata").read_text())
    values["metadata"]["g/.zgroup"]["consolidated_metadata"]["metadata"] = 7
    (path / ".zmetadata").write_text(json.dumps(values))
    with pytest.raises(TypeError):
        zarr.open_group(path, mode="r")
    assert [one["reason"] for one in verify(path)[1]] == [
        ".zmetadata has a copy of g/.zgroup that is not what is stored there"
    ]


def drop(copies: dict[str, Any], node: str) -> None:
    """Remove what says that there is a node. The attributes that Zarr v2 has apart are left."""
    for name in (node, f"{node}/.zgroup", f"{node}/.zarray"):
        copies.pop(name, None)


@pytest.mark.parametrize("kind", ["zgroup_", "zattrs"])
def test_p3_copies_of_nothing_are_not_well(kind: str, tmp_path: Path) -> None:
    """An empty copy of attributes needs no document, but an array or a group that they belong to."""
    path = zarr2_store(tmp_path / "s")
    copies = {".zgroup": {"zarr_format": 2}, "g/.zgroup": {"zarr_format": 2}, "g/a/.zarray": json.loads(ARRAY2)}
    write = (path / ".zmetadata").write_text
    write(json.dumps({"metadata": {**copies, "g/.zattrs": {}}, "zarr_consolidated_format": 1}))
    assert verify(path)[:2] == (0, [])
    write(json.dumps({"metadata": {**copies, f"h/.{kind}": {}}, "zarr_consolidated_format": 1}))
    assert [one["reason"] for one in verify(path)[1]] == [f".zmetadata has a copy of h/.{kind}, which does not exist"]


def test_names_beside_flat_chunks(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a.zarr", shape=(4, 4), chunks=(2, 2), dtype="i4", zarr_format=2)
    array[...] = 1
    for name in ("2.0", "0.0.0", "readme.txt", ".hidden"):
        (tmp_path / "a.zarr" / name).write_bytes(b"")
    (tmp_path / "a.zarr/folder").mkdir()
    _, found, said = verify(tmp_path / "a.zarr")
    names = sorted(str(one["reason"]).partition(":")[0].rpartition("/")[2] for one in found)
    assert names == ["0.0.0", "2.0", "folder"]
    assert "1 other file read" in said  # the readme


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


@pytest.mark.parametrize("place", ["", "g/"])
@pytest.mark.parametrize("name", [".zgroup", ".zattrs"])
@pytest.mark.parametrize("data", [b'{"zarr_for', b"", b'\xb4{"zarr_format": 2}', b"[]", None])
def test_p3_a_damaged_group_document_is_not_well(data: bytes | None, name: str, place: str, tmp_path: Path) -> None:
    document = zarr2_store(tmp_path / "s") / place / name
    document.unlink(missing_ok=True)
    if data is None:
        document.mkdir()
    else:
        document.write_bytes(data)
    code, found, _ = verify(tmp_path / "s")
    assert code == 1
    assert [(one["path"], name in str(one["reason"])) for one in found] == [(f"/{place}".rstrip("/") or "/", True)]


def test_p3_a_group_document_of_another_version_is_not_well(tmp_path: Path) -> None:
    (zarr2_store(tmp_path / "s") / "g/.zgroup").write_text('{"zarr_format": 7}')
    code, found, _ = verify(tmp_path / "s")
    assert (code, [one["path"] for one in found]) == (1, ["/g"])
    assert "Zarr format 7" in str(found[0]["reason"])


def gone_dataset(path: Path, name: str) -> None:
    with h5py.File(path, "a") as file:
        del file[name]


@pytest.mark.parametrize(
    ("harm", "missing"),
    [
        (lambda path: (path / "s0.h5").unlink(), ["s0.h5:/d"]),
        (lambda path: (path / "s1.h5").unlink(), ["s1.h5:/d", "s1.h5:/link"]),  # the second by way of w.h5
        (lambda path: (path / "w.h5").unlink(), ["w.h5:/w"]),
        (lambda path: gone_dataset(path / "s0.h5", "d"), ["s0.h5:/d"]),
        (lambda path: gone_dataset(path / "s1.h5", "link"), ["s1.h5:/link"]),
        (lambda path: gone_dataset(path / "v.h5", "own"), ["v.h5:/own"]),
    ],
)
def test_p3_an_absent_source_of_a_virtual_dataset_is_not_well(
    harm: Callable[[Path], None], missing: list[str], tmp_path: Path
) -> None:
    virtual_file(tmp_path)
    assert verify(tmp_path / "v.h5", "--allow-external", tmp_path)[:2] == (0, [])
    harm(tmp_path)
    code, found, _ = verify(tmp_path / "v.h5", "--allow-external", tmp_path)
    assert (code, {(one["kind"], one["path"]) for one in found}) == (1, {("skipped", "/v")})
    said = (str(one["reason"]).replace(f"{tmp_path}/", "").partition(" is not there")[0] for one in found)
    assert sorted(said) == missing


def test_p3_a_raw_file_that_is_too_short_is_not_well(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "e.h5", "w") as file:
        file.create_dataset("x", (4,), "u1", external=[(str(tmp_path / "raw"), 2, 4)])
    (tmp_path / "raw").write_bytes(b"\0\0abcd")
    assert verify(tmp_path / "e.h5", "--allow-external", tmp_path)[:2] == (0, [])
    (tmp_path / "raw").write_bytes(b"\0\0abc")
    code, found, _ = verify(tmp_path / "e.h5", "--allow-external", tmp_path)
    assert (code, [one["kind"] for one in found]) == (1, ["skipped"])
    assert "has 1 bytes too few" in str(found[0]["reason"])


def test_p3_text_that_is_not_utf8_is_not_well(tmp_path: Path) -> None:
    """zarr-python cannot read such a chunk, neither in the store nor in a mount."""
    array = zarr.create_array(tmp_path / "a.zarr", shape=(2,), chunks=(2,), dtype="string", compressors=None)
    array[...] = np.array(["one", "two"], object)
    chunk = tmp_path / "a.zarr/c/0"
    chunk.write_bytes(chunk.read_bytes().replace(b"one", b"\xe9ne"))
    assert verify(tmp_path / "a.zarr")[1][0]["kind"] == "damaged"


def test_a_dataset_that_only_hdf5_2_refuses_is_not_called_damaged(tmp_path: Path) -> None:
    """h5repack of HDF5 1.10 makes it readable: see `tests/faults/test_hdf5_strange.py`."""
    with h5py.File(tmp_path / "p.h5", "w") as file:
        file.create_dataset("x", data=np.arange(12.0).reshape(3, 4), chunks=(3, 4))
    layout = struct.pack("<3I", 3, 4, 8)
    (tmp_path / "p.h5").write_bytes((tmp_path / "p.h5").read_bytes().replace(layout, struct.pack("<3I", 3, 4, 4)))
    code, found, _ = verify(tmp_path / "p.h5")
    assert (code, [(one["kind"], one["path"]) for one in found]) == (1, [("unsupported", "/x")])
    assert "h5repack -f GZIP=4 OLD NEW" in str(found[0]["reason"])


def test_p3_an_index_of_chunks_that_only_some_readers_can_read_is_not_well(tmp_path: Path) -> None:
    """h5py reads the data from the root of the index on, and `visititems` goes from node to node."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(40), chunks=(4,))
    assert verify(tmp_path / "a.h5")[:2] == (0, [])
    data = bytearray((tmp_path / "a.h5").read_bytes())
    data[data.index(b"TREE\1\0") + 23] ^= 0x14  # the address of the next node, of which there is none
    (tmp_path / "a.h5").write_bytes(data)
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["x"][:].tolist() == list(range(40))
        with pytest.raises(RuntimeError, match="temporary file space"):
            file.visititems(lambda name, node: None)
    code, found, _ = verify(tmp_path / "a.h5")
    assert (code, [(one["kind"], one["path"]) for one in found]) == (1, [("damaged", "/x")])


def test_p3_attributes_that_cannot_be_read_are_not_well(tmp_path: Path) -> None:
    """They are shown with the reason in place of the value."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("good", data=np.arange(20).reshape(4, 5))
        regions = np.empty(1, object)
        regions[0] = np.array([file["good"].regionref[:2]], dtype=h5py.regionref_dtype)
        file["good"].attrs.create("regions", regions, dtype=h5py.vlen_dtype(h5py.regionref_dtype))
    assert [(one["kind"], one["path"]) for one in verify(tmp_path / "a.h5")[1]] == [("skipped", "/good")]


@pytest.mark.parametrize("document", [".zarray", "zarr.json", "attributes.json"])
def test_p3_chunks_of_which_no_document_says_what_they_are_are_not_well(document: str, each: dict[str, Path]) -> None:
    store = each[{".zarray": "zarr2", "zarr.json": "zarr3", "attributes.json": "n5"}[document]]
    (store / "a/b" / document).unlink()
    code, found, _ = verify(store)
    assert code == 1
    assert {one["kind"] for one in found} == {"skipped"}
    assert all("named like chunks, and no document of an array" in str(one["reason"]) for one in found)


@pytest.mark.parametrize("name", ["dimensions", "blockSize", "dataType", "compression"])
def test_p3_an_array_of_n5_that_lacks_an_attribute_is_not_well(name: str, each: dict[str, Path]) -> None:
    """For N5 it is a group: TensorStore and z5py cannot open it."""
    document = each["n5"] / "a/b/attributes.json"
    values = json.loads(document.read_text())
    del values[name]
    document.write_text(json.dumps(values))
    found = verify(each["n5"])[1]
    assert ("inconsistent", "/a/b") in [(one["kind"], one["path"]) for one in found]
    assert f"no array for lack of {name}" in str(found)


def test_a_group_of_n5_with_one_attribute_of_an_array_is_well(tmp_path: Path) -> None:
    """BigDataViewer's have `dataType`."""
    (tmp_path / "s.n5/setup0").mkdir(parents=True)
    (tmp_path / "s.n5/attributes.json").write_text('{"n5": "4.0.0"}')
    (tmp_path / "s.n5/setup0/attributes.json").write_text('{"downsamplingFactors": [[1, 1, 1]], "dataType": "uint16"}')
    assert verify(tmp_path / "s.n5")[:2] == (0, [])


def test_p3_an_absent_source_in_object_storage_is_not_well(server: FakeS3, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s0.h5", "w") as file:
        file["d"] = np.arange(3)
    with h5py.File(tmp_path / "v.h5", "w") as file:
        layout = h5py.VirtualLayout((2, 3), "i8")
        for row in range(2):
            layout[row] = h5py.VirtualSource(f"s{row}.h5", "d", (3,))
        file.create_virtual_dataset("v", layout)
    for name in ("s0.h5", "v.h5"):
        server.put(f"z/{name}", (tmp_path / name).read_bytes(), 1e9)
    url = f"s3://{BUCKET}/z"
    code, found, _ = verify(f"{url}/v.h5", "--allow-external", url, *server.options)
    assert (code, [(one["kind"], one["path"]) for one in found]) == (1, [("skipped", "/v")])
    assert "s1.h5:/d is not there" in str(found[0]["reason"])
    server.put("z/s1.h5", (tmp_path / "s0.h5").read_bytes(), 1e9)
    assert verify(f"{url}/v.h5", "--allow-external", url, *server.options)[:2] == (0, [])


@pytest.mark.parametrize("version", [2, 3])
def test_all_is_well_on_a_web_server_that_lists_nothing(version: Any, server: FakeS3, tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=version)
    root.create_array("g/x", shape=(4,), chunks=(2,), dtype="i4")[:2] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in Zarr v3 it is no part of the specification
        zarr.consolidate_metadata(tmp_path / "a.zarr")
    server.put_tree(tmp_path / "a.zarr", "a.zarr")
    code, found, said = verify("--allow-http", server.url("a.zarr"))
    assert (code, found) == (0, [])
    assert "2 groups, 1 array, 1 chunk decoded" in said
