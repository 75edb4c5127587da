"""`<store>.h5` of an HDF5 file, in this process: the file's own bytes if any program can read them, else a virtual file."""

from __future__ import annotations

import io
import os
import shutil
import signal
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import h5py
import hdf5plugin
import numpy as np
import pytest
from fake_s3 import FakeS3
from h5py import h5p
from hdf5_children import watched
from hdf5_model import opened as opened_hdf5
from remote_hdf5 import opened_remote, upload
from tree_walker import find_node
from waiting import until

from fsbridge.children.client import ChildProcess
from fsbridge.children.hdf5_functions import ID, find_function
from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import CorruptData, Stale
from fsbridge.formats.hdf5.child.alone import LoneFile
from fsbridge.formats.hdf5.source import HDF5Source
from fsbridge.formats.open import Opening
from fsbridge.formats.shared import Shared
from fsbridge.layouts import root_directory
from fsbridge.layouts.files.h5.nodes import H5Group
from fsbridge.layouts.stored_file import StoredFileNode
from fsbridge.model import Source
from fsbridge.tree import Directory, File

NUMBERS = np.arange(4000, dtype="<i4").reshape(40, 100)


def open_root(source: Source, config: Config) -> Directory:
    return root_directory(source, config, ChunkCache(1 << 22))


@contextmanager
def open_store(path: Path, shared: Shared | None = None, **options: Any) -> Iterator[Directory]:
    config = Config(str(path), "/mnt", layout="files", **options)
    source = Opening(shared).source(config.source, config)
    try:
        yield open_root(source, config)
    finally:
        source.close()


def find_file(root: Directory, name: str = "s.h5") -> File:
    return cast(File, find_node(root, name))


def read_content(file: File) -> bytes:
    file.measure()
    handle = file.open()
    try:
        return bytes(handle.read(0, handle.size))
    finally:
        handle.close()


def write(path: Path, add: Callable[[h5py.File], object] = lambda file: None, **options: Any) -> Path:
    """A file with an array, and what `add` puts into it."""
    with h5py.File(path / "s.h5", "w", **options) as file:
        file.create_dataset("g/a", data=NUMBERS, chunks=(10, 100), compression="gzip")
        add(file)
    return path / "s.h5"


def raw_file(file: h5py.File) -> None:
    file.create_dataset("x", (3,), "u1", external=[("raw.bin", 0, 3)])


def virtual(file: h5py.File, name: str) -> None:
    layout = h5py.VirtualLayout(NUMBERS.shape, NUMBERS.dtype)
    layout[...] = h5py.VirtualSource(name, "g/a", NUMBERS.shape)
    file.create_virtual_dataset("v", layout)


def filtered_links(file: h5py.File) -> None:
    """A group with a filter for its links. h5py offers none, HDF5 does (H5Pset_fletcher32)."""
    plist = h5p.create(h5p.GROUP_CREATE)
    assert find_function(h5p, "H5Pset_fletcher32", ID)(plist.id) >= 0
    h5py.h5g.create(file.id, b"filtered", gcpl=plist)


@pytest.mark.parametrize(
    "add",
    [
        lambda file: None,
        lambda file: file.create_dataset("x", data=NUMBERS, chunks=(10, 10), shuffle=True, scaleoffset=0),
        lambda file: file.create_dataset("x", data=NUMBERS, chunks=(10, 10), compression=4, fletcher32=True),
        lambda file: file.create_dataset("x", data=NUMBERS, chunks=(10, 10), compression="szip"),
        lambda file: virtual(file, "."),
        lambda file: file.update({"soft": h5py.SoftLink("/nowhere"), "cycle": file["g"]}),
        lambda file: file.update({"type": np.dtype("f4"), "reference": file["g"].ref}),
        filtered_links,
    ],
    ids=["gzip", "scaleoffset", "fletcher32", "szip", "virtual", "links", "types", "group"],
)
def test_p12_a_file_that_hdf5_alone_can_read_is_shown_as_it_is(add: Callable[[h5py.File], object], tmp_path: Path) -> None:
    path = write(tmp_path, add, libver="latest")
    with open_store(path) as root:
        file = find_file(root)
        assert isinstance(file, StoredFileNode)
        assert file.attrs().size == path.stat().st_size
        assert read_content(file) == path.read_bytes()
        assert isinstance(find_file(root, "g.h5"), H5Group)  # a group is a part of the file


@pytest.mark.parametrize(
    "add",
    [
        lambda file: file.create_dataset("x", data=NUMBERS, chunks=(10, 10), compression="lzf"),
        lambda file: file.create_dataset("x", data=NUMBERS, chunks=(10, 10), **hdf5plugin.Blosc2()),
        raw_file,
        lambda file: virtual(file, "other.h5"),
        lambda file: file.update({"deep/link": h5py.ExternalLink("other.h5", "/")}),
    ],
    ids=["lzf", "plugin", "raw", "virtual", "link"],
)
def test_p12_a_file_that_needs_more_is_a_virtual_one(
    add: Callable[[h5py.File], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Programs get its data without filters, and the log says why."""
    caplog.set_level("INFO")
    with open_store(write(tmp_path, add)) as root:
        file = find_file(root)
        assert isinstance(file, H5Group)
        with h5py.File(io.BytesIO(read_content(file))) as made:
            assert made["g/a"][()].tolist() == NUMBERS.tolist()
            if "x" in made:
                assert made["x"].compression is None
    assert sum("is shown as an HDF5 file made anew: /" in message for message in caplog.messages) == 1


def test_p12_a_file_with_the_mark_of_a_writer_is_a_virtual_one(tmp_path: Path) -> None:
    """A program would refuse its bytes."""
    with h5py.File(tmp_path / "open.h5", "w", libver="latest") as file:
        file["a"] = NUMBERS
        file.swmr_mode = True
        shutil.copy(tmp_path / "open.h5", tmp_path / "s.h5")
    with pytest.raises(OSError, match="already open for"):
        h5py.File(tmp_path / "s.h5")
    with open_store(tmp_path / "s.h5") as root:
        file = find_file(root)
        assert isinstance(file, H5Group)
        with h5py.File(io.BytesIO(read_content(file))) as made:
            assert made["a"][()].tolist() == NUMBERS.tolist()


def test_a_selection_of_a_file_never_is_the_whole_file(tmp_path: Path) -> None:
    """Also if it selects everything: what is left out is in no file."""
    path = write(tmp_path, lambda file: file.update({"secret": np.arange(5)}))
    selections: tuple[dict[str, Any], ...] = (
        {"include": ("g",)}, {"exclude": ("secret",)}, {"include": ("*",)}, {"inside": ("g",)},
    )  # fmt: skip
    for options in selections:
        with open_store(path, **options) as root:
            name = "g.h5" if "inside" in options else "s.h5"
            file = find_file(root, name)
            assert isinstance(file, H5Group), options
            with h5py.File(io.BytesIO(read_content(file))) as made:
                assert ("secret" in made) == ("*" in options.get("include", ()))
    with open_store(tmp_path) as root:  # the whole member of a collection
        assert read_content(find_file(root, "s.h5.h5")) == path.read_bytes()
    with open_store(tmp_path, exclude=("s.h5/secret",)) as root:
        assert isinstance(find_file(root, "s.h5.h5"), H5Group)


def watch_for_alone(act: Callable[[ChildProcess], object] = lambda child: None) -> tuple[Shared, list[int]]:
    """Return what sources share, and the numbers of the children that are asked whether a file is alone.

    `act` does something to each of them, before it can answer.
    """
    asked: list[int] = []

    def note(child: ChildProcess, question: dict[str, Any]) -> None:
        if question.get("op") == "alone":
            asked.append(child.pid)
            act(child)

    return watched(during=note), asked


def test_p7_a_listing_does_not_ask_and_a_version_is_asked_about_once(tmp_path: Path) -> None:
    path = write(tmp_path)
    os.utime(path, ns=(10**18 + 1, 10**18 + 1))  # not a whole second: later changes show at once
    shared, asked = watch_for_alone()
    with open_store(path, shared, files=("npy", "h5")) as root:
        entries = [entry for batch in root.entries() for entry in batch]
        assert b"s.h5" in [entry.name for entry in entries]
        assert asked == []
        for _ in range(3):
            assert read_content(find_file(root)) == path.read_bytes()
        assert len(asked) == 1


@pytest.mark.parametrize("what", [signal.SIGSTOP, signal.SIGSEGV])
def test_p7_p8_a_child_that_hangs_or_dies_over_the_question_hides_no_file(what: signal.Signals, tmp_path: Path) -> None:
    """What cannot be known in time is not guessed."""
    shared, asked = watch_for_alone(lambda child: os.kill(child.pid, what))
    with open_store(write(tmp_path), shared, metadata_deadline=4.0) as root:
        for _ in range(2):  # the second time the question that ended a child is not asked
            file = find_file(root)
            assert isinstance(file, H5Group)
            with h5py.File(io.BytesIO(read_content(file))) as made:
                assert made["g/a"][()].tolist() == NUMBERS.tolist()
    assert len(asked) == (1 if what == signal.SIGSTOP else 2)


def test_p7_a_file_of_too_many_objects_is_not_looked_at_to_its_end(tmp_path: Path) -> None:
    with h5py.File(write(tmp_path, lambda file: file.update({f"d{n}": n for n in range(20)}))) as file:
        child = LoneFile()
        child.file = file.id
        assert child.alone({"most_seconds": 60.0}) == ({"needs": None}, [])
        late = child.alone({"most_seconds": -1.0})[0]["needs"]
        child.most_objects = 10
        assert child.alone({"most_seconds": 60.0})[0]["needs"] == late == "it has more objects than can be looked at in time"


def test_p3_a_damaged_object_makes_the_file_a_virtual_one_that_names_it(tmp_path: Path) -> None:
    path = write(tmp_path, lambda file: file.create_dataset("bad", data=np.arange(9), chunks=(3,)))
    with h5py.File(path) as file:
        place = h5py.h5o.get_info(file["bad"].id).addr
    with open(path, "r+b") as raw:
        raw.seek(place)
        raw.write(b"\xff" * 8)
    with open_store(path) as root:
        file_node = find_file(root)
        assert isinstance(file_node, H5Group)
        with h5py.File(io.BytesIO(read_content(file_node))) as made:
            assert sorted(made) == ["g"]
            assert made.attrs["fsbridge_left_out"][0].startswith("bad: ")


def renamed_over(path: Path) -> None:
    shutil.copy(path, path.parent / "new")
    os.replace(path.parent / "new", path)


def written_into(path: Path) -> None:
    with open(path, "r+b") as raw:
        raw.seek(path.stat().st_size - 4)
        raw.write(b"new!")


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 10)


@pytest.mark.parametrize("change", [renamed_over, written_into, cut_off, os.remove])
def test_p2_p9_an_open_file_whose_source_has_changed_is_stale(change: Callable[[Path], None], tmp_path: Path) -> None:
    """A new look-up shows the new file; the old node cannot be opened any more."""
    path = write(tmp_path, lambda file: file.create_dataset("z", data=np.arange(1000)))
    with open_store(path) as root:
        old = find_file(root)
        handle, expected = old.open(), path.read_bytes()
        assert handle.read(100, 50) == expected[100:150]
        assert bytes(handle.read(len(expected) - 5, 50)) == expected[-5:]
        assert handle.read(len(expected), 50) == b""
        change(path)
        for stale in (lambda: handle.read(100, 50), old.open):
            with pytest.raises(Stale):
                stale()
        handle.close()
        if change in (renamed_over, written_into):
            assert read_content(find_file(root)) == path.read_bytes()
        else:
            with pytest.raises((Stale, CorruptData)):
                read_content(find_file(root))


@dataclass
class JustWritten:
    """A stored file that is being written: further changes may not show at first (`model.StoredFile`)."""

    answers: list[bool]
    """Whether a further change would show, at each look."""
    size: int = 3
    mtime_ns: int = 5
    version: Hashable = 7
    is_remote: bool = False

    def settled(self) -> bool:
        return self.answers.pop(0)

    def read(self, start: int, length: int) -> bytes:
        return b"abc"[start : start + length]

    def fetch(self, start: int, length: int) -> None:
        raise AssertionError("the file is not remote")


def test_p9_a_file_just_changed_is_opened_once_a_further_change_would_show() -> None:
    stored = JustWritten([False, False, True])
    assert StoredFileNode(stored, pause_seconds=0.0).open().read(1, 9) == b"bc"
    assert stored.answers == []
    with pytest.raises(Stale, match="is being written"):
        StoredFileNode(JustWritten([False] * 24), pause_seconds=0.0).open()


# ---- remote files


def remote_tree(source: HDF5Source) -> Directory:
    return open_root(source, Config(source.file.path, "/mnt", layout="files"))


def test_p12_p9_a_remote_file_is_its_own_bytes_in_few_requests(server: FakeS3, tmp_path: Path) -> None:
    path = write(tmp_path, lambda file: file.create_dataset("z", data=np.random.default_rng(0).random(2_500_000)))
    expected = path.read_bytes()
    with opened_remote(server, path) as source:
        with server.counted() as looked:
            file = find_file(remote_tree(source))
        assert isinstance(file, StoredFileNode)
        assert len(looked) <= 6, "a few for the metadata of the file, none for its data"
        handle, step = file.open(), 128 << 10
        with server.counted() as read:
            whole = b""
            for start in range(0, handle.size, step):
                if start % handle.window == 0:
                    handle.prefetch(start, min(start + handle.window, handle.size))
                whole += bytes(handle.read(start, step))
        assert whole == expected
        assert len(read) <= 40
        upload(server, write(tmp_path, lambda file: file.update({"other": np.arange(7)})))

        def is_stale() -> bool:
            try:
                handle.read(0, 100)
            except Stale:
                return True
            return False

        until(is_stale)


def test_p12_data_in_other_files_are_noticed_in_remote_files_too(server: FakeS3, tmp_path: Path) -> None:
    with opened_remote(server, write(tmp_path, lambda file: virtual(file, "other.h5"))) as source:
        assert source.root.whole_file() is None
    with opened_remote(server, write(tmp_path, lambda file: virtual(file, "."))) as source:
        assert source.root.whole_file() is not None
    with opened_hdf5(write(tmp_path, raw_file)) as local:
        assert local.root.whole_file() is None
