"""Imaris: extents, sizes of levels, and channels, by the attributes of the published format (`ImarisWriter`)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from fake_model import fake_array

from fsbridge.meaning import Axis, Channel, Meaning
from fsbridge.meaning.convention import Written
from fsbridge.meaning.reading import read_array

DATA = fake_array(np.zeros((8, 8, 8), "u2"), (8, 8, 8)).metadata
IMAGE = {
    "X": "6", "Y": "4", "Z": "3", "Unit": "um", "ExtMin0": "2.500", "ExtMax0": "5.5", "ExtMin1": "-10", "ExtMax1": "-6",
    "ExtMin2": "0", "ExtMax2": "6.0000",
}  # fmt: skip
CHANNEL = {"Name": "DAPI", "Color": "1.000 0.502 0.000", "ColorRange": "2.000 50.000", "ColorMode": "BaseColor"}


def letters(written: Mapping[str, str]) -> dict[str, Any]:
    return {name: list(value) for name, value in written.items()}


def read(
    image: Mapping[str, Any] | None = None,
    channel: Mapping[str, Any] | None = None,
    sizes: tuple[str, str, str] = ("3", "4", "6"),
    path: str = "DataSet/ResolutionLevel 0/TimePoint 1/Channel 2/Data",
) -> Meaning:
    information = path.partition("/")[0].replace("DataSet", "DataSetInfo")
    known: dict[tuple[str, ...], Mapping[str, Any]] = {
        ("a.ims", information, "Image"): letters(IMAGE) if image is None else image,
        ("a.ims", information, "Channel 2"): letters(CHANNEL) if channel is None else channel,
    }
    group = letters(dict(zip(("ImageSizeZ", "ImageSizeY", "ImageSizeX"), sizes, strict=True)))
    return read_array(Written(DATA, (group, {}, {}, {}), ("a.ims", *path.split("/")), distant=known.get))


@pytest.mark.parametrize("number", ["", "1"])
def test_the_first_element_lies_half_an_element_from_the_corner(number: str) -> None:
    path = f"DataSet{number}/ResolutionLevel 0/TimePoint 1/Channel 2/Data"
    assert read(path=path).axes == (
        Axis("z", "micrometer", 2.0, 1.0, "space"),
        Axis("y", "micrometer", 1.0, -9.5, "space"),
        Axis("x", "micrometer", 0.5, 2.75, "space"),
    )


def test_levels_cover_the_same_extent_by_their_own_sizes() -> None:
    axes = read(sizes=("1", "2", "3"), path="DataSet/ResolutionLevel 1/TimePoint 0/Channel 2/Data").axes
    assert [(axis.scale, axis.offset) for axis in axes] == [(6.0, 3.0), (2.0, -9.0), (1.0, 3.0)]


def test_a_channel_has_its_name_colour_and_window() -> None:
    image = read().image
    assert image is not None
    assert image.channels == (Channel("DAPI", (255, 128, 0), (2.0, 50.0)),)
    image = read(channel=letters({**CHANNEL, "ColorMode": "TableColor", "ColorRange": "5 5", "Name": " "})).image
    assert image is not None
    assert image.channels == (Channel(),), "colours of a table are not that one"


@pytest.mark.parametrize("content", ["µm".encode(), "µm".encode("latin-1")])
def test_letters_that_are_no_text_by_themselves_count(content: bytes) -> None:
    encoded = [
        {"_TYPE": {}, "_BASE64": base64.b64encode(bytes([one])).decode()} if one > 127 else chr(one) for one in content
    ]
    assert [axis.unit for axis in read({**letters(IMAGE), "Unit": encoded}).axes] == ["micrometer"] * 3
    assert [axis.unit for axis in read({**letters(IMAGE), "Unit": [{"_BASE64": "?"}, "m"]}).axes] == [None] * 3


@pytest.mark.parametrize(
    "wrong", [{"ExtMax0": ["n", "a", "n"]}, {"ExtMax0": ["x"]}, {"ExtMax0": list("2.5")}, {"ExtMax0": 7}]
)
def test_an_extent_that_makes_no_sense_is_unknown(wrong: Mapping[str, Any]) -> None:
    assert [axis.scale for axis in read({**letters(IMAGE), **wrong}).axes] == [2.0, 1.0, None]


@pytest.mark.parametrize(
    "path", ["DataSet/ResolutionLevel 0/Channel 2/Data", "Set/ResolutionLevel 0/TimePoint 0/Channel 2/Data"]
)
def test_other_arrays_are_none_of_imaris(path: str) -> None:
    assert read(path=path) == Meaning((Axis(),) * 3)
    assert read(sizes=("", "0", "-1")).axes == tuple(Axis(name, "micrometer", kind="space") for name in "zyx")
