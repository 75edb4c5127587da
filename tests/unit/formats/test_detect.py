"""Which format a path is found to have, `--format`, what is said when there is none, and collections of stores."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
import weakref
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tensorstore as ts
import zarr
from model_reader import array_at, group_at, read_array

from fsbridge.config import Config, Limits
from fsbridge.errors import AccessDenied, CorruptData, NotFound, SetupError, Stale, TimedOut, TooDeep, Unsupported
from fsbridge.formats.detect import unreadable
from fsbridge.formats.hdf5.file import HDF5Limits, Pools
from fsbridge.formats.open import Opening, open_source
from fsbridge.formats.records import NAMES
from fsbridge.formats.shared import Shared
from fsbridge.lru import drop_all
from fsbridge.model import Source
from fsbridge.store import Key, Member, Range, Stat
from fsbridge.store.local import LocalStore

DATA = np.arange(12, dtype="<i4").reshape(3, 4)
N5_ARRAY = {"dimensions": [4], "blockSize": [4], "dataType": "uint8", "compression": {"type": "raw"}}


def open_at(path: Path, opened: list[Source], form: str = "auto", **extra: Any) -> Source:
    source = open_source(str(path), Config(str(path), "", format=form, **extra))
    opened.append(source)
    return source


def n5(path: Path, document: dict[str, Any] | None = None) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "attributes.json").write_text(json.dumps(document if document is not None else {"n5": "4.0.0"}))
    return path


def zarr_at(path: Path, form: Any) -> Path:
    zarr.open_group(str(path), mode="w", zarr_format=form).create_array("a", data=DATA, chunks=(2, 2))
    return path


def hdf5(path: Path, user_block: int = 0) -> Path:
    with h5py.File(path, "w", userblock_size=user_block) as file:
        file["a"] = DATA
    return path


def ts_array(path: Path, driver: str) -> None:
    metadata: dict[str, Any] = {"shape": DATA.shape, "chunks": DATA.shape, "dtype": "<i4"}
    if driver == "n5":
        metadata = {**N5_ARRAY, "dimensions": DATA.shape, "blockSize": DATA.shape, "dataType": "int32"}
    if driver == "zarr3":
        metadata = {"shape": DATA.shape, "data_type": "int32"}
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(path)}, "metadata": metadata}
    ts.open(spec, create=True).result()[...] = DATA


@pytest.mark.parametrize("user_block", [0, 512, 4096])
def test_hdf5_is_recognised_by_its_signature_wherever_that_is(tmp_path: Path, opened: list[Source], user_block: int) -> None:
    source = open_at(hdf5(tmp_path / "file.bin", user_block), opened)
    assert source.format.name == "hdf5"
    assert np.array_equal(read_array(array_at(source.root, "a")), DATA)


@pytest.mark.parametrize(("form", "name"), [(2, "zarr2"), (3, "zarr3")])
def test_zarr_in_a_directory_and_in_a_zip_file(tmp_path: Path, opened: list[Source], form: int, name: str) -> None:
    root = zarr_at(tmp_path / "s.zarr", form)
    assert open_at(root, opened).format.name == name
    single = open_at(root / "a", opened)
    assert single.format.name == name
    assert np.array_equal(read_array(array_at(single.root, "")), DATA)
    archive = shutil.make_archive(str(tmp_path / "s"), "zip", root)
    source = open_at(Path(archive), opened)
    assert source.format.name == name
    assert np.array_equal(read_array(array_at(source.root, "a")), DATA)


def test_trap_12_order_where_several_formats_share_a_directory(tmp_path: Path, opened: list[Source]) -> None:
    root = zarr_at(tmp_path / "s", 3)
    zarr_at(tmp_path / "two", 2)
    shutil.copy(tmp_path / "two/.zgroup", root)
    n5(root)
    assert open_at(root, opened).format.name == "zarr3"
    assert open_at(root, opened, "zarr2").format.name == "zarr2"
    assert open_at(root, opened, "n5").format.name == "n5"
    (root / "zarr.json").unlink()
    assert open_at(root, opened).format.name == "zarr2"
    (root / ".zgroup").unlink()
    assert open_at(root, opened).format.name == "n5"


@pytest.mark.parametrize("document", [{"n5": "4.0.0"}, N5_ARRAY, {"x": 1}, {}])
def test_n5_is_recognised_by_its_attributes(tmp_path: Path, opened: list[Source], document: dict[str, Any]) -> None:
    assert open_at(n5(tmp_path / "s", document), opened).format.name == "n5"


@pytest.mark.parametrize("driver", ["n5", "zarr", "zarr3"])
@pytest.mark.parametrize("where", ["a", "deep/down/a"])
def test_trap_12_roots_without_metadata_have_the_format_of_their_arrays(
    tmp_path: Path, opened: list[Source], driver: str, where: str
) -> None:
    ts_array(tmp_path / where, driver)
    source = open_at(tmp_path, opened)
    assert source.format.name == {"n5": "n5", "zarr": "zarr2", "zarr3": "zarr3"}[driver]
    assert [child.name for child in group_at(source.root, "").children()] == [where.split("/")[0]]
    assert np.array_equal(read_array(array_at(source.root, where)), DATA)


def test_a_nested_store_of_another_format_is_just_files(tmp_path: Path, opened: list[Source]) -> None:
    root = zarr_at(tmp_path / "s", 3)
    n5(root / "inner/x", N5_ARRAY)
    hdf5(root / "file.h5")
    source: Any = open_at(root, opened)
    assert sorted(child.name for child in source.root.children()) == ["a", "inner"]
    assert [child.name for child in source.root.child("inner").children()] == ["x"]
    assert source.root.child("inner").child("x").attributes() == {}


def test_the_abandoned_draft_of_zarr_v3_is_named(tmp_path: Path, opened: list[Source]) -> None:
    (tmp_path / "meta").mkdir()
    (tmp_path / "zarr.json").write_text('{"zarr_format": "https://purl.org/zarr/spec/protocol/core/3.0"}')
    with pytest.raises(SetupError, match="abandoned draft of Zarr v3 of 2021"):
        open_at(tmp_path, opened)


def test_p8_a_damaged_version_of_zarr_v3_is_not_the_draft(tmp_path: Path, opened: list[Source]) -> None:
    root = zarr_at(tmp_path / "s", 3)
    document = json.loads((root / "zarr.json").read_text())
    (root / "zarr.json").write_text(json.dumps({**document, "zarr_format": "nan"}))
    source: Any = open_at(root, opened)
    assert np.array_equal(read_array(array_at(source.root, "a")), DATA)


def test_nothing_there_is_said_with_what_helps(tmp_path: Path, opened: list[Source]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no store")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/readme").write_text("no store")
    os.mkfifo(tmp_path / "pipe")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme", "no store")
    for name, words in {
        "missing": "missing: no such file or directory",
        "empty": "no N5, Zarr, HDF5, Hangar or Icechunk store",
        "docs": "no N5, Zarr, HDF5, Hangar or Icechunk store",
        "text": "neither an HDF5 file nor a zip file",
        "other.zip": "the zip file has no N5 or Zarr store",
        "text/below": "not a directory",
        "pipe": "neither a directory nor a file",
    }.items():
        with pytest.raises(SetupError, match=words) as caught:
            open_at(tmp_path / name, opened)
        assert str(tmp_path / name) in str(caught.value)


def test_a_path_inside_a_store_is_refused_with_the_store_to_name(tmp_path: Path, opened: list[Source]) -> None:
    zarr_at(tmp_path / "3 d", 3)
    (tmp_path / "2").mkdir()
    zarr_at(tmp_path / "2/z", 2)
    zarr.consolidate_metadata(tmp_path / "2/z", zarr_format=2)
    (tmp_path / "2/z/a/.zattrs").write_text('{"refs": {}}')
    (tmp_path / "3 d/c/empty").mkdir(parents=True)
    for name, form, store in (
        ("3 d/c/empty", "zarr3", f"'{tmp_path}/3 d'"),
        ("3 d/zarr.json", "zarr3", f"'{tmp_path}/3 d'"),
        ("2/z/.zgroup", "zarr2", f"{tmp_path}/2/z"),
        ("2/z/.zmetadata", "zarr2", f"{tmp_path}/2/z"),
        ("2/z/a/.zattrs", "zarr2", f"{tmp_path}/2/z/a"),
    ):
        with pytest.raises(SetupError) as caught:
            open_at(tmp_path / name, opened)
        assert str(caught.value).endswith(f"\n  it is inside a store of the format {form}; name that store: {store}")
    with pytest.raises(
        SetupError, match=rf"2/z/b: no such file or directory\n.*of the format zarr2; see: fsbridge info {tmp_path}/2/z$"
    ):
        open_at(tmp_path / "2/z/b", opened)


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (errno.EACCES, "unless the mount has --allow-other"),
        (errno.ENOTCONN, "unmount the stale mount with: fsbridge umount /s$"),
    ],
)
def test_the_error_of_a_refused_source_says_what_helps(code: int, hint: str) -> None:
    with pytest.raises(SetupError, match=f"^/s: {os.strerror(code).lower()}\n.*{hint}"):
        raise unreadable("/s", OSError(code, os.strerror(code), "/s"), Config("/s", ""))


def test_a_path_inside_a_file_is_refused_with_the_name_of_the_file(tmp_path: Path, opened: list[Source]) -> None:
    hdf5(tmp_path / "a.h5")
    with pytest.raises(SetupError, match=r"a\.h5/g/a: not a directory\n  .*a\.h5 is a file: name only the file"):
        open_at(tmp_path / "a.h5/g/a", opened)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (bytes(257) + b"ustar\0" + b"00" + bytes(249), "a tar archive, which fsbridge does not read\n  unpack it"),
        (b"\x1f\x8b\x08" + bytes(20), "a file compressed by gzip"),
        (
            b"II*\0" + bytes(20),
            "a TIFF file, which fsbridge does not read\n  this format is not compressed: programs can read the file itself",
        ),
        (b"CDF\x02" + bytes(20), "a netCDF-3 .*\n  convert it to HDF5: nccopy"),
    ],
    ids=["tar", "gzip", "tiff", "netcdf"],
)
def test_what_is_taken_for_a_store_is_called_what_it_is(
    tmp_path: Path, opened: list[Source], content: bytes, words: str
) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(SetupError, match=f"{tmp_path}/file: {words}"):
        open_at(tmp_path / "file", opened)


OTHER = "the format is {}, not {}\n  leave out --format"


@pytest.mark.parametrize(
    ("kind", "named", "words"),
    [
        *(("directory", form, OTHER.format("zarr3", form)) for form in ("n5", "zarr2", "icechunk")),
        *(("directory", form, f"it is a directory, not a file of the format {form}") for form in ("hdf5", "zip")),
        ("directory", "hangar", "not a Hangar repository"),
        *(("archive", form, OTHER.format("zarr3", form)) for form in ("n5", "zarr2")),
        *(
            ("archive", form, f"it is a file, not a directory of the format {form}")
            for form in ("hangar", "icechunk", "collection")
        ),
        ("archive", "hdf5", OTHER.format("zip", "hdf5")),
        *(("file", form, OTHER.format("hdf5", form)) for form in ("n5", "zarr2", "zip")),
    ],
)
def test_p3_a_format_that_the_store_has_not_is_refused_and_shows_no_empty_tree(
    tmp_path: Path, opened: list[Source], kind: str, named: str, words: str
) -> None:
    zarr_at(tmp_path / "directory/a", 3)  # a root without any metadata, as TensorStore writes it
    shutil.make_archive(str(tmp_path / "archive"), "zip", tmp_path / "directory")
    (tmp_path / "archive.zip").rename(tmp_path / "archive")
    hdf5(tmp_path / "file")
    with pytest.raises(SetupError, match=f"{kind}: {words}"):
        open_at(tmp_path / kind, opened, named)


def test_an_allowed_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    zarr_at(tmp_path / "z", 3)
    config = Config(str(tmp_path / "z"), "", allow_external=(str(tmp_path / "gone"),))
    with pytest.raises(SetupError, match=f"^--allow-external {tmp_path}/gone: No such file or directory"):
        open_source(str(tmp_path / "z"), config)


def test_a_folder_of_plug_ins_that_is_missing_is_named(tmp_path: Path) -> None:
    config = Config("", "", hdf5_plugins=(str(tmp_path / "gone"),))
    with pytest.raises(SetupError, match=f"^--hdf5-plugins {tmp_path}/gone: no such directory"):
        open_source(str(zarr_at(tmp_path / "z", 3)), config)


@pytest.mark.parametrize("name", ["zarr.json", ".zarray", "attributes.json", "a/zarr.json", "a/b/.zgroup"])
def test_what_may_not_be_read_is_not_taken_for_absent(tmp_path: Path, opened: list[Source], name: str) -> None:
    """A link out of the store stands for another user's directory, which root could read."""
    (tmp_path / "document").write_text("{}")
    link = tmp_path / "s" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "document")
    with pytest.raises(SetupError, match=f"s/{name}: a link out of the store, .*--allow-external"):
        open_at(tmp_path / "s", opened)


def test_members_that_may_not_be_read_are_listed_and_hide_nothing(tmp_path: Path, opened: list[Source]) -> None:
    root = mixed(tmp_path / "c")
    (root / "private").mkdir()
    (root / "private/zarr.json").symlink_to(tmp_path)
    source: Any = open_at(root, opened)
    assert sorted(child.name for child in source.root.children()) == sorted([*MEMBERS, "private"])
    with pytest.raises(AccessDenied, match=r"private/zarr\.json"):
        source.root.child("private")
    assert np.array_equal(read_array(array_at(source.root, "file.h5/a")), DATA)


class FailingStore(LocalStore):
    """A store that now fails to look at, list or read some members: `failing` holds pairs of a method and a name."""

    def __init__(self, root: Path, error: Exception, failing: set[tuple[str, str]]) -> None:
        super().__init__(str(root))
        self.error = error
        self.failing = failing

    def source(self, opened: list[Source]) -> Any:
        """The source that is found in this store."""
        opened.append(Opening(folder_store=lambda *_: self).source(self.describe(Key("")), Config("", "")))
        return opened[-1]

    def stat(self, key: Key, read: Range | None = None) -> Stat:
        self._check("stat", key)
        return super().stat(key, read)

    def read_range(self, key: Key, start: int, length: int) -> tuple[bytes, Stat]:
        self._check("read_range", key)
        return super().read_range(key, start, length)

    def list(self, key: Key, stats: bool = False) -> Iterator[Member]:
        self._check("list", key)
        for member in super().list(key, stats):
            damaged = ("stat", member.name) in self.failing
            yield Member(member.name, False, Stat(False, 0, 0, None, settled=False), True) if damaged else member

    def _check(self, method: str, key: Key) -> None:
        if (method, key.name) in self.failing:
            raise self.error


def test_p3_members_that_a_listing_cannot_describe_are_not_absent(tmp_path: Path, opened: list[Source]) -> None:
    """A collection was ENOENT, and chunks were absent, while the disk could not tell what the only member is."""
    zarr_at(tmp_path / "c/z", 3)
    (tmp_path / "c/d").mkdir()
    hdf5(tmp_path / "c/d/x.h5")
    nested = zarr.create_array(
        tmp_path / "c/n", shape=(2, 2), chunks=(2, 2), dtype="u1", zarr_format=2,
        chunk_key_encoding={"name": "v2", "separator": "/"},
    )  # fmt: skip
    nested[...] = 7
    document = json.loads((tmp_path / "c/n/.zarray").read_text())
    del document["dimension_separator"]  # as zarr-python before 2.8
    (tmp_path / "c/n/.zarray").write_text(json.dumps(document))
    store = FailingStore(tmp_path / "c", OSError(errno.EIO, "Input/output error"), set())
    root = store.source(opened).root
    store.failing = {("stat", "x.h5"), ("stat", "0")}
    with pytest.raises(OSError, match="Input/output error"):
        root.child("d")
    with pytest.raises(OSError, match="Input/output error"):
        root.child("n").chunks.find((0, 0))
    store.failing.clear()
    assert [child.name for child in root.child("d").children()] == ["x.h5"]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), Stale("changed"), TimedOut("no answer")])
def test_p3_what_cannot_be_read_now_is_not_taken_for_absent(tmp_path: Path, opened: list[Source], error: Exception) -> None:
    """A plain directory was ENOENT while the disk failed to read the beginning of the only HDF5 file in it."""
    zarr_at(tmp_path / "c/z", 3)
    (tmp_path / "c/plain").mkdir()
    hdf5(tmp_path / "c/plain/x.h5")
    store = FailingStore(tmp_path / "c", error, set())
    root = store.source(opened).root
    store.failing = {("read_range", "x.h5")}
    with pytest.raises(type(error)):
        root.child("plain")
    assert sorted(child.name for child in root.children()) == ["plain", "z"]
    store.failing = {("list", "plain")}
    with pytest.raises(type(error)):
        root.child("plain")
    store.failing = set()
    assert [child.name for child in root.child("plain").children()] == ["x.h5"]


def test_unknown_or_wrong_formats_are_said(tmp_path: Path, opened: list[Source]) -> None:
    root = zarr_at(tmp_path / "s", 3)
    file = hdf5(tmp_path / "f.h5")
    with pytest.raises(SetupError, match="unknown format 'zarr4'"):
        open_at(root, opened, "zarr4")
    with pytest.raises(SetupError, match="a directory, not a file of the format hdf5"):
        open_at(root, opened, "hdf5")
    for form in ("hangar", "collection"):
        with pytest.raises(SetupError, match=f"a file, not a directory of the format {form}"):
            open_at(file, opened, form)
    with pytest.raises(SetupError, match=r"f\.h5"):
        open_at(file, opened, "zip")
    assert set(NAMES) >= {"auto", "n5", "zarr2", "zarr3", "hdf5", "hangar", "zip", "collection"}


def test_a_root_array_that_cannot_be_shown_is_said_at_once(tmp_path: Path, opened: list[Source]) -> None:
    n5(tmp_path / "s", {**N5_ARRAY, "dimensions": [-1]})
    with pytest.raises(SetupError, match=r"s/attributes\.json: 'dimensions' holds -1"):
        open_at(tmp_path / "s", opened)


def mixed(root: Path) -> Path:
    root.mkdir()
    zarr_at(root / "two.zarr", 2)
    zarr_at(root / "three.zarr", 3)
    ts_array(root / "bare/x", "n5")
    hdf5(root / "file.h5")
    (root / "sub").mkdir()
    hdf5(root / "sub/more.nwb")
    shutil.make_archive(str(root / "packed.zarr"), "zip", root / "three.zarr")
    (root / "notes").mkdir()
    (root / "notes/readme.txt").write_text("no store")
    (root / "readme.txt").write_text("no store")
    np.savez(root / "arrays.npz", x=DATA)
    return root


MEMBERS = ["bare", "file.h5", "packed.zarr.zip", "sub", "three.zarr", "two.zarr"]


def test_a_collection_shows_members_of_every_format(tmp_path: Path, opened: list[Source]) -> None:
    source: Any = open_at(mixed(tmp_path / "c"), opened)
    assert source.format.name == "collection"
    assert sorted(child.name for child in source.root.children()) == MEMBERS
    for path in ("two.zarr/a", "three.zarr/a", "bare/x", "file.h5/a", "sub/more.nwb/a", "packed.zarr.zip/a"):
        assert np.array_equal(read_array(array_at(source.root, path)), DATA), path
    for name in ("notes", "readme.txt", "arrays.npz", "missing"):
        with pytest.raises(NotFound):
            source.root.child(name)
    formats = {"two.zarr/a": "zarr2", "three.zarr": "zarr3", "file.h5/a/b": "hdf5", "sub/more.nwb": "hdf5"}
    assert {path: source.format_at(path.split("/")).name for path in formats} == formats
    assert {source.format_at(path).name for path in ((), ("sub",), ("new.zarr", "a"))} == {"collection"}
    assert source.root.attributes() == source.root.native() == {}
    assert source.root.mtime_ns == (tmp_path / "c").stat().st_mtime_ns


def test_broken_members_are_listed_named_and_hide_nothing(tmp_path: Path, opened: list[Source]) -> None:
    root = mixed(tmp_path / "c")
    (root / "broken.h5").write_bytes(b"")
    (root / "broken.zip").write_bytes(b"PK\3\4")
    (root / "broken.n5").mkdir()
    (root / "broken.n5/attributes.json").write_text(json.dumps({**N5_ARRAY, "blockSize": []}))
    source: Any = open_at(root, opened)
    broken = ["broken.h5", "broken.n5", "broken.zip"]
    assert sorted(child.name for child in source.root.children()) == sorted([*MEMBERS, *broken])
    for name in broken:
        with pytest.raises(CorruptData, match=name):
            source.root.child(name)
    assert np.array_equal(read_array(array_at(source.root, "file.h5/a")), DATA)


def test_members_come_and_go(tmp_path: Path, opened: list[Source]) -> None:
    source: Any = open_at(mixed(tmp_path / "c"), opened)
    assert array_at(source.root, "two.zarr/a")
    shutil.rmtree(tmp_path / "c/two.zarr")
    hdf5(tmp_path / "c/new.h5")
    assert sorted(child.name for child in source.root.children()) == sorted([*MEMBERS[:-1], "new.h5"])
    with pytest.raises(NotFound):
        source.root.child("two.zarr")
    assert np.array_equal(read_array(array_at(source.root, "new.h5/a")), DATA)


def test_p11_of_members_that_were_used_long_ago_only_what_is_in_use_stays(tmp_path: Path, opened: list[Source]) -> None:
    """New files come every day, and old ones go; what is still open of a member that was let go can be read on."""
    for number in range(9):
        hdf5(tmp_path / f"h{number}.h5")
        zarr_at(tmp_path / f"z{number}.zarr", 2 + number % 2)
        ts_array(n5(tmp_path / f"n{number}.n5") / "a", "n5")
    shared = Shared(Pools(HDF5Limits(children=2, descriptors=2)))
    source: Any = Opening(shared, open_members=3).source(str(tmp_path), Config(str(tmp_path), ""))
    opened.append(source)
    names = [child.name for child in source.root.children()]
    arrays: dict[str, Any] = {name: array_at(source.root, f"{name}/a") for name in names}
    alive = [weakref.ref(array.file) for name, array in arrays.items() if name.endswith(".h5")]
    for name, array in arrays.items():
        np.testing.assert_array_equal(read_array(array), DATA)
        assert source.format_at((name, "a")).name == {"h": "hdf5", "n": "n5", "z": f"zarr{2 + int(name[1]) % 2}"}[name[0]]
    assert all(found() is not None for found in alive)
    kept = source.root.child("n0.n5")
    for _ in range(2):  # opened again, and let go again, while something of it is in use
        for name in names:
            source.root.child(name)
        gc.collect()
    assert source.format_at(("n0.n5", "a")).name == "n5"
    del array, kept
    arrays.clear()
    drop_all()
    for _ in range(2):  # what the first one finds to end may hold others
        gc.collect()
    assert sum(found() is not None for found in alive) <= 3 + 2 + 2


def test_p11_a_member_opened_again_beside_what_is_in_use_of_it_leaves_nothing(tmp_path: Path, opened: list[Source]) -> None:
    """Each opening was kept for as long as anything of the first one was in use."""
    for name in ("a", "b"):
        ts_array(n5(tmp_path / f"{name}.n5") / "a", "n5")
    source: Any = Opening(open_members=1).source(str(tmp_path), Config(str(tmp_path), "", format="collection"))
    opened.append(source)
    kept = source.root.child("a.n5")
    openings = [weakref.ref(source.root.child("a.n5").hierarchy.keyed)]
    for _ in range(5):
        source.root.child("b.n5")
        openings.append(weakref.ref(source.root.child("a.n5").hierarchy.keyed))
    gc.collect()
    assert sum(found() is not None for found in openings) <= 2
    assert source.format_at(("a.n5", "a")).name == "n5"
    assert kept.child("a").kind == "array"


def test_members_outside_the_collection_are_not_opened(tmp_path: Path, opened: list[Source]) -> None:
    root = mixed(tmp_path / "c")
    secret = hdf5(tmp_path / "secret.h5")
    (root / "link.h5").symlink_to(secret)
    zarr_at(tmp_path / "secret.zarr", 3)
    (root / "link.zarr").symlink_to(tmp_path / "secret.zarr")
    source: Any = open_at(root, opened)
    assert {child.name for child in source.root.children()} >= set(MEMBERS)
    for name in ("link.h5", "link.zarr"):
        with pytest.raises((AccessDenied, NotFound)):
            source.root.child(name)


def test_plain_directories_end_somewhere(tmp_path: Path, opened: list[Source]) -> None:
    root = mixed(tmp_path / "c")
    (root / "sub/loop").symlink_to("..")
    source: Any = open_at(root, opened, "collection", limits=Limits(depth=5))
    group = source.root
    for name in ["sub", "loop", "sub", "loop", "sub"]:
        group = group.child(name)
    with pytest.raises(TooDeep):
        group.child("loop")


def test_one_kind_of_store_beneath_a_plain_directory_is_one_hierarchy(tmp_path: Path, opened: list[Source]) -> None:
    zarr_at(tmp_path / "x.zarr", 3)
    zarr_at(tmp_path / "y.zarr", 3)
    source = open_at(tmp_path, opened)
    assert source.format.name == "zarr3"
    assert np.array_equal(read_array(array_at(source.root, "y.zarr/a")), DATA)
    forced = open_at(tmp_path, opened, "collection")
    assert np.array_equal(read_array(array_at(forced.root, "y.zarr/a")), DATA)


_REFERENCES = {"x/.zarray": json.dumps({"zarr_format": 2}), "x/0": ["a.bin", 0, 16]}


@pytest.mark.parametrize("document", [{"version": 1, "refs": _REFERENCES}, {".zgroup": "{}", **_REFERENCES}])
def test_p3_kerchunk_references_in_json_are_named(tmp_path: Path, document: dict[str, Any]) -> None:
    (tmp_path / "refs.json").write_text(json.dumps(document))
    with pytest.raises(SetupError, match="kerchunk references") as error:
        open_source(str(tmp_path / "refs.json"), Config("", ""))
    assert "xarray opens them with engine='kerchunk'" in str(error.value)
    consolidated = {"metadata": {".zgroup": {"zarr_format": 2}}, "zarr_consolidated_format": 1}
    for name, other in {"other.json": {"references": {}}, "moved.zmetadata": consolidated}.items():
        (tmp_path / name).write_text(json.dumps(other))
        with pytest.raises(SetupError, match="neither an HDF5 file nor a zip file"):
            open_source(str(tmp_path / name), Config("", ""))


def test_p3_kerchunk_references_in_parquet_are_no_store_of_empty_groups(tmp_path: Path, opened: list[Source]) -> None:
    (tmp_path / "lazy.parq/x").mkdir(parents=True)
    (tmp_path / "lazy.parq/.zmetadata").write_text(json.dumps({"metadata": {".zgroup": {}}, "record_size": 1000}))
    (tmp_path / "lazy.parq/x/refs.0.parq").write_bytes(b"PAR1")
    with pytest.raises(SetupError, match="kerchunk references"):
        open_source(str(tmp_path / "lazy.parq"), Config("", ""))
    h5py.File(tmp_path / "good.h5", "w").close()
    opened.append(open_source(str(tmp_path), Config("", "")))
    root: Any = opened[-1].root
    assert sorted(child.name for child in root.children()) == ["good.h5", "lazy.parq"]
    assert root.child("good.h5").kind == "group"
    with pytest.raises(Unsupported, match="kerchunk references"):
        root.child("lazy.parq")


def test_a_zipped_ome_zarr_counts_in_a_collection(tmp_path: Path, opened: list[Source]) -> None:
    with zipfile.ZipFile(tmp_path / "image.ozx", "w") as archive:
        archive.writestr("zarr.json", '{"zarr_format": 3, "node_type": "group"}')
    h5py.File(tmp_path / "x.h5", "w").close()
    opened.append(open_source(str(tmp_path), Config("", "")))
    root: Any = opened[-1].root
    assert sorted(child.name for child in root.children()) == ["image.ozx", "x.h5"]
    assert root.child("image.ozx").kind == "group"
