"""P4 of a mount that is open to others: everybody, by one rule, or those whom the person who mounts names. Real users."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import icechunk_data
import numpy as np
import nwb_data
import pytest
import zarr
from hangar_data import unpack
from mounting import Mount
from observing import errno_of

from fsbridge.store.local.files import list_permits

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

ROOT, ALICE, BOB, TEAM = 0, 64001, 64002, 64003
"""Root mounts, Alice is named as the owner, Bob is in her team. They need no account."""

LAYOUTS = "zarr3,zarr2,n5,files"


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
        running[-1].allow("not every user may read it")
        return running[-1]

    yield make
    for tree in running:
        tree.stop()


def reads(path: Path, uid: int, *groups: int) -> bool:
    """Tell if the user can read the file, or list the directory."""
    program = "/bin/ls" if stat_mode(path, uid, *groups) == "directory" else "/bin/cat"
    done = subprocess.run([program, path], capture_output=True, user=uid, group=uid, extra_groups=list(groups), cwd="/")
    assert done.returncode == 0 or b"Permission denied" in done.stderr, done.stderr
    return done.returncode == 0


def stat_mode(path: Path, uid: int, *groups: int) -> str:
    command = ["/usr/bin/stat", "-c", "%F", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, user=uid, group=uid, extra_groups=list(groups), cwd="/")
    return done.stdout.strip()


def shown(path: Path) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def public(path: Path) -> Path:
    """Let everybody read all that is there."""
    for found in [path, *path.rglob("*")]:
        found.chmod(0o755 if found.is_dir() else 0o644)
    return path


def make_store(path: Path, *names: str, chunk: int = 2) -> Path:
    for name in names or ("a", "b"):
        array = zarr.create_array(
            path / name, shape=(2 * chunk, 2 * chunk), chunks=(chunk, chunk), dtype="u1", zarr_format=3
        )
        array[...] = 1
    zarr.create_group(path, zarr_format=3)
    return public(path)


def set_list(path: Path, *entries: tuple[int, int, int]) -> None:
    """Give the path an access control list of (tag, permissions, who); see acl(5)."""
    os.setxattr(path, "system.posix_acl_access", _packed(*entries))


def _packed(*entries: tuple[int, int, int]) -> bytes:
    packed = (struct.pack("<HHI", tag, permits, who & 0xFFFFFFFF) for tag, permits, who in entries)
    return struct.pack("<I", 2) + b"".join(packed)


CHUNKS = ("zarr3/a/c/0/0", "zarr2/a/0.0", "n5/a/0/0", "files/a.npy", "files/a.h5", "files/s.h5")
"""Files that hold bytes of one and the same chunk."""


def test_p4_what_everybody_may_read_is_shown_as_the_mounting_users(place: Path, mount: Callable[..., Mount]) -> None:
    store = make_store(place / "s.zarr")
    os.chown(store / "a/c/0/0", ALICE, TEAM)
    os.chmod(store / "a/c/0/0", 0o664)
    os.chmod(store / "a/c/0", 0o2775)
    tree = mount(store, "--allow-other", "--layout", LAYOUTS)
    for name in CHUNKS:
        assert reads(tree / name, BOB), name
        assert shown(tree / name) == (0, 0, 0o444), name
    assert shown(tree / "zarr3/a/c/0") == (0, 0, 0o555)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444 & ~0o040, 0o444 & ~0o400, 0o004])
def test_p4_a_file_that_anybody_may_not_read_is_refused_to_all(place: Path, mount: Callable[..., Mount], mode: int) -> None:
    """Owner, group and others have to be let in: one of them may be who asks."""
    store = make_store(place / "s.zarr")
    tree = mount(store, "--allow-other", "--layout", LAYOUTS)
    for name in CHUNKS:
        assert errno_of((tree / name).read_bytes) is None
    os.chmod(store / "a/c/0/0", mode)
    for name in CHUNKS:
        assert errno_of((tree / name).read_bytes) == errno.EACCES, name
        assert not reads(tree / name, BOB), name
    listed = subprocess.run(["ls", "-ln", tree / "zarr3/a/c/0"], capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in listed.splitlines()[1:]] == ["-r--r--r--", "-r--r--r--"], "shown, not opened"
    assert reads(tree / "zarr3/a/c/0/1", BOB)
    assert reads(tree / "files/b.npy", BOB)
    os.chmod(store / "a/c/0/0", 0o644)
    for name in CHUNKS:
        assert errno_of((tree / name).read_bytes) is None, name


@pytest.mark.parametrize("above", [".", "a", "a/c", "a/c/0"])
def test_p4_every_directory_above_counts_at_once(place: Path, mount: Callable[..., Mount], above: str) -> None:
    """A right that is taken away is gone with the next open, whatever is cached of the object or made of it."""
    store = make_store(place / "s.zarr")
    tree = mount(store, "--allow-other", "--layout", LAYOUTS)
    names = [name for name in CHUNKS if above != "a" or name != "files/s.h5"]  # which then leaves out the array
    for mode in (0o700, 0o744, 0o711, 0o705, 0o750):
        os.chmod(store / above, 0o755)
        for name in names:
            assert errno_of((tree / name).read_bytes) is None, (name, oct(mode))
        os.chmod(store / above, mode)
        for name in names:
            assert errno_of((tree / name).read_bytes) == errno.EACCES, (name, oct(mode))
        names = names[:3]


def test_p4_large_chunks_are_refused_at_the_open(place: Path, mount: Callable[..., Mount]) -> None:
    """They are not decoded then, and of nothing else is told before they are read."""
    store = make_store(place / "s.zarr", "a", chunk=1024)
    tree = mount(store, "--allow-other")
    path = tree / "a/c/0/0"
    assert len(path.read_bytes()) == 1 << 20
    os.chmod(store / "a/c/0/0", 0o600)
    with pytest.raises(PermissionError):
        os.open(path, os.O_RDONLY)


def test_p4_documents_and_what_is_made_of_them_follow_their_objects(place: Path, mount: Callable[..., Mount]) -> None:
    store = make_store(place / "s.zarr")
    group = zarr.create_group(store / "g", attributes={"secret": "XYZZY"}, zarr_format=3)
    group.create_array("x", shape=(4,), dtype="u1")[...] = 1
    public(store)
    tree = mount(store, "--allow-other", "--layout", LAYOUTS, "--consolidated", "--xattrs")
    names = ("zarr3/g/zarr.json", "zarr2/g/.zattrs", "n5/g/attributes.json", "files/g.h5", "files/s.h5", "zarr2/.zmetadata")
    for name in names:
        assert b"XYZZY" in (tree / name).read_bytes(), name
    assert b"XYZZY" in os.getxattr(tree / "zarr3/g", "user.fsbridge.metadata")
    os.chmod(store / "g/zarr.json", 0o600)
    for name in names:
        try:
            assert b"XYZZY" not in (tree / name).read_bytes(), name
        except PermissionError:
            continue
        assert name == "files/s.h5", "which leaves out what cannot be read"
    assert errno_of((tree / "zarr3/a/zarr.json").read_bytes) is None
    assert errno_of((tree / "zarr3/b/c/0/0").read_bytes) is None


def test_p4_names_in_a_directory_that_not_everybody_may_list_are_not_shown(place: Path, mount: Callable[..., Mount]) -> None:
    store = make_store(place / "s.zarr")
    os.chmod(store / "a/c/1", 0o711)
    os.chmod(store / "b", 0o711)
    tree = mount(store, "--allow-other")
    assert set(os.listdir(tree.path)) >= {"a", "b", "zarr.json"}
    for name in ("a/c/1", "b"):
        with pytest.raises(PermissionError):
            os.listdir(tree / name)
    assert sorted(os.listdir(tree / "a/c/0")) == ["0", "1"]


@pytest.mark.parametrize(
    ("entries", "permitted"),
    [
        ([(1, 7, -1), (4, 5, -1), (32, 5, -1)], True),
        ([(1, 7, -1), (2, 5, ALICE), (4, 5, -1), (8, 7, TEAM), (16, 5, -1), (32, 5, -1)], True),
        ([(1, 7, -1), (2, 0, ALICE), (4, 5, -1), (16, 5, -1), (32, 5, -1)], False),
        ([(1, 7, -1), (4, 5, -1), (8, 1, TEAM), (16, 5, -1), (32, 5, -1)], False),
        ([(1, 7, -1), (2, 5, ALICE), (4, 0, -1), (16, 5, -1), (32, 5, -1)], False),
        ([(1, 7, -1), (2, 5, ALICE), (4, 5, -1), (16, 4, -1), (32, 5, -1)], False),
    ],
)
def test_p4_an_entry_of_an_access_control_list_with_less_refuses(
    place: Path, mount: Callable[..., Mount], entries: list[tuple[int, int, int]], permitted: bool
) -> None:
    store = make_store(place / "s.zarr")
    tree = mount(store, "--allow-other", "--layout", LAYOUTS)
    for name in CHUNKS:
        assert errno_of((tree / name).read_bytes) is None
    set_list(store / "a/c", *entries)
    for name in CHUNKS:
        assert (errno_of((tree / name).read_bytes) is None) == permitted, name
        assert reads(tree / name, BOB, TEAM) == permitted, name


def test_p4_a_list_of_a_file_refuses_although_the_mode_does_not(place: Path, mount: Callable[..., Mount]) -> None:
    """The mode shows the mask where the group has less."""
    store = make_store(place / "s.zarr")
    tree = mount(store, "--allow-other")
    assert errno_of((tree / "a/c/0/0").read_bytes) is None
    set_list(store / "a/c/0/0", (1, 6, -1), (2, 4, ALICE), (4, 0, -1), (16, 4, -1), (32, 4, -1))
    assert stat.S_IMODE(os.stat(store / "a/c/0/0").st_mode) == 0o644
    assert errno_of((tree / "a/c/0/0").read_bytes) == errno.EACCES
    assert not reads(tree / "a/c/0/0", BOB)


def test_p4_a_list_that_cannot_be_read_permits_nothing() -> None:
    assert list_permits(_packed((1, 7, -1), (4, 5, -1), (32, 5, -1)), 5)
    assert not list_permits(_packed((1, 7, -1), (4, 5, -1), (32, 4, -1)), 5)
    for damaged in (b"", b"not a list", struct.pack("<I", 1), struct.pack("<I", 2) + b"x"):
        assert not list_permits(damaged, 4)


def test_p4_a_links_target_counts_with_all_above_it(place: Path, mount: Callable[..., Mount]) -> None:
    """Within the store and out of it, of a chunk, a directory of chunks, a document, an array; relative and absolute."""
    store, outside = make_store(place / "s.zarr", "a", "b", "open"), place / "outside"
    for folder in (store / "private", store / "public", outside / "private", outside / "public"):
        shutil.copytree(store / "open", folder / "open")
    public(store)
    public(outside)
    for folder in (store / "private", outside / "private"):
        folder.chmod(0o711)
    for name, target in {
        "a/c/0/0": "public/open/c/0/0",
        "a/c/0/1": "private/open/c/0/1",
        "a/c/1": "private/open/c/1",
        "b/zarr.json": "private/open/zarr.json",
        "far": "../outside/private/open",
        "near": "../outside/public/open",
    }.items():
        link = store / name
        if link.is_dir():
            shutil.rmtree(link)
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(store / target, link.parent) if name != "a/c/0/1" else store / target)
    tree = mount(store, "--allow-other", "--allow-external", str(outside))
    for user in (BOB, ROOT):
        for name in ("a/c/0/0", "near/c/0/0", "near/zarr.json"):
            assert reads(tree / name, user), name
        for name in ("a/c/0/1", "a/c/1/0", "b/zarr.json", "far/c/0/0", "far/zarr.json"):
            assert not reads(tree / name, user), name
    (store / "private").chmod(0o755)
    (outside / "private").chmod(0o755)
    for name in ("a/c/0/1", "a/c/1/0", "b/zarr.json", "far/c/0/0"):
        assert reads(tree / name, BOB), name
    (outside / "public").chmod(0o750)
    assert errno_of((tree / "near/c/0/0").read_bytes) == errno.EACCES


@pytest.mark.parametrize("immutable", [False, True])
def test_p4_shards_flat_stores_archives_and_hdf5_files(place: Path, mount: Callable[..., Mount], immutable: bool) -> None:
    stores = place / "stores"
    (stores / "deep").mkdir(parents=True)
    zarr.create_array(stores / "sharded.zarr", shape=(4,), chunks=(1,), shards=(2,), dtype="u1", zarr_format=3)[...] = 1
    zarr.create_array(stores / "flat.zarr", shape=(4, 4), chunks=(2, 2), dtype="u1", zarr_format=2)[...] = 1
    for name in ("file.h5", "deep/file.h5"):
        with h5py.File(stores / name, "w") as file:
            file["a"] = np.arange(4)
    shutil.make_archive(str(stores / "archive.zarr"), "zip", stores / "flat.zarr")
    public(stores)
    private = ["sharded.zarr/c/1", "file.h5", "archive.zarr.zip"]
    kept = ["sharded.zarr/c/2", "file.h5/a/c/0", "archive.zarr.zip/c/0/1", "deep/file.h5/a/c/0"]
    options = ["--allow-other", *(["--immutable"] if immutable else [])]
    if not immutable:
        tree = mount(stores, *options)
        for name in (*kept, "flat.zarr/c/0/1", "sharded.zarr/c/1"):
            assert reads(tree / name, BOB), name
    for name in private:
        os.chmod(stores / name, 0o600)
    os.chmod(stores / "deep", 0o711)
    if immutable:
        tree = mount(stores, *options)
    assert reads(tree / "sharded.zarr/c/1", BOB)
    for name in kept:
        assert not reads(tree / name, BOB), name
        assert errno_of((tree / name).read_bytes) == errno.EACCES, name
    assert reads(tree / "flat.zarr/c/0/1", BOB)


def test_p4_other_files_that_hold_the_data_of_an_hdf5_file_count(place: Path, mount: Callable[..., Mount]) -> None:
    (place / "data/private").mkdir(parents=True)
    raw = {"open": place / "data/open.raw", "closed": place / "data/closed.raw", "behind": place / "data/private/x.raw"}
    with h5py.File(place / "file.h5", "w") as file:
        for name, path in raw.items():
            path.write_bytes(bytes(range(4)))
            file.create_dataset(name, shape=(4,), dtype="u1", external=[(str(path), 0, 4)])
        with h5py.File(place / "data/other.h5", "w") as other:
            other["a"] = np.arange(4)
        file["linked"] = h5py.ExternalLink(str(place / "data/other.h5"), "/a")
    public(place / "data")
    os.chmod(place / "file.h5", 0o644)
    tree = mount(place / "file.h5", "--allow-other", "--allow-external", str(place / "data"))
    for name in (*raw, "linked"):
        assert reads(tree / name / "c/0", BOB), name
    raw["closed"].chmod(0o600)
    (place / "data/private").chmod(0o700)
    (place / "data/other.h5").chmod(0o640)
    assert reads(tree / "open/c/0", BOB)
    for name in ("closed", "behind", "linked"):
        assert errno_of((tree / name / "c/0").read_bytes) == errno.EACCES, name


def test_p4_hangar_repositories_are_refused_with_their_folders(place: Path, mount: Callable[..., Mount]) -> None:
    store = public(unpack("main", place / "repository"))
    tree = mount(store, "--allow-other", "--metadata-ttl", "0")
    chunk = next((tree / "branches/master").glob("*/*/c/0"))
    sample = chunk.parent.parent
    while chunk.is_dir():
        chunk = next(chunk.iterdir())

    def read() -> tuple[bool, bool, bool]:
        return reads(tree / "branches/master/zarr.json", BOB), reads(sample / "zarr.json", BOB), reads(chunk, BOB)

    assert read() == (True, True, True)
    os.chmod(store / ".hangar/data", 0o700)
    assert not read()[2]
    os.chmod(store / ".hangar/ref.lmdb", 0o600)
    assert read() == (False, False, False)
    os.chmod(store / ".hangar/ref.lmdb", 0o644)
    os.chmod(store / ".hangar/data", 0o755)
    assert read() == (True, True, True)


def _first_file(folder: Path) -> Path:
    while folder.is_dir():
        folder = next(folder.iterdir())
    return folder


@pytest.mark.parametrize("above", ["", "stores", "links"])
def test_p4_every_directory_above_a_member_of_a_collection_counts(
    place: Path, mount: Callable[..., Mount], above: str
) -> None:
    """Of each format, also above a link to the member, for chunks that were decoded before."""
    source = place / "source"
    stores, links = source / "stores", source / "links"
    stores.mkdir(parents=True)
    links.mkdir()
    unpack("main", stores / "hangar")
    icechunk_data.write(stores / "icechunk")
    make_store(stores / "3.zarr", "a")
    zarr.create_array(stores / "2.zarr", shape=(4,), chunks=(2,), dtype="u1", zarr_format=2)[...] = 1
    shutil.make_archive(str(stores / "archive.zarr"), "zip", stores / "2.zarr")
    with h5py.File(stores / "file.h5", "w") as file:
        file["a"] = np.arange(4)
    public(source)
    for store in stores.iterdir():
        (links / store.name).symlink_to(f"../stores/{store.name}")
    tree = mount(source, "--allow-other", "--metadata-ttl", "60")
    sample = next((tree / "stores/hangar/branches/master").glob("*/*/c")).relative_to(tree / "stores")
    paths = (str(sample), "icechunk/branches/main/a/c/1", "3.zarr/a/c", "2.zarr/c", "archive.zarr.zip/c", "file.h5/a/c")
    chunks = [_first_file(tree / folder / path) for folder in ("stores", "links") for path in paths]
    for chunk in chunks:
        assert reads(chunk, BOB), chunk
    (source / above).chmod(0o700)
    for chunk in chunks:
        refused = above != "links" or tree / "links" in chunk.parents
        assert errno_of(chunk.read_bytes) == (errno.EACCES if refused else None), chunk
        assert reads(chunk, ALICE) != refused, chunk


def test_p4_every_directory_above_the_file_of_a_link_of_hdmf_counts(place: Path, mount: Callable[..., Mount]) -> None:
    stores = nwb_data.unpack("zarr3", place / "stores")
    public(stores)
    tree = mount(stores / "linking.nwb.zarr", "--allow-other", "--allow-external", str(place), "--metadata-ttl", "60")
    chunk = _first_file(tree / "acquisition/shared/data/c")
    assert reads(chunk, BOB)
    stores.chmod(0o700)
    assert errno_of(chunk.read_bytes) == errno.EACCES
    assert not reads(chunk, ALICE)


def test_p4_the_person_who_mounts_decides_with_a_group_and_a_mask(place: Path, mount: Callable[..., Mount]) -> None:
    """The daemon then reads all that it can, and the kernel judges by what is shown."""
    store = make_store(place / "s.zarr")
    os.chmod(store / "a", 0o700)
    os.chmod(store / "a/c/0/0", 0o600)
    tree = mount(store, "--allow-other", "--uid", str(ALICE), "--gid", str(TEAM), "--umask", "037")
    assert shown(tree / "a/c/0/0") == (ALICE, TEAM, 0o440)
    assert shown(tree / "a") == (ALICE, TEAM, 0o540)
    assert reads(tree / "a/c/0/0", ALICE)
    assert not reads(tree / "a/c/0/0", BOB, TEAM), "the group may list directories, not enter them"
    tree = mount(store, "--allow-other", "--gid", str(TEAM))
    assert shown(tree / "a/c/0/0") == (0, TEAM, 0o440), "a group is named, and nobody else"
    assert reads(tree / "a/c/0/0", BOB, TEAM)
    assert not reads(tree / "a/c/0/0", BOB)
    tree = mount(store, "--allow-other", "--umask", "022")
    assert shown(tree / "a/c/0/0") == (0, 0, 0o444)
    assert reads(tree / "a/c/0/0", BOB)


def test_p4_without_allow_other_all_that_the_mounting_user_may_read_is_his(place: Path, mount: Callable[..., Mount]) -> None:
    store = make_store(place / "s.zarr")
    os.chmod(store / "a", 0o700)
    os.chmod(store / "a/c/0/0", 0o600)
    tree = mount(store, "--uid", str(ALICE))
    assert errno_of((tree / "a/c/0/0").read_bytes) is None
    assert shown(tree / "a/c/0/0") == (ALICE, 0, 0o444)
    assert not reads(tree / "b/zarr.json", BOB)


def test_p4_a_store_that_is_not_for_everybody_is_not_mounted_for_others(place: Path) -> None:
    """It says what helps, instead of a tree in which nothing opens."""
    store = make_store(place / "s.zarr")
    store.chmod(0o750)
    (place / "mnt").mkdir()
    command = [sys.executable, "-m", "fsbridge", "mount", "-f", "--allow-other", str(store), str(place / "mnt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "mode is 0750" in done.stderr
    assert "chmod a+rx" in done.stderr
    assert "--umask" in done.stderr


def test_p4_icechunk_repositories_are_refused_with_their_folders(place: Path, mount: Callable[..., Mount]) -> None:
    """Remembered snapshots and manifests, which never change, are refused with their files."""
    icechunk_data.write(place / "repository")
    store = public(place / "repository")
    tree = mount(store, "--allow-other")
    names = ("branches/main/a/zarr.json", "branches/main/a/c/1/0")
    for name in names:
        assert reads(tree / name, BOB), name
    for folder, refused in (("chunks", names[1:]), ("manifests", names[1:]), ("snapshots", names)):
        (store / folder).chmod(0o700)
        for name in refused:
            assert errno_of((tree / name).read_bytes) == errno.EACCES, (folder, name)
        (store / folder).chmod(0o755)
        for name in names:
            assert errno_of((tree / name).read_bytes) is None, (folder, name)
