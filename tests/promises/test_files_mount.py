"""The layout `files` through real mounts: what numpy, ITK, tifffile and mrcfile read equals the source (P12)."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any, Literal

import h5py
import mrcfile
import numpy as np
import pytest
import SimpleITK
import tifffile
import z5py
import zarr
from mounting import MountFunction, fsbridge
from zarr.core.metadata import ArrayV3Metadata

VALUES = np.random.default_rng(0).integers(0, 60000, (20, 30, 40)).astype("<u2")
OME = {
    "multiscales": [
        {
            "axes": [{"name": name, "type": "space", "unit": "nanometer"} for name in "zyx"],
            "datasets": [
                {
                    "path": name,
                    "coordinateTransformations": [
                        {"type": "scale", "scale": [40.0, 5.0, 4.0]},
                        {"type": "translation", "translation": [100.0, 0.0, 20.0]},
                    ],
                }
                for name in ("c", "f", "s")
            ],
        }
    ]
}


def n5(root: Path) -> str:
    with z5py.File(str(root), "w", use_zarr_format=False) as file:
        array = file.create_dataset("g/a", shape=VALUES.shape, chunks=(8, 16, 16), dtype="uint16", compression="gzip")
        array[:] = VALUES
        array.attrs["pixelResolution"] = {"unit": "nm", "dimensions": [4.0, 5.0, 40.0]}
    return "g/a"


def zarr2(order: Literal["C", "F"]) -> Any:
    def write(root: Path) -> str:
        group = zarr.create_group(root, zarr_format=2, attributes=OME)
        array = group.create_array(order.lower(), shape=VALUES.shape, chunks=(8, 16, 16), dtype="<u2", order=order)
        array[...] = VALUES
        return order.lower()

    return write


def zarr3(root: Path) -> str:
    group = zarr.create_group(root, attributes={"ome": {"version": "0.5", **OME}})
    array = group.create_array("s", shape=VALUES.shape, chunks=(5, 10, 10), shards=(10, 20, 40), dtype="<u2")
    array[...] = VALUES
    return "s"


def hdf5(root: Path) -> str:
    with h5py.File(root, "w") as file:
        array = file.create_dataset("g/a", data=VALUES, chunks=(8, 16, 16), compression="gzip", shuffle=True)
        array.attrs["element_size_um"] = [0.04, 0.005, 0.004]
        file["g/link"] = h5py.SoftLink("/g/a")
        file["other"] = h5py.SoftLink("/g")
    return "g/a"


SOURCES = {"n5": n5, "zarr2-C": zarr2("C"), "zarr2-F": zarr2("F"), "zarr3-shards": zarr3, "hdf5": hdf5}


class Mounted:
    """A mounted source and its array, in the source's own axis order and in that of pictures."""

    def __init__(self, name: str, folder: Path, mount: MountFunction) -> None:
        source = folder / f"source.{'h5' if name == 'hdf5' else 'store'}"
        path = SOURCES[name](source)
        self.mount = mount(source, "--layout", "files", "--files", "all")
        self.path = str(self.mount / path)
        self.own = VALUES.T if name == "n5" else VALUES
        self.offset = (0.0, 0.0, 0.0) if name in ("n5", "hdf5") else (20.0, 0.0, 100.0)


@pytest.fixture(scope="module", params=list(SOURCES))
def mounted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, module_mount: MountFunction
) -> Mounted:
    return Mounted(request.param, tmp_path_factory.mktemp("files"), module_mount)


@pytest.mark.parametrize("mode", [None, "r"])
def test_p12_an_npy_file_has_the_elements_in_their_order(mounted: Mounted, mode: Any) -> None:
    found = np.load(f"{mounted.path}.npy", mmap_mode=mode)
    np.testing.assert_array_equal(found, mounted.own)
    assert found.flags.f_contiguous == (mounted.own is not VALUES or mounted.path.endswith("/f"))


@pytest.mark.parametrize("region", ["3:15:4,::-1,7", "...,-1", "0", "::4,::4,::4", "5:5"])
def test_a_region_is_a_path(mounted: Mounted, region: str) -> None:
    np.testing.assert_array_equal(np.load(f"{mounted.path}[{region}].npy"), eval(f"mounted.own[{region}]"))


def test_p12_raw_as_the_description_says(mounted: Mounted) -> None:
    document = json.loads(Path(f"{mounted.path}.json").read_text())
    assert document["shape"] == list(mounted.own.shape)
    found = np.memmap(f"{mounted.path}.raw", document["dtype"], "r", shape=mounted.own.shape, order=document["order"])
    np.testing.assert_array_equal(found, mounted.own)
    if mounted.path.endswith("/a"):
        said = eval(document["raw"]["python"].replace("'a.raw'", repr(f"{mounted.path}.raw")), {"np": np})
        np.testing.assert_array_equal(said, mounted.own)


def test_p12_pictures_by_itk(mounted: Mounted) -> None:
    for suffix in ("nrrd", "raw.nhdr", "mha", "raw.mhd", "mrc", "tif", "nii"):
        image: Any = SimpleITK.ReadImage(f"{mounted.path}.{suffix}")
        np.testing.assert_array_equal(SimpleITK.GetArrayFromImage(image), VALUES, err_msg=suffix)
        to_nanometers = 0.1 if suffix == "mrc" else 1e6
        if suffix != "tif":
            np.testing.assert_allclose(np.array(image.GetSpacing()) * to_nanometers, (4, 5, 40), rtol=1e-6, err_msg=suffix)
            np.testing.assert_allclose(np.array(image.GetOrigin()) * to_nanometers, mounted.offset, rtol=1e-6, atol=1e-9)
            if suffix != "mrc":
                np.testing.assert_allclose(image.GetDirection(), np.eye(3).ravel(), atol=1e-6)


def test_p12_a_tiff_can_be_mapped(mounted: Mounted) -> None:
    np.testing.assert_array_equal(tifffile.memmap(f"{mounted.path}.tif", mode="r"), VALUES)


def test_planes_as_a_series(mounted: Mounted) -> None:
    folder = Path(f"{mounted.path}.slices")
    assert sorted(os.listdir(folder)) == [f"{i:04d}.tif" for i in range(20)]
    for suffix in ("tif", "png", "npy"):
        path = folder / f"0007.{suffix}"
        found = np.load(path) if suffix == "npy" else SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(path)))
        np.testing.assert_array_equal(found if suffix != "npy" or mounted.own is VALUES else found.T, VALUES[7])
    header, content = (folder / "0007.pgm").read_bytes().split(b"\n65535\n", 1)
    assert header == b"P5\n40 30"
    np.testing.assert_array_equal(np.frombuffer(content, ">u2").reshape(30, 40), VALUES[7])


def test_listed_files_are_those_that_were_asked_for(tmp_path: Path, mount: MountFunction) -> None:
    zarr3(tmp_path / "store.zarr")
    assert sorted(os.listdir(mount(tmp_path / "store.zarr", "--layout", "files"))) == [
        "index.html", "s.json", "s.npy", "store.json"
    ]  # fmt: skip
    assert sorted(os.listdir(mount(tmp_path / "store.zarr", "--layout", "files", "--files", "nii,raw.mhd"))) == [
        "s.json", "s.nii", "s.raw", "s.raw.mhd", "store.json"
    ]  # fmt: skip


def test_a_bad_region_is_absent_and_the_log_says_why(tmp_path: Path, mount: MountFunction) -> None:
    zarr3(tmp_path / "store.zarr")
    mounted = mount(tmp_path / "store.zarr", "--layout", "files", "--log-level", "debug")
    mounted.allow("DEBUG|INFO")
    for region in ("99", "::0", "x", "1,2,3,4", ""):
        with pytest.raises(FileNotFoundError):
            os.stat(mounted / f"s[{region}].npy")
    assert mounted.told("no region of s.*99")


def test_n5_blocks_of_varying_numbers_of_elements_are_no_whole_array(tmp_path: Path, mount: MountFunction) -> None:
    """Nothing says where an element of them is: there is the description only, and its reasons."""
    folder = tmp_path / "s.n5/v"
    folder.mkdir(parents=True)
    form = {"dimensions": [8, 8], "blockSize": [4, 4], "dataType": "uint8", "compression": {"type": "raw"}}
    (folder / "attributes.json").write_text(json.dumps(form))
    (folder / "0").mkdir()
    (folder / "0/0").write_bytes(struct.pack(">HHIII", 1, 2, 4, 4, 21) + bytes(range(21)))
    mounted = mount(tmp_path / "s.n5", "--layout", "zarr3,files", "--files", "all")
    assert (mounted / "zarr3/v/c/0/0").read_bytes() == bytes(range(21))
    assert sorted(os.listdir(mounted / "files")) == ["index.html", "s.h5", "s.nc", "store.json", "v.json"]
    described = json.loads((mounted / "files/v.json").read_bytes())
    assert described["files"] == {}
    for suffix in ("npy", "raw", "csv", "txt", "nrrd", "pgm", "h5", "tif"):
        assert "different sizes" in described["not_possible"][suffix] or "varying" in described["not_possible"][suffix]
        for name in (f"v.{suffix}", f"v[0:2].{suffix}"):
            assert not (mounted / "files" / name).exists(), name
    mounted.allow("left out of the virtual HDF5 file")


def test_links_and_a_store_that_is_one_array(tmp_path: Path, mount: MountFunction) -> None:
    hdf5(tmp_path / "store.h5")
    mounted = mount(tmp_path / "store.h5", "--layout", "files")
    assert os.readlink(mounted / "g/link.npy") == "../g/a.npy" or os.readlink(mounted / "g/link.npy") == "a.npy"
    np.testing.assert_array_equal(np.load(mounted / "g/link.npy"), VALUES)
    np.testing.assert_array_equal(np.load(mounted / "g/link[2].npy"), VALUES[2])
    np.testing.assert_array_equal(np.load(mounted / "other/a.npy"), VALUES)
    zarr.create_array(tmp_path / "brain.zarr", data=VALUES)
    single = mount(tmp_path / "brain.zarr", "--layout", "files")
    assert sorted(os.listdir(single)) == ["brain.json", "brain.npy", "index.html"]
    np.testing.assert_array_equal(np.load(single / "brain.npy"), VALUES)


def test_texts_and_tables(tmp_path: Path, mount: MountFunction) -> None:
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["words"] = np.array(["one", "zwö", "a,b"], dtype=object)
        file["table"] = np.array([(1, 2.5, b"x"), (3, 0.1, b"yy")], dtype=[("a", "i4"), ("b", "f4"), ("c", "S3")])
        file["numbers"] = np.arange(6.0).reshape(2, 3) / 3
    mounted = mount(tmp_path / "t.h5", "--layout", "files")
    assert sorted(os.listdir(mounted)) == [
        "index.html", "numbers.json", "numbers.npy", "store.json", "table.json", "table.npy", "words.json", "words.txt"
    ]  # fmt: skip
    assert (mounted / "words.txt").read_text() == "one\nzwö\na,b\n"
    assert (mounted / "words.csv").read_text() == 'words\none\nzwö\n"a,b"\n'
    assert (mounted / "table.csv").read_text() == "a,b,c\n1,2.5,x\n3,0.1,yy\n"
    np.testing.assert_array_equal(
        np.loadtxt(mounted / "numbers.csv", delimiter=",", skiprows=1), np.arange(6.0).reshape(2, 3) / 3
    )


def test_one_text_is_a_region(tmp_path: Path, mount: MountFunction) -> None:
    """It was an error of the program: an element of variable length has no axes."""
    words = np.array([["one", "zwei"], ["", "vier"], ["fünf", "six"]], dtype=object)
    array = zarr.create_array(tmp_path / "a.zarr/words", shape=(3, 2), chunks=(2, 2), dtype=str)
    array[...] = words
    path = mount(tmp_path / "a.zarr", "--layout", "files").path
    assert (path / "words[2,0].txt").read_text() == "fünf\n"
    with h5py.File(path / "words[-1,1].h5") as file:
        assert file["words"].asstr()[()] == "six"


def test_columns_that_are_arrays(tmp_path: Path, mount: MountFunction) -> None:
    """PyTables writes such columns. HDF5's array types within compounds were bytes without a type."""
    dtype = np.dtype([("i", "<i4"), ("a", ">f4", (2, 3)), ("n", [("x", ">i2", (2,)), ("y", "S3")])])
    values = np.zeros(5, dtype)
    values["i"], values["a"] = np.arange(5), np.arange(30).reshape(5, 2, 3) / 3
    values["n"]["x"], values["n"]["y"] = np.arange(10).reshape(5, 2) - 4, b"ab"
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file.create_dataset("t", data=values, chunks=(2,), compression="gzip", shuffle=True, fillvalue=values[2])
        file.create_dataset("holes", (3,), dtype, chunks=(2,), fillvalue=values[2])
    path = mount(tmp_path / "t.h5", "--layout", "files").path
    found = np.load(path / "t.npy")
    for field in ("i", "a"):
        np.testing.assert_array_equal(found[field], values[field])
    np.testing.assert_array_equal(found["n"]["x"], values["n"]["x"])
    np.testing.assert_array_equal(found["n"]["y"], values["n"]["y"])
    np.testing.assert_array_equal(np.load(path / "holes[::-1].npy")["a"], np.broadcast_to(values["a"][2], (3, 2, 3)))
    lines = (path / "t.csv").read_text().splitlines()
    assert lines[0] == "i,a.0,a.1,a.2,a.3,a.4,a.5,n.x.0,n.x.1,n.y"
    assert lines[1] == "0,0.0,0.33333334,0.6666667,1.0,1.3333334,1.6666666,-4,-3,ab"
    said = json.loads((path / "t.json").read_text())["raw"]["python"]
    mapped = eval(said.replace("'t.raw'", repr(f"{path}/t.raw")), {"np": np})
    assert mapped.tobytes() == found.tobytes()
    with h5py.File(path / "t.h5") as twin:
        assert twin["t"].dtype == dtype
        assert twin["t"][...].tobytes() == values.tobytes()


def test_a_scalar_s_line_for_c_compiles(tmp_path: Path, mount: MountFunction) -> None:
    zarr.create_array(tmp_path / "a.zarr/x", shape=(), dtype="<f4")[...] = 2.5
    said = json.loads((mount(tmp_path / "a.zarr", "--layout", "files") / "x.json").read_text())["raw"]["c"]
    assert said == 'float a; fread(&a, 4, 1, fopen("x.raw", "rb"));'


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_fill_values_are_written_as_zarr_spells_them(tmp_path: Path, mount: MountFunction) -> None:
    """zarr-python reads back tables of numbers, texts, dates, bytes and compounds."""
    fills: dict[str, Any] = {"<i8": -(2**63), "<u8": 2**64 - 1, "<f4": np.nan, "<f8": -np.inf, "<c8": 1 - 2.5j, "<U4": "ä€",
                             "S4": b"ab", "<M8[ns]": 12, "<m8[s]": "NaT", "V3": b"abc", "?": True}  # fmt: skip
    struct = np.dtype([("a", "<i4"), ("b", "<f8")])
    group = zarr.create_group(tmp_path / "s.zarr")
    kinds = [np.dtype(kind) for kind in fills]
    arrays = [group.create_array(str(i), shape=(3,), chunks=(3,), dtype=kind, fill_value=fills[list(fills)[i]])
              for i, kind in enumerate(kinds)]  # fmt: skip
    arrays.append(group.create_array("struct", shape=(3,), chunks=(3,), dtype=struct, fill_value=(7, 1.5)))
    arrays.append(group.create_array("text", shape=(3,), chunks=(3,), dtype=str, fill_value="none"))
    mounted = mount(tmp_path / "s.zarr", "--layout", "files")
    for array in arrays:
        told = json.loads((mounted / f"{array.basename}.json").read_text())["fill_value"]
        assert isinstance(array.metadata, ArrayV3Metadata)
        found = array.metadata.data_type.from_json_scalar(told, zarr_format=3)
        np.testing.assert_equal(np.asarray(found), np.asarray(array.fill_value), str(array.dtype))


def test_an_array_that_is_called_like_a_file_opens_in_the_format_that_holds_it(tmp_path: Path, mount: MountFunction) -> None:
    """`.ome.tif` is a `.tif`, too: OME's is the one that is meant, and has integers that ImageJ's dialect has not."""
    group = zarr.create_group(tmp_path / "s.zarr")
    group.create_array("x.ome.tif", shape=(2, 3), chunks=(2, 2), dtype="<i4")[...] = 7
    group.create_array("y.ome.tif", shape=(2, 3), chunks=(2, 2), dtype="<u2")[...] = 8
    group.create_array("z.ome.tif", shape=(2, 3), chunks=(2, 2), dtype="<i8")[...] = 9
    mounted = mount(tmp_path / "s.zarr", "--layout", "files")
    for name, number in {"x.ome.tif": 7, "x.ome.tif.ome.tif": 7, "y.ome.tif": 8}.items():
        with tifffile.TiffFile(mounted / name) as file:
            assert file.is_ome
            np.testing.assert_array_equal(file.asarray(), np.full((2, 3), number))
    with tifffile.TiffFile(mounted / "z.ome.tif") as file:  # OME has no integers of 64 bits
        assert not file.is_ome
        np.testing.assert_array_equal(file.asarray(), np.full((2, 3), 9))
    assert (np.load(mounted / "z.ome.tif.npy") == 9).all()


def test_names_that_look_like_other_files(tmp_path: Path, mount: MountFunction) -> None:
    group = zarr.create_group(tmp_path / "s.zarr")
    for number, name in enumerate(["a", "a.npy", "a[0:1]", "b", "b.ome"], 1):
        group.create_array(name, shape=(2, 2), chunks=(1, 2), dtype="u1")[...] = number
    group.create_group("c.npy")
    group.create_array("c", shape=(2,), chunks=(1,), dtype="u1")[...] = 9
    mounted = mount(tmp_path / "s.zarr", "--layout", "files", "--files", "npy,tif,ome.tif")
    names = os.listdir(mounted)
    assert len(names) == len(set(names))
    for name, number in {"a.npy": 2, "a.npy.npy": 2, "a[0:1].npy": 3, "a[1:].npy": 1, "c[:].npy": 9, "b.ome.npy": 5}.items():
        assert (np.load(mounted / name) == number).all(), name
    assert (tifffile.imread(mounted / "b.ome.tif") == 5).all()
    assert (mounted / "c.npy").is_dir()
    assert "a.npy is a member of this group" in json.loads((mounted / "a.json").read_text())["collisions"][0]
    assert len(json.loads((mounted / "c.json").read_text())["collisions"]) == 1


@pytest.mark.filterwarnings("ignore:Setting the dtype on a NumPy array:DeprecationWarning")  # mrcfile 1.5.4, numpy 2.5
def test_p12_bools_and_columns_in_pictures(tmp_path: Path, mount: MountFunction) -> None:
    """MRC has 16 bits for what is unsigned; a picture of one column is one, not a sample of each pixel."""
    bools = np.random.default_rng(1).integers(0, 2, (9, 20)).astype(bool)
    column = np.arange(30, dtype="<u2").reshape(5, 6, 1)
    group = zarr.create_group(tmp_path / "s.zarr")
    group.create_array("bools", shape=bools.shape, chunks=(4, 8), dtype="bool")[...] = bools
    group.create_array("column", shape=column.shape, chunks=(2, 2, 1), dtype="<u2")[...] = column
    mounted = mount(tmp_path / "s.zarr", "--layout", "files", "--files", "all")
    with mrcfile.open(mounted / "bools.mrc") as file:
        np.testing.assert_array_equal(file.data, bools)
    with mrcfile.open(mounted / "bools[::2,3:].mrc") as file:
        np.testing.assert_array_equal(file.data, bools[::2, 3:])
    with tifffile.TiffFile(mounted / "column.tif") as file:
        assert [page.shape for page in file.pages] == [(6, 1)] * 5
        np.testing.assert_array_equal([page.asarray() for page in file.pages], column)
    for name in ("bools.tif", "bools.ome.tif", "column.ome.tif"):
        np.testing.assert_array_equal(tifffile.imread(mounted / name).ravel(), (bools if "bool" in name else column).ravel())


def test_p8_names_that_text_headers_cannot_have(tmp_path: Path, mount: MountFunction) -> None:
    """Such arrays have no detached headers; the others' name their data files as the mount shows them."""
    names = [b"a b", b" lead", b"bad\xff", b"tab\tx", b"50%", b"x:y", b"LIST", b"LOCAL", "ü".encode(), b"plain"]
    with h5py.File(tmp_path / "s.h5", "w") as file:
        for number, name in enumerate(names):
            file.create_dataset(name, data=np.full((2, 3, 4), number, "<u2"))
    mounted = mount(tmp_path / "s.h5", "--layout", "files", "--files", "all")
    listed = os.listdir(mounted)
    detached = {name for name in listed if name.endswith((".nhdr", ".mhd"))}
    both = ["LOCAL", "plain", "ü"]
    assert detached == {
        *(f"{name}.raw.nhdr" for name in both),
        *(f"{name}.raw.mhd" for name in both),
        "a b.raw.nhdr",
        "x:y.raw.mhd",
    }
    for number, name in enumerate(names):
        stem = os.fsdecode(name).replace("%", "%25").replace("\t", "%09")
        for suffix in ("nrrd", "raw.nhdr", "mha", "raw.mhd"):
            if f"{stem}.{suffix}" in detached or (suffix in ("nrrd", "mha") and name != b"bad\xff"):
                image = SimpleITK.ReadImage(str(mounted / f"{stem}.{suffix}"))
                assert (SimpleITK.GetArrayFromImage(image) == number).all(), (stem, suffix)
        document = json.loads((mounted / f"{stem}.json").read_text())
        if name != b"bad\xff":  # JSON has no such text
            assert {f"{stem}.json", *document["files"].values()} == {own for own in listed if own.startswith(f"{stem}.")}
        assert (mounted / f"{stem}.ome.tif").read_bytes()


@pytest.mark.parametrize("shape", [(), (1,) * 32, (0, 3), (3, 0)])
def test_odd_ranks_and_empty_dimensions(shape: tuple[int, ...], tmp_path: Path, mount: MountFunction) -> None:
    values = np.full(shape, 7, "<i4")
    group = zarr.create_group(tmp_path / "s.zarr")
    group.create_array("a", shape=shape, chunks=tuple(max(1, n) for n in shape), dtype="<i4")[...] = values
    mounted = mount(tmp_path / "s.zarr", "--layout", "files", "--files", "all")
    found = np.load(mounted / "a.npy")
    assert found.shape == shape
    np.testing.assert_array_equal(found, values)
    for name in os.listdir(mounted):
        assert len((mounted / name).read_bytes()) == os.stat(mounted / name).st_size


def test_info_lists_the_files(tmp_path: Path) -> None:
    zarr3(tmp_path / "store.zarr")
    done = fsbridge("info", "--layout", "files", tmp_path / "store.zarr")
    assert "    --layout files: s.json s.npy\n    by name: s.raw" in done.stdout
    assert "s.slices/" in done.stdout
