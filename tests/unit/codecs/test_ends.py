"""Data of imagecodecs that were cut, in every variant of the formats that say how long they are."""

from __future__ import annotations

import json
import struct
from typing import Any

import codec_writers
import numpy as np
import pytest

from fsbridge.codecs.ends import check_end
from fsbridge.codecs.images import library
from fsbridge.errors import CorruptData

RNG = np.random.default_rng(5)
SLICE, VOLUME = RNG.random((17, 30)).astype("f4"), RNG.random((12, 17, 30))
MODES: list[tuple[str | int, float]] = [
    ("bpp", 3.3),
    ("bpp", 80),
    ("psnr", 50),
    ("pwe", 1e-6),
    (1, 0.37),
    (3, 1e-2),
]


def make_cuts(stored: bytes) -> list[bytes]:
    return [stored[:length] for length in (*range(0, len(stored), max(1, len(stored) // 40)), len(stored) - 1)]


def assert_refused(codec: str, stored: bytes, options: dict[str, Any]) -> None:
    with pytest.raises(CorruptData):
        check_end(codec, memoryview(stored), options)


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize(("mode", "level"), MODES)
@pytest.mark.parametrize(
    ("values", "chunks"),
    [(SLICE, None), (np.full_like(SLICE, 2.5), None), (VOLUME, None), (VOLUME, (6, 8, 9)), (VOLUME, (5, 17, 20))],
)
def test_sperr_data_have_the_length_that_they_say(
    values: np.ndarray, chunks: tuple[int, int, int] | None, mode: str | int, level: float, header: bool
) -> None:
    codec = library().Sperr(mode=mode, level=level, chunks=chunks, header=header, shape=values.shape, dtype=values.dtype)
    stored, options = bytes(codec.encode(values)), json.loads(json.dumps(codec.get_config()))
    check_end("sperr", memoryview(stored), options)
    for cut in make_cuts(stored):
        assert_refused("sperr", cut, options)
    assert_refused("sperr", stored + b"\0", options)


PICTURES = {
    "grey": RNG.integers(0, 255, (40, 51), "u1"),
    "colours": RNG.integers(0, 255, (40, 51, 3), "u1"),
    "alpha": RNG.integers(0, 255, (40, 51, 4), "u1"),
    "deep alpha": RNG.integers(0, 65535, (16, 33, 4), "u2"),
    "floats": RNG.random((40, 51)).astype("f4"),
}


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("level", [None, 0.4])
def test_jpeg_xr_data_have_the_image_and_the_alpha_plane_that_they_say(name: str, level: float | None) -> None:
    stored = bytes(library().Jpegxr(level=level).encode(PICTURES[name]))
    check_end("jpegxr", memoryview(stored), {})
    check_end("jpegxr", memoryview(stored + b"more"), {})
    for cut in make_cuts(stored):
        assert_refused("jpegxr", cut, {})


def test_the_length_of_a_jpeg_xr_alpha_plane_may_be_as_the_standard_has_it() -> None:
    """It is the number of bytes there, and with jxrlib the place where the plane ends."""
    codec, stored = library().Jpegxr(), bytearray(library().Jpegxr().encode(PICTURES["alpha"]))
    at, size = (stored.index(struct.pack("<HHI", tag, 4, 1)) + 8 for tag in (0xBCC2, 0xBCC3))
    (start,), (end,) = struct.unpack_from("<I", stored, at), struct.unpack_from("<I", stored, size)
    assert end == len(stored)
    struct.pack_into("<I", stored, size, end - start)
    assert np.array_equal(codec.decode(bytes(stored)), PICTURES["alpha"])
    check_end("jpegxr", memoryview(bytes(stored)), {})
    assert_refused("jpegxr", bytes(stored[:-1]), {})


@pytest.mark.parametrize("codec", ["qoi", "jpeg", "ljpeg", "htj2k"])
def test_data_with_an_end_mark_end_with_it(codec: str) -> None:
    stored = codec_writers.chunk(f"imagecodecs_{codec}").stored
    check_end(codec, memoryview(stored), {})
    for length in range(len(stored)):
        assert_refused(codec, stored[:length], {})
    assert_refused(codec, stored + b"\0", {})


@pytest.mark.parametrize("options", [{}, {"contentchecksum": True}, {"contentchecksum": True, "blockchecksum": True}])
@pytest.mark.parametrize("decoded", [b"", b"abc" * 100, RNG.bytes(300), RNG.bytes(1 << 17)], ids=len)
def test_lz4_frames_have_the_blocks_and_checksums_that_they_say(decoded: bytes, options: dict[str, bool]) -> None:
    """The library decodes what there is. If the size is not known, only this shows that there was more."""
    stored = bytes(library().Lz4f(**options).encode(decoded))
    check_end("lz4f", memoryview(stored), {})
    for cut in make_cuts(stored):
        assert_refused("lz4f", cut, {})
    assert_refused("lz4f", stored + b"more", {})


def test_sperr_data_without_the_header_that_they_should_have_are_damage() -> None:
    for stored in (b"", b"\0", bytes(14), b"\xff" * 40, b"\0\x70" + b"\xff" * 12 + bytes(40)):
        assert_refused("sperr", stored, {"mode": "bpp", "level": 4.0})


def test_what_a_sperr_picture_lacks_behind_its_first_bit_stream_is_not_told() -> None:
    """The exception that docs/formats.md names."""
    codec = library().Sperr(mode="pwe", level=0.3)
    stored, options = bytes(codec.encode(SLICE)), codec.get_config()
    first = 27 + 9 + -(-struct.unpack_from("<Q", stored, 28)[0] // 8)
    assert first < len(stored)
    check_end("sperr", memoryview(stored[:first]), options)
    for length in {*range(len(stored))} - {first}:
        assert_refused("sperr", stored[:length], options)
