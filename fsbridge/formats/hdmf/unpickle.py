"""Pickled object arrays, read without executing anything: the few values that can be in them, as plain data.

This is not Python's unpickler with a filter but a reader of the pickle language that cannot call anything: a global name is
a pair of strings, and "calling" one makes a record of the call. Afterwards the one shape that numpy writes for an array of
objects (hdmf-zarr's datasets of references) is recognised in these records; everything else is Unsupported. Work and memory
are bounded by the length of the pickle and `MAX_STEPS`. Not here: what the elements mean (`groups.py`).

Source: Lib/pickletools.py (the opcodes), numpy's `ndarray.__reduce__` (the array).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fsbridge.errors import CorruptData, FsbridgeError, TooLarge, Unsupported

MAX_STEPS = 4_000_000
"""Opcodes of one pickle: about twenty for each reference, two seconds at worst."""
MAX_KEYS = 64
"""Keys of one dictionary: a reference has four. A tuple may name one dictionary again and again."""
MAX_INT_BYTES = 16
"""Longest integer: real ones are indexes."""


@dataclass(frozen=True, slots=True)
class Global:
    """A name that the pickle refers to; never imported."""

    module: str
    name: str


@dataclass(slots=True, eq=False)
class Made:
    """What a pickle says it makes: the callable, its arguments, and what is then put into it."""

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


def read_object_array(data: bytes | bytearray | memoryview) -> PickledArray:
    """The array of objects pickled in all of `data`.

    Raises Unsupported for any pickle of something else, CorruptData for bytes that are no pickle, TooLarge above MAX_STEPS.
    """
    machine = _Machine(bytes(data))
    try:
        value = machine.run()
    except FsbridgeError:
        raise
    except (IndexError, ValueError, TypeError, KeyError, struct.error) as error:
        raise CorruptData(f"damaged pickle: {error!r} before byte {machine.position}") from None
    return _array(value)


def _array(value: Any) -> PickledArray:
    """The array that `value` records: `_reconstruct(ndarray, (0,), b'b')`, state (1, shape, dtype, F-order, items)."""
    if not isinstance(value, Made) or value.what.name != "_reconstruct" or not isinstance(value.state, tuple):
        raise Unsupported("a pickle of something other than a numpy array")
    if len(value.state) != 5:
        raise Unsupported("a pickled numpy array of another version")
    version, shape, dtype, fortran, items = value.state
    if version != 1 or not _is_object_dtype(dtype) or not isinstance(items, list):
        raise Unsupported("a pickled numpy array whose elements are no objects")
    if not isinstance(shape, tuple) or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise CorruptData("a pickled array whose shape is none")
    if len(shape) > 32 or math.prod(shape) != len(items):
        raise CorruptData(f"pickled array of shape {list(shape)} with {len(items)} elements")
    if fortran and sum(extent > 1 for extent in shape) > 1:
        raise Unsupported("a pickled array of objects in Fortran order")
    made: dict[int, Any] = {}  # an element that occurs often is converted once, so that work stays linear
    for item in items:
        if id(item) not in made:
            made[id(item)] = _plain(item)
    return PickledArray(shape, [made[id(item)] for item in items])


def _is_object_dtype(value: Any) -> bool:
    """`dtype('O8', ...)`, or a struct, `dtype('V<n>', ...)` with fields: numpy stores only arrays with objects as lists."""
    if not isinstance(value, Made) or value.what != Global("numpy", "dtype") or not value.arguments:
        return False
    code = value.arguments[0]
    return isinstance(code, str) and code[:1] in ("O", "V")


def _plain(item: Any) -> Any:
    """An element as plain data: a reference is the dictionary it holds; tuples are a struct's fields."""
    if isinstance(item, Made | dict):
        return _reference(item)
    if isinstance(item, tuple):
        return tuple(_reference(part) if isinstance(part, Made | dict) else _leaf(part) for part in item)
    return _leaf(item)


def _reference(item: Made | dict[str, Any]) -> dict[str, Any]:
    if isinstance(item, Made) and (item.what != _REFERENCE or item.arguments):
        raise Unsupported(f"a pickled {item.what.module}.{item.what.name} where a reference would be")
    pairs = item.items if isinstance(item, Made) else item
    if len(pairs) > MAX_KEYS:
        raise Unsupported(f"a pickled dictionary of {len(pairs)} keys where a reference would be")
    return {key: _leaf(value) for key, value in pairs.items()}


def _leaf(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    raise Unsupported(f"a pickled {type(value).__name__} inside an element")


_MARK = object()


class _Machine:
    """The pickle machine: a stack, a memo, and opcodes that only move data. `position`: next byte."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        """The value before STOP, which must be the last byte."""
        for _ in range(MAX_STEPS):
            opcode = self.data[self.position : self.position + 1]
            self.position += 1
            if opcode == b".":
                break
            if opcode == b"":
                raise CorruptData("the pickle ends too early")
            action = _ACTIONS.get(opcode)
            if action is None:
                raise Unsupported(f"pickle opcode {opcode!r}")
            action(self)
        else:
            raise TooLarge(f"a pickle of more than {MAX_STEPS} opcodes")
        if self.position != len(self.data) or len(self.stack) != 1:
            raise CorruptData(f"{len(self.data) - self.position} bytes follow the pickle")
        return self.stack[0]

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if not 0 <= size <= len(self.data) - self.position:
            raise CorruptData(f"a pickled value of {size} bytes where {len(self.data) - self.position} are left")
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self, form: str) -> Any:
        """One number in `struct` format."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        """Text up to the end of the line."""
        end = self.data.index(b"\n", self.position)
        text = self.data[self.position : end].decode("utf-8")
        self.position = end + 1
        return text

    def pop(self) -> Any:
        """The top of the stack, which must not be a mark."""
        value = self.stack.pop()
        if value is _MARK:
            raise CorruptData("a pickle that takes a mark for a value")
        return value

    def pop_mark(self) -> list[Any]:
        """Everything above the topmost mark, and the mark."""
        items: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            items.append(value)
        items.reverse()
        return items


def _push(read: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    """An opcode that pushes what `read` reads."""

    def action(machine: _Machine) -> None:
        machine.stack.append(read(machine))

    return action


def _long(machine: _Machine, size: int) -> int:
    if size > MAX_INT_BYTES:
        raise Unsupported(f"a pickled integer of {size} bytes")
    return int.from_bytes(machine.take(size), "little", signed=True)


def _global(module: Any, name: Any) -> Global:
    if not isinstance(module, str) or not isinstance(name, str) or (module, name) not in _ALLOWED:
        raise Unsupported(f"a pickle that names {str(module)[:60]}.{str(name)[:60]}: only arrays of references are read")
    return Global(module, name)


def _stack_global(machine: _Machine) -> Global:
    name = machine.pop()
    return _global(machine.pop(), name)


def _make(machine: _Machine) -> Made:
    """REDUCE and NEWOBJ: a record of the call."""
    arguments, what = machine.pop(), machine.pop()
    if not isinstance(what, Global) or not isinstance(arguments, tuple):
        raise Unsupported("a pickle that calls something other than a name")
    return Made(what, arguments)


def _build(machine: _Machine) -> None:
    state = machine.pop()
    target = machine.stack[-1]
    if not isinstance(target, Made) or target.state is not None:
        raise Unsupported("a pickle that changes something it did not make")
    target.state = state


def _append(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    if not isinstance(target, list):
        raise Unsupported("a pickle that appends to something other than a list")
    target.extend(items)


def _set_items(machine: _Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    mapping = target.items if isinstance(target, Made) else target
    if not isinstance(mapping, dict):
        raise Unsupported("a pickle that sets items of something other than a dictionary")
    mapping.update(_dict(items))


def _dict(items: list[Any]) -> dict[str, Any]:
    if len(items) % 2 or not all(isinstance(key, str) for key in items[::2]):
        raise Unsupported("a pickled dictionary whose keys are no text")
    return dict(zip(items[::2], items[1::2], strict=True))


def _memoize(machine: _Machine, index: int) -> None:
    if machine.stack[-1] is _MARK:
        raise CorruptData("a pickle that remembers a mark")
    machine.memo[index] = machine.stack[-1]


def _tuple_of(count: int) -> Callable[[_Machine], tuple[Any, ...]]:
    return lambda machine: tuple([machine.pop() for _ in range(count)][::-1])


def _text(machine: _Machine, size: int) -> str:
    return machine.take(size).decode("utf-8")


_ACTIONS: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": lambda m: _check_protocol(m.number("<B")),
    b"\x95": lambda m: _check_frame(m, m.number("<Q")),
    b"(": lambda m: m.stack.append(_MARK),
    b"0": lambda m: _discard(m.stack.pop()),
    b"1": lambda m: _discard(m.pop_mark()),
    b"N": _push(lambda m: None),
    b"\x88": _push(lambda m: True),
    b"\x89": _push(lambda m: False),
    b"J": _push(lambda m: m.number("<i")),
    b"K": _push(lambda m: m.number("<B")),
    b"M": _push(lambda m: m.number("<H")),
    b"\x8a": _push(lambda m: _long(m, m.number("<B"))),
    b"\x8b": _push(lambda m: _long(m, m.number("<i"))),
    b"G": _push(lambda m: m.number(">d")),
    b"C": _push(lambda m: m.take(m.number("<B"))),
    b"B": _push(lambda m: m.take(m.number("<I"))),
    b"\x8e": _push(lambda m: m.take(m.number("<Q"))),
    b"U": _push(lambda m: m.take(m.number("<B")).decode("latin-1")),  # Python 2's str
    b"T": _push(lambda m: m.take(m.number("<i")).decode("latin-1")),
    b"\x8c": _push(lambda m: _text(m, m.number("<B"))),
    b"X": _push(lambda m: _text(m, m.number("<I"))),
    b"\x8d": _push(lambda m: _text(m, m.number("<Q"))),
    b"]": _push(lambda m: []),
    b"}": _push(lambda m: {}),
    b")": _push(lambda m: ()),
    b"l": _push(lambda m: m.pop_mark()),
    b"d": _push(lambda m: _dict(m.pop_mark())),
    b"t": _push(lambda m: tuple(m.pop_mark())),
    b"\x85": _push(_tuple_of(1)),
    b"\x86": _push(_tuple_of(2)),
    b"\x87": _push(_tuple_of(3)),
    b"a": lambda m: _append(m, [m.pop()]),
    b"e": lambda m: _append(m, m.pop_mark()),
    b"s": lambda m: _set_items(m, [m.pop(), m.pop()][::-1]),
    b"u": lambda m: _set_items(m, m.pop_mark()),
    b"q": lambda m: _memoize(m, m.number("<B")),
    b"r": lambda m: _memoize(m, m.number("<I")),
    b"\x94": lambda m: _memoize(m, len(m.memo)),
    b"h": _push(lambda m: m.memo[m.number("<B")]),
    b"j": _push(lambda m: m.memo[m.number("<I")]),
    b"c": _push(lambda m: _global(m.line(), m.line())),
    b"\x93": _push(_stack_global),
    b"R": _push(_make),
    b"\x81": _push(_make),
    b"b": _build,
}


def _discard(value: Any) -> None:
    """POP: the value is not wanted."""


def _check_protocol(number: int) -> None:
    if not 2 <= number <= 5:
        raise Unsupported(f"pickle protocol {number}")


def _check_frame(machine: _Machine, size: int) -> None:
    if size > len(machine.data) - machine.position:
        raise CorruptData("a pickle frame that is longer than the pickle")
