"""Write `zarr34.zip`: Zarr v3 arrays of zarr-python 3.4, zarrs and pcodec 1, which need Python 3.12.

    python3.12 -m venv zarr34
    zarr34/bin/pip install zarr==3.4.2 'numcodecs[pcodec]==0.17.1' cast-value-rs==0.5.1 zarrs==0.2.3
    zarr34/bin/python tests/data/make_zarr34.py

Beside each array NAME stands NAME.npy: what the writer itself reads. The group `g` has the arrays that
`tests/promises/test_matrix.py` shows in every layout. Not for `fsbridge`'s own code.
"""

import tempfile
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zarr
from zarr.abc.codec import ArrayBytesCodec
from zarr.codecs import BytesCodec, CastValue, ScaleOffset, TransposeCodec
from zarr.codecs.numcodecs import PCodec
from zarr.registry import register_codec

RESULT = Path(__file__).parent / "zarr34.zip"
HERE = Path(tempfile.mkdtemp())
STRUCT = np.dtype([("a", "<i2"), ("b", "<f8"), ("s", "S3"), ("u", "<U2"), ("n", [("x", "u1"), ("t", "<M8[ns]")])])


@dataclass(frozen=True)
class PackBits(ArrayBytesCodec):
    """Only the name and parameters: zarrs does the work."""

    is_fixed_size = True
    parameters: tuple = ()

    @classmethod
    def from_dict(cls, data):
        return cls(tuple((data.get("configuration") or {}).items()))

    def to_dict(self):
        return {"name": "packbits", "configuration": dict(self.parameters)}

    def compute_encoded_size(self, *_):
        raise NotImplementedError

    async def _decode_single(self, *_):
        raise NotImplementedError

    async def _encode_single(self, *_):
        raise NotImplementedError


register_codec("packbits", PackBits)
zarr.config.set({"codecs.packbits": "__main__.PackBits", "array.rectilinear_chunks": True})


def write(name, data, region=..., **options):
    array = zarr.create_array(HERE / name, shape=data.shape, dtype=data.dtype, **options)
    array[region] = data[region]
    found = np.asarray(array[...])
    np.save(HERE / f"{name}.npy", np.array(found.tolist()) if found.dtype.kind == "T" else found)


def write_group():
    zarr.create_group(HERE)
    zarr.create_group(HERE / "g")
    volume = np.arange(3 * 40 * 50, dtype="u2").reshape(3, 40, 50) * 7
    write("g/volume", volume, chunks=[[1, 2], [25, 15], [20, 20, 10]])
    picture = np.arange(40 * 50, dtype="u1").reshape(40, 50)
    cast = {"filters": [CastValue(data_type="int16")], "serializer": BytesCodec(endian="little")}
    write("g/picture", picture, chunks=(20, 25), **cast)
    write("g/curve", np.linspace(-1, 1, 30) ** 3, chunks=(15,), filters=[ScaleOffset(offset=-1, scale=2)])
    labels = np.arange(2 * 20 * 30, dtype="u8").reshape(2, 20, 30) // 7
    write("g/labels", labels, chunks=(1, 5, 10), shards=[[2], [15, 5], [30]])
    write("g/words", np.array(["one", "zwö", "", "a,b"], np.dtypes.StringDType()), chunks=(2,))
    records = np.zeros(5, [("a", "<i2"), ("b", "<f8"), ("s", "S3")])
    records["a"], records["b"], records["s"] = np.arange(5), np.arange(5) / 7, b"xyz"
    write("g/records", records, chunks=(2,))


def main():
    rng = np.random.default_rng(34)
    numbers = rng.integers(-100, 100, (10, 6)).astype("i4")
    records = np.zeros(5, STRUCT)
    records["a"], records["b"], records["s"], records["u"] = np.arange(5), rng.normal(size=5), b"xyz", "éa"
    records["n"]["x"], records["n"]["t"] = 7, np.datetime64("2026-01-02", "ns")
    fill = np.array((1, 2.5, b"ab", "é", (3, 5)), STRUCT)[()]
    write_group()
    write("struct", records, slice(0, 2), chunks=(2,), fill_value=fill)
    write("struct_big", records, chunks=(3,), serializer=BytesCodec(endian="big"))
    write("rectilinear", numbers, chunks=[[3, 3, 4], [2, 4]])
    write("rectilinear_part", numbers, (slice(3, 6), slice(0, 2)), chunks=[[3, 3, 4], [2, 4]], fill_value=-1)
    write("rectilinear_shards", numbers, chunks=(2, 2), shards=[[4, 4, 2], [6]])
    write("scale_int", numbers, chunks=(4, 4), filters=[ScaleOffset(offset=-3, scale=5)])
    floats = rng.normal(size=(10, 6)).astype("f4")
    write("scale_float", floats, chunks=(4, 4), filters=[ScaleOffset(offset=0.5, scale=3)])
    write("pcodec", floats, chunks=(4, 4), serializer=PCodec())
    floats[2, 3] = np.nan
    maps = {"encode": [("NaN", 0)], "decode": [(0, "NaN")]}
    cast = CastValue(data_type="uint8", rounding="towards-zero", out_of_range="clamp", scalar_map=maps)
    write("cast", floats * 50, chunks=(4, 4), filters=[ScaleOffset(offset=-100, scale=1), cast], fill_value="NaN")
    wide = CastValue(data_type="float64")
    filters = [TransposeCodec(order=(1, 0)), wide]
    write("cast_wide", numbers, chunks=(4, 4), filters=filters, serializer=BytesCodec(endian="big"))
    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    # Whole chunks only: zarrs forgets `first_bit` where it decodes a part of one.
    for padding in ("none", "first_byte", "last_byte"):
        options = {"chunks": (5, 3), "compressors": [], "filters": []}
        packed = PackBits(parameters=(("padding_encoding", padding),))
        write(f"packbits_bool_{padding}", numbers % 2 == 0, serializer=packed, **options)
        packed = PackBits(parameters=(("padding_encoding", padding), ("first_bit", 1), ("last_bit", 8)))
        write(f"packbits_int_{padding}", (numbers * 2).astype("i2"), serializer=packed, **options)
    write("packbits_float", numbers.astype("f4"), serializer=PackBits(), **options)
    write("packbits_complex", numbers.astype("c8"), serializer=PackBits(parameters=(("first_bit", 16),)), **options)
    with zipfile.ZipFile(RESULT, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(HERE.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(HERE))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
