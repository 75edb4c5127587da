"""HDF5 datatypes as plain JSON for the daemon, made from h5py's `TypeID` objects; and types to read elements with.

    {"class": "integer", "size": 4, "order": "little", "signed": true}        "precision", "offset" where bits are unused
    {"class": "float", "size": 8, "order": "big", "ieee": true}                 "small": "bfloat16" for one of `_SMALL`
    {"class": "string", "size": 5, "variable": false, "charset": "utf-8", "padding": "null"}
    {"class": "compound", "size": 16, "fields": [["name", 0, {...}], ...]}
    {"class": "enum", "size": 1, "base": {...}, "members": [["RED", 0], ...]}  and "bool", h5py's enum FALSE, TRUE
    {"class": "array", "size": 24, "dims": [3], "base": {...}}, "vlen", "complex", "reference", "opaque", "bitfield", "time"

Part of the HDF5 child. Not here: the Zarr types that are shown for them (`types.py`), values (`values.py`).
"""

from __future__ import annotations

import ctypes
import functools
from functools import cached_property
from typing import Any

from h5py import h5p, h5t

from fsbridge.children.hdf5_functions import ID, SIZE, find_function

_get_precision = find_function(h5p, "H5Tget_precision", ID, result=SIZE)
_get_offset = find_function(h5p, "H5Tget_offset", ID, result=ctypes.c_int)
"""Functions of HDF5 itself, because h5py offers them for integers, but not for bit fields."""

MAX_DEPTH = 16
"""Most types inside each other. Real types have at most four, but a crafted file can nest without end."""


class NestedTooDeep(ValueError):
    """A type of more than `MAX_DEPTH` types inside each other. It may be valid, but it is not read."""


_CLASSES = ("integer", "float", "time", "string", "bitfield", "opaque", "compound", "reference", "enum", "vlen", "array")
"""Names of H5T_class_t by number (H5Tpublic.h)."""
_ORDERS = {0: "little", 1: "big"}

_IEEE = {2: (15, 10, 5, 0, 10, 15), 4: (31, 23, 8, 0, 23, 127), 8: (63, 52, 11, 0, 52, 1023)}
"""IEEE 754 floats by size in bytes: sign position, exponent position and width, mantissa position and width, exponent bias.
"""


_SMALL = {(15, 7, 8, 0, 7, 127): "bfloat16", (7, 2, 5, 0, 2, 15): "float8_e5m2"}
"""Floats that numpy lacks and Zarr v3 has, by the numbers that `_IEEE` has for each size.

HDF5's other small floats may mean two of Zarr's types: HDF5 reads them with infinities, and the formats that they are named
for have none.
"""


def decode_name(raw: bytes | str) -> str:
    """Return a name of the file as text. Bytes that are not UTF-8 become surrogates, as in file names."""
    return raw if isinstance(raw, str) else raw.decode("utf-8", "surrogateescape")


def describe(tid: Any, depth: int = 0) -> dict[str, Any]:
    """Return the description of an h5py TypeID. Raises NestedTooDeep."""
    if depth > MAX_DEPTH:
        raise NestedTooDeep(f"datatype nested too deep: more than {MAX_DEPTH} types inside each other")
    number = tid.get_class()
    size = tid.get_size()
    if number == 11:
        return {"class": "complex", "size": size, "base": describe(tid.get_super(), depth + 1)}
    name = _CLASSES[number] if 0 <= number < len(_CLASSES) else f"class {number}"
    base = {"class": name, "size": size}
    if name == "integer":
        return base | _describe_integer(tid, size)
    if name == "bitfield":
        return base | {"order": _ORDERS.get(tid.get_order(), "other")} | _describe_unused_bits(tid, size)
    if name == "float":
        order = _ORDERS.get(tid.get_order(), "other")
        sign, exponent, exponent_size, mantissa, mantissa_size = tid.get_fields()
        fields = (sign, exponent, exponent_size, mantissa, mantissa_size, tid.get_ebias())
        small = {"small": _SMALL[fields]} if fields in _SMALL and order != "other" and 8 * size == fields[0] + 1 else {}
        return base | {"order": order, "ieee": order != "other" and _IEEE.get(size) == fields} | small
    if name == "string":
        return base | {
            "variable": bool(tid.is_variable_str()),
            "charset": "utf-8" if tid.get_cset() == 1 else "ascii",
            "padding": {0: "null-terminated", 1: "null", 2: "space"}.get(tid.get_strpad(), "unknown"),
        }
    if name == "opaque":
        return base | {"tag": decode_name(tid.get_tag()).encode("utf-8", "replace").decode()}
    if name == "reference":
        return base | {"kind": {8: "object", 12: "region"}.get(size, "other")}
    if name == "enum":
        return _describe_enum(tid, size, depth)
    if name == "vlen":
        return base | {"base": describe(tid.get_super(), depth + 1)}
    if name == "array":
        return base | {"dims": list(tid.get_array_dims()), "base": describe(tid.get_super(), depth + 1)}
    if name == "compound":
        return _describe_compound(tid, size, depth)
    return base


def _describe_integer(tid: Any, size: int) -> dict[str, Any]:
    return {"order": _ORDERS.get(tid.get_order(), "other"), "signed": tid.get_sign() == 1} | _describe_unused_bits(tid, size)


def _describe_unused_bits(tid: Any, size: int) -> dict[str, Any]:
    precision, offset = _get_precision(tid.id), _get_offset(tid.id)
    return {} if (precision, offset) == (8 * size, 0) else {"precision": precision, "offset": offset}


def _describe_enum(tid: Any, size: int, depth: int) -> dict[str, Any]:
    members = [[decode_name(tid.get_member_name(i)), int(tid.get_member_value(i))] for i in range(tid.get_nmembers())]
    base = describe(tid.get_super(), depth + 1)
    if size == 1 and sorted(members) == [["FALSE", 0], ["TRUE", 1]] and not base.get("offset"):
        return {"class": "bool", "size": 1}
    return {"class": "enum", "size": size, "base": base, "members": members}


def _describe_compound(tid: Any, size: int, depth: int) -> dict[str, Any]:
    fields = [
        [decode_name(tid.get_member_name(i)), tid.get_member_offset(i), describe(tid.get_member_type(i), depth + 1)]
        for i in range(tid.get_nmembers())
    ]
    if [field[0] for field in fields] == ["r", "i"]:
        (_, first, real), (_, second, imaginary) = fields
        if real == imaginary and real.get("ieee") and (first, second) == (0, real["size"]) and size == 2 * real["size"]:
            return {"class": "complex", "size": size, "base": real}
    return {"class": "compound", "size": size, "fields": fields}


def has_pointers(described: dict[str, Any]) -> bool:
    """Tell whether stored elements only point at their values (heap, objects).

    The bytes of such elements mean nothing elsewhere.
    """
    if described["class"] in ("vlen", "reference") or described.get("variable"):
        return True
    if "base" in described and has_pointers(described["base"]):
        return True
    return any(has_pointers(field[2]) for field in described.get("fields", ()))


def refers(described: dict[str, Any]) -> bool:
    """Tell whether elements hold references."""
    if described["class"] == "reference" or ("base" in described and refers(described["base"])):
        return True
    return any(refers(field[2]) for field in described.get("fields", ()))


def why_unreadable(described: dict[str, Any], inside: str = "") -> str | None:
    """Return why h5py cannot read such elements, or None if it can. `inside`: the class of the type around this one."""
    name = described["class"]
    if name == "reference" and described["kind"] == "other":
        return "references of the type H5T_STD_REF (HDF5 1.12 and later)"
    if name == "reference" and described["kind"] == "region" and inside == "vlen":
        return "region references in sequences of variable length"  # h5py 3.16 crashes when it converts them
    if name == "vlen":
        inside = "vlen"
    parts = [described["base"]] if "base" in described else []
    parts += [field[2] for field in described.get("fields", ())]
    return next((reason for part in parts if (reason := why_unreadable(part, inside)) is not None), None)


def is_partial(described: dict[str, Any]) -> bool:
    """Tell whether an integer uses only some of its bits. Only HDF5's conversion makes it an ordinary integer."""
    if "precision" in described or ("base" in described and is_partial(described["base"])):
        return True
    return any(is_partial(field[2]) for field in described.get("fields", ()))


def choose_form(described: dict[str, Any]) -> str:
    """Return the form in which decoded elements are shown.

    - "raw": their stored bytes.
    - "converted": the same, but HDF5 widens integers with unused bits in the child.
    - "text": UTF-8 strings, and references as paths; "bytes" in place of it for strings found not to be UTF-8.
    - "sequences": variable-length sequences, as the bytes of their elements in one of the first two forms.
    - "json": one JSON text for each element, for structures that hold pointers.
    """
    if not has_pointers(described):
        return "converted" if is_partial(described) else "raw"
    if described.get("variable") or (described["class"] == "reference" and described["kind"] != "other"):
        return "text"
    if described["class"] == "vlen" and not has_pointers(described["base"]):
        return "sequences"
    return "json"


class KnownType:
    """Facts about one type from HDF5. They are kept, because most attributes of a file have one of a few types."""

    def __init__(self, tid: Any) -> None:
        """Describe the type. Raises NestedTooDeep."""
        self._tid = tid
        self.described = describe(tid)
        self.unreadable = why_unreadable(self.described)
        """Why h5py cannot read such elements; None if it can."""

    @cached_property
    def dtype(self) -> Any:
        """The numpy type that h5py uses for such elements. Raises TypeError if there is none."""
        return self._tid.dtype

    @cached_property
    def memory(self) -> Any:
        """The HDF5 type of elements in a numpy array of `dtype`."""
        return h5t.py_create(self.dtype)


def known_type(tid: Any) -> KnownType:
    """Return what is known about a type. Raises NestedTooDeep."""
    encoded = tid.encode()
    kind = _decode(encoded) if len(encoded) <= 1024 else None  # longer ones are rare, and are not kept
    if kind is None or refers(kind.described):  # references belong to the file of the type
        return KnownType(tid)
    return kind


@functools.lru_cache(256)
def _decode(encoded: bytes) -> KnownType:
    return KnownType(h5t.decode(encoded))


_set_precision = find_function(h5p, "H5Tset_precision", ID, SIZE)
_set_offset = find_function(h5p, "H5Tset_offset", ID, SIZE)


def widen(tid: Any) -> Any:
    """Return the memory type for reading elements of `tid`: integers of the same size that use all of their bits.

    An enumeration becomes its integer type, because a number without a name has no place in an enumeration that HDF5
    converts to.
    """
    if not is_partial(describe(tid)):
        return tid
    number = tid.get_class()
    if number in (h5t.INTEGER, h5t.BITFIELD):
        memory_type = tid.copy()
        if _set_offset(memory_type.id, 0) < 0 or _set_precision(memory_type.id, 8 * tid.get_size()) < 0:
            raise ValueError("an integer whose bits HDF5 cannot move")
        return memory_type
    if number == h5t.COMPOUND:
        memory_type = h5t.create(h5t.COMPOUND, tid.get_size())
        for i in range(tid.get_nmembers()):
            memory_type.insert(tid.get_member_name(i), tid.get_member_offset(i), widen(tid.get_member_type(i)))
        return memory_type
    base = widen(tid.get_super())
    if number == h5t.ARRAY:
        return h5t.array_create(base, tid.get_array_dims())
    return h5t.vlen_create(base) if number == h5t.VLEN else base
