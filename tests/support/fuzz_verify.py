"""Mutated stores and the verdict of `fsbridge verify`: it never says well where a reader fails.

    python tests/support/fuzz_verify.py [--count N] [--seed S] [--kind NAME ...]

Each store is damaged, then verified. If the verdict is "all is well", every file of the tree is readable in each layout,
nothing has vanished from it, an independent reader (zarr-python, TensorStore, h5py) reads all that it read before the
damage, and data that checksums protect are the same. Not here: what readers do with damage (`fuzz_stores.py`).
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import shutil
import sys
import tempfile
import warnings
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fuzz_codecs import mutate
from fuzz_kinds import fuzz_kinds, kinds_parser, run_child

LAYOUTS = ("zarr3", "zarr2", "n5", "files")

Values: TypeAlias = dict[str, Any]
"""What an independent reader has read: an array by its path, and attributes by the path of a group."""


def _zarr(path: Path, version: Literal[2, 3], **options: Any) -> None:
    """A hierarchy by zarr-python: arrays of several types, with and without checksums, in nested groups."""
    import numpy as np
    import zarr

    root = zarr.open_group(path, mode="w", zarr_format=version, attributes={"made": "by zarr"})
    inner = root.create_group("inner", attributes={"scale": [0.5, 2], "name": "größe"})
    for group in (root, inner):
        data = np.arange(120, dtype="<i4").reshape(12, 10)
        group.create_array("plain", shape=data.shape, dtype=data.dtype, chunks=(4, 5), compressors=None)[...] = data
        group.create_array("checked", shape=data.shape, dtype=data.dtype, **options)[...] = data
    inner.create_array("scalar", shape=(), dtype="f8")[...] = 3.5
    inner.create_array("texts", shape=(3,), dtype="string", chunks=(2,), compressors=None)[...] = np.array(
        ["a", "bc", "größe"], object
    )
    holes = inner.create_array("holes", shape=(6,), dtype="i2", chunks=(2,), fill_value=-3, attributes={"unit": "nm"})
    holes[:2] = 1


def _zarr2(path: Path) -> None:
    import numcodecs

    _zarr(path, 2, chunks=(4, 5), compressors=numcodecs.Zlib(), filters=[numcodecs.CRC32()])


def _zarr3(path: Path) -> None:
    from zarr import codecs

    _zarr(path, 3, chunks=(4, 5), compressors=[codecs.GzipCodec(), codecs.Crc32cCodec()])


def _sharded(path: Path) -> None:
    from zarr import codecs

    _zarr(path, 3, chunks=(2, 5), shards=(4, 10), compressors=[codecs.ZstdCodec(), codecs.Crc32cCodec()])


def _consolidated(path: Path) -> None:
    import zarr

    _zarr2(path)
    zarr.consolidate_metadata(path)


def _n5(path: Path) -> None:
    from small_stores import FORMATS

    FORMATS["n5"][1](path)


def _zip(path: Path) -> None:
    inside = path / "inside"
    _zarr2(inside)
    shutil.make_archive(str(path / "file"), "zip", inside)
    shutil.rmtree(inside)


def _hdf5(path: Path) -> None:
    from fuzz_stores import KINDS as STORES

    STORES["hdf5"](path)


def _hdf5_latest(path: Path) -> None:
    from fuzz_stores import KINDS as STORES

    STORES["hdf5-latest"](path)


def _virtual(path: Path) -> None:
    """`file.h5` with a virtual dataset over two files whose metadata and data have checksums, and one over itself."""
    import h5py
    import numpy as np

    data = np.arange(60).reshape(3, 20)
    options: Any = {"libver": "latest"}
    for number in range(2):
        with h5py.File(path / f"source{number}.h5", "w", **options) as file:
            file.create_dataset("g/x", data=data[number], chunks=(10,), fletcher32=True, compression="gzip")
    with h5py.File(path / "file.h5", "w", **options) as file:
        file.create_dataset("own", data=data[2], chunks=(10,), fletcher32=True, compression="gzip")
        file["link"] = h5py.SoftLink("/own")
        layout = h5py.VirtualLayout(data.shape, data.dtype)
        for row, (name, dataset) in enumerate((("source0.h5", "g/x"), ("source1.h5", "g/x"), (".", "link"))):
            layout[row] = h5py.VirtualSource(name, dataset, (20,))
        file.create_virtual_dataset("virtual", layout, fillvalue=-1)


def _hdmf(path: Path) -> None:
    """With links in attributes."""
    from nwb_data import unpack

    folder = unpack("zarr3", path.with_name("all"))
    (folder / "session.nwb.zarr").rename(path / "file.zarr")
    shutil.rmtree(folder)


def _read_zarr(path: Path, use_consolidated: bool | None = None) -> Values:
    import zarr

    found: Values = {}

    def visit(group: Any, below: str, folder: Path) -> None:
        names = [item.name for item in folder.iterdir() if item.is_dir()] if folder.is_dir() else group.keys()
        for name in sorted(names):
            place = f"{below}/{name}"
            try:
                node = group[name]
                found[place] = node[...] if isinstance(node, zarr.Array) else node.attrs.asdict()
            except Exception as error:
                found[place] = error
                continue
            if isinstance(node, zarr.Group):
                visit(node, place, folder / name)
        try:
            found[f"{below}/*"] = len(list(group.members()))
        except Exception as error:
            found[f"{below}/*"] = error

    file = next(path.glob("file.*"), path)
    store = zarr.storage.ZipStore(file, mode="r") if file.is_file() else file
    root = zarr.open_group(store, mode="r", use_consolidated=use_consolidated)
    found["/"] = root.attrs.asdict()
    visit(root, "", file)
    return found


def _read_n5(path: Path) -> Values:
    import tensorstore

    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(path / "a")}}
    try:
        return {"/a": tensorstore.open(spec).result().read().result()}
    except ValueError as error:
        if "Object includes extra members" in str(error):  # N5's own library does not mind them
            return {"/a": None}
        raise


def _read_hdf5(path: Path) -> Values:
    import h5py

    found: Values = {}
    with h5py.File(path / "file.h5") as file:

        def visit(name: str, node: Any) -> None:
            found[f"{name}@"] = dict(node.attrs)
            if isinstance(node, h5py.Dataset):
                found[name] = node[()]

        file.visititems(visit)
    return found


KINDS: Mapping[str, tuple[Callable[[Path], None], Callable[[Path], Values]]] = {
    "zarr2": (_zarr2, _read_zarr),
    "zarr3": (_zarr3, _read_zarr),
    "sharded": (_sharded, _read_zarr),
    "consolidated": (_consolidated, _read_zarr),
    "zip": (_zip, _read_zarr),
    "n5": (_n5, _read_n5),
    "hdf5": (_hdf5, _read_hdf5),
    "hdf5-latest": (_hdf5_latest, _read_hdf5),
    "virtual": (_virtual, _read_hdf5),
    "hdmf": (_hdmf, partial(_read_zarr, use_consolidated=False)),
}

STRICTER = (
    *("Expected an '.' or '/' separator", "KeyError('codecs')", "At least one ArrayBytesCodec"),
    "Invalid type: None. Expected",
)
"""What zarr-python says of documents that real writers make and others read: n5-zarr's empty separators, GDAL's lack of
codecs and its fill values of null."""

PROTECTED = {
    **dict.fromkeys(("zarr2", "zarr3", "sharded", "consolidated"), ("checked",)),
    "zip": ("",),
    "hdf5-latest": ("fixed", "extensible", "tree"),
    "virtual": ("virtual", "own"),
}
"""Beginnings of the names of arrays whose data have a checksum, and except in Zarr's directories their metadata, too."""

ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    1,
    -1,
    7,
    2**63,
    2**64,
    1.5,
    "",
    "x",
    "0",
    [],
    [1],
    {},
    {"name": "bytes"},
    "NaN",
    "<i4",
    ".",
    "/",
)
"""What takes the place of a value in a document."""


FOR_WRITERS = frozenset(
    ("level", "checksum", "clevel", "cname", "shuffle", "typesize", "blocksize", "configuration", "useZlib", "blockSize")
)
"""Members of a codec that decoding does not need. Other readers refuse odd ones, and fsbridge by intention does not."""


def _places(value: Any, in_codec: bool = False) -> Iterator[tuple[Any, Any]]:
    """Each object or list in a document, with each of its keys or positions, except what is only for writers."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        if not (in_codec and key in FOR_WRITERS):
            yield value, key
        yield from _places(value[key], in_codec or key in ("codecs", "index_codecs", "compressor", "filters", "compression"))


def _edited(rng: random.Random, text: bytes) -> bytes:
    """A JSON document with one member removed, renamed, repeated or changed: most changes of single bytes are no JSON."""
    document = json.loads(text)
    places = list(_places(document))
    if not places:
        return b"{}"
    holder, key = rng.choice(places)
    what = 4 if key == "fill_value" else rng.randrange(5)  # without one it is zero, as GDAL means it
    if what == 0:
        del holder[key]
    elif what == 1 and isinstance(holder, dict):
        holder[f"{key}_"] = holder.pop(key)
    elif what == 2:
        other, there = rng.choice(places)
        holder[key] = other[there]
    elif what == 3 and type(holder[key]) is int:
        holder[key] += rng.choice((-1, 1, 10))
    else:
        holder[key] = rng.choice(ODD_VALUES[1:] if key == "configuration" else ODD_VALUES)  # null is taken for none
    try:
        return json.dumps(document).encode()
    except (ValueError, RecursionError):  # it contains itself
        return b"[]"


def _damage(rng: random.Random, file: Path, others: list[bytes]) -> str:
    """Damage a file, or put something else in its place; return what was done."""
    data = file.read_bytes()
    what = rng.choice(("bytes",) * 8 + ("cut", "empty", "directory", "nowhere", "outside", "fifo", "stray"))
    if data.startswith(b"{") and (b'"shape"' in data or b'"dimensions"' in data) and rng.random() < 0.1:
        what = "gone"  # the document of an array: its chunks are left
    if what == "bytes" and data.startswith(b"{") and rng.random() < 0.7:
        file.write_bytes(_edited(rng, data))
    elif what == "bytes":
        file.write_bytes(mutate(rng, data, others))
    elif what == "cut":
        file.write_bytes(data[: rng.randrange(len(data) + 1)])
    elif what == "empty":
        file.write_bytes(b"")
    elif what == "stray":
        file.with_name(rng.choice(("0.0.0", "01", "x", file.name + "~", "99"))).write_bytes(data)
    else:
        file.unlink()
        if what == "directory":
            file.mkdir()
        elif what == "fifo":
            os.mkfifo(file)
        elif what != "gone":
            file.symlink_to("nowhere" if what == "nowhere" else "/etc/hostname")
    return what


class Run:
    """One kind of store, mutated again and again."""

    def __init__(self, kind: str, seed: int, folder: Path) -> None:
        self.kind = kind
        self.rng = random.Random(f"{kind}/{seed}")
        self.folder = folder
        self.make, self.read = KINDS[kind]
        self.whole = folder / "whole"
        self.whole.mkdir()
        self.make(self.whole)
        self.others = [file.read_bytes()[: 1 << 16] for file in self._files(self.whole)]
        found = self._findings(self.whole)
        assert not found, found
        self.right = self.read(self.whole)
        self.trees = {layout: self._tree(self.whole, layout) for layout in LAYOUTS}
        self.well = 0

    def once(self, number: int) -> None:
        """Damage a copy, verify it, and compare the verdict with what readers find."""
        damaged = self.folder / "damaged"
        shutil.copytree(self.whole, damaged, symlinks=True)
        files = self._files(damaged)
        documents = [file for file in files if file.suffix == ".json" or file.name.startswith(".z")]
        file = self.rng.choice(documents if documents and self.rng.random() < 0.4 else files)
        what = _damage(self.rng, file, self.others)
        place = f"{self.kind} number {number}: {what} {file.relative_to(damaged)}"
        if not self._findings(damaged):
            self.well += 1
            self._check(damaged, file, place)
        shutil.rmtree(damaged)

    def _check(self, damaged: Path, file: Path, place: str) -> None:
        for layout in LAYOUTS:
            found, before = self._tree(damaged, layout), self.trees[layout]
            for file_path, content in found.items():
                if isinstance(content, Exception) and not isinstance(before.get(file_path), Exception):
                    raise AssertionError(f"{place}: verify says well, but {layout}: {file_path!r} is {content!r}")
            lost = [] if self._renames(file) else [file_path for file_path in before if file_path not in found]
            assert not lost, f"{place}: verify says well, but {layout} lacks {lost[:5]}"
        try:
            values = self.read(damaged)
        except Exception as error:
            raise AssertionError(f"{place}: verify says well, but another reader gives {error!r}") from error
        for path, right in self.right.items():
            if isinstance(right, Exception) or any(words in repr(values.get(path)) for words in STRICTER):
                continue
            assert path in values, f"{place}: verify says well, but another reader lacks {path}"
            assert not isinstance(values[path], Exception), f"{place}: verify says well, but {path} is {values[path]!r}"
            if self._protects(path, file.relative_to(damaged).as_posix()):
                import numpy as np

                np.testing.assert_array_equal(values[path], right, f"{place}: verify says well, but {path} differs")

    def _protects(self, path: str, file: str) -> bool:
        """True if a checksum protects the array at `path` from damage in `file`."""
        name = path.rpartition("/")[2]
        if not name.startswith(PROTECTED.get(self.kind, ())):
            return False
        return self.kind in ("zip", "hdf5-latest", "virtual") or not self._renames(Path(file))

    def _renames(self, file: Path) -> bool:
        """True if damage of a file may give a valid store of another structure: no checksum protects its metadata."""
        return self.kind == "hdf5" or file.suffix == ".json" or file.name.startswith(".z")

    def _files(self, path: Path) -> list[Path]:
        return [file for file in sorted(path.rglob("*")) if file.is_file()]

    def _config(self, path: Path, layout: str = "zarr3") -> Any:
        from fsbridge.config import Config

        allowed = (str(path),) if self.kind == "virtual" else ()
        return Config(str(next(path.glob("file.*"), path)), "", layout=layout, allow_external=allowed, cache_size=8 << 20)

    def _findings(self, path: Path) -> list[Any]:
        """What `fsbridge verify` finds; empty: all is well."""
        from fsbridge.errors import FsbridgeError
        from fsbridge.unmounted.units import Threads, WorkSources, perform
        from fsbridge.unmounted.verifying import Verification

        found: list[Any] = []
        sources = WorkSources([self._config(path)])
        threads = Threads(sources, 2)
        try:
            work = Verification(sources, "", lambda place, error: found.append((place, error)), found.append)
            perform(work, threads, lambda place, size: None)
        except (FsbridgeError, OSError) as error:
            found.append(error)
        finally:
            threads.close()
            sources.close()
        return found

    def _tree(self, path: Path, layout: str) -> dict[bytes, Any]:
        from small_stores import files

        from fsbridge.decoded.cache import ChunkCache
        from fsbridge.formats.open import open_source
        from fsbridge.layouts import root_directory

        config = self._config(path, layout)
        source = open_source(config.source, config)
        try:
            return dict(files(root_directory(source, config, ChunkCache(config.cache_size))))
        finally:
            source.close()


def child(kind: str, seed: int, count: int) -> None:
    faulthandler.enable()
    warnings.simplefilter("ignore")
    folder = Path(tempfile.mkdtemp(prefix=f"fsbridge-verify-{kind}-"))
    run = Run(kind, seed, folder)
    for number in range(count):
        try:
            run.once(number)
        except BaseException:
            print(f"fuzz: seed {seed}: {folder / 'damaged'} is kept", file=sys.stderr)
            raise
    shutil.rmtree(folder)
    print(f"verify {kind:23} {count} mutated: {run.well} are well, and every reader agrees")


def fuzz(kind: str, seed: int, count: int) -> str:
    """Run in a process of its own; AssertionError with what went wrong, else a line of results."""
    return run_child(__file__, kind, seed, count)


def parser() -> ArgumentParser:
    return kinds_parser("verify", "Mutated stores and what `fsbridge verify` says.", KINDS, 500)


if __name__ == "__main__":
    fuzz_kinds(parser(), KINDS, fuzz, child)
