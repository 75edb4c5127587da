"""The reader of pickled object arrays reads what numpy and hdmf-zarr pickle, and never executes anything in a pickle."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsbridge.errors import CorruptData, FsbridgeError, TooLarge, Unsupported
from fsbridge.formats.hdmf.unpickle import read_object_array

MUTATIONS = 300


class ZarrReference(dict[str, Any]):
    """Pickled under the name of hdmf-zarr's class, which need not be installed."""


ZarrReference.__module__ = "hdmf_zarr.utils"


@pytest.fixture(autouse=True)
def hdmf_zarr(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pickle.dumps` looks the class up."""
    module = types.ModuleType("hdmf_zarr.utils")
    vars(module)["ZarrReference"] = ZarrReference
    monkeypatch.setitem(sys.modules, "hdmf_zarr", types.ModuleType("hdmf_zarr"))
    monkeypatch.setitem(sys.modules, "hdmf_zarr.utils", module)


def make_objects(*elements: Any) -> np.ndarray[Any, Any]:
    array = np.empty(len(elements), object)
    for i, element in enumerate(elements):
        array[i] = element
    return array


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_references_of_every_protocol_are_read(protocol: int) -> None:
    references = [ZarrReference(source=".", path=f"/a/{i}", object_id="x") for i in range(3)]
    data = pickle.dumps(make_objects(*references, references[0]), protocol)
    found = read_object_array(data)
    assert found.shape == (4,)
    assert found.elements == [dict(r) for r in (*references, references[0])]
    assert all(type(element) is dict for element in found.elements)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_structs_with_a_reference_are_tuples(protocol: int) -> None:
    array = np.empty((2, 2), [("n", "<i4"), ("x", "<f8"), ("r", "O")])
    for i in range(4):
        array.reshape(-1)[i] = (i, i / 4, ZarrReference(path=f"/{i}"))
    found = read_object_array(pickle.dumps(array, protocol))
    assert found.shape == (2, 2)
    assert found.elements == [(i, i / 4, {"path": f"/{i}"}) for i in range(4)]


def test_plain_elements_are_what_was_pickled() -> None:
    elements = [None, True, False, 0, -1, 1 << 40, -(1 << 100), 1.5, "", "wörld\N{SNOWMAN}", b"\0x", {"path": "/p"}]
    assert read_object_array(pickle.dumps(make_objects(*elements))).elements == elements
    assert read_object_array(pickle.dumps(make_objects())).elements == []
    assert read_object_array(pickle.dumps(make_objects("a" * 70000, b"b" * 300))).elements == ["a" * 70000, b"b" * 300]


def test_pickles_of_numpy_1_name_its_old_module() -> None:
    data = pickle.dumps(make_objects("a"), 2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert read_object_array(data).elements == ["a"]


class Calls:
    """An object; loading its pickle calls `function(*arguments)`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.function, self.arguments


class Rebuilds(dict[str, Any]):
    """A pickle that makes an allowed object and then puts state into it."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return ZarrReference, (), self.state


def make_hostile(canary: Path) -> dict[str, Any]:
    command = f"touch {canary}"
    return {
        "os.system": Calls(os.system, command),
        "os.system in an array": make_objects(Calls(os.system, command)),
        "subprocess": make_objects(Calls(subprocess.call, ["touch", str(canary)])),
        "eval": make_objects(Calls(eval, f"open({str(canary)!r}, 'w')")),
        "exec in a dict": make_objects({"path": Calls(exec, f"open({str(canary)!r}, 'w')")}),
        "open": make_objects(Calls(open, str(canary), "w")),
        "getattr": make_objects(Calls(getattr, "os", "system")),
        "import": make_objects(Calls(__import__, "os")),
        "np.load": make_objects(Calls(np.load, str(canary))),
        "np.ndarray with a huge shape": make_objects(Calls(np.ndarray, (1 << 40,))),
        "np.dtype as an element": make_objects(np.dtype("i4")),
        "a nested array": make_objects(np.arange(3)),
        "state in a reference": make_objects(Rebuilds({"__class__": os.system})),
        "arguments of a reference": make_objects(Calls(ZarrReference, {"path": "/x"})),
        "a class": make_objects(Path),
        "a list": make_objects([1, 2]),
        "a set": make_objects({1, 2}),
        "a complex number": make_objects(1j),
        "a numpy scalar": make_objects(np.float64(1)),
        "no array": {"path": "/x"},
        "numbers": np.arange(4),
    }


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_anything_else_is_unsupported_and_executes_nothing(tmp_path: Path, protocol: int) -> None:
    canary = tmp_path / "canary"
    for name, value in make_hostile(canary).items():
        data = pickle.dumps(value, protocol)
        with pytest.raises(Unsupported):
            read_object_array(data)
        assert not canary.exists(), name


def test_protocols_0_and_1_are_unsupported() -> None:
    for protocol in (0, 1):
        with pytest.raises(FsbridgeError):
            read_object_array(pickle.dumps(make_objects("a"), protocol))


def test_opcodes_that_reach_for_more_are_unsupported() -> None:
    for opcode in (b"i", b"o", b"P", b"Q", b"\x82", b"\x83", b"\x84", b"\x92", b"\x96", b"\x97", b"\x98", b"2"):
        with pytest.raises(Unsupported, match="opcode"):
            read_object_array(b"\x80\x05" + opcode + b"x\n" * 4 + b".")


def test_deep_nesting_is_refused_without_recursion() -> None:
    for nest in (b"\x85" * 500_000, b"(" * 500_000, b"]" + b"]a" * 200_000):
        with pytest.raises(FsbridgeError):
            read_object_array(b"\x80\x05)" + nest + b".")
    deep = pickle.dumps(make_objects("x"))[:-1] + b"\x85" * 300_000 + b"."
    with pytest.raises(Unsupported):
        read_object_array(deep)


def test_lengths_are_bounded_by_the_pickle() -> None:
    bombs = [
        b"\x80\x05\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",  # 8 EiB of bytes
        b"\x80\x05\x8d\x00\x00\x00\x00\x00\x01\x00\x00.",  # 1 TiB of text
        b"\x80\x05\x8b\xff\xff\xff\x7f.",  # an integer of 2 GiB
        b"\x80\x05\x95\xff\xff\xff\xff\xff\xff\xff\xff.",  # a frame
        b"\x80\x05Nr\xff\xff\xff\xff.",  # memo number 2^32 - 1: a list of that length in CPython's unpickler
        b"\x80\x05h\x05.",
        b"\x80\x05",
        b"",
        b".",
        b"\x80\x05N",
    ]
    for bomb in bombs:
        with pytest.raises(FsbridgeError):
            read_object_array(bomb)


def test_a_shared_dictionary_costs_no_more_than_its_own_size() -> None:
    shared = {f"k{i}": "v" for i in range(60)}
    found = read_object_array(pickle.dumps(make_objects(*[shared] * 5000)))
    assert all(element is found.elements[0] for element in found.elements)
    with pytest.raises(Unsupported, match="keys"):
        read_object_array(pickle.dumps(make_objects({str(i): i for i in range(100)})))


def test_the_number_of_opcodes_is_bounded() -> None:
    with pytest.raises(TooLarge):
        read_object_array(b"\x80\x05" + b"N0" * 600 + b".", most_steps=1000)


def test_a_wrong_shape_is_corrupt() -> None:
    data = pickle.dumps(make_objects("a", "b"), 4)
    assert b"K\x02\x85" in data
    with pytest.raises(CorruptData, match="shape"):
        read_object_array(data.replace(b"K\x02\x85", b"K\x03\x85"))
    with pytest.raises(CorruptData, match="follow"):
        read_object_array(data + b"x")


def test_fortran_order_is_unsupported() -> None:
    array = np.asfortranarray(np.array([["a", "b"], ["c", "d"]], object))
    with pytest.raises(Unsupported, match="Fortran"):
        read_object_array(pickle.dumps(array))


SAMPLE = pickle.dumps(np.array(["some text", None, {"path": "/a/b"}, 7], object))


@settings(max_examples=MUTATIONS, deadline=None)
@given(st.integers(0, len(SAMPLE) - 1), st.binary(min_size=0, max_size=6), st.integers(0, 6))
def test_damaged_pickles_give_an_error_or_plain_data(position: int, inserted: bytes, removed: int) -> None:
    damaged = SAMPLE[:position] + inserted + SAMPLE[position + removed :]
    try:
        found = read_object_array(damaged)
    except FsbridgeError:
        return
    for element in found.elements:
        assert type(element) in (type(None), bool, int, float, str, bytes, dict, tuple)


@settings(max_examples=MUTATIONS, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_give_an_error(data: bytes) -> None:
    with pytest.raises(FsbridgeError):
        read_object_array(b"\x80\x05" + data)
