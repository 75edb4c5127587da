"""What a run was asked for, and its place on disk."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.data import Stored


@dataclass(frozen=True)
class Settings:
    """`size`, `chunk`: bytes of the arrays that are read and of their chunks; `scale` divides all numbers of files."""

    directory: str
    size: int
    chunk: int
    rounds: int
    scale: int
    wanted: tuple[str, ...]
    keep: bool

    def wants(self, name: str) -> bool:
        """Tell if a row was asked for."""
        return not self.wanted or any(name.startswith(prefix) for prefix in self.wanted)

    def count(self, number: int) -> int:
        """A number of files, scaled."""
        return max(10, number // self.scale)

    def say(self, words: str) -> None:
        """Progress, on standard error."""
        end = "\n" if not sys.stderr.isatty() else "\033[K\r"
        print(f"bench: {words}", end=end, file=sys.stderr, flush=True)

    @contextmanager
    def scratch(self, where: str | None = None) -> Iterator[str]:
        """An empty directory that goes away."""
        path = tempfile.mkdtemp(prefix="scratch-", dir=where or self.directory)
        try:
            yield path
        finally:
            shutil.rmtree(path)

    def place(self, name: str) -> str:
        """Return a place for a file or a tree that `remove` deletes; leftovers of a killed run are deleted first."""
        path = os.path.join(self.directory, name)
        if os.path.lexists(path):
            self.remove(path)
        return path

    def discard(self, stored: Stored) -> None:
        """Remove an array, unless data is kept for another run."""
        if not self.keep:
            self.remove(stored.source)
            os.unlink(stored.manifest)

    def remove(self, path: str) -> None:
        """Remove a file or a tree."""
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
