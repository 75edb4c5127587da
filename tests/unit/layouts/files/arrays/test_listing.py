"""What a listing of the layout `files` costs, tells and hides. Not here: the sizes in it (`test_array_files.py`)."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
import pytest
import zarr
from fake_model import FakeGroup, fake_array
from fake_model import tree as fake_tree
from files_layout import open_files, tree_of
from listed_sizes import ALL_FORMATS, all_entries, check_sizes, dataset, listed

from fsbridge.config import Config
from fsbridge.errors import CorruptData, FsbridgeError, NotFound, OutOfBudget, Stale, TimedOut
from fsbridge.formats.open import Opening
from fsbridge.kernel.ages import Ages
from fsbridge.kernel.handles import open_listing
from fsbridge.kernel.limits import KernelLimits
from fsbridge.layouts.files.arrays import listing
from fsbridge.layouts.files.arrays.extents import FileMap, Generated, View
from fsbridge.layouts.files.arrays.nodes import make_plan
from fsbridge.layouts.files.arrays.open_array import SharedLimits
from fsbridge.metadata import JSON
from fsbridge.mount.lifecycle import Tree, open_tree
from fsbridge.store import ROOT, Key, Member, Stat, Store
from fsbridge.store.local import LocalStore
from fsbridge.store.local.files import LocalObject
from fsbridge.tree import File

VARIANTS: dict[str, dict[str, Any]] = {
    "zarr2 flat": {"zarr_format": 2},
    "zarr2 nested": {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "zarr3": {"zarr_format": 3},
    "zarr3 flat": {"zarr_format": 3, "chunk_key_encoding": {"name": "default", "separator": "."}},
    "zarr3 sharded": {"zarr_format": 3, "shards": (8, 8)},
}


@pytest.fixture(params=VARIANTS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A group of one array `a` of 4 x 4 chunks, dated to the year 2001 with all that is in it."""
    options = VARIANTS[request.param]
    root = tmp_path / "store.zarr"
    group = zarr.open_group(root, mode="w", zarr_format=options["zarr_format"])
    more = {name: value for name, value in options.items() if name != "zarr_format"}
    group.create_array("a", shape=(16, 16), chunks=(4, 4), dtype="<u2", **more)[...] = np.arange(256).reshape(16, 16) + 1
    for path in (*root.rglob("*"), root):
        os.utime(path, (10**9, 10**9))
    return root


class NotedStore(LocalStore):
    """A directory that notes which keys are listed."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.looked: list[str] = []

    def list(self, key: Key, stats: bool = False) -> Iterator[Member]:
        self.looked.append(key)
        return super().list(key, stats)

    def names(self, key: Key, cuts: Sequence[str] = ()) -> Iterator[Sequence[str]]:
        self.looked.append(key)
        return super().names(key, cuts)

    def mtimes(self, key: Key, names: Sequence[str]) -> Sequence[int | None]:
        self.looked.append(key)
        return super().mtimes(key, names)


class FailingStore(LocalStore):
    """A directory in which reading the objects at the keys of `errors` raises these."""

    def __init__(self, root: Path, errors: dict[str, Exception]) -> None:
        super().__init__(str(root))
        self.errors = errors

    def open_object(self, key: Key) -> LocalObject:
        self._check(key)
        return super().open_object(key)

    def read(self, key: Key, limit: int) -> tuple[bytes, Stat]:
        self._check(key)
        return super().read(key, limit)

    def read_range(self, key: Key, start: int, length: int) -> tuple[bytes, Stat]:
        self._check(key)
        return super().read_range(key, start, length)

    def _check(self, key: Key) -> None:
        if key in self.errors:
            raise self.errors[key]


def open_in(store: Store, form: str = "zarr3", **options: Any) -> Tree:
    config = Config(store.describe(ROOT), "/nowhere", layout="files", files=("npy",), **options)
    return tree_of(Opening().open_in_store(form, store, config), config)


def test_a_listing_looks_at_no_chunk_and_is_what_stat_says(store: Path) -> None:
    noted = NotedStore(store)
    form = "zarr2" if (store / ".zgroup").exists() else "zarr3"
    tree, looked = open_in(noted, form, metadata_ttl=0), noted.looked
    found = all_entries(tree)
    assert set(found) == {b"a.json", b"a.npy"}
    assert looked == [""], "only the group itself is listed, once"
    file = found[b"a.npy"]
    assert file.attrs.size == 128 + 16 * 16 * 2
    assert callable(file.node)
    assert cast(File, file.node()).attrs() == file.attrs
    assert set(looked) == {""}
    tree.close()


def test_arrays_that_are_alike_have_the_sizes_that_their_files_have(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "s.zarr", mode="w")
    own: dict[str, dict[str, JSON]] = {"a": {}, "longer": {}, "with space": {}, "b": {"unit": "µm"}, "a.npy": {}}
    for name, attributes in own.items():
        group.create_array(name, shape=(4, 4), chunks=(4, 4), dtype="<u2", attributes=attributes)
    tree = open_tree(Config(source=str(tmp_path / "s.zarr"), mountpoint="/nowhere", layout="files", files=("npy",)))
    found = all_entries(tree)
    assert set(found) == {b"%s.%s" % (name, suffix) for name in (b"a", b"longer", b"with space", b"b", b"a.npy")
                          for suffix in (b"json", b"npy")} - {b"a.npy"}  # fmt: skip
    for key, entry in found.items():
        file: Any = tree.root.lookup(key)
        assert (entry.attrs, entry.version) == (file.attrs(), file.version)
        handle = file.open()
        assert len(handle.read(0, handle.size)) == handle.size == entry.attrs.size
    tree.close()


def test_each_name_is_listed_once_where_members_are_called_like_files_of_others(tmp_path: Path) -> None:
    """A group `x.json` beside an array `x` was listed twice, as a directory and as a file; so were files of links."""
    with h5py.File(tmp_path / "s.h5", "w") as file:
        for name in ("x", "y", "y.json", "z"):
            file[name] = np.arange(4)
        for name in ("x.json", "z.npy", "linked.npy", "linked.json", "v", "v.h5"):
            file.create_group(name)
        for name, target in (("linked", "/x"), ("z.json", "/v"), ("fine", "/x"), ("y.npy", "/nowhere"), ("fine.json", "/y")):
            file[name] = h5py.SoftLink(target)
    tree = open_tree(Config(str(tmp_path / "s.h5"), "/nowhere", layout="files", files=("npy", "h5")))
    entries = [entry for batch in tree.root.entries() for entry in batch]
    names = [entry.name for entry in entries]
    assert sorted(names) == sorted(set(names))
    assert {b"x.json", b"z.json", b"y.json", b"linked.json", b"fine.json", b"y.json.json"} <= set(names)
    for entry in entries:
        assert entry.attrs.kind == tree.root.lookup(entry.name).attrs().kind, entry.name
    tree.close()


def test_a_description_of_an_array_that_has_changed_is_stale(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=2)
    array = group.create_array("a", shape=(4, 4), chunks=(4, 4), dtype="<u2")
    tree = open_tree(
        Config(source=str(tmp_path / "s.zarr"), mountpoint="/nowhere", layout="files", files=("npy",), metadata_ttl=0)
    )
    file: Any = tree.root.lookup(b"a.json")
    array.attrs["more"] = "than before"
    with pytest.raises(Stale):
        file.open()
    assert b"than before" in bytes(cast(Any, tree.root.lookup(b"a.json")).open().content)
    tree.close()


def test_a_chunk_that_comes_later_shows_in_the_mtime(store: Path) -> None:
    before = listed(store)[b"a.npy"].attrs.mtime_ns
    assert before == 10**18
    chunks = store / "a" / "c" if (store / "a" / "c").is_dir() else store / "a"
    os.utime(chunks, (2 * 10**9, 2 * 10**9))  # as the directory's own entry, which a new chunk changes
    assert listed(store)[b"a.npy"].attrs.mtime_ns == 2 * 10**18


@pytest.mark.parametrize("scales", [None, (1.0, 2.0)])
def test_arrays_with_shared_metadata_have_the_axes_that_the_group_gives_each(
    scales: tuple[float, ...] | None, tmp_path: Path
) -> None:
    def dataset(path: str, scale: float) -> dict[str, Any]:
        return {"path": path, "coordinateTransformations": [{"type": "scale", "scale": [scale, scale]}]}

    told = [dataset(f"s{level}", scale) for level, scale in enumerate(scales or ())]
    group = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=2)
    group.attrs.put({"multiscales": [{"datasets": told}]} if told else {})
    for level in range(2):
        group.create_array(f"s{level}", shape=(4, 4), chunks=(4, 4), dtype="<u2")
    tree = open_tree(Config(source=str(tmp_path / "s.zarr"), mountpoint="/nowhere", layout="files", files=("npy",)))
    for level, name in enumerate((b"s0.json", b"s1.json")):
        file: Any = tree.root.lookup(name)
        described = json.loads(bytes(file.open().read(0, file.attrs().size)))
        assert [axis["scale"] for axis in described["axes"]] == [scales[level] if scales else None] * 2
    tree.close()


@pytest.mark.parametrize("place", ["group", "coordinate"])
def test_p3_spacing_that_cannot_be_read_just_now_is_not_taken_for_none(place: str, tmp_path: Path) -> None:
    """The file's header would lack it for as long as the array is remembered."""
    scales = [{"path": "a", "coordinateTransformations": [{"type": "scale", "scale": [3.0]}]}]
    attributes: dict[str, Any] = {"multiscales": [{"datasets": scales}]} if place == "group" else {}
    group = zarr.create_group(tmp_path / "s.zarr", zarr_format=3, attributes=attributes)
    group.create_array("a", shape=(4,), chunks=(4,), dtype="<u2", dimension_names=["x"])
    group.create_array("x", shape=(4,), chunks=(4,), dtype="<f8")[...] = 3 * np.arange(4)
    errors: dict[str, Exception] = {"zarr.json" if place == "group" else "x/c/0": TimedOut("no answer")}
    tree = open_in(FailingStore(tmp_path / "s.zarr", errors))

    def describe() -> dict[str, Any]:
        file: Any = tree.root.lookup(b"a.json")
        found: dict[str, Any] = json.loads(bytes(file.open().read(0, file.attrs().size)))
        return found

    with pytest.raises(TimedOut):
        describe()
    with pytest.raises(TimedOut):
        all_entries(tree)
    errors.clear()
    assert describe()["axes"][0]["scale"] == 3.0
    tree.close()


def test_attributes_of_arrays_that_are_alike_outlive_the_first_one(tmp_path: Path) -> None:
    """Large ones are parsed again: of the bytes that all share, not of the document of the array that was opened first."""
    root, said = tmp_path / "s.n5", {"long": "x" * 1200}
    for name in ("a", "b"):
        dataset(root / name, "uint8", [4], said)
    tree = open_tree(Config(source=str(root), mountpoint="/nowhere", layout="files", files=("npy",), metadata_ttl=0))
    assert set(all_entries(tree)) == {b"a.json", b"a.npy", b"b.json", b"b.npy"}
    (root / "a/attributes.json").write_text(json.dumps({"now": "a group"}))
    for name in ("c", "d"):
        dataset(root / name, "uint8", [4], said)
    assert {b"b.json", b"c.json", b"d.json"} <= set(all_entries(tree))
    file: Any = tree.root.lookup(b"d.json")
    described = json.loads(bytes(file.open().read(0, file.attrs().size)))
    assert described["attributes"] == said
    tree.close()


def test_p8_a_name_that_one_format_cannot_hold_hides_no_other_file(tmp_path: Path) -> None:
    """Arrays that are alike shared refusals of the first one's name, too: others were hidden whole."""
    for name in ("a", "with space", "b"):
        dataset(tmp_path / "s.n5" / name, "uint8", [4, 4])
    tree = open_tree(Config(source=str(tmp_path / "s.n5"), mountpoint="/nowhere", layout="files", files=("raw.mhd",)))
    names = {b"a", b"with space", b"b"}
    assert set(all_entries(tree)) == {b"a.raw.mhd", b"b.raw.mhd"} | {
        name + end for name in names for end in (b".json", b".raw")
    }
    tree.close()


def test_p8_a_disk_that_fails_below_one_array_hides_no_other(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "s.zarr", zarr_format=3)
    for name, dtype in (("a", "<u2"), ("b", "<u4")):  # of different kinds: each is opened
        group.create_array(name, shape=(4,), chunks=(4,), dtype=dtype)
    failing = FailingStore(tmp_path / "s.zarr", {"a/zarr.json": OSError(errno.EIO, os.strerror(errno.EIO))})
    tree = open_in(failing)
    assert set(all_entries(tree)) == {b"a", b"b.json", b"b.npy"}
    tree.close()


@pytest.mark.parametrize("error", [OutOfBudget("no memory"), TimedOut("too late"), CorruptData("damaged")])
def test_p3_an_array_that_a_listing_could_not_open_is_never_a_directory(error: FsbridgeError) -> None:
    """It was one once it could be opened, with its files inside; nor is it absent, which a copy would take for removed."""

    class Broken(FakeGroup):
        def child(self, name: str) -> Any:
            if name in broken:
                raise error
            return super().child(name)

    broken = {"a", "g"}
    array = fake_array(np.arange(4, dtype="<u2"), (4,))
    root = fake_tree(Broken({"a": array, "b": array, "g": FakeGroup({})}), layout="files", files=("npy",))
    found = {entry.name: entry for batch in root.entries() for entry in batch}
    assert set(found) == {b"a", b"b.json", b"b.npy", b"g", b"store.json"}
    for name in (b"a", b"g"):
        assert found[name].attrs.size is None, "so that a visit asks"
        opener: Any = found[name].node
        for look in (root.lookup, lambda _, opener=opener: opener()):
            with pytest.raises(type(error)):
                look(name)
    broken.clear()
    opener = found[b"a"].node
    for look in (root.lookup, lambda _: opener()):
        with pytest.raises(Stale):
            look(b"a")
    assert [cast(Any, found[b"g"].node)().attrs().kind, root.lookup(b"g").attrs().kind] == ["directory"] * 2
    assert {entry.name for batch in root.entries() for entry in batch} == {
        *(b"a.json", b"a.npy", b"b.json", b"b.npy", b"g", b"g.json", b"store.json")
    }
    with pytest.raises(NotFound):
        root.lookup(b"a")


def test_p8_attributes_that_no_header_can_hold_hide_nothing(tmp_path: Path) -> None:
    dataset(tmp_path / "s.n5/a", "uint8", [4, 4], {"resolution": [10**400, 1], "units": ["nm", "\ud800"]})
    dataset(tmp_path / "s.n5/b", "uint8", [4, 4], {"resolution": [1e-300, 1e300], "units": ["\ud800", "km"]})
    tree = open_tree(Config(source=str(tmp_path / "s.n5"), mountpoint="/nowhere", layout="files", files=ALL_FORMATS))
    shown = set(all_entries(tree))
    assert {name + end for name in (b"a", b"b") for end in (b".json", b".nrrd", b".nii", b".mrc", b".ome.tif")} <= shown
    tree.close()


def test_p8_planes_that_classic_tiff_cannot_hold_hide_nothing(tmp_path: Path) -> None:
    """They made the listing of the whole group an input/output error."""
    dataset(tmp_path / "s.n5/a", "uint8", [65536, 65536, 2])
    dataset(tmp_path / "s.n5/b", "uint8", [65535, 65536, 2])
    tree = open_tree(Config(source=str(tmp_path / "s.n5"), mountpoint="/nowhere", layout="files", files=("tif",)))
    assert set(all_entries(tree)) == {b"a.json", b"b.json", b"b.tif"}
    with pytest.raises(NotFound):
        tree.root.lookup(b"a.tif")
    tree.close()


def test_p9_an_array_replaced_or_removed_since_it_was_listed_is_not_opened(tmp_path: Path) -> None:
    root = tmp_path / "s.n5"
    for name in ("a", "b", "c", "d"):
        dataset(root / name, "uint8", [4])
    tree = open_tree(Config(source=str(root), mountpoint="/nowhere", layout="files", files=("npy",)))
    found = all_entries(tree)
    (root / "c/attributes.json").unlink()
    (root / "c").rmdir()
    (root / "d/attributes.json").write_text((root / "a/attributes.json").read_text().replace("[4]", "[5]"))
    for key, entry in found.items():
        opener: Any = entry.node
        if key[:1] in (b"a", b"b"):
            opener().open().close()
        else:  # the kernel's side then looks the name up again
            with pytest.raises(Stale):
                opener().open()
    tree.close()


def test_files_are_the_same_ones_in_each_listing(tmp_path: Path) -> None:
    """Otherwise the kernel drops what it has of them, and `find` sees them change beneath it."""
    for number in range(600):
        dataset(tmp_path / f"s.n5/{number}", "uint8", [4])
    tree = open_tree(
        Config(source=str(tmp_path / "s.n5"), mountpoint="/nowhere", layout="files", files=("npy",), metadata_ttl=0)
    )
    first = {name: entry.version for name, entry in all_entries(tree).items()}
    assert {name: entry.version for name, entry in all_entries(tree).items()} == first
    cast(Any, tree.root.lookup(b"500.npy")).open().close()
    assert {name: entry.version for name, entry in all_entries(tree).items()} == first
    tree.close()


def test_p9_a_file_that_was_read_is_another_one_once_its_array_was_dropped(tmp_path: Path) -> None:
    """Only what nothing was read of stays the same: what is around the array may have changed meanwhile."""
    for name in "abcd":
        dataset(tmp_path / "s.n5" / name, "uint8", [4])
    config = Config(source=str(tmp_path / "s.n5"), mountpoint="/nowhere", layout="files", files=("npy",), metadata_ttl=0)
    tree = open_files(config, limits=SharedLimits(kept_arrays=1))

    def list_versions() -> dict[bytes, Hashable]:
        return {name: entry.version for name, entry in all_entries(tree).items()}

    before = list_versions()
    assert list_versions() == before
    for key in (b"a.json", b"b.npy"):
        cast(File, tree.root.lookup(key)).open().close()
    tree.root.lookup(b"c.npy")  # now this array is the one that is kept
    after = list_versions()
    assert {name for name in after if after[name] != before[name]} == {b"a.json", b"a.npy", b"b.json", b"b.npy"}
    tree.close()


def test_a_directory_that_is_opened_is_read_with_it(tmp_path: Path) -> None:
    """Only then do walks read the next ones ahead; the first batch of a listing was an empty one, which ended that."""
    dataset(tmp_path / "s.n5/a", "uint8", [4])
    config = Config(source=str(tmp_path / "s.n5"), mountpoint="/nowhere", layout="files", files=("npy",))
    tree = open_tree(config)
    limits = KernelLimits(beginning_seconds=60.0)  # also where the machine is busy
    reading = open_listing(1, Ages(config), limits, tree.root).reading
    assert reading is not None
    assert [entry.name for batch in reading.batches for entry in batch] == [b"a.json", b"a.npy", b"store.json"]
    tree.close()


def test_p9_attributes_that_come_go_or_change_make_another_array(tmp_path: Path) -> None:
    root = tmp_path / "s.zarr"
    for number in range(6):
        (root / f"a{number}").mkdir(parents=True)
        document = {"zarr_format": 2, "shape": [5], "chunks": [4], "dtype": "<u2", "fill_value": 0, "order": "C"}
        (root / f"a{number}/.zarray").write_text(json.dumps({**document, "filters": None, "compressor": None}))
        if number % 2:
            (root / f"a{number}/.zattrs").write_text('{"unit": "nm"}')
    tree = open_tree(Config(source=str(root), mountpoint="/nowhere", layout="files", files=("npy",), metadata_ttl=0))
    before = all_entries(tree)
    (root / "a1/.zattrs").unlink()
    (root / "a2/.zattrs").write_text('{"unit": "nm"}')
    (root / "a3/.zattrs").write_text('{"unit": "um"}')
    after = all_entries(tree)
    assert set(before) == set(after)
    for name, entry in after.items():
        assert (entry.version == before[name].version) == (name[:2] in (b"a0", b"a4", b"a5")), name
        assert cast(Any, tree.root.lookup(name)).version == entry.version
    tree.close()


def test_headers_are_made_once_for_arrays_that_differ_in_attributes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each array made a listing of many of them twenty times slower than that of the layout `zarr3`."""
    root = tmp_path / "s.zarr"
    group = zarr.open_group(root, mode="w", zarr_format=3)
    for number in range(20):
        group.create_array(f"{number}", shape=(7, 11, 13), chunks=(4, 4, 4), dtype="<u2", attributes={"number": number})
    formats = ("nii", "mrc", "tif", "ome.tif", "raw.mhd")
    made: list[str] = []

    def noted(view: View, suffix: str) -> FileMap | Generated:
        made.append(suffix)
        return make_plan(view, suffix)

    monkeypatch.setattr(listing, "make_plan", noted)
    found = open_tree(Config(source=str(root), mountpoint="/nowhere", layout="files", files=formats))
    entries = all_entries(found)
    found.close()
    assert sorted(made) == sorted([*formats, "raw"] * 2), "once for names of one letter, once for names of two"
    assert {entry.attrs.size is not None for entry in entries.values()} == {True}
    check_sizes(root, formats)


def test_p2_arrays_that_differ_in_packing_only_have_lengths_of_their_own(tmp_path: Path) -> None:
    """Headers tell the packing: a listing that takes one array for the other tells the wrong size."""
    group = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=3)
    for name, factor in (("a", 0.5), ("b", 0.0123456789), ("c", None)):
        attributes: dict[str, JSON] = {} if factor is None else {"scale_factor": factor}
        group.create_array(name, shape=(7, 11, 13), chunks=(4, 4, 4), dtype="<u2", attributes=attributes)
    formats = ("nrrd", "raw.nhdr", "mha", "raw.mhd", "nii")
    tree = open_tree(Config(source=str(tmp_path / "s.zarr"), mountpoint="/nowhere", layout="files", files=formats))
    for key, entry in all_entries(tree).items():
        assert entry.attrs.size == cast(File, tree.root.lookup(key)).measure().size, key
    tree.close()
