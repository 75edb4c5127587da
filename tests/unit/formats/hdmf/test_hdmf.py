"""NWB files by hdmf-zarr 0.13 (Zarr v2), 0.14 (Zarr v3) and pynwb (HDF5), compared with what pynwb reads from them."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from model_reader import read_array
from nwb_data import expected_arrays, expected_facts, unpack
from tree_walker import walk
from waiting import until

from fsbridge.config import Config
from fsbridge.errors import CorruptData, NotFound, TooDeep, Unreachable, Unsupported
from fsbridge.formats.hdmf import parse_links, resolve
from fsbridge.formats.keyed.hierarchy import KeyedGroup
from fsbridge.formats.open import open_source
from fsbridge.metadata import JSON
from fsbridge.model import Array, Group, Link, Source, as_array
from fsbridge.store import Key
from fsbridge.store.local import LocalStore
from fsbridge.unmounted import VirtualTree

GENERATIONS = ("zarr2", "zarr3")
FILES = ("session.nwb.zarr", "export.nwb.zarr")


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[Source]:
    source = open_source(str(path), Config(str(path), "/nowhere", **options))
    try:
        yield source
    finally:
        source.close()


@pytest.fixture(scope="module", params=GENERATIONS)
def generation(request: pytest.FixtureRequest) -> str:
    return cast(str, request.param)


@pytest.fixture(scope="module")
def folder(generation: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(generation, tmp_path_factory.mktemp(generation))


def read(source: Source, path: str) -> np.ndarray[Any, Any]:
    """The array at `path`, links followed."""
    array = as_array(resolve(source.root, path))
    assert array is not None, path
    return read_array(array)


def texts(values: Any) -> list[str]:
    return [value.decode() if isinstance(value, bytes) else value for value in np.asarray(values).reshape(-1).tolist()]


def group(source: Source, path: str = "") -> Group:
    return cast(Group, resolve(source.root, path))


def test_p3_objects_that_belong_to_no_array_are_files(folder: Path, tmp_path: Path) -> None:
    store = shutil.copytree(folder / "session.nwb.zarr", tmp_path / "session.nwb.zarr")
    others = {"README.md": b"# about", "acquisition/notes.txt": b"", "videos/day 1/a.mp4": bytes(range(256)) * 40}
    for key, data in others.items():
        (store / key).parent.mkdir(parents=True, exist_ok=True)
        (store / key).write_bytes(data)
    until(lambda: LocalStore(str(store)).stat(Key("videos/day 1/a.mp4")).settled)
    with VirtualTree(Config(str(store), "")) as tree, VirtualTree(Config(str(folder / store.name), "")) as before:
        shown, unchanged = walk(tree.root), walk(before.root)
    assert {path: data for path, data in shown.items() if path not in unchanged} == {
        f"/{key}".encode(): data for key, data in others.items()
    }
    assert unchanged.keys() <= shown.keys()


# ---- equal to pynwb


@pytest.mark.parametrize("file", FILES)
def test_arrays_equal_pynwbs(folder: Path, generation: str, file: str) -> None:
    with opened(folder / file) as source:
        assert source.format.name == generation
        for path, wanted in expected_arrays(generation).items():
            found = read(source, path)
            assert found.dtype == wanted.dtype, path
            np.testing.assert_array_equal(found, wanted, path)


@pytest.mark.parametrize("file", FILES)
def test_texts_and_references_equal_pynwbs(folder: Path, generation: str, file: str) -> None:
    facts = expected_facts(generation)
    with opened(folder / file) as source:
        trials = read(source, "intervals/trials/timeseries")
        assert [list(row) for row in trials.tolist()] == facts.pop("intervals/trials/timeseries")
        assert trials.dtype == np.dtype([("idx_start", "<i4"), ("count", "<i4"), ("timeseries", "<U512")])
        for path, wanted in facts.items():
            found = texts(read(source, path))
            assert found == (wanted if isinstance(wanted, list) else [wanted]), path


def test_links_inside_the_file_are_relative(folder: Path) -> None:
    with opened(folder / "session.nwb.zarr") as source:
        series = group(source, "acquisition/shares_timestamps")
        assert [child.link for child in series.children() if child.link is not None] == ["../with_timestamps/timestamps"]
        assert series.child("timestamps") == Link("../with_timestamps/timestamps")
        assert sorted(child.name for child in series.children()) == ["data", "timestamps"]
        with pytest.raises(NotFound):
            series.child("nothing")


def test_references_in_attributes_are_kept(folder: Path, generation: str) -> None:
    with opened(folder / "session.nwb.zarr") as source:
        array = as_array(resolve(source.root, "acquisition/raw/electrodes"))
        assert array is not None
        table = array.metadata.attributes["table"]
        inner = table["value"] if generation == "zarr2" else table["_REFERENCE"]
        assert inner["path"] == "/general/extracellular_ephys/electrodes"
        assert group(source).attributes()[".specloc"] == "specifications"


def test_specifications_are_json_text(folder: Path, generation: str) -> None:
    with opened(folder / "session.nwb.zarr") as source:
        assert as_array(resolve(source.root, "specifications/core")) is None
        (version,) = [child.name for child in group(source, "specifications/core").children()]
        names = [child.name for child in group(source, f"specifications/core/{version}").children()]
        assert "namespace" in names
        for name in names:
            (text,) = texts(read(source, f"specifications/core/{version}/{name}"))
            assert isinstance(json.loads(text), dict), name
        identifier = as_array(resolve(source.root, "identifier"))
        assert identifier is not None
        assert identifier.metadata.shape == ((1,) if generation == "zarr2" else ())


def test_stale_consolidated_metadata_hides_nothing(folder: Path, generation: str, tmp_path: Path) -> None:
    shutil.copytree(folder / "session.nwb.zarr", tmp_path / "copy.nwb.zarr")
    document = tmp_path / "copy.nwb.zarr" / (".zmetadata" if generation == "zarr2" else "zarr.json")
    assert "acquisition/raw" in document.read_text()
    (tmp_path / "copy.nwb.zarr" / "acquisition" / "raw").rename(tmp_path / "copy.nwb.zarr" / "acquisition" / "renamed")
    with opened(tmp_path / "copy.nwb.zarr") as source:
        assert "renamed" in [child.name for child in group(source, "acquisition").children()]
        assert read(source, "acquisition/renamed/data").shape == (100, 3)


# ---- other files


def test_links_to_other_files_are_not_followed_by_default(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with opened(folder / "linking.nwb.zarr") as source:
        for _ in range(2):
            assert list(group(source, "acquisition/shared").children()) == []
        with pytest.raises(NotFound, match="not followed"):
            group(source, "acquisition/shared").child("data")
        assert [record.message.partition("the link ")[2] for record in caplog.records] == [
            f"'{name}' to acquisition/with_timestamps/{name} in '../session.nwb.zarr' is not followed (--allow-external)"
            for name in ("data", "timestamps")
        ]
        found = group(source, "acquisition/shared").native()["external links"]
        assert found["data"] == {"path": "acquisition/with_timestamps/data", "source": "../session.nwb.zarr"}


def test_links_into_allowed_directories_are_mounted_in_their_place(copy: Path, generation: str) -> None:
    folder = copy
    (folder / "session.nwb").mkdir()  # the beginning of the target's name
    wanted = expected_arrays(generation)
    for allowed in (folder, folder / "session.nwb.zarr"):
        with opened(folder / "linking.nwb.zarr", allow_external=(str(allowed),)) as source:
            shared = group(source, "acquisition/shared")
            assert [child.name for child in shared.children()] == ["data", "timestamps"]
            for name in ("data", "timestamps"):
                np.testing.assert_array_equal(
                    read(source, f"acquisition/shared/{name}"), wanted[f"acquisition/with_timestamps/{name}"]
                )
    for refused in (folder / "export.nwb.zarr", folder / "session.nwb"):
        with opened(folder / "linking.nwb.zarr", allow_external=(str(refused),)) as source:
            assert list(group(source, "acquisition/shared").children()) == []


def write_links(path: Path, generation: str, entries: list[Any]) -> None:
    """Replace the links of the group at `path`."""
    name, attribute = (".zattrs", "zarr_link") if generation == "zarr2" else ("zarr.json", "_LINKS")
    document = json.loads((path / name).read_text()) if (path / name).exists() else {}
    target = document if generation == "zarr2" else document.setdefault("attributes", {})
    target[attribute] = entries
    (path / name).write_text(json.dumps(document))


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder, tmp_path / "files")
    return tmp_path / "files"


def entry(name: str, path: Any, source: Any = ".") -> dict[str, Any]:
    return {"name": name, "path": path, "source": source}


def test_a_linked_group_of_another_file_keeps_its_own_links(copy: Path, generation: str) -> None:
    """Its relative links would lead to something else in this file, so their targets are mounted in their place."""
    write_links(
        copy / "linking.nwb.zarr" / "acquisition", generation,
        [entry("other", "/acquisition/shares_timestamps", "../session.nwb.zarr"), entry("all", "/", "../session.nwb.zarr")],
    )  # fmt: skip
    with opened(copy / "linking.nwb.zarr", allow_external=(str(copy),)) as source:
        acquisition = group(source, "acquisition")
        assert {child.name for child in acquisition.children()} == {"shared", "other", "all"}
        node = cast(Group, acquisition.child("other")).child("timestamps")
        assert isinstance(node, Array)
        wanted = expected_arrays(generation)["acquisition/with_timestamps/timestamps"]
        np.testing.assert_array_equal(read_array(node), wanted)
        everything = cast(Group, acquisition.child("all"))
        assert cast(Group, cast(Group, everything.child("acquisition")).child("shares_timestamps")).child(
            "timestamps"
        ) == Link("../with_timestamps/timestamps")


def test_the_file_itself_by_another_name_is_no_other_file(copy: Path, generation: str) -> None:
    series = copy / "session.nwb.zarr" / "acquisition" / "shares_timestamps"
    write_links(series, generation, [entry("same", "/acquisition/raw/data", "../session.nwb.zarr")])
    with opened(copy / "session.nwb.zarr") as source:
        assert group(source, "acquisition/shares_timestamps").child("same") == Link("../raw/data")


def test_circles_of_links_end_as_an_error(copy: Path, generation: str) -> None:
    session = copy / "session.nwb.zarr"
    write_links(session / "acquisition", generation, [entry("a", "/acquisition/b"), entry("b", "/acquisition/a")])
    write_links(copy / "linking.nwb.zarr", generation, [entry("again", "/", "../linking2.nwb.zarr")])
    shutil.copytree(copy / "linking.nwb.zarr", copy / "linking2.nwb.zarr")
    write_links(copy / "linking2.nwb.zarr", generation, [entry("again", "/", "../linking.nwb.zarr")])
    with opened(session) as source, pytest.raises(TooDeep):
        resolve(source.root, "acquisition/a")
    with opened(copy / "linking.nwb.zarr", allow_external=(str(copy),)) as source, pytest.raises(TooDeep):
        resolve(source.root, "/".join(["again"] * 20))


def test_p8_files_with_links_to_each_other_end(copy: Path, generation: str) -> None:
    """No member is opened on the way: each link leads to another one or, at the end, over a million of them."""
    files = {"linking.nwb.zarr": "../other.nwb.zarr", "other.nwb.zarr": "../linking.nwb.zarr"}
    shutil.copytree(copy / "linking.nwb.zarr", copy / "other.nwb.zarr")
    for name, other in files.items():
        many = [entry(f"l{i}", f"/l{i + 1}/l{i + 1}", other) for i in range(20)]
        write_links(copy / name, generation, [entry("x", "/x", other), *many, entry("l20", "/", other)])
    with opened(copy / "linking.nwb.zarr", allow_external=(str(copy),)) as source:
        for name in ("x", "l0"):
            with pytest.raises(TooDeep, match="more than 40 links"):
                group(source).child(name)


def test_a_directory_hides_a_link_of_its_name(copy: Path, generation: str) -> None:
    series = copy / "session.nwb.zarr" / "acquisition" / "shares_timestamps"
    write_links(series, generation, [entry("data", "/acquisition/raw/data")])
    with opened(copy / "session.nwb.zarr") as source:
        assert [child.link for child in group(source, "acquisition/shares_timestamps").children()] == [None]
        assert read(source, "acquisition/shares_timestamps/data").dtype == np.float32


def test_damaged_attributes_hide_no_directory(copy: Path, generation: str) -> None:
    series = copy / "session.nwb.zarr" / "acquisition" / "shares_timestamps"
    (series / (".zattrs" if generation == "zarr2" else "zarr.json")).write_text("{")
    with opened(copy / "session.nwb.zarr") as source:
        root = group(source, "acquisition")
        if generation == "zarr2":  # in Zarr v3 the group itself is the damaged document
            found = group(source, "acquisition/shares_timestamps")
            assert [child.name for child in found.children()] == ["data"]
            assert as_array(found.child("data")) is not None
            with pytest.raises(CorruptData):
                found.child("timestamps")
        assert "shares_timestamps" in [child.name for child in root.children()]


def test_entries_that_are_no_links_are_left_out() -> None:
    good = entry("good", "/a//b/")
    bad: list[JSON] = [
        None, 1, "x", [], {}, entry("", "/a"), entry("x", None), entry("x", "/a/../b"), entry("x", "/./b"),
        entry("x", "/b", 7), entry("x", "/b", "\ud800"), entry("x", "/b", "../\0"),
        {"name": "x"}, {"name": 1, "path": "/a", "source": "."},
    ]  # fmt: skip
    assert parse_links({"zarr_link": [*bad, good]}) == {"good": ("a/b", ".")}
    assert parse_links({"_LINKS": [good, entry("good", "/other")]}) == {"good": ("a/b", ".")}
    for value in (None, 1, "x", {}, {"name": "x"}):
        assert parse_links({"zarr_link": value}) == {}


def test_links_cannot_leave_the_store(copy: Path, generation: str, tmp_path: Path) -> None:
    (tmp_path / "secret.zarr").mkdir()
    series = copy / "session.nwb.zarr" / "acquisition" / "shares_timestamps"
    write_links(
        series, generation,
        [entry("up", "/../../secret.zarr"), entry("out", "/", "../../secret.zarr"),
         entry("abs", "/", str(tmp_path / "secret.zarr")), entry("null", "/a\0b"), entry("dir/name", "/acquisition"),
         entry("..", "/acquisition")],
    )  # fmt: skip
    os.symlink(tmp_path / "secret.zarr", copy / "inside.zarr")
    write_links(copy / "session.nwb.zarr" / "acquisition", generation, [entry("link", "/", "../inside.zarr")])
    with opened(copy / "session.nwb.zarr", allow_external=(str(copy),)) as source:
        names = [child.name for child in group(source, "acquisition/shares_timestamps").children()]
        assert not {"up", "out", "abs"} & set(names)
        for name in ("up", "out", "abs"):
            with pytest.raises(NotFound):
                group(source, "acquisition/shares_timestamps").child(name)
        assert "link" not in [child.name for child in group(source, "acquisition").children()]


def test_files_in_a_collection_have_their_own_roots(folder: Path) -> None:
    with opened(folder) as source:
        series = group(source, "session.nwb.zarr/acquisition/shares_timestamps")
        assert series.child("timestamps") == Link("../with_timestamps/timestamps")
        found = read(source, "session.nwb.zarr/acquisition/shares_timestamps/timestamps")
        np.testing.assert_array_equal(found, np.arange(50) / 10)


# ---- hostile pickles


def test_a_hostile_pickle_executes_nothing(tmp_path: Path) -> None:
    files = unpack("zarr2", tmp_path / "files")
    chunk = files / "session.nwb.zarr" / "general/extracellular_ephys/electrodes/group"
    document = json.loads((chunk / ".zarray").read_text())
    (chunk / ".zarray").write_text(json.dumps({**document, "compressor": None}))
    canary = tmp_path / "canary"
    command = f"touch {canary}".encode()
    hostile = b"\x80\x02cposix\nsystem\nX" + len(command).to_bytes(4, "little") + command + b"\x85R."
    (chunk / "0").write_bytes(hostile)
    with opened(files / "session.nwb.zarr") as source:
        with pytest.raises(Unsupported, match=r"names posix\.system"):
            read(source, "general/extracellular_ephys/electrodes/group")
        assert not canary.exists()
        assert texts(read(source, "general/extracellular_ephys/electrodes/label"))


# ---- HDF5 and its export


def test_the_hdf5_file_and_its_export_give_equal_arrays(folder: Path, generation: str, tmp_path: Path) -> None:
    hdf5 = unpack("hdf5", tmp_path) / "session.nwb"
    compared = 0
    with opened(hdf5) as one, opened(folder / "export.nwb.zarr") as two:
        for path, wanted in expected_arrays("hdf5").items():
            first, second = read(one, path), read(two, path)
            assert first.dtype == second.dtype == wanted.dtype, path
            np.testing.assert_array_equal(first, wanted, path)
            np.testing.assert_array_equal(second, wanted, path)
            compared += 1
        for path in expected_facts("hdf5"):
            if path != "intervals/trials/timeseries":
                assert texts(read(one, path)) == texts(read(two, path)), path
                compared += 1
    assert compared > 20


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "no descriptor left"), Unreachable("no answer")])
def test_p3_links_are_not_left_out_while_attributes_cannot_be_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A group with unknown links was listed without them."""

    def members(of: Group) -> Iterator[str]:
        for child in of.children():
            node = None if child.link is not None else of.child(child.name)
            yield f"{child.name} {child.link}"
            if node is not None and node.kind == "group":
                yield from members(node)

    with opened(folder / FILES[0]) as source:
        hierarchy = type(cast(KeyedGroup, source.root).hierarchy)
        right = sorted(members(group(source)))
    assert any(not member.endswith("None") for member in right)

    def failing(*_: Any) -> Any:
        raise error

    with opened(folder / FILES[0]) as source:
        with monkeypatch.context() as patch:
            patch.setattr(hierarchy, "group_attributes", failing)
            with pytest.raises(type(error)):
                list(members(group(source)))
        assert sorted(members(group(source))) == right
