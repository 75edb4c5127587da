"""Every format of keys over a store that fails by a seeded plan: the right bytes, or an error; never anything else."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
from faulty_store import FaultyStore, Plan
from small_stores import FORMATS, absent, files

from fsbridge.config import Config
from fsbridge.decoded.cache import ChunkCache
from fsbridge.errors import NotFound, TimedOut
from fsbridge.formats.open import Opening
from fsbridge.kernel.jobs import Jobs
from fsbridge.kernel.lanes import Subject
from fsbridge.layouts import root_directory
from fsbridge.store import Store
from fsbridge.store.local import LocalStore
from fsbridge.store.zip import ZipStore
from fsbridge.tree import Directory

SEEDS = 12


@pytest.fixture(params=FORMATS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Plan], tuple[Directory, Callable[[], None]]]:
    """Makes a tree over the store with faults, and what closes it."""
    form, write = FORMATS[request.param]
    path = tmp_path / "store"
    path.mkdir()
    write(path)

    def make(plan: Plan, layout: str = "zarr3") -> tuple[Directory, Callable[[], None]]:
        good: Store = ZipStore(str(path) + ".zip") if request.param == "zip" else LocalStore(str(path))
        config = Config("store", "", layout=layout, metadata_ttl=0.0)
        plan.on, begun = False, plan.on
        source = Opening().open_in_store(form, FaultyStore(good, plan), config)
        root = root_directory(source, config, ChunkCache(1 << 20))
        plan.on = begun
        return root, source.close

    return make


def attributes(root: Directory, name: bytes) -> object:
    return root.lookup(name).attrs()


Opener = Callable[..., tuple[Directory, Callable[[], None]]]


@pytest.mark.parametrize("layout", ["zarr3", "zarr2", "n5"])
@pytest.mark.parametrize("fault", ["fail", "delay", "truncate", "flip", "change"])
def test_p2_p3_right_bytes_or_an_error_whatever_the_store_does(opener: Opener, fault: str, layout: str) -> None:
    root, close = opener(Plan(), layout)
    right = dict(files(root))
    close()
    assert len(right) >= 8
    assert not [error for error in right.values() if isinstance(error, Exception)]
    seen = told = 0
    for seed in range(SEEDS):
        # What has no checksum of its own (documents, N5's headers) may be read as something else after a flipped bit.
        only = frozenset(("read", "read_range")) if fault == "flip" else Plan().only
        plan = Plan(seed, {fault: 0.05 + 0.1 * (seed % 3)}, only)
        root, close = opener(plan, layout)
        tree = dict(files(root))
        assert fault == "flip" or not absent(right, tree), f"seed {seed}: what is broken is not absent"
        for path, found in tree.items():
            if isinstance(found, Exception):
                assert fault != "delay", (path, found)
                assert not isinstance(found, NotFound) or fault in ("flip", "change"), f"{path!r}: broken is not absent"
                seen += 1
            elif fault != "flip":
                assert found == right[path], f"{path!r}, seed {seed}"
            elif path in right and b".json" not in path and not path.rpartition(b"/")[2].startswith(b".z"):
                before = right[path]
                assert isinstance(found, bytes) == isinstance(before, bytes)
                if isinstance(found, bytes) and isinstance(before, bytes):
                    assert len(found) == len(before) or layout == "n5", path
        if fault in ("fail", "delay", "change"):
            plan.release()
            assert dict(files(root)) == right, "what failed for a moment is right again"
        close()
        told += plan.told[fault]
    assert told
    assert seen or fault in ("delay", "change")


@pytest.mark.parametrize(
    ("layout", "document", "array"),
    [
        ("zarr3", b"zarr.json", b"a"),
        ("zarr2", b".zgroup", b"a"),
        ("n5", b"attributes.json", b"a"),
        ("files", b"a.json", b"a.npy"),
    ],
)
def test_p7_a_store_that_hangs_is_refused_and_healthy_again_when_it_goes_on(
    opener: Opener, layout: str, document: bytes, array: bytes
) -> None:
    plan = Plan(1, {"hang": 0.3})
    root, close = opener(plan, layout)
    rng = random.Random(2)

    async def main() -> None:
        jobs = Jobs(2, 2)
        jobs.start()
        refused = 0
        for number in range(30):
            name = rng.choice([document, array])
            soon = trio.current_time() + 0.05
            try:
                await jobs.metadata.run(partial(attributes, root, name), soon, subject=Subject(1, name))
            except TimedOut:
                refused += 1
            assert jobs.metadata.running <= 8, number
        assert refused
        plan.release()
        while jobs.metadata.running or jobs.metadata.hung:  # a thread ends a job, and the event loop learns of it
            await trio.sleep(0.01)
        await jobs.metadata.run(lambda: root.lookup(array).attrs(), trio.current_time() + 60, subject=Subject(1, array))
        jobs.stop()

    trio.run(main)
    assert dict(files(root))
    close()
