"""Stores that are HDF5 files and zip archives and change under a mount, as directories do in `changing_store.py`.

A file changes as a whole, by rename or where it is; it is cut, goes away and comes back, and something else takes its
place. Not here: the mount, what may be seen of it.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import time
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from changing_store import COLUMNS, HEIGHT, ROWS, ChangingStore, Histories, Shape

At = tuple[int, int]


@dataclass(frozen=True)
class Stored:
    """An array; one without a shape is an empty group."""

    shape: Shape | None
    stamp: int
    stamps: dict[At, int] = field(default_factory=dict)


Content = dict[str, Stored]


class ChangingFiles:
    """Arrays by name, as in `ChangingStore`; all in one file, or (form `hdf5s`) each as `x` in a file `NAME.h5`.

    `histories` has what is at the place of each file, too: `("file", NAME)` is a `Content`, or a text where it is no good.
    """

    def __init__(self, folder: Path, form: str) -> None:
        self.form = form
        self.histories = Histories()
        self._stamp = 0
        self._content: Content = {}
        self._apart = folder.with_name("apart")
        self._apart.mkdir()
        if form == "hdf5s":
            folder.mkdir()
            self.folder = folder
            (folder / "c.h5").write_bytes(_hdf5({}))  # so that it is a collection, whatever goes
        else:
            self.folder = folder.with_suffix(".h5" if form == "hdf5" else ".zip")
            self._save("", "rename")

    def stamp(self) -> int:
        self._stamp += 1
        return self._stamp

    def arrays(self) -> list[str]:
        return [path[1] for path in self.histories.paths() if path[0] == "array" and self.histories.now(path)]

    def chunks(self, name: str) -> list[At]:
        found = [(i, j) for i in range(ROWS) for j in range(COLUMNS)]
        return [at for at in found if self.histories.now(("chunk", name, *at)) is not None]

    def file(self, name: str) -> Any:
        """The key in `histories` of the file that the array is in."""
        return "file", name if self.form == "hdf5s" else ""

    # Changes

    def make(self, name: str, shape: Shape, stored: list[At], renamed: bool) -> None:
        stamps = {at: self.stamp() for at in stored}
        self._change({**self._content, name: Stored(shape, self.stamp(), stamps)}, name, "rename" if renamed else "place")

    def remove(self, name: str, group: bool = False) -> None:
        content = {other: stored for other, stored in self._content.items() if other != name}
        if group:
            content[name] = Stored(None, 0)
        if content != self._content:  # else the file would be replaced, and no history would tell
            self._change(content, name, "rename")

    def move(self, name: str, to: str) -> None:
        content = {**self._content, to: self._content[name]}
        del content[name]
        self._change(content, name, "rename", to)

    def redescribe(self, name: str, how: str) -> None:
        stored = replace(self._content[name], stamp=self.stamp())
        self._change({**self._content, name: stored}, name, how)

    def write(self, name: str, at: At, how: str) -> None:
        stored = self._content[name]
        stored = replace(stored, stamps={**stored.stamps, at: self.stamp()})
        self._change({**self._content, name: stored}, name, how)

    def unlink(self, name: str, at: At) -> None:
        stored = self._content[name]
        stamps = {other: stamp for other, stamp in stored.stamps.items() if other != at}
        self._change({**self._content, name: replace(stored, stamps=stamps)}, name, "rename")

    def spoil(self, name: str, how: str) -> None:
        """The file is `cut`, is `gone`, or a Zarr store has its name (`other`)."""
        path, key = self._path(name), self.file(name)
        if isinstance(self.histories.now(key), str) or not path.exists():
            return
        begun = time.monotonic()
        shutil.copy2(path, self._apart / path.name)
        if how == "cut":
            os.truncate(path, path.stat().st_size // 2)
        else:
            os.rename(path, self._apart / path.name)
        if how == "other":
            path.mkdir()
            (path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {"other": 1}}')
        self.histories.set(key, how, begun)

    def mend(self, name: str) -> None:
        """The very file comes back."""
        path, key = self._path(name), self.file(name)
        if not isinstance(self.histories.now(key), str):
            return
        begun = time.monotonic()
        if path.is_dir():
            shutil.rmtree(path)
        os.rename(self._apart / path.name, path)
        self._now(name, begun)

    def _change(self, content: Content, name: str, how: str, other: str | None = None) -> None:
        for changed in {name, other or name}:
            self.mend(changed)
        begun = time.monotonic()
        self._content = content
        if self.form != "hdf5s":
            self._save(name, how)
        elif other is not None:
            os.rename(self._path(name), self._path(other))
        else:
            self._save(name, how)
        for changed in {name, other or name}:
            self._now(changed, begun)

    def _now(self, name: str, begun: float) -> None:
        for changed in {name, *(self._content if self.form != "hdf5s" else ())}:
            self._array_is(changed, begun)
        kept = self._content if self.form != "hdf5s" else {name: self._content[name]} if name in self._content else None
        self.histories.set(self.file(name), kept, begun)

    def _array_is(self, name: str, begun: float) -> None:
        stored = self._content.get(name)
        array = None if stored is None or stored.shape is None else (stored.shape, stored.stamp)
        self.histories.set(("array", name), array, begun)
        self.histories.set(("group", name), True if stored is not None and array is None else None, begun)
        for i in range(ROWS):
            for j in range(COLUMNS):
                stamp = None if stored is None else stored.stamps.get((i, j))
                self.histories.set(("chunk", name, i, j), stamp, begun)

    # How they are stored

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.h5" if self.form == "hdf5s" else self.folder

    def _save(self, name: str, how: str) -> None:
        path = self._path(name)
        if self.form == "hdf5s":
            if name not in self._content:
                path.unlink(missing_ok=True)
                return
            content = {"x": self._content[name]}
        else:
            content = self._content
        data = _zip(content) if self.form == "zip" else _hdf5(content)
        if how == "place" and path.exists():
            with open(path, "r+b") as file:
                file.write(data)
                file.truncate()
            return
        before = path.stat() if how == "kept" and path.exists() else None
        new = self._apart / "new"
        new.write_bytes(data)
        if before is not None:
            os.utime(new, ns=(before.st_mtime_ns, before.st_mtime_ns))
        os.rename(new, path)


def _hdf5(content: Content) -> bytes:
    memory = io.BytesIO()
    with h5py.File(memory, "w", libver="latest") as file:
        for name, stored in content.items():
            if stored.shape is None:
                file.create_group(name)
                continue
            shape = stored.shape
            made = file.create_dataset(
                name,
                (ROWS * HEIGHT, COLUMNS * shape.width),
                f"<i{shape.itemsize}",
                chunks=(HEIGHT, shape.width),
                compression="gzip" if shape.packed else None,
                compression_opts=1 if shape.packed else None,
            )
            made.attrs["stamp"] = stored.stamp
            for (i, j), stamp in stored.stamps.items():
                chunk = np.full(shape.nbytes // 4, stamp, "<i4").view(made.dtype).reshape(HEIGHT, shape.width)
                made[i * HEIGHT : (i + 1) * HEIGHT, j * shape.width : (j + 1) * shape.width] = chunk
    return memory.getvalue()


def _zip(content: Content) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        store = ChangingStore(Path(name) / "x", "zarr3")
        for member, stored in content.items():
            (store.folder / member).mkdir()
            if stored.shape is None:
                store.group(store.folder / member)
            else:
                store.fill(store.folder / member, stored.shape, stored.stamp, stored.stamps)
        memory = io.BytesIO()
        with zipfile.ZipFile(memory, "w") as archive:
            for path in sorted(store.folder.rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(store.folder))
        return memory.getvalue()
