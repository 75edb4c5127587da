"""A state machine: what lies around arrays changes, and every file of the layout `files` is compared with a fresh tree.

Attributes of groups and arrays, chunks of data and of coordinates, members, owners and modes change between any two steps.
A file that is opened then must be what a tree shows that is opened at that moment (P9): the same bytes, or the same error.
One that stays open goes on as it was, or is stale. The mount remembers nothing by age (`metadata_ttl=0`): nothing waits.
Not here: which versions of an array's own elements may be seen while they change (`state_machine.py`).
"""

from __future__ import annotations

import errno
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import zarr
from fake_kernel import Opened
from fuzz_documents import ARRAYS, DOCUMENTS, n5_tree, places
from fuzz_documents import GROUPS as OF_GROUPS
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from state_machine import Mounted

from fsbridge.config import MIB
from fsbridge.errors import FsbridgeError
from fsbridge.layouts.files.filetypes import CHOICES
from fsbridge.layouts.files.group_files import list_endings
from fsbridge.unmounted import VirtualTree

WHICH = st.integers(0, 10_000)
HOW = st.sampled_from(["rename", "place", "kept"])
"""Ways of writing a file: renamed, written over what is there, or renamed with the time of modification of before."""

KEPT: Mapping[str, tuple[Any, dict[str, Any]]] = {
    **{name: ARRAYS[name] for name in ("A/1/i/0", "A/1/i/1", "g/x", "g/y")},
    "c/x": (np.linspace(10, 16, 4), {"units": "mm", "_ARRAY_DIMENSIONS": ["x"]}),
    "c/data": (np.arange(12, dtype="<i2").reshape(3, 4), {"units": "V", "_ARRAY_DIMENSIONS": ["y", "x"]}),
    "c/row": (np.arange(4, dtype="u1"), {"_ARRAY_DIMENSIONS": ["x"]}),
}
"""The arrays: levels of an image in a plate, columns of a table, and two with a coordinate beside them."""

GROUPS = {**{name: OF_GROUPS[name] for name in ("", "A", "A/1", "A/1/i", "g")}, "c": {"title": "with a coordinate"}}

NAMES = ("c/row.csv", "c/data.npy", "A/1/i/0.json", "g/x[1:].npy", "c.csv", "c/z", "A/1.png")
"""Names of members that are also names of files, and one that is not."""

OWN = frozenset(("dimensions", "blockSize", "dataType", "compression", "n5"))
"""Attributes that are N5's own."""

UNITS = ("nm", "mm", "s", "degrees_north", "V")


def _zarr(path: Path, zarr_format: Any) -> None:
    for name, attributes in GROUPS.items():
        zarr.create_group(path / name, zarr_format=zarr_format, attributes=attributes)
    for name, (values, attributes) in KEPT.items():
        options: Any = {"zarr_format": zarr_format, "compressors": None, "attributes": attributes}
        if zarr_format == 3:
            options["dimension_names"] = attributes.get("_ARRAY_DIMENSIONS")
        chunks = tuple(max(1, n - 1) for n in values.shape)
        zarr.create_array(path / name, shape=values.shape, chunks=chunks, dtype=values.dtype, **options)[...] = values


FORMS: Mapping[str, Callable[[Path], None]] = {
    "zarr3": lambda path: _zarr(path, 3),
    "zarr2": lambda path: _zarr(path, 2),
    "n5": lambda path: n5_tree(path, GROUPS, KEPT),
}


@functools.cache
def content(form: str) -> Mapping[str, bytes]:
    """Return the files of a store by path."""
    with tempfile.TemporaryDirectory() as folder:
        FORMS[form](Path(folder))
        found = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@dataclass(repr=False)
class Held:
    """A file that is open, what it showed when it was opened, and how many changes there had been."""

    file: Opened
    data: bytes
    changes: int


class Surrounded(RuleBasedStateMachine):
    """See the module's text. `form`: of the store."""

    form: ClassVar[str] = "zarr3"

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(prefix="fsbridge-surrounded-", dir="/tmp"))
        self._folder.chmod(0o755)  # what other users may not read is not shown
        self.store, self._apart = self._folder / "store", self._folder / "apart"
        for name, data in content(self.form).items():
            (self.store / name).parent.mkdir(parents=True, exist_ok=True)
            (self.store / name).write_bytes(data)
        self._apart.mkdir()
        self.taken: list[str] = []
        """Paths of what was moved out of the store, in the order in which it went."""
        self.changes = 0
        self.held: list[Held] = []
        options: dict[str, Any] = {"layout": "files", "files": CHOICES, "allow_other": True, "metadata_ttl": 0.0}
        self.mounted = Mounted(self.store, cache_size=16 * MIB, **options)
        self.kernel = self.mounted.kernel

    def teardown(self) -> None:
        try:
            self.compare_all()
            for held in self.held:
                self.mounted.do(self.kernel.close, held.file)
        finally:
            try:
                self.mounted.end()
            finally:
                shutil.rmtree(self._folder)

    # Changes

    @rule(which=WHICH, place=WHICH, how=HOW)
    def change_attribute(self, which: int, place: int, how: str) -> None:
        """One value in the attributes of a group or an array, which may be its scale, unit, name, channel ..."""
        path = self._one(which, lambda path: path.name in DOCUMENTS and bool(self._attributes(path)))
        if path is None:
            return
        document = json.loads(path.read_bytes())
        attributes = document.get("attributes", document)
        leaves = [(holder, key) for holder, key in places(attributes) if self._is_value(holder, key)]
        if not leaves:
            return
        holder, key = leaves[place % len(leaves)]
        value = holder[key]
        if key in ("unit", "units"):
            holder[key] = UNITS[(UNITS.index(value) + 1) % len(UNITS) if value in UNITS else 0]
        else:
            holder[key] = f"{value}x" if isinstance(value, str) else value + 1
        self._write(path, json.dumps(document).encode(), how)

    def _attributes(self, path: Path) -> Mapping[str, Any]:
        document = json.loads(path.read_bytes())
        found = document.get("attributes", {}) if path.name == "zarr.json" else document
        return {} if path.name in (".zarray", ".zgroup") else {key: value for key, value in found.items() if key not in OWN}

    def _is_value(self, holder: Any, key: Any) -> bool:
        return type(holder[key]) in (str, int, float) and key not in OWN and "dataType" not in holder

    @rule(which=WHICH, how=HOW)
    def change_chunk(self, which: int, how: str) -> None:
        """The last elements of an array, which may be a coordinate, are others."""
        path = self._one(which, lambda path: path.is_file() and path.name not in DOCUMENTS)
        if path is not None:
            data = bytearray(path.read_bytes())
            data[-2] ^= 1
            self._write(path, bytes(data), how)

    def _write(self, path: Path, data: bytes, how: str) -> None:
        status, new = path.stat(), self._apart / "new"
        if how == "place":
            path.write_bytes(data)
        else:
            new.write_bytes(data)
            new.chmod(status.st_mode & 0o777)
            if how == "kept":
                os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.rename(new, path)
        self.changes += 1

    @rule(which=WHICH, folder=st.booleans())
    def take_away(self, which: int, folder: bool) -> None:
        """A group, an array, a document or a chunk is gone. It is kept for later."""
        path = self._one(which, lambda path: path.is_dir() == folder and not self._is_of_root(path))
        if path is not None:
            os.rename(path, self._apart / str(len(self.taken)))
            self.taken.append(str(path.relative_to(self.store)))
            self.changes += 1

    @precondition(lambda self: self.taken)
    @rule()
    def bring_back(self) -> None:
        """What went last comes back, if its place is there and free."""
        path = self.store / self.taken.pop()
        if path.parent.is_dir() and not path.exists():
            os.rename(self._apart / str(len(self.taken)), path)
            self.changes += 1
        else:
            self._remove(self._apart / str(len(self.taken)))

    def _remove(self, path: Path) -> None:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()

    @rule(source=st.sampled_from(["c/row", "g/x", "c"]), name=st.sampled_from(NAMES))
    def add_member(self, source: str, name: str) -> None:
        """A member comes that is called as a file is."""
        path = self.store / name
        if (self.store / source).is_dir() and path.parent.is_dir() and not path.exists():
            shutil.copytree(self.store / source, path)
            self.changes += 1

    @rule(which=WHICH, closed=st.sampled_from([0o000, 0o033, 0o077, 0o007]))
    def change_mode(self, which: int, closed: int) -> None:
        """All users, or not all, may read a file or enter a directory."""
        path = self._one(which, lambda path: not self._is_of_root(path))
        if path is not None:
            os.chmod(path, (0o755 if path.is_dir() else 0o644) & ~closed)
            self.changes += 1

    @precondition(lambda self: os.geteuid() == 0)
    @rule(which=WHICH, owner=st.sampled_from([0, 64001]))
    def change_owner(self, which: int, owner: int) -> None:
        path = self._one(which, lambda path: True)
        if path is not None:
            os.chown(path, owner, owner)
            self.changes += 1

    @rule()
    def park(self) -> None:
        """Do what a lack of memory does."""

        async def drop() -> None:
            self.mounted.filesystem.inodes.park()
            self.mounted.filesystem.directories.clear()

        self.mounted.do(drop)

    @rule()
    def forget_all(self) -> None:
        self.mounted.do(self.kernel.forget)

    def _is_of_root(self, path: Path) -> bool:
        """True for the root's documents, without which no tree can be opened anew."""
        return path.parent == self.store and path.is_file()

    def _one(self, which: int, wanted: Callable[[Path], bool]) -> Path | None:
        """Return one of the paths in the store that are wanted."""
        found = [path for path in sorted(self.store.rglob("*")) if wanted(path)]
        return found[which % len(found)] if found else None

    # Readers

    @rule(which=WHICH)
    def compare_file(self, which: int) -> None:
        """Compare one file with a fresh tree."""
        with self._fresh() as fresh:
            self._compare(fresh, self._file(fresh, which))

    @rule(which=WHICH)
    def compare_directory(self, which: int) -> None:
        """Compare a listing with a fresh tree's."""
        with self._fresh() as fresh:
            self._compare_listing(fresh, _one_of(self._listed(fresh, "directory"), which))

    @rule(folder=st.sampled_from(["A/1", "g", "c"]))
    def compare_folder(self, folder: str) -> None:
        """Compare all files in a folder: what was read there before is known to the mount."""
        with self._fresh() as fresh:
            for path in self._listed(fresh, "file"):
                if path.startswith(f"{folder}/"):
                    self._compare(fresh, path)

    def compare_all(self) -> None:
        """Compare everything that a fresh tree lists."""
        with self._fresh() as fresh:
            for path in self._listed(fresh, "directory"):
                self._compare_listing(fresh, path)
            for path in self._listed(fresh, "file"):
                self._compare(fresh, path)

    @rule(which=WHICH)
    def hold(self, which: int) -> None:
        """Open a file, and keep it open."""
        with self._fresh() as fresh:
            path = self._file(fresh, which)
            data = self._read_fresh(fresh, path)
        if isinstance(data, bytes):
            file, error = self.mounted.tried(self.kernel.open, _encoded(path))
            assert file is not None, f"{path}: {error}"
            self.held.append(Held(file, data, self.changes))

    @rule(which=WHICH, first=st.integers(0, 100), last=st.integers(0, 100), mapped=st.booleans())
    def read_held(self, which: int, first: int, last: int, mapped: bool) -> None:
        """Read a part of a file that is open: as it was when it was opened, or it is stale."""
        if not self.held:
            return
        held = self.held[which % len(self.held)]
        begin, end = sorted((first * len(held.data) // 100, last * len(held.data) // 100))
        data, error = self.mounted.tried(self.kernel.read, held.file, begin, end - begin, mapped=mapped)
        place = b"/".join(held.file.path).decode()
        if data is None:
            assert held.changes < self.changes, f"{place}: {error}, and nothing has changed"
            assert error in ("ESTALE", "ENOENT", "EACCES"), f"{place}: {error}"
        else:
            assert data == held.data[begin:end], f"{place} is not what it was when it was opened"

    def _fresh(self) -> VirtualTree:
        return VirtualTree(self.mounted.config)

    def _listed(self, fresh: VirtualTree, kind: str) -> list[str]:
        """Return the paths of all files or directories that a fresh tree lists."""
        found = fresh.walk(failed=lambda path, error: None)
        root = [""] if kind == "directory" else []
        return root + [path for path, member in found if member.attrs.kind == kind]

    def _file(self, fresh: VirtualTree, which: int) -> str:
        """Return the path of a file that is listed, or can be opened by its name, if there is such a file."""
        named = (f"{path}.{ending}" for path in (*GROUPS, *KEPT) if path for ending in list_endings())
        return _one_of([*self._listed(fresh, "file"), *named], which)

    def _read_fresh(self, fresh: VirtualTree, path: str) -> bytes | str:
        """Return all bytes of a file, or the name of the error."""
        try:
            with fresh.open(path) as file:
                return bytes(file.read(0, file.size))
        except (FsbridgeError, OSError) as error:
            return errno.errorcode[error.errno or errno.EIO]

    def _read(self, path: str) -> bytes | str:
        file, error = self.mounted.tried(self.kernel.open, _encoded(path))
        if file is None:
            return error
        try:
            data, error = self.mounted.tried(self.kernel.read, file, 0, file.inode.size)
            return error if data is None else data
        finally:
            self.mounted.do(self.kernel.close, file)

    def _compare(self, fresh: VirtualTree, path: str) -> None:
        right, shown = self._read_fresh(fresh, path), self._read(path)
        assert shown == right, f"{path} is not what a fresh tree shows: {_difference(shown, right)}"

    def _compare_listing(self, fresh: VirtualTree, path: str) -> None:
        try:
            right: Any = sorted(member.name.encode() for member in fresh.list(path))
        except (FsbridgeError, OSError) as error:
            right = errno.errorcode[error.errno or errno.EIO]
        names, error_name = self.mounted.tried(self.kernel.list, _encoded(path), 100)
        shown: Any = error_name if names is None else sorted(names)
        assert shown == right, f"the listing of {path!r} is not a fresh tree's: {set(shown) ^ set(right)}"


def _one_of(paths: Sequence[str], which: int) -> str:
    return paths[which % len(paths)]


def _difference(shown: bytes | str, right: bytes | str) -> str:
    """Say where two contents differ."""
    if isinstance(shown, str) or isinstance(right, str):
        return f"{shown[:60]!r} and {right[:60]!r}"
    unequal = (at for at, pair in enumerate(zip(shown, right, strict=False)) if pair[0] != pair[1])
    at = next(unequal, min(len(shown), len(right)))
    return f"at {at}: {shown[max(0, at - 40) : at + 40]!r} and {right[max(0, at - 40) : at + 40]!r}"


def _encoded(path: str) -> tuple[bytes, ...]:
    return tuple(name.encode() for name in path.split("/") if name)
