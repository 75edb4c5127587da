"""Every format over a file system that fails by a seeded plan: the right bytes, or an error; never anything else.

As `test_faults.py`, but below the readers that have descriptors and processes of their own: HDF5, Hangar's databases, zip.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import fuzz_stores
import h5py
import hdf5_model
import numpy as np
import pytest
import trio
from faulty_mount import OPERATIONS, FaultyMount
from mounting import MountFunction
from small_stores import Found, absent, files, is_complete
from tree_walker import content

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import FsbridgeError, NotFound, Unreachable
from fsbridge.formats.open import open_source
from fsbridge.kernel.jobs import Jobs
from fsbridge.kernel.lanes import Subject
from fsbridge.layouts import root_directory
from fsbridge.tree import Directory

KINDS = fuzz_stores.KINDS
CHECKED = ("hdf5-latest",)
"""Kinds with a checksum for everything. Documents, N5's headers and HDF5's older structures have none."""


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyMount]:
    folder = tmp_path_factory.mktemp("faulty")
    for kind, make in KINDS.items():
        (path := folder / "stores" / kind).mkdir(parents=True)
        make(path)
    faulty = FaultyMount(folder / "stores", folder / "mnt")
    yield faulty
    faulty.stop()


@pytest.fixture(autouse=True)
def healed(faulty: FaultyMount) -> Iterator[None]:
    yield
    faulty.release()


def opened(faulty: FaultyMount, kind: str, seconds: float = 60.0) -> tuple[Directory, Callable[[], None]]:
    path, ttl = fuzz_stores.source_of(kind, faulty.path / kind), 60.0 if kind in ("hdmf", "icechunk") else 0.0
    config = Config(str(path), "", metadata_ttl=ttl, read_deadline=seconds)
    source = open_source(config.source, config)
    return root_directory(source, config, ChunkCache(8 << 20)), source.close


def read(faulty: FaultyMount, kind: str) -> Found:
    """The whole tree, or the error for all of it."""
    try:
        root, close = opened(faulty, kind)
    except (FsbridgeError, OSError) as error:
        return {b"": error}
    try:
        return dict(files(root))
    finally:
        close()


@pytest.fixture(scope="module")
def right(faulty: FaultyMount) -> dict[str, Found]:
    """Every tree without faults; that it holds the right values is the concern of the tests of each format."""
    found = {kind: read(faulty, kind) for kind in KINDS}
    broken = {kind for kind, tree in found.items() for what in tree.values() if isinstance(what, Exception)}
    assert broken == {"hangar"}, "of which a part is on a remote server"
    return found


def comparable(found: Found) -> dict[bytes, bytes | type | None]:
    return {path: type(what) if isinstance(what, Exception) else what for path, what in found.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_p2_p3_right_bytes_or_an_error_whatever_the_disk_does(
    faulty: FaultyMount, right: dict[str, Found], kind: str
) -> None:
    told: Counter[str] = Counter()
    for seed, share in enumerate((0.001, 0.005, 0.05)):
        faulty.begin(seed, dict.fromkeys(("fail", "delay", "truncate", "change"), share))
        found = read(faulty, kind)
        told += faulty.release()
        assert not absent(right[kind], found), "what is broken is not absent"
        for path, what in found.items():
            if isinstance(what, Exception):
                assert not isinstance(what, NotFound), path
                assert not isinstance(what, OSError) or what.errno == errno.EIO, path
            else:
                assert is_complete(what, right[kind][path]), f"{path!r}, seed {seed}"
    assert told
    assert comparable(read(faulty, kind)) == comparable(right[kind]), "what failed for a moment is right again"


@pytest.mark.parametrize("kind", ["hdf5", "hdf5-latest", "hangar"])
def test_p3_p8_flipped_bits_are_an_error_where_there_is_a_checksum(
    faulty: FaultyMount, right: dict[str, Found], kind: str
) -> None:
    told = 0
    for seed in range(4):
        faulty.begin(seed, {"flip": 0.03}, ("read",))
        found = read(faulty, kind)
        told += faulty.release()["flip"]
        for path, what in found.items():
            assert isinstance(what, Exception) or kind not in CHECKED or what == right[kind][path], path
    assert told


@pytest.mark.parametrize("kind", KINDS)
def test_p7_a_disk_that_hangs_is_refused_and_healthy_again_when_it_goes_on(
    faulty: FaultyMount, right: dict[str, Found], kind: str
) -> None:
    """Children and libraries that wait for a disk cannot be killed: the request gives up, and other kinds go on."""
    for _ in range(10):  # a child may take longer to start on a busy machine
        with contextlib.suppress(FsbridgeError):
            root, close = opened(faulty, kind, seconds=1.0)
            break
    other, close_other = opened(faulty, "zarr3" if kind != "zarr3" else "n5")
    names = [name for name in sorted(right[kind]) if not isinstance(right[kind][name], Exception)]

    async def main() -> None:
        jobs = Jobs(2, 2)
        jobs.start()
        faulty.begin(1, {"hang": 0.5}, OPERATIONS)
        refused = 0
        for number, name in enumerate(names[:: len(names) // 8]):
            try:
                subject, soon = Subject(number, name), trio.current_time() + 0.3
                await jobs.data.run(partial(content_of, root, name), soon, subject=subject)
            except FsbridgeError:
                refused += 1
        assert refused
        faulty.release()
        while jobs.running:
            await trio.sleep(0.01)
        jobs.stop()

    trio.run(main)
    if kind.startswith("hdf5"):
        opened_again, close_again = opened(faulty, kind)
        assert comparable(dict(files(opened_again))) == comparable(right[kind])
        close_again()
    else:
        assert comparable(dict(files(root))) == comparable(right[kind])
    assert dict(files(other))
    close()
    close_other()


def content_of(directory: Directory, path: bytes) -> bytes:
    *above, name = path.strip(b"/").split(b"/")
    for part in above:
        member = directory.lookup(part)
        assert isinstance(member, Directory)
        directory = member
    return content(directory.lookup(name))


def test_p3_p7_a_mount_over_a_failing_disk_gives_right_bytes_or_errors(
    faulty: FaultyMount, right: dict[str, Found], mount: MountFunction
) -> None:
    """All kinds as one collection: whatever a program reads is right, or an error that says why."""
    tree = mount(faulty.path, "--metadata-ttl", "0.05")
    tree.allow("WARNING")
    kinds = ("sharded", "hdf5", "hdf5-latest", "zip", "hangar")
    names = {kind: fuzz_stores.source_of(kind, faulty.path / kind).relative_to(faulty.path) for kind in kinds}
    codes: Counter[int | None] = Counter()
    good = 0
    for seed in range(2):
        faulty.begin(seed, {"fail": 0.01, "truncate": 0.01, "delay": 0.02, "change": 0.005})
        for kind, name in names.items():
            for path, wanted in right[kind].items():
                if not isinstance(wanted, bytes) or wanted.startswith(b"-> "):
                    continue
                try:
                    assert (tree / os.fsdecode(bytes(name) + path)).read_bytes() == wanted
                    good += 1
                except OSError as error:
                    codes[error.errno] += 1
                    if error.errno == errno.ENOENT:
                        pytest.fail(f"absent: {error.filename}")
    faulty.release()
    assert good
    assert set(codes) <= {errno.EIO, errno.ESTALE, errno.ETIMEDOUT}, codes
    assert tree.alive


@pytest.mark.parametrize("kind", ["n5", "sharded", "hdf5", "zip"])
def test_p3_an_error_of_the_disk_says_what_it_hit(faulty: FaultyMount, kind: str) -> None:
    """The system's own says a descriptor at most, and a chunk's path in the mount is its array's in the log."""
    met: list[OSError] = []
    for operation in OPERATIONS:
        faulty.begin(0, {"fail": 0.3}, (operation,))
        met += [found for found in read(faulty, kind).values() if isinstance(found, OSError)]
        faulty.release()
    assert [error for error in met if not isinstance(error.filename, str)] == []


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[tuple[FaultyMount, Path, Path]]:
    """A file system that fails, an HDF5 file in it, and the same file on the disk beneath."""
    (folder := tmp_path / "disk").mkdir()
    with h5py.File(folder / "x.h5", "w") as file:
        for group, number in itertools.product("abc", range(20)):
            array = file.create_dataset(f"{group}/{number}", data=np.arange(4), chunks=(2,))
            array.attrs["number"], array.attrs["text"] = number, "x" * 200
    faulty = FaultyMount(folder, tmp_path / "mnt")
    yield faulty, faulty.path / "x.h5", folder / "x.h5"
    faulty.release()
    faulty.stop()


def test_p3_an_hdf5_file_that_could_not_be_opened_for_a_while_is_opened_again(
    failing: tuple[FaultyMount, Path, Path],
) -> None:
    """The failure of a disk was remembered as damage of the file, until the file was written to or mounted again."""
    faulty, path, beneath = failing
    with hdf5_model.opened(path) as source:
        os.utime(beneath)
        faulty.begin(0, {"fail": 1.0}, ("read",))
        for _ in range(2):
            with pytest.raises(Unreachable, match="Input/output error"):
                hdf5_model.array(source, "a/1")
        faulty.release()
        assert hdf5_model.values(hdf5_model.array(source, "a/1")).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(3))
def test_p3_what_a_listing_of_hdf5_could_not_read_is_read_later(failing: tuple[FaultyMount, Path, Path], seed: int) -> None:
    """Members were remembered as damaged, or as without attributes, because the disk had failed while they were listed."""
    faulty, path, _ = failing
    time.sleep(0.05)  # the file has settled, so that listings are remembered
    with hdf5_model.opened(path) as source:
        faulty.begin(seed, {"fail": 0.2}, ("read",))
        for group in "abc":
            with contextlib.suppress(FsbridgeError):
                list(hdf5_model.group(source, group).children())
        assert faulty.release()["fail"]
        for group, number in itertools.product("abc", range(20)):
            found = hdf5_model.array(source, f"{group}/{number}").metadata.attributes
            assert dict(found) == {"number": number, "text": "x" * 200}
