"""Zarr v3 sources through real mounts: zarr-python and TensorStore read there what they read from the source (P12)."""

from __future__ import annotations

import errno
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import readers
import tensorstore as ts
import zarr
from mounting import MountFunction
from paths import DATA
from zarr.codecs import BytesCodec, GzipCodec, ShardingCodec, ZstdCodec
from zarr3_documents import (
    FLOAT8,
    GOOD,
    NUMBERS,
    SHAPE,
    STRUCT,
    array_document,
    create_tensorstore,
    index,
    int16,
    sharded,
    values,
    write,
)

pytestmark = pytest.mark.filterwarnings("ignore:::zarr", "ignore::zarr.errors.UnstableSpecificationWarning")

LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {"chunks": (4, 3)},
    "fortran": {"chunks": (4, 3), "order": "F", "compressors": [GzipCodec()]},
    "shards": {"chunks": (2, 3), "shards": (4, 6)},
    "dots": {"chunks": (4, 3), "chunk_key_encoding": {"name": "v2", "separator": "."}},
    "big": {"chunks": (4, 3), "serializer": BytesCodec(endian="big"), "compressors": []},
}
OTHERS = ("M8[ns]", "S3", "U4")


def core(path: Path) -> Path:
    """Every core type in every layout: partly written, with a fill value."""
    group = zarr.create_group(path, attributes={"title": "tëst", "nan": float("nan")})
    for dtype in NUMBERS:
        for name, options in LAYOUTS.items():
            below = group.require_group(name)
            data = values(np.dtype(dtype))
            array = below.create_array(dtype, shape=SHAPE, dtype=dtype, fill_value=1, dimension_names=["y", "x"], **options)
            array[:8, :6] = data[:8, :6]
    inner = ShardingCodec(chunk_shape=(2, 1), codecs=[BytesCodec(), ZstdCodec()])
    outer = ShardingCodec(chunk_shape=(4, 3), codecs=[inner])
    array = group.create_array(
        "nested", shape=SHAPE, chunks=(4, 6), dtype="i4", serializer=outer, compressors=[], filters=[]
    )
    array[3:] = values(np.dtype("i4"))[3:]
    return path


def same(mounted: dict[str, readers.Member], source: dict[str, readers.Member]) -> None:
    assert mounted.keys() == source.keys()
    for name, expected in source.items():
        found = mounted[name]
        if expected.values is None:
            assert found.values is None, name
        elif expected.values.dtype.kind in "OT":
            assert found.values.tolist() == expected.values.tolist(), name
        else:
            assert found.values.dtype.newbyteorder("=") == expected.values.dtype.newbyteorder("="), name
            np.testing.assert_array_equal(found.values, expected.values, err_msg=name)
            assert found.dimension_names == expected.dimension_names


@pytest.fixture(scope="module")
def core_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return core(tmp_path_factory.mktemp("core") / "core.zarr")


@pytest.fixture(scope="module")
def core_by_zarr(core_source: Path) -> dict[str, readers.Member]:
    return readers.read(core_source, "zarr")


@pytest.mark.parametrize("reader", ["zarr", "tensorstore"])
def test_p12_core_types_in_a_directory(
    core_source: Path, core_by_zarr: dict[str, readers.Member], module_mount: MountFunction, reader: str
) -> None:
    mounted = module_mount(core_source)
    same(readers.read(mounted, reader), core_by_zarr if reader == "zarr" else readers.read(core_source, reader))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_p12_core_types_in_an_archive(
    core_source: Path, core_by_zarr: dict[str, readers.Member], tmp_path: Path, mount: MountFunction, method: int
) -> None:
    """Packed with the directory itself on top, as `zip -r core.zarr.zip core.zarr` does."""
    with zipfile.ZipFile(tmp_path / "core.zarr.zip", "w", method) as file:
        for path in sorted(core_source.rglob("*")):
            file.write(path, path.relative_to(core_source.parent))
    same(readers.read(mount(tmp_path / "core.zarr.zip"), "zarr"), core_by_zarr)


def test_p12_types_that_zarr_python_alone_reads(tmp_path: Path, mount: MountFunction) -> None:
    group = zarr.create_group(tmp_path / "s.zarr")
    for dtype in (*OTHERS, STRUCT):
        kind = np.dtype(dtype)
        name = kind.str.strip("<|").replace("[", "_").replace("]", "") if kind.fields is None else "struct"
        array = group.create_array(name, shape=SHAPE, dtype=kind, chunks=(4, 3))
        array[:8, :6] = values(kind)[:8, :6]
    text = group.create_array("text", shape=(5,), dtype=str, chunks=(2,), shards=(4,), fill_value="-")
    text[:3] = np.array(["a", "", "wörld"], dtype=object)
    same(readers.read(mount(tmp_path / "s.zarr"), "zarr"), readers.read(tmp_path / "s.zarr", "zarr"))


def test_p12_shards_of_tensorstore_are_read_through_the_mount(tmp_path: Path, mount: MountFunction) -> None:
    """No group documents, transposes before shards; zarr-python cannot open the source, but the mount."""
    configuration = {
        "chunk_shape": [3, 2],
        "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "zstd"}],
        "index_location": "start",
    }
    codecs = [
        {"name": "transpose", "configuration": {"order": "F"}},
        {"name": "sharding_indexed", "configuration": configuration},
    ]
    source = tmp_path / "deep.zarr"
    for dtype in ("uint16", "float32", "complex64"):
        store = create_tensorstore(source / "g" / dtype, dtype, SHAPE, [4, 6], codecs)
        store[:5, 3:].write(values(np.dtype(dtype))[:5, 3:]).result()
    mounted = mount(source, "--format", "zarr3")
    expected = readers.read(source, "tensorstore")
    found = readers.read(mounted, "tensorstore")
    same({name: member for name, member in found.items() if member.values is not None}, expected)
    through_zarr = readers.read(mounted, "zarr")
    for name, member in expected.items():
        np.testing.assert_array_equal(through_zarr[name].values, member.values)


SMALL = (*("bfloat16", "int2", "int4", "float4_e2m1fn", "float8_e8m0fnu"), *(f"float8_{name}" for name in FLOAT8))


@pytest.mark.parametrize("endian", ["little", "big"])
def test_p12_type_names_of_a_zarr_v3_source_are_passed_on(tmp_path: Path, mount: MountFunction, endian: str) -> None:
    """TensorStore reads from the mount the types that only it knows; zarr-python says of them what it says of the source."""
    source = tmp_path / "names.zarr"
    bytes_codec = {"name": "bytes", "configuration": {"endian": endian}}
    shards = {"chunk_shape": [2], "codecs": [bytes_codec, {"name": "zstd"}]}
    for dtype in SMALL:
        for name, codecs in (
            ("plain", [bytes_codec, {"name": "gzip"}]),
            ("shards", [{"name": "sharding_indexed", "configuration": shards}]),
        ):
            store = create_tensorstore(source / name / dtype, dtype, (7,), [4], codecs, fill_value=1)
            store[:4].write(np.array([0.5, 1, 1, 0.25], "f4").astype(store.dtype.numpy_dtype)).result()
    mounted = mount(source, "--format", "zarr3")
    expected, found = (readers.read(path, "tensorstore") for path in (source, mounted))
    assert not [name for name, member in expected.items() if member.error]
    same({name: member for name, member in found.items() if member.values is not None}, expected)
    for name, member in expected.items():
        shown, own = (json.loads((Path(path) / name / "zarr.json").read_text()) for path in (mounted, source))
        assert (shown["data_type"], shown["fill_value"]) == (own["data_type"], own["fill_value"])
        assert found[name].fill == member.fill
    errors = [readers.read(path, "zarr") for path in (mounted, source)]
    assert {name: errors[0][name].error for name in expected} == {name: errors[1][name].error for name in expected}


def test_layouts_that_cannot_say_that_elements_are_missing_leave_the_array_out(tmp_path: Path, mount: MountFunction) -> None:
    """zarrs' `optional`: a reader of Zarr v2 or of a text file would take its bytes for something else."""
    parts = {"mask_codecs": ["packbits"], "data_codecs": ["bytes"]}
    document = array_document(
        data_type={"name": "optional", "configuration": {"name": "int16"}},
        shape=[2],
        fill_value=None,
        codecs=[{"name": "optional", "configuration": parts}],
    )
    source = tmp_path / "s.zarr"
    write(source, {"zarr_format": 3, "node_type": "group"})
    write(source / "maybe", document, {"c/0": b"\1" + bytes(7) + b"\2" + bytes(7) + b"\1" + b"ab"})
    mounted = mount(source, "--layout", "zarr3,zarr2,n5,files")
    assert (mounted / "zarr3/maybe/c/0").read_bytes()[16:] == b"\1\0ab"
    assert not (mounted / "zarr2/maybe").exists()
    assert not (mounted / "n5/maybe").exists()
    shown = {path.name for path in (mounted / "files").iterdir() if path.suffix != ".h5"}
    assert shown - {"maybe.json"} == {"index.html", "store.json"}
    mounted.allow("is left out of the layout")


def test_p12_raw_bits_of_a_zarr_v3_source(tmp_path: Path, mount: MountFunction) -> None:
    """`r24`: TensorStore alone opens it, and wants base64 where the specification has a list of numbers."""
    document = array_document(data_type="r24", shape=[3], fill_value="AQID")
    source = write(tmp_path / "raw.zarr", document, {"c/0": b"abcdef"})
    mounted = mount(source)
    for place in (source, mounted):
        assert json.loads((place / "zarr.json").read_text())["fill_value"] == "AQID"
        assert (place / "c/0").read_bytes() == b"abcdef"
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": os.fspath(place)}}
        assert ts.open(spec, read=True, open=True).result().shape == (3, 3)


@pytest.mark.parametrize("name", ["gdal", "zarrita"])
def test_p12_stores_that_zarr_python_refuses(mount: MountFunction, name: str) -> None:
    """Trap 8: through the mount, GDAL's and zarrita's arrays open everywhere."""
    mounted = mount(DATA / f"{name}.zip", "--format", "zarr3")
    with zipfile.ZipFile(DATA / f"{name}.zip") as file:
        expected = {name.removesuffix(".npy"): np.load(file.open(name)) for name in file.namelist() if ".npy" in name}
    for reader in ("zarr", "tensorstore"):
        found = readers.read(mounted, reader)
        for member, data in expected.items():
            np.testing.assert_array_equal(found[member].values, data, err_msg=f"{reader} {member}")


def test_p3_a_damaged_shard_is_eio_and_never_absent(tmp_path: Path, mount: MountFunction) -> None:
    chunks = {"c/0": GOOD + index((0, 4), (400, 4)), "c/1": GOOD + index((0, 4), (4, 4))}
    mounted = mount(write(tmp_path / "s.zarr", sharded(), chunks))
    assert sorted(path.name for path in (mounted / "c").iterdir()) == ["0", "1", "2", "3"]
    with pytest.raises(OSError, match="Input/output") as caught:
        (mounted / "c/1").read_bytes()
    assert caught.value.errno == errno.EIO
    assert [(mounted / "c" / name).read_bytes() for name in "02"] == [int16(1, 2)] * 2
    mounted.allow("damaged entry of the shard index")


def test_p9_chunks_of_an_array_that_grows_are_there_at_once(tmp_path: Path, mount: MountFunction) -> None:
    """The kernel knew the directory of the smaller array, where they were "No such file": readers took the fill value."""
    array = zarr.create_array(tmp_path / "s.zarr", shape=(4, 4), chunks=(4, 4), dtype="<i4", compressors=None)
    array[...] = 1
    mounted = mount(tmp_path / "s.zarr", "--metadata-ttl", "60")
    for number in range(2, 5):
        assert (mounted / f"c/{number - 2}/0").stat().st_size == 64
        array.resize((4 * number, 4))
        array[-4:] = number
        assert (mounted / f"c/{number - 1}/0").read_bytes() == np.full(16, number, "<i4").tobytes()
