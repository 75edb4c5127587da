"""HDF5 files with everything that JSON cannot say, by writers that are not ours: h5py, PyTables, netCDF4, pynwb."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import tables
from h5py import h5a, h5d, h5s, h5t
from nwb_data import unpack

PAIR = np.dtype({"names": ["a", "b"], "formats": ["<i2", ">f8"], "offsets": [2, 8], "itemsize": 24})
COLOURS = h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": 300}, basetype=">i4")


def _low(owner: Any, name: str, tid: Any, space: Any, memory: Any, as_dataset: bool) -> None:
    """An attribute or a dataset of a type that only the low-level interface makes."""
    if as_dataset:
        h5d.create(owner.id, name.encode(), tid, space).write(h5s.ALL, h5s.ALL, memory, tid)
    else:
        h5a.create(owner.id, name.encode(), tid, space).write(memory, tid)


def _odd_types(owner: Any, as_dataset: bool) -> None:
    """Types that numpy does not tell apart: padding and character set of strings, precision, bit fields, opaque."""
    for padding in (h5t.STR_NULLTERM, h5t.STR_NULLPAD, h5t.STR_SPACEPAD):
        for charset in (h5t.CSET_ASCII, h5t.CSET_UTF8):
            tid = h5t.C_S1.copy()
            tid.set_size(6)
            tid.set_strpad(padding)
            tid.set_cset(charset)
            text = np.array([b"ab", b"abcde"], "S6")
            _low(owner, f"text_{padding}_{charset}", tid, h5s.create_simple((2,)), text, as_dataset)
    bits = h5t.STD_B16BE.copy()
    _low(owner, "bits", bits, h5s.create_simple((3,)), np.array([1, 2, 65535], ">u2"), as_dataset)
    twelve = h5t.STD_U16LE.copy()
    twelve.set_precision(12)
    _low(owner, "twelve", twelve, h5s.create_simple((3,)), np.array([1, 2, 4095], "<u2"), as_dataset)
    opaque = h5t.create(h5t.OPAQUE, 5)
    opaque.set_tag(b"five bytes")
    _low(owner, "opaque", opaque, h5s.create_simple((2,)), np.array([b"\0\1\2\3\4", b"abcde"], "V5"), as_dataset)


def h5py_types(path: Path) -> None:
    """Every class of types as datasets and as attributes; scalar, (1,), empty and null dataspaces."""
    with h5py.File(path, "w") as file:
        values: dict[str, Any] = {
            f"{kind}{order}".replace("<", "le").replace(">", "be"): np.arange(-3 if "i" in kind or "f" in kind else 0, 5)
            .astype(f"{order}{kind}")
            for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
            for order in "<>"
        }  # fmt: skip
        values |= {
            "longdouble": np.array([1.5, np.pi], np.longdouble),
            "complex": np.array([1 + 2j, -1j], "<c8"),
            "complex_be": np.array([1 + 2j, -1j], ">c16"),
            "bool": np.array([[True, False]]),
            "fixed": np.array([b"a", b"bcd"], "S4"),
            "void": np.array([b"abc", b"xyz"], "V3"),
            "pair": np.zeros(3, PAIR),
            "nested": np.zeros(2, np.dtype([("p", PAIR), ("m", ">i4", (2, 3)), ("s", "S3")])),
            "scalar": np.float32(2.5),
            "one": np.array([2.5], np.float32),
            "empty": np.zeros((0, 3), ">u2"),
        }
        values["pair"]["a"], values["pair"]["b"] = [1, 2, 3], [0.5, -1, np.nan]
        values["nested"]["m"] = np.arange(12).reshape(2, 2, 3)
        owner = file.create_dataset("carrier", data=np.uint8(1))
        for name, value in values.items():
            file[name] = value
            owner.attrs[name] = value
        data, attributes = file.create_dataset("enum", data=np.array([0, 300, 1]), dtype=COLOURS), owner.attrs
        data.attrs["names"] = "x"
        attributes.create("enum", np.array([0, 300, 1]), dtype=COLOURS)
        file.create_dataset("matrix", (2,), np.dtype((">i2", (3, 4))))[...] = np.arange(24).reshape(2, 3, 4)
        for target in (file, attributes):
            target["null_f4"] = h5py.Empty("<f4")
            target["null_text"] = h5py.Empty("S4")
            target["words"] = np.array(["one", "zwö", ""], dtype=object)
            target["word"] = "wörd"
            target["ascii"] = np.array(["a", "b"], dtype=h5py.string_dtype("ascii"))
        ragged = np.empty(3, object)
        ragged[:] = [np.arange(3, dtype="<i2"), np.array([], "<i2"), np.array([7], "<i2")]
        file.create_dataset("ragged", data=ragged, dtype=h5py.vlen_dtype("<i2"))
        attributes.create("ragged", ragged, dtype=h5py.vlen_dtype("<i2"))
        rows = np.empty(2, np.dtype([("name", h5py.string_dtype()), ("n", ">u4")]))
        rows["name"], rows["n"] = ["first", "zweite"], [1, 2]
        file["rows"] = rows
        attributes["rows"] = rows
        _odd_types(file, True)
        _odd_types(owner, False)
        file.create_dataset("filled", (4, 5), ">f4", chunks=(2, 2), fillvalue=-1.5)[0, 0] = 3
        file.create_dataset(
            "growing", data=np.arange(12).reshape(3, 4), maxshape=(None, 8), chunks=(2, 2), compression="gzip"
        )
        file.create_dataset("not_yet", (0, 4), maxshape=(None, 4), chunks=(2, 2), dtype="<i4")
        file.create_dataset("default", (4,), dtype=h5py.string_dtype(), fillvalue="nothing")
        owner.attrs["large"] = np.arange(7000.0)
        h5a.create(owner.id, b"\xff raw name", h5t.STD_I8LE, h5s.create(h5s.SCALAR)).write(np.array(1, np.int8))


def h5py_links(path: Path) -> None:
    """Links of every kind, references to objects and regions, committed types, orders of creation, scales."""
    with h5py.File(path, "w", libver=("v108", "v110")) as file:
        group = file.create_group("ordered", track_order=True)
        for name in ("z", "b", "m", "a"):
            group.create_dataset(name, data=np.arange(3) + ord(name), track_order=True)
        for name in ("z", "y", "x", "w", "v", "u", "t", "s", "r"):
            group["z"].attrs[name] = 1
        file["type"] = PAIR
        file["type"].attrs["about"] = "a type"
        file.create_dataset("aaa_uses_type", (2,), file["type"])[...] = np.ones(2, PAIR)
        file["aaa_uses_type"].attrs.create("typed", np.ones(2, PAIR), dtype=file["type"])
        file["hard"] = group
        file["again"] = group["z"]
        file["soft"] = h5py.SoftLink("/ordered/z")
        group["relative"] = h5py.SoftLink("./z")
        file["nowhere"] = h5py.SoftLink("/not/there")
        file["outside"] = h5py.ExternalLink("other.h5", "/some/where")
        group["parent"] = file["/"]
        file["references"] = np.array([group.ref, group["z"].ref, h5py.Reference()], dtype=h5py.ref_dtype)
        file.attrs["reference"] = group["b"].ref
        file["image"] = np.arange(24).reshape(4, 6)
        regions = file.create_dataset("regions", (3,), h5py.regionref_dtype)
        regions[0] = file["image"].regionref[1:3, ::2]
        regions[1] = file["image"].regionref[0, 0]
        file["image"].attrs["region"] = file["image"].regionref[2:4, 5]
        file["x"] = np.arange(6.0)
        file["y"] = np.arange(4.0)
        for i, name in enumerate("yx"):
            file[name].make_scale(f"axis {name}")
            file["image"].dims[i].attach_scale(file[name])
        file["image"].dims[1].label = "x axis"
        compound = np.dtype([("what", h5py.ref_dtype), ("n", "<i4")])
        pairs = np.empty(2, compound)
        pairs["what"], pairs["n"] = [file["x"].ref, group.ref], [1, 2]
        file.attrs["pairs"] = pairs


def h5py_user_block(path: Path) -> None:
    """Addresses that do not begin at the file's first byte."""
    with h5py.File(path, "w", userblock_size=1024) as file:
        file["a"] = np.arange(5)
        file["refs"] = np.array([file["a"].ref, file["/"].ref], dtype=h5py.ref_dtype)
    with open(path, "r+b") as raw:
        raw.write(b"a user block")


def pytables(path: Path) -> None:
    """Tables, ragged rows, growing arrays, enumerations, pickled and numpy attributes, time."""

    class Row(tables.IsDescription):
        name = tables.StringCol(8)
        when = tables.Time64Col()
        colour = tables.EnumCol(tables.Enum(["red", "green"]), "red", base="uint8")
        grid = tables.Int16Col(shape=(2, 2))

        class inner(tables.IsDescription):  # noqa: N801 - the name of a column
            z = tables.ComplexCol(itemsize=16)

    with tables.open_file(str(path), "w", title="tablés") as file:
        table = file.create_table("/", "table", Row, expectedrows=100, filters=tables.Filters(1, "zlib"))
        for i in range(5):
            row = table.row
            row["name"], row["when"], row["grid"], row["inner/z"] = f"n{i}", i * 1.5, [[i, 1], [2, 3]], i + 1j
            row.append()
        table.flush()
        table.cols.name.create_index()
        ragged = file.create_vlarray("/", "ragged", tables.Float32Atom())
        ragged.append([1, 2])
        ragged.append([])
        texts = file.create_vlarray("/", "texts", tables.VLUnicodeAtom())
        texts.append("äöü")
        file.create_earray("/", "growing", tables.Int64Atom(), (0, 3)).append([[1, 2, 3]])
        file.create_carray("/", "chunked", obj=np.eye(4, dtype=">f4"))
        file.create_array("/g", "plain", np.arange(3), createparents=True)
        file.root.g._v_attrs.numpy = np.int8(3)
        file.root.g._v_attrs.pickled = {"a": [1, 2]}
        file.create_soft_link("/", "soft", "/g/plain")
        file.create_hard_link("/", "hard", "/g/plain")


def netcdf(path: Path) -> None:
    """Dimensions without variables and without limit, user-defined types, groups, attributes of every width."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 4)
        file.createDimension("bare", 7)
        file.createDimension("endless", None)
        time = file.createVariable("time", "f8", ("time",))
        time.units, time.valid = "seconds", np.int16([1, 2])
        data = file.createVariable("zdata", "i2", ("time", "x"), fill_value=-9, zlib=True)
        data[:] = np.arange(12).reshape(3, 4)
        time[:] = [0, 1, 2]
        data.text, data.names = "abc", ["x", "yy"]
        file.createVariable("a_later", "u1", ("x",))[:] = 1
        pair = file.createCompoundType(np.dtype([("u", "f4"), ("v", "i8")]), "pair_t")
        file.createVariable("pairs", pair, ("x",))[:] = np.ones(4, pair.dtype)
        colours = file.createEnumType(np.uint8, "colour_t", {"red": 0, "blue": 5})
        file.createVariable("colour", colours, ("x",), fill_value=0)[:] = [0, 5, 0, 5]
        ragged = file.createVLType(np.int32, "ragged_t")
        rows = file.createVariable("rows", ragged, ("x",))
        for i in range(4):
            rows[i] = np.arange(i, dtype="i4")
        words = file.createVariable("words", str, ("x",))
        words[:] = np.array(["a", "bc", "", "d"], dtype=object)
        inner = file.createGroup("inner")
        inner.createDimension("y", 2)
        inner.createVariable("b", "f4", ("y", "x"))[:] = 2.5


def nwb(path: Path) -> None:
    """What pynwb wrote (tests/data/make_nwb.py): references in datasets, attributes and compounds."""
    (source,) = unpack("hdf5", path.parent / "unpacked").glob("*.nwb")
    source.rename(path)


WRITERS: dict[str, Callable[[Path], None]] = {
    function.__name__: function for function in (h5py_types, h5py_links, h5py_user_block, pytables, netcdf, nwb)
}
