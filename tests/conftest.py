"""Fixtures shared by all tests: real mounts of the installed command (`mounting.py`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest
from mounting import Mount

MountFunction: TypeAlias = Callable[..., Mount]


def _mounts(factory: pytest.TempPathFactory) -> Iterator[MountFunction]:
    running: list[Mount] = []

    def make(source: str | os.PathLike[str], *options: str) -> Mount:
        running.append(Mount(source, factory.mktemp("mount"), options))
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
    """As `mount`, for mounts that all tests of a module share."""
    yield from _mounts(tmp_path_factory)
