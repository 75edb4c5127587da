"""Who may read a mount that is open to others: real users, by the owners and modes of the stored objects."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from hangar_data import unpack
from mounting import Mount

from fsbridge.owner import Owner, restricted
from fsbridge.store.local.acl import narrowed
from fsbridge.store.local.mounted import look_open

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

ALICE, BOB, TEAM = 64001, 64002, 64003
"""Alice owns what root does not, Bob is in her team. They need no account."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody can enter, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="fsbridge-users-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def mount(place: Path) -> Iterator[Callable[..., Mount]]:
    running: list[Mount] = []

    def make(source: Path, *options: str) -> Mount:
        running.append(Mount(source, place / f"mount-{len(running)}", options))
        return running[-1]

    yield make
    for tree in running:
        tree.stop()


def reads(path: Path, uid: int, *groups: int) -> bool:
    """Whether the user reads the file, or lists the directory."""
    command = ["/bin/ls" if os.path.isdir(path) else "/bin/cat", path]
    done = subprocess.run(command, capture_output=True, user=uid, group=uid, extra_groups=list(groups), cwd="/")
    assert done.returncode == 0 or b"Permission denied" in done.stderr, done.stderr
    return done.returncode == 0


def make_store(path: Path, **options: object) -> Path:
    for name in ("open", "hers", "closed"):
        array = zarr.create_array(path / name, shape=(4, 4), chunks=(2, 2), dtype="u1", zarr_format=3, **options)  # type: ignore[arg-type]
        array[...] = 1
    zarr.create_group(path, zarr_format=3)
    for found in [path, *path.rglob("*")]:
        found.chmod(0o755 if found.is_dir() else 0o644)
    return path


def shown(path: Path) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def test_p4_others_read_what_owner_group_and_mode_of_the_stored_objects_let_them(
    place: Path, mount: Callable[..., Mount]
) -> None:
    store = make_store(place / "s.zarr")
    os.chmod(store / "open/c/0/1", 0o600)
    os.chown(store / "hers/c/0/0", ALICE, TEAM)
    os.chmod(store / "hers/c/0/0", 0o440)
    os.chmod(store / "hers/c/1", 0o700)
    os.chmod(store / "closed", 0o700)
    tree = mount(store, "--allow-other")
    for listed_first in (False, True):
        if listed_first:
            subprocess.run(["ls", "-lR", tree.path], capture_output=True, check=True)
        assert shown(tree / "hers/c/0/0") == (ALICE, TEAM, 0o440)
        assert shown(tree / "open/c/0/1") == (0, 0, 0o400), "nothing can be written"
        assert shown(tree / "open/c/0/0") == (0, 0, 0o444)
        assert shown(tree / "open") == (0, 0, 0o555)
        assert shown(tree / "closed") == (0, 0, 0o500)
        assert reads(tree.path, BOB)
        assert reads(tree / "zarr.json", BOB)
        assert reads(tree / "open/c/0/0", BOB)
        assert not reads(tree / "open/c/0/1", BOB)
        assert reads(tree / "hers/c/0/0", ALICE)
        assert reads(tree / "hers/c/0/0", BOB, TEAM)
        assert not reads(tree / "hers/c/0/0", BOB)
        assert not reads(tree / "hers/c/1/0", BOB), "the directory above it is closed"
        assert not reads(tree / "closed/zarr.json", BOB)
        assert not reads(tree / "closed/c/0/0", BOB)
        assert reads(tree / "closed/c/0/0", 0)


def test_p4_in_a_listing_each_chunk_is_its_own_owners(place: Path, mount: Callable[..., Mount]) -> None:
    store = make_store(place / "s.zarr")
    os.chmod(store / "open/c/0/1", 0o600)
    tree = mount(store, "--allow-other")
    listed = subprocess.run(["ls", "-ln", tree / "open/c/0"], capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in listed.splitlines()[1:]] == ["-r--r--r--", "-r--------"]
    assert not reads(tree / "open/c/0/1", BOB)
    os.chmod(store / "open/c/1/1", 0o600)
    tree = mount(store, "--allow-other", "--immutable")
    assert reads(tree / "open/c/1/0", BOB)
    assert not reads(tree / "open/c/1/1", BOB)


def set_list(path: Path, *entries: tuple[int, int, int]) -> None:
    """Give the path an access control list of (tag, permissions, who); see acl(5)."""
    data = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", tag, permits, who & 0xFFFFFFFF) for tag, permits, who in entries
    )
    os.setxattr(path, "system.posix_acl_access", data)


def for_alice(path: Path) -> None:
    """As of `chmod 700; setfacl -m u:alice:rx`: the mode shows alice's permissions as those of the group."""
    os.chown(path, 0, TEAM)
    set_list(path, (1, 7, -1), (2, 5, ALICE), (4, 0, -1), (16, 5, -1), (32, 0, -1))
    assert stat.S_IMODE(path.stat().st_mode) == 0o750


@pytest.mark.parametrize("layout", ["zarr3", "files"])
def test_p4_the_group_of_an_access_control_list_reads_no_more_than_the_list_says(
    place: Path, mount: Callable[..., Mount], layout: str
) -> None:
    store = make_store(place / "s.zarr")
    for_alice(store / "closed")
    for_alice(store / "open/c/0/1")
    with h5py.File(place / "file.h5", "w") as file:
        file["a"] = np.arange(4)
    for_alice(place / "file.h5")
    for_alice(Path(shutil.make_archive(str(place / "archive"), "zip", store / "hers")))
    tree = mount(store, "--allow-other", "--layout", layout)
    hdf5 = mount(place / "file.h5", "--allow-other", "--layout", layout)
    archive = mount(place / "archive.zip", "--allow-other", "--layout", layout)
    if layout == "zarr3":
        os.listdir(tree / "open/c/0")
        os.listdir(tree.path)  # which tells of its members what their lists say
        assert shown(tree / "closed")[2] == 0o500
        private = [tree / "closed/c/0/0", tree / "open/c/0/1", hdf5 / "a/c/0", archive / "c/0/0"]
        assert reads(tree / "open/c/0/0", BOB, TEAM)
    else:
        private = [tree / "closed.npy", tree / "open.npy", hdf5 / "a.npy", archive / "archive.npy"]
        assert reads(tree / "hers.npy", BOB, TEAM)
    for path in private:
        assert not reads(path, BOB, TEAM), path
        assert path.read_bytes()


def test_p4_a_mode_is_never_wider_than_its_access_control_list() -> None:
    def permitted(mode: int, *entries: tuple[int, int]) -> int:
        data = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, permits, 0) for tag, permits in entries)
        return narrowed(Owner(0, 0, mode), data).mode

    assert permitted(0o750, (1, 7), (4, 5), (32, 0)) == 0o750
    assert permitted(0o754, (1, 7), (2, 4), (4, 5), (16, 5), (32, 4)) == 0o744, "a named user may be in the group"
    assert permitted(0o775, (1, 7), (8, 5), (4, 7), (16, 7), (32, 5)) == 0o775, (
        "of the groups that one is in any may permit it"
    )
    assert permitted(0o755, (1, 7), (8, 0), (4, 5), (16, 5), (32, 5)) == 0o750, "a named group is among the others"
    assert permitted(0o705, (1, 7), (2, 5), (4, 5), (16, 0), (32, 5)) == 0o700, "the mask is for who is named, too"
    for damaged in (b"", b"not a list", struct.pack("<I", 1), struct.pack("<I", 2) + b"x"):
        assert narrowed(Owner(0, 0, 0o755), damaged).mode == 0o700


def test_p3_who_may_enter_a_directory_may_do_so_while_others_list_it(place: Path, mount: Callable[..., Mount]) -> None:
    """A listing does not know whose its members are, and takes nothing of that from those who do."""
    tree = mount(make_store(place / "s.zarr"), "--allow-other")
    os.chmod(place / "s.zarr/open/c/0/1", 0o600)
    held = {
        path: os.open(path, os.O_RDONLY) for path in (tree / "open", tree / "open/c", tree / "open/c/0", tree / "open/c/0/0")
    }
    try:
        modes = {path: os.stat(path).st_mode & 0o777 for path in held}
        assert set(modes.values()) == {0o555, 0o444}
        for path in held:
            os.listdir(path.parent)
        assert {path: look_open(fd, ctypes.CDLL(None).statx).st_mode & 0o777 for path, fd in held.items()} == modes
    finally:
        for fd in held.values():
            os.close(fd)


@pytest.mark.parametrize("layout", ["zarr3", "files"])
def test_p4_sharded_flat_and_zipped_stores_and_hdf5_files(place: Path, mount: Callable[..., Mount], layout: str) -> None:
    stores = place / "stores"
    stores.mkdir()
    zarr.create_array(stores / "sharded.zarr", shape=(4,), chunks=(1,), shards=(2,), dtype="u1", zarr_format=3)[...] = 1
    zarr.create_array(stores / "flat.zarr", shape=(4, 4), chunks=(2, 2), dtype="u1", zarr_format=2)[...] = 1
    with h5py.File(stores / "file.h5", "w") as file:
        file["a"] = np.arange(4)
    shutil.make_archive(str(stores / "archive.zarr"), "zip", stores / "flat.zarr")
    for found in [stores, *stores.rglob("*")]:
        found.chmod(0o755 if found.is_dir() else 0o644)
    os.chmod(stores / "sharded.zarr/c/1", 0o600)
    tree = mount(stores, "--allow-other", "--layout", layout)
    if layout == "files":
        assert reads(tree / "flat.zarr.npy", BOB)
        assert reads(tree / "file.h5/a.npy", BOB)
        os.chmod(stores / "flat.zarr/.zarray", 0o600)
        os.chmod(stores / "file.h5", 0o600)
        tree = mount(stores, "--allow-other", "--layout", layout)
        assert not reads(tree / "flat.zarr.npy", BOB)
        assert not reads(tree / "file.h5/a.npy", BOB)
        return
    assert reads(tree / "sharded.zarr/c/1", BOB)
    assert not reads(tree / "sharded.zarr/c/2", BOB)
    assert reads(tree / "flat.zarr/c/0/1", BOB)
    assert reads(tree / "archive.zarr.zip/c/0/1", BOB)
    assert reads(tree / "file.h5/a/c/0", BOB)
    os.chmod(stores / "file.h5", 0o600)
    os.chmod(stores / "archive.zarr.zip", 0o600)
    tree = mount(stores, "--allow-other")
    assert not reads(tree / "file.h5/a/c/0", BOB)
    assert not reads(tree / "archive.zarr.zip/c/0/1", BOB)


def test_p4_without_allow_other_nobody_gets_in_and_overrides_are_shown(place: Path, mount: Callable[..., Mount]) -> None:
    store = make_store(place / "s.zarr")
    tree = mount(store)
    assert not reads(tree / "zarr.json", BOB)
    assert shown(tree / "open/c/0/0") == (0, 0, 0o444)
    tree = mount(store, "--allow-other", "--uid", str(ALICE), "--gid", str(TEAM), "--umask", "037")
    assert shown(tree / "open/c/0/0") == (ALICE, TEAM, 0o440)
    assert shown(tree / "open") == (ALICE, TEAM, 0o540)
    assert reads(tree / "open/c/0/0", ALICE)
    assert not reads(tree / "open/c/0/0", BOB)


def test_restricted_is_never_wider_than_any() -> None:
    owner = Owner(1, 1, 0o644)
    assert restricted(owner, Owner(1, 1, 0o600)) == Owner(1, 1, 0o600)
    assert restricted(owner, Owner(2, 2, 0o640)) == Owner(1, 1, 0)
    assert restricted(owner, Owner(2, 2, 0o755)) == Owner(1, 1, 0o444)
    assert restricted(owner, None) is None


def test_p4_directories_that_a_layout_does_not_show_count_for_the_files(place: Path, mount: Callable[..., Mount]) -> None:
    store = make_store(place / "s.zarr")
    os.chmod(store / "hers/c/1", 0o700)
    os.chmod(store / "closed/c", 0o700)
    tree = mount(store, "--allow-other", "--layout", "zarr2,n5")
    for name in ("zarr2/open/1.0", "zarr2/hers/0.1", "n5/open/0/1", "n5/hers/1/0"):
        assert reads(tree / name, BOB), name
    for name in ("zarr2/hers/1.0", "zarr2/closed/0.0", "n5/hers/0/1", "n5/closed/0/0"):
        assert not reads(tree / name, BOB), name
        assert reads(tree / name, 0), name


def test_p4_whole_arrays_are_for_those_who_may_read_every_chunk(place: Path, mount: Callable[..., Mount]) -> None:
    store = make_store(place / "s.zarr")
    os.chmod(store / "open/c/0/1", 0o600)
    os.chmod(store / "closed/c/1", 0o700)
    tree = mount(store, "--allow-other", "--layout", "files")
    for name in ("open.npy", "closed.npy", "open.h5"):
        assert not reads(tree / name, BOB), name
        assert reads(tree / name, 0), name
    assert reads(tree / "hers.npy", BOB)
    os.chmod(store / "open/c/0/1", 0o644)
    tree = mount(store, "--allow-other", "--layout", "files", "--metadata-ttl", "60")
    assert shown(tree / "open.npy") == (0, 0, 0o444)
    os.chmod(store / "open/c/0/1", 0o600)
    tree.allow("may be read by fewer users")
    with open(tree / "open.npy", "rb") as held:
        held.seek(-1, os.SEEK_END)  # with others' pages: a chunk that everybody may read
        with pytest.raises(OSError, match="Stale"):
            (tree / "open.npy").read_bytes()
        assert (tree / "open.npy").read_bytes()[-16:] == b"\1" * 16, "its owner's from now on"
        assert shown(tree / "open.npy") == (0, 0, 0o400)
        assert not reads(tree / "open.npy", BOB)
        held.seek(-14, os.SEEK_END)
        with pytest.raises(OSError, match="Stale"):
            held.read(2)
    tree = mount(store, "--allow-other", "--layout", "files", "--umask", "022")
    assert reads(tree / "open.npy", BOB), "as the mounting user says"


def test_p4_what_tells_of_many_objects_is_for_those_who_may_read_them_all(place: Path, mount: Callable[..., Mount]) -> None:
    """The file of a group, the consolidated document, extended attributes."""
    store = make_store(place / "s.zarr")
    for name in ("public", "private", "secret"):
        zarr.create_group(store / name, attributes={"whose": "hers"})
        shutil.copytree(store / "open", store / name / "a")
        (store / name).chmod(0o755)
        (store / name / "zarr.json").chmod(0o644)
    (store / "private").chmod(0o700)
    (store / "secret/zarr.json").chmod(0o600)

    tree = mount(store, "--allow-other", "--layout", "files,zarr2", "--consolidated", "--xattrs")
    for name, others in (("files/public.h5", True), ("files/private.h5", False), ("files/secret.h5", False)):
        assert reads(tree / name, BOB) == others, name
        assert reads(tree / name, 0), name
    assert not reads(tree / "files/s.h5", BOB)
    assert not reads(tree / "zarr2/.zmetadata", BOB)
    assert "user.fsbridge.metadata" in os.listxattr(tree / "zarr2/public")
    assert os.listxattr(tree / "zarr2/secret") == ["user.fsbridge.format", "user.fsbridge.source"]

    for path, mode in ((store / "private", 0o755), (store / "secret/zarr.json", 0o644)):
        path.chmod(mode)
        time.sleep(1.1)  # the metadata's lifetime
    for name in ("files/private.h5", "files/secret.h5", "files/s.h5", "zarr2/.zmetadata"):
        assert reads(tree / name, BOB), name
    (store / "public").chmod(0o700)
    time.sleep(1.1)
    for name in ("files/public.h5", "files/s.h5", "zarr2/.zmetadata"):
        assert not reads(tree / name, BOB), name


def test_p4_headers_that_tell_spacing_are_for_those_who_may_read_what_tells_it(
    place: Path, mount: Callable[..., Mount]
) -> None:
    """Attributes of a group above, coordinates beside: what is private of them is told to nobody who may read the array."""
    store = make_store(place / "s.zarr")
    dataset = {"path": "a", "coordinateTransformations": [{"type": "scale", "scale": [2.5, 3.5]}]}
    for name, attributes in (("scales", {"multiscales": [{"datasets": [dataset]}]}), ("silent", {"whose": "hers"})):
        zarr.create_group(store / name, attributes=attributes, zarr_format=3)
        shutil.copytree(store / "open", store / name / "a")
        (store / name).chmod(0o755)
        (store / name / "zarr.json").chmod(0o600)
    for name in ("image", "depth", "near"):
        names = ("depth", "near") if name == "image" else (name,)
        shape = (4,) * len(names)
        array = zarr.create_array(store / "beside" / name, shape=shape, dtype="f8", zarr_format=3, dimension_names=names)
        array[...] = np.broadcast_to(np.arange(4) * 7.5, shape)
    zarr.create_group(store / "beside", zarr_format=3)
    for found in (store / "beside", *(store / "beside").rglob("*")):
        found.chmod(0o755 if found.is_dir() else 0o644)

    tree = mount(store, "--allow-other", "--layout", "files")
    assert b"2.5" in (tree / "scales/a.json").read_bytes()
    assert b"7.5" in (tree / "beside/image.json").read_bytes()
    for suffix in ("json", "nrrd"):
        assert not reads(tree / f"scales/a.{suffix}", BOB), suffix
        assert reads(tree / f"silent/a.{suffix}", BOB), suffix
        assert reads(tree / f"beside/image.{suffix}", BOB), suffix
    (store / "scales/zarr.json").chmod(0o644)
    (store / "beside/near/c/0").chmod(0o600)
    time.sleep(1.1)  # the metadata's lifetime
    assert reads(tree / "scales/a.json", BOB)
    assert not reads(tree / "beside/image.json", BOB)


def test_p4_directories_above_the_target_of_a_link_count(place: Path, mount: Callable[..., Mount]) -> None:
    """A chunk, a directory of chunks, a document and an array, by links within the store and out of it."""
    store, outside = make_store(place / "s.zarr"), place / "outside"
    for folder, mode in ((store / "private", 0o700), (store / "public", 0o755), (outside / "private", 0o700)):
        folder.mkdir(parents=True)
        for name in ("open", "hers"):
            (folder / name).mkdir()
            shutil.copytree(store / name, folder / name, dirs_exist_ok=True)
        folder.chmod(mode)
    linked = {
        "open/c/0/0": "public/open/c/0/0",
        "open/c/0/1": "private/open/c/0/1",
        "open/c/1": "private/open/c/1",
        "hers/zarr.json": "private/hers/zarr.json",
        "closed": "private/hers",
        "far": "../outside/private/hers",
    }
    for name, target in linked.items():
        link = store / name
        if link.is_dir():
            shutil.rmtree(link)
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(store / target, link.parent))
    for layout in ("zarr3", "files"):
        tree = mount(store, "--allow-other", "--allow-external", str(outside), "--layout", layout)
        if layout == "files":
            assert not reads(tree / "open.npy", BOB)
            assert reads(tree / "open.npy", 0)
            continue
        for listed_first in (False, True):
            if listed_first:
                subprocess.run(["ls", "-lR", tree.path], capture_output=True, check=True)
            assert reads(tree / "open/zarr.json", BOB)
            assert reads(tree / "open/c/0/0", BOB)
            for name in ("open/c/0/1", "open/c/1/0", "hers/zarr.json", "closed/c/0/0", "far/c/0/0", "far/zarr.json"):
                assert not reads(tree / name, BOB), name
                assert reads(tree / name, 0), name
    (store / "private").chmod(0o755)
    tree = mount(store, "--allow-other")
    assert reads(tree / "open/c/0/1", BOB)
    assert reads(tree / "open/c/1/0", BOB)


def test_p4_hangar_repositories_have_owners(place: Path, mount: Callable[..., Mount]) -> None:
    store = unpack("main", place / "repository")
    for found in [store, *store.rglob("*")]:
        found.chmod(0o755 if found.is_dir() else 0o644)

    tree = mount(store, "--allow-other", "--metadata-ttl", "0")
    chunk = next((tree / "branches/master").glob("*/*/c/0"))
    sample = chunk.parent.parent
    while chunk.is_dir():
        chunk = next(chunk.iterdir())

    def read_by_bob() -> tuple[bool, bool, bool]:
        assert reads(chunk, 0)
        return reads(tree / "branches/master/zarr.json", BOB), reads(sample / "zarr.json", BOB), reads(chunk, BOB)

    assert read_by_bob() == (True, True, True)
    os.chmod(store / ".hangar/data", 0o700)
    assert read_by_bob() == (True, True, False)
    os.chmod(store / ".hangar/ref.lmdb", 0o600)
    assert read_by_bob() == (False, False, False)


def test_p4_other_files_that_hold_the_data_of_an_hdf5_dataset_count(place: Path, mount: Callable[..., Mount]) -> None:
    for name in ("open", "closed"):
        (place / f"{name}.raw").write_bytes(bytes(range(4)))
        (place / f"{name}.raw").chmod(0o600 if name == "closed" else 0o644)
    with h5py.File(place / "file.h5", "w") as file:
        for name in ("open", "closed"):
            external = [(str(place / f"{name}.raw"), 0, 4)]
            file.create_dataset(name, shape=(4,), dtype="u1", external=external)
    os.chmod(place / "file.h5", 0o644)
    tree = mount(place / "file.h5", "--allow-other", "--allow-external", str(place))
    assert reads(tree / "open/c/0", BOB)
    assert not reads(tree / "closed/c/0", BOB)
    assert reads(tree / "closed/c/0", 0)
    assert reads(tree / "closed/zarr.json", BOB)
