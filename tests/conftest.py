"""Fixtures shared by all tests: real mounts of the installed command (`mounting.py`)."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_mount import FakeMount
from fake_s3 import BIG, CHUNK, FakeS3
from hypothesis import HealthCheck, settings
from mounting import Mount, MountFunction

from fsbridge.model import Source

# How long an example takes says how busy the machine is. Fifty examples find what a hundred do, in half of the time.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests of servers that fail: they wait, and would keep the last processor waiting."""
    items.sort(key=lambda item: not item.path.match("store/remote/test_*.py"))


def pytest_collection_finish() -> None:
    """Let Python's garbage collector pass over modules and tests, which stay: it takes a twentieth of the time otherwise."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _without_handlers() -> Iterator[None]:
    """Remove what a command that ran in this process has logged to, as its end would: its terminal is closed by then."""
    root = logging.getLogger()
    before = list(root.handlers)
    yield
    for handler in [handler for handler in root.handlers if handler not in before]:
        if type(handler) is logging.StreamHandler:
            root.removeHandler(handler)


def _mounts(factory: pytest.TempPathFactory) -> Iterator[MountFunction]:
    running: list[Mount] = []

    def make(source: str | os.PathLike[str], *options: str, installed: bool = False) -> Mount:
        running.append(Mount(source, factory.mktemp("mount"), options, installed))
        return running[-1]

    yield make
    problems = []
    for mount in reversed(running):
        try:
            mount.stop()
        except AssertionError as error:
            problems.append(str(error))
    assert not problems, "\n\n".join(problems)


@pytest.fixture
def mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MountFunction]:
    """`mount(source, *options)`: a `Mount` made by the installed command, unmounted after the test."""
    yield from _mounts(tmp_path_factory)


@pytest.fixture(scope="module")
def module_mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MountFunction]:
    """Like `mount`, for mounts that all tests of a module share."""
    yield from _mounts(tmp_path_factory)


@pytest.fixture
def server() -> Iterator[FakeS3]:
    """An object store on a loopback address, with a small Zarr v3 hierarchy at `z`."""
    server = FakeS3()
    server.put("z/zarr.json", b"{}", 1e9)
    server.put("z/a/zarr.json", b"{}", 1e9)
    for number in range(3):
        server.put(f"z/a/c/{number}", CHUNK[number:], 1e9 + number)
    server.put("z/a/big", BIG, 1e9)
    yield server
    server.stop()


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeMount]:
    """A tree in memory that a test mounts, for tests of the command and its daemon."""
    mount = FakeMount(tmp_path)
    yield mount
    mount.clear()


@pytest.fixture
def opened() -> Iterator[list[Source]]:
    """Sources to be closed when the test is over."""
    sources: list[Source] = []
    yield sources
    for source in sources:
        source.close()
