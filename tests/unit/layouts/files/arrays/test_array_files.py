"""Sizes that a listing tells without looking at chunks: each is that of the file. Not here: what listings cost and hide."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import pytest
import zarr
from listed_sizes import ALL_FORMATS, check_sizes, dataset, dated

from fsbridge.config import Config
from fsbridge.errors import FsbridgeError
from fsbridge.mount.lifecycle import Tree, open_tree

TYPES = [
    *(f"{kind}{bits}" for kind in ("uint", "int") for bits in (8, 16, 32, 64)),
    "float32",
    "float64",
    "string",
    "object",
]
"""N5's."""

SHAPES: list[list[int]] = [[], [7], [0, 4], [5, 4, 3], [2, 2, 2, 2, 3], [2**21, 2**21, 2**19]]


def write_block(path: Path, rank: int, varlength: bool = False) -> None:
    """A block of one element each way, at the beginning of the grid."""
    file = path.joinpath(*["0"] * rank)
    file.parent.mkdir(parents=True, exist_ok=True)
    sizes = b"".join((1).to_bytes(4, "big") for _ in range(rank))
    head = bytes((0, varlength)) + rank.to_bytes(2, "big") + sizes + (2).to_bytes(4, "big") * varlength
    file.write_bytes(head + bytes(16 * (1 + varlength)))
    dated(path)


FORMATS = {
    "npy": ("npy",),
    "pictures": ("raw", "nrrd", "raw.nhdr", "mha", "raw.mhd", "nii", "mrc", "tif", "ome.tif", "envi", "pgm", "png"),
    "tables": ("npy", "csv"),
    "all": ALL_FORMATS,
}


AROUND: dict[str, dict[str, Any]] = {
    "bare": {},
    "spacing": {"resolution": [4.0, 4.0, 40.0], "units": ["nm"] * 3, "made by": "a microscope"},
    "levels": {"resolution": [4.0, 4.0, 40.0], "scales": [[1, 1, 1], [2, 2, 1]]},
}


@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("around", AROUND)
def test_p2_each_listed_size_is_that_of_the_file(formats: str, around: str, tmp_path: Path) -> None:
    """All types and ranks, several arrays of each, some of them with blocks, neighbours and names that are no plain ones."""
    root = tmp_path / "s.n5"
    root.mkdir()
    (root / "attributes.json").write_text(json.dumps({"n5": "2.5.0", **AROUND[around]}))
    for kind in TYPES if around == "bare" else TYPES[::3]:
        for shape in SHAPES if kind in (*TYPES[::3], "int16") else SHAPES[3:4]:
            for number in range(3):
                path = dataset(root / f"{kind}x{len(shape)}x{math.prod(shape)}-{'long' * number}", kind, shape)
                if number == 1 and shape and kind == "int16":
                    write_block(path, len(shape))
                if number == 2 and shape and kind == "uint64":
                    write_block(path, len(shape), varlength=True)
    for name in ("a", "b", "LIST", "with space", "\u00b5m", "c.npy", "c", "d[0]", "d", "100%"):
        dataset(root / name, "uint8", [4, 4, 4], {"of": "a microscope"})
    for level in range(3):
        dataset(root / f"s{level}", "uint8", [4, 4, 4])
    (root / "group").mkdir()
    (root / "link").symlink_to("a")
    os.mkfifo(root / "fifo")
    assert len(check_sizes(root, FORMATS[formats])) > 80


def write_zarr2_arrays(root: Path, form: dict[str, Any], attributes: Any, count: int = 3) -> None:
    """Arrays alike, the first without chunks; then with one, in a directory and in none, at other times."""
    for number in range(count):
        path = root / ("a" * (number + 1) + str(len(os.listdir(root))))
        path.mkdir()
        shape = form["shape"]
        document = {"zarr_format": 2, "chunks": [4] * len(shape), "order": "C", "filters": None, "compressor": None, **form}
        (path / ".zarray").write_text(json.dumps({"fill_value": 0, **document}))
        if attributes is not None:
            (path / ".zattrs").write_text(json.dumps(attributes))
        if number and shape:
            (path / ("/" * (number - 1) or ".").join("0" * len(shape))).parent.mkdir(exist_ok=True, parents=True)
            (path / ("/" * (number - 1) or ".").join("0" * len(shape))).write_bytes(bytes(512))
        for time, member in enumerate((path / ".zattrs", path, path / ".zarray")):
            if member.exists():
                os.utime(member, (10**9 + (time + number) % 3, 10**9))


@pytest.mark.parametrize("formats", FORMATS)
def test_p2_each_listed_size_is_that_of_the_file_of_a_zarr_v2_array(formats: str, tmp_path: Path) -> None:
    """Attributes in a document of their own, large ones, separators named or not, codecs and types that are not known."""
    root = tmp_path / "s.zarr"
    root.mkdir()
    (root / ".zgroup").write_text('{"zarr_format": 2}')
    forms: list[dict[str, Any]] = [
        *({"shape": [8, 8, 8], "dtype": "<u2", "dimension_separator": separator} for separator in ("/", ".", None)),
        *({"shape": shape, "dtype": ">f4"} for shape in ([], [9], [5, 7])),
        {"shape": [5, 7], "dtype": "<i2", "order": "F"},
        {"shape": [5], "dtype": "|O", "filters": [{"id": "vlen-utf8"}]},
        {"shape": [5], "dtype": "|O"},
        {"shape": [5], "dtype": "<u2", "compressor": {"id": "unknown"}},
        {"shape": [5], "dtype": [["a", "<u2"], ["b", "<f8"]]},
    ]
    for form in forms:
        for attributes in (
            None,
            {},
            {"unit": "nm"},
            {"_ARRAY_DIMENSIONS": ["t"] * len(form["shape"])},
            {"long": "x" * 1500},
        ):
            write_zarr2_arrays(root, form, attributes)
    like = json.dumps(
        {"zarr_format": 2, "chunks": [4], "fill_value": 0, "compressor": None, "order": "C", "filters": None} | forms[4]
    )
    for name, broken in (("z1", "{"), ("z2", "[]"), ("z3", '{"a": 1, "a": 2}')):
        (root / name).mkdir()
        (root / name / ".zarray").write_text(like)
        (root / name / ".zattrs").write_text(broken)
    (root / "z4/.zattrs").mkdir(parents=True)
    (root / "z4/.zarray").write_text(like)
    (root / "z5/.zattrs").mkdir(parents=True)
    assert len(check_sizes(root, FORMATS[formats])) > 250


@pytest.mark.parametrize("formats", FORMATS)
def test_p2_each_listed_size_is_that_of_the_file_of_a_zarr_v3_array(formats: str, tmp_path: Path) -> None:
    """Chunk directories of each encoding and at other times, large documents, codecs and types that are not known."""
    root = tmp_path / "s.zarr"
    group = zarr.open_group(root, mode="w", zarr_format=3, attributes={"of": "a microscope"})
    options: list[dict[str, Any]] = [
        *({"chunk_key_encoding": {"name": name, "separator": by}} for name in ("default", "v2") for by in "./"),
        *(
            {"shards": (8, 8), "attributes": attributes}
            for attributes in ({}, {"x": "y"}, {"x": "y" * 800}, {"x": "y" * 1500})
        ),
        {"dimension_names": ("t", "x"), "attributes": {"unit": "nm"}},
        {"dtype": "<M8[s]"},
        {"dtype": "str"},
    ]
    for kind, chosen in enumerate(options):
        for number in range(3):
            name = "a" * number + str(kind)
            array = group.create_array(name, **{"shape": (16, 16), "chunks": (4, 4), "dtype": "<u2", **chosen})
            if number and "dtype" not in chosen:
                array[:4] = 1
            for time, member in enumerate((root / name / "c", root / name / "zarr.json", root / name)):
                if member.exists():
                    os.utime(member, (10**9 + (time + number) % 3, 10**9))
    for name in ("not-known-1", "not-known-2"):
        (root / name).mkdir()
        document = json.loads((root / "0/zarr.json").read_text())
        document["codecs"].append({"name": "unknown"})
        (root / name / "zarr.json").write_text(json.dumps(document))
    for name in ("link-1", "link-2"):
        (root / name).mkdir()
        (root / name / "zarr.json").write_bytes((root / "1/zarr.json").read_bytes())
        (root / name / "c").symlink_to("../a1/c")
    (root / "file/c").mkdir(parents=True)
    assert len(check_sizes(root, FORMATS[formats])) > 40


OWN: list[Any] = [
    *({"number": number, "made by": "a microscope"} for number in range(6)),
    *({"resolution": [4.0, 4.0, 40.0 + number], "units": ["nm"] * 3} for number in range(3)),
    {},
    {"axes": ["x", "y", "c"], "offset": [1, 2, 3]},
    {"axes": ["x", "y"]},
    {"pixelResolution": {"unit": "um", "dimensions": [0.5, 0.5, 2]}},
    {"transform": {"axes": ["z", "y", "x"], "units": ["nm"] * 3, "scale": [4, 5, 6], "translate": [0, 0, -1]}},
    {"_ARRAY_DIMENSIONS": ["t", "y", "x"]},
    {"_ARRAY_DIMENSIONS": ["t", ""]},
    {"element_size_um": [1, 2, 3]},
    {"isLabelMultiset": True},
    {"isLabelMultiset": False},
    {"codecs": [1], "dimension_names": 7, "n5": "1.0.0", "native": {"attributes": {}}},
    {"sign": "\u00b5\ua66e", '"attributes": {}': '\n  "axes": []', "zero": -0.0, "one": 1, "yes": True, "none": None},
    {"one": 1.0, "nan": float("nan")},
    {"long": "x" * 600},
    {"long": "x" * 3000},
    None,
    [],
    7,
]
"""Attributes, most of which arrays may have, that are otherwise alike."""


def write_own_attributes(root: Path, form: str) -> list[str]:
    """A store of arrays that differ in their attributes only, and their names."""
    names = [f"a{number}" for number in range(len(OWN))]
    for name, own in zip(names, OWN, strict=True):
        path = root / name
        path.mkdir(parents=True)
        if form == "n5":
            document: dict[str, Any] = {"dimensions": [8, 8, 8], "blockSize": [4, 4, 4], "dataType": "uint16"}
            own = own if isinstance(own, dict) else {"own": own}
            (path / "attributes.json").write_text(json.dumps({**document, "compression": {"type": "raw"}, **own}))
        elif form == "zarr2":
            document = {"zarr_format": 2, "shape": [8] * 3, "chunks": [4] * 3, "dtype": "<u2", "order": "C", "fill_value": 0}
            (path / ".zarray").write_text(json.dumps({**document, "filters": None, "compressor": None}))
            (path / ".zattrs").write_text(json.dumps(own))
        else:
            document = {"zarr_format": 3, "node_type": "array", "shape": [8] * 3, "data_type": "uint16", "fill_value": 0}
            document["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": [4] * 3}}
            document["chunk_key_encoding"] = {"name": "default"}
            document["codecs"] = [{"name": "bytes", "configuration": {"endian": "little"}}]
            (path / "zarr.json").write_text(json.dumps({**document, "attributes": own}))
        dated(path)
    return names


@pytest.mark.parametrize("formats", ["npy", "pictures"])
@pytest.mark.parametrize("form", ["n5", "zarr2", "zarr3"])
def test_p2_listed_sizes_are_those_of_files_where_attributes_differ(form: str, formats: str, tmp_path: Path) -> None:
    write_own_attributes(tmp_path / "s", form)
    assert len(check_sizes(tmp_path / "s", FORMATS[formats])) > 30


EXTENTS: list[Any] = [
    *([n, 8, 8] for n in (8, 9, 7, 1, 0, 4, 5, 2**40, 2**63 - 1, 2**63, 2**70, -1, True, 8.0, "8", None)),
    *([8, 8, n] for n in (3, 13, 0)),
    *([n, n] for n in (8, 11)),
    *([], [8], [9], [8] * 4, [8] * 65, 8, None, "888", {"0": 8}),
]
"""Shapes of otherwise equal arrays, if they are any."""

GRIDS: list[Any] = [[4, 4], [4], [], [0, 4, 4], [4, 5, 3], None, 7]


def write_own_shapes(root: Path, form: str) -> list[str]:
    """A store of arrays that differ in their shapes only, for each of a few shapes of chunks, and their names."""
    names: list[str] = []
    few = [(shape, edges) for edges in GRIDS for shape in ([8] * 3, [9, 8, 8], [0, 8, 8], [8] * 2, [9], [])]
    for shape, edges in [*((shape, [4] * 3) for shape in EXTENTS), *few]:
        some = len(names) % 2 == 0
        names.append(f"a{len(names)}")
        path = root / names[-1]
        path.mkdir(parents=True)
        if form == "n5":
            document: dict[str, Any] = {"dimensions": shape, "blockSize": edges, "dataType": "uint16"}
            more = {"axes": ["x", "y", "c"]} if some else {}
            (path / "attributes.json").write_text(json.dumps({**document, "compression": {"type": "raw"}, **more}))
        elif form == "zarr2":
            document = {"zarr_format": 2, "shape": shape, "chunks": edges, "dtype": "<u2", "order": "F", "fill_value": 1}
            (path / ".zarray").write_text(json.dumps({**document, "filters": None, "compressor": None}))
            if some:
                (path / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": ["t", "y", "x"]}))
        else:
            document = {"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint16", "fill_value": 1}
            kind = {"sharded": "regular"}.get(form, form)
            member = {"regular": "chunk_shape", "rectilinear": "chunk_shapes"}[kind]
            inline = {"kind": "inline"} if kind == "rectilinear" else {}
            cut = [[4, 4, 1], 4, [3, 6]] if kind == "rectilinear" and edges == [4, 4, 4] else edges
            document["chunk_grid"] = {"name": kind, "configuration": {member: cut, **inline}}
            document["chunk_key_encoding"] = {"name": "default"}
            codecs: list[Any] = [{"name": "bytes", "configuration": {"endian": "little"}}]
            inner = {"chunk_shape": [2, 2, 4], "codecs": codecs, "index_codecs": codecs}
            document["codecs"] = [{"name": "sharding_indexed", "configuration": inner}] if form == "sharded" else codecs
            (path / "zarr.json").write_text(json.dumps({**document, "attributes": {"some": some}}))
        dated(path)
    return names


@pytest.mark.parametrize("formats", ["npy", "pictures"])
@pytest.mark.parametrize("form", ["n5", "zarr2", "regular", "sharded", "rectilinear"])
def test_p2_listed_sizes_are_those_of_files_where_shapes_differ(form: str, formats: str, tmp_path: Path) -> None:
    write_own_shapes(tmp_path / "s", form)
    assert len(check_sizes(tmp_path / "s", FORMATS[formats])) > 16


@pytest.mark.parametrize("own", [write_own_attributes, write_own_shapes])
@pytest.mark.parametrize("form", ["n5", "zarr2", "regular", "sharded", "rectilinear"])
def test_arrays_of_one_kind_are_what_each_is_alone(form: str, own: Callable[..., list[str]], tmp_path: Path) -> None:
    """The common part of documents that differ in attributes and shapes is parsed once."""

    def tell_all(tree: Tree, name: str) -> list[Any]:
        """All that is told of an array; of one that cannot be read, why."""
        try:
            found = cast(Any, tree.root.lookup(f"{name}.json".encode()))
        except FsbridgeError as error:
            return [str(error)]
        metadata = found.array.metadata
        plain = {field.name: repr(getattr(metadata, field.name)) for field in fields(metadata)}
        chunks = found.array.array.chunks
        plain["cut"] = repr([metadata.grid.counts, chunks.files.grid])
        lazily = {name: repr(dict(getattr(metadata, name))) for name in ("attributes", "native")}
        return [bytes(found.open().read(0, found.attrs().size)), {**plain, **lazily}]

    names = own(tmp_path / "s", form)
    config = Config(source=str(tmp_path / "s"), mountpoint="/nowhere", layout="files", files=("npy",))
    expected = {}
    for name in names:
        alone = open_tree(config)
        expected[name] = tell_all(alone, name)
        alone.close()
    together = open_tree(config)
    for name in (*names, *reversed(names)):
        assert tell_all(together, name) == expected[name], name
    together.close()
