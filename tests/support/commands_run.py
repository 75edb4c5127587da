"""Programs that tests run, and mounts that must be refused. Not here: `fsbridge` in this process (`in_process.py`)."""

from __future__ import annotations

import os
import subprocess

from fake_mount import FakeMount
from forking import environment


def run(*command: str | os.PathLike[str]) -> subprocess.CompletedProcess[str]:
    words = [os.fspath(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, env=environment(), check=False, timeout=60)


def refused(fake: FakeMount, *options: str) -> str:
    done = fake.run(*options)
    assert done.returncode == 32
    assert done.stdout == ""
    assert not fake.daemons
    assert done.stderr.startswith("fake_tree: ")
    assert len(done.stderr.splitlines()) <= 2
    return done.stderr
