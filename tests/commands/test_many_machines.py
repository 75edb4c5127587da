"""The commands for clusters and pods in docs/mounting.md, on four mounts of one store that stand for as many nodes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import zarr
from documents import PAGES, blocks, section
from fake_s3 import BUCKET, FakeS3
from forking import environment
from mounting import command, mounted

NODES = 4
PAGE = PAGES["docs/mounting.md"]
VALUES = np.arange(64 * 64, dtype="<i4").reshape(64, 64)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Path]]:
    """Mount points, none of them in use afterwards."""
    points = [tmp_path / f"node{number}" for number in range(NODES)]
    yield points
    left = [point for point in points if mounted(point)]
    for point in left:
        subprocess.run(["fusermount3", "-uz", point], check=True)
    assert not left


@pytest.fixture
def env(tmp_path: Path, server: FakeS3) -> dict[str, str]:
    """A store on the server, and an environment in which `fsbridge` is the one under test and finds it."""
    group = zarr.open_group(tmp_path / "z", mode="w", zarr_format=3)
    group.create_array("raw", data=VALUES, chunks=(16, 16))
    server.put_tree(tmp_path / "z", "brain.zarr")
    program = tmp_path / "bin/fsbridge"
    program.parent.mkdir()
    reached = shlex.join(server.options)
    more = f'[ "$verb" = mount ] && set -- {reached} "$@"'
    program.write_text(f'#!/bin/sh\nverb=$1; shift\n{more}\nexec {shlex.join(command())} "$verb" "$@"\n')
    program.chmod(0o755)
    (tmp_path / "bin/your-program").write_text('#!/bin/sh\nset -e\ncd "$1"\nexec sha256sum raw/c/*/*\n')
    (tmp_path / "bin/your-program").chmod(0o755)
    return environment() | {"PATH": f"{program.parent}:{os.environ['PATH']}"}


def run_on(nodes: list[Path], env: dict[str, str], line: str, folder: Path) -> list[str]:
    """A command of the page on all nodes at a time; what each has said."""
    processes = []
    for number, point in enumerate(nodes):
        words = line.replace("/mnt/brain", shlex.quote(str(point))).replace("s3://bucket/", f"s3://{BUCKET}/")
        words = words.replace(
            "/local/fsbridge", shlex.quote(str(folder / f"blocks{number // 2}"))
        )  # two mounts on each machine
        processes.append(subprocess.Popen(["sh", "-c", words], env=env, stdout=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(nodes)
    return said


def expected() -> str:
    tiles = ((i, j, VALUES[16 * i : 16 * i + 16, 16 * j : 16 * j + 16]) for i in range(4) for j in range(4))
    return "".join(f"{sha256(tile.tobytes()).hexdigest()}  raw/c/{i}/{j}\n" for i, j, tile in tiles)


def test_a_prolog_and_an_epilog_on_several_nodes(nodes: list[Path], env: dict[str, str], tmp_path: Path) -> None:
    (block,) = blocks(section(PAGE, "Clusters"), "sh")
    prolog, epilog = block.splitlines()
    run_on(nodes, env, prolog, tmp_path)
    assert run_on(nodes, env, "your-program /mnt/brain", tmp_path) == [expected()] * NODES
    run_on(nodes, env, epilog, tmp_path)
    assert not any(map(mounted, nodes))


def test_a_pods_command_on_several_nodes(nodes: list[Path], env: dict[str, str], tmp_path: Path) -> None:
    ((shell, option, line),) = [json.loads(words) for words in re.findall(r"command: (\[.*\])", PAGE)]
    assert (shell, option) == ("sh", "-c")
    assert run_on(nodes, env, line, tmp_path) == [expected()] * NODES
    run_on(nodes, env, "fsbridge umount /mnt/brain", tmp_path)
