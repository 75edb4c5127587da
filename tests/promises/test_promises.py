"""The promises of docs/semantics.md, by number, on real mounts: of every sample in every layout where a test only reads.

Elsewhere: P6, P10 and P11 in test_promised_ends.py; P9 in test_freshness.py; P12 for each format and file type in
test_matrix.py, and writer by writer in test_oracle.py. P3 and P8 for every codec: test_damage.py. P5 in the source text:
test_layers.py. P7 under hanging stores: test_faults.py.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import pickle
import random
import re
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest
import zarr
from mounting import Mount, MountFunction
from observing import Canary, bytes_or_none, errno_of, files_of, read_as_large_as_it_says, snapshot
from posix_checks import check
from promised_store import VALUES, promised_store, write_zarr
from promised_views import FILES, VIEWS, ZARR3, View, each
from readers import read
from samples import SAMPLES, Sample

PLACES = [(i, j) for i in range(4) for j in range(3)]
SOURCES: Mapping[str, Callable[[Path], Sample]] = {
    "promised": lambda folder: Sample(promised_store(folder / "store.zarr"), {"a": VALUES}, group=""),
    **SAMPLES,
}
REFUSED = r"is left out of the layout (n5|zarr2): (N5|Zarr v2) has no|texts contain zero characters"
PROMISED = [("promised", view) for view in VIEWS]
TABLE = [*PROMISED, *((name, view) for name in SAMPLES if "/" not in name and name != "zarr2" for view in (ZARR3, FILES))]
"""Each layout, and each format as chunks and as whole arrays. All others would take a minute; P12 has them without FUSE."""


def mounted(pairs: Sequence[tuple[str, View]]) -> pytest.MarkDecorator:
    """Share a mount of each of these samples in a layout among the tests that only read."""
    return pytest.mark.parametrize("shown", pairs, ids=[f"{sample}-{view.name}" for sample, view in pairs], indirect=True)


class Shown(NamedTuple):
    """A mount of a sample in a layout."""

    sample: Sample
    view: View
    tree: Mount

    def paths(self) -> list[Path]:
        """Find all that is in the sample's group, but not what cannot be made: texts with zeros are an error in HDF5."""
        return [path for path in (self.tree / self.sample.group).rglob("*") if errno_of(path.stat) is None]

    def files(self) -> list[Path]:
        """Find all files among them."""
        return [path for path in self.paths() if path.is_file()]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Sample]:
    """Write a sample once."""
    return functools.cache(lambda name: SOURCES[name](tmp_path_factory.mktemp("sample")))


@pytest.fixture(scope="module")
def shown(
    request: pytest.FixtureRequest, written: Callable[[str], Sample], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shown]:
    name, view = request.param
    tree = Mount(written(name).source, tmp_path_factory.mktemp("mount"), view.options)
    tree.allow(REFUSED)
    yield Shown(written(name), view, tree)
    tree.stop()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return promised_store(tmp_path / "store.zarr")


def names_below(tree: Mount) -> set[str]:
    """List all files without a look at them: some cannot be made."""
    return {os.path.relpath(os.path.join(folder, name), tree) for folder, _, names in os.walk(tree) for name in names}


# --- P1


@mounted(TABLE)
def test_p1_every_change_is_refused_and_the_store_stays_as_it_was(shown: Shown) -> None:
    before = snapshot(shown.sample.source.parent)
    numbers = [path for path, values in shown.sample.arrays.items() if np.asarray(values).dtype.kind in "iuf"]
    array = [path for path in numbers if path.startswith(shown.sample.group)][-1]
    further = {*shown.view.others, shown.view.chunk("a", 3, 2)} if array == "a" else set()
    for name in (
        shown.view.document.format(array),
        shown.view.chunk(array, *[0] * np.ndim(shown.sample.arrays[array])),
        *further,
    ):
        if (shown.tree / name).stat().st_size:
            assert check(shown.tree / name, (shown.tree / shown.view.document.format(array)).parent) >= 50, name
    for path in (shown.tree.path, *shown.paths()):
        assert path.stat().st_mode & 0o222 == 0
        assert path.is_dir() or len(path.read_bytes()) == path.stat().st_size
    assert snapshot(shown.sample.source.parent) == before


# --- P2


@mounted(TABLE)
def test_p2_size_is_truth(shown: Shown) -> None:
    rng = random.Random(2)
    further = shown.view.others if "a" in shown.sample.arrays else ()
    for path in [*shown.files(), *(shown.tree / name for name in further)]:
        read_as_large_as_it_says(path, rng)


@mounted(PROMISED)
def test_p2_each_chunk_has_its_elements_and_nothing_more_is_listed(shown: Shown) -> None:
    for place in PLACES:
        assert (shown.tree / shown.view.chunk("a", *place)).read_bytes() == shown.view.content(VALUES, *place)
    assert names_below(shown.tree) == shown.view.listing(PLACES)


def test_p2_an_array_of_two_to_the_62_bytes(tmp_path: Path, mount: MountFunction) -> None:
    group = zarr.create_group(tmp_path / "s.zarr")
    group.create_array("a", shape=(2**31, 2**31), chunks=(2**10, 2**10), dtype="u1", fill_value=7)
    tree = mount(tmp_path / "s.zarr", *FILES.options)
    assert (tree / "a.raw").stat().st_size == 2**62
    assert (tree / "a.npy").stat().st_size == 2**62 + 128
    with open(tree / "a.npy", "rb") as file:
        for place in (128, 2**61, 2**62 + 100):
            assert os.pread(file.fileno(), 4, place) == bytes([7] * 4)
    np.testing.assert_array_equal(np.load(tree / f"a[{2**31 - 3}:,{2**30}].npy"), [7, 7, 7])


# --- P3


@each(VIEWS)
def test_p3_absent_is_enoent_and_damage_is_not(store: Path, mount: MountFunction, view: View) -> None:
    (store / "a/1.1").unlink()
    (store / "a/2.2").write_bytes(b"not zlib")
    tree = mount(store, *view.options)
    tree.allow(r"/a/2\.2: zlib: ")
    assert bytes_or_none(tree / view.chunk("a", 1, 1)) == view.hole(VALUES, 1, 1)
    assert errno_of((tree / view.chunk("a", 2, 2)).read_bytes) == errno.EIO
    told = tree.told(re.escape(f"{store}/a/2.2: zlib: "))
    assert told == tree.log(), "one line, which names the object in the store, and the reason"
    for name in view.whole:
        assert errno_of((tree / name.format("a")).read_bytes) == errno.EIO, name
    if view.whole:
        expected = VALUES.copy()
        expected[10:20, 10:20] = 0
        np.testing.assert_array_equal(np.load(tree / "a[:20].npy"), expected[:20])
        assert errno_of((tree / "a[20:,20:].npy").read_bytes) == errno.EIO
    assert (tree / view.chunk("a", 3, 2)).read_bytes() == view.content(VALUES, 3, 2)
    assert names_below(tree) == view.listing({*PLACES} - {(1, 1)}), "a damaged chunk is listed: it is there"


@mounted(TABLE)
def test_p3_only_canonical_names_are_there(shown: Shown) -> None:
    for array, values in shown.sample.arrays.items():
        for name in shown.view.absent(array, np.ndim(values)):
            assert errno_of((shown.tree / name).stat) == errno.ENOENT, name


@each(VIEWS)
def test_p3_links_that_lead_nowhere_are_listed(store: Path, mount: MountFunction, view: View) -> None:
    """For example, a disk is not mounted now: a mirror of the listing would delete the copy of what was there."""
    for name, target in (("gone", "never"), ("out", "/etc"), (".#lock", "somebody@here"), ("attributes.json", "never")):
        (store / name).symlink_to(target)
    tree = mount(store, *view.options)
    tree.allow("")
    assert {view.document.format("a").split("/")[0], "gone", "out"} <= set(os.listdir(tree))
    assert ".#lock" not in os.listdir(tree)
    assert errno_of(lambda: os.listdir(tree / "gone")) == errno.EIO
    assert errno_of(lambda: os.listdir(tree / "out")) == errno.EACCES
    assert (tree / view.document.format("a")).read_bytes()


@each(VIEWS)
def test_directories_have_the_same_time_in_listings_and_by_name(store: Path, mount: MountFunction, view: View) -> None:
    for document in files_of(store):
        os.utime(document, (1e9, 1e9))  # an array's directory is younger than what is in it
    tree = mount(store, *view.options, "--metadata-ttl", "0.1")
    for folder in [path for path in tree.path.rglob("*") if path.is_dir()]:
        with os.scandir(folder.parent) as entries:
            (entry,) = [entry for entry in entries if entry.name == folder.name]
            listed = entry.stat().st_mtime_ns
        time.sleep(0.2)  # or else the kernel would answer with what the listing has told
        assert folder.stat().st_mtime_ns == listed


# --- P4


@each(VIEWS)
def test_p4_nothing_outside_is_opened(tmp_path: Path, store: Path, mount: MountFunction, view: View) -> None:
    secret = tmp_path / "secret"
    write_zarr(secret / "a", np.full((20, 20), 42, np.int32))
    links: dict[str, str | Path] = {
        "a/0.0": secret / "a/0.0",
        "a/0.1": "../../secret/a/0.1",
        "a/1.0": "1.1",  # stays beneath the root
        "b": secret / "a",
        "d": "../secret/a",
        "loop": "loop",
    }
    for name, target in links.items():
        (store / name).unlink(missing_ok=True)
        (store / name).symlink_to(target)
    tree = mount(store, *view.options)
    tree.allow("WARNING")
    for place in ((0, 0), (0, 1)):
        code = errno_of((tree / view.chunk("a", *place)).read_bytes)
        assert code in (errno.EACCES, errno.EIO), "refused is not absent"
    for name in ("b", "d", "loop"):
        for file in (view.document.format(name), view.chunk(name, 0, 0), *(whole.format(name) for whole in view.whole)):
            code = errno_of((tree / file).read_bytes)
            assert code in (errno.EACCES, errno.ENOENT, errno.ELOOP, errno.EIO), f"{file}: {code}"
        assert errno_of(partial(os.listdir, tree / name)) in {errno.EACCES, errno.ELOOP, errno.EIO}
    assert (tree / view.chunk("a", 1, 0)).read_bytes() == view.content(VALUES, 1, 1)
    for name in (*names_below(tree), *(whole.format("a") for whole in view.whole)):
        with contextlib.suppress(OSError):
            data = (tree / name).read_bytes()
            assert struct.pack("<3i", 42, 42, 42) not in data, name
            assert struct.pack(">3i", 42, 42, 42) not in data, name
    for name in ("..", "../secret/a/0.0", "a/../../secret/a/0.0"):
        assert not os.path.realpath(tree / name).startswith(str(secret))


# --- P5


@each(VIEWS)
def test_p5_pickles_are_never_executed(tmp_path: Path, store: Path, mount: MountFunction, view: View) -> None:
    canary, objects = tmp_path / "canary", store / "objects"
    objects.mkdir()
    (objects / ".zarray").write_text(
        '{"zarr_format": 2, "shape": [1, 1], "chunks": [1, 1], "dtype": "|O", "order": "C", "fill_value": null,'
        ' "compressor": null, "filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 4}]}'
    )
    (objects / "0.0").write_bytes(pickle.dumps(Canary(canary)))
    tree = mount(store, *view.options)
    tree.allow("objects")
    for name in (view.chunk("objects", 0, 0), *(whole.format("objects") for whole in (*view.whole, "{}.txt"))):
        assert errno_of((tree / name).read_bytes) in (errno.EOPNOTSUPP, errno.EIO, errno.ENOENT)
    if view.whole:
        with h5py.File(tree / "store.h5") as file:
            assert list(file) == ["a"]
            assert "objects" in file.attrs["fsbridge_left_out"][0]
    assert (tree / view.document.format("a")).read_bytes()
    assert tree.alive
    assert not canary.exists()
    pickle.loads((objects / "0.0").read_bytes())
    assert canary.exists(), "the pickle was a loaded one"


# --- P7


@each(VIEWS)
def test_p7_a_pipe_in_place_of_a_chunk_or_document_does_not_exist(store: Path, mount: MountFunction, view: View) -> None:
    """Opening a FIFO blocks until it has a writer: a naive reader would hang for ever."""
    (store / "a/0.0").unlink()
    os.mkfifo(store / "a/0.0")
    (store / "b").mkdir()
    os.mkfifo(store / "b/.zarray")
    tree = mount(store, *view.options)
    tree.allow("a FIFO, socket or device, which fsbridge leaves alone")
    chunk = subprocess.run(["cat", tree / view.chunk("a", 0, 0)], capture_output=True, timeout=25)
    assert chunk.stdout == (view.hole(VALUES, 0, 0) or b"")
    assert (b"No such file" in chunk.stderr) == (view.hole(VALUES, 0, 0) is None)
    group = subprocess.run(
        ["cat", tree / view.document.replace(".zarray", ".zgroup").format("b")], capture_output=True, timeout=25
    )
    assert "shape" not in json.loads(group.stdout)
    assert json.loads(group.stdout).get("node_type", "group") == "group"  # as any directory without documents
    assert len(tree.told("FIFO", 2)) == 2
    assert tree.alive


# --- P8


@each(VIEWS)
def test_p8_bad_neighbours_are_errors_and_spoil_nothing_else(store: Path, mount: MountFunction, view: View) -> None:
    valid: dict[str, Any] = json.loads((store / "a/.zarray").read_text())
    bad = {
        "truncated": b'{"zarr_format": 2, "shape": [4',
        "not-json": b"\xff\xfe\x00",
        "wrong-kind": b"[1, 2]",
        "deep": b"[" * 100_000,
        "rank": json.dumps({**valid, "chunks": [1]}).encode(),
        "negative": json.dumps({**valid, "shape": [-1, 1]}).encode(),
        "codec": json.dumps({**valid, "compressor": {"id": "lossless_audio"}}).encode(),
        "dtype": json.dumps({**valid, "dtype": "<q9"}).encode(),
    }
    for name, document in bad.items():
        write_zarr(store / name, VALUES)
        (store / name / ".zarray").write_bytes(document)
    os.mkdir(os.fsencode(store) + b"/bad-\xff-name")
    zarr.create_group(store / "new\nline", zarr_format=2)
    tree = mount(store, *view.options)
    tree.allow("WARNING")
    described = (
        "a",
        "new%0Aline",
        "codec",
        *([] if view.whole else bad),
    )  # a file that describes what is damaged is an error
    assert {view.document.format(name).split("/")[0] for name in described} <= set(os.listdir(tree))
    for name in bad:
        code = errno_of((tree / view.chunk(name, 0, 0)).read_bytes)
        assert code in (errno.EIO, errno.EOPNOTSUPP), f"{name}: {code}"
    assert errno_of((tree / view.chunk("codec", 0, 0)).read_bytes) == errno.EOPNOTSUPP
    assert errno_of((tree / view.document.format("truncated")).read_bytes) == errno.EIO
    assert view.listing(PLACES) <= names_below(tree)
    assert (tree / view.chunk("a", 3, 2)).read_bytes() == view.content(VALUES, 3, 2)
    assert tree.alive
    for name in bad:
        tree.told(f"/{name}/(.zarray|0.0): ")  # when these are written, so is what came before
    assert not [line for line in tree.log() if "unexpected" in line or "Traceback" in line]


def test_p8_bad_neighbours_are_named_in_hdf5_files(store: Path, mount: MountFunction) -> None:
    for name in ("broken", "odd", "huge"):
        write_zarr(store / name, VALUES)
    document = (store / "a/.zarray").read_text()
    (store / "broken/.zarray").write_text("{")
    (store / "odd/.zarray").write_text(document.replace('"zlib"', '"unknown"'))
    (store / "huge/.zarray").write_text(document.replace("[35,", f"[{2**62},").replace("35,", f"{2**62},"))
    tree = mount(store, *FILES.options)
    tree.allow(r"broken|odd|unknown|huge")
    assert {"a.npy", "odd.json", "huge.json"} <= set(os.listdir(tree))
    assert errno_of((tree / "huge.npy").stat) == errno.ENOENT
    assert errno_of((tree / "odd.npy").read_bytes) == errno.EOPNOTSUPP
    with h5py.File(tree / "store.h5") as file:
        np.testing.assert_array_equal(file["a"][()], VALUES)
        named = " ".join(file.attrs["fsbridge_left_out"])
        assert "broken" in named
        assert "huge" in named
        assert errno_of(lambda: file["odd"][()]) is not None


def test_p8_names_from_a_store_forge_no_lines_and_command_no_terminal(store: Path, mount: MountFunction) -> None:
    evil = "x\n2026-01-01 00:00:00,000 CRITICAL forged\x1b[2J\x9b2J\u202e"
    os.symlink("/nowhere", store / evil)
    tree = mount(store)
    tree.allow("WARNING")
    os.listdir(tree)
    errno_of(lambda: os.listdir(os.fsencode(tree) + b"/" + os.fsencode(evil.replace("\n", "%0A").replace("\x1b", "%1B"))))
    tree.told("forged")
    text = tree.log_path.read_bytes().decode()
    assert not [line for line in text.splitlines() if not line.startswith("fsbridge: WARNING ")]
    assert all(char.isprintable() or char == "\n" for char in text)
    assert r"x\n2026-01-01 00:00:00,000 CRITICAL forged\x1b[2J\x9b2J\u202e" in text


# --- P12


@mounted(PROMISED[:-1])
def test_p12_two_readers_in_other_processes_agree(shown: Shown) -> None:
    for reader in shown.view.readers:
        values = read(shown.tree, reader)["a"].values
        np.testing.assert_array_equal(values.T if shown.view.turned and reader != "z5py-n5" else values, VALUES)


@mounted(PROMISED[-1:])
def test_p12_every_file_has_the_elements(shown: Shown) -> None:
    """Read by numpy and h5py; what the programs of each field read: test_files_mount.py, scripts/legacy-check."""
    for _ in range(2):
        np.testing.assert_array_equal(np.load(shown.tree / "a.npy"), VALUES)
        np.testing.assert_array_equal(np.fromfile(shown.tree / "a.raw", "<i4").reshape(VALUES.shape), VALUES)
        np.testing.assert_array_equal(np.loadtxt(shown.tree / "a.csv", delimiter=",", dtype="i4", skiprows=1), VALUES)
        for name in ("a.h5", "store.h5"):
            with h5py.File(shown.tree / name) as file:
                np.testing.assert_array_equal(file["a"][()], VALUES)
