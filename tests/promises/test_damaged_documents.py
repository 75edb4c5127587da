"""P8 as a matrix: each document of each format of keys, damaged in each way, harms nothing that does not need it.

Every layout is walked before and after the damage, without FUSE. What zarr-python or TensorStore still read of the damaged
store, by path, must be there; all that changes is what is made of the damaged document, and that is an error (EIO).
"""

from __future__ import annotations

import errno
import io
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import fuzz_documents
import h5py
import icechunk
import numpy as np
import pytest
import tensorstore
import zarr
from fake_s3 import BUCKET, FakeS3
from in_process import fsbridge
from n5_arrays import write_n5
from small_stores import files, is_complete

from fsbridge.config import Config, Remote
from fsbridge.formats.icechunk.records import HEADER_BYTES, unwrap
from fsbridge.mount.lifecycle import open_tree

pytestmark = pytest.mark.filterwarnings("ignore:::zarr")

VALUES = {"x": np.arange(6, dtype="u1"), "g/x": np.arange(10, 16, dtype="u1"), "g/h/0": np.arange(20, 26, dtype="u1")}
GROUPS = ("", "g", "g/h")
LAYOUTS = "zarr3,zarr2,n5,files"


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: Mapping[str, Callable[[Path], Any]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "no text": lambda path: path.write_bytes(path.read_bytes().replace(b'"of"', b'"\xff"') + b"\xfe"),
    "no object": lambda path: path.write_bytes(b"[]"),
    "directory": directory,
}


def _zarr(path: Path, zarr_format: Any, consolidated: bool = False) -> None:
    for group in GROUPS:
        zarr.create_group(path / group, zarr_format=zarr_format, attributes={"of": group})
    for name, values in VALUES.items():
        options: Any = {"zarr_format": zarr_format, "compressors": None, "fill_value": 0, "attributes": {"of": name}}
        zarr.create_array(path / name, shape=(6,), chunks=(3,), dtype="u1", **options)[...] = values
    if consolidated:
        zarr.consolidate_metadata(path)


def _n5(path: Path) -> None:
    for group in GROUPS:
        (path / group).mkdir(parents=True, exist_ok=True)
        (path / group / "attributes.json").write_text(json.dumps({"of": group} if group else {"n5": "4.0.0", "of": ""}))
    for name, values in VALUES.items():
        write_n5(path / name, values, [3], "raw")


WRITERS: Mapping[str, Callable[[Path], None]] = {
    "zarr3": lambda path: _zarr(path, 3),
    "zarr3 consolidated": lambda path: _zarr(path, 3, consolidated=True),
    "zarr2": lambda path: _zarr(path, 2),
    "zarr2 consolidated": lambda path: _zarr(path, 2, consolidated=True),
    "n5": _n5,
}


def by_other_readers(path: Path, kind: str) -> dict[str, Any]:
    """The arrays that TensorStore or zarr-python read, each by its own path."""
    found: dict[str, Any] = {}
    driver = {"zarr3": "zarr3", "zarr2": "zarr", "n5": "n5"}[kind.partition(" ")[0]]
    for name in VALUES:
        try:
            spec = {"driver": driver, "kvstore": {"driver": "file", "path": f"{path / name}/"}}
            found[name] = tensorstore.open(spec, open=True).result().read().result().tolist()
        except ValueError:
            try:
                found[name] = np.asarray(zarr.open_array(path / name, mode="r")[...]).tolist()
            except Exception:
                continue
    return found


def walk(source: Path | str, **options: Any) -> dict[str, bytes | Exception | None]:
    """Everything that is listed in any layout, by path; errors in place of content."""
    config = Config(source=str(source), mountpoint="/nowhere", layout=LAYOUTS, files=("npy",))
    tree = open_tree(replace(config, **options))
    try:
        return {path.decode().lstrip("/"): content for path, content in files(tree.root)}
    finally:
        tree.close()


def shown(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays whose elements can be read in the layout `files`."""
    loaded = {name: tree.get(f"files/{name}.npy") for name in VALUES}
    return {name: np.load(io.BytesIO(data)).tolist() for name, data in loaded.items() if isinstance(data, bytes)}


def made_of(document: str, kind: str) -> tuple[Callable[[str], bool], str]:
    """Return what tells whether a path of the mount is made of a document, and the array that is lost with it (or "")."""
    place, _, name = document.rpartition("/")
    if name == ".zmetadata":
        return (lambda path: False), ""
    names = {f"{layout}/{place}/{file}".replace("//", "/") for layout, file in DOCUMENTS}
    if name != ".zgroup":
        names.add(f"files/{place}.json" if place else "files/store.json")
    if place not in VALUES:
        return names.__contains__, ""
    if name == ".zattrs":
        return (names - {f"zarr2/{place}/.zarray"}).__contains__, ""
    return (lambda path: path.partition("/")[2].startswith((f"{place}/", f"{place}."))), place


DOCUMENTS = (
    *(("zarr3", "zarr.json"), ("n5", "attributes.json")),
    *(("zarr2", name) for name in (".zgroup", ".zattrs", ".zarray")),
)
NAMES = {name for _, name in DOCUMENTS} | {".zmetadata"}


@pytest.fixture(scope="module", params=WRITERS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    path = tmp_path_factory.mktemp("whole") / "s"
    WRITERS[request.param](path)
    return request.param, path


def test_p8_a_damaged_document_harms_only_what_is_made_of_it(whole: tuple[str, Path], tmp_path: Path) -> None:
    kind, path = whole
    before = walk(path)
    assert shown(before) == {name: values.tolist() for name, values in VALUES.items()}
    assert not [name for name, content in before.items() if not isinstance(content, bytes)]
    documents = [str(file.relative_to(path)) for file in sorted(path.rglob("*")) if file.name in NAMES]
    assert len(documents) >= 6
    for document in documents:
        for what, damage in DAMAGES.items():
            damaged, case = tmp_path / "s", f"{kind}: {document} ({what})"
            shutil.copytree(path, damaged)
            damage(damaged / document)
            after, (is_made_of_it, lost) = walk(damaged), made_of(document, kind)
            for name, content in before.items():
                if not is_made_of_it(name):
                    assert is_complete(after.get(name), content), f"{case}: {name}"
                elif not lost:
                    assert getattr(after.get(name), "errno", None) == errno.EIO, f"{case}: {name}: {after.get(name)!r}"
            if lost:
                errors = [after.get(f"{layout}/{lost}") for layout in LAYOUTS.split(",")]
                assert [getattr(error, "errno", None) for error in errors] == [errno.EIO] * 4, f"{case}: {errors}"
            assert shown(after).items() >= by_other_readers(damaged, kind).items(), case
            assert shown(after).keys() >= VALUES.keys() - {lost}, case
            shutil.rmtree(damaged)


GROUP_FILES = ("zarr3/{}g/zarr.json", "zarr2/{}g/.zgroup", "zarr2/{}g/.zattrs", "n5/{}g/attributes.json", "files/{}g.json")


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """The paths that differ, each of which is an error."""
    differing = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert {getattr(after.get(path), "errno", None) for path in differing} == {errno.EIO}
    return differing


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def test_p8_in_a_zip_file(tmp_path: Path) -> None:
    _zarr(tmp_path / "s", 2)
    shutil.make_archive(str(tmp_path / "before.zarr"), "zip", tmp_path / "s")
    cut(tmp_path / "s/g/.zattrs")
    shutil.make_archive(str(tmp_path / "after.zarr"), "zip", tmp_path / "s")
    files = {path.format("") for path in GROUP_FILES}
    assert changed(walk(tmp_path / "before.zarr.zip"), walk(tmp_path / "after.zarr.zip")) == files


@pytest.mark.parametrize(("kind", "document"), [("n5", "attributes.json"), ("zarr3", "zarr.json"), ("zarr2", ".zgroup")])
def test_p8_a_store_of_a_collection_with_a_damaged_root(kind: str, document: str, tmp_path: Path) -> None:
    for name in ("g", "whole"):
        WRITERS[kind](tmp_path / "s" / name)
    WRITERS["n5" if kind == "zarr3" else "zarr3"](tmp_path / "s/other")
    before = walk(tmp_path / "s")
    cut(tmp_path / "s/g" / document)
    files = {path.format("") for path in GROUP_FILES if document != ".zgroup" or not path.startswith("files")}
    assert changed(before, walk(tmp_path / "s")) == files


def test_p8_in_a_snapshot_of_icechunk(tmp_path: Path) -> None:
    """A snapshot holds the document of each node."""
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "s")))
    session = repository.writable_session("main")
    root = zarr.create_group(session.store, zarr_format=3, attributes={"of": "root"}, overwrite=True)
    for group in GROUPS[1:]:
        root.create_group(group, attributes={"of": group})
    for name, values in VALUES.items():
        root.create_array(name, shape=(6,), chunks=(3,), dtype="u1", attributes={"of": name})[...] = values
    session.commit("all of it")
    before = walk(tmp_path / "s")
    for snapshot in (tmp_path / "s/snapshots").iterdir():
        stored = snapshot.read_bytes()  # without compression, whose checksum would catch the damage
        plain = stored[: HEADER_BYTES - 1] + b"\0" + unwrap(stored, "snapshot", 1 << 20).data
        snapshot.write_bytes(plain.replace(b'"of": "g"', b'"of":  g"'))
    after = walk(tmp_path / "s")
    places = {path.split("/")[2] for path in before if path.startswith("zarr3/snapshots/") and "/g/" in path}
    prefixes = ("branches/main/", *(f"snapshots/{place}/" for place in places))
    assert changed(before, after) == {path.format(prefix) for path in GROUP_FILES for prefix in prefixes}


@pytest.mark.parametrize("owner", ["", "g", "g/h", "x", "g/h/0"])
def test_p8_a_damaged_attribute_of_hdf5(owner: str, tmp_path: Path) -> None:
    """h5py reads all but that attribute; the mount says of each attribute by itself that it cannot be read."""
    with h5py.File(tmp_path / "s.h5", "w") as file:
        for name, values in VALUES.items():
            file[name] = values
        for name in (*GROUPS, *VALUES):
            file[f"/{name}"].attrs[f"of {name}"] = np.int32(5)
            file[f"/{name}"].attrs["well"] = np.int32(6)
    before = walk(tmp_path / "s.h5")
    data = bytearray((tmp_path / "s.h5").read_bytes())
    stored = f"of {owner}".encode() + b"\0"
    at = data.index(stored + bytes(-len(stored) % 8)) + len(stored) + -len(stored) % 8
    data[at] = 0xFF  # version and class of its type
    (tmp_path / "s.h5").write_bytes(data)
    with h5py.File(tmp_path / "s.h5") as file:
        assert file["g/h/0"][...].tolist() == VALUES["g/h/0"].tolist()
    after = walk(tmp_path / "s.h5")
    shown_in = {path for path in before if before[path] != after.get(path)}
    assert {path.rpartition("/")[0].partition("/")[2] for path in shown_in if path.endswith("zarr.json")} == {owner}
    document = after[f"zarr3/{owner}/zarr.json".replace("//", "/")]
    assert isinstance(document, bytes)
    attributes = json.loads(document)["attributes"]
    assert "_ERROR" in attributes.get(f"of {owner}", attributes)
    assert shown(after) == shown(before)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("zarr3", {"node_type": "array", "attbutes": {"of": 1}}),
        ("zarr3", {"attbutes": {"of": 1}}),
        ("zarr3", {"node_type": "arrays"}),
        ("n5", {"dimensions": [6], "dataType": "uint7", "blockSize": [3], "compression": {"type": "raw"}}),
        ("n5", {"dimensions": [6], "dataType": "uint8", "blockSize": [-3], "compression": {"type": "raw"}}),
    ],
)
def test_p8_a_groups_document_that_seems_to_be_an_arrays(
    kind: str, changes: dict[str, Any], group: str, tmp_path: Path
) -> None:
    """Members show that it is none. The document is an error, and they are read as before."""
    WRITERS[kind](tmp_path / "s")
    document = tmp_path / "s" / group / {"zarr3": "zarr.json", "n5": "attributes.json"}[kind]
    document.write_text(json.dumps({**json.loads(document.read_text()), **changes}))
    after = walk(tmp_path / "s")
    assert shown(after) == {name: values.tolist() for name, values in VALUES.items()}
    assert getattr(after[f"zarr3/{group}/zarr.json".replace("//", "/")], "errno", None) in (errno.EIO, errno.EOPNOTSUPP)
    found = [json.loads(line) for line in fsbridge("verify", "--json", tmp_path / "s").stdout.splitlines()]
    assert [one["path"] for one in found] == [f"/{group}"]


@pytest.mark.parametrize("group", ["", "g", "g/h"])
def test_p8_links_of_hdmf_zarr_below_a_damaged_document(group: str, tmp_path: Path) -> None:
    """Which file a link belongs to is said by the groups above: without them it is an error, and the arrays are whole."""
    _zarr(tmp_path / "s", 2)
    link = {"zarr_link": [{"name": "linked", "path": "/x", "source": "."}]}
    (tmp_path / "s/.zattrs").write_text(json.dumps({".specloc": "specifications"}))
    (tmp_path / "s/g/h/.zattrs").write_text(json.dumps(link))
    before = walk(tmp_path / "s")
    assert before["zarr3/g/h/linked"] == b"-> ../../x"
    cut(tmp_path / "s" / group / ".zattrs")
    after = walk(tmp_path / "s")
    assert getattr(after.get("zarr3/g/h/linked"), "errno", None) == (None if group == "g/h" else errno.EIO)
    assert shown(after) == shown(before)


@pytest.mark.parametrize(
    ("kind", "document"), [("n5", "g/attributes.json"), ("zarr3", "g/zarr.json"), ("zarr2", "g/.zattrs")]
)
def test_p8_in_object_storage(kind: str, document: str, server: FakeS3, tmp_path: Path) -> None:
    WRITERS[kind](tmp_path / "s")
    cut(tmp_path / "s" / document)
    server.put_tree(tmp_path / "s", "s")
    remote = Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint)
    after = walk(f"s3://{BUCKET}/s", remote=remote)
    assert shown(after) == {name: values.tolist() for name, values in VALUES.items()}
    errors = {path for path, content in after.items() if getattr(content, "errno", None) == errno.EIO}
    assert errors == {path.format("") for path in GROUP_FILES}


@pytest.mark.parametrize(("kind", "document"), [("zarr3 consolidated", "g/zarr.json"), ("zarr2 consolidated", "g/.zattrs")])
def test_p8_on_a_web_server_that_cannot_list(kind: str, document: str, server: FakeS3, tmp_path: Path) -> None:
    """Consolidated metadata of the root name the members of the group."""
    WRITERS[kind](tmp_path / "s")
    cut(tmp_path / "s" / document)
    server.put_tree(tmp_path / "s", "s")
    after = walk(server.url("s"))
    assert shown(after) == {name: values.tolist() for name, values in VALUES.items()}


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A Zarr v2 store with damaged attributes of a group and of an array."""
    _zarr(tmp_path / "s", 2)
    for member in ("g", "x"):
        cut(tmp_path / "s" / member / ".zattrs")
    return tmp_path / "s"


def test_p8_files_that_do_not_need_the_damaged_attributes_are_whole(damaged: Path) -> None:
    """Headers would say that elements have no spacing, unit or missing value, so they are errors."""
    kinds = ("npy", "raw", "tif", "nii", "csv", "h5", "preview", "html")
    after = walk(damaged, layout="files", files=kinds)
    errors = {path for path, content in after.items() if getattr(content, "errno", None) == errno.EIO}
    assert errors == {"g.json", *(path for path in after if path.startswith("x."))} - {"x.npy", "x.raw"}
    assert errors >= {"x.json", "x.csv", "x.h5"}
    assert after.keys() >= {"g/x.npy", "g/x.h5", "g/x.preview.png", "g/h/0.csv", "g.h5", "index.html"}
    page, whole = after["g/index.html"], after["s.h5"]
    assert isinstance(page, bytes)
    assert b"attributes cannot be read" in page
    assert after["x.raw"] == VALUES["x"].tobytes()
    assert isinstance(whole, bytes)
    with h5py.File(io.BytesIO(whole)) as file:
        assert file["g/x"][...].tolist() == VALUES["g/x"].tolist()
        assert [".zattrs" in line for line in file["g"].attrs["fsbridge_left_out"]] == [True]
        assert "x" not in file


def test_p8_consolidated_metadata_are_complete_or_an_error(damaged: Path) -> None:
    after = walk(damaged, layout="zarr2", consolidated=True)
    assert getattr(after[".zmetadata"], "errno", None) == errno.EIO
    assert after["g/x/0"] == VALUES["g/x"][:3].tobytes()


def test_p8_commands_name_what_is_damaged_and_show_the_rest(damaged: Path) -> None:
    told = fsbridge("info", "--json", damaged)
    rows = {row["path"]: row for row in json.loads(told.stdout)["members"]}
    assert told.returncode == 1
    assert rows.keys() == {"/", "/x", "/g", "/g/x", "/g/h", "/g/h/0"}
    assert {path for path, row in rows.items() if ".zattrs" in row.get("reason", "")} == {"/x", "/g"}
    cut(damaged / "g/h/.zgroup")
    told = fsbridge("verify", "--json", damaged)
    found = [json.loads(line) for line in told.stdout.splitlines()]
    assert {(one["kind"], one["path"]) for one in found} == {("damaged", path) for path in ("/x", "/g", "/g/h")}
    assert told.returncode == 1


@pytest.mark.parametrize("kind", fuzz_documents.KINDS)
def test_p8_documents_of_any_content_harm_only_what_needs_them(kind: str) -> None:
    """`scripts/fuzz documents` does it for as long as you like."""
    fuzz_documents.run(kind, 0, 4)
