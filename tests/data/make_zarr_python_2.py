"""Makes `zarr_python_2.zip`: stores written by zarr-python 2, and its own reading of them.

zarr-python 2 cannot be installed beside zarr-python 3, so what it writes is kept.

Run in an environment of its own: `pip install 'zarr==2.18.7' 'numcodecs==0.15.2' 'numpy<2.2' fsspec msgpack crc32c`, then
`python tests/data/make_zarr_python_2.py`. Inside the archive: `a.n5`, `a.zarr`, `nested.zarr`, `lower.zarr`, and in
`expected.npz` and `expected.json` what zarr-python 2 reads back, by `store/array`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import zipfile

import numcodecs
import numpy as np
import zarr

SHAPE, CHUNKS = (5, 3), (2, 2)
HERE = os.path.dirname(os.path.abspath(__file__))


def numbers(dtype: object, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    """Different values everywhere, also outside ASCII."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    plain = np.arange(1, count + 1)
    if dtype.names:
        result = np.zeros(shape, dtype)
        for name in dtype.names:
            base = dtype[name].subdtype[0] if dtype[name].subdtype else dtype[name]
            inner = result[name].shape
            result[name] = numbers(base, inner)
        return result
    if dtype.kind == "S":
        return np.array([b"%d\xff" % i for i in plain]).astype(dtype).reshape(shape)
    if dtype.kind == "U":
        return np.array([f"{i}ö" for i in plain]).astype(dtype).reshape(shape)
    if dtype.kind == "V":
        return np.frombuffer(np.arange(count * dtype.itemsize, dtype="u1").tobytes(), dtype).reshape(shape)
    if dtype.kind == "b":
        return (plain % 2).astype(dtype).reshape(shape)
    if dtype.kind == "c":
        return (plain + 1j * plain[::-1]).astype(dtype).reshape(shape)
    return plain.astype(dtype).reshape(shape)


def n5(root: str) -> None:
    group = zarr.group(zarr.N5Store(f"{root}/a.n5"))
    group.attrs["multiScale"] = True
    types = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8", "f2", "bool", "M8[ns]", "m8[s]"]
    for name in types:
        array = group.create_dataset(f"t/{np.dtype(name).name}", shape=SHAPE, chunks=CHUNKS, dtype=name, compressor=None)
        array[:3] = numbers(name)[:3]
        array.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
        array.attrs["nan"] = float("nan")
    codecs = {
        "raw": None,
        "zlib": numcodecs.Zlib(3),
        "gzip": numcodecs.GZip(3),
        "bz2": numcodecs.BZ2(3),
        "xz": numcodecs.LZMA(preset=1),
        "lzma_alone": numcodecs.LZMA(format=2, preset=1),
        "lz4": numcodecs.LZ4(),
        "zstd": numcodecs.Zstd(3),
        "blosc": numcodecs.Blosc("zstd", 3, numcodecs.Blosc.AUTOSHUFFLE),
        "blosc_bits": numcodecs.Blosc("lz4", 3, numcodecs.Blosc.BITSHUFFLE),
    }
    for name, codec in codecs.items():
        array = group.create_dataset(f"c/{name}", shape=(7, 11, 5), chunks=(3, 4, 2), dtype="u2", compressor=codec)
        array[...] = numbers("u2", (7, 11, 5)) % 7
    group.create_dataset("d/zero", shape=(), dtype="i4", compressor=None)[...] = 5
    group.create_dataset("d/one", shape=(7,), chunks=(3,), dtype="i4")[...] = numbers("i4", (7,))


def zarr2(root: str) -> None:
    group = zarr.group(f"{root}/a.zarr")
    group.attrs["nan"] = [float("nan"), float("inf"), -float("inf")]
    struct = [("a", ">i2"), ("b", "<f4", (2,)), ("c", [("x", "i1"), ("y", ">U2")]), ("d", "S3")]
    types = ["?", "i1", "u1", "<i2", ">i4", "<u8", "<f2", ">f4", "<f8", "<c8", ">c16", "<M8[ns]", ">M8[10s]", "<m8[D]"]
    types += ["S5", "<U3", ">U4", "V3", struct, [("a", "<i4"), ("b", "<f8")]]
    for position, name in enumerate(types):
        for order in "CF":
            array = group.create_dataset(f"t/{position}{order}", shape=SHAPE, chunks=CHUNKS, dtype=name, order=order)
            array[:4] = numbers(name)[:4]
    codecs = {
        "none": None,
        "zlib": numcodecs.Zlib(3),
        "gzip": numcodecs.GZip(3),
        "bz2": numcodecs.BZ2(3),
        "xz": numcodecs.LZMA(preset=1),
        "lzma_alone": numcodecs.LZMA(format=2, preset=1),
        "lzma_raw": numcodecs.LZMA(format=3, filters=[{"id": 3, "dist": 4}, {"id": 33, "preset": 1}]),
        "lz4": numcodecs.LZ4(),
        "zstd": numcodecs.Zstd(3),
        "shuffle": numcodecs.Shuffle(4),
    }
    for name in ("blosclz", "lz4", "lz4hc", "zlib", "zstd"):
        for shuffle in (0, 1, 2):
            codecs[f"blosc_{name}_{shuffle}"] = numcodecs.Blosc(name, 3, shuffle)
    for name, codec in codecs.items():
        array = group.create_dataset(f"c/{name}", shape=(40, 50), chunks=(30, 20), dtype="<i4", compressor=codec)
        array[...] = numbers("<i4", (40, 50)) % 11
    filters = {
        "delta": ("<i4", [numcodecs.Delta("<i4")]),
        "delta_narrow": ("<i8", [numcodecs.Delta("<i8", "<i2")]),
        "scale": ("<f8", [numcodecs.FixedScaleOffset(offset=-1, scale=10, dtype="<f8", astype="u2")]),
        "quantize": ("<f8", [numcodecs.Quantize(digits=2, dtype="<f8", astype="<f4")]),
        "astype": ("<f8", [numcodecs.AsType(encode_dtype="<f4", decode_dtype="<f8")]),
        "packbits": ("?", [numcodecs.PackBits()]),
        "shuffle": ("<i4", [numcodecs.Shuffle(4)]),
        "bitround": ("<f4", [numcodecs.bitround.BitRound(10)]),
        "base64": ("<i4", [numcodecs.Base64()]),
        "crc32": ("<i4", [numcodecs.CRC32()]),
        "adler32": ("<i4", [numcodecs.Adler32()]),
        "crc32c": ("<i4", [numcodecs.checksum32.CRC32C()]),
        "jenkins": ("<i4", [numcodecs.JenkinsLookup3()]),
        "fletcher32": ("<i4", [numcodecs.Fletcher32()]),
        "several": ("<i8", [numcodecs.Delta("<i8", "<i4"), numcodecs.Shuffle(4), numcodecs.Fletcher32()]),
        "categorize": ("<U3", [numcodecs.Categorize(["1ö", "2ö", "4ö"], dtype="<U3", astype="u1")]),
    }
    for name, (dtype, steps) in filters.items():
        array = group.create_dataset(f"f/{name}", shape=SHAPE, chunks=CHUNKS, dtype=dtype, filters=steps)
        array[...] = numbers(dtype)
    fills = {
        "nan": ("<f4", float("nan")),
        "inf": (">f8", float("-inf")),
        "complex": ("<c8", complex(float("nan"), 1)),
        "nat": ("<M8[s]", np.datetime64("NaT")),
        "time": (">m8[s]", 7),
        "bytes": ("S3", b"ab"),
        "text": (">U3", "aö"),
        "bool": ("?", True),
        "big": ("<u8", 2**64 - 1),
        "null": ("<i4", None),
        "struct": ([("a", ">i2"), ("b", "<f4")], (1, 2.5)),
    }
    for name, (dtype, value) in fills.items():
        array = group.create_dataset(f"v/{name}", shape=SHAPE, chunks=CHUNKS, dtype=dtype, fill_value=value)
        rows = slice(None) if value is None else 1  # without a fill value zarr-python's own reading is random
        array[rows] = numbers(dtype)[rows]
    group.create_dataset("d/zero", shape=(), dtype=">i4")[...] = 5
    group.create_dataset("d/empty", shape=(0, 3), dtype="<i4")
    group.create_dataset("d/one", shape=(7,), chunks=(3,), dtype="<i4")[...] = numbers("<i4", (7,))
    group.create_dataset("d/slash", shape=SHAPE, chunks=CHUNKS, dtype="<i4", dimension_separator="/")[...] = numbers("<i4")
    objects(group)
    zarr.consolidate_metadata(f"{root}/a.zarr")
    group.create_dataset("d/late", shape=SHAPE, chunks=CHUNKS, dtype="<i4")[...] = numbers("<i4")
    nested = zarr.group(zarr.NestedDirectoryStore(f"{root}/nested.zarr"))
    nested.create_dataset("a", shape=SHAPE, chunks=CHUNKS, dtype="<i4")[...] = numbers("<i4")
    path = f"{root}/nested.zarr/a/.zarray"
    with open(path) as file:
        document = json.load(file)
    del document["dimension_separator"]  # as zarr-python before 2.8 wrote it
    with open(path, "w") as file:
        json.dump(document, file)
    lower = zarr.group(zarr.DirectoryStore(f"{root}/lower.zarr", normalize_keys=True))
    lower.create_dataset("Group/Array", shape=SHAPE, chunks=CHUNKS, dtype="<i4")[...] = numbers("<i4")


def objects(group: zarr.Group) -> None:
    texts = np.array(["a", "", "wörld", "\U0001f600", "x" * 300, "6", "7"], object)
    raws = np.array([b"a", b"", b"\xff\0", b"4", b"5" * 300, b"6", b"7"], object)
    lists = np.empty(7, object)
    lists[:] = [np.arange(i, dtype="<i4") for i in range(7)]
    codecs = {
        "vlen-utf8": (numcodecs.VLenUTF8(), texts),
        "vlen-bytes": (numcodecs.VLenBytes(), raws),
        "vlen-array": (numcodecs.VLenArray("<i4"), lists),
        "json2": (numcodecs.JSON(), texts),
        "msgpack2": (numcodecs.MsgPack(), texts),
        "categorize": (numcodecs.Categorize(["a", "wörld", "6"], dtype=object), texts),
        "pickle": (numcodecs.Pickle(), texts),
    }
    for name, (codec, data) in codecs.items():
        group.create_dataset(f"o/{name}", shape=(9,), chunks=(4,), dtype=object, object_codec=codec)[:7] = data
    square = np.array([[f"{row}{'é' * column}" for column in range(3)] for row in range(5)], object)
    for order in "CF":
        array = group.create_dataset(f"o/square{order}", shape=SHAPE, chunks=CHUNKS, dtype=object,
                                     object_codec=numcodecs.VLenUTF8(), order=order, fill_value="none")  # fmt: skip
        array[:4] = square[:4]


def plain(item: object) -> object:
    """An element as JSON: bytes and arrays in hexadecimal."""
    if isinstance(item, np.ndarray):
        item = item.tobytes()
    return item.hex() if isinstance(item, bytes) else item


def main() -> None:
    root = tempfile.mkdtemp()
    n5(root)
    zarr2(root)
    fixed, variable = {}, {}
    stores = {"a.n5": zarr.N5Store, "a.zarr": zarr.DirectoryStore, "lower.zarr": zarr.DirectoryStore}
    for name, kind in stores.items():

        def visit(path: str, node: object, name: str = name) -> None:
            if not isinstance(node, zarr.Array) or path == "o/pickle":
                return
            values = node[...]
            if node.dtype == object:
                items = [plain(item) for item in values.ravel()]
                variable[f"{name}/{path}"] = items
            else:
                fixed[f"{name}/{path}"] = values

        zarr.open_group(kind(f"{root}/{name}"), "r").visititems(visit)
    fixed["nested.zarr/a"] = numbers("<i4")
    np.savez_compressed(f"{root}/expected.npz", **fixed)
    with open(f"{root}/expected.json", "w") as file:
        json.dump(variable, file)
    target = os.path.join(HERE, "zarr_python_2.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder, _, names in sorted(os.walk(root)):
            for name in sorted(names):
                path = os.path.join(folder, name)
                archive.write(path, os.path.relpath(path, root))
    shutil.rmtree(root)
    print(os.path.getsize(target), "bytes; zarr", zarr.__version__, "numcodecs", numcodecs.__version__, file=sys.stderr)


if __name__ == "__main__":
    main()
