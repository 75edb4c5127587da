"""Objects that crash HDF5 or h5py, or that neither can convert: they affect only themselves, and give a reason."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import struct
import subprocess
from pathlib import Path
from typing import Any

import h5py
import new_references
import numpy as np
import pytest
from hdf5_children import watched
from hdf5_model import array, opened, values

from fsbridge import cli
from fsbridge.children import client
from fsbridge.errors import CorruptData, TooLarge, Unsupported
from fsbridge.formats.hdf5 import pages

REGIONS = h5py.vlen_dtype(h5py.regionref_dtype)


def write_region_sequences(path: Path) -> None:
    """Sequences of region references, in an attribute and a dataset, alone and in a compound: h5py 3.16 crashes on each."""
    with h5py.File(path, "w") as file:
        data = file.create_dataset("good", data=np.arange(20).reshape(4, 5))
        data.attrs["unit"] = "mm"
        regions = np.array([data.regionref[:2], data.regionref[1:3]], dtype=h5py.regionref_dtype)
        whole = np.empty(1, object)
        whole[0] = regions
        data.attrs.create("regions", whole, dtype=REGIONS)
        file.create_dataset("regions", (1,), REGIONS)[0] = regions
        file.create_dataset("inside", (1,), [("a", "<i4"), ("b", REGIONS)])
        file.create_dataset("plain", data=regions[:1], dtype=h5py.regionref_dtype)


def test_p8_sequences_of_region_references_are_described(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """P8: no process crashes: they are not supported, and everything else is unaffected."""
    path = tmp_path / "regions.h5"
    write_region_sequences(path)
    with opened(path) as source:
        child = source.file.supervisor.child
        assert [found.name for found in source.root.children()] == ["good", "inside", "plain", "regions"]
        good = array(source, "good")
        assert values(good).tolist() == np.arange(20).reshape(4, 5).tolist()
        assert good.metadata.attributes["unit"] == "mm"
        assert "region references in sequences" in good.metadata.attributes["regions"]["_ERROR"]
        for name in ("regions", "inside"):
            found = array(source, name)
            assert found.metadata.refused == "region references in sequences of variable length"
        found = array(source, "regions")
        with pytest.raises(Unsupported, match="region references"):
            found.chunks.read_all((0,), found.chunks.find((0,)), 1 << 26)
        assert values(array(source, "plain")).tolist() == ["/good"]
        assert source.file.supervisor.child is child
    assert caplog.records == []


def test_p8_a_dataset_that_ends_hdf5_hides_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """P8: looking at it ends the child. Its siblings are listed and read at once; it is an error at once."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for number in range(10):
            file[f"group/x{number}"] = np.arange(3) + number
        file["other/y"] = 1
        file["group"].attrs["a"] = 1

    def die(child: client.ChildProcess, question: dict[str, Any]) -> None:
        if (question.get("op"), question.get("path")) in (("group", ["group"]), ("node", ["group", "x4"])):
            os.kill(child.pid, signal.SIGSEGV)

    with opened(path, watched(during=die)) as source:
        for _ in range(3):
            group: Any = source.root.child("group")
            assert [child.name for child in group.children()] == [f"x{number}" for number in range(10)]
            assert group.attributes() == {"a": 1}
            for number in range(10):
                if number == 4:
                    with pytest.raises(CorruptData, match="group/x4"):
                        group.child("x4")
                else:
                    assert values(array(source, f"group/x{number}")).tolist() == [number, number + 1, number + 2]
            assert values(array(source, "other/y"))[()] == 1
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 3  # the group, the dataset, the dataset without its attributes


def test_p8_an_attribute_that_ends_hdf5_costs_itself(tmp_path: Path) -> None:
    """P8: reading it ends the child. Everything else of a group (also the root) and of a dataset is unaffected."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["group/x"] = np.arange(3)
        for place in ("/", "group", "group/x"):
            for number, name in enumerate(("a", "bad", "z")):
                file[place].attrs[name] = number

    def die(child: client.ChildProcess, question: dict[str, Any]) -> None:
        whole = question.get("op") in ("group", "attributes") or (question.get("op") == "node" and not question.get("bare"))
        if (whole and question.get("path") != ["group"]) or (question.get("op"), question.get("number")) == ("attribute", 1):
            os.kill(child.pid, signal.SIGSEGV)

    with opened(path, watched(during=die)) as source:
        root = source.root.attributes()
        assert (root["a"], root["z"]) == (0, 2)
        assert "SIGSEGV" in root["bad"]["_ERROR"]
        assert [child.name for child in source.root.children()] == ["group"]
        group: Any = source.root.child("group")
        assert group.attributes() == {"a": 0, "bad": 1, "z": 2}
        source.file.shared.of(pages.KeptPages).by_key.clear()  # so that the member itself is asked for
        found = group.child("x")
        assert values(found).tolist() == [0, 1, 2]
        assert (found.metadata.attributes["a"], found.metadata.attributes["z"]) == (0, 2)
        assert "SIGSEGV" in found.metadata.attributes["bad"]["_ERROR"]


def test_new_references_are_not_supported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`info` names them and exits with 1; reading them is "Operation not supported"; the attribute is described."""
    path = tmp_path / "refs.h5"
    new_references.write(path)
    with opened(path) as source:
        found = array(source, "refs")
        assert found.metadata.shape == (4,)
        with pytest.raises(Unsupported, match="H5T_STD_REF"):
            found.chunks.read_all((0,), found.chunks.find((0,)), 1 << 26)
        assert "H5T_STD_REF" in source.root.attributes()["ref"]["_ERROR"]
        assert values(array(source, "group/target")).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert cli.main(["fsbridge", "info", str(path)]) == 1
    assert "references of the type H5T_STD_REF" in capsys.readouterr().out


def test_opaque_and_bitfield_attributes_are_their_bytes(tmp_path: Path) -> None:
    """Attributes of any tag, size, shape and order are numbers if possible, else base64."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        opaque = h5py.h5t.create(h5py.h5t.OPAQUE, 5)
        opaque.set_tag(b"hello")
        long = h5py.h5t.STD_B64LE.copy()
        long.set_size(16)
        for name, tid, data in (
            (b"opaque", opaque, np.frombuffer(b"abcdefghij", "V5")),
            (b"bits", h5py.h5t.STD_B16BE, np.array([1, 0x8002], ">u2")),
            (b"one", h5py.h5t.STD_B8LE, np.array(7, "u1")),
            (b"long", long, np.frombuffer(bytes(range(16)), "V16").reshape(1)),
        ):
            space = h5py.h5s.create_simple(data.shape) if data.shape else h5py.h5s.create(h5py.h5s.SCALAR)
            h5py.h5a.create(file.id, name, tid, space).write(data, mtype=tid)
    with opened(path) as source:
        found = source.root.attributes()
        assert [element["_BASE64"] for element in found["opaque"]] == ["YWJjZGU=", "ZmdoaWo="]
        assert found["opaque"][0]["_TYPE"]["tag"] == "hello"
        assert found["long"][0]["_BASE64"] == "AAECAwQFBgcICQoLDA0ODw=="
        assert found["bits"] == [1, 0x8002]
        assert found["one"] == 7


def test_integers_with_few_bits_are_no_damage(tmp_path: Path) -> None:
    """n-bit integers that use few of their bits, which HDF5 2.0 takes for damage unless it is told not to."""
    path = tmp_path / "bits.h5"
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    relax = ctypes.CDLL(h5py.h5p.__file__).H5Pset_relax_file_integrity_checks
    assert relax(ctypes.c_int64(access.id), ctypes.c_uint64(1)) >= 0
    with h5py.File(h5py.h5f.create(os.fsencode(path), fapl=access)) as file:
        tid = h5py.h5t.STD_I32LE.copy()
        tid.set_precision(3)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        plist.set_filter(h5py.h5z.FILTER_NBIT, h5py.h5z.FLAG_OPTIONAL)
        dataset = h5py.h5d.create(file.id, b"x", tid, h5py.h5s.create_simple((8,)), plist)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(-4, 4, dtype="<i4"))
    with opened(path) as source:
        assert values(array(source, "x")).tolist() == list(range(-4, 4))


def test_dimension_names_are_unique(tmp_path: Path) -> None:
    """A variable over one dimension twice, such as a covariance: readers refuse a repeated name, so only the first has
    it.
    """
    path = tmp_path / "x.nc"
    with h5py.File(path, "w") as file:
        for name in ("band", "time"):
            file[name] = np.arange(3.0)
            file[name].make_scale(name)
        cube = file.create_dataset("cube", data=np.zeros((3, 3, 3)))
        for axis, name in enumerate(("band", "time", "band")):
            cube.dims[axis].attach_scale(file[name])
        plain = file.create_dataset("plain", data=np.zeros((3, 3)))
        plain.dims[0].label = plain.dims[1].label = "x"
    with opened(path) as source:
        assert array(source, "cube").metadata.dimension_names == ("band", "time", None)
        assert array(source, "plain").metadata.dimension_names == ("x", None)
        assert array(source, "time").metadata.dimension_names == ("time",)


def test_p8_what_only_looks_like_a_list_of_dimension_scales_ends_no_child(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, at in (("number", [("path", "<i4")]), ("other", [("where", "<i4")])):
            file[name] = np.arange(3)
            file[name].attrs["DIMENSION_LIST"] = np.zeros((1, 1), [("_REFERENCE", at)])
            file[name].attrs["mine"] = 1
    with opened(tmp_path / "x.h5") as source:
        child = source.file.supervisor.child
        for name in ("number", "other"):
            metadata = array(source, name).metadata
            assert (metadata.attributes["mine"], metadata.dimension_names) == (1, None)
        assert source.file.supervisor.child is child


def test_netcdf_dimensions_without_a_variable_are_no_arrays(tmp_path: Path) -> None:
    """Datasets that netCDF-4 marks in NAME are neither listed nor found. The names that it gives stay."""
    path = tmp_path / "x.nc"
    with h5py.File(path, "w") as file:
        file.create_dataset("n", (4,), ">f4")
        file["n"].make_scale("This is a netCDF dimension but not a netCDF variable.         4")
        file["x"] = np.arange(4)
        file["x"].dims[0].attach_scale(file["n"])
    with opened(path) as source:
        assert [child.name for child in source.root.children()] == ["x"]
        assert array(source, "x").metadata.dimension_names == ("n",)


def test_compounds_with_a_default_that_hdf5_cannot_convert_are_read(tmp_path: Path) -> None:
    """HDF5 converts stored sequences of structures with text beside references, but no unwritten element."""
    sensor = np.dtype([("number", "<i4"), ("name", h5py.string_dtype("ascii"))])
    dtype = np.dtype(
        [
            ("sensors", h5py.vlen_dtype(sensor)),
            ("name", h5py.string_dtype("ascii")),
            ("group", h5py.ref_dtype),
            ("region", h5py.regionref_dtype),
        ]
    )
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        target = file.create_dataset("target", data=np.arange(3))
        element = np.zeros(1, dtype)
        element["sensors"][0] = np.array([(1, b"roof")], sensor)
        element["name"], element["group"], element["region"] = b"car", target.ref, target.regionref[:2]
        file.create_dataset("x", (1,), dtype)[...] = element
    with opened(path) as source:
        (found,) = values(array(source, "x"))
        assert '"name": "car"' in found
        assert '"/target"' in found


def test_p8_a_chunk_of_texts_above_the_limit_ends_no_child(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """P8: its answer was taken for nonsense, and the dataset's other chunks were errors for a minute."""
    path = tmp_path / "texts.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=["x" * 2000] * 10 + ["y"] * 10, chunks=(10,), dtype=h5py.string_dtype())
    with opened(path) as source:
        found = array(source, "t")
        child = source.file.supervisor.child
        with pytest.raises(TooLarge, match="20044 bytes, the limit is 20000"):
            found.chunks.read_all((0,), found.chunks.find((0,)), 20_000)
        assert len(found.chunks.read_all((1,), found.chunks.find((1,)), 20_000)) == 54
        assert len(found.chunks.read_all((0,), found.chunks.find((0,)), 20_044)) == 20_044
        assert source.file.supervisor.child is child
    assert caplog.records == []


def test_a_layout_that_only_hdf5_2_refuses_is_named_and_mended_by_its_hint(tmp_path: Path) -> None:
    """PureHDF wrote 4 for the size of any element; HDF5 1.10 to 1.14 take the size from the type."""
    path, mended = tmp_path / "p.h5", tmp_path / "mended.h5"
    data = np.arange(12.0).reshape(3, 4)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=data, chunks=(3, 4))
    path.write_bytes(path.read_bytes().replace(struct.pack("<3I", 3, 4, 8), struct.pack("<3I", 3, 4, 4)))
    with opened(path) as source, pytest.raises(Unsupported, match="h5repack -f GZIP=4 OLD NEW"):
        source.root.child("x")
    subprocess.run(["h5repack", "-f", "GZIP=4", path, mended], check=True)  # the package hdf5-tools has HDF5 1.10
    with opened(mended) as source:
        assert values(array(source, "x")).tolist() == data.tolist()
