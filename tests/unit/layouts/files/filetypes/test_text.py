"""Texts as `.csv` and `.txt`: whatever they hold, a reader of the files gets them back, or an error."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import pytest

from fsbridge.config import Config
from fsbridge.errors import CorruptData
from fsbridge.layouts.files.elements.chunk_bytes import decode_items
from fsbridge.layouts.files.filetypes import text
from fsbridge.layouts.files.filetypes.cells import words
from fsbridge.mount.lifecycle import open_tree

TEXTS = [
    "a",
    "",
    "x\ry",
    "x\ny",
    "x\r\ny",
    'q"u',
    "c,d",
    " lead",
    "trail ",
    "\r",
    "\n",
    '"',
    "\x85",
    "\u2028",
    "\\n",
    "#",
    "é",
]


def write_store(path: Path, values: Any) -> Path:
    """A Zarr v2 array `a` of one chunk, not compressed."""
    (path / "s.zarr/a").mkdir(parents=True)
    document = {"zarr_format": 2, "shape": values.shape, "chunks": values.shape, "dtype": values.dtype.str, "order": "C"}
    if values.dtype.names is not None:
        document["dtype"] = values.dtype.descr
    document |= {"compressor": None, "filters": None, "fill_value": None}
    (path / "s.zarr/a/.zarray").write_text(json.dumps(document))
    (path / "s.zarr/a" / ".".join("0" * values.ndim)).write_bytes(values.tobytes())
    return path / "s.zarr"


def read_made(path: Path, name: str) -> bytes:
    tree = open_tree(Config(source=str(path), mountpoint="/nowhere", layout="files"))
    try:
        file: Any = tree.root.lookup(name.encode())
        handle = file.open()
        return bytes(handle.read(0, handle.size))
    finally:
        tree.close()


def read_rows(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode("utf-8", "surrogateescape"), newline="")))


@pytest.mark.parametrize("dtype", ["<U8", ">U8", "S8"])
def test_p12_texts_with_line_breaks_of_any_kind_are_one_cell_each(dtype: str, tmp_path: Path) -> None:
    """A carriage return was not quoted: readers saw another row there."""
    texts = np.array([text.encode() for text in TEXTS] if dtype == "S8" else TEXTS, dtype)
    assert read_rows(read_made(write_store(tmp_path / "1", texts), "a.csv")) == [["a"], *([text] for text in TEXTS)]
    table = np.stack([texts, texts[::-1]], 1)
    pairs = [list(pair) for pair in zip(TEXTS, TEXTS[::-1], strict=True)]
    assert read_rows(read_made(write_store(tmp_path / "2", table), "a.csv")) == [["c0", "c1"], *pairs]


def test_p12_texts_in_compounds_are_one_cell_each(tmp_path: Path) -> None:
    values = np.zeros(3, [("number", "<i4"), ("text", "<U4"), ("bytes", "S4")])
    values["text"], values["bytes"] = ["a\rb", "\r", ""], [b"\r", b"\xff,", b'"']
    content = read_made(write_store(tmp_path, values), "a.csv")
    assert read_rows(content) == [["number", "text", "bytes"], ["0", "a\rb", "\r"], ["0", "\r", "\udcff,"], ["0", "", '"']]
    assert content.startswith(b"number,text,bytes\n")


@pytest.mark.parametrize("code", [0xD800, 0xDC80, 0x110000])
@pytest.mark.parametrize("suffix", ["csv", "txt"])
@pytest.mark.parametrize("order", "<>")
def test_p3_what_is_no_character_is_damage(code: int, suffix: str, order: str, tmp_path: Path) -> None:
    """It was an error of the program, or bytes that are no text."""
    codes = np.array([97, 0, code, 98], f"{order}u4")
    with pytest.raises(CorruptData):
        read_made(write_store(tmp_path, codes.view(f"{order}U2")), f"a.{suffix}")


def test_p12_a_zero_character_is_never_left_out_of_hdf5(tmp_path: Path) -> None:
    """HDF5's texts and names end there: it was shown without, which is another text, and may be another's name."""
    path = write_store(tmp_path, np.array(["ab", "", "é"], "<U3"))
    (path / "a/.zattrs").write_text(json.dumps({"x\0y": 1, "x": 2, "z": "p\0q"}))
    write_store(tmp_path / "bad", np.array(["a\0b", "", "c"], "<U3"))
    (tmp_path / "bad/s.zarr/a").rename(path / "bad")
    with h5py.File(io.BytesIO(read_made(path, "a.h5"))) as file:
        assert file["a"].asstr()[()].tolist() == ["ab", "", "é"]
        assert dict(file["a"].attrs) == {"x": 2, "z": json.dumps("p\0q")}
    with pytest.raises(CorruptData, match="zero characters"):
        read_made(path, "bad.h5")
    with h5py.File(io.BytesIO(read_made(path, "s.h5"))) as file:
        assert list(file) == ["a"]
        assert "zero characters" in file.attrs["fsbridge_left_out"][0]


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8"])
def test_p12_numbers_are_written_as_exactly_as_readers_of_text_take_them(dtype: str, tmp_path: Path) -> None:
    """Whole numbers were told with so few digits as their type needs: 65504 as 6.55e+04."""
    values = np.array([0.1, -0.0, 1, 2049, 65504, 2**31, 16777217, 1e30, 5e-8, np.nan, np.inf, -np.inf], np.float64)
    with np.errstate(over="ignore"):
        values = values.astype(dtype)
    told = np.array([float(row[0]) for row in read_rows(read_made(write_store(tmp_path, values), "a.csv"))[1:]])
    np.testing.assert_array_equal(told.astype(dtype), values)
    whole = values == np.floor(values)
    np.testing.assert_array_equal(told[whole], values[whole].astype(np.float64))
    assert whole.sum() > 5
    assert told[0] == (float(values[0]) if dtype == "<f8" else float(str(values[0])))


@pytest.mark.parametrize("dtype", ["<M8", ">M8"])
def test_p12_times_without_a_unit_are_their_counts(dtype: str, tmp_path: Path) -> None:
    values = np.array([0, -3, 2**62, -(2**63)], "i8").astype(np.dtype(dtype))
    assert read_rows(read_made(write_store(tmp_path, values), "a.csv")) == [["a"], ["0"], ["-3"], [str(2**62)], [""]]


def columns(part: Any) -> list[list[str]]:
    flat = words(part.reshape(-1))
    return [flat[column :: part.size // len(part)] for column in range(part.size // len(part))]


@pytest.mark.parametrize("suffix", ["csv", "txt"])
def test_p6_making_a_file_of_texts_takes_little_more_than_their_bytes(suffix: str) -> None:
    texts = np.array(["x" * 100_000] * 100, object)
    tracemalloc.start()
    try:
        content = text._csv(texts, ["a"], columns, None, 1 << 25) if suffix == "csv" else text._txt(texts, 1 << 25)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert content.removeprefix(b"a\n") == (b"x" * 100_000 + b"\n") * 100
    assert peak < 2 * len(content)


@pytest.mark.parametrize("shape", [(9000,), (4500, 2)])
def test_p12_texts_are_written_in_parts_and_none_is_left_out(shape: tuple[int, ...]) -> None:
    texts = np.array([str(i) * (i % 3000) for i in range(9000)], object).reshape(shape)
    content = bytes(text._csv(texts, ["a"], columns, None, 1 << 28))
    csv.field_size_limit(1 << 20)
    assert read_rows(content) == [["a"], *texts.reshape(len(texts), -1).tolist()]
    if texts.ndim == 1:
        assert text._txt(texts, 1 << 28) == content.removeprefix(b"a\n").replace(b'""', b"")


def test_items_of_a_chunk_are_those_that_numcodecs_wrote_or_it_is_corrupt() -> None:
    texts = np.array(["a", "", "h\u00e9llo", "d"], object)
    binary = np.array([b"\0", b"", b"\xff\xfe", b"d"], object)
    for kind, codec, items in (("vlen-utf8", numcodecs.VLenUTF8(), texts), ("vlen-bytes", numcodecs.VLenBytes(), binary)):
        stored = bytes(codec.encode(items))
        for count in range(5):
            assert decode_items(kind, memoryview(stored), count) == items[:count].tolist()
        with pytest.raises(CorruptData):
            decode_items(kind, memoryview(stored), 5)
        for cut in range(len(stored)):
            with pytest.raises(CorruptData):
                decode_items(kind, memoryview(stored[:cut]), 4)
