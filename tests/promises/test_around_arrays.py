"""P9 and P4 of what stands around an array: groups above it, coordinates beside it. Every file that shows it follows it.

The trees are read without FUSE as the kernel does it: a node is kept and opened again, and looked up again if it is stale.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pytest
import zarr
from tree_walker import content, find_node

from fsbridge.config import Config
from fsbridge.errors import FsbridgeError, NotFound, Stale
from fsbridge.layouts.files.filetypes import FILE_TYPES
from fsbridge.mount.lifecycle import open_tree
from fsbridge.tree import AnyNode

FILES = [
    *(f"{array}.{suffix}" for array in ("a", "im/0") for suffix in ("json", *FILE_TYPES)),
    *(
        "im.json",
        "im.h5",
        "im.nc",
        "im.ome.tif",
        "im.preview.png",
        "im/index.html",
        "index.html",
        "store.json",
        "s.h5",
        "s.nc",
        "s.csv",
    ),
]
EVEN, UNEVEN = [0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 5.0, 6.0]


def image(name: str, scale: float) -> dict[str, Any]:
    scaled = {"coordinateTransformations": [{"type": "scale", "scale": [scale, scale]}]}
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "uv"]
    return {"multiscales": [{"name": name, "axes": axes, "datasets": [{"path": f"{n}", **scaled} for n in range(2)]}]}


class Store:
    """A store with an array `a` along the coordinate `x`, and an image of two levels in the group `im`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.make()

    def make(self) -> None: ...

    def coordinate(self, values: list[float], unit: str) -> None: ...

    def attributes(self, attributes: dict[str, Any]) -> None:
        """Set those of the group `im`."""

    def remove(self) -> None:
        """Remove the coordinate."""
        shutil.rmtree(self.folder / "x")


class Zarr(Store):
    version: Any = 3
    marks: ClassVar[dict[str, Any]] = {}

    def make(self) -> None:
        root = zarr.create_group(self.folder, zarr_format=self.version, attributes=self.marks)
        self.array("a", np.arange(4, dtype="u1"), ["x"])
        root.create_group("im")
        for level in range(2):
            self.array(f"im/{level}", np.full((8 >> level, 8 >> level), 7, "u1"), ["u", "v"])

    def array(self, path: str, values: Any, names: list[str], **attributes: Any) -> None:
        named = names if self.version == 3 else None
        own = attributes if self.version == 3 else {"_ARRAY_DIMENSIONS": names, **attributes}
        root = zarr.open_group(self.folder, mode="r+")
        root.create_array(path, data=values, chunks=values.shape, overwrite=True, attributes=own, dimension_names=named)

    def coordinate(self, values: list[float], unit: str) -> None:
        self.array("x", np.array(values), ["x"], units=unit)

    def attributes(self, attributes: dict[str, Any]) -> None:
        zarr.open_group(self.folder, mode="r+")["im"].attrs.put(attributes)


class Zarr2(Zarr):
    version = 2


class Hdmf(Zarr2):
    marks: ClassVar[dict[str, Any]] = {".specloc": "specifications", "zarr_link": []}


class N5(Store):
    def make(self) -> None:
        self.put("attributes.json", {"n5": "2.0.0"})
        self.array("a", np.arange(4, dtype="u1"), "x")
        for level in range(2):
            self.array(f"im/{level}", np.full((8 >> level, 8 >> level), 7, "u1"), "u", "v")

    def put(self, path: str, document: Any) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())

    def array(self, path: str, values: Any, *names: str, **attributes: Any) -> None:
        shape = list(values.shape)
        document = {"dimensions": shape, "blockSize": shape, "dataType": values.dtype.name, "compression": {"type": "raw"}}
        self.put(f"{path}/attributes.json", {**document, "axes": list(names), **attributes})
        header = struct.pack(f">HH{len(shape)}I", 0, len(shape), *shape)
        block = "/".join("0" for _ in shape)
        self.put(f"{path}/{block}", header + values.astype(values.dtype.newbyteorder(">")).tobytes())

    def coordinate(self, values: list[float], unit: str) -> None:
        self.array("x", np.array(values), "x", units=unit)

    def attributes(self, attributes: dict[str, Any]) -> None:
        self.put("im/attributes.json", attributes)


class Hdf5(Store):
    def make(self) -> None:
        with h5py.File(self.folder, "w") as file:
            file["a"] = np.arange(4, dtype="u1")
            file["a"].dims[0].label = "x"
            for level in range(2):
                file[f"im/{level}"] = np.full((8 >> level, 8 >> level), 7, "u1")

    def coordinate(self, values: list[float], unit: str) -> None:
        with h5py.File(self.folder, "a") as file:
            if "x" in file:
                del file["x"]
            file["x"] = np.array(values)
            file["x"].attrs["units"] = unit

    def attributes(self, attributes: dict[str, Any]) -> None:
        scale = attributes["multiscales"][0]["datasets"][0]["coordinateTransformations"][0]["scale"]
        with h5py.File(self.folder, "a") as file:
            for level in range(2):
                file[f"im/{level}"].attrs["element_size_um"] = scale
            file["im"].attrs["note"] = str(scale)

    def remove(self) -> None:
        with h5py.File(self.folder, "a") as file:
            del file["x"]


FORMATS = {"zarr3": Zarr, "zarr2": Zarr2, "hdmf": Hdmf, "n5": N5, "hdf5": Hdf5}


@pytest.fixture(params=FORMATS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    made = FORMATS[request.param](tmp_path / ("s.h5" if request.param == "hdf5" else "s"))
    made.attributes(image("first", 3.0))
    return made


class Reader:
    """The files of one mount, with the nodes that the kernel would keep."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._known: dict[str, AnyNode] = {}

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes; None if there is none. The kernel looks up once what is stale, and no more."""
        try:
            node = self._known.get(path) or self._found(path)
            try:
                return content(node)
            except Stale:
                return content(self._found(path))
        except NotFound:
            return None
        except FsbridgeError as error:
            return type(error).__name__.encode()

    def all(self) -> dict[str, bytes | None]:
        return {path: self.read(path) for path in FILES}

    def _found(self, path: str) -> AnyNode:
        node: AnyNode = find_node(self.root, path)
        self._known[path] = node
        return node


@contextmanager
def reader(store: Store, **changes: Any) -> Iterator[Reader]:
    tree = open_tree(Config(source=str(store.folder), mountpoint="/nowhere", layout="files", files=("all",), **changes))
    try:
        yield Reader(tree.root)
    finally:
        tree.close()


CHANGES: dict[str, Callable[[Store], object]] = {
    "a new coordinate": lambda store: store.coordinate(EVEN, "m"),
    "its values": lambda store: store.coordinate(UNEVEN, "m"),
    "its unit": lambda store: store.coordinate(UNEVEN, "s"),
    "its removal": lambda store: store.remove(),
    "attributes of a group": lambda store: store.attributes(image("second", 5.0)),
}


def test_p9_every_file_shows_what_is_around_its_array_now(store: Store) -> None:
    with reader(store) as files:
        old = files.all()
        for change, make in CHANGES.items():
            make(store)
            now = files.all()
            with reader(store) as others:
                fresh = others.all()
            assert (change, [path for path in FILES if now[path] != fresh[path]]) == (change, [])
            changed = {path for path in FILES if fresh[path] != old[path]}
            about_image = {path for path in changed if path.startswith("im/0.")}
            assert changed, change
            if change == "attributes of a group":
                assert {"im/0.nrrd", "im/0.json"} <= about_image
            else:
                assert not about_image, change
            old = fresh


def test_p9_what_is_not_changed_stays_the_same_file(store: Store) -> None:
    store.coordinate(EVEN, "m")
    with reader(store) as files:
        files.all()
        first = {path: node.version for path, node in files._known.items() if path.startswith(("a.", "im/0."))}
        assert first == {path: files._found(path).version for path in first}
        files.all()
        if isinstance(store, Hdf5):
            return  # any change of the file may be one of all that is in it
        store.attributes({**image("first", 3.0), "note": 1})
        again = {path: files._found(path).version for path in first}
        assert {path for path in first if first[path] != again[path]} <= {path for path in first if path.startswith("im/")}


REFUSED = ("x/c/0", "x/zarr.json", "x", "im/zarr.json")


def test_p4_no_file_shows_what_others_may_no_longer_read(tmp_path: Path) -> None:
    store = Zarr(tmp_path / "s")
    store.attributes(image("first", 3.0))
    store.coordinate([123456.75 + 3 * i for i in range(4)], "parsec")
    for folder, _, names in os.walk(store.folder):
        os.chmod(folder, 0o755)
        for name in names:
            os.chmod(Path(folder, name), 0o644)
    with reader(store, allow_other=True) as files:
        old = files.all()
        for number, path in enumerate(REFUSED):
            place = store.folder / path
            mode = place.stat().st_mode
            os.chown(place, 1000 + number, 1000)
            assert files.all() == old
            os.chmod(place, mode & 0o700)
            now = files.all()
            with reader(store, allow_other=True) as others:
                fresh = others.all()
            differ = [path for path in FILES if now[path] != fresh[path]]
            bare = [path for path in differ if path.endswith((".npy", ".raw"))]  # only elements, which all may read
            assert (path, differ) == (path, bare)
            assert now != old
            os.chmod(place, mode)
            assert files.all() == old
