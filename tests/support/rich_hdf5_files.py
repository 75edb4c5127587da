"""HDF5 files with everything that JSON cannot say, by writers that are not ours: h5py, PyTables, netCDF4, pynwb."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import h5py
import netCDF4
import numpy as np
import tables
from h5py import h5a, h5d, h5p, h5s, h5t
from nwb_data import unpack

PAIR = np.dtype({"names": ["a", "b"], "formats": ["<i2", ">f8"], "offsets": [2, 8], "itemsize": 24})
_HDF5 = ctypes.CDLL(h5p.__file__)
"""What h5py has for numpy's types only."""
_HDF5.H5Dwrite.argtypes = (ctypes.c_int64,) * 5 + (ctypes.c_void_p,)
_HDF5.H5Awrite.argtypes = _HDF5.H5Pset_fill_value.argtypes = (ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
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


def _put(file: h5py.File, name: str, tid: Any, raw: bytes, **fill: bytes) -> None:
    """Elements of a type that numpy does not have, as a dataset, chunks, an attribute and a fill value."""
    count, memory = len(raw) // tid.get_size(), ctypes.create_string_buffer(raw, len(raw))
    space, chunked, filled = h5s.create_simple((count,)), h5p.create(h5p.DATASET_CREATE), h5p.create(h5p.DATASET_CREATE)
    chunked.set_chunk((count,))
    chunked.set_deflate(4)
    for suffix, plist in (("", None), ("_chunked", chunked)):
        dataset = h5d.create(file.id, f"{name}{suffix}".encode(), tid, space, plist)
        assert _HDF5.H5Dwrite(dataset.id, tid.id, 0, 0, 0, memory) >= 0
        attribute = h5a.create(dataset, b"same", tid, space)
        assert _HDF5.H5Awrite(attribute.id, tid.id, memory) >= 0
    if not tid.detect_class(h5t.VLEN):
        assert _HDF5.H5Pset_fill_value(filled.id, tid.id, memory) >= 0
        h5d.create(file.id, f"{name}_filled".encode(), tid, space, filled)


class _Sequence(ctypes.Structure):
    _fields_ = (("count", ctypes.c_size_t), ("start", ctypes.c_void_p))

    @classmethod
    def of(cls, elements: Any) -> bytes:
        """An array, or the bytes of elements, as `hvl_t`; the caller keeps them."""
        return bytes(cls(len(elements), elements.ctypes.data))


def h5py_rare(path: Path) -> None:
    """Numbers of odd widths, sequences of everything, attributes beyond an object header, comments, compact datasets."""
    with h5py.File(path, "w", track_order=True) as file:
        for precision, offset, size, base in ((12, 4, 2, h5t.STD_U16LE), (5, 2, 1, h5t.STD_I8LE), (17, 10, 4, h5t.STD_I32BE),
                                              (25, 0, 4, h5t.STD_U32LE), (33, 7, 8, h5t.STD_I64LE)):  # fmt: skip
            tid = base.copy()
            tid.set_precision(precision)
            tid.set_offset(offset)
            order: Literal["little", "big"] = "big" if base.get_order() else "little"
            values = [-3, 7] if base.get_sign() else [3, 7]
            raw = b"".join(((value % (1 << precision)) << offset).to_bytes(size, order) for value in values)
            _put(file, f"bits_{precision}_{offset}", tid, raw)
        for size in (3, 5, 16):
            tid = h5t.STD_U32LE.copy()
            tid.set_size(size)
            tid.set_precision(8 * size)
            _put(file, f"integer_{size}", tid, bytes(range(2 * size)))
        for name, base, size, fields in (("bfloat16", h5t.IEEE_F32LE, 2, (15, 7, 8, 0, 7)),
                                         ("float24", h5t.IEEE_F32BE, 3, (23, 15, 8, 0, 15))):  # fmt: skip
            tid = base.copy()
            tid.set_fields(*fields)
            tid.set_precision(8 * size)
            tid.set_size(size)
            tid.set_ebias(127)
            _put(file, name, tid, bytes(range(1, 1 + 2 * size)))
        nibble = h5t.STD_U8LE.copy()
        nibble.set_precision(4)
        colours = h5t.enum_create(nibble)
        colours.enum_insert(b"X", 1)
        colours.enum_insert(b"Y", 3)
        _put(file, "colours", colours, b"\1\3")
        half = h5t.STD_I16LE.copy()
        half.set_precision(12)
        half.set_offset(3)
        halves = h5t.create(h5t.COMPOUND, 8)
        halves.insert(b"one", 0, half)
        halves.insert(b"two", 4, h5t.array_create(half, (2,)))
        _put(file, "halves", halves, np.array([-3 % 4096 << 3, 0, 5 << 3, -2 % 4096 << 3] * 2, "<u2").tobytes())
        rows, numbers = np.array([(1, 2.5), (3, 4.5)], "<i4,>f8"), np.array([1, 2, 3], "<i2")
        inner = h5t.vlen_create(h5t.STD_I16LE)
        of_rows = h5t.vlen_create(h5t.py_create(rows.dtype))
        _put(file, "sequences_of_rows", of_rows, _Sequence.of(rows) + _Sequence.of(rows[:0]))
        pair = np.frombuffer(_Sequence.of(numbers) + _Sequence.of(numbers[:1]), "V16")
        _put(file, "sequences_of_sequences", h5t.vlen_create(inner), _Sequence.of(pair) + _Sequence.of(pair[:1]))
        four = _Sequence.of(numbers) * 3 + _Sequence.of(numbers[:0])
        _put(file, "pairs_of_sequences", h5t.array_create(inner, (2,)), four)
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_layout(h5d.COMPACT)
        h5d.create(file.id, b"compact", h5t.STD_I32BE, h5s.create_simple((5,)), plist).write(
            h5s.ALL, h5s.ALL, np.arange(5, dtype=">i4"), h5t.STD_I32BE
        )
        file.create_dataset("scaled", data=np.arange(100).reshape(10, 10), chunks=(5, 5), scaleoffset=8)
    with h5py.File(path, "a", libver=("v108", "latest")) as file:
        file["large"] = 1
        file["large"].attrs["large"] = np.arange(30000.0)
        file["large"].attrs["small"] = 1
        for i in range(20):
            file["large"].attrs[f"text {i}"] = f"{i}"
        for name in ("large", "compact", "/"):
            file.id.set_comment(name.encode(), f"of {name}: ä".encode())


def h5py_user_block(path: Path) -> None:
    """Addresses that do not begin at the file's first byte."""
    with h5py.File(path, "w", userblock_size=1024) as file:
        file["a"] = np.arange(5)
        file["refs"] = np.array([file["a"].ref, file["/"].ref], dtype=h5py.ref_dtype)
    with open(path, "r+b") as raw:
        raw.write(b"a user block")


def pytables(path: Path) -> None:
    """Tables, ragged rows, growing arrays, enumerations, pickled and numpy attributes, time."""

    class Row(tables.IsDescription):  # type: ignore[misc]
        name = tables.StringCol(8)
        when = tables.Time64Col()
        colour = tables.EnumCol(tables.Enum(["red", "green"]), "red", base="uint8")
        grid = tables.Int16Col(shape=(2, 2))

        class inner(tables.IsDescription):  # type: ignore[misc]  # noqa: N801 - the name of a column
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
        time.units, time.valid = "seconds", np.array([1, 2], np.int16)
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
    """Copy a file of pynwb's (tests/data/make_nwb.py): references in datasets, attributes and compounds."""
    (source,) = unpack("hdf5", path.parent / "unpacked").glob("*.nwb")
    source.rename(path)


WRITERS: dict[str, Callable[[Path], None]] = {
    function.__name__: function for function in (h5py_types, h5py_links, h5py_rare, h5py_user_block, pytables, netcdf, nwb)
}
