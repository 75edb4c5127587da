"""Mutated stores of every kind: documents, HDF5 and zip files, Hangar's databases, each opened and read to its end.

    python tests/support/fuzz_stores.py [--count N] [--seed S] [--kind NAME ...]

The promise: what cannot be read is an error of ours with a reason. A signal, any other exception, or a tree without end
fails the run and leaves the mutated store for the corpus.
"""

from __future__ import annotations

import faulthandler
import os
import random
import shutil
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from fuzz_codecs import mutate
from fuzz_kinds import fuzz_kinds, kinds_parser, run_child

ENDLESS = 20_000
"""Files of a tree that has at most a few hundred when it is whole: cycles must end."""

PATIENCE = 2.0
"""Seconds for a question to a child process: the HDF5 library loops for ever on some damage, at several objects."""

SLOW = 120.0
"""Seconds that one store may take, on a loaded machine."""

LAYOUTS = ("zarr3", "zarr3", "zarr2", "n5", "files")


def _keyed(name: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        from small_stores import FORMATS

        FORMATS[name][1](path)

    return make


def _hdf5(path: Path, libver: str = "earliest") -> None:
    import h5py
    import numpy as np

    with h5py.File(path / "file.h5", "w", libver=libver) as file:
        data = np.arange(400).reshape(20, 20)
        file.create_dataset("g/chunked", data=data, chunks=(7, 7), compression="gzip", shuffle=True)
        file["contiguous"] = np.arange(9.0)
        file["strings"] = ["a", "bc"]
        file["compound"] = np.zeros(3, [("x", "i4"), ("y", "f8", (2,))])
        file["g/soft"], file["g/hard"] = h5py.SoftLink("/contiguous"), file["contiguous"]
        file["g"].attrs["text"] = "words"


def _hdf5_latest(path: Path) -> None:
    """With the chunk indexes of HDF5 1.10: a fixed and an extensible array, a version 2 B-tree, a checksum each."""
    import h5py
    import numpy as np

    _hdf5(path, "latest")
    with h5py.File(path / "file.h5", "a", libver="latest") as file:
        for name, maxshape in {"fixed": (20, 20), "extensible": (None, 20), "tree": (None, None)}.items():
            data = np.arange(400).reshape(20, 20)
            file.create_dataset(name, data=data, chunks=(4, 5), maxshape=maxshape, fletcher32=True, compression="gzip")


def _zip(path: Path) -> None:
    inside = path / "inside"
    inside.mkdir()
    _keyed("zarr2")(inside)
    shutil.make_archive(str(path / "file"), "zip", inside)
    shutil.rmtree(inside)


def _hangar(path: Path) -> None:
    from hangar_data import unpack

    unpack("partial", path)


def _icechunk(path: Path) -> None:
    """Without compression: its checksum would catch every damage."""

    from paths import DATA

    from fsbridge.formats.icechunk.records import HEADER_BYTES, unwrap

    shutil.unpack_archive(DATA / "icechunk/version2.zip", path)
    kinds: dict[Literal["repository", "snapshot", "manifest"], str] = {
        "repository": "repo",
        "snapshot": "snapshots/*",
        "manifest": "manifests/*",
    }
    for kind, pattern in kinds.items():
        for file in path.glob(pattern):
            data = file.read_bytes()
            file.write_bytes(data[: HEADER_BYTES - 1] + b"\0" + unwrap(data, kind, 1 << 20).data)


def _hdmf(path: Path) -> None:
    from nwb_data import unpack

    (unpack("zarr2", path.with_name("all")) / "session.nwb.zarr").rename(path / "file.zarr")
    shutil.rmtree(path.with_name("all"))


KINDS: dict[str, Callable[[Path], None]] = {
    "n5": _keyed("n5"),
    "zarr2": _keyed("zarr2"),
    "zarr3": _keyed("zarr3"),
    "sharded": _keyed("sharded"),
    "hdmf": _hdmf,
    "hdf5": _hdf5,
    "hdf5-latest": _hdf5_latest,
    "zip": _zip,
    "hangar": _hangar,
    "icechunk": _icechunk,
}


def targets(kind: str, path: Path) -> list[Path]:
    """The files that are damaged: metadata where there is any, else whole files."""
    found = [file for file in sorted(path.rglob("*")) if file.is_file()]
    documents = [file for file in found if file.suffix == ".json" or file.name.startswith(".z")]
    databases = [file for file in found if file.name.endswith(".lmdb") or file.name == "data.mdb"]
    written_once = [file for file in found if file.parent.name in ("snapshots", "manifests") or file.name == "repo"]
    return {"hangar": databases, "icechunk": written_once}.get(kind, documents) or found


def source_of(kind: str, path: Path) -> Path:
    return next(path.glob("file.*"), path)


def read_all(directory: Any, budget: Iterator[int], depth: int = 0) -> int:
    """Read a tree to its end; how many files were whole."""
    from tree_walker import content

    from fsbridge.errors import FsbridgeError

    good = 0
    try:
        for batch in directory.entries():
            for entry in batch:
                assert next(budget, None) is not None, "the tree does not end"
                try:
                    node = directory.lookup(entry.name)
                    if node.attrs().kind == "directory":
                        good += read_all(node, budget, depth + 1)
                    elif (node.measure() if node.attrs().kind == "file" else node.attrs()).size <= 1 << 20:
                        content(node, 1 << 16)
                        good += 1
                except (FsbridgeError, OSError):
                    continue
    except (FsbridgeError, OSError):
        pass
    return good


def child(kind: str, seed: int, count: int) -> None:
    from fsbridge.config import Config
    from fsbridge.decoded.cache import ChunkCache
    from fsbridge.errors import FsbridgeError
    from fsbridge.formats.open import open_source
    from fsbridge.layouts import root_directory

    faulthandler.enable()
    rng = random.Random(f"{kind}/{seed}")
    folder = Path(tempfile.mkdtemp(prefix=f"fsbridge-fuzz-{kind}-"))
    whole = folder / "whole"
    whole.mkdir()
    KINDS[kind](whole)
    others = [file.read_bytes()[: 1 << 16] for file in targets(kind, whole)]
    good = refused = 0
    slowest = 0.0
    for number in range(count):
        damaged = folder / "damaged"
        shutil.copytree(whole, damaged, symlinks=True)
        file = rng.choice(targets(kind, damaged))
        os.chmod(file, 0o644)
        file.write_bytes(mutate(rng, file.read_bytes(), others))
        limits: dict[str, Any] = {"cache_size": 8 << 20, "metadata_deadline": PATIENCE, "read_deadline": PATIENCE}
        config = Config(str(source_of(kind, damaged)), "", layout=LAYOUTS[number % len(LAYOUTS)], **limits)
        begin = time.monotonic()
        try:
            source = open_source(config.source, config)
            try:
                good += bool(read_all(root_directory(source, config, ChunkCache(config.cache_size)), iter(range(ENDLESS))))
            finally:
                source.close()
        except FsbridgeError:
            refused += 1
        except BaseException:
            print(f"fuzz: {kind} seed {seed} number {number}: {file} is kept", file=sys.stderr)
            raise
        slowest = max(slowest, time.monotonic() - begin)
        assert slowest < SLOW, f"{kind} seed {seed} number {number} took {slowest:.0f} s: {file} is kept"
        shutil.rmtree(damaged)
    shutil.rmtree(folder)
    print(f"{kind:30} {count} mutated: {good} shown at least in part, {refused} refused as a whole, slowest {slowest:.2f} s")


def fuzz(kind: str, seed: int, count: int) -> str:
    """Run in a process of its own; AssertionError with what went wrong, else a line of results."""
    return run_child(__file__, kind, seed, count)


def parser() -> ArgumentParser:
    return kinds_parser("stores", "Mutated stores of every kind.", KINDS, 2000)


if __name__ == "__main__":
    fuzz_kinds(parser(), KINDS, fuzz, child)
