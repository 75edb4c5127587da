"""`NAME.json`: its text, and its size without it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
from fake_model import fake_array

from fsbridge.layouts.files.arrays.description import (
    is_plain,
    make_description,
    measure_with_attributes,
    measure_without_attributes,
)
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.selection import select_all
from fsbridge.meaning import Axis, Meaning


def view(name: str, values: np.ndarray[Any, Any], axis: Axis, **changes: Any) -> View:
    array = fake_array(values, (2,) * values.ndim, **changes)
    return View(name, array.metadata, select_all(values.shape), Meaning((axis,) * values.ndim), False)


VIEWS = [
    view(name, np.zeros(shape, dtype), axis, attributes=attributes, fill=fill)
    for name in ("a", "b.c-1", "with space", "%2F", "\ua66e", 'q"uote', "\udcff")
    for shape, dtype in (((3, 4), "<u2"), ((3, 4), ">u2"), ((2, 2, 2), "<f4"), ((5,), "<i8"), ((), "<f8"))
    for axis in (
        Axis(),
        Axis("z", "micrometer", 1.0),
        Axis("z", "micrometer", 1),
        Axis("z", "millimeter", -0.0, 0.0),
        Axis('"axes": {}', '],\n  "attributes": {}', 0.25, -7.5),
        Axis("z", "\ua66e", float("inf")),
        Axis("\ua66e", None, float("nan")),
        Axis("\ua66e"),
    )
    for attributes, fill in (
        ({}, None),
        ({"a": "\ua66e", "attributes": {}}, b"\0" * np.dtype(dtype).itemsize),
        ({"n": float("nan")}, None),
    )
]


def test_descriptions_are_json_that_can_be_read() -> None:
    for one in VIEWS:
        assert json.loads(make_description(one, ()))["name"].encode("utf-8", "replace") == one.name.encode(
            "utf-8", "replace"
        )
    assert b"collisions" in make_description(VIEWS[0], ["one"])


def test_p2_the_size_of_a_description_is_known_without_it() -> None:
    for one in VIEWS:
        without = measure_without_attributes(one)
        assert measure_with_attributes(one, without) == len(make_description(one, ())), one
        alike = replace(one, metadata=replace(one.metadata, attributes={"other": [1, "\u00b5"]}))
        assert measure_with_attributes(alike, without) == len(make_description(alike, ())), one


def test_plain_names_of_one_length_take_equally_much_of_a_description() -> None:
    for one in VIEWS:
        sizes = {
            len(make_description(replace(one, name=name), ())) for name in ("abc", "A-z", "0.9", "...") if is_plain(name)
        }
        assert len(sizes) == 1, one
    assert not is_plain("LISTED")
    assert not is_plain("\u00b5")
