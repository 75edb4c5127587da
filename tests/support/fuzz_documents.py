"""Mutated metadata documents: what does not need the document must read as zarr-python reads it from the whole store.

    python tests/support/fuzz_documents.py [--count N] [--seed S] [--kind NAME ...]

Bytes are changed at random, or one value of the JSON is replaced by another one that a writer might leave there. Every
array but the document's own is compared, in all layouts; an exception that is not fsbridge's own fails the run, and leaves
the store for the corpus.
"""

from __future__ import annotations

import io
import json
import random
import shutil
import tempfile
import time
import traceback
import warnings
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from fuzz_codecs import mutate
from fuzz_kinds import fuzz_kinds, kinds_parser
from n5_arrays import write_n5
from small_stores import files

from fsbridge.config import Config
from fsbridge.mount.lifecycle import open_tree

AXES = [{"name": name, "type": "space", "unit": "micrometer"} for name in "yx"]
SCALE = [{"type": "scale", "scale": [0.5, 0.25]}]
LEVELS = [{"path": name, "coordinateTransformations": SCALE} for name in ("0", "1")]
MULTISCALES = [{"version": "0.4", "name": "m", "axes": AXES, "datasets": LEVELS}]
PLATE = {
    "version": "0.4",
    "name": "p",
    "rows": [{"name": "A"}],
    "columns": [{"name": "1"}],
    "wells": [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}],
}
GROUPS: Mapping[str, dict[str, Any]] = {
    "": {"title": "ü", "plate": PLATE, "conventions": "CF-1.8"},
    "A": {},
    "A/1": {"well": {"version": "0.4", "images": [{"path": "i"}]}},
    "A/1/i": {
        "multiscales": MULTISCALES,
        "omero": {"channels": [{"label": "a", "color": "FF0000", "window": {"start": 0}}]},
    },
    "g": {
        "neurodata_type": "TimeSeries",
        "column-order": ["x", "y"],
        "_index": "x",
        "resolution": [1.5, 2],
        "units": ["nm", "s"],
    },
    "g/h": {"axes": ["y", "x"], "pixelResolution": {"dimensions": [2, 3], "unit": "nm"}, "maxId": 9},
}
IMAGE = np.arange(12, dtype="u1").reshape(3, 4)
ARRAYS: Mapping[str, tuple[Any, dict[str, Any]]] = {
    "A/1/i/0": (IMAGE, {"_FillValue": 3, "maxId": 11}),
    "A/1/i/1": (IMAGE, {"actual_range": [0, 9]}),
    "g/x": (np.linspace(1, 9, 9), {"units": "degrees_east", "_FillValue": -1.0, "standard_name": "longitude"}),
    "g/y": (
        np.arange(9, dtype="<i2"),
        {"scale_factor": 0.5, "add_offset": 3, "missing_value": [1, 2], "valid_range": [0, 8]},
    ),
    "g/data": (
        IMAGE.astype("<f4"),
        {"conversion": 2.0, "unit": "V", "grid_mapping": "crs", "_ARRAY_DIMENSIONS": ["y", "x"]},
    ),
    "g/crs": (
        np.array(0, "<i4"),
        {"grid_mapping_name": "latitude_longitude", "semi_major_axis": 6e6, "crs_wkt": "GEOGCS[]"},
    ),
    "g/h/s0": (IMAGE.astype("<u8"), {"downsamplingFactors": [1, 2], "offset": [0, 1], "transform": {"axes": ["y", "x"]}}),
}

ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 7, 7.0, 1.5, 2**63, 2**64, 10**400, -(10**400), 1e308, 5e-324, float("nan"), float("inf")),
    *("", "a", "nan", "-inf", "\x01", "\ud800", "\ufffe", "ü" * 300, "../..", "/", ".", "float64", "degrees_north"),
    *([], [[]], [None], [0], [1, 2], ["y", "x"], {}, {"name": "a"}, {"a": {"b": [1]}}, [10**400] * 2),
)
"""Values that take the place of others."""

LAYOUTS = "zarr3,zarr2,n5,files"
ALL = ("npy", "raw", "nrrd", "mha", "nii", "mrc", "tif", "ome.tif", "envi", "csv", "preview", "html")
DOCUMENTS = ("zarr.json", ".zgroup", ".zattrs", ".zarray", ".zmetadata", "attributes.json")
SLOW = 120.0
"""Seconds that one store may take, on a loaded machine."""


def _zarr(zarr_format: Any) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, attributes in GROUPS.items():
                zarr.create_group(path / name, zarr_format=zarr_format, attributes=attributes)
            for name, (values, attributes) in ARRAYS.items():
                options: Any = {"zarr_format": zarr_format, "attributes": attributes}
                chunks = tuple(max(1, n - 1) for n in values.shape)
                zarr.create_array(path / name, shape=values.shape, chunks=chunks, dtype=values.dtype, **options)[...] = (
                    values
                )
            zarr.consolidate_metadata(path)

    return make


def n5_tree(path: Path, groups: Mapping[str, Any], arrays: Mapping[str, tuple[Any, dict[str, Any]]]) -> None:
    """Write groups with their attributes, and those of the arrays that have dimensions."""
    for name, attributes in groups.items():
        (path / name).mkdir(parents=True, exist_ok=True)
        (path / name / "attributes.json").write_text(json.dumps({**attributes, **({} if name else {"n5": "4.0.0"})}))
    for name, (values, attributes) in arrays.items():
        if values.ndim:
            write_n5(path / name, values, [max(1, n - 1) for n in values.shape], "raw")
            document = path / name / "attributes.json"
            document.write_text(json.dumps({**json.loads(document.read_text()), **attributes}))


def _hdmf(path: Path) -> None:
    """With links in groups, to an array, to themselves and to nothing; the root says which file they belong to."""
    _zarr(2)(path)
    links = [{"name": name, "path": target, "source": "."} for name, target in LINKS.items()]
    groups: dict[str, dict[str, Any]] = {
        "": {".specloc": "specifications"},
        "g": {"zarr_link": links},
        "A/1": {"zarr_link": links},
    }
    for group, more in groups.items():
        document = path / group / ".zattrs"
        document.write_text(json.dumps({**json.loads(document.read_text()), **more}))


LINKS = {"linked": "/g/y", "itself": "/g/itself", "gone": "/nothing", "over": "/g/linked"}

KINDS: Mapping[str, Callable[[Path], None]] = {
    "zarr3": _zarr(3),
    "zarr2": _zarr(2),
    "n5": lambda path: n5_tree(path, GROUPS, ARRAYS),
    "hdmf": _hdmf,
}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a JSON value: its container, and its index or name there."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def harmed(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """A document with changed bytes, or, more often, with a changed value."""
    if rng.random() < 0.3:
        return mutate(rng, data, others)
    document = json.loads(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        holder, key = rng.choice(list(places({"all": document})))
        if isinstance(holder, dict) and len(holder) > 1 and rng.random() < 0.2:
            del holder[key]
        else:
            holder[key] = deepcopy(rng.choice(ODD))
        document = holder[key] if key == "all" else document
    return json.dumps(document).encode()


def walk(source: Path, kinds: tuple[str, ...]) -> dict[str, Any]:
    tree = open_tree(Config(source=str(source), mountpoint="/nowhere", layout=LAYOUTS, files=kinds, cache_size=32 << 20))
    try:
        return {path.decode("utf-8", "surrogateescape").lstrip("/"): content for path, content in files(tree.root)}
    finally:
        tree.close()


def elements(tree: Mapping[str, Any], lost: str) -> dict[str, bytes]:
    """What shows elements, and the documents of Zarr, of all arrays but the `lost` one.

    A group may name an array's dimensions (OME-Zarr), so those are left out of the documents.
    """
    found = {}
    for path, content in tree.items():
        layout, _, inner = path.partition("/")
        array = next((name for name in ARRAYS if inner.startswith((f"{name}/", f"{name}."))), None)
        if array is None or array == lost:
            continue
        if layout == "files" and inner.rpartition(".")[2] not in ("npy", "raw"):
            continue
        if layout != "n5" or not inner.endswith("attributes.json"):
            found[path] = without_names(content) if inner.endswith((".json", ".zattrs")) else content
    return found


def without_names(content: Any) -> Any:
    if not isinstance(content, bytes):
        return content
    document = json.loads(content)
    return {name: value for name, value in document.items() if name not in ("dimension_names", "_ARRAY_DIMENSIONS")}


def is_array(after: Mapping[str, Any], place: str) -> bool:
    """True if a group's document has become an array's that can be read: what is below belongs to that."""
    document = after.get(f"zarr3/{place}/zarr.json".replace("/./", "/"))
    return isinstance(document, bytes) and json.loads(document)["node_type"] == "array"


def run(kind: str, seed: int, count: int) -> str:
    """Damage documents of a store of that kind, one at a time; SystemExit with what went wrong, else a line of results."""
    rng = random.Random(f"{kind}/{seed}")
    folder = Path(tempfile.mkdtemp(prefix=f"fsbridge-documents-{kind}-"))
    whole = folder / "whole"
    KINDS[kind](whole)
    before = walk(whole, ALL)
    compared = {name: value for name, (value, _) in ARRAYS.items() if f"files/{name}.npy" in before}
    for name, values in compared.items():
        other = values if kind == "n5" else zarr.open_array(whole / name, mode="r")[...]
        np.testing.assert_array_equal(np.load(io.BytesIO(before[f"files/{name}.npy"])), other)
    documents = [file.relative_to(whole) for file in sorted(whole.rglob("*")) if file.name in DOCUMENTS]
    others = [(whole / document).read_bytes() for document in documents]
    slowest = 0.0
    for number in range(count):
        damaged, document = folder / f"{number}.store", rng.choice(documents)
        shutil.copytree(whole, damaged)
        (damaged / document).write_bytes(harmed(rng, (whole / document).read_bytes(), others))
        lost = str(document.parent) if str(document.parent) in ARRAYS else ""
        begin = time.monotonic()
        try:
            kinds = ALL if number % 2 else ("npy", "raw")
            after = walk(damaged, kinds)
            if lost or not is_array(after, str(document.parent)):
                shown = elements(after, lost)
                for path, data in elements(before, lost).items():
                    assert shown.get(path) == data, f"{path}: {after.get(path)!r}"
        except BaseException:
            traceback.print_exc()
            raise SystemExit(f"fuzz: {kind} seed {seed} number {number}: {damaged / document} is kept") from None
        slowest = max(slowest, time.monotonic() - begin)
        assert slowest < SLOW, f"{kind} seed {seed} number {number} took {slowest:.0f} s"
        shutil.rmtree(damaged)
    shutil.rmtree(folder)
    return f"{kind:30} {count} documents: all that does not need them is as before, slowest {slowest:.2f} s"


def parser() -> ArgumentParser:
    return kinds_parser("documents", "Mutated metadata documents.", KINDS, 300)


if __name__ == "__main__":
    fuzz_kinds(parser(), KINDS, run)
