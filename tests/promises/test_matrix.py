"""P12 as a matrix: every source format in every layout, as every kind of file that the layout has, by independent readers.

The rows and columns are the tables of formats, layouts and file types themselves: a new one fails here until it has a sample
or a reader. What a cell cannot have is listed. The trees are read without FUSE; mounts have tests of their own.
"""

from __future__ import annotations

import itertools
import json
import re
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import codec_writers
import google_crc32c
import h5py
import mrcfile
import netCDF4
import nibabel
import numpy as np
import pytest
import SimpleITK
import tifffile
from promised_views import N5, VIEWS, ZARR2, ZARR3, View, each
from readers import assert_same
from samples import SAMPLES, Sample
from tree_walker import content, written

from fsbridge.codecs import table
from fsbridge.config import Config
from fsbridge.errors import FsbridgeError, NotFound, Unsupported
from fsbridge.formats.records import NAMES
from fsbridge.formats.registry import FORMATS
from fsbridge.formats.zarr3.codecs import SERIALIZERS
from fsbridge.layouts import LAYOUTS
from fsbridge.layouts.files.arrays.names import SLICES
from fsbridge.layouts.files.filetypes import ALIASES, FILE_TYPES, SUFFIXES
from fsbridge.mount.lifecycle import Tree, open_tree
from fsbridge.tree import AnyNode

Arrays = Mapping[str, Any]


@pytest.fixture(scope="module")
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return SAMPLES[request.param](tmp_path_factory.mktemp("sample"))


@pytest.fixture
def opened(sample: Sample) -> Iterator[Callable[[str], Tree]]:
    trees: list[Tree] = []

    def opener(layout: str) -> Tree:
        trees.append(open_tree(Config(source=str(sample.source), mountpoint="/nowhere", layout=layout, files=("npy",))))
        return trees[-1]

    yield opener
    for tree in trees:
        tree.close()


each_format = pytest.mark.parametrize("sample", SAMPLES, indirect=True)


def find(tree: Tree, path: str) -> AnyNode:
    node: Any = tree.root
    for name in path.split("/"):
        node = node.lookup(name.encode())
    found: AnyNode = node
    return found


def test_every_format_layout_and_file_type_is_in_the_matrix() -> None:
    assert {name.partition("/")[0] for name in SAMPLES} == set(NAMES) - {"auto"}, "give the format a sample"
    assert {view.layout for view in VIEWS} == set(LAYOUTS), "give the layout a view"
    assert set(READERS) == set(FILE_TYPES), "give the file type a reader"
    assert set(SUFFIXES) == {*READERS, *ALIASES, "json"}


def _first_fastest(tree: Tree) -> bool:
    return tree.format in FORMATS and FORMATS[tree.format].format.first_axis_fastest


def elements(values: Any) -> Any:
    """Convert to an array; texts are objects."""
    return np.asarray(values, object) if isinstance(values, str) else np.asarray(values)


# The layouts that are hierarchies themselves.


@each_format
@each((ZARR3, ZARR2, N5))
def test_p12_each_layout_of_each_format(view: View, sample: Sample, opened: Callable[[str], Tree], tmp_path: Path) -> None:
    tree, compared = opened(view.layout), 0
    for number, (path, values) in enumerate(sample.arrays.items()):
        try:
            node: Any = find(tree, path)
        except FsbridgeError as error:
            reason, kind = str(error), np.asarray(values).dtype.kind
            assert (view is N5 and kind in "OUV") or (view is not ZARR3 and "of several shapes" in reason), reason
            continue
        own, turned = np.asarray(values), view.turned and not _first_fastest(tree)
        assert_same(view.read(written(node, tmp_path / str(number))), own.T if turned else own)
        compared += 1
    assert compared >= 2


# The layout `files`: a reader gets the folder of all files of one array, its name and its elements, x last in pictures.


def _npy(folder: Path, name: str, own: Any, picture: Any) -> None:
    assert_same(np.load(folder / f"{name}.npy"), own)


def _raw(folder: Path, name: str, own: Any, picture: Any) -> None:
    told = json.loads((folder / f"{name}.json").read_text())
    data = (folder / f"{name}.raw").read_bytes()
    dtype = [tuple(field) for field in told["dtype"]] if isinstance(told["dtype"], list) else told["dtype"]
    assert_same(np.frombuffer(data, dtype).reshape(told["shape"], order=told["order"]), own)


def _itk(suffix: str) -> Callable[[Path, str, Any, Any], None]:
    def read(folder: Path, name: str, own: Any, picture: Any) -> None:
        assert_same(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(folder / f"{name}.{suffix}"))), picture)

    return read


def _nii(folder: Path, name: str, own: Any, picture: Any) -> None:
    assert_same(np.asarray(nibabel.Nifti1Image.from_filename(folder / f"{name}.nii").dataobj), picture.T)


def _mrc(folder: Path, name: str, own: Any, picture: Any) -> None:
    found = mrcfile.read(folder / f"{name}.mrc")
    assert_same(found.reshape(picture.shape), picture if picture.dtype != "u1" else picture.astype("u2"))


def _tiff(suffix: str) -> Callable[[Path, str, Any, Any], None]:
    def read(folder: Path, name: str, own: Any, picture: Any) -> None:
        assert_same(tifffile.imread(folder / f"{name}.{suffix}"), picture)

    return read


def _narrow(folder: Path, name: str, own: Any, picture: Any) -> None:
    assert_same(tifffile.imread(folder / f"{name}.u32.tif"), picture.astype("u4"))


def _h5(folder: Path, name: str, own: Any, picture: Any) -> None:
    told = json.loads((folder / f"{name}.json").read_text())["h5"]
    with h5py.File(folder / f"{name}.h5") as file:
        _same_dataset(file[told["dataset"]], own.T if told["axes"] == "reversed" else own)


def _nc(folder: Path, name: str, own: Any, picture: Any) -> None:
    told = json.loads((folder / f"{name}.json").read_text())["h5"]
    with netCDF4.Dataset(folder / f"{name}.nc") as file:
        _same_variable(file, told["dataset"], own.T if told["axes"] == "reversed" else own)


def _same_variable(file: Any, path: str, values: Any) -> None:
    file.set_auto_maskandscale(False)
    variable = file[path.strip("/")]
    seen = variable[...].view(bool) if "dtype" in variable.ncattrs() else variable[...]
    for field in values.dtype.names or ():
        assert [np.asarray(item).tobytes() for item in seen[field]] == [item.tobytes() for item in values[field]]
    if values.dtype.names is None:
        assert_same(seen, values)


def _same_dataset(dataset: Any, values: Any) -> None:
    texts = h5py.check_string_dtype(dataset.dtype)
    assert_same(dataset[...] if texts is None else np.asarray(dataset.asstr()[...], object), values)


def _same_member(file: Any, path: str, values: Any) -> None:
    _same_dataset(file[path], values)


def _envi(folder: Path, name: str, own: Any, picture: Any) -> None:
    lines = (folder / f"{name}.envi.hdr").read_text().splitlines()
    told = dict(line.split(" = ", 1) for line in lines if " = " in line)
    kinds = {"1": "u1", "2": "i2", "3": "i4", "4": "f4", "5": "f8", "12": "u2", "15": "u8"}
    dtype = np.dtype("<>"[int(told["byte order"])] + kinds[told["data type"]])
    shape = [int(told[part]) for part in ("bands", "lines", "samples")]
    data = (folder / f"{name}.envi").read_bytes()
    assert_same(np.frombuffer(data, dtype).reshape(shape).reshape(picture.shape), picture)


def _pgm(folder: Path, name: str, own: Any, picture: Any) -> None:
    magic, size, most, data = (folder / f"{name}.pgm").read_bytes().split(b"\n", 3)
    assert (magic, most) == (b"P5", b"255")
    width, height = map(int, size.split())
    assert_same(np.frombuffer(data, "u1").reshape(height, width), picture)


def _csv(folder: Path, name: str, own: Any, picture: Any) -> None:
    assert_same(np.loadtxt(folder / f"{name}.csv", delimiter=",", dtype=own.dtype, ndmin=own.ndim, skiprows=1), own)


def _txt(folder: Path, name: str, own: Any, picture: Any) -> None:
    assert (folder / f"{name}.txt").read_text().split("\n")[:-1] == np.atleast_1d(own).tolist()


def _preview(folder: Path, name: str, own: Any, picture: Any) -> None:
    """It is a picture of its shape; what it shows is compared in `layouts/files/looks/test_previews.py`."""
    height, width = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(folder / f"{name}.preview.png"))).shape[:2]
    if picture.ndim > 1:
        assert width / height == pytest.approx(picture.shape[-1] / picture.shape[-2], rel=0.05)


def _curve(folder: Path, name: str, own: Any, picture: Any) -> None:
    assert ElementTree.parse(folder / f"{name}.preview.svg").getroot().tag.endswith("svg")


READERS: Mapping[str, Callable[[Path, str, Any, Any], None]] = {
    "npy": _npy,
    "raw": _raw,
    "raw.nhdr": _itk("raw.nhdr"),
    "nrrd": _itk("nrrd"),
    "raw.mhd": _itk("raw.mhd"),
    "mha": _itk("mha"),
    "nii": _nii,
    "mrc": _mrc,
    "tif": _tiff("tif"),
    "ome.tif": _tiff("ome.tif"),
    "u32.tif": _narrow,
    "h5": _h5,
    "nc": _nc,
    "envi": _envi,
    "envi.hdr": _envi,
    "pgm": _pgm,
    "png": _itk("png"),
    "csv": _csv,
    "txt": _txt,
    "preview.png": _preview,
    "preview.svg": _curve,
}


TWO_DIMENSIONS = {"raw.nhdr", "nrrd", "raw.mhd", "mha"}
"""File types that SimpleITK reads, but not of one dimension."""


@each_format
@pytest.mark.filterwarnings("ignore:Setting the dtype on a NumPy array:DeprecationWarning")  # mrcfile 1.5.4, numpy 2.5
def test_p12_each_file_type_of_each_format(sample: Sample, opened: Callable[[str], Tree], tmp_path: Path) -> None:
    """All files that `NAME.json` names are there and say the same; all others are absent; none is without a comparison."""
    tree, compared = opened("files"), set[str]()
    for path, values in sample.arrays.items():
        place, _, name = path.rpartition("/")
        directory: Any = find(tree, place)
        folder = tmp_path / place
        folder.mkdir(parents=True, exist_ok=True)
        told = json.loads(content(directory.lookup(f"{name}.json".encode())))
        (folder / f"{name}.json").write_text(json.dumps(told))
        for suffix in FILE_TYPES:
            if suffix not in told["files"]:
                with pytest.raises(NotFound):
                    content(directory.lookup(f"{name}.{suffix}".encode()))
                continue
            (folder / f"{name}.{suffix}").write_bytes(content(directory.lookup(f"{name}.{suffix}".encode()), 1 << 20))
        own = elements(values)
        for suffix in told["files"]:
            if (own.ndim < 2 and suffix in TWO_DIMENSIONS) or (own.dtype == object and suffix == "csv"):
                continue  # another array of the sample is compared
            READERS[suffix](folder, name, own, own.T if _first_fastest(tree) else own)
            compared.add(suffix)
    assert compared == set(FILE_TYPES) - sample.lacks


@each_format
def test_p12_groups_and_stores_as_hdf5_of_each_format(sample: Sample, opened: Callable[[str], Tree], tmp_path: Path) -> None:
    """`<store>.h5` and `<store>.nc` hold everything."""
    tree = opened("files")
    stems = {sample.group: sample.group} | ({"": sample.source.name.partition(".")[0]} if sample.whole else {})
    for prefix, stem in stems.items():
        below = [path for path in sample.arrays if path.startswith(prefix)]
        assert below
        for suffix, opener, same in (("h5", h5py.File, _same_member), ("nc", netCDF4.Dataset, _same_variable)):
            file = tmp_path / f"all.{suffix}"
            file.write_bytes(content(find(tree, f"{stem}.{suffix}"), 1 << 20))
            with opener(file) as found:
                for path in below:
                    own = elements(sample.arrays[path])
                    same(found, path.removeprefix(prefix).lstrip("/"), own.T if _first_fastest(tree) else own)


@each_format
def test_p12_planes_of_each_format(sample: Sample, opened: Callable[[str], Tree], tmp_path: Path) -> None:
    tree = opened("files")
    path, values = next((path, values) for path, values in sample.arrays.items() if np.ndim(values) == 3)
    own = np.asarray(values).T if _first_fastest(tree) else np.asarray(values)
    for number, plane in enumerate(own):
        (tmp_path / "plane.tif").write_bytes(content(find(tree, f"{path}.{SLICES}/{number:04d}.tif")))
        assert_same(tifffile.imread(tmp_path / "plane.tif"), plane)


# The codecs: each in Zarr v2, in Zarr v3 by each of its names, and in a shard, as its own library writes it.


def _zarr2_document(chunk: codec_writers.Chunk, kind: str) -> dict[str, Any]:
    dtype = "|O" if chunk.values.dtype == object else chunk.values.dtype.str
    edges = list(chunk.values.shape)
    steps = {"filters": None, "compressor": chunk.config} if kind in ("bytes", "array") else {"filters": [chunk.config]}
    grid = {"shape": edges, "chunks": edges, "order": "C", "fill_value": None}
    return {"zarr_format": 2, "dtype": dtype, "compressor": None, **grid, **steps}


def _zarr3_document(chunk: codec_writers.Chunk, kind: str, name: str, sharded: bool) -> dict[str, Any]:
    told = {"name": name, "configuration": {key: value for key, value in chunk.config.items() if key != "id"}}
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    codecs = {"bytes": [little, told], "numbers": [told, little]}.get(kind, [told])
    edges = list(chunk.values.shape)
    if sharded:
        inner = {"chunk_shape": edges, "codecs": codecs, "index_codecs": [little, {"name": "crc32c"}]}
        codecs = [{"name": "sharding_indexed", "configuration": inner}]
    dtype = {"text": "string", "objects": "bytes"}.get(kind, chunk.values.dtype.name)
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": edges,
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": edges}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": {"text": "", "objects": [], "packbits": False}.get(chunk.config["id"] if dtype == "bool" else kind, 0),
        "codecs": codecs,
    }


def _shard(stored: bytes) -> bytes:
    index = struct.pack("<QQ", 0, len(stored))
    return stored + index + struct.pack("<I", google_crc32c.value(index))


Place = tuple[str, str, codec_writers.Chunk]
"""A codec's id, where its array is, and what it holds."""


def _stores(folder: Path, names: list[str]) -> dict[str, list[Place]]:
    """Write a store of each format, with an array for each place that a codec may have."""
    places: dict[str, list[Place]] = {"2": [], "3": []}
    for codec in (*table.NUMCODECS, *table.ADDED):
        if codec.name not in names:
            continue
        chunk = codec_writers.chunk(codec.name)
        _put(folder / "2" / codec.name, ".zarray", _zarr2_document(chunk, codec.kind), ["0"], chunk.stored, ".")
        places["2"].append((codec.name, codec.name, chunk))
        in_zarr3 = {one.removeprefix(table.PREFIX) for one in SERIALIZERS} if codec.kind in ("text", "objects") else None
        if in_zarr3 is not None and codec.name not in in_zarr3:
            continue
        for name, sharded in itertools.product((name for name, one in table.ZARR3.items() if one is codec), (False, True)):
            path = f"{name}.sharded" if sharded else name
            document = _zarr3_document(chunk, codec.kind, name, sharded)
            _put(
                folder / "3" / path,
                "zarr.json",
                document,
                ["c", "0"],
                _shard(chunk.stored) if sharded else chunk.stored,
                "/",
            )
            places["3"].append((codec.name, path, chunk))
    return places


def _put(folder: Path, name: str, document: dict[str, Any], start: list[str], stored: bytes, separator: str) -> None:
    folder.mkdir(parents=True)
    (folder / name).write_text(json.dumps(document))
    key = folder / separator.join([*start, *["0"] * (len(document["shape"]) - 1)])
    key.parent.mkdir(parents=True, exist_ok=True)
    key.write_bytes(stored)


def _chunk_file(tree: Tree, path: str, chunk: codec_writers.Chunk) -> bytes:
    return content(find(tree, "/".join([path, "c", *["0"] * chunk.values.ndim])), 1 << 20)


@pytest.fixture(scope="module")
def codec_stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[Place]]]:
    folder = tmp_path_factory.mktemp("codecs")
    return folder, _stores(folder, codec_writers.names())


def test_every_codec_with_an_id_is_in_the_matrix() -> None:
    ids = {codec.name for codec in (*table.NUMCODECS, *table.ADDED)}
    assert ids == {*codec_writers.names(), *(f"imagecodecs_{name}" for name in codec_writers.READ_ONLY)}, (
        "give the codec a writer"
    )


@pytest.mark.parametrize("version", ["2", "3"])
def test_p12_each_codec_in_each_version_of_zarr(version: str, codec_stores: tuple[Path, dict[str, list[Place]]]) -> None:
    """The chunk file has the bytes that the codec's own library makes of the stored chunk."""
    folder, places = codec_stores
    tree = open_tree(Config(source=str(folder / version), mountpoint="/nowhere"))
    try:
        wrong = [path for _, path, chunk in places[version] if _chunk_file(tree, path, chunk) != chunk.decoded]
    finally:
        tree.close()
    assert wrong == []
    assert len(places[version]) > 60


@pytest.mark.parametrize("version", ["2", "3"])
def test_each_codec_without_its_library_is_refused_by_its_sentence(
    version: str, codec_stores: tuple[Path, dict[str, list[Place]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The array is shown. Its chunk cannot be read, and the error names the codec once, and the command that installs it."""
    for library in filter(None, (codec.library for codec in table.CONFINED.values())):
        monkeypatch.setitem(sys.modules, library.module, None)  # as Python notes that an import fails
    folder, places = codec_stores
    tree, refused = open_tree(Config(source=str(folder / version), mountpoint="/nowhere")), 0
    try:
        for name, path, chunk in places[version]:
            if (codec := table.CONFINED.get(name)) is not None and codec.library is not None:
                assert json.loads(content(find(tree, f"{path}/zarr.json")))["shape"] == list(chunk.values.shape)
                with pytest.raises(Unsupported) as caught:
                    _chunk_file(tree, path, chunk)
                assert re.findall(r"codec .*", str(caught.value)) == [
                    f"codec {name!r} needs a library that is not installed: {codec.library.install}"
                ]
                refused += 1
    finally:
        tree.close()
    assert refused > 50
