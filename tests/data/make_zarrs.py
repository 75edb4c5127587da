"""Makes `zarrs.zip`: arrays that the Rust crate zarrs wrote, by zarrista 0.1.0, with codecs, grids and keys of its own.

    pip install zarrista==0.1.0 && python make_zarrs.py

Beside each array of numbers NAME lies NAME.npy: what zarrista itself reads.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import zarrista
from zarrista.store import FilesystemStore

WAVES = np.sin(np.arange(4 * 6 * 5) / 9).reshape(4, 6, 5) * 100


def named(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, "configuration": configuration}


BYTES, ZSTD = named("bytes", endian="little"), named("zstd", level=1, checksum=False)


def document(dtype: Any, codecs: list[Any], chunks: list[int], shape: list[int], fill: Any = 0, **more: Any) -> Any:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": dtype,
        "chunk_grid": named("regular", chunk_shape=chunks),
        "chunk_key_encoding": named("default"),
        "fill_value": fill,
        "codecs": codecs,
        "attributes": {},
        **more,
    }


def numbers(dtype: str, *codecs: Any, chunks: tuple[int, ...] = (2, 3, 5), **more: Any) -> dict[str, Any]:
    return document(dtype, list(codecs), list(chunks), list(WAVES.shape), **more)


NUMBERS: dict[str, dict[str, Any]] = {
    "reshape": numbers("int16", named("reshape", shape=[[0, 1], -1]), BYTES, ZSTD),
    "reshape_transpose": numbers("float32", named("reshape", shape=[[0, 1], 5]), named("transpose", order=[1, 0]), BYTES),
    "transpose_reshape": numbers("float32", named("transpose", order=[2, 0, 1]), named("reshape", shape=[5, [1, 2]]), BYTES),
    "squeeze": numbers("int16", named("zarrs.squeeze"), BYTES, chunks=(1, 3, 5)),
    "squeeze_transpose": numbers("uint8", named("zarrs.squeeze"), named("transpose", order=[1, 0]), BYTES, chunks=(2, 1, 5)),
    "bounded": numbers("float32", BYTES, ZSTD, chunk_grid=named("zarrs.regular_bounded", chunk_shape=[3, 4, 5])),
    "default_suffix": numbers(
        "int16", BYTES, chunk_key_encoding=named("zarrs.default_suffix", separator="/", suffix=".bin")
    ),
    "flat_suffix": numbers("int16", BYTES, chunk_key_encoding=named("zarrs.default_suffix", separator=".", suffix=".bin")),
    "bitround": numbers("bfloat16", named("bitround", keepbits=3), BYTES),
}
WORDS = ["", "a", "wörld", "日本", "x" * 50, "b"]


def vlen(location: str | None, kind: str, *compressors: Any) -> dict[str, Any]:
    more = {} if location is None else {"index_location": location}
    data, index = [named("bytes"), *compressors], [BYTES, *compressors]
    return named("zarrs.vlen", data_codecs=data, index_codecs=index, index_data_type=kind, **more)


TEXTS = {
    "vlen": vlen(None, "uint32"),
    "vlen_end": vlen("end", "uint64", ZSTD),
    "vlen_v2": named("zarrs.vlen_v2"),
}
OPTIONAL = named("zarrs.optional", mask_codecs=[named("packbits")], data_codecs=[BYTES, ZSTD])


def main() -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for name, told in NUMBERS.items():
            write_numbers(root, name, told)
        for name, codec in TEXTS.items():
            for dtype in ("string", "bytes"):
                write_texts(root, f"{name}_{dtype}", codec, dtype)
        write_optional(root)
        with zipfile.ZipFile(Path(__file__).with_name("zarrs.zip"), "w", zipfile.ZIP_DEFLATED) as target:
            for path in sorted(root.rglob("*")):
                if path.is_file():
                    target.write(path, path.relative_to(root))


def created(root: Path, name: str, told: dict[str, Any]) -> Any:
    array = zarrista.Array.from_metadata(told, FilesystemStore(str(root)), f"/{name}")
    array.store_metadata()
    return array


def write_numbers(root: Path, name: str, told: dict[str, Any]) -> None:
    array, dtype = created(root, name, told), told["data_type"]
    if dtype == "bfloat16":
        values = (WAVES.astype("f4").view("u4") >> 16).astype("u2")
    else:
        values = WAVES.astype(dtype) if dtype[0] != "u" else (WAVES + 100).astype(dtype)
    array.store_array_subset(..., values.tobytes())
    found = np.frombuffer(array.retrieve_array_subset(...).buffer(), values.dtype)
    np.save(root / f"{name}.npy", found.reshape(told["shape"]))


def write_texts(root: Path, name: str, codec: dict[str, Any], dtype: str) -> None:
    array = created(root, name, document(dtype, [codec], [4], [len(WORDS)], "" if dtype == "string" else []))
    items = [word.encode() for word in WORDS]
    array.store_array_subset(..., zarrista.ArrayBytes(b"".join(items), offsets=np.cumsum([0, *map(len, items)]).tolist()))
    assert array.retrieve_array_subset(...).to_numpy().tolist() == (WORDS if dtype == "string" else items)


def write_optional(root: Path) -> None:
    dtype = {"name": "zarrs.optional", "configuration": {"name": "int16", "configuration": {}}}
    array = created(root, "optional", document(dtype, [OPTIONAL], [4], [8], None))
    mask = bytes([1, 0, 1, 1, 0, 0, 0, 1])
    array.store_array_subset(..., zarrista.ArrayBytes(np.arange(8, dtype="i2").tobytes(), mask=mask))


if __name__ == "__main__":
    main()
