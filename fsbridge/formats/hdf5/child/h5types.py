"""HDF5 datatypes in plain JSON, as the child tells the daemon, of h5py's `TypeID` objects.

    {"class": "integer", "size": 4, "order": "little", "signed": true}        "precision", "offset" where bits are unused
    {"class": "float", "size": 8, "order": "big", "ieee": true}
    {"class": "string", "size": 5, "variable": false, "charset": "utf-8", "padding": "null"}
    {"class": "compound", "size": 16, "fields": [["name", 0, {...}], ...]}
    {"class": "enum", "size": 1, "base": {...}, "members": [["RED", 0], ...]}  and "bool", h5py's enum FALSE, TRUE
    {"class": "array", "size": 24, "dims": [3], "base": {...}}, "vlen", "complex", "reference", "opaque", "bitfield", "time"

Not here: what Zarr makes of them (`types.py`), values (`values.py`).
"""

from __future__ import annotations

import ctypes
from typing import Any

from h5py import h5p

from fsbridge.children.hdf5 import ID, SIZE, function

_get_precision = function(h5p, "H5Tget_precision", ID, result=SIZE)
_get_offset = function(h5p, "H5Tget_offset", ID, result=ctypes.c_int)
"""h5py has both for numbers, not for bit fields."""

MAX_DEPTH = 16
"""Types inside types: nothing real is deeper than four, and a crafted file can nest without end."""


class NestedTooDeep(ValueError):
    """A type of more than `MAX_DEPTH` types, each inside the other: no damage, but not read."""


_CLASSES = ("integer", "float", "time", "string", "bitfield", "opaque", "compound", "reference", "enum", "vlen", "array")
"""H5T_class_t by number (H5Tpublic.h)."""
_COMPLEX = 11
_ORDERS = {0: "little", 1: "big"}

_IEEE = {2: (15, 10, 5, 0, 10, 15), 4: (31, 23, 8, 0, 23, 127), 8: (63, 52, 11, 0, 52, 1023)}
"""By size in bytes: sign position, exponent position and width, mantissa position and width, exponent bias (IEEE 754)."""


def text(raw: bytes | str) -> str:
    """A name of the file as text; bytes that are no UTF-8 become surrogates, as for file names."""
    return raw if isinstance(raw, str) else raw.decode("utf-8", "surrogateescape")


def describe(tid: Any, depth: int = 0) -> dict[str, Any]:
    """The type behind an h5py TypeID; NestedTooDeep."""
    if depth > MAX_DEPTH:
        raise NestedTooDeep(f"datatype nested too deep: more than {MAX_DEPTH} types inside each other")
    number = tid.get_class()
    size = tid.get_size()
    if number == _COMPLEX:
        return {"class": "complex", "size": size, "base": describe(tid.get_super(), depth + 1)}
    name = _CLASSES[number] if 0 <= number < len(_CLASSES) else f"class {number}"
    base = {"class": name, "size": size}
    if name == "integer":
        return base | _integer(tid, size)
    if name == "bitfield":
        return base | {"order": _ORDERS.get(tid.get_order(), "other")} | _unused(tid, size)
    if name == "float":
        order = _ORDERS.get(tid.get_order(), "other")
        sign, exponent, exponent_size, mantissa, mantissa_size = tid.get_fields()
        fields = (sign, exponent, exponent_size, mantissa, mantissa_size, tid.get_ebias())
        return base | {"order": order, "ieee": order != "other" and _IEEE.get(size) == fields}
    if name == "string":
        return base | {
            "variable": bool(tid.is_variable_str()),
            "charset": "utf-8" if tid.get_cset() == 1 else "ascii",
            "padding": {0: "null-terminated", 1: "null", 2: "space"}.get(tid.get_strpad(), "unknown"),
        }
    if name == "opaque":
        return base | {"tag": text(tid.get_tag()).encode("utf-8", "replace").decode()}
    if name == "reference":
        return base | {"kind": {8: "object", 12: "region"}.get(size, "other")}
    if name == "enum":
        return _enum(tid, size, depth)
    if name == "vlen":
        return base | {"base": describe(tid.get_super(), depth + 1)}
    if name == "array":
        return base | {"dims": list(tid.get_array_dims()), "base": describe(tid.get_super(), depth + 1)}
    if name == "compound":
        return _compound(tid, size, depth)
    return base


def _integer(tid: Any, size: int) -> dict[str, Any]:
    return {"order": _ORDERS.get(tid.get_order(), "other"), "signed": tid.get_sign() == 1} | _unused(tid, size)


def _unused(tid: Any, size: int) -> dict[str, Any]:
    precision, offset = _get_precision(tid.id), _get_offset(tid.id)
    return {} if (precision, offset) == (8 * size, 0) else {"precision": precision, "offset": offset}


def _enum(tid: Any, size: int, depth: int) -> dict[str, Any]:
    members = [[text(tid.get_member_name(i)), int(tid.get_member_value(i))] for i in range(tid.get_nmembers())]
    base = describe(tid.get_super(), depth + 1)
    if size == 1 and sorted(members) == [["FALSE", 0], ["TRUE", 1]] and not base.get("offset"):
        return {"class": "bool", "size": 1}
    return {"class": "enum", "size": size, "base": base, "members": members}


def _compound(tid: Any, size: int, depth: int) -> dict[str, Any]:
    fields = [
        [text(tid.get_member_name(i)), tid.get_member_offset(i), describe(tid.get_member_type(i), depth + 1)]
        for i in range(tid.get_nmembers())
    ]
    if [field[0] for field in fields] == ["r", "i"]:
        (_, first, real), (_, second, imaginary) = fields
        if real == imaginary and real.get("ieee") and (first, second) == (0, real["size"]) and size == 2 * real["size"]:
            return {"class": "complex", "size": size, "base": real}
    return {"class": "compound", "size": size, "fields": fields}


def has_pointers(described: dict[str, Any]) -> bool:
    """Whether stored elements only point at their values (heap, objects), so that their bytes mean nothing elsewhere."""
    if described["class"] in ("vlen", "reference") or described.get("variable"):
        return True
    if "base" in described and has_pointers(described["base"]):
        return True
    return any(has_pointers(field[2]) for field in described.get("fields", ()))


def refers(described: dict[str, Any]) -> bool:
    """Whether elements hold references."""
    if described["class"] == "reference" or ("base" in described and refers(described["base"])):
        return True
    return any(refers(field[2]) for field in described.get("fields", ()))


def unreadable(described: dict[str, Any], inside: str = "", new: bool = False) -> str | None:
    """Why h5py cannot be asked for such elements; None where it can. `new`: HDF5 itself is asked, from 1.12 on."""
    name = described["class"]
    if name == "reference" and described["kind"] == "other" and not new:
        return "references of the type H5T_STD_REF (HDF5 1.12 and later)"
    if name == "reference" and described["kind"] == "region" and inside == "vlen":
        return "region references in sequences of variable length"  # h5py 3.16 dies converting them
    if name == "vlen":
        inside = "vlen"
    parts = [described["base"]] if "base" in described else []
    parts += [field[2] for field in described.get("fields", ())]
    return next((reason for part in parts if (reason := unreadable(part, inside, new)) is not None), None)


def is_partial(described: dict[str, Any]) -> bool:
    """Whether there is an integer that uses only some of its bits: then only HDF5's conversion makes it an ordinary one."""
    if "precision" in described or ("base" in described and is_partial(described["base"])):
        return True
    return any(is_partial(field[2]) for field in described.get("fields", ()))


def form(described: dict[str, Any]) -> str:
    """How decoded elements are shown.

    "raw": their stored bytes. "converted": the same, but integers with unused bits are widened by HDF5 in the child.
    "text": UTF-8 strings, and references as paths. "sequences": variable-length sequences, as the bytes of their elements
    in one of these two forms. "json": one JSON text per element, for structures that hold pointers.
    """
    if not has_pointers(described):
        return "converted" if is_partial(described) else "raw"
    if described.get("variable") or (described["class"] == "reference" and described["kind"] != "other"):
        return "text"
    if described["class"] == "vlen" and not has_pointers(described["base"]):
        return "sequences"
    return "json"
