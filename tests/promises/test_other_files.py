"""Objects of a keyed store that belong to no array or group are the plain files that they are, in every layout."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import zarr
from fake_s3 import FakeS3, Fault
from in_process import fsbridge
from mounting import MountFunction
from small_stores import FORMATS
from tree_walker import walk
from waiting import until

from fsbridge.config import Config, Remote
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import AccessDenied, NotFound, Stale
from fsbridge.formats.open import Opening
from fsbridge.layouts import root_directory
from fsbridge.store import Key, Member
from fsbridge.store.local import LocalStore
from fsbridge.tree import File
from fsbridge.unmounted import VirtualTree

PARQUET = b"PAR1" + bytes(range(256)) * 40 + b"PAR1"

OTHERS = {
    "README.md": b"# about",
    "points.parquet/part.0.parquet": PARQUET,
    "points.parquet/part.1.parquet": b"",
    "hive/year=1/month=2/a b%.parquet": PARQUET[:99],
    "a/notes.txt": b"of the array",
}
"""Files of no format, by key."""

HIDDEN = (
    ".DS_Store",
    "points.parquet/.part.0.parquet.crc",
    "0.0",
    "c",
    "a/99",
    "a/9.9",
    "a/.zattrs~",
)
"""Files that are hidden, or named like chunks outside the grid."""

LAYOUTS = ("zarr3", "zarr2", "n5", "files")


def add(folder: Path, files: dict[str, bytes]) -> None:
    for key, data in files.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(data)


def store(tmp_path: Path, name: str) -> Path:
    """A store of a format with other files in it."""
    _, write = FORMATS[name]
    path = tmp_path / "s"
    write(path)
    add(path, OTHERS)
    add(path, dict.fromkeys(HIDDEN, b"hidden"))
    if name != "zip":
        return path
    (tmp_path / "s.zip").unlink(missing_ok=True)
    return Path(shutil.make_archive(str(path), "zip", path))


def tree(source: Path | str, layout: str = "zarr3", **options: Any) -> VirtualTree:
    return VirtualTree(Config(str(source), "", layout=layout, **options))


def read(opened: VirtualTree, path: str) -> bytes:
    with opened.open(path) as file:
        return bytes(file.read(0, file.size))


def names(opened: VirtualTree, path: str = "") -> set[str]:
    return {member.name for member in opened.list(path)}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("layout", [*LAYOUTS, "zarr3,files"])
def test_p3_other_files_are_in_every_layout(tmp_path: Path, name: str, layout: str) -> None:
    with tree(store(tmp_path, name), layout) as opened:
        shown = {os.fsdecode(path)[1:]: data for path, data in walk(opened.root).items()}
    for top in layout.split(",") if "," in layout else [""]:
        below = {path.removeprefix(f"{top}/"): data for path, data in shown.items() if path.startswith(top)}
        wanted = {
            key.replace("%", "%25"): data
            for key, data in OTHERS.items()
            if key != "a/notes.txt" or "files" not in (layout, top)  # where an array is a file, nothing is in it
        }
        assert {key: below.get(key) for key in wanted} == wanted
        assert not [path for path in below if path.startswith(("points.parquet/", "hive/")) and path not in wanted]
        assert not any(data == b"hidden" for data in below.values())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_p3_no_document_is_among_other_files(tmp_path: Path, layout: str) -> None:
    """A reader of Parquet would take it for a part."""
    with tree(store(tmp_path, "zarr3"), layout) as opened:
        assert names(opened, "points.parquet") == {"part.0.parquet", "part.1.parquet"}
        assert names(opened, "hive") == {"year=1"}
        for document in ("zarr.json", ".zgroup", "attributes.json", "index.html"):
            with pytest.raises(NotFound):
                opened.stat(f"points.parquet/{document}")


def test_a_directory_without_a_document_above_arrays_is_a_group(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "s/g/h/x", shape=(2,), chunks=(1,), dtype="i4")[...] = 1
    add(tmp_path / "s", {"README": b"r", "g/README": b"r", "empty/.hidden": b""})
    with tree(tmp_path / "s") as opened:
        for path in ("", "g", "g/h", "empty"):
            assert "zarr.json" in names(opened, path), path


def test_consolidated_metadata_of_the_mount_has_no_document_of_other_files(tmp_path: Path) -> None:
    with tree(store(tmp_path, "zarr2"), "zarr2", consolidated=True) as opened:
        metadata = json.loads(read(opened, ".zmetadata"))["metadata"]
    assert {key.rpartition("/")[0] for key in metadata} == {"", "a"}


@pytest.mark.parametrize("name", ["zarr2", "zip"])
def test_p9_a_file_that_is_replaced_is_stale_and_then_new(tmp_path: Path, name: str) -> None:
    path = store(tmp_path, name)

    def change(data: bytes | None) -> None:
        if data is None:
            (tmp_path / "s/README.md").unlink()
        else:
            (tmp_path / "new").write_bytes(data)
            os.replace(tmp_path / "new", tmp_path / "s/README.md")
        if name == "zip":
            os.replace(shutil.make_archive(str(tmp_path / "t"), "zip", tmp_path / "s"), path)

    with tree(path, metadata_ttl=0.0) as opened:
        node, file = opened.node("README.md"), opened.open("README.md")
        assert isinstance(node, File)
        change(b"# ABOUT")
        with pytest.raises(Stale):
            file.read(0, 7)
        with pytest.raises(Stale):
            node.open()
        assert read(opened, "README.md") == b"# ABOUT"
        file = opened.open("README.md")
        change(None)
        with pytest.raises(Stale):
            file.read(0, 7)
        with pytest.raises(NotFound):
            opened.stat("README.md")
        assert "README.md" not in names(opened)


def test_p2_p6_a_huge_file_is_read_by_range(tmp_path: Path) -> None:
    path, size = store(tmp_path, "zarr3"), 1 << 40
    with open(path / "README.md", "r+b") as file:
        file.truncate(size)
        os.pwrite(file.fileno(), b"end", size - 3)
    os.utime(path / "README.md", (1e9, 1e9))
    with tree(path, cache_size=1 << 20) as opened, opened.open("README.md") as shown:
        assert shown.size == opened.stat("README.md").size == size
        assert bytes(shown.read(size - 4, size)) == b"\0end"
        with open(path / "README.md", "r+b") as file:
            file.truncate(size - 1)
        with pytest.raises(Stale):
            shown.read(size - 4, size)


def test_p4_links_that_lead_out_and_fifos_are_not_opened(tmp_path: Path) -> None:
    path = store(tmp_path, "zarr2")
    (tmp_path / "outside").write_bytes(b"secret")
    for place in ("", "a/"):
        (path / place / "inside").symlink_to(path / "README.md")
        (path / place / "out").symlink_to(tmp_path / "outside")
        os.mkfifo(path / place / "fifo")
    with tree(path) as opened:
        for place in ("", "a/"):
            assert read(opened, f"{place}inside") == OTHERS["README.md"]
            with pytest.raises(AccessDenied):
                read(opened, f"{place}out")
            with pytest.raises(NotFound):
                read(opened, f"{place}fifo")
            assert "fifo" not in names(opened, place)
            assert {"inside", "out"} <= names(opened, place)


def test_a_file_of_the_layout_wins_and_the_log_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = store(tmp_path, "zarr3")
    mine = dict.fromkeys(("a.npy", "a.tif", "index.html", "s.json", "a.csv.md", "b.npy", "x.html"), b"mine")
    add(path, {**mine, "points.parquet/index.html": b"mine"})
    with tree(path, "files") as opened:
        listed = [member.name for member in opened.list("")]
        assert len(listed) == len(set(listed))
        kept = {name for name in mine if read(opened, name) == b"mine"}
        assert kept == {"a.csv.md", "b.npy", "x.html"}
        assert read(opened, "points.parquet/index.html") == b"mine"
        assert kept | {"a.npy", "index.html"} <= set(listed)
        assert "a.tif" not in listed  # it opens by its name only, and then it is the array's
    for name in sorted(mine.keys() - kept):
        assert f"/{name} is left out of the layout files: the layout has a file of its own of that name" in caplog.text
    with tree(path / "a", "files") as opened:
        assert read(opened, "notes.txt") == b"of the array"


def test_info_names_the_files_that_a_layout_hides(tmp_path: Path) -> None:
    path = store(tmp_path, "zarr3")
    hidden = ["a.npy", "a.tif", "index.html", "s.json"]
    add(path, dict.fromkeys((*hidden, "b.npy", "a/a.npy", "points.parquet/index.html"), b"mine"))
    line = f"    hidden in the layout files, which has files of these names: {' '.join(hidden)}\n"
    assert line in fsbridge("info", "--layout", "zarr3,files", path).stdout
    assert "hidden" not in fsbridge("info", path).stdout
    rows = json.loads(fsbridge("info", "--layout", "files", "--json", path).stdout)["members"]
    assert {row["path"]: row["hidden"] for row in rows if "hidden" in row} == {"/": {"files": hidden}}
    (alone,) = json.loads(fsbridge("info", "--layout", "files", "--json", path / "a").stdout)["members"]
    assert "hidden" not in alone, "the layout files has no place for files in the directory of an array"


def test_patterns_choose_other_files_too(tmp_path: Path) -> None:
    path = store(tmp_path, "zarr3")
    with tree(path, exclude=("*.md", "hive")) as opened:
        assert names(opened) & {"README.md", "hive", "points.parquet"} == {"points.parquet"}
        with pytest.raises(NotFound):
            opened.stat("README.md")
    with tree(path, include=("points.parquet",)) as opened:
        assert names(opened, "points.parquet") == {"part.0.parquet", "part.1.parquet"}
        assert "README.md" not in names(opened)
        with pytest.raises(NotFound):
            opened.stat("README.md")


def test_p8_a_name_that_no_file_can_have_hides_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive:
        archive.writestr("zarr.json", '{"zarr_format": 3, "node_type": "group"}')
        archive.writestr("%" * 200, b"long")
        archive.writestr("good", b"good")
    with tree(tmp_path / "s.zip") as opened:
        assert names(opened) == {"zarr.json", "good"}
        assert read(opened, "good") == b"good"
    assert "is left out of the layout zarr3" in caplog.text


class NotingStore(LocalStore):
    """A store that notes which directories are read."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.passes: list[Key] = []

    def list(self, key: Key, stats: bool = False) -> Iterator[Member]:
        self.passes.append(key)
        return super().list(key, stats)

    def names(self, key: Key, cuts: Sequence[str] = ()) -> Iterator[Sequence[str]]:
        self.passes.append(key)
        return super().names(key, cuts)


def test_a_flat_directory_of_chunks_is_listed_once(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "s", shape=(9, 9), chunks=(1, 1), dtype="i4", zarr_format=2)[...] = 1
    (tmp_path / "s/notes").write_bytes(b"n")
    until(lambda: LocalStore(str(tmp_path)).stat(Key("s")).settled)
    config, noting = Config(str(tmp_path / "s"), "", layout="zarr2"), NotingStore(str(tmp_path / "s"))
    with closing(Opening(folder_store=lambda *_: noting).source(config.source, config)) as source:
        root = root_directory(source, config, ChunkCache(config.cache_size))
        noting.passes.clear()
        listed = {entry.name.decode() for batch in root.entries() for entry in batch}
        assert listed == {".zarray", ".zattrs", "notes", *(f"{i}.{j}" for i in range(9) for j in range(9))}
        assert noting.passes == [""]


# Commands


def test_info_counts_them(tmp_path: Path) -> None:
    path = store(tmp_path, "zarr2")
    said = fsbridge("info", path).stdout
    assert "/points.parquet       directory\n    2 other files, 10.2kB\n" in said
    assert "    1 other file, 7B\n" in said
    rows = {row["path"]: row for row in json.loads(fsbridge("info", "--json", path).stdout)["members"]}
    assert rows["/"]["others"] == rows["/a"]["others"] | {"bytes": 7}
    assert [row["path"] for row in rows.values() if row["kind"] == "directory"] == [
        *("/hive", "/hive/year=1", "/hive/year=1/month=2", "/points.parquet"),
    ]


def test_verify_reads_them_and_names_what_cannot_be_read(tmp_path: Path) -> None:
    path = store(tmp_path, "zip")
    assert "5 other files read" in fsbridge("verify", path).stderr
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("points.parquet/part.0.parquet").header_offset
    path.write_bytes(data[: at + 70] + bytes(20) + data[at + 90 :])
    done = fsbridge("verify", "--json", path)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert ("damaged", "/points.parquet/part.0.parquet") in [(one["kind"], one["path"]) for one in found]
    parts = [fsbridge("verify", "--part", f"{number}/2", path).stderr for number in (1, 2)]
    assert sum(int(part.partition(" other file")[0].rpartition(" ")[2]) for part in parts if "other" in part) == 4


def test_export_digest_diff_and_fsspec_show_them(tmp_path: Path) -> None:
    path = store(tmp_path, "zarr3")
    assert fsbridge("export", "-q", path, tmp_path / "copy").returncode == 0
    for key, data in OTHERS.items():
        assert (tmp_path / "copy" / key.replace("%", "%25")).read_bytes() == data
        assert fsspec.filesystem("fsbridge", source=str(path)).cat_file(key.replace("%", "%25")) == data
    lines = fsbridge("digest", path).stdout
    for key, data in OTHERS.items():
        assert f"{hashlib.sha256(data).hexdigest()}  /{key.replace('%', '%25')}\n" in lines
    (tmp_path / "digests").write_text(lines)
    assert fsbridge("digest", "--check", tmp_path / "digests", path).returncode == 0
    shutil.copytree(path, tmp_path / "t")
    assert fsbridge("diff", path, tmp_path / "t").returncode == 0
    (tmp_path / "t/README.md").write_bytes(b"# ABOUT")
    (tmp_path / "t/a/notes.txt").unlink()
    (tmp_path / "t/points.parquet/part.2.parquet").write_bytes(b"")
    done = fsbridge("diff", path, tmp_path / "t")
    assert (done.returncode, done.stdout.splitlines()) == (
        1,
        [
            "/README.md: the bytes differ",
            "/a/notes.txt: only in the first",
            "/points.parquet/part.2.parquet: only in the second",
        ],
    )
    assert fsbridge("digest", "--check", tmp_path / "digests", tmp_path / "t").returncode == 1


# Object storage and web servers


@pytest.fixture
def remote(server: FakeS3) -> Remote:
    return Remote(anonymous=True, region="us-east-1", endpoint=server.endpoint)


@pytest.mark.parametrize("name", ["zarr3", "zarr2", "n5"])
def test_other_files_of_object_storage(tmp_path: Path, server: FakeS3, remote: Remote, name: str) -> None:
    server.put_tree(store(tmp_path, name), "s")
    with tree("s3://bucket/s", remote=remote) as opened:
        assert names(opened) >= {"README.md", "points.parquet", "hive", "a"}
        for key, data in OTHERS.items():
            assert read(opened, key.replace("%", "%25")) == data
        with server.counted() as requests, opened.open("points.parquet/part.0.parquet") as file:
            assert bytes(file.read(1000, 1100)) == PARQUET[1000:1100]
        assert len(requests) <= 2
        with pytest.raises(NotFound):
            opened.stat("points.parquet/zarr.json")
        with server.counted() as requests:
            listed = names(opened, "a")
        assert "notes.txt" not in listed  # it opens by its name
        assert [request.key for request in requests if request.kind == "LIST"] == []
        file = opened.open("README.md")
        server.put("s/README.md", b"# ABOUT")
        with pytest.raises(Stale):
            file.read(0, 7)


def test_listing_many_arrays_takes_no_request_for_each(tmp_path: Path, server: FakeS3, remote: Remote) -> None:
    for number in range(40):
        zarr.create_array(tmp_path / f"s/{number:02}", shape=(4,), chunks=(2,), dtype="i4")[...] = 1
    server.put_tree(tmp_path / "s", "s")
    with tree("s3://bucket/s", remote=remote, metadata_ttl=60.0) as opened:
        names(opened)
        with server.counted() as requests:
            for number in range(40):
                names(opened, f"{number:02}")
        assert len([request for request in requests if request.kind == "LIST"]) <= 4


def test_a_web_server_gives_other_files_by_their_names(tmp_path: Path, server: FakeS3) -> None:
    server.put_tree(store(tmp_path, "zarr3"), "s")
    with tree(server.url("s")) as opened:
        for key in ("README.md", "a/notes.txt"):
            assert read(opened, key) == OTHERS[key]
        with pytest.raises(NotFound):
            opened.stat("nothing.txt")
        server.put("s/folder", b"<html>a page that the server made for a directory")
        server.fault = lambda request: Fault(etag="") if request.key.endswith("folder") else None
        with pytest.raises(NotFound):
            opened.stat("folder")


# Real mounts


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_stores_of_spatialdata_and_bioformats2raw_are_whole_in_a_mount(
    tmp_path: Path, zarr_format: Any, mount: MountFunction
) -> None:
    root = zarr.create_group(tmp_path / "s.zarr", zarr_format=zarr_format)
    for name in ("points/spots", "shapes/cells", "OME", "0"):
        root.create_group(name, attributes={"name": name})
    root.create_array("0/0", shape=(4, 4), chunks=(2, 2), dtype="u2")[...] = np.arange(16).reshape(4, 4)
    others = {
        "points/spots/points.parquet/part.0.parquet": PARQUET,
        "points/spots/points.parquet/part.1.parquet": PARQUET[::-1],
        "shapes/cells/shapes.parquet": PARQUET * 300,
        "OME/METADATA.ome.xml": b"<OME/>",
    }
    add(tmp_path / "s.zarr", others)
    mounted = mount(tmp_path / "s.zarr", "--layout", "zarr3,zarr2,n5,files")
    for layout in LAYOUTS:
        top = Path(mounted / layout)
        for key, data in others.items():
            assert (top / key).read_bytes() == data
            assert (top / key).stat().st_size == len(data)
        assert sorted(os.listdir(top / "points/spots/points.parquet")) == ["part.0.parquet", "part.1.parquet"]
        assert "METADATA.ome.xml" in os.listdir(top / "OME")
    for layout in ("zarr3", "zarr2"):
        shown: Any = zarr.open_group(str(mounted / layout), mode="r", use_consolidated=False)
        assert dict(shown["OME"].attrs) == {"name": "OME"}
        assert shown["0/0"][...].tolist() == np.arange(16).reshape(4, 4).tolist()
    (tmp_path / "s.zarr/OME/METADATA.ome.xml").write_bytes(b"<OME></OME>")
    with open(mounted / "zarr3/OME/METADATA.ome.xml", "rb") as file:
        assert file.read() == b"<OME></OME>"
