"""Pickled object arrays, read without executing anything: the few values that can be in them, as plain data.

`pickletools.genops` reads the opcodes and their arguments. This module performs them, and cannot call anything: a global
name is a pair of strings, and "calling" one makes a record of the call. Afterwards the one shape that numpy writes for an
array of objects (hdmf-zarr's datasets of references) is recognised in these records; everything else is Unsupported. Work
and memory are limited by the length of the pickle and `MAX_STEPS`. Not here: what the elements mean (`references.py`).

Source: pickletools (the opcodes), numpy's `ndarray.__reduce__` (the array).
"""

from __future__ import annotations

import io
import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fsbridge.errors import CorruptData, FsbridgeError, TooLarge, Unsupported

MAX_STEPS = 4_000_000
"""Most opcodes of one pickle: about twenty for each reference, three seconds at worst."""
MAX_KEYS = 64
"""Most keys of one dictionary: a reference has four, but a tuple may name one dictionary again and again."""
MAX_INT_BITS = 127
"""Most bits of an integer: real ones are indexes."""


@dataclass(frozen=True, slots=True)
class Global:
    """A name that the pickle refers to. It is never imported."""

    module: str
    name: str


@dataclass(slots=True, eq=False)
class RecordedCall:
    """A recorded call in a pickle: the callable, its arguments, and the state and items that the result then gets."""

    what: Global
    arguments: tuple[Any, ...]
    state: Any = None
    items: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PickledArray:
    """An array of objects: its elements in C order, each None, bool, int, float, str, bytes, dict, or a tuple of those."""

    shape: tuple[int, ...]
    elements: list[Any]


_ALLOWED = frozenset(
    {
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy.core.multiarray", "_reconstruct"),  # numpy 1
        ("numpy._core.multiarray", "_reconstruct"),  # numpy 2
        ("_codecs", "encode"),  # how Python 3 writes the bytes of `_reconstruct` in protocol 2
        ("hdmf_zarr.utils", "ZarrReference"),
    }
)
_REFERENCE = Global("hdmf_zarr.utils", "ZarrReference")


def read_object_array(data: bytes | bytearray | memoryview, most_steps: int = MAX_STEPS) -> PickledArray:
    """Return the array of objects pickled in all of `data`.

    Raises Unsupported for any other pickle, CorruptData for bytes that are not a pickle, TooLarge for one with more than
    `most_steps` opcodes.
    """
    stream = io.BytesIO(data)
    try:
        value = _run(stream, most_steps)
        left = len(data) - stream.tell()
    except FsbridgeError:
        raise
    except (IndexError, ValueError, TypeError, KeyError) as error:
        raise CorruptData(f"damaged pickle: {error!r} before byte {stream.tell()}") from None
    if left:
        raise CorruptData(f"{left} bytes follow the pickle")
    return _make_array(value)


def _make_array(value: Any) -> PickledArray:
    """Return the array that `value` records.

    numpy writes `_reconstruct(ndarray, (0,), b'b')` with the state (1, shape, dtype, F-order, items).
    """
    if not isinstance(value, RecordedCall) or value.what.name != "_reconstruct" or not isinstance(value.state, tuple):
        raise Unsupported("the pickle is no numpy array, so it is no array of references")
    if len(value.state) != 5:
        raise Unsupported("the pickled numpy array has a state of an unknown version")
    version, shape, dtype, fortran, items = value.state
    if version != 1 or not _is_object_dtype(dtype) or not isinstance(items, list):
        raise Unsupported("the pickled numpy array has elements that are no objects, so it is no array of references")
    if not isinstance(shape, tuple) or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise CorruptData("the shape of a pickled array is not a tuple of sizes")
    if len(shape) > 32 or math.prod(shape) != len(items):
        raise CorruptData(f"the pickled array has shape {list(shape)}, but {len(items)} elements")
    if fortran and sum(extent > 1 for extent in shape) > 1:
        raise Unsupported("a pickled array of objects in Fortran order is not read")
    made: dict[int, Any] = {}  # an element that occurs often is converted once, so that work stays linear
    for item in items:
        if id(item) not in made:
            made[id(item)] = _make_plain(item)
    return PickledArray(shape, [made[id(item)] for item in items])


def _is_object_dtype(value: Any) -> bool:
    """Recognise `dtype('O8', ...)`, or a struct `dtype('V<n>', ...)`: numpy stores only arrays with objects as lists."""
    if not isinstance(value, RecordedCall) or value.what != Global("numpy", "dtype") or not value.arguments:
        return False
    code = value.arguments[0]
    return isinstance(code, str) and code[:1] in ("O", "V")


def _make_plain(item: Any) -> Any:
    """Return an element as plain data. A reference becomes its dictionary; tuples are a struct's fields."""
    if isinstance(item, RecordedCall | dict):
        return _make_reference(item)
    if isinstance(item, tuple):
        return tuple(_make_reference(part) if isinstance(part, RecordedCall | dict) else _check_leaf(part) for part in item)
    return _check_leaf(item)


def _make_reference(item: RecordedCall | dict[str, Any]) -> dict[str, Any]:
    if isinstance(item, RecordedCall) and (item.what != _REFERENCE or item.arguments):
        raise Unsupported(f"a pickled {item.what.module}.{item.what.name} is in place of a reference")
    pairs = item.items if isinstance(item, RecordedCall) else item
    if len(pairs) > MAX_KEYS:
        raise Unsupported(f"a pickled dictionary of {len(pairs)} keys is in place of a reference")
    return {key: _check_leaf(value) for key, value in pairs.items()}


def _check_leaf(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    raise Unsupported(f"an element of the pickle contains a {type(value).__name__}, as no reference does")


_MARK = object()


class _Machine:
    """The state of the pickle machine: a stack and a memo."""

    __slots__ = ("memo", "stack")

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def pop(self) -> Any:
        """Take the top of the stack, which must not be a mark."""
        value = self.stack.pop()
        if value is _MARK:
            raise CorruptData("the pickle is damaged: it uses a mark as a value")
        return value

    def pop_mark(self) -> list[Any]:
        """Take everything above the topmost mark, and the mark."""
        items: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            items.append(value)
        items.reverse()
        return items


def _run(stream: io.BytesIO, most_steps: int) -> Any:
    """Return the value that is left on the stack at STOP. `stream` is then behind it."""
    machine, codes = _Machine(), stream.getbuffer()
    steps = pickletools.genops(stream)
    for _ in range(most_steps):
        code = chr(codes[stream.tell()])
        known = _ACTIONS.get(code)
        if known is None:  # its argument is not read
            raise Unsupported(f"the pickle uses the opcode {code!r}, which no array of references needs")
        action, pushes = known
        opcode, argument, _ = next(steps)
        result = action(machine, argument)
        if pushes:
            machine.stack.append(result)
        elif opcode.name == "STOP":
            break
    else:
        raise TooLarge(f"the pickle has more than {most_steps} opcodes")
    if len(machine.stack) != 1:
        raise CorruptData(f"the pickle is damaged: it leaves {len(machine.stack)} values")
    return machine.stack[0]


def _check_text(argument: str) -> str:
    """Return the text. Raises UnicodeEncodeError for surrogates, which pickletools lets pass."""
    argument.encode("utf-8")
    return argument


def _check_integer(argument: int) -> int:
    if argument.bit_length() > MAX_INT_BITS:
        raise Unsupported(f"the pickle has an integer of {argument.bit_length()} bits; the limit is {MAX_INT_BITS}")
    return argument


def _make_global(module: Any, name: Any) -> Global:
    if not isinstance(module, str) or not isinstance(name, str) or (module, name) not in _ALLOWED:
        raise Unsupported(f"the pickle names {str(module)[:60]}.{str(name)[:60]}: only arrays of references are read")
    return Global(module, name)


def _take_global(machine: _Machine) -> Global:
    name = machine.pop()
    return _make_global(machine.pop(), name)


def _make(machine: _Machine) -> RecordedCall:
    """Record the call of REDUCE or NEWOBJ."""
    arguments, what = machine.pop(), machine.pop()
    if not isinstance(what, Global) or not isinstance(arguments, tuple):
        raise Unsupported("the pickle calls something other than a name")
    return RecordedCall(what, arguments)


def _build(machine: _Machine) -> None:
    state = machine.pop()
    target = machine.stack[-1]
    if not isinstance(target, RecordedCall) or target.state is not None:
        raise Unsupported("the pickle changes something it did not make")
    target.state = state


def _append(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    if not isinstance(target, list):
        raise Unsupported("the pickle appends to something other than a list")
    target.extend(items)


def _set_items(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    mapping = target.items if isinstance(target, RecordedCall) else target
    if not isinstance(mapping, dict):
        raise Unsupported("the pickle sets items of something other than a dictionary")
    mapping.update(_make_dict(items))


def _make_dict(items: list[Any]) -> dict[str, Any]:
    if len(items) % 2 or not all(isinstance(key, str) for key in items[::2]):
        raise Unsupported("a pickled dictionary has keys that are not text")
    return dict(zip(items[::2], items[1::2], strict=True))


def _memoize(machine: _Machine, index: int) -> None:
    if machine.stack[-1] is _MARK:
        raise CorruptData("the pickle is damaged: it remembers a mark")
    machine.memo[index] = machine.stack[-1]


def _take_tuple(machine: _Machine, count: int) -> tuple[Any, ...]:
    return tuple([machine.pop() for _ in range(count)][::-1])


def _check_protocol(number: int) -> None:
    if not 2 <= number <= 5:
        raise Unsupported(f"the pickle has protocol {number}; 2 to 5 are read")


_PUSHED: dict[str, Callable[[_Machine, Any], Any]] = {
    "NONE": lambda machine, argument: None,
    "NEWTRUE": lambda machine, argument: True,
    "NEWFALSE": lambda machine, argument: False,
    "BININT BININT1 BININT2 LONG1 LONG4": lambda machine, argument: _check_integer(argument),
    "BINFLOAT SHORT_BINBYTES BINBYTES BINBYTES8 SHORT_BINSTRING BINSTRING": lambda machine, argument: argument,
    "SHORT_BINUNICODE BINUNICODE BINUNICODE8": lambda machine, argument: _check_text(argument),
    "MARK": lambda machine, argument: _MARK,
    "EMPTY_LIST": lambda machine, argument: [],
    "EMPTY_DICT": lambda machine, argument: {},
    "EMPTY_TUPLE": lambda machine, argument: (),
    "LIST": lambda machine, argument: machine.pop_mark(),
    "DICT": lambda machine, argument: _make_dict(machine.pop_mark()),
    "TUPLE": lambda machine, argument: tuple(machine.pop_mark()),
    "TUPLE1": lambda machine, argument: _take_tuple(machine, 1),
    "TUPLE2": lambda machine, argument: _take_tuple(machine, 2),
    "TUPLE3": lambda machine, argument: _take_tuple(machine, 3),
    "BINGET LONG_BINGET": lambda machine, argument: machine.memo[argument],
    "GLOBAL": lambda machine, argument: _make_global(*argument.split(" ", 1)),
    "STACK_GLOBAL": lambda machine, argument: _take_global(machine),
    "REDUCE NEWOBJ": lambda machine, argument: _make(machine),
}
"""For each opcode that pushes a value: a function of the machine and the opcode's argument that returns this value."""

_DONE: dict[str, Callable[[_Machine, Any], object]] = {
    "PROTO": lambda machine, argument: _check_protocol(argument),
    "FRAME STOP": lambda machine, argument: None,
    "POP": lambda machine, argument: machine.stack.pop(),
    "POP_MARK": lambda machine, argument: machine.pop_mark(),
    "APPEND": lambda machine, argument: _append(machine, [machine.pop()]),
    "APPENDS": lambda machine, argument: _append(machine, machine.pop_mark()),
    "SETITEM": lambda machine, argument: _set_items(machine, [machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, argument: _set_items(machine, machine.pop_mark()),
    "BINPUT LONG_BINPUT": lambda machine, argument: _memoize(machine, argument),
    "MEMOIZE": lambda machine, argument: _memoize(machine, len(machine.memo)),
    "BUILD": lambda machine, argument: _build(machine),
}
"""For each other opcode: a function of the machine and the opcode's argument that changes the machine."""

_CODES = {opcode.name: opcode.code for opcode in pickletools.opcodes}
_ACTIONS = {
    _CODES[name]: (action, pushes)
    for pushes, table in ((True, _PUSHED), (False, _DONE))
    for names, action in table.items()
    for name in names.split()
}
"""For each opcode's byte its function, and whether the result is pushed."""
