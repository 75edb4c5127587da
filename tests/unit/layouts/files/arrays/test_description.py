"""`NAME.json`: what is remembered of arrays that are alike changes no byte of it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from fake_model import fake_array

from fsbridge.layouts.files.arrays import description as module
from fsbridge.layouts.files.arrays.description import Described, _document, _text, description, is_plain, length
from fsbridge.layouts.files.arrays.extents import View
from fsbridge.layouts.files.arrays.selection import whole
from fsbridge.metadata import Axis


def view(name: str, values: np.ndarray[Any, Any], axis: Axis, **changes: Any) -> View:
    array = fake_array(values, (2,) * values.ndim, **changes)
    return View(name, array.metadata, whole(values.shape), (axis,) * values.ndim, False)


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


@pytest.mark.parametrize("first", [0, 1])
def test_descriptions_are_the_same_whichever_came_before(first: int) -> None:
    for one in VIEWS[first:] + VIEWS[:first]:
        content = description(one, ())
        assert content == _text(_document(one, ())), one
        json.loads(content)
    assert b"collisions" in description(VIEWS[0], ["one"])


def test_the_length_of_a_description_is_known_without_it() -> None:
    known = [(one, found) for one in VIEWS if (found := length(Described(one))) is not None]
    assert {one.name for one, _ in known} == {"a", "b.c-1"}
    assert all(found.of(one.name) == len(description(one, ())) for one, found in known)
    assert not is_plain("LISTED")


def test_arrays_that_differ_in_spacing_and_attributes_have_most_of_it_made_once() -> None:
    values = np.zeros((3, 4), "<u2")
    module._around.cache_clear()
    for number in range(20):
        axis = Axis("z", "micrometer", 1.0 + number, float(number))
        length(Described(view(f"a{number}", values, axis, attributes={"number": number})))
    assert module._around.cache_info().misses == 1


@pytest.mark.parametrize("dtype", [[("x", "<u2"), ("\ua66e", "u1")], [("x", [("a\ua66e", "<f4", (2,))]), ("y", "u1")]])
def test_names_of_fields_are_not_taken_for_the_name_of_the_array(dtype: Any) -> None:
    for name in ("a", "longer"):
        one = view(name, np.zeros(3, dtype), Axis())
        assert description(one, ()) == _text(_document(one, ()))
        assert length(Described(one)) is None


def test_arrays_that_differ_in_shape_have_one_document_made_each(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[View] = []
    monkeypatch.setattr(module, "_document", lambda view, collisions: made.append(view) or _document(view, collisions))
    module._around.cache_clear()
    for number in range(1, 20):
        length(Described(view("a", np.zeros((number, 4), "<u2"), Axis())))
    assert len(made) == 19
